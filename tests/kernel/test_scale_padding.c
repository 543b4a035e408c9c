/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fallow/attention.h"
#include "kernel/bed.h"

#define MOST_GROUPS 4
#define LIVE        0x5a /* the quantiser's value */

struct fixture {
    fallow_scale_padding_params params;
    int32_t row_counts[MOST_GROUPS];
};

static int64_t round_up(int64_t value, int64_t to)
{
    return (value + to - 1) / to * to;
}

static int64_t group_bytes(const struct fixture *fixture)
{
    return round_up(fixture->params.rows, 128) * round_up(fixture->params.columns, 4);
}

/* Return the offset of a scale by the layout's five indices: tile row, tile column, r % 32, r /
 * 32, c. */
static int64_t offset_of(const struct fixture *fixture, int64_t group, int64_t row, int64_t column)
{
    int64_t shape[] = {round_up(fixture->params.rows, 128) / 128,
                       round_up(fixture->params.columns, 4) / 4, 32, 4, 4};
    int64_t index[] = {row / 128, column / 4, row % 32, row / 32 % 4, column % 4};
    int64_t offset = group;
    for (int i = 0; i < 5; i++) {
        offset = offset * shape[i] + index[i];
    }
    return offset;
}

static int64_t live_rows(const struct fixture *fixture, int64_t group)
{
    int64_t live = fixture->row_counts[group];
    return live < 0 ? 0 : live > fixture->params.rows ? fixture->params.rows : live;
}

/* Return 0 for padding, LIVE for the quantiser's bytes, `outside` for all others. */
static unsigned char *expect(const struct fixture *fixture, unsigned char outside)
{
    unsigned char *want = flw_bed_host((size_t)(fixture->params.groups * group_bytes(fixture)));
    for (int64_t group = 0; group < fixture->params.groups; group++) {
        int64_t live = live_rows(fixture, group);
        for (int64_t row = 0; row < round_up(fixture->params.rows, 128); row++) {
            for (int64_t column = 0; column < round_up(fixture->params.columns, 4); column++) {
                bool is_live = row < live && column < fixture->params.columns;
                bool is_outside = row >= round_up(live, 128) && !fixture->params.fills_capacity;
                want[offset_of(fixture, group, row, column)] = is_live      ? LIVE
                                                               : is_outside ? outside
                                                                            : 0;
            }
        }
    }
    return want;
}

static void make(struct fixture *fixture, int32_t rows, int32_t columns, int32_t live)
{
    memset(fixture, 0, sizeof *fixture);
    fallow_scale_padding_params_init(&fixture->params);
    fixture->params.groups = 1;
    fixture->params.rows = rows;
    fixture->params.columns = columns;
    fixture->row_counts[0] = live;
}

/* The quantiser writes live scales and the call the padding: every declared byte has one writer. */
static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    struct fixture *fixture = inputs;
    fallow_scale_padding_params params = fixture->params;
    unsigned char live[4] = {LIVE, LIVE, LIVE, LIVE};
    for (int64_t group = 0; group < params.groups; group++) {
        for (int64_t row = 0; row < live_rows(fixture, group); row++) {
            for (int64_t c = 0; c < params.columns; c += 4) {
                flw_bed_write(bed, (char *)outputs[0] + offset_of(fixture, group, row, c), live,
                              (size_t)(params.columns - c < 4 ? params.columns - c : 4));
            }
        }
    }
    params.scales = outputs[0];
    FLW_EXPECT_OK(
        bed, fallow_attention_scale_padding(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_scale_padding_query(&fixture->params, &need),
                    &need);
    int64_t tiled_rows = round_up(
        fixture->params.fills_capacity ? fixture->params.rows : live_rows(fixture, 0), 128);
    fixture->params.row_counts =
        flw_bed_upload(bed, "row_counts", fixture->row_counts, (size_t)fixture->params.groups * 4);
    step.declared_bytes[0] = (size_t)(tiled_rows * round_up(fixture->params.columns, 4));
    return step;
}

static void padding_is_0_and_nothing_else_is_touched(struct flw_bed *bed)
{
    static const int32_t shapes[][3] = {/* rows, columns, live */
                                        {0, 4, 0},   {1, 1, 1},     {1, 512, 1},
                                        {5, 7, 3},   {128, 4, 128}, {130, 6, 129},
                                        {300, 9, 0}, {200, 3, 999}, {40, 8, -1}};
    for (int s = 0; s < 9; s++) {
        for (int fills = 0; fills < 2; fills++) {
            struct fixture fixture, larger, smaller;
            make(&fixture, shapes[s][0], shapes[s][1], shapes[s][2]);
            make(&larger, shapes[s][0] + 140, shapes[s][1] + 3, 131);
            make(&smaller, 2, 1, 1);
            fixture.params.fills_capacity = fills != 0;
            struct flw_bed_step step = step_of(bed, &fixture), before = step_of(bed, &larger),
                                after = step_of(bed, &smaller);
            unsigned char *got = flw_bed_host(step.declared_bytes[0]);
            unsigned char *want = expect(&fixture, 0);
            flw_bed_prove(bed, &step, &before, &after, (void *[]){got});
            FLW_EXPECT(bed, memcmp(got, want, step.declared_bytes[0]) == 0, "shape %d", s);
            free(got);
            free(want);
        }
    }
}

