/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what follows where nothing has served: others are asked for memory (the caller's callback, other pools of the
 * device), then the out-of-memory report: why an allocation failed and who holds the memory.
 */
#include <stdio.h>

#include "base/sized.h"
#include "heap/physical/place.h"
#include "pool/ladder/climb.h"
#include "pool/ladder/owners.h"
#include "pool/state/account.h"
#include "pool/state/extension.h"
#include "pool/state/settings.h"
#include "pool/state/table.h"
#include "pool/streams/release.h"

/* ---- asking others */

/* takes the heap lock. Is the need kept from growing by the pool's own limit? Then no other pool can help. */
static bool is_at_limit(const struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    flw_lock_acquire(&heap->lock);
    uint64_t reserved = atomic_load(&heap->reserved_bytes);
    uint64_t idle = heap->idle_bytes + flw_domain_run_bytes(heap->domains[FLW_UNOWNED]);
    flw_lock_release(&heap->lock);
    return reserved - flw_min(reserved, idle) + climb->need_bytes > heap->limit_bytes;
}

bool flw_climb_ask_others(struct flw_climb *climb, uint64_t until_ns)
{
    if ((climb->need->flags & FALLOW_REQUEST_NO_GROW) != 0 || climb->is_refused ||
        flw_climb_lacks_host(climb) || is_at_limit(climb)) {
        return false; /* the need may not grow, or the driver would refuse the memory */
    }
    climb->awaits_device |=
        flw_pool_release_others(climb->pool, climb->need_bytes, until_ns) == FALLOW_TIMEOUT;
    return flw_climb_grow_to_limit(climb);
}

bool flw_stage_callback(struct flw_climb *climb)
{
    struct flw_pool *pool = climb->pool;
    bool any = false;
    if (pool->config.on_oom != NULL && !atomic_flag_test_and_set(&pool->climbs.in_callback)) {
        flw_gate_leave(&pool->gate); /* no thread waits for a callback, which may wait for a turn */
        struct flw_driver_section *paused = flw_section_pause();
        any = pool->config.on_oom(pool->config.oom_context, climb->need->size_bytes,
                                  (fallow_stream)climb->need->domain->stream) != 0;
        flw_section_resume(paused);
        atomic_flag_clear(&pool->climbs.in_callback);
        climb->gate_status = flw_gate_enter_again(&pool->gate);
        if (climb->gate_status != FALLOW_OK) {
            return false;
        }
    }
    if (any && (flw_climb_own_cache(climb) || flw_stage_caches(climb) || flw_climb_reclaim(climb) ||
                flw_stage_limit(climb))) {
        return true;
    }
    return flw_climb_ask_others(climb, 0);
}

/* ---- the report */

FLW_DEFINE_INIT_SIZED(fallow_oom_report)

/* heap lock. In units. */
static uint64_t largest_run(const struct flw_domain *domain)
{
    return flw_max(flw_run_index_largest(&domain->runs),
                   flw_run_index_largest(&domain->dedicated_runs));
}

/* heap lock */
static void read_addresses(const struct flw_heap *heap, const struct flw_need *need,
                           fallow_oom_report *report)
{
    struct flw_placement place;
    struct flw_grow_request request = flw_climb_request(heap, need);
    for (const struct flw_range *range = heap->ranges.lowest; range != NULL; range = range->next) {
        report->address_bytes += range->unit_count << FLW_UNIT_LOG2;
    }
    report->largest_address_bytes = (uint64_t)flw_run_index_largest(&heap->ranges.unmapped)
                                    << FLW_UNIT_LOG2;
    report->lacks_addresses = report->address_bytes > 0 && need->unit_count > 0 && /* no wake */
                              flw_place_would_serve(heap, &request) &&
                              !flw_place_find(heap, &request, &place);
}

static void log_report(struct flw_pool *pool, const fallow_oom_report *report)
{
    char addresses[256] = "";
    int answer = atomic_load(&pool->heap.ranges.refused_answer);
    if (report->lacks_addresses) {
        snprintf(addresses, sizeof addresses,
                 "; addresses are short: %llu bytes of addresses are reserved, the "
                 "largest unmapped range has %llu, and %s%s",
                 (unsigned long long)report->address_bytes,
                 (unsigned long long)report->largest_address_bytes,
                 answer == 0 ? "the process may not have more (ulimit -v)"
                             : "cuMemAddressReserve answered ",
                 answer == 0 ? "" : flw_driver_error_name(&pool->driver, (CUresult)answer));
    }
    flw_pool_log(pool, FALLOW_LOG_WARNING,
                 "out of memory: %llu bytes requested, %llu of %llu reserved, largest hole %llu, "
                 "%llu waiting for fences%s",
                 (unsigned long long)report->size_bytes, (unsigned long long)report->reserved_bytes,
                 (unsigned long long)report->limit_bytes,
                 (unsigned long long)report->largest_free_bytes,
                 (unsigned long long)report->deferred_bytes, addresses);
}

