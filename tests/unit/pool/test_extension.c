/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves: a feature unknown to the core is notified of all events in pools that registered it, and
 * only there; memory it holds back is released before a caller's callback; a cache that it refuses
 * is not made. */
#include "test_api.h"

#include <unistd.h>

#include "fallow/share.h"
#include "pool/pool.h"
#include "pool/state/extension.h"

/* Notifications of the test's feature. */
static struct told {
    unsigned allocs, frees, uses, begins, ends, trims;
    unsigned caches, failures, releases, retired, polls, stops, finishes;
    struct flw_event last;
    bool refuses_caches, keeps_a_block;
    unsigned callbacks_before_release; /* earlier calls of on_oom */
} told;

static struct api api;
static void *kept;
static unsigned callbacks;

static void happened(struct flw_pool *pool, enum flw_trace_op op, const struct flw_domain *domain,
                     const struct flw_event *event)
{
    assert_true(flw_pool_of(pool->handle) == pool);
    assert_true((domain == NULL) == (op == FLW_TRACE_EMPTY_CACHE));
    told.allocs += op == FLW_TRACE_ALLOC;
    told.frees += op == FLW_TRACE_FREE;
    told.uses += op == FLW_TRACE_USE;
    told.begins += op == FLW_TRACE_POOL_BEGIN;
    told.ends += op == FLW_TRACE_POOL_END;
    told.trims += op == FLW_TRACE_EMPTY_CACHE;
    told.last = *event;
}

static bool cache_made(struct flw_pool *pool, struct flw_tcache *cache,
                       const struct flw_domain *domain)
{
    assert_true(pool != NULL && cache != NULL && domain != NULL);
    told.caches++;
    return !told.refuses_caches;
}

static void failed(struct flw_pool *pool, const struct flw_domain *domain,
                   const fallow_oom_report *report)
{
    assert_true(pool != NULL && domain != NULL);
    assert_true(report->size_bytes > 0);
    told.failures++;
}

static bool release_kept(struct flw_pool *pool)
{
    bool is_kept = told.keeps_a_block;
    told.releases++;
    told.callbacks_before_release = callbacks;
    told.keeps_a_block = false;
    if (is_kept) {
        assert_int_equal(fallow_free((fallow_pool *)(uintptr_t)pool->handle, kept, api.stream),
                         FALLOW_OK);
    }
    return is_kept;
}

static void stream_ends(struct flw_pool *pool, fallow_stream stream)
{
    assert_true(pool != NULL);
    assert_ptr_equal(stream, api.other);
    told.retired++;
}

static void poll(struct flw_pool *pool)
{
    assert_true(pool != NULL);
    told.polls++;
}

static void read_stats(struct flw_pool *pool, fallow_stats *stats)
{
    assert_true(pool != NULL);
    stats->damage_count = 41;
}

static void stop(struct flw_pool *pool)
{
    assert_true(flw_pool_of(pool->handle) == pool); /* still reached */
    told.stops++;
}

static void finish(struct flw_pool *pool, bool is_lost)
{
    assert_null(flw_pool_of(pool->handle));
    assert_false(is_lost);
    told.finishes++;
}

static const struct flw_extension feature = {.stop = stop,
                                             .finish = finish,
                                             .happened = happened,
                                             .failed = failed,
                                             .cache_made = cache_made,
                                             .release = release_kept,
                                             .stream_ends = stream_ends,
                                             .poll = poll,
                                             .read_stats = read_stats};

static int count_callback(void *context, size_t size_bytes, fallow_stream stream)
{
    assert_true(context == NULL && size_bytes > 0 && stream == api.stream);
    callbacks++;
    return 0;
}

/* A pool of 64 MiB with the feature. */
static void begin(void)
{
    memset(&told, 0, sizeof told);
    callbacks = 0;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 64 * MIB;
    config.on_oom = count_callback;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    flw_pool_enlist(flw_pool_of(api.pool), &feature);
    flw_pool_enlist(flw_pool_of(api.pool), &feature); /* once, however often */
}

static void end(void)
{
    api_end(&api);
    assert_int_equal(told.stops, 1);
    assert_int_equal(told.finishes, 1);
}

