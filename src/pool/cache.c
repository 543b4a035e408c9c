/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pool's side of thread caches: making, emptying, closing, summing them.
 */
#include "heap/tables.h"
#include "pool/extension.h"
#include "pool/seize.h"

/* A thread's exit against a pool's end. Taken before a pool's own locks. */
static struct flw_lock lifecycle = {.rank = FLW_RANK_LIFECYCLE};

void flw_lifecycle_renew_lock(void)
{
    flw_lock_init(&lifecycle, FLW_RANK_LIFECYCLE);
}

/* ---- statistics */

static void raise_to(_Atomic int64_t *peak, int64_t value)
{
    int64_t seen = atomic_load(peak);
    while (value > seen && !atomic_compare_exchange_weak(peak, &seen, value)) {
    }
}

void flw_pool_account(struct flw_account *account, int64_t requested_bytes)
{
    int64_t now = account->requested_bytes + requested_bytes;
    __atomic_store_n(&account->requested_bytes, now, __ATOMIC_RELAXED);
    if (now > account->peak_requested_bytes) {
        __atomic_store_n(&account->peak_requested_bytes, now, __ATOMIC_RELAXED);
    }
}

void flw_pool_settle(struct flw_pool *pool, struct flw_account *account)
{
    int64_t delta = account->requested_bytes, peak = account->peak_requested_bytes;
    if (delta == 0 && peak == 0) {
        return;
    }
    int64_t base = atomic_fetch_add(&pool->requested_bytes, delta);
    __atomic_store_n(&account->requested_bytes, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&account->peak_requested_bytes, 0, __ATOMIC_RELAXED);
    if (base + peak <= atomic_load(&pool->peak_requested_bytes)) {
        return;
    }
    /* Others may have given back what they have not settled yet: the sum over all knows. */
    int64_t highest = flw_pool_requested(pool) + (peak - delta);
    if (highest <= atomic_load(&pool->peak_requested_bytes)) {
        return;
    }
    raise_to(&pool->peak_requested_bytes, highest);
    uint64_t live = flw_pool_live(pool, NULL), most = atomic_load(&pool->peak_live_bytes);
    while (live > most && !atomic_compare_exchange_weak(&pool->peak_live_bytes, &most, live)) {
    }
}

void flw_pool_note_special(struct flw_pool *pool, struct flw_account *account,
                           int64_t requested_bytes, int64_t live_bytes)
{
    flw_pool_settle(pool, account); /* so that the sum below has this thread's part */
    int64_t now = atomic_fetch_add(&pool->requested_bytes, requested_bytes) + requested_bytes;
    atomic_fetch_add(&pool->special_live_bytes, live_bytes);
    atomic_fetch_add(requested_bytes >= 0 ? &pool->special_allocs : &pool->special_frees, 1);
    raise_to(&pool->peak_requested_bytes, now);
}

static FLW_SNAPSHOT uint64_t read_word(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static FLW_SNAPSHOT void add_cache(struct flw_tcache *cache, struct flw_pool_totals *totals)
{
    uint64_t pops = read_word(&cache->run_pops), pushes = read_word(&cache->run_pushes);
    totals->live_bytes +=
        (int64_t)(read_word(&cache->run_out_bytes) - read_word(&cache->run_bytes));
    totals->cached_bytes += read_word(&cache->run_bytes);
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        struct flw_bin *bin = flw_tcache_bin(cache, c);
        uint64_t out = read_word(&bin->pops);
        uint64_t in = read_word(&bin->count) + out - bin->moved_in + bin->moved_out;
        pops += out;
        pushes += in;
        totals->live_bytes += ((int64_t)out - (int64_t)in) * (int64_t)flw_class_bytes(c);
        totals->cached_bytes += read_word(&bin->count) * flw_class_bytes(c);
    }
    totals->allocs += pops;
    totals->frees += pushes;
    totals->misses += read_word(&cache->misses);
}

