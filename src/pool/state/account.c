/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/state/account.h"

/* Raise a peak. Returns false if the peak was as high already. */
static bool raise_to(_Atomic int64_t *peak, int64_t value)
{
    int64_t seen = atomic_load(peak);
    while (value > seen && !atomic_compare_exchange_weak(peak, &seen, value)) {
    }
    return value > seen;
}

/* Return the account's maximum since the flush or the last reset of the peaks. A reset during
 * an allocation may leave the peak below the present value. */
static int64_t account_peak(const struct flw_account *account)
{
    int64_t peak = __atomic_load_n(&account->peak_requested_bytes, __ATOMIC_RELAXED);
    int64_t now = __atomic_load_n(&account->requested_bytes, __ATOMIC_RELAXED);
    return peak > now ? peak : now;
}

void flw_pool_account(struct flw_account *account, int64_t requested_bytes)
{
    int64_t now = account->requested_bytes + requested_bytes;
    __atomic_store_n(&account->requested_bytes, now, __ATOMIC_RELAXED);
    if (now > __atomic_load_n(&account->peak_requested_bytes, __ATOMIC_RELAXED)) {
        __atomic_store_n(&account->peak_requested_bytes, now, __ATOMIC_RELAXED);
    }
}

void flw_pool_flush_account(struct flw_pool *pool, struct flw_account *account)
{
    int64_t delta = account->requested_bytes, peak = account_peak(account);
    if (delta == 0 && peak == 0) {
        return;
    }
    int64_t base = atomic_fetch_add(&pool->usage.requested_bytes, delta);
    __atomic_store_n(&account->requested_bytes, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&account->peak_requested_bytes, 0, __ATOMIC_RELAXED);
    if (base + peak <= atomic_load(&pool->usage.recent_peak_bytes)) {
        return;
    }
    /* Other threads may have unflushed frees, which only the sum over all accounts includes. */
    int64_t highest = flw_pool_requested(pool) + (peak - delta);
    (void)raise_to(&pool->usage.peak_requested_bytes, highest);
    if (raise_to(&pool->usage.recent_peak_bytes, highest)) {
        (void)flw_pool_note_live(pool, flw_pool_live(pool, NULL));
    }
}

uint64_t flw_pool_note_live(struct flw_pool *pool, uint64_t live)
{
    (void)raise_to(&pool->usage.recent_peak_live_bytes, (int64_t)live);
    return flw_max(live, (uint64_t)atomic_load(&pool->usage.recent_peak_live_bytes));
}

