/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pictures of what the program asked for: sizes, lifetimes.
 */

#include "base/bits.h"
#include "report/picture.h"

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
