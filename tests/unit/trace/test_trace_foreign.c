/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of RMM's log, read and written.
 */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trace/formats/formats.h"
#include "trace/trace/trace.h"

#define RMM "Thread,Time,Action,Pointer,Size,Stream\n"

static char message[FLW_TRACE_MESSAGE_BYTES];

struct wanted {
    uint64_t time_ns, size_bytes;
    uint32_t block;
    uint8_t op;
};

static struct flw_trace *read_bytes(const char *text)
{
    struct flw_trace *trace;
    size_t count = strlen(text);
    char *exact = malloc(count + 1);
    assert_non_null(exact);
    memcpy(exact, text, count);
    bool is_read = flw_trace_read_bytes(exact, count, "name", -1, &trace, message);
    free(exact);
    assert_int_equal(is_read, trace != NULL);
    assert_true(!is_read || flw_trace_is_valid(trace));
    return trace;
}

static struct flw_trace *read_text(const char *text)
{
    struct flw_trace *trace = read_bytes(text);
    if (trace == NULL) {
        print_error("%s\n", message);
    }
    assert_non_null(trace);
    return trace;
}

static void expect_events(const struct flw_trace *trace, const struct wanted *wanted, size_t count)
{
    assert_int_equal(trace->event_count, count);
    for (size_t i = 0; i < count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        assert_int_equal(event->time_ns, wanted[i].time_ns);
        assert_int_equal(event->size_bytes, wanted[i].size_bytes);
        assert_int_equal(event->block, wanted[i].block);
        assert_int_equal(event->op, wanted[i].op);
    }
}

/* ---- RMM ---- */

static const struct wanted rmm_events[] = {
    {0, 100, 1, FLW_TRACE_ALLOC},          {1000, 200, 2, FLW_TRACE_ALLOC},
    {1000, 100, 1, FLW_TRACE_FREE},        {500000000, 1048576, UINT32_MAX, FLW_TRACE_OOM},
    {1000000000, 300, 3, FLW_TRACE_ALLOC}, {1000001000, 64, 0, FLW_TRACE_FREE},
};

static void expect_rmm(const char *text)
{
    struct flw_trace *trace = read_text(text);
    assert_string_equal(trace->format, "rmm csv");
    expect_events(trace, rmm_events, sizeof(rmm_events) / sizeof(rmm_events[0]));
    assert_int_equal(trace->initial_count, 1); /* freed, never allocated */
    assert_int_equal(trace->stream_count, 2);
    assert_int_equal(trace->streams[0], 0);
    assert_int_equal(trace->streams[1], 0x5581ab);
    assert_int_equal(trace->blocks[3].address, 0x7f0000000400);
    assert_int_equal(trace->peak_requested_bytes, 564);
    flw_trace_destroy(trace);
}

static void both_spellings_of_rmms_log_are_one_trace(void **state)
{
    (void)state;
    /* threads' clocks may be written out of order, and midnight passes */
    expect_rmm(RMM "140,23:59:59.500000,allocate,0x7f0000000200,100,0\n"
                   "141,23:59:59.500001,allocate,0x7f0000000300,200,0x5581ab\n"
                   "140,23:59:59.500000,free,0x7f0000000200,100,0x0\n"
                   "141,00:00:00.000000,allocate failure,(nil),1048576,0\n"
                   "141,00:00:00.500000,allocate,0x7f0000000400,300,0\n"
                   "140,00:00:00.500001,free,0x7f0000000100,64,0\n");
    expect_rmm(RMM "140,1669783687.5,allocate,7f0000000200,100,0\r\n"
                   "141,1669783687.500001,allocate,0x7F0000000300,200,5603755\r\n"
                   "140,1669783687.5,deallocate,0x7f0000000200,100,0\r\n"
                   "141,1669783688,allocate failure,(nil),1048576,0\r\n"
                   "\r\n"
                   "141,1669783688.50000000,allocate,0x7f0000000400,300,(nil)\r\n"
                   "140,1669783688.500001,deallocate,0x7f0000000100,64,0\r\n");
}

static void rmms_gaps_are_counted(void **state)
{
    (void)state;
    struct flw_trace *trace = read_text(RMM "1,1,allocate,0x10,8,0\n"
                                            "1,1,allocate,0x10,16,0\n"
                                            "1,1,free,0x10,16,0\n"
                                            "1,1,free,0x10,16,0\n"
                                            "1,1,allocate,(nil),0,0\n"
                                            "1,1,free,0x0,0,0\n");
    assert_int_equal(trace->lost_free_count, 1);
    assert_int_equal(trace->unknown_free_count, 1);
    assert_non_null(strstr(trace->notes, "rmm_null_pointer_rows 2\n"));
    assert_int_equal(trace->event_count, 4);
    flw_trace_destroy(trace);
}

