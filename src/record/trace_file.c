/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: converting records of rings to records of the file; the call stacks that hold live blocks. */
#include "record/trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record/array.h"

#define BUFFER_BYTES (128u << 10)
#define STEP_NS \
    16 /* of times: about the cost of reading the clock; the rest is noise, half a byte */

/* A live block with a stack. */
struct holding {
    uint64_t bytes;
    uint32_t stack, next_free; /* next_free of a free one: the next free one; 0: none */
};

struct flw_trace_file {
    struct flw_trace_file_settings settings;
    struct flw_ftrace_writer *writer;
    struct flw_addressmap live; /* address -> number of the block */
    struct flw_callstack_file stacks;
    struct flw_addressmap holding_places; /* address -> holding; number 0 is none */
    struct holding *holdings;
    struct flw_trace_file_holder *holders; /* by stack */
    size_t holding_count, holding_room, holder_room;
    uint32_t free_holding;
    size_t stream_count, name_count;
    uint64_t block_count, unknown_frees, lost_frees, last_ns;
    struct flw_trace_file_tally tally;
    int error;           /* of the file */
    const char *problem; /* NULL: none */
    size_t used;
    unsigned char buffer[BUFFER_BYTES];
};

/* ---- the file */

static bool write_out(struct flw_trace_file *trace_file)
{
    const unsigned char *at = trace_file->buffer;
    while (trace_file->used > 0 && trace_file->error == 0) {
        ssize_t written = write(trace_file->settings.fd, at, trace_file->used);
        if (written < 0 && errno != EINTR) {
            trace_file->error = errno;
        } else if (written > 0) {
            at += written;
            trace_file->used -= (size_t)written;
        }
    }
    return trace_file->error == 0;
}

static bool keep_bytes(void *context, const void *bytes, size_t count)
{
    struct flw_trace_file *trace_file = context;
    const unsigned char *at = bytes;
    while (count > 0) {
        size_t step = flw_min(count, BUFFER_BYTES - trace_file->used);
        memcpy(trace_file->buffer + trace_file->used, at, step);
        trace_file->used += step;
        at += step;
        count -= step;
        if (trace_file->used == BUFFER_BYTES && !write_out(trace_file)) {
            return false;
        }
    }
    return true;
}

static bool write_kept(void *context)
{
    return write_out(context);
}

/* Record why the writer, or something else, failed. */
static bool fail(struct flw_trace_file *trace_file)
{
    if (trace_file->problem == NULL) {
        trace_file->problem =
            trace_file->error != 0 ? strerror(trace_file->error) : "no host memory";
    }
    return false;
}

/* ---- call stacks that the file has */

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0;
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    return hash;
}

static bool write_text(struct flw_callstack_file *file, struct flw_ftrace_writer *writer,
                       const char *text, uint32_t *out)
{
    uint64_t hash = hash_text(text);
    while ((*out = flw_addressmap_find(&file->texts, hash)) != FLW_ADDRESSMAP_ABSENT) {
        if (strcmp(file->text_list[*out], text) == 0) {
            return true;
        }
        hash++; /* two texts with one hash */
    }
    *out = (uint32_t)file->text_count;
    if (!FLW_ARRAY_FITS(file->text_list, file->text_count, file->text_room) ||
        !flw_addressmap_put(&file->texts, hash, *out)) {
        return false;
    }
    file->text_list[file->text_count++] = text; /* of a frame, which stays */
    return flw_ftrace_writer_add_text(writer, text);
}

/* Grow the array with the pointer at `place` to have that element, with zeros in new ones. False:
 * no memory. */
static bool reach(void *place, size_t *room, uint32_t number, size_t size)
{
    char *array;
    while (*room <= number) {
        size_t before = *room;
        if (!flw_array_fit(place, before, room, size)) {
            return false;
        }
        memcpy(&array, place, sizeof array);
        memset(array + before * size, 0, (*room - before) * size);
    }
    return true;
}

/* Return the place of a number, with 0 if new. NULL: no memory. */
static uint32_t *place_of(uint32_t **list, size_t *room, uint32_t number)
{
    return reach(list, room, number, sizeof **list) ? *list + number : NULL;
}

static bool write_frame(struct flw_callstacks *all, uint32_t number,
                        struct flw_callstack_file *file, struct flw_ftrace_writer *writer,
                        uint32_t *out)
{
    uint32_t function, path;
    uint32_t *place = place_of(&file->frames, &file->frame_room, number);
    if (place == NULL) {
        return false;
    }
    if (*place == 0) {
        struct flw_callframe frame = flw_callstacks_frame(all, number);
        if (!write_text(file, writer, frame.function, &function) ||
            !write_text(file, writer, frame.file, &path) ||
            !flw_ftrace_writer_add_frame(writer, function, path, frame.line)) {
            return false;
        }
        *place = ++file->frame_count;
    }
    *out = *place - 1;
    return true;
}

