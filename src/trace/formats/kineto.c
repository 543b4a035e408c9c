/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: selecting the device memory events of a profiler's trace, ordering them across threads, and deriving from their
 * totals the memory allocated before the first event.
 * Does not: number blocks (history.c), find stacks from slices (kinetostacks.h), or read other parts of such a file.
 *
 *   {"traceEvents": [event, ...], ...} or [event, ...], an event of interest being
 *   {"ph": "i", "name": "[memory]", "pid": N, "tid": N, "ts": MICROSECONDS, "args": {"Device Type": 1,
 *    "Device Id": N, "Addr": N, "Bytes": N, "Total Allocated": N, "Total Reserved": N, "Call stack": TEXT}}
 *   {"ph": "X", "cat": "cpu_op" or "python_function", "name": TEXT, "pid": N, "tid": N, "ts": MICROSECONDS,
 *    "dur": MICROSECONDS, "args": {"CallFrom": "FILE:LINE", "Call stack": TEXT}}
 * Bytes are rounded up by the recorded allocator; above 0 is an allocation, below a free. Type 1 is CUDA, 12 XPU,
 * 20 an NPU. The events of each thread are consecutive in the file and ordered by their times. An event without a
 * "Call stack" has that of the enclosing slices on its thread. An event with a missing or invalid field is left out.
 *
 * Total Allocated minus the sum of the events is memory allocated before the first one. The part that is freed later is
 * known block by block; the rest becomes one block at address 0. Total Reserved becomes one mapped range from address 0
 * up, because the addresses of segments are unknown.
 */
#include "trace/formats/kineto.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/array.h"
#include "trace/formats/kinetostacks.h"
#include "trace/io/json.h"
#include "trace/trace/history.h"
#include "trace/trace/measure.h"
#include "trace/trace/notes.h"

#define DEVICES_MAX 1024

#define NO_THREAD UINT32_MAX

enum field {
    FIELD_TIME,
    FIELD_DURATION,
    FIELD_PROCESS,
    FIELD_THREAD,
    FIELD_DEVICE_TYPE,
    FIELD_DEVICE,
    FIELD_ADDRESS,
    FIELD_BYTES,
    FIELD_TOTAL_ALLOCATED,
    FIELD_TOTAL_RESERVED,
    FIELD_COUNT
};

static const char *const fields[] = {
    "ts",
    "dur",
    "pid",
    "tid",
    "Device Type",
    "Device Id",
    "Addr",
    "Bytes",
    "Total Allocated",
    "Total Reserved",
};
_Static_assert(sizeof(fields) / sizeof(fields[0]) == FIELD_COUNT, "a name for each field");

enum word {
    WORD_NAME,
    WORD_PHASE,
    WORD_CATEGORY,
    WORD_ARGUMENTS,
    WORD_COUNT
};

static const char *const words[] = {"name", "ph", "cat", "args"};

enum category {
    CATEGORY_OTHER,
    CATEGORY_OPERATOR,
    CATEGORY_PYTHON
};

/* One event of the file, with numbers as written. */
struct record {
    uint64_t offset;
    uint64_t values[FIELD_COUNT];
    uint16_t seen, negative, odd; /* a bit per field; odd: not a whole number */
    bool is_memory, is_slice;
    enum category category;
    uint32_t stack, caller_file, caller_line;
};

/* A memory event of a device. */
struct sample {
    uint64_t time_ns;
    uint64_t address;
    uint64_t bytes;
    uint64_t total_allocated, total_reserved;
    uint32_t order; /* in the file */
    uint32_t thread, stack;
    uint16_t device;
    bool is_free, has_reserved;
};

struct import {
    struct flw_input *input;
    struct flw_json json;
    struct sample *samples;
    size_t sample_count, sample_room;
    uint64_t other_count; /* memory events of other kinds of device, or with no bytes */
    uint64_t gap_count;   /* events with a total other than the previous total plus their bytes */
    uint64_t device_counts[DEVICES_MAX];
    struct flw_history history;
    struct flw_build build;
    struct flw_intern threads; /* process and thread */
    struct flw_kinetostacks slices;
    char name[FLW_JSON_TEXT_BYTES]; /* of the present event */
};

static bool fail_memory(struct import *import)
{
    return flw_input_fail(import->input, 0, "no memory to hold the trace");
}

