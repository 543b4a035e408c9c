/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: pools destroyed while another pool requests their memory.
 */
#include "unit/pool/test_api.h"

#include <pthread.h>
#include <stdatomic.h>

struct neighbour {
    atomic_bool stops;
};

/* Create and destroy a pool of the same device with idle memory. */
static void *come_and_go(void *argument)
{
    struct neighbour *neighbour = argument;
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    while (!atomic_load(&neighbour->stops)) {
        fallow_pool *pool = NULL;
        void *ptr = NULL;
        if (fallow_pool_create(&config, &pool) != FALLOW_OK ||
            fallow_alloc(pool, 4 * MIB, NULL, &ptr) != FALLOW_OK ||
            fallow_free(pool, ptr, NULL) != FALLOW_OK) {
            return neighbour; /* a call failed */
        }
        fallow_pool_destroy(pool);
    }
    return NULL;
}

TEST(a_pool_may_end_while_another_asks_it_for_memory)
{
    struct api api;
    struct neighbour neighbour = {.stops = false};
    pthread_t thread;
    void *problem = NULL, *ptr = NULL;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 32 * MIB;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(pthread_create(&thread, NULL, come_and_go, &neighbour), 0);
    for (unsigned i = 0; i < 2000; i++) {
        assert_int_equal(fallow_alloc(api.pool, 64 * MIB, NULL, &ptr), FALLOW_OUT_OF_MEMORY);
    }
    atomic_store(&neighbour.stops, true);
    assert_int_equal(pthread_join(thread, &problem), 0);
    assert_null(problem);
    api_end(&api);
}
