/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the contents of a pool's recording, read back with the trace library: every call, initial
 * blocks, captures, failures, lost records. */
#include "unit/record/test_recorder.h"
#include "support/trim.h"

#include <signal.h>
#include <sys/stat.h>

/* ---- recorded events */

TEST(every_size_and_both_streams_are_on_record_in_order)
{
    static const size_t sizes[] = {1, 512, 4096, 100000, MIB, 3 * MIB, 40 * MIB};
    enum {
        COUNT = sizeof sizes / sizeof *sizes,
        ROUNDS = 5
    };
    void *blocks[2][COUNT];
    begin_bed();
    start(0, 0);
    CUstream streams[] = {bed.api.stream, bed.api.other};
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < 2 * COUNT; i++) {
            blocks[i % 2][i / 2] = api_alloc(&bed.api, sizes[i / 2], streams[i % 2]);
        }
        for (size_t i = 0; i < 2 * COUNT; i++) {
            if (round % 2 == 0) {
                free_block(blocks[i % 2][i / 2], streams[i % 2]);
            } else {
                assert_ok(fallow_free_sized(bed.api.pool, blocks[i % 2][i / 2], sizes[i / 2],
                                            streams[i % 2]));
            }
        }
    }
    struct flw_trace *trace = stop_and_read();
    assert_int_equal(trace->initial_count, 0);
    assert_int_equal(trace->event_count, ROUNDS * 4 * COUNT);
    assert_int_equal(trace->stream_count, 2);
    for (size_t i = 0; i < trace->event_count; i++) {
        const struct flw_trace_event *event = &trace->events[i];
        size_t place = i % (2 * COUNT);
        bool is_free = i / (2 * COUNT) % 2 == 1;
        assert_int_equal(event->op, is_free ? FLW_TRACE_FREE : FLW_TRACE_ALLOC);
        assert_int_equal(event->size_bytes, sizes[place / 2]);
        assert_int_equal(event->stream, place % 2);
        assert_true(event->address != 0);
    }
    fallow_stats stats = api_stats(&bed.api);
    assert_true(trace->peak_requested_bytes == stats.peak_requested_bytes);
    assert_true(stats.hit_count > 0);
    end_bed();
}

TEST(blocks_from_before_are_the_start_of_the_trace)
{
    begin_bed();
    void *stays = api_alloc(&bed.api, 3000, bed.api.stream);
    void *goes = api_alloc(&bed.api, 5 * MIB, bed.api.other);
    void *gone = api_alloc(&bed.api, 3000, bed.api.stream);
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = 700;
    request.tag = 9;
    void *tagged = NULL;
    assert_int_equal(fallow_alloc_request(bed.api.pool, &request, bed.api.stream, &tagged), 0);
    free_block(gone, bed.api.stream);
    start(0, 0);
    free_block(goes, bed.api.other);
    struct flw_trace *trace = stop_and_read();
    assert_int_equal(trace->initial_count, 3);
    assert_int_equal(trace->event_count, 1);
    assert_true(trace->peak_requested_bytes == 3000 + 700 + 5 * MIB);
    struct flw_trace_walk walk = {0};
    for (size_t i = 0; i < 3; i++) {
        const struct flw_trace_block *block = &trace->blocks[i];
        bool is_tagged = block->address == (uint64_t)(uintptr_t)tagged;
        assert_int_equal(flw_trace_walk_context(trace, &walk, i)->tag, is_tagged ? 9 : 0);
        assert_int_equal(block->freed, block->address == (uint64_t)(uintptr_t)goes);
        assert_true(block->freed || is_tagged || block->address == (uint64_t)(uintptr_t)stays);
    }
    assert_int_equal(trace->blocks[trace->events[0].block].size_bytes, 5 * MIB);
    free_block(stays, bed.api.stream);
    free_block(tagged, bed.api.stream);
    end_bed();
}

