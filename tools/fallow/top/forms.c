/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the machine-readable forms of `fallow top`: --json, with stable keys and meanings, and --prometheus (text exposition
 * format 0.0.4).
 */
#include <inttypes.h>
#include <string.h>

#include "common/tool_host.h"
#include "top/top.h"
#include "trace/io/jsonwriter.h"

/* ---- names of values: of a pool, and of the words of a class, a stream and an arena behind its key */

struct field {
    const char *name;
    const char *help; /* of the metric; NULL: none */
};

static const struct field class_fields[] = {{"reserved_bytes", "slabs of the class; runs in use"},
                                            {"live_count", "blocks allocated"},
                                            {"live_bytes", "live blocks, as given"},
                                            {"requested_bytes", "live blocks, requested bytes"},
                                            {"cached_bytes", "free, in thread caches"},
                                            {"deferred_bytes", "freed, not yet reusable"}};

static const struct field stream_fields[] = {
    {"handle", NULL},
    {"live_count", "blocks that it allocated"},
    {"live_bytes", "blocks that it allocated, as given"},
    {"requested_bytes", "blocks that it allocated"},
    {"cached_bytes", "free, in caches of threads"},
    {"free_bytes", "free, its own"},
    {"captured_bytes", "free memory that captures on it hold"},
    {"alloc_count", NULL},
    {"hit_count", NULL},
    {"cache_count", "threads that use it"},
    {"fence_count", "recorded, not known to be complete"}};

static const struct field arena_fields[] = {{"scratch_bytes", NULL}, {"persistent_bytes", NULL},
                                            {"lease_count", NULL},   {"capture_count", NULL},
                                            {"is_leased", NULL},     {"is_locked", NULL}};

#define COUNT(fields)   (sizeof(fields) / sizeof *(fields))
#define CLASS_KEY       1 /* words: size_bytes */
#define STREAM_KEY      2 /* kind, id */
#define WORDS(type)     (sizeof(struct type) / sizeof(uint64_t))
#define WORDS_OF(value) ((const uint64_t *)(const void *)&(value))
_Static_assert(WORDS(flw_stats_page_class) == CLASS_KEY + COUNT(class_fields), "a field a word");
_Static_assert(WORDS(flw_stats_page_stream) == STREAM_KEY + COUNT(stream_fields), "a field a word");

enum kind {
    LABEL, /* not a metric */
    VALUE,
    TOTAL
};

static const struct {
    struct field field;
    enum kind kind;
} values[] = {
#define X(name, source, kind, help) {{#name, help}, kind},
    FLW_STATS_PAGE_VALUES(X)
#undef X
};

static const char *name_kind(uint64_t kind)
{
    static const char *const names[] = {[FLW_STATS_PAGE_STREAM] = "stream",
                                        [FLW_STATS_PAGE_GONE] = "gone",
                                        [FLW_STATS_PAGE_SHARED] = "shared",
                                        [FLW_STATS_PAGE_REST] = "rest"};
    return kind < COUNT(names) ? names[kind] : "unknown";
}

/* ---- JSON */

#define SCHEMA 1 /* raised when a key is removed or gets another meaning */

static void write_fields(struct flw_json_writer *out, const uint64_t *words,
                         const struct field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        flw_json_number(out, fields[i].name, words[i]);
    }
    flw_json_end(out, '}');
}

static void write_ladder(struct flw_json_writer *out, const struct flw_stats_page_pool *pool)
{
    uint64_t last = pool->value[FLW_VALUE_last_climb_stage];
    flw_json_begin(out, "stages", '[');
    for (unsigned i = 0; i < FLW_STATS_PAGE_STAGES && flw_stats_page_stage(pool, i) != NULL; i++) {
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "stage", flw_stats_page_stage(pool, i));
        FLW_JSON_NUMBERS(out, {"count", pool->stage_count[i]}, {"ns", pool->stage_ns[i]});
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
    const char *served = last == 0 ? NULL : flw_stats_page_stage(pool, last - 1);
    if (flw_json_begin_known(out, "last_climb", served != NULL, '{')) {
        flw_json_text(out, "stage", served);
        flw_json_number(out, "bytes", pool->value[FLW_VALUE_last_climb_bytes]);
        flw_json_end(out, '}');
    }
}

