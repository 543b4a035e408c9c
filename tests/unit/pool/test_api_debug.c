/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the debug checks: each finds the planted fault and reports nothing without one, and a pool
 * with checks keeps the other promises. */
#include "unit/pool/test_api.h"

#include <pthread.h>

#include "fallow/extend.h"

#define ALL_CHECKS \
    (FALLOW_CHECK_POISON | FALLOW_CHECK_RED_ZONES | FALLOW_CHECK_QUARANTINE | FALLOW_CHECK_LEAKS)

/* Begin the usual world, with contents. */
static void begin_backed(struct api *api)
{
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.backed = 1;
    api_begin(api, &world);
}

static void begin_with_checks(struct api *api, uint32_t checks)
{
    begin_backed(api);
    fallow_pool_config config = api_config(api);
    config.checks = checks;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static void write_byte(struct api *api, unsigned char *at, CUstream stream)
{
    assert_int_equal(api->sim.cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)at, 0, 1, stream), 0);
}

static void read_back(struct api *api, void *to, const void *from, size_t bytes)
{
    assert_int_equal(api->sim.cu.cuStreamSynchronize(api->stream), 0);
    assert_int_equal(api->sim.cu.cuMemcpyDtoH_v2(to, (CUdeviceptr)(uintptr_t)from, bytes), 0);
}

static void alloc_use_and_free(struct api *api, CUstream stream)
{
    void *ptr = api_alloc(api, 3 * MIB, stream);
    api_use(api, ptr, 3 * MIB, stream);
    assert_int_equal(fallow_free(api->pool, ptr, stream), FALLOW_OK);
}

/* The device finishes, a poll compares. */
static uint64_t damages(struct api *api)
{
    api->sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_poll(api->pool), FALLOW_OK);
    return api_stats(api).damage_count;
}

static void a_new_block_is_poisoned_with_a_pattern_and_its_complement(void **state)
{
    struct api api;
    unsigned char first[1000], second[1000];
    begin_with_checks(&api, FALLOW_CHECK_POISON);
    void *a = api_alloc(&api, sizeof first, api.stream);
    void *b = api_alloc(&api, sizeof second, api.stream);
    read_back(&api, first, a, sizeof first);
    read_back(&api, second, b, sizeof second);
    for (size_t i = 0; i < sizeof first; i++) {
        assert_int_equal(first[i], first[0]);
        assert_int_equal((unsigned char)~first[i], second[i]);
    }
    assert_int_equal(fallow_free(api.pool, a, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, b, api.stream), FALLOW_OK);
    api_end(&api);
}

static void a_zeroed_block_is_zero_all_the_same(void **state)
{
    struct api api;
    unsigned char bytes[777];
    void *ptr = NULL;
    begin_with_checks(&api, ALL_CHECKS);
    fallow_request request = {.struct_size = sizeof request, .size_bytes = sizeof bytes};
    request.flags = FALLOW_REQUEST_ZERO;
    assert_int_equal(fallow_alloc_request(api.pool, &request, api.stream, &ptr), FALLOW_OK);
    read_back(&api, bytes, ptr, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(bytes[i], 0);
    }
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(damages(&api), 0);
    api_end(&api);
}