TEST(tags_uses_trims_and_phases_are_on_record)
{
    size_t at;
    begin_bed();
    start(0, 0);
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = 5000;
    request.tag = 0x80000007u;
    void *ptr = NULL;
    assert_ok(fallow_record_phase_begin(bed.recorder, "prefill"));
    assert_int_equal(fallow_alloc_request(bed.api.pool, &request, bed.api.stream, &ptr), 0);
    assert_ok(fallow_record_use(bed.api.pool, ptr, bed.api.other));
    free_block(ptr, bed.api.stream);
    assert_ok(fallow_record_phase_end(bed.recorder, "prefill"));
    assert_ok(fallow_record_mark(bed.recorder, "now"));
    assert_ok(fallow_record_mark(bed.recorder, "now"));
    assert_ok(flw_test_trim(bed.api.pool, 0));
    assert_int_equal(fallow_record_mark(bed.recorder, ""), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_record_mark(bed.recorder, "a\nb"), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_record_mark(bed.recorder, NULL), FALLOW_INVALID_ARGUMENT);
    struct flw_trace *trace = stop_and_read();
    static const uint8_t ops[] = {FLW_TRACE_PHASE_BEGIN, FLW_TRACE_ALLOC,      FLW_TRACE_USE,
                                  FLW_TRACE_FREE,        FLW_TRACE_PHASE_END,  FLW_TRACE_MARK,
                                  FLW_TRACE_MARK,        FLW_TRACE_EMPTY_CACHE};
    assert_int_equal(trace->event_count, sizeof ops);
    for (size_t i = 0; i < sizeof ops; i++) {
        assert_int_equal(trace->events[i].op, ops[i]);
    }
    const struct flw_trace_event *use = event_of(trace, FLW_TRACE_USE, ptr, &at);
    struct flw_trace_walk walk = {0};
    assert_int_not_equal(use->stream, trace->events[1].stream);
    assert_true(flw_trace_walk_context(trace, &walk, 1)->tag == 0x80000007u);
    memset(&walk, 0, sizeof walk);
    assert_string_equal(flw_trace_name(trace, flw_trace_walk_detail(trace, &walk, 0)), "prefill");
    assert_string_equal(flw_trace_name(trace, flw_trace_walk_detail(trace, &walk, 4)), "prefill");
    assert_string_equal(flw_trace_name(trace, flw_trace_walk_detail(trace, &walk, 6)), "now");
    assert_int_equal(trace->names.count, 2);
    end_bed();
}

TEST(a_capture_is_on_record_with_its_blocks)
{
    fallow_capture *capture = NULL;
    size_t at;
    begin_bed();
    start(0, 0);
    assert_ok(fallow_capture_begin(bed.api.pool, bed.api.stream, &capture));
    void *captured = api_alloc(&bed.api, 70000, bed.api.stream);
    free_block(captured, bed.api.stream);
    assert_ok(fallow_capture_end(capture));
    void *plain = api_alloc(&bed.api, 70000, bed.api.stream);
    assert_ok(fallow_capture_release(capture));
    free_block(plain, bed.api.stream);
    struct flw_trace *trace = stop_and_read();
    struct flw_trace_walk walk = {0};
    assert_int_equal(trace->event_count, 6);
    assert_int_equal(trace->events[0].op, FLW_TRACE_POOL_BEGIN);
    event_of(trace, FLW_TRACE_ALLOC, captured, &at);
    assert_int_equal(at, 1);
    assert_true(flw_trace_walk_context(trace, &walk, 1)->pool != 0);
    assert_int_equal(trace->events[3].op, FLW_TRACE_POOL_END);
    assert_int_equal(flw_trace_walk_context(trace, &walk, 4)->pool, 0);
    assert_int_equal(trace->events[4].op, FLW_TRACE_ALLOC);
    end_bed();
}

TEST(a_pool_with_debug_checks_is_recorded_as_its_user_sees_it)
{
    size_t at;
    begin_bed();
    fallow_pool_destroy(bed.api.pool);
    flw_sim_config world = flw_sim_config_default(3);
    world.backed = 1;
    flw_sim_begin(&bed.api.sim, &world);
    assert_ok(bed.api.sim.cu.cuStreamCreate(&bed.api.stream, CU_STREAM_NON_BLOCKING));
    fallow_pool_config config = api_config(&bed.api);
    config.checks = FALLOW_CHECK_RED_ZONES | FALLOW_CHECK_QUARANTINE;
    assert_ok(fallow_pool_create(&config, &bed.api.pool));
    void *before = api_alloc(&bed.api, 1000, bed.api.stream);
    void *freed = api_alloc(&bed.api, 1000, bed.api.stream);
    free_block(freed, bed.api.stream); /* in quarantine: not allocated */
    start(0, 0);
    void *ptr = api_alloc(&bed.api, 4096, bed.api.stream);
    free_block(before, bed.api.stream);
    free_block(ptr, bed.api.stream);
    struct flw_trace *trace = stop_and_read();
    assert_int_equal(trace->initial_count, 1);
    assert_int_equal(trace->event_count, 3);
    assert_int_equal(event_of(trace, FLW_TRACE_ALLOC, ptr, &at)->size_bytes, 4096);
    assert_int_equal(event_of(trace, FLW_TRACE_FREE, before, &at)->size_bytes, 1000);
    end_bed();
}

