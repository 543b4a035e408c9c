/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/number.h"
#include "fallow/moe.h"
#include "kernel/bed.h"

#define MOST_EXPERTS 1024
#define MOST_K       32

/* One call, with the inputs in host memory. */
struct fixture {
    fallow_route_params params;
    int32_t count; /* tokens that are no padding */
    float *logits; /* [tokens, experts], rounded to the dtype */
    float bias[MOST_EXPERTS];
    int32_t physical[MOST_EXPERTS + MOST_K];
};

/* ---- the oracle: double throughout; a score is rounded to float once, so that values equal in
 * float are ties */

struct ranked {
    double value;
    int number;
};

static int by_value_then_number(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->value != y->value ? (x->value > y->value ? -1 : 1) : x->number - y->number;
}

static void score_row(const struct fixture *fixture, const float *logits, double *scores)
{
    int count = fixture->params.experts;
    double sum = 0, largest = -INFINITY;
    for (int e = 0; e < count; e++) {
        double x = isinf(logits[e]) && logits[e] > 0 ? 3.4028234663852886e38 : logits[e];
        scores[e] = isnan(x) ? -INFINITY : x;
        largest = fmax(largest, scores[e]);
    }
    for (int e = 0; e < count; e++) {
        if (fixture->params.score == FALLOW_ROUTE_SIGMOID) {
            scores[e] = isnan(logits[e]) ? 0 : 1 / (1 + exp(-scores[e]));
        } else {
            scores[e] = isinf(largest) ? 0 : exp(scores[e] - largest);
            sum += scores[e];
        }
    }
    for (int e = 0; e < count; e++) {
        bool is_softmax = fixture->params.score == FALLOW_ROUTE_SOFTMAX;
        scores[e] = (double)(float)(is_softmax && sum > 0 ? scores[e] / sum : scores[e]);
    }
}

/* False: two neighbours in this order are apart, by less than a float's exp can be trusted with. */
static bool is_separated(const struct ranked *sorted, int count)
{
    for (int i = 1; i < count; i++) {
        double a = sorted[i - 1].value, b = sorted[i].value;
        if (a != b && fabs(a - b) < 1e-5 * fmax(fabs(a), fabs(b))) {
            return false;
        }
    }
    return true;
}

static bool drop_groups(const fallow_route_params *params, struct ranked *candidates)
{
    struct ranked groups[32], members[MOST_EXPERTS];
    int group_count = params->groups < 1 ? 1 : params->groups;
    int size = params->experts / group_count;
    int kept = params->groups_kept < 1 ? group_count : params->groups_kept;
    for (int g = 0; g < group_count; g++) {
        memcpy(members, candidates + g * size, (size_t)size * sizeof *members);
        qsort(members, (size_t)size, sizeof *members, by_value_then_number);
        groups[g].number = g;
        groups[g].value = members[0].value;
        if (params->groups_by_two && size > 1) {
            groups[g].value = (double)(float)(members[0].value + members[1].value);
        }
    }
    qsort(groups, (size_t)group_count, sizeof *groups, by_value_then_number);
    for (int i = kept; i < group_count; i++) {
        for (int e = 0; e < size; e++) {
            candidates[groups[i].number * size + e].value = -INFINITY;
        }
    }
    return is_separated(groups, group_count);
}

/* Compute ids and weights of a token; false if they depend on the last digits of a float. */
static bool expect_token(const struct fixture *fixture, const float *logits, int64_t *ids,
                         double *weights)
{
    const fallow_route_params *params = &fixture->params;
    double scores[MOST_EXPERTS], sum = 0;
    double scale = params->scale == 0.0f ? 1.0 : (double)params->scale;
    struct ranked candidates[MOST_EXPERTS];
    int routed = params->top_k - params->shared;
    score_row(fixture, logits, scores);
    for (int e = 0; e < params->experts; e++) {
        double value = scores[e] + (params->bias != NULL ? (double)fixture->bias[e] : 0);
        candidates[e] = (struct ranked){isnan(value) ? -INFINITY : (double)(float)value, e};
    }
    bool is_clear = drop_groups(params, candidates);
    qsort(candidates, (size_t)params->experts, sizeof *candidates, by_value_then_number);
    is_clear =
        is_clear && is_separated(candidates, routed + 1 > params->experts ? routed : routed + 1);
    for (int j = 0; j < routed; j++) {
        ids[j] = candidates[j].number;
        weights[j] = scores[ids[j]];
        sum += weights[j];
    }
    for (int j = 0; j < params->top_k; j++) {
        if (j >= routed) {
            ids[j] = params->experts + j - routed;
            weights[j] = params->renormalises ? 1 / scale : sum / scale;
        } else if (params->renormalises) {
            weights[j] = sum > 0 ? weights[j] / sum : 1.0 / routed;
        }
        weights[j] *= params->leaves_scale ? 1 : scale;
        ids[j] = params->physical != NULL ? fixture->physical[ids[j]] : ids[j];
    }
    return is_clear;
}

