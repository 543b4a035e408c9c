/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of the bench: counts, random draws and reports. Times are not checked.
 */
#include "support/test.h"

#include "bench/bench.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* ---- a counting policy ---- */

struct tally {
    uint64_t allocs, frees, sized_frees;
    uint64_t fail_alloc, fail_free; /* this call fails; 0 = none */
    size_t sized_bytes;
    uint64_t uses[4]; /* announced for the first stream, the second, ... */
    uint64_t polls, failures;
};

static fallow_status tally_alloc(void *pool, size_t size_bytes, fallow_stream stream,
                                 void **out_ptr)
{
    struct tally *tally = pool;
    (void)size_bytes, (void)stream;
    *out_ptr = tally;
    return ++tally->allocs == tally->fail_alloc ? FALLOW_OUT_OF_MEMORY : FALLOW_OK;
}

static fallow_status tally_free(void *pool, void *ptr, fallow_stream stream)
{
    struct tally *tally = pool;
    (void)stream;
    return ptr != NULL && ++tally->frees == tally->fail_free ? FALLOW_INVALID_POINTER : FALLOW_OK;
}

static fallow_status tally_free_sized(void *pool, void *ptr, size_t size_bytes,
                                      fallow_stream stream)
{
    struct tally *tally = pool;
    (void)ptr, (void)stream;
    tally->sized_frees++;
    tally->sized_bytes = size_bytes;
    return FALLOW_OK;
}

static fallow_status tally_record_use(void *pool, void *ptr, fallow_stream stream)
{
    struct tally *tally = pool;
    (void)ptr;
    tally->uses[(uintptr_t)stream - 1]++;
    return FALLOW_OK;
}

static fallow_status tally_poll(void *pool)
{
    ((struct tally *)pool)->polls++;
    return FALLOW_OK;
}

static const struct flw_bench_policy tally_policy = {.name = "tally",
                                                     .alloc = tally_alloc,
                                                     .free = tally_free,
                                                     .free_sized = tally_free_sized,
                                                     .record_use = tally_record_use,
                                                     .poll = tally_poll};

static struct flw_bench_options make_options(uint64_t count)
{
    return (struct flw_bench_options){.shape = "pair",
                                      .policy = &tally_policy,
                                      .size_bytes = 4096,
                                      .size_name = "4096",
                                      .count = count,
                                      .warm_count = 7,
                                      .live_count = 5,
                                      .stream_count = 3,
                                      .thread_count = 1,
                                      .seed = 1};
}

/* Run a shape on a tally, and add the number of failed calls to tally.failures. */
static struct tally run_shape(flw_bench_shape *shape, const struct flw_bench_options *options,
                              struct tally tally)
{
    fallow_stream streams[8] = {0};
    struct flw_bench bench = {
        .options = options, .streams = streams, .stream_count = 3, .pool = &tally};
    for (uintptr_t i = 0; i < 8; i++) {
        streams[i] = (fallow_stream)(i + 1);
    }
    assert_true(shape(&bench));
    flw_host_free(bench.rows);
    flw_host_free(bench.values);
    tally.failures += bench.failure_count;
    return tally;
}

/* Everything but --count operations is the same, whatever the count, so two runs under callgrind are comparable. */
static void expect_exact_counts(flw_bench_shape *shape, struct flw_bench_options options)
{
    options.count = 1003;
    struct tally low = run_shape(shape, &options, (struct tally){0});
    options.count = 4001;
    struct tally high = run_shape(shape, &options, (struct tally){0});
    assert_int_equal(high.allocs - low.allocs, 4001 - 1003);
    assert_int_equal(high.frees + high.sized_frees - low.frees - low.sized_frees, 4001 - 1003);
    assert_int_equal(high.allocs, high.frees + high.sized_frees);
    assert_int_equal(low.failures + high.failures, 0);
}

TEST(two_counts_differ_by_exactly_that_many_operations)
{
    struct flw_bench_options options = make_options(0);
    expect_exact_counts(flw_bench_pair, options);
    expect_exact_counts(flw_bench_streams, options);
    expect_exact_counts(flw_bench_replace, options);
    expect_exact_counts(flw_bench_deferred, options);
    options.part = "larger";
    expect_exact_counts(flw_bench_holes, options);
    options.is_sized = true;
    expect_exact_counts(flw_bench_pair, options);
    options.is_random_switch = true;
    expect_exact_counts(flw_bench_streams, options);
    options.is_sweep = true;
    options.stream_list = (struct flw_bench_list){{2}, 1};
    options.size_list = (struct flw_bench_list){{4096}, 1};
    options.beside_list = (struct flw_bench_list){{5 * 4096}, 1};
    expect_exact_counts(flw_bench_streams, options);
}

TEST(what_stays_deferred_and_what_is_timed_are_used_by_streams_of_their_own)
{
    struct flw_bench_options options = make_options(640);
    options.warm_count = 64;
    struct tally tally = run_shape(flw_bench_deferred, &options, (struct tally){0});
    assert_int_equal(tally.uses[0], 0);
    assert_int_equal(tally.uses[1], 5);
    assert_int_equal(tally.uses[2], 640 + 64);
    assert_int_equal(tally.polls, (640 + 64) / FLW_BENCH_POLL_EVERY + 2); /* before, after */
    assert_int_equal(tally.failures, 0);
}

TEST(a_sized_pair_frees_with_the_size_that_was_asked_for)
{
    struct flw_bench_options options = make_options(50);
    options.is_sized = true;
    struct tally tally = run_shape(flw_bench_pair, &options, (struct tally){0});
    assert_int_equal(tally.frees, 0);
    assert_int_equal(tally.sized_frees, 57);
    assert_int_equal(tally.sized_bytes, 4096);
}

