/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: names for the frames of C in a recording: what a process could not tell while it ran.
 */
#ifndef FLW_TOOL_NAMES_H
#define FLW_TOOL_NAMES_H

#include "trace/trace/trace.h"

/* Each frame whose file is a module and an offset in it (record/callstack.h) becomes the function there with its file and
 * line, and one frame more for each function that is inlined there. What is not known stays as it is. How many
 * frames got a name; *out_has_memory: false where it ran out, and the trace is as before. */
size_t flw_names_find(struct flw_trace *trace, bool *out_has_memory);

#endif
