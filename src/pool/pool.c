/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the begin and the end of a pool; the choice of features. */
#include "pool/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heap/order/epoch.h"
#include "heap/order/sync.h"
#include "pool/extensions/helper.h"
#include "pool/extensions/peer.h"
#include "pool/state/account.h"
#include "pool/state/extension.h"
#include "pool/state/refusal_log.h"
#include "pool/state/settings.h"
#include "pool/state/table.h"
#include "pool/streams/cache.h"
#include "pool/streams/capture.h"
#include "pool/streams/quiesce.h"

/* ---- features */

static fallow_status create_extensions(struct flw_pool *pool)
{
    fallow_status status = FALLOW_OK;
    for (unsigned i = 0; flw_features[i] != NULL && status == FALLOW_OK; i++) {
        if (flw_features[i]->create != NULL) {
            status = flw_features[i]->create(pool);
        }
    }
    return status;
}

static void finish_extensions(struct flw_pool *pool, bool is_lost)
{
    FLW_EACH_EXTENSION (pool, row, finish) {
        row->finish(pool, is_lost);
    }
}

static void forget_extensions(void)
{
    for (unsigned i = 0; flw_features[i] != NULL; i++) {
        if (flw_features[i]->forget_all != NULL) {
            flw_features[i]->forget_all();
        }
    }
}

/* ---- create */

static fallow_status check_peers(struct flw_pool *pool)
{
    fallow_status status = FALLOW_OK;
    for (size_t i = 0; status == FALLOW_OK && i < pool->config.peer_device_count; i++) {
        status = flw_pool_check_peer(pool, pool->config.peer_devices[i]);
    }
    return status;
}

static fallow_status find_device(struct flw_pool *pool)
{
    struct flw_driver *driver = &pool->driver;
    int count = 0;
    CUresult result = driver->cuDeviceGetCount(&count);
    if (result == CUDA_SUCCESS && pool->config.device >= count) {
        flw_pool_log(pool, FALLOW_LOG_ERROR, "device %d does not exist: this driver has %d",
                     pool->config.device, count);
        return FALLOW_NOT_FOUND;
    }
    if (result == CUDA_SUCCESS) {
        result = driver->cuDeviceGet(&pool->device, pool->config.device);
    }
    if (result == CUDA_SUCCESS) {
        fallow_status status = check_peers(pool);
        if (status != FALLOW_OK) {
            return status;
        }
    }
    if (result == CUDA_SUCCESS) {
        size_t bytes = 0;
        result = driver->cuDeviceTotalMem_v2(&bytes, pool->device);
        pool->device_bytes = bytes;
    }
    if (result == CUDA_SUCCESS && pool->config.context == NULL) {
        CUcontext context = NULL;
        result = driver->cuDevicePrimaryCtxRetain(&context, pool->device);
        pool->retains_primary = result == CUDA_SUCCESS;
        pool->config.context = context;
    }
    if (result != CUDA_SUCCESS) {
        flw_pool_log(pool, FALLOW_LOG_ERROR, "device %d cannot be used: %s", pool->config.device,
                     flw_driver_error_name(driver, result));
        return result == CUDA_ERROR_OUT_OF_MEMORY ? FALLOW_OUT_OF_MEMORY : FALLOW_DRIVER;
    }
    return FALLOW_OK;
}

static const struct flw_source_ops *source_of(const fallow_pool_config *config)
{
    bool has_segments =
        config->order == FALLOW_ORDER_CONTEXT || config->page_source == FALLOW_PAGES_SEGMENTS;
    return has_segments                                  ? &flw_source_slab
           : config->page_source == FALLOW_PAGES_HANDLES ? &flw_source_vmm
                                                         : NULL;
}

/* The least of the tried sizes without cost for recorded and generated workloads
 * (tests/README.md). */
#define ONE_HANDLE_BYTES FLW_GIB