static bool fail_record(struct import *import, const struct record *record, enum field field,
                        const char *what)
{
    return flw_input_fail(import->input, record->offset,
                          "\"%s\" of a [memory] event %s; %zu events before it were read",
                          fields[field], what, import->sample_count);
}

/* ---- reading ---- */

/* Parse microseconds, with or without a fraction, as nanoseconds. */
static bool parse_time(const struct flw_json *json, uint64_t *out_ns)
{
    const char *at = json->text;
    uint64_t value = 0;
    int fraction = -1; /* digits after the point; -1 before it */
    for (; *at != '\0' && fraction < 3; at++) {
        if (*at == '.' && fraction < 0) {
            fraction = 0;
            continue;
        }
        if (*at < '0' || *at > '9' || __builtin_mul_overflow(value, UINT64_C(10), &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value)) {
            return false;
        }
        fraction += fraction >= 0;
    }
    if (strspn(at, "0123456789") != strlen(at) || at == json->text) {
        return false;
    }
    for (int i = fraction < 0 ? 0 : fraction; i < 3; i++) {
        if (__builtin_mul_overflow(value, UINT64_C(10), &value)) {
            return false;
        }
    }
    *out_ns = value;
    return true;
}

static void note_field(struct import *import, struct record *record, enum field field,
                       enum flw_json_token token)
{
    const struct flw_json *json = &import->json;
    uint16_t bit = (uint16_t)(1u << field);
    bool is_negative = json->text[0] == '-';
    bool is_scalar = token == FLW_JSON_NUMBER || token == FLW_JSON_STRING;
    bool is_read =
        is_scalar && (field <= FIELD_DURATION && !is_negative
                          ? parse_time(json, &record->values[field])
                          : flw_json_get_whole(json, &is_negative, &record->values[field]));
    record->seen |= bit;
    record->odd = (uint16_t)(is_read ? record->odd & ~bit : record->odd | bit);
    record->negative = (uint16_t)(is_negative ? record->negative | bit : record->negative & ~bit);
}

/* Return the number of a key, from `first` on; `end` if there is none. */
static int find(const char *const *keys, int first, int end, const char *text)
{
    while (first < end && strcmp(text, keys[first]) != 0) {
        first++;
    }
    return first;
}

/* Record the calling code from "Call stack" or "CallFrom". Returns false if memory runs out. */
static bool note_code(struct import *import, struct record *record, bool is_stack)
{
    struct flw_json *json = &import->json;
    flw_json_unescape(json);
    return (is_stack ? flw_kinetostacks_add_stack(&import->slices, json->text, json->is_cut,
                                                  &record->stack)
                     : flw_kinetostacks_add_place(&import->slices, json->text, &record->caller_file,
                                                  &record->caller_line)) ||
           fail_memory(import);
}

static bool read_arguments(struct import *import, struct record *record)
{
    struct flw_json *json = &import->json;
    for (;;) {
        enum flw_json_token token = flw_json_next(json);
        if (token != FLW_JSON_KEY) {
            return token == FLW_JSON_OBJECT_END;
        }
        int field = find(fields, FIELD_DEVICE_TYPE, FIELD_COUNT, json->text);
        bool is_stack = strcmp(json->text, "Call stack") == 0;
        bool is_code = is_stack || strcmp(json->text, "CallFrom") == 0;
        token = flw_json_next(json);
        if (field < FIELD_COUNT) {
            note_field(import, record, (enum field)field, token);
        } else if (is_code && token == FLW_JSON_STRING && !note_code(import, record, is_stack)) {
            return false;
        }
        if (!flw_json_skip(json, token)) {
            return false;
        }
    }
}

static void note_word(struct import *import, struct record *record, enum word word)
{
    struct flw_json *json = &import->json;
    if (word == WORD_NAME) {
        flw_json_unescape(json);
        record->is_memory = strcmp(json->text, "[memory]") == 0;
        memcpy(import->name, json->text, json->text_bytes + 1);
    } else if (word == WORD_PHASE) {
        record->is_slice = strcmp(json->text, "X") == 0;
    } else if (word == WORD_CATEGORY) {
        bool is_operator = strcmp(json->text, "cpu_op") == 0 || strcmp(json->text, "Operator") == 0;
        record->category = strcmp(json->text, "python_function") == 0 ? CATEGORY_PYTHON
                           : is_operator                              ? CATEGORY_OPERATOR
                                                                      : CATEGORY_OTHER;
    }
}

