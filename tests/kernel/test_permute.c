/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/number.h"
#include "fallow/moe.h"
#include "kernel/bed.h"

#define MOST_EXPERTS 16

/* One call, the inputs on the host, and the owner of each row: a token, padding or none. */
struct fixture {
    fallow_permute_params params;
    unsigned char *in; /* [tokens, width] dtype */
    int32_t *positions;
    int32_t offsets[MOST_EXPERTS + 1], counts[MOST_EXPERTS];
    int64_t *owners; /* [row_count] */
};

enum {
    NOBODY = -1,
    PADDING = -2
};

/* Random experts, some choices dropped; rows laid out expert by expert, each rounded up to align. */
static void lay_out(struct flw_bed *bed, struct fixture *fixture, int32_t align, int dropped)
{
    fallow_permute_params *params = &fixture->params;
    int64_t count = params->tokens * params->top_k;
    int32_t *ids = flw_bed_host((size_t)count * 4);
    for (int64_t i = 0; i < count; i++) {
        bool is_dropped = flw_bed_random_below(bed, 100) < dropped;
        ids[i] = is_dropped ? -1 : (int32_t)flw_bed_random_below(bed, params->experts);
        fixture->positions[i] = -1;
    }
    fixture->owners =
        flw_bed_host((size_t)(count + (int64_t)params->experts * align) * sizeof(int64_t));
    int32_t row = 0;
    for (int32_t e = 0; e < params->experts; e++) {
        fixture->offsets[e] = row;
        for (int64_t i = 0; i < count; i++) {
            if (ids[i] == e) {
                fixture->owners[row] = i / params->top_k;
                fixture->positions[i] = row++;
            }
        }
        fixture->counts[e] = row - fixture->offsets[e];
        while (row % align != 0) {
            fixture->owners[row++] = PADDING;
        }
    }
    fixture->offsets[params->experts] = row;
    params->row_count = row;
    free(ids);
}

static struct fixture *make(struct flw_bed *bed, int64_t tokens, int32_t width, int32_t top_k,
                            fallow_dtype dtype)
{
    struct fixture *fixture = flw_bed_host(sizeof *fixture);
    fallow_permute_params *params = &fixture->params;
    size_t each = fallow_dtype_bytes(dtype);
    fallow_permute_params_init(params);
    params->tokens = tokens;
    params->width = width;
    params->top_k = top_k;
    params->dtype = params->out_dtype = dtype;
    params->experts = 5;
    fixture->in = flw_bed_host((size_t)(tokens * width) * each);
    fixture->positions = flw_bed_host((size_t)(tokens * top_k) * 4);
    for (size_t k = 0; k < (size_t)(tokens * width); k++) {
        float size = ldexpf(1.0f, (int)flw_bed_random_below(bed, 12) - 6);
        float value = size * ((float)flw_bed_random_below(bed, 2001) / 1000.0f - 1.0f);
        if (dtype == FALLOW_U8) {
            fixture->in[k] = (unsigned char)flw_bed_random(bed);
        } else {
            flw_number_narrow(fixture->in + k * each, dtype, value);
        }
    }
    return fixture;
}

static void drop(struct fixture *fixture)
{
    free(fixture->in);
    free(fixture->positions);
    free(fixture->owners);
    free(fixture);
}

