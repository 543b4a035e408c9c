/* SPDX-License-Identifier: Apache-2.0
 *
 * The summary of the program `lender` at the end of a process, as a line and as JSON: printed
 * once, completely or not at all. FALLOW_COMMAND, ALLOC_CLIENT, DRIVER_FOLDER as for mode trace;
 * RIVAL is another interposer. */
#include "support/test_command.h"

/* $R: run; $L: the lender, on the simulated driver. */
static int run(const char *line)
{
    char whole[1600];
    snprintf(
        whole, sizeof whole,
        "unset FALLOW LD_PRELOAD; export LD_LIBRARY_PATH=$DRIVER_FOLDER L=$ALLOC_CLIENT; R=\"$F run\"; %s",
        line);
    return command_run(whole);
}

TEST(a_line_says_what_mode_trace_saw)
{
    assert_int_equal(run("$R --mode trace --stats - -- $L misuse"), 0);
    flw_test_expect_in(error_text,
                       "mode trace: 1 allocation, 1.0 MiB in all, 1 free, 2 refused frees\n");
    assert_int_equal(run("$R --mode trace --stats - --trace t.ftrace --poison 1 -- $L kinds"), 0);
    flw_test_expect_in(error_text, "8 allocations, ");
    flw_test_expect_in(error_text, " 7 frees, 1 failed allocation, 2 files, 6 poisoned blocks\n");
}

TEST(json_says_the_same)
{
    assert_int_equal(
        run("$R --mode trace --stats s.json --trace t.ftrace -- $L many 1000 && cat s.json"), 0);
    assert_string_equal(error_text, "");
    flw_test_expect_in(out_text, "\"mode\": \"trace\"");
    assert_int_equal(command_number("\"trace\"", "allocs"), 1000);
    assert_int_equal(command_number("\"trace\"", "frees"), 1000 - 64);
    assert_int_equal(command_number("\"trace\"", "files"), 1);
    assert_int_equal(command_number("", "pool_count"), 0);
    assert_true(command_number("\"reached\"", "linked") > 0);
    if (run("python3 -c 'import json, sys; sys.exit(json.load(open(\"s.json\"))[\"schema\"] != 1)'") ==
        127) {
        print_message("no python3: the JSON was not parsed\n");
    } else {
        assert_int_equal(
            run("python3 -c 'import json, sys; sys.exit(json.load(open(\"s.json\"))[\"schema\"] != 1)'"),
            0);
    }
}

TEST(pools_say_what_they_allocated)
{
    assert_int_equal(run("$R --stats s.json -- $L many 1000 && cat s.json"), 0);
    assert_string_equal(error_text, "");
    assert_int_equal(command_number("\"all\"", "allocs"), 1000);
    assert_int_equal(command_number("\"all\"", "frees"), 1000 - 64);
    assert_int_equal(command_number("\"pools\"", "allocs"), 1000);
    assert_int_equal(command_number("", "pool_count"), 1);
    assert_true(command_number("\"all\"", "hits") > 500);
    assert_true(command_number("\"all\"", "peak_reserved_bytes") >= 2 << 20);
    assert_null(strstr(out_text, "\"trace\": {"));
    assert_int_equal(run("$R --stats s.json -- $L misuse && cat s.json"), 0);
    assert_int_equal(command_number("", "double_frees"), 1);
    assert_int_equal(command_number("", "foreign_frees"), 1);
    assert_int_equal(run("$R --mode strict --stats s.json -- $L misuse && cat s.json"), 0);
    assert_int_equal(command_number("", "double_frees"), 1);
    assert_int_equal(command_number("", "foreign_frees"), 1);
    assert_int_equal(run("$R --mode strict --stats - --poison 7 -- $L many 100"), 0);
    flw_test_expect_in(error_text, "mode strict: 100 allocations (");
    flw_test_expect_in(error_text, " hits), 36 frees; peaks ");
    flw_test_expect_in(error_text, ", 100 poisoned blocks\n");
}

TEST(pools_whose_context_has_ended_are_counted)
{
    assert_int_equal(run("$R --stats s.json -- $L reset 10 && cat s.json"), 0);
    assert_int_equal(command_number("", "pool_count"), 2);
    assert_int_equal(command_number("", "contexts_ended"), 1);
    assert_int_equal(command_number("\"all\"", "allocs"), 11);
    assert_int_equal(command_number("\"all\"", "frees"), 1);
    assert_int_equal(command_number("\"all\"", "live_blocks"), 1);
    /* The second pool existed after the first, so their peaks were not simultaneous. */
    assert_int_equal(command_number("\"all\"", "peak_requested_bytes"),
                     command_number("\"pools\"", "peak_requested_bytes"));
    assert_int_equal(command_number("\"all\"", "peak_reserved_bytes"),
                     command_number("\"pools\"", "peak_reserved_bytes"));
}

TEST(a_program_name_may_be_anything)
{
    assert_int_equal(
        run("ln -s $L 'a\"b\\c\n\xff'; $R --mode trace --stats n.json -- './a\"b\\c\n\xff' many 10 && "
            "cat n.json"),
        0);
    flw_test_expect_in(out_text, "\"program\": \"a\\\"b\\\\c\\u000a?\"");
}

