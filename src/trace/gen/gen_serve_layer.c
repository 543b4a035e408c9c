/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a served model: its weights on one rank, how much its experts are asked for, and the blocks of a step's
 * layers. Attention and inner layers are cut in `tp` parts, experts are dealt to `ep` ranks.
 *
 * T tokens, B of them decodes; h hidden, H heads, K key/value heads, d their size, I inner, E experts of
 * which k work, N = 2 I; all of this rank, bf16. Each block is freed after its last use.
 *
 *   norm       2 T h
 *   attention  qkv 2 T (H + 2 K) d; out 2 T H d; sums 4 H T; decodes whose context is split S ways:
 *              4 S H B d and 4 S H B; projection 2 T h
 *   latent     in 2 T (rank q + rank kv + rope); query 2 T H (d + rope)
 *              decodes: query 2 B H (512 + rope); out 2 B H 512; split four ways 4 B H 4 (512 + 1), or
 *              FlashMLA: parts p = 132 / ceil(H / 64): plan 32 p, 4 (B + 1), out 4 (B + p) H 512, sums
 *              4 (B + p) H; back to heads 2 B H d
 *              prompts, in chunks of the workspace's tokens c: 2 c H 2 d, 2 c H (d + rope), out
 *              2 T' H d, sums 4 T' H
 *   inner      gate and up 2 T 2 I; product 2 T I; down 2 T h
 *   experts    scores 2 T E; choice 4 T k twice; with M = min(T, 32768) and blocks of 16 to 128 rows:
 *              order 4 (M k + E (rows - 1)), at most 4 M k rows; experts 4 a block; count 4;
 *              2 M k max(N, h); 2 M k I; sum 2 T h
 *   dealt      `ep` ranks of T tokens each choose k experts: A choices are for this rank's, by their
 *              share and chance. Received on the copying stream 2 A h; order 4 A; 2 A N; 2 A I; 2 A h;
 *              sum 2 T h
 */
#include "trace/gen/gen_serve.h"

#include "base/bits.h"

/* ---- weights and experts ---- */

const char *const flw_serve_model_names[] = {"llama-3-8b",   "llama-3-70b", "qwen3-30b-a3b",
                                             "mixtral-8x7b", "deepseek-v3", NULL};

const char *const flw_serve_model_help[] = {
    "dense, 32 layers, bf16",
    "dense, 80 layers, bf16",
    "128 experts of which 8 work, bf16",
    "8 experts of which 2 work, bf16",
    "latent attention, 256 experts of which 8 work and one for all, fp8",
};

/* Values of a layer's matrices: those of attention in, attention out, inner in, inner out. */
struct matrices {
    uint64_t in, query, kv, out, inner_in, inner_out, router;
};

static bool has_experts(const struct flw_serve *s, uint64_t layer)
{
    return s->model->experts > 0 && layer >= s->model->dense_layers;
}

static struct matrices count_values(const struct flw_serve *s, uint64_t layer)
{
    const fallow_model *m = s->model;
    struct matrices v = {0};
    if (m->kv_rank > 0) {
        v.in = m->hidden * (m->query_rank + m->kv_rank + m->rope_dim);
        v.query = m->query_rank * s->heads * (m->head_dim + m->rope_dim);
        v.kv = m->kv_rank * s->heads * 2 * m->head_dim;
    } else {
        v.in = m->hidden * (s->heads + 2 * s->kv_heads) * m->head_dim;
    }
    v.out = s->heads * m->head_dim * m->hidden;
    if (has_experts(s, layer)) {
        uint64_t width = s->experts * s->expert_intermediate +
                         m->shared_experts * m->expert_intermediate / s->tp;
        v.inner_in = 2 * width * m->hidden;
        v.inner_out = width * m->hidden;
        v.router = m->experts * m->hidden;
    } else {
        v.inner_in = 2 * s->intermediate * m->hidden;
        v.inner_out = s->intermediate * m->hidden;
    }
    return v;
}

uint64_t flw_serve_weight_bytes(const struct flw_serve *s, uint64_t layer)
{
    const fallow_model *m = s->model;
    if (layer == m->layers) {
        return 2 * flw_div_up(m->vocab, s->tp) * m->hidden * 2;
    }
    struct matrices v = count_values(s, layer);
    return (v.in + v.query + v.kv + v.out + v.inner_in + v.inner_out) * m->weight_bytes +
           v.router * 2;
}

