/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: wait_ms: the bound of all waits of a call, in virtual time.
 */
#include "unit/pool/test_api.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"

/* clock_gettime returns the clock of this simulated device; NULL: the real clock. */
static const struct flw_sim *clock_of;

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *out)
{
    if (clock_of == NULL) {
        return (int)syscall(SYS_clock_gettime, id, out);
    }
    uint64_t now = flw_sim_read_ledger(clock_of).clock_ns;
    *out = (struct timespec){.tv_sec = (time_t)(now / 1000000000),
                             .tv_nsec = (long)(now % 1000000000)};
    return 0;
}

/* ---- wait_ms */

#define MS        1000000ull
#define LIMIT_MIB 64
#define BLOCKS    32

/* A pool under a limit, on a device where each use of a block takes `lag_ms`. */
struct bound {
    struct api api;
    fallow_pool_config config;
    CUdeviceptr others; /* device memory allocated outside of the pool; 0: none */
    uint64_t random;
    void *blocks[BLOCKS];
    size_t sizes[BLOCKS];
    CUstream streams[BLOCKS];
    size_t count;
    uint64_t most_ns; /* longest permitted wait of a call */
};

static void bound_begin(struct bound *bound, const fallow_pool_config *settings, uint64_t lag_ms,
                        bool is_device_full)
{
    flw_sim_config world = flw_sim_config_default(3);
    world.schedule = FLW_SIM_CLOCK;
    world.lag_ns = lag_ms * MS;
    world.check = 1;
    world.device_bytes = 16 * LIMIT_MIB * MIB;
    memset(bound, 0, sizeof *bound);
    api_begin(&bound->api, &world);
    fallow_pool_config config = api_config(&bound->api);
    config.economy = settings->economy;
    config.order = settings->order;
    config.page_source = settings->page_source;
    config.reuse_policy = settings->reuse_policy;
    config.wait_ms = settings->wait_ms;
    config.limit_bytes = is_device_full ? 0 : LIMIT_MIB * MIB;
    if (is_device_full) {
        assert_int_equal(bound->api.sim.cu.cuMemAlloc_v2(&bound->others, 15 * LIMIT_MIB * MIB), 0);
    }
    bound->config = config;
    bound->most_ns = (config.wait_ms == 0 ? 100 : config.wait_ms) * MS;
    clock_of = &bound->api.sim;
    assert_int_equal(fallow_pool_create(&config, &bound->api.pool), FALLOW_OK);
}

static void bound_end(struct bound *bound)
{
    for (size_t i = 0; i < bound->count; i++) {
        assert_int_equal(fallow_free(bound->api.pool, bound->blocks[i], bound->streams[i]),
                         FALLOW_OK);
    }
    if (bound->others != 0) {
        assert_int_equal(bound->api.sim.cu.cuMemFree_v2(bound->others), 0);
    }
    clock_of = NULL;
    api_end(&bound->api);
}

/* Check that the host has not waited since it had waited `waited_ns` in all, and that no wait was
 * counted. */
static void expect_no_wait(struct bound *bound, uint64_t waited_ns, uint64_t counted)
{
    assert_int_equal(flw_sim_read_ledger(&bound->api.sim).host_wait_ns - waited_ns, 0);
    assert_int_equal(api_stats(&bound->api).wait_count - counted, 0);
}

/* Allocate, and check that the host waited no longer than permitted: not at all, or wait_ms (the simulated clock
 * advances in doubling steps), or without a bound below the limit. */
