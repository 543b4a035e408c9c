/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of the simulated driver's tests: the driver, a world, helpers for the
 * calls. */
#ifndef FLW_TESTS_UNIT_TEST_SIMCUDA_H
#define FLW_TESTS_UNIT_TEST_SIMCUDA_H

#include "support/sim.h"
#include "support/test.h"

static struct flw_sim sim;

#define ASSERT_CU(call, expected) assert_int_equal((int)(call), (int)(expected))
#define ASSERT_OK(call)           ASSERT_CU(call, CUDA_SUCCESS)

#define HANDLE_BYTES (2u << 20)

static inline void begin(uint64_t seed, flw_sim_schedule schedule, bool backed)
{
    flw_sim_config config = flw_sim_config_default(seed);
    config.schedule = schedule;
    config.lag_ns = 1000;
    config.check = 1;
    config.backed = backed;
    flw_sim_begin(&sim, &config);
}

static inline uint64_t violations(void)
{
    return flw_sim_read_ledger(&sim).violation_count;
}

static inline CUstream make_stream(void)
{
    CUstream stream;
    ASSERT_OK(sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static inline CUevent make_event(void)
{
    CUevent event;
    ASSERT_OK(sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static inline void touch(CUstream stream, CUdeviceptr at, uint64_t bytes, bool is_write)
{
    flw_sim_range range = {.address = at, .bytes = bytes, .is_write = is_write};
    ASSERT_OK(sim.touch(stream, &range, 1));
}

static inline CUdeviceptr map_one(uint64_t bytes, CUmemGenericAllocationHandle *handle)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    ASSERT_OK(sim.cu.cuMemAddressReserve(&at, bytes, 0, 0, 0));
    ASSERT_OK(sim.cu.cuMemCreate(handle, bytes, &properties, 0));
    ASSERT_OK(sim.cu.cuMemMap(at, bytes, 0, *handle, 0));
    ASSERT_OK(sim.cu.cuMemSetAccess(at, bytes, &access, 1));
    return at;
}

static inline int open_driver(void **state)
{
    return flw_sim_open(&sim) ? 0 : -1;
}

static inline int close_driver(void **state)
{
    flw_sim_close(&sim);
    return 0;
}

#endif
