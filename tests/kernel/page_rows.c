/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/page_rows.h"

#include <stdlib.h>

enum {
    TABLE,
    CACHE_SEQLENS,
    CU_K,
    MAX_LENGTH
};

void flw_page_rows_init(struct flw_page_rows *want, int64_t rows, int64_t cols)
{
    *want = (struct flw_page_rows){.rows = rows, .cols = cols};
    want->table = flw_bed_host((size_t)(rows * cols) * 4);
    want->cache_seqlens = flw_bed_host((size_t)rows * 4);
    want->cu = flw_bed_host((size_t)(rows + 1) * 4);
}

void flw_page_rows_finish(struct flw_page_rows *want)
{
    free(want->table);
    free(want->cache_seqlens);
    free(want->cu);
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

static void compare(struct flw_bed *bed, const struct flw_page_rows *want,
                    void *const out[FLW_PAGE_OUTPUTS])
{
    const int32_t *table = out[TABLE], *lengths = out[CACHE_SEQLENS], *cu = out[CU_K];
    int32_t longest = *(const int32_t *)out[MAX_LENGTH];
    for (int64_t i = 0; i < want->rows * want->cols; i++) {
        if (table[i] != want->table[i]) {
            FLW_EXPECT(bed, false, "page_table[%lld, %lld] of %lld x %lld is %d, expected %d",
                       (long long)(i / want->cols), (long long)(i % want->cols),
                       (long long)want->rows, (long long)want->cols, table[i], want->table[i]);
            break;
        }
    }
    for (int64_t r = 0; r < want->rows; r++) {
        FLW_EXPECT(bed, lengths[r] == want->cache_seqlens[r],
                   "cache_seqlens[%lld] is %d, expected %d", (long long)r, lengths[r],
                   want->cache_seqlens[r]);
    }
    for (int64_t r = 0; r <= want->rows; r++) {
        FLW_EXPECT(bed, cu[r] == want->cu[r], "cu_k[%lld] is %d, expected %d", (long long)r, cu[r],
                   want->cu[r]);
    }
    FLW_EXPECT(bed, longest == want->longest, "max_length is %d, expected %d", longest,
               want->longest);
}

static void make_out(const struct flw_bed_step *step, void *out[FLW_PAGE_OUTPUTS])
{
    for (int i = 0; i < FLW_PAGE_OUTPUTS; i++) {
        out[i] = flw_bed_host(step->buffer_bytes[i]);
    }
}

static void free_out(void *const out[FLW_PAGE_OUTPUTS])
{
    for (int i = 0; i < FLW_PAGE_OUTPUTS; i++) {
        free(out[i]);
    }
}

void flw_page_rows_prove(struct flw_bed *bed, const struct flw_page_rows *want,
                         const struct flw_bed_step *step, const struct flw_bed_step *larger,
                         const struct flw_bed_step *smaller, const int32_t *flags)
{
    void *out[FLW_PAGE_OUTPUTS];
    make_out(step, out);
    flw_bed_prove(bed, step, larger, smaller, out);
    int32_t written = flw_bed_read_flags(bed, flags);
    compare(bed, want, out);
    FLW_EXPECT(bed, written == want->flags, "flags are 0x%x, expected 0x%x", (unsigned)written,
               (unsigned)want->flags);
    free_out(out);
}

void flw_page_graph_init(struct flw_bed *bed, struct flw_page_graph *graph,
                         const struct flw_bed_step *step)
{
    graph->step = *step;
    make_out(step, graph->out);
    for (int i = 0; i < FLW_PAGE_OUTPUTS; i++) {
        graph->outputs[i] = flw_bed_buffer(bed, step->names[i], step->buffer_bytes[i]);
    }
    graph->graph = flw_bed_capture(bed, step->launch, step->inputs, graph->outputs);
}

void flw_page_graph_finish(struct flw_page_graph *graph)
{
    free_out(graph->out);
}

void flw_page_graph_check(struct flw_bed *bed, struct flw_page_graph *graph,
                          const struct flw_page_rows *want)
{
    flw_bed_replay(bed, graph->graph);
    for (int i = 0; i < FLW_PAGE_OUTPUTS; i++) {
        flw_bed_read(bed, graph->out[i], graph->outputs[i], graph->step.buffer_bytes[i]);
    }
    compare(bed, want, graph->out);
}
