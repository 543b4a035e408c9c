/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the waits of an allocation on the host, and the status if it may not wait. */
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

#define USERS 5 /* more than the uses that a block names one by one */

/* A stream of another context used a block and was destroyed without notice: only its own context
 * covers the work. */
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
    wait_for_lost_foreign(false);
    wait_for_lost_foreign(true);
}

struct other_thread {
    struct api *api;
    CUcontext context;
    pthread_barrier_t barrier;
    fallow_status status;
};

/* Free memory on the thread's own default stream, which no other thread can name. */
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
    /* More than the economy holds: waits for fences instead of growth. */
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

static void wait_ms_bounds_all_waits_of_a_call(void **state)
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

static void wait_ms_bounds_drawn_calls(void **state)
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

static void waits_seldom_ask_for_the_room_of_the_device(void **state)
{
    static struct bound bound;
    take_turns(&bound, 1, 200);
    assert_true(bound.api.sim.call_count("cuMemGetInfo_v2") <= 10);
    bound.others = 0;
    bound_end(&bound);
}

static void a_wait_is_bounded_once_others_fill_the_device(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_a_lost_stream_of_another_context_waits_for_that_context),
        cmocka_unit_test(another_threads_default_stream_does_not_end_a_wait),
        cmocka_unit_test(a_request_that_may_not_wait_hears_of_small_blocks_too),
        cmocka_unit_test(wait_ms_bounds_all_waits_of_a_call),
        cmocka_unit_test(wait_ms_bounds_drawn_calls),
        cmocka_unit_test(waits_seldom_ask_for_the_room_of_the_device),
        cmocka_unit_test(a_wait_is_bounded_once_others_fill_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
