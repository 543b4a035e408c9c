/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the sizes of the ready layouts compared with numbers computed by hand and published by the
 * engines, and the distance of their placement from the lower bound. */
#include "support/test.h"

#include "arena/layout.h"
#include "fallow/layouts.h"

static fallow_layout *make(fallow_layout_function path, const char *model, const fallow_step *step)
{
    fallow_layout *layout = NULL;
    assert_ok(path(fallow_model_find(model), step, &layout));
    assert_true(flw_layout_is_valid(layout));
    return layout;
}

static size_t bytes_of(const fallow_layout *layout, const char *name)
{
    fallow_region region = {0};
    size_t index = fallow_layout_find(layout, name);
    return fallow_layout_region(layout, index, &region, NULL) == FALLOW_OK ? region.size_bytes : 0;
}

static fallow_step step_of(uint64_t batch, uint64_t context, uint64_t page_size)
{
    fallow_step step;
    fallow_step_init(&step);
    step.batch = batch;
    step.context = context;
    step.page_size = page_size;
    return step;
}

TEST(page_tables_have_their_sizes)
{
    static const struct {
        uint64_t page_size, context, batch;
        size_t bytes;
    } cases[] = {{1, 8192, 1, 32 << 10},      {1, 32768, 64, 8 << 20},
                 {1, 131072, 512, 256 << 20}, {16, 8192, 8, 16 << 10},
                 {16, 131072, 512, 16 << 20}, {64, 8192, 1, 512},
                 {64, 131072, 256, 2 << 20},  {64, 131072, 512, 4 << 20}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fallow_step step = step_of(cases[i].batch, cases[i].context, cases[i].page_size);
        fallow_layout *layout = make(fallow_layout_fa3_graph, "llama-3-8b", &step);
        assert_int_equal(bytes_of(layout, "page_table"), cases[i].bytes);
        assert_int_equal(bytes_of(layout, "cu_seqlens_k"), 4 * (cases[i].batch + 1));
        fallow_layout_destroy(layout);
    }
}

TEST(local_attention_has_a_row_for_each_chunk)
{
    fallow_step step = step_of(512, 131072, 16);
    step.chunk = 8192;
    fallow_layout *layout = make(fallow_layout_fa3_graph, "llama-3-8b", &step);
    assert_int_equal(bytes_of(layout, "local_block_table"), 16 << 20);
    assert_int_equal(bytes_of(layout, "local_seqused_k"), 8192 * 4);
    fallow_layout_destroy(layout);
}

TEST(flash_attentions_metadata_and_accumulators_have_their_sizes)
{
    static const struct {
        uint64_t batch;
        size_t metadata, out_8b;
    } cases[] = {{1, 68, 512 << 10},
                 {8, 132, 4 << 20},
                 {64, 1028, 32 << 20},
                 {256, 4100, 128 << 20},
                 {512, 8196, 256 << 20}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fallow_step step = step_of(cases[i].batch, 8192, 64);
        fallow_layout *layout = make(fallow_layout_fa3_graph, "llama-3-8b", &step);
        assert_int_equal(bytes_of(layout, "scheduler_metadata"), cases[i].metadata);
        assert_int_equal(bytes_of(layout, "out_accum"), cases[i].out_8b);
        assert_int_equal(bytes_of(layout, "lse_accum"), cases[i].out_8b / 128);
        fallow_layout_destroy(layout);
        step.tensor_ranks = 8;
        layout = make(fallow_layout_fa3_graph, "llama-3-70b", &step);
        assert_int_equal(bytes_of(layout, "out_accum"), cases[i].out_8b / 4);
        fallow_layout_destroy(layout);
    }
}

TEST(flashmlas_accumulators_have_their_sizes)
{
    static const struct {
        uint64_t batch;
        size_t splits, lse, out, out_8_ranks;
    } cases[] = {{1, 8, 34304, 17563648, 4358144},
                 {8, 36, 37888, 19398656, 4587520},
                 {64, 260, 66560, 34078720, 6422528},
                 {256, 1028, 164864, 84410368, 12713984},
                 {512, 2052, 295936, 151519232, 21102592}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fallow_step step = step_of(cases[i].batch, 8192, 64);
        fallow_layout *layout = make(fallow_layout_flashmla_decode, "deepseek-v3", &step);
        assert_int_equal(bytes_of(layout, "num_splits"), cases[i].splits);
        assert_int_equal(bytes_of(layout, "tile_metadata"), 2112);
        assert_int_equal(bytes_of(layout, "lse_accum"), cases[i].lse);
        assert_int_equal(bytes_of(layout, "out_accum"), cases[i].out);
        fallow_layout_destroy(layout);
        step.tensor_ranks = 8;
        layout = make(fallow_layout_flashmla_decode, "deepseek-v3", &step);
        assert_int_equal(bytes_of(layout, "tile_metadata"), 4224);
        assert_int_equal(bytes_of(layout, "out_accum"), cases[i].out_8_ranks);
        fallow_layout_destroy(layout);
    }
}

