/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: data about single blocks, for any number of them: announced uses and tags. */
#include "test_api.h"

#include "fallow/sleep.h"
#include "support/trim.h"

#define MANY 5000 /* the table of notes grows three times */

static void many_blocks_keep_their_tags_and_their_announced_uses(void **state)
{
    static void *blocks[MANY];
    struct api api;
    api_begin_with_pool(&api);
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = 1024;
    uint64_t host = api_stats(&api).host_bytes;
    for (uint32_t i = 0; i < MANY; i++) {
        request.tag = i + 1;
        assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &blocks[i]),
                         FALLOW_OK);
    }
    assert_true(api_stats(&api).host_bytes > host + MANY * 40); /* block data counts as host
                                                                    memory */
    api_use(&api, blocks[0], 1024, api.stream);
    api_use(&api, blocks[MANY / 2], 1024, api.other);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(fallow_record_use(api.pool, blocks[i], api.other), FALLOW_OK);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        fallow_block info;
        fallow_block_init(&info);
        assert_int_equal(fallow_block_info(api.pool, blocks[i], &info), FALLOW_OK);
        assert_int_equal(info.tag, i + 1);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(fallow_free(api.pool, blocks[i], api.stream), FALLOW_OK);
    }
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).deferred_bytes, MANY * 1024);
    api.sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).deferred_bytes, 0);
    api_end(&api);
}

static void announcing_for_a_known_stream_makes_no_driver_call(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    void *first = api_alloc(&api, 4096, api.stream);
    void *second = api_alloc(&api, 4096, api.stream);
    assert_int_equal(fallow_record_use(api.pool, first, api.other), FALLOW_OK);
    uint64_t calls = flw_sim_read_ledger(&api.sim).call_count;
    assert_int_equal(fallow_record_use(api.pool, second, api.other), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, second, api.stream), FALLOW_OK);
    assert_int_equal(flw_sim_read_ledger(&api.sim).call_count, calls);
    assert_int_equal(fallow_free(api.pool, first, api.stream), FALLOW_OK);
    api_end(&api);
}

/* A retired stream is forgotten: the handle may be a new stream's. */
static void announcing_for_a_retired_streams_handle_looks_again(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    void *ptr = api_alloc(&api, 4096, api.stream);
    assert_int_equal(fallow_record_use(api.pool, ptr, api.other), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, api.other), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuStreamDestroy_v2(api.other), 0);
    assert_int_equal(fallow_record_use(api.pool, ptr, api.other), FALLOW_INVALID_STREAM);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

/* A stream in the thread's cache is trusted without a query, until it is retired. */
static void a_retired_streams_cache_announces_nothing(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    void *ptr = api_alloc(&api, 5 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, api_alloc(&api, MIB, api.other), api.other), FALLOW_OK);
    assert_int_equal(fallow_record_use(api.pool, ptr, api.other), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, api.other), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuStreamDestroy_v2(api.other), 0);
    assert_int_equal(fallow_record_use(api.pool, ptr, api.other), FALLOW_INVALID_STREAM);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

static void the_free_of_a_large_block_with_uses_is_as_exact_as_any(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    assert_int_equal(fallow_free(api.pool, api_alloc(&api, MIB, api.other), api.other), FALLOW_OK);
    unsigned char *ptr = api_alloc(&api, 5 * MIB, api.stream);
    api_use(&api, ptr, 5 * MIB, api.stream);
    assert_int_equal(fallow_record_use(api.pool, ptr, api.other), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr + 1, api.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_free(api.pool, ptr + 4096, api.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(api_stats(&api).requested_bytes, 5 * MIB);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_record_use(api.pool, ptr, api.other), FALLOW_INVALID_POINTER);
    assert_int_equal(api_stats(&api).misuse_count, 4);
    assert_int_equal(api_stats(&api).requested_bytes, 0);
    assert_int_equal(api_stats(&api).deferred_bytes, 5 * MIB);
    void *next = api_alloc(&api, 5 * MIB, api.stream);
    assert_ptr_not_equal(next, ptr);
    assert_int_equal(fallow_free(api.pool, next, api.stream), FALLOW_OK);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).deferred_bytes, 0);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

/* A stream of a separate context announces the use of a block, which is freed; stream and context
 * then end. */
