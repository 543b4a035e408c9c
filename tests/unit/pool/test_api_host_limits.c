/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a pool on a host without memory for the tables, or with few addresses: reported at once,
 * unlike a full device, and tables shrink to the allowed size. */
#include "unit/pool/test_api.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define GIB         ((size_t)1 << 30)
#define BLOCK_BYTES 512
#define BLOCKS_MOST 200000

static void *blocks[BLOCKS_MOST];
static int callbacks;

/* A line of /proc/self/status, in bytes. */
static size_t status_bytes(const char *key)
{
    char line[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            kib = strtoull(line + strlen(key) + 1, NULL, 10);
        }
    }
    fclose(file);
    assert_int_not_equal(kib, 0);
    return kib << 10;
}

static void set_limit(int resource, rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit((__rlimit_resource_t)resource, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit((__rlimit_resource_t)resource, &limit), 0);
}

static int count_callback(void *context, size_t bytes, fallow_stream stream)
{
    (void)context;
    (void)bytes;
    (void)stream;
    callbacks++;
    return 0;
}

/* Reserve the memory that the program and the simulated driver on the same host will need. */
static void fill_program_heap(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 30);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);
    free(malloc(64 * MIB));
}

/* How many fit until the first refusal, which is `expected`. */
static size_t fill(struct api *api, fallow_status expected)
{
    size_t count = 0;
    fallow_status status = FALLOW_OK;
    while (status == FALLOW_OK && count < BLOCKS_MOST) {
        status = fallow_alloc(api->pool, BLOCK_BYTES, api->stream, &blocks[count]);
        count += status == FALLOW_OK;
    }
    assert_int_equal(status, expected);
    return count;
}

static uint64_t growths_of(struct api *api)
{
    return api->sim.call_count("cuMemCreate") + api->sim.call_count("cuMemAlloc_v2");
}

static uint64_t waits_of(struct api *api)
{
    return api->sim.call_count("cuEventSynchronize") + api->sim.call_count("cuCtxSynchronize");
}

static void without_memory(fallow_order order, fallow_reuse_policy reuse)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.order = order;
    config.reuse_policy = reuse;
    config.on_oom = count_callback;
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    void *deferred = api_alloc(&api, 32 * MIB, api.other);
    api_use(&api, deferred, 32 * MIB, api.other); /* a wait would be for these */
    assert_int_equal(fallow_free(api.pool, deferred, api.other), FALLOW_OK);
    fill_program_heap();
    set_limit(RLIMIT_DATA, status_bytes("VmData:"));
    size_t count = fill(&api, FALLOW_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(api.log, "out of host memory, not of device memory"));
    assert_non_null(strstr(api.log, "ulimit -d"));
    void *none = NULL;
    assert_int_equal(
        fallow_alloc(api.pool, BLOCK_BYTES, api.stream, &none), /* may map one slab's */
        FALLOW_OUT_OF_HOST_MEMORY);
    uint64_t reserved = api_stats(&api).reserved_bytes, waits = waits_of(&api);
    for (int i = 0; i < 5; i++) {
        none = &none;
        uint64_t made = growths_of(&api);
        uint64_t calls = api.sim.call_count(NULL);
        assert_int_equal(fallow_alloc(api.pool, BLOCK_BYTES, api.stream, &none),
                         FALLOW_OUT_OF_HOST_MEMORY);
        assert_null(none);
        assert_int_equal(growths_of(&api), made);
        assert_in_range(api.sim.call_count(NULL) - calls, 0,
                        40); /* a wait would query repeatedly */
    }
    assert_int_equal(callbacks, 0);
    assert_int_equal(api_stats(&api).reserved_bytes, reserved);
    assert_int_equal(waits_of(&api), waits);
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    assert_int_equal(fallow_free(api.pool, blocks[0], api.stream), FALLOW_OK);
    blocks[0] = api_alloc(&api, BLOCK_BYTES, api.stream); /* requests without new tables
                                                              continue */
    set_limit(RLIMIT_DATA, RLIM_INFINITY);
    void *more = api_alloc(&api, BLOCK_BYTES, api.stream);
    assert_int_equal(fallow_free(api.pool, more, api.stream), FALLOW_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(fallow_free(api.pool, blocks[i], api.stream), FALLOW_OK);
    }
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

TEST(a_host_without_memory_is_told_at_once)
{
    without_memory(FALLOW_ORDER_STREAM, FALLOW_REUSE_WAIT);
    without_memory(FALLOW_ORDER_STREAM, FALLOW_REUSE_COMPLETED);
    without_memory(FALLOW_ORDER_STREAM, FALLOW_REUSE_SAME_STREAM);
}

TEST(so_it_is_in_context_order)
{
    without_memory(FALLOW_ORDER_CONTEXT, FALLOW_REUSE_WAIT);
}

static void expect_refused(struct api *api, uint64_t value)
{
    assert_int_equal(fallow_free(api->pool, (void *)(uintptr_t)value, api->stream),
                     FALLOW_INVALID_POINTER);
}

/* Tables at separate addresses handle every pointer. */
static void free_wild_pointers(struct api *api)
{
    uint64_t seed = 5;
    for (int i = 0; i < 200000; i++) {
        uint64_t value = flw_test_random(&seed);
        expect_refused(api, value);
        expect_refused(api, value >> 17);
        expect_refused(api, ((uint64_t)(uintptr_t)blocks[0] ^ 1ull << value % 64) + 8);
    }
}

