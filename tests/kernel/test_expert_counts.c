/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/moe.h"
#include "kernel/bed.h"

enum {
    COUNTS,
    OFFSETS,
    ENDS,
    POSITIONS,
    M_INDICES,
    MASKED_M,
    SIZES_1,
    SIZES_2,
    OUTPUTS
};

struct fixture {
    fallow_expert_counts_params params;
    int64_t *ids;
    int64_t rows; /* rows of m_indices, as queried */
    int32_t *want[OUTPUTS];
};

static struct fixture *make(struct flw_bed *bed, int64_t count, int32_t experts, int32_t align,
                            int dropped_percent)
{
    struct fixture *fixture = flw_bed_host(sizeof *fixture);
    fallow_expert_counts_params_init(&fixture->params);
    fixture->params.count = count;
    fixture->params.experts = experts;
    fixture->params.align = align;
    fixture->params.width = 7168;
    fixture->params.intermediate = 2048;
    fixture->ids = flw_bed_host((size_t)count * 8);
    for (int64_t i = 0; i < count; i++) {
        bool is_dropped = flw_bed_random_below(bed, 100) < dropped_percent;
        fixture->ids[i] = is_dropped ? -1 : flw_bed_random_below(bed, experts);
    }
    return fixture;
}

static void drop(struct fixture *fixture)
{
    for (int o = 0; o < OUTPUTS; o++) {
        free(fixture->want[o]);
    }
    free(fixture->ids);
    free(fixture);
}

/* ---- the oracle: expert by expert, each looking through all ids */

static void expect_expert(struct fixture *fixture, int32_t e, int64_t begin)
{
    const fallow_expert_counts_params *params = &fixture->params;
    int64_t masked_rows = params->masked_rows == 0 ? params->count : params->masked_rows;
    int32_t count = 0;
    for (int64_t i = 0; i < params->count; i++) {
        if (fixture->ids[i] == e) {
            bool fits =
                params->masked_positions ? count < masked_rows : begin + count < fixture->rows;
            int64_t first = params->masked_positions ? e * masked_rows : begin;
            fixture->want[POSITIONS][i] = fits ? (int32_t)(first + count) : -1;
            count++;
        }
    }
    int64_t end = begin + count;
    while (end % params->align != 0) {
        end++;
    }
    for (int64_t row = begin; row < end && row < fixture->rows; row++) {
        fixture->want[M_INDICES][row] = e;
    }
    fixture->want[COUNTS][e] = count;
    fixture->want[OFFSETS][e + 1] = (int32_t)end;
    fixture->want[ENDS][e] = (int32_t)begin + count;
    fixture->want[MASKED_M][e] = count < masked_rows ? count : (int32_t)masked_rows;
    memcpy(fixture->want[SIZES_1] + (ptrdiff_t)e * 3, (int32_t[]){count, 4096, 7168}, 12);
    memcpy(fixture->want[SIZES_2] + (ptrdiff_t)e * 3, (int32_t[]){count, 7168, 2048}, 12);
}

static void expect(struct fixture *fixture, const size_t *bytes)
{
    for (int o = 0; o < OUTPUTS; o++) {
        free(fixture->want[o]);
        fixture->want[o] = flw_bed_host(bytes[o]);
    }
    fixture->rows = (int64_t)bytes[M_INDICES] / 4;
    memset(fixture->want[POSITIONS], 0xff, bytes[POSITIONS]);
    memset(fixture->want[M_INDICES], 0xff, bytes[M_INDICES]);
    for (int32_t e = 0; e < fixture->params.experts; e++) {
        expect_expert(fixture, e, fixture->want[OFFSETS][e]);
    }
}

/* ---- one case */

static void upload(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_expert_counts_params *params = &fixture->params;
    params->ids =
        flw_bed_upload_ints(bed, "ids", fixture->ids, (size_t)params->count, params->ids_dtype);
}

static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    fallow_expert_counts_params params = ((struct fixture *)inputs)->params;
    params.counts = outputs[COUNTS];
    params.offsets = outputs[OFFSETS];
    params.ends = outputs[ENDS];
    params.positions = outputs[POSITIONS];
    params.m_indices = outputs[M_INDICES];
    params.masked_m = outputs[MASKED_M];
    params.problem_sizes_1 = outputs[SIZES_1];
    params.problem_sizes_2 = outputs[SIZES_2];
    FLW_EXPECT_OK(bed,
                  fallow_moe_expert_counts(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_moe_expert_counts_query(&fixture->params, &need), &need);
    expect(fixture, step.declared_bytes);
    return step;
}