uint64_t flw_serve_kv_bytes(const struct flw_serve *s)
{
    const fallow_model *m = s->model;
    uint64_t values = m->kv_rank > 0 ? m->kv_rank + m->rope_dim : 2 * s->kv_heads * m->head_dim;
    return m->layers * values * 2;
}

/* Nothing is computed with: blocks without a kernel's time. */
static void hold(struct flw_serve *s, uint64_t size_bytes)
{
    flw_gen_take_quick(s->gen, size_bytes, FLW_SERVE_COMPUTE);
}

void flw_serve_load(struct flw_serve *s)
{
    const fallow_model *m = s->model;
    uint64_t ends_bytes = flw_div_up(m->vocab, s->tp) * m->hidden * 2;
    hold(s, ends_bytes);
    for (uint64_t i = 0; i < m->layers; i++) {
        struct matrices v = count_values(s, i);
        hold(s, m->hidden * 2);
        hold(s, v.in * m->weight_bytes);
        hold(s, v.query * m->weight_bytes);
        hold(s, v.kv * m->weight_bytes);
        hold(s, v.out * m->weight_bytes);
        hold(s, m->hidden * 2);
        hold(s, v.router * 2);
        hold(s, v.inner_in * m->weight_bytes);
        hold(s, v.inner_out * m->weight_bytes);
    }
    hold(s, m->hidden * 2);
    hold(s, ends_bytes);
}

/* ---- experts ----------------------------------------------------------------------------------
 */

#define ZIPF_UNIT UINT64_C(1000000)

/* A layer's experts in an order of liking that is drawn: rank r is asked for with weight 1/r. */
static uint64_t draw_share(struct flw_serve *s, uint64_t skew)
{
    const fallow_model *m = s->model;
    uint64_t total = 0;
    uint64_t own = 0;
    uint64_t left = s->experts; /* of this rank's, not yet given a place */
    for (uint64_t r = 1; r <= m->experts; r++) {
        total += ZIPF_UNIT / r;
        if (flw_gen_between(s->gen, 1, m->experts - r + 1) <= left) {
            own += ZIPF_UNIT / r;
            left--;
        }
    }
    return (own * FLW_SERVE_SHARE / flw_max(total, 1) * skew +
            s->experts * FLW_SERVE_SHARE / flw_max(m->experts, 1) * (100 - skew)) /
           100;
}

void flw_serve_draw_shares(struct flw_serve *s, uint64_t skew)
{
    for (uint64_t i = 0; i < s->model->layers && s->ep > 1; i++) {
        s->shares[i] = draw_share(s, skew);
    }
}

/* ---- layers ---- */

#define STREAMING_MULTIPROCESSORS 132
#define FLASHMLA_ROWS             64
#define FLASHMLA_PLAN_BYTES       32 /* a part */
#define TRITON_SPLITS             4
#define EXPERT_TOKENS_MAX         32768
#define NORMAL_DRAWS              12 /* their sum's deviation is one */
#define NORMAL_UNIT               UINT64_C(65536)

#define give(s, ...) FLW_GEN_GIVE((s)->gen, __VA_ARGS__)

static uint32_t take(struct flw_serve *s, uint64_t size_bytes)
{
    return flw_gen_take(s->gen, size_bytes, FLW_SERVE_COMPUTE);
}

static uint32_t turn(struct flw_serve *s, uint32_t from, uint64_t size_bytes)
{
    return flw_gen_turn(s->gen, from, size_bytes, FLW_SERVE_COMPUTE);
}

static uint32_t take_hidden(struct flw_serve *s, uint64_t tokens)
{
    return take(s, tokens * s->model->hidden * 2);
}

/* ---- attention ---- */

/* `normed` is freed. */
static uint32_t attend(struct flw_serve *s, const struct flw_serve_batch *b, uint32_t normed)
{
    uint64_t head_bytes = s->model->head_dim * 2;
    uint32_t qkv = turn(s, normed, b->tokens * (s->heads + 2 * s->kv_heads) * head_bytes);
    uint32_t out = take(s, b->tokens * s->heads * head_bytes);
    uint32_t sums = take(s, s->heads * b->tokens * 4);
    if (b->splits > 1 && b->decodes > 0) {
        uint64_t parts = b->splits * s->heads * b->decodes;
        uint32_t partial = take(s, parts * s->model->head_dim * 4);
        uint32_t partial_sums = take(s, parts * 4);
        give(s, partial, partial_sums);
    }
    give(s, sums, qkv);
    uint32_t projection = take_hidden(s, b->tokens);
    give(s, out);
    return projection;
}

