/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: allocate and free. The first lines of each function are the hit; everything else is a tail
 * call, so a hit needs no stack frame. Instructions of the callee, with checks and statistics:
 * alloc 34, free 37, from 512 KiB on 41 (tools/measure shows them). */
#include <errno.h>
#include <string.h>

#include "pool/calls/alloc.h"
#include "pool/calls/hit_context.h"
#include "pool/state/extension.h"
#include "pool/state/settings.h"
#include "pool/state/table.h"

static FLW_NOINLINE fallow_status alloc_missed(fallow_pool *pool, size_t size_bytes,
                                               fallow_stream stream, void **out_ptr);
static FLW_NOINLINE fallow_status free_missed(fallow_pool *pool, void *ptr, fallow_stream stream);
static FLW_NOINLINE fallow_status free_sized_missed(fallow_pool *handle, void *ptr,
                                                    size_t size_bytes, fallow_stream stream);

/* True if the current cache is of this kind and serves this pool and stream. */
static FLW_INLINE bool serves(const struct flw_tcache_hot *hot, const void *pool,
                              fallow_stream stream, enum flw_hit_kind kind)
{
    if (kind == FLW_HIT_RECORDED) {
        return flw_recording_has_key(hot) &&
               ((const struct flw_tcache *)(const void *)hot)->handle == pool &&
               hot->stream == stream;
    }
    return FLW_LIKELY(flw_asym_key_is(&hot->key, pool)) && FLW_LIKELY(hot->stream == stream);
}

static FLW_INLINE fallow_status allocate(fallow_pool *pool, size_t size_bytes, fallow_stream stream,
                                         void **out_ptr, enum flw_hit_kind kind)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    flw_asym_enter(&hot->asym);
    uint64_t step = flw_hit_step(size_bytes);
    if (FLW_LIKELY(serves(hot, pool, stream, kind))) {
        struct flw_slot *slot;
        if (FLW_UNLIKELY(step >= FLW_BIN_TABLE_COUNT)) {
            return kind == FLW_HIT_RECORDED
                       ? flw_entry_alloc_run_recorded(pool, size_bytes, stream, out_ptr, hot)
                       : flw_entry_alloc_run(pool, size_bytes, stream, out_ptr, hot);
        }
        if (FLW_LIKELY(out_ptr != NULL) && FLW_LIKELY(flw_hit_pop(hot, step, &slot))) {
            flw_hit_give(hot, slot, size_bytes, out_ptr, kind, false);
            flw_asym_leave(&hot->asym);
            return FALLOW_OK;
        }
    }
    flw_asym_leave(&hot->asym);
    return kind == FLW_HIT_RECORDED ? flw_entry_alloc(pool, size_bytes, 0, stream, out_ptr)
                                    : alloc_missed(pool, size_bytes, stream, out_ptr);
}

/* With is_sized the exact requested size hits; the miss accepts other sizes of the class. */
static FLW_INLINE fallow_status release(fallow_pool *pool, void *ptr, size_t size_bytes,
                                        bool is_sized, fallow_stream stream, enum flw_hit_kind kind)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    flw_asym_enter(&hot->asym);
    if (FLW_LIKELY(serves(hot, pool, stream, kind))) {
        struct flw_span *span;
        struct flw_slot *slot = flw_slot_of(hot, ptr, &span);
        if (FLW_LIKELY(!is_sized ||
                       flw_allocation_bytes(FLW_LOAD(slot->allocation)) == size_bytes ||
                       FLW_MUTANT(SIZE_NOT_VERIFIED)) &&
            FLW_LIKELY(flw_hit_push(hot, span, slot, ptr, kind))) {
            flw_asym_leave(&hot->asym);
            return FALLOW_OK;
        }
        if (!is_sized) {
            stream = hot->stream; /* equal, so that a hit needs no register for it */
            if (flw_hit_is_run(span)) {
                return kind == FLW_HIT_RECORDED
                           ? flw_entry_free_run_recorded(pool, ptr, stream, hot, span, slot)
                           : flw_entry_free_run(pool, ptr, stream, hot, span, slot);
            }
        }
    }
    flw_asym_leave(&hot->asym);
    return is_sized                   ? free_sized_missed(pool, ptr, size_bytes, stream)
           : kind == FLW_HIT_RECORDED ? flw_entry_free(pool, ptr, stream)
                                      : free_missed(pool, ptr, stream);
}

fallow_status fallow_alloc(fallow_pool *pool, size_t size_bytes, fallow_stream stream,
                           void **out_ptr)
{
    return allocate(pool, size_bytes, stream, out_ptr, FLW_HIT_PLAIN);
}

fallow_status fallow_free(fallow_pool *pool, void *ptr, fallow_stream stream)
{
    return release(pool, ptr, 0, false, stream, FLW_HIT_PLAIN);
}

fallow_status fallow_free_sized(fallow_pool *pool, void *ptr, size_t size_bytes,
                                fallow_stream stream)
{
    return release(pool, ptr, size_bytes, true, stream, FLW_HIT_PLAIN);
}

