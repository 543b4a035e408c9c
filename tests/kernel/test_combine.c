/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "common/number.h"
#include "fallow/moe.h"
#include "kernel/call.h"
#include "moe/combine.h"

#define MOST_ROWS 64
#define MOST_K    8

FLW_MODULE(combine, fallow_moe_combine, fallow_combine, FLW_IN(rows), FLW_IN_MAYBE(weights),
           FLW_IN_MAYBE(positions), FLW_OUT(out), FLW_OUT_MAYBE(flags),
           FLW_COUNT(tokens, 0, INT32_MAX), FLW_COUNT(row_count, 0, INT32_MAX),
           FLW_COUNT(width, 1, 1 << 20), FLW_COUNT(top_k, 1, 64), FLW_STRIDE(rows_stride, 32),
           FLW_STRIDE(out_stride, 32), FLW_DTYPE(dtype, FLW_FLOATS), FLW_FLAG(rounds_each))

/* One call; rows of 0 mod 7 are NaN. */
struct fixture {
    struct flw_call call;
    fallow_combine_params params;
    float *rows; /* [MOST_ROWS, width], of values that the dtype holds */
    float *weights;
    int32_t *positions;
};

static float rounded(const struct fixture *fixture, double value)
{
    unsigned char raw[4];
    flw_number_narrow(raw, fixture->params.dtype, (float)value);
    return flw_number_widen(raw, fixture->params.dtype);
}

static bool is_nan_row(int64_t row)
{
    return row % 7 == 0;
}

/* Choices of NaN rows have weight 0, or are dropped; others are random, some dropped. */
static struct fixture *make(struct flw_bed *bed, int64_t tokens, int32_t width, int32_t top_k,
                            fallow_dtype dtype)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    fallow_combine_params *params = &fixture->params;
    size_t count = (size_t)MOST_ROWS * (size_t)width, choices = (size_t)(tokens * top_k);
    flw_call_init(bed, &fixture->call, combine(), params);
    params->tokens = tokens;
    params->width = width;
    params->top_k = top_k;
    params->row_count = MOST_ROWS;
    params->dtype = dtype;
    fixture->rows = flw_call_typed(&fixture->call, "rows", count, &params->dtype);
    fixture->weights = flw_call_input(&fixture->call, "weights", choices, 4);
    fixture->positions = flw_call_draw(&fixture->call, "positions", choices, MOST_ROWS + 8);
    for (size_t k = 0; k < count; k++) {
        double value = (double)flw_bed_random_below(bed, 2001) / 250.0 - 4.0;
        fixture->rows[k] = rounded(fixture, is_nan_row((int64_t)k / width) ? (double)NAN : value);
    }
    for (size_t k = 0; k < choices; k++) {
        fixture->positions[k] -= 8;
        fixture->weights[k] = (float)flw_bed_random_below(bed, 1001) / 1000.0f;
        if (fixture->positions[k] >= 0 && is_nan_row(fixture->positions[k])) {
            fixture->weights[k] = 0.0f;
        }
    }
    return fixture;
}

/* The sum of one element: as defined, exact, of absolute values; and the number of choices. */
struct sums {
    float defined;
    double exact, size;
    int count;
};

/* The defined sum has exact bits: a double holds the product of two floats exactly, and rounds the
 * sum of two such that rounding again to float equals a single rounding. */
static struct sums sums_of(const struct fixture *fixture, int64_t token, int64_t i)
{
    const fallow_combine_params *params = &fixture->params;
    struct sums sums = {0, 0, 0, 0};
    for (int64_t k = token * params->top_k; k < (token + 1) * params->top_k; k++) {
        int32_t row = fixture->positions[k];
        double weight = fixture->weights[k];
        if (row >= 0 && row < params->row_count && weight != 0) {
            double product = weight * (double)fixture->rows[row * params->width + i];
            float defined = (float)product;
            defined = params->rounds_each ? rounded(fixture, defined) : defined;
            sums.defined = (float)((double)sums.defined + (double)defined);
            sums.defined = params->rounds_each ? rounded(fixture, sums.defined) : sums.defined;
            sums.exact += product;
            sums.size += fabs(product);
            sums.count++;
        }
    }
    return sums;
}

/* The error that moe.h states, and the last rounding of an element. */
static double room_for(const struct fixture *fixture, const struct sums *sums, double scale)
{
    double room = FLW_COMBINE_ERROR(sums->count) * scale * sums->size +
                  (sums->count * scale + 1) * FLW_COMBINE_STEP / 2;
    fallow_dtype dtype = fixture->params.dtype;
    double last = dtype == FALLOW_BF16 ? 0x1p-8 : dtype == FALLOW_F16 ? 0x1p-11 : 0;
    return room + last * (fabs(scale * sums->exact) + room) + (dtype == FALLOW_F16 ? 0x1p-25 : 0);
}

