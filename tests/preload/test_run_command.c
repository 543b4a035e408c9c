/* SPDX-License-Identifier: Apache-2.0
 *
 * `fallow run` and `fallow record` as commands, with a library in the preload's place that reports
 * the flags of each case: exit codes, signals, the environment, usage errors, reasons for no hook,
 * comparison of two patterns. FALLOW_COMMAND names the command, STAND_IN_LIBRARY the library,
 * STATIC_EXIT a static program. */
#include "support/test_command.h"

#include <sys/statvfs.h>

#include "preload/runpage.h"

/* $R, $O: run and record with the stand-in library that reports `flags`. */
static int run(unsigned flags, const char *line)
{
    char whole[1600];
    snprintf(
        whole, sizeof whole,
        "unset FALLOW LD_PRELOAD; export ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 STAND_IN=%u; L=$STAND_IN_LIBRARY; "
        "R=\"$F run --library $L\"; O=\"$F record --library $L\"; %s",
        flags, line);
    return command_run(whole);
}

static void expect_out(const char *text)
{
    assert_string_equal(out_text, text);
}

/* Run the line; expect one line with `what` on standard error. */
static void expect_line(unsigned flags, const char *line, int code, const char *what)
{
    assert_int_equal(run(flags, line), code);
    command_expect_one_line(what);
}

/* ---- exit codes, signals, environment */

TEST(exit_codes_and_signals_are_the_commands)
{
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$R -- sh -c 'echo out; exit 7'"), 7);
    expect_out("out\n");
    assert_string_equal(error_text, "");
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$R true"), 0);
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$R -- sh -c 'kill -TERM $$'"), 128 + 15);
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$R -- sh -c 'kill -KILL $$'"), 128 + 9);
    /* Its own way with signals stays this program's own. */
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$R -- sh -c 'kill -PIPE $$; exit 3'"), 128 + 13);
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "trap '' PIPE; $R -- sh -c 'kill -PIPE $$; exit 3'"),
                     3);
}

TEST(signals_go_to_the_command)
{
    static const char *const names[] = {"TERM", "USR1", "HUP"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char line[600];
        snprintf(
            line, sizeof line,
            "rm -f ready; $R -- sh -c 'trap \"exit 9\" %s; : >ready; i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done' & "
            "while [ ! -e ready ]; do sleep 0.05; done; kill -%s $!; wait $!",
            names[i], names[i]);
        assert_int_equal(run(FLW_RUNPAGE_REACHED, line), 9);
    }
}

TEST(exec_becomes_the_command)
{
    assert_int_equal(
        run(0, "sh -c 'echo $$; exec '\"$R\"' --exec -- sh -c \"echo \\$\\$; exit 4\"'"), 4);
    char *second = strchr(out_text, '\n') + 1;
    assert_int_equal(strtol(out_text, NULL, 10), strtol(second, NULL, 10));
    assert_true(strtol(second, NULL, 10) > 0);
    assert_string_equal(error_text, ""); /* nothing is known, so there is no message */
}

/* A child that shortens the run's page cannot crash the command that reads it. */
TEST(a_child_cannot_cut_the_page_of_its_parent)
{
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "CUT_PAGE=1 $R -- sh -c 'exit 3'"), 3);
    assert_string_equal(error_text, "");
}

/* ---- the environment */

#define SHOW "printenv FALLOW | sed 's/,*state:.*//'"

TEST(options_become_settings)
{
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$R --mode strict --limit 2G --poison 90 --stats - "
                                              "--set top:1 -- " SHOW),
                     0);
    expect_out("limit:2147483648,top:1,mode:strict,stats:-,poison:0x5a\n");
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "FALLOW='mode:off,only:a\\,mode:x,limit:5' "
                                              "$R --mode cache --limit 1K -- " SHOW),
                     0);
    expect_out("only:a\\,mode:x,limit:1024,mode:cache\n");
    assert_int_equal(
        run(FLW_RUNPAGE_REACHED, "$R --trace 'a,b\\c' -- " SHOW " | sed \"s|$PWD|HERE|\""), 0);
    expect_out("trace:HERE/a\\,b\\\\c\n");
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$O -o /tmp/%p/y -- " SHOW), 0);
    expect_out("mode:trace,trace:/tmp/%p/y\n");
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$O --mode cache -- " SHOW " | sed \"s|$PWD|HERE|\""),
                     0);
    expect_out("mode:cache,trace:HERE/fallow.ftrace\n");
}

