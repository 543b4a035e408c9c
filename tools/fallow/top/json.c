/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow top --json`: its keys. One that is there stays, and means the same.
 */
#include "top/top.h"
#include "trace/jsonwriter.h"

#define SCHEMA 1 /* raised when a key goes or means something else */

static const char *const value_names[] = {
#define X(name, source, kind, help) #name,
    FLW_BULLETIN_VALUES(X)
#undef X
};

static void put_ladder(struct flw_json_writer *out, const struct flw_bulletin_pool *pool)
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

static void put_class(struct flw_json_writer *out, const struct flw_bulletin_class *class)
{
    flw_json_begin(out, NULL, '{');
    flw_json_known(out, "size_bytes", class->size_bytes != 0, class->size_bytes);
    FLW_JSON_NUMBERS(
        out, {"reserved_bytes", class->reserved_bytes}, {"live_count", class->live_count},
        {"live_bytes", class->live_bytes}, {"requested_bytes", class->requested_bytes},
        {"cached_bytes", class->cached_bytes}, {"deferred_bytes", class->deferred_bytes});
    flw_json_end(out, '}');
}

static void put_stream(struct flw_json_writer *out, const struct flw_bulletin_stream *stream)
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
    put_ladder(out, pool);
    flw_json_begin(out, "streams", '[');
    for (uint32_t i = 0; i < pool->stream_count; i++) {
        put_stream(out, &pool->streams[i]);
    }
    flw_json_end(out, ']');
    flw_json_begin(out, "classes", '[');
    for (uint32_t i = 0; i < pool->class_count; i++) {
        put_class(out, &pool->classes[i]);
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
