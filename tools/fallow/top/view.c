/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what a look is as lines of text, 80 columns or as many as there are. Does not: know a
 * terminal.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/figures.h"
#include "common/tool_host.h"
#include "top/history.h"
#include "top/lines.h"

#define BAR_COLUMNS 24

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
    char a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES], c[FLW_TOP_TEXT_BYTES], d[FLW_TOP_TEXT_BYTES];
    char bar[BAR_COLUMNS + 1];
    uint64_t limit = value[FLW_VALUE_limit_bytes], reserved = value[FLW_VALUE_reserved_bytes];
    unsigned full =
        limit == 0 ? 0 : (unsigned)((double)reserved / (double)limit * BAR_COLUMNS + .5);
    for (unsigned i = 0; i < BAR_COLUMNS; i++) {
        bar[i] = i < full ? '#' : '.';
    }
    bar[BAR_COLUMNS] = '\0';
    flw_top_add_line(page, FLW_TOP_PLAIN, "reserved %9s  of %9s  [%s]  peak %s",
                     flw_top_bytes(a, reserved), flw_top_bytes(b, limit), bar,
                     flw_top_bytes(c, value[FLW_VALUE_peak_reserved_bytes]));
    flw_top_add_line(page, FLW_TOP_PLAIN, "live     %9s  asked %9s  in %s blocks  peak asked %s",
                     flw_top_bytes(a, value[FLW_VALUE_live_bytes]),
                     flw_top_bytes(b, value[FLW_VALUE_requested_bytes]),
                     flw_format_count(value[FLW_VALUE_live_count], c),
                     flw_top_bytes(d, value[FLW_VALUE_peak_requested_bytes]));
    flw_top_add_line(page, FLW_TOP_PLAIN, "free     %9s  cached %s  deferred %s  unmapped %s",
                     flw_top_bytes(a, value[FLW_VALUE_free_bytes]),
                     flw_top_bytes(b, value[FLW_VALUE_cached_bytes]),
                     flw_top_bytes(c, value[FLW_VALUE_deferred_bytes]),
                     flw_top_bytes(d, value[FLW_VALUE_unmapped_bytes]));
    if (page->height == 0 ||
        value[FLW_VALUE_captured_bytes] + value[FLW_VALUE_capture_count] != 0) {
        flw_top_add_line(page, FLW_TOP_PLAIN,
                         "captures %9s  %s under way  tables %s of host memory",
                         flw_top_bytes(a, value[FLW_VALUE_captured_bytes]),
                         flw_format_count(value[FLW_VALUE_capture_count], b),
                         flw_top_bytes(c, value[FLW_VALUE_host_bytes]));
    }
}

static void add_traffic(struct flw_top_page *page, const struct change *change)
{
    const uint64_t *value = change->now->value;
    char a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES], c[FLW_TOP_TEXT_BYTES], d[FLW_TOP_TEXT_BYTES],
        e[FLW_TOP_TEXT_BYTES];
    uint64_t allocs = grown(change, FLW_VALUE_alloc_count),
             hits = grown(change, FLW_VALUE_hit_count);
    double each = change->seconds > 0 ? change->seconds : 1;
    if (change->before != NULL) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "hits     %9s  now %s  %s allocations, %s /s",
                         flw_top_share(a, value[FLW_VALUE_hit_count], value[FLW_VALUE_alloc_count]),
                         flw_top_share(b, hits, allocs),
                         flw_format_count(value[FLW_VALUE_alloc_count], c),
                         flw_format_count((uint64_t)((double)allocs / each), d));
        flw_top_add_line(
            page, FLW_TOP_PLAIN, "events   %9s  recorded, %s queried  %s driver calls, %s /s",
            flw_format_count(value[FLW_VALUE_event_count], a),
            flw_format_count(value[FLW_VALUE_query_count], b),
            flw_format_count(value[FLW_VALUE_driver_call_count], c),
            flw_format_count((uint64_t)((double)grown(change, FLW_VALUE_driver_call_count) / each),
                             d));
    } else {
        flw_top_add_line(page, FLW_TOP_PLAIN, "hits     %9s  %s allocations",
                         flw_top_share(a, value[FLW_VALUE_hit_count], value[FLW_VALUE_alloc_count]),
                         flw_format_count(value[FLW_VALUE_alloc_count], c));
        flw_top_add_line(page, FLW_TOP_PLAIN, "events   %9s  recorded, %s queried  %s driver calls",
                         flw_format_count(value[FLW_VALUE_event_count], a),
                         flw_format_count(value[FLW_VALUE_query_count], b),
                         flw_format_count(value[FLW_VALUE_driver_call_count], c));
    }
    flw_top_add_line(page, FLW_TOP_PLAIN,
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
    char line[FLW_TOP_LINE_BYTES], part[80], text[FLW_TOP_TEXT_BYTES];
    uint64_t last = pool->value[FLW_VALUE_last_climb_stage];
    size_t width = page->width < sizeof line ? page->width : sizeof line - 1;
    snprintf(line, sizeof line, "ladder   ");
    const char *served = last == 0 ? NULL : flw_bulletin_stage(pool, last - 1);
    if (served != NULL) {
        snprintf(line, sizeof line, "ladder   last %s for %s ", served,
                 flw_top_bytes(text, pool->value[FLW_VALUE_last_climb_bytes]));
    }
    for (unsigned i = 0; i < FLW_BULLETIN_STAGES; i++) {
        const char *stage = flw_bulletin_stage(pool, i);
        if (stage == NULL || pool->stage_count[i] == 0) {
            continue;
        }
        snprintf(part, sizeof part, " %s %s ", stage, flw_format_count(pool->stage_count[i], text));
        if (strlen(line) + strlen(part) > width) {
            flw_top_add_line(page, FLW_TOP_PLAIN, "%s", line);
            snprintf(line, sizeof line, "         ");
        }
        strncat(line, part, sizeof line - strlen(line) - 1);
    }
    flw_top_add_line(page, FLW_TOP_PLAIN, "%s", line);
}

