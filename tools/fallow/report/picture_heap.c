/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pictures of the heap: at one moment, addresses over time, holes over time.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "report/picture.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

struct flw_svg_axis flw_picture_op_axis(const struct flw_sheet *sheet)
{
    return (struct flw_svg_axis){
        .high = (double)flw_max(1, sheet->op_count), .unit = FLW_SVG_COUNT, .name = FLW_SVG_OPS};
}

#define COLOURS FLW_SHEET_LANE_KINDS /* of blocks, by size */

const char *flw_picture_size_colour(uint64_t bytes)
{
    return flw_picture_colour(flw_sheet_size_kind(bytes));
}

static int compare_weight(const void *a, const void *b)
{
    const struct flw_sheet_rectangle *x = *(const struct flw_sheet_rectangle *const *)a;
    const struct flw_sheet_rectangle *y = *(const struct flw_sheet_rectangle *const *)b;
    double wx = (double)x->bytes * (double)(x->end_op - x->begin_op);
    double wy = (double)y->bytes * (double)(y->end_op - y->begin_op);
    return wx != wy ? (wx < wy) - (wx > wy) : (x->block > y->block) - (x->block < y->block);
}

const struct flw_sheet_rectangle **flw_picture_sort_by_weight(const struct flw_sheet_policy *policy)
{
    size_t count = policy->rectangle_count;
    const struct flw_sheet_rectangle **order = flw_host_alloc(count, sizeof *order);
    for (size_t i = 0; i < count; i++) {
        order[i] = &policy->rectangles[i];
    }
    qsort(order, count, sizeof *order, compare_weight);
    return order;
}

/* ---- the heap at one moment: addresses as text, line after line, in cells of one colour */

#define FRAME_ROWS       24 /* at most, more than half of it: a row is a power of two of bytes */
#define FRAME_ROW_HEIGHT 14.0
#define FRAME_CELLS      172 /* a row */

enum {
    INK_PENDING = COLOURS,
    INK_LOSS,
    INK_FREE,
    INK_FREE_ODD, /* of every other segment */
    INK_COUNT
};

/* How many bytes of each cell are of which colour; the most is drawn. */
struct paper {
    double (*bytes)[INK_COUNT]; /* by cell */
    double cell_bytes;
    size_t row_count;
};

static const char *ink_style(unsigned ink)
{
    static const char *const styles[INK_COUNT] = {[INK_PENDING] = "pending",
                                                  [INK_LOSS] = "loss",
                                                  [INK_FREE] = "free",
                                                  [INK_FREE_ODD] = "free odd"};
    return ink < COLOURS ? flw_picture_colour(ink) : styles[ink];
}

/* A stretch of the heap, counted from its first byte. */
static void ink_stretch(struct paper *paper, unsigned ink, double begin, double bytes)
{
    size_t cell = (size_t)(begin / paper->cell_bytes), end = paper->row_count * FRAME_CELLS;
    while (bytes > 0 && cell < end) {
        double here = ((double)cell + 1) * paper->cell_bytes - begin;
        here = here < bytes ? here : bytes;
        paper->bytes[cell++][ink] += here;
        begin += here;
        bytes -= here;
    }
}

/* The blocks of one segment from `next` on, and free what lies between; the next segment's first. */
static size_t ink_segment(struct paper *paper, const struct flw_sheet_frame *frame, size_t next,
                          size_t segment_index, double begin)
{
    const struct flw_sheet_segment *segment = &frame->segments[segment_index];
    unsigned free_ink = segment_index % 2 == 0 ? INK_FREE : INK_FREE_ODD;
    double used = 0;
    for (; next < frame->block_count; next++) {
        const struct flw_sheet_block *block = &frame->blocks[next];
        if (block->address >= segment->address + segment->bytes) {
            break;
        }
        if (block->address < segment->address) {
            continue;
        }
        double at = (double)(block->address - segment->address);
        double requested = (double)block->requested_bytes;
        double loss = (double)flw_max(block->block_bytes, block->requested_bytes) - requested;
        unsigned ink =
            block->is_pending ? INK_PENDING : flw_sheet_size_kind(block->requested_bytes);
        ink_stretch(paper, free_ink, begin + used, at - used);
        ink_stretch(paper, ink, begin + at, requested);
        ink_stretch(paper, INK_LOSS, begin + at + requested, loss);
        used = at + requested + loss;
    }
    ink_stretch(paper, free_ink, begin + used, (double)segment->bytes - used);
    return next;
}

