/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: guarantee 5 among the pools of a device: an allocation or a wake fails only after the other pools of the
 * process have released their free memory, in every thread's cache, with or without a fence, waiting for the device
 * as wait_ms allows.
 */
#include "unit/pool/test_api_sleep.h"

#include <stdlib.h>

#define DEVICE_BYTES (256 * MIB)
#define LAG_NS       50000000

static const struct kind {
    const char *name;
    fallow_order order;
    fallow_page_source source;
    fallow_economy economy;
    fallow_reuse_policy reuse;
} kinds[] = {
    {"handles", FALLOW_ORDER_STREAM, FALLOW_PAGES_HANDLES, FALLOW_BALANCED, FALLOW_REUSE_WAIT},
    {"memory first", FALLOW_ORDER_STREAM, FALLOW_PAGES_HANDLES, FALLOW_MEMORY_FIRST,
     FALLOW_REUSE_COMPLETED},
    {"speed first", FALLOW_ORDER_STREAM, FALLOW_PAGES_HANDLES, FALLOW_SPEED_FIRST,
     FALLOW_REUSE_SAME_STREAM},
    {"segments", FALLOW_ORDER_STREAM, FALLOW_PAGES_SEGMENTS, FALLOW_BALANCED, FALLOW_REUSE_WAIT},
    {"context order", FALLOW_ORDER_CONTEXT, FALLOW_PAGES_AUTOMATIC, FALLOW_BALANCED,
     FALLOW_REUSE_WAIT},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static fallow_pool *make(struct api *api, const struct kind *kind, uint32_t wait_ms)
{
    fallow_pool *pool = NULL;
    fallow_pool_config config = api_config(api);
    config.order = kind->order;
    config.page_source = kind->source;
    config.economy = kind->economy;
    config.reuse_policy = kind->reuse;
    config.wait_ms = wait_ms;
    config.log = NULL; /* would be called from several threads */
    assert_int_equal(fallow_pool_create(&config, &pool), FALLOW_OK);
    return pool;
}

/* Work completes `lag_ns` after submission, in virtual time, which advances while the host waits. */
static void begin_small(struct api *api, uint64_t lag_ns)
{
    flw_sim_config world = flw_sim_config_default(5);
    world.schedule = FLW_SIM_CLOCK;
    world.lag_ns = lag_ns;
    world.check = 1;
    world.device_bytes = DEVICE_BYTES;
    api_begin(api, &world);
}

static void must_free(fallow_pool *pool, void *ptr, CUstream stream)
{
    assert_int_equal(fallow_free(pool, ptr, stream), FALLOW_OK);
}

/* ---- memory freed by this thread or another, with complete or pending work */

struct holder {
    struct api *api;
    fallow_pool *pool;
    CUcontext context;
    pthread_barrier_t *barrier; /* of a second thread; NULL: the calling thread frees */
};

/* Free 200 MiB of large and small blocks after use on the device. */
static void *hold(void *context)
{
    struct holder *holder = context;
    static const size_t sizes[] = {60 * MIB, 120 * MIB, 9 * MIB, 9 * MIB, 700000, 700000, 3000};
    void *blocks[7];
    (void)holder->api->sim.cu.cuCtxSetCurrent(holder->context);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(fallow_alloc(holder->pool, sizes[i], holder->api->stream, &blocks[i]),
                         FALLOW_OK);
        api_use(holder->api, blocks[i], sizes[i], holder->api->stream);
    }
    for (int i = 0; i < 7; i++) {
        must_free(holder->pool, blocks[i], holder->api->stream);
    }
    if (holder->barrier != NULL) { /* keep the cache until the main thread has allocated */
        pthread_barrier_wait(holder->barrier);
        pthread_barrier_wait(holder->barrier);
    }
    return NULL;
}

static fallow_status ask(struct api *api, fallow_pool *pool, size_t bytes, uint32_t flags,
                         void **out)
{
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.flags = flags;
    return fallow_alloc_request(pool, &request, api->other, out);
}

