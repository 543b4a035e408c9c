/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "common/number.h"
#include "fallow/attention.h"
#include "kernel/call.h"

FLW_MODULE(merge_states, fallow_attention_merge_states, fallow_merge_states, FLW_IN(a), FLW_IN(b),
           FLW_IN(a_lse), FLW_IN(b_lse), FLW_IN_MAYBE(context_tokens), FLW_OUT_OVER(out, " a b "),
           FLW_OUT_MAYBE_OVER(out_lse, " a_lse b_lse "), FLW_OTHER(out_scale),
           FLW_COUNT(tokens, 0, INT32_MAX), FLW_COUNT(heads, 1, 65536),
           FLW_COUNT(width, 1, 1 << 20), FLW_FLAG(lse_by_token), FLW_FLAG(is_base_2),
           FLW_FLAG(keeps_a), FLW_DTYPE(dtype, FLW_FLOATS), FLW_OUT_DTYPE(out_dtype, FALLOW_F32),
           FLW_STRIDE(a_stride, 16), FLW_STRIDE(b_stride, 16), FLW_STRIDE(out_stride, 16),
           FLW_STRIDE(a_lse_stride, 4), FLW_STRIDE(b_lse_stride, 4), FLW_STRIDE(out_lse_stride, 4))

/* Rows [tokens, heads, width] of values that the type holds, and their LSE by token or head. */
struct fixture {
    struct flw_call call;
    fallow_merge_states_params params;
    float *a, *b, *a_lse, *b_lse;
    int32_t context;
    float scale;
};

/* The merged value of an element, before rounding, and of the LSE. */
struct merged {
    double value, lse, most; /* most: the larger of both elements */
};

static float rounded(float value, fallow_dtype dtype)
{
    unsigned char raw[4];
    flw_number_narrow(raw, dtype, value);
    return flw_number_widen(raw, dtype);
}

static int64_t lse_index(const struct fixture *fixture, int64_t token, int64_t head)
{
    return fixture->params.lse_by_token ? token * fixture->params.heads + head
                                        : head * fixture->params.tokens + token;
}

static float random_float(struct flw_bed *bed, float size)
{
    return size * ((float)flw_bed_random_below(bed, 200001) / 100000.0f - 1.0f);
}

static float *draw_lse(struct fixture *fixture, const char *name, size_t rows)
{
    float *lse = flw_call_input(&fixture->call, name, rows, 4);
    for (size_t i = 0; i < rows; i++) {
        lse[i] = random_float(fixture->call.bed, i % 5 == 0 ? 90.0f : 6.0f);
    }
    return lse;
}

static float *draw_rows(struct fixture *fixture, const char *name, size_t count)
{
    float *rows = flw_call_typed(&fixture->call, name, count, &fixture->params.dtype);
    for (size_t i = 0; i < count; i++) {
        rows[i] = rounded(random_float(fixture->call.bed, 4.0f), fixture->params.dtype);
    }
    return rows;
}

static struct fixture *make(struct flw_bed *bed, int64_t tokens, int32_t heads, int32_t width,
                            fallow_dtype dtype)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    size_t rows = (size_t)(tokens * heads), count = rows * (size_t)width;
    flw_call_init(bed, &fixture->call, merge_states(), &fixture->params);
    fixture->context = (int32_t)tokens;
    fixture->params.tokens = tokens;
    fixture->params.heads = heads;
    fixture->params.width = width;
    fixture->params.dtype = fixture->params.out_dtype = dtype;
    fixture->a = draw_rows(fixture, "a", count);
    fixture->a_lse = draw_lse(fixture, "a_lse", rows);
    fixture->b = draw_rows(fixture, "b", count);
    fixture->b_lse = draw_lse(fixture, "b_lse", rows);
    flw_call_bind(&fixture->call, "context_tokens", &fixture->context, 1, 4);
    return fixture;
}

