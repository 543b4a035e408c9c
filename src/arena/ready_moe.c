/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the workspaces of a layer of experts, in the three forms that the products are given rows.
 *
 * T tokens, k choices of each, E experts of this rank, H hidden, I the experts' inner width: the first
 * product makes gate and up, [rows, 2 I]; the activation [rows, I]; the second [rows, H].
 */
#include "arena/ready.h"

enum {
    ROUTE, /* phases */
    ALIGN,
    PERMUTE,
    GATE_AND_UP,
    ACTIVATION,
    DOWN,
    COMBINE
};

#define SCALE_GROUP   128 /* values that share a scale */
#define MASKED_STEP   256 /* an expert's number of rows is a multiple of it */
#define CONTIGUOUS_TO 128 /* an expert's rows begin at multiples of it */

static void add_routing(struct flw_ready *ready, uint32_t last_phase)
{
    const fallow_model *model = ready->model;
    uint64_t tokens = ready->step.tokens, top_k = model->top_k;
    flw_ready_require(ready, model->experts > 0 && top_k > 0 && model->expert_intermediate > 0 &&
                                 model->hidden > 0);
    flw_ready_add(ready, "topk_weights", tokens, top_k, 4, FALLOW_INIT_DIRTY, ROUTE, COMBINE);
    flw_ready_add(ready, "topk_ids", tokens, top_k, 4, FALLOW_INIT_SENTINEL, ROUTE, last_phase);
}

/* The two products of `rows` rows, in values or in fp8 with a scale for each group of inputs. */
static void add_products(struct flw_ready *ready, uint64_t rows)
{
    const fallow_model *model = ready->model;
    uint32_t each = (uint32_t)ready->step.value_bytes;
    uint64_t inner = model->expert_intermediate;
    bool quantises = ready->step.quantises != 0, is_in_place = ready->step.activates_in_place != 0;
    flw_ready_require(ready, !(quantises && is_in_place)); /* rows of another width */
    flw_ready_add(ready, "gate_and_up", rows, 2 * inner, each, FALLOW_INIT_DIRTY, GATE_AND_UP,
                  is_in_place ? DOWN : ACTIVATION);
    flw_ready_add(ready, "activation", is_in_place ? 0 : rows, inner, quantises ? 1 : each,
                  FALLOW_INIT_DIRTY, ACTIVATION, DOWN);
    if (quantises) {
        flw_ready_add(ready, "activation_scales", rows, flw_ready_divide_up(inner, SCALE_GROUP), 4,
                      FALLOW_INIT_NEUTRAL_TAIL, ACTIVATION, DOWN);
    }
    flw_ready_add(ready, "down", rows, model->hidden, each, FALLOW_INIT_DIRTY, DOWN, COMBINE);
}

/* The tokens' rows in the experts' order. */
static void add_permuted(struct flw_ready *ready, uint64_t rows)
{
    const fallow_model *model = ready->model;
    bool quantises = ready->step.quantises != 0;
    flw_ready_add(ready, "permuted", rows, model->hidden,
                  quantises ? 1 : (uint32_t)ready->step.value_bytes, FALLOW_INIT_PREFIX, PERMUTE,
                  GATE_AND_UP);
    if (quantises) {
        flw_ready_add(ready, "permuted_scales", rows,
                      flw_ready_divide_up(model->hidden, SCALE_GROUP), 4, FALLOW_INIT_NEUTRAL_TAIL,
                      PERMUTE, GATE_AND_UP);
    }
}

/* Slots of sorted_token_ids: every expert's part padded to a block; few choices fill few blocks. */
static uint64_t count_sorted(const struct flw_ready *ready, uint64_t choices)
{
    uint64_t block = ready->step.block_rows;
    uint64_t padded = choices + ready->experts * (block - 1), small = choices * block;
    return choices < ready->experts && small < padded ? small : padded;
}

static void add_out(struct flw_ready *ready)
{
    flw_ready_add(ready, "out", ready->step.tokens, ready->model->hidden,
                  (uint32_t)ready->step.value_bytes, FALLOW_INIT_DIRTY, COMBINE, COMBINE);
}

FLW_READY_LAYOUT(moe_triton, "moe-triton")
{
    const fallow_model *model = ready->model;
    uint64_t choices = ready->step.tokens * model->top_k;
    uint64_t sorted = count_sorted(ready, choices);
    flw_ready_require(ready, ready->step.quantises == 0);
    add_routing(ready, ALIGN);
    flw_ready_add(ready, "sorted_token_ids", sorted, 1, 4, FALLOW_INIT_SENTINEL, ALIGN, DOWN);
    flw_ready_add(ready, "expert_ids", flw_ready_divide_up(sorted, ready->step.block_rows), 1, 4,
                  FALLOW_INIT_SENTINEL, ALIGN, DOWN);
    flw_ready_add(ready, "num_tokens_post_pad", 1, 1, 4, FALLOW_INIT_DIRTY, ALIGN, DOWN);
    add_products(ready, choices);
    add_out(ready);
}

FLW_READY_LAYOUT(moe_contiguous, "moe-contiguous")
{
    const fallow_model *model = ready->model;
    uint64_t choices = ready->step.tokens * model->top_k;
    uint64_t rows =
        flw_ready_round_up(choices + ready->experts * (CONTIGUOUS_TO - 1), CONTIGUOUS_TO);
    add_routing(ready, PERMUTE);
    flw_ready_add(ready, "expert_offsets", ready->experts + 1, 1, 4, FALLOW_INIT_LEADING_ZERO,
                  ALIGN, DOWN);
    flw_ready_add(ready, "m_indices", rows, 1, 4, FALLOW_INIT_SENTINEL, ALIGN, DOWN);
    flw_ready_add(ready, "positions", choices, 1, 4, FALLOW_INIT_SENTINEL, ALIGN, COMBINE);
    add_permuted(ready, rows);
    add_products(ready, rows);
    add_out(ready);
}

FLW_READY_LAYOUT(moe_masked, "moe-masked")
{
    const fallow_model *model = ready->model;
    uint64_t choices = ready->step.tokens * model->top_k;
    uint64_t room = (ready->step.tokens / MASKED_STEP + 1) * MASKED_STEP;
    uint64_t rows = ready->experts * room;
    add_routing(ready, PERMUTE);
    flw_ready_add(ready, "masked_m", ready->experts, 1, 4, FALLOW_INIT_DIRTY, ALIGN, DOWN);
    flw_ready_add(ready, "positions", choices, 1, 4, FALLOW_INIT_SENTINEL, ALIGN, COMBINE);
    add_permuted(ready, rows);
    add_products(ready, rows);
    add_out(ready);
}
