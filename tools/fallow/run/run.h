/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the parts of `fallow run` and `fallow record`: one command run under two patterns of poison, and whether the
 * pattern can be told from outside; names for the frames of C in a recording, which a process cannot find as it runs.
 */
#ifndef FLW_TOOL_RUN_H
#define FLW_TOOL_RUN_H

#include "common/launch.h"
#include "trace/trace/trace.h"

/* Each run gets no input; what it says to standard output is kept and compared, with how it ended.
 * Standard error is left alone. FLW_EXIT_OK: no difference; FLW_EXIT_FAILED: there is one, or it
 * could not be run; the line says which. */
int flw_compare_run(const struct flw_launch *launch, const unsigned patterns[2]);

/* Each frame whose file is a module and an offset in it (record/callstack.h) becomes the function there with its file and
 * line, and one frame more for each function that is inlined there. What is not known stays as it is. How many
 * frames got a name; *out_has_memory: false where it ran out, and the trace is as before. */
size_t flw_names_find(struct flw_trace *trace, bool *out_has_memory);

#endif
