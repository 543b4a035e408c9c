/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "common/number.h"
#include "fallow/moe.h"
#include "kernel/call.h"
#include "moe/silu_and_mul.h"

FLW_MODULE(silu_and_mul, fallow_moe_silu_and_mul, fallow_silu_and_mul, FLW_IN(in),
           FLW_OUT_BYTES(out), FLW_OUT(scales), FLW_IN_MAYBE(row_counts),
           FLW_COUNT(rows, 0, (int64_t)1 << 40), FLW_COUNT(width, 1, 1 << 20),
           FLW_OTHER(group_rows), FLW_STRIDE(in_stride, 256), FLW_STRIDE(out_stride, 128),
           FLW_FLAG(rounds_silu), FLW_DTYPE(dtype, FLW_FLOATS),
           FLW_OUT_DTYPE(out_dtype, FALLOW_BF16))

struct fixture {
    struct flw_call call;
    fallow_silu_and_mul_params params;
    float *in; /* [rows, 2 width], of values that the dtype holds */
};

static float rounded(float value, fallow_dtype dtype)
{
    unsigned char raw[4];
    flw_number_narrow(raw, dtype, value);
    return flw_number_widen(raw, dtype);
}

/* Numbers of all sizes up to 30, both signs. */
static struct fixture *make(struct flw_bed *bed, int64_t rows, int32_t width, fallow_dtype dtype)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    size_t count = (size_t)(rows * 2 * width);
    flw_call_init(bed, &fixture->call, silu_and_mul(), &fixture->params);
    fixture->params.rows = rows;
    fixture->params.width = width;
    fixture->params.dtype = fixture->params.out_dtype = dtype;
    fixture->in = flw_call_typed(&fixture->call, "in", count, &fixture->params.dtype);
    for (size_t i = 0; i < count; i++) {
        float size = ldexpf(1.0f, (int)flw_bed_random_below(bed, 10) - 5);
        float value = size * ((float)flw_bed_random_below(bed, 2001) / 1000.0f - 1.0f);
        fixture->in[i] = rounded(value, dtype);
    }
    return fixture;
}

static float gate_of(const struct fixture *fixture, int64_t at)
{
    int64_t width = fixture->params.width;
    return fixture->in[at / width * 2 * width + at % width];
}

static float up_of(const struct fixture *fixture, int64_t at)
{
    int64_t width = fixture->params.width;
    return fixture->in[(at / width * 2 + 1) * width + at % width];
}

/* The result of element `at` of the output in double, before any rounding. */
static double expected(const struct fixture *fixture, int64_t at)
{
    double gate = gate_of(fixture, at);
    return gate / (1.0 + exp(-gate)) * up_of(fixture, at);
}

static float got_at(const struct fixture *fixture, int64_t at)
{
    fallow_dtype dtype = fixture->params.out_dtype;
    return flw_number_widen((const unsigned char *)fixture->call.out[0] +
                                at * (int64_t)fallow_dtype_bytes(dtype),
                            dtype);
}

/* |got - want| is at most the function's own error and the type's rounding. */
static void check_close(struct flw_bed *bed, const struct fixture *fixture, int64_t at)
{
    fallow_dtype dtype = fixture->params.dtype;
    double got = got_at(fixture, at), want = expected(fixture, at);
    double ulp = dtype == FALLOW_BF16 ? 0x1p-8 : dtype == FALLOW_F16 ? 0x1p-11 : 0x1p-23;
    double room =
        fabs(want) * (ulp + FLW_SILU_ERROR) + (dtype == FALLOW_F16 ? 0x1p-25 : FLW_SILU_LEAST);
    FLW_EXPECT(bed, fabs(got - want) <= room, "element %lld: %g, expected %g", (long long)at, got,
               want);
}

