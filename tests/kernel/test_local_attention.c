/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/attention.h"
#include "kernel/call.h"

FLW_MODULE(local_attention, fallow_attention_local_attention, fallow_local_attention,
           FLW_IN(cu_seqlens_q), FLW_IN(lengths), FLW_IN(block_table), FLW_IN_MAYBE(valid_count),
           FLW_OUT(cu_q_local), FLW_OUT(seqused_k), FLW_OUT(local_table),
           FLW_OUT_MAYBE(virtual_count), FLW_OUT_MAYBE(flags), FLW_COUNT(batch, 0, 65536),
           FLW_COUNT(capacity, 0, INT32_MAX), FLW_COUNT(page_size, 0, INT32_MAX),
           FLW_COUNT(chunk, 1, INT32_MAX), FLW_COUNT(table_columns, 1, INT32_MAX),
           FLW_STRIDE(table_stride, 10))

enum {
    CU,
    KEYS,
    TABLE,
    COUNT,
    OUTPUTS
};

/* One call and the expected outputs. */
struct fixture {
    struct flw_call call;
    fallow_local_attention_params params;
    int32_t valid;
    int32_t *q, *s, *cu;        /* [batch], [batch], [batch + 1] */
    int32_t *table;             /* [batch, stride] */
    int32_t *expected[OUTPUTS]; /* like the outputs */
    int64_t columns, rows;      /* of the local table; virtual requests, dropped ones too */
    int32_t flags;              /* expected */
};

static int64_t stride_of(const struct fixture *fixture)
{
    return fixture->params.table_stride == 0 ? fixture->params.table_columns
                                             : fixture->params.table_stride;
}

/* `table_columns` of which a stride may be set later, before `bind`. */
static struct fixture *make(struct flw_bed *bed, int32_t batch, int32_t chunk, int32_t page_size,
                            int32_t table_columns, int32_t capacity)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    struct flw_call *call = &fixture->call;
    size_t requests = (size_t)batch, rows = (size_t)capacity;
    flw_call_init(bed, call, local_attention(), &fixture->params);
    fixture->params.batch = batch;
    fixture->params.chunk = chunk;
    fixture->params.page_size = page_size;
    fixture->params.table_columns = table_columns;
    fixture->params.capacity = capacity;
    fixture->valid = batch;
    fixture->q = flw_bed_memory(bed, requests * 4);
    fixture->s = flw_call_input(call, "lengths", requests, 4);
    fixture->cu = flw_call_input(call, "cu_seqlens_q", requests + 1, 4);
    flw_call_bind(call, "valid_count", &fixture->valid, 1, 4);
    fixture->columns = chunk / page_size;
    fixture->expected[CU] = flw_bed_memory(bed, rows * 4 + 4);
    fixture->expected[KEYS] = flw_bed_memory(bed, rows * 4);
    fixture->expected[TABLE] = flw_bed_memory(bed, rows * (size_t)fixture->columns * 4);
    fixture->expected[COUNT] = flw_bed_memory(bed, 4);
    return fixture;
}

/* ---- an independent oracle: for each chunk of the keys, the queries and keys inside */

static int64_t overlap(int64_t a_begin, int64_t a_end, int64_t b_begin, int64_t b_end)
{
    int64_t begin = a_begin > b_begin ? a_begin : b_begin, end = a_end < b_end ? a_end : b_end;
    return end > begin ? end - begin : 0;
}

static int32_t page_at(const struct fixture *fixture, int64_t i, int64_t page)
{
    int64_t last = fixture->params.table_columns - 1;
    return fixture->table[i * stride_of(fixture) + (page < last ? page : last)];
}

