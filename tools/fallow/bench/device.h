/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the device that a bench runs on: its driver, its context, on the simulated one a fresh world.
 */
#ifndef FLW_TOOL_BENCH_DEVICE_H
#define FLW_TOOL_BENCH_DEVICE_H

#include <stdbool.h>

#include "driver/driver.h"
#include "fallow/simcuda.h"

#define FLW_BENCH_MESSAGE_BYTES 320

struct flw_bench_device {
    struct flw_driver driver;
    CUdevice device;
    CUcontext context; /* current in the thread that opened it */
    bool has_driver;
    bool is_sim;       /* requested: simulate in a new world */
    bool is_simulated; /* true also for a simulated driver under the real driver's name */
    char name[96];     /* reported by the driver */
};

/* ordinal -1: simulated, in a world made with `config`. False: message says what failed; closing is
 * allowed. */
bool flw_bench_device_open(struct flw_bench_device *device, int ordinal,
                           const flw_sim_config *config, char *message);
void flw_bench_device_close(struct flw_bench_device *device);

/* A control of the simulated driver, as flw_sim_reset; NULL: it has none of that name. */
void flw_bench_device_find(const struct flw_bench_device *device, const char *name,
                           void *out_function);

/* False, and a message: the call failed. */
bool flw_bench_device_check(const struct flw_bench_device *device, CUresult result,
                            const char *call, char *message);
#define FLW_BENCH_CALL(device, message, call, ...) \
    flw_bench_device_check(device, (device)->driver.call(__VA_ARGS__), #call, message)

#endif
