/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shape `streams`: pairs on many streams. Either one measurement beside pairs on one stream, or a
 * sweep: a row for each size, live memory and number of streams, with what the driver was asked for.
 *
 * Each row of a sweep has a pool of its own. Its pairs are on random streams; what is live beside them is in
 * blocks of their size, on the streams in turn.
 */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

/* ---- one measurement ---- */

/* The reference on one stream is not counted in `--count`, so that it cancels under callgrind. */
#define REFERENCE_COUNT 50000

static double switches_per_op(const struct flw_bench_steps *steps)
{
    uint64_t switches = 0;
    for (uint64_t i = 0; i <= steps->mask; i++) {
        switches += steps->steps[i].stream != steps->steps[(i + 1) & steps->mask].stream;
    }
    return (double)switches / (double)(steps->mask + 1);
}

static bool measure_one(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                        struct flw_bench_report *report)
{
    struct flw_bench_options one = *options;
    struct flw_bench_steps single = {0}, many = {0};
    struct flw_bench_loop loop = flw_bench_loop_on(options, bed);
    one.stream_count = 1;
    flw_bench_steps_init(&single, &one, 1, options->seed);
    flw_bench_steps_init(&many, options, 1, options->seed);
    for (size_t i = 0; i < bed->stream_count; i++) { /* cached blocks in each */
        struct flw_bench_loop warm = loop;
        warm.stream = bed->streams[i];
        report->failure_count += flw_bench_run_pair(&warm, (struct flw_bench_range){0, 64});
    }
    loop.steps = &single;
    double reference =
        flw_bench_time(&loop, flw_bench_run_streams, REFERENCE_COUNT, report,
                       (struct flw_bench_keys){"one_stream_ns_per_op", "one_stream_ns_per_op_min"});
    loop.steps = &many;
    report->failure_count +=
        flw_bench_run_streams(&loop, (struct flw_bench_range){0, options->warm_count});
    double ns = flw_bench_time(&loop, flw_bench_run_streams, options->count, report,
                               (struct flw_bench_keys){"ns_per_op", "ns_per_op_min"});
    double rate = switches_per_op(&many);
    flw_bench_report_add(report, "switches_per_op", rate);
    flw_bench_report_add(report, "ns_per_switch", rate > 0 ? (ns - reference) / rate : NAN);
    flw_bench_steps_finish(&single);
    flw_bench_steps_finish(&many);
    return true;
}

/* ---- what a row counts ---- */

/* A row's values, a pair but for the first two and the last. */
enum {
    CPU_NS,
    OVER_ONE_STREAM,
    COUNTS,
    DRIVER_CALLS = COUNTS,
    EVENTS,
    QUERIES,
    STREAM_WAITS,
    HOST_WAITS,
    STEALS,
    RESERVED_BYTES
};
_Static_assert(RESERVED_BYTES + 1 == FLW_BENCH_COLUMNS, "a column for each value");

const struct flw_bench_column flw_bench_columns[FLW_BENCH_COLUMNS] = {
    [CPU_NS] = {"cpu_ns_per_pair", "ns", 1},
    [OVER_ONE_STREAM] = {"over_one_stream", "over one", 1},
    [DRIVER_CALLS] = {"driver_calls_per_pair", "calls", 1},
    [EVENTS] = {"events_per_pair", "events", 1},
    [QUERIES] = {"queries_per_pair", "queries", 1},
    [STREAM_WAITS] = {"stream_waits_per_pair", "str.waits", 1},
    [HOST_WAITS] = {"host_waits_per_pair", "host waits", 1},
    [STEALS] = {"steals_per_pair", "steals", 1},
    [RESERVED_BYTES] = {"reserved_bytes", "held MiB", 1 << 20},
};

/* What the simulated driver counts by itself, beside the host's waits. */
static const char *const entry_points[HOST_WAITS][3] = {
    [EVENTS] = {"cuEventRecord"},
    [QUERIES] = {"cuEventQuery", "cuStreamQuery"},
    [STREAM_WAITS] = {"cuStreamWaitEvent"},
};