static void write_streams(struct flw_json_writer *out, const struct flw_stats_page_pool *pool)
{
    flw_json_begin(out, "streams", '[');
    for (uint32_t i = 0; i < pool->stream_count; i++) {
        const struct flw_stats_page_stream *stream = &pool->streams[i];
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "kind", name_kind(stream->kind));
        flw_json_known(out, "id",
                       stream->kind == FLW_STATS_PAGE_STREAM || stream->kind == FLW_STATS_PAGE_GONE,
                       stream->id);
        write_fields(out, WORDS_OF(*stream) + STREAM_KEY, stream_fields, COUNT(stream_fields));
    }
    flw_json_end(out, ']');
}

static void write_classes(struct flw_json_writer *out, const struct flw_stats_page_pool *pool)
{
    flw_json_begin(out, "classes", '[');
    for (uint32_t i = 0; i < pool->class_count; i++) {
        const struct flw_stats_page_class *class = &pool->classes[i];
        flw_json_begin(out, NULL, '{');
        flw_json_known(out, "size_bytes", class->size_bytes != 0, class->size_bytes);
        write_fields(out, WORDS_OF(*class) + CLASS_KEY, class_fields, COUNT(class_fields));
    }
    flw_json_end(out, ']');
}

/* Write null if no call stacks are recorded. */
static void write_owners(struct flw_json_writer *out, const struct flw_stats_page_pool *pool)
{
    struct flw_top_owner owners[FLW_TOP_OWNERS];
    uint32_t count = flw_top_list_owners(pool, owners);
    if (!flw_json_begin_known(out, "owners", count != 0, '[')) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "owner", owners[i].name);
        FLW_JSON_NUMBERS(out, {"requested_bytes", owners[i].bytes},
                         {"live_count", owners[i].count});
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

static void write_pool(struct flw_json_writer *out, const struct flw_top_pool *labelled)
{
    const struct flw_stats_page_pool *pool = labelled->stats_page;
    uint64_t hits = pool->value[FLW_VALUE_hit_count], allocs = pool->value[FLW_VALUE_alloc_count];
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "pool", labelled->label);
    flw_json_text(out, "driver", pool->driver);
    for (unsigned i = 0; i < FLW_VALUE_COUNT; i++) {
        if (i != FLW_VALUE_number && i != FLW_VALUE_last_climb_stage &&
            i != FLW_VALUE_last_climb_bytes) {
            flw_json_number(out, values[i].field.name, pool->value[i]);
        }
    }
    flw_json_real(out, "hit_rate", allocs != 0, allocs != 0 ? (double)hits / (double)allocs : 0);
    write_ladder(out, pool);
    write_streams(out, pool);
    write_classes(out, pool);
    write_owners(out, pool);
    flw_json_begin(out, "arenas", '[');
    for (uint32_t i = 0; i < pool->arena_count; i++) {
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "name", pool->arenas[i].name);
        write_fields(out, WORDS_OF(pool->arenas[i]), arena_fields, COUNT(arena_fields));
    }
    flw_json_end(out, ']');
    flw_json_end(out, '}');
}

void flw_top_print_json(const struct flw_top_snapshot *snapshot, FILE *file)
{
    struct flw_json_writer writer = {.file = file, .is_spaced = true}, *out = &writer;
    flw_json_begin(out, NULL, '{');
    FLW_JSON_NUMBERS(out, {"schema", SCHEMA}, {"process", (uint64_t)snapshot->process});
    flw_json_text(out, "name", snapshot->name);
    FLW_JSON_NUMBERS(out, {"clock_ns", snapshot->clock_ns}, {"pool_total", snapshot->pool_total});
    flw_json_begin(out, "pools", '[');
    for (uint32_t i = 0; i < snapshot->pool_count; i++) {
        write_pool(out, &snapshot->pools[i]);
    }
    flw_json_end(out, ']');
    flw_json_end(out, '}');
}