bool flw_callstacks_write(struct flw_callstacks *all, uint32_t number,
                          struct flw_ftrace_writer *writer, struct flw_callstack_file *file,
                          uint32_t *out)
{
    uint32_t frames[FLW_CALLSTACK_DEPTH_MOST * 2];
    uint32_t *place = place_of(&file->stacks, &file->stack_room, number);
    *out = 0;
    if (place == NULL) {
        return false;
    }
    struct flw_callstack stack = flw_callstacks_get(all, number);
    if (*place == 0 && stack.frame_count > 0) {
        for (size_t i = 0; i < stack.frame_count; i++) {
            if (!write_frame(all, stack.frames[i], file, writer, &frames[i])) {
                return false;
            }
        }
        if (!flw_ftrace_writer_add_stack(writer, frames, stack.frame_count)) {
            return false;
        }
        *place = ++file->stack_count;
    }
    *out = *place;
    return true;
}

void flw_callstack_file_finish(struct flw_callstack_file *file)
{
    flw_addressmap_finish(&file->texts);
    free((void *)file->text_list);
    free(file->frames);
    free(file->stacks);
}

/* ---- open */

static bool add_notes(struct flw_trace_file *trace_file)
{
    char notes[128];
    const struct flw_trace_file_settings *settings = &trace_file->settings;
    snprintf(notes, sizeof notes, "recorder fallow\nclock %s\nbegins %s\n",
             settings->uses_tsc ? "tsc" : "monotonic",
             settings->is_whole ? "with the recording" : "with the records kept in the rings");
    return flw_ftrace_writer_add_notes(trace_file->writer, notes);
}

struct flw_trace_file *flw_trace_file_open(const struct flw_trace_file_settings *settings)
{
    struct flw_trace_file *trace_file = calloc(1, sizeof *trace_file);
    struct flw_ftrace_settings file = {.has_times = true,
                                       .has_addresses = true,
                                       .has_stacks = settings->callstacks != NULL,
                                       .codec = FLW_RECORD_PACKED,
                                       .device = settings->device,
                                       .process = (uint32_t)getpid(),
                                       .wall_ns = settings->wall_ns,
                                       .mono_ns = settings->zero.ns,
                                       .step_ns = STEP_NS};
    if (trace_file == NULL) {
        (void)close(settings->fd);
        return NULL;
    }
    struct flw_ftrace_sink sink = {.write = keep_bytes, .flush = write_kept, .context = trace_file};
    trace_file->settings = *settings;
    trace_file->writer = flw_ftrace_writer_create(&sink, &file);
    if (trace_file->writer == NULL || !add_notes(trace_file)) {
        (void)flw_trace_file_close(trace_file);
        return NULL;
    }
    return trace_file;
}

bool flw_trace_file_close(struct flw_trace_file *trace_file)
{
    bool is_written = true;
    if (trace_file != NULL) {
        is_written = close(trace_file->settings.fd) == 0 && trace_file->error == 0;
        flw_ftrace_writer_destroy(trace_file->writer);
        flw_addressmap_finish(&trace_file->live);
        flw_callstack_file_finish(&trace_file->stacks);
        flw_addressmap_finish(&trace_file->holding_places);
        free(trace_file->holdings);
        free(trace_file->holders);
        free(trace_file);
    }
    return is_written;
}

void flw_trace_file_disown(struct flw_trace_file *trace_file)
{
    (void)close(trace_file->settings.fd);
}

const char *flw_trace_file_problem(const struct flw_trace_file *trace_file)
{
    return trace_file->problem;
}

struct flw_trace_file_tally flw_trace_file_count(const struct flw_trace_file *trace_file)
{
    return trace_file->tally;
}

/* ---- holders of live blocks */

/* Return a free holding's number. 0: no memory. */
static uint32_t take_holding(struct flw_trace_file *trace_file)
{
    uint32_t number = trace_file->free_holding;
    if (number != 0) {
        trace_file->free_holding = trace_file->holdings[number].next_free;
        return number;
    }
    number = (uint32_t)trace_file->holding_count + 1;
    if (number >= FLW_ADDRESSMAP_ABSENT ||
        !FLW_ARRAY_FITS(trace_file->holdings, number, trace_file->holding_room)) {
        return 0;
    }
    trace_file->holding_count++;
    return number;
}

static bool begin_holding(struct flw_trace_file *trace_file, const struct flw_merge_record *record)
{
    if (record->stack == 0 || trace_file->settings.callstacks == NULL) {
        return true;
    }
    bool has_holder = reach(&trace_file->holders, &trace_file->holder_room, record->stack,
                            sizeof *trace_file->holders);
    uint32_t number = has_holder ? take_holding(trace_file) : 0;
    if (number == 0 || !flw_addressmap_put(&trace_file->holding_places, record->address, number)) {
        return false;
    }
    trace_file->holdings[number] =
        (struct holding){.bytes = record->size_bytes, .stack = record->stack};
    struct flw_trace_file_holder *holder = &trace_file->holders[record->stack];
    holder->stack = record->stack;
    holder->bytes += record->size_bytes;
    holder->count++;
    return true;
}