static void rmms_log_is_written_and_read_back(void **state)
{
    (void)state;
    static const char log[] = RMM "0,00:00:00.000000,allocate,0x100,64,0\n"
                                  "0,00:00:00.000000,allocate,0x200,100,0x5581ab\n"
                                  "0,00:00:00.000001,free,0x200,100,0x5581ab\n"
                                  "0,01:02:03.000004,allocate failure,(nil),1048576,0\n"
                                  "0,30:02:03.000004,free,0x100,64,0\n";
    char path[] = "/tmp/fallow_rmm_XXXXXX";
    char text[1024] = "";
    close(mkstemp(path));
    struct flw_trace *trace = read_text(log);
    assert_true(flw_trace_write_rmm(trace, path, message));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    fclose(file);
    assert_string_equal(text, log);
    flw_trace_destroy(trace);
    /* Blocks of the start come first; without addresses a number stands for each. */
    trace = read_text("#fallow-trace 1\ndevice 0\nstream 9\nfields none\nP 0 0 5 0\nA 0 1 6 0\n"
                      "F 0 0 0\nC 0 0 0\n");
    assert_true(flw_trace_write_rmm(trace, path, message));
    flw_trace_destroy(trace);
    assert_true(flw_trace_read(path, -1, &trace, message));
    assert_int_equal(trace->event_count, 3);
    assert_int_equal(trace->peak_requested_bytes, 11);
    flw_trace_destroy(trace);
    unlink(path);
    trace = read_text(log);
    assert_false(flw_trace_write_rmm(trace, "/dev/full", message));
    assert_non_null(strstr(message, "/dev/full: cannot write: No space left"));
    flw_trace_destroy(trace);
}

static void a_header_alone_is_an_empty_trace(void **state)
{
    (void)state;
    struct flw_trace *trace = read_text(RMM);
    assert_int_equal(trace->event_count, 0);
    flw_trace_destroy(trace);
}

static void a_bad_row_is_named_with_its_place_and_reason(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *wanted;
    } cases[] = {
        {"Thread,Time,Action,Pointer,Size,Streams\n", "byte 0: line 1: the header is not Thread,"},
        {"Thread,Time,Action,Pointer,Size,Stream", "does not end in a newline: truncated"},
        {RMM "1,1,allocate,0x10,8,0", "byte 39: line 2: does not end in a newline: truncated"},
        {RMM "1,1,allocate,0x10,8,0\n2,x\n", "line 3: the time is neither HH:MM:SS"},
        {RMM "1,1,allocate,0x10,8,0\n2,x\n", "; 1 rows before it were read"},
        {RMM "1,-1,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "1,nan,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "1,1:2,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "1,1:2:61.5,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "1,1:2:3.x,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "1,18446744073709551615,allocate,0x10,8,0\n", "the time is neither"},
        {RMM "one,1,allocate,0x10,8,0\n", "the thread is not a number"},
        {RMM "1\n", "the time is neither"},
        {RMM "1,1\n", "there is no action"},
        {RMM "1,1,realloc,0x10,8,0\n", "the action is none of"},
        {RMM "1,1,allocate,0xg,8,0\n", "the pointer is not a hexadecimal number"},
        {RMM "1,1,allocate,0x10,-8,0\n", "the size is not a number of bytes"},
        {RMM "1,1,allocate,0x10,18446744073709551616,0\n", "the size is not a number of bytes"},
        {RMM "1,1,allocate,0x10,18446744073709551615,0\n", "go beyond 64 bits"},
        {RMM "1,1,allocate,0x10,8\n", "the stream is not a number"},
        {RMM "1,1,allocate,0x10,8,\n", "the stream is not a number"},
        {RMM "1,1,allocate,0x10,8,0,1\n", "more than six columns"},
        {"2 0x10 8 0\n", "neither a pickled PyTorch snapshot nor"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct flw_trace *trace = read_bytes(cases[i].text);
        if (trace != NULL || strstr(message, cases[i].wanted) == NULL) {
            print_error("case %zu: \"%s\" lacks \"%s\"\n", i, message, cases[i].wanted);
        }
        assert_null(trace);
        assert_non_null(strstr(message, cases[i].wanted));
        assert_int_equal(strncmp(message, "name: byte ", 11), 0);
        assert_null(strchr(message, '\n'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_spellings_of_rmms_log_are_one_trace),
        cmocka_unit_test(rmms_gaps_are_counted),
        cmocka_unit_test(rmms_log_is_written_and_read_back),
        cmocka_unit_test(a_header_alone_is_an_empty_trace),
        cmocka_unit_test(a_bad_row_is_named_with_its_place_and_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
