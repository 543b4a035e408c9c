/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading "gtrace-text 0". Does not: write it.
 *
 *   "# gtrace-text 0", comment lines "# ...", then
 *   P ID SIZE STREAM             alive at the start
 *   A TIME_US ID SIZE STREAM     allocated
 *   F TIME_US ID                 freed
 *   C TIME_US ID                 that free is complete
 * IDs count from 0 in the order of P and A lines. A line may end in " tid=N", which is not kept.
 */
#include "trace/gtrace.h"

#include <inttypes.h>

#include "trace/build.h"
#include "trace/line.h"
#include "trace/measure.h"

struct reader {
    struct flw_line line;
    struct flw_build build;
    uint64_t time_ns;
};

static bool fail_memory(struct reader *r)
{
    return flw_line_fail(&r->line, "no memory to hold the trace");
}

static bool take_time(struct reader *r, uint64_t *out_ns)
{
    uint64_t time_us;
    if (!flw_line_take_column(&r->line, &time_us)) {
        return false;
    }
    if (__builtin_mul_overflow(time_us, UINT64_C(1000), out_ns) || *out_ns < r->time_ns) {
        return flw_line_fail(&r->line, "time falls, or is out of range");
    }
    r->time_ns = *out_ns;
    return true;
}

static bool take_tail(struct reader *r)
{
    uint64_t thread;
    if (flw_line_accept(&r->line, " tid=") && !flw_line_take_number(&r->line, &thread)) {
        return false;
    }
    return flw_line_take_end(&r->line);
}

static bool take_block(struct reader *r, struct flw_trace_block *block)
{
    uint64_t id;
    uint64_t handle;
    size_t number = r->build.trace->block_count;
    *block = (struct flw_trace_block){0};
    if (!flw_line_take_column(&r->line, &id) ||
        !flw_line_take_column(&r->line, &block->size_bytes) ||
        !flw_line_take_column(&r->line, &handle) || !take_tail(r)) {
        return false;
    }
    if (id != number || number >= UINT32_MAX) {
        return flw_line_fail(&r->line, "the next block's number is %zu", number);
    }
    return (flw_build_add_stream(&r->build, handle, &block->stream) &&
            flw_build_add_block(&r->build, block)) ||
           fail_memory(r);
}

static bool read_initial(struct reader *r)
{
    struct flw_trace_block block;
    if (r->build.trace->event_count > 0) {
        return flw_line_fail(&r->line, "P lines come before events");
    }
    r->build.trace->initial_count++;
    return take_block(r, &block);
}

static bool read_alloc(struct reader *r)
{
    struct flw_trace_block block;
    struct flw_trace_event event = {.op = FLW_TRACE_ALLOC};
    event.block = (uint32_t)r->build.trace->block_count;
    if (!take_time(r, &event.time_ns) || !take_block(r, &block)) {
        return false;
    }
    event.size_bytes = block.size_bytes;
    event.stream = block.stream;
    return flw_build_add_event(&r->build, &event) || fail_memory(r);
}

static bool read_free(struct reader *r, uint8_t op)
{
    uint64_t id;
    struct flw_trace_event event = {.op = op};
    if (!take_time(r, &event.time_ns) || !flw_line_take_column(&r->line, &id) || !take_tail(r)) {
        return false;
    }
    if (id >= r->build.trace->block_count) {
        return flw_line_fail(&r->line, "block %" PRIu64 " does not exist", id);
    }
    event.block = (uint32_t)id;
    event.size_bytes = r->build.trace->blocks[id].size_bytes;
    event.stream = r->build.trace->blocks[id].stream;
    return flw_build_add_event(&r->build, &event) || fail_memory(r);
}

static bool read_line(struct reader *r)
{
    if (flw_line_accept(&r->line, "#")) {
        return true;
    }
    if (flw_line_accept(&r->line, "P")) {
        return read_initial(r);
    }
    if (flw_line_accept(&r->line, "A")) {
        return read_alloc(r);
    }
    if (flw_line_accept(&r->line, "F")) {
        return read_free(r, FLW_TRACE_FREE);
    }
    if (flw_line_accept(&r->line, "C")) {
        return read_free(r, FLW_TRACE_FREE_DONE);
    }
    return flw_line_fail(&r->line, "not a record");
}

static bool read_all(struct reader *r)
{
    while (flw_line_next(&r->line)) {
        if (!read_line(r)) {
            return false;
        }
    }
    if (r->line.input->failed) {
        return false;
    }
    r->build.trace->has_times = true;
    const char *wrong = flw_measure_trace(r->build.trace);
    return wrong == NULL || flw_input_fail(r->line.input, 0, "%s", wrong);
}

bool flw_gtrace_read(struct flw_input *input, struct flw_trace **out_trace)
{
    struct reader r = {.line = {.input = input}};
    bool is_read =
        flw_build_init(&r.build, input->name, "gtrace text") ? read_all(&r) : fail_memory(&r);
    flw_build_end(&r.build, is_read, out_trace);
    return is_read;
}