FLW_TEST(every_type_and_width_is_close_to_double)
{
    static const fallow_dtype dtypes[] = {FALLOW_F16, FALLOW_BF16, FALLOW_F32};
    static const int32_t widths[] = {1, 3, 8, 64, 129};
    static const int64_t rows[] = {0, 1, 5};
    for (int k = 0; k < 45; k++) {
        struct fixture *fixture = make(bed, rows[k % 3], widths[k / 3 % 5], dtypes[k / 15]);
        flw_call_prove(&fixture->call);
        for (int64_t at = 0; at < fixture->params.rows * fixture->params.width; at++) {
            check_close(bed, fixture, at);
        }
    }
}

FLW_TEST(infinities_and_nan_follow_the_formula)
{
    static const float values[] = {
        -INFINITY, INFINITY, NAN,  -100.0f, -88.0f,   0.0f,     1.0f, INFINITY, /* gates */
        1.0f,      2.0f,     1.0f, 1.0f,    INFINITY, INFINITY, NAN,  0.0f};    /* ups */
    struct fixture *fixture = make(bed, 1, 8, FALLOW_F32);
    memcpy(fixture->in, values, sizeof values);
    flw_call_prove(&fixture->call);
    const float *out = fixture->call.out[0];
    FLW_EXPECT(bed, isnan(out[0]), "silu(-inf) is %g", (double)out[0]);
    FLW_EXPECT(bed, isinf(out[1]) && out[1] > 0, "silu(inf) 2 is %g", (double)out[1]);
    FLW_EXPECT(bed, isnan(out[2]) && isnan(out[6]), "a NaN was lost");
    FLW_EXPECT(bed, fabsf(out[3]) < 1e-36f && signbit(out[3]), "silu(-100) is %g", (double)out[3]);
    FLW_EXPECT(bed, isnan(out[5]) && isnan(out[7]), "inf * 0 is no NaN");
}

FLW_TEST(in_place_is_bit_equal_to_out_of_place)
{
    struct fixture *fixture = make(bed, 7, 48, FALLOW_BF16);
    unsigned char before[7 * 192], together[7 * 192];
    flw_call_prove(&fixture->call);
    void *in = (void *)(uintptr_t)fixture->params.in;
    flw_bed_read(bed, before, in, sizeof before);
    fixture->params.out_stride = 96;
    flw_call_launch(&fixture->call, &in);
    flw_bed_read(bed, together, in, sizeof together);
    for (int row = 0; row < 7; row++) {
        const char *apart = (const char *)fixture->call.out[0] + (ptrdiff_t)row * 96;
        FLW_EXPECT(bed, memcmp(together + row * 192, apart, 96) == 0, "row %d", row);
        FLW_EXPECT(bed, memcmp(together + row * 192 + 96, before + row * 192 + 96, 96) == 0,
                   "the up half of row %d was written", row);
    }
}

FLW_TEST(rows_beyond_an_experts_count_keep_their_values)
{
    static const int32_t counts[] = {2, 0, 3};
    struct fixture *fixture = make(bed, 9, 16, FALLOW_F32);
    fixture->params.group_rows = 3;
    memcpy(flw_call_input(&fixture->call, "row_counts", 3, 4), counts, sizeof counts);
    flw_call_run(&fixture->call);
    for (int64_t at = 0; at < 9 * 16; at++) {
        if (at / 16 % 3 < counts[at / 48]) {
            check_close(bed, fixture, at);
        } else {
            FLW_EXPECT(bed, flw_number_bits(got_at(fixture, at)) == 0x5a5a5a5a, "element %lld",
                       (long long)at);
        }
    }
}

