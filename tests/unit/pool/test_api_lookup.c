/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lookup from an address to the block: every byte of a live block finds it, whatever is
 * beside it; no byte below does, in any state; and a driver with the smallest alignment works as
 * well. */
#include "support/trim.h"
#include "test_api.h"

#define COUNT 240

struct live {
    unsigned char *ptr;
    size_t bytes;
};

/* Blocks of every kind in turn: slabs of whole cells, of units, runs, and small ones that only a run can
 * align. */
static size_t size_of(unsigned i, size_t *out_align)
{
    static const size_t sizes[] = {MIB,         832 * 1024, 512,  960 * 1024,
                                   3 * MIB + 1, 512 * 1024, 70000};
    *out_align = i % 11 == 10 ? 2 * MIB : 1;
    return i % 11 == 10 ? 100 + i : sizes[i % 7];
}

static void check_leads_to(struct api *api, const struct live *live, size_t offset)
{
    fallow_block block;
    fallow_block_init(&block);
    assert_int_equal(fallow_block_info(api->pool, live->ptr + offset, &block), FALLOW_OK);
    assert_ptr_equal(block.base, live->ptr);
    assert_true(block.requested_bytes == live->bytes && block.usable_bytes >= live->bytes);
    if (offset != 0) {
        assert_int_equal(fallow_free(api->pool, live->ptr + offset, api->stream),
                         FALLOW_INVALID_POINTER);
    }
}

static void check_all(struct api *api, const struct live *live)
{
    for (unsigned i = 0; i < COUNT; i++) {
        for (size_t offset = 0; live[i].ptr != NULL && offset < live[i].bytes; offset += 32768) {
            check_leads_to(api, &live[i], offset);
        }
        if (live[i].ptr != NULL) {
            check_leads_to(api, &live[i], live[i].bytes - 1);
        }
    }
    assert_int_equal(fallow_pool_validate(api->pool), FALLOW_OK);
}

static void allocate(struct api *api, struct live *live, unsigned i)
{
    size_t align;
    void *ptr = NULL;
    live->bytes = size_of(i, &align);
    assert_int_equal(fallow_alloc_aligned(api->pool, live->bytes, align, api->stream, &ptr),
                     FALLOW_OK);
    assert_true((uintptr_t)ptr % align == 0);
    live->ptr = ptr;
}

static void take_back(struct api *api, struct live *live)
{
    assert_int_equal(fallow_free(api->pool, live->ptr, api->stream), FALLOW_OK);
    live->ptr = NULL;
}

static void every_byte_of_a_block_leads_to_it(void **state)
{
    static struct live live[COUNT];
    struct api api;
    flw_sim_config world = flw_sim_config_default(5);
    world.device_bytes = (uint64_t)2 << 30;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    for (unsigned i = 0; i < COUNT; i++) {
        allocate(&api, &live[i], i);
    }
    check_all(&api, live);
    /* The same addresses for other kinds: old table entries must not lead to another block. */
    for (unsigned round = 1; round < 6; round++) {
        for (unsigned i = 0; i < COUNT; i++) {
            if ((i / 8 + round) % 3 != 0) {
                take_back(&api, &live[i]);
            }
        }
        assert_int_equal(flw_test_trim(api.pool, round % 2 == 0 ? 0 : SIZE_MAX), FALLOW_OK);
        for (unsigned i = 0; i < COUNT; i++) {
            if (live[i].ptr == NULL) {
                allocate(&api, &live[i], i + 3 * round);
            }
        }
        check_all(&api, live);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        take_back(&api, &live[i]);
    }
    api_end(&api);
}

