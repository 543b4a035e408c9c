/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: lend and return of a pool in context order out of the calling thread's cache. Kept apart from
 * entry.c, whose hits must not pay for a second order: a block that was freed may not be the next one
 * lent, so what is lent comes from bins and run sets that only the heap fills, and what is freed goes
 * to limbo.
 *
 * Inlined into the hooks, which know the context and whose calls have no pool and no stream.
 */
#ifndef FLW_POOL_EPOCH_ENTRY_H
#define FLW_POOL_EPOCH_ENTRY_H

#include "pool/entry_inl.h"

/* ---- inside a cache in context order */

static inline bool flw_epoch_lend_inside(struct flw_tcache *cache, uint64_t size_bytes,
                                         void **out_ptr)
{
    struct flw_tcache_hot *hot = &cache->hot;
    if (FLW_LIKELY(size_bytes - 1 < cache->whole_bytes - 1)) {
        uint64_t step = (size_bytes - 1) >> FLW_BIN_TABLE_LOG2;
        return flw_bin_lend(hot, step + (step == 0), size_bytes, out_ptr);
    }
    if (size_bytes - 1 >= FLW_REQUEST_MAX) { /* 0, too */
        return false;
    }
    uint64_t page_bytes = cache->pool->heap.source.granularity_bytes;
    uint32_t unit_count = (uint32_t)(flw_align_up(size_bytes, page_bytes) >> FLW_UNIT_LOG2);
    const struct flw_span *run = flw_tcache_pop_run(cache, unit_count);
    if (run == NULL) {
        return false;
    }
    struct flw_slot *slot = (struct flw_slot *)(void *)(hot->slots + run->slots);
    uint64_t address = slot->word;
    cache->run_pops++;
    FLW_STORE(slot->loan, hot->lender + size_bytes);
    flw_slot_set_word(slot, address + FLW_SLOT_LIVE); /* after the loan, for who looks on */
    flw_note_lent(hot->account, size_bytes);
    *out_ptr = (void *)(uintptr_t)address;
    return true;
}

static inline bool flw_epoch_return_inside(struct flw_tcache *cache, const void *ptr,
                                           uint64_t *out_bytes)
{
    struct flw_tcache_hot *hot = &cache->hot;
    struct flw_span *span;
    struct flw_slot *slot = flw_slot_of(hot, ptr, &span);
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    if (FLW_UNLIKELY(!flw_slot_is_live(slot, address))) {
        return false;
    }
    int64_t bytes = (int64_t)flw_loan_bytes(FLW_LOAD(slot->loan));
    int64_t left_bytes = cache->limbo_left_bytes - bytes;
    if (FLW_UNLIKELY(left_bytes <= 0) || FLW_UNLIKELY(cache->limbo_count == FLW_LIMBO_SLOTS) ||
        FLW_UNLIKELY(!flw_slot_claim(hot, slot, address + FLW_SLOT_LIVE, address))) {
        return false;
    }
    *out_bytes = (uint64_t)bytes;
    struct flw_bin *bin = (struct flw_bin *)(void *)((unsigned char *)hot + span->bin);
    if (FLW_MUTANT(FREED_IS_READY) && bin->count < bin->capacity) {
        bin->slots[bin->count++] = slot;
        return true;
    }
    flw_note_returned(hot->account, (uint64_t)bytes);
    bin->moved_out++; /* of a run, that of the bin that nobody looks at */
    if (FLW_UNLIKELY(span->kind == FLW_SPAN_RUN)) {
        cache->run_pushes++;
        cache->run_out_bytes -= flw_run_bytes(span);
    }
    cache->limbo_bins[cache->limbo_count] = (uint16_t)span->bin;
    cache->limbo[cache->limbo_count++] = slot;
    cache->limbo_left_bytes = left_bytes;
    return true;
}

/* ---- hits: false, and nothing has changed, where the calling thread's present cache cannot */

/* Of the pool that has this name (flw_pool_place). */
static inline bool flw_epoch_lend(uint64_t context_id, uint64_t size_bytes, void **out_ptr)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    struct flw_tcache *cache = (struct flw_tcache *)(void *)hot;
    bool is_done = false;
    flw_asym_enter(&hot->asym);
    if (FLW_LIKELY(flw_asym_key_is(&hot->key, flw_context_key(hot, false))) &&
        FLW_LIKELY(cache->context_id == context_id)) {
        is_done = flw_epoch_lend_inside(cache, size_bytes, out_ptr);
    }
    flw_asym_leave(&hot->asym);
    return is_done;
}

static inline bool flw_epoch_give_back(const void *ptr)
{
    struct flw_tcache_hot *hot = flw_tls_cache;
    struct flw_tcache *cache = (struct flw_tcache *)(void *)hot;
    uint64_t bytes;
    bool is_done = false;
    flw_asym_enter(&hot->asym);
    if (FLW_LIKELY(flw_asym_key_is(&hot->key, flw_context_key(hot, false)))) {
        is_done = flw_epoch_return_inside(cache, ptr, &bytes);
    }
    flw_asym_leave(&hot->asym);
    return is_done;
}

/* The same where the cache is recorded. */
bool flw_epoch_lend_recorded(uint64_t context_id, uint64_t size_bytes, void **out_ptr);
bool flw_epoch_give_back_recorded(const void *ptr);

/* The same by the pool, recorded or not, whichever of its caches the thread used last: what a call on
 * the pool's handle tries first. */
bool flw_epoch_lend_of(struct flw_pool *pool, uint64_t size_bytes, void **out_ptr);
bool flw_epoch_give_back_to(struct flw_pool *pool, const void *ptr);

#endif
