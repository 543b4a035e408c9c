/* SPDX-License-Identifier: Apache-2.0 */
#include "report/rank.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "trace/io/input.h"
#include "trace/io/jsonwriter.h"
#include "trace/trace/intern.h"
#include "trace/trace/trace.h"

#include "common/command.h"
#include "common/draft.h"
#include "common/tool_host.h"
#include "report/collect.h"
#include "report/json_tree.h"

_Static_assert(FLW_ANALYSIS_OWNERS == 200 && FLW_RANK_STEPS == 200, "as the messages say");
_Static_assert(FLW_TRACE_MESSAGE_BYTES <= FLW_RANK_MESSAGE_BYTES, "the input's message fits");

#define MOST_ITEMS 200
#define MOST_BYTES (UINT64_C(1) << 48) /* of a rank: 65,535 ranks can be added up */

/* ---- fields of a record ---- */

typedef const struct flw_json_node *node;

static const struct flw_json_node none = {.kind = FLW_JSON_FAILED, .key = "", .text = ""};

/* A record that is written, or else read. Each function below does both with a part of the record. */
struct form {
    struct flw_json_writer *out; /* NULL: the record is read */
    struct flw_input input;      /* keeps the first error */
    struct flw_json json;
    struct flw_json_tree tree;
    node object, item; /* that are read */
};

/* Fail with the sentence unless `is_right`. Returns is_right. */
static bool expect(struct form *form, bool is_right, node at, const char *wrong)
{
    return is_right || flw_input_fail(&form->input, at->offset,
                                      "%s; it is no record of fallow report --json-lines", wrong);
}

/* Find the only member of that name of the object; NULL: the item of the list. */
static node find(struct form *form, const char *key)
{
    node found = &none;
    if (key == NULL) {
        return form->item;
    }
    for (node at = form->object->child; at != NULL; at = at->next) {
        if (strcmp(at->key, key) == 0) {
            expect(form, found->kind == FLW_JSON_FAILED, at, "something is said twice");
            found = at;
        }
    }
    expect(form, found->kind != FLW_JSON_FAILED, form->object, "something is missing");
    return found;
}

static uint64_t read_number(struct form *form, node at)
{
    const char *text = at->text;
    char *end = NULL;
    if (at->kind == FLW_JSON_LITERAL && strcmp(text, "null") == 0) {
        return FLW_UNKNOWN;
    }
    if (!expect(form, at->kind == FLW_JSON_NUMBER, at, "a number is missing")) {
        return 0;
    }
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    expect(form, *end == '\0' && text[0] != '-', at, "a number is not whole");
    expect(form, errno == 0 && number <= FLW_RANK_MOST_NUMBER, at, "a number is above 2^62");
    return number;
}

static void pass_number(struct form *form, const char *key, uint64_t *value)
{
    if (form->out != NULL) {
        flw_json_count(form->out, key, *value);
    } else {
        *value = read_number(form, find(form, key));
    }
}

static void pass_text(struct form *form, const char *key, char *value, size_t room)
{
    if (form->out != NULL) {
        flw_json_text(form->out, key, value);
        return;
    }
    node at = find(form, key);
    if (expect(form, at->kind == FLW_JSON_STRING, at, "a text is missing")) {
        snprintf(value, room, "%s", at->text);
    }
}

static void pass_bool(struct form *form, const char *key, bool *value)
{
    if (form->out != NULL) {
        flw_json_bool(form->out, key, *value);
        return;
    }
    node at = find(form, key);
    *value = strcmp(at->text, "true") == 0;
    expect(form, at->kind == FLW_JSON_LITERAL && strcmp(at->text, "null") != 0, at,
           "true or false is missing");
}

typedef void (*pass)(struct form *form, void *structure);

static void pass_object(struct form *form, const char *key, pass pass_members, void *structure)
{
    if (form->out != NULL) {
        flw_json_begin(form->out, key, '{');
        pass_members(form, structure);
        flw_json_end(form->out, '}');
        return;
    }
    node outer = form->object;
    form->object = find(form, key);
    if (expect(form, form->object->kind == FLW_JSON_OBJECT, form->object, "an object is missing")) {
        pass_members(form, structure);
    }
    form->object = outer;
}

