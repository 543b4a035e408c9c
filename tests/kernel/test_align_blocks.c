/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/moe.h"
#include "kernel/call.h"

FLW_MODULE(align_blocks, fallow_moe_align_blocks, fallow_align_blocks, FLW_IN(ids),
           FLW_OTHER(batch_counts), FLW_OTHER(expert_map), FLW_OUT(sorted_ids), FLW_OUT(expert_ids),
           FLW_OUT(padded_count), FLW_OUT_MAYBE(flags), FLW_COUNT(count, 0, INT32_MAX),
           FLW_COUNT(experts, 1, 2048), FLW_COUNT(block_size, 1, 1 << 20),
           FLW_COUNT(map_count, 0, INT32_MAX), FLW_COUNT(capacity, 64 + 8 * 15, INT32_MAX),
           FLW_FLAG(sorts_invalid), FLW_FLAG(batched), FLW_DTYPE(ids_dtype, FLW_INTEGERS),
           FLW_ENUM(map_mode, FALLOW_ALIGN_MAP_BEFORE), FLW_ENUM(pad, FALLOW_ALIGN_PAD_LEAVE))

/* One call and the expected outputs. */
struct fixture {
    struct flw_call call;
    fallow_align_blocks_params params;
    int64_t *ids;
    int32_t *map, *batch_counts;
    int32_t *sorted, *experts;
    int32_t used;
};

static struct fixture *make(struct flw_bed *bed, int64_t count, int32_t experts, int32_t block_size)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    struct flw_call *call = &fixture->call;
    flw_call_init(bed, call, align_blocks(), &fixture->params);
    fixture->params.count = count;
    fixture->params.experts = experts;
    fixture->params.block_size = block_size;
    fixture->ids = flw_call_typed(call, "ids", (size_t)count, &fixture->params.ids_dtype);
    fixture->map = flw_call_input(call, "expert_map", 4096, 4);
    fixture->batch_counts = flw_call_input(call, "batch_counts", (size_t)experts, 4);
    return fixture;
}

/* Draw ids like a router: top_k different ids for each token, some of them -1. */
static struct fixture *draw(struct flw_bed *bed, struct fixture *fixture, int top_k,
                            int dropped_percent)
{
    for (int64_t i = 0; i < fixture->params.count; i++) {
        int64_t id = flw_bed_random_below(bed, fixture->params.experts);
        for (int64_t j = i / top_k * top_k; j < i && top_k <= fixture->params.experts; j++) {
            if (fixture->ids[j] == id) { /* take the next, and look again */
                id = (id + 1) % fixture->params.experts;
                j = i / top_k * top_k - 1;
            }
        }
        fixture->ids[i] = flw_bed_random_below(bed, 100) < dropped_percent ? -1 : id;
    }
    return fixture;
}

/* ---- the oracle: for each expert, look through all ids */

/* Return the expert of an id after the map, or `none`. */
static int64_t expert_of(const struct fixture *fixture, int64_t i, int64_t none)
{
    const fallow_align_blocks_params *params = &fixture->params;
    int64_t id = fixture->ids[i];
    if (params->map_mode == FALLOW_ALIGN_MAP_BEFORE) {
        id = id >= 0 && id < params->map_count ? fixture->map[id] : none;
        return id >= 0 && id < params->experts ? id : none;
    }
    bool is_legal = id >= 0 && id < params->experts;
    return is_legal || (params->sorts_invalid && id == -1) ? id : none;
}

static void expect_expert(struct fixture *fixture, int64_t expert, int64_t sentinel)
{
    const fallow_align_blocks_params *params = &fixture->params;
    int64_t begin = fixture->used;
    for (int64_t i = 0; i < params->count; i++) {
        bool is_in_batch = params->batched && i < fixture->batch_counts[expert];
        if (is_in_batch || (!params->batched && expert_of(fixture, i, -9) == expert)) {
            fixture->sorted[fixture->used++] =
                (int32_t)(params->batched ? expert * params->count + i : i);
        }
    }
    while (fixture->used % params->block_size != 0) {
        fixture->sorted[fixture->used++] = (int32_t)sentinel;
    }
    for (int64_t at = begin; at < fixture->used; at += params->block_size) {
        fixture->experts[at / params->block_size] =
            params->map_mode == FALLOW_ALIGN_MAP_AFTER ? fixture->map[expert] : (int32_t)expert;
    }
}

