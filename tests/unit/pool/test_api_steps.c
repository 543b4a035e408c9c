/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: repeated steps on several streams at once, each with memory of its own: their cost in a
 * warm pool; and that a pool with a refused request does not count as warm. test_api.c has the
 * steps of one stream, property.steady_passes those of recorded programs. */
#include "unit/pool/test_api.h"

#include "base/bits.h"

#define BLOCKS  48
#define STREAMS 4

struct step {
    struct api *api;
    CUstream streams[STREAMS];
    size_t stream_count;
    size_t sizes[STREAMS][BLOCKS];
    uint64_t freed_bytes; /* by all steps so far */
};

static void play(struct step *step)
{
    void *ptrs[STREAMS][BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        for (size_t s = 0; s < step->stream_count; s++) {
            ptrs[s][i] = api_alloc(step->api, step->sizes[s][i], step->streams[s]);
            api_use(step->api, ptrs[s][i], step->sizes[s][i], step->streams[s]);
        }
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        for (size_t s = 0; s < step->stream_count; s++) {
            assert_int_equal(fallow_free(step->api->pool, ptrs[s][i], step->streams[s]), FALLOW_OK);
            step->freed_bytes += step->sizes[s][i];
        }
    }
}

/* At most one event for 16 MiB that were freed; no other call, no steal, no wait of host or stream. */
static void expect_warm_steps_to_cost_little(size_t stream_count, size_t least, size_t most)
{
    struct api api;
    struct step step = {.api = &api, .stream_count = stream_count};
    uint64_t random = 0x9e3779b97f4a7c15u;
    flw_sim_config world = flw_sim_config_default(5);
    world.queue_depth = 100000;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    for (size_t s = 0; s < stream_count; s++) {
        assert_int_equal(api.sim.cu.cuStreamCreate(&step.streams[s], CU_STREAM_NON_BLOCKING), 0);
        for (size_t i = 0; i < BLOCKS; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            step.sizes[s][i] = least + (size_t)(random >> 33) % (most - least);
        }
    }
    play(&step);
    play(&step);
    play(&step);
    fallow_stats before = api_stats(&api);
    uint64_t orders = api.sim.call_count("cuStreamWaitEvent");
    step.freed_bytes = 0;
    for (unsigned i = 0; i < 5; i++) {
        play(&step);
    }
    fallow_stats after = api_stats(&api);
    assert_in_range(after.event_count - before.event_count, 0,
                    flw_div_up(step.freed_bytes, 16 * MIB));
    assert_int_equal(after.steal_count, before.steal_count);
    assert_int_equal(api.sim.call_count("cuStreamWaitEvent"), orders);
    assert_int_equal(after.wait_count, before.wait_count);
    assert_int_equal(after.remap_wait_count, before.remap_wait_count);
    assert_int_equal(after.grow_count, before.grow_count);
    for (size_t s = 0; s < stream_count; s++) {
        assert_int_equal(fallow_stream_retire(api.pool, step.streams[s]), FALLOW_OK);
    }
    api_end(&api);
}

static void streams_that_exchange_no_small_blocks_do_not_wait_for_each_other(void **state)
{
    expect_warm_steps_to_cost_little(2, 300, 32000);
    expect_warm_steps_to_cost_little(4, 300, 32000);
}

static void streams_that_exchange_no_large_blocks_do_not_wait_for_each_other(void **state)
{
    expect_warm_steps_to_cost_little(2, MIB, 12 * MIB);
    expect_warm_steps_to_cost_little(4, MIB, 12 * MIB);
}

static void streams_of_blocks_of_all_sizes_do_not_wait_for_each_other(void **state)
{
    expect_warm_steps_to_cost_little(2, 300, 4 * MIB);
    expect_warm_steps_to_cost_little(4, 300, 4 * MIB);
}

/* A pool that still rises, of one stream that the device follows at once. */
static fallow_stats rise(bool is_refused_first)
{
    struct api api;
    CUdeviceptr others = 0;
    void *ptrs[64] = {NULL}, *ptr = NULL;
    uint64_t random = 1;
    flw_sim_config world = flw_sim_config_default(3);
    world.schedule = FLW_SIM_HELD;
    world.device_bytes = (size_t)8 << 30;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    assert_int_equal(api.sim.cu.cuMemAlloc_v2(&others, 1024 * MIB), 0);
    fallow_status refused = is_refused_first ? fallow_alloc(api.pool, 7500 * MIB, api.stream, &ptr)
                                             : FALLOW_OUT_OF_MEMORY;
    assert_int_equal(refused, FALLOW_OUT_OF_MEMORY);
    fallow_stats before = api_stats(&api);
    for (size_t i = 0; i < 2000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t place = (size_t)(random >> 33) % 64;
        size_t size = ((size_t)(random >> 40) % (i / 50 + 1) + 1) * 3 * MIB;
        assert_int_equal(fallow_free(api.pool, ptrs[place], api.stream), FALLOW_OK);
        ptrs[place] = api_alloc(&api, size, api.stream);
        api.sim.step(4);
    }
    fallow_stats after = api_stats(&api);
    after.grow_count -= before.grow_count;
    assert_in_range(after.grow_count, 100, UINT64_MAX);
    assert_int_equal(api.sim.cu.cuMemFree_v2(others), 0);
    api_end(&api);
    return after;
}

static void a_pool_rises_as_if_a_refused_request_had_not_been(void **state)
{
    fallow_stats plain = rise(false), refused = rise(true);
    assert_int_equal(refused.reserved_bytes, plain.reserved_bytes);
    assert_int_equal(refused.grow_count, plain.grow_count);
    assert_int_equal(refused.remap_count, plain.remap_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_that_exchange_no_small_blocks_do_not_wait_for_each_other),
        cmocka_unit_test(streams_that_exchange_no_large_blocks_do_not_wait_for_each_other),
        cmocka_unit_test(streams_of_blocks_of_all_sizes_do_not_wait_for_each_other),
        cmocka_unit_test(a_pool_rises_as_if_a_refused_request_had_not_been),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
