/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a server of a language model as one of its ranks sees it: options, the schedule of requests,
 * captured graphs, what surrounds the layers.
 * Does not: know the layers' blocks or the weights (gen_serve_layer.c).
 *
 * Continuous batching: a step takes one token of each request that decodes, then prompts in order of
 * arrival, cut where max-tokens ends; a request is admitted while fewer than max-seqs run and where the
 * cache has room for all of it. Where none runs the time of the next arrival comes; behind the last one
 * of a file the trace ends, with fewer steps than asked for.
 *
 *   start    weights; workspaces of 256 MiB and, with latent attention, min(max(8 max-len,
 *            256 max-seqs), 131072) x 576 x 2; the key/value cache, layer by layer, or (pages) a block
 *            for every 64 tokens of a request as it grows
 *   step     ids, positions, slots: 8 T each, copied in on stream 1, used on stream 0; the layers
 *   sampling of B tokens: hidden 2 B h; logits 2 B V, 4 B V, three temporaries of 4 B V; ids 8 B,
 *            copied out on stream 1
 *   graph    steps that only decode, B <= 512, run as one of the captured graphs, the smallest that
 *            holds them: 1, 2, 4, 8, 16, then by eights. All are captured at the start, the largest
 *            first, into private pool 1: what they take is allocated and freed inside the capture
 *            and is the graphs' own from then on. Inputs and hidden states of the largest stay. A
 *            replayed graph takes nothing but what samples.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/bits.h"
#include "trace/gen/gen_requests.h"
#include "trace/gen/gen_serve.h"

#define WORKSPACE_BYTES   (256 * FLW_MIB)
#define PAGE_TOKENS       64 /* of one block where the cache grows by pages */
#define LATENT_PAGE       64
#define LATENT_TOKENS_MAX 131072
#define SPLIT_TOKENS      1024 /* of context that one split of a decode takes */
#define SPLITS_MAX        8
#define CAPTURE_MAX       512
#define CAPTURE_STEP      8
#define INPUTS            3
#define SAMPLING_TENSORS  3
#define NEVER             UINT64_MAX

static const char *const modes[] = {"eager", "graph", NULL};
static const char *const traffics[] = {"conversation", "code", "long", NULL};
static const char *const caches[] = {"pool", "pages", NULL};
static const char *const latents[] = {"triton", "flashmla", NULL};

/* clang-format off */
#define OPTIONS(X) \
    X(MODEL, "model", "which one", CHOICE, 0, 0, 4, flw_serve_model_names) \
    X(MODE, "mode", "each kernel launched, or captured graphs where a step only decodes", CHOICE, 0, 0, 1, modes) \
    X(REQUESTS, "requests", "lengths and arrivals of a file: Azure's CSV, Mooncake's JSON lines", FILE, 0, 0, 0, NULL) \
    X(TRAFFIC, "traffic", "without a file: requests drawn as in such services", CHOICE, 0, 0, 2, traffics) \
    X(SPEED, "speed", "how many times as fast requests come", COUNT, 10, 1, 1000000, NULL) \
    X(STEPS, "steps", "of the server; fewer where a file ends", COUNT, 200, 1, 1000000, NULL) \
    X(MAX_SEQS, "max-seqs", "requests that run at once", COUNT, 256, 1, 65536, NULL) \
    X(MAX_TOKENS, "max-tokens", "of a step", COUNT, 8192, 1, 1048576, NULL) \
    X(MAX_LEN, "max-len", "tokens of a request, prompt and output", COUNT, 32768, 2, 1048576, NULL) \
    X(KV, "kv", "the cache is one pool, or pages that come and go", CHOICE, 0, 0, 1, caches) \
    X(KV_BYTES, "kv-bytes", "of the cache, at most", BYTES, 8 * FLW_GIB, FLW_MIB, 4096 * FLW_GIB, NULL) \
    X(TP, "tp", "ranks that share each layer", COUNT, 1, 1, 64, NULL) \
    X(EP, "ep", "ranks that share the experts, each with a batch of its own", COUNT, 1, 1, 256, NULL) \
    X(EXPERT_SKEW, "expert-skew", "per cent of choices that follow Zipf, with ep", COUNT, 50, 0, 100, NULL) \
    X(MLA, "mla", "kernels of latent attention", CHOICE, 0, 0, 1, latents) \
    X(SEED, "seed", "of the drawn numbers", COUNT, 1, 0, UINT64_MAX, NULL)
