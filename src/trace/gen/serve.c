/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the formulas of a serving step and the schedule of requests.
 *
 * A step takes T tokens: one for each of the B requests that decode, the rest of the budget for
 * prompts, cut where it ends. Activations are bf16; h hidden, H heads, K key/value heads, d their
 * size, I intermediate, V vocabulary.
 *
 *   start    weights and key/value cache, layer by layer
 *   step     ids, positions, slots: 8T each, copied in on stream 1, used on stream 0; embedding 2Th
 *   layer    norm 2Th; qkv 2T(H+2K)d; attention out 2THd; softmax sums 4TH; where decodes attend to
 *            long contexts split S ways: partial outputs 4SBHd and sums 4SBH; projection 2Th;
 *            norm 2Th; gate and up 4TI; activation 2TI; down 2Th. Each is freed after its last use.
 *   sampling logits 2BV, then fp32 4BV, three temporaries of 4BV, ids 8B copied out on stream 1
 *   request  token counts 4V from its admission to its end; one in four brings 2Ph of embeddings
 * for its P prompt tokens, kept until its prompt is done; one in eight asks for the prompt's
 *            log-probabilities: 4 bytes for each of 1024 candidates of each prompt token, to its
 * end
 *
 * Prompts have 16 to 255 tokens (60 %), 256 to 2047 (30 %) or 2048 to 8191 (10 %); outputs 8 to 39.
 *
 * Each allocation has a call stack, as PyTorch would record it of a server written in Python. That server is
 * invented.
 */
#include "trace/gen/serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "trace/gen/gen.h"
#include "trace/trace/measure.h"

#define STREAM_COMPUTE 0
#define STREAM_COPY    1

#define SPLIT_TOKENS     1024 /* of context that one split of a decode takes */
#define SPLITS_MAX       8
#define CANDIDATES       1024 /* log-probabilities kept for a prompt token */
#define INPUTS_PER_STEP  3
#define SAMPLING_TENSORS 3

#define TORCH "/usr/local/lib/python3.12/site-packages/torch/nn/modules/"

/* The functions of the invented server: X(name, caller, line of the call in the caller, function, file, line of
 * the allocation or 0, whether torch.nn.Linear allocates there). */
