/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shapes of one thread: pair, replace, grow, holes, deferred, streams, lease, pinned, staged.
 *
 * The operations before the clock are the same for every `--count`.
 */
#include "bench/bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/compare.h"
#include "base/random.h"
#include "common/command.h"
#include "fallow/arena.h"
#include "record/tsc.h"
#if defined(FLW_HAS_PINNED)
#include "fallow/host.h"
#endif

/* Fill slots[0..count) with blocks of the options' sizes. */
static void fill(struct flw_bench *bench, const struct flw_bench_loop *loop, uint64_t count)
{
    uint64_t state = bench->options->seed;
    for (uint64_t i = 0; i < count; i++) {
        size_t size_bytes = flw_bench_size_draw(bench->options, &state);
        bench->failure_count +=
            loop->policy->alloc(loop->pool, size_bytes, loop->stream, &loop->slots[i]) != FALLOW_OK;
    }
}

/* ---- pair */

/* Return the cost of reading the clock, as a recorded call does: the median of several loops. */
static double clock_ns(bool is_ordered)
{
    enum {
        LOOPS = 21,
        READS = 20000
    };
    double ns[LOOPS];
    for (int i = 0; i < LOOPS; i++) {
        volatile uint64_t last;
        uint64_t begin = flw_clock_fine_ns();
        for (int k = 0; k < READS; k++) {
            last = flw_tsc_read(true, is_ordered);
        }
        (void)last;
        ns[i] = (double)(flw_clock_fine_ns() - begin) / READS;
    }
    return flw_median(ns, LOOPS);
}

bool flw_bench_pair(struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    struct flw_bench_loop loop = flw_bench_loop_open(bench, options, 1, options->seed);
    flw_bench_measure(bench, &loop,
                      options->sizes != FLW_BENCH_SIZE_ONE ? flw_bench_run_pair_drawn
                      : options->is_sized                  ? flw_bench_run_pair_sized
                                                           : flw_bench_run_pair,
                      options->warm_count, options->count, "");
    if (options->record != NULL) {
        flw_bench_add(bench, "ns_rdtsc", clock_ns(false));
        flw_bench_add(bench, "ns_rdtscp", clock_ns(true));
    }
    flw_bench_loop_close(&loop);
    return true;
}

/* ---- replace, and grow: the same with other sizes and counts */

#define SAMPLES_MAX ((uint64_t)1 << 22)

/* Time every replacement by itself, or every n-th of a very long run. */
static void add_percentiles(struct flw_bench *bench, const struct flw_bench_loop *loop)
{
    static const struct {
        const char *key;
        double quantile;
    } rows[] = {{"ns_p50", 0.5}, {"ns_p99", 0.99}, {"ns_p999", 0.999}, {"ns_max", 1.0}};
    uint64_t count = bench->options->count, every = count / SAMPLES_MAX + 1, taken = 0;
    FLW_LOCAL uint32_t *samples = flw_host_alloc(flw_min(count, SAMPLES_MAX) + 1, sizeof *samples);
    struct flw_tick_rate rate = flw_ticks_start();
    uint64_t overhead = flw_ticks_overhead();
    for (uint64_t i = 0; i < count; i++) {
        uint64_t begin = flw_ticks();
        bench->failure_count += flw_bench_run_replace(loop, (struct flw_bench_range){i, i + 1});
        if (i % every == 0) {
            uint64_t passed = flw_ticks() - begin;
            samples[taken++] =
                (uint32_t)flw_min(passed < overhead ? 0 : passed - overhead, UINT32_MAX);
        }
    }
    double ns_per_tick = flw_ticks_ns(&rate), ns[4];
    qsort(samples, taken, sizeof *samples, flw_compare_u32);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && taken != 0; i++) {
        ns[i] = samples[(uint64_t)(rows[i].quantile * (double)(taken - 1) + 0.5)] * ns_per_tick;
        flw_bench_add(bench, rows[i].key, ns[i]);
        if (i == 2) {
            flw_bench_add(bench, "p999_over_p50", ns[0] > 0 ? ns[2] / ns[0] : NAN);
        }
    }
    flw_bench_add(bench, "sample_count", (double)taken);
}

bool flw_bench_replace(struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    struct flw_bench_loop loop =
        flw_bench_loop_open(bench, options, options->live_count, options->seed + 1);
    fill(bench, &loop, options->live_count);
    flw_bench_measure(bench, &loop, flw_bench_run_replace, options->warm_count, options->count, "");
    if (options->has_percentiles) {
        add_percentiles(bench, &loop);
    }
    fallow_stats usage = flw_bench_usage(bench); /* while everything is live */
    if (usage.host_bytes != UINT64_MAX && usage.host_bytes != 0 && usage.live_count != 0) {
        flw_bench_add(bench, "host_bytes_per_live_block",
                      (double)usage.host_bytes / (double)usage.live_count);
    }
    bench->failure_count += flw_bench_drain(&loop, options->live_count);
    flw_bench_loop_close(&loop);
    return true;
}

