/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a program compiled against the first header of 0.2, run with the newest library. It must not
 * include any header of today.
 */
#include "fallow_v0_2.h"
#include "support/test.h"

#include <string.h>

static fallow_pool *new_pool(void)
{
    fallow_pool_config config;
    fallow_pool *pool = NULL;
    fallow_pool_config_init(&config);
    assert_int_equal(config.struct_size, sizeof config);
    config.driver = "sim";
    config.limit_bytes = (size_t)256 << 20;
    config.economy = FALLOW_MEMORY_FIRST;
    assert_int_equal(fallow_pool_create(&config, &pool), FALLOW_OK);
    return pool;
}

static void allocates_and_frees(void **state)
{
    fallow_pool *pool = new_pool();
    void *block = NULL;
    void *batch[2] = {NULL, NULL};
    size_t sizes[2] = {100, 5000};
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = 3000;
    request.align_bytes = 4096;
    request.tag = 7;
    assert_int_equal(fallow_alloc(pool, 1000, NULL, &block), FALLOW_OK);
    assert_int_equal(fallow_free_sized(pool, block, 1000, NULL), FALLOW_OK);
    assert_int_equal(fallow_alloc_aligned(pool, 1000, 65536, NULL, &block), FALLOW_OK);
    assert_int_equal((uintptr_t)block % 65536, 0);
    assert_int_equal(fallow_free(pool, block, NULL), FALLOW_OK);
    assert_int_equal(fallow_free(pool, block, NULL), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_alloc_batch(pool, sizes, 2, NULL, batch), FALLOW_OK);
    assert_int_equal(fallow_free(pool, batch[0], NULL), FALLOW_OK);
    assert_int_equal(fallow_free(pool, batch[1], NULL), FALLOW_OK);
    assert_int_equal(fallow_alloc_request(pool, &request, NULL, &block), FALLOW_OK);
    fallow_block info;
    fallow_block_init(&info);
    assert_int_equal(fallow_block_info(pool, (char *)block + 10, &info), FALLOW_OK);
    assert_ptr_equal(info.base, block);
    assert_int_equal(info.requested_bytes, 3000);
    assert_int_equal(info.tag, 7);
    assert_int_equal(info.state, FALLOW_BLOCK_LIVE);
    assert_int_equal(fallow_free(pool, block, NULL), FALLOW_OK);
    fallow_pool_destroy(pool);
}

static void reads_what_the_pool_says(void **state)
{
    fallow_pool *pool = new_pool();
    void *block = NULL;
    fallow_stats stats;
    fallow_oom_report report;
    fallow_stats_init(&stats);
    fallow_oom_report_init(&report);
    assert_int_equal(fallow_alloc(pool, (size_t)1 << 30, NULL, &block), FALLOW_OUT_OF_MEMORY);
    assert_null(block);
    assert_int_equal(fallow_pool_get_oom_report(pool, &report), FALLOW_OK);
    assert_int_equal(report.struct_size, sizeof report);
    assert_int_equal(report.size_bytes, (uint64_t)1 << 30);
    assert_int_equal(report.limit_bytes, (uint64_t)256 << 20);
    assert_int_equal(fallow_alloc(pool, 5000, NULL, &block), FALLOW_OK);
    assert_int_equal(fallow_pool_get_stats(pool, &stats), FALLOW_OK);
    assert_int_equal(stats.struct_size, sizeof stats);
    assert_int_equal(stats.alloc_count, 1);
    assert_int_equal(stats.live_count, 1);
    assert_int_equal(stats.requested_bytes, 5000);
    assert_int_equal(stats.oom_count, 1);
    assert_int_equal(fallow_free(pool, block, NULL), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(pool), FALLOW_OK);
    assert_int_equal(fallow_pool_trim(pool, 0, 0, NULL), FALLOW_OK);
    assert_int_equal(fallow_pool_poll(pool), FALLOW_OK);
    fallow_pool_destroy(pool);
}

static void keeps_every_status(void **state)
{
#define X(name, value, text) assert_string_equal(fallow_status_name(value), "FALLOW_" #name);
    FALLOW_STATUS_LIST(X)
#undef X
    assert_string_equal(fallow_status_name(10000), "FALLOW_UNKNOWN");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocates_and_frees),
        cmocka_unit_test(reads_what_the_pool_says),
        cmocka_unit_test(keeps_every_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
