/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include "driver/driver.h"

#include "fallow/simcuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* A bench measures the host, and the pool must find its fences complete: nothing is given to the
 * device but what `deferred` holds a stream back with, which is done once it is waited for. */
static bool reset_sim(struct flw_driver *driver, char *message)
{
    flw_sim_reset_function reset = NULL;
    void *address = dlsym(driver->object, "flw_sim_reset");
    memcpy(&reset, &address, sizeof reset);
    if (reset == NULL) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES,
                 "the simulated driver lacks flw_sim_reset: rebuild libfallow-simcuda.so");
        return false;
    }
    flw_sim_config config = {.struct_size = sizeof config,
                             .seed = 1,
                             .schedule = FLW_SIM_CLOCK,
                             .lag_ns = 1,
                             .mild = FLW_SIM_MILD_QUEUE_DEPTH | FLW_SIM_MILD_GARBAGE};
    reset(&config);
    return true;
}

static bool check(struct flw_bench_bed *bed, CUresult result, const char *call, char *message)
{
    if (result != CUDA_SUCCESS) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "%s failed with %s; `fallow doctor` says more",
                 call, flw_driver_error_name(bed->driver, result));
    }
    return result == CUDA_SUCCESS;
}

static bool open_device(struct flw_bench_bed *bed, const struct flw_bench_options *options,
                        char *message)
{
    bed->is_sim = options->device < 0;
    struct flw_driver *driver = flw_host_alloc(1, sizeof *driver);
    if (flw_driver_open(driver, bed->is_sim ? "sim" : NULL, message) != FALLOW_OK) {
        flw_host_free(driver);
        return false;
    }
    bed->driver = driver;
    if (bed->is_sim && !reset_sim(driver, message)) {
        return false;
    }
    CUdevice device = 0;
    CUcontext context = NULL;
    char name[96] = "";
    int ordinal = bed->is_sim ? 0 : options->device;
    if (!check(bed, driver->cuInit(0), "cuInit", message) || /* a new world wants it anew */
        !check(bed, driver->cuDeviceGet(&device, ordinal), "cuDeviceGet", message) ||
        !check(bed, driver->cuDeviceGetName(name, sizeof name, device), "cuDeviceGetName",
               message) ||
        !check(bed, driver->cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain",
               message)) {
        return false;
    }
    bed->context = context;
    snprintf(bed->device_name, sizeof bed->device_name, "%s%s",
             bed->is_sim && strstr(name, "simulated") == NULL ? "simulated device, " : "", name);
    return check(bed, driver->cuCtxSetCurrent(context), "cuCtxSetCurrent", message);
}

static bool make_streams(struct flw_bench_bed *bed, size_t count, char *message)
{
    bed->streams = flw_host_lines(count, sizeof *bed->streams);
    for (size_t i = 0; i < count; i++) {
        CUstream stream = NULL;
        if (bed->driver == NULL) { /* nothing looks at it */
            stream = (CUstream)(void *)&bed->streams[i];
        } else if (!check(bed, bed->driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING),
                          "cuStreamCreate", message)) {
            return false;
        }
        bed->streams[bed->stream_count++] = stream;
    }
    return true;
}

bool flw_bench_bed_open(struct flw_bench_bed *bed, const struct flw_bench_options *options,
                        char *message)
{
    *bed = (struct flw_bench_bed){.policy = options->policy};
    message[0] = '\0';
    snprintf(bed->device_name, sizeof bed->device_name, "no device");
    size_t streams = options->stream_count > options->thread_count ? options->stream_count
                                                                   : options->thread_count;
    if ((options->policy->needs_device && !open_device(bed, options, message)) ||
        !make_streams(bed, streams, message)) {
        goto fail;
    }
    bed->pool = options->policy->create(options, bed, message);
    if (bed->pool != NULL) {
        return true;
    }
fail:
    flw_bench_bed_close(bed);
    return false;
}

void flw_bench_bed_close(struct flw_bench_bed *bed)
{
    if (bed->pool != NULL) {
        bed->policy->destroy(bed->pool);
    }
    for (size_t i = 0; i < bed->stream_count && bed->driver != NULL; i++) {
        bed->driver->cuStreamDestroy_v2(bed->streams[i]);
    }
    flw_host_free(bed->streams);
    if (bed->context != NULL && bed->driver != NULL) {
        CUdevice device = 0;
        if (bed->driver->cuCtxGetDevice(&device) == CUDA_SUCCESS) {
            bed->driver->cuCtxSetCurrent(NULL);
            bed->driver->cuDevicePrimaryCtxRelease_v2(device);
        }
    }
    if (bed->driver != NULL) {
        flw_driver_close(bed->driver);
        flw_host_free(bed->driver);
    }
    *bed = (struct flw_bench_bed){.policy = bed->policy};
}
