/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: interpreting a snapshot, across versions: its events, annotations and heap at the end; choosing a device.
 * Does not: number blocks or find the heap at the beginning (history.c), or place annotations among events (phases.c).
 *
 * A snapshot is {segments: [{..., blocks: [...]}], device_traces: [[event, ...], ...], external_annotations: [...]}; a
 * bare list is its segments alone. A list can hold another one many times, so every step of the walk is counted, and
 * there may be no more steps than the file has bytes.
 *
 * The input keeps the first failure. Functions continue with zeros after a failure; `each` and the callers check.
 */
#include "trace/formats/pytorch.h"

#include <stdio.h>
#include <string.h>

#include "trace/formats/pickle.h"
#include "trace/formats/poolids.h"
#include "trace/trace/history.h"
#include "trace/trace/phases.h"

#define SETTINGS_BYTES 512

struct device {
    struct flw_pickle_value events; /* a list */
    uint64_t event_count, segment_count;
    uint64_t
        oom_us; /* of the first out-of-memory; its number if it has no time; UINT64_MAX: none */
};

/* A text of an event beside its frames, in the pickle and in the trace: text plus 1; 0: none. */
struct remark {
    struct flw_pickle_value value;
    uint32_t text;
};

struct import {
    struct flw_input *input;
    struct flw_pickle pickle;
    struct flw_history history;
    struct flw_build *build;
    struct flw_phases phases;
    struct flw_pickle_value segments, traces, annotations; /* lists; absent if there are none */
    struct device devices[FLW_PYTORCH_DEVICES];
    int device_count, active_count, device; /* active: with events; device: the one to read */
    uint64_t steps_left;                    /* of the walk */
    uint64_t unplaced_count; /* annotations without a place: they or the events have no times */
    uint64_t first_time_us, last_time_us;
    bool has_times;
    bool has_pools;                               /* events have their pools */
    struct remark compile_context, user_metadata; /* of the present event */
    struct flw_trace_segment segment;             /* of the present block */
    uint64_t block_address;                       /* of the next block, if none is recorded */
};

/* ---- values ---- */

static bool fail_at(struct import *import, struct flw_pickle_value container, const char *what)
{
    return flw_input_fail(import->input, flw_pickle_offset(&import->pickle, container), "%s", what);
}

static bool check_memory(struct import *import, bool has_memory)
{
    return has_memory || flw_input_fail(import->input, 0, "no memory to hold the trace");
}

static struct flw_pickle_value get(struct import *import, struct flw_pickle_value dict,
                                   enum word word)
{
    return flw_pickle_get(&import->pickle, dict, word);
}

/* Return a number that must be there and not negative. */
static uint64_t number(struct import *import, struct flw_pickle_value dict, enum word word)
{
    struct flw_pickle_value value = get(import, dict, word);
    if (value.kind == FLW_PICKLE_UNSIGNED) {
        return value.bits;
    }
    flw_input_fail(import->input, flw_pickle_offset(&import->pickle, dict), "\"%s\" is %s",
                   words[word],
                   value.kind == FLW_PICKLE_ABSENT     ? "missing"
                   : value.kind == FLW_PICKLE_NEGATIVE ? "negative"
                                                       : "not a number");
    return 0;
}

static uint64_t number_or(struct import *import, struct flw_pickle_value dict, enum word word,
                          uint64_t otherwise)
{
    bool is_absent = get(import, dict, word).kind == FLW_PICKLE_ABSENT;
    return is_absent ? otherwise : number(import, dict, word);
}

static uint16_t stream_of(struct import *import, struct flw_pickle_value dict)
{
    uint16_t stream = 0;
    if (!flw_build_add_stream(import->build, number_or(import, dict, WORD_STREAM, 0), &stream)) {
        fail_at(import, dict, "more than 65535 streams, or the host is out of memory");
    }
    return stream;
}

/* Return the number of the pool's pair; 0 if missing. Pools are renumbered at the end. */
static uint32_t pool_of(struct import *import, struct flw_pickle_value dict, enum word word)
{
    struct flw_pickle_value pool = get(import, dict, word);
    return pool.kind == FLW_PICKLE_PAIR ? (uint32_t)pool.bits + 1 : 0;
}

