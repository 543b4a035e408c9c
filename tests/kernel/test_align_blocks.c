/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/moe.h"
#include "kernel/bed.h"

/* One call, the inputs on the host, and the expected outputs. */
struct fixture {
    fallow_align_blocks_params params;
    int64_t *ids;
    int32_t *map, *batch_counts;
    int32_t *sorted, *experts; /* expected */
    int64_t capacity, blocks, used;
};

static struct fixture *make(int64_t count, int32_t experts, int32_t block_size)
{
    struct fixture *fixture = flw_bed_host(sizeof *fixture);
    fallow_align_blocks_params_init(&fixture->params);
    fixture->params.count = count;
    fixture->params.experts = experts;
    fixture->params.block_size = block_size;
    fixture->ids = flw_bed_host((size_t)count * 8);
    fixture->map = flw_bed_host(4096 * 4);
    fixture->batch_counts = flw_bed_host((size_t)experts * 4);
    return fixture;
}

static void drop(struct fixture *fixture)
{
    free(fixture->ids);
    free(fixture->map);
    free(fixture->batch_counts);
    free(fixture->sorted);
    free(fixture->experts);
    free(fixture);
}

/* Draw ids like a router: top_k different ids for each token, some of them -1. */
static void draw(struct flw_bed *bed, struct fixture *fixture, int top_k, int dropped_percent)
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
    for (int64_t i = 0; !params->batched && i < params->count; i++) {
        if (expert_of(fixture, i, -9) == expert) {
            fixture->sorted[fixture->used++] = (int32_t)i;
        }
    }
    for (int64_t r = 0; params->batched && r < params->count; r++) {
        if (r < fixture->batch_counts[expert]) {
            fixture->sorted[fixture->used++] = (int32_t)(expert * params->count + r);
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

static void expect(struct fixture *fixture)
{
    const fallow_align_blocks_params *params = &fixture->params;
    int64_t sentinel = params->batched ? params->count * params->experts : params->count;
    free(fixture->sorted);
    free(fixture->experts);
    fixture->sorted = flw_bed_host((size_t)fixture->capacity * 4);
    fixture->experts = flw_bed_host((size_t)fixture->blocks * 4);
    fixture->used = 0;
    for (int64_t e = params->sorts_invalid ? -1 : 0; e < params->experts; e++) {
        expect_expert(fixture, e, sentinel);
    }
    for (int64_t at = fixture->used; at < fixture->capacity; at++) {
        fixture->sorted[at] = (int32_t)sentinel;
    }
    for (int64_t j = fixture->used / params->block_size; j < fixture->blocks; j++) {
        fixture->experts[j] = params->pad == FALLOW_ALIGN_PAD_ZERO ? 0 : -1;
    }
}

/* ---- one case */

static void upload(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_align_blocks_params *params = &fixture->params;
    params->ids = params->batched ? NULL
                                  : flw_bed_upload_ints(bed, "ids", fixture->ids,
                                                        (size_t)params->count, params->ids_dtype);
    params->batch_counts =
        flw_bed_upload(bed, "batch_counts", fixture->batch_counts, (size_t)params->experts * 4);
    params->expert_map = flw_bed_upload(bed, "expert_map", fixture->map, (size_t)4096 * 4);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_align_blocks_params params = ((struct fixture *)inputs)->params;
    params.sorted_ids = outputs[0];
    params.expert_ids = outputs[1];
    params.padded_count = outputs[2];
    FLW_EXPECT_OK(bed, fallow_moe_align_blocks(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

/* Compute the expected outputs; the mode determines where declared bytes end. */
static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_moe_align_blocks_query(&fixture->params, &need), &need);
    fixture->capacity = (int64_t)need.outputs[0].bytes / 4;
    fixture->blocks = (int64_t)need.outputs[1].bytes / 4;
    expect(fixture);
    if (fixture->params.sorts_invalid) {
        step.declared_bytes[0] = (size_t)fixture->used * 4;
    }
    if (fixture->params.pad == FALLOW_ALIGN_PAD_LEAVE) {
        step.declared_bytes[1] = (size_t)(fixture->used / fixture->params.block_size) * 4;
    }
    return step;
}

static void compare(struct flw_bed *bed, const struct fixture *fixture, void *const out[],
                    const size_t *declared_bytes)
{
    const int32_t *sorted = out[0], *experts = out[1];
    for (size_t i = 0; i < declared_bytes[0] / 4; i++) {
        FLW_EXPECT(bed, sorted[i] == fixture->sorted[i],
                   "count %lld, %d experts, blocks of %d: slot %zu is %d, expected %d",
                   (long long)fixture->params.count, fixture->params.experts,
                   fixture->params.block_size, i, sorted[i], fixture->sorted[i]);
    }
    for (size_t j = 0; j < declared_bytes[1] / 4; j++) {
        FLW_EXPECT(bed, experts[j] == fixture->experts[j], "block %zu has expert %d, expected %d",
                   j, experts[j], fixture->experts[j]);
    }
    FLW_EXPECT(bed, *(int32_t *)out[2] == fixture->used, "padded_count is %d, expected %lld",
               *(int32_t *)out[2], (long long)fixture->used);
}

static void check(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_align_blocks_params *params = &fixture->params;
    struct fixture *larger =
        make(params->count + params->count / 4 + 5, params->experts, params->block_size);
    struct fixture *smaller = make(params->count / 2, params->experts, params->block_size);
    draw(bed, larger, 1, 5);
    draw(bed, smaller, 1, 5);
    upload(bed, fixture);
    upload(bed, larger);
    upload(bed, smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    int32_t padded_count = 0;
    void *out[] = {flw_bed_host(step.declared_bytes[0]), flw_bed_host(step.declared_bytes[1]),
                   &padded_count};
    flw_bed_prove(bed, &step, &before, &after, out);
    compare(bed, fixture, out, step.declared_bytes);
    free(out[0]);
    free(out[1]);
    drop(larger);
    drop(smaller);
}

static void the_published_example_is_reproduced(struct flw_bed *bed)
{
    static const int64_t ids[] = {2, 3, 4, 1, 2, 4, 1, 3, 4, 1, 2, 3};
    static const int32_t sorted[] = {3, 6, 9, 12, 0, 4, 10, 12, 1, 7, 11, 12, 2, 5, 8, 12};
    static const int32_t experts[] = {1, 2, 3, 4};
    struct fixture *fixture = make(12, 5, 4);
    memcpy(fixture->ids, ids, sizeof ids);
    check(bed, fixture);
    FLW_EXPECT(bed, fixture->used == 16, "padded_count");
    FLW_EXPECT(bed, memcmp(fixture->sorted, sorted, sizeof sorted) == 0, "sorted_ids");
    FLW_EXPECT(bed, memcmp(fixture->experts, experts, sizeof experts) == 0, "expert_ids");
    drop(fixture);
}

/* Tokens, experts, top_k, block size, slots, blocks: the models' table. */
static const int64_t model_shapes[][6] = {
    {1, 128, 8, 16, 128, 8},        {1, 128, 8, 64, 512, 8},       {64, 128, 8, 16, 2432, 152},
    {64, 128, 8, 128, 16768, 131},  {512, 128, 8, 64, 12160, 190}, {8192, 128, 8, 128, 81792, 639},
    {1, 8, 2, 16, 32, 2},           {512, 8, 2, 64, 1528, 24},     {8192, 8, 2, 128, 17400, 136},
    {1, 256, 8, 128, 1024, 8},      {64, 256, 8, 16, 4352, 272},   {512, 256, 8, 128, 36608, 286},
    {8192, 256, 8, 64, 81664, 1276}};

static void every_models_shape_is_exact(struct flw_bed *bed)
{
    for (size_t m = 0; m < sizeof model_shapes / sizeof *model_shapes; m++) {
        const int64_t *shape = model_shapes[m];
        struct fixture *fixture = make(shape[0] * shape[2], (int32_t)shape[1], (int32_t)shape[3]);
        draw(bed, fixture, (int)shape[2], m % 3 == 0 ? 10 : 0);
        fixture->params.ids_dtype = m % 2 == 0 ? FALLOW_I32 : FALLOW_I64;
        check(bed, fixture);
        FLW_EXPECT(bed, fixture->capacity == shape[4] && fixture->blocks == shape[5],
                   "shape %zu: %lld slots, %lld blocks", m, (long long)fixture->capacity,
                   (long long)fixture->blocks);
        drop(fixture);
    }
}

static void odd_shapes_and_skew_are_exact(struct flw_bed *bed)
{
    static const int64_t shapes[][3] = {
        /* count, experts, block size */
        {0, 8, 16},      {1, 1, 1},       {5, 1, 4},      {33, 60, 7},     {1000, 1, 3},
        {100, 1023, 16}, {100, 1024, 16}, {700, 1025, 3}, {3000, 2048, 5}, {4097, 2, 1000}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int skew = 0; skew < 3; skew++) {
            struct fixture *fixture =
                make(shapes[s][0], (int32_t)shapes[s][1], (int32_t)shapes[s][2]);
            draw(bed, fixture, 1, skew == 1 ? 60 : 0);
            for (int64_t i = 0; skew == 2 && i < fixture->params.count; i++) {
                fixture->ids[i] = fixture->params.experts - 1;
            }
            fixture->params.pad = (fallow_align_pad)skew;
            check(bed, fixture);
            drop(fixture);
        }
    }
}

static int32_t flags_after(struct flw_bed *bed, struct fixture *fixture)
{
    fixture->params.flags = flw_bed_flags(bed);
    check(bed, fixture);
    return flw_bed_read_flags(bed, fixture->params.flags);
}

static void ids_without_an_expert_are_left_out(struct flw_bed *bed)
{
    struct fixture *fixture = make(300, 16, 8);
    draw(bed, fixture, 4, 30);
    FLW_EXPECT(bed, flags_after(bed, fixture) == 0, "-1 was flagged");
    fixture->ids[7] = 16;
    FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_INDEX, "16 was not flagged");
    fixture->ids[7] = -2;
    fixture->params.ids_dtype = FALLOW_I64;
    FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_INDEX, "-2 was not flagged");
    fixture->ids[7] = ((int64_t)1 << 32) + 3; /* the low half is a legal id */
    FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_INDEX, "2^32 + 3 was not flagged");
    for (int i = 0; i < 300; i++) {
        fixture->ids[i] = -1;
    }
    FLW_EXPECT(bed, flags_after(bed, fixture) == 0 && fixture->used == 0, "no id, but blocks");
    drop(fixture);
}

