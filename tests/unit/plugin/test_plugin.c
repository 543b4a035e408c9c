/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the promises of plugin.h, called as by the frameworks, under the rule checker. Default
 * pools belong to the process, so all cases share one world of two devices of 1 GiB. Does not:
 * graph memory (test_plugin_graphs.c). */
#include "unit/plugin/test_plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>

static CUstream second; /* of device 1 */

static const fallow_mempool_id graph_id = {1, 0};

/* ---- before the first pool */

TEST(nothing_is_made_before_it_is_needed)
{
    fallow_pool *pool = (fallow_pool *)(void *)&sim;
    assert_int_equal(fallow_plugin_pool(0, FALLOW_PLUGIN_STREAM, 0, &pool), FALLOW_NOT_FOUND);
    assert_null(pool);
    assert_int_equal(fallow_plugin_pool(-1, FALLOW_PLUGIN_STREAM, 1, &pool),
                     FALLOW_INVALID_ARGUMENT);
    assert_int_equal(fallow_plugin_pool(0, (fallow_plugin_order)2, 1, &pool),
                     FALLOW_INVALID_ARGUMENT);
    fallow_torch_reset();
    fallow_torch_end_allocate_to_pool(0, graph_id);
    fallow_torch_release_pool(0, graph_id);
    fallow_torch_free(NULL, 0, 0, stream);
    assert_int_equal(sim.call_count("cuMemCreate"), 0);
}

TEST(settings_are_taken_until_there_is_a_pool)
{
    int peer = 1;
    char name[] = "sim";
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = name;
    config.peer_devices = &peer;
    config.peer_device_count = 1;
    assert_int_equal(fallow_plugin_configure(&config), FALLOW_NOT_SUPPORTED);
    config.peer_device_count = 0;
    config.limit_bytes = 512 * MIB;
    assert_int_equal(fallow_plugin_configure(NULL), FALLOW_INVALID_ARGUMENT);
    assert_ok(fallow_plugin_configure(&config));
    memset(name, 'x', sizeof name - 1); /* it was copied */
    fallow_torch_memory_fraction(0.25, 1);
    give(take(100, stream), 100, stream);
    assert_int_equal(fallow_plugin_configure(&config), FALLOW_BUSY);
}

/* ---- the torch pair */

TEST(memory_comes_back_in_stream_order)
{
    void *first = take(3000, stream);
    give(first, 3000, stream);
    assert_ptr_equal(take(3000, stream), first);
    give(first, 3000, stream);
    void *elsewhere = take(3000, other); /* the checker sees to the order */
    give(elsewhere, 3000, other);
    assert_null(fallow_torch_alloc(0, 0, stream));
    give(NULL, 0, stream);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).live_count, 0);
}

TEST(a_failure_is_null_and_a_line)
{
    errno = EDOM;
    hold_stderr();
    void *ptr = fallow_torch_alloc(600 * (ssize_t)MIB, 0, stream);
    assert_one_line_with(release_stderr(), "no 629145600 bytes on device 0");
    assert_null(ptr);
    hold_stderr();
    ptr = fallow_torch_alloc(-5, 0, stream);
    assert_one_line_with(release_stderr(), "on device 0");
    assert_null(ptr);
    hold_stderr();
    ptr = fallow_torch_alloc(5, 99, stream);
    assert_one_line_with(release_stderr(), "device 99 has no pool");
    assert_null(ptr);
    hold_stderr();
    give(&sim, 5, stream);
    assert_one_line_with(release_stderr(), "cannot free");
    assert_int_equal(errno, EDOM);
    give(take(100 * MIB, stream), 100 * MIB, stream);
}

/* A C program cannot catch exceptions, so the plug-in throws none, even with a C++ runtime loaded. */
TEST(a_failure_is_null_in_c_beside_a_cpp_runtime)
{
    if (dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL) == NULL) {
        skip();
    }
    hold_stderr();
    void *ptr = fallow_torch_alloc(600 * (ssize_t)MIB, 0, stream);
    assert_one_line_with(release_stderr(), "no 629145600 bytes on device 0");
    assert_null(ptr);
    give(take(100 * MIB, stream), 100 * MIB, stream);
}

