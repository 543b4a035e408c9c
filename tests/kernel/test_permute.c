/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "common/number.h"
#include "fallow/moe.h"
#include "kernel/call.h"

FLW_MODULE(permute, fallow_moe_permute, fallow_permute, FLW_IN(in), FLW_IN(positions),
           FLW_IN(offsets), FLW_IN(counts), FLW_OUT_BYTES(out), FLW_OUT(scales),
           FLW_OUT_MAYBE(flags), FLW_COUNT(tokens, 0, INT32_MAX),
           FLW_COUNT(row_count, 0, INT32_MAX), FLW_COUNT(width, 1, 1 << 20),
           FLW_COUNT(top_k, 1, 64), FLW_COUNT(experts, 1, 2048), FLW_STRIDE(in_stride, 128),
           FLW_STRIDE(out_stride, 128),
           FLW_DTYPE(dtype, FLW_FLOATS | 1 << FALLOW_E4M3 | 1 << FALLOW_U8),
           FLW_OUT_DTYPE(out_dtype, FALLOW_F32), FLW_ENUM(pad, FALLOW_PERMUTE_PAD_ZERO))

/* One call, and the owner of each row: a token, padding or none. */
struct fixture {
    struct flw_call call;
    fallow_permute_params params;
    unsigned char *in; /* [tokens, width] dtype */
    int32_t *positions, *offsets, *counts;
    int64_t *owners; /* [row_count] */
};

enum {
    NOBODY = -1,
    PADDING = -2,
    EXPERTS = 5
};

/* Draw experts, `dropped` percent of the choices without one; rows are laid out expert by expert,
 * each rounded up to align. */
static struct fixture *make(struct flw_bed *bed, int64_t tokens, int32_t width, int32_t top_k,
                            fallow_dtype dtype, int32_t align, int dropped)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    struct flw_call *call = &fixture->call;
    fallow_permute_params *params = &fixture->params;
    int64_t count = tokens * top_k;
    int32_t *ids = flw_bed_memory(bed, (size_t)count * 4), row = 0;
    size_t each = fallow_dtype_bytes(dtype), elements = (size_t)(tokens * width);
    flw_call_init(bed, call, permute(), params);
    params->tokens = tokens;
    params->width = width;
    params->top_k = top_k;
    params->dtype = params->out_dtype = dtype;
    params->experts = EXPERTS;
    fixture->in = flw_call_input(call, "in", elements, each);
    fixture->positions = flw_call_input(call, "positions", (size_t)count, 4);
    fixture->offsets = flw_call_input(call, "offsets", EXPERTS + 1, 4);
    fixture->counts = flw_call_input(call, "counts", EXPERTS, 4);
    for (size_t k = 0; k < elements; k++) {
        float size = ldexpf(1.0f, (int)flw_bed_random_below(bed, 12) - 6);
        float value = size * ((float)flw_bed_random_below(bed, 2001) / 1000.0f - 1.0f);
        fixture->in[k * each] = (unsigned char)flw_bed_random(bed);
        if (dtype != FALLOW_U8) {
            flw_number_narrow(fixture->in + k * each, dtype, value);
        }
    }
    for (int64_t i = 0; i < count; i++) {
        bool is_dropped = flw_bed_random_below(bed, 100) < dropped;
        ids[i] = is_dropped ? -1 : (int32_t)flw_bed_random_below(bed, EXPERTS);
        fixture->positions[i] = -1;
    }
    fixture->owners = flw_bed_memory(bed, (size_t)(count + (int64_t)EXPERTS * align) * 8);
    for (int32_t e = 0; e < EXPERTS; e++) {
        fixture->offsets[e] = row;
        for (int64_t i = 0; i < count; i++) {
            if (ids[i] == e) {
                fixture->owners[row] = i / top_k;
                fixture->positions[i] = row++;
            }
        }
        fixture->counts[e] = row - fixture->offsets[e];
        while (row % align != 0) {
            fixture->owners[row++] = PADDING;
        }
    }
    fixture->offsets[EXPERTS] = row;
    params->row_count = row;
    return fixture;
}

static void check_rows(struct flw_bed *bed, const struct fixture *fixture)
{
    const fallow_permute_params *params = &fixture->params;
    size_t bytes = (size_t)params->width * fallow_dtype_bytes(params->dtype);
    unsigned char *other = flw_bed_memory(bed, bytes), *out = fixture->call.out[0];
    for (int64_t row = 0; row < params->row_count; row++) {
        int64_t owner = fixture->owners[row];
        bool is_left = owner == PADDING && params->pad != FALLOW_PERMUTE_PAD_ZERO;
        memset(other, is_left || owner == NOBODY ? 0x5a : 0, bytes);
        const unsigned char *want = owner >= 0 ? fixture->in + (size_t)owner * bytes : other;
        FLW_EXPECT(bed, memcmp(out + (size_t)row * bytes, want, bytes) == 0,
                   "row %lld of %lld bytes is not that of %lld", (long long)row, (long long)bytes,
                   (long long)owner);
    }
}

