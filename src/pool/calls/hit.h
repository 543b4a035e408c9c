/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the body of allocate and the body of free, as served by a cache: inside (between
 * flw_asym_enter and leave, with a matching key). The kind is a constant, so that each entry
 * compiles to its own case without tests for others: plain, recorded, sized (entry.c), runs
 * (hit_runs.c), context order (hit_context.h).
 * Does not: find the cache, or handle a miss. */
#ifndef FLW_POOL_HIT_H
#define FLW_POOL_HIT_H

#include "base/mutant.h"
#include "pool/state/pool.h"
#include "record/callstack.h"
#include "record/ring.h"

#if defined(FLW_TSAN)
#define FLW_LOAD(p)     __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define FLW_STORE(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)
#else
#define FLW_LOAD(p)     (p)
#define FLW_STORE(p, v) ((p) = (v))
#endif

/* The kind of an entry. */
enum flw_hit_kind {
    FLW_HIT_PLAIN,
    FLW_HIT_RECORDED /* the cache has a ring, which records the call */
};

/* ---- the account: whole stores, which other threads read at any time */

static FLW_INLINE void flw_account_add(struct flw_account *account, uint64_t size_bytes)
{
    int64_t requested = account->requested_bytes + (int64_t)size_bytes;
    __atomic_store_n(&account->requested_bytes, requested, __ATOMIC_RELAXED);
    if (requested > FLW_LOAD(account->peak_requested_bytes)) {
        __atomic_store_n(&account->peak_requested_bytes, requested, __ATOMIC_RELAXED);
    }
}

static FLW_INLINE void flw_account_subtract(struct flw_account *account, uint64_t size_bytes)
{
    FLW_STORE(account->requested_bytes, account->requested_bytes - (int64_t)size_bytes);
}

/* ---- a recorded cache records its own hits: it has a ring, and its own address as the key */

/* Record a hit, inside a recorded cache; is_ordered as in flw_ring_put. */
static inline void flw_recording_hit(const struct flw_tcache_hot *hot, enum flw_trace_op op,
                                     uint64_t address, uint64_t size_bytes, bool is_ordered)
{
    const struct flw_tcache *cache = (const struct flw_tcache *)(const void *)hot;
    struct flw_ring_entry entry =
        flw_ring_entry(op, address, size_bytes, cache->recorded_stream, 0);
    if (op == FLW_TRACE_ALLOC &&
        FLW_UNLIKELY(atomic_load_explicit(&flw_callstack_recordings, memory_order_relaxed) != 0) &&
        flw_ring_tell_stack(cache->ring, flw_callstack_seen())) {
        entry.rest |= FLW_RING_STACK_BIT;
    }
    flw_ring_put(cache->ring, &entry, is_ordered);
}

static inline bool flw_recording_has_key(const struct flw_tcache_hot *hot)
{
    return flw_asym_key_is(&hot->key, hot);
}

/* ---- allocate: pop a free slot, then make it live */

static FLW_INLINE uint64_t flw_hit_step(size_t size_bytes)
{
    return ((uint64_t)size_bytes - 1) >> FLW_BIN_TABLE_LOG2;
}

/* Pop from the bin of a size step, below FLW_BIN_TABLE_COUNT. False: empty. */
static FLW_INLINE bool flw_hit_pop(struct flw_tcache_hot *hot, uint64_t step,
                                   struct flw_slot **out_slot)
{
    struct flw_bin *bin = (struct flw_bin *)(void *)((unsigned char *)hot + hot->bin_of_size[step]);
    uint64_t count = bin->count;
    if (FLW_UNLIKELY(count == 0)) {
        return false;
    }
    *out_slot = bin->slots[count - 1];
    bin->count = count - 1;
    bin->pops++;
    return true;
}

/* Pop a run of exactly so many units. False: none. */
static FLW_INLINE bool flw_hit_pop_run(struct flw_tcache *cache, uint64_t unit_count,
                                       struct flw_slot **out_slot)
{
    const struct flw_span *run = flw_tcache_pop_run(cache, (uint32_t)unit_count);
    if (FLW_UNLIKELY(run == NULL)) {
        return false;
    }
    *out_slot = (struct flw_slot *)(void *)(cache->hot.slots + run->slots);
    cache->run_pops++;
    return true;
}

