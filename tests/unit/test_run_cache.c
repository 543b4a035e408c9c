/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that a cache of runs finds every run it holds, and only by its exact size, and
 * that it refuses what it has no room for without a change. No heap: spans that nobody else knows.
 */
#include "support/test.h"

#include <stdbool.h>
#include <string.h>

#include "heap/tcache.h"

#define SPANS      64
#define SIZES      12
#define MOST_UNITS 1200

static struct flw_domain domain;
static struct flw_span spans[SPANS];
static struct flw_tcache *cache;

static int begin(void **state)
{
    (void)state;
    memset(spans, 0, sizeof spans);
    domain.ticket = 1;
    cache = flw_tcache_create();
    assert_non_null(cache);
    cache->domain = &domain;
    cache->run_limit_bytes = UINT64_MAX;
    return 0;
}

static int end(void **state)
{
    (void)state;
    flw_tcache_drop(cache);
    return 0;
}

static bool push(unsigned span, uint32_t unit_count)
{
    spans[span].u.run.unit_count = unit_count;
    return flw_tcache_push_run(cache, &spans[span]);
}

static void a_run_serves_its_exact_size_with_the_ticket_of_its_free(void **state)
{
    (void)state;
    domain.ticket = 41;
    assert_true(push(0, 40));
    domain.ticket = 42;
    assert_true(push(1, 40));
    assert_true(cache->run_bytes == 80 * FLW_UNIT_BYTES);
    assert_null(flw_tcache_pop_run(cache, 39));
    assert_null(flw_tcache_pop_run(cache, 41));
    assert_ptr_equal(flw_tcache_pop_run(cache, 40), &spans[1]);
    assert_ptr_equal(flw_tcache_pop_run(cache, 40), &spans[0]);
    assert_null(flw_tcache_pop_run(cache, 40));
    assert_true(spans[0].u.run.ticket == 41 && spans[1].u.run.ticket == 42);
    assert_true(cache->run_bytes == 0);
}

static void the_limit_and_a_full_set_refuse_and_change_nothing(void **state)
{
    (void)state;
    cache->run_limit_bytes = 100 * FLW_UNIT_BYTES;
    assert_true(push(0, 60));
    spans[1].u.run.ticket = 7;
    assert_false(push(1, 41));
    assert_true(spans[1].u.run.ticket == 7 && cache->run_bytes == 60 * FLW_UNIT_BYTES);
    assert_null(flw_tcache_pop_run(cache, 41));
    assert_true(push(1, 40)); /* to the byte */
    cache->run_limit_bytes = UINT64_MAX;
    unsigned held = 0; /* a size has two sets */
    while (held + 2 < SPANS && push(held + 2, 300)) {
        held++;
    }
    assert_int_equal(held, 2 * FLW_RUN_SET_SLOTS);
    while (held > 0 && flw_tcache_pop_run(cache, 300) != NULL) {
        held--;
    }
    assert_int_equal(held, 0);
    assert_true(cache->run_bytes == 100 * FLW_UNIT_BYTES);
}

static void three_sizes_of_one_set_have_two_places(void **state)
{
    (void)state;
    uint32_t sizes[3] = {17}, found = 1;
    for (uint32_t units = 18; found < 3; units++) {
        if (flw_run_set_index(units) == flw_run_set_index(17)) {
            sizes[found++] = units;
        }
    }
    assert_true(push(0, sizes[0]) && push(1, sizes[1]));
    assert_false(push(2, sizes[2]));
    assert_null(flw_tcache_pop_run(cache, sizes[2]));
    assert_ptr_equal(flw_tcache_pop_run(cache, sizes[0]), &spans[0]);
    assert_true(push(2, sizes[2])); /* the first set is empty, the second still the other's */
    assert_true(push(3, sizes[1]));
    assert_ptr_equal(flw_tcache_pop_run(cache, sizes[2]), &spans[2]);
    assert_ptr_equal(flw_tcache_pop_run(cache, sizes[1]), &spans[3]);
    assert_ptr_equal(flw_tcache_pop_run(cache, sizes[1]), &spans[1]);
    assert_true(cache->run_bytes == 0);
}

static void random_programs_agree_with_a_list(void **state)
{
    (void)state;
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(a_run_serves_its_exact_size_with_the_ticket_of_its_free),
        TEST(the_limit_and_a_full_set_refuse_and_change_nothing),
        TEST(three_sizes_of_one_set_have_two_places),
        TEST(random_programs_agree_with_a_list),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