/* ---- the fixture */

/* Multiples of 1/16 up to 6 in size: exact in each type, with many ties. */
static void draw_row(struct flw_bed *bed, const struct fixture *fixture, float *logits)
{
    int64_t ids[MOST_K];
    double weights[MOST_K];
    int tries = 0;
    do {
        for (int e = 0; e < fixture->params.experts; e++) {
            logits[e] = (float)(flw_bed_random_below(bed, 193) - 96) / 16.0f;
        }
        FLW_EXPECT(bed, ++tries < 1000, "no row is clear");
    } while (!expect_token(fixture, logits, ids, weights) && tries < 1000);
}

static struct fixture *make(struct flw_bed *bed, int64_t tokens, int32_t experts, int32_t top_k,
                            fallow_dtype dtype)
{
    struct fixture *fixture = flw_bed_host(sizeof *fixture);
    fallow_route_params_init(&fixture->params);
    fixture->params.tokens = tokens;
    fixture->params.experts = experts;
    fixture->params.top_k = top_k;
    fixture->params.dtype = dtype;
    fixture->count = (int32_t)tokens;
    fixture->logits = flw_bed_host((size_t)(tokens * experts) * sizeof(float));
    for (int e = 0; e < experts; e++) {
        fixture->bias[e] = (float)flw_bed_random_below(bed, 257) / 256.0f;
        fixture->physical[e] = (int32_t)flw_bed_random_below(bed, 5000);
    }
    return fixture;
}

static void draw(struct flw_bed *bed, struct fixture *fixture)
{
    for (int64_t t = 0; t < fixture->params.tokens; t++) {
        draw_row(bed, fixture, fixture->logits + t * fixture->params.experts);
    }
}

static void upload(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_route_params *params = &fixture->params;
    size_t each = fallow_dtype_bytes(params->dtype);
    size_t count = (size_t)(params->tokens * params->experts);
    unsigned char *raw = flw_bed_host(count * each);
    for (size_t i = 0; i < count; i++) {
        flw_number_narrow(raw + i * each, params->dtype, fixture->logits[i]);
    }
    params->logits = flw_bed_upload(bed, "logits", raw, count * each);
    params->token_count = flw_bed_upload(bed, "token_count", &fixture->count, 4);
    if (params->bias != NULL) {
        params->bias = flw_bed_upload(bed, "bias", fixture->bias, (size_t)params->experts * 4);
    }
    if (params->physical != NULL) {
        params->physical = flw_bed_upload(bed, "physical", fixture->physical,
                                          (size_t)(params->experts + params->shared) * 4);
    }
    free(raw);
}

