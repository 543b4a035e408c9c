/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the simulated driver's own tests: scheduler, checker and accounts behave as documented in
 * fallow/simcuda.h. Does not: compare it with CUDA; the conformance cases do. */
#include "unit/simcuda/test_simcuda.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(unordered_writes_are_a_race_under_every_schedule)
{
    for (int schedule = FLW_SIM_RANDOM; schedule <= FLW_SIM_HELD; schedule++) {
        begin(1, (flw_sim_schedule)schedule, false);
        CUdeviceptr at;
        ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 4096));
        touch(make_stream(), at, 4096, true);
        touch(make_stream(), at + 100, 8, true);
        ASSERT_OK(sim.cu.cuCtxSynchronize());
        assert_int_equal(violations(), 1);
        assert_non_null(strstr(sim.violation(0), "race"));
    }
}

TEST(a_wait_on_an_event_orders_and_a_later_record_does_not)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(seed, FLW_SIM_RANDOM, false);
        CUstream a = make_stream();
        CUstream b = make_stream();
        CUevent event = make_event();
        CUdeviceptr at;
        ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 4096));
        touch(a, at, 4096, true);
        ASSERT_OK(sim.cu.cuEventRecord(event, a));
        ASSERT_OK(sim.cu.cuStreamWaitEvent(b, event, 0));
        touch(b, at, 4096, true);
        ASSERT_OK(sim.cu.cuCtxSynchronize());
        assert_int_equal(violations(), 0);
        ASSERT_OK(sim.cu.cuEventRecord(event, b));
        ASSERT_OK(sim.cu.cuStreamWaitEvent(a, event, 0));
        touch(b, at, 64, true); /* after the record: the wait does not cover it */
        touch(a, at, 64, true);
        ASSERT_OK(sim.cu.cuCtxSynchronize());
        assert_int_equal(violations(), 1);
    }
}

TEST(readers_may_overlap_each_other_but_not_a_writer)
{
    begin(1, FLW_SIM_CLOCK, false);
    CUstream a = make_stream();
    CUstream b = make_stream();
    CUstream c = make_stream();
    CUdeviceptr at;
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 4096));
    touch(a, at, 4096, false);
    touch(b, at, 4096, false);
    assert_int_equal(violations(), 0);
    CUevent event = make_event();
    ASSERT_OK(sim.cu.cuEventRecord(event, b));
    ASSERT_OK(sim.cu.cuStreamWaitEvent(c, event, 0));
    touch(c, at, 4096, true); /* ordered after b's read, not after a's */
    assert_int_equal(violations(), 1);
}

TEST(what_the_host_saw_complete_orders_what_it_gives_later)
{
    begin(1, FLW_SIM_CLOCK, false);
    CUstream a = make_stream();
    CUevent event = make_event();
    CUdeviceptr at;
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 4096));
    touch(a, at, 4096, true);
    ASSERT_OK(sim.cu.cuEventRecord(event, a));
    ASSERT_CU(sim.cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    sim.advance(1000);
    ASSERT_OK(sim.cu.cuEventQuery(event));
    touch(make_stream(), at, 4096, true);
    assert_int_equal(violations(), 0);
}

TEST(the_legacy_stream_orders_blocking_streams_only)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin(seed, FLW_SIM_RANDOM, false);
        CUstream blocking;
        ASSERT_OK(sim.cu.cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
        CUdeviceptr at;
        ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 4096));
        touch(blocking, at, 4096, true);
        touch(NULL, at, 4096, true);
        touch(CU_STREAM_PER_THREAD, at, 4096, true);
        ASSERT_OK(sim.cu.cuStreamSynchronize(CU_STREAM_PER_THREAD));
        assert_int_equal(violations(), 0);
        touch(NULL, at, 4096, true);
        touch(make_stream(), at, 4096, true);
        ASSERT_OK(sim.cu.cuCtxSynchronize());
        assert_int_equal(violations(), 1);
    }
}

