/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pictures of what the program asked for: blocks stacked over time, sizes, lifetimes; and what
 * the page's script (page.js) reads: blocks with their stacks.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "report/owner.h"
#include "report/picture.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

/* ---- blocks stacked over time */

#define POLYGONS 90

struct step {
    double op, below_bytes;
};

struct polygon {
    const struct flw_sheet_rectangle *rectangle;
    struct step *steps; /* POLYGONS * 2 at most: each other one comes and goes once */
    size_t step_count;
};

static int compare_begin(const void *a, const void *b)
{
    const struct polygon *x = a, *y = b;
    uint64_t bx = x->rectangle->begin_op, by = y->rectangle->begin_op;
    return bx != by ? (bx > by) - (bx < by)
                    : (x->rectangle->block > y->rectangle->block) -
                          (x->rectangle->block < y->rectangle->block);
}

/* The heaviest, in order of their beginning. */
static size_t choose_polygons(const struct flw_sheet_policy *policy, struct polygon *polygons)
{
    size_t count = policy->rectangle_count;
    const struct flw_sheet_rectangle **order = flw_picture_sort_by_weight(policy);
    size_t chosen = flw_min(count, POLYGONS);
    for (size_t i = 0; i < chosen; i++) {
        polygons[i].rectangle = order[i];
        polygons[i].step_count = 0;
    }
    flw_host_free(order);
    qsort(polygons, chosen, sizeof *polygons, compare_begin);
    return chosen;
}

static void add_step(struct polygon *polygon, uint64_t op, double below)
{
    polygon->steps[polygon->step_count++] = (struct step){(double)op, below};
}

/* A new block lies on top; what lies above one that ends comes down. */
static double stack_polygons(struct polygon *polygons, size_t count)
{
    struct polygon *stack[POLYGONS];
    size_t height = 0;
    double top = 0, highest = 0;
    for (size_t next = 0; next < count || height > 0;) {
        size_t first = 0;
        for (size_t i = 1; i < height; i++) {
            first = stack[i]->rectangle->end_op < stack[first]->rectangle->end_op ? i : first;
        }
        bool ends = height > 0 && (next == count || stack[first]->rectangle->end_op <=
                                                        polygons[next].rectangle->begin_op);
        if (!ends) {
            add_step(&polygons[next], polygons[next].rectangle->begin_op, top);
            top += (double)polygons[next].rectangle->bytes;
            highest = top > highest ? top : highest;
            stack[height++] = &polygons[next++];
            continue;
        }
        uint64_t op = stack[first]->rectangle->end_op;
        double bytes = (double)stack[first]->rectangle->bytes;
        for (size_t i = first + 1; i < height; i++) {
            struct polygon *above = stack[i];
            add_step(above, op, above->steps[above->step_count - 1].below_bytes - bytes);
            stack[i - 1] = above;
        }
        height--;
        top -= bytes;
    }
    return highest;
}

/* Thinner ones have no outline: it has the paper's colour and would cover them. */
#define OUTLINED_LEAST 1.0

static bool is_outlined(const struct flw_svg *svg, const struct flw_sheet_rectangle *block)
{
    return flw_svg_x(svg, (double)block->end_op) - flw_svg_x(svg, (double)block->begin_op) >=
               OUTLINED_LEAST &&
           flw_svg_y(svg, 0) - flw_svg_y(svg, (double)block->bytes) >= OUTLINED_LEAST;
}

