/* SPDX-License-Identifier: Apache-2.0
 *
 * The chain of a latent attention prefill in chunks, on a lease of the ready layout: plan, then
 * for each chunk gather, project (here), join, attend (here), merge in place. The result must
 * equal the attention over all keys at once. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/number.h"
#include "fallow/attention.h"
#include "fallow/layouts.h"
#include "fallow/mla.h"
#include "kernel/bed.h"

enum {
    BATCH = 2,
    TOKENS = 6, /* new ones; the first half belongs to request 0 */
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
    int32_t contexts[BATCH];
    int32_t table[BATCH * COLUMNS];
    uint16_t cache[BLOCKS * PAGE * ROW];
    float queries[TOKENS][HEADS][KEY];
    float own_keys[TOKENS][HEADS][OWN][KEY], own_values[TOKENS][HEADS][OWN][NOPE];
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

static float random_float(struct flw_bed *bed, float size)
{
    return ((float)flw_bed_random_below(bed, 2001) / 1000.0f - 1.0f) * size;
}

static float random_bf16(struct flw_bed *bed, uint16_t *out_raw)
{
    uint16_t raw = flw_bf16_narrow(random_float(bed, 1.0f));
    if (out_raw != NULL) {
        *out_raw = raw;
    }
    return flw_bf16_widen(raw);
}

/* The cache's blocks are dealt in another order than the pages; those that nobody has are NaN. */
static struct world *make(struct flw_bed *bed, int32_t first, int32_t second,
                          fallow_chunk_mode mode, bool pads_values)
{
    struct world *world = calloc(1, sizeof *world);
    if (world == NULL) {
        abort();
    }
    world->mode = mode;
    world->width = pads_values ? KEY : NOPE;
    world->contexts[0] = first;
    world->contexts[1] = second;
    for (size_t i = 0; i < sizeof world->cache / 2; i++) {
        random_bf16(bed, &world->cache[i]);
    }
    memset(world->cache, 0xff, sizeof world->cache[0] * 3 * PAGE * ROW);
    for (int i = 0; i < BATCH * COLUMNS; i++) {
        world->table[i] = 3 + i * 37 % (BATCH * COLUMNS); /* 37 is prime to it */
    }
    for (int t = 0; t < TOKENS * HEADS; t++) {
        for (int i = 0; i < KEY; i++) {
            world->queries[t / HEADS][t % HEADS][i] = random_float(bed, 1.2f);
        }
        for (int k = 0; k < OWN; k++) {
            for (int i = 0; i < KEY; i++) {
                world->own_keys[t / HEADS][t % HEADS][k][i] = random_bf16(bed, NULL);
            }
            for (int i = 0; i < NOPE; i++) {
                world->own_values[t / HEADS][t % HEADS][k][i] = random_bf16(bed, NULL);
            }
        }
    }
    world->device_contexts =
        flw_bed_upload(bed, "context_lengths", world->contexts, sizeof world->contexts);
    world->device_table = flw_bed_upload(bed, "block_table", world->table, sizeof world->table);
    world->device_cache = flw_bed_upload(bed, "cache", world->cache, sizeof world->cache);
    return world;
}

static int request_of(int token)
{
    return token < TOKENS / 2 ? 0 : 1;
}

/* The stand-in for the projection selects elements of the latent: element i of a head's key and
 * value. */
static uint16_t projected(const uint16_t *row, int head, int i)
{
    return row[(i * 5 + head * 11) % LATENT];
}

/* ---- all keys at once, from the cache */

static void expect(const struct world *world, int token, int head, struct softmax *softmax)
{
    int request = request_of(token);
    *softmax = (struct softmax){.largest = -INFINITY};
    for (int k = 0; k < OWN; k++) {
        see_key(softmax, score_of(world->queries[token][head], world->own_keys[token][head][k]),
                world->own_values[token][head][k], NOPE);
    }
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
    struct flw_bed *bed;
    const struct world *world;
    const fallow_layout *layout;
    const fallow_lease *lease;
    int32_t *starts, *lengths, *cu; /* on the device, [CHUNKS, ...] */
    void *out;
    float *lse;
    int chunk;
    int32_t host_cu[BATCH + 1]; /* of the chunk */
};

static void *region(struct chain *chain, const char *name)
{
    void *address = fallow_lease_region(chain->lease, name);
    FLW_EXPECT(chain->bed, address != NULL, "no region '%s'", name);
    return address;
}

