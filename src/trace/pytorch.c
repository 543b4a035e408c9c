/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: which keys of a snapshot mean what, across versions; the choice of a device.
 * Does not: number blocks or find the initial heap (history.c does), or place annotations among events
 * (phases.c).
 *
 * A snapshot is {segments: [{..., blocks: [...]}], device_traces: [[event, ...], ...],
 * external_annotations: [...]}; a bare list is its segments alone. A list can hold another one many times, so every step of the walk is
 * counted and none may be taken for more items than the file has bytes.
 */
#include "trace/pytorch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/history.h"
#include "trace/measure.h"
#include "trace/notes.h"
#include "trace/phases.h"
#include "trace/pickle.h"
#include "trace/poolids.h"
#include "trace/pytorch_words.h"

#define DEVICES_MAX 1024

static const uint8_t operations[] = {
    [WORD_ALLOC] = FLW_TRACE_ALLOC,
    [WORD_FREE_REQUESTED] = FLW_TRACE_FREE,
    [WORD_FREE_COMPLETED] = FLW_TRACE_FREE_DONE,
    [WORD_SEGMENT_ALLOC] = FLW_TRACE_SEGMENT_ALLOC,
    [WORD_SEGMENT_FREE] = FLW_TRACE_SEGMENT_FREE,
    [WORD_SEGMENT_MAP] = FLW_TRACE_SEGMENT_MAP,
    [WORD_SEGMENT_UNMAP] = FLW_TRACE_SEGMENT_UNMAP,
    [WORD_OOM] = FLW_TRACE_OOM,
    [WORD_SNAPSHOT] = FLW_TRACE_MARK,
    [WORD_USER_DEFINED] = FLW_TRACE_MARK,
    [WORD_WORKSPACE_SNAPSHOT] = FLW_TRACE_MARK,
};

struct import {
    struct flw_input *input;
    struct flw_harvest *kept; /* NULL once all of it was read */
    struct flw_pickle_value root;
    struct flw_history history;
    struct flw_build build;
    struct flw_pickle_value segments; /* lists; absent where the snapshot has none */
    struct flw_pickle_value traces;
    struct flw_pickle_value annotations;
    struct flw_phases phases;
    uint64_t unplaced_count; /* annotations without a time among events that have none */
    uint64_t rest_bytes;     /* of the file, behind the pickle */
    bool has_pools;          /* events say theirs */
    int device;
    bool is_recorded[DEVICES_MAX]; /* which devices have an event or a segment */
    uint64_t steps_left;           /* of the walk */
    uint64_t first_time_us, last_time_us;
    bool has_times;
};

static bool fail_at(struct import *import, struct flw_pickle_value container, const char *what)
{
    return flw_input_fail(import->input, flw_harvest_offset(import->kept, container), "%s", what);
}

static bool fail_memory(struct import *import)
{
    return flw_input_fail(import->input, 0, "no memory to hold the trace");
}

static bool count_step(struct import *import)
{
    if (import->steps_left == 0) {
        return flw_input_fail(import->input, 0,
                              "its lists hold more items than the file has bytes");
    }
    import->steps_left--;
    return true;
}

/* Nothing in a list goes unnoticed: all of it is what it should be. */
static bool check_items(struct import *import, struct flw_pickle_value list, const char *what)
{
    return !flw_harvest_has_left_out(import->kept, list) || fail_at(import, list, what);
}

/* A number that must be there and not negative. */
static bool get_number(struct import *import, struct flw_pickle_value dict, enum word word,
                       uint64_t *out)
{
    struct flw_pickle_value value = flw_harvest_get(import->kept, dict, (uint32_t)word);
    *out = value.bits;
    if (value.kind == FLW_PICKLE_UNSIGNED) {
        return true;
    }
    return flw_input_fail(import->input, flw_harvest_offset(import->kept, dict), "\"%s\" is %s",
                          words[word],
                          value.kind == FLW_PICKLE_ABSENT     ? "missing"
                          : value.kind == FLW_PICKLE_NEGATIVE ? "negative"
                                                              : "not a number");
}

