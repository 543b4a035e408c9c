/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves: the pool reclaims memory freed on lost streams (of threads that ended, or destroyed without retire)
 * before it grows much: by an event of the context without a wait, or by a counted synchronisation, but never in a call that may
 * not wait. This ends no capture that is announced or on a stream that the pool has seen.
 */
#include "unit/pool/test_api.h"

#define ROUNDS 400
#define BLOCK  (8 * MIB)
#define MOST   (512 * MIB) /* all rounds together request 3,200 MiB */

static void begin_lost(struct api *api, bool streams_may_die, const char *driver)
{
    flw_sim_config world = flw_sim_config_default(26);
    world.check = 1;
    assert_true(flw_sim_open(&api->sim));
    assert_int_equal(api->sim.play(driver, NULL, 0), 1);
    api_begin(api, &world);
    fallow_pool_config config = api_config(api);
    config.streams_may_die = streams_may_die;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static void end_lost(struct api *api)
{
    assert_int_equal(fallow_pool_validate(api->pool), FALLOW_OK);
    assert_int_equal(api->sim.play(NULL, NULL, 0), 1);
    api_end(api);
}

struct round {
    struct api *api;
    CUcontext context;
    CUstream stream;
    uint32_t flags;
    unsigned number;
};

static void *use_once(void *argument)
{
    struct round *round = argument;
    struct api *api = round->api;
    CUcontext context = NULL;
    if (api->sim.cu.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == NULL) {
        assert_int_equal(api->sim.cu.cuCtxSetCurrent(round->context), CUDA_SUCCESS);
    }
    size_t sizes[] = {BLOCK, 700 + 100 * (round->number % 50)};
    for (unsigned i = 0; i < 2; i++) {
        fallow_request request;
        void *ptr = NULL;
        fallow_request_init(&request);
        request.size_bytes = sizes[i];
        request.flags = round->flags;
        assert_int_equal(fallow_alloc_request(api->pool, &request, round->stream, &ptr), FALLOW_OK);
        api_use(api, ptr, sizes[i], round->stream);
        assert_int_equal(fallow_free(api->pool, ptr, round->stream), FALLOW_OK);
    }
    return NULL;
}

static void in_a_thread(struct round *round)
{
    pthread_t thread;
    round->stream = CU_STREAM_PER_THREAD;
    assert_int_equal(pthread_create(&thread, NULL, use_once, round), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Use a new stream. No handle is reused: without streams_may_die a reused handle requires a retire. */
static void on_a_stream(struct round *round)
{
    static CUstream streams[ROUNDS];
    for (unsigned i = 0; i < ROUNDS && round->number == 0; i++) {
        assert_int_equal(round->api->sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
    }
    round->stream = streams[round->number];
    (void)use_once(round);
    assert_int_equal(round->api->sim.cu.cuStreamDestroy_v2(round->stream), 0);
}

static void (*const kinds[])(struct round *round) = {in_a_thread, on_a_stream};

static struct round begin_rounds(struct api *api, uint32_t flags)
{
    struct round round = {.api = api, .flags = flags};
    assert_int_equal(api->sim.cu.cuCtxGetCurrent(&round.context), CUDA_SUCCESS);
    return round;
}

static void go_on(struct round *round, unsigned kind)
{
    for (unsigned i = 0; i < ROUNDS; i++, round->number++) {
        kinds[kind](round);
    }
}

static void what_gone_streams_freed_is_reclaimed_without_a_wait(void **state)
{
    for (unsigned i = 0; i < 4; i++) {
        struct api api;
        begin_lost(&api, i % 2 != 0, NULL);
        struct round round = begin_rounds(&api, FALLOW_REQUEST_NO_WAIT);
        go_on(&round, i / 2);
        fallow_stats stats = api_stats(&api);
        assert_in_range(stats.peak_reserved_bytes, 0, MOST);
        assert_int_equal(stats.wait_count, 0);
        end_lost(&api);
    }
}

static void without_an_event_of_the_context_it_is_waited_for_and_counted(void **state)
{
    for (unsigned i = 0; i < 2; i++) {
        struct api api;
        begin_lost(&api, i != 0, "old");
        struct round round = begin_rounds(&api, 0);
        go_on(&round, 0);
        assert_in_range(api_stats(&api).peak_reserved_bytes, 0, MOST);
        assert_in_range(api_stats(&api).wait_count, 1, ROUNDS / 4);
        uint64_t waits = api_stats(&api).wait_count;
        round.flags = FALLOW_REQUEST_NO_WAIT;
        go_on(&round, 0);
        assert_int_equal(api_stats(&api).wait_count, waits);
        end_lost(&api);
    }
}

static void a_refused_event_is_recorded_again(void **state)
{
    struct api api;
    begin_lost(&api, false, NULL);
    for (unsigned n = 1; n <= 20; n++) {
        assert_int_equal((api.sim.fail)("cuCtxRecordEvent", n, CUDA_ERROR_NOT_PERMITTED, 0), 1);
    }
    struct round round = begin_rounds(&api, FALLOW_REQUEST_NO_WAIT);
    go_on(&round, 0);
    uint64_t held = api_stats(&api).reserved_bytes;
    go_on(&round, 0);
    assert_in_range(api_stats(&api).peak_reserved_bytes, held, held + MOST);
    assert_int_equal(api_stats(&api).wait_count, 0);
    end_lost(&api);
}

/* The pool has seen the captured stream, so the capture survives announced or not. */
static void a_capture_goes_on_beside_it(void **state)
{
    for (unsigned is_announced = 0; is_announced < 2; is_announced++) {
        struct api api;
        fallow_capture *capture = NULL;
        begin_lost(&api, false, NULL);
        void *ptr = api_alloc(&api, 100, api.other);
        assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
        if (is_announced) {
            assert_int_equal(fallow_capture_begin(api.pool, api.other, &capture), FALLOW_OK);
        }
        api_begin_capturing(&api, api.other);
        struct round round = begin_rounds(&api, 0);
        go_on(&round, 0);
        CUgraph graph = api_end_capturing(&api, api.other);
        assert_int_equal(api.sim.cu.cuGraphDestroy(graph), 0);
        if (is_announced) {
            assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
            assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
        }
        uint64_t held = api_stats(&api).reserved_bytes;
        go_on(&round, 0); /* after the capture the pool reclaims the memory */
        assert_in_range(api_stats(&api).peak_reserved_bytes, 0, held + MOST);
        end_lost(&api);
    }
}

/* Each stream holds a slab, frees too little for a fence, and the handle is not reused. */
static void streams_that_nothing_names_again_are_noticed(void **state)
{
    struct api api;
    CUstream streams[ROUNDS];
    begin_lost(&api, false, NULL);
    for (unsigned i = 0; i < ROUNDS; i++) {
        assert_int_equal(api.sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        void *ptr = api_alloc(&api, 5000, streams[i]);
        api_use(&api, ptr, 5000, streams[i]);
        assert_int_equal(fallow_free(api.pool, ptr, streams[i]), FALLOW_OK);
        assert_int_equal(api.sim.cu.cuStreamDestroy_v2(streams[i]), 0);
    }
    fallow_stats stats = api_stats(&api);
    assert_in_range(stats.stream_count, 1, 16);
    assert_in_range(stats.lost_streams, ROUNDS - 16, ROUNDS - 1);
    assert_in_range(stats.peak_reserved_bytes, 0, 32 * MIB);
    end_lost(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_gone_streams_freed_is_reclaimed_without_a_wait),
        cmocka_unit_test(without_an_event_of_the_context_it_is_waited_for_and_counted),
        cmocka_unit_test(a_refused_event_is_recorded_again),
        cmocka_unit_test(a_capture_goes_on_beside_it),
        cmocka_unit_test(streams_that_nothing_names_again_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