/* Make a region dirty: contents of earlier chunks or steps must have no effect. */
static void dirty_region(struct chain *chain, const char *name)
{
    fallow_region found;
    size_t index = fallow_layout_find(chain->layout, name);
    FLW_EXPECT(chain->bed, fallow_layout_region(chain->layout, index, &found, NULL) == FALLOW_OK,
               "no region '%s'", name);
    flw_bed_dirty(chain->bed, fallow_lease_region_at(chain->lease, index), found.size_bytes, 0xff);
}

static void narrow_rows(const struct world *world, const struct softmax *softmax, uint16_t *out)
{
    for (int32_t i = 0; i < world->width; i++) {
        out[i] = flw_bf16_narrow(i < NOPE ? (float)(softmax->out[i] / softmax->sum) : 0.0f);
    }
}

/* The new tokens among themselves, into the accumulator pair. */
static void attend_to_own(struct chain *chain)
{
    const struct world *world = chain->world;
    uint16_t out[TOKENS * HEADS * KEY];
    float lse[HEADS * TOKENS];
    for (int t = 0; t < TOKENS; t++) {
        for (int h = 0; h < HEADS; h++) {
            struct softmax softmax = {.largest = -INFINITY};
            for (int k = 0; k < OWN; k++) {
                see_key(&softmax, score_of(world->queries[t][h], world->own_keys[t][h][k]),
                        world->own_values[t][h][k], NOPE);
            }
            narrow_rows(world, &softmax, out + (t * HEADS + h) * world->width);
            lse[h * TOKENS + t] = (float)(softmax.largest + log(softmax.sum));
        }
    }
    flw_bed_write(chain->bed, chain->out, out, (size_t)(TOKENS * HEADS * world->width) * 2);
    flw_bed_write(chain->bed, chain->lse, lse, sizeof lse);
}

static void plan(struct chain *chain)
{
    fallow_chunk_plan_params params;
    fallow_chunk_plan_params_init(&params);
    params.context_lengths = chain->world->device_contexts;
    params.starts = chain->starts;
    params.lengths = chain->lengths;
    params.cu_seqlens = chain->cu;
    params.batch = BATCH;
    params.chunk_capacity = CHUNKS;
    params.workspace_tokens = WORKSPACE;
    params.page_size = PAGE;
    params.mode = chain->world->mode;
    FLW_EXPECT_OK(chain->bed, fallow_mla_chunk_plan(flw_bed_kernels(chain->bed), &params,
                                                    flw_bed_stream(chain->bed)));
}

static void gather(struct chain *chain)
{
    fallow_gather_kv_params params;
    fallow_gather_kv_params_init(&params);
    params.cache = chain->world->device_cache;
    params.block_table = chain->world->device_table;
    params.cu_seqlens = chain->cu + chain->chunk * (BATCH + 1);
    params.starts = chain->starts + chain->chunk * BATCH;
    params.dst = region(chain, "gathered");
    params.tokens = WORKSPACE;
    params.batch = BATCH;
    params.block_count = BLOCKS;
    params.table_columns = COLUMNS;
    params.page_size = PAGE;
    params.width = ROW;
    params.dtype = FALLOW_BF16;
    FLW_EXPECT_OK(chain->bed, fallow_mla_gather_kv(flw_bed_kernels(chain->bed), &params,
                                                   flw_bed_stream(chain->bed)));
    flw_bed_read(chain->bed, chain->host_cu, params.cu_seqlens, sizeof chain->host_cu);
}

/* Fill kv_nope from the latent part of the gathered rows, instead of a product. */
static void project(struct chain *chain)
{
    uint16_t gathered[WORKSPACE * ROW], kv[WORKSPACE * HEADS * 2 * NOPE];
    size_t tokens = (size_t)chain->host_cu[BATCH];
    flw_bed_read(chain->bed, gathered, region(chain, "gathered"), tokens * ROW * 2);
    for (size_t k = 0; k < tokens * HEADS * 2 * NOPE; k++) {
        size_t row = k / (HEADS * 2 * NOPE);
        int head = (int)(k / (2 * NOPE) % HEADS);
        kv[k] = projected(gathered + row * ROW, head, (int)(k % (2 * NOPE)));
    }
    flw_bed_write(chain->bed, region(chain, "kv_nope"), kv, tokens * HEADS * 2 * NOPE * 2);
}

