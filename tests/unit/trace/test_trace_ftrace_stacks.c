/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of stacks and remarks in the trace file: what makes no sense is told, what is lost takes no event
 * away.
 */
#include "test_trace_ftrace.h"

#include <stdio.h>

#include "trace/trace/build.h"
#include "trace/trace/measure.h"

/* Dictionary entries and numbers of stacks that follow one another, then one ALLOC. */
static struct flw_trace *read_stacks(const char *entries, size_t bytes, uint32_t entry_count,
                                     const char *numbers, size_t number_bytes,
                                     uint32_t number_count)
{
    struct piece piece;
    struct flw_frame_chunk frame = {.type = FLW_FTRACE_DICT, .record_count = 1};
    static const unsigned char stream[] = {1, 2, 0, 0};
    add_header(&piece, 1, 1, 1, 1000000000);
    add_chunk(&piece, frame, stream, sizeof stream);
    frame.record_count = entry_count;
    add_chunk(&piece, frame, entries, bytes);
    frame = (struct flw_frame_chunk){.type = FLW_FTRACE_STACKS, .record_count = number_count};
    add_chunk(&piece, frame, numbers, number_bytes);
    frame = (struct flw_frame_chunk){
        .type = FLW_FTRACE_EVENTS, .codec = 1, .record_count = 1, .time_scale = 1};
    add_chunk(&piece, frame, "\xB0", 1);
    struct flw_trace *trace = read_bytes(piece.bytes, piece.count);
    assert_non_null(trace);
    assert_true(flw_trace_is_valid(trace));
    return trace;
}

/* A text "f", a frame f (f:5), a stack of two of it. */
#define STACK_ENTRIES \
    "\3\2\0f"         \
    "\4\4\0\0\0\5"    \
    "\5\4\1\0\0\0"

static void stacks_that_make_no_sense_end_the_trace_there(void **state)
{
    (void)state;
#define CASE(entries, entry_count, numbers, number_count, wanted)                              \
    {                                                                                          \
        entries, sizeof(entries) - 1, entry_count, numbers, sizeof(numbers) - 1, number_count, \
            wanted                                                                             \
    }
    static const struct {
        const char *entries;
        size_t bytes;
        uint32_t entry_count;
        const char *numbers;
        size_t number_bytes;
        uint32_t number_count;
        const char *wanted;
    } cases[] = {
        CASE(STACK_ENTRIES, 3, "\3", 1, "without its end chunk"), /* the others begin with it */
        CASE(STACK_ENTRIES, 3, "\5", 1, "stack 1 is not in the dictionary"),
        CASE(STACK_ENTRIES, 3, "\2", 1, "without its end chunk"), /* guessed: 0 */
        CASE(STACK_ENTRIES, 3, "\0", 1, "not as many as there should be"),
        CASE(STACK_ENTRIES, 3, "\4", 1, "not as many as there should be"),
        CASE(STACK_ENTRIES, 3, "\3", 2, "not as many as there should be"),
        CASE(STACK_ENTRIES, 3, "\3\3", 1, "not as many as there should be"),
        CASE(STACK_ENTRIES, 3, "\3\3", 2, "fewer records than stacks or remarks"),
        CASE(STACK_ENTRIES, 3, "\x83", 1, "not as many as there should be"),
        CASE(STACK_ENTRIES, 3, "\xFF\xFF\xFF\xFF\xFF\1", 1, "not as many as there should be"),
        CASE(STACK_ENTRIES, 3, "\3", 1u << 30, "more records than a chunk can have"),
        CASE("\3\2\1f", 1, "", 0, "text 1 where 0 is next"),
        CASE("\3\3\0f\0", 1, "", 0, "a zero byte"),
        CASE("\3\0", 1, "", 0, "has no number"),
        CASE("\4\4\0\0\0\5", 1, "", 0, "text 0 is not in the dictionary"),
        CASE("\3\2\0f\4\3\0\0\0", 2, "", 0, "a frame lacks"),
        CASE("\3\2\0f\4\4\1\0\0\5", 2, "", 0, "frame 1 where 0 is next"),
        CASE("\5\3\1\0\0", 1, "", 0, "frame 0 is not in the dictionary"),
        CASE("\5\2\1\0", 1, "", 0, "a stack is not 1 to 1000 frames"),
        CASE("\5\3\1\1\0", 1, "", 0, "a stack is not 1 to 1000 frames"),
        CASE("\5\3\0\0\0", 1, "", 0, "a stack has no number"),
        CASE(STACK_ENTRIES "\5\3\2\3\0", 4, "", 0, "a stack is not 1 to 1000 frames"),
        CASE(STACK_ENTRIES "\5\2\2\2", 4, "\3", 1, "without its end chunk"), /* as the one before */
        CASE(STACK_ENTRIES "\5\2\1\2", 4, "", 0, "stack 0 where 1 is next"),
    };
#undef CASE
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct flw_trace *trace =
            read_stacks(cases[i].entries, cases[i].bytes, cases[i].entry_count, cases[i].numbers,
                        cases[i].number_bytes, cases[i].number_count);
        if (strstr(trace->truncation, cases[i].wanted) == NULL) {
            print_error("case %zu: \"%s\" lacks \"%s\"\n", i, trace->truncation, cases[i].wanted);
        }
        assert_non_null(strstr(trace->truncation, cases[i].wanted));
        assert_int_equal(flw_trace_stack(trace, 0), i == 0 || i == 7 || i == 22 ? 1 : 0);
        flw_trace_destroy(trace);
    }
}

