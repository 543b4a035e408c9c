/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/attention.h"
#include "kernel/bed.h"

struct fixture {
    fallow_padded_copy_params params;
    int64_t *src; /* [src_rows, width] */
    int32_t valid;
};

static void make(struct flw_bed *bed, struct fixture *fixture, int64_t rows, int64_t width,
                 fallow_dtype dtype)
{
    fallow_padded_copy_params_init(&fixture->params);
    fixture->params.rows = rows;
    fixture->params.width = width;
    fixture->params.dtype = dtype;
    fixture->params.value = -1;
    fixture->valid = (int32_t)rows;
    fixture->src = flw_bed_host((size_t)(rows * width) * 8);
    for (int64_t i = 0; i < rows * width; i++) {
        fixture->src[i] = flw_bed_random_below(bed, INT32_MAX);
    }
}

/* Only the valid rows are uploaded: a read of any other is a violation. */
static void upload(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_padded_copy_params *params = &fixture->params;
    int64_t rows = params->src_rows == 0 ? params->rows : params->src_rows;
    int64_t valid = fixture->valid < 0 ? 0 : fixture->valid > rows ? rows : fixture->valid;
    params->src = flw_bed_buffer(
        bed, "src", (size_t)(rows * params->width) * fallow_dtype_bytes(params->dtype));
    flw_bed_write_ints(bed, params->src, fixture->src, (size_t)(valid * params->width),
                       params->dtype);
    params->valid_count = flw_bed_upload(bed, "valid_count", &fixture->valid, 4);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_padded_copy_params params = ((struct fixture *)inputs)->params;
    params.dst = outputs[0];
    FLW_EXPECT_OK(bed,
                  fallow_attention_padded_copy(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_padded_copy_query(&fixture->params, &need), &need);
    return step;
}

static void compare(struct flw_bed *bed, const struct fixture *fixture, const unsigned char *dst)
{
    const fallow_padded_copy_params *params = &fixture->params;
    size_t each = fallow_dtype_bytes(params->dtype);
    int64_t rows = params->src_rows == 0 ? params->rows : params->src_rows;
    for (int64_t i = 0; i < params->rows * params->width; i++) {
        int64_t row = i / params->width;
        int64_t want = row < fixture->valid && row < rows ? fixture->src[i] : params->value;
        FLW_EXPECT(bed, memcmp(dst + (size_t)i * each, &want, each) == 0,
                   "element %lld with %d of %lld valid", (long long)i, fixture->valid,
                   (long long)params->rows);
    }
}

static void check(struct flw_bed *bed, struct fixture *fixture)
{
    struct fixture larger, smaller;
    const fallow_padded_copy_params *params = &fixture->params;
    unsigned char *dst = flw_bed_host((size_t)(params->rows * params->width) * 8);
    make(bed, &larger, params->rows + 9, params->width, params->dtype);
    make(bed, &smaller, params->rows / 2, params->width, params->dtype);
    upload(bed, fixture);
    upload(bed, &larger);
    upload(bed, &smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, &larger),
                        after = step_of(bed, &smaller);
    flw_bed_prove(bed, &step, &before, &after, (void *[]){dst});
    compare(bed, fixture, dst);
    free(dst);
    free(larger.src);
    free(smaller.src);
}

static void vectors_and_rows_are_copied_and_padded(struct flw_bed *bed)
{
    static const int64_t rows[] = {0, 1, 7, 512, 1030}, widths[] = {1, 3, 8};
    for (int r = 0; r < 5; r++) {
        for (int w = 0; w < 3; w++) {
            for (int part = -1; part <= 3; part++) { /* -1, 0, a third, two, more than all */
                struct fixture fixture;
                make(bed, &fixture, rows[r], widths[w], (part & 1) != 0 ? FALLOW_I64 : FALLOW_I32);
                fixture.valid = part < 1 ? part : (int32_t)(rows[r] * part / 3 + part / 3);
                check(bed, &fixture);
                free(fixture.src);
            }
        }
    }
}

static void a_shorter_source_bounds_what_is_copied(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 40, 2, FALLOW_I64);
    fixture.params.src_rows = 11;
    fixture.params.value = INT64_MIN;
    check(bed, &fixture);
    free(fixture.src);
}

static void in_place_only_the_padding_changes(struct flw_bed *bed)
{
    struct fixture fixture;
    unsigned char dst[77 * 3 * 4];
    make(bed, &fixture, 77, 3, FALLOW_I32);
    fixture.valid = 50;
    upload(bed, &fixture);
    launch(bed, &fixture, (void *[]){(void *)(uintptr_t)fixture.params.src});
    flw_bed_read(bed, dst, fixture.params.src, sizeof dst);
    compare(bed, &fixture, dst);
    free(fixture.src);
}

