/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "common/number.h"
#include "fallow/moe.h"
#include "kernel/call.h"

#define MOST_EXPERTS 1024
#define MOST_K       32

FLW_MODULE(route, fallow_moe_route, fallow_route, FLW_IN(logits), FLW_IN_MAYBE(bias),
           FLW_IN_MAYBE(token_count), FLW_IN_MAYBE(physical), FLW_OUT(weights), FLW_OUT(ids),
           FLW_COUNT(tokens, 0, INT32_MAX), FLW_COUNT(experts, 1, 1024), FLW_COUNT(top_k, 1, 32),
           FLW_COUNT(shared, 0, 5), FLW_COUNT(groups, 0, 32), FLW_COUNT(groups_kept, 0, 4),
           FLW_FLAG(groups_by_two), FLW_FLAG(renormalises), FLW_FLAG(leaves_scale),
           FLW_ENUM(score, FALLOW_ROUTE_SIGMOID), FLW_FLOAT(scale), FLW_STRIDE(logits_stride, 64),
           FLW_DTYPE(dtype, FLW_FLOATS), FLW_DTYPE(ids_dtype, FLW_INTEGERS))

struct fixture {
    struct flw_call call;
    fallow_route_params params;
    int32_t count; /* tokens that are no padding */
    float *logits; /* [tokens, experts], rounded to the dtype */
    float bias[MOST_EXPERTS];
    int32_t physical[MOST_EXPERTS + MOST_K];
    bool has_bias, has_physical;
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
        double value = scores[e] + (fixture->has_bias ? (double)fixture->bias[e] : 0);
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
        ids[j] = fixture->has_physical ? fixture->physical[ids[j]] : ids[j];
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
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    flw_call_init(bed, &fixture->call, route(), &fixture->params);
    fixture->params.tokens = tokens;
    fixture->params.experts = experts;
    fixture->params.top_k = top_k;
    fixture->params.dtype = dtype;
    fixture->count = (int32_t)tokens;
    fixture->logits = flw_call_typed(&fixture->call, "logits", (size_t)(tokens * experts),
                                     &fixture->params.dtype);
    flw_call_bind(&fixture->call, "token_count", &fixture->count, 1, 4);
    for (int e = 0; e < experts; e++) {
        fixture->bias[e] = (float)flw_bed_random_below(bed, 257) / 256.0f;
        fixture->physical[e] = (int32_t)flw_bed_random_below(bed, 5000);
    }
    return fixture;
}

static void add_physical(struct fixture *fixture)
{
    fixture->has_physical = true;
    flw_call_bind(&fixture->call, "physical", fixture->physical,
                  (size_t)(fixture->params.experts + fixture->params.shared), 4);
}

/* DeepSeek-V3: 256 experts, 8 groups of which 4 stay, 8 choices and a shared expert, scale 2.5. */
static struct fixture *make_deepseek(struct flw_bed *bed, int64_t tokens, fallow_dtype dtype)
{
    struct fixture *fixture = make(bed, tokens, 256, 9, dtype);
    fixture->params.score = FALLOW_ROUTE_SIGMOID;
    fixture->params.groups = 8;
    fixture->params.groups_kept = 4;
    fixture->params.groups_by_two = 1;
    fixture->params.shared = 1;
    fixture->params.scale = 2.5f;
    fixture->params.renormalises = 1;
    fixture->has_bias = true;
    flw_call_bind(&fixture->call, "bias", fixture->bias, 256, 4);
    return fixture;
}

static struct fixture *draw(struct flw_bed *bed, struct fixture *fixture)
{
    for (int64_t t = 0; t < fixture->params.tokens; t++) {
        draw_row(bed, fixture, fixture->logits + t * fixture->params.experts);
    }
    return fixture;
}