/* The same where it may be missing. */
static bool get_number_or(struct import *import, struct flw_pickle_value dict, enum word word,
                          uint64_t otherwise, uint64_t *out)
{
    if (flw_harvest_get(import->kept, dict, (uint32_t)word).kind == FLW_PICKLE_ABSENT) {
        *out = otherwise;
        return true;
    }
    return get_number(import, dict, word, out);
}

static bool get_stream(struct import *import, struct flw_pickle_value dict, uint16_t *out)
{
    uint64_t handle;
    if (!get_number_or(import, dict, WORD_STREAM, 0, &handle)) {
        return false;
    }
    return flw_build_add_stream(&import->build, handle, out) ||
           fail_at(import, dict, "more than 65535 streams, or the host is out of memory");
}

/* The number of its pair; 0 where it is missing. Renumbered when all are known. */
static uint32_t get_pool(struct import *import, struct flw_pickle_value dict, enum word word)
{
    struct flw_pickle_value pool = flw_harvest_get(import->kept, dict, (uint32_t)word);
    return pool.kind == FLW_PICKLE_PAIR ? (uint32_t)pool.bits + 1 : 0;
}

/* ---- annotations ---- */

static uint32_t name_of(struct import *import, struct flw_pickle_value dict)
{
    char name[FLW_PICKLE_TEXT_BYTES + 1];
    struct flw_pickle_value value = flw_harvest_get(import->kept, dict, WORD_NAME);
    const char *text = value.kind == FLW_PICKLE_TEXT
                           ? flw_intern_text(flw_harvest_interned(import->kept), value.bits)
                       : value.kind == FLW_PICKLE_WORD ? words[value.bits]
                                                       : "";
    size_t bytes = strlen(text);
    for (size_t i = 0; i < bytes; i++) {
        bool is_printable = (unsigned char)text[i] >= 0x20 && text[i] != 0x7F;
        name[i] = is_printable ? text[i] : '?';
    }
    uint32_t number = FLW_TRACE_NO_NAME;
    flw_build_add_name(&import->build, bytes > 0 ? name : "unnamed", bytes > 0 ? bytes : 7,
                       &number);
    return number;
}

/* Other stages than the two are of no phase. */
static bool read_annotation(struct import *import, struct flw_pickle_value dict)
{
    struct flw_pickle_value stage = flw_harvest_get(import->kept, dict, WORD_STAGE);
    uint64_t device, time_us;
    if (!get_number_or(import, dict, WORD_DEVICE, (uint64_t)import->device, &device)) {
        return false;
    }
    bool is_begin = stage.bits == WORD_START;
    if (device != (uint64_t)import->device || stage.kind != FLW_PICKLE_WORD ||
        (!is_begin && stage.bits != WORD_END)) {
        return true;
    }
    if (flw_harvest_get(import->kept, dict, WORD_TIME_US).kind == FLW_PICKLE_ABSENT) {
        import->unplaced_count++;
        return true;
    }
    if (!get_number(import, dict, WORD_TIME_US, &time_us)) {
        return false;
    }
    uint32_t name = name_of(import, dict);
    return (name != FLW_TRACE_NO_NAME &&
            flw_phases_add(&import->phases, time_us, name, is_begin)) ||
           fail_memory(import);
}

/* When the first event was that says it; false: none does. */
static bool find_first_time(struct import *import, uint64_t *out_us)
{
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, import->traces);
    struct flw_pickle_value list, dict;
    for (int i = 0; flw_harvest_next(import->kept, &cursor, &list); i++) {
        struct flw_harvest_cursor events = flw_harvest_first(import->kept, list);
        while (i == import->device && flw_harvest_next(import->kept, &events, &dict)) {
            struct flw_pickle_value time = flw_harvest_get(import->kept, dict, WORD_TIME_US);
            if (time.kind == FLW_PICKLE_UNSIGNED) {
                *out_us = time.bits;
                return true;
            }
        }
    }
    return false;
}