FLW_TEST(quantised_values_are_within_half_a_step)
{
    struct fixture *fixture = make(bed, 4, 256, FALLOW_BF16);
    memset(fixture->in + 512, 0, 256 * sizeof(float)); /* row 1: a group of zeros, and one more */
    fixture->params.out_dtype = FALLOW_E4M3;
    flw_call_prove(&fixture->call);
    const float *scales = flw_call_out(&fixture->call, "scales");
    for (int64_t group = 0; group < 8; group++) {
        double largest = 1e-10, scale = scales[group];
        for (int64_t at = group * 128; at < group * 128 + 128; at++) {
            double want = expected(fixture, at), got = got_at(fixture, at) * scale;
            largest = fmax(largest, fabs(want));
            FLW_EXPECT(bed, fabs(got - want) <= fabs(want) / 15.9 + scale * 0x1p-10,
                       "element %lld: %g, expected %g", (long long)at, got, want);
        }
        FLW_EXPECT(bed, fabs(scale - largest / 448) <= (FLW_SILU_ERROR + 0x1p-23) * scale,
                   "scale of group %lld", (long long)group);
    }
}

/* Return the largest relative error of the kernel's silu of x, times anything: its own roundings,
 * and the hardware's worst case. silu_and_mul.h has the steps. */
static double device_error(float x)
{
    const double hardware = 2.5 * 0x1p-23;
    double exact = (double)x / (1.0 + exp(-(double)x)), worst = 0;
    float y = x * -FLW_SILU_LOG2_OF_E;
    for (int sign = -1; sign <= 1; sign += 2) {
        float divisor = (float)(1.0 + exp2((double)y) * (1 + sign * hardware));
        double error = fabs((double)x / (double)divisor / exact - 1);
        worst = fmax(worst, error);
    }
    return worst + hardware + 0x1p-24;
}

/* Compare the bound with the limits in the device's documents, without a GPU. */
FLW_TEST(the_stated_error_holds_for_the_devices_arithmetic)
{
    double worst = 0;
    float at = 0, least = -126 / FLW_SILU_LOG2_OF_E; /* the divisor is below 2^126 from here on */
    for (int i = 0; i < 400000; i++) {
        float x = least + (float)flw_bed_random_below(bed, 1 << 24) * 0x1p-24f * 175;
        double error = x == 0 ? 0 : device_error(x);
        at = error > worst ? x : at;
        worst = fmax(worst, error);
    }
    FLW_EXPECT(bed, worst <= FLW_SILU_ERROR, "silu(%a) may be off by %g, more than %g", (double)at,
               worst, FLW_SILU_ERROR);
    FLW_EXPECT(bed, worst >= 0.85 * FLW_SILU_ERROR, "a bound of %g is enough", worst);
    double smallest = -(double)least / (1.0 + exp(-(double)least));
    FLW_EXPECT(bed, smallest <= FLW_SILU_LEAST, "silu(%g) is %g", (double)least, -smallest);
}

FLW_TEST(silu_may_be_rounded_first)
{
    struct fixture *fixture = make(bed, 3, 40, FALLOW_BF16);
    fixture->params.rounds_silu = 1;
    flw_call_prove(&fixture->call);
    for (int64_t k = 0; k < 120; k++) {
        double gate = gate_of(fixture, k);
        double want = rounded((float)(gate / (1.0 + exp(-gate))), FALLOW_BF16) * up_of(fixture, k);
        FLW_EXPECT(bed, fabs((double)got_at(fixture, k) - want) <= fabs(want) * 0x1p-7,
                   "element %lld", (long long)k);
    }
}

/* Quantised and with counts, so that all buffers are there. */
FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = make(bed, 4, 128, FALLOW_BF16);
    fixture->params.out_dtype = FALLOW_E4M3;
    fixture->params.group_rows = 2;
    flw_call_input(&fixture->call, "row_counts", 2, 4);
    FLW_CALL_REFUSE(&fixture->call, "rows=1099511627776 in_stride=1099511627776: in",
                    "group_rows=3: group_rows", "group_rows=-1: group_rows", "width=96: width",
                    "out=@out+8: multiples of 16", "out_dtype=BF16 out=@out+1: out is not aligned",
                    "out_dtype=BF16 out=@in: in and out overlap",
                    "out_dtype=BF16 out_stride=256 out=@in+256: in and out overlap");
}
