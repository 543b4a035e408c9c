/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: workloads of several streams that pass memory to each other: a repeated step with newly drawn sizes.
 * Does not: model the layers of a real network (serve.c, train.c); these shapes exercise streams.
 *
 * Time is the host's, which launches a kernel each 2/5 to 8/5 of --pace and runs ahead of the device. The pace is 20
 * us, as in Python; for shard and experts 300 us, because there the host waits for a full queue and continues at the
 * pace of long kernels. A kernel that writes or reads n bytes takes 2,000 + n / r ns after the previous work of its
 * stream and after the writer of its input; r is 2,048 bytes per ns for computing, 400 between devices, 64 from and to
 * the host, 16 for decoding images. At the end of a step the host waits for the previous step.
 *
 * B is --bytes; the peak of live bytes is a quarter of B to B, less for images on few streams. "Drawn" is evenly, "by
 * octaves" so that all powers of two are equally likely. "For s" is a block that stream s reads: announced there before
 * the block's own stream frees it.
 *
 *   serving   0 prefill, 1 decode, 2 copies, 3 sampling; e = B / 2^19, a token's hidden values
 *     prefill   if fewer than 24 requests run, of T = 64 to 2,048 tokens by octaves: ids 8 T on 2, for 0;
 *               cache 16 T e for 1; hidden T e; two layers of 3/2 T e, T e, 7 T e, T e; logits 32 e for 3. The
 *               request runs 8 to 32 steps
 *     decode    twice, of b requests drawn: hidden b e, partial sums 16 b e, a layer as above; logits 32 b e
 *               for 3; there 64 b e twice and ids 8 b for 2. Logits and ids are freed one step later
 *     cache     a request drawn gets 1,024 e more on 1, up to six times; the prompt's cache of another one is
 *               copied to the host (for 2), or back on 2, for 1
 *   offload   0 computes, all others copy; e = B / 2^19, T = 256 to 4,096 tokens by octaves. 12 layers: weights
 *             of B/20 to 3B/20 drawn (of a mixture, the experts that a batch needs) on the copying streams
 *             in turn, for 0, 1 to 5 layers ahead; 4 T e, T e. Weights are freed after their layer
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
 *             batch. 3 layers, which receive T/2 to 2T = R tokens drawn from all ranks: hidden T e; sent T e
 *             for 2; received R e on 2, for the batch; inner 2 R e; out R e for 2; combined T e on 2, for the
 *             batch. While one batch computes, the other's tokens are sent
 */
#include <inttypes.h>

#include "base/bits.h"
#include "trace/gen/plan.h"

#define STREAMS_MAX 64
#define KERNEL_NS   2000
#define US          UINT64_C(1000)
#define RATES       4 /* of the streams 0, 1, 2, and of all further streams */
#define MEMORY      FLW_GEN_BYTES_PER_NS
#define PEERS       400
#define HOST        64
#define DECODER     16

struct workload {
    uint64_t streams, streams_low, streams_high;
    uint64_t pace_ns;
    uint64_t rates[RATES];    /* bytes a ns */
    const char *begin, *step; /* plans; running `begin` after the last step finishes the rest */
};

/* The numbers of all plans: B --bytes, S streams, s the step's number, e as above. */
/* clang-format off */

/* T is drawn by octaves from `low`. */
#define OCTAVES(low, octaves) "b:" low "*2^[0," octaves "-1] T:[b,2b] "

/* Requests i: c.i blocks page.(8i) and on, until step d.i; a.i bytes of the first one are at the host. */
#define LAYER(stream) \
    "qkv@" stream "=3Te/2 out@" stream "=Te -qkv inner@" stream "=7Te -out -hidden hidden@" stream "=Te -inner "
#define SERVING_DUE \
    "-first -logits.0 -ids.0 -logits.1 -ids.1 " \
    "i*24{?!((d.i|s)-s){k*8{-page.(8i+k)} c.i:0 a.i:0}}"
#define SERVING_STEP \
    "e:B/2^19 n:0 z:24 i*24{?c.i{r.n:i n:n+1} ?!c.i{z:i}} " \
    "?(24-z){i:z r.n:i n:n+1 " OCTAVES("64", "5") "d.i:s+[8,32] c.i:1 prompt@2=8T prompt>0 " \
        "page.(8i)=16Te hidden=Te " LAYER("0") LAYER("0") "first=32e first>3 page.(8i)>1 -prompt -hidden} " \
    "j*2{T:[1,n] hidden@1=Te partial@1=16Te " LAYER("1") "-partial logits.j@1=32Te logits.j>3 " \
        "wide@3=64Te sorted@3=64Te ids.j@3=8T ids.j>2 -wide -sorted -hidden} " \
    "i:r.[0,n-1] ?(7-c.i){page.(8i+c.i)@1=1024e c.i:c.i+1} " \
    "i:r.[0,n-1] b:a.i a.i:!b$page.(8i) ?b{page.(8i)@2=b page.(8i)>1} ?!b{page.(8i)>2 -page.(8i)}"

