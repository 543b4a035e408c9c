/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pictures over time: one policy's memory, all policies over each other, live bytes by
 * owner.
 */

#include "base/bits.h"
#include "report/picture.h"
#include "trace/trace.h"

/* Of a picture: the more series, the fewer, since the page's size is bounded. */
#define OVERLAY_COLUMNS  480
#define TIMELINE_COLUMNS 240
#define STACK_COLUMNS    160

const char *flw_picture_colour(size_t i)
{
    static const char *const colours[] = {"c0",       "c1",       "c2",       "c3",
                                          "c4",       "c5",       "c6",       "c7",
                                          "c0 again", "c1 again", "c2 again", "c3 again",
                                          "c4 again", "c5 again", "c6 again", "c7 again"};
    return colours[i % (sizeof colours / sizeof *colours)];
}

void flw_picture_legend(FILE *out, const char *style, const char *text, const char *number)
{
    fprintf(out, "<span class=entry><span class=\"key %s\"></span>", style);
    flw_svg_escape(out, text);
    fprintf(out, "%s%s</span> ", number != NULL ? " " : "", number != NULL ? number : "");
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
                                       .name = is_time ? "time" : "operations"};
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
        fprintf(svg->out, "V%.1fH%.1f", bottom, svg->left);
    }
    fputs("z\"/>", svg->out);
}

static void draw_marks(const struct timeline *line)
{
    const struct flw_sheet *sheet = line->sheet;
    const struct flw_svg *svg = &line->svg;
    for (size_t i = 0; i < flw_min(sheet->mark_count, 64); i++) {
        const struct flw_sheet_mark *mark = &sheet->marks[i];
        double x = flw_svg_x(svg, (double)mark->begin_op);
        double width = flw_svg_x(svg, (double)mark->end_op) - x;
        struct flw_svg_box box = {x, svg->top, width < 1 ? 1 : width, svg->height};
        flw_svg_rectangle(svg, i % 2 == 0 ? "phase" : "phase odd", box, mark->name);
    }
}

/* A dot and the number, where a series is highest. */
static void draw_peak(const struct timeline *line, const struct flw_sheet_range *series)
{
    const struct flw_svg *svg = &line->svg;
    uint64_t high = highest(line->sheet, series);
    char number[FLW_SVG_NUMBER_BYTES], text[64];
    for (size_t i = 0; i < line->count; i++) {
        struct slice slice = slice_at(line, i);
        if (merge(series, &slice).high != high) {
            continue;
        }
        double x = slice.x0, y = flw_svg_y(svg, (double)high);
        bool is_right = x > FLW_SVG_WIDTH * 0.75;
        snprintf(text, sizeof text, "peak %s", flw_svg_format(number, FLW_SVG_BYTES, (double)high));
        fprintf(svg->out, "<circle class=peak cx=%.1f cy=%.1f r=\"3\"/>", x, y);
        flw_svg_text(svg, is_right ? "note end" : "note", is_right ? x - 6 : x + 6, y - 4, false,
                     text);
        return;
    }
}

void flw_picture_timeline(const struct flw_sheet *sheet, const struct flw_sheet_policy *policy,
                          enum flw_picture_time time, FILE *out)
{
    const struct flw_sheet_range *top =
        policy->reserved != NULL ? policy->reserved : policy->requested;
    char title[2 * FLW_SHEET_NAME_BYTES];
    if (top == NULL || sheet->columns.count == 0) {
        fputs("<p class=none>This policy says how much it needs, not when.</p>\n", out);
        return;
    }
    struct timeline line = make_timeline(sheet, time, TIMELINE_COLUMNS, out);
    line.svg.height = 180;
    line.svg.y = (struct flw_svg_axis){.high = 1.08 * (double)flw_max(1, highest(sheet, top)),
                                       .unit = FLW_SVG_BYTES};
    snprintf(title, sizeof title, "%s: reserved and requested memory", policy->label);
    flw_svg_begin(&line.svg, title,
                  "The area is what was requested, the line above it what was reserved.");
    if (time == FLW_PICTURE_BY_OPS) {
        draw_marks(&line);
    }
    flw_svg_draw_axes(&line.svg);
    if (policy->requested != NULL) {
        draw_area(&line, policy->requested, false, "requested");
        draw_area(&line, policy->requested, true, "requested band");
    }
    if (policy->block != NULL) {
        draw_line(&line, policy->block, "block");
    }
    if (policy->reserved != NULL) {
        draw_line(&line, policy->reserved, "reserved");
        draw_peak(&line, policy->reserved);
    }
    flw_svg_end(&line.svg);
}

