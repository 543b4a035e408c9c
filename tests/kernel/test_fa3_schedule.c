/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "fallow/attention.h"
#include "kernel/call.h"

#define MOST 4200 /* requests of a case */

FLW_MODULE(fa3_schedule, fallow_attention_fa3_schedule, fallow_fa3_schedule,
           FLW_IN_MAYBE(cu_seqlens_q), FLW_IN_MAYBE(seqused_q), FLW_IN_MAYBE(cu_seqlens_k),
           FLW_IN_MAYBE(seqused_k), FLW_IN_MAYBE(cu_seqlens_k_new), FLW_IN_MAYBE(leftpad_k),
           FLW_IN_MAYBE(valid_count), FLW_OUT(metadata), FLW_OUT_MAYBE(flags),
           FLW_COUNT(batch, 0, 65536), FLW_COUNT(seqlen_q, 0, INT32_MAX),
           FLW_COUNT(seqlen_k, 0, INT32_MAX), FLW_COUNT(seqlen_k_new, 0, INT32_MAX),
           FLW_COUNT(heads_q, 1, 65536), FLW_COUNT(heads_kv, 1, 65536),
           FLW_COUNT(multiprocessors, 1, INT32_MAX), FLW_COUNT(block_m, 1, 1024),
           FLW_COUNT(block_n, 1, 1024), FLW_COUNT(max_splits, 0, 256),
           FLW_COUNT(head_dim, 1, 65536), FLW_COUNT(head_dim_v, 0, 65536),
           FLW_ENUM(layout, FALLOW_FA3_LAYOUT_VLLM), FLW_FLAG(packed), FLW_FLAG(causal),
           FLW_FLAG(sorted), FLW_FLAG(swizzled), FLW_FLAG(no_semaphore),
           FLW_DTYPE(dtype, 1 << FALLOW_F16 | 1 << FALLOW_BF16 | 1 << FALLOW_E4M3))

/* The vectors of either layout. */
enum {
    SPLITS,
    M_BLOCKS,
    QLEN,
    BATCH_IDX,
    HEADS,
    VECTORS
};
static const char *const vector_names[VECTORS] = {"splits", "m_blocks", "qlen", "batch_idx",
                                                  "heads_in_l2"};

/* One call. `has` lists the arrays that are given. */
struct fixture {
    struct flw_call call;
    fallow_fa3_schedule_params params;
    int32_t valid;
    struct {
        bool cu_q, used_q, cu_k, used_k, cu_new, leftpad;
    } has;
    int32_t q[MOST], k[MOST], fresh[MOST], leftpad[MOST]; /* effective lengths */
    int32_t cu_q[MOST + 1], cu_k[MOST + 1], cu_fresh[MOST + 1];
    int32_t expected[VECTORS][MOST];
    int32_t flags; /* expected */
};

static struct fixture *make(struct flw_bed *bed, int32_t batch)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    flw_call_init(bed, &fixture->call, fa3_schedule(), &fixture->params);
    fixture->params.batch = batch;
    fixture->params.heads_q = 64;
    fixture->params.heads_kv = 8;
    fixture->params.multiprocessors = 132;
    fixture->params.block_m = 128;
    fixture->params.block_n = 176;
    fixture->params.max_splits = 32;
    fixture->params.head_dim = 128;
    fixture->params.dtype = FALLOW_BF16;
    fixture->params.packed = fixture->params.swizzled = 1;
    fixture->valid = batch;
    fixture->has.cu_q = fixture->has.used_k = true;
    return fixture;
}

static int32_t valid_of(const struct fixture *fixture)
{
    int32_t valid = fixture->valid < 0 ? 0 : fixture->valid;
    return valid < fixture->params.batch ? valid : fixture->params.batch;
}

/* ---- an independent oracle: doubles where they are exact, a library sort */

static int32_t cut(struct fixture *fixture, double value)
{
    if (value > INT32_MAX) {
        fixture->flags |= FALLOW_FLAG_OVERFLOW;
        return INT32_MAX;
    }
    return (int32_t)value;
}