/* Read the members of an event, after the bracket. */
static bool read_members(struct import *import, struct record *record)
{
    struct flw_json *json = &import->json;
    for (;;) {
        enum flw_json_token token = flw_json_next(json);
        if (token != FLW_JSON_KEY) {
            return token == FLW_JSON_OBJECT_END;
        }
        int field = find(fields, FIELD_TIME, FIELD_DEVICE_TYPE, json->text);
        int word = find(words, 0, WORD_COUNT, json->text);
        token = flw_json_next(json);
        if (word == WORD_ARGUMENTS && token == FLW_JSON_OBJECT) {
            if (!read_arguments(import, record)) {
                return false;
            }
            continue;
        }
        if (field < FIELD_DEVICE_TYPE) {
            note_field(import, record, (enum field)field, token);
        } else if (word < WORD_COUNT && token == FLW_JSON_STRING) {
            note_word(import, record, (enum word)word);
        }
        if (!flw_json_skip(json, token)) {
            return false;
        }
    }
}

static bool check_field(struct import *import, const struct record *record, enum field field,
                        bool may_be_negative)
{
    unsigned bit = 1u << field;
    if ((record->seen & bit) == 0) {
        return fail_record(
            import, record, field,
            field == FIELD_ADDRESS
                ? "is missing, as in profiles of PyTorch 1.12 and older: sizes alone "
                  "do not tell blocks apart"
                : "is missing");
    }
    if ((record->odd & bit) != 0) {
        return fail_record(import, record, field, "is not a number of at most 64 bits");
    }
    if ((record->negative & bit) != 0 && !may_be_negative) {
        return fail_record(import, record, field, "is negative");
    }
    return true;
}

static bool check_record(struct import *import, const struct record *record)
{
    for (int field = 0; field < FIELD_TOTAL_RESERVED; field++) {
        bool is_of_slices = field > FIELD_TIME && field < FIELD_DEVICE_TYPE;
        if (!is_of_slices &&
            !check_field(import, record, (enum field)field, field == FIELD_BYTES)) {
            return false;
        }
    }
    if ((record->seen >> FIELD_TOTAL_RESERVED & 1) != 0 &&
        !check_field(import, record, FIELD_TOTAL_RESERVED, false)) {
        return false;
    }
    if (record->values[FIELD_DEVICE] >= DEVICES_MAX) {
        return fail_record(import, record, FIELD_DEVICE, "is not a device number");
    }
    if (record->values[FIELD_BYTES] > UINT64_MAX - record->values[FIELD_ADDRESS]) {
        return fail_record(import, record, FIELD_BYTES, "goes beyond 64 bits at its address");
    }
    return true;
}

static bool is_whole(const struct record *record, enum field field)
{
    unsigned not_so = (unsigned)(record->odd | record->negative | ~record->seen);
    return (not_so >> field & 1) == 0;
}

/* Find the thread of an event; NO_THREAD if the file has none. Returns false if memory runs out. */
static bool find_thread(struct import *import, const struct record *record, uint32_t *out_thread)
{
    uint64_t number = NO_THREAD;
    if (is_whole(record, FIELD_PROCESS) && is_whole(record, FIELD_THREAD)) {
        struct flw_intern_pair pair = {record->values[FIELD_PROCESS], record->values[FIELD_THREAD]};
        if (!flw_intern_add_pair(&import->threads, pair, &number)) {
            return false;
        }
    }
    *out_thread = number < NO_THREAD ? (uint32_t)number : NO_THREAD;
    return true;
}

/* Add a slice, unless name, time or duration is missing. */
static bool add_slice(struct import *import, const struct record *record)
{
    struct flw_kineto_slice slice = {
        .begin_ns = record->values[FIELD_TIME],
        .stack = record->stack,
        .caller_file = record->caller_file,
        .caller_line = record->caller_line,
        .is_python = record->category == CATEGORY_PYTHON,
    };
    if (import->name[0] == '\0' || !is_whole(record, FIELD_TIME) ||
        !is_whole(record, FIELD_DURATION) ||
        __builtin_add_overflow(slice.begin_ns, record->values[FIELD_DURATION], &slice.end_ns)) {
        return true;
    }
    return (find_thread(import, record, &slice.thread) &&
            (slice.thread == NO_THREAD ||
             (flw_kinetostacks_add_frame(&import->slices, import->name, &slice.frame) &&
              flw_kinetostacks_add_slice(&import->slices, &slice)))) ||
           fail_memory(import);
}

