/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/moe.h"
#include "kernel/call.h"

FLW_MODULE(expert_counts, fallow_moe_expert_counts, fallow_expert_counts, FLW_IN(ids),
           FLW_OUT_MAYBE(counts), FLW_OUT_MAYBE(offsets), FLW_OUT_MAYBE(ends),
           FLW_OUT_MAYBE(positions), FLW_OUT_MAYBE(m_indices), FLW_OUT_MAYBE(masked_m),
           FLW_OUT_MAYBE(problem_sizes_1), FLW_OUT_MAYBE(problem_sizes_2), FLW_OUT_MAYBE(flags),
           FLW_COUNT(count, 0, INT32_MAX), FLW_COUNT(experts, 1, 2048),
           FLW_COUNT(align, 0, 1 << 20), FLW_COUNT(width, 0, 1 << 20),
           FLW_COUNT(intermediate, 0, 1 << 20), FLW_COUNT(rows, 0, INT32_MAX),
           FLW_COUNT(masked_rows, 0, INT32_MAX), FLW_FLAG(masked_positions),
           FLW_DTYPE(ids_dtype, FLW_INTEGERS))

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
    struct flw_call call;
    fallow_expert_counts_params params;
    int64_t *ids;
    int32_t *want[OUTPUTS];
};

static struct fixture *make(struct flw_bed *bed, int64_t count, int32_t experts, int32_t align,
                            int dropped_percent)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    flw_call_init(bed, &fixture->call, expert_counts(), &fixture->params);
    fixture->params.count = count;
    fixture->params.experts = experts;
    fixture->params.align = align;
    fixture->params.width = 7168;
    fixture->params.intermediate = 2048;
    fixture->ids = flw_call_draw_typed(&fixture->call, "ids", (size_t)count,
                                       &fixture->params.ids_dtype, experts);
    for (int64_t i = 0; i < count; i++) {
        bool is_dropped = flw_bed_random_below(bed, 100) < dropped_percent;
        fixture->ids[i] = is_dropped ? -1 : fixture->ids[i];
    }
    return fixture;
}

/* ---- the oracle: expert by expert, each looking through all ids */

static void expect_expert(struct fixture *fixture, int32_t e, int64_t begin, int64_t rows)
{
    const fallow_expert_counts_params *params = &fixture->params;
    int64_t masked_rows = params->masked_rows == 0 ? params->count : params->masked_rows;
    int32_t count = 0;
    for (int64_t i = 0; i < params->count; i++) {
        if (fixture->ids[i] == e) {
            bool fits = params->masked_positions ? count < masked_rows : begin + count < rows;
            int64_t first = params->masked_positions ? e * masked_rows : begin;
            fixture->want[POSITIONS][i] = fits ? (int32_t)(first + count) : -1;
            count++;
        }
    }
    int64_t end = begin + count;
    while (end % params->align != 0) {
        end++;
    }
    for (int64_t row = begin; row < end && row < rows; row++) {
        fixture->want[M_INDICES][row] = e;
    }
    fixture->want[COUNTS][e] = count;
    fixture->want[OFFSETS][e + 1] = (int32_t)end;
    fixture->want[ENDS][e] = (int32_t)begin + count;
    fixture->want[MASKED_M][e] = count < masked_rows ? count : (int32_t)masked_rows;
    memcpy(fixture->want[SIZES_1] + (ptrdiff_t)e * 3, (int32_t[]){count, 4096, 7168}, 12);
    memcpy(fixture->want[SIZES_2] + (ptrdiff_t)e * 3, (int32_t[]){count, 7168, 2048}, 12);
}

static void expect(struct fixture *fixture)
{
    fallow_workspace_need need = flw_call_need(&fixture->call);
    for (int o = 0; o < OUTPUTS; o++) {
        size_t bytes = need.outputs[o].bytes;
        fixture->want[o] = flw_bed_memory(fixture->call.bed, bytes);
        memset(fixture->want[o], o == POSITIONS || o == M_INDICES ? 0xff : 0, bytes);
    }
    for (int32_t e = 0; e < fixture->params.experts; e++) {
        expect_expert(fixture, e, fixture->want[OFFSETS][e],
                      (int64_t)need.outputs[M_INDICES].bytes / 4);
    }
}

static void compare(struct fixture *fixture)
{
    for (int o = 0; o < OUTPUTS; o++) {
        flw_call_expect(&fixture->call, fixture->call.step.names[o], fixture->want[o]);
    }
}

