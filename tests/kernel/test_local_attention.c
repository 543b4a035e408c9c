/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/attention.h"
#include "kernel/bed.h"

enum {
    CU,
    KEYS,
    TABLE,
    COUNT,
    OUTPUTS
};

/* One call on the host: the inputs and expected outputs. */
struct fixture {
    fallow_local_attention_params params;
    int32_t valid;
    int32_t *q, *s;             /* [batch] */
    int32_t *table;             /* [batch, stride] */
    int32_t *expected[OUTPUTS]; /* like the outputs */
    int64_t columns, rows;      /* of the local table; virtual requests, dropped ones too */
    int32_t flags;              /* expected */
};

static void *get(int64_t count)
{
    void *memory = calloc((size_t)count + 1, 4);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

static int64_t stride_of(const struct fixture *fixture)
{
    return fixture->params.table_stride == 0 ? fixture->params.table_columns
                                             : fixture->params.table_stride;
}

/* `table_columns` of which a stride may be set later, before give_inputs. */
static struct fixture *make(int32_t batch, int32_t chunk, int32_t page_size, int32_t table_columns,
                            int32_t capacity)
{
    struct fixture *fixture = get(sizeof *fixture / 4);
    fallow_local_attention_params_init(&fixture->params);
    fixture->params.batch = batch;
    fixture->params.chunk = chunk;
    fixture->params.page_size = page_size;
    fixture->params.table_columns = table_columns;
    fixture->params.capacity = capacity;
    fixture->valid = batch;
    fixture->q = get(batch);
    fixture->s = get(batch);
    fixture->columns = chunk / page_size;
    fixture->expected[CU] = get((int64_t)capacity + 1);
    fixture->expected[KEYS] = get(capacity);
    fixture->expected[TABLE] = get(capacity * fixture->columns);
    fixture->expected[COUNT] = get(1);
    return fixture;
}

static void drop(struct fixture *fixture)
{
    for (int i = 0; i < OUTPUTS; i++) {
        free(fixture->expected[i]);
    }
    free(fixture->q);
    free(fixture->s);
    free(fixture->table);
    free(fixture);
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

static const int32_t *sums_of(const struct fixture *fixture, int32_t *cu)
{
    cu[0] = 11; /* only differences count */
    for (int32_t i = 0; i < fixture->params.batch; i++) {
        cu[i + 1] = (int32_t)((uint32_t)cu[i] + (uint32_t)fixture->q[i]);
    }
    return cu;
}

/* Pages that are nobody else's, and rows that nobody may read unwritten. */
static void give_inputs(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_local_attention_params *params = &fixture->params;
    int64_t stride = stride_of(fixture), batch = params->batch;
    int32_t *cu = get(batch + 1);
    free(fixture->table); /* of an earlier call */
    fixture->table = get(batch * stride);
    for (int64_t at = 0; at < batch * stride; at++) {
        fixture->table[at] = (int32_t)(at + 1000);
    }
    params->cu_seqlens_q =
        flw_bed_upload(bed, "cu_seqlens_q", sums_of(fixture, cu), ((size_t)batch + 1) * 4);
    params->lengths = flw_bed_upload(bed, "lengths", fixture->s, (size_t)batch * 4);
    params->valid_count = flw_bed_upload(bed, "valid_count", &fixture->valid, 4);
    int32_t *table =
        flw_bed_upload(bed, "block_table", fixture->table, (size_t)(batch * stride) * 4);
    params->block_table = table;
    for (int64_t i = 0; i < batch; i++) {
        int64_t used = i < fixture->valid && fixture->s[i] > 0 ? params->table_columns : 0;
        flw_bed_dirty(bed, table + i * stride + used, (size_t)(stride - used) * 4, 0xee);
    }
    free(cu);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_local_attention_params params = ((struct fixture *)inputs)->params;
    params.cu_q_local = outputs[CU];
    params.seqused_k = outputs[KEYS];
    params.local_table = outputs[TABLE];
    params.virtual_count = outputs[COUNT];
    FLW_EXPECT_OK(
        bed, fallow_attention_local_attention(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_local_attention_query(&fixture->params, &need),
                    &need);
    return step;
}

static void compare(struct flw_bed *bed, struct fixture *fixture, int32_t *const got[])
{
    static const char *const names[OUTPUTS] = {"cu_q_local", "seqused_k", "local_table",
                                               "virtual_count"};
    int64_t capacity = fixture->params.capacity;
    const int64_t counts[OUTPUTS] = {capacity + 1, capacity, capacity * fixture->columns, 1};
    expect(fixture);
    for (int output = 0; output < OUTPUTS; output++) {
        for (int64_t i = 0; i < counts[output]; i++) {
            FLW_EXPECT(bed, got[output][i] == fixture->expected[output][i],
                       "%s[%lld] of batch %d is %d, expected %d", names[output], (long long)i,
                       fixture->params.batch, got[output][i], fixture->expected[output][i]);
        }
    }
}

/* Draw lengths of all kinds: empty, at chunk edges, without queries, one query, many. */
static void fill(struct flw_bed *bed, struct fixture *fixture, int64_t longest,
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
}

/* Prove a case, and compare outputs and flags with the oracle's. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_local_attention_params *params = &fixture->params;
    int64_t capacity = params->capacity;
    int32_t *got[OUTPUTS] = {get(capacity + 1), get(capacity), get(capacity * fixture->columns),
                             get(1)};
    struct fixture *larger = make(params->batch + 5, 8, 2, 40, params->capacity + 300);
    struct fixture *smaller = make(params->batch / 2, 4, 1, 20, params->capacity / 2);
    fill(bed, larger, 80, 40);
    fill(bed, smaller, 20, 1);
    give_inputs(bed, fixture);
    give_inputs(bed, larger);
    give_inputs(bed, smaller);
    fixture->params.flags = flw_bed_flags(bed);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    flw_bed_prove(bed, &step, &before, &after, (void *const *)got);
    compare(bed, fixture, got);
    int32_t flags = flw_bed_read_flags(bed, fixture->params.flags);
    FLW_EXPECT(bed, flags == fixture->flags, "flags are %d, expected %d", flags, fixture->flags);
    for (int i = 0; i < OUTPUTS; i++) {
        free(got[i]);
    }
    drop(larger);
    drop(smaller);
}

/* ---- tests */

static void the_example_comes_out(struct flw_bed *bed)
{
    static const int32_t cu[] = {0, 2, 4, 5, 9, 13, 14, 18, 19, 19};
    static const int32_t keys[] = {4, 2, 4, 4, 4, 1, 4, 1, 0};
    static const int32_t pages[][2] = {{0, 1},   {2, 3},   {12, 13}, {14, 15},      {16, 17},
                                       {18, 19}, {22, 23}, {24, 25}, {-1000, -1000}};
    struct fixture *fixture = make(3, 4, 2, 10, 9);
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
    drop(fixture);
}

static void virtual_requests_are_exact_for_every_shape(struct flw_bed *bed)
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
        struct fixture *fixture = make(cases[i].batch, cases[i].chunk, cases[i].page_size,
                                       cases[i].columns, cases[i].capacity);
        fill(bed, fixture, (int64_t)cases[i].columns * cases[i].page_size, cases[i].queries);
        fixture->params.table_stride = i % 3 == 0 ? 0 : cases[i].columns + (int64_t)i;
        check(bed, fixture);
        drop(fixture);
    }
}

/* Without the rule that a chunk is not cut to the longest context. */
static void a_short_context_keeps_its_chunk(struct flw_bed *bed)
{
    struct fixture *fixture = make(1, 8192, 16, 2, 1);
    fixture->s[0] = 31;
    fixture->q[0] = 1;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->expected[KEYS][0] == 31, "31 keys, not 15");
    drop(fixture);
}

