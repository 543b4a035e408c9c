/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how much may be held, and growth within it. The budgets, over P, the peak requested so far
 * (this request in it):
 *   tight  P + min(3 % + 14 MiB, 112 MiB)   new handles below it; beyond it idle handles move instead
 *   wide   P + 4.4 % + 14 MiB               memory first, where the tight one is short again and again;
 *                                           10 % less 4 MiB from three streams on
 *   loose  1.15 P + 16 MiB                  balanced: grow rather than move what the device still uses;
 *          1.16 P + 16 MiB                  in the steady state: rather than move anything
 * With several streams, but for memory first, instead of loose:
 *   first  P + 256 MiB or 17 %, or 256 MiB  new handles below it, before caches of other streams give way; on small
 *                                           devices a 256th of them in place of 256 MiB
 *   shared 1.17 P, or what they need to be  balanced: rather than wait; where pieces cannot be moved without one,
 *          without waits, to 1.45 P         1.45 P. Speed first: the limit
 */
#include "pool/ladder/climb.h"
#include "pool/state/account.h"
#include "pool/state/refusal_log.h"
#include "pool/state/settings.h"

/* Memory first comes near what it promises at most (1.05 P + 16 MiB; with three streams, each of which
 * has idle memory of its own, 1.10) only where that buys something. A climb that the tight budget does
 * not serve is *strained*: it moves handles, takes from other streams, waits. Each adds one to a level,
 * from which every so many allocations take one off: it rises where strain is frequent, and the budget
 * with it. Some of the promise is left for what no move makes good. Near the end of the device, or of a
 * limit, little of it is used. */
#define STRAIN_ALLOCS    32 /* one strain in so many is let pass */
#define STRAIN_LET_PASS  48
#define STRAIN_LEVEL_MAX 112
#define WIDE_SHARE_LEFT  8 /* of what the limit leaves */

static uint64_t widened_slack(const struct flw_climb *climb, uint64_t slack)
{
    uint64_t peak = climb->peak_bytes, limit = climb->heap->limit_bytes;
    uint32_t level = atomic_load_explicit(&climb->pool->budget.strain_level, memory_order_relaxed);
    if (level <= STRAIN_LET_PASS || peak <= FLW_SMALL_POOL_BYTES || peak >= limit) {
        return slack;
    }
    uint64_t most = atomic_load(&climb->heap->stream_count) > 2 ? peak / 10 - 4 * FLW_MIB
                                                                : peak * 44 / 1000 + 14 * FLW_MIB;
    most = flw_min(most, (limit - peak) / WIDE_SHARE_LEFT);
    uint64_t more = most > slack ? most - slack : 0;
    return slack + more * (level - STRAIN_LET_PASS) / (STRAIN_LEVEL_MAX - STRAIN_LET_PASS);
}

uint64_t flw_climb_tight_budget(const struct flw_climb *climb)
{
    uint64_t slack = flw_min(climb->peak_bytes * 3 / 100 + 14 * FLW_MIB, 112 * FLW_MIB);
    return climb->peak_bytes + widened_slack(climb, slack);
}

/* What streams keep for themselves costs waits to take away, so with several of them a pool has at least this. */
#define SHARED_FLOOR_BYTES (256 * FLW_MIB)
#define SHARED_FLOOR_SHARE 256 /* of the device */

uint64_t flw_climb_first_budget(const struct flw_climb *climb)
{
    uint64_t tight = flw_climb_tight_budget(climb), peak = climb->peak_bytes;
    uint64_t floor = flw_min(SHARED_FLOOR_BYTES, climb->pool->device_bytes / SHARED_FLOOR_SHARE);
    if (!flw_climb_has_others(climb) || climb->pool->config.economy == FALLOW_MEMORY_FIRST) {
        return tight;
    }
    return flw_max(flw_max(tight, floor), peak + flw_min(floor, peak * 17 / 100));
}

uint64_t flw_climb_most_budget(const struct flw_climb *climb)
{
    uint64_t limit = climb->heap->limit_bytes;
    if (climb->pool->config.economy == FALLOW_MEMORY_FIRST) {
        return flw_min(flw_climb_tight_budget(climb), limit);
    }
    return climb->shared_bytes != 0 ? flw_min(climb->shared_bytes, limit) : limit;
}