TEST(few_addresses_make_small_tables)
{
    static const size_t rooms[] = {8 * GIB, 1 * GIB, 300 * MIB};
    for (unsigned i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        struct api api;
        api_begin(&api, NULL);
        size_t mapped = status_bytes("VmSize:");
        set_limit(RLIMIT_AS, mapped + rooms[i]);
        api.pool = api_create(&api);
        assert_non_null(strstr(api.log, "the address space is limited"));
        assert_in_range(status_bytes("VmSize:") - mapped, 0, rooms[i] / 4 + 160 * MIB);
        for (size_t n = 0; n < 1000; n++) {
            blocks[n] = api_alloc(&api, 1 << (8 + n % 14), api.stream);
        }
        free_wild_pointers(&api);
        for (size_t n = 0; n < 1000; n++) {
            assert_int_equal(fallow_free(api.pool, blocks[n], api.stream), FALLOW_OK);
        }
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        set_limit(RLIMIT_AS, RLIM_INFINITY);
        api_end(&api);
    }
}

TEST(too_few_addresses_are_named)
{
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    size_t mapped = status_bytes("VmSize:");
    set_limit(RLIMIT_AS, mapped + 100 * MIB);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OUT_OF_HOST_MEMORY);
    assert_null(api.pool);
    assert_non_null(strstr(api.log, "its tables need at least"));
    assert_non_null(strstr(api.log, "MiB are left"));
    assert_in_range(status_bytes("VmSize:"), 0, mapped + MIB);
    config.order = FALLOW_ORDER_CONTEXT; /* the table covers the whole address space */
    set_limit(RLIMIT_AS, mapped + 4 * GIB);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(api.log, "its tables need at least"));
    set_limit(RLIMIT_AS, mapped + 12 * GIB);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    set_limit(RLIMIT_AS, RLIM_INFINITY);
    api_end(&api);
}

/* The limit has no room for a table of further ranges or of segments, so the pool uses a single range. */
TEST(one_small_range_is_named_as_the_limit)
{
    struct api api;
    void *none = NULL;
    fallow_oom_report report;
    flw_sim_config world = flw_sim_config_default(7);
    world.reserve_most_bytes = 4 * GIB;
    api_begin(&api, &world);
    fill_program_heap();
    set_limit(RLIMIT_AS, status_bytes("VmSize:") + 1 * GIB);
    api.pool = api_create(&api);
    void *block = api_alloc(&api, 1 * GIB, api.stream);
    assert_int_equal(fallow_alloc(api.pool, 4 * GIB, api.stream, &none), FALLOW_OUT_OF_MEMORY);
    fallow_oom_report_init(&report);
    assert_int_equal(fallow_pool_get_oom_report(api.pool, &report), FALLOW_OK);
    assert_int_equal(report.lacks_addresses, 1);
    assert_in_range(report.address_bytes, 1 * GIB, 4 * GIB);
    assert_non_null(strstr(api.log, "addresses are short"));
    assert_non_null(strstr(api.log, "ulimit -v"));
    assert_int_equal(fallow_free(api.pool, block, api.stream), FALLOW_OK);
    set_limit(RLIMIT_AS, RLIM_INFINITY);
    api_end(&api);
}

static uint64_t number_behind(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    assert_non_null(at);
    return strtoull(at + strlen(words), NULL, 10);
}

/* Retry creation with the room growing by `step` until it succeeds: each refusal reports a need
 * above the room, and the last one at most slightly above the room that sufficed. */
static void expect_consistent_refusals(fallow_order order, size_t room, size_t step)
{
    struct api api;
    uint64_t least = 0, left = 0;
    fallow_status status = FALLOW_OUT_OF_HOST_MEMORY;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    config.order = order;
    fill_program_heap();
    for (; status == FALLOW_OUT_OF_HOST_MEMORY; room += step) {
        set_limit(RLIMIT_AS, status_bytes("VmSize:") + room);
        status = fallow_pool_create(&config, &api.pool);
        if (status == FALLOW_OUT_OF_HOST_MEMORY) {
            least = number_behind(api.log, "need at least ");
            left = number_behind(api.log, "of addresses, and ");
            assert_true(least > left);
        }
    }
    assert_int_equal(status, FALLOW_OK);
    assert_in_range(least - left, 1, step / MIB + 2);
    set_limit(RLIMIT_AS, RLIM_INFINITY);
    api_end(&api);
}

TEST(a_refusal_names_more_addresses_than_are_left)
{
    expect_consistent_refusals(FALLOW_ORDER_STREAM, 100 * MIB, MIB);
    expect_consistent_refusals(FALLOW_ORDER_CONTEXT, 8 * GIB + 200 * MIB, 2 * MIB);
}

/* The tables of a few hundred MiB have a slot for some millions of blocks. */
TEST(small_tables_are_used_up_in_time)
{
    struct api api;
    uint64_t count = 0;
    fallow_status status = FALLOW_OK;
    api_begin(&api, NULL);
    set_limit(RLIMIT_AS, status_bytes("VmSize:") + 300 * MIB);
    api.pool = api_create(&api);
    set_limit(RLIMIT_AS, RLIM_INFINITY);
    for (; status == FALLOW_OK && count < 10000000; count++) {
        void *block = NULL;
        status = fallow_alloc(api.pool, BLOCK_BYTES, api.stream, &block);
    }
    assert_int_equal(status, FALLOW_OUT_OF_HOST_MEMORY);
    assert_in_range(count, 2000000, 4200000);
    assert_non_null(strstr(api.log, "tables are full"));
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

FLW_TEST_MAIN(NULL, NULL)
