/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/attention.h"
#include "kernel/bed.h"

#define MOST 65536

/* Parameters of a call on the host, and the buffers on the device. */
struct fixture {
    fallow_cu_seqlens_params params;
    int64_t *lengths; /* [rows, batch] */
    int32_t delta, valid;
    int64_t *cu; /* the expected offsets, [rows, width] */
    int64_t total[8], longest[8];
    size_t width;
};

/* An independent oracle: sums from scratch for every element. */
static void expect(struct fixture *fixture)
{
    const fallow_cu_seqlens_params *params = &fixture->params;
    int64_t largest = params->cu_dtype == FALLOW_I32 ? INT32_MAX : INT64_MAX;
    for (int64_t row = 0; row < params->rows; row++) {
        int64_t sum = 0, longest = 0;
        for (int64_t i = 0; i <= params->batch; i++) {
            if (i < (int64_t)fixture->width) {
                fixture->cu[row * (int64_t)fixture->width + i] = sum < largest ? sum : largest;
            }
            int64_t s = 0;
            if (i < params->batch && i < fixture->valid) {
                s = fixture->lengths[row * params->batch + i] + fixture->delta;
            }
            s = s > 0 ? s : 0;
            longest = s > longest ? s : longest;
            while (s % params->round_to != 0) {
                s++;
            }
            sum += s;
        }
        fixture->total[row] = sum < largest ? sum : largest;
        fixture->longest[row] = longest < INT32_MAX ? longest : INT32_MAX;
    }
}

static void make(struct flw_bed *bed, struct fixture *fixture, int32_t batch, int32_t rows,
                 int64_t longest)
{
    fallow_cu_seqlens_params_init(&fixture->params);
    fixture->params.batch = batch;
    fixture->params.rows = rows;
    fixture->params.round_to = 1;
    fixture->valid = batch;
    fixture->width = (size_t)batch + 1;
    fixture->lengths = flw_bed_host((size_t)batch * (size_t)rows * 8);
    fixture->cu = flw_bed_host(((size_t)batch + 1) * (size_t)rows * 8);
    for (int64_t i = 0; i < (int64_t)batch * rows; i++) {
        fixture->lengths[i] = flw_bed_random_below(bed, longest + 1);
    }
}

static void drop(struct fixture *fixture)
{
    free(fixture->lengths);
    free(fixture->cu);
}

static int64_t int_at(const void *base, size_t i, fallow_dtype dtype)
{
    int64_t wide;
    int32_t narrow;
    if (dtype == FALLOW_I32) {
        memcpy(&narrow, (const char *)base + i * 4, 4);
        return narrow;
    }
    memcpy(&wide, (const char *)base + i * 8, 8);
    return wide;
}

static void give_inputs(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_cu_seqlens_params *params = &fixture->params;
    params->lengths =
        flw_bed_upload_ints(bed, "lengths", fixture->lengths,
                            (size_t)params->batch * (size_t)params->rows, params->lengths_dtype);
    params->delta = flw_bed_upload(bed, "delta", &fixture->delta, 4);
    params->valid_count = flw_bed_upload(bed, "valid_count", &fixture->valid, 4);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_cu_seqlens_params params = ((struct fixture *)inputs)->params;
    params.cu_seqlens = outputs[0];
    params.total = outputs[1];
    params.max_length = outputs[2];
    FLW_EXPECT_OK(bed,
                  fallow_attention_cu_seqlens(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_cu_seqlens_query(&fixture->params, &need), &need);
    return step;
}

/* Prove a case, and compare with the oracle. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    struct fixture larger, smaller;
    fallow_dtype dtype = fixture->params.cu_dtype;
    size_t rows = (size_t)fixture->params.rows, count = fixture->width * rows;
    void *out[] = {flw_bed_host(count * 8), flw_bed_host(rows * 8), flw_bed_host(rows * 4)};
    make(bed, &larger, fixture->params.batch + 9, fixture->params.rows + 1, 1000);
    make(bed, &smaller, fixture->params.batch / 2, 1, 1000);
    larger.params.cu_dtype = smaller.params.cu_dtype = dtype;
    give_inputs(bed, fixture);
    give_inputs(bed, &larger);
    give_inputs(bed, &smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, &larger),
                        after = step_of(bed, &smaller);
    flw_bed_prove(bed, &step, &before, &after, out);
    expect(fixture);
    for (size_t i = 0; i < count; i++) {
        FLW_EXPECT(bed, int_at(out[0], i, dtype) == fixture->cu[i],
                   "cu_seqlens[%zu] of batch %d is %lld, expected %lld", i, fixture->params.batch,
                   (long long)int_at(out[0], i, dtype), (long long)fixture->cu[i]);
    }
    for (size_t row = 0; row < rows; row++) {
        FLW_EXPECT(bed, int_at(out[1], row, dtype) == fixture->total[row], "total of row %zu", row);
        FLW_EXPECT(bed, int_at(out[2], row, FALLOW_I32) == fixture->longest[row],
                   "max_length of row %zu", row);
    }
    for (int i = 0; i < 3; i++) {
        free(out[i]);
    }
    drop(&larger);
    drop(&smaller);
}

static void sums_are_exact_for_every_batch(struct flw_bed *bed)
{
    static const int32_t batches[] = {0, 1, 2, 7, 8, 64, 256, 512, 4095, 4096, 4097};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct fixture fixture = {.delta = 0};
        make(bed, &fixture, batches[i], 1, 131072);
        check(bed, &fixture);
        drop(&fixture);
    }
}

static void the_largest_batch_is_exact(struct flw_bed *bed)
{
    struct fixture fixture = {.delta = 0};
    make(bed, &fixture, MOST - 9, 1, 30000); /* the larger step of the proof has 9 more */
    check(bed, &fixture);
    drop(&fixture);
}

