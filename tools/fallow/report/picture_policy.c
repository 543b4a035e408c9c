/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the pictures that set policies side by side: latency, waste at the peak, memory against
 * time and against waits.
 */
#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "report/picture.h"

static double at_least(double value, double least)
{
    return value < least ? least : value;
}

static void draw_legend(const struct flw_sheet *sheet, const bool *is_shown, FILE *out)
{
    fputs("<p class=legend>", out);
    for (size_t i = 0; i < sheet->policy_count; i++) {
        if (is_shown[i % 64]) {
            flw_picture_line_legend(out, flw_picture_colour(i), sheet->policies[i].label, NULL);
        }
    }
    fputs("</p>\n", out);
}

void flw_picture_latency(const struct flw_sheet *sheet, FILE *out)
{
    struct flw_svg svg = {.out = out, .height = 240};
    bool is_shown[64] = {false};
    double low = INFINITY, high = 0;
    for (size_t i = 0; i < flw_min(sheet->policy_count, 64); i++) {
        const struct flw_sheet_policy *policy = &sheet->policies[i];
        is_shown[i] = policy->latency_count > 1;
        if (is_shown[i]) {
            low = fmin(low, at_least(policy->latency_ns[0], 1));
            high = fmax(high, policy->latency_ns[policy->latency_count - 1]);
        }
    }
    if (high == 0) {
        fputs("<p class=none>Operations were not timed.</p>\n", out);
        return;
    }
    svg.x = (struct flw_svg_axis){.low = low,
                                  .high = at_least(high, 2 * low),
                                  .is_log = true,
                                  .unit = FLW_SVG_NS,
                                  .name = "one operation takes at most"};
    svg.y = (struct flw_svg_axis){.high = 1, .unit = FLW_SVG_RATIO, .name = "share of operations"};
    flw_svg_begin(&svg, "Time of one operation on the host",
                  "One line a policy: which share of its operations is done in that time.");
    flw_svg_draw_axes(&svg);
    for (size_t i = 0; i < flw_min(sheet->policy_count, 64); i++) {
        const struct flw_sheet_policy *policy = &sheet->policies[i];
        for (uint32_t j = 0; is_shown[i] && j < policy->latency_count; j++) {
            double x = flw_svg_x(&svg, at_least(policy->latency_ns[j], 1));
            double y = flw_svg_y(&svg, (double)j / (double)(policy->latency_count - 1));
            if (j == 0) {
                fprintf(out, "<path class=\"line %s\" d=\"M%.1f %.1f", flw_picture_colour(i), x, y);
            } else {
                fprintf(out, "L%.1f %.1f", x, y);
            }
        }
        fputs(is_shown[i] ? "\"/>" : "", out);
    }
    flw_svg_end(&svg);
    draw_legend(sheet, is_shown, out);
}

#define WASTE_ROW 32.0 /* pixels: a line of text and a bar */
#define WASTE_BAR 12.0

struct waste {
    double requested, rounding, idle; /* at the moment of peak reserved */
};

static bool waste_of(const struct flw_sheet_policy *policy, struct waste *out)
{
    const struct flw_run_result *result = policy->result;
    if (!result->has_run || result->statistics.peak_reserved_bytes == FLW_NOT_APPLICABLE ||
        result->statistics.peak_reserved_bytes == 0) {
        return false;
    }
    double reserved = (double)result->statistics.peak_reserved_bytes;
    double requested = fmin((double)result->peak_requested_bytes, reserved);
    double block = policy->block == NULL
                       ? requested
                       : fmin(reserved, fmax(requested, (double)policy->block_at_peak_bytes));
    *out = (struct waste){requested, block - requested, reserved - block};
    return true;
}