/* ---- holes: of 4 to 64 KiB in steps of 4 KiB, or of --size alone */

bool flw_bench_holes(struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    bool is_one = options->sizes == FLW_BENCH_SIZE_ONE;
    const struct {
        const char *name, *prefix;
        size_t size_bytes;
    } parts[] = {{"hole", "hole_", is_one ? options->size_bytes : 32768},
                 {"larger", "larger_", is_one ? 2 * options->size_bytes : 131072}};
    uint64_t state = options->seed, count = 2 * options->live_count;
    struct flw_bench_loop loop = flw_bench_loop_open(bench, options, count, options->seed);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = flw_random_next(&state);
        size_t bytes = is_one ? options->size_bytes : (random % 16 + 1) * 4096;
        bench->failure_count +=
            loop.policy->alloc(loop.pool, bytes, loop.stream, &loop.slots[i]) != FALLOW_OK;
    }
    for (uint64_t i = 0; i < count; i += 2) { /* the neighbours stay, so no two holes can join */
        bench->failure_count +=
            loop.policy->free(loop.pool, loop.slots[i], loop.stream) != FALLOW_OK;
        loop.slots[i] = NULL; /* free(NULL) succeeds */
    }
    for (size_t i = 0; i < 2; i++) {
        if (options->part == NULL || strcmp(options->part, parts[1 - i].name) != 0) {
            loop.size_bytes = parts[i].size_bytes;
            flw_bench_measure(bench, &loop, flw_bench_run_pair, options->warm_count, options->count,
                              parts[i].prefix);
        }
    }
    bench->failure_count += flw_bench_drain(&loop, count);
    flw_bench_loop_close(&loop);
    return true;
}

/* ---- deferred: the cost of an announced use beside many freed blocks that wait for one
 *
 * A host function holds a stream back while the clock runs, so every block announced for that stream stays deferred;
 * the timed blocks are announced for an idle stream, and every poll collects them. At the end the held stream
 * continues, and one poll collects the rest, timed separately. */

/* A stream blocked by a host function that waits for the gate. A driver may run host functions in any thread that waits
 * or queries, as the simulated driver does. The thread that opens the gate must never run that function, so a separate
 * thread waits for the stream. */
struct gate {
    struct flw_bench *bench;
    fallow_stream stream;
    pthread_t waiter;
    pthread_barrier_t barrier; /* passed when the host function has begun, and when it may end */
    CUresult result;           /* written by the waiting thread; read after the join */
};

static void CUDA_CB stay_closed(void *argument)
{
    struct gate *gate = argument;
    pthread_barrier_wait(&gate->barrier);
    pthread_barrier_wait(&gate->barrier);
}

static void *wait_for_stream(void *argument)
{
    struct gate *gate = argument;
    gate->result = gate->bench->driver->cuCtxSetCurrent(gate->bench->context);
    if (gate->result == CUDA_SUCCESS) {
        gate->result = gate->bench->driver->cuStreamSynchronize(gate->stream);
    }
    return NULL;
}

/* Block the stream, and return once the host function runs. Does nothing without a driver. */
static bool hold_back(struct gate *gate)
{
    if (gate->bench->driver == NULL) {
        return true;
    }
    pthread_barrier_init(&gate->barrier, NULL, 2);
    if (!FLW_BENCH_CALL(gate->bench, cuLaunchHostFunc, gate->stream, stay_closed, gate)) {
        return false;
    }
    if (pthread_create(&gate->waiter, NULL, wait_for_stream, gate) != 0) {
        _Exit(flw_refuse(FLW_EXIT_FAILED, "bench deferred: the system starts no thread"));
    }
    pthread_barrier_wait(&gate->barrier);
    return true;
}

/* Open the gate and wait for the stream. Returns false if a deferred block may have been collected while the clock was
 * running, which invalidates every figure. */
static bool release(struct gate *gate)
{
    struct flw_driver *driver = gate->bench->driver;
    if (driver == NULL) {
        return true;
    }
    bool was_held = driver->cuStreamQuery(gate->stream) == CUDA_ERROR_NOT_READY;
    pthread_barrier_wait(&gate->barrier);
    pthread_join(gate->waiter, NULL);
    pthread_barrier_destroy(&gate->barrier);
    return was_held ? flw_bench_check(gate->bench, gate->result, "cuStreamSynchronize")
                    : flw_bench_fail(gate->bench, "the held stream was done before its release");
}

