/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public header's promises about captures, one by one. */
#include "support/trim.h"
#include "unit/pool/test_api.h"

#include <pthread.h>
#include <stdlib.h>

static void an_unannounced_capture_is_refused_and_survives(void **state)
{
    struct api api;
    void *ptr = &api;
    api_begin_with_pool(&api);
    api_begin_capturing(&api, api.stream);
    assert_int_equal(fallow_alloc(api.pool, 5000, api.stream, &ptr), FALLOW_CAPTURING);
    assert_null(ptr);
    api_drop_captured(&api, api.stream);
    ptr = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

/* Two streams free memory still in use by the device, the first 20 MiB, the second 12, without a
 * fence yet; then a capture of the first begins, unannounced. */
static void begin_with_one_captured(struct api *api, flw_sim_schedule schedule)
{
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = schedule;
    api_begin(api, &world);
    fallow_pool_config config = api_config(api);
    config.reuse_policy = FALLOW_REUSE_COMPLETED; /* another stream's free memory requires a
                                                      wait */
    config.limit_bytes = 34 * MIB;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
    void *first = api_alloc(api, 20 * MIB, api->stream);
    void *second = api_alloc(api, 12 * MIB, api->other);
    for (unsigned n = 0; n < 200; n++) {
        api_use(api, first, 20 * MIB, api->stream);
        api_use(api, second, 12 * MIB, api->other);
    }
    assert_int_equal(fallow_free(api->pool, first, api->stream), FALLOW_OK);
    assert_int_equal(fallow_free(api->pool, second, api->other), FALLOW_OK);
    api_begin_capturing(api, api->stream);
}

/* Memory freed on a captured stream returns after the capture; other memory during it. */
static void a_trim_waits_for_the_streams_that_are_not_captured(void **state)
{
    struct api api;
    size_t released = 0;
    begin_with_one_captured(&api, FLW_SIM_RANDOM);
    assert_int_equal(fallow_pool_trim(api.pool, 0, UINT64_MAX, &released), FALLOW_OK);
    assert_int_equal(released, 12 * MIB);
    api_drop_captured(&api, api.stream);
    assert_int_equal(fallow_pool_trim(api.pool, 0, UINT64_MAX, &released), FALLOW_OK);
    assert_int_equal(released, 20 * MIB);
    api_end(&api);
}

static void an_allocation_waits_for_the_streams_that_are_not_captured(void **state)
{
    struct api api;
    CUstream third = NULL;
    begin_with_one_captured(&api, FLW_SIM_HELD); /* only an unlimited wait completes it */
    assert_int_equal(api.sim.cu.cuStreamCreate(&third, CU_STREAM_NON_BLOCKING), 0);
    void *ptr = api_alloc(&api, 14 * MIB, third);
    api_drop_captured(&api, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, third), FALLOW_OK);
    api_end(&api);
}

