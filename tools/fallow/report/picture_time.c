/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pictures over time: one policy's memory, all policies over each other, live bytes by
 * owner.
 */
#include <string.h>

#include "base/bits.h"
#include "report/picture.h"
#include "trace/trace/trace.h"

/* Of a picture: the more series, the fewer, since the page's size is bounded. */
#define OVERLAY_COLUMNS 480
#define SMALL_COLUMNS   120
#define STACK_COLUMNS   180

/* A colour and, of lines, a pattern of dashes: no two of 32 have both in common. */
const char *flw_picture_colour(size_t i)
{
    static const char *const colours[] = {
        "c0 d0", "c1 d1", "c2 d2",  "c3 d3",  "c4 d0",  "c5 d1",  "c6 d2",  "c7 d3",
        "c8 d0", "c9 d1", "c10 d2", "c11 d3", "c12 d0", "c13 d1", "c14 d2", "c15 d3",
        "c0 d1", "c1 d2", "c2 d3",  "c3 d0",  "c4 d1",  "c5 d2",  "c6 d3",  "c7 d0",
        "c8 d1", "c9 d2", "c10 d3", "c11 d0", "c12 d1", "c13 d2", "c14 d3", "c15 d0"};
    return colours[i % (sizeof colours / sizeof *colours)];
}

static void end_entry(FILE *out, const char *text, const char *number)
{
    flw_svg_escape(out, text);
    if (number != NULL) {
        fprintf(out, " <span class=entry>%s</span>", number);
    }
    fputs("</span> ", out);
}

void flw_picture_legend(FILE *out, const char *style, const char *text, const char *number)
{
    fprintf(out, "<span class=entry><span class=\"key %s\"></span>", style);
    end_entry(out, text, number);
}

void flw_picture_line_legend(FILE *out, const char *style, const char *text, const char *number)
{
    fprintf(out,
            "<span class=entry><svg class=line-key viewBox=\"0 0 28 8\"><path class=\"line %s\" "
            "d=\"M0 4h28\"/></svg>",
            style);
    end_entry(out, text, number);
}

void flw_picture_shades(FILE *out, const char *what)
{
    fputs("<p class=legend>fewer ", out);
    for (unsigned shade = 1; shade <= FLW_PICTURE_SHADES; shade++) {
        fprintf(out, "<span class=\"key s%u\"></span>", shade);
    }
    fputs("more ", out);
    flw_svg_escape(out, what);
    fputs("</p>\n", out);
}

/* What is drawn along one axis of time. */
struct timeline {
    const struct flw_sheet *sheet;
    enum flw_picture_time time;
    size_t count; /* columns of the picture, at most those of the sheet */
    struct flw_svg svg;
};

/* Several columns of the sheet as one of the picture. */
struct slice {
    size_t begin, end; /* columns */
    double x0, x1;     /* on the paper */
};

static double position(const struct timeline *line, size_t column)
{
    return line->time == FLW_PICTURE_BY_TIME ? (double)line->sheet->columns.time_ns[column]
                                             : (double)line->sheet->columns.first_op[column];
}

static struct slice slice_at(const struct timeline *line, size_t i)
{
    size_t columns = line->sheet->columns.count;
    struct slice slice = {.begin = i * columns / line->count,
                          .end = (i + 1) * columns / line->count};
    slice.x0 = flw_svg_x(&line->svg, position(line, slice.begin));
    slice.x1 = flw_svg_x(&line->svg, position(line, slice.end));
    return slice;
}

static struct flw_sheet_range merge(const struct flw_sheet_range *series, const struct slice *slice)
{
    struct flw_sheet_range range = series[slice->begin];
    for (size_t i = slice->begin + 1; i < slice->end; i++) {
        range.low = flw_min(range.low, series[i].low);
        range.high = flw_max(range.high, series[i].high);
    }
    return range;
}

/* The sheet has columns. */
static struct timeline make_timeline(const struct flw_sheet *sheet, enum flw_picture_time time,
                                     size_t most_columns, FILE *out)
{
    struct timeline line = {
        .sheet = sheet, .time = time, .count = flw_min(sheet->columns.count, most_columns)};
    bool is_time = time == FLW_PICTURE_BY_TIME;
    line.svg.out = out;
    line.svg.x = (struct flw_svg_axis){.low = position(&line, 0),
                                       .high = position(&line, sheet->columns.count),
                                       .unit = is_time ? FLW_SVG_NS : FLW_SVG_COUNT,
                                       .name = is_time ? FLW_SVG_TIME : FLW_SVG_OPS};
    if (line.svg.x.high <= line.svg.x.low) {
        line.svg.x.high = line.svg.x.low + 1;
    }
    return line;
}

