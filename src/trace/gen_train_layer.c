/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tensors of a transformer's layers, embedding and head, forward and backward, as PyTorch's
 * autograd takes and frees them.
 *
 * b sequences of s tokens, T = b s; h hidden, H heads, I inner, V vocabulary; RMS norms, rotary
 * positions, gated inner layer. Weights, norms and the residual are p = 4 bytes a value, what
 * matrices multiply is cast to bf16 (autocast); or all is bf16 (p = 2) and nothing is cast.
 *
 *   norm       p T h squared; p T three times for the mean and its inverse root; p T h, p T h
 *   q k v      2 T h and 2 h h cast, 2 T h out, each
 *   rotate     six halves of 4 T h / 2, then 4 T h; q and k
 *   attention  scores 2 b H s s three times, softmax 2 b H s s, 4 b H s s twice, with 2 and 8 b H s
 *              for the maxima and 4 b H s for the sums; 2 T h four times. Flash: 2 T h and 4 b H s
 *   inner      2 T I: gate, sigmoid, their product, up, product; 2 h I cast, three times
 *   head       2 V h cast; logits 2 T V; the loss in 4 T V
 * Backward the same sizes come in reverse; a gradient is made in bf16, cast, and copied.
 */
#include "trace/gen_train.h"

#include <string.h>

#define NONE FLW_GEN_NO_BLOCK

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

/* What is outside the layers. */
enum {
    OUTSIDE_EMBEDDING,
    OUTSIDE_NORM,
    OUTSIDE_HEAD
};

#define REDUCE_BYTES_PER_VALUE 8  /* the staging of a sum over rows */
#define SEMAPHORE_BYTES        32 /* of its blocks */
#define SORT_SCRATCH_BYTES     6655
#define SORT_SCRATCH_PER_TOKEN 16

static void give(struct flw_train *t, uint32_t block)
{
    flw_gen_give(t->gen, block);
}

static void drop(struct flw_train *t, uint32_t *block)
{
    flw_gen_drop(t->gen, block);
}

static uint32_t take(struct flw_train *t, uint64_t size_bytes)
{
    return flw_train_take(t, size_bytes);
}

static uint64_t half_bytes(const struct flw_train *t, const struct flw_train_micro *m)
{
    return m->tokens * t->hidden * 2;
}

static uint64_t full_bytes(const struct flw_train *t, const struct flw_train_micro *m)
{
    return m->tokens * t->hidden * t->value_bytes;
}

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

static bool casts(const struct flw_train *t)
{
    return t->value_bytes != 2;
}

/* A copy in bf16 of something; none where it is that already. */
static uint32_t cast(struct flw_train *t, uint64_t size_bytes)
{
    return casts(t) ? take(t, size_bytes) : NONE;
}

static uint64_t matrix_values(const struct flw_train *t, int matrix)
{
    return t->hidden * (matrix >= GATE ? t->ffn : t->hidden);
}

/* A weight as matrices want it: sharded ones are views of what was gathered. */
static uint32_t cast_weight(struct flw_train *t, uint64_t values)
{
    return t->ranks > 1 ? NONE : cast(t, values * 2);
}

/* A norm's output after the matrices that read it; where they read no copy, they keep it. */
static void release_normed(struct flw_train *t, uint32_t normed, uint32_t *x)
{
    if (casts(t)) {
        give(t, normed);
    } else {
        *x = normed;
    }
}

/* ---- norms ------------------------------------------------------------------------------------
 */

uint32_t flw_train_forward_norm(struct flw_train *t, uint64_t tokens, uint32_t *inverse,
                                uint32_t *normed)
{
    uint64_t bytes = tokens * t->hidden * t->value_bytes;
    uint64_t row = tokens * t->value_bytes;
    uint32_t squares = take(t, bytes);
    uint32_t means = take(t, row);
    give(t, squares);
    uint32_t shifted = take(t, row);
    give(t, means);
    *inverse = take(t, row);
    give(t, shifted);
    *normed = take(t, bytes);
    return take(t, bytes);
}

/* The gradient of the norm's weight: a sum over rows. One that is there is added to. */
static void sum_rows(struct flw_train *t, uint64_t tokens, uint32_t *weight_gradient)
{
    uint32_t sum = take(t, t->hidden * t->value_bytes);
    uint32_t staging = take(t, tokens * t->hidden * REDUCE_BYTES_PER_VALUE);
    uint32_t semaphores = take(t, SEMAPHORE_BYTES);
    give(t, semaphores);
    give(t, staging);
    if (*weight_gradient == NONE && t->ranks == 1) {
        *weight_gradient = sum;
    } else {
        give(t, sum);
    }
}

