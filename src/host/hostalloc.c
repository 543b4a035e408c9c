/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: allocating, the steps tried when nothing is free, trim. Does not: free (hostfree.c).
 *
 * Steps in order; each satisfies the need or leaves everything unchanged:
 *   reclaim complete blocks · purge memory that jemalloc keeps · pin a chunk within the budget · release
 *   idle chunks of other sizes and pin one within the budget · cut any free memory · pin no more than is
 *   needed within the limit, releasing idle chunks · wait for copies, and retry */
#include <errno.h>

#include "base/bits.h"
#include "base/clock.h"
#include "host/hostpool.h"

#define SMALL_BYTES \
    (64 * FLW_KIB) /* sizes up to this have chunks of their own: between larger blocks they
                       would prevent free space from joining */
#define LARGE_BYTES (8 * FLW_MIB) /* from this size on a chunk per block */
#define FIT_LOG2    4 /* and another block's chunk only if at most a sixteenth larger: */
                      /* a cut chunk could not be released */
#define CHUNK_STEP  (64 * FLW_KIB)
#define LEAST_CHUNK (2 * FLW_MIB)
#define MOST_CHUNK  (8 * FLW_MIB)
#define CHUNK_LOG2  4 /* a shared chunk is a sixteenth of the peak in use */
#define SLACK_BYTES (8 * FLW_MIB)
#define SMALL_NEED  (64 * FLW_KIB) /* least size of a chunk with which jemalloc can continue */
#define MOST_BYTES  (1ull << 42)

/* ---- taking memory */

struct need {
    uint64_t bytes;       /* as requested */
    uint64_t chunk_bytes; /* of a new chunk */
    uint64_t most_bytes;  /* of a free run that is cut for it */
    enum flw_page_kind kind;
    bool is_small;    /* served by jemalloc */
    bool takes_any;   /* also from chunks of other kinds, and cuts any run */
    int refusal;      /* CUresult of the last attempt to pin; 0 none */
    const char *call; /* the call with that result */
};

static struct need need_of(const struct flw_hostpool *pool, uint64_t bytes)
{
    struct need need = {.bytes = bytes, .is_small = bytes <= pool->small_blocks.most_bytes};
    need.kind = bytes <= SMALL_BYTES ? FLW_PAGES_SMALL : FLW_PAGES_MEDIUM;
    need.most_bytes = UINT64_MAX;
    if (bytes >= LARGE_BYTES) {
        need.kind = FLW_PAGES_LARGE;
        need.most_bytes =
            pool->config.slack_percent == UINT32_MAX ? UINT64_MAX : bytes + (bytes >> FIT_LOG2);
    }
    need.chunk_bytes = need.is_small ? SMALL_NEED : flw_align_up(bytes, FLW_HOST_PAGE);
    return need;
}

/* Take pages; NULL: no such run. Lock held. */
static void *take_pages(struct flw_hostpool *pool, const struct need *need)
{
    void *base = flw_pages_take(&pool->pages, need->bytes, need->kind, need->most_bytes);
    return base == NULL && need->takes_any ? flw_pages_take_any(&pool->pages, need->bytes) : base;
}

/* NULL: nothing is free, *status OK; or an error. */
static void *take(struct flw_hostpool *pool, const struct need *need, fallow_status *status)
{
    void *base = need->is_small
                     ? flw_small_blocks_take(&pool->small_blocks, need->bytes, need->takes_any)
                     : NULL;
    struct flw_hostblock *block = NULL;
    *status = FALLOW_OK;
    if (need->is_small && base == NULL) {
        return NULL;
    }
    flw_lock_acquire(&pool->lock);
    if (!need->is_small) {
        base = take_pages(pool, need);
    }
    if (base != NULL) {
        block = flw_blocks_add(&pool->blocks, base, need->bytes);
        if (block == NULL && !need->is_small) {
            flw_pages_put(&pool->pages, base, need->bytes);
        }
    }
    if (block != NULL) {
        block->is_small = need->is_small;
        pool->requested_bytes += need->bytes;
        pool->live_count++;
        pool->alloc_count++;
        if (pool->requested_bytes > pool->peak_requested_bytes) {
            pool->peak_requested_bytes = pool->requested_bytes;
        }
    }
    flw_lock_release(&pool->lock);
    if (base != NULL && block == NULL) {
        *status = FALLOW_OUT_OF_HOST_MEMORY;
        if (need->is_small) {
            flw_small_blocks_begin_put(&pool->small_blocks);
            flw_small_blocks_put(&pool->small_blocks, base, need->bytes);
            flw_small_blocks_end_put(&pool->small_blocks);
        }
        base = NULL;
    }
    return base;
}