static void join(struct chain *chain)
{
    fallow_concat_kv_params params;
    bool pads_values = chain->world->width == KEY;
    fallow_concat_kv_params_init(&params);
    params.kv = region(chain, "kv_nope");
    params.k_rope = (const uint16_t *)region(chain, "gathered") + LATENT; /* in the gathered rows */
    params.rope_stride = ROW;
    params.token_count = chain->cu + chain->chunk * (BATCH + 1) + BATCH;
    params.k = region(chain, "k");
    params.v = pads_values ? region(chain, "v_padded") : NULL;
    params.v_columns = pads_values ? KEY : 0;
    params.tokens = WORKSPACE;
    params.heads = HEADS;
    params.nope_width = params.v_width = NOPE;
    params.rope_width = ROPE;
    params.dtype = FALLOW_BF16;
    FLW_EXPECT_OK(chain->bed, fallow_mla_concat_kv(flw_bed_kernels(chain->bed), &params,
                                                   flw_bed_stream(chain->bed)));
}

/* Attend to the chunk: keys from k, values padded or as projected. A row without keys is not
 * written, as in backends; the LSE marks it. */
static void attend(struct chain *chain)
{
    const struct world *world = chain->world;
    uint16_t keys[WORKSPACE * HEADS * KEY], values[WORKSPACE * HEADS * 2 * NOPE];
    bool pads_values = world->width == KEY;
    size_t tokens = (size_t)chain->host_cu[BATCH];
    size_t value_stride = pads_values ? KEY : 2 * NOPE, value_at = pads_values ? 0 : NOPE;
    float lse[HEADS * TOKENS];
    uint16_t *out = region(chain, "chunk_out");
    flw_bed_read(chain->bed, keys, region(chain, "k"), tokens * HEADS * KEY * 2);
    flw_bed_read(chain->bed, values, region(chain, pads_values ? "v_padded" : "kv_nope"),
                 tokens * HEADS * value_stride * 2);
    for (int t = 0; t < TOKENS; t++) {
        for (int h = 0; h < HEADS; h++) {
            struct softmax softmax = {.largest = -INFINITY};
            int request = request_of(t);
            for (int row = chain->host_cu[request]; row < chain->host_cu[request + 1]; row++) {
                size_t at = (size_t)(row * HEADS + h);
                float key[KEY], value[KEY] = {0};
                for (int i = 0; i < KEY; i++) {
                    key[i] = flw_bf16_widen(keys[at * KEY + (size_t)i]);
                }
                for (int i = 0; i < world->width; i++) {
                    value[i] = flw_bf16_widen(values[at * value_stride + value_at + (size_t)i]);
                    FLW_EXPECT(chain->bed, i < NOPE || value[i] == 0.0f, "pad column %d", i);
                }
                see_key(&softmax, score_of(world->queries[t][h], key), value, world->width);
            }
            lse[h * TOKENS + t] = (float)(softmax.largest + log(softmax.sum));
            if (softmax.sum > 0) {
                uint16_t row[KEY];
                narrow_rows(world, &softmax, row);
                flw_bed_write(chain->bed, out + (t * HEADS + h) * world->width, row,
                              (size_t)world->width * 2);
            } else {
                lse[h * TOKENS + t] = -INFINITY;
            }
        }
    }
    flw_bed_write(chain->bed, region(chain, "chunk_lse"), lse, sizeof lse);
}

static void merge(struct chain *chain)
{
    fallow_merge_states_params params;
    fallow_merge_states_params_init(&params);
    params.a = params.out = chain->out;
    params.a_lse = params.out_lse = chain->lse;
    params.b = region(chain, "chunk_out");
    params.b_lse = region(chain, "chunk_lse");
    params.tokens = TOKENS;
    params.heads = HEADS;
    params.width = chain->world->width;
    params.dtype = params.out_dtype = FALLOW_BF16;
    FLW_EXPECT_OK(chain->bed, fallow_attention_merge_states(flw_bed_kernels(chain->bed), &params,
                                                            flw_bed_stream(chain->bed)));
}

static void run_chunk(struct chain *chain)
{
    static const char *const names[] = {"gathered", "kv_nope", "k", "chunk_out", "chunk_lse"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        dirty_region(chain, names[i]);
    }
    if (chain->world->width == KEY) {
        dirty_region(chain, "v_padded");
    }
    gather(chain);
    project(chain);
    join(chain);
    attend(chain);
    merge(chain);
}