/* Freed memory, alone and between live blocks, belongs to no block. */
static void what_is_freed_leads_nowhere(void **state)
{
    for (unsigned without_vmm = 0; without_vmm < 2; without_vmm++) {
        struct api api;
        unsigned char *ptrs[64];
        flw_sim_config world = flw_sim_config_default(9);
        world.without_vmm = (uint8_t)without_vmm;
        api_begin(&api, &world);
        fallow_pool_config config = api_config(&api);
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
        for (unsigned i = 0; i < 64; i++) {
            ptrs[i] = api_alloc(&api, 5 * MIB + i * 65536, api.stream);
        }
        for (unsigned kept = 2; kept <= 128; kept *= 4) { /* each second, eighth, 32nd, one */
            fallow_block block;
            for (unsigned i = 0; i < 64; i++) {
                if (i % kept != 0 && (kept == 2 || i % (kept / 4) == 0)) {
                    assert_int_equal(fallow_free(api.pool, ptrs[i], api.stream), FALLOW_OK);
                }
            }
            assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK); /* out of the caches */
            for (unsigned i = 0; i < 64 * 80; i++) {
                const unsigned char *at = ptrs[i / 80] + (size_t)(i % 80) * 65536 + 1;
                bool is_kept = i / 80 % kept == 0;
                fallow_block_init(&block);
                fallow_status status = fallow_block_info(api.pool, at, &block);
                bool is_live = status == FALLOW_OK && block.state == FALLOW_BLOCK_LIVE;
                assert_true(is_live == is_kept && (!is_live || block.base == ptrs[i / 80]));
            }
        }
        api_end(&api);
    }
}

/* Check pointers a few bytes below a block, in each state, and the highest pointers. */
static void check_nothing_below(struct api *api, const unsigned char *ptr)
{
    for (unsigned below = 1; below < 9; below++) {
        assert_int_equal(fallow_free(api->pool, (void *)(uintptr_t)(ptr - below), api->stream),
                         FALLOW_INVALID_POINTER);
        assert_int_equal(fallow_free(api->pool, (void *)-(intptr_t)below, api->stream),
                         FALLOW_INVALID_POINTER);
    }
}

static void no_byte_below_a_block_leads_to_it(void **state)
{
    static const size_t sizes[] = {3 * MIB + 200000, 5 * MIB + 1, MIB, 832 * 1024, 70000, 512};
    for (unsigned i = 0; i < 3 * sizeof sizes / sizeof *sizes; i++) {
        struct api api;
        flw_sim_config world = flw_sim_config_default(8);
        world.schedule = FLW_SIM_HELD;
        world.without_vmm = i % 3 == 1;
        api_begin(&api, &world);
        fallow_pool_config config = api_config(&api);
        config.order = i % 3 == 2 ? FALLOW_ORDER_CONTEXT : FALLOW_ORDER_STREAM;
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
        size_t size = sizes[i / 3];
        void *first = api_alloc(&api, size, api.stream);
        unsigned char *freed = api_alloc(&api, size, api.stream);
        unsigned char *held = api_alloc(&api, size, api.stream);
        check_nothing_below(&api, held); /* live */
        assert_int_equal(fallow_free(api.pool, first, api.stream), FALLOW_OK);
        assert_int_equal(fallow_free(api.pool, freed, api.stream), FALLOW_OK);
        check_nothing_below(&api, freed);
        assert_int_equal(fallow_record_use(api.pool, held, api.other), FALLOW_OK);
        check_nothing_below(&api, held); /* live, with a use */
        api_use(&api, held, size, api.other);
        assert_int_equal(fallow_free(api.pool, held, api.stream), FALLOW_OK);
        check_nothing_below(&api, held); /* pending */
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        assert_int_equal(api_stats(&api).live_bytes, 0);
        api_end(&api);
    }
}

static void a_driver_that_does_not_align_the_range_is_good_enough(void **state)
{
    static const CUresult answers[] = {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        struct api api;
        flw_sim_config world = flw_sim_config_default(6);
        api_begin(&api, &world);
        fallow_pool_config config = api_config(&api);
        (api.sim.fail)("cuMemAddressReserve", 1, answers[i], 0);
        assert_int_equal(fallow_pool_create(&config, &api.pool), FALLOW_OK);
        assert_true(api_stats(&api).uses_vmm);
        void *ptr = api_alloc(&api, 5 * MIB, api.stream);
        api_use(&api, ptr, 5 * MIB, api.stream);
        assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
        assert_int_equal(fallow_pool_validate(api.pool), FALLOW_OK);
        fallow_pool_destroy(api.pool);
        api.pool = NULL;
        assert_true(flw_sim_read_ledger(&api.sim).reserved_address_bytes == 0);
        api_end(&api);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_of_a_block_leads_to_it),
        cmocka_unit_test(what_is_freed_leads_nowhere),
        cmocka_unit_test(no_byte_below_a_block_leads_to_it),
        cmocka_unit_test(a_driver_that_does_not_align_the_range_is_good_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
