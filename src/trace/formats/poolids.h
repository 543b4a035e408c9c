/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the numbers of PyTorch's private pools, which it knows by pairs.
 * Does not: read snapshots.
 */
#ifndef FLW_TRACE_FORMATS_POOLIDS_H
#define FLW_TRACE_FORMATS_POOLIDS_H

#include "trace/trace/history.h"
#include "trace/trace/intern.h"

/* In: every pool of the history is the number of its pair plus 1, or 0 where it was not said. Out: those
 * in use are numbered from 1 in the order of their pairs; (0, 0) is the common pool, 0.
 *
 * events_say  events have pools of their own; else each gets that of the last segment that lies around
 *             it, from that segment's allocation on.
 * False: no memory. */
bool flw_poolids_settle(struct flw_history *history, const struct flw_intern *pairs,
                        bool events_say);

#endif
