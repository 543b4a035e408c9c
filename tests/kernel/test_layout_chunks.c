/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of mla-prefill, run by the kernel modules in the regions of the ready layout: previous
 * contents of the arena have no effect. test_context_chain.c shows that the result is attention;
 * here a selection of elements replaces projection and attention. */
#include <math.h>

#include "common/number.h"
#include "fallow/attention.h"
#include "fallow/mla.h"
#include "kernel/leased.h"

enum {
    BATCH = 2,
    MOST_TOKENS = 8, /* new ones; the first half belongs to request 0 */
    HEADS = 2,
    NOPE = 16, /* and values */
    ROPE = 8,
    LATENT = 24,
    KEY = NOPE + ROPE,
    ROW = LATENT + ROPE, /* of the cache */
    PAGE = 4,
    CHUNK = 16, /* tokens */
    COLUMNS = 8,
    BLOCKS = BATCH * COLUMNS + 1
};

static const fallow_model model = {.name = "small",
                                   .layers = 1,
                                   .hidden = 64,
                                   .heads = HEADS,
                                   .kv_heads = HEADS,
                                   .head_dim = NOPE,
                                   .intermediate = 64,
                                   .vocab = 64,
                                   .kv_rank = LATENT,
                                   .rope_dim = ROPE,
                                   .weight_bytes = 2};

/* The contexts and their cache. */
struct prefill {
    int32_t tokens, longest, chunks;
    const void *contexts, *table, *cache;
    bool pads_values;
};

/* Where a chunk is in the tables of all. */
struct chunk {
    const struct flw_leased *run;
    const int32_t *starts, *cu; /* on the device */
    int32_t host_cu[BATCH + 1];
};

static struct prefill make_prefill(struct flw_bed *bed, int32_t tokens, int32_t first,
                                   int32_t second, int32_t longest)
{
    int32_t contexts[BATCH] = {first, second}, table[BATCH * COLUMNS];
    uint16_t cache[BLOCKS * PAGE * ROW];
    for (int32_t i = 0; i < BATCH * COLUMNS; i++) {
        table[i] = 1 + i * 5 % (BATCH * COLUMNS); /* 5 is prime to it */
    }
    for (size_t i = 0; i < sizeof cache / 2; i++) {
        cache[i] = flw_bf16_narrow((float)flw_bed_random_below(bed, 2001) / 1000.0f - 1.0f);
    }
    return (struct prefill){.tokens = tokens,
                            .longest = longest,
                            .chunks = (BATCH * longest + CHUNK - 1) / CHUNK,
                            .contexts = flw_bed_upload(bed, "contexts", contexts, sizeof contexts),
                            .table = flw_bed_upload(bed, "block_table", table, sizeof table),
                            .cache = flw_bed_upload(bed, "cache", cache, sizeof cache)};
}

/* The rows up to the chunk's tokens. */
static const void *note_rows(const struct chunk *chunk, const char *region, size_t width)
{
    return flw_leased_note(chunk->run, region, flw_leased_region(chunk->run, region),
                           (size_t)chunk->host_cu[BATCH] * width * 2);
}

static int32_t value_width(const struct prefill *prefill)
{
    return prefill->pads_values ? KEY : NOPE;
}

/* The new tokens among themselves, into the accumulator pair. */
static void attend_to_own(const struct flw_leased *run)
{
    const struct prefill *prefill = run->inputs;
    int32_t width = value_width(prefill), rows = prefill->tokens * HEADS;
    uint16_t out[MOST_TOKENS * HEADS * KEY];
    float lse[MOST_TOKENS * HEADS];
    for (int32_t i = 0; i < rows * width; i++) {
        out[i] = flw_bf16_narrow(0.125f * (float)(i % 29));
    }
    for (int32_t i = 0; i < rows; i++) {
        lse[i] = 0.5f * (float)i;
    }
    flw_bed_write(run->bed, flw_leased_claim(run, "out"), out, (size_t)(rows * width) * 2);
    flw_bed_write(run->bed, flw_leased_claim(run, "lse"), lse, (size_t)rows * 4);
}