/* One byte at `offset` of a block of `size`; the log names where. */
static void expect_damage(size_t size, int64_t offset, const char *in_log)
{
    struct api api;
    begin_with_checks(&api, FALLOW_CHECK_RED_ZONES);
    unsigned char *ptr = api_alloc(&api, size, api.stream);
    api_use(&api, ptr, size, api.stream);
    write_byte(&api, ptr + offset, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(api_stats(&api).damage_count, 0); /* the device has not got there */
    assert_int_equal(damages(&api), in_log != NULL);
    if (in_log != NULL) {
        assert_non_null(strstr(api.log, in_log));
        assert_non_null(strstr(api.log, "red zone damaged"));
    }
    api_end(&api);
}

static void a_byte_outside_a_block_is_found_after_its_free(void **state)
{
    expect_damage(1000, 1000, "at offset 1000");
    expect_damage(1000, 1511, "at offset 1511");
    expect_damage(1000, -1, "at offset -1");
    expect_damage(1000, -512, "at offset -512");
    expect_damage(5 * MIB + 3, 5 * MIB + 3, "at offset 5242883");
    expect_damage(1000, 999, NULL);
    expect_damage(1000, 0, NULL);
}

static void damage_before_and_behind_a_block_is_reported_twice(void **state)
{
    struct api api;
    begin_with_checks(&api, FALLOW_CHECK_RED_ZONES);
    unsigned char *ptr = api_alloc(&api, 1000, api.stream);
    write_byte(&api, ptr - 1, api.stream);
    write_byte(&api, ptr + 1000, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(damages(&api), 2);
    assert_non_null(
        strstr(api.log, "at offset 1000: find the code that writes past")); /* the last */
    api_end(&api);
}

static void a_check_that_the_driver_refuses_to_answer_for_is_counted(void **state)
{
    struct api api;
    begin_with_checks(&api, FALLOW_CHECK_RED_ZONES);
    for (uint64_t i = 1; i <= 3; i++) {
        unsigned char *ptr = api_alloc(&api, 1000, api.stream);
        write_byte(&api, ptr - 1, api.stream);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        (api.sim.fail)("cuEventQuery", 1, CUDA_ERROR_INVALID_VALUE, 0);
        assert_int_equal(damages(&api), 0);
        assert_int_equal(api_stats(&api).unchecked_count, i);
    }
    api_end(&api);
}

static void zones_keep_alignment_and_every_size_of_block(void **state)
{
    struct api api;
    begin_with_checks(&api, ALL_CHECKS);
    for (size_t align = 256; align <= 2 * MIB; align *= 2) {
        for (size_t size = 1; size <= 4 * MIB; size = size * 7 + 1) {
            void *ptr = NULL;
            assert_int_equal(fallow_alloc_aligned(api.pool, size, align, api.stream, &ptr),
                             FALLOW_OK);
            assert_int_equal((uintptr_t)ptr % align, 0);
            api_use(&api, ptr, size, api.stream);
            assert_int_equal(fallow_free_sized(api.pool, ptr, size * 4 + 70000, api.stream),
                             FALLOW_INVALID_ARGUMENT);
            assert_int_equal(fallow_free_sized(api.pool, ptr, size, api.stream), FALLOW_OK);
        }
    }
    assert_int_equal(damages(&api), 0);
    api_end(&api);
}

static void a_free_on_another_stream_is_checked_too(void **state)
{
    struct api api;
    begin_with_checks(&api, FALLOW_CHECK_RED_ZONES);
    for (int planted = 0; planted < 2; planted++) {
        unsigned char *ptr = api_alloc(&api, 1000, api.stream);
        if (planted) {
            write_byte(&api, ptr + 1000, api.stream);
        }
        assert_int_equal(fallow_free(api.pool, ptr, api.other),
                         FALLOW_OK); /* never used on this stream */
        assert_int_equal(damages(&api), planted);
    }
    api_end(&api);
}

static void the_allocating_stream_may_be_gone_at_the_free(void **state)
{
    struct api api;
    begin_with_checks(&api, ALL_CHECKS);
    for (int i = 0; i < 10; i++) {
        void *ptr = api_alloc(&api, 3 * MIB, api.stream);
        assert_int_equal(fallow_stream_retire(api.pool, api.stream), FALLOW_OK);
        assert_int_equal(api.sim.cu.cuStreamDestroy_v2(api.stream), 0);
        assert_int_equal(api.sim.cu.cuStreamCreate(&api.stream, CU_STREAM_NON_BLOCKING), 0);
        assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
        alloc_use_and_free(&api, api.other);
    }
    assert_int_equal(damages(&api), 0);
    assert_true(api_stats(&api).unchecked_count > 0);
    api_end(&api);
}

static void a_write_after_the_free_is_found_when_quarantine_ends(void **state)
{
    struct api api;
    begin_with_checks(&api, FALLOW_CHECK_QUARANTINE);
    unsigned char *ptr = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    write_byte(&api, ptr + 40, api.stream);
    assert_int_equal(damages(&api), 0);
    assert_int_equal(fallow_stream_retire(api.pool, api.stream),
                     FALLOW_OK); /* the block has to leave
                                                                                 quarantine */
    assert_int_equal(damages(&api), 1);
    assert_non_null(strstr(api.log, "write after free"));
    assert_non_null(strstr(api.log, "at offset 40:"));
    api_end(&api);
}

static void a_stale_free_is_refused_while_the_block_is_in_quarantine(void **state)
{
    struct api api;
    begin_with_checks(&api, FALLOW_CHECK_QUARANTINE);
    void *stale = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, stale, api.stream), FALLOW_OK);
    for (int i = 0; i < 100; i++) {
        void *ptr = api_alloc(&api, 5000, api.stream);
        assert_ptr_not_equal(ptr, stale); /* would be equal without quarantine */
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        assert_int_equal(fallow_free(api.pool, stale, api.stream), FALLOW_INVALID_POINTER);
    }
    assert_int_equal(damages(&api), 0);
    api_end(&api);
}

