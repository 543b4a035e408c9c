/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the policies of the driver itself. `driver`: every request is a cuMemAlloc and every free a cuMemFree, which
 * waits for the device, as in a program without a caching allocator. `async`: the driver's stream-ordered pool
 * (cuMemAllocAsync, cuMemFreeAsync), which the simulated device models.
 *   release_threshold=BYTES  keep this much when the host waits for a stream, an event or the device.
 *                            max (default): keep everything; 0: the driver's own default
 *   sync_every=N             the host waits for the stream of every N-th request. 0: only where the trace contains a
 *                            wait; recordings of PyTorch contain none
 */
#include "policies/policy.h"

#include "base/bits.h"

#include "common/replay_device.h"
#include "common/tool_host.h"

struct caller {
    const struct flw_device *device;
    const struct flw_program *program;
    CUmemoryPool pool; /* async */
    CUevent event;
    uint64_t sync_every, op_count;
    uint64_t call_count, event_count, alloc_count;
    uint64_t live_bytes, peak_bytes;
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

/* ---- driver ---- */

static void *create(const struct flw_policy_setup *setup, char *message)
{
    struct caller *caller = flw_host_alloc(1, sizeof *caller);
    message[0] = '\0';
    caller->device = setup->device;
    caller->program = setup->program;
    return caller;
}

static bool alloc(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct caller *caller = self;
    CUdeviceptr pointer = 0;
    caller->call_count++;
    if (caller->device->driver.cuMemAlloc_v2(&pointer, op->size_bytes) != CUDA_SUCCESS) {
        return false;
    }
    caller->alloc_count++;
    caller->live_bytes += op->size_bytes;
    caller->peak_bytes = flw_max(caller->peak_bytes, caller->live_bytes);
    *out_address = pointer;
    return true;
}

static bool give_back(void *self, const struct flw_op *op, uint64_t address)
{
    struct caller *caller = self;
    caller->call_count++;
    caller->live_bytes -= op->size_bytes;
    return caller->device->driver.cuMemFree_v2((CUdeviceptr)address) == CUDA_SUCCESS;
}

static uint64_t block_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct caller *caller = self;
    (void)address;
    return flw_device_allocation_bytes(caller->device, op->size_bytes);
}

static void get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct caller *caller = self;
    out->peak_reserved_bytes = caller->peak_bytes;
    out->driver_call_count = caller->call_count;
    out->grow_count = caller->alloc_count;
    out->event_count = out->split_count = out->merge_count = out->deferred_bytes = 0;
}

const struct flw_policy flw_policy_driver = {
    .name = "driver",
    .summary = "a driver call for every request, no cache",
    .allocates = true,
    .limits_by_device = true,
    .create = create,
    .alloc = alloc,
    .free = give_back,
    .block_bytes = block_bytes,
    .get_statistics = get_statistics,
    .finish = flw_host_free,
};

/* ---- async ---- */

static bool find_pool(const struct flw_driver *driver, CUmemoryPool *out_pool)
{
    CUdevice ordinal = 0;
    return driver->cuCtxGetDevice(&ordinal) == CUDA_SUCCESS &&
           driver->cuDeviceGetDefaultMemPool(out_pool, ordinal) == CUDA_SUCCESS;
}

static bool is_supported(const struct flw_device *device)
{
    const struct flw_driver *driver = &device->driver;
    CUmemoryPool pool = NULL;
    return driver->cuMemAllocAsync != NULL && driver->cuMemFreeAsync != NULL &&
           driver->cuDeviceGetDefaultMemPool != NULL && driver->cuMemPoolSetAttribute != NULL &&
           driver->cuMemPoolGetAttribute != NULL && driver->cuMemPoolTrimTo != NULL &&
           find_pool(driver, &pool);
}

static void async_finish(void *self)
{
    struct caller *caller = self;
    const struct flw_driver *driver = &caller->device->driver;
    if (caller->event != NULL) {
        driver->cuEventDestroy_v2(caller->event);
    }
    driver->cuCtxSynchronize();
    driver->cuMemPoolTrimTo(caller->pool, 0);
    flw_host_free(caller);
}

