/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the tests of the generators `random` and `adversarial`, and of what all generators share.
 */
#include "unit/trace/test_gen_bed.h"

#include "base/bits.h"

/* ---- what all share ---- */

static void every_option_starts_within_its_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; flw_gen_get(i) != NULL; i++) {
        const struct flw_gen_kind *kind = flw_gen_get(i);
        assert_ptr_equal(flw_gen_find(kind->name), kind);
        assert_in_range(kind->option_count, 1, FLW_GEN_OPTIONS_MAX);
        for (size_t j = 0; j < kind->option_count; j++) {
            const struct flw_gen_option *option = &kind->options[j];
            assert_int_equal(flw_gen_find_option(kind, option->name), j);
            assert_true(option->initial >= option->low && option->initial <= option->high);
            if (option->kind == FLW_GEN_CHOICE) {
                assert_non_null(option->words[option->high]);
                assert_null(option->words[option->high + 1]);
            }
        }
    }
}

static void the_header_has_the_command_line(void **state)
{
    (void)state;
    struct flw_trace *trace = bed_make("random", "count=5 max=1000 seed=7");
    assert_non_null(strstr(trace->notes, "generator random 1\n"));
    assert_non_null(strstr(trace->notes, "command fallow gen random --pattern rmm --count 5 "
                                         "--max 1000 --cap 16777216000 "));
    assert_non_null(strstr(trace->notes, " --seed 7\n"));
    assert_non_null(strstr(trace->notes, "alive_at_end 0 blocks, 0 bytes\n"));
    flw_trace_destroy(trace);
}

static void numbers_are_those_of_splitmix64(void **state)
{
    (void)state;
    struct flw_gen gen = {0};
    flw_gen_seed(&gen, 0); /* the first three of the published generator */
    assert_true(flw_gen_random(&gen) == UINT64_C(0xE220A8397B1DCDAF));
    assert_true(flw_gen_random(&gen) == UINT64_C(0x6E789E6AA1B965F4));
    assert_true(flw_gen_random(&gen) == UINT64_C(0x06C45D188009454F));
}

/* ---- adversarial ---- */

static void every_scenario_is_balanced_and_reproducible(void **state)
{
    (void)state;
    const char *const *names = flw_gen_find("adversarial")->options[0].words;
    for (size_t i = 0; names[i] != NULL; i++) {
        char words[128];
        char other[128];
        snprintf(words, sizeof(words), "scenario=%s cycles=9 jitter=10 seed=1", names[i]);
        snprintf(other, sizeof(other), "scenario=%s cycles=9 jitter=10 seed=2", names[i]);
        bed_expect_reproducible("adversarial", words, other);
        struct flw_trace *trace = bed_make("adversarial", words);
        assert_int_equal(bed_count_live_at_end(trace), 0);
        assert_int_equal(flw_recording_count(trace, FLW_TRACE_PHASE_END), 9);
        assert_in_range(trace->peak_requested_bytes, 60 * FLW_MIB, 5 * FLW_GIB);
        flw_trace_destroy(trace);
    }
}

static void the_pinning_scenario_has_the_sizes_that_were_reported(void **state)
{
    (void)state;
    struct flw_trace *trace =
        bed_make("adversarial", "scenario=pin-small-between-large cycles=100 size=4293918720");
    assert_int_equal(bed_count_size(trace, 91 * FLW_MIB), 100);
    assert_int_equal(bed_count_size(trace, 91 * FLW_MIB / 2), 100);
    assert_int_equal(bed_count_size(trace, 2 * FLW_MIB), 100);
    /* each cycle: two large ones beside what the cycles before left */
    assert_int_equal(trace->peak_requested_bytes, 91 * FLW_MIB * 3 / 2 + 200 * FLW_MIB);
    flw_trace_destroy(trace);
}

static void half_max_never_holds_more_than_the_whole(void **state)
{
    (void)state;
    struct flw_trace *trace = bed_make("adversarial", "scenario=half-max cycles=3 size=1073741824");
    assert_int_equal(trace->peak_requested_bytes, FLW_GIB);
    assert_int_equal(bed_count_size(trace, FLW_GIB), 3);
    assert_int_equal(bed_count_size(trace, FLW_GIB / 2), 3 * 4);
    assert_int_equal(bed_count_size(trace, FLW_GIB / 8), 3 * 8);
    flw_trace_destroy(trace);
}

static void the_comb_asks_for_twice_the_size_between_its_teeth(void **state)
{
    (void)state;
    struct flw_trace *trace =
        bed_make("adversarial", "scenario=comb-free cycles=2 size=1073741824");
    assert_int_equal(bed_count_size(trace, FLW_GIB / 64), 2 * 64);
    assert_int_equal(bed_count_size(trace, FLW_GIB / 32), 2 * 16);
    assert_int_equal(trace->peak_requested_bytes, FLW_GIB);
    flw_trace_destroy(trace);
}

/* ---- random ---- */

static void every_pattern_is_balanced_and_reproducible(void **state)
{
    (void)state;
    const char *const *names = flw_gen_find("random")->options[0].words;
    for (size_t i = 0; names[i] != NULL; i++) {
        char words[128];
        char other[128];
        snprintf(words, sizeof(words), "pattern=%s count=200 seed=1", names[i]);
        snprintf(other, sizeof(other), "pattern=%s count=%d seed=2", names[i],
                 strcmp(names[i], "kernels") == 0 ? 201 : 200); /* draws nothing */
        bed_expect_reproducible("random", words, other);
        struct flw_trace *trace = bed_make("random", words);
        assert_int_equal(bed_count_live_at_end(trace), 0);
        flw_trace_destroy(trace);
    }
}