uint64_t flw_pool_live(struct flw_pool *pool, struct flw_pool_totals *out)
{
    struct flw_pool_totals totals = {
        .allocs = atomic_load(&pool->retired_allocs) + atomic_load(&pool->special_allocs),
        .frees = atomic_load(&pool->retired_frees) + atomic_load(&pool->special_frees),
        .misses = atomic_load(&pool->retired_misses) + atomic_load(&pool->special_allocs),
        .live_bytes =
            atomic_load(&pool->retired_live_bytes) + atomic_load(&pool->special_live_bytes),
        .requested_bytes = atomic_load(&pool->requested_bytes)};
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = pool->caches; cache != NULL; cache = cache->next) {
        add_cache(cache, &totals);
    }
    for (const struct flw_account *account = pool->accounts; account; account = account->next) {
        totals.requested_bytes += __atomic_load_n(&account->requested_bytes, __ATOMIC_RELAXED);
        totals.unsettled_peak_bytes +=
            __atomic_load_n(&account->peak_requested_bytes, __ATOMIC_RELAXED);
    }
    flw_lock_release(&pool->lock);
    if (out != NULL) {
        *out = totals;
    }
    return flw_not_negative(totals.live_bytes);
}

int64_t flw_pool_requested(struct flw_pool *pool)
{
    int64_t requested = atomic_load(&pool->requested_bytes);
    flw_lock_acquire(&pool->lock);
    for (const struct flw_account *account = pool->accounts; account; account = account->next) {
        requested += __atomic_load_n(&account->requested_bytes, __ATOMIC_RELAXED);
    }
    flw_lock_release(&pool->lock);
    return requested;
}

/* ---- emptying */

bool flw_pool_drain(struct flw_pool *pool, const struct flw_tcache *but,
                    const struct flw_domain *only)
{
    bool any = false;
    struct flw_tcache *seized = flw_seize(pool, only, but);
    for (struct flw_tcache *cache = seized; cache != NULL; cache = cache->next_seized) {
        flw_lock_acquire(&cache->lock);
        flw_lock_acquire(&pool->heap.lock);
        any |= flw_tcache_flush(cache, &pool->heap);
        flw_lock_release(&pool->heap.lock);
        flw_lock_release(&cache->lock);
    }
    flw_seize_end(pool, seized);
    return any;
}

/* pool->seizing, pool->lock; the cache is seized, or the caller's own. Empty it for good and take it
 * from the pool; its memory stays its thread's. */
static void detach(struct flw_pool *pool, struct flw_tcache *cache, bool ends_thread)
{
    struct flw_pool_totals totals = {0};
    flw_lock_acquire(&cache->lock);
    flw_tcache_set_open(cache, false);
    flw_lock_acquire(&pool->heap.lock);
    (void)flw_tcache_flush(cache, &pool->heap);
    uint32_t left = --cache->domain->cache_count;
    if (ends_thread && cache->domain->own_thread_only && left == 0) {
        flw_domain_lose_quietly(&pool->heap,
                                cache->domain); /* nobody can name that stream any more */
    }
    flw_lock_release(&pool->heap.lock);
    add_cache(cache, &totals);
    atomic_fetch_add(&pool->retired_allocs, totals.allocs);
    atomic_fetch_add(&pool->retired_frees, totals.frees);
    atomic_fetch_add(&pool->retired_misses, totals.misses);
    atomic_fetch_add(&pool->retired_live_bytes, totals.live_bytes);
    *(cache->prev != NULL ? &cache->prev->next : &pool->caches) = cache->next;
    if (cache->next != NULL) {
        cache->next->prev = cache->prev;
    }
    pool->cache_count--;
    cache->is_detached = true;
    flw_lock_release(&cache->lock);
    __atomic_store_n(&cache->pool, NULL, __ATOMIC_RELEASE); /* its thread may drop it now */
}

