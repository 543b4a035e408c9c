/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/calls/alloc.h"

#include <errno.h>

#include "pool/calls/free.h"
#include "pool/calls/hit_context.h"
#include "pool/ladder/ladder.h"
#include "pool/state/account.h"
#include "pool/state/extension.h"
#include "pool/state/side_records.h"
#include "pool/state/table.h"
#include "pool/streams/bounds.h"
#include "pool/streams/cache.h"
#include "pool/streams/capture.h"
#include "pool/streams/current.h"
#include "pool/streams/epoch.h"

static fallow_status climb(struct flw_pool *pool, struct flw_need *need)
{
    return flw_pool_has_epochs(pool) ? flw_context_climb(pool, need) : flw_ladder_climb(pool, need);
}

static void give_slot(const struct flw_domain *domain, struct flw_slot *slot, uint64_t size_bytes,
                      enum flw_slot_state state, void **out_ptr)
{
    uint64_t address = flw_slot_address(slot);
    flw_slot_set_allocation(slot, domain->stream_number + size_bytes);
    __atomic_store_n(&slot->word, address + state, __ATOMIC_RELEASE);
    *out_ptr = (void *)(uintptr_t)address;
}

static void give_missed(struct flw_tcache *cache, struct flw_slot *slot, uint64_t size_bytes,
                        void **out_ptr)
{
    give_slot(cache->domain, slot, size_bytes, FLW_SLOT_LIVE, out_ptr);
    cache->misses++;
    flw_pool_account(cache->hot.account, (int64_t)size_bytes);
}

#define REFILL_MOST 128

/* Return how many slots an empty bin gets: half of the capacity, to leave room for frees; all if
 * another thread frees, so that none return. */
static uint32_t refill_count(struct flw_bin *bin, bool gets_back)
{
    uint32_t pushes = (uint32_t)(bin->pops - bin->moved_in + bin->moved_out);
    uint64_t count = pushes == bin->seen_pushes || !gets_back ? bin->capacity : bin->capacity / 2;
    bin->seen_pushes = pushes;
    return (uint32_t)flw_clamp(count, 1, REFILL_MOST);
}

/* Fill the bin, with the first slot on top. A callback of the ladder may have filled it meanwhile:
 * slots without room return to the heap. Cache lock held. */
static void refill(struct flw_pool *pool, struct flw_tcache *cache, unsigned class_index,
                   struct flw_slot *const *slots, uint32_t count)
{
    struct flw_bin *bin = flw_tcache_bin(cache, class_index);
    uint32_t kept = (uint32_t)flw_min(count, bin->capacity - bin->count);
    struct flw_slot **top = &bin->slots[bin->count];
    for (uint32_t i = count; i-- > count - kept;) {
        *top++ = slots[i];
    }
    bin->count += kept;
    bin->moved_in += kept;
    if (kept < count) {
        flw_lock_acquire(&pool->heap.lock);
        flw_heap_put_slots(&pool->heap, flw_tcache_allocs_of(cache, &pool->heap), class_index,
                           slots, count - kept);
        flw_lock_release(&pool->heap.lock);
    }
}

/* Query whether the stream is being captured. If so, a miss must not be served from ordinary
 * memory: a graph would use the block after the free. */
static fallow_status ask_capture(struct flw_pool *pool, struct flw_domain *domain)
{
    return flw_domain_is_legacy(domain) ? FALLOW_OK : flw_capture_check(pool, domain);
}

/* True if this result of ask_capture leaves no memory to allocate; other refusals leave memory
 * that needs no driver call. */
static bool forbids_all(fallow_status asked)
{
    return asked == FALLOW_CAPTURING || asked == FALLOW_DEVICE_LOST;
}

