/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a training run as one rank sees it: its options and the order of microbatches.
 * Does not: know the tensors (gen_train_layer.c) or the parameters (gen_train_state.c).
 *
 * Stages of a pipeline run 1F1B: rank r of S takes min(S - 1 - r, M) microbatches forward, then one
 * forward and one backward by turns, so that at most S - r are in flight. A microbatch is `batch`
 * sequences, padded to the longest of them in multiples of 8.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/bits.h"
#include "trace/gen/gen_requests.h"
#include "trace/gen/gen_train.h"

#define PAD_TOKENS       8
#define WORKSPACE_BYTES  8519680 /* of matrix products; one forward, one backward */
#define WORKSPACE_COUNT  2
#define ROPE_TABLES      2
#define MICROBATCHES_MAX 4096
#define VARY_FIXED       0

static const char *const attentions[] = {"naive", "flash", NULL};
static const char *const precisions[] = {"autocast", "bf16", "bf16-master", NULL};
static const char *const recomputes[] = {"none", "full", NULL};
static const char *const varieties[] = {"fixed", "conversation", "code", "long", NULL};

/* clang-format off */
#define OPTIONS(X) \
    X(LAYERS, "layers", "of the model", COUNT, 24, 1, 1000, NULL) \
    X(HIDDEN, "hidden", "its width", COUNT, 1024, 16, 65536, NULL) \
    X(HEADS, "heads", "of its attention", COUNT, 16, 1, 1024, NULL) \
    X(INNER, "inner", "width of the inner layers; 0: four times hidden", COUNT, 0, 0, 1048576, NULL) \
    X(VOCAB, "vocab", "words", COUNT, 10000, 2, 1048576, NULL) \
    X(BATCH, "batch", "sequences of a microbatch", COUNT, 4, 1, 4096, NULL) \
    X(SEQ, "seq", "tokens of a sequence, at most", COUNT, 1024, 8, 131072, NULL) \
    X(STEPS, "steps", "of the optimizer", COUNT, 3, 1, 100000, NULL) \
    X(ATTENTION, "attention", "with all scores, or without", CHOICE, 0, 0, 1, attentions) \
    X(PRECISION, "precision", "fp32 cast to bf16, bf16, bf16 with fp32 masters", CHOICE, 0, 0, 2, precisions) \
    X(RECOMPUTE, "recompute", "layers' forward passes in the backward pass", CHOICE, 0, 0, 1, recomputes) \
    X(ZERO3, "zero3", "ranks that shard all state; 1: none", COUNT, 1, 1, 4096, NULL) \
    X(PREFETCH, "prefetch", "layers gathered ahead, with zero3", COUNT, 1, 0, 16, NULL) \
    X(STAGES, "stages", "of the pipeline", COUNT, 1, 1, 1000, NULL) \
    X(RANK, "rank", "whose trace it is: the stage's number", COUNT, 0, 0, 999, NULL) \
    X(MICROBATCHES, "microbatches", "of a step; 0: twice the stages, one without", COUNT, 0, 0, MICROBATCHES_MAX, NULL) \
    X(VARY, "vary", "lengths as in such requests, up to seq", CHOICE, 0, 0, 3, varieties) \
    X(LENGTHS, "lengths", "prompt lengths of a file of requests, in turn", FILE, 0, 0, 0, NULL) \
    X(SEED, "seed", "of the drawn numbers", COUNT, 1, 0, UINT64_MAX, NULL)
/* clang-format on */

enum {
    OPTIONS(FLW_GEN_OPTION_NUMBER) OPTION_COUNT
};

static const struct flw_gen_option options[] = {OPTIONS(FLW_GEN_OPTION_ROW)};

struct run {
    struct flw_train train;
    struct flw_requests lengths; /* of the file */
    size_t next_length;
    uint64_t micro_count, flight_count;
    struct flw_train_micro *micros; /* micro_count of them; the layers' blocks by turns */
    struct flw_train_kept *kept;    /* flight_count times the layers */
};

static uint64_t number(const struct run *run, int option)
{
    return flw_gen_number(run->train.gen, option);
}

/* ---- microbatches ---- */

static uint64_t draw_length(struct run *run)
{
    if (run->lengths.count > 0) {
        return run->lengths.items[run->next_length++ % run->lengths.count].prompt;
    }
    uint64_t kind = number(run, OPTION_VARY);
    return kind == VARY_FIXED
               ? number(run, OPTION_SEQ)
               : flw_requests_draw(run->train.gen, (enum flw_requests_kind)(kind - 1)).prompt;
}

