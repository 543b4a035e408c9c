/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/integer.h"
#include "fallow/attention.h"
#include "kernel/bed.h"

#define FILL 7

/* One call's inputs on the host, and what is expected of it. */
struct fixture {
    fallow_page_table_params params;
    int64_t *lengths, *requests; /* [batch] */
    int32_t *starts;             /* [batch] */
    int32_t *slots;              /* [request_rows, stride] */
    int32_t *swa;                /* [swa_count] */
    int32_t delta, valid;
    bool has_starts;
    int32_t *table, *cache_seqlens, *cu; /* expected */
    int32_t longest, flags;
};

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* An independent oracle: token by token, or a whole page at once. */
static void expect_row(struct fixture *fixture, int64_t r)
{
    const fallow_page_table_params *params = &fixture->params;
    int32_t *row = fixture->table + r * params->cols;
    int64_t length = params->pad_len;
    for (int32_t j = 0; j < params->cols; j++) {
        row[j] = params->fill;
    }
    if (r < fixture->valid) {
        int64_t start = fixture->has_starts ? fixture->starts[r] : 0, t = 0;
        int64_t wanted = fixture->lengths[r] + fixture->delta, request = fixture->requests[r];
        bool is_known = request >= 0 && request < params->request_rows;
        fixture->flags |= wanted < 0 || start < 0 ? FALLOW_FLAG_NEGATIVE : 0;
        fixture->flags |= start > params->stride ? FALLOW_FLAG_CLAMPED : 0;
        fixture->flags |= is_known ? 0 : FALLOW_FLAG_INDEX;
        start = start < 0 ? 0 : least_of(start, params->stride);
        int64_t page = params->page_size, in_source = params->stride - start;
        while (t < wanted && t / page < params->cols && t < in_source) {
            if (t % page == 0 && is_known) {
                int64_t slot = fixture->slots[request * params->stride + start + t];
                if (params->swa_count > 0) {
                    slot = slot >= 0 && slot < params->swa_count ? fixture->swa[slot] : -1;
                }
                fixture->flags |= slot < 0 ? FALLOW_FLAG_INDEX : 0;
                row[t / page] = slot < 0 ? params->fill : (int32_t)(slot / page);
            }
            t += t % page == 0 && t + page <= least_of(wanted, in_source) ? page : 1;
        }
        fixture->flags |= t < wanted ? FALLOW_FLAG_CLAMPED : 0;
        length = t;
    }
    fixture->cache_seqlens[r] = (int32_t)length;
    fixture->longest = length > fixture->longest ? (int32_t)length : fixture->longest;
    int64_t sum = fixture->cu[r] + length;
    fixture->flags |= sum > INT32_MAX ? FALLOW_FLAG_OVERFLOW : 0;
    fixture->cu[r + 1] = (int32_t)least_of(sum, INT32_MAX);
}

static void expect(struct fixture *fixture)
{
    fixture->longest = fixture->flags = 0;
    fixture->cu[0] = 0;
    for (int64_t r = 0; r < fixture->params.batch; r++) {
        expect_row(fixture, r);
    }
}

/* Random lengths up to what fits, requests that may repeat, slots of any value. */
static void make(struct flw_bed *bed, struct fixture *fixture, int32_t batch, int32_t cols,
                 int32_t page_size, int64_t stride)
{
    memset(fixture, 0, sizeof *fixture);
    fallow_page_table_params *params = &fixture->params;
    fallow_page_table_params_init(params);
    params->request_rows = 5;
    params->stride = stride;
    params->batch = batch;
    params->cols = cols;
    params->page_size = page_size;
    params->fill = FILL;
    params->lengths_dtype = FALLOW_I32;
    params->requests_dtype = FALLOW_I64;
    fixture->valid = batch;
    size_t rows = (size_t)batch, slot_count = (size_t)params->request_rows * (size_t)stride;
    fixture->lengths = flw_bed_host(rows * 8);
    fixture->requests = flw_bed_host(rows * 8);
    fixture->starts = flw_bed_host(rows * 4);
    fixture->slots = flw_bed_host(slot_count * 4);
    fixture->table = flw_bed_host(rows * (size_t)cols * 4);
    fixture->cache_seqlens = flw_bed_host(rows * 4);
    fixture->cu = flw_bed_host((rows + 1) * 4);
    int64_t most = least_of((int64_t)cols * page_size, stride);
    for (size_t r = 0; r < rows; r++) {
        fixture->lengths[r] = flw_bed_random_below(bed, most + 1);
        fixture->requests[r] = flw_bed_random_below(bed, params->request_rows);
    }
    for (size_t i = 0; i < slot_count; i++) {
        fixture->slots[i] = (int32_t)flw_bed_random_below(bed, INT32_MAX);
    }
}

