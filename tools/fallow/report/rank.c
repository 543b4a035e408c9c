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

_Static_assert(FLW_SHEET_OWNERS == 200 && FLW_RANK_STEPS == 200, "as the messages say");
_Static_assert(FLW_TRACE_MESSAGE_BYTES <= FLW_RANK_MESSAGE_BYTES, "the input's message fits");

#define MOST_BYTES (UINT64_C(1) << 48) /* of a rank: 65,535 ranks can be added up */

/* ---- fields of a record ---- */

enum kind {
    END, /* of the fields */
    NUMBER,
    TEXT,
    BOOL,
    OBJECT,
    LIST
};

struct field {
    const char *key; /* NULL in an item that is written as a list */
    enum kind kind;
    size_t offset, room;        /* offset in the structure; size of a text */
    const struct field *fields; /* of the object, or of an item of the list */
    const struct list *list;
};

struct list {
    size_t count_offset, item_bytes, most;
    const char *wrong, *too_many; /* messages */
};

#define AT(type, member) .offset = offsetof(struct type, member)
#define NUMBER_OF(type, member)                          \
    {                                                    \
        .key = #member, .kind = NUMBER, AT(type, member) \
    }
#define TEXT_OF(type, member)                           \
    {                                                   \
        .key = #member, .kind = TEXT, AT(type, member), \
        .room = sizeof((struct type *)NULL)->member     \
    }

static const struct field owner_fields[] = {
    {.key = "owner", .kind = TEXT, AT(flw_sheet_owner, name), .room = FLW_RANK_NAME_BYTES},
    NUMBER_OF(flw_sheet_owner, bytes),
    {.key = "blocks", .kind = NUMBER, AT(flw_sheet_owner, count)},
    {.kind = END}};

static const struct list owner_list = {.count_offset =
                                           offsetof(struct flw_sheet_holding, owner_count),
                                       .item_bytes = sizeof(struct flw_sheet_owner),
                                       .most = FLW_SHEET_OWNERS,
                                       .wrong = "owners are no list",
                                       .too_many = "a moment has more than 200 owners"};

static const struct field moment_fields[] = {
    NUMBER_OF(flw_sheet_holding, bytes),
    {.key = "blocks", .kind = NUMBER, AT(flw_sheet_holding, count)},
    NUMBER_OF(flw_sheet_holding, rest_bytes),
    {.key = "rest_blocks", .kind = NUMBER, AT(flw_sheet_holding, rest_count)},
    {.key = "owners",
     .kind = LIST,
     AT(flw_sheet_holding, owners),
     .fields = owner_fields,
     .list = &owner_list},
    {.kind = END}};

static const struct field step_fields[] = {{.kind = NUMBER, AT(flw_rank_step, time_ns)},
                                           {.kind = NUMBER, AT(flw_rank_step, bytes)},
                                           {.kind = END}};

static const struct list step_list = {.count_offset = offsetof(struct flw_rank, step_count),
                                      .item_bytes = sizeof(struct flw_rank_step),
                                      .most = FLW_RANK_STEPS,
                                      .wrong = "what is held is no list",
                                      .too_many = "held has more than 200 steps"};

static const struct field rank_fields[] = {
    NUMBER_OF(flw_rank, rank),
    TEXT_OF(flw_rank, title),
    NUMBER_OF(flw_rank, device),
    TEXT_OF(flw_rank, rule),
    {.key = "has_code", .kind = BOOL, AT(flw_rank, has_code)},
    NUMBER_OF(flw_rank, events),
    NUMBER_OF(flw_rank, begin_ns),
    NUMBER_OF(flw_rank, span_ns),
    NUMBER_OF(flw_rank, limit_bytes),
    {.key = "held_is_reserved", .kind = BOOL, AT(flw_rank, is_reserved)},
    NUMBER_OF(flw_rank, peak_held_bytes),
    NUMBER_OF(flw_rank, peak_requested_bytes),
    {.key = "at_peak", .kind = OBJECT, AT(flw_rank, at_peak), .fields = moment_fields},
    NUMBER_OF(flw_rank, oom_count),
    NUMBER_OF(flw_rank, oom_ns),
    NUMBER_OF(flw_rank, asked_bytes),
    NUMBER_OF(flw_rank, free_bytes),
    NUMBER_OF(flw_rank, oom_held_bytes),
    TEXT_OF(flw_rank, asked_by),
    {.key = "at_oom", .kind = OBJECT, AT(flw_rank, at_oom), .fields = moment_fields},
    {.key = "held", .kind = LIST, AT(flw_rank, steps), .fields = step_fields, .list = &step_list},
    {.kind = END}};

