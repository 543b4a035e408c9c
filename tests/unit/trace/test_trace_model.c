/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of a trace's parts: arrays that grow by moving their pages, stacks that are stored once, rows
 * of phases, the invariants, and totals.
 */
#include "test_trace_bed.h"

#include "trace/trace/largearray.h"
#include "trace/trace/phases.h"

TEST(arrays_grow_with_zeros_or_stay_as_they_were)
{
    uint64_t *array = NULL;
    size_t room = 0;
    for (size_t i = 0; i < 1000000; i++) { /* 8 MB: well into mappings */
        assert_true(FLW_LARGEARRAY_FITS(array, i, room) && i < room);
        assert_int_equal(array[room - 1], 0);
        array[i] = i + 1;
    }
    for (size_t i = 0; i < room; i++) {
        assert_int_equal(array[i], i < 1000000 ? i + 1 : 0);
    }
    flw_largearray_free(array, room, sizeof(*array));
    array = NULL;
    room = 0;
    for (size_t wanted = 10; wanted < 800000; wanted = wanted == 10 ? 300000 : wanted + 400001) {
        assert_true(FLW_LARGEARRAY_HOLDS(array, wanted, room));
        assert_int_equal(room, wanted == 10 ? 64 : wanted);
        assert_int_equal(array[room - 1], 0);
        assert_int_equal(array[63], wanted == 10 ? 0 : 5);
        array[63] = 5;
        assert_false(flw_largearray_grow(&array, SIZE_MAX / 8, &room, sizeof(*array)));
        assert_false(flw_largearray_grow(&array, SIZE_MAX / 32, &room, sizeof(*array)));
        assert_int_equal(room, wanted == 10 ? 64 : wanted);
        assert_int_equal(array[63], 5);
    }
    flw_largearray_free(array, room, sizeof(*array));
    flw_largearray_free(NULL, 0, sizeof(*array));
}

TEST(stacks_and_frames_are_kept_once)
{
    struct flw_stacks stacks = {0};
    uint32_t frames[300], one, again, none;
    assert_true(flw_stacks_are_valid(&stacks));
    for (unsigned i = 0; i < 300; i++) {
        assert_true(flw_stacks_add_frame(&stacks, "f", "f.py", i, &frames[i]) && frames[i] == i);
    }
    assert_true(flw_stacks_add_frame(&stacks, "f", "f.py", 299, &again) && again == 299);
    assert_true(flw_stacks_add(&stacks, frames, 0, &none) && none == 0);
    assert_true(flw_stacks_add(&stacks, frames, 300, &one) && one != 0);
    assert_true(flw_stacks_add(&stacks, frames, 299, &none) && none != one);
    assert_true(flw_stacks_add(&stacks, frames, 300, &again) && again == one);
    assert_true(flw_stacks_are_valid(&stacks));
    flw_stacks_seal(&stacks);
    struct flw_stack_walk walk = flw_stacks_walk(&stacks, one);
    unsigned count = 0;
    while (flw_stacks_next(&walk, &again)) {
        assert_int_equal(again, frames[count++]);
    }
    assert_int_equal(count, 300);
    stacks.frames.count--; /* the last frame is of the first stack alone */
    assert_false(flw_stacks_are_valid(&stacks));
    stacks.frames.count++;
    stacks.lists.bytes[stacks.lists.begins[2] - 1] |= 0x80; /* the last number does not end */
    assert_false(flw_stacks_are_valid(&stacks));
    flw_stacks_finish(&stacks);
}

/* ---- rows ---- */

/* `steps`: (x and )x phases by their letter; `wanted`: the row of each, '0' and up, - for none. */
static void expect_rows(const char *steps, const char *wanted, uint32_t wanted_count)
{
    size_t room = 128 + 16 * strlen(steps);
    char *text = malloc(room);
    assert_non_null(text);
    char *at = text + sprintf(text, "#fallow-trace 1\ndevice 0\nstream 0\nfields none\n");
    for (const char *step = steps; *step != '\0'; step += 2) {
        at += sprintf(at, "%c 0 \"%c\"\n", *step == '(' ? 'B' : 'E', step[1]);
    }
    struct flw_trace *trace = read_text(text);
    struct flw_phases phases;
    assert_true(flw_phases_find_rows(trace, &phases));
    for (size_t i = 0; wanted[i] != '\0'; i++) {
        uint32_t row = wanted[i] == '-' ? FLW_PHASES_NO_ROW : (uint32_t)(wanted[i] - '0');
        assert_int_equal(phases.at[i].row, row);
    }
    assert_int_equal(phases.row_count, wanted_count);
    flw_phases_finish(&phases);
    flw_trace_destroy(trace);
    free(text);
}