static uint64_t highest(const struct flw_sheet *sheet, const struct flw_sheet_range *series)
{
    uint64_t high = 0;
    for (size_t i = 0; series != NULL && i < sheet->columns.count; i++) {
        high = flw_max(high, series[i].high);
    }
    return high;
}

/* A step line along the highs. */
static void draw_line(const struct timeline *line, const struct flw_sheet_range *series,
                      const char *style)
{
    const struct flw_svg *svg = &line->svg;
    double last = -1;
    fprintf(svg->out, "<path class=\"line %s\" d=\"", style);
    for (size_t i = 0; i < line->count; i++) {
        struct slice slice = slice_at(line, i);
        double y = flw_svg_y(svg, (double)merge(series, &slice).high);
        if (i == 0) {
            fprintf(svg->out, "M%.1f %.1f", slice.x0, y);
        } else if (y != last) {
            fprintf(svg->out, "H%.1fV%.1f", slice.x0, y);
        }
        last = y;
        if (i + 1 == line->count) {
            fprintf(svg->out, "H%.1f", slice.x1);
        }
    }
    fputs("\"/>", svg->out);
}

/* From the bottom to the lows, or between the lows and the highs. */
static void draw_area(const struct timeline *line, const struct flw_sheet_range *series,
                      bool is_band, const char *style)
{
    const struct flw_svg *svg = &line->svg;
    size_t count = line->count;
    double bottom = flw_svg_y(svg, svg->y.low);
    fprintf(svg->out, "<path class=\"%s\" d=\"", style);
    for (size_t i = 0; i < count; i++) {
        struct slice slice = slice_at(line, i);
        struct flw_sheet_range range = merge(series, &slice);
        double y = flw_svg_y(svg, (double)(is_band ? range.high : range.low));
        fprintf(svg->out, i == 0 ? "M%.1f %.1f" : "H%.1fV%.1f", slice.x0, y);
        if (i + 1 == count) {
            fprintf(svg->out, "H%.1f", slice.x1);
        }
    }
    for (size_t i = count; is_band && i-- > 0;) {
        struct slice slice = slice_at(line, i);
        fprintf(svg->out, "V%.1fH%.1f", flw_svg_y(svg, (double)merge(series, &slice).low),
                slice.x0);
    }
    if (!is_band) {
        fprintf(svg->out, "V%.1fH0", bottom);
    }
    fputs("z\"/>", svg->out);
}

/* Where an op lies along the axis. */
static double op_x(const struct timeline *line, uint64_t op)
{
    const struct flw_sheet_columns *columns = &line->sheet->columns;
    size_t column = flw_sheet_column(columns, flw_min(op, columns->first_op[columns->count] - 1));
    return flw_svg_x(&line->svg, line->time == FLW_PICTURE_BY_TIME
                                     ? (double)columns->time_ns[column]
                                     : (double)op);
}

#define MARKS       64  /* that are drawn */
#define MARK_HEIGHT 5.0 /* of the rail above the drawing, in pixels */

/* Phases as a rail above the drawing. */
static void draw_marks(const struct timeline *line)
{
    const struct flw_sheet *sheet = line->sheet;
    for (size_t i = 0; i < flw_min(sheet->mark_count, MARKS); i++) {
        const struct flw_sheet_mark *mark = &sheet->marks[i];
        double x = op_x(line, mark->begin_op);
        double width = op_x(line, mark->end_op) - x;
        struct flw_svg_box box = {x, -MARK_HEIGHT - 2, width < 2 ? 2 : width, MARK_HEIGHT};
        flw_svg_rectangle(&line->svg, i % 2 == 0 ? "phase" : "phase odd", box, mark->name);
    }
}

/* A dot and what it marks, beside it where there is room. */
static void draw_note(const struct flw_svg *svg, const char *style, double x, double y,
                      const char *text)
{
    bool is_right = x > FLW_SVG_WIDTH * 0.6;
    flw_svg_dot(svg, style, (struct flw_svg_spot){x, y, 0}, 3, NULL);
    flw_svg_text(svg, is_right ? "note end" : "note",
                 (struct flw_svg_spot){x, y - 5, is_right ? -5 : 5}, text);
}

static uint64_t highest_of_all(const struct flw_sheet *sheet)
{
    uint64_t high = 1;
    for (size_t i = 0; i < sheet->policy_count; i++) {
        high = flw_max(high, highest(sheet, sheet->policies[i].reserved));
        high = flw_max(high, highest(sheet, sheet->policies[i].requested));
    }
    return high;
}

#define SMALL_HEIGHT 84

