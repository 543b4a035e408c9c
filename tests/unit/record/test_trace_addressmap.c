/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the address map, against a plain table.
 */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "record/addressmap.h"

#define KEYS  2000
#define STEPS 200000

TEST(it_agrees_with_a_plain_table)
{
    static uint32_t table[KEYS];
    struct flw_addressmap map = {0};
    uint64_t random = flw_test_seed("unit.trace_addressmap");
    size_t held = 0;
    memset(table, 0xFF, sizeof(table));
    assert_int_equal(flw_addressmap_find(&map, 5), FLW_ADDRESSMAP_ABSENT);
    assert_int_equal(flw_addressmap_remove(&map, 5), FLW_ADDRESSMAP_ABSENT);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint64_t draw = flw_test_random(&random);
        size_t key = (size_t)(draw % KEYS);
        /* grows for a while, then shrinks */
        bool is_put = (draw >> 32) % 8 < ((step / 20000) % 2 == 0 ? 5u : 3u);
        if (is_put) {
            uint32_t old;
            held += table[key] == FLW_ADDRESSMAP_ABSENT;
            assert_true(flw_addressmap_exchange(&map, (uint64_t)key << 21, step, &old));
            assert_int_equal(old, table[key]);
            table[key] = step;
        } else {
            held -= table[key] != FLW_ADDRESSMAP_ABSENT;
            assert_int_equal(flw_addressmap_remove(&map, (uint64_t)key << 21), table[key]);
            table[key] = FLW_ADDRESSMAP_ABSENT;
        }
        size_t other = (size_t)((draw >> 16) % KEYS);
        assert_int_equal(flw_addressmap_find(&map, (uint64_t)other << 21), table[other]);
        assert_int_equal(map.used_count, held);
    }
    for (size_t key = 0; key < KEYS; key++) {
        assert_int_equal(flw_addressmap_find(&map, (uint64_t)key << 21), table[key]);
    }
    flw_addressmap_finish(&map);
}

FLW_TEST_MAIN(NULL, NULL)