/* The formula in double; sides without keys left out. Independent of the twin's way. */
static struct merged merge(double a, double a_lse, double b, double b_lse, bool is_base_2)
{
    double base = is_base_2 ? 2.0 : exp(1.0), most = fmax(a_lse, b_lse);
    double of_a = isinf(a_lse) ? 0.0 : pow(base, a_lse - most);
    double of_b = isinf(b_lse) ? 0.0 : pow(base, b_lse - most);
    double sum = of_a + of_b;
    return (struct merged){.value = (of_a * a + of_b * b) / sum,
                           .lse = most + log(sum) / log(base),
                           .most = fmax(fabs(a), fabs(b))};
}

static struct merged expected(const struct fixture *fixture, int64_t token, int64_t head, int64_t i)
{
    int64_t at = (token * fixture->params.heads + head) * fixture->params.width + i;
    int64_t lse = lse_index(fixture, token, head);
    if (token >= fixture->context) {
        return (struct merged){fixture->b[at], fixture->b_lse[lse], fabs((double)fixture->b[at])};
    }
    return merge(fixture->a[at], fixture->a_lse[lse], fixture->b[at], fixture->b_lse[lse],
                 fixture->params.is_base_2 != 0);
}

static double half_ulp(fallow_dtype dtype)
{
    return dtype == FALLOW_BF16 ? 0x1p-8 : dtype == FALLOW_F16 ? 0x1p-11 : 0x1p-24;
}

/* The largest errors: of values relative to the header's bound, and of LSE. */
struct errors {
    double absolute, relative, promised, lse_promised;
};

static void compare(struct flw_bed *bed, const struct fixture *fixture, struct errors *errors)
{
    const fallow_merge_states_params *params = &fixture->params;
    const unsigned char *out = fixture->call.out[0];
    const float *out_lse = fixture->call.out[1];
    size_t each = fallow_dtype_bytes(params->dtype);
    for (int64_t row = 0; row < params->tokens * params->heads; row++) {
        int64_t token = row / params->heads, head = row % params->heads;
        struct merged want = {0};
        for (int64_t i = 0; i < params->width; i++) {
            want = expected(fixture, token, head, i);
            float got =
                flw_number_widen(out + (row * params->width + i) * (int64_t)each, params->dtype);
            double error = fabs((double)got - want.value);
            double room = 6e-7 * want.most + half_ulp(params->dtype) * fabs(want.value) * 1.001 +
                          (params->dtype == FALLOW_F16 ? 0x1p-25 : 0.0);
            errors->absolute = fmax(errors->absolute, error);
            errors->relative = fmax(errors->relative, error / fmax(want.most, 1e-30));
            errors->promised = fmax(errors->promised, error / fmax(room, 1e-30));
            FLW_EXPECT(bed, error <= room, "token %lld head %lld element %lld: %.9g, expected %.9g",
                       (long long)token, (long long)head, (long long)i, (double)got, want.value);
        }
        double got = out_lse[lse_index(fixture, token, head)];
        double room = 3e-7 + 1.2e-7 * fabs(want.lse);
        errors->lse_promised = fmax(errors->lse_promised, fabs(got - want.lse) / room);
        FLW_EXPECT(bed, fabs(got - want.lse) <= room, "LSE of token %lld head %lld: %.9g, not %.9g",
                   (long long)token, (long long)head, got, want.lse);
    }
}

