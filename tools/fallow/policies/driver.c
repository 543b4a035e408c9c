/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policies of the driver itself. `driver`: every request is a cuMemAlloc, every free a cuMemFree, which
 * waits for the device: what a program without any caching allocator pays. `async`: the driver's own stream-ordered pool (cuMemAllocAsync, cuMemFreeAsync).
 * On the simulated device that pool is a model, and is called so.
 *   release_threshold=BYTES  keep so much; max, the policy's standard, keeps everything, 0 is the
 *                            driver's own. What is above and idle goes when the host waits for a
 *                            stream, an event or the device.
 *   sync_every=N             the host waits for the stream of every N-th request; 0: only where the
 *                            trace says that it did. Recordings of PyTorch do not say.
 */
#include "policies/policy.h"

#include "base/bits.h"

#include "common/replay_device.h"
#include "common/tool_host.h"
#include "policies/uses.h"

struct async {
    struct flw_uses uses; /* first, for flw_uses_announce */
    const struct flw_device *device;
    CUmemoryPool pool;
    CUevent event;
    uint64_t threshold_bytes, sync_every;
    uint64_t op_count, call_count, event_count;
};

enum {
    RELEASE_THRESHOLD,
    SYNC_EVERY
};

static const struct flw_policy_setting settings[] = {
    [RELEASE_THRESHOLD] = {.name = "release_threshold",
                           .kind = FLW_SETTING_BYTES,
                           .standard = UINT64_MAX},
    [SYNC_EVERY] = {.name = "sync_every", .kind = FLW_SETTING_COUNT, .most = 1000000000},
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
    flw_host_free(async);
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
    cuuint64_t threshold = async->threshold_bytes;
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
    async->device = setup->device;
    async->threshold_bytes = flw_policy_value(setup->policy, RELEASE_THRESHOLD);
    async->sync_every = flw_policy_value(setup->policy, SYNC_EVERY);
    flw_uses_init(&async->uses, setup->program);
    if (!prepare(async, message)) {
        finish(async);
        return NULL;
    }
    return async;
}

/* What gives idle memory above the threshold back. */
static bool synchronise(struct async *async, uint16_t stream)
{
    const struct flw_device *device = async->device;
    async->call_count++;
    return (stream == FLW_OP_EVERY_STREAM
                ? device->driver.cuCtxSynchronize()
                : device->driver.cuStreamSynchronize(device->streams[stream])) == CUDA_SUCCESS;
}

static bool synchronise_at_times(struct async *async, const struct flw_op *op)
{
    if (async->sync_every == 0 || ++async->op_count % async->sync_every != 0) {
        return true;
    }
    return synchronise(async, op->stream);
}

static void async_advance(void *self, const struct flw_op *op)
{
    if (op->kind == FLW_OP_SYNC) {
        (void)synchronise(self, op->stream);
    }
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
    return synchronise_at_times(async, op);
}

static bool async_free(void *self, const struct flw_op *op, uint64_t address)
{
    struct async *async = self;
    uint64_t event_count = 0;
    bool is_ordered =
        flw_uses_wait(&async->uses, async->device, async->event, op, op->stream, &event_count);
    async->event_count += event_count;
    async->call_count += 2 * event_count + 1;
    return is_ordered &&
           async->device->driver.cuMemFreeAsync(
               (CUdeviceptr)address, async->device->streams[op->stream]) == CUDA_SUCCESS &&
           synchronise_at_times(async, op);
}

static uint64_t block_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct async *async = self;
    (void)address;
    return flw_device_pool_block_bytes(async->device, op->size_bytes);
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct async *async = self;
    cuuint64_t high_bytes = 0;
    out->driver_call_count = async->call_count;
    out->event_count = async->event_count;
    out->deferred_bytes = 0; /* its stream waits for the others at the free */
    if (async->device->driver.cuMemPoolGetAttribute(async->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
                                                    &high_bytes) == CUDA_SUCCESS) {
        out->peak_reserved_bytes = high_bytes;
    }
}

const struct flw_policy flw_policy_async = {
    .name = "async",
    .summary = "the driver's stream-ordered pool",
    .sim_label = "async (model)",
    .allocates = true,
    .limits_by_device = true,
    .is_supported = is_supported,
    .create = create,
    .alloc = async_alloc,
    .free = async_free,
    .use = flw_uses_announce,
    .advance = async_advance,
    .block_bytes = block_bytes,
    .get_statistics = get_statistics,
    .finish = finish,
    .settings = settings,
    .setting_count = sizeof settings / sizeof *settings,
};

/* ---- without a pool */

struct plain {
    const struct flw_device *device;
    uint64_t requested_bytes, peak_requested_bytes;
    uint64_t alloc_count, call_count;
};

static void *plain_create(const struct flw_policy_setup *setup, char *message)
{
    struct plain *plain = flw_host_alloc(1, sizeof *plain);
    message[0] = '\0';
    plain->device = setup->device;
    return plain;
}

static bool plain_alloc(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct plain *plain = self;
    CUdeviceptr pointer = 0;
    plain->call_count++;
    if (plain->device->driver.cuMemAlloc_v2(&pointer, op->size_bytes) != CUDA_SUCCESS) {
        return false;
    }
    plain->alloc_count++;
    plain->requested_bytes += op->size_bytes;
    plain->peak_requested_bytes = flw_max(plain->peak_requested_bytes, plain->requested_bytes);
    *out_address = pointer;
    return true;
}

static bool plain_free(void *self, const struct flw_op *op, uint64_t address)
{
    struct plain *plain = self;
    plain->call_count++;
    plain->requested_bytes -= op->size_bytes;
    return plain->device->driver.cuMemFree_v2((CUdeviceptr)address) == CUDA_SUCCESS;
}

static uint64_t plain_block_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct plain *plain = self;
    (void)address;
    return flw_device_allocation_bytes(plain->device, op->size_bytes);
}

static void plain_get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct plain *plain = self;
    out->peak_reserved_bytes = plain->peak_requested_bytes;
    out->driver_call_count = plain->call_count;
    out->grow_count = plain->alloc_count;
    out->event_count = 0;
    out->split_count = out->merge_count = 0;
    out->deferred_bytes = 0;
}

static void plain_finish(void *self)
{
    flw_host_free(self);
}

const struct flw_policy flw_policy_driver = {
    .name = "driver",
    .summary = "a driver call for every request, no cache",
    .allocates = true,
    .limits_by_device = true,
    .create = plain_create,
    .alloc = plain_alloc,
    .free = plain_free,
    .block_bytes = plain_block_bytes,
    .get_statistics = plain_get_statistics,
    .finish = plain_finish,
};
