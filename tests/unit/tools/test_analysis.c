/* SPDX-License-Identifier: Apache-2.0
 *
 * The analysis's invariants: a small analysis that has something of everything is valid, and each breach
 * of a rule is found. The view of a heap: the blocks and holes are those of a byte by byte count,
 * however allocates, frees and looks follow each other.
 */
#include "support/test.h"

#include <string.h>

#include "base/random.h"
#include "report/analysis.h"
#include "report/heapview.h"
#include "trace/trace/trace.h"

#include "common/tool_host.h"

/* --- an analysis by hand -----------------------------------------------------------------------------
 */

struct bed {
    struct flw_analysis analysis;
    struct flw_trace trace;
    struct flw_program program;
    struct flw_run_result result;
    struct flw_analysis_policy policy;
    uint64_t first_op[3], time_ns[3], band_high[2];
    struct flw_analysis_range requested[2], block[2], reserved[2];
    struct flw_analysis_rectangle rectangles[2];
    struct flw_analysis_lane lanes[2];
    struct flw_analysis_frame frame;
    struct flw_analysis_segment segments[2];
    struct flw_analysis_block blocks[2];
    struct flw_analysis_holes holes[1];
    struct flw_analysis_mark mark;
    struct flw_analysis_owner owners[2];
    struct flw_analysis_left left[2];
};

/* Two blocks of 100 and 50 bytes over four ops, in segments of 128 and 64. */
static void make_bed(struct bed *bed)
{
    *bed = (struct bed){
        .first_op = {0, 2, 4},
        .time_ns = {0, 5, 9},
        .band_high = {100, 150},
        .requested = {{0, 100}, {100, 150}},
        .block = {{0, 112}, {112, 168}},
        .reserved = {{0, 128}, {128, 192}},
        .rectangles = {{.address = 4096, .bytes = 112, .end_op = 4, .block = 0},
                       {.address = 8192, .bytes = 56, .begin_op = 2, .end_op = 3, .block = 1}},
        .lanes = {{.begin = 4096, .end = 8192}, {.begin = 8192, .end = 8256}},
        .segments = {{.address = 4096, .bytes = 128}, {.address = 8192, .bytes = 64}},
        .blocks = {{.address = 4096, .requested_bytes = 100, .block_bytes = 112},
                   {.address = 8192, .requested_bytes = 50, .block_bytes = 56, .block = 1}},
        .holes = {{.largest_bytes = 16, .count = 2, .largest_request = 100}},
        .mark = {.name = "step", .begin_op = 1, .end_op = 4}};
    bed->holes[0].bytes[3] = 8;
    bed->holes[0].bytes[4] = 16;
    bed->trace.block_count = 2;
    bed->program.max_live_bytes = 150;
    bed->result.peak_requested_bytes = 150;
    bed->result.statistics.peak_reserved_bytes = 192;
    bed->frame = (struct flw_analysis_frame){.op = 2,
                                             .requested_bytes = 150,
                                             .block_bytes = 168,
                                             .reserved_bytes = 192,
                                             .largest_hole_bytes = 16,
                                             .hole_bytes = 24,
                                             .hole_count = 2,
                                             .segments = bed->segments,
                                             .segment_count = 2,
                                             .blocks = bed->blocks,
                                             .block_count = 2};
    bed->policy = (struct flw_analysis_policy){.result = &bed->result,
                                               .has_series = true,
                                               .requested = bed->requested,
                                               .block = bed->block,
                                               .reserved = bed->reserved,
                                               .peak_block_bytes = 168,
                                               .peak_reserved_op = 2,
                                               .peak_requested_op = 3,
                                               .hole_column_count = 1,
                                               .holes = bed->holes,
                                               .frames = &bed->frame,
                                               .frame_count = 1,
                                               .rectangles = bed->rectangles,
                                               .rectangle_count = 2,
                                               .lanes = bed->lanes,
                                               .lane_count = 2};
    bed->analysis = (struct flw_analysis){
        .trace = &bed->trace,
        .program = &bed->program,
        .op_count = 4,
        .has_times = true,
        .columns = {.count = 2, .first_op = bed->first_op, .time_ns = bed->time_ns},
        .policies = &bed->policy,
        .policy_count = 1,
        .categories = {{{.name = "stream 0", .at_peak_bytes = 150}}},
        .category_count = {1},
        .bands = {{{.name = "stream 0", .held_bytes = bed->band_high}}},
        .band_count = {1},
        .marks = &bed->mark,
        .mark_count = 1};
    bed->owners[0] = (struct flw_analysis_owner){.name = "a", .bytes = 100, .count = 1};
    bed->owners[1] = (struct flw_analysis_owner){.name = "b", .bytes = 50, .count = 2};
    bed->left[0] = (struct flw_analysis_left){.bytes = {0, 100}, .counts = {0, 1}};
    bed->left[1] = (struct flw_analysis_left){.bytes = {20, 30}, .counts = {1, 1}};
    bed->analysis.stretches[0] =
        (struct flw_analysis_stretch){.end_op = 2, .left_bytes = 20, .left_count = 1};
    bed->analysis.stretches[1] =
        (struct flw_analysis_stretch){.end_op = 4, .left_bytes = 137, .left_count = 3};
    bed->analysis.stretch_count = 2;
    bed->analysis.holdings[FLW_ANALYSIS_SURVIVORS] =
        (struct flw_analysis_holding){.bytes = 157,
                                      .count = 4,
                                      .owners = bed->owners,
                                      .left = bed->left,
                                      .owner_count = 2,
                                      .rest_bytes = 7,
                                      .rest_count = 1};
    bed->analysis.size_count[7] = 2;
    bed->analysis.life_count[0] = 1;
    bed->analysis.size_life[7][0] = 1;
    bed->analysis.temporary_count = 1;
    bed->analysis.distinct_size_count = 2;
}

