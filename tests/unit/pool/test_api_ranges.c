/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the promises about a driver that refuses large address ranges although memory is free: the pool serves all free
 * memory, from further ranges or from segments, and reports if addresses are short.
 */
#include "unit/pool/test_api.h"

#include "fallow/sleep.h"

#define GIB        ((size_t)1 << 30)
#define DEVICE     (64 * GIB)
#define BLOCK_MOST 4096

static void *blocks[BLOCK_MOST];

static const uint64_t range_bytes[] = {64 * GIB, 32 * GIB - 1, 8 * GIB, GIB, 64 * MIB, 1};
static const int answers[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_SUPPORTED};

static flw_sim_config world_of(uint64_t most_bytes, int answer)
{
    flw_sim_config world = flw_sim_config_default(3);
    world.device_bytes = DEVICE;
    world.check = 1;
    world.reserve_most_bytes = most_bytes;
    world.reserve_error = answer;
    return world;
}

static void create(struct api *api, fallow_page_source source)
{
    fallow_pool_config config = api_config(api);
    config.page_source = source;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static void end_valid(struct api *api)
{
    assert_int_equal(fallow_pool_validate(api->pool), FALLOW_OK);
    api_end(api);
}

static void release(struct api *api, void **block)
{
    assert_int_equal(fallow_free(api->pool, *block, api->stream), FALLOW_OK);
    *block = NULL;
}

static fallow_oom_report expect_refused(struct api *api, size_t bytes)
{
    fallow_oom_report report;
    void *none = NULL;
    fallow_oom_report_init(&report);
    assert_int_equal(fallow_alloc(api->pool, bytes, api->stream, &none), FALLOW_OUT_OF_MEMORY);
    assert_int_equal(fallow_pool_get_oom_report(api->pool, &report), FALLOW_OK);
    return report;
}

static void large_blocks_are_served_whatever_the_driver_reserves(void **state)
{
    for (size_t i = 0; i < 2 * sizeof range_bytes / sizeof *range_bytes; i++) {
        flw_sim_config world = world_of(range_bytes[i / 2], answers[i % 2]);
        struct api api;
        api_begin(&api, &world);
        create(&api, FALLOW_PAGES_AUTOMATIC);
        void *first = api_alloc(&api, 20 * GIB, api.stream);
        void *second = api_alloc(&api, 30 * GIB, api.stream);
        api_use(&api, first, 20 * GIB, api.stream);
        api_use(&api, second, 30 * GIB, api.stream);
        release(&api, &first);
        release(&api, &second);
        end_valid(&api);
    }
}

/* With handles only a block larger than any range fails. */
static void further_ranges_serve_the_whole_device(void **state)
{
    for (size_t i = 0; i < 2 * (sizeof range_bytes / sizeof *range_bytes - 1); i++) {
        flw_sim_config world = world_of(range_bytes[i / 2], answers[i % 2]);
        uint64_t most = range_bytes[i / 2] / (2 * MIB) * (2 * MIB);
        size_t bytes = most < GIB ? 32 * MIB : GIB, count = 60 * GIB / bytes;
        struct api api;
        api_begin(&api, &world);
        create(&api, FALLOW_PAGES_HANDLES);
        for (size_t n = 0; n < count; n++) {
            blocks[n] = api_alloc(&api, bytes, api.stream);
            api_use(&api, blocks[n], bytes, api.stream);
        }
        for (size_t n = 0; n < count; n++) {
            release(&api, &blocks[n]);
        }
        assert_int_equal(api.sim.cu.cuStreamSynchronize(api.stream), 0);
        void *all = api_alloc(&api, most < DEVICE ? most : 60 * GIB, api.stream);
        release(&api, &all);
        if (most < 60 * GIB) {
            fallow_oom_report report = expect_refused(&api, most + 2 * MIB);
            assert_int_equal(report.lacks_addresses, 1);
            assert_true(report.address_bytes >= 60 * GIB);
            assert_true(report.largest_address_bytes <= most);
            assert_non_null(strstr(api.log, "addresses are short"));
            assert_non_null(strstr(api.log, i % 2 == 0 ? "cuMemAddressReserve answered CUDA_ERROR_"
                                                         "OUT_OF_MEMORY"
                                                       : "CUDA_ERROR_NOT_SUPPORTED"));
        }
        end_valid(&api);
    }
}

/* The driver refuses a call that covers two ranges, even adjacent ones. */
static void no_driver_call_covers_two_ranges(void **state)
{
    flw_sim_config world = world_of(64 * MIB, 0);
    fallow_sleep_request request;
    struct api api;
    size_t neighbours = 0;
    api_begin(&api, &world);
    create(&api, FALLOW_PAGES_HANDLES);
    for (size_t n = 0; n < 8; n++) {
        blocks[n] = api_alloc(&api, 64 * MIB, n % 2 == 0 ? api.stream : api.other);
        for (size_t k = 0; k < n; k++) {
            uint64_t apart = (uint64_t)(uintptr_t)blocks[n] - (uint64_t)(uintptr_t)blocks[k];
            neighbours += apart == 64 * MIB || apart == -(uint64_t)(64 * MIB);
        }
    }
    assert_in_range(neighbours, 1, 7);
    uint64_t unmaps = api.sim.call_count("cuMemUnmap");
    fallow_sleep_request_init(&request);
    request.flags = FALLOW_SLEEP_WAIT;
    assert_int_equal(fallow_pool_sleep(api.pool, &request), FALLOW_OK);
    assert_int_equal(api.sim.call_count("cuMemUnmap") - unmaps, 8);
    assert_int_equal(fallow_pool_wake(api.pool), FALLOW_OK);
    for (size_t n = 0; n < 8; n++) {
        api_use(&api, blocks[n], 64 * MIB, api.stream);
        release(&api, &blocks[n]);
    }
    assert_int_equal(api.sim.cu.cuStreamSynchronize(api.stream), 0);
    unmaps = api.sim.call_count("cuMemUnmap");
    assert_int_equal(fallow_pool_trim(api.pool, 0, 0, NULL), FALLOW_OK);
    assert_int_equal(api_stats(&api).reserved_bytes, 0);
    assert_in_range(api.sim.call_count("cuMemUnmap") - unmaps, 8, 12);
    end_valid(&api);
}

/* The ranges total 64 GiB in pieces; idle memory releases the addresses when a block needs them. */
static void idle_memory_gives_its_addresses_up(void **state)
{
    flw_sim_config world = world_of(DEVICE, 0);
    world.reserve_all_bytes = DEVICE;
    struct api api;
    api_begin(&api, &world);
    create(&api, FALLOW_PAGES_HANDLES);
    for (size_t n = 0; n < 60; n++) {
        blocks[n] = api_alloc(&api, GIB, api.stream);
    }
    for (size_t n = 0; n < 60; n += 2) {
        release(&api, &blocks[n]);
    }
    assert_int_equal(api.sim.cu.cuStreamSynchronize(api.stream), 0);
    fallow_oom_report report = expect_refused(&api, 20 * GIB);
    assert_int_equal(report.lacks_addresses, 1);
    assert_int_equal(report.address_bytes, DEVICE);
    for (size_t n = 1; n < 40; n += 2) {
        release(&api, &blocks[n]);
    }
    assert_int_equal(api.sim.cu.cuStreamSynchronize(api.stream), 0);
    void *large = api_alloc(&api, 40 * GIB, api.stream);
    report = expect_refused(&api, 40 * GIB); /* memory is the limit now */
    assert_int_equal(report.lacks_addresses, 0);
    release(&api, &large);
    for (size_t n = 41; n < 60; n += 2) {
        release(&api, &blocks[n]);
    }
    end_valid(&api);
}

/* The pool reserves addresses for eight times the memory if the driver grants them, and no more. */
static void addresses_are_eight_times_the_memory(void **state)
{
    static const uint64_t devices[] = {80 * GIB, 64 * GIB, 24 * GIB};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        flw_sim_config world = flw_sim_config_default(3);
        struct api api;
        world.device_bytes = devices[i];
        api_begin(&api, &world);
        create(&api, FALLOW_PAGES_AUTOMATIC);
        assert_int_equal(flw_sim_read_ledger(&api.sim).reserved_address_bytes, 8 * devices[i]);
        fallow_oom_report report = expect_refused(&api, devices[i] + GIB);
        assert_int_equal(report.address_bytes, 8 * devices[i]);
        assert_int_equal(report.lacks_addresses, 0);
        end_valid(&api);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_blocks_are_served_whatever_the_driver_reserves),
        cmocka_unit_test(further_ranges_serve_the_whole_device),
        cmocka_unit_test(no_driver_call_covers_two_ranges),
        cmocka_unit_test(idle_memory_gives_its_addresses_up),
        cmocka_unit_test(addresses_are_eight_times_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
