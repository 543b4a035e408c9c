/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the memory events of a PyTorch profiler's trace (Kineto, Chrome JSON) as a trace.
 */
#ifndef FLW_TRACE_FORMATS_KINETO_H
#define FLW_TRACE_FORMATS_KINETO_H

#include "trace/io/input.h"
#include "trace/trace/trace.h"

/* The input is at its first byte, a "{" or "[" perhaps after space. False: nothing is held, the
 * input's message says why. Memory: in the order of the memory events, however long the file. */
bool flw_kineto_read(struct flw_input *input, int device, struct flw_trace **out_trace);

#endif