static void *async_create(const struct flw_policy_setup *setup, char *message)
{
    struct caller *caller = create(setup, message);
    const struct flw_driver *driver = &setup->device->driver;
    cuuint64_t threshold = flw_policy_value(setup->policy, RELEASE_THRESHOLD), zero = 0;
    caller->sync_every = flw_policy_value(setup->policy, SYNC_EVERY);
    (void)find_pool(driver, &caller->pool); /* it exists: the policy is supported */
    /* The high-water mark starts again; a driver may refuse that. */
    (void)driver->cuMemPoolSetAttribute(caller->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero);
    const char *call = "cuMemPoolSetAttribute";
    CUresult result =
        driver->cuMemPoolSetAttribute(caller->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    if (result == CUDA_SUCCESS) {
        call = "cuEventCreate";
        result = driver->cuEventCreate(&caller->event, CU_EVENT_DISABLE_TIMING);
    }
    if (result != CUDA_SUCCESS) {
        flw_device_say(setup->device, call, result, message);
        async_finish(caller);
        return NULL;
    }
    return caller;
}

/* A wait releases idle memory above the threshold. */
static bool synchronise(struct caller *caller, uint16_t stream)
{
    const struct flw_device *device = caller->device;
    caller->call_count++;
    return (stream == FLW_OP_EVERY_STREAM
                ? device->driver.cuCtxSynchronize()
                : device->driver.cuStreamSynchronize(device->streams[stream])) == CUDA_SUCCESS;
}

static bool synchronise_at_times(struct caller *caller, const struct flw_op *op)
{
    return caller->sync_every == 0 || ++caller->op_count % caller->sync_every != 0 ||
           synchronise(caller, op->stream);
}

static void async_advance(void *self, const struct flw_op *op)
{
    if (op->kind == FLW_OP_SYNC) {
        (void)synchronise(self, op->stream);
    }
}

static bool async_alloc(void *self, const struct flw_op *op, uint64_t *out_address)
{
    struct caller *caller = self;
    CUdeviceptr pointer = 0;
    caller->call_count++;
    if (caller->device->driver.cuMemAllocAsync(
            &pointer, op->size_bytes, caller->device->streams[op->stream]) != CUDA_SUCCESS) {
        return false;
    }
    *out_address = pointer;
    return synchronise_at_times(caller, op);
}

/* Make the freeing stream wait for every other stream that uses the block: cuMemFreeAsync knows one stream only. */
static bool wait_for_users(struct caller *caller, const struct flw_op *op)
{
    const struct flw_device *device = caller->device;
    uint64_t users = flw_program_users(caller->program, op->block, op->stream);
    bool is_ordered = true;
    for (uint16_t i = 0; users != 0 && is_ordered && i < device->stream_count; i++) {
        if ((users >> (i % 64) & 1) != 0 && i != op->stream) {
            caller->event_count++;
            caller->call_count += 2;
            is_ordered =
                device->driver.cuEventRecord(caller->event, device->streams[i]) == CUDA_SUCCESS &&
                device->driver.cuStreamWaitEvent(device->streams[op->stream], caller->event, 0) ==
                    CUDA_SUCCESS;
        }
    }
    return is_ordered;
}

static bool async_free(void *self, const struct flw_op *op, uint64_t address)
{
    struct caller *caller = self;
    bool is_ordered = wait_for_users(caller, op);
    caller->call_count++;
    return is_ordered &&
           caller->device->driver.cuMemFreeAsync(
               (CUdeviceptr)address, caller->device->streams[op->stream]) == CUDA_SUCCESS &&
           synchronise_at_times(caller, op);
}

static uint64_t async_block_bytes(void *self, const struct flw_op *op, uint64_t address)
{
    const struct caller *caller = self;
    (void)address;
    return flw_device_pool_block_bytes(caller->device, op->size_bytes);
}

static void async_get_statistics(void *self, struct flw_policy_statistics *out)
{
    const struct caller *caller = self;
    cuuint64_t high_bytes = 0;
    out->driver_call_count = caller->call_count;
    out->event_count = caller->event_count;
    out->deferred_bytes = 0; /* the freeing stream waits for the others */
    if (caller->device->driver.cuMemPoolGetAttribute(
            caller->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &high_bytes) == CUDA_SUCCESS) {
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
    .create = async_create,
    .alloc = async_alloc,
    .free = async_free,
    .advance = async_advance,
    .block_bytes = async_block_bytes,
    .get_statistics = async_get_statistics,
    .finish = async_finish,
    .settings = settings,
    .setting_count = sizeof settings / sizeof *settings,
};
