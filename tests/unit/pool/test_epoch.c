/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves: a pool in context order reuses a freed block only after all work queued before the free
 * on any stream of any live context is complete, also beside contexts that end and
 * calls that are refused; memory.script has the rest. Only the driver knows the streams. */
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

TEST(without_a_record_of_contexts_memory_comes_back_by_synchronising)
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

TEST(an_epoch_covers_the_work_of_every_live_context)
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

TEST(no_event_is_asked_for_whose_context_ends_meanwhile)
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

TEST(a_refusal_by_another_context_completes_nothing)
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

TEST(a_refused_synchronisation_completes_nothing)
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

TEST(a_synchronisation_of_the_context_makes_what_was_freed_before_ready)
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

TEST(wrong_frees_are_refused_and_counted)
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

FLW_TEST_MAIN(NULL, NULL)
