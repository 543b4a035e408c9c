/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a pool without host memory for the slots of new slabs: a request that needs them fails at
 * once, with almost no move and growth, and everything continues as before. */
#include "test_api.h"

#include "pool/pool.h"
#include "support/trim.h"

#define RUNS 64

TEST(a_slab_that_has_no_slots_is_tried_once)
{
    struct api api;
    void *runs[RUNS], *block = NULL;
    api_begin_with_pool(&api);
    struct flw_pool *pool = flw_pool_of(api.pool);
    /* Headers to cut runs with, slots included; then no slots for anything new. */
    for (unsigned i = 0; i < RUNS; i++) {
        runs[i] = api_alloc(&api, 2 * MIB + i * 65536, api.stream);
    }
    void *kept = api_alloc(&api, 4096, api.stream);
    for (unsigned i = 0; i < RUNS; i++) {
        assert_int_equal(fallow_free(api.pool, runs[i], api.stream), FALLOW_OK);
    }
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    uint64_t reserved_bytes = pool->heap.map.slot_meta.reserved_bytes;
    pool->heap.map.slot_meta.reserved_bytes = pool->heap.map.slot_meta.used_bytes;
    fallow_stats before = api_stats(&api);
    assert_int_equal(fallow_alloc(api.pool, 512, api.stream, &block), FALLOW_OUT_OF_HOST_MEMORY);
    assert_null(block);
    fallow_stats after = api_stats(&api);
    assert_true(after.grow_count <= before.grow_count + 2);
    assert_true(after.live_bytes == before.live_bytes);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    pool->heap.map.slot_meta.reserved_bytes = reserved_bytes;
    block = api_alloc(&api, 512, api.stream);
    assert_int_equal(fallow_free(api.pool, block, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, kept, api.stream), FALLOW_OK);
    api_end(&api);
}

FLW_TEST_MAIN(NULL, NULL)
