/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a random program of several pools on a full device: a request fails only if no other pool can release memory.
 */
#include "unit/pool/test_api.h"

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

/* ---- memory that a pool must not take */

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

TEST(a_random_program_fails_only_where_others_cannot_help)
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
