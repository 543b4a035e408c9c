/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the generator `streams`.
 */
#include "unit/trace/test_gen_bed.h"

#include "base/bits.h"

#define STREAMS_MAX 64

/* "FROM>TO": some block of stream FROM is used on stream TO; '*' is every stream from there on. */
static const struct workload {
    const char *name;
    uint64_t streams;
    const char *hands;
} workloads[] = {
    {"serving", 4, "2>0 0>1 0>3 1>3 3>2 0>2 2>1"},
    {"offload", 10, "1>0 2>0 3>0 4>0 5>0 6>0 7>0 8>0 9>0"},
    {"shard", 3, "1>0 0>2 2>0"},
    {"images", 64, "*>0"},
    {"experts", 3, "0>2 1>2 2>0 2>1"},
};
#define WORKLOADS (sizeof workloads / sizeof *workloads)

static struct flw_trace *make(const struct workload *workload, const char *options)
{
    char words[128];
    snprintf(words, sizeof words, "workload=%s %s", workload->name, options);
    return bed_make("streams", words);
}

static void every_workload_is_balanced_and_reproducible(void **state)
{
    (void)state;
    for (size_t i = 0; i < WORKLOADS; i++) {
        char words[128];
        char other[128];
        snprintf(words, sizeof words, "workload=%s steps=40 seed=1", workloads[i].name);
        snprintf(other, sizeof other, "workload=%s steps=40 seed=2", workloads[i].name);
        bed_expect_reproducible("streams", words, other);
        struct flw_trace *trace = make(&workloads[i], "steps=40");
        assert_int_equal(bed_count_live_at_end(trace), 0);
        assert_int_equal(flw_recording_count(trace, FLW_TRACE_FREE), trace->alloc_count);
        assert_int_equal(flw_recording_count(trace, FLW_TRACE_PHASE_END), 40);
        flw_trace_destroy(trace);
    }
}

static void a_default_trace_has_hundreds_of_steps_and_some_gibibytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < WORKLOADS; i++) {
        struct flw_trace *trace = make(&workloads[i], "");
        assert_int_equal(flw_recording_count(trace, FLW_TRACE_PHASE_BEGIN), 400);
        assert_in_range(trace->alloc_count, 10000, 20000);
        assert_in_range(trace->peak_requested_bytes, FLW_GIB, 4 * FLW_GIB);
        flw_trace_destroy(trace);
    }
}

/* Every size is a share of --bytes, but ids, which are 8 bytes a token. */
static void twice_the_bytes_are_twice_the_peak(void **state)
{
    (void)state;
    for (size_t i = 0; i < WORKLOADS; i++) {
        struct flw_trace *once = make(&workloads[i], "steps=60 bytes=1073741824");
        struct flw_trace *twice = make(&workloads[i], "steps=60 bytes=2147483648");
        uint64_t peak_bytes = once->peak_requested_bytes;
        assert_int_equal(twice->alloc_count, once->alloc_count);
        assert_in_range(twice->peak_requested_bytes, 2 * peak_bytes - peak_bytes / 100,
                        2 * peak_bytes + peak_bytes / 100);
        flw_trace_destroy(once);
        flw_trace_destroy(twice);
    }
}

static void expect_streams(const struct flw_trace *trace, uint64_t streams)
{
    bool has_blocks[STREAMS_MAX] = {false};
    assert_int_equal(trace->stream_count, streams);
    for (size_t i = 0; i < trace->block_count; i++) {
        has_blocks[trace->blocks[i].stream] = true;
    }
    for (uint64_t i = 0; i < streams; i++) {
        assert_true(has_blocks[i]);
    }
}

static void every_stream_allocates(void **state)
{
    (void)state;
    for (size_t i = 0; i < WORKLOADS; i++) {
        struct flw_trace *trace = make(&workloads[i], "");
        expect_streams(trace, workloads[i].streams);
        flw_trace_destroy(trace);
    }
    for (size_t i = 1; i <= 3; i += 2) { /* offload and images */
        struct flw_trace *few = make(&workloads[i], "steps=40 streams=3");
        struct flw_trace *many = make(&workloads[i], "steps=40 streams=64");
        expect_streams(few, 3);
        expect_streams(many, 64);
        flw_trace_destroy(few);
        flw_trace_destroy(many);
    }
}

/* Exactly the hands that the workload is made of, each announced while the block is live. */
static void blocks_go_from_stream_to_stream_as_the_workload_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < WORKLOADS; i++) {
        bool is_handed[STREAMS_MAX][STREAMS_MAX] = {{false}};
        struct flw_trace *trace = make(&workloads[i], "");
        for (size_t j = 0; j < trace->event_count; j++) {
            const struct flw_trace_event *event = &trace->events[j];
            if (event->op == FLW_TRACE_USE) {
                is_handed[trace->blocks[event->block].stream][event->stream] = true;
            }
        }
        for (uint64_t from = 0; from < STREAMS_MAX; from++) {
            for (uint64_t to = 0; to < STREAMS_MAX; to++) {
                char hand[16];
                bool is_any = workloads[i].hands[0] == '*' && from > 0 && to == 0;
                snprintf(hand, sizeof hand, "%" PRIu64 ">%" PRIu64, from, to);
                if (is_handed[from][to] != (is_any || strstr(workloads[i].hands, hand) != NULL)) {
                    fail_msg("%s: %s is %d", workloads[i].name, hand, is_handed[from][to]);
                }
            }
        }
        flw_trace_destroy(trace);
    }
}

