/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of the table of pools (pool/state/table.c): a visitor's view of a new pool. */
#include "unit/pool/test_api.h"

#include <pthread.h>
#include <stdatomic.h>

#include "pool/pool.h"

#define POOLS 200

static struct {
    atomic_bool is_over;
    atomic_uint visit_count, unnamed_count;
} visits;

static void look(struct flw_pool *pool, void *context)
{
    (void)context;
    atomic_fetch_add(&visits.visit_count, 1);
    atomic_fetch_add(&visits.unnamed_count, pool->handle == NULL);
}

static void *visit(void *context)
{
    while (!atomic_load(&visits.is_over)) {
        flw_pool_table_each(look, context);
    }
    return NULL;
}

TEST(a_pool_that_others_find_has_its_handle)
{
    struct api api;
    pthread_t thread;
    api_begin(&api, NULL);
    assert_int_equal(pthread_create(&thread, NULL, visit, NULL), 0);
    for (unsigned i = 0; i < POOLS || atomic_load(&visits.visit_count) < POOLS; i++) {
        fallow_pool *pool = api_create(&api);
        assert_ptr_equal(flw_pool_of(pool)->handle, pool);
        fallow_pool_destroy(pool);
        assert_null(flw_pool_of(pool));
    }
    atomic_store(&visits.is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&visits.unnamed_count), 0);
    api_end(&api);
}

FLW_TEST_MAIN(NULL, NULL)
