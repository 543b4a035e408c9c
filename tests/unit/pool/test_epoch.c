/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves: a pool in context order reuses a freed block only after all work queued before the free
 * on any stream of any live context is complete, with few events, without waiting for a busy
 * device within the bound, and never during a capture. Only the driver knows the streams of these
 * tests. */
#include "test_api.h"

#include <pthread.h>

#include "heap/order/epoch.h"
#include "pool/ladder/ladder.h"
#include "pool/pool.h"
#include "support/trim.h"

#define KIB ((size_t)1 << 10)

static struct api api;

static void begin_with(const struct flw_driver *driver, size_t limit_bytes)
{
    fallow_pool_config config = api_config(&api);
    config.order = FALLOW_ORDER_CONTEXT;
    config.limit_bytes = limit_bytes;
    if (driver == NULL) {
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    } else {
        struct flw_pool_place place = {.driver = driver, .context_id = 9};
        assert_int_equal(flw_pool_create(&config, &place, &api.pool), FALLOW_OK);
    }
}

static void begin(void)
{
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = FLW_SIM_HELD;
    world.device_bytes = (uint64_t)4 << 30;
    api_begin(&api, &world);
    begin_with(NULL, 0);
}

static void *allocate(size_t size)
{
    return api_alloc(&api, size, NULL);
}

static void free_block(void *ptr)
{
    assert_int_equal(fallow_free(api.pool, ptr, NULL), FALLOW_OK);
}

/* Work that nothing completes before a step. */
static void give_work(CUstream stream)
{
    assert_int_equal(api.sim.touch(stream, NULL, 0), 0);
}

static uint64_t calls(const char *entry)
{
    return api.sim.call_count(entry);
}

/* Allocate everything of a size that needs no growth, for good; true if `ptr` is among it. */
static bool comes_again(const void *ptr, size_t size, size_t count)
{
    bool is_met = false;
    for (size_t i = 0; i < count && !is_met; i++) {
        is_met = allocate(size) == ptr;
    }
    return is_met;
}

static void free_many(size_t size, size_t count)
{
    static void *blocks[4096];
    for (size_t i = 0; i < count; i++) {
        blocks[i] = allocate(size);
    }
    for (size_t i = 0; i < count; i++) {
        free_block(blocks[i]);
    }
}

static void check_not_reused_before_complete(size_t size, size_t count)
{
    begin();
    void *ptr = allocate(size);
    give_work(api.stream);
    free_block(ptr);
    free_many(size, count); /* enough for an epoch with an event after the work */
    assert_false(comes_again(ptr, size, 2 * count));
    api.sim.step(UINT64_MAX);
    assert_true(comes_again(ptr, size, 64 * count));
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

static void
a_block_is_allocated_again_only_when_earlier_work_of_every_stream_is_complete(void **state)
{
    check_not_reused_before_complete(300, 256);
    check_not_reused_before_complete(40 * KIB, 256);
    check_not_reused_before_complete(2 * MIB, 40);
}

static void a_block_of_a_mebibyte_is_a_driver_allocation_of_its_own(void **state)
{
    begin();
    const size_t sizes[] = {MIB, MIB + 1, 2 * MIB, 5 * MIB, 33 * MIB - 7};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CUdeviceptr base = 0;
        size_t bytes = 0;
        void *ptr = allocate(sizes[i]);
        assert_int_equal(
            api.sim.cu.cuMemGetAddressRange_v2(&base, &bytes, (CUdeviceptr)(uintptr_t)ptr), 0);
        assert_true(base == (CUdeviceptr)(uintptr_t)ptr && bytes >= sizes[i]);
    }
    assert_true((uintptr_t)allocate(1) % 512 == 0 && (uintptr_t)allocate(256) % 512 == 0);
    api_end(&api);
}

