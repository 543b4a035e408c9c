/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: pools with any current context in the calling thread: none, another, one broken by an
 * error, one destroyed by another thread; and drivers that require a context for calls that need
 * none in cuda.h. */
#include "unit/pool/test_api.h"

#include <unistd.h>

#include "fallow/share.h"
#include "fallow/sleep.h"

enum current {
    NONE,   /* none */
    OTHER,  /* another */
    BROKEN, /* another, by an error that sticks */
    ENDED,  /* another, which is no more */
    CURRENT_COUNT
};

static const char *const names[CURRENT_COUNT + 1] = {"none", "another", "a broken one",
                                                     "an ended one", "its own"};

struct abroad {
    struct api *api;
    CUcontext context;
};

static void *end_context(void *argument)
{
    const struct abroad *abroad = argument;
    return abroad->api->sim.cu.cuCtxDestroy_v2(abroad->context) == 0 ? NULL : argument;
}

/* From now on that is current. */
static void go(struct abroad *abroad, enum current current)
{
    const struct flw_driver *cu = &abroad->api->sim.cu;
    pthread_t thread;
    void *problem = NULL;
    if (current == NONE) {
        assert_int_equal(cu->cuCtxPushCurrent_v2(abroad->context), 0);
        assert_int_equal(cu->cuCtxSetCurrent(NULL), 0);
        return;
    }
    assert_int_equal(cu->cuCtxCreate_v2(&abroad->context, 0, 0), 0);
    if (current == BROKEN) {
        assert_true((abroad->api->sim.fail)("cuCtxSynchronize", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1));
        assert_int_equal(cu->cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    } else if (current == ENDED) {
        assert_int_equal(pthread_create(&thread, NULL, end_context, abroad), 0);
        assert_int_equal(pthread_join(thread, &problem), 0);
        assert_null(problem);
    }
}

static void come_back(struct abroad *abroad, enum current current)
{
    CUcontext popped;
    const struct flw_driver *cu = &abroad->api->sim.cu;
    if (current == BROKEN || current == OTHER) {
        assert_int_equal(cu->cuCtxDestroy_v2(abroad->context), 0);
    } else {
        (void)cu->cuCtxPopCurrent_v2(&popped);
    }
}

#define EXPECT(call) expect(api, current, (call), #call)

static void expect(struct api *api, enum current current, fallow_status status, const char *call)
{
    const char *driver_call = NULL;
    if (status != FALLOW_OK) {
        int error = fallow_pool_last_driver_error(api->pool, &driver_call);
        fail_msg("with %s current: %s: %s (%s answered %d)", names[current], call,
                 fallow_status_name(status), driver_call == NULL ? "no call" : driver_call, error);
    }
}

/* The program's work is given with the pool's context current. */
static void alloc_and_free(struct api *api, CUcontext home, enum current current, size_t bytes,
                           CUstream stream)
{
    void *ptr = NULL;
    EXPECT(fallow_alloc(api->pool, bytes, stream, &ptr));
    assert_int_equal(api->sim.cu.cuCtxPushCurrent_v2(home), 0);
    api_use(api, ptr, bytes, stream);
    assert_int_equal(api->sim.cu.cuCtxPopCurrent_v2(&home), 0);
    EXPECT(fallow_free(api->pool, ptr, stream));
}

/* Growth, fences, a steal, polls, waits, a trim; of every stream there is. */
static void live(struct api *api, CUcontext home, enum current current)
{
    void *ptr = NULL;
    CUstream streams[] = {api->stream, api->other, NULL, CU_STREAM_PER_THREAD};
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        alloc_and_free(api, home, current, 300, streams[i]);
        alloc_and_free(api, home, current, 40 * MIB, streams[i]);
        alloc_and_free(api, home, current, 90 * MIB, streams[i]);
        EXPECT(fallow_pool_poll(api->pool));
    }
    EXPECT(fallow_alloc(api->pool, 50 * MIB, api->stream, &ptr));
    EXPECT(fallow_record_use(api->pool, ptr, api->other));
    EXPECT(fallow_free(api->pool, ptr, api->stream));
    EXPECT(fallow_pool_trim(api->pool, 0, 0, NULL));
    api->sim.step(UINT64_MAX);
    EXPECT(fallow_pool_trim(api->pool, 0, UINT64_MAX, NULL));
    alloc_and_free(api, home, current, 30 * MIB, api->other);
    EXPECT(fallow_pool_trim(api->pool, 0, 1000000000, NULL));
    EXPECT(fallow_pool_validate(api->pool));
}