/* One of many on one scale. */
static void draw_small(const struct flw_sheet *sheet, size_t policy_index,
                       enum flw_picture_time time, double high, FILE *out)
{
    const struct flw_sheet_policy *policy = &sheet->policies[policy_index];
    const struct flw_sheet_range *top =
        policy->reserved != NULL ? policy->reserved : policy->requested;
    char title[2 * FLW_SHEET_NAME_BYTES], number[FLW_SVG_NUMBER_BYTES];
    struct timeline line = make_timeline(sheet, time, SMALL_COLUMNS, out);
    fputs("<figure><figcaption>", out);
    flw_picture_line_legend(out, flw_picture_colour(policy_index), policy->label,
                            flw_svg_format(number, FLW_SVG_BYTES, (double)highest(sheet, top)));
    fputs("</figcaption>", out);
    line.svg.height = SMALL_HEIGHT;
    line.svg.x.is_bare = true;
    line.svg.x.name = NULL;
    line.svg.y = (struct flw_svg_axis){.high = high, .unit = FLW_SVG_BYTES};
    snprintf(title, sizeof title, "%s: reserved and requested memory", policy->label);
    flw_svg_begin(&line.svg, title,
                  "The area is what was requested, the line above it what was reserved.");
    flw_svg_draw_axes(&line.svg);
    if (policy->requested != NULL) {
        draw_area(&line, policy->requested, false, "requested");
        draw_area(&line, policy->requested, true, "requested band");
    }
    if (policy->reserved != NULL) {
        draw_line(&line, policy->reserved, flw_picture_colour(policy_index));
    }
    flw_svg_end(&line.svg);
    fputs("</figure>", out);
}

void flw_picture_small_multiples(const struct flw_sheet *sheet, enum flw_picture_time time,
                                 FILE *out)
{
    double high = 1.05 * (double)highest_of_all(sheet);
    size_t shown = 0;
    fputs("<div class=smalls>", out);
    for (size_t i = 0; i < sheet->policy_count && sheet->columns.count != 0; i++) {
        if (sheet->policies[i].reserved != NULL || sheet->policies[i].requested != NULL) {
            draw_small(sheet, i, time, high, out);
            shown++;
        }
    }
    fputs(shown == 0 ? "<p class=none>No policy says when it needs how much.</p></div>\n"
                     : "</div>\n",
          out);
}

void flw_picture_overlay(const struct flw_sheet *sheet, enum flw_picture_time time, FILE *out)
{
    const struct flw_sheet_range *requested = NULL;
    for (size_t i = 0; i < sheet->policy_count && requested == NULL; i++) {
        requested = sheet->policies[i].requested;
    }
    if (sheet->columns.count == 0) {
        fputs("<p class=none>Nothing was replayed.</p>\n", out);
        return;
    }
    struct timeline line = make_timeline(sheet, time, OVERLAY_COLUMNS, out);
    line.svg.height = 240;
    line.svg.y =
        (struct flw_svg_axis){.high = 1.05 * (double)highest_of_all(sheet), .unit = FLW_SVG_BYTES};
    flw_svg_begin(&line.svg, "Reserved memory of every policy",
                  "One line a policy; the area is what the program had requested.");
    flw_svg_draw_axes(&line.svg);
    if (requested != NULL) {
        draw_area(&line, requested, false, "requested");
    }
    for (size_t i = sheet->policy_count; i-- > 0;) {
        if (sheet->policies[i].reserved != NULL) {
            draw_line(&line, sheet->policies[i].reserved, flw_picture_colour(i));
        }
    }
    flw_svg_end(&line.svg);
    fputs("<p class=legend>", out);
    for (size_t i = 0; i < sheet->policy_count; i++) {
        if (sheet->policies[i].reserved != NULL) {
            flw_picture_line_legend(out, flw_picture_colour(i), sheet->policies[i].label, NULL);
        }
    }
    flw_picture_legend(out, "requested", "requested", NULL);
    fputs("</p>\n", out);
}

/* ---- owners, stacked ---- */

struct stack {
    struct timeline line;
    const struct flw_sheet_category *categories;
    size_t category_count;
    size_t
        column_of[STACK_COLUMNS]; /* the sheet's column that is shown: the highest of its slice */
    double below[STACK_COLUMNS];  /* what the layers so far add up to */
};

static uint64_t sum_of(const struct stack *stack, size_t column)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < stack->category_count; i++) {
        sum += stack->categories[i].held_bytes[column];
    }
    return sum;
}

