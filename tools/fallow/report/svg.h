/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the frame of one SVG picture: its place on the paper, axes with round numbers, and the few
 * marks that pictures are made of. Does not: know what is drawn. Colours are classes of the page's
 * style, so that light, dark and print are the style's business.
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
    double left, top, width, height; /* of what is drawn in; the paper is FLW_SVG_WIDTH wide */
    struct flw_svg_axis x, y;
};

#define FLW_SVG_WIDTH  960.0
#define FLW_SVG_LEFT   84.0
#define FLW_SVG_BOTTOM 34.0

/* `title` names the picture, `description` says in a sentence what it shows, to those who cannot see
 * it. Fills left, top, width; height is that of the drawing. */
void flw_svg_begin(struct flw_svg *svg, const char *title, const char *description);
void flw_svg_end(const struct flw_svg *svg);

/* Grid lines and numbers. */
void flw_svg_draw_axes(const struct flw_svg *svg);

/* On the paper; values outside the axis are pulled to its end. */
double flw_svg_x(const struct flw_svg *svg, double value);
double flw_svg_y(const struct flw_svg *svg, double value);

struct flw_svg_box {
    double x, y, width, height;
};

/* `tip` may be NULL. */
void flw_svg_rectangle(const struct flw_svg *svg, const char *style, struct flw_svg_box box,
                       const char *tip);
/* middle: anchored there, else at its start. */
void flw_svg_text(const struct flw_svg *svg, const char *style, double x, double y, bool middle,
                  const char *text);

/* "&lt;script&gt;": safe in text and in attributes. */
void flw_svg_escape(FILE *out, const char *text);

#define FLW_SVG_NUMBER_BYTES 32
/* "23.1 GiB", "12,345", "1.3 us", "1.114". */
const char *flw_svg_format(char out[FLW_SVG_NUMBER_BYTES], enum flw_svg_unit unit, double value);

#endif
