/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the simulated driver's own tests: that its scheduler, its checker and its accounts do what
 * fallow/simcuda.h says. Does not: compare it with CUDA; the conformance cases do.
 */
#include "support/test.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/sim.h"

static struct flw_sim sim;

#define ASSERT_CU(call, expected) assert_int_equal((int)(call), (int)(expected))
#define ASSERT_OK(call)           ASSERT_CU(call, CUDA_SUCCESS)

#define HANDLE_BYTES (2u << 20)

static void begin(uint64_t seed, flw_sim_schedule schedule, bool backed)
{
    flw_sim_config config = flw_sim_config_default(seed);
    config.schedule = schedule;
    config.lag_ns = 1000;
    config.check = 1;
    config.backed = backed;
    flw_sim_begin(&sim, &config);
}

static uint64_t violations(void)
{
    return flw_sim_read_ledger(&sim).violation_count;
}

static CUstream make_stream(void)
{
    CUstream stream;
    ASSERT_OK(sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUevent make_event(void)
{
    CUevent event;
    ASSERT_OK(sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static void touch(CUstream stream, CUdeviceptr at, uint64_t bytes, bool is_write)
{
    flw_sim_range range = {.address = at, .bytes = bytes, .is_write = is_write};
    ASSERT_OK(sim.touch(stream, &range, 1));
}

static CUdeviceptr map_one(uint64_t bytes, CUmemGenericAllocationHandle *handle)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;
    ASSERT_OK(sim.cu.cuMemAddressReserve(&at, bytes, 0, 0, 0));
    ASSERT_OK(sim.cu.cuMemCreate(handle, bytes, &properties, 0));
    ASSERT_OK(sim.cu.cuMemMap(at, bytes, 0, *handle, 0));
    ASSERT_OK(sim.cu.cuMemSetAccess(at, bytes, &access, 1));
    return at;
}

static void unordered_writes_are_a_race_under_every_schedule(void **state)
{
    (void)state;
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

static void a_wait_on_an_event_orders_and_a_later_record_does_not(void **state)
{
    (void)state;
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

static void readers_may_overlap_each_other_but_not_a_writer(void **state)
{
    (void)state;
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

static void what_the_host_saw_complete_orders_what_it_gives_later(void **state)
{
    (void)state;
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

static void the_legacy_stream_orders_blocking_streams_only(void **state)
{
    (void)state;
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

static void unmapping_under_unfinished_work_is_found(void **state)
{
    (void)state;
    for (int schedule = FLW_SIM_CLOCK; schedule <= FLW_SIM_HELD; schedule++) {
        begin(1, (flw_sim_schedule)schedule, false);
        CUmemGenericAllocationHandle handle;
        CUdeviceptr at = map_one(HANDLE_BYTES, &handle);
        CUstream stream = make_stream();
        touch(stream, at, 4096, true);
        ASSERT_OK(sim.cu.cuStreamSynchronize(stream));
        ASSERT_OK(sim.cu.cuMemUnmap(at, HANDLE_BYTES));
        assert_int_equal(violations(), 0);
        at = map_one(HANDLE_BYTES, &handle);
        touch(stream, at, 4096, true);
        ASSERT_OK(sim.cu.cuMemUnmap(at, HANDLE_BYTES));
        assert_int_equal(violations(), 1);
        assert_non_null(strstr(sim.violation(0), "unfinished"));
    }
}

static void touching_what_is_not_mapped_is_found_and_sticks(void **state)
{
    (void)state;
    begin(1, FLW_SIM_CLOCK, false);
    CUdeviceptr at;
    ASSERT_OK(sim.cu.cuMemAddressReserve(&at, HANDLE_BYTES, 0, 0, 0));
    CUstream stream = make_stream();
    touch(stream, at, 64, false);
    assert_int_equal(violations(), 1);
    ASSERT_CU(sim.cu.cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    ASSERT_CU(sim.cu.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void a_handle_keeps_its_contents_when_it_moves(void **state)
{
    (void)state;
    begin(1, FLW_SIM_RANDOM, true);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = map_one(HANDLE_BYTES, &handle);
    ASSERT_OK(sim.cu.cuMemsetD8_v2(at, 0x5a, 4096));
    ASSERT_OK(sim.cu.cuCtxSynchronize());
    ASSERT_OK(sim.cu.cuMemUnmap(at, HANDLE_BYTES));
    CUdeviceptr other;
    ASSERT_OK(sim.cu.cuMemAddressReserve(&other, HANDLE_BYTES, 0, 0, 0));
    ASSERT_OK(sim.cu.cuMemMap(other, HANDLE_BYTES, 0, handle, 0));
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    ASSERT_OK(sim.cu.cuMemSetAccess(other, HANDLE_BYTES, &access, 1));
    unsigned char bytes[4096];
    ASSERT_OK(sim.cu.cuMemcpyDtoH_v2(bytes, other, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(bytes[i], 0x5a);
    }
    assert_int_equal(violations(), 0);
    ASSERT_OK(sim.cu.cuMemcpyDtoH_v2(bytes, other + 8192, 16));
    assert_int_equal(violations(), 1);
    assert_non_null(strstr(sim.violation(0), "unwritten"));
}

static void an_exported_handle_imports_as_the_same_memory(void **state)
{
    (void)state;
    begin(1, FLW_SIM_RANDOM, true);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = map_one(HANDLE_BYTES, &handle);
    int file = -1;
    ASSERT_OK(sim.cu.cuMemExportToShareableHandle(&file, handle,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUmemGenericAllocationHandle imported;
    ASSERT_OK(sim.cu.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)file,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    assert_int_equal(flw_sim_read_ledger(&sim).given_bytes, HANDLE_BYTES);
    ASSERT_OK(sim.cu.cuMemUnmap(at, HANDLE_BYTES));
    ASSERT_OK(sim.cu.cuMemRelease(handle));
    assert_int_equal(flw_sim_read_ledger(&sim).given_bytes, HANDLE_BYTES);
    ASSERT_OK(sim.cu.cuMemRelease(imported));
    assert_int_equal(flw_sim_read_ledger(&sim).given_bytes, 0);
}

/* In the child: import, look, change. The exit status says what went wrong. */
static int use_in_child(int file)
{
    CUmemGenericAllocationHandle imported;
    if (sim.cu.cuInit(0) != CUDA_ERROR_NOT_INITIALIZED) {
        return 1; /* a forked child must not inherit the driver */
    }
    begin(2, FLW_SIM_RANDOM, true);
    if (sim.cu.cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)file,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) !=
        CUDA_SUCCESS) {
        return 2;
    }
    CUdeviceptr at;
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    if (sim.cu.cuMemAddressReserve(&at, HANDLE_BYTES, 0, 0, 0) != CUDA_SUCCESS ||
        sim.cu.cuMemMap(at, HANDLE_BYTES, 0, imported, 0) != CUDA_SUCCESS ||
        sim.cu.cuMemSetAccess(at, HANDLE_BYTES, &access, 1) != CUDA_SUCCESS) {
        return 3;
    }
    unsigned char byte = 0;
    if (sim.cu.cuMemcpyDtoH_v2(&byte, at + 77, 1) != CUDA_SUCCESS || byte != 0x11) {
        return 4;
    }
    sim.cu.cuMemsetD8_v2(at + 77, 0x22, 1);
    sim.cu.cuCtxSynchronize();
    return flw_sim_read_ledger(&sim).given_bytes == 0 ? 0 : 5; /* the exporter pays */
}

static void another_process_sees_the_bytes_of_an_exported_handle(void **state)
{
    (void)state;
    begin(1, FLW_SIM_RANDOM, true);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = map_one(HANDLE_BYTES, &handle);
    ASSERT_OK(sim.cu.cuMemsetD8_v2(at + 77, 0x11, 1));
    ASSERT_OK(sim.cu.cuCtxSynchronize());
    int file = -1;
    ASSERT_OK(sim.cu.cuMemExportToShareableHandle(&file, handle,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    pid_t child = fork();
    if (child == 0) {
        _exit(use_in_child(file));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    unsigned char byte = 0;
    ASSERT_OK(sim.cu.cuMemcpyDtoH_v2(&byte, at + 77, 1));
    assert_int_equal(byte, 0x22);
    close(file);
}

static void dead_handles_and_addresses_come_back_at_once(void **state)
{
    (void)state;
    begin(1, FLW_SIM_RANDOM, false);
    CUstream stream = make_stream();
    unsigned long long first;
    unsigned long long second;
    ASSERT_OK(sim.cu.cuStreamGetId(stream, &first));
    ASSERT_OK(sim.cu.cuStreamDestroy_v2(stream));
    CUstream again = make_stream();
    ASSERT_OK(sim.cu.cuStreamGetId(again, &second));
    assert_ptr_equal(stream, again);
    assert_int_not_equal(first, second);
    CUdeviceptr at;
    CUdeviceptr next;
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&at, 10000));
    ASSERT_OK(sim.cu.cuMemFree_v2(at));
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&next, 10000));
    assert_int_equal(at, next);
    ASSERT_CU(sim.cu.cuMemFree_v2(next + 512), CUDA_ERROR_INVALID_VALUE);
}

static void a_full_queue_runs_the_scheduler_and_nothing_else_does(void **state)
{
    (void)state;
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

static void host_functions_run_in_order_and_may_not_call_the_driver(void **state)
{
    (void)state;
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

static void an_unsafe_call_kills_a_capture_unless_the_thread_is_relaxed(void **state)
{
    (void)state;
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

static void branches_of_a_graph_that_share_memory_are_a_race(void **state)
{
    (void)state;
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

static void a_kernel_runs_in_stream_order_and_its_unwritten_loads_are_named(void **state)
{
    (void)state;
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

static void pool_memory_is_reused_in_stream_order_and_guarded_after_its_free(void **state)
{
    (void)state;
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

static void planned_faults_strike_the_nth_call_and_sticky_ones_stay(void **state)
{
    (void)state;
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

static void the_clock_completes_work_after_its_lag_and_counts_waits(void **state)
{
    (void)state;
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

static void a_host_that_asks_on_and_on_lets_the_clock_move(void **state)
{
    (void)state;
    begin(1, FLW_SIM_CLOCK, false);
    CUstream stream = make_stream();
    CUevent event = make_event();
    CUevent other = make_event();
    ASSERT_OK(sim.touch(stream, NULL, 0));
    ASSERT_OK(sim.cu.cuEventRecord(event, stream));
    ASSERT_OK(sim.cu.cuEventRecord(other, stream));
    for (int i = 0; i < 1000; i++) { /* in turns, as a pool polls its streams: no time passes */
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

static void what_is_given_is_listed_by_address(void **state)
{
    (void)state;
    begin(1, FLW_SIM_RANDOM, false);
    assert_int_equal(sim.get_extents(0, NULL, 0), 0);
    CUmemGenericAllocationHandle handle;
    CUmemGenericAllocationHandle idle;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUdeviceptr plain, at;
    ASSERT_OK(sim.cu.cuMemAlloc_v2(&plain, 1000));
    ASSERT_OK(sim.cu.cuMemAddressReserve(&at, 5ull * HANDLE_BYTES, 0, 0, 0));
    ASSERT_OK(sim.cu.cuMemCreate(&handle, HANDLE_BYTES, &properties, 0));
    ASSERT_OK(
        sim.cu.cuMemCreate(&idle, HANDLE_BYTES, &properties, 0)); /* stays without an address */
    ASSERT_OK(sim.cu.cuMemMap(at, HANDLE_BYTES, 0, handle, 0));   /* two side by side, a gap, one */
    ASSERT_OK(sim.cu.cuMemMap(at + HANDLE_BYTES, HANDLE_BYTES, 0, handle, 0));
    ASSERT_OK(sim.cu.cuMemMap(at + 3ull * HANDLE_BYTES, HANDLE_BYTES, 0, handle, 0));
    flw_sim_extent extents[4] = {0};
    assert_int_equal(sim.get_extents(0, extents, 4), 3);
    unsigned plain_at = plain < at ? 0 : 2;
    unsigned first_at = plain < at ? 1 : 0;
    assert_int_equal(extents[plain_at].address, plain);
    assert_int_equal(extents[plain_at].bytes, 1024);
    assert_int_equal(extents[plain_at].kind, FLW_SIM_EXTENT_ALLOCATION);
    assert_int_equal(extents[first_at].address, at);
    assert_int_equal(extents[first_at].bytes, 2ull * HANDLE_BYTES);
    assert_int_equal(extents[first_at].kind, FLW_SIM_EXTENT_MAPPED);
    assert_int_equal(extents[first_at + 1].address, at + 3ull * HANDLE_BYTES);
    assert_int_equal(extents[first_at + 1].bytes, HANDLE_BYTES);
    assert_int_equal(sim.get_extents(0, extents, 1), 3); /* told, not written */
    assert_int_equal(sim.get_extents(1, extents, 4), 0); /* no such device */
    CUstream stream = make_stream();
    CUdeviceptr pooled;
    ASSERT_OK(sim.cu.cuMemAllocAsync(&pooled, 1000, stream));
    assert_int_equal(sim.get_extents(0, extents, 4), 4);
    unsigned pooled_count = 0;
    for (unsigned i = 0; i < 4; i++) {
        pooled_count += extents[i].kind == FLW_SIM_EXTENT_POOLED && extents[i].address <= pooled &&
                        pooled < extents[i].address + extents[i].bytes;
        assert_true(i == 0 || extents[i - 1].address < extents[i].address);
    }
    assert_int_equal(pooled_count, 1);
}

static int open_driver(void **state)
{
    (void)state;
    return flw_sim_open(&sim) ? 0 : -1;
}

static int close_driver(void **state)
{
    (void)state;
    flw_sim_close(&sim);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unordered_writes_are_a_race_under_every_schedule),
        cmocka_unit_test(a_wait_on_an_event_orders_and_a_later_record_does_not),
        cmocka_unit_test(readers_may_overlap_each_other_but_not_a_writer),
        cmocka_unit_test(what_the_host_saw_complete_orders_what_it_gives_later),
        cmocka_unit_test(the_legacy_stream_orders_blocking_streams_only),
        cmocka_unit_test(unmapping_under_unfinished_work_is_found),
        cmocka_unit_test(touching_what_is_not_mapped_is_found_and_sticks),
        cmocka_unit_test(a_handle_keeps_its_contents_when_it_moves),
        cmocka_unit_test(an_exported_handle_imports_as_the_same_memory),
        cmocka_unit_test(another_process_sees_the_bytes_of_an_exported_handle),
        cmocka_unit_test(dead_handles_and_addresses_come_back_at_once),
        cmocka_unit_test(a_full_queue_runs_the_scheduler_and_nothing_else_does),
        cmocka_unit_test(host_functions_run_in_order_and_may_not_call_the_driver),
        cmocka_unit_test(an_unsafe_call_kills_a_capture_unless_the_thread_is_relaxed),
        cmocka_unit_test(branches_of_a_graph_that_share_memory_are_a_race),
        cmocka_unit_test(a_kernel_runs_in_stream_order_and_its_unwritten_loads_are_named),
        cmocka_unit_test(pool_memory_is_reused_in_stream_order_and_guarded_after_its_free),
        cmocka_unit_test(planned_faults_strike_the_nth_call_and_sticky_ones_stay),
        cmocka_unit_test(the_clock_completes_work_after_its_lag_and_counts_waits),
        cmocka_unit_test(a_host_that_asks_on_and_on_lets_the_clock_move),
        cmocka_unit_test(what_is_given_is_listed_by_address),
    };
    return cmocka_run_group_tests(tests, open_driver, close_driver);
}