/* Compute the expected outputs; the mode determines where declared bytes end. */
static void expect(struct fixture *fixture)
{
    const fallow_align_blocks_params *params = &fixture->params;
    int64_t sentinel = params->batched ? params->count * params->experts : params->count;
    fallow_workspace_need need = flw_call_need(&fixture->call);
    int64_t capacity = (int64_t)need.outputs[0].bytes / 4;
    int64_t blocks = (int64_t)need.outputs[1].bytes / 4;
    fixture->sorted = flw_bed_memory(fixture->call.bed, need.outputs[0].bytes);
    fixture->experts = flw_bed_memory(fixture->call.bed, need.outputs[1].bytes);
    fixture->used = 0;
    for (int64_t e = params->sorts_invalid ? -1 : 0; e < params->experts; e++) {
        expect_expert(fixture, e, sentinel);
    }
    for (int64_t at = fixture->used; at < capacity; at++) {
        fixture->sorted[at] = (int32_t)sentinel;
    }
    for (int64_t j = fixture->used / params->block_size; j < blocks; j++) {
        fixture->experts[j] = params->pad == FALLOW_ALIGN_PAD_ZERO ? 0 : -1;
    }
    if (params->sorts_invalid) {
        fixture->call.limit[0] = (size_t)fixture->used * 4;
    }
    if (params->pad == FALLOW_ALIGN_PAD_LEAVE) {
        fixture->call.limit[1] = (size_t)(fixture->used / params->block_size) * 4;
    }
}

static void compare(struct fixture *fixture)
{
    flw_call_expect(&fixture->call, "sorted_ids", fixture->sorted);
    flw_call_expect(&fixture->call, "expert_ids", fixture->experts);
    flw_call_expect(&fixture->call, "padded_count", &fixture->used);
}

/* Prove a case with these flags. */
static void check(struct flw_bed *bed, struct fixture *fixture, int32_t flags)
{
    if (fixture->params.batched) {
        flw_call_omit(&fixture->call, "ids");
    }
    expect(fixture);
    fixture->call.want_flags = flags;
    flw_call_prove(&fixture->call);
    compare(fixture);
}

FLW_TEST(the_published_example_is_reproduced)
{
    static const int64_t ids[] = {2, 3, 4, 1, 2, 4, 1, 3, 4, 1, 2, 3};
    static const int32_t sorted[] = {3, 6, 9, 12, 0, 4, 10, 12, 1, 7, 11, 12, 2, 5, 8, 12};
    static const int32_t experts[] = {1, 2, 3, 4};
    struct fixture *fixture = make(bed, 12, 5, 4);
    memcpy(fixture->ids, ids, sizeof ids);
    check(bed, fixture, 0);
    FLW_EXPECT(bed, fixture->used == 16, "padded_count");
    FLW_EXPECT(bed, memcmp(fixture->sorted, sorted, sizeof sorted) == 0, "sorted_ids");
    FLW_EXPECT(bed, memcmp(fixture->experts, experts, sizeof experts) == 0, "expert_ids");
}

/* Tokens, experts, top_k, block size, slots, blocks: the models' table. */
static const int64_t model_shapes[][6] = {
    {1, 128, 8, 16, 128, 8},        {1, 128, 8, 64, 512, 8},       {64, 128, 8, 16, 2432, 152},
    {64, 128, 8, 128, 16768, 131},  {512, 128, 8, 64, 12160, 190}, {8192, 128, 8, 128, 81792, 639},
    {1, 8, 2, 16, 32, 2},           {512, 8, 2, 64, 1528, 24},     {8192, 8, 2, 128, 17400, 136},
    {1, 256, 8, 128, 1024, 8},      {64, 256, 8, 16, 4352, 272},   {512, 256, 8, 128, 36608, 286},
    {8192, 256, 8, 64, 81664, 1276}};

