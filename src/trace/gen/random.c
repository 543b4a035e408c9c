/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: traces of random sizes and lives, as in the benchmarks of the RAPIDS Memory Manager, on one stream or several;
 * and of a database's queries.
 * Does not: reproduce the numbers of those benchmarks: the rules are the same, the generator of numbers is not.
 *
 *   rmm            2 x count steps. A step draws a size from 1 byte to `max`. The size is allocated if live and
 *                  size together are below `cap`, and, unless nothing is live, with a probability of 73 % and
 *                  while fewer than `count` were allocated. Else a random live block is freed.
 *   multi-stream   the same by `threads` threads in random turns, each with its own blocks, thread t on
 *                  stream t mod `streams`; `shared` times in a hundred the freed block was last used by
 *                  another stream.
 *   kernels        `count` kernels in turn over the streams, 8 bytes each, freed after the launch.
 *   query          scan, hash join, group-by and sort, over columns with validity masks.
 *
 * A table has rows_max / r rows, r drawn so that rank r is 1/r as frequent as rank 1 (Zipf, ranks 1 to
 * 64); 2 to 6 columns of 4 (half of them), 8 (three in eight) or 16 bytes a value. A column of n rows
 * is w n bytes, and a mask of n bits in multiples of 64 bytes beside every second one.
 *
 *   scan   each column is read on stream 1 into a staging block of half its size, decoded there into
 *          the column, used on stream 0
 *   join   of the two tables: hash table of 8 bytes for each of 2^k >= 2 x the smaller table's rows;
 *          row numbers 2 x 4 m of the m rows that match (a half to all of the larger's); the
 *          columns of both gathered; the inputs freed
 *   group  m / 2^j groups, j 2 to 12: hash table 8 x 2^k >= 2 x groups, row numbers 4 m, results of
 *          8 bytes a group for three aggregates, keys gathered
 *   sort   keys twice and row numbers twice (8 and 4 bytes a row of the groups), scratch of 1/16 of
 *          them, the result gathered
 * Up to 16 results are kept; the oldest is dropped first. Above 80 % of the device the oldest results are copied out on
 * stream 1 and freed; one in four queries reads one back and joins it.
 */
#include <inttypes.h>

#include "base/bits.h"
#include "trace/gen/plan.h"

#define THREADS_MAX 64

/* clang-format off */

/* ---- queries ----
 *
 * Tables t of n.t columns (0: none), r.t rows, s.t: at the host. Column 6t+j has values of w bytes, m: and a mask.
 * The results are the tables q.0 to q.(c-1), oldest first. */

#define FREE_TABLE(t) "j*n." t "{-data.(6" t "+j) -mask.(6" t "+j)} n." t ":0 "
#define USE_TABLE(t, stream) "j*n." t "{data.(6" t "+j)>" stream " mask.(6" t "+j)>" stream "} "
#define NEW_TABLE "x*21{?!n.x{t:x}} s.t:0 "
#define REMOVE_RESULT(place) "t:q." place " c:c-1 x*(c-" place "){q.(" place "+x):q.(" place "+x+1)} "

/* Move the oldest results to the host until y bytes more fit in four fifths of the device. */
#define TAKE(name, stream, bytes) \
    "y:" bytes " e*c{?((A/5*4|($+y))-A/5*4){u:q.e ?!s.u{" \
        "g*n.u{data.(6u+g)>1 mask.(6u+g)>1} g*n.u{-data.(6u+g) -mask.(6u+g)} s.u:1}}} " name "@" stream "=y "
#define TAKE_COLUMN(stream) /* k of table t */ \
    TAKE("data.k", stream, "r.tw.k") "?m.k{" TAKE("mask.k", stream, "((r.t+7)/8+63)/64*64") "} "
#define GATHER(from) \
    "i*n." from "{?(6-n.t){k:6t+n.t n.t:n.t+1 w.k:w.(6" from "+i) m.k:m.(6" from "+i) " TAKE_COLUMN("0") "}} "
/* 8 bytes for each of the smallest power of two that is at least twice the rows. */
#define TAKE_HASHES(rows) "h:16 x*60{?((h|(16" rows "))-h){h:2h}} " TAKE("hashes", "0", "h")

static const struct flw_plan plans[] = {
    /* the table t */
    {"scan",
     NEW_TABLE "o:0 i*64{o:o+5040/(i+1)} a:[0,o-1] z:1 i*64{x:5040/z ?!((a|x)-a){a:a-x z:z+1}} r.t:R/z|1 "
     "d:[2,6] i*d{n.t:n.t+1 x:[0,7] k:6t+i w.k:4*2^(x/4+x/7) m.k:i%2 "
        TAKE("staging", "1", "r.tw.k/2|1") TAKE_COLUMN("1") "-staging} " USE_TABLE("t", "0"), NULL},
    /* a result that was kept, as the table t */
    {"fetch",
     "p:[0,c-1] " REMOVE_RESULT("p") "?s.t{i*n.t{k:6t+i " TAKE_COLUMN("1") "} " USE_TABLE("t", "0") "s.t:0}", NULL},
    /* the tables l and t, to t */
    {"join",
     "f:t " NEW_TABLE "b:r.l|r.f r.t:[(b+1)/2,b] b:r.l&r.f " TAKE_HASHES("b")
     TAKE("left", "0", "4r.t") TAKE("right", "0", "4r.t") "-hashes "
     GATHER("l") GATHER("f") "-left -right " FREE_TABLE("l") FREE_TABLE("f"), NULL},
    /* the table t, to t */
    {"group",
     "f:t " NEW_TABLE "r.t:r.f/2^[2,12]|1 b:r.t " TAKE_HASHES("b") TAKE("rows", "0", "4r.f")
     "i*3{k:6t+i n.t:n.t+1 w.k:8 m.k:i&1 " TAKE_COLUMN("0") "} " GATHER("f") "-rows -hashes " FREE_TABLE("f"), NULL},
    /* the table t, to the newest result */
    {"sort",
     "f:t ?!(16-c){" REMOVE_RESULT("0") FREE_TABLE("t") "} " NEW_TABLE "r.t:r.f "
     TAKE("keys", "0", "8r.t") TAKE("sorted", "0", "8r.t") TAKE("left", "0", "4r.t") TAKE("right", "0", "4r.t")
     TAKE("scratch", "0", "24r.t/16|1") "-scratch -sorted -keys " GATHER("f") "-left -right " FREE_TABLE("f")
     "q.c:t c:c+1", NULL},
    {"query",
     "V*N{<query .scan l:t v:0 ?c{v:![0,3]} ?v{.fetch} ?!v{.scan} .join .group .sort >query} "
     "i*c{" REMOVE_RESULT("0") FREE_TABLE("t") "}", NULL},
    {"kernels", "i*N{kernel@(i%S)=8 -kernel}", NULL},
};

/* ---- sizes and lives ---- */

/* One step of thread t, which holds l.t blocks and has allocated n.t of c. */
static const char step[] =
    "z:[1,M] a:!((A|($+z+1))-A) ?l.t{x:[0,99] a:a!((72|x)-72)(((c|n.t)-n.t)&1)} "
    "?a{held.(64l.t+t)@(t%S)=z l.t:l.t+1 n.t:n.t+1} "
    "?(!a(l.t&1)){p:[0,l.t-1] freed<held.(64p+t) l.t:l.t-1 held.(64p+t)<held.(64l.t+t) "
        "?(S-1){x:[0,99] ?!((Q|(x+1))-Q){freed>((t+[1,S-1])%S)}} -freed}";

static const char *const patterns[] = {"rmm", "multi-stream", "kernels", "query", NULL};

static const char *const pattern_help[] = {
    "random sizes and lives on one stream",
    "the same on several threads and streams; two streams use some blocks",
    "a block of 8 bytes a kernel, in turn over the streams",
    "scan, join, group, sort over columns of Zipf's row counts on two streams, spilling at 80 %",
};

static const struct flw_gen_option options[] = {
    {"pattern", "which one", FLW_GEN_CHOICE, 0, 0, 3, patterns, 'W'},
    {"count", "blocks; with the pattern query, queries", FLW_GEN_COUNT, 1000, 1, 10000000, NULL, 'N'},
    {"max", "bytes of the largest block", FLW_GEN_BYTES, 4096 * FLW_MIB, 1, 1024 * FLW_GIB, NULL, 'M'},
    {"cap", "bytes that are live at most; those of the device, of queries", FLW_GEN_BYTES, 16000 * FLW_MIB, 1, 1024 * FLW_GIB, NULL, 'A'},
    {"streams", "of multi-stream and kernels", FLW_GEN_COUNT, 4, 1, THREADS_MAX, NULL, 'S'},
    {"threads", "of multi-stream", FLW_GEN_COUNT, 4, 1, THREADS_MAX, NULL, 'T'},
    {"shared", "per cent of blocks that two streams use, of multi-stream", FLW_GEN_COUNT, 5, 0, 100, NULL, 'Q'},
    {"rows", "of the largest table, of query", FLW_GEN_COUNT, 50000000, 1000, UINT64_C(100000000000), NULL, 'R'},
    {"seed", "of the drawn numbers", FLW_GEN_COUNT, 1, 0, UINT64_MAX, NULL, 'Z'},
};
/* clang-format on */

static void set_thread(struct flw_gen *gen, uint64_t thread)
{
    uint64_t *n = gen->numbers[0];
    n['t'] = thread;
    gen->context.thread = (uint32_t)thread;
}

static void run_threads(struct flw_gen *gen)
{
    uint64_t *n = gen->numbers[0];
    uint64_t threads = n['T'], count = n['N'] / threads;
    if (count == 0) {
        flw_gen_fail(gen, "--count %" PRIu64 " is not one block for each of %" PRIu64 " threads",
                     n['N'], threads);
    }
    flw_gen_add_streams(gen, n['S']);
    n['c'] = count;
    for (uint64_t i = 0; i < 2 * count * threads && !gen->has_failed; i++) {
        set_thread(gen, threads == 1 ? 0 : flw_gen_between(gen, 0, threads - 1));
        flw_plan_run(gen, step);
    }
    for (uint64_t i = 0; i < threads; i++) { /* blocks of the last steps */
        set_thread(gen, i);
        flw_plan_run(gen, "i*l.t{-held.(64(l.t-1-i)+t)}");
    }
}

static void run(struct flw_gen *gen)
{
    uint64_t *n = gen->numbers[0];
    if (n['W'] < 2) {
        flw_plan_run(gen, "?!W{S:1 T:1}");
        run_threads(gen);
    } else {
        flw_gen_add_streams(gen, n['W'] == 3 ? 2 : n['S']);
        flw_plan_call(gen, patterns[n['W']]);
    }
}

/* clang-format off */
const struct flw_gen_kind flw_gen_random_kind = {
    "random",
    "random sizes and lives as RMM's benchmarks draw them, and a database's queries",
    "--count 10000 --max 256M -o random.ftext",
    1, options, sizeof options / sizeof *options, pattern_help, plans, run};
