/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: interpreting a snapshot's events and annotations, across versions; choosing a device.
 * Does not: read the heap at the end (pytorch_heap.c), number blocks or find the heap at the beginning
 * (history.c), or place annotations among events (phases.c).
 *
 * A snapshot is {segments: [{..., blocks: [...]}], device_traces: [[event, ...], ...],
 * external_annotations: [...]}; a bare list is its segments alone. A list can hold another one many
 * times, so every step of the walk is counted, and there may be no more steps than the file has bytes.
 */
#include "trace/formats/pytorch.h"

#include <stdio.h>
#include <string.h>

#include "trace/formats/poolids.h"
#include "trace/formats/pytorch_import.h"
#include "trace/trace/measure.h"
#include "trace/trace/notes.h"

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

/* ---- annotations ---- */

/* Return the text, or NULL if the value is none. */
static const char *text_of(struct flw_pytorch_import *import, struct flw_pickle_value value)
{
    return value.kind == FLW_PICKLE_TEXT
               ? flw_intern_text(flw_harvest_interned(import->kept), value.bits)
           : value.kind == FLW_PICKLE_WORD ? words[value.bits]
                                           : NULL;
}

static uint32_t name_of(struct flw_pytorch_import *import, struct flw_pickle_value dict)
{
    char name[FLW_TRACE_NAME_BYTES + 1];
    const char *text = text_of(import, flw_pytorch_get(import, dict, WORD_NAME));
    text = text == NULL ? "" : text;
    size_t bytes = flw_pickle_cut_text(text, strlen(text), FLW_TRACE_NAME_BYTES);
    for (size_t i = 0; i < bytes; i++) {
        bool is_printable = (unsigned char)text[i] >= 0x20 && text[i] != 0x7F;
        name[i] = is_printable ? text[i] : '?';
    }
    uint32_t number = FLW_TRACE_NO_NAME;
    flw_build_add_name(&import->build, bytes > 0 ? name : "unnamed", bytes > 0 ? bytes : 7,
                       &number);
    return number;
}

/* Read an annotation. Stages other than begin and end belong to no phase. */
static bool read_annotation(struct flw_pytorch_import *import, struct flw_pickle_value dict)
{
    struct flw_pickle_value stage = flw_pytorch_get(import, dict, WORD_STAGE);
    uint64_t device, time_us;
    if (!flw_pytorch_get_number_or(import, dict, WORD_DEVICE, (uint64_t)import->device, &device)) {
        return false;
    }
    bool is_begin = stage.bits == WORD_START;
    if (device != (uint64_t)import->device || stage.kind != FLW_PICKLE_WORD ||
        (!is_begin && stage.bits != WORD_END)) {
        return true;
    }
    if (flw_pytorch_get(import, dict, WORD_TIME_US).kind == FLW_PICKLE_ABSENT) {
        import->unplaced_count++;
        return true;
    }
    if (!flw_pytorch_get_number(import, dict, WORD_TIME_US, &time_us)) {
        return false;
    }
    uint32_t name = name_of(import, dict);
    return (name != FLW_TRACE_NO_NAME &&
            flw_phases_add(&import->phases, time_us, name, is_begin)) ||
           flw_pytorch_fail_memory(import);
}

/* Find the first recorded time of an event. Returns false if there is none. */
static bool find_first_time(struct flw_pytorch_import *import, uint64_t *out_us)
{
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, import->traces);
    struct flw_pickle_value list, dict;
    for (int i = 0; flw_harvest_next(import->kept, &cursor, &list); i++) {
        struct flw_harvest_cursor events = flw_harvest_first(import->kept, list);
        while (i == import->device && flw_harvest_next(import->kept, &events, &dict)) {
            struct flw_pickle_value time = flw_pytorch_get(import, dict, WORD_TIME_US);
            if (time.kind == FLW_PICKLE_UNSIGNED) {
                *out_us = time.bits;
                return true;
            }
        }
    }
    return false;
}

static bool read_annotations(struct flw_pytorch_import *import)
{
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, import->annotations);
    struct flw_pickle_value dict;
    uint64_t first_us;
    while (flw_harvest_next(import->kept, &cursor, &dict)) {
        if (!flw_pytorch_count_step(import) || !read_annotation(import, dict)) {
            return false;
        }
    }
    if (!find_first_time(import, &first_us)) { /* no events to place them among */
        import->unplaced_count += import->phases.count;
        flw_phases_finish(&import->phases);
        return true;
    }
    return flw_phases_settle(&import->phases, first_us) || flw_pytorch_fail_memory(import);
}

