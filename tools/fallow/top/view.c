/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the text of `fallow top`: its lines, figures and orders.
 * Does not: control a terminal (screen.c).
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "common/figures.h"
#include "common/tool_host.h"
#include "top/top.h"

#define LINE_BYTES 512

/* ---- figures, in texts that last to the end of the surrounding block */

/* Format "99.12 %", or "-" if `whole` is 0. Never 100 % if a part is missing. */
static const char *format_share(uint64_t part, uint64_t whole, char *out)
{
    double percent = 100 * (double)part / (double)whole;
    percent = part < whole && percent > 99.99 ? 99.99 : percent;
    snprintf(out, FLW_FIGURE_BYTES, whole == 0 ? "-" : "%.2f %%", percent);
    return out;
}
#define SHARE(part, whole) format_share(part, whole, (char[FLW_FIGURE_BYTES]){0})

/* ---- lines */

void flw_top_add_line(struct flw_top_page *page, enum flw_top_style style, const char *format, ...)
{
    char line[LINE_BYTES];
    uint32_t columns = 0;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    for (char *at = line; *at != '\0'; at++) {
        bool begins_letter =
            ((unsigned char)*at & 0xc0) != 0x80; /* a letter may have several bytes */
        if (begins_letter && columns++ == page->width) {
            *at = '\0';
            break;
        }
    }
    for (size_t end = strlen(line); end > 0 && line[end - 1] == ' '; end--) {
        line[end - 1] = '\0';
    }
    if (page->has_styles) {
        fputc(' ' + 1 + (int)style, page->out);
    }
    fprintf(page->out, "%s\n", line);
}

#define LINE(...) flw_top_add_line(page, FLW_TOP_PLAIN, __VA_ARGS__)

/* ---- orders */

const char *const flw_top_sort_names[FLW_TOP_SORTS] = {"number", "reserved", "live", "cached",
                                                       "hits"};

/* The figures by which processes, pools, streams and classes are sorted. */
struct row {
    uint64_t reserved, live, cached, hits, allocs;
    uint64_t key; /* the largest is first; equal keys keep their order */
    uint32_t index;
};

static int compare_rows(const void *left, const void *right)
{
    const struct row *a = left, *b = right;
    return a->key != b->key ? (a->key < b->key ? 1 : -1) : (a->index < b->index ? -1 : 1);
}

static void sort_rows(struct row *rows, size_t number, enum flw_top_sort sort)
{
    for (uint32_t i = 0; i < number; i++) {
        struct row *row = &rows[i];
        double hit_share = row->allocs == 0 ? 0 : (double)row->hits / (double)row->allocs;
        const uint64_t keys[FLW_TOP_SORTS] = {0, row->reserved, row->live, row->cached,
                                              (uint64_t)(hit_share * 1e9)};
        row->key = keys[sort];
        row->index = i;
    }
    qsort(rows, number, sizeof *rows, compare_rows);
}

#define V(name) value[FLW_VALUE_##name]

static void add_to_row(struct row *row, const uint64_t *value)
{
    row->reserved += V(reserved_bytes);
    row->live += V(live_bytes);
    row->cached += V(cached_bytes);
    row->hits += V(hit_count);
    row->allocs += V(alloc_count);
}

/* Return the snapshots in order, each with the sums over all pools; flw_host_free. */
static struct row *list_snapshots(const struct flw_top_snapshots *all, enum flw_top_sort sort)
{
    struct row *rows = flw_host_alloc(all->count, sizeof *rows);
    for (size_t i = 0; i < all->count; i++) {
        for (uint32_t p = 0; p < all->snapshots[i].pool_count; p++) {
            add_to_row(&rows[i], all->snapshots[i].pools[p].stats_page->value);
        }
    }
    sort_rows(rows, all->count, sort);
    return rows;
}

/* ---- one pool */