void flw_train_backward_norm(struct flw_train *t, uint64_t tokens, uint32_t upstream,
                             uint32_t *inverse, uint32_t *normed, uint32_t *input,
                             uint32_t *gradient, uint32_t *weight_gradient)
{
    uint64_t bytes = tokens * t->hidden * t->value_bytes;
    uint64_t row = tokens * t->value_bytes;
    uint32_t scaled = take(t, bytes);
    uint32_t weighted = take(t, bytes);
    sum_rows(t, tokens, weight_gradient);
    give(t, weighted);
    give(t, upstream);
    drop(t, normed);
    uint32_t by_inverse = take(t, bytes);
    uint32_t direct = take(t, bytes);
    uint32_t inverse_sum = take(t, row);
    give(t, by_inverse);
    give(t, scaled);
    if (*gradient == NONE) {
        *gradient = direct;
    } else {
        give(t, direct);
    }
    uint32_t rows[3];
    for (size_t i = 0; i < 3; i++) {
        rows[i] = take(t, row);
    }
    give(t, rows[1]);
    give(t, rows[0]);
    give(t, inverse_sum);
    drop(t, inverse);
    uint32_t spread = take(t, bytes);
    give(t, rows[2]);
    uint32_t powers[3];
    for (size_t i = 0; i < 3; i++) {
        powers[i] = take(t, bytes);
    }
    give(t, powers[1]);
    give(t, powers[0]);
    give(t, spread);
    drop(t, input);
    give(t, powers[2]);
}

/* ---- forward ----------------------------------------------------------------------------------
 */

/* Half of the columns: two products and their sum or difference. */
static uint32_t rotate_half(struct flw_train *t, uint64_t bytes)
{
    uint32_t first = take(t, bytes);
    uint32_t second = take(t, bytes);
    uint32_t sum = take(t, bytes);
    give(t, first);
    give(t, second);
    return sum;
}

static uint32_t rotate(struct flw_train *t, const struct flw_train_micro *m, uint32_t x)
{
    uint64_t bytes = m->tokens * (t->hidden / 2) * 4;
    uint32_t even = rotate_half(t, bytes);
    uint32_t odd = rotate_half(t, bytes);
    uint32_t rotated = take(t, m->tokens * t->hidden * 4);
    give(t, even);
    give(t, odd);
    give(t, x);
    return rotated;
}

/* Softmax of masked scores; what it returns are the weights of the values in fp32, freed later. */
static uint32_t softmax(struct flw_train *t, const struct flw_train_micro *m,
                        struct flw_train_kept *k)
{
    uint32_t products = take(t, score_bytes(t, m, 2));
    uint32_t scaled = take(t, score_bytes(t, m, 2));
    give(t, products);
    uint32_t infinity = take(t, 2);
    uint32_t masked = take(t, score_bytes(t, m, 2));
    give(t, infinity);
    give(t, scaled);
    uint32_t maxima = take(t, row_bytes(t, m, 2));
    k->maxima = take(t, row_bytes(t, m, 8));
    uint32_t shifted = take(t, score_bytes(t, m, 2));
    give(t, maxima);
    uint32_t wide = take(t, score_bytes(t, m, 4));
    k->exponents = take(t, score_bytes(t, m, 4));
    give(t, wide);
    k->sums = take(t, row_bytes(t, m, 4));
    uint32_t weights = take(t, score_bytes(t, m, 4));
    give(t, shifted);
    k->scores = take(t, score_bytes(t, m, 2));
    k->value = take(t, half_bytes(t, m));
    uint32_t out = take(t, half_bytes(t, m));
    give(t, masked);
    give(t, weights);
    return out;
}

