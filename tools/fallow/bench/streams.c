/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shape `streams`: pairs on many streams. Either one measurement beside pairs on one stream, or a sweep: a
 * row for each size, live memory and number of streams, with the calls that the driver received.
 *
 * Each row of a sweep has a pool of its own. The pairs are on random streams; beside the pairs, blocks of the same size
 * are live, on the streams in turn.
 */
#include "bench/bench.h"

#include <time.h>

/* ---- one measurement */

/* The reference on one stream is not counted in `--count`, so that it cancels under callgrind. */
#define REFERENCE_COUNT 50000

static bool measure_one(struct flw_bench *bench)
{
    struct flw_bench_options one = *bench->options;
    uint64_t switches = 0;
    one.stream_count = 1;
    struct flw_bench_loop single = flw_bench_loop_open(bench, &one, 1, one.seed),
                          many = flw_bench_loop_open(bench, bench->options, 1, one.seed);
    for (size_t i = 0; i < bench->stream_count; i++) { /* cached blocks in each */
        single.stream = bench->streams[i];
        bench->failure_count += flw_bench_run_pair(&single, (struct flw_bench_range){0, 64});
    }
    double reference =
        flw_bench_measure(bench, &single, flw_bench_run_streams, 0, REFERENCE_COUNT, "one_stream_");
    double ns =
        flw_bench_measure(bench, &many, flw_bench_run_streams, one.warm_count, one.count, "");
    for (uint64_t i = 0; i <= many.mask; i++) {
        switches += many.steps[i].stream != many.steps[(i + 1) & many.mask].stream;
    }
    double rate = (double)switches / (double)(many.mask + 1);
    flw_bench_add(bench, "switches_per_op", rate);
    flw_bench_add(bench, "ns_per_switch", rate > 0 ? (ns - reference) / rate : NAN);
    flw_bench_loop_close(&single);
    flw_bench_loop_close(&many);
    return true;
}

/* ---- the counts of a row */

enum {
    STREAM_COUNT,
    SIZE_BYTES,
    BESIDE_BYTES,
    CPU_NS,
    OVER_ONE_STREAM,
    COUNTS, /* a pair's, but for the last */
    DRIVER_CALLS = COUNTS,
    EVENTS,
    QUERIES,
    STREAM_WAITS,
    HOST_WAITS,
    STEALS,
    RESERVED_BYTES
};
_Static_assert(RESERVED_BYTES + 1 == FLW_BENCH_COLUMNS, "a column for each value");

static const struct flw_bench_column columns[FLW_BENCH_COLUMNS] = {
    [STREAM_COUNT] = {"streams", "streams", 1, false},
    [SIZE_BYTES] = {"size_bytes", "size KiB", 1 << 10, false},
    [BESIDE_BYTES] = {"beside_bytes", "live MiB", 1 << 20, false},
    [CPU_NS] = {"cpu_ns_per_pair", "ns", 1, false},
    [OVER_ONE_STREAM] = {"over_one_stream", "over one", 1, false},
    [DRIVER_CALLS] = {"driver_calls_per_pair", "calls", 1, false},
    [EVENTS] = {"events_per_pair", "events", 1, false},
    [QUERIES] = {"queries_per_pair", "queries", 1, false},
    [STREAM_WAITS] = {"stream_waits_per_pair", "str.waits", 1, false},
    [HOST_WAITS] = {"host_waits_per_pair", "host waits", 1, false},
    [STEALS] = {"steals_per_pair", "steals", 1, false},
    [RESERVED_BYTES] = {"reserved_bytes", "held MiB", 1 << 20, false},
};

/* A simulated driver counts calls. For a GPU's driver use the pool's own counts, NAN if there are none. */
static void count(const struct flw_bench *bench, double *out)
{
    flw_sim_calls_function calls = NULL;
    flw_sim_ledger_function get_ledger = NULL;
    struct flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    fallow_stats usage = flw_bench_usage(bench);
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
    if (bench->options->device >= 0 || bench->driver == NULL) {
        return;
    }
    flw_bench_find(bench, "flw_sim_call_count", &calls);
    flw_bench_find(bench, "flw_sim_get_ledger", &get_ledger);
    get_ledger(0, &ledger);
    out[DRIVER_CALLS] = /* without queries, as in fallow_stats */
        (double)(calls(NULL) - calls("cuStreamIsCapturing") - calls("cuMemGetInfo_v2"));
    out[EVENTS] = (double)calls("cuEventRecord");
    out[QUERIES] = (double)(calls("cuEventQuery") + calls("cuStreamQuery"));
    out[STREAM_WAITS] = (double)calls("cuStreamWaitEvent");
    out[HOST_WAITS] = (double)ledger.host_wait_count;
}

