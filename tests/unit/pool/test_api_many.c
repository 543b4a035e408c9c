/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: pools shared by many streams: the cost of a pair of calls for any number of streams, and
 * reuse of memory that another stream freed. */
#include "unit/pool/test_api_many.h"

/* ---- the cost of a pair */

static void few_blocks_on_many_streams_are_hits(void **state)
{
    enum {
        STREAMS = 64
    };
    open_world(STREAMS, FLW_SIM_HELD, 64 * GIB);
    open_pool(FALLOW_BALANCED, 0);
    for (unsigned i = 0; i < STREAMS; i++) {
        use_once(MIB, streams[i]);
    }
    uint64_t before = calls();
    for (unsigned turn = 0; turn < 10 * STREAMS; turn++) {
        use_once(MIB, streams[turn * 7 % STREAMS]);
    }
    assert_int_equal(calls(), before);
    assert_true(api_stats(&api).reserved_bytes <= 256 * MIB);
    close_world();
}

/* Calls of a hundred pairs where there is room for a part of the streams only. */
static uint64_t calls_of_pairs(unsigned stream_count)
{
    open_world(stream_count, FLW_SIM_CLOCK, 8 * GIB); /* they share 32 MiB */
    open_pool(FALLOW_BALANCED, 0);
    for (unsigned turn = 0; turn < 3 * stream_count; turn++) {
        use_once(MIB, streams[turn * 7 % stream_count]);
        api.sim.advance(2 * LONG_NS);
    }
    uint64_t before = calls();
    unsigned pairs = 4 * stream_count;
    for (unsigned turn = 0; turn < pairs; turn++) {
        use_once(MIB, streams[turn * 7 % stream_count]);
        api.sim.advance(2 * LONG_NS);
    }
    uint64_t count = (calls() - before) * 100 / pairs;
    assert_int_equal(api_stats(&api).wait_count, 0);
    assert_true(api_stats(&api).reserved_bytes <= 48 * MIB);
    close_world();
    return count;
}

/* A record, a query, a query of both streams' capture state, the driver section around them,
 * sometimes a device wait. */
#define CALLS_OF_100_MOST 650

static void a_pair_costs_what_no_number_of_streams_changes(void **state)
{
    uint64_t few = calls_of_pairs(64), many = calls_of_pairs(512);
    if (few > CALLS_OF_100_MOST || many > few + few / 20) {
        fail_msg("%llu calls of 100 pairs on 64 streams, %llu on 512", (unsigned long long)few,
                 (unsigned long long)many);
    }
}

/* ---- memory freed by another stream */

/* At the limit, used by a second stream: a third gets the memory without a host wait. */
static void take_used_block(size_t bytes, bool without_vmm)
{
    flw_sim_config world = flw_sim_config_default(11);
    world.schedule = FLW_SIM_CLOCK;
    world.check = 1;
    world.device_bytes = 8 * GIB;
    world.lag_ns = LONG_NS;
    world.without_vmm = without_vmm;
    open_in(&world, 3);
    open_pool(FALLOW_BALANCED, 48 * MIB);
    void *block = use_new(bytes, streams[0]), *rest[48];
    size_t count = 0;
    while (count < 48 && fallow_alloc(api.pool, MIB, streams[1], &rest[count]) == FALLOW_OK) {
        api_use(&api, rest[count++], MIB, streams[1]);
    }
    assert_in_range(count, 1, 47);
    assert_int_equal(fallow_record_use(api.pool, block, streams[1]), FALLOW_OK);
    free_on(block, streams[0]);
    uint64_t stops = host_waits();
    void *again = use_new(bytes, streams[2]);
    assert_ptr_equal(again, block);
    assert_int_equal(host_waits(), stops);
    assert_int_equal(api_stats(&api).wait_count, 0);
    assert_true(api_stats(&api).steal_count > 0);
    assert_int_equal(api_stats(&api).deferred_bytes, 0);
    free_on(again, streams[2]);
    while (count > 0) {
        free_on(rest[--count], streams[1]);
    }
    close_world();
}

static void a_block_that_another_stream_uses_is_taken_behind_waits(void **state)
{
    take_used_block(40 * MIB, false);
    take_used_block(3 * MIB, false);
    take_used_block(40 * MIB, true);
    take_used_block(3 * MIB, true);
}

