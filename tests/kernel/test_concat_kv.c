/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/mla.h"
#include "kernel/call.h"

#define DTYPES (FLW_FLOATS | 1 << FALLOW_E4M3)

FLW_MODULE(concat_kv, fallow_mla_concat_kv, fallow_concat_kv, FLW_IN(kv), FLW_IN(k_rope),
           FLW_IN_MAYBE(token_count), FLW_OUT(k), FLW_OUT(v), FLW_COUNT(tokens, 0, INT32_MAX),
           FLW_COUNT(heads, 1, 65535), FLW_COUNT(nope_width, 0, 16384),
           FLW_COUNT(rope_width, 0, 16384), FLW_COUNT(v_width, 0, 16384),
           FLW_COUNT(v_columns, 128, 16384), FLW_DTYPE(dtype, DTYPES), FLW_STRIDE(rope_stride, 64),
           FLW_STRIDE(kv_head_stride, 256), FLW_STRIDE(k_head_stride, 192),
           FLW_STRIDE(v_head_stride, 192), FLW_COUNT(kv_token_stride, 512, (int64_t)1 << 56),
           FLW_COUNT(k_token_stride, 384, (int64_t)1 << 56),
           FLW_COUNT(v_token_stride, 384, (int64_t)1 << 56))

struct fixture {
    struct flw_call call;
    fallow_concat_kv_params params;
    unsigned char *kv, *rope; /* any bits, including NaN */
    int32_t count;            /* of tokens that are written */
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

static int64_t written(const struct fixture *fixture)
{
    int32_t most = fixture->params.tokens;
    return fixture->count < 0 ? 0 : fixture->count < most ? fixture->count : most;
}

static struct fixture *make(struct flw_bed *bed, int32_t tokens, int32_t heads, int32_t v_columns,
                            fallow_dtype dtype)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    fallow_concat_kv_params *params = &fixture->params;
    flw_call_init(bed, &fixture->call, concat_kv(), params);
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

static unsigned char *draw(struct fixture *fixture, const char *name, int64_t elements)
{
    size_t bytes = (size_t)elements * fixture->each;
    unsigned char *host = flw_call_input(&fixture->call, name, bytes, 1);
    for (size_t i = 0; i < bytes; i++) {
        host[i] = (unsigned char)flw_bed_random(fixture->call.bed);
    }
    return host;
}

/* Draw inputs of the shape that the parameters have by now. */
static struct flw_call *fill(struct fixture *fixture)
{
    struct strides strides = strides_of(&fixture->params);
    fixture->kv = draw(fixture, "kv", fixture->params.tokens * strides.kv_token);
    fixture->rope = draw(fixture, "k_rope", fixture->params.tokens * strides.rope);
    flw_call_bind(&fixture->call, "token_count", &fixture->count, 1, 4);
    fixture->call.limit[0] = (size_t)(written(fixture) * strides.k_token) * fixture->each;
    fixture->call.limit[1] = (size_t)(written(fixture) * strides.v_token) * fixture->each;
    return &fixture->call;
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

/* Compare the tokens that are written, and the marks in all other bytes that were read. */
static void compare(struct flw_bed *bed, const struct fixture *fixture, int output, size_t bytes)
{
    static const unsigned char zero[4] = {0}, mark[4] = {0x5a, 0x5a, 0x5a, 0x5a};
    const fallow_concat_kv_params *params = &fixture->params;
    struct strides strides = strides_of(params);
    bool is_k = output == 0;
    int64_t width = is_k ? params->nope_width + params->rope_width : params->v_columns;
    int64_t token = is_k ? strides.k_token : strides.v_token;
    int64_t head = is_k ? strides.k_head : strides.v_head;
    const char *out = fixture->call.out[output];
    for (int64_t at = 0; at < (int64_t)(bytes / fixture->each); at++) {
        int64_t t = at / token, h = at % token / head, i = at % token % head;
        bool is_ours = t < written(fixture) && h < params->heads && i < width;
        const unsigned char *want = is_ours ? source_of(fixture, is_k, t, h, i) : mark;
        FLW_EXPECT(bed,
                   memcmp(out + (size_t)at * fixture->each, want != NULL ? want : zero,
                          fixture->each) == 0,
                   "%s of token %lld, head %lld, element %lld", is_k ? "k" : "v", (long long)t,
                   (long long)h, (long long)i);
    }
}

/* Prove a case without gaps, and compare. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    flw_call_prove(fill(fixture));
    for (int i = 0; i < (fixture->params.v_columns > 0 ? 2 : 1); i++) {
        compare(bed, fixture, i, fixture->call.step.declared_bytes[i]);
    }
}

static const fallow_dtype dtypes[] = {FALLOW_BF16, FALLOW_F16, FALLOW_F32, FALLOW_E4M3};

FLW_TEST(keys_and_values_are_exact_in_every_type)
{
    static const int32_t columns[] = {0, 128, 192};
    static const int32_t tokens[] = {0, 1, 7}, heads[] = {1, 16, 33};
    for (int k = 0; k < 36; k++) {
        check(bed, make(bed, tokens[k / 12], heads[k / 4 % 3], columns[k % 3], dtypes[k % 4]));
    }
}

FLW_TEST(parts_of_any_width_are_exact)
{
    static const int32_t widths[][4] = {
        {1, 1, 1, 0}, {1, 2, 3, 5}, {24, 8, 16, 40}, {24, 8, 20, 40}, {300, 9, 128, 129}};
    for (int k = 0; k < 20; k++) {
        const int32_t *width = widths[k / 4];
        struct fixture *fixture = make(bed, 3, 5, width[3], dtypes[k % 4]);
        fixture->params.nope_width = width[0];
        fixture->params.rope_width = width[1];
        fixture->params.v_width = width[2];
        check(bed, fixture);
    }
}

FLW_TEST(the_count_of_tokens_comes_from_the_device)
{
    static const int32_t counts[] = {0, 1, 5, 6, 9, -2};
    for (int k = 0; k < 6; k++) {
        struct fixture *fixture = make(bed, 6, 4, 192, FALLOW_BF16);
        fixture->count = counts[k];
        check(bed, fixture);
    }
}

/* Bytes between heads and tokens, and after the last token, keep their values. */
FLW_TEST(strides_leave_gaps_alone)
{
    for (int k = 0; k < 2; k++) {
        struct fixture *fixture = make(bed, 4, 3, 136, FALLOW_BF16);
        fallow_concat_kv_params *params = &fixture->params;
        int64_t extra = k == 0 ? 8 : 3; /* by 16 bytes at a time, and not */
        fixture->count = 3;
        params->kv_head_stride = 256 + extra;
        params->kv_token_stride = 3 * (256 + extra) + 16;
        params->rope_stride = 64 + extra;
        params->k_head_stride = 192 + extra;
        params->k_token_stride = 3 * (192 + extra) + 8;
        params->v_head_stride = 136 + extra;
        flw_call_run(fill(fixture));
        compare(bed, fixture, 0, fixture->call.step.buffer_bytes[0]);
        compare(bed, fixture, 1, fixture->call.step.buffer_bytes[1]);
    }
}

FLW_TEST(a_captured_concat_follows_the_count)
{
    static const int32_t counts[] = {8, 3, 0, 5};
    struct fixture *fixture = make(bed, 8, 2, 192, FALLOW_BF16);
    flw_call_capture(fill(fixture));
    for (int k = 0; k < 4; k++) {
        fixture->count = counts[k];
        flw_call_replay(fill(fixture));
        compare(bed, fixture, 0, fixture->call.step.declared_bytes[0]);
        compare(bed, fixture, 1, fixture->call.step.declared_bytes[1]);
    }
}

FLW_TEST(the_query_counts_the_bytes_that_are_moved)
{
    struct fixture *fixture = make(bed, 65536, 128, 0, FALLOW_BF16);
    fallow_workspace_need need = flw_call_need(&fixture->call);
    FLW_EXPECT(bed, need.read_bytes + need.write_bytes == 5368709120u + 8388608u, "%llu bytes",
               (unsigned long long)(need.read_bytes + need.write_bytes));
    FLW_EXPECT(bed, need.output_count == 1 && need.outputs[0].bytes == (size_t)3 << 30, "k");
    fixture->params.v_columns = 192;
    need = flw_call_need(&fixture->call);
    FLW_EXPECT(bed,
               need.output_count == 2 && need.outputs[1].bytes == (size_t)3 << 30 &&
                   need.outputs[1].init == FALLOW_INIT_NEUTRAL_TAIL,
               "v");
    FLW_EXPECT(bed, need.write_bytes == (uint64_t)6 << 30, "k and v");
}

FLW_TEST(mistakes_are_refused_by_name)
{
    FLW_CALL_REFUSE(fill(make(bed, 4, 2, 192, FALLOW_BF16)), "v_columns=0: v_columns is 0",
                    "v_token_stride=-1: v_token_stride");
}
