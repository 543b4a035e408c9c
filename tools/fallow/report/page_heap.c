/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the page's data about blocks: the heaviest with their owners, stacks and addresses, the density of the others,
 * the holes, and the heap at moments; and how rows of numbers are written.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "report/heapview.h"
#include "report/owner.h"
#include "report/page.h"
#include "trace/io/jsonwriter.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

#define LISTED       5000 /* blocks that are drawn exactly */
#define MAP_BLOCKS   2000 /* of the heap at one moment, the largest */
#define HOLE_COLUMNS 128
#define DEPTH        96 /* frames of a stack, the innermost */
#define NATIVE       24 /* of these, at most so many outside Python: interpreters call themselves */
#define STACK_BYTES  150000 /* limit of all stacks, and of all names; further stacks are unknown */

/* ---- rows of numbers ---- */

static void write36(FILE *out, uint64_t value)
{
    char digits[16];
    size_t count = 0;
    do {
        digits[count++] = "0123456789abcdefghijklmnopqrstuvwxyz"[value % 36];
        value /= 36;
    } while (value != 0);
    while (count > 0) {
        putc(digits[--count], out);
    }
}

void flw_page_write_rows(struct flw_json_writer *out, const char *key, const uint64_t *numbers,
                         size_t count, size_t width)
{
    flw_json_key(out, key);
    for (size_t i = 0; i < count; i++) {
        fputs(i == 0 ? "\"" : i % width == 0 ? ";" : " ", out->file);
        write36(out->file, numbers[i]);
    }
    fputs(count == 0 ? "\"\"" : "\"", out->file);
}

void flw_page_write_steps(struct flw_json_writer *out, const char *key, const uint64_t *numbers,
                          size_t count)
{
    uint64_t last = 0;
    flw_json_key(out, key);
    putc('"', out->file);
    for (size_t i = 0; i < count; last = numbers[i++]) {
        fputs(i == 0 ? "" : numbers[i] < last ? " -" : " ", out->file);
        write36(out->file, flw_max(numbers[i], last) - flw_min(numbers[i], last));
    }
    putc('"', out->file);
}

/* ---- blocks, their owners and stacks ---- */

/* Things of the trace, numbered from 1 in the order of their first use in the page. */
struct numbering {
    uint32_t *numbers; /* by thing; 0: none yet */
    uint32_t *things;  /* by number less 1 */
    uint32_t count;
};

/* A block that is drawn, and the properties that blocks share. */
struct listed {
    const struct flw_analysis_rectangle *block;
    uint64_t shape[5]; /* requested, taken, stack, owner, stream */
    uint32_t number;   /* of the shape */
};

#define ISLANDS 256

struct stretch {
    uint64_t begin, end;
    double offset; /* bytes of the earlier stretches */
};

struct heap {
    const struct flw_analysis *analysis;
    const struct flw_trace *trace;
    const struct flw_analysis_policy *policy; /* NULL: no policy has addresses */
    struct listed *blocks;                    /* the heaviest first */
    size_t count;
    struct stretch islands[ISLANDS];
    size_t island_count;
    double bytes; /* of all islands */
    struct numbering owners, stacks, frames;
    size_t stack_bytes, name_bytes;
};

static struct numbering begin_numbering(size_t things)
{
    return (struct numbering){.numbers = flw_host_alloc(things, sizeof(uint32_t)),
                              .things = flw_host_alloc(things, sizeof(uint32_t))};
}

static void finish_numbering(struct numbering *numbering)
{
    flw_host_free(numbering->numbers);
    flw_host_free(numbering->things);
}

/* Return the number of a thing; a new thing gets one. */
static uint32_t number(struct numbering *numbering, uint32_t thing)
{
    if (numbering->numbers[thing] == 0) {
        numbering->things[numbering->count++] = thing;
        numbering->numbers[thing] = numbering->count;
    }
    return numbering->numbers[thing];
}

