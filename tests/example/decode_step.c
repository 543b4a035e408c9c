/* SPDX-License-Identifier: Apache-2.0
 *
 * A decode step's metadata, FlashAttention's: buffers that a graph is captured with, filled in place by
 * one launch. Nothing is zero-filled: the module that owns a value writes it.
 */
#include <fallow/attention.h>
#include <fallow/layouts.h>
#include <stdio.h>

#include "example/engine.h"

enum { /* regions, in the order of `fallow layout fa3-graph` */
    CACHE_SEQLENS,
    CU_SEQLENS_Q,
    CU_SEQLENS_K,
    PAGE_TABLE
};

/* Inputs of the engine in device memory: token slots and length of each request, the requests of the batch, and
 * the number of requests. */
enum {
    SLOTS,
    LENGTHS,
    REQUESTS,
    COUNT,
    INPUTS
};
static const size_t sizes[INPUTS] = {64 * 8192 * 4, 64 * 4, 64 * 4, 4};
static const uint32_t values[INPUTS] = {3 * 64, 100, 0, 2}; /* page 3, 100 tokens, 2 requests */

static void fill_metadata(const fallow_lease *lease, void *const inputs[INPUTS])
{
    fallow_page_table_params params = {.struct_size = sizeof params};
    params.req_to_token = inputs[SLOTS], params.request_rows = 64, params.stride = 8192;
    params.lengths = inputs[LENGTHS], params.requests = inputs[REQUESTS];
    params.valid_count = inputs[COUNT]; /* may change between replays of a graph */
    params.page_table = fallow_lease_region_at(lease, PAGE_TABLE);
    params.cache_seqlens = fallow_lease_region_at(lease, CACHE_SEQLENS);
    params.cu_k = fallow_lease_region_at(lease, CU_SEQLENS_K);
    params.batch = 64, params.cols = 128, params.page_size = 64, params.pad_len = 1;
    OK(fallow_attention_page_table(engine.kernels, &params, engine.stream));
}

static uint32_t word_of(const fallow_lease *lease, size_t region, size_t i)
{
    return engine_read(engine.stream, (uint32_t *)fallow_lease_region_at(lease, region) + i);
}

int main(void)
{
    fallow_step step = {.struct_size = sizeof step, .batch = 64, .context = 8192};
    void *inputs[INPUTS];
    fallow_arena *arena;
    fallow_layout *layout;
    fallow_lease *lease;
    engine_begin();
    OK(fallow_layout_fa3_graph(fallow_model_find("llama-3-8b"), &step, &layout));
    OK(fallow_arena_create(engine.pool, NULL, &arena));
    OK(fallow_alloc_batch(engine.pool, sizes, INPUTS, engine.stream, inputs));
    for (int i = 0; i < INPUTS; i++) {
        engine_fill(engine.stream, inputs[i], values[i], sizes[i]);
    }
    OK(fallow_lease_begin(arena, layout, engine.stream, &lease));
    fill_metadata(lease, inputs);
    EXPECT(word_of(lease, CACHE_SEQLENS, 1) == 100 && word_of(lease, CACHE_SEQLENS, 2) == 1);
    EXPECT(word_of(lease, CU_SEQLENS_K, 0) == 0 && word_of(lease, CU_SEQLENS_K, 64) == 262);
    EXPECT(word_of(lease, CU_SEQLENS_Q, 64) == 64); /* initialised by the arena */
    EXPECT(word_of(lease, PAGE_TABLE, 128) == 3 && word_of(lease, PAGE_TABLE, 130) == 0);
    OK(fallow_lease_end(lease, engine.stream));
    printf("filled a decode step's metadata: %d launch, %zu bytes kept, %zu of scratch\n",
           (int)fallow_kernels_launch_count(engine.kernels), fallow_layout_persistent_bytes(layout),
           fallow_layout_bytes(layout));
    fallow_arena_destroy(arena);
    fallow_layout_destroy(layout);
    return engine_end();
}
