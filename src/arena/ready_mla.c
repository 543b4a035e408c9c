/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the workspace of a latent attention prefill whose contexts are read in chunks.
 *
 * The new tokens attend to each other first, into the accumulator pair. Then, chunk by chunk: gather the
 * compressed rows, project them to keys and values, join the rope part, attend into the chunk pair, merge
 * that into the accumulator in place. So two pairs live at the peak, however many chunks there are.
 */
#include "arena/ready.h"

#define CHUNK_TOKENS 65536
#define CHUNKS_MOST  200 /* regions of a layout are counted */

enum {
    NEW_TOKENS, /* phase 0, then five a chunk */
    GATHER = 1,
    PROJECT,
    CONCATENATE,
    ATTENTION,
    MERGE,
    PHASES_OF_CHUNK = 5
};

/* Per chunk the starts and lengths of each request, the offsets, all in one table each. */
static void add_tables(struct flw_ready *ready, uint64_t chunks, uint64_t last_phase)
{
    uint64_t batch = ready->step.batch;
    flw_ready_add(ready, "chunk_starts", chunks, batch, 4, FALLOW_INIT_DIRTY, 0,
                  (uint32_t)last_phase);
    flw_ready_add(ready, "chunk_seq_lens", chunks, batch, 4, FALLOW_INIT_DIRTY, 0,
                  (uint32_t)last_phase);
    flw_ready_add(ready, "cu_chunk", chunks, batch + 1, 4, FALLOW_INIT_LEADING_ZERO, 0,
                  (uint32_t)last_phase);
}

static void add_chunk(struct flw_ready *ready, uint64_t chunk, uint64_t rows)
{
    const fallow_model *model = ready->model;
    const fallow_step *step = &ready->step;
    uint32_t at = (uint32_t)(chunk * PHASES_OF_CHUNK), each = (uint32_t)step->value_bytes;
    uint64_t nope = model->head_dim, value = model->head_dim, key = nope + model->rope_dim;
    flw_ready_add_numbered(ready, "gathered", chunk, rows, model->kv_rank + model->rope_dim, each,
                           at + GATHER, at + CONCATENATE);
    flw_ready_add_numbered(ready, "kv_nope", chunk, rows, ready->heads * (nope + value), each,
                           at + PROJECT, step->pads_values ? at + CONCATENATE : at + ATTENTION);
    flw_ready_add_numbered(ready, "k", chunk, rows, ready->heads * key, each, at + CONCATENATE,
                           at + ATTENTION);
    if (step->pads_values) {
        flw_ready_add_numbered(ready, "v_padded", chunk, rows, ready->heads * key, each,
                               at + CONCATENATE, at + ATTENTION)
            ->init = FALLOW_INIT_NEUTRAL_TAIL;
    }
    flw_ready_add_numbered(ready, "chunk_out", chunk, step->tokens,
                           ready->heads * (step->pads_values ? key : value), each, at + ATTENTION,
                           at + MERGE);
    flw_ready_add_numbered(ready, "chunk_lse", chunk, ready->heads, step->tokens, 4, at + ATTENTION,
                           at + MERGE);
}

FLW_READY_LAYOUT(mla_prefill, "mla-prefill")
{
    const fallow_model *model = ready->model;
    const fallow_step *step = &ready->step;
    uint64_t rows = step->chunk == 0 ? CHUNK_TOKENS : step->chunk, each = step->value_bytes;
    uint64_t total = step->batch * step->context; /* both are at most 2^31 */
    uint64_t chunks = flw_ready_divide_up(total, rows);
    rows = rows < total ? rows : total;
    flw_ready_require(ready, model->kv_rank > 0 && model->heads > 0 && chunks <= CHUNKS_MOST &&
                                 step->batch < (uint64_t)1 << 20);
    uint64_t last = chunks * PHASES_OF_CHUNK;
    uint64_t width = ready->heads * (model->head_dim + (step->pads_values ? model->rope_dim : 0));
    flw_ready_add(ready, "out", step->tokens, width, (uint32_t)each, FALLOW_INIT_DIRTY, NEW_TOKENS,
                  (uint32_t)last);
    flw_ready_add(ready, "lse", ready->heads, step->tokens, 4, FALLOW_INIT_DIRTY, NEW_TOKENS,
                  (uint32_t)last);
    add_tables(ready, chunks, last);
    for (uint64_t i = 0; i < chunks && ready->status == FALLOW_OK; i++) {
        add_chunk(ready, i, rows);
    }
}
