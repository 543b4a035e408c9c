/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/live_contexts.h"

#include <pthread.h>
#include <string.h>

#include "base/backoff.h"
#include "heap/order/epoch.h"
#include "preload/captures.h"
#include "preload/inside.h"
#include "preload/life.h"
#include "preload/log.h"
#include "preload/real.h"
#include "preload/settings.h"

_Atomic bool flw_live_contexts_hit;
struct flw_live_context_counts flw_live_context_counts;
void (*flw_live_contexts_on_pool)(fallow_pool *pool, CUdevice device);
void (*flw_live_contexts_on_end)(struct flw_pool *pool);

static _Atomic bool has_ids = true; /* the driver supports cuCtxGetId */
static struct {
    pthread_mutex_t lock;
    struct flw_live_context list[FLW_HOMES_MAX];
    _Atomic uint32_t end;
} live_contexts = {.lock = PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t turn = 1; /* of the records; changes whenever a context has ended */

bool flw_live_contexts_serve(void)
{
    return (flw_settings.mode == FLW_MODE_CACHE || flw_settings.mode == FLW_MODE_STRICT) &&
           !flw_is_inside() && flw_life_state() != FLW_LIFE_DEAD && flw_real_ready();
}

void flw_live_contexts_child(void)
{
    (void)pthread_mutex_init(&live_contexts.lock, NULL);
    (void)pthread_mutex_init(&making, NULL);
    flw_captured_child();
    atomic_store(&flw_live_contexts_hit, false);
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

unsigned long long flw_live_context_id_here(void)
{
    return id_of(NULL);
}

/* ---- the list */

/* Enter the record with this id; NULL: none. Lock held. */
static struct flw_live_context *enter_by_id(unsigned long long id)
{
    for (uint32_t i = 0; i < live_contexts.end; i++) {
        struct flw_live_context *live = &live_contexts.list[i];
        if (live->id == id && !atomic_load(&live->is_ending)) {
            atomic_fetch_add(&live->users, 1);
            return live;
        }
    }
    return NULL;
}

void flw_live_context_leave(struct flw_live_context *live)
{
    atomic_fetch_sub(&live->users, 1);
}

/* Return the next record after *cursor (begin with 0). */
static struct flw_live_context *enter_next(uint32_t *cursor)
{
    struct flw_live_context *live = NULL;
    (void)pthread_mutex_lock(&live_contexts.lock);
    while (live == NULL && *cursor < live_contexts.end) {
        struct flw_live_context *at = &live_contexts.list[(*cursor)++];
        if (at->id != 0 && !atomic_load(&at->is_ending)) {
            atomic_fetch_add(&at->users, 1);
            live = at;
        }
    }
    (void)pthread_mutex_unlock(&live_contexts.lock);
    return live;
}

struct flw_live_context *flw_live_context_enter_of(CUdeviceptr address)
{
    struct flw_live_context *live = NULL;
    (void)pthread_mutex_lock(&live_contexts.lock);
    for (uint32_t i = 0; i < live_contexts.end && live == NULL; i++) {
        struct flw_pool *pool = atomic_load(&live_contexts.list[i].pool);
        if (pool != NULL && !atomic_load(&live_contexts.list[i].is_ending) &&
            flw_epoch_owns(pool, address)) {
            live = &live_contexts.list[i];
            atomic_fetch_add(&live->users, 1);
        }
    }
    (void)pthread_mutex_unlock(&live_contexts.lock);
    return live;
}

/* ---- the end of a context */

/* Let no more threads enter; those inside leave. Changes under the lock: a thread that found the
 * record open under the lock is inside by then. */
static void close_home(struct flw_live_context *live)
{
    (void)pthread_mutex_lock(&live_contexts.lock);
    atomic_store(&live->is_ending, true);
    (void)pthread_mutex_unlock(&live_contexts.lock);
    struct flw_backoff backoff = {0};
    while (atomic_load(&live->users) != 0) {
        flw_backoff_wait(&backoff);
    }
}

/* It has no pool and no events. `making` held. */
static void forget_green(struct flw_live_context *live)
{
    close_home(live);
    (void)pthread_mutex_lock(&live_contexts.lock);
    live->id = 0;
    (void)pthread_mutex_unlock(&live_contexts.lock);
    atomic_store(&live->is_ending, false);
    atomic_fetch_add(&turn, 1);
}

void flw_live_contexts_forget_green(CUcontext context)
{
    for (uint32_t i = 0; i < live_contexts.end; i++) {
        struct flw_live_context *live = &live_contexts.list[i];
        if (live->id != 0 && live->main_id != 0 && live->context == context) {
            forget_green(live);
        }
    }
}

/* Forget the green contexts of an ended primary context. */
static void forget_greens_of(const struct flw_live_context *main)
{
    for (uint32_t i = 0; i < live_contexts.end; i++) {
        struct flw_live_context *live = &live_contexts.list[i];
        if (live->id != 0 && live->main_id != 0 && live->main_id == main->id) {
            forget_green(live);
        }
    }
}

/* Forget a closed record, without a driver call: the memory ended with the context. `making` held. */
static void forget_home(struct flw_live_context *live)
{
    struct flw_pool *pool = atomic_load(&live->pool);
    if (pool != NULL) {
        flw_heap_lose_device(&pool->heap, CUDA_ERROR_CONTEXT_IS_DESTROYED,
                             "the end of its context");
        atomic_store(&live->pool, NULL);
        if (flw_live_contexts_on_end != NULL) {
            flw_live_contexts_on_end(pool);
        }
        fallow_pool_destroy(live->handle);
    }
    forget_greens_of(live);
    (void)pthread_mutex_lock(&live_contexts.lock);
    live->handle = NULL;
    atomic_store(&live->is_refused, false);
    live->id = 0;
    (void)pthread_mutex_unlock(&live_contexts.lock);
    flw_live_context_count(&flw_live_context_counts.contexts_ended);
    atomic_fetch_add(&turn, 1);
}

/* Let every other pool forget the context's events. Contexts locked. */
static void forget_events(CUcontext context)
{
    flw_contexts_drop(&flw_real.driver, context);
    for (uint32_t i = 0; i < live_contexts.end; i++) {
        struct flw_pool *pool = atomic_load(&live_contexts.list[i].pool);
        if (pool != NULL) {
            flw_heap_forget_context(&pool->heap, context);
        }
    }
}

struct flw_ending flw_live_contexts_begin_end(CUcontext context, CUdevice device)
{
    struct flw_ending ending = {0};
    (void)pthread_mutex_lock(&making);
    flw_inside_enter();
    (void)pthread_mutex_lock(&live_contexts.lock);
    for (uint32_t i = 0; i < live_contexts.end && ending.live == NULL; i++) {
        struct flw_live_context *live = &live_contexts.list[i];
        bool is_it =
            context != NULL ? live->context == context : live->is_primary && live->device == device;
        if (live->id != 0 && is_it) {
            ending.live = live;
        }
    }
    (void)pthread_mutex_unlock(&live_contexts.lock);
    if (ending.live != NULL) {
        close_home(ending.live);
    }
    flw_contexts_lock();
    return ending;
}

void flw_live_contexts_end(struct flw_ending ending, bool is_over)
{
    if (is_over && ending.live != NULL) {
        forget_events(ending.live->context);
    }
    flw_contexts_unlock();
    if (ending.live != NULL) {
        if (is_over) {
            forget_home(ending.live);
        }
        atomic_store(&ending.live->is_ending, false);
    }
    flw_inside_leave();
    (void)pthread_mutex_unlock(&making);
}

/* ---- creating records */

/* Forget a context that ended unseen and had this handle. `making` held, a record entered. */
static void drop_stale(CUcontext context, unsigned long long id)
{
    for (uint32_t i = 0; i < live_contexts.end; i++) {
        struct flw_live_context *live = &live_contexts.list[i];
        if (live->id != 0 && live->id != id && live->context == context) {
            close_home(live);
            flw_contexts_lock();
            forget_events(context);
            flw_contexts_unlock();
            forget_home(live);
            atomic_store(&live->is_ending, false);
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

/* Create a record and enter it; NULL: no place, or the driver does not answer. `making` held,
 * inside. */
static struct flw_live_context *add_home(CUcontext context, unsigned long long id)
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
    if (main_id == id) { /* the id of the primary context */
        main_id = 0;
        context = primary;
    }
    flw_life_use();
    if (main_id == 0) {
        (void)flw_contexts_add(driver, context);
    }
    (void)pthread_mutex_lock(&live_contexts.lock);
    uint32_t place = 0;
    while (place < live_contexts.end && live_contexts.list[place].id != 0) {
        place++;
    }
    struct flw_live_context *live = NULL;
    if (place < FLW_HOMES_MAX) {
        live = &live_contexts.list[place];
        live->context = context;
        live->device = device;
        live->is_primary = primary == context;
        live->main = main_id != 0 ? primary : NULL;
        live->main_id = main_id;
        live->id = id;
        atomic_fetch_add(&live->users, 1);
        if (place == live_contexts.end) {
            live_contexts.end = place + 1;
        }
    }
    (void)pthread_mutex_unlock(&live_contexts.lock);
    return live;
}

static struct flw_live_context *enter_or_add(CUcontext context, unsigned long long id)
{
    (void)pthread_mutex_lock(&live_contexts.lock);
    struct flw_live_context *live = enter_by_id(id);
    (void)pthread_mutex_unlock(&live_contexts.lock);
    if (live != NULL) {
        return live;
    }
    (void)pthread_mutex_lock(&making);
    flw_inside_enter();
    (void)pthread_mutex_lock(&live_contexts.lock);
    live = enter_by_id(id);
    (void)pthread_mutex_unlock(&live_contexts.lock);
    if (live == NULL) {
        drop_stale(context, id);
        live = add_home(context, id);
    }
    flw_inside_leave();
    (void)pthread_mutex_unlock(&making);
    return live;
}

static void say_error(void *context, fallow_log_level level, const char *line)
{
    (void)context;
    if (level == FALLOW_LOG_ERROR) {
        flw_log_line("%s", line);
    }
}

/* `making` held, inside. */
static void make_pool(struct flw_live_context *live)
{
    fallow_pool_config config;
    fallow_pool *handle = NULL;
    fallow_pool_config_init(&config);
    config.order = FALLOW_ORDER_CONTEXT;
    config.device = live->device;
    config.context = live->context;
    config.limit_bytes = flw_settings.limit_bytes;
    config.decay_ms = UINT32_MAX;    /* never polled */
    config.wait_ms = UINT32_MAX - 1; /* no limit: the driver's own free waits too */
    config.log = say_error;
    struct flw_pool_place place = {.driver = &flw_real.driver,
                                   .context_id = live->id,
                                   .dedicated_bytes =
                                       flw_settings.is_ipc ? 1 : flw_settings.one_handle_bytes,
                                   .reserve_bytes = flw_settings.reserve_bytes};
    if (flw_pool_create(&config, &place, &handle) != FALLOW_OK) {
        atomic_store(&live->is_refused, true);
    } else {
        live->handle = handle;
        if (flw_live_contexts_on_pool != NULL) {
            flw_live_contexts_on_pool(handle, live->device);
        }
        atomic_store(&live->pool, flw_pool_of(handle));
        bool may_hit = flw_settings.poison < 0 && flw_settings.audit_prefix[0] == '\0' &&
                       atomic_load(&has_ids);
        atomic_store(&flw_live_contexts_hit, may_hit && flw_settings.mode == FLW_MODE_CACHE);
    }
}

static bool lacks_pool(const struct flw_live_context *live)
{
    return atomic_load(&live->pool) == NULL && !atomic_load(&live->is_refused);
}

/* For a caller that has entered no record, since the holder of `making` may wait for all to leave.
 * NULL: the context has ended meanwhile. */
static struct flw_live_context *enter_with_pool(unsigned long long id)
{
    (void)pthread_mutex_lock(&making);
    flw_inside_enter();
    (void)pthread_mutex_lock(&live_contexts.lock);
    struct flw_live_context *live = enter_by_id(id);
    (void)pthread_mutex_unlock(&live_contexts.lock);
    if (live != NULL && lacks_pool(live)) {
        make_pool(live);
    }
    flw_inside_leave();
    (void)pthread_mutex_unlock(&making);
    return live;
}

struct flw_live_context *flw_live_context_enter_own(CUcontext context)
{
    unsigned long long id = id_of(context);
    if (id != 0 && context == NULL &&
        flw_life_heed(flw_real.driver.cuCtxGetCurrent(&context)) != CUDA_SUCCESS) {
        context = NULL;
    }
    return id == 0 || context == NULL ? NULL : enter_or_add(context, id);
}

struct flw_live_context *flw_live_context_enter(CUcontext context, bool wants_pool)
{
    struct flw_live_context *live = flw_live_context_enter_own(context);
    if (live != NULL && live->main_id != 0) {
        CUcontext main = live->main;
        unsigned long long main_id = live->main_id;
        flw_live_context_leave(live);
        live = enter_or_add(main, main_id);
    }
    if (live != NULL && wants_pool && lacks_pool(live)) {
        unsigned long long id = live->id;
        flw_live_context_leave(live);
        live = enter_with_pool(id);
    }
    if (live != NULL && wants_pool && atomic_load(&live->pool) == NULL) {
        flw_live_context_leave(live);
        return NULL;
    }
    return live;
}

/* The last few, since programs alternate between devices. */
#define SEEN 4

void flw_live_contexts_learn(CUcontext context)
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
    struct flw_live_context *live = id == 0 ? NULL : enter_or_add(context, id);
    if (live != NULL) {
        flw_live_context_leave(live);
        seen.contexts[seen.next++ % SEEN] = context;
    }
}

/* ---- all records */

uint64_t flw_live_contexts_trim(void)
{
    uint64_t bytes = 0;
    uint32_t cursor = 0;
    flw_inside_enter();
    for (struct flw_live_context *live; (live = enter_next(&cursor)) != NULL;) {
        struct flw_pool *pool = atomic_load(&live->pool);
        if (pool != NULL && !flw_heap_is_lost(&pool->heap)) {
            bytes += flw_epoch_trim(pool, UINT64_MAX);
        }
        flw_live_context_leave(live);
    }
    flw_inside_leave();
    return bytes;
}

uint64_t flw_live_contexts_idle_bytes(CUdevice device)
{
    uint64_t bytes = 0;
    uint32_t cursor = 0;
    for (struct flw_live_context *live; (live = enter_next(&cursor)) != NULL;) {
        struct flw_pool *pool = atomic_load(&live->pool);
        if (pool != NULL && live->device == device && !flw_heap_is_lost(&pool->heap)) {
            uint64_t live_bytes = flw_pool_live(pool, NULL);
            uint64_t reserved = atomic_load(&pool->heap.reserved_bytes);
            bytes += reserved - flw_min(reserved, live_bytes);
        }
        flw_live_context_leave(live);
    }
    return bytes;
}
