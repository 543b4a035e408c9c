/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of the audit's tracked blocks: lookup by any address inside, and the filled part of
 * each. */
#include "support/test.h"

#include <stdbool.h>

#include "preload/audit/liveblocks.h"

#define BASE         0x7f0000000000ull
#define MODEL_BLOCKS 64

struct model {
    uint64_t begin, end;
    bool is_touched;
};

static struct model *model_find(struct model *model, uint64_t address)
{
    for (int i = 0; i < MODEL_BLOCKS; i++) {
        if (model[i].begin <= address && address < model[i].end) {
            return &model[i];
        }
    }
    return NULL;
}

static void model_add(struct model *model, uint64_t begin, uint64_t end)
{
    for (int i = 0; i < MODEL_BLOCKS; i++) {
        if (begin < model[i].end && model[i].begin < end) {
            model[i] = (struct model){0};
        }
    }
    for (int i = 0; i < MODEL_BLOCKS; i++) {
        if (model[i].end == 0) {
            model[i] = (struct model){.begin = begin, .end = end};
            return;
        }
    }
    fail();
}

TEST(blocks_are_found_by_any_address_inside_as_in_a_plain_list)
{
    uint64_t seed = flw_test_seed("audit blocks");
    struct flw_liveblocks blocks;
    struct model model[MODEL_BLOCKS] = {0};
    assert_true(flw_liveblocks_init(&blocks));
    for (int step = 0; step < 20000; step++) {
        uint64_t address = 4096 + flw_test_random(&seed) % 3000;
        uint64_t bytes = 50 + flw_test_random(&seed) % 200;
        struct flw_liveblock *found = flw_liveblocks_find(&blocks, address);
        struct model *expected = model_find(model, address);
        assert_int_equal(found != NULL, expected != NULL);
        if (expected != NULL && found != NULL) {
            assert_true(found->begin == expected->begin && found->end == expected->end);
            assert_int_equal(flw_liveblock_is_touched(&blocks, found), expected->is_touched);
        }
        switch (flw_test_random(&seed) % 8) {
        case 0:
            flw_liveblocks_touch_all(&blocks);
            for (int i = 0; i < MODEL_BLOCKS; i++) {
                model[i].is_touched = true;
            }
            break;
        case 1:
        case 2:
            flw_liveblocks_remove(&blocks, expected != NULL ? expected->begin : address);
            if (expected != NULL) {
                *expected = (struct model){0};
            }
            break;
        case 3:
            if (found != NULL && expected != NULL) {
                found->is_touched = expected->is_touched = true;
            }
            break;
        default:
            assert_true(flw_liveblocks_add(&blocks, address, bytes));
            model_add(model, address, address + bytes);
        }
        if (step % 100 == 0) {
            assert_true(flw_liveblocks_is_valid(&blocks));
        }
    }
    assert_false(flw_liveblocks_add(&blocks, BASE, 0));
    assert_false(flw_liveblocks_add(&blocks, UINT64_MAX - 3, 8));
    flw_liveblocks_finish(&blocks);
}

TEST(filled_stretches_join_and_too_many_count_as_a_touch)
{
    struct flw_liveblocks blocks;
    assert_true(flw_liveblocks_init(&blocks));
    assert_true(flw_liveblocks_add(&blocks, BASE, 1000));
    struct flw_liveblock *block = flw_liveblocks_find(&blocks, BASE + 999);
    flw_liveblock_fill(block, BASE, BASE + 100);
    flw_liveblock_fill(block, BASE + 200, BASE + 300);
    assert_int_equal(block->fill_count, 2);
    assert_true(flw_liveblock_is_fresh(&blocks, block, BASE + 100, BASE + 200));
    assert_false(flw_liveblock_is_fresh(&blocks, block, BASE + 99, BASE + 200));
    assert_false(flw_liveblock_is_fresh(&blocks, block, BASE + 100, BASE + 201));
    flw_liveblock_fill(block, BASE + 100, BASE + 200); /* meets both */
    assert_int_equal(block->fill_count, 1);
    assert_true(flw_liveblocks_is_valid(&blocks));
    for (uint64_t i = 4; i < 10; i++) {
        flw_liveblock_fill(block, BASE + 100 * i, BASE + 100 * i + 50);
    }
    assert_false(flw_liveblock_is_fresh(&blocks, block, BASE + 360, BASE + 370));
    assert_true(flw_liveblocks_is_valid(&blocks));
    flw_liveblocks_finish(&blocks);
}

FLW_TEST_MAIN(NULL, NULL)
