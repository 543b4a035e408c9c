/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of gather_kv: checks, needs, the launch.
 * Does not: compute; gather_kv_twin.c is the definition, gather_kv.cu the kernel.
 */
#include "mla/gather_kv.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/mla.h"

#define LONGEST_STRIDE ((int64_t)1 << 40)

/* Values fixed by a format; 0: the caller's. */
struct format {
    int32_t width, row_bytes; /* of a token in the cache */
    uint32_t dtypes;          /* of dst */
    size_t align_bytes;       /* of the cache and the strides */
};

static const struct format formats[] = {
    [FALLOW_KV_ROWS] = {.dtypes = 1u << FALLOW_F16 | 1u << FALLOW_BF16 | 1u << FALLOW_E4M3 |
                                  1u << FALLOW_U8},
    [FALLOW_KV_E4M3] = {.dtypes = 1u << FALLOW_BF16, .align_bytes = 1},
    [FALLOW_KV_FLASHMLA] = {.width = FLW_FLASHMLA_WIDTH,
                            .row_bytes = FLW_FLASHMLA_ROW,
                            .dtypes = 1u << FALLOW_BF16,
                            .align_bytes = 16},
    [FALLOW_KV_INDEXER] = {.width = FLW_INDEXER_ROW,
                           .row_bytes = FLW_INDEXER_ROW,
                           .dtypes = 1u << FALLOW_E4M3,
                           .align_bytes = 4}};

struct buffers {
    size_t each;       /* bytes of an element of dst */
    size_t cache_each; /* bytes of an element of the cache */
    size_t cache_align;
    int64_t row_bytes;   /* of a token in the cache, including the scale */
    int64_t block_width; /* elements of a block of the cache */
    uint64_t cache_bytes, table_bytes, dst_bytes, scale_bytes;
};

/* The part of check_shape about the cache. */
static void check_cache(struct flw_refusal *refusal, fallow_gather_kv_params *params,
                        const struct format *format, struct buffers *buffers)
{
    bool is_indexer = params->format == FALLOW_KV_INDEXER;
    int64_t row = format->row_bytes != 0 ? format->row_bytes : params->width;
    int64_t page = params->page_size;
    if (params->token_stride == 0) {
        params->token_stride = row;
    }
    flw_refusal_count(refusal, "token_stride", params->token_stride, row,
                      is_indexer ? row : LONGEST_STRIDE);
    if (refusal->status != FALLOW_OK) {
        return;
    }
    buffers->block_width = is_indexer ? page * (row + 4) : (page - 1) * params->token_stride + row;
    if (params->block_stride == 0) {
        params->block_stride = is_indexer ? buffers->block_width : page * params->token_stride;
    }
    flw_refusal_count(refusal, "block_stride", params->block_stride, buffers->block_width,
                      (int64_t)1 << 56);
    buffers->row_bytes = row * (int64_t)buffers->cache_each + (is_indexer ? 4 : 0);
    buffers->cache_bytes =
        flw_refusal_rows(refusal, "cache", params->block_count, params->block_stride,
                         buffers->block_width, buffers->cache_each);
    int64_t align = (int64_t)format->align_bytes;
    if (align > 1 && (params->block_stride % align != 0 || params->token_stride % align != 0)) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                           "block_stride and token_stride must be multiples of %d bytes in this "
                           "format",
                           (int)align);
    }
}

/* Check shapes and types; replace zeros by defaults. */
static struct buffers check_shape(struct flw_refusal *refusal, fallow_gather_kv_params *params)
{
    struct buffers buffers = {0};
    flw_refusal_count(refusal, "format", (int64_t)params->format, 0, FALLOW_KV_INDEXER);
    if (refusal->status != FALLOW_OK) {
        return buffers;
    }
    const struct format *format = &formats[params->format];
    int32_t width = format->width;
    params->width = params->width != 0 ? params->width : width != 0 ? width : FLW_FLASHMLA_WIDTH;
    params->dst_stride = params->dst_stride == 0 ? params->width : params->dst_stride;
    params->table_stride = params->table_stride == 0 ? params->table_columns : params->table_stride;
    flw_refusal_dtype(refusal, "dtype", params->dtype, format->dtypes);
    flw_refusal_count(refusal, "width", params->width, width != 0 ? width : 1,
                      width != 0 ? width : FLW_GATHER_WIDEST);
    flw_refusal_count(refusal, "tokens", params->tokens, 0, INT32_MAX);
    flw_refusal_count(refusal, "batch", params->batch, 0, 65536);
    flw_refusal_count(refusal, "block_count", params->block_count, 0, INT32_MAX);
    flw_refusal_count(refusal, "table_columns", params->table_columns, 0, INT32_MAX);
    flw_refusal_count(refusal, "page_size", params->page_size, 1, 65536);
    flw_refusal_count(refusal, "dst_stride", params->dst_stride, params->width, LONGEST_STRIDE);
    flw_refusal_count(refusal, "table_stride", params->table_stride, params->table_columns,
                      LONGEST_STRIDE);
    buffers.each = fallow_dtype_bytes(params->dtype);
    buffers.cache_each = params->format == FALLOW_KV_ROWS ? buffers.each : 1;
    buffers.cache_align = format->align_bytes != 0 ? format->align_bytes : buffers.each;
    check_cache(refusal, params, format, &buffers);
    buffers.dst_bytes = flw_refusal_rows(refusal, "dst", params->tokens, params->dst_stride,
                                         params->width, buffers.each);
    buffers.table_bytes = flw_refusal_rows(refusal, "block_table", params->batch,
                                           params->table_stride, params->table_columns, 4);
    buffers.scale_bytes = params->format == FALLOW_KV_INDEXER ? (uint64_t)params->tokens * 4 : 0;
    return buffers;
}