/* ---- writing ---- */

static void write_fields(struct flw_json_writer *out, const struct field *fields,
                         const void *structure);

static void write_list(struct flw_json_writer *out, const struct field *field, const char *items,
                       size_t count)
{
    bool is_keyed = field->fields->key != NULL;
    flw_json_begin(out, field->key, '[');
    for (size_t i = 0; i < count; i++) {
        flw_json_begin(out, NULL, is_keyed ? '{' : '[');
        write_fields(out, field->fields, items + i * field->list->item_bytes);
        flw_json_end(out, is_keyed ? '}' : ']');
    }
    flw_json_end(out, ']');
}

static void write_fields(struct flw_json_writer *out, const struct field *fields,
                         const void *structure)
{
    for (const struct field *field = fields; field->kind != END; field++) {
        const void *member = (const char *)structure + field->offset;
        switch (field->kind) {
        case NUMBER:
            flw_json_count(out, field->key, *(const uint64_t *)member);
            break;
        case TEXT:
            flw_json_text(out, field->key, member);
            break;
        case BOOL:
            flw_json_bool(out, field->key, *(const bool *)member);
            break;
        case OBJECT:
            flw_json_begin(out, field->key, '{');
            write_fields(out, field->fields, member);
            flw_json_end(out, '}');
            break;
        case LIST:
            write_list(out, field, *(char *const *)member,
                       *(const size_t *)(const void *)((const char *)structure +
                                                       field->list->count_offset));
            break;
        case END:
            break;
        }
    }
}

static void write_line(struct flw_rank *rank)
{
    struct flw_draft draft;
    flw_draft_begin(&draft, "");
    struct flw_json_writer writer = {.file = draft.file};
    flw_json_begin(&writer, NULL, '{');
    flw_json_number(&writer, "fallow_rank", FLW_RANK_SCHEMA);
    write_fields(&writer, rank_fields, rank);
    flw_json_end(&writer, '}');
    if (!flw_draft_end(&draft, true, NULL)) {
        flw_host_refuse(1, draft.length);
    }
    rank->line = draft.text;
}

/* ---- from a sheet ---- */

/* Return the number, or FLW_UNKNOWN if too large for a record. */
static uint64_t told(uint64_t number)
{
    return number <= FLW_RANK_MOST_NUMBER ? number : FLW_UNKNOWN;
}

/* Find the most held in each step of equal time, and what was held at the out-of-memory. Returns the number of the last
 * step with events. */
static size_t find_most(struct flw_rank *rank, const struct flw_sheet *sheet,
                        uint64_t most[FLW_RANK_STEPS])
{
    const struct flw_trace *trace = sheet->trace;
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
        if (sheet->oom.count != 0 && i + 1 == sheet->oom.event) {
            rank->oom_ns = rank->begin_ns == FLW_UNKNOWN ? FLW_UNKNOWN : event->time_ns;
            rank->oom_held_bytes = held_bytes;
        }
    }
    return step;
}