static void decode_triton(struct flw_serve *s, uint64_t decodes)
{
    uint64_t rows = decodes * s->heads;
    give(s, take(s, rows * TRITON_SPLITS * (s->model->kv_rank + 1) * 4));
}

static void decode_flashmla(struct flw_serve *s, uint64_t decodes)
{
    uint64_t parts = STREAMING_MULTIPROCESSORS / flw_div_up(s->heads, FLASHMLA_ROWS);
    uint64_t rows = (decodes + parts) * s->heads;
    uint32_t plan = take(s, parts * FLASHMLA_PLAN_BYTES);
    uint32_t splits = take(s, (decodes + 1) * 4);
    uint32_t sums = take(s, rows * 4);
    uint32_t partial = take(s, rows * s->model->kv_rank * 4);
    give(s, partial, sums, splits, plan);
}

static void decode_latent(struct flw_serve *s, uint64_t decodes)
{
    const fallow_model *m = s->model;
    uint64_t rows = decodes * s->heads;
    uint32_t query = take(s, rows * (m->kv_rank + m->rope_dim) * 2);
    uint32_t out = take(s, rows * m->kv_rank * 2);
    if (s->is_flashmla) {
        decode_flashmla(s, decodes);
    } else {
        decode_triton(s, decodes);
    }
    give(s, query);
    uint32_t heads = take(s, rows * m->head_dim * 2);
    give(s, out, heads);
}

static void prefill_latent(struct flw_serve *s, uint64_t tokens, uint64_t context)
{
    const fallow_model *m = s->model;
    uint32_t out = take(s, tokens * s->heads * m->head_dim * 2);
    uint32_t sums = take(s, tokens * s->heads * 4);
    for (uint64_t done = 0; done < context; done += s->chunk_tokens) {
        uint64_t chunk = flw_min(s->chunk_tokens, context - done);
        uint32_t up = take(s, chunk * s->heads * 2 * m->head_dim * 2);
        uint32_t keys = take(s, chunk * s->heads * (m->head_dim + m->rope_dim) * 2);
        give(s, keys, up);
    }
    give(s, sums, out);
}

static uint32_t attend_latent(struct flw_serve *s, const struct flw_serve_batch *b, uint32_t normed)
{
    const fallow_model *m = s->model;
    uint32_t in = turn(s, normed, b->tokens * (m->query_rank + m->kv_rank + m->rope_dim) * 2);
    uint32_t query = take(s, b->tokens * s->heads * (m->head_dim + m->rope_dim) * 2);
    uint32_t out = take(s, b->tokens * s->heads * m->head_dim * 2);
    if (b->tokens > b->decodes) {
        prefill_latent(s, b->tokens - b->decodes, b->context);
    }
    if (b->decodes > 0) {
        decode_latent(s, b->decodes);
    }
    give(s, query, in);
    uint32_t projection = take_hidden(s, b->tokens);
    give(s, out);
    return projection;
}

/* ---- inner layers ---- */

/* `normed` stays. */
static uint32_t run_dense(struct flw_serve *s, uint64_t tokens, uint64_t intermediate)
{
    uint32_t gate_up = take(s, tokens * 2 * intermediate * 2);
    uint32_t product = turn(s, gate_up, tokens * intermediate * 2);
    uint32_t down = take_hidden(s, tokens);
    give(s, product);
    return down;
}

/* The smallest block that keeps the experts' padding below their rows. */
static uint64_t choose_rows(const struct flw_serve *s, uint64_t choices)
{
    uint64_t rows = 16;
    while (rows < 128 && rows * s->model->experts < choices) {
        rows *= 2;
    }
    return rows;
}

static uint32_t run_experts(struct flw_serve *s, uint64_t tokens)
{
    const fallow_model *m = s->model;
    uint64_t choices = flw_min(tokens, EXPERT_TOKENS_MAX) * m->top_k;
    uint64_t rows = choose_rows(s, choices);
    uint64_t padded = choices + m->experts * (rows - 1);
    if (choices < m->experts) {
        padded = flw_min(padded, choices * rows);
    }
    uint64_t width = s->expert_intermediate;
    uint32_t order = take(s, padded * 4);
    uint32_t experts = take(s, flw_div_up(padded, rows) * 4);
    uint32_t count = take(s, 4);
    uint32_t first = take(s, choices * flw_max(2 * width, m->hidden) * 2);
    uint32_t second = take(s, choices * width * 2);
    uint32_t sum = take_hidden(s, tokens);
    give(s, second, first, count, experts, order);
    return sum;
}

