/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/streams/uses.h"

#include "base/mutant.h"
#include "pool/state/extension.h"
#include "pool/state/side_records.h"
#include "pool/state/table.h"
#include "pool/streams/cache.h"
#include "pool/streams/current.h"
#include "pool/streams/epoch.h"
#include "pool/streams/streams.h"

static void add_use(struct flw_side_record *side, uint32_t domain)
{
    uint32_t i = 0;
    while (i < side->point_count && side->domains[i] != domain) {
        i++;
    }
    if (i < side->point_count || FLW_MUTANT(USE_IGNORED)) {
        return;
    }
    if (side->point_count < FLW_POINTS_MAX) {
        side->domains[side->point_count++] = domain;
        return;
    }
    side->overflowed = true;
    if (domain == FLW_ANY_USER) {
        side->domains[0] = domain;
    }
}

static struct flw_slot *slot_of(struct flw_pool *pool, uint64_t address)
{
    uint64_t offset = flw_page_map_offset(&pool->heap.map, address);
    const struct flw_span *span = flw_page_map_span_at(&pool->heap.map, offset);
    return flw_page_map_slot_at(&pool->heap.map, span, offset);
}

fallow_status flw_uses_announce(struct flw_pool *pool, uint64_t address, uint32_t domain)
{
    struct flw_slot *slot = slot_of(pool, address);
    fallow_status status = FALLOW_OK;
    flw_lock_acquire(&pool->side_records.lock);
    uint64_t word = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
    uint64_t state = word & FLW_SLOT_STATE_MASK;
    if (word - state != address || state == FLW_SLOT_FREE || state == FLW_SLOT_HELD) {
        status = FALLOW_INVALID_POINTER;
    } else {
        struct flw_side_record *side = flw_side_record_make(pool, address);
        if (side != NULL) {
            add_use(side, domain);
        }
        if (side == NULL) {
            status = FALLOW_OUT_OF_HOST_MEMORY;
        } else if (state == FLW_SLOT_LIVE &&
                   !__atomic_compare_exchange_n(&slot->word, &word, address + FLW_SLOT_LIVE_USED,
                                                false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            status = FALLOW_INVALID_POINTER; /* freed by another thread meanwhile */
        }
    }
    flw_lock_release(&pool->side_records.lock);
    return status;
}

bool flw_uses_has(struct flw_pool *pool, uint64_t address)
{
    flw_lock_acquire(&pool->side_records.lock);
    const struct flw_side_record *side = flw_side_record_find(pool, address);
    bool has_uses = side != NULL && flw_side_record_has_uses(side);
    flw_lock_release(&pool->side_records.lock);
    return has_uses;
}

/* Fence the use now: the stream may be gone at the free. */
static void fence_use(struct flw_pool *pool, struct flw_domain *domain)
{
    struct flw_driver_section section;
    flw_lock_acquire(&pool->heap.lock);
    flw_domain_want_fence(&pool->heap, domain, 1);
    flw_lock_release(&pool->heap.lock);
    if (flw_heap_enter_driver(&pool->heap, &section)) {
        (void)flw_domain_fence_own(&pool->heap, domain);
        flw_heap_leave_driver(&pool->heap, &section);
    }
}

/* A tracked stream is accepted, as in a hit; NULL and a status otherwise. */
static struct flw_domain *user_domain(struct flw_pool *pool, fallow_stream stream,
                                      fallow_status *status)
{
    struct flw_domain *domain = NULL;
    if (stream == CU_STREAM_PER_THREAD) { /* the thread's cache reports the end */
        const struct flw_tcache *cache = flw_pool_cache(pool, stream, status);
        return cache != NULL ? cache->domain : NULL;
    }
    *status = FALLOW_OK;
    if (!flw_pool_asks_identity(pool)) {
        domain = flw_pool_known_domain(pool, stream, status);
    }
    return domain != NULL ? domain : flw_pool_domain(pool, stream, status);
}

fallow_status flw_uses_announce_of(struct flw_pool *pool, void *ptr, uint32_t domain)
{
    const struct flw_extension *front = flw_pool_front(pool);
    struct flw_view view = {.raw = (uint64_t)(uintptr_t)ptr};
    return front != NULL && !front->view(pool, view.raw, &view)
               ? FALLOW_INVALID_POINTER
               : flw_uses_announce(pool, view.raw, domain);
}

static FLW_NOINLINE fallow_status record_use(fallow_pool *handle, void *ptr, fallow_stream stream)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (ptr == NULL) {
        return FALLOW_OK;
    }
    if (flw_heap_is_lost(&pool->heap)) {
        flw_pool_note_loss(pool);
        return FALLOW_DEVICE_LOST;
    }
    if (flw_pool_has_epochs(pool)) {
        struct flw_epoch_block block;
        bool is_live = flw_epoch_find(pool, (uint64_t)(uintptr_t)ptr, &block) &&
                       block.base == (uint64_t)(uintptr_t)ptr;
        return is_live ? FALLOW_OK : FALLOW_INVALID_POINTER;
    }
    fallow_status status;
    struct flw_domain *domain = user_domain(pool, stream, &status);
    if (domain == NULL) {
        flw_pool_note_loss(pool);
        return status;
    }
    status = flw_uses_announce_of(pool, ptr, domain->index);
    if (status == FALLOW_INVALID_POINTER) {
        atomic_fetch_add(&pool->usage.misuses, 1);
    } else if (status == FALLOW_OK && pool->config.streams_may_die) {
        fence_use(pool, domain);
    }
    if (status == FALLOW_OK) {
        flw_pool_tell(pool, FLW_TRACE_USE, domain,
                      (struct flw_event){.address = (uint64_t)(uintptr_t)ptr});
    }
    return status;
}