void flw_pool_close_caches(struct flw_pool *pool, const struct flw_domain *domain)
{
    struct flw_tcache *seized = flw_seize(pool, domain, NULL);
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = seized, *next; cache != NULL; cache = next) {
        next = cache->next_seized;
        detach(pool, cache, false);
    }
    flw_lock_release(&pool->lock);
    flw_seize_end(pool, NULL);
}

void flw_pool_detach_caches(struct flw_pool *pool)
{
    flw_pool_close_caches(pool, NULL);
    /* A thread that ends and found the pool before has left it. */
    flw_lock_acquire(&lifecycle);
    flw_lock_release(&lifecycle);
}

/* A thread ends: its blocks go to their domains, stamped; no driver call, and no barrier: it is the
 * owner, and not inside. */
void flw_pool_cache_exit(struct flw_tcache *cache)
{
    flw_lock_acquire(&lifecycle);
    struct flw_pool *pool = __atomic_load_n(&cache->pool, __ATOMIC_ACQUIRE);
    if (pool != NULL) {
        flw_lock_acquire(&pool->seizing);
        flw_lock_acquire(&pool->lock);
        if (cache->pool == pool) { /* no retire was faster */
            detach(pool, cache, true);
        }
        flw_lock_release(&pool->lock);
        flw_lock_release(&pool->seizing);
    }
    flw_lock_release(&lifecycle);
    flw_tcache_drop(cache);
}

/* pool->lock. May the caches of a stream serve hits? */
static bool may_open(struct flw_pool *pool, const struct flw_domain *domain)
{
    return !pool->divert_all && !atomic_load(&pool->gate.closes_hits) && !flw_capture_is_on(domain);
}

/* A domain's caches, or with NULL all, are open or not, as they may be by now. No hit is under way in
 * one that is closed when this returns. */
static void reopen(struct flw_pool *pool, const struct flw_domain *domain)
{
    struct flw_tcache *seized = flw_seize(pool, domain, NULL);
    flw_lock_acquire(&pool->lock);
    for (struct flw_tcache *cache = seized; cache != NULL; cache = cache->next_seized) {
        flw_lock_acquire(&cache->lock);
        flw_tcache_set_open(cache, may_open(pool, cache->domain));
        flw_lock_release(&cache->lock);
    }
    flw_lock_release(&pool->lock);
    flw_seize_end(pool, seized);
}

void flw_pool_close_hits(struct flw_pool *pool, bool is_closed)
{
    flw_lock_acquire(&pool->lock); /* a cache that is being made has looked, or will see it */
    atomic_store(&pool->gate.closes_hits, is_closed);
    flw_lock_release(&pool->lock);
    reopen(pool, NULL);
}

void flw_pool_divert(struct flw_pool *pool, const struct flw_domain *domain)
{
    reopen(pool, domain);
}

void flw_pool_note_loss(struct flw_pool *pool)
{
    if (!flw_heap_is_lost(&pool->heap) || atomic_exchange(&pool->loss_noted, true)) {
        return;
    }
    int error = atomic_load(&pool->heap.lost_error);
    flw_pool_log(pool, error == CUDA_ERROR_DEINITIALIZED ? FALLOW_LOG_INFO : FALLOW_LOG_ERROR,
                 "the device is lost: %s answered %s; nothing more is lent, free and destroy do "
                 "nothing on the device",
                 atomic_load(&pool->heap.lost_call),
                 flw_driver_error_name(&pool->driver, (CUresult)error));
    flw_lock_acquire(&pool->lock);
    pool->divert_all = true;
    flw_lock_release(&pool->lock);
    reopen(pool, NULL);
}

void flw_pool_poison_all(struct flw_pool *pool)
{
    for (struct flw_tcache *cache = pool->caches, *next; cache != NULL; cache = next) {
        next = cache->next;
        cache->is_open = false;
        __atomic_store_n(&cache->hot.key, (const void *)&flw_no_pool, __ATOMIC_RELEASE);
        __atomic_store_n(&cache->pool, NULL, __ATOMIC_RELEASE);
    }
}

/* ---- making */