/* Each merge rounds to BF16 once. */
static void compare(struct chain *chain, int64_t chunks)
{
    const struct world *world = chain->world;
    uint16_t out[TOKENS * HEADS * KEY];
    float lse[HEADS * TOKENS];
    double error = (double)(chunks + 2) * 0x1p-9;
    flw_bed_read(chain->bed, out, chain->out, (size_t)(TOKENS * HEADS * world->width) * 2);
    flw_bed_read(chain->bed, lse, chain->lse, sizeof lse);
    for (int row = 0; row < TOKENS * HEADS; row++) {
        int t = row / HEADS, h = row % HEADS;
        struct softmax want;
        expect(world, t, h, &want);
        double want_lse = want.largest + log(want.sum), got_lse = (double)lse[h * TOKENS + t];
        FLW_EXPECT(chain->bed, fabs(got_lse - want_lse) < 1e-4, "LSE of %d, %d: %g, not %g", t, h,
                   got_lse, want_lse);
        for (int i = 0; i < world->width; i++) {
            double value = i < NOPE ? want.out[i] / want.sum : 0;
            double got = (double)flw_bf16_widen(out[row * world->width + i]);
            FLW_EXPECT(chain->bed, fabs(got - value) <= error, "token %d, head %d, %d: %g, not %g",
                       t, h, i, got, value);
        }
    }
}

static void run_chain(struct flw_bed *bed, fallow_arena *arena, const fallow_layout *layout,
                      const struct world *world, int64_t chunks)
{
    static const char *const tables[] = {"out", "lse", "chunk_starts", "chunk_seq_lens",
                                         "cu_chunk"};
    fallow_lease *lease = NULL;
    int64_t counted = 0;
    fallow_chunk_plan_params params;
    fallow_chunk_plan_params_init(&params);
    params.batch = BATCH;
    params.workspace_tokens = WORKSPACE;
    params.page_size = PAGE;
    params.mode = world->mode;
    FLW_EXPECT(bed,
               fallow_mla_chunk_count(&params, world->contexts, &counted, NULL) == FALLOW_OK &&
                   counted == chunks,
               "%lld chunks, expected %lld", (long long)counted, (long long)chunks);
    FLW_EXPECT_OK(bed, fallow_lease_begin(arena, layout, flw_bed_stream(bed), &lease));
    struct chain chain = {.bed = bed, .world = world, .layout = layout, .lease = lease};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        dirty_region(&chain, tables[i]);
    }
    chain.out = region(&chain, "out");
    chain.lse = region(&chain, "lse");
    chain.starts = region(&chain, "chunk_starts");
    chain.lengths = region(&chain, "chunk_seq_lens");
    chain.cu = region(&chain, "cu_chunk");
    attend_to_own(&chain);
    plan(&chain);
    for (chain.chunk = 0; chain.chunk < counted; chain.chunk++) {
        run_chunk(&chain);
    }
    compare(&chain, counted);
    FLW_EXPECT_OK(bed, fallow_lease_end(lease, flw_bed_stream(bed)));
}

/* Run steps of several lengths one after the other on one arena, each over the
 * previous contents. */
static void chunks_merged_in_place_are_attention_over_all_keys(struct flw_bed *bed)
{
    static const struct {
        int32_t contexts[BATCH];
        int64_t uniform, packed; /* chunks */
    } steps[] = {{{256, 256}, 16, 16}, {{256, 99}, 16, 12}, {{1, 0}, 1, 1},
                 {{0, 7}, 1, 1},       {{130, 3}, 9, 5},    {{0, 0}, 0, 0}};
    for (int pads = 0; pads < 2; pads++) {
        fallow_arena_config config;
        fallow_arena *arena = NULL;
        fallow_layout *layout = NULL;
        fallow_step step;
        fallow_step_init(&step);
        step.batch = BATCH;
        step.tokens = TOKENS;
        step.context = LONGEST;
        step.page_size = PAGE;
        step.chunk = WORKSPACE;
        step.pads_values = (uint8_t)pads;
        fallow_arena_config_init(&config);
        FLW_EXPECT_OK(bed, fallow_layout_mla_prefill(&model, &step, &layout));
        FLW_EXPECT_OK(bed, fallow_arena_create(flw_bed_pool(bed), &config, &arena));
        for (int k = 0; k < 12; k++) {
            bool is_packed = k % 2 == 1;
            struct world *world =
                make(bed, steps[k / 2].contexts[0], steps[k / 2].contexts[1],
                     is_packed ? FALLOW_CHUNK_PACKED : FALLOW_CHUNK_UNIFORM, pads == 1);
            run_chain(bed, arena, layout, world,
                      is_packed ? steps[k / 2].packed : steps[k / 2].uniform);
            free(world);
        }
        fallow_arena_destroy(arena);
        fallow_layout_destroy(layout);
    }
}

/* 1,024 new tokens, 128 heads of 128: outputs of one merge, and live outputs of 16 merges. */
static void sixteen_chunks_keep_one_pair_of_merge_destinations(struct flw_bed *bed)
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

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(chunks_merged_in_place_are_attention_over_all_keys),
        FLW_BED_TEST(sixteen_chunks_keep_one_pair_of_merge_destinations),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
