/* SPDX-License-Identifier: Apache-2.0 */
#include "common/replay_device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

#include "common/tool_host.h"

#define SIM_STEP_BYTES 512ull        /* granularity of the simulated device below 1 MiB ... */
#define SIM_PAGE_BYTES (2 * FLW_MIB) /* ... and from 1 MiB on */
#define GPU_WORK_BYTES 4096          /* of a block: enough to order work, too few to measure */

static bool find(const struct flw_device *device, const char *symbol, void *out_function)
{
    void *address = dlsym(device->driver.object, symbol);
    memcpy(out_function, &address, sizeof address);
    return address != NULL;
}

static bool find_controls(struct flw_device *device)
{
    return find(device, "flw_sim_reset", &device->reset) &&
           find(device, "flw_sim_advance", &device->advance) &&
           find(device, "flw_sim_touch", &device->touch) &&
           find(device, "flw_sim_get_ledger", &device->get_ledger) &&
           find(device, "flw_sim_get_extents", &device->get_extents) &&
           find(device, "flw_sim_call_count", &device->call_count) &&
           find(device, "flw_sim_violation", &device->violation);
}

void flw_device_say(const struct flw_device *device, const char *call, CUresult result,
                    char *message)
{
    snprintf(message, FLW_DRIVER_MESSAGE_BYTES, "%s failed with %s on %s", call,
             flw_driver_error_name(&device->driver, result), device->name);
}

/* A sequence of driver calls up to the first that fails. */
struct steps {
    const char *call;
    CUresult result;
};

static bool step(struct steps *steps, const char *call, CUresult result)
{
    *steps = (struct steps){call, result};
    return result == CUDA_SUCCESS;
}

static bool open_gpu(struct flw_device *device, char *message)
{
    static const char call[] = "asking for the GPU's name and size";
    int count = 0;
    CUdevice handle = 0;
    size_t total_bytes = 0;
    struct steps steps;
    const struct flw_driver *driver = &device->driver;
    if (driver->cuDeviceGetCount(&count) != CUDA_SUCCESS || device->ordinal >= count) {
        snprintf(message, FLW_DRIVER_MESSAGE_BYTES,
                 "there is no GPU %d: the driver has %d; use --device sim for the simulated device",
                 device->ordinal, count);
        return false;
    }
    bool is_done = step(&steps, call, driver->cuDeviceGet(&handle, device->ordinal)) &&
                   step(&steps, call,
                        driver->cuDeviceGetName(device->name, (int)sizeof device->name, handle)) &&
                   step(&steps, call, driver->cuDeviceTotalMem_v2(&total_bytes, handle));
    device->device_bytes = total_bytes;
    if (!is_done) {
        flw_device_say(device, steps.call, steps.result, message);
    }
    return is_done;
}

bool flw_device_open(struct flw_device *device, int ordinal, char *message)
{
    *device = (struct flw_device){.ordinal = ordinal, .is_sim = ordinal == FLW_DEVICE_SIM};
    snprintf(device->name, sizeof device->name, "%s",
             device->is_sim ? "simulated device" : "the GPU");
    if (flw_driver_open(&device->driver, device->is_sim ? "sim" : NULL, message) != FALLOW_OK) {
        return false;
    }
    bool is_open = device->is_sim ? find_controls(device) : open_gpu(device, message);
    if (!is_open && device->is_sim) {
        snprintf(message, FLW_DRIVER_MESSAGE_BYTES,
                 "libfallow-simcuda.so lacks its controls: it is of another version; rebuild it");
    }
    if (!is_open) {
        flw_device_close(device);
    }
    return is_open;
}

void flw_device_close(struct flw_device *device)
{
    flw_driver_close(&device->driver);
}

static void reset_world(struct flw_device *device, const struct flw_device_world *world)
{
    struct flw_sim_config config = {
        .struct_size = sizeof config,
        .device_bytes = world->device_bytes,
        .schedule = FLW_SIM_CLOCK,
        .lag_ns = world->lag_units,
        .check = world->checks,
        .mild =
            FLW_SIM_MILD_QUEUE_DEPTH, /* work is pending for the lag, whatever the queue's length */
    };
    device->reset(&config);
    device->device_bytes = world->device_bytes;
}

/* Return all zeros on a GPU. */
static struct flw_sim_ledger read_ledger(const struct flw_device *device)
{
    struct flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    if (device->is_sim) {
        device->get_ledger(0, &ledger);
    }
    return ledger;
}

