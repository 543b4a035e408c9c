/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: sleep and wake: memory released and kept, contents by tag, graphs over a sleep, running
 * work that is refused or waited for. */
#include "unit/pool/test_api_sleep.h"

#include <unistd.h>

#include "fallow/share.h"
#include "support/trim.h"

#define BLOCK_BYTES (300u << 10)

static void asleep_nothing_is_held_and_awake_everything_is_where_it_was(void **state)
{
    struct api api;
    void *blocks[3], *ptr = &api;
    api_begin_with_pool(&api);
    blocks[0] = api_alloc(&api, 700, api.stream);
    blocks[1] = api_alloc(&api, BLOCK_BYTES, api.stream);
    blocks[2] = api_alloc(&api, 9 * MIB, api.other);
    void *freed = api_alloc(&api, 30 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, freed, api.stream), FALLOW_OK);
    fallow_stats before = api_stats(&api);
    assert_int_equal(sleep_idle(&api, NULL), FALLOW_OK);
    fallow_stats asleep = api_stats(&api);
    assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, 0);
    assert_int_equal(flw_sim_read_ledger(&api.sim).mapping_count, 0);
    assert_int_equal(asleep.reserved_bytes, 0);
    assert_int_equal(asleep.is_asleep, 1);
    assert_int_equal(asleep.requested_bytes, before.requested_bytes);
    assert_int_equal(asleep.live_count, 3);
    assert_true(asleep.asleep_bytes >= asleep.live_bytes);
    assert_true(asleep.asleep_bytes < before.reserved_bytes); /* idle memory does not return */
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(fallow_alloc(api.pool, 700, api.stream, &ptr), FALLOW_ASLEEP);
    assert_null(ptr);
    assert_int_equal(fallow_alloc(api.pool, 0, api.stream, &ptr), FALLOW_OK);
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_ASLEEP);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    fallow_block info;
    fallow_block_init(&info);
    assert_int_equal(fallow_block_info(api.pool, blocks[2], &info), FALLOW_OK);
    assert_int_equal(info.handle, 0);

    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    fallow_stats awake = api_stats(&api);
    assert_int_equal(awake.is_asleep, 0);
    assert_int_equal(awake.asleep_bytes, 0);
    assert_int_equal(awake.reserved_bytes, asleep.asleep_bytes);
    assert_int_equal(awake.reserved_bytes, flw_sim_read_ledger(&api.sim).given_bytes);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK); /* already awake */
    api_use(&api, blocks[0], 700, api.stream);
    api_use(&api, blocks[1], BLOCK_BYTES, api.stream);
    api_use(&api, blocks[2], 9 * MIB, api.other);
    assert_int_equal(fallow_free(api.pool, blocks[0], api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, blocks[1], api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, blocks[2], api.other), FALLOW_OK);
    api_end(&api);
}

/* Handles side by side are unmapped by one call: a row is one, of a trim a batch of 64 at most. */
static void a_sleep_and_a_trim_unmap_by_rows(void **state)
{
    struct api api;
    void *blocks[64];
    api_begin_with_pool(&api);
    for (size_t i = 0; i < 64; i++) {
        blocks[i] = api_alloc(&api, 8 * MIB, api.stream);
    }
    uint64_t mappings = flw_sim_read_ledger(&api.sim).mapping_count;
    uint64_t before = api.sim.call_count("cuMemUnmap");
    assert_true(mappings >= 16);
    assert_int_equal(sleep_idle(&api, NULL), FALLOW_OK);
    uint64_t of_sleep = api.sim.call_count("cuMemUnmap") - before;
    assert_int_equal(flw_sim_read_ledger(&api.sim).mapping_count, 0);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(fallow_free(api.pool, blocks[i], api.stream), FALLOW_OK);
    }
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK); /* records fences */
    before = api.sim.call_count("cuMemUnmap");
    api.sim.step(UINT64_MAX);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    uint64_t of_trim = api.sim.call_count("cuMemUnmap") - before;
    assert_int_equal(flw_sim_read_ledger(&api.sim).mapping_count, 0);
    print_message("%llu mappings: %llu calls of cuMemUnmap for a sleep, %llu for a trim\n",
                  (unsigned long long)mappings, (unsigned long long)of_sleep,
                  (unsigned long long)of_trim);
    assert_int_equal(of_sleep, 1);
    assert_true(of_trim <= mappings / 64 + 2);
    api_end(&api);
}