FLW_TEST(every_shape_and_layout_is_close_to_double)
{
    static const fallow_dtype dtypes[] = {FALLOW_F32, FALLOW_BF16, FALLOW_F16};
    static const char *const names[] = {"f32", "bf16", "f16"};
    static const int32_t shapes[][3] = {/* tokens, heads, width */
                                        {0, 8, 64},  {1, 1, 1},    {7, 1, 3},     {2, 8, 12},
                                        {8, 1, 64},  {2, 16, 128}, {1, 128, 128}, {3, 8, 192},
                                        {2, 2, 512}, {1, 3, 2056}, {33, 5, 8}};
    for (int d = 0; d < 3; d++) {
        struct errors errors = {0};
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            struct fixture *fixture =
                make(bed, shapes[s][0], shapes[s][1], shapes[s][2], dtypes[d]);
            fixture->params.lse_by_token = s % 2 != 0;
            fixture->params.is_base_2 = s % 3 == 0;
            flw_call_prove(&fixture->call);
            compare(bed, fixture, &errors);
        }
        printf("%s: largest error %.3g, relative to the larger input %.3g; %.2f of the promise, "
               "LSE %.2f\n",
               names[d], errors.absolute, errors.relative, errors.promised, errors.lse_promised);
    }
}

/* a and the LSE by token are unwritten in the tail: a read of them is a violation. */
FLW_TEST(tail_tokens_copy_b_and_never_read_a)
{
    static const int32_t contexts[] = {-3, 0, 1, 4, 9, 10, 11};
    for (size_t c = 0; c < 14; c++) {
        struct fixture *fixture = make(bed, 10, 4, 16, FALLOW_BF16);
        int32_t given = contexts[c / 2], context = given < 0 ? 0 : given > 10 ? 10 : given;
        uint16_t copy;
        fixture->params.lse_by_token = c % 2 != 0;
        fixture->context = given;
        flw_call_written(&fixture->call, "a", context * (int64_t)64);
        if (c % 2 != 0) {
            flw_call_written(&fixture->call, "a_lse", context * (int64_t)4);
        }
        flw_call_prove(&fixture->call);
        fixture->context = context;
        compare(bed, fixture, &(struct errors){0});
        for (int i = context * 64; i < 640; i++) {
            flw_number_narrow((unsigned char *)&copy, FALLOW_BF16, fixture->b[i]);
            FLW_EXPECT(bed, ((uint16_t *)fixture->call.out[0])[i] == copy, "no copy of b at %d", i);
        }
    }
}

/* LSE of both sides and the expected result: 'a' and 'b' a copy of the bits, '0', 'n' NaN, 'm' a
 * mix. Rows that must not be read are NaN. */
static const struct special {
    float a_lse, b_lse;
    char expected;
} specials[] = {
    {-INFINITY, 1.5f, 'b'},
    {1.5f, -INFINITY, 'a'},
    {INFINITY, -2.0f, 'b'},
    {-2.0f, INFINITY, 'a'},
    {-INFINITY, -0.0f, 'b'},
    {-0.0f, INFINITY, 'a'},
    {-INFINITY, -INFINITY, '0'},
    {INFINITY, -INFINITY, '0'},
    {INFINITY, INFINITY, '0'},
    {NAN, 1.0f, 'n'},
    {1.0f, NAN, 'n'},
    {NAN, -INFINITY, 'n'},
    {-INFINITY, NAN, 'n'},
    {200.0f, 0.0f, 'a'},
    {-100.0f, 60.0f, 'b'},
    {3e38f, -3e38f, 'a'},
    {3e38f, 3e38f, 'm'},
    {-1e-40f, -1e-40f, 'm'},
};
#define SPECIALS ((int)(sizeof specials / sizeof *specials))

static struct fixture *make_special(struct flw_bed *bed, bool keeps_a)
{
    struct fixture *fixture = make(bed, SPECIALS, 1, 8, FALLOW_BF16);
    fixture->params.keeps_a = keeps_a;
    for (int t = 0; t < SPECIALS; t++) {
        char expected = specials[t].expected;
        fixture->a_lse[t] = specials[t].a_lse;
        fixture->b_lse[t] = specials[t].b_lse;
        for (int i = t * 8; i < t * 8 + 8; i++) {
            bool reads_a = expected == 'a' || expected == 'm' || (expected == '0' && keeps_a);
            fixture->a[i] = reads_a ? fixture->a[i] : NAN;
            fixture->b[i] = expected == 'b' || expected == 'm' ? fixture->b[i] : NAN;
        }
    }
    return fixture;
}

