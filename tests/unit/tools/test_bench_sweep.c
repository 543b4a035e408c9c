/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: tests of the sweep of `fallow bench streams`: the rows and their counts.
 */
#include "support/test.h"

#include "bench/bench.h"

#include <string.h>

/* Asks the driver for something of each kind a row counts, and looks whether the stream has work to do. */
static uint64_t busy_count;

static fallow_status asking_alloc(void *pool, size_t size_bytes, fallow_stream stream,
                                  void **out_ptr)
{
    struct flw_bench *bench = pool;
    CUdeviceptr address = 0;
    assert_ok(bench->driver->cuMemAlloc_v2(&address, size_bytes));
    busy_count += bench->driver->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    *out_ptr = (void *)(uintptr_t)address;
    return FALLOW_OK;
}

static fallow_status asking_free(void *pool, void *ptr, fallow_stream stream)
{
    struct flw_bench *bench = pool;
    CUevent event = NULL;
    busy_count += bench->driver->cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
    assert_ok(bench->driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_ok(bench->driver->cuEventRecord(event, stream));
    assert_ok(bench->driver->cuStreamWaitEvent(bench->streams[0], event, 0));
    assert_ok(bench->driver->cuEventSynchronize(event));
    assert_ok(bench->driver->cuEventDestroy_v2(event));
    assert_ok(bench->driver->cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr));
    return FALLOW_OK;
}

static const struct flw_bench_policy asking_policy = {
    .name = "fallow", .needs_device = true, .alloc = asking_alloc, .free = asking_free};

static double row_value(const struct flw_bench *bench, size_t row, const char *key)
{
    for (size_t i = 0; i < bench->column_count; i++) {
        if (strcmp(bench->columns[i].key, key) == 0) {
            return bench->rows[row].values[i];
        }
    }
    fail_msg("a row has no %s", key);
    return 0;
}

/* Run a sweep. The caller closes the bench. */
static void sweep(struct flw_bench *bench)
{
    if (!flw_bench_open(bench) || !flw_bench_streams(bench)) {
        fail_msg("%s", bench->message);
    }
    assert_int_equal(bench->failure_count, 0);
}

static struct flw_bench_options make_sweep(const struct flw_bench_policy *policy)
{
    return (struct flw_bench_options){.shape = "streams",
                                      .policy = policy,
                                      .size_bytes = 4096,
                                      .size_name = "4096,65536",
                                      .count = 200,
                                      .warm_count = 7,
                                      .stream_count = 3,
                                      .thread_count = 1,
                                      .seed = 1,
                                      .is_sweep = true,
                                      .stream_list = {{3, 1}, 2},
                                      .size_list = {{4096, 65536}, 2},
                                      .beside_list = {{0, 1 << 20}, 2},
                                      .device = -1};
}

TEST(a_sweep_has_a_row_for_each_combination)
{
    struct flw_bench_options options = make_sweep(flw_bench_policy_find("fallow"));
    struct flw_bench bench = {.options = &options};
    sweep(&bench);
    assert_int_equal(bench.row_count, 8);
    for (size_t i = 0; i < 8; i++) {
        double beside_bytes = row_value(&bench, i, "beside_bytes");
        assert_true(row_value(&bench, i, "streams") == (i % 2 == 0 ? 3 : 1));
        assert_true(beside_bytes == (i / 2 % 2 == 0 ? 0 : 1 << 20));
        assert_true(row_value(&bench, i, "size_bytes") == (i / 4 == 0 ? 4096 : 65536));
        assert_true(row_value(&bench, i, "cpu_ns_per_pair") > 0);
        assert_true(row_value(&bench, i, "over_one_stream") > 0);
        if (row_value(&bench, i, "streams") == 1) { /* every pair is a hit */
            assert_true(row_value(&bench, i, "over_one_stream") == 1);
            assert_true(row_value(&bench, i, "driver_calls_per_pair") == 0);
            assert_true(row_value(&bench, i, "steals_per_pair") == 0);
        }
        assert_true(row_value(&bench, i, "reserved_bytes") >= beside_bytes);
    }
    flw_bench_close(&bench);
}

TEST(a_row_counts_what_the_driver_was_asked_for)
{
    static const struct {
        const char *key;
        double value;
    } counts[] = {{"driver_calls_per_pair", 9},
                  {"events_per_pair", 1},
                  {"queries_per_pair", 2},
                  {"stream_waits_per_pair", 1},
                  {"host_waits_per_pair", 0}}; /* complete work stops none */
    struct flw_bench_options options = make_sweep(&asking_policy);
    struct flw_bench bench = {.options = &options};
    options.count = 10;
    busy_count = 0;
    sweep(&bench);
    assert_int_equal(bench.row_count, 8);
    for (size_t i = 0; i < 8; i++) {
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
            assert_true(row_value(&bench, i, counts[k].key) == counts[k].value);
        }
    }
    assert_int_equal(busy_count, 0); /* no device work */
    flw_bench_close(&bench);
}

/* On one stream: each block's own work is under way at the free, and is done by the time of the next allocation, since
 * the event after that work is waited for. */
TEST(a_lag_leaves_work_under_way)
{
    struct flw_bench_options options = make_sweep(&asking_policy);
    struct flw_bench bench = {.options = &options};
    options.count = 10;
    options.warm_count = 0;
    options.lag_pairs = 4;
    options.stream_list = (struct flw_bench_list){{1}, 1};
    options.size_list = (struct flw_bench_list){{4096}, 1};
    options.beside_list = (struct flw_bench_list){{0}, 1};
    busy_count = 0;
    sweep(&bench);
    assert_int_equal(busy_count, 10);
    assert_true(row_value(&bench, 0, "driver_calls_per_pair") == 9);
    assert_true(row_value(&bench, 0, "host_waits_per_pair") == 1);
    flw_bench_close(&bench);
}

TEST(more_beside_than_the_device_has_is_an_error)
{
    struct flw_bench_options options = make_sweep(flw_bench_policy_find("fallow"));
    struct flw_bench bench = {.options = &options};
    options.size_list = (struct flw_bench_list){{(uint64_t)1 << 30}, 1};
    options.beside_list = (struct flw_bench_list){{(uint64_t)1 << 40}, 1};
    assert_true(flw_bench_open(&bench));
    assert_false(flw_bench_streams(&bench));
    flw_test_expect_in(bench.message, " of 1024 blocks of 1073741824 bytes could be held beside");
    flw_test_expect_in(bench.message, "lower --beside");
    assert_int_equal(bench.failure_count, 0);
    flw_bench_close(&bench);
}

FLW_TEST_MAIN(NULL, NULL)