static void load(struct run *run, uint64_t index)
{
    struct flw_train *t = &run->train;
    struct flw_train_micro *m = &run->micros[index];
    uint64_t longest = 1;
    for (uint64_t i = 0; i < t->batch; i++) {
        longest = flw_max(longest, draw_length(run));
    }
    m->seq = flw_min(flw_align_up(longest, PAD_TOKENS), number(run, OPTION_SEQ));
    m->tokens = m->seq * t->batch;
    m->layers = run->kept + index % run->flight_count * t->layers;
    m->gradient = m->one = m->logits = m->loss = FLW_GEN_NO_BLOCK;
    m->ids[0] = flw_train_take(t, m->tokens * 8);
    m->ids[1] = flw_train_take(t, m->tokens * 8);
}

static void unload(struct run *run, uint64_t index)
{
    struct flw_train_micro *m = &run->micros[index];
    flw_gen_drop(run->train.gen, &m->logits);
    flw_gen_drop(run->train.gen, &m->loss);
    flw_gen_drop(run->train.gen, &m->ids[0]);
    flw_gen_drop(run->train.gen, &m->ids[1]);
}

static void forward(struct run *run, uint64_t index)
{
    struct flw_train *t = &run->train;
    struct flw_train_micro *m = &run->micros[index];
    size_t outside = t->layers;
    flw_gen_begin_phase(t->gen, "forward");
    flw_train_gather(t, outside);
    flw_train_enter(t, outside);
    flw_train_forward_embedding(t, m);
    for (uint64_t i = 0; i < t->layers; i++) {
        for (uint64_t ahead = i; ahead <= i + t->prefetch && ahead < t->layers; ahead++) {
            flw_train_gather(t, ahead);
        }
        flw_train_enter(t, i);
        flw_train_forward_layer(t, m, i);
        flw_train_leave(t, i);
        if (t->recomputes) {
            flw_train_forget_layer(t, m, i);
        }
    }
    flw_train_forward_head(t, m);
    flw_train_leave(t, outside);
    flw_gen_end_phase(t->gen, "forward");
}

/* The residual that the layers' backward passes free is their own; what comes out of a second forward
 * pass is not needed. */
static void backward_layer(struct flw_train *t, struct flw_train_micro *m, uint64_t layer)
{
    if (t->recomputes) {
        m->residual = m->layers[layer].input;
        flw_train_forward_layer(t, m, layer);
        flw_gen_drop(t->gen, &m->residual);
    }
    uint32_t gradients = flw_train_begin_gradients(t, layer);
    flw_train_backward_layer(t, m, layer);
    flw_train_leave(t, layer);
    flw_train_reduce(t, layer, gradients);
}

static void backward(struct run *run, uint64_t index)
{
    struct flw_train *t = &run->train;
    struct flw_train_micro *m = &run->micros[index];
    size_t outside = t->layers;
    flw_gen_begin_phase(t->gen, "backward");
    flw_train_gather(t, outside);
    flw_train_enter(t, outside);
    uint32_t gradients = flw_train_begin_gradients(t, outside);
    flw_train_backward_head(t, m);
    for (uint64_t i = t->layers; i-- > 0;) {
        for (uint64_t behind = 0; behind <= t->prefetch && behind <= i; behind++) {
            flw_train_gather(t, i - behind);
        }
        flw_train_enter(t, i);
        backward_layer(t, m, i);
    }
    flw_train_backward_embedding(t, m);
    flw_train_leave(t, outside);
    flw_train_reduce(t, outside, gradients);
    flw_gen_end_phase(t->gen, "backward");
}

static void run_step(struct run *run)
{
    struct flw_train *t = &run->train;
    flw_train_drop_gradients(t);
    for (uint64_t i = 0; i < run->micro_count; i++) {
        load(run, i);
    }
    flw_gen_begin_phase(t->gen, "step");
    uint64_t warm = run->flight_count - 1;
    for (uint64_t i = 0; i < run->micro_count + warm; i++) {
        if (i < run->micro_count) {
            forward(run, i);
        }
        if (i >= warm) {
            backward(run, i - warm);
        }
    }
    flw_gen_begin_phase(t->gen, "optimizer");
    flw_train_update(t);
    flw_gen_end_phase(t->gen, "optimizer");
    flw_gen_end_phase(t->gen, "step");
    for (uint64_t i = 0; i < run->micro_count; i++) {
        unload(run, i);
    }
}

/* ---- together ---- */

