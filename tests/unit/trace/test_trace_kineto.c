/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of memory events out of a profiler's trace, and of the JSON under them.
 */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/formats/formats.h"
#include "trace/trace/trace.h"

#define EVENT(ts, device, addr, bytes, allocated, reserved)                             \
    "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":2,\"ts\":" ts                \
    ",\"args\":{\"Ev Idx\":7,\"Device Type\":1,\"Device Id\":" device ",\"Addr\":" addr \
    ",\"Bytes\":" bytes ",\"Total Allocated\":" allocated ",\"Total Reserved\":" reserved "}}"
#define CPU_EVENT                                                                              \
    "{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":0,\"Device Id\":-1,\"Addr\":5," \
    "\"Bytes\":9}}"
static char message[FLW_TRACE_MESSAGE_BYTES];

static struct flw_trace *read_device(const char *text, int device)
{
    struct flw_trace *trace;
    size_t count = strlen(text);
    char *exact = malloc(count + 1);
    assert_non_null(exact);
    memcpy(exact, text, count);
    bool is_read = flw_trace_read_bytes(exact, count, "name", device, &trace, message);
    free(exact);
    assert_int_equal(is_read, trace != NULL);
    if (trace != NULL) {
        assert_true(flw_trace_is_valid(trace));
        assert_string_equal(trace->format, "kineto json");
    }
    return trace;
}

static struct flw_trace *read_text(const char *text)
{
    struct flw_trace *trace = read_device(text, -1);
    if (trace == NULL) {
        print_error("%s\n", message);
    }
    assert_non_null(trace);
    return trace;
}

static void expect_note(const struct flw_trace *trace, const char *note)
{
    if (strstr(trace->notes, note) == NULL) {
        print_error("%s lacks %s\n", trace->notes, note);
    }
    assert_non_null(strstr(trace->notes, note));
}

static void events_of_two_threads_come_in_the_order_of_their_times(void **state)
{
    (void)state;
    struct flw_trace *trace = read_text(
        "\n{\"schemaVersion\":1,\"traceEvents\":["
        "{\"name\":\"aten::mm\",\"ts\":3.5,\"args\":{\"Bytes\":\"x\",\"Shapes\":[[2],{}],"
        "\"Call \\\"stack\\\"\":\"C:\\\\a \\u00e9 {[\"}}," EVENT(
            "10.5", "0", "4096", "512", "1024",
            "2048") "," EVENT("30", "0", "4096", "-512", "512",
                              "2048") "," CPU_EVENT
                                      "," EVENT(
                                          "20.25", "0", "8192", "512", "1024",
                                          "4096") "," EVENT("15.125", "0", "8192", "-512", "512",
                                                            "2048") "],\"traceName\":\"a\"} \n");
    static const struct {
        uint64_t time_ns;
        uint64_t address;
        uint8_t op;
    } wanted[] = {
        {0, 4096, FLW_TRACE_ALLOC},
        {4625, 8192, FLW_TRACE_FREE},
        {9750, 2048, FLW_TRACE_SEGMENT_MAP},
        {9750, 8192, FLW_TRACE_ALLOC},
        {19500, 2048, FLW_TRACE_SEGMENT_UNMAP},
        {19500, 4096, FLW_TRACE_FREE},
    };
    assert_int_equal(trace->event_count, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(trace->events[i].time_ns, wanted[i].time_ns);
        assert_int_equal(trace->events[i].address, wanted[i].address);
        assert_int_equal(trace->events[i].op, wanted[i].op);
    }
    /* 512 bytes were there before the first event: the block that is freed second. */
    assert_int_equal(trace->initial_count, 1);
    assert_int_equal(trace->blocks[0].address, 8192);
    assert_int_equal(trace->blocks[0].size_bytes, 512);
    assert_int_equal(trace->peak_requested_bytes, 1024);
    assert_int_equal(trace->recorded_initial_reserved_bytes, 2048);
    assert_int_equal(trace->recorded_peak_reserved_bytes, 4096);
    expect_note(trace, "kineto_events 4\n");
    expect_note(trace, "kineto_total_mismatches 0\n");
    expect_note(trace, "kineto_skipped_memory_events 1\n");
    flw_trace_destroy(trace);
}