TEST(a_failure_is_on_record_and_dumps_the_flight_recorder)
{
    size_t at;
    begin_bed();
    fallow_pool_destroy(bed.api.pool);
    fallow_pool_config config = api_config(&bed.api);
    config.limit_bytes = 64 * MIB;
    assert_ok(fallow_pool_create(&config, &bed.api.pool));
    void *stays = api_alloc(&bed.api, 30 * MIB, bed.api.stream), *none = NULL;
    start(FALLOW_RECORD_RING_ONLY | FALLOW_RECORD_DUMP_ON_OOM, 0);
    assert_int_equal(access(bed.path, F_OK), -1);
    void *more = api_alloc(&bed.api, 10 * MIB, bed.api.stream);
    assert_int_equal(fallow_alloc(bed.api.pool, 100 * MIB, bed.api.stream, &none),
                     FALLOW_OUT_OF_MEMORY);
    struct flw_trace *trace = read_trace();
    assert_null(trace->truncation);
    assert_int_equal(trace->initial_count, 1);
    assert_true(trace->blocks[0].address == (uint64_t)(uintptr_t)stays);
    const struct flw_trace_event *oom = event_of(trace, FLW_TRACE_OOM, NULL, &at);
    struct flw_trace_walk walk = {0};
    assert_true(oom->size_bytes == 100 * MIB);
    const struct flw_trace_detail *detail = flw_trace_walk_detail(trace, &walk, at);
    assert_true(detail->largest_bytes <= 24 * MIB);
    assert_true(detail->free_bytes <= 80 * (uint64_t)1024 * MIB);
    assert_true((bed.api.sim.fail)("cuMemGetInfo_v2", 1, CUDA_ERROR_INVALID_VALUE, 0) != 0);
    assert_int_equal(fallow_alloc(bed.api.pool, 100 * MIB, bed.api.stream, &none),
                     FALLOW_OUT_OF_MEMORY);
    fallow_oom_report report;
    fallow_oom_report_init(&report);
    assert_ok(fallow_pool_get_oom_report(bed.api.pool, &report));
    assert_true(report.device_free_bytes == UINT64_MAX);
    trace = read_trace();
    assert_true(trace->details[trace->detail_count - 1].free_bytes == FLW_TRACE_UNKNOWN);
    free_block(stays, bed.api.stream);
    free_block(more, bed.api.stream);
    assert_ok(fallow_record_stop(bed.recorder));
    end_bed();
}

/* ---- the flight recorder */

TEST(a_dump_has_the_last_records_and_what_was_allocated_before_them)
{
    enum {
        KEPT = 128 /* records in the smallest ring */
    };
    void *blocks[10];
    begin_bed();
    start(FALLOW_RECORD_RING_ONLY, 1);
    for (int i = 0; i < 10; i++) {
        blocks[i] = api_alloc(&bed.api, 1000 + (size_t)i, bed.api.stream);
    }
    for (int i = 0; i < 10 * KEPT; i++) {
        free_block(blocks[i % 5], bed.api.stream);
        blocks[i % 5] = api_alloc(&bed.api, 2000, bed.api.stream);
    }
    free_block(blocks[7], bed.api.stream);
    assert_ok(fallow_record_dump(bed.recorder, NULL));
    struct flw_trace *trace = read_trace();
    assert_null(trace->truncation);
    assert_int_equal(trace->unknown_free_count, 0);
    assert_int_equal(trace->lost_free_count, 0);
    assert_in_range(trace->event_count, KEPT - 2, KEPT);
    assert_in_range(trace->initial_count, 9, 10); /* one may be just in between */
    assert_true(trace->events[trace->event_count - 1].address == (uint64_t)(uintptr_t)blocks[7]);
    assert_int_equal(flw_recording_count(trace, FLW_TRACE_DROP), 0);
    uint64_t live = 0;
    for (size_t i = 0; i < trace->block_count; i++) {
        live += trace->blocks[i].freed ? 0 : trace->blocks[i].size_bytes;
    }
    assert_true(live == api_stats(&bed.api).requested_bytes);
    char other[80];
    snprintf(other, sizeof other, "%s/missing/a.ftrace", bed.folder);
    assert_int_equal(fallow_record_dump(bed.recorder, other), FALLOW_IO);
    assert_non_null(strstr(bed.api.log, other));
    assert_ok(fallow_record_stop(bed.recorder));
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fallow_free(bed.api.pool, blocks[i], bed.api.stream),
                         i == 7 ? FALLOW_INVALID_POINTER : FALLOW_OK);
    }
    end_bed();
}

