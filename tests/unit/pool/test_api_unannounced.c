/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: calls on a stream with an unannounced capture, and the cost of detecting such captures.
 */
#include "unit/pool/test_api.h"

#define PAIRS 1000

static fallow_status ask(struct api *api, size_t bytes, size_t align, uint32_t tag)
{
    fallow_request request;
    void *ptr = api;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.align_bytes = align;
    request.tag = tag;
    fallow_status status = fallow_alloc_request(api->pool, &request, api->stream, &ptr);
    assert_true((status == FALLOW_OK) == (ptr != NULL));
    return status;
}

static void expect_refusals(struct api *api)
{
    static const size_t sizes[] = {100, 5000, 3 * MIB, 64 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(ask(api, sizes[i], 0, 0), FALLOW_CAPTURING);
        assert_int_equal(ask(api, sizes[i], 1 << 16, 7), FALLOW_CAPTURING);
    }
    assert_int_equal(api_ask_elsewhere(api, api->stream), FALLOW_CAPTURING);
}

/* Free blocks of all sizes, of this stream and of no stream, outside of the thread's caches. */
static void make_idle(struct api *api)
{
    void *blocks[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = api_alloc(api,
                              i < 32   ? 5000
                              : i < 62 ? 3 * MIB
                                       : 64 * MIB,
                              i % 2 == 0 ? api->stream : api->other);
    }
    for (int i = 0; i < 64; i++) {
        assert_int_equal(fallow_free(api->pool, blocks[i], i % 2 == 0 ? api->stream : api->other),
                         FALLOW_OK);
    }
    api->sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_trim(api->pool, SIZE_MAX, 0, NULL), FALLOW_OK);
}

static void a_miss_inside_an_unannounced_capture_is_refused(void **state)
{
    for (unsigned n = 0; n < 12; n++) {
        struct api api;
        api_begin(&api, NULL);
        fallow_pool_config config = api_config(&api);
        config.economy = (fallow_economy)(n % 3);
        config.page_source = n / 3 % 2 == 0 ? FALLOW_PAGES_HANDLES : FALLOW_PAGES_SEGMENTS;
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
        if (n / 6 != 0) { /* otherwise the stream is new to the pool */
            make_idle(&api);
        }
        api_begin_capturing(&api, api.stream);
        expect_refusals(&api);
        void *ptr = api_alloc(&api, 3 * MIB, api.other); /* this stream is not captured */
        assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
        api_drop_captured(&api, api.stream); /* the capture is still valid */
        assert_int_equal(ask(&api, 5000, 0, 0), FALLOW_OK);
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        api_end(&api);
    }
}

#define HELD 24

/* Work on the stream still uses the freed blocks. */
static void blocks_freed_inside_an_unannounced_capture_are_not_handed_over(void **state)
{
    for (unsigned n = 0; n < 3; n++) {
        struct api api;
        void *held[HELD], *taken[HELD];
        api_begin(&api, NULL);
        fallow_pool_config config = api_config(&api);
        config.economy = (fallow_economy)n;
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
        for (int i = 0; i < HELD; i++) {
            held[i] = api_alloc(&api, 16 * MIB, api.stream); /* too large for caches to keep all */
            api_use(&api, held[i], 16 * MIB, api.stream);
        }
        api_begin_capturing(&api, api.stream);
        for (int i = 0; i < HELD; i++) {
            assert_int_equal(fallow_free(api.pool, held[i], api.stream), FALLOW_OK);
        }
        for (int i = 0; i < HELD; i++) {
            assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
            taken[i] = api_alloc(&api, 16 * MIB, api.other);
            api_use(&api, taken[i], 16 * MIB, api.other);
            for (int k = 0; k < HELD; k++) {
                assert_ptr_not_equal(taken[i], held[k]);
            }
            api.sim.step(UINT64_MAX);
        }
        api_drop_captured(&api, api.stream);
        for (int i = 0; i < HELD; i++) {
            assert_int_equal(fallow_free(api.pool, taken[i], api.other), FALLOW_OK);
        }
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        api_end(&api);
    }
}

static void hits_ask_nothing_and_a_refill_once(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    assert_int_equal(fallow_free(api.pool, api_alloc(&api, 5000, api.stream), api.stream),
                     FALLOW_OK);
    fallow_stats before = api_stats(&api);
    uint64_t calls = api.sim.call_count(NULL);
    for (int i = 0; i < PAIRS; i++) {
        assert_int_equal(fallow_free(api.pool, api_alloc(&api, 5000, api.stream), api.stream),
                         FALLOW_OK);
    }
    assert_int_equal(api.sim.call_count(NULL), calls);
    assert_int_equal(api_stats(&api).question_count, before.question_count);
    make_idle(&api);
    before = api_stats(&api);
    calls = api.sim.call_count(NULL);
    (void)api_alloc(&api, 5000, api.stream);
    assert_int_equal(api.sim.call_count(NULL), calls + 1);
    assert_int_equal(api_stats(&api).question_count, before.question_count + 1);
    assert_int_equal(api_stats(&api).driver_call_count, before.driver_call_count);
    api_end(&api);
}

static void a_retired_stream_needs_no_fence_in_place_of_one_that_a_capture_took(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    void *first = api_alloc(&api, 8 * MIB, api.stream), *second = api_alloc(&api, MIB, api.stream);
    api_use(&api, first, 8 * MIB, api.stream);
    api_begin_capturing(&api, api.stream);
    assert_int_equal(fallow_free(api.pool, first, api.stream), FALLOW_OK);
    /* Records a fence, which becomes part of the capture. */
    assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK);
    api_drop_captured(&api, api.stream);
    assert_int_equal(fallow_free(api.pool, second, api.stream), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, api.stream), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuStreamDestroy_v2(api.stream), 0);
    void *block = api_alloc(&api, 4 * MIB, api.other); /* queries the fence */
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, block, api.other), FALLOW_OK);
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_miss_inside_an_unannounced_capture_is_refused),
        cmocka_unit_test(blocks_freed_inside_an_unannounced_capture_are_not_handed_over),
        cmocka_unit_test(hits_ask_nothing_and_a_refill_once),
        cmocka_unit_test(a_retired_stream_needs_no_fence_in_place_of_one_that_a_capture_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
