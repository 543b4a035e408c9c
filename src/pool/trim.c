/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: giving memory back: on request (trim), with time (decay), from a thread of the pool's
 * (helper); the end of all helpers with the process.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "pool/extension.h"

static void complete_what_is(struct flw_pool *pool)
{
    struct flw_driver_section section;
    if (flw_heap_enter_driver(&pool->heap, &section)) {
        flw_uses_fence(pool);
        (void)flw_heap_poll(&pool->heap);
        flw_heap_leave_driver(&pool->heap, &section);
    }
    flw_lock_acquire(&pool->heap.lock);
    (void)flw_heap_reclaim_slabs(&pool->heap);
    flw_lock_release(&pool->heap.lock);
}

/* Wait for the oldest fence anywhere. False: nothing to wait for, or the deadline. */
static bool wait_for_one(struct flw_pool *pool, uint64_t deadline_ns, bool *out_timed_out)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    struct flw_domain *domain = NULL;
    uint64_t ticket = 0;
    flw_lock_acquire(&heap->lock);
    for (uint32_t i = 1; i < heap->domain_end && domain == NULL; i++) {
        if (heap->domains[i]->newest != NULL) {
            domain = heap->domains[i];
            ticket = domain->newest->ticket;
        }
    }
    flw_lock_release(&heap->lock);
    if (domain == NULL || !flw_heap_enter_driver(heap, &section)) {
        return false;
    }
    fallow_status status = flw_domain_wait(heap, domain, ticket, deadline_ns);
    flw_heap_leave_driver(heap, &section);
    *out_timed_out = status == FALLOW_TIMEOUT;
    return status == FALLOW_OK;
}

fallow_status fallow_pool_trim(fallow_pool *handle, size_t keep_bytes, uint64_t deadline_ns,
                               size_t *out_released_bytes)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (out_released_bytes != NULL) {
        *out_released_bytes = 0;
    }
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (flw_heap_is_lost(&pool->heap)) {
        return FALLOW_DEVICE_LOST;
    }
    if (flw_gate_enter(&pool->gate, deadline_ns != 0) != FALLOW_OK) {
        return FALLOW_OK; /* asleep: there is nothing left to give back */
    }
    atomic_store(&pool->heap.whole_units, pool->heap.first_whole_units); /* another phase begins */
    atomic_store(&pool->heap.given_wholes, 0);
    uint64_t now = flw_clock_fine_ns(), released = 0;
    uint64_t until = deadline_ns > UINT64_MAX - 1 - now ? UINT64_MAX - 1 : now + deadline_ns;
    bool has_timed_out = false;
    struct flw_driver_section section;
    flw_heap_hold_driver(&pool->heap, &section);
    FLW_EACH_EXTENSION(pool, row, release) {
        (void)row->release(pool);
    }
    (void)flw_pool_drain(pool, NULL, NULL);
    do {
        complete_what_is(pool);
        flw_pool_fence_all(pool); /* also what has just been settled: the next round waits for it */
        released += flw_heap_release_idle(&pool->heap, keep_bytes);
    } while (deadline_ns != 0 && atomic_load(&pool->heap.reserved_bytes) > keep_bytes &&
             wait_for_one(pool, until, &has_timed_out));
    if (deadline_ns != 0 && !has_timed_out &&
        atomic_load(&pool->heap.reserved_bytes) > keep_bytes &&
        flw_pool_sync_uncoverable(pool, false)) {
        complete_what_is(pool);
        released += flw_heap_release_idle(&pool->heap, keep_bytes);
    }
    if (released > 0) {
        flw_heap_forget_refusal(&pool->heap);
    }
    flw_heap_leave_driver(&pool->heap, &section);
    flw_gate_leave(&pool->gate);
    flw_pool_note_loss(pool);
    flw_pool_tell(pool, FLW_TRACE_EMPTY_CACHE, NULL, (struct flw_event){0});
    if (out_released_bytes != NULL) {
        *out_released_bytes = released;
    }
    return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST
           : has_timed_out               ? FALLOW_TIMEOUT
                                         : FALLOW_OK;
}

