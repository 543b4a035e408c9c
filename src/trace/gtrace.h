/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: "gtrace-text 0", a sparser line form in which some traces were kept, as a trace.
 */
#ifndef FLW_TRACE_GTRACE_H
#define FLW_TRACE_GTRACE_H

#include "trace/input.h"
#include "trace/trace.h"

#define FLW_GTRACE_MAGIC "# gtrace-text "

/* The input is at its first byte. False: nothing is held, the input's message says why. */
bool flw_gtrace_read(struct flw_input *input, struct flw_trace **out_trace);

#endif
