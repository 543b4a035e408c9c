/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: converting records of rings to records of the file; the call stacks that hold live blocks. */
#include "record/scribe.h"

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

struct flw_scribe {
    struct flw_scribe_settings settings;
    struct flw_ftrace_writer *writer;
    struct flw_addressmap live; /* address -> number of the block */
    struct flw_callstack_file stacks;
    struct flw_addressmap holding_places; /* address -> holding; number 0 is none */
    struct holding *holdings;
    struct flw_scribe_holder *holders; /* by stack */
    size_t holding_count, holding_room, holder_room;
    uint32_t free_holding;
    size_t stream_count, name_count;
    uint64_t block_count, unknown_frees, lost_frees, last_ns;
    struct flw_scribe_tally tally;
    int error;           /* of the file */
    const char *problem; /* NULL: none */
    size_t used;
    unsigned char buffer[BUFFER_BYTES];
};

/* ---- the file */

static bool write_out(struct flw_scribe *scribe)
{
    const unsigned char *at = scribe->buffer;
    while (scribe->used > 0 && scribe->error == 0) {
        ssize_t written = write(scribe->settings.fd, at, scribe->used);
        if (written < 0 && errno != EINTR) {
            scribe->error = errno;
        } else if (written > 0) {
            at += written;
            scribe->used -= (size_t)written;
        }
    }
    return scribe->error == 0;
}

