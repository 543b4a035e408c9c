/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what an allocation waits for on the host, and what it says where it may not.
 */
#include "unit/pool/test_api.h"

#include <pthread.h>

#define USERS 5 /* more than the uses that a block names one by one */

/* A stream of another context used a block and was destroyed without notice: only its own context
 * covers what it had been given. */
static void wait_for_lost_foreign(bool has_many_users)
{
    struct api api;
    CUcontext own = NULL, other = NULL;
    CUstream foreign = NULL, users[USERS];
    api_begin(&api, NULL);
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&own), 0);
    assert_int_equal(api.sim.cu.cuCtxCreate_v2(&other, 0, 0), 0);
    assert_int_equal(api.sim.cu.cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(api.sim.cu.cuCtxSetCurrent(own), 0);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 64 * MIB;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    void *ptr = api_alloc(&api, 40 * MIB, api.stream);
    for (size_t i = 0; has_many_users && i < USERS; i++) {
        assert_int_equal(api.sim.cu.cuStreamCreate(&users[i], CU_STREAM_NON_BLOCKING), 0);
        assert_int_equal(fallow_record_use(api.pool, ptr, users[i]), FALLOW_OK);
    }
    assert_int_equal(fallow_record_use(api.pool, ptr, foreign), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(api.sim.cu.cuCtxSetCurrent(other), 0);
    api_use(&api, ptr, 40 * MIB, foreign);
    assert_int_equal(api.sim.cu.cuStreamDestroy_v2(foreign), 0);
    assert_int_equal(api.sim.cu.cuCtxSetCurrent(own), 0);

    assert_int_equal(api_ask_elsewhere(&api, foreign), FALLOW_INVALID_STREAM);
    assert_int_equal(api_stats(&api).lost_streams, 1);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    void *again = api_alloc(&api, 40 * MIB, api.stream);
    api_use(&api, again, 40 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, again, api.stream), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(flw_sim_print_violations(&api.sim), 0);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

static void memory_of_a_lost_stream_of_another_context_waits_for_that_context(void **state)
{
    (void)state;
    wait_for_lost_foreign(false);
    wait_for_lost_foreign(true);
}

struct other_thread {
    struct api *api;
    CUcontext context;
    pthread_barrier_t barrier;
    fallow_status status;
};

/* Leaves memory that is free on its own default stream, which nobody else can name. */
static void *use_own_default_stream(void *context)
{
    struct other_thread *thread = context;
    fallow_stream own = (fallow_stream)2;
    void *ptr = NULL;
    (void)thread->api->sim.cu.cuCtxSetCurrent(thread->context);
    for (size_t bytes = 2 * MIB; bytes <= 12 * MIB && thread->status == FALLOW_OK;
         bytes += 10 * MIB) { /* the first free after a growth is fenced, the second is not */
        thread->status = fallow_alloc(thread->api->pool, bytes, own, &ptr);
        if (thread->status == FALLOW_OK) {
            thread->status = fallow_free(thread->api->pool, ptr, own);
        }
    }
    pthread_barrier_wait(&thread->barrier);
    pthread_barrier_wait(&thread->barrier);
    return NULL;
}

static void another_threads_default_stream_does_not_end_a_wait(void **state)
{
    (void)state;
    struct api api;
    struct other_thread thread = {.api = &api};
    pthread_t started;
    api_begin(&api, NULL);
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&thread.context), 0);
    fallow_pool_config config = api_config(&api);
    config.economy = FALLOW_MEMORY_FIRST;
    config.reuse_policy = FALLOW_REUSE_COMPLETED;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(pthread_barrier_init(&thread.barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&started, NULL, use_own_default_stream, &thread), 0);
    pthread_barrier_wait(&thread.barrier);
    assert_int_equal(thread.status, FALLOW_OK);
    void *ptr = api_alloc(&api, 2 * MIB, api.other);
    assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    ptr = api_alloc(&api, 12 * MIB, api.other);
    api_use(&api, ptr, 12 * MIB, api.other);
    assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
    uint64_t reserved = api_stats(&api).reserved_bytes, waits = api_stats(&api).wait_count;
    /* More than the economy wants to hold: it waits for what can be fenced, and grows no further. */
    void *mine = api_alloc(&api, 12 * MIB, api.stream);
    api_use(&api, mine, 12 * MIB, api.stream);
    assert_true(api_stats(&api).wait_count > waits);
    assert_int_equal(api_stats(&api).reserved_bytes, reserved);
    assert_int_equal(fallow_free(api.pool, mine, api.stream), FALLOW_OK);
    pthread_barrier_wait(&thread.barrier);
    assert_int_equal(pthread_join(started, NULL), 0);
    assert_int_equal(pthread_barrier_destroy(&thread.barrier), 0);
    api_end(&api);
}

#define FULL 16384 /* blocks that fill the pool */

static void a_request_that_may_not_wait_hears_of_small_blocks_too(void **state)
{
    (void)state;
    static void *blocks[FULL];
    struct api api;
    void *ptr = NULL;
    size_t count = 0;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 16 * MIB;
    config.reuse_policy = FALLOW_REUSE_COMPLETED;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    while (count < FULL && fallow_alloc(api.pool, 4096, api.other, &ptr) == FALLOW_OK) {
        blocks[count++] = ptr;
    }
    assert_true(count < FULL);
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = 4096;
    request.flags = FALLOW_REQUEST_NO_WAIT;
    assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &ptr),
                     FALLOW_OUT_OF_MEMORY);
    for (size_t i = 0; i < count; i += 2) { /* every slab has some out: none becomes a run */
        api_use(&api, blocks[i], 4096, api.other);
        assert_int_equal(fallow_free(api.pool, blocks[i], api.other), FALLOW_OK);
    }
    assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &ptr), FALLOW_WOULD_WAIT);
    for (size_t i = 1; i < count; i += 2) {
        assert_int_equal(fallow_free(api.pool, blocks[i], api.other), FALLOW_OK);
    }
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_a_lost_stream_of_another_context_waits_for_that_context),
        cmocka_unit_test(another_threads_default_stream_does_not_end_a_wait),
        cmocka_unit_test(a_request_that_may_not_wait_hears_of_small_blocks_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
