/* SPDX-License-Identifier: Apache-2.0 */
#include "arena/ready.h"

#include "base/sized.h"
#include "pool/pool.h"

/* Largest number of a step, and of a model: so that products of the paths, before the check of
 * flw_ready_add, fit 64 bits. */
#define SIZE_MOST  ((uint64_t)1 << 31)
#define MODEL_MOST ((uint64_t)1 << 20)

FLW_DEFINE_INIT_SIZED(fallow_step)

static void set_default(uint64_t *field, uint64_t value)
{
    *field = *field == 0 ? value : *field;
}

static void fill_defaults(fallow_step *step)
{
    set_default(&step->batch, 1);
    set_default(&step->tokens, step->batch);
    set_default(&step->context, 8192);
    set_default(&step->page_size, 64);
    set_default(&step->splits, 32);
    set_default(&step->sm_count, 132);
    set_default(&step->tensor_ranks, 1);
    set_default(&step->expert_ranks, 1);
    set_default(&step->block_rows, 128);
    set_default(&step->value_bytes, 2);
}

static bool is_model_sane(const fallow_model *model)
{
    const uint64_t sizes[] = {model->hidden,  model->heads,    model->kv_heads,
                              model->experts, model->top_k,    model->expert_intermediate,
                              model->kv_rank, model->rope_dim, model->head_dim};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] > MODEL_MOST) {
            return false;
        }
    }
    return true;
}

static bool are_sizes_sane(const fallow_step *step)
{
    const uint64_t sizes[] = {step->batch,      step->tokens,       step->context,
                              step->page_size,  step->chunk,        step->draft_tokens,
                              step->splits,     step->sm_count,     step->tensor_ranks,
                              step->block_rows, step->expert_ranks, step->value_bytes};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i] > SIZE_MOST) {
            return false;
        }
    }
    return step->value_bytes <= 4;
}

void flw_ready_require(struct flw_ready *ready, bool is_so)
{
    if (!is_so && ready->status == FALLOW_OK) {
        ready->status = FALLOW_INVALID_ARGUMENT;
    }
}

static fallow_status begin(struct flw_ready *ready, const fallow_model *model,
                           const fallow_step *step, fallow_layout **out_layout)
{
    *ready = (struct flw_ready){.model = model, .step = {.struct_size = sizeof ready->step}};
    if (out_layout == NULL || model == NULL || step == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_layout = NULL;
    fallow_status status = flw_struct_accept(&ready->step, sizeof ready->step, step);
    if (status != FALLOW_OK) {
        return status;
    }
    fill_defaults(&ready->step);
    flw_ready_require(ready, are_sizes_sane(&ready->step) && is_model_sane(model));
    flw_ready_require(ready, model->heads % ready->step.tensor_ranks == 0);
    flw_ready_require(ready, model->experts % ready->step.expert_ranks == 0);
    if (ready->status != FALLOW_OK) {
        return ready->status;
    }
    ready->heads = model->heads / ready->step.tensor_ranks;
    ready->kv_heads = flw_ready_divide_up(model->kv_heads, ready->step.tensor_ranks);
    ready->experts = model->experts / ready->step.expert_ranks;
    return FALLOW_OK;
}

fallow_status flw_ready_make(const char *name, const fallow_model *model, const fallow_step *step,
                             fallow_layout **out_layout, void (*fill)(struct flw_ready *ready))
{
    struct flw_ready ready;
    fallow_status status = begin(&ready, model, step, out_layout);
    if (status != FALLOW_OK) {
        return status;
    }
    fill(&ready);
    status = ready.status;
    if (status == FALLOW_OK) {
        status = fallow_layout_create(ready.regions, ready.count, out_layout);
    }
    if (status == FALLOW_OK) {
        status = fallow_layout_set_name(*out_layout, name);
    }
    return status;
}

fallow_region *flw_ready_add(struct flw_ready *ready, const char *name, uint64_t rows,
                             uint64_t columns, uint32_t element_bytes, fallow_init_class init,
                             uint32_t first_phase, uint32_t last_phase)
{
    uint64_t count = 0, bytes = 0;
    flw_ready_require(ready, !__builtin_mul_overflow(rows, columns, &count) &&
                                 !__builtin_mul_overflow(count, element_bytes, &bytes) &&
                                 ready->count < FLW_READY_REGIONS);
    if (ready->status != FALLOW_OK || bytes == 0) {
        return &ready->nowhere; /* leave out an empty region */
    }
    fallow_region *region = &ready->regions[ready->count];
    *region = (fallow_region){.name = name,
                              .size_bytes = bytes,
                              .init = init,
                              .first_phase = first_phase,
                              .last_phase = last_phase,
                              .element_bytes = element_bytes};
    ready->count++;
    return region;
}

void flw_ready_keep(struct flw_ready *ready, const char *name, uint64_t rows, uint64_t columns,
                    uint32_t element_bytes, fallow_init_class init, int64_t value, int64_t step)
{
    fallow_region *region = flw_ready_add(ready, name, rows, columns, element_bytes, init, 0, 0);
    region->flags = FALLOW_REGION_PERSISTENT;
    region->init_value = value;
    region->init_step = step;
}

static const char *const graph_phases[] = {"metadata", "attention", "combine", NULL};
static const char *const decode_phases[] = {"metadata", "attention", "combine", NULL};
static const char *const prefill_phases[] = {"new tokens", "gather",
                                             "project",    "concatenate",
                                             "attention",  "merge (1 to 5 again for each chunk)",
                                             NULL};
static const char *const moe_phases[] = {"route",      "align", "permute", "gate and up",
                                         "activation", "down",  "combine", NULL};

static const fallow_path paths[] = {
    {"fa3-graph", "FlashAttention's captured decode state and split accumulators",
     fallow_layout_fa3_graph, graph_phases},
    {"flashmla-decode", "FlashMLA's decode metadata and accumulators",
     fallow_layout_flashmla_decode, decode_phases},
    {"mla-prefill", "latent attention's prefill, contexts read in chunks",
     fallow_layout_mla_prefill, prefill_phases},
    {"moe-triton", "a layer of experts, Triton kernels", fallow_layout_moe_triton, moe_phases},
    {"moe-contiguous", "a layer of experts, DeepGEMM's contiguous rows",
     fallow_layout_moe_contiguous, moe_phases},
    {"moe-masked", "a layer of experts, DeepGEMM's masked rows", fallow_layout_moe_masked,
     moe_phases},
};

const fallow_path *fallow_path_at(size_t index)
{
    return index < sizeof paths / sizeof *paths ? &paths[index] : NULL;
}