static void a_freed_block_written_at_both_ends_counts_once(void **state)
{
    struct api api;
    begin_with_checks(&api, FALLOW_CHECK_QUARANTINE);
    unsigned char *ptr = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    write_byte(&api, ptr, api.stream);
    write_byte(&api, ptr + 4999, api.stream);
    assert_int_equal(fallow_stream_retire(api.pool, api.stream), FALLOW_OK);
    assert_int_equal(damages(&api), 1);
    api_end(&api);
}

static int count_calls(void *context, size_t size, fallow_stream stream)
{
    unsigned *calls = context;
    (void)size;
    (void)stream;
    ++*calls;
    return 0;
}

static void quarantine_gives_way_before_an_allocation_fails(void **state)
{
    struct api api;
    unsigned calls = 0;
    void *none = &api;
    flw_sim_config world = flw_sim_config_default(7);
    world.backed = 1;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    config.checks = FALLOW_CHECK_QUARANTINE;
    config.limit_bytes = 256 * MIB; /* 16 of them in quarantine */
    config.on_oom = count_calls;
    config.oom_context = &calls;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    api.log[0] = '\0'; /* a warning about the machine: few addresses */
    void *small = api_alloc(&api, 15 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, small, api.stream), FALLOW_OK);
    void *large = api_alloc(&api, 250 * MIB, api.stream);
    /* It did not fail: no count, no log line, no callback. */
    assert_int_equal(calls, 0);
    assert_int_equal(api_stats(&api).oom_count, 0);
    assert_string_equal(api.log, "");
    assert_int_equal(fallow_alloc(api.pool, 15 * MIB, api.stream, &none), FALLOW_OUT_OF_MEMORY);
    assert_int_equal(calls, 1);
    assert_int_equal(api_stats(&api).oom_count, 1);
    assert_int_equal(fallow_free(api.pool, large, api.stream), FALLOW_OK);
    api_end(&api);
}

static void *trim_and_take(void *argument)
{
    struct api *api = argument;
    fallow_stream mine = (fallow_stream)CU_STREAM_PER_THREAD; /* another than the test's */
    void *ptr = NULL;
    if (api->sim.cu.cuCtxPushCurrent_v2(fallow_pool_context(api->pool)) != CUDA_SUCCESS ||
        fallow_pool_trim(api->pool, SIZE_MAX, 0, NULL) == FALLOW_INVALID_POOL ||
        fallow_alloc(api->pool, 3 * MIB, mine, &ptr) != FALLOW_OK) {
        return NULL;
    }
    flw_sim_range range = {(uint64_t)(uintptr_t)ptr, 3 * MIB, 1, 0};
    bool good = api->sim.touch(mine, &range, 1) == 0;
    good = fallow_free(api->pool, ptr, mine) == FALLOW_OK && good;
    return good ? api : NULL;
}

/* The handle means the calling thread's stream: later, in another thread, it names another. */
static void what_a_thread_freed_on_its_default_stream_stays_in_its_order(void **state)
{
    struct api api;
    pthread_t thread;
    void *good = NULL;
    fallow_stream mine = (fallow_stream)CU_STREAM_PER_THREAD;
    begin_with_checks(&api, FALLOW_CHECK_QUARANTINE);
    alloc_use_and_free(&api, mine);
    assert_int_equal(pthread_create(&thread, NULL, trim_and_take, &api), 0);
    assert_int_equal(pthread_join(thread, &good), 0);
    assert_ptr_equal(good, &api);
    assert_int_equal(damages(&api), 0);
    api_end(&api);
}