TEST(what_the_other_pool_holds_is_given_up_for_a_request)
{
    void *idle[3];
    for (int i = 0; i < 3; i++) {
        idle[i] = fallow_cupy_malloc(NULL, 150 * MIB, 0);
        assert_non_null(idle[i]);
    }
    for (int i = 0; i < 3; i++) {
        fallow_cupy_free(NULL, idle[i], 0);
    }
    void *large = take(500 * MIB, stream);
    void *more = fallow_cupy_malloc(NULL, 400 * MIB, 0);
    assert_non_null(more);
    give(large, 500 * MIB, stream);
    fallow_cupy_free(NULL, more, 0);
    fallow_torch_reset();
}

TEST(a_recorded_use_keeps_the_block)
{
    void *ptr = fallow_torch_alloc(5000, 0, stream);
    assert_ok(sim.cu.cuStreamSynchronize(stream)); /* the work there is done */
    use(ptr, 5000, other);
    fallow_torch_record_stream(ptr, other);
    fallow_torch_record_stream((char *)ptr + 100, other); /* a view */
    fallow_torch_record_stream(NULL, other);
    give(ptr, 5000, stream);
    void *next = take(5000, stream);
    assert_ptr_not_equal(next, ptr);
    give(next, 5000, stream);
    assert_ok(sim.cu.cuCtxSynchronize());
}

TEST(a_view_finds_its_block)
{
    size_t bytes = 0;
    char *ptr = take(5000, stream);
    assert_ptr_equal(fallow_torch_base_alloc(ptr + 4999, &bytes), ptr);
    assert_true(bytes >= 5000 && bytes < 8192);
    assert_ptr_equal(fallow_torch_base_alloc(&sim, &bytes), &sim);
    assert_int_equal(bytes, 0);
    give(ptr, 5000, stream);
}

TEST(reset_gives_idle_memory_back)
{
    give(take(64 * MIB, stream), 64 * MIB, stream);
    assert_true(flw_sim_read_ledger(&sim).given_bytes >= 64 * MIB);
    fallow_torch_reset(); /* a held device completes nothing on a query */
    assert_ok(sim.cu.cuCtxSynchronize());
    fallow_torch_reset();
    assert_int_equal(flw_sim_read_ledger(&sim).given_bytes, 0);
}

/* ---- pairs that name no stream */

TEST(no_block_comes_again_before_the_context_is_done_with_it)
{
    uint64_t seed = 1;
    void *blocks[64] = {NULL};
    size_t sizes[64] = {0};
    for (int i = 0; i < 4000; i++) { /* used on streams that the library never sees */
        size_t at = flw_test_random(&seed) % 64;
        if (blocks[at] != NULL) {
            if (at % 2 == 0) {
                fallow_cupy_free(NULL, blocks[at], 0);
            } else {
                fallow_torch_segment_free(blocks[at], (ssize_t)sizes[at], 0, stream);
            }
        }
        sizes[at] = (size_t)1 << (flw_test_random(&seed) % 21);
        blocks[at] = at % 2 == 0 ? fallow_cupy_malloc(NULL, sizes[at], 0)
                                 : fallow_torch_segment_alloc((ssize_t)sizes[at], 0, other);
        assert_non_null(blocks[at]);
        use(blocks[at], sizes[at], flw_test_random(&seed) % 2 == 0 ? stream : other);
    }
    for (int i = 0; i < 64; i++) {
        fallow_cupy_free(NULL, blocks[i], 0);
    }
    fallow_cupy_free(NULL, NULL, 0);
    assert_null(fallow_cupy_malloc(NULL, 0, 0));
    fallow_stats stats = stats_of(0, FALLOW_PLUGIN_CONTEXT);
    assert_true(stats.grow_count < 400); /* the memory is reused */
    assert_int_equal(flw_sim_print_violations(&sim), 0);
}

/* ---- blocks freed by another pair */

enum pair {
    PAIR_TORCH,
    PAIR_SEGMENT,
    PAIR_CUPY,
    PAIR_COUNT
};

static void *take_by(enum pair pair, size_t bytes, CUstream on)
{
    void *ptr = pair == PAIR_TORCH     ? fallow_torch_alloc((ssize_t)bytes, 0, on)
                : pair == PAIR_SEGMENT ? fallow_torch_segment_alloc((ssize_t)bytes, 0, on)
                                       : fallow_cupy_malloc(NULL, bytes, 0);
    assert_non_null(ptr);
    return ptr;
}

