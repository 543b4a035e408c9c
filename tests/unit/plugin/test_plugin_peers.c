/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: peer access between devices under plugin.h, in a world of four devices; the last device has no peer.
 */
#include "unit/plugin/test_plugin.h"

#include "fallow/share.h"
#include "fallow/sleep.h"

static CUcontext contexts[4];
static CUstream streams[4];

static void set_device(int device)
{
    assert_ok(sim.cu.cuCtxSetCurrent(contexts[device]));
}

/* Use memory, of any device, from `device`. */
static void use_from(int device, void *ptr, size_t bytes)
{
    set_device(device);
    use(ptr, bytes, streams[device]);
    assert_ok(sim.cu.cuStreamSynchronize(streams[device]));
}

static unsigned long long access_of(void *ptr, int device)
{
    unsigned long long flags = 99;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    assert_ok(sim.cu.cuMemGetAccess(&flags, &location, (CUdeviceptr)(uintptr_t)ptr));
    return flags;
}

static void *take_on(int device, size_t bytes)
{
    set_device(device);
    void *ptr = fallow_torch_alloc((ssize_t)bytes, device, streams[device]);
    assert_non_null(ptr);
    use_from(device, ptr, bytes);
    return ptr;
}

static void give_on(int device, void *ptr)
{
    set_device(device);
    fallow_torch_free(ptr, 0, device, streams[device]);
}

TEST(one_device_asks_nothing_and_grants_nothing)
{
    for (int i = 0; i < 3; i++) {
        void *ptr = take_on(0, 64 * MIB);
        assert_int_equal(access_of(ptr, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
        give_on(0, ptr);
        give_on(0, take_on(0, 5000));
        fallow_cupy_free(NULL, fallow_cupy_malloc(NULL, 5000, 0), 0);
    }
    assert_int_equal(sim.call_count("cuDeviceCanAccessPeer"), 0);
}

TEST(devices_in_use_access_each_others_memory)
{
    void *before = take_on(0, 64 * MIB);
    hold_stderr();
    fallow_cupy_free(NULL, fallow_cupy_malloc(NULL, 5000, 1),
                     1); /* a pool in context order needs access as well */
    assert_int_equal(access_of(before, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    void *theirs = take_on(1, 64 * MIB), *after = take_on(0, 100 * MIB);
    use_from(1, before, 64 * MIB);
    use_from(1, after, 100 * MIB);
    use_from(0, theirs, 64 * MIB);
    void *lonely = take_on(3, 64 * MIB); /* has no peer, which is not logged */
    assert_string_equal(release_stderr(), "");
    assert_int_equal(access_of(lonely, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    assert_int_equal(access_of(before, 3), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    give_on(0, before);
    give_on(0, after);
    give_on(1, theirs);
    give_on(3, lonely);
    assert_int_equal(flw_sim_print_violations(&sim), 0);
}

/* Lose the pool of device 1 with the context, then make a new pool while the driver refuses a call. */
static void *take_from_a_new_pool(const char *refused)
{
    set_device(1);
    assert_int_equal((sim.fail)("cuMemCreate", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1), 1);
    assert_null(fallow_torch_alloc(700 * (ssize_t)MIB, 1, streams[1]));
    assert_ok(sim.cu.cuDevicePrimaryCtxReset_v2(1));
    set_device(0);
    (void)(sim.fail)(refused, 2, CUDA_ERROR_UNKNOWN, 0); /* the first is a probe of the new pool */
    void *ptr = fallow_torch_alloc((ssize_t)MIB, 1, NULL);
    assert_non_null(ptr);
    return ptr;
}

TEST(a_driver_that_refuses_is_a_line)
{
    void *kept = take_on(0, 64 * MIB);
    give_on(1, take_on(1, 5000));
    assert_ok(fallow_pool_deny_peer(pool_of(0, FALLOW_PLUGIN_STREAM), 1));
    hold_stderr();
    void *ptr = take_from_a_new_pool("cuMemSetAccess");
    const char *text = release_stderr();
    assert_non_null(strstr(text, "device 1 may not access memory of device 0"));
    assert_int_equal(access_of(kept, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    assert_int_equal(access_of(ptr, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    fallow_torch_free(ptr, (ssize_t)MIB, 1, NULL);
    assert_ok(fallow_pool_allow_peer(pool_of(0, FALLOW_PLUGIN_STREAM), 1));
    give_on(0, kept);
}

TEST(a_pool_that_sleeps_meets_its_peers)
{
    fallow_pool *pool = pool_of(0, FALLOW_PLUGIN_STREAM);
    void *kept = take_on(0, 64 * MIB);
    assert_ok(fallow_pool_sleep(pool, NULL));
    void *theirs = take_on(2, 64 * MIB);
    assert_ok(fallow_pool_wake(pool));
    use_from(2, kept, 64 * MIB);
    use_from(0, theirs, 64 * MIB);
    give_on(0, kept);
    give_on(2, theirs);
    assert_int_equal(flw_sim_print_violations(&sim), 0);
}

static int begin_devices(void **state)
{
    flw_sim_config world = flw_sim_config_default(7);
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = "sim";
    world.schedule = FLW_SIM_HELD;
    world.check = 1;
    world.device_count = 4;
    world.lonely_device = 1;
    world.device_bytes = (uint64_t)1 << 30;
    if (!flw_sim_open(&sim)) {
        return -1;
    }
    home = flw_sim_begin(&sim, &world);
    for (int device = 3; device >= 0; device--) {
        if (sim.cu.cuDevicePrimaryCtxRetain(&contexts[device], device) != 0 ||
            sim.cu.cuCtxSetCurrent(contexts[device]) != 0 ||
            sim.cu.cuStreamCreate(&streams[device], CU_STREAM_NON_BLOCKING) != 0) {
            return -1;
        }
    }
    return fallow_plugin_configure(&config) == FALLOW_OK ? 0 : -1;
}

static int end_world(void **state)
{
    destroy_pools();
    return 0;
}

FLW_TEST_MAIN(begin_devices, end_world)