/* What few pools have, where this one does. */
static void add_absent(struct flw_top_page *page, const uint64_t *value)
{
    char a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES];
    if (value[FLW_VALUE_is_asleep] != 0) {
        flw_top_add_line(page, FLW_TOP_TITLE, "asleep   %9s  released  %s saved in host memory",
                         flw_top_bytes(a, value[FLW_VALUE_asleep_bytes]),
                         flw_top_bytes(b, value[FLW_VALUE_saved_bytes]));
    }
    if (value[FLW_VALUE_exported_bytes] + value[FLW_VALUE_imported_bytes] != 0) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "shared   %9s  exported  %s imported",
                         flw_top_bytes(a, value[FLW_VALUE_exported_bytes]),
                         flw_top_bytes(b, value[FLW_VALUE_imported_bytes]));
    }
}

/* Add a line for each arena, at most three on a screen, to leave room for the tables. */
static void add_arenas(struct flw_top_page *page, const struct flw_bulletin_pool *pool)
{
    uint64_t total = pool->value[FLW_VALUE_arena_count];
    uint32_t most = page->height == 0 || pool->arena_count < 3 ? pool->arena_count : 3;
    for (uint32_t i = 0; i < most; i++) {
        const struct flw_bulletin_arena *arena = &pool->arenas[i];
        char a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES], c[FLW_TOP_TEXT_BYTES];
        flw_top_add_line(
            page, FLW_TOP_PLAIN, "arena    %9s  %s%s%s  kept %s  %s leases  %" PRIu64 " captures",
            flw_top_bytes(a, arena->scratch_bytes), arena->name, arena->is_leased ? ", leased" : "",
            arena->is_locked ? ", locked" : "", flw_top_bytes(b, arena->persistent_bytes),
            flw_format_count(arena->lease_count, c), arena->capture_count);
    }
    if (most < total) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "... %" PRIu64 " more arenas", total - most);
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
    char line[FLW_TOP_LINE_BYTES] = "", text[FLW_TOP_TEXT_BYTES];
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
        flw_top_add_line(page, FLW_TOP_ALARM, "trouble%s", line);
    }
}

static void order_streams(const struct flw_bulletin_pool *pool, enum flw_top_sort sort,
                          uint32_t *order)
{
    struct flw_top_row rows[FLW_BULLETIN_STREAMS + 1];
    for (uint32_t i = 0; i < pool->stream_count; i++) {
        const struct flw_bulletin_stream *stream = &pool->streams[i];
        uint64_t held =
            stream->live_bytes + stream->cached_bytes + stream->free_bytes + stream->captured_bytes;
        rows[i] = (struct flw_top_row){
            flw_top_key(sort, held, stream->live_bytes, stream->cached_bytes,
                        flw_top_share_key(stream->hit_count, stream->alloc_count)),
            i};
    }
    flw_top_order(rows, pool->stream_count, order);
}

