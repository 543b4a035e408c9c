/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/extensions/helper.h"

#include <stdlib.h>
#include <time.h>

#include "pool/state/table.h"

#define STEP_MS      10
#define LEAVE_WAIT_S 2

struct driver_place {
    const void *object;
    CUdevice device;
};

/* The helpers of this process. At exit a driver shuts down in its own handlers, and later calls
 * have undefined behaviour. So our handler, which waits for the end of all helpers, must run
 * earlier. It is registered again for each driver and device, after the driver registered its own.
 *
 * `mutex` is a system mutex, taken with no ranked lock held, and not held over a driver call. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    uint32_t running;       /* mutex; including detached ones */
    _Atomic bool is_over;   /* they end, and no new one starts */
    uint32_t watched_count; /* mutex, as all further fields */
    struct driver_place watched[64];
} helpers = {.mutex = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void find_own(struct flw_pool *pool, void *context)
{
    uint32_t *own = context;
    *own += pool->helper.is_there && pthread_equal(pool->helper.thread, pthread_self());
}

/* Join a helper that has ended. */
static void join_ended(struct flw_pool *pool, void *context)
{
    (void)context;
    if (pool->helper.is_there && !pthread_equal(pool->helper.thread, pthread_self())) {
        pool->helper.is_there = false;
        (void)pthread_join(pool->helper.thread, NULL);
    }
}

/* A caller of exit() in a signal handler may hold something that a helper waits for, so the wait
 * has a limit. A helper that calls exit() itself, from a callback, is not waited for. */
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

/* Mutex held. If the table is full, each helper registers the handler again. */
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
         !atomic_load(&pool->helper.stops) && !atomic_load(&helpers.is_over);) {
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
    pool->helper.is_there = !atomic_load(&helpers.is_over) && watch_exit(place) &&
                            pthread_create(&pool->helper.thread, NULL, helper_main, pool) == 0;
    helpers.running += pool->helper.is_there;
    bool has_helper = pool->helper.is_there;
    pthread_mutex_unlock(&helpers.mutex);
    return has_helper;
}

/* True: the caller must join. Otherwise there is none, or the end of the process has joined it. */
static bool take_helper(struct flw_pool *pool)
{
    pthread_mutex_lock(&helpers.mutex);
    bool has_helper = pool->helper.is_there;
    pool->helper.is_there = false;
    pthread_mutex_unlock(&helpers.mutex);
    return has_helper;
}

void flw_pool_stop_helper(struct flw_pool *pool)
{
    atomic_store(&pool->helper.stops, true);
    if (take_helper(pool)) {
        (void)pthread_join(pool->helper.thread, NULL);
    }
}

void flw_pool_leave_helper(struct flw_pool *pool)
{
    if (take_helper(pool)) {
        (void)pthread_detach(pool->helper.thread);
    }
}

void flw_helpers_forget_all(void)
{
    pthread_mutex_init(&helpers.mutex, NULL);
    pthread_cond_init(&helpers.ended, NULL);
    helpers.running = 0;
}
