/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the memory events of a PyTorch profiler's trace (Kineto, Chrome JSON) as a trace.
 */
#ifndef FLW_TRACE_FORMATS_KINETO_H
#define FLW_TRACE_FORMATS_KINETO_H

#include "trace/io/input.h"
#include "trace/trace/trace.h"

/* Read a trace; the input is at the first byte, a "{" or "[" possibly after space. Returns false if that fails: nothing
 * is held; see the input's message. Memory: in the order of the memory events, however long the file. */
bool flw_kineto_read(struct flw_input *input, int device, struct flw_trace **out_trace);

#endif