/* What the last two seconds needed is the floor; above it idle memory goes after decay_ms. */
#define WINDOW_NS 2000000000ull

/* The most that was needed in this window and the one before: two seconds at least, four at most. */
static uint64_t note_need(struct flw_pool *pool, uint64_t requested, uint64_t now)
{
    uint64_t begin = atomic_load(&pool->peak_window_ns);
    uint64_t most = atomic_load(&pool->peak_window_bytes);
    if (now - begin > WINDOW_NS &&
        atomic_compare_exchange_strong(&pool->peak_window_ns, &begin, now)) {
        atomic_store(&pool->peak_before_bytes, now - begin > 2 * WINDOW_NS ? requested : most);
        most = requested;
        atomic_store(&pool->peak_window_bytes, most);
    }
    while (requested > most &&
           !atomic_compare_exchange_weak(&pool->peak_window_bytes, &most, requested)) {
    }
    return flw_max(flw_max(requested, most), atomic_load(&pool->peak_before_bytes));
}

void flw_pool_decay(struct flw_pool *pool, bool may_release)
{
    if (pool->config.decay_ms == UINT32_MAX) {
        return;
    }
    uint64_t now = flw_clock_coarse_ns();
    /* A thread that hits only settles nothing: where memory may go, the sum is worth its lock. */
    int64_t live = may_release ? flw_pool_requested(pool) : atomic_load(&pool->requested_bytes);
    uint64_t requested = live > 0 ? (uint64_t)live : 0;
    uint64_t most = note_need(pool, requested, now);
    uint64_t last = atomic_load(&pool->decay_ns);
    if (last == 0) {
        atomic_store(&pool->decay_ns, now);
        return;
    }
    if (!may_release || now - last < pool->config.decay_ms * 1000000ull ||
        atomic_load(&pool->open_captures) != 0) {
        return;
    }
    atomic_store(&pool->decay_ns, now);
    uint64_t floor = most + most / 8;
    if (atomic_load(&pool->heap.reserved_bytes) > floor) {
        (void)flw_pool_drain(pool, NULL, NULL);
        complete_what_is(pool);
        flw_pool_fence_all(pool); /* complete by the next time */
        (void)flw_heap_release_idle(&pool->heap, floor);
    }
}

fallow_status fallow_pool_poll(fallow_pool *handle)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (flw_heap_is_lost(&pool->heap)) {
        return FALLOW_DEVICE_LOST;
    }
    struct flw_driver_section section;
    flw_heap_hold_driver(&pool->heap, &section);
    complete_what_is(pool);
    FLW_EACH_EXTENSION(pool, row, poll) {
        row->poll(pool);
    }
    if (flw_gate_enter(&pool->gate, false) == FALLOW_OK) {
        flw_pool_decay(pool, true);
        flw_gate_leave(&pool->gate);
    }
    flw_heap_leave_driver(&pool->heap, &section);
    flw_pool_note_loss(pool);
    return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : FALLOW_OK;
}

/* ---- the helper: a thread of the pool's that polls */

#define STEP_MS      10
#define LEAVE_WAIT_S 2

struct driver_place {
    const void *object;
    CUdevice device;
};

