/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/number.h"
#include "fallow/moe.h"
#include "kernel/bed.h"

#define MOST_TOKENS  28
#define MOST_EXPERTS 17
#define MOST_K       5
#define WIDTH        64
#define INNER        48
#define ALIGN        16
#define MOST_ROWS    (MOST_TOKENS * MOST_K + MOST_EXPERTS * ALIGN)

enum {
    WEIGHTS,
    IDS,
    COUNTS,
    OFFSETS,
    POSITIONS,
    M_INDICES,
    SORTED,
    BLOCK_EXPERTS,
    PADDED_COUNT,
    ROWS,
    ACTIVATION,
    OUT
};

/* A layer of experts: routing, and two products an expert that the host makes. */
struct layer {
    fallow_route_params route;
    int32_t count;                    /* tokens that are no padding */
    int32_t experts;                  /* shared ones too */
    float hidden[MOST_TOKENS][WIDTH]; /* rounded to bf16, like all others */
    float logits[MOST_TOKENS][MOST_EXPERTS];
    float bias[MOST_EXPERTS];
    float up[MOST_EXPERTS][2 * INNER][WIDTH]; /* gate, then up */
    float down[MOST_EXPERTS][WIDTH][INNER];
    void *hidden_on_device;
};

static float bf16(double value)
{
    return flw_bf16_widen(flw_bf16_narrow((float)value));
}

static void draw(struct flw_bed *bed, float *values, size_t count, double size)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = bf16(size * ((double)flw_bed_random_below(bed, 2001) / 1000.0 - 1.0));
    }
}

static void *upload_bf16(struct flw_bed *bed, const char *name, const float *values, size_t count)
{
    uint16_t *raw = flw_bed_host(count * 2);
    for (size_t i = 0; i < count; i++) {
        raw[i] = flw_bf16_narrow(values[i]);
    }
    void *buffer = flw_bed_upload(bed, name, raw, count * 2);
    free(raw);
    return buffer;
}

/* ---- the oracle of routing, in double */

/* How many of the others rank before x: equal ones do so by number. */
static int rank_of(const double *values, int count, int x)
{
    int rank = 0;
    for (int i = 0; i < count; i++) {
        rank += values[i] > values[x] || (values[i] == values[x] && i < x);
    }
    return rank;
}

/* Softmax without the divisor, which cancels in the renormalisation. */
static void score_token(const struct layer *layer, int64_t token, double *scores,
                        double *candidates)
{
    bool is_sigmoid = layer->route.score == FALLOW_ROUTE_SIGMOID;
    for (int e = 0; e < layer->route.experts; e++) {
        double x = layer->logits[token][e];
        scores[e] = (double)(float)(is_sigmoid ? 1 / (1 + exp(-x)) : exp(x));
        candidates[e] = (double)(float)(scores[e] + (is_sigmoid ? (double)layer->bias[e] : 0));
    }
}

/* The two largest of each of 4 groups of 4. */
static void sum_groups(const double *candidates, double *sums)
{
    for (int g = 0; g < 4; g++) {
        sums[g] = -1e9;
        for (int a = 0; a < 4; a++) {
            for (int b = 0; b < a; b++) {
                sums[g] = fmax(sums[g], candidates[g * 4 + a] + candidates[g * 4 + b]);
            }
        }
    }
}

static bool is_apart(const double *values, int count)
{
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < i; k++) {
            if (fabs(values[i] - values[k]) < 1e-4) {
                return false;
            }
        }
    }
    return true;
}

/* Does the order of a token's experts hang on no last place of a float? */
static bool is_clear(const struct layer *layer, int64_t token)
{
    double scores[MOST_EXPERTS], candidates[MOST_EXPERTS], sums[4];
    score_token(layer, token, scores, candidates);
    if (layer->route.groups > 1) {
        sum_groups(candidates, sums);
    }
    return is_apart(candidates, layer->route.experts) &&
           (layer->route.groups < 2 || is_apart(sums, 4));
}

/* ---- the layer */

