/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of each form of a layer of experts, run by the kernel modules in the regions of the ready
 * layout: all forms produce the same, which is close to a dense loop over the experts in double,
 * whatever the arena held before. Sums of four elements, different for each expert, replace the
 * two products. */
#include <math.h>
#include <string.h>

#include "common/number.h"
#include "fallow/moe.h"
#include "kernel/leased.h"

enum {
    MOST_TOKENS = 24,
    MOST_EXPERTS = 17,
    HIDDEN = 128,
    INNER = 128,
    GATE = 2 * INNER, /* a row of gate and up */
    GROUP = 128,      /* values that share a scale */
    BLOCK = 8,        /* rows of the Triton product */
    ALIGN = 128,      /* of contiguous rows */
    MOST_ROWS = 8192  /* of any form */
};

enum form {
    TRITON,
    CONTIGUOUS,
    MASKED
};

/* The common inputs of all forms, and the buffers of each. */
struct layer {
    enum form form;
    bool quantises, is_in_place;
    fallow_model model;
    fallow_route_params route;
    int32_t count; /* tokens that are no padding */
    float hidden[MOST_TOKENS * HIDDEN], logits[MOST_TOKENS * MOST_EXPERTS], bias[MOST_EXPERTS];
    const void *device_hidden;
    const int32_t *row_count; /* of the choices that are no padding */
    int32_t *counts;          /* tokens of each expert; in no region */
    uint16_t out[MOST_TOKENS * HIDDEN];
};

/* Draw values that BF16 holds. */
static void draw(struct flw_bed *bed, float *values, size_t count, double size)
{
    for (size_t i = 0; i < count; i++) {
        double value = size * ((double)flw_bed_random_below(bed, 2001) / 1000.0 - 1.0);
        values[i] = flw_bf16_widen(flw_bf16_narrow((float)value));
    }
}

static void *upload_bf16(struct flw_bed *bed, const char *name, const float *values, int64_t count)
{
    uint16_t *raw = flw_bed_memory(bed, (size_t)count * 2);
    for (int64_t i = 0; i < count; i++) {
        raw[i] = flw_bf16_narrow(values[i]);
    }
    return flw_bed_upload(bed, name, raw, (size_t)count * 2);
}

/* ---- the oracle of routing, in double */

/* Return the number of values that rank before number x; equal values rank by number. */
static int rank_of(const double *values, int count, int x)
{
    int rank = 0;
    for (int i = 0; i < count; i++) {
        rank += values[i] > values[x] || (values[i] == values[x] && i < x);
    }
    return rank;
}

/* Softmax without the divisor, which cancels in the renormalisation; and the two largest of each of
 * 4 groups of 4. */