fallow_status fallow_mla_gather_kv_query(const fallow_gather_kv_params *caller,
                                         fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_gather_kv_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_mla_gather_kv_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t tokens = (uint64_t)params.tokens;
    flw_need_add(&need, "dst", buffers.dst_bytes, 16, FALLOW_INIT_PREFIX);
    if (params.format == FALLOW_KV_INDEXER) {
        flw_need_add(&need, "dst_scales", buffers.scale_bytes, 4, FALLOW_INIT_PREFIX);
    }
    need.read_bytes = tokens * (uint64_t)buffers.row_bytes;
    need.write_bytes = tokens * (uint64_t)params.width * buffers.each + buffers.scale_bytes;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

/* True if a thread can write 16 bytes of dst at once. */
static bool is_vector_of(const fallow_gather_kv_params *params, const struct buffers *buffers)
{
    /* 8 bytes of e4m3 become 16. */
    size_t read_align = params->format == FALLOW_KV_E4M3 ? 8 : 16;
    size_t token = (size_t)params->token_stride * buffers->cache_each;
    size_t block = (size_t)params->block_stride * buffers->cache_each;
    return params->format == FALLOW_KV_FLASHMLA || /* other alignments are refused */
           (flw_is_vector_row(params->dst, params->dst_stride, params->width, buffers->each) &&
            (uintptr_t)params->cache % read_align == 0 && token % read_align == 0 &&
            block % read_align == 0);
}

static void check_pointers(struct flw_refusal *refusal, const fallow_gather_kv_params *params,
                           const struct buffers *buffers)
{
    bool has_work = params->tokens > 0 && params->batch > 0;
    uint64_t batch = has_work ? (uint64_t)params->batch : 0;
    bool is_flashmla = params->format == FALLOW_KV_FLASHMLA;
    flw_refusal_input(refusal, "cache", params->cache, has_work ? buffers->cache_bytes : 0,
                      buffers->cache_align);
    flw_refusal_input(refusal, "block_table", params->block_table,
                      has_work ? buffers->table_bytes : 0, 4);
    flw_refusal_input(refusal, "cu_seqlens", params->cu_seqlens, has_work ? (batch + 1) * 4 : 0, 4);
    flw_refusal_optional_input(refusal, "starts", params->starts, batch * 4, 4);
    flw_refusal_optional_input(refusal, "token_to_seq", params->token_to_seq,
                               (uint64_t)params->tokens * 4, 4);
    flw_refusal_optional_input(refusal, "scale", params->scale, 4, 4);
    flw_refusal_output(refusal, "dst", params->dst, buffers->dst_bytes,
                       is_flashmla ? 16 : buffers->each);
    flw_refusal_output(refusal, "dst_scales", params->dst_scales, buffers->scale_bytes, 4);
    flw_refusal_optional_output(refusal, "flags", params->flags, 4, 4);
    if (is_flashmla && params->dst_stride % 8 != 0) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                           "dst_stride must be a multiple of 8 in this format");
    }
}

fallow_status fallow_mla_gather_kv(fallow_kernels *kernels, const fallow_gather_kv_params *caller,
                                   fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_gather_kv_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_mla_gather_kv");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status == FALLOW_OK) {
        check_pointers(&refusal, &params, &buffers);
    }
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    int64_t cache_each = (int64_t)buffers.cache_each, each = (int64_t)buffers.each;
    bool is_vector = is_vector_of(&params, &buffers);
    struct flw_gather_kv_args args = {
        .cache = params.cache,
        .block_table = params.block_table,
        .cu_seqlens = params.cu_seqlens,
        .starts = params.starts,
        .token_to_seq = params.token_to_seq,
        .scale = params.scale,
        .dst = params.dst,
        .dst_scales = params.dst_scales,
        .flags = params.flags,
        .block_bytes = params.block_stride * cache_each,
        .token_bytes = params.token_stride * cache_each,
        .dst_bytes = params.dst_stride * each,
        .table_stride = params.table_stride,
        .tokens = params.tokens,
        .batch = params.batch,
        .block_count = params.block_count,
        .table_columns = params.table_columns,
        .page_size = params.page_size,
        .width = params.width,
        .format = (int32_t)params.format,
        .element_bytes = (int32_t)each,
        .unit_bytes = is_vector ? 16 : (int32_t)each,
        .row_units = (int32_t)flw_row_packs(params.width, buffers.each, is_vector)};
    struct flw_tile tile = flw_tile_of(args.row_units, FLW_GATHER_TOKENS, FLW_GATHER_THREADS);
    struct flw_grid grid = {.threads = (unsigned)(tile.columns * tile.rows)};
    args.columns = tile.columns;
    grid.blocks_x = params.batch == 0 ? 0 : flw_grid_blocks(params.tokens, FLW_GATHER_TOKENS);
    return flw_kernels_launch(kernels, FLW_KERNEL_gather_kv, grid, &args, stream);
}
