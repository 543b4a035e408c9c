/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the end of a stream: closing the caches, covering the memory by a last fence, forgetting
 * the handle. */
#include "base/backoff.h"
#include "base/mutant.h"
#include "pool/state/extension.h"
#include "pool/state/table.h"
#include "pool/streams/cache.h"
#include "pool/streams/streams.h"

/* Let no thread record on the stream from here on. Heap lock held. */
static void forget_stream(struct flw_heap *heap, struct flw_domain *domain, bool is_covered)
{
    if (FLW_MUTANT(RETIRE_WITHOUT_FENCE)) {
        flw_domain_complete(heap, domain, domain->seq++);
    }
    if (!is_covered && !domain->is_lost) {
        flw_domain_lose_quietly(heap, domain); /* without a fence a context sync will cover it */
    }
    if (domain->is_known) {
        flw_places_forget_stream(&heap->places, domain);
        domain->is_retired = true;
        atomic_fetch_sub(&heap->stream_count, 1);
        atomic_fetch_add_explicit(&heap->count.order_changes, 1, memory_order_release);
    }
    flw_domain_free_place(heap, domain);
}

/* Record the last fence, again if another thread was recording: the fence may be older than the
 * last frees. The caller may destroy the stream at once, so one lock excludes both records and
 * queries under way, and new ones. */
static fallow_status close_stream(struct flw_heap *heap, struct flw_domain *domain)
{
    struct flw_driver_section section;
    bool is_inside = flw_heap_enter_driver(heap, &section);
    fallow_status status = is_inside ? FALLOW_OK : flw_heap_not_entered(heap);
    struct flw_backoff backoff = {0};
    for (bool is_open = true; is_open;) {
        if (is_inside && status == FALLOW_OK) {
            status = flw_domain_fence_own(heap, domain);
        }
        if (is_inside && status == FALLOW_OK) {
            status = flw_domain_clear(heap, domain); /* the stream cannot be queried later */
        }
        flw_lock_acquire(&heap->lock);
        is_open = domain->is_recording || domain->naming_count > 0 ||
                  (is_inside && status == FALLOW_OK &&
                   ((domain->unfenced_bytes > 0 && !FLW_MUTANT(RETIRE_FORGETS_LATE_FREES)) ||
                    flw_domain_has_uncleared(domain)));
        if (!is_open) {
            forget_stream(heap, domain, status == FALLOW_OK);
        }
        flw_lock_release(&heap->lock);
        if (is_open) {
            flw_backoff_wait(&backoff);
        }
    }
    if (is_inside) {
        flw_heap_leave_driver(heap, &section);
    }
    return status;
}

fallow_status fallow_stream_retire(fallow_pool *handle, fallow_stream stream)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    struct flw_heap *heap = &pool->heap;
    fallow_status status;
    struct flw_domain *domain = flw_pool_known_domain(pool, stream, &status);
    flw_pool_note_loss(pool);
    if (domain == NULL || flw_heap_is_lost(heap)) {
        return domain == NULL ? status : FALLOW_DEVICE_LOST;
    }
    if (flw_capture_is_on(domain)) {
        return FALLOW_BUSY;
    }
    FLW_EACH_EXTENSION (pool, row, stream_ends) { /* the handle is valid for no free afterwards */
        row->stream_ends(pool, stream);
    }
    if (!FLW_MUTANT(RETIRE_KEEPS_CACHES)) {
        flw_pool_close_caches(pool, domain);
    }
    flw_lock_acquire(&heap->lock);
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        flw_heap_carve_rest(heap, domain, c); /* before the fence, which must cover this too */
    }
    domain->unfenced_bytes++; /* always one: a released capture may rely on it */
    flw_lock_release(&heap->lock);
    status = close_stream(heap, domain);
    flw_pool_note_loss(pool);
    return status == FALLOW_DEVICE_LOST || status == FALLOW_INVALID_STREAM ? status : FALLOW_OK;
}