static uint32_t stack_of(struct import *import, struct flw_pickle_value dict)
{
    return flw_pickle_stack(&import->pickle, get(import, dict, WORD_FRAMES));
}

/* Read all items of a list. If `wrong` is not NULL, no item may be of another kind than a dict or list. */
static bool each(struct import *import, struct flw_pickle_value list, const char *wrong,
                 void (*read)(struct import *import, struct flw_pickle_value item))
{
    const struct flw_pickle_list *items = flw_pickle_list(&import->pickle, list);
    struct flw_pickle_cursor cursor = {.next = items->first};
    struct flw_pickle_value item;
    if (items->has_left_out && wrong != NULL) {
        return fail_at(import, list, wrong);
    }
    while (!import->input->failed && flw_pickle_next(&import->pickle, &cursor, &item)) {
        if (import->steps_left == 0) {
            return flw_input_fail(import->input, 0,
                                  "its lists hold more items than the file has bytes");
        }
        import->steps_left--;
        read(import, item);
    }
    return !import->input->failed;
}

/* ---- the device ---- */

static void add_device(struct import *import, struct flw_pickle_value list)
{
    if (import->device_count == FLW_PYTORCH_DEVICES) {
        fail_at(import, import->traces, "more than 1024 devices");
    } else if (list.kind != FLW_PICKLE_LIST) {
        fail_at(import, list, "the trace of a device is not a list");
    } else {
        uint64_t count = flw_pickle_list(&import->pickle, list)->count;
        import->devices[import->device_count++] = (struct device){list, count, 0, 0};
        import->active_count += count > 0;
    }
}

static void count_segment(struct import *import, struct flw_pickle_value segment)
{
    uint64_t device = number_or(import, segment, WORD_DEVICE, 0);
    if (device >= FLW_PYTORCH_DEVICES) {
        fail_at(import, segment, "\"device\" is not a device number");
        return;
    }
    import->devices[device].segment_count++;
    if ((int)device >= import->device_count) {
        import->device_count = (int)device + 1;
    }
}

/* Return the time of the device's first event with a time, or of its first out-of-memory; without times, the number of
 * that event. UINT64_MAX: none. */
static uint64_t find_event(struct import *import, const struct device *device, bool is_oom)
{
    const struct flw_pickle_list *events = flw_pickle_list(&import->pickle, device->events);
    struct flw_pickle_cursor cursor = {.next = events->first};
    struct flw_pickle_value dict;
    for (uint64_t i = 0; flw_pickle_next(&import->pickle, &cursor, &dict); i++) {
        struct flw_pickle_value time = get(import, dict, WORD_TIME_US);
        bool has_time = time.kind == FLW_PICKLE_UNSIGNED;
        if (is_oom ? flw_pickle_is_word(get(import, dict, WORD_ACTION), WORD_OOM) : has_time) {
            return has_time ? time.bits : i;
        }
    }
    return UINT64_MAX;
}

static bool is_preferred(const struct device *a, const struct device *b)
{
    if (a->oom_us != b->oom_us) {
        return a->oom_us < b->oom_us;
    }
    return a->event_count != b->event_count ? a->event_count > b->event_count
                                            : a->segment_count > b->segment_count;
}

/* Find the first to run out of memory, else the device with most events, then segments. */
static int find_preferred(struct import *import)
{
    int best = 0;
    for (int i = 0; i < import->device_count; i++) {
        struct device *device = &import->devices[i];
        bool is_sole = import->active_count <= 1; /* then the events decide */
        device->oom_us = is_sole ? UINT64_MAX : find_event(import, device, true);
        best = is_preferred(device, &import->devices[best]) ? i : best;
    }
    return best;
}

static bool is_recorded(const struct device *device)
{
    return device->event_count + device->segment_count > 0;
}

/* Choose the requested device, or the preferred one. */
static bool choose_device(struct import *import, int device)
{
    if (!each(import, import->traces, "the trace of a device is not a list", add_device) ||
        !each(import, import->segments, "an item of the segments is not a segment",
              count_segment)) {
        return false;
    }
    import->device_count += import->device_count == 0;
    if (device >= import->device_count) {
        return flw_input_fail(import->input, 0, "has no device %d, only 0 to %d", device,
                              import->device_count - 1);
    }
    int best = find_preferred(import);
    if (device >= 0 && !is_recorded(&import->devices[device]) &&
        is_recorded(&import->devices[best])) {
        return flw_input_fail(import->input, 0, "device %d has no segment and no event", device);
    }
    import->device = device >= 0 ? device : best;
    return true;
}

