/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: one rank of a training run: the tensors of a transformer's layers, forward and backward, as PyTorch's autograd
 * allocates and frees them, parameters and the optimizer's state, the order of microbatches.
 *
 * b sequences of s tokens, T = b s; h hidden, H heads, I inner, V vocabulary; RMS norms, rotary positions, gated inner
 * layer. Weights, norms and the residual are p = 4 bytes a value, matrices are cast to bf16 (C, autocast); or all is
 * bf16 (p = 2) and nothing is cast. Sharded over G ranks (P: not sharded): one tensor a unit, of a G-th of its values;
 * all of a unit is gathered on stream 1, its gradients are reduced there. Stages of a pipeline send and receive there.
 *
 * Stages run 1F1B: rank r of S runs min(S - 1 - r, M) microbatches forward, then one forward and one backward by turns,
 * so that at most S - r are in flight. A microbatch is b sequences, padded to the longest of them in multiples of 8.
 *
 * Blocks x.k are of microbatch m in layer u, x.m of the microbatch, x.u of the unit u, a layer or the tensors outside
 * the layers (u = L): embedding, last norm, head. Tensor j = 9 u + i of a unit: q k v o gate up down, two norms.
 */
#include <inttypes.h>

#include "trace/gen/plan.h"
#include "trace/gen/requests.h"

#define MICROBATCHES_MAX 4096

/* clang-format off */

/* ---- plans ---- */

/* Forward through an RMS norm whose kept blocks end in `at`, to the block `normed`. */
#define NORM(at) \
    "squares=Thp means=Tp -squares shifted=Tp -means inverse" at "=Tp -shifted scaled" at "=Thp normed=Thp "
/* After the last matrix that reads it. Without a bf16 copy the normed block is kept as `x`. */
#define RELEASE_NORMED(x) "?C{-normed} " x "<normed "
/* Back from `sum` through a norm with the input `in` and the weight's tensor i: `gradient.m` is made or added to. */
#define NORM_BACK(at, in, i) \
    "back=Thp weighted=Thp rows=hp staging=8Th semaphores=32 -semaphores -staging " \
    "?(P!$grad.(9u+" i ")){grad.(9u+" i ")<rows} -rows -weighted -sum -scaled" at " " \
    "spread=Thp direct=Thp inverses=Tp -spread -back ?$gradient.m{-direct} gradient.m<direct " \
    "mean=Tp cube=Tp power=Tp -cube -mean -inverses -inverse" at " spread=Thp -power " \
    "mean=Thp cube=Thp power=Thp -cube -mean -spread -" in " -power "
/* A weight's gradient of n values: cast, and copied for the parameter i unless it is there. */
#define KEEP(i, n) \
    "?P{?C{wide=4" n " -weight weight<wide} ?!$grad.(9u+" i "){grad.(9u+" i ")=" n "p}} -weight "
/* Back through matrix i of n values from `from` to `to`; `w` and `x` were kept. */
#define MATRIX_BACK(i, n, from, to, bytes, w, x) \
    "weight=2" n " " to "=" bytes " -" from " -" w " -" x " " KEEP(i, n)
/* `made`, in bf16, to the residual's type, as `sum` or added to it. */
#define WIDEN "?C{wide=Thp -made made<wide} ?$sum{-made} sum<made "
#define ROTATE_HALF(to) "one=2Th two=2Th " to "=2Th -one -two "
#define ROTATE(x) ROTATE_HALF("even") ROTATE_HALF("odd") "turned=4Th -even -odd -" x " " x "<turned "
#define ROTATE_BACK(x) \
    "wide=2Th even=Th -wide wide=2Th odd=Th -wide one=2Th two=2Th half=Th -two -one -half " \
    "one=2Th half=Th -one -" x " -half zeros=2Th -odd -even " x "=2Th -zeros "

/* A layer, from residual.m to residual.m. */
#define LAYER \
    "input.k<residual.m " NORM("a.k") \
    "xq.k=2ThC wq.k=2hhW qq=2Th xk.k=2ThC wk.k=2hhW kk=2Th xv.k=2ThC wv.k=2hhW vv=2Th " ROTATE("qq") ROTATE("kk") \
    "positions=8s ?F{query.k=2Th key.k=2Th value.k=2Th joined=2Th lse.k=4A} ?!F{.softmax} " \
    "xo.k=2Th -joined wo.k=2hhW projected=2Th -qq -kk -vv -positions " RELEASE_NORMED("xq.k") \
    "middle.k=Thp " NORM("i.k") \
    "xg.k=2ThC wg.k=2hIW gate.k=2TI sigmoid.k=2TI silu.k=2TI xu.k=2ThC wu.k=2hIW up.k=2TI product.k=2TI wd.k=2hIW " \
    "out=2Th " RELEASE_NORMED("xg.k") "residual.m=Thp -projected -out "
