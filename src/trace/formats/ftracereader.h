/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the state of the reader of trace files: the present chunk, the trace so far, and losses.
 *
 * ftracereader.c finds chunks; ftracetaker.c adds their content to the trace. A fault stops the chunk: later checks of
 * the chunk have no effect.
 *
 * INVARIANTS
 *   1. event_count and block_count are numbers within the file, with which the next chunk begins.
 *   2. block_count less the blocks in holes is the trace's block_count.
 */
#ifndef FLW_TRACE_FORMATS_FTRACEREADER_H
#define FLW_TRACE_FORMATS_FTRACEREADER_H

#include "record/frame.h"
#include "trace/formats/ftrace.h"
#include "trace/formats/reader.h"

/* Blocks of the file that were lost with a chunk. */
struct flw_ftracereader_hole {
    uint64_t begin, end;
    uint64_t lost_before; /* blocks lost in holes before this one */
};

/* Number in the file -> number in the trace; FLW_FTRACEREADER_LOST: lost with a chunk. */
struct flw_ftracereader_numbers {
    uint32_t *at;
    size_t count, room;
};
#define FLW_FTRACEREADER_LOST UINT32_MAX

/* The number of consecutive records of a chunk with the same remark, and the remark's texts: number in the file plus
 * 1. */
struct flw_ftracereader_remarks {
    uint32_t record_count;
    uint32_t compile_context, user_metadata;
};

struct flw_ftracereader {
    struct flw_input *input;
    struct flw_crc32c crc;
    struct flw_reader to;
    struct flw_record_state state;
    struct flw_frame_file file;
    struct flw_frame_chunk
        frame; /* of the chunk being read, which begins at the input's next byte */
    struct flw_ftracereader_numbers names, texts, frames, stacks; /* stacks are numbered from 1 */
    struct flw_ftracereader_hole *holes;
    size_t hole_count, hole_room;
    struct flw_trace_context context;           /* of the next record; `record` is ignored */
    uint32_t last_frames[FLW_STACK_DEPTH_MOST]; /* of the chunk's last stack; numbers in the file */
    size_t last_frame_count;

    /* The stacks of the records of the chunk that begins with these events and blocks, as numbers in the file; and the
     * remarks of such a chunk. */
    uint32_t *record_stacks;
    size_t record_count, record_room, next_record;
    uint64_t stacks_event, stacks_block;
    struct flw_ftracereader_remarks *remarks;
    size_t remark_count, remark_room, next_remark;
    uint64_t remarks_event, remarks_block;

    uint64_t event_count, block_count, chunk_count; /* of the file */
    uint32_t whole_crc;                             /* of all bytes before the chunk being read */
    bool has_events, has_ended, has_stopped, lacks_memory;
    char problem[FLW_TRACE_MESSAGE_BYTES]; /* the first damage; empty: none */
    uint64_t problem_event;
};

/* Stop the present chunk, and record the damage if it is the first. */
void flw_ftracereader_stop(struct flw_ftracereader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same because memory ran out, which stops reading. */
void flw_ftracereader_stop_memory(struct flw_ftracereader *r);

/* Unless the chunk has stopped: stop if a condition does not hold, or if a call returns false because memory ran out. */
#define FLW_FTRACEREADER_CHECK(r, holds, ...)        \
    do {                                             \
        if (!(r)->has_stopped && !(holds)) {         \
            flw_ftracereader_stop((r), __VA_ARGS__); \
        }                                            \
    } while (0)
#define FLW_FTRACEREADER_TRY(r, call)        \
    do {                                     \
        if (!(r)->has_stopped && !(call)) {  \
            flw_ftracereader_stop_memory(r); \
        }                                    \
    } while (0)

/* Each function adds a chunk's payload to the trace, or stops. */
void flw_ftracereader_take_notes(struct flw_ftracereader *r, const char *at, const char *end);
void flw_ftracereader_take_dictionary(struct flw_ftracereader *r, struct flw_wire_in in);
void flw_ftracereader_take_stacks(struct flw_ftracereader *r, struct flw_wire_in in);
void flw_ftracereader_take_remarks(struct flw_ftracereader *r, struct flw_wire_in in);
void flw_ftracereader_take_records(struct flw_ftracereader *r, struct flw_wire_in in);
void flw_ftracereader_take_drop(struct flw_ftracereader *r, uint64_t lost_count);

/* Continue after lost chunks: record their events and blocks as missing. */
void flw_ftracereader_step_over_loss(struct flw_ftracereader *r);

#endif