static void remarks_that_make_no_sense_end_the_trace_there(void **state)
{
    (void)state;
#define CASE(items, count, wanted)              \
    {                                           \
        items, sizeof(items) - 1, count, wanted \
    }
    static const struct {
        const char *items;
        size_t bytes;
        uint32_t count;
        const char *wanted;
    } cases[] = {
        CASE("\1\1\0", 1, "without its end chunk"), /* the others begin with it */
        CASE("\1\2\0", 1, "text 1 is not in the dictionary"),
        CASE("\1\0\2", 1, "text 1 is not in the dictionary"),
        CASE("\1\1\0", 2, "not of as many records as they should be"),
        CASE("\2\1\0", 1, "not of as many records as they should be"),
        CASE("\0\1\0\1\1\0", 1, "not of as many records as they should be"),
        CASE("\1\1", 1, "not of as many records as they should be"),
        CASE("", 1, "not of as many records as they should be"),
        CASE("\1\1\xFF\xFF\xFF\xFF\x1F", 1, "not of as many records as they should be"),
        CASE("\1\1\0\1\0\0", 2, "fewer records than stacks or remarks"),
    };
#undef CASE
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const unsigned char entries[] = {1, 2, 0, 0, 3, 2, 0, 'c'};
        struct piece piece;
        struct flw_frame_chunk frame = {.type = FLW_FTRACE_DICT, .record_count = 2};
        add_header(&piece, 1, 1, 1, 1000000000);
        add_chunk(&piece, frame, entries, sizeof entries);
        frame =
            (struct flw_frame_chunk){.type = FLW_FTRACE_REMARKS, .record_count = cases[i].count};
        add_chunk(&piece, frame, cases[i].items, cases[i].bytes);
        frame = (struct flw_frame_chunk){
            .type = FLW_FTRACE_EVENTS, .codec = 1, .record_count = 1, .time_scale = 1};
        add_chunk(&piece, frame, "\xB0", 1);
        struct flw_trace *trace = read_bytes(piece.bytes, piece.count);
        assert_true(flw_trace_is_valid(trace));
        if (strstr(trace->truncation, cases[i].wanted) == NULL) {
            print_error("case %zu: \"%s\" lacks \"%s\"\n", i, trace->truncation, cases[i].wanted);
        }
        assert_non_null(strstr(trace->truncation, cases[i].wanted));
        assert_int_equal(trace->remark_count, i == 0 || i == 9 ? 1 : 0);
        flw_trace_destroy(trace);
    }
}