static void compare(struct flw_bed *bed, const struct fixture *fixture)
{
    const fallow_route_params *params = &fixture->params;
    const float *weights = fixture->call.out[0];
    size_t each = fallow_dtype_bytes(params->ids_dtype);
    for (int64_t at = 0; at < params->tokens * params->top_k; at++) {
        int64_t want_ids[MOST_K], t = at / params->top_k, j = at % params->top_k, id = 0;
        double want[MOST_K] = {0}, got = weights[at];
        memset(want_ids, 0xff, sizeof want_ids);
        if (t < fixture->count) {
            expect_token(fixture, fixture->logits + t * params->experts, want_ids, want);
        }
        memcpy(&id, (const char *)fixture->call.out[1] + (size_t)at * each, each);
        id = each == 4 ? (int32_t)id : id;
        FLW_EXPECT(bed, id == want_ids[j],
                   "token %lld, choice %lld of %d experts: id %lld, expected %lld", (long long)t,
                   (long long)j, params->experts, (long long)id, (long long)want_ids[j]);
        FLW_EXPECT(bed, fabs(got - want[j]) <= 2e-6 * fabs(want[j]) + 1e-44,
                   "token %lld, choice %lld: weight %.9g, expected %.9g", (long long)t,
                   (long long)j, got, want[j]);
    }
}

/* Prove a case, and compare it with the oracle. Logits of padding stay unwritten. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    flw_call_written(&fixture->call, "logits", (int64_t)fixture->count * fixture->params.experts);
    flw_call_prove(&fixture->call);
    compare(bed, fixture);
}

FLW_TEST(softmax_is_exact_for_every_expert_count)
{
    static const int32_t experts[] = {1, 2, 8, 31, 60, 72, 128, 160, 256, 384, 513, 1024};
    static const fallow_dtype dtypes[] = {FALLOW_F16, FALLOW_BF16, FALLOW_F32};
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        for (int k = 1; k <= 16 && k <= experts[i]; k += k < 2 ? 1 : 6) {
            struct fixture *fixture = make(bed, 1 + (int64_t)i % 5, experts[i], k, dtypes[i % 3]);
            fixture->params.renormalises = (uint8_t)(k % 2);
            fixture->params.ids_dtype = i % 2 == 0 ? FALLOW_I32 : FALLOW_I64;
            draw(bed, fixture);
            fixture->logits[2 % experts[i]] = 7.0f; /* experts at both ends are chosen */
            fixture->logits[experts[i] - 1] = 8.0f;
            check(bed, fixture);
        }
    }
}

FLW_TEST(token_counts_from_none_on_are_served)
{
    static const int64_t tokens[] = {0, 1, 2, 7, 8, 64};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        check(bed, draw(bed, make(bed, tokens[i], 128, 8, FALLOW_BF16)));
    }
}

FLW_TEST(grouped_sigmoid_with_bias_is_exact)
{
    for (int bits = 0; bits < 8; bits++) {
        struct fixture *fixture = make_deepseek(bed, 6, bits == 0 ? FALLOW_F32 : FALLOW_BF16);
        fixture->params.renormalises = (bits & 1) == 0;
        fixture->params.leaves_scale = (bits & 2) != 0;
        if ((bits & 4) != 0) {
            add_physical(fixture);
        }
        check(bed, draw(bed, fixture));
    }
}

FLW_TEST(groups_of_any_size_are_exact)
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
        check(bed, draw(bed, fixture));
    }
}

/* Rows of equal values yield ids 0 to k - 1 and equal weights. */
FLW_TEST(rows_without_an_order_take_the_lowest_numbers)
{
    static const float values[] = {NAN, -INFINITY, INFINITY, 0.0f, -3.0f};
    for (int form = 0; form < 4; form++) {
        struct fixture *fixture = make(bed, 5, 72, 6, FALLOW_F32);
        fixture->params.renormalises = (form & 1) == 0;
        fixture->params.score = form < 2 ? FALLOW_ROUTE_SOFTMAX : FALLOW_ROUTE_SIGMOID;
        for (int i = 0; i < 5 * 72; i++) {
            fixture->logits[i] = values[i / 72];
        }
        check(bed, fixture);
        const float *weights = fixture->call.out[0];
        const int32_t *ids = fixture->call.out[1];
        for (int i = 0; i < 30; i++) {
            FLW_EXPECT(bed, ids[i] == i % 6, "row of %g: id %d", (double)values[i / 6], ids[i]);
            FLW_EXPECT(bed, form % 2 != 0 || fabsf(weights[i] - 1.0f / 6.0f) < 1e-6f,
                       "row of %g: weight %g", (double)values[i / 6], (double)weights[i]);
            FLW_EXPECT(bed, form != 1 || i >= 12 || weights[i] == 0.0f, "no 0 without an order");
        }
    }
}

