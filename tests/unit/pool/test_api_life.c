/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: structs of older and newer headers, segments of a context that was reset, and the child of a fork.
 */
#include "support/trim.h"
#include "unit/pool/test_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(defaults_record_the_callers_size_and_zero_the_rest)
{
    fallow_pool_config config;
    memset(&config, 0xA5, sizeof config);
    fallow_pool_config_init(&config);
    assert_int_equal(config.struct_size, sizeof config);
    const unsigned char *bytes = (const unsigned char *)&config;
    for (size_t i = sizeof config.struct_size; i < sizeof config; i++) {
        assert_int_equal(bytes[i], 0);
    }
}

TEST(a_config_of_an_older_or_newer_header_is_understood)
{
    struct api api;
    struct {
        fallow_pool_config config;
        unsigned char tail[64];
    } newer;
    api_begin(&api, NULL);
    memset(&newer, 0, sizeof newer);
    newer.config = api_config(&api);
    newer.config.struct_size = sizeof newer;
    assert_int_equal(fallow_pool_create(&newer.config, &api.pool), FALLOW_OK);
    fallow_pool_destroy(api.pool);
    newer.tail[63] = 1;
    assert_int_equal(fallow_pool_create(&newer.config, &api.pool), FALLOW_VERSION);
    assert_null(api.pool);
    fallow_pool_config older = api_config(&api);
    memset(&older.limit_bytes, 0xA5, sizeof older - offsetof(fallow_pool_config, limit_bytes));
    older.struct_size = offsetof(fallow_pool_config, limit_bytes);
    assert_int_equal(fallow_pool_create(&older, &api.pool), FALLOW_OK);
    fallow_pool_destroy(api.pool);
    older.struct_size = 0;
    assert_int_not_equal(fallow_pool_create(&older, &api.pool), FALLOW_OK);
    assert_null(api.pool);
    api_end(&api);
}

TEST(statistics_of_an_older_header_stay_in_its_bounds)
{
    struct api api;
    fallow_stats stats;
    memset(&stats, 0xA5, sizeof stats);
    api_begin_with_pool(&api);
    fallow_stats_init_sized(&stats, offsetof(fallow_stats, hit_count));
    assert_int_equal(fallow_pool_get_stats(api.pool, &stats), FALLOW_OK);
    assert_int_equal(stats.struct_size, offsetof(fallow_stats, hit_count));
    assert_true(stats.hit_count == 0xA5A5A5A5A5A5A5A5ull);
    api_end(&api);
}

struct noise {
    struct api *api;
    atomic_bool is_over;
};

/* Keeps the pool's locks taken much of the time. */
static void *make_noise(void *argument)
{
    struct noise *noise = argument;
    while (!atomic_load(&noise->is_over)) {
        void *ptr = NULL;
        (void)!fallow_alloc(noise->api->pool, 3 * MIB, noise->api->other, &ptr);
        (void)!fallow_free(noise->api->pool, ptr, noise->api->other);
        (void)!fallow_pool_poll(noise->api->pool);
    }
    return NULL;
}

static int use_in_child(struct api *api, void *live)
{
    void *ptr = api;
    fallow_stats stats;
    fallow_stats_init(&stats);
    alarm(20); /* a lock that nobody releases ends the child, not the test */
    bool good = fallow_alloc(api->pool, 5000, api->stream, &ptr) == FALLOW_INVALID_POOL;
    good = good && ptr == NULL;
    good = good && fallow_free(api->pool, live, api->stream) == FALLOW_INVALID_POOL;
    good = good && fallow_pool_get_stats(api->pool, &stats) == FALLOW_INVALID_POOL;
    fallow_pool_abandon(api->pool);
    fallow_pool_destroy(api->pool);
    return good ? 0 : 1;
}

static const size_t reset_sizes[] = {5000, 300000, 3 * MIB};

/* Reset the device and allocate in a new context, possibly at the addresses of the pool's segments. */
static void reset_the_context(struct api *api, CUdeviceptr own[3])
{
    CUcontext context = NULL;
    assert_int_equal(api->sim.cu.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    assert_int_equal(api->sim.cu.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(api->sim.cu.cuCtxSetCurrent(context), CUDA_SUCCESS);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(api->sim.cu.cuMemAlloc_v2(&own[i], 4 * MIB), CUDA_SUCCESS);
    }
}

TEST(segments_of_a_context_that_was_reset_are_neither_allocated_nor_freed)
{
    for (unsigned round = 0; round < 8; round++) {
        struct api api;
        CUdeviceptr own[3];
        fallow_order order = round % 2 == 0 ? FALLOW_ORDER_CONTEXT : FALLOW_ORDER_STREAM;
        api_begin(&api, NULL);
        fallow_pool_config config = api_config(&api);
        config.order = order;
        config.page_source = FALLOW_PAGES_SEGMENTS;
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
        for (size_t i = 0; i < 3; i++) {
            void *ptr = api_alloc(&api, reset_sizes[i], api.stream);
            assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        }
        assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
        reset_the_context(&api, own);
        void *ptr = NULL;
        size_t size = reset_sizes[round / 2 % 3], released = 1;
        if (order == FALLOW_ORDER_CONTEXT && round < 6) {
            assert_int_equal(fallow_alloc(api.pool, size, NULL, &ptr), FALLOW_DEVICE_LOST);
            assert_null(ptr);
        } else if (round < 6) {
            assert_int_equal(fallow_pool_trim(api.pool, 0, 0, &released), FALLOW_DEVICE_LOST);
            assert_int_equal(released, 0);
        } /* otherwise the context ends first */
        fallow_pool_destroy(api.pool);
        api.pool = NULL;
        assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, 12 * MIB);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(api.sim.cu.cuMemFree_v2(own[i]), CUDA_SUCCESS);
        }
        api_end(&api);
    }
}

TEST(the_child_of_a_fork_has_no_pools)
{
    struct api api;
    struct noise noise = {.api = &api};
    pthread_t thread;
    api_begin_with_pool(&api);
    void *live = api_alloc(&api, 5000, api.stream);
    assert_int_equal(pthread_create(&thread, NULL, make_noise, &noise), 0);
    for (int i = 0; i < 20; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) {
            _exit(use_in_child(&api, live));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&noise.is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(fallow_free(api.pool, live, api.stream), FALLOW_OK);
    api_end(&api);
}
