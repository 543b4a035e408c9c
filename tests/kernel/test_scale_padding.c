/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/attention.h"
#include "kernel/call.h"

#define LIVE 0x77 /* the quantiser's value */
#define MARK 0x5a /* bytes that no kernel writes */

FLW_MODULE(scale_padding, fallow_attention_scale_padding, fallow_scale_padding, FLW_OUT(scales),
           FLW_IN_MAYBE(row_counts), FLW_COUNT(groups, 0, 65535), FLW_COUNT(rows, 0, 1 << 30),
           FLW_COUNT(columns, 1, 1 << 20), FLW_FLAG(fills_capacity))

struct fixture {
    struct flw_call call;
    fallow_scale_padding_params params;
    int32_t *row_counts;
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

/* Return 0 for padding, LIVE for the quantiser's bytes, MARK for all others. */
static unsigned char *expect(const struct fixture *fixture)
{
    unsigned char *want = flw_bed_memory(
        fixture->call.bed, (size_t)(fixture->params.groups * group_bytes(fixture)) + 4);
    for (int64_t group = 0; group < fixture->params.groups; group++) {
        int64_t live = live_rows(fixture, group);
        for (int64_t row = 0; row < round_up(fixture->params.rows, 128); row++) {
            for (int64_t column = 0; column < round_up(fixture->params.columns, 4); column++) {
                bool is_live = row < live && column < fixture->params.columns;
                bool is_outside = row >= round_up(live, 128) && !fixture->params.fills_capacity;
                want[offset_of(fixture, group, row, column)] = is_live      ? LIVE
                                                               : is_outside ? MARK
                                                                            : 0;
            }
        }
    }
    return want;
}

/* The quantiser writes live scales and the call the padding: every declared byte has one writer. */
static void quantise(struct flw_call *call, void *const outputs[])
{
    const struct fixture *fixture = (const void *)call; /* its first member */
    unsigned char live[4] = {LIVE, LIVE, LIVE, LIVE};
    for (int64_t group = 0; group < fixture->params.groups; group++) {
        for (int64_t row = 0; row < live_rows(fixture, group); row++) {
            for (int64_t c = 0; c < fixture->params.columns; c += 4) {
                int64_t left = fixture->params.columns - c;
                flw_bed_write(call->bed, (char *)outputs[0] + offset_of(fixture, group, row, c),
                              live, (size_t)(left < 4 ? left : 4));
            }
        }
    }
}

static struct fixture *make(struct flw_bed *bed, int32_t groups, int32_t rows, int32_t columns,
                            int32_t live)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    flw_call_init(bed, &fixture->call, scale_padding(), &fixture->params);
    fixture->call.before = quantise;
    fixture->params.groups = groups;
    fixture->params.rows = rows;
    fixture->params.columns = columns;
    fixture->row_counts = flw_call_input(&fixture->call, "row_counts", (size_t)groups, 4);
    fixture->row_counts[0] = live;
    return fixture;
}

FLW_TEST(padding_is_0_and_no_other_byte_is_touched)
{
    static const int32_t shapes[][3] = {/* rows, columns, live */
                                        {0, 4, 0},   {1, 1, 1},     {1, 512, 1},
                                        {5, 7, 3},   {128, 4, 128}, {130, 6, 129},
                                        {300, 9, 0}, {200, 3, 999}, {40, 8, -1}};
    for (int k = 0; k < 18; k++) {
        const int32_t *shape = shapes[k / 2];
        struct fixture *fixture = make(bed, 1, shape[0], shape[1], shape[2]);
        fixture->params.fills_capacity = k % 2 != 0;
        int64_t tiled = round_up(k % 2 != 0 ? shape[0] : live_rows(fixture, 0), 128);
        fixture->call.limit[0] = (size_t)(tiled * round_up(shape[1], 4));
        flw_call_prove(&fixture->call);
        flw_call_expect(&fixture->call, "scales", expect(fixture));
    }
}

FLW_TEST(each_group_has_its_own_rows)
{
    for (int fills = 0; fills < 2; fills++) {
        struct fixture *fixture = make(bed, 4, 150, 6, 0);
        fixture->params.fills_capacity = fills != 0;
        memcpy(fixture->row_counts, (int32_t[]){0, 33, 128, 150}, 16);
        flw_call_run(&fixture->call);
        flw_call_expect(&fixture->call, "scales", expect(fixture));
    }
}

FLW_TEST(a_graph_takes_the_rows_from_the_device)
{
    struct fixture *fixture = make(bed, 1, 256, 5, 256);
    fixture->params.fills_capacity = 1;
    flw_call_capture(&fixture->call);
    for (; fixture->row_counts[0] >= 0; fixture->row_counts[0] -= 100) {
        flw_call_replay(&fixture->call);
        flw_call_expect(&fixture->call, "scales", expect(fixture));
    }
}

FLW_TEST(one_row_of_8192_leaves_65024_bytes)
{
    fallow_workspace_need need = flw_call_need(&make(bed, 1, 1, 8192 / 16, 1)->call);
    FLW_EXPECT(bed, need.outputs[0].bytes == 65536 && need.write_bytes == 65536 - 512,
               "%zu bytes, %llu written", need.outputs[0].bytes,
               (unsigned long long)need.write_bytes);
}

FLW_TEST(mistakes_are_refused_by_name)
{
    FLW_CALL_REFUSE(&make(bed, 1, 100, 8, 100)->call,
                    "rows=1073741824 columns=1048576: rows x columns",
                    "scales=@scales+8: scales is not aligned",
                    "row_counts=@scales+64: row_counts and scales overlap");
}