/* A map for sliding windows, and slots within it. */
static void add_swa(struct flw_bed *bed, struct fixture *fixture, int32_t swa_count)
{
    fallow_page_table_params *params = &fixture->params;
    params->swa_count = swa_count;
    fixture->swa = flw_bed_host((size_t)swa_count * 4);
    for (int32_t i = 0; i < swa_count; i++) {
        fixture->swa[i] = (int32_t)flw_bed_random_below(bed, 1000000);
    }
    for (int64_t i = 0; i < params->request_rows * params->stride; i++) {
        fixture->slots[i] %= swa_count;
    }
}

static void drop(struct fixture *fixture)
{
    free(fixture->lengths);
    free(fixture->requests);
    free(fixture->starts);
    free(fixture->slots);
    free(fixture->swa);
    free(fixture->table);
    free(fixture->cache_seqlens);
    free(fixture->cu);
}

static void give_inputs(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_page_table_params *params = &fixture->params;
    size_t rows = (size_t)params->batch;
    params->lengths =
        flw_bed_buffer(bed, "lengths", rows * fallow_dtype_bytes(params->lengths_dtype));
    params->requests =
        flw_bed_buffer(bed, "requests", rows * fallow_dtype_bytes(params->requests_dtype));
    /* What pads have is never read: it stays unwritten. */
    size_t read = fixture->valid < 0 ? 0 : (size_t)least_of(fixture->valid, params->batch);
    flw_bed_write_ints(bed, params->lengths, fixture->lengths, read, params->lengths_dtype);
    flw_bed_write_ints(bed, params->requests, fixture->requests, read, params->requests_dtype);
    params->starts =
        fixture->has_starts ? flw_bed_upload(bed, "starts", fixture->starts, rows * 4) : NULL;
    params->delta = flw_bed_upload(bed, "delta", &fixture->delta, 4);
    params->valid_count = flw_bed_upload(bed, "valid_count", &fixture->valid, 4);
    params->req_to_token =
        flw_bed_upload(bed, "req_to_token", fixture->slots,
                       (size_t)params->request_rows * (size_t)params->stride * 4);
    if (fixture->swa != NULL) {
        params->full_to_swa =
            flw_bed_upload(bed, "full_to_swa", fixture->swa, (size_t)params->swa_count * 4);
    }
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_page_table_params params = ((struct fixture *)inputs)->params;
    params.page_table = outputs[0];
    params.cache_seqlens = outputs[1];
    params.cu_k = outputs[2];
    params.max_length = outputs[3];
    FLW_EXPECT_OK(bed,
                  fallow_attention_page_table(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need;
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    fallow_workspace_need_init(&need);
    FLW_EXPECT(bed, fallow_attention_page_table_query(&fixture->params, &need) == FALLOW_OK,
               "query refused");
    flw_bed_declare(&step, &need);
    return step;
}

static void compare(struct flw_bed *bed, const struct fixture *fixture, const int32_t *table,
                    const int32_t *cache_seqlens, const int32_t *cu, int32_t longest)
{
    const fallow_page_table_params *params = &fixture->params;
    for (int64_t i = 0; i < (int64_t)params->batch * params->cols; i++) {
        if (table[i] != fixture->table[i]) {
            FLW_EXPECT(bed, false, "page_table[%lld, %lld] of %d x %d, page %d: %d, expected %d",
                       (long long)(i / params->cols), (long long)(i % params->cols), params->batch,
                       params->cols, params->page_size, table[i], fixture->table[i]);
            break;
        }
    }
    for (int32_t r = 0; r < params->batch; r++) {
        FLW_EXPECT(bed, cache_seqlens[r] == fixture->cache_seqlens[r],
                   "cache_seqlens[%d] is %d, expected %d", r, cache_seqlens[r],
                   fixture->cache_seqlens[r]);
    }
    for (int32_t r = 0; r <= params->batch; r++) {
        FLW_EXPECT(bed, cu[r] == fixture->cu[r], "cu_k[%d] is %d, expected %d", r, cu[r],
                   fixture->cu[r]);
    }
    FLW_EXPECT(bed, longest == fixture->longest, "max_length is %d, expected %d", longest,
               fixture->longest);
}

/* Prove a case in full mode, compare with the oracle; its flags too. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    struct fixture larger, smaller;
    const fallow_page_table_params *params = &fixture->params;
    size_t rows = (size_t)params->batch;
    int32_t flags = 0, *on_device = flw_bed_upload(bed, "flags", &flags, 4);
    void *out[] = {flw_bed_host(rows * (size_t)params->cols * 4), flw_bed_host(rows * 4),
                   flw_bed_host((rows + 1) * 4), flw_bed_host(4)};
    make(bed, &larger, (int32_t)least_of(params->batch + 3, 65536), params->cols + 5, 1, 64);
    make(bed, &smaller, params->batch / 2, params->cols / 2 + 1, 16, 40);
    fixture->params.flags = on_device;
    give_inputs(bed, fixture);
    give_inputs(bed, &larger);
    give_inputs(bed, &smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, &larger),
                        after = step_of(bed, &smaller);
    flw_bed_prove(bed, &step, &before, &after, out);
    flw_bed_read(bed, &flags, on_device, 4);
    expect(fixture);
    compare(bed, fixture, out[0], out[1], out[2], *(int32_t *)out[3]);
    FLW_EXPECT(bed, flags == fixture->flags, "flags are 0x%x, expected 0x%x", (unsigned)flags,
               (unsigned)fixture->flags);
    for (int i = 0; i < 4; i++) {
        free(out[i]);
    }
    drop(&larger);
    drop(&smaller);
}

static void tables_are_exact_for_every_page_size_and_batch(struct flw_bed *bed)
{
    static const int32_t pages[] = {1, 2, 3, 16, 48, 64, 1000, 65536, INT32_MAX};
    static const int32_t batches[] = {0, 1, 2, 7, 8, 64};
    for (size_t p = 0; p < sizeof pages / sizeof *pages; p++) {
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            struct fixture fixture;
            make(bed, &fixture, batches[b], pages[p] == 1 ? 300 : 21, pages[p], 301 + (int64_t)b);
            check(bed, &fixture);
            drop(&fixture);
        }
    }
}

static void a_long_context_among_short_ones_is_exact(struct flw_bed *bed)
{
    static const int32_t pages[] = {1, 16, 64};
    static const int64_t contexts[] = {0, 1, 63, 64, 65, 8192, 32768, 131072};
    for (size_t p = 0; p < sizeof pages / sizeof *pages; p++) {
        struct fixture fixture;
        make(bed, &fixture, 11, 131072 / pages[p], pages[p], 131072 + 4);
        fixture.valid = 8;
        for (int i = 0; i < 8; i++) {
            fixture.lengths[i] = contexts[i];
        }
        check(bed, &fixture);
        drop(&fixture);
    }
}

static void the_largest_batch_is_exact(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 65536, 3, 16, 48);
    fixture.valid = 65000;
    fixture.params.pad_len = 1;
    check(bed, &fixture);
    drop(&fixture);
}

static void pads_have_a_length_of_their_own_and_rows_of_fill(struct flw_bed *bed)
{
    for (int32_t valid = -1; valid <= 9; valid++) {
        struct fixture fixture;
        make(bed, &fixture, 8, 10, 4, 40);
        fixture.valid = valid;
        fixture.delta = 2;
        fixture.params.pad_len = valid & 1;
        fixture.params.fill = valid;
        fixture.params.lengths_dtype = (valid & 2) != 0 ? FALLOW_I64 : FALLOW_I32;
        fixture.params.requests_dtype = (valid & 4) != 0 ? FALLOW_I64 : FALLOW_I32;
        check(bed, &fixture);
        drop(&fixture);
    }
}

/* The published chain has pads of length 1 that point at request 0, whose slots are zero. */
static void request_zero_serves_pads_as_the_published_chain_has_them(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 6, 8, 1, 12);
    memset(fixture.slots, 0, 12 * 4);
    fixture.params.fill = 0;
    for (int r = 4; r < 6; r++) {
        fixture.lengths[r] = 1;
        fixture.requests[r] = 0;
    }
    check(bed, &fixture);
    FLW_EXPECT(bed, fixture.table[4 * 8] == 0 && fixture.cu[6] == fixture.cu[4] + 2,
               "pads of request 0");
    drop(&fixture);
}

/* The table is wider than the source, whose last page is cut: the last row's end is the buffer's. */
static void nothing_beyond_the_stride_is_read(struct flw_bed *bed)
{
    static const int32_t pages[] = {1, 3, 16, 64};
    for (size_t p = 0; p < sizeof pages / sizeof *pages; p++) {
        struct fixture fixture;
        make(bed, &fixture, 4, 200, pages[p], 128); /* 512 bytes a row: no slack after the last */
        for (int r = 0; r < 4; r++) {
            fixture.requests[r] = 4;
            fixture.lengths[r] = 126 + r; /* 129 is more than the row has */
        }
        check(bed, &fixture);
        FLW_EXPECT(bed, fixture.flags == FALLOW_FLAG_CLAMPED, "CLAMPED and nothing else");
        drop(&fixture);
    }
}

static void starts_move_a_row_and_shorten_it(struct flw_bed *bed)
{
    for (int32_t page = 1; page <= 4; page++) {
        struct fixture fixture;
        make(bed, &fixture, 40, 64, page, 80);
        fixture.has_starts = true;
        fixture.params.fill = -1;
        for (int r = 0; r < 40; r++) {
            fixture.starts[r] = (int32_t)flw_bed_random_below(bed, 81);
            fixture.lengths[r] = flw_bed_random_below(bed, 81 - fixture.starts[r]);
        }
        check(bed, &fixture);
        FLW_EXPECT(bed, fixture.flags == (page > 1 ? 0 : fixture.flags & FALLOW_FLAG_CLAMPED),
                   "flags without a cause");
        fixture.starts[3] = 81;
        fixture.starts[5] = -2;
        check(bed, &fixture);
        drop(&fixture);
    }
}

/* Blocks of 2 tokens; the third request has none, the fourth row is a pad. */
static void a_padded_block_table_has_its_sentinel_in_the_tail_and_in_whole_rows(struct flw_bed *bed)
{
    static const int32_t slots[2][8] = {{8, 9, 2, 3, 30, 31, 0, 0}, {6, 7, 40, 41, 12, 13, 20, 21}};
    static const int64_t lengths[4] = {5, 3, 0, 0}, requests[4] = {0, 1, 0, 0};
    static const int32_t starts[4] = {0, 4, 2, 0};
    static const int32_t expected[4][4] = {
        {4, 1, 15, -1}, {6, 10, -1, -1}, {-1, -1, -1, -1}, {-1, -1, -1, -1}};
    struct fixture fixture;
    int32_t table[4][4];
    make(bed, &fixture, 4, 4, 2, 8);
    memcpy(fixture.slots, slots, sizeof slots);
    memcpy(fixture.lengths, lengths, sizeof lengths);
    memcpy(fixture.requests, requests, sizeof requests);
    memcpy(fixture.starts, starts, sizeof starts);
    fixture.has_starts = true;
    fixture.params.fill = -1;
    fixture.valid = 3;
    check(bed, &fixture);
    FLW_EXPECT(bed, fixture.flags == 0, "flags without a cause");
    void *buffer = flw_bed_buffer(bed, "block_table", sizeof table);
    launch(bed, &fixture, (void *[]){buffer, NULL, NULL, NULL});
    flw_bed_read(bed, table, buffer, sizeof table);
    FLW_EXPECT(bed, memcmp(table, expected, sizeof table) == 0, "the example");
    drop(&fixture);
}

static void a_sliding_window_maps_the_slot_then_divides(struct flw_bed *bed)
{
    for (int32_t page = 1; page <= 16; page *= 4) {
        struct fixture fixture;
        make(bed, &fixture, 9, 30, page, 480);
        add_swa(bed, &fixture, 777);
        check(bed, &fixture);
        FLW_EXPECT(bed, (fixture.flags & FALLOW_FLAG_INDEX) == 0, "INDEX without a cause");
        for (int r = 0; r < 9; r++) {
            fixture.lengths[r] = 30;
            fixture.requests[r] = r % 5;
        }
        fixture.slots[0] = 777;
        fixture.slots[480] = -1;
        fixture.swa[fixture.slots[960]] = -5;
        check(bed, &fixture);
        FLW_EXPECT(bed, (fixture.flags & FALLOW_FLAG_INDEX) != 0, "no INDEX");
        drop(&fixture);
    }
}

static void what_is_out_of_bounds_is_flagged_and_defined(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 4, 10, 2, 30);
    fixture.params.lengths_dtype = FALLOW_I64;
#define FLAGGED(change, bits) \
    change;                   \
    check(bed, &fixture);     \
    FLW_EXPECT(bed, fixture.flags == (bits), "flags 0x%x after " #change, (unsigned)fixture.flags)
    FLAGGED((void)0, 0);
    FLAGGED(fixture.lengths[1] = -1, FALLOW_FLAG_NEGATIVE);
    FLAGGED(fixture.lengths[1] = INT64_MIN, FALLOW_FLAG_NEGATIVE);
    FLAGGED(fixture.lengths[1] = 21, FALLOW_FLAG_CLAMPED);
    FLAGGED((fixture.lengths[1] = INT64_MAX - 9, fixture.delta = 5), FALLOW_FLAG_CLAMPED);
    FLAGGED((fixture.lengths[1] = 3, fixture.delta = 0, fixture.requests[2] = 5),
            FALLOW_FLAG_INDEX);
    FLAGGED(fixture.requests[2] = -1, FALLOW_FLAG_INDEX);
    FLAGGED(fixture.requests[2] = INT64_MIN, FALLOW_FLAG_INDEX);
    FLAGGED((fixture.requests[2] = 2, fixture.requests[1] = 1, fixture.slots[30] = -4),
            FALLOW_FLAG_INDEX);
#undef FLAGGED
    drop(&fixture);
}

/* 17,000 rows of 131,072 are more than int32 holds; all lengths equal, the table is one column a row. */
static void a_sum_beyond_the_type_is_its_largest(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 17000, 1, 131072, 131072);
    for (int r = 0; r < 17000; r++) {
        fixture.lengths[r] = 131072;
    }
    check(bed, &fixture);
    FLW_EXPECT(bed, fixture.flags == FALLOW_FLAG_OVERFLOW && fixture.cu[17000] == INT32_MAX,
               "no OVERFLOW");
    drop(&fixture);
}

