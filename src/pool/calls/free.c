/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/calls/free.h"

#include <errno.h>
#include <string.h>

#include "pool/calls/hit_context.h"
#include "pool/state/account.h"
#include "pool/state/extension.h"
#include "pool/state/side_records.h"
#include "pool/state/table.h"
#include "pool/streams/bounds.h"
#include "pool/streams/cache.h"
#include "pool/streams/capture.h"
#include "pool/streams/current.h"
#include "pool/streams/epoch.h"
#include "pool/streams/uses.h"

/* Return how many slots leave a full bin: half, so that it has both room and slots; all if another
 * thread allocates. */
static uint64_t flush_count(struct flw_bin *bin)
{
    uint64_t count = (uint32_t)bin->pops == bin->seen_pops ? bin->count : (bin->count + 1) / 2;
    bin->seen_pops = (uint32_t)bin->pops;
    return count;
}

/* Make room for one slot: return the older half of a full bin to the heap, or all. */
static void make_room(struct flw_pool *pool, struct flw_tcache *cache, struct flw_bin *bin,
                      unsigned class_index)
{
    flw_pool_widen_bin(pool, cache, bin, class_index);
    if (bin->count < bin->capacity) {
        return;
    }
    uint64_t out = flush_count(bin);
    flw_lock_acquire(&pool->heap.lock);
    flw_heap_put_slots(&pool->heap, cache->domain, class_index, bin->slots, (uint32_t)out);
    flw_lock_release(&pool->heap.lock);
    bin->moved_out += out;
    bin->count -= out;
    memmove(bin->slots, bin->slots + out, bin->count * sizeof *bin->slots);
}

static void free_slot(struct flw_pool *pool, struct flw_tcache *cache, struct flw_span *slab,
                      struct flw_slot *slot)
{
    unsigned class_index = slab->u.slab.class_index;
    struct flw_bin *bin = flw_tcache_bin(cache, class_index);
    flw_lock_acquire(&cache->lock);
    if (bin->count >= bin->capacity) {
        make_room(pool, cache, bin, class_index);
    }
    flw_pool_account(cache->hot.account, -(int64_t)flw_allocation_bytes(slot->allocation));
    bin->slots[bin->count++] = slot;
    flw_lock_release(&cache->lock);
    flw_pool_flush_account(pool, cache->hot.account);
}

static void free_run(struct flw_pool *pool, struct flw_tcache *cache, struct flw_span *run,
                     const struct flw_slot *slot)
{
    flw_lock_acquire(&cache->lock);
    flw_pool_account(cache->hot.account, -(int64_t)flw_allocation_bytes(slot->allocation));
    cache->run_pushes++;
    cache->fence_left_bytes -= (int64_t)flw_run_bytes(run);
    cache->run_limit_bytes = flw_pool_run_limit(pool);
    flw_lock_acquire(&pool->heap.lock);
    flw_domain_owe(&pool->heap, cache->domain);
    bool may_cache = cache->is_open;
    bool is_cached = may_cache && flw_tcache_push_run(cache, run);
    if (may_cache && !is_cached) {
        flw_tcache_clear_runs(cache, &pool->heap);
        is_cached = flw_tcache_push_run(cache, run);
    }
    if (!is_cached) {
        cache->run_out_bytes -= flw_run_bytes(run);
        flw_heap_put_run(&pool->heap, cache->domain, run);
    }
    flw_lock_release(&pool->heap.lock);
    flw_lock_release(&cache->lock);
    flw_pool_flush_account(pool, cache->hot.account);
}

/* Defer a block that other streams still use, or that was freed inside a capture. */
static fallow_status hold_back(struct flw_pool *pool, struct flw_domain *domain,
                               struct flw_slot *slot, const struct flw_side_record *side)
{
    return flw_side_record_has_uses(side) ? flw_uses_free(pool, domain, slot, side)
                                          : flw_capture_park(pool, domain, slot);
}

/* Return the new owner of a captured block: the capture, or the freeing stream after the capture's
 * release. NULL: no host memory. Heap lock held. */
static struct flw_domain *leave_capture(struct flw_pool *pool, struct flw_domain *freeing,
                                        struct flw_span *span, bool has_uses)
{
    bool is_slab = span->kind == FLW_SPAN_SLAB;
    uint32_t owner = is_slab ? span->u.slab.domain : span->u.run.owner;
    struct flw_domain *domain = pool->heap.domains[owner];
    domain->captured_live--;
    domain->captured_bytes += is_slab ? flw_class_bytes(span->u.slab.class_index) : 0;
    if (domain->ops == &flw_order_capture) {
        domain = flw_capture_home_of(pool, domain, freeing, has_uses);
    } else {
        if (domain->captured_live == 0) {
            flw_places_vacate(&pool->heap.places, domain);
        }
        domain = freeing;
    }
    if (is_slab && domain == freeing) {
        flw_heap_open_slab(&pool->heap, span);
    }
    return domain;
}