/* Identity of a stream: driver calls in the pool's context. */
struct identity {
    uint64_t id;
    CUcontext context;
    uint64_t context_id; /* of another context than the pool's; 0 unknown */
};

/* Driver calls. 0: it has none that could be told. */
static uint64_t id_of_context(struct flw_pool *pool, CUcontext context)
{
    unsigned long long id = 0;
    if (context == pool->heap.context || pool->driver.cuCtxGetId == NULL) {
        return 0;
    }
    flw_heap_count_call(&pool->heap);
    return pool->driver.cuCtxGetId(context, &id) == CUDA_SUCCESS ? id : 0;
}

static fallow_status identify(struct flw_pool *pool, fallow_stream stream, struct identity *out)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    const char *call = "cuStreamGetId";
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    unsigned long long id = 0;
    *out = (struct identity){.context = heap->context};
    if (!flw_heap_enter_driver(heap, &section)) {
        return flw_heap_not_entered(heap);
    }
    if (pool->driver.cuStreamGetId != NULL) {
        flw_heap_count_call(heap);
        result = pool->driver.cuStreamGetId(stream, &id);
        out->id = result == CUDA_SUCCESS ? id : 0;
    }
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        result = CUDA_SUCCESS; /* then streams are known by their handles */
    }
    if (result == CUDA_SUCCESS && pool->driver.cuStreamGetCtx != NULL &&
        (uintptr_t)stream > (uintptr_t)CU_STREAM_PER_THREAD) {
        call = "cuStreamGetCtx";
        flw_heap_count_call(heap);
        result = pool->driver.cuStreamGetCtx(stream, &out->context);
    }
    if (result == CUDA_SUCCESS) {
        out->context_id = id_of_context(pool, out->context);
    }
    flw_heap_leave_driver(heap, &section);
    return flw_result_is_stale(result) ? FALLOW_INVALID_STREAM
                                       : flw_heap_refuse(heap, result, call);
}

/* heap lock. A known stream under another of its names: NULL and 1 are one stream. */
static struct flw_domain *find_by_id(const struct flw_heap *heap, uint64_t id)
{
    for (uint32_t i = 1; id != 0 && i < heap->domain_end; i++) {
        struct flw_domain *domain = heap->domains[i];
        if (domain->ops == &flw_order_stream && domain->is_known && domain->id == id) {
            return domain;
        }
    }
    return NULL;
}

/* heap lock. The stream's domain, if it is known. One that the handle named before is lost: destroyed
 * without retire, the handle perhaps given to a new stream. */
static struct flw_domain *match(struct flw_heap *heap, fallow_stream stream,
                                const struct identity *identity, fallow_status status,
                                struct flw_domain **stale)
{
    struct flw_domain *domain = flw_domain_find(heap, stream);
    if (domain != NULL && (status == FALLOW_INVALID_STREAM ||
                           (identity->id != 0 && domain->id != 0 && domain->id != identity->id))) {
        *stale = domain;
        flw_domain_lose(heap, domain);
        domain = NULL;
    }
    return status == FALLOW_OK && domain == NULL ? find_by_id(heap, identity->id) : domain;
}

/* Does the driver's refusal to tell leave the handle to be believed? */
static bool is_believed(struct flw_pool *pool, fallow_status status)
{
    return (status == FALLOW_DRIVER || status == FALLOW_NOT_SUPPORTED) &&
           !flw_pool_asks_identity(pool);
}