TEST(a_full_queue_runs_the_scheduler_and_nothing_else_does)
{
    flw_sim_config config = flw_sim_config_default(1);
    config.schedule = FLW_SIM_HELD;
    config.queue_depth = 16;
    flw_sim_begin(&sim, &config);
    CUstream stream = make_stream();
    CUevent event = make_event();
    ASSERT_OK(sim.cu.cuEventRecord(event, stream));
    for (int i = 0; i < 15; i++) {
        ASSERT_OK(sim.touch(stream, NULL, 0));
    }
    ASSERT_CU(sim.cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    ASSERT_OK(sim.touch(stream, NULL, 0)); /* the 17th: blocks until one is done */
    ASSERT_OK(sim.cu.cuEventQuery(event));
    assert_int_equal(sim.step(100), 16);
}

static int host_calls;
static CUresult from_inside;

static void CUDA_CB count_call(void *argument)
{
    CUcontext context;
    host_calls += *(int *)argument;
    from_inside = sim.cu.cuCtxGetCurrent(&context);
}

TEST(host_functions_run_in_order_and_may_not_call_the_driver)
{
    for (int schedule = FLW_SIM_RANDOM; schedule <= FLW_SIM_HELD; schedule++) {
        begin(3, (flw_sim_schedule)schedule, false);
        CUstream stream = make_stream();
        int one = 1;
        host_calls = 0;
        ASSERT_OK(sim.cu.cuLaunchHostFunc(stream, count_call, &one));
        ASSERT_OK(sim.cu.cuLaunchHostFunc(stream, count_call, &one));
        ASSERT_OK(sim.cu.cuStreamSynchronize(stream));
        assert_int_equal(host_calls, 2);
        ASSERT_CU(from_inside, CUDA_ERROR_NOT_PERMITTED);
    }
}

struct gate {
    CUcontext context;
    CUstream stream;
    sem_t closed, open;
};

static void CUDA_CB stay_closed(void *argument)
{
    struct gate *gate = argument;
    sem_post(&gate->closed);
    sem_wait(&gate->open);
}

static void *synchronize(void *argument)
{
    struct gate *gate = argument;
    bool is_done = sim.cu.cuCtxSetCurrent(gate->context) == CUDA_SUCCESS &&
                   sim.cu.cuStreamSynchronize(gate->stream) == CUDA_SUCCESS;
    return is_done ? gate : NULL;
}

TEST(work_behind_a_host_function_waits_for_its_return)
{
    for (int schedule = FLW_SIM_RANDOM; schedule <= FLW_SIM_HELD; schedule++) {
        struct gate gate;
        pthread_t waiter;
        void *result = NULL;
        begin(4, (flw_sim_schedule)schedule, false);
        gate.stream = make_stream();
        ASSERT_OK(sim.cu.cuCtxGetCurrent(&gate.context));
        sem_init(&gate.closed, 0, 0);
        sem_init(&gate.open, 0, 0);
        ASSERT_OK(sim.cu.cuLaunchHostFunc(gate.stream, stay_closed, &gate));
        assert_int_equal(pthread_create(&waiter, NULL, synchronize, &gate), 0);
        sem_wait(&gate.closed);
        CUevent event = make_event();
        ASSERT_OK(sim.cu.cuEventRecord(event, gate.stream));
        ASSERT_CU(sim.cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
        ASSERT_CU(sim.cu.cuStreamQuery(gate.stream), CUDA_ERROR_NOT_READY);
        sem_post(&gate.open);
        pthread_join(waiter, &result);
        assert_ptr_equal(result, &gate);
        ASSERT_OK(sim.cu.cuEventSynchronize(event));
    }
}

TEST(an_unsafe_call_kills_a_capture_unless_the_thread_is_relaxed)
{
    begin(1, FLW_SIM_RANDOM, false);
    CUstream stream = make_stream();
    CUdeviceptr at;
    CUgraph graph;
    ASSERT_OK(sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASSERT_CU(sim.cu.cuMemAlloc_v2(&at, 512), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ASSERT_CU(sim.cu.cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ASSERT_OK(sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ASSERT_OK(sim.cu.cuThreadExchangeStreamCaptureMode(&mode));
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 512));
    ASSERT_OK(sim.cu.cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    ASSERT_OK(sim.cu.cuStreamEndCapture(stream, &graph));
    ASSERT_OK(sim.cu.cuGraphDestroy(graph));
}

TEST(branches_of_a_graph_that_share_memory_are_a_race)
{
    begin(1, FLW_SIM_RANDOM, false);
    CUstream a = make_stream();
    CUstream b = make_stream();
    CUevent fork = make_event();
    CUevent join = make_event();
    CUdeviceptr at;
    CUgraph graph;
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 4096));
    ASSERT_OK(sim.cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    touch(a, at, 512, true);
    ASSERT_OK(sim.cu.cuEventRecord(fork, a));
    ASSERT_OK(sim.cu.cuStreamWaitEvent(b, fork, 0));
    touch(b, at, 512, true); /* after the fork: ordered */
    assert_int_equal(violations(), 0);
    touch(a, at, 512, true); /* beside b's */
    assert_int_equal(violations(), 1);
    ASSERT_CU(sim.cu.cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    ASSERT_OK(sim.cu.cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    touch(a, at, 512, true);
    ASSERT_OK(sim.cu.cuEventRecord(fork, a));
    ASSERT_OK(sim.cu.cuStreamWaitEvent(b, fork, 0));
    touch(b, at, 512, true);
    ASSERT_OK(sim.cu.cuEventRecord(join, b));
    ASSERT_OK(sim.cu.cuStreamWaitEvent(a, join, 0));
    touch(a, at, 512, true);
    ASSERT_OK(sim.cu.cuStreamEndCapture(a, &graph));
    CUgraphExec executable;
    ASSERT_OK(sim.cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
    ASSERT_OK(sim.cu.cuGraphDestroy(graph));
    ASSERT_OK(sim.cu.cuGraphLaunch(executable, a));
    ASSERT_OK(sim.cu.cuStreamSynchronize(a));
    ASSERT_OK(sim.cu.cuGraphExecDestroy(executable));
    assert_int_equal(violations(), 1);
}

static void add_one(flw_sim_launch *launch, void **parameters)
{
    CUdeviceptr at = *(CUdeviceptr *)parameters[0];
    unsigned count = *(unsigned *)parameters[1];
    for (unsigned i = 0; i < count; i++) {
        unsigned value;
        sim.load(launch, "values", &value, at + 4ull * i, sizeof value);
        value++;
        sim.store(launch, "values", at + 4ull * i, &value, sizeof value);
    }
}

TEST(a_kernel_runs_in_stream_order_and_its_unwritten_loads_are_named)
{
    sim.register_twin("add_one", add_one);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        begin(seed, FLW_SIM_RANDOM, true);
        CUmodule module;
        CUfunction function;
        CUdeviceptr at;
        unsigned count = 64;
        void *parameters[] = {&at, &count};
        CUstream stream = make_stream();
        ASSERT_OK(sim.cu.cuModuleLoadData(&module, "any image"));
        ASSERT_OK(sim.cu.cuModuleGetFunction(&function, module, "add_one"));
        ASSERT_CU(sim.cu.cuModuleGetFunction(&function, module, "absent"), CUDA_ERROR_NOT_FOUND);
        ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 512));
        ASSERT_OK(sim.cu.cuMemsetD32Async(at, 41, 64, stream));
        ASSERT_OK(sim.cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
        unsigned values[64];
        ASSERT_OK(sim.cu.cuMemcpyDtoHAsync_v2(values, at, sizeof values, stream));
        assert_int_equal(values[0], 42);
        assert_int_equal(values[63], 42);
        assert_int_equal(violations(), 0);
        sim.name(at, 512, "region 'values'");
        sim.forget(at + 8, 4);
        ASSERT_OK(sim.cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
        ASSERT_OK(sim.cu.cuStreamSynchronize(stream));
        assert_int_equal(violations(), 1);
        assert_non_null(strstr(sim.violation(0), "kernel add_one, argument 'values'"));
        assert_non_null(strstr(sim.violation(0), "region 'values' + 8"));
    }
}

TEST(pool_memory_is_reused_in_stream_order_and_guarded_after_its_free)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        begin(seed, FLW_SIM_RANDOM, false);
        CUstream a = make_stream();
        CUdeviceptr first;
        CUdeviceptr second;
        ASSERT_OK(sim.cu.cuMemAllocAsync(&first, 1000, a));
        touch(a, first, 1000, true);
        ASSERT_OK(sim.cu.cuMemFreeAsync(first, a));
        ASSERT_OK(sim.cu.cuMemAllocAsync(&second, 1000, a));
        assert_int_equal(first, second);
        touch(a, second, 1000, true);
        ASSERT_OK(sim.cu.cuMemFreeAsync(second, a));
        ASSERT_OK(sim.cu.cuStreamSynchronize(a));
        assert_int_equal(violations(), 0);
        assert_int_equal(flw_sim_read_ledger(&sim).given_bytes, 0); /* threshold 0 */
        ASSERT_OK(sim.cu.cuMemAllocAsync(&first, 1000, a));
        ASSERT_OK(sim.cu.cuMemFreeAsync(first, a));
        touch(a, first, 8, true);
        sim.step(100);
        assert_int_equal(violations(), 1);
        assert_non_null(strstr(sim.violation(0), "use after free"));
    }
}

TEST(planned_faults_strike_the_nth_call_and_sticky_ones_stay)
{
    begin(1, FLW_SIM_RANDOM, false);
    CUdeviceptr at;
    assert_int_equal((sim.fail)("cuMemAlloc_v2", 2, CUDA_ERROR_OUT_OF_MEMORY, 0), 1);
    assert_int_equal((sim.fail)("cuNothing", 1, CUDA_ERROR_OUT_OF_MEMORY, 0), 0);
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 512));
    ASSERT_CU(sim.cu.cuMemAlloc_v2(&at, 512), CUDA_ERROR_OUT_OF_MEMORY);
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 512));
    (sim.fail)(NULL, 1, CUDA_ERROR_LAUNCH_FAILED, 1);
    ASSERT_CU(sim.cu.cuMemFree_v2(at), CUDA_ERROR_LAUNCH_FAILED);
    ASSERT_CU(sim.cu.cuMemFree_v2(at), CUDA_ERROR_LAUNCH_FAILED);
    ASSERT_CU(sim.cu.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
}

TEST(a_driver_may_want_a_context_where_none_is_needed)
{
    flw_sim_config config = flw_sim_config_default(1);
    for (config.wants_context = 0; config.wants_context < 2; config.wants_context++) {
        CUcontext context;
        CUdeviceptr range;
        int expected = config.wants_context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
        flw_sim_begin(&sim, &config);
        CUevent event = make_event();
        ASSERT_OK(sim.cu.cuCtxPopCurrent_v2(&context));
        ASSERT_CU(sim.cu.cuMemAddressReserve(&range, 2 << 20, 0, 0, 0), expected);
        ASSERT_CU(sim.cu.cuEventQuery(event), expected);
        ASSERT_OK(sim.cu.cuCtxPushCurrent_v2(context));
        ASSERT_OK(sim.cu.cuMemAddressReserve(&range, 2 << 20, 0, 0, 0));
        ASSERT_OK(sim.cu.cuEventQuery(event));
    }
}

TEST(the_clock_completes_work_after_its_lag_and_counts_waits)
{
    begin(1, FLW_SIM_CLOCK, false);
    CUstream a = make_stream();
    CUstream b = make_stream();
    CUevent event = make_event();
    ASSERT_OK(sim.touch(a, NULL, 0));
    ASSERT_OK(sim.cu.cuEventRecord(event, a));
    sim.advance(600);
    ASSERT_CU(sim.cu.cuStreamQuery(a), CUDA_ERROR_NOT_READY);
    ASSERT_OK(sim.cu.cuStreamWaitEvent(b, event, 0));
    assert_int_equal(flw_sim_read_ledger(&sim).stream_wait_ns, 400);
    ASSERT_OK(sim.cu.cuStreamSynchronize(b));
    assert_int_equal(flw_sim_read_ledger(&sim).clock_ns, 1000);
    ASSERT_OK(sim.cu.cuStreamQuery(a));
}

static void expect_host_waits(uint64_t count, uint64_t ns)
{
    flw_sim_ledger ledger = flw_sim_read_ledger(&sim);
    assert_int_equal(ledger.host_wait_count, count);
    assert_int_equal(ledger.host_wait_ns, ns);
}

TEST(the_ledger_counts_where_the_host_stops)
{
    CUdeviceptr memory;
    unsigned word;
    begin(1, FLW_SIM_CLOCK, false);
    CUstream a = make_stream();
    CUstream b = make_stream();
    CUevent event = make_event();
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&memory, 4096));
    ASSERT_OK(sim.cu.cuCtxSynchronize()); /* nothing is under way */
    expect_host_waits(0, 0);
    ASSERT_OK(sim.touch(a, NULL, 0));
    ASSERT_OK(sim.cu.cuEventRecord(event, a));
    sim.advance(300);
    ASSERT_OK(sim.cu.cuEventSynchronize(event));
    expect_host_waits(1, 700);
    ASSERT_OK(sim.cu.cuEventSynchronize(event));
    ASSERT_OK(sim.cu.cuStreamSynchronize(a));
    expect_host_waits(1, 700); /* it is done */
    ASSERT_OK(sim.touch(a, NULL, 0));
    ASSERT_OK(sim.touch(b, NULL, 0));
    ASSERT_OK(sim.cu.cuStreamSynchronize(b));
    expect_host_waits(2, 1700);
    ASSERT_OK(sim.touch(a, NULL, 0));
    ASSERT_OK(sim.cu.cuMemFree_v2(memory)); /* waits for all of the device */
    expect_host_waits(3, 2700);
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&memory, 4096));
    ASSERT_OK(sim.touch(a, NULL, 0));
    ASSERT_OK(sim.cu.cuMemcpyDtoH_v2(&word, memory, sizeof word));
    assert_int_equal(flw_sim_read_ledger(&sim).host_wait_count, 4);
    sim.advance(10000);
    uint64_t waited_ns = flw_sim_read_ledger(&sim).host_wait_ns;
    ASSERT_OK(sim.touch(b, NULL, 0));
    while (sim.cu.cuStreamQuery(b) == CUDA_ERROR_NOT_READY) {
    }
    assert_int_equal(flw_sim_read_ledger(&sim).host_wait_count, 5); /* all the questions are one */
    assert_true(flw_sim_read_ledger(&sim).host_wait_ns >= waited_ns + 1000);
}

