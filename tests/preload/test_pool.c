/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves: a program on the driver, with the preload library in front of it, gets its memory from a pool
 * and notices nothing else: what it frees stays its own until earlier work of every stream is done,
 * contexts end and begin, captures live on, questions are answered about its blocks and no others.
 *
 * It runs preloaded (ctest sets the environment) and knows of the library only that its figures differ.
 * Each case is a process of its own: a driver is initialised once in each.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/sim.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static struct flw_sim sim;
static CUcontext context;
static bool is_wrong;

static void expect_at(int line, bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "  line %d: %s\n", line, what);
        is_wrong = true;
    }
}
#define EXPECT(condition) expect_at(__LINE__, (condition), #condition)
#define MUST(call)        expect_at(__LINE__, (call) == CUDA_SUCCESS, #call)

/* ---- verbs */

static void begin_world(const flw_sim_config *config)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    if (flw_driver_open(&sim.cu, NULL, message) != FALLOW_OK || !flw_sim_find_controls(&sim)) {
        fprintf(stderr, "  no simulated driver: %s\n", message);
        exit(2);
    }
    context = flw_sim_begin(&sim, config);
}

static void begin(void)
{
    flw_sim_config config = flw_sim_config_default(3);
    config.schedule = FLW_SIM_HELD;
    config.device_bytes = 4 * GIB;
    config.device_count = 2;
    begin_world(&config);
}

static CUdeviceptr lend(size_t bytes)
{
    CUdeviceptr pointer = 0;
    MUST(sim.cu.cuMemAlloc_v2(&pointer, bytes));
    return pointer;
}

static void give_back(CUdeviceptr pointer)
{
    MUST(sim.cu.cuMemFree_v2(pointer));
}

static uint64_t calls(const char *entry)
{
    return sim.call_count(entry);
}

static CUstream hidden_stream(void)
{
    CUstream stream = NULL;
    MUST(sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void give_work(CUstream stream)
{
    EXPECT(sim.touch(stream, NULL, 0) == 0);
}

static void free_many(size_t bytes, size_t count)
{
    static CUdeviceptr blocks[4096];
    for (size_t i = 0; i < count; i++) {
        blocks[i] = lend(bytes);
    }
    for (size_t i = 0; i < count; i++) {
        give_back(blocks[i]);
    }
}

static bool comes_again(CUdeviceptr pointer, size_t bytes, size_t count)
{
    bool is_met = false;
    for (size_t i = 0; i < count && !is_met; i++) {
        is_met = lend(bytes) == pointer;
    }
    return is_met;
}

/* ---- cases */

static void a_warm_pair_asks_the_driver_for_no_memory(void)
{
    begin();
    free_many(4 * KIB, 1000);
    uint64_t allocs = calls("cuMemAlloc_v2"), frees = calls("cuMemFree_v2");
    for (int i = 0; i < 10000; i++) {
        give_back(lend(4 * KIB));
    }
    EXPECT(calls("cuMemAlloc_v2") == allocs && calls("cuMemFree_v2") == frees);
    EXPECT(calls("cuCtxRecordEvent") <= 11000 / 256 + 2);
}

static void a_block_waits_for_streams_that_nobody_knows(void)
{
    begin();
    CUstream stream = hidden_stream();
    CUdeviceptr small = lend(3000), large = lend(5 * MIB);
    give_work(stream);
    give_back(small);
    give_back(large);
    free_many(3000, 256);
    free_many(5 * MIB, 16);
    EXPECT(!comes_again(small, 3000, 500));
    EXPECT(!comes_again(large, 5 * MIB, 16));
    sim.step(UINT64_MAX);
    EXPECT(comes_again(small, 3000, 10000));
    EXPECT(comes_again(large, 5 * MIB, 100));
}

static void questions_are_answered_about_the_block(void)
{
    begin();
    CUdeviceptr small = lend(3000), large = lend(3 * MIB + 1), base = 0, start = 0;
    size_t bytes = 0, size = 0;
    MUST(sim.cu.cuMemGetAddressRange_v2(&base, &bytes, small + 2999));
    EXPECT(base == small && bytes == 3000);
    MUST(sim.cu.cuMemGetAddressRange_v2(&base, &bytes, large + 3 * MIB));
    EXPECT(base == large && bytes == 3 * MIB + 1);
    MUST(sim.cu.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, small + 7));
    MUST(sim.cu.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, small + 7));
    EXPECT(start == small && size == 3000);
    EXPECT(sim.cu.cuMemGetAddressRange_v2(&base, &bytes, small + 3000) != CUDA_SUCCESS);
    give_back(small);
    EXPECT(sim.cu.cuMemGetAddressRange_v2(&base, &bytes, small) != CUDA_SUCCESS);
    EXPECT(sim.cu.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, small) !=
           CUDA_SUCCESS);
    unsigned type = 0;
    MUST(sim.cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, large));
    EXPECT(type == CU_MEMORYTYPE_DEVICE);
    EXPECT(small % 512 == 0 && lend(1) % 512 == 0 && large % (2 * MIB) == 0);
}