/* Return the stream's domain, if the thread has an open cache of the pool for it: then the handle
 * is valid, and the device was not lost. NULL: query further. */
static struct flw_domain *open_domain(const fallow_pool *handle, fallow_stream stream,
                                      struct flw_pool **out_pool)
{
    struct flw_tcache_hot *hot = *flw_switch_place(flw_tls_board, stream);
    struct flw_domain *domain = NULL;
    if (hot->stream == stream) {
        flw_asym_enter(&hot->asym);
        if (flw_asym_key_is(&hot->key, handle)) {
            const struct flw_tcache *cache = (const struct flw_tcache *)(const void *)hot;
            *out_pool = cache->pool;
            domain = cache->domain;
        }
        flw_asym_leave(&hot->asym);
    }
    return domain;
}

fallow_status fallow_record_use(fallow_pool *handle, void *ptr, fallow_stream stream)
{
    struct flw_pool *pool;
    struct flw_domain *domain = open_domain(handle, stream, &pool);
    if (domain == NULL || ptr == NULL || !flw_pool_is_plain(pool)) {
        return record_use(handle, ptr, stream);
    }
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    fallow_status status = flw_uses_announce(pool, address, domain->index);
    if (status == FALLOW_INVALID_POINTER) {
        atomic_fetch_add(&pool->usage.misuses, 1);
    } else if (status == FALLOW_OK) { /* a recording may have begun meanwhile */
        flw_pool_tell(pool, FLW_TRACE_USE, domain, (struct flw_event){.address = address});
    }
    return status;
}

fallow_status flw_uses_announce_context(struct flw_pool *pool, void *ptr)
{
    return flw_heap_is_lost(&pool->heap) ? FALLOW_OK
                                         : flw_uses_announce_of(pool, ptr, FLW_ANY_USER);
}

bool flw_uses_is_exported(struct flw_pool *pool, const struct flw_span *span)
{
    struct flw_heap *heap = &pool->heap;
    if (span->kind != FLW_SPAN_RUN || atomic_load(&heap->exported_bytes) == 0) {
        return false;
    }
    flw_lock_acquire(&heap->lock);
    const struct flw_handle *handle =
        flw_heap_handle_at(heap, (uint64_t)span->u.run.begin_unit << FLW_UNIT_LOG2);
    bool is_exported = handle != NULL && handle->is_exported;
    flw_lock_release(&heap->lock);
    return is_exported;
}

/* An exported block does not return to the stream, which would order the free: it waits for the
 * stream and is then released. Heap lock held. */
static void await_own(struct flw_heap *heap, struct flw_deferred *deferred,
                      struct flw_domain *domain)
{
    deferred->domain = heap->unmap_only->index;
    deferred->own_seq = 0;
    deferred->needs_context_sync = domain->is_lost;
    deferred->points[deferred->point_count++] =
        (struct flw_point){.domain = domain->index, .seq = flw_domain_free_seq(domain)};
    flw_domain_set_add(&heap->open_users, domain);
}