/* ---- Prometheus */

#define METRIC_BYTES 96

/* The pools of all processes. */
struct samples {
    FILE *out;
    size_t count;
    struct {
        const struct flw_stats_page_pool *pool;
        const char *process_name;
        char labels[96]; /* process="1",pool="0",device="0" */
    } * pools;
};

/* Print the value of a label, with backslashes and quotes escaped. */
static void put_label(FILE *out, const char *name, const char *text)
{
    fprintf(out, ",%s=\"", name);
    for (; *text != '\0'; text++) {
        fprintf(out, *text == '\\' || *text == '"' ? "\\%c" : "%c", *text);
    }
    fputc('"', out);
}

static void put_head(FILE *out, const char *metric, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric, help, metric, type);
}

static bool is_count(const char *name)
{
    size_t length = strlen(name), suffix = strlen("_count");
    return length > suffix && strcmp(name + length - suffix, "_count") == 0;
}

/* Set `metric` and print its head. "_count" is left out of the name: in Prometheus that is the ending of summaries. */
static void begin_metric(const struct samples *samples, char metric[METRIC_BYTES],
                         const char *prefix, const struct field *field, bool is_total)
{
    static const struct {
        const char *name, *metric;
    } others[] = {{"live_count", "live_blocks"},
                  {"stream_count", "streams"},
                  {"thread_cache_count", "thread_caches"},
                  {"capture_count", "captures"},
                  {"arena_count", "arenas"},
                  {"cache_count", "thread_caches"},
                  {"fence_count", "open_fences"}};
    const char *name = field->name;
    for (size_t i = 0; i < COUNT(others); i++) {
        name = strcmp(others[i].name, field->name) == 0 ? others[i].metric : name;
    }
    snprintf(metric, METRIC_BYTES, "fallow_%s_%.*s%s", prefix,
             (int)(strlen(name) - (is_count(name) ? strlen("_count") : 0)), name,
             is_total ? "_total" : "");
    put_head(samples->out, metric, is_total ? "counter" : "gauge", field->help);
}

static void put_pools(const struct samples *samples)
{
    char metric[METRIC_BYTES];
    put_head(samples->out, "fallow_pool_info", "gauge", "process and driver of the pool; always 1");
    for (size_t i = 0; i < samples->count; i++) {
        fprintf(samples->out, "fallow_pool_info{%s", samples->pools[i].labels);
        put_label(samples->out, "command", samples->pools[i].process_name);
        put_label(samples->out, "driver", samples->pools[i].pool->driver);
        fputs("} 1\n", samples->out);
    }
    for (unsigned v = 0; v < FLW_VALUE_COUNT; v++) {
        if (values[v].kind == LABEL) {
            continue;
        }
        begin_metric(samples, metric, "pool", &values[v].field, values[v].kind == TOTAL);
        for (size_t i = 0; i < samples->count; i++) {
            fprintf(samples->out, "%s{%s} %" PRIu64 "\n", metric, samples->pools[i].labels,
                    samples->pools[i].pool->value[v]);
        }
    }
}

static void put_ladder(const struct samples *samples, const char *metric, const char *help,
                       bool is_time)
{
    put_head(samples->out, metric, "counter", help);
    for (size_t i = 0; i < samples->count; i++) {
        const struct flw_stats_page_pool *pool = samples->pools[i].pool;
        const char *stage;
        for (unsigned s = 0; (stage = flw_stats_page_stage(pool, s)) != NULL; s++) {
            fprintf(samples->out, "%s{%s,stage=\"%s\"} ", metric, samples->pools[i].labels, stage);
            fprintf(samples->out, is_time ? "%.9f\n" : "%.0f\n",
                    is_time ? (double)pool->stage_ns[s] / 1e9 : (double)pool->stage_count[s]);
        }
    }
}

/* Print a word of each stream or class. Rows with the same key, of streams that the driver cannot distinguish, are one
 * sample with the sum: labels must not repeat. */
