/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/number.h"
#include "fallow/attention.h"
#include "kernel/bed.h"

/* One side on the host: rows as floats that the type holds, and their LSE. */
struct side {
    float *rows; /* [tokens, heads, width] */
    float *lse;  /* by token or by head, as params say */
};

struct fixture {
    fallow_merge_states_params params;
    struct side a, b;
    int32_t context;
    float scale;
};

/* What two sides make of an element, before rounding, and of its LSE. */
struct merged {
    double value, lse, most; /* most: the larger of both elements */
};

static float rounded(float value, fallow_dtype dtype)
{
    unsigned char raw[4];
    flw_number_narrow(raw, dtype, value);
    return flw_number_widen(raw, dtype);
}

static int64_t row_count(const struct fixture *fixture)
{
    return fixture->params.tokens * fixture->params.heads;
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

static void make_side(struct flw_bed *bed, const struct fixture *fixture, struct side *side)
{
    int64_t rows = row_count(fixture), width = fixture->params.width;
    side->rows = flw_bed_host((size_t)(rows * width) * 4);
    side->lse = flw_bed_host((size_t)rows * 4);
    for (int64_t i = 0; i < rows * width; i++) {
        side->rows[i] = rounded(random_float(bed, 4.0f), fixture->params.dtype);
    }
    for (int64_t i = 0; i < rows; i++) {
        side->lse[i] = random_float(bed, i % 5 == 0 ? 90.0f : 6.0f);
    }
}

static void make(struct flw_bed *bed, struct fixture *fixture, int64_t tokens, int32_t heads,
                 int32_t width, fallow_dtype dtype)
{
    *fixture = (struct fixture){.context = (int32_t)tokens, .scale = 1.0f};
    fallow_merge_states_params_init(&fixture->params);
    fixture->params.tokens = tokens;
    fixture->params.heads = heads;
    fixture->params.width = width;
    fixture->params.dtype = fixture->params.out_dtype = dtype;
    make_side(bed, fixture, &fixture->a);
    make_side(bed, fixture, &fixture->b);
}

static void drop(struct fixture *fixture)
{
    free(fixture->a.rows);
    free(fixture->a.lse);
    free(fixture->b.rows);
    free(fixture->b.lse);
}

static void narrow_all(unsigned char *raw, const float *from, int64_t count, fallow_dtype dtype)
{
    for (int64_t i = 0; i < count; i++) {
        flw_number_narrow(raw + i * (int64_t)fallow_dtype_bytes(dtype), dtype, from[i]);
    }
}

static void *upload_rows(struct flw_bed *bed, const char *name, const struct fixture *fixture,
                         const float *rows)
{
    int64_t count = row_count(fixture) * fixture->params.width;
    unsigned char *raw = flw_bed_host((size_t)count * 4);
    narrow_all(raw, rows, count, fixture->params.dtype);
    void *buffer =
        flw_bed_upload(bed, name, raw, (size_t)count * fallow_dtype_bytes(fixture->params.dtype));
    free(raw);
    return buffer;
}

static void upload(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_merge_states_params *params = &fixture->params;
    size_t lse_bytes = (size_t)row_count(fixture) * 4;
    params->a = upload_rows(bed, "a", fixture, fixture->a.rows);
    params->b = upload_rows(bed, "b", fixture, fixture->b.rows);
    params->a_lse = flw_bed_upload(bed, "a_lse", fixture->a.lse, lse_bytes);
    params->b_lse = flw_bed_upload(bed, "b_lse", fixture->b.lse, lse_bytes);
    params->context_tokens = flw_bed_upload(bed, "context_tokens", &fixture->context, 4);
    if (params->out_dtype == FALLOW_E4M3) {
        params->out_scale = flw_bed_upload(bed, "out_scale", &fixture->scale, 4);
    }
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_merge_states_params params = ((struct fixture *)inputs)->params;
    params.out = outputs[0];
    params.out_lse = outputs[1];
    FLW_EXPECT_OK(
        bed, fallow_attention_merge_states(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need;
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    fallow_workspace_need_init(&need);
    FLW_EXPECT(bed, fallow_attention_merge_states_query(&fixture->params, &need) == FALLOW_OK,
               "query refused");
    flw_bed_declare(&step, &need);
    return step;
}

static void prove(struct flw_bed *bed, struct fixture *fixture, void *out, float *out_lse)
{
    struct fixture larger, smaller;
    const fallow_merge_states_params *params = &fixture->params;
    make(bed, &larger, params->tokens + 3, params->heads, params->width, params->dtype);
    make(bed, &smaller, params->tokens / 2, params->heads, params->width, params->dtype);
    larger.params.out_dtype = smaller.params.out_dtype = params->out_dtype;
    upload(bed, fixture);
    upload(bed, &larger);
    upload(bed, &smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, &larger),
                        after = step_of(bed, &smaller);
    flw_bed_prove(bed, &step, &before, &after, (void *[]){out, out_lse});
    drop(&larger);
    drop(&smaller);
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
        return (struct merged){fixture->b.rows[at], fixture->b.lse[lse],
                               fabs((double)fixture->b.rows[at])};
    }
    return merge(fixture->a.rows[at], fixture->a.lse[lse], fixture->b.rows[at], fixture->b.lse[lse],
                 fixture->params.is_base_2 != 0);
}

static double half_ulp(fallow_dtype dtype)
{
    return dtype == FALLOW_BF16 ? 0x1p-8 : dtype == FALLOW_F16 ? 0x1p-11 : 0x1p-24;
}

/* The largest errors seen: of values over what the header promises, and of LSE. */
struct errors {
    double absolute, relative, promised, lse_promised;
};

static void compare(struct flw_bed *bed, const struct fixture *fixture, const unsigned char *out,
                    const float *out_lse, struct errors *errors)
{
    const fallow_merge_states_params *params = &fixture->params;
    size_t each = fallow_dtype_bytes(params->dtype);
    for (int64_t row = 0; row < row_count(fixture); row++) {
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

static void check(struct flw_bed *bed, struct fixture *fixture, struct errors *errors)
{
    size_t rows = (size_t)row_count(fixture);
    unsigned char *out = flw_bed_host(rows * (size_t)fixture->params.width * 4);
    float *out_lse = flw_bed_host(rows * 4);
    prove(bed, fixture, out, out_lse);
    compare(bed, fixture, out, out_lse, errors);
    free(out);
    free(out_lse);
}

static void every_shape_and_layout_is_close_to_double(struct flw_bed *bed)
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
            struct fixture fixture;
            make(bed, &fixture, shapes[s][0], shapes[s][1], shapes[s][2], dtypes[d]);
            fixture.params.lse_by_token = s % 2 != 0;
            fixture.params.is_base_2 = s % 3 == 0;
            check(bed, &fixture, &errors);
            drop(&fixture);
        }
        printf("%s: largest error %.3g, relative to the larger input %.3g; %.2f of what is "
               "promised, LSE %.2f\n",
               names[d], errors.absolute, errors.relative, errors.promised, errors.lse_promised);
    }
}

static void tail_tokens_copy_b_and_never_read_a(struct flw_bed *bed)
{
    static const int32_t contexts[] = {-3, 0, 1, 4, 9, 10, 11};
    for (size_t c = 0; c < sizeof contexts / sizeof *contexts; c++) {
        struct fixture fixture;
        uint16_t out[10 * 4 * 16];
        float out_lse[40];
        int32_t context = contexts[c] < 0 ? 0 : contexts[c] > 10 ? 10 : contexts[c];
        make(bed, &fixture, 10, 4, 16, FALLOW_BF16);
        fixture.params.lse_by_token = c % 2 != 0;
        fixture.context = contexts[c];
        prove(bed, &fixture, out, out_lse);
        /* Once more, with a and its LSE of the tail unwritten: a read of them is a violation. */
        void *a = flw_bed_buffer(bed, "a", sizeof out), *a_lse = flw_bed_buffer(bed, "a_lse", 160);
        void *outputs[] = {flw_bed_buffer(bed, "out", sizeof out),
                           flw_bed_buffer(bed, "out_lse", sizeof out_lse)};
        uint16_t rows[10 * 4 * 16], again[10 * 4 * 16];
        narrow_all((unsigned char *)rows, fixture.a.rows, 640, FALLOW_BF16);
        flw_bed_write(bed, a, rows, (size_t)context * 4 * 16 * 2);
        for (int64_t row = 0; row < context * 4; row++) {
            int64_t at = lse_index(&fixture, row / 4, row % 4);
            flw_bed_write(bed, (float *)a_lse + at, fixture.a.lse + at, 4);
        }
        fixture.params.a = a;
        fixture.params.a_lse = a_lse;
        launch(bed, &fixture, outputs);
        flw_bed_read(bed, again, outputs[0], sizeof again);
        FLW_EXPECT(bed, memcmp(again, out, sizeof out) == 0, "what a's tail holds shows");
        FLW_EXPECT(bed, flw_bed_violations(bed) == 0, "a's tail was read");
        fixture.context = context;
        compare(bed, &fixture, (unsigned char *)out, out_lse, &(struct errors){0});
        narrow_all((unsigned char *)rows, fixture.b.rows, 640, FALLOW_BF16);
        FLW_EXPECT(
            bed, memcmp(out + context * 64, rows + context * 64, (size_t)(10 - context) * 128) == 0,
            "the tail is no copy of b");
        drop(&fixture);
    }
}

/* LSE of both sides, and what must come out: 'a' and 'b' a copy of its bits, '0', 'n' NaN, 'm' a mix.
 * Rows that must not be read are NaN. */
struct special {
    float a_lse, b_lse;
    char expected;
};

static const struct special specials[] = {
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

static void make_special(struct flw_bed *bed, struct fixture *fixture, bool keeps_a)
{
    make(bed, fixture, SPECIALS, 1, 8, FALLOW_BF16);
    fixture->params.keeps_a = keeps_a;
    for (int t = 0; t < SPECIALS; t++) {
        char expected = specials[t].expected;
        fixture->a.lse[t] = specials[t].a_lse;
        fixture->b.lse[t] = specials[t].b_lse;
        for (int i = t * 8; i < t * 8 + 8; i++) {
            bool reads_a = expected == 'a' || expected == 'm' || (expected == '0' && keeps_a);
            fixture->a.rows[i] = reads_a ? fixture->a.rows[i] : NAN;
            fixture->b.rows[i] = expected == 'b' || expected == 'm' ? fixture->b.rows[i] : NAN;
        }
    }
}

static void check_special(struct flw_bed *bed, const struct fixture *fixture, int t,
                          const uint16_t *out, float lse)
{
    char expected = specials[t].expected;
    bool keeps_a = fixture->params.keeps_a != 0;
    for (int i = 0; i < 8; i++) {
        uint16_t a = flw_bf16_narrow(fixture->a.rows[t * 8 + i]);
        uint16_t b = flw_bf16_narrow(fixture->b.rows[t * 8 + i]);
        bool is_right = expected == 'a'   ? out[i] == a
                        : expected == 'b' ? out[i] == b
                        : expected == '0' ? out[i] == (keeps_a ? a : 0)
                        : expected == 'n' ? isnan(flw_bf16_widen(out[i]))
                                          : !isnan(flw_bf16_widen(out[i]));
        FLW_EXPECT(bed, is_right, "case %d, element %d: 0x%04x", t, i, out[i]);
    }
    bool is_right = expected == 'a'   ? flw_number_bits(lse) == flw_number_bits(specials[t].a_lse)
                    : expected == 'b' ? flw_number_bits(lse) == flw_number_bits(specials[t].b_lse)
                    : expected == '0' ? isinf(lse) && lse < 0
                    : expected == 'n' ? isnan(lse)
                                      : isfinite(lse);
    FLW_EXPECT(bed, is_right, "case %d: LSE %g", t, (double)lse);
}

static void infinities_and_nan_select_and_never_multiply(struct flw_bed *bed)
{
    for (int bits = 0; bits < 4; bits++) {
        struct fixture fixture;
        uint16_t out[SPECIALS * 8];
        float out_lse[SPECIALS];
        make_special(bed, &fixture, (bits & 1) != 0);
        fixture.params.is_base_2 = (bits & 2) != 0;
        prove(bed, &fixture, out, out_lse);
        for (int t = 0; t < SPECIALS; t++) {
            check_special(bed, &fixture, t, out + (ptrdiff_t)t * 8, out_lse[t]);
        }
        drop(&fixture);
    }
}

static void a_nan_in_a_row_stays_where_its_weight_is_not_0(struct flw_bed *bed)
{
    struct fixture fixture;
    float out[2 * 4], out_lse[2];
    make(bed, &fixture, 2, 1, 4, FALLOW_F32);
    fixture.a.lse[0] = fixture.a.lse[1] = 2.0f;
    fixture.b.lse[0] = 1.0f;
    fixture.b.lse[1] = 2.0f - 103.0f; /* exp(-103) is 1.9e-45, not 0 */
    fixture.b.rows[1] = NAN;
    fixture.b.rows[5] = NAN;
    prove(bed, &fixture, out, out_lse);
    for (int i = 0; i < 8; i++) {
        FLW_EXPECT(bed, isnan(out[i]) == (i == 1 || i == 5), "element %d is %g", i, (double)out[i]);
    }
    drop(&fixture);
}

/* out is a or b, out_lse is a_lse or b_lse, in every pairing. */
static void merging_in_place_is_bit_equal(struct flw_bed *bed)
{
    static const int32_t widths[] = {64, 192, 7, 520};
    for (int bits = 0; bits < 32; bits++) {
        struct fixture fixture;
        int32_t width = widths[bits >> 3];
        size_t bytes = 9 * 8 * (size_t)width * 2;
        unsigned char *apart = flw_bed_host(bytes), *together = flw_bed_host(bytes);
        float apart_lse[72], together_lse[72];
        make(bed, &fixture, 9, 8, width, FALLOW_F16);
        fixture.context = 6;
        fixture.params.lse_by_token = (bits & 4) != 0;
        prove(bed, &fixture, apart, apart_lse);
        upload(bed, &fixture);
        void *outputs[] = {
            (void *)(uintptr_t)((bits & 1) != 0 ? fixture.params.a : fixture.params.b),
            (void *)(uintptr_t)((bits & 2) != 0 ? fixture.params.a_lse : fixture.params.b_lse)};
        launch(bed, &fixture, outputs);
        flw_bed_read(bed, together, outputs[0], bytes);
        flw_bed_read(bed, together_lse, outputs[1], sizeof together_lse);
        FLW_EXPECT(bed, memcmp(together, apart, bytes) == 0, "rows of width %d", width);
        FLW_EXPECT(bed, memcmp(together_lse, apart_lse, sizeof apart_lse) == 0, "LSE");
        free(apart);
        free(together);
        drop(&fixture);
    }
}

/* The chain of a chunked prefill: sixteen chunks into one accumulator, no other destination. */
static void sixteen_chunks_merge_into_one_pair(struct flw_bed *bed)
{
    struct fixture fixture;
    double sums[6 * 16], weights[6];
    float out[6 * 16], out_lse[6];
    make(bed, &fixture, 3, 2, 16, FALLOW_F32);
    upload(bed, &fixture);
    for (int row = 0; row < 6; row++) {
        weights[row] = exp((double)fixture.a.lse[row]);
        for (int i = 0; i < 16; i++) {
            /* [heads, tokens] against [tokens, heads] */
            sums[row * 16 + i] = weights[row] * fixture.a.rows[(row % 3 * 2 + row / 3) * 16 + i];
        }
    }
    for (int chunk = 1; chunk < 16; chunk++) {
        struct fixture next;
        make(bed, &next, 3, 2, 16, FALLOW_F32);
        flw_bed_write(bed, (void *)(uintptr_t)fixture.params.b, next.b.rows, sizeof out);
        flw_bed_write(bed, (void *)(uintptr_t)fixture.params.b_lse, next.b.lse, sizeof out_lse);
        launch(bed, &fixture,
               (void *[]){(void *)(uintptr_t)fixture.params.a,
                          (void *)(uintptr_t)fixture.params.a_lse});
        for (int row = 0; row < 6; row++) {
            double weight = exp((double)next.b.lse[row]);
            weights[row] += weight;
            for (int i = 0; i < 16; i++) {
                sums[row * 16 + i] += weight * next.b.rows[(row % 3 * 2 + row / 3) * 16 + i];
            }
        }
        drop(&next);
    }
    flw_bed_read(bed, out, fixture.params.a, sizeof out);
    flw_bed_read(bed, out_lse, fixture.params.a_lse, sizeof out_lse);
    for (int row = 0; row < 6; row++) {
        FLW_EXPECT(bed, fabs(out_lse[row] - log(weights[row])) <= 2e-4, "LSE of row %d", row);
        for (int i = 0; i < 16; i++) {
            double want = sums[row * 16 + i] / weights[row];
            double got = out[(row % 3 * 2 + row / 3) * 16 + i];
            FLW_EXPECT(bed, fabs(got - want) <= 4e-5, "row %d: %g, expected %g", row, got, want);
        }
    }
    drop(&fixture);
}

static void eight_bits_out_are_scaled_and_rounded(struct flw_bed *bed)
{
    static const int32_t widths[] = {32, 20};
    for (int w = 0; w < 2; w++) {
        struct fixture fixture;
        uint8_t out[5 * 2 * 32];
        float out_lse[10];
        make(bed, &fixture, 5, 2, widths[w], FALLOW_BF16);
        fixture.params.out_dtype = FALLOW_E4M3;
        fixture.context = 3;
        fixture.scale = 0.03125f;
        fixture.b.rows[4 * 2 * widths[w]] = 1000.0f; /* a copy: saturates */
        prove(bed, &fixture, out, out_lse);
        FLW_EXPECT(bed, flw_e4m3_widen(out[4 * 2 * widths[w]]) == 448.0f, "not saturated");
        for (int64_t k = 0; k < 10 * widths[w]; k++) {
            struct merged want =
                expected(&fixture, k / widths[w] / 2, k / widths[w] % 2, k % widths[w]);
            double value = fmin(448, fmax(-448, want.value / (double)fixture.scale));
            double got = flw_e4m3_widen(out[k]);
            FLW_EXPECT(bed, fabs(got - value) <= fabs(value) / 15.9 + 0x1p-10,
                       "element %lld: %g, expected %g", (long long)k, got, value);
        }
        drop(&fixture);
    }
}

/* Rows and LSE further apart than they are long; without an LSE that nobody wants. */
static void strides_leave_what_is_between_alone(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 3, 4, 8, FALLOW_F32);
    upload(bed, &fixture);
    float rows[12 * 12], lse[4 * 5], lse_before[4 * 5];
    memset(rows, 0x5a, sizeof rows);
    for (int i = 0; i < 20; i++) {
        lse[i] = i % 5 < 3 ? fixture.a.lse[i / 5 * 3 + i % 5] : 77.0f;
    }
    memcpy(lse_before, lse, sizeof lse);
    float *out = flw_bed_upload(bed, "out", rows, sizeof rows);
    fixture.params.out_stride = 12;
    fixture.params.a_lse_stride = fixture.params.out_lse_stride = 5;
    fixture.params.a_lse = flw_bed_upload(bed, "a_lse", lse, sizeof lse);
    launch(bed, &fixture, (void *[]){out, (void *)(uintptr_t)fixture.params.a_lse});
    flw_bed_read(bed, rows, out, sizeof rows);
    flw_bed_read(bed, lse, fixture.params.a_lse, sizeof lse);
    for (int k = 0; k < 12 * 12; k++) {
        struct merged want =
            k % 12 < 8 ? expected(&fixture, k / 12 / 4, k / 12 % 4, k % 12) : (struct merged){0};
        FLW_EXPECT(bed,
                   k % 12 < 8 ? fabs(rows[k] - want.value) <= 1e-5
                              : flw_number_bits(rows[k]) == 0x5a5a5a5a,
                   "row %d, column %d: %g", k / 12, k % 12, (double)rows[k]);
    }
    for (int i = 0; i < 20; i++) {
        struct merged want = i % 5 < 3 ? expected(&fixture, i % 5, i / 5, 0) : (struct merged){0};
        FLW_EXPECT(bed, i % 5 < 3 ? fabs(lse[i] - want.lse) <= 1e-5 : lse[i] == lse_before[i],
                   "LSE %d", i);
    }
    fixture.params.a_lse_stride = 0;
    fixture.params.a_lse = flw_bed_upload(bed, "a_lse", fixture.a.lse, 48);
    launch(bed, &fixture, (void *[]){out, NULL});
    flw_bed_read(bed, lse, fixture.params.a_lse, 48);
    FLW_EXPECT(bed, memcmp(lse, fixture.a.lse, 48) == 0, "an LSE was written");
    drop(&fixture);
}

static void a_captured_merge_takes_the_tokens_of_each_replay(struct flw_bed *bed)
{
    struct fixture fixture;
    float out[8 * 2 * 4], out_lse[16];
    make(bed, &fixture, 8, 2, 4, FALLOW_F32);
    upload(bed, &fixture);
    void *outputs[] = {flw_bed_buffer(bed, "out", sizeof out),
                       flw_bed_buffer(bed, "out_lse", sizeof out_lse)};
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, &fixture, outputs);
    for (int32_t context = 8; context >= 0; context -= 3) {
        fixture.context = context;
        flw_bed_write(bed, (void *)(uintptr_t)fixture.params.context_tokens, &context, 4);
        flw_bed_replay(bed, graph);
        flw_bed_read(bed, out, outputs[0], sizeof out);
        flw_bed_read(bed, out_lse, outputs[1], sizeof out_lse);
        compare(bed, &fixture, (unsigned char *)out, out_lse, &(struct errors){0});
    }
    drop(&fixture);
}