static void draw_polygon(const struct flw_svg *svg, const struct polygon *polygon)
{
    const struct flw_sheet_rectangle *block = polygon->rectangle;
    char number[FLW_SVG_NUMBER_BYTES], tip[128];
    fprintf(svg->out, "<path class=\"%s%s\" d=\"", is_outlined(svg, block) ? "area " : "",
            flw_picture_size_colour(block->bytes));
    for (size_t i = 0; i < polygon->step_count; i++) {
        double x = flw_svg_x(svg, polygon->steps[i].op);
        double y = flw_svg_y(svg, polygon->steps[i].below_bytes + (double)block->bytes);
        fprintf(svg->out, i == 0 ? "M%.1f %.1f" : "H%.1fV%.1f", x, y);
    }
    fprintf(svg->out, "H%.1f", flw_svg_x(svg, (double)block->end_op));
    for (size_t i = polygon->step_count; i-- > 0;) {
        fprintf(svg->out, "V%.1fH%.1f", flw_svg_y(svg, polygon->steps[i].below_bytes),
                flw_svg_x(svg, polygon->steps[i].op));
    }
    snprintf(tip, sizeof tip, "block %u: %s, operations %llu to %llu", block->block,
             flw_svg_format(number, FLW_SVG_BYTES, (double)block->bytes),
             (unsigned long long)block->begin_op, (unsigned long long)block->end_op);
    fprintf(svg->out, "z\"><title>%s</title></path>", tip);
}

void flw_picture_active(const struct flw_sheet *sheet, const struct flw_sheet_policy *policy,
                        FILE *out)
{
    struct flw_svg svg = {.out = out, .height = 280, .x = flw_picture_op_axis(sheet)};
    struct polygon polygons[POLYGONS];
    struct step *steps = flw_host_alloc((size_t)POLYGONS * 2 * POLYGONS, sizeof *steps);
    size_t count = choose_polygons(policy, polygons);
    if (count == 0) {
        fputs("<p class=none>No blocks to show.</p>\n", out);
        flw_host_free(steps);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        polygons[i].steps = steps + i * 2 * POLYGONS;
    }
    double highest = stack_polygons(polygons, count);
    svg.y = (struct flw_svg_axis){.high = 1.05 * highest, .unit = FLW_SVG_BYTES};
    flw_svg_begin(&svg, "The blocks that weigh most, stacked while they live",
                  "Each shape is one block: as high as its size, as long as its life.");
    flw_svg_draw_axes(&svg);
    for (size_t i = 0; i < count; i++) {
        draw_polygon(&svg, &polygons[i]);
    }
    flw_svg_end(&svg);
    fprintf(
        out,
        "<p class=hint>%zu of %zu blocks, the heaviest by size times lifetime, stacked; a colour a size.</p>\n",
        count, policy->rectangle_count + policy->left_out_count);
    flw_host_free(steps);
}

/* ---- the blocks of any moment, for page.js: lines of numbers and of names */

#define MOMENT_DEPTH       96 /* frames of a stack, the innermost */
#define MOMENT_NATIVE      24 /* ... of these that are not Python's: interpreters call themselves */
#define MOMENT_STACK_BYTES 150000 /* of all stacks, and of all names; what is beyond has no stack */

/* Numbers within the page, given in the order in which they are met; 0: none. */
struct moments {
    const struct flw_sheet *sheet;
    const struct flw_trace *trace;
    const struct flw_owners *owners; /* NULL: not known */
    size_t *record_of_block;         /* by block of the trace: the record that asked for it */
    uint32_t *owner_numbers;         /* by owner */
    uint32_t owner_count;
    uint32_t *stack_numbers; /* by stack of the trace */
    uint32_t *frame_numbers; /* by frame of the trace */
    uint32_t *frames;        /* by number less 1 */
    uint32_t stack_count, frame_count;
    size_t stack_bytes, name_bytes;
};

static void find_records(struct moments *moments)
{
    const struct flw_trace *trace = moments->trace;
    for (size_t i = 0; i < trace->initial_count; i++) {
        moments->record_of_block[i] = i;
    }
    for (size_t i = 0; trace->block_count != 0 && i < trace->event_count; i++) {
        if (trace->events[i].op == FLW_TRACE_ALLOC) {
            moments->record_of_block[trace->events[i].block] = trace->initial_count + i;
        }
    }
}

