/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/attention.h"
#include "kernel/call.h"

FLW_MODULE(padded_copy, fallow_attention_padded_copy, fallow_padded_copy, FLW_IN(src),
           FLW_OUT_OVER(dst, " src "), FLW_IN_MAYBE(valid_count), FLW_COUNT(rows, 0, INT32_MAX),
           FLW_COUNT(src_rows, 0, 8), FLW_COUNT(width, 0, INT32_MAX), FLW_STRIDE(src_stride, 4),
           FLW_STRIDE(dst_stride, 4), FLW_COUNT(value, INT32_MIN, INT32_MAX),
           FLW_DTYPE(dtype, FLW_INTEGERS))

struct fixture {
    struct flw_call call;
    fallow_padded_copy_params params;
    int64_t *src; /* [rows, src_stride] */
    int32_t valid;
};

/* The source ends with its last row's `width` elements. */
static struct fixture *make_apart(struct flw_bed *bed, int64_t rows, int64_t width,
                                  int64_t src_stride, fallow_dtype dtype)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    size_t count = rows > 0 ? (size_t)((rows - 1) * src_stride + width) : 0;
    flw_call_init(bed, &fixture->call, padded_copy(), &fixture->params);
    fixture->params.rows = rows;
    fixture->params.width = width;
    fixture->params.src_stride = src_stride;
    fixture->params.dtype = dtype;
    fixture->params.value = -1;
    fixture->valid = (int32_t)rows;
    fixture->src =
        flw_call_draw_typed(&fixture->call, "src", count, &fixture->params.dtype, INT32_MAX);
    flw_call_bind(&fixture->call, "valid_count", &fixture->valid, 1, 4);
    return fixture;
}

static struct fixture *make(struct flw_bed *bed, int64_t rows, int64_t width, fallow_dtype dtype)
{
    return make_apart(bed, rows, width, width, dtype);
}

static int64_t valid_of(const struct fixture *fixture)
{
    const fallow_padded_copy_params *params = &fixture->params;
    int64_t rows = params->src_rows == 0 ? params->rows : params->src_rows;
    return fixture->valid < 0 ? 0 : fixture->valid > rows ? rows : fixture->valid;
}

/* Compare rows of `stride` elements; those between them still hold the mark. */
static void compare(struct flw_bed *bed, const struct fixture *fixture, const char *dst,
                    int64_t stride)
{
    const fallow_padded_copy_params *params = &fixture->params;
    size_t each = fallow_dtype_bytes(params->dtype);
    int64_t count = params->rows > 0 ? (params->rows - 1) * stride + params->width : 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i / stride, column = i % stride, want = params->value;
        if (column >= params->width) {
            want = 0x5a5a5a5a5a5a5a5a;
        } else if (row < valid_of(fixture)) {
            want = fixture->src[row * params->src_stride + column];
        }
        FLW_EXPECT(bed, memcmp(dst + (size_t)i * each, &want, each) == 0,
                   "row %lld, column %lld with %d of %lld valid", (long long)row, (long long)column,
                   fixture->valid, (long long)params->rows);
    }
}

/* Rows that are not valid stay unwritten on the device: a read is a violation. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    int64_t width = fixture->params.width;
    flw_call_written(&fixture->call, "src", valid_of(fixture) * width);
    flw_call_prove(&fixture->call);
    compare(bed, fixture, fixture->call.out[0], width);
}

FLW_TEST(vectors_and_rows_are_copied_and_padded)
{
    static const int64_t rows[] = {0, 1, 7, 512, 1030}, widths[] = {1, 3, 8};
    for (int r = 0; r < 5; r++) {
        for (int w = 0; w < 3; w++) {
            for (int part = -1; part <= 3; part++) { /* -1, 0, a third, two, more than all */
                struct fixture *fixture =
                    make(bed, rows[r], widths[w], (part & 1) != 0 ? FALLOW_I64 : FALLOW_I32);
                fixture->valid = part < 1 ? part : (int32_t)(rows[r] * part / 3 + part / 3);
                check(bed, fixture);
            }
        }
    }
}

FLW_TEST(a_shorter_source_bounds_the_copy)
{
    struct fixture *fixture = make(bed, 40, 2, FALLOW_I64);
    fixture->params.src_rows = 11;
    fixture->params.value = INT64_MIN;
    check(bed, fixture);
}

FLW_TEST(in_place_only_the_padding_changes)
{
    struct fixture *fixture = make(bed, 77, 3, FALLOW_I32);
    char dst[77 * 3 * 4];
    fixture->valid = 50;
    flw_call_written(&fixture->call, "src", 50 * 3);
    (void)flw_call_need(&fixture->call);
    flw_call_give(&fixture->call);
    void *src = (void *)(uintptr_t)fixture->params.src;
    flw_call_launch(&fixture->call, &src);
    flw_bed_read(bed, dst, src, sizeof dst);
    compare(bed, fixture, dst, 3);
}

FLW_TEST(strides_leave_gaps_alone)
{
    for (int s = 0; s < 2; s++) {
        struct fixture *fixture = make_apart(bed, 5, 6, 8, FALLOW_I32);
        fixture->params.dst_stride = s == 0 ? 12 : 10; /* a multiple of 16 bytes, or not */
        fixture->params.value = 9;
        fixture->valid = 3;
        flw_call_run(&fixture->call);
        compare(bed, fixture, fixture->call.out[0], fixture->params.dst_stride);
    }
}

/* Lengths and positions of a graph's batch: dirty buffers are complete before the capture reads
 * them, and after each replay with fewer requests. */
FLW_TEST(a_graph_finds_legal_lengths_and_positions_in_every_row)
{
    struct fixture *fixtures[] = {make(bed, 160, 1, FALLOW_I32), make(bed, 160, 1, FALLOW_I64)};
    for (int f = 0; f < 2; f++) {
        fixtures[f]->params.value = 1 - f;
        flw_call_capture(&fixtures[f]->call);
        for (fixtures[f]->valid = 160; fixtures[f]->valid >= 0; fixtures[f]->valid -= 53) {
            flw_call_replay(&fixtures[f]->call);
            compare(bed, fixtures[f], fixtures[f]->call.out[0], 1);
        }
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    FLW_CALL_REFUSE(&make(bed, 8, 4, FALLOW_I32)->call,
                    "dst=@src dst_stride=5: src and dst overlap",
                    "valid_count=@dst+4: valid_count and dst overlap");
}
