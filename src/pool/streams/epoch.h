/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a pool in context order: the path of freed memory, when an epoch is closed, and lookups of
 * an address.
 * Does not: record or query events (heap/order/fence.h, heap/order/epoch.h), or climb
 * (ladder/context_ladder.c).
 *
 *   ready    unowned memory and complete dedicated runs: allocated at once. Thread caches allocate
 *            only from this.
 *   open     freed; first in the freeing thread's cache, then in the heap with the context's
 *            sequence number. Ready when the epoch that closed over it is complete.
 *
 * An epoch is closed when 256 blocks or 4 to 64 MiB (flw_epoch_due_bytes) were freed, or when an
 * allocation would otherwise exceed the bound (flw_epoch_bound) or wait. Until then a miss grows:
 * within the bound memory costs less than an event for every few blocks, and the pool never waits
 * for a busy device. */
#ifndef FLW_POOL_STREAMS_EPOCH_H
#define FLW_POOL_STREAMS_EPOCH_H

#include "pool/state/pool.h"

/* Size of a smaller request: the second class, with blocks aligned to 512 B. */
#define FLW_EPOCH_LEAST_BYTES 512ull

/* Add a claimed block to the open frees; older ones are returned to the heap if necessary. Takes
 * the cache lock. */
void flw_epoch_free(struct flw_pool *pool, struct flw_tcache *cache, struct flw_span *span,
                    struct flw_slot *slot);
/* Fetch a few complete dedicated runs of a size that was just allocated. Cache lock held. */
void flw_epoch_fill_runs(struct flw_pool *pool, struct flw_tcache *cache, uint32_t unit_count);
/* Close an epoch if enough was freed since the last one. Makes driver calls. */
void flw_epoch_close_if_due(struct flw_pool *pool);
/* Close an epoch over everything freed so far; true: something is complete. Makes driver calls. */
bool flw_epoch_close(struct flw_pool *pool);
/* Return how many bytes of at least four blocks justify an event: 4 MiB at first, and as much more
 * after every 32 epochs, whose events cost about as much as the driver allocations that fewer
 * events would cause. Heap lock held. */
static inline uint64_t flw_epoch_due_bytes(const struct flw_heap *heap)
{
    uint64_t most = (uint64_t)FLW_OPEN_FREE_BYTES;
    uint64_t least = flw_min((heap->context_order->seq / 32 + 1) * (most / 16), most);
    return heap->open_blocks < 4 ? most
                                 : flw_clamp(atomic_load(&heap->reserved_bytes) / 8, least, most);
}

/* True if enough is open for an event. Heap lock held. */
static inline bool flw_epoch_is_due(const struct flw_heap *heap)
{
    return heap->open_blocks >= FLW_OPEN_FREE_SLOTS ||
           heap->open_bytes >= flw_epoch_due_bytes(heap);
}
/* Return the cache's open frees to the heap. Cache lock held. */
void flw_epoch_flush(struct flw_pool *pool, struct flw_tcache *cache);
/* Query the closed epochs; true: something is complete. Makes driver calls. */
bool flw_epoch_poll(struct flw_heap *heap);
/* Wait until the sequence number is complete; until everything freed so far is complete. Returns
 * false at the deadline (UINT64_MAX: none; 0: does not wait). If the driver cannot record a
 * context, the wait lasts until the device is idle. Makes driver calls. */
bool flw_epoch_wait(struct flw_heap *heap, uint64_t seq, uint64_t deadline_ns);
bool flw_epoch_wait_all(struct flw_heap *heap, uint64_t deadline_ns);
/* Before the caller synchronises the pool's context: flw_epoch_begin_sync (heap/order/epoch.h),
 * including the calling thread's frees. */
uint64_t flw_epoch_expect_sync(struct flw_pool *pool);
/* Release idle memory to the driver: empty the caches and wait for the device until the deadline
 * (not during a capture, nor with 0). Returns the bytes released. Makes driver calls. */
uint64_t flw_epoch_trim(struct flw_pool *pool, uint64_t deadline_ns);

/* True if the pool's memory contains the address, allocated or not. Lock-free. */
bool flw_epoch_owns(const struct flw_pool *pool, uint64_t address);
/* The live block that contains the address, as requested. False: none. Lock-free. */
struct flw_epoch_block {
    uint64_t base, size_bytes;
    bool is_dedicated;
    bool is_exported;
};
bool flw_epoch_find(const struct flw_pool *pool, uint64_t address, struct flw_epoch_block *out);
/* Mark the whole block at `base` as mapped by other processes: when freed it is released to the
 * driver at once. False: not dedicated, or freed meanwhile. */
bool flw_epoch_export(struct flw_pool *pool, uint64_t base);
/* Free such a block, which is claimed. */
fallow_status flw_epoch_evict(struct flw_pool *pool, struct flw_tcache *cache,
                              struct flw_span *span, struct flw_slot *slot);

/* Return the most that may be held with so many bytes allocated before an allocation waits for the
 * device. */
static inline uint64_t flw_epoch_bound(uint64_t live_bytes)
{
    return live_bytes + flw_max(256 * FLW_MIB, live_bytes / 4);
}

#endif