/* ---- chunks */

/* Return the most that may be pinned without a release. Lock held. */
static uint64_t budget_of(struct flw_hostpool *pool, const struct need *need)
{
    uint64_t used = pool->requested_bytes + pool->deferred_bytes + need->bytes;
    if (used > pool->peak_used_bytes) {
        pool->peak_used_bytes = used;
    }
    if (pool->small_blocks.most_bytes == 0) {
        uint64_t taken = pool->pages.all_bytes - pool->pages.free_bytes + need->chunk_bytes;
        pool->peak_taken_bytes = flw_max(pool->peak_taken_bytes, taken);
    }
    if (pool->config.slack_percent == UINT32_MAX) {
        return pool->limit_bytes;
    }
    uint64_t base = flw_max(pool->peak_used_bytes, pool->peak_taken_bytes);
    uint64_t slack = (uint64_t)((flw_u128)base * pool->config.slack_percent / 100) + SLACK_BYTES;
    return flw_min(base + slack, pool->limit_bytes);
}

/* Return how much to pin so that reserved_bytes stays within `bound`, no more than needed if
 * `is_tight`; 0: impossible. Lock held. */
static uint64_t chunk_bytes_of(const struct flw_hostpool *pool, const struct need *need,
                               uint64_t bound, bool is_tight)
{
    uint64_t room = bound > pool->reserved_bytes ? bound - pool->reserved_bytes : 0;
    uint64_t least = flw_align_up(need->chunk_bytes, FLW_HOST_PAGE), wanted;
    if (is_tight) {
        wanted = least;
    } else if (need->kind == FLW_PAGES_LARGE) {
        /* Similar sizes share a chunk: a difference of at most a thirty-second. */
        wanted = flw_align_up(least, 1ull << (flw_log2_floor(least) - 5));
    } else {
        wanted = flw_max(pool->peak_used_bytes, pool->peak_taken_bytes) >> CHUNK_LOG2;
        wanted = wanted < LEAST_CHUNK ? LEAST_CHUNK : flw_min(wanted, MOST_CHUNK);
        wanted = flw_align_up(wanted < least ? least : wanted, CHUNK_STEP);
    }
    wanted = flw_min(wanted, room) & ~(FLW_HOST_PAGE - 1);
    return wanted >= least ? wanted : 0;
}

