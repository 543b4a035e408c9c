/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of the merge tests: inputs of a call, the formula in double, a proof. */
#ifndef FLW_TESTS_KERNEL_MERGE_STATES_FIXTURE_H
#define FLW_TESTS_KERNEL_MERGE_STATES_FIXTURE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/number.h"
#include "fallow/attention.h"
#include "kernel/bed.h"

/* One side on the host: rows as floats that the type holds, and their LSE. */
struct side {
    float *rows; /* [tokens, heads, width] */
    float *lse;  /* by token or by head, as in params */
};

struct fixture {
    fallow_merge_states_params params;
    struct side a, b;
    int32_t context;
    float scale;
};

/* The merged value of an element, before rounding, and of the LSE. */
struct merged {
    double value, lse, most; /* most: the larger of both elements */
};

static inline float rounded(float value, fallow_dtype dtype)
{
    unsigned char raw[4];
    flw_number_narrow(raw, dtype, value);
    return flw_number_widen(raw, dtype);
}

static inline int64_t row_count(const struct fixture *fixture)
{
    return fixture->params.tokens * fixture->params.heads;
}

static inline int64_t lse_index(const struct fixture *fixture, int64_t token, int64_t head)
{
    return fixture->params.lse_by_token ? token * fixture->params.heads + head
                                        : head * fixture->params.tokens + token;
}

static inline float random_float(struct flw_bed *bed, float size)
{
    return size * ((float)flw_bed_random_below(bed, 200001) / 100000.0f - 1.0f);
}

static inline void make_side(struct flw_bed *bed, const struct fixture *fixture, struct side *side)
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

static inline void make(struct flw_bed *bed, struct fixture *fixture, int64_t tokens, int32_t heads,
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

static inline void drop(struct fixture *fixture)
{
    free(fixture->a.rows);
    free(fixture->a.lse);
    free(fixture->b.rows);
    free(fixture->b.lse);
}

static inline void narrow_all(unsigned char *raw, const float *from, int64_t count,
                              fallow_dtype dtype)
{
    for (int64_t i = 0; i < count; i++) {
        flw_number_narrow(raw + i * (int64_t)fallow_dtype_bytes(dtype), dtype, from[i]);
    }
}

static inline void *upload_rows(struct flw_bed *bed, const char *name,
                                const struct fixture *fixture, const float *rows)
{
    int64_t count = row_count(fixture) * fixture->params.width;
    unsigned char *raw = flw_bed_host((size_t)count * 4);
    narrow_all(raw, rows, count, fixture->params.dtype);
    void *buffer =
        flw_bed_upload(bed, name, raw, (size_t)count * fallow_dtype_bytes(fixture->params.dtype));
    free(raw);
    return buffer;
}

static inline void upload(struct flw_bed *bed, struct fixture *fixture)
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

static inline void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_merge_states_params params = ((struct fixture *)inputs)->params;
    params.out = outputs[0];
    params.out_lse = outputs[1];
    FLW_EXPECT_OK(
        bed, fallow_attention_merge_states(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static inline struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_merge_states_query(&fixture->params, &need),
                    &need);
    return step;
}

static inline void prove(struct flw_bed *bed, struct fixture *fixture, void *out, float *out_lse)
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
static inline struct merged merge(double a, double a_lse, double b, double b_lse, bool is_base_2)
{
    double base = is_base_2 ? 2.0 : exp(1.0), most = fmax(a_lse, b_lse);
    double of_a = isinf(a_lse) ? 0.0 : pow(base, a_lse - most);
    double of_b = isinf(b_lse) ? 0.0 : pow(base, b_lse - most);
    double sum = of_a + of_b;
    return (struct merged){.value = (of_a * a + of_b * b) / sum,
                           .lse = most + log(sum) / log(base),
                           .most = fmax(fabs(a), fabs(b))};
}

static inline struct merged expected(const struct fixture *fixture, int64_t token, int64_t head,
                                     int64_t i)
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

static inline double half_ulp(fallow_dtype dtype)
{
    return dtype == FALLOW_BF16 ? 0x1p-8 : dtype == FALLOW_F16 ? 0x1p-11 : 0x1p-24;
}

/* The largest errors: of values relative to the header's bound, and of LSE. */
struct errors {
    double absolute, relative, promised, lse_promised;
};

static inline void compare(struct flw_bed *bed, const struct fixture *fixture,
                           const unsigned char *out, const float *out_lse, struct errors *errors)
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

static inline void check(struct flw_bed *bed, struct fixture *fixture, struct errors *errors)
{
    size_t rows = (size_t)row_count(fixture);
    unsigned char *out = flw_bed_host(rows * (size_t)fixture->params.width * 4);
    float *out_lse = flw_bed_host(rows * 4);
    prove(bed, fixture, out, out_lse);
    compare(bed, fixture, out, out_lse, errors);
    free(out);
    free(out_lse);
}

#endif