static void give_by(enum pair pair, void *ptr, size_t bytes, CUstream on)
{
    if (pair == PAIR_TORCH) {
        fallow_torch_free(ptr, (ssize_t)bytes, 0, on);
    } else if (pair == PAIR_SEGMENT) {
        fallow_torch_segment_free(ptr, (ssize_t)bytes, 0, on);
    } else {
        fallow_cupy_free(NULL, ptr, 0);
    }
}

/* Let later work on `after` wait for earlier work on `before`. */
static void order_streams(CUstream before, CUstream after)
{
    CUevent event = NULL;
    assert_ok(sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_ok(sim.cu.cuEventRecord(event, before));
    assert_ok(sim.cu.cuStreamWaitEvent(after, event, 0));
    assert_ok(sim.cu.cuEventDestroy_v2(event));
}

/* Allocate blocks of up to 32 MiB, in all far beyond the limit. No other stream waits for the
 * stream of a block's last use. A torch pair that frees its own block passes that stream; every
 * other free cannot. */
TEST(every_pair_takes_back_the_blocks_of_every_other)
{
    uint64_t seed = 3;
    struct {
        void *ptr;
        size_t bytes;
        enum pair from;
        CUstream on;
    } blocks[16] = {{NULL, 0, PAIR_TORCH, NULL}};
    CUstream last = NULL;
    assert_ok(sim.cu.cuStreamCreate(&last, CU_STREAM_NON_BLOCKING));
    hold_stderr();
    for (int i = 0; i < 3000; i++) {
        size_t at = flw_test_random(&seed) % 16;
        if (blocks[at].ptr != NULL) {
            enum pair to = (enum pair)(flw_test_random(&seed) % PAIR_COUNT);
            order_streams(blocks[at].on, last);
            use(blocks[at].ptr, blocks[at].bytes, last);
            bool is_named = blocks[at].from == PAIR_TORCH && to == PAIR_TORCH;
            give_by(to, blocks[at].ptr, blocks[at].bytes, is_named ? last : blocks[at].on);
        }
        blocks[at].on = flw_test_random(&seed) % 2 == 0 ? stream : other;
        blocks[at].from = (enum pair)(flw_test_random(&seed) % PAIR_COUNT);
        blocks[at].bytes = (size_t)1 << (flw_test_random(&seed) % 25 + 1);
        blocks[at].ptr = take_by(blocks[at].from, blocks[at].bytes, blocks[at].on);
        use(blocks[at].ptr, blocks[at].bytes, blocks[at].on);
    }
    for (int i = 0; i < 16; i++) {
        give_by(PAIR_CUPY, blocks[i].ptr, blocks[i].bytes, stream);
    }
    assert_string_equal(release_stderr(), "");
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_STREAM).live_count, 0);
    assert_int_equal(stats_of(0, FALLOW_PLUGIN_CONTEXT).live_count, 0);
    assert_int_equal(flw_sim_print_violations(&sim), 0);
}

TEST(blocks_of_another_pair_are_freed_inside_captures)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    void *ordered = take(300 * MIB, stream), *unordered[300];
    for (size_t i = 0; i < 300; i++) {
        unordered[i] = fallow_cupy_malloc(NULL, 1000, 0);
    }
    assert_ok(sim.cu.cuStreamSynchronize(stream));
    use(ordered, 300 * MIB, other);
    fallow_torch_begin_allocate_to_pool(0, graph_id, &sim);
    begin_capture(stream);
    fallow_cupy_free(NULL, ordered, 0);
    for (size_t i = 0; i < 300; i++) { /* an epoch is due */
        fallow_torch_free(unordered[i], 1000, 0, stream);
    }
    assert_ok(sim.cu.cuStreamIsCapturing(stream, &capturing));
    assert_int_equal(capturing, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    end_capture(stream);
    fallow_torch_end_allocate_to_pool(0, graph_id);
    fallow_torch_release_pool(0, graph_id);
    give(take(300 * MIB, stream), 300 * MIB, stream); /* the same memory: the limit is 512 MiB */
    assert_int_equal(flw_sim_print_violations(&sim), 0);
}

TEST(misuse_by_another_pair_is_refused)
{
    char *ptr = take(5000, stream);
    hold_stderr();
    fallow_cupy_free(NULL, ptr + 512, 0);
    assert_one_line_with(release_stderr(), "cannot free");
    fallow_cupy_free(NULL, ptr, 0);
    hold_stderr();
    fallow_torch_segment_free(ptr, 5000, 0, stream);
    assert_one_line_with(release_stderr(), "cannot free");
}