TEST(a_feature_is_told_of_blocks_captures_trims_and_streams)
{
    fallow_capture *capture;
    begin();
    void *block = api_alloc(&api, 3 * MIB, api.stream);
    assert_int_equal(told.allocs, 1);
    assert_int_equal(told.last.address, (uintptr_t)block);
    assert_int_equal(told.last.size_bytes, 3 * MIB);
    assert_int_equal(told.caches, 1);
    assert_int_equal(fallow_record_use(api.pool, block, api.other), FALLOW_OK);
    assert_int_equal(told.uses, 1);
    assert_int_equal(fallow_free(api.pool, block, api.stream), FALLOW_OK);
    assert_int_equal(told.frees, 1);
    assert_int_equal(told.last.size_bytes, 3 * MIB);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    assert_int_equal(told.begins, 1);
    assert_int_not_equal(told.last.capture, 0);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(told.ends, 1);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK);
    assert_int_equal(told.trims, 1);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    assert_int_equal(told.polls, 1);
    assert_int_equal(fallow_stream_retire(api.pool, api.other), FALLOW_OK);
    assert_int_equal(told.retired, 1);
    assert_int_equal(api_stats(&api).damage_count, 41);
    end();
}

TEST(what_a_feature_keeps_gives_way_before_the_callback_is_asked)
{
    void *ptr = NULL;
    begin();
    kept = api_alloc(&api, 40 * MIB, api.stream);
    told.keeps_a_block = true;
    void *block = api_alloc(&api, 40 * MIB, api.stream);
    assert_int_equal(told.releases, 1);
    assert_int_equal(told.callbacks_before_release, 0);
    assert_int_equal(callbacks, 0);
    assert_int_equal(told.failures, 0);
    assert_int_equal(fallow_alloc(api.pool, 40 * MIB, api.stream, &ptr), FALLOW_OUT_OF_MEMORY);
    assert_null(ptr);
    assert_int_equal(told.releases, 2);
    assert_int_equal(callbacks, 1);
    assert_int_equal(told.failures, 1);
    assert_int_equal(fallow_free(api.pool, block, api.stream), FALLOW_OK);
    end();
}

TEST(a_cache_that_a_feature_refuses_is_not_made)
{
    void *ptr = &api;
    begin();
    told.refuses_caches = true;
    assert_int_equal(fallow_alloc(api.pool, 4096, api.stream, &ptr), FALLOW_OUT_OF_HOST_MEMORY);
    assert_null(ptr);
    assert_int_equal(told.allocs, 0);
    told.refuses_caches = false;
    void *block = api_alloc(&api, 4096, api.stream);
    assert_int_equal(told.caches, 2);
    assert_int_equal(fallow_free(api.pool, block, api.stream), FALLOW_OK);
    end();
}

TEST(a_pool_where_it_is_not_enlisted_tells_a_feature_nothing)
{
    begin();
    fallow_pool *plain = api_create(&api);
    void *ptr;
    assert_int_equal(fallow_alloc(plain, 3 * MIB, api.stream, &ptr), FALLOW_OK);
    assert_int_equal(fallow_free(plain, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_pool_trim(plain, 0, 0, NULL), FALLOW_OK);
    fallow_pool_destroy(plain);
    assert_int_equal(told.allocs + told.frees + told.trims + told.caches + told.stops, 0);
    end();
}

/* A free never waits: a poll may, for the remains of a failed sleep. */
TEST(the_free_of_an_exported_block_is_no_poll)
{
    memset(&told, 0, sizeof told);
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.handle_types = FALLOW_HANDLE_FD;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    flw_pool_enlist(flw_pool_of(api.pool), &feature);
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = 3 * MIB;
    request.flags = FALLOW_REQUEST_EXPORT_FD;
    void *block;
    fallow_share share;
    fallow_share_init(&share);
    assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &block), FALLOW_OK);
    assert_int_equal(fallow_export(api.pool, block, FALLOW_HANDLE_FD, &share), FALLOW_OK);
    assert_int_equal(close(share.descriptor), 0);
    assert_int_equal(fallow_free(api.pool, block, api.stream), FALLOW_OK);
    assert_int_equal(told.polls, 0);
    end();
}

FLW_TEST_MAIN(NULL, NULL)
