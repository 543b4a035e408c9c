/* SPDX-License-Identifier: Apache-2.0
 *
 * The pytorch policy against recordings of PyTorch: on traces that start cold every address and every segment must
 * equal the recorded one; on warm ones the model starts from the recorded heap. And random programs against the model's
 * invariants. The device is a table of functions, so nothing but the policy is tested here.
 */
#include "support/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "trace/formats/formats.h"
#include "trace/trace/trace.h"

#include "common/program.h"
#include "common/replay_device.h"
#include "policies/policy.h"
#include "policies/pytorch_model.h"

#include "support/fake_device.h"

/* Replays a whole trace; the caller reads the statistics. */
static void replay_trace(const struct flw_trace *trace, struct flw_policy_statistics *out)
{
    char message[FLW_POLICY_MESSAGE_BYTES];
    struct flw_program *program = flw_program_create(trace, false);
    assert_non_null(program);
    uint64_t *addresses = test_calloc(program->block_count, sizeof *addresses);
    struct flw_device device = *fake_device(1ull << 50);
    const struct flw_policy *policy = &flw_policy_pytorch;
    struct flw_policy_setup setup = {
        .policy = policy, .device = &device, .trace = trace, .program = program};
    void *self = policy->create(&setup, message);
    assert_non_null(self);
    for (size_t i = 0; i < program->op_count; i++) {
        const struct flw_op *op = &program->ops[i];
        if (op->kind == FLW_OP_ALLOC) {
            assert_true(policy->alloc(self, op, &addresses[op->block]));
            assert_int_not_equal(addresses[op->block], 0);
        } else if (op->kind == FLW_OP_FREE) {
            assert_true(policy->free(self, op, addresses[op->block]));
        } else {
            policy->advance(self, op);
        }
    }
    memset(out, 0xff, sizeof *out);
    policy->get_statistics(self, out);
    policy->finish(self);
    assert_int_equal(fake_room_bytes, 1ull << 50);
    test_free(addresses);
    flw_program_destroy(program);
}

static void replay(const char *name, struct flw_policy_statistics *out)
{
    char path[1024];
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace = NULL;
    snprintf(path, sizeof path, "%s/%s.pickle.xz", getenv("FALLOW_TRACE_DIR"), name);
    if (!flw_trace_read(path, -1, &trace, message)) {
        fail_msg("%s", message);
    }
    replay_trace(trace, out);
    uint64_t recorded_bytes = trace->recorded_peak_reserved_bytes;
    printf("%s: %" PRIu64 " of %" PRIu64 " addresses (%.1f %%), %" PRIu64 " of %" PRIu64
           " segments, peak %" PRIu64 " bytes against %" PRIu64 " recorded\n",
           name, out->match_count, out->compare_count,
           100.0 * (double)out->match_count / (double)out->compare_count, out->segment_count,
           out->recorded_segment_count, out->peak_reserved_bytes, recorded_bytes);
    assert_true(recorded_bytes != 0);
    assert_in_range(out->peak_reserved_bytes, recorded_bytes - recorded_bytes / 100,
                    recorded_bytes + recorded_bytes / 100);
    if (out->match_count == out->compare_count) {
        assert_int_equal(out->peak_reserved_bytes, recorded_bytes);
    }
    flw_trace_destroy(trace);
}

static void fine_tuning_from_cold_has_every_recorded_address_and_segment(void **state)
{
    struct flw_policy_statistics statistics;
    replay("decomfl_opt_zo_finetune", &statistics);
    assert_int_equal(statistics.compare_count, 7946);
    assert_int_equal(statistics.match_count, 7946);
    assert_int_equal(statistics.segment_count, 61);
    assert_int_equal(statistics.recorded_segment_count, 61);
    assert_true(statistics.has_same_segments);
    assert_false(statistics.is_seeded);
}

static void naive_attention_from_cold_has_every_recorded_address_and_segment(void **state)
{
    struct flw_policy_statistics statistics;
    replay("attention_naive_bench", &statistics);
    assert_int_equal(statistics.compare_count, 36);
    assert_int_equal(statistics.match_count, 36);
    assert_int_equal(statistics.segment_count, 9);
    assert_true(statistics.has_same_segments);
}

static void warm_traces_continue_from_the_recorded_heap_with_every_address(void **state)
{
    static const char *const names[] = {"cs336_medium_train_ctx1024", "cs336_medium_infer_ctx1024",
                                        "cs336_attention_train", "cs336_large_train"};
    struct flw_policy_statistics statistics;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        replay(names[i], &statistics);
        assert_true(statistics.is_seeded);
        assert_true(statistics.compare_count > 1000);
        assert_int_equal(statistics.match_count, statistics.compare_count);
        assert_true(statistics.has_same_segments);
    }
}

/* ---- recordings written by hand ---- */

