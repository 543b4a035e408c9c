/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "fallow/attention.h"
#include "kernel/call.h"

FLW_MODULE(neutral_rows, fallow_attention_neutral_rows, fallow_neutral_rows, FLW_OUT_MAYBE(rows),
           FLW_OUT_MAYBE(lse), FLW_IN(cu_q), FLW_IN_MAYBE(key_counts), FLW_IN_MAYBE(valid_count),
           FLW_COUNT(tokens, 0, INT32_MAX - 8), FLW_COUNT(heads, 1, 65536),
           FLW_COUNT(width, 1, 1 << 20), FLW_COUNT(batch, 0, 1 << 24), FLW_STRIDE(stride, 16),
           FLW_STRIDE(lse_stride, 16), FLW_FLAG(lse_by_token), FLW_FLAG(lse_is_plus_inf),
           FLW_DTYPE(dtype, FLW_FLOATS | 1 << FALLOW_E4M3 | 1 << FALLOW_U8), FLW_OTHER(cu_k))

/* One call; each request's number of keys is in key_counts, or a difference of cu_k. */
struct fixture {
    struct flw_call call;
    fallow_neutral_rows_params params;
    int32_t *cu_q, *key_counts, *cu_k;
    int32_t valid;
};

/* The oracle: request after request. */
static bool *expect(const struct fixture *fixture)
{
    int64_t tokens = fixture->params.tokens;
    bool *neutral = flw_bed_memory(fixture->call.bed, (size_t)tokens);
    memset(neutral, 1, (size_t)tokens);
    for (int32_t b = 0; b < fixture->valid && b < fixture->params.batch; b++) {
        for (int32_t t = fixture->cu_q[b]; t < fixture->cu_q[b + 1] && t < tokens; t++) {
            neutral[t] = fixture->key_counts[b] <= 0;
        }
    }
    return neutral;
}

static size_t row_bytes(const fallow_neutral_rows_params *params)
{
    int64_t stride = params->stride == 0 ? params->width : params->stride;
    return (size_t)(params->heads * stride) * fallow_dtype_bytes(params->dtype);
}

static int64_t lse_at(const fallow_neutral_rows_params *params, int64_t t, int64_t h)
{
    return params->lse_by_token ? t * params->heads + h : h * params->tokens + t;
}

/* Write the rows with keys as attention would: the call writes the neutral rows alone. */
static void attend(struct flw_call *call, void *const outputs[])
{
    const struct fixture *fixture = (const void *)call; /* its first member */
    const fallow_neutral_rows_params *params = &fixture->params;
    size_t bytes = row_bytes(params);
    bool *neutral = expect(fixture);
    void *row = memset(flw_bed_memory(call->bed, bytes), 0x3c, bytes);
    for (int64_t t = 0; t < params->tokens; t++) {
        for (int64_t h = 0; h < params->heads && !neutral[t]; h++) {
            float lse = (float)t + 0.5f;
            flw_bed_write(call->bed, (float *)outputs[1] + lse_at(params, t, h), &lse, 4);
        }
        if (!neutral[t]) {
            flw_bed_write(call->bed, (char *)outputs[0] + (size_t)t * bytes, row, bytes);
        }
    }
}

/* Queries of 0 to 4 tokens, every third request without keys; a tail of padding. */
static struct fixture *make(struct flw_bed *bed, int32_t batch, int32_t heads, int32_t width,
                            fallow_dtype dtype)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    struct flw_call *call = &fixture->call;
    size_t requests = (size_t)batch;
    flw_call_init(bed, call, neutral_rows(), &fixture->params);
    call->before = attend;
    fixture->cu_q = flw_call_input(call, "cu_q", requests + 1, 4);
    fixture->cu_k = flw_call_input(call, "cu_k", requests + 1, 4);
    fixture->key_counts = flw_call_input(call, "key_counts", requests, 4);
    for (int32_t b = 0; b < batch; b++) {
        int64_t keys = flw_bed_random_below(bed, 3) == 0 ? 0 : flw_bed_random_below(bed, 50) + 1;
        fixture->cu_q[b + 1] = fixture->cu_q[b] + (int32_t)flw_bed_random_below(bed, 5);
        fixture->key_counts[b] = (int32_t)keys;
        fixture->cu_k[b + 1] = fixture->cu_k[b] + (int32_t)keys;
    }
    fixture->valid = batch;
    flw_call_bind(call, "valid_count", &fixture->valid, 1, 4);
    flw_call_omit(call, "cu_k");
    fixture->params.batch = batch;
    fixture->params.tokens = fixture->cu_q[batch] + 3;
    fixture->params.heads = heads;
    fixture->params.width = width;
    fixture->params.dtype = dtype;
    return fixture;
}

/* Rows and LSE are as attention left them, `kept` in each byte, or neutral; gaps hold marks. */
static void compare(struct flw_bed *bed, const struct fixture *fixture, unsigned char kept)
{
    const fallow_neutral_rows_params *params = &fixture->params;
    const unsigned char *rows = fixture->call.out[0];
    const float *lse = fixture->call.out[1];
    size_t bytes = row_bytes(params), each = fallow_dtype_bytes(params->dtype);
    size_t stride = bytes / (size_t)params->heads, used = (size_t)params->width * each;
    bool *neutral = expect(fixture);
    for (int64_t t = 0; t < params->tokens; t++) {
        for (size_t i = 0; i < bytes; i++) {
            unsigned char want = i % stride >= used ? 0x5a : neutral[t] ? 0 : kept;
            if (t < params->tokens - 1 || i < bytes - stride + used) {
                FLW_EXPECT(bed, rows[(size_t)t * bytes + i] == want, "byte %zu of token %lld, %s",
                           i, (long long)t, neutral[t] ? "neutral" : "with keys");
            }
        }
        for (int64_t h = 0; h < params->heads && kept == 0x3c; h++) {
            float got = lse[lse_at(params, t, h)];
            float want = !neutral[t]               ? (float)t + 0.5f
                         : params->lse_is_plus_inf ? INFINITY
                                                   : -INFINITY;
            FLW_EXPECT(bed, got == want, "LSE of token %lld, head %lld: %g", (long long)t,
                       (long long)h, (double)got);
        }
    }
}

