/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fallow/attention.h"
#include "kernel/bed.h"

#define MOST 4200 /* requests of a case */

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

/* One call on the host. `has` lists the arrays. */
struct fixture {
    fallow_fa3_schedule_params params;
    int32_t valid;
    struct {
        bool cu_q, used_q, cu_k, used_k, cu_new, leftpad;
    } has;
    int32_t q[MOST], k[MOST], fresh[MOST], leftpad[MOST]; /* effective lengths */
    int32_t expected[VECTORS][MOST];
    int32_t flags; /* expected */
};

static struct fixture *make(int32_t batch)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (fixture == NULL) {
        abort();
    }
    fallow_fa3_schedule_params_init(&fixture->params);
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
    int32_t *m = calloc(MOST, 4), *n = calloc(MOST, 4), *splits = calloc(MOST, 4);
    struct work *works = calloc(MOST, sizeof *works);
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
    free(m);
    free(n);
    free(splits);
    free(works);
}

/* ---- the call */

/* Sums of lengths, from a begin that is not 0: only differences count. */
static const int32_t *upload_cu(struct flw_bed *bed, const char *name, const int32_t *lengths,
                                int32_t batch)
{
    int32_t *cu = calloc(MOST + 1, 4);
    cu[0] = 3;
    for (int32_t i = 0; i < batch; i++) {
        cu[i + 1] = (int32_t)((uint32_t)cu[i] + (uint32_t)lengths[i]);
    }
    const int32_t *buffer = flw_bed_upload(bed, name, cu, ((size_t)batch + 1) * 4);
    free(cu);
    return buffer;
}

static void give_inputs(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_fa3_schedule_params *params = &fixture->params;
    size_t bytes = (size_t)params->batch * 4;
    if (fixture->has.cu_q) {
        params->cu_seqlens_q = upload_cu(bed, "cu_seqlens_q", fixture->q, params->batch);
    }
    if (fixture->has.used_q) {
        params->seqused_q = flw_bed_upload(bed, "seqused_q", fixture->q, bytes);
    }
    if (fixture->has.cu_k) {
        params->cu_seqlens_k = upload_cu(bed, "cu_seqlens_k", fixture->k, params->batch);
    }
    if (fixture->has.used_k) {
        params->seqused_k = flw_bed_upload(bed, "seqused_k", fixture->k, bytes);
    }
    if (fixture->has.cu_new) {
        params->cu_seqlens_k_new = upload_cu(bed, "cu_new", fixture->fresh, params->batch);
    }
    if (fixture->has.leftpad) {
        params->leftpad_k = flw_bed_upload(bed, "leftpad_k", fixture->leftpad, bytes);
    }
    params->valid_count = flw_bed_upload(bed, "valid_count", &fixture->valid, 4);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_fa3_schedule_params params = ((struct fixture *)inputs)->params;
    params.metadata = outputs[0];
    FLW_EXPECT_OK(
        bed, fallow_attention_fa3_schedule(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_fa3_schedule_query(&fixture->params, &need),
                    &need);
    return step;
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

static void compare(struct flw_bed *bed, struct fixture *fixture, const int32_t *metadata)
{
    const fallow_fa3_schedule_params *params = &fixture->params;
    int vectors[VECTORS];
    size_t count = list_vectors(params, vectors);
    int32_t length = (params->batch + 3) & ~3;
    expect(fixture);
    for (size_t v = 0; v < count; v++) {
        for (int32_t row = 0; row < length; row++) {
            int32_t got = metadata[(int32_t)v * length + row];
            FLW_EXPECT(bed, got == fixture->expected[vectors[v]][row],
                       "%s[%d] of batch %d (%d valid) is %d, expected %d", vector_names[vectors[v]],
                       row, params->batch, fixture->valid, got, fixture->expected[vectors[v]][row]);
        }
    }
    FLW_EXPECT(bed, params->no_semaphore || metadata[(int32_t)count * length] == 0, "semaphore");
}

/* Lengths at edges and anywhere, some absent. */
static void fill(struct flw_bed *bed, struct fixture *fixture, int32_t longest_q, int32_t longest_k)
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
}

/* Prove a case, and compare outputs and flags with the oracle's. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    int32_t *metadata = calloc(VECTORS * MOST, 4);
    struct fixture *larger =
        make(fixture->params.batch + 9 <= 4096 ? fixture->params.batch + 9 : 4096);
    struct fixture *smaller = make(fixture->params.batch / 2);
    fill(bed, larger, 5, 9000);
    fill(bed, smaller, 500, 9000);
    larger->params.sorted = 1;
    give_inputs(bed, fixture);
    give_inputs(bed, larger);
    give_inputs(bed, smaller);
    fixture->params.flags = flw_bed_flags(bed);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    flw_bed_prove(bed, &step, &before, &after, (void *const[]){metadata});
    compare(bed, fixture, metadata);
    int32_t flags = flw_bed_read_flags(bed, fixture->params.flags);
    FLW_EXPECT(bed, flags == fixture->flags, "flags are %d, expected %d", flags, fixture->flags);
    free(metadata);
    free(larger);
    free(smaller);
}

/* ---- tests */

/* By hand: 8 and 1 blocks of one tile row. total = 9; 9 * 1.1 * 8 / 132 = 0.6, so one block a
 * multiprocessor: as many splits as blocks. With 4 multiprocessors 19.8, so 20: one split. */
static void an_example_comes_out(struct flw_bed *bed)
{
    struct fixture *fixture = make(2);
    fixture->q[0] = fixture->q[1] = 1;
    fixture->k[0] = 8 * 176;
    fixture->k[1] = 1;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->expected[SPLITS][0] == 8 && fixture->expected[SPLITS][1] == 1,
               "splits over 132");
    FLW_EXPECT(bed, fixture->expected[HEADS][0] == 8, "16 blocks of 90,112 bytes fit 8 MiB");
    free(fixture);
    fixture = make(2);
    fixture->q[0] = fixture->q[1] = 1;
    fixture->k[0] = 8 * 176;
    fixture->k[1] = 1;
    fixture->params.multiprocessors = 4;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->expected[SPLITS][0] == 1, "splits over 4");
    free(fixture);
}