static void compare(struct flw_bed *bed, const struct fixture *fixture,
                    const struct flw_bed_step *step, void *const out[])
{
    for (int o = 0; o < OUTPUTS; o++) {
        for (size_t i = 0; i < step->declared_bytes[o] / 4; i++) {
            FLW_EXPECT(bed, ((int32_t *)out[o])[i] == fixture->want[o][i],
                       "count %lld, %d experts: %s[%zu] is %d, expected %d",
                       (long long)fixture->params.count, fixture->params.experts, step->names[o], i,
                       ((int32_t *)out[o])[i], fixture->want[o][i]);
        }
    }
}

static void check(struct flw_bed *bed, struct fixture *fixture)
{
    const fallow_expert_counts_params *params = &fixture->params;
    struct fixture *larger =
        make(bed, params->count + params->count / 3 + 7, params->experts, params->align, 5);
    struct fixture *smaller = make(bed, params->count / 2, params->experts, params->align, 5);
    upload(bed, fixture);
    upload(bed, larger);
    upload(bed, smaller);
    struct flw_bed_step step = step_of(bed, fixture), before = step_of(bed, larger),
                        after = step_of(bed, smaller);
    void *out[OUTPUTS];
    for (int o = 0; o < OUTPUTS; o++) {
        out[o] = flw_bed_host(step.declared_bytes[o]);
    }
    flw_bed_prove(bed, &step, &before, &after, out);
    compare(bed, fixture, &step, out);
    for (int o = 0; o < OUTPUTS; o++) {
        free(out[o]);
    }
    drop(larger);
    drop(smaller);
}

static void all_outputs_are_exact_for_every_shape(struct flw_bed *bed)
{
    static const int64_t shapes[][3] = {/* count, experts, align */
                                        {0, 1, 128},      {0, 256, 128},    {8, 256, 128},
                                        {1, 1, 1},        {16, 8, 4},       {512, 60, 7},
                                        {4096, 128, 128}, {4097, 8, 1},     {3000, 1025, 3},
                                        {500, 2048, 2},   {65536, 256, 128}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct fixture *fixture =
            make(bed, shapes[s][0], (int32_t)shapes[s][1], (int32_t)shapes[s][2], s % 3 * 10);
        fixture->params.ids_dtype = s % 2 == 0 ? FALLOW_I32 : FALLOW_I64;
        check(bed, fixture);
        drop(fixture);
    }
}

static void a_hand_counted_case_is_reproduced(struct flw_bed *bed)
{
    static const int64_t ids[] = {2, 0, -1, 2, 2, 0};
    static const int32_t counts[] = {2, 0, 3}, offsets[] = {0, 4, 4, 8}, ends[] = {2, 4, 7},
                         positions[] = {4, 0, -1, 5, 6, 1},
                         m_indices[] = {0, 0, 0, 0, 2, 2, 2, 2, -1, -1};
    struct fixture *fixture = make(bed, 6, 3, 4, 0);
    memcpy(fixture->ids, ids, sizeof ids);
    fixture->params.rows = 10;
    check(bed, fixture);
    FLW_EXPECT(bed, memcmp(fixture->want[COUNTS], counts, sizeof counts) == 0, "counts");
    FLW_EXPECT(bed, memcmp(fixture->want[OFFSETS], offsets, sizeof offsets) == 0, "offsets");
    FLW_EXPECT(bed, memcmp(fixture->want[ENDS], ends, sizeof ends) == 0, "ends");
    FLW_EXPECT(bed, memcmp(fixture->want[POSITIONS], positions, sizeof positions) == 0,
               "positions");
    FLW_EXPECT(bed, memcmp(fixture->want[M_INDICES], m_indices, sizeof m_indices) == 0,
               "m_indices");
    drop(fixture);
}

static int32_t flags_after(struct flw_bed *bed, struct fixture *fixture)
{
    fixture->params.flags = flw_bed_flags(bed);
    check(bed, fixture);
    return flw_bed_read_flags(bed, fixture->params.flags);
}

static void what_does_not_fit_is_flagged_and_dropped(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 100, 4, 16, 10);
    FLW_EXPECT(bed, flags_after(bed, fixture) == 0, "flags without a cause");
    fixture->params.masked_rows = 5;
    FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_CLAMPED, "masked_m of 5");
    fixture->params.masked_positions = 1;
    FLW_EXPECT(bed, flags_after(bed, fixture) == (FALLOW_FLAG_CLAMPED | FALLOW_FLAG_DROPPED),
               "positions beyond 5 rows");
    fixture->params.masked_rows = 100;
    FLW_EXPECT(bed, flags_after(bed, fixture) == 0, "100 rows are enough");
    fixture->params.masked_positions = 0;
    fixture->params.rows = 33;
    FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_DROPPED, "33 rows");
    fixture->params.rows = 0;
    fixture->ids[99] = 4;
    FLW_EXPECT(bed, flags_after(bed, fixture) == FALLOW_FLAG_INDEX, "id 4 of 4");
    drop(fixture);
}

