/* SPDX-License-Identifier: Apache-2.0
 *
 * Mode trace as a command: a program on the simulated driver runs as without Fallow, and the file
 * contains the allocations and frees, readable by the other subcommands. FALLOW_COMMAND names the
 * command, ALLOC_CLIENT the program, DRIVER_FOLDER the driver's folder. */
#include "support/test_command.h"

#include "support/recording.h"

/* $O, $R: record and run; $L: the lender, on the simulated driver. */
static int run(const char *line)
{
    char whole[1600];
    snprintf(whole, sizeof whole,
             "unset FALLOW LD_PRELOAD; export LD_LIBRARY_PATH=$DRIVER_FOLDER; O=\"$F record\"; "
             "R=\"$F run\"; L=$ALLOC_CLIENT; %s",
             line);
    return command_run(whole);
}

/* The block of so many bytes; the trace has one. */
static const struct flw_trace_block *find_block(const struct flw_trace *trace, uint64_t size_bytes)
{
    const struct flw_trace_block *found = NULL;
    for (size_t i = 0; i < trace->block_count; i++) {
        if (trace->blocks[i].size_bytes == size_bytes) {
            assert_null(found);
            found = &trace->blocks[i];
        }
    }
    assert_non_null(found);
    return found;
}

TEST(every_kind_of_memory_is_on_record)
{
    assert_int_equal(
        run("$L kinds >plain && $O -o k.ftrace -- $L kinds >recorded && cmp plain recorded && "
            "cat recorded"),
        0);
    uint64_t pitched = 8 * strtoull(strchr(out_text, ' '), NULL, 10);
    struct flw_trace *trace = flw_recording_read(folder, "k.ftrace"),
                     *host = flw_recording_read(folder, "k.host.ftrace");
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_ALLOC), 6);
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_FREE), 5);
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_OOM), 1);
    assert_int_equal(trace->unknown_free_count, 0);
    assert_false(find_block(trace, 1000)->freed);
    assert_true(find_block(trace, pitched)->freed);
    assert_true(find_block(trace, 3000)->freed);
    /* A stream, the thread's own, and the one for all blocks without a stream. */
    assert_int_equal(trace->stream_count, 3);
    assert_int_equal(find_block(trace, 4000)->stream, find_block(trace, 6000)->stream);
    assert_int_not_equal(find_block(trace, 4000)->stream, find_block(trace, 5000)->stream);
    assert_int_not_equal(find_block(trace, 4000)->stream, find_block(trace, 1000)->stream);
    assert_int_equal(flw_recording_count(host, FLW_TRACE_ALLOC), 2);
    assert_int_equal(flw_recording_count(host, FLW_TRACE_FREE), 2);
    assert_true(find_block(host, 7000)->freed && find_block(host, 8000)->freed);
    flw_trace_destroy(trace);
    flw_trace_destroy(host);
}

TEST(the_other_subcommands_open_it)
{
    assert_int_equal(run("$O -o m.ftrace -- $L many 5000 && $F trace verify m.ftrace && "
                         "$F replay m.ftrace --policy fallow,recorded && $F report m.ftrace"),
                     0);
    flw_test_expect_in(out_text, "fallow");
    struct flw_trace *trace = flw_recording_read(folder, "m.ftrace");
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_ALLOC), 5000);
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_FREE), 5000 - 64);
    flw_trace_destroy(trace);
}

TEST(refusals_stay_the_drivers)
{
    assert_int_equal(run("$O -o r.ftrace -- $L misuse"), 0);
    struct flw_trace *trace = flw_recording_read(folder, "r.ftrace");
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_ALLOC), 1);
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_FREE), 1);
    assert_int_equal(trace->unknown_free_count, 2);
    flw_trace_destroy(trace);
}

TEST(each_device_has_its_file)
{
    assert_int_equal(run("$O -o d.ftrace -- $L two"), 0);
    struct flw_trace *one = flw_recording_read(folder, "d.ftrace"),
                     *other = flw_recording_read(folder, "d.dev0.ftrace");
    assert_int_equal(one->device, 1);
    assert_int_equal(other->device, 0);
    assert_true(find_block(one, 1111)->freed);
    assert_true(find_block(other, 2222)->freed);
    flw_trace_destroy(one);
    flw_trace_destroy(other);
}

TEST(a_killed_program_leaves_all_but_the_last_chunk)
{
    assert_int_equal(run("export ALLOC_CLIENT_FILE=die.ftrace; $O -o die.ftrace -- $L die 20000"),
                     128 + 9);
    struct flw_trace *trace = flw_recording_read(folder, "die.ftrace");
    assert_in_range(flw_recording_count(trace, FLW_TRACE_ALLOC), 20000, 20010);
    flw_trace_destroy(trace);
    assert_int_equal(run("$O -o leave.ftrace -- $L leave 40000"), 0);
    trace = flw_recording_read(folder, "leave.ftrace"); /* _exit: the same */
    assert_true(flw_recording_count(trace, FLW_TRACE_ALLOC) <= 40000);
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_DROP), 0);
    flw_trace_destroy(trace);
}

