/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shape `deferred`: what an announced use costs beside many freed blocks that wait for
 * one. A host function holds a stream back while the clock runs, so every block announced for that
 * stream stays deferred; the timed blocks are announced for an idle stream, and every poll collects
 * them. At the end the held stream continues, and one poll collects the rest, timed separately.
 */
#include "bench/bench.h"

#include "base/clock.h"
#include "driver/driver.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

/* A stream blocked by a host function that waits for the gate. A driver may run host functions in any
 * thread that waits or queries, as the simulated driver does. The thread that opens the gate must never
 * run that function, so a separate thread waits for the stream. */
struct gate {
    const struct flw_bench_bed *bed;
    fallow_stream stream;
    pthread_t waiter;
    sem_t closed, open;
    CUresult result; /* written by the waiting thread; read after the join */
};

static void await(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) {
    }
}

static void CUDA_CB stay_closed(void *argument)
{
    struct gate *gate = argument;
    sem_post(&gate->closed);
    await(&gate->open);
}

static void *wait_for_stream(void *argument)
{
    struct gate *gate = argument;
    struct flw_driver *driver = gate->bed->driver;
    gate->result = driver->cuCtxSetCurrent(gate->bed->device.context);
    if (gate->result == CUDA_SUCCESS) {
        gate->result = driver->cuStreamSynchronize(gate->stream);
    }
    return NULL;
}

static bool complain(const struct gate *gate, CUresult result, const char *call, char *message)
{
    if (result != CUDA_SUCCESS) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "%s failed with %s", call,
                 flw_driver_error_name(gate->bed->driver, result));
    }
    return result == CUDA_SUCCESS;
}

/* Block the stream, and return once the host function runs. Does nothing without a driver. */
static bool hold_back(struct gate *gate, char *message)
{
    if (gate->bed->driver == NULL) {
        return true;
    }
    sem_init(&gate->closed, 0, 0);
    sem_init(&gate->open, 0, 0);
    CUresult given = gate->bed->driver->cuLaunchHostFunc(gate->stream, stay_closed, gate);
    if (!complain(gate, given, "cuLaunchHostFunc", message)) {
        return false;
    }
    if (pthread_create(&gate->waiter, NULL, wait_for_stream, gate) != 0) {
        sem_post(&gate->open);
        /* The host function still refers to the gate. */
        (void)gate->bed->driver->cuStreamSynchronize(gate->stream);
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "the system starts no thread");
        return false;
    }
    await(&gate->closed);
    return true;
}

/* Open the gate and wait for the stream. Returns false if a deferred block may have been collected while
 * the clock was running, which invalidates every figure. */
static bool let_go(struct gate *gate, char *message)
{
    struct flw_driver *driver = gate->bed->driver;
    if (driver == NULL) {
        return true;
    }
    bool was_held = driver->cuStreamQuery(gate->stream) == CUDA_ERROR_NOT_READY;
    sem_post(&gate->open);
    pthread_join(gate->waiter, NULL);
    sem_destroy(&gate->closed);
    sem_destroy(&gate->open);
    if (!was_held) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "the held stream was done before it was let go");
    }
    return was_held && complain(gate, gate->result, "cuStreamSynchronize", message);
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
    struct gate gate = {.bed = bed, .stream = bed->streams[1]};
    loop.slots = flw_host_lines(options->live_count + 1, sizeof *loop.slots);
    bool is_done = hold_back(&gate, message);
    if (is_done) {
        double defer_ns = 0;
        report->failure_count += defer(&loop, options, gate.stream, &defer_ns);
        flw_bench_report_add(report, "defer_ns_per_deferred", defer_ns);
        report->failure_count +=
            flw_bench_run_deferred(&loop, (struct flw_bench_range){0, options->warm_count});
        flw_bench_time(&loop, flw_bench_run_deferred, options->count, report,
                       (struct flw_bench_keys){"ns_per_op", "ns_per_op_min"});
        is_done = let_go(&gate, message);
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