static void empty_requests_and_those_without_queries_have_one_row(struct flw_bed *bed)
{
    struct fixture *fixture = make(6, 8, 2, 10, 8);
    memcpy(fixture->s, (int32_t[]){0, 17, 0, 16, 3, 0}, 24);
    memcpy(fixture->q, (int32_t[]){0, 0, 1, 0, 3, 0}, 24);
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->flags == 0, "none is a mistake");
    FLW_EXPECT(bed, fixture->expected[COUNT][0] == 6, "one row each");
    FLW_EXPECT(bed, fixture->expected[KEYS][1] == 1 && fixture->expected[KEYS][3] == 8,
               "the last keys");
    drop(fixture);
    fixture = make(0, 8, 2, 10, 5); /* no requests */
    check(bed, fixture);
    drop(fixture);
    fixture = make(0, 8, 2, 10, 0); /* and no rows: a leading zero and a count */
    check(bed, fixture);
    drop(fixture);
}

static void the_tail_of_a_padded_batch_is_neutral(struct flw_bed *bed)
{
    for (int32_t valid = -1; valid <= 10; valid++) {
        struct fixture *fixture = make(9, 16, 4, 12, 40);
        fill(bed, fixture, 48, 20);
        fixture->valid = valid;
        check(bed, fixture);
        drop(fixture);
    }
}

