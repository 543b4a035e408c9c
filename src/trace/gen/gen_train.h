/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the files of the generator `train` share: a rank's parameters, the blocks of a microbatch.
 */
#ifndef FLW_TRACE_GEN_GEN_TRAIN_H
#define FLW_TRACE_GEN_GEN_TRAIN_H

#include "trace/gen/gen.h"

#define FLW_TRAIN_COMPUTE 0
#define FLW_TRAIN_COMM    1 /* gathers, reductions, sends and receives; only where there are any */

#define FLW_TRAIN_MATRICES 7 /* q, k, v, o, gate, up, down */
#define FLW_TRAIN_TENSORS  9 /* and two norms */

/* Parameters that are gathered and reduced together: a layer, or what is outside the layers. */
struct flw_train_unit {
    uint64_t sizes[FLW_TRAIN_TENSORS]; /* values of each tensor */
    size_t tensor_count;
    uint32_t weights[FLW_TRAIN_TENSORS];
    uint32_t masters[FLW_TRAIN_TENSORS];
    uint32_t gradients[FLW_TRAIN_TENSORS];
    uint32_t moments[FLW_TRAIN_TENSORS][2];
    uint32_t gathered; /* with sharding: all of it, while it is needed */
};

struct flw_train_norm {
    uint32_t inverse, normed;
};

/* Blocks that a layer's backward pass takes from its forward pass. */
struct flw_train_kept {
    uint32_t input, middle; /* of the two halves */
    struct flw_train_norm norms[2];
    uint32_t x[FLW_TRAIN_MATRICES], w[FLW_TRAIN_MATRICES]; /* cast to bf16 */
    uint32_t mask, query, key, value, maxima, exponents, sums, scores, lse;
    uint32_t gate, sigmoid, silu, up, product;
};

struct flw_train_micro {
    uint64_t seq, tokens;
    struct flw_train_kept *layers;
    uint32_t ids[2];
    uint32_t residual; /* the layers' input and output by turns */
    uint32_t gradient; /* of the residual, added to in place */
    /* the head */
    struct flw_train_norm norm;
    uint32_t x, w, logits, maxima, exponents, sums, loss, logs, one;
};

struct flw_train {
    struct flw_gen *gen;
    uint64_t layers, hidden, heads, ffn, batch, vocab;
    uint64_t ranks;       /* that shard the parameters; 1: none */
    uint64_t prefetch;    /* layers gathered ahead */
    uint64_t value_bytes; /* 4: weights and norms are fp32, matrices cast; 2: all is bf16 */
    bool has_masters;     /* fp32 weights beside bf16 ones */
    bool is_flash, recomputes, is_first, is_last;
    struct flw_train_unit *units; /* `layers` of them, then what is outside */
    uint32_t old_moments[2];      /* freed when the next tensor is updated */
};

static inline uint32_t flw_train_take(struct flw_train *t, uint64_t size_bytes)
{
    return flw_gen_take(t->gen, size_bytes, FLW_TRAIN_COMPUTE);
}

static inline uint32_t flw_train_turn(struct flw_train *t, uint32_t from, uint64_t size_bytes)
{
    return flw_gen_turn(t->gen, from, size_bytes, FLW_TRAIN_COMPUTE);
}

#define flw_train_give(t, ...) FLW_GEN_GIVE((t)->gen, __VA_ARGS__)

static inline void flw_train_drop(struct flw_train *t, uint32_t *block)
{
    flw_gen_drop(t->gen, block);
}

/* What every token's hidden values take in bf16, and in the type of the residual. */
static inline uint64_t flw_train_half_bytes(const struct flw_train *t,
                                            const struct flw_train_micro *m)
{
    return m->tokens * t->hidden * 2;
}

static inline uint64_t flw_train_full_bytes(const struct flw_train *t,
                                            const struct flw_train_micro *m)
{
    return m->tokens * t->hidden * t->value_bytes;
}

static inline bool flw_train_casts(const struct flw_train *t)
{
    return t->value_bytes != 2;
}

/* A copy in bf16 of something; none where it is that already. */
static inline uint32_t flw_train_cast(struct flw_train *t, uint64_t size_bytes)
{
    return flw_train_casts(t) ? flw_train_take(t, size_bytes) : FLW_GEN_NO_BLOCK;
}

/* A weight as matrices want it: sharded ones are views of what was gathered. */
static inline uint32_t flw_train_cast_weight(struct flw_train *t, uint64_t values)
{
    return t->ranks > 1 ? FLW_GEN_NO_BLOCK : flw_train_cast(t, values * 2);
}

/* ---- gen_train_layer.c ------------------------------------------------------------------------
 */

/* m->residual in, m->residual out. */
void flw_train_forward_layer(struct flw_train *t, struct flw_train_micro *m, size_t layer);
/* Frees what the forward pass kept; gradients of the layer's parameters are taken. */
void flw_train_backward_layer(struct flw_train *t, struct flw_train_micro *m, size_t layer);
/* Free what the forward pass of a layer kept beside its input. */
void flw_train_forget_layer(struct flw_train *t, struct flw_train_micro *m, size_t layer);

uint32_t flw_train_forward_norm(struct flw_train *t, const struct flw_train_micro *m,
                                struct flw_train_norm *norm);
/* `upstream`, the norm and its input are freed; m->gradient is made, or added to where it is there. */
void flw_train_backward_norm(struct flw_train *t, struct flw_train_micro *m,
                             struct flw_train_norm *norm, uint32_t upstream, uint32_t *input,
                             uint32_t *weight_gradient);
/* A norm's output after the matrices that read it; where they read no copy, they keep it as *x. */
void flw_train_release_normed(struct flw_train *t, uint32_t normed, uint32_t *x);
/* A weight's gradient has been made in bf16: cast, and copied for the parameter unless it is there. */
void flw_train_keep_gradient(struct flw_train *t, uint32_t made, uint64_t values,
                             uint32_t *gradient);
/* A gradient made in bf16, in the residual's type: it is *sum, or is added to what is there. */
void flw_train_widen(struct flw_train *t, struct flw_train_micro *m, uint32_t made, uint32_t *sum);

/* ---- gen_train_state.c: both ends of the layers -----------------------------------------------
 */

/* Of a microbatch that begins here: the embedding, or what the stage before sends. */
void flw_train_forward_embedding(struct flw_train *t, struct flw_train_micro *m);
void flw_train_backward_embedding(struct flw_train *t, struct flw_train_micro *m);
/* The loss and the gradient of the residual, or the way to and from the next stage. */
void flw_train_forward_head(struct flw_train *t, struct flw_train_micro *m);
void flw_train_backward_head(struct flw_train *t, struct flw_train_micro *m);

/* ---- gen_train_state.c: parameters and state --------------------------------------------------
 */

void flw_train_make_parameters(struct flw_train *t);
void flw_train_free_parameters(struct flw_train *t);
void flw_train_drop_gradients(struct flw_train *t);
void flw_train_update(struct flw_train *t);

/* Each does nothing without sharding. All parameters of a unit, gathered on the communication stream;
 * from enter on the computing stream uses them; leave frees them. The gradients of a unit, all of them,
 * are reduced to this rank's part. */
void flw_train_gather(struct flw_train *t, size_t unit);
void flw_train_enter(struct flw_train *t, size_t unit);
void flw_train_leave(struct flw_train *t, size_t unit);
uint32_t flw_train_begin_gradients(struct flw_train *t, size_t unit);
void flw_train_reduce(struct flw_train *t, size_t unit, uint32_t gradients);

#endif