FLW_TEST(rows_of_every_type_and_width_arrive)
{
    static const fallow_dtype dtypes[] = {FALLOW_F16, FALLOW_BF16, FALLOW_F32, FALLOW_E4M3,
                                          FALLOW_U8};
    static const int32_t widths[] = {1, 7, 64, 136, 300};
    static const int64_t tokens[] = {0, 1, 13};
    for (int k = 0; k < 75; k++) {
        int d = k / 15, w = k / 3 % 5, t = k % 3;
        bool zeroes = (d + w) % 2 == 0;
        struct fixture *fixture =
            make(bed, tokens[t], widths[w], t == 1 ? 1 : 4, dtypes[d], zeroes ? 8 : 1, 20);
        fixture->params.pad = zeroes ? FALLOW_PERMUTE_PAD_ZERO : FALLOW_PERMUTE_PAD_SKIP;
        flw_call_prove(&fixture->call);
        check_rows(bed, fixture);
    }
}

FLW_TEST(skipped_padding_and_rows_behind_keep_their_values)
{
    struct fixture *fixture = make(bed, 9, 40, 3, FALLOW_BF16, 16, 30);
    fixture->params.out_dtype = (fallow_dtype)0; /* the dtype */
    flw_call_run(&fixture->call);
    check_rows(bed, fixture);
}

static void check_quantised(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_permute_params *params = &fixture->params;
    const unsigned char *out = flw_call_out(&fixture->call, "out");
    const float *scales = flw_call_out(&fixture->call, "scales");
    size_t each = fallow_dtype_bytes(params->dtype);
    for (int64_t at = 0; at < params->row_count * params->width; at++) {
        int64_t owner = fixture->owners[at / params->width], i = at % params->width;
        float largest = 1e-10f, scale = scales[at / 128], want = 0.0f;
        for (int64_t k = i / 128 * 128; owner >= 0 && k < i / 128 * 128 + 128; k++) {
            float value = flw_number_widen(fixture->in + (size_t)(owner * params->width + k) * each,
                                           params->dtype);
            largest = fabsf(value) > largest ? fabsf(value) : largest;
            want = k == i ? value : want;
        }
        double got = (double)flw_e4m3_widen(out[at]) * (double)scale;
        FLW_EXPECT(bed, scale == (owner >= 0 ? largest / 448.0f : 0.0f), "scale of element %lld",
                   (long long)at);
        FLW_EXPECT(bed, owner >= 0 || out[at] == 0, "padding, element %lld", (long long)at);
        FLW_EXPECT(bed, fabs(got - (double)want) <= fabs((double)want) / 15.9 + scale * 0x1p-10,
                   "element %lld is %g, expected %g", (long long)at, got, (double)want);
    }
}

FLW_TEST(quantised_rows_are_within_half_a_step_and_padding_is_zero)
{
    static const fallow_dtype dtypes[] = {FALLOW_F16, FALLOW_BF16, FALLOW_F32};
    for (int d = 0; d < 3; d++) {
        for (int64_t tokens = 0; tokens < 12; tokens += 5) {
            struct fixture *fixture = make(bed, tokens, 384, 3, dtypes[d], 16, 10);
            fixture->params.out_dtype = FALLOW_E4M3;
            memset(fixture->in, 0, tokens > 0 ? 128 * fallow_dtype_bytes(dtypes[d]) : 0);
            flw_call_prove(&fixture->call);
            check_quantised(bed, fixture);
        }
    }
}

FLW_TEST(a_nan_stays_and_does_not_spoil_its_group)
{
    struct fixture *fixture = make(bed, 1, 128, 1, FALLOW_F32, 1, 0);
    fixture->params.out_dtype = FALLOW_E4M3;
    flw_number_narrow(fixture->in + 20, FALLOW_F32, NAN);
    flw_call_prove(&fixture->call);
    const unsigned char *out = flw_call_out(&fixture->call, "out");
    float scale = *(const float *)flw_call_out(&fixture->call, "scales");
    for (int i = 0; i < 128; i++) {
        FLW_EXPECT(bed, ((out[i] & 0x7f) == 0x7f) == (i == 5), "element %d is 0x%02x", i, out[i]);
    }
    FLW_EXPECT(bed, scale > 0 && isfinite(scale), "scale %g", (double)scale);
}

FLW_TEST(positions_beyond_the_rows_are_dropped_and_flagged)
{
    struct fixture *fixture = make(bed, 3, 16, 2, FALLOW_F32, 1, 0);
    memcpy(fixture->positions, (int32_t[]){5, 4, 3, 2, 6, INT32_MAX}, 24);
    memcpy(fixture->owners, (int64_t[]){NOBODY, NOBODY, 1, 1, 0, 0}, 48);
    fixture->call.want_flags = FALLOW_FLAG_INDEX;
    flw_call_run(&fixture->call);
    check_rows(bed, fixture);
}

/* Quantised, so that all outputs are there. */
FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = make(bed, 4, 128, 2, FALLOW_F32, 16, 0);
    fixture->params.out_dtype = FALLOW_E4M3;
    FLW_CALL_REFUSE(&fixture->call, "dtype=U8: out_dtype", "dtype=BF16 out_dtype=F32: out_dtype",
                    "width=96: width", "out_dtype=F32 out=@out+2: out is not aligned",
                    "experts=0: experts", "out_dtype=F32 pad=2 experts=0: experts",
                    "out_dtype=F32 pad=2 offsets=NULL: offsets is NULL",
                    "out=@out+8: multiples of 16", "in=@in+4: multiples of 16");
}
