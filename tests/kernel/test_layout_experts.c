/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of each form of a layer of experts, run by the kernel modules in the regions of the ready
 * layout: previous contents of the arena have no effect, and all forms produce the same. A
 * selection of elements, different for each expert, replaces the two products. */
#include <string.h>

#include "common/number.h"
#include "fallow/moe.h"
#include "kernel/leased.h"

enum {
    MOST_TOKENS = 24,
    EXPERTS = 4,
    TOP_K = 2,
    HIDDEN = 128,
    INNER = 128,
    GATE = 2 * INNER, /* a row of gate and up */
    GROUP = 128,      /* values that share a scale */
    BLOCK = 8,        /* rows of the Triton product */
    ALIGN = 128,      /* of contiguous rows */
    MOST_ROWS = 1024  /* of any form */
};

static const fallow_model model = {.name = "small",
                                   .layers = 1,
                                   .hidden = HIDDEN,
                                   .heads = 2,
                                   .kv_heads = 2,
                                   .head_dim = 16,
                                   .intermediate = 64,
                                   .vocab = 64,
                                   .experts = EXPERTS,
                                   .top_k = TOP_K,
                                   .expert_intermediate = INNER,
                                   .weight_bytes = 2};

enum form {
    TRITON,
    CONTIGUOUS,
    MASKED
};

/* The common inputs of all forms, and the buffers of each. */
struct layer {
    enum form form;
    bool quantises, is_in_place;
    int64_t tokens;
    int32_t count; /* tokens that are no padding */
    const void *hidden, *logits, *token_count;
    const int32_t *row_count; /* of the choices that are no padding */
    int32_t *counts;          /* tokens of each expert; in no region */
    uint16_t out[MOST_TOKENS * HIDDEN];
};

static const void *upload_random(struct flw_bed *bed, const char *name, size_t count)
{
    uint16_t raw[MOST_TOKENS * HIDDEN];
    for (size_t i = 0; i < count; i++) {
        raw[i] = flw_bf16_narrow((float)flw_bed_random_below(bed, 4001) / 1000.0f - 2.0f);
    }
    return flw_bed_upload(bed, name, raw, count * 2);
}

static struct layer make_layer(struct flw_bed *bed, int64_t tokens, int32_t count)
{
    int32_t row_count = count * TOP_K;
    return (struct layer){.tokens = tokens,
                          .count = count,
                          .hidden = upload_random(bed, "hidden", (size_t)tokens * HIDDEN),
                          .logits = upload_random(bed, "logits", (size_t)tokens * EXPERTS),
                          .token_count = flw_bed_upload(bed, "token_count", &count, 4),
                          .row_count = flw_bed_upload(bed, "row_count", &row_count, 4),
                          .counts = flw_bed_buffer(bed, "counts", (size_t)EXPERTS * 4)};
}

/* ---- products */

struct product {
    const void *in;
    const float *scales; /* of E4M3; NULL: BF16 */
    void *out;
    int64_t in_stride; /* elements */
    int32_t in_width, out_width;
    int32_t rows_of_in; /* rows of out to one of in */
};

static float scaled(const struct product *product, const unsigned char *raw, const float *scales,
                    int32_t i)
{
    return product->scales == NULL
               ? flw_number_widen(raw + (size_t)i * 2, FALLOW_BF16)
               : flw_number_widen(raw + (size_t)i, FALLOW_E4M3) * scales[i / GROUP];
}

/* Rows that no expert has (-1) are neither read nor written. */
static void multiply(struct flw_bed *bed, const struct product *product, const int32_t *experts,
                     int64_t rows)
{
    size_t each = product->scales == NULL ? 2 : 1, groups = (size_t)product->in_width / GROUP;
    for (int64_t row = 0; row < rows; row++) {
        unsigned char raw[GATE * 2];
        float scales[GATE / GROUP] = {0};
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
        for (int32_t i = 0; i < product->out_width; i++) {
            int32_t k = (i * 5 + experts[row] * 11) % product->in_width;
            out[i] = flw_bf16_narrow(scaled(product, raw, scales, k));
        }
        flw_bed_write(bed, (uint16_t *)product->out + row * product->out_width, out,
                      (size_t)product->out_width * 2);
    }
}

/* ---- the order of rows */