/* Rows apart, and bounded rows: what is not declared stays as it was. */
static void columns_that_are_not_declared_stay_as_they_were(struct flw_bed *bed)
{
    enum {
        ROWS = 12,
        COLS = 37,
        LD = 52,
        MARK = -77
    };
    for (int mode = 0; mode < 8; mode++) {
        bool bounded = (mode & 1) != 0;
        int32_t before[ROWS * LD], after[ROWS * LD], page = (mode & 2) != 0 ? 1 : 5;
        struct fixture fixture;
        make(bed, &fixture, ROWS, COLS, page, 188);
        fixture.params.bounded = bounded;
        fixture.params.ld = LD;
        fixture.params.pad_len = (mode & 4) != 0;
        fixture.valid = ROWS - 3;
        give_inputs(bed, &fixture);
        for (int i = 0; i < ROWS * LD; i++) {
            before[i] = MARK;
        }
        void *table = flw_bed_upload(bed, "page_table", before, sizeof before - (LD - COLS) * 4);
        launch(bed, &fixture, (void *[]){table, NULL, NULL, NULL});
        flw_bed_read(bed, after, table, sizeof before - (LD - COLS) * 4);
        expect(&fixture);
        for (int r = 0; r < ROWS; r++) {
            int32_t pages = (fixture.cache_seqlens[r] + page - 1) / page;
            for (int j = 0; j < (r == ROWS - 1 ? COLS : LD); j++) {
                bool declared = j < (bounded ? pages : COLS);
                FLW_EXPECT(bed,
                           after[r * LD + j] == (declared ? fixture.table[r * COLS + j] : MARK),
                           "mode %d: [%d, %d] is %d", mode, r, j, after[r * LD + j]);
            }
        }
        drop(&fixture);
    }
}

