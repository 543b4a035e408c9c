/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: peers of a pool: access allowed and denied at run time, also to imports; refused requests. */
#include "base/random.h"
#include "unit/pool/test_api_share.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

static unsigned long long access_of(struct api *api, void *ptr, int device)
{
    unsigned long long flags = 99;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    assert_int_equal(api->sim.cu.cuMemGetAccess(&flags, &location, (CUdeviceptr)(uintptr_t)ptr), 0);
    return flags;
}

static void peers_come_and_go_at_run_time(void **state)
{
    struct api api;
    const unsigned long long all = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    void *seen = NULL;
    begin_sharing(&api, FALLOW_HANDLE_FD);
    void *before = api_alloc(&api, 5 * MIB, api.stream), *small = api_alloc(&api, 700, api.other);
    void *shared = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
    fallow_share share = exported(&api, shared, FALLOW_HANDLE_FD);
    assert_int_equal(fallow_import(api.pool, &share, &seen), FALLOW_OK);
    close(share.descriptor);
    assert_int_equal(access_of(&api, before, 1), 0);
    assert_int_equal(fallow_pool_allow_peer(api.pool, 1), FALLOW_OK);
    assert_int_equal(fallow_pool_allow_peer(api.pool, 1), FALLOW_OK); /* is so already */
    assert_int_equal(fallow_pool_allow_peer(api.pool, 2), FALLOW_OK);
    void *after = api_alloc(&api, 60 * MIB, api.stream);
    void *const blocks[] = {before, small, shared, seen, after};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(access_of(&api, blocks[i], 0), all);
        assert_int_equal(access_of(&api, blocks[i], 1), all);
        assert_int_equal(access_of(&api, blocks[i], 2), all);
    }
    assert_int_equal(fallow_pool_deny_peer(api.pool, 1), FALLOW_OK);
    assert_int_equal(fallow_pool_deny_peer(api.pool, 1), FALLOW_OK);
    void *later = api_alloc(&api, 70 * MIB, api.stream);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(access_of(&api, blocks[i], 0), all);
        assert_int_equal(access_of(&api, blocks[i], 1), 0);
        assert_int_equal(access_of(&api, blocks[i], 2), all);
    }
    assert_int_equal(access_of(&api, later, 1), 0);
    assert_int_equal(access_of(&api, later, 2), all);
    assert_int_equal(fallow_unimport(api.pool, seen), FALLOW_OK);
    api_end(&api);
}

static void a_peer_that_cannot_be_is_refused_by_name(void **state)
{
    struct api api;
    begin_sharing(&api, 0);
    assert_int_equal(fallow_pool_allow_peer(api.pool, 0), FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_pool_allow_peer(api.pool, 3), FALLOW_NOT_FOUND);
    assert_non_null(strstr(api.log, "peer device 3"));
    assert_int_equal(fallow_pool_deny_peer(api.pool, -1), FALLOW_NOT_FOUND);
    assert_int_equal(fallow_pool_allow_peer(NULL, 1), FALLOW_INVALID_POOL);
    api_end(&api);
}

static void a_device_without_a_way_is_no_peer(void **state)
{
    struct api api;
    flw_sim_config world = flw_sim_config_default(5);
    world.device_count = 3;
    world.lonely_device = 1;
    api_begin(&api, &world);
    fallow_pool_config config = api_config(&api);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    assert_int_equal(fallow_pool_allow_peer(api.pool, 1), FALLOW_OK);
    assert_int_equal(fallow_pool_allow_peer(api.pool, 2), FALLOW_NOT_SUPPORTED);
    assert_non_null(strstr(api.log, "device 2 cannot access memory of device 0"));
    fallow_pool_destroy(api.pool);
    config.peer_devices = (const int[]){1, 2};
    config.peer_device_count = 2;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_NOT_SUPPORTED);
    assert_null(api.pool);
    config.device = 2; /* nor can one access it */
    config.peer_devices = (const int[]){0};
    config.peer_device_count = 1;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_NOT_SUPPORTED);
    api_end(&api);
}

