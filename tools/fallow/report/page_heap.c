/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the page's data about blocks: the heaviest with their owners, stacks and addresses, the density of the others,
 * the holes, and the heap at moments.
 */
#include "report/page_heap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "report/heapview.h"
#include "report/owner.h"
#include "report/sheet.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

#define LISTED       5000 /* blocks that are drawn exactly */
#define MAP_BLOCKS   2000 /* of the heap at one moment, the largest */
#define HOLE_COLUMNS 128
#define DEPTH        96 /* frames of a stack, the innermost */
#define NATIVE       24 /* of these, at most so many outside Python: interpreters call themselves */
#define STACK_BYTES  150000 /* limit of all stacks, and of all names; further stacks are unknown */

static void write36(FILE *out, uint64_t value, char after)
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
    if (after != '\0') {
        putc(after, out);
    }
}

static void write_row(FILE *out, bool is_first, const uint64_t *numbers, size_t count)
{
    if (!is_first) {
        putc(';', out);
    }
    for (size_t i = 0; i < count; i++) {
        write36(out, numbers[i], i + 1 < count ? ' ' : '\0');
    }
}

/* ---- blocks, their owners and stacks ---- */

/* A block, and the properties that blocks share. */
struct listed {
    const struct flw_sheet_rectangle *block;
    uint64_t shape[5]; /* requested, taken, stack, owner, stream */
    uint32_t number;   /* of the shape */
};

/* Numbers within the page, in order of first use. */
struct catalogue {
    const struct flw_sheet *sheet;
    const struct flw_trace *trace;
    const struct flw_owners *owners; /* NULL: unknown */
    size_t *record_of_block;         /* by block of the trace: the record of the request */
    uint32_t *owner_numbers;         /* by owner; 0: none yet */
    uint32_t *shown_owners;          /* by number less 1 */
    uint32_t *stack_numbers;         /* by stack of the trace; 0: none */
    uint32_t *frame_numbers;         /* by frame of the trace; 0: none */
    uint32_t *frames;                /* by number less 1 */
    uint32_t owner_count, stack_count, frame_count;
    size_t stack_bytes, name_bytes;
};

static struct catalogue begin_catalogue(const struct flw_sheet *sheet)
{
    const struct flw_trace *trace = sheet->trace;
    struct catalogue of = {.sheet = sheet, .trace = trace, .owners = sheet->owners};
    size_t owner_count = sheet->owners == NULL ? 0 : sheet->owners->count;
    of.record_of_block = flw_host_alloc(trace->block_count, sizeof *of.record_of_block);
    of.owner_numbers = flw_host_alloc(owner_count, sizeof *of.owner_numbers);
    of.shown_owners = flw_host_alloc(owner_count, sizeof *of.shown_owners);
    of.stack_numbers = flw_host_alloc(trace->stacks.stack_count, sizeof *of.stack_numbers);
    of.frame_numbers = flw_host_alloc(trace->stacks.frame_count, sizeof *of.frame_numbers);
    of.frames = flw_host_alloc(trace->stacks.frame_count, sizeof *of.frames);
    for (size_t i = 0; trace->block_count != 0 && i < trace->initial_count; i++) {
        of.record_of_block[i] = i;
    }
    for (size_t i = 0; trace->block_count != 0 && i < trace->event_count; i++) {
        if (trace->events[i].op == FLW_TRACE_ALLOC) {
            of.record_of_block[trace->events[i].block] = trace->initial_count + i;
        }
    }
    return of;
}

static void finish_catalogue(struct catalogue *of)
{
    flw_host_free(of->record_of_block);
    flw_host_free(of->owner_numbers);
    flw_host_free(of->shown_owners);
    flw_host_free(of->stack_numbers);
    flw_host_free(of->frame_numbers);
    flw_host_free(of->frames);
}

/* Return the number of the block's owner; 0: unknown. */
static uint32_t number_owner(struct catalogue *of, uint32_t block)
{
    if (of->owners == NULL || block >= of->trace->block_count) {
        return 0;
    }
    uint32_t owner = of->owners->of_record[of->record_of_block[block]];
    if (of->owner_numbers[owner] == 0) {
        of->shown_owners[of->owner_count++] = owner;
        of->owner_numbers[owner] = of->owner_count;
    }
    return of->owner_numbers[owner];
}

static bool is_python(const struct flw_stacks *stacks, uint32_t frame)
{
    const char *file = flw_stacks_text(stacks, stacks->frames[frame].file);
    size_t length = strlen(file);
    return length > 3 && strcmp(file + length - 3, ".py") == 0;
}