static uint32_t stack_of(const struct moments *moments, const struct flw_sheet_rectangle *block)
{
    return block->block < moments->trace->block_count
               ? flw_trace_stack(moments->trace, moments->record_of_block[block->block])
               : 0;
}

static bool is_python(const struct flw_stacks *stacks, uint32_t frame)
{
    const char *file = flw_stacks_text(stacks, stacks->frames[frame].file);
    size_t length = strlen(file);
    return length > 3 && strcmp(file + length - 3, ".py") == 0;
}

/* Its line, counted from 0. */
static uint32_t number_frame(struct moments *moments, uint32_t frame)
{
    const struct flw_stacks *stacks = &moments->trace->stacks;
    if (moments->frame_numbers[frame] == 0) {
        const struct flw_frame *of = &stacks->frames[frame];
        moments->frames[moments->frame_count++] = frame;
        moments->frame_numbers[frame] = moments->frame_count;
        moments->name_bytes += strlen(flw_stacks_text(stacks, of->function)) +
                               strlen(flw_stacks_text(stacks, of->file)) + 10;
    }
    return moments->frame_numbers[frame] - 1;
}

static void write_stack(struct moments *moments, uint32_t stack, FILE *out)
{
    const struct flw_stacks *stacks = &moments->trace->stacks;
    struct flw_stack_walk walk = flw_stacks_walk(stacks, stack);
    uint32_t frame;
    bool has_room =
        moments->stack_bytes < MOMENT_STACK_BYTES && moments->name_bytes < MOMENT_STACK_BYTES;
    if (stack == 0 || moments->stack_numbers[stack] != 0 || !has_room) {
        return;
    }
    moments->stack_numbers[stack] = ++moments->stack_count;
    size_t count = 0;
    for (size_t natives = 0; count < MOMENT_DEPTH && flw_stacks_next(&walk, &frame);) {
        if (is_python(stacks, frame) || natives++ < MOMENT_NATIVE) {
            moments->stack_bytes +=
                (size_t)fprintf(out, count++ == 0 ? "%u" : " %u", number_frame(moments, frame));
        }
    }
    fputc('\n', out);
}

static void write_frame(const struct moments *moments, uint32_t number, FILE *out)
{
    const struct flw_stacks *stacks = &moments->trace->stacks;
    const struct flw_frame *frame = &stacks->frames[moments->frames[number]];
    const char *function = flw_stacks_text(stacks, frame->function);
    const char *file = flw_stacks_text(stacks, frame->file);
    flw_svg_escape(out, function[0] == '\0' ? "?" : function); /* a line is never empty */
    fputs(file[0] != '\0' ? " (" : "", out);
    flw_svg_escape(out, file);
    if (file[0] != '\0') {
        fprintf(out, frame->line != 0 ? ":%u)" : ")", frame->line);
    }
    fputc('\n', out);
}

void flw_picture_write_numbers(FILE *out, const uint64_t *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%" PRIx64 "%c", numbers[i], i + 1 < count ? ' ' : '\n');
    }
}

/* The names of owners, in the order in which they get their numbers. */
static void write_owner(struct moments *moments, const struct flw_sheet_rectangle *block, FILE *out)
{
    if (moments->owners == NULL || block->block >= moments->trace->block_count) {
        return;
    }
    uint32_t owner = moments->owners->of_record[moments->record_of_block[block->block]];
    if (moments->owner_numbers[owner] == 0) {
        moments->owner_numbers[owner] = ++moments->owner_count;
        flw_svg_escape(out, flw_owners_short_name(moments->owners, owner));
        fputc('\n', out);
    }
}

uint64_t flw_picture_asked_bytes(const struct flw_sheet *sheet,
                                 const struct flw_sheet_rectangle *block)
{
    const struct flw_trace *trace = sheet->trace;
    return block->block < trace->block_count ? trace->blocks[block->block].size_bytes
                                             : block->bytes;
}

