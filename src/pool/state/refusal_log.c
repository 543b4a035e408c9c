/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/state/refusal_log.h"

#include <stdio.h>
#include <string.h>

#include "pool/state/settings.h"

/* ---- refusals of the driver */

static const struct {
    fallow_log_level level;
    uint32_t type;
    const char *name, *consequence;
} refusals[FLW_REFUSED_COUNT] = {
    [FLW_REFUSED_FABRIC] = {FALLOW_LOG_INFO, FALLOW_HANDLE_FABRIC, "fabric handles",
                            "other nodes cannot map this memory; that needs an IMEX channel"},
    [FLW_REFUSED_FD] = {FALLOW_LOG_WARNING, FALLOW_HANDLE_FD, "handles with file descriptors",
                        "other processes cannot map this memory"},
    [FLW_REFUSED_RDMA] =
        {FALLOW_LOG_WARNING, 0, "handles for network adapters",
         "libraries that register memory with them may refuse this memory; page_source "
         "segments has neither"},
    [FLW_REFUSED_HANDLES] =
        {FALLOW_LOG_WARNING, 0, "virtual memory management",
         "memory is allocated in segments of cuMemAlloc, which move only as a whole, and "
         "do not sleep"},
};

/* Write "cuMemCreate answered CUDA_ERROR_NOT_PERMITTED"; false: it was not refused. */
static bool read_refusal(const struct flw_pool *pool, unsigned kind, char *text, size_t room)
{
    const struct flw_refusal *refusal = &pool->heap.source.refusals[kind];
    const char *call = atomic_load(&refusal->call);
    if (call != NULL) {
        snprintf(text, room, "%s answered %s", call,
                 flw_driver_error_name(&pool->driver, (CUresult)atomic_load(&refusal->answer)));
    }
    return call != NULL;
}

void flw_pool_log_refusals(struct flw_pool *pool)
{
    char text[128];
    bool remaps = pool->heap.source.ops->remaps;
    for (unsigned kind = 0; kind < FLW_REFUSED_COUNT; kind++) {
        if (remaps != (kind == FLW_REFUSED_HANDLES) &&
            read_refusal(pool, kind, text, sizeof text) &&
            (atomic_fetch_or(&pool->said_refusals, 1u << kind) & 1u << kind) == 0) {
            flw_pool_log(pool, refusals[kind].level, "no %s: %s: %s", refusals[kind].name, text,
                         refusals[kind].consequence);
        }
    }
}

#define SAID_REQUIRED (1u << FLW_REFUSED_COUNT)

void flw_pool_log_required(struct flw_pool *pool)
{
    const char *call = atomic_load(&pool->heap.last_call);
    if (pool->config.handle_types == 0 || call == NULL || strcmp(call, "cuMemCreate") != 0 ||
        (atomic_fetch_or(&pool->said_refusals, SAID_REQUIRED) & SAID_REQUIRED) != 0) {
        return;
    }
    flw_pool_log(
        pool, FALLOW_LOG_ERROR,
        "%s answered %s for a handle of the kinds in handle_types: remove the setting to accept "
        "other kinds",
        call, flw_driver_error_name(&pool->driver, (CUresult)atomic_load(&pool->heap.last_error)));
}

/* Log which required feature is missing, and what to do. */
static void log_unsupported(const struct flw_pool *pool)
{
    const fallow_pool_config *config = &pool->config;
    char text[128] = "the device or the driver lacks it";
    unsigned kind = FLW_REFUSED_FABRIC;
    while (kind < FLW_REFUSED_HANDLES && ((config->handle_types & refusals[kind].type) == 0 ||
                                          !read_refusal(pool, kind, text, sizeof text))) {
        kind++;
    }
    if (kind == FLW_REFUSED_HANDLES) {
        (void)read_refusal(pool, kind, text, sizeof text);
    }
    flw_pool_log(pool, FALLOW_LOG_ERROR, "the setting %s needs %s: %s: remove the setting",
                 config->handle_types != 0        ? "handle_types"
                 : config->peer_device_count != 0 ? "peer_devices"
                                                  : "page_source",
                 refusals[kind].name, text);
}

/* ---- failures of create */

#define MIB_OF(bytes) ((unsigned long long)((bytes) >> 20))

void flw_pool_log_no_tables(const struct flw_pool *pool)
{
    const struct flw_heap *heap = &pool->heap;
    uint64_t least = flw_tables_reserve_bytes(heap, FLW_TABLE_SHRINK_MAX);
    uint64_t allowance = flw_meta_allowance();
    if (allowance == UINT64_MAX) {
        flw_pool_log(
            pool, FALLOW_LOG_ERROR,
            "cannot create the pool: the host refused memory for its tables: check ulimit -d and vm.overcommit_memory");
    } else {
        flw_pool_log(pool, FALLOW_LOG_ERROR,
                     "cannot create the pool: its tables need at least %llu MiB of addresses, and "
                     "%llu MiB are left: lift the limit of the address space (ulimit -v unlimited)",
                     MIB_OF(least + FLW_MIB - 1), MIB_OF(allowance));
    }
}

void flw_pool_log_small_tables(const struct flw_pool *pool)
{
    const struct flw_heap *heap = &pool->heap;
    flw_pool_log(
        pool, FALLOW_LOG_WARNING,
        "the address space is limited: the pool's tables take %llu MiB of it, not %llu MiB, "
        "and have room for about %llu million blocks, allocated and free; a further block returns %s "
        "(ulimit -v unlimited lifts it)",
        MIB_OF(flw_tables_reserve_bytes(heap, heap->table_shrink)),
        MIB_OF(flw_tables_reserve_bytes(heap, 0)),
        MIB_OF(flw_page_map_slot_count(heap->table_shrink)),
        fallow_status_name(FALLOW_OUT_OF_HOST_MEMORY));
}

void flw_pool_log_no_heap(const struct flw_pool *pool, fallow_status status)
{
    if (status == FALLOW_NOT_SUPPORTED) {
        log_unsupported(pool);
        return;
    }
    int error = atomic_load(&pool->heap.last_error);
    const char *call = atomic_load(&pool->heap.last_call);
    if (error == 0 && status == FALLOW_OUT_OF_HOST_MEMORY) {
        flw_pool_log_no_tables(pool);
        return;
    }
    flw_pool_log(pool, FALLOW_LOG_ERROR, "the pool cannot be set up: %s%s%s",
                 error != 0 ? call : fallow_status_message(status), error == 0 ? "" : " answered ",
                 error == 0 ? "" : flw_driver_error_name(&pool->driver, (CUresult)error));
}

void flw_pool_log_unreleased(const struct flw_pool *pool, uint64_t bytes)
{
    const char *call = atomic_load(&pool->heap.last_call);
    flw_pool_log(
        pool, FALLOW_LOG_ERROR,
        "%llu bytes%s stay with the driver until the process ends: %s answered %s",
        (unsigned long long)bytes, bytes == 0 ? " of memory, but addresses or events," : "",
        call == NULL ? "a call" : call,
        flw_driver_error_name(&pool->driver, (CUresult)atomic_load(&pool->heap.last_error)));
}