/* 64 experts of which every third lives here, numbered in reverse. */
static void both_maps_are_exact(struct flw_bed *bed)
{
    for (int mode = FALLOW_ALIGN_MAP_AFTER; mode <= FALLOW_ALIGN_MAP_BEFORE; mode++) {
        for (int pad = 0; pad < 3; pad++) {
            bool is_before = mode == FALLOW_ALIGN_MAP_BEFORE;
            struct fixture *fixture = make(512, is_before ? 22 : 64, 16);
            fixture->params.map_mode = (fallow_align_map)mode;
            fixture->params.map_count = is_before ? 64 : 0;
            fixture->params.pad = (fallow_align_pad)pad;
            for (int e = 0; e < 64; e++) {
                fixture->map[e] = e % 3 == 0 ? 21 - e / 3 : -1;
            }
            for (int i = 0; i < 512; i++) {
                fixture->ids[i] = flw_bed_random_below(bed, 65) - 1;
            }
            FLW_EXPECT(bed, flags_after(bed, fixture) == 0, "flags without a cause");
            if (is_before) {
                fixture->ids[9] = 5;
                fixture->map[5] = 22;
                FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_INDEX, "no INDEX");
            }
            drop(fixture);
        }
    }
}

static void invalid_ids_may_come_first_as_an_expert_of_their_own(struct flw_bed *bed)
{
    for (int percent = 0; percent <= 100; percent += 50) {
        struct fixture *fixture = make(257, 32, 16);
        fixture->params.sorts_invalid = 1;
        fixture->params.pad = FALLOW_ALIGN_PAD_LEAVE;
        fixture->params.capacity = 257 + 33 * 15; /* as published */
        draw(bed, fixture, 1, percent);
        FLW_EXPECT(bed, flags_after(bed, fixture) == 0, "-1 was flagged");
        FLW_EXPECT(bed, percent != 100 || fixture->experts[0] == -1, "-1 does not come first");
        drop(fixture);
    }
}