static void check_special(struct flw_bed *bed, const struct fixture *fixture, int t)
{
    const uint16_t *out = fixture->call.out[0];
    float lse = ((float *)fixture->call.out[1])[t];
    char expected = specials[t].expected;
    for (int i = t * 8; i < t * 8 + 8; i++) {
        uint16_t a = flw_bf16_narrow(fixture->a[i]), b = flw_bf16_narrow(fixture->b[i]);
        bool is_nan = isnan(flw_bf16_widen(out[i]));
        bool is_right = expected == 'a'   ? out[i] == a
                        : expected == 'b' ? out[i] == b
                        : expected == '0' ? out[i] == (fixture->params.keeps_a ? a : 0)
                                          : is_nan == (expected == 'n');
        FLW_EXPECT(bed, is_right, "case %d, element %d: 0x%04x", t, i, out[i]);
    }
    bool is_right = expected == 'a'   ? flw_number_bits(lse) == flw_number_bits(specials[t].a_lse)
                    : expected == 'b' ? flw_number_bits(lse) == flw_number_bits(specials[t].b_lse)
                    : expected == '0' ? isinf(lse) && lse < 0
                    : expected == 'n' ? isnan(lse)
                                      : isfinite(lse);
    FLW_EXPECT(bed, is_right, "case %d: LSE %g", t, (double)lse);
}

FLW_TEST(infinities_and_nan_select_and_never_multiply)
{
    for (int bits = 0; bits < 4; bits++) {
        struct fixture *fixture = make_special(bed, (bits & 1) != 0);
        fixture->params.is_base_2 = (bits & 2) != 0;
        flw_call_prove(&fixture->call);
        for (int t = 0; t < SPECIALS; t++) {
            check_special(bed, fixture, t);
        }
    }
}

FLW_TEST(a_nan_in_a_row_stays_where_its_weight_is_not_0)
{
    struct fixture *fixture = make(bed, 2, 1, 4, FALLOW_F32);
    fixture->a_lse[0] = fixture->a_lse[1] = 2.0f;
    fixture->b_lse[0] = 1.0f;
    fixture->b_lse[1] = 2.0f - 103.0f; /* exp(-103) is 1.9e-45, not 0 */
    fixture->b[1] = fixture->b[5] = NAN;
    flw_call_prove(&fixture->call);
    for (int i = 0; i < 8; i++) {
        float got = ((float *)fixture->call.out[0])[i];
        FLW_EXPECT(bed, isnan(got) == (i == 1 || i == 5), "element %d is %g", i, (double)got);
    }
}

/* Upload the inputs and merge in place, into a or b, and a_lse or b_lse. */
static void merge_in_place(struct fixture *fixture, bool is_a, bool is_a_lse)
{
    const fallow_merge_states_params *params = &fixture->params;
    (void)flw_call_need(&fixture->call);
    flw_call_give(&fixture->call);
    fixture->call.outputs[0] = (void *)(uintptr_t)(is_a ? params->a : params->b);
    fixture->call.outputs[1] = (void *)(uintptr_t)(is_a_lse ? params->a_lse : params->b_lse);
    flw_call_launch(&fixture->call, fixture->call.outputs);
    for (int i = 0; i < 2; i++) {
        size_t bytes = fixture->call.step.buffer_bytes[i];
        fixture->call.out[i] = flw_bed_memory(fixture->call.bed, bytes);
        flw_bed_read(fixture->call.bed, fixture->call.out[i], fixture->call.outputs[i], bytes);
    }
}