static bool add_sample(struct import *import, const struct record *record)
{
    uint32_t thread;
    if (import->sample_count >= UINT32_MAX) {
        return fail_memory(import);
    }
    if (!FLW_ARRAY_FITS(import->samples, import->sample_count, import->sample_room) ||
        !find_thread(import, record, &thread)) {
        return fail_memory(import);
    }
    import->device_counts[record->values[FIELD_DEVICE]]++;
    import->samples[import->sample_count] = (struct sample){
        .time_ns = record->values[FIELD_TIME],
        .address = record->values[FIELD_ADDRESS],
        .bytes = record->values[FIELD_BYTES],
        .total_allocated = record->values[FIELD_TOTAL_ALLOCATED],
        .total_reserved = record->values[FIELD_TOTAL_RESERVED],
        .order = (uint32_t)import->sample_count,
        .thread = thread,
        .stack = record->stack,
        .device = (uint16_t)record->values[FIELD_DEVICE],
        .is_free = (record->negative >> FIELD_BYTES & 1) != 0,
        .has_reserved = (record->seen >> FIELD_TOTAL_RESERVED & 1) != 0,
    };
    import->sample_count++;
    return true;
}

/* True for the kinds of device in PyTorch's numbering: CUDA, XPU, and those of plug-ins, such as NPUs. */
static bool is_device(uint64_t type)
{
    return type == 1 || type == 12 || type == 20;
}

static bool read_event(struct import *import)
{
    struct record record = {.offset = import->json.offset};
    import->name[0] = '\0';
    if (!read_members(import, &record)) {
        return false;
    }
    if (!record.is_memory) {
        bool is_call = record.is_slice && record.category != CATEGORY_OTHER;
        return !is_call || add_slice(import, &record);
    }
    bool has_type = (record.seen >> FIELD_DEVICE_TYPE & 1) != 0;
    if (has_type && !is_device(record.values[FIELD_DEVICE_TYPE]) &&
        (record.odd >> FIELD_DEVICE_TYPE & 1) == 0) {
        import->other_count++;
        return true;
    }
    if (!check_record(import, &record)) {
        return false;
    }
    if (record.values[FIELD_BYTES] == 0 || record.values[FIELD_ADDRESS] == 0) {
        import->other_count++;
        return true;
    }
    return add_sample(import, &record);
}

static bool read_list(struct import *import)
{
    for (;;) {
        enum flw_json_token token = flw_json_next(&import->json);
        if (token == FLW_JSON_ARRAY_END) {
            return true;
        }
        if (token == FLW_JSON_OBJECT ? !read_event(import) : !flw_json_skip(&import->json, token)) {
            return false;
        }
    }
}

/* Read the events and skip everything else in an object. */
static bool read_document(struct import *import)
{
    struct flw_json *json = &import->json;
    enum flw_json_token token = flw_json_next(json);
    bool has_events = token == FLW_JSON_ARRAY;
    if (has_events && !read_list(import)) {
        return false;
    }
    while (token == FLW_JSON_OBJECT) {
        enum flw_json_token key = flw_json_next(json);
        if (key != FLW_JSON_KEY) {
            if (key == FLW_JSON_FAILED) {
                return false;
            }
            break;
        }
        bool is_events = strcmp(json->text, "traceEvents") == 0;
        enum flw_json_token value = flw_json_next(json);
        is_events = is_events && value == FLW_JSON_ARRAY;
        has_events |= is_events;
        if (is_events ? !read_list(import) : !flw_json_skip(json, value)) {
            return false;
        }
    }
    if (flw_json_next(json) != FLW_JSON_END) {
        return false;
    }
    return has_events ||
           flw_input_fail(import->input, 0, "JSON, but not a profiler's trace: no \"traceEvents\"");
}

/* ---- one device, in order ---- */

static bool choose_device(struct import *import, int device, uint16_t *out)
{
    int best = 0;
    for (int i = 1; i < DEVICES_MAX; i++) {
        best = import->device_counts[i] > import->device_counts[best] ? i : best;
    }
    if (import->sample_count == 0) {
        return flw_input_fail(
            import->input, 0,
            "no [memory] event of a CUDA device, an XPU or an NPU: was it recorded with "
            "profile_memory=True?");
    }
    if (device >= DEVICES_MAX || (device >= 0 && import->device_counts[device] == 0)) {
        return flw_input_fail(import->input, 0,
                              "has no [memory] event of device %d, most are of %d", device, best);
    }
    *out = (uint16_t)(device >= 0 ? device : best);
    return true;
}