static CUresult make_order_events(struct flw_device *device)
{
    CUresult result = CUDA_SUCCESS;
    device->order_events = flw_host_alloc(device->stream_count, sizeof(CUevent));
    for (size_t i = 0; result == CUDA_SUCCESS && i < device->stream_count; i++) {
        result = device->driver.cuEventCreate(&device->order_events[i], CU_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_SUCCESS) { /* learn the cost of a call before counting begins */
        uint64_t before_ns = read_ledger(device).modelled_host_ns;
        result = flw_device_order(device, 0, 0) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
        device->order_call_ns = read_ledger(device).modelled_host_ns - before_ns;
    }
    atomic_store(&device->order_count, 0);
    atomic_store(&device->order_wait_units, 0);
    return result;
}

/* Return the calls of a kind since the world began. */
static uint64_t count_all(const struct flw_device *device, enum flw_device_call_kind kind)
{
    static const char *const names[FLW_DEVICE_CALL_KINDS][7] = {
        [FLW_DEVICE_RECORDS] = {"cuEventRecord"},
        [FLW_DEVICE_STREAM_WAITS] = {"cuStreamWaitEvent"},
        [FLW_DEVICE_FRAMES] = {"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxGetCurrent",
                               "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode",
                               "cuStreamGetCaptureInfo_v2"},
        [FLW_DEVICE_QUESTIONS] = {"cuStreamIsCapturing", "cuMemGetInfo_v2"},
        [FLW_DEVICE_QUERIES] = {"cuEventQuery", "cuStreamQuery"},
        [FLW_DEVICE_SYNCS] = {"cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize"}};
    uint64_t count = 0;
    for (const char *const *name = names[kind]; *name != NULL; name++) {
        count += device->call_count(*name);
    }
    return count;
}

static uint64_t count_calls(const struct flw_device *device, enum flw_device_call_kind kind)
{
    return count_all(device, kind) - device->first_calls[kind];
}

static void remember_start(struct flw_device *device)
{
    device->first = read_ledger(device);
    for (int kind = 0; device->is_sim && kind < FLW_DEVICE_CALL_KINDS; kind++) {
        device->first_calls[kind] = count_all(device, (enum flw_device_call_kind)kind);
    }
}

static CUresult get_handle(const struct flw_device *device, CUdevice *out)
{
    return device->driver.cuDeviceGet(out, device->is_sim ? 0 : device->ordinal);
}

static CUresult make_streams(struct flw_device *device, size_t count)
{
    const struct flw_driver *driver = &device->driver;
    CUresult result = CUDA_SUCCESS;
    device->streams = flw_host_alloc(count, sizeof(CUstream));
    device->stream_count = count;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) {
        result = driver->cuStreamCreate(&device->streams[i], CU_STREAM_NON_BLOCKING);
    }
    return result;
}

void flw_device_start_waits(struct flw_device *device)
{
    struct flw_sim_ledger ledger = read_ledger(device);
    device->first.host_wait_count = ledger.host_wait_count;
    device->first.host_wait_ns = ledger.host_wait_ns;
    if (device->is_sim) {
        device->first_calls[FLW_DEVICE_SYNCS] = count_all(device, FLW_DEVICE_SYNCS);
    }
}

bool flw_device_begin(struct flw_device *device, const struct flw_device_world *world,
                      char *message)
{
    const struct flw_driver *driver = &device->driver;
    CUdevice handle = 0;
    struct steps steps;
    if (device->is_sim) {
        reset_world(device, world);
    }
    device->has_work = world->lag_units != 0;
    device->has_clock = device->is_sim && device->has_work;
    bool is_done =
        step(&steps, "cuInit", driver->cuInit(0)) && /* of a fresh world */
        step(&steps, "cuDeviceGet", get_handle(device, &handle)) &&
        step(&steps, "cuDevicePrimaryCtxRetain",
             driver->cuDevicePrimaryCtxRetain(&device->context, handle)) &&
        step(&steps, "cuCtxSetCurrent", driver->cuCtxSetCurrent(device->context)) &&
        step(&steps, "cuStreamCreate", make_streams(device, world->stream_count)) &&
        (!world->crosses_streams || step(&steps, "cuEventCreate", make_order_events(device)));
    if (is_done) {
        remember_start(device);
    } else {
        flw_device_say(device, steps.call, steps.result, message);
        flw_device_end(device);
    }
    return is_done;
}

void flw_device_end(struct flw_device *device)
{
    const struct flw_driver *driver = &device->driver;
    CUdevice handle = 0;
    for (size_t i = 0; i < device->stream_count; i++) {
        if (device->order_events != NULL && device->order_events[i] != NULL) {
            driver->cuEventDestroy_v2(device->order_events[i]);
        }
        if (device->streams[i] != NULL) {
            driver->cuStreamDestroy_v2(device->streams[i]);
        }
    }
    flw_host_free(device->streams);
    flw_host_free(device->order_events);
    device->streams = NULL;
    device->order_events = NULL;
    device->stream_count = 0;
    if (device->context != NULL && get_handle(device, &handle) == CUDA_SUCCESS) {
        driver->cuCtxSetCurrent(NULL);
        driver->cuDevicePrimaryCtxRelease_v2(handle);
    }
    device->context = NULL;
}