/* A capture, a sleep, an export, a block of a handle's own, one filled with zeros, one that is all of a large
 * handle, the end of a stream. */
static void live_rarely(struct api *api, CUcontext home, enum current current)
{
    void *ptr = NULL;
    fallow_capture *capture = NULL;
    fallow_sleep_request sleep;
    fallow_share share;
    fallow_request request;
    fallow_sleep_request_init(&sleep);
    fallow_share_init(&share);
    fallow_request_init(&request);
    EXPECT(fallow_capture_begin(api->pool, api->stream, &capture));
    EXPECT(fallow_alloc(api->pool, 3 * MIB, api->stream, &ptr));
    EXPECT(fallow_free(api->pool, ptr, api->stream));
    EXPECT(fallow_capture_end(capture));
    EXPECT(fallow_capture_release(capture));
    request.size_bytes = 5 * MIB;
    request.flags = FALLOW_REQUEST_EXPORT_FD | FALLOW_REQUEST_ZERO;
    EXPECT(fallow_alloc_request(api->pool, &request, api->stream, &ptr));
    EXPECT(fallow_export(api->pool, ptr, FALLOW_HANDLE_FD, &share));
    assert_int_equal(close(share.descriptor), 0);
    EXPECT(fallow_free(api->pool, ptr, api->stream));
    alloc_and_free(api, home, current, 300 * MIB, api->stream);
    alloc_and_free(api, home, current, 300 * MIB, api->other);
    sleep.flags = FALLOW_SLEEP_WAIT;
    EXPECT(fallow_alloc(api->pool, 300 * MIB, api->stream, &ptr));
    EXPECT(fallow_pool_sleep(api->pool, &sleep));
    EXPECT(fallow_pool_wake(api->pool));
    EXPECT(fallow_free(api->pool, ptr, api->stream));
    EXPECT(fallow_stream_retire(api->pool, api->other));
    EXPECT(fallow_pool_trim(api->pool, 0, UINT64_MAX, NULL));
    EXPECT(fallow_pool_validate(api->pool));
}

struct kind {
    fallow_page_source source;
    fallow_order order;
    fallow_reuse_policy reuse;
    uint32_t checks;
    bool streams_may_die;
};

static const struct kind kinds[] = {
    {FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_STREAM, FALLOW_REUSE_WAIT, 0, false},
    {FALLOW_PAGES_SEGMENTS, FALLOW_ORDER_STREAM, FALLOW_REUSE_WAIT, 0, false},
    {FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_STREAM, FALLOW_REUSE_COMPLETED, 0, false},
    {FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_STREAM, FALLOW_REUSE_SAME_STREAM, 0, false},
    {FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_CONTEXT, FALLOW_REUSE_WAIT, 0, false},
    {FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_STREAM, FALLOW_REUSE_WAIT, FALLOW_CHECK_LEAKS, false},
    {FALLOW_PAGES_AUTOMATIC, FALLOW_ORDER_STREAM, FALLOW_REUSE_WAIT, 0, true}};

/* Create and use a pool with its own context current first, then with `current`, which the pool
 * must not change. */
static void live_with(enum current current, const struct kind *kind, bool wants_context)
{
    struct api api;
    struct abroad abroad = {&api, NULL};
    CUcontext home = NULL, before = NULL, after = NULL;
    flw_sim_config world = flw_sim_config_default(7);
    world.check = 1;
    world.wants_context = wants_context;
    api_begin(&api, &world);
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&home), 0);
    abroad.context = home;
    fallow_pool_config config = api_config(&api);
    config.page_source = kind->source;
    config.order = kind->order;
    config.reuse_policy = kind->reuse;
    config.checks = kind->checks;
    config.streams_may_die = kind->streams_may_die;
    config.limit_bytes = 700 * MIB;
    bool may_share = kind->source == FALLOW_PAGES_AUTOMATIC && kind->order == FALLOW_ORDER_STREAM &&
                     kind->checks == 0;
    config.handle_types = may_share ? FALLOW_HANDLE_FD : 0;
    config.one_handle_bytes = may_share ? 256 * MIB : 0;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    live(&api, home, CURRENT_COUNT);
    go(&abroad, current);
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&before), 0);
    live(&api, home, current);
    if (may_share) {
        live_rarely(&api, home, current);
    }
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&after), 0);
    assert_ptr_equal(before, after);
    fallow_pool_destroy(api.pool);
    api.pool = NULL;
    come_back(&abroad, current);
    api_end(&api);
}

