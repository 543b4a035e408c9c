/* SPDX-License-Identifier: Apache-2.0 */
#include "report/svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/figures.h"
#include "common/tool_host.h"
#include "trace/io/jsonwriter.h"

#define TOP        26.0 /* pixels above the drawing, and below */
#define BOTTOM     34.0
#define MARGIN     58.0 /* pixels left of the drawing; page.css keeps them free */
#define TICK_ERROR 1e-9 /* of a step: a bound that is a tick, but for rounding */

void flw_svg_escape(FILE *out, const char *text)
{
    const unsigned char *c = (const unsigned char *)text, *end = c + strlen(text);
    while (c < end) {
        size_t length = *c < 0x20 || *c == 0x7f ? 0 : flw_json_utf8_length(c, end);
        switch (*c) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            if (length == 0) {
                fputc('?', out); /* any bytes may be in a trace */
            } else {
                (void)fwrite(c, 1, length, out);
            }
        }
        c += length == 0 ? 1 : length;
    }
}

/* Three figures that matter, and the unit. */
static void format_scaled(char *out, double value, double step, const char *const *units, int count)
{
    int i = 0;
    while (i + 1 < count && value >= step) {
        value /= step;
        i++;
    }
    int decimals = value >= 100 || value == floor(value) ? 0 : value >= 10 ? 1 : 2;
    snprintf(out, FLW_SVG_NUMBER_BYTES, "%.*f %s", decimals, value, units[i]);
}

const char *flw_svg_format(char out[FLW_SVG_NUMBER_BYTES], enum flw_svg_unit unit, double value)
{
    static const char *const bytes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    static const char *const times[] = {"ns", "us", "ms", "s"};
    switch (unit) {
    case FLW_SVG_BYTES:
        format_scaled(out, value, 1024, bytes, 5);
        break;
    case FLW_SVG_NS:
        format_scaled(out, value, 1000, times, 4);
        break;
    case FLW_SVG_RATIO:
        snprintf(out, FLW_SVG_NUMBER_BYTES, "%.3f", value);
        break;
    default:
        flw_format_count((uint64_t)llrint(fmin(fabs(value), 1e15)), out);
    }
    return out;
}

/* What page.js needs of a picture whose x axis it may zoom. */
static void begin_plot(const struct flw_svg *svg)
{
    bool is_by_ops = svg->x.name != NULL && strcmp(svg->x.name, FLW_SVG_OPS) == 0;
    bool is_by_time = svg->x.name != NULL && strcmp(svg->x.name, FLW_SVG_TIME) == 0;
    if (!is_by_ops && !is_by_time) {
        fputs("<div class=plot>", svg->out);
        return;
    }
    fprintf(svg->out, "<div class=\"plot %s\" data-x=\"%.0f %.0f\" data-y=%.0f>",
            is_by_ops ? "ops" : "time", svg->x.low, svg->x.high, svg->y.high);
}

void flw_svg_begin(struct flw_svg *svg, const char *title, const char *description)
{
    svg->over = open_memstream(&svg->over_text, &svg->over_bytes);
    if (svg->over == NULL) {
        flw_host_refuse(1, BUFSIZ);
    }
    begin_plot(svg);
    fprintf(svg->out, "<svg role=img height=%.0f><title>", svg->height + TOP + BOTTOM);
    flw_svg_escape(svg->out, title);
    fputs("</title><desc>", svg->out);
    flw_svg_escape(svg->out, description);
    fprintf(svg->out,
            "</desc><svg class=shapes y=%.0f height=%.0f viewBox=\"0 0 %.0f %.0f\" "
            "preserveAspectRatio=none>",
            TOP, svg->height, FLW_SVG_WIDTH, svg->height);
}

void flw_svg_end(struct flw_svg *svg)
{
    bool is_whole = fclose(svg->over) == 0;
    if (!is_whole || svg->over_text == NULL) {
        flw_host_refuse(1, svg->over_bytes);
    }
    fputs("</svg>", svg->out);
    fputs(svg->over_text, svg->out);
    fputs("</svg></div>\n", svg->out);
    free(svg->over_text);
}

static double place(const struct flw_svg_axis *axis, double value)
{
    double low = axis->low, high = axis->high;
    if (axis->is_log || axis->has_zero) {
        double more = axis->has_zero ? 1 : 0;
        value = log(more + fmax(value, low));
        low = log(more + low);
        high = log(more + high);
    }
    return fmin(1, fmax(0, (value - low) / (high - low)));
}

double flw_svg_x(const struct flw_svg *svg, double value)
{
    return FLW_SVG_WIDTH * place(&svg->x, value);
}

double flw_svg_y(const struct flw_svg *svg, double value)
{
    return svg->height * (1 - place(&svg->y, value));
}

/* A round step that cuts the axis into about `count`: 1, 2 or 5 of a power of ten; bytes in powers of
 * two. */