static uint32_t dedicated_units(const fallow_pool_config *config)
{
    uint64_t bytes = config->one_handle_bytes == 0 ? ONE_HANDLE_BYTES : config->one_handle_bytes;
    return (uint32_t)flw_clamp(bytes >> FLW_UNIT_LOG2, (FLW_CLASS_MAX_BYTES >> FLW_UNIT_LOG2) + 1,
                               UINT32_MAX);
}

/* Return 0 if the preload library reports the end of contexts (place). */
static uint64_t own_context_id(struct flw_pool *pool, const struct flw_pool_place *place)
{
    unsigned long long id = 0;
    if (place != NULL || pool->heap.source.ops->remaps || pool->driver.cuCtxGetId == NULL) {
        return 0;
    }
    flw_heap_count_call(&pool->heap);
    return pool->driver.cuCtxGetId(pool->heap.context, &id) == CUDA_SUCCESS ? id : 0;
}

static fallow_status init_heap(struct flw_pool *pool, const struct flw_pool_place *place)
{
    bool is_context = pool->config.order == FALLOW_ORDER_CONTEXT;
    uint64_t device_bytes = pool->device_bytes;
    uint64_t limit = pool->config.limit_bytes == 0 ? device_bytes : pool->config.limit_bytes;
    struct flw_heap_config config = {.driver = &pool->driver,
                                     .context = pool->config.context,
                                     .device = pool->config.device,
                                     .device_bytes = device_bytes,
                                     .limit_bytes = flw_min(limit, device_bytes),
                                     .peers = pool->config.peer_devices,
                                     .peer_count = (uint32_t)pool->config.peer_device_count,
                                     .handle_types = pool->config.handle_types,
                                     .source = source_of(&pool->config),
                                     .is_context_order = is_context,
                                     .keeps_owners =
                                         pool->config.reuse_policy == FALLOW_REUSE_SAME_STREAM};
    fallow_status status = flw_heap_init(&pool->heap, &config);
    if (status != FALLOW_OK) {
        flw_pool_log_no_heap(pool, status);
        return status;
    }
    if (!flw_meta_reserve(&pool->side_records.meta,
                          flw_tables_side_record_bytes(pool->heap.table_shrink))) {
        flw_heap_finish(&pool->heap, false); /* first: the message reports the remaining space */
        flw_pool_log_no_tables(pool);
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    flw_pool_log_refusals(pool);
    if (pool->heap.table_shrink > 0) {
        flw_pool_log_small_tables(pool);
    }
    pool->heap.streams_may_die = pool->config.streams_may_die != 0;
    pool->heap.context_id = own_context_id(pool, place);
    if (!is_context) {
        pool->heap.dedicated_units = pool->heap.first_dedicated_units =
            dedicated_units(&pool->config);
    }
    return FALLOW_OK;
}

/* Without stream ids a new stream under an old handle looks like the old one. Call in a driver
 * section. */
static fallow_status check_identities(struct flw_pool *pool)
{
    unsigned long long id = 0;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (!flw_pool_asks_identity(pool)) {
        return FALLOW_OK;
    }
    if (pool->driver.cuStreamGetId != NULL) {
        flw_heap_count_call(&pool->heap);
        result = pool->driver.cuStreamGetId(NULL, &id);
    }
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        flw_pool_log(
            pool, FALLOW_LOG_ERROR,
            "streams_may_die needs cuStreamGetId, which this driver lacks: update the driver (12.0 or "
            "later), or retire streams and leave it 0");
        return FALLOW_NOT_SUPPORTED;
    }
    return FALLOW_OK;
}

static void release_context(struct flw_pool *pool)
{
    if (pool->retains_primary) {
        (void)pool->driver.cuDevicePrimaryCtxRelease_v2(pool->device);
    }
}

