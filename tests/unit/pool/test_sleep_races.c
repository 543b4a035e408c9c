/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: other threads' calls while a pool falls asleep, made inside the driver calls.
 * Does not: test undisturbed sleeps (sleep.script). */
#include "unit/pool/test_api.h"

#include "pool/pool.h"

static struct bed {
    struct api api;
    const struct flw_driver *cu;
    void *block; /* to be freed in the first copy to the host; NULL: done */
    fallow_status freed, retired, polled;
} bed;

static CUresult copy_and_free(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    if (bed.block != NULL) {
        void *block = bed.block;
        bed.block = NULL;
        bed.freed = fallow_free(bed.api.pool, block, bed.api.other);
        bed.retired = fallow_stream_retire(bed.api.pool, bed.api.other);
        bed.api.sim.step(UINT64_MAX);
        bed.polled = fallow_pool_poll(bed.api.pool);
    }
    return bed.cu->cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}

/* The sleep has counted the block as saved, and releases the memory as idle. */
TEST(a_saved_block_that_is_freed_meanwhile_keeps_no_pool_from_waking)
{
    fallow_sleep_request request = {.struct_size = sizeof request};
    api_begin_backed(&bed.api);
    bed.cu = &bed.api.sim.cu;
    bed.freed = bed.retired = bed.polled = FALLOW_INVALID_ARGUMENT;
    bed.block = api_alloc(&bed.api, 6 * MIB, bed.api.other);
    void *kept = api_alloc(&bed.api, 3 * MIB, bed.api.stream);
    api_fill(&bed.api, bed.block, 6 * MIB, 0xA5);
    api_fill(&bed.api, kept, 3 * MIB, 0x5A);
    flw_pool_of(bed.api.pool)->driver.cuMemcpyDtoHAsync_v2 = copy_and_free;
    request.flags = FALLOW_SLEEP_WAIT | FALLOW_SLEEP_SAVE_ALL;
    assert_int_equal(fallow_pool_sleep(bed.api.pool, &request), FALLOW_OK);
    assert_int_equal(bed.freed, FALLOW_OK);
    assert_int_equal(bed.retired, FALLOW_OK);
    assert_int_equal(bed.polled, FALLOW_OK);
    assert_int_equal(fallow_pool_wake(bed.api.pool), FALLOW_OK);
    assert_true(api_stats(&bed.api).reserved_bytes < 9 * MIB);
    assert_true(api_holds(&bed.api, kept, 3 * MIB, 0x5A));
    assert_int_equal(fallow_pool_validate(bed.api.pool), FALLOW_OK);
    assert_int_equal(fallow_free(bed.api.pool, kept, bed.api.stream), FALLOW_OK);
    assert_int_equal(flw_sim_read_ledger(&bed.api.sim).pinned_bytes, 0);
    api_end(&bed.api);
}

FLW_TEST_MAIN(NULL, NULL)
