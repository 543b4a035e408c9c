/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer of experts around your two products: routing, alignment, activation and combination, one
 * launch each, all in one lease of dirty memory.
 */
#include <fallow/layouts.h>
#include <fallow/moe.h>
#include <stdio.h>

#include "example/engine.h"

enum { /* regions, in the order of `fallow layout moe-triton` */
    WEIGHTS,
    IDS,
    SORTED_IDS,
    EXPERT_IDS,
    PADDED_COUNT,
    GATE_AND_UP,
    ACTIVATION,
    DOWN,
    OUT
};

#define AT(index) fallow_lease_region_at(lease, index)
#define TWO_BF16  0x40004000u /* two bf16 of 2.0 */

/* Simulate your product: read the results of routing and the activation, if any, and make every value 2. */
static void multiply(const fallow_layout *layout, const fallow_lease *lease, uint32_t in,
                     size_t out)
{
    fallow_region region;
    OK(fallow_layout_region(layout, out, &region, NULL));
    engine_launch(engine.stream, layout, lease,
                  READS(SORTED_IDS) | READS(EXPERT_IDS) | READS(PADDED_COUNT) | in | WRITES(out));
    engine_fill(engine.stream, AT(out), TWO_BF16, region.size_bytes);
}

static void run_layer(const fallow_layout *layout, const fallow_lease *lease, const void *logits)
{
    const int rows = 4 * 8; /* tokens, choices of each */
    fallow_route_params route = {.struct_size = sizeof route, .logits = logits, .tokens = 4};
    route.weights = AT(WEIGHTS), route.ids = AT(IDS);
    route.experts = 128, route.top_k = 8, route.dtype = FALLOW_BF16, route.renormalises = 1;
    fallow_align_blocks_params align = {.struct_size = sizeof align, .ids = AT(IDS)};
    align.sorted_ids = AT(SORTED_IDS), align.expert_ids = AT(EXPERT_IDS);
    align.padded_count = AT(PADDED_COUNT);
    align.count = rows, align.experts = 128, align.block_size = 128;
    fallow_silu_and_mul_params silu = {.struct_size = sizeof silu, .in = AT(GATE_AND_UP)};
    silu.out = AT(ACTIVATION), silu.rows = rows, silu.width = 768;
    silu.dtype = silu.out_dtype = FALLOW_BF16;
    fallow_combine_params combine = {.struct_size = sizeof combine, .rows = AT(DOWN)};
    combine.weights = AT(WEIGHTS), combine.out = AT(OUT);
    combine.tokens = 4, combine.row_count = rows, combine.width = 2048, combine.top_k = 8;
    combine.dtype = FALLOW_BF16;
    OK(fallow_moe_route(engine.kernels, &route, engine.stream));
    OK(fallow_moe_align_blocks(engine.kernels, &align, engine.stream));
    multiply(layout, lease, 0, GATE_AND_UP);
    OK(fallow_moe_silu_and_mul(engine.kernels, &silu, engine.stream));
    multiply(layout, lease, READS(ACTIVATION), DOWN);
    OK(fallow_moe_combine(engine.kernels, &combine, engine.stream));
}

int main(void)
{
    fallow_step step = {.struct_size = sizeof step, .tokens = 4};
    fallow_arena *arena;
    fallow_layout *layout;
    fallow_lease *lease;
    void *logits;
    engine_begin();
    OK(fallow_layout_moe_triton(fallow_model_find("qwen3-30b-a3b"), &step, &layout));
    OK(fallow_arena_create(engine.pool, NULL, &arena));
    OK(fallow_alloc(engine.pool, 4 * 128 * 2, engine.stream, &logits));
    engine_fill(engine.stream, logits, 0, 4 * 128 * 2);
    OK(fallow_lease_begin(arena, layout, engine.stream, &lease));
    run_layer(layout, lease, logits);
    EXPECT(engine_read(engine.stream, (char *)AT(OUT) + 4 * 2048 * 2 - 4) == TWO_BF16);
    OK(fallow_lease_end(lease, engine.stream));
    printf("ran a layer of experts: %d launches, %zu bytes\n",
           (int)fallow_kernels_launch_count(engine.kernels), fallow_layout_bytes(layout));
    fallow_arena_destroy(arena);
    fallow_layout_destroy(layout);
    return engine_end();
}