static fallow_status bound_alloc(struct bound *bound, size_t bytes, CUstream stream, uint32_t flags)
{
    struct api *api = &bound->api;
    fallow_request request;
    void *ptr = NULL;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.flags = flags;
    flw_sim_ledger before = flw_sim_read_ledger(&api->sim);
    uint64_t counted = api_stats(api).wait_count;
    fallow_status status = fallow_alloc_request(api->pool, &request, stream, &ptr);
    flw_sim_ledger after = flw_sim_read_ledger(&api->sim);
    uint64_t waited = after.host_wait_ns - before.host_wait_ns;
    uint64_t most_bytes = (bound->others == 0 ? 1 : 16) * LIMIT_MIB * MIB;
    bool is_below = status == FALLOW_OK && before.given_bytes + bytes <= most_bytes;
    bool never = bound->config.wait_ms == UINT32_MAX || (flags & FALLOW_REQUEST_NO_WAIT) != 0;
    if (never) {
        expect_no_wait(bound, before.host_wait_ns, counted);
    } else if (!is_below) {
        assert_true(waited <= 8 * bound->most_ns);
    }
    if (status == FALLOW_OK) {
        api_use(api, ptr, bytes, stream);
        bound->blocks[bound->count] = ptr;
        bound->sizes[bound->count] = bytes;
        bound->streams[bound->count++] = stream;
    } else {
        assert_true(status == FALLOW_OUT_OF_MEMORY || status == FALLOW_WOULD_WAIT);
    }
    return status;
}

static void bound_free(struct bound *bound, size_t i)
{
    assert_int_equal(fallow_free(bound->api.pool, bound->blocks[i], bound->streams[i]), FALLOW_OK);
    bound->blocks[i] = bound->blocks[--bound->count];
    bound->sizes[i] = bound->sizes[bound->count];
    bound->streams[i] = bound->streams[bound->count];
}

/* Allocate after all memory was freed on one stream behind two seconds of work. */
static void wait_at_the_limit(struct bound *bound)
{
    struct api *api = &bound->api;
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(bound_alloc(bound, LIMIT_MIB * MIB / 4 - MIB, api->other, 0), FALLOW_OK);
    }
    while (bound->count > 0) {
        bound_free(bound, 0);
    }
    uint64_t begin = flw_sim_read_ledger(&api->sim).clock_ns;
    fallow_status status =
        bound_alloc(bound, LIMIT_MIB * MIB * 3 / 4, api->stream, FALLOW_REQUEST_NO_WAIT);
    assert_true(status != FALLOW_OK || flw_sim_read_ledger(&api->sim).clock_ns == begin);
    if (status == FALLOW_OK) { /* the pool returned memory to the driver without a wait */
        return;
    }
    status = bound_alloc(bound, LIMIT_MIB * MIB * 3 / 4, api->stream, 0);
    bool can_steal = bound->config.order == FALLOW_ORDER_STREAM &&
                     bound->config.reuse_policy == FALLOW_REUSE_WAIT;
    assert_true(can_steal || status == FALLOW_OUT_OF_MEMORY);
    if (status != FALLOW_OK) { /* the wait had a deadline */
        api->sim.advance(4000 * MS);
        assert_int_equal(bound_alloc(bound, LIMIT_MIB * MIB * 3 / 4, api->stream, 0), FALLOW_OK);
    }
}

static uint64_t draw(struct bound *bound, uint64_t below)
{
    return flw_random_next(&bound->random) % below;
}

static void poll_or_trim(struct bound *bound)
{
    struct api *api = &bound->api;
    uint64_t waited_ns = flw_sim_read_ledger(&api->sim).host_wait_ns;
    uint64_t counted = api_stats(api).wait_count;
    fallow_status status =
        draw(bound, 2) == 0 ? fallow_pool_poll(api->pool) : fallow_pool_trim(api->pool, 0, 0, NULL);
    assert_int_equal(status, FALLOW_OK);
    expect_no_wait(bound, waited_ns, counted);
}

static void draw_at_the_limit(struct bound *bound, uint64_t lag_ms)
{
    struct api *api = &bound->api;
    for (unsigned i = 0; i < 150; i++) {
        uint64_t dice = draw(bound, 9);
        if (dice == 0) {
            api->sim.advance(draw(bound, lag_ms * MS));
        } else if (dice == 8) {
            poll_or_trim(bound);
        } else if (bound->count > 0 && (dice < 4 || bound->count == BLOCKS)) {
            bound_free(bound, draw(bound, bound->count));
        } else {
            CUstream stream = draw(bound, 2) == 0 ? api->stream : api->other;
            size_t bytes = (size_t)1 << (12 + draw(bound, 14));
            (void)bound_alloc(bound, bytes, stream, dice == 4 ? FALLOW_REQUEST_NO_WAIT : 0);
        }
    }
}