/* INK_COUNT: none, past the end. */
static unsigned cell_ink(const struct paper *paper, size_t cell)
{
    unsigned most = INK_COUNT;
    for (unsigned ink = 0; ink < INK_COUNT; ink++) {
        double bytes = paper->bytes[cell][ink];
        most = bytes > (most == INK_COUNT ? 0 : paper->bytes[cell][most]) ? ink : most;
    }
    return most;
}

/* Runs of cells of one colour as thick strokes: ten bytes each. */
static void draw_ink(const struct flw_svg *svg, const struct paper *paper, unsigned ink)
{
    double width = FLW_SVG_WIDTH / FRAME_CELLS;
    bool is_open = false;
    for (size_t row = 0; row < paper->row_count; row++) {
        for (size_t end, cell = 0; cell < FRAME_CELLS; cell = end + 1) {
            end = cell;
            while (end < FRAME_CELLS && cell_ink(paper, row * FRAME_CELLS + end) == ink) {
                end++;
            }
            if (end == cell) {
                continue;
            }
            if (!is_open) {
                fprintf(svg->out, "<path class=\"row %s\" d=\"", ink_style(ink));
                is_open = true;
            }
            fprintf(svg->out, "M%.1f %.0fh%.1f", (double)cell * width,
                    ((double)row + 0.5) * FRAME_ROW_HEIGHT, (double)(end - cell) * width);
        }
    }
    fputs(is_open ? "\"/>" : "", svg->out);
}

/* Around all that is reserved, so that what is free of it is seen. */
static void draw_edges(const struct flw_svg *svg, const struct paper *paper)
{
    fputs("<path class=\"row edge\" d=\"", svg->out);
    for (size_t row = 0; row < paper->row_count; row++) {
        size_t end = 0;
        while (end < FRAME_CELLS && cell_ink(paper, row * FRAME_CELLS + end) != INK_COUNT) {
            end++;
        }
        fprintf(svg->out, "M0 %.0fh%.1f", ((double)row + 0.5) * FRAME_ROW_HEIGHT,
                (double)end * FLW_SVG_WIDTH / FRAME_CELLS);
    }
    fputs("\"/>", svg->out);
}

static void draw_paper(struct flw_svg *svg, const struct paper *paper, const char *name,
                       const char *sentence)
{
    char number[FLW_SVG_NUMBER_BYTES];
    svg->height = (double)paper->row_count * FRAME_ROW_HEIGHT;
    flw_svg_begin(svg, name, sentence);
    draw_edges(svg, paper);
    for (unsigned ink = 0; ink < INK_COUNT; ink++) {
        draw_ink(svg, paper, ink);
    }
    for (size_t row = 0; row < paper->row_count; row += 4) {
        flw_svg_format(number, FLW_SVG_BYTES, (double)row * paper->cell_bytes * FRAME_CELLS);
        flw_svg_text(svg, "tick end",
                     (struct flw_svg_spot){0, ((double)row + 0.5) * FRAME_ROW_HEIGHT + 4, -6},
                     number);
    }
    flw_svg_end(svg);
}

