/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of edits that were proposed for serving engines, as "zeros to empty, since
 * everything is filled before use". Each unsafe one must be caught, with the buffer, the first
 * byte and the kernel that read it; Fallow's replacement beside it reaches the goal of the edit,
 * and passes.
 *
 * Twins replace the engines' own kernels: they read the same memory in the same order. Simulated
 * device only, because a GPU does not report reads of unwritten memory. */
#include <string.h>

#include "common/twin.h"
#include "fallow/attention.h"
#include "fallow/debug_kernels.h"
#include "fallow/moe.h"
#include "kernel/bed.h"

enum {
    BATCH = 8,
    PAGE = 16,
    PAGES = 32, /* of a row */
    CONTEXT = PAGE * PAGES
};

/* ---- the consumers */

/* FlashAttention's decode: for each row the length, the query offsets, and the pages. */
struct attention_args {
    const int32_t *cache_seqlens, *cu_seqlens_q, *page_table; /* [B], [B + 1], [B, PAGES] */
    int32_t batch;
};

static void attend(flw_sim_launch *launch, void **parameters)
{
    struct attention_args args;
    struct flw_twin twin;
    flw_bed_begin_twin(&twin, launch, parameters, &args, sizeof args);
    for (int32_t r = 0; r < args.batch; r++) {
        int32_t length = flw_load_i32(&twin, "cache_seqlens", args.cache_seqlens, r);
        (void)flw_load_i32(&twin, "cu_seqlens_q", args.cu_seqlens_q, r);
        (void)flw_load_i32(&twin, "cu_seqlens_q", args.cu_seqlens_q, r + 1);
        for (int32_t j = 0; j < PAGES && j * PAGE < length; j++) {
            (void)flw_load_i32(&twin, "page_table", args.page_table, r * PAGES + j);
        }
    }
}

/* An index by a table's first columns, as hybrid models map their pages. */
struct index_args {
    const int32_t *page_table;
    int32_t batch, columns;
};

static void index_pages(flw_sim_launch *launch, void **parameters)
{
    struct index_args args;
    struct flw_twin twin;
    flw_bed_begin_twin(&twin, launch, parameters, &args, sizeof args);
    for (int32_t r = 0; r < args.batch; r++) {
        for (int32_t j = 0; j < args.columns; j++) {
            (void)flw_load_i32(&twin, "page_table", args.page_table, r * PAGES + j);
        }
    }
}

/* Tile metadata of FlashMLA, and the rotary embedding: both read one value a row. */
struct vector_args {
    const void *values;
    int32_t count, is_i64;
};

static void read_vector(flw_sim_launch *launch, void **parameters)
{
    struct vector_args args;
    struct flw_twin twin;
    flw_bed_begin_twin(&twin, launch, parameters, &args, sizeof args);
    for (int32_t i = 0; i < args.count; i++) {
        (void)flw_load_int(&twin, "values", args.values, i, args.is_i64 ? FALLOW_I64 : FALLOW_I32);
    }
}

/* ---- expected reports */

/* Something was caught, and the first sentence has each of the words. */
static void expect_caught(struct flw_bed *bed, const char *kernel, const char *buffer,
                          const char *offset)
{
    char sentence[512];
    uint64_t count = flw_bed_expect_violations(bed, sentence, sizeof sentence);
    FLW_EXPECT(bed, count > 0, "%s read what was never written, and nothing was reported", kernel);
    FLW_EXPECT(bed, strstr(sentence, "unwritten") != NULL, "another violation: %s", sentence);
    FLW_EXPECT(bed, strstr(sentence, kernel) != NULL, "no kernel '%s': %s", kernel, sentence);
    FLW_EXPECT(bed, strstr(sentence, buffer) != NULL, "no buffer '%s': %s", buffer, sentence);
    FLW_EXPECT(bed, strstr(sentence, offset) != NULL, "no '%s': %s", offset, sentence);
    printf("       caught: %s\n", sentence);
}

static void expect_clean(struct flw_bed *bed)
{
    FLW_EXPECT(bed, flw_bed_violations(bed) == 0, "the correct form was reported");
}

/* ---- SGLang's graph state: 23 zeros to empty */

struct graph_state {
    int32_t *cache_seqlens, *cu_seqlens_q, *page_table;
};