static void add_memory(struct flw_top_page *page, const uint64_t *value)
{
    char bar[] = "........................";
    double full = V(limit_bytes) == 0 ? 0 : (double)V(reserved_bytes) / (double)V(limit_bytes);
    memset(bar, '#', (size_t)(fmin(full, 1) * (double)strlen(bar) + .5));
    LINE("reserved %9s  of %9s  [%s]  peak %s", FLW_SIZE(V(reserved_bytes)),
         FLW_SIZE(V(limit_bytes)), bar, FLW_SIZE(V(peak_reserved_bytes)));
    LINE("live     %9s  asked %9s  in %s blocks  peak asked %s", FLW_SIZE(V(live_bytes)),
         FLW_SIZE(V(requested_bytes)), FLW_COUNT(V(live_count)), FLW_SIZE(V(peak_requested_bytes)));
    LINE("free     %9s  cached %s  deferred %s  unmapped %s", FLW_SIZE(V(free_bytes)),
         FLW_SIZE(V(cached_bytes)), FLW_SIZE(V(deferred_bytes)), FLW_SIZE(V(unmapped_bytes)));
    LINE("captures %9s  %s under way  tables %s of host memory", FLW_SIZE(V(captured_bytes)),
         FLW_COUNT(V(capture_count)), FLW_SIZE(V(host_bytes)));
    if (V(is_asleep) != 0) {
        flw_top_add_line(page, FLW_TOP_TITLE, "asleep   %9s  released  %s saved in host memory",
                         FLW_SIZE(V(asleep_bytes)), FLW_SIZE(V(saved_bytes)));
    }
    if (V(exported_bytes) + V(imported_bytes) != 0) {
        LINE("shared   %9s  exported  %s imported", FLW_SIZE(V(exported_bytes)),
             FLW_SIZE(V(imported_bytes)));
    }
}

static void add_arenas(struct flw_top_page *page, const struct flw_stats_page_pool *pool)
{
    const uint64_t *value = pool->value;
    for (uint32_t i = 0; i < pool->arena_count; i++) {
        const struct flw_stats_page_arena *arena = &pool->arenas[i];
        LINE("arena    %9s  %s%s%s  kept %s  %s leases  %" PRIu64 " captures",
             FLW_SIZE(arena->scratch_bytes), arena->name, arena->is_leased ? ", leased" : "",
             arena->is_locked ? ", locked" : "", FLW_SIZE(arena->persistent_bytes),
             FLW_COUNT(arena->lease_count), arena->capture_count);
    }
    if (pool->arena_count < V(arena_count)) {
        LINE("... %" PRIu64 " more arenas", V(arena_count) - pool->arena_count);
    }
}

/* A pool, and the same pool some time earlier. */
struct change {
    double seconds;
    const uint64_t *value, *before; /* NULL: no earlier snapshot */
};

static uint64_t grown(const struct change *change, enum flw_stats_page_value which)
{
    uint64_t now = change->value[which];
    return now - (change->before == NULL ? now : flw_min(now, change->before[which]));
}

/* Format ", 12 /s", or "" without an earlier snapshot. */
static const char *format_rate(const struct change *change, enum flw_stats_page_value which,
                               char *out)
{
    uint64_t per_second = (uint64_t)((double)grown(change, which) / change->seconds);
    snprintf(out, 2 * FLW_FIGURE_BYTES, ", %s /s", FLW_COUNT(per_second));
    return change->before == NULL ? "" : out;
}
#define RATE(change, which) format_rate(change, which, (char[2 * FLW_FIGURE_BYTES]){0})

static void add_traffic(struct flw_top_page *page, const struct change *change)
{
    const uint64_t *value = change->value;
    char now[2 * FLW_FIGURE_BYTES] = "";
    if (change->before != NULL) {
        snprintf(now, sizeof now, "  now %s",
                 SHARE(grown(change, FLW_VALUE_hit_count), grown(change, FLW_VALUE_alloc_count)));
    }
    LINE("hits     %9s%s  %s allocations%s", SHARE(V(hit_count), V(alloc_count)), now,
         FLW_COUNT(V(alloc_count)), RATE(change, FLW_VALUE_alloc_count));
    LINE("events   %9s  recorded, %s queried  %s driver calls%s", FLW_COUNT(V(event_count)),
         FLW_COUNT(V(query_count)), FLW_COUNT(V(driver_call_count)),
         RATE(change, FLW_VALUE_driver_call_count));
    LINE("waits    %9s  of the host, %s of streams  %s grows, %s moves, %s trims",
         FLW_COUNT(V(wait_count)), FLW_COUNT(V(stream_wait_count)), FLW_COUNT(V(grow_count)),
         FLW_COUNT(V(remap_count)), FLW_COUNT(V(trim_count)));
}

