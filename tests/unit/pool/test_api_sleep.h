/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of tests of sleep: a pool with contents. */
#ifndef FLW_TESTS_UNIT_TEST_API_SLEEP_H
#define FLW_TESTS_UNIT_TEST_API_SLEEP_H

#include "fallow/sleep.h"
#include "unit/pool/test_api.h"

/* Memory with contents, watched by the rule checker. */
static inline flw_sim_config backed_world(void)
{
    flw_sim_config world = flw_sim_config_default(11);
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    world.device_bytes = 256 * MIB;
    return world;
}

static inline void begin_backed(struct api *api)
{
    flw_sim_config world = backed_world();
    api_begin(api, &world);
    fallow_pool_config config = api_config(api);
    config.handle_types = FALLOW_HANDLE_FD;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static inline void fill(struct api *api, void *ptr, size_t size, unsigned char value)
{
    assert_int_equal(api->sim.cu.cuMemsetD8_v2((CUdeviceptr)(uintptr_t)ptr, value, size), 0);
}

static inline bool holds(struct api *api, void *ptr, size_t size, unsigned char value)
{
    unsigned char *copy = malloc(size);
    assert_non_null(copy);
    assert_int_equal(api->sim.cu.cuMemcpyDtoH_v2(copy, (CUdeviceptr)(uintptr_t)ptr, size), 0);
    bool is_same = true;
    for (size_t i = 0; i < size && is_same; i++) {
        is_same = copy[i] == value;
    }
    free(copy);
    return is_same;
}

/* Sleep on a held device: finish all work first, including the pool's fences. */
static inline fallow_status sleep_idle(struct api *api, const fallow_sleep_request *request)
{
    assert_int_equal(api->sim.cu.cuCtxSynchronize(), 0);
    return fallow_pool_sleep(api->pool, request);
}

#endif