static void captured_memory_keeps_its_address_until_release(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    fallow_block info;
    fallow_block_init(&info);
    api_begin_with_pool(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    api_begin_capturing(&api, api.stream);
    void *captured = api_alloc(&api, 5000, api.stream);
    api_use(&api, captured, 5000, api.stream);
    assert_int_equal(fallow_block_info(api.pool, captured, &info), FALLOW_OK);
    assert_int_equal(info.state, FALLOW_BLOCK_CAPTURED);
    assert_int_equal(fallow_free(api.pool, captured, api.stream), FALLOW_OK);
    void *again = api_alloc(&api, 5000, api.stream);
    assert_ptr_equal(again, captured); /* in order on one stream of one capture */
    api_use(&api, again, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, again, api.stream), FALLOW_OK);
    CUgraph graph = api_end_capturing(&api, api.stream);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_true(api_stats(&api).captured_bytes >= 5000);

    void *ordinary[64];
    for (size_t i = 0; i < 64; i++) {
        ordinary[i] = api_alloc(&api, 5000, i % 2 == 0 ? api.stream : api.other);
        assert_ptr_not_equal(ordinary[i], captured);
    }
    CUgraphExec executable = NULL;
    assert_int_equal(api.sim.cu.cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
    assert_int_equal(api.sim.cu.cuGraphLaunch(executable, api.stream), 0);
    for (size_t i = 0; i < 64; i++) {
        api_use(&api, ordinary[i], 5000, i % 2 == 0 ? api.stream : api.other);
        assert_int_equal(fallow_free(api.pool, ordinary[i], i % 2 == 0 ? api.stream : api.other),
                         FALLOW_OK);
    }
    assert_int_equal(api.sim.cu.cuGraphExecDestroy(executable), 0);
    assert_int_equal(api.sim.cu.cuGraphDestroy(graph), 0);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    /* The fences that the first one records are complete for the second. */
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    fallow_stats stats = api_stats(&api);
    assert_int_equal(stats.captured_bytes, 0);
    assert_int_equal(stats.reserved_bytes, 0);
    api_end(&api);
}

static void ordinary_memory_freed_inside_a_capture_waits_for_its_end(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    api_begin_with_pool(&api);
    void *before = api_alloc(&api, 5000, api.stream);
    api_use(&api, before, 5000, api.stream);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    api_begin_capturing(&api, api.stream);
    assert_int_equal(fallow_free(api.pool, before, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, before, api.stream), FALLOW_INVALID_POINTER);
    for (size_t i = 0; i < 64; i++) {
        void *ptr = api_alloc(&api, 5000, i % 2 == 0 ? api.stream : api.other);
        assert_ptr_not_equal(ptr, before);
    }
    api_drop_captured(&api, api.stream);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    api_end(&api); /* 64 blocks are still allocated: destroy releases them */
}

static void a_joined_stream_is_served_from_the_capture(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    CUevent event = NULL;
    fallow_block info;
    fallow_block_init(&info);
    api_begin_with_pool(&api);
    assert_int_equal(api.sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    api_begin_capturing(&api, api.stream);
    assert_int_equal(api.sim.cu.cuEventRecord(event, api.stream), 0);
    assert_int_equal(api.sim.cu.cuStreamWaitEvent(api.other, event, 0), 0);
    assert_int_equal(fallow_capture_join(capture, api.other), FALLOW_OK);
    void *ptr = api_alloc(&api, 3 * MIB, api.other);
    api_use(&api, ptr, 3 * MIB, api.other);
    assert_int_equal(fallow_block_info(api.pool, ptr, &info), FALLOW_OK);
    assert_int_equal(info.state, FALLOW_BLOCK_CAPTURED);
    assert_int_equal(api.sim.cu.cuEventRecord(event, api.other), 0);
    assert_int_equal(api.sim.cu.cuStreamWaitEvent(api.stream, event, 0), 0);
    api_drop_captured(&api, api.stream);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    void *plain = api_alloc(&api, 3 * MIB, api.other);
    assert_int_equal(fallow_block_info(api.pool, plain, &info), FALLOW_OK);
    assert_int_equal(info.state, FALLOW_BLOCK_LIVE);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, plain, api.other), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuEventDestroy_v2(event), 0);
    api_end(&api);
}

static void a_capture_has_room_for_32_streams(void **state)
{
    enum {
        ROOM = 32
    };
    struct api api;
    CUstream streams[ROOM];
    fallow_capture *capture = NULL;
    api_begin_with_pool(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    for (size_t i = 0; i < ROOM; i++) {
        assert_int_equal(api.sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
        assert_int_equal(fallow_capture_join(capture, streams[i]),
                         i < ROOM - 1 ? FALLOW_OK : FALLOW_BUSY);
    }
    assert_int_equal(fallow_stream_retire(api.pool, api.stream), FALLOW_BUSY);
    assert_int_equal(fallow_capture_release(capture), FALLOW_BUSY);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_end(capture), FALLOW_INVALID_CAPTURE);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    api_end(&api);
}

static void a_capture_that_is_over_is_refused(void **state)
{
    struct api api;
    fallow_capture *capture = NULL, *second = NULL;
    api_begin_with_pool(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    assert_int_not_equal(fallow_capture_begin(api.pool, api.stream, &second), FALLOW_OK);
    assert_null(second);
    assert_int_not_equal(fallow_capture_release(capture), FALLOW_OK); /* not ended yet */
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_end(capture), FALLOW_INVALID_CAPTURE);
    assert_int_equal(fallow_capture_join(capture, api.other), FALLOW_INVALID_CAPTURE);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_INVALID_CAPTURE);
    assert_int_equal(fallow_capture_end(capture), FALLOW_INVALID_CAPTURE);
    assert_int_equal(fallow_capture_release(NULL), FALLOW_INVALID_CAPTURE);
    api_end(&api);
}

