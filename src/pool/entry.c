/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: lend and return. The hit of each is the first screen of its function; everything else is a
 * tail call, so that a hit needs no stack frame. Budget, callee only, checks and statistics on:
 * alloc 34, free 37, of 512 KiB and more 41 instructions (tools/measure shows them).
 */
#include <errno.h>
#include <string.h>

#include "pool/epoch_entry.h"
#include "pool/recording.h"

static FLW_NOINLINE fallow_status alloc_missed(fallow_pool *pool, size_t size_bytes,
                                               fallow_stream stream, void **out_ptr);
static FLW_NOINLINE fallow_status free_missed(fallow_pool *pool, void *ptr, fallow_stream stream);

static inline uint64_t step_of(size_t size_bytes)
{
    return ((uint64_t)size_bytes - 1) >> FLW_BIN_TABLE_LOG2;
}

fallow_status fallow_alloc(fallow_pool *pool, size_t size_bytes, fallow_stream stream,
                           void **out_ptr)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    flw_asym_enter(&hot->asym);
    uint64_t step = step_of(size_bytes);
    if (FLW_LIKELY(flw_asym_key_is(&hot->key, pool) && hot->stream == stream)) {
        if (FLW_UNLIKELY(step >= FLW_BIN_TABLE_COUNT)) {
            return flw_entry_alloc_run(pool, size_bytes, stream, out_ptr, hot);
        }
        if (FLW_LIKELY(flw_bin_lend(hot, step, size_bytes, out_ptr))) {
            flw_asym_leave(&hot->asym);
            return FALLOW_OK;
        }
    }
    flw_asym_leave(&hot->asym);
    return alloc_missed(pool, size_bytes, stream, out_ptr);
}

/* Where the hit missed the pointer may be no block's, and the span somebody's new one. */
static inline bool is_run(const struct flw_span *span)
{
    return FLW_LOAD(span->kind) == FLW_SPAN_RUN;
}

static inline bool free_hit(struct flw_tcache_hot *hot, struct flw_span *span,
                            struct flw_slot *slot, void *ptr)
{
    uint32_t bin_offset = __atomic_load_n(&span->bin, __ATOMIC_RELAXED);
    struct flw_bin *bin = (struct flw_bin *)(void *)((unsigned char *)hot + bin_offset);
    uint64_t address = (uint64_t)(uintptr_t)ptr, count = bin->count;
    if (FLW_UNLIKELY(count >= bin->capacity) || FLW_UNLIKELY(!flw_slot_is_live(slot, address))) {
        return false;
    }
    if (FLW_UNLIKELY(!flw_slot_claim(hot, slot, address + FLW_SLOT_LIVE, address)) &&
        !FLW_MUTANT(INTERIOR_FREE_ACCEPTED)) {
        if (!FLW_MUTANT(DOUBLE_FREE_ACCEPTED)) {
            return false;
        }
    }
    flw_note_returned(hot->account, flw_loan_bytes(slot->loan)); /* nobody else's by now */
    bin->slots[count] = slot;
    bin->count = count + 1;
    return true;
}

fallow_status fallow_free(fallow_pool *pool, void *ptr, fallow_stream stream)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    flw_asym_enter(&hot->asym);
    if (FLW_LIKELY(flw_asym_key_is(&hot->key, pool) && hot->stream == stream)) {
        struct flw_span *span;
        struct flw_slot *slot = flw_slot_of(hot, ptr, &span);
        if (FLW_LIKELY(free_hit(hot, span, slot, ptr))) {
            flw_asym_leave(&hot->asym);
            return FALLOW_OK;
        }
        stream = hot->stream; /* the same: so that a hit keeps no register for it */
        if (is_run(span)) {
            return flw_entry_free_run(pool, ptr, stream, hot, span, slot);
        }
    }
    flw_asym_leave(&hot->asym);
    return free_missed(pool, ptr, stream);
}

static FLW_NOINLINE fallow_status free_sized_missed(fallow_pool *handle, void *ptr,
                                                    size_t size_bytes, fallow_stream stream);