static void bounded_rows_are_written_in_full_up_to_their_length(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 3, 50, 2, 100);
    fixture.params.bounded = 1;
    give_inputs(bed, &fixture);
    int32_t *table = flw_bed_buffer(bed, "page_table", 3 * 50 * 4), row[50];
    launch(bed, &fixture, (void *[]){table, NULL, NULL, NULL});
    expect(&fixture);
    for (int r = 0; r < 3; r++) {
        size_t pages = (size_t)(fixture.cache_seqlens[r] + 1) / 2;
        flw_bed_read(bed, row, table + (ptrdiff_t)r * 50, pages * 4); /* unwritten: a violation */
        FLW_EXPECT(bed, memcmp(row, fixture.table + (ptrdiff_t)r * 50, pages * 4) == 0, "row %d",
                   r);
    }
    drop(&fixture);
}

static void a_graph_takes_rows_and_lengths_from_the_device(struct flw_bed *bed)
{
    enum {
        ROWS = 64,
        COLS = 40
    };
    struct fixture fixture;
    int32_t *table = flw_bed_host(ROWS * COLS * 4), cache_seqlens[ROWS], cu[ROWS + 1], longest;
    make(bed, &fixture, ROWS, COLS, 3, 130);
    fixture.params.pad_len = 1;
    give_inputs(bed, &fixture);
    void *outputs[] = {flw_bed_buffer(bed, "page_table", ROWS * COLS * 4),
                       flw_bed_buffer(bed, "cache_seqlens", sizeof cache_seqlens),
                       flw_bed_buffer(bed, "cu_k", sizeof cu),
                       flw_bed_buffer(bed, "max_length", 4)};
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, &fixture, outputs);
    for (int32_t valid = ROWS; valid >= 0; valid -= 16) {
        fixture.valid = valid;
        fixture.delta = valid / 16;
        for (int r = 0; r < ROWS; r++) {
            fixture.lengths[r] = r < valid ? flw_bed_random_below(bed, 110) : 1 << 30;
            fixture.requests[r] = r < valid ? flw_bed_random_below(bed, 5) : -1;
        }
        const fallow_page_table_params *params = &fixture.params;
        flw_bed_write_ints(bed, params->lengths, fixture.lengths, ROWS, params->lengths_dtype);
        flw_bed_write_ints(bed, params->requests, fixture.requests, ROWS, params->requests_dtype);
        flw_bed_write(bed, (void *)(uintptr_t)params->delta, &fixture.delta, 4);
        flw_bed_write(bed, (void *)(uintptr_t)params->valid_count, &fixture.valid, 4);
        flw_bed_replay(bed, graph);
        flw_bed_read(bed, table, outputs[0], ROWS * COLS * 4);
        flw_bed_read(bed, cache_seqlens, outputs[1], sizeof cache_seqlens);
        flw_bed_read(bed, cu, outputs[2], sizeof cu);
        flw_bed_read(bed, &longest, outputs[3], 4);
        expect(&fixture);
        compare(bed, &fixture, table, cache_seqlens, cu, longest);
    }
    free(table);
    drop(&fixture);
}