TEST(a_chain_of_chunks_keeps_two_pairs)
{
    fallow_step step = step_of(1, 16384, 64);
    step.tokens = 1024;
    step.chunk = 1024; /* 16 chunks */
    fallow_layout *layout = make(fallow_layout_mla_prefill, "deepseek-v3", &step);
    size_t pair = bytes_of(layout, "out") + bytes_of(layout, "lse");
    assert_int_equal(pair, 34078720);
    assert_int_equal(bytes_of(layout, "chunk_out"), bytes_of(layout, "out"));
    /* Other live regions beside the two pairs during a chunk's attention: the rows, and the
     * tables. */
    size_t rows = 1024, keys = rows * 128 * 192 * 2, values = rows * 128 * 256 * 2;
    assert_true(fallow_layout_lower_bound(layout) >= 2 * pair + keys + values);
    assert_true(fallow_layout_lower_bound(layout) <= 2 * pair + keys + values + (64 << 10));
    assert_true(fallow_layout_bytes(layout) <= fallow_layout_lower_bound(layout) * 102 / 100);
    size_t count = fallow_layout_region_count(layout), bytes = fallow_layout_bytes(layout);
    fallow_layout_destroy(layout);
    step.context *= 100; /* 100 times as many chunks */
    layout = make(fallow_layout_mla_prefill, "deepseek-v3", &step);
    assert_int_equal(fallow_layout_region_count(layout), count);
    assert_true(fallow_layout_bytes(layout) <= bytes + (64 << 10));
    fallow_layout_destroy(layout);
}

/* ws13 + ws2 of the form that two buffers are reused for all four. */
TEST(experts_need_no_more_than_the_reused_form)
{
    static const struct {
        const char *model;
        size_t gate_and_up, activation, down, reused, in_place;
    } cases[] = {{"qwen3-30b-a3b", 201326592, 100663296, 268435456, 536870912, 469762048},
                 {"mixtral-8x7b", 939524096, 469762048, 134217728, 1409286144, 1073741824},
                 {"deepseek-v3", 536870912, 268435456, 939524096, 1879048192, 1476395008}};
    const size_t tables = (size_t)2 << 20; /* ids, weights, sorted ids: in neither form's count */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fallow_step step = step_of(8192, 8192, 64);
        fallow_layout *layout = make(fallow_layout_moe_triton, cases[i].model, &step);
        assert_int_equal(bytes_of(layout, "gate_and_up"), cases[i].gate_and_up);
        assert_int_equal(bytes_of(layout, "activation"), cases[i].activation);
        assert_int_equal(bytes_of(layout, "down"), cases[i].down);
        assert_true(fallow_layout_bytes(layout) <= cases[i].reused + tables);
        fallow_layout_destroy(layout);
        step.activates_in_place = 1;
        layout = make(fallow_layout_moe_triton, cases[i].model, &step);
        assert_int_equal(bytes_of(layout, "activation"), 0);
        assert_true(fallow_layout_bytes(layout) <= cases[i].in_place + tables);
        fallow_layout_destroy(layout);
    }
}

TEST(aligned_ids_have_their_lengths)
{
    static const struct {
        const char *model;
        uint64_t tokens, block, sorted, blocks;
    } cases[] = {{"qwen3-30b-a3b", 1, 16, 128, 8},         {"qwen3-30b-a3b", 64, 64, 8576, 134},
                 {"qwen3-30b-a3b", 8192, 128, 81792, 639}, {"mixtral-8x7b", 512, 64, 1528, 24},
                 {"deepseek-v3", 1, 128, 1024, 8},         {"deepseek-v3", 64, 16, 4352, 272},
                 {"deepseek-v3", 8192, 64, 81664, 1276}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fallow_step step = step_of(cases[i].tokens, 8192, 64);
        step.block_rows = cases[i].block;
        fallow_layout *layout = make(fallow_layout_moe_triton, cases[i].model, &step);
        assert_int_equal(bytes_of(layout, "sorted_token_ids"), 4 * cases[i].sorted);
        assert_int_equal(bytes_of(layout, "expert_ids"), 4 * cases[i].blocks);
        fallow_layout_destroy(layout);
    }
}