static bool read_annotations(struct import *import)
{
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, import->annotations);
    struct flw_pickle_value dict;
    uint64_t first_us;
    while (flw_harvest_next(import->kept, &cursor, &dict)) {
        if (!count_step(import) || !read_annotation(import, dict)) {
            return false;
        }
    }
    if (!find_first_time(import, &first_us)) { /* nothing to place them among */
        import->unplaced_count += import->phases.count;
        flw_phases_finish(&import->phases);
        return true;
    }
    return flw_phases_settle(&import->phases, first_us) || fail_memory(import);
}

static bool add_detailed(struct import *import, struct flw_trace_event *event,
                         struct flw_trace_detail detail)
{
    return flw_history_add_detail(&import->history, detail, &event->block) &&
           flw_history_add_event(&import->history, event);
}

/* The phases that go before an event at `time_us`. */
static bool add_phases(struct import *import, uint64_t time_us)
{
    const struct flw_phase *phase;
    while ((phase = flw_phases_due(&import->phases, time_us)) != NULL) {
        struct flw_trace_event event = {.op = phase->is_begin ? FLW_TRACE_PHASE_BEGIN
                                                              : FLW_TRACE_PHASE_END};
        struct flw_trace_detail detail = flw_build_no_detail();
        detail.name = phase->name;
        if (__builtin_mul_overflow(phase->time_us - import->first_time_us, UINT64_C(1000),
                                   &event.time_ns)) {
            return fail_at(import, import->annotations,
                           "an annotation is centuries after the first event");
        }
        if (!add_detailed(import, &event, detail)) {
            return fail_memory(import);
        }
    }
    return true;
}

/* ---- events ---- */

static bool get_time(struct import *import, struct flw_pickle_value dict, uint64_t *out_ns)
{
    struct flw_pickle_value value = flw_harvest_get(import->kept, dict, WORD_TIME_US);
    uint64_t time_us = import->last_time_us;
    if (value.kind != FLW_PICKLE_ABSENT) {
        if (!get_number(import, dict, WORD_TIME_US, &time_us)) {
            return false;
        }
        if (!import->has_times) {
            import->has_times = true;
            import->first_time_us = time_us;
            import->last_time_us = time_us;
        }
        /* Clocks are set back now and then; the order of the list is the truth. */
        time_us = time_us < import->last_time_us ? import->last_time_us : time_us;
        import->last_time_us = time_us;
    }
    if (__builtin_mul_overflow(time_us - import->first_time_us, UINT64_C(1000), out_ns)) {
        return fail_at(import, dict, "\"time_us\" is centuries after the first event");
    }
    return true;
}

static bool check_range(struct import *import, struct flw_pickle_value dict,
                        const struct flw_trace_event *event)
{
    if (event->size_bytes > UINT64_MAX - event->address) {
        return fail_at(import, dict, "its address and size go beyond 64 bits");
    }
    return true;
}

static bool add_event(struct import *import, struct flw_pickle_value dict,
                      struct flw_trace_event *event)
{
    uint32_t pool = get_pool(import, dict, WORD_POOL_ID);
    struct flw_trace_detail detail = flw_build_no_detail();
    if (event->op == FLW_TRACE_OOM &&
        !get_number_or(import, dict, WORD_DEVICE_FREE, FLW_TRACE_UNKNOWN, &detail.free_bytes)) {
        return false;
    }
    bool has_memory = detail.free_bytes != FLW_TRACE_UNKNOWN
                          ? add_detailed(import, event, detail)
                          : flw_history_add_event(&import->history, event);
    import->has_pools |= pool != 0;
    return (has_memory && flw_history_set_pool(&import->history, pool)) || fail_memory(import);
}