/* Make the slot's block live. is_ordered as in flw_ring_put: another thread may have freed the
 * slot just before. */
static FLW_INLINE void flw_hit_give(struct flw_tcache_hot *hot, struct flw_slot *slot,
                                    uint64_t size_bytes, void **out_ptr, enum flw_hit_kind kind,
                                    bool is_ordered)
{
    uint64_t address = slot->word;
    FLW_STORE(slot->allocation, hot->stream_number + size_bytes);
    flw_slot_set_word(slot, address + FLW_SLOT_LIVE); /* after the allocation, for observers */
    flw_account_add(hot->account, size_bytes);
    *out_ptr = (void *)(uintptr_t)address;
    if (kind == FLW_HIT_RECORDED) {
        flw_recording_hit(hot, FLW_TRACE_ALLOC, address, size_bytes, is_ordered);
    }
}

/* ---- free: claim the slot of a pointer; the entry then stores it */

/* Return the slot of a pointer of any value; *out_span is the span that was read. */
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

static FLW_INLINE bool flw_slot_is_live(const struct flw_slot *slot, uint64_t address)
{
    uint64_t word = FLW_LOAD(slot->word);
    return word == address + FLW_SLOT_LIVE || FLW_MUTANT(INTERIOR_FREE_ACCEPTED) ||
           (FLW_MUTANT(DOUBLE_FREE_ACCEPTED) && word == address);
}

/* Claim a block: of two threads that free one pointer, one succeeds. */
static FLW_INLINE bool flw_slot_claim(struct flw_slot *slot, uint64_t live, uint64_t freed)
{
    bool is_mine = __atomic_compare_exchange_n(&slot->word, &live, freed, false, __ATOMIC_ACQ_REL,
                                               __ATOMIC_RELAXED);
    is_mine |= FLW_MUTANT(INTERIOR_FREE_ACCEPTED);
    return is_mine || FLW_MUTANT(DOUBLE_FREE_ACCEPTED);
}

/* Make the block free; *out_bytes is the requested size. False, without a change: it is not a live
 * block, or another thread was first. */
static FLW_INLINE bool flw_hit_take_back(struct flw_tcache_hot *hot, struct flw_slot *slot,
                                         const void *ptr, enum flw_hit_kind kind)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    if (FLW_UNLIKELY(!flw_slot_is_live(slot, address)) ||
        FLW_UNLIKELY(!flw_slot_claim(slot, address + FLW_SLOT_LIVE, address))) {
        return false;
    }
    uint64_t size_bytes = flw_allocation_bytes(slot->allocation); /* no other thread's now */
    if (kind == FLW_HIT_RECORDED) { /* before any other thread can get the block */
        flw_recording_hit(hot, FLW_TRACE_FREE, address, size_bytes, true);
    }
    flw_account_subtract(hot->account, size_bytes);
    return true;
}

/* Push the slot into the class's bin. */
static FLW_INLINE bool flw_hit_push(struct flw_tcache_hot *hot, const struct flw_span *span,
                                    struct flw_slot *slot, const void *ptr, enum flw_hit_kind kind)
{
    uint32_t bin_offset = __atomic_load_n(&span->bin, __ATOMIC_RELAXED);
    struct flw_bin *bin = (struct flw_bin *)(void *)((unsigned char *)hot + bin_offset);
    uint64_t count = bin->count;
    if (FLW_UNLIKELY(count >= bin->capacity) ||
        FLW_UNLIKELY(!flw_hit_take_back(hot, slot, ptr, kind))) {
        return false;
    }
    bin->slots[count] = slot;
    bin->count = count + 1;
    return true;
}

/* After a miss the pointer may be of no block, and the span may be new and another thread's. */
static FLW_INLINE bool flw_hit_is_run(const struct flw_span *span)
{
    return FLW_LOAD(span->kind) == FLW_SPAN_RUN;
}

/* ---- from hit to miss */

/* Serve a call that no cache can serve: check, count, and climb the ladder. Called outside a
 * cache. */
fallow_status flw_entry_alloc(fallow_pool *handle, size_t size_bytes, size_t align_bytes,
                              fallow_stream stream, void **out_ptr);
fallow_status flw_entry_free(fallow_pool *handle, void *ptr, fallow_stream stream);

/* Inside `hot` at the call, outside at the return: allocate more than the largest class, or free
 * an address in a run's span (hit_runs.c). */
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