struct work {
    double amount;
    int32_t request;
};

static int by_amount(const void *left, const void *right)
{
    const struct work *a = left, *b = right;
    if (a->amount != b->amount) {
        return a->amount > b->amount ? -1 : 1;
    }
    return a->request < b->request ? -1 : 1;
}

/* The fp32 formula, each result in a float of its own. */
static double share_of(const fallow_fa3_schedule_params *params, double total)
{
    volatile float product = (float)total;
    product = product * 1.1f;
    product = product * (float)(params->packed ? params->heads_kv : params->heads_q);
    product = product / (float)params->multiprocessors;
    product = ceilf(product);
    return product;
}

static int32_t heads_of(const fallow_fa3_schedule_params *params, int32_t blocks)
{
    int32_t heads = params->packed ? params->heads_kv : params->heads_q;
    int32_t dim_v = params->head_dim_v == 0 ? params->head_dim : params->head_dim_v;
    int64_t bytes = (int64_t)params->block_n * (params->head_dim + dim_v) *
                    (params->dtype == FALLOW_E4M3 ? 1 : 2);
    int64_t room = 8388608 / bytes, fit = room / (blocks < 1 ? 1 : blocks);
    int64_t chosen = fit >= 16 ? 16 : fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
    chosen *= params->packed ? 1 : params->heads_q / params->heads_kv;
    return (int32_t)(chosen < heads ? chosen : heads);
}

static void expect(struct fixture *fixture)
{
    const fallow_fa3_schedule_params *params = &fixture->params;
    int32_t valid = valid_of(fixture),
            pack = params->packed ? params->heads_q / params->heads_kv : 1;
    int32_t m[MOST], n[MOST], splits[MOST];
    struct work works[MOST];
    double total = 0;
    fixture->flags = 0;
    memset(fixture->expected, 0, sizeof fixture->expected);
    for (int32_t i = 0; i < valid; i++) {
        double q = fixture->q[i],
               k = (double)fixture->k[i] + fixture->fresh[i] - fixture->leftpad[i];
        fixture->flags |= q < 0 || k < 0 ? FALLOW_FLAG_NEGATIVE : 0;
        q = q < 0 ? 0 : q;
        k = k < 0 ? 0 : k;
        (void)cut(fixture, q * pack);
        m[i] = cut(fixture, ceil(q * pack / params->block_m));
        n[i] = cut(fixture, ceil(k / params->block_n));
        double product = (double)m[i] * n[i];
        if (product > 70368744177663.0) {
            product = 70368744177663.0;
            fixture->flags |= FALLOW_FLAG_OVERFLOW;
        }
        total += product;
    }
    for (int32_t i = 0; i < valid; i++) {
        double wanted = 1;
        if (params->max_splits > 1 && params->batch <= 992 && total > 0) {
            wanted = ceil(n[i] / share_of(params, total));
        }
        splits[i] = (int32_t)(wanted < 1 ? 1 : wanted);
        if (splits[i] > params->max_splits && params->max_splits > 0) {
            splits[i] = params->max_splits;
        }
        double each = ceil((double)n[i] / splits[i]);
        works[i].request = i;
        works[i].amount =
            params->causal ? each * params->block_n - (double)m[i] * params->block_m : each;
    }
    if (params->sorted) {
        qsort(works, (size_t)valid, sizeof *works, by_amount);
    }
    for (int32_t row = 0; row < valid; row++) {
        int32_t i = works[row].request;
        fixture->expected[SPLITS][row] = splits[i];
        fixture->expected[M_BLOCKS][row] = m[i];
        fixture->expected[QLEN][row] =
            fixture->q[i] < 0 ? 0 : cut(fixture, (double)fixture->q[i] * pack);
        fixture->expected[BATCH_IDX][row] = i;
        fixture->expected[HEADS][row] =
            heads_of(params, (int32_t)(((int64_t)n[i] + splits[i] - 1) / splits[i]));
    }
    fixture->call.want_flags = fixture->flags;
}

