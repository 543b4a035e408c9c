/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: every public call of a pool beside another thread's capture: it succeeds, or returns
 * CAPTURING without any change, and the capture continues. Does not: arenas, layouts, publishing
 * (test_beside_arena.c). */
#include "unit/pool/test_beside.h"

#include <stdlib.h>
#include <unistd.h>

#include "fallow/share.h"
#include "fallow/sleep.h"
#include "fallow/trace.h"
#include "support/trim.h"

static void *allocate(struct bed *bed, size_t bytes, CUstream stream)
{
    void *ptr = NULL;
    WORKS(bed, fallow_alloc(bed->api.pool, bytes, stream, &ptr));
    api_use(&bed->api, ptr, bytes, stream != NULL ? stream : bed->api.stream);
    return ptr;
}

/* Complete a stream's work, with a wait, in relaxed mode. */
static void finish(struct bed *bed, CUstream stream)
{
    const struct flw_driver *cu = &bed->api.sim.cu;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_int_equal(cu->cuThreadExchangeStreamCaptureMode(&mode), 0);
    assert_int_equal(cu->cuStreamSynchronize(stream), 0);
    assert_int_equal(cu->cuThreadExchangeStreamCaptureMode(&mode), 0);
}

static void give(struct bed *bed, void *ptr, CUstream stream)
{
    WORKS(bed, fallow_free(bed->api.pool, ptr, stream));
}

/* ---- life */

static void pools_come_and_go(enum flw_beside_place place)
{
    struct bed bed;
    fallow_stats stats;
    fallow_oom_report report;
    const char *call = NULL;
    begin_usual(&bed, place);
    give(&bed, allocate(&bed, 5 * MIB, bed.api.stream), bed.api.stream);
    fallow_stats_init(&stats);
    WORKS(&bed, fallow_pool_get_stats(bed.api.pool, &stats));
    fallow_oom_report_init(&report);
    WORKS(&bed, fallow_pool_get_oom_report(bed.api.pool, &report));
    WORKS(&bed, fallow_pool_validate(bed.api.pool));
    DO(&bed, assert_int_equal(fallow_pool_last_driver_error(bed.api.pool, &call), 0));
    DO(&bed, assert_non_null(fallow_pool_driver_entry(bed.api.pool, "cuInit")));
    DO(&bed, assert_ptr_equal(fallow_pool_context(bed.api.pool), bed.context));
    DO(&bed, assert_string_equal(fallow_status_name(FALLOW_OK), "FALLOW_OK"));
    DO(&bed, assert_non_null(fallow_status_message(FALLOW_CAPTURING)));
    end_bed(&bed);
}

/* A pool with these settings is made, used and ended. */
static void try_settings(struct bed *bed, const fallow_pool_config *config, CUstream stream)
{
    fallow_pool *pool = NULL, *usual = bed->api.pool;
    WORKS(bed, fallow_pool_create(config, &pool));
    bed->api.pool = pool;
    void *blocks[] = {allocate(bed, 700, stream), allocate(bed, 3 * MIB, stream)};
    give(bed, blocks[0], stream);
    give(bed, blocks[1], stream);
    WORKS(bed, fallow_pool_poll(pool));
    if (config->streams_may_die) {
        finish(bed, stream);
    }
    DO(bed, fallow_pool_destroy(pool));
    bed->api.pool = usual;
}

static void every_kind_of_pool_comes_and_goes(enum flw_beside_place place)
{
    struct bed bed;
    const int peer = 1;
    begin_usual(&bed, place);
    fallow_pool_config config = api_config(&bed.api);
    config.streams_may_die = 1; /* then no stream is queried, or waited for by itself */
    if (is_near(&bed)) {
        DO(&bed, fallow_context_capture_begin());
    }
    try_settings(&bed, &config, bed.api.stream);
    if (is_near(&bed)) {
        DO(&bed, fallow_context_capture_end());
    }
    config = api_config(&bed.api);
    config.checks =
        FALLOW_CHECK_POISON | FALLOW_CHECK_RED_ZONES | FALLOW_CHECK_QUARANTINE | FALLOW_CHECK_LEAKS;
    try_settings(&bed, &config, bed.api.stream);
    config = api_config(&bed.api);
    config.peer_devices = &peer;
    config.peer_device_count = 1;
    try_settings(&bed, &config, bed.api.stream);
    config = api_config(&bed.api);
    config.helper_thread = 1;
    config.decay_ms = 1;
    try_settings(&bed, &config, bed.api.stream);
    config = api_config(&bed.api);
    config.context = bed.context;
    config.reuse_policy = FALLOW_REUSE_SAME_STREAM;
    try_settings(&bed, &config, bed.api.stream);
    config = api_config(&bed.api);
    config.handle_types = FALLOW_HANDLE_FABRIC << 8; /* refused before a driver call */
    fallow_pool *none = NULL;
    ANSWERS(&bed, fallow_pool_create(&config, &none), FALLOW_INVALID_ARGUMENT);
    end_bed(&bed);
}

