/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tensors of a transformer's layers, forward and backward, as PyTorch's autograd takes and
 * frees them; what the head has in common with them: RMS norms, and what becomes of a gradient.
 *
 * b sequences of s tokens, T = b s; h hidden, H heads, I inner, V vocabulary; RMS norms, rotary
 * positions, gated inner layer. Weights, norms and the residual are p = 4 bytes a value, what
 * matrices multiply is cast to bf16 (autocast); or all is bf16 (p = 2) and nothing is cast.
 *
 *   q k v      2 T h and 2 h h cast, 2 T h out, each
 *   rotate     six halves of 4 T h / 2, then 4 T h; q and k
 *   attention  scores 2 b H s s three times, softmax 2 b H s s, 4 b H s s twice, with 2 and 8 b H s
 *              for the maxima and 4 b H s for the sums; 2 T h four times. Flash: 2 T h and 4 b H s
 *   inner      2 T I: gate, sigmoid, their product, up, product; 2 h I cast, three times
 *   norm       p T h squared; p T three times for the mean and its inverse root; p T h, p T h
 * Backward the same sizes come in reverse; a gradient is made in bf16, cast, and copied. Of a norm:
 *   p T h twice; the weight's gradient p h, summed over rows with 8 T h of staging and 32 bytes of
 *   semaphores; p T h twice, p T four times; p T h four times
 */
#include "trace/gen/gen_train.h"

#include <string.h>

#define NONE FLW_GEN_NO_BLOCK

#define REDUCE_BYTES_PER_VALUE 8  /* the staging of a sum over rows */
#define SEMAPHORE_BYTES        32 /* of its blocks */

enum {
    Q,
    K,
    V,
    O,
    GATE,
    UP,
    DOWN,
    NORM_ATTENTION,
    NORM_INNER
};

static uint64_t inner_bytes(const struct flw_train *t, const struct flw_train_micro *m)
{
    return m->tokens * t->ffn * 2;
}

/* Of one value for each pair of tokens of a head. */
static uint64_t score_bytes(const struct flw_train *t, const struct flw_train_micro *m,
                            uint64_t value_bytes)
{
    return t->batch * t->heads * m->seq * m->seq * value_bytes;
}

/* Of one value for each token of a head. */
static uint64_t row_bytes(const struct flw_train *t, const struct flw_train_micro *m,
                          uint64_t value_bytes)
{
    return t->batch * t->heads * m->seq * value_bytes;
}

static uint64_t matrix_values(const struct flw_train *t, int matrix)
{
    return t->hidden * (matrix >= GATE ? t->ffn : t->hidden);
}

/* ---- norms and gradients ------------------------------------------------------------------------
 */

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

/* ---- forward ----------------------------------------------------------------------------------
 */

/* Half of the columns: two products and their sum or difference. */
static uint32_t rotate_half(struct flw_train *t, uint64_t bytes)
{
    uint32_t first = flw_train_take(t, bytes);
    uint32_t second = flw_train_take(t, bytes);
    uint32_t sum = flw_train_take(t, bytes);
    flw_train_give(t, first, second);
    return sum;
}

static uint32_t rotate(struct flw_train *t, const struct flw_train_micro *m, uint32_t x)
{
    uint64_t bytes = m->tokens * (t->hidden / 2) * 4;
    uint32_t even = rotate_half(t, bytes);
    uint32_t odd = rotate_half(t, bytes);
    uint32_t rotated = flw_train_take(t, m->tokens * t->hidden * 4);
    flw_train_give(t, even, odd, x);
    return rotated;
}

/* Softmax of masked scores; what it returns are the weights of the values in fp32, freed later. */
static uint32_t softmax(struct flw_train *t, const struct flw_train_micro *m,
                        struct flw_train_kept *k)
{
    uint32_t products = flw_train_take(t, score_bytes(t, m, 2));
    uint32_t scaled = flw_train_turn(t, products, score_bytes(t, m, 2));
    uint32_t infinity = flw_train_take(t, 2);
    uint32_t masked = flw_train_take(t, score_bytes(t, m, 2));
    flw_train_give(t, infinity, scaled);
    uint32_t maxima = flw_train_take(t, row_bytes(t, m, 2));
    k->maxima = flw_train_take(t, row_bytes(t, m, 8));
    uint32_t shifted = flw_train_turn(t, maxima, score_bytes(t, m, 2));
    uint32_t wide = flw_train_take(t, score_bytes(t, m, 4));
    k->exponents = flw_train_turn(t, wide, score_bytes(t, m, 4));
    k->sums = flw_train_take(t, row_bytes(t, m, 4));
    uint32_t weights = flw_train_turn(t, shifted, score_bytes(t, m, 4));
    k->scores = flw_train_take(t, score_bytes(t, m, 2));
    k->value = flw_train_take(t, flw_train_half_bytes(t, m));
    uint32_t out = flw_train_take(t, flw_train_half_bytes(t, m));
    flw_train_give(t, masked, weights);
    return out;
}