static void check_pairs(size_t size, size_t pairs)
{
    begin();
    for (size_t i = 0; i < 320 * pairs; i++) { /* until 64 MiB are open before an epoch is closed */
        free_block(allocate(size));
    }
    uint64_t records = calls("cuCtxRecordEvent"), queries = calls("cuEventQuery");
    uint64_t grows = calls("cuMemAlloc_v2"), waits = calls("cuEventSynchronize");
    for (size_t i = 0; i < 16 * pairs; i++) {
        free_block(allocate(size));
    }
    assert_in_range(calls("cuCtxRecordEvent") - records, 1, 17);
    assert_in_range(calls("cuEventQuery") - queries, 1, 34);
    assert_true(calls("cuMemAlloc_v2") == grows && calls("cuEventSynchronize") == waits);
    api_end(&api);
}

static void warm_pairs_share_one_record_and_two_queries(void **state)
{
    check_pairs(64, 256);
    check_pairs(4 * KIB, 256);
    check_pairs(200 * KIB, 256);
    check_pairs(MIB, 64);
    check_pairs(8 * MIB, 8);
}

static void a_busy_device_is_not_waited_for_within_the_bound(void **state)
{
    begin();
    give_work(api.other);
    for (size_t i = 0; i < 60; i++) { /* 240 MiB of blocks that stay in limbo */
        free_block(allocate(4 * MIB));
    }
    fallow_stats stats = api_stats(&api);
    assert_int_equal(stats.wait_count, 0);
    assert_int_equal(calls("cuEventSynchronize"), 0);
    assert_true(stats.reserved_bytes >= 240 * MIB && stats.reserved_bytes <= stats.bound_bytes);
    assert_int_equal(stats.bound_bytes, 256 * MIB);
    for (size_t i = 0; i < 60; i++) {
        free_block(allocate(4 * MIB));
    }
    assert_true(api_stats(&api).peak_reserved_bytes <= 260 * MIB); /* live bytes and the slack */
    assert_true(api_stats(&api).wait_count > 0);
    api_end(&api);
}

static void a_size_that_nothing_freed_fits_makes_room_for_itself(void **state)
{
    begin();
    for (size_t mib = 2; mib < 120; mib += 2) {
        give_work(api.stream);
        free_block(allocate(mib * MIB));
        fallow_stats stats = api_stats(&api);
        assert_true(stats.reserved_bytes <= 256 * MIB + mib * MIB);
    }
    api_end(&api);
}

