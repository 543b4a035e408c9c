/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: runs, blocks above the largest class: statistics are the same, whether a thread's cache,
 * the heap or a growth served them. */
#include "test_api.h"

#define LIVE 24

static size_t run_bytes(size_t bytes)
{
    return (bytes + 65535) / 65536 * 65536;
}

struct sums {
    uint64_t requested, live, peak_requested, allocs, blocks;
};

static void allocate(struct api *api, struct sums *sums, size_t bytes, void **out_ptr)
{
    assert_int_equal(fallow_alloc(api->pool, bytes, api->stream, out_ptr), FALLOW_OK);
    sums->requested += bytes;
    sums->live += run_bytes(bytes);
    sums->allocs++;
    sums->blocks++;
    if (sums->requested > sums->peak_requested) {
        sums->peak_requested = sums->requested;
    }
}

static void take_back(struct api *api, struct sums *sums, size_t bytes, void *ptr)
{
    assert_int_equal(fallow_free(api->pool, ptr, api->stream), FALLOW_OK);
    sums->requested -= bytes;
    sums->live -= run_bytes(bytes);
    sums->blocks--;
}

static void check(struct api *api, const struct sums *sums)
{
    fallow_stats stats = api_stats(api);
    assert_true(stats.requested_bytes == sums->requested);
    assert_true(stats.live_bytes == sums->live);
    assert_true(stats.peak_requested_bytes == sums->peak_requested);
    assert_true(stats.alloc_count == sums->allocs);
    assert_true(stats.free_count == sums->allocs - sums->blocks);
    assert_true(stats.hit_count <= stats.alloc_count);
}

static void runs_are_counted_alike_whoever_serves_them(void **state)
{
    uint64_t seed = flw_test_seed("unit.api_runs");
    struct api api;
    struct sums sums = {0};
    void *blocks[LIVE] = {NULL};
    size_t sizes[LIVE] = {0};
    flw_sim_config world = flw_sim_config_default(3);
    world.device_bytes = (uint64_t)4 << 30;
    api_begin(&api, &world);
    api.pool = api_create(&api);
    for (unsigned step = 0; step < 6000; step++) {
        unsigned i = (unsigned)(flw_test_random(&seed) % LIVE);
        if (blocks[i] != NULL) {
            take_back(&api, &sums, sizes[i], blocks[i]);
        }
        /* Mostly one of a few sizes, which the cache can serve; sometimes a random one. */
        size_t pick = flw_test_random(&seed) % 10;
        sizes[i] =
            pick < 8 ? (pick + 1) * 3 * MIB / 2 : MIB + 1 + flw_test_random(&seed) % (30 * MIB);
        allocate(&api, &sums, sizes[i], &blocks[i]);
        if (step % 100 == 99) {
            check(&api, &sums);
        }
    }
    for (unsigned i = 0; i < LIVE; i++) {
        if (blocks[i] != NULL) {
            take_back(&api, &sums, sizes[i], blocks[i]);
        }
    }
    check(&api, &sums);
    fallow_stats stats = api_stats(&api);
    assert_true(stats.hit_count > 0 && stats.hit_count < stats.alloc_count && stats.grow_count > 1);
    api_end(&api);
}

/* ---- the bounds of a cache, and the requests that hit */

#define GIB ((size_t)1 << 30)

static void begin_cached(struct api *api)
{
    flw_sim_config world = flw_sim_config_default(3);
    world.device_bytes = 16 * (uint64_t)GIB;
    api_begin(api, &world);
    fallow_pool_config config = api_config(api);
    assert_int_equal(fallow_pool_create(&config, &api->pool), FALLOW_OK);
}

static void free_all(struct api *api, void **blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(fallow_free(api->pool, blocks[i], api->stream), FALLOW_OK);
    }
}

