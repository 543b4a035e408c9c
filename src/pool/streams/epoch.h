/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a pool in context order: where what is freed goes, when an epoch is closed, what is known of one address.
 * Does not: record or ask for events (heap/order/fence.h, heap/order/epoch.h), or climb (ladder/context_ladder.c).
 *
 *   ready    unowned memory and complete dedicated runs: allocated at once. Thread caches allocate
 *            of it only.
 *   open     freed; first in the freeing thread's cache, then in the heap with the context's
 *            sequence number. Ready when the epoch that closed over it is complete.
 *
 * An epoch is closed when 256 blocks or 4 to 64 MiB (flw_epoch_due_bytes) have been freed, or when an allocation would
 * otherwise exceed the bound (flw_epoch_bound) or wait. Until then a miss grows: within the bound memory costs
 * less than an event for every few blocks, and the pool never waits for a busy device.
 */
#ifndef FLW_POOL_STREAMS_EPOCH_H
#define FLW_POOL_STREAMS_EPOCH_H

#include "pool/state/pool.h"

/* What a smaller request takes: the second class, whose blocks are 512 B aligned. */
#define FLW_EPOCH_LEAST_BYTES 512ull

/* Takes the cache lock. A block that was claimed joins the open frees, the older of which go to the
 * heap if need be. */
void flw_epoch_free(struct flw_pool *pool, struct flw_tcache *cache, struct flw_span *span,
                    struct flw_slot *slot);
/* cache lock. A few complete dedicated runs of a size that has just been allocated. */
void flw_epoch_fill_runs(struct flw_pool *pool, struct flw_tcache *cache, uint32_t unit_count);
/* Driver calls: where enough was freed since the last one. */
void flw_epoch_close_if_due(struct flw_pool *pool);
/* Driver calls. Close an epoch over everything that was freed so far; true: something is complete. */
bool flw_epoch_close(struct flw_pool *pool);
/* heap lock. Return how many bytes of at least four blocks justify an event: 4 MiB at first, and as much more after
 * every 32 epochs: their events cost about as much as the driver allocations that fewer events would cause. */
static inline uint64_t flw_epoch_due_bytes(const struct flw_heap *heap)
{
    uint64_t most = (uint64_t)FLW_OPEN_FREE_BYTES;
    uint64_t least = flw_min((heap->context_order->seq / 32 + 1) * (most / 16), most);
    return heap->open_blocks < 4 ? most
                                 : flw_clamp(atomic_load(&heap->reserved_bytes) / 8, least, most);
}

/* heap lock. Is enough open for an event? */
static inline bool flw_epoch_is_due(const struct flw_heap *heap)
{
    return heap->open_blocks >= FLW_OPEN_FREE_SLOTS ||
           heap->open_bytes >= flw_epoch_due_bytes(heap);
}
/* cache lock. The cache's open frees go to the heap. */
void flw_epoch_flush(struct flw_pool *pool, struct flw_tcache *cache);
/* Driver calls. Ask for the epochs that are closed; true: something is complete. */
bool flw_epoch_poll(struct flw_heap *heap);
/* Driver calls. Wait until the sequence number is complete; until everything freed so far is complete. Returns false
 * at the deadline (UINT64_MAX: none; 0: does not wait). If the driver cannot record a context, the wait lasts until
 * the device is idle. */
bool flw_epoch_wait(struct flw_heap *heap, uint64_t seq, uint64_t deadline_ns);
bool flw_epoch_wait_all(struct flw_heap *heap, uint64_t deadline_ns);
/* The caller is about to synchronise the pool's context: flw_epoch_begin_sync (heap/order/epoch.h) that covers
 * what the calling thread has freed, too. */
uint64_t flw_epoch_expect_sync(struct flw_pool *pool);
/* Driver calls. Release idle memory to the driver: empty the caches and wait for the device until the deadline (not
 * while something is being captured, nor with 0). Returns the bytes released. */
uint64_t flw_epoch_trim(struct flw_pool *pool, uint64_t deadline_ns);

/* Does the pool's memory hold the address, allocated or not? No lock. */
bool flw_epoch_owns(const struct flw_pool *pool, uint64_t address);
/* The block that is allocated and holds the address, as it was asked for. False: none. No lock. */
struct flw_epoch_block {
    uint64_t base, size_bytes;
    bool is_dedicated;
    bool is_exported;
};
bool flw_epoch_find(const struct flw_pool *pool, uint64_t address, struct flw_epoch_block *out);
/* Another process may map the whole block at `base`: when it is freed it goes to the driver
 * at once. False: it is not dedicated, or was freed meanwhile. */
bool flw_epoch_export(struct flw_pool *pool, uint64_t base);
/* Such a block, claimed, comes back. */
fallow_status flw_epoch_evict(struct flw_pool *pool, struct flw_tcache *cache,
                              struct flw_span *span, struct flw_slot *slot);

/* The most that may be held with so many bytes allocated, before an allocation waits for the
 * device. */
static inline uint64_t flw_epoch_bound(uint64_t live_bytes)
{
    return live_bytes + flw_max(256 * FLW_MIB, live_bytes / 4);
}

#endif