TEST(contiguous_rows_are_padded_for_each_expert)
{
    static const struct {
        const char *model;
        uint64_t tokens, ranks, rows;
    } cases[] = {{"qwen3-30b-a3b", 1, 1, 16384},    {"qwen3-30b-a3b", 512, 1, 20352},
                 {"qwen3-30b-a3b", 8192, 1, 81792}, {"mixtral-8x7b", 1, 1, 1024},
                 {"mixtral-8x7b", 8192, 1, 17408},  {"deepseek-v3", 1, 1, 32640},
                 {"deepseek-v3", 8192, 1, 98048},   {"deepseek-v3", 1, 8, 4096},
                 {"deepseek-v3", 512, 8, 8192},     {"deepseek-v3", 8192, 8, 69632}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fallow_step step = step_of(cases[i].tokens, 8192, 64);
        step.expert_ranks = cases[i].ranks;
        fallow_layout *layout = make(fallow_layout_moe_contiguous, cases[i].model, &step);
        assert_int_equal(bytes_of(layout, "m_indices"), 4 * cases[i].rows);
        fallow_layout_destroy(layout);
    }
}

TEST(every_path_is_within_two_percent_of_its_bound)
{
    static const uint64_t batches[] = {1, 8, 64, 512, 8192};
    unsigned made = 0;
    for (size_t p = 0; fallow_path_at(p) != NULL; p++) {
        for (size_t m = 0; fallow_model_preset(m) != NULL; m++) {
            for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
                fallow_step step = step_of(batches[b] < 512 ? batches[b] : 64, 8192, 64);
                fallow_layout *layout = NULL;
                step.tokens = batches[b];
                fallow_status status =
                    fallow_path_at(p)->make(fallow_model_preset(m), &step, &layout);
                assert_true(status == FALLOW_OK || status == FALLOW_INVALID_ARGUMENT);
                if (layout != NULL) {
                    assert_string_equal(fallow_layout_name(layout), fallow_path_at(p)->name);
                    size_t bound = fallow_layout_lower_bound(layout);
                    /* Offsets are multiples of 256. */
                    size_t slack = 256 * fallow_layout_region_count(layout);
                    assert_true(fallow_layout_bytes(layout) <= bound + bound / 50 + slack);
                    made++;
                }
                fallow_layout_destroy(layout);
            }
        }
    }
    assert_int_equal(made, 5 * (5 + 1 + 1 + 3 * 3)); /* experts: three models; latent: one */
}

TEST(what_a_path_cannot_be_made_of_is_refused)
{
    fallow_step step = step_of(8, 8192, 64);
    fallow_layout *layout = NULL;
    const fallow_model *dense = fallow_model_find("llama-3-8b");
    assert_int_equal(fallow_layout_moe_triton(dense, &step, &layout), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_layout_flashmla_decode(dense, &step, &layout), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_layout_mla_prefill(dense, &step, &layout), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_layout_fa3_graph(NULL, &step, &layout), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_layout_fa3_graph(dense, NULL, &layout), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_layout_fa3_graph(dense, &step, NULL), FALLOW_INVALID_ARGUMENT);
    step.tensor_ranks = 3;
    assert_int_equal(fallow_layout_fa3_graph(dense, &step, &layout), FALLOW_INVALID_ARGUMENT);
    step.tensor_ranks = 1;
    step.batch = UINT64_MAX;
    assert_int_equal(fallow_layout_fa3_graph(dense, &step, &layout), FALLOW_INVALID_ARGUMENT);
    step.batch = (uint64_t)1 << 40;
    step.context = (uint64_t)1 << 40;
    assert_int_equal(fallow_layout_fa3_graph(dense, &step, &layout), FALLOW_INVALID_ARGUMENT);
    /* Products that overflow 64 bits must not count as small ones. */
    step = step_of((uint64_t)1 << 40, (uint64_t)1 << 40, (uint64_t)1 << 40);
    step.chunk = 1;
    assert_int_equal(fallow_layout_fa3_graph(dense, &step, &layout), FALLOW_INVALID_ARGUMENT);
    fallow_model absurd = *fallow_model_find("qwen3-30b-a3b");
    absurd.top_k = (uint64_t)1 << 63;
    step = step_of(2, 8192, 64);
    assert_int_equal(fallow_layout_moe_triton(&absurd, &step, &layout), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_layout_moe_masked(&absurd, &step, &layout), FALLOW_INVALID_ARGUMENT);
    assert_null(layout);
    assert_null(fallow_model_find("gpt-5"));
    assert_null(fallow_model_find(NULL));
}

FLW_TEST_MAIN(NULL, NULL)