static void use_and_end(struct api *api)
{
    CUcontext context = NULL, popped;
    CUstream foreign = NULL;
    assert_int_equal(api->sim.cu.cuCtxCreate_v2(&context, 0, 0), 0);
    assert_int_equal(api->sim.cu.cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(api->sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    void *ptr = api_alloc(api, 5 * MIB, api->stream);
    assert_int_equal(fallow_record_use(api->pool, ptr, foreign), FALLOW_OK);
    assert_int_equal(fallow_free(api->pool, ptr, api->stream), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api->pool, foreign), FALLOW_OK);
    assert_int_equal(api->sim.cu.cuCtxDestroy_v2(context), 0);
}

/* The context's end destroys the events before any query. The simulated driver reuses handles at
 * once, so the events of each round have the handles of the previous one. */
static void a_users_context_may_end_before_its_fence_is_asked_for(void **state)
{
    struct api api;
    CUcontext before = NULL, after = NULL;
    flw_sim_config world = flw_sim_config_default(5);
    world.schedule = FLW_SIM_HELD;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&before), 0);
    for (int round = 0; round < 6; round++) {
        use_and_end(&api);
        if (round % 2 == 0) {
            assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
        } else {
            assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK); /* records a fence */
            assert_int_equal(api.sim.cu.cuStreamSynchronize(api.stream), 0);
            assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
            assert_int_equal(api_stats(&api).reserved_bytes, 0);
        }
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    }
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&after), 0);
    assert_ptr_equal(before, after);
    api_end(&api);
}

/* Make a context of the program current; the first event has the handle of the pool's event in the
 * previous, destroyed context. */
static CUevent make_event_abroad(struct api *api, CUcontext *context)
{
    CUevent event = NULL;
    assert_int_equal(api->sim.cu.cuCtxCreate_v2(context, 0, 0), 0);
    assert_int_equal(api->sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), 0);
    return event;
}

static void the_events_of_a_context_are_gone_with_it(void **state)
{
    struct api api;
    CUcontext first = NULL, context = NULL, popped;
    CUstream foreign = NULL;
    api_begin_with_pool(&api);
    CUevent event = make_event_abroad(&api, &first);
    assert_int_equal(api.sim.cu.cuEventDestroy_v2(event), 0);
    assert_int_equal(api.sim.cu.cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    void *ptr = api_alloc(&api, 5 * MIB, api.stream);
    assert_int_equal(fallow_record_use(api.pool, ptr, foreign), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, foreign),
                     FALLOW_OK); /* records an event there */
    api.sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK); /* and keeps it */
    assert_int_equal(api.sim.cu.cuCtxDestroy_v2(first), 0);

    assert_ptr_equal(make_event_abroad(&api, &context), event);
    assert_ptr_equal(context, first);
    assert_int_equal(api.sim.cu.cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING), 0);
    api_use(&api, ptr, 5 * MIB, foreign);
    assert_int_equal(fallow_record_use(api.pool, ptr, foreign), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, foreign), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuEventQuery(event), 0); /* not recorded by the pool */
    assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    fallow_pool_destroy(api.pool);
    api.pool = NULL;
    assert_int_equal(api.sim.cu.cuEventQuery(event), 0); /* nor destroyed */
    assert_int_equal(api.sim.cu.cuCtxDestroy_v2(context), 0);
    api_end(&api);
}

/* The block is still allocated: no free has stamped the use. */
static void *use_abroad(struct api *api, CUcontext *context, CUstream *foreign)
{
    CUcontext popped;
    void *ptr = api_alloc(api, 5 * MIB, api->stream);
    assert_int_equal(api->sim.cu.cuCtxCreate_v2(context, 0, 0), 0);
    assert_int_equal(api->sim.cu.cuStreamCreate(foreign, CU_STREAM_NON_BLOCKING), 0);
    api_use(api, ptr, 5 * MIB, *foreign);
    assert_int_equal(api->sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    assert_int_equal(fallow_record_use(api->pool, ptr, *foreign), FALLOW_OK);
    return ptr;
}

static void a_sleep_and_a_destroy_wait_for_users_of_other_contexts(void **state)
{
    CUcontext context = NULL;
    CUstream foreign = NULL;
    for (int destroys = 0; destroys < 2; destroys++) {
        struct api api;
        api_begin_with_pool(&api);
        void *ptr = use_abroad(&api, &context, &foreign);
        if (destroys == 0) {
            fallow_sleep_request request;
            fallow_sleep_request_init(&request);
            request.flags = FALLOW_SLEEP_WAIT;
            assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_BUSY);
            assert_int_equal(fallow_pool_sleep(api.pool, &request), FALLOW_OK);
            assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        }
        api_end(&api); /* also checks the rules */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_blocks_keep_their_tags_and_their_announced_uses),
        cmocka_unit_test(announcing_for_a_known_stream_makes_no_driver_call),
        cmocka_unit_test(announcing_for_a_retired_streams_handle_looks_again),
        cmocka_unit_test(a_retired_streams_cache_announces_nothing),
        cmocka_unit_test(the_free_of_a_large_block_with_uses_is_as_exact_as_any),
        cmocka_unit_test(a_users_context_may_end_before_its_fence_is_asked_for),
        cmocka_unit_test(the_events_of_a_context_are_gone_with_it),
        cmocka_unit_test(a_sleep_and_a_destroy_wait_for_users_of_other_contexts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