static void one_expert_may_have_everything_or_nothing(struct flw_bed *bed)
{
    for (int id = -1; id < 8; id += 4) {
        struct fixture *fixture = make(bed, 5000, 8, 128, 0);
        for (int i = 0; i < 5000; i++) {
            fixture->ids[i] = id;
        }
        check(bed, fixture);
        FLW_EXPECT(bed, id < 0 || fixture->want[COUNTS][id] == 5000, "the oracle is wrong");
        drop(fixture);
    }
}

static void each_output_may_be_had_alone(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 9000, 64, 128, 5);
    upload(bed, fixture);
    struct flw_bed_step step = step_of(bed, fixture);
    for (int o = 0; o < OUTPUTS; o++) {
        void *outputs[OUTPUTS] = {NULL};
        int32_t *got = flw_bed_host(step.declared_bytes[o]);
        outputs[o] = flw_bed_buffer(bed, step.names[o], step.declared_bytes[o]);
        launch(bed, fixture, outputs);
        flw_bed_read(bed, got, outputs[o], step.declared_bytes[o]);
        FLW_EXPECT(bed, memcmp(got, fixture->want[o], step.declared_bytes[o]) == 0,
                   "%s differs alone", step.names[o]);
        free(got);
    }
    drop(fixture);
}

static void a_captured_call_counts_what_the_ids_hold_by_then(struct flw_bed *bed)
{
    struct fixture *fixture = make(bed, 320, 16, 8, 0);
    upload(bed, fixture);
    struct flw_bed_step step = step_of(bed, fixture);
    void *outputs[OUTPUTS], *out[OUTPUTS];
    for (int o = 0; o < OUTPUTS; o++) {
        outputs[o] = flw_bed_buffer(bed, step.names[o], step.buffer_bytes[o]);
        out[o] = flw_bed_host(step.declared_bytes[o]);
    }
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch, fixture, outputs);
    for (int valid = 320; valid >= 0; valid -= 160) {
        int32_t ids[320];
        for (int i = 0; i < 320; i++) {
            fixture->ids[i] = i < valid ? fixture->ids[i] : -1;
            ids[i] = (int32_t)fixture->ids[i];
        }
        flw_bed_write(bed, fixture->params.ids, ids, sizeof ids);
        flw_bed_replay(bed, graph);
        expect(fixture, step.declared_bytes);
        for (int o = 0; o < OUTPUTS; o++) {
            flw_bed_read(bed, out[o], outputs[o], step.declared_bytes[o]);
        }
        compare(bed, fixture, &step, out);
    }
    for (int o = 0; o < OUTPUTS; o++) {
        free(out[o]);
    }
    drop(fixture);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_expert_counts_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 1 << 16);
    fallow_expert_counts_params_init(&good);
    good.count = 64;
    good.experts = 8;
    good.ids = memory;
    good.counts = (int32_t *)(void *)(memory + 4096);
    good.offsets = (int32_t *)(void *)(memory + 8192);
#define REFUSED(change, word)                                                \
    bad = good;                                                              \
    change;                                                                  \
    FLW_EXPECT_REFUSED(bed, fallow_moe_expert_counts(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.count = -1, "count");
    REFUSED(bad.count = (int64_t)1 << 31, "count");
    REFUSED((bad.count = INT32_MAX, bad.align = 2), "count + experts x align");
    REFUSED(bad.experts = 0, "experts");
    REFUSED(bad.experts = 2049, "experts");
    REFUSED(bad.align = -1, "align");
    REFUSED(bad.rows = -1, "rows");
    REFUSED(bad.masked_rows = -1, "masked_rows");
    REFUSED((bad.masked_positions = 1, bad.masked_rows = INT32_MAX), "masked_rows");
    REFUSED(bad.width = -1, "width");
    REFUSED(bad.ids_dtype = FALLOW_F16, "ids_dtype");
    REFUSED(bad.ids = NULL, "ids is NULL");
    REFUSED((bad.counts = NULL, bad.offsets = NULL), "outputs");
    REFUSED(bad.counts = (int32_t *)(void *)(memory + 4), "ids and counts overlap");
    REFUSED(bad.offsets = good.counts + 4, "counts and offsets overlap");
    REFUSED(bad.positions = (int32_t *)(void *)memory, "ids and positions overlap");
    REFUSED(bad.m_indices = (int32_t *)(void *)(memory + 4098), "m_indices is not aligned");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(a_hand_counted_case_is_reproduced),
        FLW_BED_TEST(all_outputs_are_exact_for_every_shape),
        FLW_BED_TEST(what_does_not_fit_is_flagged_and_dropped),
        FLW_BED_TEST(one_expert_may_have_everything_or_nothing),
        FLW_BED_TEST(each_output_may_be_had_alone),
        FLW_BED_TEST(a_captured_call_counts_what_the_ids_hold_by_then),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
