/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof of the size classes as documented in memory/size_class.h, over every size to the
 * largest class. Does not: measure a pool's waste (property.waste_bound does). */
#include "support/test.h"

#include "memory/size_class.h"

TEST(classes_grow_and_stand_where_the_formula_puts_them)
{
    assert_true(flw_class_bytes(0) == 256);
    for (unsigned c = 1; c <= 8; c++) {
        assert_true(flw_class_bytes(c) == 512 * c);
    }
    for (unsigned c = 1; c < FLW_CLASS_COUNT; c++) {
        uint64_t below = flw_class_bytes(c - 1), size = flw_class_bytes(c);
        assert_true(size > below);
        assert_true(size % 512 == 0);
        if (c > 8) { /* eight to a doubling: the step is an eighth of the doubling's lower end */
            uint64_t low = 4096ull << ((c - 9) / 8);
            assert_true(size - below == low / 8);
        }
    }
    assert_true(flw_class_bytes(FLW_CLASS_COUNT - 1) == FLW_CLASS_MAX_BYTES);
}

TEST(every_size_gets_the_smallest_class_that_holds_it)
{
    unsigned expected = 0;
    for (uint64_t size = 1; size <= FLW_CLASS_MAX_BYTES; size++) {
        expected += size > flw_class_bytes(expected);
        if (flw_class_of(size) != expected) {
            fail_msg("size %llu: class %u, not %u", (unsigned long long)size, flw_class_of(size),
                     expected);
        }
    }
    assert_int_equal(expected, FLW_CLASS_COUNT - 1);
}

TEST(no_size_wastes_more_than_promised)
{
    for (uint64_t size = 1; size <= FLW_CLASS_MAX_BYTES; size++) {
        uint64_t usable = flw_request_usable_bytes(size), waste = usable - size;
        bool is_kept = usable >= size && usable == flw_class_bytes(flw_class_of(size)) &&
                       (size <= 256    ? waste <= 255
                        : size <= 4096 ? waste <= 511
                                       : waste * 8 <= size);
        if (!is_kept) {
            fail_msg("size %llu occupies %llu", (unsigned long long)size,
                     (unsigned long long)usable);
        }
    }
    /* Above, whole units: at most one unit less a byte. */
    for (uint64_t size = FLW_CLASS_MAX_BYTES + 1; size < 4 * FLW_MIB; size += 997) {
        uint64_t usable = flw_request_usable_bytes(size);
        assert_true(usable >= size && usable - size < FLW_UNIT_BYTES);
        assert_true(usable % FLW_UNIT_BYTES == 0);
    }
    assert_true(flw_request_usable_bytes(FLW_REQUEST_MAX) == FLW_REQUEST_MAX);
}

TEST(a_slab_is_the_fewest_units_with_a_tail_of_three_percent)
{
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        uint64_t size = flw_class_bytes(c);
        uint32_t units = flw_class_slab_units(c);
        for (unsigned step = 0; step < FLW_SLAB_STEPS; step++) {
            uint64_t bytes = ((uint64_t)units << step) * FLW_UNIT_BYTES;
            assert_true(bytes >= size && (bytes % size) * 100 <= bytes * 3);
        }
        for (uint32_t fewer = 1; fewer < units; fewer++) {
            uint64_t bytes = fewer * FLW_UNIT_BYTES;
            assert_true(bytes < size || (bytes % size) * 100 > bytes * 3);
        }
        assert_true(units <= FLW_SLAB_MAX_UNITS);
    }
}

TEST(an_aligned_class_is_the_smallest_multiple_that_fits)
{
    for (uint64_t align = 1; align <= 4 * FLW_MIB; align *= 2) {
        for (uint64_t size = 1; size <= FLW_CLASS_MAX_BYTES + 4096; size += 509) {
            unsigned expected = FLW_CLASS_COUNT;
            if (size <= FLW_CLASS_MAX_BYTES && align <= FLW_UNIT_BYTES) {
                for (unsigned c = FLW_CLASS_COUNT; c-- > 0;) {
                    bool fits = flw_class_bytes(c) >= size && flw_class_bytes(c) % align == 0;
                    expected = fits ? c : expected;
                }
            }
            assert_int_equal(flw_class_of_aligned(size, align), expected);
        }
    }
}

FLW_TEST_MAIN(NULL, NULL)
