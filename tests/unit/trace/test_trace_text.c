/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the text form: one text for each trace, and the messages for wrong lines.
 */
#include "test_trace_bed.h"

static const char everything[] = "#fallow-trace 1\ndevice 3\nstream 0\nstream 140020\n"
                                 "fields times addresses segments\ngaps 1 2\n"
                                 "begin_ns 1700000000123456789\norigin somewhere\n# a remark\n"
                                 "S 0 20971520 0 large @4096\n"
                                 "S 0 2097152 1 small expandable @99999744\nP 0 0 512 0 @4096\n"
                                 "P 0 1 1048576 1 @8192\nA 0 2 777 0 @20000\nU 5 2 1\nF 10 2 1\n"
                                 "C 10 2 0\nS+ 11 2097152 0 @70000000\nM+ 12 2097152 1 @80000000\n"
                                 "M- 13 2097152 1 @80000000\nS- 14 2097152 0 @70000000\n"
                                 "O 15 18446744073709551615 0\nN 15\nF 16 0 0\n";

/* Features that few traces have. */
static const char rare[] = "#fallow-trace 1\ndevice 0\nstream 0\nstream 9\n"
                           "fields times addresses segments\nS 0 2097152 1 small @4096 pool=3\n"
                           "P 0 0 512 0 @4096 thread=1 pool=3\nP 0 1 512 0 @8192 thread=1 pool=3\n"
                           "K 0 \"expandable_segments \"on\"\"\nB 1 \"step\"\n"
                           "B 1 tag=7 \"forward thread=2\"\nA 2 2 64 1 @9000 tag=7\n"
                           "Y 3 wait 0 1 tag=7\nE 4 tag=7 \"forward thread=2\"\nY 4 event 1\n"
                           "Y 4 stream 1 thread=2\nG+ 5 1 thread=2 pool=4294967295\n"
                           "G- 6 1 thread=2 pool=4294967295\nY 7 device\nX 7\n"
                           "D 7 18446744073709551615\nN 8 \"step\"\nN 8\n"
                           "O 9 100 0 free=5 largest=0\nO 9 100 0 largest=4 thread=9\n"
                           "E 9 \"step\"\n";

static const char stacked[] = "#fallow-trace 1\ndevice 0\nstream 0\nfields addresses segments\n"
                              "L 12 \"init\" \"a b.py\"\nW 0 0\n"
                              "S 0 2097152 0 small @4096 pool=3 stack=1\n"
                              "P 0 0 512 0 @4096 thread=1 stack=1\nL 0 \"\" \"\"\n"
                              "L 4294967295 \"say \\\"\\\\\\\"\" \"\\x01\\t\\n\\x7f\xC3\xA9\xFF\"\n"
                              "W 1 0 2\nA 0 1 512 0 @9 stack=2\nV \"0/1\" \"a \\\"b\\\"\"\n"
                              "A 0 2 512 0 @9\nV \"\" -\nW 2\nB 0 stack=3 \"step\"\nV - -\n"
                              "F 0 1 0 stack=1\n";

TEST(every_record_is_read)
{
    struct flw_trace *trace = read_text(everything);
    assert_int_equal(trace->device, 3);
    assert_int_equal(trace->event_count, 11);
    assert_int_equal(trace->initial_count, 2);
    assert_int_equal(trace->block_count, 3);
    assert_int_equal(trace->alloc_count, 1);
    assert_true(trace->streams[1] == 140020);
    assert_true(trace->segments[1].is_expandable && !trace->segments[1].is_large);
    assert_int_equal(trace->peak_requested_bytes, 512 + 1048576 + 777);
    assert_int_equal(trace->recorded_peak_reserved_bytes, 20971520 + 3 * 2097152);
    assert_int_equal(trace->recorded_segment_calls, 4);
    assert_int_equal(trace->events[1].op, FLW_TRACE_USE);
    assert_int_equal(trace->events[1].address, 20000);
    assert_int_equal(trace->events[1].stream, 1);
    assert_true(trace->events[8].size_bytes == UINT64_MAX);
    assert_true(trace->begin_ns == UINT64_C(1700000000123456789));
    assert_string_equal(trace->notes, "origin somewhere\n# a remark\n");
    flw_trace_destroy(trace);
}