static void write_block(const struct moments *moments, const struct flw_sheet_rectangle *block,
                        FILE *out)
{
    const struct flw_trace *trace = moments->sheet->trace;
    bool is_known = block->block < trace->block_count;
    size_t record = is_known ? moments->record_of_block[block->block] : 0;
    uint32_t stack = stack_of(moments, block), owner = 0;
    uint64_t stream = is_known ? trace->streams[block->stream] : block->stream;
    if (is_known && moments->owners != NULL) {
        owner = moments->owner_numbers[moments->owners->of_record[record]];
    }
    uint64_t numbers[] = {block->begin_op,
                          block->end_op - block->begin_op,
                          flw_picture_asked_bytes(moments->sheet, block),
                          stack == 0 ? 0 : moments->stack_numbers[stack],
                          owner,
                          stream};
    flw_picture_write_numbers(out, numbers, sizeof numbers / sizeof *numbers);
}

#define LIVE_COLUMNS 500

/* What is live in each column, for where not all blocks are listed. */
static void write_live(const struct flw_sheet *sheet, const struct flw_sheet_range *requested,
                       FILE *out)
{
    fputs("<pre hidden id=moment-live>\n", out);
    size_t columns = requested == NULL ? 0 : sheet->columns.count;
    for (size_t i = 0, step = columns / LIVE_COLUMNS + 1; i < columns; i += step) {
        uint64_t numbers[] = {sheet->columns.first_op[i], requested[i].low, requested[i].high};
        for (size_t c = i; c < flw_min(i + step, columns); c++) {
            numbers[1] = flw_min(numbers[1], requested[c].low);
            numbers[2] = flw_max(numbers[2], requested[c].high);
        }
        flw_picture_write_numbers(out, numbers, sizeof numbers / sizeof *numbers);
    }
    fputs("</pre>\n", out);
}

static void write_moments(struct moments *moments, const struct flw_sheet_rectangle *const *blocks,
                          size_t count, FILE *out)
{
    fputs("<pre hidden id=moment-stacks>\n", out);
    for (size_t i = 0; i < count; i++) {
        write_stack(moments, stack_of(moments, blocks[i]), out);
    }
    fputs("</pre><pre hidden id=moment-frames>\n", out);
    for (uint32_t i = 0; i < moments->frame_count; i++) {
        write_frame(moments, i, out);
    }
    fputs("</pre><pre hidden id=moment-owners>\n", out);
    for (size_t i = 0; i < count; i++) {
        write_owner(moments, blocks[i], out);
    }
    fputs("</pre><pre hidden id=moment-blocks>\n", out);
    for (size_t i = 0; i < count; i++) {
        write_block(moments, blocks[i], out);
    }
    fputs("</pre>\n", out);
}

const struct flw_sheet_policy *flw_picture_find_known(const struct flw_sheet *sheet)
{
    size_t i = 0;
    while (i < sheet->policy_count && sheet->policies[i].rectangle_count == 0) {
        i++;
    }
    return i == sheet->policy_count ? NULL : &sheet->policies[i];
}

const struct flw_sheet_rectangle **flw_picture_list(const struct flw_sheet *sheet,
                                                    size_t *out_count)
{
    const struct flw_sheet_policy *policy = flw_picture_find_known(sheet);
    *out_count = policy == NULL ? 0 : flw_min(policy->rectangle_count, FLW_PICTURE_LISTED);
    return policy == NULL ? NULL : flw_picture_sort_by_weight(policy);
}

