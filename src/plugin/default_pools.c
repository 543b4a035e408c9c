/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/default_pools.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fallow/extend.h"
#include "fallow/share.h"
#include "pool/extensions/peer.h"
#include "pool/streams/uses.h"

#define LINES_MOST   16
#define DRIVER_BYTES 4096

static struct {
    pthread_mutex_t mutex;
    struct flw_plugin_device devices[FLW_PLUGIN_DEVICES];
    fallow_pool_config config; /* valid once has_config */
    bool has_config;
    char driver[DRIVER_BYTES]; /* config.driver points here */
    atomic_uint line_count;
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void flw_plugin_log(const char *format, ...)
{
    int saved = errno;
    char line[640];
    unsigned count = atomic_fetch_add(&all.line_count, 1);
    if (count <= LINES_MOST) {
        va_list arguments;
        va_start(arguments, format);
        int length = snprintf(line, sizeof line, "fallow: ");
        if (count == LINES_MOST) {
            length += snprintf(line + length, sizeof line - (size_t)length,
                               "%d lines are enough: the rest are left out", LINES_MOST);
        } else {
            length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
        }
        va_end(arguments);
        length = (int)flw_min((uint64_t)length, sizeof line - 2);
        line[length] = '\n';
        ssize_t written = write(STDERR_FILENO, line, (size_t)length + 1);
        (void)written; /* a failure cannot be reported */
    }
    errno = saved;
}

struct flw_plugin_device *flw_plugin_device_of(int device)
{
    return device < 0 || device >= FLW_PLUGIN_DEVICES ? NULL : &all.devices[device];
}

/* ---- begin and end */

/* The child has no pools, and the parent's are unknown to it. */
static void forget_all(void)
{
    pthread_mutex_init(&all.mutex, NULL);
    for (int i = 0; i < FLW_PLUGIN_DEVICES; i++) {
        struct flw_plugin_device *at = &all.devices[i];
        for (int order = 0; order < FLW_PLUGIN_ORDERS; order++) {
            if (atomic_exchange(&at->pools[order], NULL) != NULL) {
                atomic_store(&at->was_replaced, true);
            }
        }
        atomic_store(&at->open_ids, 0);
    }
    flw_graph_ids_forget();
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, forget_all);
}

static void log_errors(void *context, fallow_log_level level, const char *message)
{
    (void)context;
    if (level == FALLOW_LOG_ERROR) {
        flw_plugin_log("%s", message);
    }
}

/* The mutex is held. */
static const fallow_pool_config *settings(void)
{
    if (!all.has_config) {
        const char *text = secure_getenv("FALLOW_PLUGIN");
        fallow_pool_config_init(&all.config);
        if (text != NULL) {
            (void)flw_plugin_read_settings(text, &all.config, all.driver, sizeof all.driver);
        }
        all.has_config = true;
    }
    return &all.config;
}

/* Let a device access the memory of a pool, if it can. For segments the program must call
 * cuCtxEnablePeerAccess, as PyTorch does. Returns false if the driver refuses. The mutex is held. */
static bool allow_peer(int device, fallow_pool *handle, int peer)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL || !flw_pool_is_reached_by(pool, peer)) {
        return true;
    }
    fallow_status status = fallow_pool_allow_peer(handle, peer);
    if (status != FALLOW_OK) {
        flw_plugin_log(
            "device %d may not access memory of device %d: %s; fallow.allow_peer(%d, %d) "
            "tries again",
            peer, device, fallow_status_message(status), device, peer);
    }
    return status == FALLOW_OK;
}

/* Give the device of a new pool, and the devices of the other pools, access to each other's
 * memory. Pools that hold memory are first, so that a driver that refuses does so before the new
 * pool depends on the access. The mutex is held. */
static void meet_peers(int device, fallow_pool *made)
{
    for (int peer = 0; peer < FLW_PLUGIN_DEVICES; peer++) {
        bool has_pool = false, is_allowed = true;
        for (int order = 0; order < FLW_PLUGIN_ORDERS && peer != device; order++) {
            fallow_pool *pool = flw_plugin_pool_of(&all.devices[peer], (fallow_plugin_order)order);
            has_pool |= pool != NULL;
            is_allowed &=
                order == FALLOW_PLUGIN_CONTEXT || pool == NULL || allow_peer(peer, pool, device);
        }
        if (has_pool && is_allowed) {
            (void)allow_peer(device, made, peer);
        }
    }
}