/* On a second device, and with no context current. */
static void a_first_pool_of_a_device_is_made(enum flw_beside_place place)
{
    struct bed bed;
    CUcontext none = NULL;
    fallow_pool *pool = NULL;
    begin_usual(&bed, place);
    fallow_pool_config config = api_config(&bed.api);
    config.device = 1;
    assert_int_equal(bed.api.sim.cu.cuCtxSetCurrent(NULL), 0);
    WORKS(&bed, fallow_pool_create(&config, &pool));
    DO(&bed, fallow_pool_destroy(pool));
    assert_int_equal(bed.api.sim.cu.cuCtxGetCurrent(&none), 0);
    assert_null(none);
    assert_int_equal(bed.api.sim.cu.cuCtxSetCurrent(bed.context), 0);
    end_bed(&bed);
}

static void a_pool_that_cannot_be_made_leaves_nothing(enum flw_beside_place place)
{
    static const char *const calls[] = {"cuDevicePrimaryCtxRetain", "cuDeviceTotalMem_v2"};
    struct bed bed;
    begin_usual(&bed, place);
    fallow_pool_config config = api_config(&bed.api);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fallow_pool *pool = NULL;
        (bed.api.sim.fail)(calls[i], 1, CUDA_ERROR_UNKNOWN, 0);
        ANSWERS(&bed, fallow_pool_create(&config, &pool), FALLOW_DRIVER);
        assert_null(pool);
    }
    end_bed(&bed);
}

static void a_pool_is_abandoned(enum flw_beside_place place)
{
    struct bed bed;
    begin_bed(&bed, place);
    fallow_pool_config config = api_config(&bed.api);
    begin_capture_and_pool(&bed, &config);
    DO(&bed, fallow_pool_abandon(bed.api.pool));
    assert_true(flw_beside_end(&bed.beside));
    assert_int_equal(flw_sim_print_violations(&bed.api.sim), 0);
    flw_sim_close(&bed.api.sim); /* released with the world */
}

/* ---- allocate, free */

static void blocks_are_allocated_and_freed(enum flw_beside_place place)
{
    struct bed bed;
    const size_t sizes[] = {300, 70000, 3 * MIB};
    void *blocks[3] = {NULL};
    fallow_request request;
    fallow_block info;
    begin_usual(&bed, place);
    CUstream stream = bed.api.stream, other = bed.api.other;
    void *first = allocate(&bed, 3 * MIB, stream), *second = allocate(&bed, 700, other);
    fallow_block_init(&info);
    WORKS(&bed, fallow_block_info(bed.api.pool, first, &info));
    WORKS(&bed, fallow_record_use(bed.api.pool, first, other));
    give(&bed, first, stream);
    WORKS(&bed, fallow_free_sized(bed.api.pool, second, 700, other));
    fallow_request_init(&request);
    request.size_bytes = 5000;
    request.flags = FALLOW_REQUEST_EVERY_STREAM;
    WORKS(&bed, fallow_alloc_request(bed.api.pool, &request, stream, &first));
    WORKS(&bed, fallow_free_complete(bed.api.pool, first));
    WORKS(&bed, fallow_alloc_aligned(bed.api.pool, 5000, MIB, other, &first));
    give(&bed, first, other);
    WORKS(&bed, fallow_alloc_batch(bed.api.pool, sizes, 3, stream, blocks));
    for (size_t i = 0; i < 3; i++) {
        give(&bed, blocks[i], other);
    }
    fallow_request_init(&request);
    request.size_bytes = 9000;
    request.tag = 7;
    for (uint32_t bit = 0; bit < 6; bit++) {
        request.flags = 1u << bit;
        bool is_had = request.flags != FALLOW_REQUEST_EXPORT_FABRIC;
        ANSWERS(&bed, fallow_alloc_request(bed.api.pool, &request, stream, &first),
                is_had ? FALLOW_OK : FALLOW_NOT_SUPPORTED);
        give(&bed, first, stream);
    }
    end_bed(&bed);
}

