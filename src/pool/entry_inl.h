/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the hits of lend and return share: the account, the way from a pointer to its slot,
 * the claim of a slot. All of it inside a cache (between enter and leave, the key matching).
 */
#ifndef FLW_POOL_ENTRY_INL_H
#define FLW_POOL_ENTRY_INL_H

#include "base/mutant.h"
#include "pool/pool.h"

#if defined(FLW_TSAN)
#define FLW_LOAD(p)     __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define FLW_STORE(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
#else
#define FLW_LOAD(p)     (p)
#define FLW_STORE(p, v) ((p) = (v))
#endif

/* Whole stores: other threads read the account as it stands. */
static inline void flw_note_lent(struct flw_account *account, uint64_t size_bytes)
{
    int64_t requested = account->requested_bytes + (int64_t)size_bytes;
    __atomic_store_n(&account->requested_bytes, requested, __ATOMIC_RELAXED);
    if (requested > account->peak_requested_bytes) {
        __atomic_store_n(&account->peak_requested_bytes, requested, __ATOMIC_RELAXED);
    }
}

static inline void flw_note_returned(struct flw_account *account, uint64_t size_bytes)
{
    FLW_STORE(account->requested_bytes, account->requested_bytes - (int64_t)size_bytes);
}

/* The slot of a pointer, whatever its value; *out_span where it looked. */
FLW_SNAPSHOT_INLINE struct flw_slot *flw_slot_of(const struct flw_tcache_hot *hot, const void *ptr,
                                                 struct flw_span **out_span)
{
    uint64_t offset = (uint64_t)(uintptr_t)ptr & hot->mask;
    struct flw_span *span =
        (struct flw_span *)(void *)(hot->spans + flw_page_map_name_in(hot->units, offset));
    uint64_t index = (uint64_t)(((flw_u128)(offset - span->base) * span->magic) >> 64);
    uint64_t at = (span->slots + index * sizeof(struct flw_slot)) & hot->slots_mask;
    *out_span = span;
    return (struct flw_slot *)(void *)(hot->slots + at);
}

/* One of two threads that free one pointer wins. */
static inline bool flw_slot_claim(const struct flw_tcache_hot *hot, struct flw_slot *slot,
                                  uint64_t live, uint64_t freed)
{
    if (FLW_UNLIKELY(hot->is_fast != 0)) {
        flw_slot_set_word(slot, freed);
        return true;
    }
    return __atomic_compare_exchange_n(&slot->word, &live, freed, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

/* Inside. A slot out of the bin of a size step. */
static inline bool flw_bin_lend(struct flw_tcache_hot *hot, uint64_t step, size_t size_bytes,
                                void **out_ptr)
{
    struct flw_bin *bin = (struct flw_bin *)(void *)((unsigned char *)hot + hot->bin_of_size[step]);
    uint64_t count = bin->count;
    if (FLW_UNLIKELY(count == 0 || out_ptr == NULL)) {
        return false;
    }
    struct flw_slot *slot = bin->slots[count - 1];
    uint64_t address = slot->word;
    bin->count = count - 1;
    bin->pops++;
    FLW_STORE(slot->loan, hot->lender + size_bytes);
    flw_slot_set_word(slot, address + FLW_SLOT_LIVE); /* after the loan, for who looks on */
    flw_note_lent(hot->account, size_bytes);
    *out_ptr = (void *)(uintptr_t)address;
    return true;
}

static inline bool flw_slot_is_live(const struct flw_slot *slot, uint64_t address)
{
    uint64_t word = FLW_LOAD(slot->word);
    return word == address + FLW_SLOT_LIVE || FLW_MUTANT(INTERIOR_FREE_ACCEPTED) ||
           (FLW_MUTANT(DOUBLE_FREE_ACCEPTED) && word == address);
}

/* ---- from hit to miss */

/* The call as a cache cannot serve it: checked, counted, by the ladder. Not inside. */
fallow_status flw_entry_alloc(fallow_pool *handle, size_t size_bytes, size_t align_bytes,
                              fallow_stream stream, void **out_ptr);
fallow_status flw_entry_free(fallow_pool *handle, void *ptr, fallow_stream stream);

/* Inside `hot` at the call, not at the return: lend more than the largest class; take back what
 * lies in a run's span. (run_entry.c) */
fallow_status flw_entry_alloc_run(fallow_pool *handle, size_t size_bytes, fallow_stream stream,
                                  void **out_ptr, struct flw_tcache_hot *hot);
fallow_status flw_entry_free_run(fallow_pool *handle, void *ptr, fallow_stream stream,
                                 struct flw_tcache_hot *hot, struct flw_span *run,
                                 struct flw_slot *slot);
/* The same in a recorded cache. */
fallow_status flw_entry_alloc_run_recorded(fallow_pool *handle, size_t size_bytes,
                                           fallow_stream stream, void **out_ptr,
                                           struct flw_tcache_hot *hot);
fallow_status flw_entry_free_run_recorded(fallow_pool *handle, void *ptr, fallow_stream stream,
                                          struct flw_tcache_hot *hot, struct flw_span *run,
                                          struct flw_slot *slot);

#endif