/* The mutex is held. */
static fallow_status make_pool(int device, fallow_plugin_order order, fallow_pool **out_pool)
{
    static pthread_once_t forks_once = PTHREAD_ONCE_INIT;
    struct flw_plugin_device *at = &all.devices[device];
    fallow_pool_config config = *settings();
    pthread_once(&forks_once, watch_forks);
    config.device = device;
    if (at->limit_bytes != 0) {
        config.limit_bytes = at->limit_bytes;
    }
    if (config.log == NULL) {
        config.log = log_errors;
    }
    if (config.wait_ms == 0) { /* no limit, like the allocators that these pools replace */
        config.wait_ms = UINT32_MAX - 1;
    }
    if (order == FALLOW_PLUGIN_CONTEXT) { /* which cannot use these */
        config.order = FALLOW_ORDER_CONTEXT;
        config.reuse_policy = FALLOW_REUSE_WAIT;
        config.checks = 0;
        config.streams_may_die = 0;
        config.handle_types = 0;
        config.page_source = FALLOW_PAGES_AUTOMATIC;
    }
    fallow_status status = fallow_pool_create(&config, out_pool);
    if (status == FALLOW_OK) {
        flw_pool_of(*out_pool)->announce = flw_graph_ids_announce_to;
        meet_peers(device, *out_pool);
    }
    return status;
}

fallow_pool *flw_plugin_make(int device, fallow_plugin_order order, fallow_status *out_status)
{
    int saved = errno;
    struct flw_plugin_device *at = flw_plugin_device_of(device);
    fallow_pool *pool = NULL;
    if (at == NULL) {
        *out_status = FALLOW_INVALID_ARGUMENT;
        return NULL;
    }
    *out_status = FALLOW_OK;
    pthread_mutex_lock(&all.mutex);
    pool = flw_plugin_pool_of(at, order);
    if (pool == NULL) {
        *out_status = make_pool(device, order, &pool);
        atomic_store_explicit(&at->pools[order], pool, memory_order_release);
    }
    pthread_mutex_unlock(&all.mutex);
    errno = saved;
    return pool;
}

/* Remove the pool, unless another thread was faster. */
static void replace_lost(int device, fallow_plugin_order order, fallow_pool *pool)
{
    struct flw_plugin_device *at = flw_plugin_device_of(device);
    pthread_mutex_lock(&all.mutex);
    if (flw_plugin_pool_of(at, order) == pool) {
        atomic_store(&at->was_replaced, true);
        atomic_store_explicit(&at->pools[order], NULL, memory_order_release);
        fallow_pool_abandon(pool);
        if (order == FALLOW_PLUGIN_STREAM) {
            flw_graph_ids_lose(device);
        }
    }
    pthread_mutex_unlock(&all.mutex);
}