static void run_plan(const struct flw_leased *run)
{
    const struct prefill *prefill = run->inputs;
    fallow_chunk_plan_params params;
    fallow_chunk_plan_params_init(&params);
    params.context_lengths = prefill->contexts;
    params.starts = flw_leased_claim(run, "chunk_starts");
    params.lengths = flw_leased_claim(run, "chunk_seq_lens");
    params.cu_seqlens = flw_leased_claim(run, "cu_chunk");
    params.batch = BATCH;
    params.chunk_capacity = prefill->chunks;
    params.workspace_tokens = CHUNK;
    params.page_size = PAGE;
    FLW_EXPECT_OK(run->bed, fallow_mla_chunk_plan(flw_bed_kernels(run->bed), &params,
                                                  flw_bed_stream(run->bed)));
    flw_leased_note_all(run, "chunk_starts");
    flw_leased_note_all(run, "chunk_seq_lens");
    flw_leased_note_all(run, "cu_chunk");
}

static void run_gather(const struct chunk *chunk)
{
    const struct prefill *prefill = chunk->run->inputs;
    struct flw_bed *bed = chunk->run->bed;
    fallow_gather_kv_params params;
    fallow_gather_kv_params_init(&params);
    params.cache = prefill->cache;
    params.block_table = prefill->table;
    params.cu_seqlens = chunk->cu;
    params.starts = chunk->starts;
    params.dst = flw_leased_claim(chunk->run, "gathered");
    params.tokens = CHUNK;
    params.batch = BATCH;
    params.block_count = BLOCKS;
    params.table_columns = COLUMNS;
    params.page_size = PAGE;
    params.width = ROW;
    params.dtype = FALLOW_BF16;
    FLW_EXPECT_OK(bed, fallow_mla_gather_kv(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

/* Fill kv_nope from the latent part of the gathered rows. */
static void project(const struct chunk *chunk)
{
    const uint16_t *gathered = note_rows(chunk, "gathered", ROW);
    uint16_t kv[CHUNK * HEADS * 2 * NOPE];
    int32_t width = HEADS * 2 * NOPE, count = chunk->host_cu[BATCH] * width;
    for (int32_t i = 0; i < count; i++) {
        kv[i] = gathered[i / width * ROW + i % width * 5 % LATENT];
    }
    flw_bed_write(chunk->run->bed, flw_leased_claim(chunk->run, "kv_nope"), kv, (size_t)count * 2);
}

static void run_join(const struct chunk *chunk)
{
    const struct prefill *prefill = chunk->run->inputs;
    struct flw_bed *bed = chunk->run->bed;
    fallow_concat_kv_params params;
    fallow_concat_kv_params_init(&params);
    params.kv = flw_leased_region(chunk->run, "kv_nope");
    params.k_rope = (const uint16_t *)flw_leased_region(chunk->run, "gathered") + LATENT;
    params.rope_stride = ROW;
    params.token_count = chunk->cu + BATCH;
    params.k = flw_leased_claim(chunk->run, "k");
    params.v = prefill->pads_values ? flw_leased_claim(chunk->run, "v_padded") : NULL;
    params.v_columns = prefill->pads_values ? KEY : 0;
    params.tokens = CHUNK;
    params.heads = HEADS;
    params.nope_width = params.v_width = NOPE;
    params.rope_width = ROPE;
    params.dtype = FALLOW_BF16;
    FLW_EXPECT_OK(bed, fallow_mla_concat_kv(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

/* Write to each row the value of the request's first key in the chunk. A row without keys is not
 * written, as in backends; the LSE marks it. */
static void attend(const struct chunk *chunk)
{
    const struct prefill *prefill = chunk->run->inputs;
    int32_t width = value_width(prefill), stride = prefill->pads_values ? KEY : 2 * NOPE;
    const uint16_t *keys = note_rows(chunk, "k", HEADS * KEY);
    const uint16_t *values = prefill->pads_values
                                 ? note_rows(chunk, "v_padded", HEADS * KEY)
                                 : note_rows(chunk, "kv_nope", (size_t)HEADS * 2 * NOPE);
    uint16_t *out = flw_leased_claim(chunk->run, "chunk_out");
    float lse[HEADS * MOST_TOKENS];
    values += prefill->pads_values ? 0 : NOPE;
    for (int32_t i = 0; i < prefill->tokens * HEADS; i++) {
        int32_t token = i / HEADS, head = i % HEADS, at = head * prefill->tokens + token;
        int32_t request = token < prefill->tokens / 2 ? 0 : 1;
        int32_t row = chunk->host_cu[request] * HEADS + head;
        lse[at] = -INFINITY;
        if (chunk->host_cu[request] < chunk->host_cu[request + 1]) {
            lse[at] = 8.0f * flw_bf16_widen(keys[row * KEY + NOPE]);
            flw_bed_write(chunk->run->bed, out + i * width, values + row * stride,
                          (size_t)width * 2);
        }
    }
    flw_bed_write(chunk->run->bed, flw_leased_claim(chunk->run, "chunk_lse"), lse,
                  (size_t)(HEADS * prefill->tokens) * 4);
}

static void run_merge(const struct chunk *chunk)
{
    const struct prefill *prefill = chunk->run->inputs;
    struct flw_bed *bed = chunk->run->bed;
    fallow_merge_states_params params;
    fallow_merge_states_params_init(&params);
    params.a = params.out = flw_leased_region(chunk->run, "out");
    params.a_lse = params.out_lse = flw_leased_region(chunk->run, "lse");
    params.b = flw_leased_region(chunk->run, "chunk_out");
    params.b_lse = flw_leased_region(chunk->run, "chunk_lse");
    params.tokens = prefill->tokens;
    params.heads = HEADS;
    params.width = value_width(prefill);
    params.dtype = params.out_dtype = FALLOW_BF16;
    FLW_EXPECT_OK(
        bed, fallow_attention_merge_states(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static void run_prefill(struct flw_leased *run)
{
    const struct prefill *prefill = run->inputs;
    int32_t used = 0;
    attend_to_own(run);
    run_plan(run);
    for (int i = 0; i < prefill->chunks; i++) {
        struct chunk chunk = {.run = run};
        chunk.starts = (const int32_t *)flw_leased_region(run, "chunk_starts") + i * BATCH;
        chunk.cu = (const int32_t *)flw_leased_region(run, "cu_chunk") + i * (BATCH + 1);
        flw_bed_read(run->bed, chunk.host_cu, chunk.cu, sizeof chunk.host_cu);
        used += chunk.host_cu[BATCH] > 0;
        run_gather(&chunk);
        project(&chunk);
        run_join(&chunk);
        attend(&chunk);
        run_merge(&chunk);
        flw_leased_note_all(run, "lse");
    }
    FLW_EXPECT(run->bed, used > 0, "no chunk had a token");
    flw_leased_note_all(run, "out");
}

/* ---- tests */

static struct flw_leased_step step_of(struct prefill *prefill)
{
    struct flw_leased_step step = {
        .make = fallow_layout_mla_prefill, .model = &model, .inputs = prefill, .run = run_prefill};
    fallow_step_init(&step.sizes);
    step.sizes.batch = BATCH;
    step.sizes.tokens = (uint64_t)prefill->tokens;
    step.sizes.context = (uint64_t)prefill->longest;
    step.sizes.page_size = PAGE;
    step.sizes.chunk = CHUNK;
    step.sizes.pads_values = prefill->pads_values ? 1 : 0;
    return step;
}

static void check(struct flw_bed *bed, bool pads_values)
{
    struct prefill prefills[3] = {make_prefill(bed, 6, 21, 7, 24), make_prefill(bed, 8, 32, 29, 32),
                                  make_prefill(bed, 2, 0, 5, 8)};
    struct flw_leased_step steps[3];
    for (int i = 0; i < 3; i++) {
        prefills[i].pads_values = pads_values;
        steps[i] = step_of(&prefills[i]);
    }
    flw_leased_prove(bed, &steps[0], &steps[1], &steps[2], NULL);
}

static void a_step_of_mla_prefill_does_not_show_what_its_regions_held(struct flw_bed *bed)
{
    check(bed, false);
}

static void a_step_with_padded_values_does_not_show_what_its_regions_held(struct flw_bed *bed)
{
    check(bed, true);
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(a_step_of_mla_prefill_does_not_show_what_its_regions_held),
        FLW_BED_TEST(a_step_with_padded_values_does_not_show_what_its_regions_held),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