/* The tight budget did not serve. */
static void note_strain(const struct flw_climb *climb)
{
    struct flw_pool *pool = climb->pool;
    if ((climb->need->flags & FALLOW_REQUEST_NO_GROW) != 0) {
        return;
    }
    uint64_t allocs = flw_pool_allocs(pool);
    flw_lock_acquire(&climb->heap->lock);
    uint32_t level = atomic_load_explicit(&pool->budget.strain_level, memory_order_relaxed);
    uint64_t passed = (allocs - flw_min(allocs, pool->budget.strained_allocs)) / STRAIN_ALLOCS;
    pool->budget.strained_allocs += passed * STRAIN_ALLOCS;
    level -= (uint32_t)flw_min(level, passed);
    level = flw_min(level + 1, STRAIN_LEVEL_MAX);
    atomic_store_explicit(&pool->budget.strain_level, level, memory_order_relaxed);
    flw_lock_release(&climb->heap->lock);
}

uint64_t flw_climb_loose_budget(const struct flw_climb *climb)
{
    uint64_t per_cent = climb->is_steady ? 16 : 15;
    return climb->peak_bytes + climb->peak_bytes * per_cent / 100 + 16 * FLW_MIB;
}

/* A limit that somebody set is to be used up: then no handle is larger than LIMITED_HANDLE_BYTES. On a small device,
 * too, which has room for DEVICE_HANDLES of the usual size; HANDLE_MOST on any other. */
#define LIMITED_HANDLE_BYTES (8 * FLW_MIB)
#define DEVICE_HANDLES       512
#define HANDLE_MOST          (64 * FLW_MIB)

static bool is_limited(const struct flw_climb *climb)
{
    return climb->heap->limit_bytes < climb->pool->device_bytes;
}

/* Growths become larger with the pool, so that calls do not become more; small again in the last tenth
 * of a limit. But a handle moves only as a whole: with larger ones more is held.
 * So a memory-first pool that could not keep to its budget takes smaller ones from then on, but not so small
 * that a large request takes more than about these, and a small pool, where a few large ones would pin all
 * that it may hold beyond its need, makes several for one growth. */
#define HANDLE_HALVINGS 3
#define NEED_HANDLES    64

static bool is_near_limit(const struct flw_climb *climb)
{
    uint64_t reserved = atomic_load(&climb->heap->reserved_bytes);
    return reserved + climb->need_bytes > climb->heap->limit_bytes / 10 * 9;
}

static uint64_t most_handle(const struct flw_climb *climb)
{
    uint64_t share = climb->pool->device_bytes / DEVICE_HANDLES;
    return is_limited(climb) ? LIMITED_HANDLE_BYTES
                             : flw_clamp(share, LIMITED_HANDLE_BYTES, HANDLE_MOST);
}

static uint64_t usual_growth(const struct flw_climb *climb)
{
    uint64_t reserved = atomic_load(&climb->heap->reserved_bytes);
    bool is_tight = climb->pool->config.economy == FALLOW_MEMORY_FIRST;
    if (is_near_limit(climb)) {
        return climb->heap->source.granularity_bytes;
    }
    /* Several streams split what there is: small growths while that is little. */
    bool splits = is_tight || atomic_load(&climb->heap->stream_count) > 1;
    uint64_t least = is_tight ? 8 * FLW_MIB : 16 * FLW_MIB;
    least = splits ? flw_min(least, reserved / 32) : least;
    uint64_t most = is_tight ? 32 * FLW_MIB : 64 * FLW_MIB;
    uint64_t wanted = flw_clamp(is_tight ? reserved / 1024 : reserved / 128, least, most);
    if (splits && !is_tight) {
        wanted =
            flw_clamp(flw_max(reserved / 512, climb->need_bytes / 16), 2 * FLW_MIB, 64 * FLW_MIB);
    }
    wanted >>= atomic_load_explicit(&climb->pool->budget.handle_halvings, memory_order_relaxed);
    wanted = is_tight ? flw_max(wanted, flw_min(climb->need_bytes / NEED_HANDLES, most)) : wanted;
    return flw_min(wanted, most_handle(climb));
}

/* A power of two. However large the request, it takes at most about a thousand handles: each is two
 * driver calls, and the first request of a pool may be for most of the device. */
#define GROWTH_HANDLES 1024

static uint64_t growth_size(const struct flw_climb *climb)
{
    uint64_t wanted = flw_max(usual_growth(climb), climb->need_bytes / GROWTH_HANDLES);
    wanted = wanted < 2 * FLW_MIB ? 2 * FLW_MIB : 1ull << flw_log2_floor(wanted);
    return flw_max(wanted, climb->heap->source.granularity_bytes);
}