/* ---- threads, limits, losses, forks, the end */

static atomic_uint started;

static void *use_first(void *context)
{
    fallow_pool **seen = context;
    atomic_fetch_add(&started, 1);
    while (atomic_load(&started) < 8) {
        sched_yield();
    }
    for (int i = 0; i < 200; i++) {
        void *ptr = fallow_cupy_malloc(NULL, (size_t)i * 37 + 1, 1);
        if (ptr == NULL) {
            return NULL;
        }
        fallow_cupy_free(NULL, ptr, 1);
    }
    return fallow_plugin_pool(1, FALLOW_PLUGIN_CONTEXT, 0, seen) == FALLOW_OK ? context : NULL;
}

TEST(threads_that_come_first_make_one_pool)
{
    pthread_t threads[8];
    fallow_pool *seen[8] = {NULL};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, use_first, &seen[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &seen[i]);
        assert_ptr_equal(seen[i], seen[0]);
    }
    assert_int_equal(stats_of(1, FALLOW_PLUGIN_CONTEXT).alloc_count, 1600);
}

TEST(a_memory_fraction_is_a_limit)
{
    hold_stderr();
    void *ptr = fallow_torch_alloc(300 * (ssize_t)MIB, 1, NULL); /* a quarter of 1 GiB */
    assert_one_line_with(release_stderr(), "no 314572800 bytes on device 1");
    assert_null(ptr);
    ptr = fallow_torch_alloc(200 * (ssize_t)MIB, 1, NULL);
    assert_non_null(ptr);
    fallow_torch_free(ptr, 200 * (ssize_t)MIB, 1, NULL);
    fallow_torch_memory_fraction(0.5, 1); /* the limit applies immediately to a pool in use */
    ptr = fallow_torch_alloc(300 * (ssize_t)MIB, 1, NULL);
    assert_non_null(ptr);
    fallow_torch_free(ptr, 300 * (ssize_t)MIB, 1, NULL);
    fallow_torch_reset(); /* a held device */
    sim.step(UINT64_MAX);
    fallow_torch_reset();
    fallow_torch_memory_fraction(0.25, 1);
    assert_int_equal(stats_of(1, FALLOW_PLUGIN_STREAM).reserved_bytes, 0);
}

TEST(after_a_lost_context_there_is_a_new_pool)
{
    CUcontext context;
    void *old = fallow_torch_alloc(5000, 1, NULL);
    fallow_pool *lost = pool_of(1, FALLOW_PLUGIN_STREAM);
    assert_non_null(old);
    assert_ok(sim.cu.cuDevicePrimaryCtxRetain(&context, 1));
    assert_int_equal((sim.fail)("cuMemCreate", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1), 1);
    hold_stderr();
    void *ptr = fallow_torch_alloc(200 * (ssize_t)MIB, 1, NULL);
    const char *text = release_stderr();
    assert_null(ptr);
    assert_non_null(strstr(text, "the device is lost"));
    assert_ok(sim.cu.cuDevicePrimaryCtxReset_v2(1));
    ptr = fallow_torch_alloc(200 * (ssize_t)MIB, 1, NULL);
    assert_non_null(ptr);
    assert_ptr_not_equal(pool_of(1, FALLOW_PLUGIN_STREAM), lost);
    hold_stderr();
    fallow_torch_free(old, 5000, 1, NULL);
    text = release_stderr();
    assert_string_equal(text, ""); /* the memory was released with the context */
    fallow_torch_free(ptr, 200 * (ssize_t)MIB, 1, NULL);
}