void flw_picture_frame(const struct flw_sheet_frame *frame, FILE *out)
{
    double total = 0, row_bytes = 65536, begin = 0;
    char number[FLW_SVG_NUMBER_BYTES], sentence[200];
    for (size_t i = 0; i < frame->segment_count; i++) {
        total += (double)frame->segments[i].bytes;
    }
    if (total == 0) {
        fputs("<p class=none>Nothing was reserved at this moment.</p>\n", out);
        return;
    }
    while (row_bytes * FRAME_ROWS < total) {
        row_bytes *= 2;
    }
    struct paper paper = {.cell_bytes = row_bytes / FRAME_CELLS,
                          .row_count = (size_t)(total / row_bytes) + 1};
    paper.bytes = flw_host_alloc(paper.row_count * FRAME_CELLS, sizeof *paper.bytes);
    size_t next_block = 0;
    for (size_t i = 0; i < frame->segment_count; i++) {
        next_block = ink_segment(&paper, frame, next_block, i, begin);
        begin += (double)frame->segments[i].bytes;
    }
    struct flw_svg svg = {.out = out, .x.high = 1, .y.high = 1};
    snprintf(
        sentence, sizeof sentence,
        "Reserved memory in address order, a line is %s. Coloured: allocated, a colour a size; grey: "
        "free; a cell has the colour of most of it.",
        flw_svg_format(number, FLW_SVG_BYTES, row_bytes));
    draw_paper(&svg, &paper, frame->name, sentence);
    fprintf(out, "<p class=hint>%s%s</p>\n", sentence,
            frame->left_out_count != 0 ? " The smallest blocks are left out." : "");
    flw_host_free(paper.bytes);
}

/* ---- addresses over time */

#define ISLAND_GAP_BYTES (64 * FLW_MIB) /* empty address space wider than this is cut out */
#define ISLANDS          256

struct stretch {
    uint64_t begin, end;
};

struct island {
    struct stretch of;
    double offset; /* bytes of the islands before it */
};

static int compare_stretches(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Addresses that were used, less the wide gaps between them. */
static size_t find_islands(const struct stretch *sorted, size_t count, struct island *islands)
{
    size_t island_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct island *last = island_count == 0 ? NULL : &islands[island_count - 1];
        if (last != NULL &&
            (sorted[i].begin <= last->of.end + ISLAND_GAP_BYTES || island_count == ISLANDS)) {
            last->of.end = flw_max(last->of.end, sorted[i].end);
        } else {
            double offset =
                last == NULL ? 0 : last->offset + (double)(last->of.end - last->of.begin);
            islands[island_count++] = (struct island){sorted[i], offset};
        }
    }
    return island_count;
}

static double island_place(const struct island *islands, size_t count, uint64_t address)
{
    size_t i = 0;
    while (i + 1 < count && address >= islands[i + 1].of.begin) {
        i++;
    }
    return islands[i].offset + (double)(address - islands[i].of.begin);
}

#define STRIP_HEIGHT 320.0
#define STRIP_LEAST  1.0  /* pixels: what is smaller either way is drawn as cells */
#define CELL         3.0  /* pixels; page.css and page.js have the same */
#define CELL_FULL    0.97 /* of a cell: no dot is left out where next to nothing is free */
#define CELL_COLUMNS 333
#define CELL_ROWS    107

/* A zoomed picture draws the listed blocks anew, each at its place (page.js), and keeps the cells of the merged ones. */
enum layer {
    LAYER_LISTED,
    LAYER_MERGED,
    LAYER_COUNT
};

#define INKS (LAYER_COUNT * COLOURS)

/* Small blocks, of which many lie in a pixel: how much of each cell they take while it lasts, by ink.
 * A cell is painted whole or not at all, so often as blocks take it: what is painted of the picture is
 * what is live of it, neither more, as if each had its own pixel, nor less. */
struct cells {
    float (*share)[INKS];
    double owed[LAYER_COUNT]; /* of a cell: painted too little so far */
};

/* Of one cell, from `low` to `high` in cells. */
static double overlap(double low, double high, size_t cell)
{
    double begin = low > (double)cell ? low : (double)cell;
    double end = high < (double)cell + 1 ? high : (double)cell + 1;
    return end > begin ? end - begin : 0;
}