#define FUNCTIONS(X)                                                           \
    X(MODULE, MODULE, 0, "<module>", "serve", 0, false)                        \
    X(MAIN, MODULE, 58, "main", "serve", 0, false)                             \
    X(START, MAIN, 41, "__init__", "engine/engine", 0, false)                  \
    X(LOAD, START, 27, "load_model", "engine/loader", 0, false)                \
    X(LOAD_EMBEDDING, LOAD, 33, "load_vocabulary", "model/model", 18, false)   \
    X(LOAD_LAYER, LOAD, 35, "load_layer", "model/model", 0, false)             \
    X(LOAD_NORM, LOAD_LAYER, 26, "load_norm", "model/norm", 11, false)         \
    X(LOAD_QKV, LOAD_LAYER, 27, "load_qkv", "model/attention", 24, false)      \
    X(LOAD_OUT, LOAD_LAYER, 28, "load_out", "model/attention", 30, false)      \
    X(LOAD_MLP_NORM, LOAD_LAYER, 29, "load_norm", "model/norm", 11, false)     \
    X(LOAD_GATE_UP, LOAD_LAYER, 30, "load_gate_up", "model/mlp", 17, false)    \
    X(LOAD_DOWN, LOAD_LAYER, 31, "load_down", "model/mlp", 22, false)          \
    X(LOAD_LAST_NORM, LOAD, 36, "load_norm", "model/norm", 11, false)          \
    X(LOAD_LM_HEAD, LOAD, 37, "load_vocabulary", "model/model", 18, false)     \
    X(KV_CACHE, START, 31, "allocate_kv_cache", "engine/kv_cache", 45, false)  \
    X(RUN, MAIN, 43, "run", "engine/engine", 0, false)                         \
    X(ADMIT, RUN, 66, "admit", "engine/scheduler", 0, false)                   \
    X(TOKEN_COUNTS, ADMIT, 52, "token_counts", "engine/sampler", 21, false)    \
    X(IMAGES, ADMIT, 55, "embed_images", "engine/images", 38, false)           \
    X(LOGPROBS, ADMIT, 58, "prompt_logprobs", "engine/logprobs", 29, false)    \
    X(STEP, RUN, 70, "step", "engine/runner", 0, false)                        \
    X(INPUTS, STEP, 61, "copy_inputs", "engine/runner", 88, false)             \
    X(FORWARD, STEP, 64, "forward", "model/model", 0, false)                   \
    X(EMBED, FORWARD, 52, "embed", "model/model", 46, false)                   \
    X(LAYER, FORWARD, 54, "layer", "model/model", 0, false)                    \
    X(NORM, LAYER, 61, "rms_norm", "model/norm", 19, false)                    \
    X(ATTENTION, LAYER, 62, "attention", "model/attention", 0, false)          \
    X(QKV, ATTENTION, 73, "qkv", "model/attention", 41, true)                  \
    X(ATTEND, ATTENTION, 75, "attend", "model/attention", 49, false)           \
    X(ATTEND_SUMS, ATTENTION, 75, "attend", "model/attention", 50, false)      \
    X(SPLIT, ATTENTION, 77, "attend_split", "model/attention", 58, false)      \
    X(SPLIT_SUMS, ATTENTION, 77, "attend_split", "model/attention", 59, false) \
    X(PROJECT, ATTENTION, 79, "project", "model/attention", 66, true)          \
    X(MLP_NORM, LAYER, 63, "rms_norm", "model/norm", 19, false)                \
    X(MLP, LAYER, 64, "mlp", "model/mlp", 0, false)                            \
    X(GATE_UP, MLP, 51, "gate_up", "model/mlp", 33, true)                      \
    X(ACTIVATE, MLP, 52, "silu_and_multiply", "model/mlp", 39, false)          \
    X(DOWN, MLP, 53, "down", "model/mlp", 45, true)                            \
    X(SAMPLE, STEP, 68, "sample", "engine/sampler", 0, false)                  \
    X(LOGITS, SAMPLE, 74, "logits", "engine/sampler", 37, true)                \
    X(LOGITS_FP32, SAMPLE, 75, "as_fp32", "engine/sampler", 42, false)         \
    X(PROBABILITIES, SAMPLE, 78, "probabilities", "engine/sampler", 56, false) \
    X(IDS, SAMPLE, 80, "choose", "engine/sampler", 63, false)

enum function {
#define NUMBER(name, ...) name,
    FUNCTIONS(NUMBER) FUNCTION_COUNT
};

static const struct {
    enum function caller; /* of MODULE: itself */
    uint32_t call_line;
    const char *name, *file;
    uint32_t line;
    bool is_linear;
} functions[] = {
#define ROW(name, caller, call_line, function, file, ...) \
    {caller, call_line, function, "/srv/chat/" file ".py", __VA_ARGS__},
    FUNCTIONS(ROW)};

struct request {
    uint64_t prompt_left, context, output_left;
    uint32_t counts, embeddings, logprobs; /* blocks or FLW_GEN_NO_BLOCK */
};

struct server {
    const struct flw_serve_params *p;
    struct flw_gen gen;
    uint32_t stacks[FUNCTION_COUNT]; /* of what a function allocates */
    struct request *requests;        /* running, oldest first */
    size_t request_count;
};

struct flw_serve_params flw_serve_demo(void)
{
    return (struct flw_serve_params){
        .seed = 20,
        .layers = 32,
        .hidden = 4096,
        .heads = 32,
        .kv_heads = 8,
        .head_dim = 128,
        .intermediate = 14336,
        .vocabulary = 128256,
        .weight_bytes_per_value = 1,
        .kv_cache_bytes = 4 * FLW_GIB,
        .token_budget = 16384,
        .requests_max = 256,
        .arrivals_max = 10,
        .steps = 40,
    };
}

#define give(s, ...) FLW_GEN_GIVE(&(s)->gen, __VA_ARGS__)