/* The last climb above the first stage, then every stage that was reached, on as many lines as needed. */
static void add_ladder(struct flw_top_page *page, const struct flw_stats_page_pool *pool)
{
    const uint64_t *value = pool->value;
    char line[LINE_BYTES] = "ladder   ", part[80];
    const char *served =
        V(last_climb_stage) == 0 ? NULL : flw_stats_page_stage(pool, V(last_climb_stage) - 1);
    if (served != NULL) {
        flw_append(line, sizeof line, "last %s for %s ", served, FLW_SIZE(V(last_climb_bytes)));
    }
    for (unsigned i = 0; i < FLW_STATS_PAGE_STAGES; i++) {
        const char *stage = flw_stats_page_stage(pool, i);
        if (stage == NULL || pool->stage_count[i] == 0) {
            continue;
        }
        snprintf(part, sizeof part, " %s %s ", stage, FLW_COUNT(pool->stage_count[i]));
        if (strlen(line) + strlen(part) > flw_min(page->width, sizeof line - 1)) {
            LINE("%s", line);
            strcpy(line, "         ");
        }
        flw_append(line, sizeof line, "%s", part);
    }
    LINE("%s", line);
}

/* Add the figures that should be 0 and are not. */
static void add_trouble(struct flw_top_page *page, const uint64_t *value)
{
    const struct {
        uint64_t count;
        const char *text;
    } troubles[] = {{V(oom_count), "allocations failed"},
                    {V(misuse_count), "frees refused"},
                    {V(lost_streams), "streams lost"},
                    {V(damage_count), "blocks damaged"}};
    char line[LINE_BYTES];
    strcpy(line, V(is_lost) != 0 ? "  the device is lost" : "");
    for (size_t i = 0; i < sizeof troubles / sizeof *troubles; i++) {
        if (troubles[i].count != 0) {
            flw_append(line, sizeof line, "  %s %s", FLW_COUNT(troubles[i].count),
                       troubles[i].text);
        }
    }
    if (line[0] != '\0') {
        flw_top_add_line(page, FLW_TOP_ALARM, "trouble%s", line);
    }
}

static void add_streams(struct flw_top_page *page, const struct flw_stats_page_pool *pool,
                        enum flw_top_sort sort)
{
    static const char *const names[] = {[FLW_STATS_PAGE_STREAM] = "%" PRIu64,
                                        [FLW_STATS_PAGE_GONE] = "gone %" PRIu64,
                                        [FLW_STATS_PAGE_REST] = "%" PRIu64 " more"};
    struct row rows[FLW_STATS_PAGE_STREAMS + 1];
    for (uint32_t i = 0; i < pool->stream_count; i++) {
        const struct flw_stats_page_stream *stream = &pool->streams[i];
        rows[i] = (struct row){stream->live_bytes + stream->cached_bytes + stream->free_bytes +
                                   stream->captured_bytes,
                               stream->live_bytes,
                               stream->cached_bytes,
                               stream->hit_count,
                               stream->alloc_count,
                               0,
                               0};
    }
    sort_rows(rows, pool->stream_count, sort);
    flw_top_add_line(page, FLW_TOP_HEADING, "%-14s %10s %10s %10s %10s %7s %8s", "STREAM", "LIVE",
                     "ASKED", "CACHED", "FREE", "THREADS", "HITS");
    for (uint32_t i = 0; i < pool->stream_count; i++) {
        const struct flw_stats_page_stream *stream = &pool->streams[rows[i].index];
        char name[40] = "any";
        if (stream->kind <= FLW_STATS_PAGE_REST && names[stream->kind] != NULL) {
            snprintf(name, sizeof name, names[stream->kind], stream->id);
        }
        LINE("%-14.14s %10s %10s %10s %10s %7" PRIu64 " %8s", name, FLW_SIZE(stream->live_bytes),
             FLW_SIZE(stream->requested_bytes), FLW_SIZE(stream->cached_bytes),
             FLW_SIZE(stream->free_bytes + stream->captured_bytes), stream->cache_count,
             SHARE(stream->hit_count, stream->alloc_count));
    }
}