static void the_tail_is_flat_and_delta_counts_for_valid_rows_only(struct flw_bed *bed)
{
    for (int32_t valid = -1; valid <= 9; valid++) {
        struct fixture fixture = {.delta = 0};
        make(bed, &fixture, 8, 3, 50);
        fixture.delta = 5;
        fixture.valid = valid;
        fixture.params.round_to = valid % 2 == 0 ? 128 : 1;
        check(bed, &fixture);
        drop(&fixture);
    }
}

static void types_forms_and_rows_agree(struct flw_bed *bed)
{
    for (int bits = 0; bits < 8; bits++) {
        struct fixture fixture = {.delta = 0};
        make(bed, &fixture, 100, 4, 70000);
        fixture.delta = -3;
        fixture.params.lengths_dtype = (bits & 1) != 0 ? FALLOW_I64 : FALLOW_I32;
        fixture.params.cu_dtype = (bits & 2) != 0 ? FALLOW_I64 : FALLOW_I32;
        fixture.params.exclusive = (bits & 4) != 0;
        fixture.width -= fixture.params.exclusive;
        check(bed, &fixture);
        drop(&fixture);
    }
}

static int32_t flags_after(struct flw_bed *bed, struct fixture *fixture)
{
    fixture->params.flags = flw_bed_flags(bed);
    check(bed, fixture);
    return flw_bed_read_flags(bed, fixture->params.flags);
}

static void what_is_out_of_bounds_is_flagged_and_defined(struct flw_bed *bed)
{
    struct fixture fixture = {.delta = 0};
    make(bed, &fixture, 4, 1, 10);
    FLW_EXPECT(bed, flags_after(bed, &fixture) == 0, "flags without a cause");
    fixture.lengths[2] = -7;
    FLW_EXPECT(bed, flags_after(bed, &fixture) == FALLOW_FLAG_NEGATIVE, "no NEGATIVE");
    fixture.lengths[1] = fixture.lengths[2] = 2000000000;
    FLW_EXPECT(bed, flags_after(bed, &fixture) == FALLOW_FLAG_OVERFLOW, "no OVERFLOW");
    drop(&fixture);
}

static void lengths_may_lie_where_the_sums_do(struct flw_bed *bed)
{
    struct fixture fixture = {.delta = 0};
    make(bed, &fixture, 1000, 1, 500);
    int32_t sums[1001], *buffer = flw_bed_buffer(bed, "lengths and sums", sizeof sums);
    for (int i = 0; i < 1000; i++) {
        sums[i] = (int32_t)fixture.lengths[i];
    }
    flw_bed_write(bed, buffer, sums, 4000);
    fixture.params.lengths = buffer;
    fixture.params.cu_seqlens = buffer;
    FLW_EXPECT_OK(bed, fallow_attention_cu_seqlens(flw_bed_kernels(bed), &fixture.params,
                                                   flw_bed_stream(bed)));
    flw_bed_read(bed, sums, buffer, sizeof sums);
    expect(&fixture);
    for (int i = 0; i <= 1000; i++) {
        FLW_EXPECT(bed, sums[i] == fixture.cu[i], "element %d", i);
    }
    drop(&fixture);
}

