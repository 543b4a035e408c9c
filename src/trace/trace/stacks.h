/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the call stacks of a trace: each text, each frame and each stack once, with a number to know it by.
 * Does not: know which event has which; struct flw_trace does.
 *
 * A stack is the numbers of its frames, the innermost first, of 7 bits a byte: as many bytes as the file had that it
 * came from, however little it shares with others. (A tree that shares callers takes a thirtieth where a program
 * repeats, and twenty times as much where nothing does.) Number 0 is the stack without frames.
 *
 * INVARIANTS (flw_stacks_are_valid recomputes them)
 *   1. begins ascends; the bytes of a stack are whole numbers, of frames that exist, FLW_STACK_DEPTH_MOST at most.
 *   2. The texts of frames exist and have FLW_STACK_TEXT_BYTES bytes at most.
 */
#ifndef FLW_TRACE_TRACE_STACKS_H
#define FLW_TRACE_TRACE_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace/intern.h"

#define FLW_STACK_DEPTH_MOST 1000 /* deeper ones lose their outermost frames */
#define FLW_STACK_TEXT_BYTES 8000 /* longer ones lose their ends */

struct flw_frame {
    uint32_t function, file; /* texts; "" where it is not known */
    uint32_t line;           /* 0: not known */
};

/* All zero has no stack yet. */
struct flw_stacks {
    struct flw_intern texts;
    struct flw_frame *frames; /* largearray.h's, and so are the next two */
    size_t frame_count, frame_room;
    unsigned char *bytes;
    size_t byte_count, byte_room;
    uint64_t *begins; /* where each stack begins; one more at the end */
    size_t stack_count, begin_room;
    struct flw_addressmap frame_places, stack_places; /* hash -> number */
};

/* The number of a text of FLW_STACK_TEXT_BYTES at most, and of a frame of such texts; new ones where they are seen
 * first. False: no memory. */
bool flw_stacks_add_text(struct flw_stacks *stacks, const void *bytes, size_t count,
                         uint32_t *out_text);
bool flw_stacks_put_frame(struct flw_stacks *stacks, const struct flw_frame *frame,
                          uint32_t *out_frame);

/* Both in one. */
bool flw_stacks_add_frame(struct flw_stacks *stacks, const char *function, const char *file,
                          uint32_t line, uint32_t *out_frame);

/* The number of the stack of these frames, the innermost first; what is beyond FLW_STACK_DEPTH_MOST is left out.
 * False: no memory. */
bool flw_stacks_add(struct flw_stacks *stacks, const uint32_t *frames, size_t count,
                    uint32_t *out_stack);

/* No more will be added: forgets what finds them again. */
void flw_stacks_settle(struct flw_stacks *stacks);

/* The frames of a stack, the innermost first. */
struct flw_stack_walk {
    const unsigned char *at, *end;
};
struct flw_stack_walk flw_stacks_walk(const struct flw_stacks *stacks, uint32_t stack);
/* False: no more. */
static inline bool flw_stacks_next(struct flw_stack_walk *walk, uint32_t *out_frame)
{
    uint32_t frame = 0;
    unsigned shift = 0;
    if (walk->at == walk->end) {
        return false;
    }
    do {
        frame |= (uint32_t)(*walk->at & 0x7F) << shift;
        shift += 7;
    } while (*walk->at++ >= 0x80);
    *out_frame = frame;
    return true;
}

static inline const char *flw_stacks_text(const struct flw_stacks *stacks, uint32_t text)
{
    return flw_intern_text(&stacks->texts, text);
}

bool flw_stacks_are_valid(const struct flw_stacks *stacks);

/* The stacks of a trace as its forms number them: each and each of its frames where it is used first, by the
 * segments of the start, then by its records; one that is not used has no number. So a trace has one text,
 * whatever its stacks were added for. */
struct flw_stack_order {
    const struct flw_stacks *stacks;
    /* Called for what has its number now: the next one, frames from 0, stacks from 1. False: give up. */
    bool (*put_frame)(void *context, const struct flw_frame *frame);
    bool (*put_stack)(void *context, const uint32_t *frames, size_t count);
    void *context;
    uint32_t *stack_numbers, *frame_numbers; /* of those of `stacks`, from 1; 0: not met yet */
    uint32_t stack_count, frame_count;       /* met so far */
};

/* The first four fields are the caller's. False: no memory. */
bool flw_stack_order_begin(struct flw_stack_order *order);

/* The number of the next segment's or record's stack; 0 has 0. False: a call was, or no memory. */
bool flw_stack_order_take(struct flw_stack_order *order, uint32_t stack, uint32_t *out_number);
void flw_stack_order_finish(struct flw_stack_order *order);

void flw_stacks_finish(struct flw_stacks *stacks);

#endif