static void what_was_allocated_before_and_never_freed_is_one_block(void **state)
{
    (void)state;
    struct flw_trace *trace = read_text("[" EVENT("1", "0", "4096", "512", "5632", "0") "," EVENT(
        "2", "0", "9216", "-1024", "4608", "0") "]");
    assert_int_equal(trace->initial_count, 2);
    assert_int_equal(trace->blocks[0].address, 0);
    assert_int_equal(trace->blocks[0].size_bytes, 4096);
    assert_false(trace->blocks[0].freed);
    assert_int_equal(trace->blocks[1].size_bytes, 1024);
    assert_int_equal(trace->peak_requested_bytes, 5632);
    assert_int_equal(trace->recorded_peak_reserved_bytes, 0);
    flw_trace_destroy(trace);
}

static void several_devices_are_told_apart(void **state)
{
    (void)state;
    static const char text[] = "[" EVENT("1", "0", "4096", "512", "512", "512") "," EVENT(
        "2", "3", "4096", "1024", "1024", "2048") "," EVENT("3", "3", "4096", "-1024", "0",
                                                            "2048") "]";
    struct flw_trace *trace = read_text(text);
    assert_int_equal(trace->device, 3);
    assert_non_null(strstr(trace->notes, "\nrecorded_devices 0 3\n"));
    assert_int_equal(trace->event_count, 2);
    assert_int_equal(trace->initial_count, 0);
    flw_trace_destroy(trace);
    trace = read_device(text, 0);
    assert_non_null(trace);
    assert_int_equal(trace->event_count, 1);
    flw_trace_destroy(trace);
    assert_null(read_device(text, 1));
    assert_non_null(strstr(message, "has no [memory] event of device 1, most are of 3"));
}

static void totals_and_gaps_that_do_not_fit_are_counted(void **state)
{
    (void)state;
    struct flw_trace *trace = read_text("[" EVENT("1", "0", "4096", "512", "512", "512") "," EVENT(
        "2", "0", "4096", "512", "2048", "512") "," EVENT("3", "0", "4096", "-512", "1536",
                                                          "512") "," EVENT("4", "0", "4096", "-512",
                                                                           "9", "512") "]");
    assert_int_equal(trace->lost_free_count, 1);
    assert_int_equal(trace->unknown_free_count, 1);
    expect_note(trace, "kineto_total_mismatches 2\n");
    flw_trace_destroy(trace);
}

static void numbers_up_to_64_bits_are_kept(void **state)
{
    (void)state;
    struct flw_trace *trace =
        read_text("[" EVENT("1669783687464300.123", "0", "\"18446744073709551000\"", "512", "512",
                            "18446744073709551615") "]");
    assert_true(trace->blocks[0].address == UINT64_C(18446744073709551000));
    assert_true(trace->recorded_peak_reserved_bytes == UINT64_MAX);
    flw_trace_destroy(trace);
}

/* ---- call stacks ---- */

#define SLICE(category, name, tid, ts, dur, args)                                         \
    "{\"ph\":\"X\",\"cat\":\"" category "\",\"name\":\"" name "\",\"pid\":1,\"tid\":" tid \
    ",\"ts\":" ts ",\"dur\":" dur ",\"args\":{" args "}}"
#define PYTHON(name, ts, dur, from) \
    SLICE("python_function", name, "2", ts, dur, "\"CallFrom\":\"" from "\"")
#define OPERATOR(name, ts, dur) SLICE("cpu_op", name, "2", ts, dur, "")

/* "function file:line" of each frame, the innermost first, with a bar behind each. */
static void expect_stack(const struct flw_trace *trace, size_t record, const char *wanted)
{
    const struct flw_stacks *stacks = &trace->stacks;
    struct flw_stack_walk walk = flw_stacks_walk(stacks, flw_trace_stack(trace, record));
    char text[2048] = "";
    uint32_t number;
    while (flw_stacks_next(&walk, &number)) {
        const struct flw_frame *frame = &stacks->frames[number];
        size_t count = strlen(text);
        snprintf(text + count, sizeof text - count, "%s %s:%u|",
                 flw_stacks_text(stacks, frame->function), flw_stacks_text(stacks, frame->file),
                 frame->line);
    }
    assert_string_equal(text, wanted);
}

