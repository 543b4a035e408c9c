/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the snapshot importer: the heap before the first event, block numbers, gaps,
 * devices, old shapes, and what it says about bad ones.
 */
#include "support/test.h"

#include <string.h>

#include "test_pickle_writer.h"
#include "trace/formats/formats.h"
#include "trace/trace/trace.h"

#define MIB  (UINT64_C(1) << 20)
#define BASE UINT64_C(0x7F0000000000)

static char message[FLW_TRACE_MESSAGE_BYTES];

/* Releases the writer. NULL: refused, `message` says why. */
static struct flw_trace *import_device(struct writer *w, int device)
{
    struct flw_trace *trace;
    bool is_read = flw_trace_read_bytes(w->bytes, w->count, "name", device, &trace, message);
    free(w->bytes);
    assert_int_equal(is_read, trace != NULL);
    if (is_read) {
        assert_true(flw_trace_is_valid(trace));
        assert_string_equal(message, "");
    }
    return trace;
}

static struct flw_trace *import(struct writer *w)
{
    struct flw_trace *trace = import_device(w, -1);
    if (trace == NULL) {
        print_error("%s\n", message);
    }
    assert_non_null(trace);
    return trace;
}

static void expect_refused(struct writer *w, const char *text)
{
    assert_null(import_device(w, -1));
    if (strstr(message, text) == NULL) {
        print_error("\"%s\" lacks \"%s\"\n", message, text);
    }
    assert_non_null(strstr(message, text));
    assert_int_equal(strncmp(message, "name: byte ", 11), 0);
}

static void expect_event(const struct flw_trace *trace, size_t i, enum flw_trace_op op,
                         uint32_t block)
{
    assert_true(i < trace->event_count);
    assert_int_equal(trace->events[i].op, op);
    assert_int_equal(trace->events[i].block, block);
}

static void a_block_freed_but_never_allocated_was_there_at_the_start(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_segment(&w, BASE, 20 * MIB, "large", 0);
    put_block(&w, BASE, MIB, "inactive");
    put_block(&w, BASE + MIB, 3 * MIB, "active_allocated");
    put_block(&w, BASE + 4 * MIB, 16 * MIB, "inactive");
    end_segment(&w);
    begin_events(&w);
    put_event(&w, "free_requested", BASE + 8 * MIB, 100);
    put_event(&w, "free_completed", BASE + 8 * MIB, 100);
    put_event(&w, "alloc", BASE, MIB);
    put_event(&w, "free_requested", BASE, MIB);
    put_event(&w, "free_completed", BASE, MIB);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->initial_count, 2);
    assert_true(trace->blocks[0].address == BASE + MIB && !trace->blocks[0].freed);
    assert_true(trace->blocks[1].address == BASE + 8 * MIB && trace->blocks[1].freed);
    assert_int_equal(trace->blocks[1].size_bytes, 100);
    assert_int_equal(trace->event_count, 5);
    expect_event(trace, 0, FLW_TRACE_FREE, 1);
    expect_event(trace, 1, FLW_TRACE_FREE_DONE, 1);
    expect_event(trace, 2, FLW_TRACE_ALLOC, 2);
    assert_int_equal(trace->peak_requested_bytes, 4 * MIB);
    assert_int_equal(trace->unknown_free_count, 0);
    assert_false(trace->has_times);
    flw_trace_destroy(trace);
}

static void a_block_stays_live_until_its_free_is_complete(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    put_event(&w, "alloc", BASE, 5 * MIB);
    put_event(&w, "free_requested", BASE, 5 * MIB);
    put_event(&w, "alloc", BASE + 32 * MIB, 7 * MIB);
    put_event(&w, "free_completed", BASE, 5 * MIB);
    put_event(&w, "free_requested", BASE + 32 * MIB, 7 * MIB);
    put_event(&w, "alloc", BASE + 64 * MIB, 8 * MIB);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    /* The second block's free never completes on record, so it counts from its request. */
    assert_int_equal(trace->peak_requested_bytes, 12 * MIB);
    assert_int_equal(trace->initial_count, 0);
    flw_trace_destroy(trace);
}

