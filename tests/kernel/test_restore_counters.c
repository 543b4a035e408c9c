/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "fallow/attention.h"
#include "kernel/bed.h"

struct fixture {
    fallow_restore_counters_params params;
    int32_t *left; /* by an aborted kernel, [consumers, count] */
};

static void make(struct flw_bed *bed, struct fixture *fixture, int32_t consumers, int32_t count)
{
    fallow_restore_counters_params_init(&fixture->params);
    fixture->params.consumers = consumers;
    fixture->params.count = count;
    fixture->left = flw_bed_host((size_t)consumers * (size_t)count * 4);
    for (int64_t i = 0; i < (int64_t)consumers * count; i++) {
        fixture->left[i] = flw_bed_random_below(bed, 3) == 0 ? (int32_t)flw_bed_random(bed) : 0;
    }
}

/* Write the used counters, then restore them. */
static void launch(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    struct fixture *fixture = inputs;
    fallow_restore_counters_params params = fixture->params;
    flw_bed_write(bed, outputs[0], fixture->left,
                  (size_t)params.consumers * (size_t)params.count * 4);
    params.counters = outputs[0];
    params.restored = outputs[1];
    FLW_EXPECT_OK(
        bed, fallow_attention_restore_counters(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
}

static struct flw_bed_step step_of(struct flw_bed *bed, struct fixture *fixture)
{
    fallow_workspace_need need = {.struct_size = sizeof need};
    struct flw_bed_step step = {.inputs = fixture, .launch = launch};
    flw_bed_declare(bed, &step, fallow_attention_restore_counters_query(&fixture->params, &need),
                    &need);
    return step;
}

static void every_counter_becomes_0_and_is_counted(struct flw_bed *bed)
{
    static const int32_t shapes[][2] = {{1, 0}, {1, 1}, {3, 5}, {2, 64}, {5, 1023}, {1, 5000}};
    for (int s = 0; s < 6; s++) {
        struct fixture fixture, larger, smaller;
        int32_t consumers = shapes[s][0], count = shapes[s][1], restored[5];
        int32_t *counters = flw_bed_host((size_t)consumers * (size_t)count * 4);
        make(bed, &fixture, consumers, count);
        make(bed, &larger, consumers + 2, count + 9);
        make(bed, &smaller, 1, count / 2);
        struct flw_bed_step step = step_of(bed, &fixture), before = step_of(bed, &larger),
                            after = step_of(bed, &smaller);
        flw_bed_prove(bed, &step, &before, &after, (void *[]){counters, restored});
        for (int32_t c = 0; c < consumers; c++) {
            int32_t want = 0;
            for (int32_t i = 0; i < count; i++) {
                want += fixture.left[c * count + i] != 0 ? 1 : 0;
                FLW_EXPECT(bed, counters[c * count + i] == 0, "counter %d of %d", i, c);
            }
            FLW_EXPECT(bed, restored[c] == want, "consumer %d: %d, expected %d", c, restored[c],
                       want);
        }
        free(counters);
        free(fixture.left);
        free(larger.left);
        free(smaller.left);
    }
}

static void without_a_count_dirty_counters_are_not_read(struct flw_bed *bed)
{
    int32_t counters[2 * 40];
    fallow_restore_counters_params params;
    fallow_restore_counters_params_init(&params);
    params.counters = flw_bed_buffer(bed, "counters", sizeof counters);
    params.count = 80;
    FLW_EXPECT_OK(
        bed, fallow_attention_restore_counters(flw_bed_kernels(bed), &params, flw_bed_stream(bed)));
    flw_bed_read(bed, counters, params.counters, sizeof counters);
    for (int i = 0; i < 80; i++) {
        FLW_EXPECT(bed, counters[i] == 0, "counter %d is %d", i, counters[i]);
    }
    FLW_EXPECT(bed, flw_bed_violations(bed) == 0, "dirty counters were read");
}

static void launch_alone(struct flw_bed *bed, void *inputs, void *const outputs[])
{
    (void)outputs;
    FLW_EXPECT_OK(
        bed, fallow_attention_restore_counters(flw_bed_kernels(bed), inputs, flw_bed_stream(bed)));
}

/* Counters of other consumers in between are untouched. The replay after an aborted one recovers
 * them. */
static void a_captured_restore_recovers_each_replay(struct flw_bed *bed)
{
    int32_t left[3 * 8], counters[3 * 8], restored[3];
    fallow_restore_counters_params params;
    fallow_restore_counters_params_init(&params);
    params.counters = flw_bed_buffer(bed, "counters", sizeof counters);
    params.restored = flw_bed_buffer(bed, "restored", sizeof restored);
    params.consumers = 3;
    params.count = 5;
    params.stride = 8;
    struct flw_bed_graph *graph = flw_bed_capture(bed, launch_alone, &params, NULL);
    for (int32_t round = 0; round < 3; round++) {
        for (int i = 0; i < 24; i++) {
            left[i] = round == 0 ? 0 : i % (round + 1) + 1;
        }
        flw_bed_write(bed, params.counters, left, sizeof left);
        flw_bed_replay(bed, graph);
        flw_bed_read(bed, counters, params.counters, sizeof counters);
        flw_bed_read(bed, restored, params.restored, sizeof restored);
        for (int i = 0; i < 24; i++) {
            FLW_EXPECT(bed, counters[i] == (i % 8 < 5 ? 0 : left[i]), "word %d is %d", i,
                       counters[i]);
        }
        for (int c = 0; c < 3; c++) {
            FLW_EXPECT(bed, restored[c] == (round == 0 ? 0 : 5), "consumer %d: %d", c, restored[c]);
        }
    }
}

static void mistakes_are_refused_by_name(struct flw_bed *bed)
{
    fallow_restore_counters_params good, bad;
    fallow_kernels *kernels = flw_bed_kernels(bed);
    fallow_stream stream = flw_bed_stream(bed);
    char *memory = flw_bed_buffer(bed, "memory", 4096);
    fallow_restore_counters_params_init(&good);
    good.counters = (int32_t *)(void *)memory;
    good.count = 16;
#define REFUSED(change, word)                                                         \
    bad = good;                                                                       \
    change;                                                                           \
    FLW_EXPECT_REFUSED(bed, fallow_attention_restore_counters(kernels, &bad, stream), \
                       FALLOW_INVALID_ARGUMENT, word)
    REFUSED(bad.count = -1, "count");
    REFUSED(bad.consumers = -1, "consumers");
    REFUSED(bad.consumers = 65536, "consumers");
    REFUSED(bad.stride = 15, "stride");
    REFUSED(bad.counters = NULL, "counters is NULL");
    REFUSED(bad.counters = (int32_t *)(void *)(memory + 2), "counters is not aligned");
    REFUSED(bad.restored = (int32_t *)(void *)(memory + 8), "counters and restored overlap");
#undef REFUSED
}

int main(int argc, char **argv)
{
    static const struct flw_bed_test tests[] = {
        FLW_BED_TEST(every_counter_becomes_0_and_is_counted),
        FLW_BED_TEST(without_a_count_dirty_counters_are_not_read),
        FLW_BED_TEST(a_captured_restore_recovers_each_replay),
        FLW_BED_TEST(mistakes_are_refused_by_name),
    };
    return flw_bed_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