/* A = b H s: the rows of all heads' scores. */
#define SOFTMAX \
    "mask.k=ss query.k=2Th key.k=2Th scores=2As scaled=2As -scores infinity=2 masked=2As -infinity -scaled " \
    "top=2A maxima.k=8A shifted=2As -top wide=4As exponents.k=4As -wide sums.k=4A weights=4As -shifted " \
    "scores.k=2As value.k=2Th joined=2Th -masked -weights"
/* Free the kept blocks of a layer except the input, if the backward pass recomputes these blocks. */
#define FORGET \
    "-middle.k -inversea.k -scaleda.k -inversei.k -scaledi.k -xq.k -xk.k -xv.k -xo.k -xg.k -xu.k " \
    "-wq.k -wk.k -wv.k -wo.k -wg.k -wu.k -wd.k -mask.k -query.k -key.k -value.k -maxima.k -exponents.k -sums.k " \
    "-scores.k -lse.k -gate.k -sigmoid.k -silu.k -up.k -product.k"
#define LAYER_BACK \
    "above=2Th " MATRIX_BACK("6", "hI", "above", "through", "2TI", "wd.k", "product.k") \
    "dup=2TI dsilu=2TI -through -up.k -silu.k " MATRIX_BACK("5", "hI", "dup", "made", "2Th", "wu.k", "xu.k") WIDEN \
    "sigmoid=2TI dgate=2TI -dsilu -gate.k through=2TI -sigmoid -sigmoid.k -through " \
    MATRIX_BACK("4", "hI", "dgate", "made", "2Th", "wg.k", "xg.k") WIDEN NORM_BACK("i.k", "middle.k", "8") \
    "above=2Th " MATRIX_BACK("3", "hh", "above", "out", "2Th", "wo.k", "xo.k") "joined=2Th -out " \
    "?F{delta=4A wide=4Th dq=2Th dk=2Th dv=2Th -wide -delta -joined -lse.k -value.k} ?!F{.softmaxback} " \
    "-key.k -query.k made=4Th -dq dq<made made=4Th -dk dk<made " ROTATE_BACK("dq") ROTATE_BACK("dk") \
    "made=2Th -dv dv<made made=2Th -dq dq<made made=2Th -dk dk<made " \
    MATRIX_BACK("2", "hh", "dv", "made", "2Th", "wv.k", "xv.k") WIDEN \
    MATRIX_BACK("1", "hh", "dk", "made", "2Th", "wk.k", "xk.k") WIDEN \
    MATRIX_BACK("0", "hh", "dq", "made", "2Th", "wq.k", "xq.k") WIDEN NORM_BACK("a.k", "input.k", "7")
#define SOFTMAX_BACK \
    "dv=2Th weights=2As -joined -value.k -scores.k wide=4As -weights " \
    "one=4As two=4As three=4As four=4As -three -two -one powers=4As sums=4A -four -wide -sums.k -sums " \
    "through=4As -powers -exponents.k shifted=2As -through negative=2As top=2A -negative spread=2As -top -maxima.k " \
    "-spread zero=2 masked=2As -zero -shifted -mask.k scores=2As -masked dq=2Th dk=2Th -scores"

/* The ends of the layers: embedding, head and loss, or transfers to and from other stages. */
#define EMBEDDING "?f{residual.m=Thp} ?!f{residual.m@1=Thp residual.m>0} "
#define EMBEDDING_BACK /* rows' gradients are sorted by id and summed */ \
    "?f{made=Vhp sorted=8T ids=8T -sorted one=8T two=8T three=8T sorted=6655+16T -sorted -three -two -one -ids " \
        "?(P!$grad.(9u)){grad.(9u)<made} -made} ?!f{gradient.m>1} -gradient.m -unit.m "
#define HEAD \
    "?!l{residual.m>1 -residual.m} " \
    "?l{" NORM("h.m") "xh.m=2ThC wh.m=2VhW logits.m=2TV " RELEASE_NORMED("xh.m") \
        "top=2T peaks.m=8T shifted=2TV wide=4TV raised.m=4TV -wide totals.m=4T logs=4T softmax=4TV -logs -shifted -top " \
        "logs.m=4TV -softmax picked=4T loss.m=4 -picked} "
#define HEAD_BACK \
    "?!l{gradient.m@1=Thp gradient.m>0} " \
    "?l{unit.m=4 mean=4T spread=4TV -mean -logs.m negative=4TV -spread direct=4TV above=2TV sums=4T -direct -negative " \
        "total=4T -sums -totals.m powers=4TV -total -raised.m half=2TV -powers -half shifted=2TV top=2T -shifted " \
        "spread=2TV -top -peaks.m -spread " \
        MATRIX_BACK("2", "Vh", "above", "made", "2Th", "wh.m", "xh.m") WIDEN NORM_BACK("h.m", "residual.m", "1") "} "

