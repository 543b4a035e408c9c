/* SPDX-License-Identifier: Apache-2.0 */
#include "common/integer.h"
#include "fallow/attention.h"
#include "kernel/page_rows.h"

FLW_MODULE(page_table, fallow_attention_page_table, fallow_page_table, FLW_IN(lengths),
           FLW_IN_MAYBE(delta), FLW_IN_MAYBE(valid_count), FLW_IN_MAYBE(starts), FLW_IN(requests),
           FLW_IN(req_to_token), FLW_IN(full_to_swa), FLW_PAGE_OUTPUTS, FLW_COUNT(batch, 0, 65536),
           FLW_COUNT(cols, 1, 1 << 30), FLW_COUNT(page_size, 0, INT32_MAX),
           FLW_COUNT(request_rows, 1, INT32_MAX), FLW_COUNT(stride, 1, INT32_MAX),
           FLW_COUNT(swa_count, 0, INT32_MAX), FLW_COUNT(ld, 8, INT64_MAX), FLW_FLAG(bounded),
           FLW_DTYPE(lengths_dtype, FLW_INTEGERS), FLW_DTYPE(requests_dtype, FLW_INTEGERS))

struct fixture {
    struct flw_call call;
    fallow_page_table_params params;
    int64_t *lengths, *requests; /* [batch] */
    int32_t *starts;             /* [batch] */
    int32_t *slots;              /* [request_rows, stride] */
    int32_t *swa;                /* [swa_count] */
    int32_t delta, valid;
    struct flw_page_rows want;
};

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* An independent oracle: token by token, or a whole page at once. */
static void expect_row(struct fixture *fixture, int64_t r)
{
    const fallow_page_table_params *params = &fixture->params;
    struct flw_page_rows *want = &fixture->want;
    int32_t *row = want->table + r * params->cols;
    int64_t length = params->pad_len;
    for (int32_t j = 0; j < params->cols; j++) {
        row[j] = params->fill;
    }
    if (r < fixture->valid) {
        int64_t start = fixture->starts != NULL ? fixture->starts[r] : 0, t = 0;
        int64_t wanted = fixture->lengths[r] + fixture->delta, request = fixture->requests[r];
        bool is_known = request >= 0 && request < params->request_rows;
        want->flags |= wanted < 0 || start < 0 ? FALLOW_FLAG_NEGATIVE : 0;
        want->flags |= start > params->stride ? FALLOW_FLAG_CLAMPED : 0;
        want->flags |= is_known ? 0 : FALLOW_FLAG_INDEX;
        start = start < 0 ? 0 : least_of(start, params->stride);
        int64_t page = params->page_size, in_source = params->stride - start;
        while (t < wanted && t / page < params->cols && t < in_source) {
            if (t % page == 0 && is_known) {
                int64_t slot = fixture->slots[request * params->stride + start + t];
                if (params->swa_count > 0) {
                    slot = slot >= 0 && slot < params->swa_count ? fixture->swa[slot] : -1;
                }
                want->flags |= slot < 0 ? FALLOW_FLAG_INDEX : 0;
                row[t / page] = slot < 0 ? params->fill : (int32_t)(slot / page);
            }
            t += t % page == 0 && t + page <= least_of(wanted, in_source) ? page : 1;
        }
        want->flags |= t < wanted ? FALLOW_FLAG_CLAMPED : 0;
        length = t;
    }
    flw_page_rows_add(want, r, length);
}

static void expect(struct fixture *fixture)
{
    flw_page_rows_begin(&fixture->want, fixture->params.cols);
    for (int64_t r = 0; r < fixture->params.batch; r++) {
        expect_row(fixture, r);
    }
}

/* Draw random lengths that fit, possibly repeated requests, slots of any value. */
static struct fixture *make(struct flw_bed *bed, int32_t batch, int32_t cols, int32_t page_size,
                            int64_t stride)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    struct flw_call *call = &fixture->call;
    fallow_page_table_params *params = &fixture->params;
    size_t rows = (size_t)batch;
    flw_call_init(bed, call, page_table(), params);
    params->request_rows = 5;
    params->stride = stride;
    params->batch = batch;
    params->cols = cols;
    params->page_size = page_size;
    params->fill = 7;
    params->lengths_dtype = FALLOW_I32;
    params->requests_dtype = FALLOW_I64;
    fixture->valid = batch;
    flw_page_rows_init(bed, &fixture->want, batch, cols);
    fixture->lengths = flw_call_draw_typed(call, "lengths", rows, &params->lengths_dtype,
                                           least_of((int64_t)cols * page_size, stride) + 1);
    fixture->requests = flw_call_draw_typed(call, "requests", rows, &params->requests_dtype, 5);
    fixture->slots = flw_call_draw(call, "req_to_token", (size_t)(5 * stride), INT32_MAX);
    flw_call_bind(call, "delta", &fixture->delta, 1, 4);
    flw_call_bind(call, "valid_count", &fixture->valid, 1, 4);
    return fixture;
}

