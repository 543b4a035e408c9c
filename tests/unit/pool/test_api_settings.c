/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the callback on_oom in several threads.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "unit/pool/test_api.h"

static void begin_with(struct api *api, const fallow_pool_config *config)
{
    assert_int_equal(fallow_pool_create(config, &api->pool), FALLOW_OK);
}

struct asking {
    struct api *api;
    atomic_uint inside, most_inside, calls;
};

/* Fails: this allocation may not call back again. */
static int ask_for_more(void *context, size_t size, fallow_stream stream)
{
    struct asking *asking = context;
    void *ptr = asking;
    unsigned inside = atomic_fetch_add(&asking->inside, 1) + 1;
    if (inside > atomic_load(&asking->most_inside)) {
        atomic_store(&asking->most_inside, inside);
    }
    atomic_fetch_add(&asking->calls, 1);
    assert_int_equal(fallow_alloc(asking->api->pool, size, stream, &ptr), FALLOW_OUT_OF_MEMORY);
    assert_null(ptr);
    atomic_fetch_sub(&asking->inside, 1);
    return 0;
}

static void *fail_again_and_again(void *context)
{
    struct asking *asking = context;
    for (unsigned i = 0; i < 20; i++) {
        void *ptr = NULL;
        assert_int_equal(fallow_alloc(asking->api->pool, 50 * MIB, asking->api->stream, &ptr),
                         FALLOW_OUT_OF_MEMORY);
    }
    return NULL;
}

TEST(the_callback_runs_alone_and_never_inside_itself)
{
    struct api api;
    struct asking asking = {.api = &api};
    pthread_t threads[3];
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 64 * MIB;
    config.wait_ms = UINT32_MAX;
    config.log = NULL;
    config.on_oom = ask_for_more;
    config.oom_context = &asking;
    begin_with(&api, &config);
    void *held = api_alloc(&api, 40 * MIB, api.stream);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, fail_again_and_again, &asking), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(asking.most_inside, 1);
    assert_in_range(asking.calls, 1, 60);
    assert_int_equal(api_stats(&api).oom_count, 60 + asking.calls);
    assert_int_equal(fallow_free(api.pool, held, api.stream), FALLOW_OK);
    api_end(&api);
}
