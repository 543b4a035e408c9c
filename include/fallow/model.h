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
    const char *name;             /**< "llama-3-8b" */
    uint64_t layers;              /**< of the whole model */
    uint64_t hidden;              /**< width of a token between layers, elements */
    uint64_t heads;               /**< of queries */
    uint64_t kv_heads;            /**< of keys and values */
    uint64_t head_dim;            /**< elements of a head */
    uint64_t intermediate;        /**< inner width of a dense layer */
    uint64_t vocab;               /**< words */
    uint64_t experts;             /**< that tokens choose from */
    uint64_t top_k;               /**< that a token chooses */
    uint64_t expert_intermediate; /**< inner width of an expert */
    uint64_t dense_layers;        /**< the first ones, without experts */
    uint64_t shared_experts;      /**< that every token goes to */
    uint64_t query_rank; /**< latent attention, as the next two: width of a compressed query */
    uint64_t kv_rank;    /**< width of a compressed row of the cache */
    uint64_t
        rope_dim; /**< elements with rope; head_dim is then that of the part without, and of values */
    uint64_t weight_bytes; /**< a value: 1 is fp8 */
} fallow_model;

/** The presets in their order; NULL after the last. Static storage. */
FALLOW_API const fallow_model *fallow_model_preset(size_t index);
/** By name; NULL: no such preset. */
FALLOW_API const fallow_model *fallow_model_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