/* Return the size of new handles. One small block keeps its handle in place, so the size follows the growth, and is a
 * small part of a pool that has much memory beside the request. Memory first makes them by the size of the pool, since
 * it moves handles often. */
#define GROWTH_SHARE 8
#define POOL_SHARE   128

static uint64_t handle_size(const struct flw_climb *climb, uint64_t growth, uint64_t ahead_bytes)
{
    uint64_t reserved = atomic_load(&climb->heap->reserved_bytes);
    bool is_small = reserved + climb->need_bytes <= FLW_SMALL_POOL_BYTES;
    bool is_tight = climb->pool->config.economy == FALLOW_MEMORY_FIRST;
    if (is_small && (is_tight || is_limited(climb))) {
        return 0; /* a few larger ones could pin all that the pool may hold beyond its need */
    }
    if (is_tight) {
        return growth;
    }
    uint64_t wanted = flw_max(climb->need_bytes, ahead_bytes) / GROWTH_SHARE;
    wanted = reserved > climb->need_bytes / 4 ? flw_min(wanted, reserved / POOL_SHARE) : wanted;
    wanted = is_near_limit(climb) ? 1 : flw_clamp(wanted, 1, most_handle(climb));
    return 1ull << flw_log2_floor(flw_max(wanted, climb->need_bytes / GROWTH_HANDLES));
}

/* Memory first has small handles, and maps a few more of them than are missing, which the next requests
 * find: as long as the tight budget, which the pool may hold in any case, has room for them. */
static uint64_t beyond_size(const struct flw_climb *climb, uint64_t budget_bytes)
{
    uint64_t reserved = atomic_load(&climb->heap->reserved_bytes);
    if (climb->pool->config.economy != FALLOW_MEMORY_FIRST || reserved <= FLW_SMALL_POOL_BYTES ||
        is_near_limit(climb) || budget_bytes > flw_climb_tight_budget(climb)) {
        return 0;
    }
    return flw_min(reserved / 128, 112 * FLW_MIB);
}

/* The budget was not enough. */
static void halve_handles(struct flw_pool *pool)
{
    unsigned halvings = atomic_load_explicit(&pool->budget.handle_halvings, memory_order_relaxed);
    if (halvings < HANDLE_HALVINGS) {
        (void)atomic_compare_exchange_strong(&pool->budget.handle_halvings, &halvings,
                                             halvings + 1);
    }
}

static bool adopt_run(struct flw_climb *climb, struct flw_span *run)
{
    struct flw_need *need = climb->need;
    if (need->class_index == FLW_CLASS_COUNT) {
        need->run = run;
        return true;
    }
    flw_lock_acquire(&climb->heap->lock);
    if (flw_heap_adopt_slab(climb->heap, need->domain, need->class_index, run)) {
        need->count = flw_heap_take_slots(climb->heap, need->domain, need->class_index, need->want,
                                          need->slots);
    }
    flw_lock_release(&climb->heap->lock);
    climb->is_headless = need->count == 0;
    return need->count > 0;
}

static bool may_grow(const struct flw_climb *climb)
{
    return (climb->need->flags & FALLOW_REQUEST_NO_GROW) == 0 && !climb->is_headless;
}

void flw_climb_want_units(struct flw_climb *climb, uint32_t unit_count)
{
    climb->need->unit_count = unit_count;
    climb->need_bytes =
        flw_align_up((uint64_t)unit_count << FLW_UNIT_LOG2, climb->heap->source.granularity_bytes);
}

/* A pool in its steady state makes room for two more requests of the size, if that is a small part of what it may grow
 * by. */
static uint64_t steady_growth(const struct flw_climb *climb, uint64_t budget_bytes)
{
    uint64_t loose = flw_climb_loose_budget(climb), wanted = 3 * climb->need_bytes;
    bool is_little = wanted <= (loose - climb->peak_bytes) / 4;
    return climb->is_steady && budget_bytes <= loose && is_little ? wanted : 0;
}

/* With several streams most climbs come here, and few may grow: the search for a place is spared. (With one stream
 * a place tells more, of a driver that refuses.) */