FLW_TEST(every_models_shape_is_exact)
{
    for (size_t m = 0; m < sizeof model_shapes / sizeof *model_shapes; m++) {
        const int64_t *shape = model_shapes[m];
        struct fixture *fixture =
            make(bed, shape[0] * shape[2], (int32_t)shape[1], (int32_t)shape[3]);
        fixture->params.ids_dtype = m % 2 == 0 ? FALLOW_I32 : FALLOW_I64;
        check(bed, draw(bed, fixture, (int)shape[2], m % 3 == 0 ? 10 : 0), 0);
        const size_t *bytes = fixture->call.step.buffer_bytes;
        FLW_EXPECT(bed, bytes[0] == (size_t)shape[4] * 4 && bytes[1] == (size_t)shape[5] * 4,
                   "shape %zu: %zu and %zu bytes", m, bytes[0], bytes[1]);
    }
}

FLW_TEST(odd_shapes_and_skew_are_exact)
{
    static const int64_t shapes[][3] = {
        /* count, experts, block size */
        {0, 8, 16},      {1, 1, 1},       {5, 1, 4},      {33, 60, 7},     {1000, 1, 3},
        {100, 1023, 16}, {100, 1024, 16}, {700, 1025, 3}, {3000, 2048, 5}, {4097, 2, 1000}};
    for (int k = 0; k < 30; k++) {
        const int64_t *shape = shapes[k / 3];
        struct fixture *fixture = make(bed, shape[0], (int32_t)shape[1], (int32_t)shape[2]);
        draw(bed, fixture, 1, k % 3 == 1 ? 60 : 0);
        for (int64_t i = 0; k % 3 == 2 && i < fixture->params.count; i++) {
            fixture->ids[i] = fixture->params.experts - 1;
        }
        fixture->params.pad = (fallow_align_pad)(k % 3);
        check(bed, fixture, 0);
    }
}

FLW_TEST(ids_without_an_expert_are_left_out)
{
    /* the low half of the last one is a legal id */
    static const int64_t ids[] = {16, -2, ((int64_t)1 << 32) + 3};
    struct fixture *fixture = draw(bed, make(bed, 300, 16, 8), 4, 30);
    check(bed, fixture, 0);
    for (int k = 0; k < 3; k++) {
        fixture->params.ids_dtype = k == 0 ? FALLOW_I32 : FALLOW_I64;
        fixture->ids[7] = ids[k];
        check(bed, fixture, FALLOW_FLAG_INDEX);
    }
    memset(fixture->ids, 0xff, 300 * 8);
    check(bed, fixture, 0);
    FLW_EXPECT(bed, fixture->used == 0, "no id, but blocks");
}

/* 64 experts of which every third lives here, numbered in reverse. */
FLW_TEST(both_maps_are_exact)
{
    for (int k = 0; k < 6; k++) {
        bool is_before = k >= 3;
        struct fixture *fixture = make(bed, 512, is_before ? 22 : 64, 16);
        fixture->params.map_mode = is_before ? FALLOW_ALIGN_MAP_BEFORE : FALLOW_ALIGN_MAP_AFTER;
        fixture->params.map_count = is_before ? 64 : 0;
        fixture->params.pad = (fallow_align_pad)(k % 3);
        for (int e = 0; e < 64; e++) {
            fixture->map[e] = e % 3 == 0 ? 21 - e / 3 : -1;
        }
        for (int i = 0; i < 512; i++) {
            fixture->ids[i] = flw_bed_random_below(bed, 65) - 1;
        }
        check(bed, fixture, 0);
        if (is_before) {
            fixture->ids[9] = 5;
            fixture->map[5] = 22;
            check(bed, fixture, FALLOW_FLAG_INDEX);
        }
    }
}