/* Units: v values a layer, o outside the layers; D layers are gathered ahead. */
#define GATHER(n) "?!$all.u{all.u@1=2" n "!P} "
#define REDUCE(n) \
    "?$part.u{own@1=4((" n "+G-1)/G) part.u>1 -part.u own>0 ?$grad.(9u){-own} grad.(9u)<own} "
#define ENTER "k:m%w*L+u all.u>0 "

/* A plan of the tensors i of all units, or of the `count` ones from `from` on outside the layers: tensor j has n values
 * here. */
#define SHARD(n) "+!P!i((" n "+G-1)/G) j:9u+i "
#define EACH_OUTSIDE(from, count, plan) \
    "u:L t*" count "{i:t+" from " n:P(Vhf!i+hl!(i-1)+Vhl!(i-2))" SHARD("o") plan "} "
#define EACH(plan) \
    "u*L{i*9{n:P(hh!(i/4)+hI(i/4&1)!(i/7)+h(i/7&1))" SHARD("v") plan "}} "

/* AdamW of tensor j with n values. The old moments of the tensor before are freed when the next one is looked up. */
#define LOOK_UP(moment, old) "zeros=4n ?$" moment "{-zeros} " moment "<zeros -" old " " old "<" moment " "
#define UPDATE \
    "?n{?(M!$master.j){master.j=4n} decay=4n -decay " LOOK_UP("first.j", "before") LOOK_UP("second.j", "past") \
    "kept=4n added=4n first.j=4n -kept -added kept=4n square=4n added=4n -square second.j=4n -kept -added " \
    "scaled=4n root=4n divisor=4n -root change=4n -scaled -divisor -change}"

/* ---- the schedule ---- */

static void draw_length(struct flw_gen *gen);

static const struct flw_plan plans[] = {
    {"softmax", SOFTMAX, NULL},
    {"softmaxback", SOFTMAX_BACK, NULL},
    {"layer", LAYER, NULL},
    {"layerback", LAYER_BACK, NULL},
    {"forget", FORGET, NULL},
    {"update", UPDATE, NULL},
    {"length", NULL, draw_length},
    {"forward",
     "<forward T:$words.m/8 s:T/b A:bHs u:L " GATHER("o") "all.u>0 " EMBEDDING
     "i*L{j*((D+1)&(L-i)){u:i+j " GATHER("v") "} u:i " ENTER ".layer -all.u ?Y{.forget}} "
     "u:L " HEAD "-all.u >forward", NULL},
    {"backward",
     "<backward T:$words.m/8 s:T/b A:bHs u:L " GATHER("o") "all.u>0 part.u=2o!P " HEAD_BACK
     "i*L{j*((D+1)&(L-i)){u:L-1-i-j " GATHER("v") "} u:L-1-i " ENTER "?Y{residual.m<input.k .layer -residual.m} "
     "part.u=2v!P .layerback -all.u " REDUCE("v") "} u:L " EMBEDDING_BACK "-all.u " REDUCE("o") ">backward", NULL},
    {"step",
     EACH("-grad.j") EACH_OUTSIDE("0", "3", "-grad.j") "m*K{x:1 i*b{.length x:x|s} s:(x+7)/8*8&Q words.m=8bs targets.m=8bs} "
     "<step x*(K+w-1){?!((K|(x+1))-K){m:x .forward} ?!((x|(w-1))-x){m:x-(w-1) .backward}} "
     "<optimizer " EACH_OUTSIDE("0", "1", ".update") EACH(".update") EACH_OUTSIDE("1", "2", ".update")
     "-before -past >optimizer >step m*K{-logits.m -loss.m -words.m -targets.m}", NULL},
    {"train",
     EACH("weight.j=np") EACH_OUTSIDE("0", "3", "weight.j=np")
     "work=8519680 works=8519680 cosines=2Q(h/H) sines=2Q(h/H) d*N{.step} -work -works -cosines -sines "
     EACH("-grad.j") EACH_OUTSIDE("0", "3", "-grad.j")
     EACH("-weight.j -master.j -first.j -second.j") EACH_OUTSIDE("0", "3", "-weight.j -master.j -first.j -second.j"), NULL},
};

/* ---- options ---- */

static const char *const attentions[] = {"naive", "flash", NULL};
static const char *const precisions[] = {"autocast", "bf16", "bf16-master", NULL};
static const char *const recomputes[] = {"none", "full", NULL};
static const char *const varieties[] = {"fixed", "conversation", "code", "long", NULL};

