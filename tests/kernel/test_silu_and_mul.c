/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/number.h"
#include "fallow/moe.h"
#include "kernel/bed.h"
#include "moe/silu_and_mul.h"

/* One call: parameters, and the input in the host's memory. */
struct fixture {
    fallow_silu_and_mul_params params;
    unsigned char *in; /* [rows, in_stride] dtype */
    int64_t in_count;
};

static void set_in(struct fixture *fixture, int64_t i, float value)
{
    flw_number_narrow(fixture->in + i * (int64_t)fallow_dtype_bytes(fixture->params.dtype),
                      fixture->params.dtype, value);
}

static float get_in(const struct fixture *fixture, int64_t row, int64_t i)
{
    int64_t at = row * 2 * fixture->params.width + i;
    return flw_number_widen(fixture->in + at * (int64_t)fallow_dtype_bytes(fixture->params.dtype),
                            fixture->params.dtype);
}

/* Numbers of all sizes up to 30, both signs. */
static void make(struct flw_bed *bed, struct fixture *fixture, int64_t rows, int32_t width,
                 fallow_dtype dtype)
{
    fallow_silu_and_mul_params_init(&fixture->params);
    fixture->params.rows = rows;
    fixture->params.width = width;
    fixture->params.dtype = fixture->params.out_dtype = dtype;
    fixture->in_count = rows * 2 * width;
    fixture->in = flw_bed_host((size_t)fixture->in_count * 4);
    for (int64_t i = 0; i < fixture->in_count; i++) {
        float size = ldexpf(1.0f, (int)flw_bed_random_below(bed, 10) - 5);
        set_in(fixture, i, size * ((float)flw_bed_random_below(bed, 2001) / 1000.0f - 1.0f));
    }
}

