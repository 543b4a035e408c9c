/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: others' parts in a sleep or a wake: watchers, other pools, other threads, the caller's
 * callback; a wake without enough memory, and pools that cannot sleep. */
#include "unit/pool/test_api_sleep.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static void a_wake_without_memory_stays_asleep_and_may_be_repeated(void **state)
{
    struct api api;
    CUdeviceptr other = 0;
    const uint32_t tag = 5;
    fallow_sleep_request request;
    fallow_oom_report report;
    begin_backed(&api);
    void *ptr = api_must_alloc(&api, 100 * MIB, 5, 0);
    fill(&api, ptr, 100 * MIB, 0x5A);
    fallow_sleep_request_init(&request);
    request.saved_tags = &tag;
    request.saved_tag_count = 1;
    assert_int_equal(sleep_idle(&api, &request), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuMemAlloc_v2(&other, 200 * MIB), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OUT_OF_MEMORY);
        assert_int_equal(api_stats(&api).is_asleep, 1);
        assert_int_equal(api_stats(&api).reserved_bytes, 0);
        assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, 200 * MIB);
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    }
    fallow_oom_report_init(&report);
    assert_int_equal(fallow_pool_get_oom_report(api.pool, &report), FALLOW_OK);
    assert_int_equal(report.device_free_bytes, 56 * MIB);
    /* The report's size_bytes is the missing memory, not all memory that the pool needs. */
    assert_int_equal(report.size_bytes, api_stats(&api).asleep_bytes - 56 * MIB);
    assert_int_equal(api.sim.cu.cuMemFree_v2(other), 0);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_true(holds(&api, ptr, 100 * MIB, 0x5A));
    api_end(&api);
}

static void a_wake_asks_other_pools_for_idle_memory(void **state)
{
    struct api api;
    fallow_pool *hoarder = NULL;
    void *ptr = NULL;
    begin_backed(&api);
    hoarder = api_create(&api);
    void *own = api_alloc(&api, 100 * MIB, api.stream);
    assert_int_equal(sleep_idle(&api, NULL), FALLOW_OK);
    assert_int_equal(fallow_alloc(hoarder, 200 * MIB, api.other, &ptr), FALLOW_OK);
    assert_int_equal(fallow_free(hoarder, ptr, api.other), FALLOW_OK);
    assert_int_equal(fallow_pool_trim(hoarder, 200 * MIB, 0, NULL), FALLOW_OK);
    assert_int_equal(api.sim.cu.cuCtxSynchronize(), 0);
    assert_int_equal(fallow_pool_poll(hoarder), FALLOW_OK); /* idle, and noticed */
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, own, api.stream), FALLOW_OK);
    fallow_pool_destroy(hoarder);
    api_end(&api);
}

struct watcher {
    struct api *api;
    char *order;
    char before, after;
    int refuses;
    void *frees;
};

static int before_sleep(void *context)
{
    struct watcher *watcher = context;
    strncat(watcher->order, &watcher->before, 1);
    if (watcher->frees != NULL) { /* it may use the pool, which still allocates */
        void *ptr = api_alloc(watcher->api, 3000, watcher->api->stream);
        assert_int_equal(fallow_free(watcher->api->pool, ptr, watcher->api->stream), FALLOW_OK);
        assert_int_equal(fallow_free(watcher->api->pool, watcher->frees, watcher->api->stream),
                         FALLOW_OK);
        watcher->frees = NULL;
        assert_int_equal(fallow_pool_sleep(watcher->api->pool, NULL), FALLOW_BUSY);
    }
    return watcher->refuses;
}

static void after_wake(void *context)
{
    struct watcher *watcher = context;
    strncat(watcher->order, &watcher->after, 1);
    if (!watcher->refuses) {
        void *ptr = api_alloc(watcher->api, 3000, watcher->api->stream);
        assert_int_equal(fallow_free(watcher->api->pool, ptr, watcher->api->stream), FALLOW_OK);
    }
}

