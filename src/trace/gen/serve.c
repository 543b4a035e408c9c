/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one rank of a language model's server: the blocks of its layers, the schedule of requests, captured graphs.
 *
 * T tokens, B of them decodes, b samples; h hidden, H heads, K key/value heads, d their size, I inner, V vocabulary, y
 * bytes per weight, Q bytes of a token in all layers' caches, U tokens in them; E experts of which k work, X their
 * inner width, Y of them here, z the inner width of those that serve every token; q, c and r the ranks of a latent
 * query, of its cache and its rope. All of this rank: attention and inner layers are cut in D parts, experts are
 * distributed over W ranks. Activations are bf16.
 *
 * Continuous batching: a step runs one token of each decoding request, then prompts in order of arrival, cut at
 * max-tokens; a request is admitted while fewer than max-seqs run and the cache has room for all of it. If none runs,
 * time passes to the next arrival; after the last request of a file the trace ends, possibly before the given steps.
 *
 * Graphs: steps that only decode, 512 tokens at most, run as one of the captured graphs, the smallest that holds them:
 * 1, 2, 4, 8, 16, then by eights. All are captured at the start, the largest first, into private pool 1: blocks of a
 * capture are the graphs' own from then on. Inputs and hidden states of the largest stay. A replayed graph allocates
 * only for sampling.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/bits.h"
#include "fallow/model.h"
#include "trace/gen/plan.h"
#include "trace/gen/requests.h"

#define PAGES_MAX    32768 /* most pages of a request if the cache grows by pages of 64 tokens */
#define SPLIT_TOKENS 1024  /* context tokens of one split of a decode */
#define SPLITS_MAX   8
#define CAPTURE_MAX  512
#define CAPTURE_STEP 8
#define NEVER        UINT64_MAX

/* clang-format off */

/* ---- plans ---- */

/* From `normed` to `projection`. A decode of a long context is split S ways. */
#define ATTEND \
    "qkv=2T(H+2K)d -normed out=2THd sums=4HT " \
    "?((S-1)B){partial=4SHBd parts=4SHB -partial -parts} -sums -qkv projection=2Th -out"

/* Latent attention. Prompts with C tokens of context go through the workspace in chunks of w tokens; decodes run
 * FlashMLA (f) with g parts, or Triton split four ways. */
#define ATTEND_LATENT \
    "in=2T(q+c+r) -normed query=2TH(d+r) out=2THd " \
    "?(T-B){heads=2(T-B)Hd sums=4(T-B)H " \
        "i*((C+w-1)/w){n:w&(C-iw) up=4nHd keys=2nH(d+r) -keys -up} -sums -heads} " \
    "?B{absorbed=2BH(c+r) latent=2BHc " \
        "?f{g:132/((H+63)/64) plan=32g splits=4(B+1) sums=4(B+g)H partial=4(B+g)Hc -partial -sums -splits -plan} " \
        "?!f{partial=16BH(c+1) -partial} -absorbed heads=2BHd -latent -heads} " \
    "-query -in projection=2Th -out"

#define INNER(to, width) "gates=4T" width " product=2T" width " -gates " to "=2Th -product "

/* Experts of this rank alone: M choices in blocks of R rows, P rows with the padding; the fewest rows that keep the
 * padding below them. */
#define EXPERTS \
    "M:(T&32768)k R:16 i*3{?((M|(RE))-RE){R:2R}} P:M+E(R-1) ?((M|E)-M){P:P&(MR)} " \
    "order=4P experts=4((P+R-1)/R) count=4 first=2M((2X)|h) second=2MX inner=2Th -second -first -count -experts -order"

/* Experts dealt to W ranks of T tokens each: a choices are for those of this rank. */
#define EXPERTS_DEALT \
    "received@1=2ah received>0 order=4a gates=4aX -received product=2aX -gates down=2ah -product -order down>1 " \
    "inner=2Th -down"

/* Experts are in layer m. */
#define HAS_EXPERTS "J:(E&1)!((O|m)-m) "

static void draw_choices(struct flw_gen *gen);