/* The chain of a chunked prefill: sixteen chunks into one accumulator, no other destination. */
FLW_TEST(sixteen_chunks_merge_into_one_pair)
{
    struct fixture *fixture = make(bed, 3, 2, 16, FALLOW_F32);
    double sums[6 * 16] = {0}, weights[6] = {0};
    for (int chunk = 0; chunk < 16; chunk++) {
        struct fixture *next = make(bed, 3, 2, 16, FALLOW_F32);
        if (chunk > 0) {
            memcpy(fixture->b, next->b, sizeof(float) * 96);
            memcpy(fixture->b_lse, next->b_lse, sizeof(float) * 6);
        }
        const float *rows = chunk > 0 ? next->b : fixture->a;
        const float *lse = chunk > 0 ? next->b_lse : fixture->a_lse;
        for (int k = 0; k < 96; k++) { /* LSE [heads, tokens] against [tokens, heads] */
            int row = k / 16 % 2 * 3 + k / 32;
            sums[k] += exp((double)lse[row]) * rows[k];
            weights[row] += k % 16 == 0 ? exp((double)lse[row]) : 0;
        }
        if (chunk > 0) {
            merge_in_place(fixture, true, true);
            memcpy(fixture->a, fixture->call.out[0], sizeof(float) * 96);
            memcpy(fixture->a_lse, fixture->call.out[1], sizeof(float) * 6);
        }
    }
    for (int k = 0; k < 96; k++) {
        int row = k / 16 % 2 * 3 + k / 32;
        double want = sums[k] / weights[row], got = fixture->a[k];
        FLW_EXPECT(bed, fabs(fixture->a_lse[row] - log(weights[row])) <= 2e-4, "LSE of %d", row);
        FLW_EXPECT(bed, fabs(got - want) <= 4e-5, "row %d: %g, expected %g", row, got, want);
    }
}

/* out is a or b, out_lse is a_lse or b_lse, in every pairing. */
FLW_TEST(merging_in_place_is_bit_equal)
{
    static const int32_t widths[] = {64, 192, 7, 520};
    for (int bits = 0; bits < 32; bits++) {
        struct fixture *fixture = make(bed, 9, 8, widths[bits >> 3], FALLOW_F16);
        fixture->context = 6;
        fixture->params.lse_by_token = (bits & 4) != 0;
        flw_call_prove(&fixture->call);
        void *apart = fixture->call.out[0], *apart_lse = fixture->call.out[1];
        merge_in_place(fixture, (bits & 1) != 0, (bits & 2) != 0);
        flw_call_expect(&fixture->call, "out", apart);
        flw_call_expect(&fixture->call, "out_lse", apart_lse);
    }
}

FLW_TEST(eight_bits_out_are_scaled_and_rounded)
{
    static const int32_t widths[] = {32, 20};
    for (int w = 0; w < 2; w++) {
        struct fixture *fixture = make(bed, 5, 2, widths[w], FALLOW_BF16);
        fixture->params.out_dtype = FALLOW_E4M3;
        fixture->context = 3;
        fixture->scale = 0.03125f;
        flw_call_bind(&fixture->call, "out_scale", &fixture->scale, 1, 4);
        fixture->b[4 * 2 * widths[w]] = 1000.0f; /* a copy: saturates */
        flw_call_prove(&fixture->call);
        const uint8_t *out = fixture->call.out[0];
        FLW_EXPECT(bed, flw_e4m3_widen(out[4 * 2 * widths[w]]) == 448.0f, "not saturated");
        for (int64_t k = 0; k < 10 * widths[w]; k++) {
            struct merged want =
                expected(fixture, k / widths[w] / 2, k / widths[w] % 2, k % widths[w]);
            double value = fmin(448, fmax(-448, want.value / (double)fixture->scale));
            double got = flw_e4m3_widen(out[k]);
            FLW_EXPECT(bed, fabs(got - value) <= fabs(value) / 15.9 + 0x1p-10,
                       "element %lld: %g, expected %g", (long long)k, got, value);
        }
    }
}

