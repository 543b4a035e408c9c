/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public promises where two features meet: wishes and other streams' memory, captures
 * and retired streams, threads that end, memory of lost streams.
 */
#include "test_api.h"

#include <pthread.h>

/* ---- races */

struct race {
    struct api *api;
    CUstream stream;
    pthread_barrier_t barrier;
    unsigned rounds;
};

static void *lend_and_end_at_once(void *argument)
{
    struct race *race = argument;
    void *ptr = NULL;
    (void)!fallow_alloc(race->api->pool, 300, race->stream, &ptr);
    (void)fallow_free(race->api->pool, ptr, race->stream);
    (void)pthread_barrier_wait(&race->barrier);
    return NULL;
}

static void a_thread_may_end_while_its_stream_is_retired(void **state)
{
    (void)state;
    struct api api;
    api_begin_with_pool(&api);
    struct race race = {.api = &api, .stream = api.stream, .rounds = 1000};
    for (unsigned i = 0; i < race.rounds; i++) {
        pthread_t threads[3];
        (void)pthread_barrier_init(&race.barrier, NULL, 4);
        for (unsigned t = 0; t < 3; t++) {
            assert_int_equal(pthread_create(&threads[t], NULL, lend_and_end_at_once, &race), 0);
        }
        (void)pthread_barrier_wait(&race.barrier);
        assert_int_equal(fallow_stream_retire(api.pool, api.stream), FALLOW_OK);
        for (unsigned t = 0; t < 3; t++) {
            assert_int_equal(pthread_join(threads[t], NULL), 0);
        }
        (void)pthread_barrier_destroy(&race.barrier);
    }
    fallow_stats stats = api_stats(&api);
    assert_int_equal(stats.alloc_count, 3 * race.rounds);
    assert_int_equal(stats.free_count, 3 * race.rounds);
    api_end(&api);
}

static void *capture_and_end(void *argument)
{
    struct race *race = argument;
    fallow_capture *capture = NULL;
    fallow_status status = FALLOW_OK;
    for (unsigned i = 0; i < race->rounds && status == FALLOW_OK; i++) {
        status = fallow_capture_begin(race->api->pool, race->stream, &capture);
        if (status == FALLOW_OK) {
            status = fallow_capture_end(capture);
        }
        if (status == FALLOW_OK) {
            status = fallow_capture_release(capture);
        }
    }
    return (void *)(uintptr_t)status;
}

static void a_block_may_be_freed_while_a_capture_ends(void **state)
{
    (void)state;
    struct api api;
    pthread_t thread;
    void *result = NULL;
    static void *blocks[200000];
    api_begin_with_pool(&api);
    struct race race = {.api = &api, .stream = api.stream, .rounds = 20000};
    for (unsigned i = 0; i < 200000; i++) {
        blocks[i] = api_alloc(&api, 300, api.other);
    }
    assert_int_equal(pthread_create(&thread, NULL, capture_and_end, &race), 0);
    for (unsigned i = 0; i < 200000; i++) {
        assert_int_equal(fallow_free(api.pool, blocks[i], api.stream), FALLOW_OK);
    }
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((int)(uintptr_t)result, FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).pending_bytes, 0);
    api_end(&api);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_may_end_while_its_stream_is_retired),
        cmocka_unit_test(a_block_may_be_freed_while_a_capture_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
