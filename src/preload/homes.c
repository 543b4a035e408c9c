/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/homes.h"

#include <pthread.h>
#include <string.h>

#include "base/backoff.h"
#include "heap/order/epoch.h"
#include "preload/captures.h"
#include "preload/inside.h"
#include "preload/life.h"
#include "preload/real.h"
#include "preload/say.h"
#include "preload/settings.h"

_Atomic bool flw_homes_hit;
struct flw_home_counts flw_home_counts;
void (*flw_homes_on_pool)(fallow_pool *pool, CUdevice device);
void (*flw_homes_on_end)(struct flw_pool *pool);

static _Atomic bool has_ids = true; /* the driver supports cuCtxGetId */
static struct {
    pthread_mutex_t lock;
    struct flw_home list[FLW_HOMES_MAX];
    _Atomic uint32_t end;
} homes = {.lock = PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t turn = 1; /* of the homes; changes whenever a context has ended */

bool flw_homes_serve(void)
{
    return (flw_settings.mode == FLW_MODE_CACHE || flw_settings.mode == FLW_MODE_STRICT) &&
           !flw_is_inside() && flw_life_state() != FLW_LIFE_DEAD && flw_real_ready();
}

void flw_homes_child(void)
{
    (void)pthread_mutex_init(&homes.lock, NULL);
    (void)pthread_mutex_init(&making, NULL);
    flw_captured_child();
    atomic_store(&flw_homes_hit, false);
}

/* ---- identities of contexts */

/* Return the id of a context, or (NULL) of the current one; the handle if the driver has no ids. */
static unsigned long long id_of(CUcontext context)
{
    const struct flw_driver *driver = &flw_real.driver;
    unsigned long long id = 0;
    if (driver->cuCtxGetId != NULL && atomic_load(&has_ids)) {
        CUresult result = flw_life_heed(driver->cuCtxGetId(context, &id));
        if (result != CUDA_ERROR_NOT_SUPPORTED) {
            return result == CUDA_SUCCESS ? id + 1 : 0;
        }
    }
    atomic_store(&has_ids, false);
    if (context == NULL && driver->cuCtxGetCurrent(&context) != CUDA_SUCCESS) {
        return 0;
    }
    return (unsigned long long)(uintptr_t)context;
}

unsigned long long flw_home_id_here(void)
{
    return id_of(NULL);
}

/* ---- the list */

/* Enter the home with this id; NULL: none. Lock held. */
static struct flw_home *enter_by_id(unsigned long long id)
{
    for (uint32_t i = 0; i < homes.end; i++) {
        struct flw_home *home = &homes.list[i];
        if (home->id == id && !atomic_load(&home->is_ending)) {
            atomic_fetch_add(&home->users, 1);
            return home;
        }
    }
    return NULL;
}

void flw_home_leave(struct flw_home *home)
{
    atomic_fetch_sub(&home->users, 1);
}

/* Return the next home after *cursor (begin with 0). */
static struct flw_home *enter_next(uint32_t *cursor)
{
    struct flw_home *home = NULL;
    (void)pthread_mutex_lock(&homes.lock);
    while (home == NULL && *cursor < homes.end) {
        struct flw_home *at = &homes.list[(*cursor)++];
        if (at->id != 0 && !atomic_load(&at->is_ending)) {
            atomic_fetch_add(&at->users, 1);
            home = at;
        }
    }
    (void)pthread_mutex_unlock(&homes.lock);
    return home;
}

struct flw_home *flw_home_enter_of(CUdeviceptr address)
{
    struct flw_home *home = NULL;
    (void)pthread_mutex_lock(&homes.lock);
    for (uint32_t i = 0; i < homes.end && home == NULL; i++) {
        struct flw_pool *pool = atomic_load(&homes.list[i].pool);
        if (pool != NULL && !atomic_load(&homes.list[i].is_ending) &&
            flw_epoch_owns(pool, address)) {
            home = &homes.list[i];
            atomic_fetch_add(&home->users, 1);
        }
    }
    (void)pthread_mutex_unlock(&homes.lock);
    return home;
}

/* ---- the end of a context */

/* Let no more threads enter; those inside leave. Changes under the lock: a thread that found the
 * home open under the lock is inside by then. */
static void close_home(struct flw_home *home)
{
    (void)pthread_mutex_lock(&homes.lock);
    atomic_store(&home->is_ending, true);
    (void)pthread_mutex_unlock(&homes.lock);
    struct flw_backoff backoff = {0};
    while (atomic_load(&home->users) != 0) {
        flw_backoff_wait(&backoff);
    }
}

/* It has no pool and no events. `making` held. */
static void forget_green(struct flw_home *home)
{
    close_home(home);
    (void)pthread_mutex_lock(&homes.lock);
    home->id = 0;
    (void)pthread_mutex_unlock(&homes.lock);
    atomic_store(&home->is_ending, false);
    atomic_fetch_add(&turn, 1);
}

void flw_homes_forget_green(CUcontext context)
{
    for (uint32_t i = 0; i < homes.end; i++) {
        struct flw_home *home = &homes.list[i];
        if (home->id != 0 && home->main_id != 0 && home->context == context) {
            forget_green(home);
        }
    }
}

/* Forget the green contexts of a primary context that has ended; they end with it. */
static void forget_greens_of(const struct flw_home *main)
{
    for (uint32_t i = 0; i < homes.end; i++) {
        struct flw_home *home = &homes.list[i];
        if (home->id != 0 && home->main_id != 0 && home->main_id == main->id) {
            forget_green(home);
        }
    }
}

/* Forget a closed home, without a driver call: the memory ended with the context. `making` held. */
static void forget_home(struct flw_home *home)
{
    struct flw_pool *pool = atomic_load(&home->pool);
    if (pool != NULL) {
        flw_heap_lose_device(&pool->heap, CUDA_ERROR_CONTEXT_IS_DESTROYED,
                             "the end of its context");
        atomic_store(&home->pool, NULL);
        if (flw_homes_on_end != NULL) {
            flw_homes_on_end(pool);
        }
        fallow_pool_destroy(home->handle);
    }
    forget_greens_of(home);
    (void)pthread_mutex_lock(&homes.lock);
    home->handle = NULL;
    atomic_store(&home->is_refused, false);
    home->id = 0;
    (void)pthread_mutex_unlock(&homes.lock);
    flw_home_count(&flw_home_counts.contexts_ended);
    atomic_fetch_add(&turn, 1);
}

/* Let every other pool forget the context's events. Contexts locked. */
static void forget_events(CUcontext context)
{
    flw_contexts_drop(&flw_real.driver, context);
    for (uint32_t i = 0; i < homes.end; i++) {
        struct flw_pool *pool = atomic_load(&homes.list[i].pool);
        if (pool != NULL) {
            flw_heap_forget_context(&pool->heap, context);
        }
    }
}

struct flw_ending flw_homes_begin_end(CUcontext context, CUdevice device)
{
    struct flw_ending ending = {0};
    (void)pthread_mutex_lock(&making);
    flw_inside_enter();
    (void)pthread_mutex_lock(&homes.lock);
    for (uint32_t i = 0; i < homes.end && ending.home == NULL; i++) {
        struct flw_home *home = &homes.list[i];
        bool is_it =
            context != NULL ? home->context == context : home->is_primary && home->device == device;
        if (home->id != 0 && is_it) {
            ending.home = home;
        }
    }
    (void)pthread_mutex_unlock(&homes.lock);
    if (ending.home != NULL) {
        close_home(ending.home);
    }
    flw_contexts_lock();
    return ending;
}

void flw_homes_end(struct flw_ending ending, bool is_over)
{
    if (is_over && ending.home != NULL) {
        forget_events(ending.home->context);
    }
    flw_contexts_unlock();
    if (ending.home != NULL) {
        if (is_over) {
            forget_home(ending.home);
        }
        atomic_store(&ending.home->is_ending, false);
    }
    flw_inside_leave();
    (void)pthread_mutex_unlock(&making);
}

/* ---- creating homes */

/* Forget a context that ended unseen and had this handle. `making` held, a home entered. */
static void drop_stale(CUcontext context, unsigned long long id)
{
    for (uint32_t i = 0; i < homes.end; i++) {
        struct flw_home *home = &homes.list[i];
        if (home->id != 0 && home->id != id && home->context == context) {
            close_home(home);
            flw_contexts_lock();
            forget_events(context);
            flw_contexts_unlock();
            forget_home(home);
            atomic_store(&home->is_ending, false);
        }
    }
}

/* Return the primary context; NULL: not active, or unknown. */
static CUcontext primary_of(CUdevice device)
{
    const struct flw_driver *driver = &flw_real.driver;
    CUcontext primary = NULL;
    unsigned flags;
    int is_active = 0;
    if (driver->cuDevicePrimaryCtxGetState == NULL ||
        driver->cuDevicePrimaryCtxGetState(device, &flags, &is_active) != CUDA_SUCCESS ||
        !is_active || driver->cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS) {
        return NULL;
    }
    (void)driver->cuDevicePrimaryCtxRelease_v2(device); /* it was active and stays so */
    return primary;
}

/* Drivers before 12.4 have none. */
static bool is_green_current(void)
{
    const struct flw_driver *driver = &flw_real.driver;
    CUgreenCtx green = NULL;
    return driver->cuStreamGetGreenCtx != NULL &&
           driver->cuStreamGetGreenCtx(NULL, &green) == CUDA_SUCCESS && green != NULL;
}

/* Create a home and enter it; NULL: no place, or the driver does not answer. `making` held,
 * inside. */
static struct flw_home *add_home(CUcontext context, unsigned long long id)
{
    CUdevice device = 0;
    struct flw_driver_section section;
    const struct flw_driver *driver = &flw_real.driver;
    if (flw_section_open(&section, driver, context, FLW_SECTION_CONTEXT, NULL) != CUDA_SUCCESS) {
        return NULL;
    }
    CUresult result = driver->cuCtxGetDevice(&device);
    bool is_green = result == CUDA_SUCCESS && is_green_current();
    (void)flw_section_close(&section);
    if (result != CUDA_SUCCESS) {
        return NULL;
    }
    CUcontext primary = primary_of(device);
    unsigned long long main_id = is_green && primary != NULL ? id_of(primary) : 0;
    if (main_id == id) { /* one id for both: the primary context is known by it */
        main_id = 0;
        context = primary;
    }
    flw_life_use();
    if (main_id == 0) {
        (void)flw_contexts_add(driver, context);
    }
    (void)pthread_mutex_lock(&homes.lock);
    uint32_t place = 0;
    while (place < homes.end && homes.list[place].id != 0) {
        place++;
    }
    struct flw_home *home = NULL;
    if (place < FLW_HOMES_MAX) {
        home = &homes.list[place];
        home->context = context;
        home->device = device;
        home->is_primary = primary == context;
        home->main = main_id != 0 ? primary : NULL;
        home->main_id = main_id;
        home->id = id;
        atomic_fetch_add(&home->users, 1);
        if (place == homes.end) {
            homes.end = place + 1;
        }
    }
    (void)pthread_mutex_unlock(&homes.lock);
    return home;
}

static struct flw_home *enter_or_add(CUcontext context, unsigned long long id)
{
    (void)pthread_mutex_lock(&homes.lock);
    struct flw_home *home = enter_by_id(id);
    (void)pthread_mutex_unlock(&homes.lock);
    if (home != NULL) {
        return home;
    }
    (void)pthread_mutex_lock(&making);
    flw_inside_enter();
    (void)pthread_mutex_lock(&homes.lock);
    home = enter_by_id(id);
    (void)pthread_mutex_unlock(&homes.lock);
    if (home == NULL) {
        drop_stale(context, id);
        home = add_home(context, id);
    }
    flw_inside_leave();
    (void)pthread_mutex_unlock(&making);
    return home;
}

static void say_error(void *context, fallow_log_level level, const char *line)
{
    (void)context;
    if (level == FALLOW_LOG_ERROR) {
        flw_say("%s", line);
    }
}

/* `making` held, inside. */
static void make_pool(struct flw_home *home)
{
    fallow_pool_config config;
    fallow_pool *handle = NULL;
    fallow_pool_config_init(&config);
    config.order = FALLOW_ORDER_CONTEXT;
    config.device = home->device;
    config.context = home->context;
    config.limit_bytes = flw_settings.limit_bytes;
    config.decay_ms = UINT32_MAX;    /* never polled */
    config.wait_ms = UINT32_MAX - 1; /* no limit: the driver's own free waits too */
    config.log = say_error;
    struct flw_pool_place place = {.driver = &flw_real.driver,
                                   .context_id = home->id,
                                   .dedicated_bytes =
                                       flw_settings.is_ipc ? 1 : flw_settings.large_bytes,
                                   .reserve_bytes = flw_settings.reserve_bytes};
    if (flw_pool_create(&config, &place, &handle) != FALLOW_OK) {
        atomic_store(&home->is_refused, true);
    } else {
        home->handle = handle;
        if (flw_homes_on_pool != NULL) {
            flw_homes_on_pool(handle, home->device);
        }
        atomic_store(&home->pool, flw_pool_of(handle));
        bool may_hit = flw_settings.poison < 0 && flw_settings.audit_prefix[0] == '\0' &&
                       atomic_load(&has_ids);
        atomic_store(&flw_homes_hit, may_hit && flw_settings.mode == FLW_MODE_CACHE);
    }
}

static bool lacks_pool(const struct flw_home *home)
{
    return atomic_load(&home->pool) == NULL && !atomic_load(&home->is_refused);
}

/* For a caller that has entered no home, since the holder of `making` may wait for all to leave.
 * NULL: the context has ended meanwhile. */
static struct flw_home *enter_with_pool(unsigned long long id)
{
    (void)pthread_mutex_lock(&making);
    flw_inside_enter();
    (void)pthread_mutex_lock(&homes.lock);
    struct flw_home *home = enter_by_id(id);
    (void)pthread_mutex_unlock(&homes.lock);
    if (home != NULL && lacks_pool(home)) {
        make_pool(home);
    }
    flw_inside_leave();
    (void)pthread_mutex_unlock(&making);
    return home;
}

struct flw_home *flw_home_enter_own(CUcontext context)
{
    unsigned long long id = id_of(context);
    if (id != 0 && context == NULL &&
        flw_life_heed(flw_real.driver.cuCtxGetCurrent(&context)) != CUDA_SUCCESS) {
        context = NULL;
    }
    return id == 0 || context == NULL ? NULL : enter_or_add(context, id);
}

struct flw_home *flw_home_enter(CUcontext context, bool wants_pool)
{
    struct flw_home *home = flw_home_enter_own(context);
    if (home != NULL && home->main_id != 0) {
        CUcontext main = home->main;
        unsigned long long main_id = home->main_id;
        flw_home_leave(home);
        home = enter_or_add(main, main_id);
    }
    if (home != NULL && wants_pool && lacks_pool(home)) {
        unsigned long long id = home->id;
        flw_home_leave(home);
        home = enter_with_pool(id);
    }
    if (home != NULL && wants_pool && atomic_load(&home->pool) == NULL) {
        flw_home_leave(home);
        return NULL;
    }
    return home;
}

/* The last few, since programs alternate between devices. */
#define SEEN 4

void flw_homes_learn(CUcontext context)
{
    static _Thread_local struct {
        CUcontext contexts[SEEN];
        uint64_t turn;
        unsigned next;
    } seen __attribute__((tls_model("initial-exec")));
    if (seen.turn != atomic_load(&turn)) {
        memset(seen.contexts, 0, sizeof seen.contexts);
        seen.turn = atomic_load(&turn);
    }
    for (unsigned i = 0; i < SEEN; i++) {
        if (context == NULL || seen.contexts[i] == context) {
            return;
        }
    }
    unsigned long long id = id_of(context);
    struct flw_home *home = id == 0 ? NULL : enter_or_add(context, id);
    if (home != NULL) {
        flw_home_leave(home);
        seen.contexts[seen.next++ % SEEN] = context;
    }
}

/* ---- all homes */

uint64_t flw_homes_trim(void)
{
    uint64_t bytes = 0;
    uint32_t cursor = 0;
    flw_inside_enter();
    for (struct flw_home *home; (home = enter_next(&cursor)) != NULL;) {
        struct flw_pool *pool = atomic_load(&home->pool);
        if (pool != NULL && !flw_heap_is_lost(&pool->heap)) {
            bytes += flw_epoch_trim(pool, UINT64_MAX);
        }
        flw_home_leave(home);
    }
    flw_inside_leave();
    return bytes;
}

uint64_t flw_homes_idle_bytes(CUdevice device)
{
    uint64_t bytes = 0;
    uint32_t cursor = 0;
    for (struct flw_home *home; (home = enter_next(&cursor)) != NULL;) {
        struct flw_pool *pool = atomic_load(&home->pool);
        if (pool != NULL && home->device == device && !flw_heap_is_lost(&pool->heap)) {
            uint64_t live = flw_pool_live(pool, NULL);
            uint64_t reserved = atomic_load(&pool->heap.reserved_bytes);
            bytes += reserved - flw_min(reserved, live);
        }
        flw_home_leave(home);
    }
    return bytes;
}
