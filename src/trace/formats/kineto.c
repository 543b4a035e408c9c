/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: selecting the device memory events of a profiler's trace, ordering them across threads, and deriving from their
 * totals the memory allocated before the first event.
 * Does not: number blocks (history.c), find stacks from slices (kinetostacks.c), or read other parts of such a file.
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

#include "base/bits.h"
#include "base/compare.h"
#include "record/array.h"
#include "trace/io/json.h"
#include "trace/trace/history.h"

#define DEVICES_MAX 1024

#define NO_MEMORY "no memory to hold the trace"
#define NO_THREAD UINT32_MAX

/* Members of an event, then of its "args"; numbers are together. */
#define KEY_LIST(X)                       \
    X(NAME, "name")                       \
    X(PHASE, "ph")                        \
    X(CATEGORY, "cat")                    \
    X(ARGUMENTS, "args")                  \
    X(TIME, "ts")                         \
    X(DURATION, "dur")                    \
    X(PROCESS, "pid")                     \
    X(THREAD, "tid")                      \
    X(DEVICE_TYPE, "Device Type")         \
    X(DEVICE, "Device Id")                \
    X(ADDRESS, "Addr")                    \
    X(BYTES, "Bytes")                     \
    X(TOTAL_ALLOCATED, "Total Allocated") \
    X(TOTAL_RESERVED, "Total Reserved")   \
    X(STACK, "Call stack")                \
    X(CALLER, "CallFrom")

#define KEY_NUMBER(name, text) KEY_##name,
#define KEY_TEXT(name, text)   text,

enum key {
    KEY_LIST(KEY_NUMBER) KEY_COUNT
};
static const char *const keys[] = {KEY_LIST(KEY_TEXT)};

enum state {
    STATE_MISSING,
    STATE_ODD, /* not a number of at most 64 bits */
    STATE_NEGATIVE,
    STATE_WHOLE /* from 0 */
};

/* One event of the file. */
struct record {
    uint64_t offset;
    uint64_t values[KEY_COUNT]; /* without signs */
    enum state states[KEY_COUNT];
    bool is_memory, is_complete, is_operator;
    struct flw_kineto_slice slice; /* what its texts give */
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
    bool has_reserved;    /* each event has the total of reserved memory */
    uint64_t device_counts[DEVICES_MAX];
    struct flw_history history;
    struct flw_build *build;
    struct flw_intern threads; /* process and thread */
    struct flw_kinetostacks slices;
    char name[FLW_JSON_TEXT_BYTES]; /* of the present event */
};

static bool check_memory(struct import *import, bool has_memory)
{
    return has_memory || flw_input_fail(import->input, 0, NO_MEMORY);
}

static bool fail_record(struct import *import, const struct record *record, enum key key,
                        const char *what)
{
    return flw_input_fail(import->input, record->offset,
                          "\"%s\" of a [memory] event %s; %zu events before it were read",
                          keys[key], what, import->sample_count);
}

/* ---- reading ---- */

/* Parse microseconds, with or without a fraction, as nanoseconds: three digits more than before the point. */
static bool parse_time(const char *text, uint64_t *out_ns)
{
    size_t bytes = strlen(text), point = strcspn(text, ".");
    *out_ns = 0;
    for (size_t i = 0; i < bytes || i <= point + 3; i++) {
        unsigned digit = i < bytes ? (unsigned)text[i] - '0' : 0;
        bool overflows = i != point && i <= point + 3 &&
                         (__builtin_mul_overflow(*out_ns, UINT64_C(10), out_ns) ||
                          __builtin_add_overflow(*out_ns, digit, out_ns));
        if (overflows || (i != point && digit > 9)) {
            return false;
        }
    }
    return bytes > 0;
}

static void note_number(struct import *import, struct record *record, enum key key,
                        enum flw_json_token token)
{
    const struct flw_json *json = &import->json;
    uint64_t *value = &record->values[key];
    bool is_time = key <= KEY_DURATION && json->text[0] != '-', is_negative = false;
    bool is_read =
        (token == FLW_JSON_NUMBER || token == FLW_JSON_STRING) &&
        (is_time ? parse_time(json->text, value) : flw_json_get_whole(json, &is_negative, value));
    record->states[key] = !is_read ? STATE_ODD : is_negative ? STATE_NEGATIVE : STATE_WHOLE;
}