/* Return the n-th combination of the settings that decide how an allocation waits; false if there are no more. */
static bool nth_settings(unsigned n, fallow_pool_config *out)
{
    static const uint32_t waits[] = {50, 0, UINT32_MAX};
    *out = (fallow_pool_config){.economy = (fallow_economy)(n % 3), .wait_ms = waits[n / 3 % 3]};
    unsigned kind = n / 9; /* handles by each reuse policy, segments by each, context order */
    out->reuse_policy = (fallow_reuse_policy)(kind % 3);
    out->page_source = kind < 3 ? FALLOW_PAGES_HANDLES : FALLOW_PAGES_SEGMENTS;
    if (kind == 6) {
        out->order = FALLOW_ORDER_CONTEXT;
        out->reuse_policy = FALLOW_REUSE_WAIT;
        out->page_source = FALLOW_PAGES_AUTOMATIC;
    }
    return kind <= 6;
}

TEST(wait_ms_bounds_all_waits_of_a_call)
{
    static struct bound bound;
    fallow_pool_config settings;
    for (unsigned n = 0; nth_settings(n, &settings); n++) {
        for (unsigned full = 0; full < 2; full++) {
            bound_begin(&bound, &settings, 2000, full != 0);
            wait_at_the_limit(&bound);
            bound_end(&bound);
        }
    }
}

TEST(wait_ms_bounds_drawn_calls)
{
    static struct bound bound;
    static const uint64_t lags_ms[] = {1, 30, 1000};
    fallow_pool_config settings;
    for (unsigned n = 0; nth_settings(n, &settings); n++) {
        for (unsigned i = 0; i < 6; i++) {
            bound_begin(&bound, &settings, lags_ms[i / 2], i % 2 != 0);
            bound.random = n * 6 + i + 1;
            draw_at_the_limit(&bound, lags_ms[i / 2]);
            bound_end(&bound);
        }
    }
}

/* Two streams alternately use all memory of the pool; each waits for the other before the pool grows. */
static void take_turns(struct bound *bound, uint64_t lag_ms, unsigned turns)
{
    const fallow_pool_config settings = {
        .economy = FALLOW_MEMORY_FIRST, .reuse_policy = FALLOW_REUSE_COMPLETED, .wait_ms = 50};
    bound_begin(bound, &settings, lag_ms, true);
    assert_int_equal(bound->api.sim.cu.cuMemFree_v2(bound->others), 0);
    for (unsigned i = 0; i < turns; i++) {
        CUstream stream = i % 2 == 0 ? bound->api.stream : bound->api.other;
        assert_int_equal(bound_alloc(bound, LIMIT_MIB * MIB, stream, 0), FALLOW_OK);
        bound_free(bound, 0);
    }
    assert_int_equal(api_stats(&bound->api).wait_count, turns - 1);
}

TEST(waits_seldom_ask_for_the_room_of_the_device)
{
    static struct bound bound;
    take_turns(&bound, 1, 200);
    assert_true(bound.api.sim.call_count("cuMemGetInfo_v2") <= 10);
    bound.others = 0;
    bound_end(&bound);
}

TEST(a_wait_is_bounded_once_others_fill_the_device)
{
    static struct bound bound;
    take_turns(&bound, 2000, 4);
    const struct flw_sim *sim = &bound.api.sim;
    size_t free_bytes = 0, total_bytes = 0;
    assert_int_equal(sim->cu.cuMemGetInfo_v2(&free_bytes, &total_bytes), 0);
    assert_int_equal(sim->cu.cuMemAlloc_v2(&bound.others, free_bytes), 0);
    uint64_t waited = flw_sim_read_ledger(sim).host_wait_ns;
    assert_int_equal(bound_alloc(&bound, LIMIT_MIB * MIB, bound.api.stream, 0),
                     FALLOW_OUT_OF_MEMORY);
    assert_true(flw_sim_read_ledger(sim).host_wait_ns - waited <= 8 * bound.most_ns);
    bound_end(&bound);
}

FLW_TEST_MAIN(NULL, NULL)
