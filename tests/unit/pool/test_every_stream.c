/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: blocks without a stream order: FALLOW_REQUEST_EVERY_STREAM and fallow_free_complete, under the rule checker,
 * which reports concurrent use of memory by two streams.
 */
#include "unit/pool/test_api.h"

#include "fallow/sleep.h"

static const struct kind {
    fallow_order order;
    fallow_page_source source;
    fallow_economy economy;
    fallow_reuse_policy reuse;
} kinds[] = {
    {FALLOW_ORDER_STREAM, FALLOW_PAGES_HANDLES, FALLOW_BALANCED, FALLOW_REUSE_WAIT},
    {FALLOW_ORDER_STREAM, FALLOW_PAGES_HANDLES, FALLOW_MEMORY_FIRST, FALLOW_REUSE_COMPLETED},
    {FALLOW_ORDER_STREAM, FALLOW_PAGES_HANDLES, FALLOW_SPEED_FIRST, FALLOW_REUSE_SAME_STREAM},
    {FALLOW_ORDER_STREAM, FALLOW_PAGES_SEGMENTS, FALLOW_BALANCED, FALLOW_REUSE_WAIT},
    {FALLOW_ORDER_CONTEXT, FALLOW_PAGES_AUTOMATIC, FALLOW_BALANCED, FALLOW_REUSE_WAIT},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static void begin_as(struct api *api, const struct kind *kind, const flw_sim_config *world,
                     size_t limit_bytes)
{
    api_begin(api, world);
    fallow_pool_config config = api_config(api);
    config.order = kind->order;
    config.page_source = kind->source;
    config.economy = kind->economy;
    config.reuse_policy = kind->reuse;
    config.limit_bytes = limit_bytes;
    config.log = NULL; /* would be called from several threads */
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static fallow_status ask(struct api *api, size_t bytes, uint32_t flags, void **out)
{
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.flags = flags | FALLOW_REQUEST_EVERY_STREAM;
    return fallow_alloc_request(api->pool, &request, api->stream, out);
}

static void a_block_is_everyones_at_once(void **state)
{
    for (size_t k = 0; k < KINDS; k++) {
        struct api api;
        begin_as(&api, &kinds[k], NULL, 0); /* held: no submitted work completes */
        for (size_t bytes = 3000; bytes < 10 * MIB; bytes *= 30) {
            void *busy = api_alloc(&api, bytes, api.stream), *ptr = NULL;
            api_use(&api, busy, bytes, api.stream);
            assert_int_equal(fallow_free(api.pool, busy, api.stream), FALLOW_OK);
            assert_int_equal(ask(&api, bytes, 0, &ptr), FALLOW_OK);
            assert_ptr_not_equal(ptr, busy); /* the stream still uses that block */
            api_use(&api, ptr, bytes, api.other);
            assert_int_equal(api.sim.cu.cuCtxSynchronize(), 0);
            api_use(&api, ptr, bytes, api.stream);
            assert_int_equal(api.sim.cu.cuCtxSynchronize(), 0);
            assert_int_equal(fallow_free_complete(api.pool, ptr), FALLOW_OK);
            assert_int_equal(fallow_free_complete(api.pool, ptr), FALLOW_INVALID_POINTER);
        }
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        api_end(&api);
    }
}

static void what_is_complete_serves_every_stream_without_a_driver_call(void **state)
{
    struct api api;
    begin_as(&api, &kinds[0], NULL, 0);
    for (size_t bytes = 3000; bytes < 10 * MIB; bytes *= 30) {
        void *ptr = NULL, *again = NULL;
        assert_int_equal(ask(&api, bytes, 0, &ptr), FALLOW_OK);
        assert_int_equal(fallow_free_complete(api.pool, ptr), FALLOW_OK);
        uint64_t calls = flw_sim_read_ledger(&api.sim).call_count;
        assert_int_equal(ask(&api, bytes, 0, &again), FALLOW_OK);
        assert_ptr_equal(again, ptr);
        assert_int_equal(fallow_free_complete(api.pool, again), FALLOW_OK);
        assert_int_equal(flw_sim_read_ledger(&api.sim).call_count, calls);
        again = api_alloc(&api, bytes, api.other);
        assert_ptr_equal(again, ptr);
        assert_int_equal(fallow_free(api.pool, again, api.other), FALLOW_OK);
    }
    api_end(&api);
}

/* At the limit the host waits for a stream; a request that may not wait returns WOULD_WAIT. */
static void memory_of_streams_is_waited_for(void **state)
{
    for (size_t k = 0; k < KINDS; k++) {
        struct api api;
        void *ptr = NULL;
        flw_sim_config world = flw_sim_config_default(4);
        world.schedule = FLW_SIM_CLOCK;
        world.lag_ns = 20000000;
        world.check = 1;
        begin_as(&api, &kinds[k], &world, 64 * MIB);
        void *busy = api_alloc(&api, 50 * MIB, api.other);
        api_use(&api, busy, 50 * MIB, api.other);
        assert_int_equal(fallow_free(api.pool, busy, api.other), FALLOW_OK);
        assert_int_equal(ask(&api, 40 * MIB, FALLOW_REQUEST_NO_WAIT, &ptr), FALLOW_WOULD_WAIT);
        assert_int_equal(ask(&api, 40 * MIB, FALLOW_REQUEST_ZERO, &ptr), FALLOW_OK);
        api_use(&api, ptr, 40 * MIB, api.other); /* the fill is complete, too */
        assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
        api_end(&api);
    }
}

static void what_else_a_block_can_be(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    fallow_block block;
    begin_as(&api, &kinds[0], NULL, 0);
    assert_int_equal(fallow_free_complete(api.pool, NULL), FALLOW_OK);
    assert_int_equal(fallow_free_complete(NULL, &api), FALLOW_INVALID_POOL);
    assert_int_equal(fallow_free_complete(api.pool, &api), FALLOW_INVALID_POINTER);
    /* A block with announced uses, all complete. */
    void *used = api_alloc(&api, 5 * MIB, api.stream);
    assert_int_equal(fallow_record_use(api.pool, used, api.other), FALLOW_OK);
    assert_int_equal(fallow_free_complete(api.pool, used), FALLOW_OK);
    assert_int_equal(api_stats(&api).deferred_bytes, 0);
    void *again = api_alloc(&api, 5 * MIB, api.other);
    assert_ptr_equal(again, used);
    /* A block of a capture returns to the capture. During the capture, EVERY_STREAM returns ordinary memory. */
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    void *captured = api_alloc(&api, 3 * MIB, api.stream), *ordinary = NULL;
    assert_int_equal(ask(&api, 3 * MIB, 0, &ordinary), FALLOW_OK);
    fallow_block_init(&block);
    assert_int_equal(fallow_block_info(api.pool, ordinary, &block), FALLOW_OK);
    assert_int_equal(block.state, FALLOW_BLOCK_LIVE);
    assert_int_equal(fallow_free_complete(api.pool, captured), FALLOW_OK);
    assert_true(api_stats(&api).captured_bytes >= 3 * MIB);
    assert_int_equal(fallow_free_complete(api.pool, ordinary), FALLOW_OK);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    assert_int_equal(fallow_free_complete(api.pool, again), FALLOW_OK);
    assert_int_equal(api_stats(&api).live_count, 0);
    assert_int_equal(api_stats(&api).requested_bytes, 0);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

/* ---- random programs of several threads that share a pool, each with private streams */

struct worker {
    struct api *api;
    CUcontext context;
    uint64_t random;
    bool has_context_order;
};

struct held {
    void *ptr;
    size_t bytes;
    int stream; /* -1: EVERY_STREAM */
};

static uint64_t below(struct worker *worker, uint64_t end)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random % end;
}

/* Free a block with every use ordered before the free: on the block's stream, announced, or waited for. */
static void free_one(struct worker *worker, const CUstream *streams, struct held *held)
{
    fallow_pool *pool = worker->api->pool;
    bool is_everyones = held->stream < 0;
    if (below(worker, 2) == 0) {
        for (int i = 0; i < 2; i++) {
            if (is_everyones || i == held->stream) {
                assert_int_equal(worker->api->sim.cu.cuStreamSynchronize(streams[i]), 0);
            }
        }
        assert_int_equal(fallow_free_complete(pool, held->ptr), FALLOW_OK);
    } else {
        if (is_everyones && !worker->has_context_order) {
            assert_int_equal(fallow_record_use(pool, held->ptr, streams[1]), FALLOW_OK);
        }
        assert_int_equal(fallow_free(pool, held->ptr, streams[is_everyones ? 0 : held->stream]),
                         FALLOW_OK);
    }
    held->ptr = NULL;
}

static void take_one(struct worker *worker, const CUstream *streams, struct held *held)
{
    fallow_request request;
    held->bytes = 1 + below(worker, below(worker, 2) == 0 ? 30000 : 3 * MIB);
    held->stream = below(worker, 2) == 0 ? -1 : (int)below(worker, 2);
    fallow_request_init(&request);
    request.size_bytes = held->bytes;
    request.flags = held->stream < 0 ? FALLOW_REQUEST_EVERY_STREAM : 0u;
    fallow_status status = fallow_alloc_request(
        worker->api->pool, &request, streams[held->stream < 0 ? 0 : held->stream], &held->ptr);
    assert_true(status == FALLOW_OK || status == FALLOW_OUT_OF_MEMORY);
    if (status == FALLOW_OK) { /* one stream writes, or each of two writes a half concurrently */
        flw_sim_range range = {(uint64_t)(uintptr_t)held->ptr, held->bytes, 1, 0};
        if (held->stream >= 0) {
            assert_int_equal(worker->api->sim.touch(streams[held->stream], &range, 1), 0);
            return;
        }
        for (int i = 0; i < 2; i++) {
            flw_sim_range half = {range.address + (uint64_t)i * (held->bytes / 2), held->bytes / 2,
                                  1, 0};
            assert_int_equal(worker->api->sim.touch(streams[i], &half, 1), 0);
        }
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    CUstream streams[2];
    struct held held[24] = {{0}};
    (void)worker->api->sim.cu.cuCtxSetCurrent(worker->context);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(worker->api->sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING),
                         0);
    }
    for (int n = 0; n < 800; n++) {
        struct held *at = &held[below(worker, 24)];
        if (at->ptr != NULL) {
            free_one(worker, streams, at);
        } else {
            take_one(worker, streams, at);
        }
    }
    for (int i = 0; i < 24; i++) {
        if (held[i].ptr != NULL) {
            free_one(worker, streams, &held[i]);
        }
    }
    return NULL;
}

static void random_programs_never_share_memory_between_streams(void **state)
{
    for (size_t k = 0; k < 2 * KINDS; k++) {
        struct api api;
        struct worker workers[3];
        pthread_t threads[3];
        flw_sim_config world = flw_sim_config_default(k + 1);
        world.check = 1;
        begin_as(&api, &kinds[k / 2], &world, k % 2 == 0 ? 0 : 24 * MIB);
        print_message("world %zu\n", k + 1);
        for (unsigned i = 0; i < 3; i++) {
            workers[i] =
                (struct worker){.api = &api,
                                .random = (k * 3 + i + 1) * 0x9E3779B97F4A7C15ull,
                                .has_context_order = kinds[k / 2].order == FALLOW_ORDER_CONTEXT};
            assert_int_equal(api.sim.cu.cuCtxGetCurrent(&workers[i].context), 0);
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (int i = 0; i < 3; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        }
        fallow_stats stats = api_stats(&api);
        assert_int_equal(stats.live_count, 0);
        assert_int_equal(stats.live_bytes, 0);
        assert_int_equal(stats.requested_bytes, 0);
        assert_int_equal(stats.reserved_bytes, stats.cached_bytes + stats.deferred_bytes +
                                                   stats.captured_bytes + stats.idle_bytes);
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        assert_int_equal(api.sim.cu.cuCtxSynchronize(), 0);
        assert_int_equal(fallow_pool_trim(api.pool, 0, UINT64_MAX, NULL), FALLOW_OK);
        assert_int_equal(api_stats(&api).reserved_bytes, 0);
        api_end(&api);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_everyones_at_once),
        cmocka_unit_test(what_is_complete_serves_every_stream_without_a_driver_call),
        cmocka_unit_test(memory_of_streams_is_waited_for),
        cmocka_unit_test(what_else_a_block_can_be),
        cmocka_unit_test(random_programs_never_share_memory_between_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
