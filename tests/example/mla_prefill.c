/* SPDX-License-Identifier: Apache-2.0
 *
 * A latent attention prefill whose context is read in four chunks of 256 tokens, each in the same regions.
 * However many chunks: two pairs of output and LSE, since the merge is in place.
 */
#include <fallow/attention.h>
#include <fallow/layouts.h>
#include <fallow/mla.h>
#include <stdio.h>

/* `engine`: what it has on the device: a block table, offsets of the chunks, and behind them its cache. */
static int run_chunk(fallow_kernels *kernels, const fallow_lease *l, int32_t *engine, int i)
{
    void *out = fallow_lease_region(l, "out"), *lse = fallow_lease_region(l, "lse");
    fallow_gather_kv_params gather = {.struct_size = sizeof gather, .cache = engine + 64};
    gather.block_table = engine, gather.cu_seqlens = engine + 16 + 2 * i;
    gather.tokens = 256, gather.block_count = gather.table_columns = 16, gather.page_size = 64;
    gather.dst = fallow_lease_region(l, "gathered"), gather.batch = 1, gather.dtype = FALLOW_BF16;
    fallow_concat_kv_params concat = {.struct_size = sizeof concat,
                                      .kv = fallow_lease_region(l, "kv_nope")};
    concat.k_rope = (char *)fallow_lease_region(l, "gathered") + 512 * 2, concat.rope_stride = 576;
    concat.k = fallow_lease_region(l, "k"), concat.tokens = 256, concat.heads = 128,
    concat.dtype = FALLOW_BF16;
    fallow_merge_states_params merge = {.struct_size = sizeof merge, .a = out, .a_lse = lse};
    merge.b = fallow_lease_region(l, "chunk_out"),
    merge.b_lse = fallow_lease_region(l, "chunk_lse"), merge.out = out;
    merge.out_lse = lse, merge.tokens = 64, merge.heads = 128, merge.width = 128;
    merge.dtype = merge.out_dtype = FALLOW_BF16;
    return fallow_mla_gather_kv(kernels, &gather, NULL) ||       /* then your projection */
           fallow_mla_concat_kv(kernels, &concat, NULL) ||       /* then your attention */
           fallow_attention_merge_states(kernels, &merge, NULL); /* into the first pair */
}

int main(void)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_step step = {.struct_size = sizeof step, .tokens = 64, .context = 1024, .chunk = 256};
    fallow_pool *pool = NULL;
    fallow_arena *arena = NULL;
    fallow_layout *layout = NULL;
    fallow_lease *lease = NULL;
    fallow_kernels *kernels = NULL;
    void *engine = NULL;
    int failed = fallow_pool_create(&config, &pool) || fallow_kernels_create(pool, &kernels) ||
                 fallow_layout_mla_prefill(fallow_model_find("deepseek-v3"), &step, &layout) ||
                 fallow_arena_create(pool, NULL, &arena) ||
                 fallow_alloc(pool, 4 << 20, NULL, &engine) ||
                 fallow_lease_begin(arena, layout, NULL, &lease);
    for (int i = 0; i < 4; i++) {
        failed = failed || run_chunk(kernels, lease, engine, i);
    }
    failed = failed || fallow_lease_end(lease, NULL);
    printf("%d launches, failed %d\n", (int)fallow_kernels_launch_count(kernels), failed);
    fallow_arena_destroy(arena), fallow_layout_destroy(layout), fallow_kernels_destroy(kernels);
    fallow_pool_destroy(pool); /* takes what is still allocated with it */
    return failed;
}
