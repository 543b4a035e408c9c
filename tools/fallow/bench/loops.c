/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the loops that are timed, the random sizes and steps of the loops, and the clock. The loops are small, the same
 * for every policy, and call through the policy's table; the sums of statuses are checked.
 */
#include "bench/bench.h"

#include "base/bits.h"
#include "base/clock.h"
#include "base/random.h"

/* ---- sizes and steps */

uint64_t flw_bench_size_draw(const struct flw_bench_options *options, uint64_t *state)
{
    /* In KiB. Small: the usual requests to a host allocator, and small tensors and biases, two sizes a doubling. Mixed:
     * the tensors of a language model, 8 of the 19 (42 %) above 2 MiB; 43 MiB is 4,096 x 11,008 bytes, one
     * feed-forward activation. */
    static const double small[] = {0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    static const double mixed[] = {0.5,  2,    8,    16,   32,    64,    128,   256,   512,  1024,
                                   2048, 3072, 5120, 8192, 12288, 20480, 32768, 44032, 65536};
    uint64_t random = flw_random_next(state), base = 0, size = 0;
    switch (options->sizes) {
    case FLW_BENCH_SIZE_SMALL:
        return (uint64_t)(small[random % (sizeof small / sizeof *small)] * 1024);
    case FLW_BENCH_SIZE_MIXED:
        return (uint64_t)(mixed[random % (sizeof mixed / sizeof *mixed)] * 1024);
    case FLW_BENCH_SIZE_LOG:
        /* 17 doublings from 512 B to 64 MiB, linear inside each, in steps of 512 B above the first. */
        base = (uint64_t)512 << (random % 17);
        size = base + (random >> 8) % base;
        return base == 512 ? size : size - size % 512;
    case FLW_BENCH_SIZE_ONE:
        break;
    }
    return options->size_bytes;
}

struct flw_bench_loop flw_bench_loop_open(const struct flw_bench *bench,
                                          const struct flw_bench_options *options,
                                          uint64_t slot_count, uint64_t seed)
{
    struct flw_bench_loop loop = {.policy = options->policy,
                                  .pool = bench->pool,
                                  .stream = bench->streams[0],
                                  .streams = bench->streams,
                                  .slots = flw_host_lines(slot_count + 1, sizeof *loop.slots),
                                  .size_bytes = options->size_bytes};
    uint64_t count = 8192;
    while (count < slot_count) {
        count *= 2;
    }
    loop.mask = count - 1;
    loop.steps = flw_host_lines(count, sizeof *loop.steps);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = flw_random_next(&seed);
        loop.steps[i] = (struct flw_bench_step){
            .size_bytes = flw_bench_size_draw(options, &seed),
            .slot = (uint32_t)(random % flw_max(slot_count, 1)),
            .stream =
                (uint32_t)((options->is_random_switch ? random >> 32 : i) % options->stream_count),
        };
    }
    return loop;
}

void flw_bench_loop_close(struct flw_bench_loop *loop)
{
    flw_host_free(loop->slots);
    flw_host_free(loop->steps);
}

/* ---- loops */

enum kind {
    DRAWN = 1,     /* sizes are the steps' */
    STREAMS = 2,   /* streams are the steps' */
    SIZED = 4,     /* free_sized */
    WORKED = 8,    /* the device works on each block */
    ANNOUNCED = 16 /* another stream's use is announced */
};