static void a_hit_is_a_hit_again_after_the_wake(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    void *ptr = api_alloc(&api, 4096, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    (void)api_alloc(&api, 100000, api.stream);
    assert_int_equal(sleep_idle(&api, NULL), FALLOW_OK);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    ptr = api_alloc(&api, 4096, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    fallow_stats before = api_stats(&api);
    for (int i = 0; i < 10; i++) {
        ptr = api_alloc(&api, 4096, api.stream);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    }
    if (before.uses_membarrier) {
        assert_int_equal(api_stats(&api).hit_count - before.hit_count, 10);
    }
    assert_int_equal(api_stats(&api).driver_call_count, before.driver_call_count);
    api_end(&api);
}

static void blocks_may_be_freed_asleep(void **state)
{
    struct api api;
    void *small[200];
    api_begin_with_pool(&api);
    for (int i = 0; i < 200; i++) {
        small[i] = api_alloc(&api, 5000, i % 2 == 0 ? api.stream : api.other);
    }
    void *large = api_alloc(&api, 20 * MIB, api.stream);
    void *used = api_alloc(&api, 3 * MIB, api.stream);
    assert_int_equal(fallow_record_use(api.pool, used, api.other), FALLOW_OK);
    assert_int_equal(sleep_idle(&api, NULL), FALLOW_OK);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(fallow_free(api.pool, small[i], i % 2 == 0 ? api.stream : api.other),
                         FALLOW_OK);
    }
    assert_int_equal(fallow_free(api.pool, large, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, large, api.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_free(api.pool, used, api.stream), FALLOW_OK);
    assert_int_equal(api_stats(&api).live_count, 0);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    void *again = api_alloc(&api, 20 * MIB, api.stream);
    api_use(&api, again, 20 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, again, api.stream), FALLOW_OK);
    api_end(&api);
}

static void contents_are_saved_by_tag(void **state)
{
    struct api api;
    const uint32_t tags[] = {7, 0};
    void *weights[40], *plain, *cache;
    fallow_sleep_request request;
    begin_backed(&api);
    for (int i = 0; i < 40; i++) { /* of several chunks and of one */
        size_t size = i < 2 ? 40 * MIB : 1000 + 500 * (size_t)i;
        weights[i] = api_must_alloc(&api, size, 7, 0);
        fill(&api, weights[i], size, (unsigned char)(i + 1));
    }
    plain = api_alloc(&api, 3 * MIB, api.stream);
    fill(&api, plain, 3 * MIB, 0x77);
    cache = api_must_alloc(&api, 2 * MIB, 9, 0);
    fill(&api, cache, 2 * MIB, 0x99);
    fallow_sleep_request_init(&request);
    request.saved_tags = tags;
    request.saved_tag_count = 2;
    assert_int_equal(sleep_idle(&api, &request), FALLOW_OK);
    fallow_stats asleep = api_stats(&api);
    assert_true(asleep.saved_bytes >= 83 * MIB && asleep.saved_bytes < 85 * MIB);
    uint64_t pinned_bytes = flw_sim_read_ledger(&api.sim).pinned_bytes; /* whole pages */
    assert_true(pinned_bytes >= asleep.saved_bytes && pinned_bytes < asleep.saved_bytes + MIB);
    assert_int_equal(fallow_free(api.pool, weights[5], api.stream), FALLOW_OK);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_int_equal(flw_sim_read_ledger(&api.sim).pinned_bytes, 0);
    assert_int_equal(api_stats(&api).saved_bytes, 0);
    for (int i = 0; i < 40; i++) {
        size_t size = i < 2 ? 40 * MIB : 1000 + 500 * (size_t)i;
        assert_true(i == 5 || holds(&api, weights[i], size, (unsigned char)(i + 1)));
    }
    assert_true(holds(&api, plain, 3 * MIB, 0x77));
    fill(&api, cache, 2 * MIB, 0x99); /* rewritten: the old contents are lost */
    api_end(&api);
}

static void everything_may_be_saved(void **state)
{
    struct api api;
    fallow_sleep_request request;
    begin_backed(&api);
    void *tagged = api_must_alloc(&api, 5000, 3, 0), *plain = api_alloc(&api, 5000, api.stream);
    fill(&api, tagged, 5000, 1);
    fill(&api, plain, 5000, 2);
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_SAVE_ALL;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sleep_idle(&api, &request), FALLOW_OK);
        assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    }
    assert_true(holds(&api, tagged, 5000, 1));
    assert_true(holds(&api, plain, 5000, 2));
    api_end(&api);
}