/* ---- annotations ---- */

static uint32_t name_of(struct import *import, struct flw_pickle_value dict)
{
    char name[FLW_TRACE_NAME_BYTES + 1] = "unnamed";
    const char *text = flw_pickle_text(&import->pickle, get(import, dict, WORD_NAME));
    size_t bytes = text == NULL ? 0 : flw_pickle_cut_text(text, strlen(text), FLW_TRACE_NAME_BYTES);
    uint32_t number;
    for (size_t i = 0; i < bytes; i++) {
        bool is_printable = (unsigned char)text[i] >= 0x20 && text[i] != 0x7F;
        name[i] = is_printable ? text[i] : '?';
    }
    return flw_intern_add_text(&import->build->trace->names, name, bytes > 0 ? bytes : strlen(name),
                               &number)
               ? number
               : FLW_TRACE_NO_NAME;
}

/* Read an annotation. Stages other than begin and end belong to no phase. */
static void read_annotation(struct import *import, struct flw_pickle_value dict)
{
    struct flw_pickle_value stage = get(import, dict, WORD_STAGE);
    bool is_begin = flw_pickle_is_word(stage, WORD_START);
    uint64_t device = number_or(import, dict, WORD_DEVICE, (uint64_t)import->device);
    if (device != (uint64_t)import->device || !(is_begin || flw_pickle_is_word(stage, WORD_END))) {
        return;
    }
    if (get(import, dict, WORD_TIME_US).kind == FLW_PICKLE_ABSENT) {
        import->unplaced_count++;
        return;
    }
    uint64_t time_us = number(import, dict, WORD_TIME_US);
    uint32_t name = name_of(import, dict);
    check_memory(import, name != FLW_TRACE_NO_NAME &&
                             flw_phases_add(&import->phases, time_us, name, is_begin));
}

static void read_annotations(struct import *import)
{
    uint64_t first_us = find_event(import, &import->devices[import->device], false);
    each(import, import->annotations, NULL, read_annotation);
    if (first_us != UINT64_MAX) {
        check_memory(import, flw_phases_sort(&import->phases, first_us));
    } else { /* no events to place them among */
        import->unplaced_count += import->phases.count;
        flw_phases_finish(&import->phases);
    }
}

/* ---- events ---- */

/* Add an event in its pool; flw_build_no_detail is left out. */
static bool add_to_build(struct import *import, const struct flw_trace_event *event, uint32_t pool,
                         struct flw_trace_detail detail)
{
    struct flw_trace_context context = {.record = import->build->trace->event_count, .pool = pool};
    bool has_detail = detail.free_bytes != FLW_TRACE_UNKNOWN || detail.name != FLW_TRACE_NO_NAME;
    return flw_build_add_context(import->build, &context) &&
           flw_build_add_event(import->build, event) &&
           (!has_detail || flw_build_add_detail(import->build, detail));
}

/* Convert to nanoseconds since the first event. */
static uint64_t elapsed_ns(struct import *import, uint64_t time_us, struct flw_pickle_value of,
                           const char *wrong)
{
    uint64_t ns;
    if (__builtin_mul_overflow(time_us - import->first_time_us, UINT64_C(1000), &ns)) {
        fail_at(import, of, wrong);
    }
    return ns;
}

/* Add the phases before an event at `time_us`. */
static void add_phases(struct import *import, uint64_t time_us)
{
    const struct flw_phase *phase;
    while (!import->input->failed && (phase = flw_phases_due(&import->phases, time_us)) != NULL) {
        struct flw_trace_event event = {.op = phase->is_begin ? FLW_TRACE_PHASE_BEGIN
                                                              : FLW_TRACE_PHASE_END};
        struct flw_trace_detail detail = flw_build_no_detail();
        detail.name = phase->name;
        event.time_ns = elapsed_ns(import, phase->time_us, import->annotations,
                                   "an annotation is centuries after the first event");
        check_memory(import, add_to_build(import, &event, 0, detail));
    }
}