static void serve_from(const struct kind *from, const struct kind *to, bool is_elsewhere,
                       bool is_late)
{
    struct api api;
    pthread_barrier_t barrier;
    pthread_t thread;
    void *ptr = NULL;
    begin_small(&api, is_late ? LAG_NS : 0);
    struct holder holder = {.api = &api, .pool = make(&api, from, 0)};
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&holder.context), 0);
    api.pool = make(&api, to, 60000);
    if (is_elsewhere) {
        holder.barrier = &barrier;
        assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
        assert_int_equal(pthread_create(&thread, NULL, hold, &holder), 0);
        pthread_barrier_wait(&barrier);
    } else {
        hold(&holder);
    }
    if (is_late) { /* a request that may not wait returns WOULD_WAIT without a wait */
        uint64_t waits = flw_sim_read_ledger(&api.sim).host_wait_count;
        if (from->source == FALLOW_PAGES_HANDLES) {
            assert_int_equal(ask(&api, api.pool, 180 * MIB, FALLOW_REQUEST_NO_WAIT, &ptr),
                             FALLOW_WOULD_WAIT);
            assert_int_equal(flw_sim_read_ledger(&api.sim).host_wait_count, waits);
        }
    }
    fallow_status status = ask(&api, api.pool, 180 * MIB, 0, &ptr);
    if (status != FALLOW_OK) {
        fail_msg("%s to %s, %s thread, %s: %s", from->name, to->name,
                 is_elsewhere ? "another" : "its own", is_late ? "late" : "complete",
                 fallow_status_name(status));
    }
    api_use(&api, ptr, 180 * MIB, api.other);
    must_free(api.pool, ptr, api.other);
    if (is_elsewhere) {
        pthread_barrier_wait(&barrier);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(pthread_barrier_destroy(&barrier), 0);
    }
    fallow_pool_destroy(holder.pool);
    api_end(&api);
}

static void an_allocation_is_served_from_other_pools(void **state)
{
    for (size_t i = 0; i < KINDS * KINDS * 4; i++) {
        serve_from(&kinds[i / 4 / KINDS], &kinds[i / 4 % KINDS], (i & 1) != 0, (i & 2) != 0);
    }
}

static void a_wake_is_served_from_other_pools(void **state)
{
    for (size_t i = 0; i < KINDS * 2; i++) {
        struct api api;
        begin_small(&api, (i & 1) != 0 ? LAG_NS : 0);
        struct holder holder = {.api = &api, .pool = make(&api, &kinds[i / 2], 0)};
        assert_int_equal(api.sim.cu.cuCtxGetCurrent(&holder.context), 0);
        api.pool = make(&api, &kinds[0], 60000);
        void *ptr = api_alloc(&api, 150 * MIB, api.other);
        assert_int_equal(sleep_idle(&api, NULL), FALLOW_OK);
        hold(&holder);
        assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
        must_free(api.pool, ptr, api.other);
        fallow_pool_destroy(holder.pool);
        api_end(&api);
    }
}

/* ---- memory that a pool must not take */

static void a_pool_at_its_own_limit_takes_nothing_from_others(void **state)
{
    struct api api;
    void *ptr = NULL;
    begin_small(&api, 0);
    struct holder holder = {.api = &api, .pool = make(&api, &kinds[0], 0)};
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&holder.context), 0);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 32 * MIB;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    hold(&holder);
    void *mine = api_alloc(&api, 20 * MIB, api.stream);
    uint64_t given = flw_sim_read_ledger(&api.sim).given_bytes;
    assert_int_equal(fallow_alloc(api.pool, 20 * MIB, api.stream, &ptr), FALLOW_OUT_OF_MEMORY);
    assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, given);
    must_free(api.pool, mine, api.stream);
    fallow_pool_destroy(holder.pool);
    api_end(&api);
}

static void others_give_no_more_than_is_asked_for(void **state)
{
    struct api api;
    fallow_stats stats;
    begin_small(&api, 0);
    fallow_pool *other = make(&api, &kinds[0], 0);
    void *blocks[24];
    for (int i = 0; i < 24; i++) { /* fills the device, at least one handle per block */
        assert_int_equal(fallow_alloc(other, 10 * MIB, api.stream, &blocks[i]), FALLOW_OK);
    }
    for (int i = 0; i < 24; i++) {
        must_free(other, blocks[i], api.stream);
    }
    api.pool = make(&api, &kinds[0], 0);
    void *ptr = api_alloc(&api, 30 * MIB, api.other);
    fallow_stats_init(&stats);
    assert_int_equal(fallow_pool_get_stats(other, &stats), FALLOW_OK);
    assert_true(stats.reserved_bytes >= 180 * MIB);
    must_free(api.pool, ptr, api.other);
    fallow_pool_destroy(other);
    api_end(&api);
}