/* Rows of 6 in rows of 8 and of 10: the gaps stay. */
static void strides_leave_what_is_between_alone(struct flw_bed *bed)
{
    for (int s = 0; s < 2; s++) {
        fallow_padded_copy_params params;
        int32_t src[5 * 8], dst[5 * 12], valid = 3;
        int64_t stride = s == 0 ? 12 : 10; /* a multiple of 16 bytes, or not */
        for (int i = 0; i < 40; i++) {
            src[i] = (int32_t)flw_bed_random_below(bed, INT32_MAX);
        }
        memset(dst, 0x5a, sizeof dst);
        fallow_padded_copy_params_init(&params);
        params.src = flw_bed_upload(bed, "src", src, sizeof src);
        params.dst = flw_bed_upload(bed, "dst", dst, sizeof dst);
        params.valid_count = flw_bed_upload(bed, "valid_count", &valid, 4);
        params.rows = 5;
        params.width = 6;
        params.src_stride = 8;
        params.dst_stride = stride;
        params.value = 9;
        FLW_EXPECT_OK(
            bed, fallow_attention_padded_copy(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
        flw_bed_read(bed, dst, params.dst, sizeof dst);
        for (int64_t i = 0; i < 5 * stride; i++) {
            int64_t row = i / stride, column = i % stride;
            int32_t want = column >= 6 ? 0x5a5a5a5a : row < valid ? src[row * 8 + column] : 9;
            FLW_EXPECT(bed, dst[i] == want, "row %lld, column %lld: %d", (long long)row,
                       (long long)column, dst[i]);
        }
    }
}

/* Lengths and positions of a graph's batch: dirty buffers are complete before the capture reads
 * them, and after each replay with fewer requests. */
static void a_graph_finds_legal_lengths_and_positions_in_every_row(struct flw_bed *bed)
{
    enum {
        BATCH = 160
    };
    struct fixture lengths, positions;
    make(bed, &lengths, BATCH, 1, FALLOW_I32);
    make(bed, &positions, BATCH, 1, FALLOW_I64);
    lengths.params.value = 1;
    positions.params.value = 0;
    upload(bed, &lengths);
    upload(bed, &positions);
    void *of_lengths[] = {flw_bed_buffer(bed, "seq_lens", BATCH * 4)};
    void *of_positions[] = {flw_bed_buffer(bed, "positions", BATCH * 8)};
    struct flw_bed_graph *first = flw_bed_capture(bed, launch, &lengths, of_lengths);
    struct flw_bed_graph *second = flw_bed_capture(bed, launch, &positions, of_positions);
    for (int32_t valid = BATCH; valid >= 0; valid -= 53) {
        int32_t got_lengths[BATCH];
        int64_t got_positions[BATCH];
        lengths.valid = positions.valid = valid;
        flw_bed_write(bed, lengths.params.valid_count, &valid, 4);
        flw_bed_write(bed, positions.params.valid_count, &valid, 4);
        flw_bed_replay(bed, first);
        flw_bed_replay(bed, second);
        flw_bed_read(bed, got_lengths, of_lengths[0], sizeof got_lengths);
        flw_bed_read(bed, got_positions, of_positions[0], sizeof got_positions);
        compare(bed, &lengths, (unsigned char *)got_lengths);
        compare(bed, &positions, (unsigned char *)got_positions);
    }
    free(lengths.src);
    free(positions.src);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_padded_copy_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 4096);
    fallow_padded_copy_params_init(&good);
    good.rows = 8;
    good.src = memory;
    good.dst = memory + 1024;
#define REFUSED(change, word)                                                    \
    bad = good;                                                                  \
    change;                                                                      \
    FLW_EXPECT_REFUSED(bed, fallow_attention_padded_copy(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.rows = -1, "rows");
    REFUSED(bad.src_rows = 9, "src_rows");
    REFUSED(bad.width = -1, "width");
    REFUSED((bad.width = 4, bad.dst_stride = 3), "dst_stride");
    REFUSED((bad.width = 4, bad.src_stride = 3), "src_stride");
    REFUSED(bad.dtype = FALLOW_F32, "dtype");
    REFUSED(bad.value = (int64_t)1 << 31, "value");
    REFUSED(bad.src = NULL, "src is NULL");
    REFUSED(bad.dst = NULL, "dst is NULL");
    REFUSED(bad.dst = memory + 1026, "dst is not aligned");
    REFUSED(bad.dst = memory + 16, "src and dst overlap");
    REFUSED((bad.dst = memory, bad.dst_stride = 2), "src and dst overlap");
    REFUSED(bad.valid_count = (int32_t *)(void *)(memory + 1028), "valid_count and dst overlap");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(vectors_and_rows_are_copied_and_padded),
        FLW_BED_TEST(a_shorter_source_bounds_what_is_copied),
        FLW_BED_TEST(in_place_only_the_padding_changes),
        FLW_BED_TEST(strides_leave_what_is_between_alone),
        FLW_BED_TEST(a_graph_finds_legal_lengths_and_positions_in_every_row),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