static struct layer *make(struct flw_bed *bed, int64_t tokens, bool is_deepseek)
{
    struct layer *layer = flw_bed_host(sizeof *layer);
    fallow_route_params *route = &layer->route;
    fallow_route_params_init(route);
    route->tokens = tokens;
    route->experts = is_deepseek ? 16 : 8;
    route->top_k = is_deepseek ? 5 : 2;
    route->dtype = FALLOW_BF16;
    route->renormalises = 1;
    if (is_deepseek) {
        route->score = FALLOW_ROUTE_SIGMOID;
        route->groups = 4;
        route->groups_kept = 2;
        route->groups_by_two = 1;
        route->shared = 1;
        route->scale = 2.5f;
        route->leaves_scale = 1;
    }
    layer->experts = route->experts + route->shared;
    layer->count = (int32_t)(tokens - tokens / 4);
    draw(bed, &layer->hidden[0][0], sizeof layer->hidden / 4, 2.0);
    draw(bed, &layer->up[0][0][0], sizeof layer->up / 4, 0.3);
    draw(bed, &layer->down[0][0][0], sizeof layer->down / 4, 0.3);
    draw(bed, layer->bias, MOST_EXPERTS, 0.5);
    for (int64_t t = 0, tries = 0; t < tokens; t += is_clear(layer, t) ? 1 : 0) {
        FLW_EXPECT(bed, ++tries < 10000, "no token is clear");
        draw(bed, layer->logits[t], MOST_EXPERTS, 4.0);
    }
    float packed[MOST_TOKENS * MOST_EXPERTS];
    for (int64_t i = 0; i < tokens * route->experts; i++) {
        packed[i] = layer->logits[i / route->experts][i % route->experts];
    }
    route->logits = upload_bf16(bed, "logits", packed, (size_t)(tokens * route->experts));
    route->token_count = flw_bed_upload(bed, "token_count", &layer->count, 4);
    route->bias = is_deepseek ? flw_bed_upload(bed, "bias", layer->bias, sizeof layer->bias) : NULL;
    layer->hidden_on_device =
        upload_bf16(bed, "hidden", &layer->hidden[0][0], (size_t)tokens * WIDTH);
    return layer;
}

/* ---- the chain */

/* out[row] = matrix[expert of row] in[row], rounded to bf16; NaN in rows that nobody has. */
static void *multiply(struct flw_bed *bed, const struct layer *layer, const int32_t *m_indices,
                      const void *in, bool is_up)
{
    int64_t in_width = is_up ? WIDTH : INNER, out_width = is_up ? 2 * INNER : WIDTH, used = 0;
    while (used < MOST_ROWS && m_indices[used] >= 0) {
        used++;
    }
    uint16_t *raw = flw_bed_host((size_t)(used * in_width) * 2);
    float *out = flw_bed_host((size_t)(MOST_ROWS * out_width) * 4);
    flw_bed_read(bed, raw, in, (size_t)(used * in_width) * 2);
    for (int64_t at = 0; at < MOST_ROWS * out_width; at++) {
        int64_t row = at / out_width, i = at % out_width;
        double sum = row < used ? 0 : NAN;
        for (int64_t k = 0; row < used && k < in_width; k++) {
            const float *matrix =
                is_up ? layer->up[m_indices[row]][i] : layer->down[m_indices[row]][i];
            sum += (double)matrix[k] * (double)flw_bf16_widen(raw[row * in_width + k]);
        }
        out[at] = (float)sum;
    }
    void *buffer = upload_bf16(bed, "product", out, (size_t)(MOST_ROWS * out_width));
    free(raw);
    free(out);
    return buffer;
}

static void sort_ids(struct flw_bed *bed, const struct layer *layer, void *const outputs[])
{
    fallow_expert_counts_params counts;
    fallow_align_blocks_params align;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_expert_counts_params_init(&counts);
    fallow_align_blocks_params_init(&align);
    counts.ids = align.ids = outputs[IDS];
    counts.count = align.count = layer->route.tokens * layer->route.top_k;
    counts.experts = align.experts = layer->experts;
    counts.align = align.block_size = ALIGN;
    counts.rows = align.capacity = MOST_ROWS;
    align.pad = FALLOW_ALIGN_PAD_MINUS_ONE;
    counts.counts = outputs[COUNTS];
    counts.offsets = outputs[OFFSETS];
    counts.positions = outputs[POSITIONS];
    counts.m_indices = outputs[M_INDICES];
    align.sorted_ids = outputs[SORTED];
    align.expert_ids = outputs[BLOCK_EXPERTS];
    align.padded_count = outputs[PADDED_COUNT];
    FLW_EXPECT_OK(bed, fallow_moe_expert_counts(kernels, &counts, flw_bed_stream(bed)));
    FLW_EXPECT_OK(bed, fallow_moe_align_blocks(kernels, &align, flw_bed_stream(bed)));
}

