/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of route: scores, candidates, groups, the best, their weights. The kernel's sums
 * have another order and the exp is the device's: weights differ in their last places. */
#include <float.h>

#include "common/twin.h"

/* One token's experts. */
struct row {
    float scores[FLW_ROUTE_EXPERTS];
    float candidates[FLW_ROUTE_EXPERTS];
    bool is_taken[FLW_ROUTE_EXPERTS];
};

/* Return the first of the largest that is not taken: equal ones rank by lower number. */
static int find_best(const float *values, const bool *is_taken, int count)
{
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (!is_taken[i] && (best < 0 || values[i] > values[best])) {
            best = i;
        }
    }
    return best;
}

static void softmax(float *x, int count)
{
    float largest = -INFINITY;
    double sum = 0;
    for (int i = 0; i < count; i++) {
        x[i] = isnan(x[i]) ? -INFINITY : fminf(x[i], FLT_MAX);
        largest = fmaxf(largest, x[i]);
    }
    for (int i = 0; i < count; i++) {
        x[i] = largest == -INFINITY ? 0.0f : expf(x[i] - largest);
        sum += (double)x[i];
    }
    for (int i = 0; i < count; i++) {
        x[i] = sum == 0 ? 0.0f : x[i] / (float)sum;
    }
}

static void sigmoid(float *x, int count)
{
    for (int i = 0; i < count; i++) {
        x[i] = isnan(x[i]) ? 0.0f : 1.0f / (1.0f + expf(-x[i]));
    }
}

static void load_row(struct flw_twin *twin, const struct flw_route_args *args, int64_t token,
                     struct row *row)
{
    unsigned char raw[FLW_ROUTE_EXPERTS * 4];
    float bias[FLW_ROUTE_EXPERTS] = {0};
    fallow_dtype dtype = (fallow_dtype)args->dtype;
    int64_t each = (int64_t)fallow_dtype_bytes(dtype);
    flw_load(twin, "logits", args->logits, token * args->logits_stride * each, raw,
             (size_t)(args->experts * each));
    if (args->bias != NULL) {
        flw_load(twin, "bias", args->bias, 0, bias, (size_t)args->experts * sizeof *bias);
    }
    for (int e = 0; e < args->experts; e++) {
        row->scores[e] = flw_number_widen(raw + e * each, dtype);
    }
    (args->is_sigmoid ? sigmoid : softmax)(row->scores, args->experts);
    for (int e = 0; e < args->experts; e++) {
        float candidate = row->scores[e] + bias[e];
        row->candidates[e] = isnan(candidate) ? -INFINITY : candidate;
        row->is_taken[e] = false;
    }
}

static float group_score(const struct flw_route_args *args, const float *candidates, int size)
{
    float first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < size; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core*): load_row has filled the row */
        second = fmaxf(second, fminf(first, candidates[i]));
        first = fmaxf(first, candidates[i]);
    }
    float sum = args->groups_by_two && size > 1 ? first + second : first;
    return isnan(sum) ? -INFINITY : sum; /* inf - inf */
}

static void drop_groups(const struct flw_route_args *args, struct row *row)
{
    int size = args->experts / args->groups;
    float scores[FLW_ROUTE_GROUPS];
    bool is_kept[FLW_ROUTE_GROUPS] = {false};
    for (int g = 0; g < args->groups; g++) {
        scores[g] = group_score(args, row->candidates + g * size, size);
    }
    for (int i = 0; i < args->groups_kept; i++) {
        is_kept[find_best(scores, is_kept, args->groups)] = true;
    }
    for (int e = 0; e < args->experts; e++) {
        /* NOLINTNEXTLINE(clang-analyzer-core*): groups divide the experts, size > 0 */
        row->candidates[e] = is_kept[e / size] ? row->candidates[e] : -INFINITY;
    }
}

static void store_choice(struct flw_twin *twin, const struct flw_route_args *args, int64_t at,
                         int32_t id, float weight)
{
    if (id >= 0 && args->physical != NULL) {
        id = flw_load_i32(twin, "physical", args->physical, id);
    }
    flw_store_int(twin, "ids", args->ids, at, args->ids_is_i64 ? FALLOW_I64 : FALLOW_I32, id);
    flw_store_float(twin, "weights", args->weights, at, FALLOW_F32, weight);
}

static void route_token(struct flw_twin *twin, const struct flw_route_args *args, int64_t token)
{
    struct row row;
    int routed = args->top_k - args->shared, ids[FLW_ROUTE_TOP_K];
    float sum = 0;
    load_row(twin, args, token, &row);
    drop_groups(args, &row);
    for (int j = 0; j < routed; j++) {
        ids[j] = find_best(row.candidates, row.is_taken, args->experts);
        row.is_taken[ids[j]] = true;
        /* NOLINTNEXTLINE(clang-analyzer-core*): load_row has filled the row */
        sum += row.scores[ids[j]];
    }
    for (int j = 0; j < args->top_k; j++) {
        float factor = args->leaves_scale ? 1.0f : args->scale, weight;
        if (j >= routed) {
            weight = args->renormalises ? 1.0f : sum;
            weight = args->leaves_scale ? weight / args->scale : weight;
            store_choice(twin, args, token * args->top_k + j, args->experts + j - routed, weight);
            continue;
        }
        weight = row.scores[ids[j]];
        if (args->renormalises) {
            weight = sum > 0 ? weight / sum : 1.0f / (float)routed;
        }
        store_choice(twin, args, token * args->top_k + j, ids[j], weight * factor);
    }
}

void flw_twin_route(struct flw_twin *twin, const struct flw_route_args *args)
{
    int64_t count = args->token_count == NULL
                        ? args->tokens
                        : flw_load_i32(twin, "token_count", args->token_count, 0);
    for (int64_t token = 0; token < args->tokens; token++) {
        if (token < count) {
            route_token(twin, args, token);
            continue;
        }
        for (int64_t j = 0; j < args->top_k; j++) {
            store_choice(twin, args, token * args->top_k + j, -1, 0.0f);
        }
    }
}