static void a_pool_may_be_destroyed_with_a_capture_open(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    api_begin_with_pool(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    (void)api_alloc(&api, 5000, api.stream);
    fallow_pool_destroy(api.pool);
    assert_int_equal(fallow_capture_end(capture), FALLOW_INVALID_CAPTURE);
    api.pool = NULL;
    api_end(&api);
}

/* Pass a block from one stream of a capture to another, which frees it, or uses it while the first
 * one frees it. The checker verifies that only streams ordered after that reuse it. */
static void cross_streams(size_t bytes, bool announces)
{
    struct api api;
    fallow_capture *capture = NULL;
    CUevent forth, back;
    void *blocks[3];
    api_begin_with_pool(&api);
    assert_int_equal(api.sim.cu.cuEventCreate(&forth, CU_EVENT_DISABLE_TIMING), 0);
    assert_int_equal(api.sim.cu.cuEventCreate(&back, CU_EVENT_DISABLE_TIMING), 0);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    api_begin_capturing(&api, api.stream);
    void *first = api_alloc(&api, bytes, api.stream);
    api_use(&api, first, bytes, api.stream);
    assert_int_equal(api.sim.cu.cuEventRecord(forth, api.stream), 0);
    assert_int_equal(api.sim.cu.cuStreamWaitEvent(api.other, forth, 0), 0);
    assert_int_equal(fallow_capture_join(capture, api.other), FALLOW_OK);
    api_use(&api, first, bytes, api.other);
    if (announces) {
        assert_int_equal(fallow_record_use(api.pool, first, api.other), FALLOW_OK);
    }
    assert_int_equal(fallow_free(api.pool, first, announces ? api.stream : api.other), FALLOW_OK);
    for (size_t i = 0; i < 3; i++) {
        CUstream stream = i == 1 ? api.other : api.stream;
        blocks[i] = api_alloc(&api, bytes, stream);
        api_use(&api, blocks[i], bytes, stream);
    }
    assert_ptr_not_equal(blocks[0], first);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(fallow_free(api.pool, blocks[i], i == 2 ? api.other : api.stream),
                         FALLOW_OK);
    }
    assert_int_equal(api.sim.cu.cuEventRecord(back, api.other), 0);
    assert_int_equal(api.sim.cu.cuStreamWaitEvent(api.stream, back, 0), 0);
    CUgraph graph = api_end_capturing(&api, api.stream);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuGraphDestroy(graph), 0);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).captured_bytes, 0);
    assert_int_equal(api.sim.cu.cuEventDestroy_v2(forth), 0);
    assert_int_equal(api.sim.cu.cuEventDestroy_v2(back), 0);
    assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK); /* fences */
    assert_int_equal(api.sim.cu.cuCtxSynchronize(), 0);
    assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK);
    assert_int_equal(api_stats(&api).reserved_bytes, 0);
    api_end(&api);
}

static void a_captured_block_freed_on_another_stream_is_that_streams(void **state)
{
    cross_streams(5000, false);
    cross_streams(3 * MIB, false);
}

static void a_captured_block_with_announced_uses_waits_for_release(void **state)
{
    cross_streams(5000, true);
    cross_streams(3 * MIB, true);
}

/* A block that outlives the capture is an ordinary one, with announced uses. */
static void outlive(size_t bytes, bool announces, bool is_captured_again)
{
    struct api api;
    fallow_capture *capture = NULL, *next = NULL;
    api_begin_with_pool(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    void *ptr = api_alloc(&api, bytes, api.stream);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_INVALID_CAPTURE);
    if (announces) {
        assert_int_equal(fallow_record_use(api.pool, ptr, api.other), FALLOW_OK);
        api_use(&api, ptr, bytes, api.other);
    }
    if (is_captured_again) {
        assert_int_equal(fallow_capture_begin(api.pool, api.stream, &next), FALLOW_OK);
    }
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_INVALID_POINTER);
    if (is_captured_again &&
        !announces) { /* parked: in no other stream's order, nor in the graph's */
        assert_true(api_stats(&api).deferred_bytes >= bytes);
        assert_int_equal(fallow_capture_end(next), FALLOW_OK);
        assert_int_equal(api_stats(&api).deferred_bytes, 0);
    } else {
        void *again = api_alloc(&api, bytes, api.stream);
        assert_ptr_not_equal(again, ptr);
        api_use(&api, again, bytes, api.stream);
        assert_int_equal(fallow_free(api.pool, again, api.stream), FALLOW_OK);
    }
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

static void a_block_that_outlives_its_capture_waits_for_announced_uses(void **state)
{
    outlive(5000, true, false);
    outlive(3 * MIB, true, false);
    outlive(5000, true, true);
}

static void a_block_that_outlives_its_capture_is_parked_by_the_next(void **state)
{
    outlive(5000, false, true);
    outlive(3 * MIB, false, true);
}

#define FILLERS 64

