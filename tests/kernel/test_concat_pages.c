/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/attention.h"
#include "kernel/page_rows.h"

#define FILL 3

/* Inputs of a call on the host, and the expected outputs. */
struct fixture {
    fallow_concat_pages_params params;
    int32_t *first, *first_lengths; /* [batch, first_ld], [batch] */
    int64_t *second;                /* [rows, second_ld] */
    int32_t *second_lengths;        /* [rows] */
    int32_t valid;
    bool has_second_lengths;
    struct flw_page_rows want;
};

/* An independent oracle: columns are appended until a source, or the row, ends. */
static void expect(struct fixture *fixture)
{
    const fallow_concat_pages_params *params = &fixture->params;
    struct flw_page_rows *want = &fixture->want;
    flw_page_rows_begin(want, params->cols);
    for (int64_t m = 0; m < want->rows; m++) {
        int32_t *row = want->table + m * params->cols, used = 0, length = params->pad_len;
        if (m < (int64_t)fixture->valid * params->repeat) {
            int64_t r = m / params->repeat;
            int32_t a = params->first_cols > 0 ? fixture->first_lengths[r] : 0, i = 0;
            int32_t b =
                fixture->has_second_lengths ? fixture->second_lengths[m] : params->second_cols;
            want->flags |= a < 0 || b < 0 ? FALLOW_FLAG_NEGATIVE : 0;
            for (i = 0; i < a && i < params->first_cols && used < params->cols; i++) {
                row[used++] = fixture->first[r * params->first_ld + i];
            }
            want->flags |= i < a ? FALLOW_FLAG_CLAMPED : 0;
            for (i = 0; i < b && i < params->second_cols && used < params->cols; i++) {
                int64_t value = fixture->second[m * params->second_ld + i];
                bool fits = value == (int32_t)value;
                want->flags |= fits ? 0 : FALLOW_FLAG_INDEX;
                row[used++] = fits ? (int32_t)value : params->fill;
            }
            want->flags |= i < b ? FALLOW_FLAG_CLAMPED : 0;
            length = used;
        }
        while (used < params->cols) {
            row[used++] = params->fill;
        }
        flw_page_rows_add(want, m, length);
    }
}

static void make(struct flw_bed *bed, struct fixture *fixture, int32_t batch, int32_t repeat,
                 int32_t first_cols, int32_t second_cols)
{
    memset(fixture, 0, sizeof *fixture);
    fallow_concat_pages_params *params = &fixture->params;
    fallow_concat_pages_params_init(params);
    params->batch = batch;
    params->repeat = repeat;
    params->first_cols = first_cols;
    params->second_cols = second_cols;
    params->first_ld = first_cols + 3;
    params->second_ld = second_cols + 1;
    params->cols = first_cols + second_cols;
    params->fill = FILL;
    fixture->valid = batch;
    fixture->has_second_lengths = true;
    flw_page_rows_init(&fixture->want, batch * repeat, params->cols);
    size_t rows = (size_t)fixture->want.rows, first_count = (size_t)(batch * params->first_ld);
    size_t second_count = rows * (size_t)params->second_ld;
    fixture->first = flw_bed_host(first_count * 4);
    fixture->first_lengths = flw_bed_host((size_t)batch * 4);
    fixture->second = flw_bed_host(second_count * 8);
    fixture->second_lengths = flw_bed_host(rows * 4);
    for (size_t i = 0; i < first_count; i++) {
        fixture->first[i] = (int32_t)flw_bed_random(bed);
    }
    for (size_t i = 0; i < second_count; i++) {
        fixture->second[i] = (int32_t)flw_bed_random(bed);
    }
    for (int32_t r = 0; r < batch; r++) {
        fixture->first_lengths[r] = (int32_t)flw_bed_random_below(bed, first_cols + 1);
    }
    for (size_t m = 0; m < rows; m++) {
        fixture->second_lengths[m] = (int32_t)flw_bed_random_below(bed, second_cols + 1);
    }
}

