/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: debug checks beside debug.script: patterns of poison, and a context that ends during a comparison.
 */
#include "unit/pool/test_api.h"

#include <pthread.h>

#include "fallow/extend.h"

#define ALL_CHECKS \
    (FALLOW_CHECK_POISON | FALLOW_CHECK_RED_ZONES | FALLOW_CHECK_QUARANTINE | FALLOW_CHECK_LEAKS)

/* Begin the usual world, with contents. */
static void begin_backed(struct api *api)
{
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    api_begin(api, &world);
}

static void begin_with_checks(struct api *api, uint32_t checks)
{
    begin_backed(api);
    fallow_pool_config config = api_config(api);
    config.checks = checks;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static void write_byte(struct api *api, unsigned char *at, CUstream stream)
{
    assert_int_equal(api->sim.cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)at, 0, 1, stream), 0);
}

static void read_back(struct api *api, void *to, const void *from, size_t bytes)
{
    assert_int_equal(api->sim.cu.cuStreamSynchronize(api->stream), 0);
    assert_int_equal(api->sim.cu.cuMemcpyDtoH_v2(to, (CUdeviceptr)(uintptr_t)from, bytes), 0);
}

TEST(a_new_block_is_poisoned_with_a_pattern_and_its_complement)
{
    struct api api;
    unsigned char first[1000], second[1000];
    begin_with_checks(&api, FALLOW_CHECK_POISON);
    void *a = api_alloc(&api, sizeof first, api.stream);
    void *b = api_alloc(&api, sizeof second, api.stream);
    read_back(&api, first, a, sizeof first);
    read_back(&api, second, b, sizeof second);
    for (size_t i = 0; i < sizeof first; i++) {
        assert_int_equal(first[i], first[0]);
        assert_int_equal((unsigned char)~first[i], second[i]);
    }
    assert_int_equal(fallow_free(api.pool, a, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, b, api.stream), FALLOW_OK);
    api_end(&api);
}

static void end_the_context(void *context, fallow_log_level level, const char *message)
{
    struct api *api = context;
    if (level == FALLOW_LOG_ERROR && strstr(message, "red zone damaged") != NULL &&
        api->sim.cu.cuDevicePrimaryCtxReset_v2(0) != CUDA_SUCCESS) {
        abort();
    }
    api_log(context, level, message);
}

/* As another thread may: the first zone was read, the second is still to be. */
TEST(a_context_that_ends_in_the_middle_of_a_comparison_leaves_what_it_reads)
{
    struct api api;
    flw_sim_config world = flw_sim_config_default(7);
    world.backed = 1;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    config.checks = FALLOW_CHECK_RED_ZONES;
    config.log = end_the_context;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    unsigned char *ptr = api_alloc(&api, 1000, api.stream);
    write_byte(&api, ptr - 1, api.stream);
    write_byte(&api, ptr + 1000, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    fallow_status status = fallow_pool_poll(api.pool); /* OK: needed no driver call */
    assert_true(status == FALLOW_DEVICE_LOST || status == FALLOW_OK);
    assert_int_equal(api_stats(&api).damage_count, 2);
    assert_int_equal(flw_sim_read_ledger(&api.sim).pinned_bytes, 0); /* released with the context */
    assert_int_equal(fallow_alloc(api.pool, 5000, api.stream, (void **)&ptr), FALLOW_DEVICE_LOST);
    fallow_pool_destroy(api.pool);
    flw_sim_close(&api.sim);
}