/* The recording may have call stacks. */
static FLW_NOINLINE fallow_status alloc_seen(fallow_pool *handle, size_t size_bytes,
                                             fallow_stream stream, void **out_ptr)
{
    struct flw_pool *pool = flw_pool_of(handle);
    bool has_looked = pool != NULL && flw_pool_look(pool);
    fallow_status status = allocate(handle, size_bytes, stream, out_ptr, FLW_HIT_RECORDED);
    flw_pool_end_look(has_looked);
    return status;
}

static FLW_NOINLINE fallow_status alloc_recorded(fallow_pool *pool, size_t size_bytes,
                                                 fallow_stream stream, void **out_ptr)
{
    if (FLW_UNLIKELY(atomic_load_explicit(&flw_callstack_recordings, memory_order_relaxed) != 0)) {
        return alloc_seen(pool, size_bytes, stream, out_ptr);
    }
    return allocate(pool, size_bytes, stream, out_ptr, FLW_HIT_RECORDED);
}

static FLW_NOINLINE fallow_status free_recorded(fallow_pool *pool, void *ptr, fallow_stream stream)
{
    return release(pool, ptr, 0, false, stream, FLW_HIT_RECORDED);
}

static FLW_NOINLINE fallow_status alloc_elsewhere(fallow_pool *pool, size_t size_bytes,
                                                  fallow_stream stream, void **out_ptr);
static FLW_NOINLINE fallow_status free_elsewhere(fallow_pool *pool, void *ptr,
                                                 fallow_stream stream);

/* ---- another cache of the thread */

/* Make the thread's cache for this stream the current one, if there is a usable one. */
static inline struct flw_tcache_hot *switch_cache(const void *pool, fallow_stream stream)
{
    struct flw_tcache *cache = flw_thread_find(pool, stream);
    if (cache == NULL) {
        return NULL;
    }
    if (!flw_asym_key_is(&cache->hot.key, pool) && !flw_recording_has_key(&cache->hot)) {
        return NULL;
    }
    flw_thread_select(cache);
    *flw_switch_place(flw_tls_board, stream) = &cache->hot;
    return &cache->hot;
}

/* Make the board's cache for another stream the current one; the caller then retries. The hit
 * checks the pool and whether the cache may be used; after the second miss the streams are equal
 * and this returns false. Calls no function, so no register is saved. */
static inline bool switch_stream(fallow_stream stream)
{
    if (flw_tls_cache->stream == stream) {
        return false;
    }
    struct flw_tcache_hot *hot = *flw_switch_place(flw_tls_board, stream);
    if (hot->stream != stream) {
        return false;
    }
    flw_tls_cache = hot;
    return true;
}

static fallow_status alloc_missed(fallow_pool *pool, size_t size_bytes, fallow_stream stream,
                                  void **out_ptr)
{
    return switch_stream(stream) ? fallow_alloc(pool, size_bytes, stream, out_ptr)
                                 : alloc_elsewhere(pool, size_bytes, stream, out_ptr);
}

static fallow_status free_missed(fallow_pool *pool, void *ptr, fallow_stream stream)
{
    return switch_stream(stream) ? fallow_free(pool, ptr, stream)
                                 : free_elsewhere(pool, ptr, stream);
}

/* An estimate from outside: another thread may be emptying the cache. */
static inline bool may_hit(const struct flw_tcache_hot *hot, size_t size_bytes)
{
    uint64_t step = flw_hit_step(size_bytes);
    if (step >= FLW_BIN_TABLE_COUNT) {
        return true;
    }
    const struct flw_bin *bin =
        (const struct flw_bin *)(const void *)((const unsigned char *)hot + hot->bin_of_size[step]);
    return __atomic_load_n(&bin->count, __ATOMIC_RELAXED) != 0;
}

static fallow_status alloc_elsewhere(fallow_pool *pool, size_t size_bytes, fallow_stream stream,
                                     void **out_ptr)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    if (!flw_asym_key_is(&hot->key, pool) || hot->stream != stream) {
        if (serves(hot, pool, stream, FLW_HIT_RECORDED)) {
            return alloc_recorded(pool, size_bytes, stream, out_ptr);
        }
        hot = switch_cache(pool, stream);
        if (hot != NULL && out_ptr != NULL && may_hit(hot, size_bytes)) {
            return fallow_alloc(pool, size_bytes, stream, out_ptr);
        }
    }
    return flw_entry_alloc(pool, size_bytes, 0, stream, out_ptr);
}

static fallow_status free_elsewhere(fallow_pool *handle, void *ptr, fallow_stream stream)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    if (!flw_asym_key_is(&hot->key, handle) || hot->stream != stream) {
        if (serves(hot, handle, stream, FLW_HIT_RECORDED)) {
            return free_recorded(handle, ptr, stream);
        }
        hot = switch_cache(handle, stream);
        if (hot != NULL && serves(hot, handle, stream, FLW_HIT_RECORDED)) {
            return free_recorded(handle, ptr, stream);
        }
        if (hot != NULL) {
            return fallow_free(handle, ptr, stream);
        }
    }
    return flw_entry_free(handle, ptr, stream);
}