static void drop(struct fixture *fixture)
{
    free(fixture->logits);
    free(fixture);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_route_params params = ((struct fixture *)inputs)->params;
    params.weights = outputs[0];
    params.ids = outputs[1];
    FLW_EXPECT_OK(bed, fallow_moe_route(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_moe_route_query(&fixture->params, &need), &need);
    return step;
}

static int64_t id_at(const struct fixture *fixture, const void *ids, int64_t at)
{
    return fixture->params.ids_dtype == FALLOW_I64 ? ((const int64_t *)ids)[at]
                                                   : ((const int32_t *)ids)[at];
}

static void compare(struct flw_bed *bed, const struct fixture *fixture, const float *weights,
                    const void *ids)
{
    const fallow_route_params *params = &fixture->params;
    for (int64_t t = 0; t < params->tokens; t++) {
        int64_t want_ids[MOST_K];
        double want[MOST_K] = {0};
        memset(want_ids, 0xff, sizeof want_ids);
        if (t < fixture->count) {
            expect_token(fixture, fixture->logits + t * params->experts, want_ids, want);
        }
        for (int64_t j = 0; j < params->top_k; j++) {
            double got = weights[t * params->top_k + j];
            FLW_EXPECT(bed, id_at(fixture, ids, t * params->top_k + j) == want_ids[j],
                       "token %lld, choice %lld of %d experts: id %lld, expected %lld",
                       (long long)t, (long long)j, params->experts,
                       (long long)id_at(fixture, ids, t * params->top_k + j),
                       (long long)want_ids[j]);
            FLW_EXPECT(bed, fabs(got - want[j]) <= 2e-6 * fabs(want[j]) + 1e-44,
                       "token %lld, choice %lld: weight %.9g, expected %.9g", (long long)t,
                       (long long)j, got, want[j]);
        }
    }
}

/* Prove a case with random rows, and compare it with the oracle. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_route_params *params = &fixture->params;
    struct fixture *larger =
        make(bed, params->tokens + 3, params->experts, params->top_k, params->dtype);
    struct fixture *smaller =
        make(bed, params->tokens / 2, params->experts, params->top_k, params->dtype);
    larger->params.ids_dtype = smaller->params.ids_dtype = params->ids_dtype;
    upload(bed, fixture);
    upload(bed, larger);
    upload(bed, smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    float *weights = flw_bed_host(step.declared_bytes[0]);
    void *ids = flw_bed_host(step.declared_bytes[1]);
    flw_bed_prove(bed, &step, &before, &after, (void *[]){weights, ids});
    compare(bed, fixture, weights, ids);
    free(weights);
    free(ids);
    drop(larger);
    drop(smaller);
}

static void softmax_is_exact_for_every_expert_count(struct flw_bed *bed)
{
    static const int32_t experts[] = {1, 2, 8, 31, 60, 72, 128, 160, 256, 384, 513, 1024};
    static const fallow_dtype dtypes[] = {FALLOW_F16, FALLOW_BF16, FALLOW_F32};
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        for (int k = 1; k <= 16 && k <= experts[i]; k += k < 2 ? 1 : 6) {
            struct fixture *fixture = make(bed, 1 + (int64_t)i % 5, experts[i], k, dtypes[i % 3]);
            fixture->params.renormalises = (uint8_t)(k % 2);
            fixture->params.ids_dtype = i % 2 == 0 ? FALLOW_I32 : FALLOW_I64;
            draw(bed, fixture);
            check(bed, fixture);
            drop(fixture);
        }
    }
}

static void token_counts_from_none_on_are_served(struct flw_bed *bed)
{
    static const int64_t tokens[] = {0, 1, 2, 7, 8, 64};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        struct fixture *fixture = make(bed, tokens[i], 128, 8, FALLOW_BF16);
        draw(bed, fixture);
        check(bed, fixture);
        drop(fixture);
    }
}

/* DeepSeek-V3: 256 experts, 8 groups of which 4 stay, 8 choices and a shared expert, scale 2.5. */
static struct fixture *make_deepseek(struct flw_bed *bed, int64_t tokens, fallow_dtype dtype)
{
    struct fixture *fixture = make(bed, tokens, 256, 9, dtype);
    fixture->params.score = FALLOW_ROUTE_SIGMOID;
    fixture->params.bias = fixture->bias; /* requested; upload replaces it */
    fixture->params.groups = 8;
    fixture->params.groups_kept = 4;
    fixture->params.groups_by_two = 1;
    fixture->params.shared = 1;
    fixture->params.scale = 2.5f;
    fixture->params.renormalises = 1;
    return fixture;
}

static void grouped_sigmoid_with_bias_is_exact(struct flw_bed *bed)
{
    for (int bits = 0; bits < 8; bits++) {
        struct fixture *fixture = make_deepseek(bed, 6, bits == 0 ? FALLOW_F32 : FALLOW_BF16);
        fixture->params.renormalises = (bits & 1) == 0;
        fixture->params.leaves_scale = (bits & 2) != 0;
        fixture->params.physical = (bits & 4) != 0 ? fixture->physical : NULL;
        draw(bed, fixture);
        check(bed, fixture);
        drop(fixture);
    }
}

static void groups_of_any_size_are_exact(struct flw_bed *bed)
{
    static const int32_t shapes[][4] = {/* experts, groups, kept, by two */
                                        {160, 8, 3, 0},   {60, 20, 4, 0}, {60, 20, 4, 1},
                                        {32, 32, 4, 1},   {384, 3, 1, 1}, {72, 9, 9, 0},
                                        {1024, 32, 5, 1}, {512, 2, 1, 0}, {7, 7, 4, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct fixture *fixture = make(bed, 4, shapes[i][0], 4, FALLOW_F32);
        fixture->params.groups = shapes[i][1];
        fixture->params.groups_kept = shapes[i][2];
        fixture->params.groups_by_two = (uint8_t)shapes[i][3];
        fixture->params.score = i % 2 == 0 ? FALLOW_ROUTE_SOFTMAX : FALLOW_ROUTE_SIGMOID;
        draw(bed, fixture);
        check(bed, fixture);
        drop(fixture);
    }
}

/* Rows of equal values yield ids 0 to k - 1 and equal weights. */
static void rows_without_an_order_take_the_lowest_numbers(struct flw_bed *bed)
{
    static const float values[] = {NAN, -INFINITY, INFINITY, 0.0f, -3.0f};
    for (int form = 0; form < 4; form++) {
        struct fixture *fixture = make(bed, 5, 72, 6, FALLOW_F32);
        fixture->params.renormalises = (form & 1) == 0;
        fixture->params.score = form < 2 ? FALLOW_ROUTE_SOFTMAX : FALLOW_ROUTE_SIGMOID;
        for (int64_t i = 0; i < 5 * 72; i++) {
            fixture->logits[i] = values[i / 72];
        }
        check(bed, fixture);
        upload(bed, fixture);
        float weights[30];
        int32_t ids[30];
        void *outputs[] = {flw_bed_buffer(bed, "weights", 120), flw_bed_buffer(bed, "ids", 120)};
        launch(bed, fixture, outputs);
        flw_bed_read(bed, weights, outputs[0], 120);
        flw_bed_read(bed, ids, outputs[1], 120);
        for (int i = 0; i < 30; i++) {
            FLW_EXPECT(bed, ids[i] == i % 6, "row of %g: id %d", (double)values[i / 6], ids[i]);
            FLW_EXPECT(bed, form % 2 != 0 || fabsf(weights[i] - 1.0f / 6.0f) < 1e-6f,
                       "row of %g: weight %g", (double)values[i / 6], (double)weights[i]);
            FLW_EXPECT(bed, form != 1 || i >= 12 || weights[i] == 0.0f, "no 0 without an order");
        }
        drop(fixture);
    }
}

static void infinite_nan_and_underflowing_logits_rank_as_defined(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 4, 60, 8, FALLOW_F32);
    for (int64_t i = 0; i < 4 * 60; i++) {
        fixture->logits[i] = -300.0f - (float)(i % 60 * 7 % 60); /* p is 0: rank by number */
    }
    fixture->logits[41] = fixture->logits[17] = 2.0f;
    fixture->logits[60 + 5] = fixture->logits[60 + 50] = INFINITY;
    fixture->logits[60 + 2] = NAN;
    fixture->logits[120 + 59] = 0.0f;
    fixture->logits[120 + 0] = NAN;
    for (int i = 0; i < 60; i++) {
        fixture->logits[180 + i] = i == 30 || i == 3 ? (float)i : i % 2 == 0 ? NAN : -INFINITY;
    }
    check(bed, fixture);
    fixture->params.score = FALLOW_ROUTE_SIGMOID;
    fixture->params.renormalises = 1;
    check(bed, fixture);
    drop(fixture);
}

static void a_bias_that_is_no_number_ranks_last(struct flw_bed *bed)
{
    struct fixture *fixture = make_deepseek(bed, 3, FALLOW_F32);
    for (int e = 0; e < 256; e++) {
        fixture->bias[e] = e % 3 == 0 ? NAN : e % 3 == 1 ? -INFINITY : fixture->bias[e];
    }
    fixture->bias[77] = INFINITY;
    draw(bed, fixture);
    check(bed, fixture);
    for (int e = 0; e < 256; e++) { /* fewer than k are left: the rest fill up by number */
        fixture->bias[e] = e == 200 || e == 9 ? 0.5f : NAN;
    }
    draw(bed, fixture);
    check(bed, fixture);
    drop(fixture);
}

static void padding_has_no_experts_and_its_logits_are_not_read(struct flw_bed *bed)
{
    static const int32_t counts[] = {-3, 0, 1, 4, 6, 7, 1000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct fixture *fixture = make_deepseek(bed, 7, FALLOW_BF16);
        fixture->params.physical = fixture->physical;
        fixture->count = counts[i];
        draw(bed, fixture);
        check(bed, fixture);
        if (counts[i] >= 0 && counts[i] < 7) { /* the rest has never been written */
            flw_bed_dirty(bed, (char *)(uintptr_t)fixture->params.logits + counts[i] * 512,
                          (size_t)(7 - counts[i]) * 512, 0x7f);
            void *outputs[] = {flw_bed_buffer(bed, "weights", 252),
                               flw_bed_buffer(bed, "ids", 252)};
            launch(bed, fixture, outputs);
            FLW_EXPECT(bed, flw_bed_violations(bed) == 0, "padding was read");
        }
        drop(fixture);
    }
}

static void ids_are_different_and_in_range_whatever_the_bits(struct flw_bed *bed)
{
    struct fixture *fixture = make_deepseek(bed, 64, FALLOW_BF16);
    for (int64_t i = 0; i < 64 * 256; i++) {
        fixture->logits[i] = flw_bf16_widen((uint16_t)flw_bed_random(bed));
    }
    for (int e = 0; e < 256; e++) {
        fixture->bias[e] = flw_bf16_widen((uint16_t)flw_bed_random(bed));
    }
    upload(bed, fixture);
    float weights[64 * 9];
    int32_t ids[64 * 9];
    void *outputs[] = {flw_bed_buffer(bed, "weights", sizeof weights),
                       flw_bed_buffer(bed, "ids", sizeof ids)};
    launch(bed, fixture, outputs);
    flw_bed_read(bed, weights, outputs[0], sizeof weights);
    flw_bed_read(bed, ids, outputs[1], sizeof ids);
    for (int t = 0; t < 64; t++) {
        bool is_seen[257] = {false};
        for (int j = 0; j < 9; j++) {
            int32_t id = ids[t * 9 + j];
            FLW_EXPECT(bed, id >= 0 && id < 257 && (id == 256) == (j == 8), "token %d: id %d", t,
                       id);
            if (id >= 0 && id < 257) {
                FLW_EXPECT(bed, !is_seen[id], "token %d: id %d twice", t, id);
                is_seen[id] = true;
            }
            FLW_EXPECT(bed, isfinite(weights[t * 9 + j]), "token %d: a weight is not finite", t);
        }
    }
    drop(fixture);
}

static void rows_may_be_apart_and_unaligned(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 5, 64, 6, FALLOW_F32), *apart;
    draw(bed, fixture);
    apart = make(bed, 5, 64, 6, FALLOW_F32);
    memcpy(apart->logits, fixture->logits, 5 * 64 * 4);
    upload(bed, apart);
    float raw[5 * 67 + 1] = {0}, weights[30];
    int32_t ids[30];
    for (int i = 0; i < 5 * 64; i++) {
        raw[1 + i / 64 * 67 + i % 64] = fixture->logits[i];
    }
    apart->params.logits = (float *)flw_bed_upload(bed, "apart", raw, sizeof raw) + 1;
    apart->params.logits_stride = 67;
    void *outputs[] = {flw_bed_buffer(bed, "weights", 120), flw_bed_buffer(bed, "ids", 120)};
    launch(bed, apart, outputs);
    flw_bed_read(bed, weights, outputs[0], 120);
    flw_bed_read(bed, ids, outputs[1], 120);
    compare(bed, fixture, weights, ids);
    drop(apart);
    drop(fixture);
}