static uint32_t attend(struct flw_train *t, const struct flw_train_micro *m,
                       struct flw_train_kept *k, const uint32_t *rotated)
{
    uint32_t positions = flw_train_take(t, m->seq * 8);
    uint32_t out;
    if (t->is_flash) {
        k->query = flw_train_take(t, flw_train_half_bytes(t, m));
        k->key = flw_train_take(t, flw_train_half_bytes(t, m));
        k->value = flw_train_take(t, flw_train_half_bytes(t, m));
        out = flw_train_take(t, flw_train_half_bytes(t, m));
        k->lse = flw_train_take(t, row_bytes(t, m, 4));
    } else {
        k->mask = flw_train_take(t, m->seq * m->seq);
        k->query = flw_train_take(t, flw_train_half_bytes(t, m));
        k->key = flw_train_take(t, flw_train_half_bytes(t, m));
        out = softmax(t, m, k);
    }
    k->x[O] = flw_train_turn(t, out, flw_train_half_bytes(t, m));
    k->w[O] = flw_train_cast_weight(t, matrix_values(t, O));
    uint32_t projected = flw_train_take(t, flw_train_half_bytes(t, m));
    flw_train_give(t, rotated[Q], rotated[K], rotated[V], positions);
    return projected;
}

static uint32_t forward_attention(struct flw_train *t, struct flw_train_micro *m,
                                  struct flw_train_kept *k)
{
    uint32_t rotated[3];
    uint32_t normed = flw_train_forward_norm(t, m, &k->norms[0]);
    for (int i = Q; i <= V; i++) {
        k->x[i] = flw_train_cast(t, flw_train_half_bytes(t, m));
        k->w[i] = flw_train_cast_weight(t, matrix_values(t, i));
        rotated[i] = flw_train_take(t, flw_train_half_bytes(t, m));
    }
    rotated[Q] = rotate(t, m, rotated[Q]);
    rotated[K] = rotate(t, m, rotated[K]);
    uint32_t projected = attend(t, m, k, rotated);
    flw_train_release_normed(t, normed, &k->x[Q]);
    return projected;
}

static uint32_t forward_inner(struct flw_train *t, struct flw_train_micro *m,
                              struct flw_train_kept *k)
{
    uint32_t normed = flw_train_forward_norm(t, m, &k->norms[1]);
    k->x[GATE] = flw_train_cast(t, flw_train_half_bytes(t, m));
    k->w[GATE] = flw_train_cast_weight(t, matrix_values(t, GATE));
    k->gate = flw_train_take(t, inner_bytes(t, m));
    k->sigmoid = flw_train_take(t, inner_bytes(t, m));
    k->silu = flw_train_take(t, inner_bytes(t, m));
    k->x[UP] = flw_train_cast(t, flw_train_half_bytes(t, m));
    k->w[UP] = flw_train_cast_weight(t, matrix_values(t, UP));
    k->up = flw_train_take(t, inner_bytes(t, m));
    k->product = flw_train_take(t, inner_bytes(t, m));
    k->w[DOWN] = flw_train_cast_weight(t, matrix_values(t, DOWN));
    uint32_t out = flw_train_take(t, flw_train_half_bytes(t, m));
    flw_train_release_normed(t, normed, &k->x[GATE]);
    return out;
}

void flw_train_forward_layer(struct flw_train *t, struct flw_train_micro *m, size_t layer)
{
    struct flw_train_kept *k = &m->layers[layer];
    memset(k, 0xFF, sizeof(*k)); /* every block FLW_GEN_NO_BLOCK */
    k->input = m->residual;
    uint32_t projected = forward_attention(t, m, k);
    k->middle = flw_train_take(t, flw_train_full_bytes(t, m));
    uint32_t out = forward_inner(t, m, k);
    m->residual = flw_train_take(t, flw_train_full_bytes(t, m));
    flw_train_give(t, projected, out);
}

