/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the pool says of itself: statistics, what the driver or the host refused it, block
 * information, validation. The out-of-memory report is oom.c's.
 */

#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "heap/tables.h"
#include "pool/extension.h"

FLW_DEFINE_INIT_SIZED(fallow_stats)
FLW_DEFINE_INIT_SIZED(fallow_block)

uint64_t flw_pool_captured_bytes(const struct flw_pool *pool)
{
    uint64_t bytes = 0;
    for (uint32_t i = 1; i < pool->heap.domain_end; i++) {
        const struct flw_domain *domain = pool->heap.domains[i];
        if (domain->capture != 0) {
            bytes += domain->captured_bytes + flw_domain_run_bytes(domain);
        }
    }
    return bytes;
}

void flw_pool_read_stats(struct flw_pool *pool, fallow_stats *out_stats)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_pool_totals totals;
    fallow_stats stats = {0};
    stats.live_bytes = flw_pool_live(pool, &totals);
    stats.requested_bytes = flw_not_negative(totals.requested_bytes);
    stats.peak_requested_bytes = flw_not_negative(atomic_load(&pool->peak_requested_bytes));
    int64_t unsettled = atomic_load(&pool->requested_bytes) + totals.unsettled_peak_bytes;
    stats.peak_requested_bytes = flw_max(stats.peak_requested_bytes, flw_not_negative(unsettled));
    uint64_t most = atomic_load(&pool->peak_live_bytes);
    while (stats.live_bytes > most &&
           !atomic_compare_exchange_weak(&pool->peak_live_bytes, &most, stats.live_bytes)) {
    }
    stats.peak_live_bytes = flw_max(stats.live_bytes, most); /* what was told is kept */
    stats.reserved_bytes = atomic_load(&heap->reserved_bytes);
    stats.peak_reserved_bytes = atomic_load(&heap->peak_reserved_bytes);
    stats.alloc_count = totals.allocs;
    stats.free_count = totals.frees;
    stats.live_count = totals.allocs - totals.frees;
    stats.hit_count = totals.allocs - totals.misses;
    stats.cached_bytes = totals.cached_bytes;
    stats.zero_size_count = atomic_load(&pool->zero_sizes);
    stats.event_count = atomic_load(&heap->count.events);
    stats.steal_count = atomic_load(&heap->count.steals);
    stats.wait_count = atomic_load(&heap->count.waits);
    stats.driver_call_count = atomic_load(&heap->count.driver_calls);
    stats.remap_count = atomic_load(&heap->count.remaps);
    stats.remap_wait_count = atomic_load(&pool->remap_waits);
    stats.grow_count = atomic_load(&heap->count.grows);
    stats.trim_count = atomic_load(&heap->count.trims);
    stats.lost_streams = atomic_load(&heap->count.lost_streams);
    stats.misuse_count = atomic_load(&pool->misuses);
    stats.oom_count = atomic_load(&pool->ooms);
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
    flw_lock_acquire(&pool->uses_lock);
    uint64_t note_bytes = pool->note_meta.used_bytes;
    flw_lock_release(&pool->uses_lock);
    flw_lock_acquire(&heap->lock);
    stats.pending_bytes = heap->pending_bytes;
    stats.captured_bytes = flw_pool_captured_bytes(pool);
    stats.host_bytes =
        flw_page_map_host_bytes(&heap->map, heap->mapped_page_end * heap->page_units) +
        heap->object_meta.used_bytes + flw_lenders_host_bytes(&heap->lenders) + note_bytes +
        heap->mapped_page_end * sizeof *heap->page_handle;
    flw_lock_release(&heap->lock);
    FLW_EACH_EXTENSION(pool, row, read_stats) {
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

/* ---- what the driver refused */

static const struct {
    fallow_log_level level;
    uint32_t type;
    const char *name, *consequence;
} refusals[FLW_REFUSED_COUNT] = {
    [FLW_REFUSED_FABRIC] = {FALLOW_LOG_INFO, FALLOW_HANDLE_FABRIC, "fabric handles",
                            "other nodes cannot map this memory; that takes an IMEX channel"},
    [FLW_REFUSED_FD] = {FALLOW_LOG_WARNING, FALLOW_HANDLE_FD, "handles with file descriptors",
                        "other processes cannot map this memory"},
    [FLW_REFUSED_RDMA] = {FALLOW_LOG_WARNING, 0, "handles for network adapters",
                          "what registers memory with them may refuse this memory; page_source "
                          "segments has none of it"},
    [FLW_REFUSED_HANDLES] =
        {FALLOW_LOG_WARNING, 0, "virtual memory management",
         "memory comes in segments of cuMemAlloc, which move as wholes only, and "
         "do not sleep"},
};

/* "cuMemCreate answered CUDA_ERROR_NOT_PERMITTED"; false: it was not refused. */
static bool read_refusal(const struct flw_pool *pool, unsigned kind, char *text, size_t room)
{
    const struct flw_refusal *refusal = &pool->heap.source.refusals[kind];
    const char *call = atomic_load(&refusal->call);
    if (call != NULL) {
        snprintf(text, room, "%s answered %s", call,
                 flw_driver_error_name(&pool->driver, (CUresult)atomic_load(&refusal->answer)));
    }
    return call != NULL;
}

void flw_pool_say_refusals(struct flw_pool *pool)
{
    char text[128];
    bool remaps = pool->heap.source.ops->remaps;
    for (unsigned kind = 0; kind < FLW_REFUSED_COUNT; kind++) {
        if (remaps != (kind == FLW_REFUSED_HANDLES) &&
            read_refusal(pool, kind, text, sizeof text) &&
            (atomic_fetch_or(&pool->said_refusals, 1u << kind) & 1u << kind) == 0) {
            flw_pool_log(pool, refusals[kind].level, "no %s: %s: %s", refusals[kind].name, text,
                         refusals[kind].consequence);
        }
    }
}

#define SAID_INSISTED (1u << FLW_REFUSED_COUNT)

void flw_pool_say_insisted(struct flw_pool *pool)
{
    const char *call = atomic_load(&pool->heap.last_call);
    if (pool->config.handle_types == 0 || call == NULL || strcmp(call, "cuMemCreate") != 0 ||
        (atomic_fetch_or(&pool->said_refusals, SAID_INSISTED) & SAID_INSISTED) != 0) {
        return;
    }
    flw_pool_log(
        pool, FALLOW_LOG_ERROR,
        "%s answered %s for a handle of the kinds that handle_types names: other kinds may "
        "be had, leave it out",
        call, flw_driver_error_name(&pool->driver, (CUresult)atomic_load(&pool->heap.last_error)));
}

/* What was insisted on, and what to do. */
static void say_unsupported(const struct flw_pool *pool)
{
    const fallow_pool_config *config = &pool->config;
    char text[128] = "the device or the driver is without it";
    unsigned kind = FLW_REFUSED_FABRIC;
    while (kind < FLW_REFUSED_HANDLES && ((config->handle_types & refusals[kind].type) == 0 ||
                                          !read_refusal(pool, kind, text, sizeof text))) {
        kind++;
    }
    if (kind == FLW_REFUSED_HANDLES) {
        (void)read_refusal(pool, kind, text, sizeof text);
    }
    flw_pool_log(pool, FALLOW_LOG_ERROR, "the setting %s needs %s: %s: leave it out",
                 config->handle_types != 0        ? "handle_types"
                 : config->peer_device_count != 0 ? "peer_devices"
                                                  : "page_source",
                 refusals[kind].name, text);
}

/* ---- what came to nothing */

#define MIB_OF(bytes) ((unsigned long long)((bytes) >> 20))

void flw_pool_say_no_tables(const struct flw_pool *pool)
{
    const struct flw_heap *heap = &pool->heap;
    uint64_t least = flw_tables_reserve_bytes(heap, FLW_TABLE_SHRINK_MAX);
    uint64_t allowance = flw_meta_allowance();
    if (allowance == UINT64_MAX) {
        flw_pool_log(pool, FALLOW_LOG_ERROR,
                     "the pool cannot be set up: the host refused memory for its tables: look at "
                     "ulimit -d and at vm.overcommit_memory");
    } else {
        flw_pool_log(
            pool, FALLOW_LOG_ERROR,
            "the pool cannot be set up: its tables take at least %llu MiB of addresses, and "
            "%llu MiB are left: lift the limit of the address space (ulimit -v unlimited)",
            MIB_OF(least), MIB_OF(allowance));
    }
}

void flw_pool_say_small_tables(const struct flw_pool *pool)
{
    const struct flw_heap *heap = &pool->heap;
    flw_pool_log(
        pool, FALLOW_LOG_WARNING,
        "the address space is limited: the pool's tables take %llu MiB of it, not %llu MiB, "
        "and have room for about %llu million blocks, lent and free; one more answers %s "
        "(ulimit -v unlimited lifts it)",
        MIB_OF(flw_tables_reserve_bytes(heap, heap->table_shrink)),
        MIB_OF(flw_tables_reserve_bytes(heap, 0)),
        MIB_OF(flw_page_map_slot_count(heap->table_shrink)),
        fallow_status_name(FALLOW_OUT_OF_HOST_MEMORY));
}

void flw_pool_say_no_heap(const struct flw_pool *pool, fallow_status status)
{
    if (status == FALLOW_NOT_SUPPORTED) {
        say_unsupported(pool);
        return;
    }
    int error = atomic_load(&pool->heap.last_error);
    const char *call = atomic_load(&pool->heap.last_call);
    if (error == 0 && status == FALLOW_OUT_OF_HOST_MEMORY) {
        flw_pool_say_no_tables(pool);
        return;
    }
    flw_pool_log(pool, FALLOW_LOG_ERROR, "the pool cannot be set up: %s%s%s",
                 error != 0 ? call : fallow_status_message(status), error == 0 ? "" : " answered ",
                 error == 0 ? "" : flw_driver_error_name(&pool->driver, (CUresult)error));
}

void flw_pool_say_what_stays(const struct flw_pool *pool, uint64_t bytes)
{
    const char *call = atomic_load(&pool->heap.last_call);
    flw_pool_log(
        pool, FALLOW_LOG_ERROR,
        "%llu bytes%s stay with the driver until the process ends: %s answered %s",
        (unsigned long long)bytes, bytes == 0 ? " of memory, but addresses or events," : "",
        call == NULL ? "a call" : call,
        flw_driver_error_name(&pool->driver, (CUresult)atomic_load(&pool->heap.last_error)));
}

/* ---- one block */

static enum fallow_block_state state_of(uint64_t word)
{
    switch ((enum flw_slot_state)(word & FLW_SLOT_STATE_MASK)) {
    case FLW_SLOT_LIVE:
    case FLW_SLOT_LIVE_USED:
    case FLW_SLOT_LIVE_SPECIAL:
        return FALLOW_BLOCK_LIVE;
    case FLW_SLOT_LIVE_CAPTURED:
        return FALLOW_BLOCK_CAPTURED;
    case FLW_SLOT_HELD:
        return FALLOW_BLOCK_PENDING;
    case FLW_SLOT_FREE:
        break;
    }
    return FALLOW_BLOCK_FREE;
}

static const struct flw_span *run_of(const struct flw_span *span)
{
    return span->kind == FLW_SPAN_SLAB ? span->u.slab.run : span;
}

/* A run's header says the truth of where it is now, however it was reached. */
static bool contains(const struct flw_span *run, uint64_t unit)
{
    return run->kind == FLW_SPAN_RUN && unit >= run->u.run.begin_unit &&
           unit - run->u.run.begin_unit < run->u.run.unit_count;
}

/* heap lock. The run around a unit of a segment; NULL: it is in none. */
static const struct flw_span *run_of_segment(const struct flw_heap *heap, uint64_t unit)
{
    const struct flw_segment *segment = heap->segments;
    while (segment != NULL && unit - segment->begin_unit >= segment->unit_count) {
        segment = segment->next;
    }
    const struct flw_span *run = segment != NULL ? segment->edge->u.run.right : NULL;
    while (run != NULL && !contains(run, unit)) {
        run = run->u.run.right;
    }
    return run;
}

/* heap lock. The run of a block around a unit of the range; NULL: none, or a free one. A block of a cell
 * or more has a name in the cell where it begins: walk left, to it, to what ends before, or to where
 * nothing is mapped. */
static const struct flw_span *run_of_cells(const struct flw_heap *heap, uint64_t unit)
{
    const struct flw_page_map *map = &heap->map;
    for (uint64_t cell = unit / FLW_CELL_UNITS + 1, last = unit; cell-- > 0;
         last = cell * FLW_CELL_UNITS - 1) {
        uint64_t name = flw_page_map_cells(map)[cell];
        const struct flw_span *run =
            run_of((const struct flw_span *)(const void *)(map->spans + name));
        if (last / heap->page_units >= heap->mapped_page_end ||
            heap->page_handle[last / heap->page_units] == NULL) {
            return NULL;
        }
        if (contains(run, unit)) {
            return run;
        }
        if (contains(run, last) || contains(run, cell * FLW_CELL_UNITS)) {
            return NULL;
        }
    }
    return NULL;
}

/* heap lock. The slab or run that contains an offset; NULL: none that anything is lent of. */
static const struct flw_span *span_containing(const struct flw_heap *heap, uint64_t offset)
{
    uint64_t unit = offset >> FLW_UNIT_LOG2;
    const struct flw_span *run = run_of(flw_page_map_span_at(&heap->map, offset));
    if (!contains(run, unit)) {
        run = heap->map.has_cells ? run_of_cells(heap, unit) : run_of_segment(heap, unit);
    }
    return run != NULL && run->u.run.slab != NULL ? run->u.run.slab : run;
}

/* What the caller holds of the front's raw block; false: the address is not the caller's. */
static bool describe_user(const struct flw_extension *front, struct flw_pool *pool, uint64_t address,
                          fallow_block *block)
{
    struct flw_view view;
    if (!front->view_raw(pool, (uint64_t)(uintptr_t)block->base, &view) ||
        address - view.user >= view.size_bytes) {
        return false;
    }
    block->handle_offset += view.user - (uint64_t)(uintptr_t)block->base;
    block->usable_bytes = view.size_bytes;
    block->requested_bytes = view.size_bytes;
    block->stream_id = view.stream_id;
    block->base = (void *)(uintptr_t)view.user;
    return true;
}

fallow_status fallow_block_info(fallow_pool *handle, const void *ptr, fallow_block *out_block)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (out_block == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    struct flw_heap *heap = &pool->heap;
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    uint64_t offset = flw_page_map_offset(&heap->map, address);
    fallow_block block = {0};
    const struct flw_slot *slot = NULL;
    if (address - heap->map.base != offset) {
        return FALLOW_INVALID_POINTER;
    }
    flw_lock_acquire(&heap->lock);
    const struct flw_span *span = span_containing(heap, offset);
    if (span != NULL) {
        slot = flw_page_map_slot_at(&heap->map, span, offset);
        block.usable_bytes = flw_span_usable_bytes(span);
    }
    uint64_t word = slot == NULL ? 0 : __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
    uint64_t base = word & ~FLW_SLOT_STATE_MASK;
    bool is_known = word != 0 && address >= base && address < base + block.usable_bytes;
    if (is_known) {
        const struct flw_handle *physical = flw_heap_handle_at(heap, base - heap->map.base);
        block.base = (void *)(uintptr_t)base;
        uint64_t loan = __atomic_load_n(&slot->loan, __ATOMIC_RELAXED);
        block.requested_bytes = flw_loan_bytes(loan);
        block.stream_id = flw_lenders_id(&heap->lenders, loan);
        block.state = state_of(word);
        if (physical != NULL) {
            block.handle = physical->id;
            block.handle_bytes = (uint64_t)physical->unit_count << FLW_UNIT_LOG2;
            block.handle_offset =
                base - heap->map.base - ((uint64_t)physical->begin_unit << FLW_UNIT_LOG2);
        }
    }
    flw_lock_release(&heap->lock);
    const struct flw_extension *front = flw_pool_front(pool);
    if (is_known && front != NULL) {
        is_known = describe_user(front, pool, address, &block);
    }
    if (!is_known) {
        return FALLOW_INVALID_POINTER;
    }
    flw_lock_acquire(&pool->uses_lock);
    const struct flw_note *note = flw_note_find(pool, base);
    block.tag = note != NULL ? note->tag : 0;
    flw_lock_release(&pool->uses_lock);
    return flw_struct_answer(out_block, &block, sizeof block);
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

/* As a turn of its own: what another thread is getting from the driver, or giving back, is counted
 * before it is there. */
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
