/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: numbering PyTorch's private pools, which PyTorch identifies by pairs.
 * Does not: read snapshots.
 */
#ifndef FLW_TRACE_FORMATS_POOLIDS_H
#define FLW_TRACE_FORMATS_POOLIDS_H

#include "trace/trace/history.h"

/* Renumber the pools of a recording (flw_history_resolve). Before: each pool is the number of the pair plus 1, or 0 if unknown. After: used
 * pools are numbered from 1 in the order of their pairs; (0, 0) is the common pool, 0.
 *
 * events_say  events have pools of their own; else each event gets the pool of the last segment around its address,
 *             from that segment's allocation on.
 * Returns false if memory runs out. */
bool flw_poolids_renumber(struct flw_history *history, struct flw_build *build,
                          const struct flw_intern *pairs, bool events_say);

#endif