static uint64_t event_time_ns(struct import *import, struct flw_pickle_value dict)
{
    if (get(import, dict, WORD_TIME_US).kind != FLW_PICKLE_ABSENT) {
        uint64_t time_us = number(import, dict, WORD_TIME_US);
        if (!import->has_times) {
            import->has_times = true;
            import->first_time_us = time_us;
        }
        /* Clocks are sometimes set back; the order of the list is right. */
        import->last_time_us = time_us > import->last_time_us ? time_us : import->last_time_us;
    }
    return elapsed_ns(import, import->last_time_us, dict,
                      "\"time_us\" is centuries after the first event");
}

/* Get a remark, usually that of the previous event. */
static uint32_t get_remark(struct import *import, struct flw_pickle_value dict, enum word word,
                           struct remark *last)
{
    struct flw_pickle_value value = get(import, dict, word);
    if (value.kind != last->value.kind || value.bits != last->value.bits) {
        const char *text = flw_pickle_text(&import->pickle, value);
        *last = (struct remark){value, 0};
        if (text != NULL) {
            check_memory(import, flw_intern_add_text(&import->pickle.stacks.texts, text,
                                                     strlen(text), &last->text));
            last->text++;
        }
    }
    return last->text;
}

static void add_event(struct import *import, struct flw_pickle_value dict,
                      struct flw_trace_event *event, struct flw_trace_detail detail)
{
    struct flw_trace_remark remark = {.record = import->build->trace->event_count};
    uint32_t pool = pool_of(import, dict, WORD_POOL_ID);
    remark.compile_context =
        get_remark(import, dict, WORD_COMPILE_CONTEXT, &import->compile_context);
    remark.user_metadata = get_remark(import, dict, WORD_USER_METADATA, &import->user_metadata);
    import->has_pools |= pool != 0;
    check_memory(import,
                 add_to_build(import, event, pool, detail) &&
                     flw_build_set_stack(import->build, remark.record, stack_of(import, dict)) &&
                     flw_build_add_remark(import->build, &remark));
}

static void read_event(struct import *import, struct flw_pickle_value dict)
{
    struct flw_trace_event event = {.block = UINT32_MAX};
    struct flw_trace_detail detail = flw_build_no_detail();
    struct flw_pickle_value action = get(import, dict, WORD_ACTION);
    if (action.kind != FLW_PICKLE_WORD || action.bits >= sizeof operations) {
        fail_at(import, dict,
                flw_pickle_text(&import->pickle, action) != NULL ? "an event has an unknown action"
                                                                 : "an event without an action");
        return;
    }
    event.op = operations[action.bits];
    event.time_ns = event_time_ns(import, dict);
    if (import->has_times) {
        add_phases(import, import->last_time_us);
    }
    if (event.op != FLW_TRACE_MARK) {
        event.size_bytes = number(import, dict, WORD_SIZE);
        event.stream = stream_of(import, dict);
    }
    if (event.op == FLW_TRACE_OOM) {
        detail.free_bytes = number_or(import, dict, WORD_DEVICE_FREE, FLW_TRACE_UNKNOWN);
    } else if (event.op != FLW_TRACE_MARK) {
        event.address = number(import, dict, WORD_ADDR);
    }
    if (event.size_bytes > UINT64_MAX - event.address) {
        fail_at(import, dict, "its address and size exceed 64 bits");
    }
    add_event(import, dict, &event, detail);
}

static void read_events(struct import *import)
{
    const struct device *device = &import->devices[import->device];
    check_memory(import, flw_build_reserve_events(import->build, device->event_count));
    each(import, device->events, "an item of the trace is not an event", read_event);
    add_phases(import, UINT64_MAX);
}

/* ---- the heap at the end ---- */

