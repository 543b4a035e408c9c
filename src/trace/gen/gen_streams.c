/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: workloads of several streams that hand memory to each other: the same step again and again, with
 * sizes that are drawn anew.
 * Does not: know a model's layers (gen_serve.c, gen_train.c); these are shapes, for the streams' sake.
 *
 * Time is the host's, which launches a kernel each 2/5 to 8/5 of --pace and runs ahead of the device. The pace
 * is 20 us, as a host in Python has it; of shard and experts 300 us, since there the host comes to a full queue
 * and goes on at the pace of long kernels. A kernel that writes or reads n bytes takes 2,000 + n / r ns behind
 * what its stream did before and behind what it reads; r is 2,048 bytes a ns for computing, 400 between devices,
 * 64 from and to the host, 16 for decoding images. At the end of a step the host waits for the step before.
 *
 * B is --bytes; a quarter to all of it is live at the highest, of images on few streams less. "Drawn" is
 * evenly, "by octaves" so that each power of two is as likely as another. "For s" is a block that stream s
 * reads: announced there before the block's own stream frees it.
 *
 *   serving   0 prefill, 1 decode, 2 copies, 3 sampling; e = B / 2^19, a token's hidden values
 *     prefill   where fewer than 24 requests run, of T = 64 to 2,048 tokens by octaves: ids 8 T on 2, for 0;
 *               cache 16 T e for 1; hidden T e; two layers of 3/2 T e, T e, 7 T e, T e; logits 32 e for 3. The
 *               request runs 8 to 32 steps
 *     decode    twice, of b requests drawn: hidden b e, partial sums 16 b e, a layer as above; logits 32 b e
 *               for 3; there 64 b e twice and ids 8 b for 2. Logits and ids are freed one step later
 *     cache     a request drawn gets 1,024 e more on 1, up to six times; the prompt's of another one goes to
 *               the host (for 2), or comes back on 2, for 1
 *   offload   0 computes, all others copy; e = B / 2^19, T = 256 to 4,096 tokens by octaves. 12 layers: weights
 *             of B/20 to 3B/20 drawn (of a mixture, the experts that a batch asks for) on the copying streams
 *             in turn, for 0, 1 to 5 layers ahead; 4 T e, T e. Weights are freed behind their layer
 *   shard     0 computes, 1 gathers, 2 reduces; e = B / 2^17, T = 1,024 to 4,096 tokens drawn; 6 units of B/32
 *             to B/12, drawn once
 *     forward   a unit's parameters on 1, for 0, one unit ahead; scratch T e to 3 T e drawn; T e, kept
 *     backward  from the last unit on: parameters as before; gradients as large on 0, for 2, and an eighth of
 *               them on 2, for 0, where the update reads it at the end; the tokens' gradients T e
 *   images    0 batches, all others have a request each, 6 new ones a step, each for 1 to 16 steps: input
 *             B / 2^20 to B / 2^10 by octaves; page P = B / 2^16 to B / 2^6 by octaves, kept; scratch P/2; resized
 *             P/4 to P drawn, kept, two in three for 0. There: their sum, a half and a quarter of it,
 *             B / 2^20 for each, freed one step later
 *   experts   0 and 1 compute a batch each, 2 communicates; e = B / 2^16, T = 1,024 to 4,096 tokens drawn a
 *             batch. 3 layers, to which T/2 to 2T = R tokens drawn come from all ranks: hidden T e; sent T e
 *             for 2; received R e on 2, for the batch; inner 2 R e; out R e for 2; combined T e on 2, for the
 *             batch. While one batch computes the other's tokens are under way
 */
#include <inttypes.h>

#include "base/bits.h"
#include "trace/gen/gen.h"

#define STREAMS_MAX 64
#define KERNEL_NS   2000
#define US          UINT64_C(1000)
#define PARTS       1024 /* of what is drawn by parts */
#define RATES       4    /* of the streams 0, 1, 2; the last one of all further streams */
#define MEMORY      FLW_GEN_BYTES_PER_NS
#define PEERS       400
#define HOST        64
#define DECODER     16