static void drop(struct fixture *fixture)
{
    free(fixture->first);
    free(fixture->first_lengths);
    free(fixture->second);
    free(fixture->second_lengths);
    flw_page_rows_finish(&fixture->want);
}

static void give_inputs(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_concat_pages_params *params = &fixture->params;
    size_t rows = (size_t)fixture->want.rows;
    if (params->first_cols > 0) {
        params->first = flw_bed_upload(bed, "first", fixture->first,
                                       (size_t)(params->batch * params->first_ld) * 4);
        params->first_lengths =
            flw_bed_upload(bed, "first_lengths", fixture->first_lengths, (size_t)params->batch * 4);
    }
    params->second = flw_bed_upload_ints(bed, "second", fixture->second,
                                         rows * (size_t)params->second_ld, params->second_dtype);
    params->second_lengths =
        fixture->has_second_lengths
            ? flw_bed_upload(bed, "second_lengths", fixture->second_lengths, rows * 4)
            : NULL;
    params->valid_count = flw_bed_upload(bed, "valid_count", &fixture->valid, 4);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_concat_pages_params params = ((struct fixture *)inputs)->params;
    params.page_table = outputs[0];
    params.cache_seqlens = outputs[1];
    params.cu_k = outputs[2];
    params.max_length = outputs[3];
    FLW_EXPECT_OK(
        bed, fallow_attention_concat_pages(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_concat_pages_query(&fixture->params, &need),
                    &need);
    return step;
}

/* Prove a case in full mode, including the flags. */
static void check(struct flw_bed *bed, struct fixture *fixture)
{
    struct fixture larger, smaller;
    make(bed, &larger, (int32_t)fixture->want.rows + 3, 1, fixture->params.cols, 6);
    make(bed, &smaller, 2, 2, 3, 1);
    fixture->params.flags = flw_bed_flags(bed);
    give_inputs(bed, fixture);
    give_inputs(bed, &larger);
    give_inputs(bed, &smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, &larger),
                        after = step_of(bed, &smaller);
    expect(fixture);
    flw_page_rows_prove(bed, &fixture->want, &step, &before, &after, fixture->params.flags);
    drop(&larger);
    drop(&smaller);
}

static void rows_of_two_sources_are_exact(struct flw_bed *bed)
{
    static const int32_t batches[] = {0, 1, 2, 7, 64};
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        for (int32_t repeat = 1; repeat <= 8; repeat *= 2) {
            struct fixture fixture;
            make(bed, &fixture, batches[b], repeat, 61, repeat);
            fixture.params.second_dtype = repeat == 2 ? FALLOW_I64 : FALLOW_I32;
            check(bed, &fixture);
            FLW_EXPECT(bed, fixture.want.flags == 0, "flags without a cause");
            drop(&fixture);
        }
    }
}

static void a_long_prefix_is_exact(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 2, 4, 131072, 4);
    fixture.params.first_ld = 131072; /* rows at 16 bytes */
    fixture.first_lengths[0] = 131072;
    check(bed, &fixture);
    drop(&fixture);
}

/* [batch top_k, steps] of out_cache_loc, with rows longer than the steps. */
static void the_table_of_draft_decoding_is_its_cache_locations(struct flw_bed *bed)
{
    for (int32_t valid = 0; valid <= 5; valid++) {
        struct fixture fixture;
        make(bed, &fixture, 5, 4, 0, 6);
        fixture.params.second_dtype = FALLOW_I64;
        fixture.has_second_lengths = false;
        fixture.valid = valid;
        fixture.params.pad_len = valid % 2;
        check(bed, &fixture);
        for (int m = 0; m < valid * 4; m++) {
            FLW_EXPECT(bed, fixture.want.cu[m + 1] == 6 * (m + 1), "row %d has all steps", m);
        }
        drop(&fixture);
    }
}