static bool is_spent(struct flw_climb *climb, uint64_t budget_bytes)
{
    const struct flw_heap *heap = climb->heap;
    bool is_spent = flw_climb_has_others(climb) && atomic_load(&heap->idle_bytes) == 0 &&
                    atomic_load(&heap->reserved_bytes) >= budget_bytes;
    climb->is_refused &= !is_spent;
    return is_spent;
}

struct flw_grow_request flw_climb_request(const struct flw_heap *heap, const struct flw_need *need)
{
    return (struct flw_grow_request){.domain = need->domain,
                                     .unit_count = need->unit_count,
                                     .align_units = need->align_units,
                                     .budget_bytes = heap->limit_bytes,
                                     .handle_types = need->handle_types,
                                     .growable = need->growable,
                                     .is_exact = need->growable != NULL,
                                     .is_single_handle = flw_need_is_single(need) ||
                                                         flw_need_is_dedicated(heap, need)};
}

/* Without handles to move: those at hand, then new ones while reserved stays within budget. */
bool flw_climb_grow_within(struct flw_climb *climb, uint64_t budget_bytes)
{
    struct flw_need *need = climb->need;
    struct flw_span *run = NULL;
    uint64_t growth = growth_size(climb);
    uint64_t ahead_bytes = flw_max(growth, steady_growth(climb, budget_bytes));
    uint64_t after = atomic_load(&climb->heap->reserved_bytes) + climb->need_bytes;
    bool is_dedicated = flw_need_is_dedicated(climb->heap, need);
    struct flw_grow_request request = flw_climb_request(climb->heap, need);
    request.budget_bytes = flw_min(budget_bytes, climb->heap->limit_bytes);
    request.handle_bytes = handle_size(climb, growth, ahead_bytes);
    request.ahead_bytes = ahead_bytes;
    request.beyond_bytes = beyond_size(climb, budget_bytes);
    request.is_dedicated = is_dedicated || flw_need_is_whole_segment(climb->heap, need);
    request.skips_backoff = climb->skips_backoff;
    if (!may_grow(climb) || is_spent(climb, request.budget_bytes)) {
        return false;
    }
    fallow_status status = flw_heap_grow(climb->heap, &request, &run);
    bool is_answer = status == FALLOW_DRIVER || status == FALLOW_NOT_SUPPORTED;
    climb->is_refused = is_answer || status == FALLOW_WOULD_WAIT;
    flw_pool_log_refusals(climb->pool);
    if (is_answer) {
        climb->skips_backoff = false; /* once for requests of this size */
        flw_pool_log_required(climb->pool);
    }
    if (status == FALLOW_WOULD_WAIT) {
        return false; /* refused a moment ago */
    }
    if (status == FALLOW_OK) {
        atomic_store_explicit(&climb->pool->climbs.refused_requests, 0, memory_order_relaxed);
        if (climb->is_steady) {
            atomic_store(&climb->pool->budget.steady_grows, atomic_load(&climb->heap->count.grows));
        }
        return adopt_run(climb, run);
    }
    if (status == FALLOW_OUT_OF_MEMORY && after <= request.budget_bytes) {
        atomic_store(&climb->pool->climbs.room_until_ns, 0); /* the device may be full by now */
    }
    if (climb->status == FALLOW_OUT_OF_MEMORY || status != FALLOW_OUT_OF_MEMORY) {
        climb->status = status;
    }
    climb->is_headless = status == FALLOW_OUT_OF_HOST_MEMORY;
    return false;
}

bool flw_climb_may_exchange(struct flw_climb *climb)
{
    if (climb->is_refused || !flw_heap_refuses(climb->heap, climb->need_bytes)) {
        return !climb->is_refused;
    }
    bool is_due = climb->skips_backoff && !flw_heap_spares(climb->heap, climb->need_bytes);
    climb->skips_backoff =
        false; /* call the driver once: a refusal makes the next call wait longer */
    return is_due;
}

/* Segments do not move: what idles goes back to the driver, as much as the budget lacks (or the driver, where
 * the budget does not), and one of the right size is asked for. */
static bool replace_segments(struct flw_climb *climb, uint64_t budget_bytes)
{
    uint64_t reserved = atomic_load(&climb->heap->reserved_bytes), need = climb->need_bytes;
    uint64_t room = flw_min(budget_bytes, climb->heap->limit_bytes);
    uint64_t keep = room - flw_min(room, need);
    keep = reserved > keep ? keep : reserved - flw_min(reserved, need);
    return flw_climb_may_exchange(climb) && flw_climb_release(climb, keep) &&
           flw_climb_grow_within(climb, budget_bytes);
}