void flw_picture_waste(const struct flw_sheet *sheet, FILE *out)
{
    struct flw_svg svg = {.out = out};
    struct waste waste;
    size_t rows = 0;
    double high = 0;
    for (size_t i = 0; i < sheet->policy_count; i++) {
        if (waste_of(&sheet->policies[i], &waste)) {
            rows++;
            high = fmax(high, waste.requested + waste.rounding + waste.idle);
        }
    }
    if (rows == 0) {
        fputs("<p class=none>No policy says what it reserved.</p>\n", out);
        return;
    }
    svg.height = WASTE_ROW * (double)rows;
    svg.x = (struct flw_svg_axis){.high = 1.04 * high, .unit = FLW_SVG_BYTES};
    svg.y = (struct flw_svg_axis){.high = 1, .is_bare = true};
    flw_svg_begin(&svg, "Where the memory goes at the peak",
                  "A bar a policy: requested, lost to rounding, free inside what is reserved.");
    flw_svg_draw_axes(&svg);
    double y = 0;
    for (size_t i = 0; i < sheet->policy_count; i++) {
        const struct flw_sheet_policy *policy = &sheet->policies[i];
        char number[FLW_SVG_NUMBER_BYTES], text[2 * FLW_SHEET_NAME_BYTES];
        if (!waste_of(policy, &waste)) {
            continue;
        }
        double x = 0, unit = FLW_SVG_WIDTH / svg.x.high;
        const struct {
            double bytes;
            const char *style, *name;
        } parts[] = {{waste.requested, "requested", "requested"},
                     {waste.rounding, "loss", "rounding"},
                     {waste.idle, "free", "free"}};
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            snprintf(text, sizeof text, "%s: %s", parts[p].name,
                     flw_svg_format(number, FLW_SVG_BYTES, parts[p].bytes));
            flw_svg_rectangle(&svg, parts[p].style,
                              (struct flw_svg_box){x, y + WASTE_ROW - WASTE_BAR,
                                                   parts[p].bytes * unit, WASTE_BAR},
                              text);
            x += parts[p].bytes * unit;
        }
        snprintf(text, sizeof text, "%s %s", policy->label,
                 flw_svg_format(number, FLW_SVG_BYTES,
                                (double)policy->result->statistics.peak_reserved_bytes));
        flw_svg_text(&svg, "note", (struct flw_svg_spot){0, y + WASTE_ROW - WASTE_BAR - 4, 0},
                     text);
        y += WASTE_ROW;
    }
    flw_svg_end(&svg);
    fputs("<p class=legend>", out);
    flw_picture_legend(out, "requested", "requested", NULL);
    flw_picture_legend(out, "loss", "rounding (where the policy says)", NULL);
    flw_picture_legend(out, "free", "free inside what is reserved", NULL);
    fputs("</p>\n", out);
}

#define LETTER_WIDTH      7.5
#define LABEL_HEIGHT      13.0
#define AXIS_LETTER_WIDTH 6.5
#define LABELS            64
#define DOT_RADIUS        6.0
#define DOT_DISTANCE      10.0 /* of a label from its dot */

/* What labels may not lie on: dots and earlier labels, each from its left end at half its height; nor
 * beyond the paper, nor on the numbers of the axis. */
struct labels {
    double lowest_y;
    double x[LABELS], y[LABELS], width[LABELS];
    size_t count;
};

static void take_place(struct labels *labels, double x, double y, double width)
{
    if (labels->count < LABELS) {
        labels->x[labels->count] = x;
        labels->y[labels->count] = y;
        labels->width[labels->count++] = width;
    }
}

static bool is_place_free(const struct labels *labels, double x, double y, double width)
{
    bool is_free = x + width <= FLW_SVG_WIDTH && y < labels->lowest_y;
    for (size_t i = 0; i < labels->count; i++) {
        is_free &= labels->x[i] >= x + width || x >= labels->x[i] + labels->width[i] ||
                   fabs(labels->y[i] - y) >= LABEL_HEIGHT;
    }
    return is_free;
}

/* Beside the dot, else below or above that, right of it or left. Places are those of a wide screen; a
 * narrow one leaves names to the legend. */
static void draw_label(const struct flw_svg *svg, struct labels *labels, double dot_x, double dot_y,
                       const char *text)
{
    double width = LETTER_WIDTH * (double)strlen(text);
    double x = dot_x + DOT_DISTANCE;
    double y = dot_y;
    bool is_left = false;
    for (unsigned tries = 1; tries < 24 && !is_place_free(labels, x, y, width); tries++) {
        unsigned step = tries / 2, rows = (step + 1) / 2;
        is_left = tries % 2 != 0 && dot_x - DOT_DISTANCE - width > 0;
        x = is_left ? dot_x - DOT_DISTANCE - width : dot_x + DOT_DISTANCE;
        y = dot_y + (step % 2 == 0 ? -LABEL_HEIGHT : LABEL_HEIGHT) * rows;
    }
    take_place(labels, x, y, width);
    flw_svg_text(svg, is_left ? "note name end" : "note name",
                 (struct flw_svg_spot){dot_x, y + 4, is_left ? -DOT_DISTANCE : DOT_DISTANCE}, text);
}

/* A policy on the paper. */
struct dot {
    double x, y;
    const char *label, *style;
    char tip[160]; /* "": none */
};