#define REQUESTS_MAX   63 /* at once */
#define REQUEST_BLOCKS 8
#define LATE_MAX       16 /* blocks of a step that the next one frees */

#define SERVING_REQUESTS 24
#define CACHE_E_OF_TOKEN 16
#define PAGE_TOKENS      64
#define LOGITS_E         32
#define OFFLOAD_LAYERS   12
#define OFFLOAD_AHEAD    5
#define SHARD_UNITS      6
#define SHARD_RANKS      8
#define IMAGES_A_STEP    6
#define EXPERT_LAYERS    3
#define BATCHES          2

#define SERVING_PREFILL 0
#define SERVING_DECODE  1
#define SERVING_COPY    2
#define SERVING_SAMPLE  3
#define OFFLOAD_COMPUTE 0
#define OFFLOAD_COPY    1 /* and all further ones */
#define SHARD_COMPUTE   0
#define SHARD_GATHER    1
#define SHARD_REDUCE    2
#define IMAGES_BATCH    0
#define IMAGES_REQUEST  1 /* and all further ones */
#define EXPERTS_COMM    2 /* batch 0 computes on stream 0, batch 1 on stream 1 */

/* What a service holds for one request. */
struct request {
    uint32_t blocks[REQUEST_BLOCKS];
    size_t block_count; /* 0: none runs here */
    uint64_t end_step;
    uint64_t away_bytes; /* of blocks[0], while it is at the host */
};

struct workload {
    struct flw_gen *gen;
    const struct shape *shape;
    uint64_t bytes, stream_count, step;
    uint64_t pace_ns;              /* the host's time for a launch, on average */
    uint64_t done_ns[STREAMS_MAX]; /* when what was launched on a stream ends */
    uint64_t step_done_ns;         /* when all of the step before ends */
    struct request requests[REQUESTS_MAX];
    size_t turn; /* of the streams that take turns */
    uint32_t late[LATE_MAX];
    size_t late_count;
    uint64_t unit_bytes[SHARD_UNITS];
};

struct shape {
    uint64_t streams, streams_low, streams_high;
    uint64_t pace_ns;
    uint64_t rates[RATES]; /* bytes a ns */
    void (*run_step)(struct workload *w);
};

/* ---- drawing ---- */

/* From `low` to low x 2^octaves. */
static uint64_t draw_octaves(struct workload *w, uint64_t low, uint64_t octaves)
{
    uint64_t base = low << flw_gen_between(w->gen, 0, octaves - 1);
    return flw_gen_between(w->gen, base, 2 * base);
}

/* From `low` to `high` times size_bytes; what is drawn does not depend on size_bytes. */
static uint64_t draw_part(struct workload *w, uint64_t size_bytes, uint64_t low, uint64_t high)
{
    return size_bytes * flw_gen_between(w->gen, low * PARTS, high * PARTS) / PARTS;
}

/* ---- kernels ---- */

static void launch(struct workload *w, uint64_t stream, uint64_t size_bytes)
{
    flw_gen_pass(w->gen, flw_gen_between(w->gen, w->pace_ns * 2 / 5, w->pace_ns * 8 / 5));
    uint64_t kernel_ns = KERNEL_NS + size_bytes / w->shape->rates[flw_min(stream, RATES - 1)];
    w->done_ns[stream] = flw_max(w->done_ns[stream], w->gen->time_ns) + kernel_ns;
}

/* A block, and a kernel that writes it. */
static uint32_t take(struct workload *w, uint64_t size_bytes, uint64_t stream)
{
    uint32_t block = flw_gen_take_quick(w->gen, size_bytes, stream);
    launch(w, stream, size_bytes);
    return block;
}

static const struct flw_trace_block *find(const struct workload *w, uint32_t block)
{
    return &w->gen->build.trace->blocks[block];
}