static void note_text(struct import *import, struct record *record, enum key key)
{
    struct flw_json *json = &import->json;
    struct flw_kineto_slice *slice = &record->slice;
    if (key != KEY_PHASE && key != KEY_CATEGORY) {
        flw_json_unescape(json);
    }
    switch (key) {
    case KEY_NAME:
        record->is_memory = strcmp(json->text, "[memory]") == 0;
        memcpy(import->name, json->text, json->text_bytes + 1);
        break;
    case KEY_PHASE:
        record->is_complete = strcmp(json->text, "X") == 0;
        break;
    case KEY_CATEGORY:
        slice->is_python = strcmp(json->text, "python_function") == 0;
        record->is_operator =
            strcmp(json->text, "cpu_op") == 0 || strcmp(json->text, "Operator") == 0;
        break;
    case KEY_STACK:
        check_memory(import, flw_kinetostacks_add_stack(&import->slices, json->text, json->is_cut,
                                                        &slice->stack));
        break;
    default: /* KEY_CALLER */
        check_memory(import, flw_kinetostacks_add_place(&import->slices, json->text,
                                                        &slice->caller_file, &slice->caller_line));
    }
}

/* Read the members of an event or, from KEY_DEVICE_TYPE on, of its "args", after the bracket. */
static void read_members(struct import *import, struct record *record, int first)
{
    struct flw_json *json = &import->json;
    for (enum flw_json_token token; (token = flw_json_next(json)) == FLW_JSON_KEY;) {
        int key = first, end = first + KEY_DEVICE_TYPE;
        while (key < end && (json->text[0] != keys[key][0] || strcmp(json->text, keys[key]) != 0)) {
            key++;
        }
        token = flw_json_next(json);
        if (key == KEY_ARGUMENTS && token == FLW_JSON_OBJECT) {
            read_members(import, record, KEY_DEVICE_TYPE);
            continue;
        }
        if (key < end && key >= KEY_TIME && key <= KEY_TOTAL_RESERVED) {
            note_number(import, record, (enum key)key, token);
        } else if (key < end && key != KEY_ARGUMENTS && token == FLW_JSON_STRING) {
            note_text(import, record, (enum key)key);
        }
        flw_json_skip(json, token);
    }
}

static void check_number(struct import *import, const struct record *record, enum key key)
{
    enum state state = record->states[key];
    if (state == STATE_MISSING) {
        fail_record(
            import, record, key,
            key == KEY_ADDRESS
                ? "is missing, as in profiles of PyTorch 1.12 and older: sizes alone do not identify blocks"
                : "is missing");
    } else if (state == STATE_ODD) {
        fail_record(import, record, key, "is not a number of at most 64 bits");
    } else if (state == STATE_NEGATIVE && key != KEY_BYTES) {
        fail_record(import, record, key, "is negative");
    }
}

static bool check_record(struct import *import, const struct record *record)
{
    bool has_reserved = record->states[KEY_TOTAL_RESERVED] != STATE_MISSING;
    int end = has_reserved ? KEY_TOTAL_RESERVED : KEY_TOTAL_ALLOCATED;
    check_number(import, record, KEY_TIME);
    for (int key = KEY_DEVICE_TYPE; key <= end; key++) {
        check_number(import, record, (enum key)key);
    }
    if (record->values[KEY_DEVICE] >= DEVICES_MAX) {
        fail_record(import, record, KEY_DEVICE, "is not a device number");
    }
    if (record->values[KEY_BYTES] > UINT64_MAX - record->values[KEY_ADDRESS]) {
        fail_record(import, record, KEY_BYTES, "exceeds 64 bits at its address");
    }
    return !import->input->failed;
}

/* Find the thread of an event; NO_THREAD if the file has none. Returns false if memory runs out. */
static bool find_thread(struct import *import, const struct record *record, uint32_t *out_thread)
{
    const uint64_t pair[] = {record->values[KEY_PROCESS], record->values[KEY_THREAD]};
    bool is_known =
        record->states[KEY_PROCESS] == STATE_WHOLE && record->states[KEY_THREAD] == STATE_WHOLE;
    *out_thread = NO_THREAD;
    return !is_known || flw_intern_add(&import->threads, pair, sizeof pair, out_thread);
}

/* Add a slice, unless name, time, duration or thread is missing. Returns false if memory runs out. */
static bool add_slice(struct import *import, struct record *record)
{
    struct flw_kineto_slice *slice = &record->slice;
    slice->begin_ns = record->values[KEY_TIME];
    if (import->name[0] == '\0' || record->states[KEY_TIME] != STATE_WHOLE ||
        record->states[KEY_DURATION] != STATE_WHOLE ||
        __builtin_add_overflow(slice->begin_ns, record->values[KEY_DURATION], &slice->end_ns)) {
        return true;
    }
    return find_thread(import, record, &slice->thread) &&
           (slice->thread == NO_THREAD ||
            flw_kinetostacks_add_slice(&import->slices, slice, import->name));
}

