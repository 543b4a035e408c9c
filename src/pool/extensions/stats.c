/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/extensions/stats.h"

#include "base/sized.h"
#include "heap/physical/range.h"
#include "pool/state/account.h"
#include "pool/state/extension.h"
#include "pool/state/settings.h"
#include "pool/state/table.h"
#include "pool/streams/cache.h"
#include "pool/streams/epoch.h"

FLW_DEFINE_INIT_SIZED(fallow_stats)

void flw_pool_read_stats(struct flw_pool *pool, fallow_stats *out_stats)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_pool_totals totals;
    fallow_stats stats = {0};
    stats.live_bytes = flw_pool_live(pool, &totals);
    stats.requested_bytes = flw_not_negative(totals.requested_bytes);
    stats.peak_requested_bytes = flw_not_negative(atomic_load(&pool->usage.recent_peak_bytes));
    int64_t unflushed = atomic_load(&pool->usage.requested_bytes) + totals.unflushed_peak_bytes;
    stats.peak_requested_bytes = flw_max(stats.peak_requested_bytes, flw_not_negative(unflushed));
    stats.peak_live_bytes =
        flw_pool_note_live(pool, stats.live_bytes); /* reported peaks never fall */
    stats.peak_live_bytes = flw_max(stats.peak_live_bytes, stats.peak_requested_bytes);
    stats.reserved_bytes = atomic_load(&heap->reserved_bytes);
    stats.peak_reserved_bytes = atomic_load(&heap->peak_reserved_bytes);
    /* A growth is counted before the driver call; the peak rises only after the call. */
    stats.reserved_bytes = flw_min(stats.reserved_bytes, stats.peak_reserved_bytes);
    stats.alloc_count = totals.allocs;
    stats.free_count = totals.frees;
    stats.live_count = totals.allocs - totals.frees;
    stats.hit_count = totals.allocs - totals.misses;
    stats.cached_bytes = totals.cached_bytes;
    stats.zero_size_count = atomic_load(&pool->usage.zero_sizes);
    stats.event_count = atomic_load(&heap->count.events);
    stats.steal_count = atomic_load(&heap->count.steals);
    stats.wait_count = atomic_load(&heap->count.waits);
    stats.driver_call_count = atomic_load(&heap->count.driver_calls);
    stats.question_count = atomic_load(&heap->count.questions);
    stats.remap_count = atomic_load(&heap->count.remaps);
    stats.remap_wait_count = atomic_load(&pool->climbs.remap_waits);
    stats.grow_count = atomic_load(&heap->count.grows);
    stats.trim_count = atomic_load(&heap->count.trims);
    stats.lost_streams = atomic_load(&heap->count.lost_streams);
    stats.misuse_count = atomic_load(&pool->usage.misuses);
    stats.oom_count = atomic_load(&pool->climbs.ooms);
    stats.bound_bytes = flw_pool_has_epochs(pool) ? flw_epoch_bound(stats.live_bytes) : 0;
    stats.stream_count = atomic_load(&heap->stream_count);
    uint32_t kinds = atomic_load(&heap->source.kinds);
    stats.uses_vmm = heap->source.ops->remaps;
    stats.page_source = stats.uses_vmm ? FALLOW_PAGES_HANDLES : FALLOW_PAGES_SEGMENTS;
    stats.handle_types = kinds & (FALLOW_HANDLE_FD | FALLOW_HANDLE_FABRIC);
    stats.allows_rdma = (kinds & FLW_HANDLE_RDMA) != 0;
    stats.uses_membarrier = atomic_load(&pool->uses_membarrier);
    stats.lost_membarrier = atomic_load(&pool->lost_membarrier);
    stats.is_asleep = flw_gate_is_asleep(&pool->gate);
    stats.asleep_bytes = atomic_load(&heap->asleep_bytes);
    stats.exported_bytes = atomic_load(&heap->exported_bytes);
    flw_lock_acquire(&pool->side_records.lock);
    uint64_t side_record_bytes = pool->side_records.meta.used_bytes;
    flw_lock_release(&pool->side_records.lock);
    flw_lock_acquire(&heap->lock);
    stats.deferred_bytes = heap->deferred_bytes;
    stats.captured_bytes = flw_pool_captured_bytes(pool);
    uint64_t touched_pages = flw_ranges_touched_pages(heap);
    stats.host_bytes = flw_page_map_host_bytes(&heap->map, touched_pages * heap->page_units) +
                       heap->objects.meta.used_bytes +
                       flw_stream_ids_host_bytes(&heap->stream_ids) + side_record_bytes +
                       touched_pages * sizeof *heap->page_handle;
    flw_lock_release(&heap->lock);
    uint64_t used =
        stats.live_bytes + stats.cached_bytes + stats.deferred_bytes + stats.captured_bytes;
    uint64_t all = stats.reserved_bytes + stats.asleep_bytes;
    stats.idle_bytes = all - flw_min(all, used);
    FLW_EACH_EXTENSION (pool, row, read_stats) {
        row->read_stats(pool, &stats);
    }
    *out_stats = stats;
}

fallow_status fallow_pool_get_stats(fallow_pool *handle, fallow_stats *out_stats)
{
    struct flw_pool *pool = flw_pool_of(handle);
    fallow_stats stats;
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (out_stats == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    flw_pool_read_stats(pool, &stats);
    return flw_struct_answer(out_stats, &stats, sizeof stats);
}

fallow_status fallow_pool_reset_peaks(fallow_pool *handle)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    flw_pool_reset_peaks(pool);
    flw_lock_acquire(&pool->heap.lock);
    uint64_t reserved = atomic_load(&pool->heap.reserved_bytes); /* including a growth under way */
    atomic_store(&pool->heap.peak_reserved_bytes,
                 flw_min(reserved, atomic_load(&pool->heap.peak_reserved_bytes)));
    flw_lock_release(&pool->heap.lock);
    return FALLOW_OK;
}

int fallow_pool_last_driver_error(fallow_pool *handle, const char **out_call)
{
    struct flw_pool *pool = flw_pool_of(handle);
    int error = 0;
    const char *call = NULL;
    if (pool != NULL) {
        error = atomic_load(&pool->heap.lost_error);
        call = atomic_load(&pool->heap.lost_call);
        if (error == 0) {
            error = atomic_load(&pool->heap.last_error);
            call = atomic_load(&pool->heap.last_call);
        }
    }
    if (out_call != NULL) {
        *out_call = call != NULL ? call : "";
    }
    return error;
}

/* As a turn of its own: memory that another thread is acquiring or releasing is counted before it
 * exists. */
static const char *find_broken_invariant(struct flw_pool *pool)
{
    bool has_begun = flw_gate_await_turn(&pool->gate);
    flw_gate_hold(&pool->gate);
    flw_lock_acquire(&pool->heap.lock);
    const char *broken = flw_heap_broken_invariant(&pool->heap);
    flw_lock_release(&pool->heap.lock);
    flw_gate_let_in(&pool->gate);
    if (has_begun) {
        flw_gate_end_turn(&pool->gate);
    }
    return broken;
}

fallow_status fallow_pool_validate(fallow_pool *handle)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    (void)flw_pool_drain(pool, NULL, NULL);
    const char *broken = find_broken_invariant(pool);
    if (broken != NULL) {
        flw_pool_log(pool, FALLOW_LOG_ERROR, "broken invariant: %s", broken);
        return FALLOW_DRIVER;
    }
    return FALLOW_OK;
}