static void a_graph_takes_count_delta_and_lengths_from_the_device(struct flw_bed *bed)
{
    struct fixture fixture = {.delta = 0};
    make(bed, &fixture, 512, 1, 131072);
    give_inputs(bed, &fixture);
    void *outputs[] = {flw_bed_buffer(bed, "cu_seqlens", 513 * 4), flw_bed_buffer(bed, "total", 4),
                       flw_bed_buffer(bed, "max_length", 4)};
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, &fixture, outputs);
    for (int32_t valid = 512; valid >= 0; valid -= 128) {
        int32_t lengths[512], cu[513], longest;
        for (int i = 0; i < 512; i++) {
            lengths[i] = (int32_t)(fixture.lengths[i] = flw_bed_random_below(bed, 100 + valid));
        }
        fixture.valid = valid;
        fixture.delta = valid % 256 == 0 ? 1 : 0;
        flw_bed_write(bed, fixture.params.lengths, lengths, sizeof lengths);
        flw_bed_write(bed, fixture.params.valid_count, &fixture.valid, 4);
        flw_bed_write(bed, fixture.params.delta, &fixture.delta, 4);
        flw_bed_replay(bed, graph);
        flw_bed_read(bed, cu, outputs[0], sizeof cu);
        flw_bed_read(bed, &longest, outputs[2], 4);
        expect(&fixture);
        for (int i = 0; i <= 512; i++) {
            FLW_EXPECT(bed, cu[i] == fixture.cu[i], "cu_seqlens[%d] of %d valid", i, valid);
        }
        FLW_EXPECT(bed, longest == fixture.longest[0], "max_length of %d valid", valid);
    }
    drop(&fixture);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_cu_seqlens_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 4096);
    fallow_cu_seqlens_params_init(&good);
    good.batch = 16;
    good.lengths = memory;
    good.cu_seqlens = memory + 1024;
#define REFUSED(change, status, word) \
    bad = good;                       \
    change;                           \
    FLW_EXPECT_REFUSED(bed, fallow_attention_cu_seqlens(kernels, &bad, stream), status, word)
    REFUSED(bad.batch = -1, FALLOW_INVALID_ARGUMENT, "batch");
    REFUSED(bad.batch = 65537, FALLOW_INVALID_ARGUMENT, "batch");
    REFUSED(bad.rows = -1, FALLOW_INVALID_ARGUMENT, "rows");
    REFUSED(bad.round_to = -4, FALLOW_INVALID_ARGUMENT, "round_to");
    REFUSED(bad.lengths_dtype = FALLOW_F32, FALLOW_INVALID_ARGUMENT, "lengths_dtype");
    REFUSED(bad.cu_dtype = (fallow_dtype)77, FALLOW_INVALID_ARGUMENT, "cu_dtype");
    REFUSED(bad.lengths = NULL, FALLOW_INVALID_ARGUMENT, "lengths is NULL");
    REFUSED(bad.cu_seqlens = NULL, FALLOW_INVALID_ARGUMENT, "cu_seqlens is NULL");
    REFUSED(bad.cu_seqlens = memory + 1026, FALLOW_INVALID_ARGUMENT, "cu_seqlens is not aligned");
    REFUSED(bad.cu_seqlens = memory + 8, FALLOW_INVALID_ARGUMENT, "lengths and cu_seqlens overlap");
    REFUSED(bad.total = memory + 1028, FALLOW_INVALID_ARGUMENT, "cu_seqlens and total overlap");
    REFUSED(bad.struct_size = 0, FALLOW_INVALID_ARGUMENT, "struct_size");
#undef REFUSED
    FLW_EXPECT(bed, fallow_attention_cu_seqlens(NULL, &good, stream) == FALLOW_INVALID_ARGUMENT,
               "NULL kernels");
    FLW_EXPECT(bed, fallow_attention_cu_seqlens_query(&good, NULL) == FALLOW_INVALID_ARGUMENT,
               "NULL need");
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(sums_are_exact_for_every_batch),
        FLW_BED_TEST(the_largest_batch_is_exact),
        FLW_BED_TEST(the_tail_is_flat_and_delta_counts_for_valid_rows_only),
        FLW_BED_TEST(types_forms_and_rows_agree),
        FLW_BED_TEST(what_is_out_of_bounds_is_flagged_and_defined),
        FLW_BED_TEST(lengths_may_lie_where_the_sums_do),
        FLW_BED_TEST(a_graph_takes_count_delta_and_lengths_from_the_device),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
