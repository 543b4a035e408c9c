/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: writing a trace as Chrome's JSON, for Perfetto and chrome://tracing. Readers of PyTorch profiles, such as ours,
 * read the [memory] events.
 * Does not: write the streams of blocks, or single blocks of the start: the first totals include them.
 *
 *   counters   "requested": allocated and not freed by the user; "allocated": plus freed blocks
 *              that are still in use; "reserved": segments, if the trace has them
 *   instants   "[memory]" at every allocation and free; segments, out of memory, marks, waits of the
 *              host, captures, settings, missing events
 *   phases     as durations, in several rows ("tid"), because phases may overlap and a thread's durations must not; an
 *              end without a begin is left out
 * Bytes are requested bytes, without an allocator's rounding. The call stack of a [memory] event is a text in the form
 * of kineto.h, with commas instead of semicolons in names.
 */
#include "trace/formats/chrome.h"

#include "trace/formats/formats.h"
#include "trace/trace/trace.h"

void flw_chrome_print_name(struct flw_json_writer *out, const char *what, uint64_t process,
                           uint64_t row, const char *name)
{
    out->line = "";
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "ph", "M");
    flw_json_text(out, "name", what);
    FLW_JSON_NUMBERS(out, {"pid", process}, {"tid", row});
    flw_json_begin(out, "args", '{');
    flw_json_text(out, "name", name);
    flw_json_end(out, '}');
    flw_json_end(out, '}');
}

void flw_chrome_print_names(struct flw_chrome *chrome, const char *process, const char *row_0)
{
    flw_chrome_print_name(&chrome->out, "process_name", 0, 0, process);
    for (uint32_t row = 0; row == 0 || row < chrome->phases.row_count; row++) {
        flw_chrome_print_name(&chrome->out, "thread_name", 0, row,
                              row == 0 ? row_0 : "phases that overlap");
    }
}

struct flw_json_writer *flw_chrome_begin_event(struct flw_chrome *chrome, const char *phase,
                                               const char *name, uint64_t id, uint64_t row,
                                               uint64_t time_ns)
{
    struct flw_json_writer *out = &chrome->out;
    out->line = "";
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "ph", phase);
    if (chrome->category != NULL || *phase == 'i') {
        flw_json_text(out, chrome->category != NULL ? "cat" : "s",
                      chrome->category != NULL ? chrome->category : "t");
    }
    flw_json_text(out, "name", name);
    FLW_JSON_NUMBERS(out, {"pid", id != FLW_CHROME_NO_ID}, {"tid", row});
    if (id != FLW_CHROME_NO_ID) {
        flw_json_begin(out, "id2", '{');
        flw_json_key(out, "local");
        fprintf(out->file, "\"0x%" PRIx64 "\"", id);
        flw_json_end(out, '}');
    }
    flw_json_key(out, "ts");
    fprintf(out->file, "%" PRIu64 ".%03" PRIu64, time_ns / 1000, time_ns % 1000);
    flw_json_begin(out, "args", '{');
    return out;
}

void flw_chrome_end_event(struct flw_chrome *chrome)
{
    flw_json_end(&chrome->out, '}');
    flw_json_end(&chrome->out, '}');
}

void flw_chrome_print_phase(struct flw_chrome *chrome, const struct flw_trace_event *event,
                            const struct flw_trace_detail *detail, uint64_t time_ns)
{
    uint32_t row = chrome->phases.at[chrome->phases.next++].row;
    if (row != FLW_PHASES_NO_ROW) {
        flw_chrome_begin_event(chrome, event->op == FLW_TRACE_PHASE_BEGIN ? "B" : "E",
                               flw_trace_name(chrome->trace, detail), FLW_CHROME_NO_ID, row,
                               time_ns);
        flw_chrome_end_event(chrome);
    }
}

enum total {
    REQUESTED, /* until the user's free */
    ALLOCATED, /* until the block may be reused */
    RESERVED,
    TOTAL_COUNT
};

struct writer {
    struct flw_chrome chrome;
    uint64_t totals[TOTAL_COUNT];
    bool has_done; /* the trace has FREE_DONE events */
};

static struct flw_json_writer *begin_event(struct writer *w, const char *phase, const char *name,
                                           uint64_t time_ns)
{
    return flw_chrome_begin_event(&w->chrome, phase, name, FLW_CHROME_NO_ID, 0, time_ns);
}

