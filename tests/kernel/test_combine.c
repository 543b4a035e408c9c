/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "common/number.h"
#include "fallow/moe.h"
#include "kernel/bed.h"
#include "moe/combine.h"

#define MOST_ROWS  64
#define MOST_WIDTH 136
#define MOST_K     8

/* One call, with the inputs in host memory; rows of 0 mod 7 are NaN. */
struct fixture {
    fallow_combine_params params;
    unsigned char rows[MOST_ROWS * MOST_WIDTH * 4];
    float weights[MOST_ROWS * MOST_K];
    int32_t positions[MOST_ROWS * MOST_K];
};

static float row_value(const struct fixture *fixture, int64_t row, int64_t i)
{
    int64_t at = row * fixture->params.width + i;
    return flw_number_widen(fixture->rows + at * (int64_t)fallow_dtype_bytes(fixture->params.dtype),
                            fixture->params.dtype);
}

static bool is_nan_row(int64_t row)
{
    return row % 7 == 0;
}

/* Choices of NaN rows have weight 0, or are dropped; others are random, some dropped. */
static struct fixture *make(struct flw_bed *bed, int64_t tokens, int32_t width, int32_t top_k,
                            fallow_dtype dtype)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    if (fixture == NULL) {
        abort();
    }
    fallow_combine_params *params = &fixture->params;
    fallow_combine_params_init(params);
    params->tokens = tokens;
    params->width = width;
    params->top_k = top_k;
    params->row_count = MOST_ROWS;
    params->dtype = dtype;
    for (int64_t k = 0; k < (int64_t)MOST_ROWS * width; k++) {
        float value = (float)flw_bed_random_below(bed, 2001) / 250.0f - 4.0f;
        flw_number_narrow(fixture->rows + k * (int64_t)fallow_dtype_bytes(dtype), dtype,
                          is_nan_row(k / width) ? NAN : value);
    }
    for (int64_t k = 0; k < tokens * top_k; k++) {
        fixture->positions[k] = (int32_t)flw_bed_random_below(bed, MOST_ROWS + 8) - 8;
        fixture->weights[k] = (float)flw_bed_random_below(bed, 1001) / 1000.0f;
        if (fixture->positions[k] >= 0 && is_nan_row(fixture->positions[k])) {
            fixture->weights[k] = 0.0f;
        }
    }
    params->rows = flw_bed_upload(bed, "rows", fixture->rows,
                                  MOST_ROWS * (size_t)width * fallow_dtype_bytes(dtype));
    params->weights =
        flw_bed_upload(bed, "weights", fixture->weights, (size_t)(tokens * top_k) * sizeof(float));
    params->positions = flw_bed_upload(bed, "positions", fixture->positions,
                                       (size_t)(tokens * top_k) * sizeof(int32_t));
    return fixture;
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_combine_params params = ((struct fixture *)inputs)->params;
    params.out = outputs[0];
    FLW_EXPECT_OK(bed, fallow_moe_combine(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_moe_combine_query(&fixture->params, &need), &need);
    return step;
}

static void prove(struct flw_bed *bed, struct fixture *fixture, void *out)
{
    const fallow_combine_params *params = &fixture->params;
    struct fixture *larger =
        make(bed, params->tokens + 2, params->width, params->top_k, params->dtype);
    struct fixture *smaller =
        make(bed, params->tokens / 2, params->width, params->top_k, params->dtype);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    flw_bed_prove(bed, &step, &before, &after, (void *[]){out});
    free(larger);
    free(smaller);
}

/* The sum of one element: the exact sum, the sum of absolute values, the number of choices. */
struct exact {
    double sum, size;
    int count;
};

static struct exact exact_sum(const struct fixture *fixture, int64_t token, int64_t i)
{
    const fallow_combine_params *params = &fixture->params;
    struct exact exact = {0, 0, 0};
    for (int32_t j = 0; j < params->top_k; j++) {
        int32_t row = fixture->positions[token * params->top_k + j];
        double weight = fixture->weights[token * params->top_k + j];
        if (row >= 0 && row < params->row_count && weight != 0) {
            double product = weight * (double)row_value(fixture, row, i);
            exact.sum += product;
            exact.size += fabs(product);
            exact.count++;
        }
    }
    return exact;
}

static double scale_of(const struct fixture *fixture)
{
    return fixture->params.scale == 0 ? 1.0 : (double)fixture->params.scale;
}

/* The error that moe.h states, and the last rounding of an element. */
static double room_for(const struct fixture *fixture, const struct exact *exact)
{
    double scale = fabs(scale_of(fixture));
    double room = FLW_COMBINE_ERROR(exact->count) * scale * exact->size +
                  (exact->count * scale + 1) * FLW_COMBINE_STEP / 2;
    fallow_dtype dtype = fixture->params.dtype;
    double last = dtype == FALLOW_BF16 ? 0x1p-8 : dtype == FALLOW_F16 ? 0x1p-11 : 0;
    return room + last * (fabs(scale * exact->sum) + room) + (dtype == FALLOW_F16 ? 0x1p-25 : 0);
}

