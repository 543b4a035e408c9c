/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/number.h"
#include "fallow/attention.h"
#include "kernel/bed.h"

#define MOST_BATCH 4097

/* One call; each request's number of keys is in key_counts, or a difference of cu_k. */
struct fixture {
    fallow_neutral_rows_params params;
    int32_t cu_q[MOST_BATCH + 1], key_counts[MOST_BATCH], cu_k[MOST_BATCH + 1];
    int32_t valid;
    bool by_cu_k;
};

static size_t row_bytes(const struct fixture *fixture)
{
    const fallow_neutral_rows_params *params = &fixture->params;
    int64_t stride = params->stride == 0 ? params->width : params->stride;
    return (size_t)(params->heads * stride) * fallow_dtype_bytes(params->dtype);
}

/* Queries of 0 to 4 tokens, every third request without keys; a tail of padding. */
static struct fixture *make(struct flw_bed *bed, int32_t batch, int32_t heads, int32_t width,
                            fallow_dtype dtype)
{
    struct fixture *fixture = flw_bed_host(sizeof *fixture);
    fallow_neutral_rows_params_init(&fixture->params);
    for (int32_t b = 0; b < batch; b++) {
        int64_t keys = flw_bed_random_below(bed, 3) == 0 ? 0 : flw_bed_random_below(bed, 50) + 1;
        fixture->cu_q[b + 1] = fixture->cu_q[b] + (int32_t)flw_bed_random_below(bed, 5);
        fixture->key_counts[b] = (int32_t)keys;
        fixture->cu_k[b + 1] = fixture->cu_k[b] + (int32_t)keys;
    }
    fixture->valid = batch;
    fixture->params.batch = batch;
    fixture->params.tokens = fixture->cu_q[batch] + 3;
    fixture->params.heads = heads;
    fixture->params.width = width;
    fixture->params.dtype = dtype;
    return fixture;
}

/* The oracle: request after request. */
static bool *expect(const struct fixture *fixture)
{
    int64_t tokens = fixture->params.tokens;
    bool *neutral = flw_bed_host((size_t)tokens);
    memset(neutral, 1, (size_t)tokens);
    for (int32_t b = 0; b < fixture->valid && b < fixture->params.batch; b++) {
        for (int32_t t = fixture->cu_q[b]; t < fixture->cu_q[b + 1] && t < tokens; t++) {
            neutral[t] = fixture->key_counts[b] <= 0;
        }
    }
    return neutral;
}

/* Upload the inputs, and the previous contents of rows and LSE. */
static void upload(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_neutral_rows_params *params = &fixture->params;
    size_t entries = (size_t)params->batch + 1;
    params->cu_q = flw_bed_upload(bed, "cu_q", fixture->cu_q, entries * 4);
    params->valid_count = flw_bed_upload(bed, "valid_count", &fixture->valid, 4);
    if (fixture->by_cu_k) {
        params->cu_k = flw_bed_upload(bed, "cu_k", fixture->cu_k, entries * 4);
    } else {
        params->key_counts =
            flw_bed_upload(bed, "key_counts", fixture->key_counts, (entries - 1) * 4);
    }
}

/* Write the rows with keys as attention would, then let the call write the others: all bytes are
 * declared, and only the call writes neutral rows. */
static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    struct fixture *fixture = inputs;
    fallow_neutral_rows_params params = fixture->params;
    size_t bytes = row_bytes(fixture);
    bool *neutral = expect(fixture);
    unsigned char *row = flw_bed_host(bytes);
    memset(row, 0x3c, bytes);
    for (int64_t t = 0; t < params.tokens; t++) {
        for (int64_t h = 0; h < params.heads && !neutral[t]; h++) {
            float lse = (float)t + 0.5f;
            int64_t at = params.lse_by_token ? t * params.heads + h : h * params.tokens + t;
            flw_bed_write(bed, (float *)outputs[1] + at, &lse, 4);
        }
        if (!neutral[t]) {
            flw_bed_write(bed, (char *)outputs[0] + (size_t)t * bytes, row, bytes);
        }
    }
    params.rows = outputs[0];
    params.lse = outputs[1];
    FLW_EXPECT_OK(
        bed, fallow_attention_neutral_rows(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
    free(neutral);
    free(row);
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_neutral_rows_query(&fixture->params, &need),
                    &need);
    return step;
}

