/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the call stacks of a trace: each text, frame and stack is stored once under a number.
 * Does not: assign stacks to events; struct flw_trace does.
 *
 * A stack is the numbers of the frames, innermost first, in 7 bits a byte: about as many bytes as in the recorded file,
 * however little is shared with other stacks. (A tree of shared callers takes a thirtieth if a program repeats, and
 * twenty times as much if nothing does.) Number 0 is the stack without frames.
 *
 * INVARIANTS (flw_stacks_are_valid recomputes them)
 *   1. The bytes of a stack are whole numbers of existing frames, at most FLW_STACK_DEPTH_MOST.
 *   2. The texts of frames exist and have at most FLW_STACK_TEXT_BYTES bytes.
 */
#ifndef FLW_TRACE_TRACE_STACKS_H
#define FLW_TRACE_TRACE_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/trace/intern.h"

#define FLW_STACK_DEPTH_MOST 1000 /* deeper stacks lose their outermost frames */
#define FLW_STACK_TEXT_BYTES 8000 /* longer texts lose their ends */

struct flw_frame {
    uint32_t function, file; /* texts; "": unknown */
    uint32_t line;           /* 0: unknown */
};

/* All zero is empty. Texts and frames may be added directly. */
struct flw_stacks {
    struct flw_intern texts, frames; /* a frame is a struct flw_frame of texts */
    struct flw_intern lists;         /* the stacks; number 0, if there is any, has no frames */
};

/* Add both texts and the frame. */
bool flw_stacks_add_frame(struct flw_stacks *stacks, const char *function, const char *file,
                          uint32_t line, uint32_t *out_frame);

/* Return a frame, which is valid until the next one is added. */
static inline const struct flw_frame *flw_stacks_frame(const struct flw_stacks *stacks,
                                                       uint32_t frame)
{
    return flw_intern_at(&stacks->frames, frame);
}

/* Return the number of a stack, given by the frames, innermost first; frames beyond FLW_STACK_DEPTH_MOST are left out.
 * Returns false if memory runs out. */
bool flw_stacks_add(struct flw_stacks *stacks, const uint32_t *frames, size_t count,
                    uint32_t *out_stack);

/* Free the maps of frames and stacks after the last addition. */
void flw_stacks_seal(struct flw_stacks *stacks);

/* Walk the frames of a stack, innermost first. */
struct flw_stack_walk {
    const unsigned char *at, *end;
};
struct flw_stack_walk flw_stacks_walk(const struct flw_stacks *stacks, uint32_t stack);
/* Return the next frame; false at the end. */
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

/* The numbers of stacks in a file: each stack and frame is numbered at the first use, by the segments of the start and
 * then by the records; unused ones have no number. So the text of a trace does not depend on the order in which stacks
 * were added. */
struct flw_stack_order {
    const struct flw_stacks *stacks;
    /* Called for each newly numbered frame (from 0) or stack (from 1), in order. Return false to stop.
     * NULL: only count. */
    bool (*put_frame)(void *context, const struct flw_frame *frame);
    bool (*put_stack)(void *context, const uint32_t *frames, size_t count);
    void *context;
    uint32_t *stack_numbers, *frame_numbers; /* by number in `stacks`, from 1; 0: not used yet */
    uint32_t stack_count, frame_count;       /* numbered so far */
};

/* Begin numbering. The caller sets the first four fields. Returns false if memory runs out. */
bool flw_stack_order_begin(struct flw_stack_order *order);

/* Return the number of the stack of the next segment or record; 0 for stack 0. Returns false if a callback did or
 * memory runs out. */
bool flw_stack_order_take(struct flw_stack_order *order, uint32_t stack, uint32_t *out_number);
void flw_stack_order_finish(struct flw_stack_order *order);

void flw_stacks_finish(struct flw_stacks *stacks);

#endif