static double round_step(const struct flw_svg_axis *axis, double count)
{
    double step = (axis->high - axis->low) / count;
    if (axis->unit == FLW_SVG_BYTES) {
        return fmax(1, exp2(ceil(log2(step) - 0.25))); /* a few more rather than half as many */
    }
    if (axis->unit == FLW_SVG_COUNT) {
        step = fmax(1, step);
    }
    double power = pow(10, floor(log10(step)));
    double times = step / power;
    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

/* Every other number along x is one of "few": a narrow screen has no room for it. */
static void draw_tick(const struct flw_svg *svg, bool is_x, long number, double value)
{
    char text[FLW_SVG_NUMBER_BYTES];
    const struct flw_svg_axis *axis = is_x ? &svg->x : &svg->y;
    flw_svg_format(text, axis->unit, value);
    if (is_x) {
        double x = flw_svg_x(svg, value);
        bool is_last = x > 0.97 * FLW_SVG_WIDTH;
        fprintf(svg->out, "<path class=\"grid at-x\" d=\"M%.1f 0v%.1f\"/>", x, svg->height);
        flw_svg_text(svg,
                     number % 2 == 0 ? (is_last ? "tick at-x end" : "tick at-x middle")
                                     : (is_last ? "tick at-x end few" : "tick at-x middle few"),
                     (struct flw_svg_spot){x, svg->height + 14, is_last ? 12 : 0}, text);
    } else {
        double y = flw_svg_y(svg, value);
        fprintf(svg->out, "<path class=\"grid at-y\" d=\"M0 %.1fh%.0f\"/>", y, FLW_SVG_WIDTH);
        flw_svg_text(svg, "tick at-y end", (struct flw_svg_spot){0, y + 4, -6}, text);
    }
}

/* Ratios stay near each other. */
static void draw_ratio_ticks(const struct flw_svg *svg, bool is_x, const struct flw_svg_axis *axis)
{
    static const double wide[] = {1, 1.5, 2, 3, 5, 7},
                        narrow[] = {1, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 5, 7};
    bool is_wide = axis->high > 3 * axis->low;
    long number = 0;
    const double *steps = is_wide ? wide : narrow;
    size_t count = is_wide ? sizeof wide / sizeof *wide : sizeof narrow / sizeof *narrow;
    int first = (int)floor(log10(axis->low)), last = (int)floor(log10(axis->high));
    for (int power = first; power <= last; power++) {
        for (size_t i = 0; i < count; i++) {
            double value = pow(10, power) * steps[i];
            if (value >= axis->low && value <= axis->high) {
                draw_tick(svg, is_x, number++, value);
            }
        }
    }
}

static void draw_ticks(const struct flw_svg *svg, bool is_x)
{
    const struct flw_svg_axis *axis = is_x ? &svg->x : &svg->y;
    if (axis->is_bare || !(axis->high > axis->low)) {
        return;
    }
    if (axis->has_zero) {
        draw_tick(svg, is_x, 0, 0);
        for (int power = 0; pow(10, power) <= axis->high; power++) {
            draw_tick(svg, is_x, power + 1, pow(10, power));
        }
        return;
    }
    if (axis->is_log && axis->unit == FLW_SVG_RATIO) {
        draw_ratio_ticks(svg, is_x, axis);
        return;
    }
    if (axis->is_log) {
        double base = axis->unit == FLW_SVG_BYTES ? 32 : 10;
        int first = (int)ceil(log(axis->low) / log(base) - TICK_ERROR);
        int last = (int)floor(log(axis->high) / log(base) + TICK_ERROR);
        for (int i = first; i <= last; i++) {
            draw_tick(svg, is_x, i - first, pow(base, i));
        }
        return;
    }
    double step = round_step(axis, is_x ? 7 : fmax(2, svg->height / 45));
    long first = (long)ceil(axis->low / step - TICK_ERROR);
    long last = (long)floor(axis->high / step + TICK_ERROR);
    for (long i = first; i <= last; i++) {
        draw_tick(svg, is_x, i - first, (double)i * step);
    }
}

void flw_svg_draw_axes(const struct flw_svg *svg)
{
    draw_ticks(svg, true);
    draw_ticks(svg, false);
    if (svg->y.name != NULL) {
        flw_svg_text(svg, "axis", (struct flw_svg_spot){0, 11 - TOP, -MARGIN}, svg->y.name);
    }
    if (svg->x.name != NULL) {
        flw_svg_text(svg, "axis end", (struct flw_svg_spot){FLW_SVG_WIDTH, svg->height + 29, 0},
                     svg->x.name);
    }
}

static void write_tip(FILE *out, const char *element, const char *tip)
{
    if (tip == NULL) {
        fputs("/>", out);
        return;
    }
    fputs("><title>", out);
    flw_svg_escape(out, tip);
    fprintf(out, "</title></%s>", element);
}

void flw_svg_rectangle(const struct flw_svg *svg, const char *style, struct flw_svg_box box,
                       const char *tip)
{
    fprintf(svg->out, "<rect class=\"%s\" x=%.1f y=%.1f width=%.1f height=\"%.1f\"", style, box.x,
            box.y, box.width, box.height);
    write_tip(svg->out, "rect", tip);
}

static double percent(double x)
{
    return 100 * x / FLW_SVG_WIDTH;
}

void flw_svg_text(const struct flw_svg *svg, const char *style, struct flw_svg_spot spot,
                  const char *text)
{
    fprintf(svg->over, "<text class=\"%s\" x=%.2f%% y=%.1f", style, percent(spot.x), spot.y + TOP);
    if (spot.right != 0) {
        fprintf(svg->over, " dx=%.0f", spot.right);
    }
    fputs(">", svg->over);
    flw_svg_escape(svg->over, text);
    fputs("</text>", svg->over);
}

void flw_svg_dot(const struct flw_svg *svg, const char *style, struct flw_svg_spot spot,
                 double radius, const char *tip)
{
    fprintf(svg->over, "<circle class=\"%s\" cx=%.2f%% cy=%.1f r=\"%.0f\"", style, percent(spot.x),
            spot.y + TOP, radius);
    write_tip(svg->over, "circle", tip);
}
