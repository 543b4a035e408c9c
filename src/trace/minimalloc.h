/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a packing problem as MiniMalloc states it, as a trace.
 */
#ifndef FLW_TRACE_MINIMALLOC_H
#define FLW_TRACE_MINIMALLOC_H

#include "trace/input.h"
#include "trace/trace.h"

/* The first line is a list of MiniMalloc's column names. */
bool flw_minimalloc_is_next(struct flw_input *input);

/* The input is at its first byte. False: nothing is held, the input's message says why. */
bool flw_minimalloc_read(struct flw_input *input, struct flw_trace **out_trace);

#endif
