/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: parts of `fallow run` and `fallow record`: running a command under two patterns of poison and comparing the
 * outcomes; naming the frames of C in a recording.
 */
#ifndef FLW_TOOL_RUN_H
#define FLW_TOOL_RUN_H

#include "common/launch.h"
#include "trace/trace/trace.h"

/* Run the command with each pattern, without input, and compare standard output and exit status. Prints the result.
 * Returns FLW_EXIT_OK without a difference, FLW_EXIT_FAILED with one or if a run failed. */
int flw_compare_run(const struct flw_launch *launch, const unsigned patterns[2]);

/* Replace each frame with a module and an offset as file (record/callstack.h) by the function there, with file and line,
 * and a frame for each inlined function. Unknown frames stay. Returns the number of named frames. *out_has_memory:
 * false if memory ran out; then the trace is unchanged. */
size_t flw_names_find(struct flw_trace *trace, bool *out_has_memory);

#endif