/* Where large blocks come and go each has its handle made for it and released for what comes next,
 * which costs more than it is worth to anybody. In automatic mode a pool that had to do so this
 * often gives only blocks twice as large one, until it is trimmed: then another phase begins. */
#define DEDICATED_RELEASED_MOST 3

static void spare_dedicated(const struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    if (climb->pool->config.one_handle_bytes != 0 ||
        atomic_load(&heap->released_dedicated) < DEDICATED_RELEASED_MOST) {
        return;
    }
    uint64_t units = 2 * (uint64_t)atomic_load(&heap->dedicated_units);
    atomic_store(&heap->dedicated_units, (uint32_t)flw_min(units, UINT32_MAX));
    atomic_store(&heap->released_dedicated, 0);
    flw_pool_log(climb->pool, FALLOW_LOG_INFO,
                 "large blocks are freed often: until a trim, only blocks of %llu MiB or "
                 "more get a handle of their own (one_handle_bytes sets a fixed size)",
                 (unsigned long long)(units >> (20 - FLW_UNIT_LOG2)));
}

/* Memory first moves handle by handle, and all that the need is large: it would hold 2 % more where sizes are drawn.
 * On a device that keeps pace what is free lies together by the time it moves, and stretches hold no more. */
static bool moves_singly(const struct flw_climb *climb)
{
    bool keeps_pace = flw_climb_has_others(climb) && flw_budget_is_prompt(&climb->pool->budget);
    return climb->pool->config.economy == FALLOW_MEMORY_FIRST && !keeps_pace;
}

/* What is idle is unmapped for the need: all that it is large. */
static uint64_t unmap_for(const struct flw_climb *climb)
{
    uint64_t unmapped = flw_heap_unmap_idle(climb->heap, climb->need_bytes, moves_singly(climb));
    spare_dedicated(climb);
    return unmapped;
}

/* With several streams no more moves than what is missing where the most is there already. Moves by which all of the
 * need is new take apart what the next ones would have found whole. */
static bool move_missing(struct flw_climb *climb, uint64_t budget_bytes)
{
    struct flw_grow_request request = flw_climb_request(climb->heap, climb->need);
    if (request.is_single_handle || !flw_climb_has_others(climb) || moves_singly(climb)) {
        return false;
    }
    uint64_t unmapped = flw_heap_unmap_for(climb->heap, &request);
    spare_dedicated(climb);
    return unmapped > 0 && flw_climb_grow_within(climb, budget_bytes);
}

/* Idle handles are of the wrong size: let the driver have them, ask it for the right one. With several streams only
 * where the budget has room for that then: a wait on the device may yet put them to use. */
static bool exchange_idle(struct flw_climb *climb, uint64_t budget_bytes)
{
    uint64_t idle_bytes = climb->heap->idle_bytes;
    uint64_t reserved = atomic_load(&climb->heap->reserved_bytes);
    uint64_t keep = reserved - flw_min(reserved, flw_min(idle_bytes, climb->need_bytes));
    bool may_fit = keep + climb->need_bytes <= budget_bytes || !flw_climb_has_others(climb);
    return idle_bytes > 0 && may_fit && !flw_heap_is_lost(climb->heap) &&
           flw_climb_may_exchange(climb) && flw_heap_release_idle(climb->heap, keep, 0) > 0 &&
           flw_climb_grow_within(climb, budget_bytes);
}

/* Within the budget by moving what is idle; by releasing what does not fit. */
static bool move_within(struct flw_climb *climb, uint64_t budget_bytes)
{
    if (!may_grow(climb)) {
        return false; /* what idles here stays */
    }
    if (!climb->heap->source.ops->remaps) {
        return replace_segments(climb, budget_bytes);
    }
    if (flw_heap_refuses(climb->heap, 0)) {
        return false; /* nor would it come again */
    }
    return move_missing(climb, budget_bytes) ||
           (unmap_for(climb) > 0 && flw_climb_grow_within(climb, budget_bytes)) ||
           exchange_idle(climb, budget_bytes);
}

bool flw_climb_grow_or_move(struct flw_climb *climb, uint64_t budget_bytes)
{
    return flw_climb_grow_within(climb, budget_bytes) || move_within(climb, budget_bytes);
}

