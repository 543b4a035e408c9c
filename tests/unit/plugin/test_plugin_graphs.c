/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: graph memory of plugin.h: ids, captures that share one, those that break off.
 */
#include "unit/plugin/test_plugin.h"

#include <pthread.h>

static const fallow_mempool_id graph_id = {1, 0}, shared_id = {0, 7}, third_id = {3, 0};

static void graphs_of_one_id_share_their_memory(void **state)
{
    (void)state;
    fallow_torch_begin_allocate_to_pool(0, shared_id, &sim);
    begin_capture(stream);
    void *kept = take(5000, stream), *passing = take(9000, stream);
    assert_int_equal(block_of(kept).state, FALLOW_BLOCK_CAPTURED);
    give(passing, 9000, stream);
    assert_ptr_equal(take(9000, stream), passing); /* in order inside one capture */
    give(passing, 9000, stream);
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, shared_id);
    void *eager = take(9000, stream);
    assert_ptr_not_equal(eager, passing);
    assert_int_equal(block_of(eager).state, FALLOW_BLOCK_LIVE);

    fallow_torch_begin_allocate_to_pool(0, shared_id, &sim);
    begin_capture(stream);
    assert_ptr_equal(take(9000, stream), passing);
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, shared_id);

    give(eager, 9000, stream);
    give(passing, 9000, stream);
    fallow_torch_release_pool(0, shared_id);
    assert_true(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes > 0);
    give(kept, 5000, stream);
    void *output =
        take(5000, other); /* as a graph's last launch, on a stream that its capture was not */
    assert_int_equal(sim.cu.cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    fallow_torch_release_pool(0, shared_id);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
    assert_int_equal(sim.cu.cuStreamQuery(other), 0); /* it was waited for */
    give(output, 5000, other);
}

static void *allocate_in_capture(void *context)
{
    CUcontext present;
    (void)context;
    assert_int_equal(sim.cu.cuDevicePrimaryCtxRetain(&present, 0), 0);
    assert_int_equal(sim.cu.cuCtxSetCurrent(present), 0);
    void *ptr = fallow_torch_alloc(5000, 0, stream);
    assert_int_equal(sim.cu.cuDevicePrimaryCtxRelease_v2(0), 0);
    return ptr;
}

static void another_thread_and_another_stream_take_part(void **state)
{
    (void)state;
    pthread_t thread;
    CUevent fork_event, join_event;
    void *theirs = NULL;
    assert_int_equal(sim.cu.cuEventCreate(&fork_event, 2), 0);
    assert_int_equal(sim.cu.cuEventCreate(&join_event, 2), 0);
    fallow_torch_begin_allocate_to_pool(0, graph_id, &sim);
    begin_capture(stream);
    assert_int_equal(pthread_create(&thread, NULL, allocate_in_capture, NULL), 0);
    assert_int_equal(pthread_join(thread, &theirs), 0);
    assert_int_equal(block_of(theirs).state, FALLOW_BLOCK_CAPTURED);
    assert_int_equal(sim.cu.cuEventRecord(fork_event, stream), 0);
    assert_int_equal(sim.cu.cuStreamWaitEvent(other, fork_event, 0), 0);
    void *joined = take(5000, other);
    assert_int_equal(block_of(joined).state, FALLOW_BLOCK_CAPTURED);
    give(joined, 5000, other);
    assert_int_equal(sim.cu.cuEventRecord(join_event, other), 0);
    assert_int_equal(sim.cu.cuStreamWaitEvent(stream, join_event, 0), 0);
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, graph_id);
    give(theirs, 5000, stream);
    fallow_torch_release_pool(0, graph_id);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
    assert_int_equal(sim.cu.cuEventDestroy_v2(fork_event), 0);
    assert_int_equal(sim.cu.cuEventDestroy_v2(join_event), 0);
}

static void two_captures_keep_apart_and_a_release_waits_for_both(void **state)
{
    (void)state;
    fallow_torch_begin_allocate_to_pool(0, graph_id, &sim);
    begin_capture(stream);
    void *mine = take(5000, stream);
    fallow_torch_begin_allocate_to_pool(0, third_id, &sim);
    begin_capture(other);
    give(mine, 5000, stream);
    void *theirs = take(5000, other);
    assert_ptr_not_equal(theirs, mine);
    assert_ptr_equal(take(5000, stream), mine);
    give(mine, 5000, stream);
    give(theirs, 5000, other);
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, graph_id);
    fallow_torch_release_pool(0,
                              graph_id); /* put off: a synchronisation would break the other one */
    uint64_t waits = sim.call_count("cuCtxSynchronize");
    assert_true(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes > 0);
    end_capture(other);
    fallow_torch_end_allocate_to_pool(0, third_id);
    assert_true(sim.call_count("cuCtxSynchronize") > waits);
    fallow_torch_release_pool(0, third_id);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
}

static void a_pool_without_a_capture_is_a_tag(void **state)
{
    (void)state;
    fallow_torch_begin_allocate_to_pool(0, shared_id, &sim);
    void *ptr = take(5000, stream);
    assert_int_equal(block_of(ptr).tag, 7);
    fallow_torch_end_allocate_to_pool(0, shared_id);
    fallow_torch_release_pool(0, shared_id);
    void *plain = take(5000, stream);
    assert_int_equal(block_of(plain).tag, 0);
    give(ptr, 5000, stream);
    give(plain, 5000, stream);
}

static void a_capture_that_breaks_off_ends(void **state)
{
    (void)state;
    fallow_torch_begin_allocate_to_pool(0, graph_id, &sim);
    begin_capture(stream);
    void *captured = take(5000, stream);
    end_capture(stream); /* PyTorch raises here, and calls no end */
    void *eager = take(5000, stream);
    assert_int_equal(block_of(eager).state, FALLOW_BLOCK_LIVE);
    give(eager, 5000, stream);
    give(captured, 5000, stream);
    fallow_torch_end_allocate_to_pool(0, graph_id);
    fallow_torch_release_pool(0, graph_id);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).captured_bytes, 0);
}

static void an_unannounced_capture_is_told_what_to_do(void **state)
{
    (void)state;
    begin_capture(stream);
    hold_stderr();
    void *ptr = fallow_torch_alloc(33 * (ssize_t)MIB, 0, stream);
    assert_one_line_with(release_stderr(), "fallow.enable_torch() sets them");
    assert_null(ptr);
    end_capture(stream);
}

static int begin_configured_world(void **state)
{
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    config.limit_bytes = 512 * MIB;
    return begin_world(state) != 0 || fallow_plugin_configure(&config) != FALLOW_OK ? -1 : 0;
}

static int end_world(void **state)
{
    (void)state;
    destroy_pools();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_of_one_id_share_their_memory),
        cmocka_unit_test(another_thread_and_another_stream_take_part),
        cmocka_unit_test(two_captures_keep_apart_and_a_release_waits_for_both),
        cmocka_unit_test(a_pool_without_a_capture_is_a_tag),
        cmocka_unit_test(a_capture_that_breaks_off_ends),
        cmocka_unit_test(an_unannounced_capture_is_told_what_to_do),
    };
    return cmocka_run_group_tests(tests, begin_configured_world, end_world);
}