fallow_status fallow_plugin_configure(const fallow_pool_config *config)
{
    fallow_pool_config ours;
    if (config == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    fallow_status status = flw_struct_accept(&ours, sizeof ours, config);
    if (status != FALLOW_OK) {
        return status;
    }
    if (ours.peer_device_count != 0 || ours.context != NULL || ours.order != FALLOW_ORDER_STREAM) {
        return FALLOW_NOT_SUPPORTED;
    }
    if (ours.driver != NULL && strlen(ours.driver) >= sizeof all.driver) {
        return FALLOW_INVALID_ARGUMENT;
    }
    pthread_mutex_lock(&all.mutex);
    for (int i = 0; i < FLW_PLUGIN_DEVICES; i++) {
        for (int order = 0; order < FLW_PLUGIN_ORDERS; order++) {
            status = atomic_load(&all.devices[i].pools[order]) != NULL ? FALLOW_BUSY : status;
        }
    }
    if (status == FALLOW_OK) {
        if (ours.driver != NULL) {
            memmove(all.driver, ours.driver, strlen(ours.driver) + 1);
            ours.driver = all.driver;
        }
        ours.struct_size = sizeof ours;
        all.config = ours;
        all.has_config = true;
    }
    pthread_mutex_unlock(&all.mutex);
    return status;
}

fallow_status fallow_plugin_pool(int device, fallow_plugin_order order, int make,
                                 fallow_pool **out_pool)
{
    fallow_status status = FALLOW_NOT_FOUND;
    struct flw_plugin_device *at = flw_plugin_device_of(device);
    if (out_pool == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_pool = NULL;
    if (at == NULL || (unsigned)order >= FLW_PLUGIN_ORDERS) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_pool = flw_plugin_pool_of(at, order);
    if (*out_pool == NULL && make != 0) {
        *out_pool = flw_plugin_make(device, order, &status);
    }
    return *out_pool != NULL ? FALLOW_OK : status;
}

/* A driver opened for one query; a pool does not exist yet. */
static fallow_status ask_total(int device, uint64_t *out_bytes)
{
    struct flw_driver driver;
    char message[FLW_DRIVER_MESSAGE_BYTES];
    CUdevice handle;
    size_t bytes = 0;
    fallow_status status = flw_driver_open(&driver, settings()->driver, message);
    if (status != FALLOW_OK) {
        flw_plugin_log("%s", message);
        return status;
    }
    if (driver.cuDeviceGet(&handle, device) != CUDA_SUCCESS ||
        driver.cuDeviceTotalMem_v2(&bytes, handle) != CUDA_SUCCESS) {
        flw_plugin_log("device %d does not report its memory size", device);
        status = FALLOW_DRIVER;
    }
    flw_driver_close(&driver);
    *out_bytes = bytes;
    return status;
}

void fallow_torch_memory_fraction(double fraction, int device)
{
    struct flw_plugin_device *at = flw_plugin_device_of(device);
    uint64_t total = 0;
    if (at == NULL || !(fraction > 0 && fraction <= 1)) {
        flw_plugin_log("memory fraction %g of device %d is invalid: use a number above 0, at "
                       "most 1",
                       fraction, device);
        return;
    }
    pthread_mutex_lock(&all.mutex);
    if (ask_total(device, &total) == FALLOW_OK) {
        at->limit_bytes = flw_max(1, (uint64_t)(fraction * (double)total));
        for (int order = 0; order < FLW_PLUGIN_ORDERS; order++) {
            /* A lost pool is replaced by one with this limit. */
            (void)!fallow_pool_set_limit(flw_plugin_pool_of(at, order), at->limit_bytes);
        }
    }
    pthread_mutex_unlock(&all.mutex);
}

/* ---- allocate, free */

bool flw_plugin_any_captured(fallow_pool *handle)
{
    struct flw_driver_section section;
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL || !flw_heap_enter_driver(&pool->heap, &section)) {
        return false;
    }
    fallow_status status = flw_pool_ask_captures(pool);
    flw_heap_leave_driver(&pool->heap, &section);
    return status == FALLOW_CAPTURING;
}

bool flw_plugin_synchronize(fallow_pool *handle)
{
    struct flw_driver_section section;
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return true;
    }
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return flw_heap_is_lost(&pool->heap); /* a lost context accepts no allocation */
    }
    /* Graphs are launched on streams that the pool may never have seen. */
    fallow_status status = flw_pool_ask_captures(pool);
    status = status == FALLOW_OK ? flw_heap_sync_context(&pool->heap) : status;
    flw_heap_leave_driver(&pool->heap, &section);
    return status == FALLOW_OK || status == FALLOW_DEVICE_LOST;
}

#define TRIM_WAIT_MOST_MS 100u

/* As long as an allocation may wait, but no longer than a user of torch.cuda.empty_cache()
 * expects. */
static uint64_t trim_wait_ns(fallow_pool *handle)
{
    const struct flw_pool *pool = flw_pool_of(handle);
    uint32_t wait_ms = pool == NULL ? 0 : pool->config.wait_ms;
    return wait_ms == UINT32_MAX ? 0 : flw_min(wait_ms, TRIM_WAIT_MOST_MS) * 1000000ull;
}

void flw_plugin_trim(int device)
{
    int saved = errno;
    bool is_guarded = flw_graph_ids_guard();
    for (int i = 0; i < FLW_PLUGIN_DEVICES; i++) {
        if (device >= 0 && device != i) {
            continue;
        }
        flw_graph_ids_reap(i);
        for (int order = 0; order < FLW_PLUGIN_ORDERS; order++) {
            fallow_pool *pool = flw_plugin_pool_of(&all.devices[i], (fallow_plugin_order)order);
            if (pool != NULL && fallow_pool_trim(pool, 0, trim_wait_ns(pool), NULL) != FALLOW_OK) {
                continue; /* the rest is released later; the next allocation reports a loss */
            }
        }
    }
    if (is_guarded) {
        fallow_context_capture_end();
    }
    errno = saved;
}