/* Allocate in `function`. */
static uint32_t take(struct server *s, enum function function, uint64_t size_bytes, uint64_t stream)
{
    size_t event = s->gen.build.trace->event_count;
    uint32_t block = flw_gen_take(&s->gen, size_bytes, stream);
    if (block != FLW_GEN_NO_BLOCK &&
        !flw_build_set_stack(&s->gen.build, event, s->stacks[function])) {
        s->gen.has_failed = true;
    }
    return block;
}

static uint32_t compute(struct server *s, enum function function, uint64_t size_bytes)
{
    return take(s, function, size_bytes, STREAM_COMPUTE);
}

/* A kernel computes a new block from `from`, which is freed after it. */
static uint32_t turn(struct server *s, uint32_t from, enum function function, uint64_t size_bytes)
{
    uint32_t block = compute(s, function, size_bytes);
    give(s, from);
    return block;
}

/* ---- call stacks ---- */

#define DEPTH_MOST 12

static void add_frame(struct server *s, const char *function, const char *file, uint32_t line,
                      uint32_t *frames, size_t *count)
{
    s->gen.has_failed |=
        !flw_stacks_add_frame(&s->gen.build.trace->stacks, function, file, line, &frames[*count]);
    (*count)++;
}

static void add_stacks(struct server *s)
{
    uint32_t stack[DEPTH_MOST];
    for (size_t i = 0; i < FUNCTION_COUNT; i++) {
        size_t count = 0;
        if (functions[i].is_linear) {
            add_frame(s, "forward", TORCH "linear.py", 117, stack, &count);
            add_frame(s, "_call_impl", TORCH "module.py", 1562, stack, &count);
            add_frame(s, "_wrapped_call_impl", TORCH "module.py", 1553, stack, &count);
        }
        uint32_t line = functions[i].line;
        for (size_t f = i; line != 0; f = functions[f].caller) {
            add_frame(s, functions[f].name, functions[f].file, line, stack, &count);
            line = functions[f].call_line;
        }
        s->gen.has_failed |=
            !flw_stacks_add(&s->gen.build.trace->stacks, stack, count, &s->stacks[i]);
    }
}

/* ---- the start ---- */

static void load_model(struct server *s)
{
    const struct flw_serve_params *p = s->p;
    uint64_t bytes = p->weight_bytes_per_value;
    uint64_t norm_bytes = p->hidden * 2;
    compute(s, LOAD_EMBEDDING, p->vocabulary * p->hidden * bytes);
    for (uint64_t i = 0; i < p->layers; i++) {
        compute(s, LOAD_NORM, norm_bytes);
        compute(s, LOAD_QKV, (p->heads + 2 * p->kv_heads) * p->head_dim * p->hidden * bytes);
        compute(s, LOAD_OUT, p->heads * p->head_dim * p->hidden * bytes);
        compute(s, LOAD_MLP_NORM, norm_bytes);
        compute(s, LOAD_GATE_UP, 2 * p->intermediate * p->hidden * bytes);
        compute(s, LOAD_DOWN, p->intermediate * p->hidden * bytes);
    }
    compute(s, LOAD_LAST_NORM, norm_bytes);
    compute(s, LOAD_LM_HEAD, p->vocabulary * p->hidden * bytes);
    for (uint64_t i = 0; i < p->layers; i++) {
        compute(s, KV_CACHE, p->kv_cache_bytes / p->layers);
    }
}

/* ---- requests ---- */

static uint64_t draw_prompt(struct server *s)
{
    uint64_t kind = flw_gen_between(&s->gen, 0, 99);
    return kind < 60   ? flw_gen_between(&s->gen, 16, 255)
           : kind < 90 ? flw_gen_between(&s->gen, 256, 2047)
                       : flw_gen_between(&s->gen, 2048, 8191);
}

