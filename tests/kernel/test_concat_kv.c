/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/mla.h"
#include "kernel/bed.h"

/* One call, with the inputs in host memory: any bits, including NaN. */
struct fixture {
    fallow_concat_kv_params params;
    unsigned char *kv, *rope;
    size_t kv_bytes, rope_bytes;
    int32_t count; /* of tokens that are written */
    size_t each;
};

static int64_t or_default(int64_t value, int64_t usual)
{
    return value != 0 ? value : usual;
}

/* Strides as the header has their defaults, in elements. */
struct strides {
    int64_t kv_token, kv_head, rope, k_token, k_head, v_token, v_head;
};

static struct strides strides_of(const fallow_concat_kv_params *params)
{
    struct strides strides = {
        .kv_head = or_default(params->kv_head_stride, params->nope_width + params->v_width),
        .rope = or_default(params->rope_stride, params->rope_width),
        .k_head = or_default(params->k_head_stride, params->nope_width + params->rope_width),
        .v_head = or_default(params->v_head_stride, params->v_columns)};
    strides.kv_token = or_default(params->kv_token_stride, params->heads * strides.kv_head);
    strides.k_token = or_default(params->k_token_stride, params->heads * strides.k_head);
    strides.v_token = or_default(params->v_token_stride, params->heads * strides.v_head);
    return strides;
}

static struct fixture *make(int32_t tokens, int32_t heads, int32_t v_columns, fallow_dtype dtype)
{
    struct fixture *fixture = flw_bed_host(sizeof *fixture);
    fallow_concat_kv_params *params = &fixture->params;
    fallow_concat_kv_params_init(params);
    params->tokens = fixture->count = tokens;
    params->heads = heads;
    params->nope_width = 128;
    params->rope_width = 64;
    params->v_width = 128;
    params->v_columns = v_columns;
    params->dtype = dtype;
    fixture->each = fallow_dtype_bytes(dtype);
    return fixture;
}

static void drop(struct fixture *fixture)
{
    free(fixture->kv);
    free(fixture->rope);
    free(fixture);
}