/* Write the message of a refusal with this status. */
static void explain(int device, fallow_pool *pool, size_t size_bytes,
                    struct flw_plugin_refusal *refusal)
{
    fallow_stats stats;
    const char *call = "";
    char *text = refusal->text;
    size_t room = sizeof refusal->text;
    fallow_stats_init(&stats);
    if (pool == NULL) {
        snprintf(text, room, "no %zu bytes: device %d has no pool: %s", size_bytes, device,
                 fallow_status_message(refusal->status));
    } else if (refusal->status == FALLOW_CAPTURING) {
        snprintf(text, room,
                 "no %zu bytes on device %d: the stream is being captured and the functions for "
                 "graph memory are not set; call fallow.enable_torch()",
                 size_bytes, device);
    } else if (refusal->status == FALLOW_OUT_OF_MEMORY &&
               fallow_pool_get_stats(pool, &stats) == FALLOW_OK) {
        snprintf(
            text, room,
            "no %zu bytes on device %d: %llu are in use, %llu reserved, none could be released; fallow.report() lists their owners",
            size_bytes, device, (unsigned long long)stats.requested_bytes,
            (unsigned long long)stats.reserved_bytes);
    } else {
        int error = fallow_pool_last_driver_error(pool, &call);
        snprintf(text, room, "no %zu bytes on device %d: %s%s%s", size_bytes, device,
                 fallow_status_message(refusal->status),
                 error == 0 ? "" : "; last refused: ", error == 0 ? "" : call);
    }
}

void *flw_plugin_alloc(int device, fallow_plugin_order order, const fallow_request *request,
                       fallow_stream stream, fallow_status seen,
                       struct flw_plugin_refusal *out_refusal)
{
    void *ptr = NULL;
    fallow_status status = FALLOW_OK;
    fallow_pool *pool = flw_plugin_make(device, order, &status);
    for (int attempt = 0; pool != NULL && attempt < 2; attempt++) {
        status = attempt == 0 && seen != FALLOW_OK
                     ? seen
                     : fallow_alloc_request(pool, request, stream, &ptr);
        if (status == FALLOW_OK) {
            out_refusal->status = FALLOW_OK;
            return ptr;
        }
        if (status == FALLOW_DEVICE_LOST && attempt == 0) {
            replace_lost(device, order, pool);
            pool = flw_plugin_make(device, order, &status);
            if (pool != NULL && order == FALLOW_PLUGIN_STREAM &&
                atomic_load(&flw_plugin_device_of(device)->open_ids) != 0) {
                (void)flw_graph_ids_announce(device, stream,
                                             false); /* the new pool has no capture yet */
            }
        } else if (status == FALLOW_OUT_OF_MEMORY && attempt == 0) {
            flw_plugin_trim(device);
        } else {
            break;
        }
    }
    out_refusal->status = status;
    explain(device, pool, request->size_bytes, out_refusal);
    flw_plugin_log("%s", out_refusal->text);
    return NULL;
}

fallow_pool *flw_plugin_owner_of(const void *ptr, fallow_block *out_block)
{
    for (int device = 0; device < FLW_PLUGIN_DEVICES; device++) {
        for (int order = 0; order < FLW_PLUGIN_ORDERS; order++) {
            fallow_pool *pool =
                flw_plugin_pool_of(&all.devices[device], (fallow_plugin_order)order);
            fallow_block_init(out_block);
            if (pool != NULL && fallow_block_info(pool, ptr, out_block) == FALLOW_OK) {
                return pool;
            }
        }
    }
    return NULL;
}

/* Free a block that the pair's pool did not allocate. */
static fallow_status free_of_another(fallow_plugin_order order, void *ptr, fallow_stream stream)
{
    fallow_block block;
    fallow_status status = FALLOW_OK;
    fallow_pool *owner = flw_plugin_owner_of(ptr, &block);
    struct flw_pool *pool = flw_pool_of(owner);
    if (pool == NULL || block.base != ptr) {
        return FALLOW_INVALID_POINTER;
    }
    bool is_captured = flw_pool_has_epochs(pool) && order == FALLOW_PLUGIN_STREAM &&
                       flw_plugin_is_capturing(pool, stream);
    if (is_captured) {
        fallow_context_capture_begin();
    } else if (!flw_pool_has_epochs(pool) && order == FALLOW_PLUGIN_CONTEXT) {
        status = flw_uses_announce_context(pool, ptr);
    }
    status = status == FALLOW_OK ? fallow_free(owner, ptr, stream) : status;
    if (is_captured) {
        fallow_context_capture_end();
    }
    return status;
}

void flw_plugin_free(int device, fallow_plugin_order order, void *ptr, fallow_stream stream)
{
    struct flw_plugin_device *at = flw_plugin_device_of(device);
    fallow_pool *pool = at == NULL ? NULL : flw_plugin_pool_of(at, order);
    fallow_status status = FALLOW_INVALID_POINTER;
    if (ptr == NULL) {
        return;
    }
    if (pool != NULL) {
        status = fallow_free(pool, ptr, stream);
    }
    if (status == FALLOW_INVALID_POINTER) {
        status = free_of_another(order, ptr, stream);
    }
    if (status != FALLOW_OK && (at == NULL || !atomic_load(&at->was_replaced))) {
        flw_plugin_log("cannot free %p of device %d: %s", ptr, device,
                       fallow_status_message(status));
    }
}
