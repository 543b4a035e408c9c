/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shape `deferred`: what an announced use costs beside many freed blocks that wait for
 * one. A stream is held back by a host function, so that what it was announced to use stays
 * deferred as long as the clock runs; the timed blocks are announced for a stream with nothing to
 * do, and every poll collects them. At the end the held stream is let go and one poll collects the
 * rest, which is timed by itself.
 */
#include "bench/bench.h"

#include "base/clock.h"
#include "driver/driver.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

/* On the simulated device work is done when it is waited for, and the function runs then. */
static void CUDA_CB wait_for_gate(void *is_open)
{
    while (!atomic_load_explicit((atomic_bool *)is_open, memory_order_acquire)) {
        sched_yield();
    }
}

static bool hold_back(const struct flw_bench_bed *bed, fallow_stream stream, atomic_bool *is_open,
                      char *message)
{
    CUresult result = CUDA_SUCCESS;
    if (bed->driver != NULL) {
        result = bed->driver->cuLaunchHostFunc(stream, wait_for_gate, is_open);
    }
    if (result != CUDA_SUCCESS) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "cuLaunchHostFunc failed with %s",
                 flw_driver_error_name(bed->driver, result));
    }
    return result == CUDA_SUCCESS;
}

/* False: what was to stay deferred may have been collected, and nothing is worth reporting. */
static bool is_held(const struct flw_bench_bed *bed, fallow_stream stream, char *message)
{
    if (bed->driver == NULL || bed->driver->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
        return true;
    }
    snprintf(message, FLW_BENCH_MESSAGE_BYTES, "the held stream was done before it was let go");
    return false;
}

static bool let_go(const struct flw_bench_bed *bed, fallow_stream stream, atomic_bool *is_open,
                   char *message)
{
    CUresult result = CUDA_SUCCESS;
    atomic_store_explicit(is_open, true, memory_order_release);
    if (bed->driver != NULL) {
        result = bed->driver->cuStreamSynchronize(stream);
    }
    if (result != CUDA_SUCCESS) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "cuStreamSynchronize failed with %s",
                 flw_driver_error_name(bed->driver, result));
    }
    return result == CUDA_SUCCESS;
}

/* All are live before the first is freed: none may be the next one's memory. */
static uint64_t defer(const struct flw_bench_loop *loop, const struct flw_bench_options *options,
                      fallow_stream user, double *out_ns)
{
    uint64_t failures = flw_bench_fill(loop, options->live_count, options);
    uint64_t begin = flw_clock_fine_ns();
    for (uint64_t i = 0; i < options->live_count; i++) {
        failures += loop->policy->record_use(loop->pool, loop->slots[i], user) != FALLOW_OK;
    }
    failures += flw_bench_drain(loop, options->live_count);
    *out_ns = (double)(flw_clock_fine_ns() - begin) / (double)(options->live_count + 1);
    return failures + (loop->policy->poll(loop->pool) != FALLOW_OK);
}

bool flw_bench_deferred(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                        struct flw_bench_report *report, char *message)
{
    struct flw_bench_loop loop = {.policy = options->policy,
                                  .pool = bed->pool,
                                  .stream = bed->streams[0],
                                  .user = bed->streams[2],
                                  .size_bytes = options->size_bytes};
    fallow_stream held = bed->streams[1];
    atomic_bool is_open = false;
    loop.slots = flw_host_lines(options->live_count + 1, sizeof *loop.slots);
    bool is_done = hold_back(bed, held, &is_open, message);
    if (is_done) {
        double defer_ns = 0;
        report->failure_count += defer(&loop, options, held, &defer_ns);
        flw_bench_report_add(report, "defer_ns_per_deferred", defer_ns);
        report->failure_count +=
            flw_bench_run_deferred(&loop, (struct flw_bench_range){0, options->warm_count});
        flw_bench_time(&loop, flw_bench_run_deferred, options->count, report,
                       (struct flw_bench_keys){"ns_per_op", "ns_per_op_min"});
        is_done = is_held(bed, held, message);
        is_done = let_go(bed, held, &is_open, message) && is_done;
        uint64_t begin = flw_clock_fine_ns();
        report->failure_count += loop.policy->poll(loop.pool) != FALLOW_OK;
        flw_bench_report_add(report, "last_poll_ns_per_deferred",
                             options->live_count == 0 ? 0
                                                      : (double)(flw_clock_fine_ns() - begin) /
                                                            (double)options->live_count);
    }
    flw_host_free(loop.slots);
    return is_done;
}