static void add_streams(struct flw_top_page *page, const struct flw_bulletin_pool *pool,
                        uint32_t most, const struct flw_top_view *view)
{
    uint32_t order[FLW_BULLETIN_STREAMS + 1];
    struct flw_top_window window = flw_top_window_of(page, pool->stream_count, most, view->skip);
    order_streams(pool, view->sort, order);
    flw_top_add_line(page, FLW_TOP_HEADING, "%-14s %10s %10s %10s %10s %7s %8s", "STREAM", "LIVE",
                     "ASKED", "CACHED", "FREE", "THREADS", "HITS");
    for (uint32_t i = window.first; i < window.end; i++) {
        const struct flw_bulletin_stream *row = &pool->streams[order[i]];
        char name[40], a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES], c[FLW_TOP_TEXT_BYTES],
            d[FLW_TOP_TEXT_BYTES], e[FLW_TOP_TEXT_BYTES];
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
        flw_top_add_line(page, FLW_TOP_PLAIN, "%-14.14s %10s %10s %10s %10s %7" PRIu64 " %8s", name,
                         flw_top_bytes(a, row->live_bytes), flw_top_bytes(b, row->requested_bytes),
                         flw_top_bytes(c, row->cached_bytes),
                         flw_top_bytes(d, row->free_bytes + row->captured_bytes), row->cache_count,
                         flw_top_share(e, row->hit_count, row->alloc_count));
    }
    flw_top_add_rest(page, window, "streams");
}

/* Classes have no order of their own that helps: the one that holds most comes first. */
static void order_classes(const struct flw_bulletin_pool *pool, enum flw_top_sort sort,
                          uint32_t *order)
{
    struct flw_top_row rows[FLW_BULLETIN_CLASSES];
    for (uint32_t i = 0; i < pool->class_count; i++) {
        const struct flw_bulletin_class *class = &pool->classes[i];
        uint64_t key = sort == FLW_TOP_BY_LIVE     ? class->live_bytes
                       : sort == FLW_TOP_BY_CACHED ? class->cached_bytes
                                                   : class->reserved_bytes;
        rows[i] = (struct flw_top_row){key, i};
    }
    flw_top_order(rows, pool->class_count, order);
}

static void add_classes(struct flw_top_page *page, const struct flw_bulletin_pool *pool,
                        uint32_t most, const struct flw_top_view *view)
{
    uint32_t order[FLW_BULLETIN_CLASSES];
    struct flw_top_window window = flw_top_window_of(page, pool->class_count, most, view->skip);
    order_classes(pool, view->sort, order);
    flw_top_add_line(page, FLW_TOP_HEADING, "%-14s %10s %10s %10s %10s %7s %8s", "CLASS", "LIVE",
                     "ASKED", "CACHED", "RESERVED", "BLOCKS", "USED");
    for (uint32_t i = window.first; i < window.end; i++) {
        const struct flw_bulletin_class *row = &pool->classes[order[i]];
        char name[FLW_TOP_TEXT_BYTES], a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES],
            c[FLW_TOP_TEXT_BYTES], d[FLW_TOP_TEXT_BYTES], e[FLW_TOP_TEXT_BYTES];
        flw_top_add_line(page, FLW_TOP_PLAIN, "%-14s %10s %10s %10s %10s %7" PRIu64 " %8s",
                         row->size_bytes == 0 ? "runs" : flw_top_bytes(name, row->size_bytes),
                         flw_top_bytes(a, row->live_bytes), flw_top_bytes(b, row->requested_bytes),
                         flw_top_bytes(c, row->cached_bytes), flw_top_bytes(d, row->reserved_bytes),
                         row->live_count, flw_top_share(e, row->live_bytes, row->reserved_bytes));
    }
    flw_top_add_rest(page, window, "classes");
}