static void a_completion_whose_request_is_lost_frees_a_block_of_the_start(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    put_event(&w, "free_completed", BASE, MIB);
    put_event(&w, "alloc", BASE, 2 * MIB);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->initial_count, 1);
    expect_event(trace, 0, FLW_TRACE_FREE, 0);
    expect_event(trace, 1, FLW_TRACE_ALLOC, 1);
    flw_trace_destroy(trace);
}

static void a_block_that_waits_at_the_end_was_freed_on_record_or_at_the_start(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_segment(&w, BASE, 4 * MIB, "large", 0);
    put_block(&w, BASE, MIB, "active_pending_free");
    put_block(&w, BASE + MIB, 3 * MIB, "active_awaiting_free");
    end_segment(&w);
    begin_events(&w);
    put_event(&w, "alloc", BASE, MIB);
    put_event(&w, "free_requested", BASE, MIB);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->initial_count, 1);
    assert_true(trace->blocks[0].address == BASE + MIB && !trace->blocks[0].freed);
    assert_true(trace->blocks[1].freed);
    flw_trace_destroy(trace);
}

static void gaps_in_a_recording_are_counted_and_closed(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_segment(&w, BASE, 4 * MIB, "large", 0);
    put_block(&w, BASE, 2 * MIB, "active_allocated");
    end_segment(&w);
    begin_events(&w);
    put_event(&w, "alloc", BASE, MIB);     /* its free is lost */
    put_event(&w, "alloc", BASE, 2 * MIB); /* so one is put in */
    put_event(&w, "free_requested", BASE + 3 * MIB, 7);
    put_event(&w, "free_completed", BASE + 3 * MIB, 7);
    put_event(&w, "free_requested", BASE + 3 * MIB, 9); /* allocated meanwhile, off the record */
    put_event(&w, "free_completed", BASE + 3 * MIB, 9);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->initial_count, 1);
    assert_int_equal(trace->blocks[0].size_bytes, 7);
    assert_int_equal(trace->lost_free_count, 1);
    assert_int_equal(trace->unknown_free_count, 2);
    expect_event(trace, 0, FLW_TRACE_ALLOC, 1);
    expect_event(trace, 1, FLW_TRACE_FREE, 1);
    expect_event(trace, 2, FLW_TRACE_ALLOC, 2);
    expect_event(trace, 3, FLW_TRACE_FREE, 0);
    assert_int_equal(trace->event_count, 5);
    flw_trace_destroy(trace);
}

static void every_free_that_is_lost_is_put_in_however_many(void **state)
{
    (void)state;
    enum {
        PLACES = 3,
        ROUNDS = 4000
    };
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        put_event(&w, "alloc", BASE + i % PLACES * MIB, i + 1);
        if (i % 1000 == 999) { /* a few whole ones between, and a request without completion */
            put_event(&w, "free_requested", BASE + i % PLACES * MIB, i + 1);
        }
    }
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->block_count, ROUNDS);
    assert_int_equal(trace->lost_free_count, ROUNDS - PLACES - ROUNDS / 1000 + 1);
    assert_int_equal(trace->event_count, 2 * ROUNDS - PLACES + 1);
    uint32_t next = 0, freed = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (event->op == FLW_TRACE_ALLOC) {
            assert_int_equal(event->block, next++);
        } else {
            assert_int_equal(event->op, FLW_TRACE_FREE);
            freed++;
        }
        assert_int_equal(event->size_bytes, event->block + 1);
        assert_true(event->address == BASE + event->block % PLACES * MIB);
    }
    assert_int_equal(next + freed, trace->event_count);
    flw_trace_destroy(trace);
}