static const struct flw_plan plans[] = {
    {"layer",
     "normed=2Th ?c{" ATTEND_LATENT "} ?!c{" ATTEND "} normed=2Th -residual "
     "?!J{" INNER("inner", "I") "} "
     "?J{?z{" INNER("shared", "z") "} scores=2TE weights=4Tk chosen=4Tk -scores "
         "?(W-1){" EXPERTS_DEALT "} ?!(W-1){" EXPERTS "} -chosen -weights -shared} "
     "-normed residual<inner -projection", NULL},
    {"choices", NULL, draw_choices},
    /* The time is that of reading the weights of each layer, A.m bytes; of experts only those that work. */
    {"layers",
     "residual=2Th m*l{" HAS_EXPERTS "?(J(W-1)){.choices} .layer t:A.m/2048 ?E{t:t*((Tk)&E)/E} ~t}", NULL},
    {"eager", "i*3{input.i@1=8T input.i>0} .layers ?b{.sample} -residual i*3{-input.i}", NULL},
    {"graph", "m*l{~A.m/2048} .sample", NULL},
    /* The largest first, so that the others fit into its blocks: T tokens, 8 fewer, half as many from 16 on. */
    {"capture",
     "i*3{graph.i@1=8T graph.i>0} states=2Th <capture S:(L/1024|1)&8 "
     "o*80{?T{B:T ( .layers -residual ) x:(T|16)-16 ?x{T:T-8} ?!x{T:T/2}}} >capture", NULL},
    /* The ids stay for the copying stream until those of the next step are made. */
    {"sample",
     "hidden=2bh logits=2bV wide=4bV -logits -hidden i*3{partial.i=4bV} -ids ids=8b "
     "i*3{-partial.i} -wide ids>1", NULL},
    /* One block per matrix; workspaces; the cache. */
    {"weights",
     "+2h ?c{+h(q+c+r)y +qH(d+r)y +2cHdy} ?!c{+h(H+2K)dy} +Hdhy +2h "
     "?J{+2Eh +2(YX+z)hy +(YX+z)hy} ?!J{+2Ihy +Ihy}", NULL},
    {"load",
     "<load +2h((V+D-1)/D) m*l{" HAS_EXPERTS "A.m:$ .weights A.m:$-A.m-4h} +2h +2h((V+D-1)/D) "
     "+268435456 ?c{+2w(c+r)} ?!p{m*l{+UQ/l}} >load", NULL},
    /* How often this rank's experts are chosen in each layer, in millionths: j in a hundred by Zipf, in an order of liking
     * that is drawn, the rest evenly. */
    {"shares",
     "g*l{t:0 o:0 m:Y i*E{t:t+1000000/(i+1) x:[1,E-i] ?!((x|m)-m){o:o+1000000/(i+1) m:m-1}} "
     "F.g:(o*1000000/(t|1)*j+Y*1000000/(E|1)(100-j))/100}", NULL},
};

/* ---- options ---- */

static const char *const models[] = {"llama-3-8b",   "llama-3-70b", "qwen3-30b-a3b",
                                     "mixtral-8x7b", "deepseek-v3", NULL}; /* of fallow/model.h */
static const char *const model_help[] = {
    "dense, 32 layers, bf16",
    "dense, 80 layers, bf16",
    "128 experts, 8 active, bf16",
    "8 experts, 2 active, bf16",
    "latent attention, 256 experts, 8 active and one shared, fp8",
};
static const char *const modes[] = {"eager", "graph", NULL};
static const char *const traffics[] = {"conversation", "code", "long", NULL};
static const char *const caches[] = {"pool", "pages", NULL};
static const char *const latents[] = {"triton", "flashmla", NULL};

static const struct flw_gen_option options[] = {
    {"model", "which one", FLW_GEN_CHOICE, 0, 0, 4, models, 'O'},
    {"mode", "each kernel launched, or captured graphs if a step only decodes", FLW_GEN_CHOICE, 0, 0, 1, modes, 'G'},
    {"requests", "lengths and arrivals of a file: Azure's CSV, Mooncake's JSON lines", FLW_GEN_FILE, 0, 0, 0, NULL, 'F'},
    {"traffic", "without a file: requests drawn as in such services", FLW_GEN_CHOICE, 0, 0, 2, traffics, 'e'},
    {"speed", "factor for the rate of requests", FLW_GEN_COUNT, 10, 1, 1000000, NULL, 'v'},
    {"steps", "of the server; fewer if the file ends", FLW_GEN_COUNT, 200, 1, 1000000, NULL, 'N'},
    {"max-seqs", "requests that run at once", FLW_GEN_COUNT, 256, 1, 65536, NULL, 's'},
    {"max-tokens", "of a step", FLW_GEN_COUNT, 8192, 1, 1048576, NULL, 'u'},
    {"max-len", "tokens of a request, prompt and output", FLW_GEN_COUNT, 32768, 2, 1048576, NULL, 'L'},
    {"kv", "the cache is one pool, or separate pages", FLW_GEN_CHOICE, 0, 0, 1, caches, 'p'},
    {"kv-bytes", "of the cache, at most", FLW_GEN_BYTES, 8 * FLW_GIB, FLW_MIB, 4096 * FLW_GIB, NULL, 'Z'},
    {"tp", "ranks that share each layer", FLW_GEN_COUNT, 1, 1, 64, NULL, 'D'},
    {"ep", "ranks that share the experts, each with a batch of its own", FLW_GEN_COUNT, 1, 1, 256, NULL, 'W'},
    {"expert-skew", "per cent of choices that follow Zipf, with ep", FLW_GEN_COUNT, 50, 0, 100, NULL, 'j'},
    {"mla", "kernels of latent attention", FLW_GEN_CHOICE, 0, 0, 1, latents, 'f'},
    {"seed", "of the drawn numbers", FLW_GEN_COUNT, 1, 0, UINT64_MAX, NULL, 'g'},
};
/* clang-format on */