/* Without another key the class with the most memory is first. */
static void add_classes(struct flw_top_page *page, const struct flw_stats_page_pool *pool,
                        enum flw_top_sort sort)
{
    struct row rows[FLW_STATS_PAGE_CLASSES];
    for (uint32_t i = 0; i < pool->class_count; i++) {
        const struct flw_stats_page_class *class = &pool->classes[i];
        rows[i] =
            (struct row){class->reserved_bytes, class->live_bytes, class->cached_bytes, 0, 0, 0, 0};
    }
    bool has_key = sort == FLW_TOP_BY_LIVE || sort == FLW_TOP_BY_CACHED;
    sort_rows(rows, pool->class_count, has_key ? sort : FLW_TOP_BY_RESERVED);
    flw_top_add_line(page, FLW_TOP_HEADING, "%-14s %10s %10s %10s %10s %7s %8s", "CLASS", "LIVE",
                     "ASKED", "CACHED", "RESERVED", "BLOCKS", "USED");
    for (uint32_t i = 0; i < pool->class_count; i++) {
        const struct flw_stats_page_class *class = &pool->classes[rows[i].index];
        LINE("%-14s %10s %10s %10s %10s %7" PRIu64 " %8s",
             class->size_bytes == 0 ? "runs" : FLW_SIZE(class->size_bytes),
             FLW_SIZE(class->live_bytes), FLW_SIZE(class->requested_bytes),
             FLW_SIZE(class->cached_bytes), FLW_SIZE(class->reserved_bytes), class->live_count,
             SHARE(class->live_bytes, class->reserved_bytes));
    }
}

static void add_owners(struct flw_top_page *page, const struct flw_stats_page_pool *pool)
{
    struct flw_top_owner owners[FLW_TOP_OWNERS];
    uint32_t number = flw_top_list_owners(pool, owners);
    if (number > 0) {
        LINE("%s", "");
        flw_top_add_line(page, FLW_TOP_HEADING, "%10s %8s %7s  %s", "ASKED", "SHARE", "BLOCKS",
                         "OWNER");
    }
    for (uint32_t i = 0; i < number; i++) {
        LINE("%10s %8s %7" PRIu64 "  %s", FLW_SIZE(owners[i].bytes),
             SHARE(owners[i].bytes, pool->value[FLW_VALUE_requested_bytes]), owners[i].count,
             owners[i].name);
    }
}

/* ---- processes */

/* The change of a pool since an earlier snapshot (or NULL). */
static struct change find_change(const struct flw_top_pool *pool,
                                 const struct flw_top_snapshot *snapshot,
                                 const struct flw_top_snapshot *before)
{
    struct change change = {1, pool->stats_page->value, NULL};
    if (before == NULL || before->clock_ns >= snapshot->clock_ns) {
        return change;
    }
    change.seconds = (double)(snapshot->clock_ns - before->clock_ns) / 1e9;
    for (uint32_t i = 0; i < before->pool_count; i++) {
        if (strcmp(before->pools[i].label, pool->label) == 0) {
            change.before = before->pools[i].stats_page->value;
        }
    }
    return change;
}

static void add_pool(struct flw_top_page *page, const struct flw_top_pool *pool,
                     const struct change *change, enum flw_top_sort sort)
{
    LINE("%s", "");
    flw_top_add_line(page, FLW_TOP_TITLE, "pool %s", pool->label);
    add_memory(page, change->value);
    add_arenas(page, pool->stats_page);
    add_traffic(page, change);
    add_ladder(page, pool->stats_page);
    add_trouble(page, change->value);
    LINE("%s", "");
    add_streams(page, pool->stats_page, sort);
    LINE("%s", "");
    add_classes(page, pool->stats_page, sort);
    add_owners(page, pool->stats_page);
}