static uint32_t attend(struct flw_train *t, const struct flw_train_micro *m,
                       struct flw_train_kept *k, const uint32_t *rotated)
{
    uint32_t positions = take(t, m->seq * 8);
    uint32_t out;
    if (t->is_flash) {
        k->query = take(t, half_bytes(t, m));
        k->key = take(t, half_bytes(t, m));
        k->value = take(t, half_bytes(t, m));
        out = take(t, half_bytes(t, m));
        k->lse = take(t, row_bytes(t, m, 4));
    } else {
        k->mask = take(t, m->seq * m->seq);
        k->query = take(t, half_bytes(t, m));
        k->key = take(t, half_bytes(t, m));
        out = softmax(t, m, k);
    }
    k->x[O] = take(t, half_bytes(t, m));
    give(t, out);
    k->w[O] = cast_weight(t, matrix_values(t, O));
    uint32_t projected = take(t, half_bytes(t, m));
    give(t, rotated[Q]);
    give(t, rotated[K]);
    give(t, rotated[V]);
    give(t, positions);
    return projected;
}

static uint32_t forward_attention(struct flw_train *t, struct flw_train_micro *m,
                                  struct flw_train_kept *k)
{
    uint32_t rotated[3];
    uint32_t normed = flw_train_forward_norm(t, m->tokens, &k->inverse[0], &k->normed[0]);
    for (int i = Q; i <= V; i++) {
        k->x[i] = cast(t, half_bytes(t, m));
        k->w[i] = cast_weight(t, matrix_values(t, i));
        rotated[i] = take(t, half_bytes(t, m));
    }
    rotated[Q] = rotate(t, m, rotated[Q]);
    rotated[K] = rotate(t, m, rotated[K]);
    uint32_t projected = attend(t, m, k, rotated);
    release_normed(t, normed, &k->x[Q]);
    return projected;
}

static uint32_t forward_inner(struct flw_train *t, struct flw_train_micro *m,
                              struct flw_train_kept *k)
{
    uint32_t normed = flw_train_forward_norm(t, m->tokens, &k->inverse[1], &k->normed[1]);
    k->x[GATE] = cast(t, half_bytes(t, m));
    k->w[GATE] = cast_weight(t, matrix_values(t, GATE));
    k->gate = take(t, inner_bytes(t, m));
    k->sigmoid = take(t, inner_bytes(t, m));
    k->silu = take(t, inner_bytes(t, m));
    k->x[UP] = cast(t, half_bytes(t, m));
    k->w[UP] = cast_weight(t, matrix_values(t, UP));
    k->up = take(t, inner_bytes(t, m));
    k->product = take(t, inner_bytes(t, m));
    k->w[DOWN] = cast_weight(t, matrix_values(t, DOWN));
    uint32_t out = take(t, half_bytes(t, m));
    release_normed(t, normed, &k->x[GATE]);
    return out;
}

void flw_train_forward_layer(struct flw_train *t, struct flw_train_micro *m, size_t layer)
{
    struct flw_train_kept *k = &m->layers[layer];
    memset(k, 0xFF, sizeof(*k)); /* every block FLW_GEN_NO_BLOCK */
    k->input = m->residual;
    uint32_t projected = forward_attention(t, m, k);
    k->middle = take(t, full_bytes(t, m));
    uint32_t out = forward_inner(t, m, k);
    m->residual = take(t, full_bytes(t, m));
    give(t, projected);
    give(t, out);
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
        drop(t, &fields[i]);
    }
    k->input = input;
}

/* ---- backward ---------------------------------------------------------------------------------
 */

/* A weight's gradient has been made in bf16: cast, and copied for the parameter unless it is there. */
static void keep_gradient(struct flw_train *t, uint32_t made, uint64_t values, uint32_t *gradient)
{
    if (t->ranks > 1) {
        give(t, made); /* into the unit's own */
        return;
    }
    uint32_t wide = cast(t, values * 4);
    if (wide == NONE) {
        wide = made;
    } else {
        give(t, made);
    }
    if (*gradient == NONE) {
        *gradient = take(t, values * t->value_bytes);
    }
    give(t, wide);
}

/* Through a matrix: gradients of its weight and of its input, which is returned in bf16. `upstream` and
 * what the matrix kept are freed. */
static uint32_t backward_matrix(struct flw_train *t, struct flw_train_micro *m, size_t layer,
                                int matrix, uint32_t upstream)
{
    struct flw_train_kept *k = &m->layers[layer];
    uint64_t values = matrix_values(t, matrix);
    uint32_t weight = take(t, values * 2);
    uint32_t input = take(t, matrix == DOWN ? inner_bytes(t, m) : half_bytes(t, m));
    give(t, upstream);
    drop(t, &k->w[matrix]);
    drop(t, matrix == DOWN ? &k->product : &k->x[matrix]);
    keep_gradient(t, weight, values, &t->units[layer].gradients[matrix]);
    return input;
}

