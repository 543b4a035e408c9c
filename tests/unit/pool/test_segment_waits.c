/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: polls release segments of an idle device only; memory.script has the other calls.
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

static void poll_for(struct api *api, uint64_t ns, uint64_t while_bytes)
{
    uint64_t until = flw_clock_fine_ns() + ns;
    while (flw_clock_fine_ns() < until && api_stats(api).reserved_bytes == while_bytes) {
        flw_sleep_ns(10000000);
        assert_int_equal(fallow_pool_poll(api->pool), FALLOW_OK);
    }
}

/* The pool always keeps the demand of the last two seconds, of real time. */
TEST(pool_poll_releases_segments_of_an_idle_device_only)
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