static void upload(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_concat_kv_params *params = &fixture->params;
    struct strides strides = strides_of(params);
    fixture->kv_bytes = (size_t)(params->tokens * strides.kv_token) * fixture->each;
    fixture->rope_bytes = (size_t)(params->tokens * strides.rope) * fixture->each;
    fixture->kv = flw_bed_host(fixture->kv_bytes);
    fixture->rope = flw_bed_host(fixture->rope_bytes);
    for (size_t i = 0; i < fixture->kv_bytes; i++) {
        fixture->kv[i] = (unsigned char)flw_bed_random(bed);
    }
    for (size_t i = 0; i < fixture->rope_bytes; i++) {
        fixture->rope[i] = (unsigned char)flw_bed_random(bed);
    }
    params->kv = flw_bed_upload(bed, "kv", fixture->kv, fixture->kv_bytes);
    params->k_rope = flw_bed_upload(bed, "k_rope", fixture->rope, fixture->rope_bytes);
    params->token_count = flw_bed_upload(bed, "token_count", &fixture->count, 4);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_concat_kv_params params = ((struct fixture *)inputs)->params;
    params.k = outputs[0];
    params.v = params.v_columns > 0 ? outputs[1] : NULL;
    FLW_EXPECT_OK(bed, fallow_mla_concat_kv(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static int64_t written(const struct fixture *fixture)
{
    int32_t most = fixture->params.tokens;
    return fixture->count < 0 ? 0 : fixture->count < most ? fixture->count : most;
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct strides strides = strides_of(&fixture->params);
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_mla_concat_kv_query(&fixture->params, &need), &need);
    for (size_t i = 0; i < step.output_count; i++) {
        int64_t token = i == 0 ? strides.k_token : strides.v_token;
        step.declared_bytes[i] = (size_t)(written(fixture) * token) * fixture->each;
    }
    return step;
}

/* Return the source of element i of a head of k or v by the formula; NULL: zero. */
static const unsigned char *source_of(const struct fixture *fixture, bool is_k, int64_t t,
                                      int64_t h, int64_t i)
{
    const fallow_concat_kv_params *params = &fixture->params;
    struct strides strides = strides_of(params);
    const unsigned char *head =
        fixture->kv + (size_t)(t * strides.kv_token + h * strides.kv_head) * fixture->each;
    size_t each = fixture->each, nope = (size_t)params->nope_width;
    if (!is_k) {
        return i < params->v_width ? head + ((size_t)i + nope) * each : NULL;
    }
    return i < params->nope_width ? head + (size_t)i * each
                                  : fixture->rope + ((size_t)(t * strides.rope + i) - nope) * each;
}

static void compare(struct flw_bed *bed, const struct fixture *fixture, const unsigned char *out,
                    bool is_k)
{
    static const unsigned char zero[4] = {0};
    const fallow_concat_kv_params *params = &fixture->params;
    struct strides strides = strides_of(params);
    int64_t width = is_k ? params->nope_width + params->rope_width : params->v_columns;
    for (int64_t row = 0; row < written(fixture) * params->heads; row++) {
        int64_t t = row / params->heads, h = row % params->heads;
        int64_t at = is_k ? t * strides.k_token + h * strides.k_head
                          : t * strides.v_token + h * strides.v_head;
        for (int64_t i = 0; i < width; i++) {
            const unsigned char *want = source_of(fixture, is_k, t, h, i);
            FLW_EXPECT(bed,
                       memcmp(out + (size_t)(at + i) * fixture->each, want != NULL ? want : zero,
                              fixture->each) == 0,
                       "%s of token %lld, head %lld, element %lld", is_k ? "k" : "v", (long long)t,
                       (long long)h, (long long)i);
        }
    }
}

/* Prove a case without gaps, and compare. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_concat_kv_params *params = &fixture->params;
    struct fixture *larger =
        make(params->tokens + 3, params->heads + 1, params->v_columns, params->dtype);
    struct fixture *smaller = make(1, params->heads, params->v_columns, params->dtype);
    smaller->params.v_width = larger->params.v_width = params->v_width;
    void *out[2];
    upload(bed, fixture);
    upload(bed, larger);
    upload(bed, smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    out[0] = flw_bed_host(step.declared_bytes[0]);
    out[1] = flw_bed_host(step.declared_bytes[1]);
    flw_bed_prove(bed, &step, &before, &after, out);
    compare(bed, fixture, out[0], true);
    if (params->v_columns > 0) {
        compare(bed, fixture, out[1], false);
    }
    free(out[0]);
    free(out[1]);
    drop(larger);
    drop(smaller);
}

static const fallow_dtype dtypes[] = {FALLOW_BF16, FALLOW_F16, FALLOW_F32, FALLOW_E4M3};

static void keys_and_values_are_exact_in_every_type(struct flw_bed *bed)
{
    static const int32_t columns[] = {0, 128, 192};
    static const int32_t tokens[] = {0, 1, 7}, heads[] = {1, 16, 33};
    for (int k = 0; k < 36; k++) {
        struct fixture *fixture =
            make(tokens[k / 12], heads[k / 4 % 3], columns[k % 3], dtypes[k % 4]);
        check(bed, fixture);
        drop(fixture);
    }
}

static void parts_of_any_width_are_exact(struct flw_bed *bed)
{
    static const int32_t widths[][4] = {
        {1, 1, 1, 0}, {1, 2, 3, 5}, {24, 8, 16, 40}, {24, 8, 20, 40}, {300, 9, 128, 129}};
    for (int k = 0; k < 20; k++) {
        const int32_t *width = widths[k / 4];
        struct fixture *fixture = make(3, 5, width[3], dtypes[k % 4]);
        fixture->params.nope_width = width[0];
        fixture->params.rope_width = width[1];
        fixture->params.v_width = width[2];
        check(bed, fixture);
        drop(fixture);
    }
}

static void the_count_of_tokens_comes_from_the_device(struct flw_bed *bed)
{
    static const int32_t counts[] = {0, 1, 5, 6, 9, -2};
    for (int k = 0; k < 6; k++) {
        struct fixture *fixture = make(6, 4, 192, FALLOW_BF16);
        fixture->count = counts[k];
        check(bed, fixture);
        drop(fixture);
    }
}

/* Bytes between heads and tokens, and after the last token, keep their values. */
static void strides_leave_what_lies_between_alone(struct flw_bed *bed)
{
    for (int k = 0; k < 2; k++) {
        struct fixture *fixture = make(4, 3, 136, FALLOW_BF16);
        fallow_concat_kv_params *params = &fixture->params;
        int64_t extra = k == 0 ? 8 : 3; /* by 16 bytes at a time, and not */
        fixture->count = 3;
        params->kv_head_stride = 256 + extra;
        params->kv_token_stride = 3 * (256 + extra) + 16;
        params->rope_stride = 64 + extra;
        params->k_head_stride = 192 + extra;
        params->k_token_stride = 3 * (192 + extra) + 8;
        params->v_head_stride = 136 + extra;
        upload(bed, fixture);
        struct strides strides = strides_of(params);
        size_t k_bytes = (size_t)(4 * strides.k_token) * 2;
        size_t v_bytes = (size_t)(4 * strides.v_token) * 2;
        unsigned char *keys = flw_bed_host(k_bytes), *values = flw_bed_host(v_bytes);
        memset(keys, 0x5a, k_bytes);
        memset(values, 0x5a, v_bytes);
        void *outputs[] = {flw_bed_upload(bed, "k", keys, k_bytes),
                           flw_bed_upload(bed, "v", values, v_bytes)};
        launch(bed, fixture, outputs);
        flw_bed_read(bed, keys, outputs[0], k_bytes);
        flw_bed_read(bed, values, outputs[1], v_bytes);
        compare(bed, fixture, keys, true);
        compare(bed, fixture, values, false);
        for (int64_t i = 0; i < 4 * strides.k_token; i++) {
            int64_t in_token = i % strides.k_token, head = in_token / strides.k_head;
            bool is_ours = i < 3 * strides.k_token && head < 3 && in_token % strides.k_head < 192;
            FLW_EXPECT(bed, is_ours || keys[i * 2] == 0x5a, "k element %lld", (long long)i);
        }
        for (int64_t i = 0; i < 4 * strides.v_token; i++) {
            bool is_ours = i < 3 * strides.v_token && i % strides.v_head < 136;
            FLW_EXPECT(bed, is_ours || values[i * 2] == 0x5a, "v element %lld", (long long)i);
        }
        free(keys);
        free(values);
        drop(fixture);
    }
}

static void a_captured_concat_follows_the_count(struct flw_bed *bed)
{
    static const int32_t counts[] = {8, 3, 0, 5};
    struct fixture *fixture = make(8, 2, 192, FALLOW_BF16);
    upload(bed, fixture);
    struct flw_bed_step step = step_of(bed, fixture);
    void *outputs[] = {flw_bed_buffer(bed, "k", step.buffer_bytes[0]),
                       flw_bed_buffer(bed, "v", step.buffer_bytes[1])};
    unsigned char *out = flw_bed_host(step.buffer_bytes[0] + step.buffer_bytes[1]);
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, fixture, outputs);
    for (int k = 0; k < 4; k++) {
        fixture->count = counts[k];
        flw_bed_write(bed, fixture->params.token_count, &counts[k], 4);
        for (int i = 0; i < 2; i++) {
            flw_bed_dirty(bed, outputs[i], step.buffer_bytes[i], 0xff);
        }
        flw_bed_replay(bed, graph);
        step = step_of(bed, fixture);
        for (int i = 0; i < 2; i++) {
            flw_bed_read(bed, out, outputs[i], step.declared_bytes[i]);
            compare(bed, fixture, out, i == 0);
        }
    }
    free(out);
    drop(fixture);
}

static void the_query_counts_what_is_moved(struct flw_bed *bed)
{
    fallow_concat_kv_params params;
    fallow_workspace_need need;
    fallow_concat_kv_params_init(&params);
    params.tokens = 65536;
    params.heads = 128;
    params.dtype = FALLOW_BF16;
    fallow_workspace_need_init(&need);
    FLW_EXPECT(bed, fallow_mla_concat_kv_query(&params, &need) == FALLOW_OK, "query refused");
    FLW_EXPECT(bed, need.read_bytes + need.write_bytes == 5368709120u + 8388608u, "%llu bytes",
               (unsigned long long)(need.read_bytes + need.write_bytes));
    FLW_EXPECT(bed, need.output_count == 1 && need.outputs[0].bytes == (size_t)3 << 30, "k");
    params.v_columns = 192;
    FLW_EXPECT(bed, fallow_mla_concat_kv_query(&params, &need) == FALLOW_OK, "query refused");
    FLW_EXPECT(bed,
               need.output_count == 2 && need.outputs[1].bytes == (size_t)3 << 30 &&
                   need.outputs[1].init == FALLOW_INIT_NEUTRAL_TAIL,
               "v");
    FLW_EXPECT(bed, need.write_bytes == (uint64_t)6 << 30, "k and v");
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_concat_kv_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 65536);
    fallow_concat_kv_params_init(&good);
    good.tokens = 4;
    good.heads = 2;
    good.v_columns = 192;
    good.dtype = FALLOW_BF16;
    good.kv = memory;
    good.k_rope = memory + 4096;
    good.k = memory + 8192;
    good.v = memory + 16384;
#define REFUSED(change, word)                                                                     \
    bad = good;                                                                                   \
    change;                                                                                       \
    FLW_EXPECT_REFUSED(bed, fallow_mla_concat_kv(kernels, &bad, stream), FALLOW_INVALID_ARGUMENT, \
                       word)
    REFUSED(bad.tokens = -1, "tokens");
    REFUSED(bad.heads = 0, "heads");
    REFUSED(bad.nope_width = -1, "nope_width");
    REFUSED(bad.rope_width = 16385, "rope_width");
    REFUSED(bad.v_width = -1, "v_width");
    REFUSED(bad.v_columns = 127, "v_columns");
    REFUSED(bad.dtype = FALLOW_I32, "dtype");
    REFUSED(bad.rope_stride = 63, "rope_stride");
    REFUSED(bad.kv_head_stride = 255, "kv_head_stride");
    REFUSED(bad.kv_token_stride = 511, "kv_token_stride");
    REFUSED(bad.k_head_stride = 191, "k_head_stride");
    REFUSED(bad.k_token_stride = 383, "k_token_stride");
    REFUSED(bad.v_head_stride = 191, "v_head_stride");
    REFUSED(bad.v_token_stride = -1, "v_token_stride");
    REFUSED(bad.kv = NULL, "kv is NULL");
    REFUSED(bad.k_rope = NULL, "k_rope is NULL");
    REFUSED(bad.k = NULL, "k is NULL");
    REFUSED(bad.v = NULL, "v is NULL");
    REFUSED(bad.v_columns = 0, "v_columns is 0");
    REFUSED(bad.k = memory, "kv and k overlap");
    REFUSED(bad.v = memory + 8192, "k and v overlap");
    REFUSED(bad.v = memory + 16385, "v is not aligned");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(keys_and_values_are_exact_in_every_type),
        FLW_BED_TEST(parts_of_any_width_are_exact),
        FLW_BED_TEST(the_count_of_tokens_comes_from_the_device),
        FLW_BED_TEST(strides_leave_what_lies_between_alone),
        FLW_BED_TEST(a_captured_concat_follows_the_count),
        FLW_BED_TEST(the_query_counts_what_is_moved),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