void flw_train_forget_layer(struct flw_train *t, struct flw_train_micro *m, size_t layer)
{
    struct flw_train_kept *k = &m->layers[layer];
    uint32_t input = k->input;
    uint32_t *fields = (uint32_t *)k;
    _Static_assert(sizeof(*k) % sizeof(uint32_t) == 0 && FLW_GEN_NO_BLOCK == UINT32_MAX,
                   "blocks and nothing else");
    k->input = NONE;
    for (size_t i = 0; i < sizeof(*k) / sizeof(uint32_t); i++) {
        flw_train_drop(t, &fields[i]);
    }
    k->input = input;
}

/* ---- backward ---------------------------------------------------------------------------------
 */

/* Through a matrix: gradients of its weight and of its input, which is returned in bf16. `upstream` and
 * what the matrix kept are freed. */
static uint32_t backward_matrix(struct flw_train *t, struct flw_train_micro *m, size_t layer,
                                int matrix, uint32_t upstream)
{
    struct flw_train_kept *k = &m->layers[layer];
    uint64_t values = matrix_values(t, matrix);
    uint32_t weight = flw_train_take(t, values * 2);
    uint32_t input = flw_train_turn(
        t, upstream, matrix == DOWN ? inner_bytes(t, m) : flw_train_half_bytes(t, m));
    flw_train_drop(t, &k->w[matrix]);
    flw_train_drop(t, matrix == DOWN ? &k->product : &k->x[matrix]);
    flw_train_keep_gradient(t, weight, values, &t->units[layer].gradients[matrix]);
    return input;
}

static void backward_inner(struct flw_train *t, struct flw_train_micro *m, size_t layer)
{
    struct flw_train_kept *k = &m->layers[layer];
    uint32_t sum = NONE;
    uint32_t upstream = flw_train_take(t, flw_train_half_bytes(t, m));
    uint32_t product = backward_matrix(t, m, layer, DOWN, upstream);
    uint32_t up = flw_train_take(t, inner_bytes(t, m));
    uint32_t silu = flw_train_turn(t, product, inner_bytes(t, m));
    flw_train_drop(t, &k->up);
    flw_train_drop(t, &k->silu);
    flw_train_widen(t, m, backward_matrix(t, m, layer, UP, up), &sum);
    uint32_t sigmoid = flw_train_take(t, inner_bytes(t, m));
    uint32_t gate = flw_train_turn(t, silu, inner_bytes(t, m));
    flw_train_drop(t, &k->gate);
    uint32_t through = flw_train_turn(t, sigmoid, inner_bytes(t, m));
    flw_train_drop(t, &k->sigmoid);
    flw_train_give(t, through);
    flw_train_widen(t, m, backward_matrix(t, m, layer, GATE, gate), &sum);
    flw_train_backward_norm(t, m, &k->norms[1], sum, &k->middle,
                            &t->units[layer].gradients[NORM_INNER]);
}

/* From the weights of the values to the scores; returns their gradient in bf16. */
static uint32_t backward_softmax(struct flw_train *t, struct flw_train_micro *m,
                                 struct flw_train_kept *k, uint32_t weights)
{
    uint64_t bytes = score_bytes(t, m, 2);
    uint32_t wide = flw_train_turn(t, weights, 2 * bytes);
    uint32_t parts[4];
    for (size_t i = 0; i < 4; i++) {
        parts[i] = flw_train_take(t, 2 * bytes);
    }
    for (size_t i = 3; i-- > 0;) {
        flw_train_give(t, parts[i]);
    }
    uint32_t exponents = flw_train_take(t, 2 * bytes);
    uint32_t sums = flw_train_take(t, row_bytes(t, m, 4));
    flw_train_give(t, parts[3], wide);
    flw_train_drop(t, &k->sums);
    flw_train_give(t, sums);
    uint32_t through = flw_train_turn(t, exponents, 2 * bytes);
    flw_train_drop(t, &k->exponents);
    uint32_t shifted = flw_train_turn(t, through, bytes);
    uint32_t negative = flw_train_take(t, bytes);
    uint32_t maxima = flw_train_turn(t, negative, row_bytes(t, m, 2));
    uint32_t scattered = flw_train_turn(t, maxima, bytes);
    flw_train_drop(t, &k->maxima);
    flw_train_give(t, scattered);
    uint32_t zero = flw_train_take(t, 2);
    uint32_t masked = flw_train_take(t, bytes);
    flw_train_give(t, zero, shifted);
    flw_train_drop(t, &k->mask);
    return flw_train_turn(t, masked, bytes);
}