static void the_query_counts_every_byte_once(struct flw_bed *bed)
{
    fallow_merge_states_params params;
    fallow_workspace_need need;
    fallow_merge_states_params_init(&params);
    fallow_workspace_need_init(&need);
    params.tokens = 8192;
    params.heads = params.width = 128;
    params.dtype = params.out_dtype = FALLOW_BF16;
    FLW_EXPECT_OK(bed, fallow_attention_merge_states_query(&params, &need));
    FLW_EXPECT(bed, need.read_bytes + need.write_bytes == 817889280, "%llu bytes",
               (unsigned long long)(need.read_bytes + need.write_bytes));
    params.heads = 16;
    FLW_EXPECT_OK(bed, fallow_attention_merge_states_query(&params, &need));
    FLW_EXPECT(bed, need.read_bytes + need.write_bytes == 102236160, "%llu bytes",
               (unsigned long long)(need.read_bytes + need.write_bytes));
    FLW_EXPECT(bed, need.launch_count == 1 && need.scratch_bytes == 0, "launches, scratch");
    params.tokens = 1024; /* one pair of destinations of a chain of chunks */
    params.heads = 128;
    FLW_EXPECT_OK(bed, fallow_attention_merge_states_query(&params, &need));
    FLW_EXPECT(bed, need.outputs[0].bytes + need.outputs[1].bytes == 34078720, "%zu bytes",
               need.outputs[0].bytes + need.outputs[1].bytes);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_merge_states_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 1 << 16);
    fallow_merge_states_params_init(&good);
    good.tokens = 4;
    good.heads = 2;
    good.width = 16;
    good.dtype = good.out_dtype = FALLOW_F32;
    good.a = memory;
    good.b = memory + 4096;
    good.out = memory + 8192;
    good.a_lse = (float *)(void *)(memory + 12288);
    good.b_lse = (float *)(void *)(memory + 16384);
    good.out_lse = (float *)(void *)(memory + 20480);
