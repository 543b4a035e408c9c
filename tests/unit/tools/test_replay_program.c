/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace decoded for replay: what comes first, how far the clock moves before each op, what is
 * left out, and which frees and uses cross streams; and the host memory that all of it is in.
 */
#include "support/test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trace/formats/formats.h"
#include "trace/trace/trace.h"

#include "common/program.h"
#include "common/tool_host.h"

static const char text[] = "#fallow-trace 1\n"
                           "device 0\n"
                           "stream 0\n"
                           "stream 7\n"
                           "fields times\n"
                           "P 0 0 4096 0\n"
                           "P 0 1 8192 1\n"
                           "A 100 2 0 0\n"    /* of size 0: no op */
                           "A 250 3 1000 0\n" /* carries the clock of both */
                           "U 300 3 1\n"
                           "N 900\n" /* clock only */
                           "F 1000 3 1\n"
                           "C 1100 3 1\n"
                           "F 1200 2 0\n"
                           "F 1300 0 0\n"
                           "N 1400\n"
                           "X 1500\n"
                           "Y 1600 stream 1\n"
                           "N 2000\n";

static struct flw_program *decode(bool by_time, struct flw_trace **out_trace)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    if (!flw_trace_read_bytes(text, sizeof text - 1, "text", -1, out_trace, message)) {
        fail_msg("%s", message);
    }
    struct flw_program *program = flw_program_create(*out_trace, by_time);
    assert_non_null(program);
    return program;
}

struct expected {
    enum flw_op_kind kind;
    uint32_t block;
    uint16_t stream;
    uint64_t size_bytes;
    uint64_t time_units, event_units; /* the clock before the op, by time and by events */
};

static const struct expected ops[] = {
    {FLW_OP_ALLOC, 0, 0, 4096, 0, 0},
    {FLW_OP_ALLOC, 1, 1, 8192, 0, 0},
    {FLW_OP_ALLOC, 3, 0, 1000, 250, 2},
    {FLW_OP_USE, 3, 1, 1000, 50, 1},
    {FLW_OP_FREE_ELSEWHERE, 3, 1, 1000, 700, 2},
    {FLW_OP_FREE, 0, 0, 4096, 300, 3},
    {FLW_OP_SEGMENT_FREE, UINT32_MAX, 0, 0, 200, 2},
    {FLW_OP_SYNC, UINT32_MAX, 1, 0, 100, 1},
    {FLW_OP_PASS, 0, 0, 0, 400, 1},
};

#define OP_COUNT (sizeof ops / sizeof *ops)

static void check_ops(bool by_time)
{
    struct flw_trace *trace = NULL;
    struct flw_program *program = decode(by_time, &trace);
    assert_int_equal(program->op_count, OP_COUNT);
    for (size_t i = 0; i < OP_COUNT; i++) {
        const struct flw_op *op = &program->ops[i];
        assert_int_equal(op->kind, ops[i].kind);
        assert_int_equal(op->size_bytes, ops[i].size_bytes);
        assert_int_equal(op->stream, ops[i].stream);
        assert_int_equal(op->advance_units, by_time ? ops[i].time_units : ops[i].event_units);
        if (op->kind != FLW_OP_PASS) {
            assert_int_equal(op->block, ops[i].block);
        }
    }
    flw_program_destroy(program);
    flw_trace_destroy(trace);
}

TEST(blocks_alive_at_the_start_come_first_and_the_clock_follows_the_trace)
{
    check_ops(true);
}

TEST(without_times_the_clock_counts_events)
{
    check_ops(false);
}

TEST(each_event_that_is_an_op_is_known_as_one)
{
    struct flw_trace *trace = NULL;
    struct flw_program *program = decode(true, &trace);
    size_t op = program->initial_count;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (flw_program_has_op(program, i)) {
            assert_int_equal(program->ops[op].block, event->block);
            op++;
        }
    }
    assert_int_equal(op + 1, program->op_count); /* and the end */
    flw_program_destroy(program);
    flw_trace_destroy(trace);
}

TEST(totals_are_those_of_the_trace)
{
    struct flw_trace *trace = NULL;
    struct flw_program *program = decode(true, &trace);
    assert_int_equal(program->initial_count, 2);
    assert_int_equal(program->block_count, 4);
    assert_int_equal(program->stream_count, 2);
    assert_int_equal(program->event_count, trace->event_count);
    assert_int_equal(program->alloc_count, 2);
    assert_int_equal(program->zero_count, 1);
    assert_int_equal(program->max_live_bytes, 4096 + 8192 + 1000);
    assert_int_equal(program->max_live_bytes, trace->peak_requested_bytes);
    assert_int_equal(flw_program_users(program, 3, 0), 2);
    assert_int_equal(flw_program_users(program, 3, 1), 0);
    assert_true(program->crosses_streams);
    assert_int_equal(program->ops[4].use_count, 1);
    flw_program_destroy(program);
    flw_trace_destroy(trace);
    flw_program_destroy(NULL);
}

TEST(memory_grows_with_what_was_in_it)
{
    size_t capacity = 0;
    uint32_t *numbers = NULL;
    for (uint32_t i = 0; i < 1000; i++) {
        numbers = flw_host_grow(numbers, &capacity, i + 1, sizeof *numbers);
        assert_true(capacity > i);
        assert_int_equal(numbers[i], 0);
        numbers[i] = i;
    }
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(numbers[i], i);
    }
    flw_host_free(numbers);
    flw_host_free(NULL);
}

/* The product does not fit: refused without a system that has to run out of anything. */
TEST(without_host_memory_the_command_says_so_and_ends)
{
    int ends[2], status = 0;
    char said[256] = "";
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        void *memory = flw_host_alloc(SIZE_MAX / 4, 8);
        _exit(memory == NULL ? 2 : 3);
    }
    assert_true(child > 0);
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_non_null(strstr(said, "fallow: out of host memory for "));
}

FLW_TEST_MAIN(NULL, NULL)