void flw_picture_overlay(const struct flw_sheet *sheet, enum flw_picture_time time, FILE *out)
{
    const struct flw_sheet_range *requested = NULL;
    uint64_t high = 1;
    for (size_t i = 0; i < sheet->policy_count; i++) {
        high = flw_max(high, highest(sheet, sheet->policies[i].reserved));
        requested = requested == NULL ? sheet->policies[i].requested : requested;
    }
    if (sheet->columns.count == 0) {
        fputs("<p class=none>Nothing was replayed.</p>\n", out);
        return;
    }
    high = flw_max(high, highest(sheet, requested));
    struct timeline line = make_timeline(sheet, time, OVERLAY_COLUMNS, out);
    line.svg.height = 300;
    line.svg.y = (struct flw_svg_axis){.high = 1.05 * (double)high, .unit = FLW_SVG_BYTES};
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
            flw_picture_legend(out, flw_picture_colour(i), sheet->policies[i].label, NULL);
        }
    }
    flw_picture_legend(out, "requested", "requested", NULL);
    fputs("</p>\n", out);
}

/* The most of a category within one column of the picture. */
static double most_of(const struct flw_sheet_category *category, const struct slice *slice)
{
    uint64_t most = 0;
    for (size_t i = slice->begin; i < slice->end; i++) {
        most = flw_max(most, category->high_bytes[i]);
    }
    return (double)most;
}

/* One layer of a stack; `below` is raised by it. */
static void draw_layer(const struct timeline *line, const struct flw_sheet_category *category,
                       const char *style, double *below)
{
    const struct flw_svg *svg = &line->svg;
    size_t count = line->count;
    fprintf(svg->out, "<path class=\"area %s\" d=\"", style);
    for (size_t i = 0; i < count; i++) {
        struct slice slice = slice_at(line, i);
        double y = flw_svg_y(svg, below[i] + most_of(category, &slice));
        fprintf(svg->out, i == 0 ? "M%.1f %.1f" : "H%.1fV%.1f", slice.x0, y);
        if (i + 1 == count) {
            fprintf(svg->out, "H%.1f", slice.x1);
        }
    }
    for (size_t i = count; i-- > 0;) {
        struct slice slice = slice_at(line, i);
        fprintf(svg->out, "V%.1fH%.1f", flw_svg_y(svg, below[i]), slice.x0);
        below[i] += most_of(category, &slice);
    }
    fputs("z\"><title>", svg->out);
    flw_svg_escape(svg->out, category->name);
    fputs("</title></path>", svg->out);
}

void flw_picture_categories(const struct flw_sheet *sheet, enum flw_sheet_kind kind,
                            enum flw_picture_time time, FILE *out)
{
    size_t count = sheet->category_count[kind];
    double below[STACK_COLUMNS] = {0};
    uint64_t high = 1;
    for (size_t column = 0; column < sheet->columns.count; column++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < count; i++) {
            sum += sheet->categories[kind][i].high_bytes[column];
        }
        high = flw_max(high, sum);
    }
    if (count == 0 || sheet->columns.count == 0) {
        fputs("<p class=none>The trace does not tell.</p>\n", out);
        return;
    }
    struct timeline line = make_timeline(sheet, time, STACK_COLUMNS, out);
    line.svg.height = 240;
    line.svg.y = (struct flw_svg_axis){.high = 1.05 * (double)high, .unit = FLW_SVG_BYTES};
    flw_svg_begin(&line.svg, "Live memory by owner",
                  "Stacked areas, the largest owner at the bottom.");
    flw_svg_draw_axes(&line.svg);
    for (size_t i = 0; i < count; i++) {
        draw_layer(&line, &sheet->categories[kind][i], flw_picture_colour(i), below);
    }
    flw_svg_end(&line.svg);
    fputs("<p class=legend>", out);
    for (size_t i = 0; i < count; i++) {
        char number[FLW_SVG_NUMBER_BYTES];
        const struct flw_sheet_category *category = &sheet->categories[kind][i];
        flw_svg_format(number, FLW_SVG_BYTES, (double)category->at_peak_bytes);
        flw_picture_legend(out, flw_picture_colour(i), category->name, number);
    }
    fputs(
        "<span class=hint>(at the peak; in each column an owner shows its own maximum)</span></p>\n",
        out);
}
