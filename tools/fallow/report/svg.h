/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the frame of one SVG picture: its place on the page, axes with round numbers, and the few
 * marks that pictures are made of. Does not: know what is drawn. Colours are classes of the page's
 * style, so that light, dark and print are the style's business.
 *
 * A picture is as wide as the page and keeps its height. Shapes lie in a drawing of FLW_SVG_WIDTH
 * units, stretched along x alone; words and dots lie over it at a share of the width and are not
 * stretched, so that they have their size on any screen.
 */
#ifndef FLW_TOOL_REPORT_SVG_H
#define FLW_TOOL_REPORT_SVG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum flw_svg_unit {
    FLW_SVG_COUNT,
    FLW_SVG_BYTES,
    FLW_SVG_NS,
    FLW_SVG_RATIO
};

/* The names of an axis of all ops, and of one of all their time; page.js zooms pictures by them. */
#define FLW_SVG_OPS  "operations"
#define FLW_SVG_TIME "time"

struct flw_svg_axis {
    double low, high; /* low < high */
    bool is_log;      /* both above 0 */
    bool has_zero;    /* as is_log, of 1 more than the value: 0 has its place; both above -1 */
    enum flw_svg_unit unit;
    const char *name; /* printed at its end; may be NULL */
    bool is_bare;     /* no grid, no numbers */
};

struct flw_svg {
    FILE *out;
    double height; /* of what is drawn in, in pixels */
    struct flw_svg_axis x, y;
    FILE *over; /* svg.c's: what is not stretched, until the picture ends */
    char *over_text;
    size_t over_bytes;
};

#define FLW_SVG_WIDTH 1000.0 /* of what is drawn in */

/* `title` names the picture, `description` says in a sentence what it shows, to those who cannot see
 * it. What is printed to `out` until the end are shapes. */
void flw_svg_begin(struct flw_svg *svg, const char *title, const char *description);
void flw_svg_end(struct flw_svg *svg);

/* Grid lines and numbers. */
void flw_svg_draw_axes(const struct flw_svg *svg);

/* Where a value lies in the drawing; values outside the axis are pulled to its end. */
double flw_svg_x(const struct flw_svg *svg, double value);
double flw_svg_y(const struct flw_svg *svg, double value);

struct flw_svg_box {
    double x, y, width, height;
};

/* `tip` may be NULL. */
void flw_svg_rectangle(const struct flw_svg *svg, const char *style, struct flw_svg_box box,
                       const char *tip);

/* A place in the drawing, and pixels right of it. */
struct flw_svg_spot {
    double x, y, right;
};

/* Where the style says no other, the text begins there ("middle", "end"). */
void flw_svg_text(const struct flw_svg *svg, const char *style, struct flw_svg_spot spot,
                  const char *text);

/* `tip` may be NULL. */
void flw_svg_dot(const struct flw_svg *svg, const char *style, struct flw_svg_spot spot,
                 double radius, const char *tip);

/* "&lt;script&gt;": safe in text and in attributes. */
void flw_svg_escape(FILE *out, const char *text);

#define FLW_SVG_NUMBER_BYTES 32
/* "23.1 GiB", "12,345", "1.3 us", "1.114". */
const char *flw_svg_format(char out[FLW_SVG_NUMBER_BYTES], enum flw_svg_unit unit, double value);

#endif