TEST(other_preloads_stay_behind_and_sanitizers_in_front)
{
    assert_int_equal(
        run(FLW_RUNPAGE_REACHED,
            "cp $L libone.so; cp $L libtsan.so.99; cp $L two.so; P=$PWD; "
            "LD_PRELOAD=\"$P/libone.so $P/libtsan.so.99:$L:$P/two.so\" "
            "$R -- sh -c 'echo \"$LD_PRELOAD\"' | sed -e \"s|$L|OURS|\" -e \"s|$P/||g\""),
        0);
    expect_out("libtsan.so.99:OURS:libone.so:two.so\n");
}

/* ---- mistakes */

TEST(mistakes_are_named)
{
    command_expect_error("$F run", 2, "run: no command; give one after --");
    command_expect_error("$F record -o x --", 2, "record: no command; give one after --");
    command_expect_error("$F run --mode fast -- true", 2,
                         "there is no mode 'fast'; there are off,");
    command_expect_error("$F record --mode off -- true", 2,
                         "there is no mode 'off'; there are trace,");
    command_expect_error("$F run --poison 256 -- true", 2, "--poison '256'");
    command_expect_error("$F run --poison x -- true", 2, "--poison 'x'");
    command_expect_error("$F run --poison 0,255 -- true", 2,
                         "two patterns of poison need --compare");
    command_expect_error("$F run --poison 1 --compare -- true", 2, "--compare needs two patterns");
    command_expect_error("$F run --compare --stats - -- true", 2, "so not with");
    command_expect_error("$F run --limit 0 -- true", 2, "--limit '0'");
    command_expect_error("$F run --set nothing -- true", 2, "--set 'nothing'");
    command_expect_error("$F record -o - -- true", 2, "a trace is written to a file");
    command_expect_error("$F run --stats '' -- true", 2, "--stats '' is empty; give it a value");
    command_expect_error("$F record -o '' -- true", 2, "--output '' is empty");
    /* A name that ends in .xz, .gz or .zst is compressed, or refused. */
    command_expect_error("$F record -o x.ftrace.gz -- true", 2, "give a name without .gz");
    command_expect_error("$F run --trace x.ftrace.xz -- true", 2, "give a name without .xz");
    command_expect_error("$F run --stats x.json.zst -- true", 2, "give a name without .zst");
    command_expect_error("FALLOW=stats:/x.gz $F run -- true", 2, "are not packed");
    command_expect_error("$F run --set foo:bar -- true", 2, "FALLOW has no key 'foo'");
    command_expect_error("FALLOW=mode:fast $F run -- true", 2, "FALLOW: 'mode:fast': give off");
    /* Run as long as the system allows: the next error is another. */
    command_expect_error(
        "FALLOW=$(printf 'mode:off,%.0s' $(seq 14500)) $F run --library no/lib.so -- true", 1,
        "looked for no/lib.so");
    command_expect_error("$F record --stacks 5 -- true", 2, "write --stacks=5, and COMMAND behind");
    command_expect_error("$F record --stacks --library $STAND_IN_LIBRARY -- 5", 127,
                         "cannot run '5'");
    command_expect_error("$F run --library no/lib.so -- true", 1, "looked for no/lib.so");
    command_expect_error("mkdir -p 'a b'; cp $STAND_IN_LIBRARY 'a b/l.so'; "
                         "$F run --library 'a b/l.so' -- true",
                         1, "a b/l.so: LD_PRELOAD cannot name a path with a blank");
    command_expect_error("$F run --library $STAND_IN_LIBRARY -- no-such-command", 127,
                         "cannot run 'no-such-command': no such command in PATH");
    command_expect_error("$F run --library $STAND_IN_LIBRARY -- ./absent", 127,
                         "cannot run './absent'");
    command_expect_error(": >plain; $F run --library $STAND_IN_LIBRARY -- ./plain", 126,
                         "cannot run './plain': Permission denied");
    command_expect_error("$F run --exec --library $STAND_IN_LIBRARY -- no-such-command", 127,
                         "cannot run 'no-such-command'");
}