static struct flw_pool *new_pool(const fallow_pool_config *config)
{
    struct flw_pool *pool = aligned_alloc(FLW_LINE_PAIR, flw_align_up(sizeof *pool, FLW_LINE_PAIR));
    if (pool != NULL) {
        memset((void *)pool, 0, sizeof *pool);
        pool->config = *config;
        const char *driver = config->driver == NULL ? "" : config->driver;
        size_t length = strlen(driver), most = sizeof pool->driver_name - 1;
        snprintf(pool->driver_name, sizeof pool->driver_name, "%s",
                 driver + (length > most ? length - most : 0));
        flw_lock_init(&pool->seizing, FLW_RANK_SEIZE);
        flw_lock_init(&pool->lock, FLW_RANK_POOL);
        flw_lock_init(&pool->side_records.lock, FLW_RANK_USES);
        flw_lock_init(&pool->climbs.report_lock, FLW_RANK_META);
        flw_lock_init(&pool->sharing.lock, FLW_RANK_META);
        flw_lock_init(&pool->sleeper.lock, FLW_RANK_META);
    }
    return pool;
}

/* For a pool that callers reach by handle: no context id matches. */
#define NO_CONTEXT_ID UINT64_MAX

/* Let epochs of every pool cover this context from now on. */
static void join_contexts(struct flw_pool *pool, const struct flw_pool_place *place)
{
    if (flw_pool_has_epochs(pool)) {
        pool->context_id = NO_CONTEXT_ID;
        if (place != NULL) {
            pool->context_id = place->context_id;
            pool->reserve_bytes = place->reserve_bytes;
            pool->heap.dedicated_bytes = place->dedicated_bytes == 0
                                             ? FLW_DEDICATED_BYTES
                                             : flw_min(place->dedicated_bytes, FLW_DEDICATED_BYTES);
        }
        (void)flw_contexts_add(&pool->driver, pool->heap.context);
    }
}

static void leave_contexts(struct flw_pool *pool)
{
    if (flw_pool_has_epochs(pool)) {
        flw_contexts_remove(&pool->driver, pool->heap.context);
    }
}

static fallow_status resolve_config(struct flw_pool *pool)
{
    const char *what = flw_settings_resolve(&pool->config);
    if (what != NULL) {
        flw_pool_log(pool, FALLOW_LOG_ERROR, "invalid setting: %s", what);
        return FALLOW_INVALID_ARGUMENT;
    }
    return FALLOW_OK;
}

static fallow_status open_driver(struct flw_pool *pool, const struct flw_pool_place *place)
{
    char message[FLW_DRIVER_MESSAGE_BYTES] = "";
    if (place != NULL) {
        pool->driver = *place->driver;
        pool->driver.object = NULL; /* nothing to close */
        return FALLOW_OK;
    }
    fallow_status status = flw_driver_open(&pool->driver, pool->config.driver, message);
    if (status != FALLOW_OK) {
        flw_pool_log(pool, FALLOW_LOG_ERROR, "%s", message);
    }
    return status;
}

/* ---- fork
 *
 * In the child the driver is dead, other threads are gone, and locks that they held stay locked.
 * So the child has no pools: their handles are refused, their memory stays untouched, and the
 * locks of the process are created anew. */

/* The tables are kept on purpose: other threads may be inside, and waiting is not possible. The
 * chain keeps the tables reachable, so that leak checkers do not report a leak. */
static _Atomic(struct flw_pool *) abandoned_pools;

static void abandon(struct flw_pool *pool)
{
    flw_heap_lose_device(&pool->heap, CUDA_ERROR_DEINITIALIZED, "fallow_pool_abandon");
    atomic_store(&pool->helper.stops, true);
    FLW_EACH_EXTENSION (pool, row, orphan) {
        row->orphan(pool);
    }
    flw_pool_poison_all(pool);
    pool->next_abandoned = atomic_load_explicit(&abandoned_pools, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&abandoned_pools, &pool->next_abandoned, pool,
                                                  memory_order_release, memory_order_relaxed)) {
    }
}

static void forget_pool(struct flw_pool *pool, void *context)
{
    (void)context;
    flw_pool_table_drop(pool->handle);
    abandon(pool);
}

static void forget_pools(void)
{
    flw_lifecycle_renew_lock();
    flw_tcache_renew_lock();
    flw_epoch_renew_locks();
    flw_ctxsync_renew();
    flw_helpers_forget_all();
    flw_pool_table_each(forget_pool, NULL);
    flw_pool_table_forget();
    flw_captures_forget_all();
    forget_extensions();
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_pools);
}