struct request {
    uint64_t arrival_ns;
    uint64_t prompt_left, output_left, context;
    uint64_t known;         /* cached context tokens, in pages of other requests */
    uint64_t pages, number; /* page count; the blocks are page.(number PAGES_MAX) and on */
};

struct server {
    struct flw_gen *gen;
    uint64_t *n; /* the numbers of plans */
    const fallow_model *model;
    struct flw_requests file;
    size_t next_request;      /* of the file */
    struct request *requests; /* running, oldest first */
    struct request waiting;   /* the next arrival */
    uint64_t request_count, arrived;
    uint64_t start_ns; /* origin of a file's arrival times */
    uint64_t reserved_tokens;
    uint64_t capture_max; /* 0: eager */
};

/* ---- requests ---- */

/* Wait for the next request, cut to max-len and to the cache; NEVER after the end of a file. */
static void await_next(struct server *s)
{
    struct flw_request request;
    uint64_t since_ns = s->waiting.arrival_ns;
    if (s->file.count == 0) {
        request = flw_requests_draw(s->gen, s->n['e']);
    } else if (s->next_request < s->file.count) {
        request = s->file.items[s->next_request++];
        since_ns = s->start_ns;
    } else {
        s->waiting = (struct request){.arrival_ns = NEVER};
        return;
    }
    uint64_t length_max = flw_min(s->n['L'], s->n['U']);
    uint64_t prompt = flw_min(request.prompt, length_max - 1);
    uint64_t known = flw_min(request.known, prompt - 1);
    s->waiting = (struct request){.arrival_ns = since_ns + request.arrival_us * 1000 / s->n['v'],
                                  .prompt_left = prompt - known,
                                  .output_left = flw_min(request.output, length_max - prompt),
                                  .context = known,
                                  .known = known,
                                  .number = s->arrived++};
}

static uint64_t all_tokens(const struct request *r)
{
    return r->context + r->prompt_left + r->output_left;
}

static void admit_arrivals(struct server *s)
{
    if (s->request_count == 0 && s->waiting.arrival_ns != NEVER) {
        s->gen->time_ns = flw_max(s->gen->time_ns, s->waiting.arrival_ns);
    }
    while (s->waiting.arrival_ns <= s->gen->time_ns && s->request_count < s->n['s'] &&
           s->reserved_tokens + all_tokens(&s->waiting) <= s->n['U']) {
        s->reserved_tokens += all_tokens(&s->waiting);
        s->requests[s->request_count++] = s->waiting;
        await_next(s);
    }
}

/* Run a plan for a range of a request's pages if the cache grows; n is a page's number. */
static void run_pages(struct server *s, const struct request *r, uint64_t from, uint64_t to,
                      const char *plan)
{
    for (uint64_t i = from; i < to && s->n['p']; i++) {
        s->n['n'] = r->number * PAGES_MAX + i;
        flw_plan_run(s->gen, plan);
    }
}

static void grow_cache(struct server *s, struct request *r)
{
    uint64_t count = flw_div_up(r->context - r->known, 64);
    run_pages(s, r, r->pages, count, "page.n+64Q");
    r->pages = flw_max(r->pages, count);
}

static void retire_finished(struct server *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->request_count; i++) {
        struct request *r = &s->requests[i];
        if (r->prompt_left == 0 && r->output_left == 0) {
            run_pages(s, r, 0, r->pages, "-page.n");
            s->reserved_tokens -= all_tokens(r);
        } else {
            s->requests[kept++] = *r;
        }
    }
    s->request_count = kept;
}

/* Set the numbers of the next step. */
static void schedule(struct server *s)
{
    uint64_t *n = s->n, longest = 0;
    n['B'] = n['C'] = 0;
    for (size_t i = 0; i < s->request_count; i++) {
        struct request *r = &s->requests[i];
        if (r->prompt_left == 0 && n['B'] < n['u']) {
            n['B']++;
            r->context++;
            r->output_left--;
            longest = flw_max(longest, r->context);
            grow_cache(s, r);
        }
    }
    n['T'] = n['b'] = n['B'];
    for (size_t i = 0; i < s->request_count; i++) {
        struct request *r = &s->requests[i];
        uint64_t chunk = flw_min(r->prompt_left, n['u'] - n['T']);
        if (chunk == 0) {
            continue;
        }
        r->prompt_left -= chunk;
        r->context += chunk;
        n['T'] += chunk;
        n['C'] += r->context;
        if (r->prompt_left == 0) { /* this step makes the first token */
            n['b']++;
            r->output_left--;
            r->context++;
        }
        grow_cache(s, r);
    }
    n['S'] = flw_clamp(flw_div_up(longest, SPLIT_TOKENS), 1, SPLITS_MAX);
}