void flw_oom_report_fill(struct flw_pool *pool, const struct flw_need *need)
{
    struct flw_heap *heap = &pool->heap;
    fallow_oom_report report = {.device_free_bytes = flw_climb_device_free(heap)};
    atomic_fetch_add(&pool->climbs.ooms, 1);
    report.size_bytes = need->size_bytes;
    report.limit_bytes = heap->limit_bytes;
    report.requested_bytes = flw_not_negative(flw_pool_requested(pool));
    flw_owners_fill(pool, &report);
    flw_lock_acquire(&heap->lock);
    report.reserved_bytes = atomic_load(&heap->reserved_bytes);
    uint64_t own = largest_run(need->domain), unowned = largest_run(heap->domains[FLW_UNOWNED]);
    report.largest_free_bytes = flw_max(own, unowned) << FLW_UNIT_LOG2;
    report.free_bytes = heap->idle_bytes;
    for (uint32_t i = 0; i < heap->domain_end; i++) {
        report.free_bytes += flw_domain_run_bytes(heap->domains[i]);
    }
    read_addresses(heap, need, &report);
    report.deferred_bytes = heap->deferred_bytes;
    report.captured_bytes = flw_pool_captured_bytes(pool);
    flw_lock_release(&heap->lock);
    report.fragmentation = report.free_bytes == 0 ? 0
                                                  : 1.0 - (double)report.largest_free_bytes /
                                                              (double)report.free_bytes;
    for (unsigned i = 0; i < FLW_STAGE_COUNT; i++) {
        report.stage_count[i] = atomic_load(&pool->climbs.count[i]);
        report.stage_ns[i] = atomic_load(&pool->climbs.ns[i]);
    }
    flw_lock_acquire(&pool->climbs.report_lock);
    pool->climbs.report = report;
    flw_lock_release(&pool->climbs.report_lock);
    log_report(pool, &report);
    FLW_EACH_EXTENSION (pool, row, failed) {
        row->failed(pool, need->domain, &report);
    }
}

/* The host has no memory for a table: a line that says why. */
static void tell_host_refusal(const struct flw_climb *climb)
{
    struct flw_pool *pool = climb->pool;
    const struct flw_heap *heap = climb->heap;
    unsigned long long asked = climb->need->size_bytes;
    if (flw_tables_are_full(heap)) {
        flw_pool_log(
            pool, FALLOW_LOG_WARNING,
            "out of host memory, not of device memory: %llu bytes requested, and the "
            "pool's tables are full at %llu MiB of addresses; if a limit of the "
            "address space made them small, lift it (ulimit -v unlimited)",
            asked, (unsigned long long)(flw_tables_reserve_bytes(heap, heap->table_shrink) >> 20));
    } else {
        flw_pool_log(
            pool, FALLOW_LOG_WARNING,
            "out of host memory, not of device memory: %llu bytes requested, and the "
            "host refuses more for the pool's tables: check ulimit -d, ulimit -v and the memory limit of "
            "the container",
            asked);
    }
}

/* A line that names the call, where the driver refused the growth that would have served: of the first,
 * second, fourth and so on such request in a row. */
static void tell_refusal(const struct flw_climb *climb)
{
    const struct flw_heap *heap = climb->heap;
    const char *call = atomic_load(&heap->last_call);
    if ((climb->status != FALLOW_DRIVER && climb->status != FALLOW_NOT_SUPPORTED) || call == NULL) {
        return;
    }
    uint64_t count = atomic_fetch_add(&climb->pool->climbs.refused_requests, 1) + 1;
    if (flw_is_pow2(count)) {
        flw_pool_log(
            climb->pool, FALLOW_LOG_WARNING,
            "no %llu bytes: %s answered %s; the pool is unchanged, and the next request that needs more memory "
            "calls the driver again (%llu refused since the last success)",
            (unsigned long long)climb->need->size_bytes, call,
            flw_driver_error_name(&climb->pool->driver, (CUresult)atomic_load(&heap->last_error)),
            (unsigned long long)count);
    }
}

static void check_wait(struct flw_climb *climb,
                       bool (*may_come)(const struct flw_heap *heap, const struct flw_need *need))
{
    if (may_come != NULL && (climb->need->flags & FALLOW_REQUEST_NO_WAIT) != 0) {
        flw_lock_acquire(&climb->heap->lock);
        bool may = climb->awaits_device || may_come(climb->heap, climb->need);
        flw_lock_release(&climb->heap->lock);
        climb->status = may ? FALLOW_WOULD_WAIT : climb->status;
    }
}

fallow_status flw_climb_fail(struct flw_climb *climb, unsigned fail,
                             bool (*may_come)(const struct flw_heap *heap,
                                              const struct flw_need *need))
{
    if (flw_climb_lacks_host(climb)) {
        climb->status = FALLOW_OUT_OF_HOST_MEMORY;
        tell_host_refusal(climb);
    } else if (climb->status == FALLOW_OUT_OF_MEMORY) {
        check_wait(climb, may_come);
    }
    if (climb->status == FALLOW_OUT_OF_MEMORY) {
        flw_oom_report_fill(climb->pool, climb->need);
    }
    tell_refusal(climb);
    flw_climb_note_last(climb->pool, climb->need, fail);
    return climb->status;
}

fallow_status fallow_pool_get_oom_report(fallow_pool *handle, fallow_oom_report *out_report)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (out_report == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    flw_lock_acquire(&pool->climbs.report_lock);
    fallow_oom_report report = pool->climbs.report;
    flw_lock_release(&pool->climbs.report_lock);
    return flw_struct_answer(out_report, &report, sizeof report);
}
