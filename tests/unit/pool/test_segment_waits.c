/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves: with segments, in both orders, no call that promises not to wait blocks the host, as cuMemFree does while the
 * device has work; every other wait is counted in wait_count. Time is virtual: another stream works for ten seconds.
 */
#include "unit/pool/test_api.h"

#include "base/backoff.h"
#include "base/clock.h"

#define SECOND 1000000000ull
#define LIMIT  (64 * MIB)

enum state {
    IDLE,
    BUSY
};

/* Begin with free segments of 48 of 64 MiB. The other stream, which the pool has seen in stream order, is busy or
 * idle. */
static void begin_full(struct api *api, fallow_order order, uint32_t wait_ms, enum state device)
{
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = FLW_SIM_CLOCK;
    world.lag_ns = 10 * SECOND;
    void *blocks[6];
    api_begin(api, &world);
    fallow_pool_config config = api_config(api);
    config.order = order;
    config.page_source = FALLOW_PAGES_SEGMENTS;
    config.limit_bytes = LIMIT;
    config.wait_ms = wait_ms;
    config.decay_ms = 1;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
    for (unsigned i = 0; i < 6; i++) {
        blocks[i] = api_alloc(api, 8 * MIB, i < 5 ? api->stream : api->other);
    }
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(fallow_free(api->pool, blocks[i], i < 5 ? api->stream : api->other),
                         FALLOW_OK);
    }
    for (unsigned i = 0; i < 3; i++) { /* complete the freed memory */
        assert_int_equal(fallow_pool_trim(api->pool, SIZE_MAX, 0, NULL), FALLOW_OK);
        api->sim.advance(20 * SECOND);
    }
    if (device == BUSY) {
        flw_sim_range none = {0};
        assert_int_equal(api->sim.touch(api->other, &none, 0), 0);
    }
}

/* Waits so far, to check that a call neither blocks the host nor counts a wait. */
struct waits {
    uint64_t host_ns, counted;
};

static struct waits read_waits(struct api *api)
{
    return (struct waits){flw_sim_read_ledger(&api->sim).host_wait_ns, api_stats(api).wait_count};
}

static void expect_no_wait(struct api *api, struct waits before)
{
    struct waits now = read_waits(api);
    assert_int_equal(now.host_ns - before.host_ns, 0);
    assert_int_equal(now.counted - before.counted, 0);
}

static const fallow_order orders[] = {FALLOW_ORDER_STREAM, FALLOW_ORDER_CONTEXT};

/* Run `check` in both orders on a busy and on an idle device. */
static void in_all(uint32_t wait_ms, void (*check)(struct api *api, enum state device))
{
    for (unsigned i = 0; i < 4; i++) {
        struct api api;
        enum state device = i < 2 ? BUSY : IDLE;
        begin_full(&api, orders[i % 2], wait_ms, device);
        check(&api, device);
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        api.sim.advance(20 * SECOND);
        api_end(&api);
    }
}

static void alloc_no_wait(struct api *api, enum state device)
{
    fallow_request request;
    void *ptr = NULL;
    fallow_request_init(&request);
    request.size_bytes = 40 * MIB;
    request.flags = FALLOW_REQUEST_NO_WAIT;
    struct waits before = read_waits(api);
    fallow_status status = fallow_alloc_request(api->pool, &request, api->stream, &ptr);
    assert_int_equal(status, device == BUSY ? FALLOW_WOULD_WAIT : FALLOW_OK);
    expect_no_wait(api, before);
    assert_int_equal(fallow_free(api->pool, ptr, api->stream), FALLOW_OK);
}

static void request_no_wait_would_wait(void **state)
{
    in_all(0, alloc_no_wait);
}

static void alloc_never(struct api *api, enum state device)
{
    void *ptr = NULL;
    struct waits before = read_waits(api);
    fallow_status status = fallow_alloc(api->pool, 40 * MIB, api->stream, &ptr);
    assert_int_equal(status, device == BUSY ? FALLOW_OUT_OF_MEMORY : FALLOW_OK);
    expect_no_wait(api, before);
    assert_int_equal(fallow_free(api->pool, ptr, api->stream), FALLOW_OK);
}

static void wait_ms_never_fails(void **state)
{
    in_all(UINT32_MAX, alloc_never);
}

static void poll_for(struct api *api, uint64_t ns, uint64_t while_bytes)
{
    uint64_t until = flw_clock_fine_ns() + ns;
    while (flw_clock_fine_ns() < until && api_stats(api).reserved_bytes == while_bytes) {
        flw_sleep_ns(10000000);
        assert_int_equal(fallow_pool_poll(api->pool), FALLOW_OK);
    }
}

/* The pool always keeps the demand of the last two seconds, of real time. */
static void pool_poll_releases_segments_of_an_idle_device_only(void **state)
{
    for (unsigned i = 0; i < 2; i++) {
        struct api api;
        begin_full(&api, orders[i], 0, BUSY);
        struct waits before = read_waits(&api);
        uint64_t held = api_stats(&api).reserved_bytes;
        poll_for(&api, 5 * SECOND / 2, held);
        assert_int_equal(api_stats(&api).reserved_bytes, held);
        expect_no_wait(&api, before);
        api.sim.advance(20 * SECOND);
        before = read_waits(&api);
        poll_for(&api, 20 * SECOND, held);
        assert_true(api_stats(&api).reserved_bytes < held);
        expect_no_wait(&api, before);
        api_end(&api);
    }
}

static void trim_zero(struct api *api, enum state device)
{
    size_t released = 0;
    struct waits before = read_waits(api);
    assert_int_equal(fallow_pool_trim(api->pool, 0, 0, &released), FALLOW_OK);
    assert_int_equal(released, device == BUSY ? 0 : 48 * MIB);
    expect_no_wait(api, before);
}

static void pool_trim_with_deadline_0_releases_segments_of_an_idle_device_only(void **state)
{
    in_all(0, trim_zero);
}

/* A call that may wait counts the wait, and a call with a deadline is not blocked for longer. */
static void what_waits_is_counted(void **state)
{
    for (unsigned i = 0; i < 6; i++) {
        struct api api;
        size_t released = 0;
        void *ptr = NULL;
        begin_full(&api, orders[i % 2], i < 4 ? 1 : UINT32_MAX - 1, BUSY);
        struct waits before = read_waits(&api);
        if (i < 2) {
            assert_int_equal(fallow_pool_trim(api.pool, 0, UINT64_MAX, &released), FALLOW_OK);
            assert_int_equal(released, 48 * MIB);
        } else if (i < 4) { /* polling advances the virtual clock */
            fallow_status status = fallow_pool_trim(api.pool, 0, 1, &released);
            assert_int_equal(status, FALLOW_TIMEOUT);
            assert_int_equal(released, 0);
        } else {
            assert_int_equal(fallow_alloc(api.pool, 40 * MIB, api.stream, &ptr), FALLOW_OK);
            assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
            assert_true(read_waits(&api).host_ns > before.host_ns);
        }
        assert_true(i / 2 == 1 || read_waits(&api).counted > before.counted);
        api.sim.advance(20 * SECOND);
        api_end(&api);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_no_wait_would_wait),
        cmocka_unit_test(wait_ms_never_fails),
        cmocka_unit_test(pool_poll_releases_segments_of_an_idle_device_only),
        cmocka_unit_test(pool_trim_with_deadline_0_releases_segments_of_an_idle_device_only),
        cmocka_unit_test(what_waits_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
