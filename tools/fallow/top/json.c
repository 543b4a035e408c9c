/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow top --json`: its keys. One that is there stays, and means the same.
 */
#include <inttypes.h>

#include "common/jsonmember.h"
#include "top/top.h"
#include "trace/jsontext.h"

#define SCHEMA 1 /* raised when a key goes or means something else */

static const char *const value_names[] = {
#define X(name, kind, help) #name,
    FLW_BULLETIN_VALUES(X)
#undef X
};

static void put_ladder(FILE *out, const struct flw_bulletin_pool *pool)
{
    uint64_t last = pool->value[FLW_VALUE_last_climb_rung];
    fprintf(out, ", \"rungs\": [");
    for (unsigned i = 0; i < FLW_BULLETIN_RUNGS; i++) {
        fprintf(out, "%s{\"rung\": \"%s\", \"count\": %" PRIu64 ", \"ns\": %" PRIu64 "}",
                i == 0 ? "" : ", ", flw_bulletin_rungs[i], pool->rung_count[i], pool->rung_ns[i]);
    }
    if (last == 0 || last > FLW_BULLETIN_RUNGS) {
        fprintf(out, "], \"last_climb\": null");
    } else {
        fprintf(out, "], \"last_climb\": {\"rung\": \"%s\", \"bytes\": %" PRIu64 "}",
                flw_bulletin_rungs[last - 1], pool->value[FLW_VALUE_last_climb_bytes]);
    }
}

static void put_class(FILE *out, const struct flw_bulletin_class *class)
{
    fprintf(out, "{\"size_bytes\": ");
    if (class->size_bytes == 0) {
        fprintf(out, "null");
    } else {
        fprintf(out, "%" PRIu64, class->size_bytes);
    }
    fprintf(out,
            ", \"reserved_bytes\": %" PRIu64 ", \"live_count\": %" PRIu64
            ", \"live_bytes\": %" PRIu64 ", \"requested_bytes\": %" PRIu64
            ", \"cached_bytes\": %" PRIu64 ", \"pending_bytes\": %" PRIu64 "}",
            class->reserved_bytes, class->live_count, class->live_bytes, class->requested_bytes,
            class->cached_bytes, class->pending_bytes);
}

static void put_stream(FILE *out, const struct flw_bulletin_stream *stream)
{
    fprintf(out, "{\"kind\": \"%s\"", flw_top_kind(stream->kind));
    if (stream->kind == FLW_BULLETIN_STREAM || stream->kind == FLW_BULLETIN_GONE) {
        fprintf(out, ", \"id\": %" PRIu64, stream->id);
    } else {
        fprintf(out, ", \"id\": null");
    }
    fprintf(out,
            ", \"handle\": %" PRIu64 ", \"live_count\": %" PRIu64 ", \"live_bytes\": %" PRIu64
            ", \"requested_bytes\": %" PRIu64 ", \"cached_bytes\": %" PRIu64
            ", \"free_bytes\": %" PRIu64 ", \"captured_bytes\": %" PRIu64,
            stream->handle, stream->live_count, stream->live_bytes, stream->requested_bytes,
            stream->cached_bytes, stream->free_bytes, stream->captured_bytes);
    fprintf(out,
            ", \"alloc_count\": %" PRIu64 ", \"hit_count\": %" PRIu64 ", \"cache_count\": %" PRIu64
            ", \"fence_count\": %" PRIu64 "}",
            stream->alloc_count, stream->hit_count, stream->cache_count, stream->fence_count);
}

static void put_pool(FILE *out, const struct flw_bulletin_pool *pool, const char *label)
{
    fprintf(out, "{\"pool\": \"%s\", \"driver\": ", label);
    flw_json_print_text(out, pool->driver[0] == '\0' ? "libcuda.so.1" : pool->driver);
    for (unsigned i = 0; i < FLW_VALUE_COUNT; i++) {
        if (i != FLW_VALUE_number && i != FLW_VALUE_last_climb_rung &&
            i != FLW_VALUE_last_climb_bytes) {
            fprintf(out, ", \"%s\": %" PRIu64, value_names[i], pool->value[i]);
        }
    }
    uint64_t hits = pool->value[FLW_VALUE_hit_count], allocs = pool->value[FLW_VALUE_alloc_count];
    flw_member_real(out, "hit_rate", allocs != 0, allocs != 0 ? (double)hits / (double)allocs : 0);
    put_ladder(out, pool);
    fprintf(out, ", \"streams\": [");
    for (uint32_t i = 0; i < pool->stream_count; i++) {
        fputs(i == 0 ? "" : ", ", out);
        put_stream(out, &pool->streams[i]);
    }
    fprintf(out, "], \"classes\": [");
    for (uint32_t i = 0; i < pool->class_count; i++) {
        fputs(i == 0 ? "" : ", ", out);
        put_class(out, &pool->classes[i]);
    }
    fprintf(out, "]}");
}

void flw_top_print_json(const struct flw_top_look *look, FILE *out)
{
    fprintf(out, "{\"schema\": %d, \"process\": %d, \"name\": ", SCHEMA, (int)look->process);
    flw_json_print_text(out, look->name);
    fprintf(out, ", \"clock_ns\": %" PRIu64 ", \"pool_total\": %" PRIu64 ", \"pools\": [",
            look->clock_ns, look->pool_total);
    for (uint32_t i = 0; i < look->pool_count; i++) {
        char label[FLW_TOP_LABEL_BYTES];
        const struct flw_bulletin_pool *pool = flw_top_pool(look, i, label);
        fputs(i == 0 ? "" : ", ", out);
        put_pool(out, pool, label);
    }
    fprintf(out, "]}");
}
