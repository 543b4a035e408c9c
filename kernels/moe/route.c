/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of route: checks, needs, the launch.
 * Does not: compute; route_twin.c is the definition, route.cu the kernel.
 */
#include "moe/route.h"

#include <math.h>

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/moe.h"

static void check_groups(struct flw_refusal *refusal, fallow_route_params *params)
{
    params->groups = params->groups == 0 ? 1 : params->groups;
    params->groups_kept = params->groups_kept == 0 ? params->groups : params->groups_kept;
    flw_refusal_count(refusal, "groups", params->groups, 1, FLW_ROUTE_GROUPS);
    flw_refusal_count(refusal, "groups_kept", params->groups_kept, 1, params->groups);
    flw_refusal_count(refusal, "groups_by_two", params->groups_by_two, 0, 1);
    if (params->groups > 0 && params->experts % params->groups != 0) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT, "groups does not divide experts");
    }
}

struct buffers {
    size_t logit_each, id_each;
    uint64_t logit_bytes, id_bytes, weight_bytes;
};

/* Check shapes and types; replace zeros by defaults. */
static struct buffers check_shape(struct flw_refusal *refusal, fallow_route_params *params)
{
    params->logits_stride = params->logits_stride == 0 ? params->experts : params->logits_stride;
    params->scale = params->scale == 0.0f ? 1.0f : params->scale;
    flw_refusal_count(refusal, "tokens", params->tokens, 0, INT32_MAX);
    flw_refusal_count(refusal, "experts", params->experts, 1, FLW_ROUTE_EXPERTS);
    flw_refusal_count(refusal, "top_k", params->top_k, 1, FLW_ROUTE_TOP_K);
    flw_refusal_count(refusal, "shared", params->shared, 0, (int64_t)params->top_k - 1);
    flw_refusal_count(refusal, "top_k - shared", (int64_t)params->top_k - params->shared, 1,
                      params->experts);
    flw_refusal_count(refusal, "score", params->score, FALLOW_ROUTE_SOFTMAX, FALLOW_ROUTE_SIGMOID);
    flw_refusal_count(refusal, "renormalises", params->renormalises, 0, 1);
    flw_refusal_count(refusal, "leaves_scale", params->leaves_scale, 0, 1);
    flw_refusal_count(refusal, "logits_stride", params->logits_stride, params->experts,
                      (int64_t)1 << 40);
    flw_refusal_dtype(refusal, "dtype", params->dtype, FLW_DTYPES_FLOATS);
    flw_refusal_dtype(refusal, "ids_dtype", params->ids_dtype, FLW_DTYPES_INTEGERS);
    check_groups(refusal, params);
    if (!isfinite(params->scale) || params->scale < 0) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                           "scale is %g; it must be finite and above 0", (double)params->scale);
    }
    struct buffers buffers = {.logit_each = fallow_dtype_bytes(params->dtype),
                              .id_each = fallow_dtype_bytes(params->ids_dtype)};
    int64_t choices = flw_refusal_product(refusal, "tokens x top_k", params->tokens, params->top_k);
    buffers.logit_bytes = flw_refusal_rows(refusal, "logits", params->tokens, params->logits_stride,
                                           params->experts, buffers.logit_each);
    buffers.id_bytes = (uint64_t)choices * buffers.id_each;
    buffers.weight_bytes = (uint64_t)choices * sizeof(float);
    return buffers;
}

fallow_status fallow_moe_route_query(const fallow_route_params *caller,
                                     fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_route_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_moe_route_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    flw_need_add(&need, "weights", buffers.weight_bytes, 4, FALLOW_INIT_NEUTRAL_TAIL);
    flw_need_add(&need, "ids", buffers.id_bytes, buffers.id_each, FALLOW_INIT_SENTINEL);
    need.read_bytes = (uint64_t)params.tokens * (uint64_t)params.experts * buffers.logit_each +
                      (params.bias == NULL ? 0 : (uint64_t)params.experts * 4);
    need.write_bytes = buffers.weight_bytes + buffers.id_bytes;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_buffers(struct flw_refusal *refusal, const fallow_route_params *params,
                          const struct buffers *buffers)
{
    uint64_t experts = (uint64_t)params->experts, shared = (uint64_t)params->shared;
    flw_refusal_input(refusal, "logits", params->logits, buffers->logit_bytes, buffers->logit_each);
    flw_refusal_optional_input(refusal, "bias", params->bias, experts * 4, 4);
    flw_refusal_optional_input(refusal, "token_count", params->token_count, 4, 4);
    flw_refusal_optional_input(refusal, "physical", params->physical, (experts + shared) * 4, 4);
    flw_refusal_output(refusal, "weights", params->weights, buffers->weight_bytes, 4);
    flw_refusal_output(refusal, "ids", params->ids, buffers->id_bytes, buffers->id_each);
}

fallow_status fallow_moe_route(fallow_kernels *kernels, const fallow_route_params *caller,
                               fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_route_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_moe_route");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    check_buffers(&refusal, &params, &buffers);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    uint32_t group = (uint32_t)(params.experts / params.groups);
    struct flw_route_args args = {
        .logits = params.logits,
        .bias = params.bias,
        .token_count = params.token_count,
        .physical = params.physical,
        .weights = params.weights,
        .ids = params.ids,
        .tokens = params.tokens,
        .logits_stride = params.logits_stride,
        .experts = params.experts,
        .top_k = params.top_k,
        .shared = params.shared,
        .groups = params.groups,
        .groups_kept = params.groups_kept,
        .group_reciprocal = ((1u << FLW_ROUTE_RECIPROCAL_BITS) + group - 1) / group,
        .scale = params.scale,
        .dtype = (int32_t)params.dtype,
        .ids_is_i64 = params.ids_dtype == FALLOW_I64,
        .is_sigmoid = params.score == FALLOW_ROUTE_SIGMOID,
        .is_vector = flw_is_vector_row(params.logits, params.logits_stride, params.experts,
                                       buffers.logit_each),
        .groups_by_two = params.groups_by_two,
        .renormalises = params.renormalises,
        .leaves_scale = params.leaves_scale};
    struct flw_grid grid = {.blocks_x = flw_grid_blocks(params.tokens, FLW_ROUTE_THREADS / 32),
                            .threads = FLW_ROUTE_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_route, grid, &args, stream);
}