static void metadata_is_exact_for_every_batch_and_mode(struct flw_bed *bed)
{
    static const int32_t batches[] = {0, 1, 2, 3, 4, 7, 8, 64, 256, 512, 991, 992, 993};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        for (int mode = 0; mode < 32; mode++) {
            struct fixture *fixture = make(batches[i]);
            fixture->params.packed = (mode & 1) != 0;
            fixture->params.causal = (mode & 2) != 0;
            fixture->params.swizzled = (mode & 4) != 0;
            fixture->params.layout = (mode & 8) != 0 ? FALLOW_FA3_LAYOUT_VLLM : FALLOW_FA3_LAYOUT;
            fixture->params.sorted = (mode & 16) != 0 && (mode & 8) == 0;
            fixture->params.no_semaphore = mode == 7;
            fixture->params.max_splits = mode % 5 == 4 ? 0 : 1 << (mode % 5 * 2 + 1);
            fill(bed, fixture, mode % 3 == 0 ? 1 : 300, mode % 2 == 0 ? 131072 : 3000);
            if (batches[i] < 300 || mode % 7 == 0) {
                check(bed, fixture);
            }
            free(fixture);
        }
    }
}

static void the_order_is_by_work_and_then_by_index(struct flw_bed *bed)
{
    static const int32_t batches[] = {1, 2, 31, 33, 1000, 1025, 4096};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct fixture *fixture = make(batches[i]);
        fixture->params.sorted = 1;
        fixture->params.causal = i % 2 == 0;
        fixture->params.max_splits = 1; /* many equal counts of blocks */
        fill(bed, fixture, 400, 2000);
        check(bed, fixture);
        free(fixture);
    }
}

static void sizes_are_those_of_flash_attention(struct flw_bed *bed)
{
    static const struct {
        int32_t batch;
        uint64_t fa3, vllm;
    } sizes[] = {{1, 68, 52}, {8, 132, 100}, {64, 1028, 772}, {256, 4100, 3076}, {512, 8196, 6148}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct fixture *fixture = make(sizes[i].batch);
        fixture->params.layout = FALLOW_FA3_LAYOUT_VLLM;
        FLW_EXPECT(bed, step_of(bed, fixture).declared_bytes[0] == sizes[i].vllm, "vLLM, batch %d",
                   sizes[i].batch);
        fixture->params.layout = FALLOW_FA3_LAYOUT;
        fixture->params.sorted = 1;
        FLW_EXPECT(bed, step_of(bed, fixture).declared_bytes[0] == sizes[i].fa3, "FA3, batch %d",
                   sizes[i].batch);
        free(fixture);
    }
}

static void lengths_come_from_whichever_array_is_there(struct flw_bed *bed)
{
    for (int mode = 0; mode < 64; mode++) {
        struct fixture *fixture = make(23);
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
        free(fixture);
    }
}

static void rows_beyond_the_valid_ones_are_zero(struct flw_bed *bed)
{
    for (int32_t valid = -1; valid <= 11; valid++) {
        for (int mode = 0; mode < 3; mode++) {
            struct fixture *fixture = make(10);
            fixture->valid = valid;
            fixture->params.sorted = mode == 1;
            fixture->params.layout = mode == 2 ? FALLOW_FA3_LAYOUT_VLLM : FALLOW_FA3_LAYOUT;
            fill(bed, fixture, 100, 9000);
            check(bed, fixture);
            free(fixture);
        }
    }
}

static void empty_requests_take_one_split(struct flw_bed *bed)
{
    struct fixture *fixture = make(6); /* total = 0 */
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->expected[SPLITS][5] == 1, "splits of nothing");
    fixture->q[2] = 5; /* and one that attends nothing */
    check(bed, fixture);
    free(fixture);
}