static void batches_are_laid_out_by_their_counts(struct flw_bed *bed)
{
    static const int32_t counts[] = {2, 3, 0, 6, 8};
    static const int32_t sorted[] = {0,  1,  40, 40, 8,  9,  10, 40, 24, 25, 26, 27,
                                     28, 29, 40, 40, 32, 33, 34, 35, 36, 37, 38, 39};
    struct fixture *fixture = make(8, 5, 4);
    fixture->params.batched = 1;
    fixture->params.pad = FALLOW_ALIGN_PAD_MINUS_ONE;
    memcpy(fixture->batch_counts, counts, sizeof counts);
    FLW_EXPECT(bed, flags_after(bed, fixture) == 0, "flags without a cause");
    FLW_EXPECT(bed, fixture->used == 24 && memcmp(fixture->sorted, sorted, sizeof sorted) == 0,
               "the example is another");
    fixture->batch_counts[1] = 9;
    FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_CLAMPED, "9 of 8 was not flagged");
    fixture->batch_counts[1] = -1;
    FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_NEGATIVE, "-1 was not flagged");
    memset(fixture->batch_counts, 0, sizeof counts);
    FLW_EXPECT(bed, flags_after(bed, fixture) == 0 && fixture->used == 0, "blocks of nothing");
    drop(fixture);
}