static void running_work_is_refused_or_waited_for(void **state)
{
    struct api api;
    fallow_sleep_request request;
    api_begin_with_pool(&api);
    CUstream hidden;
    assert_int_equal(api.sim.cu.cuStreamCreate(&hidden, CU_STREAM_NON_BLOCKING), 0);
    void *ptr = api_alloc(&api, MIB, api.stream);
    api_use(&api, ptr, MIB, hidden); /* the pool has never seen that stream */
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_BUSY);
    assert_int_equal(api_stats(&api).is_asleep, 0);
    assert_true(api_stats(&api).reserved_bytes > 0);
    void *more = api_alloc(&api, 700, api.stream); /* as if nothing had happened */
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT;
    assert_int_equal(fallow_pool_sleep(api.pool, &request), FALLOW_OK);
    assert_int_equal(flw_sim_print_violations(&api.sim), 0);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, more, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

/* The block was freed, so no live block records the use, and no fence is possible. */
static void work_of_another_context_is_waited_for_without_a_fence(void **state)
{
    struct api api;
    CUcontext foreign, popped;
    CUstream abroad = NULL;
    begin_backed(&api);
    void *ptr = api_alloc(&api, 3 * MIB, api.stream);
    assert_int_equal(api.sim.cu.cuCtxCreate_v2(&foreign, 0, 0), 0);
    assert_int_equal(api.sim.cu.cuStreamCreate(&abroad, CU_STREAM_NON_BLOCKING), 0);
    api_use(&api, ptr, 3 * MIB, abroad);
    assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    assert_int_equal(fallow_record_use(api.pool, ptr, abroad), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    fallow_sleep_request request = {.struct_size = sizeof request, .flags = FALLOW_SLEEP_WAIT};
    assert_int_equal((api.sim.fail)("cuEventCreate", 1, CUDA_ERROR_OUT_OF_MEMORY, 0), 1);
    assert_int_equal(fallow_pool_sleep(api.pool, &request), FALLOW_OK);
    assert_int_equal(flw_sim_print_violations(&api.sim), 0);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, abroad), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuCtxDestroy_v2(foreign), 0);
    api_end(&api);
}

/* A fill of a captured block and one of a block that was allocated before. */
static void graphs_replay_after_the_wake(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    CUgraphExec executable = NULL;
    begin_backed(&api);
    const struct flw_driver *cu = &api.sim.cu;
    void *outside = api_alloc(&api, BLOCK_BYTES, api.stream);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_BUSY);
    api_begin_capturing(&api, api.stream);
    void *inside = api_alloc(&api, BLOCK_BYTES, api.stream);
    void *scratch = api_alloc(&api, 3 * MIB, api.stream);
    assert_int_equal(
        cu->cuMemsetD8Async((CUdeviceptr)(uintptr_t)inside, 0x11, BLOCK_BYTES, api.stream), 0);
    assert_int_equal(
        cu->cuMemsetD8Async((CUdeviceptr)(uintptr_t)scratch, 0x12, 3 * MIB, api.stream), 0);
    assert_int_equal(fallow_free(api.pool, scratch, api.stream), FALLOW_OK);
    assert_int_equal(
        cu->cuMemsetD8Async((CUdeviceptr)(uintptr_t)outside, 0x22, BLOCK_BYTES, api.stream), 0);
    CUgraph graph = api_end_capturing(&api, api.stream);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(cu->cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sleep_idle(&api, NULL), FALLOW_OK);
        assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, 0);
        assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
        assert_int_equal(cu->cuGraphLaunch(executable, api.stream), 0);
        assert_int_equal(cu->cuStreamSynchronize(api.stream), 0);
        assert_true(holds(&api, inside, BLOCK_BYTES, 0x11));
        assert_true(holds(&api, outside, BLOCK_BYTES, 0x22));
    }
    assert_int_equal(cu->cuGraphExecDestroy(executable), 0);
    assert_int_equal(cu->cuGraphDestroy(graph), 0);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, inside, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, outside, api.stream), FALLOW_OK);
    api_end(&api);
}