bool flw_device_enter(const struct flw_device *device)
{
    return device->driver.cuCtxSetCurrent(device->context) == CUDA_SUCCESS;
}

bool flw_device_put_work(const struct flw_device *device, uint16_t stream, uint64_t address,
                         uint64_t size_bytes, bool is_write)
{
    if (device->is_sim) {
        struct flw_sim_range range = {
            .address = address, .bytes = size_bytes, .is_write = is_write};
        return device->touch(device->streams[stream], &range, 1) == 0;
    }
    uint64_t bytes = flw_min(size_bytes, GPU_WORK_BYTES);
    if (bytes < 4) {
        return device->driver.cuMemsetD8Async((CUdeviceptr)address, 0x5a, bytes,
                                              device->streams[stream]) == CUDA_SUCCESS;
    }
    return device->driver.cuMemsetD32Async((CUdeviceptr)address, 0x5a5a5a5au, bytes / 4,
                                           device->streams[stream]) == CUDA_SUCCESS;
}

bool flw_device_order(struct flw_device *device, uint16_t before, uint16_t after)
{
    const struct flw_driver *driver = &device->driver;
    CUevent event = device->order_events[after];
    uint64_t waited_ns = read_ledger(device).stream_wait_ns;
    atomic_fetch_add_explicit(&device->order_count, 1, memory_order_relaxed);
    bool is_done = driver->cuEventRecord(event, device->streams[before]) == CUDA_SUCCESS &&
                   driver->cuStreamWaitEvent(device->streams[after], event, 0) == CUDA_SUCCESS;
    atomic_fetch_add_explicit(&device->order_wait_units,
                              read_ledger(device).stream_wait_ns - waited_ns, memory_order_relaxed);
    return is_done;
}

uint64_t flw_device_allocation_bytes(const struct flw_device *device, uint64_t bytes)
{
    uint64_t step_bytes = bytes < FLW_MIB ? SIM_STEP_BYTES : SIM_PAGE_BYTES;
    return device->is_sim ? flw_align_up(bytes, step_bytes) : 0;
}

uint64_t flw_device_pool_block_bytes(const struct flw_device *device, uint64_t bytes)
{
    return device->is_sim ? flw_align_up(bytes, SIM_STEP_BYTES) : 0;
}

bool flw_device_finish_work(const struct flw_device *device)
{
    return device->driver.cuCtxSynchronize() == CUDA_SUCCESS;
}

void flw_device_leave_out(struct flw_device *device, const struct flw_device_account *since)
{
    struct flw_device_account now;
    flw_device_get_account(device, &now);
    device->first.call_count += now.driver_call_count - since->driver_call_count;
    device->first.modelled_host_ns += now.modelled_ns - since->modelled_ns;
}

void flw_device_get_account(const struct flw_device *device, struct flw_device_account *out)
{
    const struct flw_sim_ledger *first = &device->first;
    struct flw_sim_ledger ledger = read_ledger(device);
    uint64_t order_count = atomic_load(&device->order_count);
    uint64_t given_bytes = ledger.total_given_bytes - first->total_given_bytes;
    *out = (struct flw_device_account){
        .peak_reserved_bytes = ledger.peak_given_bytes - first->given_bytes,
        .reserved_bytes = ledger.given_bytes - first->given_bytes,
        .given_bytes = given_bytes,
        .returned_bytes = given_bytes - (ledger.given_bytes - first->given_bytes),
        .driver_call_count = ledger.call_count - first->call_count - 2 * order_count -
                             count_calls(device, FLW_DEVICE_QUESTIONS),
        .frame_call_count = count_calls(device, FLW_DEVICE_FRAMES),
        .modelled_ns =
            ledger.modelled_host_ns - first->modelled_host_ns - order_count * device->order_call_ns,
        .event_count = count_calls(device, FLW_DEVICE_RECORDS) - order_count,
        .stream_wait_count = count_calls(device, FLW_DEVICE_STREAM_WAITS) - order_count,
        .stream_wait_units =
            ledger.stream_wait_ns - first->stream_wait_ns - atomic_load(&device->order_wait_units),
        .host_wait_count = ledger.host_wait_count - first->host_wait_count,
        .host_wait_units = ledger.host_wait_ns - first->host_wait_ns,
        .query_count = count_calls(device, FLW_DEVICE_QUERIES),
        .sync_call_count = count_calls(device, FLW_DEVICE_SYNCS),
        .violation_count = ledger.violation_count,
    };
}