static void segments_of_the_start_are_those_of_the_end_with_events_undone(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_segment(&w, BASE, 2 * MIB, "small", 0);
    end_segment(&w);
    begin_segment(&w, BASE + 64 * MIB, 20 * MIB, "large", 0); /* came during the recording */
    end_segment(&w);
    begin_events(&w);
    put_event(&w, "segment_alloc", BASE + 64 * MIB, 20 * MIB);
    put_event(&w, "segment_free", BASE + 128 * MIB, 30 * MIB);
    put_event(&w, "segment_free", BASE + 256 * MIB, 2 * MIB);
    put_event(&w, "segment_alloc", BASE + 256 * MIB, 1 * MIB);
    put_event(&w, "segment_free", BASE + 256 * MIB, 1 * MIB);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->segment_count, 3);
    assert_int_equal(trace->recorded_initial_reserved_bytes, 34 * MIB);
    assert_int_equal(trace->recorded_peak_reserved_bytes, 54 * MIB);
    assert_int_equal(trace->recorded_segment_calls, 5);
    for (size_t i = 0; i < trace->segment_count; i++) {
        const struct flw_trace_segment *segment = &trace->segments[i];
        assert_int_equal(segment->is_large, segment->size_bytes == 30 * MIB);
        assert_false(segment->is_expandable);
    }
    flw_trace_destroy(trace);
}

static void expandable_segments_are_mapped_ranges(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_segment(&w, BASE + 516 * MIB, 20 * MIB, "large", 1); /* adjoins the small one */
    end_segment(&w);
    begin_segment(&w, BASE, 20 * MIB, "large", 1); /* [0, 20) at the end */
    end_segment(&w);
    begin_segment(&w, BASE + 512 * MIB, 4 * MIB, "small", 1);
    end_segment(&w);
    begin_events(&w);
    put_event(&w, "segment_unmap", BASE + 20 * MIB, 10 * MIB); /* [0, 30) before */
    put_event(&w, "segment_map", BASE + 4 * MIB, 6 * MIB);     /* [0, 4) and [10, 30) before */
    put_event(&w, "segment_map", BASE + 512 * MIB, 2 * MIB);   /* [514, 516) before */
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->segment_count, 4);
    assert_true(trace->segments[0].address == BASE && trace->segments[0].size_bytes == 4 * MIB);
    assert_true(trace->segments[1].address == BASE + 10 * MIB &&
                trace->segments[1].size_bytes == 20 * MIB);
    assert_true(trace->segments[2].address == BASE + 514 * MIB &&
                trace->segments[2].size_bytes == 2 * MIB);
    assert_true(trace->segments[0].is_large && trace->segments[1].is_large);
    assert_false(trace->segments[2].is_large);
    assert_true(trace->segments[0].is_expandable && trace->segments[2].is_expandable);
    assert_true(trace->segments[3].address == BASE + 516 * MIB &&
                trace->segments[3].size_bytes == 20 * MIB && trace->segments[3].is_large);
    assert_int_equal(trace->recorded_initial_reserved_bytes, 46 * MIB);
    assert_int_equal(trace->recorded_peak_reserved_bytes, 46 * MIB);
    flw_trace_destroy(trace);
}

/* Device 0 has a segment and no event, device 1 two events, device 2 one. */
static struct writer three_devices(void)
{
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_segment(&w, BASE, 20 * MIB, "large", 0);
    put_block(&w, BASE, MIB, "active_allocated");
    end_segment(&w);
    begin_events(&w);
    end_list(&w);
    begin_list(&w);
    put_event(&w, "alloc", BASE, 11);
    put_event(&w, "alloc", BASE + MIB, 11);
    end_list(&w);
    begin_list(&w);
    put_event(&w, "alloc", BASE, 22);
    end_snapshot(&w);
    return w;
}

static void devices_are_never_merged(void **state)
{
    (void)state;
    for (int device = -1; device <= 3; device++) {
        struct writer w = three_devices();
        struct flw_trace *trace = import_device(&w, device);
        if (device == 3) {
            assert_null(trace);
            assert_non_null(strstr(message, "has no device 3, only 0 to 2"));
            continue;
        }
        assert_non_null(trace);
        assert_int_equal(trace->device, device < 0 ? 1 : device);
        assert_non_null(strstr(trace->notes, "\nrecorded_devices 0 1 2\n"));
        assert_int_equal(trace->event_count, device < 0 ? 2 : device == 0 ? 0 : 3 - device);
        assert_int_equal(trace->initial_count, device == 0);
        assert_int_equal(trace->segment_count, device == 0);
        flw_trace_destroy(trace);
    }
}

