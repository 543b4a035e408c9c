/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a page table and the lengths of the rows, as written by three calls (page_table,
 * concat_pages, verify_pages): the expected values, and the proof that a call wrote exactly these.
 * Does not: compute the rows; each test has an oracle for that. */
#ifndef FLW_TESTS_KERNEL_PAGE_ROWS_H
#define FLW_TESTS_KERNEL_PAGE_ROWS_H

#include "kernel/call.h"

/* Rows of the parameter table for the outputs. */
#define FLW_PAGE_OUTPUTS                                                    \
    FLW_OUT(page_table), FLW_OUT_MAYBE(cache_seqlens), FLW_OUT_MAYBE(cu_k), \
        FLW_OUT_MAYBE(max_length), FLW_OUT_MAYBE(flags), FLW_FLAG(pad_len)

struct flw_page_rows {
    int64_t rows, cols;
    int32_t *table;         /* [rows, cols] */
    int32_t *cache_seqlens; /* [rows] */
    int32_t *cu;            /* [rows + 1] */
    int32_t longest, flags;
};

/* All zero, with memory of the test's. */
void flw_page_rows_init(struct flw_bed *bed, struct flw_page_rows *want, int64_t rows,
                        int64_t cols);

/* An oracle begins, with no more columns than there is room for, fills `table`, and adds the
 * lengths in order of rows. */
void flw_page_rows_begin(struct flw_page_rows *want, int64_t cols);
void flw_page_rows_add(struct flw_page_rows *want, int64_t row, int64_t length);

/* Prove, or replay, that a call writes the expected outputs, flags included. `flags` are those that the
 * test expects of the oracle, or -1 for any. */
void flw_page_rows_prove(struct flw_call *call, const struct flw_page_rows *want, int32_t flags);
void flw_page_rows_replay(struct flw_call *call, const struct flw_page_rows *want);
/* Run the call with rows `ld` apart. It writes all columns of a row, or, if page_size is not 0, the
 * pages of the row's length; all other bytes keep their values. */
void flw_page_rows_run(struct flw_call *call, const struct flw_page_rows *want, int64_t ld,
                       int32_t page_size);

#endif