/* The driver may have small handles where it has no large one; if the configuration names a size, no other is tried. */
static bool may_divide(const struct flw_climb *climb)
{
    return climb->pool->config.one_handle_bytes == 0 && climb->heap->source.ops->remaps &&
           flw_need_is_dedicated(climb->heap, climb->need);
}

/* A slab that does not fit the limit any more is made as small as it can be. */
bool flw_climb_grow_to_limit(struct flw_climb *climb)
{
    struct flw_need *need = climb->need;
    bool skips_backoff = climb->skips_backoff;
    if (climb->pool->config.economy == FALLOW_MEMORY_FIRST) {
        halve_handles(climb->pool);
    }
    if (flw_climb_grow_or_move(climb, climb->heap->limit_bytes)) {
        return true;
    }
    if (may_divide(climb)) {
        need->is_divided = true;
        climb->skips_backoff = skips_backoff; /* on handles of another size */
        return flw_climb_take(climb->heap, need) ||
               flw_climb_grow_or_move(climb, climb->heap->limit_bytes);
    }
    uint32_t smallest =
        need->class_index < FLW_CLASS_COUNT ? flw_class_slab_units(need->class_index) : UINT32_MAX;
    if (need->unit_count <= smallest) {
        return false;
    }
    flw_climb_want_units(climb, smallest);
    return flw_climb_grow_or_move(climb, climb->heap->limit_bytes);
}

/* Without more memory the request fails from here on, or waits. */
bool flw_stage_limit(struct flw_climb *climb)
{
    climb->skips_backoff = true;
    bool is_grown = flw_climb_grow_to_limit(climb);
    climb->skips_backoff = false;
    return is_grown;
}

/* A growth is rare and calls the driver anyway: the place to let memory that was freed long ago be
 * known complete by the next one. */
static void fence_own(struct flw_climb *climb)
{
    if (climb->need->domain->ops->record != NULL && !flw_heap_is_lost(climb->heap)) {
        (void)flw_domain_fence_own(climb->heap, climb->need->domain);
    }
}

/* A pool is in its steady state when it has allocated as many blocks since its peak last rose as before. The program
 * then repeats itself, and every move of memory would be repeated. So a balanced pool grows instead, also in advance,
 * until there is room for all blocks, and prepares no further growth. (This also cuts the driver calls to an eighth if
 * one of 48 to 96 blocks of 512 B to 64 MiB is replaced at random, which does not repeat.) */
static bool is_steady(struct flw_climb *climb)
{
    struct flw_pool *pool = climb->pool;
    uint64_t allocs = flw_pool_allocs(pool);
    flw_lock_acquire(&climb->heap->lock);
    if (climb->peak_bytes > pool->budget.risen_peak_bytes) {
        climb->has_risen = true;
        climb->risen_peak_bytes = pool->budget.risen_peak_bytes;
        climb->risen_allocs = pool->budget.risen_allocs;
        pool->budget.risen_peak_bytes = climb->peak_bytes;
        pool->budget.risen_allocs = allocs;
    }
    bool is_steady = allocs > 2 * pool->budget.risen_allocs;
    flw_lock_release(&climb->heap->lock);
    return is_steady;
}

void flw_climb_forget_rise(const struct flw_climb *climb)
{
    struct flw_pool *pool = climb->pool;
    flw_lock_acquire(&climb->heap->lock);
    if (climb->has_risen && pool->budget.risen_peak_bytes == climb->peak_bytes) {
        pool->budget.risen_peak_bytes = climb->risen_peak_bytes;
        pool->budget.risen_allocs = climb->risen_allocs;
    }
    flw_lock_release(&climb->heap->lock);
}

#define WAITLESS_FADES 256

/* All but what this stream could have at once is in use, or not complete, as far as is known: a pool
 * without waits holds that and the need. */
static uint64_t waitless_bytes(const struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    flw_lock_acquire(&heap->lock);
    uint64_t reserved = atomic_load(&heap->reserved_bytes);
    uint64_t free_bytes = atomic_load(&heap->idle_bytes) +
                          flw_domain_run_bytes(heap->domains[FLW_UNOWNED]) +
                          flw_domain_run_bytes(climb->need->domain);
    flw_lock_release(&heap->lock);
    return reserved - flw_min(reserved, free_bytes) + climb->need_bytes;
}