/* clang-format on */

enum {
    OPTIONS(FLW_GEN_OPTION_NUMBER) OPTION_COUNT
};

static const struct flw_gen_option options[] = {OPTIONS(FLW_GEN_OPTION_ROW)};

/* One that runs, or waits. */
struct request {
    uint64_t arrival_ns;
    uint64_t prompt_left, output_left, context;
    uint64_t known; /* of the context: in pages that other requests brought */
    uint32_t *pages;
    size_t page_count, page_room;
};

struct server {
    struct flw_serve serve;
    struct flw_gen *gen;
    struct flw_requests file;
    size_t next_request;      /* of the file */
    struct request *requests; /* running, oldest first */
    size_t request_count;
    struct request waiting; /* the next to come */
    uint64_t start_ns;      /* what a file's arrivals count from */
    uint64_t reserved_tokens, cache_tokens;
    uint64_t capture_max; /* 0: eager */
    uint32_t last_ids;
};

static uint64_t number(const struct server *s, int option)
{
    return flw_gen_number(s->gen, option);
}

static uint32_t take(struct server *s, uint64_t size_bytes)
{
    return flw_gen_take(s->gen, size_bytes, FLW_SERVE_COMPUTE);
}

#define give(s, ...) FLW_GEN_GIVE((s)->gen, __VA_ARGS__)

/* ---- requests ---- */

/* The next to come, cut to max-len and to the cache; NEVER behind a file's end. */
static void await_next(struct server *s)
{
    struct flw_request request;
    uint64_t since_ns = s->waiting.arrival_ns;
    if (s->gen->values->paths[OPTION_REQUESTS] == NULL) {
        request = flw_requests_draw(s->gen, (enum flw_requests_kind)number(s, OPTION_TRAFFIC));
    } else if (s->next_request < s->file.count) {
        request = s->file.items[s->next_request++];
        since_ns = s->start_ns;
    } else {
        s->waiting = (struct request){.arrival_ns = NEVER};
        return;
    }
    uint64_t length_max = flw_min(number(s, OPTION_MAX_LEN), s->cache_tokens);
    uint64_t prompt = flw_min(request.prompt, length_max - 1);
    uint64_t output = flw_min(request.output, length_max - prompt);
    uint64_t known = flw_min(request.known, prompt - 1);
    s->waiting = (struct request){.arrival_ns = since_ns +
                                                request.arrival_us * 1000 / number(s, OPTION_SPEED),
                                  .prompt_left = prompt - known,
                                  .output_left = output,
                                  .context = known,
                                  .known = known};
}

static uint64_t all_tokens(const struct request *r)
{
    return r->context + r->prompt_left + r->output_left;
}

static bool has_room(const struct server *s)
{
    return s->request_count < number(s, OPTION_MAX_SEQS) &&
           s->reserved_tokens + all_tokens(&s->waiting) <= s->cache_tokens;
}

static void admit_arrivals(struct server *s)
{
    if (s->request_count == 0 && s->waiting.arrival_ns != NEVER &&
        s->waiting.arrival_ns > s->gen->time_ns) {
        flw_gen_pass(s->gen, s->waiting.arrival_ns - s->gen->time_ns);
    }
    while (s->waiting.arrival_ns <= s->gen->time_ns && has_room(s)) {
        s->reserved_tokens += all_tokens(&s->waiting);
        s->requests[s->request_count++] = s->waiting;
        await_next(s);
    }
}