/* One virtual request: keys [begin, end) of request i, none: a row of zeros. */
static void expect_row(struct fixture *fixture, int64_t i, int64_t queries, int64_t begin,
                       int64_t end, int64_t *sum)
{
    int64_t row = fixture->rows++;
    if (row >= fixture->params.capacity) {
        fixture->flags |= FALLOW_FLAG_DROPPED;
        return;
    }
    *sum += queries;
    fixture->flags |= *sum > INT32_MAX ? FALLOW_FLAG_OVERFLOW : 0;
    fixture->expected[CU][row + 1] = (int32_t)(*sum > INT32_MAX ? INT32_MAX : *sum);
    fixture->expected[KEYS][row] = (int32_t)(end - begin);
    for (int64_t c = 0; c < fixture->columns && end > begin; c++) {
        fixture->expected[TABLE][row * fixture->columns + c] =
            page_at(fixture, i, begin / fixture->params.page_size + c);
    }
}

static void expect_request(struct fixture *fixture, int64_t i, int64_t *sum)
{
    int64_t q = fixture->q[i], s = fixture->s[i], chunk = fixture->params.chunk;
    fixture->flags |= q < 0 || s < 0 ? FALLOW_FLAG_NEGATIVE : 0;
    q = q < 0 ? 0 : q;
    if (s <= 0) {
        expect_row(fixture, i, 0, 0, 0, sum);
        return;
    }
    if (q > s) {
        fixture->flags |= FALLOW_FLAG_CLAMPED;
        q = s;
    }
    if (s > (int64_t)fixture->params.table_columns * fixture->params.page_size) {
        fixture->flags |= FALLOW_FLAG_INDEX;
    }
    int64_t first = q == 0 ? (s - 1) / chunk : (s - q) / chunk;
    for (int64_t c = first; c * chunk < s; c++) {
        int64_t begin = c * chunk, end = begin + chunk < s ? begin + chunk : s;
        expect_row(fixture, i, overlap(s - q, s, begin, end), begin, end, sum);
    }
}

static void expect(struct fixture *fixture)
{
    int32_t capacity = fixture->params.capacity;
    int64_t sum = 0;
    fixture->rows = 0;
    fixture->flags = 0;
    memset(fixture->expected[CU], 0, ((size_t)capacity + 1) * 4);
    memset(fixture->expected[KEYS], 0, (size_t)capacity * 4);
    memset(fixture->expected[TABLE], 0, (size_t)capacity * (size_t)fixture->columns * 4);
    for (int64_t i = 0; i < fixture->params.batch && i < fixture->valid; i++) {
        expect_request(fixture, i, &sum);
    }
    fixture->expected[COUNT][0] = (int32_t)(fixture->rows < capacity ? fixture->rows : capacity);
    for (int64_t row = fixture->rows; row < capacity; row++) {
        fixture->expected[CU][row + 1] = fixture->expected[CU][row];
    }
}

/* ---- the call */

/* Bind inputs, and compute the expected outputs: a table of distinct pages. */
static struct flw_call *bind(struct fixture *fixture)
{
    struct flw_call *call = &fixture->call;
    int64_t stride = stride_of(fixture), batch = fixture->params.batch;
    fixture->cu[0] = 11; /* only differences count */
    for (int64_t i = 0; i < batch; i++) {
        fixture->cu[i + 1] = (int32_t)((uint32_t)fixture->cu[i] + (uint32_t)fixture->q[i]);
    }
    fixture->table = flw_call_input(call, "block_table", (size_t)(batch * stride), 4);
    for (int64_t at = 0; at < batch * stride; at++) {
        fixture->table[at] = (int32_t)(at + 1000);
    }
    expect(fixture);
    call->want_flags = fixture->flags;
    return call;
}

/* Mark the parts of the table that the call may not read as unwritten. */
static void hide_table(struct flw_call *call, void *const outputs[])
{
    const struct fixture *fixture = (const void *)call; /* its first member */
    int64_t stride = stride_of(fixture);
    int32_t *table = (int32_t *)(uintptr_t)fixture->params.block_table;
    (void)outputs;
    for (int64_t i = 0; i < fixture->params.batch; i++) {
        bool is_used = i < fixture->valid && fixture->s[i] > 0;
        int64_t used = is_used ? fixture->params.table_columns : 0;
        flw_bed_dirty(call->bed, table + i * stride + used, (size_t)(stride - used) * 4, 0xee);
    }
}

