/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "common/number.h"
#include "fallow/mla.h"
#include "kernel/call.h"

#define MOST_BATCH 20

/* The table describes the format FLASHMLA; the cases those of other formats. */
FLW_MODULE(gather_kv, fallow_mla_gather_kv, fallow_gather_kv, FLW_IN(cache), FLW_IN(block_table),
           FLW_IN(cu_seqlens), FLW_IN_MAYBE(starts), FLW_IN_MAYBE(token_to_seq),
           FLW_IN_MAYBE(scale), FLW_OUT(dst), FLW_OTHER(dst_scales), FLW_OUT_MAYBE(flags),
           FLW_COUNT(tokens, 0, INT32_MAX), FLW_COUNT(batch, 0, 65536),
           FLW_COUNT(block_count, 0, INT32_MAX), FLW_COUNT(table_columns, 0, INT32_MAX),
           FLW_COUNT(page_size, 1, 65536), FLW_COUNT(width, 576, 576),
           FLW_ENUM(format, FALLOW_KV_INDEXER), FLW_STRIDE(dst_stride, 576),
           FLW_STRIDE(token_stride, 656), FLW_COUNT(block_stride, 656 * 4, (int64_t)1 << 56),
           FLW_STRIDE(table_stride, 2), FLW_DTYPE(dtype, 1 << FALLOW_BF16))

struct fixture {
    struct flw_call call;
    fallow_gather_kv_params params;
    unsigned char *cache;
    int32_t *table; /* [batch, table_columns], row stride table_stride */
    int32_t lengths[MOST_BATCH], starts[MOST_BATCH], cu[MOST_BATCH + 1];
    int32_t *owners; /* token_to_seq */
    float scale;
    bool has_starts, has_scale;
};

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

static size_t rows_written(const struct fixture *fixture)
{
    int32_t total = fixture->cu[fixture->params.batch];
    return (size_t)(total < fixture->params.tokens ? total : fixture->params.tokens);
}

static void set_lengths(struct fixture *fixture, const int32_t *lengths, int32_t batch)
{
    fixture->params.batch = batch;
    for (int32_t b = 0; b < batch; b++) {
        fixture->lengths[b] = lengths[b];
        fixture->cu[b + 1] = fixture->cu[b] + lengths[b];
    }
    fixture->owners = flw_bed_memory(fixture->call.bed, ((size_t)fixture->cu[batch] + 64) * 4);
    for (int32_t b = 0; b < batch; b++) {
        for (int32_t t = fixture->cu[b]; t < fixture->cu[b + 1]; t++) {
            fixture->owners[t] = b;
        }
    }
}

/* Make random sequences; the table's rows are longer than their columns. */
static struct fixture *make(struct flw_bed *bed, fallow_kv_format format, fallow_dtype dtype,
                            int32_t batch, int32_t page_size)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    fallow_gather_kv_params *params = &fixture->params;
    int32_t lengths[MOST_BATCH], longest = 1;
    flw_call_init(bed, &fixture->call, gather_kv(), params);
    params->format = format;
    params->dtype = dtype;
    params->width = format == FALLOW_KV_INDEXER ? 128 : 576;
    params->page_size = page_size;
    params->block_count = 9;
    fixture->has_starts = fixture->has_scale = true;
    fixture->scale = 0.3721f;
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
    fixture->table = flw_call_draw(&fixture->call, "block_table",
                                   (size_t)batch * (size_t)params->table_stride, 9);
    for (int64_t i = 0; i < batch * params->table_stride; i++) {
        bool is_outside = i % params->table_stride >= params->table_columns;
        fixture->table[i] = is_outside ? 77 : fixture->table[i];
    }
    return fixture;
}