static void run_experts(struct flw_bed *bed, const struct layer *layer, void *const outputs[])
{
    fallow_permute_params permute;
    fallow_silu_and_mul_params silu;
    int32_t m_indices[MOST_ROWS];
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_permute_params_init(&permute);
    permute.in = layer->hidden_on_device;
    permute.positions = outputs[POSITIONS];
    permute.offsets = outputs[OFFSETS];
    permute.counts = outputs[COUNTS];
    permute.out = outputs[ROWS];
    permute.tokens = layer->route.tokens;
    permute.row_count = MOST_ROWS;
    permute.width = WIDTH;
    permute.top_k = layer->route.top_k;
    permute.experts = layer->experts;
    permute.dtype = permute.out_dtype = FALLOW_BF16;
    permute.pad = FALLOW_PERMUTE_PAD_ZERO;
    FLW_EXPECT_OK(bed, fallow_moe_permute(kernels, &permute, flw_bed_stream(bed)));
    flw_bed_read(bed, m_indices, outputs[M_INDICES], sizeof m_indices);
    fallow_silu_and_mul_params_init(&silu);
    silu.in = multiply(bed, layer, m_indices, outputs[ROWS], true);
    silu.out = outputs[ACTIVATION];
    silu.rows = MOST_ROWS;
    silu.width = INNER;
    silu.dtype = silu.out_dtype = FALLOW_BF16;
    FLW_EXPECT_OK(bed, fallow_moe_silu_and_mul(kernels, &silu, flw_bed_stream(bed)));
    fallow_combine_params combine;
    fallow_combine_params_init(&combine);
    combine.rows = multiply(bed, layer, m_indices, outputs[ACTIVATION], false);
    combine.weights = outputs[WEIGHTS];
    combine.positions = outputs[POSITIONS];
    combine.out = outputs[OUT];
    combine.tokens = layer->route.tokens;
    combine.row_count = MOST_ROWS;
    combine.width = WIDTH;
    combine.top_k = layer->route.top_k;
    combine.scale = layer->route.leaves_scale ? layer->route.scale : 0.0f;
    combine.dtype = FALLOW_BF16;
    FLW_EXPECT_OK(bed, fallow_moe_combine(kernels, &combine, flw_bed_stream(bed)));
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    const struct layer *layer = inputs;
    fallow_route_params route = layer->route;
    route.weights = outputs[WEIGHTS];
    route.ids = outputs[IDS];
    FLW_EXPECT_OK(bed, fallow_moe_route(flw_bed_kernels(bed), &route, flw_bed_stream(bed)));
    sort_ids(bed, layer, outputs);
    run_experts(bed, layer, outputs);
}

static struct flw_bed_step step_of(struct layer *layer)
{
    size_t tokens = (size_t)layer->route.tokens, choices = tokens * (size_t)layer->route.top_k;
    size_t experts = (size_t)layer->experts;
    struct flw_bed_step step = {
        .inputs = layer,
        .launch = launch,
        .output_count = OUT + 1,
        .names = {"weights", "ids", "counts", "offsets", "positions", "m_indices", "sorted_ids",
                  "expert_ids", "padded_count", "rows", "activation", "out"},
        .buffer_bytes = {choices * 4, choices * 4, experts * 4, experts * 4 + 4, choices * 4,
                         (size_t)MOST_ROWS * 4, (size_t)MOST_ROWS * 4,
                         (size_t)(MOST_ROWS + ALIGN - 1) / ALIGN * 4, 4,
                         (size_t)MOST_ROWS * WIDTH * 2, (size_t)MOST_ROWS * INNER * 2,
                         tokens * WIDTH * 2}};
    memcpy(step.declared_bytes, step.buffer_bytes, sizeof step.buffer_bytes);
    step.declared_bytes[ROWS] = 0; /* ends at a length on the device */
    return step;
}

/* ---- the oracle: every token through every expert, in double */

static void add_expert(const struct layer *layer, int64_t token, int expert, double weight,
                       double *out)
{
    double inner[INNER];
    for (int i = 0; i < INNER; i++) {
        double gate = 0, up = 0;
        for (int k = 0; k < WIDTH; k++) {
            gate += (double)layer->up[expert][i][k] * (double)layer->hidden[token][k];
            up += (double)layer->up[expert][INNER + i][k] * (double)layer->hidden[token][k];
        }
        inner[i] = gate / (1 + exp(-gate)) * up;
    }
    for (int i = 0; i < WIDTH; i++) {
        for (int k = 0; k < INNER; k++) {
            out[i] += weight * (double)layer->down[expert][i][k] * inner[k];
        }
    }
}

