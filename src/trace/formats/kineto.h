/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the memory events of a PyTorch profiler's trace (Kineto, Chrome JSON) as a trace, and its call stacks: finding
 * the slices of a thread that enclose a moment, and parsing their names.
 *
 * A slice is an operator or a call of Python, from begin to end on one thread. Names of slices:
 *   "train.py(9): step"                   a function and its first line; the call within it has the actual line
 *   "<built-in method mm of type object at 0x7f...>", "nn.Module: Linear_0", "aten::mm", "MmBackward0"
 * A text "Call stack" is "FILE(LINE): FUNCTION;...", the innermost first: older profiles have it in operators, our
 * Chrome JSON has it in memory events.
 */
#ifndef FLW_TRACE_FORMATS_KINETO_H
#define FLW_TRACE_FORMATS_KINETO_H

#include "trace/io/input.h"
#include "trace/trace/build.h"
#include "trace/trace/stacks.h"

/* Read a trace into the build; the input is at the first byte, a "{" or "[" possibly after space. Returns false if that
 * fails; see the input's message. Memory: in the order of the memory events, however long the file. */
bool flw_kineto_read(struct flw_input *input, int device, struct flw_build *build);

/* ---- stacks ---- */

struct flw_kineto_slice {
    uint64_t begin_ns, end_ns;
    uint32_t thread;
    uint32_t link; /* order in the file; once sorted 1 + the enclosing slice, 0: none */
    uint32_t frame;
    uint32_t stack;                    /* of the caller, if the file has it; 0: unknown */
    uint32_t caller_file, caller_line; /* line and text of the file of the call; 0: unknown */
    bool is_python;
};

/* All zero is empty; `stacks` is borrowed. */
struct flw_kinetostacks {
    struct flw_stacks *stacks;
    struct flw_kineto_slice *slices; /* largearray.h's */
    size_t count, room;
    size_t next; /* first slice after the last moment */
};

/* Add a place "FILE:LINE", a "Call stack", or a slice with its name; these texts have no escapes of JSON and are
 * modified. A slice's `link` and `frame` are set here. Each function returns false if memory runs out. */
bool flw_kinetostacks_add_place(struct flw_kinetostacks *slices, char *text, uint32_t *out_file,
                                uint32_t *out_line);
bool flw_kinetostacks_add_stack(struct flw_kinetostacks *slices, char *text, bool is_cut,
                                uint32_t *out_stack);
bool flw_kinetostacks_add_slice(struct flw_kinetostacks *slices,
                                const struct flw_kineto_slice *slice, char *name);

/* Sort the slices after the last one, before stacks are requested. */
void flw_kinetostacks_begin(struct flw_kinetostacks *slices);

/* Find the stack at a moment of a thread; 0: none. Moments ascend by thread, then by time. O(depth) per moment. */
bool flw_kinetostacks_find(struct flw_kinetostacks *slices, uint32_t thread, uint64_t time_ns,
                           uint32_t *out_stack);

void flw_kinetostacks_finish(struct flw_kinetostacks *slices);

#endif