/* A kernel of another stream reads the block, behind the work that wrote it. */
static void hand(struct workload *w, uint32_t block, uint64_t stream)
{
    if (block == FLW_GEN_NO_BLOCK) {
        return; /* the generator has failed */
    }
    flw_gen_use(w->gen, block, stream);
    w->done_ns[stream] = flw_max(w->done_ns[stream], w->done_ns[find(w, block)->stream]);
    launch(w, stream, find(w, block)->size_bytes);
}

#define give(w, ...) FLW_GEN_GIVE((w)->gen, __VA_ARGS__)

/* The step that follows frees it. */
static void give_late(struct workload *w, uint32_t block)
{
    w->late[w->late_count++] = block;
}

static void end_step(struct workload *w)
{
    uint64_t done_ns = 0;
    w->gen->time_ns = flw_max(w->gen->time_ns, w->step_done_ns);
    for (uint64_t i = 0; i < w->stream_count; i++) {
        done_ns = flw_max(done_ns, w->done_ns[i]);
    }
    w->step_done_ns = done_ns;
}

/* ---- requests ---- */

static void end_request(struct workload *w, struct request *request)
{
    flw_gen_give_each(w->gen, request->blocks, request->block_count);
    *request = (struct request){0};
}

static void end_due_requests(struct workload *w)
{
    for (size_t i = 0; i < REQUESTS_MAX; i++) {
        if (w->requests[i].end_step <= w->step) {
            end_request(w, &w->requests[i]);
        }
    }
}

static void keep(struct request *request, uint32_t block)
{
    request->blocks[request->block_count++] = block;
}

/* ---- serving ---- */

static uint64_t token_bytes(const struct workload *w)
{
    return w->bytes >> 19;
}

static void sample(struct workload *w, uint64_t rows)
{
    uint64_t e = token_bytes(w);
    uint32_t logits = take(w, rows * LOGITS_E * e, SERVING_DECODE);
    hand(w, logits, SERVING_SAMPLE);
    uint32_t wide = take(w, 2 * rows * LOGITS_E * e, SERVING_SAMPLE);
    uint32_t sorted = take(w, 2 * rows * LOGITS_E * e, SERVING_SAMPLE);
    uint32_t ids = take(w, rows * 8, SERVING_SAMPLE);
    hand(w, ids, SERVING_COPY);
    give(w, wide, sorted);
    give_late(w, logits);
    give_late(w, ids);
}

/* Attention and the inner layer of `tokens` on `stream`, without what is between them. */
static void run_layer(struct workload *w, uint64_t tokens, uint64_t stream, uint32_t *hidden)
{
    uint64_t hidden_bytes = tokens * token_bytes(w);
    uint32_t qkv = take(w, hidden_bytes * 3 / 2, stream);
    uint32_t out = take(w, hidden_bytes, stream);
    flw_gen_give(w->gen, qkv);
    uint32_t inner = take(w, hidden_bytes * 7, stream);
    give(w, out, *hidden);
    *hidden = take(w, hidden_bytes, stream);
    flw_gen_give(w->gen, inner);
}

static void prefill(struct workload *w, struct request *request)
{
    uint64_t tokens = draw_octaves(w, 64, 5);
    uint64_t e = token_bytes(w);
    request->end_step = w->step + flw_gen_between(w->gen, 8, 32);
    uint32_t ids = take(w, tokens * 8, SERVING_COPY);
    hand(w, ids, SERVING_PREFILL);
    keep(request, take(w, tokens * CACHE_E_OF_TOKEN * e, SERVING_PREFILL));
    uint32_t hidden = take(w, tokens * e, SERVING_PREFILL);
    for (int layer = 0; layer < 2; layer++) {
        run_layer(w, tokens, SERVING_PREFILL, &hidden);
    }
    uint32_t logits = take(w, LOGITS_E * e, SERVING_PREFILL);
    hand(w, logits, SERVING_SAMPLE);
    hand(w, request->blocks[0], SERVING_DECODE);
    give(w, ids, hidden);
    give_late(w, logits);
}