/* "A 32nd, or 8 MiB if that is more; 64 KiB or two blocks of each class are kept beyond that." */
static void a_cache_holds_a_bounded_amount_of_blocks_up_to_1_mib(void **state)
{
    struct api api;
    void *blocks[100];
    uint64_t allowed = 8 * MIB;
    begin_cached(&api);
    for (size_t bytes = 256; bytes <= MIB;) {
        fallow_block block;
        fallow_block_init(&block);
        for (size_t i = 0; i < 100; i++) {
            blocks[i] = api_alloc(&api, bytes, api.stream);
        }
        assert_int_equal(fallow_block_info(api.pool, blocks[0], &block), FALLOW_OK);
        free_all(&api, blocks, 100);
        allowed += 2 * block.usable_bytes > 65536 ? 2 * block.usable_bytes : 65536;
        assert_true(api_stats(&api).cached_bytes <= allowed);
        bytes = block.usable_bytes + 1;
    }
    assert_true(api_stats(&api).cached_bytes >= MIB);
    api_end(&api);
}

/* "Of larger ones a cache may hold half of what the pool holds, 4 MiB at least and 256 MiB at most." */
static void a_cache_holds_half_of_the_pool_in_larger_blocks_at_most(void **state)
{
    struct api api;
    void *blocks[100];
    begin_cached(&api);
    for (size_t bytes = MIB + 1; bytes <= 32 * MIB; bytes += bytes / 3) {
        for (size_t count = 1; count <= 100; count *= 10) {
            for (size_t i = 0; i < count; i++) {
                blocks[i] = api_alloc(&api, bytes, api.stream);
            }
            free_all(&api, blocks, count);
            fallow_stats stats = api_stats(&api);
            uint64_t half = stats.reserved_bytes / 2;
            uint64_t most = half < 4 * MIB ? 4 * MIB : half > 256 * MIB ? 256 * MIB : half;
            assert_true(stats.cached_bytes <= most);
        }
    }
    api_end(&api);
}

/* Return how many of 50 pairs hit while 1 GiB is live. */
static uint64_t hits_of_pairs(struct api *api, size_t bytes, uint32_t tag, uint32_t flags)
{
    fallow_request request;
    void *ptr = NULL;
    uint64_t before = api_stats(api).hit_count;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.tag = tag;
    request.flags = flags;
    for (int i = 0; i < 50; i++) {
        if (tag == 0 && flags == 0) {
            ptr = api_alloc(api, bytes, api->stream);
        } else {
            assert_int_equal(fallow_alloc_request(api->pool, &request, api->stream, &ptr),
                             FALLOW_OK);
        }
        assert_int_equal(fallow_free(api->pool, ptr, api->stream), FALLOW_OK);
    }
    return api_stats(api).hit_count - before;
}

/* "A hit names neither tag nor flag; above 1 MiB it is of the size, in steps of 64 KiB, of a block that the thread has freed
 * on the stream, up to half of what the pool holds and 256 MiB." */
static void hits_are_what_fallow_h_states(void **state)
{
    struct api api;
    begin_cached(&api);
    void *base = api_alloc(&api, GIB, api.stream);
    static const size_t sizes[] = {100, 5000, MIB, MIB + 1, 20 * MIB, 250 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_true(hits_of_pairs(&api, sizes[i], 0, 0) >= 48);
        assert_int_equal(hits_of_pairs(&api, sizes[i], 7, 0), 0);
        assert_int_equal(hits_of_pairs(&api, sizes[i], 0, FALLOW_REQUEST_NO_WAIT), 0);
    }
    assert_int_equal(hits_of_pairs(&api, 257 * MIB, 0, 0), 0);
    assert_int_equal(fallow_free(api.pool, base, api.stream), FALLOW_OK);
    api_end(&api);
    begin_cached(&api); /* the pool holds no more than the block */
    assert_int_equal(hits_of_pairs(&api, 64 * MIB, 0, 0), 0);
    api_end(&api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cache_holds_a_bounded_amount_of_blocks_up_to_1_mib),
        cmocka_unit_test(a_cache_holds_half_of_the_pool_in_larger_blocks_at_most),
        cmocka_unit_test(hits_are_what_fallow_h_states),
        cmocka_unit_test(runs_are_counted_alike_whoever_serves_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