/* torch.empty: buffers with previous contents. */
static struct graph_state make_state(struct flw_bed *bed)
{
    return (struct graph_state){
        .cache_seqlens = flw_bed_buffer(bed, "decode cache_seqlens", BATCH * 4),
        .cu_seqlens_q = flw_bed_buffer(bed, "decode cu_seqlens_q", (BATCH + 1) * 4),
        .page_table = flw_bed_buffer(bed, "decode page_table", BATCH * PAGES * 4)};
}

static void run_attention(struct flw_bed *bed, const struct graph_state *state)
{
    struct attention_args args = {.cache_seqlens = state->cache_seqlens,
                                  .cu_seqlens_q = state->cu_seqlens_q,
                                  .page_table = state->page_table,
                                  .batch = BATCH};
    flw_bed_run_twin(bed, "flash_attention", attend, &args, sizeof args);
}

static void write_ints(struct flw_bed *bed, int32_t *to, int count, int32_t first, int32_t step)
{
    int32_t values[BATCH * PAGES];
    for (int i = 0; i < count; i++) {
        values[i] = first + i * step;
    }
    flw_bed_write(bed, to, values, (size_t)count * 4);
}

/* Write offsets by the modulethat includes the leading zero. */
static void write_offsets(struct flw_bed *bed, int32_t *cu_seqlens, int32_t each)
{
    int32_t lengths[BATCH];
    fallow_cu_seqlens_params params;
    for (int i = 0; i < BATCH; i++) {
        lengths[i] = each;
    }
    fallow_cu_seqlens_params_init(&params);
    params.lengths = flw_bed_upload(bed, "accept lengths", lengths, sizeof lengths);
    params.cu_seqlens = cu_seqlens;
    params.batch = BATCH;
    FLW_LAUNCH(bed, fallow_attention_cu_seqlens, &params);
}

FLW_TEST(a_capture_that_binds_empty_buffers_reads_lengths)
{
    struct graph_state state = make_state(bed);
    write_offsets(bed, state.cu_seqlens_q, 1);
    run_attention(bed, &state);
    expect_caught(bed, "flash_attention", "decode cache_seqlens", "argument 'cache_seqlens'");
}

FLW_TEST(a_capture_that_fills_lengths_only_reads_pages)
{
    struct graph_state state = make_state(bed);
    write_offsets(bed, state.cu_seqlens_q, 1);
    write_ints(bed, state.cache_seqlens, BATCH, 1, 0); /* "capture length 1" */
    run_attention(bed, &state);
    expect_caught(bed, "flash_attention", "decode page_table", "argument 'page_table'");
}

FLW_TEST(a_draft_that_rewrites_offsets_from_one_on_reads_the_first)
{
    struct graph_state state = make_state(bed);
    write_ints(bed, state.cu_seqlens_q + 1, BATCH, 4, 4); /* cu[1:].copy_(cumsum) */
    write_ints(bed, state.cache_seqlens, BATCH, 1, 0);
    write_ints(bed, state.page_table, BATCH * PAGES, 0, 1);
    run_attention(bed, &state);
    expect_caught(bed, "flash_attention", "decode cu_seqlens_q", "argument 'cu_seqlens_q'");
    write_offsets(bed, state.cu_seqlens_q, 4);
    run_attention(bed, &state);
    expect_clean(bed);
}

/* A decode's metadata by the module: every row, every column, pads too. */
static void write_metadata(struct flw_bed *bed, const struct graph_state *state, int32_t valid,
                           int32_t length)
{
    int32_t lengths[BATCH], requests[BATCH], slots[BATCH * CONTEXT];
    fallow_page_table_params params;
    for (int i = 0; i < BATCH; i++) {
        lengths[i] = length;
        requests[i] = i;
    }
    for (int i = 0; i < BATCH * CONTEXT; i++) {
        slots[i] = i;
    }
    fallow_page_table_params_init(&params);
    params.lengths = flw_bed_upload(bed, "seq_lens", lengths, sizeof lengths);
    params.requests = flw_bed_upload(bed, "req_pool_indices", requests, sizeof requests);
    params.req_to_token = flw_bed_upload(bed, "req_to_token", slots, sizeof slots);
    params.valid_count = flw_bed_upload(bed, "batch", &valid, sizeof valid);
    params.page_table = state->page_table;
    params.cache_seqlens = state->cache_seqlens;
    params.request_rows = params.batch = BATCH;
    params.stride = CONTEXT;
    params.cols = PAGES;
    params.page_size = PAGE;
    params.pad_len = 1;
    FLW_LAUNCH(bed, fallow_attention_page_table, &params);
}