/* The body of all pairs; `kind` is a constant, so a loop has the code of its kind alone. */
static inline __attribute__((always_inline)) uint64_t
run_pairs(const struct flw_bench_loop *loop, struct flw_bench_range range, unsigned kind)
{
    const struct flw_bench_policy *policy = loop->policy;
    void *pool = loop->pool, *ptr = NULL;
    fallow_stream stream = loop->stream, user = loop->user;
    const fallow_stream *streams = loop->streams;
    const struct flw_bench_step *steps = loop->steps;
    uint64_t mask = loop->mask, failures = 0;
    size_t size_bytes = loop->size_bytes;
    for (uint64_t i = range.begin; i < range.end; i++) {
        stream = kind & STREAMS ? streams[steps[i & mask].stream] : stream;
        size_bytes = kind & DRAWN ? steps[i & mask].size_bytes : size_bytes;
        failures += policy->alloc(pool, size_bytes, stream, &ptr) != FALLOW_OK;
        if (kind & WORKED) {
            flw_sim_range whole = {
                .address = (uint64_t)(uintptr_t)ptr, .bytes = size_bytes, .is_write = 1};
            failures += loop->touch(stream, &whole, 1) != CUDA_SUCCESS;
        }
        if (kind & ANNOUNCED) {
            failures += policy->record_use(pool, ptr, user) != FALLOW_OK;
        }
        failures += (kind & SIZED ? policy->free_sized(pool, ptr, size_bytes, stream)
                                  : policy->free(pool, ptr, stream)) != FALLOW_OK;
        if (kind & WORKED) {
            loop->advance(1);
        }
        if (kind & ANNOUNCED && i % FLW_BENCH_POLL_EVERY == FLW_BENCH_POLL_EVERY - 1) {
            failures += policy->poll(pool) != FALLOW_OK;
        }
    }
    return failures;
}

#define LOOP(name, kind)                                                                           \
    uint64_t flw_bench_run_##name(const struct flw_bench_loop *loop, struct flw_bench_range range) \
    {                                                                                              \
        return run_pairs(loop, range, kind);                                                       \
    }
LOOP(pair, 0)
LOOP(pair_drawn, DRAWN)
LOOP(pair_sized, SIZED)
LOOP(streams, STREAMS)
LOOP(worked, STREAMS | WORKED)
LOOP(deferred, ANNOUNCED)

uint64_t flw_bench_run_replace(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    const struct flw_bench_policy *policy = loop->policy;
    const struct flw_bench_step *steps = loop->steps;
    uint64_t mask = loop->mask, failures = 0;
    void *pool = loop->pool, **slots = loop->slots;
    fallow_stream stream = loop->stream;
    for (uint64_t i = range.begin; i < range.end; i++) {
        const struct flw_bench_step *step = &steps[i & mask];
        void **slot = &slots[step->slot];
        failures += policy->free(pool, *slot, stream) != FALLOW_OK;
        failures += policy->alloc(pool, step->size_bytes, stream, slot) != FALLOW_OK;
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

/* ---- clock */

double flw_bench_time(struct flw_bench *bench, const struct flw_bench_loop *loop,
                      flw_bench_run *run, uint64_t count, uint64_t (*clock_ns)(void),
                      double *out_least)
{
    double ns[FLW_BENCH_BATCHES];
    size_t batches = 0;
    for (uint64_t i = 0; i < FLW_BENCH_BATCHES; i++) {
        struct flw_bench_range range = {count * i / FLW_BENCH_BATCHES,
                                        count * (i + 1) / FLW_BENCH_BATCHES};
        if (range.begin < range.end) {
            uint64_t begin = clock_ns();
            bench->failure_count += run(loop, range);
            ns[batches++] = (double)(clock_ns() - begin) / (double)(range.end - range.begin);
        }
    }
    double median = flw_median(ns, batches); /* sorts */
    if (out_least != NULL) {
        *out_least = batches == 0 ? 0 : ns[0];
    }
    return median;
}

double flw_bench_measure(struct flw_bench *bench, const struct flw_bench_loop *loop,
                         flw_bench_run *run, uint64_t warm_count, uint64_t count,
                         const char *prefix)
{
    char key[sizeof bench->values->key];
    double least;
    bench->failure_count += run(loop, (struct flw_bench_range){0, warm_count});
    double median = flw_bench_time(bench, loop, run, count, flw_clock_fine_ns, &least);
    snprintf(key, sizeof key, "%sns_per_op", prefix);
    flw_bench_add(bench, key, median);
    snprintf(key, sizeof key, "%sns_per_op_min", prefix);
    flw_bench_add(bench, key, least);
    return median;
}