static void decode(struct workload *w, uint64_t requests)
{
    uint64_t e = token_bytes(w);
    uint32_t hidden = take(w, requests * e, SERVING_DECODE);
    uint32_t partial = take(w, requests * 16 * e, SERVING_DECODE);
    run_layer(w, requests, SERVING_DECODE, &hidden);
    flw_gen_give(w->gen, partial);
    sample(w, requests);
    flw_gen_give(w->gen, hidden);
}

static void move_cache(struct workload *w, struct request *request)
{
    uint32_t *cache = &request->blocks[0];
    if (request->away_bytes > 0) {
        *cache = take(w, request->away_bytes, SERVING_COPY);
        hand(w, *cache, SERVING_DECODE);
        request->away_bytes = 0;
    } else if (*cache != FLW_GEN_NO_BLOCK) {
        request->away_bytes = find(w, *cache)->size_bytes;
        /* What was read in on the stream of copies is used there in order. */
        if (find(w, *cache)->stream == SERVING_COPY) {
            launch(w, SERVING_COPY, request->away_bytes);
        } else {
            hand(w, *cache, SERVING_COPY);
        }
        flw_gen_drop(w->gen, cache);
    }
}

static void step_serving(struct workload *w)
{
    size_t running[SERVING_REQUESTS];
    size_t count = 0;
    size_t idle = SERVING_REQUESTS;
    for (size_t i = 0; i < SERVING_REQUESTS; i++) {
        if (w->requests[i].block_count > 0) {
            running[count++] = i;
        } else {
            idle = i;
        }
    }
    if (idle < SERVING_REQUESTS) {
        running[count++] = idle;
        prefill(w, &w->requests[idle]);
    }
    for (int i = 0; i < 2; i++) {
        decode(w, flw_gen_between(w->gen, 1, count));
    }
    struct request *grows = &w->requests[running[flw_gen_between(w->gen, 0, count - 1)]];
    if (grows->block_count < REQUEST_BLOCKS - 1) {
        keep(grows, take(w, PAGE_TOKENS * CACHE_E_OF_TOKEN * token_bytes(w), SERVING_DECODE));
    }
    move_cache(w, &w->requests[running[flw_gen_between(w->gen, 0, count - 1)]]);
}

/* ---- offload ---- */

static uint32_t fetch_layer(struct workload *w)
{
    uint64_t stream = OFFLOAD_COPY + w->turn++ % (w->stream_count - OFFLOAD_COPY);
    return take(w, draw_part(w, w->bytes / 20, 1, 3), stream);
}

static void step_offload(struct workload *w)
{
    uint32_t weights[OFFLOAD_LAYERS] = {0};
    size_t fetched = 0;
    uint64_t hidden_bytes = draw_octaves(w, 256, 4) * token_bytes(w);
    uint32_t hidden = take(w, hidden_bytes, OFFLOAD_COMPUTE);
    for (size_t i = 0; i < OFFLOAD_LAYERS; i++) {
        size_t ahead = (size_t)flw_gen_between(w->gen, 1, OFFLOAD_AHEAD);
        while (fetched < flw_min(i + 1 + ahead, OFFLOAD_LAYERS)) {
            weights[fetched++] = fetch_layer(w);
        }
        hand(w, weights[i], OFFLOAD_COMPUTE);
        uint32_t inner = take(w, 4 * hidden_bytes, OFFLOAD_COMPUTE);
        uint32_t out = take(w, hidden_bytes, OFFLOAD_COMPUTE);
        give(w, inner, hidden, weights[i]);
        hidden = out;
    }
    flw_gen_give(w->gen, hidden);
}

/* ---- shard ---- */

static uint32_t gather(struct workload *w, size_t unit)
{
    return take(w, w->unit_bytes[unit], SHARD_GATHER);
}

