/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what programs read of `fallow top`: --json, whose keys stay and mean the same, and --prometheus, its
 * names and labels (text exposition format 0.0.4).
 */
#include <inttypes.h>
#include <string.h>

#include "top/top.h"
#include "trace/io/jsonwriter.h"

/* ---- JSON */

#define SCHEMA 1 /* raised when a key goes or means something else */

static const char *const value_names[] = {
#define X(name, source, kind, help) #name,
    FLW_BULLETIN_VALUES(X)
#undef X
};

static void write_ladder(struct flw_json_writer *out, const struct flw_bulletin_pool *pool)
{
    uint64_t last = pool->value[FLW_VALUE_last_climb_stage];
    flw_json_begin(out, "stages", '[');
    for (unsigned i = 0; i < FLW_BULLETIN_STAGES && flw_bulletin_stage(pool, i) != NULL; i++) {
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "stage", flw_bulletin_stage(pool, i));
        FLW_JSON_NUMBERS(out, {"count", pool->stage_count[i]}, {"ns", pool->stage_ns[i]});
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
    if (last == 0 || flw_bulletin_stage(pool, last - 1) == NULL) {
        flw_json_null(out, "last_climb");
        return;
    }
    flw_json_begin(out, "last_climb", '{');
    flw_json_text(out, "stage", flw_bulletin_stage(pool, last - 1));
    flw_json_number(out, "bytes", pool->value[FLW_VALUE_last_climb_bytes]);
    flw_json_end(out, '}');
}

static void write_class(struct flw_json_writer *out, const struct flw_bulletin_class *class)
{
    flw_json_begin(out, NULL, '{');
    flw_json_known(out, "size_bytes", class->size_bytes != 0, class->size_bytes);
    FLW_JSON_NUMBERS(
        out, {"reserved_bytes", class->reserved_bytes}, {"live_count", class->live_count},
        {"live_bytes", class->live_bytes}, {"requested_bytes", class->requested_bytes},
        {"cached_bytes", class->cached_bytes}, {"deferred_bytes", class->deferred_bytes});
    flw_json_end(out, '}');
}

static void write_stream(struct flw_json_writer *out, const struct flw_bulletin_stream *stream)
{
    bool has_id = stream->kind == FLW_BULLETIN_STREAM || stream->kind == FLW_BULLETIN_GONE;
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "kind", flw_top_kind(stream->kind));
    flw_json_known(out, "id", has_id, stream->id);
    FLW_JSON_NUMBERS(out, {"handle", stream->handle}, {"live_count", stream->live_count},
                     {"live_bytes", stream->live_bytes},
                     {"requested_bytes", stream->requested_bytes},
                     {"cached_bytes", stream->cached_bytes}, {"free_bytes", stream->free_bytes},
                     {"captured_bytes", stream->captured_bytes},
                     {"alloc_count", stream->alloc_count}, {"hit_count", stream->hit_count},
                     {"cache_count", stream->cache_count}, {"fence_count", stream->fence_count});
    flw_json_end(out, '}');
}