static void add_starts(struct fixture *fixture)
{
    fixture->starts = flw_call_input(&fixture->call, "starts", (size_t)fixture->params.batch, 4);
}

/* Add a map for sliding windows, and slots within it. */
static void add_swa(struct fixture *fixture, int32_t swa_count)
{
    fallow_page_table_params *params = &fixture->params;
    params->swa_count = swa_count;
    fixture->swa = flw_call_draw(&fixture->call, "full_to_swa", (size_t)swa_count, 1000000);
    for (int64_t i = 0; i < params->request_rows * params->stride; i++) {
        fixture->slots[i] %= swa_count;
    }
}

/* The call never reads the inputs of pads: they stay unwritten. */
static void leave_pads(struct fixture *fixture)
{
    flw_call_written(&fixture->call, "lengths", fixture->valid);
    flw_call_written(&fixture->call, "requests", fixture->valid);
}

/* Prove a case in full mode, with these flags, or any if they are -1. */
static void check(struct fixture *fixture, int32_t flags)
{
    leave_pads(fixture);
    expect(fixture);
    flw_page_rows_prove(&fixture->call, &fixture->want, flags);
}

FLW_TEST(tables_are_exact_for_every_page_size_and_batch)
{
    static const int32_t pages[] = {1, 2, 3, 16, 48, 64, 1000, 65536, INT32_MAX};
    static const int32_t batches[] = {0, 1, 2, 7, 8, 64};
    for (size_t p = 0; p < sizeof pages / sizeof *pages; p++) {
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            check(make(bed, batches[b], pages[p] == 1 ? 300 : 21, pages[p], 301 + (int64_t)b), 0);
        }
    }
}

FLW_TEST(a_long_context_among_short_ones_is_exact)
{
    static const int32_t pages[] = {1, 16, 64};
    static const int64_t contexts[] = {0, 1, 63, 64, 65, 8192, 32768, 131072};
    for (size_t p = 0; p < sizeof pages / sizeof *pages; p++) {
        struct fixture *fixture = make(bed, 11, 131072 / pages[p], pages[p], 131072 + 4);
        fixture->valid = 8;
        memcpy(fixture->lengths, contexts, sizeof contexts);
        check(fixture, -1);
    }
}

FLW_TEST(the_largest_batch_is_exact)
{
    struct fixture *fixture = make(bed, 65536, 3, 16, 48);
    fixture->valid = 65000;
    fixture->params.pad_len = 1;
    check(fixture, -1);
}

FLW_TEST(pads_have_a_length_of_their_own_and_rows_of_fill)
{
    for (int32_t valid = -1; valid <= 9; valid++) {
        struct fixture *fixture = make(bed, 8, 10, 4, 40);
        fixture->valid = valid;
        fixture->delta = 2;
        fixture->params.pad_len = valid & 1;
        fixture->params.fill = valid;
        fixture->params.lengths_dtype = (valid & 2) != 0 ? FALLOW_I64 : FALLOW_I32;
        fixture->params.requests_dtype = (valid & 4) != 0 ? FALLOW_I64 : FALLOW_I32;
        check(fixture, -1);
    }
}

/* In the published chain, pads have length 1 and point at request 0 with zero slots. */
FLW_TEST(request_zero_serves_pads_as_the_published_chain_has_them)
{
    struct fixture *fixture = make(bed, 6, 8, 1, 12);
    memset(fixture->slots, 0, 12 * 4);
    fixture->params.fill = 0;
    fixture->lengths[4] = fixture->lengths[5] = 1;
    fixture->requests[4] = fixture->requests[5] = 0;
    check(fixture, -1);
    FLW_EXPECT(bed,
               fixture->want.table[4 * 8] == 0 && fixture->want.cu[6] == fixture->want.cu[4] + 2,
               "pads of request 0");
}

/* The table is wider than the source, and the last page is cut: the last row ends with
 * the buffer. */