static void compare(struct flw_bed *bed, const struct fixture *fixture, const unsigned char *rows,
                    const float *lse)
{
    const fallow_neutral_rows_params *params = &fixture->params;
    size_t bytes = row_bytes(fixture);
    bool *neutral = expect(fixture);
    for (int64_t t = 0; t < params->tokens; t++) {
        for (size_t i = 0; i < bytes; i++) {
            FLW_EXPECT(bed, rows[(size_t)t * bytes + i] == (neutral[t] ? 0 : 0x3c),
                       "byte %zu of token %lld, %s", i, (long long)t,
                       neutral[t] ? "neutral" : "with keys");
        }
        for (int64_t h = 0; h < params->heads; h++) {
            float got = lse[params->lse_by_token ? t * params->heads + h : h * params->tokens + t];
            float want = !neutral[t]               ? (float)t + 0.5f
                         : params->lse_is_plus_inf ? INFINITY
                                                   : -INFINITY;
            FLW_EXPECT(bed, got == want, "LSE of token %lld, head %lld: %g", (long long)t,
                       (long long)h, (double)got);
        }
    }
    free(neutral);
}

static void check(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_neutral_rows_params *params = &fixture->params;
    struct fixture *larger = make(bed, params->batch + 5 > MOST_BATCH ? 7 : params->batch + 5,
                                  params->heads, params->width, params->dtype);
    struct fixture *smaller =
        make(bed, params->batch / 2, params->heads, params->width, params->dtype);
    unsigned char *rows = flw_bed_host((size_t)params->tokens * row_bytes(fixture));
    float *lse = flw_bed_host((size_t)(params->tokens * params->heads) * 4);
    upload(bed, fixture);
    upload(bed, larger);
    upload(bed, smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    flw_bed_prove(bed, &step, &before, &after, (void *[]){rows, lse});
    compare(bed, fixture, rows, lse);
    free(rows);
    free(lse);
    free(larger);
    free(smaller);
}

static void rows_without_keys_and_of_no_request_are_neutral(struct flw_bed *bed)
{
    static const int32_t shapes[][3] = {/* batch, heads, width */
                                        {0, 1, 8},
                                        {1, 2, 3},
                                        {2, 3, 64},
                                        {31, 1, 16},
                                        {33, 2, 7}};
    static const fallow_dtype dtypes[] = {FALLOW_BF16, FALLOW_F32, FALLOW_E4M3, FALLOW_F16,
                                          FALLOW_U8};
    for (int s = 0; s < 5; s++) {
        for (int bits = 0; bits < 4; bits++) {
            struct fixture *fixture =
                make(bed, shapes[s][0], shapes[s][1], shapes[s][2], dtypes[(s + bits) % 5]);
            fixture->by_cu_k = (bits & 1) != 0;
            fixture->params.lse_by_token = (bits & 2) != 0;
            fixture->params.lse_is_plus_inf = bits == 1;
            check(bed, fixture);
            free(fixture);
        }
    }
}

static void many_requests_are_searched_to_the_end(struct flw_bed *bed)
{
    static const int32_t batches[] = {1023, 1024, 1057, 4097};
    for (int i = 0; i < 4; i++) {
        struct fixture *fixture = make(bed, batches[i], 1, 1, FALLOW_U8);
        unsigned char *rows = flw_bed_host((size_t)fixture->params.tokens);
        float *lse = flw_bed_host((size_t)fixture->params.tokens * 4);
        void *outputs[] = {flw_bed_buffer(bed, "rows", (size_t)fixture->params.tokens),
                           flw_bed_buffer(bed, "lse", (size_t)fixture->params.tokens * 4)};
        upload(bed, fixture);
        launch(bed, fixture, outputs);
        flw_bed_read(bed, rows, outputs[0], (size_t)fixture->params.tokens);
        flw_bed_read(bed, lse, outputs[1], (size_t)fixture->params.tokens * 4);
        compare(bed, fixture, rows, lse);
        free(rows);
        free(lse);
        free(fixture);
    }
}

static void only_the_valid_requests_have_rows(struct flw_bed *bed)
{
    for (int32_t valid = -2; valid <= 9; valid += valid < 0 ? 2 : 3) {
        struct fixture *fixture = make(bed, 8, 2, 16, FALLOW_BF16);
        fixture->valid = valid;
        check(bed, fixture);
        free(fixture);
    }
}

/* A negative count is none; a row stays without an LSE, and an LSE without rows. */
static void either_half_works_alone(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 0, 1, 4, FALLOW_F32);
    float rows[4 * 4], lse[4];
    memcpy(fixture->cu_q, (int32_t[]){0, 1, 2, 3}, 16);
    memcpy(fixture->key_counts, (int32_t[]){-5, 7, 0}, 12);
    fixture->params.batch = fixture->valid = 3;
    fixture->params.tokens = 4;
    upload(bed, fixture);
    memset(rows, 0xff, sizeof rows);
    memset(lse, 0xff, sizeof lse);
    fallow_neutral_rows_params params = fixture->params;
    params.rows = flw_bed_upload(bed, "rows", rows, sizeof rows);
    FLW_EXPECT_OK(
        bed, fallow_attention_neutral_rows(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
    flw_bed_read(bed, rows, params.rows, sizeof rows);
    params.rows = NULL;
    params.lse = flw_bed_upload(bed, "lse", lse, sizeof lse);
    FLW_EXPECT_OK(
        bed, fallow_attention_neutral_rows(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
    flw_bed_read(bed, lse, params.lse, sizeof lse);
    for (int t = 0; t < 4; t++) {
        FLW_EXPECT(bed, t == 1 ? isnan(rows[4 * t]) : rows[4 * t] == 0, "row %d", t);
        FLW_EXPECT(bed, t == 1 ? isnan(lse[t]) : isinf(lse[t]), "LSE %d", t);
    }
    free(fixture);
}

static void without_key_counts_only_padding_is_set(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 6, 1, 8, FALLOW_BF16);
    for (int b = 0; b < 6; b++) {
        fixture->key_counts[b] = 1;
    }
    fixture->valid = 4;
    upload(bed, fixture);
    fixture->params.key_counts = NULL;
    size_t tokens = (size_t)fixture->params.tokens;
    unsigned char *rows = flw_bed_host(tokens * 16);
    float *lse = flw_bed_host(tokens * 4);
    void *outputs[] = {flw_bed_buffer(bed, "rows", tokens * 16),
                       flw_bed_buffer(bed, "lse", tokens * 4)};
    launch(bed, fixture, outputs);
    flw_bed_read(bed, rows, outputs[0], tokens * 16);
    flw_bed_read(bed, lse, outputs[1], tokens * 4);
    compare(bed, fixture, rows, lse);
    free(rows);
    free(lse);
    free(fixture);
}

/* Heads of 8 in rows of 12: the gaps keep their contents. */
static void heads_that_lie_apart_keep_their_gaps(struct flw_bed *bed)
{
    static const int32_t strides[] = {12, 16};
    for (int s = 0; s < 2; s++) {
        struct fixture *fixture = make(bed, 4, 37, 8, FALLOW_BF16);
        int32_t stride = strides[s];
        upload(bed, fixture);
        fixture->params.stride = stride;
        size_t count = (size_t)(fixture->params.tokens * 37 * stride);
        uint16_t *rows = flw_bed_host(count * 2);
        memset(rows, 0x5a, count * 2);
        fixture->params.rows = flw_bed_upload(bed, "rows", rows, count * 2);
        FLW_EXPECT_OK(bed, fallow_attention_neutral_rows(flw_bed_kernels(bed), &fixture->params,
                                                         flw_bed_stream(bed)));
        flw_bed_read(bed, rows, fixture->params.rows, count * 2);
        bool *neutral = expect(fixture);
        for (size_t i = 0; i < count; i++) {
            bool is_set = neutral[i / (size_t)(37 * stride)] && i % (size_t)stride < 8;
            FLW_EXPECT(bed, rows[i] == (is_set ? 0 : 0x5a5a), "element %zu is 0x%04x", i, rows[i]);
        }
        free(neutral);
        free(rows);
        free(fixture);
    }
}

static void launch_alone(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    (void)outputs;
    FLW_EXPECT_OK(bed,
                  fallow_attention_neutral_rows(flw_bed_kernels(bed), inputs, flw_bed_stream(bed)));
}

static void a_graph_takes_requests_and_keys_from_the_device(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 16, 1, 8, FALLOW_U8);
    size_t tokens = (size_t)fixture->params.tokens;
    unsigned char *rows = flw_bed_host(tokens * 8);
    upload(bed, fixture);
    fixture->params.rows = flw_bed_buffer(bed, "rows", tokens * 8);
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch_alone, &fixture->params, NULL);
    for (int32_t valid = 16; valid >= 0; valid -= 4) {
        struct fixture *next = make(bed, valid, 1, 8, FALLOW_U8);
        memset(rows, 0x5a, tokens * 8);
        next->valid = valid;
        next->params.tokens = (int64_t)tokens;
        flw_bed_write(bed, fixture->params.cu_q, next->cu_q, 17 * 4);
        flw_bed_write(bed, fixture->params.key_counts, next->key_counts, 64);
        flw_bed_write(bed, fixture->params.valid_count, &valid, 4);
        flw_bed_write(bed, fixture->params.rows, rows, tokens * 8);
        flw_bed_replay(bed, graph);
        flw_bed_read(bed, rows, fixture->params.rows, tokens * 8);
        bool *neutral = expect(next);
        for (size_t i = 0; i < tokens * 8; i++) {
            FLW_EXPECT(bed, rows[i] == (neutral[i / 8] ? 0 : 0x5a), "byte %zu, %d valid", i, valid);
        }
        free(neutral);
        free(next);
    }
    free(rows);
    free(fixture);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_neutral_rows_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 1 << 14);
    fallow_neutral_rows_params_init(&good);
    good.tokens = 4;
    good.heads = 2;
    good.width = 16;
    good.batch = 3;
    good.dtype = FALLOW_BF16;
    good.rows = memory;
    good.lse = (float *)(void *)(memory + 4096);
    good.cu_q = (int32_t *)(void *)(memory + 8192);
#define REFUSED(change, word)                                                     \
    bad = good;                                                                   \
    change;                                                                       \
    FLW_EXPECT_REFUSED(bed, fallow_attention_neutral_rows(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.tokens = -1, "tokens");
    REFUSED(bad.heads = 0, "heads");
    REFUSED(bad.width = 0, "width");
    REFUSED(bad.batch = -1, "batch");
    REFUSED(bad.stride = 15, "stride");
    REFUSED(bad.lse_stride = 3, "lse_stride");
    REFUSED(bad.dtype = FALLOW_I64, "dtype");
    REFUSED(bad.lse_is_plus_inf = 3, "lse_is_plus_inf");
    REFUSED((bad.tokens = 1 << 30, bad.stride = (int64_t)1 << 40), "rows");
    REFUSED(bad.cu_q = NULL, "cu_q is NULL");
    REFUSED((bad.rows = NULL, bad.lse = NULL), "rows and lse are both NULL");
    REFUSED((bad.cu_k = good.cu_q, bad.key_counts = good.cu_q), "key_counts and cu_k");
    REFUSED(bad.rows = memory + 1, "rows is not aligned");
    REFUSED(bad.lse = (float *)(void *)(memory + 128), "rows and lse overlap");
    REFUSED(bad.lse = (float *)(void *)(memory + 8192), "cu_q and lse overlap");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(rows_without_keys_and_of_no_request_are_neutral),
        FLW_BED_TEST(many_requests_are_searched_to_the_end),
        FLW_BED_TEST(only_the_valid_requests_have_rows),
        FLW_BED_TEST(either_half_works_alone),
        FLW_BED_TEST(without_key_counts_only_padding_is_set),
        FLW_BED_TEST(heads_that_lie_apart_keep_their_gaps),
        FLW_BED_TEST(a_graph_takes_requests_and_keys_from_the_device),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