/* A GPU's driver counts nothing: what the pool says of itself stands there, and NAN where it says nothing. */
static void count(const struct flw_bench_bed *bed, double *out)
{
    flw_sim_calls_function calls = NULL;
    flw_sim_ledger_function get_ledger = NULL;
    struct flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    fallow_stats usage;
    if (bed->device.is_sim && bed->driver != NULL) {
        flw_bench_device_find(&bed->device, "flw_sim_call_count", &calls);
        flw_bench_device_find(&bed->device, "flw_sim_get_ledger", &get_ledger);
    }
    bed->policy->get_usage(bed->pool, &usage);
    for (size_t i = COUNTS; i < FLW_BENCH_COLUMNS; i++) {
        out[i] = NAN;
    }
    if (usage.alloc_count == UINT64_MAX) {
        return;
    }
    out[DRIVER_CALLS] = (double)usage.driver_call_count;
    out[EVENTS] = (double)usage.event_count;
    out[HOST_WAITS] = (double)(usage.wait_count + usage.remap_wait_count);
    out[STEALS] = (double)usage.steal_count;
    out[RESERVED_BYTES] = (double)usage.reserved_bytes;
    if (calls == NULL || get_ledger == NULL) {
        return;
    }
    out[DRIVER_CALLS] = /* without queries, as in fallow_stats */
        (double)(calls(NULL) - calls("cuStreamIsCapturing") - calls("cuMemGetInfo_v2"));
    get_ledger(0, &ledger);
    out[HOST_WAITS] = (double)ledger.host_wait_count;
    for (size_t i = EVENTS; i <= STREAM_WAITS; i++) {
        out[i] = 0;
        for (size_t j = 0; entry_points[i][j] != NULL; j++) {
            out[i] += (double)calls(entry_points[i][j]);
        }
    }
}

/* Of all threads: what a helper does for the pool is paid for, too. */
static uint64_t cpu_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- a row ---- */

/* Fewer than block_count: the last one failed. */
static uint64_t hold(const struct flw_bench_loop *loop, uint64_t block_count, uint64_t stream_count)
{
    for (uint64_t i = 0; i < block_count; i++) {
        if (loop->policy->alloc(loop->pool, loop->size_bytes, loop->streams[i % stream_count],
                                &loop->slots[i]) != FALLOW_OK) {
            return i;
        }
    }
    return block_count;
}

static uint64_t let_go(const struct flw_bench_loop *loop, uint64_t block_count,
                       uint64_t stream_count)
{
    uint64_t failures = 0;
    for (uint64_t i = 0; i < block_count; i++) {
        failures += loop->policy->free(loop->pool, loop->slots[i],
                                       loop->streams[i % stream_count]) != FALLOW_OK;
    }
    return failures;
}

static uint64_t time_pairs(const struct flw_bench_loop *loop, flw_bench_run *run, uint64_t pairs,
                           double *out_ns)
{
    double ns[FLW_BENCH_BATCHES];
    size_t batches = 0;
    uint64_t failures = 0;
    for (uint64_t i = 0; i < FLW_BENCH_BATCHES; i++) {
        struct flw_bench_range range = {pairs * i / FLW_BENCH_BATCHES,
                                        pairs * (i + 1) / FLW_BENCH_BATCHES};
        if (range.begin == range.end) {
            continue;
        }
        uint64_t begin = cpu_ns();
        failures += run(loop, range);
        ns[batches++] = (double)(cpu_ns() - begin) / (double)(range.end - range.begin);
    }
    *out_ns = flw_median(ns, batches);
    return failures;
}

/* Pairs beside what is held: the row's values. Returns the failures. */
static uint64_t measure_pairs(const struct flw_bench_options *options,
                              const struct flw_bench_bed *bed, const struct flw_bench_loop *loop,
                              double *values)
{
    double before[FLW_BENCH_COLUMNS];
    flw_bench_run *run = options->lag_pairs == 0 ? flw_bench_run_streams : flw_bench_run_worked;
    uint64_t failures = run(loop, (struct flw_bench_range){0, options->warm_count});
    count(bed, before);
    failures += time_pairs(loop, run, options->count, &values[CPU_NS]);
    count(bed, values);
    for (size_t i = COUNTS; i < RESERVED_BYTES; i++) {
        values[i] = (values[i] - before[i]) / (double)options->count;
    }
    return failures;
}