static void upload(struct flw_bed *bed, struct fixture *fixture)
{
    fixture->params.in =
        flw_bed_upload(bed, "in", fixture->in,
                       (size_t)fixture->in_count * fallow_dtype_bytes(fixture->params.dtype));
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_silu_and_mul_params params = ((struct fixture *)inputs)->params;
    params.out = outputs[0];
    params.scales = params.out_dtype == FALLOW_E4M3 ? outputs[1] : NULL;
    FLW_EXPECT_OK(bed, fallow_moe_silu_and_mul(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_moe_silu_and_mul_query(&fixture->params, &need), &need);
    return step;
}

/* The result in double, before any rounding. */
static double expected(const struct fixture *fixture, int64_t row, int64_t i)
{
    double gate = get_in(fixture, row, i), up = get_in(fixture, row, fixture->params.width + i);
    return gate / (1.0 + exp(-gate)) * up;
}

/* |got - want| is at most the function's own error and the type's rounding. */
static bool is_close(float got, double want, fallow_dtype dtype)
{
    double ulp = dtype == FALLOW_BF16 ? 0x1p-8 : dtype == FALLOW_F16 ? 0x1p-11 : 0x1p-23;
    double room =
        fabs(want) * (ulp + FLW_SILU_ERROR) + (dtype == FALLOW_F16 ? 0x1p-25 : FLW_SILU_LEAST);
    return isnan(want) ? isnan(got) : isinf(want) ? (double)got == want : fabs(got - want) <= room;
}

static void prove(struct flw_bed *bed, struct fixture *fixture, void *const out[])
{
    struct fixture larger, smaller;
    const fallow_silu_and_mul_params *params = &fixture->params;
    make(bed, &larger, params->rows + 3, params->width, params->dtype);
    make(bed, &smaller, params->rows / 2 + 1, params->width, params->dtype);
    larger.params.out_dtype = smaller.params.out_dtype = params->out_dtype;
    upload(bed, fixture);
    upload(bed, &larger);
    upload(bed, &smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, &larger),
                        after = step_of(bed, &smaller);
    flw_bed_prove(bed, &step, &before, &after, out);
    free(larger.in);
    free(smaller.in);
}

static void check_close(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_silu_and_mul_params *params = &fixture->params;
    size_t each = fallow_dtype_bytes(params->dtype);
    unsigned char *out = flw_bed_host((size_t)params->rows * (size_t)params->width * each);
    prove(bed, fixture, (void *[]){out, NULL});
    for (int64_t row = 0; row < params->rows; row++) {
        for (int64_t i = 0; i < params->width; i++) {
            float got =
                flw_number_widen(out + (row * params->width + i) * (int64_t)each, params->dtype);
            FLW_EXPECT(bed, is_close(got, expected(fixture, row, i), params->dtype),
                       "row %lld, element %lld: %g, expected %g", (long long)row, (long long)i,
                       (double)got, expected(fixture, row, i));
        }
    }
    free(out);
}

static void every_type_and_width_is_close_to_double(struct flw_bed *bed)
{
    static const fallow_dtype dtypes[] = {FALLOW_F16, FALLOW_BF16, FALLOW_F32};
    static const int32_t widths[] = {1, 3, 8, 64, 129};
    static const int64_t rows[] = {0, 1, 5};
    for (int d = 0; d < 3; d++) {
        for (int w = 0; w < 5; w++) {
            for (int r = 0; r < 3; r++) {
                struct fixture fixture;
                make(bed, &fixture, rows[r], widths[w], dtypes[d]);
                check_close(bed, &fixture);
                free(fixture.in);
            }
        }
    }
}

static void infinities_and_nan_follow_the_formula(struct flw_bed *bed)
{
    static const float gates[] = {-INFINITY, INFINITY, NAN, -100.0f, -88.0f, 0.0f, 1.0f, INFINITY};
    static const float ups[] = {1.0f, 2.0f, 1.0f, 1.0f, INFINITY, INFINITY, NAN, 0.0f};
    struct fixture fixture;
    make(bed, &fixture, 1, 8, FALLOW_F32);
    for (int i = 0; i < 8; i++) {
        set_in(&fixture, i, gates[i]);
        set_in(&fixture, 8 + i, ups[i]);
    }
    float out[8];
    prove(bed, &fixture, (void *[]){out, NULL});
    FLW_EXPECT(bed, isnan(out[0]), "silu(-inf) is %g", (double)out[0]);
    FLW_EXPECT(bed, isinf(out[1]) && out[1] > 0, "silu(inf) 2 is %g", (double)out[1]);
    FLW_EXPECT(bed, isnan(out[2]) && isnan(out[6]), "a NaN was lost");
    FLW_EXPECT(bed, fabsf(out[3]) < 1e-36f && signbit(out[3]), "silu(-100) is %g", (double)out[3]);
    FLW_EXPECT(bed, isnan(out[5]) && isnan(out[7]), "inf * 0 is no NaN");
    free(fixture.in);
}

static void in_place_is_bit_equal_to_out_of_place(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 7, 48, FALLOW_BF16);
    size_t in_bytes = (size_t)fixture.in_count * 2;
    unsigned char *apart = flw_bed_host(7 * 48 * 2), *together = flw_bed_host(in_bytes);
    prove(bed, &fixture, (void *[]){apart, NULL});
    fixture.params.out = (void *)(uintptr_t)fixture.params.in;
    fixture.params.out_stride = 96;
    FLW_EXPECT_OK(
        bed, fallow_moe_silu_and_mul(flw_bed_kernels(bed), &fixture.params, flw_bed_stream(bed)));
    flw_bed_read(bed, together, fixture.params.in, in_bytes);
    for (int row = 0; row < 7; row++) {
        FLW_EXPECT(bed, memcmp(together + row * 192, apart + row * 96, 96) == 0, "row %d", row);
        FLW_EXPECT(bed, memcmp(together + row * 192 + 96, fixture.in + row * 192 + 96, 96) == 0,
                   "the up half of row %d was written", row);
    }
    free(apart);
    free(together);
    free(fixture.in);
}

static void rows_beyond_an_experts_count_are_left_alone(struct flw_bed *bed)
{
    int32_t counts[] = {2, 0, 3};
    struct fixture fixture;
    unsigned char out[9 * 16 * 4];
    make(bed, &fixture, 9, 16, FALLOW_F32);
    upload(bed, &fixture);
    fixture.params.group_rows = 3;
    fixture.params.row_counts = flw_bed_upload(bed, "row_counts", counts, sizeof counts);
    fixture.params.out = flw_bed_buffer(bed, "out", sizeof out);
    memset(out, 0x5a, sizeof out);
    flw_bed_write(bed, fixture.params.out, out, sizeof out);
    FLW_EXPECT_OK(
        bed, fallow_moe_silu_and_mul(flw_bed_kernels(bed), &fixture.params, flw_bed_stream(bed)));
    flw_bed_read(bed, out, fixture.params.out, sizeof out);
    for (int row = 0; row < 9; row++) {
        for (int i = 0; i < 16; i++) {
            float got;
            memcpy(&got, out + (row * 16 + i) * 4, 4);
            bool is_written = row % 3 < counts[row / 3];
            FLW_EXPECT(bed,
                       is_written ? is_close(got, expected(&fixture, row, i), FALLOW_F32)
                                  : flw_number_bits(got) == 0x5a5a5a5a,
                       "row %d, element %d", row, i);
        }
    }
    free(fixture.in);
}