static void compare(struct fixture *fixture)
{
    for (int i = 0; i < OUTPUTS; i++) {
        flw_call_expect(&fixture->call, fixture->call.step.names[i], fixture->expected[i]);
    }
}

/* Draw lengths of all kinds: empty, at chunk edges, without queries, one query, many. */
static struct fixture *fill(struct flw_bed *bed, struct fixture *fixture, int64_t longest,
                            int64_t most_queries)
{
    int64_t chunk = fixture->params.chunk;
    for (int32_t i = 0; i < fixture->params.batch; i++) {
        int64_t s = flw_bed_random_below(bed, longest + 1), kind = flw_bed_random_below(bed, 8);
        s = kind == 0 ? 0 : kind < 3 ? s / chunk * chunk + kind - 1 : s;
        s = s < longest ? s : longest; /* an edge may be one too large */
        int64_t q = flw_bed_random_below(bed, most_queries + 1);
        fixture->s[i] = (int32_t)s;
        fixture->q[i] = (int32_t)(q < s ? q : s);
    }
    return fixture;
}

/* Prove a case, and compare outputs and flags with the oracle's. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    fixture->call.before = hide_table;
    flw_call_prove(bind(fixture));
    compare(fixture);
}

/* ---- tests */

FLW_TEST(the_example_comes_out)
{
    static const int32_t cu[] = {0, 2, 4, 5, 9, 13, 14, 18, 19, 19};
    static const int32_t keys[] = {4, 2, 4, 4, 4, 1, 4, 1, 0};
    static const int32_t pages[][2] = {{0, 1},   {2, 3},   {12, 13}, {14, 15},      {16, 17},
                                       {18, 19}, {22, 23}, {24, 25}, {-1000, -1000}};
    struct fixture *fixture = make(bed, 3, 4, 2, 10, 9);
    memcpy(fixture->q, (int32_t[]){4, 10, 5}, 12);
    memcpy(fixture->s, (int32_t[]){6, 17, 9}, 12);
    check(bed, fixture);
    FLW_EXPECT(bed, memcmp(fixture->expected[CU], cu, sizeof cu) == 0, "cu_q_local");
    FLW_EXPECT(bed, memcmp(fixture->expected[KEYS], keys, sizeof keys) == 0, "seqused_k");
    FLW_EXPECT(bed, fixture->expected[COUNT][0] == 8, "virtual_count");
    for (int row = 0; row < 9; row++) {
        for (int c = 0; c < 2; c++) { /* page n of the flattened table holds n + 1000 */
            FLW_EXPECT(bed, fixture->expected[TABLE][row * 2 + c] == pages[row][c] + 1000,
                       "page %d of row %d", c, row);
        }
    }
}

FLW_TEST(virtual_requests_are_exact_for_every_shape)
{
    static const struct {
        int32_t batch, chunk, page_size, columns, capacity, queries;
    } cases[] = {
        {1, 4, 2, 50, 40, 60},      {7, 16, 16, 9, 60, 40},      {8, 64, 16, 16, 100, 200},
        {64, 128, 16, 17, 300, 1},  {257, 32, 1, 40, 700, 30},   {300, 12, 4, 30, 1500, 60},
        {5, 8192, 16, 700, 30, 1},  {600, 8, 2, 8, 5000, 30},    {3, 1, 1, 90, 200, 90},
        {40, 2048, 1, 2100, 41, 1}, {1030, 64, 16, 8, 66000, 3}, {2, 40, 4, 33, 2000, 100},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *fixture = make(bed, cases[i].batch, cases[i].chunk, cases[i].page_size,
                                       cases[i].columns, cases[i].capacity);
        fill(bed, fixture, (int64_t)cases[i].columns * cases[i].page_size, cases[i].queries);
        fixture->params.table_stride = i % 3 == 0 ? 0 : cases[i].columns + (int64_t)i;
        check(bed, fixture);
    }
}

