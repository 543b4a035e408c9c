/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: keeping the owners of a pool's caches out: poison all wanted caches, run one barrier, wait
 * until each owner is out, and only then read any cache.
 * Does not: use a seized cache (cache.c, recording.c).
 *
 * One thread at a time seizes caches of a pool: pool->seizing is the one lock that is held over a
 * membarrier and over a wait. Only a thread that ends also needs it, to remove the caches from the
 * pool's list, which therefore stays unchanged behind the first element. Neither the pool's lock
 * nor a cache's is held meanwhile: owners continue, on the slow path.
 *
 * An owner may take the heap's lock inside a cache, and wait there for room in the ring:
 * pool->seizing blocks nothing that these wait for.
 *
 * A kernel that has granted membarrier may refuse it later. Then all caches of the pool are closed
 * for good: poisoned, ordered once by other means (flw_asym_slow_barrier), waited for. From then on each
 * call takes the cache's lock and needs no barrier. This is logged and shown in the statistics. */
#ifndef FLW_POOL_SEIZE_H
#define FLW_POOL_SEIZE_H

#include "pool/state/pool.h"

/* Seize the caches of a domain, or all with NULL, except one; linked by next_seized. The caller
 * holds no lock of this rank or above; it holds pool->seizing until flw_seize_end. */
struct flw_tcache *flw_seize(struct flw_pool *pool, const struct flw_domain *domain,
                             const struct flw_tcache *but);
/* Return the caches that are still the pool's to their owners; the others must have been removed
 * from `seized`. */
void flw_seize_end(struct flw_pool *pool, struct flw_tcache *seized);

#endif