/* The items of a list are an array of `count` structures of `bytes`. */
struct list {
    void *items;
    size_t count, bytes;
    const char *wrong, *too_many;
};

static void pass_list(struct form *form, const char *key, pass pass_item, struct list *list)
{
    size_t room = 0;
    if (form->out != NULL) {
        flw_json_begin(form->out, key, '[');
        for (size_t i = 0; i < list->count; i++) {
            pass_item(form, (char *)list->items + i * list->bytes);
        }
        flw_json_end(form->out, ']');
        return;
    }
    node list_node = find(form, key);
    expect(form, list_node->kind == FLW_JSON_ARRAY, list_node, list->wrong);
    for (node at = list_node->child; at != NULL; at = at->next) {
        room++;
    }
    list->items = flw_host_alloc(flw_min(room, MOST_ITEMS), list->bytes);
    for (node at = list_node->child; at != NULL; at = at->next) {
        if (expect(form, list->count < MOST_ITEMS, at, list->too_many)) {
            form->item = at;
            pass_item(form, (char *)list->items + list->count++ * list->bytes);
        }
    }
}

static void pass_owner_members(struct form *form, void *structure)
{
    struct flw_analysis_owner *owner = structure;
    pass_text(form, "owner", owner->name, sizeof owner->name);
    pass_number(form, "bytes", &owner->bytes);
    pass_number(form, "blocks", &owner->count);
}

static void pass_owner(struct form *form, void *owner)
{
    pass_object(form, NULL, pass_owner_members, owner);
}

static void pass_moment(struct form *form, void *structure)
{
    struct flw_analysis_holding *moment = structure;
    struct list list = {.items = moment->owners,
                        .count = moment->owner_count,
                        .bytes = sizeof *moment->owners,
                        .wrong = "owners are no list",
                        .too_many = "a moment has more than 200 owners"};
    pass_number(form, "bytes", &moment->bytes);
    pass_number(form, "blocks", &moment->count);
    pass_number(form, "rest_bytes", &moment->rest_bytes);
    pass_number(form, "rest_blocks", &moment->rest_count);
    pass_list(form, "owners", pass_owner, &list);
    moment->owners = list.items;
    moment->owner_count = list.count;
}

/* Pass a step as [ns, bytes]. */
static void pass_step(struct form *form, void *structure)
{
    struct flw_rank_step *step = structure;
    if (form->out != NULL) {
        flw_json_begin(form->out, NULL, '[');
        flw_json_number(form->out, NULL, step->time_ns);
        flw_json_number(form->out, NULL, step->bytes);
        flw_json_end(form->out, ']');
        return;
    }
    node pair = form->item, time = pair->child, bytes = time == NULL ? NULL : time->next;
    if (expect(form, pair->kind == FLW_JSON_ARRAY && bytes != NULL && bytes->next == NULL, pair,
               "a step is no pair")) {
        *step = (struct flw_rank_step){read_number(form, time), read_number(form, bytes)};
    }
}

static void pass_rank(struct form *form, void *structure)
{
    struct flw_rank *rank = structure;
    struct list list = {.items = rank->steps,
                        .count = rank->step_count,
                        .bytes = sizeof *rank->steps,
                        .wrong = "what is held is no list",
                        .too_many = "held has more than 200 steps"};
    pass_number(form, "rank", &rank->rank);
    pass_text(form, "title", rank->title, sizeof rank->title);
    pass_number(form, "device", &rank->device);
    pass_text(form, "rule", rank->rule, sizeof rank->rule);
    pass_bool(form, "has_code", &rank->has_code);
    pass_number(form, "events", &rank->events);
    pass_number(form, "begin_ns", &rank->begin_ns);
    pass_number(form, "span_ns", &rank->span_ns);
    pass_number(form, "limit_bytes", &rank->limit_bytes);
    pass_bool(form, "held_is_reserved", &rank->is_reserved);
    pass_number(form, "peak_held_bytes", &rank->peak_held_bytes);
    pass_number(form, "peak_requested_bytes", &rank->peak_requested_bytes);
    pass_object(form, "at_peak", pass_moment, &rank->at_peak);
    pass_number(form, "oom_count", &rank->oom_count);
    pass_number(form, "oom_ns", &rank->oom_ns);
    pass_number(form, "asked_bytes", &rank->asked_bytes);
    pass_number(form, "free_bytes", &rank->free_bytes);
    pass_number(form, "oom_held_bytes", &rank->oom_held_bytes);
    pass_text(form, "asked_by", rank->asked_by, sizeof rank->asked_by);
    pass_object(form, "at_oom", pass_moment, &rank->at_oom);
    pass_list(form, "held", pass_step, &list);
    rank->steps = list.items;
    rank->step_count = list.count;
}

