/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of gather_kv: dst[t] = cache[block_table[b, position / p], position % p], with
 * row t the (position - starts[b])-th of sequence b. */
#include "common/integer.h"
#include "common/twin.h"
#include "fallow/mla.h"

#define WIDEST_BYTES (FLW_GATHER_WIDEST * 2)

/* Return the sequence of row t: the last that begins at or before t; -1: none. */
static int64_t find_sequence(struct flw_twin *twin, const struct flw_gather_kv_args *args,
                             int64_t t)
{
    if (args->token_to_seq != NULL) {
        int64_t b = flw_load_i32(twin, "token_to_seq", args->token_to_seq, t);
        return b < args->batch ? b : -1;
    }
    int64_t low = 0, high = args->batch; /* the result is in [low, high) */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (flw_load_i32(twin, "cu_seqlens", args->cu_seqlens, middle) <= t) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The address of a token in the cache. */
struct place {
    int64_t block, in_block; /* block -1: none */
};

static struct place find_place(struct flw_twin *twin, const struct flw_gather_kv_args *args,
                               int64_t t)
{
    struct place nowhere = {.block = -1};
    int64_t b = find_sequence(twin, args, t);
    if (b < 0) {
        return nowhere;
    }
    int64_t position = t - flw_load_i32(twin, "cu_seqlens", args->cu_seqlens, b);
    position += args->starts == NULL ? 0 : flw_load_i32(twin, "starts", args->starts, b);
    int64_t column = position / args->page_size;
    if (position < 0 || column >= args->table_columns) {
        return nowhere;
    }
    int64_t block =
        flw_load_i32(twin, "block_table", args->block_table, b * args->table_stride + column);
    if (block < 0 || block >= args->block_count) {
        return nowhere;
    }
    return (struct place){.block = block, .in_block = position % args->page_size};
}

/* Convert elements of e4m3, times a scale, to BF16. */
static void dequantise(const unsigned char *from, int64_t count, float scale, unsigned char *to)
{
    for (int64_t i = 0; i < count; i++) {
        flw_number_narrow(to + 2 * i, FALLOW_BF16, flw_e4m3_widen(from[i]) * scale);
    }
}

/* Load the row at `at` of the cache in the format of dst. */
static void load_row(struct flw_twin *twin, const struct flw_gather_kv_args *args, int64_t at,
                     unsigned char *row)
{
    unsigned char raw[WIDEST_BYTES];
    float scales[FLW_FLASHMLA_QUANTISED / FLW_FLASHMLA_GROUP], scale = 1.0f;
    switch ((fallow_kv_format)args->format) {
    case FALLOW_KV_ROWS:
    case FALLOW_KV_INDEXER:
        flw_load(twin, "cache", args->cache, at, row,
                 (size_t)args->width * (size_t)args->element_bytes);
        return;
    case FALLOW_KV_E4M3:
        if (args->scale != NULL) {
            flw_load(twin, "scale", args->scale, 0, &scale, sizeof scale);
        }
        flw_load(twin, "cache", args->cache, at, raw, (size_t)args->width);
        dequantise(raw, args->width, scale, row);
        return;
    case FALLOW_KV_FLASHMLA:
        flw_load(twin, "cache", args->cache, at, raw, FLW_FLASHMLA_ROW);
        memcpy(scales, raw + FLW_FLASHMLA_QUANTISED, sizeof scales);
        for (int64_t i = 0; i < FLW_FLASHMLA_QUANTISED; i += FLW_FLASHMLA_GROUP) {
            dequantise(raw + i, FLW_FLASHMLA_GROUP, scales[i / FLW_FLASHMLA_GROUP], row + 2 * i);
        }
        memcpy(row + 2 * (int64_t)FLW_FLASHMLA_QUANTISED, raw + FLW_FLASHMLA_ROPE_AT,
               FLW_FLASHMLA_ROW - FLW_FLASHMLA_ROPE_AT);
        return;
    }
}

void flw_twin_gather_kv(struct flw_twin *twin, const struct flw_gather_kv_args *args)
{
    size_t row_bytes = (size_t)args->width * (size_t)args->element_bytes;
    int64_t end = flw_load_i32(twin, "cu_seqlens", args->cu_seqlens, args->batch);
    flw_raise_flags(twin, args->flags, end > args->tokens ? FALLOW_FLAG_DROPPED : 0);
    end = flw_clamp(end, 0, args->tokens);
    for (int64_t t = 0; t < end; t++) {
        unsigned char row[WIDEST_BYTES];
        float scale = 0.0f;
        memset(row, 0, row_bytes);
        struct place place = find_place(twin, args, t);
        int64_t block_at = place.block * args->block_bytes;
        if (place.block < 0) {
            flw_raise_flags(twin, args->flags, FALLOW_FLAG_INDEX);
        } else {
            load_row(twin, args, block_at + place.in_block * args->token_bytes, row);
        }
        flw_store(twin, "dst", args->dst, t * args->dst_bytes, row, row_bytes);
        if (args->format == FALLOW_KV_INDEXER) {
            if (place.block >= 0) {
                int64_t scales_at = block_at + args->page_size * args->token_bytes;
                flw_load(twin, "cache", args->cache, scales_at + place.in_block * 4, &scale,
                         sizeof scale);
            }
            flw_store(twin, "dst_scales", args->dst_scales, t * 4, &scale, sizeof scale);
        }
    }
}