fallow_status fallow_free_sized(fallow_pool *pool, void *ptr, size_t size_bytes,
                                fallow_stream stream)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    flw_asym_enter(&hot->asym);
    if (FLW_LIKELY(flw_asym_key_is(&hot->key, pool) && hot->stream == stream)) {
        struct flw_span *span;
        struct flw_slot *slot = flw_slot_of(hot, ptr, &span);
        /* What was asked, exactly; another size of its class is for the miss to accept. */
        if (FLW_LIKELY(flw_loan_bytes(FLW_LOAD(slot->loan)) == size_bytes ||
                       FLW_MUTANT(SIZE_NOT_VERIFIED)) &&
            FLW_LIKELY(free_hit(hot, span, slot, ptr))) {
            flw_asym_leave(&hot->asym);
            return FALLOW_OK;
        }
        stream = hot->stream;
    }
    flw_asym_leave(&hot->asym);
    return free_sized_missed(pool, ptr, size_bytes, stream);
}

static FLW_NOINLINE fallow_status alloc_elsewhere(fallow_pool *pool, size_t size_bytes,
                                                  fallow_stream stream, void **out_ptr);
static FLW_NOINLINE fallow_status free_elsewhere(fallow_pool *pool, void *ptr,
                                                 fallow_stream stream);

/* ---- next door: another of the thread's caches */

/* The thread has a cache for this stream that may be used: make it the current one. */
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
    return &cache->hot;
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
    if (pool != NULL && flw_pool_has_epochs(pool) && align_bytes <= FLW_EPOCH_LEAST_BYTES &&
        flw_epoch_lend_of(pool, size_bytes, out_ptr)) {
        status = FALLOW_OK;
    } else if (pool != NULL) {
        fallow_request request = {
            .struct_size = sizeof request, .size_bytes = size_bytes, .align_bytes = align_bytes};
        status = flw_pool_alloc(pool, &request, stream, out_ptr);
    }
    errno = saved;
    return status;
}

/* The call is for another stream than the last one and the board has a cache of it: try again
 * there. Whether it is this pool's and may be used the hit finds out; at its second miss the
 * streams are equal and this says no. No calls in here, so that no register is saved. */
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

/* ---- the same hits, recorded */

/* The current cache serves this pool and stream, and is recorded. */
static inline bool is_recorded(const struct flw_tcache_hot *hot, const void *pool,
                               fallow_stream stream)
{
    return flw_recording_has_key(hot) &&
           ((const struct flw_tcache *)(const void *)hot)->handle == pool && hot->stream == stream;
}

static FLW_NOINLINE fallow_status alloc_recorded(fallow_pool *pool, size_t size_bytes,
                                                 fallow_stream stream, void **out_ptr)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    uint64_t step = step_of(size_bytes);
    flw_asym_enter(&hot->asym);
    if (FLW_LIKELY(is_recorded(hot, pool, stream))) {
        if (FLW_UNLIKELY(step >= FLW_BIN_TABLE_COUNT)) {
            return flw_entry_alloc_run_recorded(pool, size_bytes, stream, out_ptr, hot);
        }
        if (FLW_LIKELY(flw_bin_lend(hot, step, size_bytes, out_ptr))) {
            flw_recording_hit(hot, FLW_TRACE_ALLOC, (uint64_t)(uintptr_t)*out_ptr, size_bytes,
                              false);
            flw_asym_leave(&hot->asym);
            return FALLOW_OK;
        }
    }
    flw_asym_leave(&hot->asym);
    return flw_entry_alloc(pool, size_bytes, 0, stream, out_ptr);
}

static FLW_NOINLINE fallow_status free_recorded(fallow_pool *pool, void *ptr, fallow_stream stream)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    flw_asym_enter(&hot->asym);
    if (FLW_LIKELY(is_recorded(hot, pool, stream))) {
        struct flw_span *span;
        struct flw_slot *slot = flw_slot_of(hot, ptr, &span);
        if (FLW_LIKELY(free_hit(hot, span, slot, ptr))) {
            flw_recording_hit(hot, FLW_TRACE_FREE, (uint64_t)(uintptr_t)ptr,
                              flw_loan_bytes(slot->loan), true);
            flw_asym_leave(&hot->asym);
            return FALLOW_OK;
        }
        if (is_run(span)) {
            return flw_entry_free_run_recorded(pool, ptr, stream, hot, span, slot);
        }
    }
    flw_asym_leave(&hot->asym);
    return flw_entry_free(pool, ptr, stream);
}