static bool add_detailed(struct flw_pytorch_import *import, struct flw_trace_event *event,
                         struct flw_trace_detail detail)
{
    return flw_history_add_detail(&import->history, detail, &event->block) &&
           flw_history_add_event(&import->history, event);
}

/* Add the phases before an event at `time_us`. */
static bool add_phases(struct flw_pytorch_import *import, uint64_t time_us)
{
    const struct flw_phase *phase;
    while ((phase = flw_phases_due(&import->phases, time_us)) != NULL) {
        struct flw_trace_event event = {.op = phase->is_begin ? FLW_TRACE_PHASE_BEGIN
                                                              : FLW_TRACE_PHASE_END};
        struct flw_trace_detail detail = flw_build_no_detail();
        detail.name = phase->name;
        if (__builtin_mul_overflow(phase->time_us - import->first_time_us, UINT64_C(1000),
                                   &event.time_ns)) {
            return flw_pytorch_fail_at(import, import->annotations,
                                       "an annotation is centuries after the first event");
        }
        if (!add_detailed(import, &event, detail)) {
            return flw_pytorch_fail_memory(import);
        }
    }
    return true;
}

/* ---- events ---- */

static bool get_time(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                     uint64_t *out_ns)
{
    struct flw_pickle_value value = flw_pytorch_get(import, dict, WORD_TIME_US);
    uint64_t time_us = import->last_time_us;
    if (value.kind != FLW_PICKLE_ABSENT) {
        if (!flw_pytorch_get_number(import, dict, WORD_TIME_US, &time_us)) {
            return false;
        }
        if (!import->has_times) {
            import->has_times = true;
            import->first_time_us = time_us;
            import->last_time_us = time_us;
        }
        /* Clocks are sometimes set back; the order of the list is right. */
        time_us = time_us < import->last_time_us ? import->last_time_us : time_us;
        import->last_time_us = time_us;
    }
    if (__builtin_mul_overflow(time_us - import->first_time_us, UINT64_C(1000), out_ns)) {
        return flw_pytorch_fail_at(import, dict, "\"time_us\" is centuries after the first event");
    }
    return true;
}

static bool check_range(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                        const struct flw_trace_event *event)
{
    if (event->size_bytes > UINT64_MAX - event->address) {
        return flw_pytorch_fail_at(import, dict, "its address and size go beyond 64 bits");
    }
    return true;
}

/* Get a remark's text plus 1, usually that of the previous event; 0: none. Returns false if memory runs out. */
static bool get_remark(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                       enum word word, struct flw_pytorch_remark *last)
{
    struct flw_pickle_value value = flw_pytorch_get(import, dict, word);
    if (value.kind == last->value.kind && value.bits == last->value.bits) {
        return true;
    }
    const char *text = text_of(import, value);
    uint32_t number = 0;
    if (text != NULL &&
        !flw_stacks_add_text(flw_harvest_stacks(import->kept), text, strlen(text), &number)) {
        return false;
    }
    *last = (struct flw_pytorch_remark){value, text == NULL ? 0 : number + 1};
    return true;
}

static bool set_remark(struct flw_pytorch_import *import, struct flw_pickle_value dict)
{
    struct flw_pytorch_remark *compile = &import->compile_context, *user = &import->user_metadata;
    return get_remark(import, dict, WORD_COMPILE_CONTEXT, compile) &&
           get_remark(import, dict, WORD_USER_METADATA, user) &&
           flw_history_set_remark(&import->history,
                                  (struct flw_trace_remark){.compile_context = compile->text,
                                                            .user_metadata = user->text});
}

static bool add_event(struct flw_pytorch_import *import, struct flw_pickle_value dict,
                      struct flw_trace_event *event)
{
    uint32_t pool = flw_pytorch_get_pool(import, dict, WORD_POOL_ID);
    struct flw_trace_detail detail = flw_build_no_detail();
    if (event->op == FLW_TRACE_OOM &&
        !flw_pytorch_get_number_or(import, dict, WORD_DEVICE_FREE, FLW_TRACE_UNKNOWN,
                                   &detail.free_bytes)) {
        return false;
    }
    bool has_memory = detail.free_bytes != FLW_TRACE_UNKNOWN
                          ? add_detailed(import, event, detail)
                          : flw_history_add_event(&import->history, event);
    import->has_pools |= pool != 0;
    return (has_memory && flw_history_set_pool(&import->history, pool) &&
            flw_history_set_stack(&import->history, flw_pytorch_get_stack(import, dict)) &&
            set_remark(import, dict)) ||
           flw_pytorch_fail_memory(import);
}