/* The gradient of the norm's output, in its type: of one matrix, or of another one, added to it. */
static void widen(struct flw_train *t, struct flw_train_micro *m, uint32_t made, uint32_t *sum)
{
    uint32_t wide = casts(t) ? take(t, full_bytes(t, m)) : made;
    if (casts(t)) {
        give(t, made);
    }
    if (*sum == NONE) {
        *sum = wide;
    } else {
        give(t, wide);
    }
}

static void backward_inner(struct flw_train *t, struct flw_train_micro *m, size_t layer)
{
    struct flw_train_kept *k = &m->layers[layer];
    uint32_t sum = NONE;
    uint32_t upstream = take(t, half_bytes(t, m));
    uint32_t product = backward_matrix(t, m, layer, DOWN, upstream);
    uint32_t up = take(t, inner_bytes(t, m));
    uint32_t silu = take(t, inner_bytes(t, m));
    give(t, product);
    drop(t, &k->up);
    drop(t, &k->silu);
    widen(t, m, backward_matrix(t, m, layer, UP, up), &sum);
    uint32_t sigmoid = take(t, inner_bytes(t, m));
    uint32_t gate = take(t, inner_bytes(t, m));
    give(t, silu);
    drop(t, &k->gate);
    uint32_t through = take(t, inner_bytes(t, m));
    give(t, sigmoid);
    drop(t, &k->sigmoid);
    give(t, through);
    widen(t, m, backward_matrix(t, m, layer, GATE, gate), &sum);
    flw_train_backward_norm(t, m->tokens, sum, &k->inverse[1], &k->normed[1], &k->middle,
                            &m->gradient, &t->units[layer].gradients[NORM_INNER]);
}

/* From the weights of the values to the scores; returns their gradient in bf16. */
static uint32_t backward_softmax(struct flw_train *t, struct flw_train_micro *m,
                                 struct flw_train_kept *k, uint32_t weights)
{
    uint64_t bytes = score_bytes(t, m, 2);
    uint32_t wide = take(t, 2 * bytes);
    give(t, weights);
    uint32_t parts[4];
    for (size_t i = 0; i < 4; i++) {
        parts[i] = take(t, 2 * bytes);
    }
    for (size_t i = 3; i-- > 0;) {
        give(t, parts[i]);
    }
    uint32_t exponents = take(t, 2 * bytes);
    uint32_t sums = take(t, row_bytes(t, m, 4));
    give(t, parts[3]);
    give(t, wide);
    drop(t, &k->sums);
    give(t, sums);
    uint32_t through = take(t, 2 * bytes);
    give(t, exponents);
    drop(t, &k->exponents);
    uint32_t shifted = take(t, bytes);
    give(t, through);
    uint32_t negative = take(t, bytes);
    uint32_t maxima = take(t, row_bytes(t, m, 2));
    give(t, negative);
    uint32_t scattered = take(t, bytes);
    give(t, maxima);
    drop(t, &k->maxima);
    give(t, scattered);
    uint32_t zero = take(t, 2);
    uint32_t masked = take(t, bytes);
    give(t, zero);
    give(t, shifted);
    drop(t, &k->mask);
    uint32_t scores = take(t, bytes);
    give(t, masked);
    return scores;
}

/* From the attention's output to its three inputs, in bf16. */
static void backward_attend(struct flw_train *t, struct flw_train_micro *m,
                            struct flw_train_kept *k, uint32_t upstream, uint32_t *out)
{
    if (t->is_flash) {
        uint32_t delta = take(t, row_bytes(t, m, 4));
        uint32_t sum = take(t, 2 * half_bytes(t, m)); /* of the query's gradient, fp32 */
        for (int i = Q; i <= V; i++) {
            out[i] = take(t, half_bytes(t, m));
        }
        give(t, sum);
        give(t, delta);
        give(t, upstream);
        drop(t, &k->lse);
        drop(t, &k->value);
    } else {
        out[V] = take(t, half_bytes(t, m));
        uint32_t weights = take(t, score_bytes(t, m, 2));
        give(t, upstream);
        drop(t, &k->value);
        drop(t, &k->scores);
        uint32_t scores = backward_softmax(t, m, k, weights);
        out[Q] = take(t, half_bytes(t, m));
        out[K] = take(t, half_bytes(t, m));
        give(t, scores);
    }
    drop(t, &k->key);
    drop(t, &k->query);
}

