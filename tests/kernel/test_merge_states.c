/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the merge's values: close to double, infinities and NaN, tails, chains of merges.
 */
#include "kernel/merge_states_fixture.h"

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
        /* Repeat with a and the LSE unwritten in the tail: a read of them is a violation. */
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

/* LSE of both sides and the expected result: 'a' and 'b' a copy of the bits, '0', 'n' NaN, 'm' a
 * mix. Rows that must not be read are NaN. */
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
        flw_bed_write(bed, fixture.params.b, next.b.rows, sizeof out);
        flw_bed_write(bed, fixture.params.b_lse, next.b.lse, sizeof out_lse);
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

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(every_shape_and_layout_is_close_to_double),
        FLW_BED_TEST(tail_tokens_copy_b_and_never_read_a),
        FLW_BED_TEST(infinities_and_nan_select_and_never_multiply),
        FLW_BED_TEST(a_nan_in_a_row_stays_where_its_weight_is_not_0),
        FLW_BED_TEST(sixteen_chunks_merge_into_one_pair),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