/* g counts all fetched layers, f those of this step. */
#define OFFLOAD_STEP \
    "e:B/2^19 " OCTAVES("256", "4") "hidden=Te f:0 " \
    "i*12{m:(i+1+[1,5])&12 " \
        "k*((m|f)-f){weights.f@(1+g%(S-1))=B/20[1024,3072]/1024 f:f+1 g:g+1} " \
        "weights.i>0 inner=4Te out=Te -inner -hidden -weights.i hidden<out} -hidden"

/* Units i of u.i bytes. */
#define SHARD_STEP \
    "x:[1024,4096]*(B/2^17) ?!s{i*6{u.i:B/96[3072,8192]/1024}} all.0@1=u.0 " \
    "i*6{?(5-i){all.(i+1)@1=u.(i+1)} all.i>0 scratch=x[1024,3072]/1024 kept.i=x -scratch -all.i} all.5@1=u.5 up=x " \
    "j*6{i:5-j ?i{all.(i-1)@1=u.(i-1)} all.i>0 gradients=u.i down=x -up -kept.i -all.i up<down " \
        "gradients>2 reduced.i@2=u.i/8 -gradients} -up " \
    "i*6{reduced.i>0 -reduced.i}"

/* Places i of requests, taken in turn by g, each until step d.i. */
#define IMAGES_DUE "-done i*63{?!((d.i|s)-s){-page.i -resized.i}}"
#define IMAGES_STEP \
    "x:0 c:0 j*6{i:g%(S-1) g:g+1 -page.i -resized.i d.i:s+[1,16] " \
        OCTAVES("1024", "10") "p:T(B/2^26) " OCTAVES("64", "10") "input@(1+i)=T(B/2^26) page.i@(1+i)=p -input " \
        "scratch@(1+i)=p/2 resized.i@(1+i)=p/4[1024,4096]/1024 -scratch " \
        "?[0,2]{resized.i>0 x:x+$resized.i c:c+1}} " \
    "?c{batch=x half=x/2 quarter=x/4 done=c(B/2^20) -batch -half -quarter}"

/* Batch b of T.b tokens; this rank receives R.b. */
#define ATTEND   "next@b=T.be -hidden.b hidden.b<next sent.b@b=T.be "
#define DISPATCH "R.b:[T.b/2,2T.b] sent.b>2 received.b@2=R.be -sent.b "
#define EXPERTS  "received.b>b inner@b=2R.be out.b@b=R.be -inner -received.b "
#define COMBINE  "out.b>2 combined@2=T.be combined>b -out.b -combined "
#define EXPERTS_STEP \
    "e:B/2^16 T.0:[1024,4096] T.1:[1024,4096] b:0 " ATTEND \
    "i*3{b:0 " DISPATCH "b:1 " ATTEND "b:0 " EXPERTS "b:1 " DISPATCH "b:0 " COMBINE "?(2-i){" ATTEND "} " \
        "b:1 " EXPERTS COMBINE "} -hidden.0 -hidden.1"

static const char *const names[] = {"serving", "offload", "shard", "images", "experts", NULL};

static const char *const name_help[] = {
    "prompts, decoding, copies and sampling on a stream each, cache swapped out and in",
    "weights loaded layer by layer on several streams, activations on one",
    "sharded training: parameters gathered, gradients reduced, each beside the computing stream",
    "a service for images: a stream for each request, sizes of ten octaves, batches on one",
    "two batches through a mixture of experts, one computing while the other's tokens travel",
};

static const struct workload workloads[] = {
    {4, 4, 4, 20 * US, {MEMORY, MEMORY, HOST, MEMORY}, SERVING_DUE, SERVING_STEP},
    {10, 3, STREAMS_MAX, 20 * US, {MEMORY, HOST, HOST, HOST}, "", OFFLOAD_STEP},
    {3, 3, 3, 300 * US, {MEMORY, PEERS, PEERS, PEERS}, "", SHARD_STEP},
    {64, 3, STREAMS_MAX, 20 * US, {MEMORY, DECODER, DECODER, DECODER}, IMAGES_DUE, IMAGES_STEP},
    {3, 3, 3, 300 * US, {MEMORY, MEMORY, PEERS, PEERS}, "", EXPERTS_STEP},
};

