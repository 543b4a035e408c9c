/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a look is as lines of text, 80 columns or as many as there are. Does not: know a
 * terminal.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/figures.h"
#include "top/top.h"

#define TEXT_BYTES  32
#define BAR_COLUMNS 24

/* ---- numbers */

/* "0 B", "12.3 MiB", "1023 KiB": three digits or so. */
static const char *bytes_text(char text[TEXT_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    double value = (double)bytes;
    for (; value >= 1023.5 && unit < 6; unit++) {
        value /= 1024;
    }
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(text, TEXT_BYTES, "%.*f %s", decimals, value, units[unit]);
    return text;
}

/* Never 100 % where one missed. */
static const char *share_text(char text[TEXT_BYTES], uint64_t part, uint64_t whole)
{
    if (whole == 0) {
        return "-";
    }
    double percent = 100 * (double)part / (double)whole;
    percent = part < whole && percent > 99.99 ? 99.99 : percent;
    snprintf(text, TEXT_BYTES, "%.2f %%", percent);
    return text;
}

/* ---- lines */

static void add_line(struct flw_top_page *page, enum flw_top_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_line(struct flw_top_page *page, enum flw_top_style style, const char *format, ...)
{
    uint32_t most =
        page->height == 0 || page->height > FLW_TOP_LINES ? FLW_TOP_LINES : page->height;
    if (page->line_count >= most) {
        return;
    }
    char *line = page->lines[page->line_count];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, FLW_TOP_LINE_BYTES, format, arguments);
    va_end(arguments);
    if (page->width < FLW_TOP_LINE_BYTES) {
        line[page->width] = '\0';
    }
    for (size_t end = strlen(line); end > 0 && line[end - 1] == ' '; end--) {
        line[end - 1] = '\0';
    }
    page->styles[page->line_count++] = style;
}

static uint32_t room(const struct flw_top_page *page)
{
    uint32_t most =
        page->height == 0 || page->height > FLW_TOP_LINES ? FLW_TOP_LINES : page->height;
    return most - page->line_count;
}

/* What is left at the right end of a line's left text. */
static void add_title(struct flw_top_page *page, const char *left, const char *right)
{
    int gap = (int)page->width - (int)strlen(left) - (int)strlen(right);
    add_line(page, FLW_TOP_TITLE, "%s%*s%s", left, gap > 1 ? gap : 1, "", right);
}

/* ---- one pool */

struct change {
    double seconds; /* 0: no earlier look */
    const struct flw_bulletin_pool *now, *before;
};

static uint64_t grown(const struct change *change, enum flw_bulletin_value which)
{
    uint64_t now = change->now->value[which];
    uint64_t before = change->before == NULL ? now : change->before->value[which];
    return now > before ? now - before : 0;
}

static void add_memory(struct flw_top_page *page, const uint64_t *value)
{
    char a[TEXT_BYTES], b[TEXT_BYTES], c[TEXT_BYTES], d[TEXT_BYTES];
    char bar[BAR_COLUMNS + 1];
    uint64_t limit = value[FLW_VALUE_limit_bytes], reserved = value[FLW_VALUE_reserved_bytes];
    unsigned full =
        limit == 0 ? 0 : (unsigned)((double)reserved / (double)limit * BAR_COLUMNS + .5);
    for (unsigned i = 0; i < BAR_COLUMNS; i++) {
        bar[i] = i < full ? '#' : '.';
    }
    bar[BAR_COLUMNS] = '\0';
    add_line(page, FLW_TOP_PLAIN, "reserved %9s  of %9s  [%s]  peak %s", bytes_text(a, reserved),
             bytes_text(b, limit), bar, bytes_text(c, value[FLW_VALUE_peak_reserved_bytes]));
    add_line(page, FLW_TOP_PLAIN, "live     %9s  asked %9s  in %s blocks  peak asked %s",
             bytes_text(a, value[FLW_VALUE_live_bytes]),
             bytes_text(b, value[FLW_VALUE_requested_bytes]),
             flw_format_count(value[FLW_VALUE_live_count], c),
             bytes_text(d, value[FLW_VALUE_peak_requested_bytes]));
    add_line(
        page, FLW_TOP_PLAIN, "free     %9s  cached %s  deferred %s  idle %s",
        bytes_text(a, value[FLW_VALUE_free_bytes]), bytes_text(b, value[FLW_VALUE_cached_bytes]),
        bytes_text(c, value[FLW_VALUE_deferred_bytes]), bytes_text(d, value[FLW_VALUE_idle_bytes]));
    if (page->height == 0 ||
        value[FLW_VALUE_captured_bytes] + value[FLW_VALUE_capture_count] != 0) {
        add_line(page, FLW_TOP_PLAIN, "captures %9s  %s under way  tables %s of host memory",
                 bytes_text(a, value[FLW_VALUE_captured_bytes]),
                 flw_format_count(value[FLW_VALUE_capture_count], b),
                 bytes_text(c, value[FLW_VALUE_host_bytes]));
    }
}

static void add_traffic(struct flw_top_page *page, const struct change *change)
{
    const uint64_t *value = change->now->value;
    char a[TEXT_BYTES], b[TEXT_BYTES], c[TEXT_BYTES], d[TEXT_BYTES], e[TEXT_BYTES];
    uint64_t allocs = grown(change, FLW_VALUE_alloc_count),
             hits = grown(change, FLW_VALUE_hit_count);
    double each = change->seconds > 0 ? change->seconds : 1;
    if (change->before != NULL) {
        add_line(page, FLW_TOP_PLAIN, "hits     %9s  now %s  %s allocations, %s /s",
                 share_text(a, value[FLW_VALUE_hit_count], value[FLW_VALUE_alloc_count]),
                 share_text(b, hits, allocs), flw_format_count(value[FLW_VALUE_alloc_count], c),
                 flw_format_count((uint64_t)((double)allocs / each), d));
        add_line(page, FLW_TOP_PLAIN, "events   %9s  recorded, %s queried  %s driver calls, %s /s",
                 flw_format_count(value[FLW_VALUE_event_count], a),
                 flw_format_count(value[FLW_VALUE_query_count], b),
                 flw_format_count(value[FLW_VALUE_driver_call_count], c),
                 flw_format_count(
                     (uint64_t)((double)grown(change, FLW_VALUE_driver_call_count) / each), d));
    } else {
        add_line(page, FLW_TOP_PLAIN, "hits     %9s  %s allocations",
                 share_text(a, value[FLW_VALUE_hit_count], value[FLW_VALUE_alloc_count]),
                 flw_format_count(value[FLW_VALUE_alloc_count], c));
        add_line(page, FLW_TOP_PLAIN, "events   %9s  recorded, %s queried  %s driver calls",
                 flw_format_count(value[FLW_VALUE_event_count], a),
                 flw_format_count(value[FLW_VALUE_query_count], b),
                 flw_format_count(value[FLW_VALUE_driver_call_count], c));
    }
    add_line(page, FLW_TOP_PLAIN,
             "waits    %9s  of the host, %s of streams  %s grows, %s moves, %s trims",
             flw_format_count(value[FLW_VALUE_wait_count], a),
             flw_format_count(value[FLW_VALUE_stream_wait_count], b),
             flw_format_count(value[FLW_VALUE_grow_count], c),
             flw_format_count(value[FLW_VALUE_remap_count], d),
             flw_format_count(value[FLW_VALUE_trim_count], e));
}

/* The last climb above the first stage; then every stage that was reached, over as many lines as it
 * takes. */
static void add_ladder(struct flw_top_page *page, const struct flw_bulletin_pool *pool)
{
    char line[FLW_TOP_LINE_BYTES], part[80], text[TEXT_BYTES];
    uint64_t last = pool->value[FLW_VALUE_last_climb_stage];
    size_t width = page->width < sizeof line ? page->width : sizeof line - 1;
    snprintf(line, sizeof line, "ladder   ");
    const char *served = last == 0 ? NULL : flw_bulletin_stage(pool, last - 1);
    if (served != NULL) {
        snprintf(line, sizeof line, "ladder   last %s for %s ", served,
                 bytes_text(text, pool->value[FLW_VALUE_last_climb_bytes]));
    }
    for (unsigned i = 0; i < FLW_BULLETIN_STAGES; i++) {
        const char *stage = flw_bulletin_stage(pool, i);
        if (stage == NULL || pool->stage_count[i] == 0) {
            continue;
        }
        snprintf(part, sizeof part, " %s %s ", stage, flw_format_count(pool->stage_count[i], text));
        if (strlen(line) + strlen(part) > width) {
            add_line(page, FLW_TOP_PLAIN, "%s", line);
            snprintf(line, sizeof line, "         ");
        }
        strncat(line, part, sizeof line - strlen(line) - 1);
    }
    add_line(page, FLW_TOP_PLAIN, "%s", line);
}

/* What few pools have, where this one does. */
static void add_absent(struct flw_top_page *page, const uint64_t *value)
{
    char a[TEXT_BYTES], b[TEXT_BYTES];
    if (value[FLW_VALUE_is_asleep] != 0) {
        add_line(page, FLW_TOP_TITLE, "asleep   %9s  released  %s saved in host memory",
                 bytes_text(a, value[FLW_VALUE_asleep_bytes]),
                 bytes_text(b, value[FLW_VALUE_saved_bytes]));
    }
    if (value[FLW_VALUE_exported_bytes] + value[FLW_VALUE_imported_bytes] != 0) {
        add_line(page, FLW_TOP_PLAIN, "shared   %9s  exported  %s imported",
                 bytes_text(a, value[FLW_VALUE_exported_bytes]),
                 bytes_text(b, value[FLW_VALUE_imported_bytes]));
    }
}

/* What should be 0, where it is not. */
static void add_trouble(struct flw_top_page *page, const struct flw_bulletin_pool *pool)
{
    static const struct {
        enum flw_bulletin_value which;
        const char *text;
    } troubles[] = {{FLW_VALUE_oom_count, "allocations failed"},
                    {FLW_VALUE_misuse_count, "frees refused"},
                    {FLW_VALUE_lost_streams, "streams lost"},
                    {FLW_VALUE_damage_count, "blocks damaged"}};
    char line[FLW_TOP_LINE_BYTES] = "", text[TEXT_BYTES];
    if (pool->value[FLW_VALUE_is_lost] != 0) {
        strcat(line, "  the device is lost");
    }
    for (size_t i = 0; i < sizeof troubles / sizeof *troubles; i++) {
        uint64_t count = pool->value[troubles[i].which];
        if (count != 0) {
            size_t used = strlen(line);
            snprintf(line + used, sizeof line - used, "  %s %s", flw_format_count(count, text),
                     troubles[i].text);
        }
    }
    if (line[0] != '\0') {
        add_line(page, FLW_TOP_ALARM, "trouble%s", line);
    }
}

static void add_streams(struct flw_top_page *page, const struct flw_bulletin_pool *pool,
                        uint32_t most)
{
    uint32_t shown = pool->stream_count > most ? most : pool->stream_count;
    add_line(page, FLW_TOP_HEADING, "%-14s %10s %10s %10s %10s %7s %8s", "STREAM", "LIVE", "ASKED",
             "CACHED", "FREE", "THREADS", "HITS");
    for (uint32_t i = 0; i < shown; i++) {
        const struct flw_bulletin_stream *row = &pool->streams[i];
        char name[40], a[TEXT_BYTES], b[TEXT_BYTES], c[TEXT_BYTES], d[TEXT_BYTES], e[TEXT_BYTES];
        switch (row->kind) {
        case FLW_BULLETIN_STREAM:
        case FLW_BULLETIN_GONE:
            snprintf(name, sizeof name, "%s%" PRIu64, row->kind == FLW_BULLETIN_GONE ? "gone " : "",
                     row->id);
            break;
        case FLW_BULLETIN_REST:
            snprintf(name, sizeof name, "%" PRIu64 " more", row->id);
            break;
        default:
            snprintf(name, sizeof name, "any");
        }
        add_line(page, FLW_TOP_PLAIN, "%-14.14s %10s %10s %10s %10s %7" PRIu64 " %8s", name,
                 bytes_text(a, row->live_bytes), bytes_text(b, row->requested_bytes),
                 bytes_text(c, row->cached_bytes),
                 bytes_text(d, row->free_bytes + row->captured_bytes), row->cache_count,
                 share_text(e, row->hit_count, row->alloc_count));
    }
    if (shown < pool->stream_count) {
        add_line(page, FLW_TOP_PLAIN, "... %u more streams", pool->stream_count - shown);
    }
}

static int compare_classes(const void *left, const void *right)
{
    const struct flw_bulletin_class *const *a = left, *const *b = right;
    if ((*a)->reserved_bytes != (*b)->reserved_bytes) {
        return (*a)->reserved_bytes < (*b)->reserved_bytes ? 1 : -1;
    }
    return (*a)->size_bytes < (*b)->size_bytes ? -1 : 1;
}

static void add_classes(struct flw_top_page *page, const struct flw_bulletin_pool *pool,
                        uint32_t most)
{
    const struct flw_bulletin_class *sorted[FLW_BULLETIN_CLASSES];
    uint32_t shown = pool->class_count > most ? most : pool->class_count;
    for (uint32_t i = 0; i < pool->class_count; i++) {
        sorted[i] = &pool->classes[i];
    }
    qsort(sorted, pool->class_count, sizeof *sorted, compare_classes);
    add_line(page, FLW_TOP_HEADING, "%-14s %10s %10s %10s %10s %7s %8s", "CLASS", "LIVE", "ASKED",
             "CACHED", "RESERVED", "BLOCKS", "USED");
    for (uint32_t i = 0; i < shown; i++) {
        const struct flw_bulletin_class *row = sorted[i];
        char name[TEXT_BYTES], a[TEXT_BYTES], b[TEXT_BYTES], c[TEXT_BYTES], d[TEXT_BYTES],
            e[TEXT_BYTES];
        add_line(page, FLW_TOP_PLAIN, "%-14s %10s %10s %10s %10s %7" PRIu64 " %8s",
                 row->size_bytes == 0 ? "runs" : bytes_text(name, row->size_bytes),
                 bytes_text(a, row->live_bytes), bytes_text(b, row->requested_bytes),
                 bytes_text(c, row->cached_bytes), bytes_text(d, row->reserved_bytes),
                 row->live_count, share_text(e, row->live_bytes, row->reserved_bytes));
    }
    if (shown < pool->class_count) {
        add_line(page, FLW_TOP_PLAIN, "... %u more classes", pool->class_count - shown);
    }
}

/* Headings and blank lines take their part; the rest is shared, and what one table leaves the other
 * gets. */
static void add_tables(struct flw_top_page *page, const struct flw_bulletin_pool *pool)
{
    uint32_t left = room(page), extra = 2 + 2 + 2; /* two blanks, two headings, two "... more" */
    uint32_t rows = left > extra ? left - extra : 0;
    if (page->height == 0) {
        rows = FLW_TOP_LINES;
    }
    uint32_t streams = pool->stream_count, classes = pool->class_count;
    if (streams + classes > rows) {
        uint32_t half = rows / 2;
        streams = streams < half ? streams : classes < rows - half ? rows - classes : half;
        classes = rows - streams;
    }
    add_line(page, FLW_TOP_PLAIN, "%s", "");
    add_streams(page, pool, streams);
    add_line(page, FLW_TOP_PLAIN, "%s", "");
    add_classes(page, pool, classes);
}

static void add_pool(struct flw_top_page *page, const struct change *change)
{
    add_memory(page, change->now->value);
    add_absent(page, change->now->value);
    add_traffic(page, change);
    add_ladder(page, change->now);
    add_trouble(page, change->now);
    add_tables(page, change->now);
}

/* ---- a process */

#define NO_POOL UINT32_MAX

static void add_pool_line(struct flw_top_page *page, const struct flw_top_look *look,
                          uint32_t index, bool is_chosen)
{
    char label[FLW_TOP_LABEL_BYTES], a[TEXT_BYTES], b[TEXT_BYTES], c[TEXT_BYTES], d[TEXT_BYTES],
        e[TEXT_BYTES];
    const struct flw_bulletin_pool *pool = flw_top_pool(look, index, label);
    const uint64_t *value = pool->value;
    add_line(page, is_chosen ? FLW_TOP_TITLE : FLW_TOP_PLAIN,
             "%c %-5s %3" PRIu64 " %-16.16s %10s %10s %10s %7s %8s", is_chosen ? '>' : ' ', label,
             value[FLW_VALUE_device], pool->driver[0] == '\0' ? "libcuda.so.1" : pool->driver,
             bytes_text(a, value[FLW_VALUE_reserved_bytes]),
             bytes_text(b, value[FLW_VALUE_live_bytes]),
             bytes_text(c, value[FLW_VALUE_cached_bytes]),
             flw_format_count(value[FLW_VALUE_stream_count], d),
             share_text(e, value[FLW_VALUE_hit_count], value[FLW_VALUE_alloc_count]));
}

/* At most `most`, the chosen one among them. */
static void add_pools(struct flw_top_page *page, const struct flw_top_look *look, uint32_t most,
                      uint32_t chosen)
{
    uint32_t first = chosen != NO_POOL && chosen >= most ? chosen - most + 1 : 0;
    add_line(page, FLW_TOP_HEADING, "  %-5s %3s %-16s %10s %10s %10s %7s %8s", "POOL", "DEV",
             "DRIVER", "RESERVED", "LIVE", "CACHED", "STREAMS", "HITS");
    for (uint32_t i = first; i < look->pool_count && i - first < most; i++) {
        add_pool_line(page, look, i, i == chosen);
    }
    if (look->pool_total > look->pool_count) {
        add_line(page, FLW_TOP_ALARM, "%" PRIu64 " more pools do not fit into shared memory",
                 look->pool_total - look->pool_count);
    }
}

static void add_head(struct flw_top_page *page, const struct flw_top_look *look, const char *right)
{
    char left[128];
    snprintf(left, sizeof left, "fallow top  %s (%d)  %" PRIu64 " pool%s", look->name,
             (int)look->process, look->pool_total, look->pool_total == 1 ? "" : "s");
    add_title(page, left, right);
}

static void begin_page(struct flw_top_page *page)
{
    page->line_count = 0;
    page->width = page->width == 0 || page->width >= FLW_TOP_LINE_BYTES ? FLW_TOP_LINE_BYTES - 1
                                                                        : page->width;
}

static struct change change_of(const struct flw_top_look *look, const struct flw_top_look *before,
                               uint32_t index, char label[FLW_TOP_LABEL_BYTES])
{
    struct change change = {.now = flw_top_pool(look, index, label)};
    if (before != NULL && before->clock_ns < look->clock_ns) {
        change.before = flw_top_find(before, label);
        change.seconds = (double)(look->clock_ns - before->clock_ns) / 1e9;
    }
    return change;
}

void flw_top_fill_overview(struct flw_top_page *page, const struct flw_top_look *look)
{
    begin_page(page);
    add_head(page, look, "");
    if (look->pool_count == 0) {
        add_line(page, FLW_TOP_PLAIN, "no pools");
    } else {
        add_pools(page, look, FLW_TOP_LINES, NO_POOL);
    }
}

void flw_top_fill_pool(struct flw_top_page *page, const struct flw_top_look *look,
                       const struct flw_top_look *before, uint32_t pool)
{
    char label[FLW_TOP_LABEL_BYTES];
    struct change change = change_of(look, before, pool, label);
    begin_page(page);
    add_line(page, FLW_TOP_PLAIN, "%s", "");
    add_line(page, FLW_TOP_TITLE, "pool %s", label);
    add_pool(page, &change);
}

void flw_top_fill_screen(struct flw_top_page *page, const struct flw_top_look *look,
                         const struct flw_top_look *before, uint32_t pool)
{
    char label[FLW_TOP_LABEL_BYTES], right[64], clock[16] = "";
    time_t now = time(NULL);
    struct tm parts;
    begin_page(page);
    if (localtime_r(&now, &parts) != NULL) {
        (void)strftime(clock, sizeof clock, "%H:%M:%S", &parts);
    }
    snprintf(right, sizeof right, "%sq quit  %s", look->pool_count > 1 ? "tab next pool  " : "",
             clock);
    add_head(page, look, right);
    if (look->pool_count == 0) {
        add_line(page, FLW_TOP_PLAIN, "no pools yet");
        return;
    }
    uint32_t most = page->height / 4;
    add_pools(page, look, most == 0 ? 1 : most, pool);
    struct change change = change_of(look, before, pool, label);
    add_line(page, FLW_TOP_PLAIN, "%s", "");
    add_pool(page, &change);
}

void flw_top_fill_list_heading(struct flw_top_page *page)
{
    begin_page(page);
    add_line(page, FLW_TOP_HEADING, "%8s %-16s %5s %10s %10s %10s %8s", "PROCESS", "NAME", "POOLS",
             "RESERVED", "LIVE", "CACHED", "HITS");
}

void flw_top_fill_list_line(struct flw_top_page *page, const struct flw_top_look *look)
{
    char label[FLW_TOP_LABEL_BYTES], a[TEXT_BYTES], b[TEXT_BYTES], c[TEXT_BYTES], d[TEXT_BYTES];
    uint64_t reserved = 0, live = 0, cached = 0, hits = 0, allocs = 0;
    begin_page(page);
    for (uint32_t i = 0; i < look->pool_count; i++) {
        const uint64_t *value = flw_top_pool(look, i, label)->value;
        reserved += value[FLW_VALUE_reserved_bytes];
        live += value[FLW_VALUE_live_bytes];
        cached += value[FLW_VALUE_cached_bytes];
        hits += value[FLW_VALUE_hit_count];
        allocs += value[FLW_VALUE_alloc_count];
    }
    add_line(page, FLW_TOP_PLAIN, "%8d %-16.16s %5" PRIu64 " %10s %10s %10s %8s",
             (int)look->process, look->name, look->pool_total, bytes_text(a, reserved),
             bytes_text(b, live), bytes_text(c, cached), share_text(d, hits, allocs));
}
