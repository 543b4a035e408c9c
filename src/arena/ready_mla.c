/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the workspace of a latent attention prefill that reads contexts in chunks.
 *
 * The new tokens attend to each other first, into the accumulator pair. Then, chunk by chunk:
 * gather the compressed rows, project them to keys and values, join the rope part, attend into the
 * chunk pair, merge that pair into the accumulator in place. A chunk passes only the accumulator
 * to the next chunk, so one chunk's phases serve all: two pairs are live at the peak, for any
 * number of chunks. */
#include "arena/ready.h"

#define CHUNK_TOKENS 65536

enum {
    NEW_TOKENS,
    GATHER, /* GATHER to MERGE repeat for each chunk */
    PROJECT,
    CONCATENATE,
    ATTENTION,
    MERGE
};

/* Add the tables with starts, lengths and offsets of each request, for all chunks. */
static void add_tables(struct flw_ready *ready, uint64_t chunks)
{
    uint64_t batch = ready->step.batch;
    flw_ready_add(ready, "chunk_starts", chunks, batch, 4, FALLOW_INIT_DIRTY, NEW_TOKENS, MERGE);
    flw_ready_add(ready, "chunk_seq_lens", chunks, batch, 4, FALLOW_INIT_DIRTY, NEW_TOKENS, MERGE);
    flw_ready_add(ready, "cu_chunk", chunks, batch + 1, 4, FALLOW_INIT_LEADING_ZERO, NEW_TOKENS,
                  MERGE);
}

/* Add the gathered rows. With overlaps, the rows of the next chunk may be gathered into one region while the current
 * chunk, or the new tokens, use the other: both regions are then alive in every phase. */
static void add_gathered(struct flw_ready *ready, uint64_t rows)
{
    uint64_t width = ready->model->kv_rank + ready->model->rope_dim;
    uint32_t each = (uint32_t)ready->step.value_bytes;
    if (!ready->step.overlaps) {
        flw_ready_add(ready, "gathered", rows, width, each, FALLOW_INIT_DIRTY, GATHER, CONCATENATE);
        return;
    }
    flw_ready_add(ready, "gathered 0", rows, width, each, FALLOW_INIT_DIRTY, NEW_TOKENS, MERGE);
    flw_ready_add(ready, "gathered 1", rows, width, each, FALLOW_INIT_DIRTY, NEW_TOKENS, MERGE);
}

static void add_chunk(struct flw_ready *ready, uint64_t rows)
{
    const fallow_model *model = ready->model;
    const fallow_step *step = &ready->step;
    uint32_t each = (uint32_t)step->value_bytes;
    uint64_t nope = model->head_dim, value = model->head_dim, key = nope + model->rope_dim;
    add_gathered(ready, rows);
    flw_ready_add(ready, "kv_nope", rows, ready->heads * (nope + value), each, FALLOW_INIT_DIRTY,
                  PROJECT, step->pads_values ? CONCATENATE : ATTENTION);
    flw_ready_add(ready, "k", rows, ready->heads * key, each, FALLOW_INIT_DIRTY, CONCATENATE,
                  ATTENTION);
    if (step->pads_values) {
        flw_ready_add(ready, "v_padded", rows, ready->heads * key, each, FALLOW_INIT_NEUTRAL_TAIL,
                      CONCATENATE, ATTENTION);
    }
    flw_ready_add(ready, "chunk_out", step->tokens,
                  ready->heads * (step->pads_values ? key : value), each, FALLOW_INIT_DIRTY,
                  ATTENTION, MERGE);
    flw_ready_add(ready, "chunk_lse", ready->heads, step->tokens, 4, FALLOW_INIT_DIRTY, ATTENTION,
                  MERGE);
}

FLW_READY_LAYOUT(mla_prefill, "mla-prefill")
{
    const fallow_model *model = ready->model;
    const fallow_step *step = &ready->step;
    uint64_t rows = step->chunk == 0 ? CHUNK_TOKENS : step->chunk;
    uint64_t total = step->batch * step->context; /* both are at most 2^31 */
    uint64_t width = ready->heads * (model->head_dim + (step->pads_values ? model->rope_dim : 0));
    flw_ready_require(ready, model->kv_rank > 0 && model->heads > 0);
    flw_ready_add(ready, "out", step->tokens, width, (uint32_t)step->value_bytes, FALLOW_INIT_DIRTY,
                  NEW_TOKENS, MERGE);
    flw_ready_add(ready, "lse", ready->heads, step->tokens, 4, FALLOW_INIT_DIRTY, NEW_TOKENS,
                  MERGE);
    add_tables(ready, flw_ready_divide_up(total, rows));
    add_chunk(ready, rows < total ? rows : total);
}
