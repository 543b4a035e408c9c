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
#include "report/json_tree.h"

_Static_assert(FLW_SHEET_OWNERS == 200 && FLW_RANK_STEPS == 200, "as the messages say");
_Static_assert(FLW_TRACE_MESSAGE_BYTES <= FLW_RANK_MESSAGE_BYTES, "the input's message fits");

#define MOST_BYTES (UINT64_C(1) << 48) /* of a rank: 65,535 ranks can be added up */

/* ---- fields of a record ---- */

enum kind {
    NUMBER,
    TEXT,
    BOOL,
    MOMENT,
    OWNERS,
    STEPS
};

struct field {
    const char *key;
    enum kind kind;
    size_t offset, room; /* offset in the structure; size of a text */
};

#define AT(type, member) offsetof(struct type, member)
#define NUMBER_OF(type, member)              \
    {                                        \
#member, NUMBER, AT(type, member), 0 \
    }
#define TEXT_OF(type, member)                                                \
    {                                                                        \
#member, TEXT, AT(type, member), sizeof((struct type *)NULL)->member \
    }

static const struct field owner_fields[] = {
    {"owner", TEXT, AT(flw_sheet_owner, name), FLW_RANK_NAME_BYTES},
    NUMBER_OF(flw_sheet_owner, bytes),
    {"blocks", NUMBER, AT(flw_sheet_owner, count), 0},
    {NULL, NUMBER, 0, 0}};

static const struct field moment_fields[] = {
    NUMBER_OF(flw_sheet_holding, bytes),
    {"blocks", NUMBER, AT(flw_sheet_holding, count), 0},
    NUMBER_OF(flw_sheet_holding, rest_bytes),
    {"rest_blocks", NUMBER, AT(flw_sheet_holding, rest_count), 0},
    {"owners", OWNERS, 0, 0},
    {NULL, NUMBER, 0, 0}};

static const struct field rank_fields[] = {NUMBER_OF(flw_rank, rank),
                                           TEXT_OF(flw_rank, title),
                                           NUMBER_OF(flw_rank, device),
                                           TEXT_OF(flw_rank, rule),
                                           {"has_code", BOOL, AT(flw_rank, has_code), 0},
                                           NUMBER_OF(flw_rank, events),
                                           NUMBER_OF(flw_rank, begin_ns),
                                           NUMBER_OF(flw_rank, span_ns),
                                           NUMBER_OF(flw_rank, limit_bytes),
                                           {"held_is_reserved", BOOL, AT(flw_rank, is_reserved), 0},
                                           NUMBER_OF(flw_rank, peak_held_bytes),
                                           NUMBER_OF(flw_rank, peak_requested_bytes),
                                           {"at_peak", MOMENT, AT(flw_rank, at_peak), 0},
                                           NUMBER_OF(flw_rank, oom_count),
                                           NUMBER_OF(flw_rank, oom_ns),
                                           NUMBER_OF(flw_rank, asked_bytes),
                                           NUMBER_OF(flw_rank, free_bytes),
                                           NUMBER_OF(flw_rank, oom_held_bytes),
                                           TEXT_OF(flw_rank, asked_by),
                                           {"at_oom", MOMENT, AT(flw_rank, at_oom), 0},
                                           {"held", STEPS, 0, 0},
                                           {NULL, NUMBER, 0, 0}};

/* ---- writing ---- */

static void write_fields(struct flw_json_writer *out, const struct field *fields,
                         const void *structure);