static bool keep_bytes(void *context, const void *bytes, size_t count)
{
    struct flw_scribe *scribe = context;
    const unsigned char *at = bytes;
    while (count > 0) {
        size_t step = flw_min(count, BUFFER_BYTES - scribe->used);
        memcpy(scribe->buffer + scribe->used, at, step);
        scribe->used += step;
        at += step;
        count -= step;
        if (scribe->used == BUFFER_BYTES && !write_out(scribe)) {
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
static bool fail(struct flw_scribe *scribe)
{
    if (scribe->problem == NULL) {
        scribe->problem = scribe->error != 0 ? strerror(scribe->error) : "no host memory";
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

static bool add_notes(struct flw_scribe *scribe)
{
    char notes[128];
    const struct flw_scribe_settings *settings = &scribe->settings;
    snprintf(notes, sizeof notes, "recorder fallow\nclock %s\nbegins %s\n",
             settings->uses_tsc ? "tsc" : "monotonic",
             settings->is_whole ? "with the recording" : "with what the rings had kept");
    return flw_ftrace_writer_add_notes(scribe->writer, notes);
}

struct flw_scribe *flw_scribe_open(const struct flw_scribe_settings *settings)
{
    struct flw_scribe *scribe = calloc(1, sizeof *scribe);
    struct flw_ftrace_settings file = {.has_times = true,
                                       .has_addresses = true,
                                       .has_stacks = settings->callstacks != NULL,
                                       .codec = FLW_RECORD_PACKED,
                                       .device = settings->device,
                                       .process = (uint32_t)getpid(),
                                       .wall_ns = settings->wall_ns,
                                       .mono_ns = settings->zero.ns,
                                       .step_ns = STEP_NS};
    if (scribe == NULL) {
        (void)close(settings->fd);
        return NULL;
    }
    struct flw_ftrace_sink sink = {.write = keep_bytes, .flush = write_kept, .context = scribe};
    scribe->settings = *settings;
    scribe->writer = flw_ftrace_writer_create(&sink, &file);
    if (scribe->writer == NULL || !add_notes(scribe)) {
        (void)flw_scribe_close(scribe);
        return NULL;
    }
    return scribe;
}

bool flw_scribe_close(struct flw_scribe *scribe)
{
    bool is_written = true;
    if (scribe != NULL) {
        is_written = close(scribe->settings.fd) == 0 && scribe->error == 0;
        flw_ftrace_writer_destroy(scribe->writer);
        flw_addressmap_finish(&scribe->live);
        flw_callstack_file_finish(&scribe->stacks);
        flw_addressmap_finish(&scribe->holding_places);
        free(scribe->holdings);
        free(scribe->holders);
        free(scribe);
    }
    return is_written;
}

void flw_scribe_disown(struct flw_scribe *scribe)
{
    (void)close(scribe->settings.fd);
}

const char *flw_scribe_problem(const struct flw_scribe *scribe)
{
    return scribe->problem;
}

struct flw_scribe_tally flw_scribe_count(const struct flw_scribe *scribe)
{
    return scribe->tally;
}

/* ---- holders of live blocks */

/* Return a free holding's number. 0: no memory. */
static uint32_t take_holding(struct flw_scribe *scribe)
{
    uint32_t number = scribe->free_holding;
    if (number != 0) {
        scribe->free_holding = scribe->holdings[number].next_free;
        return number;
    }
    number = (uint32_t)scribe->holding_count + 1;
    if (number >= FLW_ADDRESSMAP_ABSENT ||
        !FLW_ARRAY_FITS(scribe->holdings, number, scribe->holding_room)) {
        return 0;
    }
    scribe->holding_count++;
    return number;
}

static bool begin_holding(struct flw_scribe *scribe, const struct flw_merge_record *record)
{
    if (record->stack == 0 || scribe->settings.callstacks == NULL) {
        return true;
    }
    bool has_holder =
        reach(&scribe->holders, &scribe->holder_room, record->stack, sizeof *scribe->holders);
    uint32_t number = has_holder ? take_holding(scribe) : 0;
    if (number == 0 || !flw_addressmap_put(&scribe->holding_places, record->address, number)) {
        return false;
    }
    scribe->holdings[number] =
        (struct holding){.bytes = record->size_bytes, .stack = record->stack};
    struct flw_scribe_holder *holder = &scribe->holders[record->stack];
    holder->stack = record->stack;
    holder->bytes += record->size_bytes;
    holder->count++;
    return true;
}

static void end_holding(struct flw_scribe *scribe, uint64_t address)
{
    uint32_t number = flw_addressmap_remove(&scribe->holding_places, address);
    if (number != FLW_ADDRESSMAP_ABSENT) {
        struct holding *holding = &scribe->holdings[number];
        scribe->holders[holding->stack].bytes -= holding->bytes;
        scribe->holders[holding->stack].count--;
        holding->next_free = scribe->free_holding;
        scribe->free_holding = number;
    }
}

/* Insert one in order; return the one pushed out at the end, or itself. */
static struct flw_scribe_holder insert_holder(struct flw_scribe_holder *out, size_t *count,
                                              size_t most, struct flw_scribe_holder holder)
{
    struct flw_scribe_holder pushed = {0};
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

size_t flw_scribe_list_holders(const struct flw_scribe *scribe, struct flw_scribe_holder *out,
                               size_t most, struct flw_scribe_holder *out_rest)
{
    size_t count = 0;
    *out_rest = (struct flw_scribe_holder){0};
    for (size_t i = 0; i < scribe->holder_room; i++) {
        if (scribe->holders[i].count > 0) {
            struct flw_scribe_holder left = insert_holder(out, &count, most, scribe->holders[i]);
            out_rest->stack += left.count > 0;
            out_rest->bytes += left.bytes;
            out_rest->count += left.count;
        }
    }
    return count;
}

/* ---- records */

static void count(struct flw_scribe *scribe, const struct flw_merge_record *record)
{
    bool is_drop = record->op == FLW_TRACE_DROP;
    scribe->tally.event_count += is_drop ? record->size_bytes : 1;
    scribe->tally.missing_count += is_drop ? record->size_bytes : 0;
}

/* *out_old: the file's block there before; FLW_ADDRESSMAP_ABSENT: none. */
static bool remember_block(struct flw_scribe *scribe, uint64_t address, uint32_t *out_old)
{
    if (scribe->block_count >= FLW_ADDRESSMAP_ABSENT) {
        scribe->problem = "more than 2^32 blocks";
        return false;
    }
    return flw_addressmap_exchange(&scribe->live, address, (uint32_t)scribe->block_count++,
                                   out_old);
}

bool flw_scribe_start(struct flw_scribe *scribe, const struct flw_warm *warm)
{
    bool is_written =
        !warm->has_failed && flw_names_write(scribe->settings.names, scribe->writer,
                                             &scribe->stream_count, &scribe->name_count);
    uint32_t old;
    for (size_t i = 0; is_written && i < warm->count; i++) {
        const struct flw_warm_block *from = &warm->blocks[i];
        struct flw_trace_block block = {.address = from->address,
                                        .size_bytes = from->size_bytes,
                                        .stream = (uint16_t)from->stream};
        struct flw_trace_context context = {.tag = from->tag, .pool = from->pool};
        is_written = remember_block(scribe, from->address, &old) &&
                     flw_ftrace_writer_add_block(scribe->writer, &block, &context);
    }
    return is_written || fail(scribe);
}

/* Return the details of an event without a block. */
static void tell_detail(const struct flw_merge_record *record, struct flw_trace_event *event,
                        struct flw_trace_detail *detail, struct flw_trace_context *context)
{
    *detail = (struct flw_trace_detail){.free_bytes = FLW_TRACE_UNKNOWN,
                                        .largest_bytes = FLW_TRACE_UNKNOWN,
                                        .name = FLW_TRACE_NO_NAME};
    switch (record->op) {
    case FLW_TRACE_OOM:
        detail->free_bytes = record->address;
        detail->largest_bytes = record->tag == UINT32_MAX
                                    ? FLW_TRACE_UNKNOWN
                                    : (uint64_t)record->tag << FLW_RING_HOLE_LOG2;
        event->address = 0;
        context->tag = 0;
        break;
    case FLW_TRACE_MARK:
    case FLW_TRACE_PHASE_BEGIN:
    case FLW_TRACE_PHASE_END:
        detail->name = (uint32_t)record->address;
        event->address = 0;
        event->size_bytes = 0;
        break;
    case FLW_TRACE_DROP:
        detail->lost_count = record->size_bytes;
        event->address = 0;
        event->size_bytes = 0;
        break;
    default:
        break;
    }
}

/* Set the stack of the event that is added next, if it is an allocation's. */
static bool set_stack(struct flw_scribe *scribe, const struct flw_merge_record *record)
{
    uint32_t stack;
    if (record->stack == 0 || scribe->settings.callstacks == NULL) {
        return true;
    }
    bool is_written = flw_callstacks_write(scribe->settings.callstacks, record->stack,
                                           scribe->writer, &scribe->stacks, &stack);
    if (is_written) {
        flw_ftrace_writer_set_stack(scribe->writer, stack);
    }
    return is_written;
}

static bool put(struct flw_scribe *scribe, const struct flw_merge_record *record,
                enum flw_trace_op op, uint32_t block)
{
    bool has_block = flw_trace_op_has_block((uint8_t)op);
    struct flw_trace_detail detail;
    struct flw_trace_context context = {
        .thread = record->thread, .tag = record->tag, .pool = record->pool};
    struct flw_trace_event event = {.time_ns = scribe->last_ns,
                                    .address = record->address,
                                    .size_bytes = record->size_bytes,
                                    .block = block,
                                    .stream = (uint16_t)record->stream,
                                    .op = (uint8_t)op};
    if (!has_block) {
        tell_detail(record, &event, &detail, &context);
    }
    if ((op == FLW_TRACE_ALLOC || op == FLW_TRACE_OOM) && !set_stack(scribe, record)) {
        return false;
    }
    return flw_ftrace_writer_add_event(scribe->writer, &event, has_block ? NULL : &detail,
                                       &context);
}

static bool take_block_record(struct flw_scribe *scribe, const struct flw_merge_record *record)
{
    if (record->op == FLW_TRACE_ALLOC) {
        uint32_t old, block = (uint32_t)scribe->block_count;
        if (!remember_block(scribe, record->address, &old)) {
            return false;
        }
        scribe->lost_frees += old != FLW_ADDRESSMAP_ABSENT;
        end_holding(scribe, record->address);
        return begin_holding(scribe, record) &&
               (old == FLW_ADDRESSMAP_ABSENT || put(scribe, record, FLW_TRACE_FREE, old)) &&
               put(scribe, record, FLW_TRACE_ALLOC, block);
    }
    uint32_t block = record->op == FLW_TRACE_FREE
                         ? flw_addressmap_remove(&scribe->live, record->address)
                         : flw_addressmap_find(&scribe->live, record->address);
    if (block == FLW_ADDRESSMAP_ABSENT) {
        scribe->unknown_frees += record->op == FLW_TRACE_FREE;
        return true;
    }
    if (record->op == FLW_TRACE_FREE) {
        end_holding(scribe, record->address);
    }
    return put(scribe, record, record->op, block);
}

bool flw_scribe_take(struct flw_scribe *scribe, struct flw_merge *merge,
                     const struct flw_tsc_pair *from, const struct flw_tsc_pair *to)
{
    struct flw_merge_record record;
    struct flw_tsc_line line = flw_tsc_line_through(from, to);
    bool is_written =
        scribe->problem == NULL && flw_names_write(scribe->settings.names, scribe->writer,
                                                   &scribe->stream_count, &scribe->name_count);
    while (is_written && flw_merge_next(merge, &record)) {
        uint64_t ns = flw_tsc_ns(&line, record.ticks) - scribe->settings.zero.ns;
        scribe->last_ns = flw_max(scribe->last_ns, ns - ns % STEP_NS);
        count(scribe, &record);
        is_written = flw_trace_op_has_block((uint8_t)record.op)
                         ? take_block_record(scribe, &record)
                         : put(scribe, &record, record.op, UINT32_MAX);
    }
    return is_written || fail(scribe);
}

bool flw_scribe_flush(struct flw_scribe *scribe)
{
    return (scribe->problem == NULL && flw_ftrace_writer_flush(scribe->writer)) || fail(scribe);
}

bool flw_scribe_end(struct flw_scribe *scribe, uint64_t lost_count)
{
    char gaps[64];
    bool is_written = scribe->problem == NULL;
    if (is_written && lost_count > 0) {
        struct flw_merge_record drop = {.size_bytes = lost_count, .op = FLW_TRACE_DROP};
        count(scribe, &drop);
        is_written = put(scribe, &drop, FLW_TRACE_DROP, UINT32_MAX);
    }
    if (is_written && scribe->unknown_frees + scribe->lost_frees > 0) {
        snprintf(gaps, sizeof gaps, "gaps %" PRIu64 " %" PRIu64 "\n", scribe->unknown_frees,
                 scribe->lost_frees);
        is_written = flw_ftrace_writer_add_notes(scribe->writer, gaps);
    }
    return (is_written && flw_ftrace_writer_end(scribe->writer)) || fail(scribe);
}
