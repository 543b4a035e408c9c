/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shapes of one thread: pair, replace, grow, holes.
 *
 * The operations before the clock are the same whatever `--count` says.
 */
#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/compare.h"
#include "base/random.h"
#include "common/ticks.h"
#include "record/tsc.h"

static const struct flw_bench_keys plain_keys = {"ns_per_op", "ns_per_op_min"};

/* What a recorded call's look at the clock costs by itself: the median of some loops. */
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

bool flw_bench_pair(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                    struct flw_bench_report *report, char *message)
{
    struct flw_bench_steps steps = {0};
    struct flw_bench_loop loop = flw_bench_loop_on(options, bed);
    flw_bench_run *run = options->is_sized ? flw_bench_run_pair_sized : flw_bench_run_pair;
    (void)message;
    if (options->sizes != FLW_BENCH_SIZE_ONE) {
        flw_bench_steps_init(&steps, options, 1, options->seed);
        loop.steps = &steps;
        run = flw_bench_run_pair_drawn;
    }
    report->failure_count += run(&loop, (struct flw_bench_range){0, options->warm_count});
    flw_bench_time(&loop, run, options->count, report, plain_keys);
    if (options->record != NULL) {
        flw_bench_report_add(report, "ns_rdtsc", clock_ns(false));
        flw_bench_report_add(report, "ns_rdtscp", clock_ns(true));
    }
    flw_bench_steps_finish(&steps);
    return true;
}

/* ---- latency of a call ---- */

#define SAMPLES_MAX ((uint64_t)1 << 22)

/* Time every replacement by itself, or every n-th of a very long run. */
static uint64_t sample_replacements(const struct flw_bench_loop *loop, uint64_t count,
                                    uint32_t *samples, uint64_t *out_count)
{
    uint64_t every = count / SAMPLES_MAX + 1, failures = 0, taken = 0;
    uint64_t overhead = flw_ticks_overhead();
    for (uint64_t i = 0; i < count; i++) {
        struct flw_bench_range one = {i, i + 1};
        if (i % every != 0) {
            failures += flw_bench_run_replace(loop, one);
            continue;
        }
        uint64_t begin = flw_ticks();
        failures += flw_bench_run_replace(loop, one);
        uint64_t passed = flw_ticks() - begin;
        passed = passed < overhead ? 0 : passed - overhead;
        samples[taken++] = passed > UINT32_MAX ? UINT32_MAX : (uint32_t)passed;
    }
    *out_count = taken;
    return failures;
}

static void add_percentiles(const struct flw_bench_loop *loop, uint64_t count,
                            struct flw_bench_report *report)
{
    static const struct {
        const char *key;
        double quantile;
    } rows[] = {{"ns_p50", 0.5}, {"ns_p99", 0.99}, {"ns_p999", 0.999}, {"ns_max", 1.0}};
    uint32_t *samples =
        flw_host_alloc(count < SAMPLES_MAX ? count + 1 : SAMPLES_MAX + 1, sizeof *samples);
    uint64_t taken = 0;
    struct flw_tick_rate rate = flw_ticks_start();
    double p50 = 0;
    report->failure_count += sample_replacements(loop, count, samples, &taken);
    double ns_per_tick = flw_ticks_ns(&rate);
    qsort(samples, taken, sizeof *samples, flw_compare_u32);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && taken != 0; i++) {
        uint64_t at = (uint64_t)(rows[i].quantile * (double)(taken - 1) + 0.5);
        double ns = samples[at] * ns_per_tick;
        flw_bench_report_add(report, rows[i].key, ns);
        if (rows[i].quantile == 0.5) {
            p50 = ns;
        }
        if (rows[i].quantile == 0.999) {
            flw_bench_report_add(report, "p999_over_p50", p50 > 0 ? ns / p50 : NAN);
        }
    }
    flw_bench_report_add(report, "sample_count", (double)taken);
    flw_host_free(samples);
}

/* ---- replace, and grow: the same with other sizes and counts ---- */