/* null: no call stacks are on record. */
static void write_owners(struct flw_json_writer *out, const struct flw_bulletin_pool *pool)
{
    struct flw_top_owner owners[FLW_TOP_OWNERS];
    uint32_t count = flw_top_list_owners(pool, owners);
    if (count == 0) {
        flw_json_null(out, "owners");
        return;
    }
    flw_json_begin(out, "owners", '[');
    for (uint32_t i = 0; i < count; i++) {
        flw_json_begin(out, NULL, '{');
        flw_json_text(out, "owner", owners[i].name);
        FLW_JSON_NUMBERS(out, {"requested_bytes", owners[i].bytes},
                         {"live_count", owners[i].count});
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

static void write_arena(struct flw_json_writer *out, const struct flw_bulletin_arena *arena)
{
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "name", arena->name);
    FLW_JSON_NUMBERS(out, {"scratch_bytes", arena->scratch_bytes},
                     {"persistent_bytes", arena->persistent_bytes},
                     {"lease_count", arena->lease_count}, {"capture_count", arena->capture_count},
                     {"is_leased", arena->is_leased}, {"is_locked", arena->is_locked});
    flw_json_end(out, '}');
}

static void put_pool(struct flw_json_writer *out, const struct flw_bulletin_pool *pool,
                     const char *label)
{
    uint64_t hits = pool->value[FLW_VALUE_hit_count], allocs = pool->value[FLW_VALUE_alloc_count];
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "pool", label);
    flw_json_text(out, "driver", pool->driver[0] == '\0' ? "libcuda.so.1" : pool->driver);
    for (unsigned i = 0; i < FLW_VALUE_COUNT; i++) {
        if (i != FLW_VALUE_number && i != FLW_VALUE_last_climb_stage &&
            i != FLW_VALUE_last_climb_bytes) {
            flw_json_number(out, value_names[i], pool->value[i]);
        }
    }
    flw_json_real(out, "hit_rate", allocs != 0, allocs != 0 ? (double)hits / (double)allocs : 0);
    write_ladder(out, pool);
    flw_json_begin(out, "streams", '[');
    for (uint32_t i = 0; i < pool->stream_count; i++) {
        write_stream(out, &pool->streams[i]);
    }
    flw_json_end(out, ']');
    flw_json_begin(out, "classes", '[');
    for (uint32_t i = 0; i < pool->class_count; i++) {
        write_class(out, &pool->classes[i]);
    }
    flw_json_end(out, ']');
    write_owners(out, pool);
    flw_json_begin(out, "arenas", '[');
    for (uint32_t i = 0; i < pool->arena_count; i++) {
        write_arena(out, &pool->arenas[i]);
    }
    flw_json_end(out, ']');
    flw_json_end(out, '}');
}

void flw_top_print_json(const struct flw_top_look *look, FILE *file)
{
    struct flw_json_writer writer = {.file = file, .is_spaced = true}, *out = &writer;
    flw_json_begin(out, NULL, '{');
    FLW_JSON_NUMBERS(out, {"schema", SCHEMA}, {"process", (uint64_t)look->process});
    flw_json_text(out, "name", look->name);
    FLW_JSON_NUMBERS(out, {"clock_ns", look->clock_ns}, {"pool_total", look->pool_total});
    flw_json_begin(out, "pools", '[');
    for (uint32_t i = 0; i < look->pool_count; i++) {
        char label[FLW_TOP_LABEL_BYTES];
        const struct flw_bulletin_pool *pool = flw_top_pool(look, i, label);
        put_pool(out, pool, label);
    }
    flw_json_end(out, ']');
    flw_json_end(out, '}');
}

/* ---- Prometheus */

struct looks {
    const struct flw_top_look *looks;
    size_t count;
    FILE *out;
};

/* A label's value: backslash, quote and line end are escaped. */
static void put_label(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '"') {
            fputc('\\', out);
        }
        if (*text == '\n') {
            fputs("\\n", out);
        } else {
            fputc(*text, out);
        }
    }
}

static void put_head(FILE *out, const char *metric, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metric, help, metric, type);
}

/* `metric{process="1",pool="0",device="0"`: more labels may follow. */
static void put_sample(FILE *out, const char *metric, const struct flw_top_look *look,
                       const struct flw_bulletin_pool *pool, const char *label)
{
    fprintf(out, "%s{process=\"%d\",pool=\"%s\",device=\"%" PRIu64 "\"", metric, (int)look->process,
            label, pool->value[FLW_VALUE_device]);
}

typedef void (*put_pool_function)(FILE *out, const char *metric, const struct flw_top_look *look,
                                  const struct flw_bulletin_pool *pool, const char *label,
                                  unsigned which);

static void each_pool(const struct looks *looks, const char *metric, put_pool_function put,
                      unsigned which)
{
    for (size_t i = 0; i < looks->count; i++) {
        for (uint32_t p = 0; p < looks->looks[i].pool_count; p++) {
            char label[FLW_TOP_LABEL_BYTES];
            const struct flw_bulletin_pool *pool = flw_top_pool(&looks->looks[i], p, label);
            put(looks->out, metric, &looks->looks[i], pool, label, which);
        }
    }
}

/* ---- values of pools */

enum kind {
    LABEL, /* told otherwise */
    VALUE,
    TOTAL
};

static const struct {
    const char *name;
    enum kind kind;
    const char *help;
} values[] = {
#define X(name, source, kind, help) {#name, kind, help},
    FLW_BULLETIN_VALUES(X)
#undef X
};