static uint32_t narrow_half(struct flw_train *t, uint64_t bytes)
{
    uint32_t product = take(t, bytes);
    uint32_t narrow = take(t, bytes / 2);
    give(t, product);
    return narrow;
}

/* Back through the rotation; `upstream`, fp32, is freed. Returns bf16. */
static uint32_t backward_rotate(struct flw_train *t, struct flw_train_micro *m, uint32_t upstream)
{
    uint64_t bytes = m->tokens * (t->hidden / 2) * 4;
    uint32_t even = narrow_half(t, bytes);
    uint32_t odd = narrow_half(t, bytes);
    uint32_t halves[2] = {take(t, bytes), take(t, bytes)};
    uint32_t sum = take(t, bytes / 2);
    give(t, halves[1]);
    give(t, halves[0]);
    give(t, sum);
    uint32_t last = take(t, bytes);
    sum = take(t, bytes / 2);
    give(t, last);
    give(t, upstream);
    give(t, sum);
    uint32_t zeros = take(t, bytes);
    give(t, odd);
    give(t, even);
    uint32_t whole = take(t, bytes);
    give(t, zeros);
    return whole;
}

static void backward_attention(struct flw_train *t, struct flw_train_micro *m, size_t layer)
{
    struct flw_train_kept *k = &m->layers[layer];
    uint32_t made[3];
    uint32_t sum = NONE;
    uint32_t upstream = take(t, half_bytes(t, m));
    uint32_t out = backward_matrix(t, m, layer, O, upstream);
    uint32_t joined = take(t, half_bytes(t, m));
    give(t, out);
    backward_attend(t, m, k, joined, made);
    uint32_t wide[2];
    for (int i = Q; i <= K; i++) {
        wide[i] = take(t, 2 * half_bytes(t, m));
        give(t, made[i]);
    }
    made[Q] = backward_rotate(t, m, wide[Q]);
    made[K] = backward_rotate(t, m, wide[K]);
    static const int order[3] = {V, Q, K};
    for (size_t i = 0; i < 3; i++) {
        uint32_t split = take(t, half_bytes(t, m));
        give(t, made[order[i]]);
        made[order[i]] = split;
    }
    for (int i = V; i >= Q; i--) {
        widen(t, m, backward_matrix(t, m, layer, i, made[i]), &sum);
    }
    flw_train_backward_norm(t, m->tokens, sum, &k->inverse[0], &k->normed[0], &k->input,
                            &m->gradient, &t->units[layer].gradients[NORM_ATTENTION]);
}

void flw_train_backward_layer(struct flw_train *t, struct flw_train_micro *m, size_t layer)
{
    backward_inner(t, m, layer);
    backward_attention(t, m, layer);
}

/* ---- the ends ---------------------------------------------------------------------------------
 */

static struct flw_train_unit *outside(struct flw_train *t)
{
    return &t->units[t->layers];
}

void flw_train_forward_embedding(struct flw_train *t, struct flw_train_micro *m)
{
    if (t->is_first) {
        m->residual = take(t, full_bytes(t, m));
        return;
    }
    m->residual = flw_gen_take(t->gen, full_bytes(t, m), FLW_TRAIN_COMM);
    flw_gen_use(t->gen, m->residual, FLW_TRAIN_COMPUTE);
}

/* The rows' gradients are sorted by id and summed. */
static void sort_ids(struct flw_train *t, const struct flw_train_micro *m)
{
    uint32_t sorted[5];
    sorted[0] = take(t, m->tokens * 8);
    sorted[1] = take(t, m->tokens * 8);
    give(t, sorted[0]);
    for (size_t i = 2; i < 5; i++) {
        sorted[i] = take(t, m->tokens * 8);
    }
    uint32_t scratch = take(t, SORT_SCRATCH_BYTES + m->tokens * SORT_SCRATCH_PER_TOKEN);
    give(t, scratch);
    for (size_t i = 5; i-- > 1;) {
        give(t, sorted[i]);
    }
}