static void end_holding(struct flw_trace_file *trace_file, uint64_t address)
{
    uint32_t number = flw_addressmap_remove(&trace_file->holding_places, address);
    if (number != FLW_ADDRESSMAP_ABSENT) {
        struct holding *holding = &trace_file->holdings[number];
        trace_file->holders[holding->stack].bytes -= holding->bytes;
        trace_file->holders[holding->stack].count--;
        holding->next_free = trace_file->free_holding;
        trace_file->free_holding = number;
    }
}

/* Insert one in order; return the one pushed out at the end, or itself. */
static struct flw_trace_file_holder insert_holder(struct flw_trace_file_holder *out, size_t *count,
                                                  size_t most, struct flw_trace_file_holder holder)
{
    struct flw_trace_file_holder pushed = {0};
    size_t at = *count;
    while (at > 0 && out[at - 1].bytes < holder.bytes) {
        at--;
    }
    if (*count == most) {
        if (at == most) {
            return holder;
        }
        pushed = out[--*count];
    }
    memmove(&out[at + 1], &out[at], (*count - at) * sizeof *out);
    out[at] = holder;
    ++*count;
    return pushed;
}

size_t flw_trace_file_list_holders(const struct flw_trace_file *trace_file,
                                   struct flw_trace_file_holder *out, size_t most,
                                   struct flw_trace_file_holder *out_rest)
{
    size_t count = 0;
    *out_rest = (struct flw_trace_file_holder){0};
    for (size_t i = 0; i < trace_file->holder_room; i++) {
        if (trace_file->holders[i].count > 0) {
            struct flw_trace_file_holder left =
                insert_holder(out, &count, most, trace_file->holders[i]);
            out_rest->stack += left.count > 0;
            out_rest->bytes += left.bytes;
            out_rest->count += left.count;
        }
    }
    return count;
}

/* ---- records */

static void count(struct flw_trace_file *trace_file, const struct flw_merge_record *record)
{
    bool is_drop = record->op == FLW_TRACE_DROP;
    trace_file->tally.event_count += is_drop ? record->size_bytes : 1;
    trace_file->tally.missing_count += is_drop ? record->size_bytes : 0;
}

/* *out_old: the file's block there before; FLW_ADDRESSMAP_ABSENT: none. */
static bool remember_block(struct flw_trace_file *trace_file, uint64_t address, uint32_t *out_old)
{
    if (trace_file->block_count >= FLW_ADDRESSMAP_ABSENT) {
        trace_file->problem = "more than 2^32 blocks";
        return false;
    }
    return flw_addressmap_exchange(&trace_file->live, address, (uint32_t)trace_file->block_count++,
                                   out_old);
}

bool flw_trace_file_start(struct flw_trace_file *trace_file,
                          const struct flw_initial_blocks *initial)
{
    bool is_written =
        !initial->has_failed && flw_names_write(trace_file->settings.names, trace_file->writer,
                                                &trace_file->stream_count, &trace_file->name_count);
    uint32_t old;
    for (size_t i = 0; is_written && i < initial->count; i++) {
        const struct flw_initial_block *from = &initial->blocks[i];
        struct flw_record block = {.op = FLW_RECORD_BLOCK,
                                   .address = from->address,
                                   .size_bytes = from->size_bytes,
                                   .stream = from->stream,
                                   .tag = from->tag,
                                   .pool = from->pool,
                                   FLW_RECORD_UNSET};
        is_written = remember_block(trace_file, from->address, &old) &&
                     flw_ftrace_writer_add(trace_file->writer, block);
    }
    return is_written || fail(trace_file);
}

/* Set the details of an event without a block. */
static void set_detail(const struct flw_merge_record *record, struct flw_record *event)
{
    event->address = 0;
    switch (record->op) {
    case FLW_TRACE_OOM:
        event->free_bytes = record->address;
        event->largest_bytes = record->tag == UINT32_MAX
                                   ? FLW_TRACE_UNKNOWN
                                   : (uint64_t)record->tag << FLW_RING_HOLE_LOG2;
        event->tag = 0;
        break;
    case FLW_TRACE_MARK:
    case FLW_TRACE_PHASE_BEGIN:
    case FLW_TRACE_PHASE_END:
        event->name = (uint32_t)record->address;
        event->size_bytes = 0;
        break;
    case FLW_TRACE_DROP:
        event->lost_count = record->size_bytes;
        event->size_bytes = 0;
        break;
    default:
        event->address = record->address;
        break;
    }
}

