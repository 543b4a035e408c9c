/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the call stacks of a profiler's trace: which slices of a thread enclose a moment, and what their names say.
 * Does not: read the file (kineto.c), or keep which event has which stack.
 *
 * A slice is an operator or a call of Python, from its begin to its end on one thread. Names of slices:
 *   "train.py(9): step"                   a function and where it begins; the call within it says the line
 *   "<built-in method mm of type object at 0x7f...>", "nn.Module: Linear_0", "aten::mm", "MmBackward0"
 * A text "Call stack" is "FILE(LINE): FUNCTION;...", the innermost first: older profiles have it beside operators, the
 * Chrome form that we write beside memory events.
 */
#ifndef FLW_TRACE_FORMATS_KINETOSTACKS_H
#define FLW_TRACE_FORMATS_KINETOSTACKS_H

#include "trace/trace/stacks.h"

struct flw_kineto_slice {
    uint64_t begin_ns, end_ns;
    uint32_t thread, order; /* in the file */
    uint32_t frame;
    uint32_t stack; /* of what called it, where the file says so; 0: it does not */
    uint32_t caller_file,
        caller_line; /* the line that called it, and its file's text; 0: not known */
    bool is_python;
};

/* All zero has none; `stacks` is borrowed. */
struct flw_kinetostacks {
    struct flw_stacks *stacks;
    struct flw_kineto_slice *slices; /* largearray.h's */
    size_t count, room;
    size_t *open; /* slices that enclose the moment at hand, the outermost first */
    size_t open_count, open_room, next;
};

/* A name of a slice, a place "FILE:LINE", a "Call stack", as they are without JSON's escapes. `text` is written to.
 * Each returns false where there is no memory. */
bool flw_kinetostacks_add_frame(struct flw_kinetostacks *slices, char *text, uint32_t *out_frame);
bool flw_kinetostacks_add_place(struct flw_kinetostacks *slices, char *text, uint32_t *out_file,
                                uint32_t *out_line);
bool flw_kinetostacks_add_stack(struct flw_kinetostacks *slices, char *text, bool is_cut,
                                uint32_t *out_stack);

/* `order` is set here. */
bool flw_kinetostacks_add_slice(struct flw_kinetostacks *slices,
                                const struct flw_kineto_slice *slice);

/* All slices are there: the stacks are asked for next, by thread and time. */
void flw_kinetostacks_begin(struct flw_kinetostacks *slices);

/* What encloses a moment of a thread, 0: nothing. Moments ascend by thread, then by time. Amortised O(1) for each
 * slice, O(depth) for each moment. */
bool flw_kinetostacks_find(struct flw_kinetostacks *slices, uint32_t thread, uint64_t time_ns,
                           uint32_t *out_stack);

void flw_kinetostacks_finish(struct flw_kinetostacks *slices);

#endif