bool flw_bench_deferred(struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    struct gate gate = {.bench = bench, .stream = bench->streams[1]};
    uint64_t count = options->live_count, *failures = &bench->failure_count;
    if (!hold_back(&gate)) {
        return false;
    }
    struct flw_bench_loop loop = flw_bench_loop_open(bench, options, count, options->seed);
    loop.user = bench->streams[2];
    fill(bench, &loop, count); /* all live: none is another's memory */
    uint64_t begin = flw_clock_fine_ns();
    for (uint64_t i = 0; i < count; i++) {
        *failures += loop.policy->record_use(loop.pool, loop.slots[i], gate.stream) != FALLOW_OK;
    }
    *failures += flw_bench_drain(&loop, count);
    flw_bench_add(bench, "defer_ns_per_deferred",
                  (double)(flw_clock_fine_ns() - begin) / (double)(count + 1));
    *failures += loop.policy->poll(loop.pool) != FALLOW_OK;
    flw_bench_measure(bench, &loop, flw_bench_run_deferred, options->warm_count, options->count,
                      "");
    bool is_done = release(&gate);
    begin = flw_clock_fine_ns();
    *failures += loop.policy->poll(loop.pool) != FALLOW_OK;
    flw_bench_add(bench, "last_poll_ns_per_deferred",
                  count == 0 ? 0 : (double)(flw_clock_fine_ns() - begin) / (double)count);
    flw_bench_loop_close(&loop);
    return is_done;
}

/* ---- streams: pairs on many streams, in one measurement beside pairs on one stream */

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

/* ---- streams --sweep: a row for each size, live memory and number of streams, with the calls that the driver received.
 * Each row has a pool of its own. The pairs are on random streams; beside the pairs, blocks of the same size are live, on
 * the streams in turn. */

#define SWEEP_COLUMNS(X)                                            \
    X(STREAM_COUNT, "streams", "streams", 1, false)                 \
    X(SIZE_BYTES, "size_bytes", "size KiB", 1 << 10, false)         \
    X(BESIDE_BYTES, "beside_bytes", "live MiB", 1 << 20, false)     \
    X(CPU_NS, "cpu_ns_per_pair", "ns", 1, false)                    \
    X(OVER_ONE_STREAM, "over_one_stream", "over one", 1, false)     \
    X(DRIVER_CALLS, "driver_calls_per_pair", "calls", 1, false)     \
    X(EVENTS, "events_per_pair", "events", 1, false)                \
    X(QUERIES, "queries_per_pair", "queries", 1, false)             \
    X(STREAM_WAITS, "stream_waits_per_pair", "str.waits", 1, false) \
    X(HOST_WAITS, "host_waits_per_pair", "host waits", 1, false)    \
    X(STEALS, "steals_per_pair", "steals", 1, false)                \
    X(RESERVED_BYTES, "reserved_bytes", "held MiB", 1 << 20, false)

enum {
    SWEEP_COLUMNS(FLW_BENCH_NAME)
    COUNTS = DRIVER_CALLS /* and all behind it, per pair but for the last */
};
static const struct flw_bench_column columns[FLW_BENCH_COLUMNS] = {SWEEP_COLUMNS(FLW_BENCH_COLUMN)};

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
    if (usage.alloc_count != UINT64_MAX) {
        out[DRIVER_CALLS] = (double)usage.driver_call_count;
        out[EVENTS] = (double)usage.event_count;
        out[HOST_WAITS] = (double)(usage.wait_count + usage.remap_wait_count);
        out[STEALS] = (double)usage.steal_count;
        out[RESERVED_BYTES] = (double)usage.reserved_bytes;
    }
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

/* ---- lease: of twelve regions, one of them persistent, with one layout or several in turn as in a model's layers */

#define REGIONS      12
#define LAYOUTS_MOST 8

struct leasing {
    fallow_arena *arena;
    fallow_layout *layouts[LAYOUTS_MOST];
    uint64_t count;
};

/* Make the layout of a decode step: lengths, tables and scratch of one layer after the other. */
static fallow_status make_layout(uint64_t number, fallow_layout **out_layout)
{
    static const char *const names[REGIONS] = {"cu_seqlens", "seqlens", "page_table", "metadata",
                                               "q",          "scores",  "lse",        "accumulator",
                                               "output",     "gate_up", "activation", "counter"};
    fallow_region regions[REGIONS];
    for (uint32_t i = 0; i < REGIONS; i++) {
        regions[i] = (fallow_region){.name = names[i],
                                     .size_bytes = (size_t)4096 << (i + number) % 7,
                                     .first_phase = i / 2,
                                     .last_phase = i / 2 + 1};
    }
    regions[REGIONS - 1].size_bytes = 4096;
    regions[REGIONS - 1].flags = FALLOW_REGION_PERSISTENT;
    regions[REGIONS - 1].init = FALLOW_INIT_COUNTER;
    return fallow_layout_create(regions, REGIONS, out_layout);
}

