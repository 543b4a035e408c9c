/* SPDX-License-Identifier: Apache-2.0
 *
 * `fallow audit` as a command, over a program that opens the driver by name and finds the
 * simulated one: candidates, trials of a fill that is needed and of one that is not, programs that
 * fail, usage errors. FALLOW_COMMAND names the command, AUDIT_CLIENT the audited program,
 * AUDIT_SCRIPT one in Python, AUDIT_DRIVER the folder with libcuda.so.1. */
#include "support/test_command.h"

static int audit(const char *line)
{
    char whole[1600];
    snprintf(whole, sizeof whole,
             "unset FALLOW LD_PRELOAD; export LD_LIBRARY_PATH=$AUDIT_DRIVER TMPDIR=$PWD; "
             "A=\"$F audit\"; C=$AUDIT_CLIENT; %s",
             line);
    return command_run(whole);
}

/* Check the candidates and fills in a JSON report. */
static void expect_counts(const char *deed, unsigned candidates, unsigned fills)
{
    char line[128];
    snprintf(line, sizeof line, "$A --json -- $C %s", deed);
    assert_int_equal(audit(line), 0);
    if (command_number("", "candidates") != candidates || command_number("", "fills") != fills) {
        fail_msg("%s: %llu of %llu fills are candidates, not %u of %u: %s", deed,
                 command_number("", "candidates"), command_number("", "fills"), candidates, fills,
                 out_text);
    }
}

/* Find the site in the last JSON report with the function in the frames. */
static void find_site(const char *function, char site[13])
{
    char quoted[64];
    site[0] = '\0';
    snprintf(quoted, sizeof quoted, "\"function\":\"%s\"", function);
    for (const char *at = out_text; (at = strstr(at, "{\"site\":\"")) != NULL; at++) {
        const char *end = strstr(at + 1, "{\"site\":");
        const char *found = strstr(at, quoted);
        if (found != NULL && (end == NULL || found < end)) {
            snprintf(site, 13, "%.12s", at + strlen("{\"site\":\""));
            return;
        }
    }
    fail_msg("no site has %s: %s", function, out_text);
}

/* ---- candidates */

TEST(sites_are_listed_with_their_callers_and_the_dearest_first)
{
    expect_counts("two", 4, 4);
    assert_true(command_number("", "bytes") == 4 * 4096);
    flw_test_expect_in(out_text, "\"process_count\":1");
    const char *first = strstr(out_text, "\"zero_for_nothing\""); /* three fills */
    const char *second = strstr(out_text, "\"zero_for_the_sum\"");
    assert_non_null(first);
    assert_non_null(second);
    assert_true(first < second);
    flw_test_expect_in(out_text, "\"function\":\"do_two\"");
    assert_int_equal(audit("$A --bandwidth 4096 -- $C two"), 0);
    flw_test_expect_in(out_text, "2 candidate sites, 4 of 4 fills, 16 KiB: about 4 ns of writing");
    flw_test_expect_in(out_text, "at 4096 GB/s (a stated bandwidth, not a measured one)");
    flw_test_expect_in(out_text, "cuMemsetD32Async");
    flw_test_expect_in(out_text, "from audit_client+0x");
    flw_test_expect_in(out_text, "zero_for_nothing+0x");
    flw_test_expect_in(out_text,
                       "A candidate is a zero-fill of memory that nothing visible had touched");
    flw_test_expect_in(out_text, "may need the zeros");
    flw_test_expect_in(out_text, "Not visible: accesses by a graph");
    assert_null(strstr(out_text, "safe"));
    assert_null(strstr(out_text, "unneeded"));
}

TEST(what_was_touched_before_is_no_candidate)
{
    expect_counts("touched", 0, 4);
    assert_int_equal(command_number("", "reused"), 3);
    assert_int_equal(command_number("", "nonzero"), 1);
    assert_int_equal(audit("$A -- $C touched"), 0);
    flw_test_expect_in(out_text, "There is no candidate");
    flw_test_expect_in(out_text,
                       "fills of blocks that something had touched since their allocation");
}

TEST(a_kernel_known_as_a_fill_is_one)
{
    char site[13], line[128];
    expect_counts("kernel", 1, 1);
    assert_int_equal(command_number("", "bytes"), 4096);
    assert_int_equal(command_number("", "unread_value_count"), 0);
    flw_test_expect_in(out_text, "FillFunctor");
    find_site("do_kernel", site);
    snprintf(line, sizeof line, "$A --trial %s -- $C kernel", site);
    assert_int_equal(audit(line), 1); /* needs the zeros */
    flw_test_expect_in(out_text, "1 fill was given 0xff");
}

