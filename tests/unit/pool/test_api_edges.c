/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public promises where two features meet: wishes and other streams' memory, captures
 * and retired streams, threads that end, memory of lost streams.
 */
#include "test_api.h"

#include <pthread.h>
#include <unistd.h>

#include "fallow/extend.h"
#include "support/trim.h"

static fallow_block describe(struct api *api, const void *ptr)
{
    fallow_block block;
    fallow_block_init(&block);
    assert_int_equal(fallow_block_info(api->pool, ptr, &block), FALLOW_OK);
    return block;
}

static void *request_of(struct api *api, size_t size, uint32_t flags, CUstream stream,
                        fallow_status expected)
{
    void *ptr = NULL;
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = size;
    request.flags = flags;
    assert_int_equal(fallow_alloc_request(api->pool, &request, stream, &ptr), expected);
    return ptr;
}

static void a_dedicated_block_is_never_another_streams_memory(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    void *large = api_alloc(&api, 256 * MIB, api.stream);
    api_use(&api, large, 256 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, large, api.stream), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    void *own = request_of(&api, 200 * MIB, FALLOW_REQUEST_DEDICATED, api.other, FALLOW_OK);
    fallow_block block = describe(&api, own);
    assert_int_equal(block.handle_offset, 0);
    assert_int_equal(block.handle_bytes, 200 * MIB);
    assert_int_equal(fallow_free(api.pool, own, api.other), FALLOW_OK);
    api_end(&api);
}

static void the_first_request_of_a_pool_may_be_for_half_the_device(void **state)
{
    for (int economy = 0; economy < 2; economy++) { /* whichever: a thousand handles, not ten */
        struct api api;
        flw_sim_config world = flw_sim_config_default(9);
        world.device_bytes = 80ull << 30;
        api_begin(&api, &world);
        fallow_pool_config config = api_config(&api);
        config.economy = economy == 0 ? FALLOW_BALANCED : FALLOW_MEMORY_FIRST;
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
        void *ptr = api_alloc(&api, world.device_bytes / 2, api.stream);
        assert_in_range(api_stats(&api).driver_call_count, 1, 2 * 2 * 1024 + 64);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        api_end(&api);
    }
}

static void a_large_request_of_memory_first_takes_few_handles(void **state)
{
    struct api api;
    flw_sim_config world = flw_sim_config_default(9);
    world.device_bytes = 80ull << 30;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    config.economy = FALLOW_MEMORY_FIRST;
    config.one_handle_bytes = FALLOW_ONE_HANDLE_NONE;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    uint64_t calls = api_stats(&api).driver_call_count;
    void *ptr = api_alloc(&api, 1024 * MIB, api.stream); /* 64, each created and mapped */
    assert_in_range(api_stats(&api).driver_call_count - calls, 1, 2 * 64 + 16);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

/* Not a hole of the size in another block's segment. */
static void a_dedicated_block_has_a_segment_of_its_own(void **state)
{
    struct api api;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    flw_sim_config world = flw_sim_config_default(7);
    world.without_vmm = 1;
    world.schedule = FLW_SIM_HELD;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    void *wide = api_alloc(&api, 4 * MIB + 65536, api.stream); /* in a segment of 6 MiB */
    assert_int_equal(fallow_free(api.pool, wide, api.stream), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK); /* out of the cache */
    void *narrow = api_alloc(&api, 4 * MIB, api.stream);
    assert_ptr_equal(narrow, wide);
    void *own = request_of(&api, 2 * MIB, FALLOW_REQUEST_DEDICATED, api.stream, FALLOW_OK);
    assert_int_equal(api.sim.cu.cuMemGetAddressRange_v2(&base, &bytes, (CUdeviceptr)(uintptr_t)own),
                     0);
    assert_int_equal(bytes, 2 * MIB);
    assert_int_equal(base, (uintptr_t)own);
    assert_int_equal(fallow_free(api.pool, own, api.stream), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, narrow, api.stream), FALLOW_OK);
    api_end(&api);
}

