/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the settings of a pool at work, one by one; those of the economy and of reuse have the
 * random programs, and checks their own file.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "unit/pool/test_api.h"

static void begin_with(struct api *api, const fallow_pool_config *config)
{
    assert_int_equal(fallow_pool_create(config, &api->pool), FALLOW_OK);
}

/* The line names the unknown setting and the valid ones. */
static void a_setting_that_is_none_is_named(void **state)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config usual = api_config(&api), config;
#define EXPECT(change, line)                                                               \
    do {                                                                                   \
        config = usual;                                                                    \
        change;                                                                            \
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_INVALID_ARGUMENT); \
        assert_null(api.pool);                                                             \
        assert_string_equal(api.log, "invalid setting: " line);                            \
    } while (0)
    EXPECT(config.device = -1, "device: an ordinal, 0 or more");
    EXPECT(config.economy = 3,
           "economy: FALLOW_BALANCED, FALLOW_MEMORY_FIRST or FALLOW_SPEED_FIRST");
    EXPECT(config.reuse_policy = 3, "reuse_policy: one of the FALLOW_REUSE_ values");
    EXPECT(config.checks = 1u << 9, "checks: FALLOW_CHECK_ bits, no others");
    EXPECT(config.checks = 1u << 0, "checks: FALLOW_CHECK_ bits, no others"); /* was the fast one */
    EXPECT(config.handle_types = 4, "handle_types: FALLOW_HANDLE_ bits, no others");
    EXPECT(config.streams_may_die = 2, "streams_may_die: 0 or 1");
    EXPECT(config.helper_thread = 2, "helper_thread: 0 or 1");
    EXPECT(config.reserved_0[0] = 1, "reserved_0: 0");
    EXPECT(config.reserved_0[1] = 1, "reserved_0: 0");
    EXPECT(config.reserved_1 = 1, "reserved_1: 0");
    EXPECT(config.page_source = 3, "page_source: one of the FALLOW_PAGES_ values");
    EXPECT(config.peer_device_count = SIZE_MAX, "peer_device_count: at most 16");
    EXPECT(config.peer_device_count = 1, "peer_devices: peer_device_count ordinals");
    EXPECT(config.order = 2, "order: FALLOW_ORDER_STREAM or FALLOW_ORDER_CONTEXT");
    usual.order = FALLOW_ORDER_CONTEXT;
    EXPECT(config.checks = FALLOW_CHECK_POISON, "checks: must be 0 with FALLOW_ORDER_CONTEXT");
#undef EXPECT
    api_end(&api);
}

/* Neither is a driver; the line names the alternatives. */
static void a_driver_that_is_none_is_named(void **state)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.driver = "";
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_NOT_FOUND);
    assert_non_null(strstr(api.log, "leave the setting out for libcuda.so.1"));
    config.driver = "/nowhere/libcuda.so.1";
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_NOT_FOUND);
    assert_string_equal(api.log, "cannot load the CUDA driver '/nowhere/libcuda.so.1': cannot open "
                                 "shared object file: No such file or directory");
    config.driver = "libm.so.6";
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_VERSION);
    assert_string_equal(
        api.log,
        "the CUDA driver lacks the entry point 'cuInit': name a library that is a driver of CUDA 11.4 or newer");
    api_end(&api);
}

/* Allocate 64 MiB, use and free it, and finish the device's work. */
static void fill_and_empty(struct api *api)
{
    void *ptrs[8];
    for (size_t i = 0; i < 8; i++) {
        ptrs[i] = api_alloc(api, 8 * MIB, api->stream);
        api_use(api, ptrs[i], 8 * MIB, api->stream);
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(fallow_free(api->pool, ptrs[i], api->stream), FALLOW_OK);
    }
    assert_true(api_stats(api).reserved_bytes >= 64 * MIB);
}

/* The pool keeps the bytes needed in the last two seconds, so this takes that long; ctest's
 * timeout is the bound. */
static void await_decay(struct api *api, bool polls)
{
    uint64_t reserved = UINT64_MAX;
    while (reserved > 8 * MIB) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        api->sim.step(UINT64_MAX);
        if (polls) {
            assert_int_equal(fallow_pool_poll(api->pool), FALLOW_OK);
        }
        reserved = api_stats(api).reserved_bytes;
    }
    assert_true(flw_sim_read_ledger(&api->sim).given_bytes == reserved);
}

static void idle_memory_is_given_back_by_polls(void **state)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.decay_ms = 1;
    begin_with(&api, &config);
    fill_and_empty(&api);
    await_decay(&api, true);
    api_end(&api);
}

