/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: printing a trace in its text form, which text.h specifies and text.c reads.
 */
#include <inttypes.h>

#include "trace/formats/formats.h"
#include "trace/formats/text.h"
#include "trace/io/output.h"

static void print_address(const struct flw_trace *trace, uint64_t address, FILE *file)
{
    if (trace->has_addresses) {
        fprintf(file, " @%" PRIu64, address);
    }
}

static void print_keyed(const char *key, uint32_t number, FILE *file)
{
    if (number != 0) {
        fprintf(file, " %s=%" PRIu32, key, number);
    }
}

/* ---- stacks ---- */

static void print_quoted(const char *text, FILE *file)
{
    putc('"', file);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            fprintf(file, "\\%c", c);
        } else if (c == '\n' || c == '\t') {
            fputs(c == '\n' ? "\\n" : "\\t", file);
        } else if (c < 0x20 || c == 0x7F) {
            fprintf(file, "\\x%02x", c);
        } else {
            putc(c, file);
        }
    }
    putc('"', file);
}

struct printer {
    const struct flw_trace *trace;
    FILE *file;
    struct flw_trace_walk walk;
    struct flw_stack_order order;
    uint32_t stack; /* number of the next record's stack */
};

static bool print_frame(void *context, const struct flw_frame *frame)
{
    struct printer *p = context;
    fprintf(p->file, "L %" PRIu32 " ", frame->line);
    print_quoted(flw_stacks_text(&p->trace->stacks, frame->function), p->file);
    putc(' ', p->file);
    print_quoted(flw_stacks_text(&p->trace->stacks, frame->file), p->file);
    putc('\n', p->file);
    return true;
}

static bool print_stack(void *context, const uint32_t *frames, size_t count)
{
    struct printer *p = context;
    putc('W', p->file);
    for (size_t i = 0; i < count; i++) {
        fprintf(p->file, " %" PRIu32, frames[i]);
    }
    putc('\n', p->file);
    return true;
}

/* Print the stack of the next segment or record if it is new. */
static void meet_stack(struct printer *p, uint32_t stack)
{
    flw_stack_order_take(&p->order, stack, &p->stack);
}

/* ---- printing ---- */

/* Print the context of the present record; only a name may follow. */
static void print_context(struct printer *p, size_t record)
{
    const struct flw_trace_context *context = flw_trace_walk_context(p->trace, &p->walk, record);
    print_keyed("thread", context->thread, p->file);
    print_keyed("tag", context->tag, p->file);
    print_keyed("pool", context->pool, p->file);
    print_keyed("stack", p->stack, p->file);
}

static void print_header(const struct flw_trace *trace, FILE *file)
{
    fprintf(file, FLW_TEXT_MAGIC "1\ndevice %d\n", trace->device);
    for (size_t i = 0; i < trace->stream_count; i++) {
        fprintf(file, "stream %" PRIu64 "\n", trace->streams[i]);
    }
    bool has_any = trace->has_times || trace->has_addresses || trace->has_segments;
    fprintf(file, "fields%s%s%s%s\n", trace->has_times ? " times" : "",
            trace->has_addresses ? " addresses" : "", trace->has_segments ? " segments" : "",
            has_any ? "" : " none");
    if (trace->unknown_free_count > 0 || trace->lost_free_count > 0) {
        fprintf(file, "gaps %" PRIu64 " %" PRIu64 "\n", trace->unknown_free_count,
                trace->lost_free_count);
    }
    if (trace->has_times && trace->begin_ns != 0) {
        fprintf(file, "begin_ns %" PRIu64 "\n", trace->begin_ns);
    }
    if (trace->notes != NULL) {
        fputs(trace->notes, file);
    }
}

static void print_initial(struct printer *p)
{
    const struct flw_trace *trace = p->trace;
    FILE *file = p->file;
    for (size_t i = 0; i < trace->segment_count; i++) {
        const struct flw_trace_segment *segment = &trace->segments[i];
        meet_stack(p, segment->stack);
        fprintf(file, "S 0 %" PRIu64 " %u %s%s", segment->size_bytes, segment->stream,
                segment->is_large ? "large" : "small", segment->is_expandable ? " expandable" : "");
        print_address(trace, segment->address, file);
        print_keyed("pool", segment->pool, file);
        print_keyed("stack", p->stack, file);
        putc('\n', file);
    }
    for (size_t i = 0; i < trace->initial_count; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        meet_stack(p, flw_trace_stack(trace, i));
        fprintf(file, "P 0 %zu %" PRIu64 " %u", i, block->size_bytes, block->stream);
        print_address(trace, block->address, file);
        print_context(p, i);
        putc('\n', file);
    }
}

/* Print the columns after the time of an event that neither allocates nor frees. */
static void print_rare(const struct flw_trace_event *event, const struct flw_trace_detail *detail,
                       FILE *file)
{
    static const char *const waits[] = {[FLW_TRACE_SYNC_STREAM] = "stream",
                                        [FLW_TRACE_SYNC_EVENT] = "event",
                                        [FLW_TRACE_SYNC_WAIT] = "wait"};
    switch (event->op) {
    case FLW_TRACE_OOM:
        fprintf(file, " %" PRIu64 " %u", event->size_bytes, event->stream);
        if (detail != NULL && detail->free_bytes != FLW_TRACE_UNKNOWN) {
            fprintf(file, " free=%" PRIu64, detail->free_bytes);
        }
        if (detail != NULL && detail->largest_bytes != FLW_TRACE_UNKNOWN) {
            fprintf(file, " largest=%" PRIu64, detail->largest_bytes);
        }
        break;
    case FLW_TRACE_SYNC_DEVICE:
        fputs(" device", file);
        break;
    case FLW_TRACE_SYNC_STREAM:
    case FLW_TRACE_SYNC_EVENT:
    case FLW_TRACE_SYNC_WAIT:
        fprintf(file, " %s %u", waits[event->op], event->stream);
        if (event->op == FLW_TRACE_SYNC_WAIT) {
            fprintf(file, " %u", detail->other_stream);
        }
        break;
    case FLW_TRACE_POOL_BEGIN:
    case FLW_TRACE_POOL_END:
        fprintf(file, " %u", event->stream);
        break;
    case FLW_TRACE_DROP:
        fprintf(file, " %" PRIu64, detail->lost_count);
        break;
    default:
        break;
    }
}