/* An allocator that queries the oldest event at each request is not a waiting host. */
TEST(questions_with_work_or_time_between_them_do_not_move_the_clock)
{
    for (unsigned is_time = 0; is_time < 2; is_time++) {
        begin(1, FLW_SIM_CLOCK, false);
        CUstream a = make_stream();
        CUstream b = make_stream();
        ASSERT_OK(sim.touch(a, NULL, 0));
        for (unsigned i = 0; i < 100; i++) {
            ASSERT_CU(sim.cu.cuStreamQuery(a), CUDA_ERROR_NOT_READY);
            if (is_time) {
                sim.advance(1);
            } else {
                ASSERT_OK(sim.touch(b, NULL, 0));
            }
        }
        assert_int_equal(flw_sim_read_ledger(&sim).clock_ns, is_time ? 100 : 0);
        expect_host_waits(0, 0);
    }
}

TEST(a_host_that_asks_on_and_on_lets_the_clock_move)
{
    begin(1, FLW_SIM_CLOCK, false);
    CUstream stream = make_stream();
    CUevent event = make_event();
    CUevent other = make_event();
    ASSERT_OK(sim.touch(stream, NULL, 0));
    ASSERT_OK(sim.cu.cuEventRecord(event, stream));
    ASSERT_OK(sim.cu.cuEventRecord(other, stream));
    for (int i = 0; i < 1000; i++) { /* in turns, as a pool polls the streams: no time passes */
        ASSERT_CU(sim.cu.cuEventQuery(event), CUDA_ERROR_NOT_READY);
        ASSERT_CU(sim.cu.cuEventQuery(other), CUDA_ERROR_NOT_READY);
    }
    assert_int_equal(flw_sim_read_ledger(&sim).clock_ns, 0);
    int asked = 1;
    while (asked < 100 && sim.cu.cuEventQuery(event) == CUDA_ERROR_NOT_READY) {
        asked++;
    }
    assert_in_range(asked, 33, 50);
    assert_true(flw_sim_read_ledger(&sim).clock_ns >= 1000);
}