static int refuse_more(void *context, size_t size_bytes, fallow_stream stream)
{
    struct bed *bed = context;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    (void)size_bytes;
    (void)stream;
    /* The caller's code runs as the caller called: in no section. */
    assert_int_equal(bed->api.sim.cu.cuThreadExchangeStreamCaptureMode(&mode), 0);
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CUcontext current = NULL;
    assert_int_equal(bed->api.sim.cu.cuCtxGetCurrent(&current), 0);
    assert_null(current);
    return 0;
}

/* All stages of the ladder: growth, moves, another stream's memory, the callback, waits, the
 * report. */
static void a_full_pool_climbs_to_the_end(enum flw_beside_place place)
{
    struct bed bed;
    void *blocks[12], *ptr = NULL;
    fallow_oom_report report;
    begin_bed(&bed, place);
    fallow_pool_config config = api_config(&bed.api);
    config.limit_bytes = 48 * MIB;
    config.wait_ms = 1;
    config.on_oom = refuse_more;
    config.oom_context = &bed;
    begin_capture_and_pool(&bed, &config);
    assert_int_equal(bed.api.sim.cu.cuCtxSetCurrent(NULL), 0); /* each section sets its own */
    for (unsigned round = 0; round < 4; round++) {
        CUstream stream = round % 2 == 0 ? bed.api.stream : bed.api.other;
        size_t bytes = (round + 2) * MIB;
        unsigned count = 0;
        while (count < 12 && fallow_alloc(bed.api.pool, bytes, stream, &blocks[count]) == 0) {
            count++;
        }
        SURVIVES(&bed, "fallow_alloc");
        assert_true(count >= 6);
        ANSWERS(&bed, fallow_alloc(bed.api.pool, 40 * MIB, stream, &ptr), FALLOW_OUT_OF_MEMORY);
        fallow_oom_report_init(&report);
        WORKS(&bed, fallow_pool_get_oom_report(bed.api.pool, &report));
        while (count > 0) {
            give(&bed, blocks[--count], stream);
        }
    }
    assert_int_equal(bed.api.sim.cu.cuCtxSetCurrent(bed.context), 0);
    end_bed(&bed);
}

static void a_captured_stream_is_refused(enum flw_beside_place place)
{
    struct bed bed;
    void *ptr = NULL;
    begin_usual(&bed, place);
    CUstream captured = bed.beside.stream;
    /* A stream of another device names no memory of this pool, and the driver is not queried. */
    if (is_near(&bed)) {
        fallow_stats before = api_stats(&bed.api);
        ANSWERS(&bed, fallow_alloc(bed.api.pool, 50 * MIB, captured, &ptr), FALLOW_CAPTURING);
        assert_null(ptr);
        assert_int_equal(api_stats(&bed.api).reserved_bytes, before.reserved_bytes);
    }
    end_bed(&bed);
}

/* ---- upkeep */

static void memory_goes_back(enum flw_beside_place place)
{
    struct bed bed;
    size_t released = 0, sum = 0;
    begin_usual(&bed, place);
    void *blocks[] = {allocate(&bed, 20 * MIB, bed.api.stream),
                      allocate(&bed, 30 * MIB, bed.api.other), allocate(&bed, 300, bed.api.stream)};
    give(&bed, blocks[0], bed.api.stream);
    give(&bed, blocks[1], bed.api.other);
    WORKS(&bed, fallow_pool_poll(bed.api.pool));
    for (unsigned i = 0; i < 2; i++) { /* the second call finds the first one's fences complete */
        fallow_status status = fallow_pool_trim(bed.api.pool, 0, 1000, &released);
        SURVIVES(&bed, "fallow_pool_trim");
        assert_true(status == FALLOW_OK || status == FALLOW_TIMEOUT);
        bed.api.sim.step(UINT64_MAX);
        sum += released;
    }
    assert_true(sum >= 45 * MIB); /* kept memory may share a page */
    WORKS(&bed, fallow_pool_set_limit(bed.api.pool, 1024 * MIB));
    WORKS(&bed, fallow_pool_reset_peaks(bed.api.pool));
    give(&bed, allocate(&bed, 20 * MIB, bed.api.stream), bed.api.stream);
    WORKS(&bed, flw_test_trim(bed.api.pool, 0)); /* waits for wait_ms */
    WORKS(&bed, fallow_stream_retire(bed.api.pool, bed.api.other));
    give(&bed, blocks[2], bed.api.stream);
    end_bed(&bed);
}

/* Only the context covers a stream destroyed without notice: if another stream of that context is
 * captured, the memory stays. */