/* The front has the requested size. */
static fallow_status free_sized_by(const struct flw_extension *front, struct flw_pool *pool,
                                   void *ptr, size_t size_bytes, fallow_stream stream)
{
    int saved = errno;
    struct flw_view view;
    bool is_known = front->view(pool, (uint64_t)(uintptr_t)ptr, &view);
    bool fits = is_known && size_bytes != 0 && size_bytes <= FLW_REQUEST_MAX &&
                flw_request_usable_bytes(size_bytes) == flw_request_usable_bytes(view.size_bytes);
    fallow_status status =
        is_known && !fits ? FALLOW_INVALID_ARGUMENT : front->free(pool, ptr, stream);
    errno = saved;
    return status;
}

static fallow_status free_sized_missed(fallow_pool *handle, void *ptr, size_t size_bytes,
                                       fallow_stream stream)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (ptr == NULL || flw_heap_is_lost(&pool->heap)) {
        return FALLOW_OK;
    }
    const struct flw_extension *front = flw_pool_front(pool);
    if (front != NULL) {
        return free_sized_by(front, pool, ptr, size_bytes, stream);
    }
    uint64_t offset = flw_page_map_offset(&pool->heap.map, (uint64_t)(uintptr_t)ptr);
    struct flw_span *span = flw_page_map_span_at(&pool->heap.map, offset);
    const struct flw_slot *slot = flw_page_map_slot_at(&pool->heap.map, span, offset);
    uint64_t word = FLW_LOAD(slot->word), state = word & FLW_SLOT_STATE_MASK;
    if (word - state != (uint64_t)(uintptr_t)ptr || state == FLW_SLOT_FREE ||
        state == FLW_SLOT_HELD) {
        atomic_fetch_add(&pool->usage.misuses, 1);
        return FALLOW_INVALID_POINTER;
    }
    /* The class by size or, if an alignment chose a larger class, the exact requested size. */
    uint64_t usable = span->kind == FLW_SPAN_SLAB ? flw_class_bytes(span->u.slab.class_index)
                                                  : flw_run_bytes(span);
    bool fits = size_bytes != 0 && size_bytes <= FLW_REQUEST_MAX &&
                (flw_request_usable_bytes(size_bytes) == usable ||
                 flw_allocation_bytes(slot->allocation) == size_bytes);
    return fits ? fallow_free((fallow_pool *)(uintptr_t)pool->handle, ptr, stream)
                : FALLOW_INVALID_ARGUMENT;
}

fallow_status fallow_alloc_aligned(fallow_pool *pool, size_t size_bytes, size_t align_bytes,
                                   fallow_stream stream, void **out_ptr)
{
    if (align_bytes <= 256 && (align_bytes & (align_bytes - 1)) == 0) {
        return fallow_alloc(pool, size_bytes, stream, out_ptr);
    }
    return flw_entry_alloc(pool, size_bytes, align_bytes, stream, out_ptr);
}

void fallow_request_init_sized(fallow_request *request, size_t struct_size)
{
    memset(request, 0, struct_size);
    request->struct_size = struct_size;
}

fallow_status fallow_alloc_request(fallow_pool *handle, const fallow_request *request,
                                   fallow_stream stream, void **out_ptr)
{
    fallow_request known = {0};
    if (out_ptr == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_ptr = NULL;
    if (request == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    fallow_status status = flw_struct_accept(&known, sizeof known, request);
    if (status != FALLOW_OK) {
        return status;
    }
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    int saved = errno;
    status = flw_pool_alloc(pool, &known, stream, out_ptr);
    errno = saved;
    return status;
}

fallow_status fallow_alloc_batch(fallow_pool *pool, const size_t *sizes, size_t count,
                                 fallow_stream stream, void **out_ptrs)
{
    if (out_ptrs == NULL || count > SIZE_MAX / sizeof *out_ptrs) { /* no array is that long */
        return count == 0 ? FALLOW_OK : FALLOW_INVALID_ARGUMENT;
    }
    fallow_status status = flw_pool_of(pool) == NULL     ? FALLOW_INVALID_POOL
                           : sizes == NULL && count != 0 ? FALLOW_INVALID_ARGUMENT
                                                         : FALLOW_OK;
    size_t done = 0;
    while (status == FALLOW_OK && done < count) {
        status = fallow_alloc(pool, sizes[done], stream, &out_ptrs[done]);
        done += status == FALLOW_OK;
    }
    if (status != FALLOW_OK) {
        for (size_t i = 0; i < done; i++) {
            (void)fallow_free(pool, out_ptrs[i], stream);
        }
        for (size_t i = 0; i < count; i++) {
            out_ptrs[i] = NULL;
        }
    }
    return status;
}

/* ---- context order: hits of a recorded pool */

bool flw_context_alloc_recorded(uint64_t context_id, uint64_t size_bytes, void **out_ptr)
{
    return flw_context_alloc(context_id, size_bytes, out_ptr, FLW_HIT_RECORDED);
}

bool flw_context_free_recorded(const void *ptr)
{
    return flw_context_free(ptr, FLW_HIT_RECORDED);
}