/* ---- a step ---- */

static uint64_t root(uint64_t x)
{
    uint64_t y = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit > 0; bit /= 2) {
        y += (y + bit) * (y + bit) <= x ? bit : 0;
    }
    return y;
}

/* Set a, how many choices of all ranks in layer m are for this rank's experts: the mean plus the deviation times a
 * normal number, which is a sum of twelve drawn ones. */
static void draw_choices(struct flw_gen *gen)
{
    uint64_t *n = gen->numbers[0];
    uint64_t count = n['T'] * n['k'] * n['W'], share = gen->numbers[n['m']]['F'];
    uint64_t mean = count * share / 1000000;
    uint64_t deviation = root(mean * (1000000 - share) / 1000000);
    flw_plan_run(gen, "t:0 i*12{t:t+[0,65535]}");
    uint64_t high = mean + deviation * n['t'] / 65536;
    n['a'] = flw_min(high - flw_min(high, deviation * 6), count);
}

/* Run a step. Returns false if no request is left. */
static bool run_step(struct server *s)
{
    admit_arrivals(s);
    schedule(s);
    if (s->n['T'] == 0) {
        return false;
    }
    bool is_decode = s->n['T'] == s->n['B'];
    flw_plan_run(s->gen, !is_decode                    ? "<prefill .eager >prefill"
                         : s->n['B'] <= s->capture_max ? "<decode .graph >decode"
                                                       : "<decode .eager >decode");
    retire_finished(s);
    return !s->gen->has_failed;
}

/* ---- the start ---- */

/* Set the numbers of the model, then those of this rank's share. */
static void set_model(struct server *s)
{
    static const char letters[] =
        "lhHKdIVEkXOzqcry"; /* of the fields of fallow_model, in their order */
    for (size_t i = 0; letters[i] != '\0'; i++) {
        s->n[(unsigned)letters[i]] = (&s->model->layers)[i];
    }
    flw_plan_run(s->gen, "z:zX/D ?!(W-1){X:X/D} Y:E/W|(E&1) H:H/D K:K/D|1 I:I/D w:8L|(256s)&131072 "
                         "?c{Q:2l(c+r)} ?!c{Q:4lKd} U:Z/Q/16*16");
}

static bool set_up(struct server *s)
{
    const fallow_model *m = s->model;
    uint64_t tp = s->n['D'], ep = s->n['W'];
    if (m->heads % tp != 0) {
        return flw_gen_fail(
            s->gen, "--tp %" PRIu64 " does not divide the model's %" PRIu64 " heads", tp, m->heads);
    }
    if (ep > 1 && (m->experts == 0 || m->experts % ep != 0)) {
        return flw_gen_fail(s->gen,
                            "--ep %" PRIu64 " does not divide the model's %" PRIu64 " experts", ep,
                            m->experts);
    }
    set_model(s);
    if (s->n['U'] == 0) {
        return flw_gen_fail(
            s->gen, "--kv-bytes holds fewer than 16 tokens of %" PRIu64 " bytes each", s->n['Q']);
    }
    s->requests = calloc((size_t)s->n['s'], sizeof(*s->requests));
    return s->requests != NULL || flw_gen_fail(s->gen, "no memory for the requests");
}

static void serve(struct server *s)
{
    flw_gen_add_streams(s->gen, 2);
    flw_plan_run(s->gen, "?(W-1){.shares} .load");
    if (s->n['G'] == 1) {
        s->capture_max = s->n['T'] = flw_min(flw_align_up(s->n['s'], CAPTURE_STEP), CAPTURE_MAX);
        flw_plan_call(s->gen, "capture");
    }
    s->start_ns = s->waiting.arrival_ns = s->gen->time_ns;
    await_next(s);
    uint64_t steps = s->n['N'];
    while (steps > 0 && run_step(s)) {
        steps--;
    }
}

static void run(struct flw_gen *gen)
{
    struct server s = {
        .gen = gen, .n = gen->numbers[0], .model = fallow_model_preset(gen->numbers[0]['O'])};
    if (set_up(&s) && flw_requests_read(gen, &s.file)) {
        serve(&s);
    }
    flw_requests_finish(&s.file);
    free(s.requests);
}

/* clang-format off */
const struct flw_gen_kind flw_gen_serve_kind = {
    "serve",
    "a language model being served: continuous batching, chunked prompts, experts, graphs",
    "qwen3-30b-a3b --ep 8 --expert-skew 80 --traffic code -o serve.ftext",
    1, options, sizeof options / sizeof *options, model_help, plans, run};