static void add_owners(struct flw_top_page *page, const struct flw_bulletin_pool *pool,
                       uint32_t most, const struct flw_top_view *view)
{
    struct flw_top_owner owners[FLW_TOP_OWNERS];
    uint32_t count = flw_top_list_owners(pool, owners);
    struct flw_top_window window = flw_top_window_of(page, count, most, view->skip);
    flw_top_add_line(page, FLW_TOP_HEADING, "%10s %8s %7s  %s", "ASKED", "SHARE", "BLOCKS",
                     "WHOSE");
    for (uint32_t i = window.first; i < window.end; i++) {
        char a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES];
        flw_top_add_line(page, FLW_TOP_PLAIN, "%10s %8s %7" PRIu64 "  %s",
                         flw_top_bytes(a, owners[i].bytes),
                         flw_top_share(b, owners[i].bytes, pool->value[FLW_VALUE_requested_bytes]),
                         owners[i].count, owners[i].name);
    }
    flw_top_add_rest(page, window, "owners");
    if (count == 0) {
        flw_top_add_line(
            page, FLW_TOP_PLAIN, "%s",
            "none: no recording with call stacks is under way (fallow record --stacks), or no room for it");
    }
}

/* Headings and blank lines take their part; the rest is shared, and what one table leaves the other
 * gets. */
static void add_tables(struct flw_top_page *page, const struct flw_bulletin_pool *pool,
                       const struct flw_top_view *view)
{
    uint32_t left = flw_top_room(page),
             extra = 2 + 2 + 2; /* two blanks, two headings, two "... more" */
    uint32_t rows = left > extra ? left - extra : 0;
    if (page->height == 0) {
        rows = FLW_TOP_LINES;
    }
    if (view->shows_owners) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "%s", "");
        add_owners(page, pool, left > 3 ? left - 3 : 0, view);
        return;
    }
    uint32_t streams = pool->stream_count, classes = pool->class_count;
    if (streams + classes > rows) {
        uint32_t half = rows / 2;
        streams = streams < half ? streams : classes < rows - half ? rows - classes : half;
        classes = rows - streams;
    }
    flw_top_add_line(page, FLW_TOP_PLAIN, "%s", "");
    add_streams(page, pool, streams, view);
    flw_top_add_line(page, FLW_TOP_PLAIN, "%s", "");
    add_classes(page, pool, classes, view);
    if (page->height == 0 && pool->holder_count > 0) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "%s", "");
        add_owners(page, pool, FLW_TOP_OWNERS, view);
    }
}

static void add_pool(struct flw_top_page *page, const struct change *change,
                     const struct flw_top_view *view)
{
    add_memory(page, change->now->value);
    add_absent(page, change->now->value);
    add_arenas(page, change->now);
    add_traffic(page, change);
    add_ladder(page, change->now);
    add_trouble(page, change->now);
    add_tables(page, change->now, view);
}

/* ---- a process */

#define NO_POOL UINT32_MAX

static void add_pool_line(struct flw_top_page *page, const struct flw_top_look *look,
                          uint32_t index, bool is_chosen)
{
    char label[FLW_TOP_LABEL_BYTES], a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES],
        c[FLW_TOP_TEXT_BYTES], d[FLW_TOP_TEXT_BYTES], e[FLW_TOP_TEXT_BYTES];
    const struct flw_bulletin_pool *pool = flw_top_pool(look, index, label);
    const uint64_t *value = pool->value;
    flw_top_add_line(page, is_chosen ? FLW_TOP_TITLE : FLW_TOP_PLAIN,
                     "%c %-5s %3" PRIu64 " %-16.16s %10s %10s %10s %7s %8s", is_chosen ? '>' : ' ',
                     label, value[FLW_VALUE_device],
                     pool->driver[0] == '\0' ? "libcuda.so.1" : pool->driver,
                     flw_top_bytes(a, value[FLW_VALUE_reserved_bytes]),
                     flw_top_bytes(b, value[FLW_VALUE_live_bytes]),
                     flw_top_bytes(c, value[FLW_VALUE_cached_bytes]),
                     flw_format_count(value[FLW_VALUE_stream_count], d),
                     flw_top_share(e, value[FLW_VALUE_hit_count], value[FLW_VALUE_alloc_count]));
}

/* At most `most`, the chosen one among them. */
static void add_pools(struct flw_top_page *page, const struct flw_top_look *look, uint32_t most,
                      uint32_t chosen, enum flw_top_sort sort)
{
    uint32_t *order = flw_host_alloc(look->pool_count, sizeof *order), place = 0;
    flw_top_order_pools(look, sort, order);
    while (chosen != NO_POOL && place < look->pool_count && order[place] != chosen) {
        place++;
    }
    uint32_t first = place >= most ? place - most + 1 : 0;
    flw_top_add_line(page, FLW_TOP_HEADING, "  %-5s %3s %-16s %10s %10s %10s %7s %8s", "POOL",
                     "DEV", "DRIVER", "RESERVED", "LIVE", "CACHED", "STREAMS", "HITS");
    for (uint32_t i = first; i < look->pool_count && i - first < most; i++) {
        add_pool_line(page, look, order[i], order[i] == chosen);
    }
    flw_host_free(order);
    if (look->pool_total > look->pool_count) {
        flw_top_add_line(page, FLW_TOP_ALARM,
                         "%" PRIu64 " more pools do not fit into shared memory",
                         look->pool_total - look->pool_count);
    }
}

