/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/page_rows.h"

void flw_page_rows_init(struct flw_bed *bed, struct flw_page_rows *want, int64_t rows, int64_t cols)
{
    *want = (struct flw_page_rows){.rows = rows, .cols = cols};
    want->table = flw_bed_memory(bed, (size_t)(rows * cols) * 4);
    want->cache_seqlens = flw_bed_memory(bed, (size_t)rows * 4);
    want->cu = flw_bed_memory(bed, (size_t)(rows + 1) * 4);
}

void flw_page_rows_begin(struct flw_page_rows *want, int64_t cols)
{
    want->cols = cols;
    want->longest = want->flags = 0;
}

void flw_page_rows_add(struct flw_page_rows *want, int64_t row, int64_t length)
{
    int64_t sum = want->cu[row] + length;
    want->cache_seqlens[row] = (int32_t)length;
    want->longest = length > want->longest ? (int32_t)length : want->longest;
    want->flags |= sum > INT32_MAX ? FALLOW_FLAG_OVERFLOW : 0;
    want->cu[row + 1] = sum > INT32_MAX ? INT32_MAX : (int32_t)sum;
}

static void compare_lengths(struct flw_call *call, const struct flw_page_rows *want)
{
    flw_call_expect(call, "cache_seqlens", want->cache_seqlens);
    flw_call_expect(call, "cu_k", want->cu);
    flw_call_expect(call, "max_length", &want->longest);
}

void flw_page_rows_prove(struct flw_call *call, const struct flw_page_rows *want, int32_t flags)
{
    FLW_EXPECT(call->bed, flags < 0 || want->flags == flags, "the oracle has flags 0x%x, not 0x%x",
               (unsigned)want->flags, (unsigned)flags);
    call->want_flags = want->flags;
    flw_call_prove(call);
    flw_call_expect(call, "page_table", want->table);
    compare_lengths(call, want);
}

void flw_page_rows_replay(struct flw_call *call, const struct flw_page_rows *want)
{
    call->want_flags = want->flags;
    flw_call_replay(call);
    flw_call_expect(call, "page_table", want->table);
    compare_lengths(call, want);
}

void flw_page_rows_run(struct flw_call *call, const struct flw_page_rows *want, int64_t ld,
                       int32_t page_size)
{
    call->want_flags = want->flags;
    flw_call_run(call);
    compare_lengths(call, want);
    const int32_t *table = flw_call_out(call, "page_table");
    for (int64_t i = 0; i < (want->rows - 1) * ld + want->cols; i++) {
        int64_t row = i / ld, column = i % ld, cols = want->cols;
        if (page_size > 0) {
            cols = (want->cache_seqlens[row] + page_size - 1) / page_size;
        }
        int32_t expected = column < cols ? want->table[row * want->cols + column] : 0x5a5a5a5a;
        FLW_EXPECT(call->bed, table[i] == expected, "row %lld, column %lld is %d, expected %d",
                   (long long)row, (long long)column, table[i], expected);
    }
}