/* ---- the call */

/* Sums of lengths, from a begin that is not 0: only differences count. */
static int32_t *sum(int32_t *cu, const int32_t *lengths, int32_t batch)
{
    cu[0] = 3;
    for (int32_t i = 0; i < batch; i++) {
        cu[i + 1] = (int32_t)((uint32_t)cu[i] + (uint32_t)lengths[i]);
    }
    return cu;
}

/* Bind the inputs that the fixture has, and compute the expected values. */
static struct flw_call *bind(struct fixture *fixture)
{
    struct flw_call *call = &fixture->call;
    int32_t batch = fixture->params.batch;
    size_t n = (size_t)batch;
    int32_t *cu_q = sum(fixture->cu_q, fixture->q, batch);
    int32_t *cu_k = sum(fixture->cu_k, fixture->k, batch);
    int32_t *cu_fresh = sum(fixture->cu_fresh, fixture->fresh, batch);
    flw_call_bind(call, "cu_seqlens_q", fixture->has.cu_q ? cu_q : NULL, n + 1, 4);
    flw_call_bind(call, "seqused_q", fixture->has.used_q ? fixture->q : NULL, n, 4);
    flw_call_bind(call, "cu_seqlens_k", fixture->has.cu_k ? cu_k : NULL, n + 1, 4);
    flw_call_bind(call, "seqused_k", fixture->has.used_k ? fixture->k : NULL, n, 4);
    flw_call_bind(call, "cu_seqlens_k_new", fixture->has.cu_new ? cu_fresh : NULL, n + 1, 4);
    flw_call_bind(call, "leftpad_k", fixture->has.leftpad ? fixture->leftpad : NULL, n, 4);
    flw_call_bind(call, "valid_count", &fixture->valid, 1, 4);
    expect(fixture);
    return call;
}

/* Which vectors the metadata has, in order; returns how many. */
static size_t list_vectors(const fallow_fa3_schedule_params *params, int *vectors)
{
    size_t count = 0;
    if (params->layout == FALLOW_FA3_LAYOUT) {
        vectors[count++] = SPLITS;
        vectors[count++] = M_BLOCKS;
        if (params->sorted) {
            vectors[count++] = BATCH_IDX;
        }
    } else {
        vectors[count++] = QLEN;
        if (params->batch <= 992 && params->max_splits > 1) {
            vectors[count++] = SPLITS;
        }
    }
    if (params->swizzled) {
        vectors[count++] = HEADS;
    }
    return count;
}

static void compare(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_fa3_schedule_params *params = &fixture->params;
    const int32_t *metadata = fixture->call.out[0];
    int vectors[VECTORS];
    int32_t count = (int32_t)list_vectors(params, vectors), length = (params->batch + 3) & ~3;
    for (int32_t at = 0; at < count * length; at++) {
        int vector = vectors[at / length], row = at % length;
        FLW_EXPECT(bed, metadata[at] == fixture->expected[vector][row],
                   "%s[%d] of batch %d (%d valid) is %d, expected %d", vector_names[vector], row,
                   params->batch, fixture->valid, metadata[at], fixture->expected[vector][row]);
    }
    FLW_EXPECT(bed, params->no_semaphore || metadata[count * length] == 0, "semaphore");
}

/* Lengths at edges and anywhere, some absent. */
static struct fixture *fill(struct flw_bed *bed, struct fixture *fixture, int32_t longest_q,
                            int32_t longest_k)
{
    for (int32_t i = 0; i < fixture->params.batch; i++) {
        bool is_edge = flw_bed_random_below(bed, 3) == 0;
        fixture->q[i] = (int32_t)flw_bed_random_below(bed, longest_q + 1);
        fixture->k[i] = is_edge ? fixture->params.block_n * (int32_t)flw_bed_random_below(bed, 9)
                                : (int32_t)flw_bed_random_below(bed, longest_k + 1);
        if (fixture->has.cu_new) {
            fixture->fresh[i] = (int32_t)flw_bed_random_below(bed, 64);
        }
        if (fixture->has.leftpad && fixture->k[i] > 0) {
            fixture->leftpad[i] = (int32_t)flw_bed_random_below(bed, fixture->k[i]);
        }
    }
    return fixture;
}

