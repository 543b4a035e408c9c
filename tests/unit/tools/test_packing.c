/* SPDX-License-Identifier: Apache-2.0
 *
 * The offline packing of a report: cases known by heart, bounds on random programs, and where it
 * gives up. Builds with FALLOW_CHECK_LEVEL 2 look for blocks that overlap.
 */
#include "support/test.h"

#include "report/packing.h"

#define MOST_BLOCKS 40000

/* A program of which only allocations and ends of lives matter. */
struct bed {
    struct flw_program program;
    struct flw_op ops[2 * MOST_BLOCKS];
    struct flw_life lives[MOST_BLOCKS];
    uint64_t live_bytes, peak_bytes, total_bytes, largest_bytes;
};

static struct bed bed;

static void begin(void)
{
    bed = (struct bed){.program = {.ops = bed.ops}};
}

static uint32_t allocate(uint64_t size_bytes)
{
    uint32_t block = (uint32_t)bed.program.block_count++;
    bed.ops[bed.program.op_count++] =
        (struct flw_op){.kind = FLW_OP_ALLOC, .size_bytes = size_bytes, .block = block};
    bed.lives[block] = (struct flw_life){bed.program.op_count - 1, UINT32_MAX};
    bed.live_bytes += size_bytes;
    bed.total_bytes += size_bytes;
    bed.peak_bytes = bed.live_bytes > bed.peak_bytes ? bed.live_bytes : bed.peak_bytes;
    bed.largest_bytes = size_bytes > bed.largest_bytes ? size_bytes : bed.largest_bytes;
    return block;
}

static void take_back(uint32_t block, uint64_t size_bytes)
{
    bed.lives[block].end_op = bed.program.op_count;
    bed.ops[bed.program.op_count++] =
        (struct flw_op){.kind = FLW_OP_FREE, .size_bytes = size_bytes, .block = block};
    bed.live_bytes -= size_bytes;
}

static uint64_t measure(void)
{
    return flw_packing_measure(&bed.program, bed.lives);
}

TEST(a_program_without_blocks_needs_nothing)
{
    begin();
    assert_int_equal(measure(), 0);
}

TEST(blocks_that_never_meet_share_their_bytes)
{
    begin();
    take_back(allocate(100), 100);
    take_back(allocate(300), 300);
    take_back(allocate(200), 200);
    assert_int_equal(measure(), 300);
}

/* 2 + 2 are live, the first is freed, then 4 are allocated: without moving blocks, 6 are enough only if the block that
 * stays is at the bottom or on top. */
TEST(a_planner_leaves_room_for_what_comes)
{
    begin();
    uint32_t goes = allocate(2);
    uint32_t stays = allocate(2);
    take_back(goes, 2);
    uint32_t comes = allocate(4);
    take_back(stays, 2);
    take_back(comes, 4);
    assert_int_equal(measure(), 6);
    assert_int_equal(bed.peak_bytes, 6);
}

TEST(a_packing_lies_between_the_most_live_and_all_bytes)
{
    uint64_t random = flw_test_seed("unit.packing");
    for (int round = 0; round < 20; round++) {
        static uint64_t sizes[2000];
        size_t first = 0;
        begin();
        for (size_t i = 0; i < 2000; i++) {
            uint64_t drawn = flw_test_random(&random);
            if ((drawn >> 33) % 5 < 3 || first == bed.program.block_count) {
                sizes[bed.program.block_count] = 1 + drawn % 5000;
                allocate(sizes[bed.program.block_count]);
            } else if (bed.program.block_count > first) {
                take_back((uint32_t)first, sizes[first]);
                first++;
            }
        }
        uint64_t bytes = measure();
        assert_true(bytes >= bed.peak_bytes && bytes >= bed.largest_bytes);
        assert_true(bytes <= bed.total_bytes);
        assert_true(bytes <
                    bed.peak_bytes + bed.peak_bytes / 4); /* first in, first out packs well */
    }
}

TEST(too_many_blocks_at_once_are_not_packed)
{
    begin();
    for (uint64_t i = 0; i < MOST_BLOCKS; i++) {
        allocate(i + 1);
    }
    assert_true(measure() == UINT64_MAX);
    begin();
    allocate(UINT64_MAX - 1);
    allocate(UINT64_MAX - 1);
    assert_true(measure() == UINT64_MAX);
}

FLW_TEST_MAIN(NULL, NULL)
