/* SPDX-License-Identifier: Apache-2.0
 *
 * The model of PyTorch's allocator in scenarios computed by hand: expandable segments, and one for
 * each setting.
 */
#include "support/test.h"

#include "policies/pytorch_model.h"

#include "support/fake_device.h"

static struct flw_pytorch_model model;
static struct flw_lanes lanes;

static void start(uint64_t room_bytes, struct flw_pytorch_settings settings)
{
    lanes.stream_count = 4;
    flw_pytorch_init(&model, fake_device(room_bytes), &lanes, &settings);
}

static void stop(uint64_t room_bytes)
{
    assert_true(flw_pytorch_heap_is_valid(&model.heap));
    flw_pytorch_finish(&model);
    assert_int_equal(fake_room_bytes, room_bytes);
    assert_int_equal(fake_region_count, 0);
}

static struct flw_pytorch_settings expandable(void)
{
    struct flw_pytorch_settings settings = flw_pytorch_standard;
    settings.address_room_bytes = FLW_GIB;
    return settings;
}

static struct flw_pytorch_block *allocate(uint64_t bytes, uint16_t stream)
{
    struct flw_pytorch_block *block = flw_pytorch_alloc(&model, bytes, stream);
    assert_non_null(block);
    assert_true(flw_pytorch_heap_is_valid(&model.heap));
    return block;
}

static void expect_reserved(uint64_t mib)
{
    assert_int_equal(model.heap.reserved_bytes, mib * FLW_MIB);
}

/* --- expandable segments --- */

TEST(a_segment_grows_by_granules_behind_its_free_end)
{
    start(FLW_GIB, expandable());
    struct flw_pytorch_block *first = allocate(3 * FLW_MIB, 0);
    expect_reserved(20);
    struct flw_pytorch_block *second = allocate(30 * FLW_MIB, 0); /* 17 MiB are there, 13 are not */
    expect_reserved(40);
    assert_int_equal(second->address, first->address + 3 * FLW_MIB);
    assert_int_equal(second->size_bytes, 30 * FLW_MIB);
    allocate(7 * FLW_MIB, 0); /* the end, exactly */
    expect_reserved(40);
    assert_int_equal(fake_region_count, 1);
    stop(FLW_GIB);
}

TEST(small_blocks_and_other_streams_have_segments_of_their_own)
{
    start(FLW_GIB, expandable());
    allocate(512, 0);
    expect_reserved(2);
    allocate(2 * FLW_MIB, 0);
    expect_reserved(22);
    allocate(512, 1);
    expect_reserved(24);
    assert_int_equal(fake_region_count, 3);
    allocate(FLW_MIB, 0); /* 1.0 MiB of the first granule */
    allocate(FLW_MIB, 0); /* 0.99 MiB are left of that granule: a second one */
    expect_reserved(26);
    stop(FLW_GIB);
}

TEST(whole_granules_without_a_live_byte_go_back)
{
    start(FLW_GIB, expandable());
    struct flw_pytorch_block *first = allocate(15 * FLW_MIB, 0);
    struct flw_pytorch_block *middle = allocate(50 * FLW_MIB, 0); /* 15 to 65 */
    allocate(10 * FLW_MIB, 0);                                    /* 65 to 75, of 80 */
    uint64_t base = first->address;
    expect_reserved(80);
    flw_pytorch_free(&model, middle);
    expect_reserved(80);
    flw_pytorch_release_cached(&model); /* 20 to 60 */
    assert_true(flw_pytorch_heap_is_valid(&model.heap));
    expect_reserved(40);
    assert_int_equal(allocate(5 * FLW_MIB, 0)->address, base + 60 * FLW_MIB); /* cannot grow */
    expect_reserved(40);
    assert_int_equal(allocate(45 * FLW_MIB, 0)->address,
                     base + 15 * FLW_MIB); /* 15 to 20 was mapped */
    expect_reserved(80);
    stop(FLW_GIB);
}

TEST(a_hole_that_is_too_small_is_left_for_the_end)
{
    start(FLW_GIB, expandable());
    uint64_t base = allocate(20 * FLW_MIB, 0)->address;
    struct flw_pytorch_block *middle = allocate(20 * FLW_MIB, 0);
    allocate(20 * FLW_MIB, 0);
    flw_pytorch_free(&model, middle);
    flw_pytorch_release_cached(&model);
    expect_reserved(40);
    assert_int_equal(allocate(25 * FLW_MIB, 0)->address, base + 60 * FLW_MIB);
    expect_reserved(80);
    assert_int_equal(allocate(12 * FLW_MIB, 0)->address,
                     base + 85 * FLW_MIB); /* 15 are free there */
    assert_int_equal(allocate(12 * FLW_MIB, 0)->address, base + 20 * FLW_MIB);
    expect_reserved(100);
    stop(FLW_GIB);
}

TEST(the_growing_end_is_kept_for_what_fits_nowhere_else)
{
    start(FLW_GIB, expandable());
    uint64_t base = allocate(6 * FLW_MIB, 0)->address;
    struct flw_pytorch_block *hole = allocate(9 * FLW_MIB, 0);
    allocate(3 * FLW_MIB, 0); /* 2 MiB are left at the end */
    flw_pytorch_free(&model, hole);
    assert_int_equal(allocate(2 * FLW_MIB, 0)->address, base + 6 * FLW_MIB);
    stop(FLW_GIB);
}