static bool read_event(struct flw_pytorch_import *import, struct flw_pickle_value dict)
{
    struct flw_trace_event event = {.block = UINT32_MAX};
    struct flw_pickle_value action = flw_pytorch_get(import, dict, WORD_ACTION);
    if (action.kind != FLW_PICKLE_WORD || action.bits > WORD_WORKSPACE_SNAPSHOT) {
        return flw_pytorch_fail_at(import, dict,
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
        if (!flw_pytorch_get_number(import, dict, WORD_SIZE, &event.size_bytes) ||
            !flw_pytorch_get_stream(import, dict, &event.stream)) {
            return false;
        }
        if (event.op != FLW_TRACE_OOM &&
            (!flw_pytorch_get_number(import, dict, WORD_ADDR, &event.address) ||
             !check_range(import, dict, &event))) {
            return false;
        }
    }
    return add_event(import, dict, &event);
}

static bool read_events(struct flw_pytorch_import *import)
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
        if (!flw_pytorch_check_items(import, list, "an item of this trace is no event")) {
            return false;
        }
        count = count < import->steps_left ? count : import->steps_left;
        if (!flw_history_reserve_events(&import->history, count)) {
            return flw_pytorch_fail_memory(import);
        }
        while (flw_harvest_next(import->kept, &events, &dict)) {
            if (!flw_pytorch_count_step(import) || !read_event(import, dict)) {
                return false;
            }
        }
    }
    return add_phases(import, UINT64_MAX);
}

/* ---- the device ---- */

struct census {
    uint64_t events[FLW_PYTORCH_DEVICES];
    uint64_t segments[FLW_PYTORCH_DEVICES];
    uint64_t oom_us[FLW_PYTORCH_DEVICES]; /* as find_oom returns */
    int device_count;
};

/* Return when the device first ran out of memory; without times, the number of the event. UINT64_MAX: never. */
static uint64_t find_oom(struct flw_pytorch_import *import, struct flw_pickle_value list)
{
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, list);
    struct flw_pickle_value dict;
    for (uint64_t number = 0; flw_harvest_next(import->kept, &cursor, &dict); number++) {
        struct flw_pickle_value action = flw_pytorch_get(import, dict, WORD_ACTION);
        if (action.kind == FLW_PICKLE_WORD && action.bits == WORD_OOM) {
            struct flw_pickle_value time = flw_pytorch_get(import, dict, WORD_TIME_US);
            return time.kind == FLW_PICKLE_UNSIGNED ? time.bits : number;
        }
    }
    return UINT64_MAX;
}

static bool take_census(struct flw_pytorch_import *import, struct census *census)
{
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, import->traces);
    struct flw_pickle_value item;
    int count = 0;
    if (!flw_pytorch_check_items(import, import->traces, "the trace of a device is no list") ||
        !flw_pytorch_check_items(import, import->segments,
                                 "an item of the segments is no segment")) {
        return false;
    }
    for (; flw_harvest_next(import->kept, &cursor, &item); count++) {
        if (count == FLW_PYTORCH_DEVICES) {
            return flw_pytorch_fail_at(import, import->traces, "more than 1024 devices");
        }
        if (item.kind != FLW_PICKLE_LIST) {
            return flw_pytorch_fail_at(import, item, "the trace of a device is no list");
        }
        census->events[count] = flw_harvest_count(import->kept, item);
    }
    cursor = flw_harvest_first(import->kept, import->segments);
    while (flw_harvest_next(import->kept, &cursor, &item)) {
        uint64_t device;
        if (!flw_pytorch_count_step(import) || !flw_pytorch_get_device(import, item, &device)) {
            return false;
        }
        census->segments[device]++;
        count = (int)device >= count ? (int)device + 1 : count;
    }
    census->device_count = count > 0 ? count : 1;
    return true;
}

