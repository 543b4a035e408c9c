/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/streams/release.h"

#include "heap/order/fence.h"
#include "pool/state/extension.h"
#include "pool/state/table.h"
#include "pool/streams/cache.h"
#include "pool/streams/quiesce.h"
#include "pool/streams/uses.h"

void flw_pool_complete(struct flw_pool *pool)
{
    struct flw_driver_section section;
    if (flw_heap_enter_driver(&pool->heap, &section)) {
        flw_uses_fence(pool);
        (void)flw_heap_poll(&pool->heap);
        flw_heap_leave_driver(&pool->heap, &section);
    }
    flw_lock_acquire(&pool->heap.lock);
    (void)flw_heap_reclaim_slabs(&pool->heap);
    flw_lock_release(&pool->heap.lock);
}

/* Return the next domain after *cursor with a fence, and the number of the newest fence; NULL:
 * none. Heap lock held. */
static struct flw_domain *next_fenced(const struct flw_heap *heap, uint32_t *cursor,
                                      uint64_t *out_seq)
{
    while (++*cursor < heap->domain_end) {
        if (heap->domains[*cursor]->newest != NULL) {
            *out_seq = heap->domains[*cursor]->newest->seq;
            return heap->domains[*cursor];
        }
    }
    return NULL;
}

/* Wait for the first domain that is not captured. False: nothing to wait for, or the deadline. */
static bool wait_for_one(struct flw_pool *pool, uint64_t until_ns, bool *out_timed_out)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    fallow_status status = FALLOW_WOULD_WAIT;
    for (uint32_t cursor = 0; status == FALLOW_WOULD_WAIT;) {
        uint64_t seq = 0;
        flw_lock_acquire(&heap->lock);
        struct flw_domain *domain = next_fenced(heap, &cursor, &seq);
        flw_lock_release(&heap->lock);
        if (domain == NULL || !flw_heap_enter_driver(heap, &section)) {
            return false;
        }
        status = flw_domain_wait(heap, domain, seq, until_ns);
        flw_heap_leave_driver(heap, &section);
    }
    *out_timed_out = status == FALLOW_TIMEOUT;
    return status == FALLOW_OK;
}

/* True if memory waits for work of the device. Takes the heap lock. */
static bool has_pending(struct flw_heap *heap)
{
    flw_lock_acquire(&heap->lock);
    bool has_any = heap->deferred_count > 0 || flw_heap_has_open(heap, NULL);
    flw_lock_release(&heap->lock);
    return has_any;
}

fallow_status flw_pool_release(struct flw_pool *pool, uint64_t keep_bytes, uint64_t until_ns,
                               uint64_t *out_released_bytes)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    uint64_t released = 0;
    bool has_timed_out = false;
    flw_heap_hold_driver(heap, &section);
    FLW_EACH_EXTENSION (pool, row, release) {
        (void)row->release(pool);
    }
    (void)flw_pool_drain(pool, NULL, NULL);
    flw_pool_cover_lost(pool, true, false);
    flw_pool_fence_all(pool); /* even without a wait, finds work that is complete */
    do {
        flw_pool_complete(pool);
        flw_pool_fence_all(pool); /* including memory just returned, for which the next round
                                      waits */
        /* Without a deadline the driver may wait: events would never cover work submitted
         * meanwhile. */
        released += flw_heap_release_idle(heap, keep_bytes, until_ns == UINT64_MAX ? until_ns : 0);
    } while (until_ns != 0 && atomic_load(&heap->reserved_bytes) > keep_bytes &&
             wait_for_one(pool, until_ns, &has_timed_out));
    if (until_ns != 0 && !has_timed_out && atomic_load(&heap->reserved_bytes) > keep_bytes) {
        (void)flw_pool_sync_uncoverable(pool, false);
        /* The previous release may have found the last fences of slabs complete. */
        flw_pool_complete(pool);
        released += flw_heap_release_idle(heap, keep_bytes, until_ns);
    }
    if (released > 0) {
        flw_heap_forget_refusal(heap);
    }
    flw_heap_leave_driver(heap, &section);
    *out_released_bytes = released;
    has_timed_out |=
        until_ns == 0 && atomic_load(&heap->reserved_bytes) > keep_bytes && has_pending(heap);
    return has_timed_out ? FALLOW_TIMEOUT : FALLOW_OK;
}

void flw_pool_keep_limit(struct flw_pool *pool, uint64_t bytes)
{
    uint64_t limit = atomic_load(&pool->heap.limit_bytes), released;
    if (FLW_UNLIKELY(atomic_load(&pool->heap.reserved_bytes) > limit)) {
        (void)flw_pool_release(pool, limit - flw_min(limit, bytes), 0, &released);
    }
}

/* ---- of other pools */

struct lack {
    const struct flw_pool *pool;
    uint64_t bytes, until_ns;
    fallow_status status;
};

static void release_other(struct flw_pool *other, void *context)
{
    struct lack *lack = context;
    if (other == lack->pool || other->config.device != lack->pool->config.device ||
        other->driver.object != lack->pool->driver.object || flw_heap_is_lost(&other->heap) ||
        flw_gate_enter(&other->gate, false) != FALLOW_OK) {
        return;
    }
    uint64_t reserved = atomic_load(&other->heap.reserved_bytes), released;
    fallow_status status = flw_pool_release(other, reserved - flw_min(reserved, lack->bytes),
                                            lack->until_ns, &released);
    lack->status = status != FALLOW_OK ? status : lack->status;
    flw_gate_leave(&other->gate);
    flw_pool_note_loss(other);
}

fallow_status flw_pool_release_others(const struct flw_pool *pool, uint64_t bytes,
                                      uint64_t until_ns)
{
    struct lack lack = {.pool = pool, .bytes = bytes, .until_ns = until_ns};
    flw_pool_table_each(release_other, &lack);
    return lack.status;
}