static void each_group_has_its_own_rows(struct flw_bed *bed)
{
    for (int fills = 0; fills < 2; fills++) {
        struct fixture fixture;
        make(&fixture, 150, 6, 0);
        fixture.params.groups = 4;
        fixture.params.fills_capacity = fills != 0;
        memcpy(fixture.row_counts, (int32_t[]){0, 33, 128, 150}, 16);
        fixture.params.row_counts =
            flw_bed_upload(bed, "row_counts", fixture.row_counts, sizeof fixture.row_counts);
        size_t bytes = (size_t)(4 * group_bytes(&fixture));
        unsigned char *got = flw_bed_host(bytes), *want = expect(&fixture, 0x77);
        memset(got, 0x77, bytes);
        void *scales = flw_bed_upload(bed, "scales", got, bytes);
        launch(bed, &fixture, (void *[]){scales});
        flw_bed_read(bed, got, scales, bytes);
        for (size_t i = 0; i < bytes; i++) {
            FLW_EXPECT(bed, got[i] == want[i], "byte %zu is 0x%02x, expected 0x%02x", i, got[i],
                       want[i]);
        }
        free(got);
        free(want);
    }
}

static void launch_alone(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    (void)outputs;
    FLW_EXPECT_OK(
        bed, fallow_attention_scale_padding(flw_bed_kernels(bed), inputs, flw_bed_stream(bed)));
}

static void a_graph_takes_the_rows_from_the_device(struct flw_bed *bed)
{
    struct fixture fixture;
    make(&fixture, 256, 5, 256);
    fixture.params.fills_capacity = 1;
    fixture.params.row_counts = flw_bed_upload(bed, "row_counts", fixture.row_counts, 4);
    size_t bytes = (size_t)group_bytes(&fixture);
    unsigned char *got = flw_bed_host(bytes);
    fixture.params.scales = flw_bed_buffer(bed, "scales", bytes);
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch_alone, &fixture.params, NULL);
    for (int32_t live = 256; live >= 0; live -= 100) {
        fixture.row_counts[0] = live;
        unsigned char *want = expect(&fixture, 0);
        flw_bed_write(bed, fixture.params.row_counts, &live, 4);
        memset(got, LIVE, bytes);
        flw_bed_write(bed, fixture.params.scales, got, bytes);
        flw_bed_replay(bed, graph);
        flw_bed_read(bed, got, fixture.params.scales, bytes);
        FLW_EXPECT(bed, memcmp(got, want, bytes) == 0, "%d rows", live);
        free(want);
    }
    free(got);
}

static void one_row_of_8192_leaves_65024_bytes(struct flw_bed *bed)
{
    struct fixture fixture;
    fallow_workspace_need need;
    fallow_workspace_need_init(&need);
    make(&fixture, 1, 8192 / 16, 1);
    FLW_EXPECT_OK(bed, fallow_attention_scale_padding_query(&fixture.params, &need));
    FLW_EXPECT(bed, need.outputs[0].bytes == 65536 && need.write_bytes == 65536 - 512,
               "%zu bytes, %llu written", need.outputs[0].bytes,
               (unsigned long long)need.write_bytes);
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_scale_padding_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 8192);
    fallow_scale_padding_params_init(&good);
    good.scales = memory;
    good.rows = 100;
    good.columns = 8;
#define REFUSED(change, word)                                                      \
    bad = good;                                                                    \
    change;                                                                        \
    FLW_EXPECT_REFUSED(bed, fallow_attention_scale_padding(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.rows = -1, "rows");
    REFUSED(bad.columns = 0, "columns");
    REFUSED(bad.groups = -1, "groups");
    REFUSED(bad.groups = 65536, "groups");
    REFUSED((bad.rows = 1 << 30, bad.columns = 1 << 20), "rows x columns");
    REFUSED(bad.fills_capacity = 2, "fills_capacity");
    REFUSED(bad.scales = NULL, "scales is NULL");
    REFUSED(bad.scales = memory + 8, "scales is not aligned");
    REFUSED(bad.row_counts = (int32_t *)(void *)(memory + 64), "row_counts and scales overlap");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(padding_is_0_and_nothing_else_is_touched),
        FLW_BED_TEST(each_group_has_its_own_rows),
        FLW_BED_TEST(a_graph_takes_the_rows_from_the_device),
        FLW_BED_TEST(one_row_of_8192_leaves_65024_bytes),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
