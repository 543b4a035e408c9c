/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/number.h"
#include "fallow/mla.h"
#include "kernel/bed.h"

#define MOST_BATCH 20

/* One call, with the inputs in host memory. */
struct fixture {
    fallow_gather_kv_params params;
    unsigned char *cache;
    int32_t *table; /* [batch, table_columns], row stride table_stride */
    int32_t lengths[MOST_BATCH], starts[MOST_BATCH], cu[MOST_BATCH + 1];
    int32_t *owners; /* token_to_seq */
    float scale;
    size_t cache_bytes, table_count;
};

static void drop(struct fixture *fixture)
{
    free(fixture->cache);
    free(fixture->table);
    free(fixture->owners);
    free(fixture);
}

static size_t cache_each(const fallow_gather_kv_params *params)
{
    return params->format == FALLOW_KV_ROWS ? fallow_dtype_bytes(params->dtype) : 1;
}

/* Bytes of the strides, by the header's defaults. */
static int64_t token_bytes(const fallow_gather_kv_params *params)
{
    int64_t usual = params->format == FALLOW_KV_FLASHMLA ? 656 : params->width;
    return (params->token_stride != 0 ? params->token_stride : usual) * (int64_t)cache_each(params);
}

static int64_t block_bytes(const fallow_gather_kv_params *params)
{
    int64_t usual = params->format == FALLOW_KV_INDEXER ? (int64_t)params->page_size * 132
                                                        : params->page_size * token_bytes(params);
    return params->block_stride != 0 ? params->block_stride * (int64_t)cache_each(params) : usual;
}

/* Write small scales at their places in the format, so that no NaN results from garbage. */
static void set_scales(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_gather_kv_params *params = &fixture->params;
    for (int64_t token = 0; token < (int64_t)params->block_count * params->page_size; token++) {
        int64_t block = token / params->page_size * block_bytes(params);
        int64_t in_block = token % params->page_size;
        float scales[4];
        for (int i = 0; i < 4; i++) {
            scales[i] = (float)flw_bed_random_below(bed, 1000000) / 777777.0f;
        }
        if (params->format == FALLOW_KV_FLASHMLA) {
            memcpy(fixture->cache + block + in_block * token_bytes(params) + 512, scales, 16);
        } else if (params->format == FALLOW_KV_INDEXER) {
            memcpy(fixture->cache + block + (int64_t)params->page_size * 128 + in_block * 4, scales,
                   4);
        }
    }
}

static void set_lengths(struct fixture *fixture, const int32_t *lengths, int32_t batch)
{
    fixture->params.batch = batch;
    for (int32_t b = 0; b < batch; b++) {
        fixture->lengths[b] = lengths[b];
        fixture->cu[b + 1] = fixture->cu[b] + lengths[b];
    }
    free(fixture->owners);
    fixture->owners = flw_bed_host(((size_t)fixture->cu[batch] + 64) * 4);
    for (int32_t b = 0; b < batch; b++) {
        for (int32_t t = fixture->cu[b]; t < fixture->cu[b + 1]; t++) {
            fixture->owners[t] = b;
        }
    }
}

/* Make a cache of random bytes with random sequences; the table's rows are longer than their
 * columns. */
static struct fixture *make(struct flw_bed *bed, fallow_kv_format format, fallow_dtype dtype,
                            int32_t batch, int32_t page_size)
{
    struct fixture *fixture = flw_bed_host(sizeof *fixture);
    fallow_gather_kv_params *params = &fixture->params;
    int32_t lengths[MOST_BATCH], longest = 1;
    fallow_gather_kv_params_init(params);
    params->format = format;
    params->dtype = dtype;
    params->width = format == FALLOW_KV_INDEXER ? 128 : 576;
    params->page_size = page_size;
    params->block_count = 9;
    for (int32_t b = 0; b < batch; b++) {
        lengths[b] = b % 3 == 1 ? 0 : (int32_t)flw_bed_random_below(bed, 19);
        fixture->starts[b] = (int32_t)flw_bed_random_below(bed, 4) * page_size;
        longest =
            lengths[b] + fixture->starts[b] > longest ? lengths[b] + fixture->starts[b] : longest;
    }
    set_lengths(fixture, lengths, batch);
    params->tokens = fixture->cu[batch] + 5;
    params->table_columns = (longest + page_size - 1) / page_size;
    params->table_stride = params->table_columns + 3;
    fixture->table_count = (size_t)batch * (size_t)params->table_stride;
    fixture->table = flw_bed_host(fixture->table_count * 4);
    for (size_t i = 0; i < fixture->table_count; i++) {
        bool is_outside = (int64_t)i % params->table_stride >= params->table_columns;
        fixture->table[i] = is_outside ? 77 : (int32_t)flw_bed_random_below(bed, 9);
    }
    return fixture;
}

