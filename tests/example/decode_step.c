/* SPDX-License-Identifier: Apache-2.0
 *
 * A decode step's metadata, FlashAttention's: buffers that a graph is captured with, filled in place by
 * one launch. Nothing is zero-filled; what must hold a value is written by the module that owns it.
 */
#include <fallow/attention.h>
#include <fallow/layouts.h>
#include <stdio.h>

#define AT(name) fallow_lease_region(lease, name)

/* What the engine has on the device: each request's token slots, lengths, who is in the batch, how many. */
enum {
    SLOTS,
    LENGTHS,
    REQUESTS,
    COUNT,
    INPUTS
};

static fallow_status fill_metadata(fallow_kernels *kernels, const fallow_lease *lease,
                                   void *const inputs[INPUTS])
{
    fallow_page_table_params params = {.struct_size = sizeof params};
    params.req_to_token = inputs[SLOTS], params.request_rows = 64, params.stride = 8192;
    params.lengths = inputs[LENGTHS], params.requests = inputs[REQUESTS];
    params.valid_count = inputs[COUNT]; /* may change between replays of a graph */
    params.page_table = AT("page_table"), params.cache_seqlens = AT("cache_seqlens");
    params.cu_k = AT("cu_seqlens_k");
    params.batch = 64, params.cols = 128, params.page_size = 64, params.pad_len = 1;
    return fallow_attention_page_table(kernels, &params, NULL);
}

int main(void)
{
    fallow_pool_config config = {.struct_size = sizeof config, .driver = "sim"};
    fallow_step step = {.struct_size = sizeof step, .batch = 64, .context = 8192};
    const size_t sizes[INPUTS] = {64 * 8192 * 4, 64 * 4, 64 * 4, 4};
    void *inputs[INPUTS] = {NULL};
    fallow_pool *pool = NULL;
    fallow_arena *arena = NULL;
    fallow_layout *layout = NULL;
    fallow_lease *lease = NULL;
    fallow_kernels *kernels = NULL;
    int failed = fallow_pool_create(&config, &pool) || fallow_kernels_create(pool, &kernels) ||
                 fallow_layout_fa3_graph(fallow_model_find("llama-3-8b"), &step, &layout) ||
                 fallow_arena_create(pool, NULL, &arena) ||
                 fallow_alloc_batch(pool, sizes, INPUTS, NULL, inputs) ||
                 fallow_lease_begin(arena, layout, NULL, &lease) ||
                 fill_metadata(kernels, lease, inputs) || fallow_lease_end(lease, NULL);
    printf("%s a decode step's metadata: %d launch, %zu bytes kept, %zu of scratch\n",
           failed ? "could not fill" : "filled", (int)fallow_kernels_launch_count(kernels),
           fallow_layout_persistent_bytes(layout), fallow_layout_bytes(layout));
    fallow_arena_destroy(arena);
    fallow_layout_destroy(layout);
    fallow_kernels_destroy(kernels);
    fallow_pool_destroy(pool); /* takes what is still allocated with it */
    return failed;
}