static void a_lost_stream_waits_for_the_capture(enum flw_beside_place place)
{
    struct bed bed;
    begin_bed(&bed, place);
    fallow_pool_config config = api_config(&bed.api);
    begin_capture_and_pool(&bed, &config);
    give(&bed, allocate(&bed, 30 * MIB, bed.api.other), bed.api.other);
    assert_int_equal(bed.api.sim.cu.cuStreamDestroy_v2(bed.api.other), 0);
    assert_int_equal(bed.api.sim.cu.cuStreamCreate(&bed.api.other, CU_STREAM_NON_BLOCKING), 0);
    if (place == FLW_BESIDE_STREAM) { /* only that one is unknown to the pool */
        DO(&bed, fallow_context_capture_begin());
    }
    WORKS(&bed, api_ask_elsewhere(&bed.api, bed.api.other));
    bed.api.sim.step(UINT64_MAX);
    fallow_status status = fallow_pool_trim(bed.api.pool, 0, 1000, NULL);
    SURVIVES(&bed, "fallow_pool_trim");
    assert_true(status == FALLOW_OK || status == FALLOW_TIMEOUT);
    fallow_pool *pool = bed.api.pool;
    bed.api.pool = NULL;
    DO(&bed, fallow_pool_destroy(pool));
    if (place == FLW_BESIDE_STREAM) {
        DO(&bed, fallow_context_capture_end());
    }
    assert_true(flw_beside_end(&bed.beside));
    api_end(&bed.api);
}

/* ---- captures of our own, and announced ones */

static void a_capture_of_ours_goes_on_too(enum flw_beside_place place)
{
    struct bed bed;
    fallow_capture *capture = NULL;
    const struct flw_driver *cu = &bed.api.sim.cu;
    begin_usual(&bed, place);
    CUstream stream = bed.api.stream, other = bed.api.other;
    WORKS(&bed, fallow_capture_begin(bed.api.pool, stream, &capture));
    WORKS(&bed, fallow_capture_join(capture, other));
    assert_int_equal(cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), 0);
    void *captured = allocate(&bed, 3 * MIB, stream), *small = allocate(&bed, 300, stream);
    give(&bed, captured, stream);
    WORKS(&bed, fallow_pool_poll(bed.api.pool));
    api_drop_captured(&bed.api, stream);
    WORKS(&bed, fallow_capture_end(capture));
    give(&bed, small, stream);
    WORKS(&bed, fallow_capture_release(capture));
    end_bed(&bed);
}

static void context_order_needs_the_word(enum flw_beside_place place)
{
    struct bed bed;
    begin_bed(&bed, place);
    fallow_pool_config config = api_config(&bed.api);
    config.order = FALLOW_ORDER_CONTEXT;
    if (place <= FLW_BESIDE_KNOWN) {
        fallow_context_capture_begin();
    }
    begin_capture_and_pool(&bed, &config);
    void *blocks[] = {allocate(&bed, 5 * MIB, NULL), allocate(&bed, 900, NULL),
                      allocate(&bed, 80 * MIB, NULL)};
    for (size_t i = 0; i < 3; i++) {
        WORKS(&bed, fallow_record_use(bed.api.pool, blocks[i], bed.api.other));
        give(&bed, blocks[i], NULL);
    }
    WORKS(&bed, fallow_pool_poll(bed.api.pool));
    WORKS(&bed, flw_test_trim(bed.api.pool, 0));
    for (unsigned i = 0; i < 300; i++) { /* more than an epoch */
        give(&bed, allocate(&bed, 600 + i, NULL), NULL);
    }
    fallow_pool *pool = bed.api.pool;
    bed.api.pool = NULL;
    DO(&bed, fallow_pool_destroy(pool));
    if (place <= FLW_BESIDE_KNOWN) {
        DO(&bed, fallow_context_capture_end());
    }
    assert_true(flw_beside_end(&bed.beside));
    api_end(&bed.api);
}

/* ---- shared memory, sleep */