/* Reuse the handle of an ended stream for a new one without any relation to the old one's work. */
static void recycle_a_handle_in_quarantine(const fallow_pool_config *config, struct api *api)
{
    assert_int_equal(fallow_pool_create(config, &api->pool), FALLOW_OK);
    CUstream first = api->other;
    alloc_use_and_free(api, first);
    assert_int_equal(api->sim.cu.cuStreamDestroy_v2(first), 0);
    assert_int_equal(api->sim.cu.cuStreamCreate(&api->other, CU_STREAM_NON_BLOCKING), 0);
    assert_ptr_equal(api->other, first);
}

/* Trim in a thread that trusts no stream handle. */
static void *trim_elsewhere(void *argument)
{
    const struct api *api = argument;
    return fallow_pool_trim(api->pool, SIZE_MAX, 0, NULL) == FALLOW_OK ? argument : NULL;
}

static void take_out_elsewhere(struct api *api)
{
    pthread_t thread;
    void *good = NULL;
    assert_int_equal(pthread_create(&thread, NULL, trim_elsewhere, api), 0);
    assert_int_equal(pthread_join(thread, &good), 0);
    assert_ptr_equal(good, api);
}

static void a_stream_that_may_die_takes_nothing_out_of_quarantine(void **state)
{
    struct api api;
    begin_backed(&api);
    fallow_pool_config config = api_config(&api);
    config.checks = FALLOW_CHECK_QUARANTINE;
    config.streams_may_die = 1;
    recycle_a_handle_in_quarantine(&config, &api);
    assert_int_equal(fallow_pool_trim(api.pool, SIZE_MAX, 0, NULL), FALLOW_OK);
    alloc_use_and_free(&api, api.other);
    assert_int_equal(damages(&api), 0);
    api_end(&api);
}

static void a_recycled_handle_takes_nothing_out_of_quarantine(void **state)
{
    struct api api;
    begin_backed(&api);
    fallow_pool_config config = api_config(&api);
    config.checks = FALLOW_CHECK_QUARANTINE;
    recycle_a_handle_in_quarantine(&config, &api);
    take_out_elsewhere(&api);
    assert_non_null(strstr(api.log, "without fallow_stream_retire"));
    alloc_use_and_free(&api, api.other);
    assert_int_equal(flw_sim_print_violations(&api.sim), 0);
    assert_int_equal(damages(&api), 0);
    api_end(&api);
}

static void wild_interior_and_double_frees_are_refused(void **state)
{
    struct api api;
    begin_with_checks(&api, FALLOW_CHECK_RED_ZONES);
    unsigned char *ptr = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr - 512, api.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_free(api.pool, ptr + 256, api.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_free(api.pool, &api, api.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_record_use(api.pool, ptr + 256, api.other), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_INVALID_POINTER);
    assert_int_equal(api_stats(&api).misuse_count, 5);
    api_end(&api);
}

static void a_block_is_described_without_its_zones(void **state)
{
    struct api api;
    fallow_block info;
    unsigned long long id = 0;
    fallow_block_init(&info);
    begin_with_checks(&api, FALLOW_CHECK_RED_ZONES);
    unsigned char *ptr = api_alloc(&api, 3 * MIB, api.stream);
    assert_int_equal(fallow_block_info(api.pool, ptr + 2 * MIB, &info), FALLOW_OK);
    assert_ptr_equal(info.base, ptr);
    assert_int_equal(info.requested_bytes, 3 * MIB);
    assert_int_equal(api.sim.cu.cuStreamGetId(api.stream, &id), 0);
    assert_true(info.stream_id == id);
    assert_int_equal(fallow_block_info(api.pool, ptr - 1, &info), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_block_info(api.pool, ptr + 3 * MIB, &info), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

static void inside_a_capture_nothing_is_done_and_that_is_counted(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    begin_with_checks(&api, ALL_CHECKS);
    void *ordinary = api_alloc(&api, 5000, api.stream);
    uint64_t unchecked = api_stats(&api).unchecked_count;
    uint64_t fills = api.sim.call_count("cuMemsetD8Async") + api.sim.call_count("cuMemsetD32Async");
    uint64_t copies = api.sim.call_count("cuMemcpyDtoHAsync_v2");
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    api_begin_capturing(&api, api.stream);
    void *ptr = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ordinary, api.stream), FALLOW_OK);
    CUgraph graph = api_end_capturing(&api, api.stream);
    assert_int_equal(api_stats(&api).unchecked_count, unchecked + 2);
    assert_int_equal(api.sim.call_count("cuMemsetD8Async") + api.sim.call_count("cuMemsetD32Async"),
                     fills);
    assert_int_equal(api.sim.call_count("cuMemcpyDtoHAsync_v2"), copies);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuGraphDestroy(graph), 0);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    api_end(&api);
}