static void add_head(struct flw_top_page *page, const struct flw_top_look *look, const char *right)
{
    char left[128];
    snprintf(left, sizeof left, "fallow top  %s (%d)  %" PRIu64 " pool%s", look->name,
             (int)look->process, look->pool_total, look->pool_total == 1 ? "" : "s");
    flw_top_add_title(page, left, right);
}

static void begin_page(struct flw_top_page *page)
{
    page->line_count = 0;
    page->most_skip = 0;
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
        flw_top_add_line(page, FLW_TOP_PLAIN, "no pools");
    } else {
        add_pools(page, look, FLW_TOP_LINES, NO_POOL, FLW_TOP_BY_NUMBER);
    }
}

void flw_top_fill_pool(struct flw_top_page *page, const struct flw_top_look *look,
                       const struct flw_top_look *before, uint32_t pool)
{
    char label[FLW_TOP_LABEL_BYTES];
    struct change change = change_of(look, before, pool, label);
    begin_page(page);
    flw_top_add_line(page, FLW_TOP_PLAIN, "%s", "");
    flw_top_add_line(page, FLW_TOP_TITLE, "pool %s", label);
    add_pool(page, &change, &(struct flw_top_view){.sort = FLW_TOP_BY_NUMBER});
}

/* "by live  ? help  q quit  12:30:01" */
static void say_right(char right[80], enum flw_top_sort sort)
{
    char clock[16] = "";
    time_t now = time(NULL);
    struct tm parts;
    if (localtime_r(&now, &parts) != NULL) {
        (void)strftime(clock, sizeof clock, "%H:%M:%S", &parts);
    }
    snprintf(right, 80, "%s%s%s? help  q quit  %s", sort == FLW_TOP_BY_NUMBER ? "" : "by ",
             sort == FLW_TOP_BY_NUMBER ? "" : flw_top_sort_name(sort),
             sort == FLW_TOP_BY_NUMBER ? "" : "  ", clock);
}

static void add_minute(struct flw_top_page *page, const struct flw_top_view *view, pid_t process,
                       const char *label)
{
    char line[FLW_TOP_HISTORY_BYTES], text[FLW_TOP_TEXT_BYTES];
    uint32_t taken = (uint32_t)strlen("minute   [] live, of 1023 KiB");
    uint32_t columns = page->width > taken ? page->width - taken : 0;
    if (view->history != NULL) {
        uint64_t top_bytes = flw_top_history_line(view->history, process, label, view->second,
                                                  columns, view->is_ascii, line);
        flw_top_add_line(page, FLW_TOP_PLAIN, "minute   [%s] live, of %s", line,
                         flw_top_bytes(text, top_bytes));
    }
}

void flw_top_fill_screen(struct flw_top_page *page, const struct flw_top_look *look,
                         const struct flw_top_look *before, const struct flw_top_view *view)
{
    char label[FLW_TOP_LABEL_BYTES], right[80];
    begin_page(page);
    say_right(right, view->sort);
    add_head(page, look, right);
    if (look->pool_count == 0) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "no pools yet");
        return;
    }
    uint32_t most = page->height / 4;
    add_pools(page, look, most == 0 ? 1 : most, view->pool, view->sort);
    struct change change = change_of(look, before, view->pool, label);
    flw_top_add_line(page, FLW_TOP_PLAIN, "%s", "");
    add_minute(page, view, look->process, label);
    add_pool(page, &change, view);
}