static void watchers_are_told_before_and_after(void **state)
{
    struct api api;
    fallow_sleep_request request;
    char order[32] = "";
    struct watcher first = {&api, order, 'a', 'A', 0, NULL};
    struct watcher second = {&api, order, 'b', 'B', 0, NULL};
    struct watcher third = {&api, order, 'c', 'C', 0, NULL};
    api_begin_with_pool(&api);
    first.frees = api_alloc(&api, 50 * MIB, api.stream);
    assert_int_equal(fallow_pool_watch_sleep(api.pool, NULL, NULL, NULL), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_pool_watch_sleep(api.pool, before_sleep, after_wake, &first),
                     FALLOW_OK);
    assert_int_equal(fallow_pool_watch_sleep(api.pool, before_sleep, after_wake, &second),
                     FALLOW_OK);
    assert_int_equal(fallow_pool_watch_sleep(api.pool, before_sleep, after_wake, &third),
                     FALLOW_OK);
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT;
    assert_int_equal(fallow_pool_sleep(api.pool, &request), FALLOW_OK);
    assert_string_equal(order, "abc");
    assert_int_equal(api_stats(&api).live_count, 0);
    assert_int_equal(api_stats(&api).asleep_bytes, 0);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_string_equal(order, "abcCBA");
    order[0] = '\0';
    second.refuses = 1;
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_BUSY);
    assert_string_equal(order, "abBA"); /* a watcher that was not asked is not called */
    assert_int_equal(api_stats(&api).is_asleep, 0);
    order[0] = '\0';
    assert_int_equal(fallow_pool_unwatch_sleep(api.pool, before_sleep, after_wake, &second),
                     FALLOW_OK);
    assert_int_equal(fallow_pool_unwatch_sleep(api.pool, before_sleep, after_wake, &second),
                     FALLOW_NOT_FOUND);
    void *ptr = api_alloc(&api, MIB, api.stream);
    api_use(&api, ptr, MIB, api.stream);
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_BUSY); /* work runs */
    assert_string_equal(order, "acCA");
    for (int i = 2; i < 16; i++) {
        assert_int_equal(fallow_pool_watch_sleep(api.pool, before_sleep, NULL, &first), FALLOW_OK);
    }
    assert_int_equal(fallow_pool_watch_sleep(api.pool, before_sleep, NULL, &first), FALLOW_BUSY);
    api_end(&api);
}

static void what_cannot_sleep_says_so(void **state)
{
    struct api api;
    fallow_sleep_request request;
    flw_sim_config world = backed_world();
    world.without_vmm = 1;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_NOT_SUPPORTED);
    assert_non_null(strstr(api.log, "virtual memory management"));
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    api_end(&api);

    world.without_vmm = 0;
    api_begin(&api, &world);
    config = api_config(&api);
    config.order = FALLOW_ORDER_CONTEXT;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_NOT_SUPPORTED);
    api_end(&api);

    api_begin(&api, &world);
    config = api_config(&api);
    config.checks = FALLOW_CHECK_RED_ZONES;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(fallow_pool_sleep(api.pool, NULL), FALLOW_NOT_SUPPORTED);
    assert_non_null(strstr(api.log, "debug checks"));
    api_end(&api);

    begin_backed(&api);
    fallow_sleep_request_init(&request);
    request.flags = 1u << 30;
    assert_int_equal(fallow_pool_sleep(api.pool, &request), FALLOW_INVALID_ARGUMENT);
    request.flags = 0;
    request.saved_tag_count = 1;
    assert_int_equal(fallow_pool_sleep(api.pool, &request), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_pool_sleep(NULL, NULL), FALLOW_INVALID_POOL);
    assert_int_equal(fallow_pool_wake(NULL), FALLOW_INVALID_POOL);
    api_end(&api);
}

/* ---- threads */

static void *sleep_and_wait(void *argument)
{
    fallow_sleep_request request;
    const struct api *api = argument;
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT;
    return fallow_pool_sleep(api->pool, &request) == FALLOW_OK ? NULL : argument;
}

/* Another thread puts the pool to sleep meanwhile, and is waited for. */
static int put_to_sleep_without_room(void *context, size_t size_bytes, fallow_stream stream)
{
    pthread_t thread;
    void *wrong = context;
    (void)size_bytes;
    (void)stream;
    return pthread_create(&thread, NULL, sleep_and_wait, context) == 0 &&
           pthread_join(thread, &wrong) == 0 && wrong == NULL;
}

