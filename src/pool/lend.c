/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the slow halves of lend and return: what no cached slot or run could serve.
 */
#include <string.h>

#include "pool/recording.h"
#include "pool/share.h"

/* ---- budgets of a cache: what it may hold without asking */

static uint64_t cache_budget(const struct flw_pool *pool)
{
    uint64_t reserved = atomic_load_explicit(&pool->heap.reserved_bytes, memory_order_relaxed);
    uint64_t own = flw_clamp(reserved / 64, 4 * FLW_MIB, 256 * FLW_MIB);
    uint64_t all = pool->config.cache_bytes != 0 ? pool->config.cache_bytes
                                                 : flw_max(reserved / 32, 8 * FLW_MIB);
    return flw_min(own, all / (pool->cache_count == 0 ? 1 : pool->cache_count));
}

/* Let the bin hold more, up to its room and the cache's budget. */
static void widen(const struct flw_pool *pool, struct flw_tcache *cache, struct flw_bin *bin,
                  unsigned class_index)
{
    uint64_t size = flw_class_bytes(class_index);
    uint64_t most = flw_bin_most(class_index);
    uint64_t wanted = flw_min(
        bin->capacity == 0 ? flw_clamp(64 * FLW_KIB / size, 2, 16) : bin->capacity * 2, most);
    uint64_t bytes = (wanted - bin->capacity) * size;
    if (cache->bin_bytes + bytes <= cache_budget(pool) || bin->capacity == 0) {
        cache->bin_bytes += bytes;
        bin->capacity = wanted;
    }
}

/* ---- lend */

static void lend_slot(const struct flw_domain *domain, struct flw_slot *slot, uint64_t size_bytes,
                      enum flw_slot_state state, void **out_ptr)
{
    uint64_t address = flw_slot_address(slot);
    flw_slot_set_loan(slot, domain->lender + size_bytes);
    __atomic_store_n(&slot->word, address + state, __ATOMIC_RELEASE);
    *out_ptr = (void *)(uintptr_t)address;
}

static void lend_missed(struct flw_tcache *cache, struct flw_slot *slot, uint64_t size_bytes,
                        void **out_ptr)
{
    lend_slot(cache->domain, slot, size_bytes, FLW_SLOT_LIVE, out_ptr);
    cache->misses++;
    flw_pool_account(cache->hot.account, (int64_t)size_bytes);
}

#define REFILL_MOST 128

/* How many slots a bin that has none gets: half of what it holds, so that it has room for what
 * comes back; all of it where nothing does because another thread frees. */
static uint32_t refill_count(struct flw_bin *bin, bool gets_back)
{
    uint32_t pushes = (uint32_t)(bin->pops - bin->moved_in + bin->moved_out);
    uint64_t count = pushes == bin->seen_pushes || !gets_back ? bin->capacity : bin->capacity / 2;
    bin->seen_pushes = pushes;
    return (uint32_t)flw_clamp(count, 1, REFILL_MOST);
}

/* How many leave a full bin, by the same thought. */
static uint64_t flush_count(struct flw_bin *bin)
{
    uint64_t count = (uint32_t)bin->pops == bin->seen_pops ? bin->count : (bin->count + 1) / 2;
    bin->seen_pops = (uint32_t)bin->pops;
    return count;
}

/* cache lock. Into the bin, the first on top. A callback of the ladder may have filled it meanwhile:
 * what finds no room goes back to the heap. */
static void refill(struct flw_pool *pool, struct flw_tcache *cache, unsigned class_index,
                   struct flw_slot *const *slots, uint32_t count)
{
    struct flw_bin *bin = flw_tcache_bin(cache, class_index);
    uint32_t kept = (uint32_t)flw_min(count, bin->capacity - bin->count);
    for (uint32_t i = count; i-- > count - kept;) {
        bin->slots[bin->count++] = slots[i];
    }
    bin->moved_in += kept;
    if (kept < count) {
        flw_lock_acquire(&pool->heap.lock);
        flw_heap_put_slots(&pool->heap, flw_tcache_lends_of(cache, &pool->heap), class_index, slots,
                           count - kept);
        flw_lock_release(&pool->heap.lock);
    }
}

