/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the table of addresses, random ones against a plain list.
 */
#include "support/test.h"

#include "preload/address_table.h"

static struct flw_address_table table;

static void clear(void)
{
    table = (struct flw_address_table){0};
}

static void add(uintptr_t real, uintptr_t wrapper)
{
    flw_address_table_add(&table, (struct flw_address){real, wrapper, FLW_HOOK_cuMemFree_v2});
}

static uintptr_t find(uintptr_t real)
{
    const struct flw_address *pair = flw_address_table_find(&table, real);
    return pair != NULL ? pair->wrapper : 0;
}

TEST(what_was_added_is_found_and_nothing_else)
{
    uint64_t random = flw_test_seed("preload.address_table");
    for (unsigned round = 0; round < 50; round++) {
        uintptr_t real[FLW_ADDRESS_MAX];
        clear();
        for (unsigned i = 0; i < FLW_ADDRESS_MAX; i++) {
            real[i] = 0x10000 + 16 * (flw_test_random(&random) % 100000);
            add(real[i], 0x7000000 + 16 * real[i]);
            assert_true(i % 64 != 0 || flw_address_table_is_valid(&table));
        }
        assert_true(flw_address_table_is_valid(&table));
        for (unsigned i = 0; i < FLW_ADDRESS_MAX; i++) {
            assert_int_equal(find(real[i]), 0x7000000 + 16 * real[i]);
            assert_int_equal(find(real[i] + 1), 0);
            assert_int_equal(find(real[i] - 1), 0);
        }
        assert_int_equal(find(1), 0);
        assert_int_equal(find(UINTPTR_MAX), 0);
    }
}

TEST(two_hooks_on_one_address_share_the_first_ones_wrapper)
{
    clear();
    add(100, 1000);
    add(100, 2000);
    assert_int_equal(find(100), 1000);
    assert_int_equal(table.count, 1);
}

TEST(nothing_is_substituted_twice)
{
    clear();
    add(100, 1000);
    add(1000, 5000); /* a wrapper's address */
    add(300, 100);   /* a wrapper that is a real address */
    add(0, 7);
    add(7, 0);
    add(9, 9);
    assert_int_equal(table.count, 1);
    assert_true(flw_address_table_is_valid(&table));
}

TEST(a_full_table_stays_as_it_is)
{
    clear();
    for (uintptr_t i = 0; i < FLW_ADDRESS_MAX; i++) {
        add(10 + 2 * i, 100000 + i);
    }
    add(11, 99);
    assert_int_equal(table.count, FLW_ADDRESS_MAX);
    assert_int_equal(find(11), 0);
    assert_int_equal(find(12), 100001);
}

TEST(a_broken_table_is_told)
{
    clear();
    add(10, 1000);
    add(20, 2000);
    table.at[0].real = 30;
    assert_false(flw_address_table_is_valid(&table));
    table.at[0].real = 2000;
    assert_false(flw_address_table_is_valid(&table));
}

FLW_TEST_MAIN(NULL, NULL)
