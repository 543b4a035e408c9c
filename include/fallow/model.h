/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The geometry of a language model: what the sizes of its workspaces follow from. Presets are those of
 * the models' published configurations; any other model is a filled struct.
 */
#ifndef FALLOW_MODEL_H
#define FALLOW_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "fallow/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Zero: the model has none of it. */
typedef struct fallow_model {
    const char *name; /**< "llama-3-8b" */
    uint64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab;
    uint64_t experts, top_k, expert_intermediate;
    uint64_t dense_layers; /**< the first ones, without experts */
    uint64_t shared_experts;
    uint64_t query_rank, kv_rank, rope_dim; /**< latent attention; head_dim is then that of the part
                                                 without rope, and of values */
    uint64_t weight_bytes;                  /**< a value: 1 is fp8 */
} fallow_model;

/** The presets in their order; NULL after the last. Static storage. */
FALLOW_API const fallow_model *fallow_model_preset(size_t index);
/** By name; NULL: no such preset. */
FALLOW_API const fallow_model *fallow_model_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