/* A guess, from outside: somebody may be emptying the cache. */
static inline bool may_hit(const struct flw_tcache_hot *hot, size_t size_bytes)
{
    uint64_t step = step_of(size_bytes);
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
        if (is_recorded(hot, pool, stream)) {
            return alloc_recorded(pool, size_bytes, stream, out_ptr);
        }
        hot = switch_cache(pool, stream);
        if (hot != NULL && out_ptr != NULL && may_hit(hot, size_bytes)) {
            return fallow_alloc(pool, size_bytes, stream, out_ptr);
        }
    }
    return flw_entry_alloc(pool, size_bytes, 0, stream, out_ptr);
}

fallow_status flw_entry_free(fallow_pool *handle, void *ptr, fallow_stream stream)
{
    int saved = errno;
    struct flw_pool *pool = flw_pool_of(handle);
    fallow_status status = pool == NULL ? FALLOW_INVALID_POOL
                           : flw_pool_has_epochs(pool) && flw_epoch_give_back_to(pool, ptr)
                               ? FALLOW_OK
                               : flw_pool_free(pool, ptr, stream);
    errno = saved;
    return status;
}

static fallow_status free_elsewhere(fallow_pool *handle, void *ptr, fallow_stream stream)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    if (!flw_asym_key_is(&hot->key, handle) || hot->stream != stream) {
        if (is_recorded(hot, handle, stream)) {
            return free_recorded(handle, ptr, stream);
        }
        hot = switch_cache(handle, stream);
        if (hot != NULL && is_recorded(hot, handle, stream)) {
            return free_recorded(handle, ptr, stream);
        }
        if (hot != NULL) {
            struct flw_span *span;
            struct flw_slot *slot;
            bool is_done = false;
            flw_asym_enter(&hot->asym);
            if (flw_asym_key_is(&hot->key, handle)) {
                slot = flw_slot_of(hot, ptr, &span);
                if (is_run(span)) {
                    return flw_entry_free_run(handle, ptr, stream, hot, span, slot);
                }
                is_done = free_hit(hot, span, slot, ptr);
            }
            flw_asym_leave(&hot->asym);
            if (is_done) {
                return FALLOW_OK;
            }
        }
    }
    return flw_entry_free(handle, ptr, stream);
}

static fallow_status free_sized_missed(fallow_pool *handle, void *ptr, size_t size_bytes,
                                       fallow_stream stream)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (pool->debug != NULL) {
        int saved = errno;
        fallow_status status = flw_debug_free_sized(pool, ptr, size_bytes, stream);
        errno = saved;
        return status;
    }
    if (ptr == NULL || flw_heap_is_lost(&pool->heap)) {
        return FALLOW_OK;
    }
    uint64_t offset = flw_page_map_offset(&pool->heap.map, (uint64_t)(uintptr_t)ptr);
    struct flw_span *span = flw_page_map_span_at(&pool->heap.map, offset);
    const struct flw_slot *slot = flw_page_map_slot_at(&pool->heap.map, span, offset);
    uint64_t word = FLW_LOAD(slot->word), state = word & FLW_SLOT_STATE_MASK;
    if (word - state != (uint64_t)(uintptr_t)ptr || state == FLW_SLOT_FREE ||
        state == FLW_SLOT_HELD) {
        atomic_fetch_add(&pool->misuses, 1);
        return FALLOW_INVALID_POINTER;
    }
    /* Its class by size, or, where alignment chose a larger one, exactly what was asked. */
    uint64_t usable = span->kind == FLW_SPAN_SLAB ? flw_class_bytes(span->u.slab.class_index)
                                                  : flw_run_bytes(span);
    bool fits = size_bytes != 0 && size_bytes <= FLW_REQUEST_MAX &&
                (flw_request_usable_bytes(size_bytes) == usable ||
                 flw_loan_bytes(slot->loan) == size_bytes);
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