static const struct flw_gen_option options[] = {
    {"workload", "which one", FLW_GEN_CHOICE, 0, 0, 4, names, 'W'},
    {"steps", "number of repetitions", FLW_GEN_COUNT, 400, 1, 1000000, NULL, 'N'},
    {"streams", "3 to 64, of offload and images; 0: 10 and 64", FLW_GEN_COUNT, 0, 0, STREAMS_MAX, NULL, 'S'},
    {"bytes", "the scale of sizes: the peak is a quarter of it to all of it", FLW_GEN_BYTES, 4 * FLW_GIB, 64 * FLW_MIB, 4096 * FLW_GIB, NULL, 'B'},
    {"pace", "ns from launch to launch; 0: 300000 of shard and experts, else 20000", FLW_GEN_COUNT, 0, 0, 1000000000, NULL, 'P'},
    {"seed", "of the drawn numbers", FLW_GEN_COUNT, 1, 0, UINT64_MAX, NULL, 'Z'},
};
/* clang-format on */

struct clock {
    const struct workload *workload;
    uint64_t pace_ns;              /* the host's time for a launch, on average */
    uint64_t done_ns[STREAMS_MAX]; /* end of the work launched on a stream */
    uint64_t step_done_ns;         /* end of the previous step */
};

static void launch(struct flw_gen *gen, uint64_t stream, uint64_t size_bytes, uint64_t writer)
{
    struct clock *clock = gen->owner;
    uint64_t rate = clock->workload->rates[flw_min(stream, RATES - 1)];
    uint64_t begin_ns = flw_max(clock->done_ns[stream], clock->done_ns[writer]);
    gen->time_ns += flw_gen_between(gen, clock->pace_ns * 2 / 5, clock->pace_ns * 8 / 5);
    clock->done_ns[stream] = flw_max(begin_ns, gen->time_ns) + KERNEL_NS + size_bytes / rate;
}

/* Let the host wait for the previous step. */
static void end_step(struct flw_gen *gen, struct clock *clock)
{
    gen->time_ns = flw_max(gen->time_ns, clock->step_done_ns);
    for (uint64_t i = 0; i < STREAMS_MAX; i++) {
        clock->step_done_ns = flw_max(clock->step_done_ns, clock->done_ns[i]);
    }
}

static bool has_streams(struct flw_gen *gen, const struct workload *w, uint64_t streams)
{
    if (streams >= w->streams_low && streams <= w->streams_high) {
        return true;
    }
    const char *name = names[w - workloads];
    return w->streams_low == w->streams_high
               ? flw_gen_fail(gen, "--streams %" PRIu64 ": %s has %" PRIu64 "; leave it out",
                              streams, name, w->streams)
               : flw_gen_fail(gen, "--streams %" PRIu64 ": %s needs %" PRIu64 " to %" PRIu64,
                              streams, name, w->streams_low, w->streams_high);
}

static void run(struct flw_gen *gen)
{
    uint64_t *n = gen->numbers[0];
    const struct workload *w = &workloads[n['W']];
    uint64_t streams = n['S'], pace_ns = n['P'];
    struct clock clock = {.workload = w, .pace_ns = pace_ns == 0 ? w->pace_ns : pace_ns};
    streams = streams == 0 ? w->streams : streams;
    if (!has_streams(gen, w, streams)) {
        return;
    }
    gen->launch = launch;
    gen->owner = &clock;
    n['S'] = streams;
    flw_gen_add_streams(gen, streams);
    for (uint64_t i = 0; i < n['N'] && !gen->has_failed; i++) {
        n['s'] = i;
        flw_plan_run(gen, "<step");
        flw_plan_run(gen, w->begin);
        flw_plan_run(gen, w->step);
        end_step(gen, &clock);
        flw_plan_run(gen, ">step");
    }
    n['s'] = UINT64_MAX;
    flw_plan_run(gen, w->begin);
    gen->owner = NULL;
}

/* clang-format off */
const struct flw_gen_kind flw_gen_streams_kind = {
    "streams",
    "workloads of several streams that pass memory to each other, in "
"repeated steps",
    "offload --streams 6 --steps 100 -o offload.ftext",
    1, options, sizeof options / sizeof *options, name_help, NULL, run};