TEST(a_wrong_option_starts_nothing)
{
    assert_int_equal(
        run(0, "$R --bogus -- sh -c ': >started'; code=$?; [ ! -e started ] && exit $code"), 2);
}

/* ---- why no hook was reached */

TEST(it_says_why_no_hook_was_reached)
{
    unsigned loaded = FLW_RUNPAGE_LOADED;
    expect_line(loaded, "$R -- true", 0, "no CUDA was used, libcuda.so.1 was not loaded");
    expect_line(loaded | FLW_RUNPAGE_PASSED, "$R -- true", 0, "true (");
    flw_test_expect_in(error_text, "loaded the driver past them: by RTLD_DEEPBIND");
    expect_line(loaded | FLW_RUNPAGE_DRIVER, "$R -- true", 0, "nothing of it was called");
    expect_line(loaded, "$R -- sh -c 'exec env -i PATH=\"$PATH\" sh -c \"exit 6\"'", 6,
                "became a program without LD_PRELOAD");
    flw_test_expect_in(error_text, "env (");
    assert_int_equal(
        run(loaded | FLW_RUNPAGE_DRIVER, "$R -- sh -c 'exec env -i /bin/sh -c \"exit 6\"'"), 6);
    assert_string_equal(error_text, ""); /* it could not report a hook */
    expect_line(loaded, "$R -- $STATIC_EXIT", 5, "is statically linked");
    assert_int_equal(run(FLW_RUNPAGE_OFF, "$R -- true"), 0);
    assert_string_equal(error_text, "");
    assert_int_equal(run(FLW_RUNPAGE_REACHED | FLW_RUNPAGE_DRIVER, "$R -- true"), 0);
    assert_string_equal(error_text, "");
}

TEST(a_setuid_program_is_told)
{
    struct statvfs facts;
    if (getuid() != 0 || statvfs(folder, &facts) != 0 || (facts.f_flag & ST_NOSUID) != 0) {
        skip(); /* nobody else may make one */
    }
    expect_line(0, "cp /bin/true other; chown 1 other; chmod 4755 other; $R -- ./other", 0,
                "./other is setuid, setgid or has capabilities");
}

TEST(a_script_is_looked_through_to_its_interpreter)
{
    expect_line(0,
                "cp $STATIC_EXIT ./quit; printf '#!%s/quit\\n' \"$PWD\" >script; chmod +x script; "
                "$R -- ./script",
                5, "/quit is statically linked");
}

TEST(more_processes_than_places_are_no_harm)
{
    char line[160];
    snprintf(line, sizeof line,
             "$R -- sh -c 'i=0; while [ $i -lt %d ]; do /bin/true; i=$((i+1)); done'",
             FLW_RUNPAGE_PLACES + 20);
    assert_int_equal(run(FLW_RUNPAGE_REACHED, line), 0);
    assert_string_equal(error_text, "");
}

TEST(a_record_that_did_not_come_is_missed)
{
    expect_line(FLW_RUNPAGE_REACHED, "$O -o none.ftrace -- true", 0, "there is no none.ftrace");
    expect_line(FLW_RUNPAGE_REACHED, "$O -o some.ftrace -- sh -c 'printf abc >some.ftrace'", 0,
                "some.ftrace, 3 bytes; see fallow report some.ftrace");
}

TEST(a_record_of_before_is_not_this_runs)
{
    expect_line(FLW_RUNPAGE_REACHED, "printf abc >old.ftrace; $O -o old.ftrace -- true", 0,
                "nothing new was put on record in old.ftrace");
    expect_line(FLW_RUNPAGE_REACHED, "$O -o empty.ftrace -- sh -c ': >empty.ftrace'", 0,
                "nothing new was put on record in empty.ftrace");
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$O -o /dev/full -- true"), 0);
    assert_string_equal(error_text, "");
}