static void a_captured_call_sorts_what_the_ids_hold_by_then(struct flw_bed *bed)
{
    struct fixture *fixture = make(640, 40, 16);
    draw(bed, fixture, 8, 0);
    upload(bed, fixture);
    struct flw_bed_step step = step_of(bed, fixture);
    int32_t padded_count = 0;
    void *out[] = {flw_bed_host(step.declared_bytes[0]), flw_bed_host(step.declared_bytes[1]),
                   &padded_count};
    void *outputs[3];
    for (int i = 0; i < 3; i++) {
        outputs[i] = flw_bed_buffer(bed, step.names[i], step.buffer_bytes[i]);
    }
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, fixture, outputs);
    for (int tokens = 80; tokens >= 0; tokens -= 20) { /* the rest is padding of the router's */
        int32_t ids[640];
        for (int i = 0; i < 640; i++) {
            fixture->ids[i] = i < tokens * 8 ? fixture->ids[i] : -1;
            ids[i] = (int32_t)fixture->ids[i];
        }
        flw_bed_write(bed, fixture->params.ids, ids, sizeof ids);
        flw_bed_replay(bed, graph);
        expect(fixture);
        for (int i = 0; i < 3; i++) {
            flw_bed_read(bed, out[i], outputs[i], step.declared_bytes[i]);
        }
        compare(bed, fixture, out, step.declared_bytes);
    }
    free(out[0]);
    free(out[1]);
    drop(fixture);
}

