/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: small traces that are hard on allocators, each from a reported problem.
 * Does not: resemble a workload.
 */
#include "base/bits.h"
#include "trace/gen/plan.h"

static const char *const names[] = {
    "sawtooth", "pin-small-between-large", "comb-free", "alternating-streams",
    "half-max", "batch-size-change",       NULL};

static const char *const name_help[] = {
    "memory grows and falls to nothing, each time in blocks an eighth larger",
    "two large blocks freed around a small one that stays, in every cycle",
    "every other block of a row freed, then blocks of twice the size wanted",
    "two streams use the whole memory in turn, in different sizes",
    "blocks of an eighth, a half and the whole of the memory, by turns",
    "training steps of one batch size, then of another, by turns",
};

/* clang-format off */
static const struct flw_gen_option options[] = {
    {"scenario", "which one", FLW_GEN_CHOICE, 0, 0, 5, names, 'S'},
    {"cycles", "number of repetitions", FLW_GEN_COUNT, 32, 1, 100000, NULL, 'N'},
    {"size", "bytes held at the highest, about", FLW_GEN_BYTES, 4 * FLW_GIB, 64 * FLW_MIB, 4096 * FLW_GIB, NULL, 'Z'},
    {"jitter", "per cent by which random sizes may be smaller", FLW_GEN_COUNT, 0, 0, 90, NULL, 'J'},
    {"seed", "of the drawn numbers", FLW_GEN_COUNT, 1, 0, UINT64_MAX, NULL, 'R'},
};

/* Blocks of b bytes, reduced by the jitter: a single one, and a row of n. */
#define BLOCK(name) " " name "=b-b/100[0,J] "
#define ROW(n) " i*" n "{" BLOCK("row.i") "} "
#define FREE_ROW(n) "i*" n "{-row.i} "

/* A layer of u bytes per unit: forward keeps four tensors, backward frees each beside its gradient. */
#define FORWARD(name, units) "b:" units "u" BLOCK(name ".i")
#define BACKWARD(name, units) "b:" units "u" BLOCK("gradient") "-" name ".(23-i) -gradient "

/* Cycle number c of each scenario, on `streams` streams. */
static const struct {
    uint64_t streams;
    const char *plan;
} scenarios[] = {
    {1, "b:Z/32 b:b+b/8(c%9)" ROW("16") FREE_ROW("16")},
    {1, "b:Z/45" BLOCK("large") "b:Z/45/2" BLOCK("half") "b:2097152" BLOCK("pin.c") "-large -half"},
    {1, "b:Z/64" ROW("64") "i*32{-row.(2i)} b:Z/64*2 i*16{" BLOCK("wide.i") "}" FREE_ROW("64") "i*16{-wide.i}"},
    {2, "b:Z/32" ROW("32") FREE_ROW("32") "b:Z/24 i*24{row.i@1=b-b/100[0,J]} " FREE_ROW("24")},
    {1, "b:Z/8" ROW("8") FREE_ROW("8") "b:Z/2" ROW("2") FREE_ROW("2") "b:Z" ROW("1") FREE_ROW("1")
        "b:Z/2" ROW("2") FREE_ROW("2")},
    {1, "u:Z/480(3+c/4%2)/4 "
        "i*24{" FORWARD("ka", "2") FORWARD("kb", "6") FORWARD("kc", "3") FORWARD("kd", "8") "} "
        "i*24{" BACKWARD("kd", "8") BACKWARD("kc", "3") BACKWARD("kb", "6") BACKWARD("ka", "2") "}"},
};
/* clang-format on */

static void run(struct flw_gen *gen)
{
    uint64_t *n = gen->numbers[0];
    uint64_t scenario = n['S'];
    flw_gen_add_streams(gen, scenarios[scenario].streams);
    for (uint64_t i = 0; i < n['N']; i++) {
        n['c'] = i;
        flw_plan_run(gen, "<cycle");
        flw_plan_run(gen, scenarios[scenario].plan);
        flw_plan_run(gen, ">cycle");
    }
    flw_plan_run(gen, "c*N{-pin.c}");
}

/* clang-format off */
const struct flw_gen_kind flw_gen_adversarial_kind = {
    "adversarial",
    "small traces that are hard on allocators, each a problem that a user "
"reported",
    "pin-small-between-large --cycles 100 -o pin.ftext",
    1, options, sizeof options / sizeof *options, name_help, NULL, run};