FLW_TEST(nothing_beyond_the_stride_is_read)
{
    static const int32_t pages[] = {1, 3, 16, 64};
    for (size_t p = 0; p < sizeof pages / sizeof *pages; p++) {
        struct fixture *fixture = make(bed, 4, 200, pages[p], 128); /* 512 bytes a row: no slack */
        for (int r = 0; r < 4; r++) {
            fixture->requests[r] = 4;
            fixture->lengths[r] = 126 + r; /* 129 is more than the row has */
        }
        check(fixture, FALLOW_FLAG_CLAMPED);
    }
}

FLW_TEST(starts_move_a_row_and_shorten_it)
{
    for (int32_t page = 1; page <= 4; page++) {
        struct fixture *fixture = make(bed, 40, 64, page, 80);
        fixture->params.fill = -1;
        add_starts(fixture);
        for (int r = 0; r < 40; r++) {
            fixture->starts[r] = (int32_t)flw_bed_random_below(bed, 81);
            fixture->lengths[r] = flw_bed_random_below(bed, 81 - fixture->starts[r]);
        }
        check(fixture, -1);
        FLW_EXPECT(
            bed, fixture->want.flags == (page > 1 ? 0 : fixture->want.flags & FALLOW_FLAG_CLAMPED),
            "flags without a cause");
        fixture->starts[3] = 81;
        fixture->starts[5] = -2;
        check(fixture, -1);
    }
}

/* Blocks of 2 tokens; the third request has none, the fourth row is a pad. */
FLW_TEST(a_padded_block_table_has_its_sentinel_in_the_tail_and_in_whole_rows)
{
    static const int32_t slots[2][8] = {{8, 9, 2, 3, 30, 31, 0, 0}, {6, 7, 40, 41, 12, 13, 20, 21}};
    static const int64_t lengths[4] = {5, 3, 0, 0}, requests[4] = {0, 1, 0, 0};
    static const int32_t expected[4][4] = {
        {4, 1, 15, -1}, {6, 10, -1, -1}, {-1, -1, -1, -1}, {-1, -1, -1, -1}};
    struct fixture *fixture = make(bed, 4, 4, 2, 8);
    add_starts(fixture);
    memcpy(fixture->slots, slots, sizeof slots);
    memcpy(fixture->lengths, lengths, sizeof lengths);
    memcpy(fixture->requests, requests, sizeof requests);
    memcpy(fixture->starts, (int32_t[]){0, 4, 2, 0}, 16);
    fixture->params.fill = -1;
    fixture->valid = 3;
    check(fixture, 0);
    flw_call_expect(&fixture->call, "page_table", expected);
}

FLW_TEST(a_sliding_window_maps_the_slot_then_divides)
{
    for (int32_t page = 1; page <= 16; page *= 4) {
        struct fixture *fixture = make(bed, 9, 30, page, 480);
        add_swa(fixture, 777);
        check(fixture, -1);
        FLW_EXPECT(bed, (fixture->want.flags & FALLOW_FLAG_INDEX) == 0, "INDEX without a cause");
        for (int r = 0; r < 9; r++) {
            fixture->lengths[r] = 30;
            fixture->requests[r] = r % 5;
        }
        fixture->slots[0] = 777;
        fixture->slots[480] = -1;
        fixture->swa[fixture->slots[960]] = -5;
        fixture->slots[1440] = 0; /* the first entry of the map counts */
        fixture->swa[0] = 500;
        check(fixture, -1);
        FLW_EXPECT(bed, (fixture->want.flags & FALLOW_FLAG_INDEX) != 0, "no INDEX");
    }
}

FLW_TEST(values_out_of_bounds_are_flagged_and_defined)
{
    static const struct {
        int64_t length, request;
        int32_t delta, slot, flags;
    } cases[] = {{3, 2, 0, 4, 0},
                 {-1, 2, 0, 4, FALLOW_FLAG_NEGATIVE},
                 {INT64_MIN, 2, 0, 4, FALLOW_FLAG_NEGATIVE},
                 {21, 2, 0, 4, FALLOW_FLAG_CLAMPED},
                 {INT64_MAX - 9, 2, 5, 4, FALLOW_FLAG_CLAMPED},
                 {3, 5, 0, 4, FALLOW_FLAG_INDEX},
                 {3, -1, 0, 4, FALLOW_FLAG_INDEX},
                 {3, INT64_MIN, 0, 4, FALLOW_FLAG_INDEX},
                 {3, 2, 0, -4, FALLOW_FLAG_INDEX}};
    struct fixture *fixture = make(bed, 4, 10, 2, 30);
    fixture->params.lengths_dtype = FALLOW_I64;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        memcpy(fixture->lengths, (int64_t[]){5, 0, 7, 12}, 32);
        fixture->lengths[1] = cases[c].length;
        fixture->requests[1] = cases[c].request;
        fixture->delta = cases[c].delta;
        fixture->slots[60] = cases[c].slot;
        check(fixture, cases[c].flags);
    }
}

