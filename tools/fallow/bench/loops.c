/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the loops that are timed. They are small, the same for every policy, and call through the
 * policy's table; the sums of statuses are what keeps them honest.
 */
#include "bench/bench.h"

#include "base/clock.h"

struct flw_bench_loop flw_bench_loop_on(const struct flw_bench_options *options,
                                        const struct flw_bench_bed *bed)
{
    return (struct flw_bench_loop){.policy = options->policy,
                                   .pool = bed->pool,
                                   .stream = bed->streams[0],
                                   .streams = bed->streams,
                                   .size_bytes = options->size_bytes};
}

uint64_t flw_bench_run_pair(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    flw_bench_alloc alloc = loop->policy->alloc;
    flw_bench_free release = loop->policy->free;
    void *pool = loop->pool, *ptr = NULL;
    fallow_stream stream = loop->stream;
    size_t size_bytes = loop->size_bytes;
    uint64_t failures = 0;
    for (uint64_t i = range.begin; i < range.end; i++) {
        failures += alloc(pool, size_bytes, stream, &ptr) != FALLOW_OK;
        failures += release(pool, ptr, stream) != FALLOW_OK;
    }
    return failures;
}

uint64_t flw_bench_run_pair_drawn(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    flw_bench_alloc alloc = loop->policy->alloc;
    flw_bench_free release = loop->policy->free;
    void *pool = loop->pool, *ptr = NULL;
    fallow_stream stream = loop->stream;
    const struct flw_bench_steps *steps = loop->steps;
    uint64_t failures = 0;
    for (uint64_t i = range.begin; i < range.end; i++) {
        failures +=
            alloc(pool, steps->steps[i & steps->mask].size_bytes, stream, &ptr) != FALLOW_OK;
        failures += release(pool, ptr, stream) != FALLOW_OK;
    }
    return failures;
}

uint64_t flw_bench_run_pair_sized(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    flw_bench_alloc alloc = loop->policy->alloc;
    flw_bench_free_sized release = loop->policy->free_sized;
    void *pool = loop->pool, *ptr = NULL;
    fallow_stream stream = loop->stream;
    size_t size_bytes = loop->size_bytes;
    uint64_t failures = 0;
    for (uint64_t i = range.begin; i < range.end; i++) {
        failures += alloc(pool, size_bytes, stream, &ptr) != FALLOW_OK;
        failures += release(pool, ptr, size_bytes, stream) != FALLOW_OK;
    }
    return failures;
}

uint64_t flw_bench_run_replace(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    flw_bench_alloc alloc = loop->policy->alloc;
    flw_bench_free release = loop->policy->free;
    const struct flw_bench_step *steps = loop->steps->steps;
    uint64_t mask = loop->steps->mask, failures = 0;
    void *pool = loop->pool, **slots = loop->slots;
    fallow_stream stream = loop->stream;
    for (uint64_t i = range.begin; i < range.end; i++) {
        const struct flw_bench_step *step = &steps[i & mask];
        void **slot = &slots[step->slot];
        failures += release(pool, *slot, stream) != FALLOW_OK;
        failures += alloc(pool, step->size_bytes, stream, slot) != FALLOW_OK;
    }
    return failures;
}

uint64_t flw_bench_run_streams(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    flw_bench_alloc alloc = loop->policy->alloc;
    flw_bench_free release = loop->policy->free;
    const struct flw_bench_step *steps = loop->steps->steps;
    const fallow_stream *streams = loop->streams;
    uint64_t mask = loop->steps->mask, failures = 0;
    void *pool = loop->pool, *ptr = NULL;
    size_t size_bytes = loop->size_bytes;
    for (uint64_t i = range.begin; i < range.end; i++) {
        fallow_stream stream = streams[steps[i & mask].stream];
        failures += alloc(pool, size_bytes, stream, &ptr) != FALLOW_OK;
        failures += release(pool, ptr, stream) != FALLOW_OK;
    }
    return failures;
}

uint64_t flw_bench_run_worked(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    flw_bench_alloc alloc = loop->policy->alloc;
    flw_bench_free release = loop->policy->free;
    const struct flw_bench_step *steps = loop->steps->steps;
    uint64_t mask = loop->steps->mask, failures = 0;
    void *pool = loop->pool, *ptr = NULL;
    size_t size_bytes = loop->size_bytes;
    for (uint64_t i = range.begin; i < range.end; i++) {
        fallow_stream stream = loop->streams[steps[i & mask].stream];
        failures += alloc(pool, size_bytes, stream, &ptr) != FALLOW_OK;
        flw_sim_range whole = {
            .address = (uint64_t)(uintptr_t)ptr, .bytes = size_bytes, .is_write = 1};
        failures += loop->touch(stream, &whole, 1) != CUDA_SUCCESS;
        failures += release(pool, ptr, stream) != FALLOW_OK;
        loop->advance(1);
    }
    return failures;
}

uint64_t flw_bench_run_deferred(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    flw_bench_alloc alloc = loop->policy->alloc;
    flw_bench_free release = loop->policy->free;
    flw_bench_record_use record_use = loop->policy->record_use;
    void *pool = loop->pool, *ptr = NULL;
    fallow_stream stream = loop->stream, user = loop->user;
    size_t size_bytes = loop->size_bytes;
    uint64_t failures = 0;
    for (uint64_t i = range.begin; i < range.end; i++) {
        failures += alloc(pool, size_bytes, stream, &ptr) != FALLOW_OK;
        failures += record_use(pool, ptr, user) != FALLOW_OK;
        failures += release(pool, ptr, stream) != FALLOW_OK;
        if (i % FLW_BENCH_POLL_EVERY == FLW_BENCH_POLL_EVERY - 1) {
            failures += loop->policy->poll(pool) != FALLOW_OK;
        }
    }
    return failures;
}

uint64_t flw_bench_fill(const struct flw_bench_loop *loop, uint64_t count,
                        const struct flw_bench_options *options)
{
    uint64_t failures = 0, state = options->seed;
    for (uint64_t i = 0; i < count; i++) {
        size_t size_bytes = flw_bench_size_draw(options, &state);
        failures +=
            loop->policy->alloc(loop->pool, size_bytes, loop->stream, &loop->slots[i]) != FALLOW_OK;
    }
    return failures;
}

uint64_t flw_bench_drain(const struct flw_bench_loop *loop, uint64_t count)
{
    uint64_t failures = 0;
    for (uint64_t i = 0; i < count; i++) {
        failures += loop->policy->free(loop->pool, loop->slots[i], loop->stream) != FALLOW_OK;
        loop->slots[i] = NULL;
    }
    return failures;
}

double flw_bench_time(const struct flw_bench_loop *loop, flw_bench_run *run, uint64_t count,
                      struct flw_bench_report *report, struct flw_bench_keys keys)
{
    double ns[FLW_BENCH_BATCHES];
    size_t batches = 0;
    for (uint64_t i = 0; i < FLW_BENCH_BATCHES; i++) {
        struct flw_bench_range range = {count * i / FLW_BENCH_BATCHES,
                                        count * (i + 1) / FLW_BENCH_BATCHES};
        if (range.begin == range.end) {
            continue;
        }
        uint64_t begin = flw_clock_fine_ns();
        report->failure_count += run(loop, range);
        ns[batches++] = (double)(flw_clock_fine_ns() - begin) / (double)(range.end - range.begin);
    }
    double median = flw_median(ns, batches); /* sorts */
    flw_bench_report_add(report, keys.median, median);
    flw_bench_report_add(report, keys.min, batches == 0 ? 0 : ns[0]);
    return median;
}
