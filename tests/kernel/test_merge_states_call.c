/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the merge's call: in place, other output dtypes, strides, captures, the query, refused
 * arguments. */
#include "kernel/merge_states_fixture.h"

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

/* Rows and LSE with strides larger than their lengths; without an LSE output. */
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
        flw_bed_write(bed, fixture.params.context_tokens, &context, 4);
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
        FLW_BED_TEST(merging_in_place_is_bit_equal),
        FLW_BED_TEST(eight_bits_out_are_scaled_and_rounded),
        FLW_BED_TEST(strides_leave_what_is_between_alone),
        FLW_BED_TEST(a_captured_merge_takes_the_tokens_of_each_replay),
        FLW_BED_TEST(the_query_counts_every_byte_once),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