TEST(launches_that_cannot_be_read_touch_every_block)
{
    expect_counts("unreadable", 1, 2); /* the block allocated later is a candidate again */
    assert_int_equal(command_number("", "unread_launches"), 1);
    assert_int_equal(command_number("", "reused"), 1);
    assert_int_equal(audit("$A -- $C unreadable"), 0);
    flw_test_expect_in(out_text, "1  launches with unreadable arguments: every block counted");
    expect_counts("buffer", 1, 2); /* arguments in one buffer are read */
    assert_int_equal(command_number("", "unread_launches"), 0);
}

TEST(graphs_are_counted_and_touch_every_block)
{
    expect_counts("graph", 2, 4); /* before the graph's launch, and of a later allocation */
    assert_int_equal(command_number("", "captured"), 1);
    assert_int_equal(command_number("", "graph_launches"), 1);
}

TEST(when_a_context_ends_no_block_counts_as_untouched)
{
    expect_counts("context", 1, 2); /* addresses may be reused for memory that is not tracked */
    assert_int_equal(command_number("", "reused"), 1);
    assert_int_equal(command_number("", "hidden_work"), 1);
}

TEST(threads_and_processes_are_put_together)
{
    expect_counts("threads", 400, 800);
    assert_int_equal(command_number("", "reused"), 400);
    expect_counts("processes", 2, 2);
    assert_int_equal(command_number("", "process_count"), 2);
    assert_int_equal(command_number("", "fill_count"), 2); /* one site */
    expect_counts("forked", 2, 2);
    assert_int_equal(command_number("", "process_count"), 1);
}

/* ---- trials */

TEST(a_trial_shows_which_of_two_fills_was_needed)
{
    char needed[13], unneeded[13], line[160];
    expect_counts("two", 4, 4);
    find_site("zero_for_the_sum", needed);
    find_site("zero_for_nothing", unneeded);
    snprintf(line, sizeof line, "$A --trial %s -- $C two", needed);
    assert_int_equal(audit(line), 1);
    flw_test_expect_in(out_text, "wrong\n");
    flw_test_expect_in(out_text, "1 fill was given 0xff instead of zeros; its exit status was 1.");
    snprintf(line, sizeof line, "$A --trial %s --poison 0x5a -- $C two", unneeded);
    assert_int_equal(audit(line), 0);
    flw_test_expect_in(out_text, "right\n");
    flw_test_expect_in(out_text,
                       "3 fills were given 0x5a instead of zeros; its exit status was 0.");
    flw_test_expect_in(out_text, "proves nothing for another run");
    snprintf(line, sizeof line, "$A --json --trial %s -- $C two", unneeded);
    assert_int_equal(audit(line), 0);
    assert_int_equal(command_number("", "poisoned"), 3);
    flw_test_expect_in(out_text, unneeded);
    /* The needed fill is a candidate all the same. */
    flw_test_expect_in(out_text, needed);
}

TEST(a_site_that_was_not_met_is_said_with_those_that_were)
{
    char site[13];
    expect_counts("kernel", 1, 1);
    find_site("do_kernel", site);
    assert_int_equal(audit("$A --trial 0123456789ab -- $C kernel"), 1);
    flw_test_expect_in(
        error_text, "no candidate was met at the site on trial, 0123456789ab; those that were: ");
    flw_test_expect_in(error_text, site);
    assert_int_equal(audit("$A --trial 0123456789ab -- $C touched"), 1);
    flw_test_expect_in(error_text, "those that were: none");
    flw_test_expect_in(out_text, "right\n");
}

TEST(lines_of_a_script_are_sites_of_their_own)
{
    if (audit("python3 -c 'import ctypes'") != 0) {
        skip(); /* no python3 here */
    }
    assert_int_equal(audit("$A -o report -- python3 $AUDIT_SCRIPT && cat report"), 0);
    if (strncmp(out_text, "lines\n", 6) != 0) {
        skip(); /* this Python does not expose the lines */
    }
    flw_test_expect_in(out_text, "2 candidate sites, 3 of 3 fills");
    flw_test_expect_in(out_text, "line audit_script.py:19 in fill\n");
    flw_test_expect_in(out_text, "line audit_script.py:23 in one\n");
    flw_test_expect_in(out_text, "line audit_script.py:27 in other\n");
    assert_int_equal(audit("rm report; $A --json -- python3 $AUDIT_SCRIPT"), 0);
    flw_test_expect_in(out_text,
                       "\"script\":[\"audit_script.py:19 in fill\",\"audit_script.py:23 in one\",");
}

TEST(memory_of_the_pool_is_followed_as_the_drivers)
{
    static const char *const modes[] = {"cache", "strict"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        char line[160], needed[13];
        snprintf(line, sizeof line, "$A --json --mode %s -- $C two", modes[i]);
        assert_int_equal(audit(line), 0);
        assert_int_equal(command_number("", "candidates"), 4);
        assert_int_equal(command_number("", "blocks"), 4); /* allocated, not returned by the
                                                               driver */
        find_site("zero_for_the_sum", needed);
        snprintf(line, sizeof line, "$A --trial %s --mode %s -- $C two", needed, modes[i]);
        assert_int_equal(audit(line), 1);
        snprintf(line, sizeof line, "$A --json --mode %s -- $C threads", modes[i]);
        assert_int_equal(audit(line), 0);
        assert_int_equal(command_number("", "candidates"), 400);
        assert_int_equal(command_number("", "reused"), 400);
        assert_int_equal(command_number("", "blocks"), 400);
    }
}