TEST(details_and_contexts_stand_beside_the_events)
{
    struct flw_trace *trace = read_text(rare);
    struct flw_trace_walk walk = {0};
    assert_int_equal(trace->event_count, 18);
    assert_int_equal(trace->names.count, 3);
    assert_string_equal(flw_intern_text(&trace->names, 0), "expandable_segments \"on\"");
    assert_int_equal(trace->segments[0].pool, 3);
    assert_int_equal(flw_trace_walk_context(trace, &walk, 1)->thread, 1);
    assert_null(flw_trace_walk_detail(trace, &walk, 3));
    assert_int_equal(flw_trace_walk_context(trace, &walk, 2 + 3)->tag, 7);
    assert_int_equal(flw_trace_walk_context(trace, &walk, 2 + 3)->thread, 0);
    assert_int_equal(flw_trace_walk_detail(trace, &walk, 4)->other_stream, 1);
    assert_true(flw_trace_walk_context(trace, &walk, 2 + 8)->pool == UINT32_MAX);
    assert_true(flw_trace_walk_detail(trace, &walk, 12)->lost_count == UINT64_MAX);
    assert_string_equal(flw_trace_name(trace, flw_trace_walk_detail(trace, &walk, 13)), "step");
    assert_null(flw_trace_name(trace, flw_trace_walk_detail(trace, &walk, 14)));
    assert_true(flw_trace_walk_detail(trace, &walk, 16)->free_bytes == FLW_TRACE_UNKNOWN);
    assert_int_equal(flw_trace_walk_detail(trace, &walk, 16)->largest_bytes, 4);
    flw_trace_destroy(trace);
}

TEST(text_read_and_printed_is_the_same_text)
{
    static const char *const texts[] = {
        everything,
        rare,
        stacked,
        "#fallow-trace 1\ndevice 0\nfields none\n",
        "#fallow-trace 1\ndevice 0\nstream 5\nfields none\nP 0 0 0 0\nA 0 1 4 0\nF 0 0 0\n",
        "#fallow-trace 1\ndevice 0\nstream 5\nfields segments\nS 0 7 0 large\nS- 0 7 0\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        expect_text(read_text(texts[i]), texts[i]);
    }
}

/* Any text that differs in one byte is refused or prints as itself. */
static void check_every_change(const char *whole, size_t bytes)
{
    char changed[1024];
    size_t accepted = 0;
    assert_true(bytes <= sizeof(changed));
    for (size_t i = 0; i + 1 < bytes; i++) {
        for (int byte = 1; byte < 128; byte++) {
            memcpy(changed, whole, bytes);
            changed[i] = (char)byte;
            struct flw_trace *trace = read_bytes(changed, strlen(changed));
            if (trace != NULL) {
                expect_text(trace, changed);
                accepted++;
            }
        }
    }
    assert_true(accepted > 1000);
}

TEST(no_two_texts_are_one_trace)
{
    check_every_change(everything, sizeof(everything));
    check_every_change(rare, sizeof(rare));
    check_every_change(stacked, sizeof(stacked));
}