static void replay_text(const char *lines, struct flw_policy_statistics *out)
{
    char text[2048];
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace = NULL;
    int length =
        snprintf(text, sizeof text,
                 "#fallow-trace 1\ndevice 0\nstream 0\nfields addresses segments\n%s", lines);
    if (!flw_trace_read_bytes(text, (size_t)length, "text", -1, &trace, message)) {
        fail_msg("%s", message);
    }
    replay_trace(trace, out);
    flw_trace_destroy(trace);
}

static void a_block_is_free_when_its_recorded_free_is_complete(void **state)
{
    struct flw_policy_statistics statistics;
    replay_text("S+ 0 2097152 0 @1073741824\n"
                "A 0 0 1024 0 @1073741824\n"
                "F 0 0 0\n"
                "A 0 1 1024 0 @1073742848\n" /* the first is not complete */
                "C 0 0 0\n"
                "A 0 2 1024 0 @1073741824\n"
                "F 0 1 0\n"
                "F 0 2 0\n"
                "C 0 1 0\n"
                "C 0 2 0\n"
                "A 0 3 2048 0 @1073741824\n", /* both, and joined */
                &statistics);
    assert_int_equal(statistics.compare_count, 4);
    assert_int_equal(statistics.match_count, 4);
    assert_int_equal(statistics.segment_count, 1);
}

static void a_private_pool_shares_nothing_and_keeps_what_it_has(void **state)
{
    struct flw_policy_statistics statistics;
    replay_text("S+ 0 2097152 0 @1073741824\n"
                "A 0 0 1024 0 @1073741824\n"
                "F 0 0 0\n"
                "S+ 0 2097152 0 @1077936128 pool=1\n"
                "A 0 1 1024 0 @1077936128 pool=1\n"
                "F 0 1 0\n"
                "A 0 2 1024 0 @1073741824\n"
                "X 0\n"
                "A 0 3 1024 0 @1077936128 pool=1\n",
                &statistics);
    assert_int_equal(statistics.compare_count, 4);
    assert_int_equal(statistics.match_count, 4);
    assert_int_equal(statistics.segment_count, 2);
    assert_true(statistics.has_same_segments);
    replay_text("S 0 2097152 0 small @1073741824 pool=1\n"
                "P 0 0 1024 0 @1073741824 pool=1\n"
                "S+ 0 2097152 0 @1077936128\n"
                "A 0 1 1024 0 @1077936128\n"
                "A 0 2 1024 0 @1073742848 pool=1\n",
                &statistics);
    assert_true(statistics.is_seeded);
    assert_int_equal(statistics.compare_count, 2);
    assert_int_equal(statistics.match_count, 2);
}

static void a_heap_that_does_not_add_up_is_not_started_from(void **state)
{
    struct flw_policy_statistics statistics;
    replay_text("S 0 2097152 0 small @1073741824\n"
                "S 0 2097152 0 small @1077936128\n"
                "P 0 0 1024 0 @1073741824\n"
                "P 0 1 1024 0 @1090000000\n" /* in no segment */
                "A 0 2 1024 0 @1073742848\n",
                &statistics);
    assert_false(statistics.is_seeded);
    assert_true(statistics.compare_count == FLW_NOT_APPLICABLE);
    assert_int_equal(statistics.peak_reserved_bytes, 2 * FLW_MIB); /* not the first attempt's */
}

/* ---- random programs ---- */

#define LIVE_COUNT 300

static const struct flw_lanes lanes = {.stream_count = 4};

static void expect_disjoint(struct flw_pytorch_block *const *live)
{
    for (size_t i = 0; i < LIVE_COUNT; i++) {
        for (size_t j = 0; live[i] != NULL && j < i; j++) {
            assert_true(live[j] == NULL ||
                        live[i]->address + live[i]->size_bytes <= live[j]->address ||
                        live[j]->address + live[j]->size_bytes <= live[i]->address);
        }
    }
}

static void run_random_program(const struct flw_pytorch_settings *settings, uint64_t *seed)
{
    struct flw_pytorch_block *live[LIVE_COUNT] = {0};
    struct flw_pytorch_model model;
    flw_pytorch_init(&model, fake_device(2 * FLW_GIB), &lanes, settings);
    size_t failure_count = 0;
    for (int i = 0; i < 20000; i++) {
        size_t slot = flw_test_random(seed) % LIVE_COUNT;
        if (live[slot] != NULL) {
            flw_pytorch_free(&model, live[slot]);
            live[slot] = NULL;
        } else {
            uint64_t bytes = 1 + flw_test_random(seed) % (1ull << (8 + flw_test_random(seed) % 19));
            live[slot] = flw_pytorch_alloc(&model, bytes, (uint16_t)(flw_test_random(seed) % 3));
            failure_count += live[slot] == NULL;
            assert_true(live[slot] == NULL || live[slot]->size_bytes >= bytes);
            assert_true(live[slot] == NULL || !live[slot]->is_free);
        }
        if (i % 500 == 0) {
            assert_true(flw_pytorch_heap_is_valid(&model.heap));
        }
        if (i % 3000 == 0) {
            flw_pytorch_release_cached(&model);
        }
        assert_int_equal(model.heap.reserved_bytes, 2 * FLW_GIB - fake_room_bytes);
    }
    expect_disjoint(live);
    assert_true(failure_count < 20000 / 2);
    flw_pytorch_finish(&model);
    assert_int_equal(fake_room_bytes, 2 * FLW_GIB);
    assert_int_equal(fake_region_count, 0);
}