static void write_line(struct flw_rank *rank)
{
    struct flw_draft draft;
    flw_draft_begin(&draft, "");
    struct flw_json_writer writer = {.file = draft.file};
    struct form form = {.out = &writer};
    flw_json_begin(&writer, NULL, '{');
    flw_json_number(&writer, "fallow_rank", FLW_RANK_SCHEMA);
    pass_rank(&form, rank);
    flw_json_end(&writer, '}');
    if (!flw_draft_end(&draft, true, NULL)) {
        flw_host_refuse(1, draft.length);
    }
    rank->line = draft.text;
}

/* ---- from an analysis ---- */

/* Return the number, or FLW_UNKNOWN if too large for a record. */
static uint64_t told(uint64_t number)
{
    return number <= FLW_RANK_MOST_NUMBER ? number : FLW_UNKNOWN;
}

/* Find the most held in each step of equal time, and what was held at the out-of-memory. Returns the number of the last
 * step with events. */
static size_t find_most(struct flw_rank *rank, const struct flw_analysis *analysis,
                        uint64_t most[FLW_RANK_STEPS])
{
    const struct flw_trace *trace = analysis->trace;
    uint64_t step_ns = rank->span_ns / FLW_RANK_STEPS, live_bytes = 0, reserved_bytes = 0;
    size_t step = 0;
    for (size_t i = 0; i < trace->segment_count; i++) {
        reserved_bytes += trace->segments[i].size_bytes;
    }
    for (size_t i = 0; i < trace->initial_count; i++) {
        live_bytes += trace->blocks[i].size_bytes;
    }
    uint64_t held_bytes = rank->is_reserved ? reserved_bytes : live_bytes;
    most[0] = held_bytes;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        uint64_t own = step_ns == 0 ? 0 : flw_min(event->time_ns / step_ns, FLW_RANK_STEPS - 1);
        while (step < own) {
            most[++step] = held_bytes;
        }
        live_bytes += event->op == FLW_TRACE_ALLOC  ? event->size_bytes
                      : event->op == FLW_TRACE_FREE ? 0 - event->size_bytes
                                                    : 0;
        reserved_bytes = flw_collect_reserved(event, reserved_bytes);
        held_bytes = rank->is_reserved ? reserved_bytes : live_bytes;
        most[step] = flw_max(most[step], held_bytes);
        if (analysis->oom.count != 0 && i + 1 == analysis->oom.event) {
            rank->oom_ns = rank->begin_ns == FLW_UNKNOWN ? FLW_UNKNOWN : event->time_ns;
            rank->oom_held_bytes = held_bytes;
        }
    }
    return step;
}

static void fill_steps(struct flw_rank *rank, const struct flw_analysis *analysis)
{
    uint64_t most[FLW_RANK_STEPS];
    size_t last = find_most(rank, analysis, most);
    rank->steps = flw_host_alloc(last + 1, sizeof *rank->steps);
    for (size_t i = 0; i <= last; i++) {
        rank->peak_held_bytes = flw_max(rank->peak_held_bytes, most[i]);
        if (i == 0 || most[i] != most[i - 1]) {
            rank->steps[rank->step_count++] = (struct flw_rank_step){
                .time_ns = rank->span_ns / FLW_RANK_STEPS * i, .bytes = most[i]};
        }
    }
}