FLW_TEST(invalid_ids_may_come_first_as_an_expert_of_their_own)
{
    for (int percent = 0; percent <= 100; percent += 50) {
        struct fixture *fixture = draw(bed, make(bed, 257, 32, 16), 1, percent);
        fixture->params.sorts_invalid = 1;
        fixture->params.pad = FALLOW_ALIGN_PAD_LEAVE;
        fixture->params.capacity = 257 + 33 * 15; /* as published */
        check(bed, fixture, 0);
        FLW_EXPECT(bed, percent != 100 || fixture->experts[0] == -1, "-1 does not come first");
    }
}

FLW_TEST(batches_are_laid_out_by_their_counts)
{
    static const int32_t sorted[] = {0,  1,  40, 40, 8,  9,  10, 40, 24, 25, 26, 27,
                                     28, 29, 40, 40, 32, 33, 34, 35, 36, 37, 38, 39};
    static const int32_t counts[][2] = {
        {3, 0}, {9, FALLOW_FLAG_CLAMPED}, {-1, FALLOW_FLAG_NEGATIVE}};
    struct fixture *fixture = make(bed, 8, 5, 4);
    fixture->params.batched = 1;
    fixture->params.pad = FALLOW_ALIGN_PAD_MINUS_ONE;
    memcpy(fixture->batch_counts, (int32_t[]){2, 3, 0, 6, 8}, 20);
    for (int k = 0; k < 3; k++) {
        fixture->batch_counts[1] = counts[k][0];
        check(bed, fixture, counts[k][1]);
        FLW_EXPECT(bed, k != 0 || memcmp(fixture->sorted, sorted, sizeof sorted) == 0,
                   "the example is another");
    }
    memset(fixture->batch_counts, 0, 20);
    check(bed, fixture, 0);
    FLW_EXPECT(bed, fixture->used == 0, "blocks of nothing");
}

FLW_TEST(a_captured_call_sorts_the_ids_of_each_replay)
{
    struct fixture *fixture = draw(bed, make(bed, 640, 40, 16), 8, 0);
    flw_call_capture(&fixture->call);
    for (int tokens = 80; tokens >= 0; tokens -= 20) { /* the rest is padding of the router's */
        for (int i = tokens * 8; i < 640; i++) {
            fixture->ids[i] = -1;
        }
        expect(fixture);
        flw_call_replay(&fixture->call);
        compare(fixture);
    }
}

FLW_TEST(sizes_near_two_to_the_31_do_not_wrap)
{
    struct fixture *fixture = make(bed, 0, 256, 64);
    fixture->params.count = INT32_MAX - 256 * 63;
    fallow_workspace_need need = flw_call_need(&fixture->call);
    FLW_EXPECT(bed, need.outputs[0].bytes == (size_t)INT32_MAX * 4, "sorted_ids");
    FLW_EXPECT(bed, need.outputs[1].bytes == ((size_t)1 << 31) / 64 * 4, "expert_ids");
    fixture->params.count++;
    FLW_EXPECT(bed,
               fallow_moe_align_blocks_query(&fixture->params, &need) == FALLOW_INVALID_ARGUMENT,
               "not refused");
}

FLW_TEST(mistakes_are_refused_by_name)
{
    struct fixture *fixture = draw(bed, make(bed, 64, 8, 16), 2, 0);
    fixture->params.map_count = 8;
    FLW_CALL_REFUSE(&fixture->call, "map_count=9: map_count",
                    "batched=1 sorts_invalid=1: sorts_invalid", "batched=1 map_mode=1: map_mode",
                    "map_mode=1 expert_map=NULL: expert_map is NULL",
                    "batched=1 batch_counts=NULL: batch_counts is NULL",
                    "expert_ids=@sorted_ids+32: sorted_ids and expert_ids overlap");
}