static int compare_samples(const void *a, const void *b)
{
    const struct sample *x = a;
    const struct sample *y = b;
    if (x->time_ns != y->time_ns) {
        return x->time_ns < y->time_ns ? -1 : 1;
    }
    return (x->order > y->order) - (x->order < y->order);
}

static void keep_device(struct import *import, uint16_t device)
{
    size_t kept = 0;
    for (size_t i = 0; i < import->sample_count; i++) {
        if (import->samples[i].device == device) {
            import->samples[kept++] = import->samples[i];
        }
    }
    import->sample_count = kept;
    qsort(import->samples, kept, sizeof(*import->samples), compare_samples);
}

/* ---- stacks ---- */

static int compare_places(const void *a, const void *b)
{
    const struct sample *const *x = a;
    const struct sample *const *y = b;
    if ((*x)->thread != (*y)->thread) {
        return (*x)->thread < (*y)->thread ? -1 : 1;
    }
    return compare_samples(*x, *y);
}

/* Set the stacks of events without their own from the enclosing slices. Returns false if memory runs out. */
static bool find_stacks(struct import *import)
{
    size_t count = import->sample_count;
    if (count == 0) {
        return true;
    }
    struct sample **order = malloc(count * sizeof(struct sample *));
    bool has_memory = order != NULL;
    for (size_t i = 0; has_memory && i < count; i++) {
        order[i] = &import->samples[i];
    }
    if (has_memory) {
        qsort(order, count, sizeof(struct sample *), compare_places);
        flw_kinetostacks_begin(&import->slices);
    }
    for (size_t i = 0; has_memory && i < count && order[i]->thread != NO_THREAD; i++) {
        if (order[i]->stack == 0) {
            has_memory = flw_kinetostacks_find(&import->slices, order[i]->thread, order[i]->time_ns,
                                               &order[i]->stack);
        }
    }
    free(order);
    return has_memory;
}

/* ---- totals ---- */

/* Return the expected total before an event. Returns false if no total is possible. */
static bool total_before(const struct sample *sample, uint64_t *out)
{
    return sample->is_free ? !__builtin_add_overflow(sample->total_allocated, sample->bytes, out)
                           : !__builtin_sub_overflow(sample->total_allocated, sample->bytes, out);
}

static void count_gaps(struct import *import)
{
    uint64_t before;
    for (size_t i = 0; i < import->sample_count; i++) {
        const struct sample *sample = &import->samples[i];
        import->gap_count +=
            !total_before(sample, &before) || (i > 0 && before != sample[-1].total_allocated);
    }
}

/* Add up the blocks that are freed but never allocated, and so existed before. */
static bool sum_known_initial(const struct import *import, uint64_t *out)
{
    struct flw_addressmap seen = {0}; /* address -> allocated or freed before */
    bool has_memory = true;
    *out = 0;
    for (size_t i = 0; has_memory && i < import->sample_count; i++) {
        const struct sample *sample = &import->samples[i];
        if (sample->is_free &&
            flw_addressmap_find(&seen, sample->address) == FLW_ADDRESSMAP_ABSENT &&
            __builtin_add_overflow(*out, sample->bytes, out)) {
            *out = UINT64_MAX;
        }
        has_memory = flw_addressmap_put(&seen, sample->address, 1);
    }
    flw_addressmap_finish(&seen);
    return has_memory;
}

/* Add the block for all memory allocated before and never freed. */
static bool add_remainder(struct import *import)
{
    uint64_t before, known;
    if (!sum_known_initial(import, &known)) {
        return false;
    }
    if (!total_before(&import->samples[0], &before) || before <= known) {
        return true;
    }
    struct flw_history_block remainder = {.block = {.size_bytes = before - known}};
    return flw_history_add_block(&import->history, &remainder);
}

/* ---- the trace ---- */

