/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what layers and head have in common: RMS norms, and what becomes of a gradient. Sizes as in
 * gen_train_layer.c.
 *
 *   norm   p T h squared; p T three times for the mean and its inverse root; p T h, p T h
 *   back   p T h twice; the weight's gradient p h, summed over rows with 8 T h of staging and 32 bytes of
 *          semaphores; p T h twice, p T four times; p T h four times
 */
#include "trace/gen_train.h"

#define NONE FLW_GEN_NO_BLOCK

#define REDUCE_BYTES_PER_VALUE 8  /* the staging of a sum over rows */
#define SEMAPHORE_BYTES        32 /* of its blocks */

void flw_train_release_normed(struct flw_train *t, uint32_t normed, uint32_t *x)
{
    if (flw_train_casts(t)) {
        flw_train_give(t, normed);
    } else {
        *x = normed;
    }
}

void flw_train_keep_gradient(struct flw_train *t, uint32_t made, uint64_t values,
                             uint32_t *gradient)
{
    if (t->ranks > 1) {
        flw_train_give(t, made); /* into the unit's own */
        return;
    }
    uint32_t wide = flw_train_cast(t, values * 4);
    if (wide == NONE) {
        wide = made;
    } else {
        flw_train_give(t, made);
    }
    if (*gradient == NONE) {
        *gradient = flw_train_take(t, values * t->value_bytes);
    }
    flw_train_give(t, wide);
}

void flw_train_widen(struct flw_train *t, struct flw_train_micro *m, uint32_t made, uint32_t *sum)
{
    uint32_t wide = flw_train_casts(t) ? flw_train_take(t, flw_train_full_bytes(t, m)) : made;
    if (flw_train_casts(t)) {
        flw_train_give(t, made);
    }
    if (*sum == NONE) {
        *sum = wide;
    } else {
        flw_train_give(t, wide);
    }
}

uint32_t flw_train_forward_norm(struct flw_train *t, const struct flw_train_micro *m,
                                struct flw_train_norm *norm)
{
    uint64_t bytes = flw_train_full_bytes(t, m);
    uint64_t row = m->tokens * t->value_bytes;
    uint32_t squares = flw_train_take(t, bytes);
    uint32_t means = flw_train_turn(t, squares, row);
    uint32_t shifted = flw_train_turn(t, means, row);
    norm->inverse = flw_train_turn(t, shifted, row);
    norm->normed = flw_train_take(t, bytes);
    return flw_train_take(t, bytes);
}

/* The gradient of the norm's weight: a sum over rows. One that is there is added to. */
static void sum_rows(struct flw_train *t, const struct flw_train_micro *m,
                     uint32_t *weight_gradient)
{
    uint32_t sum = flw_train_take(t, t->hidden * t->value_bytes);
    uint32_t staging = flw_train_take(t, m->tokens * t->hidden * REDUCE_BYTES_PER_VALUE);
    uint32_t semaphores = flw_train_take(t, SEMAPHORE_BYTES);
    flw_train_give(t, semaphores, staging);
    if (*weight_gradient == NONE && t->ranks == 1) {
        *weight_gradient = sum;
    } else {
        flw_train_give(t, sum);
    }
}

void flw_train_backward_norm(struct flw_train *t, struct flw_train_micro *m,
                             struct flw_train_norm *norm, uint32_t upstream, uint32_t *input,
                             uint32_t *weight_gradient)
{
    uint64_t bytes = flw_train_full_bytes(t, m);
    uint64_t row = m->tokens * t->value_bytes;
    uint32_t scaled = flw_train_take(t, bytes);
    uint32_t weighted = flw_train_take(t, bytes);
    sum_rows(t, m, weight_gradient);
    flw_train_give(t, weighted, upstream);
    flw_train_drop(t, &norm->normed);
    uint32_t by_inverse = flw_train_take(t, bytes);
    uint32_t direct = flw_train_take(t, bytes);
    uint32_t inverse_sum = flw_train_take(t, row);
    flw_train_give(t, by_inverse, scaled);
    if (m->gradient == NONE) {
        m->gradient = direct;
    } else {
        flw_train_give(t, direct);
    }
    uint32_t rows[3];
    for (size_t i = 0; i < 3; i++) {
        rows[i] = flw_train_take(t, row);
    }
    flw_train_give(t, rows[1], rows[0], inverse_sum);
    flw_train_drop(t, &norm->inverse);
    uint32_t spread = flw_train_turn(t, rows[2], bytes);
    uint32_t powers[3];
    for (size_t i = 0; i < 3; i++) {
        powers[i] = flw_train_take(t, bytes);
    }
    flw_train_give(t, powers[1], powers[0], spread);
    flw_train_drop(t, input);
    flw_train_give(t, powers[2]);
}
