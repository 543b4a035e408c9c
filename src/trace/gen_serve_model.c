/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a model's weights on one rank, and how much its experts are asked for. Attention and inner
 * layers are cut in `tp` parts, experts are dealt to `ep` ranks.
 */
#include "trace/gen_serve.h"

#include "base/bits.h"

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