void flw_top_write_process(struct flw_top_page *page, const struct flw_top_snapshot *snapshot,
                           const struct flw_top_snapshot *before, enum flw_top_sort sort)
{
    FLW_LOCAL struct row *rows = flw_host_alloc(snapshot->pool_count, sizeof *rows);
    for (uint32_t i = 0; i < snapshot->pool_count; i++) {
        add_to_row(&rows[i], snapshot->pools[i].stats_page->value);
    }
    sort_rows(rows, snapshot->pool_count, sort);
    flw_top_add_line(page, FLW_TOP_TITLE, "fallow top  %s (%d)  %" PRIu64 " pool%s", snapshot->name,
                     (int)snapshot->process, snapshot->pool_total,
                     flw_plural(snapshot->pool_total));
    if (snapshot->pool_count == 0) {
        LINE("no pools");
    } else {
        flw_top_add_line(page, FLW_TOP_HEADING, "%-5s %3s %-16s %10s %10s %10s %7s %8s", "POOL",
                         "DEV", "DRIVER", "RESERVED", "LIVE", "CACHED", "STREAMS", "HITS");
    }
    for (uint32_t i = 0; i < snapshot->pool_count; i++) {
        const struct flw_top_pool *pool = &snapshot->pools[rows[i].index];
        const uint64_t *value = pool->stats_page->value;
        LINE("%-5s %3" PRIu64 " %-16.16s %10s %10s %10s %7s %8s", pool->label, V(device),
             pool->stats_page->driver, FLW_SIZE(V(reserved_bytes)), FLW_SIZE(V(live_bytes)),
             FLW_SIZE(V(cached_bytes)), FLW_COUNT(V(stream_count)),
             SHARE(V(hit_count), V(alloc_count)));
    }
    if (snapshot->pool_total > snapshot->pool_count) {
        flw_top_add_line(page, FLW_TOP_ALARM,
                         "%" PRIu64 " more pools do not fit into shared memory",
                         snapshot->pool_total - snapshot->pool_count);
    }
    for (uint32_t i = 0; i < snapshot->pool_count; i++) {
        const struct flw_top_pool *pool = &snapshot->pools[rows[i].index];
        struct change change = find_change(pool, snapshot, before);
        add_pool(page, pool, &change, sort);
    }
}

void flw_top_write_list(struct flw_top_page *page, const struct flw_top_snapshots *all,
                        enum flw_top_sort sort)
{
    FLW_LOCAL struct row *rows = list_snapshots(all, sort);
    flw_top_add_line(page, FLW_TOP_HEADING, "%8s %-16s %5s %10s %10s %10s %8s", "PROCESS", "NAME",
                     "POOLS", "RESERVED", "LIVE", "CACHED", "HITS");
    for (size_t i = 0; i < all->count; i++) {
        const struct flw_top_snapshot *snapshot = &all->snapshots[rows[i].index];
        LINE("%8d %-16.16s %5" PRIu64 " %10s %10s %10s %8s", (int)snapshot->process, snapshot->name,
             snapshot->pool_total, FLW_SIZE(rows[i].reserved), FLW_SIZE(rows[i].live),
             FLW_SIZE(rows[i].cached), SHARE(rows[i].hits, rows[i].allocs));
    }
}

pid_t flw_top_choose(const struct flw_top_snapshots *all, enum flw_top_sort sort, pid_t process,
                     size_t step)
{
    FLW_LOCAL struct row *rows = list_snapshots(all, sort);
    size_t place = 0;
    for (size_t i = 0; i < all->count; i++) {
        place = all->snapshots[rows[i].index].process == process ? i : place;
    }
    pid_t chosen =
        all->count == 0 ? 0 : all->snapshots[rows[(place + step) % all->count].index].process;
    return chosen;
}