static void admit(struct server *s)
{
    const struct flw_serve_params *p = s->p;
    struct request *r = &s->requests[s->request_count++];
    *r = (struct request){.embeddings = FLW_GEN_NO_BLOCK, .logprobs = FLW_GEN_NO_BLOCK};
    r->prompt_left = draw_prompt(s);
    r->output_left = flw_gen_between(&s->gen, 8, 39);
    r->counts = compute(s, TOKEN_COUNTS, p->vocabulary * 4);
    if (flw_gen_between(&s->gen, 0, 3) == 0) {
        r->embeddings = compute(s, IMAGES, r->prompt_left * p->hidden * 2);
    }
    if (flw_gen_between(&s->gen, 0, 7) == 0) {
        r->logprobs = compute(s, LOGPROBS, r->prompt_left * CANDIDATES * 4);
    }
}

static void admit_arrivals(struct server *s)
{
    uint64_t arrivals = flw_gen_between(&s->gen, 0, s->p->arrivals_max);
    for (; arrivals > 0 && s->request_count < s->p->requests_max; arrivals--) {
        admit(s);
    }
}

static void retire_finished(struct server *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->request_count; i++) {
        struct request *r = &s->requests[i];
        if (r->prompt_left == 0) {
            flw_gen_drop(&s->gen, &r->embeddings);
        }
        if (r->prompt_left == 0 && r->output_left == 0) {
            give(s, r->logprobs, r->counts);
        } else {
            s->requests[kept++] = *r;
        }
    }
    s->request_count = kept;
}

/* What one step works on. */
struct batch {
    uint64_t tokens;
    uint64_t decodes;
    uint64_t samples; /* decodes, and prompts that end in this step */
    uint64_t splits;  /* of the longest decode's context; 1: not split */
};

static struct batch schedule(struct server *s)
{
    struct batch batch = {0, 0, 0, 1};
    uint64_t longest = 0;
    for (size_t i = 0; i < s->request_count; i++) {
        struct request *r = &s->requests[i];
        if (r->prompt_left == 0) {
            batch.decodes++;
            r->context++;
            r->output_left--;
            longest = flw_max(longest, r->context);
        }
    }
    batch.tokens = batch.decodes;
    batch.samples = batch.decodes;
    for (size_t i = 0; i < s->request_count; i++) {
        struct request *r = &s->requests[i];
        uint64_t chunk = flw_min(r->prompt_left, s->p->token_budget - batch.tokens);
        r->prompt_left -= chunk;
        r->context += chunk;
        batch.tokens += chunk;
        batch.samples += chunk > 0 && r->prompt_left == 0;
    }
    batch.splits = flw_clamp(flw_div_up(longest, SPLIT_TOKENS), 1, SPLITS_MAX);
    return batch;
}

/* ---- a step ---- */

static uint32_t attend(struct server *s, const struct batch *b, uint32_t norm)
{
    const struct flw_serve_params *p = s->p;
    uint64_t t = b->tokens;
    uint32_t qkv = turn(s, norm, QKV, t * (p->heads + 2 * p->kv_heads) * p->head_dim * 2);
    uint32_t out = compute(s, ATTEND, t * p->heads * p->head_dim * 2);
    uint32_t sums = compute(s, ATTEND_SUMS, t * p->heads * 4);
    if (b->splits > 1) {
        uint64_t parts = b->splits * b->decodes * p->heads;
        uint32_t partial = compute(s, SPLIT, parts * p->head_dim * 4);
        uint32_t partial_sums = compute(s, SPLIT_SUMS, parts * 4);
        give(s, partial, partial_sums);
    }
    give(s, sums, qkv);
    return turn(s, out, PROJECT, t * p->hidden * 2);
}

/* Takes the residual stream's block and returns the next one. */
static uint32_t run_layer(struct server *s, const struct batch *b, uint32_t residual)
{
    const struct flw_serve_params *p = s->p;
    uint64_t t = b->tokens;
    uint32_t projection = attend(s, b, compute(s, NORM, t * p->hidden * 2));
    uint32_t norm = turn(s, residual, MLP_NORM, t * p->hidden * 2);
    uint32_t gate_up = turn(s, norm, GATE_UP, t * p->intermediate * 4);
    uint32_t activation = turn(s, gate_up, ACTIVATE, t * p->intermediate * 2);
    uint32_t down = turn(s, activation, DOWN, t * p->hidden * 2);
    give(s, projection);
    return down;
}

