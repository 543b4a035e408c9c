/* SPDX-License-Identifier: Apache-2.0
 *
 * The last minute of `fallow top`: what each second keeps, what holds where no look fell, how it is drawn, and
 * what is forgotten.
 */
#include <string.h>

#include "support/test.h"
#include "top/history.h"

#define PROCESS 42

/* The one pool of the looks below: this test's own, so that no process is asked. */
static struct flw_bulletin_pool pool;

const struct flw_bulletin_pool *flw_top_pool(const struct flw_top_look *look, uint32_t index,
                                             char label[FLW_TOP_LABEL_BYTES])
{
    assert_true(index < look->pool_count);
    strcpy(label, "0");
    return &pool;
}

static struct flw_top_history history;
static char line[FLW_TOP_HISTORY_BYTES];

static void see(pid_t process, uint64_t second, uint64_t live_bytes, uint64_t reserved_bytes)
{
    struct flw_top_look look = {.process = process, .pool_count = 1};
    pool.value[FLW_VALUE_live_bytes] = live_bytes;
    pool.value[FLW_VALUE_reserved_bytes] = reserved_bytes;
    flw_top_history_note(&history, &look, second);
}

static uint64_t draw(uint64_t second, uint32_t columns)
{
    return flw_top_history_line(&history, PROCESS, "0", second, columns, true, line);
}

static int drop(void **state)
{
    (void)state;
    flw_top_history_drop(&history);
    return 0;
}

/* `count` columns on the right are as told, all others blank. */
static void expect_right(const char *right)
{
    size_t blanks = FLW_TOP_SECONDS - strlen(right);
    assert_int_equal(strlen(line), FLW_TOP_SECONDS);
    assert_int_equal(strspn(line, " "), blanks + strspn(right, " "));
    assert_string_equal(line + blanks, right);
}

static void a_second_keeps_the_most_that_was_seen_in_it(void **state)
{
    (void)state;
    see(PROCESS, 100, 10, 80);
    see(PROCESS, 100, 80, 80);
    see(PROCESS, 100, 20, 80);
    see(PROCESS, 101, 0, 80);
    see(PROCESS, 102, 1, 80);
    assert_int_equal(draw(102, FLW_TOP_SECONDS), 80);
    expect_right("@ ."); /* full, nothing, hardly anything */
}

static void what_was_seen_last_holds_until_the_next_look(void **state)
{
    (void)state;
    see(PROCESS, 100, 40, 80);
    see(PROCESS, 104, 80, 80);
    assert_int_equal(draw(106, FLW_TOP_SECONDS), 80);
    expect_right("++++@@@");
    see(PROCESS, 104 + 10 * FLW_TOP_SECONDS, 80, 160); /* long after */
    assert_int_equal(draw(104 + 10 * FLW_TOP_SECONDS, FLW_TOP_SECONDS), 160);
    expect_right("+"); /* it had been forgotten */
}

static void a_minute_goes_by(void **state)
{
    (void)state;
    for (uint64_t second = 100; second < 100 + 2 * FLW_TOP_SECONDS; second++) {
        see(PROCESS, second, second < 130 ? 80 : 40, second < 130 ? 80 : 40);
    }
    uint64_t last = 100 + 2 * FLW_TOP_SECONDS - 1;
    assert_int_equal(draw(last, FLW_TOP_SECONDS), 40);
    for (size_t i = 0; i < FLW_TOP_SECONDS; i++) {
        assert_int_equal(line[i], '@');
    }
}

static void in_fewer_columns_is_the_most_of_several_seconds(void **state)
{
    (void)state;
    for (uint64_t second = 100; second < 100 + FLW_TOP_SECONDS; second++) {
        see(PROCESS, second, second == 130 ? 80 : 1, 80);
    }
    assert_int_equal(draw(159, 6), 80);
    assert_string_equal(line, "...@..");
    assert_int_equal(draw(159, 400), 80); /* never more than the seconds there are */
    assert_int_equal(strlen(line), FLW_TOP_SECONDS);
    assert_int_equal(draw(159, 0), 0);
    assert_string_equal(line, "");
}

static void a_process_is_the_sum_of_its_pools_and_its_own(void **state)
{
    (void)state;
    struct flw_top_look look = {.process = PROCESS, .pool_count = 2};
    see(PROCESS + 1, 100, 7, 7);
    pool.value[FLW_VALUE_live_bytes] = 30;
    pool.value[FLW_VALUE_reserved_bytes] = 40;
    flw_top_history_note(&history, &look, 100);
    assert_int_equal(flw_top_history_line(&history, PROCESS, "", 100, 60, true, line), 80);
    assert_int_equal(flw_top_history_line(&history, PROCESS + 1, "", 100, 60, true, line), 7);
    assert_int_equal(flw_top_history_line(&history, PROCESS, "1", 100, 60, true, line), 0);
    assert_string_equal(line, "");
    assert_int_equal(flw_top_history_line(&history, PROCESS + 1, "", 100, 60, false, line), 7);
    assert_string_equal(line + 59, "\u2588");
}

static void who_is_not_seen_for_a_minute_is_forgotten(void **state)
{
    (void)state;
    see(PROCESS, 100, 1, 1);
    see(PROCESS + 1, 100 + FLW_TOP_SECONDS - 1, 1, 1);
    assert_int_equal(history.count, 4);
    see(PROCESS + 1, 100 + FLW_TOP_SECONDS, 1, 1);
    assert_int_equal(history.count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_second_keeps_the_most_that_was_seen_in_it, drop),
        cmocka_unit_test_teardown(what_was_seen_last_holds_until_the_next_look, drop),
        cmocka_unit_test_teardown(a_minute_goes_by, drop),
        cmocka_unit_test_teardown(in_fewer_columns_is_the_most_of_several_seconds, drop),
        cmocka_unit_test_teardown(a_process_is_the_sum_of_its_pools_and_its_own, drop),
        cmocka_unit_test_teardown(who_is_not_seen_for_a_minute_is_forgotten, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