/* So much of the box is taken. */
static void ink_cells(struct cells *cells, const struct flw_svg_box *box, double share,
                      unsigned ink)
{
    double left = box->x / CELL, right = (box->x + box->width) / CELL;
    double top = box->y / CELL, bottom = (box->y + box->height) / CELL;
    for (size_t row = (size_t)top; row < CELL_ROWS && (double)row < bottom; row++) {
        double height = share * overlap(top, bottom, row);
        for (size_t column = (size_t)left; column < CELL_COLUMNS && (double)column < right;
             column++) {
            cells->share[row * CELL_COLUMNS + column][ink] +=
                (float)(height * overlap(left, right, column));
        }
    }
}

/* INKS: not painted. */
static unsigned choose_cell(struct cells *cells, size_t cell)
{
    const float *share = cells->share[cell];
    double sum = 0, owed = 0;
    unsigned most[LAYER_COUNT];
    for (unsigned layer = 0; layer < LAYER_COUNT; layer++) {
        unsigned first = layer * COLOURS;
        double part = 0;
        most[layer] = first;
        for (unsigned ink = first; ink < first + COLOURS; ink++) {
            part += (double)share[ink];
            most[layer] = share[ink] > share[most[layer]] ? ink : most[layer];
        }
        cells->owed[layer] += part;
        owed += cells->owed[layer];
        sum += part;
    }
    if (sum == 0 || (sum <= CELL_FULL && owed < 0.5)) {
        return INKS;
    }
    bool is_merged =
        share[most[LAYER_LISTED]] == 0 ||
        (share[most[LAYER_MERGED]] != 0 && cells->owed[LAYER_MERGED] > cells->owed[LAYER_LISTED]);
    enum layer layer = is_merged ? LAYER_MERGED : LAYER_LISTED;
    cells->owed[layer] -= sum > CELL_FULL ? sum : 1;
    return most[layer];
}

/* Runs of cells of one ink as thick strokes; in a row each run but the first says how far it is from the last. */
static void draw_ink_of_cells(const uint8_t *chosen, unsigned ink, FILE *out)
{
    static const char *const layers[] = {[LAYER_LISTED] = "listed", [LAYER_MERGED] = "merged"};
    bool is_open = false;
    for (size_t row = 0; row < CELL_ROWS; row++) {
        const uint8_t *cells = &chosen[row * CELL_COLUMNS];
        size_t last = CELL_COLUMNS;
        for (size_t begin = 0, end; begin < CELL_COLUMNS; begin = end) {
            end = begin + 1;
            while (end < CELL_COLUMNS && cells[end] == cells[begin]) {
                end++;
            }
            if (cells[begin] != ink) {
                continue;
            }
            if (!is_open) {
                fprintf(out, "<path class=\"row cell %s %s\" d=\"", layers[ink / COLOURS],
                        flw_picture_colour(ink % COLOURS));
            }
            if (last == CELL_COLUMNS) {
                fprintf(out, "M%.0f %.1f", (double)begin * CELL, ((double)row + 0.5) * CELL);
            } else {
                fprintf(out, "m%.0f 0", (double)(begin - last) * CELL);
            }
            fprintf(out, "h%.0f", (double)(end - begin) * CELL);
            is_open = true;
            last = end;
        }
    }
    fputs(is_open ? "\"/>" : "", out);
}

static void draw_cells(struct cells *cells, FILE *out)
{
    size_t count = (size_t)CELL_COLUMNS * CELL_ROWS;
    uint8_t *chosen = flw_host_alloc(count, 1);
    for (size_t i = 0; i < count; i++) {
        chosen[i] = (uint8_t)choose_cell(cells, i);
    }
    for (unsigned ink = 0; ink < INKS; ink++) {
        draw_ink_of_cells(chosen, ink, out);
    }
    flw_host_free(chosen);
}

struct strip {
    struct flw_svg svg;
    const struct flw_sheet_policy *policy;
    const struct flw_sheet_rectangle **blocks; /* the heaviest first */
    size_t count;
    struct island islands[ISLANDS];
    size_t island_count;
};