TEST(a_analysis_that_agrees_with_itself_is_valid)
{
    struct bed bed;
    make_bed(&bed);
    assert_true(flw_analysis_is_valid(&bed.analysis));
    assert_int_equal(flw_analysis_column(&bed.analysis.columns, 0), 0);
    assert_int_equal(flw_analysis_column(&bed.analysis.columns, 1), 0);
    assert_int_equal(flw_analysis_column(&bed.analysis.columns, 2), 1);
    assert_int_equal(flw_analysis_column(&bed.analysis.columns, 3), 1);
    assert_int_equal(flw_analysis_hole_end(&bed.analysis, 3, 0), 1);
    assert_int_equal(flw_analysis_hole_end(&bed.analysis, 3, 2), 4);
}

#define EXPECT_BREACH(change)                       \
    do {                                            \
        struct bed bed;                             \
        make_bed(&bed);                             \
        change;                                     \
        if (flw_analysis_is_valid(&bed.analysis)) { \
            fail_msg("not found: %s", #change);     \
        }                                           \
    } while (0)

TEST(every_breach_is_found)
{
    EXPECT_BREACH(bed.first_op[0] = 1);
    EXPECT_BREACH(bed.first_op[2] = 5);
    EXPECT_BREACH(bed.first_op[1] = 0);
    EXPECT_BREACH(bed.time_ns[1] = 10);
    EXPECT_BREACH(bed.analysis.has_times = false);
    EXPECT_BREACH(bed.requested[0].low = 101);
    EXPECT_BREACH(bed.requested[1].high = 151);
    EXPECT_BREACH(bed.reserved[1].high = 191);
    EXPECT_BREACH(bed.block[0].high = 99);
    EXPECT_BREACH(bed.block[0].high = 129);
    EXPECT_BREACH(bed.policy.peak_block_bytes = 169);
    EXPECT_BREACH(bed.result.statistics.peak_reserved_bytes = 193);
    EXPECT_BREACH(bed.policy.peak_reserved_op = 1);
    EXPECT_BREACH(bed.policy.peak_requested_op = 4);
    EXPECT_BREACH(bed.policy.has_series = false);
    EXPECT_BREACH(bed.rectangles[1].block = 2);
    EXPECT_BREACH(bed.rectangles[1].block = 0);
    EXPECT_BREACH(bed.rectangles[1].begin_op = 3);
    EXPECT_BREACH(bed.rectangles[0].end_op = 5);
    EXPECT_BREACH(bed.lanes[1].begin = 8191);
    EXPECT_BREACH(bed.lanes[1].end = 8192);
    EXPECT_BREACH(bed.policy.lane_count = FLW_ANALYSIS_LANES + 1);
    EXPECT_BREACH(bed.segments[1].address = 4200);
    EXPECT_BREACH(bed.segments[1].bytes = 65);
    EXPECT_BREACH(bed.blocks[1].address = 4000);
    EXPECT_BREACH(bed.blocks[1].requested_bytes = 57);
    EXPECT_BREACH(bed.blocks[0].block = 2);
    EXPECT_BREACH(bed.frame.op = 4);
    EXPECT_BREACH(bed.frame.largest_hole_bytes = 25);
    EXPECT_BREACH(bed.frame.hole_count = 0);
    EXPECT_BREACH(bed.holes[0].largest_bytes = 17);
    EXPECT_BREACH(bed.holes[0].largest_bytes = 8);
    EXPECT_BREACH(bed.holes[0].count = 0);
    EXPECT_BREACH(bed.holes[0].bytes[4] = 193);
    EXPECT_BREACH(bed.band_high[1] = 149);
    EXPECT_BREACH(bed.band_high[0] = 151);
    EXPECT_BREACH(bed.analysis.categories[0][0].at_peak_bytes = 149);
    EXPECT_BREACH(bed.analysis.life_count[0] = 2);
    EXPECT_BREACH(bed.analysis.temporary_count = 2);
    EXPECT_BREACH(bed.mark.end_op = 0);
    EXPECT_BREACH(bed.owners[1].bytes = 49);
    EXPECT_BREACH(bed.owners[1].count = 3);
    EXPECT_BREACH(bed.owners[0].bytes = 49);
    EXPECT_BREACH(bed.left[1].bytes[0] = 21);
    EXPECT_BREACH(bed.left[0].counts[0] = 1);
    EXPECT_BREACH(bed.analysis.stretches[0].left_bytes = 21);
    EXPECT_BREACH(bed.analysis.stretches[1].left_count = 2);
    EXPECT_BREACH(bed.analysis.stretches[1].end_op = 5);
    EXPECT_BREACH(bed.analysis.stretches[0].end_op = 5);
    EXPECT_BREACH(bed.analysis.holdings[FLW_ANALYSIS_SURVIVORS].rest_bytes = 8);
    EXPECT_BREACH(bed.analysis.holdings[FLW_ANALYSIS_AT_END].bytes = 1);
}

/* --- the view of a heap --------------------------------------------------------------------------
 */

#define HEAP_BLOCKS 400
#define HEAP_BYTES  4096 /* of addresses from HEAP_BEGIN on */
#define HEAP_BEGIN  65536
#define HEAP_STEPS  4000

struct heap {
    struct flw_trace_block blocks[HEAP_BLOCKS];
    uint64_t addresses[HEAP_BLOCKS];
    uint8_t owned[HEAP_BYTES]; /* 0 no segment, 1 free, 2 allocated */
    size_t allocated_count;    /* blocks ever allocated */
};

/* First fit, byte by byte. */
static void allocate(struct heap *heap, struct flw_heapview *view, uint64_t bytes)
{
    for (size_t at = 0; at + bytes <= HEAP_BYTES; at++) {
        size_t length = 0;
        while (length < bytes && heap->owned[at + length] == 1) {
            length++;
        }
        if (length == bytes) {
            size_t block = heap->allocated_count++;
            memset(heap->owned + at, 2, bytes);
            heap->blocks[block].size_bytes = bytes;
            heap->addresses[block] = HEAP_BEGIN + at;
            flw_heapview_add(view, (uint32_t)block);
            return;
        }
    }
}

static void take_back(struct heap *heap, size_t block)
{
    if (heap->addresses[block] != 0) {
        memset(heap->owned + (heap->addresses[block] - HEAP_BEGIN), 1,
               heap->blocks[block].size_bytes);
        heap->addresses[block] = 0;
    }
}

/* Three segments, the second and third side by side: a hole does not cross from one to the other. */
static void make_segments(struct heap *heap, struct flw_heapview *view)
{
    static const struct flw_analysis_segment segments[] = {
        {.address = HEAP_BEGIN + 100, .bytes = 900},
        {.address = HEAP_BEGIN + 2000, .bytes = 500},
        {.address = HEAP_BEGIN + 2500, .bytes = 1500}};
    flw_heapview_make_segments(view, 3);
    for (size_t i = 0; i < 3; i++) {
        view->segments[i] = segments[i];
        memset(heap->owned + (segments[i].address - HEAP_BEGIN), 1, segments[i].bytes);
    }
}

static void expect_same(const struct heap *heap, struct flw_heapview *view)
{
    struct flw_analysis_holes holes;
    uint64_t count = 0, total = 0, largest = 0, run = 0;
    flw_heapview_look(view);
    flw_heapview_measure(view, &holes);
    for (size_t at = 0; at < HEAP_BYTES; at++) {
        bool is_free = heap->owned[at] == 1;
        bool begins = is_free && (at == 0 || heap->owned[at - 1] != 1 || at == 2500);
        run = begins ? 1 : is_free ? run + 1 : 0;
        count += begins;
        total += is_free;
        largest = run > largest ? run : largest;
    }
    assert_int_equal(holes.count, count);
    assert_int_equal(holes.total_bytes, total);
    assert_int_equal(holes.largest_bytes, largest);
    size_t live_count = 0;
    for (size_t i = 0; i < heap->allocated_count; i++) {
        live_count += heap->addresses[i] != 0;
    }
    assert_int_equal(view->block_count, live_count);
    for (size_t i = 1; i < view->block_count; i++) {
        assert_true(view->blocks[i - 1].address < view->blocks[i].address);
    }
}

TEST(holes_are_those_of_a_byte_by_byte_count)
{
    const char *given = getenv("FALLOW_TEST_SEED");
    uint64_t seed = given == NULL ? 7 : strtoull(given, NULL, 10);
    print_message("seed %llu (FALLOW_TEST_SEED)\n", (unsigned long long)seed);
    struct heap heap = {0};
    struct flw_trace trace = {.blocks = heap.blocks, .block_count = HEAP_BLOCKS};
    struct flw_heapview view = {.trace = &trace, .addresses = heap.addresses};
    make_segments(&heap, &view);
    for (size_t step = 0; step < HEAP_STEPS && heap.allocated_count < HEAP_BLOCKS; step++) {
        uint64_t dice = flw_random_next(&seed);
        if (dice % 8 < 5) {
            allocate(&heap, &view, 1 + (dice >> 8) % 300);
        } else if (heap.allocated_count != 0) {
            take_back(&heap, (dice >> 8) % heap.allocated_count);
        }
        if ((dice >> 40) % 4 == 0) {
            expect_same(&heap, &view);
        }
    }
    expect_same(&heap, &view);
    assert_true(heap.allocated_count > 100);
    flw_heapview_finish(&view);
}

TEST(a_frame_keeps_the_largest_blocks)
{
    size_t count = FLW_ANALYSIS_RECTANGLES + 500;
    struct flw_trace_block *blocks = calloc(count, sizeof *blocks);
    uint64_t *addresses = calloc(count, sizeof *addresses);
    assert_non_null(blocks);
    assert_non_null(addresses);
    struct flw_trace trace = {.blocks = blocks, .block_count = count};
    struct flw_heapview view = {.trace = &trace, .addresses = addresses};
    for (size_t i = 0; i < count; i++) {
        blocks[i].size_bytes = 1 + i % 100;
        addresses[i] = HEAP_BEGIN + i * 128;
        flw_heapview_add(&view, (uint32_t)i);
    }
    flw_heapview_look(&view);
    struct flw_analysis_frame frame = {0};
    flw_heapview_copy(&view, &frame);
    assert_int_equal(frame.block_count, FLW_ANALYSIS_RECTANGLES);
    assert_int_equal(frame.left_out_count, 500);
    /* 205 each of the sizes 1 and 2, and the rest of 3: those below 3 are gone, 90 of 3 too. */
    size_t small_count = 0;
    for (size_t i = 0; i < frame.block_count; i++) {
        assert_true(frame.blocks[i].requested_bytes >= 3);
        assert_true(i == 0 || frame.blocks[i - 1].address < frame.blocks[i].address);
        small_count += frame.blocks[i].requested_bytes == 3;
    }
    assert_int_equal(small_count, 205 - 90);
    struct flw_analysis analysis = {0};
    struct flw_analysis_policy *policy = flw_host_alloc(1, sizeof *policy);
    policy->frames = flw_host_alloc(1, sizeof frame);
    policy->frames[0] = frame;
    policy->frame_count = 1;
    analysis.policies = policy;
    analysis.policy_count = 1;
    flw_analysis_shrink(&analysis);
    assert_int_equal(policy->frames[0].left_out_count, count);
    flw_analysis_finish(&analysis);
    flw_heapview_finish(&view);
    free(blocks);
    free(addresses);
}

TEST(sizes_fall_into_bins_by_powers_of_two)
{
    assert_int_equal(flw_analysis_size_bin(1), 0);
    assert_int_equal(flw_analysis_size_bin(2), 1);
    assert_int_equal(flw_analysis_size_bin(3), 2);
    assert_int_equal(flw_analysis_size_bin(4), 2);
    assert_int_equal(flw_analysis_size_bin(5), 3);
    assert_int_equal(flw_analysis_size_bin(UINT64_MAX), FLW_ANALYSIS_SIZE_BINS - 1);
}

FLW_TEST_MAIN(NULL, NULL)