/* Read a block. Older versions have the requested size and the stack in a history, newer ones in the block. */
static void read_block(struct import *import, struct flw_pickle_value dict)
{
    struct flw_pickle_value state = get(import, dict, WORD_STATE);
    struct flw_pickle_value history = get(import, dict, WORD_HISTORY), latest;
    struct flw_pickle_cursor cursor = {.next = flw_pickle_list(&import->pickle, history)->first};
    struct flw_history_block last = {
        .block = {.stream = import->segment.stream,
                  .address = number_or(import, dict, WORD_ADDRESS, import->block_address)},
        .pool = import->segment.pool,
        .waits = !flw_pickle_is_word(state, WORD_ACTIVE_ALLOCATED)};
    uint64_t size_bytes = number(import, dict, WORD_SIZE);
    if (__builtin_add_overflow(last.block.address, size_bytes, &import->block_address)) {
        fail_at(import, dict, "a block's address and size exceed 64 bits");
    } else if (state.kind != FLW_PICKLE_WORD || state.bits < WORD_ACTIVE_ALLOCATED ||
               state.bits > WORD_INACTIVE) {
        fail_at(import, dict, "a block with an unknown state");
    } else if (state.bits != WORD_INACTIVE) {
        bool is_old = flw_pickle_next(&import->pickle, &cursor, &latest);
        dict = is_old ? latest : dict;
        last.stack = stack_of(import, dict);
        last.block.size_bytes =
            number_or(import, dict, is_old ? WORD_REAL_SIZE : WORD_REQUESTED_SIZE, size_bytes);
        check_memory(import, flw_history_add_block(&import->history, &last));
    }
}

static void read_segment(struct import *import, struct flw_pickle_value dict)
{
    struct flw_trace_segment *segment = &import->segment;
    struct flw_pickle_value type = get(import, dict, WORD_SEGMENT_TYPE);
    struct flw_pickle_value blocks = get(import, dict, WORD_BLOCKS);
    if (number_or(import, dict, WORD_DEVICE, 0) != (uint64_t)import->device) {
        return;
    }
    segment->address = number(import, dict, WORD_ADDRESS);
    segment->size_bytes = number(import, dict, WORD_TOTAL_SIZE);
    segment->stream = stream_of(import, dict);
    segment->is_large = !flw_pickle_is_word(type, WORD_SMALL);
    segment->pool = pool_of(import, dict, WORD_SEGMENT_POOL_ID);
    segment->is_expandable = flw_pickle_is_true(get(import, dict, WORD_IS_EXPANDABLE));
    segment->stack = stack_of(import, dict);
    import->block_address = segment->address;
    if (segment->size_bytes > UINT64_MAX - segment->address) {
        fail_at(import, dict, "a segment's address and size exceed 64 bits");
    }
    check_memory(import, flw_build_add_segment(import->build, segment));
    each(import, blocks, "an item of the blocks is not a block", read_block);
}

/* ---- together ---- */

/* Get a list of the snapshot, which may be absent. */
static struct flw_pickle_value get_part(struct import *import, enum word word)
{
    struct flw_pickle_value root = import->pickle.root, part = get(import, root, word);
    if (part.kind != FLW_PICKLE_LIST && part.kind != FLW_PICKLE_ABSENT) {
        flw_input_fail(import->input, flw_pickle_offset(&import->pickle, root), "\"%s\" is no list",
                       words[word]);
    }
    return part;
}

static bool find_parts(struct import *import)
{
    struct flw_pickle_value root = import->pickle.root;
    bool is_list = root.kind == FLW_PICKLE_LIST;
    if (!is_list && get(import, root, WORD_SEGMENTS).kind != FLW_PICKLE_LIST &&
        get(import, root, WORD_DEVICE_TRACES).kind != FLW_PICKLE_LIST) {
        return fail_at(import, root,
                       "a pickle, but not a PyTorch memory snapshot: no \"segments\"");
    }
    import->segments = is_list ? root : get_part(import, WORD_SEGMENTS);
    import->traces = get_part(import, WORD_DEVICE_TRACES);
    import->annotations = get_part(import, WORD_ANNOTATIONS);
    return !import->input->failed;
}