/* FNV-1a of the sizes that a step asks for. */
static size_t hash_steps(const struct flw_trace *trace, uint64_t *hashes, size_t room)
{
    size_t count = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        if (event->op == FLW_TRACE_PHASE_BEGIN) {
            assert_true(count < room);
            hashes[count++] = UINT64_C(0xcbf29ce484222325);
        } else if (event->op == FLW_TRACE_ALLOC) {
            uint64_t *hash = &hashes[count - 1];
            *hash = (*hash ^ event->size_bytes) * UINT64_C(0x100000001b3);
        }
    }
    return count;
}

static void no_step_asks_for_the_sizes_of_another(void **state)
{
    uint64_t hashes[100];
    (void)state;
    for (size_t i = 0; i < WORKLOADS; i++) {
        struct flw_trace *trace = make(&workloads[i], "steps=100");
        size_t count = hash_steps(trace, hashes, 100);
        assert_int_equal(count, 100);
        for (size_t j = 0; j < count; j++) {
            for (size_t k = 0; k < j; k++) {
                assert_true(hashes[j] != hashes[k]);
            }
        }
        flw_trace_destroy(trace);
    }
}

/* Two launches take this long at most. */
static uint64_t most_gap_ns(uint64_t pace_ns)
{
    return 2 * pace_ns * 8 / 5;
}

/* A launch or two lie between any events: the host waits for the device at the end of a step alone. */
static void the_host_runs_ahead_within_a_step(void **state)
{
    (void)state;
    for (size_t i = 0; i < WORKLOADS; i++) {
        struct flw_trace *trace = make(&workloads[i], "steps=50 pace=2500");
        size_t waits = 0;
        for (size_t j = 1; j < trace->event_count; j++) {
            const struct flw_trace_event *event = &trace->events[j];
            uint64_t gap_ns = event->time_ns - event[-1].time_ns;
            if (event->op == FLW_TRACE_PHASE_END) {
                waits += gap_ns > most_gap_ns(2500);
            } else {
                assert_in_range(gap_ns, 0, most_gap_ns(2500));
            }
        }
        assert_in_range(waits, 25, 50);
        flw_trace_destroy(trace);
    }
}

/* The pace changes when things happen and nothing else; unasked it is each workload's own. */
static void a_pace_is_the_time_from_launch_to_launch(void **state)
{
    static const uint64_t own_ns[WORKLOADS] = {20000, 20000, 300000, 20000, 300000};
    (void)state;
    for (size_t i = 0; i < WORKLOADS; i++) {
        char words[32];
        snprintf(words, sizeof words, "steps=20 pace=%" PRIu64, own_ns[i]);
        struct flw_trace *own = make(&workloads[i], "steps=20"), *same = make(&workloads[i], words);
        struct flw_trace *slow = make(&workloads[i], "steps=20 pace=1000000");
        uint64_t longest_ns = 0;
        assert_int_equal(slow->event_count, own->event_count);
        for (size_t j = 1; j < own->event_count; j++) {
            const struct flw_trace_event *event = &own->events[j];
            assert_true(event->time_ns == same->events[j].time_ns);
            assert_true(event->op == slow->events[j].op);
            assert_true(event->size_bytes == slow->events[j].size_bytes);
            if (event->op != FLW_TRACE_PHASE_END) {
                longest_ns = flw_max(longest_ns, event->time_ns - event[-1].time_ns);
            }
        }
        assert_in_range(longest_ns, own_ns[i], most_gap_ns(own_ns[i]));
        uint64_t launches = own->alloc_count; /* at least */
        assert_true(slow->events[slow->event_count - 1].time_ns >= launches * 900000);
        flw_trace_destroy(own);
        flw_trace_destroy(same);
        flw_trace_destroy(slow);
    }
}

static void other_stream_counts_than_a_workload_has_are_refused(void **state)
{
    static const struct {
        const char *words, *message;
    } refused[] = {
        {"workload=serving streams=5", "--streams 5: serving has 4; leave it out"},
        {"workload=shard streams=64", "--streams 64: shard has 3; leave it out"},
        {"workload=experts streams=1", "--streams 1: experts has 3; leave it out"},
        {"workload=offload streams=2", "--streams 2: offload needs 3 to 64"},
        {"workload=images streams=1", "--streams 1: images needs 3 to 64"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_null(bed_try("streams", refused[i].words));
        assert_string_equal(bed_message, refused[i].message);
    }
    flw_trace_destroy(bed_make("streams", "workload=shard streams=3 steps=1"));
}

static void outputs_are_those_of_version_1(void **state)
{
    static const struct bed_golden golden[] = {
        {"streams", "workload=serving steps=40", UINT64_C(0x8b9161e2b3c0b005)},
        {"streams", "workload=offload steps=3", UINT64_C(0x8632ca23f3ff76e4)},
        {"streams", "workload=shard steps=3", UINT64_C(0xc3d9211dacc4d6de)},
        {"streams", "workload=images steps=20", UINT64_C(0x345e4cd683cb8680)},
        {"streams", "workload=experts steps=3", UINT64_C(0xa1d34c0f17d88f3f)},
    };
    (void)state;
    bed_expect_golden(golden, sizeof golden / sizeof *golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_workload_is_balanced_and_reproducible),
        cmocka_unit_test(a_default_trace_has_hundreds_of_steps_and_some_gibibytes),
        cmocka_unit_test(twice_the_bytes_are_twice_the_peak),
        cmocka_unit_test(every_stream_allocates),
        cmocka_unit_test(blocks_go_from_stream_to_stream_as_the_workload_says),
        cmocka_unit_test(no_step_asks_for_the_sizes_of_another),
        cmocka_unit_test(the_host_runs_ahead_within_a_step),
        cmocka_unit_test(a_pace_is_the_time_from_launch_to_launch),
        cmocka_unit_test(other_stream_counts_than_a_workload_has_are_refused),
        cmocka_unit_test(outputs_are_those_of_version_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