static void an_exportable_block_of_a_capture_has_a_handle_of_its_own(void **state)
{
    struct api api;
    fallow_capture *capture = NULL;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.handle_types = FALLOW_HANDLE_FD;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_OK);
    void *ptr = request_of(&api, 4 * MIB, FALLOW_REQUEST_EXPORT_FD, api.stream, FALLOW_OK);
    fallow_block block = describe(&api, ptr);
    assert_int_equal(block.handle_offset, 0);
    assert_int_equal(block.handle_bytes, 4 * MIB);
    assert_int_equal(fallow_capture_end(capture), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_capture_release(capture), FALLOW_OK);
    api_end(&api);
}

static void a_request_that_may_not_grow_takes_nothing_from_the_pool_either(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    void *ptr = api_alloc(&api, 64 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, api.stream), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    uint64_t reserved = api_stats(&api).reserved_bytes;
    (void)request_of(&api, 128 * MIB, FALLOW_REQUEST_NO_GROW, api.other, FALLOW_OUT_OF_MEMORY);
    assert_int_equal(api_stats(&api).reserved_bytes, reserved);
    api_end(&api);
}

/* A request that can never fit moves and releases nothing before it fails. */
static void a_request_above_the_limit_leaves_the_pool_as_it_was(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    void *ptr = api_alloc(&api, 64 * MIB, api.stream), *none = &api;
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, api.stream), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    uint64_t reserved = api_stats(&api).reserved_bytes;
    assert_int_equal(fallow_alloc(api.pool, (size_t)1 << 40, api.other, &none),
                     FALLOW_OUT_OF_MEMORY);
    assert_null(none);
    assert_int_equal(api_stats(&api).reserved_bytes, reserved);
    api_end(&api);
}

/* ---- captures */

/* The place of the retired stream's domain is a later capture's by then. */
/* The driver provides some of the handles before it refuses the rest. */
static void a_request_that_the_device_refuses_leaves_its_memory_to_others(void **state)
{
    struct api api;
    CUdeviceptr others = 0;
    void *ptr = NULL;
    flw_sim_config world = flw_sim_config_default(7);
    world.device_bytes = (size_t)1 << 30;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    assert_int_equal(api.sim.cu.cuMemAlloc_v2(&others, 300 * MIB), 0);
    void *own = api_alloc(&api, 100 * MIB, api.stream);
    size_t held = api_stats(&api).reserved_bytes;
    for (int i = 0; i < 2; i++) {
        uint64_t maps = api.sim.call_count("cuMemMap");
        uint64_t calls = flw_sim_read_ledger(&api.sim).call_count;
        assert_int_equal(fallow_alloc(api.pool, 800 * MIB, api.stream, &ptr), FALLOW_OUT_OF_MEMORY);
        calls = flw_sim_read_ledger(&api.sim).call_count - calls;
        assert_int_equal(api.sim.call_count("cuMemMap"), maps); /* before the rest was refused */
        assert_true(calls < 1000);
        assert_int_equal(api_stats(&api).reserved_bytes, held);
        assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, held + 300 * MIB);
    }
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, own, api.stream), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuMemFree_v2(others), 0);
    api_end(&api);
}

/* Use a pool of 4 GiB, which grows by 16 MiB or more, on a device that others have filled. */
static void allocate_what_the_device_has_left(uint8_t economy, uint8_t without_vmm, size_t size)
{
    struct api api;
    flw_sim_config world = flw_sim_config_default(7);
    size_t free_bytes, total_bytes, allocated_bytes = 0;
    CUdeviceptr others = 0;
    void *ptr = NULL;
    world.device_bytes = (size_t)8 << 30;
    world.without_vmm = without_vmm;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    config.economy = economy;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    for (int i = 0; i < 64; i++) {
        (void)api_alloc(&api, 64 * MIB, api.stream);
    }
    while (api_stats(&api).reserved_bytes - api_stats(&api).live_bytes >= size) {
        (void)api_alloc(&api, size, api.stream); /* mapped in advance */
    }
    assert_int_equal(api.sim.cu.cuMemGetInfo_v2(&free_bytes, &total_bytes), 0);
    assert_int_equal(api.sim.cu.cuMemAlloc_v2(&others, free_bytes - 10 * MIB), 0);
    while (fallow_alloc(api.pool, size, api.stream, &ptr) == FALLOW_OK) {
        allocated_bytes += size;
    }
    assert_int_equal(allocated_bytes, 10 * MIB);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuMemFree_v2(others), 0);
    api_end(&api);
}