static void find_places(struct strip *strip)
{
    const struct flw_sheet_policy *policy = strip->policy;
    size_t count = strip->count + policy->lane_count;
    struct stretch *order = flw_host_alloc(count, sizeof *order);
    for (size_t i = 0; i < strip->count; i++) {
        const struct flw_sheet_rectangle *block = strip->blocks[i];
        order[i] = (struct stretch){block->address, block->address + block->bytes};
    }
    for (size_t i = 0; i < policy->lane_count; i++) {
        order[strip->count + i] = (struct stretch){policy->lanes[i].begin, policy->lanes[i].end};
    }
    qsort(order, count, sizeof *order, compare_stretches);
    strip->island_count = find_islands(order, count, strip->islands);
    const struct island *last = &strip->islands[strip->island_count - 1];
    strip->svg.y =
        (struct flw_svg_axis){.high = last->offset + (double)(last->of.end - last->of.begin),
                              .unit = FLW_SVG_BYTES,
                              .name = "address"};
    flw_host_free(order);
}

static double find_place(const struct strip *strip, uint64_t address)
{
    return island_place(strip->islands, strip->island_count, address);
}

static struct flw_svg_box place_stretch(const struct strip *strip, uint64_t address, uint64_t bytes,
                                        double begin_op, double end_op)
{
    double at = find_place(strip, address);
    double x = flw_svg_x(&strip->svg, begin_op);
    double y = flw_svg_y(&strip->svg, at + (double)bytes);
    return (struct flw_svg_box){x, y, flw_svg_x(&strip->svg, end_op) - x,
                                flw_svg_y(&strip->svg, at) - y};
}

static struct flw_svg_box place_block(const struct strip *strip, size_t i)
{
    const struct flw_sheet_rectangle *block = strip->blocks[i];
    return place_stretch(strip, block->address, block->bytes, (double)block->begin_op,
                         (double)block->end_op);
}

static bool is_own_shape(size_t i, const struct flw_svg_box *box)
{
    return i < FLW_PICTURE_LISTED && box->width >= STRIP_LEAST && box->height >= STRIP_LEAST;
}

static void ink_lane(const struct strip *strip, const struct flw_sheet_lane *lane,
                     struct cells *cells)
{
    double ops = strip->svg.x.high / FLW_SHEET_LANE_COLUMNS;
    uint64_t bytes = lane->end - lane->begin;
    for (size_t column = 0; column < FLW_SHEET_LANE_COLUMNS; column++) {
        struct flw_svg_box box = place_stretch(strip, lane->begin, bytes, (double)column * ops,
                                               (double)(column + 1) * ops);
        for (unsigned kind = 0; kind < COLOURS; kind++) {
            double share = lane->byte_ops[column][kind] / ((double)bytes * ops);
            if (share > 0) {
                ink_cells(cells, &box, share, LAYER_MERGED * COLOURS + kind);
            }
        }
    }
}

/* Returns how many blocks there were that have a rectangle and no shape. */
static size_t draw_small_blocks(const struct strip *strip)
{
    size_t count = 0;
    struct cells cells = {
        .share = flw_host_alloc((size_t)CELL_COLUMNS * CELL_ROWS, sizeof *cells.share)};
    for (size_t i = 0; i < strip->count; i++) {
        struct flw_svg_box box = place_block(strip, i);
        if (!is_own_shape(i, &box)) {
            enum layer layer = i < FLW_PICTURE_LISTED ? LAYER_LISTED : LAYER_MERGED;
            ink_cells(&cells, &box, 1,
                      layer * COLOURS + flw_sheet_size_kind(strip->blocks[i]->bytes));
            count++;
        }
    }
    for (size_t i = 0; i < strip->policy->lane_count; i++) {
        ink_lane(strip, &strip->policy->lanes[i], &cells);
    }
    draw_cells(&cells, strip->svg.out);
    flw_host_free(cells.share);
    return count;
}

