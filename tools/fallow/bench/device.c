/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void flw_bench_device_find(const struct flw_bench_device *device, const char *name,
                           void *out_function)
{
    void *address = dlsym(device->driver.object, name);
    memcpy(out_function, &address, sizeof address);
}

bool flw_bench_device_check(const struct flw_bench_device *device, CUresult result,
                            const char *call, char *message)
{
    if (result != CUDA_SUCCESS) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "%s failed with %s; `fallow doctor` says more",
                 call, flw_driver_error_name(&device->driver, result));
    }
    return result == CUDA_SUCCESS;
}

static bool reset(const struct flw_bench_device *device, const flw_sim_config *config,
                  char *message)
{
    flw_sim_reset_function reset_world = NULL;
    flw_bench_device_find(device, "flw_sim_reset", &reset_world);
    if (reset_world == NULL) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES,
                 "the simulated driver lacks flw_sim_reset: rebuild libfallow-simcuda.so");
        return false;
    }
    reset_world(config);
    return true;
}

bool flw_bench_device_open(struct flw_bench_device *device, int ordinal,
                           const flw_sim_config *config, char *message)
{
    *device = (struct flw_bench_device){.is_sim = ordinal < 0};
    device->has_driver =
        flw_driver_open(&device->driver, device->is_sim ? "sim" : NULL, message) == FALLOW_OK;
    device->is_simulated =
        device->has_driver && dlsym(device->driver.object, "flw_sim_reset") != NULL;
    return device->has_driver && (!device->is_sim || reset(device, config, message)) &&
           FLW_BENCH_CALL(device, message, cuInit, 0) && /* a new world wants it anew */
           FLW_BENCH_CALL(device, message, cuDeviceGet, &device->device,
                          device->is_sim ? 0 : ordinal) &&
           FLW_BENCH_CALL(device, message, cuDeviceGetName, device->name, (int)sizeof device->name,
                          device->device) &&
           FLW_BENCH_CALL(device, message, cuDevicePrimaryCtxRetain, &device->context,
                          device->device) &&
           FLW_BENCH_CALL(device, message, cuCtxSetCurrent, device->context);
}

void flw_bench_device_close(struct flw_bench_device *device)
{
    if (device->context != NULL) {
        device->driver.cuCtxSetCurrent(NULL);
        device->driver.cuDevicePrimaryCtxRelease_v2(device->device);
    }
    if (device->has_driver) {
        flw_driver_close(&device->driver);
    }
    *device = (struct flw_bench_device){.is_sim = device->is_sim};
}