/* Prove a case, and compare outputs and flags with the oracle's. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    flw_call_prove(bind(fixture));
    compare(bed, fixture);
}

/* ---- tests */

/* By hand: 8 and 1 blocks of one tile row. total = 9; 9 * 1.1 * 8 / 132 = 0.6, so one block a
 * multiprocessor: as many splits as blocks. With 4 multiprocessors 19.8, so 20: one split. */
FLW_TEST(an_example_comes_out)
{
    for (int few = 0; few < 2; few++) {
        struct fixture *fixture = make(bed, 2);
        fixture->q[0] = fixture->q[1] = 1;
        fixture->k[0] = 8 * 176;
        fixture->k[1] = 1;
        fixture->params.multiprocessors = few ? 4 : 132;
        check(bed, fixture);
        FLW_EXPECT(bed, fixture->expected[SPLITS][0] == (few ? 1 : 8), "splits of the first");
        FLW_EXPECT(bed, fixture->expected[SPLITS][1] == 1, "splits of the second");
        FLW_EXPECT(bed, few || fixture->expected[HEADS][0] == 8,
                   "16 blocks of 90,112 bytes fit 8 MiB");
    }
}

FLW_TEST(metadata_is_exact_for_every_batch_and_mode)
{
    static const int32_t batches[] = {0, 1, 2, 3, 4, 7, 8, 64, 256, 512, 991, 992, 993};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        for (int mode = 0; mode < 32; mode += batches[i] < 300 ? 1 : 7) {
            struct fixture *fixture = make(bed, batches[i]);
            fixture->params.packed = (mode & 1) != 0;
            fixture->params.causal = (mode & 2) != 0;
            fixture->params.swizzled = (mode & 4) != 0;
            fixture->params.layout = (mode & 8) != 0 ? FALLOW_FA3_LAYOUT_VLLM : FALLOW_FA3_LAYOUT;
            fixture->params.sorted = (mode & 16) != 0 && (mode & 8) == 0;
            fixture->params.no_semaphore = mode == 7;
            fixture->params.max_splits = mode % 5 == 4 ? 0 : 1 << (mode % 5 * 2 + 1);
            check(bed, fill(bed, fixture, mode % 3 == 0 ? 1 : 300, mode % 2 == 0 ? 131072 : 3000));
        }
    }
}

FLW_TEST(the_order_is_by_work_and_then_by_index)
{
    static const int32_t batches[] = {1, 2, 31, 33, 1000, 1025, 4096};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct fixture *fixture = make(bed, batches[i]);
        fixture->params.sorted = 1;
        fixture->params.causal = i % 2 == 0;
        fixture->params.max_splits = 1; /* many equal counts of blocks */
        check(bed, fill(bed, fixture, 400, 2000));
    }
}

FLW_TEST(sizes_are_those_of_flash_attention)
{
    static const struct {
        int32_t batch;
        uint64_t fa3, vllm;
    } sizes[] = {{1, 68, 52}, {8, 132, 100}, {64, 1028, 772}, {256, 4100, 3076}, {512, 8196, 6148}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct fixture *fixture = make(bed, sizes[i].batch);
        fixture->params.layout = FALLOW_FA3_LAYOUT_VLLM;
        FLW_EXPECT(bed, flw_call_need(&fixture->call).outputs[0].bytes == sizes[i].vllm,
                   "vLLM, batch %d", sizes[i].batch);
        fixture->params.layout = FALLOW_FA3_LAYOUT;
        fixture->params.sorted = 1;
        FLW_EXPECT(bed, flw_call_need(&fixture->call).outputs[0].bytes == sizes[i].fa3,
                   "FA3, batch %d", sizes[i].batch);
    }
}

