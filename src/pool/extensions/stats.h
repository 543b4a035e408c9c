/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the pool says of itself as a whole: statistics, the last error, validation.
 */
#ifndef FLW_POOL_STATS_H
#define FLW_POOL_STATS_H

#include "pool/state/pool.h"

/* What fallow_pool_get_stats answers, of a pool that is being visited. */
void flw_pool_read_stats(struct flw_pool *pool, fallow_stats *out_stats);

#endif
