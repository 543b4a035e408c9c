/* SPDX-License-Identifier: Apache-2.0
 *
 * `fallow report` and the files around it: nothing that a run reads is lost by what it writes, and what cannot be
 * written is said before anything is replayed. FALLOW_COMMAND names the program.
 */
#include "support/test.h"

#include "support/test_command.h"

static int make_traces(void **state)
{
    if (command_make_folder(state) != 0) {
        return -1;
    }
    command_write("tiny.ftext", command_trace, sizeof command_trace - 1);
    return command_run(
        "\"$F\" report tiny.ftext --no-times --policy driver,bound --json then.json >screen && "
        "sed 's/\"peak_reserved_bytes\": 10485760/\"peak_reserved_bytes\": 8388608/' "
        "then.json >less.json");
}

/* ---- a baseline ---- */

static void a_baseline_that_is_replaced_is_held_to_as_it_was(void **state)
{
    (void)state;
    assert_int_equal(command_run("cp less.json kept.json; ln -s kept.json link.json; "
                                 "\"$F\" report tiny.ftext --no-times --policy driver "
                                 "--baseline kept.json --json ./link.json >screen"),
                     1);
    flw_test_expect_in(error_text, "policy driver has peak_reserved_bytes of 10485760, above the "
                                   "baseline's 8388608 (+25.00 %)\n"
                                   "fallow: ./link.json: is the baseline, and stays as it was\n");
    assert_int_equal(command_run("cmp kept.json less.json && test -L link.json"), 0);
    /* One that is held to is replaced; another file is written in any case. */
    assert_int_equal(command_run("cp then.json kept.json; "
                                 "\"$F\" report tiny.ftext --no-times --policy bound "
                                 "--baseline kept.json --json kept.json >screen && "
                                 "! grep -q '\"name\": \"driver\"' kept.json"),
                     0);
    assert_int_equal(command_run("\"$F\" report tiny.ftext --policy driver --baseline less.json "
                                 "--json now.json >screen"),
                     1);
    assert_int_equal(command_run("grep -q 10485760 now.json"), 0);
}

/* Before a trace is read: that there is none is not said. */
static void a_baseline_that_is_not_there_is_said_first(void **state)
{
    (void)state;
    command_expect_error("\"$F\" report no.ftext --baseline no.json", 1, "no.json");
}

int main(void)
{
    if (getenv("FALLOW_COMMAND") == NULL) {
        fprintf(stderr, "FALLOW_COMMAND does not name the program\n");
        return 1;
    }
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_baseline_that_is_replaced_is_held_to_as_it_was),
        cmocka_unit_test(a_baseline_that_is_not_there_is_said_first),
    };
    return cmocka_run_group_tests(tests, make_traces, command_remove_folder);
}