/* The sampled ids, which the copying stream still reads. */
static uint32_t sample(struct server *s, const struct batch *b)
{
    uint64_t values = b->samples * s->p->vocabulary;
    uint32_t temporaries[SAMPLING_TENSORS];
    uint32_t logits = compute(s, LOGITS, values * 2);
    uint32_t wide = turn(s, logits, LOGITS_FP32, values * 4);
    for (size_t i = 0; i < SAMPLING_TENSORS; i++) {
        temporaries[i] = compute(s, PROBABILITIES, values * 4);
    }
    uint32_t ids = compute(s, IDS, b->samples * 8);
    flw_gen_give_each(&s->gen, temporaries, SAMPLING_TENSORS);
    give(s, wide);
    flw_gen_use(&s->gen, ids, STREAM_COPY);
    return ids;
}

static void run_step(struct server *s, uint32_t *last_ids)
{
    uint32_t inputs[INPUTS_PER_STEP];
    admit_arrivals(s);
    struct batch batch = schedule(s);
    if (batch.tokens == 0) {
        return;
    }
    for (size_t i = 0; i < INPUTS_PER_STEP; i++) {
        inputs[i] = take(s, INPUTS, batch.tokens * 8, STREAM_COPY);
        flw_gen_use(&s->gen, inputs[i], STREAM_COMPUTE);
    }
    uint32_t residual = compute(s, EMBED, batch.tokens * s->p->hidden * 2);
    for (uint64_t i = 0; i < s->p->layers; i++) {
        residual = run_layer(s, &batch, residual);
    }
    flw_gen_drop(&s->gen, last_ids);
    if (batch.samples > 0) {
        *last_ids = sample(s, &batch);
    }
    give(s, residual);
    flw_gen_give_each(&s->gen, inputs, INPUTS_PER_STEP);
    retire_finished(s);
}

/* ---- together ---- */

static bool add_notes(struct server *s)
{
    const struct flw_serve_params *p = s->p;
    int count =
        asprintf(&s->gen.build.trace->notes,
                 "# serving with continuous batching; the formulas are in src/trace/gen/serve.c\n"
                 "generator serve 2\n"
                 "seed %" PRIu64 "\n"
                 "model layers %" PRIu64 " hidden %" PRIu64 " heads %" PRIu64 " kv_heads %" PRIu64
                 " head_dim %" PRIu64 " intermediate %" PRIu64 " vocabulary %" PRIu64
                 " weight_bytes_per_value %" PRIu64 "\n"
                 "server kv_cache_bytes %" PRIu64 " token_budget %" PRIu64 " requests_max %" PRIu64
                 " arrivals_max %" PRIu64 " steps %" PRIu64 "\n",
                 p->seed, p->layers, p->hidden, p->heads, p->kv_heads, p->head_dim, p->intermediate,
                 p->vocabulary, p->weight_bytes_per_value, p->kv_cache_bytes, p->token_budget,
                 p->requests_max, p->arrivals_max, p->steps);
    if (count < 0) {
        s->gen.build.trace->notes = NULL;
    }
    return count >= 0;
}

static bool serve(struct server *s)
{
    uint32_t last_ids = FLW_GEN_NO_BLOCK;
    flw_gen_add_streams(&s->gen, 2);
    if (!add_notes(s)) {
        return false;
    }
    add_stacks(s);
    load_model(s);
    for (uint64_t i = 0; i < s->p->steps; i++) {
        run_step(s, &last_ids);
    }
    s->gen.build.trace->has_times = true;
    return !s->gen.has_failed && flw_measure_trace(s->gen.build.trace) == NULL;
}

bool flw_serve_generate(const struct flw_serve_params *params, struct flw_trace **out_trace)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct server s = {.p = params, .gen = {.message = message, .random_state = params->seed}};
    *out_trace = NULL;
    s.requests = calloc((size_t)params->requests_max + 1, sizeof(*s.requests));
    bool is_made =
        s.requests != NULL && flw_build_init(&s.gen.build, "serve", "generated") && serve(&s);
    flw_build_end(&s.gen.build, is_made, out_trace);
    free(s.requests);
    return is_made;
}
