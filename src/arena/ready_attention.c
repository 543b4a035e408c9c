/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the workspaces of FlashAttention 3 in SGLang's backend and of FlashMLA's decode: the shape
 * and required contents of each buffer. */
#include "arena/ready.h"

enum {
    METADATA, /* phases */
    ATTENTION,
    COMBINE
};

/* B batch, P pages of a context, C context, D draft tokens; classes as their consumers need them. */
static void add_decode_state(struct flw_ready *ready)
{
    const fallow_step *step = &ready->step;
    uint64_t pages = flw_ready_divide_up(step->context, step->page_size);
    flw_ready_keep(ready, "cache_seqlens", step->batch, 1, 4, FALLOW_INIT_VALID_TAIL, 1, 0);
    flw_ready_keep(ready, "cu_seqlens_q", step->batch + 1, 1, 4, FALLOW_INIT_ONCE, 0, 1);
    flw_ready_keep(ready, "cu_seqlens_k", step->batch + 1, 1, 4, FALLOW_INIT_LEADING_ZERO, 0, 0);
    flw_ready_keep(ready, "page_table", step->batch, pages, 4, FALLOW_INIT_VALID_TAIL, 0, 0);
    flw_ready_keep(ready, "strided_indices", pages, 1, 8, FALLOW_INIT_ONCE, 0,
                   (int64_t)step->page_size);
}

/* Virtual batches: a request's context cut into chunks of `chunk`. */
static void add_local_attention(struct flw_ready *ready)
{
    const fallow_step *step = &ready->step;
    if (step->chunk == 0) {
        return;
    }
    uint64_t rows = step->batch * flw_ready_divide_up(step->context, step->chunk);
    uint64_t pages = flw_ready_divide_up(step->chunk, step->page_size);
    flw_ready_keep(ready, "local_query_start_loc", rows + 1, 1, 4, FALLOW_INIT_LEADING_ZERO, 0, 0);
    flw_ready_keep(ready, "local_seqused_k", rows, 1, 4, FALLOW_INIT_VALID_TAIL, 0, 0);
    flw_ready_keep(ready, "local_block_table", rows, pages, 4, FALLOW_INIT_VALID_TAIL, 0, 0);
}

static void add_verification(struct flw_ready *ready)
{
    const fallow_step *step = &ready->step;
    uint64_t pages = flw_ready_divide_up(step->context, step->page_size);
    if (step->draft_tokens == 0) {
        return;
    }
    flw_ready_keep(ready, "verify_cache_seqlens", step->batch, 1, 4, FALLOW_INIT_VALID_TAIL, 1, 0);
    flw_ready_keep(ready, "verify_cu_seqlens_q", step->batch + 1, 1, 4, FALLOW_INIT_ONCE, 0,
                   (int64_t)step->draft_tokens);
    flw_ready_keep(ready, "verify_cu_seqlens_k", step->batch + 1, 1, 4, FALLOW_INIT_LEADING_ZERO, 0,
                   0);
    flw_ready_keep(ready, "verify_page_table", step->batch, pages, 4, FALLOW_INIT_VALID_TAIL, 0, 0);
}

/* splits, m_blocks, batch_idx, nheads_in_l2, each round_up(b, 4) long; the tile semaphore behind. */
static void add_scheduler(struct flw_ready *ready)
{
    uint64_t vectors = 4 * flw_ready_round_up(ready->step.batch, 4);
    flw_ready_keep(ready, "scheduler_metadata", vectors + 1, 1, 4, FALLOW_INIT_ZERO, 0, 0);
}

FLW_READY_LAYOUT(fa3_graph, "fa3-graph")
{
    const fallow_model *model = ready->model;
    const fallow_step *step = &ready->step;
    flw_ready_require(ready, model->heads > 0 && model->head_dim > 0);
    add_decode_state(ready);
    add_local_attention(ready);
    add_verification(ready);
    add_scheduler(ready);
    uint64_t rows = step->splits * ready->heads;
    flw_ready_add(ready, "out_accum", rows, step->batch * model->head_dim, 4, FALLOW_INIT_DIRTY,
                  ATTENTION, COMBINE);
    flw_ready_add(ready, "lse_accum", rows, step->batch, 4, FALLOW_INIT_DIRTY, ATTENTION, COMBINE);
}

/* parts = max(sms / kv heads / ceil(queries a kv head / 64), 1), here with one kv head. */
static uint64_t count_parts(const struct flw_ready *ready)
{
    uint64_t parts = ready->step.sm_count / flw_ready_divide_up(ready->heads, 64);
    return parts > 1 ? parts : 1;
}

FLW_READY_LAYOUT(flashmla_decode, "flashmla-decode")
{
    const fallow_model *model = ready->model;
    const fallow_step *step = &ready->step;
    flw_ready_require(ready, model->kv_rank > 0 && model->heads > 0);
    uint64_t parts = model->heads > 0 ? count_parts(ready) : 1;
    uint64_t rows = (step->batch + parts) * ready->heads;
    flw_ready_keep(ready, "seq_lens", step->batch, 1, 4, FALLOW_INIT_VALID_TAIL, 1, 0);
    flw_ready_keep(ready, "block_table", step->batch,
                   flw_ready_divide_up(step->context, step->page_size), 4, FALLOW_INIT_VALID_TAIL,
                   0, 0);
    flw_ready_keep(ready, "tile_metadata", parts, 8, 4, FALLOW_INIT_DIRTY, 0, 0);
    flw_ready_keep(ready, "num_splits", step->batch + 1, 1, 4, FALLOW_INIT_VALID_TAIL, 0, 0);
    flw_ready_add(ready, "lse_accum", rows, 1, 4, FALLOW_INIT_DIRTY, ATTENTION, COMBINE);
    flw_ready_add(ready, "out_accum", rows, model->kv_rank, 4, FALLOW_INIT_DIRTY, ATTENTION,
                  COMBINE);
}