static void score_token(const struct layer *layer, int64_t token, double *scores,
                        double *candidates, double *sums)
{
    bool is_sigmoid = layer->route.score == FALLOW_ROUTE_SIGMOID;
    for (int e = 0; e < layer->route.experts; e++) {
        double x = layer->logits[token * layer->route.experts + e];
        scores[e] = (double)(float)(is_sigmoid ? 1 / (1 + exp(-x)) : exp(x));
        candidates[e] = (double)(float)(scores[e] + (is_sigmoid ? (double)layer->bias[e] : 0));
    }
    for (int g = 0; g < 4; g++) {
        sums[g] = -1e9 * (g + 1);
        for (int pair = 0; layer->route.groups == 4 && pair < 16; pair++) {
            int a = g * 4 + pair / 4, b = g * 4 + pair % 4;
            sums[g] = a > b ? fmax(sums[g], candidates[a] + candidates[b]) : sums[g];
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

/* True if rounding cannot change the order of the token's experts. */
static bool is_clear(const struct layer *layer, int64_t token)
{
    double scores[MOST_EXPERTS], candidates[MOST_EXPERTS], sums[4];
    score_token(layer, token, scores, candidates, sums);
    return is_apart(candidates, layer->route.experts) && is_apart(sums, 4);
}

/* ---- products */

/* Return element i of an expert's product with a row. */
static double product_of(const double *row, int32_t width, int32_t expert, int32_t i)
{
    double sum = 0;
    for (int32_t j = 0; j < 4; j++) {
        sum += row[(i * 5 + expert * 11 + j * 29) % width] *
               ((expert * 7 + i * 3 + j * 5) % 9 - 4) / 4.0;
    }
    return sum;
}

struct product {
    const void *in;
    const float *scales; /* of E4M3; NULL: BF16 */
    void *out;
    int64_t in_stride; /* elements */
    int32_t in_width, out_width;
    int32_t rows_of_in; /* rows of out to one of in */
};

/* Rows that no expert has (-1) are neither read nor written. */
static void multiply(struct flw_bed *bed, const struct product *product, const int32_t *experts,
                     int64_t rows)
{
    fallow_dtype dtype = product->scales == NULL ? FALLOW_BF16 : FALLOW_E4M3;
    size_t each = fallow_dtype_bytes(dtype), groups = (size_t)product->in_width / GROUP;
    for (int64_t row = 0; row < rows; row++) {
        unsigned char raw[GATE * 2];
        float scales[GATE / GROUP] = {1.0f, 1.0f};
        double in[GATE];
        uint16_t out[GATE];
        int64_t from = row / product->rows_of_in;
        if (experts[row] < 0) {
            continue;
        }
        flw_bed_read(bed, raw,
                     (const char *)product->in + (size_t)(from * product->in_stride) * each,
                     (size_t)product->in_width * each);
        if (product->scales != NULL) {
            flw_bed_read(bed, scales, product->scales + (size_t)from * groups, groups * 4);
        }
        for (int32_t i = 0; i < product->in_width; i++) {
            in[i] = flw_number_widen(raw + (size_t)i * each, dtype) * scales[i / GROUP];
        }
        for (int32_t i = 0; i < product->out_width; i++) {
            out[i] = flw_bf16_narrow((float)product_of(in, product->in_width, experts[row], i));
        }
        flw_bed_write(bed, (uint16_t *)product->out + row * product->out_width, out,
                      (size_t)product->out_width * 2);
    }
}

/* ---- the oracle: every token through every expert, in double */

static void add_expert(const struct layer *layer, int64_t token, int expert, double weight,
                       double *out)
{
    double row[HIDDEN], inner[INNER];
    for (int i = 0; i < HIDDEN; i++) {
        row[i] = layer->hidden[token * HIDDEN + i];
    }
    for (int i = 0; i < INNER; i++) {
        double gate = product_of(row, HIDDEN, expert, i);
        inner[i] = gate / (1 + exp(-gate)) * product_of(row, HIDDEN, expert, INNER + i);
    }
    for (int i = 0; i < HIDDEN; i++) {
        out[i] += weight * product_of(inner, INNER, expert, i);
    }
}

static void expect_token(const struct layer *layer, int64_t token, double *out)
{
    const fallow_route_params *route = &layer->route;
    double scores[MOST_EXPERTS], candidates[MOST_EXPERTS], sums[4], sum = 0;
    score_token(layer, token, scores, candidates, sums);
    for (int e = 0; e < route->experts; e++) {
        bool is_kept = route->groups < 2 || rank_of(sums, 4, e / 4) < 2;
        candidates[e] = is_kept ? candidates[e] : -1e9;
    }
    for (int e = 0; e < route->experts; e++) {
        bool is_chosen = rank_of(candidates, route->experts, e) < route->top_k - route->shared;
        scores[e] = is_chosen ? scores[e] : 0;
        sum += scores[e];
    }
    double scale = route->scale == 0.0f ? 1.0 : (double)route->scale;
    for (int e = 0; e < route->experts + route->shared; e++) {
        double weight = e >= route->experts ? 1 : scores[e] / sum * scale;
        if (weight > 0) {
            add_expert(layer, token, e, weight, out);
        }
    }
}

/* Padding is 0; other tokens are as close as the roundings between the modules permit. */
static void compare(struct flw_bed *bed, const struct layer *layer)
{
    for (int64_t token = 0; token < layer->route.tokens; token++) {
        double want[HIDDEN] = {0}, error = 0, size = 0;
        if (token < layer->count) {
            expect_token(layer, token, want);
        }
        for (int i = 0; i < HIDDEN; i++) {
            double got = flw_bf16_widen(layer->out[token * HIDDEN + i]);
            error += (got - want[i]) * (got - want[i]);
            size += want[i] * want[i];
        }
        FLW_EXPECT(bed, sqrt(error) <= (layer->quantises ? 0.1 : 0.01) * sqrt(size),
                   "token %lld: error %g of %g", (long long)token, sqrt(error), sqrt(size));
    }
}

/* ---- the order of rows */

static void run_route(const struct flw_leased *run)
{
    const struct layer *layer = run->inputs;
    fallow_route_params params = layer->route;
    params.weights = flw_leased_claim(run, "topk_weights");
    params.ids = flw_leased_claim(run, "topk_ids");
    FLW_LAUNCH(run->bed, fallow_moe_route, &params);
    flw_leased_note_all(run, "topk_weights");
    flw_leased_note_all(run, "topk_ids");
}

static void run_align_blocks(const struct flw_leased *run, int32_t *experts)
{
    const struct layer *layer = run->inputs;
    fallow_align_blocks_params params;
    fallow_align_blocks_params_init(&params);
    params.ids = flw_leased_region(run, "topk_ids");
    params.sorted_ids = flw_leased_claim(run, "sorted_token_ids");
    params.expert_ids = flw_leased_claim(run, "expert_ids");
    params.padded_count = flw_leased_claim(run, "num_tokens_post_pad");
    params.count = layer->route.tokens * layer->route.top_k;
    params.capacity = (int64_t)flw_leased_bytes(run, "sorted_token_ids") / 4;
    params.experts = (int32_t)layer->model.experts;
    params.block_size = BLOCK;
    params.pad = FALLOW_ALIGN_PAD_MINUS_ONE;
    FLW_LAUNCH(run->bed, fallow_moe_align_blocks, &params);
    const int32_t *sorted = flw_leased_note_all(run, "sorted_token_ids");
    const int32_t *blocks = flw_leased_note_all(run, "expert_ids");
    const int32_t *padded_count = flw_leased_note_all(run, "num_tokens_post_pad");
    for (int32_t slot = 0; slot < *padded_count; slot++) {
        if (sorted[slot] < params.count) {
            experts[sorted[slot]] = blocks[slot / BLOCK];
        }
    }
}

static void run_expert_counts(const struct flw_leased *run, int64_t rows, int32_t *experts)
{
    const struct layer *layer = run->inputs;
    fallow_expert_counts_params params;
    int64_t room = rows / (int64_t)layer->model.experts;
    fallow_expert_counts_params_init(&params);
    params.ids = flw_leased_region(run, "topk_ids");
    params.positions = flw_leased_claim(run, "positions");
    params.count = layer->route.tokens * layer->route.top_k;
    params.experts = (int32_t)layer->model.experts;
    if (layer->form == MASKED) {
        params.masked_m = flw_leased_claim(run, "masked_m");
        params.masked_rows = room;
        params.masked_positions = 1;
    } else {
        params.counts = layer->counts;
        params.offsets = flw_leased_claim(run, "expert_offsets");
        params.m_indices = flw_leased_claim(run, "m_indices");
        params.rows = rows;
        params.align = ALIGN;
    }
    flw_bed_forget(run->bed, layer->counts, sizeof(int32_t) * MOST_EXPERTS);
    FLW_LAUNCH(run->bed, fallow_moe_expert_counts, &params);
    flw_leased_note_all(run, "positions");
    if (layer->form == MASKED) {
        const int32_t *masked = flw_leased_note_all(run, "masked_m");
        for (int64_t row = 0; row < rows; row++) {
            experts[row] = row % room < masked[row / room] ? (int32_t)(row / room) : -1;
        }
    } else {
        flw_leased_note_all(run, "expert_offsets");
        memcpy(experts, flw_leased_note_all(run, "m_indices"), (size_t)rows * 4);
    }
}

static void run_permute(const struct flw_leased *run, int64_t rows)
{
    const struct layer *layer = run->inputs;
    fallow_permute_params params;
    fallow_permute_params_init(&params);
    params.in = layer->device_hidden;
    params.positions = flw_leased_region(run, "positions");
    params.out = flw_leased_claim(run, "permuted");
    params.scales = layer->quantises ? flw_leased_claim(run, "permuted_scales") : NULL;
    params.tokens = layer->route.tokens;
    params.row_count = rows;
    params.width = HIDDEN;
    params.top_k = layer->route.top_k;
    params.experts = (int32_t)layer->model.experts;
    params.dtype = FALLOW_BF16;
    params.out_dtype = layer->quantises ? FALLOW_E4M3 : FALLOW_BF16;
    params.pad = FALLOW_PERMUTE_PAD_SKIP;
    if (layer->form == CONTIGUOUS) { /* the product computes these rows, too */
        params.pad = FALLOW_PERMUTE_PAD_ZERO;
        params.offsets = flw_leased_region(run, "expert_offsets");
        params.counts = layer->counts;
    }
    FLW_LAUNCH(run->bed, fallow_moe_permute, &params);
}

/* ---- the experts */

/* Rows that the first product has not written are not read; their number is in device memory. */
static void run_activation(const struct flw_leased *run, int64_t rows)
{
    const struct layer *layer = run->inputs;
    fallow_silu_and_mul_params params;
    fallow_silu_and_mul_params_init(&params);
    params.in = flw_leased_region(run, "gate_and_up");
    params.out =
        layer->is_in_place ? (void *)(uintptr_t)params.in : flw_leased_claim(run, "activation");
    params.out_stride = layer->is_in_place ? GATE : INNER;
    params.scales = layer->quantises ? flw_leased_claim(run, "activation_scales") : NULL;
    params.rows = rows;
    params.width = INNER;
    params.dtype = FALLOW_BF16;
    params.out_dtype = layer->quantises ? FALLOW_E4M3 : FALLOW_BF16;
    if (layer->form == MASKED) {
        params.group_rows = rows / (int64_t)layer->model.experts;
        params.row_counts = flw_leased_region(run, "masked_m");
    } else if (layer->form == CONTIGUOUS) {
        params.row_counts =
            (const int32_t *)flw_leased_region(run, "expert_offsets") + layer->model.experts;
    } else {
        params.row_counts = layer->row_count;
    }
    FLW_LAUNCH(run->bed, fallow_moe_silu_and_mul, &params);
}

static void run_products(const struct flw_leased *run, const int32_t *experts, int64_t rows)
{
    const struct layer *layer = run->inputs;
    bool is_triton = layer->form == TRITON;
    struct product first = {.out = flw_leased_claim(run, "gate_and_up"),
                            .in_stride = HIDDEN,
                            .in_width = HIDDEN,
                            .out_width = GATE,
                            .rows_of_in = is_triton ? layer->route.top_k : 1};
    first.in = is_triton ? layer->device_hidden : flw_leased_region(run, "permuted");
    first.scales = layer->quantises ? flw_leased_region(run, "permuted_scales") : NULL;
    multiply(run->bed, &first, experts, rows);
    run_activation(run, rows);
    struct product second = {.out = flw_leased_claim(run, "down"),
                             .in_stride = layer->is_in_place ? GATE : INNER,
                             .in_width = INNER,
                             .out_width = HIDDEN,
                             .rows_of_in = 1};
    second.in = flw_leased_region(run, layer->is_in_place ? "gate_and_up" : "activation");
    second.scales = layer->quantises ? flw_leased_region(run, "activation_scales") : NULL;
    multiply(run->bed, &second, experts, rows);
}

static void run_combine(const struct flw_leased *run, int64_t rows)
{
    const struct layer *layer = run->inputs;
    fallow_combine_params params;
    fallow_combine_params_init(&params);
    params.rows = flw_leased_region(run, "down");
    params.weights = flw_leased_region(run, "topk_weights");
    params.positions = layer->form == TRITON ? NULL : flw_leased_region(run, "positions");
    params.out = flw_leased_claim(run, "out");
    params.tokens = layer->route.tokens;
    params.row_count = rows;
    params.width = HIDDEN;
    params.top_k = layer->route.top_k;
    params.scale = layer->route.leaves_scale ? layer->route.scale : 0.0f;
    params.dtype = FALLOW_BF16;
    FLW_LAUNCH(run->bed, fallow_moe_combine, &params);
}

static void run_layer(struct flw_leased *run)
{
    struct layer *layer = run->inputs;
    int64_t rows = (int64_t)flw_leased_bytes(run, "gate_and_up") / (GATE * 2);
    int32_t experts[MOST_ROWS];
    FLW_EXPECT(run->bed, rows <= MOST_ROWS, "%lld rows", (long long)rows);
    memset(experts, 0xff, sizeof experts);
    run_route(run);
    if (layer->form == TRITON) {
        run_align_blocks(run, experts);
    } else {
        run_expert_counts(run, rows, experts);
        run_permute(run, rows);
    }
    run_products(run, experts, rows);
    run_combine(run, rows);
    memcpy(layer->out, flw_leased_note_all(run, "out"), (size_t)layer->route.tokens * HIDDEN * 2);
    compare(run->bed, layer);
}

/* ---- tests */

static struct layer *make(struct flw_bed *bed, int64_t tokens, int32_t count, bool is_deepseek)
{
    struct layer *layer = flw_bed_memory(bed, sizeof *layer);
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
    layer->model = (fallow_model){.name = "small",
                                  .layers = 1,
                                  .hidden = HIDDEN,
                                  .heads = 2,
                                  .kv_heads = 2,
                                  .head_dim = 16,
                                  .intermediate = 64,
                                  .vocab = 64,
                                  .experts = (uint32_t)(route->experts + route->shared),
                                  .top_k = (uint32_t)route->top_k,
                                  .expert_intermediate = INNER,
                                  .weight_bytes = 2};
    layer->count = count;
    int32_t row_count = count * route->top_k;
    draw(bed, layer->hidden, (size_t)tokens * HIDDEN, 2.0);
    draw(bed, layer->bias, MOST_EXPERTS, 0.5);
    for (int64_t t = 0, tries = 0; t < tokens; t += is_clear(layer, t) ? 1 : 0) {
        FLW_EXPECT(bed, ++tries < 10000, "no token is clear");
        draw(bed, layer->logits + t * route->experts, (size_t)route->experts, 4.0);
    }
    route->logits = upload_bf16(bed, "logits", layer->logits, tokens * route->experts);
    route->token_count = flw_bed_upload(bed, "token_count", &count, 4);
    route->bias = is_deepseek ? flw_bed_upload(bed, "bias", layer->bias, sizeof layer->bias) : NULL;
    layer->device_hidden = upload_bf16(bed, "hidden", layer->hidden, tokens * HIDDEN);
    layer->row_count = flw_bed_upload(bed, "row_count", &row_count, 4);
    layer->counts = flw_bed_buffer(bed, "counts", sizeof(int32_t) * MOST_EXPERTS);
    return layer;
}

static struct flw_leased_step step_of(struct layer *layer)
{
    static const fallow_layout_function makers[] = {
        fallow_layout_moe_triton, fallow_layout_moe_contiguous, fallow_layout_moe_masked};
    struct flw_leased_step step = {
        .make = makers[layer->form], .model = &layer->model, .inputs = layer, .run = run_layer};
    fallow_step_init(&step.sizes);
    step.sizes.tokens = (uint64_t)layer->route.tokens;
    step.sizes.block_rows = BLOCK;
    step.sizes.quantises = layer->quantises ? 1 : 0;
    step.sizes.activates_in_place = layer->is_in_place ? 1 : 0;
    return step;
}

/* Run a step after a larger and a smaller one, in each form; all forms have the same result. Forms
 * that activate in place are compared without groups, and by values only. */
static void check(struct flw_bed *bed, bool is_deepseek, bool quantises)
{
    struct layer *layers[3] = {make(bed, 9, 7, is_deepseek),
                               make(bed, MOST_TOKENS, 20, is_deepseek),
                               make(bed, 3, 1, is_deepseek)};
    uint16_t want[MOST_TOKENS * HIDDEN];
    for (int k = quantises ? 2 : 0; k < 6; k += quantises || is_deepseek ? 2 : 1) {
        struct flw_leased_step steps[3];
        for (int i = 0; i < 3; i++) {
            layers[i]->form = (enum form)(k / 2);
            layers[i]->is_in_place = k % 2 == 1;
            layers[i]->quantises = quantises;
            steps[i] = step_of(layers[i]);
        }
        flw_leased_prove(bed, &steps[0], &steps[1], &steps[2], NULL);
        if (k == (quantises ? 2 : 0)) {
            memcpy(want, layers[0]->out, sizeof want);
        }
        FLW_EXPECT(bed, memcmp(layers[0]->out, want, (size_t)9 * HIDDEN * 2) == 0,
                   "form %d differs", k);
    }
}

FLW_TEST(a_layer_by_softmax_is_the_dense_loop_in_every_form)
{
    check(bed, false, false);
}

FLW_TEST(a_layer_by_groups_with_a_shared_expert_is_the_dense_loop_in_every_form)
{
    check(bed, true, false);
}

FLW_TEST(a_layer_in_fp8_is_close_to_the_dense_loop_in_both_forms)
{
    check(bed, false, true);
}