TEST(a_frame_is_what_its_line_says)
{
    struct flw_trace *trace = read_text(stacked);
    const struct flw_stacks *stacks = &trace->stacks;
    uint32_t frame = 0;
    assert_int_equal(trace->segments[0].stack, 1);
    assert_int_equal(flw_trace_stack(trace, 0), 1);
    assert_int_equal(flw_trace_stack(trace, 1), 2);
    assert_int_equal(flw_trace_stack(trace, 2), 0);
    assert_int_equal(flw_trace_stack(trace, 4), 1);
    struct flw_stack_walk walk = flw_stacks_walk(stacks, 3);
    assert_true(flw_stacks_next(&walk, &frame));
    assert_int_equal(flw_stacks_frame(stacks, frame)->line, UINT32_MAX);
    assert_string_equal(flw_stacks_text(stacks, flw_stacks_frame(stacks, frame)->function),
                        "say \"\\\"");
    assert_string_equal(flw_stacks_text(stacks, flw_stacks_frame(stacks, frame)->file),
                        "\x01\t\n\x7F\xC3\xA9\xFF");
    assert_false(flw_stacks_next(&walk, &frame));
    struct flw_trace_walk events = {0};
    const struct flw_trace_remark *remark = flw_trace_walk_remark(trace, &events, 1);
    assert_int_equal(remark->compile_context, 0);
    remark = flw_trace_walk_remark(trace, &events, 2);
    assert_string_equal(flw_stacks_text(stacks, remark->compile_context - 1), "0/1");
    assert_string_equal(flw_stacks_text(stacks, remark->user_metadata - 1), "a \"b\"");
    remark = flw_trace_walk_remark(trace, &events, 3);
    assert_string_equal(flw_stacks_text(stacks, remark->compile_context - 1), "");
    assert_int_equal(remark->user_metadata, 0);
    assert_int_equal(flw_trace_walk_remark(trace, &events, 4)->compile_context, 0);
    flw_trace_destroy(trace);
}

/* Of the longest texts, and the deepest. */
TEST(the_longest_lines_are_read_and_longer_ones_refused)
{
    for (int over = 0; over < 4; over++) {
        char *text = NULL;
        size_t bytes, depth = FLW_STACK_DEPTH_MOST + (over == 1);
        FILE *file = open_memstream(&text, &bytes);
        assert_non_null(file);
        fputs("#fallow-trace 1\ndevice 0\nstream 0\nfields none\n", file);
        for (size_t i = 0; i < depth; i++) {
            fprintf(file, "L %zu \"", i);
            for (int which = 2; which < 4; which++) {
                for (size_t c = 0; c < (i == 7 ? FLW_STACK_TEXT_BYTES + (over == which) : 1); c++) {
                    fputs(which == 2 ? "\\x01" : "\\x7f", file);
                }
                fputs(which == 2 ? "\" \"" : "\"\n", file);
            }
        }
        fputs("W", file);
        for (size_t i = 0; i < depth; i++) {
            fprintf(file, " %zu", i);
        }
        fputs("\nA 0 0 8 0 stack=1\n", file);
        assert_int_equal(fclose(file), 0);
        if (over == 0) {
            expect_text(read_text(text), text);
        } else {
            expect_refused(text, bytes, over == 1 ? "more than 1000 frames" : "over 8000 bytes");
        }
        free(text);
    }
}

TEST(a_truncated_text_is_refused_or_a_shorter_trace)
{
    for (size_t i = 0; i + 1 < sizeof(everything); i++) {
        struct flw_trace *trace = read_bytes(everything, i);
        if (trace != NULL) {
            assert_true(i > 0 && everything[i - 1] == '\n');
            flw_trace_destroy(trace);
        } else {
            assert_int_equal(strncmp(message, "name: byte ", 11), 0);
        }
    }
}

#define HEAD "#fallow-trace 1\ndevice 0\nstream 0\nfields times\n"

