/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public calls beside calls.script: batches, errno, names of statuses.
 */
#include "unit/pool/test_api.h"
#include "support/trim.h"

TEST(absurd_sizes_and_missing_results_are_refused)
{
    struct api api;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 4095, SIZE_MAX / 2 + 1};
    api_begin_with_pool(&api);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *ptr = &api;
        assert_int_equal(fallow_alloc(api.pool, sizes[i], api.stream, &ptr),
                         FALLOW_INVALID_ARGUMENT);
        assert_null(ptr);
        size_t both[2] = {100, sizes[i]};
        void *ptrs[2] = {&api, &api};
        assert_int_equal(fallow_alloc_batch(api.pool, both, 2, api.stream, ptrs),
                         FALLOW_INVALID_ARGUMENT);
        assert_null(ptrs[0]);
        assert_null(ptrs[1]);
    }
    assert_int_equal(fallow_alloc(api.pool, 100, api.stream, NULL), FALLOW_INVALID_ARGUMENT);
    size_t one = 100; /* of so many, which no array holds: none is looked at */
    void *ptr = &api;
    assert_int_equal(fallow_alloc_batch(api.pool, &one, SIZE_MAX, api.stream, &ptr),
                     FALLOW_INVALID_ARGUMENT);
    fallow_stats stats = api_stats(&api);
    assert_int_equal(stats.live_count, 0);
    api_end(&api);
}

TEST(a_hit_makes_no_driver_call_and_changes_no_errno)
{
    struct api api;
    api_begin_with_pool(&api);
    void *ptr = api_alloc(&api, 5000, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    uint64_t calls = flw_sim_read_ledger(&api.sim).call_count;
    fallow_stats before = api_stats(&api);
    errno = 4242;
    for (unsigned i = 0; i < 1000; i++) {
        ptr = api_alloc(&api, 5000, api.stream);
        assert_int_equal(fallow_free_sized(api.pool, ptr, 5000, api.stream), FALLOW_OK);
    }
    assert_int_equal(errno, 4242);
    assert_int_equal(flw_sim_read_ledger(&api.sim).call_count, calls);
    assert_int_equal(api_stats(&api).hit_count - before.hit_count, 1000);
    api_end(&api);
}

TEST(errno_survives_a_miss_and_a_failure)
{
    struct api api;
    void *ptr = NULL;
    api_begin_with_pool(&api);
    errno = 4242;
    ptr = api_alloc(&api, 40 * MIB, api.stream);
    assert_int_equal(fallow_free(api.pool, ptr, api.stream), FALLOW_OK);
    assert_int_equal(fallow_alloc(api.pool, (size_t)1 << 40, api.stream, &ptr),
                     FALLOW_OUT_OF_MEMORY);
    assert_int_equal(flw_test_trim(api.pool, 0), FALLOW_OK);
    assert_int_equal(errno, 4242);
    api_end(&api);
}

TEST(every_status_has_a_name_and_a_sentence)
{
#define X(name, value, text)                                                 \
    assert_string_equal(fallow_status_name(FALLOW_##name), "FALLOW_" #name); \
    assert_string_equal(fallow_status_message(FALLOW_##name), text);
    FALLOW_STATUS_LIST(X)
#undef X
    assert_string_equal(fallow_status_name((fallow_status)99), "FALLOW_UNKNOWN");
}

FLW_TEST_MAIN(NULL, NULL)
