/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: changes of the limit while threads allocate.
 */
#include "unit/pool/test_api.h"

#include <sched.h>
#include <stdatomic.h>

#include "fallow/sleep.h"

static const struct kind {
    fallow_order order;
    fallow_page_source source;
} kinds[] = {{FALLOW_ORDER_STREAM, FALLOW_PAGES_HANDLES},
             {FALLOW_ORDER_STREAM, FALLOW_PAGES_SEGMENTS},
             {FALLOW_ORDER_CONTEXT, FALLOW_PAGES_AUTOMATIC}};
#define KINDS (sizeof kinds / sizeof *kinds)

static void begin_as(struct api *api, const struct kind *kind, size_t limit_bytes)
{
    flw_sim_config world = flw_sim_config_default(3);
    world.schedule = FLW_SIM_CLOCK;
    world.check = 1;
    world.device_bytes = 512 * MIB;
    api_begin(api, &world);
    fallow_pool_config config = api_config(api);
    config.order = kind->order;
    config.page_source = kind->source;
    config.limit_bytes = limit_bytes;
    config.log = NULL; /* would be called from several threads */
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

/* ---- threads allocate while the limit changes: reserved bytes never rise above the limit */

struct worker {
    struct api *api;
    CUcontext context;
    uint64_t random;
    atomic_int steps_left; /* 0: ended */
};

/* Wait until a growth that the worker may have begun before this call is complete. */
static void await_step(struct worker *worker)
{
    int steps = atomic_load(&worker->steps_left);
    while (steps > 0 && atomic_load(&worker->steps_left) > steps - 1) {
        sched_yield();
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    CUstream stream = NULL;
    void *held[8] = {NULL};
    (void)worker->api->sim.cu.cuCtxSetCurrent(worker->context);
    assert_int_equal(worker->api->sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    for (; atomic_load(&worker->steps_left) > 0; atomic_fetch_sub(&worker->steps_left, 1)) {
        worker->random = worker->random * 6364136223846793005ull + 1442695040888963407ull;
        size_t bytes = 1 + (size_t)(worker->random >> 33) % (12 * MIB);
        void **at = &held[worker->random >> 29 & 7];
        assert_int_equal(fallow_free(worker->api->pool, *at, stream), FALLOW_OK);
        fallow_status status = fallow_alloc(worker->api->pool, bytes, stream, at);
        assert_true(status == FALLOW_OK || status == FALLOW_OUT_OF_MEMORY);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(fallow_free(worker->api->pool, held[i], stream), FALLOW_OK);
    }
    return NULL;
}

TEST(the_limit_changes_under_threads)
{
    for (size_t k = 0; k < KINDS; k++) {
        struct api api;
        struct worker workers[3];
        pthread_t threads[3];
        begin_as(&api, &kinds[k], 0);
        for (int i = 0; i < 2; i++) {
            workers[i] =
                (struct worker){.api = &api, .random = 5u + (unsigned)i, .steps_left = 600};
            assert_int_equal(api.sim.cu.cuCtxGetCurrent(&workers[i].context), 0);
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        for (size_t n = 0; n < 60; n++) {
            size_t limit = (16 + n * 37 % 200) * MIB;
            assert_int_equal(fallow_pool_set_limit(api.pool, limit), FALLOW_OK);
            /* Statistics leave out growths under way: count only after those of the former limit. */
            await_step(&workers[0]);
            await_step(&workers[1]);
            uint64_t before = api_stats(&api).reserved_bytes;
            assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
            assert_true(api_stats(&api).reserved_bytes <= (before > limit ? before : limit));
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        }
        assert_int_equal(fallow_pool_set_limit(api.pool, 16 * MIB), FALLOW_OK);
        assert_int_equal(fallow_pool_trim(api.pool, 16 * MIB, UINT64_MAX, NULL), FALLOW_OK);
        assert_true(api_stats(&api).reserved_bytes <= 16 * MIB);
        api_end(&api);
    }
}