static void what_exceeds_the_capacity_is_dropped_and_flagged(struct flw_bed *bed)
{
    for (int32_t capacity = 0; capacity < 40; capacity += 3) {
        struct fixture *fixture = make(11, 16, 4, 40, capacity);
        for (int32_t i = 0; i < 11; i++) { /* 55 rows */
            fixture->s[i] = 80;
            fixture->q[i] = 80;
        }
        check(bed, fixture);
        FLW_EXPECT(bed, fixture->flags == FALLOW_FLAG_DROPPED, "no DROPPED");
        drop(fixture);
    }
}

static void what_is_out_of_bounds_is_flagged_and_defined(struct flw_bed *bed)
{
    struct fixture *fixture = make(4, 16, 4, 12, 20);
    fill(bed, fixture, 48, 20);
    fixture->s[1] = -3;
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->flags == FALLOW_FLAG_NEGATIVE, "a negative length");
    drop(fixture);

    fixture = make(4, 16, 4, 12, 20);
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
    drop(fixture);

    fixture = make(3, 1 << 30, 1 << 28, 8, 9);
    for (int i = 0; i < 3; i++) {
        fixture->s[i] = INT32_MAX;
        fixture->q[i] = i == 1 ? -INT32_MAX : INT32_MAX - 20;
    }
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->flags == (FALLOW_FLAG_NEGATIVE | FALLOW_FLAG_OVERFLOW),
               "the longest lengths");
    drop(fixture);
}

static void a_graph_takes_count_and_lengths_from_the_device(struct flw_bed *bed)
{
    struct fixture *fixture = make(64, 32, 4, 33, 300);
    fill(bed, fixture, 132, 60);
    for (int i = 0; i < 64; i++) {
        fixture->s[i] = 128;
        fixture->q[i] = 64;
    }
    give_inputs(bed, fixture);
    int32_t *got[OUTPUTS] = {get(301), get(300), get(300 * fixture->columns), get(1)};
    struct flw_bed_step step = step_of(bed, fixture);
    void *outputs[OUTPUTS];
    for (int i = 0; i < OUTPUTS; i++) {
        outputs[i] = flw_bed_buffer(bed, step.names[i], step.buffer_bytes[i]);
    }
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, fixture, outputs);
    for (int32_t valid = 64; valid >= 0; valid -= 8) {
        int32_t cu[65];
        fill(bed, fixture, 2 * valid, 60);
        fixture->valid = valid;
        flw_bed_write(bed, fixture->params.cu_seqlens_q, sums_of(fixture, cu), sizeof cu);
        flw_bed_write(bed, fixture->params.lengths, fixture->s, 256);
        flw_bed_write(bed, fixture->params.valid_count, &valid, 4);
        flw_bed_replay(bed, graph);
        for (int i = 0; i < OUTPUTS; i++) {
            flw_bed_read(bed, got[i], outputs[i], step.declared_bytes[i]);
        }
        compare(bed, fixture, got);
    }
    for (int i = 0; i < OUTPUTS; i++) {
        free(got[i]);
    }
    drop(fixture);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_local_attention_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 16384);
    fallow_local_attention_params_init(&good);
    good.batch = 16;
    good.capacity = 32;
    good.chunk = 16;
    good.page_size = 4;
    good.table_columns = 10;
    good.cu_seqlens_q = (void *)memory;
    good.lengths = (void *)(memory + 1024);
    good.block_table = (void *)(memory + 2048);
    good.cu_q_local = (void *)(memory + 4096);
    good.seqused_k = (void *)(memory + 5120);
    good.local_table = (void *)(memory + 6144);