static void a_helper_thread_gives_back_what_an_idle_process_holds(void **state)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.decay_ms = 1;
    config.helper_thread = 1;
    begin_with(&api, &config);
    fill_and_empty(&api);
    await_decay(&api, false);
    api_end(&api);
}

/* One look is no proof that the streams do without; a few are. */
static void what_streams_need_without_waits_goes_when_they_no_longer_ask(void **state)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.decay_ms = 1;
    begin_with(&api, &config);
    void *base = api_alloc(&api, 400 * MIB, api.stream);
    for (size_t i = 0; i < 5; i++) { /* none is done before the next begins */
        CUstream stream;
        assert_int_equal(api.sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
        void *ptr = api_alloc(&api, 40 * MIB, stream);
        api_use(&api, ptr, 40 * MIB, stream);
        assert_int_equal(fallow_free(api.pool, ptr, stream), FALLOW_OK);
    }
    assert_true(api_stats(&api).reserved_bytes >= 560 * MIB);
    api.sim.step(UINT64_MAX);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    assert_true(api_stats(&api).reserved_bytes >= 560 * MIB);
    while (api_stats(&api).reserved_bytes > 512 * MIB) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        api.sim.step(UINT64_MAX);
        assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    }
    assert_int_equal(fallow_free(api.pool, base, api.stream), FALLOW_OK);
    api_end(&api);
}

static void memory_that_is_never_to_decay_stays(void **state)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.decay_ms = UINT32_MAX;
    begin_with(&api, &config);
    fill_and_empty(&api);
    api.sim.step(UINT64_MAX);
    uint64_t reserved = api_stats(&api).reserved_bytes;
    for (int i = 0; i < 10; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    }
    assert_true(api_stats(&api).reserved_bytes == reserved);
    api_end(&api);
}

static void streams_that_vanish_without_notice_leave_no_race(void **state)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.streams_may_die = 1;
    config.limit_bytes = 256 * MIB;
    begin_with(&api, &config);
    CUstream first = api.stream;
    for (int i = 0; i < 40; i++) {
        void *small = api_alloc(&api, 5000, api.stream),
             *large = api_alloc(&api, 20 * MIB, api.stream);
        api_use(&api, small, 5000, api.stream);
        api_use(&api, large, 20 * MIB, api.stream);
        assert_int_equal(fallow_free(api.pool, large, api.stream), FALLOW_OK);
        assert_int_equal(fallow_free(api.pool, small, api.stream), FALLOW_OK);
        assert_int_equal(api.sim.cu.cuStreamDestroy_v2(api.stream), 0); /* the work continues */
        assert_int_equal(api.sim.cu.cuStreamCreate(&api.stream, CU_STREAM_NON_BLOCKING), 0);
        assert_ptr_equal(api.stream, first); /* another stream under the same handle */
    }
    assert_int_equal(flw_sim_print_violations(&api.sim), 0);
    api_end(&api);
}

/* A use is announced on a stream that is destroyed before the free, without notice. */
static void a_use_on_a_stream_that_vanished_is_waited_for(void **state)
{
    struct api api;
    CUstream user;
    CUevent recycled;
    api_begin(&api, NULL);
    assert_int_equal(api.sim.cu.cuEventCreate(&recycled, CU_EVENT_DISABLE_TIMING), 0);
    fallow_pool_config config = api_config(&api);
    config.streams_may_die = 1;
    begin_with(&api, &config);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(api.sim.cu.cuStreamCreate(&user, CU_STREAM_NON_BLOCKING), 0);
        void *ptr = api_alloc(&api, 3 * MIB, api.stream);
        assert_int_equal(api.sim.cu.cuEventRecord(recycled, api.stream), 0);
        assert_int_equal(api.sim.cu.cuStreamWaitEvent(user, recycled, 0), 0);
        api_use(&api, ptr, 3 * MIB, user);
        assert_int_equal(fallow_record_use(api.pool, ptr, user), FALLOW_OK);
        assert_int_equal(api.sim.cu.cuStreamDestroy_v2(user), 0);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        void *next = api_alloc(&api, 3 * MIB, api.stream);
        api_use(&api, next, 3 * MIB, api.stream);
        assert_int_equal(fallow_free(api.pool, next, api.stream), FALLOW_OK);
    }
    api.sim.step(UINT64_MAX);
    assert_int_equal(fallow_pool_poll(api.pool), FALLOW_OK);
    assert_int_equal(api_stats(&api).deferred_bytes, 0);
    assert_int_equal(api.sim.cu.cuEventDestroy_v2(recycled), 0);
    assert_int_equal(flw_sim_print_violations(&api.sim), 0);
    api_end(&api);
}