/* 17,000 rows of 131,072 are more than int32 holds; all lengths equal, the table is one column a row. */
FLW_TEST(a_sum_beyond_the_type_is_its_largest)
{
    struct fixture *fixture = make(bed, 17000, 1, 131072, 131072);
    for (int r = 0; r < 17000; r++) {
        fixture->lengths[r] = 131072;
    }
    check(fixture, FALLOW_FLAG_OVERFLOW);
    FLW_EXPECT(bed, fixture->want.cu[17000] == INT32_MAX, "the sum is no int32");
}

/* The kernel divides by multiplying; the twin divides. */
FLW_TEST(a_quotient_by_multiplication_is_exact)
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

/* Rows with gaps, and bounded rows: bytes that are not declared keep their values. */
FLW_TEST(columns_that_are_not_declared_keep_their_values)
{
    for (int mode = 0; mode < 8; mode++) {
        int32_t page = (mode & 2) != 0 ? 1 : 5;
        struct fixture *fixture = make(bed, 12, 37, page, 188);
        fixture->params.bounded = (mode & 1) != 0;
        fixture->params.ld = 52;
        fixture->params.pad_len = (mode & 4) != 0;
        fixture->valid = 9;
        leave_pads(fixture);
        expect(fixture);
        flw_page_rows_run(&fixture->call, &fixture->want, 52, (mode & 1) != 0 ? page : 0);
    }
}

FLW_TEST(a_graph_takes_rows_and_lengths_from_the_device)
{
    struct fixture *fixture = make(bed, 64, 40, 3, 130);
    fixture->params.pad_len = 1;
    flw_call_capture(&fixture->call);
    for (fixture->valid = 64; fixture->valid >= 0; fixture->valid -= 16) {
        fixture->delta = fixture->valid / 16;
        for (int r = 0; r < 64; r++) {
            fixture->lengths[r] = r < fixture->valid ? flw_bed_random_below(bed, 110) : 1 << 30;
            fixture->requests[r] = r < fixture->valid ? flw_bed_random_below(bed, 5) : -1;
        }
        expect(fixture);
        flw_page_rows_replay(&fixture->call, &fixture->want);
    }
}

FLW_TEST(the_query_counts_the_bytes_of_a_call)
{
    struct fixture *fixture = make(bed, 0, 131072, 1, 131076);
    fallow_page_table_params *params = &fixture->params;
    params->batch = 512;
    params->request_rows = 513;
    fallow_workspace_need need = flw_call_need(&fixture->call);
    FLW_EXPECT(bed, need.launch_count == 1 && need.scratch_bytes == 0, "one launch, no scratch");
    FLW_EXPECT(bed, need.outputs[0].bytes == (size_t)256 << 20, "page_table");
    FLW_EXPECT(bed, need.read_bytes == ((uint64_t)256 << 20) + 512 * (4 + 8 + 4), "read %llu",
               (unsigned long long)need.read_bytes);
    FLW_EXPECT(bed, need.write_bytes == ((uint64_t)256 << 20) + 512 * 8 + 8, "written %llu",
               (unsigned long long)need.write_bytes);
    params->page_size = 64;
    params->cols = 2048;
    need = flw_call_need(&fixture->call);
    FLW_EXPECT(bed, need.read_bytes == ((uint64_t)32 << 20) + 512 * (4 + 8 + 4), "sectors");
    FLW_EXPECT(bed, need.outputs[0].init == FALLOW_INIT_VALID_TAIL, "full: a valid tail");
    params->bounded = 1;
    FLW_EXPECT(bed, flw_call_need(&fixture->call).outputs[0].init == FALLOW_INIT_PREFIX,
               "bounded: a prefix");
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = make(bed, 4, 8, 1, 16);
    add_swa(fixture, 5);
    FLW_CALL_REFUSE(&fixture->call, "swa_count=0: swa_count is 0 with full_to_swa",
                    "ld=9223372036854775807: page_table",
                    "max_length=@page_table+124: page_table and max_length overlap");
}
