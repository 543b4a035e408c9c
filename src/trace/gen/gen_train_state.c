/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a rank has beside its layers' tensors: parameters, their gradients and the optimizer's state (AdamW,
 * tensor by tensor), and the tensors at both ends of the layers: embedding, head and loss, or what comes from and goes
 * to other stages.
 *
 * A tensor of n values: weights p n bytes, p the type's; moments 4 n each, made in the first update,
 * and made anew in every one: 14 temporaries of 4 n bytes a tensor, two of which stay. With fp32
 * masters beside bf16 weights: 4 n more. Sharded over R ranks: one tensor a unit, of a R-th of its
 * values; what computes takes 2 n bytes for all of a unit on the communication stream, gradients 2 n
 * bytes, reduced to 4 n / R there.
 *
 *   head       2 V h cast, 2 T h cast; logits 2 T V
 *   loss       maxima 2 T and 8 T; 2 T V; 4 T V twice; sums 4 T twice; 4 T V twice; 4 T; 4
 *   embedding  p T h; back p V h, and five times 8 T with scratch to sort the ids
 */
#include "trace/gen/gen_train.h"

#include "base/bits.h"

#define NONE FLW_GEN_NO_BLOCK

/* ---- parameters and state ---- */

static uint64_t unit_values(const struct flw_train_unit *unit)
{
    uint64_t values = 0;
    for (size_t i = 0; i < unit->tensor_count; i++) {
        values += unit->sizes[i];
    }
    return values;
}

/* Of what this rank keeps: all tensors, or its part of their sum. */
static size_t own_count(const struct flw_train *t, const struct flw_train_unit *unit)
{
    return t->ranks > 1 && unit->tensor_count > 0 ? 1 : unit->tensor_count;
}

static uint64_t own_values(const struct flw_train *t, const struct flw_train_unit *unit, size_t i)
{
    return t->ranks > 1 ? flw_div_up(unit_values(unit), t->ranks) : unit->sizes[i];
}

static void describe_layer(const struct flw_train *t, struct flw_train_unit *unit)
{
    for (size_t i = 0; i < FLW_TRAIN_MATRICES; i++) {
        unit->sizes[i] = t->hidden * (i < 4 ? t->hidden : t->ffn);
    }
    unit->sizes[FLW_TRAIN_MATRICES] = t->hidden;
    unit->sizes[FLW_TRAIN_MATRICES + 1] = t->hidden;
    unit->tensor_count = FLW_TRAIN_TENSORS;
}

/* The embedding, the last norm, the head; 0 values where the stage has it not. */
static void describe_outside(const struct flw_train *t, struct flw_train_unit *unit)
{
    unit->sizes[0] = t->is_first ? t->vocab * t->hidden : 0;
    unit->sizes[1] = t->is_last ? t->hidden : 0;
    unit->sizes[2] = t->is_last ? t->vocab * t->hidden : 0;
    unit->tensor_count = t->is_first || t->is_last ? 3 : 0;
}

void flw_train_make_parameters(struct flw_train *t)
{
    for (size_t u = 0; u <= t->layers; u++) {
        struct flw_train_unit *unit = &t->units[u];
        if (u < t->layers) {
            describe_layer(t, unit);
        } else {
            describe_outside(t, unit);
        }
        unit->gathered = NONE;
        for (size_t i = 0; i < FLW_TRAIN_TENSORS; i++) {
            unit->weights[i] = unit->gradients[i] = unit->masters[i] = NONE;
            unit->moments[i][0] = unit->moments[i][1] = NONE;
        }
        for (size_t i = 0; i < own_count(t, unit); i++) {
            unit->weights[i] = flw_train_take(t, own_values(t, unit, i) * t->value_bytes);
        }
    }
    t->old_moments[0] = t->old_moments[1] = NONE;
}

void flw_train_free_parameters(struct flw_train *t)
{
    flw_train_drop_gradients(t);
    for (size_t u = 0; u <= t->layers; u++) {
        struct flw_train_unit *unit = &t->units[u];
        for (size_t i = 0; i < own_count(t, unit); i++) {
            flw_gen_drop(t->gen, &unit->weights[i]);
            flw_gen_drop(t->gen, &unit->masters[i]);
            flw_gen_drop(t->gen, &unit->moments[i][0]);
            flw_gen_drop(t->gen, &unit->moments[i][1]);
        }
    }
}

void flw_train_drop_gradients(struct flw_train *t)
{
    for (size_t u = 0; u <= t->layers; u++) {
        for (size_t i = 0; i < FLW_TRAIN_TENSORS; i++) {
            flw_gen_drop(t->gen, &t->units[u].gradients[i]);
        }
    }
}