#define REFUSED(change, word)                                                        \
    bad = good;                                                                      \
    change;                                                                          \
    FLW_EXPECT_REFUSED(bed, fallow_attention_local_attention(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.batch = -1, "batch");
    REFUSED(bad.batch = 65537, "batch");
    REFUSED(bad.capacity = -1, "capacity");
    REFUSED(bad.chunk = 0, "chunk");
    REFUSED(bad.chunk = 18, "chunk 18 is not a multiple of page_size 4");
    REFUSED(bad.page_size = -4, "page_size");
    REFUSED(bad.table_columns = 0, "table_columns");
    REFUSED(bad.table_stride = 9, "table_stride");
    REFUSED((bad.capacity = INT32_MAX, bad.chunk = INT32_MAX, bad.page_size = 1),
            "capacity x chunk / page_size");
    REFUSED(bad.cu_seqlens_q = NULL, "cu_seqlens_q is NULL");
    REFUSED(bad.lengths = NULL, "lengths is NULL");
    REFUSED(bad.block_table = NULL, "block_table is NULL");
    REFUSED(bad.cu_q_local = NULL, "cu_q_local is NULL");
    REFUSED(bad.seqused_k = NULL, "seqused_k is NULL");
    REFUSED(bad.local_table = NULL, "local_table is NULL");
    REFUSED(bad.local_table = (void *)(memory + 6146), "local_table is not aligned");
    REFUSED(bad.seqused_k = (void *)(memory + 4224), "cu_q_local and seqused_k overlap");
    REFUSED(bad.local_table = (void *)(memory + 2048), "block_table and local_table overlap");
    REFUSED(bad.virtual_count = (void *)(memory + 1024), "lengths and virtual_count overlap");
    REFUSED(bad.flags = (void *)(memory + 6144), "local_table and flags overlap");
    REFUSED(bad.struct_size = 0, "struct_size");
#undef REFUSED
    FLW_EXPECT(bed,
               fallow_attention_local_attention(NULL, &good, stream) == FALLOW_INVALID_ARGUMENT,
               "NULL kernels");
    FLW_EXPECT(bed, fallow_attention_local_attention_query(&good, NULL) == FALLOW_INVALID_ARGUMENT,
               "NULL need");
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(the_example_comes_out),
        FLW_BED_TEST(virtual_requests_are_exact_for_every_shape),
        FLW_BED_TEST(a_short_context_keeps_its_chunk),
        FLW_BED_TEST(empty_requests_and_those_without_queries_have_one_row),
        FLW_BED_TEST(the_tail_of_a_padded_batch_is_neutral),
        FLW_BED_TEST(what_exceeds_the_capacity_is_dropped_and_flagged),
        FLW_BED_TEST(what_is_out_of_bounds_is_flagged_and_defined),
        FLW_BED_TEST(a_graph_takes_count_and_lengths_from_the_device),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