static void nothing_is_recorded_asked_or_given_back_while_something_is_captured(void **state)
{
    begin();
    void *before = allocate(4 * KIB);
    fallow_context_capture_begin();
    CUgraph graph = NULL;
    assert_int_equal(api.sim.cu.cuStreamBeginCapture_v2(api.stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                     0);
    give_work(api.stream);
    uint64_t given = flw_sim_read_ledger(&api.sim).given_bytes;
    free_block(before);
    free_many(4 * KIB, 1000);
    free_many(30 * MIB, 8); /* takes new memory from the driver */
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_true(flw_sim_read_ledger(&api.sim).given_bytes > given);
    assert_false(comes_again(before, 4 * KIB, 1000));
    assert_int_equal(calls("cuCtxRecordEvent") + calls("cuEventQuery") + calls("cuMemFree_v2"), 0);
    assert_int_equal(api.sim.cu.cuStreamEndCapture(api.stream, &graph), 0); /* has survived */
    fallow_context_capture_end();
    free_many(30 * MIB, 8);
    assert_true(comes_again(before, 4 * KIB, 4000));
    assert_int_equal(api.sim.cu.cuGraphDestroy(graph), 0);
    api_end(&api);
}

static void without_a_record_of_contexts_memory_comes_back_by_synchronising(void **state)
{
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = FLW_SIM_HELD;
    world.device_bytes = 512 * MIB;
    api_begin(&api, &world);
    struct flw_driver driver = api.sim.cu;
    driver.cuCtxRecordEvent = NULL;
    begin_with(&driver, 0);
    give_work(api.stream);
    for (size_t i = 0; i < 200; i++) {
        free_block(allocate(16 * MIB));
    }
    assert_true(calls("cuCtxSynchronize") > 0);
    assert_true(api_stats(&api).peak_reserved_bytes <= 272 * MIB);
    api_end(&api);
}

static void an_epoch_covers_the_work_of_every_live_context(void **state)
{
    CUcontext second = NULL, popped = NULL;
    CUstream hidden = NULL;
    begin();
    assert_int_equal(api.sim.cu.cuCtxCreate_v2(&second, 0, 0), 0);
    assert_int_equal(api.sim.cu.cuStreamCreate(&hidden, CU_STREAM_NON_BLOCKING), 0);
    assert_true(flw_contexts_add(&api.sim.cu, second));
    give_work(hidden);
    assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    void *ptr = allocate(4 * KIB);
    free_block(ptr);
    free_many(4 * KIB, 256);
    assert_true(calls("cuCtxRecordEvent") >= 2);
    assert_false(comes_again(ptr, 4 * KIB, 1000));
    /* The end destroys the events. */
    flw_contexts_remove(&api.sim.cu, second);
    struct flw_pool *pool = flw_pool_of(api.pool);
    flw_contexts_lock();
    assert_int_equal(api.sim.cu.cuCtxDestroy_v2(second), 0);
    flw_heap_forget_context(&pool->heap, second);
    flw_contexts_unlock();
    free_many(4 * KIB, 2000);
    assert_true(comes_again(ptr, 4 * KIB, 4000));
    api_end(&api);
}

static CUcontext ending;
static unsigned dead_events_asked;

/* Before the querying thread continues with the events of other contexts, another thread finds the
 * epoch complete, and a third ends one of them. */
static CUresult CUDAAPI ask_while_a_context_ends(CUevent event)
{
    CUresult result = api.sim.cu.cuEventQuery(event);
    CUcontext context = ending;
    dead_events_asked += result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
    if (context != NULL && result == CUDA_SUCCESS) {
        struct flw_pool *pool = flw_pool_of(api.pool);
        ending = NULL;
        assert_true(flw_heap_poll(&pool->heap));
        flw_contexts_lock();
        assert_int_equal(api.sim.cu.cuCtxDestroy_v2(context), 0);
        flw_contexts_drop(&api.sim.cu, context);
        flw_heap_forget_context(&pool->heap, context);
        flw_contexts_unlock();
    }
    return result;
}

static void no_event_is_asked_for_whose_context_ends_meanwhile(void **state)
{
    CUcontext popped = NULL;
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = FLW_SIM_HELD;
    world.device_bytes = (uint64_t)4 << 30;
    api_begin(&api, &world);
    struct flw_driver driver = api.sim.cu;
    driver.cuEventQuery = ask_while_a_context_ends;
    begin_with(&driver, 0);
    CUcontext second = NULL;
    assert_int_equal(api.sim.cu.cuCtxCreate_v2(&second, 0, 0), 0);
    assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    assert_true(flw_contexts_add(&api.sim.cu, second));
    give_work(api.stream);
    free_many(4 * KIB, 1000);
    api.sim.step(UINT64_MAX);
    ending = second;
    dead_events_asked = 0;
    free_many(4 * KIB, 2000);
    assert_null(ending); /* did end */
    assert_int_equal(dead_events_asked, 0);
    api_end(&api);
}

static CUresult CUDAAPI refuse_what_is_not_ready(CUevent event)
{
    CUresult result = api.sim.cu.cuEventQuery(event);
    return result == CUDA_ERROR_NOT_READY ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
}

static void a_refusal_by_another_context_completes_nothing(void **state)
{
    CUcontext second = NULL, popped = NULL;
    CUstream hidden = NULL;
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = FLW_SIM_HELD;
    world.device_bytes = (uint64_t)4 << 30;
    api_begin(&api, &world);
    struct flw_driver driver = api.sim.cu;
    driver.cuEventQuery = refuse_what_is_not_ready;
    begin_with(&driver, 0);
    assert_int_equal(api.sim.cu.cuCtxCreate_v2(&second, 0, 0), 0);
    assert_int_equal(api.sim.cu.cuStreamCreate(&hidden, CU_STREAM_NON_BLOCKING), 0);
    give_work(hidden);
    assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    assert_true(flw_contexts_add(&api.sim.cu, second));
    void *ptr = allocate(4 * KIB);
    free_block(ptr);
    free_many(4 * KIB, 256);
    assert_false(comes_again(ptr, 4 * KIB, 1000));
    api.sim.step(UINT64_MAX);
    free_many(4 * KIB, 256);
    assert_true(comes_again(ptr, 4 * KIB, 4000));
    flw_contexts_remove(&api.sim.cu, second);
    api_end(&api);
}

static CUcontext capturing;

static CUresult CUDAAPI refuse_where_captured(void)
{
    CUcontext present = NULL;
    assert_int_equal(api.sim.cu.cuCtxGetCurrent(&present), 0);
    return present == capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                : api.sim.cu.cuCtxSynchronize();
}

static void a_refused_synchronisation_completes_nothing(void **state)
{
    CUcontext popped = NULL;
    void *blocks[8], *none = NULL;
    flw_sim_config world = flw_sim_config_default(7);
    world.device_bytes = 512 * MIB;
    api_begin(&api, &world);
    struct flw_driver driver = api.sim.cu;
    driver.cuCtxRecordEvent = NULL;
    driver.cuCtxSynchronize = refuse_where_captured;
    begin_with(&driver, 8 * 32 * MIB);
    assert_int_equal(api.sim.cu.cuCtxCreate_v2(&capturing, 0, 0), 0);
    assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    assert_true(flw_contexts_add(&api.sim.cu, capturing));
    for (size_t i = 0; i < 8; i++) {
        blocks[i] = allocate(32 * MIB);
    }
    free_block(blocks[0]);
    assert_int_equal(fallow_alloc(api.pool, 32 * MIB, NULL, &none), FALLOW_OUT_OF_MEMORY);
    flw_contexts_remove(&api.sim.cu, capturing);
    capturing = NULL;
    assert_ptr_equal(allocate(32 * MIB), blocks[0]);
    api_end(&api);
}

static void a_synchronisation_of_the_context_makes_what_was_freed_before_ready(void **state)
{
    begin();
    struct flw_pool *pool = flw_pool_of(api.pool);
    void *ptr = allocate(6 * MIB);
    give_work(api.stream);
    free_block(ptr);
    free_many(6 * MIB, 20); /* in the heap, behind an epoch */
    uint64_t seq = flw_epoch_begin_sync(&pool->heap);
    void *late = allocate(6 * MIB);
    give_work(api.stream);
    free_block(late);
    flw_epoch_end_sync(&pool->heap, seq);
    uint64_t queries = calls("cuEventQuery");
    assert_true(comes_again(ptr, 6 * MIB, 12));
    assert_true(calls("cuEventQuery") == queries);
    api_end(&api);
}

static void wrong_frees_are_refused_and_counted(void **state)
{
    begin();
    char *small = allocate(5000), *large = allocate(3 * MIB), *freed = allocate(5000),
         *gone = allocate(3 * MIB);
    free_block(freed);
    free_block(gone);
    assert_int_equal(fallow_free(api.pool, freed, NULL), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_free(api.pool, gone, NULL), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_free(api.pool, small + 512, NULL), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_free(api.pool, large + 65536, NULL), FALLOW_INVALID_POINTER);
    assert_int_equal(fallow_free(api.pool, &api, NULL), FALLOW_INVALID_POINTER);
    assert_int_equal(api_stats(&api).misuse_count, 5);
    assert_int_equal(api_stats(&api).live_count, 2);
    const struct flw_pool *pool = flw_pool_of(api.pool);
    assert_true(flw_epoch_owns(pool, (uintptr_t)large + 2 * MIB));
    assert_true(flw_epoch_owns(pool, (uintptr_t)freed));
    assert_false(flw_epoch_owns(pool, (uintptr_t)&api));
    api_end(&api);
}

static void *free_all(void *blocks)
{
    void **list = blocks;
    for (size_t i = 0; list[i] != NULL; i++) {
        free_block(list[i]);
    }
    return NULL;
}

static void blocks_freed_by_a_thread_that_ends_come_back(void **state)
{
    void *blocks[101] = {NULL};
    pthread_t thread;
    begin();
    for (size_t i = 0; i < 100; i++) {
        blocks[i] = allocate(i % 2 == 0 ? 2000 : 2 * MIB);
    }
    assert_int_equal(pthread_create(&thread, NULL, free_all, blocks), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(api_stats(&api).live_count, 0);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_int_equal(api_stats(&api).reserved_bytes, 0);
    assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, 0);
    const struct flw_pool *pool = flw_pool_of(api.pool);
    assert_false(flw_epoch_owns(pool, (uintptr_t)blocks[1])); /* may belong to others */
    api_end(&api);
}

static void a_full_device_is_emptied_before_an_allocation_fails(void **state)
{
    flw_sim_config world = flw_sim_config_default(7);
    world.schedule = FLW_SIM_HELD;
    world.device_bytes = 256 * MIB;
    api_begin(&api, &world);
    begin_with(NULL, 0);
    give_work(api.stream);
    free_many(4 * MIB, 50);
    free_many(30 * KIB, 1000);
    void *most = allocate(200 * MIB); /* needs all of that back from the driver */
    void *ptr = NULL;
    assert_int_equal(fallow_alloc(api.pool, 200 * MIB, NULL, &ptr), FALLOW_OUT_OF_MEMORY);
    assert_null(ptr);
    free_block(most);
    assert_non_null(allocate(240 * MIB));
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

static void what_served_the_last_climb_is_noted(void **state)
{
    void *ptr = NULL;
    flw_sim_config world = flw_sim_config_default(7);
    world.device_bytes = (uint64_t)4 << 30;
    api_begin(&api, &world);
    begin_with(NULL, 64 * MIB);
    const struct flw_pool *pool = flw_pool_of(api.pool);
    assert_int_equal(pool->climbs.last, 0);
    ptr = allocate(2 * MIB);
    assert_int_equal(pool->climbs.last, 2 * MIB << 8 | (FLW_CONTEXT_GROW + 1));
    free_block(ptr);
    assert_int_equal(fallow_alloc(api.pool, 80 * MIB, NULL, &ptr), FALLOW_OUT_OF_MEMORY);
    assert_int_equal(pool->climbs.last, 80 * MIB << 8 | (FLW_CONTEXT_FAIL + 1));
    api_end(&api);
}

static void a_request_that_may_not_grow_gives_nothing_away(void **state)
{
    void *ptr = NULL;
    fallow_request request = {
        .struct_size = sizeof request, .size_bytes = 24 * MIB, .flags = FALLOW_REQUEST_NO_GROW};
    begin();
    free_many(2 * MIB, 40);
    fallow_pool *first = api.pool;
    begin_with(NULL, 0);
    free_many(2 * MIB, 40); /* of another pool, too */
    uint64_t given = flw_sim_read_ledger(&api.sim).given_bytes;
    assert_int_equal(fallow_alloc_request(api.pool, &request, NULL, &ptr), FALLOW_OUT_OF_MEMORY);
    assert_int_equal(fallow_alloc_request(first, &request, NULL, &ptr), FALLOW_OUT_OF_MEMORY);
    assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, given);
    request.size_bytes = 2 * MIB; /* now the memory is available */
    assert_int_equal(fallow_alloc_request(api.pool, &request, NULL, &ptr), FALLOW_OK);
    fallow_pool_destroy(first);
    api_end(&api);
}

static void a_lost_device_allocates_nothing_and_frees_everything(void **state)
{
    begin();
    void *ptr = allocate(10000), *none = NULL;
    assert_true((api.sim.fail)("cuCtxRecordEvent", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1));
    free_many(300, 256);
    assert_int_equal(fallow_alloc(api.pool, 3 * MIB, NULL, &none), FALLOW_DEVICE_LOST);
    assert_int_equal(fallow_free(api.pool, ptr, NULL), FALLOW_OK);
    fallow_pool_destroy(api.pool);
    assert_int_equal(flw_contexts_count(&api.sim.cu), 0);
    flw_sim_close(&api.sim);
}

static void settings_for_streams_are_refused(void **state)
{
    begin();
    fallow_pool *pool = NULL;
    fallow_pool_config config = api_config(&api);
    config.order = FALLOW_ORDER_CONTEXT;
    config.reuse_policy = FALLOW_REUSE_COMPLETED;
    assert_int_equal(fallow_pool_create(&config, &pool), FALLOW_INVALID_ARGUMENT);
    config.reuse_policy = FALLOW_REUSE_WAIT;
    config.checks = FALLOW_CHECK_RED_ZONES;
    assert_int_equal(fallow_pool_create(&config, &pool), FALLOW_INVALID_ARGUMENT);
    config.checks = 0;
    config.streams_may_die = 1;
    assert_int_equal(fallow_pool_create(&config, &pool), FALLOW_INVALID_ARGUMENT);
    config.streams_may_die = 0;
    config.order = (fallow_order)2;
    assert_int_equal(fallow_pool_create(&config, &pool), FALLOW_INVALID_ARGUMENT);
    fallow_capture *capture = NULL;
    assert_int_equal(fallow_capture_begin(api.pool, api.stream, &capture), FALLOW_NOT_SUPPORTED);
    void *ptr = allocate(100);
    assert_int_equal(fallow_record_use(api.pool, ptr, api.other), FALLOW_OK);
    assert_int_equal(fallow_stream_retire(api.pool, api.other), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, ptr, api.other), FALLOW_OK);
    assert_int_equal(fallow_record_use(api.pool, ptr, api.other), FALLOW_INVALID_POINTER);
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_block_is_allocated_again_only_when_earlier_work_of_every_stream_is_complete),
        cmocka_unit_test(a_block_of_a_mebibyte_is_a_driver_allocation_of_its_own),
        cmocka_unit_test(warm_pairs_share_one_record_and_two_queries),
        cmocka_unit_test(a_busy_device_is_not_waited_for_within_the_bound),
        cmocka_unit_test(a_size_that_nothing_freed_fits_makes_room_for_itself),
        cmocka_unit_test(nothing_is_recorded_asked_or_given_back_while_something_is_captured),
        cmocka_unit_test(without_a_record_of_contexts_memory_comes_back_by_synchronising),
        cmocka_unit_test(an_epoch_covers_the_work_of_every_live_context),
        cmocka_unit_test(no_event_is_asked_for_whose_context_ends_meanwhile),
        cmocka_unit_test(a_refusal_by_another_context_completes_nothing),
        cmocka_unit_test(a_refused_synchronisation_completes_nothing),
        cmocka_unit_test(a_synchronisation_of_the_context_makes_what_was_freed_before_ready),
        cmocka_unit_test(wrong_frees_are_refused_and_counted),
        cmocka_unit_test(blocks_freed_by_a_thread_that_ends_come_back),
        cmocka_unit_test(a_full_device_is_emptied_before_an_allocation_fails),
        cmocka_unit_test(what_served_the_last_climb_is_noted),
        cmocka_unit_test(a_request_that_may_not_grow_gives_nothing_away),
        cmocka_unit_test(a_lost_device_allocates_nothing_and_frees_everything),
        cmocka_unit_test(settings_for_streams_are_refused),
    };
    return cmocka_run_group_tests_name("epoch", tests, NULL, NULL);
}