/* Called inside an allocation: another thread ends and releases the capture. */
struct midway {
    struct api *api;
    fallow_capture *capture;
    void *fillers[FILLERS];
    CUstream third;
    CUcontext context;
    bool takes_place, is_armed;
};

/* The test's own assertions are for the main thread. */
static void require(bool is_so)
{
    if (!is_so) {
        abort();
    }
}

static void *end_midway(void *context)
{
    struct midway *midway = context;
    struct api *api = midway->api;
    require(api->sim.cu.cuCtxSetCurrent(midway->context) == CUDA_SUCCESS);
    require(fallow_capture_end(midway->capture) == FALLOW_OK);
    require(fallow_capture_release(midway->capture) == FALLOW_OK);
    require(fallow_capture_end(midway->capture) == FALLOW_INVALID_CAPTURE);
    for (size_t i = 0; i < FILLERS; i++) {
        require(fallow_free(api->pool, midway->fillers[i], api->other) == FALLOW_OK);
    }
    require(flw_test_trim(api->pool, 0) == FALLOW_OK); /* fences */
    api->sim.step(UINT64_MAX);
    require(flw_test_trim(api->pool, 0) == FALLOW_OK);
    if (midway->takes_place) { /* a stream that would get an unused domain of the capture's */
        void *ptr = NULL;
        require(fallow_alloc(api->pool, 2 * MIB, midway->third, &ptr) == FALLOW_OK);
        flw_sim_range range = {(uint64_t)(uintptr_t)ptr, 2 * MIB, 1, 0};
        require(api->sim.touch(midway->third, &range, 1) == 0);
        require(fallow_free(api->pool, ptr, midway->third) == FALLOW_OK);
    }
    return NULL;
}

static int make_room_midway(void *context, size_t size_bytes, fallow_stream stream)
{
    struct midway *midway = context;
    pthread_t thread;
    (void)size_bytes, (void)stream;
    if (!midway->is_armed) {
        return 0;
    }
    midway->is_armed = false;
    assert_int_equal(pthread_create(&thread, NULL, end_midway, midway), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return 1;
}

static void end_inside_an_allocation(size_t bytes, bool takes_place)
{
    struct api api;
    struct midway midway = {.api = &api, .takes_place = takes_place};
    api_begin(&api, NULL);
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&midway.context), 0);
    assert_int_equal(api.sim.cu.cuStreamCreate(&midway.third, CU_STREAM_NON_BLOCKING), 0);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = FILLERS * 2 * MIB;
    config.on_oom = make_room_midway;
    config.oom_context = &midway;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    for (size_t i = 0; i < FILLERS; i++) {
        midway.fillers[i] = api_alloc(&api, 2 * MIB, api.other);
    }
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &midway.capture), FALLOW_OK);
    midway.is_armed = true;
    void *ptr = api_alloc(&api, bytes, api.stream);
    assert_false(midway.is_armed);
    api_use(&api, ptr, bytes, api.stream);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    void *next = api_alloc(&api, bytes, midway.third);
    api_use(&api, next, bytes, midway.third);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, next, midway.third), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).captured_bytes, 0);
    /* All memory of the capture can be allocated and released. */
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_int_equal(api_stats(&api).reserved_bytes, 0);
    api_end(&api);
}

static void a_capture_released_inside_an_allocation_is_given_up_after_it(void **state)
{
    end_inside_an_allocation(5000, false);
    end_inside_an_allocation(3 * MIB, false);
    end_inside_an_allocation(5000, true);
    end_inside_an_allocation(2 * MIB, true);
}

/* A synchronisation of the context would kill the capture. */
static void a_pool_is_destroyed_beside_another_pools_capture(void **state)
{
    struct api api;
    fallow_pool *other = NULL;
    fallow_capture *capture = NULL;
    void *ptr = NULL;
    api_begin_with_pool(&api);
    other = api_create(&api);
    assert_int_equal(fallow_alloc(other, 3 * MIB, api.other, &ptr), FALLOW_OK);
    api_use(&api, ptr, 3 * MIB, api.other);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    api_begin_capturing(&api, api.stream);
    fallow_pool_destroy(other); /* the block's work is running */
    assert_int_equal(flw_sim_print_violations(&api.sim), 0);
    api_drop_captured(&api, api.stream);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    api_end(&api);
}

/* ---- the stream ends while the last work is running */