/* Pin a chunk; false: no room in the bound, or refused (see need->refusal). Makes driver calls. */
static bool grow(struct flw_hostpool *pool, struct need *need, bool is_to_limit)
{
    struct flw_pin_section section;
    flw_lock_acquire(&pool->lock);
    uint64_t budget = budget_of(pool, need);
    uint64_t bytes =
        chunk_bytes_of(pool, need, is_to_limit ? pool->limit_bytes : budget, is_to_limit);
    struct flw_chunk *chunk =
        bytes > 0 ? flw_pages_new_chunk(&pool->pages, bytes, need->kind) : NULL;
    if (chunk == NULL) {
        flw_lock_release(&pool->lock);
        return false;
    }
    pool->reserved_bytes += bytes;
    pool->moving_count++;
    flw_lock_release(&pool->lock);
    need->call = "cuCtxPushCurrent";
    bool is_inside = flw_pin_enter(&pool->pin, &section, NULL);
    CUresult result = section.refusal;
    if (is_inside) {
        result = flw_pin_acquire(&pool->pin, chunk, &need->call);
        flw_pin_leave(&pool->pin, &section);
        flw_pin_heed(&pool->pin, result, need->call);
    }
    need->refusal = (int)result;
    flw_lock_acquire(&pool->lock);
    pool->moving_count--;
    if (result == CUDA_SUCCESS) {
        flw_pages_publish(&pool->pages, chunk);
        pool->bound_bytes += chunk->is_bound ? bytes : 0;
        pool->grow_count++;
        if (pool->reserved_bytes > pool->peak_reserved_bytes) {
            pool->peak_reserved_bytes = pool->reserved_bytes;
        }
    } else {
        pool->reserved_bytes -= bytes;
        flw_pages_drop_chunk(&pool->pages, chunk);
    }
    flw_lock_release(&pool->lock);
    return result == CUDA_SUCCESS;
}

/* Release the largest idle chunk. *out_bytes 0: there is none. Makes driver calls. */
static fallow_status release_one(struct flw_hostpool *pool, uint64_t *out_bytes)
{
    struct flw_pin_section section;
    *out_bytes = 0;
    flw_lock_acquire(&pool->lock);
    struct flw_chunk *chunk = flw_pages_idle_chunk(&pool->pages);
    if (chunk != NULL) {
        flw_pages_withdraw(&pool->pages, chunk);
        pool->moving_count++;
    }
    flw_lock_release(&pool->lock);
    if (chunk == NULL) {
        return FALLOW_OK;
    }
    uint64_t bytes = flw_chunk_bytes(chunk);
    bool is_inside = flw_pin_enter(&pool->pin, &section, NULL);
    CUresult result = section.refusal;
    if (is_inside) {
        result = flw_pin_release(&pool->pin, chunk);
        flw_pin_leave(&pool->pin, &section);
        flw_pin_heed(&pool->pin, result, "cuMemFreeHost");
    }
    flw_lock_acquire(&pool->lock);
    pool->moving_count--;
    if (result == CUDA_SUCCESS) {
        pool->reserved_bytes -= bytes;
        pool->bound_bytes -= chunk->is_bound ? bytes : 0;
        pool->release_count++;
        flw_pages_drop_chunk(&pool->pages, chunk);
        *out_bytes = bytes;
    } else {
        flw_pages_publish(&pool->pages, chunk);
    }
    flw_lock_release(&pool->lock);
    return result == CUDA_SUCCESS
               ? FALLOW_OK
               : flw_hostpool_refuse(
                     pool, FALLOW_DRIVER,
                     "the driver kept %llu pinned bytes: %s; try again when the device is idle",
                     (unsigned long long)bytes, flw_pin_error_name(&pool->pin, (int)result));
}

/* Release idle chunks until the need fits into the budget, or there are none. The driver may have
 * waited for the device meanwhile: then more is complete. Makes driver calls. */
static bool make_room(struct flw_hostpool *pool, struct need *need)
{
    bool any = false;
    for (;;) {
        uint64_t released = 0;
        flw_lock_acquire(&pool->lock);
        bool fits = chunk_bytes_of(pool, need, budget_of(pool, need), false) > 0;
        flw_lock_release(&pool->lock);
        if (fits || release_one(pool, &released) != FALLOW_OK || released == 0) {
            return any && flw_fences_poll_all(pool);
        }
        any = true;
    }
}

/* ---- the ladder */

static bool poll_fences(struct flw_hostpool *pool, struct need *need)
{
    (void)need;
    return flw_fences_poll_all(pool);
}

static bool flush_smalls(struct flw_hostpool *pool, struct need *need)
{
    (void)need;
    flw_small_blocks_flush(&pool->small_blocks);
    return true;
}

static bool grow_in_budget(struct flw_hostpool *pool, struct need *need)
{
    return grow(pool, need, false);
}

