/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a rank's parameters, their gradients and the optimizer's state: AdamW, tensor by tensor.
 *
 * A tensor of n values: weights p n bytes, p the type's; moments 4 n each, made in the first update,
 * and made anew in every one: 14 temporaries of 4 n bytes a tensor, two of which stay. With fp32
 * masters beside bf16 weights: 4 n more. Sharded over R ranks: one tensor a unit, of a R-th of its
 * values; what computes takes 2 n bytes for all of a unit on the communication stream, gradients 2 n
 * bytes, reduced to 4 n / R there.
 */
#include "trace/gen_train.h"

#include "base/bits.h"

#define NONE FLW_GEN_NO_BLOCK

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