static bool set_up(struct run *run)
{
    struct flw_train *t = &run->train;
    uint64_t stages = number(run, OPTION_STAGES);
    uint64_t rank = number(run, OPTION_RANK);
    uint64_t layers = number(run, OPTION_LAYERS);
    if (rank >= stages || layers < stages) {
        return flw_gen_fail(t->gen,
                            "--rank %" PRIu64 " and --layers %" PRIu64
                            " do not fit --stages %" PRIu64
                            ": ranks are below, layers at least the stages",
                            rank, layers, stages);
    }
    if (number(run, OPTION_HIDDEN) % (2 * number(run, OPTION_HEADS)) != 0) {
        return flw_gen_fail(t->gen, "--hidden is not a multiple of twice --heads");
    }
    t->layers = layers / stages + (rank < layers % stages);
    t->hidden = number(run, OPTION_HIDDEN);
    t->heads = number(run, OPTION_HEADS);
    t->ffn = number(run, OPTION_INNER) == 0 ? 4 * t->hidden : number(run, OPTION_INNER);
    t->batch = number(run, OPTION_BATCH);
    t->vocab = number(run, OPTION_VOCAB);
    t->ranks = number(run, OPTION_ZERO3);
    t->prefetch = number(run, OPTION_PREFETCH);
    t->value_bytes = number(run, OPTION_PRECISION) == 0 ? 4 : 2;
    t->has_masters = number(run, OPTION_PRECISION) == 2;
    t->is_flash = number(run, OPTION_ATTENTION) == 1;
    t->recomputes = number(run, OPTION_RECOMPUTE) == 1;
    t->is_first = rank == 0;
    t->is_last = rank + 1 == stages;
    run->micro_count = number(run, OPTION_MICROBATCHES);
    if (run->micro_count == 0) {
        run->micro_count = stages == 1 ? 1 : 2 * stages;
    }
    run->flight_count = flw_min(stages - rank, run->micro_count);
    t->units = calloc((size_t)t->layers + 1, sizeof(*t->units));
    run->micros = calloc((size_t)run->micro_count, sizeof(*run->micros));
    run->kept = calloc((size_t)(run->flight_count * t->layers), sizeof(*run->kept));
    return (t->units != NULL && run->micros != NULL && run->kept != NULL) ||
           flw_gen_fail(t->gen, "no memory for the layers' blocks");
}

static bool read_lengths(struct run *run)
{
    struct flw_gen *gen = run->train.gen;
    char message[FLW_TRACE_MESSAGE_BYTES];
    const char *path = gen->values->paths[OPTION_LENGTHS];
    if (path == NULL) {
        return true;
    }
    if (!flw_requests_read(path, &run->lengths, message)) {
        return flw_gen_fail(gen, "%s", message);
    }
    flw_gen_note(gen, "lengths %zu requests, checksum %016" PRIx64, run->lengths.count,
                 run->lengths.checksum);
    return true;
}

static void train(struct run *run)
{
    struct flw_train *t = &run->train;
    uint32_t standing[WORKSPACE_COUNT + ROPE_TABLES];
    flw_gen_add_streams(t->gen, number(run, OPTION_STAGES) > 1 || t->ranks > 1 ? 2 : 1);
    flw_train_make_parameters(t);
    for (size_t i = 0; i < WORKSPACE_COUNT + ROPE_TABLES; i++) {
        standing[i] = flw_train_take(t, i < WORKSPACE_COUNT
                                            ? WORKSPACE_BYTES
                                            : number(run, OPTION_SEQ) * 2 * (t->hidden / t->heads));
    }
    for (uint64_t i = 0; i < number(run, OPTION_STEPS) && !t->gen->has_failed; i++) {
        run_step(run);
    }
    flw_gen_give_each(t->gen, standing, WORKSPACE_COUNT + ROPE_TABLES);
    flw_train_free_parameters(t);
}

static void run_train(struct flw_gen *gen)
{
    struct run run = {.train = {.gen = gen}};
    flw_gen_seed(gen, number(&run, OPTION_SEED));
    if (set_up(&run) && read_lengths(&run)) {
        train(&run);
    }
    flw_requests_finish(&run.lengths);
    free(run.kept);
    free(run.micros);
    free(run.train.units);
}

const struct flw_gen_kind flw_gen_train_kind = {
    .name = "train",
    .summary = "training steps of a transformer: forward, backward, AdamW; shards and pipelines",
    .example = "--layers 8 --zero3 8 --attention flash --vary conversation -o train.ftext",
    .formula = "# tensors as in src/trace/gen_train_layer.c and gen_train_state.c\n",
    .version = 1,
    .options = options,
    .option_count = OPTION_COUNT,
    .run = run_train,
};