FLW_TEST(lengths_come_from_whichever_array_is_there)
{
    for (int mode = 0; mode < 64; mode++) {
        struct fixture *fixture = make(bed, 23);
        fixture->has.cu_q = (mode & 1) != 0;
        fixture->has.used_q = (mode & 2) != 0;
        fixture->has.cu_k = (mode & 4) != 0;
        fixture->has.used_k = (mode & 8) != 0;
        fixture->has.cu_new = (mode & 16) != 0;
        fixture->has.leftpad = (mode & 32) != 0;
        fixture->params.seqlen_q = 7;
        fixture->params.seqlen_k = 7000;
        fixture->params.seqlen_k_new = 70;
        fill(bed, fixture, 300, 9000);
        for (int i = 0; i < 23; i++) {
            fixture->q[i] = fixture->has.cu_q || fixture->has.used_q ? fixture->q[i] : 7;
            fixture->k[i] = fixture->has.cu_k || fixture->has.used_k ? fixture->k[i] : 7000;
            fixture->fresh[i] = fixture->has.cu_new ? fixture->fresh[i] : 70;
        }
        check(bed, fixture);
    }
}

FLW_TEST(rows_beyond_the_valid_ones_are_zero)
{
    for (int k = 0; k < 39; k++) {
        struct fixture *fixture = make(bed, 10);
        fixture->valid = k / 3 - 1;
        fixture->params.sorted = k % 3 == 1;
        fixture->params.layout = k % 3 == 2 ? FALLOW_FA3_LAYOUT_VLLM : FALLOW_FA3_LAYOUT;
        check(bed, fill(bed, fixture, 100, 9000));
    }
}

FLW_TEST(empty_requests_take_one_split)
{
    struct fixture *fixture = make(bed, 6); /* total = 0 */
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->expected[SPLITS][5] == 1, "splits of nothing");
    fixture->q[2] = 5; /* and one that attends nothing */
    check(bed, fixture);
}

FLW_TEST(values_out_of_bounds_are_flagged_and_defined)
{
    struct fixture *fixture = make(bed, 5);
    fixture->has.used_q = true;
    fixture->has.cu_q = false;
    fixture->has.leftpad = true;
    fill(bed, fixture, 3, 1000);
    fixture->leftpad[1] = fixture->k[1] + 1;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->flags == FALLOW_FLAG_NEGATIVE, "padding above the length");
    fixture->leftpad[1] = 0;
    fixture->q[3] = -4;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->flags == FALLOW_FLAG_NEGATIVE, "a negative query length");
    fixture->q[3] = INT32_MAX; /* times 8 */
    fixture->k[3] = INT32_MAX;
    fixture->params.block_m = fixture->params.block_n = 1;
    fixture->params.sorted = fixture->params.causal = 1;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->flags == FALLOW_FLAG_OVERFLOW, "the longest lengths");
}

FLW_TEST(a_graph_takes_count_and_lengths_from_the_device)
{
    struct fixture *fixture = make(bed, 512);
    fixture->params.sorted = fixture->params.causal = 1;
    fixture->has.used_q = true;
    fixture->has.cu_q = false;
    flw_call_capture(bind(fixture));
    for (fixture->valid = 512; fixture->valid >= 0; fixture->valid -= 64) {
        flw_call_replay(bind(fill(bed, fixture, 3, 200 * fixture->valid)));
        compare(bed, fixture);
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = make(bed, 16);
    memset(&fixture->has, 1, sizeof fixture->has);
    FLW_CALL_REFUSE(bind(fixture), "sorted=1 batch=4097: batch", "sorted=1 layout=1: sorted",
                    "heads_kv=7: heads_q 64 is not a multiple of heads_kv 7");
}