void flw_pool_reset_peaks(struct flw_pool *pool)
{
    int64_t requested = flw_pool_requested(pool);
    (void)raise_to(&pool->usage.peak_requested_bytes, requested);
    flw_lock_acquire(&pool->lock);
    for (struct flw_account *account = pool->accounts; account; account = account->next) {
        int64_t peak = __atomic_load_n(&account->peak_requested_bytes, __ATOMIC_RELAXED);
        int64_t now = __atomic_load_n(&account->requested_bytes, __ATOMIC_RELAXED);
        (void)raise_to(&pool->usage.peak_requested_bytes, requested + peak - now);
        /* Fails if the thread has flushed the account or raised the peak meanwhile. */
        (void)__atomic_compare_exchange_n(&account->peak_requested_bytes, &peak, now, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
    atomic_store(&pool->usage.recent_peak_bytes, requested);
    flw_lock_release(&pool->lock);
    atomic_store(&pool->usage.recent_peak_live_bytes, (int64_t)flw_pool_live(pool, NULL));
}

void flw_pool_note_special(struct flw_pool *pool, struct flw_account *account,
                           int64_t requested_bytes, int64_t live_bytes)
{
    flw_pool_flush_account(pool, account); /* so that the following sum includes this thread */
    int64_t now = atomic_fetch_add(&pool->usage.requested_bytes, requested_bytes) + requested_bytes;
    atomic_fetch_add(&pool->usage.special_live_bytes, live_bytes);
    atomic_fetch_add(
        requested_bytes >= 0 ? &pool->usage.special_allocs : &pool->usage.special_frees, 1);
    (void)raise_to(&pool->usage.peak_requested_bytes, now);
    (void)raise_to(&pool->usage.recent_peak_bytes, now);
}

static FLW_SNAPSHOT uint64_t read_word(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

/* Add a bin of blocks of so many bytes. */
static FLW_SNAPSHOT void add_bin(const struct flw_bin *bin, uint64_t bytes,
                                 struct flw_pool_totals *totals)
{
    uint64_t out = read_word(&bin->pops), count = read_word(&bin->count);
    uint64_t in = count + out - bin->moved_in + bin->moved_out;
    totals->allocs += out;
    totals->frees += in;
    totals->live_bytes += ((int64_t)out - (int64_t)in) * (int64_t)bytes;
    totals->cached_bytes += count * bytes;
}

static FLW_SNAPSHOT void add_cache(struct flw_tcache *cache, struct flw_pool_totals *totals)
{
    uint64_t run_bytes = read_word(&cache->run_bytes);
    totals->allocs += read_word(&cache->run_pops);
    totals->frees += read_word(&cache->run_pushes);
    totals->misses += read_word(&cache->misses);
    totals->live_bytes += (int64_t)(read_word(&cache->run_out_bytes) - run_bytes);
    totals->cached_bytes += run_bytes;
    struct flw_class_set used = cache->context_id == 0
                                    ? cache->used_bins
                                    : flw_class_set_all(); /* a hit frees to any class */
    FLW_EACH_CLASS (c, &used) {
        add_bin(flw_tcache_bin(cache, c), flw_class_bytes(c), totals);
    }
}

void flw_pool_keep_totals(struct flw_pool *pool, struct flw_tcache *cache)
{
    struct flw_pool_totals totals = {0};
    add_cache(cache, &totals);
    atomic_fetch_add(&pool->usage.retired_allocs, totals.allocs);
    atomic_fetch_add(&pool->usage.retired_frees, totals.frees);
    atomic_fetch_add(&pool->usage.retired_misses, totals.misses);
    atomic_fetch_add(&pool->usage.retired_live_bytes, totals.live_bytes);
}

uint64_t flw_pool_live(struct flw_pool *pool, struct flw_pool_totals *out)
{
    struct flw_pool_totals totals = {
        .allocs =
            atomic_load(&pool->usage.retired_allocs) + atomic_load(&pool->usage.special_allocs),
        .frees = atomic_load(&pool->usage.retired_frees) + atomic_load(&pool->usage.special_frees),
        .misses =
            atomic_load(&pool->usage.retired_misses) + atomic_load(&pool->usage.special_allocs),
        .live_bytes = atomic_load(&pool->usage.retired_live_bytes) +
                      atomic_load(&pool->usage.special_live_bytes),
        .requested_bytes = atomic_load(&pool->usage.requested_bytes)};
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = pool->caches; cache != NULL; cache = cache->next) {
        add_cache(cache, &totals);
    }
    for (const struct flw_account *account = pool->accounts; account; account = account->next) {
        totals.requested_bytes += __atomic_load_n(&account->requested_bytes, __ATOMIC_RELAXED);
        totals.unflushed_peak_bytes += account_peak(account);
    }
    flw_lock_release(&pool->lock);
    if (out != NULL) {
        *out = totals;
    }
    return flw_not_negative(totals.live_bytes);
}

uint64_t flw_pool_allocs(struct flw_pool *pool)
{
    struct flw_pool_totals totals;
    uint32_t left = atomic_load_explicit(&pool->usage.sum_left, memory_order_relaxed);
    if (left != 0) {
        atomic_store_explicit(&pool->usage.sum_left, left - 1, memory_order_relaxed);
        return atomic_load_explicit(&pool->usage.summed_allocs, memory_order_relaxed);
    }
    (void)flw_pool_live(pool, &totals);
    atomic_store_explicit(&pool->usage.summed_allocs, totals.allocs, memory_order_relaxed);
    atomic_store_explicit(&pool->usage.sum_left, pool->cache_count - (pool->cache_count != 0),
                          memory_order_relaxed);
    return totals.allocs;
}

int64_t flw_pool_requested(struct flw_pool *pool)
{
    int64_t requested = atomic_load(&pool->usage.requested_bytes);
    flw_lock_acquire(&pool->lock);
    for (const struct flw_account *account = pool->accounts; account; account = account->next) {
        requested += __atomic_load_n(&account->requested_bytes, __ATOMIC_RELAXED);
    }
    flw_lock_release(&pool->lock);
    return requested;
}

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

/* ---- recent need */

#define WINDOW_NS 250000000ull

/* Begin the window of `now`. The window that began at `begin` moves back, and windows in between
 * needed as much as now. */
static FLW_NOINLINE void begin_window(struct flw_demand *demand, uint64_t begin, uint64_t requested,
                                      uint64_t now)
{
    uint64_t passed = (now - begin) / WINDOW_NS;
    if (!atomic_compare_exchange_strong(&demand->window_ns, &begin, begin + passed * WINDOW_NS)) {
        return;
    }
    uint64_t most = atomic_exchange(&demand->window_bytes, requested);
    for (uint64_t i = FLW_DEMAND_WINDOWS; i-- > 0;) {
        uint64_t before = i + 1 == passed ? most
                          : i >= passed   ? atomic_load(&demand->before_bytes[i - passed])
                                          : requested;
        atomic_store(&demand->before_bytes[i], before);
    }
}

void flw_pool_note_demand(struct flw_pool *pool, int64_t live, uint64_t now)
{
    struct flw_demand *demand = &pool->demand;
    uint64_t requested = flw_not_negative(live), none = 0;
    uint64_t begin = atomic_load(&demand->window_ns);
    if (FLW_UNLIKELY(now >= begin + WINDOW_NS)) {
        begin_window(demand, begin, requested, now);
    }
    uint64_t most = atomic_load(&demand->window_bytes);
    while (requested > most &&
           !atomic_compare_exchange_weak(&demand->window_bytes, &most, requested)) {
    }
    if (FLW_UNLIKELY(atomic_load_explicit(&demand->decay_ns, memory_order_relaxed) == 0)) {
        (void)atomic_compare_exchange_strong(&demand->decay_ns, &none, now);
    }
}

uint64_t flw_pool_demand(const struct flw_pool *pool)
{
    uint64_t most = atomic_load(&pool->demand.window_bytes);
    for (unsigned i = 0; i < FLW_DEMAND_WINDOWS; i++) {
        most = flw_max(most, atomic_load(&pool->demand.before_bytes[i]));
    }
    return most;
}