TEST(a_forked_child_leaves_the_file_whole)
{
    assert_int_equal(run("$O -o f.ftrace -- $L fork && ls f.*"), 0);
    assert_string_equal(out_text, "f.ftrace\n");
    struct flw_trace *trace = flw_recording_read(folder, "f.ftrace");
    assert_int_equal(trace->event_count, 2);
    flw_trace_destroy(trace);
}

TEST(each_process_has_its_file)
{
    assert_int_equal(run("$O -o p.ftrace -- sh -c '$L many 100; $L many 200; exit 0' L=$L"), 0);
    assert_int_equal(run("export L; mkdir p; $O -o p/p.ftrace -- sh -c '$L many 100; $L many 200'; "
                         "ls p | wc -l; mv p/p.[0-9]*.ftrace second.ftrace"),
                     0);
    flw_test_expect_in(out_text, "2\n");
    struct flw_trace *first = flw_recording_read(folder, "p/p.ftrace"),
                     *second = flw_recording_read(folder, "second.ftrace");
    assert_int_equal(flw_recording_count(first, FLW_TRACE_ALLOC), 100);
    assert_int_equal(flw_recording_count(second, FLW_TRACE_ALLOC), 200);
    flw_trace_destroy(first);
    flw_trace_destroy(second);
    assert_int_equal(
        run("export L; mkdir q; $O -o q/%p.ftrace -- sh -c '$L many 1; $L many 2'; ls q | wc -l"),
        0);
    flw_test_expect_in(out_text, "2\n");
}

TEST(a_file_that_cannot_be_written_is_one_line)
{
    assert_int_not_equal(run("$O -o no/such/x.ftrace -- $L many 1000"), 0);
    flw_test_expect_in(
        error_text, "no record can be written to 'no/such/x.ftrace': No such file or directory\n");
    assert_string_equal(out_text, "");
    assert_int_equal(run("$R --mode trace --trace /dev/full -- $L many 50000"), 0);
    flw_test_expect_in(error_text, "No space left on device; the program continues\n");
}

TEST(mode_off_and_trace_without_a_file_change_nothing)
{
    assert_int_equal(run("$R --mode off --trace off.ftrace -- $L kinds >/dev/null"), 0);
    assert_string_equal(error_text, "");
    assert_int_equal(run("[ ! -e off.ftrace ] && $R --mode trace -- $L kinds >/dev/null"), 0);
    assert_string_equal(error_text, "");
}

TEST(pools_are_recorded_in_mode_cache)
{
    static const char *const modes[] = {"cache", "strict"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        char line[300];
        snprintf(line, sizeof line,
                 "$O --mode %s -o c.ftrace -- $L many 5000 && $F trace verify c.ftrace && "
                 "$F replay c.ftrace --policy fallow",
                 modes[i]);
        assert_int_equal(run(line), 0);
        struct flw_trace *trace = flw_recording_read(folder, "c.ftrace");
        assert_int_equal(flw_recording_count(trace, FLW_TRACE_ALLOC), 5000);
        assert_int_equal(flw_recording_count(trace, FLW_TRACE_FREE), 5000 - 64);
        assert_int_equal(flw_recording_count(trace, FLW_TRACE_DROP), 0);
        flw_trace_destroy(trace);
    }
    assert_int_equal(run("$O --mode cache -o e.ftrace -- $L two"), 0);
    struct flw_trace *one = flw_recording_read(folder, "e.ftrace"),
                     *other = flw_recording_read(folder, "e.dev0.ftrace");
    assert_true(find_block(one, 1111)->freed);
    assert_true(find_block(other, 2222)->freed);
    flw_trace_destroy(one);
    flw_trace_destroy(other);
    assert_int_equal(
        run("export ALLOC_CLIENT_FILE=g.ftrace; $O --mode cache -o g.ftrace -- $L die 20000"),
        128 + 9);
    one = flw_recording_read(folder, "g.ftrace");
    assert_in_range(flw_recording_count(one, FLW_TRACE_ALLOC), 20000, 20010);
    flw_trace_destroy(one);
    assert_int_equal(run("$R --mode cache --trace /dev/full -- $L many 50000"), 0);
    flw_test_expect_in(error_text, "No space left on device\n");
}

TEST(poison_is_what_was_never_written)
{
    assert_int_equal(run("$R --mode trace --poison 0xa5 -- $L unwritten"), 0);
    flw_test_expect_in(out_text, "read a5 a5\n");
    assert_int_equal(run("$R --mode trace --compare -- $L unwritten"), 1);
    flw_test_expect_in(out_text, "outputs differ first at byte 16, in line 2\n"
                                 "  0x00: read 00 00\n"
                                 "  0xff: read ff ff\n");
    assert_int_equal(run("$R --mode cache --poison 0xa5 -- $L unwritten"), 0);
    flw_test_expect_in(out_text, "read a5 a5\n");
    assert_int_equal(run("$R --mode trace --compare --poison 1,2 -- $L written"), 0);
    flw_test_expect_in(out_text,
                       "no difference between 0x01 and 0x02: exit status 0, 8 bytes of output\n");
}

FLW_TEST_MAIN(command_make_folder, command_remove_folder)