/* Rows and LSE with strides larger than their lengths, each alone; and no LSE output. */
FLW_TEST(strides_leave_gaps_alone)
{
    struct fixture *fixture = make(bed, 3, 4, 8, FALLOW_F32);
    float lse[4 * 5];
    for (int i = 0; i < 20; i++) {
        lse[i] = i % 5 < 3 ? fixture->a_lse[i / 5 * 3 + i % 5] : 77.0f;
    }
    flw_call_bind(&fixture->call, "a_lse", lse, 20, 4);
    fixture->params.a_lse_stride = fixture->params.out_lse_stride = 5;
    fixture->params.out_stride = 12;
    fixture->params.out_dtype = (fallow_dtype)0; /* the dtype */
    flw_call_run(&fixture->call);
    const float *rows = fixture->call.out[0], *out_lse = fixture->call.out[1];
    for (int k = 0; k < 11 * 12 + 8; k++) {
        struct merged want =
            k % 12 < 8 ? expected(fixture, k / 12 / 4, k / 12 % 4, k % 12) : (struct merged){0};
        FLW_EXPECT(bed,
                   k % 12 < 8 ? fabs(rows[k] - want.value) <= 1e-5
                              : flw_number_bits(rows[k]) == 0x5a5a5a5a,
                   "row %d, column %d: %g", k / 12, k % 12, (double)rows[k]);
    }
    for (int i = 0; i < 18; i++) {
        struct merged want = i % 5 < 3 ? expected(fixture, i % 5, i / 5, 0) : (struct merged){0};
        FLW_EXPECT(bed,
                   i % 5 < 3 ? fabs(out_lse[i] - want.lse) <= 1e-5
                             : flw_number_bits(out_lse[i]) == 0x5a5a5a5a,
                   "LSE %d", i);
    }
    flw_call_launch(&fixture->call, (void *[]){fixture->call.outputs[0], NULL});
}

FLW_TEST(a_captured_merge_takes_the_tokens_of_each_replay)
{
    struct fixture *fixture = make(bed, 8, 2, 4, FALLOW_F32);
    flw_call_capture(&fixture->call);
    for (fixture->context = 8; fixture->context >= 0; fixture->context -= 3) {
        flw_call_replay(&fixture->call);
        compare(bed, fixture, &(struct errors){0});
    }
}

FLW_TEST(the_query_counts_every_byte_once)
{
    static const struct {
        int64_t tokens;
        int32_t heads;
        uint64_t moved, outputs;
    } cases[] = {{8192, 128, 817889280, 272629760},
                 {8192, 16, 102236160, 34078720},
                 {1024, 128, 102236160, 34078720}}; /* destinations of a chain of chunks */
    struct fixture *fixture = make(bed, 0, 1, 128, FALLOW_BF16);
    for (int c = 0; c < 3; c++) {
        fixture->params.tokens = cases[c].tokens;
        fixture->params.heads = cases[c].heads;
        fallow_workspace_need need = flw_call_need(&fixture->call);
        FLW_EXPECT(bed, need.read_bytes + need.write_bytes == cases[c].moved, "%llu bytes",
                   (unsigned long long)(need.read_bytes + need.write_bytes));
        FLW_EXPECT(bed, need.launch_count == 1 && need.scratch_bytes == 0, "launches, scratch");
        FLW_EXPECT(bed, need.outputs[0].bytes + need.outputs[1].bytes == cases[c].outputs,
                   "%zu bytes", need.outputs[0].bytes + need.outputs[1].bytes);
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = make(bed, 4, 2, 16, FALLOW_F32);
    FLW_CALL_REFUSE(
        &fixture->call, "tokens=2147483647 heads=2: tokens x heads", "dtype=F16: out_dtype",
        "lse_by_token=1 b_lse_stride=1: b_lse_stride", "out=@a out_stride=32: a and out overlap",
        "out=@a out_dtype=E4M3: a and out overlap",
        "out_lse=@b_lse out_lse_stride=8: b_lse and out_lse overlap", "out_scale=@a: out_scale");
}