TEST(each_process_that_used_the_driver_says_it)
{
    assert_int_equal(
        run("mkdir m; $R --mode trace --stats m/s.json -- sh -c '$L many 5; $L many 6'; ls m | wc -l; "
            "cat m/s.json"),
        0);
    flw_test_expect_in(out_text, "2\n");
    assert_int_equal(command_number("\"trace\"", "allocs"), 5);
    assert_int_equal(
        run("$R --mode trace --stats - -- sh -c true 2>&1 | grep -c 'mode trace' || true"), 0);
    assert_string_equal(out_text, "0\n");
    assert_int_equal(run("mkdir f; $R --mode trace --stats f/s.json -- $L fork; ls f"), 0);
    flw_test_expect_in(out_text, "s.json\n"); /* the child has its own line, if any */
}

/* One driver allocation serves all blocks although none is a hit, and unserved memory is listed. */
TEST(what_reached_the_driver_is_counted)
{
    assert_int_equal(run("$R --stats - -- $L create 70"), 0);
    flw_test_expect_in(error_text,
                       ": 1 allocation (from 1 driver allocation, 0.0 % thread cache hits)");
    flw_test_expect_in(error_text,
                       "; bypassed Fallow: 70 cuMemCreate (memory that the program maps itself)\n");
    assert_int_equal(run("$R --stats b.json -- $L kinds && cat b.json"), 0);
    assert_int_equal(command_number("\"bypassed\"", "cuMemAllocAsync"), 2);
    assert_int_equal(command_number("\"bypassed\"", "cuMemAllocManaged"), 1);
    assert_int_equal(command_number("\"bypassed\"", "cuMemAlloc"), 0);
}

/* A program linked with the driver that makes no hooked call has not bypassed the hooks. */
TEST(a_program_that_calls_nothing_hooked_is_named_so)
{
    assert_int_equal(run("$R --stats - -- $L"), 2);
    flw_test_expect_in(error_text,
                       "never reached: the driver was loaded, but nothing of it was called");
}

static size_t count_of(const char *what)
{
    size_t count = 0;
    for (const char *at = error_text; (at = strstr(at, what)) != NULL; at++) {
        count++;
    }
    return count;
}

/* Workers end by _exit or are killed; their parent does not use CUDA. */
TEST(each_process_is_counted_however_it_ends)
{
    assert_int_equal(run("$R --stats - -- $L workers 1000"), 0);
    assert_int_equal(count_of("mode cache: 1000 allocations ("), 2);
    assert_int_equal(count_of("; ended by _exit\n"), 2);
    assert_int_equal(
        run("$R --mode trace --stats - -- sh -c '$L leave 30; $L killed 20; $L many 10'"), 0);
    assert_int_equal(count_of("mode trace: "), 3);
    flw_test_expect_in(error_text, ": 30 allocations, ");
    flw_test_expect_in(error_text, ": 20 allocations, ");
    assert_int_equal(count_of("; killed, "), 1);
    assert_int_equal(
        run("mkfifo p; $R --stats - -- sh -c '$L linger 40 >p & read x <p; echo $!'; kill -9 $(cat out)"),
        0);
    assert_int_equal(count_of("mode cache: 40 allocations ("), 1);
    assert_int_equal(count_of("; still running\n"), 1);
    assert_int_equal(run("$R --stats k.json -- $L killed 300; cat k.json"), 0);
    assert_int_equal(command_number("\"all\"", "allocs"), 300);
    assert_int_equal(command_number("\"pools\"", "allocs"), 300);
    flw_test_expect_in(out_text, "\"end\": \"killed\"");
}

TEST(what_cannot_be_written_is_one_line)
{
    assert_int_equal(run("$R --mode trace --stats no/such.json -- $L many 5"), 0);
    flw_test_expect_in(error_text, "cannot write statistics to ");
    flw_test_expect_in(error_text, "no/such.json: No such file or directory\n");
    assert_int_equal(run("$R --mode trace --stats /dev/full -- $L many 5"), 0);
    flw_test_expect_in(error_text,
                       "cannot write statistics to /dev/full: No space left on device\n");
    assert_int_equal(
        run("echo old >kept.json; (ulimit -f 0; trap '' XFSZ; $R --mode trace --stats kept.json "
            "-- $L many 5) 2>&1 | cat; cat kept.json; ls kept.json.new"),
        2);
    flw_test_expect_in(out_text, "kept.json: File too large\nold\n");
}

TEST(a_run_that_is_off_has_one_line)
{
    assert_int_equal(
        run("LD_PRELOAD=$RIVAL $R --stats s2.json -- $L many 10 >/dev/null; ls s2.json"), 2);
    flw_test_expect_in(error_text, "interposes cuMemAlloc_v2 too; preload one of the two");
    flw_test_expect_in(strchr(error_text, '\n'),
                       "\nls: cannot access 's2.json'"); /* the next line */
    assert_string_equal(out_text, "");
}

FLW_TEST_MAIN(command_make_folder, command_remove_folder)