/* Corners are rounded each, so that blocks that touch do so on the paper. */
static void draw_large_blocks(const struct strip *strip)
{
    FILE *out = strip->svg.out;
    for (unsigned colour = 0; colour < COLOURS; colour++) {
        bool is_open = false;
        for (size_t i = 0; i < flw_min(strip->count, FLW_PICTURE_LISTED); i++) {
            struct flw_svg_box box = place_block(strip, i);
            if (flw_sheet_size_kind(strip->blocks[i]->bytes) == colour && is_own_shape(i, &box)) {
                if (!is_open) {
                    fprintf(out, "<path class=\"listed %s\" d=\"", flw_picture_colour(colour));
                }
                fprintf(out, "M%.1f %.1fH%.1fV%.1fH%.1fz", box.x, box.y, box.x + box.width,
                        box.y + box.height, box.x);
                is_open = true;
            }
        }
        fputs(is_open ? "\"/>" : "", out);
    }
}

static int compare_block(const void *a, const void *b)
{
    const struct flw_sheet_rectangle *x = a, *y = b;
    return (x->block > y->block) - (x->block < y->block);
}

/* For page.js, hidden: where each block of its list lies in this picture, and how many bytes it takes where they are
 * others than the list says. */
static void write_places(const struct strip *strip, const struct flw_sheet *sheet)
{
    FILE *out = strip->svg.out;
    size_t count;
    const struct flw_sheet_rectangle **listed = flw_picture_list(sheet, &count);
    fputs("<pre hidden class=places>\n", out);
    for (size_t i = 0; i < count; i++) {
        const struct flw_sheet_policy *policy = strip->policy;
        const struct flw_sheet_rectangle *block = bsearch(
            listed[i], policy->rectangles, policy->rectangle_count, sizeof *block, compare_block);
        if (block == NULL) {
            fputs("-\n", out);
        } else {
            bool is_rounded = block->bytes != flw_picture_asked_bytes(sheet, block);
            uint64_t numbers[] = {(uint64_t)find_place(strip, block->address), block->bytes};
            flw_picture_write_numbers(out, numbers, is_rounded ? 2 : 1);
        }
    }
    fputs("</pre>", out);
    flw_host_free(listed);
}

static void say_count(FILE *out, size_t count, const char *one, const char *many)
{
    char number[FLW_SVG_NUMBER_BYTES];
    if (count != 0) {
        fprintf(out, "%s %s; ", flw_svg_format(number, FLW_SVG_COUNT, (double)count),
                count == 1 ? one : many);
    }
}

/* What is painted how. */
static void say_blocks(const struct strip *strip, size_t small_count)
{
    FILE *out = strip->svg.out;
    size_t left_out_count = strip->policy->left_out_count;
    bool has_lanes = strip->policy->lane_count != 0;
    fputs("<p class=hint>", out);
    say_count(out, strip->count - small_count, "block has a shape of its own",
              "blocks have shapes of their own");
    say_count(
        out, small_count + (has_lanes ? left_out_count : 0),
        "block that is smaller than a pixel or weighs less is dots, as dense as it lies",
        "blocks that are smaller than a pixel or weigh less are merged into dots, as dense as they "
        "lie");
    say_count(out, has_lanes ? 0 : left_out_count, "block that weighs least is left out",
              "blocks that weigh least are left out");
    if (small_count != 0 || has_lanes) {
        fputs("a dot that is zoomed into gets stripes, for where in it they lie is not known; ",
              out);
    }
    fputs("empty stretches of more than 64 MiB of address space are cut out.</p>\n", out);
}