/* Without the rule that a chunk is not cut to the longest context. */
FLW_TEST(a_short_context_keeps_its_chunk)
{
    struct fixture *fixture = make(bed, 1, 8192, 16, 2, 1);
    fixture->s[0] = 31;
    fixture->q[0] = 1;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->expected[KEYS][0] == 31, "31 keys, not 15");
}

FLW_TEST(empty_requests_and_those_without_queries_have_one_row)
{
    struct fixture *fixture = make(bed, 6, 8, 2, 10, 8);
    memcpy(fixture->s, (int32_t[]){0, 17, 0, 16, 3, 0}, 24);
    memcpy(fixture->q, (int32_t[]){0, 0, 1, 0, 3, 0}, 24);
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->flags == 0, "none is a mistake");
    FLW_EXPECT(bed, fixture->expected[COUNT][0] == 6, "one row each");
    FLW_EXPECT(bed, fixture->expected[KEYS][1] == 1 && fixture->expected[KEYS][3] == 8,
               "the last keys");
    fixture = make(bed, 0, 8, 2, 10, 5); /* no requests */
    check(bed, fixture);
    fixture = make(bed, 0, 8, 2, 10, 0); /* and no rows: a leading zero and a count */
    check(bed, fixture);
}

FLW_TEST(the_tail_of_a_padded_batch_is_neutral)
{
    for (int32_t valid = -1; valid <= 10; valid++) {
        struct fixture *fixture = make(bed, 9, 16, 4, 12, 40);
        fill(bed, fixture, 48, 20);
        fixture->valid = valid;
        check(bed, fixture);
    }
}

FLW_TEST(rows_beyond_the_capacity_are_dropped_and_flagged)
{
    for (int32_t capacity = 0; capacity < 40; capacity += 3) {
        struct fixture *fixture = make(bed, 11, 16, 4, 40, capacity);
        for (int32_t i = 0; i < 11; i++) { /* 55 rows */
            fixture->s[i] = 80;
            fixture->q[i] = 80;
        }
        check(bed, fixture);
        FLW_EXPECT(bed, fixture->flags == FALLOW_FLAG_DROPPED, "no DROPPED");
    }
}

FLW_TEST(values_out_of_bounds_are_flagged_and_defined)
{
    struct fixture *fixture = make(bed, 4, 16, 4, 12, 20);
    fill(bed, fixture, 48, 20);
    fixture->s[1] = -3;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->flags == FALLOW_FLAG_NEGATIVE, "a negative length");

    fixture = make(bed, 4, 16, 4, 12, 20);
    fill(bed, fixture, 48, 20);
    fixture->s[1] = 5;
    fixture->q[1] = 6;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->flags == FALLOW_FLAG_CLAMPED, "more queries than keys");
    fixture->q[1] = 5;
    fixture->s[2] = 49;
    fixture->q[2] = 40;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->flags == FALLOW_FLAG_INDEX, "keys beyond the table");

    fixture = make(bed, 3, 1 << 30, 1 << 28, 8, 9);
    for (int i = 0; i < 3; i++) {
        fixture->s[i] = INT32_MAX;
        fixture->q[i] = i == 1 ? -INT32_MAX : INT32_MAX - 20;
    }
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->flags == (FALLOW_FLAG_NEGATIVE | FALLOW_FLAG_OVERFLOW),
               "the longest lengths");
}

FLW_TEST(a_graph_takes_count_and_lengths_from_the_device)
{
    struct fixture *fixture = make(bed, 64, 32, 4, 33, 300);
    flw_call_capture(bind(fixture));
    for (fixture->valid = 64; fixture->valid >= 0; fixture->valid -= 8) {
        flw_call_replay(bind(fill(bed, fixture, 2 * fixture->valid, 60)));
        compare(fixture);
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = fill(bed, make(bed, 16, 16, 4, 10, 32), 40, 5);
    FLW_CALL_REFUSE(
        bind(fixture), "chunk=18: chunk 18 is not a multiple of page_size 4",
        "capacity=2147483647 chunk=2147483647 page_size=1: capacity x chunk / page_size");
}