FLW_TEST(infinite_nan_and_underflowing_logits_rank_as_defined)
{
    struct fixture *fixture = make(bed, 4, 60, 8, FALLOW_F32);
    for (int i = 0; i < 4 * 60; i++) {
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
}

FLW_TEST(a_bias_that_is_no_number_ranks_last)
{
    struct fixture *fixture = make_deepseek(bed, 3, FALLOW_F32);
    for (int e = 0; e < 256; e++) {
        fixture->bias[e] = e % 3 == 0 ? NAN : e % 3 == 1 ? -INFINITY : fixture->bias[e];
    }
    fixture->bias[77] = INFINITY;
    check(bed, draw(bed, fixture));
    for (int e = 0; e < 256; e++) { /* fewer than k are left: the rest fill up by number */
        fixture->bias[e] = e == 200 || e == 9 ? 0.5f : NAN;
    }
    check(bed, draw(bed, fixture));
}

FLW_TEST(padding_has_no_experts_and_its_logits_are_not_read)
{
    static const int32_t counts[] = {-3, 0, 1, 4, 6, 7, 1000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct fixture *fixture = make_deepseek(bed, 7, FALLOW_BF16);
        add_physical(fixture);
        fixture->count = counts[i];
        check(bed, draw(bed, fixture));
    }
}

FLW_TEST(ids_are_different_and_in_range_for_any_bits)
{
    struct fixture *fixture = make_deepseek(bed, 64, FALLOW_BF16);
    for (int i = 0; i < 64 * 256; i++) {
        fixture->logits[i] = flw_bf16_widen((uint16_t)flw_bed_random(bed));
        fixture->bias[i % 256] = flw_bf16_widen((uint16_t)flw_bed_random(bed));
    }
    flw_call_run(&fixture->call);
    const float *weights = fixture->call.out[0];
    const int32_t *ids = fixture->call.out[1];
    for (int t = 0; t < 64; t++) {
        bool is_seen[257] = {false};
        for (int j = 0; j < 9; j++) {
            int32_t id = ids[t * 9 + j];
            bool is_legal = id >= 0 && id < 257 && (id == 256) == (j == 8);
            FLW_EXPECT(bed, is_legal && !is_seen[id], "token %d: id %d", t, id);
            is_seen[is_legal ? id : 0] = true;
            FLW_EXPECT(bed, isfinite(weights[t * 9 + j]), "token %d: a weight is not finite", t);
        }
    }
}

/* Rows of 64 in rows of 67, from an odd element on. */
FLW_TEST(rows_may_be_apart_and_unaligned)
{
    struct fixture *fixture = draw(bed, make(bed, 5, 64, 6, FALLOW_F32));
    float raw[5 * 67 + 1] = {0};
    for (int i = 0; i < 5 * 64; i++) {
        raw[1 + i / 64 * 67 + i % 64] = fixture->logits[i];
    }
    (void)flw_call_need(&fixture->call);
    flw_call_give(&fixture->call);
    fixture->params.logits = (float *)flw_bed_upload(bed, "apart", raw, sizeof raw) + 1;
    fixture->params.logits_stride = 67;
    for (int i = 0; i < 2; i++) {
        fixture->call.outputs[i] = flw_bed_buffer(bed, "output", 120);
        fixture->call.out[i] = flw_bed_memory(bed, 120);
    }
    flw_call_launch(&fixture->call, fixture->call.outputs);
    flw_bed_read(bed, fixture->call.out[0], fixture->call.outputs[0], 120);
    flw_bed_read(bed, fixture->call.out[1], fixture->call.outputs[1], 120);
    compare(bed, fixture);
}

FLW_TEST(a_captured_call_follows_the_count_on_the_device)
{
    struct fixture *fixture = draw(bed, make_deepseek(bed, 12, FALLOW_BF16));
    flw_call_capture(&fixture->call);
    for (fixture->count = 12; fixture->count >= 0; fixture->count -= 5) {
        flw_call_replay(&fixture->call);
        compare(bed, fixture);
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = draw(bed, make(bed, 4, 64, 6, FALLOW_F32));
    fixture->params.groups = 4;
    fixture->params.groups_kept = 4;
    fixture->params.ids_dtype = FALLOW_I64;
    FLW_CALL_REFUSE(&fixture->call, "experts=4 groups=1 groups_kept=1 logits_stride=4: top_k",
                    "groups=3 groups_kept=1: groups", "groups=64: groups", "scale=-1: scale",
                    "scale=nan: scale", "scale=inf: scale", "ids=@ids+4: ids is not aligned",
                    "ids=@logits+1000: logits and ids overlap");
}