void flw_train_backward_embedding(struct flw_train *t, struct flw_train_micro *m)
{
    if (!t->is_first) {
        flw_gen_use(t->gen, m->gradient, FLW_TRAIN_COMM); /* to the stage before */
        drop(t, &m->gradient);
    } else {
        uint32_t made = take(t, t->vocab * t->hidden * t->value_bytes);
        sort_ids(t, m);
        uint32_t *gradient = &outside(t)->gradients[OUTSIDE_EMBEDDING];
        if (*gradient == NONE && t->ranks == 1) {
            *gradient = made;
        } else {
            give(t, made);
        }
        drop(t, &m->gradient);
    }
    drop(t, &m->one);
}

static void forward_loss(struct flw_train *t, struct flw_train_micro *m)
{
    uint64_t bytes = m->tokens * t->vocab * 2;
    uint32_t maxima = take(t, m->tokens * 2);
    m->maxima = take(t, m->tokens * 8);
    uint32_t shifted = take(t, bytes);
    uint32_t wide = take(t, 2 * bytes);
    m->exponents = take(t, 2 * bytes);
    give(t, wide);
    m->sums = take(t, m->tokens * 4);
    uint32_t log_sums = take(t, m->tokens * 4);
    uint32_t log_softmax = take(t, 2 * bytes);
    give(t, log_sums);
    give(t, shifted);
    give(t, maxima);
    m->logs = take(t, 2 * bytes);
    give(t, log_softmax);
    uint32_t picked = take(t, m->tokens * 4);
    m->loss = take(t, 4);
    give(t, picked);
}

void flw_train_forward_head(struct flw_train *t, struct flw_train_micro *m)
{
    if (!t->is_last) {
        flw_gen_use(t->gen, m->residual, FLW_TRAIN_COMM); /* to the stage behind */
        drop(t, &m->residual);
        return;
    }
    uint32_t normed = flw_train_forward_norm(t, m->tokens, &m->inverse, &m->normed);
    m->x = cast(t, half_bytes(t, m));
    m->w = cast_weight(t, t->vocab * t->hidden);
    m->logits = take(t, m->tokens * t->vocab * 2);
    release_normed(t, normed, &m->x);
    forward_loss(t, m);
}

/* To the gradient of the logits, in bf16. */
static uint32_t backward_loss(struct flw_train *t, struct flw_train_micro *m)
{
    uint64_t bytes = m->tokens * t->vocab * 2;
    m->one = take(t, 4);
    uint32_t mean = take(t, m->tokens * 4);
    uint32_t scattered = take(t, 2 * bytes);
    give(t, mean);
    drop(t, &m->logs);
    uint32_t negative = take(t, 2 * bytes);
    give(t, scattered);
    uint32_t direct = take(t, 2 * bytes);
    uint32_t logits = take(t, bytes);
    uint32_t log_sums = take(t, m->tokens * 4);
    give(t, direct);
    give(t, negative);
    uint32_t sums = take(t, m->tokens * 4);
    give(t, log_sums);
    drop(t, &m->sums);
    uint32_t exponents = take(t, 2 * bytes);
    give(t, sums);
    drop(t, &m->exponents);
    uint32_t narrow = take(t, bytes);
    give(t, exponents);
    give(t, narrow);
    uint32_t shifted = take(t, bytes);
    uint32_t maxima = take(t, m->tokens * 2);
    give(t, shifted);
    uint32_t spread = take(t, bytes);
    give(t, maxima);
    drop(t, &m->maxima);
    give(t, spread);
    return logits;
}

void flw_train_backward_head(struct flw_train *t, struct flw_train_micro *m)
{
    if (!t->is_last) {
        m->gradient = flw_gen_take(t->gen, full_bytes(t, m), FLW_TRAIN_COMM);
        flw_gen_use(t->gen, m->gradient, FLW_TRAIN_COMPUTE);
        return;
    }
    uint64_t values = t->vocab * t->hidden;
    uint32_t logits = backward_loss(t, m);
    uint32_t weight = take(t, values * 2);
    uint32_t input = take(t, half_bytes(t, m));
    give(t, logits);
    drop(t, &m->w);
    drop(t, &m->x);
    keep_gradient(t, weight, values, &outside(t)->gradients[OUTSIDE_HEAD]);
    uint32_t upstream = NONE;
    widen(t, m, input, &upstream);
    flw_train_backward_norm(t, m->tokens, upstream, &m->inverse, &m->normed, &m->residual,
                            &m->gradient, &outside(t)->gradients[OUTSIDE_NORM]);
}