static void write_owners(struct flw_json_writer *out, const struct flw_sheet_holding *moment)
{
    flw_json_begin(out, "owners", '[');
    for (size_t i = 0; i < moment->owner_count; i++) {
        flw_json_begin(out, NULL, '{');
        write_fields(out, owner_fields, &moment->owners[i]);
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

/* Write the steps as [[ns, bytes], ...]. */
static void write_steps(struct flw_json_writer *out, const struct flw_rank *rank)
{
    flw_json_begin(out, "held", '[');
    for (size_t i = 0; i < rank->step_count; i++) {
        flw_json_begin(out, NULL, '[');
        flw_json_number(out, NULL, rank->steps[i].time_ns);
        flw_json_number(out, NULL, rank->steps[i].bytes);
        flw_json_end(out, ']');
    }
    flw_json_end(out, ']');
}

static void write_fields(struct flw_json_writer *out, const struct field *fields,
                         const void *structure)
{
    for (const struct field *field = fields; field->key != NULL; field++) {
        const char *member = (const char *)structure + field->offset;
        switch (field->kind) {
        case NUMBER:
            flw_json_count(out, field->key, *(const uint64_t *)(const void *)member);
            break;
        case TEXT:
            flw_json_text(out, field->key, member);
            break;
        case BOOL:
            flw_json_bool(out, field->key, *(const bool *)(const void *)member);
            break;
        case MOMENT:
            flw_json_begin(out, field->key, '{');
            write_fields(out, moment_fields, member);
            flw_json_end(out, '}');
            break;
        case OWNERS:
            write_owners(out, structure);
            break;
        case STEPS:
            write_steps(out, structure);
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

/* The held bytes over the recording, as steps of equal time. */
struct series {
    struct flw_rank *rank;
    uint64_t live_bytes, reserved_bytes;
    uint64_t step; /* number of the present step */
    uint64_t most_bytes;
};

static uint64_t held(const struct series *series)
{
    return series->rank->is_reserved ? series->reserved_bytes : series->live_bytes;
}

static void end_step(struct series *series)
{
    struct flw_rank *rank = series->rank;
    size_t count = rank->step_count;
    rank->peak_held_bytes = flw_max(rank->peak_held_bytes, series->most_bytes);
    if (count != 0 && rank->steps[count - 1].bytes == series->most_bytes) {
        return;
    }
    rank->steps = flw_host_grow(rank->steps, &rank->step_capacity, count + 1, sizeof *rank->steps);
    rank->steps[rank->step_count++] = (struct flw_rank_step){
        .time_ns = rank->span_ns / FLW_RANK_STEPS * series->step, .bytes = series->most_bytes};
}

static void take_event(struct series *series, const struct flw_trace_event *event)
{
    uint64_t step_ns = series->rank->span_ns / FLW_RANK_STEPS;
    uint64_t step = step_ns == 0 ? 0 : flw_min(event->time_ns / step_ns, FLW_RANK_STEPS - 1);
    if (step != series->step) {
        end_step(series);
        series->step++;
        series->most_bytes = held(series);
        if (step != series->step) { /* nothing happened in between */
            end_step(series);
            series->step = step;
        }
    }
    switch (event->op) {
    case FLW_TRACE_ALLOC:
        series->live_bytes += event->size_bytes;
        break;
    case FLW_TRACE_FREE:
        series->live_bytes -= event->size_bytes;
        break;
    case FLW_TRACE_SEGMENT_ALLOC:
    case FLW_TRACE_SEGMENT_MAP:
        series->reserved_bytes += event->size_bytes;
        break;
    case FLW_TRACE_SEGMENT_FREE:
    case FLW_TRACE_SEGMENT_UNMAP:
        series->reserved_bytes -= flw_min(event->size_bytes, series->reserved_bytes);
        break;
    default:
        break;
    }
    series->most_bytes = flw_max(series->most_bytes, held(series));
}

static void note_oom(struct flw_rank *rank, const struct series *series,
                     const struct flw_trace_event *event, const struct flw_sheet_oom *oom)
{
    rank->oom_ns = series->rank->begin_ns == FLW_UNKNOWN ? FLW_UNKNOWN : event->time_ns;
    rank->asked_bytes = told(oom->asked_bytes);
    rank->free_bytes = told(oom->free_bytes);
    rank->oom_held_bytes = held(series);
    snprintf(rank->asked_by, sizeof rank->asked_by, "%s", oom->owner);
}

/* Set the limit to the memory available at the out-of-memory, or to the peak if that was higher. */
static void find_limit(struct flw_rank *rank)
{
    if (rank->limit_bytes == FLW_UNKNOWN && rank->is_reserved && rank->oom_count != 0 &&
        rank->free_bytes != FLW_UNKNOWN) {
        uint64_t bytes = 0;
        bool is_sum = !__builtin_add_overflow(rank->oom_held_bytes, rank->free_bytes, &bytes);
        bytes = flw_max(is_sum ? bytes : 0, rank->peak_held_bytes);
        rank->limit_bytes =
            bytes == 0 ? FLW_UNKNOWN : told(bytes); /* no memory at all: the limit is unknown */
    }
}

static void walk_trace(struct flw_rank *rank, const struct flw_sheet *sheet)
{
    const struct flw_trace *trace = sheet->trace;
    struct series series = {.rank = rank};
    for (size_t i = 0; i < trace->segment_count; i++) {
        series.reserved_bytes += trace->segments[i].size_bytes;
    }
    for (size_t i = 0; i < trace->initial_count; i++) {
        series.live_bytes += trace->blocks[i].size_bytes;
    }
    series.most_bytes = held(&series);
    for (size_t i = 0; i < trace->event_count; i++) {
        take_event(&series, &trace->events[i]);
        if (sheet->oom.count != 0 && i + 1 == sheet->oom.event) {
            note_oom(rank, &series, &trace->events[i], &sheet->oom);
        }
    }
    end_step(&series);
    find_limit(rank);
}

static void take_holding(struct flw_sheet_holding *moment, const struct flw_sheet_holding *holding)
{
    *moment = *holding;
    moment->left = NULL;
    moment->owner_count = 0;
    moment->owners = flw_host_alloc(holding->owner_count, sizeof *moment->owners);
    for (size_t i = 0; i < holding->owner_count; i++) {
        const struct flw_sheet_owner *owner = &holding->owners[i];
        size_t at = 0;
        while (at < moment->owner_count && strcmp(moment->owners[at].name, owner->name) != 0) {
            at++; /* cut names, or names without folders, may be equal */
        }
        struct flw_sheet_owner *mine = &moment->owners[at];
        moment->owner_count += at == moment->owner_count;
        snprintf(mine->name, sizeof mine->name, "%s", owner->name);
        mine->bytes += owner->bytes;
        mine->count += owner->count;
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
    bool has_clock = trace->has_times && trace->begin_ns != 0;
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
        .oom_count = sheet->oom.count,
        .oom_ns = FLW_UNKNOWN,
        .asked_bytes = FLW_UNKNOWN,
        .free_bytes = FLW_UNKNOWN,
        .oom_held_bytes = FLW_UNKNOWN};
    snprintf(rank->title, sizeof rank->title, "%s", sheet->title);
    keep_rule(rank, sheet->owner_rule);
    take_holding(&rank->at_peak, &sheet->holdings[FLW_SHEET_AT_PEAK]);
    if (rank->oom_count != 0) {
        take_holding(&rank->at_oom, &sheet->holdings[FLW_SHEET_AT_OOM]);
    }
    walk_trace(rank, sheet);
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

struct reader {
    struct flw_input input;
    struct flw_json json;
    struct flw_json_tree tree;
};

static bool fail(struct reader *reader, node at, const char *what)
{
    return flw_input_fail(&reader->input, at->offset,
                          "%s; it is no record of fallow report --json-lines", what);
}

static bool read_number(struct reader *reader, node at, uint64_t *out)
{
    const char *text = flw_json_text_of(&reader->tree, at);
    char *end = NULL;
    if (at->kind == FLW_JSON_LITERAL && strcmp(text, "null") == 0) {
        *out = FLW_UNKNOWN;
        return true;
    }
    if (at->kind != FLW_JSON_NUMBER) {
        return fail(reader, at, "a number is missing");
    }
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (*end != '\0' || text[0] == '-') {
        return fail(reader, at, "a number is not whole");
    }
    return (errno == 0 && *out <= FLW_RANK_MOST_NUMBER) ||
           fail(reader, at, "a number is above 2^62");
}

static bool read_fields(struct reader *reader, node object, const struct field *fields,
                        void *structure);

static bool read_owners(struct reader *reader, node list, struct flw_sheet_holding *moment)
{
    size_t count = 0;
    for
        FLW_JSON_EACH(&reader->tree, at, list)
        {
            if (count++ == FLW_SHEET_OWNERS) {
                return fail(reader, at, "a moment has more than 200 owners");
            }
        }
    moment->owners = flw_host_alloc(count, sizeof *moment->owners);
    for
        FLW_JSON_EACH(&reader->tree, at, list)
        {
            if (!read_fields(reader, at, owner_fields, &moment->owners[moment->owner_count++])) {
                return false;
            }
        }
    return true;
}

static bool read_steps(struct reader *reader, node list, struct flw_rank *rank)
{
    for
        FLW_JSON_EACH(&reader->tree, pair, list)
        {
            if (rank->step_count == FLW_RANK_STEPS) {
                return fail(reader, pair, "held has more than 200 steps");
            }
            rank->steps = flw_host_grow(rank->steps, &rank->step_capacity, rank->step_count + 1,
                                        sizeof *rank->steps);
            struct flw_rank_step *step = &rank->steps[rank->step_count++];
            node time = flw_json_at(&reader->tree, pair->child);
            node bytes = flw_json_at(&reader->tree, time->next);
            if (pair->kind != FLW_JSON_ARRAY || bytes->kind == FLW_JSON_FAILED ||
                bytes->next != 0) {
                return fail(reader, pair, "a step is no pair");
            }
            if (!read_number(reader, time, &step->time_ns) ||
                !read_number(reader, bytes, &step->bytes)) {
                return false;
            }
        }
    return true;
}

static bool read_field(struct reader *reader, node at, const struct field *field, void *structure)
{
    char *member = (char *)structure + field->offset;
    const char *text = flw_json_text_of(&reader->tree, at);
    switch (field->kind) {
    case NUMBER:
        return read_number(reader, at, (uint64_t *)(void *)member);
    case TEXT:
        snprintf(member, field->room, "%s", text);
        return at->kind == FLW_JSON_STRING || fail(reader, at, "a text is missing");
    case BOOL:
        *(bool *)(void *)member = strcmp(text, "true") == 0;
        return (at->kind == FLW_JSON_LITERAL && strcmp(text, "null") != 0) ||
               fail(reader, at, "true or false is missing");
    case MOMENT:
        return read_fields(reader, at, moment_fields, member);
    case OWNERS:
        return at->kind == FLW_JSON_ARRAY ? read_owners(reader, at, structure)
                                          : fail(reader, at, "owners are no list");
    case STEPS:
        return at->kind == FLW_JSON_ARRAY ? read_steps(reader, at, structure)
                                          : fail(reader, at, "what is held is no list");
    }
    return false;
}

/* Read each field once, in any order, and skip unknown members. */
static bool read_fields(struct reader *reader, node object, const struct field *fields,
                        void *structure)
{
    if (object->kind != FLW_JSON_OBJECT) {
        return fail(reader, object, "an object is missing");
    }
    for (const struct field *field = fields; field->key != NULL; field++) {
        size_t count = 0;
        for
            FLW_JSON_EACH(&reader->tree, at, object)
            {
                if (strcmp(flw_json_key_of(&reader->tree, at), field->key) != 0) {
                    continue;
                }
                if (count++ != 0) {
                    return fail(reader, at, "something is said twice");
                }
                if (!read_field(reader, at, field, structure)) {
                    return false;
                }
            }
        if (count == 0) {
            return fail(reader, object, "something is missing");
        }
    }
    return true;
}

/* Return the error in a moment, or NULL. */
static const char *blame_moment(const struct flw_sheet_holding *moment)
{
    uint64_t bytes = moment->rest_bytes;
    uint64_t blocks = moment->rest_count;
    bool overflows = moment->bytes == FLW_UNKNOWN || moment->count == FLW_UNKNOWN;
    for (size_t i = 0; i < moment->owner_count; i++) {
        const struct flw_sheet_owner *owner = &moment->owners[i];
        overflows |= __builtin_add_overflow(bytes, owner->bytes, &bytes) ||
                     __builtin_add_overflow(blocks, owner->count, &blocks);
        for (size_t other = 0; other < i; other++) {
            if (strcmp(moment->owners[other].name, owner->name) == 0) {
                return "an owner is there twice";
            }
        }
    }
    if (overflows || bytes != moment->bytes || blocks != moment->count) {
        return "its sums are wrong";
    }
    return bytes > MOST_BYTES ? "a moment has more than 256 TiB" : NULL;
}

static const char *blame_steps(const struct flw_rank *rank)
{
    for (size_t i = 0; i < rank->step_count; i++) {
        const struct flw_rank_step *step = &rank->steps[i];
        if (step->time_ns > rank->span_ns || (i != 0 && step[-1].time_ns >= step->time_ns)) {
            return "the times of held do not ascend to span_ns";
        }
        if (step->bytes > rank->peak_held_bytes) {
            return "more is held than peak_held_bytes";
        }
    }
    return NULL;
}

static const char *blame(const struct flw_rank *rank)
{
    bool is_known = rank->device != FLW_UNKNOWN && rank->span_ns != FLW_UNKNOWN &&
                    rank->oom_count != FLW_UNKNOWN && rank->peak_held_bytes != FLW_UNKNOWN &&
                    rank->peak_requested_bytes != FLW_UNKNOWN;
    const char *const found[] = {is_known ? NULL : "a number is null that cannot be unknown",
                                 rank->limit_bytes != 0 ? NULL : "limit_bytes is 0",
                                 blame_steps(rank), blame_moment(&rank->at_peak),
                                 blame_moment(&rank->at_oom)};
    size_t i = 0;
    while (i + 1 < sizeof found / sizeof *found && found[i] == NULL) {
        i++;
    }
    return found[i];
}

/* Read a record; the first member is the schema. */
static bool read_record(struct reader *reader, struct flw_rank *rank)
{
    uint64_t schema = 0;
    if (!flw_json_tree_read(&reader->tree, &reader->json)) {
        return false;
    }
    node root = &reader->tree.nodes[0];
    node first = flw_json_at(&reader->tree, root->child);
    if (root->kind != FLW_JSON_OBJECT) {
        return fail(reader, root, "it is no object");
    }
    if (strcmp(flw_json_key_of(&reader->tree, first), "fallow_rank") != 0) {
        return fail(reader, root, "it does not begin with fallow_rank");
    }
    if (!read_number(reader, first, &schema)) {
        return false;
    }
    if (schema != FLW_RANK_SCHEMA) {
        return flw_input_fail(&reader->input, first->offset,
                              "a record of schema %s, and this fallow reads %d; write it anew",
                              flw_json_text_of(&reader->tree, first), FLW_RANK_SCHEMA);
    }
    if (!read_fields(reader, root, rank_fields, rank)) {
        return false;
    }
    const char *wrong = blame(rank);
    return wrong == NULL || fail(reader, root, wrong);
}

bool flw_rank_read(const char *path, void (*take)(void *context, struct flw_rank *rank),
                   void *context, char *message)
{
    struct reader *reader = flw_host_alloc(1, sizeof *reader);
    size_t count = 0;
    message[0] = '\0';
    bool is_read = flw_input_open(&reader->input, flw_input_place(path), message);
    bool is_open = is_read;
    while (is_read) {
        struct flw_rank rank = {0};
        reader->json =
            (struct flw_json){.input = &reader->input}; /* each record is a separate JSON value */
        while (flw_input_fill(&reader->input, 1) && isspace(*reader->input.at)) {
            reader->input.at++;
        }
        if (!flw_input_fill(&reader->input, 1)) {
            break;
        }
        is_read = *reader->input.at == '{'
                      ? read_record(reader, &rank)
                      : fail(reader, flw_json_at(&reader->tree, 0), "it is no object");
        if (is_read) {
            write_line(&rank);
            take(context, &rank);
            count++;
        } else {
            flw_rank_finish(&rank);
        }
    }
    if (is_open) {
        is_read = is_read && !reader->input.failed &&
                  (count > 0 || fail(reader, flw_json_at(&reader->tree, 0), "it is empty"));
        flw_input_close(&reader->input);
    }
    flw_json_tree_finish(&reader->tree);
    flw_host_free(reader);
    return is_read;
}