static uint32_t number_frame(struct catalogue *of, uint32_t frame)
{
    const struct flw_stacks *stacks = &of->trace->stacks;
    if (of->frame_numbers[frame] == 0) {
        of->frames[of->frame_count++] = frame;
        of->frame_numbers[frame] = of->frame_count;
        of->name_bytes += strlen(flw_stacks_text(stacks, stacks->frames[frame].function)) +
                          strlen(flw_stacks_text(stacks, stacks->frames[frame].file)) + 10;
    }
    return of->frame_numbers[frame] - 1;
}

/* Write a new stack if there is room. Return the stack's number; 0: none. */
static uint32_t number_stack(struct catalogue *of, uint32_t block, FILE *out)
{
    const struct flw_stacks *stacks = &of->trace->stacks;
    bool is_known = block < of->trace->block_count;
    uint32_t stack = is_known ? flw_trace_stack(of->trace, of->record_of_block[block]) : 0, frame;
    struct flw_stack_walk walk = flw_stacks_walk(stacks, stack);
    if (stack == 0 || of->stack_numbers[stack] != 0) {
        return stack == 0 ? 0 : of->stack_numbers[stack];
    }
    if (of->stack_bytes >= STACK_BYTES || of->name_bytes >= STACK_BYTES) {
        return 0;
    }
    size_t count = 0;
    for (size_t natives = 0; count < DEPTH && flw_stacks_next(&walk, &frame);) {
        if (is_python(stacks, frame) || natives++ < NATIVE) {
            if (count++ != 0) {
                putc(' ', out);
            } else if (of->stack_count != 0) {
                putc(';', out);
            }
            write36(out, number_frame(of, frame), '\0');
            of->stack_bytes += 4;
        }
    }
    of->stack_numbers[stack] = count == 0 ? 0 : ++of->stack_count;
    return of->stack_numbers[stack];
}

static void write_names(const struct catalogue *of, struct flw_json_writer *out)
{
    const struct flw_stacks *stacks = &of->trace->stacks;
    flw_json_begin(out, "owners", '[');
    flw_json_text(out, NULL, "code that is not known");
    for (uint32_t i = 0; i < of->owner_count; i++) {
        char name[FLW_SHEET_NAME_BYTES]; /* cut like the names of bands */
        snprintf(name, sizeof name, "%s", flw_owners_short_name(of->owners, of->shown_owners[i]));
        flw_json_text(out, NULL, name);
    }
    flw_json_end(out, ']');
    flw_json_begin(out, "frames", '[');
    for (uint32_t i = 0; i < of->frame_count; i++) {
        const struct flw_frame *frame = &stacks->frames[of->frames[i]];
        const char *function = flw_stacks_text(stacks, frame->function);
        const char *file = flw_stacks_text(stacks, frame->file);
        flw_json_key(out, NULL);
        putc('"', out->file);
        flw_json_print_utf8(out->file, function[0] == '\0' ? "?" : function,
                            function[0] == '\0' ? 1 : strlen(function));
        fputs(file[0] != '\0' ? " (" : "", out->file);
        flw_json_print_utf8(out->file, file, strlen(file));
        if (file[0] != '\0') {
            fprintf(out->file, frame->line != 0 ? ":%u)" : ")", frame->line);
        }
        putc('"', out->file);
    }
    flw_json_end(out, ']');
    flw_json_begin(out, "streams", '[');
    for (size_t i = 0; i < flw_max(1, of->trace->stream_count); i++) {
        char name[32];
        snprintf(name, sizeof name, "%" PRIu64,
                 of->trace->streams == NULL ? (uint64_t)i : of->trace->streams[i]);
        flw_json_text(out, NULL, name);
    }
    flw_json_end(out, ']');
}

static int compare_weight(const void *a, const void *b)
{
    const struct flw_sheet_rectangle *x = ((const struct listed *)a)->block;
    const struct flw_sheet_rectangle *y = ((const struct listed *)b)->block;
    double wx = (double)x->bytes * (double)(x->end_op - x->begin_op);
    double wy = (double)y->bytes * (double)(y->end_op - y->begin_op);
    return wx != wy ? (wx < wy) - (wx > wy) : (x->block > y->block) - (x->block < y->block);
}

static int compare_shape(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    for (size_t i = 0; i < 5; i++) {
        if (x->shape[i] != y->shape[i]) {
            return x->shape[i] < y->shape[i] ? -1 : 1;
        }
    }
    return 0;
}