static bool take_any(struct flw_hostpool *pool, struct need *need)
{
    (void)pool;
    need->takes_any = true;
    return true;
}

static bool grow_to_limit(struct flw_hostpool *pool, struct need *need)
{
    if (grow(pool, need, true)) {
        return true;
    }
    /* The system has no more memory, or the limit is reached: release idle chunks of
     * other sizes. */
    uint64_t released = 0;
    while (release_one(pool, &released) == FALLOW_OK && released > 0) {
        if (grow(pool, need, true)) {
            return true;
        }
    }
    return false;
}

static void *climb(struct flw_hostpool *pool, struct need *need, fallow_status *status)
{
    static bool (*const stages[])(struct flw_hostpool *, struct need *) = {
        poll_fences,    flush_smalls,  grow_in_budget, make_room,
        grow_in_budget, grow_to_limit, take_any};
    struct flw_pin_section section;
    need->takes_any = false;
    void *base = take(pool, need, status);
    flw_pin_hold(&pool->pin, &section);
    for (size_t i = 0; base == NULL && *status == FALLOW_OK && i < sizeof stages / sizeof *stages;
         i++) {
        if (stages[i](pool, need)) {
            base = take(pool, need, status);
        }
    }
    flw_pin_leave(&pool->pin, &section);
    return base;
}

/* True if anything was reclaimed since. Lock held. */
static bool is_less_deferred(struct flw_hostpool *pool, void *context)
{
    return pool->deferred_bytes < *(uint64_t *)context;
}

static fallow_status refuse_need(struct flw_hostpool *pool, const struct need *need)
{
    fallow_host_stats stats;
    fallow_host_stats_init(&stats);
    atomic_fetch_add(&pool->oom_count, 1);
    if (fallow_host_get_stats(pool->handle, &stats) != FALLOW_OK) {
        return FALLOW_INVALID_POOL;
    }
    bool is_driver =
        need->refusal != 0 && stats.reserved_bytes + need->chunk_bytes <= stats.limit_bytes;
    if (is_driver && flw_answer_of(need->refusal) == FLW_ANSWER_REFUSED) {
        return flw_hostpool_refuse(
            pool, flw_answer_status(need->refusal),
            "no pinned memory for %llu bytes: %s returned %s; live blocks are unaffected, and the next request tries again",
            (unsigned long long)need->bytes, need->call,
            flw_pin_error_name(&pool->pin, need->refusal));
    }
    return flw_hostpool_refuse(
        pool, FALLOW_OUT_OF_PINNED_MEMORY,
        "no pinned memory for %llu bytes: %llu allocated, %llu wait for copies, %llu pinned of %llu; %s%s",
        (unsigned long long)need->bytes, (unsigned long long)stats.requested_bytes,
        (unsigned long long)stats.deferred_bytes, (unsigned long long)stats.reserved_bytes,
        (unsigned long long)stats.limit_bytes,
        is_driver ? "free blocks, or give the machine more memory; the driver answered "
                  : "free blocks, or raise limit_bytes",
        is_driver ? flw_pin_error_name(&pool->pin, need->refusal) : "");
}