#define REFUSED(change, word)                                                     \
    bad = good;                                                                   \
    change;                                                                       \
    FLW_EXPECT_REFUSED(bed, fallow_attention_merge_states(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.tokens = -1, "tokens");
    REFUSED(bad.heads = 0, "heads");
    REFUSED((bad.tokens = INT32_MAX, bad.heads = 2), "tokens x heads");
    REFUSED(bad.width = 0, "width");
    REFUSED(bad.dtype = FALLOW_I32, "dtype");
    REFUSED(bad.dtype = (fallow_dtype)99, "dtype");
    REFUSED(bad.out_dtype = FALLOW_BF16, "out_dtype");
    REFUSED(bad.a_stride = 15, "a_stride");
    REFUSED(bad.out_stride = -16, "out_stride");
    REFUSED(bad.b_lse_stride = 3, "b_lse_stride");
    REFUSED(bad.keeps_a = 2, "keeps_a");
    REFUSED(bad.a = NULL, "a is NULL");
    REFUSED(bad.b_lse = NULL, "b_lse is NULL");
    REFUSED(bad.out = NULL, "out is NULL");
    REFUSED(bad.out = memory + 8194, "out is not aligned");
    REFUSED(bad.out = memory + 64, "a and out overlap");
    REFUSED((bad.out = memory, bad.out_stride = 32), "a and out overlap");
    REFUSED((bad.out = memory, bad.out_dtype = FALLOW_E4M3), "a and out overlap");
    REFUSED(bad.out_lse = (float *)(void *)(memory + 12292), "a_lse and out_lse overlap");
    REFUSED((bad.out_lse = (float *)(void *)(memory + 16384), bad.out_lse_stride = 8),
            "b_lse and out_lse overlap");
    REFUSED(bad.out_lse = (float *)(void *)(memory + 8192), "out and out_lse overlap");
    REFUSED(bad.context_tokens = (int32_t *)(void *)(memory + 8192), "context_tokens and out");
    REFUSED(bad.out_scale = (float *)(void *)(memory + 24576), "out_scale");
    REFUSED(bad.struct_size = 0, "struct_size");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(every_shape_and_layout_is_close_to_double),
        FLW_BED_TEST(tail_tokens_copy_b_and_never_read_a),
        FLW_BED_TEST(infinities_and_nan_select_and_never_multiply),
        FLW_BED_TEST(a_nan_in_a_row_stays_where_its_weight_is_not_0),
        FLW_BED_TEST(merging_in_place_is_bit_equal),
        FLW_BED_TEST(sixteen_chunks_merge_into_one_pair),
        FLW_BED_TEST(eight_bits_out_are_scaled_and_rounded),
        FLW_BED_TEST(strides_leave_what_is_between_alone),
        FLW_BED_TEST(a_captured_merge_takes_the_tokens_of_each_replay),
        FLW_BED_TEST(the_query_counts_every_byte_once),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
