/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the lookup from an address to the block: every byte of a live block finds it, beside any other.
 */
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

TEST(every_byte_of_a_block_leads_to_it)
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
