/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/attention.h"
#include "kernel/page_rows.h"

FLW_MODULE(concat_pages, fallow_attention_concat_pages, fallow_concat_pages, FLW_IN(first),
           FLW_IN(first_lengths), FLW_IN(second), FLW_IN_MAYBE(second_lengths),
           FLW_IN_MAYBE(valid_count), FLW_PAGE_OUTPUTS, FLW_COUNT(batch, 0, 65536),
           FLW_COUNT(repeat, 0, 1 << 20), FLW_COUNT(first_cols, 0, 1 << 30),
           FLW_COUNT(second_cols, 0, 1 << 30), FLW_COUNT(cols, 1, 1 << 30),
           FLW_COUNT(first_ld, 8, INT64_MAX), FLW_COUNT(second_ld, 4, INT64_MAX),
           FLW_COUNT(ld, 12, INT64_MAX), FLW_DTYPE(second_dtype, FLW_INTEGERS), FLW_FLAG(bounded))

struct fixture {
    struct flw_call call;
    fallow_concat_pages_params params;
    int32_t *first, *first_lengths; /* [batch, first_ld], [batch] */
    int64_t *second;                /* [rows, second_ld] */
    int32_t *second_lengths;        /* [rows], or NULL */
    int32_t valid;
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
                fixture->second_lengths != NULL ? fixture->second_lengths[m] : params->second_cols;
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

static struct fixture *make(struct flw_bed *bed, int32_t batch, int32_t repeat, int32_t first_cols,
                            int32_t second_cols, int32_t first_ld)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    struct flw_call *call = &fixture->call;
    fallow_concat_pages_params *params = &fixture->params;
    flw_call_init(bed, call, concat_pages(), params);
    params->batch = batch;
    params->repeat = repeat;
    params->first_cols = first_cols;
    params->second_cols = second_cols;
    params->first_ld = first_ld;
    params->second_ld = second_cols + 1;
    params->cols = first_cols + second_cols;
    params->fill = 3;
    fixture->valid = batch;
    flw_page_rows_init(bed, &fixture->want, batch * repeat, params->cols);
    size_t rows = (size_t)fixture->want.rows;
    if (first_cols > 0) {
        fixture->first = flw_call_draw(call, "first", (size_t)(batch * first_ld), 0);
        fixture->first_lengths =
            flw_call_draw(call, "first_lengths", (size_t)batch, first_cols + 1);
    }
    fixture->second = flw_call_draw_typed(call, "second", rows * (size_t)params->second_ld,
                                          &params->second_dtype, 0);
    fixture->second_lengths = flw_call_draw(call, "second_lengths", rows, second_cols + 1);
    flw_call_bind(call, "valid_count", &fixture->valid, 1, 4);
    return fixture;
}

/* Prove a case in full mode; the flags are `flags`, or any if they are -1. */
static void check(struct fixture *fixture, int32_t flags)
{
    expect(fixture);
    flw_page_rows_prove(&fixture->call, &fixture->want, flags);
}

FLW_TEST(rows_of_two_sources_are_exact)
{
    static const int32_t batches[] = {0, 1, 2, 7, 64};
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
        for (int32_t repeat = 1; repeat <= 8; repeat *= 2) {
            struct fixture *fixture = make(bed, batches[b], repeat, 61, repeat, 64);
            fixture->params.second_dtype = repeat == 2 ? FALLOW_I64 : FALLOW_I32;
            check(fixture, 0);
        }
    }
}

FLW_TEST(a_long_prefix_is_exact)
{
    struct fixture *fixture = make(bed, 2, 4, 131072, 4, 131072); /* rows at 16 bytes */
    fixture->first_lengths[0] = 131072;
    check(fixture, 0);
}