static void sizes_near_two_to_the_31_do_not_wrap(struct flw_bed *bed)
{
    fallow_align_blocks_params params;
    fallow_workspace_need need;
    fallow_align_blocks_params_init(&params);
    fallow_workspace_need_init(&need);
    params.count = INT32_MAX - 256 * 63;
    params.experts = 256;
    params.block_size = 64;
    FLW_EXPECT(bed, fallow_moe_align_blocks_query(&params, &need) == FALLOW_OK, "refused");
    FLW_EXPECT(bed, need.outputs[0].bytes == (size_t)INT32_MAX * 4, "sorted_ids");
    FLW_EXPECT(bed, need.outputs[1].bytes == ((size_t)1 << 31) / 64 * 4, "expert_ids");
    params.count++;
    FLW_EXPECT(bed, fallow_moe_align_blocks_query(&params, &need) == FALLOW_INVALID_ARGUMENT,
               "not refused");
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_align_blocks_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 1 << 16);
    fallow_align_blocks_params_init(&good);
    good.count = 64;
    good.experts = 8;
    good.block_size = 16;
    good.ids = memory;
    good.sorted_ids = (int32_t *)(void *)(memory + 4096);
    good.expert_ids = (int32_t *)(void *)(memory + 8192);
    good.padded_count = (int32_t *)(void *)(memory + 12288);
#define REFUSED(change, word)                                               \
    bad = good;                                                             \
    change;                                                                 \
    FLW_EXPECT_REFUSED(bed, fallow_moe_align_blocks(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.count = -1, "count");
    REFUSED(bad.count = (int64_t)1 << 31, "count");
    REFUSED(bad.experts = 0, "experts");
    REFUSED(bad.experts = 2049, "experts");
    REFUSED(bad.block_size = 0, "block_size");
    REFUSED(bad.capacity = 64 + 8 * 15 - 1, "capacity");
    REFUSED(bad.capacity = (int64_t)1 << 31, "capacity");
    REFUSED(bad.ids_dtype = FALLOW_F32, "ids_dtype");
    REFUSED(bad.map_mode = (fallow_align_map)3, "map_mode");
    REFUSED(bad.pad = (fallow_align_pad)3, "pad");
    REFUSED(bad.map_count = 9, "map_count");
    REFUSED((bad.batched = 1, bad.sorts_invalid = 1), "sorts_invalid");
    REFUSED((bad.batched = 1, bad.map_mode = FALLOW_ALIGN_MAP_AFTER), "map_mode");
    REFUSED(bad.map_mode = FALLOW_ALIGN_MAP_AFTER, "expert_map is NULL");
    REFUSED(bad.batched = 1, "batch_counts is NULL");
    REFUSED(bad.ids = NULL, "ids is NULL");
    REFUSED(bad.sorted_ids = NULL, "sorted_ids is NULL");
    REFUSED(bad.expert_ids = NULL, "expert_ids is NULL");
    REFUSED(bad.padded_count = NULL, "padded_count is NULL");
    REFUSED(bad.ids = memory + 2, "ids is not aligned");
    REFUSED(bad.sorted_ids = (int32_t *)(void *)memory, "ids and sorted_ids overlap");
    REFUSED(bad.expert_ids = bad.sorted_ids + 8, "sorted_ids and expert_ids overlap");
    REFUSED(bad.padded_count = bad.sorted_ids, "sorted_ids and padded_count overlap");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(the_published_example_is_reproduced),
        FLW_BED_TEST(every_models_shape_is_exact),
        FLW_BED_TEST(odd_shapes_and_skew_are_exact),
        FLW_BED_TEST(ids_without_an_expert_are_left_out),
        FLW_BED_TEST(both_maps_are_exact),
        FLW_BED_TEST(invalid_ids_may_come_first_as_an_expert_of_their_own),
        FLW_BED_TEST(batches_are_laid_out_by_their_counts),
        FLW_BED_TEST(a_captured_call_sorts_what_the_ids_hold_by_then),
        FLW_BED_TEST(sizes_near_two_to_the_31_do_not_wrap),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