/* Set the limit to the memory available at the out-of-memory, or to the peak if that was higher. */
static void find_limit(struct flw_rank *rank)
{
    uint64_t bytes = 0;
    if (rank->limit_bytes == FLW_UNKNOWN && rank->is_reserved && rank->oom_count != 0 &&
        rank->free_bytes != FLW_UNKNOWN) {
        bool is_sum = !__builtin_add_overflow(rank->oom_held_bytes, rank->free_bytes, &bytes);
        bytes = flw_max(is_sum ? bytes : 0, rank->peak_held_bytes);
        rank->limit_bytes =
            bytes == 0 ? FLW_UNKNOWN : told(bytes); /* no memory at all: the limit is unknown */
    }
}

/* Copy a moment, and join owners of the same name: cut names, or names without folders, may be equal. */
static void take_holding(struct flw_analysis_holding *moment,
                         const struct flw_analysis_holding *holding)
{
    *moment = *holding;
    moment->left = NULL;
    moment->owner_count = 0;
    moment->owners = flw_host_alloc(holding->owner_count, sizeof *moment->owners);
    for (size_t i = 0; i < holding->owner_count; i++) {
        struct flw_analysis_owner owner = holding->owners[i], *mine = moment->owners;
        while (mine < moment->owners + moment->owner_count && strcmp(mine->name, owner.name) != 0) {
            mine++;
        }
        moment->owner_count += mine == moment->owners + moment->owner_count;
        owner.bytes += mine->bytes;
        owner.count += mine->count;
        *mine = owner;
    }
}

/* Copy the rule. A rule that is too long ends with a hash of the whole, so that different rules stay different. */
static void keep_rule(struct flw_rank *rank, const char *rule)
{
    enum {
        END_BYTES = sizeof "... (rule 0123456789abcdef)"
    };
    size_t length = strlen(rule);
    snprintf(rank->rule, sizeof rank->rule, "%s", rule);
    if (length >= sizeof rank->rule) {
        snprintf(rank->rule + sizeof rank->rule - END_BYTES, END_BYTES, "... (rule %016" PRIx64 ")",
                 flw_intern_hash(rule, length));
    }
}

const char *flw_rank_make(struct flw_rank *rank, const struct flw_analysis *analysis,
                          uint64_t number, uint64_t limit_bytes)
{
    const struct flw_trace *trace = analysis->trace;
    const struct flw_analysis_oom *oom = &analysis->oom;
    bool has_clock = trace->has_times && trace->begin_ns != 0, has_oom = oom->count != 0;
    *rank = (struct flw_rank){
        .rank = told(number),
        .device = (uint64_t)trace->device,
        .has_code = analysis->has_code,
        .events = trace->event_count,
        .begin_ns = has_clock ? told(trace->begin_ns) : FLW_UNKNOWN,
        .span_ns = trace->event_count == 0 ? 0 : trace->events[trace->event_count - 1].time_ns,
        .limit_bytes = limit_bytes == 0 ? FLW_UNKNOWN : limit_bytes,
        .is_reserved = trace->has_segments,
        .peak_requested_bytes = trace->peak_requested_bytes,
        .oom_count = oom->count,
        .oom_ns = FLW_UNKNOWN,
        .asked_bytes = has_oom ? told(oom->asked_bytes) : FLW_UNKNOWN,
        .free_bytes = has_oom ? told(oom->free_bytes) : FLW_UNKNOWN,
        .oom_held_bytes = FLW_UNKNOWN};
    snprintf(rank->title, sizeof rank->title, "%s", analysis->title);
    snprintf(rank->asked_by, sizeof rank->asked_by, "%s", oom->owner);
    keep_rule(rank, analysis->owner_rule);
    take_holding(&rank->at_peak, &analysis->holdings[FLW_ANALYSIS_AT_PEAK]);
    take_holding(&rank->at_oom, &analysis->holdings[FLW_ANALYSIS_AT_OOM]);
    fill_steps(rank, analysis);
    find_limit(rank);
    write_line(rank);
    if (rank->span_ns > FLW_RANK_MOST_NUMBER) {
        return "it lasts longer than 2^62 ns";
    }
    return flw_max(rank->peak_requested_bytes, rank->peak_held_bytes) > MOST_BYTES
               ? "it holds more than 256 TiB"
               : NULL;
}