/* One look; OUT_OF_HOST_MEMORY: every place is taken, or none can be made. */
static struct flw_domain *find_domain(struct flw_pool *pool, fallow_stream stream, bool may_make,
                                      fallow_status *status)
{
    struct flw_heap *heap = &pool->heap;
    struct identity identity;
    struct flw_domain *stale = NULL;
    *status = identify(pool, stream, &identity);
    if (is_believed(pool, *status)) { /* a stream that is known is what it was */
        flw_lock_acquire(&heap->lock);
        struct flw_domain *known = flw_domain_find(heap, stream);
        flw_lock_release(&heap->lock);
        *status = known != NULL ? FALLOW_OK : *status;
        return known;
    }
    if (*status != FALLOW_OK && *status != FALLOW_INVALID_STREAM) {
        return NULL;
    }
    flw_lock_acquire(&heap->lock);
    struct flw_domain *domain = match(heap, stream, &identity, *status, &stale);
    if (*status == FALLOW_OK && domain == NULL && may_make) {
        domain = flw_domain_create(heap, &flw_order_stream, stream, identity.context, identity.id);
        if (domain != NULL) {
            domain->is_known = true;
            domain->lender = flw_lenders_name(&heap->lenders, identity.id);
            domain->is_foreign = identity.context != heap->context;
            domain->context_id = identity.context_id;
            domain->own_thread_only = stream == CU_STREAM_PER_THREAD;
            domain->thread = flw_thread_token();
            unsigned known = atomic_fetch_add(&heap->stream_count, 1) + 1;
            heap->absorbs_nobody = known == 1;
        } else {
            *status = FALLOW_OUT_OF_HOST_MEMORY;
        }
    }
    flw_lock_release(&heap->lock);
    if (stale != NULL) {
        flw_pool_close_caches(pool, stale);
    }
    return domain;
}

struct flw_domain *flw_pool_known_domain(struct flw_pool *pool, fallow_stream stream,
                                         fallow_status *status)
{
    *status = FALLOW_OK;
    if (flw_pool_asks_identity(pool)) {
        return find_domain(pool, stream, false, status);
    }
    flw_lock_acquire(&pool->heap.lock);
    struct flw_domain *domain = flw_domain_find(&pool->heap, stream);
    flw_lock_release(&pool->heap.lock);
    return domain;
}

/* Driver calls. What is done by now gives up its place: of retired streams, first of all. */
static bool ask_fences(struct flw_pool *pool)
{
    struct flw_driver_section section;
    bool has_completed = false;
    if (flw_heap_enter_driver(&pool->heap, &section)) {
        has_completed = flw_heap_poll(&pool->heap);
        flw_heap_leave_driver(&pool->heap, &section);
    }
    return has_completed;
}

struct flw_domain *flw_pool_domain(struct flw_pool *pool, fallow_stream stream,
                                   fallow_status *status)
{
    if (flw_pool_has_epochs(pool)) {
        *status = flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : FALLOW_OK;
        return *status == FALLOW_OK ? pool->heap.context_order : NULL;
    }
    uint64_t refusals = flw_tables_refusals(&pool->heap);
    struct flw_domain *domain = find_domain(pool, stream, true, status);
    bool lacks_host = flw_tables_refusals(&pool->heap) != refusals;
    if (*status == FALLOW_OUT_OF_HOST_MEMORY && ask_fences(pool)) {
        domain = find_domain(pool, stream, true, status);
    }
    if (*status == FALLOW_OUT_OF_HOST_MEMORY && !lacks_host &&
        flw_pool_sync_uncoverable(pool, true)) {
        domain =
            find_domain(pool, stream, true, status); /* the places of lost streams are free now */
    }
    if (*status == FALLOW_OUT_OF_HOST_MEMORY && lacks_host) {
        flw_pool_log(
            pool, FALLOW_LOG_WARNING,
            "out of host memory: the host refuses what a stream that is new takes: look at "
            "ulimit -d, ulimit -v and the memory limit of the container");
    } else if (*status == FALLOW_OUT_OF_HOST_MEMORY) {
        flw_pool_log(
            pool, FALLOW_LOG_WARNING,
            "no place for one more stream: a pool serves about %d at a time, captured ones "
            "counted twice; retire those that are done (fallow_stream_retire)",
            FLW_DOMAIN_COUNT - 1);
    }
    return domain;
}

/* pool->lock. The calling thread's account, or a dead thread's whose token it has. NULL: host
 * memory. */