static bool read_event(struct import *import, struct flw_pickle_value dict)
{
    struct flw_trace_event event = {.block = UINT32_MAX};
    struct flw_pickle_value action = flw_harvest_get(import->kept, dict, WORD_ACTION);
    if (action.kind != FLW_PICKLE_WORD || action.bits > WORD_WORKSPACE_SNAPSHOT) {
        return fail_at(import, dict,
                       action.kind == FLW_PICKLE_WORD || action.kind == FLW_PICKLE_TEXT
                           ? "an event with an action that no PyTorch writes"
                           : "an event without an action");
    }
    event.op = operations[action.bits];
    if (!get_time(import, dict, &event.time_ns) ||
        (import->has_times && !add_phases(import, import->last_time_us))) {
        return false;
    }
    if (event.op != FLW_TRACE_MARK) {
        if (!get_number(import, dict, WORD_SIZE, &event.size_bytes) ||
            !get_stream(import, dict, &event.stream)) {
            return false;
        }
        if (event.op != FLW_TRACE_OOM && (!get_number(import, dict, WORD_ADDR, &event.address) ||
                                          !check_range(import, dict, &event))) {
            return false;
        }
    }
    return add_event(import, dict, &event);
}

static bool read_events(struct import *import)
{
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, import->traces);
    struct flw_pickle_value list;
    for (int i = 0; flw_harvest_next(import->kept, &cursor, &list); i++) {
        if (i != import->device) {
            continue;
        }
        struct flw_harvest_cursor events = flw_harvest_first(import->kept, list);
        struct flw_pickle_value dict;
        uint64_t count = flw_harvest_count(import->kept, list);
        if (!check_items(import, list, "an item of this trace is no event")) {
            return false;
        }
        count = count < import->steps_left ? count : import->steps_left;
        if (!flw_history_reserve_events(&import->history, count)) {
            return fail_memory(import);
        }
        while (flw_harvest_next(import->kept, &events, &dict)) {
            if (!count_step(import) || !read_event(import, dict)) {
                return false;
            }
        }
    }
    return add_phases(import, UINT64_MAX);
}

/* ---- the heap at the end ---- */

/* What was asked for: newer versions say; older ones keep it in the history; else the block's size.
 */
static bool get_requested(struct import *import, struct flw_pickle_value block, uint64_t *out)
{
    uint64_t size_bytes;
    struct flw_pickle_value history = flw_harvest_get(import->kept, block, WORD_HISTORY);
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, history);
    struct flw_pickle_value latest;
    if (!get_number(import, block, WORD_SIZE, &size_bytes)) {
        return false;
    }
    if (flw_harvest_next(import->kept, &cursor, &latest)) {
        return get_number_or(import, latest, WORD_REAL_SIZE, size_bytes, out);
    }
    return get_number_or(import, block, WORD_REQUESTED_SIZE, size_bytes, out);
}

/* `address`: where the block lies if it does not say; then where the next one lies. */
static bool read_block(struct import *import, struct flw_pickle_value dict,
                       const struct flw_trace_segment *segment, uint64_t *address)
{
    struct flw_trace_block block = {.stream = segment->stream};
    struct flw_pickle_value state = flw_harvest_get(import->kept, dict, WORD_STATE);
    uint64_t size_bytes;
    if (!get_number_or(import, dict, WORD_ADDRESS, *address, &block.address) ||
        !get_number(import, dict, WORD_SIZE, &size_bytes)) {
        return false;
    }
    if (__builtin_add_overflow(block.address, size_bytes, address)) {
        return fail_at(import, dict, "a block's address and size go beyond 64 bits");
    }
    if (state.kind != FLW_PICKLE_WORD || state.bits < WORD_ACTIVE_ALLOCATED ||
        state.bits > WORD_INACTIVE) {
        return fail_at(import, dict, "a block without a known state");
    }
    if (state.bits == WORD_INACTIVE) {
        return true;
    }
    return get_requested(import, dict, &block.size_bytes) &&
           (flw_history_add_block(&import->history, &block, segment->pool) || fail_memory(import));
}