/* `labels`: where else none may lie. */
static void draw_dots(const struct flw_svg *svg, struct labels *labels, const struct dot *dots,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char style[32];
        snprintf(style, sizeof style, "dot %s", dots[i].style);
        flw_svg_dot(svg, style, (struct flw_svg_spot){dots[i].x, dots[i].y, 0}, DOT_RADIUS,
                    dots[i].tip[0] == '\0' ? NULL : dots[i].tip);
        take_place(labels, dots[i].x - DOT_RADIUS, dots[i].y, 2 * DOT_RADIUS);
    }
    for (size_t i = 0; i < count; i++) {
        draw_label(svg, labels, dots[i].x, dots[i].y, dots[i].label);
    }
}

static void write_dot_legend(const struct dot *dots, size_t count, FILE *out)
{
    fputs("<p class=legend>", out);
    for (size_t i = 0; i < count; i++) {
        flw_picture_legend(out, dots[i].style, dots[i].label, NULL);
    }
    fputs("</p>\n", out);
}

/* ---- memory against time ---- */

static bool is_timed(const struct flw_run_result *result)
{
    return result->has_run && result->has_times &&
           result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE;
}

void flw_picture_trade(const struct flw_sheet *sheet, FILE *out)
{
    struct flw_svg svg = {.out = out, .height = 240};
    struct labels labels = {.lowest_y = svg.height};
    struct dot dots[FLW_PLAN_POLICIES] = {0};
    size_t count = 0;
    double low_x = INFINITY, high_x = 0, low_y = INFINITY, high_y = 0;
    for (size_t i = 0; i < sheet->policy_count; i++) {
        const struct flw_run_result *result = sheet->policies[i].result;
        if (is_timed(result)) {
            low_x = fmin(low_x, at_least(result->all_times.p50_ns, 1));
            high_x = fmax(high_x, at_least(result->all_times.p50_ns, 1));
            low_y = fmin(low_y, (double)result->statistics.peak_reserved_bytes);
            high_y = fmax(high_y, (double)result->statistics.peak_reserved_bytes);
        }
    }
    if (high_x == 0) {
        fputs("<p class=none>Operations were not timed.</p>\n", out);
        return;
    }
    svg.x = (struct flw_svg_axis){.low = low_x / 2,
                                  .high = 4 * high_x,
                                  .is_log = true,
                                  .unit = FLW_SVG_NS,
                                  .name = "median time of one operation"};
    svg.y = (struct flw_svg_axis){.low = 0.9 * low_y,
                                  .high = 1.05 * at_least(high_y, 1),
                                  .unit = FLW_SVG_BYTES,
                                  .name = "peak reserved"};
    flw_svg_begin(&svg, "Memory against time",
                  "One dot a policy; further down is less memory, further left is faster.");
    flw_svg_draw_axes(&svg);
    for (size_t i = 0; i < flw_min(sheet->policy_count, FLW_PLAN_POLICIES); i++) {
        const struct flw_run_result *result = sheet->policies[i].result;
        if (is_timed(result)) {
            dots[count++] =
                (struct dot){.x = flw_svg_x(&svg, at_least(result->all_times.p50_ns, 1)),
                             .y = flw_svg_y(&svg, (double)result->statistics.peak_reserved_bytes),
                             .label = sheet->policies[i].label,
                             .style = flw_picture_colour(i)};
        }
    }
    draw_dots(&svg, &labels, dots, count);
    flw_svg_end(&svg);
    write_dot_legend(dots, count, out);
}

/* ---- memory against waits ---- */

static bool has_waits(const struct flw_sheet_policy *policy)
{
    const struct flw_run_counts *all = &policy->result->all;
    return policy->result->has_run && policy->result->policy->allocates &&
           flw_sheet_ratio(policy) > 0 && all->wait_count != FLW_NOT_APPLICABLE &&
           all->alloc_count != FLW_NOT_APPLICABLE && all->alloc_count != 0;
}

static double per_thousand(uint64_t count, const struct flw_run_counts *all)
{
    return 1000.0 * (double)count / (double)all->alloc_count;
}

static double without_wait_ratio(const struct flw_sheet *sheet)
{
    uint64_t bound_bytes = sheet->program->max_live_bytes;
    return bound_bytes == 0 ? 1 : (double)sheet->without_wait_bytes / (double)bound_bytes;
}