/* Take a slot for the caller, and a few more for the bin. */
static fallow_status alloc_slot(struct flw_pool *pool, struct flw_tcache *cache,
                                unsigned class_index, const fallow_request *request, void **out_ptr)
{
    struct flw_slot *slots[REFILL_MOST], *slot = NULL;
    struct flw_bin *bin = flw_tcache_bin(cache, class_index);
    flw_lock_acquire(&cache->lock);
    if (bin->count > 0) {
        slot = bin->slots[--bin->count];
        bin->pops++;
        give_missed(cache, slot, request->size_bytes, out_ptr);
    } else {
        flw_pool_widen_bin(pool, cache, bin, class_index);
    }
    uint32_t want = slot == NULL && cache->is_open ? refill_count(bin, cache->context_id == 0) : 1;
    flw_lock_release(&cache->lock);
    if (slot != NULL) {
        return FALLOW_OK;
    }
    fallow_status asked = ask_capture(pool, cache->domain);
    if (forbids_all(asked)) {
        return asked;
    }
    struct flw_need need = {.domain = cache->domain,
                            .cache = cache,
                            .class_index = class_index,
                            .size_bytes = request->size_bytes,
                            .flags = request->flags,
                            .asked = asked,
                            .want = want,
                            .slots = slots};
    fallow_status status = climb(pool, &need);
    if (status != FALLOW_OK) {
        return status;
    }
    flw_lock_acquire(&cache->lock);
    bin->moved_in++;
    bin->pops++;
    refill(pool, cache, class_index, slots, need.count - 1);
    give_missed(cache, slots[need.count - 1], request->size_bytes, out_ptr);
    flw_lock_release(&cache->lock);
    flw_pool_flush_account(pool, cache->hot.account);
    return FALLOW_OK;
}

static uint32_t handle_types_of(const fallow_request *request)
{
    bool wants_fd = (request->flags & FALLOW_REQUEST_EXPORT_FD) != 0;
    bool wants_fabric = (request->flags & FALLOW_REQUEST_EXPORT_FABRIC) != 0;
    return (wants_fd ? (uint32_t)FALLOW_HANDLE_FD : 0u) |
           (wants_fabric ? (uint32_t)FALLOW_HANDLE_FABRIC : 0u);
}

/* (Requests below a cell have an alignment that no class has, or need a handle of their own.) */
static uint32_t run_units(uint64_t size_bytes)
{
    return (uint32_t)flw_max(flw_div_up(size_bytes, FLW_UNIT_BYTES), FLW_CELL_UNITS);
}

static void give_run(struct flw_pool *pool, struct flw_tcache *cache, struct flw_span *run,
                     const fallow_request *request, void **out_ptr)
{
    flw_lock_acquire(&cache->lock);
    cache->run_pops++;
    cache->run_out_bytes += flw_run_bytes(run);
    flw_tcache_limit_runs(cache, &pool->heap);
    if (cache->context_id != 0) {
        flw_epoch_fill_runs(pool, cache, run->u.run.unit_count);
    }
    give_missed(cache, flw_span_slot(&pool->heap.map, run, 0), request->size_bytes, out_ptr);
    flw_lock_release(&cache->lock);
    flw_pool_flush_account(pool, cache->hot.account);
}

static fallow_status alloc_run(struct flw_pool *pool, struct flw_tcache *cache,
                               const fallow_request *request, void **out_ptr)
{
    uint64_t align = request->align_bytes;
    fallow_status asked = ask_capture(pool, cache->domain);
    if (forbids_all(asked)) {
        return asked;
    }
    struct flw_need need = {.domain = cache->domain,
                            .cache = cache,
                            .class_index = FLW_CLASS_COUNT,
                            .unit_count = run_units(request->size_bytes),
                            .align_units = (uint32_t)flw_max(1, align >> FLW_UNIT_LOG2),
                            .size_bytes = request->size_bytes,
                            .flags = request->flags,
                            .asked = asked,
                            .handle_types = handle_types_of(request)};
    fallow_status status = climb(pool, &need);
    if (status != FALLOW_OK) {
        return status;
    }
    give_run(pool, cache, need.run, request, out_ptr);
    return FALLOW_OK;
}

/* Count a block of a capture. Heap lock held. */
static void count_captured(struct flw_heap *heap, struct flw_domain *domain, struct flw_span *run,
                           const struct flw_slot *slot, uint64_t usable)
{
    if (run != NULL) {
        run->u.run.owner = domain->index;
        domain->captured_live++;
    } else { /* counted by the slot's creator, whichever stream of the capture allocates it
                 next */
        uint32_t maker = flw_slot_span(&heap->map, slot)->u.slab.domain;
        heap->domains[maker]->captured_live++;
        heap->domains[maker]->captured_bytes -= usable;
    }
}