static float round_if(const struct fixture *fixture, float value)
{
    unsigned char raw[4];
    flw_number_narrow(raw, fixture->params.dtype, value);
    return fixture->params.rounds_each ? flw_number_widen(raw, fixture->params.dtype) : value;
}

/* Return the exact bits of the definition: a double holds the product of two floats exactly, and
 * rounds the sum of two such that rounding again to float equals a single rounding. */
static float defined(const struct fixture *fixture, int64_t token, int64_t i)
{
    const fallow_combine_params *params = &fixture->params;
    unsigned char raw[4];
    float sum = 0;
    for (int32_t j = 0; j < params->top_k; j++) {
        int32_t row = fixture->positions[token * params->top_k + j];
        double weight = fixture->weights[token * params->top_k + j];
        if (row >= 0 && row < params->row_count && weight != 0) {
            float product = round_if(fixture, (float)(weight * (double)row_value(fixture, row, i)));
            sum = round_if(fixture, (float)((double)sum + (double)product));
        }
    }
    flw_number_narrow(raw, params->dtype, (float)(scale_of(fixture) * (double)sum));
    return flw_number_widen(raw, params->dtype);
}

static void check(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_combine_params *params = &fixture->params;
    unsigned char out[MOST_ROWS * MOST_WIDTH * 4];
    size_t each = fallow_dtype_bytes(params->dtype);
    prove(bed, fixture, out);
    for (int64_t k = 0; k < params->tokens * params->width; k++) {
        int64_t token = k / params->width, i = k % params->width;
        struct exact exact = exact_sum(fixture, token, i);
        double want = scale_of(fixture) * exact.sum;
        float got = flw_number_widen(out + k * (int64_t)each, params->dtype);
        FLW_EXPECT(bed, flw_number_bits(got) == flw_number_bits(defined(fixture, token, i)),
                   "element %lld is %a, defined as %a", (long long)k, (double)got,
                   (double)defined(fixture, token, i));
        FLW_EXPECT(bed,
                   params->rounds_each || fabs((double)got - want) <= room_for(fixture, &exact),
                   "element %lld is %g, exactly %g, off by more than %g", (long long)k, (double)got,
                   want, room_for(fixture, &exact));
    }
}

static void sums_are_as_defined_and_within_the_bound(struct flw_bed *bed)
{
    static const int32_t widths[] = {1, 7, 8, 136};
    static const int64_t tokens[] = {0, 1, 9};
    for (int d = 0; d < 3; d++) {
        for (int w = 0; w < 4; w++) {
            for (int t = 0; t < 3; t++) {
                static const fallow_dtype dtypes[] = {FALLOW_F16, FALLOW_BF16, FALLOW_F32};
                struct fixture *fixture =
                    make(bed, tokens[t], widths[w], t == 1 ? 1 : MOST_K, dtypes[d]);
                fixture->params.scale = w == 1 ? 2.5f : 0.0f;
                check(bed, fixture);
                free(fixture);
            }
        }
    }
}

static void a_token_with_nothing_left_gets_zeros(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 2, 24, 3, FALLOW_BF16);
    int32_t positions[] = {-1, -5, 0, 7, 14, -1}; /* dropped, or NaN with weight 0 */
    float weights[6] = {1, 1, 0, 0, 0, 1};
    uint16_t out[48];
    flw_bed_write(bed, fixture->params.positions, positions, sizeof positions);
    flw_bed_write(bed, fixture->params.weights, weights, sizeof weights);
    prove(bed, fixture, out);
    for (int i = 0; i < 48; i++) {
        FLW_EXPECT(bed, out[i] == 0, "element %d is 0x%04x", i, out[i]);
    }
    free(fixture);
}

static void positions_beyond_the_rows_are_dropped_and_flagged(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 4, 16, 2, FALLOW_F32);
    fixture->positions[3] = MOST_ROWS;
    fixture->weights[3] = 1.0f;
    flw_bed_write(bed, fixture->params.positions, fixture->positions, 32);
    fixture->params.flags = flw_bed_flags(bed);
    check(bed, fixture);
    int32_t flags = flw_bed_read_flags(bed, fixture->params.flags);
    FLW_EXPECT(bed, flags == FALLOW_FLAG_INDEX, "flags %d", flags);
    free(fixture);
}