static void checks_that_need_contents_are_refused_where_there_are_none(void **state)
{
    static const uint32_t checks[] = {FALLOW_CHECK_POISON, FALLOW_CHECK_RED_ZONES,
                                      FALLOW_CHECK_QUARANTINE};
    struct api api;
    api_begin(&api, NULL);
    for (size_t i = 0; i < 3; i++) {
        fallow_pool_config config = api_config(&api);
        config.checks = checks[i];
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_NOT_SUPPORTED);
        assert_null(api.pool);
        assert_non_null(strstr(api.log, "no contents"));
    }
    api_end(&api);
}

static void a_device_that_is_full_at_create_is_told_apart(void **state)
{
    struct api api;
    flw_sim_config world = flw_sim_config_default(7);
    world.backed = 1;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    config.checks = FALLOW_CHECK_POISON;
    (api.sim.fail)("cuMemAlloc_v2", 1, CUDA_ERROR_OUT_OF_MEMORY, 0);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OUT_OF_MEMORY);
    assert_null(api.pool);
    assert_non_null(strstr(api.log, "no device memory is free"));
    (api.sim.fail)("cuMemcpyDtoHAsync_v2", 2, CUDA_ERROR_INVALID_VALUE, 0); /* after the source's */
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_DRIVER);
    assert_null(api.pool);
    assert_non_null(strstr(api.log, "cuMemcpyDtoHAsync failed with error 1"));
    assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, 0);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    api_end(&api);
}

static unsigned leak_lines;

static void count_leaks(void *context, fallow_log_level level, const char *message)
{
    (void)context;
    (void)level;
    leak_lines += strstr(message, "never freed: block") != NULL;
}

static void leaks_are_listed_the_largest_first(void **state)
{
    struct api api;
    api_begin(&api, NULL); /* addresses only will do */
    fallow_pool_config config = api_config(&api);
    config.checks = FALLOW_CHECK_LEAKS;
    config.log = count_leaks;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    for (size_t i = 1; i <= 40; i++) {
        (void)api_alloc(&api, i * 100000, api.stream);
    }
    leak_lines = 0;
    api_end(&api);
    assert_int_equal(leak_lines, 16);
}

static void a_lost_device_ends_the_checks_quietly(void **state)
{
    struct api api;
    begin_with_checks(&api, ALL_CHECKS);
    void *kept = api_alloc(&api, 5000, api.stream);
    void *freed = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, freed, api.stream), FALLOW_OK);
    (api.sim.fail)(NULL, 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1);
    void *ptr = &api;
    assert_int_not_equal(fallow_alloc(api.pool, 5000, api.stream, &ptr), FALLOW_OK);
    assert_null(ptr);
    assert_int_equal(fallow_alloc(api.pool, 9 * MIB, api.stream, &ptr), FALLOW_DEVICE_LOST);
    assert_int_equal(fallow_free(api.pool, kept, api.stream), FALLOW_OK);
    fallow_pool_destroy(api.pool);
    flw_sim_close(&api.sim);
}

static void end_the_context(void *context, fallow_log_level level, const char *message)
{
    struct api *api = context;
    if (level == FALLOW_LOG_ERROR && strstr(message, "red zone damaged") != NULL &&
        api->sim.cu.cuDevicePrimaryCtxReset_v2(0) != CUDA_SUCCESS) {
        abort();
    }
    api_log(context, level, message);
}