static void an_event_has_the_stack_of_the_slices_around_it(void **state)
{
    (void)state;
    struct flw_trace *trace = read_text(
        "[" EVENT("15", "0", "4096", "512", "512", "0") "," OPERATOR("aten::mm", "14.5", "2") "," PYTHON("<built-in method mm of type object at 0x7f12aB>", "14", "4", "train.py:12") "," PYTHON(
            "train.py(9): step", "12",
            "10",
            "train.py:30") "," PYTHON("train.py(25): <module>", "10", "90",
                                      "") "," SLICE("cpu_op", "aten::other", "3", "1", "99",
                                                    "") "," SLICE("kernel", "gemm", "2", "1", "99",
                                                                  "") "," EVENT("21.5", "0", "4096",
                                                                                "-512", "0",
                                                                                "0") "," EVENT("23",
                                                                                               "0",
                                                                                               "8192",
                                                                                               "512",
                                                                                               "512",
                                                                                               "0") "," EVENT("200",
                                                                                                              "0",
                                                                                                              "12288",
                                                                                                              "512",
                                                                                                              "1024",
                                                                                                              "0") "]");
    expect_stack(trace, 0,
                 "aten::mm :0|<built-in method mm of type object> :0|step train.py:12|"
                 "<module> train.py:30|");
    expect_stack(trace, 1, "step train.py:9|<module> train.py:30|");
    expect_stack(trace, 2, "<module> train.py:25|");
    expect_stack(trace, 3, "");
    flw_trace_destroy(trace);
}

/* Of two slices that share a microsecond the second has begun when the event happens. */
static void slices_that_follow_each_other_are_not_in_one_another(void **state)
{
    (void)state;
    struct flw_trace *trace =
        read_text("[" OPERATOR("outer", "10", "10") "," OPERATOR("first", "10", "2") "," OPERATOR(
            "second", "12", "3") "," EVENT("12", "0", "4096", "512", "512",
                                           "0") "," EVENT("15", "0", "8192", "512", "1024",
                                                          "0") "," EVENT("20", "0", "12288", "512",
                                                                         "1536", "0") "]");
    expect_stack(trace, 0, "second :0|outer :0|");
    expect_stack(trace, 1, "second :0|outer :0|");
    expect_stack(trace, 2, "outer :0|");
    flw_trace_destroy(trace);
}

/* Older profiles have no slice for a call of Python. */
static void the_call_stack_of_an_operator_is_what_called_it(void **state)
{
    (void)state;
    struct flw_trace *trace = read_text(
        "[" SLICE("Operator", "aten::linear", "2", "10", "9", "\"Call stack\":\"C:\\\\a\\\\caf\\u00e9.py(3): f\\u0022;run.py(70): \\ud83d\\ude00\"") "," SLICE(
            "Operator", "aten::mm", "2", "11", "3",
            "\"Call stack\":\"b.py(1): g;;odd\"") "," EVENT("12", "0", "4096", "512", "512",
                                                            "0") "," EVENT("16", "0", "8192", "512",
                                                                           "1024", "0") "]");
    expect_stack(trace, 0, "aten::mm :0|aten::linear :0|g b.py:1|odd :0|");
    expect_stack(trace, 1, "aten::linear :0|f\" C:\\a\\caf\u00e9.py:3|\U0001F600 run.py:70|");
    flw_trace_destroy(trace);
}

static void slices_without_sense_are_left_out(void **state)
{
    (void)state;
    struct flw_trace *trace = read_text(
        "[" EVENT("15", "0", "4096", "512", "512", "0") "," OPERATOR("short", "14", "-2") "," OPERATOR(
            "late", "\"x\"",
            "9") "," OPERATOR("ever", "10",
                              "99999999999999999") ",{\"ph\":\"X\",\"cat\":"
                                                   "\"cpu_op\",\"name\":\"nowhere\",\"ts\":1,\"dur\":50},"
                                                   "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":7,\"pid\":1,"
                                                   "\"tid\":2,\"ts\":1,\"dur\":50},"
                                                   "{\"ph\":\"X\",\"cat\":[],\"name\":\"x\",\"pid\":1,"
                                                   "\"tid\":2,\"ts\":1,\"dur\":50}," PYTHON(
                                                       "a.py(99999999999): f", "12", "9",
                                                       "a.py:99999999999") "," PYTHON("a.py(7): f(int): g",
                                                                                      "11", "20",
                                                                                      ":5") "]");
    expect_stack(trace, 0, "a.py(99999999999): f :0|f(int): g a.py:7|");
    flw_trace_destroy(trace);
}

