/* SPDX-License-Identifier: Apache-2.0 */
#include "fallow/attention.h"
#include "kernel/call.h"

FLW_MODULE(restore_counters, fallow_attention_restore_counters, fallow_restore_counters,
           FLW_OUT(counters), FLW_OUT_MAYBE(restored), FLW_COUNT(consumers, 0, 65535),
           FLW_COUNT(count, 0, 1 << 24), FLW_STRIDE(stride, 16))

struct fixture {
    struct flw_call call;
    fallow_restore_counters_params params;
    int32_t *left; /* by an aborted kernel, [consumers, stride], and the expected counters */
    int32_t *restored;
};

static int64_t stride_of(const struct fixture *fixture)
{
    return fixture->params.stride != 0 ? fixture->params.stride : fixture->params.count;
}

static size_t left_bytes(const struct fixture *fixture)
{
    int64_t rows = fixture->params.consumers - 1;
    return (size_t)(rows * stride_of(fixture) + fixture->params.count) * 4;
}

/* Write the used counters; then keep the expected ones in `left`. */
static void abort_kernel(struct flw_call *call, void *const outputs[])
{
    const struct fixture *fixture = (const void *)call; /* its first member */
    flw_bed_write(call->bed, outputs[0], fixture->left, left_bytes(fixture));
}

/* One third of the counters is not 0. */
static void draw(struct fixture *fixture)
{
    for (size_t i = 0; i < left_bytes(fixture) / 4; i++) {
        bool is_used = flw_bed_random_below(fixture->call.bed, 3) == 0;
        fixture->left[i] = is_used ? (int32_t)flw_bed_random(fixture->call.bed) : 0;
    }
}

static struct fixture *make(struct flw_bed *bed, int32_t consumers, int32_t count, int64_t stride)
{
    struct fixture *fixture = flw_bed_memory(bed, sizeof *fixture);
    flw_call_init(bed, &fixture->call, restore_counters(), &fixture->params);
    fixture->call.before = abort_kernel;
    fixture->params.consumers = consumers;
    fixture->params.count = count;
    fixture->params.stride = stride;
    fixture->left = flw_bed_memory(bed, left_bytes(fixture));
    fixture->restored = flw_bed_memory(bed, (size_t)consumers * 4);
    draw(fixture);
    return fixture;
}

/* Check that all counters are 0, that `restored` counts those that were not, and that nothing else has changed. */
static void compare(struct fixture *fixture)
{
    int32_t *want = flw_bed_memory(fixture->call.bed, left_bytes(fixture));
    memset(fixture->restored, 0, (size_t)fixture->params.consumers * 4);
    for (size_t i = 0; i < left_bytes(fixture) / 4; i++) {
        int64_t consumer = (int64_t)i / stride_of(fixture), at = (int64_t)i % stride_of(fixture);
        want[i] = at < fixture->params.count ? 0 : fixture->left[i];
        fixture->restored[consumer] += at < fixture->params.count && fixture->left[i] != 0;
    }
    flw_call_expect(&fixture->call, "counters", want);
    flw_call_expect(&fixture->call, "restored", fixture->restored);
}

FLW_TEST(every_counter_becomes_0_and_is_counted)
{
    static const int32_t shapes[][2] = {{1, 0}, {1, 1}, {3, 5}, {2, 64}, {5, 1023}, {1, 5000}};
    for (int s = 0; s < 6; s++) {
        struct fixture *fixture = make(bed, shapes[s][0], shapes[s][1], 0);
        flw_call_prove(&fixture->call);
        compare(fixture);
    }
}

FLW_TEST(without_a_count_dirty_counters_are_not_read)
{
    struct fixture *fixture = make(bed, 1, 80, 0);
    int32_t *counters = flw_bed_buffer(bed, "counters", 320);
    fixture->call.before = NULL;
    (void)flw_call_need(&fixture->call);
    flw_call_launch(&fixture->call, (void *[]){counters, NULL});
    flw_bed_read(bed, fixture->left, counters, 320);
    for (int i = 0; i < 80; i++) {
        FLW_EXPECT(bed, fixture->left[i] == 0, "counter %d is %d", i, fixture->left[i]);
    }
    FLW_EXPECT(bed, flw_bed_violations(bed) == 0, "dirty counters were read");
}

/* Counters of other consumers in between are untouched. The replay after an aborted one recovers
 * them. */
FLW_TEST(a_captured_restore_recovers_each_replay)
{
    struct fixture *fixture = make(bed, 3, 5, 8);
    flw_call_capture(&fixture->call);
    for (int round = 0; round < 4; round++) {
        flw_call_replay(&fixture->call);
        compare(fixture);
        draw(fixture);
    }
}

FLW_TEST(mistakes_are_refused_by_name)
{
    FLW_CALL_REFUSE(&make(bed, 2, 16, 0)->call,
                    "restored=@counters+8: counters and restored overlap");
}