TEST(a_place_that_takes_no_record_is_told_first)
{
    command_expect_error("mkdir -p place; $F record -o place -- sh -c 'echo ran'", 2,
                         "record: 'place' is a folder; name a file in it");
    command_expect_error("$F record -o place/none/x.ftrace -- sh -c 'echo ran'", 2,
                         "no record can be written to 'place/none/x.ftrace': No such file");
    command_expect_error("$F run --trace place/none/x.ftrace -- sh -c 'echo ran'", 2,
                         "run: no record can be written to");
    command_expect_error("$F record -o place/none/%p.ftrace -- sh -c 'echo ran'", 2,
                         "no record can be written to 'place/none/%p.ftrace'");
}

/* ---- two patterns */

TEST(equal_runs_are_equal)
{
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$R --compare -- sh -c 'echo one; echo two; exit 3'"),
                     0);
    expect_out("no difference between 0x00 and 0xff: exit status 3, 8 bytes of output\n");
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$R --compare --poison 1,2 -- cat"),
                     0); /* no input */
    expect_out("no difference between 0x01 and 0x02: exit status 0, 0 bytes of output\n");
}

TEST(the_first_difference_is_shown)
{
    assert_int_equal(run(FLW_RUNPAGE_REACHED,
                         "$R --compare -- sh -c 'echo same; case $FALLOW in *0x00*) echo apple;; "
                         "*) echo apply; exit 2;; esac'"),
                     1);
    expect_out("the program's result depends on the contents of fresh memory\n"
               "  0x00: exit status 0\n"
               "  0xff: exit status 2\n"
               "  outputs differ first at byte 9, in line 2\n"
               "  0x00: apple\n"
               "  0xff: apply\n");
    assert_int_equal(
        run(FLW_RUNPAGE_REACHED,
            "$R --compare -- sh -c 'echo same; case $FALLOW in *0x00*) echo more;; *) kill "
            "-SEGV $$;; esac'"),
        1);
    flw_test_expect_in(out_text, "  0xff: died of Segmentation fault\n");
    flw_test_expect_in(out_text, "  0xff: (its output has ended)\n");
}

TEST(what_was_not_poisoned_shows_nothing)
{
    assert_int_equal(run(FLW_RUNPAGE_LOADED, "$R --compare -- true"), 1);
    flw_test_expect_in(error_text, "no CUDA was used");
    assert_int_equal(
        run(FLW_RUNPAGE_OFF, "$R --mode off --compare -- sh -c 'echo >>runs'; wc -l <runs"), 0);
    flw_test_expect_in(error_text, "nothing was poisoned, Fallow was off; nothing was compared\n");
    expect_out("1\n");
}

TEST(help_is_help)
{
    assert_int_equal(run(0, "$F run --help"), 0);
    flw_test_expect_in(out_text, "usage: fallow run [OPTIONS] -- COMMAND");
    assert_int_equal(run(0, "$F record -h"), 0);
    flw_test_expect_in(out_text, "usage: fallow record");
}

TEST(a_program_with_address_sanitizer_is_told_the_option)
{
    if (run(0,
            "echo 'int main(void) { return 0; }' >a.c; cc -fsanitize=address a.c -o asan && ./asan") !=
        0) {
        print_message("no compiler with AddressSanitizer's runtime: nothing was checked\n");
        return;
    }
    assert_int_equal(run(0, "ASAN_OPTIONS= $R -- ./asan"), 1);
    flw_test_expect_in(error_text, "asan is built with AddressSanitizer, ");
    flw_test_expect_in(error_text, "set ASAN_OPTIONS=verify_asan_link_order=0\n");
    assert_int_equal(run(FLW_RUNPAGE_REACHED, "$R -- ./asan"), 0);
    assert_string_equal(error_text, "");
}

FLW_TEST_MAIN(command_make_folder, command_remove_folder)