/* The kernel divides by multiplying; the twin divides. */
static void a_quotient_by_multiplication_is_exact(struct flw_bed *bed)
{
    for (int i = 0; i < 200000; i++) {
        int bits = (int)flw_bed_random_below(bed, 31);
        int32_t d = (int32_t)(((int64_t)1 << bits) + flw_bed_random_below(bed, 3) - 1);
        d = i % 2 == 0 ? (int32_t)(flw_bed_random_below(bed, INT32_MAX) + 1) : d < 1 ? 1 : d;
        struct flw_divisor divisor = flw_divisor_of(d);
        int64_t multiple = flw_bed_random_below(bed, (int64_t)INT32_MAX / d + 1) * d;
        for (int64_t x = multiple - 1; x <= multiple + 1; x++) {
            FLW_EXPECT(bed, x < 0 || x > INT32_MAX || flw_divide((int32_t)x, divisor) == x / d,
                       "%lld / %d", (long long)x, d);
        }
        FLW_EXPECT(bed, flw_divide(INT32_MAX, divisor) == INT32_MAX / d, "2^31-1 / %d", d);
    }
}

static void what_a_call_moves_is_said_by_its_query(struct flw_bed *bed)
{
    fallow_page_table_params params;
    fallow_workspace_need need;
    fallow_page_table_params_init(&params);
    fallow_workspace_need_init(&need);
    params.batch = 512;
    params.cols = 131072;
    params.stride = 131076;
    params.request_rows = 513;
    FLW_EXPECT(bed, fallow_attention_page_table_query(&params, &need) == FALLOW_OK, "refused");
    FLW_EXPECT(bed, need.launch_count == 1 && need.scratch_bytes == 0, "one launch, no scratch");
    FLW_EXPECT(bed, need.outputs[0].bytes == (size_t)256 << 20, "page_table");
    FLW_EXPECT(bed, need.read_bytes == ((uint64_t)256 << 20) + 512 * 12, "read %llu",
               (unsigned long long)need.read_bytes);
    FLW_EXPECT(bed, need.write_bytes == ((uint64_t)256 << 20) + 512 * 8 + 8, "written %llu",
               (unsigned long long)need.write_bytes);
    params.page_size = 64;
    params.cols = 2048;
    FLW_EXPECT(bed, fallow_attention_page_table_query(&params, &need) == FALLOW_OK, "refused");
    FLW_EXPECT(bed, need.read_bytes == ((uint64_t)32 << 20) + 512 * 12, "sectors");
    FLW_EXPECT(bed, need.outputs[0].init == FALLOW_INIT_VALID_TAIL, "full: a valid tail");
    params.bounded = 1;
    FLW_EXPECT(bed, fallow_attention_page_table_query(&params, &need) == FALLOW_OK, "refused");
    FLW_EXPECT(bed, need.outputs[0].init == FALLOW_INIT_PREFIX, "bounded: a prefix");
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_page_table_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 8192);
    fallow_page_table_params_init(&good);
    good.batch = 4;
    good.cols = 8;
    good.stride = 16;
    good.request_rows = 4;
    good.lengths = memory;
    good.requests = memory + 256;
    good.req_to_token = (int32_t *)(void *)(memory + 512);
    good.page_table = (int32_t *)(void *)(memory + 1024);
    good.cache_seqlens = (int32_t *)(void *)(memory + 2048);
    good.cu_k = (int32_t *)(void *)(memory + 2304);
