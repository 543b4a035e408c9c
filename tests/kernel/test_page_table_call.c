/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the page table's call: untouched memory, graphs, the query, refused arguments. */
#include "kernel/page_table_fixture.h"

/* Rows with gaps, and bounded rows: bytes that are not declared keep their values. */
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
            int32_t pages = (fixture.want.cache_seqlens[r] + page - 1) / page;
            for (int j = 0; j < (r == ROWS - 1 ? COLS : LD); j++) {
                bool declared = j < (bounded ? pages : COLS);
                FLW_EXPECT(
                    bed, after[r * LD + j] == (declared ? fixture.want.table[r * COLS + j] : MARK),
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
        size_t pages = (size_t)(fixture.want.cache_seqlens[r] + 1) / 2;
        flw_bed_read(bed, row, table + (ptrdiff_t)r * 50, pages * 4); /* unwritten: a violation */
        FLW_EXPECT(bed, memcmp(row, fixture.want.table + (ptrdiff_t)r * 50, pages * 4) == 0,
                   "row %d", r);
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
    struct flw_page_graph graph;
    make(bed, &fixture, ROWS, COLS, 3, 130);
    fixture.params.pad_len = 1;
    give_inputs(bed, &fixture);
    struct flw_bed_step step = step_of(bed, &fixture);
    flw_page_graph_init(bed, &graph, &step);
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
        flw_bed_write(bed, params->delta, &fixture.delta, 4);
        flw_bed_write(bed, params->valid_count, &fixture.valid, 4);
        expect(&fixture);
        flw_page_graph_check(bed, &graph, &fixture.want);
    }
    flw_page_graph_finish(&graph);
    drop(&fixture);
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
        FLW_BED_TEST(columns_that_are_not_declared_stay_as_they_were),
        FLW_BED_TEST(bounded_rows_are_written_in_full_up_to_their_length),
        FLW_BED_TEST(a_graph_takes_rows_and_lengths_from_the_device),
        FLW_BED_TEST(what_a_call_moves_is_said_by_its_query),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