/* Free a captured block with a word of HELD. */
static fallow_status free_captured(struct flw_pool *pool, struct flw_account *account,
                                   struct flw_domain *freeing, struct flw_span *span,
                                   struct flw_slot *slot, const struct flw_side_record *side)
{
    struct flw_heap *heap = &pool->heap;
    bool has_uses = flw_side_record_has_uses(side);
    uint64_t usable = flw_span_usable_bytes(span);
    flw_pool_note_special(pool, account, -(int64_t)flw_allocation_bytes(slot->allocation),
                          -(int64_t)usable);
    flw_lock_acquire(&heap->lock);
    struct flw_domain *domain = leave_capture(pool, freeing, span, has_uses);
    bool is_ordinary = domain == freeing;
    if (is_ordinary && (has_uses || flw_capture_is_on(domain))) {
        flw_lock_release(&heap->lock);
        return hold_back(pool, domain, slot, side);
    }
    if (domain != NULL) {
        flw_heap_put_block(heap, domain, slot);
    } else { /* no host memory: lost until the pool ends, without an error */
        flw_slot_set_word(slot, flw_slot_address(slot));
    }
    flw_lock_release(&heap->lock);
    return FALLOW_OK;
}

/* Fence the memory that the call's stream has freed. */
static void fence_own(struct flw_pool *pool, struct flw_domain *domain)
{
    if (!flw_uses_fence_later(pool, domain)) {
        (void)flw_domain_fence_own(&pool->heap, domain);
    }
}

static void fence_if_due(struct flw_pool *pool, struct flw_domain *domain)
{
    struct flw_driver_section section;
    if (flw_pool_is_use_fence_due(pool) && !flw_heap_is_lost(&pool->heap)) {
        flw_uses_fence(pool);
        bool is_one = atomic_load_explicit(&pool->heap.stream_count, memory_order_relaxed) < 2;
        if (is_one && flw_heap_enter_mode(&pool->heap, &section)) {
            (void)flw_heap_poll(&pool->heap);
            flw_heap_leave_driver(&pool->heap, &section);
        }
    }
    flw_uses_fence_late(pool);
    if (flw_pool_is_stream_fence_due(pool, domain) && !flw_capture_is_on(domain) &&
        !flw_heap_is_lost(&pool->heap) &&
        (pool->config.streams_may_die || flw_budget_take_credit(&pool->budget))) {
        fence_own(pool, domain);
    }
}

/* While a pool grows, memory that it frees should be found complete before the next growth, which
 * otherwise finds nothing to move. So for half a peak of freed bytes after a growth there is a
 * fence per thirty-second of the peak (measured on the recorded traces at a lag of 200 events:
 * 1.03 and 1.04 times the requested bytes instead of 1.08 and 1.06). A repeating step does not
 * grow and so records none; nor does a pool in its steady state after the last growth. */
#define FENCES_MOST 16

bool flw_pool_earns_fence(const struct flw_pool *pool, struct flw_tcache *cache)
{
    uint64_t peak =
        (uint64_t)atomic_load_explicit(&pool->usage.peak_requested_bytes, memory_order_relaxed);
    uint64_t grows = atomic_load_explicit(&pool->heap.count.grows, memory_order_relaxed);
    uint64_t step = flw_max(peak / (2 * FENCES_MOST), 16 * FLW_MIB);
    cache->fence_step_bytes = (int64_t)step;
    cache->fence_left_bytes = (int64_t)step;
    if (FLW_UNLIKELY(grows != cache->fence_grow_count)) {
        cache->fence_grow_count = grows;
        bool is_steady = grows == atomic_load(&pool->budget.steady_grows);
        cache->fence_credits = is_steady ? 0 : flw_clamp(peak / 2 / step, 2, FENCES_MOST);
    }
    return cache->fence_credits != 0 &&
           (cache->domain->own_thread_only || !flw_pool_leaves_fences(pool));
}

static void fence_after_growth(struct flw_pool *pool, struct flw_tcache *cache)
{
    if (flw_capture_is_on(cache->domain) || flw_heap_is_lost(&pool->heap)) {
        return;
    }
    cache->fence_credits--;
    flw_lock_acquire(&pool->heap.lock);
    cache->domain->unfenced_bytes++; /* cached runs have the present sequence number too */
    flw_lock_release(&pool->heap.lock);
    fence_own(pool, cache->domain);
    /* Memory first empties caches as rarely as possible; for a single other stream it costs more
     * (3 % on a serving trace). */
    if (pool->config.economy != FALLOW_MEMORY_FIRST &&
        atomic_load_explicit(&pool->heap.stream_count, memory_order_relaxed) > 2) {
        flw_lock_acquire(&cache->lock);
        flw_tcache_limit_runs(cache, &pool->heap);
        flw_lock_release(&cache->lock);
    }
}