static void check(struct flw_bed *bed, struct fixture *fixture)
{
    flw_call_prove(&fixture->call);
    compare(bed, fixture, 0x3c);
}

FLW_TEST(rows_without_keys_and_of_no_request_are_neutral)
{
    static const int32_t shapes[][3] = {/* batch, heads, width */
                                        {0, 1, 8},
                                        {1, 2, 3},
                                        {2, 3, 64},
                                        {31, 1, 16},
                                        {33, 2, 7}};
    static const fallow_dtype dtypes[] = {FALLOW_BF16, FALLOW_F32, FALLOW_E4M3, FALLOW_F16,
                                          FALLOW_U8};
    for (int k = 0; k < 20; k++) {
        const int32_t *shape = shapes[k / 4];
        struct fixture *fixture =
            make(bed, shape[0], shape[1], shape[2], dtypes[(k / 4 + k % 4) % 5]);
        if ((k & 1) != 0) {
            flw_call_bind(&fixture->call, "cu_k", fixture->cu_k, (size_t)shape[0] + 1, 4);
            flw_call_omit(&fixture->call, "key_counts");
        }
        fixture->params.lse_by_token = (k & 2) != 0;
        fixture->params.lse_is_plus_inf = k % 4 == 1;
        check(bed, fixture);
    }
}

FLW_TEST(many_requests_are_searched_to_the_end)
{
    static const int32_t batches[] = {1023, 1024, 1057, 4097};
    for (int i = 0; i < 4; i++) {
        struct fixture *fixture = make(bed, batches[i], 1, 1, FALLOW_U8);
        flw_call_run(&fixture->call);
        compare(bed, fixture, 0x3c);
    }
}

FLW_TEST(only_the_valid_requests_have_rows)
{
    for (int32_t valid = -2; valid <= 9; valid += valid < 0 ? 2 : 3) {
        struct fixture *fixture = make(bed, 8, 2, 16, FALLOW_BF16);
        fixture->valid = valid;
        check(bed, fixture);
    }
}

/* A negative count is none; a row stays without an LSE, and an LSE without rows. */
FLW_TEST(either_half_works_alone)
{
    for (int half = 0; half < 2; half++) {
        struct fixture *fixture = make(bed, 3, 1, 4, FALLOW_F32);
        float got[4 * 4];
        size_t bytes = half == 0 ? 64 : 16;
        memcpy(fixture->cu_q, (int32_t[]){0, 1, 2, 3}, 16);
        memcpy(fixture->key_counts, (int32_t[]){-5, 7, 0}, 12);
        fixture->params.tokens = 4;
        fixture->call.before = NULL;
        memset(got, 0xff, sizeof got);
        void *outputs[2] = {NULL, NULL};
        outputs[half] = flw_bed_upload(bed, "half", got, bytes);
        (void)flw_call_need(&fixture->call);
        flw_call_give(&fixture->call);
        flw_call_launch(&fixture->call, outputs);
        flw_bed_read(bed, got, outputs[half], bytes);
        for (int t = 0; t < 4; t++) {
            float value = got[half == 0 ? 4 * t : t];
            FLW_EXPECT(bed,
                       t == 1      ? isnan(value)
                       : half == 0 ? value == 0
                                   : isinf(value),
                       "half %d of row %d", half, t);
        }
    }
}

FLW_TEST(without_key_counts_only_padding_is_set)
{
    struct fixture *fixture = make(bed, 6, 1, 8, FALLOW_BF16);
    for (int b = 0; b < 6; b++) {
        fixture->key_counts[b] = 1;
    }
    fixture->valid = 4;
    flw_call_omit(&fixture->call, "key_counts");
    check(bed, fixture);
}

/* Heads of 8 in rows of 12 or 16: the gaps keep their contents. */
FLW_TEST(heads_that_are_apart_keep_their_gaps)
{
    for (int32_t stride = 12; stride <= 16; stride += 4) {
        struct fixture *fixture = make(bed, 4, 37, 8, FALLOW_BF16);
        fixture->params.stride = stride;
        fixture->call.before = NULL;
        flw_call_run(&fixture->call);
        compare(bed, fixture, 0x5a);
    }
}

FLW_TEST(a_graph_takes_requests_and_keys_from_the_device)
{
    struct fixture *fixture = make(bed, 16, 1, 8, FALLOW_U8);
    flw_call_capture(&fixture->call);
    for (fixture->valid = 16; fixture->valid >= 0; fixture->valid -= 4) {
        struct fixture *next = make(bed, 16, 1, 8, FALLOW_U8);
        memcpy(fixture->cu_q, next->cu_q, 17 * 4);
        memcpy(fixture->key_counts, next->key_counts, 16 * 4);
        flw_call_replay(&fixture->call);
        compare(bed, fixture, 0x3c);
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = make(bed, 3, 2, 16, FALLOW_BF16);
    memcpy(fixture->cu_q, (int32_t[]){0, 3, 5, 13}, 16);
    fixture->params.tokens = 16;
    FLW_CALL_REFUSE(&fixture->call, "tokens=1073741824 stride=1099511627776: rows",
                    "rows=NULL lse=NULL: rows and lse are both NULL",
                    "cu_k=@cu_q: key_counts and cu_k", "cu_k=@cu_q+2 key_counts=NULL: cu_k is not");
}
