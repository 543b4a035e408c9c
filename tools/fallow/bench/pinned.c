/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shapes `pinned` and `staged`: a pinned block of libfallow-host allocated and freed, as
 * idle or in the order of a stream, where one event covers several and every event is asked for.
 */
#include "bench/bench.h"

#include <stdio.h>

#if defined(FLW_HAS_PINNED)

#include "fallow/host.h"

static uint64_t run_pinned(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    uint64_t failures = 0;
    for (uint64_t i = range.begin; i < range.end; i++) {
        void *block;
        failures += fallow_host_alloc(loop->pool, loop->size_bytes, &block) != FALLOW_OK;
        failures += fallow_host_free_idle(loop->pool, block) != FALLOW_OK;
    }
    return failures;
}

static uint64_t run_staged(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    uint64_t failures = 0;
    for (uint64_t i = range.begin; i < range.end; i++) {
        void *block;
        failures += fallow_host_alloc(loop->pool, loop->size_bytes, &block) != FALLOW_OK;
        failures += fallow_host_free(loop->pool, block, loop->stream) != FALLOW_OK;
    }
    return failures;
}

static bool bench(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                  struct flw_bench_report *report, char *message, flw_bench_run *run)
{
    fallow_host *host = NULL;
    fallow_host_stats before, after;
    fallow_host_stats_init(&before);
    fallow_host_stats_init(&after);
    fallow_status status = fallow_host_create(bed->pool, NULL, &host);
    if (status != FALLOW_OK) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "no host pool: %s",
                 fallow_status_message(status));
        return false;
    }
    struct flw_bench_loop loop = {.policy = options->policy,
                                  .pool = host,
                                  .stream = bed->streams[0],
                                  .size_bytes = options->size_bytes};
    report->failure_count += run(&loop, (struct flw_bench_range){0, options->warm_count + 1});
    report->failure_count += fallow_host_get_stats(host, &before) != FALLOW_OK;
    flw_bench_time(&loop, run, options->count, report,
                   (struct flw_bench_keys){"ns_per_op", "ns_per_op_min"});
    report->failure_count += fallow_host_get_stats(host, &after) != FALLOW_OK;
    flw_bench_report_add(report, "driver_calls_per_op",
                         (double)(after.driver_call_count - before.driver_call_count) /
                             (double)(after.alloc_count - before.alloc_count));
    fallow_host_destroy(host);
    return true;
}

bool flw_bench_pinned(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                      struct flw_bench_report *report, char *message)
{
    return bench(options, bed, report, message, run_pinned);
}

bool flw_bench_staged(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                      struct flw_bench_report *report, char *message)
{
    return bench(options, bed, report, message, run_staged);
}

#else

bool flw_bench_pinned(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                      struct flw_bench_report *report, char *message)
{
    (void)options, (void)bed, (void)report;
    snprintf(message, FLW_BENCH_MESSAGE_BYTES,
             "this build has no libfallow-host (libjemalloc-dev)");
    return false;
}

bool flw_bench_staged(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                      struct flw_bench_report *report, char *message)
{
    return flw_bench_pinned(options, bed, report, message);
}

#endif