static void expect_token(const struct layer *layer, int64_t token, double *out)
{
    const fallow_route_params *route = &layer->route;
    double scores[MOST_EXPERTS], candidates[MOST_EXPERTS], sum = 0;
    double sums[4];
    score_token(layer, token, scores, candidates);
    if (route->groups > 1) {
        sum_groups(candidates, sums);
        for (int e = 0; e < route->experts; e++) {
            candidates[e] = rank_of(sums, 4, e / 4) < 2 ? candidates[e] : -1e9;
        }
    }
    for (int e = 0; e < route->experts; e++) {
        bool is_chosen = rank_of(candidates, route->experts, e) < route->top_k - route->shared;
        scores[e] = is_chosen ? scores[e] : 0;
        sum += scores[e];
    }
    double scale = route->scale == 0.0f ? 1.0 : (double)route->scale;
    for (int e = 0; e < layer->experts; e++) {
        double weight = e >= route->experts ? 1 : scores[e] / sum * scale;
        if (weight > 0) {
            add_expert(layer, token, e, weight, out);
        }
    }
}

static void compare(struct flw_bed *bed, const struct layer *layer, const uint16_t *out)
{
    for (int64_t token = 0; token < layer->route.tokens; token++) {
        double want[WIDTH] = {0}, error = 0, size = 0;
        if (token < layer->count) {
            expect_token(layer, token, want);
        }
        for (int i = 0; i < WIDTH; i++) {
            double got = flw_bf16_widen(out[token * WIDTH + i]);
            error += (got - want[i]) * (got - want[i]);
            size += want[i] * want[i];
        }
        FLW_EXPECT(bed, sqrt(error) <= 1e-2 * sqrt(size), "token %lld: error %g of %g",
                   (long long)token, sqrt(error), sqrt(size));
    }
}

/* Blocks and positions are two descriptions of one order. */
static void compare_orders(struct flw_bed *bed, const struct layer *layer, void *const out[])
{
    const int32_t *positions = out[POSITIONS], *sorted = out[SORTED], *m_indices = out[M_INDICES];
    int32_t padded_count = *(int32_t *)out[PADDED_COUNT];
    for (int32_t i = 0; i < layer->route.tokens * layer->route.top_k; i++) {
        FLW_EXPECT(bed, positions[i] < 0 || sorted[positions[i]] == i,
                   "choice %d has position %d, where %d is sorted", i, positions[i],
                   sorted[positions[i]]);
    }
    for (int32_t row = 0; row < MOST_ROWS; row++) {
        FLW_EXPECT(bed, m_indices[row] == ((int32_t *)out[BLOCK_EXPERTS])[row / ALIGN],
                   "row %d of %d: another expert than its block", row, padded_count);
    }
    FLW_EXPECT(bed, padded_count == ((int32_t *)out[OFFSETS])[layer->experts], "padded_count");
}

static void check(struct flw_bed *bed, int64_t tokens, bool is_deepseek)
{
    struct layer *layer = make(bed, tokens, is_deepseek);
    struct layer *larger = make(bed, MOST_TOKENS, is_deepseek);
    struct layer *smaller = make(bed, tokens / 2, is_deepseek);
    struct flw_bed_step step = step_of(layer), before = step_of(larger), after = step_of(smaller);
    void *out[OUT + 1];
    for (int o = 0; o <= OUT; o++) {
        out[o] = flw_bed_host(step.declared_bytes[o]);
    }
    flw_bed_prove(bed, &step, &before, &after, out);
    compare(bed, layer, out[OUT]);
    compare_orders(bed, layer, out);
    for (int o = 0; o <= OUT; o++) {
        free(out[o]);
    }
    free(layer);
    free(larger);
    free(smaller);
}

static void a_layer_by_softmax_is_the_dense_loop(struct flw_bed *bed)
{
    static const int64_t tokens[] = {0, 1, 7, 24};
    for (int t = 0; t < 4; t++) {
        check(bed, tokens[t], false);
    }
}

static void a_layer_by_groups_with_a_shared_expert_is_the_dense_loop(struct flw_bed *bed)
{
    static const int64_t tokens[] = {0, 1, 7, 24};
    for (int t = 0; t < 4; t++) {
        check(bed, tokens[t], true);
    }
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(a_layer_by_softmax_is_the_dense_loop),
        FLW_BED_TEST(a_layer_by_groups_with_a_shared_expert_is_the_dense_loop),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