static void a_callback_without_room_keeps_no_sleep_waiting(void **state)
{
    struct api api;
    void *ptr = &api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.limit_bytes = 32 * MIB;
    config.on_oom = put_to_sleep_without_room;
    config.oom_context = &api;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    void *kept = api_alloc(&api, 20 * MIB, api.stream);
    assert_int_equal(fallow_alloc(api.pool, 25 * MIB, api.stream, &ptr), FALLOW_ASLEEP);
    assert_null(ptr);
    assert_int_equal(api_stats(&api).is_asleep, 1);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, kept, api.stream), FALLOW_OK);
    assert_int_equal(fallow_pool_sleep(api.pool, NULL) & ~FALLOW_BUSY,
                     FALLOW_OK); /* nobody is inside */
    api_end(&api);
}

struct crowd {
    struct api *api;
    atomic_bool is_over;
    atomic_uint refused, allocated;
};

static void *alloc_and_free(void *argument)
{
    struct crowd *crowd = argument;
    CUstream stream;
    unsigned turn = 0;
    (void)!crowd->api->sim.cu.cuCtxSetCurrent(NULL);
    void *context = NULL;
    (void)!crowd->api->sim.cu.cuDevicePrimaryCtxRetain((CUcontext *)&context, 0);
    (void)!crowd->api->sim.cu.cuCtxSetCurrent((CUcontext)context);
    (void)!crowd->api->sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    while (!atomic_load(&crowd->is_over)) {
        void *held[8];
        size_t count = 0;
        for (; count < 8; count++) {
            size_t size = turn % 7 == 0 ? 3 * MIB : 300 + 700 * (size_t)(turn % 11);
            turn++;
            fallow_status status = fallow_alloc(crowd->api->pool, size, stream, &held[count]);
            if (status != FALLOW_OK) {
                crowd->refused += status == FALLOW_ASLEEP;
                crowd->is_over |= status != FALLOW_ASLEEP;
                break;
            }
            crowd->allocated++;
        }
        while (count > 0) {
            if (fallow_free(crowd->api->pool, held[--count], stream) != FALLOW_OK) {
                crowd->is_over = true;
            }
        }
    }
    (void)!fallow_stream_retire(crowd->api->pool, stream);
    return NULL;
}

static void threads_allocate_and_free_around_a_sleep(void **state)
{
    struct api api;
    struct crowd crowd = {.api = &api};
    pthread_t threads[3];
    fallow_sleep_request request;
    api_begin_with_pool(&api);
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT;
    void *kept = api_alloc(&api, 10 * MIB, api.stream);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, alloc_and_free, &crowd), 0);
    }
    for (unsigned i = 0; i < 30 && !crowd.is_over; i++) {
        unsigned allocated = crowd.allocated;
        assert_int_equal(fallow_pool_sleep(api.pool, i % 3 == 0 ? NULL : &request) & ~FALLOW_BUSY,
                         FALLOW_OK);
        if (api_stats(&api).is_asleep) {
            unsigned refused = crowd.refused;
            assert_int_equal(flw_sim_read_ledger(&api.sim).given_bytes, 0);
            while (crowd.refused == refused && !crowd.is_over) {
                sched_yield();
            }
            allocated = crowd.allocated;
            assert_int_equal(api_stats(&api).is_asleep, 1);
            assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
        }
        while (crowd.allocated < allocated + 20 && !crowd.is_over) {
            sched_yield();
        }
    }
    assert_false(crowd.is_over);
    crowd.is_over = true;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(fallow_free(api.pool, kept, api.stream), FALLOW_OK);
    assert_int_equal(api_stats(&api).live_count, 0);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wake_without_memory_stays_asleep_and_may_be_repeated),
        cmocka_unit_test(a_wake_asks_other_pools_for_idle_memory),
        cmocka_unit_test(watchers_are_told_before_and_after),
        cmocka_unit_test(what_cannot_sleep_says_so),
        cmocka_unit_test(a_callback_without_room_keeps_no_sleep_waiting),
        cmocka_unit_test(threads_allocate_and_free_around_a_sleep),
    };
    return cmocka_run_group_tests_name("api_sleep_others", tests, NULL, NULL);
}