void flw_rank_finish(struct flw_rank *rank)
{
    flw_host_free(rank->at_peak.owners);
    flw_host_free(rank->at_oom.owners);
    flw_host_free(rank->steps);
    free(rank->line);
    *rank = (struct flw_rank){0};
}

/* ---- reading ---- */

/* Check the sums of a moment. */
static void check_moment(struct form *form, node root, const struct flw_analysis_holding *moment)
{
    uint64_t bytes = moment->rest_bytes, blocks = moment->rest_count;
    bool overflows = moment->bytes == FLW_UNKNOWN || moment->count == FLW_UNKNOWN;
    bool is_twice = false;
    for (size_t i = 0; i < moment->owner_count; i++) {
        const struct flw_analysis_owner *owner = &moment->owners[i];
        overflows |= __builtin_add_overflow(bytes, owner->bytes, &bytes) ||
                     __builtin_add_overflow(blocks, owner->count, &blocks);
        for (size_t other = 0; other < i; other++) {
            is_twice |= strcmp(moment->owners[other].name, owner->name) == 0;
        }
    }
    expect(form, !is_twice, root, "an owner is there twice");
    expect(form, !overflows && bytes == moment->bytes && blocks == moment->count, root,
           "its sums are wrong");
    expect(form, bytes <= MOST_BYTES, root, "a moment has more than 256 TiB");
}

static void check(struct form *form, node root, const struct flw_rank *rank)
{
    bool is_known = rank->device != FLW_UNKNOWN && rank->span_ns != FLW_UNKNOWN &&
                    rank->oom_count != FLW_UNKNOWN && rank->peak_held_bytes != FLW_UNKNOWN &&
                    rank->peak_requested_bytes != FLW_UNKNOWN;
    expect(form, is_known, root, "a number is null that cannot be unknown");
    expect(form, rank->limit_bytes != 0, root, "limit_bytes is 0");
    for (size_t i = 0; i < rank->step_count; i++) {
        const struct flw_rank_step *step = &rank->steps[i];
        expect(form, step->time_ns <= rank->span_ns && (i == 0 || step[-1].time_ns < step->time_ns),
               root, "the times of held do not ascend to span_ns");
        expect(form, step->bytes <= rank->peak_held_bytes, root,
               "more is held than peak_held_bytes");
    }
    check_moment(form, root, &rank->at_peak);
    check_moment(form, root, &rank->at_oom);
}

/* Read a record; the first member is the schema. */
static void read_record(struct form *form, struct flw_rank *rank)
{
    if (!flw_json_tree_read(&form->tree, &form->json)) {
        return;
    }
    node root = form->tree.root, first = root->child;
    if (!expect(form, first != NULL && strcmp(first->key, "fallow_rank") == 0, root,
                "it does not begin with fallow_rank")) {
        return;
    }
    if (read_number(form, first) != FLW_RANK_SCHEMA) {
        flw_input_fail(&form->input, first->offset,
                       "a record of schema %s, and this fallow reads %d; write it anew",
                       first->text, FLW_RANK_SCHEMA);
    } else {
        form->object = root;
        pass_rank(form, rank);
        check(form, root, rank);
    }
}

bool flw_rank_read(const char *path, void (*take)(void *context, struct flw_rank *rank),
                   void *context, char *message)
{
    FLW_LOCAL struct form *form = flw_host_alloc(1, sizeof *form);
    struct flw_input *input = &form->input;
    size_t count = 0;
    message[0] = '\0';
    bool is_open = flw_input_open(input, flw_input_place(path), message);
    while (is_open && !input->failed && flw_input_fill(input, 1)) {
        struct flw_rank rank = {0};
        if (isspace(*input->at)) {
            input->at++;
            continue;
        }
        form->json = (struct flw_json){.input = input}; /* each record is a JSON value of its own */
        if (expect(form, *input->at == '{', &none, "it is no object")) {
            read_record(form, &rank);
        }
        if (input->failed) {
            flw_rank_finish(&rank);
        } else {
            write_line(&rank);
            take(context, &rank);
            count++;
        }
    }
    bool is_read = is_open && !input->failed && expect(form, count > 0, &none, "it is empty");
    if (is_open) {
        flw_input_close(input);
    }
    flw_json_tree_finish(&form->tree);
    return is_read;
}