void flw_top_fill_help(struct flw_top_page *page)
{
    static const char *const lines[] = {
        "tab, n, p      the next pool, the one before",
        "up, down       in the list the process; else rows of the tables",
        "page up, down  ten of them; home, end: the first, the last",
        "enter          of the list: the process; escape, b: the list again",
        "r l c h        most reserved, live, cached, best hits first",
        "o              in their own order again",
        "w              whose the memory is, where call stacks are recorded; and back",
        "q              the end",
        "",
        "minute         live bytes in each second of the last minute; a letter of full",
        "               height would be the most that was reserved in it",
        "",
        "any key goes on"};
    begin_page(page);
    flw_top_add_line(page, FLW_TOP_TITLE, "fallow top: keys");
    flw_top_add_line(page, FLW_TOP_PLAIN, "%s", "");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "%s", lines[i]);
    }
}

/* ---- processes */

#define LIST_HEADING "%8s %-16s %5s %10s %10s %10s %8s"
#define LIST_COLUMNS 73 /* of a line without history */

void flw_top_fill_list_heading(struct flw_top_page *page)
{
    begin_page(page);
    flw_top_add_line(page, FLW_TOP_HEADING, LIST_HEADING, "PROCESS", "NAME", "POOLS", "RESERVED",
                     "LIVE", "CACHED", "HITS");
}

static void format_process(char line[FLW_TOP_LINE_BYTES], const struct flw_top_look *look)
{
    char a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES], c[FLW_TOP_TEXT_BYTES], d[FLW_TOP_TEXT_BYTES];
    struct flw_top_sums sums = flw_top_sum_up(look);
    snprintf(line, FLW_TOP_LINE_BYTES, "%8d %-16.16s %5" PRIu64 " %10s %10s %10s %8s",
             (int)look->process, look->name, look->pool_total, flw_top_bytes(a, sums.reserved),
             flw_top_bytes(b, sums.live), flw_top_bytes(c, sums.cached),
             flw_top_share(d, sums.hits, sums.allocs));
}

void flw_top_fill_list_line(struct flw_top_page *page, const struct flw_top_look *look)
{
    char line[FLW_TOP_LINE_BYTES];
    begin_page(page);
    format_process(line, look);
    flw_top_add_line(page, FLW_TOP_PLAIN, "%s", line);
}

/* Where there is room each process has its minute at the end of its line, else the chosen one has below the
 * title. */
void flw_top_fill_processes(struct flw_top_page *page, const struct flw_top_look *looks,
                            uint32_t count, const struct flw_top_view *view)
{
    char left[64], right[80], line[FLW_TOP_LINE_BYTES], minute[FLW_TOP_HISTORY_BYTES];
    uint32_t *order = flw_host_alloc(count, sizeof *order), place = 0;
    begin_page(page);
    flw_top_order_looks(looks, count, view->sort, order);
    uint32_t columns = page->width > LIST_COLUMNS + 4 ? page->width - LIST_COLUMNS - 4 : 0;
    bool has_minutes = columns >= FLW_TOP_SECONDS / 4 && view->history != NULL;
    say_right(right, view->sort);
    snprintf(left, sizeof left, "fallow top  %u process%s", count, count == 1 ? "" : "es");
    flw_top_add_title(page, left, right);
    if (count > 0 && !has_minutes) {
        add_minute(page, view, looks[view->chosen].process, "");
    }
    snprintf(line, sizeof line, "  " LIST_HEADING "%s", "PROCESS", "NAME", "POOLS", "RESERVED",
             "LIVE", "CACHED", "HITS", has_minutes ? "  LIVE, LAST MINUTE" : "");
    flw_top_add_line(page, FLW_TOP_HEADING, "%s", line);
    while (place < count && order[place] != view->chosen) {
        place++;
    }
    uint32_t most =
        flw_top_room(page) > (view->note != NULL) ? flw_top_room(page) - (view->note != NULL) : 1;
    for (uint32_t i = place >= most ? place - most + 1 : 0; i < count && flw_top_room(page) > 0;
         i++) {
        const struct flw_top_look *look = &looks[order[i]];
        minute[0] = '\0';
        format_process(line, look);
        if (has_minutes) {
            (void)flw_top_history_line(view->history, look->process, "", view->second, columns,
                                       view->is_ascii, minute);
        }
        flw_top_add_line(page, i == place ? FLW_TOP_TITLE : FLW_TOP_PLAIN, "%c %s  %s",
                         i == place ? '>' : ' ', line, minute);
        if (flw_top_room(page) == 1 && view->note != NULL) {
            break;
        }
    }
    if (count == 0) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "no process of this user shows pools");
    }
    if (view->note != NULL) {
        flw_top_add_line(page, FLW_TOP_ALARM, "%s", view->note);
    }
    flw_host_free(order);
}