static void a_change_of_peers_that_fails_changes_nothing(void **state)
{
    struct api api;
    begin_sharing(&api, 0);
    void *blocks[4];
    for (size_t i = 0; i < 4; i++) {
        blocks[i] = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_DEDICATED);
    }
    for (uint64_t n = 1; n <= 4; n++) {
        (api.sim.fail)("cuMemSetAccess", n, CUDA_ERROR_UNKNOWN, 0);
        assert_int_equal(fallow_pool_allow_peer(api.pool, 1), FALLOW_DRIVER);
        for (size_t i = 0; i < 4; i++) {
            assert_int_equal(access_of(&api, blocks[i], 1), 0);
            assert_int_equal(access_of(&api, blocks[i], 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        }
    }
    void *after = api_alloc(&api, 30 * MIB, api.stream);
    assert_int_equal(access_of(&api, after, 1), 0);
    api_end(&api);
}

struct refused {
    struct api *api;
    void *seen;
    atomic_bool began, ends;
    bool is_other; /* something else was answered */
};

static void *unimport_in_vain(void *context)
{
    struct refused *refused = context;
    while (!atomic_load(&refused->ends)) {
        refused->is_other |= fallow_unimport(refused->api->pool, refused->seen) != FALLOW_CAPTURING;
        atomic_store(&refused->began, true);
    }
    return NULL;
}

/* One that a capture keeps from going is given and denied to peers all the same. */
static void an_import_that_stays_is_seen_by_every_change_of_peers(void **state)
{
    struct api api;
    struct refused refused = {.api = &api};
    pthread_t thread;
    unsigned missed = 0;
    begin_sharing(&api, FALLOW_HANDLE_FD);
    void *ptr = api_must_alloc(&api, 5000, 0, FALLOW_REQUEST_EXPORT_FD);
    fallow_share share = exported(&api, ptr, FALLOW_HANDLE_FD);
    assert_int_equal(fallow_import(api.pool, &share, &refused.seen), FALLOW_OK);
    close(share.descriptor);
    api_begin_capturing(&api, api.stream);
    assert_int_equal(pthread_create(&thread, NULL, unimport_in_vain, &refused), 0);
    while (!atomic_load(&refused.began)) {
        sched_yield();
    }
    for (unsigned i = 0; i < 500; i++) {
        assert_int_equal(fallow_pool_allow_peer(api.pool, 1), FALLOW_OK);
        missed += access_of(&api, refused.seen, 1) != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        assert_int_equal(fallow_pool_deny_peer(api.pool, 1), FALLOW_OK);
        missed += access_of(&api, refused.seen, 1) != 0;
    }
    atomic_store(&refused.ends, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(refused.is_other);
    assert_int_equal(missed, 0);
    api_drop_captured(&api, api.stream);
    assert_int_equal(fallow_unimport(api.pool, refused.seen), FALLOW_OK);
    api_end(&api);
}

/* "A stream ... of any context and device": no stream is refused because of the device, and the
 * order is kept. */
static void streams_of_other_devices_are_served(void **state)
{
    struct api api;
    CUcontext abroad, popped;
    CUdevice device;
    CUstream streams[4];
    struct {
        void *ptr;
        size_t size;
        CUstream stream;
    } slots[32] = {0};
    uint64_t random = 3;
    begin_sharing(&api, 0);
    assert_int_equal(fallow_pool_allow_peer(api.pool, 1), FALLOW_OK);
    streams[0] = api.stream;
    streams[1] = api.other;
    assert_int_equal(api.sim.cu.cuDeviceGet(&device, 1), 0);
    assert_int_equal(api.sim.cu.cuCtxCreate_v2(&abroad, 0, device), 0);
    for (int i = 2; i < 4; i++) {
        assert_int_equal(api.sim.cu.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), 0);
    }
    assert_int_equal(api.sim.cu.cuCtxPopCurrent_v2(&popped), 0);
    for (int i = 0; i < 3000; i++) {
        uint64_t draw = flw_random_next(&random), which = draw % 32;
        if (slots[which].ptr != NULL) {
            assert_int_equal(fallow_free(api.pool, slots[which].ptr, slots[which].stream),
                             FALLOW_OK);
            slots[which].ptr = NULL;
        } else {
            slots[which].stream = streams[draw >> 8 & 3];
            slots[which].size = 1 + (draw >> 16) % (draw & 1 << 12 ? 6 * MIB : 60000);
            slots[which].ptr = api_alloc(&api, slots[which].size, slots[which].stream);
            bool is_abroad = (draw >> 8 & 3) >= 2; /* launch in the stream's context */
            assert_int_equal(is_abroad ? api.sim.cu.cuCtxPushCurrent_v2(abroad) : 0, 0);
            api_use(&api, slots[which].ptr, slots[which].size, slots[which].stream);
            assert_int_equal(is_abroad ? api.sim.cu.cuCtxPopCurrent_v2(&popped) : 0, 0);
        }
        if (i % 50 == 0) {
            api.sim.step(draw >> 40 & 15);
        }
    }
    api.sim.step(UINT64_MAX);
    for (size_t i = 0; i < 32; i++) {
        assert_int_equal(fallow_free(api.pool, slots[i].ptr, slots[i].stream), FALLOW_OK);
    }
    for (int i = 2; i < 4; i++) {
        assert_int_equal(fallow_stream_retire(api.pool, streams[i]), FALLOW_OK);
    }
    assert_int_equal(api.sim.cu.cuCtxDestroy_v2(abroad), 0);
    assert_string_equal(fallow_status_message(FALLOW_INVALID_STREAM),
                        "the stream was retired or destroyed");
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_come_and_go_at_run_time),
        cmocka_unit_test(a_peer_that_cannot_be_is_refused_by_name),
        cmocka_unit_test(a_device_without_a_way_is_no_peer),
        cmocka_unit_test(a_change_of_peers_that_fails_changes_nothing),
        cmocka_unit_test(streams_of_other_devices_are_served),
        cmocka_unit_test(an_import_that_stays_is_seen_by_every_change_of_peers),
    };
    return cmocka_run_group_tests_name("api_peer", tests, NULL, NULL);
}