/* From the attention's output to its three inputs, in bf16. */
static void backward_attend(struct flw_train *t, struct flw_train_micro *m,
                            struct flw_train_kept *k, uint32_t upstream, uint32_t *out)
{
    if (t->is_flash) {
        uint32_t delta = flw_train_take(t, row_bytes(t, m, 4));
        uint32_t sum =
            flw_train_take(t, 2 * flw_train_half_bytes(t, m)); /* of the query's gradient, fp32 */
        for (int i = Q; i <= V; i++) {
            out[i] = flw_train_take(t, flw_train_half_bytes(t, m));
        }
        flw_train_give(t, sum, delta, upstream);
        flw_train_drop(t, &k->lse);
        flw_train_drop(t, &k->value);
    } else {
        out[V] = flw_train_take(t, flw_train_half_bytes(t, m));
        uint32_t weights = flw_train_turn(t, upstream, score_bytes(t, m, 2));
        flw_train_drop(t, &k->value);
        flw_train_drop(t, &k->scores);
        uint32_t scores = backward_softmax(t, m, k, weights);
        out[Q] = flw_train_take(t, flw_train_half_bytes(t, m));
        out[K] = flw_train_turn(t, scores, flw_train_half_bytes(t, m));
    }
    flw_train_drop(t, &k->key);
    flw_train_drop(t, &k->query);
}

static uint32_t narrow_half(struct flw_train *t, uint64_t bytes)
{
    uint32_t product = flw_train_take(t, bytes);
    return flw_train_turn(t, product, bytes / 2);
}

/* Back through the rotation; `upstream`, fp32, is freed. Returns bf16. */
static uint32_t backward_rotate(struct flw_train *t, struct flw_train_micro *m, uint32_t upstream)
{
    uint64_t bytes = m->tokens * (t->hidden / 2) * 4;
    uint32_t even = narrow_half(t, bytes);
    uint32_t odd = narrow_half(t, bytes);
    uint32_t halves[2] = {flw_train_take(t, bytes), flw_train_take(t, bytes)};
    uint32_t sum = flw_train_take(t, bytes / 2);
    flw_train_give(t, halves[1], halves[0], sum);
    uint32_t last = flw_train_take(t, bytes);
    sum = flw_train_take(t, bytes / 2);
    flw_train_give(t, last, upstream, sum);
    uint32_t zeros = flw_train_take(t, bytes);
    flw_train_give(t, odd, even);
    return flw_train_turn(t, zeros, bytes);
}

static void backward_attention(struct flw_train *t, struct flw_train_micro *m, size_t layer)
{
    struct flw_train_kept *k = &m->layers[layer];
    uint32_t made[3];
    uint32_t sum = NONE;
    uint32_t upstream = flw_train_take(t, flw_train_half_bytes(t, m));
    uint32_t out = backward_matrix(t, m, layer, O, upstream);
    uint32_t joined = flw_train_turn(t, out, flw_train_half_bytes(t, m));
    backward_attend(t, m, k, joined, made);
    uint32_t wide[2];
    for (int i = Q; i <= K; i++) {
        wide[i] = flw_train_turn(t, made[i], 2 * flw_train_half_bytes(t, m));
    }
    made[Q] = backward_rotate(t, m, wide[Q]);
    made[K] = backward_rotate(t, m, wide[K]);
    static const int order[3] = {V, Q, K};
    for (size_t i = 0; i < 3; i++) {
        int at = order[i]; /* split */
        made[at] = flw_train_turn(t, made[at], flw_train_half_bytes(t, m));
    }
    for (int i = V; i >= Q; i--) {
        flw_train_widen(t, m, backward_matrix(t, m, layer, i, made[i]), &sum);
    }
    flw_train_backward_norm(t, m, &k->norms[0], sum, &k->input,
                            &t->units[layer].gradients[NORM_ATTENTION]);
}

void flw_train_backward_layer(struct flw_train *t, struct flw_train_micro *m, size_t layer)
{
    backward_inner(t, m, layer);
    backward_attention(t, m, layer);
}
