/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: small traces that are hard on allocators, each one trouble that somebody reported.
 * Does not: resemble a workload.
 */
#include <stdlib.h>

#include "base/bits.h"
#include "trace/gen/gen.h"

enum {
    SCENARIO_SAWTOOTH,
    SCENARIO_PIN,
    SCENARIO_COMB,
    SCENARIO_STREAMS,
    SCENARIO_HALF,
    SCENARIO_BATCH
};

#define TOOTH_BLOCKS  16
#define COMB_BLOCKS   64
#define STREAM_BLOCKS 32
#define LAYERS        24
#define BATCH_STEPS   4 /* of one batch size before the other */

static const char *const scenarios[] = {
    "sawtooth", "pin-small-between-large", "comb-free", "alternating-streams",
    "half-max", "batch-size-change",       NULL};

static const char *const scenario_help[] = {
    "what is held climbs and falls to nothing, each time in blocks an eighth larger",
    "two large blocks freed around a small one that stays, in every cycle",
    "every other block of a row freed, then blocks of twice the size wanted",
    "two streams take turns with the whole of the memory, in other sizes",
    "blocks of an eighth, a half and the whole of the memory, by turns",
    "training steps of one batch size, then of another, by turns",
};

/* clang-format off */
#define OPTIONS(X) \
    X(SCENARIO, "scenario", "which one", CHOICE, 0, 0, SCENARIO_BATCH, scenarios) \
    X(CYCLES, "cycles", "how often it comes again", COUNT, 32, 1, 100000, NULL) \
    X(SIZE, "size", "bytes held at the highest, about", BYTES, 4 * FLW_GIB, 64 * FLW_MIB, 4096 * FLW_GIB, NULL) \
    X(JITTER, "jitter", "per cent by which sizes may fall short, drawn", COUNT, 0, 0, 90, NULL) \
    X(SEED, "seed", "of the drawn numbers", COUNT, 1, 0, UINT64_MAX, NULL)
/* clang-format on */

enum {
    OPTIONS(FLW_GEN_OPTION_NUMBER) OPTION_COUNT
};

static const struct flw_gen_option options[] = {OPTIONS(FLW_GEN_OPTION_ROW)};

static uint32_t take(struct flw_gen *gen, uint64_t size_bytes, uint64_t stream)
{
    uint64_t percent = flw_gen_between(gen, 0, flw_gen_number(gen, OPTION_JITTER));
    return flw_gen_take(gen, flw_max(size_bytes - size_bytes / 100 * percent, 1), stream);
}

static void take_row(struct flw_gen *gen, uint32_t *blocks, size_t count, uint64_t size_bytes)
{
    for (size_t i = 0; i < count; i++) {
        blocks[i] = take(gen, size_bytes, 0);
    }
}

static void give_row(struct flw_gen *gen, uint32_t *blocks, size_t count, size_t step)
{
    for (size_t i = 0; i < count; i += step) {
        flw_gen_drop(gen, &blocks[i]);
    }
}

/* Blocks of size / 32 in the first cycle, and so on up to size / 16, then from the start again. */
static void run_sawtooth(struct flw_gen *gen, uint64_t cycle)
{
    uint32_t blocks[TOOTH_BLOCKS];
    uint64_t size_bytes = flw_gen_number(gen, OPTION_SIZE) / (2 * TOOTH_BLOCKS);
    take_row(gen, blocks, TOOTH_BLOCKS, size_bytes + size_bytes / 8 * (cycle % 9));
    give_row(gen, blocks, TOOTH_BLOCKS, 1);
}

/* size / 45 and half of that; of 4 GiB: 91 MiB and 45.5 MiB. What stays is freed at the end. */
static void run_pin(struct flw_gen *gen, uint32_t *pinned)
{
    uint64_t size_bytes = flw_gen_number(gen, OPTION_SIZE) / 45;
    uint32_t large = take(gen, size_bytes, 0);
    uint32_t half = take(gen, size_bytes / 2, 0);
    *pinned = take(gen, 2 * FLW_MIB, 0);
    FLW_GEN_GIVE(gen, large, half);
}