static void stream_checks_without_identities_are_refused(void **state)
{
    struct api api;
    flw_sim_config world = flw_sim_config_default(7);
    world.without_ids = 1;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    config.streams_may_die = 1;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_NOT_SUPPORTED);
    assert_null(api.pool);
    assert_non_null(strstr(api.log, "cuStreamGetId"));
    config.streams_may_die = 0;
    begin_with(&api, &config);
    api_end(&api);
}

/* A stream of the second device writes memory of a pool on the first. How many rules that broke. */
static uint64_t write_from_peer(struct api *api, const fallow_pool_config *config)
{
    CUdevice device;
    CUcontext context, before;
    CUstream stream;
    begin_with(api, config);
    void *ptr = api_alloc(api, 4 * MIB, api->stream);
    flw_sim_range range = {(uint64_t)(uintptr_t)ptr, 4 * MIB, 1, 0};
    assert_int_equal(api->sim.cu.cuDeviceGet(&device, 1), 0);
    assert_int_equal(api->sim.cu.cuDevicePrimaryCtxRetain(&context, device), 0);
    assert_int_equal(api->sim.cu.cuCtxPushCurrent_v2(context), 0);
    assert_int_equal(api->sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
    (void)api->sim.touch(stream, &range, 1);
    api->sim.step(UINT64_MAX);
    uint64_t violations = flw_sim_read_ledger(&api->sim).violation_count;
    assert_int_equal(api->sim.cu.cuCtxPopCurrent_v2(&before), 0);
    assert_int_equal(fallow_free(api->pool, ptr, api->stream), FALLOW_OK);
    fallow_pool_destroy(api->pool);
    return violations;
}

static void peers_of_the_config_and_no_others_reach_the_memory(void **state)
{
    static const int peers[] = {1};
    for (size_t count = 0; count < 2; count++) {
        struct api api;
        flw_sim_config world = flw_sim_config_default(7);
        world.schedule = FLW_SIM_HELD;
        world.check = 1;
        world.device_count = 2;
        api_begin(&api, &world);
        fallow_pool_config config = api_config(&api);
        config.peer_devices = peers;
        config.peer_device_count = count;
        assert_true((write_from_peer(&api, &config) == 0) == (count == 1));
        flw_sim_close(&api.sim);
    }
}

struct hoard {
    struct api *api;
    void *ptr;
    unsigned calls;
};

static int return_the_hoard(void *context, size_t size, fallow_stream stream)
{
    struct hoard *hoard = context;
    void *small = NULL;
    (void)size;
    hoard->calls++;
    /* Inside the callback the pool may be called. */
    assert_int_equal(fallow_alloc(hoard->api->pool, 100, stream, &small), FALLOW_OK);
    assert_int_equal(fallow_free(hoard->api->pool, small, stream), FALLOW_OK);
    if (hoard->ptr == NULL) {
        return 0;
    }
    assert_int_equal(fallow_free(hoard->api->pool, hoard->ptr, stream), FALLOW_OK);
    hoard->ptr = NULL;
    return 1;
}

static void the_callback_can_make_room(void **state)
{
    struct api api;
    struct hoard hoard = {.api = &api};
    void *ptr = NULL;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 64 * MIB;
    config.on_oom = return_the_hoard;
    config.oom_context = &hoard;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    hoard.ptr = api_alloc(&api, 40 * MIB, api.stream);
    ptr = api_alloc(&api, 50 * MIB, api.stream);
    assert_true(hoard.calls >= 1);
    assert_null(hoard.ptr);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    api_end(&api);
}

struct asking {
    struct api *api;
    atomic_uint inside, most_inside, calls;
};

/* Fails: this allocation may not call back again. */
static int ask_for_more(void *context, size_t size, fallow_stream stream)
{
    struct asking *asking = context;
    void *ptr = asking;
    unsigned inside = atomic_fetch_add(&asking->inside, 1) + 1;
    if (inside > atomic_load(&asking->most_inside)) {
        atomic_store(&asking->most_inside, inside);
    }
    atomic_fetch_add(&asking->calls, 1);
    assert_int_equal(fallow_alloc(asking->api->pool, size, stream, &ptr), FALLOW_OUT_OF_MEMORY);
    assert_null(ptr);
    atomic_fetch_sub(&asking->inside, 1);
    return 0;
}

static void *fail_again_and_again(void *context)
{
    struct asking *asking = context;
    for (unsigned i = 0; i < 20; i++) {
        void *ptr = NULL;
        assert_int_equal(fallow_alloc(asking->api->pool, 50 * MIB, asking->api->stream, &ptr),
                         FALLOW_OUT_OF_MEMORY);
    }
    return NULL;
}

static void the_callback_runs_alone_and_never_inside_itself(void **state)
{
    struct api api;
    struct asking asking = {.api = &api};
    pthread_t threads[3];
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 64 * MIB;
    config.wait_ms = UINT32_MAX;
    config.log = NULL;
    config.on_oom = ask_for_more;
    config.oom_context = &asking;
    begin_with(&api, &config);
    void *held = api_alloc(&api, 40 * MIB, api.stream);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, fail_again_and_again, &asking), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(asking.most_inside, 1);
    assert_in_range(asking.calls, 1, 60);
    assert_int_equal(api_stats(&api).oom_count, 60 + asking.calls);
    assert_int_equal(fallow_free(api.pool, held, api.stream), FALLOW_OK);
    api_end(&api);
}