static fallow_status allocate(struct flw_hostpool *pool, uint64_t bytes, void **out_ptr)
{
    struct need need = need_of(pool, bytes);
    fallow_status status = FALLOW_OK;
    uint64_t deadline_ns = 0;
    *out_ptr = take(pool, &need, &status);
    while (*out_ptr == NULL && status == FALLOW_OK) {
        if (flw_pin_is_lost(&pool->pin)) {
            return flw_hostpool_refuse_lost(pool);
        }
        *out_ptr = bytes <= pool->limit_bytes ? climb(pool, &need, &status) : NULL;
        if (*out_ptr != NULL || status != FALLOW_OK) {
            break;
        }
        flw_lock_acquire(&pool->lock);
        uint64_t deferred = pool->deferred_bytes;
        flw_lock_release(&pool->lock);
        uint64_t now_ns = flw_clock_fine_ns();
        if (deadline_ns == 0) {
            deadline_ns =
                pool->config.wait_ms != UINT32_MAX ? now_ns + pool->config.wait_ms * 1000000ull : 1;
        }
        if (deferred == 0 || bytes > pool->limit_bytes || now_ns >= deadline_ns ||
            flw_fences_wait(pool, deadline_ns, is_less_deferred, &deferred) != FALLOW_OK) {
            return flw_pin_is_lost(&pool->pin) ? flw_hostpool_refuse_lost(pool)
                                               : refuse_need(pool, &need);
        }
    }
    return status == FALLOW_OK
               ? FALLOW_OK
               : flw_hostpool_refuse(
                     pool, status,
                     "fallow_host_alloc of %llu bytes: no host memory for the pool's tables; free blocks",
                     (unsigned long long)bytes);
}

fallow_status fallow_host_alloc(fallow_host *host, size_t size_bytes, void **out_ptr)
{
    struct flw_hostpool *pool = flw_hostpool_of(host);
    int saved = errno;
    if (out_ptr == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_ptr = NULL;
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (size_bytes == 0) {
        return FALLOW_OK;
    }
    if (size_bytes > MOST_BYTES) {
        return flw_hostpool_refuse(pool, FALLOW_INVALID_ARGUMENT,
                                   "fallow_host_alloc of %zu bytes: no machine has so much memory",
                                   size_bytes);
    }
    if (flw_pin_is_lost(&pool->pin)) {
        return flw_hostpool_refuse_lost(pool);
    }
    fallow_status status = allocate(pool, size_bytes, out_ptr);
    errno = saved;
    return status;
}

/* ---- maintenance */

fallow_status fallow_host_poll(fallow_host *host)
{
    struct flw_hostpool *pool = flw_hostpool_of(host);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    (void)flw_fences_poll_all(pool);
    return flw_pin_is_lost(&pool->pin) ? flw_hostpool_refuse_lost(pool) : FALLOW_OK;
}

/* Release idle chunks until so much is left. Makes driver calls. */
static fallow_status shrink(struct flw_hostpool *pool, uint64_t keep_bytes, size_t *out_released)
{
    struct flw_pin_section section;
    fallow_status status = FALLOW_OK;
    flw_small_blocks_flush(&pool->small_blocks);
    flw_pin_hold(&pool->pin, &section);
    for (bool is_done = false; !is_done;) {
        uint64_t bytes = 0;
        flw_lock_acquire(&pool->lock);
        is_done = pool->reserved_bytes <= keep_bytes;
        flw_lock_release(&pool->lock);
        status = is_done ? FALLOW_OK : release_one(pool, &bytes);
        *out_released += bytes;
        is_done = is_done || status != FALLOW_OK || bytes == 0;
    }
    flw_pin_leave(&pool->pin, &section);
    return status;
}

fallow_status fallow_host_trim(fallow_host *host, size_t keep_bytes, uint64_t deadline_ns,
                               size_t *out_released_bytes)
{
    struct flw_hostpool *pool = flw_hostpool_of(host);
    size_t released = 0;
    if (out_released_bytes != NULL) {
        *out_released_bytes = 0;
    }
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    fallow_status waited = FALLOW_OK;
    if (deadline_ns == 0) {
        (void)flw_fences_poll_all(pool);
    } else {
        uint64_t now_ns = flw_clock_fine_ns();
        waited = flw_fences_wait(
            pool, deadline_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + deadline_ns, NULL,
            NULL);
    }
    fallow_status status = shrink(pool, keep_bytes, &released);
    if (out_released_bytes != NULL) {
        *out_released_bytes = released;
    }
    if (flw_pin_is_lost(&pool->pin)) {
        return flw_hostpool_refuse_lost(pool);
    }
    return status != FALLOW_OK ? status : waited;
}