/* Returns the highest sum of all. */
static uint64_t choose_columns(struct stack *stack)
{
    uint64_t high = 1;
    for (size_t i = 0; i < stack->line.count; i++) {
        struct slice slice = slice_at(&stack->line, i);
        uint64_t slice_high = 0;
        stack->column_of[i] = slice.begin;
        for (size_t column = slice.begin; column < slice.end; column++) {
            uint64_t sum = sum_of(stack, column);
            if (sum > slice_high) {
                slice_high = sum;
                stack->column_of[i] = column;
            }
        }
        high = flw_max(high, slice_high);
    }
    return high;
}

/* One layer; `below` is raised by it. */
static void draw_layer(struct stack *stack, const struct flw_sheet_category *category,
                       const char *style)
{
    const struct timeline *line = &stack->line;
    const struct flw_svg *svg = &line->svg;
    fprintf(svg->out, "<path class=\"area %s\" d=\"", style);
    for (size_t i = 0; i < line->count; i++) {
        struct slice slice = slice_at(line, i);
        double held = (double)category->held_bytes[stack->column_of[i]];
        double y = flw_svg_y(svg, stack->below[i] + held);
        fprintf(svg->out, i == 0 ? "M%.1f %.1f" : "H%.1fV%.1f", slice.x0, y);
        if (i + 1 == line->count) {
            fprintf(svg->out, "H%.1f", slice.x1);
        }
    }
    for (size_t i = line->count; i-- > 0;) {
        struct slice slice = slice_at(line, i);
        fprintf(svg->out, "V%.1fH%.1f", flw_svg_y(svg, stack->below[i]), slice.x0);
        stack->below[i] += (double)category->held_bytes[stack->column_of[i]];
    }
    fputs("z\"><title>", svg->out);
    flw_svg_escape(svg->out, category->name);
    fputs("</title></path>", svg->out);
}

#define REST_COLOUR 15 /* a grey */

static const char *layer_colour(const struct stack *stack, size_t i)
{
    bool is_rest =
        i > 0 && i + 1 == stack->category_count && strcmp(stack->categories[i].name, "other") == 0;
    return flw_picture_colour(is_rest ? REST_COLOUR : i);
}

static void mark_peak(const struct stack *stack, uint64_t high)
{
    char number[FLW_SVG_NUMBER_BYTES], text[64];
    double x = op_x(&stack->line, stack->line.sheet->peak_op);
    snprintf(text, sizeof text, "peak %s", flw_svg_format(number, FLW_SVG_BYTES, (double)high));
    draw_note(&stack->line.svg, "peak", x, flw_svg_y(&stack->line.svg, (double)high), text);
}

/* A line through all, from what was live up. */
static void mark_oom(const struct stack *stack)
{
    const struct flw_sheet_oom *oom = &stack->line.sheet->oom;
    const struct flw_svg *svg = &stack->line.svg;
    if (oom->count != 0) {
        double x = op_x(&stack->line, oom->op);
        fprintf(svg->out, "<path class=\"line oom\" d=\"M%.1f 0v%.1f\"/>", x, svg->height);
        draw_note(svg, "oom", x, flw_svg_y(svg, (double)oom->live_bytes), "out of memory");
    }
}

void flw_picture_categories(const struct flw_sheet *sheet, enum flw_sheet_kind kind,
                            enum flw_picture_time time, FILE *out)
{
    struct stack stack = {.categories = sheet->categories[kind],
                          .category_count = sheet->category_count[kind]};
    struct flw_svg *svg = &stack.line.svg;
    if (stack.category_count == 0 || sheet->columns.count == 0) {
        fputs("<p class=none>The trace does not tell.</p>\n", out);
        return;
    }
    stack.line = make_timeline(sheet, time, STACK_COLUMNS, out);
    uint64_t high = choose_columns(&stack);
    svg->height = 260;
    svg->y = (struct flw_svg_axis){.high = 1.12 * (double)high, .unit = FLW_SVG_BYTES};
    flw_svg_begin(svg, "Live memory over time, by owner",
                  "Stacked areas, the largest owner at the bottom.");
    flw_svg_draw_axes(svg);
    draw_marks(&stack.line);
    for (size_t i = 0; i < stack.category_count; i++) {
        draw_layer(&stack, &stack.categories[i], layer_colour(&stack, i));
    }
    mark_oom(&stack);
    mark_peak(&stack, high);
    flw_svg_end(svg);
    fputs("<p class=legend>", out);
    for (size_t i = 0; i < stack.category_count; i++) {
        char number[FLW_SVG_NUMBER_BYTES];
        const struct flw_sheet_category *category = &stack.categories[i];
        flw_svg_format(number, FLW_SVG_BYTES, (double)category->at_peak_bytes);
        flw_picture_legend(out, layer_colour(&stack, i), category->name, number);
    }
    fputs("<span class=hint>(at the peak; each column shows the moment at which it is highest)"
          "</span></p>\n",
          out);
}