static void run_comb(struct flw_gen *gen)
{
    uint32_t comb[COMB_BLOCKS];
    uint32_t wide[COMB_BLOCKS / 4];
    uint64_t size_bytes = flw_gen_number(gen, OPTION_SIZE) / COMB_BLOCKS;
    take_row(gen, comb, COMB_BLOCKS, size_bytes);
    give_row(gen, comb, COMB_BLOCKS, 2);
    take_row(gen, wide, COMB_BLOCKS / 4, 2 * size_bytes);
    give_row(gen, comb, COMB_BLOCKS, 1);
    give_row(gen, wide, COMB_BLOCKS / 4, 1);
}

/* A turn on each stream; each waits for nothing of the other. The sizes of a turn sum to `size`. */
static void run_streams(struct flw_gen *gen)
{
    uint32_t blocks[STREAM_BLOCKS];
    uint64_t size_bytes = flw_gen_number(gen, OPTION_SIZE);
    for (uint64_t stream = 0; stream < 2; stream++) {
        size_t count = stream == 0 ? STREAM_BLOCKS : STREAM_BLOCKS * 3 / 4;
        for (size_t i = 0; i < count; i++) {
            blocks[i] = take(gen, size_bytes / count, stream);
        }
        give_row(gen, blocks, count, 1);
    }
}

static void run_half(struct flw_gen *gen)
{
    static const size_t counts[] = {8, 2, 1, 2};
    uint32_t blocks[8];
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        take_row(gen, blocks, counts[i], flw_gen_number(gen, OPTION_SIZE) / counts[i]);
        give_row(gen, blocks, counts[i], 1);
    }
}

/* Forward keeps four tensors of a layer, backward frees them from the last layer on, with a gradient
 * of each beside it. Batch A is three quarters of batch B. */
static void run_step(struct flw_gen *gen, uint64_t batch_quarters)
{
    static const uint64_t shares[4] = {2, 6, 3, 8};
    uint32_t kept[LAYERS][4];
    uint64_t unit = flw_gen_number(gen, OPTION_SIZE) / (LAYERS * 20) * batch_quarters / 4;
    for (size_t layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; i < 4; i++) {
            kept[layer][i] = take(gen, unit * shares[i], 0);
        }
    }
    for (size_t layer = LAYERS; layer-- > 0;) {
        for (size_t i = 4; i-- > 0;) {
            uint32_t gradient = take(gen, unit * shares[i], 0);
            FLW_GEN_GIVE(gen, kept[layer][i], gradient);
        }
    }
}

static void run_cycle(struct flw_gen *gen, uint64_t cycle, uint32_t *pinned)
{
    switch (flw_gen_number(gen, OPTION_SCENARIO)) {
    case SCENARIO_SAWTOOTH:
        run_sawtooth(gen, cycle);
        break;
    case SCENARIO_PIN:
        run_pin(gen, pinned);
        break;
    case SCENARIO_COMB:
        run_comb(gen);
        break;
    case SCENARIO_STREAMS:
        run_streams(gen);
        break;
    case SCENARIO_HALF:
        run_half(gen);
        break;
    default:
        run_step(gen, cycle / BATCH_STEPS % 2 == 0 ? 3 : 4);
        break;
    }
}

static void run(struct flw_gen *gen)
{
    uint64_t cycles = flw_gen_number(gen, OPTION_CYCLES);
    uint32_t *pinned = malloc((size_t)cycles * sizeof(*pinned));
    if (pinned == NULL) {
        flw_gen_fail(gen, "no memory for %llu cycles", (unsigned long long)cycles);
        return;
    }
    flw_gen_seed(gen, flw_gen_number(gen, OPTION_SEED));
    flw_gen_add_streams(gen, flw_gen_number(gen, OPTION_SCENARIO) == SCENARIO_STREAMS ? 2 : 1);
    for (uint64_t i = 0; i < cycles; i++) {
        pinned[i] = FLW_GEN_NO_BLOCK;
        flw_gen_begin_phase(gen, "cycle");
        run_cycle(gen, i, &pinned[i]);
        flw_gen_end_phase(gen, "cycle");
    }
    flw_gen_give_each(gen, pinned, (size_t)cycles);
    free(pinned);
}

const struct flw_gen_kind flw_gen_adversarial = {
    .name = "adversarial",
    .summary = "small traces that are hard on allocators, each a trouble that somebody reported",
    .example = "pin-small-between-large --cycles 100 -o pin.ftext",
    .formula = "# the sizes of each scenario are in src/trace/gen_adversarial.c\n",
    .version = 1,
    .options = options,
    .option_count = OPTION_COUNT,
    .word_help = scenario_help,
    .run = run,
};
