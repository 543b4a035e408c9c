/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls of local_attention: checks, needs, the launch.
 * Does not: compute; local_attention_twin.c is the definition, local_attention.cu the kernel.
 */
#include "attention/local_attention.h"

#include "common/library.h"
#include "common/refusal.h"
#include "fallow/attention.h"

enum {
    BLOCK_BYTES = 8192,  /* bytes of the table per block that justify a walk over the requests */
    ENOUGH_BLOCKS = 1024 /* several per multiprocessor */
};

struct buffers {
    uint64_t lengths_bytes, source_bytes; /* of the block table, including the gaps between the
                                              rows */
    uint64_t rows_bytes, local_bytes;     /* of seqused_k, of local_table */
};

/* Check shapes; replace zeros by defaults. */
static struct buffers check_shape(struct flw_refusal *refusal,
                                  fallow_local_attention_params *params)
{
    params->page_size = params->page_size == 0 ? 1 : params->page_size;
    params->table_stride = params->table_stride == 0 ? params->table_columns : params->table_stride;
    flw_refusal_count(refusal, "batch", params->batch, 0, 65536);
    flw_refusal_count(refusal, "capacity", params->capacity, 0, INT32_MAX);
    flw_refusal_count(refusal, "page_size", params->page_size, 1, INT32_MAX);
    flw_refusal_count(refusal, "chunk", params->chunk, 1, INT32_MAX);
    flw_refusal_count(refusal, "table_columns", params->table_columns, 1, INT32_MAX);
    flw_refusal_count(refusal, "table_stride", params->table_stride, params->table_columns,
                      (int64_t)1 << 40);
    if (refusal->status != FALLOW_OK) {
        return (struct buffers){0};
    }
    if (params->chunk % params->page_size != 0) {
        flw_refusal_refuse(refusal, FALLOW_INVALID_ARGUMENT,
                           "chunk %d is not a multiple of page_size %d", params->chunk,
                           params->page_size);
    }
    int64_t row_bytes = (int64_t)(params->chunk / params->page_size) * 4;
    return (struct buffers){
        .lengths_bytes = (uint64_t)params->batch * 4,
        .source_bytes = flw_refusal_rows(refusal, "block_table", params->batch,
                                         params->table_stride, params->table_columns, 4),
        .rows_bytes = (uint64_t)params->capacity * 4,
        .local_bytes = (uint64_t)flw_refusal_product(refusal, "capacity x chunk / page_size",
                                                     params->capacity, row_bytes)};
}

fallow_status fallow_attention_local_attention_query(const fallow_local_attention_params *caller,
                                                     fallow_workspace_need *out_need)
{
    struct flw_refusal refusal;
    fallow_local_attention_params params;
    fallow_workspace_need need = {.launch_count = 1};
    flw_refusal_begin_query(&refusal, "fallow_attention_local_attention_query");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    uint64_t source = (uint64_t)params.batch * (uint64_t)params.table_columns * 4;
    flw_need_add(&need, "cu_q_local", buffers.rows_bytes + 4, 4, FALLOW_INIT_LEADING_ZERO);
    flw_need_add(&need, "seqused_k", buffers.rows_bytes, 4, FALLOW_INIT_VALID_TAIL);
    flw_need_add(&need, "local_table", buffers.local_bytes, 16, FALLOW_INIT_VALID_TAIL);
    flw_need_add(&need, "virtual_count", 4, 4, FALLOW_INIT_DIRTY);
    need.read_bytes = 2 * buffers.lengths_bytes + 4 +
                      (source < buffers.local_bytes ? source : buffers.local_bytes);
    need.write_bytes = 2 * buffers.rows_bytes + 4 + buffers.local_bytes + 4;
    return flw_refusal_give_need(&refusal, out_need, &need);
}

