/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lines of the text form that say something of the record behind them: frames (L), a stack (W), a remark
 * (V); text.h specifies them.
 * Does not: read records.
 *
 * Each stack and frame stands before what is the first to have it, so no two texts are one trace.
 */
#ifndef FLW_TRACE_FORMATS_TEXTSTACKS_H
#define FLW_TRACE_FORMATS_TEXTSTACKS_H

#include "trace/io/line.h"
#include "trace/trace/build.h"

struct flw_textstacks {
    struct flw_line *line; /* the reader's, and so is the build */
    struct flw_build *build;
    uint32_t new_stack;  /* of the last W line, before the record that has it; 0: none */
    uint32_t met_frames; /* those that a stack has; the L lines after them are of the next one */
    struct flw_trace_remark remark; /* of the next event */
    bool has_new_remark;            /* no event has it yet */
};

/* Each returns false where the line's message says what is wrong. The line is behind its letter. */
bool flw_textstacks_read_frame(struct flw_textstacks *stacks);
bool flw_textstacks_read_stack(struct flw_textstacks *stacks);
bool flw_textstacks_read_remark(struct flw_textstacks *stacks);

/* " stack=N" of a segment or record, 0 where it is not there: the one before it where that is new. */
bool flw_textstacks_take_stack(struct flw_textstacks *stacks, uint32_t *out);

/* Of the event that is added now. */
bool flw_textstacks_add_remark(struct flw_textstacks *stacks, size_t event);

/* Nothing was said of a record that does not come. */
bool flw_textstacks_check_end(struct flw_textstacks *stacks);

#endif