static void draw_units(struct workload *w)
{
    for (size_t i = 0; i < SHARD_UNITS; i++) {
        w->unit_bytes[i] = draw_part(w, w->bytes / 96, 3, 8);
    }
}

static void shard_forward(struct workload *w, uint64_t hidden_bytes, uint32_t *kept)
{
    uint32_t next = gather(w, 0);
    for (size_t i = 0; i < SHARD_UNITS; i++) {
        uint32_t parameters = next;
        next = i + 1 < SHARD_UNITS ? gather(w, i + 1) : FLW_GEN_NO_BLOCK;
        hand(w, parameters, SHARD_COMPUTE);
        uint32_t scratch = take(w, draw_part(w, hidden_bytes, 1, 3), SHARD_COMPUTE);
        kept[i] = take(w, hidden_bytes, SHARD_COMPUTE);
        give(w, scratch, parameters);
    }
}

static void shard_backward(struct workload *w, uint64_t hidden_bytes, const uint32_t *kept,
                           uint32_t *reduced)
{
    uint32_t next = gather(w, SHARD_UNITS - 1);
    uint32_t upstream = take(w, hidden_bytes, SHARD_COMPUTE);
    for (size_t i = SHARD_UNITS; i-- > 0;) {
        uint32_t parameters = next;
        next = i > 0 ? gather(w, i - 1) : FLW_GEN_NO_BLOCK;
        hand(w, parameters, SHARD_COMPUTE);
        uint32_t gradients = take(w, w->unit_bytes[i], SHARD_COMPUTE);
        uint32_t downstream = take(w, hidden_bytes, SHARD_COMPUTE);
        give(w, upstream, kept[i], parameters);
        upstream = downstream;
        hand(w, gradients, SHARD_REDUCE);
        reduced[i] = take(w, w->unit_bytes[i] / SHARD_RANKS, SHARD_REDUCE);
        flw_gen_give(w->gen, gradients);
    }
    flw_gen_give(w->gen, upstream);
}

static void step_shard(struct workload *w)
{
    uint32_t kept[SHARD_UNITS];
    uint32_t reduced[SHARD_UNITS];
    uint64_t hidden_bytes = flw_gen_between(w->gen, 1024, 4096) * (w->bytes >> 17);
    if (w->step == 0) {
        draw_units(w);
    }
    shard_forward(w, hidden_bytes, kept);
    shard_backward(w, hidden_bytes, kept, reduced);
    for (size_t i = 0; i < SHARD_UNITS; i++) {
        hand(w, reduced[i], SHARD_COMPUTE);
        flw_gen_give(w->gen, reduced[i]);
    }
}

/* ---- images ---- */

static uint32_t run_image(struct workload *w)
{
    size_t place = w->turn++ % (w->stream_count - IMAGES_REQUEST);
    struct request *request = &w->requests[place];
    uint64_t stream = IMAGES_REQUEST + place;
    uint64_t grain_bytes = w->bytes >> 26;
    end_request(w, request);
    request->end_step = w->step + flw_gen_between(w->gen, 1, 16);
    uint64_t page_bytes = draw_octaves(w, 1024, 10) * grain_bytes;
    uint32_t input = take(w, draw_octaves(w, 64, 10) * grain_bytes, stream);
    keep(request, take(w, page_bytes, stream));
    flw_gen_give(w->gen, input);
    uint32_t scratch = take(w, page_bytes / 2, stream);
    uint32_t resized = take(w, draw_part(w, page_bytes / 4, 1, 4), stream);
    keep(request, resized);
    flw_gen_give(w->gen, scratch);
    return resized;
}