/* A slot for the caller, with a few more for its bin. */
static fallow_status alloc_slot(struct flw_pool *pool, struct flw_tcache *cache,
                                unsigned class_index, const fallow_request *request, void **out_ptr)
{
    struct flw_slot *slots[REFILL_MOST], *slot = NULL;
    struct flw_bin *bin = flw_tcache_bin(cache, class_index);
    flw_lock_acquire(&cache->lock);
    if (bin->count > 0) {
        slot = bin->slots[--bin->count];
        bin->pops++;
        lend_missed(cache, slot, request->size_bytes, out_ptr);
    } else {
        widen(pool, cache, bin, class_index);
    }
    uint32_t want = slot == NULL && cache->is_open ? refill_count(bin, cache->context_id == 0) : 1;
    flw_lock_release(&cache->lock);
    if (slot != NULL) {
        return FALLOW_OK;
    }
    struct flw_need need = {.domain = cache->domain,
                            .cache = cache,
                            .class_index = class_index,
                            .size_bytes = request->size_bytes,
                            .flags = request->flags,
                            .want = want,
                            .slots = slots};
    fallow_status status = flw_ladder_climb(pool, &need);
    if (status != FALLOW_OK) {
        return status;
    }
    flw_lock_acquire(&cache->lock);
    bin->moved_in++;
    bin->pops++;
    refill(pool, cache, class_index, slots, need.count - 1);
    lend_missed(cache, slots[need.count - 1], request->size_bytes, out_ptr);
    flw_lock_release(&cache->lock);
    flw_pool_settle(pool, cache->hot.account);
    return FALLOW_OK;
}

uint64_t flw_pool_run_limit(const struct flw_pool *pool)
{
    uint64_t reserved = atomic_load_explicit(&pool->heap.reserved_bytes, memory_order_relaxed);
    return flw_clamp(reserved / 2, 4 * FLW_MIB, 256 * FLW_MIB);
}

static uint32_t handle_types_of(const fallow_request *request)
{
    bool wants_fd = (request->flags & FALLOW_REQUEST_EXPORT_FD) != 0;
    bool wants_fabric = (request->flags & FALLOW_REQUEST_EXPORT_FABRIC) != 0;
    return (wants_fd ? (uint32_t)FALLOW_HANDLE_FD : 0u) |
           (wants_fabric ? (uint32_t)FALLOW_HANDLE_FABRIC : 0u);
}

static fallow_status alloc_run(struct flw_pool *pool, struct flw_tcache *cache,
                               const fallow_request *request, void **out_ptr)
{
    uint64_t align = request->align_bytes;
    struct flw_need need = {.domain = cache->domain,
                            .cache = cache,
                            .class_index = FLW_CLASS_COUNT,
                            .unit_count = (uint32_t)flw_div_up(request->size_bytes, FLW_UNIT_BYTES),
                            .align_units = (uint32_t)flw_max(1, align >> FLW_UNIT_LOG2),
                            .size_bytes = request->size_bytes,
                            .flags = request->flags,
                            .handle_types = handle_types_of(request)};
    fallow_status status = flw_ladder_climb(pool, &need);
    if (status != FALLOW_OK) {
        return status;
    }
    struct flw_slot *slot = flw_span_slot(&pool->heap.map, need.run, 0);
    flw_lock_acquire(&cache->lock);
    cache->run_pops++;
    cache->run_out_bytes += flw_run_bytes(need.run);
    cache->run_limit_bytes = flw_pool_run_limit(pool);
    if (cache->context_id != 0) {
        flw_epoch_fill_runs(pool, cache, need.run->u.run.unit_count);
    }
    lend_missed(cache, slot, request->size_bytes, out_ptr);
    flw_lock_release(&cache->lock);
    flw_pool_settle(pool, cache->hot.account);
    return FALLOW_OK;
}

