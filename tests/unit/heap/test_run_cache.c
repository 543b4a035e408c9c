/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that a cache of runs finds every run it holds, only by the exact size, that it
 * refuses runs without room and without a change, and that cleared runs reach another cache of the
 * domain through the depot, or the heap. The first part has no heap: the spans belong to the test. */
#include "support/test.h"

#include <stdbool.h>
#include <string.h>

#include "test_heap_bed.h"

#define SPANS      64
#define SIZES      12
#define MOST_UNITS 1200

static struct flw_domain domain;
static struct flw_span spans[SPANS];
static struct flw_tcache *cache;

static int begin(void **state)
{
    memset(spans, 0, sizeof spans);
    domain.seq = 1;
    cache = flw_tcache_create();
    assert_non_null(cache);
    cache->domain = &domain;
    cache->run_limit_bytes = UINT64_MAX;
    return 0;
}

static int end(void **state)
{
    flw_tcache_drop(cache);
    return 0;
}

static bool push(unsigned span, uint32_t unit_count)
{
    spans[span].u.run.unit_count = unit_count;
    return flw_tcache_push_run(cache, &spans[span]);
}

static void random_programs_agree_with_a_list(void **state)
{
    uint64_t seed = flw_test_seed("unit.run_cache"), bytes = 0;
    bool is_in[SPANS] = {false};
    uint32_t sizes[SIZES];
    for (unsigned i = 0; i < SIZES; i++) {
        sizes[i] = 17 + (uint32_t)(flw_test_random(&seed) % MOST_UNITS);
    }
    cache->run_limit_bytes = 12000 * FLW_UNIT_BYTES;
    for (unsigned step = 0; step < 200000; step++) {
        unsigned i = (unsigned)(flw_test_random(&seed) % SPANS);
        uint32_t units = sizes[flw_test_random(&seed) % SIZES];
        if (flw_test_random(&seed) % 2 == 0) {
            if (!is_in[i]) {
                is_in[i] = push(i, units);
                bytes += is_in[i] ? units * FLW_UNIT_BYTES : 0;
            }
        } else {
            unsigned held = 0;
            for (unsigned k = 0; k < SPANS; k++) {
                held += is_in[k] && spans[k].u.run.unit_count == units;
            }
            const struct flw_span *run = flw_tcache_pop_run(cache, units);
            assert_true((run != NULL) == (held != 0));
            if (run != NULL) {
                assert_true(is_in[run - spans] && run->u.run.unit_count == units);
                is_in[run - spans] = false;
                bytes -= units * FLW_UNIT_BYTES;
            }
        }
        assert_true(cache->run_bytes == bytes && bytes <= cache->run_limit_bytes);
    }
}

/* Two caches of one domain, and runs that were allocated by the first and freed into it. */
struct two {
    struct heap_bed bed;
    struct flw_domain *domain;
    struct flw_tcache *giver, *taker;
};

static void two_begin(struct two *two)
{
    memset(two, 0, sizeof *two);
    assert_true(flw_sim_open(&two->bed.sim));
    bed_begin(&two->bed, BED_VMM, FLW_GIB);
    two->domain = bed_domain(&two->bed, &flw_order_stream, two->bed.stream);
    two->domain->cache_count = 2;
    two->giver = flw_tcache_create();
    two->taker = flw_tcache_create();
    assert_non_null(two->giver);
    assert_non_null(two->taker);
    two->giver->domain = two->taker->domain = two->domain;
    two->giver->run_limit_bytes = two->taker->run_limit_bytes = 256 * FLW_MIB;
}

static void two_end(struct two *two)
{
    flw_lock_acquire(&two->bed.heap.lock);
    (void)flw_tcache_flush(two->giver, &two->bed.heap);
    (void)flw_tcache_flush(two->taker, &two->bed.heap);
    flw_lock_release(&two->bed.heap.lock);
    assert_true(two->bed.heap.live_run_bytes == 0 && two->bed.heap.depot.domain == NULL);
    assert_true(two->giver->run_out_bytes == 0 && two->taker->run_out_bytes == 0);
    bed_check(&two->bed);
    flw_tcache_drop(two->giver);
    flw_tcache_drop(two->taker);
    bed_end(&two->bed);
    flw_sim_close(&two->bed.sim);
}