static void upload(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_permute_params *params = &fixture->params;
    size_t choices = (size_t)(params->tokens * params->top_k);
    params->in = flw_bed_upload(bed, "in", fixture->in,
                                (size_t)(params->tokens * params->width) *
                                    fallow_dtype_bytes(params->dtype));
    params->positions = flw_bed_upload(bed, "positions", fixture->positions, choices * 4);
    params->offsets = flw_bed_upload(bed, "offsets", fixture->offsets, sizeof fixture->offsets);
    params->counts = flw_bed_upload(bed, "counts", fixture->counts, sizeof fixture->counts);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_permute_params params = ((struct fixture *)inputs)->params;
    params.out = outputs[0];
    params.scales = params.out_dtype != params.dtype ? outputs[1] : NULL;
    FLW_EXPECT_OK(bed, fallow_moe_permute(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_moe_permute_query(&fixture->params, &need), &need);
    return step;
}

/* Every row of the fixture is written. */
static void prove(struct flw_bed *bed, struct fixture *fixture, int32_t align, void *const out[])
{
    const fallow_permute_params *params = &fixture->params;
    struct fixture *larger =
        make(bed, params->tokens + 4, params->width, params->top_k, params->dtype);
    struct fixture *smaller =
        make(bed, params->tokens / 2, params->width, params->top_k, params->dtype);
    larger->params.out_dtype = smaller->params.out_dtype = params->out_dtype;
    larger->params.pad = smaller->params.pad = params->pad;
    lay_out(bed, larger, align, 0);
    lay_out(bed, smaller, align, 0);
    upload(bed, fixture);
    upload(bed, larger);
    upload(bed, smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    flw_bed_prove(bed, &step, &before, &after, out);
    drop(larger);
    drop(smaller);
}

static void check_rows(struct flw_bed *bed, const struct fixture *fixture, const unsigned char *out)
{
    const fallow_permute_params *params = &fixture->params;
    size_t bytes = (size_t)params->width * fallow_dtype_bytes(params->dtype);
    unsigned char *other = flw_bed_host(bytes);
    for (int64_t row = 0; row < params->row_count; row++) {
        int64_t owner = fixture->owners[row];
        bool is_left = owner == PADDING && params->pad != FALLOW_PERMUTE_PAD_ZERO;
        memset(other, is_left || owner == NOBODY ? 0x5a : 0, bytes);
        const unsigned char *want = owner >= 0 ? fixture->in + (size_t)owner * bytes : other;
        FLW_EXPECT(bed, memcmp(out + (size_t)row * bytes, want, bytes) == 0,
                   "row %lld of %lld bytes is not that of %lld", (long long)row, (long long)bytes,
                   (long long)owner);
    }
    free(other);
}

static void rows_of_every_type_and_width_arrive(struct flw_bed *bed)
{
    static const fallow_dtype dtypes[] = {FALLOW_F16, FALLOW_BF16, FALLOW_F32, FALLOW_E4M3,
                                          FALLOW_U8};
    static const int32_t widths[] = {1, 7, 64, 136, 300};
    static const int64_t tokens[] = {0, 1, 13};
    for (int d = 0; d < 5; d++) {
        for (int w = 0; w < 5; w++) {
            for (int t = 0; t < 3; t++) {
                bool zeroes = (d + w) % 2 == 0;
                struct fixture *fixture =
                    make(bed, tokens[t], widths[w], t == 1 ? 1 : 4, dtypes[d]);
                fixture->params.pad = zeroes ? FALLOW_PERMUTE_PAD_ZERO : FALLOW_PERMUTE_PAD_SKIP;
                lay_out(bed, fixture, zeroes ? 8 : 1, 20);
                size_t row = (size_t)widths[w] * fallow_dtype_bytes(dtypes[d]);
                unsigned char *out = flw_bed_host((size_t)fixture->params.row_count * row);
                prove(bed, fixture, zeroes ? 8 : 1, (void *[]){out, NULL});
                check_rows(bed, fixture, out);
                free(out);
                drop(fixture);
            }
        }
    }
}

static void skipped_padding_and_rows_behind_are_left_alone(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 9, 40, 3, FALLOW_BF16);
    lay_out(bed, fixture, 16, 30);
    upload(bed, fixture);
    size_t bytes = (size_t)fixture->params.row_count * 80;
    unsigned char *out = flw_bed_host(bytes + 800);
    memset(out, 0x5a, bytes + 800);
    void *outputs[] = {flw_bed_upload(bed, "out", out, bytes + 800), NULL};
    launch(bed, fixture, outputs);
    flw_bed_read(bed, out, outputs[0], bytes + 800);
    check_rows(bed, fixture, out);
    for (size_t i = bytes; i < bytes + 800; i++) {
        FLW_EXPECT(bed, out[i] == 0x5a, "byte %zu behind the rows was written", i - bytes);
    }
    free(out);
    drop(fixture);
}

static void check_quantised(struct flw_bed *bed, const struct fixture *fixture,
                            const unsigned char *out, const float *scales)
{
    const fallow_permute_params *params = &fixture->params;
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

static void quantised_rows_are_within_half_a_step_and_padding_is_zero(struct flw_bed *bed)
{
    static const fallow_dtype dtypes[] = {FALLOW_F16, FALLOW_BF16, FALLOW_F32};
    for (int d = 0; d < 3; d++) {
        for (int64_t tokens = 0; tokens < 12; tokens += 5) {
            struct fixture *fixture = make(bed, tokens, 384, 3, dtypes[d]);
            fixture->params.out_dtype = FALLOW_E4M3;
            memset(fixture->in, 0, tokens > 0 ? 128 * fallow_dtype_bytes(dtypes[d]) : 0);
            lay_out(bed, fixture, 16, 10);
            size_t rows = (size_t)fixture->params.row_count;
            unsigned char *out = flw_bed_host(rows * 384);
            float *scales = flw_bed_host(rows * 3 * sizeof *scales);
            prove(bed, fixture, 16, (void *[]){out, scales});
            check_quantised(bed, fixture, out, scales);
            free(out);
            free(scales);
            drop(fixture);
        }
    }
}

static void a_nan_stays_and_does_not_spoil_its_group(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 1, 128, 1, FALLOW_F32);
    fixture->params.out_dtype = FALLOW_E4M3;
    flw_number_narrow(fixture->in + 20, FALLOW_F32, NAN);
    lay_out(bed, fixture, 1, 0);
    unsigned char out[128];
    float scale = 0;
    prove(bed, fixture, 1, (void *[]){out, &scale});
    for (int i = 0; i < 128; i++) {
        FLW_EXPECT(bed, ((out[i] & 0x7f) == 0x7f) == (i == 5), "element %d is 0x%02x", i, out[i]);
    }
    FLW_EXPECT(bed, scale > 0 && isfinite(scale), "scale %g", (double)scale);
    drop(fixture);
}

static void positions_beyond_the_rows_are_dropped_and_flagged(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 3, 16, 2, FALLOW_F32);
    lay_out(bed, fixture, 1, 0);
    fixture->params.row_count = 6;
    for (int i = 0; i < 6; i++) {
        fixture->positions[i] = i == 4 ? 6 : i == 5 ? INT32_MAX : 5 - i;
    }
    int64_t owners[] = {NOBODY, NOBODY, 1, 1, 0, 0};
    memcpy(fixture->owners, owners, sizeof owners);
    upload(bed, fixture);
    fixture->params.flags = flw_bed_flags(bed);
    unsigned char out[6 * 64];
    memset(out, 0x5a, sizeof out);
    void *outputs[] = {flw_bed_upload(bed, "out", out, sizeof out), NULL};
    launch(bed, fixture, outputs);
    flw_bed_read(bed, out, outputs[0], sizeof out);
    int32_t flags = flw_bed_read_flags(bed, fixture->params.flags);
    check_rows(bed, fixture, out);
    FLW_EXPECT(bed, flags == FALLOW_FLAG_INDEX, "flags %d", flags);
    drop(fixture);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_permute_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 1 << 16);
    fallow_permute_params_init(&good);
    good.tokens = 4;
    good.row_count = 8;
    good.width = 128;
    good.top_k = 2;
    good.dtype = good.out_dtype = FALLOW_F32;
    good.in = memory;
    good.positions = (int32_t *)(void *)(memory + 4096);
    good.out = memory + 8192;