void flw_picture_strip(const struct flw_sheet *sheet, const struct flw_sheet_policy *policy,
                       FILE *out)
{
    struct strip strip = {
        .svg = {.out = out, .height = STRIP_HEIGHT, .x = flw_picture_op_axis(sheet)},
        .policy = policy,
        .count = policy->rectangle_count};
    if (strip.count == 0) {
        fputs("<p class=none>This policy's addresses are not known.</p>\n", out);
        return;
    }
    strip.blocks = flw_picture_sort_by_weight(policy);
    find_places(&strip);
    flw_svg_begin(
        &strip.svg, "Addresses over time",
        "Each rectangle is a block: across its life, up its addresses. Where there is none, it is free.");
    flw_svg_draw_axes(&strip.svg);
    size_t small_count = draw_small_blocks(&strip);
    draw_large_blocks(&strip);
    flw_svg_end(&strip.svg);
    write_places(&strip, sheet);
    say_blocks(&strip, small_count);
    flw_host_free(strip.blocks);
}

/* ---- holes over time */

#define HOLE_COLUMNS 128

/* 1 to 5 */
static unsigned shade_of(double share)
{
    return share >= 0.5 ? 5 : share >= 0.2 ? 4 : share >= 0.05 ? 3 : share >= 0.01 ? 2 : 1;
}

void flw_picture_holes(const struct flw_sheet *sheet, const struct flw_sheet_policy *policy,
                       FILE *out)
{
    struct flw_svg svg = {.out = out, .height = 260, .x = flw_picture_op_axis(sheet)};
    size_t columns = policy->hole_column_count;
    uint64_t most = 0;
    unsigned low = FLW_SHEET_SIZE_BINS, high = 0;
    for (size_t c = 0; c < columns; c++) {
        for (unsigned bin = 0; bin < FLW_SHEET_SIZE_BINS; bin++) {
            uint64_t bytes = policy->holes[c].bytes[bin];
            most = flw_max(most, bytes);
            low = bytes != 0 && bin < low ? bin : low;
            high = bytes != 0 && bin > high ? bin : high;
        }
        unsigned largest =
            flw_min(FLW_SHEET_SIZE_BINS - 1,
                    64 - (unsigned)__builtin_clzll(policy->holes[c].largest_request | 1));
        high = flw_max(high, largest);
    }
    if (columns == 0 || most == 0) {
        fputs("<p class=none>There were no holes, or this policy's addresses are not known.</p>\n",
              out);
        return;
    }
    low = low == 0 ? 1 : low;
    svg.y = (struct flw_svg_axis){.low = (double)(1ull << (low - 1)),
                                  .high = (double)(1ull << high),
                                  .is_log = true,
                                  .unit = FLW_SVG_BYTES,
                                  .name = "size of a hole"};
    flw_svg_begin(&svg, "Holes over time",
                  "The stronger the colour, the more free memory lies in holes of that size. The "
                  "line is the largest request: above the colours it has to grow.");
    flw_svg_draw_axes(&svg);
    size_t shown = flw_min(columns, HOLE_COLUMNS);
    double width = FLW_SVG_WIDTH / (double)shown;
    double height = svg.height / (double)(high - low + 1);
    for (unsigned shade = 1; shade <= FLW_PICTURE_SHADES; shade++) {
        fprintf(out, "<path class=s%u d=\"", shade);
        for (size_t c = 0; c < shown; c++) {
            for (unsigned bin = low; bin <= high; bin++) {
                uint64_t bytes = policy->holes[c * columns / shown].bytes[bin];
                if (bytes != 0 && shade_of((double)bytes / (double)most) == shade) {
                    fprintf(out, "M%.1f %.1fh%.1fv%.1fh-%.1fz", (double)c * width,
                            (double)(high - bin) * height, width, height, width);
                }
            }
        }
        fputs("\"/>", out);
    }
    fputs("<path class=\"line request\" d=\"", out);
    for (size_t c = 0; c < shown; c++) {
        uint64_t request = 1;
        for (size_t i = c * columns / shown; i < (c + 1) * columns / shown; i++) {
            request = flw_max(request, policy->holes[i].largest_request);
        }
        double y = flw_svg_y(&svg, (double)request);
        fprintf(out, c == 0 ? "M%.1f %.1f" : "H%.1fV%.1f", (double)c * width, y);
    }
    fprintf(out, "H%.1f\"/>", FLW_SVG_WIDTH);
    flw_svg_end(&svg);
}