#define REFUSED(change, word)                                                   \
    bad = good;                                                                 \
    change;                                                                     \
    FLW_EXPECT_REFUSED(bed, fallow_attention_page_table(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.batch = -1, "batch");
    REFUSED(bad.batch = 65537, "batch");
    REFUSED(bad.cols = 0, "cols");
    REFUSED(bad.cols = (1 << 30) + 1, "cols");
    REFUSED(bad.page_size = -1, "page_size");
    REFUSED(bad.stride = 0, "stride");
    REFUSED(bad.stride = (int64_t)1 << 31, "stride");
    REFUSED(bad.request_rows = 0, "request_rows");
    REFUSED(bad.swa_count = -1, "swa_count");
    REFUSED(bad.swa_count = 5, "full_to_swa is NULL");
    REFUSED(bad.full_to_swa = (int32_t *)(void *)memory, "swa_count");
    REFUSED(bad.ld = 7, "ld");
    REFUSED(bad.ld = INT64_MAX, "page_table");
    REFUSED(bad.pad_len = 2, "pad_len");
    REFUSED(bad.bounded = 2, "bounded");
    REFUSED(bad.lengths_dtype = FALLOW_F32, "lengths_dtype");
    REFUSED(bad.requests_dtype = FALLOW_U8, "requests_dtype");
    REFUSED(bad.lengths = NULL, "lengths is NULL");
    REFUSED(bad.requests = NULL, "requests is NULL");
    REFUSED(bad.req_to_token = NULL, "req_to_token is NULL");
    REFUSED(bad.page_table = NULL, "page_table is NULL");
    REFUSED(bad.page_table = (int32_t *)(void *)(memory + 1026), "page_table is not aligned");
    REFUSED(bad.cache_seqlens = (int32_t *)(void *)memory, "lengths and cache_seqlens overlap");
    REFUSED(bad.cu_k = bad.cache_seqlens, "cache_seqlens and cu_k overlap");
    REFUSED(bad.max_length = bad.page_table + 31, "page_table and max_length overlap");
    REFUSED(bad.flags = bad.cu_k + 4, "cu_k and flags overlap");
    REFUSED(bad.struct_size = 0, "struct_size");
#undef REFUSED
    FLW_EXPECT(bed, fallow_attention_page_table(NULL, &good, stream) == FALLOW_INVALID_ARGUMENT,
               "NULL kernels");
    FLW_EXPECT(bed, fallow_attention_page_table_query(&good, NULL) == FALLOW_INVALID_ARGUMENT,
               "NULL need");
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(tables_are_exact_for_every_page_size_and_batch),
        FLW_BED_TEST(a_long_context_among_short_ones_is_exact),
        FLW_BED_TEST(the_largest_batch_is_exact),
        FLW_BED_TEST(pads_have_a_length_of_their_own_and_rows_of_fill),
        FLW_BED_TEST(request_zero_serves_pads_as_the_published_chain_has_them),
        FLW_BED_TEST(nothing_beyond_the_stride_is_read),
        FLW_BED_TEST(starts_move_a_row_and_shorten_it),
        FLW_BED_TEST(a_padded_block_table_has_its_sentinel_in_the_tail_and_in_whole_rows),
        FLW_BED_TEST(a_sliding_window_maps_the_slot_then_divides),
        FLW_BED_TEST(what_is_out_of_bounds_is_flagged_and_defined),
        FLW_BED_TEST(a_sum_beyond_the_type_is_its_largest),
        FLW_BED_TEST(columns_that_are_not_declared_stay_as_they_were),
        FLW_BED_TEST(bounded_rows_are_written_in_full_up_to_their_length),
        FLW_BED_TEST(a_graph_takes_rows_and_lengths_from_the_device),
        FLW_BED_TEST(a_quotient_by_multiplication_is_exact),
        FLW_BED_TEST(what_a_call_moves_is_said_by_its_query),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
