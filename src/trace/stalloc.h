/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lines that STAlloc logs of PyTorch's allocator, as a trace.
 */
#ifndef FLW_TRACE_STALLOC_H
#define FLW_TRACE_STALLOC_H

#include "trace/input.h"
#include "trace/trace.h"

/* The first line is "0" or "1" and three more columns. */
bool flw_stalloc_is_next(struct flw_input *input);

/* The input is at its first byte. False: nothing is held, the input's message says why. */
bool flw_stalloc_read(struct flw_input *input, struct flw_trace **out_trace);

#endif