TEST(every_failed_call_is_counted)
{
    struct flw_bench_options options = make_options(50);
    for (uint64_t at = 1; at <= 57; at++) {
        struct tally alloc = {.fail_alloc = at}, free = {.fail_free = at};
        assert_int_equal(run_shape(flw_bench_pair, &options, alloc).failures, 1);
        assert_int_equal(run_shape(flw_bench_pair, &options, free).failures, 1);
    }
}

TEST(replacing_loops_follow_the_steps)
{
    struct flw_bench_step list[2] = {{512, 1, 0}, {1024, 0, 0}};
    struct tally tally = {0};
    void *slots[2] = {NULL, NULL};
    struct flw_bench_loop loop = {
        .policy = &tally_policy, .pool = &tally, .steps = list, .mask = 1, .slots = slots};
    assert_int_equal(flw_bench_run_replace(&loop, (struct flw_bench_range){0, 1}), 0);
    assert_null(slots[0]);
    assert_ptr_equal(slots[1], &tally);
    assert_int_equal(flw_bench_run_replace(&loop, (struct flw_bench_range){1, 2}), 0);
    assert_ptr_equal(slots[0], &tally);
}

/* ---- steps ---- */

TEST(sizes_are_in_the_range_of_their_distribution)
{
    struct flw_bench_options options = make_options(1);
    uint64_t seed = flw_test_seed("sizes"), least = UINT64_MAX, most = 0, large = 0;
    for (int i = 0; i < 100000; i++) {
        options.sizes = FLW_BENCH_SIZE_SMALL;
        assert_in_range(flw_bench_size_draw(&options, &seed), 512, 32768);
        options.sizes = FLW_BENCH_SIZE_MIXED;
        uint64_t size = flw_bench_size_draw(&options, &seed);
        assert_in_range(size, 512, (uint64_t)64 << 20);
        large += size > (uint64_t)2 << 20;
        options.sizes = FLW_BENCH_SIZE_LOG;
        size = flw_bench_size_draw(&options, &seed);
        assert_in_range(size, 512, (uint64_t)64 << 20);
        least = size < least ? size : least;
        most = size > most ? size : most;
    }
    assert_in_range(large, 41000, 43300); /* 8 of 19 = 42.1 %, seven deviations */
    assert_true(least < 1024 && most > (uint64_t)60 << 20);
}

TEST(steps_stay_inside_slots_and_streams)
{
    static const uint64_t slot_counts[] = {1, 64, 100, 8192, 8193, 100000};
    struct flw_bench_options options = make_options(1);
    fallow_stream stream = NULL;
    const struct flw_bench bench = {.options = &options, .streams = &stream};
    options.is_random_switch = true;
    for (size_t i = 0; i < sizeof slot_counts / sizeof *slot_counts; i++) {
        struct flw_bench_loop loop = flw_bench_loop_open(&bench, &options, slot_counts[i], i);
        uint64_t seen = 0;
        assert_true(loop.mask + 1 >= slot_counts[i]);
        assert_int_equal(loop.mask & (loop.mask + 1), 0);
        for (uint64_t k = 0; k <= loop.mask; k++) {
            assert_in_range(loop.steps[k].slot, 0, slot_counts[i] - 1);
            assert_in_range(loop.steps[k].stream, 0, options.stream_count - 1);
            seen |= (uint64_t)1 << loop.steps[k].stream;
        }
        assert_int_equal(seen, 7); /* each of the three streams */
        flw_bench_loop_close(&loop);
    }
}

/* ---- report ---- */

TEST(the_median_is_the_middle)
{
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2};
    assert_true(flw_median(odd, 3) == 3);
    assert_true(flw_median(even, 4) == 2.5);
    assert_true(flw_median(NULL, 0) == 0);
}

/* ---- on the pool ---- */

/* Run the shape on the simulated device, and return a figure. Fails if a call does. */
static double figure_on_pool(flw_bench_shape *shape, struct flw_bench_options options,
                             const char *key)
{
    struct flw_bench bench = {.options = &options};
    double value = NAN;
    options.policy = flw_bench_policy_find("fallow");
    options.device = -1;
    if (!flw_bench_open(&bench) || !shape(&bench)) {
        fail_msg("%s", bench.message);
    }
    for (size_t i = 0; i < bench.value_count; i++) {
        value = strcmp(bench.values[i].key, key) == 0 ? bench.values[i].value : value;
    }
    assert_int_equal(bench.failure_count, 0);
    flw_bench_close(&bench);
    return value;
}

/* After many more blocks than the queue between the two has room for. */
TEST(what_one_thread_allocates_and_another_frees_holds_at_most_twice_the_live)
{
    struct flw_bench_options options = make_options(600000);
    options.sizes = FLW_BENCH_SIZE_SMALL;
    options.warm_count = 1000;
    options.live_count = 128;
    options.thread_count = 2;
    for (options.stream_count = 1; options.stream_count <= 2; options.stream_count++) {
        double held = figure_on_pool(flw_bench_handoff, options, "peak_held_less_16mib_over_live");
        if (!(held >= 0 && held <= 2)) {
            fail_msg("%zu streams: less 16 MiB, %.2f times the live bytes are held",
                     options.stream_count, held);
        }
    }
}

TEST(a_lease_makes_no_driver_call_and_no_pool_call)
{
    assert_true(figure_on_pool(flw_bench_lease, make_options(1000), "lease_driver_calls") == 0);
    assert_true(figure_on_pool(flw_bench_lease, make_options(1000), "lease_pool_calls") == 0);
}

FLW_TEST_MAIN(NULL, NULL)