static uint64_t root(uint64_t x)
{
    uint64_t y = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit > 0; bit /= 2) {
        y += (y + bit) * (y + bit) <= x ? bit : 0;
    }
    return y;
}

/* Of `count` choices those of a share: their mean, and their deviation times a normal number. */
static uint64_t draw_choices(struct flw_gen *gen, uint64_t count, uint64_t share)
{
    uint64_t mean = count * share / FLW_SERVE_SHARE;
    uint64_t deviation = root(mean * (FLW_SERVE_SHARE - share) / FLW_SERVE_SHARE);
    uint64_t sum = 0;
    for (size_t i = 0; i < NORMAL_DRAWS; i++) {
        sum += flw_gen_between(gen, 0, NORMAL_UNIT - 1);
    }
    uint64_t high = mean + deviation * sum / NORMAL_UNIT;
    uint64_t shift = deviation * NORMAL_DRAWS / 2;
    return flw_min(high > shift ? high - shift : 0, count);
}

static uint32_t run_dealt_experts(struct flw_serve *s, uint64_t layer, uint64_t tokens)
{
    const fallow_model *m = s->model;
    uint64_t choices = draw_choices(s->gen, tokens * m->top_k * s->ep, s->shares[layer]);
    uint32_t received = flw_gen_take(s->gen, choices * m->hidden * 2, FLW_SERVE_COPY);
    flw_gen_use(s->gen, received, FLW_SERVE_COMPUTE);
    uint32_t order = take(s, choices * 4);
    uint32_t gate_up = turn(s, received, choices * 2 * s->expert_intermediate * 2);
    uint32_t product = turn(s, gate_up, choices * s->expert_intermediate * 2);
    uint32_t down = take(s, choices * m->hidden * 2);
    give(s, product, order);
    flw_gen_use(s->gen, down, FLW_SERVE_COPY); /* sent back */
    uint32_t sum = flw_gen_take(s->gen, tokens * m->hidden * 2, FLW_SERVE_COMPUTE);
    give(s, down);
    return sum;
}

static uint32_t run_inner(struct flw_serve *s, uint64_t layer, uint64_t tokens, uint32_t normed)
{
    const fallow_model *m = s->model;
    if (m->experts == 0 || layer < m->dense_layers) {
        uint32_t down = run_dense(s, tokens, s->intermediate);
        give(s, normed);
        return down;
    }
    uint32_t shared = FLW_GEN_NO_BLOCK;
    if (m->shared_experts > 0) {
        shared = run_dense(s, tokens, m->shared_experts * m->expert_intermediate / s->tp);
    }
    uint32_t scores = take(s, tokens * m->experts * 2);
    uint32_t weights = take(s, tokens * m->top_k * 4);
    uint32_t ids = turn(s, scores, tokens * m->top_k * 4);
    uint32_t sum = s->ep > 1 ? run_dealt_experts(s, layer, tokens) : run_experts(s, tokens);
    give(s, ids, weights, shared, normed);
    return sum;
}

/* The time that it takes; of a layer with experts, as many of a hundred parts as experts can work. */
static void read_weights(struct flw_serve *s, uint64_t layer, uint64_t tokens)
{
    uint64_t time_ns = flw_serve_weight_bytes(s, layer) / FLW_GEN_BYTES_PER_NS;
    if (s->model->experts > 0) {
        uint64_t working = flw_min(tokens * s->model->top_k, s->model->experts);
        time_ns = time_ns * working / s->model->experts;
    }
    flw_gen_pass(s->gen, time_ns);
}

uint32_t flw_serve_run_layers(struct flw_serve *s, const struct flw_serve_batch *b)
{
    uint32_t residual = take_hidden(s, b->tokens);
    for (uint64_t i = 0; i < s->model->layers && !s->gen->has_failed; i++) {
        uint32_t normed = take_hidden(s, b->tokens);
        uint32_t projection =
            s->model->kv_rank > 0 ? attend_latent(s, b, normed) : attend(s, b, normed);
        normed = take_hidden(s, b->tokens);
        give(s, residual);
        residual = run_inner(s, i, b->tokens, normed);
        give(s, projection);
        read_weights(s, i, b->tokens);
    }
    return residual;
}