/* Find each device's first out-of-memory event, unless only one device has events and is chosen anyway. */
static void find_ooms(struct flw_pytorch_import *import, struct census *census)
{
    struct flw_harvest_cursor cursor = flw_harvest_first(import->kept, import->traces);
    struct flw_pickle_value list;
    int active_count = 0;
    memset(census->oom_us, 0xFF, sizeof census->oom_us);
    for (int i = 0; i < census->device_count; i++) {
        active_count += census->events[i] > 0;
    }
    for (int i = 0; active_count > 1 && flw_harvest_next(import->kept, &cursor, &list); i++) {
        census->oom_us[i] = find_oom(import, list);
    }
}

static bool is_told_before(const struct census *census, int a, int b)
{
    if (census->oom_us[a] != census->oom_us[b]) {
        return census->oom_us[a] < census->oom_us[b];
    }
    return census->events[a] != census->events[b] ? census->events[a] > census->events[b]
                                                  : census->segments[a] > census->segments[b];
}

/* Choose the requested device, else the first to run out of memory, else the device with most events, then segments. */
static bool choose_device(struct flw_pytorch_import *import, int device)
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
    uint64_t all_count = 0;
    for (int i = 0; i < census.device_count; i++) {
        all_count += census.events[i] + census.segments[i];
    }
    import->is_empty = all_count == 0;
    if (device >= 0 && all_count != 0 && census.events[device] + census.segments[device] == 0) {
        return flw_input_fail(import->input, 0,
                              "nothing is on record of device %d: no segment and no event", device);
    }
    find_ooms(import, &census);
    for (int i = 1; i < census.device_count; i++) {
        best = is_told_before(&census, i, best) ? i : best;
    }
    import->device = device >= 0 ? device : best;
    for (int i = 0; i < census.device_count; i++) {
        import->is_recorded[i] = census.events[i] > 0 || census.segments[i] > 0;
    }
    return true;
}

/* ---- together ---- */

/* Check that the value is a list or absent. */
static bool check_list(struct flw_pytorch_import *import, struct flw_pickle_value part,
                       enum word word)
{
    return part.kind == FLW_PICKLE_LIST || part.kind == FLW_PICKLE_ABSENT ||
           flw_input_fail(import->input, flw_harvest_offset(import->kept, import->root),
                          "\"%s\" is no list", words[word]);
}

static bool find_parts(struct flw_pytorch_import *import)
{
    struct flw_pickle_value root = import->root;
    if (root.kind == FLW_PICKLE_LIST) {
        import->segments = root;
        return true;
    }
    import->segments = flw_pytorch_get(import, root, WORD_SEGMENTS);
    import->traces = flw_pytorch_get(import, root, WORD_DEVICE_TRACES);
    import->annotations = flw_pytorch_get(import, root, WORD_ANNOTATIONS);
    if (import->segments.kind != FLW_PICKLE_LIST && import->traces.kind != FLW_PICKLE_LIST) {
        return flw_pytorch_fail_at(import, root,
                                   "a pickle, but not a PyTorch memory snapshot: no \"segments\"");
    }
    return check_list(import, import->segments, WORD_SEGMENTS) &&
           check_list(import, import->traces, WORD_DEVICE_TRACES) &&
           check_list(import, import->annotations, WORD_ANNOTATIONS);
}

static bool is_true(struct flw_pickle_value value)
{
    return (value.kind == FLW_PICKLE_BOOL || value.kind == FLW_PICKLE_UNSIGNED) && value.bits != 0;
}

/* "allocator_settings VARIABLE SETTINGS": the variable that the allocator reads, and the value. */
static void read_settings(struct flw_pytorch_import *import)
{
    static const enum word variables[] = {WORD_CUDA_CONF, WORD_ANY_CONF, WORD_NPU_CONF};
    struct flw_pickle_value dict = flw_pytorch_get(import, import->root, WORD_ALLOCATOR_SETTINGS);
    bool is_expandable = is_true(flw_pytorch_get(import, dict, WORD_EXPANDABLE_SEGMENTS));
    import->has_overflowed = is_true(flw_pytorch_get(import, dict, WORD_OVERFLOWED));
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = text_of(import, flw_pytorch_get(import, dict, variables[i]));
        bool is_usual = i == 0 && !is_expandable; /* no line is needed */
        if (text == NULL || (text[0] == '\0' && is_usual)) {
            continue;
        }
        bool is_said = strstr(text, "expandable_segments") != NULL || !is_expandable;
        snprintf(import->settings, sizeof import->settings, "allocator_settings %s %s%s%s",
                 words[variables[i]], text, is_said || text[0] == '\0' ? "" : ",",
                 is_said ? "" : "expandable_segments:True");
        for (char *c = import->settings; *c != '\0'; c++) {
            *c = *c >= 0x20 && *c < 0x7F ? *c : '?';
        }
        return;
    }
}