static void live_with_all(bool wants_context)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (enum current current = NONE; current < CURRENT_COUNT; current++) {
            live_with(current, &kinds[i], wants_context);
        }
    }
}

static void a_pool_serves_whichever_context_is_current(void **state)
{
    live_with_all(false);
}

static void a_driver_that_wants_a_context_for_every_call_gets_it(void **state)
{
    live_with_all(true);
}

/* Test the frame itself, with a capture mode that belongs to the current context. */
static void what_the_current_context_died_of_is_no_answer_about_the_mode(void **state)
{
    static const CUresult answers[] = {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED,
                                       CUDA_ERROR_ILLEGAL_ADDRESS};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct api api;
        CUcontext other = NULL, current = NULL;
        api_begin_with_pool(&api);
        (void)api_alloc(&api, 5 * MIB, api.stream); /* a growth only: needs nothing but the mode */
        assert_int_equal(api.sim.cu.cuCtxCreate_v2(&other, 0, 0), 0);
        assert_true((api.sim.fail)("cuThreadExchangeStreamCaptureMode", 1, (int)answers[i], 0));
        (void)api_alloc(&api, 90 * MIB, api.stream);
        assert_int_equal(api.sim.cu.cuCtxGetCurrent(&current), 0);
        assert_ptr_equal(current, other);
        assert_int_equal(api.sim.cu.cuCtxDestroy_v2(other), 0);
        api_end(&api);
    }
}

/* A stream of the other context announces a use, or allocates; then that context
 * breaks, or ends. */
static void the_end_of_a_users_context_is_not_the_pools(void **state)
{
    for (unsigned n = 0; n < 8; n++) {
        struct api api;
        CUcontext other = NULL, popped;
        CUstream foreign = NULL, unknown = NULL;
        void *none = NULL;
        bool breaks = n % 2 == 0, stays_current = n / 2 % 2 == 0, is_late = n / 4 == 0;
        flw_sim_config world = flw_sim_config_default(7);
        world.check = 1;
        api_begin(&api, &world);
        api.pool = api_create(&api);
        void *ptr = api_alloc(&api, 5 * MIB, api.stream);
        void *kept = api_alloc(&api, 7 * MIB, api.stream);
        assert_int_equal(api.sim.cu.cuCtxCreate_v2(&other, 0, 0), 0);
        assert_int_equal(api.sim.cu.cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING), 0);
        assert_int_equal(api.sim.cu.cuStreamCreate(&unknown, CU_STREAM_NON_BLOCKING), 0);
        assert_int_equal(fallow_record_use(api.pool, ptr, foreign), FALLOW_OK);
        assert_int_equal(fallow_record_use(api.pool, kept, foreign), FALLOW_OK);
        assert_int_equal(fallow_free(api.pool, api_alloc(&api, 5000, foreign), foreign), FALLOW_OK);
        if (!is_late) {
            assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        }
        if (breaks) {
            assert_true((api.sim.fail)("cuCtxSynchronize", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1));
            assert_int_equal(api.sim.cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        if (!stays_current || !breaks) {
            assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
        }
        if (!breaks) {
            assert_int_equal(api.sim.cu.cuCtxDestroy_v2(other), 0);
        }
        assert_int_equal(fallow_alloc(api.pool, 90 * MIB, foreign, &none), FALLOW_INVALID_STREAM);
        assert_int_equal(fallow_alloc(api.pool, 90 * MIB, unknown, &none), FALLOW_INVALID_STREAM);
        assert_int_equal(fallow_record_use(api.pool, kept, unknown), FALLOW_INVALID_STREAM);
        assert_null(none);
        if (is_late) {
            assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        }
        assert_int_equal(fallow_free(api.pool, kept, api.stream), FALLOW_OK);
        assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
        assert_int_equal(fallow_pool_trim(api.pool, 0, UINT64_MAX, NULL), FALLOW_OK);
        assert_int_equal(api_stats(&api).reserved_bytes, 0);
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        if (breaks) {
            assert_int_equal(api.sim.cu.cuCtxDestroy_v2(other), 0);
        }
        fallow_pool_destroy(api.pool);
        api.pool = NULL;
        api_end(&api);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_serves_whichever_context_is_current),
        cmocka_unit_test(a_driver_that_wants_a_context_for_every_call_gets_it),
        cmocka_unit_test(the_end_of_a_users_context_is_not_the_pools),
        cmocka_unit_test(what_the_current_context_died_of_is_no_answer_about_the_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