bool flw_picture_write_moments(const struct flw_sheet *sheet, FILE *out)
{
    const struct flw_trace *trace = sheet->trace;
    const struct flw_sheet_policy *policy = flw_picture_find_known(sheet);
    struct moments moments = {.sheet = sheet, .trace = trace, .owners = sheet->owners};
    size_t count;
    const struct flw_sheet_rectangle **blocks = flw_picture_list(sheet, &count);
    size_t owner_count = sheet->owners == NULL ? 0 : sheet->owners->count;
    moments.record_of_block = flw_host_alloc(trace->block_count, sizeof *moments.record_of_block);
    moments.owner_numbers = flw_host_alloc(owner_count, sizeof(uint32_t));
    moments.stack_numbers = flw_host_alloc(trace->stacks.stack_count, sizeof(uint32_t));
    moments.frame_numbers = flw_host_alloc(trace->stacks.frame_count, sizeof(uint32_t));
    moments.frames = flw_host_alloc(trace->stacks.frame_count, sizeof(uint32_t));
    find_records(&moments);
    write_moments(&moments, blocks, count, out);
    bool has_all = count == policy->rectangle_count + policy->left_out_count;
    if (!has_all) {
        write_live(sheet, policy->requested, out);
    }
    flw_host_free(moments.record_of_block);
    flw_host_free(moments.owner_numbers);
    flw_host_free(moments.stack_numbers);
    flw_host_free(moments.frame_numbers);
    flw_host_free(moments.frames);
    flw_host_free(blocks);
    return has_all;
}

/* ---- sizes and lifetimes */

struct bins {
    unsigned low, high; /* the first and the last that hold anything */
    uint64_t most;
};

static struct bins find_bins(const uint64_t *values, unsigned count)
{
    struct bins bins = {.low = count};
    for (unsigned i = 0; i < count; i++) {
        if (values[i] != 0) {
            bins.low = bins.low == count ? i : bins.low;
            bins.high = i;
            bins.most = flw_max(bins.most, values[i]);
        }
    }
    return bins;
}

static void draw_bars(const struct flw_svg *svg, const uint64_t *values, const struct bins *bins,
                      enum flw_svg_unit bin_unit, const char *style)
{
    double width = FLW_SVG_WIDTH / (double)(bins->high - bins->low + 1);
    unsigned every = 1 + (bins->high - bins->low) / 12;
    char from[FLW_SVG_NUMBER_BYTES], value[FLW_SVG_NUMBER_BYTES], tip[96];
    for (unsigned i = bins->low; i <= bins->high; i++) {
        double x = (double)(i - bins->low) * width;
        double y = flw_svg_y(svg, (double)values[i]);
        flw_svg_format(from, bin_unit, (double)(1ull << i));
        flw_svg_format(value, svg->y.unit, (double)values[i]);
        snprintf(tip, sizeof tip, "%s%s: %s", bin_unit == FLW_SVG_BYTES ? "up to " : "from ", from,
                 value);
        flw_svg_rectangle(svg, style, (struct flw_svg_box){x + 1, y, width - 2, svg->height - y},
                          tip);
        unsigned number = (i - bins->low) / every;
        if ((i - bins->low) % every == 0) {
            flw_svg_text(svg, number % 4 == 0 ? "tick middle" : "tick middle few",
                         (struct flw_svg_spot){x + width / 2, svg->height + 14, 0}, from);
        }
    }
}

static void draw_bar_picture(struct flw_svg *svg, const uint64_t *values, unsigned count,
                             enum flw_svg_unit bin_unit, const char *title, const char *description)
{
    struct bins bins = find_bins(values, count);
    if (bins.most == 0) {
        fputs("<p class=none>Nothing was requested.</p>\n", svg->out);
        return;
    }
    svg->y.high = 1.05 * (double)bins.most;
    svg->x = (struct flw_svg_axis){.high = 1, .is_bare = true}; /* bars have their own numbers */
    flw_svg_begin(svg, title, description);
    flw_svg_draw_axes(svg);
    draw_bars(svg, values, &bins, bin_unit, "bar");
    flw_svg_end(svg);
}

