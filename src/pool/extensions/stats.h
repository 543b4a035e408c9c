/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a pool's public state: statistics, the last error, validation. */
#ifndef FLW_POOL_STATS_H
#define FLW_POOL_STATS_H

#include "pool/state/pool.h"

/* Return the result of fallow_pool_get_stats, for a pool being visited. */
void flw_pool_read_stats(struct flw_pool *pool, fallow_stats *out_stats);

#endif