static void a_captured_call_follows_the_count_on_the_device(struct flw_bed *bed)
{
    struct fixture *fixture = make_deepseek(bed, 12, FALLOW_BF16);
    float weights[12 * 9];
    int32_t ids[12 * 9];
    draw(bed, fixture);
    upload(bed, fixture);
    void *outputs[] = {flw_bed_buffer(bed, "weights", sizeof weights),
                       flw_bed_buffer(bed, "ids", sizeof ids)};
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, fixture, outputs);
    for (fixture->count = 12; fixture->count >= 0; fixture->count -= 5) {
        flw_bed_write(bed, fixture->params.token_count, &fixture->count, 4);
        flw_bed_dirty(bed, outputs[0], sizeof weights, 0x7f);
        flw_bed_dirty(bed, outputs[1], sizeof ids, 0x7f);
        flw_bed_replay(bed, graph);
        flw_bed_read(bed, weights, outputs[0], sizeof weights);
        flw_bed_read(bed, ids, outputs[1], sizeof ids);
        compare(bed, fixture, weights, ids);
    }
    drop(fixture);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_route_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 1 << 16);
    fallow_route_params_init(&good);
    good.tokens = 4;
    good.experts = 64;
    good.top_k = 6;
    good.dtype = FALLOW_F32;
    good.logits = memory;
    good.weights = (float *)(void *)(memory + 4096);
    good.ids = memory + 8192;