static struct flw_account *find_account(struct flw_pool *pool)
{
    uintptr_t self = flw_thread_token();
    struct flw_account *account = pool->accounts;
    while (account != NULL && account->thread != self) {
        account = account->next;
    }
    if (account == NULL) {
        flw_lock_acquire(&pool->uses_lock);
        account = flw_meta_extend(&pool->note_meta, FLW_LINE_PAIR, FLW_LINE_PAIR);
        flw_lock_release(&pool->uses_lock);
        if (account != NULL) {
            *account = (struct flw_account){.thread = self, .next = pool->accounts};
            pool->accounts = account;
        }
    }
    return account;
}

/* pool->lock. False: host memory. */
static bool tell_extensions(struct flw_pool *pool, struct flw_tcache *cache,
                            const struct flw_domain *domain)
{
    bool is_done = true;
    FLW_EACH_EXTENSION(pool, row, cache_made) {
        is_done &= row->cache_made(pool, cache, domain);
    }
    return is_done;
}

static struct flw_tcache *make_cache(struct flw_pool *pool, fallow_stream stream,
                                     struct flw_domain *domain)
{
    struct flw_tcache *cache = flw_tcache_create();
    if (cache == NULL) {
        return NULL;
    }
    cache->pool = pool;
    cache->handle = pool->handle;
    cache->run_limit_bytes = 16 * FLW_MIB;
    cache->hot.stream = stream;
    cache->context_id = pool->context_id;
    cache->whole_bytes = pool->heap.whole_bytes;
    cache->limbo_left_bytes = FLW_LIMBO_BYTES;
    flw_lock_acquire(&pool->lock);
    cache->hot.account = find_account(pool);
    flw_lock_release(&pool->lock);
    if (cache->hot.account == NULL || !flw_thread_add(cache)) {
        flw_tcache_drop(cache);
        return NULL;
    }
    flw_lock_acquire(&pool->lock);
    cache->is_open = may_open(pool, domain);
    if (!tell_extensions(pool, cache, domain)) {
        flw_lock_release(&pool->lock);
        flw_thread_forget(cache);
        flw_tcache_drop(cache);
        return NULL;
    }
    flw_tcache_bind(cache, &pool->heap, domain);
    cache->hot.stream = stream;
    cache->next = pool->caches;
    if (cache->next != NULL) {
        cache->next->prev = cache;
    }
    pool->caches = cache;
    pool->cache_count++;
    flw_lock_acquire(&pool->heap.lock);
    domain->cache_count++;
    flw_lock_release(&pool->heap.lock);
    flw_lock_release(&pool->lock);
    return cache;
}

struct flw_tcache *flw_pool_cache(struct flw_pool *pool, fallow_stream stream,
                                  fallow_status *status)
{
    struct flw_tcache *cache = flw_thread_find(pool->handle, stream);
    *status = FALLOW_OK;
    if (cache != NULL && __atomic_load_n(&cache->pool, __ATOMIC_ACQUIRE) != pool) {
        flw_thread_forget(cache);
        flw_tcache_drop(cache);
        cache = NULL;
    }
    if (cache != NULL && flw_pool_asks_identity(pool)) {
        fallow_status answer;
        struct flw_domain *domain = flw_pool_domain(pool, stream, &answer);
        if (answer != FALLOW_OK) {
            *status = answer;
            return NULL;
        }
        if (domain != cache->domain) { /* its old stream was lost and the cache closed */
            flw_thread_forget(cache);
            flw_tcache_drop(cache);
            cache = NULL;
        }
    }
    if (cache == NULL) {
        struct flw_domain *domain = flw_pool_domain(pool, stream, status);
        if (domain == NULL) {
            return NULL;
        }
        cache = make_cache(pool, stream, domain);
        if (cache == NULL) {
            *status = FALLOW_OUT_OF_HOST_MEMORY;
            return NULL;
        }
    }
    flw_thread_select(cache);
    return cache;
}
