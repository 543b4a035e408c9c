/* SPDX-License-Identifier: Apache-2.0
 *
 * The chain of a latent attention prefill in chunks, on a lease of the ready layout: plan, then
 * for each chunk gather, project (here), join, attend (here), merge in place. The result must
 * equal the attention over all keys at once, whatever the arena held before. */
#include <math.h>
#include <string.h>

#include "common/number.h"
#include "fallow/attention.h"
#include "fallow/mla.h"
#include "kernel/leased.h"

enum {
    BATCH = 2,
    MOST_TOKENS = 8, /* new ones; the first half belongs to request 0 */
    HEADS = 2,
    NOPE = 32, /* and values */
    ROPE = 16,
    LATENT = 48,
    KEY = NOPE + ROPE,
    ROW = LATENT + ROPE, /* of the cache */
    PAGE = 4,
    LONGEST = 256,
    WORKSPACE = 32, /* tokens of a chunk */
    COLUMNS = LONGEST / PAGE,
    BLOCKS = BATCH * COLUMNS + 3,
    OWN = 3, /* keys that each new token sees beside the context */
    CHUNKS = 16
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

/* The inputs of the attention, on the host and on the device. */
struct world {
    int32_t contexts[BATCH], tokens, longest, capacity; /* of chunks */
    int64_t chunks;                                     /* that have tokens */
    int32_t table[BATCH * COLUMNS];
    uint16_t cache[BLOCKS * PAGE * ROW];
    float queries[MOST_TOKENS][HEADS][KEY];
    float own_keys[MOST_TOKENS][HEADS][OWN][KEY], own_values[MOST_TOKENS][HEADS][OWN][NOPE];
    const void *device_contexts, *device_table, *device_cache;
    int32_t width; /* of a head of out: NOPE, padded KEY */
    fallow_chunk_mode mode;
};

/* One softmax that is added to key by key. */
struct softmax {
    double largest, sum, out[KEY];
};

static void see_key(struct softmax *softmax, double score, const float *value, int32_t width)
{
    double top = score > softmax->largest ? score : softmax->largest;
    double keep = exp(softmax->largest - top), weight = exp(score - top);
    for (int32_t i = 0; i < width; i++) {
        softmax->out[i] = softmax->out[i] * keep + weight * (double)value[i];
    }
    softmax->sum = softmax->sum * keep + weight;
    softmax->largest = top;
}

static double score_of(const float *query, const float *key)
{
    double score = 0;
    for (int i = 0; i < KEY; i++) {
        score += (double)query[i] * (double)key[i];
    }
    return score;
}

static void draw(struct flw_bed *bed, float *values, size_t count, float size)
{
    for (size_t i = 0; i < count; i++) {
        float value = ((float)flw_bed_random_below(bed, 2001) / 1000.0f - 1.0f) * size;
        values[i] = flw_bf16_widen(flw_bf16_narrow(value));
    }
}

/* The cache's blocks are in another order than the pages; unused blocks are NaN. */
static struct world *make(struct flw_bed *bed, const int32_t contexts[BATCH], int32_t tokens,
                          int64_t chunks, fallow_chunk_mode mode, bool pads_values)
{
    struct world *world = flw_bed_memory(bed, sizeof *world);
    int32_t most = contexts[0] > contexts[1] ? contexts[0] : contexts[1];
    world->mode = mode;
    world->width = pads_values ? KEY : NOPE;
    world->tokens = tokens;
    world->chunks = chunks;
    world->longest = most <= 16 ? 16 : most < LONGEST ? most / PAGE * PAGE + PAGE : LONGEST;
    world->capacity = (BATCH * world->longest + WORKSPACE - 1) / WORKSPACE;
    memcpy(world->contexts, contexts, sizeof world->contexts);
    for (size_t i = 0; i < sizeof world->cache / 2; i++) {
        world->cache[i] = flw_bf16_narrow((float)flw_bed_random_below(bed, 2001) / 1000.0f - 1.0f);
    }
    memset(world->cache, 0xff, sizeof world->cache[0] * 3 * PAGE * ROW);
    for (int i = 0; i < BATCH * COLUMNS; i++) {
        world->table[i] = 3 + i * 37 % (BATCH * COLUMNS); /* 37 is prime to it */
    }
    draw(bed, &world->queries[0][0][0], sizeof world->queries / 4, 1.2f);
    draw(bed, &world->own_keys[0][0][0][0], sizeof world->own_keys / 4, 1.0f);
    draw(bed, &world->own_values[0][0][0][0], sizeof world->own_values / 4, 1.0f);
    world->device_contexts =
        flw_bed_upload(bed, "context_lengths", world->contexts, sizeof world->contexts);
    world->device_table = flw_bed_upload(bed, "block_table", world->table, sizeof world->table);
    world->device_cache = flw_bed_upload(bed, "cache", world->cache, sizeof world->cache);
    return world;
}

static int request_of(const struct world *world, int token)
{
    return token < world->tokens / 2 ? 0 : 1;
}

/* The stand-in for the projection selects elements of the latent: element i of a head's key and
 * value. */
static uint16_t projected(const uint16_t *row, int head, int i)
{
    return row[(i * 5 + head * 11) % LATENT];
}

static void see_own(const struct world *world, int token, int head, struct softmax *softmax)
{
    *softmax = (struct softmax){.largest = -INFINITY};
    for (int k = 0; k < OWN; k++) {
        see_key(softmax, score_of(world->queries[token][head], world->own_keys[token][head][k]),
                world->own_values[token][head][k], NOPE);
    }
}

/* ---- all keys at once, from the cache */

static void expect(const struct world *world, int token, int head, struct softmax *softmax)
{
    int request = request_of(world, token);
    see_own(world, token, head, softmax);
    for (int32_t position = 0; position < world->contexts[request]; position++) {
        int32_t block = world->table[request * COLUMNS + position / PAGE];
        const uint16_t *row = world->cache + (block * PAGE + position % PAGE) * ROW;
        float key[KEY], value[NOPE];
        for (int i = 0; i < KEY; i++) {
            key[i] = flw_bf16_widen(i < NOPE ? projected(row, head, i) : row[LATENT + i - NOPE]);
        }
        for (int i = 0; i < NOPE; i++) {
            value[i] = flw_bf16_widen(projected(row, head, NOPE + i));
        }
        see_key(softmax, score_of(world->queries[token][head], key), value, NOPE);
    }
}

/* ---- the chain */

struct chain {
    const struct flw_leased *run;
    const struct world *world;
    const int32_t *starts, *cu; /* of the chunk, on the device */
    int32_t host_cu[BATCH + 1];
};

static void narrow_rows(const struct world *world, const struct softmax *softmax, uint16_t *out)
{
    for (int32_t i = 0; i < world->width; i++) {
        out[i] = flw_bf16_narrow(i < NOPE ? (float)(softmax->out[i] / softmax->sum) : 0.0f);
    }
}

/* The new tokens among themselves, into the accumulator pair. */
static void attend_to_own(const struct flw_leased *run, const struct world *world)
{
    uint16_t out[MOST_TOKENS * HEADS * KEY];
    float lse[HEADS * MOST_TOKENS];
    size_t rows = (size_t)world->tokens * HEADS;
    for (int k = 0; k < (int)rows; k++) {
        struct softmax softmax;
        see_own(world, k / HEADS, k % HEADS, &softmax);
        narrow_rows(world, &softmax, out + k * world->width);
        lse[k % HEADS * world->tokens + k / HEADS] = (float)(softmax.largest + log(softmax.sum));
    }
    flw_bed_write(run->bed, flw_leased_claim(run, "out"), out, rows * (size_t)world->width * 2);
    flw_bed_write(run->bed, flw_leased_claim(run, "lse"), lse, rows * 4);
}

static void plan(const struct flw_leased *run, const struct world *world)
{
    fallow_chunk_plan_params params;
    int64_t counted = 0;
    fallow_chunk_plan_params_init(&params);
    params.context_lengths = world->device_contexts;
    params.starts = flw_leased_claim(run, "chunk_starts");
    params.lengths = flw_leased_claim(run, "chunk_seq_lens");
    params.cu_seqlens = flw_leased_claim(run, "cu_chunk");
    params.batch = BATCH;
    params.chunk_capacity = world->capacity;
    params.workspace_tokens = WORKSPACE;
    params.page_size = PAGE;
    params.mode = world->mode;
    FLW_LAUNCH(run->bed, fallow_mla_chunk_plan, &params);
    FLW_EXPECT(run->bed,
               fallow_mla_chunk_count(&params, world->contexts, &counted, NULL) == FALLOW_OK &&
                   counted == world->chunks,
               "%lld chunks, expected %lld", (long long)counted, (long long)world->chunks);
    flw_leased_note_all(run, "chunk_starts");
    flw_leased_note_all(run, "chunk_seq_lens");
    flw_leased_note_all(run, "cu_chunk");
}

/* Return the rows of a region up to the chunk's tokens, which must be the same in each run. */
static const uint16_t *note_rows(const struct chain *chain, const char *name, size_t width)
{
    return flw_leased_note(chain->run, name, flw_leased_region(chain->run, name),
                           (size_t)chain->host_cu[BATCH] * width * 2);
}

static void gather(const struct chain *chain)
{
    fallow_gather_kv_params params;
    fallow_gather_kv_params_init(&params);
    params.cache = chain->world->device_cache;
    params.block_table = chain->world->device_table;
    params.cu_seqlens = chain->cu;
    params.starts = chain->starts;
    params.dst = flw_leased_claim(chain->run, "gathered");
    params.tokens = WORKSPACE;
    params.batch = BATCH;
    params.block_count = BLOCKS;
    params.table_columns = COLUMNS;
    params.page_size = PAGE;
    params.width = ROW;
    params.dtype = FALLOW_BF16;
    FLW_LAUNCH(chain->run->bed, fallow_mla_gather_kv, &params);
}

/* Fill kv_nope from the latent part of the gathered rows, instead of a product. */
static void project(const struct chain *chain)
{
    const uint16_t *gathered = note_rows(chain, "gathered", ROW);
    uint16_t kv[WORKSPACE * HEADS * 2 * NOPE];
    size_t count = (size_t)chain->host_cu[BATCH] * HEADS * 2 * NOPE;
    for (size_t k = 0; k < count; k++) {
        kv[k] = projected(gathered + k / (HEADS * 2 * NOPE) * ROW, (int)(k / (2 * NOPE) % HEADS),
                          (int)(k % (2 * NOPE)));
    }
    flw_bed_write(chain->run->bed, flw_leased_claim(chain->run, "kv_nope"), kv, count * 2);
}

static void join(const struct chain *chain)
{
    fallow_concat_kv_params params;
    bool pads_values = chain->world->width == KEY;
    fallow_concat_kv_params_init(&params);
    params.kv = flw_leased_region(chain->run, "kv_nope");
    params.k_rope = (const uint16_t *)flw_leased_region(chain->run, "gathered") + LATENT;
    params.rope_stride = ROW;
    params.token_count = chain->cu + BATCH;
    params.k = flw_leased_claim(chain->run, "k");
    params.v = pads_values ? flw_leased_claim(chain->run, "v_padded") : NULL;
    params.v_columns = pads_values ? KEY : 0;
    params.tokens = WORKSPACE;
    params.heads = HEADS;
    params.nope_width = params.v_width = NOPE;
    params.rope_width = ROPE;
    params.dtype = FALLOW_BF16;
    FLW_LAUNCH(chain->run->bed, fallow_mla_concat_kv, &params);
}

/* Attend to the chunk: keys from k, values padded or as projected. A row without keys is not
 * written, as in backends; the LSE marks it. */
static void attend(const struct chain *chain)
{
    const struct world *world = chain->world;
    bool pads_values = world->width == KEY;
    size_t stride = pads_values ? KEY : 2 * NOPE, first = pads_values ? 0 : NOPE;
    const uint16_t *keys = note_rows(chain, "k", HEADS * KEY);
    const uint16_t *values = note_rows(chain, pads_values ? "v_padded" : "kv_nope", HEADS * stride);
    float lse[HEADS * MOST_TOKENS];
    uint16_t *out = flw_leased_claim(chain->run, "chunk_out");
    for (int k = 0; k < world->tokens * HEADS; k++) {
        struct softmax softmax = {.largest = -INFINITY};
        int t = k / HEADS, h = k % HEADS, request = request_of(world, t);
        for (int row = chain->host_cu[request]; row < chain->host_cu[request + 1]; row++) {
            size_t at = (size_t)(row * HEADS + h);
            float key[KEY], value[KEY] = {0};
            for (int i = 0; i < KEY; i++) {
                key[i] = flw_bf16_widen(keys[at * KEY + (size_t)i]);
            }
            for (int i = 0; i < world->width; i++) {
                value[i] = flw_bf16_widen(values[at * stride + first + (size_t)i]);
                FLW_EXPECT(chain->run->bed, i < NOPE || value[i] == 0.0f, "pad column %d", i);
            }
            see_key(&softmax, score_of(world->queries[t][h], key), value, world->width);
        }
        lse[h * world->tokens + t] =
            softmax.sum > 0 ? (float)(softmax.largest + log(softmax.sum)) : -INFINITY;
        if (softmax.sum > 0) {
            uint16_t row[KEY];
            narrow_rows(world, &softmax, row);
            flw_bed_write(chain->run->bed, out + k * world->width, row, (size_t)world->width * 2);
        }
    }
    flw_bed_write(chain->run->bed, flw_leased_claim(chain->run, "chunk_lse"), lse,
                  (size_t)(world->tokens * HEADS) * 4);
}

static void merge(const struct chain *chain)
{
    fallow_merge_states_params params;
    fallow_merge_states_params_init(&params);
    params.a = params.out = flw_leased_region(chain->run, "out");
    params.a_lse = params.out_lse = flw_leased_region(chain->run, "lse");
    params.b = flw_leased_region(chain->run, "chunk_out");
    params.b_lse = flw_leased_region(chain->run, "chunk_lse");
    params.tokens = chain->world->tokens;
    params.heads = HEADS;
    params.width = chain->world->width;
    params.dtype = params.out_dtype = FALLOW_BF16;
    FLW_LAUNCH(chain->run->bed, fallow_attention_merge_states, &params);
}

/* Each merge rounds to BF16 once. */
static void compare(const struct flw_leased *run, const struct world *world)
{
    const uint16_t *out = flw_leased_note_all(run, "out");
    const float *lse = flw_leased_note_all(run, "lse");
    double error = (double)(world->chunks + 2) * 0x1p-9;
    for (int row = 0; row < world->tokens * HEADS; row++) {
        int t = row / HEADS, h = row % HEADS;
        struct softmax want;
        expect(world, t, h, &want);
        double want_lse = want.largest + log(want.sum);
        double got_lse = (double)lse[h * world->tokens + t];
        FLW_EXPECT(run->bed, fabs(got_lse - want_lse) < 1e-4, "LSE of %d, %d: %g, not %g", t, h,
                   got_lse, want_lse);
        for (int i = 0; i < world->width; i++) {
            double value = i < NOPE ? want.out[i] / want.sum : 0;
            double got = (double)flw_bf16_widen(out[row * world->width + i]);
            FLW_EXPECT(run->bed, fabs(got - value) <= error, "token %d, head %d, %d: %g, not %g", t,
                       h, i, got, value);
        }
    }
}

/* All chunks that there is room for, the empty ones too. */
static void run_prefill(struct flw_leased *run)
{
    const struct world *world = run->inputs;
    attend_to_own(run, world);
    plan(run, world);
    for (int i = 0; i < world->capacity; i++) {
        struct chain chain = {.run = run, .world = world};
        chain.starts = (const int32_t *)flw_leased_region(run, "chunk_starts") + i * BATCH;
        chain.cu = (const int32_t *)flw_leased_region(run, "cu_chunk") + i * (BATCH + 1);
        flw_bed_read(run->bed, chain.host_cu, chain.cu, sizeof chain.host_cu);
        gather(&chain);
        project(&chain);
        join(&chain);
        attend(&chain);
        merge(&chain);
    }
    compare(run, world);
}

static struct flw_leased_step step_of(struct world *world)
{
    struct flw_leased_step step = {
        .make = fallow_layout_mla_prefill, .model = &model, .inputs = world, .run = run_prefill};
    fallow_step_init(&step.sizes);
    step.sizes.batch = BATCH;
    step.sizes.tokens = (uint64_t)world->tokens;
    step.sizes.context = (uint64_t)world->longest;
    step.sizes.page_size = PAGE;
    step.sizes.chunk = WORKSPACE;
    step.sizes.pads_values = world->width == KEY;
    return step;
}

/* Each step runs over memory of several kinds, and after a larger and a smaller one. */
FLW_TEST(chunks_merged_in_place_are_attention_over_all_keys)
{
    static const struct {
        int32_t contexts[BATCH], tokens;
        int64_t uniform, packed; /* chunks */
    } steps[] = {{{99, 70}, 6, 7, 6}, {{256, 256}, 8, 16, 16}, {{1, 0}, 2, 1, 1},
                 {{0, 7}, 6, 1, 1},   {{130, 3}, 6, 9, 5},     {{0, 0}, 4, 0, 0}};
    for (int k = 0; k < 8; k++) {
        struct flw_leased_step all[3];
        bool is_packed = (k & 1) != 0;
        for (int s = 0; s < 3; s++) {
            int at = (k & 4) / 4 * 3 + s;
            all[s] =
                step_of(make(bed, steps[at].contexts, steps[at].tokens,
                             is_packed ? steps[at].packed : steps[at].uniform,
                             is_packed ? FALLOW_CHUNK_PACKED : FALLOW_CHUNK_UNIFORM, (k & 2) != 0));
        }
        flw_leased_prove(bed, &all[0], &all[1], &all[2], NULL);
    }
}

/* 1,024 new tokens, 128 heads of 128: outputs of one merge, and live outputs of 16 merges. */
FLW_TEST(sixteen_chunks_keep_one_pair_of_merge_destinations)
{
    enum {
        OUT_BYTES = 1024 * 128 * 128 * 2,
        LSE_BYTES = 1024 * 128 * 4
    };
    fallow_region regions[2 + 2 * CHUNKS] = {
        {.name = "out", .size_bytes = OUT_BYTES, .last_phase = CHUNKS},
        {.name = "lse", .size_bytes = LSE_BYTES, .last_phase = CHUNKS}};
    char names[2 * CHUNKS][24];
    fallow_layout *layout = NULL;
    for (int i = 0; i < CHUNKS; i++) {
        uint32_t phase = (uint32_t)i + 1;
        snprintf(names[2 * i], sizeof names[0], "chunk_out %d", i);
        snprintf(names[2 * i + 1], sizeof names[0], "chunk_lse %d", i);
        regions[2 + 2 * i] = (fallow_region){.name = names[2 * i],
                                             .size_bytes = OUT_BYTES,
                                             .first_phase = phase,
                                             .last_phase = phase};
        regions[3 + 2 * i] = (fallow_region){.name = names[2 * i + 1],
                                             .size_bytes = LSE_BYTES,
                                             .first_phase = phase,
                                             .last_phase = phase};
    }
    FLW_EXPECT_OK(bed, fallow_layout_create(regions, 2, &layout));
    FLW_EXPECT(bed, fallow_layout_bytes(layout) == 34078720, "destinations: %zu bytes",
               fallow_layout_bytes(layout));
    fallow_layout_destroy(layout);
    FLW_EXPECT_OK(bed, fallow_layout_create(regions, 2 + 2 * CHUNKS, &layout));
    FLW_EXPECT(bed, fallow_layout_bytes(layout) == 68157440, "both pairs: %zu bytes",
               fallow_layout_bytes(layout));
    fallow_layout_destroy(layout);
    /* A separate destination for each merge, as the chain had originally. */
    for (int i = 0; i < 2 * (CHUNKS - 1); i++) {
        regions[i].first_phase = 0;
        regions[i].last_phase = CHUNKS;
    }
    FLW_EXPECT_OK(bed, fallow_layout_create(regions, 2 * (CHUNKS - 1), &layout));
    FLW_EXPECT(bed, fallow_layout_bytes(layout) == 511180800, "without reuse: %zu bytes",
               fallow_layout_bytes(layout));
    fallow_layout_destroy(layout);
}