static void check_buffers(struct flw_refusal *refusal, const fallow_local_attention_params *params,
                          struct buffers buffers)
{
    flw_refusal_input(refusal, "cu_seqlens_q", params->cu_seqlens_q,
                      params->batch > 0 ? buffers.lengths_bytes + 4 : 0, 4);
    flw_refusal_input(refusal, "lengths", params->lengths, buffers.lengths_bytes, 4);
    flw_refusal_optional_input(refusal, "valid_count", params->valid_count, 4, 4);
    flw_refusal_input(refusal, "block_table", params->block_table,
                      params->capacity > 0 ? buffers.source_bytes : 0, 4);
    flw_refusal_output(refusal, "cu_q_local", params->cu_q_local, buffers.rows_bytes + 4, 4);
    flw_refusal_output(refusal, "seqused_k", params->seqused_k, buffers.rows_bytes, 4);
    flw_refusal_output(refusal, "local_table", params->local_table, buffers.local_bytes, 4);
    flw_refusal_optional_output(refusal, "virtual_count", params->virtual_count, 4, 4);
    flw_refusal_optional_output(refusal, "flags", params->flags, 4, 4);
}

/* Return a power of two. Each block walks over the requests: few rows per block cost walks, many
 * cost blocks. */
static int32_t rows_per_block(int64_t capacity, int64_t row_bytes)
{
    int32_t rows = 1;
    while (rows < FLW_LOCAL_ATTENTION_ROWS &&
           (rows * row_bytes < BLOCK_BYTES || capacity > (int64_t)rows * ENOUGH_BLOCKS)) {
        rows *= 2;
    }
    return rows;
}

fallow_status fallow_attention_local_attention(fallow_kernels *kernels,
                                               const fallow_local_attention_params *caller,
                                               fallow_stream stream)
{
    struct flw_refusal refusal;
    fallow_local_attention_params params;
    flw_refusal_begin(&refusal, kernels, "fallow_attention_local_attention");
    flw_refusal_copy(&refusal, &params, sizeof params, caller);
    struct buffers buffers = check_shape(&refusal, &params);
    if (refusal.status != FALLOW_OK) {
        return refusal.status;
    }
    check_buffers(&refusal, &params, buffers);
    if (flw_refusal_status(&refusal) != FALLOW_OK) {
        return refusal.status;
    }
    int32_t columns = params.chunk / params.page_size;
    bool is_vector =
        flw_is_vector_row(params.local_table, columns, columns, sizeof(int32_t)) &&
        flw_is_vector_row(params.block_table, params.table_stride, columns, sizeof(int32_t));
    int32_t rows = rows_per_block(params.capacity, (int64_t)columns * 4);
    struct flw_tile tile =
        flw_tile_of(is_vector ? columns / 4 : columns, rows, FLW_LOCAL_ATTENTION_THREADS);
    struct flw_local_attention_args args = {.cu_seqlens_q = params.cu_seqlens_q,
                                            .lengths = params.lengths,
                                            .valid_count = params.valid_count,
                                            .block_table = params.block_table,
                                            .cu_q_local = params.cu_q_local,
                                            .seqused_k = params.seqused_k,
                                            .local_table = params.local_table,
                                            .virtual_count = params.virtual_count,
                                            .flags = params.flags,
                                            .table_stride = params.table_stride,
                                            .batch = params.batch,
                                            .capacity = params.capacity,
                                            .chunk = params.chunk,
                                            .page_size = params.page_size,
                                            .table_columns = params.table_columns,
                                            .columns = columns,
                                            .by_chunk = flw_divisor_of(params.chunk),
                                            .by_page = flw_divisor_of(params.page_size),
                                            .rows_per_block = rows,
                                            .tile_columns = tile.columns,
                                            .tile_rows = tile.rows,
                                            .is_vector = is_vector};
    struct flw_grid grid = {.blocks_x =
                                params.capacity > 0 ? flw_grid_blocks(params.capacity, rows) : 1,
                            .threads = FLW_LOCAL_ATTENTION_THREADS};
    return flw_kernels_launch(kernels, FLW_KERNEL_local_attention, grid, &args, stream);
}
