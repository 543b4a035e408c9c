/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policy `async`: the driver's own stream-ordered pool (cuMemAllocAsync, cuMemFreeAsync),
 * told to keep what it has. On the simulated device that pool is a model, and is called so.
 */
#include "policy.h"

#include <stdio.h>

#include "replay_device.h"
#include "tool_host.h"
#include "uses.h"

struct async {
    const struct flw_device *device;
    CUmemoryPool pool;
    CUevent event;
    struct flw_uses uses;
    uint64_t call_count, event_count;
};

static void finish(void *self)
{
    struct async *async = self;
    const struct flw_driver *driver = &async->device->driver;
    if (async->event != NULL) {
        driver->cuEventDestroy_v2(async->event);
    }
    if (async->pool != NULL) {
        driver->cuCtxSynchronize();
        driver->cuMemPoolTrimTo(async->pool, 0);
    }
    flw_uses_finish(&async->uses);
    flw_host_free(async, 1, sizeof *async);
}

static bool is_supported(const struct flw_device *device)
{
    const struct flw_driver *driver = &device->driver;
    CUdevice ordinal = 0;
    CUmemoryPool pool = NULL;
    return driver->cuMemAllocAsync != NULL && driver->cuMemFreeAsync != NULL &&
           driver->cuDeviceGetDefaultMemPool != NULL && driver->cuMemPoolSetAttribute != NULL &&
           driver->cuMemPoolGetAttribute != NULL && driver->cuMemPoolTrimTo != NULL &&
           driver->cuCtxGetDevice(&ordinal) == CUDA_SUCCESS &&
           driver->cuDeviceGetDefaultMemPool(&pool, ordinal) == CUDA_SUCCESS;
}

static bool prepare(struct async *async, char *message)
{
    const struct flw_driver *driver = &async->device->driver;
    CUdevice device = 0;
    cuuint64_t threshold = UINT64_MAX;
    const char *call = "cuCtxGetDevice";
    CUresult result = driver->cuCtxGetDevice(&device);
    if (result == CUDA_SUCCESS) {
        call = "cuDeviceGetDefaultMemPool";
        result = driver->cuDeviceGetDefaultMemPool(&async->pool, device);
    }
    if (result == CUDA_SUCCESS) {
        call = "cuMemPoolSetAttribute";
        result = driver->cuMemPoolSetAttribute(async->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                               &threshold);
    }
    if (result == CUDA_SUCCESS) {
        cuuint64_t zero = 0; /* the high-water mark starts again; a driver may refuse that */
        (void)driver->cuMemPoolSetAttribute(async->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero);
        call = "cuEventCreate";
        result = driver->cuEventCreate(&async->event, CU_EVENT_DISABLE_TIMING);
    }
    if (result != CUDA_SUCCESS) {
        flw_device_say(async->device, call, result, message);
    }
    return result == CUDA_SUCCESS;
}

static void *create(const struct flw_policy_setup *setup, char *message)
{
    struct async *async = flw_host_alloc(1, sizeof *async);
    if (async == NULL) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES, "policy async: out of host memory");
        return NULL;
    }
    async->device = setup->device;
    if (!flw_uses_init(&async->uses, setup->program)) {
        snprintf(message, FLW_POLICY_MESSAGE_BYTES, "policy async: out of host memory");
        finish(async);
        return NULL;
    }
    if (!prepare(async, message)) {
        finish(async);
        return NULL;
    }
    return async;
}

static bool async_alloc(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct async *async = self;
    CUdeviceptr pointer = 0;
    async->call_count++;
    if (async->device->driver.cuMemAllocAsync(&pointer, op->size_bytes,
                                              async->device->streams[op->stream]) != CUDA_SUCCESS) {
        return false;
    }
    *out_address = pointer;
    return true;
}

/* The freeing stream waits for the other streams that used the block. */
static bool wait_for_users(struct async *async, const struct flw_op *op)
{
    const struct flw_device *device = async->device;
    uint64_t mask = flw_uses_get(&async->uses, op->block, op->stream);
    for (uint16_t i = 0; mask != 0 && i < device->stream_count; i++) {
        if ((mask >> (i % 64) & 1) == 0 || i == op->stream) {
            continue;
        }
        async->call_count += 2;
        async->event_count++;
        if (device->driver.cuEventRecord(async->event, device->streams[i]) != CUDA_SUCCESS ||
            device->driver.cuStreamWaitEvent(device->streams[op->stream], async->event, 0) !=
                CUDA_SUCCESS) {
            return false;
        }
    }
    return true;
}

static bool async_free(void *self, const struct flw_op *op, uint64_t address)
{
    struct async *async = self;
    async->call_count++;
    return wait_for_users(async, op) &&
           async->device->driver.cuMemFreeAsync((CUdeviceptr)address,
                                                async->device->streams[op->stream]) == CUDA_SUCCESS;
}

static bool async_use(void *self, const struct flw_op *op, uint64_t address)
{
    struct async *async = self;
    (void)address;
    flw_uses_add(&async->uses, op->block, op->stream);
    return true;
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct async *async = self;
    cuuint64_t high_bytes = 0;
    out->driver_call_count = async->call_count;
    out->event_count = async->event_count;
    if (async->device->driver.cuMemPoolGetAttribute(async->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
                                                    &high_bytes) == CUDA_SUCCESS) {
        out->peak_reserved_bytes = high_bytes;
    }
}

const struct flw_policy flw_policy_async = {
    .name = "async",
    .sim_label = "async (model)",
    .lends = true,
    .limits_by_device = true,
    .is_supported = is_supported,
    .create = create,
    .alloc = async_alloc,
    .free = async_free,
    .use = async_use,
    .get_statistics = get_statistics,
    .finish = finish,
};