FLW_TEST(a_capture_after_the_module_reads_nothing_unwritten)
{
    struct graph_state state = make_state(bed);
    write_offsets(bed, state.cu_seqlens_q, 1);
    write_metadata(bed, &state, 0, 0); /* no request yet: pads only */
    run_attention(bed, &state);
    expect_clean(bed);
    write_metadata(bed, &state, 3, CONTEXT); /* and in use, with pads behind */
    run_attention(bed, &state);
    expect_clean(bed);
}

/* Hybrid local attention maps columns up to the longest length, of which only pages were copied. */
FLW_TEST(a_replay_that_copies_pages_only_leaves_an_index_unwritten)
{
    struct graph_state state = make_state(bed);
    struct index_args args = {.page_table = state.page_table, .batch = 1, .columns = 20};
    write_ints(bed, state.page_table, 4, 0, 1); /* page_table[:, :max_seq_pages].copy_ */
    flw_bed_run_twin(bed, "full_to_swa_index", index_pages, &args, sizeof args);
    expect_caught(bed, "full_to_swa_index", "decode page_table + 16", "argument 'page_table'");
    write_metadata(bed, &state, 1, 4 * PAGE);
    flw_bed_run_twin(bed, "full_to_swa_index", index_pages, &args, sizeof args);
    expect_clean(bed);
}

/* ---- vLLM's latent attention: ones and zeros to empty */

/* Write `count` values and the padding after them, by the module. */
static void write_padded(struct flw_bed *bed, void *to, int32_t count, int64_t value,
                         fallow_dtype dtype)
{
    int64_t values[BATCH] = {5, 6, 7};
    fallow_padded_copy_params params;
    fallow_padded_copy_params_init(&params);
    params.src =
        flw_bed_upload(bed, "this step's values", values, BATCH * fallow_dtype_bytes(dtype));
    params.valid_count = flw_bed_upload(bed, "count", &count, sizeof count);
    params.dst = to;
    params.rows = BATCH;
    params.value = value;
    params.dtype = dtype;
    FLW_LAUNCH(bed, fallow_attention_padded_copy, &params);
}

FLW_TEST(empty_graph_lengths_are_read_by_the_capture)
{
    int32_t *lengths = flw_bed_buffer(bed, "_graph_seq_lens", BATCH * 4);
    struct vector_args args = {.values = lengths, .count = BATCH};
    flw_bed_run_twin(bed, "get_mla_metadata", read_vector, &args, sizeof args);
    expect_caught(bed, "get_mla_metadata", "_graph_seq_lens + 0", "unwritten: load");
    write_padded(bed, lengths, 0, 1, FALLOW_I32); /* of a capture: a legal length in each row */
    flw_bed_run_twin(bed, "get_mla_metadata", read_vector, &args, sizeof args);
    expect_clean(bed);
}

FLW_TEST(empty_positions_behind_the_batch_index_the_rotary_table)
{
    int64_t *positions = flw_bed_buffer(bed, "input_positions", BATCH * 8);
    const int64_t three[3] = {5, 6, 7};
    struct vector_args args = {.values = positions, .count = BATCH, .is_i64 = 1};
    flw_bed_write(bed, positions, three, sizeof three); /* input_positions[:n].copy_ */
    flw_bed_run_twin(bed, "rotary_embedding", read_vector, &args, sizeof args);
    expect_caught(bed, "rotary_embedding", "input_positions + 24", "unwritten: load");
    write_padded(bed, positions, 3, 0, FALLOW_I64);
    flw_bed_run_twin(bed, "rotary_embedding", read_vector, &args, sizeof args);
    expect_clean(bed);
}