static void fill_cache(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_gather_kv_params *params = &fixture->params;
    fixture->cache_bytes = (size_t)(block_bytes(params) * params->block_count);
    fixture->cache = flw_bed_host(fixture->cache_bytes);
    for (size_t i = 0; i < fixture->cache_bytes; i++) {
        fixture->cache[i] = (unsigned char)flw_bed_random(bed);
    }
    set_scales(bed, fixture);
    fixture->scale = 0.3721f;
}

static void upload(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_gather_kv_params *params = &fixture->params;
    size_t batch = (size_t)params->batch;
    bool has_owners = params->token_to_seq != NULL;
    fill_cache(bed, fixture);
    params->cache = flw_bed_upload(bed, "cache", fixture->cache, fixture->cache_bytes);
    params->block_table =
        flw_bed_upload(bed, "block_table", fixture->table, fixture->table_count * 4);
    params->cu_seqlens = flw_bed_upload(bed, "cu_seqlens", fixture->cu, (batch + 1) * 4);
    params->starts = flw_bed_upload(bed, "starts", fixture->starts, batch * 4);
    params->scale = flw_bed_upload(bed, "scale", &fixture->scale, 4);
    if (has_owners) {
        params->token_to_seq =
            flw_bed_upload(bed, "token_to_seq", fixture->owners, (size_t)params->tokens * 4);
    }
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_gather_kv_params params = ((struct fixture *)inputs)->params;
    params.dst = outputs[0];
    params.dst_scales = params.format == FALLOW_KV_INDEXER ? outputs[1] : NULL;
    FLW_EXPECT_OK(bed, fallow_mla_gather_kv(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static int32_t rows_written(const struct fixture *fixture)
{
    int32_t total = fixture->cu[fixture->params.batch];
    return total < fixture->params.tokens ? total : fixture->params.tokens;
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    const fallow_gather_kv_params *params = &fixture->params;
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    size_t rows = (size_t)rows_written(fixture);
    flw_bed_declare(bed, &step, fallow_mla_gather_kv_query(params, &need), &need);
    step.declared_bytes[0] = rows * (size_t)params->width * fallow_dtype_bytes(params->dtype);
    step.declared_bytes[1] = rows * 4;
    return step;
}

/* Decode e4m3 by the fields, in double. */
static double e4m3(unsigned char raw)
{
    int exponent = raw / 8 % 16, mantissa = raw % 8;
    double size = exponent == 0 ? mantissa / 512.0 : (8 + mantissa) / 8.0 * exp2(exponent - 7);
    return raw % 128 == 127 ? (double)NAN : raw < 128 ? size : -size;
}

static uint16_t product(unsigned char raw, float scale)
{
    return flw_bf16_narrow((float)(e4m3(raw) * (double)scale));
}

/* Row `row` of dst from token `from` of the cache. */
static void expect_row(struct flw_bed *bed, const struct fixture *fixture,
                       const unsigned char *from, const unsigned char *row, int32_t t)
{
    const fallow_gather_kv_params *params = &fixture->params;
    for (int32_t i = 0; i < params->width; i++) {
        uint16_t want = 0, got = 0;
        float scale = params->scale != NULL ? fixture->scale : 1.0f;
        size_t each = fallow_dtype_bytes(params->dtype);
        memcpy(&got, row + (size_t)i * each, each);
        if (params->format == FALLOW_KV_ROWS || params->format == FALLOW_KV_INDEXER) {
            memcpy(&want, from + (size_t)i * each, each);
        } else if (params->format == FALLOW_KV_E4M3) {
            want = product(from[i], scale);
        } else if (i < 512) {
            memcpy(&scale, from + 512 + i / 128 * 4, 4);
            want = product(from[i], scale);
        } else {
            memcpy(&want, from + 528 + (i - 512) * 2, 2);
        }
        FLW_EXPECT(bed, got == want, "row %d element %d is 0x%04x, expected 0x%04x", t, i, got,
                   want);
    }
}

/* Compare the rows with the cache. Rows in `bad`, if given, must be zeros. */
static void compare(struct flw_bed *bed, const struct fixture *fixture, const unsigned char *dst,
                    const float *scales, const bool *bad)
{
    const fallow_gather_kv_params *params = &fixture->params;
    size_t row_bytes = (size_t)params->width * fallow_dtype_bytes(params->dtype);
    int32_t t = 0;
    for (int32_t b = 0; b < params->batch; b++) {
        for (int32_t k = 0; k < fixture->lengths[b] && t < params->tokens; k++, t++) {
            const unsigned char *row = dst + (size_t)t * row_bytes;
            if (bad != NULL && bad[t]) {
                for (size_t i = 0; i < row_bytes; i++) {
                    FLW_EXPECT(bed, row[i] == 0, "row %d byte %zu is not 0", t, i);
                }
                FLW_EXPECT(bed, scales == NULL || scales[t] == 0.0f, "scale %d is not 0", t);
                continue;
            }
            int32_t position = (params->starts != NULL ? fixture->starts[b] : 0) + k;
            int32_t page = position / params->page_size;
            int32_t in_block = position - page * params->page_size;
            const unsigned char *block =
                fixture->cache +
                fixture->table[b * params->table_stride + page] * block_bytes(params);
            expect_row(bed, fixture, block + in_block * token_bytes(params), row, t);
            if (scales != NULL) {
                float want;
                memcpy(&want, block + (int64_t)params->page_size * 128 + (int64_t)in_block * 4, 4);
                FLW_EXPECT(bed, scales[t] == want, "scale of row %d", t);
            }
        }
    }
}

/* Prove a case with an uploaded fixture, and compare with the oracle. */
static void check(struct flw_bed *bed, struct fixture *fixture, const bool *bad)
{
    const fallow_gather_kv_params *params = &fixture->params;
    struct fixture *larger =
        make(bed, params->format, params->dtype, MOST_BATCH, params->page_size);
    struct fixture *smaller = make(bed, params->format, params->dtype, 1, params->page_size);
    unsigned char *dst = flw_bed_host((size_t)params->tokens * (size_t)params->width * 2);
    float *scales = flw_bed_host((size_t)params->tokens * 4);
    upload(bed, larger);
    upload(bed, smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    flw_bed_prove(bed, &step, &before, &after, (void *[]){dst, scales});
    compare(bed, fixture, dst, params->format == FALLOW_KV_INDEXER ? scales : NULL, bad);
    free(dst);
    free(scales);
    drop(larger);
    drop(smaller);
}

static const struct {
    fallow_kv_format format;
    fallow_dtype dtype;
} forms[] = {{FALLOW_KV_ROWS, FALLOW_BF16},     {FALLOW_KV_ROWS, FALLOW_F16},
             {FALLOW_KV_ROWS, FALLOW_U8},       {FALLOW_KV_E4M3, FALLOW_BF16},
             {FALLOW_KV_FLASHMLA, FALLOW_BF16}, {FALLOW_KV_INDEXER, FALLOW_E4M3}};
#define FORM_COUNT (sizeof forms / sizeof *forms)

/* With the sequence of each token given, and searched. */
static void rows_are_exact_in_every_format_and_page_size(struct flw_bed *bed)
{
    static const int32_t pages[] = {1, 16, 64, 5};
    for (int k = 0; k < (int)FORM_COUNT * 4; k++) {
        int f = k / 4, p = k % 4;
        struct fixture *fixture =
            make(bed, forms[f].format, forms[f].dtype, p == 0 ? 7 : 12, pages[p]);
        fixture->params.token_to_seq =
            p >= 2 ? fixture->owners : NULL; /* host pointer until uploaded */
        upload(bed, fixture);
        check(bed, fixture, NULL);
        drop(fixture);
    }
}

static void all_256_numbers_of_e4m3_are_dequantised(struct flw_bed *bed)
{
    static const int32_t lengths[] = {1};
    for (int given = 0; given < 2; given++) {
        struct fixture *fixture = make(bed, FALLOW_KV_E4M3, FALLOW_BF16, 1, 1);
        fixture->params.width = 256;
        fixture->starts[0] = 0;
        set_lengths(fixture, lengths, 1);
        upload(bed, fixture);
        for (int i = 0; i < 256; i++) {
            fixture->cache[fixture->table[0] * 256 + i] = (unsigned char)i;
        }
        flw_bed_write(bed, fixture->params.cache, fixture->cache, fixture->cache_bytes);
        fixture->params.scale = given != 0 ? fixture->params.scale : NULL;
        check(bed, fixture, NULL);
        drop(fixture);
    }
}

static void rows_of_any_width_and_stride_are_exact(struct flw_bed *bed)
{
    static const int32_t widths[] = {1, 7, 8, 24, 600};
    for (size_t f = 0; f < 4; f++) {
        for (int w = 0; w < 5; w++) {
            struct fixture *fixture = make(bed, forms[f].format, forms[f].dtype, 4, 3);
            fixture->params.width = widths[w];
            fixture->params.token_stride = widths[w] + (w % 2 == 0 ? 8 : 1);
            fixture->params.block_stride = fixture->params.token_stride * 3 + 16;
            upload(bed, fixture);
            fixture->params.starts = w == 2 ? NULL : fixture->params.starts;
            check(bed, fixture, NULL);
            drop(fixture);
        }
    }
}

static void nothing_to_gather_writes_nothing(struct flw_bed *bed)
{
    static const int32_t none[4] = {0};
    for (int32_t batch = 0; batch <= 4; batch += 4) {
        struct fixture *fixture = make(bed, FALLOW_KV_ROWS, FALLOW_BF16, 4, 16);
        set_lengths(fixture, none, batch);
        upload(bed, fixture);
        check(bed, fixture, NULL);
        drop(fixture);
    }
    struct fixture *fixture = make(bed, FALLOW_KV_ROWS, FALLOW_BF16, 4, 16);
    upload(bed, fixture);
    fixture->params.tokens = 0;
    fixture->params.dst = NULL;
    FLW_EXPECT_OK(
        bed, fallow_mla_gather_kv(flw_bed_kernels(bed), &fixture->params, flw_bed_stream(bed)));
    drop(fixture);
}

static void rows_past_the_last_token_are_left_alone(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, FALLOW_KV_ROWS, FALLOW_BF16, 3, 16);
    upload(bed, fixture);
    size_t rows = (size_t)fixture->params.tokens, written = (size_t)rows_written(fixture) * 1152;
    unsigned char *dst = flw_bed_host(rows * 1152);
    memset(dst, 0x5a, rows * 1152);
    fixture->params.dst = flw_bed_upload(bed, "dst", dst, rows * 1152);
    FLW_EXPECT_OK(
        bed, fallow_mla_gather_kv(flw_bed_kernels(bed), &fixture->params, flw_bed_stream(bed)));
    flw_bed_read(bed, dst, fixture->params.dst, rows * 1152);
    compare(bed, fixture, dst, NULL, NULL);
    for (size_t i = written; i < rows * 1152; i++) {
        FLW_EXPECT(bed, dst[i] == 0x5a, "byte %zu was written", i);
    }
    free(dst);
    drop(fixture);
}

static int32_t flags_after(struct flw_bed *bed, struct fixture *fixture, const bool *bad)
{
    fixture->params.flags = flw_bed_flags(bed);
    check(bed, fixture, bad);
    return flw_bed_read_flags(bed, fixture->params.flags);
}

/* Three sequences of 8 tokens from position 0, pages of 4, so that two columns are used. */
static struct fixture *make_regular(struct flw_bed *bed, size_t form)
{
    static const int32_t lengths[] = {8, 8, 8};
    struct fixture *fixture = make(bed, forms[form].format, forms[form].dtype, 3, 4);
    memset(fixture->starts, 0, sizeof fixture->starts);
    set_lengths(fixture, lengths, 3);
    fixture->params.tokens = 24;
    fixture->params.table_columns = 2;
    for (int i = 0; i < 6; i++) {
        fixture->table[i / 2 * fixture->params.table_stride + i % 2] = i;
    }
    return fixture;
}

static void a_bad_block_index_gives_zeros_and_is_flagged(struct flw_bed *bed)
{
    static const int32_t bad_indices[] = {-1, 9, INT32_MIN, INT32_MAX};
    for (size_t f = 0; f < FORM_COUNT; f++) {
        for (int k = 0; k < 4; k++) {
            struct fixture *fixture = make_regular(bed, f);
            bool bad[24] = {false};
            fixture->table[fixture->params.table_stride] =
                bad_indices[k]; /* page 0 of sequence 1 */
            bad[8] = bad[9] = bad[10] = bad[11] = true;
            upload(bed, fixture);
            FLW_EXPECT(bed, flags_after(bed, fixture, bad) == FALLOW_FLAG_INDEX, "flags");
            drop(fixture);
        }
    }
}

static void an_empty_cache_gives_zeros(struct flw_bed *bed)
{
    for (size_t f = 0; f < FORM_COUNT; f++) {
        struct fixture *fixture = make_regular(bed, f);
        bool bad[24];
        memset(bad, true, sizeof bad);
        upload(bed, fixture);
        fixture->params.block_count = 0;
        fixture->params.cache = (const char *)fixture->params.cache + 1; /* of no meaning */
        FLW_EXPECT(bed, flags_after(bed, fixture, bad) == FALLOW_FLAG_INDEX, "flags");
        drop(fixture);
    }
}

static void the_table_is_never_read_beyond_its_columns(struct flw_bed *bed)
{
    struct fixture *fixture = make_regular(bed, 0);
    bool bad[24] = {false};
    fixture->params.table_columns = 1; /* the second page of each sequence is outside */
    fixture->params.table_stride = 1;
    fixture->table_count = 3; /* the last row's second page would leave the buffer */
    for (int t = 0; t < 24; t++) {
        bad[t] = t % 8 >= 4;
    }
    for (int i = 0; i < 3; i++) {
        fixture->table[i] = i;
    }
    upload(bed, fixture);
    FLW_EXPECT(bed, flags_after(bed, fixture, bad) == FALLOW_FLAG_INDEX, "flags");
    drop(fixture);
}

static void starts_outside_the_table_give_zeros(struct flw_bed *bed)
{
    static const int32_t starts[] = {-3, 2147483647, -2147483647 - 1};
    for (int k = 0; k < 3; k++) {
        struct fixture *fixture = make_regular(bed, 0);
        bool bad[24] = {false};
        fixture->starts[2] = starts[k];
        for (int t = 16; t < 24; t++) {
            bad[t] = k != 0 || t < 19;
        }
        upload(bed, fixture);
        FLW_EXPECT(bed, flags_after(bed, fixture, bad) == FALLOW_FLAG_INDEX, "flags");
        drop(fixture);
    }
}

static void tokens_of_no_sequence_give_zeros(struct flw_bed *bed)
{
    struct fixture *fixture = make_regular(bed, 0);
    bool bad[24] = {false};
    fixture->owners[3] = -1;
    fixture->owners[20] = 3;
    bad[3] = bad[20] = true;
    fixture->params.token_to_seq = fixture->owners;
    upload(bed, fixture);
    FLW_EXPECT(bed, flags_after(bed, fixture, bad) == FALLOW_FLAG_INDEX, "flags");
    drop(fixture);
}

static void tokens_beyond_the_capacity_are_dropped_and_flagged(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, FALLOW_KV_ROWS, FALLOW_F16, 12, 16);
    upload(bed, fixture);
    FLW_EXPECT(bed, flags_after(bed, fixture, NULL) == 0, "flags without a cause");
    fixture->params.tokens = fixture->cu[12] / 2;
    FLW_EXPECT(bed, flags_after(bed, fixture, NULL) == FALLOW_FLAG_DROPPED, "no DROPPED");
    drop(fixture);
}

static void a_captured_gather_takes_its_lengths_from_the_device(struct flw_bed *bed)
{
    static const int32_t steps[][4] = {{9, 0, 17, 30}, {1, 2, 0, 3}, {0, 0, 0, 0}, {16, 16, 1, 0}};
    struct fixture *fixture = make(bed, FALLOW_KV_FLASHMLA, FALLOW_BF16, 4, 64);
    memset(fixture->starts, 0, sizeof fixture->starts);
    set_lengths(fixture, steps[0], 4);
    fixture->params.tokens = 56;
    upload(bed, fixture);
    unsigned char dst[56 * 1152];
    void *outputs[] = {flw_bed_buffer(bed, "dst", (size_t)56 * 1152), NULL};
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, fixture, outputs);
    for (int k = 0; k < 4; k++) {
        set_lengths(fixture, steps[k], 4);
        flw_bed_write(bed, fixture->params.cu_seqlens, fixture->cu, 20);
        flw_bed_dirty(bed, outputs[0], (size_t)56 * 1152, 0xff);
        flw_bed_replay(bed, graph);
        flw_bed_read(bed, dst, outputs[0], (size_t)rows_written(fixture) * 1152);
        compare(bed, fixture, dst, NULL, NULL);
    }
    drop(fixture);
}

static void the_query_counts_what_is_moved(struct flw_bed *bed)
{
    static const uint64_t reads[] = {1152, 1152, 576, 576, 656, 132}; /* a token, as `forms` */
    static const uint64_t writes[] = {1152, 1152, 576, 1152, 1152, 132};
    for (size_t f = 0; f < FORM_COUNT; f++) {
        fallow_gather_kv_params params;
        fallow_workspace_need need;
        fallow_gather_kv_params_init(&params);
        fallow_workspace_need_init(&need);
        params.format = forms[f].format;
        params.dtype = forms[f].dtype;
        params.tokens = 65536;
        params.page_size = 64;
        FLW_EXPECT_OK(bed, fallow_mla_gather_kv_query(&params, &need));
        FLW_EXPECT(bed, need.read_bytes == reads[f] * 65536, "form %zu reads", f);
        FLW_EXPECT(bed, need.write_bytes == writes[f] * 65536, "form %zu writes", f);
        FLW_EXPECT(bed, need.launch_count == 1 && need.scratch_bytes == 0, "launches, scratch");
    }
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_gather_kv_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 1 << 17);
    fallow_gather_kv_params_init(&good);
    good.dtype = FALLOW_BF16;
    good.tokens = 4;
    good.batch = 2;
    good.block_count = 3;
    good.table_columns = 2;
    good.page_size = 4;
    good.cache = memory;
    good.block_table = (int32_t *)(void *)(memory + 32768);
    good.cu_seqlens = (int32_t *)(void *)(memory + 33024);
    good.dst = memory + 65536;
#define REFUSED(change, word)                                                                     \
    bad = good;                                                                                   \
    change;                                                                                       \
    FLW_EXPECT_REFUSED(bed, fallow_mla_gather_kv(kernels, &bad, stream), FALLOW_INVALID_ARGUMENT, \
                       word)
    REFUSED(bad.format = (fallow_kv_format)4, "format");
    REFUSED(bad.tokens = -1, "tokens");
    REFUSED(bad.batch = 65537, "batch");
    REFUSED(bad.block_count = -1, "block_count");
    REFUSED(bad.page_size = 0, "page_size");
    REFUSED(bad.width = 16385, "width");
    REFUSED(bad.dtype = FALLOW_F32, "dtype");
    REFUSED(bad.format = FALLOW_KV_E4M3; bad.dtype = FALLOW_F16, "dtype");
    REFUSED(bad.format = FALLOW_KV_FLASHMLA; bad.width = 575, "width");
    REFUSED(bad.format = FALLOW_KV_FLASHMLA; bad.token_stride = 660, "token_stride");
    REFUSED(bad.format = FALLOW_KV_FLASHMLA; bad.dst_stride = 577, "dst_stride");
    REFUSED(bad.format = FALLOW_KV_FLASHMLA; bad.cache = memory + 8, "cache is not aligned");
    REFUSED(bad.token_stride = 575, "token_stride");
    REFUSED(bad.block_stride = 4 * 576 - 1, "block_stride");
    REFUSED(bad.table_stride = 1, "table_stride");
    REFUSED(bad.cache = NULL, "cache is NULL");
    REFUSED(bad.block_table = NULL, "block_table is NULL");
    REFUSED(bad.cu_seqlens = NULL, "cu_seqlens is NULL");
    REFUSED(bad.dst = NULL, "dst is NULL");
    REFUSED(bad.dst = memory + 65537, "dst is not aligned");
    REFUSED(bad.dst = memory + 1152, "cache and dst overlap");
    REFUSED(bad.dst = memory + 32768, "block_table and dst overlap");
    REFUSED(bad.format = FALLOW_KV_INDEXER; bad.dtype = FALLOW_E4M3, "dst_scales is NULL");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(rows_are_exact_in_every_format_and_page_size),
        FLW_BED_TEST(all_256_numbers_of_e4m3_are_dequantised),
        FLW_BED_TEST(rows_of_any_width_and_stride_are_exact),
        FLW_BED_TEST(nothing_to_gather_writes_nothing),
        FLW_BED_TEST(rows_past_the_last_token_are_left_alone),
        FLW_BED_TEST(a_bad_block_index_gives_zeros_and_is_flagged),
        FLW_BED_TEST(an_empty_cache_gives_zeros),
        FLW_BED_TEST(the_table_is_never_read_beyond_its_columns),
        FLW_BED_TEST(starts_outside_the_table_give_zeros),
        FLW_BED_TEST(tokens_of_no_sequence_give_zeros),
        FLW_BED_TEST(tokens_beyond_the_capacity_are_dropped_and_flagged),
        FLW_BED_TEST(a_captured_gather_takes_its_lengths_from_the_device),
        FLW_BED_TEST(the_query_counts_what_is_moved),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