TEST(a_dump_has_the_mode_of_other_new_files)
{
    struct stat facts;
    begin_bed();
    start(FALLOW_RECORD_RING_ONLY, 1);
    char left[96]; /* as by a process of that number that was killed */
    snprintf(left, sizeof left, "%s.%d-0", bed.path, (int)getpid());
    mode_t before = umask(027);
    FILE *file = fopen(left, "wx");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_ok(fallow_record_dump(bed.recorder, NULL));
    umask(before);
    assert_int_equal(stat(bed.path, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0640);
    assert_int_equal(stat(left, &facts), 0);
    assert_int_equal(facts.st_size, 0);
    assert_int_equal(unlink(left), 0);
    assert_ok(fallow_record_stop(bed.recorder));
    end_bed(); /* the folder has no other file */
}

TEST(a_signal_dumps_the_flight_recorder)
{
    struct sigaction before;
    begin_bed();
    assert_int_equal(sigaction(SIGUSR2, NULL, &before), 0);
    fallow_record_config config = file_config();
    config.flags = FALLOW_RECORD_RING_ONLY;
    config.dump_signal = SIGUSR2;
    assert_ok(fallow_record_start(bed.api.pool, &config, &bed.recorder));
    void *ptr = api_alloc(&bed.api, 5000, bed.api.stream);
    assert_int_equal(kill(getpid(), SIGUSR2), 0);
    while (access(bed.path, F_OK) != 0) {
        usleep(1000);
    }
    struct flw_trace *trace = read_trace();
    assert_null(trace->truncation);
    assert_int_equal(trace->event_count, 1);
    assert_ok(fallow_record_stop(bed.recorder));
    struct sigaction after;
    assert_int_equal(sigaction(SIGUSR2, NULL, &after), 0);
    assert_true(after.sa_handler == before.sa_handler);
    free_block(ptr, bed.api.stream);
    end_bed();
}

/* ---- lost records are reported */

TEST(a_full_ring_says_how_many_records_were_lost)
{
    enum {
        PAIRS = 20000
    };
    uint64_t lost = 0;
    begin_bed();
    start(0, 1); /* 128 records: written faster than any flusher */
    for (int i = 0; i < PAIRS; i++) {
        free_block(api_alloc(&bed.api, 1000, bed.api.stream), bed.api.stream);
    }
    bed.api.log[0] = '\0';
    assert_int_equal(fallow_record_stop(bed.recorder), FALLOW_RECORDS_LOST);
    assert_int_equal(fallow_record_stop(bed.recorder), FALLOW_INVALID_RECORDER);
    struct flw_trace *trace = read_trace();
    assert_null(trace->truncation);
    for (size_t i = 0; i < trace->detail_count; i++) {
        lost += trace->details[i].lost_count;
    }
    uint64_t put_in = trace->lost_free_count, left_out = trace->unknown_free_count;
    uint64_t blocks =
        flw_recording_count(trace, FLW_TRACE_ALLOC) + flw_recording_count(trace, FLW_TRACE_FREE);
    assert_true(lost > 0);
    assert_true(blocks + left_out - put_in + lost == 2 * PAIRS);
    char counts[80];
    snprintf(counts, sizeof counts, "%llu of %d events", (unsigned long long)lost, 2 * PAIRS);
    assert_non_null(strstr(bed.api.log, counts));
    assert_non_null(strstr(bed.api.log, bed.path));
    assert_non_null(strstr(bed.api.log, "FALLOW_RECORD_BLOCK_WHEN_FULL"));
    start(0, 0); /* the recorder has ended: the pool can be recorded anew */
    (void)stop_and_read();
    end_bed();
}

TEST(a_thread_that_waits_for_room_loses_nothing)
{
    enum {
        PAIRS = 5000
    };
    begin_bed();
    start(FALLOW_RECORD_BLOCK_WHEN_FULL, 1);
    for (int i = 0; i < PAIRS; i++) {
        free_block(api_alloc(&bed.api, 1000, bed.api.stream), bed.api.stream);
    }
    struct flw_trace *trace = stop_and_read();
    assert_int_equal(trace->event_count, 2 * PAIRS);
    end_bed();
}

FLW_TEST_MAIN(NULL, NULL)