/* Add events for a change of reserved memory. */
static bool add_level(struct import *import, uint64_t from, uint64_t to, uint64_t time_ns)
{
    struct flw_trace_event event = {
        .time_ns = time_ns,
        .address = from < to ? from : to,
        .size_bytes = from < to ? to - from : from - to,
        .block = UINT32_MAX,
        .op = from < to ? FLW_TRACE_SEGMENT_MAP : FLW_TRACE_SEGMENT_UNMAP,
    };
    return from == to || flw_history_add_event(&import->history, &event);
}

static bool add_events(struct import *import, bool has_reserved)
{
    uint64_t begin_ns = import->samples[0].time_ns;
    uint64_t level = import->samples[0].total_reserved;
    for (size_t i = 0; i < import->sample_count; i++) {
        const struct sample *sample = &import->samples[i];
        struct flw_trace_event event = {
            .time_ns = sample->time_ns - begin_ns,
            .address = sample->address,
            .size_bytes = sample->bytes,
            .op = sample->is_free ? FLW_TRACE_FREE : FLW_TRACE_ALLOC,
        };
        if (has_reserved && !add_level(import, level, sample->total_reserved, event.time_ns)) {
            return false;
        }
        level = sample->total_reserved;
        if (!flw_history_add_event(&import->history, &event) ||
            !flw_history_set_stack(&import->history, sample->stack)) {
            return false;
        }
    }
    struct flw_trace_segment segment = {.size_bytes = level, .is_expandable = true};
    return !has_reserved || level == 0 || flw_history_add_segment(&import->history, &segment);
}

static bool fill_history(struct import *import, bool *out_has_reserved)
{
    uint16_t stream; /* the file has no streams */
    *out_has_reserved = true;
    for (size_t i = 0; i < import->sample_count; i++) {
        *out_has_reserved = *out_has_reserved && import->samples[i].has_reserved;
    }
    return flw_build_add_stream(&import->build, 0, &stream) && add_remainder(import) &&
           add_events(import, *out_has_reserved) &&
           flw_history_resolve(&import->history, &import->build);
}

/* Return the notes, or NULL if memory runs out. */
static char *make_notes(const struct import *import)
{
    char text[256];
    bool is_recorded[DEVICES_MAX];
    struct flw_notes notes = {0};
    for (int i = 0; i < DEVICES_MAX; i++) {
        is_recorded[i] = import->device_counts[i] > 0;
    }
    snprintf(text, sizeof(text),
             "origin kineto trace\nkineto_events %zu\nkineto_total_mismatches %" PRIu64
             "\nkineto_skipped_memory_events %" PRIu64 "\n",
             import->sample_count, import->gap_count, import->other_count);
    if (!flw_notes_add_lines(&notes, text) ||
        !flw_notes_add_devices(&notes, is_recorded, DEVICES_MAX)) {
        flw_notes_finish(&notes);
    }
    return flw_notes_take(&notes);
}

static bool import_document(struct import *import, int device)
{
    uint16_t chosen = 0;
    bool has_reserved;
    if (!read_document(import) || !choose_device(import, device, &chosen)) {
        return false;
    }
    keep_device(import, chosen);
    count_gaps(import);
    struct flw_trace *trace = import->build.trace;
    if (!find_stacks(import) || !fill_history(import, &has_reserved)) {
        return fail_memory(import);
    }
    flw_stacks_settle(&trace->stacks);
    trace->device = chosen;
    trace->has_times = true;
    trace->has_addresses = true;
    trace->has_segments = has_reserved;
    trace->notes = make_notes(import);
    if (trace->notes == NULL) {
        return fail_memory(import);
    }
    const char *wrong = flw_measure_trace(trace);
    return wrong == NULL || flw_input_fail(import->input, 0, "%s", wrong);
}

bool flw_kineto_read(struct flw_input *input, int device, struct flw_trace **out_trace)
{
    struct import *import = calloc(1, sizeof(*import));
    bool is_read = false;
    *out_trace = NULL;
    if (import == NULL) {
        return flw_input_fail(input, 0, "no memory to hold the trace");
    }
    import->input = input;
    import->json.input = input;
    if (flw_build_init(&import->build, input->name, "kineto json")) {
        import->slices.stacks = &import->build.trace->stacks;
        is_read = import_document(import, device);
    } else {
        fail_memory(import);
    }
    flw_build_end(&import->build, is_read, out_trace);
    flw_history_finish(&import->history);
    flw_kinetostacks_finish(&import->slices);
    flw_intern_finish(&import->threads);
    free(import->samples);
    free(import);
    return is_read;
}