static void check(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_combine_params *params = &fixture->params;
    size_t each = fallow_dtype_bytes(params->dtype);
    double scale = params->scale == 0 ? 1.0 : (double)params->scale;
    flw_call_prove(&fixture->call);
    const char *out = fixture->call.out[0];
    for (int64_t k = 0; k < params->tokens * params->width; k++) {
        struct sums sums = sums_of(fixture, k / params->width, k % params->width);
        float defined = rounded(fixture, (float)(scale * (double)sums.defined));
        float got = flw_number_widen((const unsigned char *)out + (size_t)k * each, params->dtype);
        FLW_EXPECT(bed, flw_number_bits(got) == flw_number_bits(defined),
                   "element %lld is %a, defined as %a", (long long)k, (double)got, (double)defined);
        double room = room_for(fixture, &sums, scale), exact = scale * sums.exact;
        FLW_EXPECT(bed, params->rounds_each || fabs((double)got - exact) <= room,
                   "element %lld is %g, exactly %g, off by more than %g", (long long)k, (double)got,
                   exact, room);
    }
}

static const fallow_dtype dtypes[] = {FALLOW_F16, FALLOW_BF16, FALLOW_F32};

FLW_TEST(sums_are_as_defined_and_within_the_bound)
{
    static const int32_t widths[] = {1, 7, 8, 136};
    static const int64_t tokens[] = {0, 1, 9};
    for (int k = 0; k < 36; k++) {
        int w = k / 3 % 4, t = k % 3;
        struct fixture *fixture =
            make(bed, tokens[t], widths[w], t == 1 ? 1 : MOST_K, dtypes[k / 12]);
        fixture->params.scale = w == 1 ? 2.5f : 0.0f;
        check(bed, fixture);
    }
}

FLW_TEST(a_token_with_nothing_left_gets_zeros)
{
    struct fixture *fixture = make(bed, 2, 24, 3, FALLOW_BF16);
    memcpy(fixture->positions, (int32_t[]){-1, -5, 0, 7, 14, -1}, 24); /* or NaN with weight 0 */
    memcpy(fixture->weights, (float[]){1, 1, 0, 0, 0, 1}, 24);
    flw_call_prove(&fixture->call);
    flw_call_expect(&fixture->call, "out", (int32_t[24]){0});
}

FLW_TEST(positions_beyond_the_rows_are_dropped_and_flagged)
{
    struct fixture *fixture = make(bed, 4, 16, 2, FALLOW_F32);
    fixture->positions[3] = MOST_ROWS;
    fixture->weights[3] = 1.0f;
    fixture->call.want_flags = FALLOW_FLAG_INDEX;
    check(bed, fixture);
}

FLW_TEST(without_weights_each_counts_one)
{
    struct fixture *fixture = make(bed, 3, 16, 2, FALLOW_F32);
    for (int k = 0; k < 6; k++) {
        fixture->positions[k] = k + 1; /* no NaN row */
        fixture->weights[k] = 1.0f;
    }
    flw_call_omit(&fixture->call, "weights");
    check(bed, fixture);
}

FLW_TEST(without_positions_choices_are_in_order)
{
    struct fixture *fixture = make(bed, 5, 16, 3, FALLOW_F32);
    for (int k = 0; k < 15; k++) {
        fixture->positions[k] = k;
        fixture->weights[k] = is_nan_row(k) ? 0.0f : 0.5f;
    }
    flw_call_omit(&fixture->call, "positions");
    check(bed, fixture);
}

FLW_TEST(rounding_each_step_is_another_sum)
{
    for (int d = 0; d < 3; d++) {
        struct fixture *fixture = make(bed, 6, 8, 4, dtypes[d]);
        fixture->params.rounds_each = 1;
        fixture->params.scale = 2.5f;
        check(bed, fixture);
    }
}

/* (1 + 2^-12)^2 rounds to 1 + 2^-11, so the sum is 0; a fused operation would leave 2^-24. */
FLW_TEST(a_product_is_rounded_before_a_sum_takes_it)
{
    const float tiny = 0x1p-12f;
    for (uint8_t rounds_each = 0; rounds_each < 2; rounds_each++) {
        struct fixture *fixture = make(bed, 2, 12, 2, FALLOW_F32);
        for (int i = 0; i < 12; i++) {
            fixture->rows[12 + i] = -(1 + 2 * tiny);
            fixture->rows[24 + i] = 1 + tiny;
        }
        for (int k = 0; k < 4; k++) {
            fixture->positions[k] = 1 + k % 2;
            fixture->weights[k] = k % 2 == 0 ? 1.0f : 1 + tiny;
        }
        fixture->params.rounds_each = rounds_each;
        flw_call_prove(&fixture->call);
        flw_call_expect(&fixture->call, "out", (int32_t[24]){0});
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = make(bed, 4, 32, 2, FALLOW_F32);
    fixture->params.row_count = 8;
    FLW_CALL_REFUSE(&fixture->call, "positions=NULL tokens=5: positions"); /* 10 choices, 8 rows */
}
