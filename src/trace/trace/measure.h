/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the totals of a trace, what flw_trace's derived fields hold; the rules that its parts are held to.
 */
#ifndef FLW_TRACE_TRACE_MEASURE_H
#define FLW_TRACE_TRACE_MEASURE_H

#include "trace/trace/trace.h"

/* Fill blocks[].freed, alloc_count, the peaks, the initial reserved bytes and the segment calls
 * from events, blocks and segments. NULL: done. Else what is wrong, and the totals mean nothing. */
const char *flw_measure_trace(struct flw_trace *trace);

/* Does an event of this kind have to have a detail with a name? */
bool flw_trace_op_needs_name(uint8_t op);

#endif