/* torch before 2.0: blocks without address, what was asked for in a history. */
static void the_bare_list_of_old_versions_is_a_heap(void **state)
{
    (void)state;
    struct writer w = begin_pickle(2);
    begin_list(&w);
    begin_segment(&w, BASE, 2 * MIB, "small", 0);
    for (int i = 0; i < 2; i++) {
        begin_dict(&w);
        put_pair(&w, "size", 1024);
        put_word_pair(&w, "state", "active_allocated");
        put_string(&w, "history");
        begin_list(&w);
        begin_dict(&w);
        put_pair(&w, "real_size", 1000 + (uint64_t)i);
        end_dict(&w);
        end_list(&w);
        end_dict(&w);
    }
    end_segment(&w);
    end_list(&w);
    end_pickle(&w);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->initial_count, 2);
    assert_true(trace->blocks[1].address == BASE + 1024);
    assert_int_equal(trace->blocks[1].size_bytes, 1001);
    assert_int_equal(trace->event_count, 0);
    assert_int_equal(trace->recorded_peak_reserved_bytes, 2 * MIB);
    flw_trace_destroy(trace);
}

static void put_timed_event(struct writer *w, const char *action, uint64_t time_us)
{
    begin_dict(w);
    put_word_pair(w, "action", action);
    put_pair(w, "time_us", time_us);
    put_pair(w, "size", 9);
    put_pair(w, "stream", 0x7700);
    end_dict(w);
}

static void times_start_at_zero_and_never_fall(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    put_timed_event(&w, "snapshot", 1700000000000000);
    put_timed_event(&w, "oom", 1700000000000007);
    put_timed_event(&w, "oom", 1700000000000005);
    end_snapshot(&w);
    struct flw_trace *trace = import(&w);
    assert_true(trace->has_times);
    assert_int_equal(trace->events[0].time_ns, 0);
    assert_int_equal(trace->events[0].op, FLW_TRACE_MARK);
    assert_int_equal(trace->events[1].time_ns, 7000);
    assert_int_equal(trace->events[1].size_bytes, 9);
    assert_int_equal(trace->events[2].time_ns, 7000);
    assert_true(trace->streams[0] == 0x7700);
    flw_trace_destroy(trace);
}

static void what_is_no_snapshot_is_refused(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_dict(&w);
    put_pair(&w, "size", 1);
    end_dict(&w);
    end_pickle(&w);
    expect_refused(&w, "not a PyTorch memory snapshot");
}

static void impossible_events_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *action;
        uint64_t address, bytes;
        const char *text;
    } cases[] = {
        {"allocate", BASE, 1, "an action that no PyTorch writes"},
        {"size", BASE, 1, "an action that no PyTorch writes"},
        {"alloc", BASE, UINT64_MAX, "go beyond 64 bits"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct writer w = begin_pickle(4);
        begin_snapshot(&w);
        begin_events(&w);
        put_event(&w, cases[i].action, cases[i].address, cases[i].bytes);
        end_snapshot(&w);
        expect_refused(&w, cases[i].text);
    }
}

static void what_a_list_cannot_hold_is_refused_and_not_passed_over(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    put_event(&w, "alloc", BASE, 9);
    put_string(&w, "no event");
    end_snapshot(&w);
    expect_refused(&w, "an item of this trace is no event");
    w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    put_string(&w, "no event, and no other one");
    end_snapshot(&w);
    expect_refused(&w, "an item of this trace is no event");
    w = begin_pickle(4);
    begin_snapshot(&w);
    put_string(&w, "no segment");
    begin_events(&w);
    end_snapshot(&w);
    expect_refused(&w, "an item of the segments is no segment");
    w = begin_pickle(4);
    begin_snapshot(&w);
    begin_segment(&w, BASE, MIB, "large", 0);
    put_block(&w, BASE, 512, "inactive");
    put_string(&w, "no block");
    end_segment(&w);
    begin_events(&w);
    end_snapshot(&w);
    expect_refused(&w, "an item of these blocks is no block");
    w = begin_pickle(4);
    begin_dict(&w);
    put_string(&w, "segments");
    put_string(&w, "none");
    put_string(&w, "device_traces");
    begin_list(&w);
    end_list(&w);
    end_dict(&w);
    end_pickle(&w);
    expect_refused(&w, "\"segments\" is no list");
}