TEST(the_child_of_a_fork_has_no_pools)
{
    int status = -1;
    void *parents = take(5000, stream);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fallow_pool *pool = NULL;
        give(parents, 5000, stream);
        fallow_cupy_free(NULL, parents, 0);
        fallow_torch_reset();
        bool has_pool = fallow_plugin_pool(0, FALLOW_PLUGIN_STREAM, 0, &pool) == FALLOW_OK;
        _exit(has_pool ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    give(parents, 5000, stream);
}

TEST(the_lines_come_to_an_end)
{
    hold_stderr();
    for (int i = 0; i < 40; i++) {
        assert_null(fallow_torch_alloc(5, 99, stream));
    }
    const char *text = release_stderr();
    const char *last = strstr(text, "fallow: 16 lines are enough: the rest are left out\n");
    assert_non_null(last);
    assert_null(strchr(strchr(last, '\n') + 1, '\n'));
}

/* Allocate, free, capture and release; whatever fails. */
static void run_through_everything(void)
{
    CUgraph graph = NULL;
    void *ptr = fallow_torch_alloc(70000, 1, NULL);
    void *other_ptr = fallow_cupy_malloc(NULL, 70000, 1);
    fallow_torch_free(ptr, 70000, 1, NULL);
    fallow_cupy_free(NULL, other_ptr, 1);
    fallow_torch_begin_allocate_to_pool(1, graph_id, &sim);
    CUresult began = sim.cu.cuStreamBeginCapture_v2(second, CU_STREAM_CAPTURE_MODE_RELAXED);
    ptr = fallow_torch_alloc(70000, 1, second);
    fallow_torch_free(ptr, 70000, 1, second);
    if (began == 0 && sim.cu.cuStreamEndCapture(second, &graph) != 0) {
        (void)sim.cu.cuStreamEndCapture(second, &graph); /* the failure was this call's */
    }
    fallow_torch_end_allocate_to_pool(1, graph_id);
    fallow_torch_release_pool(1, graph_id);
}

/* Fail each call with an error that concerns only the call: pools stay, with their memory. */
static void fail_each_call(CUresult error)
{
    fallow_pool *pool = pool_of(1, FALLOW_PLUGIN_STREAM);
    fallow_pool *context_pool = pool_of(1, FALLOW_PLUGIN_CONTEXT);
    uint64_t failed = 0;
    for (uint64_t n = 1; n < 150; n++) {
        assert_int_equal((sim.fail)(NULL, n, (int)error, 0), 1);
        uint64_t before = flw_sim_read_ledger(&sim).call_count;
        run_through_everything();
        bool is_spent = flw_sim_read_ledger(&sim).call_count - before >= n;
        (void)(sim.fail)(NULL, 0, 0, 0);
        void *ptr = fallow_torch_alloc(70000, 1, NULL);
        void *other_ptr = fallow_cupy_malloc(NULL, 70000, 1);
        assert_non_null(ptr);
        assert_non_null(other_ptr);
        assert_ptr_equal(pool_of(1, FALLOW_PLUGIN_STREAM), pool);
        assert_ptr_equal(pool_of(1, FALLOW_PLUGIN_CONTEXT), context_pool);
        fallow_torch_free(ptr, 70000, 1, NULL);
        fallow_cupy_free(NULL, other_ptr, 1);
        failed += is_spent;
        if (!is_spent) {
            break;
        }
    }
    assert_in_range(failed, 12, 148); /* the last run had fewer calls than that */
}

TEST(any_driver_call_may_fail_once)
{
    static const CUresult errors[] = {CUDA_ERROR_OUT_OF_MEMORY,    CUDA_ERROR_NOT_PERMITTED,
                                      CUDA_ERROR_NOT_SUPPORTED,    CUDA_ERROR_INVALID_VALUE,
                                      CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_UNKNOWN};
    CUcontext context;
    assert_ok(sim.cu.cuDevicePrimaryCtxRetain(&context, 1));
    assert_ok(sim.cu.cuCtxPushCurrent_v2(context));
    assert_ok(sim.cu.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    run_through_everything();
    /* A pool of a context that was reset is detected by a query. */
    fallow_cupy_free(NULL, fallow_cupy_malloc(NULL, 3 * MIB, 1), 1);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        fail_each_call(errors[i]);
    }
    assert_ok(sim.cu.cuStreamDestroy_v2(second));
    assert_ok(sim.cu.cuCtxSetCurrent(home));
    assert_int_equal(flw_sim_print_violations(&sim), 0);
}

static void *kept_for_exit;

static void free_at_exit(void)
{
    fallow_torch_free(kept_for_exit, 5000, 0, stream);
    (void)fallow_torch_alloc(5000, 0, stream);
    destroy_pools();
}

TEST(frees_at_exit_are_safe)
{
    kept_for_exit = take(5000, stream);
    assert_int_equal(atexit(free_at_exit), 0);
    assert_int_equal(flw_sim_print_violations(&sim), 0);
}

FLW_TEST_MAIN(begin_world, NULL)
