/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a world with many streams, and a pool that they share.
 */
#ifndef FLW_TESTS_UNIT_POOL_TEST_API_MANY_H
#define FLW_TESTS_UNIT_POOL_TEST_API_MANY_H

#include "unit/pool/test_api.h"

#define GIB          ((size_t)1 << 30)
#define STREAMS_MOST 512
#define LONG_NS      1000000000ull /* of an operation: nothing is done unasked */

static struct api api;
static CUstream streams[STREAMS_MOST];

static inline void open_in(const flw_sim_config *world, unsigned stream_count)
{
    api_begin(&api, world);
    for (unsigned i = 0; i < stream_count; i++) {
        assert_int_equal(api.sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
    }
}

/* A world with so many streams; `schedule` CLOCK counts where the host stops. */
static inline void open_world(unsigned stream_count, flw_sim_schedule schedule,
                              uint64_t device_bytes)
{
    flw_sim_config world = flw_sim_config_default(11);
    world.schedule = schedule;
    world.check = 1;
    world.device_bytes = device_bytes;
    world.lag_ns = LONG_NS;
    open_in(&world, stream_count);
}

static inline void open_pool(fallow_economy economy, size_t limit_bytes)
{
    fallow_pool_config config = api_config(&api);
    config.economy = economy;
    config.limit_bytes = limit_bytes;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
}

static inline void close_world(void)
{
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(flw_sim_print_violations(&api.sim), 0);
    api_end(&api);
}

static inline void *use_new(size_t bytes, CUstream stream)
{
    void *ptr = api_alloc(&api, bytes, stream);
    api_use(&api, ptr, bytes, stream);
    return ptr;
}

static inline void free_on(void *ptr, CUstream stream)
{
    assert_int_equal(fallow_free(api.pool, ptr, stream), FALLOW_OK);
}

static inline void use_once(size_t bytes, CUstream stream)
{
    free_on(use_new(bytes, stream), stream);
}

static inline uint64_t calls(void)
{
    return api_stats(&api).driver_call_count;
}

static inline uint64_t host_waits(void)
{
    return flw_sim_read_ledger(&api.sim).host_wait_count;
}

#endif