static void what_a_full_device_has_left_is_allocated_however_little(void **state)
{
    allocate_what_the_device_has_left(FALLOW_BALANCED, 0, 2 * MIB);
    allocate_what_the_device_has_left(FALLOW_MEMORY_FIRST, 0, 2 * MIB);
    allocate_what_the_device_has_left(FALLOW_BALANCED, 1, MIB / 2);
}

static void a_capture_outlives_the_retired_stream_that_it_began_on(void **state)
{
    struct api api;
    fallow_capture *first = NULL, *second = NULL;
    CUstream third = NULL;
    api_begin_with_pool(&api);
    assert_int_equal(api.sim.cu.cuStreamCreate(&third, CU_STREAM_NON_BLOCKING), 0);
    void *ordinary = api_alloc(&api, 300, api.other);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &first), FALLOW_OK);
    void *captured = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, captured, api.stream), FALLOW_OK);
    assert_int_equal(fallow_capture_end(first), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, api.stream), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    assert_int_equal(fallow_capture_begin(api.pool, api.other, &second), FALLOW_OK);
    assert_int_equal(fallow_capture_release(first), FALLOW_OK);
    assert_int_equal(api_stats(&api).captured_bytes, 0);
    void *late = api_alloc(&api, 300, third);
    void *ptr = api_alloc(&api, 5000, api.other);
    assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
    void *after = api_alloc(&api, 70000, third);
    assert_int_equal(fallow_free(api.pool, after, third), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, late, third), FALLOW_OK);
    assert_int_equal(fallow_capture_end(second), FALLOW_OK);
    assert_int_equal(fallow_capture_release(second), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ordinary, api.other), FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

/* At the release a full slab is in no list. */
static void what_a_released_capture_had_allocated_is_no_captures_memory(void **state)
{
    struct api api;
    fallow_capture *first = NULL, *second = NULL;
    api_begin_with_pool(&api);
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &first), FALLOW_OK);
    void *captured = api_alloc(&api, MIB, api.stream), *none = api_alloc(&api, 300, api.other);
    assert_int_equal(fallow_free(api.pool, none, api.other), FALLOW_OK);
    assert_int_equal(fallow_capture_end(first), FALLOW_OK);
    assert_int_equal(fallow_capture_release(first), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, captured, api.stream), FALLOW_OK);
    void *again = api_alloc(&api, MIB, api.stream);
    assert_ptr_equal(again, captured);
    assert_int_equal(fallow_free(api.pool, again, api.stream), FALLOW_OK);
    again = api_alloc(&api, MIB, api.stream);
    assert_int_equal(api_stats(&api).hit_count, 1); /* the free before it was ordinary */
    assert_int_equal(fallow_free(api.pool, again, api.stream), FALLOW_OK);
    assert_int_equal(fallow_capture_begin(api.pool, api.other, &second), FALLOW_OK);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_int_equal(api_stats(&api).captured_bytes, 0);
    assert_int_equal(fallow_capture_end(second), FALLOW_OK);
    assert_int_equal(fallow_capture_release(second), FALLOW_OK);
    api_end(&api);
}

/* ---- memory of lost streams */