/* Lines from top to bottom, with their names above: the two limits may be one. */
static void draw_limits(const struct flw_svg *svg, double without_wait)
{
    const struct {
        double value;
        const char *name;
    } limits[] = {{1, "bound"}, {without_wait, "without a wait"}};
    double free_x = 0;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        double x = flw_svg_x(svg, limits[i].value);
        char name[32];
        snprintf(name, sizeof name, "%s%s", x < free_x ? "and " : "", limits[i].name);
        fprintf(svg->out, "<path class=\"grid limit\" d=\"M%.1f 0v%.1f\"/>", x, svg->height);
        free_x = fmax(free_x, x);
        flw_svg_text(svg, i == 0 ? "axis" : "axis name", (struct flw_svg_spot){free_x, -3, 0},
                     name);
        free_x += AXIS_LETTER_WIDTH * (double)(strlen(name) + 2);
    }
}

/* The library's own settings of economy, from the least memory on. */
static void join_economies(const struct flw_svg *svg, const struct dot *dots, size_t count)
{
    const struct dot *last = NULL;
    for (;;) {
        const struct dot *next = NULL;
        for (size_t i = 0; i < count; i++) {
            bool is_ours =
                strncmp(dots[i].label, "fallow", 6) == 0 && strchr(dots[i].label, ':') == NULL;
            bool is_later =
                last == NULL || dots[i].x > last->x || (dots[i].x == last->x && &dots[i] > last);
            if (is_ours && is_later && (next == NULL || dots[i].x < next->x)) {
                next = &dots[i];
            }
        }
        if (next == NULL) {
            return;
        }
        if (last != NULL) {
            fprintf(svg->out, "<path class=\"line %s\" d=\"M%.1f %.1fL%.1f %.1f\"/>",
                    flw_picture_colour(0), last->x, last->y, next->x, next->y);
        }
        last = next;
    }
}

void flw_picture_waits(const struct flw_sheet *sheet, FILE *out)
{
    struct flw_svg svg = {.out = out, .height = 260};
    struct labels labels = {.lowest_y = svg.height};
    struct dot dots[FLW_PLAN_POLICIES] = {0};
    size_t count = 0;
    double high_x = without_wait_ratio(sheet), high_y = 0;
    for (size_t i = 0; i < sheet->policy_count; i++) {
        if (has_waits(&sheet->policies[i])) {
            const struct flw_run_counts *all = &sheet->policies[i].result->all;
            high_x = fmax(high_x, flw_sheet_ratio(&sheet->policies[i]));
            high_y = fmax(high_y, per_thousand(all->wait_count, all));
            count++;
        }
    }
    if (count == 0 || sheet->lag_units == 0) {
        fputs("<p class=none>There is no work on the device that could be waited for.</p>\n", out);
        return;
    }
    svg.x = (struct flw_svg_axis){.low = 0.98,
                                  .high = 1.1 * high_x,
                                  .is_log = true,
                                  .unit = FLW_SVG_RATIO,
                                  .name = "held over live"};
    svg.y = (struct flw_svg_axis){.low = -0.4,
                                  .high = 2 * at_least(high_y, 5),
                                  .has_zero = true,
                                  .unit = FLW_SVG_COUNT,
                                  .name = "host waits per 1,000 allocations"};
    flw_svg_begin(&svg, "Memory against waits",
                  "One dot a policy; further left is less memory, further down are fewer waits of "
                  "the host. Left of the line without a wait only those that wait can be.");
    flw_svg_draw_axes(&svg);
    draw_limits(&svg, without_wait_ratio(sheet));
    count = 0;
    for (size_t i = 0; i < flw_min(sheet->policy_count, FLW_PLAN_POLICIES); i++) {
        const struct flw_sheet_policy *policy = &sheet->policies[i];
        const struct flw_run_counts *all = &policy->result->all;
        if (has_waits(policy)) {
            struct dot *dot = &dots[count++];
            double host = per_thousand(all->wait_count, all);
            dot->x = flw_svg_x(&svg, flw_sheet_ratio(policy));
            dot->y = flw_svg_y(&svg, host);
            dot->label = policy->label;
            dot->style = flw_picture_colour(i);
            snprintf(dot->tip, sizeof dot->tip,
                     "%.60s: %.3f of live; %.1f host waits and %.1f stream waits per 1,000 "
                     "allocations",
                     policy->label, flw_sheet_ratio(policy), host,
                     per_thousand(all->stream_wait_count, all));
        }
    }
    join_economies(&svg, dots, count);
    draw_dots(&svg, &labels, dots, count);
    flw_svg_end(&svg);
    write_dot_legend(dots, count, out);
    fputs(
        "<p class=hint>A host wait is a call in which the host stopped until work was done. What holds "
        "less than the line without a wait waits, or lets a stream wait. The library's own settings "
        "of economy are joined.</p>\n",
        out);
}