static uint64_t run_leases(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    const struct leasing *leasing = loop->pool;
    uint64_t failures = 0, at = 0;
    for (uint64_t i = range.begin; i < range.end; i++) {
        fallow_lease *lease;
        failures += fallow_lease_begin(leasing->arena, leasing->layouts[at], loop->stream,
                                       &lease) != FALLOW_OK;
        failures += fallow_lease_end(lease, loop->stream) != FALLOW_OK;
        at = at + 1 == leasing->count ? 0 : at + 1;
    }
    return failures;
}

bool flw_bench_lease(struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    struct leasing leasing = {.count = flw_clamp(options->live_count, 1, LAYOUTS_MOST)};
    struct flw_bench_loop loop = {.pool = &leasing, .stream = bench->streams[0]};
    fallow_status status = fallow_arena_create(bench->pool, NULL, &leasing.arena);
    for (uint64_t i = 0; status == FALLOW_OK && i < leasing.count; i++) {
        status = make_layout(i, &leasing.layouts[i]);
    }
    if (status == FALLOW_OK) {
        bench->failure_count += run_leases(&loop, (struct flw_bench_range){0, leasing.count});
        fallow_stats before = flw_bench_usage(bench);
        flw_bench_measure(bench, &loop, run_leases, options->warm_count, options->count, "");
        fallow_stats after = flw_bench_usage(bench);
        flw_bench_add(bench, "lease_driver_calls",
                      (double)(after.driver_call_count - before.driver_call_count));
        flw_bench_add(bench, "lease_pool_calls",
                      (double)(after.alloc_count + after.free_count - before.alloc_count -
                               before.free_count));
    } else {
        flw_bench_fail(bench, "no arena: %s", fallow_status_message(status));
    }
    fallow_arena_destroy(leasing.arena);
    for (uint64_t i = 0; i < leasing.count; i++) {
        fallow_layout_destroy(leasing.layouts[i]);
    }
    return status == FALLOW_OK;
}

/* ---- pinned and staged: a pinned block of libfallow-host, freed as idle or in the order of a stream, where one event
 * covers several blocks and every event is queried */

#if defined(FLW_HAS_PINNED)

static inline __attribute__((always_inline)) uint64_t
run_host_pairs(const struct flw_bench_loop *loop, struct flw_bench_range range, bool is_idle)
{
    uint64_t failures = 0;
    for (uint64_t i = range.begin; i < range.end; i++) {
        void *block;
        failures += fallow_host_alloc(loop->pool, loop->size_bytes, &block) != FALLOW_OK;
        failures += (is_idle ? fallow_host_free_idle(loop->pool, block)
                             : fallow_host_free(loop->pool, block, loop->stream)) != FALLOW_OK;
    }
    return failures;
}

static uint64_t run_pinned(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    return run_host_pairs(loop, range, true);
}

static uint64_t run_staged(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    return run_host_pairs(loop, range, false);
}

bool flw_bench_pinned(struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    fallow_host *host = NULL;
    fallow_host_stats before, after;
    flw_bench_run *run = strcmp(options->shape, "staged") == 0 ? run_staged : run_pinned;
    fallow_host_stats_init(&before);
    fallow_host_stats_init(&after);
    fallow_status status = fallow_host_create(bench->pool, NULL, &host);
    if (status != FALLOW_OK) {
        return flw_bench_fail(bench, "no host pool: %s", fallow_status_message(status));
    }
    struct flw_bench_loop loop = {
        .pool = host, .stream = bench->streams[0], .size_bytes = options->size_bytes};
    bench->failure_count += run(&loop, (struct flw_bench_range){0, 1});
    bench->failure_count += fallow_host_get_stats(host, &before) != FALLOW_OK;
    flw_bench_measure(bench, &loop, run, options->warm_count, options->count, "");
    bench->failure_count += fallow_host_get_stats(host, &after) != FALLOW_OK;
    flw_bench_add(bench, "driver_calls_per_op",
                  (double)(after.driver_call_count - before.driver_call_count) /
                      (double)(after.alloc_count - before.alloc_count));
    fallow_host_destroy(host);
    return true;
}

#else

bool flw_bench_pinned(struct flw_bench *bench)
{
    return flw_bench_fail(bench, "this build has no libfallow-host (libjemalloc-dev)");
}

#endif