TEST(in_a_row_phases_lie_within_one_another)
{
    expect_rows("", "", 0);
    expect_rows("(a(b)b(c(d)d)c)a(e)e", "0000000000", 1);
    expect_rows("(a(b)a)b(c)c", "010100", 2);
    expect_rows("(a(b(c)a)c)b", "011011", 2);
    expect_rows("(a(b)a(c)b)c", "010010", 2);
    expect_rows("(a(a)a)a", "0000", 1);
    expect_rows(")a(a)a)a", "-00-", 1);
    expect_rows("(a(b)a(c", "0100", 2);                   /* b and c never end */
    char steps[4 * 70 + 1] = "", wanted[2 * 70 + 1] = ""; /* the first to begin ends first */
    for (int i = 0; i < 2 * 70; i++) {
        sprintf(steps + 2 * i, "%c%c", i < 70 ? '(' : ')', '$' + i % 70);
        wanted[i] = (char)('0' + i % 70);
    }
    expect_rows(steps, wanted, 70);
}

/* ---- invariants and totals ---- */

#define HEAD "#fallow-trace 1\ndevice 0\nstream 0\nfields addresses segments\n"

TEST(totals_are_of_what_is_live_and_held)
{
    static const struct {
        const char *records;
        uint64_t requested, held_first, held_most, calls;
    } rows[] = {
        /* a block is live until the free is complete, or until the request if the completion is not recorded */
        {"A 0 0 5 0 @1\nF 0 0 0\nA 0 1 7 0 @2\nC 0 0 0\nF 0 1 0\nA 0 2 8 0 @3\n", 12, 0, 0, 0},
        {"P 0 0 3 0 @17\nP 0 1 1 0 @24\nF 0 1 0\nC 0 1 0\nA 0 2 1 0 @16\nF 0 2 0\n", 4, 0, 0, 0},
        {"S 0 2 0 small @1\nS 0 32 0 large @8\nS+ 0 20 0 @64\nS- 0 32 0 @8\nM+ 0 3 0 @256\n", 0, 34,
         54, 3},
        {"S 0 2 0 small @1\nS- 0 9 0 @8\nM- 0 9 0 @8\nS+ 0 1 0 @9\n", 0, 2, 2, 3},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char text[512];
        snprintf(text, sizeof text, HEAD "%s", rows[i].records);
        struct flw_trace *trace = read_text(text);
        assert_int_equal(trace->peak_requested_bytes, rows[i].requested);
        assert_int_equal(trace->recorded_initial_reserved_bytes, rows[i].held_first);
        assert_int_equal(trace->recorded_peak_reserved_bytes, rows[i].held_most);
        assert_int_equal(trace->recorded_segment_calls, rows[i].calls);
        flw_trace_destroy(trace);
    }
}

/* With `place` at `value` the trace is not valid. */
#define EXPECT_SEEN(place, value)                \
    do {                                         \
        __typeof__(place) before = place;        \
        place = value;                           \
        assert_false(flw_trace_is_valid(trace)); \
        place = before;                          \
    } while (0)

TEST(what_was_tampered_with_is_not_valid)
{
    static const char text[] = HEAD
        "P 0 0 512 0 @4096 pool=3\nK 0 \"on\"\nB 0 \"step\"\nA 0 1 777 0 @20000\nU 0 1 0\nF 0 1 0\nC 0 1 0\n";
    struct flw_trace *trace = read_text(text);
    EXPECT_SEEN(trace->peak_requested_bytes, trace->peak_requested_bytes + 1);
    EXPECT_SEEN(trace->events[4].address, 20001);
    EXPECT_SEEN(trace->events[4].block, 7);
    EXPECT_SEEN(trace->events[5].op, FLW_TRACE_FREE);
    EXPECT_SEEN(trace->events[2].stream, 2);
    EXPECT_SEEN(trace->blocks[0].freed, true);
    EXPECT_SEEN(trace->details[0].name, 3);
    EXPECT_SEEN(trace->details[0].name, FLW_TRACE_NO_NAME);
    EXPECT_SEEN(trace->details[0].lost_count, 1);
    EXPECT_SEEN(trace->details[0].event, 1);
    EXPECT_SEEN(trace->contexts[0].pool, 0);
    EXPECT_SEEN(trace->contexts[0].record, 99);
    EXPECT_SEEN(trace->names.bytes[trace->names.begins[1]], '\n');
    expect_text(trace, text);
    assert_false(flw_trace_is_valid(NULL));
}

FLW_TEST_MAIN(NULL, NULL)