/* Allocate from the heap, without a cache: inside a capture from the capture's memory; for every
 * stream from memory that no work uses (FLW_UNOWNED). */
static fallow_status alloc_uncached(struct flw_pool *pool, struct flw_account *account,
                                    struct flw_domain *domain, unsigned class_index,
                                    const fallow_request *request, void **out_ptr)
{
    struct flw_slot *slot = NULL;
    struct flw_need need = {.domain = domain,
                            .class_index = class_index,
                            .unit_count = run_units(request->size_bytes),
                            .align_units =
                                (uint32_t)flw_max(1, request->align_bytes >> FLW_UNIT_LOG2),
                            .size_bytes = request->size_bytes,
                            .flags = request->flags,
                            .handle_types = handle_types_of(request),
                            .want = 1,
                            .slots = &slot};
    fallow_status status = climb(pool, &need);
    if (status != FALLOW_OK) {
        return status;
    }
    uint64_t usable = need.run != NULL ? flw_run_bytes(need.run) : flw_class_bytes(class_index);
    slot = need.run != NULL ? flw_span_slot(&pool->heap.map, need.run, 0) : slot;
    if (domain->capture != 0) {
        flw_lock_acquire(&pool->heap.lock);
        count_captured(&pool->heap, domain, need.run, slot, usable);
        flw_lock_release(&pool->heap.lock);
    }
    give_slot(domain, slot, request->size_bytes,
              domain->capture != 0 ? FLW_SLOT_LIVE_CAPTURED : FLW_SLOT_LIVE, out_ptr);
    flw_pool_note_special(pool, account, (int64_t)request->size_bytes, (int64_t)usable);
    return FALLOW_OK;
}

#define KNOWN_FLAGS                                                                     \
    (FALLOW_REQUEST_EXPORT_FD | FALLOW_REQUEST_EXPORT_FABRIC | FALLOW_REQUEST_NO_WAIT | \
     FALLOW_REQUEST_NO_GROW | FALLOW_REQUEST_DEDICATED | FALLOW_REQUEST_ZERO |          \
     FALLOW_REQUEST_EVERY_STREAM)

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
    if (flw_pool_has_epochs(pool) && request->size_bytes >= pool->heap.dedicated_bytes) {
        return FLW_CLASS_COUNT;
    }
    uint64_t size_bytes = request->size_bytes;
    if (flw_pool_has_epochs(pool)) { /* 512 B aligned, as textures require */
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

/* True if the request is for every stream. */
static bool is_for_every_stream(const struct flw_pool *pool, const fallow_request *request)
{
    return flw_pool_has_epochs(pool) || (request->flags & FALLOW_REQUEST_EVERY_STREAM) != 0;
}

static fallow_status zero_fill(struct flw_pool *pool, const fallow_request *request, void *ptr,
                               fallow_stream stream)
{
    struct flw_driver_section section;
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return flw_heap_not_entered(&pool->heap);
    }
    flw_heap_count_call(&pool->heap);
    CUresult result =
        pool->driver.cuMemsetD8Async((CUdeviceptr)(uintptr_t)ptr, 0, request->size_bytes, stream);
    if (result == CUDA_SUCCESS && is_for_every_stream(pool, request)) {
        flw_heap_count_call(&pool->heap);
        result = pool->driver.cuStreamSynchronize(stream);
    }
    flw_heap_leave_driver(&pool->heap, &section);
    return flw_heap_refuse(&pool->heap, result, "cuMemsetD8Async");
}