/* Returns false if memory runs out. */
static bool add_sample(struct import *import, const struct record *record)
{
    struct sample sample = {
        .time_ns = record->values[KEY_TIME],
        .address = record->values[KEY_ADDRESS],
        .bytes = record->values[KEY_BYTES],
        .total_allocated = record->values[KEY_TOTAL_ALLOCATED],
        .total_reserved = record->values[KEY_TOTAL_RESERVED],
        .order = (uint32_t)import->sample_count,
        .stack = record->slice.stack,
        .device = (uint16_t)record->values[KEY_DEVICE],
        .is_free = record->states[KEY_BYTES] == STATE_NEGATIVE,
        .has_reserved = record->states[KEY_TOTAL_RESERVED] == STATE_WHOLE,
    };
    if (import->sample_count >= UINT32_MAX ||
        !FLW_ARRAY_FITS(import->samples, import->sample_count, import->sample_room) ||
        !find_thread(import, record, &sample.thread)) {
        return false;
    }
    import->device_counts[sample.device]++;
    import->samples[import->sample_count++] = sample;
    return true;
}

/* True unless the kind of device, in PyTorch's numbering, is another than CUDA, XPU, and those of plug-ins, such as
 * NPUs. */
static bool may_be_device(const struct record *record)
{
    uint64_t type = record->values[KEY_DEVICE_TYPE];
    return record->states[KEY_DEVICE_TYPE] <= STATE_ODD || type == 1 || type == 12 || type == 20;
}

static void read_event(struct import *import)
{
    struct record record = {.offset = import->json.offset};
    import->name[0] = '\0';
    read_members(import, &record, KEY_NAME);
    if (import->input->failed) {
        return;
    }
    bool is_call = record.is_complete && (record.slice.is_python || record.is_operator);
    if (!record.is_memory) {
        check_memory(import, !is_call || add_slice(import, &record));
        return;
    }
    bool is_device = may_be_device(&record);
    if (is_device && !check_record(import, &record)) {
        return;
    }
    if (!is_device || record.values[KEY_BYTES] == 0 || record.values[KEY_ADDRESS] == 0) {
        import->other_count++;
    } else {
        check_memory(import, add_sample(import, &record));
    }
}

static void read_list(struct import *import)
{
    enum flw_json_token token;
    while (!import->input->failed && (token = flw_json_next(&import->json)) != FLW_JSON_ARRAY_END) {
        if (token == FLW_JSON_OBJECT) {
            read_event(import);
        } else {
            flw_json_skip(&import->json, token);
        }
    }
}

