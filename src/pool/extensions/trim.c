/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: releasing memory on request (trim, a lower limit) and over time (decay). */
#include "pool/state/account.h"
#include "pool/state/extension.h"
#include "pool/state/table.h"
#include "pool/streams/cache.h"
#include "pool/streams/release.h"
#include "pool/streams/uses.h"

fallow_status fallow_pool_trim(fallow_pool *handle, size_t keep_bytes, uint64_t deadline_ns,
                               size_t *out_released_bytes)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (out_released_bytes != NULL) {
        *out_released_bytes = 0;
    }
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (flw_heap_is_lost(&pool->heap)) {
        return FALLOW_DEVICE_LOST;
    }
    if (flw_gate_enter(&pool->gate, deadline_ns != 0) != FALLOW_OK) {
        return FALLOW_OK; /* asleep: nothing left to release */
    }
    atomic_store(&pool->heap.dedicated_units,
                 pool->heap.first_dedicated_units); /* another phase begins */
    atomic_store(&pool->heap.released_dedicated, 0);
    uint64_t now = flw_clock_fine_ns(), released;
    uint64_t until = deadline_ns > UINT64_MAX - now ? UINT64_MAX : now + deadline_ns;
    fallow_status status =
        flw_pool_release(pool, keep_bytes, deadline_ns == 0 ? 0 : until, &released);
    flw_gate_leave(&pool->gate);
    flw_pool_note_loss(pool);
    flw_pool_tell(pool, FLW_TRACE_EMPTY_CACHE, NULL, (struct flw_event){0});
    if (out_released_bytes != NULL) {
        *out_released_bytes = released;
    }
    return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST
           : deadline_ns == 0            ? FALLOW_OK
                                         : status;
}

fallow_status fallow_pool_set_limit(fallow_pool *handle, size_t limit_bytes)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    uint64_t limit = limit_bytes == 0 ? pool->device_bytes : limit_bytes;
    flw_heap_set_limit(&pool->heap, flw_min(limit, pool->device_bytes));
    return atomic_load(&pool->heap.reserved_bytes) > limit
               ? fallow_pool_trim(handle, limit, 0, NULL)
               : FALLOW_OK;
}

/* Memory that streams needed to avoid waits stays while they need it: each check halves the
 * recorded need, and misses raise it again. */
static uint64_t waitless_floor(struct flw_pool *pool, uint64_t most)
{
    uint64_t bytes = atomic_load_explicit(&pool->budget.waitless_bytes, memory_order_relaxed);
    atomic_store_explicit(&pool->budget.waitless_bytes, bytes / 2, memory_order_relaxed);
    return flw_min(bytes, flw_waitless_most(most));
}

/* Keep the need of the last two seconds; release idle memory above it after decay_ms. */
static void decay(struct flw_pool *pool)
{
    if (pool->config.decay_ms == UINT32_MAX) {
        return;
    }
    uint64_t now = flw_clock_coarse_ns(), last = atomic_load(&pool->demand.decay_ns);
    /* A thread with hits only never flushes its account: if memory may be released, the sum is worth the
     * lock. */
    flw_pool_note_demand(pool, flw_pool_requested(pool), now);
    if (last == 0 || now - last < pool->config.decay_ms * 1000000ull ||
        atomic_load(&pool->open_captures) != 0) {
        return;
    }
    atomic_store(&pool->demand.decay_ns, now);
    uint64_t most = flw_pool_demand(pool);
    uint64_t floor = flw_max(most + most / 8, waitless_floor(pool, most));
    if (atomic_load(&pool->heap.reserved_bytes) > floor) {
        (void)flw_pool_drain(pool, NULL, NULL);
        flw_pool_complete(pool);
        flw_pool_fence_all(pool); /* complete by the next call */
        (void)flw_heap_release_idle(&pool->heap, floor, 0);
    }
}

fallow_status fallow_pool_poll(fallow_pool *handle)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (flw_heap_is_lost(&pool->heap)) {
        return FALLOW_DEVICE_LOST;
    }
    struct flw_driver_section section;
    flw_heap_hold_driver(&pool->heap, &section);
    flw_pool_complete(pool);
    FLW_EACH_EXTENSION (pool, row, poll) {
        row->poll(pool);
    }
    if (flw_gate_enter(&pool->gate, false) == FALLOW_OK) {
        flw_pool_keep_limit(pool, 0);
        decay(pool);
        flw_gate_leave(&pool->gate);
    }
    flw_heap_leave_driver(&pool->heap, &section);
    flw_pool_note_loss(pool);
    return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : FALLOW_OK;
}