static void without_weights_each_counts_one(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 3, 16, 2, FALLOW_F32);
    for (int k = 0; k < 6; k++) {
        fixture->positions[k] = k + 1; /* no NaN row */
        fixture->weights[k] = 1.0f;
    }
    flw_bed_write(bed, fixture->params.positions, fixture->positions, 24);
    fixture->params.weights = NULL;
    check(bed, fixture);
    free(fixture);
}

static void without_positions_choices_lie_in_order(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 5, 16, 3, FALLOW_F32);
    for (int k = 0; k < 15; k++) {
        fixture->positions[k] = k;
        fixture->weights[k] = is_nan_row(k) ? 0.0f : 0.5f;
    }
    flw_bed_write(bed, fixture->params.weights, fixture->weights, 60);
    fixture->params.positions = NULL;
    check(bed, fixture);
    free(fixture);
}

static void rounding_each_step_is_another_sum(struct flw_bed *bed)
{
    static const fallow_dtype dtypes[] = {FALLOW_F16, FALLOW_BF16, FALLOW_F32};
    for (int d = 0; d < 3; d++) {
        struct fixture *fixture = make(bed, 6, 8, 4, dtypes[d]);
        fixture->params.rounds_each = 1;
        fixture->params.scale = 2.5f;
        check(bed, fixture);
        free(fixture);
    }
}

/* (1 + 2^-12)^2 rounds to 1 + 2^-11, so the sum is 0; a fused operation would leave 2^-24. */
static void a_product_is_rounded_before_a_sum_takes_it(struct flw_bed *bed)
{
    const float tiny = 0x1p-12f;
    for (uint8_t rounds_each = 0; rounds_each < 2; rounds_each++) {
        struct fixture *fixture = make(bed, 2, 12, 2, FALLOW_F32);
        float rows[36] = {0};
        for (int i = 0; i < 12; i++) {
            rows[12 + i] = -(1 + 2 * tiny);
            rows[24 + i] = 1 + tiny;
        }
        for (int k = 0; k < 4; k++) {
            fixture->positions[k] = 1 + k % 2;
            fixture->weights[k] = k % 2 == 0 ? 1.0f : 1 + tiny;
        }
        flw_bed_write(bed, fixture->params.rows, rows, sizeof rows);
        flw_bed_write(bed, fixture->params.positions, fixture->positions, 16);
        flw_bed_write(bed, fixture->params.weights, fixture->weights, 16);
        fixture->params.rounds_each = rounds_each;
        float out[24];
        prove(bed, fixture, out);
        for (int k = 0; k < 24; k++) {
            FLW_EXPECT(bed, out[k] == 0, "element %d is %g", k, (double)out[k]);
        }
        free(fixture);
    }
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_combine_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 1 << 16);
    fallow_combine_params_init(&good);
    good.tokens = 4;
    good.row_count = 8;
    good.width = 32;
    good.top_k = 2;
    good.dtype = FALLOW_F32;
    good.rows = memory;
    good.positions = (int32_t *)(void *)(memory + 4096);
    good.out = memory + 8192;
#define REFUSED(change, word)                                                                   \
    bad = good;                                                                                 \
    change;                                                                                     \
    FLW_EXPECT_REFUSED(bed, fallow_moe_combine(kernels, &bad, stream), FALLOW_INVALID_ARGUMENT, \
                       word)
    REFUSED(bad.tokens = -1, "tokens");
    REFUSED(bad.tokens = (int64_t)1 << 31, "tokens");
    REFUSED(bad.row_count = -1, "row_count");
    REFUSED(bad.width = 0, "width");
    REFUSED(bad.top_k = 0, "top_k");
    REFUSED(bad.top_k = 65, "top_k");
    REFUSED(bad.dtype = FALLOW_E4M3, "dtype");
    REFUSED(bad.rows_stride = 31, "rows_stride");
    REFUSED(bad.out_stride = -1, "out_stride");
    REFUSED(bad.rows = NULL, "rows is NULL");
    REFUSED((bad.positions = NULL, bad.tokens = 5), "positions"); /* 10 choices, 8 rows */
    REFUSED(bad.out = NULL, "out is NULL");
    REFUSED(bad.out = memory + 8194, "out is not aligned");
    REFUSED(bad.out = memory + 512, "rows and out overlap");
    REFUSED(bad.out = memory + 4096, "positions and out overlap");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(sums_are_as_defined_and_within_the_bound),
        FLW_BED_TEST(a_token_with_nothing_left_gets_zeros),
        FLW_BED_TEST(positions_beyond_the_rows_are_dropped_and_flagged),
        FLW_BED_TEST(without_weights_each_counts_one),
        FLW_BED_TEST(without_positions_choices_lie_in_order),
        FLW_BED_TEST(rounding_each_step_is_another_sum),
        FLW_BED_TEST(a_product_is_rounded_before_a_sum_takes_it),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