static void run_align_blocks(const struct flw_leased *run, int32_t *experts)
{
    const struct layer *layer = run->inputs;
    fallow_align_blocks_params params;
    fallow_align_blocks_params_init(&params);
    params.ids = flw_leased_region(run, "topk_ids");
    params.sorted_ids = flw_leased_claim(run, "sorted_token_ids");
    params.expert_ids = flw_leased_claim(run, "expert_ids");
    params.padded_count = flw_leased_claim(run, "num_tokens_post_pad");
    params.count = layer->tokens * TOP_K;
    params.capacity = (int64_t)flw_leased_bytes(run, "sorted_token_ids") / 4;
    params.experts = EXPERTS;
    params.block_size = BLOCK;
    params.pad = FALLOW_ALIGN_PAD_MINUS_ONE;
    FLW_EXPECT_OK(run->bed, fallow_moe_align_blocks(flw_bed_kernels(run->bed), &params,
                                                    flw_bed_stream(run->bed)));
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
    bool is_masked = layer->form == MASKED;
    fallow_expert_counts_params params;
    fallow_expert_counts_params_init(&params);
    params.ids = flw_leased_region(run, "topk_ids");
    params.positions = flw_leased_claim(run, "positions");
    params.count = layer->tokens * TOP_K;
    params.experts = EXPERTS;
    if (is_masked) {
        params.masked_m = flw_leased_claim(run, "masked_m");
        params.masked_rows = rows / EXPERTS;
        params.masked_positions = 1;
    } else {
        params.counts = layer->counts;
        params.offsets = flw_leased_claim(run, "expert_offsets");
        params.m_indices = flw_leased_claim(run, "m_indices");
        params.rows = rows;
        params.align = ALIGN;
    }
    FLW_EXPECT_OK(run->bed, fallow_moe_expert_counts(flw_bed_kernels(run->bed), &params,
                                                     flw_bed_stream(run->bed)));
    flw_leased_note_all(run, "positions");
    if (is_masked) {
        const int32_t *masked = flw_leased_note_all(run, "masked_m");
        for (int64_t row = 0; row < rows; row++) {
            int64_t room = rows / EXPERTS;
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
    params.in = layer->hidden;
    params.positions = flw_leased_region(run, "positions");
    params.out = flw_leased_claim(run, "permuted");
    params.scales = layer->quantises ? flw_leased_claim(run, "permuted_scales") : NULL;
    params.tokens = layer->tokens;
    params.row_count = rows;
    params.width = HIDDEN;
    params.top_k = TOP_K;
    params.experts = EXPERTS;
    params.dtype = FALLOW_BF16;
    params.out_dtype = layer->quantises ? FALLOW_E4M3 : FALLOW_BF16;
    params.pad = FALLOW_PERMUTE_PAD_SKIP;
    if (layer->form == CONTIGUOUS) { /* the product computes these rows, too */
        params.pad = FALLOW_PERMUTE_PAD_ZERO;
        params.offsets = flw_leased_region(run, "expert_offsets");
        params.counts = layer->counts;
    }
    FLW_EXPECT_OK(run->bed,
                  fallow_moe_permute(flw_bed_kernels(run->bed), &params, flw_bed_stream(run->bed)));
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
        params.group_rows = rows / EXPERTS;
        params.row_counts = flw_leased_region(run, "masked_m");
    } else if (layer->form == CONTIGUOUS) {
        params.row_counts = (const int32_t *)flw_leased_region(run, "expert_offsets") + EXPERTS;
    } else {
        params.row_counts = layer->row_count;
    }
    FLW_EXPECT_OK(run->bed, fallow_moe_silu_and_mul(flw_bed_kernels(run->bed), &params,
                                                    flw_bed_stream(run->bed)));
}

static void run_products(const struct flw_leased *run, const int32_t *experts, int64_t rows)
{
    const struct layer *layer = run->inputs;
    bool is_triton = layer->form == TRITON;
    struct product first = {.in = is_triton ? layer->hidden : flw_leased_region(run, "permuted"),
                            .out = flw_leased_claim(run, "gate_and_up"),
                            .in_stride = HIDDEN,
                            .in_width = HIDDEN,
                            .out_width = GATE,
                            .rows_of_in = is_triton ? TOP_K : 1};
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
    params.tokens = layer->tokens;
    params.row_count = rows;
    params.width = HIDDEN;
    params.top_k = TOP_K;
    params.dtype = FALLOW_BF16;
    FLW_EXPECT_OK(run->bed,
                  fallow_moe_combine(flw_bed_kernels(run->bed), &params, flw_bed_stream(run->bed)));
}

static void run_route(const struct flw_leased *run)
{
    const struct layer *layer = run->inputs;
    fallow_route_params params;
    fallow_route_params_init(&params);
    params.logits = layer->logits;
    params.token_count = layer->token_count;
    params.weights = flw_leased_claim(run, "topk_weights");
    params.ids = flw_leased_claim(run, "topk_ids");
    params.tokens = layer->tokens;
    params.experts = EXPERTS;
    params.top_k = TOP_K;
    params.dtype = FALLOW_BF16;
    params.renormalises = 1;
    FLW_EXPECT_OK(run->bed,
                  fallow_moe_route(flw_bed_kernels(run->bed), &params, flw_bed_stream(run->bed)));
    flw_leased_note_all(run, "topk_weights");
    flw_leased_note_all(run, "topk_ids");
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
        flw_bed_forget(run->bed, layer->counts, (size_t)EXPERTS * 4);
        run_expert_counts(run, rows, experts);
        run_permute(run, rows);
    }
    run_products(run, experts, rows);
    run_combine(run, rows);
    memcpy(layer->out, flw_leased_note_all(run, "out"), (size_t)layer->tokens * HIDDEN * 2);
}