/* The pool is full of small blocks; two of them wait for a stream without a fence so far. */
static void a_small_block_that_another_stream_uses_is_taken_behind_waits(void **state)
{
    enum {
        SMALL = 65536,
        MOST = 512
    };
    static void *blocks[MOST];
    size_t count = 0;
    open_world(3, FLW_SIM_CLOCK, 8 * GIB);
    open_pool(FALLOW_BALANCED, 16 * MIB);
    use_once(256, streams[1]);
    use_once(256, streams[2]);
    while (count < MOST && fallow_alloc(api.pool, SMALL, streams[0], &blocks[count]) == FALLOW_OK) {
        api_use(&api, blocks[count++], SMALL, streams[0]);
    }
    assert_in_range(count, 3, MOST - 1);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(fallow_record_use(api.pool, blocks[i], streams[1]), FALLOW_OK);
        assert_int_equal(api.sim.touch(streams[1], NULL, 0), 0);
        free_on(blocks[i], streams[0]);
    }
    uint64_t stops = host_waits();
    void *again = use_new(SMALL, streams[2]);
    assert_true(again == blocks[0] || again == blocks[1]);
    assert_int_equal(host_waits(), stops);
    free_on(again, streams[2]);
    while (count > 2) {
        free_on(blocks[--count], streams[0]);
    }
    close_world();
}

/* The one that would fit best is used by a stream that is captured: no fence can be recorded on that. */
static void a_block_that_cannot_be_waited_for_does_not_hide_another(void **state)
{
    fallow_capture *capture = NULL;
    open_world(4, FLW_SIM_CLOCK, 8 * GIB);
    open_pool(FALLOW_BALANCED, 48 * MIB);
    void *best = use_new(20 * MIB, streams[0]), *rest = use_new(4 * MIB, streams[0]);
    void *good = use_new(24 * MIB, streams[0]);
    assert_int_equal(fallow_record_use(api.pool, best, streams[1]), FALLOW_OK);
    assert_int_equal(fallow_record_use(api.pool, good, streams[3]), FALLOW_OK);
    for (unsigned i = 1; i < 4; i += 2) {
        assert_int_equal(api.sim.touch(streams[i], NULL, 0), 0);
    }
    api_begin_capturing(&api, streams[1]);
    assert_int_equal(fallow_capture_begin(api.pool, streams[1], &capture), FALLOW_OK);
    free_on(best, streams[0]);
    free_on(good, streams[0]);
    uint64_t stops = host_waits();
    void *mine = use_new(20 * MIB, streams[2]);
    assert_ptr_equal(mine, good);
    assert_int_equal(host_waits(), stops);
    free_on(mine, streams[2]);
    free_on(rest, streams[0]);
    api_drop_captured(&api, streams[1]);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    close_world();
}

/* A block with a handle of its own serves only similar requests: a small request does not wait for
 * it. */
static void a_large_block_in_use_is_not_waited_for_by_a_small_one(void **state)
{
    open_world(3, FLW_SIM_CLOCK, 8 * GIB);
    fallow_pool_config config = api_config(&api);
    config.one_handle_bytes = 16 * MIB;
    config.limit_bytes = 48 * MIB;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    void *large = use_new(40 * MIB, streams[0]), *rest[8];
    size_t count = 0;
    while (count < 8 && fallow_alloc(api.pool, 2 * MIB, streams[2], &rest[count]) == FALLOW_OK) {
        api_use(&api, rest[count++], 2 * MIB, streams[2]);
    }
    assert_in_range(count, 1, 7);
    assert_int_equal(fallow_record_use(api.pool, large, streams[1]), FALLOW_OK);
    assert_int_equal(api.sim.touch(streams[1], NULL, 0), 0);
    free_on(large, streams[0]);
    uint64_t waits = api.sim.call_count("cuStreamWaitEvent");
    void *small = use_new(3 * MIB, streams[2]);
    assert_int_equal(api.sim.call_count("cuStreamWaitEvent"), waits);
    free_on(small, streams[2]);
    while (count > 0) {
        free_on(rest[--count], streams[2]);
    }
    close_world();
}

static void neighbours_of_several_streams_are_taken_together_behind_waits(void **state)
{
    void *ptr[4];
    open_world(5, FLW_SIM_CLOCK, 8 * GIB);
    open_pool(FALLOW_BALANCED, 48 * MIB);
    for (unsigned i = 0; i < 4; i++) {
        ptr[i] = use_new(11 * MIB, streams[i]);
    }
    assert_int_equal(fallow_record_use(api.pool, ptr[1], streams[3]), FALLOW_OK);
    for (unsigned i = 0; i < 4; i++) {
        free_on(ptr[i], streams[i]);
    }
    uint64_t stops = host_waits();
    void *mine = use_new(40 * MIB, streams[4]);
    assert_int_equal(host_waits(), stops);
    assert_int_equal(api_stats(&api).wait_count, 0);
    assert_int_equal(api_stats(&api).deferred_bytes, 0);
    free_on(mine, streams[4]);
    close_world();
}