fallow_status flw_uses_free(struct flw_pool *pool, struct flw_domain *domain, struct flw_slot *slot,
                            const struct flw_side_record *side)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_span *span = flw_slot_span(&heap->map, slot);
    uint64_t bytes = flw_span_usable_bytes(span);
    bool is_exported = flw_uses_is_exported(pool, span);
    flw_lock_acquire(&heap->lock);
    struct flw_deferred *deferred = flw_heap_new_deferred(heap);
    if (deferred != NULL) {
        *deferred = (struct flw_deferred){.slot = slot,
                                          .bytes = bytes,
                                          .domain = domain->index,
                                          .own_seq = domain->seq,
                                          .sweep_next = side->overflowed};
        flw_domain_want_fence(heap, domain, 1 + bytes / 8); /* a retire must fence it */
        if (is_exported) {
            await_own(heap, deferred, domain);
        }
        if (span->kind == FLW_SPAN_RUN) {
            flw_heap_defer_run(heap, deferred, span);
        }
        for (uint32_t i = 0; i < side->point_count; i++) {
            struct flw_domain *user = heap->domains[side->domains[i]];
            if (side->domains[i] == FLW_ANY_USER) {
                deferred->needs_context_sync = true;
                continue;
            }
            if (user->ops == NULL || user == domain) {
                continue; /* gone and complete, or ordered by the free itself */
            }
            bool is_fenced = heap->streams_may_die && user->unfenced_bytes == 0;
            deferred->needs_context_sync |= user->is_lost && !is_fenced;
            deferred->points[deferred->point_count++] = (struct flw_point){
                .domain = user->index,
                .seq = flw_domain_free_seq(user) - is_fenced - FLW_MUTANT(USE_MARKED_EARLY)};
            if (!is_fenced) {
                flw_domain_want_fence(heap, user, bytes);
                flw_domain_set_add(&heap->open_users, user);
                atomic_store_explicit(&user->is_user, true, memory_order_relaxed);
            }
        }
        heap->unfenced_use_bytes += bytes;
        heap->unfenced_use_count++;
        flw_heap_hold_deferred(heap, deferred);
    } /* otherwise the block stays unused until the pool ends: lost memory, no error */
    flw_lock_release(&heap->lock);
    return FALLOW_OK;
}

/* Records nothing if another fence has covered it. */
static void fence_noted(struct flw_pool *pool, uint32_t index)
{
    struct flw_heap *heap = &pool->heap;
    flw_lock_acquire(&heap->lock);
    struct flw_domain *domain = heap->domains[index];
    flw_lock_release(&heap->lock);
    if (!flw_heap_is_lost(heap)) {
        (void)flw_domain_fence(heap, domain);
    }
}

/* Two threads may run this at once: the other's stream is fenced rather than forgotten. */
static void change_noted(struct flw_pool *pool, uint32_t index)
{
    uint32_t noted =
        atomic_exchange_explicit(&pool->budget.late_domain, index, memory_order_relaxed);
    if (noted != 0 && noted != index) {
        fence_noted(pool, noted);
    }
}

bool flw_uses_fence_later(struct flw_pool *pool, struct flw_domain *domain)
{
    bool may_be_late = atomic_load_explicit(&domain->is_user, memory_order_relaxed) &&
                       pool->config.economy == FALLOW_BALANCED && !pool->config.streams_may_die &&
                       !domain->own_thread_only;
    if (may_be_late) {
        change_noted(pool, domain->index);
    }
    return may_be_late;
}

void flw_uses_fence_late(struct flw_pool *pool)
{
    if (atomic_load_explicit(&pool->budget.late_domain, memory_order_relaxed) != 0) {
        change_noted(pool, 0);
    }
}

/* Return the next domain after the cursor that announced uses wait for; NULL: none. Heap lock
 * held. */
static struct flw_domain *next_user(struct flw_heap *heap, uint32_t *cursor)
{
    *cursor = flw_domain_set_next(&heap->open_users, *cursor + 1);
    return *cursor < FLW_DOMAIN_COUNT ? heap->domains[*cursor] : NULL;
}

void flw_uses_fence(struct flw_pool *pool)
{
    struct flw_heap *heap = &pool->heap;
    uint32_t cursor = 0;
    heap->unfenced_use_bytes = 0;
    heap->unfenced_use_count = 0;
    flw_lock_acquire(&heap->lock);
    for (struct flw_domain *user; (user = next_user(heap, &cursor)) != NULL;) {
        flw_lock_release(&heap->lock);
        (void)flw_domain_fence(heap, user);
        flw_lock_acquire(&heap->lock);
    }
    flw_lock_release(&heap->lock);
    flw_uses_fence_late(pool);
}

void flw_pool_fence_all(struct flw_pool *pool)
{
    struct flw_driver_section section;
    uint32_t cursor = 0;
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return;
    }
    for (struct flw_domain *domain; (domain = flw_domain_next(&pool->heap, &cursor)) != NULL;) {
        (void)flw_domain_fence(&pool->heap, domain);
    }
    flw_heap_leave_driver(&pool->heap, &section);
}
