/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lines of the text form that precede a record: frames (L), a stack (W), a remark (V); text.h specifies them.
 * Does not: read records.
 *
 * Each stack and frame precedes the first use, so no two texts are the same trace.
 */
#ifndef FLW_TRACE_FORMATS_TEXTSTACKS_H
#define FLW_TRACE_FORMATS_TEXTSTACKS_H

#include "trace/io/line.h"
#include "trace/trace/build.h"

struct flw_textstacks {
    struct flw_line *line; /* the reader's, like the build */
    struct flw_build *build;
    uint32_t new_stack;  /* stack of the last W line; 0: none, or a record has it already */
    uint32_t met_frames; /* frames used by stacks; later L lines belong to the next stack */
    struct flw_trace_remark remark; /* of the next event */
    bool has_new_remark;            /* no event has the remark yet */
};

/* Each function reads a line after the letter. Returns false after writing the message. */
bool flw_textstacks_read_frame(struct flw_textstacks *stacks);
bool flw_textstacks_read_stack(struct flw_textstacks *stacks);
bool flw_textstacks_read_remark(struct flw_textstacks *stacks);

/* Read " stack=N" of a segment or record, 0 if missing. If the previous line is a new stack, N must be that one. */
bool flw_textstacks_take_stack(struct flw_textstacks *stacks, uint32_t *out);

/* Set the remark of the event that is added now. */
bool flw_textstacks_add_remark(struct flw_textstacks *stacks, size_t event);

/* Check at the end that every stack and remark has a record after it. */
bool flw_textstacks_check_end(struct flw_textstacks *stacks);

#endif