/* "_count" ends the names of summaries there. */
static void name_metric(char *metric, size_t room, const char *name, enum kind kind)
{
    static const struct {
        const char *name, *metric;
    } others[] = {{"live_count", "live_blocks"},
                  {"stream_count", "streams"},
                  {"thread_cache_count", "thread_caches"},
                  {"capture_count", "captures"},
                  {"arena_count", "arenas"}};
    size_t length = strlen(name), suffix = strlen("_count");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(others[i].name, name) == 0) {
            name = others[i].metric;
            length = strlen(name);
        }
    }
    if (length > suffix && strcmp(name + length - suffix, "_count") == 0) {
        length -= suffix;
    }
    snprintf(metric, room, "fallow_pool_%.*s%s", (int)length, name, kind == TOTAL ? "_total" : "");
}

static void put_value(FILE *out, const char *metric, const struct flw_top_look *look,
                      const struct flw_bulletin_pool *pool, const char *label, unsigned which)
{
    put_sample(out, metric, look, pool, label);
    fprintf(out, "} %" PRIu64 "\n", pool->value[which]);
}

static void put_values(const struct looks *looks)
{
    for (unsigned i = 0; i < FLW_VALUE_COUNT; i++) {
        char metric[96];
        if (values[i].kind != LABEL) {
            name_metric(metric, sizeof metric, values[i].name, values[i].kind);
            put_head(looks->out, metric, values[i].kind == TOTAL ? "counter" : "gauge",
                     values[i].help);
            each_pool(looks, metric, put_value, i);
        }
    }
}

static void put_info(FILE *out, const char *metric, const struct flw_top_look *look,
                     const struct flw_bulletin_pool *pool, const char *label, unsigned which)
{
    (void)which;
    put_sample(out, metric, look, pool, label);
    fprintf(out, ",command=\"");
    put_label(out, look->name);
    fprintf(out, "\",driver=\"");
    put_label(out, pool->driver[0] == '\0' ? "libcuda.so.1" : pool->driver);
    fprintf(out, "\"} 1\n");
}

/* ---- the ladder */

static void put_climbs(FILE *out, const char *metric, const struct flw_top_look *look,
                       const struct flw_bulletin_pool *pool, const char *label, unsigned which)
{
    for (unsigned i = 0; i < FLW_BULLETIN_STAGES; i++) {
        const char *stage = flw_bulletin_stage(pool, i);
        if (stage == NULL) {
            continue;
        }
        put_sample(out, metric, look, pool, label);
        fprintf(out, ",stage=\"%s\"} ", stage);
        if (which == 0) {
            fprintf(out, "%" PRIu64 "\n", pool->stage_count[i]);
        } else {
            fprintf(out, "%.9f\n", (double)pool->stage_ns[i] / 1e9);
        }
    }
}

/* ---- rows of classes and streams: words of their structures */

struct column {
    const char *name, *help;
    size_t offset;
};

#define COLUMN(type, field, name, help)          \
    {                                            \
        name, help, offsetof(struct type, field) \
    }

static const struct column class_columns[] = {
    COLUMN(flw_bulletin_class, reserved_bytes, "reserved_bytes", "slabs of the class; runs in use"),
    COLUMN(flw_bulletin_class, live_bytes, "live_bytes", "live blocks, as given"),
    COLUMN(flw_bulletin_class, requested_bytes, "requested_bytes", "live blocks, as asked"),
    COLUMN(flw_bulletin_class, cached_bytes, "cached_bytes", "free, in thread caches"),
    COLUMN(flw_bulletin_class, deferred_bytes, "deferred_bytes", "freed, not yet reusable"),
    COLUMN(flw_bulletin_class, live_count, "live_blocks", "blocks allocated"),
};

static const struct column stream_columns[] = {
    COLUMN(flw_bulletin_stream, live_bytes, "live_bytes", "blocks that it allocated, as given"),
    COLUMN(flw_bulletin_stream, requested_bytes, "requested_bytes", "blocks that it allocated"),
    COLUMN(flw_bulletin_stream, cached_bytes, "cached_bytes", "free, in caches of threads"),
    COLUMN(flw_bulletin_stream, free_bytes, "free_bytes", "free, its own"),
    COLUMN(flw_bulletin_stream, captured_bytes, "captured_bytes",
           "free memory that captures on it hold"),
    COLUMN(flw_bulletin_stream, live_count, "live_blocks", "blocks that it allocated"),
    COLUMN(flw_bulletin_stream, cache_count, "thread_caches", "threads that use it"),
    COLUMN(flw_bulletin_stream, fence_count, "open_fences", "recorded, not known to be complete"),
};
#undef COLUMN