#define REFUSED(change, word) \
    bad = good;               \
    change;                   \
    FLW_EXPECT_REFUSED(bed, fallow_moe_route(kernels, &bad, stream), FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.tokens = -1, "tokens");
    REFUSED(bad.tokens = (int64_t)1 << 31, "tokens");
    REFUSED(bad.experts = 0, "experts");
    REFUSED(bad.experts = 1025, "experts");
    REFUSED(bad.top_k = 0, "top_k");
    REFUSED(bad.top_k = 33, "top_k");
    REFUSED((bad.experts = 5, bad.logits_stride = 5), "top_k");
    REFUSED(bad.shared = 6, "shared");
    REFUSED(bad.shared = -1, "shared");
    REFUSED(bad.groups = 3, "groups");
    REFUSED(bad.groups = -1, "groups");
    REFUSED(bad.groups = 64, "groups");
    REFUSED((bad.groups = 4, bad.groups_kept = 5), "groups_kept");
    REFUSED(bad.scale = -1.0f, "scale");
    REFUSED(bad.scale = NAN, "scale");
    REFUSED(bad.scale = INFINITY, "scale");
    REFUSED(bad.score = (fallow_route_score)2, "score");
    REFUSED(bad.renormalises = 2, "renormalises");
    REFUSED(bad.dtype = FALLOW_E4M3, "dtype");
    REFUSED(bad.ids_dtype = FALLOW_U8, "ids_dtype");
    REFUSED(bad.logits_stride = 63, "logits_stride");
    REFUSED(bad.logits = NULL, "logits is NULL");
    REFUSED(bad.weights = NULL, "weights is NULL");
    REFUSED(bad.ids = NULL, "ids is NULL");
    REFUSED((bad.ids_dtype = FALLOW_I64, bad.ids = memory + 8196), "ids is not aligned");
    REFUSED(bad.ids = bad.weights, "weights and ids overlap"); /* the third pointer of old */
    REFUSED(bad.ids = memory + 1000, "logits and ids overlap");
    REFUSED(bad.bias = (float *)(void *)(memory + 8192), "bias and ids overlap");
    REFUSED(bad.struct_size = 0, "struct_size");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(softmax_is_exact_for_every_expert_count),
        FLW_BED_TEST(token_counts_from_none_on_are_served),
        FLW_BED_TEST(grouped_sigmoid_with_bias_is_exact),
        FLW_BED_TEST(groups_of_any_size_are_exact),
        FLW_BED_TEST(rows_without_an_order_take_the_lowest_numbers),
        FLW_BED_TEST(infinite_nan_and_underflowing_logits_rank_as_defined),
        FLW_BED_TEST(a_bias_that_is_no_number_ranks_last),
        FLW_BED_TEST(padding_has_no_experts_and_its_logits_are_not_read),
        FLW_BED_TEST(ids_are_different_and_in_range_whatever_the_bits),
        FLW_BED_TEST(rows_may_be_apart_and_unaligned),
        FLW_BED_TEST(a_captured_call_follows_the_count_on_the_device),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