static void fill_steps(struct flw_rank *rank, const struct flw_sheet *sheet)
{
    uint64_t most[FLW_RANK_STEPS];
    size_t last = find_most(rank, sheet, most);
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
static void take_holding(struct flw_sheet_holding *moment, const struct flw_sheet_holding *holding)
{
    *moment = *holding;
    moment->left = NULL;
    moment->owner_count = 0;
    moment->owners = flw_host_alloc(holding->owner_count, sizeof *moment->owners);
    for (size_t i = 0; i < holding->owner_count; i++) {
        struct flw_sheet_owner owner = holding->owners[i], *mine = moment->owners;
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

const char *flw_rank_make(struct flw_rank *rank, const struct flw_sheet *sheet, uint64_t number,
                          uint64_t limit_bytes)
{
    const struct flw_trace *trace = sheet->trace;
    const struct flw_sheet_oom *oom = &sheet->oom;
    bool has_clock = trace->has_times && trace->begin_ns != 0, has_oom = oom->count != 0;
    *rank = (struct flw_rank){
        .rank = told(number),
        .device = (uint64_t)trace->device,
        .has_code = sheet->has_code,
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
    snprintf(rank->title, sizeof rank->title, "%s", sheet->title);
    snprintf(rank->asked_by, sizeof rank->asked_by, "%s", oom->owner);
    keep_rule(rank, sheet->owner_rule);
    take_holding(&rank->at_peak, &sheet->holdings[FLW_SHEET_AT_PEAK]);
    take_holding(&rank->at_oom, &sheet->holdings[FLW_SHEET_AT_OOM]);
    fill_steps(rank, sheet);
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

typedef const struct flw_json_node *node;

/* The input keeps the first error. */
struct reader {
    struct flw_input input;
    struct flw_json json;
    struct flw_json_tree tree;
};

/* Fail with the sentence unless `is_right`. Returns is_right. `at` NULL: the beginning of the file. */
static bool expect(struct reader *reader, bool is_right, node at, const char *wrong)
{
    return is_right || flw_input_fail(&reader->input, at == NULL ? 0 : at->offset,
                                      "%s; it is no record of fallow report --json-lines", wrong);
}

static uint64_t read_number(struct reader *reader, node at)
{
    const char *text = at->text;
    char *end = NULL;
    if (at->kind == FLW_JSON_LITERAL && strcmp(text, "null") == 0) {
        return FLW_UNKNOWN;
    }
    if (!expect(reader, at->kind == FLW_JSON_NUMBER, at, "a number is missing")) {
        return 0;
    }
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    expect(reader, *end == '\0' && text[0] != '-', at, "a number is not whole");
    expect(reader, errno == 0 && number <= FLW_RANK_MOST_NUMBER, at, "a number is above 2^62");
    return number;
}

static void read_fields(struct reader *reader, node object, const struct field *fields,
                        void *structure);

/* Read the two numbers of a step. */
static void read_pair(struct reader *reader, node pair, const struct field *fields, char *item)
{
    node first = pair->child, second = first == NULL ? NULL : first->next;
    if (expect(reader, pair->kind == FLW_JSON_ARRAY && second != NULL && second->next == NULL, pair,
               "a step is no pair")) {
        *(uint64_t *)(void *)(item + fields[0].offset) = read_number(reader, first);
        *(uint64_t *)(void *)(item + fields[1].offset) = read_number(reader, second);
    }
}

static void read_list(struct reader *reader, node list, const struct field *field, char *structure)
{
    size_t capacity = 0, *count = (size_t *)(void *)(structure + field->list->count_offset);
    char **items = (char **)(void *)(structure + field->offset);
    if (!expect(reader, list->kind == FLW_JSON_ARRAY, list, field->list->wrong)) {
        return;
    }
    for (node at = list->child; at != NULL; at = at->next) {
        if (!expect(reader, *count < field->list->most, at, field->list->too_many)) {
            return;
        }
        *items = flw_host_grow(*items, &capacity, *count + 1, field->list->item_bytes);
        char *item = *items + (*count)++ * field->list->item_bytes;
        if (field->fields->key == NULL) {
            read_pair(reader, at, field->fields, item);
        } else {
            read_fields(reader, at, field->fields, item);
        }
    }
}

static void read_field(struct reader *reader, node at, const struct field *field, char *structure)
{
    void *member = structure + field->offset;
    const char *text = at->text;
    switch (field->kind) {
    case NUMBER:
        *(uint64_t *)member = read_number(reader, at);
        break;
    case TEXT:
        snprintf(member, field->room, "%s", text);
        expect(reader, at->kind == FLW_JSON_STRING, at, "a text is missing");
        break;
    case BOOL:
        *(bool *)member = strcmp(text, "true") == 0;
        expect(reader, at->kind == FLW_JSON_LITERAL && strcmp(text, "null") != 0, at,
               "true or false is missing");
        break;
    case OBJECT:
        read_fields(reader, at, field->fields, member);
        break;
    case LIST:
        read_list(reader, at, field, structure);
        break;
    case END:
        break;
    }
}

/* Read each field once, in any order, and skip unknown members. */
static void read_fields(struct reader *reader, node object, const struct field *fields,
                        void *structure)
{
    bool is_object =
        expect(reader, object->kind == FLW_JSON_OBJECT, object, "an object is missing");
    for (const struct field *field = fields; is_object && field->kind != END; field++) {
        size_t count = 0;
        for (node at = object->child; at != NULL; at = at->next) {
            if (strcmp(at->key, field->key) == 0 &&
                expect(reader, count++ == 0, at, "something is said twice")) {
                read_field(reader, at, field, structure);
            }
        }
        expect(reader, count != 0, object, "something is missing");
    }
}

/* Check the sums of a moment. */
static void check_moment(struct reader *reader, node root, const struct flw_sheet_holding *moment)
{
    uint64_t bytes = moment->rest_bytes, blocks = moment->rest_count;
    bool overflows = moment->bytes == FLW_UNKNOWN || moment->count == FLW_UNKNOWN;
    bool is_twice = false;
    for (size_t i = 0; i < moment->owner_count; i++) {
        const struct flw_sheet_owner *owner = &moment->owners[i];
        overflows |= __builtin_add_overflow(bytes, owner->bytes, &bytes) ||
                     __builtin_add_overflow(blocks, owner->count, &blocks);
        for (size_t other = 0; other < i; other++) {
            is_twice |= strcmp(moment->owners[other].name, owner->name) == 0;
        }
    }
    expect(reader, !is_twice, root, "an owner is there twice");
    expect(reader, !overflows && bytes == moment->bytes && blocks == moment->count, root,
           "its sums are wrong");
    expect(reader, bytes <= MOST_BYTES, root, "a moment has more than 256 TiB");
}

static void check(struct reader *reader, node root, const struct flw_rank *rank)
{
    bool is_known = rank->device != FLW_UNKNOWN && rank->span_ns != FLW_UNKNOWN &&
                    rank->oom_count != FLW_UNKNOWN && rank->peak_held_bytes != FLW_UNKNOWN &&
                    rank->peak_requested_bytes != FLW_UNKNOWN;
    expect(reader, is_known, root, "a number is null that cannot be unknown");
    expect(reader, rank->limit_bytes != 0, root, "limit_bytes is 0");
    for (size_t i = 0; i < rank->step_count; i++) {
        const struct flw_rank_step *step = &rank->steps[i];
        expect(reader,
               step->time_ns <= rank->span_ns && (i == 0 || step[-1].time_ns < step->time_ns), root,
               "the times of held do not ascend to span_ns");
        expect(reader, step->bytes <= rank->peak_held_bytes, root,
               "more is held than peak_held_bytes");
    }
    check_moment(reader, root, &rank->at_peak);
    check_moment(reader, root, &rank->at_oom);
}

/* Read a record; the first member is the schema. */
static void read_record(struct reader *reader, struct flw_rank *rank)
{
    if (!flw_json_tree_read(&reader->tree, &reader->json)) {
        return;
    }
    node root = reader->tree.root, first = root->child;
    if (!expect(reader, first != NULL && strcmp(first->key, "fallow_rank") == 0, root,
                "it does not begin with fallow_rank")) {
        return;
    }
    if (read_number(reader, first) != FLW_RANK_SCHEMA) {
        flw_input_fail(&reader->input, first->offset,
                       "a record of schema %s, and this fallow reads %d; write it anew",
                       first->text, FLW_RANK_SCHEMA);
    } else {
        read_fields(reader, root, rank_fields, rank);
        check(reader, root, rank);
    }
}

bool flw_rank_read(const char *path, void (*take)(void *context, struct flw_rank *rank),
                   void *context, char *message)
{
    struct reader *reader = flw_host_alloc(1, sizeof *reader);
    struct flw_input *input = &reader->input;
    size_t count = 0;
    message[0] = '\0';
    bool is_open = flw_input_open(input, flw_input_place(path), message);
    while (is_open && !input->failed && flw_input_fill(input, 1)) {
        struct flw_rank rank = {0};
        if (isspace(*input->at)) {
            input->at++;
            continue;
        }
        reader->json =
            (struct flw_json){.input = input}; /* each record is a JSON value of its own */
        if (expect(reader, *input->at == '{', NULL, "it is no object")) {
            read_record(reader, &rank);
        }
        if (input->failed) {
            flw_rank_finish(&rank);
        } else {
            write_line(&rank);
            take(context, &rank);
            count++;
        }
    }
    bool is_read = is_open && !input->failed && expect(reader, count > 0, NULL, "it is empty");
    if (is_open) {
        flw_input_close(input);
    }
    flw_json_tree_finish(&reader->tree);
    flw_host_free(reader);
    return is_read;
}