static uint64_t word_at(const void *row, size_t offset)
{
    uint64_t word;
    memcpy(&word, (const unsigned char *)row + offset, sizeof word);
    return word;
}

static void put_class(FILE *out, const char *metric, const struct flw_top_look *look,
                      const struct flw_bulletin_pool *pool, const char *label, unsigned which)
{
    for (uint32_t i = 0; i < pool->class_count; i++) {
        uint64_t size_bytes = pool->classes[i].size_bytes;
        put_sample(out, metric, look, pool, label);
        if (size_bytes == 0) {
            fprintf(out, ",class=\"runs\"} ");
        } else {
            fprintf(out, ",class=\"%" PRIu64 "\"} ", size_bytes);
        }
        fprintf(out, "%" PRIu64 "\n", word_at(&pool->classes[i], class_columns[which].offset));
    }
}

static bool is_same(const struct flw_bulletin_stream *a, const struct flw_bulletin_stream *b)
{
    return a->kind == b->kind && a->id == b->id && a->handle == b->handle;
}

/* Streams that the driver does not tell apart are one sample: labels may not repeat. */
static void put_stream(FILE *out, const char *metric, const struct flw_top_look *look,
                       const struct flw_bulletin_pool *pool, const char *label, unsigned which)
{
    for (uint32_t i = 0; i < pool->stream_count; i++) {
        const struct flw_bulletin_stream *stream = &pool->streams[i];
        uint64_t sum = 0;
        bool is_told = false;
        for (uint32_t j = 0; j < pool->stream_count; j++) {
            if (is_same(stream, &pool->streams[j])) {
                is_told |= j < i;
                sum += word_at(&pool->streams[j], stream_columns[which].offset);
            }
        }
        if (!is_told) {
            put_sample(out, metric, look, pool, label);
            fprintf(out,
                    ",kind=\"%s\",stream=\"%" PRIu64 "\",handle=\"%#" PRIx64 "\"} %" PRIu64 "\n",
                    flw_top_kind(stream->kind), stream->kind == FLW_BULLETIN_REST ? 0 : stream->id,
                    stream->handle, sum);
        }
    }
}

static void put_table(const struct looks *looks, const char *prefix, const struct column *columns,
                      size_t count, put_pool_function put)
{
    for (unsigned i = 0; i < count; i++) {
        char metric[96];
        snprintf(metric, sizeof metric, "%s%s", prefix, columns[i].name);
        put_head(looks->out, metric, "gauge", columns[i].help);
        each_pool(looks, metric, put, i);
    }
}

void flw_top_print_prometheus(const struct flw_top_look *all, size_t count, FILE *out)
{
    struct looks looks = {.looks = all, .count = count, .out = out};
    put_head(out, "fallow_process_pools", "gauge", "pools of the process");
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "fallow_process_pools{process=\"%d\",command=\"", (int)all[i].process);
        put_label(out, all[i].name);
        fprintf(out, "\"} %" PRIu64 "\n", all[i].pool_total);
    }
    put_head(out, "fallow_pool_info", "gauge", "whose pool it is, and of which driver; always 1");
    each_pool(&looks, "fallow_pool_info", put_info, 0);
    put_values(&looks);
    put_head(out, "fallow_ladder_climb_total", "counter", "how often a stage was reached");
    each_pool(&looks, "fallow_ladder_climb_total", put_climbs, 0);
    put_head(out, "fallow_ladder_seconds_total", "counter", "time spent on a stage");
    each_pool(&looks, "fallow_ladder_seconds_total", put_climbs, 1);
    put_table(&looks, "fallow_stream_", stream_columns,
              sizeof stream_columns / sizeof *stream_columns, put_stream);
    put_table(&looks, "fallow_class_", class_columns, sizeof class_columns / sizeof *class_columns,
              put_class);
}