static void deep_stacks_lose_their_outermost_frames(void **state)
{
    (void)state;
    size_t room = 2000 * sizeof(OPERATOR("aten::op", "1234", "12345"));
    char *text = malloc(room), *at = text;
    assert_non_null(text);
    *at++ = '[';
    for (int i = 0; i < 1500; i++) {
        at += snprintf(at, room - (size_t)(at - text),
                       SLICE("cpu_op", "op%d", "2", "%d", "%d", "") ",", i, i, 4000 - 2 * i);
    }
    snprintf(at, room - (size_t)(at - text), "%s]", EVENT("2000", "0", "4096", "512", "512", "0"));
    struct flw_trace *trace = read_text(text);
    struct flw_stack_walk walk = flw_stacks_walk(&trace->stacks, flw_trace_stack(trace, 0));
    uint32_t number, count = 0;
    while (flw_stacks_next(&walk, &number)) {
        char name[16];
        snprintf(name, sizeof name, "op%u", 1499 - count++);
        assert_string_equal(flw_stacks_text(&trace->stacks, trace->stacks.frames[number].function),
                            name);
    }
    assert_int_equal(count, FLW_STACK_DEPTH_MOST);
    flw_trace_destroy(trace);
    free(text);
}

/* Of a call stack that is longer than what is kept of a text, the whole frames of its beginning. */
static void a_long_call_stack_ends_with_a_whole_frame(void **state)
{
    (void)state;
    size_t room = 64 * 1024;
    char *text = malloc(room);
    assert_non_null(text);
    int count =
        snprintf(text, room, "%s",
                 "[{\"ph\":\"i\",\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":1,"
                 "\"Device Id\":0,\"Addr\":4096,\"Bytes\":512,\"Total Allocated\":512,"
                 "\"Call stack\":\"");
    for (int i = 0; i < 900; i++) {
        count += snprintf(text + count, room - (size_t)count,
                          "a_file_of_some_name.py(1): abcdefghijkl%d;", i);
    }
    snprintf(text + count, room - (size_t)count, "\"}}]");
    struct flw_trace *trace = read_text(text);
    struct flw_stack_walk walk = flw_stacks_walk(&trace->stacks, flw_trace_stack(trace, 0));
    uint32_t number, depth = 0;
    while (flw_stacks_next(&walk, &number)) {
        char name[32];
        snprintf(name, sizeof name, "abcdefghijkl%u", depth++);
        assert_string_equal(flw_stacks_text(&trace->stacks, trace->stacks.frames[number].function),
                            name);
    }
    assert_in_range(depth, 300, 899);
    flw_trace_destroy(trace);
    free(text);
}

#define GOOD EVENT("1", "0", "4096", "512", "512", "512")