/* Print the line "allocator_settings VARIABLE SETTINGS", of the variable that the allocator reads; "": unknown. */
static void print_settings(struct import *import, struct flw_pickle_value dict,
                           char out[SETTINGS_BYTES])
{
    static const enum word variables[] = {WORD_CUDA_CONF, WORD_ANY_CONF, WORD_NPU_CONF};
    bool is_expandable = flw_pickle_is_true(get(import, dict, WORD_EXPANDABLE_SEGMENTS));
    out[0] = '\0';
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = flw_pickle_text(&import->pickle, get(import, dict, variables[i]));
        if (text == NULL || (text[0] == '\0' && i == 0 && !is_expandable)) {
            continue; /* the usual settings need no line */
        }
        bool is_said = strstr(text, "expandable_segments") != NULL || !is_expandable;
        snprintf(out, SETTINGS_BYTES, "allocator_settings %s %s%s%s", words[variables[i]], text,
                 is_said || text[0] == '\0' ? "" : ",", is_said ? "" : "expandable_segments:True");
        for (char *c = out; *c != '\0'; c++) {
            *c = *c >= 0x20 && *c < 0x7F ? *c : '?';
        }
        return;
    }
}

/* Add the notes that need the pickle. */
static bool begin_notes(struct import *import)
{
    struct flw_pickle_value dict = get(import, import->pickle.root, WORD_ALLOCATOR_SETTINGS);
    bool are_recorded[FLW_PYTORCH_DEVICES];
    char settings[SETTINGS_BYTES];
    for (int i = 0; i < FLW_PYTORCH_DEVICES; i++) {
        are_recorded[i] = is_recorded(&import->devices[i]);
    }
    print_settings(import, dict, settings);
    return flw_notes_add_lines(&import->build->notes, "origin pytorch snapshot\n") &&
           flw_notes_add_devices(&import->build->notes, are_recorded, FLW_PYTORCH_DEVICES) &&
           flw_notes_add_lines(&import->build->notes, settings) &&
           (!flw_pickle_is_true(get(import, dict, WORD_OVERFLOWED)) ||
            flw_notes_add_lines(&import->build->notes, FLW_NOTES_OVERWRITTEN " yes\n"));
}

static bool add_count(struct import *import, const char *key, uint64_t count)
{
    char line[96];
    snprintf(line, sizeof(line), "%s %llu\n", key, (unsigned long long)count);
    return count == 0 || flw_notes_add_lines(&import->build->notes, line);
}

static bool fill_trace(struct import *import, struct flw_trace *trace)
{
    uint64_t rest_bytes = import->pickle.rest_bytes;
    trace->stacks = import->pickle.stacks;
    import->pickle.stacks = (struct flw_stacks){0};
    flw_pickle_finish(&import->pickle); /* the history has all that is needed */
    flw_stacks_seal(&trace->stacks);
    trace->device = import->device;
    trace->has_times = import->has_times;
    trace->begin_ns = import->first_time_us <= UINT64_MAX / 1000 ? import->first_time_us * 1000 : 0;
    trace->has_addresses = true;
    trace->has_segments = true;
    return flw_history_resolve(&import->history, import->build) &&
           add_count(import, "annotations_before_the_events", import->phases.early_count) &&
           add_count(import, "annotations_without_a_place", import->unplaced_count) &&
           add_count(import, "blocks_of_the_end_given_twice", import->history.double_count) &&
           add_count(import, "bytes_behind_the_pickle_not_read", rest_bytes);
}

static bool import_snapshot(struct import *import, int device)
{
    struct flw_trace *trace = import->build->trace;
    if (!find_parts(import) || !choose_device(import, device)) {
        return false;
    }
    read_annotations(import);
    read_events(import);
    each(import, import->segments, NULL, read_segment);
    if (!is_recorded(&import->devices[import->device])) {
        return flw_input_fail(import->input, 0,
                              "an empty snapshot: no device has a segment or an event; dump it in "
                              "the process that allocates, before it frees all");
    }
    return !import->input->failed &&
           check_memory(import, flw_poolids_renumber(&import->history, import->build,
                                                     &import->pickle.pairs, import->has_pools) &&
                                    begin_notes(import) && fill_trace(import, trace));
}

bool flw_pytorch_read(struct flw_input *input, int device, struct flw_build *build)
{
    struct import import = {.input = input, .build = build};
    if (!flw_pickle_read(input, &import.pickle)) {
        return false;
    }
    import.steps_left = flw_input_offset(input);
    bool is_read = import_snapshot(&import, device);
    flw_history_finish(&import.history);
    flw_phases_finish(&import.phases);
    flw_pickle_finish(&import.pickle);
    return is_read;
}