/* Fill a cache of the shape that the parameters have by now with random bytes, and bind inputs. */
static struct flw_call *fill(struct fixture *fixture)
{
    const fallow_gather_kv_params *params = &fixture->params;
    struct flw_call *call = &fixture->call;
    size_t batch = (size_t)params->batch, rows = rows_written(fixture);
    size_t bytes = (size_t)(block_bytes(params) * params->block_count);
    fixture->cache = flw_call_input(call, "cache", bytes, 1);
    for (size_t i = 0; i < bytes; i++) {
        fixture->cache[i] = (unsigned char)flw_bed_random(call->bed);
    }
    set_scales(call->bed, fixture);
    flw_call_bind(call, "cu_seqlens", fixture->cu, batch + 1, 4);
    flw_call_bind(call, "starts", fixture->has_starts ? fixture->starts : NULL, batch, 4);
    flw_call_bind(call, "scale", fixture->has_scale ? &fixture->scale : NULL, 1, 4);
    call->limit[0] = rows * (size_t)params->width * fallow_dtype_bytes(params->dtype);
    call->limit[1] = rows * 4;
    return call;
}

static void give_owners(struct fixture *fixture)
{
    flw_call_bind(&fixture->call, "token_to_seq", fixture->owners, (size_t)fixture->params.tokens,
                  4);
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
    size_t each = fallow_dtype_bytes(params->dtype);
    for (int32_t i = 0; i < params->width; i++) {
        uint16_t want = 0, got = 0;
        float scale = fixture->has_scale ? fixture->scale : 1.0f;
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
static void compare(struct flw_bed *bed, const struct fixture *fixture, const bool *bad)
{
    const fallow_gather_kv_params *params = &fixture->params;
    size_t row_bytes = (size_t)params->width * fallow_dtype_bytes(params->dtype);
    const float *scales = params->format == FALLOW_KV_INDEXER ? fixture->call.out[1] : NULL;
    unsigned char *zeros = flw_bed_memory(bed, row_bytes);
    int32_t t = 0;
    for (int32_t b = 0; b < params->batch; b++) {
        for (int32_t k = 0; k < fixture->lengths[b] && t < params->tokens; k++, t++) {
            const unsigned char *row =
                (const unsigned char *)fixture->call.out[0] + (size_t)t * row_bytes;
            if (bad != NULL && bad[t]) {
                FLW_EXPECT(bed, memcmp(row, zeros, row_bytes) == 0, "row %d is not 0", t);
                FLW_EXPECT(bed, scales == NULL || scales[t] == 0.0f, "scale %d is not 0", t);
                continue;
            }
            int32_t position = (fixture->has_starts ? fixture->starts[b] : 0) + k;
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

/* Prove a filled case, and compare with the oracle. */
static void check(struct flw_bed *bed, struct fixture *fixture, int32_t flags, const bool *bad)
{
    fixture->call.want_flags = flags;
    flw_call_prove(&fixture->call);
    compare(bed, fixture, bad);
}

static const struct {
    fallow_kv_format format;
    fallow_dtype dtype;
    uint64_t read, written; /* bytes a token */
} forms[] = {
    {FALLOW_KV_ROWS, FALLOW_BF16, 1152, 1152},    {FALLOW_KV_ROWS, FALLOW_F16, 1152, 1152},
    {FALLOW_KV_ROWS, FALLOW_U8, 576, 576},        {FALLOW_KV_E4M3, FALLOW_BF16, 576, 1152},
    {FALLOW_KV_FLASHMLA, FALLOW_BF16, 656, 1152}, {FALLOW_KV_INDEXER, FALLOW_E4M3, 132, 132}};
#define FORM_COUNT (sizeof forms / sizeof *forms)

/* With the sequence of each token given, and searched. */
FLW_TEST(rows_are_exact_in_every_format_and_page_size)
{
    static const int32_t pages[] = {1, 16, 64, 5};
    for (int k = 0; k < (int)FORM_COUNT * 4; k++) {
        struct fixture *fixture =
            make(bed, forms[k / 4].format, forms[k / 4].dtype, k % 4 == 0 ? 7 : 12, pages[k % 4]);
        if (k % 4 >= 2) {
            give_owners(fixture);
        }
        fill(fixture);
        check(bed, fixture, 0, NULL);
    }
}

FLW_TEST(all_256_numbers_of_e4m3_are_dequantised)
{
    for (int given = 0; given < 2; given++) {
        struct fixture *fixture = make(bed, FALLOW_KV_E4M3, FALLOW_BF16, 1, 1);
        fixture->params.width = 256;
        fixture->starts[0] = 0;
        fixture->has_scale = given != 0;
        set_lengths(fixture, (int32_t[]){1}, 1);
        fill(fixture);
        for (int i = 0; i < 256; i++) {
            fixture->cache[fixture->table[0] * 256 + i] = (unsigned char)i;
        }
        check(bed, fixture, 0, NULL);
    }
}

FLW_TEST(rows_of_any_width_and_stride_are_exact)
{
    static const int32_t widths[] = {1, 7, 8, 24, 600};
    for (int k = 0; k < 20; k++) {
        int w = k % 5;
        struct fixture *fixture = make(bed, forms[k / 5].format, forms[k / 5].dtype, 4, 3);
        fixture->params.width = widths[w];
        fixture->params.token_stride = widths[w] + (w % 2 == 0 ? 8 : 1);
        fixture->params.block_stride = fixture->params.token_stride * 3 + 16;
        fixture->has_starts = w != 2;
        fill(fixture);
        check(bed, fixture, 0, NULL);
    }
}

FLW_TEST(nothing_to_gather_writes_nothing)
{
    for (int32_t batch = 0; batch <= 4; batch += 4) {
        struct fixture *fixture = make(bed, FALLOW_KV_ROWS, FALLOW_BF16, 4, 16);
        set_lengths(fixture, (int32_t[4]){0}, batch);
        fill(fixture);
        check(bed, fixture, 0, NULL);
    }
    struct fixture *fixture = make(bed, FALLOW_KV_ROWS, FALLOW_BF16, 4, 16);
    fixture->params.tokens = 0;
    (void)flw_call_need(fill(fixture));
    flw_call_give(&fixture->call);
    flw_call_launch(&fixture->call, (void *[]){NULL});
}

FLW_TEST(rows_past_the_last_token_keep_their_values)
{
    struct fixture *fixture = make(bed, FALLOW_KV_ROWS, FALLOW_BF16, 3, 16);
    flw_call_run(fill(fixture));
    compare(bed, fixture, NULL);
    const unsigned char *dst = fixture->call.out[0];
    for (size_t i = fixture->call.limit[0]; i < fixture->call.step.buffer_bytes[0]; i++) {
        FLW_EXPECT(bed, dst[i] == 0x5a, "byte %zu was written", i);
    }
}

/* Three sequences of 8 tokens from position 0, pages of 4, so that two columns are used. */
static struct fixture *make_regular(struct flw_bed *bed, size_t form)
{
    struct fixture *fixture = make(bed, forms[form].format, forms[form].dtype, 3, 4);
    memset(fixture->starts, 0, sizeof fixture->starts);
    set_lengths(fixture, (int32_t[]){8, 8, 8}, 3);
    fixture->params.tokens = 24;
    fixture->params.table_columns = 2;
    for (int i = 0; i < 6; i++) {
        fixture->table[i / 2 * fixture->params.table_stride + i % 2] = i;
    }
    return fixture;
}

FLW_TEST(a_bad_block_index_gives_zeros_and_is_flagged)
{
    static const int32_t bad_indices[] = {-1, 9, INT32_MIN, INT32_MAX};
    static const bool bad[24] = {[8] = true, [9] = true, [10] = true, [11] = true};
    for (size_t k = 0; k < FORM_COUNT * 4; k++) {
        struct fixture *fixture = make_regular(bed, k / 4);
        fixture->table[fixture->params.table_stride] = bad_indices[k % 4]; /* sequence 1, page 0 */
        fill(fixture);
        check(bed, fixture, FALLOW_FLAG_INDEX, bad);
    }
}

static void move_cache(struct flw_call *call, void *const outputs[])
{
    (void)outputs;
    ((fallow_gather_kv_params *)call->params)->cache = (const void *)1; /* of no meaning */
}

FLW_TEST(an_empty_cache_gives_zeros)
{
    for (size_t f = 0; f < FORM_COUNT; f++) {
        struct fixture *fixture = make_regular(bed, f);
        bool bad[24];
        memset(bad, true, sizeof bad);
        fill(fixture);
        fixture->call.before = move_cache;
        fixture->params.block_count = 0;
        check(bed, fixture, FALLOW_FLAG_INDEX, bad);
    }
}

/* The second page of each sequence is outside; the last row's would leave the buffer. */
FLW_TEST(the_table_is_never_read_beyond_its_columns)
{
    struct fixture *fixture = make_regular(bed, 0);
    bool bad[24] = {false};
    fixture->params.table_columns = 1;
    fixture->params.table_stride = 1;
    fixture->table = flw_call_input(&fixture->call, "block_table", 3, 4);
    for (int t = 0; t < 24; t++) {
        bad[t] = t % 8 >= 4;
        fixture->table[t / 8] = t / 8;
    }
    fill(fixture);
    check(bed, fixture, FALLOW_FLAG_INDEX, bad);
}

FLW_TEST(starts_outside_the_table_give_zeros)
{
    static const int32_t starts[] = {-3, INT32_MAX, INT32_MIN};
    for (int k = 0; k < 3; k++) {
        struct fixture *fixture = make_regular(bed, 0);
        bool bad[24] = {false};
        fixture->starts[2] = starts[k];
        for (int t = 16; t < 24; t++) {
            bad[t] = k != 0 || t < 19;
        }
        fill(fixture);
        check(bed, fixture, FALLOW_FLAG_INDEX, bad);
    }
}

FLW_TEST(tokens_of_no_sequence_give_zeros)
{
    struct fixture *fixture = make_regular(bed, 0);
    static const bool bad[24] = {[3] = true, [20] = true};
    fixture->owners[3] = -1;
    fixture->owners[20] = 3;
    give_owners(fixture);
    fill(fixture);
    check(bed, fixture, FALLOW_FLAG_INDEX, bad);
}

FLW_TEST(tokens_beyond_the_capacity_are_dropped_and_flagged)
{
    struct fixture *fixture = make(bed, FALLOW_KV_ROWS, FALLOW_F16, 12, 16);
    fixture->params.tokens = fixture->cu[12] / 2;
    fill(fixture);
    check(bed, fixture, FALLOW_FLAG_DROPPED, NULL);
}

FLW_TEST(a_captured_gather_takes_its_lengths_from_the_device)
{
    static const int32_t steps[][4] = {{9, 0, 17, 30}, {1, 2, 0, 3}, {0, 0, 0, 0}, {16, 16, 1, 0}};
    struct fixture *fixture = make(bed, FALLOW_KV_FLASHMLA, FALLOW_BF16, 4, 64);
    memset(fixture->starts, 0, sizeof fixture->starts);
    fixture->params.tokens = 56;
    flw_call_capture(fill(fixture));
    for (int k = 0; k < 4; k++) {
        set_lengths(fixture, steps[k], 4);
        flw_call_replay(fill(fixture));
        compare(bed, fixture, NULL);
    }
}

FLW_TEST(the_query_counts_the_bytes_that_are_moved)
{
    for (size_t f = 0; f < FORM_COUNT; f++) {
        struct fixture *fixture = make(bed, forms[f].format, forms[f].dtype, 0, 64);
        fixture->params.tokens = 65536;
        fixture->params.width = 0;
        fixture->params.table_stride = 0;
        fallow_workspace_need need = flw_call_need(&fixture->call);
        FLW_EXPECT(bed, need.read_bytes == forms[f].read * 65536, "form %zu reads %llu", f,
                   (unsigned long long)need.read_bytes);
        FLW_EXPECT(bed, need.write_bytes == forms[f].written * 65536, "form %zu writes", f);
        FLW_EXPECT(bed, need.launch_count == 1 && need.scratch_bytes == 0, "launches, scratch");
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = make_regular(bed, 4);
    give_owners(fixture);
    FLW_CALL_REFUSE(fill(fixture), "format=0 width=16385: width", "format=0 dtype=F32: dtype",
                    "format=1 dtype=F16: dtype", "token_stride=660: token_stride",
                    "dst_stride=577: dst_stride", "cache=@cache+8: cache is not aligned",
                    "format=0 token_stride=575: token_stride",
                    "format=0 block_stride=2303: block_stride",
                    "format=3 dtype=E4M3 width=128 dst_scales=NULL: dst_scales is NULL",
                    "format=3 dtype=E4M3 width=128 dst_scales=@dst: dst_scales overlap",
                    "format=0 dst=@dst+1: dst is not aligned");
}