/* Publish the pool, as the last step, since other threads may then use it. NULL: the table is
 * full. */
static fallow_pool *open_pool(struct flw_pool *pool, const struct flw_pool_place *place)
{
    const fallow_pool_config *config = &pool->config;
    __atomic_store_n(&flw_thread_on_exit, flw_pool_cache_exit, __ATOMIC_RELEASE);
    (void)flw_bin_table();
    pool->uses_membarrier = flw_asym_register();
    pool->divert_all =
        !pool->uses_membarrier || config->streams_may_die || flw_pool_front(pool) != NULL;
    static pthread_once_t forks_once = PTHREAD_ONCE_INIT;
    pthread_once(&forks_once, watch_forks);
    fallow_pool *handle = flw_pool_table_take();
    if (handle == NULL) {
        return NULL;
    }
    pool->handle = handle;
    join_contexts(pool, place);
    flw_pool_table_publish(pool);
    if (config->helper_thread && !flw_pool_start_helper(pool)) {
        flw_pool_log(pool, FALLOW_LOG_WARNING,
                     "the helper thread cannot be started: call fallow_pool_poll now and then, or "
                     "idle memory stays");
    }
    return handle;
}

/* Create the pool in a driver section. On failure nothing is left. */
static fallow_status make_pool(struct flw_pool *pool, const struct flw_pool_place *place,
                               fallow_pool **out_pool)
{
    fallow_status status = init_heap(pool, place);
    if (status != FALLOW_OK) {
        return status;
    }
    status = check_identities(pool);
    if (status == FALLOW_OK) {
        status = create_extensions(pool);
    }
    if (status == FALLOW_OK) {
        *out_pool = open_pool(pool, place);
        status = *out_pool != NULL ? FALLOW_OK : FALLOW_OUT_OF_HOST_MEMORY;
    }
    if (status != FALLOW_OK) {
        finish_extensions(pool, false);
        flw_heap_finish(&pool->heap, false);
        flw_meta_release(&pool->side_records.meta);
    }
    return status;
}

static fallow_status refuse_section(const struct flw_pool *pool, CUresult result,
                                    const struct flw_driver_section *section)
{
    flw_pool_log(pool, FALLOW_LOG_ERROR, "the context cannot be made current: %s answered %s",
                 section->refused, flw_driver_error_name(&pool->driver, result));
    return FALLOW_DRIVER;
}

static fallow_status make_in_context(struct flw_pool *pool, const struct flw_pool_place *place,
                                     fallow_pool **out_pool)
{
    struct flw_driver_section section;
    CUresult result =
        flw_section_open(&section, &pool->driver, pool->config.context, FLW_SECTION_BOTH, NULL);
    if (result != CUDA_SUCCESS) {
        return refuse_section(pool, result, &section);
    }
    fallow_status status = make_pool(pool, place, out_pool);
    (void)flw_section_close(&section);
    return status;
}

/* Creating or ending a context must not end another thread's capture either. */
static fallow_status make_on_device(struct flw_pool *pool, const struct flw_pool_place *place,
                                    fallow_pool **out_pool)
{
    struct flw_driver_section section;
    CUresult result = flw_section_open(&section, &pool->driver, NULL, FLW_SECTION_MODE, NULL);
    if (result != CUDA_SUCCESS) {
        return refuse_section(pool, result, &section);
    }
    fallow_status status = find_device(pool);
    if (status == FALLOW_OK) {
        status = make_in_context(pool, place, out_pool);
        if (status != FALLOW_OK) {
            release_context(pool);
        }
    }
    (void)flw_section_close(&section);
    return status;
}