/* Pages for the tokens that a request has by now, where the cache grows. */
static void grow_cache(struct server *s, struct request *r)
{
    if (number(s, OPTION_KV) == 0) {
        return;
    }
    size_t wanted = (size_t)flw_div_up(r->context - r->known, PAGE_TOKENS);
    if (wanted > r->page_room) {
        size_t room = (size_t)flw_div_up(all_tokens(r), PAGE_TOKENS);
        uint32_t *pages = realloc(r->pages, room * sizeof(*pages));
        if (pages == NULL) {
            flw_gen_fail(s->gen, "no memory for a request's pages");
            return;
        }
        r->pages = pages;
        r->page_room = room;
    }
    while (r->page_count < wanted) {
        r->pages[r->page_count++] = flw_gen_take_quick(
            s->gen, PAGE_TOKENS * flw_serve_kv_bytes(&s->serve), FLW_SERVE_COMPUTE);
    }
}

static void retire(struct server *s, struct request *r)
{
    flw_gen_give_each(s->gen, r->pages, r->page_count);
    free(r->pages);
    s->reserved_tokens -= all_tokens(r);
}

static void retire_finished(struct server *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->request_count; i++) {
        struct request *r = &s->requests[i];
        if (r->prompt_left == 0 && r->output_left == 0) {
            retire(s, r);
        } else {
            s->requests[kept++] = *r;
        }
    }
    s->request_count = kept;
}

static struct flw_serve_batch schedule(struct server *s)
{
    struct flw_serve_batch batch = {.splits = 1};
    uint64_t longest = 0;
    uint64_t budget = number(s, OPTION_MAX_TOKENS);
    for (size_t i = 0; i < s->request_count; i++) {
        struct request *r = &s->requests[i];
        if (r->prompt_left == 0 && batch.decodes < budget) {
            batch.decodes++;
            r->context++;
            r->output_left--;
            longest = flw_max(longest, r->context);
            grow_cache(s, r);
        }
    }
    batch.tokens = batch.samples = batch.decodes;
    for (size_t i = 0; i < s->request_count; i++) {
        struct request *r = &s->requests[i];
        uint64_t chunk = flw_min(r->prompt_left, budget - batch.tokens);
        if (chunk == 0) {
            continue;
        }
        r->prompt_left -= chunk;
        r->context += chunk;
        batch.tokens += chunk;
        batch.context += r->context;
        if (r->prompt_left == 0) { /* its first token comes of this step */
            batch.samples++;
            r->output_left--;
            r->context++;
        }
        grow_cache(s, r);
    }
    batch.splits = flw_clamp(flw_div_up(longest, SPLIT_TOKENS), 1, SPLITS_MAX);
    return batch;
}

/* ---- a step ---- */

/* The ids stay for the copying stream until the next step's are made. */
static void sample(struct server *s, uint64_t samples)
{
    uint32_t temporaries[SAMPLING_TENSORS];
    uint64_t values = samples * s->serve.model->vocab;
    uint32_t hidden = take(s, samples * s->serve.model->hidden * 2);
    uint32_t logits = take(s, values * 2);
    uint32_t wide = take(s, values * 4);
    give(s, logits, hidden);
    for (size_t i = 0; i < SAMPLING_TENSORS; i++) {
        temporaries[i] = take(s, values * 4);
    }
    flw_gen_drop(s->gen, &s->last_ids);
    s->last_ids = take(s, samples * 8);
    flw_gen_give_each(s->gen, temporaries, SAMPLING_TENSORS);
    give(s, wide);
    flw_gen_use(s->gen, s->last_ids, FLW_SERVE_COPY);
}

static void take_inputs(struct server *s, uint64_t tokens, uint32_t *inputs)
{
    for (size_t i = 0; i < INPUTS; i++) {
        inputs[i] = flw_gen_take(s->gen, tokens * 8, FLW_SERVE_COPY);
        flw_gen_use(s->gen, inputs[i], FLW_SERVE_COMPUTE);
    }
}

static void run_eager(struct server *s, const struct flw_serve_batch *batch)
{
    uint32_t inputs[INPUTS];
    take_inputs(s, batch->tokens, inputs);
    uint32_t hidden = flw_serve_run_layers(&s->serve, batch);
    if (batch->samples > 0) {
        sample(s, batch->samples);
    }
    give(s, hidden);
    flw_gen_give_each(s->gen, inputs, INPUTS);
}