/* Return the number of the block's owner; 0: unknown. */
static uint32_t number_owner(struct heap *heap, uint32_t block)
{
    const struct flw_owners *owners = heap->analysis->owners;
    return owners == NULL || block >= heap->trace->block_count
               ? 0
               : number(&heap->owners, owners->of_block[block]);
}

static bool is_python(const struct flw_stacks *stacks, uint32_t frame)
{
    const char *file = flw_stacks_text(stacks, flw_stacks_frame(stacks, frame)->file);
    size_t length = strlen(file);
    return length > 3 && strcmp(file + length - 3, ".py") == 0;
}

/* Return the number of a block's stack; 0: unknown, or there is no room for the stack. Write a new stack. */
static uint32_t number_stack(struct heap *heap, uint32_t block, FILE *out)
{
    const struct flw_stacks *stacks = &heap->trace->stacks;
    const struct flw_owners *owners = heap->analysis->owners;
    bool is_known = owners != NULL && block < heap->trace->block_count;
    uint32_t stack = is_known ? owners->stack_of_block[block] : 0, frame;
    struct flw_stack_walk walk = flw_stacks_walk(stacks, stack);
    if (stack == 0 || heap->stacks.numbers[stack] != 0) {
        return stack == 0 ? 0 : heap->stacks.numbers[stack];
    }
    if (heap->stack_bytes >= STACK_BYTES || heap->name_bytes >= STACK_BYTES) {
        return 0;
    }
    size_t count = 0;
    for (size_t natives = 0; count < DEPTH && flw_stacks_next(&walk, &frame);) {
        if (is_python(stacks, frame) || natives++ < NATIVE) {
            const char *function =
                flw_stacks_text(stacks, flw_stacks_frame(stacks, frame)->function);
            const char *file = flw_stacks_text(stacks, flw_stacks_frame(stacks, frame)->file);
            bool is_new = heap->frames.numbers[frame] == 0;
            fputs(count++ != 0 ? " " : heap->stacks.count != 0 ? ";" : "", out);
            write36(out, number(&heap->frames, frame) - 1);
            heap->stack_bytes += 4;
            heap->name_bytes += is_new ? strlen(function) + strlen(file) + 10 : 0;
        }
    }
    return count == 0 ? 0 : number(&heap->stacks, stack);
}

static void write_names(const struct heap *heap, struct flw_json_writer *out)
{
    const struct flw_stacks *stacks = &heap->trace->stacks;
    flw_json_begin(out, "owners", '[');
    flw_json_text(out, NULL, "code that is not known");
    for (uint32_t i = 0; i < heap->owners.count; i++) {
        char name[FLW_ANALYSIS_NAME_BYTES]; /* cut like the names of bands */
        snprintf(name, sizeof name, "%s",
                 flw_owners_short_name(heap->analysis->owners, heap->owners.things[i]));
        flw_json_text(out, NULL, name);
    }
    flw_json_end(out, ']');
    flw_json_begin(out, "frames", '[');
    for (uint32_t i = 0; i < heap->frames.count; i++) {
        const struct flw_frame *frame = flw_stacks_frame(stacks, heap->frames.things[i]);
        const char *function = flw_stacks_text(stacks, frame->function);
        const char *file = flw_stacks_text(stacks, frame->file);
        char line[16] = "", *name = NULL;
        if (frame->line != 0) {
            snprintf(line, sizeof line, ":%u", frame->line);
        }
        function = function[0] == '\0' ? "?" : function;
        int length = file[0] == '\0' ? asprintf(&name, "%s", function)
                                     : asprintf(&name, "%s (%s%s)", function, file, line);
        flw_json_text(out, NULL, length < 0 ? "?" : name);
        free(length < 0 ? NULL : name);
    }
    flw_json_end(out, ']');
    flw_json_begin(out, "streams", '[');
    for (size_t i = 0; i < flw_max(1, heap->trace->stream_count); i++) {
        char name[32];
        snprintf(name, sizeof name, "%" PRIu64,
                 heap->trace->streams == NULL ? (uint64_t)i : heap->trace->streams[i]);
        flw_json_text(out, NULL, name);
    }
    flw_json_end(out, ']');
}