static void a_bad_file_is_named_with_its_place_and_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *wanted;
    } cases[] = {
        {"{}", "byte 0: JSON, but not a profiler's trace: no \"traceEvents\""},
        {"[]", "no [memory] event of a CUDA device"},
        {"{\"traceEvents\":7}", "no \"traceEvents\""},
        {"[" CPU_EVENT "]", "no [memory] event of a CUDA device"},
        {"[", "byte 1: the file ends inside the JSON text: it is truncated"},
        {"[" GOOD, "the file ends inside the JSON text"},
        {"[" GOOD ",", "the file ends inside the JSON text"},
        {"[{\"name\":\"[mem", "byte 14: the file ends inside the JSON text"},
        {"[{\"name\\", "the file ends inside the JSON text"},
        {"[" GOOD "] x", "not JSON: more than one value"},
        {"[" GOOD "}", "not JSON: \",\" or \"]\" expected"},
        {"{\"a\" 1}", "byte 5: not JSON: \":\" expected"},
        {"{\"a\":1 \"b\"", "not JSON: \",\" or \"}\" expected"},
        {"{1", "byte 1: not JSON: a key expected"},
        {"[-]", "not JSON: a number without digits"},
        {"[nul]", "byte 1: not JSON: a value expected"},
        {"[" EVENT("NaN", "0", "1", "1", "1", "1") "]", "not JSON: a value expected"},
        {"[" EVENT("-5", "0", "1", "1", "1", "1") "]",
         "byte 1: \"ts\" of a [memory] event is negative"},
        {"[" GOOD "," EVENT("-5", "0", "1", "1", "1", "1") "]", "; 1 events before it were read"},
        {"[" EVENT("1e15", "0", "1", "1", "1", "1") "]",
         "\"ts\" of a [memory] event is not a number"},
        {"[" EVENT("1.2.3", "0", "1", "1", "1", "1") "]",
         "\"ts\" of a [memory] event is not a number"},
        {"[" EVENT("99999999999999999999", "0", "1", "1", "1", "1") "]", "\"ts\" of a [memory]"},
        {"[" EVENT("1", "1024", "1", "1", "1", "1") "]",
         "\"Device Id\" of a [memory] event is not a"},
        {"[" EVENT("1", "-1", "1", "1", "1", "1") "]",
         "\"Device Id\" of a [memory] event is negative"},
        {"[" EVENT("1", "0", "true", "1", "1", "1") "]",
         "\"Addr\" of a [memory] event is not a number"},
        {"[" EVENT("1", "0", "18446744073709551616", "1", "1", "1") "]", "at most 64 bits"},
        {"[" EVENT("1", "0", "18446744073709551615", "1", "1", "1") "]", "goes beyond 64 bits"},
        {"[" EVENT("1", "0", "1", "1.5", "1", "1") "]",
         "\"Bytes\" of a [memory] event is not a number"},
        {"[" EVENT("1", "0", "1", "1", "-1", "1") "]",
         "\"Total Allocated\" of a [memory] event is neg"},
        {"[" EVENT("1", "0", "1", "1", "1", "[]") "]",
         "\"Total Reserved\" of a [memory] event is not"},
        {"[{\"name\":\"[memory]\",\"ts\":1,\"args\":{\"Device Type\":1,\"Device Id\":0,\"Bytes\":1}}]",
         "\"Addr\" of a [memory] event is missing, as in profiles of PyTorch 1.12"},
        {"[{\"name\":\"[memory]\"}]", "\"ts\" of a [memory] event is missing"},
        {"[" EVENT("1", "0", "1", "18446744073709551615", "18446744073709551615", "1") "]",
         "goes beyond 64 bits"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_null(read_device(cases[i].text, -1));
        if (strstr(message, cases[i].wanted) == NULL) {
            print_error("\"%s\" lacks \"%s\"\n", message, cases[i].wanted);
        }
        assert_non_null(strstr(message, cases[i].wanted));
        assert_int_equal(strncmp(message, "name: byte ", 11), 0);
        assert_null(strchr(message, '\n'));
    }
}

static void depth_is_bounded_and_costs_no_stack(void **state)
{
    (void)state;
    size_t count = 1u << 20;
    char *text = malloc(count + 1);
    assert_non_null(text);
    memset(text, '[', count);
    text[count] = '\0';
    assert_null(read_device(text, -1));
    assert_non_null(strstr(message, "byte 256: not JSON: nested deeper than 256 levels"));
    memset(text + 250, ']', 249);
    strcpy(text + 499, "," GOOD "]");
    flw_trace_destroy(read_text(text));
    free(text);
}

static void a_string_longer_than_the_window_is_stepped_over(void **state)
{
    (void)state;
    size_t count = 3u << 20;
    char *text = malloc(count + 1024);
    assert_non_null(text);
    memset(text, 'x', count);
    memcpy(text, "[\"", 2);
    strcpy(text + count, "\"," GOOD "]");
    flw_trace_destroy(read_text(text));
    memset(text + 2, '7', count - 2);
    text[1] = '-';
    strcpy(text + count, "," GOOD "]");
    flw_trace_destroy(read_text(text));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_of_two_threads_come_in_the_order_of_their_times),
        cmocka_unit_test(what_was_allocated_before_and_never_freed_is_one_block),
        cmocka_unit_test(several_devices_are_told_apart),
        cmocka_unit_test(totals_and_gaps_that_do_not_fit_are_counted),
        cmocka_unit_test(numbers_up_to_64_bits_are_kept),
        cmocka_unit_test(an_event_has_the_stack_of_the_slices_around_it),
        cmocka_unit_test(slices_that_follow_each_other_are_not_in_one_another),
        cmocka_unit_test(the_call_stack_of_an_operator_is_what_called_it),
        cmocka_unit_test(slices_without_sense_are_left_out),
        cmocka_unit_test(deep_stacks_lose_their_outermost_frames),
        cmocka_unit_test(a_long_call_stack_ends_with_a_whole_frame),
        cmocka_unit_test(a_bad_file_is_named_with_its_place_and_reason),
        cmocka_unit_test(depth_is_bounded_and_costs_no_stack),
        cmocka_unit_test(a_string_longer_than_the_window_is_stepped_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