static void what_is_out_of_bounds_is_flagged_and_defined(struct flw_bed *bed)
{
    struct fixture *fixture = make(5);
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
    free(fixture);
}

static void a_graph_takes_count_and_lengths_from_the_device(struct flw_bed *bed)
{
    struct fixture *fixture = make(512);
    int32_t metadata[2049];
    fixture->params.sorted = fixture->params.causal = 1;
    fixture->has.used_q = true;
    fixture->has.cu_q = false;
    fill(bed, fixture, 300, 131072);
    give_inputs(bed, fixture);
    void *outputs[] = {flw_bed_buffer(bed, "metadata", sizeof metadata)};
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, fixture, outputs);
    for (int32_t valid = 512; valid >= 0; valid -= 64) {
        fill(bed, fixture, 3, 200 * valid);
        fixture->valid = valid;
        flw_bed_write(bed, fixture->params.seqused_q, fixture->q, 2048);
        flw_bed_write(bed, fixture->params.seqused_k, fixture->k, 2048);
        flw_bed_write(bed, fixture->params.valid_count, &valid, 4);
        flw_bed_replay(bed, graph);
        flw_bed_read(bed, metadata, outputs[0], sizeof metadata);
        compare(bed, fixture, metadata);
    }
    free(fixture);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_fa3_schedule_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 8192);
    struct fixture *fixture = make(16);
    good = fixture->params;
    free(fixture);
    good.seqused_k = (void *)memory;
    good.cu_seqlens_q = (void *)(memory + 1024);
    good.metadata = (void *)(memory + 2048);
#define REFUSED(change, word)                                                     \
    bad = good;                                                                   \
    change;                                                                       \
    FLW_EXPECT_REFUSED(bed, fallow_attention_fa3_schedule(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.batch = -1, "batch");
    REFUSED(bad.batch = 65537, "batch");
    REFUSED((bad.sorted = 1, bad.batch = 4097), "batch");
    REFUSED((bad.sorted = 1, bad.layout = FALLOW_FA3_LAYOUT_VLLM), "sorted");
    REFUSED(bad.layout = (fallow_fa3_layout)2, "layout");
    REFUSED(bad.packed = 2, "packed");
    REFUSED(bad.causal = 2, "causal");
    REFUSED(bad.swizzled = 2, "swizzled");
    REFUSED(bad.no_semaphore = 2, "no_semaphore");
    REFUSED(bad.seqlen_q = -1, "seqlen_q");
    REFUSED(bad.seqlen_k = -1, "seqlen_k");
    REFUSED(bad.seqlen_k_new = -1, "seqlen_k_new");
    REFUSED(bad.heads_q = 0, "heads_q");
    REFUSED(bad.heads_kv = 0, "heads_kv");
    REFUSED(bad.heads_kv = 7, "heads_q 64 is not a multiple of heads_kv 7");
    REFUSED(bad.multiprocessors = 0, "multiprocessors");
    REFUSED(bad.block_m = 0, "block_m");
    REFUSED(bad.block_n = 1025, "block_n");
    REFUSED(bad.max_splits = 257, "max_splits");
    REFUSED(bad.head_dim = 0, "head_dim");
    REFUSED(bad.head_dim_v = -1, "head_dim_v");
    REFUSED(bad.dtype = FALLOW_I32, "dtype");
    REFUSED(bad.metadata = NULL, "metadata is NULL");
    REFUSED(bad.metadata = (void *)(memory + 2050), "metadata is not aligned");
    REFUSED(bad.metadata = (void *)memory, "seqused_k and metadata overlap");
    REFUSED(bad.flags = (void *)(memory + 2048), "metadata and flags overlap");
    REFUSED(bad.struct_size = 0, "struct_size");
#undef REFUSED
    FLW_EXPECT(bed, fallow_attention_fa3_schedule(NULL, &good, stream) == FALLOW_INVALID_ARGUMENT,
               "NULL kernels");
    FLW_EXPECT(bed, fallow_attention_fa3_schedule_query(&good, NULL) == FALLOW_INVALID_ARGUMENT,
               "NULL need");
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(an_example_comes_out),
        FLW_BED_TEST(metadata_is_exact_for_every_batch_and_mode),
        FLW_BED_TEST(the_order_is_by_work_and_then_by_index),
        FLW_BED_TEST(sizes_are_those_of_flash_attention),
        FLW_BED_TEST(lengths_come_from_whichever_array_is_there),
        FLW_BED_TEST(rows_beyond_the_valid_ones_are_zero),
        FLW_BED_TEST(empty_requests_take_one_split),
        FLW_BED_TEST(what_is_out_of_bounds_is_flagged_and_defined),
        FLW_BED_TEST(a_graph_takes_count_and_lengths_from_the_device),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