void flw_pool_keep_up(struct flw_pool *pool, struct flw_tcache *cache, bool earns_fence)
{
    if (cache->context_id != 0) {
        flw_epoch_close_if_due(pool);
        earns_fence = false;
    } else {
        fence_if_due(pool, cache->domain);
    }
    if (earns_fence) {
        fence_after_growth(pool, cache);
    }
    if (pool->config.decay_ms != UINT32_MAX) {
        flw_pool_note_demand(pool, atomic_load(&pool->usage.requested_bytes),
                             flw_clock_coarse_ns());
    }
    flw_pool_note_loss(pool);
}

static fallow_status misuse(struct flw_pool *pool)
{
    atomic_fetch_add(&pool->usage.misuses, 1);
    return FALLOW_INVALID_POINTER;
}

/* Free a block that the caller owns: the word changed from live to `held`. */
static fallow_status free_claimed(struct flw_pool *pool, struct flw_tcache *cache,
                                  struct flw_span *span, struct flw_slot *slot,
                                  enum flw_slot_state was)
{
    struct flw_side_record side = {0};
    if (was != FLW_SLOT_LIVE) {
        (void)flw_side_record_take(pool, flw_slot_address(slot), &side);
    }
    if (was == FLW_SLOT_LIVE_CAPTURED) {
        return free_captured(pool, cache->hot.account, cache->domain, span, slot, &side);
    }
    bool is_exported =
        was != FLW_SLOT_LIVE && flw_uses_is_exported(pool, span) && !FLW_MUTANT(EXPORTED_IS_REUSED);
    if (is_exported || flw_side_record_has_uses(&side) || flw_capture_is_on(cache->domain)) {
        bool is_slab = span->kind == FLW_SPAN_SLAB;
        uint64_t usable = flw_span_usable_bytes(span);
        flw_lock_acquire(&cache->lock);
        if (is_slab) { /* in and out at once, without the bin */
            flw_tcache_use_bin(cache, span->u.slab.class_index)->moved_out++;
        } else {
            cache->run_pushes++;
            cache->run_out_bytes -= usable;
        }
        flw_pool_account(cache->hot.account, -(int64_t)flw_allocation_bytes(slot->allocation));
        flw_lock_release(&cache->lock);
        flw_pool_flush_account(pool, cache->hot.account);
        if (!is_exported) {
            return hold_back(pool, cache->domain, slot, &side);
        }
        (void)flw_uses_free(pool, cache->domain, slot, &side);
        FLW_EACH_EXTENSION (pool, row, exported_freed) {
            row->exported_freed(pool);
        }
        return FALLOW_OK;
    }
    flw_slot_set_word(slot, flw_slot_address(slot));
    if (cache->context_id != 0 && was == FLW_SLOT_LIVE_USED) {
        return flw_epoch_evict(pool, cache, span, slot);
    }
    if (cache->context_id != 0) {
        flw_epoch_free(pool, cache, span, slot);
    } else if (span->kind == FLW_SPAN_SLAB) {
        free_slot(pool, cache, span, slot);
    } else {
        free_run(pool, cache, span, slot);
    }
    return FALLOW_OK;
}

fallow_status flw_pool_free(struct flw_pool *pool, void *ptr, fallow_stream stream)
{
    struct flw_driver_section section;
    stream = flw_pool_has_epochs(pool) ? NULL : stream;
    flw_heap_hold_driver(&pool->heap, &section);
    const struct flw_extension *front = flw_pool_front(pool);
    fallow_status status =
        front != NULL ? front->free(pool, ptr, stream) : flw_pool_free_plain(pool, ptr, stream);
    flw_heap_leave_driver(&pool->heap, &section);
    return status;
}

/* Return the slot of the live block at the address, with the span and word. NULL: none. */
static struct flw_slot *find_live(const struct flw_pool *pool, uint64_t address,
                                  struct flw_span **out_span, uint64_t *out_word)
{
    uint64_t offset = flw_page_map_offset(&pool->heap.map, address);
    *out_span = flw_page_map_span_at(&pool->heap.map, offset);
    struct flw_slot *slot = flw_page_map_slot_at(&pool->heap.map, *out_span, offset);
    uint64_t word = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
    uint64_t state = word & FLW_SLOT_STATE_MASK;
    bool is_live = word - state == address && state != FLW_SLOT_FREE && state != FLW_SLOT_HELD;
    *out_word = word;
    return is_live ? slot : NULL;
}

