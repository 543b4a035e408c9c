/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the page table's values: exact for every shape, pads, windows and inputs out of bounds.
 */
#include "common/integer.h"
#include "kernel/page_table_fixture.h"

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

/* In the published chain, pads have length 1 and point at request 0 with zero slots. */
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
    FLW_EXPECT(bed, fixture.want.table[4 * 8] == 0 && fixture.want.cu[6] == fixture.want.cu[4] + 2,
               "pads of request 0");
    drop(&fixture);
}

/* The table is wider than the source, and the last page is cut: the last row ends with
 * the buffer. */
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
        FLW_EXPECT(bed, fixture.want.flags == FALLOW_FLAG_CLAMPED, "CLAMPED and nothing else");
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
        FLW_EXPECT(bed,
                   fixture.want.flags == (page > 1 ? 0 : fixture.want.flags & FALLOW_FLAG_CLAMPED),
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
    FLW_EXPECT(bed, fixture.want.flags == 0, "flags without a cause");
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
        FLW_EXPECT(bed, (fixture.want.flags & FALLOW_FLAG_INDEX) == 0, "INDEX without a cause");
        for (int r = 0; r < 9; r++) {
            fixture.lengths[r] = 30;
            fixture.requests[r] = r % 5;
        }
        fixture.slots[0] = 777;
        fixture.slots[480] = -1;
        fixture.swa[fixture.slots[960]] = -5;
        check(bed, &fixture);
        FLW_EXPECT(bed, (fixture.want.flags & FALLOW_FLAG_INDEX) != 0, "no INDEX");
        drop(&fixture);
    }
}

static void what_is_out_of_bounds_is_flagged_and_defined(struct flw_bed *bed)
{
    struct fixture fixture;
    make(bed, &fixture, 4, 10, 2, 30);
    fixture.params.lengths_dtype = FALLOW_I64;
#define FLAGGED(change, bits)                                                  \
    change;                                                                    \
    check(bed, &fixture);                                                      \
    FLW_EXPECT(bed, fixture.want.flags == (bits), "flags 0x%x after " #change, \
               (unsigned)fixture.want.flags)
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
    FLW_EXPECT(bed,
               fixture.want.flags == FALLOW_FLAG_OVERFLOW && fixture.want.cu[17000] == INT32_MAX,
               "no OVERFLOW");
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
        FLW_BED_TEST(a_quotient_by_multiplication_is_exact),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