TEST(a_wrong_line_is_named_with_its_place)
{
    static const struct {
        const char *text;
        const char *wanted;
    } cases[] = {
        {"#fallow-trace 2\n", "byte 0: line 1: version 2"},
        {"#fallow-trace 1\n", "\"device N\" expected"},
        {"#fallow-trace 1\ndevice 0\nstream 0\nstream 0\n", "line 4: the stream is listed twice"},
        {"#fallow-trace 1\ndevice 0\nfields\n", "times, addresses, segments or none"},
        {"#fallow-trace 1\ndevice 0\nfields times none\n", "the end of the line expected"},
        {"#fallow-trace 1\ndevice 4294967296\nfields none\n", "not a device number"},
        {HEAD "F 0 0 0\n", "byte 47: line 5: block 0 does not exist"},
        {HEAD "A 0 0 8 0\nF 1 0 0\nF 2 0 0\n", "line 7: block 0 is already freed"},
        {HEAD "A 0 0 8 0\nC 1 0 0\n", "line 6: block 0 is not freed yet"},
        {HEAD "A 0 0 8 0\nF 1 0 0\nU 2 0 0\n", "line 7: block 0 is already freed"},
        {HEAD "A 0 1 8 0\n", "the next block's number is 0"},
        {HEAD "A 0 0 8 1\n", "stream 1 is not in the header"},
        {HEAD "A 9 0 8 0\nA 8 1 8 0\n", "time falls from 9 to 8"},
        {HEAD "A 0 0 8 0 @4\n", "the end of the line expected at column 10"},
        {HEAD "A 0 0 -8 0\n", "a decimal number expected at column 7"},
        {HEAD "A 0 0 08 0\n", "a number begins with 0"},
        {HEAD "A 0 0  8 0\n", "a decimal number expected"},
        {HEAD "A 0 0 18446744073709551616 0\n", "more than 64 bits"},
        {HEAD "A 0 0 8 0\r\n", "the end of the line expected"},
        {HEAD "A 0 0 8 0", "does not end in a newline"},
        {HEAD "A 0 0 8 0\nP 0 1 8 0\n", "P lines come before events"},
        {HEAD "S 0 8 0 large\n", "the header says there are none"},
        {HEAD "P 1 0 8 0\n", "must have time 0"},
        {HEAD "Q 1\n", "neither a record nor"},
        {HEAD "\n", "neither a record nor"},
        {HEAD "A 0 0 8 0\nseed 1\n", "line 6: neither a record nor"},
        {HEAD "A 0 0 18446744073709551615 0\nA 0 1 1 0\n", "more than 64 bits hold"},
        {HEAD "begin_ns 0\n", "line 5: \"begin_ns\" is a moment after 1970"},
        {HEAD "begin_ns 5 6\n", "the end of the line expected"},
        {HEAD "begin_ns 5\nbegin_ns 5\n", "line 6: neither a record nor"},
        {HEAD "begin_ns 5\ngaps 1 2\n", "line 6: neither a record nor"},
        {HEAD "seed 1\nbegin_ns 5\n", "line 6: neither a record nor"},
        {"#fallow-trace 1\ndevice 0\nstream 0\nfields addresses\nbegin_ns 5\n",
         "line 5: \"begin_ns\" without times"},
        {"#fallow-trace 1\ndevice 0\nstream 0\nfields none\nA 1 0 8 0\n", "there are none"},
        {"#fallow-trace 1\ndevice 0\nstream 0\nfields addresses\nA 0 0 8 0\n", "a space expected"},
        {"#fallow-trace 1\ndevice 0\nstream 0\nfields addresses\nP 0 0 8 0 @9\nP 0 1 8 0 @8\n",
         "P lines are in address order"},
        {HEAD "N 0 \"\"\n", "line 5: a name is 1 to 1000 printable bytes"},
        {HEAD "N 0 \"a\n", "a name is 1 to 1000 printable bytes"},
        {HEAD "N 0 a\n", "a name in quotes expected"},
        {HEAD "B 0\n", "a name in quotes expected"},
        {HEAD "D 0 0\n", "no event is missing"},
        {HEAD "Y 0 host\n", "device, stream, event or wait expected"},
        {HEAD "Y 0 wait 0 1\n", "stream 1 is not in the header"},
        {HEAD "X 0 thread=0\n", "thread= is from 1 to 4294967295"},
        {HEAD "X 0 pool=4294967296\n", "pool= is from 1 to 4294967295"},
        {HEAD "X 0 pool=1 tag=1\n", "the end of the line expected"},
        {HEAD "G 0 0\n", "not a record"},
        {HEAD "O 0 1 0 free=18446744073709551615\n", "the size exceeds 64 bits"},
        {HEAD "V - -\nX 0\n", "line 5: a remark repeats the previous one"},
        {HEAD "V \"a\" -\nX 0\nV \"a\" -\nX 0\n", "line 7: a remark repeats the previous one"},
        {HEAD "V \"a\" -\nV \"b\" -\nX 0\n",
         "line 6: a remark repeats the previous one, or precedes"},
        {HEAD "V \"a\" -\nP 0 0 8 0\n", "line 6: P lines come before events"},
        {HEAD "V \"a\" -\n", "no record has the last stack or remark"},
        {HEAD "L 1 \"f\" \"a\"\nV \"a\" -\nX 0\n", "precedes no event"},
        {HEAD "V \"a\"\n", "a space expected"},
        {HEAD "V a -\n", "a text in quotes expected"},
        {HEAD "L 1 \"f\" \"a\"\nX 0\n", "line 6: the record after a stack does not use the stack"},
        {HEAD "L 1 \"f\" \"a\"\nW 0\nX 0\n", "does not use the stack"},
        {HEAD "L 1 \"f\" \"a\"\nW 0\n", "no record has the last stack or remark"},
        {HEAD "L 1 \"f\" \"a\"\n", "no record has the last stack or remark"},
        {HEAD "L 1 \"f\" \"a\"\nW 0\nW 0 0\nX 0 stack=2\n",
         "an earlier frame or stack is not used"},
        {HEAD "L 1 \"f\" \"a\"\nL 2 \"f\" \"a\"\nW 0\nX 0 stack=1\n",
         "line 7: an earlier frame or stack"},
        {HEAD "L 1 \"f\" \"a\"\nL 2 \"f\" \"a\"\nW 1 0\n", "frame 1 where 0 is the next new one"},
        {HEAD "L 1 \"f\" \"a\"\nL 1 \"f\" \"a\"\n", "line 6: the frame is frame 0"},
        {HEAD "L 1 \"f\" \"a\"\nW 0\nX 0 stack=1\nW 0\n", "line 8: the stack is stack 1"},
        {HEAD "L 1 \"f\" \"a\"\nW 0\nL 2 \"f\" \"a\"\n", "the record that has stack=1 must follow"},
        {HEAD "X 0 stack=1\n", "stack 1 is not defined yet"},
        {HEAD "X 0 stack=1 pool=2\n", "stack 1 is not defined yet"},
        {HEAD "W 0\n", "frame 0 where 0 is the next new one"},
        {HEAD "W\n", "a space expected"},
        {HEAD "L 4294967296 \"f\" \"a\"\n", "the line number exceeds 32 bits"},
        {HEAD "L 1 f \"a\"\n", "a text in quotes expected at column 5"},
        {HEAD "L 1 \"f\"\n", "a space expected"},
        {HEAD "L 1 \"f \"a\"\n", "a space expected"},
        {HEAD "L 1 \"f\" \"a\n", "the end of the text in quotes expected"},
        {HEAD "L 1 \"\\x0a\" \"a\"\n", "a text has over 8000 bytes, or one that is not written so"},
        {HEAD "L 1 \"\\x1F\" \"a\"\n", "one that is not written so"},
        {HEAD "L 1 \"\\x00\" \"a\"\n", "one that is not written so"},
        {HEAD "L 1 \"\\x41\" \"a\"\n", "one that is not written so"},
        {HEAD "L 1 \"\\r\" \"a\"\n", "one that is not written so"},
        {HEAD "L 1 \"\\\n", "one that is not written so"},
        {HEAD "L 1 \"\t\" \"a\"\n", "one that is not written so"},
        {"", "the file is empty"},
        {"hello\n", "neither a pickled PyTorch snapshot nor"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_refused(cases[i].text, strlen(cases[i].text), cases[i].wanted);
    }
}

TEST(another_device_than_the_recorded_is_refused)
{
    flw_trace_destroy(read_device(everything, strlen(everything), 3));
    assert_null(read_device(everything, strlen(everything), 0));
    flw_test_expect_in(message, "has no device 0, only 3");
}

FLW_TEST_MAIN(NULL, NULL)