/* False: another free was faster. */
static bool claim(struct flw_slot *slot, uint64_t word)
{
    uint64_t held = word - (word & FLW_SLOT_STATE_MASK) + FLW_SLOT_HELD;
    return __atomic_compare_exchange_n(&slot->word, &word, held, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

fallow_status flw_pool_free_plain(struct flw_pool *pool, void *ptr, fallow_stream stream)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr, word;
    struct flw_span *span;
    if (ptr == NULL || flw_heap_is_lost(&pool->heap)) {
        return FALLOW_OK;
    }
    struct flw_slot *slot = find_live(pool, address, &span, &word);
    if (slot == NULL) {
        return misuse(pool);
    }
    fallow_status status;
    struct flw_tcache *cache = flw_pool_cache(pool, stream, &status);
    if (cache == NULL) {
        return status == FALLOW_DEVICE_LOST ? FALLOW_OK : status;
    }
    if (!claim(slot, word)) {
        return misuse(pool);
    }
    if (flw_pool_front(pool) == NULL) {
        flw_pool_tell(pool, FLW_TRACE_FREE, cache->domain,
                      (struct flw_event){.address = address,
                                         .size_bytes = flw_allocation_bytes(slot->allocation)});
    }
    status = free_claimed(pool, cache, span, slot, (enum flw_slot_state)(word - address));
    flw_pool_keep_up(pool, cache, cache->fence_left_bytes < 0 && flw_pool_earns_fence(pool, cache));
    return status;
}

fallow_status flw_pool_free_complete(struct flw_pool *pool, void *ptr)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr, word;
    struct flw_span *span;
    if (ptr == NULL || flw_heap_is_lost(&pool->heap)) {
        return FALLOW_OK;
    }
    struct flw_slot *slot = find_live(pool, address, &span, &word);
    if (slot == NULL) {
        return misuse(pool);
    }
    struct flw_account *account = flw_pool_own_account(pool);
    if (account == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    if (!claim(slot, word)) {
        return misuse(pool);
    }
    struct flw_domain *unowned = pool->heap.domains[FLW_UNOWNED];
    flw_pool_tell(pool, FLW_TRACE_FREE, unowned,
                  (struct flw_event){.address = address,
                                     .size_bytes = flw_allocation_bytes(slot->allocation)});
    struct flw_side_record side = {0}; /* all uses are complete */
    if (word - address != FLW_SLOT_LIVE) {
        (void)flw_side_record_take(pool, address, &side);
        side = (struct flw_side_record){0};
    }
    if (word - address == FLW_SLOT_LIVE_CAPTURED) {
        return free_captured(pool, account, unowned, span, slot, &side);
    }
    flw_pool_note_special(pool, account, -(int64_t)flw_allocation_bytes(slot->allocation),
                          -(int64_t)flw_span_usable_bytes(span));
    flw_lock_acquire(&pool->heap.lock);
    flw_heap_put_block(&pool->heap, unowned, slot);
    flw_lock_release(&pool->heap.lock);
    return FALLOW_OK;
}

/* True if the block must be freed in a stream's order (of any stream, since all work on the block
 * is earlier): memory that importers may have, context order, and memory that a front keeps. */
static bool needs_stream(struct flw_pool *pool, const void *ptr)
{
    uint64_t word;
    struct flw_span *span;
    return flw_pool_has_epochs(pool) || flw_pool_front(pool) != NULL ||
           (find_live(pool, (uint64_t)(uintptr_t)ptr, &span, &word) != NULL &&
            (word & FLW_SLOT_STATE_MASK) != FLW_SLOT_LIVE && flw_uses_is_exported(pool, span));
}

fallow_status fallow_free_complete(fallow_pool *handle, void *ptr)
{
    int saved = errno;
    struct flw_pool *pool = flw_pool_of(handle);
    fallow_status status = pool == NULL              ? FALLOW_INVALID_POOL
                           : needs_stream(pool, ptr) ? flw_pool_free(pool, ptr, NULL)
                                                     : flw_pool_free_complete(pool, ptr);
    errno = saved;
    return status;
}

/* Free into the cache of a pool in context order, for a call with a pool handle. */
static bool hit_in_context(struct flw_pool *pool, const void *ptr)
{
    enum flw_hit_kind kind;
    struct flw_tcache *cache = flw_context_enter(pool, &kind);
    bool is_done = cache != NULL && flw_context_free_inside(cache, ptr, kind);
    if (cache != NULL) {
        flw_asym_leave(&cache->hot.asym);
    }
    return is_done;
}

fallow_status flw_entry_free(fallow_pool *handle, void *ptr, fallow_stream stream)
{
    int saved = errno;
    struct flw_pool *pool = flw_pool_of(handle);
    fallow_status status = pool == NULL ? FALLOW_INVALID_POOL
                           : flw_pool_has_epochs(pool) && hit_in_context(pool, ptr)
                               ? FALLOW_OK
                               : flw_pool_free(pool, ptr, stream);
    errno = saved;
    return status;
}
