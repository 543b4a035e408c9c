/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the owners of a pool's live blocks, by tag and allocating stream, for the out-of-memory report.
 */
#ifndef FLW_POOL_LADDER_OWNERS_H
#define FLW_POOL_LADDER_OWNERS_H

#include "pool/state/pool.h"

/* Fill report->owners and owner_count with the owners of the most requested bytes, largest first. Walks all live blocks
 * once for up to 65,536 owners, else several times; without host memory once for every 64 to 128 owners. Takes the
 * locks of flw_blocks_each. */
void flw_owners_fill(struct flw_pool *pool, fallow_oom_report *report);

#endif