FLW_TEST(offsets_padded_in_place_of_zeros_and_cat_are_equal)
{
    const int32_t expected[BATCH + 1] = {0, 3, 6, 9, 12, 15, 18, 21, 24};
    int32_t *cu_seqlens = flw_bed_buffer(bed, "cu_seq_lens", sizeof expected), read[BATCH + 1];
    write_offsets(bed, cu_seqlens, 3);
    flw_bed_read(bed, read, cu_seqlens, sizeof read);
    FLW_EXPECT(bed, memcmp(read, expected, sizeof read) == 0, "not the sums");
    expect_clean(bed);
}

/* ---- SGLang's routing: the ids passed for a third output too */

enum {
    TOKENS = 64,
    TOP_K = 8,
    EXPERTS = 128
};

/* The published kernel with three outputs: it writes an id, then a row number of the expanded
 * input. */
struct topk_args {
    int32_t *ids, *source_rows; /* [TOKENS, TOP_K] */
};

static void route_with_three_outputs(flw_sim_launch *launch, void **parameters)
{
    struct topk_args args;
    struct flw_twin twin;
    flw_bed_begin_twin(&twin, launch, parameters, &args, sizeof args);
    for (int32_t t = 0; t < TOKENS; t++) {
        for (int32_t j = 0; j < TOP_K; j++) {
            flw_store_i32(&twin, "topk_ids", args.ids, t * TOP_K + j, (t * 3 + j) % EXPERTS);
            flw_store_i32(&twin, "token_expert_indices", args.source_rows, t * TOP_K + j,
                          j * TOKENS + t);
        }
    }
}

static fallow_validate_report look_at_ids(struct flw_bed *bed, const int32_t *ids)
{
    fallow_validate_report report = {0};
    fallow_validate_ids_params params;
    fallow_validate_ids_params_init(&params);
    params.ids = ids;
    params.report = flw_bed_upload(bed, "report", &report, sizeof report);
    params.rows = TOKENS;
    params.top_k = TOP_K;
    params.id_count = EXPERTS;
    FLW_LAUNCH(bed, fallow_debug_validate_ids, &params);
    flw_bed_read(bed, &report, params.report, sizeof report);
    return report;
}

/* Every byte is written: poison sees nothing. The look at the values does. */
FLW_TEST(ids_written_through_two_names_are_out_of_range)
{
    const size_t bytes = TOKENS * TOP_K * 4;
    struct topk_args args = {.ids = flw_bed_buffer(bed, "topk_ids", bytes)};
    args.source_rows = args.ids; /* the edit */
    flw_bed_run_twin(bed, "topk_softmax", route_with_three_outputs, &args, sizeof args);
    fallow_validate_report report = look_at_ids(bed, args.ids);
    FLW_EXPECT(bed, report.range_count == TOKENS * (TOP_K - EXPERTS / TOKENS),
               "%llu ids out of range", (unsigned long long)report.range_count);
    printf("       caught: %llu of %d ids are no expert's, the first at byte %llu\n",
           (unsigned long long)report.range_count, TOKENS * TOP_K,
           (unsigned long long)report.range_first - 1);
    args.source_rows = flw_bed_buffer(bed, "token_expert_indices", bytes);
    flw_bed_run_twin(bed, "topk_softmax", route_with_three_outputs, &args, sizeof args);
    report = look_at_ids(bed, args.ids);
    FLW_EXPECT(bed, report.range_count == 0 && report.double_count == 0, "good ids were reported");
    expect_clean(bed);
}

/* The module has no third output; two that overlap are refused before anything is launched. */
FLW_TEST(outputs_of_one_call_that_overlap_are_refused)
{
    fallow_route_params params;
    float *weights = flw_bed_buffer(bed, "topk_weights", TOKENS * TOP_K * 4);
    fallow_route_params_init(&params);
    params.logits = flw_bed_buffer(bed, "logits", TOKENS * EXPERTS * 4);
    params.weights = weights;
    params.ids = weights;
    params.tokens = TOKENS;
    params.experts = EXPERTS;
    params.top_k = TOP_K;
    params.dtype = FALLOW_F32;
    FLW_EXPECT_REFUSED(bed, fallow_moe_route(flw_bed_kernels(bed), &params, flw_bed_stream(bed)),
                       FALLOW_INVALID_ARGUMENT, "weights and ids overlap");
    printf("       caught: %s\n", flw_bed_last_error(bed));
}
