/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how a thread keeps the owners of a pool's caches out of them: it poisons all it wants, makes one
 * barrier, waits until each owner is out, and only then looks into any.
 * Does not: know what is done to a cache that is seized (cache.c, recording.c).
 *
 * One thread at a time seizes caches of a pool: pool->seizing, the one lock that is held over a
 * membarrier and over a wait. It is kept for that: no other thread needs it, but a thread that
 * ends, to take its caches out of the pool's list, which therefore stays as it is behind its first.
 * Neither the pool's lock nor a cache's is held meanwhile: owners go on, by the slow path.
 *
 * An owner may take the heap's lock inside a cache, and wait there for room in its ring: nothing that
 * these wait for is kept from going on by pool->seizing.
 *
 * A kernel that has granted membarrier may refuse it later. Then all caches of the pool are closed for
 * good: poisoned, ordered once by other means (flw_asym_settle), waited for. From then on each call
 * takes its cache's lock, and no barrier is needed. The log has a line of it, and the statistics say it.
 */
#ifndef FLW_POOL_SEIZE_H
#define FLW_POOL_SEIZE_H

#include "pool/state/pool.h"

/* The caches of a domain, or with NULL all, but one, linked by next_seized. The caller holds no lock of
 * this rank or above; it holds pool->seizing until flw_seize_end. */
struct flw_tcache *flw_seize(struct flw_pool *pool, const struct flw_domain *domain,
                             const struct flw_tcache *but);
/* Those of them that still are the pool's go back to their owners; the rest must not be in
 * `seized` any more. */
void flw_seize_end(struct flw_pool *pool, struct flw_tcache *seized);

#endif
