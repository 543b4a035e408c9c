/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: helpers of programs that examine a driver: the driver itself, real or simulated, with
 * device 0's primary context current; long work; timing of calls.
 * Does not: use the library. */
#ifndef FLW_TESTS_GPU_BED_H
#define FLW_TESTS_GPU_BED_H

#include <stdbool.h>
#include <stdint.h>

#include "support/sim.h"

#define MIB ((size_t)1 << 20)

struct bed {
    struct flw_sim sim; /* sim.cu is the driver, whichever */
    const struct flw_driver *cu;
    bool is_sim; /* also where the simulated driver has the real one's name */
    CUdevice device;
    CUcontext context;
    CUfunction spin;   /* a real device: a kernel that runs for a given time */
    CUdeviceptr words; /* the simulated device: destination of the stand-in */
    unsigned wrong_count;
};

/* The driver of `device`, a number or "sim". 0; 77: no such device, and why is on stderr. Ends the program
 * where the driver refuses a context. */
int bed_open(struct bed *bed, const char *device);

/* Give a stream work that lasts ms milliseconds; on the simulated device, until something waits. */
void bed_busy(struct bed *bed, CUstream stream, unsigned ms);

/* Return nanoseconds since some point: the host's clock, or the simulated driver's
 * modelled time. */
uint64_t bed_now_ns(const struct bed *bed);

/* Ends the program where the bed itself does not work. */
void bed_must(const struct bed *bed, CUresult result, const char *call);
#define MUST(call) bed_must(bed, bed->cu->call, #call)

/* "CUDA_ERROR_INVALID_VALUE" */
const char *bed_name(const struct bed *bed, CUresult result);

#endif