static void an_out_of_memory_with_less_than_nothing_free_is_refused(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    begin_dict(&w);
    put_word_pair(&w, "action", "oom");
    put_pair(&w, "size", 9);
    put_string(&w, "device_free");
    put_code(&w, 'J');
    put_little_endian(&w, UINT32_MAX, 4);
    end_dict(&w);
    end_snapshot(&w);
    expect_refused(&w, "\"device_free\" is negative");
}

static void a_block_given_twice_and_bytes_behind_are_said(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_segment(&w, BASE, MIB, "large", 0);
    put_block(&w, BASE, 512, "active_allocated");
    put_block(&w, BASE, 1024, "active_allocated");
    end_segment(&w);
    begin_events(&w);
    end_snapshot(&w);
    put_bytes(&w, "rest", 4);
    struct flw_trace *trace = import(&w);
    assert_int_equal(trace->initial_count, 1);
    assert_string_equal(trace->notes, "origin pytorch snapshot\n"
                                      "blocks_of_the_end_given_twice 1\n"
                                      "bytes_behind_the_pickle_not_read 4\n");
    flw_trace_destroy(trace);
}

static void sizes_that_add_up_to_more_than_64_bits_are_refused(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_events(&w);
    put_event(&w, "alloc", 1, UINT64_MAX - 1);
    put_event(&w, "alloc", 0, UINT64_MAX - 1);
    end_snapshot(&w);
    expect_refused(&w, "more than 64 bits hold");
}

/* A list of n segments that are one object, with a list of n blocks that are one object. */
static void shared_lists_cannot_make_the_walk_long(void **state)
{
    (void)state;
    struct writer w = begin_pickle(4);
    begin_snapshot(&w);
    begin_segment(&w, BASE, MIB, "small", 0);
    put_block(&w, BASE, 512, "inactive");
    put_bytes(&w, "q\x01", 2);
    for (int i = 0; i < 100000; i++) {
        put_bytes(&w, "h\x01", 2);
    }
    end_segment(&w);
    put_bytes(&w, "q\x02", 2);
    for (int i = 0; i < 100000; i++) {
        put_bytes(&w, "h\x02", 2);
    }
    begin_events(&w);
    end_snapshot(&w);
    expect_refused(&w, "more items than the file has bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_freed_but_never_allocated_was_there_at_the_start),
        cmocka_unit_test(a_block_stays_live_until_its_free_is_complete),
        cmocka_unit_test(a_completion_whose_request_is_lost_frees_a_block_of_the_start),
        cmocka_unit_test(a_block_that_waits_at_the_end_was_freed_on_record_or_at_the_start),
        cmocka_unit_test(gaps_in_a_recording_are_counted_and_closed),
        cmocka_unit_test(every_free_that_is_lost_is_put_in_however_many),
        cmocka_unit_test(segments_of_the_start_are_those_of_the_end_with_events_undone),
        cmocka_unit_test(expandable_segments_are_mapped_ranges),
        cmocka_unit_test(devices_are_never_merged),
        cmocka_unit_test(the_bare_list_of_old_versions_is_a_heap),
        cmocka_unit_test(times_start_at_zero_and_never_fall),
        cmocka_unit_test(what_is_no_snapshot_is_refused),
        cmocka_unit_test(impossible_events_are_refused),
        cmocka_unit_test(what_a_list_cannot_hold_is_refused_and_not_passed_over),
        cmocka_unit_test(an_out_of_memory_with_less_than_nothing_free_is_refused),
        cmocka_unit_test(a_block_given_twice_and_bytes_behind_are_said),
        cmocka_unit_test(sizes_that_add_up_to_more_than_64_bits_are_refused),
        cmocka_unit_test(shared_lists_cannot_make_the_walk_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