static void give(struct two *two, uint32_t unit_count)
{
    struct flw_span *run = bed_take(&two->bed, two->domain, unit_count);
    if (run == NULL) {
        assert_int_equal(bed_grow(&two->bed, two->domain, unit_count, &run), FALLOW_OK);
    }
    two->giver->run_out_bytes += flw_run_bytes(run);
    assert_true(flw_tcache_push_run(two->giver, run));
}

static void clear(struct two *two)
{
    flw_lock_acquire(&two->bed.heap.lock);
    flw_tcache_clear_runs(two->giver, &two->bed.heap);
    flw_lock_release(&two->bed.heap.lock);
    assert_true(two->giver->run_bytes == 0 && two->giver->run_out_bytes == 0);
}

static struct flw_span *withdraw(struct two *two, uint32_t unit_count)
{
    flw_lock_acquire(&two->bed.heap.lock);
    struct flw_span *run = flw_tcache_withdraw_run(two->taker, &two->bed.heap, unit_count);
    flw_lock_release(&two->bed.heap.lock);
    return run;
}

static void what_one_cache_clears_another_of_its_domain_finds(void **state)
{
    struct two two;
    two_begin(&two);
    for (unsigned i = 0; i < 5; i++) {
        give(&two, 10);
    }
    give(&two, 50);
    clear(&two);
    assert_ptr_equal(two.bed.heap.depot.domain, two.domain);
    assert_null(withdraw(&two, 11));
    struct flw_span *run = withdraw(&two, 10);
    assert_true(run != NULL && run->u.run.unit_count == 10 && run->u.run.state == FLW_RUN_LIVE);
    bed_put(&two.bed, two.domain, run);
    assert_true(two.taker->run_bytes == 40 * FLW_UNIT_BYTES); /* the other four were moved too */
    assert_true(two.taker->run_out_bytes == two.taker->run_bytes);
    assert_null(withdraw(&two, 10));
    for (unsigned i = 0; i < 4; i++) {
        run = flw_tcache_pop_run(two.taker, 10);
        assert_non_null(run);
        bed_put(&two.bed, two.domain, run);
        two.taker->run_out_bytes -= 10 * FLW_UNIT_BYTES;
    }
    assert_null(flw_tcache_pop_run(two.taker, 10));
    for (unsigned i = 0; i < 4; i++) {
        give(&two, 100);
    }
    clear(&two);
    assert_null(withdraw(&two, 50)); /* unclaimed: free memory by now */
    uint64_t bytes = 100 * FLW_UNIT_BYTES, most = flw_tcache_run_limit(&two.bed.heap);
    assert_true(most < 3 * bytes);
    two.taker->run_limit_bytes = 0; /* has freed nothing */
    run = withdraw(&two, 100);
    assert_true(run != NULL && two.taker->run_bytes == most / bytes * bytes);
    bed_put(&two.bed, two.domain, run);
    bed_check(&two.bed);
    two_end(&two);
}

static void a_cache_alone_on_its_domain_clears_into_the_heap(void **state)
{
    struct two two;
    two_begin(&two);
    two.domain->cache_count = 1;
    give(&two, 40);
    clear(&two);
    assert_true(two.bed.heap.depot.domain == NULL && two.bed.heap.live_run_bytes == 0);
    two_end(&two);
}

int main(void)
{
#define RUN(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        RUN(random_programs_agree_with_a_list),
        cmocka_unit_test(what_one_cache_clears_another_of_its_domain_finds),
        cmocka_unit_test(a_cache_alone_on_its_domain_clears_into_the_heap),
    };
#undef RUN
    return cmocka_run_group_tests(tests, NULL, NULL);
}
