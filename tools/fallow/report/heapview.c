/* SPDX-License-Identifier: Apache-2.0 */
#include "report/heapview.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/compare.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

size_t flw_analysis_size_bin(uint64_t bytes)
{
    size_t bin = bytes <= 1 ? 0 : flw_log2_floor(bytes - 1) + 1;
    return flw_min(bin, FLW_ANALYSIS_SIZE_BINS - 1);
}

struct flw_analysis_cut flw_analysis_cut(uint64_t *values, size_t count, size_t most)
{
    struct flw_analysis_cut cut = {.least = 0, .tie_count = SIZE_MAX};
    qsort(values, count, sizeof *values, flw_compare_u64);
    if (count > most) {
        cut = (struct flw_analysis_cut){.least = values[count - most], .tie_count = 0};
        for (size_t i = count - most; i < count && values[i] == cut.least; i++) {
            cut.tie_count++;
        }
    }
    return cut;
}

/* ---- live blocks ---- */

void flw_heapview_add(struct flw_heapview *view, uint32_t block)
{
    FLW_HOST_ADD(view->fresh, view->fresh_count, view->fresh_capacity, block);
}

void flw_heapview_make_segments(struct flw_heapview *view, size_t count)
{
    FLW_HOST_GROW(view->segments, view->segment_capacity, count);
    view->segment_count = count;
}

static int compare_blocks(const void *a, const void *b)
{
    const struct flw_heapview_block *x = a, *y = b;
    int order = flw_compare_u64(&x->address, &y->address);
    return order != 0 ? order : flw_compare_u32(&x->block, &y->block);
}

/* Drop freed blocks, then merge the new ones in from the end. */
void flw_heapview_look(struct flw_heapview *view)
{
    FLW_LOCAL struct flw_heapview_block *young = flw_host_alloc(view->fresh_count, sizeof *young);
    size_t young_count = 0;
    for (size_t i = 0; i < view->fresh_count; i++) {
        uint64_t address = view->addresses[view->fresh[i]];
        if (address != 0) {
            young[young_count++] =
                (struct flw_heapview_block){.address = address, .block = view->fresh[i]};
        }
    }
    qsort(young, young_count, sizeof *young, compare_blocks);
    size_t old_count = 0;
    for (size_t i = 0; i < view->block_count; i++) {
        if (view->addresses[view->blocks[i].block] != 0) {
            view->blocks[old_count++] = view->blocks[i];
        }
    }
    view->block_count = old_count + young_count;
    FLW_HOST_GROW(view->blocks, view->block_capacity, view->block_count);
    for (size_t at = view->block_count; young_count > 0;) {
        bool is_old = old_count > 0 &&
                      compare_blocks(&view->blocks[old_count - 1], &young[young_count - 1]) > 0;
        view->blocks[--at] = is_old ? view->blocks[--old_count] : young[--young_count];
    }
    view->fresh_count = 0;
}

static uint64_t taken_bytes(const struct flw_heapview *view, uint32_t block)
{
    uint64_t requested_bytes = view->trace->blocks[block].size_bytes;
    return view->block_bytes == NULL ? requested_bytes
                                     : flw_max(view->block_bytes[block], requested_bytes);
}

/* ---- holes ---- */

void flw_heapview_each_hole(const struct flw_heapview *view,
                            void (*take)(void *context, uint64_t address, uint64_t bytes),
                            void *context)
{
    uint64_t taken_end = 0; /* end of the blocks so far */
    size_t next = 0;
    for (size_t i = 0; i < view->segment_count; i++) {
        uint64_t at = flw_max(view->segments[i].address, taken_end);
        uint64_t end = view->segments[i].address + view->segments[i].bytes;
        for (; next < view->block_count && view->blocks[next].address < end; next++) {
            const struct flw_heapview_block *block = &view->blocks[next];
            if (block->address > at) {
                take(context, at, block->address - at);
            }
            taken_end = flw_max(taken_end, block->address + taken_bytes(view, block->block));
            at = flw_max(at, taken_end);
        }
        if (at < end) {
            take(context, at, end - at);
        }
    }
}

static void add_hole(void *context, uint64_t address, uint64_t bytes)
{
    struct flw_analysis_holes *holes = context;
    (void)address;
    holes->bytes[flw_analysis_size_bin(bytes)] += bytes;
    holes->total_bytes += bytes;
    holes->largest_bytes = flw_max(holes->largest_bytes, bytes);
    holes->count++;
    holes->square_sum += (double)bytes * (double)bytes;
}

void flw_heapview_measure(const struct flw_heapview *view, struct flw_analysis_holes *out)
{
    *out = (struct flw_analysis_holes){0};
    flw_heapview_each_hole(view, add_hole, out);
}

/* ---- frames ---- */

/* Find the least size of blocks to show. */
static struct flw_analysis_cut find_cut(const struct flw_heapview *view)
{
    FLW_LOCAL uint64_t *sizes = flw_host_alloc(view->block_count, sizeof *sizes);
    for (size_t i = 0; i < view->block_count; i++) {
        sizes[i] = taken_bytes(view, view->blocks[i].block);
    }
    return flw_analysis_cut(sizes, view->block_count, FLW_ANALYSIS_RECTANGLES);
}

static void copy_blocks(const struct flw_heapview *view, struct flw_analysis_frame *frame)
{
    struct flw_analysis_cut cut = find_cut(view);
    size_t count = flw_min(view->block_count, FLW_ANALYSIS_RECTANGLES), copied = 0;
    frame->blocks = flw_host_alloc(count, sizeof *frame->blocks);
    frame->block_count = count;
    frame->left_out_count = view->block_count - count;
    for (size_t i = 0; i < view->block_count; i++) {
        uint32_t block = view->blocks[i].block;
        uint64_t bytes = taken_bytes(view, block);
        if (flw_analysis_cut_keeps(&cut, bytes)) {
            frame->blocks[copied++] = (struct flw_analysis_block){
                .address = view->blocks[i].address,
                .requested_bytes = view->trace->blocks[block].size_bytes,
                .block_bytes = bytes,
                .block = block,
                .stream = view->trace->blocks[block].stream,
                .is_pending = view->pending != NULL && view->pending[block]};
        }
    }
}

void flw_heapview_copy(const struct flw_heapview *view, struct flw_analysis_frame *frame)
{
    size_t count = flw_min(view->segment_count, FLW_ANALYSIS_RECTANGLES);
    frame->segments = flw_host_alloc(count, sizeof *frame->segments);
    frame->segment_count = count;
    frame->left_out_segment_count = view->segment_count - count;
    if (count != 0) {
        memcpy(frame->segments, view->segments, count * sizeof *frame->segments);
    }
    copy_blocks(view, frame);
}

void flw_heapview_finish(struct flw_heapview *view)
{
    flw_host_free(view->blocks);
    flw_host_free(view->fresh);
    flw_host_free(view->segments);
    *view = (struct flw_heapview){0};
}
