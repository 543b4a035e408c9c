/* SPDX-License-Identifier: Apache-2.0
 *
 * A latent attention prefill that reads the context in four chunks of 256 tokens. A second stream gathers
 * the rows of the next chunk. Any number of chunks needs two regions of gathered rows, and two pairs of
 * output and LSE, since the merge is in place.
 */
#include <fallow/attention.h>
#include <fallow/layouts.h>
#include <fallow/mla.h>
#include <stdio.h>

#include "example/engine.h"

enum { /* regions, in the order of `fallow layout mla-prefill` for a step that overlaps */
    OUT,
    LSE,
    CHUNK_STARTS,
    CHUNK_SEQ_LENS,
    CU_CHUNK,
    GATHERED, /* two regions, used alternately */
    KV_NOPE = GATHERED + 2,
    K,
    CHUNK_OUT,
    CHUNK_LSE
};

enum {
    CHUNKS = 4,
    HEADS = 8, /* of this rank: 128 over 16 ranks */
    OUT_BYTES = 64 * HEADS * 128 * 2,
    LSE_BYTES = 64 * HEADS * 4,
    PAGE_BYTES = 64 * 576 * 2
};

#define AT(index) fallow_lease_region_at(lease, index)

/* Inputs of the engine in device memory: length of the context, the 16 page numbers, and the cache. */
struct inputs {
    int32_t *length, *pages;
    char *cache;
};
static const uint32_t of_chunk[CHUNKS] = {0x40a040a0, 0x41204120, 0x41704170,
                                          0x41a041a0}; /* 5, 10, 15, 20: two bf16 in each word */

static void plan_chunks(const fallow_lease *lease, const struct inputs *inputs)
{
    fallow_chunk_plan_params plan = {.struct_size = sizeof plan, .starts = AT(CHUNK_STARTS)};
    plan.context_lengths = inputs->length, plan.lengths = AT(CHUNK_SEQ_LENS);
    plan.cu_seqlens = AT(CU_CHUNK), plan.batch = 1, plan.chunk_capacity = CHUNKS;
    plan.workspace_tokens = 256, plan.page_size = 64;
    OK(fallow_mla_chunk_plan(engine.kernels, &plan, engine.stream));
}

static void gather(const fallow_lease *lease, const struct inputs *inputs, int i)
{
    fallow_gather_kv_params rows = {.struct_size = sizeof rows, .cache = inputs->cache};
    rows.block_table = inputs->pages, rows.block_count = rows.table_columns = 16;
    rows.cu_seqlens = (int32_t *)AT(CU_CHUNK) + 2 * i,
    rows.starts = (int32_t *)AT(CHUNK_STARTS) + i;
    rows.tokens = 256, rows.page_size = 64, rows.batch = 1, rows.dtype = FALLOW_BF16;
    rows.dst = AT(GATHERED + i % 2);
    OK(fallow_mla_gather_kv(engine.kernels, &rows, engine.second));
}

static void concatenate(const fallow_lease *lease, int i)
{
    fallow_concat_kv_params concat = {.struct_size = sizeof concat, .kv = AT(KV_NOPE), .k = AT(K)};
    concat.k_rope = (char *)AT(GATHERED + i % 2) + 512 * 2, concat.rope_stride = 576;
    concat.tokens = 256, concat.heads = HEADS, concat.dtype = FALLOW_BF16;
    OK(fallow_mla_concat_kv(engine.kernels, &concat, engine.stream));
}

static void merge(const fallow_lease *lease)
{
    fallow_merge_states_params merge = {
        .struct_size = sizeof merge, .a = AT(OUT), .a_lse = AT(LSE)};
    merge.b = AT(CHUNK_OUT), merge.b_lse = AT(CHUNK_LSE), merge.out = AT(OUT);
    merge.out_lse = AT(LSE), merge.tokens = 64, merge.heads = HEADS, merge.width = 128;
    merge.dtype = merge.out_dtype = FALLOW_BF16;
    OK(fallow_attention_merge_states(engine.kernels, &merge, engine.stream));
}

