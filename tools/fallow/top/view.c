/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a look as lines of text. Does not: control a terminal.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/figures.h"
#include "common/tool_host.h"
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
                     flw_format_size(reserved, a), flw_format_size(limit, b), bar,
                     flw_format_size(value[FLW_VALUE_peak_reserved_bytes], c));
    flw_top_add_line(page, FLW_TOP_PLAIN, "live     %9s  asked %9s  in %s blocks  peak asked %s",
                     flw_format_size(value[FLW_VALUE_live_bytes], a),
                     flw_format_size(value[FLW_VALUE_requested_bytes], b),
                     flw_format_count(value[FLW_VALUE_live_count], c),
                     flw_format_size(value[FLW_VALUE_peak_requested_bytes], d));
    flw_top_add_line(page, FLW_TOP_PLAIN, "free     %9s  cached %s  deferred %s  unmapped %s",
                     flw_format_size(value[FLW_VALUE_free_bytes], a),
                     flw_format_size(value[FLW_VALUE_cached_bytes], b),
                     flw_format_size(value[FLW_VALUE_deferred_bytes], c),
                     flw_format_size(value[FLW_VALUE_unmapped_bytes], d));
    flw_top_add_line(page, FLW_TOP_PLAIN, "captures %9s  %s under way  tables %s of host memory",
                     flw_format_size(value[FLW_VALUE_captured_bytes], a),
                     flw_format_count(value[FLW_VALUE_capture_count], b),
                     flw_format_size(value[FLW_VALUE_host_bytes], c));
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
                 flw_format_size(pool->value[FLW_VALUE_last_climb_bytes], text));
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
                         flw_format_size(value[FLW_VALUE_asleep_bytes], a),
                         flw_format_size(value[FLW_VALUE_saved_bytes], b));
    }
    if (value[FLW_VALUE_exported_bytes] + value[FLW_VALUE_imported_bytes] != 0) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "shared   %9s  exported  %s imported",
                         flw_format_size(value[FLW_VALUE_exported_bytes], a),
                         flw_format_size(value[FLW_VALUE_imported_bytes], b));
    }
}

static void add_arenas(struct flw_top_page *page, const struct flw_bulletin_pool *pool)
{
    uint64_t total = pool->value[FLW_VALUE_arena_count];
    for (uint32_t i = 0; i < pool->arena_count; i++) {
        const struct flw_bulletin_arena *arena = &pool->arenas[i];
        char a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES], c[FLW_TOP_TEXT_BYTES];
        flw_top_add_line(page, FLW_TOP_PLAIN,
                         "arena    %9s  %s%s%s  kept %s  %s leases  %" PRIu64 " captures",
                         flw_format_size(arena->scratch_bytes, a), arena->name,
                         arena->is_leased ? ", leased" : "", arena->is_locked ? ", locked" : "",
                         flw_format_size(arena->persistent_bytes, b),
                         flw_format_count(arena->lease_count, c), arena->capture_count);
    }
    if (pool->arena_count < total) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "... %" PRIu64 " more arenas",
                         total - pool->arena_count);
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
                        enum flw_top_sort sort)
{
    uint32_t order[FLW_BULLETIN_STREAMS + 1];
    order_streams(pool, sort, order);
    flw_top_add_line(page, FLW_TOP_HEADING, "%-14s %10s %10s %10s %10s %7s %8s", "STREAM", "LIVE",
                     "ASKED", "CACHED", "FREE", "THREADS", "HITS");
    for (uint32_t i = 0; i < pool->stream_count; i++) {
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
                         flw_format_size(row->live_bytes, a),
                         flw_format_size(row->requested_bytes, b),
                         flw_format_size(row->cached_bytes, c),
                         flw_format_size(row->free_bytes + row->captured_bytes, d),
                         row->cache_count, flw_top_share(e, row->hit_count, row->alloc_count));
    }
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
                        enum flw_top_sort sort)
{
    uint32_t order[FLW_BULLETIN_CLASSES];
    order_classes(pool, sort, order);
    flw_top_add_line(page, FLW_TOP_HEADING, "%-14s %10s %10s %10s %10s %7s %8s", "CLASS", "LIVE",
                     "ASKED", "CACHED", "RESERVED", "BLOCKS", "USED");
    for (uint32_t i = 0; i < pool->class_count; i++) {
        const struct flw_bulletin_class *row = &pool->classes[order[i]];
        char name[FLW_TOP_TEXT_BYTES], a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES],
            c[FLW_TOP_TEXT_BYTES], d[FLW_TOP_TEXT_BYTES], e[FLW_TOP_TEXT_BYTES];
        flw_top_add_line(
            page, FLW_TOP_PLAIN, "%-14s %10s %10s %10s %10s %7" PRIu64 " %8s",
            row->size_bytes == 0 ? "runs" : flw_format_size(row->size_bytes, name),
            flw_format_size(row->live_bytes, a), flw_format_size(row->requested_bytes, b),
            flw_format_size(row->cached_bytes, c), flw_format_size(row->reserved_bytes, d),
            row->live_count, flw_top_share(e, row->live_bytes, row->reserved_bytes));
    }
}