TEST(a_child_does_not_count_the_calls_of_its_parent)
{
    begin(1, FLW_SIM_RANDOM, false);
    void *entry = flw_driver_entry(&sim.cu, "cuArray3DCreate_v2"); /* not simulated */
    CUresult (*absent)(void) = NULL;
    assert_non_null(entry);
    memcpy(&absent, &entry, sizeof absent);
    ASSERT_CU(absent(), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(sim.call_count("cuArray3DCreate_v2"), 1);
    pid_t child = fork();
    if (child == 0) {
        _exit(sim.call_count("cuArray3DCreate_v2") == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(sim.call_count("cuArray3DCreate_v2"), 1);
}

/* ---- forks inside of calls */

static pid_t forked; /* -1: not yet; 0: this is the child */

static void fork_once(void *argument)
{
    (void)argument;
    if (forked < 0) {
        forked = fork();
    }
}

static void fork_in_kernel(flw_sim_launch *launch, void **parameters)
{
    (void)launch;
    fork_once(parameters);
}

/* The child returns into the call in which it was forked, and has no driver afterwards. */
static void expect_return_in_both(CUstream stream, CUresult result)
{
    if (forked == 0) {
        bool is_refused = sim.cu.cuStreamSynchronize(stream) == CUDA_ERROR_NOT_INITIALIZED &&
                          sim.cu.cuInit(0) == CUDA_ERROR_NOT_INITIALIZED;
        _exit(result == CUDA_SUCCESS && is_refused ? 0 : 1);
    }
    int status = -1;
    assert_true(forked > 0);
    assert_int_equal(waitpid(forked, &status, 0), forked);
    assert_int_equal(status, 0);
    ASSERT_OK(result);
    ASSERT_OK(sim.cu.cuStreamSynchronize(stream));
}

TEST(a_fork_in_a_host_function_or_a_kernel_returns_in_both)
{
    sim.register_twin("fork_in_kernel", fork_in_kernel);
    for (int schedule = FLW_SIM_RANDOM; schedule <= FLW_SIM_CLOCK; schedule++) {
        begin(1, (flw_sim_schedule)schedule, true);
        CUmodule module;
        CUfunction function;
        CUstream stream = make_stream();
        ASSERT_OK(sim.cu.cuModuleLoadData(&module, "any image"));
        ASSERT_OK(sim.cu.cuModuleGetFunction(&function, module, "fork_in_kernel"));
        forked = -1;
        ASSERT_OK(sim.cu.cuLaunchHostFunc(stream, fork_once, NULL));
        expect_return_in_both(stream, sim.cu.cuStreamSynchronize(stream));
        forked = -1;
        CUresult result = sim.cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
        if (result == CUDA_SUCCESS && forked != 0) {
            result = sim.cu.cuStreamSynchronize(stream);
        }
        expect_return_in_both(stream, result);
    }
}

FLW_TEST_MAIN(open_driver, close_driver)