/* ---- the update -------------------------------------------------------------------------------
 */

/* Zeros in case there is no moment yet; the last tensor's old one goes when the variable that held it
 * is set anew. */
static void look_up_moment(struct flw_train *t, uint32_t *moment, uint64_t bytes, uint32_t *old)
{
    uint32_t zeros = flw_train_take(t, bytes);
    if (*moment == NONE) {
        *moment = zeros;
    } else {
        flw_train_give(t, zeros);
    }
    flw_gen_drop(t->gen, old);
    *old = *moment;
}

static void update_tensor(struct flw_train *t, uint32_t moments[2], uint64_t bytes)
{
    flw_train_give(t, flw_train_take(t, bytes)); /* decay */
    look_up_moment(t, &moments[0], bytes, &t->old_moments[0]);
    look_up_moment(t, &moments[1], bytes, &t->old_moments[1]);
    uint32_t kept = flw_train_take(t, bytes);
    uint32_t added = flw_train_take(t, bytes);
    moments[0] = flw_train_take(t, bytes);
    flw_train_give(t, kept, added);
    kept = flw_train_take(t, bytes);
    uint32_t squared = flw_train_take(t, bytes);
    added = flw_train_turn(t, squared, bytes);
    moments[1] = flw_train_take(t, bytes);
    flw_train_give(t, kept, added);
    uint32_t scaled = flw_train_take(t, bytes);
    uint32_t root = flw_train_take(t, bytes);
    uint32_t divisor = flw_train_turn(t, root, bytes);
    uint32_t change = flw_train_take(t, bytes);
    flw_train_give(t, scaled, divisor, change);
}

static void update(struct flw_train *t, struct flw_train_unit *unit, size_t i)
{
    uint64_t bytes = own_values(t, unit, i) * 4;
    if (bytes == 0) {
        return;
    }
    if (t->has_masters && unit->masters[i] == NONE) {
        unit->masters[i] = flw_train_take(t, bytes);
    }
    update_tensor(t, unit->moments[i], bytes);
}

void flw_train_update(struct flw_train *t)
{
    struct flw_train_unit *outside = &t->units[t->layers];
    size_t outside_count = own_count(t, outside);
    for (size_t i = 0; i < flw_min(outside_count, 1); i++) {
        update(t, outside, i);
    }
    for (size_t u = 0; u < t->layers; u++) {
        for (size_t i = 0; i < own_count(t, &t->units[u]); i++) {
            update(t, &t->units[u], i);
        }
    }
    for (size_t i = 1; i < outside_count; i++) {
        update(t, outside, i);
    }
    flw_gen_drop(t->gen, &t->old_moments[0]);
    flw_gen_drop(t->gen, &t->old_moments[1]);
}

/* ---- sharding ---------------------------------------------------------------------------------
 */

void flw_train_gather(struct flw_train *t, size_t unit)
{
    struct flw_train_unit *u = &t->units[unit];
    if (t->ranks > 1 && u->gathered == NONE) {
        u->gathered = flw_gen_take(t->gen, unit_values(u) * 2, FLW_TRAIN_COMM);
    }
}

void flw_train_enter(struct flw_train *t, size_t unit)
{
    flw_gen_use(t->gen, t->units[unit].gathered, FLW_TRAIN_COMPUTE);
}

void flw_train_leave(struct flw_train *t, size_t unit)
{
    flw_gen_drop(t->gen, &t->units[unit].gathered);
}

uint32_t flw_train_begin_gradients(struct flw_train *t, size_t unit)
{
    return t->ranks > 1 ? flw_train_take(t, unit_values(&t->units[unit]) * 2) : NONE;
}

void flw_train_reduce(struct flw_train *t, size_t unit, uint32_t gradients)
{
    struct flw_train_unit *u = &t->units[unit];
    if (gradients == NONE) {
        return;
    }
    uint32_t own = flw_gen_take(t->gen, own_values(t, u, 0) * 4, FLW_TRAIN_COMM);
    flw_gen_use(t->gen, gradients, FLW_TRAIN_COMM);
    flw_train_give(t, gradients);
    flw_gen_use(t->gen, own, FLW_TRAIN_COMPUTE);
    if (u->gradients[0] == NONE) {
        u->gradients[0] = own;
    } else {
        flw_train_give(t, own); /* added to what is there */
    }
}

/* ---- both ends of the layers ---- */

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