static void begin_where_streams_may_die(struct api *api)
{
    api_begin(api, NULL);
    fallow_pool_config config = api_config(api);
    config.streams_may_die = 1;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

/* Destroy the stream; the pool sees a new stream with the same handle. */
static void let_die(struct api *api, CUstream *stream)
{
    CUstream gone = *stream;
    assert_int_equal(api->sim.cu.cuStreamDestroy_v2(gone), 0);
    assert_int_equal(api->sim.cu.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING), 0);
    assert_ptr_equal(*stream, gone);
    void *small = api_alloc(api, 300, *stream);
    assert_int_equal(fallow_free(api->pool, small, *stream), FALLOW_OK);
    assert_int_equal(api_stats(api).lost_streams, 1);
}

/* Check that no stream gets memory in use by the ended stream's work, and that the memory is
 * released once it completes. */
static void expect_not_given_away(struct api *api, size_t bytes)
{
    CUstream streams[] = {api->stream, api->other};
    for (size_t i = 0; i < 2; i++) {
        void *blocks[6];
        for (size_t n = 0; n < 6; n++) {
            blocks[n] = api_alloc(api, bytes, streams[i]);
            api_use(api, blocks[n], bytes, streams[i]);
        }
        for (size_t n = 0; n < 6; n++) {
            assert_int_equal(fallow_free(api->pool, blocks[n], streams[i]), FALLOW_OK);
        }
    }
    assert_int_equal(flw_test_trim(api->pool, 0), FALLOW_OK);
    api->sim.step(UINT64_MAX);
    assert_int_equal(flw_sim_print_violations(&api->sim), 0);
    assert_int_equal(flw_test_trim(api->pool, 0), FALLOW_OK);
    assert_in_range(api_stats(api).reserved_bytes, 0, 4 * MIB); /* memory of the small blocks */
    assert_int_equal(fallow_pool_validate(api->pool), FALLOW_OK);
    api_end(api);
}

static void a_graphs_memory_outlives_the_work_of_its_dead_stream(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    CUgraphExec executable = NULL;
    begin_where_streams_may_die(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    api_begin_capturing(&api, api.stream);
    void *captured = api_alloc(&api, 3 * MIB, api.stream);
    api_use(&api, captured, 3 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, captured, api.stream), FALLOW_OK);
    CUgraph graph = api_end_capturing(&api, api.stream);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuGraphInstantiateWithFlags(&executable, graph, 0), 0);
    assert_int_equal(api.sim.cu.cuGraphLaunch(executable, api.stream), 0);
    assert_int_equal(api.sim.cu.cuGraphExecDestroy(executable), 0);
    assert_int_equal(api.sim.cu.cuGraphDestroy(graph), 0);
    let_die(&api, &api.stream);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    expect_not_given_away(&api, 3 * MIB);
}

static void a_block_parked_by_a_capture_outlives_the_work_of_its_dead_stream(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    begin_where_streams_may_die(&api);
    void *before = api_alloc(&api, 3 * MIB, api.stream);
    api_use(&api, before, 3 * MIB, api.stream);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    api_begin_capturing(&api, api.stream);
    assert_int_equal(fallow_free(api.pool, before, api.stream), FALLOW_OK);
    api_drop_captured(&api, api.stream);
    let_die(&api, &api.stream);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    expect_not_given_away(&api, 3 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unannounced_capture_is_refused_and_survives),
        cmocka_unit_test(a_trim_waits_for_the_streams_that_are_not_captured),
        cmocka_unit_test(an_allocation_waits_for_the_streams_that_are_not_captured),
        cmocka_unit_test(captured_memory_keeps_its_address_until_release),
        cmocka_unit_test(ordinary_memory_freed_inside_a_capture_waits_for_its_end),
        cmocka_unit_test(a_joined_stream_is_served_from_the_capture),
        cmocka_unit_test(a_capture_has_room_for_32_streams),
        cmocka_unit_test(a_capture_that_is_over_is_refused),
        cmocka_unit_test(a_pool_may_be_destroyed_with_a_capture_open),
        cmocka_unit_test(a_captured_block_freed_on_another_stream_is_that_streams),
        cmocka_unit_test(a_captured_block_with_announced_uses_waits_for_release),
        cmocka_unit_test(a_block_that_outlives_its_capture_waits_for_announced_uses),
        cmocka_unit_test(a_block_that_outlives_its_capture_is_parked_by_the_next),
        cmocka_unit_test(a_capture_released_inside_an_allocation_is_given_up_after_it),
        cmocka_unit_test(a_pool_is_destroyed_beside_another_pools_capture),
        cmocka_unit_test(a_graphs_memory_outlives_the_work_of_its_dead_stream),
        cmocka_unit_test(a_block_parked_by_a_capture_outlives_the_work_of_its_dead_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
