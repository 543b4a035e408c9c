/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include "base/bits.h"
#include "base/random.h"

/* What a host allocator is usually asked for, and what small tensors and biases are: 512 B to 32
 * KiB, two sizes a doubling. */
static const uint64_t small_sizes[] = {
    512,         768,         1 * FLW_KIB,  1536,         2 * FLW_KIB,  3 * FLW_KIB, 4 * FLW_KIB,
    6 * FLW_KIB, 8 * FLW_KIB, 12 * FLW_KIB, 16 * FLW_KIB, 24 * FLW_KIB, 32 * FLW_KIB};

/* The tensors of a language model, 512 B to 64 MiB: 8 of the 19 (42 %) are above 2 MiB. 43 MiB is
 * 4,096 x 11,008 bytes, one feed-forward activation. */
static const uint64_t mixed_sizes[] = {512,           2 * FLW_KIB,  8 * FLW_KIB,   16 * FLW_KIB,
                                       32 * FLW_KIB,  64 * FLW_KIB, 128 * FLW_KIB, 256 * FLW_KIB,
                                       512 * FLW_KIB, 1 * FLW_MIB,  2 * FLW_MIB,   3 * FLW_MIB,
                                       5 * FLW_MIB,   8 * FLW_MIB,  12 * FLW_MIB,  20 * FLW_MIB,
                                       32 * FLW_MIB,  43 * FLW_MIB, 64 * FLW_MIB};

_Static_assert(sizeof mixed_sizes / sizeof *mixed_sizes == 19, "the figures are for 19 sizes");

static uint64_t draw_log(uint64_t random)
{
    /* 17 doublings from 512 B to 64 MiB, linear inside each, in steps of 512 B above the first. */
    uint64_t base = (uint64_t)512 << (random % 17);
    uint64_t size = base + (random >> 8) % base;
    return base == 512 ? size : size - size % 512;
}

uint64_t flw_bench_size_draw(const struct flw_bench_options *options, uint64_t *state)
{
    uint64_t random = flw_random_next(state);
    switch (options->sizes) {
    case FLW_BENCH_SIZE_SMALL:
        return small_sizes[random % (sizeof small_sizes / sizeof *small_sizes)];
    case FLW_BENCH_SIZE_MIXED:
        return mixed_sizes[random % (sizeof mixed_sizes / sizeof *mixed_sizes)];
    case FLW_BENCH_SIZE_LOG:
        return draw_log(random);
    case FLW_BENCH_SIZE_ONE:
        break;
    }
    return options->size_bytes;
}

void flw_bench_steps_init(struct flw_bench_steps *steps, const struct flw_bench_options *options,
                          uint64_t slot_count, uint64_t seed)
{
    uint64_t count = 8192;
    while (count < slot_count) {
        count *= 2;
    }
    steps->mask = count - 1;
    steps->steps = flw_host_lines(count, sizeof *steps->steps);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = flw_random_next(&seed);
        uint64_t stream = options->is_random_switch ? (random >> 32) % options->stream_count
                                                    : i % options->stream_count;
        steps->steps[i] = (struct flw_bench_step){
            .size_bytes = flw_bench_size_draw(options, &seed),
            .slot = (uint32_t)(random % (slot_count == 0 ? 1 : slot_count)),
            .stream = (uint32_t)stream,
        };
    }
}

void flw_bench_steps_finish(struct flw_bench_steps *steps)
{
    flw_host_free(steps->steps);
    *steps = (struct flw_bench_steps){0};
}
