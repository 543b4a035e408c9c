/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tensors at both ends of the layers: embedding, head and loss, or what comes from and goes to
 * other stages. Sizes as in gen_train_layer.c.
 *
 *   head       2 V h cast, 2 T h cast; logits 2 T V
 *   loss       maxima 2 T and 8 T; 2 T V; 4 T V twice; sums 4 T twice; 4 T V twice; 4 T; 4
 *   embedding  p T h; back p V h, and five times 8 T with scratch to sort the ids
 */
#include "trace/gen_train.h"

#define NONE FLW_GEN_NO_BLOCK

/* Tensors of the unit that is outside the layers. */
enum {
    OUTSIDE_EMBEDDING,
    OUTSIDE_NORM,
    OUTSIDE_HEAD
};

#define SORT_SCRATCH_BYTES     6655
#define SORT_SCRATCH_PER_TOKEN 16

static struct flw_train_unit *outside(struct flw_train *t)
{
    return &t->units[t->layers];
}

void flw_train_forward_embedding(struct flw_train *t, struct flw_train_micro *m)
{
    if (t->is_first) {
        m->residual = flw_train_take(t, flw_train_full_bytes(t, m));
        return;
    }
    m->residual = flw_gen_take(t->gen, flw_train_full_bytes(t, m), FLW_TRAIN_COMM);
    flw_gen_use(t->gen, m->residual, FLW_TRAIN_COMPUTE);
}

/* The rows' gradients are sorted by id and summed. */
static void sort_ids(struct flw_train *t, const struct flw_train_micro *m)
{
    uint32_t sorted[5];
    sorted[0] = flw_train_take(t, m->tokens * 8);
    sorted[1] = flw_train_turn(t, sorted[0], m->tokens * 8);
    for (size_t i = 2; i < 5; i++) {
        sorted[i] = flw_train_take(t, m->tokens * 8);
    }
    uint64_t scratch_bytes = SORT_SCRATCH_BYTES + m->tokens * SORT_SCRATCH_PER_TOKEN;
    flw_train_give(t, flw_train_take(t, scratch_bytes));
    for (size_t i = 5; i-- > 1;) {
        flw_train_give(t, sorted[i]);
    }
}

void flw_train_backward_embedding(struct flw_train *t, struct flw_train_micro *m)
{
    if (!t->is_first) {
        flw_gen_use(t->gen, m->gradient, FLW_TRAIN_COMM); /* to the stage before */
        flw_train_drop(t, &m->gradient);
    } else {
        uint32_t made = flw_train_take(t, t->vocab * t->hidden * t->value_bytes);
        sort_ids(t, m);
        uint32_t *gradient = &outside(t)->gradients[OUTSIDE_EMBEDDING];
        if (*gradient == NONE && t->ranks == 1) {
            *gradient = made;
        } else {
            flw_train_give(t, made);
        }
        flw_train_drop(t, &m->gradient);
    }
    flw_train_drop(t, &m->one);
}

static void forward_loss(struct flw_train *t, struct flw_train_micro *m)
{
    uint64_t bytes = m->tokens * t->vocab * 2;
    uint32_t maxima = flw_train_take(t, m->tokens * 2);
    m->maxima = flw_train_take(t, m->tokens * 8);
    uint32_t shifted = flw_train_take(t, bytes);
    uint32_t wide = flw_train_take(t, 2 * bytes);
    m->exponents = flw_train_turn(t, wide, 2 * bytes);
    m->sums = flw_train_take(t, m->tokens * 4);
    uint32_t log_sums = flw_train_take(t, m->tokens * 4);
    uint32_t log_softmax = flw_train_take(t, 2 * bytes);
    flw_train_give(t, log_sums, shifted, maxima);
    m->logs = flw_train_turn(t, log_softmax, 2 * bytes);
    uint32_t picked = flw_train_take(t, m->tokens * 4);
    m->loss = flw_train_turn(t, picked, 4);
}

void flw_train_forward_head(struct flw_train *t, struct flw_train_micro *m)
{
    if (!t->is_last) {
        flw_gen_use(t->gen, m->residual, FLW_TRAIN_COMM); /* to the stage behind */
        flw_train_drop(t, &m->residual);
        return;
    }
    uint32_t normed = flw_train_forward_norm(t, m, &m->norm);
    m->x = flw_train_cast(t, flw_train_half_bytes(t, m));
    m->w = flw_train_cast_weight(t, t->vocab * t->hidden);
    m->logits = flw_train_take(t, m->tokens * t->vocab * 2);
    flw_train_release_normed(t, normed, &m->x);
    forward_loss(t, m);
}

/* To the gradient of the logits, in bf16. */
static uint32_t backward_loss(struct flw_train *t, struct flw_train_micro *m)
{
    uint64_t bytes = m->tokens * t->vocab * 2;
    m->one = flw_train_take(t, 4);
    uint32_t mean = flw_train_take(t, m->tokens * 4);
    uint32_t scattered = flw_train_turn(t, mean, 2 * bytes);
    flw_train_drop(t, &m->logs);
    uint32_t negative = flw_train_turn(t, scattered, 2 * bytes);
    uint32_t direct = flw_train_take(t, 2 * bytes);
    uint32_t logits = flw_train_take(t, bytes);
    uint32_t log_sums = flw_train_take(t, m->tokens * 4);
    flw_train_give(t, direct, negative);
    uint32_t sums = flw_train_turn(t, log_sums, m->tokens * 4);
    flw_train_drop(t, &m->sums);
    uint32_t exponents = flw_train_turn(t, sums, 2 * bytes);
    flw_train_drop(t, &m->exponents);
    uint32_t narrow = flw_train_take(t, bytes);
    flw_train_give(t, exponents, narrow);
    uint32_t shifted = flw_train_take(t, bytes);
    uint32_t maxima = flw_train_turn(t, shifted, m->tokens * 2);
    uint32_t spread = flw_train_turn(t, maxima, bytes);
    flw_train_drop(t, &m->maxima);
    flw_train_give(t, spread);
    return logits;
}

void flw_train_backward_head(struct flw_train *t, struct flw_train_micro *m)
{
    if (!t->is_last) {
        m->gradient = flw_gen_take(t->gen, flw_train_full_bytes(t, m), FLW_TRAIN_COMM);
        flw_gen_use(t->gen, m->gradient, FLW_TRAIN_COMPUTE);
        return;
    }
    uint64_t values = t->vocab * t->hidden;
    uint32_t logits = backward_loss(t, m);
    uint32_t weight = flw_train_take(t, values * 2);
    uint32_t input = flw_train_turn(t, logits, flw_train_half_bytes(t, m));
    flw_train_drop(t, &m->w);
    flw_train_drop(t, &m->x);
    flw_train_keep_gradient(t, weight, values, &outside(t)->gradients[OUTSIDE_HEAD]);
    uint32_t upstream = NONE;
    flw_train_widen(t, m, input, &upstream);
    flw_train_backward_norm(t, m, &m->norm, upstream, &m->residual,
                            &outside(t)->gradients[OUTSIDE_NORM]);
}