static void put_rows(FILE *out, const char *metric, const char *labels,
                     const struct flw_stats_page_pool *pool, bool is_stream, size_t word)
{
    const uint64_t *rows = is_stream ? WORDS_OF(pool->streams) : WORDS_OF(pool->classes);
    size_t row_words = is_stream ? WORDS(flw_stats_page_stream) : WORDS(flw_stats_page_class);
    size_t key_bytes =
        (is_stream ? STREAM_KEY + 1 : CLASS_KEY) * sizeof *rows; /* with the handle */
    const uint64_t *end = rows + row_words * (is_stream ? pool->stream_count : pool->class_count);
    for (const uint64_t *row = rows; row < end; row += row_words) {
        uint64_t sum = 0;
        bool is_repeated = false;
        for (const uint64_t *other = rows; other < end; other += row_words) {
            if (memcmp(row, other, key_bytes) == 0) {
                is_repeated |= other < row;
                sum += other[word];
            }
        }
        if (is_repeated) {
            continue;
        }
        fprintf(out, "%s{%s,", metric, labels);
        if (is_stream) {
            fprintf(out, "kind=\"%s\",stream=\"%" PRIu64 "\",handle=\"%#" PRIx64, name_kind(row[0]),
                    row[0] == FLW_STATS_PAGE_REST ? 0 : row[1], row[2]);
        } else {
            fprintf(out, row[0] == 0 ? "class=\"runs" : "class=\"%" PRIu64, row[0]);
        }
        fprintf(out, "\"} %" PRIu64 "\n", sum);
    }
}

/* Print the metrics of streams or classes: sizes, then counts. */
static void put_table(const struct samples *samples, bool is_stream)
{
    const struct field *fields = is_stream ? stream_fields : class_fields;
    size_t count = is_stream ? COUNT(stream_fields) : COUNT(class_fields);
    char metric[METRIC_BYTES];
    for (size_t i = 0; i < 2 * count; i++) {
        const struct field *field = &fields[i % count];
        if (field->help == NULL || is_count(field->name) != (i >= count)) {
            continue;
        }
        begin_metric(samples, metric, is_stream ? "stream" : "class", field, false);
        for (size_t p = 0; p < samples->count; p++) {
            put_rows(samples->out, metric, samples->pools[p].labels, samples->pools[p].pool,
                     is_stream, (is_stream ? STREAM_KEY : CLASS_KEY) + i % count);
        }
    }
}

static struct samples list_samples(const struct flw_top_snapshots *all, FILE *out)
{
    struct samples samples = {.out = out};
    size_t capacity = 0;
    for (size_t i = 0; i < all->count; i++) {
        for (uint32_t p = 0; p < all->snapshots[i].pool_count; p++) {
            const struct flw_top_pool *pool = &all->snapshots[i].pools[p];
            FLW_HOST_GROW(samples.pools, capacity, samples.count + 1);
            size_t at = samples.count++;
            samples.pools[at].pool = pool->stats_page;
            samples.pools[at].process_name = all->snapshots[i].name;
            snprintf(samples.pools[at].labels, sizeof samples.pools[at].labels,
                     "process=\"%d\",pool=\"%s\",device=\"%" PRIu64 "\"",
                     (int)all->snapshots[i].process, pool->label,
                     pool->stats_page->value[FLW_VALUE_device]);
        }
    }
    return samples;
}

void flw_top_print_prometheus(const struct flw_top_snapshots *all, FILE *out)
{
    struct samples samples = list_samples(all, out);
    put_head(out, "fallow_process_pools", "gauge", "pools of the process");
    for (size_t i = 0; i < all->count; i++) {
        fprintf(out, "fallow_process_pools{process=\"%d\"", (int)all->snapshots[i].process);
        put_label(out, "command", all->snapshots[i].name);
        fprintf(out, "} %" PRIu64 "\n", all->snapshots[i].pool_total);
    }
    put_pools(&samples);
    put_ladder(&samples, "fallow_ladder_climb_total", "how often a stage was reached", false);
    put_ladder(&samples, "fallow_ladder_seconds_total", "time spent on a stage", true);
    put_table(&samples, true);
    put_table(&samples, false);
    flw_host_free(samples.pools);
}