/* The helpers of this process. When it exits a driver ends by handlers of its own, and what calls it after
 * them has undefined behaviour: so ours, which waits for every helper's end, has to run before. It is
 * registered anew with each driver and device, after the driver registered its own.
 *
 * `mutex` is one of the system, taken with no ranked lock held, and held over no driver call. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    uint32_t running;       /* mutex; detached ones too */
    _Atomic bool is_over;   /* they end, and none starts any more */
    uint32_t watched_count; /* mutex; the rest too */
    struct driver_place watched[64];
} helpers = {.mutex = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void find_own(struct flw_pool *pool, void *context)
{
    uint32_t *own = context;
    *own += pool->has_helper && pthread_equal(pool->helper, pthread_self());
}

/* Its thread has ended. */
static void join_ended(struct flw_pool *pool, void *context)
{
    (void)context;
    if (pool->has_helper && !pthread_equal(pool->helper, pthread_self())) {
        pool->has_helper = false;
        (void)pthread_join(pool->helper, NULL);
    }
}

/* Whoever calls exit() in a signal handler may hold what a helper waits for: not for ever. One that calls it
 * itself, from a callback, is not waited for. */
static void end_helpers(void)
{
    uint32_t own = 0;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LEAVE_WAIT_S;
    atomic_store(&helpers.is_over, true);
    if (pthread_mutex_timedlock(&helpers.mutex, &until) != 0) {
        return;
    }
    flw_pool_table_each(find_own, &own);
    while (helpers.running > own &&
           pthread_cond_timedwait(&helpers.ended, &helpers.mutex, &until) == 0) {
    }
    if (helpers.running <= own) {
        flw_pool_table_each(join_ended, NULL);
    }
    pthread_mutex_unlock(&helpers.mutex);
}

/* mutex. A table that is full is no reason to go without: it costs a registration each time. */
static bool watch_exit(struct driver_place place)
{
    for (uint32_t i = 0; i < helpers.watched_count; i++) {
        if (helpers.watched[i].object == place.object &&
            helpers.watched[i].device == place.device) {
            return true;
        }
    }
    if (helpers.watched_count < sizeof helpers.watched / sizeof *helpers.watched) {
        helpers.watched[helpers.watched_count++] = place;
    }
    return atexit(end_helpers) == 0;
}

static void *helper_main(void *argument)
{
    struct flw_pool *pool = argument;
    uint32_t step_ms = pool->config.decay_ms == UINT32_MAX ? 1000 : pool->config.decay_ms / 4;
    struct timespec step = {.tv_nsec = STEP_MS * 1000000};
    for (uint32_t waited_ms = 0;
         !atomic_load(&pool->helper_stops) && !atomic_load(&helpers.is_over);) {
        nanosleep(&step, NULL);
        waited_ms += STEP_MS;
        if (waited_ms >= step_ms && !atomic_load(&helpers.is_over)) {
            waited_ms = 0;
            if (fallow_pool_poll((fallow_pool *)(uintptr_t)pool->handle) != FALLOW_OK) {
                break; /* the device is lost */
            }
        }
    }
    pthread_mutex_lock(&helpers.mutex);
    helpers.running--;
    pthread_cond_broadcast(&helpers.ended);
    pthread_mutex_unlock(&helpers.mutex);
    return NULL;
}

bool flw_pool_start_helper(struct flw_pool *pool)
{
    struct driver_place place = {.object = pool->driver.object, .device = pool->device};
    pthread_mutex_lock(&helpers.mutex);
    pool->has_helper = !atomic_load(&helpers.is_over) && watch_exit(place) &&
                       pthread_create(&pool->helper, NULL, helper_main, pool) == 0;
    helpers.running += pool->has_helper;
    bool has_helper = pool->has_helper;
    pthread_mutex_unlock(&helpers.mutex);
    return has_helper;
}

/* True: the caller's to join. Else there is none, or the end of the process has seen it end. */
static bool take_helper(struct flw_pool *pool)
{
    pthread_mutex_lock(&helpers.mutex);
    bool has_helper = pool->has_helper;
    pool->has_helper = false;
    pthread_mutex_unlock(&helpers.mutex);
    return has_helper;
}

void flw_pool_stop_helper(struct flw_pool *pool)
{
    atomic_store(&pool->helper_stops, true);
    if (take_helper(pool)) {
        (void)pthread_join(pool->helper, NULL);
    }
}

void flw_pool_leave_helper(struct flw_pool *pool)
{
    if (take_helper(pool)) {
        (void)pthread_detach(pool->helper);
    }
}

void flw_helpers_forget_all(void)
{
    pthread_mutex_init(&helpers.mutex, NULL);
    pthread_cond_init(&helpers.ended, NULL);
    helpers.running = 0;
}