static void pads_have_a_length_of_their_own_and_rows_of_fill(struct flw_bed *bed)
{
    for (int32_t valid = -1; valid <= 9; valid++) {
        struct fixture fixture;
        make(bed, &fixture, 8, 3, 20, 3);
        fixture.valid = valid;
        fixture.params.pad_len = valid & 1;
        check(bed, &fixture);
        drop(&fixture);
    }
}

static void what_is_out_of_bounds_is_flagged_and_defined(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 3, 2, 10, 4);
    fixture.params.second_dtype = FALLOW_I64;
#define FLAGGED(change, bits)                                                  \
    change;                                                                    \
    check(bed, &fixture);                                                      \
    FLW_EXPECT(bed, fixture.want.flags == (bits), "flags 0x%x after " #change, \
               (unsigned)fixture.want.flags)
    FLAGGED((void)0, 0);
    FLAGGED(fixture.first_lengths[1] = INT32_MIN, FALLOW_FLAG_NEGATIVE);
    FLAGGED(fixture.first_lengths[1] = 11, FALLOW_FLAG_CLAMPED);
    FLAGGED((fixture.first_lengths[1] = 0, fixture.second_lengths[3] = -1), FALLOW_FLAG_NEGATIVE);
    FLAGGED(fixture.second_lengths[3] = INT32_MAX, FALLOW_FLAG_CLAMPED);
    FLAGGED(
        (fixture.second_lengths[3] = 4, fixture.second[3 * fixture.params.second_ld] = 1ll << 31),
        FALLOW_FLAG_INDEX);
    FLAGGED((fixture.second[3 * fixture.params.second_ld] = 0, fixture.params.cols = 9,
             fixture.first_lengths[0] = fixture.first_lengths[1] = fixture.first_lengths[2] = 8),
            FALLOW_FLAG_CLAMPED);
    FLAGGED(fixture.params.cols = 1, FALLOW_FLAG_CLAMPED);
#undef FLAGGED
    drop(&fixture);
}

static void columns_that_are_not_declared_stay_as_they_were(struct flw_bed *bed)
{
    enum {
        BATCH = 3,
        REPEAT = 4,
        ROWS = 12,
        COLS = 27,
        LD = 32,
        MARK = -77
    };
    for (int bounded = 0; bounded < 2; bounded++) {
        int32_t before[ROWS * LD], after[ROWS * LD];
        struct fixture fixture;
        make(bed, &fixture, BATCH, REPEAT, COLS - REPEAT, REPEAT);
        fixture.params.bounded = (uint8_t)bounded;
        fixture.params.ld = LD;
        fixture.params.pad_len = 1;
        fixture.valid = BATCH - 1;
        give_inputs(bed, &fixture);
        for (int i = 0; i < ROWS * LD; i++) {
            before[i] = MARK;
        }
        void *table = flw_bed_upload(bed, "page_table", before, sizeof before);
        launch(bed, &fixture, (void *[]){table, NULL, NULL, NULL});
        flw_bed_read(bed, after, table, sizeof before);
        expect(&fixture);
        for (int i = 0; i < ROWS * LD; i++) {
            int m = i / LD, j = i % LD;
            bool declared = j < (bounded ? fixture.want.cache_seqlens[m] : COLS);
            FLW_EXPECT(bed, after[i] == (declared ? fixture.want.table[m * COLS + j] : MARK),
                       "bounded %d: [%d, %d] is %d", bounded, m, j, after[i]);
        }
        drop(&fixture);
    }
}