/* A tag needs a side record; a small block with a tag is freed by the slow path. */
static fallow_status attach_tag(struct flw_pool *pool, const fallow_request *request, void *ptr)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    flw_lock_acquire(&pool->side_records.lock);
    struct flw_side_record *side = flw_side_record_make(pool, address);
    if (side != NULL) {
        side->tag = request->tag;
        side->flags = request->flags;
    }
    flw_lock_release(&pool->side_records.lock);
    if (side == NULL) {
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

/* For a pool in stream order. */
static fallow_status alloc_for_every_stream(struct flw_pool *pool, const fallow_request *request,
                                            void **out_ptr)
{
    struct flw_domain *unowned = pool->heap.domains[FLW_UNOWNED];
    struct flw_account *account = flw_pool_own_account(pool);
    fallow_status status =
        account == NULL
            ? FALLOW_OUT_OF_HOST_MEMORY
            : alloc_uncached(pool, account, unowned, class_for(pool, request), request, out_ptr);
    if (status == FALLOW_OK) {
        flw_pool_tell(pool, FLW_TRACE_ALLOC, unowned,
                      (struct flw_event){.address = (uint64_t)(uintptr_t)*out_ptr,
                                         .size_bytes = request->size_bytes,
                                         .tag = request->tag});
    }
    return status;
}

static fallow_status allocate_block(struct flw_pool *pool, const fallow_request *request,
                                    fallow_stream stream, void **out_ptr)
{
    fallow_status status;
    if ((request->flags & FALLOW_REQUEST_EVERY_STREAM) != 0 && !flw_pool_has_epochs(pool)) {
        return alloc_for_every_stream(pool, request, out_ptr);
    }
    struct flw_tcache *cache = flw_pool_cache(pool, stream, &status);
    if (cache == NULL) {
        return status;
    }
    unsigned class_index = class_for(pool, request);
    struct flw_domain *captured =
        flw_capture_is_on(cache->domain) ? flw_capture_enter(pool, cache->domain) : NULL;
    uint32_t capture = captured != NULL ? captured->capture : 0;
    if (captured != NULL) {
        status = alloc_uncached(pool, cache->hot.account, captured, class_index, request, out_ptr);
        flw_capture_leave(pool, captured);
    } else if (class_index < FLW_CLASS_COUNT) {
        status = alloc_slot(pool, cache, class_index, request, out_ptr);
    } else {
        status = alloc_run(pool, cache, request, out_ptr);
    }
    if (status == FALLOW_OK && flw_pool_front(pool) == NULL) {
        flw_pool_tell(pool, FLW_TRACE_ALLOC, cache->domain,
                      (struct flw_event){.address = (uint64_t)(uintptr_t)*out_ptr,
                                         .size_bytes = request->size_bytes,
                                         .tag = request->tag,
                                         .capture = capture});
    }
    return status;
}

fallow_status flw_pool_alloc(struct flw_pool *pool, const fallow_request *request,
                             fallow_stream stream, void **out_ptr)
{
    bool may_wait = (request->flags & FALLOW_REQUEST_NO_WAIT) == 0;
    *out_ptr = NULL;
    stream = flw_pool_has_epochs(pool) ? NULL : stream;
    bool has_looked = flw_pool_look(pool);
    fallow_status status = flw_gate_enter(&pool->gate, may_wait);
    if (FLW_UNLIKELY(status != FALLOW_OK) && request->size_bytes != 0) {
        flw_pool_end_look(has_looked);
        return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : status;
    }
    bool is_inside = status == FALLOW_OK;
    struct flw_driver_section section;
    flw_heap_hold_driver(&pool->heap, &section); /* held for the whole climb */
    const struct flw_extension *front = flw_pool_front(pool);
    status = front != NULL ? front->alloc(pool, request, stream, out_ptr)
                           : flw_pool_alloc_plain(pool, request, stream, out_ptr);
    flw_heap_leave_driver(&pool->heap, &section);
    if (FLW_LIKELY(is_inside)) {
        flw_gate_leave(&pool->gate);
    }
    flw_pool_end_look(has_looked);
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
    bool has_context = !flw_pool_has_epochs(pool) || flw_heap_has_context(&pool->heap);
    if (!has_context || flw_heap_is_lost(&pool->heap)) {
        flw_pool_note_loss(pool);
        return FALLOW_DEVICE_LOST;
    }
    if (request->size_bytes == 0) {
        atomic_fetch_add_explicit(&pool->usage.zero_sizes, 1, memory_order_relaxed);
        return FALLOW_OK;
    }
    status = allocate_block(pool, request, stream, out_ptr);
    if (status == FALLOW_OK && (request->tag != 0)) {
        status = attach_tag(pool, request, *out_ptr);
    }
    if (status == FALLOW_OK && (request->flags & FALLOW_REQUEST_ZERO) != 0) {
        status = zero_fill(pool, request, *out_ptr, stream);
    }
    if (status != FALLOW_OK && *out_ptr != NULL) {
        bool is_unused = (request->flags & FALLOW_REQUEST_EVERY_STREAM) != 0;
        (void)(is_unused && !flw_pool_has_epochs(pool)
                   ? flw_pool_free_complete(pool, *out_ptr)
                   : flw_pool_free_plain(pool, *out_ptr, stream));
        *out_ptr = NULL;
    }
    flw_pool_note_loss(pool);
    return flw_heap_is_lost(&pool->heap) && status != FALLOW_OK ? FALLOW_DEVICE_LOST : status;
}

/* ---- a block that grows in place */

static uint64_t block_bytes(struct flw_pool *pool, const struct flw_growable *growable)
{
    flw_lock_acquire(&pool->heap.lock);
    uint64_t bytes = growable->block != NULL ? flw_run_bytes(growable->block) : 0;
    flw_lock_release(&pool->heap.lock);
    return bytes;
}

/* Check that more_bytes addresses are left behind the block; reserve addresses for a new block. */
static fallow_status reserve(struct flw_pool *pool, struct flw_growable *growable,
                             uint64_t more_bytes)
{
    struct flw_heap *heap = &pool->heap;
    if (growable->block == NULL &&
        flw_growable_reserve(heap, pool->device_bytes, more_bytes, growable) != FALLOW_OK) {
        return flw_heap_is_lost(heap) ? FALLOW_DEVICE_LOST : FALLOW_NOT_SUPPORTED;
    }
    flw_lock_acquire(&heap->lock);
    bool has_room = growable->tail != NULL && flw_run_bytes(growable->tail) >= more_bytes;
    flw_lock_release(&heap->lock);
    return has_room ? FALLOW_OK : FALLOW_NOT_SUPPORTED;
}

/* Count a growable block's change of size as a free and an allocation. */
static void resize(struct flw_pool *pool, struct flw_tcache *cache, struct flw_growable *growable,
                   uint64_t had_bytes, const fallow_request *request)
{
    struct flw_slot *slot = flw_span_slot(&pool->heap.map, growable->block, 0);
    uint64_t allocation = slot->allocation, requested = flw_allocation_bytes(allocation);
    struct flw_event event = {.address = flw_slot_address(slot), .size_bytes = requested};
    flw_pool_tell(pool, FLW_TRACE_FREE, cache->domain, event);
    flw_lock_acquire(&cache->lock);
    cache->run_out_bytes += flw_run_bytes(growable->block) - had_bytes;
    flw_pool_account(cache->hot.account, (int64_t)(request->size_bytes - requested));
    flw_slot_set_allocation(slot, allocation - requested + request->size_bytes);
    flw_lock_release(&cache->lock);
    flw_pool_flush_account(pool, cache->hot.account);
    event.size_bytes = request->size_bytes;
    event.tag = request->tag;
    flw_pool_tell(pool, FLW_TRACE_ALLOC, cache->domain, event);
}

/* Grow, inside the gate. */
static fallow_status grow(struct flw_pool *pool, struct flw_tcache *cache,
                          struct flw_growable *growable, const fallow_request *request)
{
    void *address = NULL;
    uint64_t had = block_bytes(pool, growable);
    uint64_t bytes = flw_align_up(request->size_bytes, pool->heap.source.granularity_bytes);
    struct flw_need need = {.domain = cache->domain,
                            .cache = cache,
                            .class_index = FLW_CLASS_COUNT,
                            .unit_count =
                                (uint32_t)((bytes - flw_min(bytes, had)) >> FLW_UNIT_LOG2),
                            .align_units = 1,
                            .size_bytes = request->size_bytes - flw_min(request->size_bytes, had),
                            .growable = growable,
                            .has_bytes = had};
    fallow_status status = need.unit_count > 0 ? reserve(pool, growable, bytes - had) : FALLOW_OK;
    if (status == FALLOW_OK && need.unit_count > 0) {
        need.asked = ask_capture(pool, cache->domain);
        status = forbids_all(need.asked) ? need.asked : climb(pool, &need);
    }
    if (status == FALLOW_OK && had > 0) {
        resize(pool, cache, growable, had, request);
    } else if (status == FALLOW_OK) {
        give_run(pool, cache, growable->block, request, &address);
        flw_pool_tell(pool, FLW_TRACE_ALLOC, cache->domain,
                      (struct flw_event){.address = (uint64_t)(uintptr_t)address,
                                         .size_bytes = request->size_bytes,
                                         .tag = request->tag});
        status = request->tag != 0 ? attach_tag(pool, request, address) : FALLOW_OK;
    }
    if (status != FALLOW_OK && had == 0) {
        flw_growable_end(&pool->heap, growable);
        (void)flw_pool_free_plain(pool, address, cache->domain->stream);
    }
    return status;
}

/* Cut, inside the gate. */
static fallow_status cut(struct flw_pool *pool, struct flw_tcache *cache,
                         struct flw_growable *growable, const fallow_request *request)
{
    uint64_t had = block_bytes(pool, growable);
    (void)flw_growable_cut(&pool->heap, growable, request->size_bytes);
    resize(pool, cache, growable, had, request);
    return FALLOW_OK;
}

static fallow_status
change_block(struct flw_pool *pool, struct flw_growable *growable, const fallow_request *request,
             fallow_stream stream,
             fallow_status (*change)(struct flw_pool *pool, struct flw_tcache *cache,
                                     struct flw_growable *growable, const fallow_request *request))
{
    struct flw_driver_section section;
    if (!pool->heap.source.ops->remaps || flw_pool_front(pool) != NULL) {
        return FALLOW_NOT_SUPPORTED;
    }
    if (request->size_bytes > FLW_REQUEST_MAX) {
        return FALLOW_INVALID_ARGUMENT;
    }
    bool has_looked = flw_pool_look(pool);
    fallow_status status = flw_gate_enter(&pool->gate, true);
    if (status == FALLOW_OK) {
        flw_heap_hold_driver(&pool->heap, &section);
        struct flw_tcache *cache = flw_pool_cache(pool, stream, &status);
        status = cache != NULL ? change(pool, cache, growable, request) : status;
        flw_heap_leave_driver(&pool->heap, &section);
        flw_gate_leave(&pool->gate);
    }
    flw_pool_end_look(has_looked);
    flw_pool_note_loss(pool);
    return flw_heap_is_lost(&pool->heap) && status != FALLOW_OK ? FALLOW_DEVICE_LOST : status;
}

fallow_status flw_pool_grow(struct flw_pool *pool, struct flw_growable *growable,
                            const fallow_request *request, fallow_stream stream)
{
    return change_block(pool, growable, request, stream, grow);
}

fallow_status flw_pool_cut(struct flw_pool *pool, struct flw_growable *growable,
                           const fallow_request *request, fallow_stream stream)
{
    return change_block(pool, growable, request, stream, cut);
}

/* Allocate from the cache of a pool in context order, for a call with a pool handle. */
static bool hit_in_context(struct flw_pool *pool, uint64_t size_bytes, void **out_ptr)
{
    enum flw_hit_kind kind;
    struct flw_tcache *cache =
        flw_heap_has_context(&pool->heap) ? flw_context_enter(pool, &kind) : NULL;
    bool is_done = cache != NULL && flw_context_alloc_inside(cache, size_bytes, out_ptr, kind);
    if (cache != NULL) {
        flw_asym_leave(&cache->hot.asym);
    }
    return is_done;
}

fallow_status flw_entry_alloc(fallow_pool *handle, size_t size_bytes, size_t align_bytes,
                              fallow_stream stream, void **out_ptr)
{
    int saved = errno;
    struct flw_pool *pool = flw_pool_of(handle);
    fallow_status status = FALLOW_INVALID_POOL;
    if (out_ptr == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_ptr = NULL;
    bool has_looked = pool != NULL && flw_pool_look(pool);
    if (pool != NULL && flw_pool_has_epochs(pool) && align_bytes <= FLW_EPOCH_LEAST_BYTES &&
        hit_in_context(pool, size_bytes, out_ptr)) {
        status = FALLOW_OK;
    } else if (pool != NULL) {
        fallow_request request = {
            .struct_size = sizeof request, .size_bytes = size_bytes, .align_bytes = align_bytes};
        status = flw_pool_alloc(pool, &request, stream, out_ptr);
    }
    flw_pool_end_look(has_looked);
    errno = saved;
    return status;
}
