/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the format of the stats page: written pages are readable, and broken ones are refused. */
#include "support/test.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "publish/stats_file.h"
#include "publish/stats_page.h"

static unsigned char
    scratch[2 * FLW_STATS_FILE_BODY_BYTES]; /* room for three pools of the largest size */

static struct flw_stats_page_pool pool_of(uint64_t *random)
{
    struct flw_stats_page_pool pool = {.driver = "sim"};
    for (unsigned i = 0; i < FLW_VALUE_COUNT; i++) {
        pool.value[i] = flw_test_random(random);
    }
    for (unsigned i = 0; i < FLW_STATS_PAGE_STAGES; i++) {
        pool.stage_count[i] = flw_test_random(random);
        pool.stage_ns[i] = flw_test_random(random);
    }
    pool.class_count = (uint32_t)(flw_test_random(random) % (FLW_STATS_PAGE_CLASSES + 1));
    pool.stream_count = (uint32_t)(flw_test_random(random) % (FLW_STATS_PAGE_STREAMS + 2));
    for (uint32_t i = 0; i < pool.class_count; i++) {
        pool.classes[i] = (struct flw_stats_page_class){.size_bytes = i,
                                                        .deferred_bytes = flw_test_random(random)};
    }
    for (uint32_t i = 0; i < pool.stream_count; i++) {
        pool.streams[i] =
            (struct flw_stats_page_stream){.kind = i % 4, .fence_count = flw_test_random(random)};
    }
    pool.holder_count = (uint32_t)(flw_test_random(random) % (FLW_STATS_PAGE_HOLDERS + 2));
    for (uint32_t i = 0; i < pool.holder_count; i++) {
        pool.holders[i] = (struct flw_stats_page_holder){.stack_count = 1 + i % 2,
                                                         .requested_bytes = flw_test_random(random),
                                                         .frames = "step\ntrain.py\n12\n"};
    }
    pool.arena_count = (uint32_t)(flw_test_random(random) % (FLW_STATS_PAGE_ARENAS + 1));
    for (uint32_t i = 0; i < pool.arena_count; i++) {
        pool.arenas[i] =
            (struct flw_stats_page_arena){.lease_count = flw_test_random(random), .name = "decode"};
    }
    return pool;
}

static size_t write_pools(void *bytes, size_t capacity, const struct flw_stats_page_pool *pools,
                          uint32_t count)
{
    struct flw_stats_page head = {
        .process = 4242, .name = "a name", .clock_ns = 77, .pool_total = count};
    struct flw_stats_page_writer writer;
    flw_stats_page_begin(&writer, bytes, capacity);
    for (uint32_t i = 0; i < count; i++) {
        flw_stats_page_add(&writer, &pools[i]);
    }
    return flw_stats_page_end(&writer, &head);
}

TEST(a_bulletin_is_read_as_it_was_written)
{
    uint64_t random = flw_test_seed("bulletin");
    struct flw_stats_page_pool pools[3] = {pool_of(&random), pool_of(&random), pool_of(&random)};
    struct flw_stats_page stats_page;
    size_t count = write_pools(scratch, sizeof scratch, pools, 3);
    assert_true(flw_stats_page_read(&stats_page, scratch, count));
    assert_int_equal(stats_page.process, 4242);
    assert_int_equal(stats_page.clock_ns, 77);
    assert_string_equal(stats_page.name, "a name");
    assert_int_equal(stats_page.pool_total, 3);
    assert_int_equal(stats_page.pool_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(&stats_page.pools[i], &pools[i], sizeof pools[i]);
    }
    flw_stats_page_drop(&stats_page);
}

/* Call stacks take no room from the tables of later pools. */
TEST(call_stacks_leave_half_of_a_board)
{
    enum {
        POOLS = 12
    };
    uint64_t random = 7;
    struct flw_stats_page_pool *pools = calloc(POOLS, sizeof *pools);
    struct flw_stats_page stats_page;
    assert_non_null(pools);
    for (unsigned i = 0; i < POOLS; i++) {
        pools[i] = pool_of(&random);
        pools[i].class_count = FLW_STATS_PAGE_CLASSES;
        pools[i].stream_count = FLW_STATS_PAGE_STREAMS + 1;
        pools[i].holder_count = FLW_STATS_PAGE_HOLDERS + 1;
        pools[i].arena_count = 4;
    }
    size_t count = write_pools(scratch, FLW_STATS_FILE_BODY_BYTES, pools, POOLS);
    assert_true(flw_stats_page_read(&stats_page, scratch, count));
    assert_int_equal(stats_page.pool_count, POOLS);
    assert_int_equal(stats_page.pools[0].holder_count, FLW_STATS_PAGE_HOLDERS + 1);
    assert_int_equal(stats_page.pools[POOLS - 1].holder_count, 0);
    for (unsigned i = 0; i < POOLS; i++) {
        assert_int_equal(stats_page.pools[i].stream_count, FLW_STATS_PAGE_STREAMS + 1);
    }
    flw_stats_page_drop(&stats_page);
    free(pools);
}