static void begin_with_lost_memory(struct api *api)
{
    api_begin(api, NULL);
    api->pool = api_create(api);
    void *first = api_alloc(api, 4 * MIB, api->stream);
    void *second = api_alloc(api, 4 * MIB, api->stream);
    assert_int_equal(fallow_free(api->pool, first, api->stream), FALLOW_OK);
    assert_int_equal(fallow_free(api->pool, second, api->stream), FALLOW_OK); /* without a fence */
    assert_int_equal(api->sim.cu.cuStreamDestroy_v2(api->stream), 0);
    assert_int_equal(api_ask_elsewhere(api, api->stream), FALLOW_INVALID_STREAM);
    assert_int_equal(api_stats(api).lost_streams, 1);
}

static void lost_memory_comes_back_after_a_refused_synchronisation(void **state)
{
    struct api api;
    CUgraph graph = NULL;
    begin_with_lost_memory(&api);
    /* A stream that the pool has never seen is being captured. */
    api_begin_capturing(&api, api.other);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_true(api_stats(&api).reserved_bytes > 0);
    (void)api.sim.cu.cuStreamEndCapture(api.other, &graph);
    api.sim.step(UINT64_MAX);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_int_equal(api_stats(&api).reserved_bytes, 0);
    api_end(&api);
}

static void a_trim_past_its_deadline_synchronises_nothing(void **state)
{
    struct api api;
    begin_with_lost_memory(&api);
    void *ptr = api_alloc(&api, 8 * MIB, api.other);
    api_use(&api, ptr, 8 * MIB, api.other);
    assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
    assert_int_equal(fallow_pool_trim(api.pool, 0, 1000, NULL), FALLOW_TIMEOUT);
    assert_int_equal(api.sim.call_count("cuCtxSynchronize"), 0);
    api_end(&api);
}

/* ---- ending threads and contexts */

static void *alloc_and_end(void *argument)
{
    struct api *api = argument;
    void *ptr = NULL;
    fallow_status status = fallow_alloc(api->pool, 300, CU_STREAM_PER_THREAD, &ptr);
    if (status == FALLOW_OK) {
        status = fallow_free(api->pool, ptr, CU_STREAM_PER_THREAD);
    }
    return (void *)(uintptr_t)status;
}

static void *use_and_end(void *argument)
{
    void **pair = argument;
    struct api *api = pair[0];
    assert_int_equal(api->sim.cu.cuCtxPushCurrent_v2(fallow_pool_context(api->pool)), 0);
    flw_sim_range range = {(uint64_t)(uintptr_t)pair[1], 4096, 1, 0};
    fallow_status status = api->sim.touch(CU_STREAM_PER_THREAD, &range, 1) == 0
                               ? fallow_record_use(api->pool, pair[1], CU_STREAM_PER_THREAD)
                               : FALLOW_DRIVER;
    return (void *)(uintptr_t)status;
}

static fallow_status in_a_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, body, argument), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    return (fallow_status)(uintptr_t)result;
}

#define MORE_THAN_PLACES 4200

static void default_streams_of_any_number_of_threads_are_served(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    for (unsigned i = 0; i < MORE_THAN_PLACES; i++) {
        assert_int_equal(in_a_thread(alloc_and_end, &api), FALLOW_OK);
    }
    assert_int_equal(api_stats(&api).lost_streams, 0);
    api_end(&api);
}