/* Of as many stacks as fill several chunks; each event has the one of its number, from 1. */
#define MANY 40000

static struct bytes print_many_stacks(void)
{
    struct flw_build build;
    struct flw_trace *trace;
    uint16_t stream;
    assert_true(flw_build_init(&build, "many", "text"));
    assert_true(flw_build_add_stream(&build, 0, &stream));
    for (uint32_t i = 0; i < MANY; i++) {
        struct flw_trace_event event = {.op = FLW_TRACE_ALLOC, .size_bytes = 64, .block = i};
        struct flw_trace_block block = {.size_bytes = 64};
        char function[16];
        uint32_t frame, stack;
        snprintf(function, sizeof function, "f%u", i);
        assert_true(flw_stacks_add_frame(&build.trace->stacks, function, "a.py", i, &frame));
        assert_true(flw_stacks_add(&build.trace->stacks, &frame, 1, &stack));
        assert_true(flw_build_add_block(&build, &block) && flw_build_add_event(&build, &event) &&
                    flw_build_set_stack(&build, i, stack));
    }
    assert_null(flw_measure_trace(build.trace));
    flw_build_end(&build, true, &trace);
    struct bytes bytes = print_file(trace, FLW_RECORD_PACKED);
    flw_trace_destroy(trace);
    return bytes;
}

/* An event has the stack that it had, or, where that is lost, none; never another. */
static size_t count_kept(const struct flw_trace *trace)
{
    size_t kept = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        struct flw_stack_walk walk = flw_stacks_walk(&trace->stacks, flw_trace_stack(trace, i));
        uint32_t frame;
        if (flw_stacks_next(&walk, &frame)) {
            assert_int_equal(trace->stacks.frames[frame].line, i);
            assert_false(flw_stacks_next(&walk, &frame));
            kept++;
        }
    }
    return kept;
}

static void a_lost_dictionary_of_stacks_takes_no_event_away(void **state)
{
    (void)state;
    struct bytes bytes = print_many_stacks();
    struct flw_trace *whole = read_bytes(bytes.at, bytes.count);
    assert_null(whole->truncation);
    assert_int_equal(count_kept(whole), MANY);
    flw_trace_destroy(whole);
    size_t lost_before = 0;
    for (size_t skip = 2; skip < 5; skip++) { /* the first has a stream alone */
        size_t damaged = find_chunk(&bytes, FLW_FTRACE_DICT, skip);
        bytes.at[damaged + FLW_FRAME_BYTES + 5] ^= 1;
        struct flw_trace *rest = read_on(bytes.at, bytes.count);
        assert_non_null(strstr(rest->truncation, "checksum"));
        assert_true(flw_trace_is_valid(rest));
        assert_int_equal(rest->event_count, MANY);
        size_t lost = MANY - count_kept(rest);
        assert_true(lost > lost_before && lost < MANY);
        lost_before = lost;
        flw_trace_destroy(rest);
    }
    free(bytes.at);
}

static void lost_numbers_of_stacks_take_no_event_away(void **state)
{
    (void)state;
    struct bytes bytes = print_many_stacks();
    bytes.at[find_chunk(&bytes, FLW_FTRACE_STACKS, 1) + FLW_FRAME_BYTES + 5] ^= 1;
    struct flw_trace *rest = read_on(bytes.at, bytes.count);
    assert_int_equal(rest->event_count, MANY);
    size_t kept = count_kept(rest);
    assert_true(kept > 0 && kept < MANY);
    flw_trace_destroy(rest);
    free(bytes.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks_that_make_no_sense_end_the_trace_there),
        cmocka_unit_test(remarks_that_make_no_sense_end_the_trace_there),
        cmocka_unit_test(a_lost_dictionary_of_stacks_takes_no_event_away),
        cmocka_unit_test(lost_numbers_of_stacks_take_no_event_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