#define REFUSED(change, word)                                                                   \
    bad = good;                                                                                 \
    change;                                                                                     \
    FLW_EXPECT_REFUSED(bed, fallow_moe_permute(kernels, &bad, stream), FALLOW_INVALID_ARGUMENT, \
                       word)
    REFUSED(bad.tokens = -1, "tokens");
    REFUSED(bad.tokens = (int64_t)1 << 31, "tokens");
    REFUSED(bad.row_count = -1, "row_count");
    REFUSED(bad.width = 0, "width");
    REFUSED(bad.top_k = 0, "top_k");
    REFUSED(bad.top_k = 65, "top_k");
    REFUSED(bad.dtype = FALLOW_I64, "dtype");
    REFUSED(bad.out_dtype = FALLOW_BF16, "out_dtype");
    REFUSED((bad.dtype = FALLOW_U8, bad.out_dtype = FALLOW_E4M3), "out_dtype");
    REFUSED(bad.pad = (fallow_permute_pad)3, "pad");
    REFUSED(bad.pad = FALLOW_PERMUTE_PAD_ZERO, "experts");
    REFUSED((bad.pad = FALLOW_PERMUTE_PAD_ZERO, bad.experts = 4), "offsets is NULL");
    REFUSED(bad.out_dtype = FALLOW_E4M3, "experts");
    REFUSED((bad.out_dtype = FALLOW_E4M3, bad.pad = FALLOW_PERMUTE_PAD_SKIP), "scales is NULL");
    REFUSED((bad.out_dtype = FALLOW_E4M3, bad.width = 96), "width");
    REFUSED((bad.out_dtype = FALLOW_E4M3, bad.pad = FALLOW_PERMUTE_PAD_SKIP,
             bad.out = memory + 8200, bad.scales = (float *)(void *)(memory + 32768)),
            "multiples of 16");
    REFUSED(bad.in_stride = 127, "in_stride");
    REFUSED(bad.out_stride = -1, "out_stride");
    REFUSED(bad.in = NULL, "in is NULL");
    REFUSED(bad.positions = NULL, "positions is NULL");
    REFUSED(bad.out = NULL, "out is NULL");
    REFUSED(bad.out = memory + 8194, "out is not aligned");
    REFUSED(bad.out = memory, "in and out overlap");
    REFUSED(bad.out = memory + 4096, "positions and out overlap");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(rows_of_every_type_and_width_arrive),
        FLW_BED_TEST(skipped_padding_and_rows_behind_are_left_alone),
        FLW_BED_TEST(quantised_rows_are_within_half_a_step_and_padding_is_zero),
        FLW_BED_TEST(a_nan_stays_and_does_not_spoil_its_group),
        FLW_BED_TEST(positions_beyond_the_rows_are_dropped_and_flagged),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