static int compare_begin(const void *a, const void *b)
{
    const struct flw_sheet_rectangle *x = ((const struct listed *)a)->block;
    const struct flw_sheet_rectangle *y = ((const struct listed *)b)->block;
    return x->begin_op != y->begin_op ? (x->begin_op > y->begin_op) - (x->begin_op < y->begin_op)
                                      : (x->block > y->block) - (x->block < y->block);
}

/* ---- addresses ---- */

#define ISLAND_GAP_BYTES (64 * FLW_MIB) /* empty address space wider than this is cut out */
#define ISLANDS          256
#define DOT_COLUMNS      FLW_SHEET_LANE_COLUMNS /* repeated in page/heap.js */
#define DOT_ROWS         107
#define DOT_FULL         35

struct stretch {
    uint64_t begin, end;
    double offset; /* bytes of the earlier stretches */
};

struct heap {
    const struct flw_sheet *sheet;
    const struct flw_sheet_policy *policy;
    struct listed *blocks; /* the heaviest first */
    size_t count;
    struct stretch islands[ISLANDS];
    size_t island_count;
    double bytes; /* of all islands */
};

static int compare_stretches(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Keep the addresses in use, without wide gaps. */
static void find_islands(struct heap *heap)
{
    const struct flw_sheet_policy *policy = heap->policy;
    size_t count = heap->count + policy->lane_count;
    struct stretch *sorted = flw_host_alloc(count, sizeof *sorted);
    for (size_t i = 0; i < heap->count; i++) {
        const struct flw_sheet_rectangle *block = heap->blocks[i].block;
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
    flw_host_free(sorted);
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

/* Write the density of unlisted blocks in each cell as runs: count.level. */
static void write_dots(const struct heap *heap, struct flw_json_writer *out)
{
    const struct flw_sheet_policy *policy = heap->policy;
    float *dots = flw_host_alloc((size_t)DOT_COLUMNS * DOT_ROWS, sizeof *dots);
    double column_ops = (double)heap->sheet->op_count / DOT_COLUMNS;
    for (size_t i = LISTED; i < heap->count; i++) {
        const struct flw_sheet_rectangle *block = heap->blocks[i].block;
        add_dots(heap, dots, (double)block->begin_op / column_ops,
                 (double)block->end_op / column_ops, block->address, block->bytes, 1);
    }
    for (size_t i = 0; i < policy->lane_count; i++) {
        const struct flw_sheet_lane *lane = &policy->lanes[i];
        uint64_t bytes = lane->end - lane->begin;
        for (size_t column = 0; column < DOT_COLUMNS; column++) {
            double share = lane->byte_ops[column] / ((double)bytes * column_ops);
            if (share > 0) {
                add_dots(heap, dots, (double)column, (double)column + 1, lane->begin, bytes, share);
            }
        }
    }
    flw_json_key(out, "dots");
    putc('"', out->file);
    for (size_t end, i = 0; i < (size_t)DOT_COLUMNS * DOT_ROWS; i = end) {
        unsigned level = (unsigned)(DOT_FULL * (dots[i] < 1 ? dots[i] : 1) + 0.5F);
        for (end = i + 1; end < (size_t)DOT_COLUMNS * DOT_ROWS &&
                          (unsigned)(DOT_FULL * (dots[end] < 1 ? dots[end] : 1) + 0.5F) == level;) {
            end++;
        }
        fprintf(out->file, "%zu.", end - i);
        write36(out->file, level, '\0');
    }
    putc('"', out->file);
    flw_host_free(dots);
}

/* Return the shade of a size of holes: 0 for none, up to 5 for at least half of `most`. */
static char shade_of(uint64_t bytes, uint64_t most)
{
    double share = (double)bytes / (double)most;
    int shade = share >= 0.5 ? 5 : share >= 0.2 ? 4 : share >= 0.05 ? 3 : share >= 0.01 ? 2 : 1;
    return (char)('0' + (bytes == 0 ? 0 : shade));
}

static void write_holes(const struct flw_sheet_policy *policy, struct flw_json_writer *out)
{
    size_t columns = policy->hole_column_count, shown = flw_min(columns, HOLE_COLUMNS);
    unsigned low = FLW_SHEET_SIZE_BINS, high = 0;
    uint64_t most = 0;
    for (size_t c = 0; c < columns; c++) {
        for (unsigned bin = 0; bin < FLW_SHEET_SIZE_BINS; bin++) {
            uint64_t bytes = policy->holes[c].bytes[bin];
            most = flw_max(most, bytes);
            low = bytes != 0 && bin < low ? bin : low;
            high = bytes != 0 && bin > high ? bin : high;
        }
        high = flw_max(high, (unsigned)flw_sheet_size_bin(policy->holes[c].largest_request));
    }
    if (most == 0) {
        flw_json_null(out, "holes");
        return;
    }
    low = flw_max(low, 1);
    flw_json_begin(out, "holes", '{');
    flw_json_number(out, "low", low);
    flw_json_number(out, "high", high);
    flw_json_begin(out, "columns", '[');
    for (size_t i = 0; i < shown; i++) {
        char shades[FLW_SHEET_SIZE_BINS + 1] = {0};
        for (unsigned bin = low; bin <= high; bin++) {
            shades[bin - low] = shade_of(policy->holes[i * columns / shown].bytes[bin], most);
        }
        flw_json_text(out, NULL, shades);
    }
    flw_json_end(out, ']');
    flw_json_begin(out, "requests", '[');
    for (size_t i = 0; i < shown; i++) {
        uint64_t request = 1;
        for (size_t c = i * columns / shown; c < (i + 1) * columns / shown; c++) {
            request = flw_max(request, policy->holes[c].largest_request);
        }
        flw_json_number(out, NULL, request);
    }
    flw_json_end(out, ']');
    flw_json_end(out, '}');
}

/* ---- the heap at one moment ---- */

/* Return the least size such that, except for ties, at most MAP_BLOCKS blocks are as large. */
static uint64_t find_least(const struct flw_sheet_frame *frame)
{
    uint64_t least = 0;
    for (size_t count = MAP_BLOCKS + 1; count > MAP_BLOCKS && least < UINT64_MAX / 2;
         least = 2 * least + 1) {
        count = 0;
        for (size_t i = 0; i < frame->block_count; i++) {
            count += frame->blocks[i].requested_bytes >= least;
        }
        if (count <= MAP_BLOCKS) {
            break;
        }
    }
    return least;
}

static void write_map(struct catalogue *of, const struct flw_sheet_frame *frame,
                      struct flw_json_writer *out)
{
    size_t segment = 0, shown = 0;
    uint64_t least = find_least(frame);
    flw_json_key(out, "segments");
    putc('"', out->file);
    for (size_t i = 0; i < frame->segment_count; i++) {
        write_row(out->file, i == 0, &frame->segments[i].bytes, 1);
    }
    fputs("\"", out->file);
    flw_json_key(out, "blocks");
    putc('"', out->file);
    for (size_t i = 0; i < frame->block_count; i++) {
        const struct flw_sheet_block *block = &frame->blocks[i];
        while (segment < frame->segment_count &&
               block->address >=
                   frame->segments[segment].address + frame->segments[segment].bytes) {
            segment++;
        }
        if (segment == frame->segment_count || block->address < frame->segments[segment].address ||
            block->requested_bytes < least) {
            continue;
        }
        uint64_t taken = flw_max(block->block_bytes, block->requested_bytes);
        uint64_t numbers[] = {segment,
                              block->address - frame->segments[segment].address,
                              block->requested_bytes,
                              taken - block->requested_bytes,
                              number_owner(of, block->block),
                              block->is_pending};
        write_row(out->file, shown++ == 0, numbers, sizeof numbers / sizeof *numbers);
    }
    putc('"', out->file);
    flw_json_number(out, "left_out", frame->left_out_count + frame->block_count - shown);
}

static void write_moments(struct catalogue *of, const struct flw_sheet_policy *policy,
                          struct flw_json_writer *out)
{
    flw_json_begin(out, "moments", '[');
    for (size_t i = 0; i < policy->frame_count; i++) {
        const struct flw_sheet_frame *frame = &policy->frames[i];
        if (of->sheet->oom.count != 0 && strcmp(frame->name, "first failure") == 0) {
            continue; /* the recording's first failure is "out of memory" */
        }
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "name", frame->name);
        FLW_JSON_NUMBERS(out, {"op", frame->op}, {"requested", frame->requested_bytes},
                         {"reserved", frame->reserved_bytes}, {"holes", frame->hole_count},
                         {"largest_hole", frame->largest_hole_bytes});
        write_map(of, frame, out);
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

/* Return the policy of the heap to show: the recording's own, else PyTorch's, else the first that has addresses. */
static const struct flw_sheet_policy *find_heap(const struct flw_sheet *sheet)
{
    static const char *const names[] = {"recorded", "pytorch", NULL};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        for (size_t i = 0; i < sheet->policy_count; i++) {
            const struct flw_sheet_policy *policy = &sheet->policies[i];
            bool has_heap = policy->rectangle_count != 0 || policy->frame_count != 0;
            if (has_heap &&
                (names[n] == NULL || strcmp(policy->result->policy->name, names[n]) == 0)) {
                return policy;
            }
        }
    }
    return NULL;
}

static struct heap begin_heap(const struct flw_sheet *sheet)
{
    struct heap heap = {.sheet = sheet, .policy = find_heap(sheet)};
    heap.count = heap.policy == NULL ? 0 : heap.policy->rectangle_count;
    heap.blocks = flw_host_alloc(heap.count, sizeof *heap.blocks);
    for (size_t i = 0; i < heap.count; i++) {
        heap.blocks[i].block = &heap.policy->rectangles[i];
    }
    qsort(heap.blocks, heap.count, sizeof *heap.blocks, compare_weight);
    if (heap.count != 0) {
        find_islands(&heap);
    }
    return heap;
}

static void write_heap(struct catalogue *of, struct heap *heap, struct flw_json_writer *out)
{
    const struct flw_sheet_policy *policy = heap->policy;
    if (policy == NULL) {
        flw_json_null(out, "heap");
        return;
    }
    bool has_lanes = policy->lane_count != 0;
    uint64_t merged = heap->count - flw_min(heap->count, LISTED);
    flw_json_begin(out, "heap", '{');
    FLW_JSON_NUMBERS(out, {"policy", (uint64_t)(policy - heap->sheet->policies)},
                     {"bytes", heap->count == 0 ? 1 : (uint64_t)heap->bytes},
                     {"merged_blocks", merged + (has_lanes ? policy->left_out_count : 0)},
                     {"lost_blocks", has_lanes ? 0 : policy->left_out_count});
    if (merged == 0 && !has_lanes) {
        flw_json_text(out, "dots", "");
    } else {
        write_dots(heap, out);
    }
    write_moments(of, policy, out);
    write_holes(policy, out);
    flw_json_end(out, '}');
}

static void write_blocks(struct catalogue *of, struct heap *heap, struct flw_json_writer *out)
{
    size_t count = flw_min(heap->count, LISTED);
    uint64_t last = 0;
    flw_json_key(out, "stacks");
    putc('"', out->file);
    for (size_t i = 0; i < count; i++) {
        const struct flw_sheet_rectangle *block = heap->blocks[i].block;
        bool is_known = block->block < of->trace->block_count;
        uint64_t asked = is_known ? of->trace->blocks[block->block].size_bytes : block->bytes;
        uint64_t shape[] = {asked, block->bytes, number_stack(of, block->block, out->file),
                            number_owner(of, block->block), block->stream};
        memcpy(heap->blocks[i].shape, shape, sizeof shape);
    }
    fputs("\"", out->file);
    qsort(heap->blocks, count, sizeof *heap->blocks, compare_shape);
    flw_json_key(out, "shapes");
    putc('"', out->file);
    for (size_t i = 0; i < count; i++) {
        bool is_new = i == 0 || compare_shape(&heap->blocks[i - 1], &heap->blocks[i]) != 0;
        heap->blocks[i].number = i == 0 ? 0 : heap->blocks[i - 1].number + is_new;
        if (is_new) {
            write_row(out->file, i == 0, heap->blocks[i].shape, 5);
        }
    }
    fputs("\"", out->file);
    qsort(heap->blocks, count, sizeof *heap->blocks, compare_begin);
    flw_json_key(out, "blocks");
    putc('"', out->file);
    for (size_t i = 0; i < count; i++) {
        const struct flw_sheet_rectangle *block = heap->blocks[i].block;
        uint64_t numbers[] = {block->begin_op - last, block->end_op - block->begin_op,
                              heap->blocks[i].number, (uint64_t)place_of(heap, block->address)};
        write_row(out->file, i == 0, numbers, 4);
        last = block->begin_op;
    }
    putc('"', out->file);
    flw_json_bool(out, "has_all_blocks",
                  heap->policy == NULL || count == heap->count + heap->policy->left_out_count);
}

void flw_page_write_heap(const struct flw_sheet *sheet, struct flw_json_writer *out)
{
    struct catalogue of = begin_catalogue(sheet);
    struct heap heap = begin_heap(sheet);
    write_heap(&of, &heap, out);
    write_blocks(&of, &heap, out);
    write_names(&of, out);
    flw_host_free(heap.blocks);
    finish_catalogue(&of);
}
