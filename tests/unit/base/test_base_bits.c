/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof of base/bits.h against slow definitions. */
#include "support/test.h"

#include "base/bits.h"

TEST(log2_and_lowest_bit_agree_with_counting)
{
    for (unsigned high = 0; high < 64; high++) {
        for (unsigned low = 0; low <= high; low++) {
            uint64_t x = (1ull << high) | (1ull << low);
            assert_int_equal(flw_log2_floor(x), high);
            assert_int_equal(flw_lowest_bit(x), low);
            assert_int_equal(flw_is_pow2(x), high == low);
        }
    }
    assert_false(flw_is_pow2(0));
}

TEST(alignment_rounds_to_the_neighbouring_multiples)
{
    for (uint64_t pow2 = 1; pow2 <= 4096; pow2 *= 2) {
        for (uint64_t x = 0; x <= 3 * pow2; x++) {
            uint64_t up = flw_align_up(x, pow2);
            uint64_t down = flw_align_down(x, pow2);
            assert_true(up % pow2 == 0 && up >= x && up - x < pow2);
            assert_true(down % pow2 == 0 && down <= x && x - down < pow2);
        }
    }
}

TEST(division_upward_never_wraps)
{
    assert_true(flw_div_up(0, 7) == 0);
    assert_true(flw_div_up(7, 7) == 1);
    assert_true(flw_div_up(8, 7) == 2);
    assert_true(flw_div_up(UINT64_MAX, 2) == 1ull << 63);
    assert_true(flw_div_up(UINT64_MAX, 1) == UINT64_MAX);
}

TEST(clamp_keeps_a_value_inside_its_bounds)
{
    assert_true(flw_clamp(5, 1, 9) == 5);
    assert_true(flw_clamp(0, 1, 9) == 1);
    assert_true(flw_clamp(UINT64_MAX, 1, 9) == 9);
    assert_true(flw_min(2, 3) == 2 && flw_max(2, 3) == 3);
}

FLW_TEST_MAIN(NULL, NULL)