/* A replayed graph takes the time of its kernels, which is its weights' time, and nothing else. */
static void run_graph(struct server *s, const struct flw_serve_batch *batch)
{
    for (uint64_t i = 0; i < s->serve.model->layers; i++) {
        flw_gen_pass(s->gen, flw_serve_weight_bytes(&s->serve, i) / FLW_GEN_BYTES_PER_NS);
    }
    sample(s, batch->samples);
}

/* False: no request is left. */
static bool run_step(struct server *s)
{
    admit_arrivals(s);
    struct flw_serve_batch batch = schedule(s);
    if (batch.tokens == 0) {
        return false;
    }
    bool is_graph = batch.tokens == batch.decodes && batch.decodes <= s->capture_max;
    const char *name = batch.tokens == batch.decodes ? "decode" : "prefill";
    flw_gen_begin_phase(s->gen, name);
    if (is_graph) {
        run_graph(s, &batch);
    } else {
        run_eager(s, &batch);
    }
    flw_gen_end_phase(s->gen, name);
    retire_finished(s);
    return !s->gen->has_failed;
}

/* ---- the start ---- */

static uint64_t next_smaller(uint64_t size)
{
    return size > 2 * CAPTURE_STEP ? size - CAPTURE_STEP : size / 2;
}

/* The largest first, so that the others find room in what it took. What stays are inputs and the hidden
 * states that come out, of the largest. */
static void capture(struct server *s)
{
    uint32_t inputs[INPUTS];
    uint64_t size = flw_min(flw_align_up(number(s, OPTION_MAX_SEQS), CAPTURE_STEP), CAPTURE_MAX);
    s->capture_max = size;
    take_inputs(s, size, inputs);
    take(s, size * s->serve.model->hidden * 2);
    flw_gen_begin_phase(s->gen, "capture");
    s->gen->context.pool = 1;
    for (; size > 0 && !s->gen->has_failed; size = next_smaller(size)) {
        struct flw_serve_batch batch = {
            .tokens = size,
            .decodes = size,
            .samples = size,
            .splits = flw_clamp(number(s, OPTION_MAX_LEN) / SPLIT_TOKENS, 1, SPLITS_MAX)};
        flw_gen_begin_pool(s->gen, FLW_SERVE_COMPUTE);
        give(s, flw_serve_run_layers(&s->serve, &batch));
        flw_gen_end_pool(s->gen, FLW_SERVE_COMPUTE);
    }
    s->gen->context.pool = 0;
    flw_gen_end_phase(s->gen, "capture");
}

static void start(struct server *s)
{
    const fallow_model *m = s->serve.model;
    flw_gen_begin_phase(s->gen, "load");
    flw_serve_load(&s->serve);
    flw_gen_take_quick(s->gen, WORKSPACE_BYTES, FLW_SERVE_COMPUTE);
    if (m->kv_rank > 0) {
        flw_gen_take_quick(s->gen, s->serve.chunk_tokens * (m->kv_rank + m->rope_dim) * 2,
                           FLW_SERVE_COMPUTE);
    }
    for (uint64_t i = 0; i < m->layers && number(s, OPTION_KV) == 0; i++) {
        flw_gen_take_quick(s->gen, s->cache_tokens * flw_serve_kv_bytes(&s->serve) / m->layers,
                           FLW_SERVE_COMPUTE);
    }
    flw_gen_end_phase(s->gen, "load");
    if (number(s, OPTION_MODE) == 1) {
        capture(s);
    }
}

static bool fits(struct server *s)
{
    const fallow_model *m = s->serve.model;
    uint64_t tp = number(s, OPTION_TP);
    uint64_t ep = number(s, OPTION_EP);
    if (m->heads % tp != 0) {
        return flw_gen_fail(
            s->gen, "--tp %" PRIu64 " does not divide the model's %" PRIu64 " heads", tp, m->heads);
    }
    if (ep > 1 && (m->experts == 0 || m->experts % ep != 0)) {
        return flw_gen_fail(s->gen,
                            "--ep %" PRIu64 " does not divide the model's %" PRIu64 " experts", ep,
                            m->experts);
    }
    return true;
}