static bool measure_row(const struct flw_bench_options *options, const struct flw_bench_bed *bed,
                        struct flw_bench_row *row, uint64_t *failures, char *message)
{
    struct flw_bench_steps steps;
    struct flw_bench_options own = *options;
    own.is_random_switch = true;
    own.stream_count = row->stream_count;
    own.size_bytes = row->size_bytes;
    struct flw_bench_loop loop = flw_bench_loop_on(&own, bed);
    uint64_t block_count = row->beside_bytes / row->size_bytes;
    flw_bench_steps_init(&steps, &own, 1, options->seed);
    loop.steps = &steps;
    loop.slots = flw_host_lines(block_count + 1, sizeof *loop.slots);
    if (options->lag_pairs != 0) {
        flw_bench_device_find(&bed->device, "flw_sim_touch", &loop.touch);
        flw_bench_device_find(&bed->device, "flw_sim_advance", &loop.advance);
    }
    uint64_t held = hold(&loop, block_count, row->stream_count);
    if (held == block_count) {
        *failures += measure_pairs(options, bed, &loop, row->values);
    } else {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES,
                 "%llu of %llu blocks of %llu bytes could be held beside: lower --beside",
                 (unsigned long long)held, (unsigned long long)block_count,
                 (unsigned long long)row->size_bytes);
    }
    *failures += let_go(&loop, held, row->stream_count);
    flw_host_free(loop.slots);
    flw_bench_steps_finish(&steps);
    return held == block_count;
}

/* ---- the sweep ---- */

static void compare_with_one_stream(struct flw_bench_row *rows, size_t row_count)
{
    for (size_t i = 0; i < row_count; i++) {
        rows[i].values[OVER_ONE_STREAM] = NAN;
        for (size_t j = 0; j < row_count; j++) {
            if (rows[j].stream_count == 1 && rows[j].size_bytes == rows[i].size_bytes &&
                rows[j].beside_bytes == rows[i].beside_bytes) {
                rows[i].values[OVER_ONE_STREAM] = rows[i].values[CPU_NS] / rows[j].values[CPU_NS];
            }
        }
    }
}

/* Work of the pool before is done by then: its memory is the device's again. */
static bool renew_pool(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                       char *message)
{
    if (bed->driver != NULL &&
        !flw_bench_device_check(&bed->device, bed->driver->cuCtxSynchronize(), "cuCtxSynchronize",
                                message)) {
        return false;
    }
    bed->policy->destroy(bed->pool);
    bed->pool = bed->policy->create(options, bed, message);
    return bed->pool != NULL;
}

static bool sweep(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                  struct flw_bench_report *report, char *message)
{
    const struct flw_bench_list *sizes = &options->size_list, *besides = &options->beside_list,
                                *streams = &options->stream_list;
    report->rows =
        flw_host_alloc(sizes->count * besides->count * streams->count, sizeof *report->rows);
    for (size_t i = 0; i < sizes->count * besides->count * streams->count; i++) {
        struct flw_bench_row *row = &report->rows[report->row_count++];
        *row = (struct flw_bench_row){
            .stream_count = streams->values[i % streams->count],
            .beside_bytes = besides->values[i / streams->count % besides->count],
            .size_bytes = sizes->values[i / streams->count / besides->count]};
        if (!renew_pool(options, bed, message) ||
            !measure_row(options, bed, row, &report->failure_count, message)) {
            return false;
        }
    }
    compare_with_one_stream(report->rows, report->row_count);
    return true;
}

bool flw_bench_streams(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                       struct flw_bench_report *report, char *message)
{
    return options->is_sweep ? sweep(options, bed, report, message)
                             : measure_one(options, bed, report);
}