/* To so much it grows rather than wait: 1.17 P, or the most that was ever needed without waits, which fades with
 * each climb that needs less: what was grown for it is trimmed then. */
static void set_shared(struct flw_climb *climb, uint64_t needed_bytes, bool is_known)
{
    _Atomic uint64_t *noted = &climb->pool->budget.waitless_bytes;
    uint64_t peak = climb->peak_bytes, most = atomic_load_explicit(noted, memory_order_relaxed);
    if (needed_bytes <= most) {
        most -= (most - needed_bytes) / WAITLESS_FADES;
    } else if (is_known) {
        most = needed_bytes;
    }
    atomic_store_explicit(noted, most, memory_order_relaxed);
    uint64_t waitless = flw_min(flw_waitless_most(peak), most);
    climb->shared_bytes = flw_max(climb->first_bytes, flw_max(peak * 117 / 100, waitless));
}

/* Is there so much complete memory, in pieces, that moves of it are worth more than new memory? */
#define MUCH_SHARE 8 /* of the peak */

static bool has_much_complete(const struct flw_climb *climb)
{
    struct flw_heap *heap = climb->heap;
    flw_lock_acquire(&heap->lock);
    uint64_t bytes =
        atomic_load(&heap->idle_bytes) + flw_domain_run_bytes(heap->domains[FLW_UNOWNED]);
    flw_lock_release(&heap->lock);
    return bytes >= climb->need_bytes + climb->peak_bytes / MUCH_SHARE;
}

/* Several streams, balanced: rather than wait. Beyond the first budget all that is complete comes before more. */
static bool grow_shared(struct flw_climb *climb)
{
    uint64_t after = atomic_load(&climb->heap->reserved_bytes) + climb->need_bytes;
    set_shared(climb, waitless_bytes(climb), flw_budget_falls_behind(&climb->pool->budget));
    if (flw_climb_grow_within(climb, climb->first_bytes)) {
        return true;
    }
    if (after > climb->shared_bytes) {
        return false;
    }
    return flw_climb_take_complete(climb) ||
           (has_much_complete(climb) && move_within(climb, climb->shared_bytes)) ||
           flw_climb_grow_within(climb, climb->shared_bytes);
}

/* Without a wait: all that is complete, wherever it is; in pieces, moved; and what that lacks, where the pieces
 * cannot be. */
bool flw_climb_move_finished(struct flw_climb *climb)
{
    set_shared(climb, waitless_bytes(climb), true);
    return flw_climb_grow_or_move(climb, climb->shared_bytes) ||
           flw_climb_grow_within(climb, flw_waitless_most(climb->peak_bytes));
}

/* Several streams, speed first: what is complete moves, and what that lacks is asked for. */
static bool grow_freely(struct flw_climb *climb)
{
    if (flw_climb_grow_within(climb, climb->first_bytes)) {
        return true;
    }
    if (flw_climb_take_complete(climb)) {
        return true;
    }
    if (climb->heap->source.ops->remaps && may_grow(climb) &&
        !flw_heap_refuses(climb->heap, 0)) { /* else it would not come again */
        if (move_missing(climb, atomic_load(&climb->heap->reserved_bytes))) {
            return true;
        }
        (void)unmap_for(climb);
    }
    return flw_climb_grow_within(climb, climb->heap->limit_bytes);
}

static bool grow_or_move(struct flw_climb *climb)
{
    uint64_t tight = flw_climb_tight_budget(climb);
    bool is_tight = climb->pool->config.economy == FALLOW_MEMORY_FIRST;
    if (!is_tight && flw_climb_has_others(climb)) {
        return climb->pool->config.economy == FALLOW_SPEED_FIRST ? grow_freely(climb)
                                                                 : grow_shared(climb);
    }
    if (!is_tight) {
        climb->is_steady = is_steady(climb);
        uint64_t loose = flw_climb_loose_budget(climb);
        return climb->is_steady
                   ? flw_climb_grow_or_move(climb, loose)
                   : flw_climb_grow_or_move(climb, tight) || flw_climb_grow_within(climb, loose);
    }
    if (flw_climb_grow_within(climb, tight)) {
        return true;
    }
    note_strain(climb);
    return move_within(climb, tight);
}

bool flw_stage_grow(struct flw_climb *climb)
{
    bool is_grown = grow_or_move(climb);
    if (is_grown && !climb->is_steady && !flw_climb_has_others(climb)) {
        fence_own(climb);
    }
    return is_grown;
}