/* ---- tests */

static struct flw_leased_step step_of(struct layer *layer)
{
    static const fallow_layout_function makers[] = {
        fallow_layout_moe_triton, fallow_layout_moe_contiguous, fallow_layout_moe_masked};
    struct flw_leased_step step = {
        .make = makers[layer->form], .model = &model, .inputs = layer, .run = run_layer};
    fallow_step_init(&step.sizes);
    step.sizes.tokens = (uint64_t)layer->tokens;
    step.sizes.block_rows = BLOCK;
    step.sizes.quantises = layer->quantises ? 1 : 0;
    step.sizes.activates_in_place = layer->is_in_place ? 1 : 0;
    return step;
}

/* Layers: the step, a larger and a smaller one. */
static void check(struct flw_bed *bed, struct layer layers[3], enum form form, bool quantises,
                  bool is_in_place)
{
    struct flw_leased_step steps[3];
    for (int i = 0; i < 3; i++) {
        layers[i].form = form;
        layers[i].quantises = quantises;
        layers[i].is_in_place = is_in_place;
        steps[i] = step_of(&layers[i]);
    }
    flw_leased_prove(bed, &steps[0], &steps[1], &steps[2], NULL);
    for (int64_t i = layers[0].count * HIDDEN; i < layers[0].tokens * HIDDEN; i++) {
        FLW_EXPECT(bed, layers[0].out[i] == 0, "a padding token's element %lld is 0x%x",
                   (long long)i, layers[0].out[i]);
    }
}

static void make_layers(struct flw_bed *bed, struct layer layers[3])
{
    layers[0] = make_layer(bed, 9, 7);
    layers[1] = make_layer(bed, MOST_TOKENS, 20);
    layers[2] = make_layer(bed, 3, 1);
}

static void expect_same(struct flw_bed *bed, const struct layer *layer, const uint16_t *want,
                        const char *what)
{
    FLW_EXPECT(bed, memcmp(layer->out, want, (size_t)layer->tokens * HIDDEN * 2) == 0, "%s differs",
               what);
}

static void a_step_in_values_is_the_same_in_every_form_over_any_memory(struct flw_bed *bed)
{
    struct layer layers[3];
    uint16_t want[MOST_TOKENS * HIDDEN];
    make_layers(bed, layers);
    check(bed, layers, TRITON, false, false);
    memcpy(want, layers[0].out, sizeof want);
    check(bed, layers, TRITON, false, true);
    expect_same(bed, &layers[0], want, "moe-triton in place");
    check(bed, layers, CONTIGUOUS, false, false);
    expect_same(bed, &layers[0], want, "moe-contiguous");
    check(bed, layers, CONTIGUOUS, false, true);
    expect_same(bed, &layers[0], want, "moe-contiguous in place");
    check(bed, layers, MASKED, false, false);
    expect_same(bed, &layers[0], want, "moe-masked");
    check(bed, layers, MASKED, false, true);
    expect_same(bed, &layers[0], want, "moe-masked in place");
}

static void a_step_in_fp8_is_the_same_in_both_forms_over_any_memory(struct flw_bed *bed)
{
    struct layer layers[3];
    uint16_t want[MOST_TOKENS * HIDDEN];
    make_layers(bed, layers);
    check(bed, layers, CONTIGUOUS, true, false);
    memcpy(want, layers[0].out, sizeof want);
    check(bed, layers, MASKED, true, false);
    expect_same(bed, &layers[0], want, "moe-masked");
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(a_step_in_values_is_the_same_in_every_form_over_any_memory),
        FLW_BED_TEST(a_step_in_fp8_is_the_same_in_both_forms_over_any_memory),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