static void random_sizes_and_live_bytes_keep_to_their_bounds(void **state)
{
    static const char *const words[] = {
        "pattern=rmm count=1000 max=1048576 cap=4194304",
        "pattern=rmm count=10000 max=268435456",
        "pattern=multi-stream count=4000 max=4294967296 threads=8 streams=3",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct flw_trace *trace = bed_make("random", words[i]);
        uint64_t max = i == 0 ? FLW_MIB : i == 1 ? 256 * FLW_MIB : 4 * FLW_GIB;
        for (size_t j = 0; j < trace->block_count; j++) {
            assert_in_range(trace->blocks[j].size_bytes, 1, max);
        }
        assert_true(trace->peak_requested_bytes < (i == 0 ? 4 * FLW_MIB : 16000 * FLW_MIB));
        flw_trace_destroy(trace);
    }
}

/* 2n steps, each an allocation or a free, with 73 allocations in a hundred until n are taken: what
 * is live grows to what 0.46 n steps leave, then falls. */
static void random_blocks_are_as_many_as_asked_for(void **state)
{
    (void)state;
    struct flw_trace *trace = bed_make("random", "pattern=rmm count=10000 max=1048576");
    assert_in_range(trace->alloc_count, 10000, 10010);
    assert_int_equal(trace->event_count, 2 * trace->alloc_count);
    int64_t live = 0;
    int64_t peak = 0;
    for (size_t i = 0; i < trace->event_count; i++) {
        live += trace->events[i].op == FLW_TRACE_ALLOC ? 1 : -1;
        peak = live > peak ? live : peak;
    }
    assert_in_range(peak, 6000, 6600); /* 10000 (1 - 27/73) = 6301 */
    flw_trace_destroy(trace);
}

static void several_streams_share_some_blocks(void **state)
{
    (void)state;
    struct flw_trace *none = bed_make("random", "pattern=multi-stream count=4000 shared=0");
    struct flw_trace *some = bed_make("random", "pattern=multi-stream count=4000 shared=50");
    assert_int_equal(none->stream_count, 4);
    assert_int_equal(flw_recording_count(none, FLW_TRACE_USE), 0);
    assert_in_range(flw_recording_count(some, FLW_TRACE_USE), 1600, 2200);
    for (size_t i = 0; i < some->event_count; i++) {
        const struct flw_trace_event *event = &some->events[i];
        bool is_shared = event->op == FLW_TRACE_USE;
        assert_int_equal(is_shared, event->stream != some->blocks[event->block].stream);
    }
    flw_trace_destroy(none);
    flw_trace_destroy(some);
}

static void queries_spill_above_four_fifths_of_the_device(void **state)
{
    (void)state;
    struct flw_trace *roomy = bed_make("random", "pattern=query count=100 cap=1099511627776");
    struct flw_trace *tight = bed_make("random", "pattern=query count=100 cap=6442450944");
    assert_int_equal(tight->stream_count, 2);
    assert_true(flw_recording_count(tight, FLW_TRACE_USE) >
                flw_recording_count(roomy, FLW_TRACE_USE));
    assert_true(tight->peak_requested_bytes < roomy->peak_requested_bytes);
    flw_trace_destroy(roomy);
    flw_trace_destroy(tight);
}

/* ---- golden ---- */

static void outputs_are_those_of_version_1(void **state)
{
    static const struct bed_golden golden[] = {
        {"random", "pattern=rmm count=50", UINT64_C(0xeaa852879c3cfad8)},
        {"random", "pattern=multi-stream count=50", UINT64_C(0x2144be6b74bb940f)},
        {"random", "pattern=kernels count=50", UINT64_C(0x7f4033430a17df82)},
        {"random", "pattern=query count=3", UINT64_C(0xdc7b19729ee86435)},
        {"adversarial", "scenario=sawtooth cycles=2", UINT64_C(0x40da9f5305540c24)},
        {"adversarial", "scenario=pin-small-between-large cycles=2", UINT64_C(0x089a82bbabe06075)},
        {"adversarial", "scenario=comb-free cycles=2", UINT64_C(0xbf60a38af28d53da)},
        {"adversarial", "scenario=alternating-streams cycles=2 jitter=20",
         UINT64_C(0xede13ad643d8c273)},
        {"adversarial", "scenario=half-max cycles=2", UINT64_C(0x1a615c014c1b3f74)},
        {"adversarial", "scenario=batch-size-change cycles=5", UINT64_C(0xe4d087a8be338027)},
    };
    (void)state;
    bed_expect_golden(golden, sizeof(golden) / sizeof(golden[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option_starts_within_its_bounds),
        cmocka_unit_test(the_header_has_the_command_line),
        cmocka_unit_test(numbers_are_those_of_splitmix64),
        cmocka_unit_test(every_scenario_is_balanced_and_reproducible),
        cmocka_unit_test(the_pinning_scenario_has_the_sizes_that_were_reported),
        cmocka_unit_test(half_max_never_holds_more_than_the_whole),
        cmocka_unit_test(the_comb_asks_for_twice_the_size_between_its_teeth),
        cmocka_unit_test(every_pattern_is_balanced_and_reproducible),
        cmocka_unit_test(random_sizes_and_live_bytes_keep_to_their_bounds),
        cmocka_unit_test(random_blocks_are_as_many_as_asked_for),
        cmocka_unit_test(several_streams_share_some_blocks),
        cmocka_unit_test(queries_spill_above_four_fifths_of_the_device),
        cmocka_unit_test(outputs_are_those_of_version_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