/* Read the events and skip everything else in an object. */
static bool read_document(struct import *import)
{
    struct flw_json *json = &import->json;
    enum flw_json_token token = flw_json_next(json);
    bool has_events = token == FLW_JSON_ARRAY;
    if (has_events) {
        read_list(import);
    }
    while (token == FLW_JSON_OBJECT && !import->input->failed &&
           flw_json_next(json) == FLW_JSON_KEY) {
        bool is_events = strcmp(json->text, "traceEvents") == 0;
        enum flw_json_token value = flw_json_next(json);
        if (is_events && value == FLW_JSON_ARRAY) {
            has_events = true;
            read_list(import);
        } else {
            flw_json_skip(json, value);
        }
    }
    if (import->input->failed || flw_json_next(json) != FLW_JSON_END) {
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

static int compare_times(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    int order = flw_compare_u64(&x->time_ns, &y->time_ns);
    return order != 0 ? order : flw_compare_u32(&x->order, &y->order);
}

/* Order by thread, then by time. */
static int compare_threads(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    int order = flw_compare_u32(&x->thread, &y->thread);
    return order != 0 ? order : compare_times(x, y);
}

/* Keep the samples of the device, in order of time, and set the stacks of those without their own from the enclosing
 * slices. Returns false if memory runs out. */
static bool keep_device(struct import *import, uint16_t device)
{
    struct sample *samples = import->samples;
    size_t kept = 0;
    bool has_memory = true;
    for (size_t i = 0; i < import->sample_count; i++) {
        if (samples[i].device == device) {
            samples[kept++] = samples[i];
        }
    }
    import->sample_count = kept;
    qsort(samples, kept, sizeof *samples, compare_threads);
    flw_kinetostacks_begin(&import->slices);
    for (size_t i = 0; has_memory && i < kept && samples[i].thread != NO_THREAD; i++) {
        has_memory =
            samples[i].stack != 0 || flw_kinetostacks_find(&import->slices, samples[i].thread,
                                                           samples[i].time_ns, &samples[i].stack);
    }
    qsort(samples, kept, sizeof *samples, compare_times);
    return has_memory;
}

/* ---- totals ---- */

/* Return the expected total before an event. Returns false if no total is possible. */
static bool total_before(const struct sample *sample, uint64_t *out)
{
    return sample->is_free ? !__builtin_add_overflow(sample->total_allocated, sample->bytes, out)
                           : !__builtin_sub_overflow(sample->total_allocated, sample->bytes, out);
}

/* Compare each total with the previous one, and add up the blocks that are freed but never allocated, and so existed
 * before. Returns false if memory runs out. */
static bool check_totals(struct import *import, uint64_t *out_known)
{
    struct flw_addressmap seen = {0}; /* address -> allocated or freed before */
    uint64_t before;
    bool has_memory = true;
    *out_known = 0;
    import->has_reserved = true;
    for (size_t i = 0; has_memory && i < import->sample_count; i++) {
        const struct sample *sample = &import->samples[i];
        import->has_reserved &= sample->has_reserved;
        import->gap_count +=
            !total_before(sample, &before) || (i > 0 && before != sample[-1].total_allocated);
        if (sample->is_free &&
            flw_addressmap_find(&seen, sample->address) == FLW_ADDRESSMAP_ABSENT &&
            __builtin_add_overflow(*out_known, sample->bytes, out_known)) {
            *out_known = UINT64_MAX;
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
    if (!check_totals(import, &known)) {
        return false;
    }
    bool is_known = !total_before(&import->samples[0], &before) || before <= known;
    struct flw_history_block remainder = {.block = {.size_bytes = is_known ? 0 : before - known}};
    return is_known || flw_history_add_block(&import->history, &remainder);
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
    return from == to || flw_build_add_event(import->build, &event);
}

static bool add_events(struct import *import)
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
        if (import->has_reserved &&
            !add_level(import, level, sample->total_reserved, event.time_ns)) {
            return false;
        }
        level = sample->total_reserved;
        if (!flw_build_add_event(import->build, &event) ||
            !flw_build_set_stack(import->build, import->build->trace->event_count - 1,
                                 sample->stack)) {
            return false;
        }
    }
    struct flw_trace_segment segment = {.size_bytes = level, .is_expandable = true};
    return !import->has_reserved || level == 0 || flw_build_add_segment(import->build, &segment);
}

static bool fill_history(struct import *import)
{
    uint16_t stream; /* the file has no streams */
    return flw_build_add_stream(import->build, 0, &stream) && add_remainder(import) &&
           add_events(import) && flw_history_resolve(&import->history, import->build);
}

static bool add_notes(struct import *import)
{
    char text[256];
    bool is_recorded[DEVICES_MAX];
    for (int i = 0; i < DEVICES_MAX; i++) {
        is_recorded[i] = import->device_counts[i] > 0;
    }
    snprintf(text, sizeof(text),
             "origin kineto trace\nkineto_events %zu\nkineto_total_mismatches %" PRIu64
             "\nkineto_skipped_memory_events %" PRIu64 "\n",
             import->sample_count, import->gap_count, import->other_count);
    return flw_notes_add_lines(&import->build->notes, text) &&
           flw_notes_add_devices(&import->build->notes, is_recorded, DEVICES_MAX);
}

static bool import_document(struct import *import, int device)
{
    struct flw_trace *trace = import->build->trace;
    uint16_t chosen = 0;
    import->slices.stacks = &trace->stacks;
    if (!read_document(import) || !choose_device(import, device, &chosen) ||
        !check_memory(import, keep_device(import, chosen) && fill_history(import))) {
        return false;
    }
    flw_stacks_seal(&trace->stacks);
    trace->device = chosen;
    trace->has_times = true;
    trace->has_addresses = true;
    trace->has_segments = import->has_reserved;
    return check_memory(import, add_notes(import));
}

bool flw_kineto_read(struct flw_input *input, int device, struct flw_build *build)
{
    struct import import = {.input = input, .json.input = input, .build = build};
    bool is_read = import_document(&import, device);
    flw_history_finish(&import.history);
    flw_kinetostacks_finish(&import.slices);
    flw_intern_finish(&import.threads);
    free(import.samples);
    return is_read;
}