static bool read_segment(struct import *import, struct flw_pickle_value dict)
{
    struct flw_trace_segment segment = {0};
    struct flw_pickle_value type = flw_harvest_get(import->kept, dict, WORD_SEGMENT_TYPE);
    struct flw_pickle_value expandable = flw_harvest_get(import->kept, dict, WORD_IS_EXPANDABLE);
    struct flw_pickle_value blocks = flw_harvest_get(import->kept, dict, WORD_BLOCKS);
    if (!get_number(import, dict, WORD_ADDRESS, &segment.address) ||
        !get_number(import, dict, WORD_TOTAL_SIZE, &segment.size_bytes) ||
        !get_stream(import, dict, &segment.stream)) {
        return false;
    }
    if (segment.size_bytes > UINT64_MAX - segment.address) {
        return fail_at(import, dict, "a segment's address and size go beyond 64 bits");
    }
    segment.is_large = type.kind != FLW_PICKLE_WORD || type.bits != WORD_SMALL;
    segment.pool = get_pool(import, dict, WORD_SEGMENT_POOL_ID);
    segment.is_expandable = expandable.kind == FLW_PICKLE_BOOL && expandable.bits == 1;
    if (!flw_history_add_segment(&import->history, &segment)) {
        return fail_memory(import);
    }
    if (!check_items(import, blocks, "an item of these blocks is no block")) {
        return false;
    }
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, blocks);
    struct flw_pickle_value block;
    uint64_t address = segment.address;
    while (flw_harvest_next(import->kept, &cursor, &block)) {
        if (!count_step(import) || !read_block(import, block, &segment, &address)) {
            return false;
        }
    }
    return true;
}

static bool get_device(struct import *import, struct flw_pickle_value segment, uint64_t *out)
{
    if (!get_number_or(import, segment, WORD_DEVICE, 0, out)) {
        return false;
    }
    return *out < DEVICES_MAX || fail_at(import, segment, "\"device\" is not a device number");
}

static bool read_segments(struct import *import)
{
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, import->segments);
    struct flw_pickle_value dict;
    uint64_t device;
    while (flw_harvest_next(import->kept, &cursor, &dict)) {
        if (!count_step(import) || !get_device(import, dict, &device)) {
            return false;
        }
        if (device == (uint64_t)import->device && !read_segment(import, dict)) {
            return false;
        }
    }
    return true;
}

/* ---- the device ---- */

struct census {
    uint64_t events[DEVICES_MAX];
    uint64_t segments[DEVICES_MAX];
    int device_count;
};

static bool take_census(struct import *import, struct census *census)
{
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, import->traces);
    struct flw_pickle_value item;
    int count = 0;
    if (!check_items(import, import->traces, "the trace of a device is no list") ||
        !check_items(import, import->segments, "an item of the segments is no segment")) {
        return false;
    }
    for (; flw_harvest_next(import->kept, &cursor, &item); count++) {
        if (count == DEVICES_MAX) {
            return fail_at(import, import->traces, "more than 1024 devices");
        }
        if (item.kind != FLW_PICKLE_LIST) {
            return fail_at(import, item, "the trace of a device is no list");
        }
        census->events[count] = flw_harvest_count(import->kept, item);
    }
    cursor = flw_harvest_first(import->kept, import->segments);
    while (flw_harvest_next(import->kept, &cursor, &item)) {
        uint64_t device;
        if (!count_step(import) || !get_device(import, item, &device)) {
            return false;
        }
        census->segments[device]++;
        count = (int)device >= count ? (int)device + 1 : count;
    }
    census->device_count = count > 0 ? count : 1;
    return true;
}

/* The device asked for, else the one with the most events, else with the most segments. */
static bool choose_device(struct import *import, int device)
{
    struct census census = {.device_count = 0};
    if (!take_census(import, &census)) {
        return false;
    }
    if (device >= census.device_count) {
        return flw_input_fail(import->input, 0, "has no device %d, only 0 to %d", device,
                              census.device_count - 1);
    }
    int best = 0;
    for (int i = 1; i < census.device_count; i++) {
        if (census.events[i] > census.events[best] ||
            (census.events[i] == census.events[best] &&
             census.segments[i] > census.segments[best])) {
            best = i;
        }
    }
    import->device = device >= 0 ? device : best;
    for (int i = 0; i < census.device_count; i++) {
        import->is_recorded[i] = census.events[i] > 0 || census.segments[i] > 0;
    }
    return true;
}

/* ---- together ---- */