static void print_event(const struct flw_trace *trace, const struct flw_trace_event *event,
                        const struct flw_trace_detail *detail, FILE *file)
{
    static const char *const records[] = {[FLW_TRACE_ALLOC] = "A",
                                          [FLW_TRACE_FREE] = "F",
                                          [FLW_TRACE_FREE_DONE] = "C",
                                          [FLW_TRACE_SEGMENT_ALLOC] = "S+",
                                          [FLW_TRACE_SEGMENT_FREE] = "S-",
                                          [FLW_TRACE_SEGMENT_MAP] = "M+",
                                          [FLW_TRACE_SEGMENT_UNMAP] = "M-",
                                          [FLW_TRACE_USE] = "U",
                                          [FLW_TRACE_OOM] = "O",
                                          [FLW_TRACE_MARK] = "N",
                                          [FLW_TRACE_PHASE_BEGIN] = "B",
                                          [FLW_TRACE_PHASE_END] = "E",
                                          [FLW_TRACE_SYNC_DEVICE] = "Y",
                                          [FLW_TRACE_SYNC_STREAM] = "Y",
                                          [FLW_TRACE_SYNC_EVENT] = "Y",
                                          [FLW_TRACE_SYNC_WAIT] = "Y",
                                          [FLW_TRACE_POOL_BEGIN] = "G+",
                                          [FLW_TRACE_POOL_END] = "G-",
                                          [FLW_TRACE_EMPTY_CACHE] = "X",
                                          [FLW_TRACE_CONFIG] = "K",
                                          [FLW_TRACE_DROP] = "D"};
    _Static_assert(sizeof(records) / sizeof(records[0]) == FLW_TRACE_OP_COUNT, "a record each");
    fprintf(file, "%s %" PRIu64, records[event->op], event->time_ns);
    switch (event->op) {
    case FLW_TRACE_ALLOC:
        fprintf(file, " %u %" PRIu64 " %u", event->block, event->size_bytes, event->stream);
        print_address(trace, event->address, file);
        break;
    case FLW_TRACE_FREE:
    case FLW_TRACE_FREE_DONE:
    case FLW_TRACE_USE:
        fprintf(file, " %u %u", event->block, event->stream);
        break;
    case FLW_TRACE_SEGMENT_ALLOC:
    case FLW_TRACE_SEGMENT_FREE:
    case FLW_TRACE_SEGMENT_MAP:
    case FLW_TRACE_SEGMENT_UNMAP:
        fprintf(file, " %" PRIu64 " %u", event->size_bytes, event->stream);
        print_address(trace, event->address, file);
        break;
    default:
        print_rare(event, detail, file);
        break;
    }
}

static void print_said(struct printer *p, uint32_t text)
{
    putc(' ', p->file);
    if (text == 0) {
        putc('-', p->file);
    } else {
        print_quoted(flw_stacks_text(&p->trace->stacks, text - 1), p->file);
    }
}

static void print_remark(struct printer *p, size_t record)
{
    const struct flw_trace_remark *remark = flw_trace_walk_remark(p->trace, &p->walk, record);
    if (remark->record == record && p->walk.next_remark > 0) {
        putc('V', p->file);
        print_said(p, remark->compile_context);
        print_said(p, remark->user_metadata);
        putc('\n', p->file);
    }
}

static void print_events(struct printer *p)
{
    const struct flw_trace *trace = p->trace;
    for (size_t i = 0; i < trace->event_count; i++) {
        size_t record = trace->initial_count + i;
        const struct flw_trace_detail *detail = flw_trace_walk_detail(trace, &p->walk, i);
        const char *name = flw_trace_name(trace, detail);
        print_remark(p, record);
        meet_stack(p, flw_trace_stack(trace, record));
        print_event(trace, &trace->events[i], detail, p->file);
        print_context(p, record);
        if (name != NULL) {
            fprintf(p->file, " \"%s\"", name);
        }
        putc('\n', p->file);
    }
}

bool flw_text_print(const struct flw_trace *trace, FILE *file)
{
    struct printer p = {.trace = trace,
                        .file = file,
                        .order = {.stacks = &trace->stacks,
                                  .put_frame = print_frame,
                                  .put_stack = print_stack,
                                  .context = &p}};
    bool has_memory = flw_stack_order_begin(&p.order);
    if (has_memory) {
        print_header(trace, file);
        print_initial(&p);
        print_events(&p);
    }
    flw_stack_order_finish(&p.order);
    return has_memory;
}

bool flw_trace_write_text(const struct flw_trace *trace, const char *path, char *message)
{
    struct flw_output output;
    if (!flw_output_begin(&output, path, message)) {
        return false;
    }
    if (!flw_text_print(trace, output.file)) {
        flw_output_abandon(&output);
        flw_input_message(message, path, "no memory to write it");
        return false;
    }
    return flw_output_commit(&output, message);
}