/* The name of each op's instant, and its effect on each total. */
static const struct kind {
    const char *name;
    signed char signs[TOTAL_COUNT];
} kinds[] = {
    [FLW_TRACE_ALLOC] = {"[memory]", {1, 1, 0}},
    [FLW_TRACE_FREE] = {"[memory]", {-1, 0, 0}},
    [FLW_TRACE_FREE_DONE] = {NULL, {0, -1, 0}},
    [FLW_TRACE_SEGMENT_ALLOC] = {"segment_alloc", {0, 0, 1}},
    [FLW_TRACE_SEGMENT_FREE] = {"segment_free", {0, 0, -1}},
    [FLW_TRACE_SEGMENT_MAP] = {"segment_map", {0, 0, 1}},
    [FLW_TRACE_SEGMENT_UNMAP] = {"segment_unmap", {0, 0, -1}},
    [FLW_TRACE_USE] = {"stream_use", {0}},
    [FLW_TRACE_OOM] = {"oom", {0}},
    [FLW_TRACE_MARK] = {"mark", {0}},
    [FLW_TRACE_PHASE_BEGIN] = {NULL, {0}},
    [FLW_TRACE_PHASE_END] = {NULL, {0}},
    [FLW_TRACE_SYNC_DEVICE] = {"sync_device", {0}},
    [FLW_TRACE_SYNC_STREAM] = {"sync_stream", {0}},
    [FLW_TRACE_SYNC_EVENT] = {"sync_event", {0}},
    [FLW_TRACE_SYNC_WAIT] = {"stream_wait", {0}},
    [FLW_TRACE_POOL_BEGIN] = {"pool_begin", {0}},
    [FLW_TRACE_POOL_END] = {"pool_end", {0}},
    [FLW_TRACE_EMPTY_CACHE] = {"empty_cache", {0}},
    [FLW_TRACE_CONFIG] = {"config", {0}},
    [FLW_TRACE_DROP] = {"missing_events", {0}},
};
_Static_assert(sizeof(kinds) / sizeof(kinds[0]) == FLW_TRACE_OP_COUNT, "a kind each");

/* ---- instants ---- */

static void print_name(FILE *file, const char *name)
{
    size_t bytes = strcspn(name, ";");
    flw_json_print_utf8(file, name, bytes);
    while (name[bytes] == ';') {
        name += bytes + 1;
        bytes = strcspn(name, ";");
        putc(',', file);
        flw_json_print_utf8(file, name, bytes);
    }
}

static void print_stack(struct writer *w, uint32_t stack)
{
    const struct flw_stacks *stacks = &w->chrome.trace->stacks;
    struct flw_stack_walk walk = flw_stacks_walk(stacks, stack);
    FILE *file = w->chrome.out.file;
    uint32_t number;
    flw_json_key(&w->chrome.out, "Call stack");
    for (char before = '"'; flw_stacks_next(&walk, &number); before = ';') {
        const struct flw_frame *frame = flw_stacks_frame(stacks, number);
        const char *source = flw_stacks_text(stacks, frame->file);
        putc(before, file);
        if (*source != '\0') {
            print_name(file, source);
            fprintf(file, "(%" PRIu32 "): ", frame->line);
        }
        print_name(file, flw_stacks_text(stacks, frame->function));
    }
    putc('"', file);
}

static void put_memory(struct writer *w, const struct flw_trace_event *event)
{
    const struct flw_trace *trace = w->chrome.trace;
    uint32_t stack = flw_trace_stack(trace, trace->initial_count + (size_t)(event - trace->events));
    struct flw_json_writer *out = &w->chrome.out;
    bool has_address = trace->has_addresses && event->address != 0;
    FLW_JSON_NUMBERS(out, {"Device Type", 1}, {"Device Id", (uint64_t)trace->device},
                     {"Addr", has_address ? event->address : (uint64_t)event->block + 1});
    flw_json_key(out, "Bytes");
    fprintf(out->file, "%s%" PRIu64, event->op == FLW_TRACE_FREE ? "-" : "", event->size_bytes);
    flw_json_number(out, "Total Allocated", w->totals[REQUESTED]);
    if (trace->has_segments) {
        flw_json_number(out, "Total Reserved", w->totals[RESERVED]);
    }
    if (stack != 0) {
        print_stack(w, stack);
    }
}

static void put_known(struct flw_json_writer *out, const char *key, uint64_t bytes)
{
    if (bytes != FLW_TRACE_UNKNOWN) {
        flw_json_number(out, key, bytes);
    }
}

/* Put the bytes and the stream; an out-of-memory has the free bytes unless unknown. */
static void put_place(struct writer *w, const struct flw_trace_event *event,
                      const struct flw_trace_detail *detail)
{
    struct flw_json_writer *out = &w->chrome.out;
    FLW_JSON_NUMBERS(out, {"bytes", event->size_bytes},
                     {"stream", w->chrome.trace->streams[event->stream]});
    if (event->address != 0) {
        char address[19];
        snprintf(address, sizeof address, "0x%" PRIx64, event->address);
        flw_json_text(out, "address", address);
    }
    if (event->op == FLW_TRACE_OOM && detail != NULL) {
        put_known(out, "device_free", detail->free_bytes);
        put_known(out, "largest_free", detail->largest_bytes);
    }
}