static void step_images(struct workload *w)
{
    uint64_t batch_bytes = 0;
    uint64_t count = 0;
    for (int i = 0; i < IMAGES_A_STEP; i++) {
        uint32_t resized = run_image(w);
        if (flw_gen_between(w->gen, 0, 2) > 0 && resized != FLW_GEN_NO_BLOCK) {
            hand(w, resized, IMAGES_BATCH);
            batch_bytes += find(w, resized)->size_bytes;
            count++;
        }
    }
    if (count > 0) {
        uint32_t batch = take(w, batch_bytes, IMAGES_BATCH);
        uint32_t half = take(w, batch_bytes / 2, IMAGES_BATCH);
        uint32_t quarter = take(w, batch_bytes / 4, IMAGES_BATCH);
        give_late(w, take(w, count * (w->bytes >> 20), IMAGES_BATCH));
        give(w, batch, half, quarter);
    }
}

/* ---- experts ---- */

/* One of the two batches within a layer. */
struct batch {
    uint64_t stream, tokens;
    uint64_t routed; /* tokens that come to this rank in this layer */
    uint32_t hidden, sent, received, out;
};

static void attend(struct workload *w, struct batch *b, uint64_t e)
{
    uint32_t hidden = take(w, b->tokens * e, b->stream);
    flw_gen_give(w->gen, b->hidden);
    b->hidden = hidden;
    b->sent = take(w, b->tokens * e, b->stream);
}

static void dispatch(struct workload *w, struct batch *b, uint64_t e)
{
    b->routed = flw_gen_between(w->gen, b->tokens / 2, 2 * b->tokens);
    hand(w, b->sent, EXPERTS_COMM);
    b->received = take(w, b->routed * e, EXPERTS_COMM);
    flw_gen_give(w->gen, b->sent);
}

static void run_experts(struct workload *w, struct batch *b, uint64_t e)
{
    hand(w, b->received, b->stream);
    uint32_t inner = take(w, 2 * b->routed * e, b->stream);
    b->out = take(w, b->routed * e, b->stream);
    give(w, inner, b->received);
}

static void combine(struct workload *w, struct batch *b, uint64_t e)
{
    hand(w, b->out, EXPERTS_COMM);
    uint32_t combined = take(w, b->tokens * e, EXPERTS_COMM);
    hand(w, combined, b->stream);
    give(w, b->out, combined);
}

static void step_experts(struct workload *w)
{
    struct batch batches[BATCHES];
    uint64_t e = w->bytes >> 16;
    for (uint64_t i = 0; i < BATCHES; i++) {
        batches[i] = (struct batch){
            .stream = i, .tokens = flw_gen_between(w->gen, 1024, 4096), .hidden = FLW_GEN_NO_BLOCK};
    }
    struct batch *first = &batches[0];
    struct batch *second = &batches[1];
    attend(w, first, e);
    for (int layer = 0; layer < EXPERT_LAYERS; layer++) {
        dispatch(w, first, e);
        attend(w, second, e);
        run_experts(w, first, e);
        dispatch(w, second, e);
        combine(w, first, e);
        if (layer + 1 < EXPERT_LAYERS) {
            attend(w, first, e);
        }
        run_experts(w, second, e);
        combine(w, second, e);
    }
    give(w, first->hidden, second->hidden);
}

/* ---- together ---- */

static const char *const names[] = {"serving", "offload", "shard", "images", "experts", NULL};

static const char *const name_help[] = {
    "prompts, decoding, copies and sampling on a stream each, cache that goes and comes back",
    "weights that come in layer by layer on several streams, activations on one",
    "sharded training: parameters gathered, gradients reduced, each beside the computing stream",
    "a service for images: a stream for each request, sizes of ten octaves, batches on one",
    "two batches through a mixture of experts, one computing while the other's tokens travel",
};

static const struct shape shapes[] = {
    {4, 4, 4, 20 * US, {MEMORY, MEMORY, HOST, MEMORY}, step_serving},
    {10, 3, STREAMS_MAX, 20 * US, {MEMORY, HOST, HOST, HOST}, step_offload},
    {3, 3, 3, 300 * US, {MEMORY, PEERS, PEERS, PEERS}, step_shard},
    {64, 3, STREAMS_MAX, 20 * US, {MEMORY, DECODER, DECODER, DECODER}, step_images},
    {3, 3, 3, 300 * US, {MEMORY, MEMORY, PEERS, PEERS}, step_experts},
};

