/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the public promises about runs, blocks above the largest class: one that is served by its
 * thread's cache, by the heap or by a growth is counted the same.
 */
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
    (void)state;
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
        /* Mostly one of a few sizes, which the cache can serve; at times one of its own. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_counted_alike_whoever_serves_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