static int compare_weight(const void *a, const void *b)
{
    const struct flw_analysis_rectangle *x = ((const struct listed *)a)->block;
    const struct flw_analysis_rectangle *y = ((const struct listed *)b)->block;
    double wx = (double)x->bytes * (double)(x->end_op - x->begin_op);
    double wy = (double)y->bytes * (double)(y->end_op - y->begin_op);
    return wx != wy ? (wx < wy) - (wx > wy) : (x->block > y->block) - (x->block < y->block);
}

/* Any order that puts equal shapes together. */
static int compare_shape(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    return memcmp(x->shape, y->shape, sizeof x->shape);
}

static int compare_begin(const void *a, const void *b)
{
    const struct flw_analysis_rectangle *x = ((const struct listed *)a)->block;
    const struct flw_analysis_rectangle *y = ((const struct listed *)b)->block;
    return x->begin_op != y->begin_op ? (x->begin_op > y->begin_op) - (x->begin_op < y->begin_op)
                                      : (x->block > y->block) - (x->block < y->block);
}

/* ---- addresses ---- */

#define ISLAND_GAP_BYTES (64 * FLW_MIB) /* empty address space wider than this is cut out */
#define DOT_COLUMNS      FLW_ANALYSIS_LANE_COLUMNS /* repeated in page/heap.js */
#define DOT_ROWS         107
#define DOT_FULL         35