static void a_use_by_a_thread_that_has_ended_ends(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    void *ptr = api_alloc(&api, 4096, api.stream);
    assert_int_equal(in_a_thread(use_and_end, (void *[]){&api, ptr}), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    api.sim.step(UINT64_MAX);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_int_equal(api_stats(&api).deferred_bytes, 0);
    assert_int_equal(api_stats(&api).reserved_bytes, 0);
    api_end(&api);
}

static void streams_of_another_context_come_and_go(void **state)
{
    struct api api;
    CUcontext context = NULL, popped = NULL;
    api_begin_with_pool(&api);
    assert_int_equal(api.sim.cu.cuCtxCreate_v2(&context, 0, 0), 0);
    assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    for (unsigned i = 0; i < MORE_THAN_PLACES; i++) {
        CUstream foreign = NULL;
        void *ptr = api_alloc(&api, 4096, api.stream);
        assert_int_equal(api.sim.cu.cuCtxPushCurrent_v2(context), 0);
        assert_int_equal(api.sim.cu.cuStreamCreate(&foreign, CU_STREAM_NON_BLOCKING), 0);
        assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
        assert_int_equal(fallow_record_use(api.pool, ptr, foreign), FALLOW_OK);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        assert_int_equal(fallow_stream_retire(api.pool, foreign), FALLOW_OK);
        api.sim.step(UINT64_MAX);
        assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
        assert_int_equal(api.sim.cu.cuStreamDestroy_v2(foreign), 0);
    }
    api_end(&api);
}

static size_t resident_bytes(void)
{
    char line[128], *second = NULL;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    (void)fclose(file);
    (void)strtoul(line, &second, 10); /* all pages */
    size_t resident = strtoul(second, NULL, 10);
    assert_int_not_equal(resident, 0);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* Use more than 65,536 streams at once, retire them, then use as many again in the same table
 * entries. The streams are announced as users, because an announced use takes an entry and nothing
 * else. */
static void retired_streams_make_room_for_as_many_again(void **state)
{
    enum {
        PLACES = 66000
    };
    static CUstream streams[PLACES];
    struct api api;
    flw_sim_config world = flw_sim_config_default(12);
    world.schedule = FLW_SIM_CLOCK;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    size_t first_bytes = 0;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < PLACES; i++) {
            void *ptr = api_alloc(&api, 300, api.stream);
            assert_int_equal(api.sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
            assert_int_equal(fallow_record_use(api.pool, ptr, streams[i]), FALLOW_OK);
            assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        }
        assert_int_equal(api_stats(&api).stream_count, PLACES + 1);
        for (size_t i = 0; i < PLACES; i++) {
            assert_int_equal(fallow_stream_retire(api.pool, streams[i]), FALLOW_OK);
            assert_int_equal(api.sim.cu.cuStreamDestroy_v2(streams[i]), 0);
        }
        api.sim.step(UINT64_MAX);
        assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
        size_t host_bytes = api_stats(&api).host_bytes;
        assert_true(round == 0 || host_bytes < first_bytes + first_bytes / 16);
        first_bytes = host_bytes;
    }
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

/* Each stream has a new handle, so no later stream finds the thread's old entry. */
static void a_thread_keeps_nothing_for_streams_that_are_gone(void **state)
{
    struct api api;
    size_t before = 0;
    flw_sim_config world = flw_sim_config_default(11);
    world.mild = FLW_SIM_MILD_HANDLE_REUSE;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    for (unsigned i = 0; i < 1100; i++) {
        CUstream stream = NULL;
        assert_int_equal(api.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
        void *ptr = api_alloc(&api, 300, stream);
        assert_int_equal(fallow_free(api.pool, ptr, stream), FALLOW_OK);
        assert_int_equal(fallow_stream_retire(api.pool, stream), FALLOW_OK);
        assert_int_equal(api.sim.cu.cuStreamDestroy_v2(stream), 0);
        before = i == 100 ? resident_bytes() : before;
    }
#if !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)                     /* a sanitizer's own memory grows */
    assert_true(resident_bytes() < before + 16 * MIB); /* a cache has 56 KiB */
#else
    assert_true(before > 0);
#endif
    api_end(&api);
}

/* ---- races */

struct race {
    struct api *api;
    CUstream stream;
    pthread_barrier_t barrier;
    unsigned rounds;
};

static void *allocate_and_end_at_once(void *argument)
{
    struct race *race = argument;
    void *ptr = NULL;
    (void)!fallow_alloc(race->api->pool, 300, race->stream, &ptr);
    (void)fallow_free(race->api->pool, ptr, race->stream);
    (void)pthread_barrier_wait(&race->barrier);
    return NULL;
}

static void a_thread_may_end_while_its_stream_is_retired(void **state)
{
    struct api api;
    api_begin_with_pool(&api);
    struct race race = {.api = &api, .stream = api.stream, .rounds = 1000};
    for (unsigned i = 0; i < race.rounds; i++) {
        pthread_t threads[3];
        (void)pthread_barrier_init(&race.barrier, NULL, 4);
        for (unsigned t = 0; t < 3; t++) {
            assert_int_equal(pthread_create(&threads[t], NULL, allocate_and_end_at_once, &race), 0);
        }
        (void)pthread_barrier_wait(&race.barrier);
        assert_int_equal(fallow_stream_retire(api.pool, api.stream), FALLOW_OK);
        for (unsigned t = 0; t < 3; t++) {
            assert_int_equal(pthread_join(threads[t], NULL), 0);
        }
        (void)pthread_barrier_destroy(&race.barrier);
    }
    fallow_stats stats = api_stats(&api);
    assert_int_equal(stats.alloc_count, 3 * race.rounds);
    assert_int_equal(stats.free_count, 3 * race.rounds);
    api_end(&api);
}

static void *capture_and_end(void *argument)
{
    struct race *race = argument;
    fallow_capture *capture = NULL;
    fallow_status status = FALLOW_OK;
    for (unsigned i = 0; i < race->rounds && status == FALLOW_OK; i++) {
        status = fallow_capture_begin(race->api->pool, race->stream, &capture);
        if (status == FALLOW_OK) {
            status = fallow_capture_end(capture);
        }
        if (status == FALLOW_OK) {
            status = fallow_capture_release(capture);
        }
    }
    return (void *)(uintptr_t)status;
}

static void a_block_may_be_freed_while_a_capture_ends(void **state)
{
    struct api api;
    pthread_t thread;
    void *result = NULL;
    static void *blocks[200000];
    api_begin_with_pool(&api);
    struct race race = {.api = &api, .stream = api.stream, .rounds = 20000};
    for (unsigned i = 0; i < 200000; i++) {
        blocks[i] = api_alloc(&api, 300, api.other);
    }
    assert_int_equal(pthread_create(&thread, NULL, capture_and_end, &race), 0);
    for (unsigned i = 0; i < 200000; i++) {
        assert_int_equal(fallow_free(api.pool, blocks[i], api.stream), FALLOW_OK);
    }
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((int)(uintptr_t)result, FALLOW_OK);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).deferred_bytes, 0);
    api_end(&api);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dedicated_block_is_never_another_streams_memory),
        cmocka_unit_test(the_first_request_of_a_pool_may_be_for_half_the_device),
        cmocka_unit_test(a_large_request_of_memory_first_takes_few_handles),
        cmocka_unit_test(a_dedicated_block_has_a_segment_of_its_own),
        cmocka_unit_test(an_exportable_block_of_a_capture_has_a_handle_of_its_own),
        cmocka_unit_test(a_request_that_may_not_grow_takes_nothing_from_the_pool_either),
        cmocka_unit_test(a_request_above_the_limit_leaves_the_pool_as_it_was),
        cmocka_unit_test(what_a_released_capture_had_allocated_is_no_captures_memory),
        cmocka_unit_test(lost_memory_comes_back_after_a_refused_synchronisation),
        cmocka_unit_test(a_trim_past_its_deadline_synchronises_nothing),
        cmocka_unit_test(a_use_by_a_thread_that_has_ended_ends),
        cmocka_unit_test(default_streams_of_any_number_of_threads_are_served),
        cmocka_unit_test(streams_of_another_context_come_and_go),
        cmocka_unit_test(a_thread_keeps_nothing_for_streams_that_are_gone),
        cmocka_unit_test(retired_streams_make_room_for_as_many_again),
        cmocka_unit_test(a_request_that_the_device_refuses_leaves_its_memory_to_others),
        cmocka_unit_test(what_a_full_device_has_left_is_allocated_however_little),
        cmocka_unit_test(a_capture_outlives_the_retired_stream_that_it_began_on),
        cmocka_unit_test(a_thread_may_end_while_its_stream_is_retired),
        cmocka_unit_test(a_block_may_be_freed_while_a_capture_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