/* A block without outstanding uses is reused instead of new memory. */
static void a_use_that_is_over_holds_nothing_back(void **state)
{
    open_world(3, FLW_SIM_CLOCK, 8 * GIB);
    open_pool(FALLOW_BALANCED, 0);
    void *rest = use_new(100 * MIB, streams[2]), *block = use_new(5 * MIB, streams[0]);
    assert_int_equal(fallow_record_use(api.pool, block, streams[1]), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, streams[1]), FALLOW_OK);
    api.sim.advance(10 * LONG_NS);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    free_on(block, streams[0]);
    void *again[3]; /* larger than any other free memory */
    for (unsigned i = 0; i < 3; i++) {
        again[i] = use_new(3 * MIB, streams[0]);
    }
    assert_int_equal(api_stats(&api).deferred_bytes, 0);
    for (unsigned i = 0; i < 3; i++) {
        free_on(again[i], streams[0]);
    }
    free_on(rest, streams[2]);
    close_world();
}

/* ---- streams that must not be recorded on */

/* Free memory of streams[0] without a fence; others then search for memory. */
static void leave_owing(void)
{
    open_world(3, FLW_SIM_HELD, 8 * GIB);
    open_pool(FALLOW_BALANCED, 48 * MIB);
    for (unsigned i = 0; i < 200; i++) { /* after a growth the first are fenced by their frees */
        use_once(40 * MIB, streams[0]);
    }
    api.sim.step(UINT64_MAX);
    use_once(40 * MIB, streams[0]);
}

static fallow_status look_for_some(void)
{
    fallow_request request;
    void *ptr = NULL;
    fallow_request_init(&request);
    request.size_bytes = 40 * MIB;
    request.flags = FALLOW_REQUEST_NO_WAIT;
    fallow_status status = fallow_alloc_request(api.pool, &request, streams[1], &ptr);
    if (status == FALLOW_OK) {
        api_use(&api, ptr, 40 * MIB, streams[1]);
        free_on(ptr, streams[1]);
    }
    return status;
}

static void a_stream_that_owes_is_recorded_on_by_who_looks(void **state)
{
    leave_owing();
    uint64_t events = api_stats(&api).event_count;
    assert_int_equal(look_for_some(), FALLOW_WOULD_WAIT);
    assert_int_equal(api_stats(&api).event_count, events + 1);
    assert_int_equal(look_for_some(), FALLOW_WOULD_WAIT);
    assert_int_equal(api_stats(&api).event_count, events + 1); /* no missing fence now */
    api.sim.step(UINT64_MAX);
    assert_int_equal(look_for_some(), FALLOW_OK);
    close_world();
}

static void a_retired_stream_that_owed_is_not_recorded_on(void **state)
{
    leave_owing();
    assert_int_equal(fallow_stream_retire(api.pool, streams[0]), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuStreamDestroy_v2(streams[0]), 0);
    uint64_t events = api_stats(&api).event_count;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(look_for_some(), FALLOW_WOULD_WAIT);
    }
    assert_int_equal(api_stats(&api).event_count, events);
    api.sim.step(UINT64_MAX);
    assert_int_equal(look_for_some(), FALLOW_OK);
    close_world();
}

static void a_captured_stream_that_owes_is_left_alone(void **state)
{
    leave_owing();
    fallow_capture *capture = NULL;
    api_begin_capturing(&api, streams[0]);
    assert_int_equal(fallow_capture_begin(api.pool, streams[0], &capture), FALLOW_OK);
    uint64_t events = api_stats(&api).event_count;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(look_for_some(), FALLOW_WOULD_WAIT);
    }
    assert_int_equal(api_stats(&api).event_count, events);
    api_drop_captured(&api, streams[0]); /* the capture continued to the end */
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(look_for_some(), FALLOW_WOULD_WAIT); /* the fence is missing again */
    assert_int_equal(api_stats(&api).event_count, events + 1);
    api.sim.step(UINT64_MAX);
    assert_int_equal(look_for_some(), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    close_world();
}