static int compare_stretches(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Keep the addresses in use, without wide gaps. */
static void find_islands(struct heap *heap)
{
    const struct flw_analysis_policy *policy = heap->policy;
    size_t count = heap->count + policy->lane_count;
    FLW_LOCAL struct stretch *sorted = flw_host_alloc(count, sizeof *sorted);
    for (size_t i = 0; i < heap->count; i++) {
        const struct flw_analysis_rectangle *block = heap->blocks[i].block;
        sorted[i] = (struct stretch){block->address, block->address + block->bytes, 0};
    }
    for (size_t i = 0; i < policy->lane_count; i++) {
        sorted[heap->count + i] = (struct stretch){policy->lanes[i].begin, policy->lanes[i].end, 0};
    }
    qsort(sorted, count, sizeof *sorted, compare_stretches);
    struct stretch *last = NULL;
    for (size_t i = 0; i < count; i++) {
        if (last != NULL &&
            (sorted[i].begin <= last->end + ISLAND_GAP_BYTES || heap->island_count == ISLANDS)) {
            last->end = flw_max(last->end, sorted[i].end);
        } else {
            sorted[i].offset = last == NULL ? 0 : last->offset + (double)(last->end - last->begin);
            last = &heap->islands[heap->island_count++];
            *last = sorted[i];
        }
    }
    heap->bytes = last == NULL ? 0 : last->offset + (double)(last->end - last->begin);
}

static double place_of(const struct heap *heap, uint64_t address)
{
    size_t i = 0;
    while (i + 1 < heap->island_count && address >= heap->islands[i + 1].begin) {
        i++;
    }
    return heap->islands[i].offset + (double)(address - heap->islands[i].begin);
}

static double overlap(double low, double high, size_t cell)
{
    double begin = low > (double)cell ? low : (double)cell;
    double end = high < (double)cell + 1 ? high : (double)cell + 1;
    return end > begin ? end - begin : 0;
}

/* Add `share` of a box to the cells it overlaps. Columns count from the left, bytes from the bottom. */
static void add_dots(const struct heap *heap, float *dots, double left, double right,
                     uint64_t address, uint64_t bytes, double share)
{
    double place = place_of(heap, address), row_bytes = heap->bytes / DOT_ROWS;
    double top = DOT_ROWS - (place + (double)bytes) / row_bytes;
    double bottom = DOT_ROWS - place / row_bytes;
    top = top > 0 ? top : 0;
    for (size_t row = (size_t)top; row < DOT_ROWS && (double)row < bottom; row++) {
        double height = share * overlap(top, bottom, row);
        for (size_t column = (size_t)left; column < DOT_COLUMNS && (double)column < right;
             column++) {
            dots[row * DOT_COLUMNS + column] += (float)(height * overlap(left, right, column));
        }
    }
}

/* Write the density of unlisted blocks in each cell as runs: count, level. */
static void write_dots(const struct heap *heap, struct flw_json_writer *out)
{
    const struct flw_analysis_policy *policy = heap->policy;
    FLW_LOCAL float *dots = flw_host_alloc((size_t)DOT_COLUMNS * DOT_ROWS, sizeof *dots);
    FLW_LOCAL uint64_t *runs = flw_host_alloc((size_t)DOT_COLUMNS * DOT_ROWS * 2, sizeof *runs);
    size_t count = 0;
    double column_ops = (double)heap->analysis->op_count / DOT_COLUMNS;
    for (size_t i = LISTED; i < heap->count; i++) {
        const struct flw_analysis_rectangle *block = heap->blocks[i].block;
        add_dots(heap, dots, (double)block->begin_op / column_ops,
                 (double)block->end_op / column_ops, block->address, block->bytes, 1);
    }
    for (size_t i = 0; i < policy->lane_count; i++) {
        const struct flw_analysis_lane *lane = &policy->lanes[i];
        uint64_t bytes = lane->end - lane->begin;
        for (size_t column = 0; column < DOT_COLUMNS; column++) {
            double share = lane->byte_ops[column] / ((double)bytes * column_ops);
            if (share > 0) {
                add_dots(heap, dots, (double)column, (double)column + 1, lane->begin, bytes, share);
            }
        }
    }
    for (size_t i = 0; i < (size_t)DOT_COLUMNS * DOT_ROWS; i++) {
        uint64_t level = (uint64_t)(DOT_FULL * (dots[i] < 1 ? dots[i] : 1) + 0.5F);
        if (count == 0 || runs[count - 1] != level) {
            runs[count + 1] = level;
            runs[count] = 0;
            count += 2;
        }
        runs[count - 2]++;
    }
    flw_page_write_rows(out, "dots", runs, count, 2);
}

/* Return the shade of a size of holes: 0 for none, up to 5 for at least half of `most`. */
static char shade_of(uint64_t bytes, uint64_t most)
{
    double share = (double)bytes / (double)most;
    int shade = share >= 0.5 ? 5 : share >= 0.2 ? 4 : share >= 0.05 ? 3 : share >= 0.01 ? 2 : 1;
    return (char)('0' + (bytes == 0 ? 0 : shade));
}

static void write_holes(const struct flw_analysis_policy *policy, struct flw_json_writer *out)
{
    size_t columns = policy->hole_column_count, shown = flw_min(columns, HOLE_COLUMNS);
    uint64_t requests[HOLE_COLUMNS], most = 0;
    for (size_t c = 0; c < columns; c++) {
        for (unsigned bin = 0; bin < FLW_ANALYSIS_SIZE_BINS; bin++) {
            most = flw_max(most, policy->holes[c].bytes[bin]);
        }
    }
    if (most == 0) {
        flw_json_null(out, "holes");
        return;
    }
    flw_json_begin(out, "holes", '{');
    flw_json_begin(out, "columns", '[');
    for (size_t i = 0; i < shown; i++) {
        const struct flw_analysis_holes *holes = &policy->holes[i * columns / shown];
        char shades[FLW_ANALYSIS_SIZE_BINS + 1] = {0};
        for (unsigned bin = 0; bin < FLW_ANALYSIS_SIZE_BINS; bin++) {
            shades[bin] = shade_of(holes->bytes[bin], most);
        }
        flw_json_text(out, NULL, shades);
        requests[i] = 1;
        for (size_t c = i * columns / shown; c < (i + 1) * columns / shown; c++) {
            requests[i] = flw_max(requests[i], policy->holes[c].largest_request);
        }
    }
    flw_json_end(out, ']');
    flw_page_write_rows(out, "requests", requests, shown, shown);
    flw_json_end(out, '}');
}

/* ---- the heap at one moment ---- */

/* Return the least size such that, except for ties, at most MAP_BLOCKS blocks are as large. */
static uint64_t find_least(const struct flw_analysis_frame *frame)
{
    for (uint64_t least = 0;; least = 2 * least + 1) {
        size_t count = 0;
        for (size_t i = 0; i < frame->block_count; i++) {
            count += frame->blocks[i].requested_bytes >= least;
        }
        if (count <= MAP_BLOCKS || least == UINT64_MAX) {
            return least;
        }
    }
}

static void write_map(struct heap *heap, const struct flw_analysis_frame *frame,
                      struct flw_json_writer *out)
{
    uint64_t least = find_least(frame);
    FLW_LOCAL uint64_t *segments = flw_host_alloc(frame->segment_count, sizeof *segments);
    FLW_LOCAL uint64_t(*blocks)[6] = flw_host_alloc(frame->block_count, sizeof *blocks);
    size_t segment = 0, shown = 0;
    for (size_t i = 0; i < frame->segment_count; i++) {
        segments[i] = frame->segments[i].bytes;
    }
    for (size_t i = 0; i < frame->block_count; i++) {
        const struct flw_analysis_block *block = &frame->blocks[i];
        const struct flw_analysis_segment *of_block = &frame->segments[segment];
        while (segment < frame->segment_count &&
               block->address >= of_block->address + of_block->bytes) {
            of_block = &frame->segments[++segment];
        }
        if (segment < frame->segment_count && block->address >= of_block->address &&
            block->requested_bytes >= least) {
            uint64_t taken = flw_max(block->block_bytes, block->requested_bytes);
            uint64_t row[] = {segment,
                              block->address - of_block->address,
                              block->requested_bytes,
                              taken - block->requested_bytes,
                              number_owner(heap, block->block),
                              block->is_pending};
            memcpy(blocks[shown++], row, sizeof row);
        }
    }
    flw_page_write_rows(out, "segments", segments, frame->segment_count, 1);
    flw_page_write_rows(out, "blocks", blocks[0], shown * 6, 6);
    flw_json_number(out, "left_out", frame->left_out_count + frame->block_count - shown);
}

static void write_moments(struct heap *heap, struct flw_json_writer *out)
{
    flw_json_begin(out, "moments", '[');
    for (size_t i = 0; i < heap->policy->frame_count; i++) {
        const struct flw_analysis_frame *frame = &heap->policy->frames[i];
        if (heap->analysis->oom.count != 0 && strcmp(frame->name, "first failure") == 0) {
            continue; /* the recording's first failure is "out of memory" */
        }
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "name", frame->name);
        FLW_JSON_NUMBERS(out, {"op", frame->op}, {"requested", frame->requested_bytes},
                         {"reserved", frame->reserved_bytes}, {"holes", frame->hole_count},
                         {"largest_hole", frame->largest_hole_bytes});
        write_map(heap, frame, out);
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

/* Return the policy of the heap to show: the recording's own, else PyTorch's, else the first that has addresses. */
static const struct flw_analysis_policy *find_heap(const struct flw_analysis *analysis)
{
    const struct flw_analysis_policy *found = NULL;
    int best = 0;
    for (size_t i = 0; i < analysis->policy_count; i++) {
        const struct flw_analysis_policy *policy = &analysis->policies[i];
        const char *name = policy->result->policy->name;
        int rank = strcmp(name, "recorded") == 0 ? 3 : strcmp(name, "pytorch") == 0 ? 2 : 1;
        if (rank > best && (policy->rectangle_count != 0 || policy->frame_count != 0)) {
            best = rank;
            found = policy;
        }
    }
    return found;
}

static void begin_heap(struct heap *heap)
{
    const struct flw_trace *trace = heap->trace;
    heap->policy = find_heap(heap->analysis);
    heap->count = heap->policy == NULL ? 0 : heap->policy->rectangle_count;
    heap->blocks = flw_host_alloc(heap->count, sizeof *heap->blocks);
    for (size_t i = 0; i < heap->count; i++) {
        heap->blocks[i].block = &heap->policy->rectangles[i];
    }
    qsort(heap->blocks, heap->count, sizeof *heap->blocks, compare_weight);
    if (heap->count != 0) {
        find_islands(heap);
    }
    heap->owners =
        begin_numbering(heap->analysis->owners == NULL ? 0 : heap->analysis->owners->count);
    heap->stacks = begin_numbering(trace->stacks.lists.count);
    heap->frames = begin_numbering(trace->stacks.frames.count);
}

static void finish_heap(struct heap *heap)
{
    flw_host_free(heap->blocks);
    finish_numbering(&heap->owners);
    finish_numbering(&heap->stacks);
    finish_numbering(&heap->frames);
}

static void write_heap(struct heap *heap, struct flw_json_writer *out)
{
    const struct flw_analysis_policy *policy = heap->policy;
    if (policy == NULL) {
        flw_json_null(out, "heap");
        return;
    }
    bool has_lanes = policy->lane_count != 0;
    uint64_t merged = heap->count - flw_min(heap->count, LISTED);
    flw_json_begin(out, "heap", '{');
    FLW_JSON_NUMBERS(out, {"policy", (uint64_t)(policy - heap->analysis->policies)},
                     {"bytes", heap->count == 0 ? 1 : (uint64_t)heap->bytes},
                     {"merged_blocks", merged + (has_lanes ? policy->left_out_count : 0)},
                     {"lost_blocks", has_lanes ? 0 : policy->left_out_count});
    write_dots(heap, out);
    write_moments(heap, out);
    write_holes(policy, out);
    flw_json_end(out, '}');
}

static void write_blocks(struct heap *heap, struct flw_json_writer *out)
{
    size_t count = flw_min(heap->count, LISTED), shapes = 0;
    uint64_t(*rows)[5] = flw_host_alloc(count, sizeof *rows), last = 0;
    flw_json_key(out, "stacks");
    putc('"', out->file);
    for (size_t i = 0; i < count; i++) {
        const struct flw_analysis_rectangle *block = heap->blocks[i].block;
        bool is_known = block->block < heap->trace->block_count;
        uint64_t asked = is_known ? heap->trace->blocks[block->block].size_bytes : block->bytes;
        uint64_t shape[] = {asked, block->bytes, number_stack(heap, block->block, out->file),
                            number_owner(heap, block->block), block->stream};
        memcpy(heap->blocks[i].shape, shape, sizeof shape);
    }
    putc('"', out->file);
    qsort(heap->blocks, count, sizeof *heap->blocks, compare_shape);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || compare_shape(&heap->blocks[i - 1], &heap->blocks[i]) != 0) {
            memcpy(rows[shapes++], heap->blocks[i].shape, sizeof *rows);
        }
        heap->blocks[i].number = (uint32_t)shapes - 1;
    }
    flw_page_write_rows(out, "shapes", rows[0], shapes * 5, 5);
    qsort(heap->blocks, count, sizeof *heap->blocks, compare_begin);
    for (size_t i = 0; i < count; i++) {
        const struct flw_analysis_rectangle *block = heap->blocks[i].block;
        uint64_t row[] = {block->begin_op - last, block->end_op - block->begin_op,
                          heap->blocks[i].number, (uint64_t)place_of(heap, block->address)};
        memcpy(rows[0] + 4 * i, row, sizeof row);
        last = block->begin_op;
    }
    flw_page_write_rows(out, "blocks", rows[0], count * 4, 4);
    flw_json_bool(out, "has_all_blocks",
                  heap->policy == NULL || count == heap->count + heap->policy->left_out_count);
    flw_host_free(rows);
}

void flw_page_write_heap(const struct flw_analysis *analysis, struct flw_json_writer *out)
{
    struct heap heap = {.analysis = analysis, .trace = analysis->trace};
    begin_heap(&heap);
    write_heap(&heap, out);
    write_blocks(&heap, out);
    write_names(&heap, out);
    finish_heap(&heap);
}
