/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the state of the reader of trace files: the present chunk, the trace so far, and losses.
 *
 * ftracereader.c finds chunks; ftracetaker.c adds their content to the trace, ftracestacks.c the stacks.
 *
 * INVARIANTS
 *   1. event_count and block_count are numbers within the file, with which the next chunk begins.
 *   2. block_count less the blocks in holes is the trace's block_count; stages[] has as many.
 */
#ifndef FLW_TRACE_FORMATS_FTRACEREADER_H
#define FLW_TRACE_FORMATS_FTRACEREADER_H

#include "record/frame.h"
#include "trace/formats/ftrace.h"
#include "trace/trace/build.h"
#include "trace/trace/notes.h"

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

/* The stacks of a file, and those of the next chunk's records. */
struct flw_ftracereader_stacks {
    struct flw_ftracereader_numbers texts, frames, stacks; /* stacks are numbered from 1 */
    uint32_t
        before[FLW_STACK_DEPTH_MOST]; /* frames of the chunk's last stack, as numbers in the file */
    size_t before_count;
    uint32_t *of_records; /* numbers in the file */
    size_t record_count, record_room, next_record;
    uint64_t first_event, first_block;        /* of the chunk of these records */
    struct flw_ftracereader_remarks *remarks; /* the same */
    size_t remark_count, remark_room, next_remark;
    uint64_t remark_event, remark_block;
};

struct flw_ftracereader {
    struct flw_input *input;
    struct flw_crc32c crc;
    struct flw_build build;
    struct flw_record_state state;
    struct flw_frame_file file;
    struct flw_frame_chunk frame; /* of the chunk being read */
    unsigned char *bytes;         /* a chunk, header first */
    size_t room;
    size_t at, count; /* unread part of `bytes` */
    uint64_t offset;  /* offset in the file of the chunk being read */
    struct flw_notes notes;
    uint8_t *stages; /* of each block */
    size_t stage_room;
    uint32_t *names; /* number in the file -> number in the trace */
    size_t name_count, name_room;
    struct flw_ftracereader_hole *holes;
    size_t hole_count, hole_room;
    struct flw_trace_context context;
    struct flw_ftracereader_stacks stacks;
    uint32_t stack;                                 /* of the present record, in the trace */
    struct flw_trace_remark remark;                 /* the same */
    uint64_t event_count, block_count, chunk_count; /* of the file */
    uint64_t time_ns;
    uint32_t whole_crc; /* of all bytes before the chunk being read */
    bool has_events, has_ended, lacks_memory;
    char problem[FLW_TRACE_MESSAGE_BYTES]; /* the first damage; empty: none */
    uint64_t problem_event;
};

/* Record the first damage, in the present chunk. Always returns false. */
bool flw_ftracereader_stop(struct flw_ftracereader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Record that memory ran out. Always returns false. */
bool flw_ftracereader_fail_memory(struct flw_ftracereader *r);

/* Each function adds a chunk's payload to the trace. Returns false if reading stopped or failed. */
bool flw_ftracereader_take_notes(struct flw_ftracereader *r, const char *at, const char *end);
bool flw_ftracereader_take_dictionary(struct flw_ftracereader *r, struct flw_wire_in in);
bool flw_ftracereader_take_record(struct flw_ftracereader *r, const struct flw_record *record);
bool flw_ftracereader_take_drop(struct flw_ftracereader *r, uint64_t lost_count);

/* Continue after lost chunks: record their events and blocks as missing. */
bool flw_ftracereader_step_over_loss(struct flw_ftracereader *r);

/* ---- ftracestacks.c; return values as above ---- */

bool flw_ftracereader_take_text(struct flw_ftracereader *r, struct flw_wire_in body);
bool flw_ftracereader_take_frame(struct flw_ftracereader *r, struct flw_wire_in body);
bool flw_ftracereader_take_stack(struct flw_ftracereader *r, struct flw_wire_in body);
bool flw_ftracereader_take_remarks(struct flw_ftracereader *r, struct flw_wire_in in);
bool flw_ftracereader_take_stacks(struct flw_ftracereader *r, struct flw_wire_in in);

/* Begin a chunk of records: check that the last stacks and remarks belong to this chunk. Then set r->stack and
 * r->remark for each record. At the end, check that all were used. */
void flw_ftracereader_begin_records(struct flw_ftracereader *r);
bool flw_ftracereader_next_stack(struct flw_ftracereader *r);
bool flw_ftracereader_end_records(struct flw_ftracereader *r);

void flw_ftracereader_finish_stacks(struct flw_ftracereader_stacks *stacks);

#endif