/* Simulate your projection: all keys of a chunk become equal. */
static void project(const fallow_layout *layout, const fallow_lease *lease, int i)
{
    engine_launch(engine.stream, layout, lease, READS(GATHERED + i % 2) | WRITES(KV_NOPE));
    engine_fill(engine.stream, AT(KV_NOPE), of_chunk[i], 256 * HEADS * 256 * 2);
}

/* Simulate your attention: return the keys. */
static void attend(const fallow_layout *layout, const fallow_lease *lease)
{
    engine_launch(engine.stream, layout, lease, READS(K) | READS(KV_NOPE) | WRITES(CHUNK_OUT));
    OK(engine.sim.cu.cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)AT(CHUNK_OUT),
                                          (CUdeviceptr)(uintptr_t)AT(K), OUT_BYTES, engine.stream));
    engine_fill(engine.stream, AT(CHUNK_LSE), 0, LSE_BYTES);
}

static void run_prefill(const fallow_layout *layout, const fallow_lease *lease,
                        const struct inputs *inputs)
{
    plan_chunks(lease, inputs);
    engine_join(engine.second, engine.stream);
    gather(lease, inputs, 0);
    engine_fill(engine.stream, AT(OUT), 0, OUT_BYTES); /* your attention of the new tokens */
    engine_fill(engine.stream, AT(LSE), 0, LSE_BYTES);
    for (int i = 0; i < CHUNKS; i++) {
        engine_join(engine.stream, engine.second); /* wait until chunk i is gathered */
        if (i + 1 < CHUNKS) {
            gather(lease, inputs, i + 1); /* during the work on chunk i */
        }
        project(layout, lease, i);
        concatenate(lease, i);
        engine_join(engine.second, engine.stream); /* chunk i + 2 may overwrite chunk i */
        attend(layout, lease);
        merge(lease);
    }
}

static void fill_inputs(struct inputs *inputs)
{
    const size_t sizes[] = {4, 16 * 4, 16 * PAGE_BYTES};
    void *blocks[3];
    OK(fallow_alloc_batch(engine.pool, sizes, 3, engine.stream, blocks));
    *inputs = (struct inputs){.length = blocks[0], .pages = blocks[1], .cache = blocks[2]};
    engine_fill(engine.stream, inputs->length, 256 * CHUNKS, 4);
    for (int page = 0; page < 16; page++) {
        char *place = inputs->cache + page * PAGE_BYTES;
        engine_fill(engine.stream, inputs->pages + page, (uint32_t)page, 4);
        engine_fill(engine.stream, place, of_chunk[page / 4], PAGE_BYTES);
    }
}

int main(void)
{
    fallow_step step = {.struct_size = sizeof step, .tokens = 64, .context = 256 * CHUNKS};
    fallow_arena *arena;
    fallow_layout *layout;
    fallow_lease *lease;
    struct inputs inputs;
    step.chunk = 256, step.tensor_ranks = 128 / HEADS, step.overlaps = 1;
    engine_begin();
    OK(fallow_layout_mla_prefill(fallow_model_find("deepseek-v3"), &step, &layout));
    OK(fallow_arena_create(engine.pool, NULL, &arena));
    fill_inputs(&inputs);
    OK(fallow_lease_begin(arena, layout, engine.stream, &lease));
    run_prefill(layout, lease, &inputs);
    for (size_t i = 0; i < OUT_BYTES / 4; i += 1024 + 16) {
        EXPECT(engine_read(engine.stream, (uint32_t *)AT(OUT) + i) ==
               0x41204120); /* the mean, 10 */
    }
    OK(fallow_lease_end(lease, engine.stream));
    printf("%d chunks of a prefill, %zu bytes\n", CHUNKS, fallow_layout_bytes(layout));
    fallow_arena_destroy(arena);
    fallow_layout_destroy(layout);
    return engine_end();
}