/* Of the pool's own tables, while everything is live. */
static void add_host_bytes(const struct flw_bench_bed *bed, struct flw_bench_report *report)
{
    fallow_stats usage;
    bed->policy->get_usage(bed->pool, &usage);
    if (usage.host_bytes != UINT64_MAX && usage.host_bytes != 0 && usage.live_count != 0) {
        flw_bench_report_add(report, "host_bytes_per_live_block",
                             (double)usage.host_bytes / (double)usage.live_count);
    }
}

bool flw_bench_replace(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                       struct flw_bench_report *report, char *message)
{
    struct flw_bench_steps steps = {0};
    struct flw_bench_loop loop = flw_bench_loop_on(options, bed);
    (void)message;
    loop.steps = &steps;
    loop.slots = flw_host_lines(options->live_count + 1, sizeof *loop.slots);
    flw_bench_steps_init(&steps, options, options->live_count, options->seed + 1);
    report->failure_count += flw_bench_fill(&loop, options->live_count, options);
    report->failure_count +=
        flw_bench_run_replace(&loop, (struct flw_bench_range){0, options->warm_count});
    flw_bench_time(&loop, flw_bench_run_replace, options->count, report, plain_keys);
    if (options->has_percentiles) {
        add_percentiles(&loop, options->count, report);
    }
    add_host_bytes(bed, report);
    report->failure_count += flw_bench_drain(&loop, options->live_count);
    flw_bench_steps_finish(&steps);
    flw_host_free(loop.slots);
    return true;
}

/* ---- holes ---- */

/* 4 to 64 KiB in steps of 4 KiB, or the one size that was asked for. */
static size_t hole_size(const struct flw_bench_options *options, uint64_t *state)
{
    uint64_t random = flw_random_next(state);
    return options->sizes == FLW_BENCH_SIZE_ONE ? options->size_bytes : (random % 16 + 1) * 4096;
}

/* Every second block of 2 x live_count goes back; its neighbours stay, so no two holes can join. */
static uint64_t make_holes(const struct flw_bench_loop *loop,
                           const struct flw_bench_options *options)
{
    uint64_t state = options->seed, failures = 0, count = 2 * options->live_count;
    for (uint64_t i = 0; i < count; i++) {
        failures += loop->policy->alloc(loop->pool, hole_size(options, &state), loop->stream,
                                        &loop->slots[i]) != FALLOW_OK;
    }
    for (uint64_t i = 0; i < count; i += 2) {
        failures += loop->policy->free(loop->pool, loop->slots[i], loop->stream) != FALLOW_OK;
        loop->slots[i] = NULL; /* free(NULL) is a success: the drain needs no second thought */
    }
    return failures;
}

bool flw_bench_holes(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                     struct flw_bench_report *report, char *message)
{
    struct flw_bench_loop loop = flw_bench_loop_on(options, bed);
    bool is_one = options->sizes == FLW_BENCH_SIZE_ONE;
    size_t hole_bytes = is_one ? options->size_bytes : 32768;
    size_t larger_bytes = is_one ? 2 * options->size_bytes : 131072;
    (void)message;
    loop.slots = flw_host_lines(2 * options->live_count + 1, sizeof *loop.slots);
    report->failure_count += make_holes(&loop, options);
    struct flw_bench_range warm = {0, options->warm_count};
    if (options->part != FLW_BENCH_LARGER) {
        loop.size_bytes = hole_bytes;
        report->failure_count += flw_bench_run_pair(&loop, warm);
        flw_bench_time(&loop, flw_bench_run_pair, options->count, report,
                       (struct flw_bench_keys){"hole_ns_per_op", "hole_ns_per_op_min"});
    }
    if (options->part != FLW_BENCH_HOLE) {
        loop.size_bytes = larger_bytes;
        report->failure_count += flw_bench_run_pair(&loop, warm);
        flw_bench_time(&loop, flw_bench_run_pair, options->count, report,
                       (struct flw_bench_keys){"larger_ns_per_op", "larger_ns_per_op_min"});
    }
    report->failure_count += flw_bench_drain(&loop, 2 * options->live_count);
    flw_host_free(loop.slots);
    return true;
}