/* Inside a capture: straight from the capture's own heap, no cache. */
static fallow_status alloc_captured(struct flw_pool *pool, struct flw_tcache *cache,
                                    struct flw_domain *domain, unsigned class_index,
                                    const fallow_request *request, void **out_ptr)
{
    struct flw_slot *slot = NULL;
    struct flw_need need = {.domain = domain,
                            .class_index = class_index,
                            .unit_count = (uint32_t)flw_div_up(request->size_bytes, FLW_UNIT_BYTES),
                            .align_units =
                                (uint32_t)flw_max(1, request->align_bytes >> FLW_UNIT_LOG2),
                            .size_bytes = request->size_bytes,
                            .flags = request->flags,
                            .handle_types = handle_types_of(request),
                            .want = 1,
                            .slots = &slot};
    fallow_status status = flw_ladder_climb(pool, &need);
    if (status != FALLOW_OK) {
        return status;
    }
    uint64_t usable = need.run != NULL ? flw_run_bytes(need.run) : flw_class_bytes(class_index);
    flw_lock_acquire(&pool->heap.lock);
    if (need.run != NULL) {
        slot = flw_span_slot(&pool->heap.map, need.run, 0);
        need.run->u.run.owner = domain->index;
        domain->captured_live++;
        domain->captured_bytes += usable;
    } else { /* a slot's maker counts it, whichever stream of the capture lends it next */
        pool->heap.domains[flw_slot_span(&pool->heap.map, slot)->u.slab.domain]->captured_live++;
    }
    flw_lock_release(&pool->heap.lock);
    lend_slot(domain, slot, request->size_bytes, FLW_SLOT_LIVE_CAPTURED, out_ptr);
    flw_pool_note_special(pool, cache->hot.account, (int64_t)request->size_bytes, (int64_t)usable);
    return FALLOW_OK;
}

#define KNOWN_FLAGS                                                                     \
    (FALLOW_REQUEST_EXPORT_FD | FALLOW_REQUEST_EXPORT_FABRIC | FALLOW_REQUEST_NO_WAIT | \
     FALLOW_REQUEST_NO_GROW | FALLOW_REQUEST_DEDICATED | FALLOW_REQUEST_ZERO)

static fallow_status check_request(const struct flw_pool *pool, const fallow_request *request)
{
    uint64_t align = request->align_bytes;
    uint32_t flags = request->flags;
    if (request->size_bytes > FLW_REQUEST_MAX || (align & (align - 1)) != 0 ||
        align > 2 * FLW_MIB || (flags & ~(uint32_t)KNOWN_FLAGS) != 0) {
        return FALLOW_INVALID_ARGUMENT;
    }
    bool wants_fd = (flags & FALLOW_REQUEST_EXPORT_FD) != 0;
    bool wants_fabric = (flags & FALLOW_REQUEST_EXPORT_FABRIC) != 0;
    if ((wants_fd && (pool->config.handle_types & FALLOW_HANDLE_FD) == 0) ||
        (wants_fabric && (pool->config.handle_types & FALLOW_HANDLE_FABRIC) == 0) ||
        ((wants_fd || wants_fabric) && !pool->heap.source.ops->remaps)) {
        return FALLOW_NOT_SUPPORTED;
    }
    return FALLOW_OK;
}

static unsigned class_for(const struct flw_pool *pool, const fallow_request *request)
{
    if (flw_pool_has_epochs(pool) && request->size_bytes >= pool->heap.whole_bytes) {
        return FLW_CLASS_COUNT;
    }
    uint64_t size_bytes = request->size_bytes;
    if (flw_pool_has_epochs(pool)) { /* 512 B aligned, as textures want it */
        size_bytes = flw_max(size_bytes, FLW_EPOCH_LEAST_BYTES);
    }
    uint32_t own_run =
        FALLOW_REQUEST_EXPORT_FD | FALLOW_REQUEST_EXPORT_FABRIC | FALLOW_REQUEST_DEDICATED;
    if (request->size_bytes > FLW_CLASS_MAX_BYTES || (request->flags & own_run) != 0) {
        return FLW_CLASS_COUNT;
    }
    return request->align_bytes <= 256 ? flw_class_of(size_bytes)
                                       : flw_class_of_aligned(size_bytes, request->align_bytes);
}