/* A list, or not there. */
static bool check_list(struct import *import, struct flw_pickle_value part, enum word word)
{
    return part.kind == FLW_PICKLE_LIST || part.kind == FLW_PICKLE_ABSENT ||
           flw_input_fail(import->input, flw_harvest_offset(import->kept, import->root),
                          "\"%s\" is no list", words[word]);
}

static bool find_parts(struct import *import)
{
    struct flw_pickle_value root = import->root;
    if (root.kind == FLW_PICKLE_LIST) {
        import->segments = root;
        return true;
    }
    import->segments = flw_harvest_get(import->kept, root, WORD_SEGMENTS);
    import->traces = flw_harvest_get(import->kept, root, WORD_DEVICE_TRACES);
    import->annotations = flw_harvest_get(import->kept, root, WORD_ANNOTATIONS);
    if (import->segments.kind != FLW_PICKLE_LIST && import->traces.kind != FLW_PICKLE_LIST) {
        return fail_at(import, root,
                       "a pickle, but not a PyTorch memory snapshot: no \"segments\"");
    }
    return check_list(import, import->segments, WORD_SEGMENTS) &&
           check_list(import, import->traces, WORD_DEVICE_TRACES) &&
           check_list(import, import->annotations, WORD_ANNOTATIONS);
}

static bool add_count(struct flw_notes *notes, const char *key, uint64_t count)
{
    char line[96];
    snprintf(line, sizeof(line), "%s %llu\n", key, (unsigned long long)count);
    return count == 0 || flw_notes_add_lines(notes, line);
}

/* NULL: no memory. */
static char *make_notes(const struct import *import)
{
    struct flw_notes notes = {0};
    if (!flw_notes_add_lines(&notes, "origin pytorch snapshot\n") ||
        !flw_notes_add_devices(&notes, import->is_recorded, DEVICES_MAX) ||
        !add_count(&notes, "annotations_before_the_events", import->phases.early_count) ||
        !add_count(&notes, "annotations_without_a_place", import->unplaced_count) ||
        !add_count(&notes, "blocks_of_the_end_given_twice", import->history.double_count) ||
        !add_count(&notes, "bytes_behind_the_pickle_not_read", import->rest_bytes)) {
        flw_notes_finish(&notes);
    }
    return flw_notes_take(&notes);
}

static bool import_snapshot(struct import *import, int device)
{
    if (!find_parts(import) || !choose_device(import, device) || !read_annotations(import) ||
        !read_events(import) || !read_segments(import) ||
        !(flw_poolids_settle(&import->history, flw_harvest_interned(import->kept),
                             import->has_pools) ||
          fail_memory(import))) {
        return false;
    }
    /* The history holds what was of use. */
    flw_harvest_destroy(import->kept);
    import->kept = NULL;
    if (!flw_history_resolve(&import->history, &import->build)) {
        return fail_memory(import);
    }
    struct flw_trace *trace = import->build.trace;
    trace->device = import->device;
    trace->has_times = import->has_times;
    trace->has_addresses = true;
    trace->has_segments = true;
    trace->notes = make_notes(import);
    if (trace->notes == NULL) {
        return fail_memory(import);
    }
    const char *wrong = flw_measure_trace(trace);
    return wrong == NULL || flw_input_fail(import->input, 0, "%s", wrong);
}

bool flw_pytorch_read(struct flw_input *input, int device, struct flw_trace **out_trace)
{
    static const struct flw_pickle_vocabulary vocabulary = {words, WORD_READ_COUNT};
    struct import import = {.input = input};
    *out_trace = NULL;
    if (!flw_pickle_read(input, &vocabulary, &import.kept, &import.root, &import.rest_bytes)) {
        return false;
    }
    import.steps_left = flw_input_offset(input);
    bool is_read = flw_build_init(&import.build, input->name, "pytorch pickle")
                       ? import_snapshot(&import, device)
                       : fail_memory(&import);
    if (is_read) {
        *out_trace = flw_build_take(&import.build);
    }
    flw_build_finish(&import.build);
    flw_history_finish(&import.history);
    flw_phases_finish(&import.phases);
    flw_harvest_destroy(import.kept);
    return is_read;
}
