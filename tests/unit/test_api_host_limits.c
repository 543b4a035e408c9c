/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a pool on a host that gives few addresses: its tables shrink to what is allowed.
 */
#include "unit/test_api.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define GIB         ((size_t)1 << 30)
#define BLOCK_BYTES 512
#define BLOCKS_MOST 1000

static void *blocks[BLOCKS_MOST];

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

static void expect_refused(struct api *api, uint64_t value)
{
    assert_int_equal(fallow_free(api->pool, (void *)(uintptr_t)value, api->stream),
                     FALLOW_INVALID_POINTER);
}

/* Tables that lie apart answer for every pointer. */
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

static void few_addresses_make_small_tables(void **state)
{
    (void)state;
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

static void too_few_addresses_are_named(void **state)
{
    (void)state;
    struct api api;
    api_begin(&api, NULL);
    fallow_pool_config config = api_config(&api);
    size_t mapped = status_bytes("VmSize:");
    set_limit(RLIMIT_AS, mapped + 100 * MIB);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OUT_OF_HOST_MEMORY);
    assert_null(api.pool);
    assert_non_null(strstr(api.log, "its tables take at least"));
    assert_non_null(strstr(api.log, "MiB are left"));
    assert_in_range(status_bytes("VmSize:"), 0, mapped + MIB);
    config.order = FALLOW_ORDER_CONTEXT; /* its names cover the whole address space */
    set_limit(RLIMIT_AS, mapped + 4 * GIB);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(api.log, "its tables take at least"));
    set_limit(RLIMIT_AS, mapped + 12 * GIB);
    assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
    set_limit(RLIMIT_AS, RLIM_INFINITY);
    api_end(&api);
}

/* The tables of a few hundred MiB have a slot for some millions of blocks. */
static void small_tables_are_used_up_in_time(void **state)
{
    (void)state;
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
    assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_addresses_make_small_tables),
        cmocka_unit_test(too_few_addresses_are_named),
        cmocka_unit_test(small_tables_are_used_up_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