static fallow_status zero_fill(struct flw_pool *pool, void *ptr, uint64_t bytes,
                               fallow_stream stream)
{
    struct flw_driver_section section;
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return FALLOW_DEVICE_LOST;
    }
    flw_heap_count_call(&pool->heap);
    CUresult result = pool->driver.cuMemsetD8Async((CUdeviceptr)(uintptr_t)ptr, 0, bytes, stream);
    if (result == CUDA_SUCCESS && flw_pool_has_epochs(pool)) { /* in no stream's order: in all */
        flw_heap_count_call(&pool->heap);
        result = pool->driver.cuStreamSynchronize(stream);
    }
    flw_heap_leave_driver(&pool->heap, &section);
    if (result != CUDA_SUCCESS) {
        atomic_store(&pool->heap.last_error, (int)result);
        atomic_store(&pool->heap.last_call, "cuMemsetD8Async");
        return FALLOW_DRIVER;
    }
    return FALLOW_OK;
}

/* A tag needs a note; a small block that carries one is returned the slow way. */
static fallow_status attach_tag(struct flw_pool *pool, const fallow_request *request, void *ptr)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    flw_lock_acquire(&pool->uses_lock);
    struct flw_note *note = flw_note_make(pool, address);
    if (note != NULL) {
        note->tag = request->tag;
        note->flags = request->flags;
    }
    flw_lock_release(&pool->uses_lock);
    if (note == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    uint64_t offset = flw_page_map_offset(&pool->heap.map, address);
    struct flw_span *span = flw_page_map_span_at(&pool->heap.map, offset);
    struct flw_slot *slot = flw_page_map_slot_at(&pool->heap.map, span, offset);
    uint64_t live = address + FLW_SLOT_LIVE; /* a captured block keeps its own state */
    (void)__atomic_compare_exchange_n(&slot->word, &live, address + FLW_SLOT_LIVE_SPECIAL, false,
                                      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    return FALLOW_OK;
}

static fallow_status lend_block(struct flw_pool *pool, const fallow_request *request,
                                fallow_stream stream, void **out_ptr)
{
    fallow_status status;
    struct flw_tcache *cache = flw_pool_cache(pool, stream, &status);
    if (cache == NULL) {
        return status;
    }
    unsigned class_index = class_for(pool, request);
    struct flw_domain *captured =
        flw_capture_is_on(cache->domain) ? flw_capture_enter(pool, cache->domain) : NULL;
    uint32_t capture = captured != NULL ? captured->capture : 0;
    if (captured != NULL) {
        status = alloc_captured(pool, cache, captured, class_index, request, out_ptr);
        flw_capture_leave(pool, captured);
    } else if (class_index < FLW_CLASS_COUNT) {
        status = alloc_slot(pool, cache, class_index, request, out_ptr);
    } else {
        status = alloc_run(pool, cache, request, out_ptr);
    }
    if (status == FALLOW_OK && pool->debug == NULL && flw_recording_is_on(pool)) {
        struct flw_recorded_block block = {.address = (uint64_t)(uintptr_t)*out_ptr,
                                           .size_bytes = request->size_bytes,
                                           .tag = request->tag,
                                           .capture = capture};
        flw_recording_note_block(pool, FLW_TRACE_ALLOC, cache->domain, &block);
    }
    return status;
}

fallow_status flw_pool_alloc(struct flw_pool *pool, const fallow_request *request,
                             fallow_stream stream, void **out_ptr)
{
    bool may_wait = (request->flags & FALLOW_REQUEST_NO_WAIT) == 0;
    *out_ptr = NULL;
    stream = flw_pool_has_epochs(pool) ? NULL : stream;
    fallow_status status = flw_gate_enter(&pool->gate, may_wait);
    if (FLW_UNLIKELY(status != FALLOW_OK) && request->size_bytes != 0) {
        return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : status;
    }
    bool is_inside = status == FALLOW_OK;
    status = pool->debug != NULL ? flw_debug_alloc(pool, request, stream, out_ptr)
                                 : flw_pool_alloc_plain(pool, request, stream, out_ptr);
    if (FLW_LIKELY(is_inside)) {
        flw_gate_leave(&pool->gate);
    }
    return status;
}

fallow_status flw_pool_alloc_plain(struct flw_pool *pool, const fallow_request *request,
                                   fallow_stream stream, void **out_ptr)
{
    *out_ptr = NULL;
    fallow_status status = check_request(pool, request);
    if (status != FALLOW_OK) {
        return status;
    }
    if (flw_heap_is_lost(&pool->heap)) {
        flw_pool_note_loss(pool);
        return FALLOW_DEVICE_LOST;
    }
    if (request->size_bytes == 0) {
        atomic_fetch_add_explicit(&pool->zero_sizes, 1, memory_order_relaxed);
        return FALLOW_OK;
    }
    status = lend_block(pool, request, stream, out_ptr);
    if (status == FALLOW_OK && (request->tag != 0)) {
        status = attach_tag(pool, request, *out_ptr);
    }
    if (status == FALLOW_OK && (request->flags & FALLOW_REQUEST_ZERO) != 0) {
        status = zero_fill(pool, *out_ptr, request->size_bytes, stream);
    }
    if (status != FALLOW_OK && *out_ptr != NULL) {
        (void)flw_pool_free_plain(pool, *out_ptr, stream);
        *out_ptr = NULL;
    }
    flw_pool_note_loss(pool);
    return flw_heap_is_lost(&pool->heap) && status != FALLOW_OK ? FALLOW_DEVICE_LOST : status;
}

/* ---- return */

/* Room for one more: the older half of a full bin goes to the heap, or all. */
static void make_room(struct flw_pool *pool, struct flw_tcache *cache, struct flw_bin *bin,
                      unsigned class_index)
{
    widen(pool, cache, bin, class_index);
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

static void return_slot(struct flw_pool *pool, struct flw_tcache *cache, struct flw_span *slab,
                        struct flw_slot *slot)
{
    unsigned class_index = slab->u.slab.class_index;
    struct flw_bin *bin = flw_tcache_bin(cache, class_index);
    flw_lock_acquire(&cache->lock);
    if (bin->count >= bin->capacity) {
        make_room(pool, cache, bin, class_index);
    }
    flw_pool_account(cache->hot.account, -(int64_t)flw_loan_bytes(slot->loan));
    bin->slots[bin->count++] = slot;
    flw_lock_release(&cache->lock);
    flw_pool_settle(pool, cache->hot.account);
}

static void return_run(struct flw_pool *pool, struct flw_tcache *cache, struct flw_span *run,
                       const struct flw_slot *slot)
{
    flw_lock_acquire(&cache->lock);
    flw_pool_account(cache->hot.account, -(int64_t)flw_loan_bytes(slot->loan));
    cache->run_pushes++;
    cache->fence_left_bytes -= (int64_t)flw_run_bytes(run);
    cache->run_limit_bytes = flw_pool_run_limit(pool);
    flw_lock_acquire(&pool->heap.lock);
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
    flw_pool_settle(pool, cache->hot.account);
}

/* What other streams use still, or what was freed inside a capture, is nobody's to lend for now. */
static fallow_status hold_back(struct flw_pool *pool, struct flw_domain *domain,
                               struct flw_slot *slot, const struct flw_note *note)
{
    return flw_note_has_uses(note) ? flw_uses_free(pool, domain, slot, note)
                                   : flw_capture_park(pool, domain, slot);
}

/* heap lock. A captured block comes back: to whom? To its capture; to the freeing stream once that is
 * released. NULL: host memory. */
static struct flw_domain *leave_capture(struct flw_pool *pool, struct flw_domain *freeing,
                                        struct flw_span *span, bool has_uses)
{
    bool is_slab = span->kind == FLW_SPAN_SLAB;
    uint32_t owner = is_slab ? span->u.slab.domain : span->u.run.owner;
    struct flw_domain *domain = pool->heap.domains[owner];
    domain->captured_live--;
    domain->captured_bytes -= is_slab ? 0 : flw_run_bytes(span);
    if (domain->ops == &flw_order_capture) {
        domain = flw_capture_home_of(pool, domain, freeing, has_uses);
    } else {
        if (domain->captured_live == 0) {
            domain->ops = NULL;
            domain->completed = domain->ticket++;
        }
        domain = freeing;
    }
    if (is_slab && domain == freeing) {
        flw_heap_open_slab(span);
    }
    return domain;
}

/* Its word is HELD. */
static fallow_status return_captured(struct flw_pool *pool, struct flw_tcache *cache,
                                     struct flw_span *span, struct flw_slot *slot,
                                     const struct flw_note *note)
{
    struct flw_heap *heap = &pool->heap;
    bool is_slab = span->kind == FLW_SPAN_SLAB, has_uses = flw_note_has_uses(note);
    uint64_t usable = is_slab ? flw_class_bytes(span->u.slab.class_index) : flw_run_bytes(span);
    flw_pool_note_special(pool, cache->hot.account, -(int64_t)flw_loan_bytes(slot->loan),
                          -(int64_t)usable);
    flw_lock_acquire(&heap->lock);
    struct flw_domain *domain = leave_capture(pool, cache->domain, span, has_uses);
    bool is_ordinary = domain == cache->domain;
    if (is_ordinary && (has_uses || flw_capture_is_on(domain))) {
        flw_lock_release(&heap->lock);
        return hold_back(pool, domain, slot, note);
    }
    flw_slot_set_word(slot, flw_slot_address(slot));
    if (domain == NULL) { /* host memory: lost until the pool goes, nothing breaks */
    } else if (is_slab) {
        flw_heap_put_slots(heap, domain, span->u.slab.class_index, &slot, 1);
    } else {
        flw_heap_put_run(heap, domain, span);
    }
    flw_lock_release(&heap->lock);
    return FALLOW_OK;
}

/* At most one event per 16 MiB freed, and only where another stream could want the memory. */
static void fence_if_due(struct flw_pool *pool, struct flw_domain *domain)
{
    struct flw_driver_section section;
    uint64_t unfenced = atomic_load_explicit(&domain->unfenced_bytes, memory_order_relaxed);
    bool is_due = unfenced >= 16 * FLW_MIB && atomic_load(&pool->heap.stream_count) > 1;
    if ((is_due || (pool->config.streams_may_die && unfenced > 0)) && !flw_capture_is_on(domain) &&
        flw_heap_enter_driver(&pool->heap, &section)) {
        (void)flw_domain_fence_own(&pool->heap, domain);
        flw_heap_leave_driver(&pool->heap, &section);
    }
    if (pool->heap.unfenced_use_bytes >= 16 * FLW_MIB || pool->heap.unfenced_use_count >= 256) {
        if (flw_heap_enter_driver(&pool->heap, &section)) {
            flw_uses_fence(pool);
            (void)flw_heap_poll(&pool->heap);
            flw_heap_leave_driver(&pool->heap, &section);
        }
    }
}

/* While a pool still grows, what it frees should be known complete by the time of its next growth,
 * else that growth finds nothing that may move. So for half a peak of freed bytes after a growth
 * there is a fence for every thirty-second of the peak (measured on the recorded traces at a lag of
 * 200 events: 1.03 and 1.04 times the requested bytes instead of 1.08 and 1.06). A step that
 * repeats does not grow and so records none. */
#define FENCES_MOST 16

bool flw_pool_earns_fence(const struct flw_pool *pool, struct flw_tcache *cache)
{
    uint64_t peak =
        (uint64_t)atomic_load_explicit(&pool->peak_requested_bytes, memory_order_relaxed);
    uint64_t grows = atomic_load_explicit(&pool->heap.count.grows, memory_order_relaxed);
    uint64_t step = flw_max(peak / (2 * FENCES_MOST), 16 * FLW_MIB);
    cache->fence_step_bytes = (int64_t)step;
    cache->fence_left_bytes = (int64_t)step;
    if (FLW_UNLIKELY(grows != cache->fence_grow_count)) {
        cache->fence_grow_count = grows;
        cache->fence_credits = flw_clamp(peak / 2 / step, 2, FENCES_MOST);
    }
    return cache->fence_credits != 0;
}

static void fence_after_growth(struct flw_pool *pool, struct flw_tcache *cache)
{
    struct flw_driver_section section;
    if (flw_capture_is_on(cache->domain) || !flw_heap_enter_driver(&pool->heap, &section)) {
        return;
    }
    cache->fence_credits--;
    flw_lock_acquire(&pool->heap.lock);
    cache->domain->unfenced_bytes++; /* cached runs carry the present ticket too */
    flw_lock_release(&pool->heap.lock);
    (void)flw_domain_fence_own(&pool->heap, cache->domain);
    flw_heap_leave_driver(&pool->heap, &section);
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
    flw_pool_decay(pool, false);
    flw_pool_note_loss(pool);
}

static fallow_status misuse(struct flw_pool *pool)
{
    atomic_fetch_add(&pool->misuses, 1);
    return FALLOW_INVALID_POINTER;
}

/* The block is the caller's: its word went from live to `held`. */
static fallow_status return_claimed(struct flw_pool *pool, struct flw_tcache *cache,
                                    struct flw_span *span, struct flw_slot *slot,
                                    enum flw_slot_state was)
{
    struct flw_note note = {0};
    if (was != FLW_SLOT_LIVE) {
        (void)flw_note_take(pool, flw_slot_address(slot), &note);
    }
    if (was == FLW_SLOT_LIVE_CAPTURED) {
        return return_captured(pool, cache, span, slot, &note);
    }
    bool is_exported = was != FLW_SLOT_LIVE && flw_share_is_exported(pool, span) &&
                       !FLW_MUTANT(EXPORTED_IS_REUSED);
    if (is_exported || flw_note_has_uses(&note) || flw_capture_is_on(cache->domain)) {
        bool is_slab = span->kind == FLW_SPAN_SLAB;
        uint64_t usable = is_slab ? flw_class_bytes(span->u.slab.class_index) : flw_run_bytes(span);
        flw_lock_acquire(&cache->lock);
        if (is_slab) { /* passes the bin by: in and out at once */
            flw_tcache_bin(cache, span->u.slab.class_index)->moved_out++;
        } else {
            cache->run_pushes++;
            cache->run_out_bytes -= usable;
        }
        flw_pool_account(cache->hot.account, -(int64_t)flw_loan_bytes(slot->loan));
        flw_lock_release(&cache->lock);
        flw_pool_settle(pool, cache->hot.account);
        if (!is_exported) {
            return hold_back(pool, cache->domain, slot, &note);
        }
        (void)flw_uses_free(pool, cache->domain, slot, &note);
        flw_share_collect(pool);
        return FALLOW_OK;
    }
    flw_slot_set_word(slot, flw_slot_address(slot));
    if (cache->context_id != 0 && was == FLW_SLOT_LIVE_USED) {
        return flw_epoch_evict(pool, cache, span, slot);
    }
    if (cache->context_id != 0) {
        flw_epoch_return(pool, cache, span, slot);
    } else if (span->kind == FLW_SPAN_SLAB) {
        return_slot(pool, cache, span, slot);
    } else {
        return_run(pool, cache, span, slot);
    }
    return FALLOW_OK;
}

fallow_status flw_pool_free(struct flw_pool *pool, void *ptr, fallow_stream stream)
{
    stream = flw_pool_has_epochs(pool) ? NULL : stream;
    return pool->debug != NULL ? flw_debug_free(pool, ptr, stream)
                               : flw_pool_free_plain(pool, ptr, stream);
}

fallow_status flw_pool_free_plain(struct flw_pool *pool, void *ptr, fallow_stream stream)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    if (ptr == NULL || flw_heap_is_lost(&pool->heap)) {
        return FALLOW_OK;
    }
    uint64_t offset = flw_page_map_offset(&pool->heap.map, address);
    struct flw_span *span = flw_page_map_span_at(&pool->heap.map, offset);
    struct flw_slot *slot = flw_page_map_slot_at(&pool->heap.map, span, offset);
    uint64_t word = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
    enum flw_slot_state state = (enum flw_slot_state)(word & FLW_SLOT_STATE_MASK);
    if (word - state != address || state == FLW_SLOT_FREE || state == FLW_SLOT_HELD) {
        return misuse(pool);
    }
    fallow_status status;
    struct flw_tcache *cache = flw_pool_cache(pool, stream, &status);
    if (cache == NULL) {
        return status == FALLOW_DEVICE_LOST ? FALLOW_OK : status;
    }
    if (!__atomic_compare_exchange_n(&slot->word, &word, address + FLW_SLOT_HELD, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        return misuse(pool);
    }
    if (pool->debug == NULL && flw_recording_is_on(pool)) {
        struct flw_recorded_block block = {.address = address,
                                           .size_bytes = flw_loan_bytes(slot->loan)};
        flw_recording_note_block(pool, FLW_TRACE_FREE, cache->domain, &block);
    }
    status = return_claimed(pool, cache, span, slot, state);
    flw_pool_keep_up(pool, cache, cache->fence_left_bytes < 0 && flw_pool_earns_fence(pool, cache));
    return status;
}
