/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer of experts around your two products: routing, alignment, activation and combination, one
 * launch each, all in one lease of dirty memory.
 */
#include <fallow/layouts.h>
#include <fallow/moe.h>
#include <stdio.h>

#define AT(name) fallow_lease_region(lease, name)

static int run_layer(fallow_kernels *kernels, const fallow_lease *lease, const void *logits)
{
    const int rows = 4 * 8; /* tokens, choices of each */
    fallow_route_params route = {.struct_size = sizeof route, .logits = logits, .tokens = 4};
    route.weights = AT("topk_weights"), route.ids = AT("topk_ids");
    route.experts = 128, route.top_k = 8, route.dtype = FALLOW_BF16, route.renormalises = 1;
    fallow_align_blocks_params align = {.struct_size = sizeof align, .ids = AT("topk_ids")};
    align.sorted_ids = AT("sorted_token_ids"), align.expert_ids = AT("expert_ids");
    align.padded_count = AT("num_tokens_post_pad");
    align.count = rows, align.experts = 128, align.block_size = 128;
    fallow_silu_and_mul_params silu = {.struct_size = sizeof silu, .in = AT("gate_and_up")};
    silu.out = AT("activation"), silu.rows = rows, silu.width = 768;
    silu.dtype = silu.out_dtype = FALLOW_BF16;
    fallow_combine_params combine = {.struct_size = sizeof combine, .rows = AT("down")};
    combine.weights = AT("topk_weights"), combine.out = AT("out");
    combine.tokens = 4, combine.row_count = rows, combine.width = 2048, combine.top_k = 8;
    combine.dtype = FALLOW_BF16;
    return fallow_moe_route(kernels, &route, NULL) ||
           fallow_moe_align_blocks(kernels, &align, NULL) ||
           /* your product: tokens, sorted_token_ids, expert_ids -> gate_and_up */
           fallow_moe_silu_and_mul(kernels, &silu, NULL) ||
           /* your product: activation -> down */
           fallow_moe_combine(kernels, &combine, NULL);
}

int main(void)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_step step = {.struct_size = sizeof step, .tokens = 4};
    fallow_pool *pool = NULL;
    fallow_arena *arena = NULL;
    fallow_layout *layout = NULL;
    fallow_lease *lease = NULL;
    fallow_kernels *kernels = NULL;
    void *logits = NULL;
    int failed = fallow_pool_create(&config, &pool) || fallow_kernels_create(pool, &kernels) ||
                 fallow_layout_moe_triton(fallow_model_find("qwen3-30b-a3b"), &step, &layout) ||
                 fallow_arena_create(pool, NULL, &arena) ||
                 fallow_alloc(pool, 4 * 128 * 2, NULL, &logits) ||
                 fallow_lease_begin(arena, layout, NULL, &lease) ||
                 run_layer(kernels, lease, logits) || fallow_lease_end(lease, NULL);
    printf("%s a layer of experts: %d launches, %zu bytes\n", failed ? "could not run" : "ran",
           (int)fallow_kernels_launch_count(kernels), fallow_layout_bytes(layout));
    fallow_arena_destroy(arena);
    fallow_layout_destroy(layout);
    fallow_kernels_destroy(kernels);
    fallow_pool_destroy(pool); /* takes what is still allocated with it */
    return failed;
}