static void wrong_frees_are_answered_as_by_the_driver(void)
{
    begin();
    CUdeviceptr small = lend(3000), large = lend(3 * MIB);
    EXPECT(sim.cu.cuMemFree_v2(small + 512) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(sim.cu.cuMemFree_v2(large + 2 * MIB) == CUDA_ERROR_INVALID_VALUE);
    give_back(small);
    give_back(large);
    EXPECT(sim.cu.cuMemFree_v2(small) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(sim.cu.cuMemFree_v2(large) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(sim.cu.cuMemFree_v2(12345) == CUDA_ERROR_INVALID_VALUE);
    MUST(sim.cu.cuMemFree_v2(0));
    CUdeviceptr pointer = 0;
    EXPECT(sim.cu.cuMemAlloc_v2(&pointer, 0) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(sim.cu.cuMemAlloc_v2(NULL, 100) == CUDA_ERROR_INVALID_VALUE);
}

static void memory_of_other_calls_is_the_drivers(void)
{
    begin();
    CUdeviceptr managed = 0, pitched = 0, async = 0;
    size_t pitch = 0;
    CUstream stream = hidden_stream();
    (void)lend(100);
    MUST(sim.cu.cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    MUST(sim.cu.cuMemAllocPitch_v2(&pitched, &pitch, 1000, 100, 4));
    MUST(sim.cu.cuMemAllocAsync(&async, 10000, stream));
    sim.step(UINT64_MAX);
    uint64_t frees = calls("cuMemFree_v2");
    give_back(managed);
    give_back(pitched);
    give_back(async);
    EXPECT(calls("cuMemFree_v2") == frees + 3);
    EXPECT(sim.cu.cuMemFreeAsync(lend(100), stream) == CUDA_ERROR_INVALID_VALUE);
}

static void a_context_takes_its_memory_along(void)
{
    CUcontext second = NULL, third = NULL;
    begin();
    CUdeviceptr first = lend(3000);
    MUST(sim.cu.cuCtxCreate_v2(&second, 0, 0));
    CUdeviceptr gone = lend(3000), idle = lend(3000), large = lend(4 * MIB);
    give_back(idle);
    uint64_t given = flw_sim_read_ledger(&sim).given_bytes;
    MUST(sim.cu.cuCtxDestroy_v2(second));
    EXPECT(flw_sim_read_ledger(&sim).given_bytes < given);
    MUST(sim.cu.cuCtxSetCurrent(context));
    EXPECT(sim.cu.cuMemFree_v2(gone) != CUDA_SUCCESS); /* the driver's own answer */
    EXPECT(sim.cu.cuMemFree_v2(large) != CUDA_SUCCESS);
    MUST(sim.cu.cuCtxCreate_v2(&third, 0, 0)); /* the handle comes again, and the addresses */
    CUdeviceptr again = lend(3000);
    give_back(again);
    EXPECT(sim.cu.cuMemFree_v2(again) == CUDA_ERROR_INVALID_VALUE);
    give_back(first); /* of another context than the present one */
    MUST(sim.cu.cuCtxDestroy_v2(third));
}

static void a_primary_context_that_is_reset_begins_anew(void)
{
    begin();
    CUdeviceptr block = lend(3000);
    free_many(3000, 300);
    MUST(sim.cu.cuDevicePrimaryCtxReset_v2(0));
    EXPECT(flw_sim_read_ledger(&sim).given_bytes == 0);
    EXPECT(sim.cu.cuMemFree_v2(block) != CUDA_SUCCESS);
    CUcontext again = NULL;
    MUST(sim.cu.cuDevicePrimaryCtxRetain(&again, 0));
    MUST(sim.cu.cuCtxSetCurrent(again));
    give_back(lend(3000));
    MUST(sim.cu.cuDevicePrimaryCtxRelease_v2(0)); /* flw_sim_begin's share, or the last */
    MUST(sim.cu.cuCtxSetCurrent(NULL));
}

static void an_epoch_covers_both_contexts(void)
{
    CUcontext second = NULL, popped = NULL;
    begin();
    MUST(sim.cu.cuCtxCreate_v2(&second, 0, 0)); /* lends nothing, but works */
    CUstream stream = hidden_stream();
    give_work(stream);
    MUST(sim.cu.cuCtxPopCurrent_v2(&popped));
    CUdeviceptr pointer = lend(3000);
    give_back(pointer);
    free_many(3000, 256);
    EXPECT(!comes_again(pointer, 3000, 1000));
    sim.step(UINT64_MAX);
    EXPECT(comes_again(pointer, 3000, 10000));
}

static void a_capture_lives_through_allocations(void)
{
    begin();
    CUstream stream = hidden_stream();
    CUgraph graph = NULL;
    CUdeviceptr before = lend(3000);
    MUST(sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    give_work(stream);
    give_back(before);
    free_many(3000, 2000);
    free_many(20 * MIB, 5);
    EXPECT(!comes_again(before, 3000, 2000));
    EXPECT(calls("cuCtxRecordEvent") == 0 && calls("cuEventQuery") == 0);
    MUST(sim.cu.cuStreamEndCapture(stream, &graph));
    EXPECT(graph != NULL);
    free_many(3000, 300);
    EXPECT(comes_again(before, 3000, 10000));
    EXPECT(calls("cuCtxRecordEvent") > 0);
}

/* However it ends, epochs are closed again. */
static void captures_that_fail_are_counted_out(void)
{
    begin();
    CUstream stream = hidden_stream(), other = hidden_stream();
    CUgraph graph = NULL;
    MUST(sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(sim.cu.cuCtxSynchronize() != CUDA_SUCCESS); /* kills it */
    EXPECT(sim.cu.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
    free_many(3000, 1000);
    uint64_t records = calls("cuCtxRecordEvent");
    EXPECT(records > 0);
    MUST(sim.cu.cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    free_many(3000, 1000);
    EXPECT(calls("cuCtxRecordEvent") == records);
    MUST(sim.cu.cuStreamDestroy_v2(other));
    free_many(3000, 1000);
    EXPECT(calls("cuCtxRecordEvent") > records);
}

static void idle_memory_counts_as_free(void)
{
    size_t free_bytes = 0, total_bytes = 0, before = 0;
    begin();
    MUST(sim.cu.cuMemGetInfo_v2(&before, &total_bytes));
    CUdeviceptr live = lend(10 * MIB);
    free_many(16 * MIB, 10);
    MUST(sim.cu.cuMemGetInfo_v2(&free_bytes, &total_bytes));
    EXPECT(flw_sim_read_ledger(&sim).given_bytes >= 160 * MIB);
    EXPECT(free_bytes >= before - 12 * MIB && free_bytes < before);
    EXPECT(total_bytes == 4 * GIB);
    give_back(live);
}

static void a_full_device_serves_everybody_from_what_idles(void)
{
    CUdeviceptr managed = 0, pitched = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    size_t pitch = 0;
    begin();
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUdeviceptr blocks[6];
    for (int i = 0; i < 6; i++) {
        blocks[i] = lend(640 * MIB);
    }
    for (int i = 0; i < 6; i++) {
        give_back(blocks[i]);
    }
    MUST(sim.cu.cuMemAllocManaged(&managed, GIB, CU_MEM_ATTACH_GLOBAL));
    CUdeviceptr most = lend(2800 * MIB);
    EXPECT(most != 0);
    give_back(most);
    MUST(sim.cu.cuMemAllocPitch_v2(&pitched, &pitch, MIB, 2000, 4));
    give_back(lend(500 * MIB));
    MUST(sim.cu.cuMemCreate(&handle, 900 * MIB, &properties, 0));
    CUdeviceptr none = 0;
    EXPECT(sim.cu.cuMemAlloc_v2(&none, 900 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
}

static void what_idles_leaves_the_reserve_alone(void)
{
    flw_sim_config config = flw_sim_config_default(3);
    config.schedule = FLW_SIM_HELD;
    config.device_bytes = GIB;
    begin_world(&config);
    free_many(16 * MIB, 20);
    EXPECT(flw_sim_read_ledger(&sim).given_bytes >= 320 * MIB);
    CUdeviceptr large = lend(210 * MIB); /* would leave less than the default of 512 MiB */
    EXPECT(flw_sim_read_ledger(&sim).given_bytes <= 512 * MIB);
    give_back(large);
    give_back(lend(900 * MIB)); /* what the program itself wants it gets */
}

static void a_driver_without_ids_is_served_by_handles(void)
{
    CUcontext second = NULL;
    flw_sim_config config = flw_sim_config_default(3);
    config.schedule = FLW_SIM_HELD;
    config.without_ids = 1;
    begin_world(&config);
    CUdeviceptr first = lend(3000);
    free_many(3000, 1000);
    uint64_t allocs = calls("cuMemAlloc_v2");
    free_many(3000, 1000);
    EXPECT(calls("cuMemAlloc_v2") == allocs);
    MUST(sim.cu.cuCtxCreate_v2(&second, 0, 0));
    CUdeviceptr gone = lend(3000);
    MUST(sim.cu.cuCtxDestroy_v2(second));
    MUST(sim.cu.cuCtxSetCurrent(context));
    EXPECT(sim.cu.cuMemFree_v2(gone) != CUDA_SUCCESS);
    give_back(first);
    EXPECT(sim.cu.cuMemFree_v2(first) == CUDA_ERROR_INVALID_VALUE);
}

static void what_another_context_has_freed_is_there_for_all(void)
{
    CUcontext second = NULL;
    CUdeviceptr blocks[40];
    begin();
    MUST(sim.cu.cuCtxCreate_v2(&second, 0, 0));
    for (int i = 0; i < 40; i++) { /* most of the device, in a cache and in limbo */
        blocks[i] = lend(80 * MIB);
    }
    give_work(hidden_stream());
    for (int i = 0; i < 40; i++) {
        give_back(blocks[i]);
    }
    free_many(700 * KIB, 100);
    MUST(sim.cu.cuCtxSetCurrent(context));
    give_back(lend(3900 * MIB));
    MUST(sim.cu.cuCtxSetCurrent(second));
    give_back(lend(3900 * MIB));
}

static void a_synchronisation_makes_what_was_freed_ready(void)
{
    begin();
    CUdeviceptr pointer = lend(5 * MIB);
    give_work(hidden_stream());
    give_back(pointer);
    MUST(sim.cu.cuCtxSynchronize());
    EXPECT(lend(5 * MIB) == pointer);
    EXPECT(calls("cuCtxRecordEvent") == 0 && calls("cuEventQuery") == 0);
}

static void only_blocks_of_their_own_are_exported(void)
{
    CUipcMemHandle handle, other;
    CUresult (*get_handle)(CUipcMemHandle *, CUdeviceptr) = NULL;
    begin();
    void *address = flw_driver_entry(&sim.cu, "cuIpcGetMemHandle");
    memcpy(&get_handle, &address, sizeof address);
    CUdeviceptr small = lend(3000), large = lend(4 * MIB);
    bool is_ipc = getenv("FALLOW") != NULL && strstr(getenv("FALLOW"), "ipc:1") != NULL;
    EXPECT(get_handle(&handle, small) == (is_ipc ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED));
    MUST(get_handle(&handle, large));
    uint64_t frees = calls("cuMemFree_v2");
    give_back(large); /* not kept: its next owner is to have another handle */
    EXPECT(calls("cuMemFree_v2") == frees + 1);
    EXPECT(sim.cu.cuMemFree_v2(large) == CUDA_ERROR_INVALID_VALUE);
    large = lend(4 * MIB);
    MUST(get_handle(&other, large));
    EXPECT(memcmp(&handle, &other, sizeof handle) != 0);
    EXPECT(get_handle(&handle, 12345) == CUDA_ERROR_INVALID_VALUE);
}

static void *free_without_context(void *pointer)
{
    give_back(*(CUdeviceptr *)pointer);
    return NULL;
}

static void a_thread_without_a_context_may_free(void)
{
    pthread_t thread;
    begin();
    CUdeviceptr small = lend(3000), large = lend(3 * MIB);
    MUST((CUresult)pthread_create(&thread, NULL, free_without_context, &small));
    MUST((CUresult)pthread_join(thread, NULL));
    MUST((CUresult)pthread_create(&thread, NULL, free_without_context, &large));
    MUST((CUresult)pthread_join(thread, NULL));
    EXPECT(sim.cu.cuMemFree_v2(small) == CUDA_ERROR_INVALID_VALUE);
    EXPECT(sim.cu.cuMemFree_v2(large) == CUDA_ERROR_INVALID_VALUE);
    MUST(sim.cu.cuCtxSetCurrent(NULL));
    CUdeviceptr none = 0;
    EXPECT(sim.cu.cuMemAlloc_v2(&none, 3000) == CUDA_ERROR_INVALID_CONTEXT);
}

static void the_child_of_a_fork_gets_the_drivers_own_answers(void)
{
    begin();
    free_many(3000, 300);
    CUdeviceptr block = lend(3000);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr pointer = 0;
        uint64_t allocs = calls("cuMemAlloc_v2"), frees = calls("cuMemFree_v2");
        (void)sim.cu.cuMemAlloc_v2(&pointer, 3000);
        (void)sim.cu.cuMemFree_v2(block);
        _exit(calls("cuMemAlloc_v2") == allocs + 1 && calls("cuMemFree_v2") == frees + 1 ? 0 : 1);
    }
    int status = 1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    give_back(block);
}

static void a_lasting_error_reaches_the_program(void)
{
    begin();
    CUdeviceptr block = lend(3000), pointer = 0;
    EXPECT(sim.fail("cuCtxRecordEvent", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1));
    for (int i = 0; i < 300 && sim.cu.cuMemAlloc_v2(&pointer, 3000) == CUDA_SUCCESS; i++) {
        (void)sim.cu.cuMemFree_v2(pointer);
    }
    EXPECT(sim.cu.cuMemAlloc_v2(&pointer, 10 * MIB) == CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT(sim.cu.cuMemFree_v2(block) == CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void frees_succeed_when_the_driver_is_gone(void)
{
    begin();
    CUdeviceptr small = lend(3000), large = lend(3 * MIB), managed = 0, none = 0;
    MUST(sim.cu.cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    EXPECT(sim.fail("cuMemAlloc_v2", 1, CUDA_ERROR_DEINITIALIZED, 1));
    EXPECT(sim.cu.cuMemAlloc_v2(&none, 30 * MIB) == CUDA_ERROR_DEINITIALIZED);
    give_back(large);
    give_back(small);
    EXPECT(sim.cu.cuMemFree_v2(managed) == CUDA_ERROR_DEINITIALIZED);
}

static void strict_frees_wait_for_the_device(void)
{
    begin();
    CUstream stream = hidden_stream();
    CUevent event = NULL;
    CUgraph graph = NULL;
    CUdeviceptr pointer = lend(5 * MIB);
    give_work(stream);
    MUST(sim.cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(sim.cu.cuEventRecord(event, stream));
    EXPECT(sim.cu.cuEventQuery(event) == CUDA_ERROR_NOT_READY);
    give_back(pointer);
    MUST(sim.cu.cuEventQuery(event));
    give_back(lend(5 * MIB)); /* whose wait covers the first */
    EXPECT(comes_again(pointer, 5 * MIB, 2) && calls("cuCtxRecordEvent") == 0);
    MUST(sim.cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT(sim.cu.cuMemAlloc_v2(&pointer, 5 * MIB) != CUDA_SUCCESS); /* and is lost, as natively */
    EXPECT(sim.cu.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
}

/* Churn on two contexts from several threads, one of which resets a third again and again. */
static void *churn(void *argument)
{
    CUdeviceptr blocks[64] = {0};
    uint64_t state = (uintptr_t)argument;
    MUST(sim.cu.cuCtxSetCurrent(context));
    for (int i = 0; i < 20000; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        CUdeviceptr *block = &blocks[(state >> 33) % 64];
        if (*block != 0) {
            give_back(*block);
            *block = 0;
        } else {
            *block = lend((state >> 40) % 8 == 0 ? 3 * MIB : 100 + (state >> 44) % 30000);
        }
    }
    for (int i = 0; i < 64; i++) {
        MUST(sim.cu.cuMemFree_v2(blocks[i]));
    }
    return NULL;
}

static void *come_and_go(void *argument)
{
    (void)argument;
    for (int i = 0; i < 30; i++) {
        CUcontext second = NULL;
        MUST(sim.cu.cuCtxCreate_v2(&second, 0, 1));
        CUdeviceptr left = lend(5000);
        for (int n = 0; n < 300; n++) {
            give_back(lend(7000));
        }
        EXPECT(left != 0);
        MUST(sim.cu.cuCtxDestroy_v2(second));
    }
    return NULL;
}

static void contexts_come_and_go_beside_allocations(void)
{
    pthread_t threads[3];
    flw_sim_config config = flw_sim_config_default(3);
    config.device_count = 2;
    config.schedule = FLW_SIM_RANDOM;
    begin_world(&config);
    for (uintptr_t i = 0; i < 3; i++) {
        MUST((CUresult)pthread_create(&threads[i], NULL, i == 2 ? come_and_go : churn,
                                      (void *)(i + 1)));
    }
    for (int i = 0; i < 3; i++) {
        MUST((CUresult)pthread_join(threads[i], NULL));
    }
}

/* Several threads make the first allocation of a primary context while another lets its share go. */
static pthread_barrier_t together;

static void *allocate_first(void *unused)
{
    MUST(sim.cu.cuCtxSetCurrent(context));
    (void)pthread_barrier_wait(&together);
    give_back(lend(3000));
    return unused;
}

static void a_share_of_a_context_may_go_beside_its_first_allocations(void)
{
    enum {
        THREADS = 5
    };
    pthread_t threads[THREADS];
    begin();
    MUST((CUresult)pthread_barrier_init(&together, NULL, THREADS + 1));
    for (int round = 0; round < 100 && !is_wrong; round++) {
        MUST(sim.cu.cuDevicePrimaryCtxReset_v2(0));
        MUST(sim.cu.cuDevicePrimaryCtxRetain(&context, 0));
        for (int i = 0; i < THREADS; i++) {
            MUST((CUresult)pthread_create(&threads[i], NULL, allocate_first, NULL));
        }
        (void)pthread_barrier_wait(&together);
        MUST(sim.cu.cuDevicePrimaryCtxRelease_v2(0)); /* flw_sim_begin's share stays */
        for (int i = 0; i < THREADS; i++) {
            MUST((CUresult)pthread_join(threads[i], NULL));
        }
    }
}

/* ---- run */

static const struct {
    const char *name;
    void (*run)(void);
    const char *group;
} cases[] = {
#define CASE(group, name)  \
    {                      \
#name, name, group \
    }
    CASE("cache", a_warm_pair_asks_the_driver_for_no_memory),
    CASE("cache", a_block_waits_for_streams_that_nobody_knows),
    CASE("cache", questions_are_answered_about_the_block),
    CASE("cache", wrong_frees_are_answered_as_by_the_driver),
    CASE("cache", memory_of_other_calls_is_the_drivers),
    CASE("cache", a_context_takes_its_memory_along),
    CASE("cache", a_primary_context_that_is_reset_begins_anew),
    CASE("cache", an_epoch_covers_both_contexts),
    CASE("cache", a_capture_lives_through_allocations),
    CASE("cache", captures_that_fail_are_counted_out),
    CASE("cache", idle_memory_counts_as_free),
    CASE("cache", a_full_device_serves_everybody_from_what_idles),
    CASE("cache", what_idles_leaves_the_reserve_alone),
    CASE("cache", a_driver_without_ids_is_served_by_handles),
    CASE("cache", what_another_context_has_freed_is_there_for_all),
    CASE("cache", a_synchronisation_makes_what_was_freed_ready),
    CASE("cache", only_blocks_of_their_own_are_exported),
    CASE("cache", a_thread_without_a_context_may_free),
    CASE("cache", the_child_of_a_fork_gets_the_drivers_own_answers),
    CASE("cache", a_lasting_error_reaches_the_program),
    CASE("cache", frees_succeed_when_the_driver_is_gone),
    CASE("cache", contexts_come_and_go_beside_allocations),
    CASE("cache", a_share_of_a_context_may_go_beside_its_first_allocations),
    CASE("strict", strict_frees_wait_for_the_device),
    CASE("ipc", only_blocks_of_their_own_are_exported),
};

/* In a process of its own, whose driver nobody has touched. */
static bool passes(size_t i)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        cases[i].run();
        exit(is_wrong);
    }
    int status = 0;
    bool is_right = waitpid(child, &status, 0) == child && status == 0;
    printf("%s %s%s\n", is_right ? "ok    " : "FAILED", cases[i].name,
           WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "");
    return is_right;
}

int main(int argc, char **argv)
{
    const char *group = argc > 1 ? argv[1] : "cache", *only = argc > 2 ? argv[2] : NULL;
    size_t failed = 0, ran = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].group, group) == 0 &&
            (only == NULL || strcmp(cases[i].name, only) == 0)) {
            ran++;
            failed += !passes(i);
        }
    }
    printf("%zu of %zu cases failed\n", failed, ran);
    return failed != 0 || ran == 0;
}