/* Set the stack of the event that is added next, if it is an allocation's. */
static bool set_stack(struct flw_trace_file *trace_file, const struct flw_merge_record *record)
{
    uint32_t stack;
    if (record->stack == 0 || trace_file->settings.callstacks == NULL) {
        return true;
    }
    bool is_written = flw_callstacks_write(trace_file->settings.callstacks, record->stack,
                                           trace_file->writer, &trace_file->stacks, &stack);
    if (is_written) {
        flw_ftrace_writer_set_stack(trace_file->writer, stack);
    }
    return is_written;
}

static bool put(struct flw_trace_file *trace_file, const struct flw_merge_record *record,
                enum flw_trace_op op, uint32_t block)
{
    struct flw_record event = {.op = flw_record_op_of((uint8_t)op),
                               .time = trace_file->last_ns,
                               .address = record->address,
                               .size_bytes = record->size_bytes,
                               .stream = (uint16_t)record->stream,
                               .thread = record->thread,
                               .tag = record->tag,
                               .pool = record->pool,
                               FLW_RECORD_UNSET};
    if (flw_trace_op_has_block((uint8_t)op)) {
        event.block = block;
    } else {
        set_detail(record, &event);
    }
    if ((op == FLW_TRACE_ALLOC || op == FLW_TRACE_OOM) && !set_stack(trace_file, record)) {
        return false;
    }
    return flw_ftrace_writer_add(trace_file->writer, event);
}

static bool take_block_record(struct flw_trace_file *trace_file,
                              const struct flw_merge_record *record)
{
    if (record->op == FLW_TRACE_ALLOC) {
        uint32_t old, block = (uint32_t)trace_file->block_count;
        if (!remember_block(trace_file, record->address, &old)) {
            return false;
        }
        trace_file->lost_frees += old != FLW_ADDRESSMAP_ABSENT;
        end_holding(trace_file, record->address);
        return begin_holding(trace_file, record) &&
               (old == FLW_ADDRESSMAP_ABSENT || put(trace_file, record, FLW_TRACE_FREE, old)) &&
               put(trace_file, record, FLW_TRACE_ALLOC, block);
    }
    uint32_t block = record->op == FLW_TRACE_FREE
                         ? flw_addressmap_remove(&trace_file->live, record->address)
                         : flw_addressmap_find(&trace_file->live, record->address);
    if (block == FLW_ADDRESSMAP_ABSENT) {
        trace_file->unknown_frees += record->op == FLW_TRACE_FREE;
        return true;
    }
    if (record->op == FLW_TRACE_FREE) {
        end_holding(trace_file, record->address);
    }
    return put(trace_file, record, record->op, block);
}

bool flw_trace_file_write(struct flw_trace_file *trace_file, struct flw_merge *merge,
                          const struct flw_tsc_pair *from, const struct flw_tsc_pair *to)
{
    struct flw_merge_record record;
    struct flw_tsc_line line = flw_tsc_line_through(from, to);
    bool is_written = trace_file->problem == NULL &&
                      flw_names_write(trace_file->settings.names, trace_file->writer,
                                      &trace_file->stream_count, &trace_file->name_count);
    while (is_written && flw_merge_next(merge, &record)) {
        uint64_t ns = flw_tsc_ns(&line, record.ticks) - trace_file->settings.zero.ns;
        trace_file->last_ns = flw_max(trace_file->last_ns, ns - ns % STEP_NS);
        count(trace_file, &record);
        is_written = flw_trace_op_has_block((uint8_t)record.op)
                         ? take_block_record(trace_file, &record)
                         : put(trace_file, &record, record.op, UINT32_MAX);
    }
    return is_written || fail(trace_file);
}

bool flw_trace_file_flush(struct flw_trace_file *trace_file)
{
    return (trace_file->problem == NULL && flw_ftrace_writer_flush(trace_file->writer)) ||
           fail(trace_file);
}

bool flw_trace_file_end(struct flw_trace_file *trace_file, uint64_t lost_count)
{
    char gaps[64];
    bool is_written = trace_file->problem == NULL;
    if (is_written && lost_count > 0) {
        struct flw_merge_record drop = {.size_bytes = lost_count, .op = FLW_TRACE_DROP};
        count(trace_file, &drop);
        is_written = put(trace_file, &drop, FLW_TRACE_DROP, UINT32_MAX);
    }
    if (is_written && trace_file->unknown_frees + trace_file->lost_frees > 0) {
        snprintf(gaps, sizeof gaps, "gaps %" PRIu64 " %" PRIu64 "\n", trace_file->unknown_frees,
                 trace_file->lost_frees);
        is_written = flw_ftrace_writer_add_notes(trace_file->writer, gaps);
    }
    return (is_written && flw_ftrace_writer_end(trace_file->writer)) || fail(trace_file);
}