/* Taking memory ends neither pool's capture and moves no captured memory. */
static void captures_go_on_while_others_are_asked(void **state)
{
    for (size_t i = 0; i < KINDS; i++) {
        struct api api;
        fallow_capture *taken = NULL, *held = NULL;
        void *kept = NULL, *ptr = NULL;
        if (kinds[i].order == FALLOW_ORDER_CONTEXT) {
            continue; /* the captures are announced to the whole process and prevent the
                          release */
        }
        begin_small(&api, 0);
        struct holder holder = {.api = &api, .pool = make(&api, &kinds[i], 0)};
        assert_int_equal(api.sim.cu.cuCtxGetCurrent(&holder.context), 0);
        CUstream third = NULL;
        assert_int_equal(api.sim.cu.cuStreamCreate(&third, CU_STREAM_NON_BLOCKING), 0);
        api.pool = make(&api, &kinds[0], 0);
        hold(&holder);
        assert_int_equal(fallow_capture_begin(holder.pool, third, &held), FALLOW_OK);
        api_begin_capturing(&api, third);
        assert_int_equal(fallow_alloc(holder.pool, 20 * MIB, third, &kept), FALLOW_OK);
        api_use(&api, kept, 20 * MIB, third);
        assert_int_equal(fallow_capture_begin(api.pool, api.other, &taken), FALLOW_OK);
        api_begin_capturing(&api, api.other);
        assert_int_equal(fallow_alloc(api.pool, 180 * MIB, api.other, &ptr), FALLOW_OK);
        api_use(&api, ptr, 180 * MIB, api.other);
        api_use(&api, kept, 20 * MIB, third);
        CUgraph graphs[] = {api_end_capturing(&api, api.other), api_end_capturing(&api, third)};
        for (int k = 0; k < 2; k++) {
            assert_int_equal(api.sim.cu.cuGraphDestroy(graphs[k]), 0);
        }
        must_free(holder.pool, kept, third);
        must_free(api.pool, ptr, api.other);
        assert_int_equal(fallow_capture_end(taken), FALLOW_OK);
        assert_int_equal(fallow_capture_end(held), FALLOW_OK);
        assert_int_equal(fallow_capture_release(taken), FALLOW_OK);
        assert_int_equal(fallow_capture_release(held), FALLOW_OK);
        fallow_pool_destroy(holder.pool);
        api_end(&api);
    }
}

/* ---- random programs: after OUT_OF_MEMORY, trimming every other pool does not help either */

#define POOLS 3
#define LIVE  96
#define STEPS 1500

struct random_run {
    struct api api;
    fallow_pool *pools[POOLS];
    CUstream streams[3];
    struct {
        void *ptr;
        size_t bytes;
        int pool, stream;
    } live[LIVE];
    uint64_t random;
    int failures;
};

static uint64_t below(struct random_run *run, uint64_t end)
{
    run->random ^= run->random << 13;
    run->random ^= run->random >> 7;
    run->random ^= run->random << 17;
    return run->random % end;
}

static size_t draw_bytes(struct random_run *run)
{
    uint64_t kind = below(run, 10);
    return kind < 3   ? 1 + below(run, 60000)
           : kind < 7 ? 1 + below(run, 8 * MIB)
                      : MIB + below(run, 50 * MIB);
}

static void step_alloc(struct random_run *run, int i)
{
    int pool = (int)below(run, POOLS), stream = (int)below(run, 3);
    size_t bytes = draw_bytes(run);
    fallow_request request;
    void *ptr = NULL;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.flags = below(run, 4) == 0 ? FALLOW_REQUEST_NO_WAIT : 0u;
    fallow_status status =
        fallow_alloc_request(run->pools[pool], &request, run->streams[stream], &ptr);
    if (status == FALLOW_OUT_OF_MEMORY) {
        run->failures++;
        for (int k = 0; k < POOLS; k++) {
            if (k != pool) {
                assert_int_equal(fallow_pool_trim(run->pools[k], 0, UINT64_MAX, NULL), FALLOW_OK);
            }
        }
        request.flags = 0;
        assert_int_equal(
            fallow_alloc_request(run->pools[pool], &request, run->streams[stream], &ptr),
            FALLOW_OUT_OF_MEMORY);
    } else if (status != FALLOW_WOULD_WAIT) {
        assert_int_equal(status, FALLOW_OK);
        api_use(&run->api, ptr, bytes, run->streams[stream]);
        run->live[i].ptr = ptr;
        run->live[i].bytes = bytes;
        run->live[i].pool = pool;
        run->live[i].stream = stream;
    }
}