/* ---- bad ends */

TEST(a_program_that_is_killed_leaves_what_was_seen)
{
    assert_int_equal(audit("$A -- $C killed"), 128 + 9);
    flw_test_expect_in(out_text, "1 candidate site, 1 of 1 fills");
    flw_test_expect_in(out_text, "up to the end of the command: a signal ended it: 9");
}

TEST(hooks_that_were_not_reached_are_said)
{
    assert_int_equal(audit("$A -- true"), 1);
    flw_test_expect_in(error_text, "the hooks were never reached");
    assert_string_equal(out_text, "");
    assert_int_equal(audit("$A -- sh -c 'exit 7'"), 7);
}

TEST(a_program_without_allocations_has_a_report)
{
    assert_int_equal(audit("$A -- $C none"), 0);
    assert_string_equal(error_text, "");
    flw_test_expect_in(out_text, "0 candidate sites, 0 of 0 fills");
    flw_test_expect_in(out_text, "The program made no allocation that an audit tracks.");
    assert_int_equal(audit("$A --json -- $C none"), 0);
    assert_int_equal(command_number("\"counts\"", "blocks"), 0);
}

/* Beside another interposer, Fallow and the audit are off. */
TEST(an_audit_that_was_off_has_no_report)
{
    assert_int_equal(audit("LD_PRELOAD=$RIVAL $A -- $C two"), 1);
    flw_test_expect_in(error_text,
                       "too; preload one of the two; the program runs without Fallow\n");
    flw_test_expect_in(error_text, "audit: Fallow was off, so nothing was audited\n");
    assert_null(strstr(out_text, "candidate"));
}

/* On a wide terminal every sentence is a single line. */
TEST(sentences_are_not_broken_twice)
{
    assert_int_equal(audit("COLUMNS=90 $A -- $C two | awk '/^A candidate/ { s = 1 } "
                           "s && !/^    / && ++n > 1 { exit } s' | wc -l"),
                     0);
    assert_int_equal(strtol(out_text, NULL, 10), 3);
}

/* With the message that every subcommand prints. */
TEST(a_reader_that_has_gone_is_named)
{
    (void)audit("mkfifo p; exec 3<>p 4>p 3>&-; rm p; $A -- $C two >&4");
    command_expect_one_line("fallow: standard output: its reader ended before all was written");
}

TEST(findings_that_cannot_be_kept_are_said_and_the_program_runs)
{
    assert_int_equal(audit("FALLOW=audit:/nonexistent/x LD_PRELOAD=$AUDIT_LIBRARY $C two"), 0);
    flw_test_expect_in(out_text, "right\n");
    command_expect_one_line("cannot keep findings at '/nonexistent/x': No such file or directory");
}

TEST(nothing_is_left_behind)
{
    assert_int_equal(audit("$A -o report -- $C two && grep -c zero_for report && ls"), 0);
    flw_test_expect_in(out_text, "right\n2\nerr\nout\nreport\n");
    assert_int_equal(audit("$A -o /nonexistent/report -- $C two; echo $?; rm report; ls"), 0);
    flw_test_expect_in(error_text, "/nonexistent/report");
    flw_test_expect_in(out_text, "right\n1\nerr\nout\n");
}

TEST(mistakes_are_named)
{
    static const char *const lines[][2] = {
        {"$F audit", "no command; give one after --"},
        {"$F audit --trial xyz -- true", "--trial 'xyz' is no site"},
        {"$F audit --trial 000000000000 -- true", "is no site"},
        {"$F audit --bandwidth 0 -- true", "--bandwidth '0'"},
        {"$F audit --bandwidth fast -- true", "--bandwidth 'fast'"},
        {"$F audit --poison 0 -- true", "--poison '0'"},
        {"$F audit --poison 256 -- true", "--poison '256'"},
        {"$F audit --mode off -- true", "no mode 'off'"},
        {"$F audit --set novalue -- true", "--set 'novalue'"},
        {"$F audit --set foo:bar -- true", "FALLOW has no key 'foo'"}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        command_expect_error(lines[i][0], 2, lines[i][1]);
    }
    command_expect_error("TMPDIR=/nonexistent $F audit -- true", 1, "cannot make a folder");
    assert_int_equal(audit("$A -- no_such_command_here"), 127);
}

static int make_folder(void **state)
{
    setenv("COLUMNS", "1000", 1); /* sentences in one line each */
    return command_make_folder(state);
}

FLW_TEST_MAIN(make_folder, command_remove_folder)