static void an_unannounced_capture_is_left_alone(void **state)
{
    struct api api;
    fallow_sleep_request request;
    api_begin_with_pool(&api);
    const struct flw_driver *cu = &api.sim.cu;
    void *ptr = api_alloc(&api, 700, api.stream);
    assert_int_equal(cu->cuStreamBeginCapture_v2(api.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), 0);
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT;
    assert_int_equal(fallow_pool_sleep(api.pool, &request), FALLOW_CAPTURING);
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_CAPTURING);
    api_drop_captured(&api, api.stream); /* not broken */
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_OK);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &(fallow_capture *){NULL}),
                     FALLOW_ASLEEP);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

static void a_sleeping_pool_is_destroyed_or_abandoned(void **state)
{
    struct api api;
    fallow_sleep_request request;
    begin_backed(&api);
    void *ptr = api_alloc(&api, 20 * MIB, api.stream);
    fill(&api, ptr, 20 * MIB, 1);
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_SAVE_ALL;
    assert_int_equal(sleep_idle(&api, &request), FALLOW_OK);
    fallow_pool_destroy(api.pool);
    api.pool = NULL;
    assert_int_equal(flw_sim_read_ledger(&api.sim).pinned_bytes, 0);
    api_end(&api);
}

static void exported_memory_stays_awake(void **state)
{
    struct api api;
    fallow_share share;
    begin_backed(&api);
    void *shared = api_must_alloc(&api, 3 * MIB, 0, FALLOW_REQUEST_EXPORT_FD);
    void *own = api_alloc(&api, 20 * MIB, api.stream);
    fill(&api, shared, 3 * MIB, 0x33);
    fill(&api, own, 20 * MIB, 0x55);
    fallow_share_init(&share);
    assert_int_equal(fallow_export(api.pool, shared, FALLOW_HANDLE_FD, &share), FALLOW_OK);
    fallow_sleep_request request;
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_SAVE_ALL;
    assert_int_equal(sleep_idle(&api, &request), FALLOW_OK);
    fallow_stats asleep = api_stats(&api);
    assert_int_equal(asleep.reserved_bytes, share.handle_bytes);
    assert_int_equal(asleep.saved_bytes, 20 * MIB);
    fill(&api, shared, 3 * MIB, 0x44); /* an importer writes */
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_true(holds(&api, shared, 3 * MIB, 0x44));
    assert_int_equal(sleep_idle(&api, NULL), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, shared, api.stream), FALLOW_OK); /* asleep: waits */
    assert_int_equal(api.sim.cu.cuCtxSynchronize(), 0);
    assert_int_equal(api_stats(&api).exported_bytes, share.handle_bytes);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).exported_bytes, 0);
    assert_int_equal(fallow_free(api.pool, own, api.stream), FALLOW_OK);
    close(share.descriptor);
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asleep_nothing_is_held_and_awake_everything_is_where_it_was),
        cmocka_unit_test(a_sleep_and_a_trim_unmap_by_rows),
        cmocka_unit_test(a_hit_is_a_hit_again_after_the_wake),
        cmocka_unit_test(blocks_may_be_freed_asleep),
        cmocka_unit_test(contents_are_saved_by_tag),
        cmocka_unit_test(everything_may_be_saved),
        cmocka_unit_test(running_work_is_refused_or_waited_for),
        cmocka_unit_test(work_of_another_context_is_waited_for_without_a_fence),
        cmocka_unit_test(graphs_replay_after_the_wake),
        cmocka_unit_test(an_unannounced_capture_is_left_alone),
        cmocka_unit_test(a_sleeping_pool_is_destroyed_or_abandoned),
        cmocka_unit_test(exported_memory_stays_awake),
    };
    return cmocka_run_group_tests_name("api_sleep", tests, NULL, NULL);
}
