/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a page table and the lengths of the rows, as written by three calls (page_table,
 * concat_pages, verify_pages): the expected values, and the proof that a call wrote exactly these.
 * Does not: compute the rows; each test has an oracle for that. */
#ifndef FLW_TESTS_KERNEL_PAGE_ROWS_H
#define FLW_TESTS_KERNEL_PAGE_ROWS_H

#include "kernel/bed.h"

/* The expected outputs of a call, in this order: table, cache_seqlens, cu_k, max_length. */
struct flw_page_rows {
    int64_t rows, cols;
    int32_t *table;         /* [rows, cols] */
    int32_t *cache_seqlens; /* [rows] */
    int32_t *cu;            /* [rows + 1] */
    int32_t longest, flags;
};

enum {
    FLW_PAGE_OUTPUTS = 4
};

/* All zero; the arrays are the caller's to finish. */
void flw_page_rows_init(struct flw_page_rows *want, int64_t rows, int64_t cols);
void flw_page_rows_finish(struct flw_page_rows *want);

/* An oracle begins, with no more columns than there is room for, fills `table`, and gives the lengths in
 * order of rows. */
void flw_page_rows_begin(struct flw_page_rows *want, int64_t cols);
void flw_page_rows_add(struct flw_page_rows *want, int64_t row, int64_t length);

/* Prove that `step` writes the expected outputs, flags included. */
void flw_page_rows_prove(struct flw_bed *bed, const struct flw_page_rows *want,
                         const struct flw_bed_step *step, const struct flw_bed_step *larger,
                         const struct flw_bed_step *smaller, const int32_t *flags);

/* The call in a graph. A check replays it and compares the outputs. */
struct flw_page_graph {
    struct flw_bed_step step;
    struct flw_bed_graph *graph;
    void *outputs[FLW_PAGE_OUTPUTS]; /* on the device */
    void *out[FLW_PAGE_OUTPUTS];     /* on the host */
};

void flw_page_graph_init(struct flw_bed *bed, struct flw_page_graph *graph,
                         const struct flw_bed_step *step);
void flw_page_graph_check(struct flw_bed *bed, struct flw_page_graph *graph,
                          const struct flw_page_rows *want);
void flw_page_graph_finish(struct flw_page_graph *graph);

#endif
