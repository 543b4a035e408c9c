/* SPDX-License-Identifier: Apache-2.0
 *
 * A step of each path of decode attention, run by the kernel modules in the regions of the ready
 * layout: previous contents of the arena have no effect. Rows computed here replace attention. */
#include <math.h>
#include <string.h>

#include "fallow/attention.h"
#include "fallow/mla.h"
#include "kernel/leased.h"

enum {
    BATCH = 6, /* that the graph was captured for */
    HEADS = 4,
    KV_HEADS = 2,
    WIDTH = 16,
    LATENT = 32,
    PAGE = 4,
    CONTEXT = 64,
    COLUMNS = CONTEXT / PAGE,
    LOCAL = 16, /* keys of an attention chunk */
    LOCAL_ROWS = BATCH * CONTEXT / LOCAL,
    DRAFTS = 3,
    SPLITS = 3,
    SM_COUNT = 4, /* and parts */
    REQUESTS = BATCH + 2,
    VECTOR = 8 /* BATCH in whole fours */
};

static const fallow_model model = {.name = "small",
                                   .layers = 1,
                                   .hidden = 64,
                                   .heads = HEADS,
                                   .kv_heads = KV_HEADS,
                                   .head_dim = WIDTH,
                                   .intermediate = 64,
                                   .vocab = 64,
                                   .kv_rank = LATENT,
                                   .rope_dim = 16,
                                   .weight_bytes = 2};

/* Copies of the host's inputs on the device. Lengths of pads must not be read, so they
 * are random. */
struct batch {
    const int32_t *lengths, *valid_count, *requests, *starts, *req_to_token, *draft_tokens;
    int32_t count;
    bool is_bounded;
    int32_t before[BATCH * COLUMNS]; /* for a bounded run: the previous page table */
};

static struct batch *make_batch(struct flw_bed *bed, int32_t count, int32_t longest)
{
    int32_t lengths[BATCH], requests[BATCH], starts[BATCH], slots[REQUESTS * CONTEXT];
    int32_t drafts = DRAFTS;
    struct batch *batch = flw_bed_memory(bed, sizeof *batch);
    batch->count = count;
    for (int32_t i = 0; i < BATCH; i++) {
        bool is_pad = i >= count;
        lengths[i] = is_pad ? -77 : 1 + (longest - 1) * (i + 1) / count;
        requests[i] = is_pad ? 1 << 30 : (i * 3 + 1) % REQUESTS;
        starts[i] = is_pad ? -5 : i % 2 * PAGE;
    }
    for (int32_t i = 0; i < REQUESTS * CONTEXT; i++) {
        slots[i] = i / PAGE * 5 % (REQUESTS * COLUMNS) * PAGE + i % PAGE; /* 5 is prime to it */
    }
    batch->lengths = flw_bed_upload(bed, "lengths", lengths, sizeof lengths);
    batch->requests = flw_bed_upload(bed, "requests", requests, sizeof requests);
    batch->starts = flw_bed_upload(bed, "starts", starts, sizeof starts);
    batch->req_to_token = flw_bed_upload(bed, "req_to_token", slots, sizeof slots);
    batch->valid_count = flw_bed_upload(bed, "valid_count", &count, sizeof count);
    batch->draft_tokens = flw_bed_upload(bed, "draft_tokens", &drafts, sizeof drafts);
    return batch;
}

/* ---- modules that both paths run */

static fallow_page_table_params table_of(const struct batch *batch, int32_t *page_table)
{
    fallow_page_table_params params;
    fallow_page_table_params_init(&params);
    params.lengths = batch->lengths;
    params.valid_count = batch->valid_count;
    params.requests = batch->requests;
    params.req_to_token = batch->req_to_token;
    params.page_table = page_table;
    params.request_rows = REQUESTS;
    params.stride = CONTEXT;
    params.batch = BATCH;
    params.cols = COLUMNS;
    params.page_size = PAGE;
    params.pad_len = 1;
    params.bounded = batch->is_bounded ? 1 : 0;
    return params;
}

static void expect_pages(struct flw_bed *bed, const int32_t *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        FLW_EXPECT(bed, table[i] >= 0 && table[i] < REQUESTS * COLUMNS,
                   "entry %zu of the page table is no page: %d", i, table[i]);
    }
}

/* Rows are those of pads: page 0. */
static void expect_pads(struct flw_bed *bed, const struct batch *batch, const int32_t *table)
{
    for (int32_t i = batch->count * COLUMNS; i < BATCH * COLUMNS; i++) {
        FLW_EXPECT(bed, table[i] == 0, "entry %d of a pad is %d", i, table[i]);
    }
}

