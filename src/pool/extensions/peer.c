/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the devices that may access the pool's memory, from the start and at run time. */
#include "pool/extensions/peer.h"

#include "fallow/share.h"
#include "pool/state/extension.h"
#include "pool/state/settings.h"
#include "pool/state/table.h"
#include "pool/streams/cache.h"

/* Query whether the existing device `peer` can access the pool's device. Drivers without the query
 * have no other device. */
static CUresult ask(struct flw_pool *pool, int peer, int *out_can)
{
    const struct flw_driver *driver = &pool->driver;
    CUdevice device;
    *out_can = 1;
    if (driver->cuDeviceCanAccessPeer == NULL) {
        return CUDA_SUCCESS;
    }
    CUresult result = driver->cuDeviceGet(&device, peer);
    return result == CUDA_SUCCESS ? driver->cuDeviceCanAccessPeer(out_can, device, pool->device)
                                  : result;
}

bool flw_pool_is_reached_by(struct flw_pool *pool, int peer)
{
    int can_access = 0;
    return pool->heap.source.ops->remaps && ask(pool, peer, &can_access) == CUDA_SUCCESS &&
           can_access != 0;
}

fallow_status flw_pool_check_peer(struct flw_pool *pool, int peer)
{
    const struct flw_driver *driver = &pool->driver;
    int count = 0, can_access = 1;
    CUresult result = driver->cuDeviceGetCount(&count);
    bool exists = result == CUDA_SUCCESS && peer >= 0 && peer < count;
    if (exists && peer != pool->config.device) {
        result = ask(pool, peer, &can_access);
    }
    if (result != CUDA_SUCCESS) {
        flw_pool_log(pool, FALLOW_LOG_ERROR, "cannot query peer device %d: %s", peer,
                     flw_driver_error_name(driver, result));
        return FALLOW_DRIVER;
    }
    if (!exists) {
        flw_pool_log(pool, FALLOW_LOG_ERROR, "peer device %d does not exist: this driver has %d",
                     peer, count);
        return FALLOW_NOT_FOUND;
    }
    if (peer == pool->config.device) {
        flw_pool_log(pool, FALLOW_LOG_ERROR,
                     "peer device %d is the pool's own: remove it from the peers", peer);
        return FALLOW_INVALID_ARGUMENT;
    }
    if (can_access == 0) {
        flw_pool_log(pool, FALLOW_LOG_ERROR, "peer device %d cannot access memory of device %d",
                     peer, pool->config.device);
        return FALLOW_NOT_SUPPORTED;
    }
    return FALLOW_OK;
}

/* Return the place in the list of devices with access, whose first is the pool's own. 0: not
 * listed. */
static uint32_t find(const struct flw_source *source, int device)
{
    for (uint32_t i = 1; i < source->access_count; i++) {
        if (source->access_devices[i] == device) {
            return i;
        }
    }
    return 0;
}

struct change {
    int device;
    bool is_allowed;
    bool *out_is_half; /* the driver also refused the undo */
};

static CUresult apply(struct flw_heap *heap, uint64_t address, uint64_t bytes, const void *context)
{
    const struct change *change = context;
    return heap->source.ops->set_peer(&heap->source, address, bytes, change->device,
                                      change->is_allowed);
}

/* A refusal leaves this range as changed. */
static CUresult undo(struct flw_heap *heap, uint64_t address, uint64_t bytes, const void *context)
{
    const struct change *change = context;
    CUresult result = heap->source.ops->set_peer(&heap->source, address, bytes, change->device,
                                                 !change->is_allowed);
    *change->out_is_half |= flw_heap_refuse(heap, result, "cuMemSetAccess") != FALLOW_OK;
    return CUDA_SUCCESS; /* continue with the next */
}

static void note(struct flw_source *source, const struct change *change)
{
    uint32_t place = find(source, change->device);
    if (change->is_allowed && place == 0) {
        source->access_devices[source->access_count++] = change->device;
    } else if (!change->is_allowed && place != 0) {
        source->access_devices[place] = source->access_devices[--source->access_count];
    }
}

static uint64_t bit_of(int device)
{
    return 1ull << (unsigned)device % 64;
}

/* The gate is held: nothing is mapped or unmapped meanwhile. */
static fallow_status change_all(struct flw_pool *pool, const struct change *change)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    if (!flw_heap_enter_driver(heap, &section)) {
        return flw_heap_not_entered(heap);
    }
    CUresult result = flw_heap_each_stretch(heap, apply, undo, change);
    if (result == CUDA_SUCCESS) {
        FLW_EACH_EXTENSION (pool, row, each_stretch) { /* imports are such memory */
            result = row->each_stretch(pool, apply, undo, change);
        }
        if (result != CUDA_SUCCESS) {
            (void)flw_heap_each_stretch(heap, undo, NULL, change);
        }
    }
    flw_heap_leave_driver(heap, &section);
    if (result == CUDA_SUCCESS) {
        note(&heap->source, change);
        pool->sharing.unsure_peers &= ~bit_of(change->device);
        return FALLOW_OK;
    }
    pool->sharing.unsure_peers |= *change->out_is_half ? bit_of(change->device) : 0;
    flw_pool_log(pool, FALLOW_LOG_ERROR, "access of device %d cannot be changed: %s%s",
                 change->device, flw_driver_error_name(&pool->driver, result),
                 *change->out_is_half
                     ? "; access to part of the memory has changed, since the driver also "
                       "refused to undo that: call again"
                     : "");
    fallow_status status = flw_heap_refuse(heap, result, "cuMemSetAccess");
    return flw_heap_is_lost(heap) ? FALLOW_DEVICE_LOST : status;
}

/* Change one peer, during this thread's turn; nothing to do if it is already so. */
static fallow_status change_peer(struct flw_pool *pool, const struct change *change)
{
    struct flw_source *source = &pool->heap.source;
    fallow_status status = FALLOW_OK;
    flw_gate_hold(&pool->gate);
    bool is_unsure = (pool->sharing.unsure_peers & bit_of(change->device)) != 0;
    if ((find(source, change->device) != 0) != change->is_allowed || is_unsure) {
        bool has_room = !change->is_allowed || source->access_count < FLW_SOURCE_DEVICES;
        status = has_room ? change_all(pool, change) : FALLOW_INVALID_ARGUMENT;
    }
    flw_gate_let_in(&pool->gate);
    return status;
}

static fallow_status change(fallow_pool *handle, const struct change *change)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (flw_heap_is_lost(&pool->heap)) {
        return FALLOW_DEVICE_LOST;
    }
    fallow_status status = flw_pool_check_peer(pool, change->device);
    if (status != FALLOW_OK) {
        return status;
    }
    if (!pool->heap.source.ops->remaps) {
        flw_pool_log(pool, FALLOW_LOG_ERROR,
                     "without virtual memory management peers are allowed by cuCtxEnablePeerAccess "
                     "only");
        return FALLOW_NOT_SUPPORTED;
    }
    if (!flw_gate_begin_turn(&pool->gate)) {
        return FALLOW_BUSY;
    }
    status = change_peer(pool, change);
    flw_gate_end_turn(&pool->gate);
    flw_pool_note_loss(pool);
    return status;
}

fallow_status fallow_pool_allow_peer(fallow_pool *pool, int device)
{
    bool is_half = false;
    return change(pool, &(struct change){device, true, &is_half});
}

fallow_status fallow_pool_deny_peer(fallow_pool *pool, int device)
{
    bool is_half = false;
    return change(pool, &(struct change){device, false, &is_half});
}
