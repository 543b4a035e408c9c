/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the promise that the out-of-memory report lists exactly the owners of the most requested bytes, with any number
 * of owners, and even if host memory runs out while adding up.
 */
#include "test_api.h"

#include <sys/resource.h>

#define TAGS        2000
#define TAG_BLOCKS  (TAGS + 2000)
#define LARGE_TAG   (TAGS + 7)
#define LARGE_COUNT 4000
#define LARGE_BYTES 2000

static void *blocks[TAG_BLOCKS + LARGE_COUNT];

static void *allocate(struct api *api, size_t bytes, uint32_t tag, CUstream stream)
{
    fallow_request request;
    void *ptr = NULL;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.tag = tag;
    assert_int_equal(fallow_alloc_request(api->pool, &request, stream, &ptr), FALLOW_OK);
    return ptr;
}

static fallow_oom_report read_report(struct api *api)
{
    fallow_oom_report report;
    void *none = NULL;
    fallow_oom_report_init(&report);
    assert_int_equal(fallow_alloc(api->pool, 1024 * MIB, api->stream, &none), FALLOW_OUT_OF_MEMORY);
    assert_int_equal(fallow_pool_get_oom_report(api->pool, &report), FALLOW_OK);
    return report;
}

static void begin(struct api *api)
{
    api_begin(api, NULL);
    fallow_pool_config config = api_config(api);
    config.limit_bytes = 256 * MIB;
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static void release(struct api *api, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(fallow_free(api->pool, blocks[i], api->stream), FALLOW_OK);
    }
}

/* Compare the report with the sums by tag and stream; the largest sums must be listed. */
static void expect_largest(struct api *api, uint64_t (*sums)[2], uint32_t tag_count)
{
    fallow_oom_report report = read_report(api);
    unsigned long long ids[2] = {0};
    uint64_t listed = UINT64_MAX;
    assert_int_equal(api->sim.cu.cuStreamGetId(api->stream, &ids[0]), 0);
    assert_int_equal(api->sim.cu.cuStreamGetId(api->other, &ids[1]), 0);
    assert_int_equal(report.owner_count, FALLOW_OOM_OWNERS);
    for (uint32_t i = 0; i < FALLOW_OOM_OWNERS; i++) {
        const fallow_oom_owner *owner = &report.owners[i];
        assert_true(owner->bytes <= listed && owner->tag < tag_count);
        assert_true(owner->stream_id == ids[0] || owner->stream_id == ids[1]);
        assert_int_equal(owner->bytes, sums[owner->tag][owner->stream_id == ids[1]]);
        listed = owner->bytes;
    }
    uint32_t larger = 0;
    for (uint32_t i = 0; i < 2 * tag_count; i++) {
        larger += sums[i / 2][i % 2] > listed;
    }
    assert_true(larger < FALLOW_OOM_OWNERS);
}

/* The blocks of the large owner have the highest addresses. */
TEST(the_largest_of_thousands_of_owners_are_listed)
{
    static uint64_t sums[LARGE_TAG + 1][2];
    uint64_t seed = flw_test_seed("unit.api_owners");
    struct api api;
    begin(&api);
    for (uint32_t i = 0; i < TAG_BLOCKS; i++) {
        uint64_t random = flw_test_random(&seed);
        uint32_t tag = i < TAGS ? i : (uint32_t)(random >> 16) % TAGS;
        size_t bytes = 1 + (random >> 40) % 30000;
        bool is_other = random % 2 == 0;
        blocks[i] = allocate(&api, bytes, tag, is_other ? api.other : api.stream);
        sums[tag][is_other] += bytes;
    }
    for (uint32_t i = TAG_BLOCKS; i < TAG_BLOCKS + LARGE_COUNT; i++) {
        blocks[i] = allocate(&api, LARGE_BYTES, LARGE_TAG, api.stream);
        sums[LARGE_TAG][0] += LARGE_BYTES;
    }
    expect_largest(&api, sums, LARGE_TAG + 1);
    struct rlimit few, unlimited;
    assert_int_equal(getrlimit(RLIMIT_AS, &unlimited), 0);
    few = unlimited;
    few.rlim_cur = MIB; /* already exceeded, so every further mmap fails */
    assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
    expect_largest(&api, sums, LARGE_TAG + 1);
    assert_int_equal(setrlimit(RLIMIT_AS, &unlimited), 0);
    release(&api, TAG_BLOCKS + LARGE_COUNT);
    api_end(&api);
}

FLW_TEST_MAIN(NULL, NULL)
