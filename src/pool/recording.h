/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the pool tells its recorder, where it has one.
 *
 * A hit tells it by itself: the caches of a recorded pool have a ring, and a key that sends every call
 * the other way (heap/tcache.h, entry.c). Everything else calls the functions here where it has
 * succeeded, with no lock held; a free before the block is in anybody's reach.
 */
#ifndef FLW_POOL_RECORDING_H
#define FLW_POOL_RECORDING_H

#include "pool/pool.h"
#include "record/ring.h"

/* Inside a recorded cache; is_ordered as of flw_ring_put. */
static inline void flw_recording_hit(const struct flw_tcache_hot *hot, enum flw_trace_op op,
                                     uint64_t address, uint64_t size_bytes, bool is_ordered)
{
    const struct flw_tcache *cache = (const struct flw_tcache *)(const void *)hot;
    struct flw_ring_entry entry =
        flw_ring_entry(op, address, size_bytes, cache->recorded_stream, 0);
    flw_ring_put(cache->ring, &entry, is_ordered);
}

/* A cache of a recorded pool: its key is its own address. */
static inline bool flw_recording_has_key(const struct flw_tcache_hot *hot)
{
    return flw_asym_key_is(&hot->key, hot);
}

static inline bool flw_recording_is_on(const struct flw_pool *pool)
{
    return atomic_load_explicit(&pool->recorder, memory_order_relaxed) != NULL;
}

/* ---- recording.c; each does nothing where the pool is not recorded */

struct flw_recorded_block {
    uint64_t address, size_bytes;
    uint32_t tag, capture; /* ALLOC: the caller's tag, the capture it is lent in; else 0 */
};

/* ALLOC, FREE, USE on the stream of a domain. */
void flw_recording_note_block(struct flw_pool *pool, enum flw_trace_op op,
                              const struct flw_domain *domain,
                              const struct flw_recorded_block *block);
/* POOL_BEGIN, POOL_END. */
void flw_recording_note_capture(struct flw_pool *pool, enum flw_trace_op op,
                                const struct flw_domain *domain, uint32_t capture);
void flw_recording_note_trim(struct flw_pool *pool);
/* An allocation fails for want of memory. Dumps, where the recorder is to. */
void flw_recording_note_failure(struct flw_pool *pool, const struct flw_domain *domain,
                                const fallow_oom_report *report);

/* pool->lock. Give a new cache its ring. False: no host memory. */
bool flw_recording_adopt(struct flw_pool *pool, struct flw_tcache *cache,
                         const struct flw_domain *domain);

/* The pool ends: so does its recording. No other thread is inside a call. */
void flw_recording_stop(struct flw_pool *pool);
/* The same without waiting and without a lock. */
void flw_recording_orphan(struct flw_pool *pool);
void flw_recorders_forget_all(void); /* in the child of a fork */

#endif
