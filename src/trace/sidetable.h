/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the rules that a trace's names, details and contexts are held to.
 * Does not: repair them.
 */
#ifndef FLW_TRACE_SIDETABLE_H
#define FLW_TRACE_SIDETABLE_H

#include "trace/trace.h"

/* NULL, or what is wrong with them. The events are within their own rules. */
const char *flw_sidetable_check(const struct flw_trace *trace);

/* Does an event of this kind have to have a detail with a name? */
bool flw_sidetable_needs_name(uint8_t op);

#endif