static void random_programs_keep_the_invariants_and_give_no_byte_twice(void **state)
{
    uint64_t seed = flw_test_seed("pytorch_policy");
    struct flw_pytorch_settings settings = flw_pytorch_standard;
    run_random_program(&settings, &seed);
    settings.max_split_bytes = 24 * FLW_MIB;
    run_random_program(&settings, &seed);
    settings.collect_bytes = FLW_GIB;
    settings.roundup_divisions = 4;
    run_random_program(&settings, &seed);
    settings.address_room_bytes = 4 * FLW_GIB;
    run_random_program(&settings, &seed);
    settings.max_split_bytes = UINT64_MAX;
    run_random_program(&settings, &seed);
}

static void a_full_device_gives_cached_segments_back_before_it_fails(void **state)
{
    struct flw_pytorch_model model;
    flw_pytorch_init(&model, fake_device(40 * FLW_MIB), &lanes, &flw_pytorch_standard);
    struct flw_pytorch_block *first = flw_pytorch_alloc(&model, 30 * FLW_MIB, 0);
    assert_non_null(first);
    assert_null(flw_pytorch_alloc(&model, 30 * FLW_MIB, 1));
    flw_pytorch_free(&model, first);
    assert_int_equal(fake_room_bytes, 10 * FLW_MIB);
    assert_non_null(flw_pytorch_alloc(&model, 30 * FLW_MIB, 1));
    assert_int_equal(fake_room_bytes, 10 * FLW_MIB);
    flw_pytorch_finish(&model);
}

static void a_seed_that_does_not_add_up_is_refused(void **state)
{
    struct flw_trace_block live[] = {{.address = 1ull << 30, .size_bytes = 2048},
                                     {.address = (1ull << 30) + 1024, .size_bytes = 512}};
    struct flw_pytorch_block *blocks[2];
    struct flw_pytorch_model model;
    struct flw_pytorch_seed seed = {
        .address = 1ull << 30, .size_bytes = 2 * FLW_MIB, .blocks = live, .block_count = 2};
    flw_pytorch_init(&model, fake_device(FLW_GIB), &lanes, &flw_pytorch_standard);
    assert_false(flw_pytorch_seed_fits(&model, &seed)); /* overlapping */
    assert_int_equal(fake_room_bytes, FLW_GIB);
    live[0].size_bytes = 600; /* 1,024 bytes, exactly up to the second */
    assert_true(flw_pytorch_seed_fits(&model, &seed) && flw_pytorch_seed(&model, &seed, blocks));
    assert_true(flw_pytorch_heap_is_valid(&model.heap));
    assert_int_equal(blocks[1]->address, live[1].address);
    assert_int_equal(flw_pytorch_alloc(&model, 512, 0)->address, live[1].address + 512);
    flw_pytorch_finish(&model);
}

int main(void)
{
    const struct CMUnitTest always[] = {
        cmocka_unit_test(random_programs_keep_the_invariants_and_give_no_byte_twice),
        cmocka_unit_test(a_full_device_gives_cached_segments_back_before_it_fails),
        cmocka_unit_test(a_seed_that_does_not_add_up_is_refused),
        cmocka_unit_test(a_block_is_free_when_its_recorded_free_is_complete),
        cmocka_unit_test(a_private_pool_shares_nothing_and_keeps_what_it_has),
        cmocka_unit_test(a_heap_that_does_not_add_up_is_not_started_from),
    };
    const struct CMUnitTest recorded[] = {
        cmocka_unit_test(fine_tuning_from_cold_has_every_recorded_address_and_segment),
        cmocka_unit_test(naive_attention_from_cold_has_every_recorded_address_and_segment),
        cmocka_unit_test(warm_traces_continue_from_the_recorded_heap_with_every_address),
    };
    const char *folder = getenv("FALLOW_TRACE_DIR");
    int failed = cmocka_run_group_tests(always, NULL, NULL);
    if (folder == NULL || access(folder, R_OK) != 0) {
        printf("no recorded traces in FALLOW_TRACE_DIR: the recordings were not compared\n");
        return failed != 0 ? failed : FLW_TEST_SKIPPED;
    }
    return failed + cmocka_run_group_tests(recorded, NULL, NULL);
}