static void add_owners(struct flw_top_page *page, const struct flw_bulletin_pool *pool)
{
    struct flw_top_owner owners[FLW_TOP_OWNERS];
    uint32_t count = flw_top_list_owners(pool, owners);
    flw_top_add_line(page, FLW_TOP_HEADING, "%10s %8s %7s  %s", "ASKED", "SHARE", "BLOCKS",
                     "OWNER");
    for (uint32_t i = 0; i < count; i++) {
        char a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES];
        flw_top_add_line(page, FLW_TOP_PLAIN, "%10s %8s %7" PRIu64 "  %s",
                         flw_format_size(owners[i].bytes, a),
                         flw_top_share(b, owners[i].bytes, pool->value[FLW_VALUE_requested_bytes]),
                         owners[i].count, owners[i].name);
    }
}

static void add_pool(struct flw_top_page *page, const struct change *change, enum flw_top_sort sort)
{
    add_memory(page, change->now->value);
    add_absent(page, change->now->value);
    add_arenas(page, change->now);
    add_traffic(page, change);
    add_ladder(page, change->now);
    add_trouble(page, change->now);
    flw_top_add_line(page, FLW_TOP_PLAIN, "%s", "");
    add_streams(page, change->now, sort);
    flw_top_add_line(page, FLW_TOP_PLAIN, "%s", "");
    add_classes(page, change->now, sort);
    if (change->now->holder_count > 0) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "%s", "");
        add_owners(page, change->now);
    }
}

/* ---- a process */

static void add_pool_line(struct flw_top_page *page, const struct flw_top_look *look,
                          uint32_t index)
{
    char label[FLW_TOP_LABEL_BYTES], a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES],
        c[FLW_TOP_TEXT_BYTES], d[FLW_TOP_TEXT_BYTES], e[FLW_TOP_TEXT_BYTES];
    const struct flw_bulletin_pool *pool = flw_top_pool(look, index, label);
    const uint64_t *value = pool->value;
    flw_top_add_line(page, FLW_TOP_PLAIN, "%-5s %3" PRIu64 " %-16.16s %10s %10s %10s %7s %8s",
                     label, value[FLW_VALUE_device],
                     pool->driver[0] == '\0' ? "libcuda.so.1" : pool->driver,
                     flw_format_size(value[FLW_VALUE_reserved_bytes], a),
                     flw_format_size(value[FLW_VALUE_live_bytes], b),
                     flw_format_size(value[FLW_VALUE_cached_bytes], c),
                     flw_format_count(value[FLW_VALUE_stream_count], d),
                     flw_top_share(e, value[FLW_VALUE_hit_count], value[FLW_VALUE_alloc_count]));
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

void flw_top_write_process(struct flw_top_page *page, const struct flw_top_look *look,
                           const struct flw_top_look *before, enum flw_top_sort sort)
{
    char label[FLW_TOP_LABEL_BYTES];
    uint32_t *order = flw_host_alloc(look->pool_count, sizeof *order);
    flw_top_order_pools(look, sort, order);
    flw_top_add_line(page, FLW_TOP_TITLE, "fallow top  %s (%d)  %" PRIu64 " pool%s", look->name,
                     (int)look->process, look->pool_total, flw_plural(look->pool_total));
    if (look->pool_count == 0) {
        flw_top_add_line(page, FLW_TOP_PLAIN, "no pools");
    } else {
        flw_top_add_line(page, FLW_TOP_HEADING, "%-5s %3s %-16s %10s %10s %10s %7s %8s", "POOL",
                         "DEV", "DRIVER", "RESERVED", "LIVE", "CACHED", "STREAMS", "HITS");
    }
    for (uint32_t i = 0; i < look->pool_count; i++) {
        add_pool_line(page, look, order[i]);
    }
    if (look->pool_total > look->pool_count) {
        flw_top_add_line(page, FLW_TOP_ALARM,
                         "%" PRIu64 " more pools do not fit into shared memory",
                         look->pool_total - look->pool_count);
    }
    for (uint32_t i = 0; i < look->pool_count; i++) {
        struct change change = change_of(look, before, order[i], label);
        flw_top_add_line(page, FLW_TOP_PLAIN, "%s", "");
        flw_top_add_line(page, FLW_TOP_TITLE, "pool %s", label);
        add_pool(page, &change, sort);
    }
    flw_host_free(order);
}

void flw_top_write_list(struct flw_top_page *page, const struct flw_top_look *looks,
                        const uint32_t *order, uint32_t count)
{
    flw_top_add_line(page, FLW_TOP_HEADING, "%8s %-16s %5s %10s %10s %10s %8s", "PROCESS", "NAME",
                     "POOLS", "RESERVED", "LIVE", "CACHED", "HITS");
    for (uint32_t i = 0; i < count; i++) {
        const struct flw_top_look *look = &looks[order[i]];
        char a[FLW_TOP_TEXT_BYTES], b[FLW_TOP_TEXT_BYTES], c[FLW_TOP_TEXT_BYTES],
            d[FLW_TOP_TEXT_BYTES];
        struct flw_top_sums sums = flw_top_sum_up(look);
        flw_top_add_line(page, FLW_TOP_PLAIN, "%8d %-16.16s %5" PRIu64 " %10s %10s %10s %8s",
                         (int)look->process, look->name, look->pool_total,
                         flw_format_size(sums.reserved, a), flw_format_size(sums.live, b),
                         flw_format_size(sums.cached, c), flw_top_share(d, sums.hits, sums.allocs));
    }
}