#define SMALL_BLOCKS 20000

struct crowd {
    struct api *api;
    void *ptrs[SMALL_BLOCKS];
    unsigned count;
};

/* Free blocks of the requested class, and report none. */
static int return_in_silence(void *context, size_t size, fallow_stream stream)
{
    struct crowd *crowd = context;
    (void)size;
    for (unsigned i = 0; i < 230 && crowd->count > 0; i++) {
        assert_int_equal(fallow_free(crowd->api->pool, crowd->ptrs[--crowd->count], stream),
                         FALLOW_OK);
    }
    return 0;
}

static void what_the_callback_frees_leaves_the_cache_its_room(void **state)
{
    static struct crowd crowd;
    struct api api;
    void *ptr = NULL, *next = NULL;
    crowd = (struct crowd){.api = &api};
    flw_sim_config world = flw_sim_config_default(7); /* random: a wait ends */
    world.check = 1;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 64 * MIB;
    config.on_oom = return_in_silence;
    config.oom_context = &crowd;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    for (unsigned before = 0; before <= crowd.count; before++) { /* until the callback was called */
        assert_int_equal(fallow_alloc(api.pool, 4096, api.stream, &ptr), FALLOW_OK);
        assert_in_range(crowd.count, 0, SMALL_BLOCKS - 1);
        crowd.ptrs[crowd.count++] = ptr;
    }
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    /* The neighbouring class is unchanged. */
    if (fallow_alloc(api.pool, 4608, api.stream, &next) == FALLOW_OK) {
        assert_int_equal(fallow_free(api.pool, next, api.stream), FALLOW_OK);
    }
    while (crowd.count > 0) {
        ptr = crowd.ptrs[--crowd.count];
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    }
    assert_int_equal(api_stats(&api).live_bytes, 0);
    api_end(&api);
}

static void small_blocks_use_a_limit_up(void **state)
{
    static void *ptrs[512 * 256 + 1];
    for (size_t limit = 6 * MIB; limit <= 512 * MIB;
         limit += limit / 16 / (2 * MIB) * (2 * MIB) + 2 * MIB) {
        struct api api;
        size_t count = 0;
        api_begin(&api, NULL);
        fallow_pool_config config = api_config(&api);
        config.limit_bytes = limit;
        begin_with(&api, &config);
        while (fallow_alloc(api.pool, 4096, api.stream, &ptrs[count]) == FALLOW_OK) {
            count++;
        }
        assert_int_equal(count, limit / 4096);
        while (count > 0) {
            assert_int_equal(fallow_free(api.pool, ptrs[--count], api.stream), FALLOW_OK);
        }
        api_end(&api);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_setting_that_is_none_is_named),
        cmocka_unit_test(a_driver_that_is_none_is_named),
        cmocka_unit_test(idle_memory_is_given_back_by_polls),
        cmocka_unit_test(a_helper_thread_gives_back_what_an_idle_process_holds),
        cmocka_unit_test(what_streams_need_without_waits_goes_when_they_no_longer_ask),
        cmocka_unit_test(memory_that_is_never_to_decay_stays),
        cmocka_unit_test(streams_that_vanish_without_notice_leave_no_race),
        cmocka_unit_test(a_use_on_a_stream_that_vanished_is_waited_for),
        cmocka_unit_test(stream_checks_without_identities_are_refused),
        cmocka_unit_test(peers_of_the_config_and_no_others_reach_the_memory),
        cmocka_unit_test(the_callback_can_make_room),
        cmocka_unit_test(the_callback_runs_alone_and_never_inside_itself),
        cmocka_unit_test(what_the_callback_frees_leaves_the_cache_its_room),
        cmocka_unit_test(small_blocks_use_a_limit_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