static void a_graph_takes_rows_and_lengths_from_the_device(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 16, 4, 50, 4);
    give_inputs(bed, &fixture);
    struct flw_bed_step step = step_of(bed, &fixture);
    struct flw_page_graph graph;
    flw_page_graph_init(bed, &graph, &step);
    for (int32_t valid = 16; valid >= 0; valid -= 4) {
        const fallow_concat_pages_params *params = &fixture.params;
        fixture.valid = valid;
        for (int r = 0; r < 16; r++) {
            fixture.first_lengths[r] = r < valid ? (int32_t)flw_bed_random_below(bed, 51) : -1;
        }
        for (int m = 0; m < 64; m++) {
            fixture.second_lengths[m] = m < valid * 4 ? (int32_t)flw_bed_random_below(bed, 5) : 999;
        }
        flw_bed_write(bed, params->first_lengths, fixture.first_lengths, 16 * 4);
        flw_bed_write(bed, params->second_lengths, fixture.second_lengths, 64 * 4);
        flw_bed_write(bed, params->valid_count, &fixture.valid, 4);
        expect(&fixture);
        flw_page_graph_check(bed, &graph, &fixture.want);
    }
    flw_page_graph_finish(&graph);
    drop(&fixture);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_concat_pages_params good, bad;
    fallow_workspace_need need;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    int32_t *memory = flw_bed_buffer(bed, "memory", 8192);
    fallow_concat_pages_params_init(&good);
    good.batch = 2;
    good.repeat = 3;
    good.first_cols = 8;
    good.second_cols = 4;
    good.cols = 12;
    good.first = memory;
    good.first_lengths = memory + 64;
    good.second = memory + 128;
    good.second_lengths = memory + 256;
    good.page_table = memory + 512;
#define REFUSED(change, word)                                                     \
    bad = good;                                                                   \
    change;                                                                       \
    FLW_EXPECT_REFUSED(bed, fallow_attention_concat_pages(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.batch = -1, "batch");
    REFUSED(bad.batch = 65537, "batch");
    REFUSED(bad.repeat = -1, "repeat");
    REFUSED((bad.batch = 65536, bad.repeat = 17), "batch x repeat");
    REFUSED(bad.first_cols = -1, "first_cols");
    REFUSED(bad.second_cols = -1, "second_cols");
    REFUSED(bad.cols = 0, "cols");
    REFUSED(bad.first_ld = 7, "first_ld");
    REFUSED(bad.second_ld = 3, "second_ld");
    REFUSED(bad.first_ld = INT64_MAX, "first");
    REFUSED(bad.ld = 11, "ld");
    REFUSED(bad.pad_len = -1, "pad_len");
    REFUSED(bad.bounded = 9, "bounded");
    REFUSED(bad.second_dtype = FALLOW_F16, "second_dtype");
    REFUSED(bad.first = NULL, "first is NULL");
    REFUSED(bad.first_lengths = NULL, "first_lengths is NULL");
    REFUSED(bad.second = NULL, "second is NULL");
    REFUSED(bad.page_table = NULL, "page_table is NULL");
    REFUSED(bad.second = (char *)memory + 514, "second is not aligned");
    REFUSED(bad.page_table = memory + 15, "first and page_table overlap");
    REFUSED(bad.cache_seqlens = memory + 583, "page_table and cache_seqlens overlap");
    REFUSED(bad.struct_size = 0, "struct_size");
#undef REFUSED
    FLW_EXPECT(bed, fallow_attention_concat_pages(NULL, &good, stream) == FALLOW_INVALID_ARGUMENT,
               "NULL kernels");
    fallow_workspace_need_init(&need);
    FLW_EXPECT(bed, fallow_attention_concat_pages_query(&good, &need) == FALLOW_OK, "query");
    FLW_EXPECT(bed, need.launch_count == 1, "one launch");
    FLW_EXPECT(bed, need.write_bytes == 6 * 12 * 4 + 6 * 4 + 7 * 4 + 4, "write_bytes");
    FLW_EXPECT(bed, need.read_bytes == 2 * 9 * 4 + 6 * 5 * 4, "read_bytes");
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(rows_of_two_sources_are_exact),
        FLW_BED_TEST(a_long_prefix_is_exact),
        FLW_BED_TEST(the_table_of_draft_decoding_is_its_cache_locations),
        FLW_BED_TEST(pads_have_a_length_of_their_own_and_rows_of_fill),
        FLW_BED_TEST(what_is_out_of_bounds_is_flagged_and_defined),
        FLW_BED_TEST(columns_that_are_not_declared_stay_as_they_were),
        FLW_BED_TEST(a_graph_takes_rows_and_lengths_from_the_device),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