static void quantised_values_are_within_half_a_step(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 4, 256, FALLOW_BF16);
    for (int i = 0; i < 256; i++) {
        set_in(&fixture, 512 + i, 0.0f); /* row 1: a group of zeros, and one more */
    }
    fixture.params.out_dtype = FALLOW_E4M3;
    unsigned char out[4 * 256];
    float scales[4 * 2];
    prove(bed, &fixture, (void *[]){out, scales});
    for (int64_t row = 0; row < 4; row++) {
        for (int64_t group = 0; group < 2; group++) {
            double largest = 1e-10, scale = scales[row * 2 + group];
            for (int64_t i = group * 128; i < group * 128 + 128; i++) {
                largest = fmax(largest, fabs(expected(&fixture, row, i)));
            }
            FLW_EXPECT(bed, fabs(scale - largest / 448) <= (FLW_SILU_ERROR + 0x1p-23) * scale,
                       "scale of row %lld", (long long)row);
            for (int64_t i = group * 128; i < group * 128 + 128; i++) {
                double want = expected(&fixture, row, i);
                double got = flw_e4m3_widen(out[row * 256 + i]) * scale;
                FLW_EXPECT(bed, fabs(got - want) <= fabs(want) / 15.9 + scale * 0x1p-10,
                           "row %lld, element %lld: %g, expected %g", (long long)row, (long long)i,
                           got, want);
            }
        }
    }
    free(fixture.in);
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
static void the_stated_error_holds_for_the_devices_arithmetic(struct flw_bed *bed)
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

static void silu_may_be_rounded_first(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 3, 40, FALLOW_BF16);
    fixture.params.rounds_silu = 1;
    uint16_t out[120];
    prove(bed, &fixture, (void *[]){out, NULL});
    for (int64_t k = 0; k < 120; k++) {
        float gate = get_in(&fixture, k / 40, k % 40), up = get_in(&fixture, k / 40, 40 + k % 40);
        double silu = flw_bf16_widen(flw_bf16_narrow((float)(gate / (1.0 + exp(-(double)gate)))));
        FLW_EXPECT(bed, fabs(flw_bf16_widen(out[k]) - silu * up) <= fabs(silu * up) * 0x1p-7,
                   "element %lld", (long long)k);
    }
    free(fixture.in);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_silu_and_mul_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 1 << 16);
    fallow_silu_and_mul_params_init(&good);
    good.rows = 4;
    good.width = 128;
    good.dtype = good.out_dtype = FALLOW_BF16;
    good.in = memory;
    good.out = memory + 4096;
#define REFUSED(change, word)                                               \
    bad = good;                                                             \
    change;                                                                 \
    FLW_EXPECT_REFUSED(bed, fallow_moe_silu_and_mul(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.rows = -1, "rows");
    REFUSED(bad.width = 0, "width");
    REFUSED((bad.rows = (int64_t)1 << 40, bad.in_stride = (int64_t)1 << 40), "in");
    REFUSED(bad.dtype = FALLOW_I32, "dtype");
    REFUSED(bad.out_dtype = FALLOW_F32, "out_dtype");
    REFUSED(bad.group_rows = 3, "group_rows");
    REFUSED(bad.in_stride = 255, "in_stride");
    REFUSED(bad.out_stride = 127, "out_stride");
    REFUSED(bad.in = NULL, "in is NULL");
    REFUSED(bad.out = NULL, "out is NULL");
    REFUSED(bad.out = memory + 4097, "out is not aligned");
    REFUSED(bad.out = memory, "in and out overlap"); /* compact, over the same memory */
    REFUSED((bad.out_stride = 256, bad.out = memory + 256), "in and out overlap");
    REFUSED(bad.out_dtype = FALLOW_E4M3, "scales is NULL");
    REFUSED((bad.out_dtype = FALLOW_E4M3, bad.width = 96), "width");
    REFUSED((bad.out_dtype = FALLOW_E4M3, bad.scales = (float *)(void *)memory), "overlap");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(every_type_and_width_is_close_to_double),
        FLW_BED_TEST(infinities_and_nan_follow_the_formula),
        FLW_BED_TEST(in_place_is_bit_equal_to_out_of_place),
        FLW_BED_TEST(rows_beyond_an_experts_count_are_left_alone),
        FLW_BED_TEST(quantised_values_are_within_half_a_step),
        FLW_BED_TEST(the_stated_error_holds_for_the_devices_arithmetic),
        FLW_BED_TEST(silu_may_be_rounded_first),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