/* [batch top_k, steps] of out_cache_loc, with rows longer than the steps. */
FLW_TEST(the_table_of_draft_decoding_is_its_cache_locations)
{
    for (int32_t valid = 0; valid <= 5; valid++) {
        struct fixture *fixture = make(bed, 5, 4, 0, 6, 3);
        fixture->params.second_dtype = FALLOW_I64;
        fixture->second_lengths = NULL;
        flw_call_omit(&fixture->call, "second_lengths");
        fixture->valid = valid;
        fixture->params.pad_len = valid % 2;
        check(fixture, 0);
        for (int m = 0; m < valid * 4; m++) {
            FLW_EXPECT(bed, fixture->want.cu[m + 1] == 6 * (m + 1), "row %d has all steps", m);
        }
    }
}

FLW_TEST(pads_have_a_length_of_their_own_and_rows_of_fill)
{
    for (int32_t valid = -1; valid <= 9; valid++) {
        struct fixture *fixture = make(bed, 8, 3, 20, 3, 23);
        fixture->valid = valid;
        fixture->params.pad_len = valid & 1;
        check(fixture, 0);
    }
}

FLW_TEST(values_out_of_bounds_are_flagged_and_defined)
{
    struct fixture *fixture = make(bed, 3, 2, 10, 4, 13);
    int64_t *value = fixture->second + 3 * fixture->params.second_ld;
    int32_t *lengths = fixture->first_lengths;
    fixture->params.second_dtype = FALLOW_I64;
    check(fixture, 0);
    lengths[1] = INT32_MIN;
    check(fixture, FALLOW_FLAG_NEGATIVE);
    lengths[1] = 11;
    check(fixture, FALLOW_FLAG_CLAMPED);
    lengths[1] = 0;
    fixture->second_lengths[3] = -1;
    check(fixture, FALLOW_FLAG_NEGATIVE);
    fixture->second_lengths[3] = INT32_MAX;
    check(fixture, FALLOW_FLAG_CLAMPED);
    fixture->second_lengths[3] = 4;
    *value = (int64_t)1 << 31;
    check(fixture, FALLOW_FLAG_INDEX);
    *value = 0;
    fixture->params.cols = 9;
    lengths[0] = lengths[1] = lengths[2] = 8;
    check(fixture, FALLOW_FLAG_CLAMPED);
    fixture->params.cols = 1;
    check(fixture, FALLOW_FLAG_CLAMPED);
}

FLW_TEST(columns_that_are_not_declared_keep_their_values)
{
    for (int bounded = 0; bounded < 2; bounded++) {
        struct fixture *fixture = make(bed, 3, 4, 23, 4, 26);
        fixture->params.bounded = (uint8_t)bounded;
        fixture->params.ld = 32;
        fixture->params.pad_len = 1;
        fixture->valid = 2;
        expect(fixture);
        flw_page_rows_run(&fixture->call, &fixture->want, 32, bounded);
    }
}

FLW_TEST(a_graph_takes_rows_and_lengths_from_the_device)
{
    struct fixture *fixture = make(bed, 16, 4, 50, 4, 53);
    flw_call_capture(&fixture->call);
    for (fixture->valid = 16; fixture->valid >= 0; fixture->valid -= 4) {
        for (int m = 0; m < 64; m++) {
            bool is_valid = m < fixture->valid * 4;
            fixture->first_lengths[m / 4] = is_valid ? (int32_t)flw_bed_random_below(bed, 51) : -1;
            fixture->second_lengths[m] = is_valid ? (int32_t)flw_bed_random_below(bed, 5) : 999;
        }
        expect(fixture);
        flw_page_rows_replay(&fixture->call, &fixture->want);
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = make(bed, 2, 3, 8, 4, 8);
    FLW_CALL_REFUSE(&fixture->call, "batch=65536 repeat=17: batch x repeat",
                    "first_ld=9223372036854775807: first", "ld=9223372036854775807: page_table");
    fallow_workspace_need need = flw_call_need(&fixture->call);
    FLW_EXPECT(bed, need.launch_count == 1, "one launch");
    FLW_EXPECT(bed, need.write_bytes == 6 * 12 * 4 + 6 * 4 + 7 * 4 + 4, "write_bytes");
    FLW_EXPECT(bed, need.read_bytes == 2 * 9 * 4 + 6 * 5 * 4, "read_bytes");
}