static void print_instant(struct writer *w, const struct flw_trace_event *event,
                          const struct flw_trace_detail *detail)
{
    struct flw_json_writer *out = begin_event(w, "i", kinds[event->op].name, event->time_ns);
    if (event->op == FLW_TRACE_ALLOC || event->op == FLW_TRACE_FREE) {
        put_memory(w, event);
    } else if (flw_trace_op_has_stream(event->op)) {
        put_place(w, event, detail);
    } else if (event->op == FLW_TRACE_DROP) {
        flw_json_number(out, "events", detail->lost_count);
    } else if (flw_trace_name(w->chrome.trace, detail) != NULL) {
        flw_json_text(out, "name", flw_trace_name(w->chrome.trace, detail));
    }
    flw_chrome_end_event(&w->chrome);
}

/* ---- events ---- */

static void print_counter(struct writer *w, const char *name, uint64_t time_ns, uint64_t bytes)
{
    flw_json_number(begin_event(w, "C", name, time_ns), "bytes", bytes);
    flw_chrome_end_event(&w->chrome);
}

static void print_live(struct writer *w, uint64_t time_ns)
{
    print_counter(w, "requested", time_ns, w->totals[REQUESTED]);
    print_counter(w, "allocated", time_ns, w->totals[w->has_done ? ALLOCATED : REQUESTED]);
}

static void print_reserved(struct writer *w, uint64_t time_ns)
{
    if (w->chrome.trace->has_segments) {
        print_counter(w, "reserved", time_ns, w->totals[RESERVED]);
    }
}

static void print_event(struct writer *w, const struct flw_trace_event *event,
                        const struct flw_trace_detail *detail)
{
    const struct kind *kind = &kinds[event->op];
    if (kind->signs[RESERVED] < 0 && event->size_bytes > w->totals[RESERVED]) {
        /* A recording without the beginning may release more than was taken. */
        w->totals[RESERVED] = event->size_bytes;
    }
    for (int i = 0; i < TOTAL_COUNT; i++) {
        w->totals[i] += (uint64_t)kind->signs[i] * event->size_bytes;
    }
    if (event->op == FLW_TRACE_PHASE_BEGIN || event->op == FLW_TRACE_PHASE_END) {
        flw_chrome_print_phase(&w->chrome, event, detail, event->time_ns);
    } else if (kind->name != NULL) {
        print_instant(w, event, detail);
    }
    if (event->op <= FLW_TRACE_FREE_DONE) {
        print_live(w, event->time_ns);
    } else if (kind->signs[RESERVED] != 0) {
        print_reserved(w, event->time_ns);
    }
}

static void begin_totals(struct writer *w)
{
    const struct flw_trace *trace = w->chrome.trace;
    for (size_t i = 0; i < trace->initial_count; i++) {
        w->totals[REQUESTED] += trace->blocks[i].size_bytes;
    }
    w->totals[ALLOCATED] = w->totals[REQUESTED];
    w->totals[RESERVED] = trace->recorded_initial_reserved_bytes;
    for (size_t i = 0; i < trace->event_count; i++) {
        w->has_done |= trace->events[i].op == FLW_TRACE_FREE_DONE;
    }
}

const char *flw_chrome_print(const struct flw_trace *trace, FILE *file)
{
    struct writer w = {.chrome = {.trace = trace, .out = {.file = file, .is_utf8 = true}}};
    struct flw_json_writer *out = &w.chrome.out;
    struct flw_trace_walk walk = {0};
    if (!flw_phases_find_rows(trace, &w.chrome.phases)) {
        return FLW_TRACE_NO_MEMORY;
    }
    begin_totals(&w);
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "displayTimeUnit", "ms");
    flw_json_begin(out, "otherData", '{');
    flw_json_text(out, "source", trace->source);
    flw_json_text(out, "format", trace->format);
    flw_json_number(out, "device", (uint64_t)trace->device);
    flw_json_end(out, '}');
    flw_json_begin(out, "traceEvents", '[');
    flw_chrome_print_names(&w.chrome, trace->source, "events and phases");
    print_live(&w, 0);
    print_reserved(&w, 0);
    for (size_t i = 0; i < trace->event_count; i++) {
        print_event(&w, &trace->events[i], flw_trace_walk_detail(trace, &walk, i));
    }
    fputs("\n]}\n", file);
    flw_phases_finish(&w.chrome.phases);
    return NULL;
}
