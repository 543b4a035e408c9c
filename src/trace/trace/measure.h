/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a trace's totals, which are flw_trace's derived fields, and the rules for a trace's parts.
 */
#ifndef FLW_TRACE_TRACE_MEASURE_H
#define FLW_TRACE_TRACE_MEASURE_H

#include "trace/trace/trace.h"

/* Fill blocks[].freed, alloc_count, the peaks, the initial reserved bytes and the segment calls from events, blocks and
 * segments. Returns NULL, or the violated rule; then the totals are invalid. */
const char *flw_measure_trace(struct flw_trace *trace);

/* True if an event of this kind must have a detail with a name. */
bool flw_trace_op_needs_name(uint8_t op);

#endif