static bool add_count(struct flw_notes *notes, const char *key, uint64_t count)
{
    char line[96];
    snprintf(line, sizeof(line), "%s %llu\n", key, (unsigned long long)count);
    return count == 0 || flw_notes_add_lines(notes, line);
}

/* Return the notes, or NULL if memory runs out. */
static char *make_notes(const struct flw_pytorch_import *import)
{
    struct flw_notes notes = {0};
    if (!flw_notes_add_lines(&notes, "origin pytorch snapshot\n") ||
        !flw_notes_add_devices(&notes, import->is_recorded, FLW_PYTORCH_DEVICES) ||
        !flw_notes_add_lines(&notes, import->settings) ||
        (import->has_overflowed && !flw_notes_add_lines(&notes, FLW_NOTES_OVERWRITTEN " yes\n")) ||
        !add_count(&notes, "annotations_before_the_events", import->phases.early_count) ||
        !add_count(&notes, "annotations_without_a_place", import->unplaced_count) ||
        !add_count(&notes, "blocks_of_the_end_given_twice", import->history.double_count) ||
        !add_count(&notes, "bytes_behind_the_pickle_not_read", import->rest_bytes)) {
        flw_notes_finish(&notes);
    }
    return flw_notes_take(&notes);
}

static bool import_snapshot(struct flw_pytorch_import *import, int device)
{
    if (!find_parts(import) || !choose_device(import, device) || !read_annotations(import) ||
        !read_events(import) || !flw_pytorch_read_segments(import) ||
        !(flw_poolids_settle(&import->history, flw_harvest_interned(import->kept),
                             import->has_pools) ||
          flw_pytorch_fail_memory(import))) {
        return false;
    }
    if (import->is_empty) {
        return flw_input_fail(import->input, 0,
                              "an empty snapshot: no device has a segment or an event; dump it in "
                              "the process that allocates, before it frees all");
    }
    read_settings(import);
    /* The history has all that is needed. */
    struct flw_stacks stacks = flw_harvest_take_stacks(import->kept);
    flw_harvest_destroy(import->kept);
    import->kept = NULL;
    struct flw_trace *trace = import->build.trace;
    trace->stacks = stacks;
    flw_stacks_settle(&trace->stacks);
    if (!flw_history_resolve(&import->history, &import->build)) {
        return flw_pytorch_fail_memory(import);
    }
    trace->device = import->device;
    trace->has_times = import->has_times;
    trace->begin_ns = import->first_time_us <= UINT64_MAX / 1000 ? import->first_time_us * 1000 : 0;
    trace->has_addresses = true;
    trace->has_segments = true;
    trace->notes = make_notes(import);
    if (trace->notes == NULL) {
        return flw_pytorch_fail_memory(import);
    }
    const char *wrong = flw_measure_trace(trace);
    return wrong == NULL || flw_input_fail(import->input, 0, "%s", wrong);
}

bool flw_pytorch_read(struct flw_input *input, int device, struct flw_trace **out_trace)
{
    static const struct flw_pickle_frame_words frame = {WORD_NAME, WORD_FILENAME, WORD_LINE};
    static const struct flw_pickle_vocabulary vocabulary = {words, WORD_READ_COUNT, &frame};
    struct flw_pytorch_import import = {.input = input};
    *out_trace = NULL;
    if (!flw_pickle_read(input, &vocabulary, &import.kept, &import.root, &import.rest_bytes)) {
        return false;
    }
    import.steps_left = flw_input_offset(input);
    bool is_read = flw_build_init(&import.build, input->name, "pytorch pickle")
                       ? import_snapshot(&import, device)
                       : flw_pytorch_fail_memory(&import);
    flw_build_end(&import.build, is_read, out_trace);
    flw_history_finish(&import.history);
    flw_phases_finish(&import.phases);
    flw_harvest_destroy(import.kept);
    return is_read;
}