static bool set_up(struct server *s)
{
    const fallow_model *m = fallow_model_preset(number(s, OPTION_MODEL));
    struct flw_serve *v = &s->serve;
    v->model = m;
    if (!fits(s)) {
        return false;
    }
    v->tp = number(s, OPTION_TP);
    v->ep = number(s, OPTION_EP);
    v->heads = m->heads / v->tp;
    v->kv_heads = flw_max(m->kv_heads / v->tp, 1);
    v->intermediate = m->intermediate / v->tp;
    v->experts = flw_max(m->experts / v->ep, m->experts > 0);
    v->expert_intermediate = v->ep > 1 ? m->expert_intermediate : m->expert_intermediate / v->tp;
    v->max_len = number(s, OPTION_MAX_LEN);
    v->max_seqs = number(s, OPTION_MAX_SEQS);
    v->chunk_tokens =
        flw_min(flw_max(8 * v->max_len, 4 * v->max_seqs * LATENT_PAGE), LATENT_TOKENS_MAX);
    v->is_flashmla = number(s, OPTION_MLA) == 1;
    s->cache_tokens = flw_align_down(number(s, OPTION_KV_BYTES) / flw_serve_kv_bytes(v), 16);
    if (s->cache_tokens < 16) {
        return flw_gen_fail(s->gen,
                            "--kv-bytes holds fewer than 16 tokens of %" PRIu64 " bytes each",
                            flw_serve_kv_bytes(v));
    }
    s->requests = calloc((size_t)number(s, OPTION_MAX_SEQS), sizeof(*s->requests));
    return s->requests != NULL || flw_gen_fail(s->gen, "no memory for the requests");
}

static bool read_requests(struct server *s)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    const char *path = s->gen->values->paths[OPTION_REQUESTS];
    if (path == NULL) {
        return true;
    }
    if (!flw_requests_read(path, &s->file, message)) {
        return flw_gen_fail(s->gen, "%s", message);
    }
    flw_gen_note(s->gen, "requests %zu of a file with checksum %016" PRIx64, s->file.count,
                 s->file.checksum);
    return true;
}

static void serve(struct server *s)
{
    flw_gen_add_streams(s->gen, 2);
    flw_serve_draw_shares(&s->serve, number(s, OPTION_EXPERT_SKEW));
    start(s);
    s->start_ns = s->waiting.arrival_ns = s->gen->time_ns;
    await_next(s);
    uint64_t steps = number(s, OPTION_STEPS);
    while (steps > 0 && run_step(s)) {
        steps--;
    }
}

static void run(struct flw_gen *gen)
{
    struct server s = {.serve = {.gen = gen}, .gen = gen, .last_ids = FLW_GEN_NO_BLOCK};
    flw_gen_seed(gen, number(&s, OPTION_SEED));
    if (set_up(&s) && read_requests(&s)) {
        serve(&s);
    }
    for (size_t i = 0; i < s.request_count; i++) {
        free(s.requests[i].pages);
    }
    flw_requests_finish(&s.file);
    free(s.requests);
}

const struct flw_gen_kind flw_gen_serve_kind = {
    .name = "serve",
    .summary =
        "a language model being served: continuous batching, chunked prompts, experts, graphs",
    .example = "qwen3-30b-a3b --ep 8 --expert-skew 80 --traffic code -o serve.ftext",
    .formula =
        "# blocks as in src/trace/gen_serve.c and gen_serve_layer.c; what is alive at the end "
        "are weights, workspaces, the cache\n"
        "# pool=1 is the captured graphs': what is freed inside a capture is theirs until the "
        "end\n",
    .version = 1,
    .options = options,
    .option_count = OPTION_COUNT,
    .word_help = flw_serve_model_help,
    .run = run,
};