static void step_free(struct random_run *run, int i)
{
    must_free(run->pools[run->live[i].pool], run->live[i].ptr, run->streams[run->live[i].stream]);
    run->live[i].ptr = NULL;
}

static void a_random_program_fails_only_where_others_cannot_help(void **state)
{
    int failures = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        static struct random_run run;
        memset(&run, 0, sizeof run);
        run.random = seed * 0x9E3779B97F4A7C15ull;
        print_message("seed %llu\n", (unsigned long long)seed);
        begin_small(&run.api, LAG_NS);
        run.streams[0] = run.api.stream;
        run.streams[1] = run.api.other;
        for (int i = 0; i < POOLS; i++) {
            run.pools[i] = make(&run.api, &kinds[below(&run, KINDS)], 60000);
        }
        for (int step = 0; step < STEPS; step++) {
            int i = (int)below(&run, LIVE);
            if (run.live[i].ptr != NULL) {
                step_free(&run, i);
            } else {
                step_alloc(&run, i);
            }
            run.api.sim.advance(below(&run, 3) * 10000000);
        }
        for (int i = 0; i < LIVE; i++) {
            if (run.live[i].ptr != NULL) {
                step_free(&run, i);
            }
        }
        for (int i = 0; i < POOLS; i++) {
            assert_int_equal(fallow_pool_validate(run.pools[i]), FALLOW_OK);
            fallow_pool_destroy(run.pools[i]);
        }
        failures += run.failures;
        api_end(&run.api);
    }
    assert_true(failures > 100); /* the case occurs often enough */
}

/* ---- pools that take from each other concurrently */

struct asker {
    struct api *api;
    fallow_pool *pools[2];
    CUcontext context;
    uint64_t random;
    int served;
};

static void *ask_on_and_on(void *context)
{
    struct asker *asker = context;
    CUstream stream = NULL;
    (void)asker->api->sim.cu.cuCtxSetCurrent(asker->context);
    assert_int_equal(asker->api->sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    for (int i = 0; i < 150; i++) {
        asker->random = asker->random * 6364136223846793005ull + 1442695040888963407ull;
        size_t bytes = (size_t)(asker->random >> 33) % (100 * MIB) + 1;
        fallow_pool *pool = asker->pools[(asker->random >> 20) & 1];
        void *ptr = NULL;
        fallow_status status = fallow_alloc(pool, bytes, stream, &ptr);
        if (status == FALLOW_OK) {
            asker->served++;
            api_use(asker->api, ptr, bytes, stream);
            assert_int_equal(fallow_free(pool, ptr, stream), FALLOW_OK);
        } else {
            assert_true(status == FALLOW_OUT_OF_MEMORY || status == FALLOW_ASLEEP);
        }
        if (i % 50 == 49 && fallow_pool_sleep(pool, NULL) == FALLOW_OK) {
            while (fallow_pool_wake(pool) != FALLOW_OK) {
            }
        }
    }
    return NULL;
}

static void two_pools_ask_each_other_at_once(void **state)
{
    struct api api;
    struct asker askers[4];
    pthread_t threads[4];
    begin_small(&api, LAG_NS);
    fallow_pool *other = make(&api, &kinds[1], 5);
    api.pool = make(&api, &kinds[0], 5);
    for (int i = 0; i < 4; i++) {
        askers[i] = (struct asker){.api = &api, .pools = {api.pool, other}, .random = 77u + i};
        assert_int_equal(api.sim.cu.cuCtxGetCurrent(&askers[i].context), 0);
        assert_int_equal(pthread_create(&threads[i], NULL, ask_on_and_on, &askers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(askers[i].served > 0);
    }
    assert_int_equal(fallow_pool_validate(other), FALLOW_OK);
    fallow_pool_destroy(other);
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allocation_is_served_from_other_pools),
        cmocka_unit_test(a_wake_is_served_from_other_pools),
        cmocka_unit_test(a_pool_at_its_own_limit_takes_nothing_from_others),
        cmocka_unit_test(others_give_no_more_than_is_asked_for),
        cmocka_unit_test(captures_go_on_while_others_are_asked),
        cmocka_unit_test(a_random_program_fails_only_where_others_cannot_help),
        cmocka_unit_test(two_pools_ask_each_other_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