/* As another thread may: the first zone was read, the second is still to be. */
static void a_context_that_ends_in_the_middle_of_a_comparison_leaves_what_it_reads(void **state)
{
    struct api api;
    flw_sim_config world = flw_sim_config_default(7);
    world.backed = 1;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    config.checks = FALLOW_CHECK_RED_ZONES;
    config.log = end_the_context;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    unsigned char *ptr = api_alloc(&api, 1000, api.stream);
    write_byte(&api, ptr - 1, api.stream);
    write_byte(&api, ptr + 1000, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    fallow_status status = fallow_pool_poll(api.pool); /* OK: needed no driver call */
    assert_true(status == FALLOW_DEVICE_LOST || status == FALLOW_OK);
    assert_int_equal(api_stats(&api).damage_count, 2);
    assert_int_equal(flw_sim_read_ledger(&api.sim).pinned_bytes, 0); /* released with the context */
    assert_int_equal(fallow_alloc(api.pool, 5000, api.stream, (void **)&ptr), FALLOW_DEVICE_LOST);
    fallow_pool_destroy(api.pool);
    flw_sim_close(&api.sim);
}

static void checks_without_registered_memory_are_refused_and_leave_nothing(void **state)
{
    static const struct {
        CUresult error;
        fallow_status status;
    } cases[] = {{CUDA_ERROR_NOT_SUPPORTED, FALLOW_NOT_SUPPORTED},
                 {CUDA_ERROR_OUT_OF_MEMORY, FALLOW_OUT_OF_HOST_MEMORY},
                 {CUDA_ERROR_NOT_PERMITTED, FALLOW_DRIVER}};
    struct api api;
    flw_sim_config world = flw_sim_config_default(7);
    world.backed = 1;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    config.checks = FALLOW_CHECK_RED_ZONES;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (api.sim.fail)("cuMemHostRegister_v2", 1, (int)cases[i].error, 0);
        assert_int_equal(fallow_pool_create(&config, &api.pool), cases[i].status);
        assert_null(api.pool);
        assert_non_null(strstr(api.log, "cuMemHostRegister failed"));
        assert_int_equal(flw_sim_read_ledger(&api.sim).event_count, 0);
    }
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_true(flw_sim_read_ledger(&api.sim).pinned_bytes > 0);
    fallow_pool_destroy(api.pool);
    api.pool = NULL;
    assert_int_equal(flw_sim_read_ledger(&api.sim).pinned_bytes, 0);
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_block_is_poisoned_with_a_pattern_and_its_complement),
        cmocka_unit_test(a_zeroed_block_is_zero_all_the_same),
        cmocka_unit_test(a_byte_outside_a_block_is_found_after_its_free),
        cmocka_unit_test(damage_before_and_behind_a_block_is_reported_twice),
        cmocka_unit_test(a_check_that_the_driver_refuses_to_answer_for_is_counted),
        cmocka_unit_test(zones_keep_alignment_and_every_size_of_block),
        cmocka_unit_test(a_free_on_another_stream_is_checked_too),
        cmocka_unit_test(the_allocating_stream_may_be_gone_at_the_free),
        cmocka_unit_test(a_write_after_the_free_is_found_when_quarantine_ends),
        cmocka_unit_test(a_stale_free_is_refused_while_the_block_is_in_quarantine),
        cmocka_unit_test(a_freed_block_written_at_both_ends_counts_once),
        cmocka_unit_test(quarantine_gives_way_before_an_allocation_fails),
        cmocka_unit_test(what_a_thread_freed_on_its_default_stream_stays_in_its_order),
        cmocka_unit_test(a_stream_that_may_die_takes_nothing_out_of_quarantine),
        cmocka_unit_test(a_recycled_handle_takes_nothing_out_of_quarantine),
        cmocka_unit_test(wild_interior_and_double_frees_are_refused),
        cmocka_unit_test(a_block_is_described_without_its_zones),
        cmocka_unit_test(inside_a_capture_nothing_is_done_and_that_is_counted),
        cmocka_unit_test(checks_that_need_contents_are_refused_where_there_are_none),
        cmocka_unit_test(a_device_that_is_full_at_create_is_told_apart),
        cmocka_unit_test(a_context_that_ends_in_the_middle_of_a_comparison_leaves_what_it_reads),
        cmocka_unit_test(checks_without_registered_memory_are_refused_and_leave_nothing),
        cmocka_unit_test(leaks_are_listed_the_largest_first),
        cmocka_unit_test(a_lost_device_ends_the_checks_quietly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