struct parts {
    float *out, *lse; /* address of part 0, and of the merged result */
    int64_t rows;     /* of a part */
    int32_t width;
};

/* Write a part's attention: rows without keys are not written, as in backends. */
static void write_part(struct flw_bed *bed, const struct parts *parts, int64_t part,
                       const bool *is_seen)
{
    float row[LATENT], lse[BATCH * HEADS];
    for (int64_t r = 0; r < parts->rows; r++) {
        lse[r] = is_seen[r] ? 0.25f * (float)(r * 3 + part) - 1.0f : -INFINITY;
        for (int32_t i = 0; i < parts->width; i++) {
            row[i] = 0.01f * (float)(r * 7 + part * 31 + i);
        }
        if (is_seen[r]) {
            flw_bed_write(bed, parts->out + (part * parts->rows + r) * parts->width, row,
                          (size_t)parts->width * 4);
        }
    }
    flw_bed_write(bed, parts->lse + part * parts->rows, lse, (size_t)parts->rows * 4);
}

/* Into part 0, in place. */
static void merge_part(struct flw_bed *bed, const struct parts *parts, int64_t part)
{
    fallow_merge_states_params params;
    fallow_merge_states_params_init(&params);
    params.a = params.out = parts->out;
    params.a_lse = params.out_lse = parts->lse;
    params.b = parts->out + part * parts->rows * parts->width;
    params.b_lse = parts->lse + part * parts->rows;
    params.tokens = parts->rows;
    params.heads = 1;
    params.width = parts->width;
    params.dtype = params.out_dtype = FALLOW_F32;
    FLW_EXPECT_OK(
        bed, fallow_attention_merge_states(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

/* ---- fa3-graph */

static void run_tables(const struct flw_leased *run)
{
    struct batch *batch = run->inputs;
    fallow_page_table_params params = table_of(batch, flw_leased_claim(run, "page_table"));
    params.cache_seqlens = flw_leased_claim(run, "cache_seqlens");
    params.cu_k = flw_leased_claim(run, "cu_seqlens_k");
    if (batch->is_bounded) {
        flw_bed_read(run->bed, batch->before, params.page_table, sizeof batch->before);
    }
    FLW_LAUNCH(run->bed, fallow_attention_page_table, &params);
    params.delta = batch->draft_tokens;
    params.page_table = flw_leased_claim(run, "verify_page_table");
    params.cache_seqlens = flw_leased_claim(run, "verify_cache_seqlens");
    params.cu_k = NULL;
    FLW_LAUNCH(run->bed, fallow_attention_page_table, &params);
    fallow_cu_seqlens_params sums;
    fallow_cu_seqlens_params_init(&sums);
    sums.lengths = params.cache_seqlens;
    sums.cu_seqlens = flw_leased_claim(run, "verify_cu_seqlens_k");
    sums.batch = BATCH;
    FLW_LAUNCH(run->bed, fallow_attention_cu_seqlens, &sums);
}

static void run_local(const struct flw_leased *run)
{
    fallow_local_attention_params params;
    fallow_local_attention_params_init(&params);
    params.cu_seqlens_q = flw_leased_region(run, "cu_seqlens_q");
    params.lengths = flw_leased_region(run, "cache_seqlens");
    params.block_table = flw_leased_region(run, "page_table");
    params.cu_q_local = flw_leased_claim(run, "local_query_start_loc");
    params.seqused_k = flw_leased_claim(run, "local_seqused_k");
    params.local_table = flw_leased_claim(run, "local_block_table");
    params.batch = BATCH;
    params.capacity = LOCAL_ROWS;
    params.chunk = LOCAL;
    params.page_size = PAGE;
    params.table_columns = COLUMNS;
    FLW_LAUNCH(run->bed, fallow_attention_local_attention, &params);
}

static void run_schedule(const struct flw_leased *run)
{
    fallow_fa3_schedule_params params;
    fallow_fa3_schedule_params_init(&params);
    params.cu_seqlens_q = flw_leased_region(run, "cu_seqlens_q");
    params.seqused_k = flw_leased_region(run, "cache_seqlens");
    params.metadata = flw_leased_claim(run, "scheduler_metadata");
    params.batch = BATCH;
    params.heads_q = HEADS;
    params.heads_kv = KV_HEADS;
    params.multiprocessors = 8 * SM_COUNT;
    params.block_m = 16;
    params.block_n = 8;
    params.max_splits = SPLITS;
    params.head_dim = WIDTH;
    params.dtype = FALLOW_BF16;
    params.packed = params.causal = params.sorted = params.swizzled = 1;
    FLW_LAUNCH(run->bed, fallow_attention_fa3_schedule, &params);
}

/* Accumulators are [splits, heads, batch]; the metadata has the splits of a request. */
static void run_splits(const struct flw_leased *run, const int32_t *metadata)
{
    struct parts parts = {.out = flw_leased_claim(run, "out_accum"),
                          .lse = flw_leased_claim(run, "lse_accum"),
                          .rows = HEADS * BATCH,
                          .width = WIDTH};
    const int32_t *splits = metadata, *batch_idx = metadata + 2 * VECTOR;
    bool is_seen[HEADS * BATCH] = {false};
    int32_t most = 0;
    for (int64_t part = 0; part < SPLITS; part++) {
        for (int32_t k = 0; k < BATCH * HEADS; k++) {
            int32_t request = batch_idx[k % BATCH];
            is_seen[k / BATCH * BATCH + request] = part < splits[k % BATCH];
            most = splits[k % BATCH] > most ? splits[k % BATCH] : most;
        }
        write_part(run->bed, &parts, part, is_seen);
        if (part > 0) {
            merge_part(run->bed, &parts, part);
        }
    }
    FLW_EXPECT(run->bed, most > 1 && most <= SPLITS, "most splits of a request: %d", most);
    flw_leased_note(run, "merged out", parts.out, (size_t)(parts.rows * WIDTH) * 4);
    flw_leased_note(run, "merged lse", parts.lse, (size_t)parts.rows * 4);
}

/* Check that a bounded run keeps the columns after each row's length. */
static void expect_rest_kept(const struct flw_leased *run, const int32_t *table,
                             const int32_t *lengths)
{
    const struct batch *batch = run->inputs;
    for (int32_t i = 0; i < BATCH * COLUMNS; i++) {
        bool is_rest = i % COLUMNS * PAGE >= lengths[i / COLUMNS];
        FLW_EXPECT(run->bed, !is_rest || table[i] == batch->before[i],
                   "entry %d behind a row's length was %d, is %d", i, batch->before[i], table[i]);
    }
}

static void run_fa3_graph(struct flw_leased *run)
{
    static const char *const names[] = {
        "cu_seqlens_q",        "cu_seqlens_k",      "strided_indices",      "local_query_start_loc",
        "local_seqused_k",     "local_block_table", "verify_cache_seqlens", "verify_cu_seqlens_q",
        "verify_cu_seqlens_k", "verify_page_table"};
    const struct batch *batch = run->inputs;
    run_tables(run);
    run_local(run);
    run_schedule(run);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        flw_leased_note_all(run, names[i]);
    }
    const int32_t *lengths = flw_leased_note_all(run, "cache_seqlens");
    const int32_t *table = flw_leased_note_all(run, "page_table");
    const int32_t *metadata = flw_leased_note_all(run, "scheduler_metadata");
    expect_pages(run->bed, table, BATCH * COLUMNS);
    if (batch->is_bounded) {
        expect_rest_kept(run, table, lengths);
    } else {
        expect_pads(run->bed, batch, table);
    }
    for (int32_t i = batch->count; i < BATCH; i++) {
        FLW_EXPECT(run->bed, lengths[i] == 1, "the length of pad %d is %d", i, lengths[i]);
    }
    FLW_EXPECT(run->bed, metadata[4 * VECTOR] == 0, "the tile semaphore is %d",
               metadata[4 * VECTOR]);
    run_splits(run, metadata);
}

/* ---- flashmla-decode */

static void run_decode_tables(const struct flw_leased *run)
{
    const struct batch *batch = run->inputs;
    fallow_page_table_params table = table_of(batch, flw_leased_claim(run, "block_table"));
    fallow_padded_copy_params copy;
    fallow_flashmla_schedule_params schedule;
    table.starts = batch->starts;
    FLW_LAUNCH(run->bed, fallow_attention_page_table, &table);
    fallow_padded_copy_params_init(&copy);
    copy.src = batch->lengths;
    copy.dst = flw_leased_claim(run, "seq_lens");
    copy.valid_count = batch->valid_count;
    copy.value = 1;
    copy.rows = BATCH;
    FLW_LAUNCH(run->bed, fallow_attention_padded_copy, &copy);
    fallow_flashmla_schedule_params_init(&schedule);
    schedule.lengths = copy.dst;
    schedule.tile_metadata = flw_leased_claim(run, "tile_metadata");
    schedule.num_splits = flw_leased_claim(run, "num_splits");
    schedule.batch = BATCH;
    schedule.parts = fallow_mla_flashmla_parts(SM_COUNT, 1, HEADS, 1);
    schedule.block_size = PAGE;
    schedule.overhead_blocks = 1;
    FLW_EXPECT(run->bed, flw_leased_bytes(run, "tile_metadata") == (size_t)schedule.parts * 32,
               "%d parts", schedule.parts);
    FLW_LAUNCH(run->bed, fallow_mla_flashmla_schedule, &schedule);
}

/* Accumulators are [splits of all requests, heads]; those of one request are merged into the
 * first. */
static void run_decode_splits(const struct flw_leased *run, const int32_t *num_splits)
{
    static const bool is_seen[HEADS] = {true, false, true, true};
    float *out = flw_leased_claim(run, "out_accum"), *lse = flw_leased_claim(run, "lse_accum");
    bool is_split = false;
    for (int32_t i = 0; i < BATCH; i++) {
        int64_t first = num_splits[i] * HEADS, count = num_splits[i + 1] - num_splits[i];
        struct parts parts = {out + first * LATENT, lse + first, HEADS, LATENT};
        for (int64_t part = 0; part < count; part++) {
            write_part(run->bed, &parts, part, is_seen);
            if (part > 0) {
                merge_part(run->bed, &parts, part);
                is_split = true;
            }
        }
        for (int h = 0; h < HEADS; h++) {
            if (is_seen[h] || count > 1) {
                flw_leased_note(run, "merged out", parts.out + h * LATENT, LATENT * 4);
            }
        }
        flw_leased_note(run, "merged lse", parts.lse, HEADS * 4);
    }
    FLW_EXPECT(run->bed, is_split, "no request was split");
}

static void run_flashmla_decode(struct flw_leased *run)
{
    const struct batch *batch = run->inputs;
    run_decode_tables(run);
    flw_leased_note_all(run, "tile_metadata");
    const int32_t *lengths = flw_leased_note_all(run, "seq_lens");
    const int32_t *table = flw_leased_note_all(run, "block_table");
    expect_pages(run->bed, table, BATCH * COLUMNS);
    expect_pads(run->bed, batch, table);
    for (int32_t i = batch->count; i < BATCH; i++) {
        FLW_EXPECT(run->bed, lengths[i] == 1, "the length of pad %d is %d", i, lengths[i]);
    }
    run_decode_splits(run, flw_leased_note_all(run, "num_splits"));
}

/* ---- tests */

static struct flw_leased_step step_of(const char *path, struct batch *batch)
{
    bool is_graph = strcmp(path, "fa3-graph") == 0;
    struct flw_leased_step step = {.make = is_graph ? fallow_layout_fa3_graph
                                                    : fallow_layout_flashmla_decode,
                                   .model = &model,
                                   .inputs = batch,
                                   .run = is_graph ? run_fa3_graph : run_flashmla_decode};
    fallow_step_init(&step.sizes);
    step.sizes.batch = BATCH;
    step.sizes.context = CONTEXT;
    step.sizes.page_size = PAGE;
    step.sizes.splits = SPLITS;
    step.sizes.sm_count = SM_COUNT;
    step.sizes.chunk = is_graph ? LOCAL : 0;
    step.sizes.draft_tokens = is_graph ? DRAFTS : 0;
    return step;
}

static void check(struct flw_bed *bed, const char *path, bool has_bounded)
{
    struct batch *batches[4] = {make_batch(bed, 4, 40), make_batch(bed, BATCH, 60),
                                make_batch(bed, 1, 30), make_batch(bed, 2, 36)};
    struct flw_leased_step steps[4];
    batches[3]->is_bounded = true;
    for (int i = 0; i < 4; i++) {
        steps[i] = step_of(path, batches[i]);
    }
    flw_leased_prove(bed, &steps[0], &steps[1], &steps[2], has_bounded ? &steps[3] : NULL);
}

FLW_TEST(a_step_of_fa3_graph_does_not_show_what_its_regions_held)
{
    check(bed, "fa3-graph", true);
}

FLW_TEST(a_step_of_flashmla_decode_does_not_show_what_its_regions_held)
{
    check(bed, "flashmla-decode", false);
}