fallow_status flw_pool_create(const fallow_pool_config *given, const struct flw_pool_place *place,
                              fallow_pool **out_pool)
{
    fallow_pool_config config = {0};
    if (out_pool == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_pool = NULL;
    if (given == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    fallow_status status = flw_struct_accept(&config, sizeof config, given);
    if (status != FALLOW_OK) {
        return status;
    }
    struct flw_pool *pool = new_pool(&config);
    if (pool == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    status = resolve_config(pool);
    if (status != FALLOW_OK) {
        goto fail_pool;
    }
    status = open_driver(pool, place);
    if (status != FALLOW_OK) {
        goto fail_pool;
    }
    status = make_on_device(pool, place, out_pool);
    if (status == FALLOW_OK) {
        return FALLOW_OK;
    }
    flw_driver_close(&pool->driver);
fail_pool:
    free(pool);
    return status;
}

fallow_status fallow_pool_create(const fallow_pool_config *given, fallow_pool **out_pool)
{
    return flw_pool_create(given, NULL, out_pool);
}

/* ---- the end */

static void report_leaks(struct flw_pool *pool)
{
    struct flw_pool_totals totals;
    uint64_t live = flw_pool_live(pool, &totals);
    /* After a device loss frees do nothing, so the frees since then are unknown. */
    if (totals.allocs != totals.frees && !flw_heap_is_lost(&pool->heap)) {
        flw_pool_log(pool, FALLOW_LOG_WARNING, "%llu blocks (%llu bytes) were never freed",
                     (unsigned long long)(totals.allocs - totals.frees), (unsigned long long)live);
    }
}

static bool enter_last(struct flw_pool *pool, struct flw_driver_section *section)
{
    bool is_inside = flw_heap_enter_driver(&pool->heap, section);
    return is_inside || flw_heap_enter_driver(&pool->heap, section);
}

void fallow_pool_destroy(fallow_pool *handle)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return;
    }
    flw_pool_stop_helper(pool);
    FLW_EACH_EXTENSION (pool, row, stop) {
        row->stop(pool);
    }
    report_leaks(pool);
    flw_pool_table_drop(handle);
    flw_pool_table_await(handle);
    flw_pool_detach_caches(pool);
    flw_captures_forget(pool);
    struct flw_driver_section around, section;
    bool is_around = /* the context may end here, which no capture notices */
        !flw_heap_is_lost(&pool->heap) &&
        flw_section_open(&around, &pool->driver, NULL, FLW_SECTION_MODE, NULL) == CUDA_SUCCESS;
    (void)flw_heap_has_context(&pool->heap);
    bool is_still = flw_pool_await_last(pool);
    leave_contexts(pool);
    bool is_lost = !is_still || !enter_last(pool, &section);
    if (is_lost && !flw_heap_is_lost(&pool->heap)) {
        flw_pool_log_unreleased(pool, atomic_load(&pool->heap.reserved_bytes));
    }
    finish_extensions(pool, is_lost);
    if (!is_lost) {
        uint64_t kept_bytes;
        if (!flw_heap_release_all(&pool->heap, &kept_bytes) && !flw_heap_is_lost(&pool->heap)) {
            flw_pool_log_unreleased(pool, kept_bytes);
        }
        flw_heap_leave_driver(&pool->heap, &section);
        release_context(pool);
    }
    if (is_around) {
        (void)flw_section_close(&around);
    }
    if (!is_lost) {
        flw_driver_close(&pool->driver);
    }
    flw_heap_finish(&pool->heap, true);
    flw_meta_release(&pool->side_records.meta);
    free(pool);
    flw_pool_table_free(handle);
}

void fallow_pool_abandon(fallow_pool *handle)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool != NULL) {
        flw_pool_table_drop(handle);
        flw_pool_table_free(handle);
        leave_contexts(pool);
        flw_captures_forget(pool);
        flw_pool_leave_helper(pool);
        abandon(pool);
    }
}

void *fallow_pool_context(fallow_pool *handle)
{
    const struct flw_pool *pool = flw_pool_of(handle);
    return pool == NULL ? NULL : pool->config.context;
}

void *fallow_pool_driver_entry(fallow_pool *handle, const char *symbol)
{
    const struct flw_pool *pool = flw_pool_of(handle);
    return pool == NULL || symbol == NULL ? NULL : flw_driver_entry(&pool->driver, symbol);
}