static void memory_is_shared(enum flw_beside_place place)
{
    struct bed bed;
    fallow_share share;
    void *seen = NULL;
    begin_usual(&bed, place);
    void *block = api_must_alloc(&bed.api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
    fallow_share_init(&share);
    WORKS(&bed, fallow_export(bed.api.pool, block, FALLOW_HANDLE_FD, &share));
    WORKS(&bed, fallow_import(bed.api.pool, &share, &seen));
    close(share.descriptor);
    WORKS(&bed, fallow_pool_allow_peer(bed.api.pool, 1));
    WORKS(&bed, fallow_pool_deny_peer(bed.api.pool, 1));
    api_use(&bed.api, seen, 5000, bed.api.other); /* the wait is for the whole context */
    if (place == FLW_BESIDE_STREAM) {             /* only that one is unknown to the pool */
        DO(&bed, fallow_context_capture_begin());
    }
    ANSWERS(&bed, fallow_unimport(bed.api.pool, seen),
            is_near(&bed) ? FALLOW_CAPTURING : FALLOW_OK);
    if (place == FLW_BESIDE_STREAM) {
        DO(&bed, fallow_context_capture_end());
    }
    give(&bed, block, bed.api.stream);
    if (!is_near(&bed)) {
        end_bed(&bed);
        return;
    }
    assert_true(flw_beside_end(&bed.beside)); /* refused calls succeed afterwards */
    assert_int_equal(fallow_unimport(bed.api.pool, seen), FALLOW_OK);
    api_end(&bed.api);
}

static int agree(void *context)
{
    (void)context;
    return 0;
}

static void hear(void *context)
{
    (void)context;
}

/* A sleep has to wait for all work of the context. */
static void a_pool_sleeps_or_says_why_not(enum flw_beside_place place)
{
    struct bed bed;
    fallow_sleep_request request;
    begin_usual(&bed, place);
    void *block = allocate(&bed, 5 * MIB, bed.api.stream);
    if (place == FLW_BESIDE_STREAM) { /* only that one is unknown to the pool */
        DO(&bed, fallow_context_capture_begin());
    }
    WORKS(&bed, fallow_pool_watch_sleep(bed.api.pool, agree, hear, NULL));
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT | FALLOW_SLEEP_SAVE_ALL;
    fallow_status expected = is_near(&bed) ? FALLOW_CAPTURING : FALLOW_OK;
    ANSWERS(&bed, fallow_pool_sleep(bed.api.pool, &request), expected);
    WORKS(&bed, fallow_pool_wake(bed.api.pool));
    request.flags = 0;
    ANSWERS(&bed, fallow_pool_sleep(bed.api.pool, &request), expected);
    WORKS(&bed, fallow_pool_wake(bed.api.pool));
    WORKS(&bed, fallow_pool_unwatch_sleep(bed.api.pool, agree, hear, NULL));
    if (place == FLW_BESIDE_STREAM) {
        DO(&bed, fallow_context_capture_end());
    }
    give(&bed, block, bed.api.stream);
    end_bed(&bed);
}

/* ---- recording */

static void a_pool_is_recorded(enum flw_beside_place place)
{
    struct bed bed;
    fallow_record_config config;
    fallow_recorder *recorder = NULL;
    char folder[] = "/tmp/fallow-beside-XXXXXX", path[64], other[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.ftrace", folder);
    snprintf(other, sizeof other, "%s/b.ftrace", folder);
    begin_usual(&bed, place);
    fallow_record_config_init(&config);
    config.path = path;
    WORKS(&bed, fallow_record_start(bed.api.pool, &config, &recorder));
    WORKS(&bed, fallow_record_phase_begin(recorder, "step"));
    give(&bed, allocate(&bed, 5000, bed.api.stream), bed.api.stream);
    WORKS(&bed, fallow_record_mark(recorder, "here"));
    WORKS(&bed, fallow_record_phase_end(recorder, "step"));
    ANSWERS(&bed, fallow_record_dump(recorder, other), FALLOW_INVALID_ARGUMENT);
    WORKS(&bed, fallow_record_stop(recorder));
    end_bed(&bed);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    static const struct group groups[] = {GROUP(pools_come_and_go),
                                          GROUP(every_kind_of_pool_comes_and_goes),
                                          GROUP(a_first_pool_of_a_device_is_made),
                                          GROUP(a_pool_that_cannot_be_made_leaves_nothing),
                                          GROUP(a_pool_is_abandoned),
                                          GROUP(blocks_are_allocated_and_freed),
                                          GROUP(a_full_pool_climbs_to_the_end),
                                          GROUP(a_captured_stream_is_refused),
                                          GROUP(memory_goes_back),
                                          GROUP(a_lost_stream_waits_for_the_capture),
                                          GROUP(a_capture_of_ours_goes_on_too),
                                          GROUP(context_order_needs_the_word),
                                          GROUP(memory_is_shared),
                                          GROUP(a_pool_sleeps_or_says_why_not),
                                          GROUP(a_pool_is_recorded)};
    return run_groups(groups, sizeof groups / sizeof *groups);
}
