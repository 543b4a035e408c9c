/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of arrays that grow by moving their pages.
 */
#include "support/test.h"

#include "trace/trace/largearray.h"

static void growth_keeps_what_is_there_and_adds_zeros(void **state)
{
    (void)state;
    uint64_t *array = NULL;
    size_t room = 0;
    for (size_t i = 0; i < 1000000; i++) { /* 8 MB: well into mappings */
        assert_true(FLW_LARGEARRAY_FITS(array, i, room));
        assert_true(i < room);
        assert_int_equal(array[room - 1], 0);
        array[i] = i + 1;
    }
    for (size_t i = 0; i < room; i++) {
        assert_int_equal(array[i], i < 1000000 ? i + 1 : 0);
    }
    flw_largearray_free(array, room, sizeof(*array));
}

static void room_that_is_known_before_is_given_exactly(void **state)
{
    (void)state;
    size_t room = 0;
    uint32_t *array = NULL;
    assert_true(FLW_LARGEARRAY_HOLDS(array, 300000, room));
    assert_int_equal(room, 300000);
    array[299999] = 7;
    assert_true(FLW_LARGEARRAY_HOLDS(array, 700001, room));
    assert_int_equal(room, 700001);
    assert_int_equal(array[299999], 7);
    assert_int_equal(array[700000], 0);
    flw_largearray_free(array, room, sizeof(*array));
}

static void what_cannot_be_had_leaves_the_array_as_it_was(void **state)
{
    (void)state;
    size_t room = 0;
    uint64_t *array = NULL;
    assert_true(FLW_LARGEARRAY_HOLDS(array, 10, room));
    assert_int_equal(room, 64);
    array[63] = 5;
    assert_false(flw_largearray_grow(&array, SIZE_MAX / 8, &room, sizeof(*array)));
    assert_false(flw_largearray_grow(&array, SIZE_MAX / 32, &room, sizeof(*array)));
    assert_int_equal(room, 64);
    assert_int_equal(array[63], 5);
    flw_largearray_free(array, room, sizeof(*array));
    flw_largearray_free(NULL, 0, sizeof(*array));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth_keeps_what_is_there_and_adds_zeros),
        cmocka_unit_test(room_that_is_known_before_is_given_exactly),
        cmocka_unit_test(what_cannot_be_had_leaves_the_array_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