static const struct flw_gen_option options[] = {
    {"layers", "of the model", FLW_GEN_COUNT, 24, 1, 1000, NULL, 'L'},
    {"hidden", "its width", FLW_GEN_COUNT, 1024, 16, 65536, NULL, 'h'},
    {"heads", "of its attention", FLW_GEN_COUNT, 16, 1, 1024, NULL, 'H'},
    {"inner", "width of the inner layers; 0: four times hidden", FLW_GEN_COUNT, 0, 0, 1048576, NULL, 'I'},
    {"vocab", "words", FLW_GEN_COUNT, 10000, 2, 1048576, NULL, 'V'},
    {"batch", "sequences of a microbatch", FLW_GEN_COUNT, 4, 1, 4096, NULL, 'b'},
    {"seq", "tokens of a sequence, at most", FLW_GEN_COUNT, 1024, 8, 131072, NULL, 'Q'},
    {"steps", "of the optimizer", FLW_GEN_COUNT, 3, 1, 100000, NULL, 'N'},
    {"attention", "with all scores, or without", FLW_GEN_CHOICE, 0, 0, 1, attentions, 'F'},
    {"precision", "fp32 cast to bf16, bf16, bf16 with fp32 masters", FLW_GEN_CHOICE, 0, 0, 2, precisions, 'X'},
    {"recompute", "layers' forward passes in the backward pass", FLW_GEN_CHOICE, 0, 0, 1, recomputes, 'Y'},
    {"zero3", "ranks that shard all state; 1: none", FLW_GEN_COUNT, 1, 1, 4096, NULL, 'G'},
    {"prefetch", "layers gathered ahead, with zero3", FLW_GEN_COUNT, 1, 0, 16, NULL, 'D'},
    {"stages", "of the pipeline", FLW_GEN_COUNT, 1, 1, 1000, NULL, 'S'},
    {"rank", "number of the traced stage", FLW_GEN_COUNT, 0, 0, 999, NULL, 'r'},
    {"microbatches", "of a step; 0: twice the stages, one without", FLW_GEN_COUNT, 0, 0, MICROBATCHES_MAX, NULL, 'K'},
    {"vary", "lengths as in such requests, up to seq", FLW_GEN_CHOICE, 0, 0, 3, varieties, 'Z'},
    {"lengths", "prompt lengths of a file of requests, in turn", FLW_GEN_FILE, 0, 0, 0, NULL, 'e'},
    {"seed", "of the drawn numbers", FLW_GEN_COUNT, 1, 0, UINT64_MAX, NULL, 'z'},
};
/* clang-format on */

struct lengths {
    struct flw_requests file;
    size_t next;
};

/* Draw s, the tokens of the next sequence. */
static void draw_length(struct flw_gen *gen)
{
    struct lengths *lengths = gen->owner;
    uint64_t *n = gen->numbers[0];
    if (lengths->file.count > 0) {
        n['s'] = lengths->file.items[lengths->next++ % lengths->file.count].prompt;
    } else {
        n['s'] = n['Z'] == 0 ? n['Q'] : flw_requests_draw(gen, n['Z'] - 1).prompt;
    }
}

static bool set_up(struct flw_gen *gen)
{
    uint64_t *n = gen->numbers[0], stages = n['S'], rank = n['r'], layers = n['L'];
    if (rank >= stages || layers < stages) {
        return flw_gen_fail(gen,
                            "--rank %" PRIu64 " and --layers %" PRIu64
                            " do not fit --stages %" PRIu64
                            ": ranks are below, layers at least the stages",
                            rank, layers, stages);
    }
    if (n['h'] % (2 * n['H']) != 0) {
        return flw_gen_fail(gen, "--hidden is not a multiple of twice --heads");
    }
    n['L'] = layers / stages + (rank < layers % stages);
    flw_plan_run(gen, "f:!r l:!(S-1-r) P:!(G-1) I:I+!(I)4h C:!X W:CP p:2+2C M:!(2-X) "
                      "K:K+!K(2S-!(S-1)) w:(S-r)&K v:4hh+3hI+2h o:Vhf+Vhl+hl");
    flw_gen_add_streams(gen, stages > 1 || n['G'] > 1 ? 2 : 1);
    return true;
}

static void run(struct flw_gen *gen)
{
    struct lengths lengths = {.next = 0};
    gen->owner = &lengths;
    if (set_up(gen) && flw_requests_read(gen, &lengths.file)) {
        flw_plan_call(gen, "train");
    }
    flw_requests_finish(&lengths.file);
    gen->owner = NULL;
}

/* clang-format off */
const struct flw_gen_kind flw_gen_train_kind = {
    "train",
    "training steps of a transformer: forward, backward, AdamW; shards and pipelines",
    "--layers 8 --zero3 8 --attention flash --vary conversation -o train.ftext",
    1, options, sizeof options / sizeof *options, NULL, plans, run};
