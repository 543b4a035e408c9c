/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the files of the generator `serve` share: a model's shape, one step's batch.
 */
#ifndef FLW_TRACE_GEN_GEN_SERVE_H
#define FLW_TRACE_GEN_GEN_SERVE_H

#include "fallow/model.h"
#include "trace/gen/gen.h"

#define FLW_SERVE_COMPUTE 0
#define FLW_SERVE_COPY    1 /* inputs, outputs, and what experts elsewhere send */

#define FLW_SERVE_LAYERS_MAX 128
#define FLW_SERVE_SHARE      UINT64_C(1000000) /* the whole, of the experts' shares */

/* The names of fallow/model.h's presets, in its order, and what the help says of them. */
extern const char *const flw_serve_model_names[];
extern const char *const flw_serve_model_help[];

struct flw_serve {
    struct flw_gen *gen;
    const fallow_model *model;
    uint64_t tp, ep;
    uint64_t heads, kv_heads, intermediate, expert_intermediate, experts; /* of this rank */
    uint64_t max_len, max_seqs;
    uint64_t chunk_tokens; /* of latent attention's workspace */
    bool is_flashmla;
    uint64_t shares[FLW_SERVE_LAYERS_MAX]; /* of all choices, those of this rank's experts */
};

/* What one step works on. */
struct flw_serve_batch {
    uint64_t tokens;
    uint64_t decodes;
    uint64_t samples; /* decodes, and prompts that end in this step */
    uint64_t splits;  /* of the longest decode's context; 1: not split */
    uint64_t context; /* of the prompts in this step: what was there before, and their tokens */
};

/* Of one layer, or with `layer` == model->layers, of what is outside the layers. */
uint64_t flw_serve_weight_bytes(const struct flw_serve *s, uint64_t layer);
/* Of one token in all layers. */
uint64_t flw_serve_kv_bytes(const struct flw_serve *s);
/* Takes the weights of all layers, one block a matrix. */
void flw_serve_load(struct flw_serve *s);
/* The shares of this rank's experts: `skew` in a hundred parts as Zipf has it, the rest even. */
void flw_serve_draw_shares(struct flw_serve *s, uint64_t skew);

/* All layers; the hidden states at their end, which the caller frees. */
uint32_t flw_serve_run_layers(struct flw_serve *s, const struct flw_serve_batch *batch);

#endif
