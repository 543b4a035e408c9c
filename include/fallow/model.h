/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The dimensions of a language model, from which the sizes of its workspaces follow. Presets have the
 * models' published configurations; any other model is a struct that the caller fills in.
 */
#ifndef FALLOW_MODEL_H
#define FALLOW_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "fallow/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Dimensions of a model. 0: the model has no such part. */
typedef struct fallow_model {
    const char *name;             /**< "llama-3-8b" */
    uint64_t layers;              /**< of the whole model */
    uint64_t hidden;              /**< width of a token between layers, elements */
    uint64_t heads;               /**< query heads */
    uint64_t kv_heads;            /**< heads of keys and values */
    uint64_t head_dim;            /**< elements of a head */
    uint64_t intermediate;        /**< inner width of a dense layer */
    uint64_t vocab;               /**< words */
    uint64_t experts;             /**< experts of a layer */
    uint64_t top_k;               /**< experts per token */
    uint64_t expert_intermediate; /**< inner width of an expert */
    uint64_t dense_layers;        /**< leading layers without experts */
    uint64_t shared_experts;      /**< experts that process every token */
    uint64_t query_rank;          /**< latent attention: width of a compressed query */
    uint64_t kv_rank;             /**< latent attention: width of a compressed row of the cache */
    /** Latent attention: elements with rotary embedding. head_dim is then the width of the rest, and of
     *  values. */
    uint64_t rope_dim;
    uint64_t weight_bytes; /**< of one weight; fp8 has 1 */
} fallow_model;

/** Return preset number `index`, NULL after the last. Static storage. */
FALLOW_API const fallow_model *fallow_model_preset(size_t index);
/** Return the preset of that name, NULL if there is none. */
FALLOW_API const fallow_model *fallow_model_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