/* CPU time of all threads, including helpers of the pool. */
static uint64_t cpu_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- a row */

static bool measure_row(struct flw_bench *bench, double *values)
{
    const struct flw_bench_options *options = bench->options;
    struct flw_bench_options own = *options;
    flw_bench_run *run = options->lag_pairs == 0 ? flw_bench_run_streams : flw_bench_run_worked;
    own.is_random_switch = true;
    own.stream_count = (size_t)values[STREAM_COUNT];
    own.size_bytes = (size_t)values[SIZE_BYTES];
    uint64_t count_beside = (uint64_t)values[BESIDE_BYTES] / own.size_bytes, held = 0;
    struct flw_bench_loop loop = flw_bench_loop_open(bench, &own, count_beside, options->seed);
    if (options->lag_pairs != 0) {
        flw_bench_find(bench, "flw_sim_touch", &loop.touch);
        flw_bench_find(bench, "flw_sim_advance", &loop.advance);
    }
    while (held < count_beside &&
           loop.policy->alloc(loop.pool, loop.size_bytes, loop.streams[held % own.stream_count],
                              &loop.slots[held]) == FALLOW_OK) {
        held++;
    }
    if (held == count_beside) {
        double before[FLW_BENCH_COLUMNS];
        bench->failure_count += run(&loop, (struct flw_bench_range){0, options->warm_count});
        count(bench, before);
        values[CPU_NS] = flw_bench_time(bench, &loop, run, options->count, cpu_ns, NULL);
        count(bench, values);
        for (size_t i = COUNTS; i < RESERVED_BYTES; i++) {
            values[i] = (values[i] - before[i]) / (double)options->count;
        }
    } else {
        flw_bench_fail(bench,
                       "%llu of %llu blocks of %zu bytes could be held beside: lower --beside",
                       (unsigned long long)held, (unsigned long long)count_beside, own.size_bytes);
    }
    for (uint64_t i = 0; i < held; i++) {
        bench->failure_count += loop.policy->free(loop.pool, loop.slots[i],
                                                  loop.streams[i % own.stream_count]) != FALLOW_OK;
    }
    flw_bench_loop_close(&loop);
    return held == count_beside;
}

/* ---- the sweep */

static void compare_with_one_stream(struct flw_bench_row *rows, size_t row_count)
{
    for (size_t i = 0; i < row_count; i++) {
        rows[i].values[OVER_ONE_STREAM] = NAN;
        for (size_t j = 0; j < row_count; j++) {
            if (rows[j].values[STREAM_COUNT] == 1 &&
                rows[j].values[SIZE_BYTES] == rows[i].values[SIZE_BYTES] &&
                rows[j].values[BESIDE_BYTES] == rows[i].values[BESIDE_BYTES]) {
                rows[i].values[OVER_ONE_STREAM] = rows[i].values[CPU_NS] / rows[j].values[CPU_NS];
            }
        }
    }
}

bool flw_bench_streams(struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    const struct flw_bench_list *sizes = &options->size_list, *besides = &options->beside_list,
                                *streams = &options->stream_list;
    if (!options->is_sweep) {
        return measure_one(bench);
    }
    bench->columns = columns;
    bench->column_count = FLW_BENCH_COLUMNS;
    snprintf(bench->note, sizeof bench->note,
             "a row's pairs are on random streams; CPU time and counts a pair; %s",
             options->lag_pairs == 0 ? "no device work"
                                     : "simulated work on each block, its time included");
    for (size_t i = 0; i < sizes->count * besides->count * streams->count; i++) {
        double *values = flw_bench_add_row(bench)->values;
        values[STREAM_COUNT] = (double)streams->values[i % streams->count];
        values[BESIDE_BYTES] = (double)besides->values[i / streams->count % besides->count];
        values[SIZE_BYTES] = (double)sizes->values[i / streams->count / besides->count];
        if ((bench->driver != NULL &&
             !flw_bench_check(bench, bench->driver->cuCtxSynchronize(), "cuCtxSynchronize")) ||
            !flw_bench_renew_pool(bench) || !measure_row(bench, values)) {
            return false;
        }
    }
    compare_with_one_stream(bench->rows, bench->row_count);
    return true;
}
