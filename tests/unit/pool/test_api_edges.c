/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: host memory for many streams that end, and races of threads that end, retire and capture.
 */
#include "test_api.h"

#include <pthread.h>
#include <unistd.h>

#include "fallow/extend.h"
#include "support/trim.h"

/* ---- captures */

/* ---- memory of lost streams */

/* ---- ending threads and contexts */

static size_t resident_bytes(void)
{
    char line[128], *second = NULL;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    (void)fclose(file);
    (void)strtoul(line, &second, 10); /* all pages */
    size_t resident = strtoul(second, NULL, 10);
    assert_int_not_equal(resident, 0);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Use more than 65,536 streams at once, retire them, then use as many again in the same table
 * entries. The streams are announced as users, because an announced use takes an entry and nothing
 * else. */
TEST(retired_streams_make_room_for_as_many_again)
{
    enum {
        PLACES = 66000
    };
    static CUstream streams[PLACES];
    struct api api;
    flw_sim_config world = flw_sim_config_default(12);
    world.schedule = FLW_SIM_CLOCK;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    size_t first_bytes = 0;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < PLACES; i++) {
            void *ptr = api_alloc(&api, 300, api.stream);
            assert_int_equal(api.sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
            assert_int_equal(fallow_record_use(api.pool, ptr, streams[i]), FALLOW_OK);
            assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        }
        assert_int_equal(api_stats(&api).stream_count, PLACES + 1);
        for (size_t i = 0; i < PLACES; i++) {
            assert_int_equal(fallow_stream_retire(api.pool, streams[i]), FALLOW_OK);
            assert_int_equal(api.sim.cu.cuStreamDestroy_v2(streams[i]), 0);
        }
        api.sim.step(UINT64_MAX);
        assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
        size_t host_bytes = api_stats(&api).host_bytes;
        assert_true(round == 0 || host_bytes < first_bytes + first_bytes / 16);
        first_bytes = host_bytes;
    }
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

/* Each stream has a new handle, so no later stream finds the thread's old entry. */
TEST(a_thread_keeps_nothing_for_streams_that_are_gone)
{
    struct api api;
    size_t before = 0;
    flw_sim_config world = flw_sim_config_default(11);
    world.mild = FLW_SIM_MILD_HANDLE_REUSE;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    for (unsigned i = 0; i < 1100; i++) {
        CUstream stream = NULL;
        assert_int_equal(api.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
        void *ptr = api_alloc(&api, 300, stream);
        assert_int_equal(fallow_free(api.pool, ptr, stream), FALLOW_OK);
        assert_int_equal(fallow_stream_retire(api.pool, stream), FALLOW_OK);
        assert_int_equal(api.sim.cu.cuStreamDestroy_v2(stream), 0);
        before = i == 100 ? resident_bytes() : before;
    }
#if !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)                     /* a sanitizer's own memory grows */
    assert_true(resident_bytes() < before + 16 * MIB); /* a cache has 56 KiB */
#else
    assert_true(before > 0);
#endif
    api_end(&api);
}

/* ---- races */

struct race {
    struct api *api;
    CUstream stream;
    pthread_barrier_t barrier;
    unsigned rounds;
};

static void *allocate_and_end_at_once(void *argument)
{
    struct race *race = argument;
    void *ptr = NULL;
    (void)!fallow_alloc(race->api->pool, 300, race->stream, &ptr);
    (void)fallow_free(race->api->pool, ptr, race->stream);
    (void)pthread_barrier_wait(&race->barrier);
    return NULL;
}

TEST(a_thread_may_end_while_its_stream_is_retired)
{
    struct api api;
    api_begin_with_pool(&api);
    struct race race = {.api = &api, .stream = api.stream, .rounds = 1000};
    for (unsigned i = 0; i < race.rounds; i++) {
        pthread_t threads[3];
        (void)pthread_barrier_init(&race.barrier, NULL, 4);
        for (unsigned t = 0; t < 3; t++) {
            assert_int_equal(pthread_create(&threads[t], NULL, allocate_and_end_at_once, &race), 0);
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

TEST(a_block_may_be_freed_while_a_capture_ends)
{
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
    assert_int_equal(api_stats(&api).deferred_bytes, 0);
    api_end(&api);
}