TEST(pools_that_do_not_fit_are_counted_and_left_out)
{
    uint64_t random = 5;
    struct flw_stats_page_pool pools[3] = {pool_of(&random), pool_of(&random), pool_of(&random)};
    struct flw_stats_page stats_page;
    bool was_bare = false, was_out = false;
    size_t all = write_pools(scratch, sizeof scratch, pools, 3);
    for (size_t capacity = 64; capacity <= all; capacity += 8) {
        unsigned char *bytes = malloc(capacity); /* a sanitizer detects writes past the end */
        assert_non_null(bytes);
        size_t count = write_pools(bytes, capacity, pools, 3);
        assert_true(count <= capacity);
        assert_true(flw_stats_page_read(&stats_page, bytes, count));
        assert_int_equal(stats_page.pool_total, 3);
        was_out |= stats_page.pool_count < 3;
        for (uint32_t i = 0; i < stats_page.pool_count; i++) {
            was_bare |= stats_page.pools[i].stream_count == 0 && pools[i].stream_count != 0;
        }
        flw_stats_page_drop(&stats_page);
        free(bytes);
    }
    assert_true(was_bare && was_out);
}

/* Words, little-endian, of a version that has one more of everything. */
TEST(records_of_a_later_version_are_skipped_at_their_end)
{
    struct flw_stats_page_pool pool = {.class_count = 2, .stream_count = 1};
    struct flw_stats_page stats_page;
    uint64_t *words = (uint64_t *)(void *)scratch, *at = words;
    uint64_t tail = 2 * FLW_STATS_PAGE_STAGES + 4;
    *at++ = 7; /* head */
    for (uint64_t i = 0; i < 4; i++) {
        *at++ = i == 0 ? 99 : 0;
    }
    *at++ = 1;
    *at++ = 1;
    *at++ = 12345; /* unknown to us */
    *at++ = FLW_VALUE_COUNT + 1 + tail;
    for (uint64_t i = 0; i < FLW_VALUE_COUNT; i++) {
        *at++ = pool.value[i] = i + 1;
    }
    *at++ = 12345;
    for (uint64_t i = 0; i < tail; i++) {
        *at++ = i < FLW_STATS_PAGE_STAGES ? 50 + i : 0;
    }
    *at++ = 2; /* classes, of 8 words */
    *at++ = 8;
    for (uint64_t i = 0; i < 16; i++) {
        *at++ = 100 + i;
    }
    *at++ = 1; /* streams, of 3 words: of an earlier version */
    *at++ = 3;
    *at++ = 0;
    *at++ = 31;
    *at++ = 32;
    *at++ = 1; /* holders, of 4 words: the frames are cut */
    *at++ = 4;
    *at++ = 1;
    *at++ = 41;
    *at++ = 42;
    *at++ = UINT64_C(0x0a666564); /* "def\n" */
    *at++ = 1;                    /* one arena of 7 words, with a cut name */
    *at++ = 7;
    for (uint64_t i = 0; i < 6; i++) {
        *at++ = 51 + i;
    }
    *at++ = UINT64_C(0x666564);
    assert_true(flw_stats_page_read(&stats_page, words, (size_t)(at - words) * 8));
    assert_int_equal(stats_page.process, 99);
    assert_memory_equal(stats_page.pools->value, pool.value, sizeof pool.value);
    assert_int_equal(stats_page.pools->stage_count[11], 61);
    assert_int_equal(stats_page.pools->classes[0].size_bytes, 100);
    assert_int_equal(stats_page.pools->classes[1].size_bytes, 108);
    assert_int_equal(stats_page.pools->streams[0].handle, 32);
    assert_int_equal(stats_page.pools->streams[0].fence_count, 0);
    assert_int_equal(stats_page.pools->holder_count, 1);
    assert_int_equal(stats_page.pools->holders[0].requested_bytes, 42);
    assert_string_equal(stats_page.pools->holders[0].frames, "def\n");
    assert_int_equal(stats_page.pools->arena_count, 1);
    assert_int_equal(stats_page.pools->arenas[0].lease_count, 53);
    assert_string_equal(stats_page.pools->arenas[0].name, "def");
    flw_stats_page_drop(&stats_page);
}

TEST(a_broken_bulletin_is_refused)
{
    uint64_t random = flw_test_seed("broken bulletin");
    struct flw_stats_page_pool pools[2] = {pool_of(&random), pool_of(&random)};
    struct flw_stats_page stats_page;
    size_t count = write_pools(scratch, sizeof scratch, pools, 2);
    unsigned char *copy = malloc(count);
    assert_non_null(copy);
    for (size_t cut = 0; cut < count; cut += 1 + flw_test_random(&random) % 16) {
        unsigned char *bytes = malloc(cut + 1);
        assert_non_null(bytes);
        memcpy(bytes, scratch, cut);
        assert_false(flw_stats_page_read(&stats_page, bytes, cut));
        free(bytes);
    }
    for (int i = 0; i < 4000; i++) { /* may be valid by chance: only must not crash */
        memcpy(copy, scratch, count);
        for (uint64_t n = 1 + flw_test_random(&random) % 4; n > 0; n--) {
            size_t at = flw_test_random(&random) % (n == 1 ? count : 400);
            copy[at] = (unsigned char)flw_test_random(&random);
        }
        if (flw_stats_page_read(&stats_page, copy, count)) {
            flw_stats_page_drop(&stats_page);
        }
    }
    free(copy);
}

FLW_TEST_MAIN(NULL, NULL)