static void check(struct flw_bed *bed, struct fixture *fixture)
{
    expect(fixture);
    flw_call_prove(&fixture->call);
    compare(fixture);
}

FLW_TEST(all_outputs_are_exact_for_every_shape)
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
    }
}

FLW_TEST(a_hand_counted_case_is_reproduced)
{
    static const int64_t ids[] = {2, 0, -1, 2, 2, 0};
    static const int32_t want[][10] = {
        {2, 0, 3}, {0, 4, 4, 8}, {2, 4, 7}, {4, 0, -1, 5, 6, 1}, {0, 0, 0, 0, 2, 2, 2, 2, -1, -1}};
    struct fixture *fixture = make(bed, 6, 3, 4, 0);
    memcpy(fixture->ids, ids, sizeof ids);
    fixture->params.rows = 10;
    check(bed, fixture);
    for (int o = COUNTS; o <= M_INDICES; o++) {
        flw_call_expect(&fixture->call, fixture->call.step.names[o], want[o]);
    }
}

FLW_TEST(choices_that_do_not_fit_are_flagged_and_dropped)
{
    static const int32_t cases[][4] = {/* masked_rows, masked_positions, rows, flags */
                                       {0, 0, 0, 0},
                                       {5, 0, 0, FALLOW_FLAG_CLAMPED},
                                       {5, 1, 0, FALLOW_FLAG_CLAMPED | FALLOW_FLAG_DROPPED},
                                       {100, 1, 0, 0},
                                       {100, 0, 33, FALLOW_FLAG_DROPPED}};
    struct fixture *fixture = make(bed, 100, 4, 16, 10);
    for (int c = 0; c < 5; c++) {
        fixture->params.masked_rows = cases[c][0];
        fixture->params.masked_positions = (uint8_t)cases[c][1];
        fixture->params.rows = cases[c][2];
        fixture->call.want_flags = cases[c][3];
        check(bed, fixture);
    }
    fixture->params.rows = 0;
    fixture->ids[99] = 4;
    fixture->call.want_flags = FALLOW_FLAG_INDEX;
    check(bed, fixture);
}

FLW_TEST(one_expert_may_have_everything_or_nothing)
{
    for (int id = -1; id < 8; id += 4) {
        struct fixture *fixture = make(bed, 5000, 8, 128, 0);
        for (int i = 0; i < 5000; i++) {
            fixture->ids[i] = id;
        }
        check(bed, fixture);
        FLW_EXPECT(bed, id < 0 || fixture->want[COUNTS][id] == 5000, "the oracle is wrong");
    }
}

FLW_TEST(each_output_is_optional)
{
    struct fixture *fixture = make(bed, 9000, 64, 128, 5);
    expect(fixture);
    flw_call_give(&fixture->call);
    for (int o = 0; o < OUTPUTS; o++) {
        void *outputs[OUTPUTS] = {NULL};
        size_t bytes = fixture->call.step.declared_bytes[o];
        const char *name = fixture->call.step.names[o];
        outputs[o] = flw_bed_buffer(bed, name, bytes);
        fixture->call.out[o] = flw_bed_memory(bed, bytes);
        flw_call_launch(&fixture->call, outputs);
        flw_bed_read(bed, fixture->call.out[o], outputs[o], bytes);
        flw_call_expect(&fixture->call, name, fixture->want[o]);
    }
}

FLW_TEST(a_captured_call_counts_the_ids_of_each_replay)
{
    struct fixture *fixture = make(bed, 320, 16, 8, 0);
    flw_call_capture(&fixture->call);
    for (int valid = 320; valid >= 0; valid -= 160) {
        for (int i = valid; i < 320; i++) {
            fixture->ids[i] = -1;
        }
        expect(fixture);
        flw_call_replay(&fixture->call);
        compare(fixture);
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    FLW_CALL_REFUSE(
        &make(bed, 64, 8, 128, 0)->call, "count=2147483647 align=2: count + experts x align",
        "masked_positions=1 masked_rows=2147483647: masked_rows",
        "counts=NULL offsets=NULL ends=NULL positions=NULL m_indices=NULL masked_m=NULL "
        "problem_sizes_1=NULL problem_sizes_2=NULL: outputs",
        "offsets=@counts+16: counts and offsets overlap");
}