/* A capture in the driver only, found by the pool's query. */
static void a_fence_that_a_capture_takes_is_recorded_again(void **state)
{
    leave_owing();
    api_begin_capturing(&api, streams[0]);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(look_for_some(), FALLOW_WOULD_WAIT);
    }
    api_drop_captured(&api, streams[0]);
    api.sim.step(UINT64_MAX);
    unsigned looks = 0;
    fallow_status status = look_for_some();
    for (; looks < 3 && status != FALLOW_OK; looks++) {
        api.sim.step(UINT64_MAX);
        status = look_for_some();
    }
    assert_int_equal(status, FALLOW_OK);
    close_world();
}

static void a_lost_stream_that_owed_is_not_recorded_on(void **state)
{
    leave_owing();
    assert_int_equal(api.sim.cu.cuStreamDestroy_v2(streams[0]), 0);
    assert_int_equal(api_ask_elsewhere(&api, streams[0]), FALLOW_INVALID_STREAM);
    assert_int_equal(api_stats(&api).lost_streams, 1);
    uint64_t records = api.sim.call_count("cuEventRecord");
    for (unsigned i = 0; i < 3; i++) {
        (void)look_for_some();
    }
    assert_int_equal(api.sim.call_count("cuEventRecord"), records);
    void *ptr = use_new(40 * MIB, streams[1]); /* reclaimed by an event of the context */
    free_on(ptr, streams[1]);
    close_world();
}

struct elsewhere {
    CUcontext context;
    pthread_barrier_t barrier;
    fallow_status status;
};

/* Work and free memory on a default stream that only this thread can name. */
static void *leave_on_own_default_stream(void *argument)
{
    struct elsewhere *thread = argument;
    void *ptr = NULL;
    (void)api.sim.cu.cuCtxSetCurrent(thread->context);
    for (unsigned i = 0; i < 200 && thread->status == FALLOW_OK; i++) {
        thread->status = fallow_alloc(api.pool, 20 * MIB, CU_STREAM_PER_THREAD, &ptr);
        if (thread->status == FALLOW_OK) {
            thread->status = fallow_free(api.pool, ptr, CU_STREAM_PER_THREAD);
        }
    }
    pthread_barrier_wait(&thread->barrier);
    pthread_barrier_wait(&thread->barrier);
    return NULL;
}

static void a_default_stream_of_another_thread_is_not_recorded_on(void **state)
{
    struct elsewhere thread = {.status = FALLOW_OK};
    pthread_t started;
    leave_owing();
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&thread.context), 0);
    assert_int_equal(look_for_some(), FALLOW_WOULD_WAIT); /* streams[0] owes none any more */
    api.sim.step(UINT64_MAX);
    use_once(20 * MIB, streams[1]);
    api.sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    assert_int_equal(pthread_barrier_init(&thread.barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&started, NULL, leave_on_own_default_stream, &thread), 0);
    pthread_barrier_wait(&thread.barrier);
    assert_int_equal(thread.status, FALLOW_OK);
    api.sim.step(UINT64_MAX);
    uint64_t events = api_stats(&api).event_count;
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(look_for_some(), FALLOW_WOULD_WAIT);
    }
    assert_int_equal(api_stats(&api).event_count, events);
    pthread_barrier_wait(&thread.barrier);
    assert_int_equal(pthread_join(started, NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&thread.barrier), 0);
    close_world();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_blocks_on_many_streams_are_hits),
        cmocka_unit_test(a_pair_costs_what_no_number_of_streams_changes),
        cmocka_unit_test(a_block_that_another_stream_uses_is_taken_behind_waits),
        cmocka_unit_test(a_small_block_that_another_stream_uses_is_taken_behind_waits),
        cmocka_unit_test(a_block_that_cannot_be_waited_for_does_not_hide_another),
        cmocka_unit_test(a_large_block_in_use_is_not_waited_for_by_a_small_one),
        cmocka_unit_test(neighbours_of_several_streams_are_taken_together_behind_waits),
        cmocka_unit_test(a_use_that_is_over_holds_nothing_back),
        cmocka_unit_test(a_stream_that_owes_is_recorded_on_by_who_looks),
        cmocka_unit_test(a_retired_stream_that_owed_is_not_recorded_on),
        cmocka_unit_test(a_captured_stream_that_owes_is_left_alone),
        cmocka_unit_test(a_fence_that_a_capture_takes_is_recorded_again),
        cmocka_unit_test(a_lost_stream_that_owed_is_not_recorded_on),
        cmocka_unit_test(a_default_stream_of_another_thread_is_not_recorded_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