TEST(an_empty_segment_gives_its_addresses_back_too)
{
    start(FLW_GIB, expandable());
    struct flw_pytorch_block *block = allocate(100 * FLW_MIB, 0);
    flw_pytorch_free(&model, block);
    flw_pytorch_release_cached(&model);
    expect_reserved(0);
    assert_int_equal(fake_region_count, 0);
    stop(FLW_GIB);
}

TEST(a_full_device_unmaps_what_another_stream_left)
{
    start(100 * FLW_MIB, expandable());
    struct flw_pytorch_block *block = allocate(80 * FLW_MIB, 0);
    assert_null(flw_pytorch_alloc(&model, 30 * FLW_MIB, 1));
    assert_true(flw_pytorch_heap_is_valid(&model.heap));
    flw_pytorch_free(&model, block);
    allocate(90 * FLW_MIB, 1);
    expect_reserved(100);
    stop(100 * FLW_MIB);
}

/* --- settings --- */

TEST(a_private_pool_gives_nothing_back)
{
    struct flw_pytorch_settings both[] = {flw_pytorch_standard, expandable()};
    for (size_t i = 0; i < 2; i++) {
        struct flw_lane private_lane = {.pool = 1};
        start(FLW_GIB, both[i]);
        lanes = (struct flw_lanes){.stream_count = 1, .list = &private_lane, .count = 1};
        struct flw_pytorch_block *common = allocate(20 * FLW_MIB, 0);
        struct flw_pytorch_block *private = allocate(20 * FLW_MIB, 1);
        uint64_t address = private->address;
        flw_pytorch_free(&model, common);
        flw_pytorch_free(&model, private);
        flw_pytorch_release_cached(&model);
        expect_reserved(20);
        assert_int_equal(allocate(20 * FLW_MIB, 1)->address, address);
        stop(FLW_GIB);
    }
}

TEST(blocks_above_the_largest_size_to_split_serve_their_like_only)
{
    struct flw_pytorch_settings settings = flw_pytorch_standard;
    settings.max_split_bytes = 32 * FLW_MIB;
    start(FLW_GIB, settings);
    struct flw_pytorch_block *large = allocate(64 * FLW_MIB, 0);
    flw_pytorch_free(&model, large);
    allocate(5 * FLW_MIB, 0); /* not from the large one: a segment of 20 MiB */
    expect_reserved(84);
    large = allocate(60 * FLW_MIB, 0); /* less than 20 MiB to spare: the whole block */
    assert_int_equal(large->size_bytes, 64 * FLW_MIB);
    expect_reserved(84);
    flw_pytorch_free(&model, large);
    allocate(44 * FLW_MIB, 0); /* 20 MiB to spare */
    expect_reserved(128);
    stop(FLW_GIB);
}

TEST(a_full_device_gives_unsplit_blocks_back_before_the_rest)
{
    struct flw_pytorch_settings settings = flw_pytorch_standard;
    settings.max_split_bytes = 32 * FLW_MIB;
    start(140 * FLW_MIB, settings);
    struct flw_pytorch_block *small = allocate(20 * FLW_MIB, 0);
    struct flw_pytorch_block *large = allocate(60 * FLW_MIB, 0);
    struct flw_pytorch_block *larger = allocate(40 * FLW_MIB, 0);
    flw_pytorch_free(&model, small);
    flw_pytorch_free(&model, large);
    flw_pytorch_free(&model, larger);
    expect_reserved(120);
    allocate(90 * FLW_MIB,
             0); /* neither 40 nor 60 suffices: both are released, not the small one */
    expect_reserved(110);
    stop(140 * FLW_MIB);
}

TEST(sizes_round_up_to_divisions_of_powers_of_two)
{
    static const struct {
        uint64_t divisions, bytes, rounded_bytes;
    } cases[] = {{1, 1200, 1536},       {4, 1200, 1536},       {4, 2048, 2048},
                 {4, 2049, 2560},       {4, 5000, 5120},       {8, 1000000, 1048576},
                 {4, 1300000, 1310720}, {2, 5000000, 6291456}, {16, 5000000, 5242880}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct flw_pytorch_settings settings = expandable(); /* every tail is split off */
        settings.roundup_divisions = cases[i].divisions;
        start(FLW_GIB, settings);
        assert_int_equal(allocate(cases[i].bytes, 0)->size_bytes, cases[i].rounded_bytes);
        stop(FLW_GIB);
    }
}

/* A free block's age is the number of later requests of the pool. */
TEST(garbage_older_than_the_average_goes_before_a_segment_is_taken)
{
    struct flw_pytorch_settings settings = flw_pytorch_standard;
    settings.collect_bytes = 100 * FLW_MIB;
    start(FLW_GIB, settings);
    struct flw_pytorch_block *old = allocate(30 * FLW_MIB, 0);
    struct flw_pytorch_block *young = allocate(40 * FLW_MIB, 0);
    struct flw_pytorch_block *last = allocate(26 * FLW_MIB, 0);
    flw_pytorch_free(&model, old);
    allocate(10 * FLW_MIB, 1); /* 96 MiB before, which is not above 100 */
    expect_reserved(106);
    flw_pytorch_free(&model, young);
    flw_pytorch_free(&model, last);
    allocate(50 * FLW_MIB, 0); /* ages 2, 1, 1: the first suffices */
    expect_reserved(106 - 30 + 50);
    allocate(60 * FLW_MIB, 0); /* ages 2, 2: nobody is below the average */
    expect_reserved(126 - 40 - 26 + 60);
    stop(FLW_GIB);
}

FLW_TEST_MAIN(NULL, NULL)