void flw_picture_sizes(const struct flw_sheet *sheet, FILE *out)
{
    struct flw_svg count = {.out = out, .height = 150};
    count.y.name = "requests of a size";
    draw_bar_picture(&count, sheet->size_count, FLW_SHEET_SIZE_BINS, FLW_SVG_BYTES,
                     "How many requests of which size", "One bar a power of two.");
    struct flw_svg bytes = {.out = out, .height = 150};
    bytes.y.unit = FLW_SVG_BYTES;
    bytes.y.name = "bytes in requests of a size";
    draw_bar_picture(&bytes, sheet->size_bytes, FLW_SHEET_SIZE_BINS, FLW_SVG_BYTES,
                     "How many bytes in requests of which size", "One bar a power of two.");
}

/* 5 for the most, one less for each quarter of it. */
static unsigned shade_of(uint32_t count, uint32_t most)
{
    unsigned shade = 5;
    for (uint64_t bound = most; shade > 1 && count < bound / 4 + 1; bound /= 4) {
        shade--;
    }
    return shade;
}

static void draw_size_life(const struct flw_sheet *sheet, FILE *out)
{
    struct flw_svg svg = {.out = out, .height = 240};
    uint64_t sizes[FLW_SHEET_SIZE_BINS] = {0}, lives[FLW_SHEET_LIFE_BINS] = {0};
    uint32_t most = 0;
    for (unsigned s = 0; s < FLW_SHEET_SIZE_BINS; s++) {
        for (unsigned l = 0; l < FLW_SHEET_LIFE_BINS; l++) {
            sizes[s] += sheet->size_life[s][l];
            lives[l] += sheet->size_life[s][l];
            most = flw_max(most, sheet->size_life[s][l]);
        }
    }
    struct bins size = find_bins(sizes, FLW_SHEET_SIZE_BINS);
    struct bins life = find_bins(lives, FLW_SHEET_LIFE_BINS);
    if (most == 0) {
        return;
    }
    unsigned low = size.low == 0 ? 1 : size.low;
    svg.y = (struct flw_svg_axis){.low = (double)(1ull << (low - 1)),
                                  .high = (double)(1ull << flw_max(low, size.high)),
                                  .is_log = true,
                                  .unit = FLW_SVG_BYTES,
                                  .name = "size"};
    svg.x = (struct flw_svg_axis){.low = (double)(1ull << life.low),
                                  .high = (double)(1ull << (life.high + 1)),
                                  .is_log = true,
                                  .name = "lifetime in operations"};
    flw_svg_begin(&svg, "Size and lifetime together",
                  "The stronger the colour, the more blocks of that size live that long.");
    flw_svg_draw_axes(&svg);
    double width = FLW_SVG_WIDTH / (double)(life.high - life.low + 1);
    double height = svg.height / (double)(flw_max(low, size.high) - low + 1);
    unsigned top = flw_max(low, size.high);
    for (unsigned shade = 1; shade <= FLW_PICTURE_SHADES; shade++) {
        fprintf(out, "<path class=s%u d=\"", shade);
        for (unsigned s = 0; s <= size.high; s++) {
            for (unsigned l = life.low; l <= life.high; l++) {
                uint32_t count = sheet->size_life[s][l];
                if (count != 0 && shade_of(count, most) == shade) {
                    fprintf(out, "M%.1f %.1fh%.1fv%.1fh-%.1fz", (double)(l - life.low) * width,
                            (double)(top - flw_max(low, s)) * height, width, height, width);
                }
            }
        }
        fputs("\"/>", out);
    }
    flw_svg_end(&svg);
}

void flw_picture_lifetimes(const struct flw_sheet *sheet, FILE *out)
{
    struct flw_svg svg = {.out = out, .height = 150};
    svg.y.name = "blocks that live so many operations";
    draw_bar_picture(&svg, sheet->life_count, FLW_SHEET_LIFE_BINS, FLW_SVG_COUNT,
                     "How long blocks live, in operations", "One bar a power of two.");
    draw_size_life(sheet, out);
}