/* clang-format off */
#define OPTIONS(X) \
    X(WORKLOAD, "workload", "which one", CHOICE, 0, 0, 4, names) \
    X(STEPS, "steps", "how often it comes again", COUNT, 400, 1, 1000000, NULL) \
    X(STREAMS, "streams", "3 to 64, of offload and images; 0: 10 and 64", COUNT, 0, 0, STREAMS_MAX, NULL) \
    X(BYTES, "bytes", "the scale of sizes: the peak is a quarter to all of it", BYTES, 4 * FLW_GIB, 64 * FLW_MIB, 4096 * FLW_GIB, NULL) \
    X(PACE, "pace", "ns from launch to launch; 0: 300000 of shard and experts, else 20000", COUNT, 0, 0, 1000000000, NULL) \
    X(SEED, "seed", "of the drawn numbers", COUNT, 1, 0, UINT64_MAX, NULL)
/* clang-format on */

enum {
    OPTIONS(FLW_GEN_OPTION_NUMBER) OPTION_COUNT
};

static const struct flw_gen_option options[] = {OPTIONS(FLW_GEN_OPTION_ROW)};

static bool set_up(struct workload *w)
{
    uint64_t kind = flw_gen_number(w->gen, OPTION_WORKLOAD);
    uint64_t streams = flw_gen_number(w->gen, OPTION_STREAMS);
    uint64_t pace_ns = flw_gen_number(w->gen, OPTION_PACE);
    w->shape = &shapes[kind];
    w->bytes = flw_gen_number(w->gen, OPTION_BYTES);
    w->pace_ns = pace_ns == 0 ? w->shape->pace_ns : pace_ns;
    w->stream_count = streams == 0 ? w->shape->streams : streams;
    if (w->stream_count >= w->shape->streams_low && w->stream_count <= w->shape->streams_high) {
        return true;
    }
    if (w->shape->streams_low == w->shape->streams_high) {
        return flw_gen_fail(w->gen, "--streams %" PRIu64 ": %s has %" PRIu64 "; leave it out",
                            streams, names[kind], w->shape->streams);
    }
    return flw_gen_fail(w->gen, "--streams %" PRIu64 ": %s needs %" PRIu64 " to %" PRIu64, streams,
                        names[kind], w->shape->streams_low, w->shape->streams_high);
}

static void begin_step(struct workload *w)
{
    flw_gen_give_each(w->gen, w->late, w->late_count);
    w->late_count = 0;
    end_due_requests(w);
}

static void run(struct flw_gen *gen)
{
    struct workload w = {.gen = gen};
    flw_gen_seed(gen, flw_gen_number(gen, OPTION_SEED));
    if (!set_up(&w)) {
        return;
    }
    flw_gen_add_streams(gen, w.stream_count);
    for (; w.step < flw_gen_number(gen, OPTION_STEPS) && !gen->has_failed; w.step++) {
        flw_gen_begin_phase(gen, "step");
        begin_step(&w);
        w.shape->run_step(&w);
        end_step(&w);
        flw_gen_end_phase(gen, "step");
    }
    w.step = UINT64_MAX; /* all requests are due */
    begin_step(&w);
}

const struct flw_gen_kind flw_gen_streams_kind = {
    .name = "streams",
    .summary = "workloads of several streams that hand memory to each other, in steady steps",
    .example = "offload --streams 6 --steps 100 -o offload.ftext",
    .formula =
        "# a use of a block on another stream is announced before its own stream frees it; sizes "
        "and times as in src/trace/gen_streams.c\n",
    .version = 1,
    .options = options,
    .option_count = OPTION_COUNT,
    .word_help = name_help,
    .run = run,
};
