/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves: pools of a preloaded program are created and destroyed with the contexts, by any thread;
 * and permanent driver errors are returned to the program.
 *
 * It runs preloaded (ctest sets the environment), and only the statistics differ. */
#include <dlfcn.h>
#include <pthread.h>

#include "preload/pool_bed.h"

static void a_context_takes_its_memory_along(void)
{
    CUcontext second = NULL, third = NULL;
    begin();
    CUdeviceptr first = allocate(3000);
    MUST(sim.cu.cuCtxCreate_v2(&second, 0, 0));
    CUdeviceptr gone = allocate(3000), idle = allocate(3000), large = allocate(4 * MIB);
    free_block(idle);
    uint64_t given = flw_sim_read_ledger(&sim).given_bytes;
    MUST(sim.cu.cuCtxDestroy_v2(second));
    EXPECT(flw_sim_read_ledger(&sim).given_bytes < given);
    MUST(sim.cu.cuCtxSetCurrent(context));
    EXPECT(sim.cu.cuMemFree_v2(gone) != CUDA_SUCCESS); /* the driver's own answer */
    EXPECT(sim.cu.cuMemFree_v2(large) != CUDA_SUCCESS);
    MUST(sim.cu.cuCtxCreate_v2(&third, 0, 0)); /* the handle and the addresses are reused */
    CUdeviceptr again = allocate(3000);
    free_block(again);
    EXPECT(sim.cu.cuMemFree_v2(again) == CUDA_ERROR_INVALID_VALUE);
    free_block(first); /* of another context than the present one */
    MUST(sim.cu.cuCtxDestroy_v2(third));
}

static void a_primary_context_that_is_reset_begins_anew(void)
{
    begin();
    CUdeviceptr block = allocate(3000);
    free_many(3000, 300);
    MUST(sim.cu.cuDevicePrimaryCtxReset_v2(0));
    EXPECT(flw_sim_read_ledger(&sim).given_bytes == 0);
    EXPECT(sim.cu.cuMemFree_v2(block) != CUDA_SUCCESS);
    CUcontext again = NULL;
    MUST(sim.cu.cuDevicePrimaryCtxRetain(&again, 0));
    MUST(sim.cu.cuCtxSetCurrent(again));
    free_block(allocate(3000));
    MUST(sim.cu.cuDevicePrimaryCtxRelease_v2(0)); /* flw_sim_begin's share, or the last */
    MUST(sim.cu.cuCtxSetCurrent(NULL));
}

static void an_epoch_covers_both_contexts(void)
{
    CUcontext second = NULL, popped = NULL;
    begin();
    MUST(sim.cu.cuCtxCreate_v2(&second, 0, 0)); /* allocates nothing, but works */
    CUstream stream = hidden_stream();
    give_work(stream);
    MUST(sim.cu.cuCtxPopCurrent_v2(&popped));
    CUdeviceptr pointer = allocate(3000);
    free_block(pointer);
    free_many(3000, 256);
    EXPECT(!comes_again(pointer, 3000, 1000));
    sim.step(UINT64_MAX);
    EXPECT(comes_again(pointer, 3000, 10000));
}

static void a_driver_without_ids_is_served_by_handles(void)
{
    CUcontext second = NULL;
    flw_sim_config config = flw_sim_config_default(3);
    config.schedule = FLW_SIM_HELD;
    config.without_ids = 1;
    begin_world(&config);
    CUdeviceptr first = allocate(3000);
    free_many(3000, 1000);
    uint64_t allocs = calls("cuMemAlloc_v2");
    free_many(3000, 1000);
    EXPECT(calls("cuMemAlloc_v2") == allocs);
    MUST(sim.cu.cuCtxCreate_v2(&second, 0, 0));
    CUdeviceptr gone = allocate(3000);
    MUST(sim.cu.cuCtxDestroy_v2(second));
    MUST(sim.cu.cuCtxSetCurrent(context));
    EXPECT(sim.cu.cuMemFree_v2(gone) != CUDA_SUCCESS);
    free_block(first);
    EXPECT(sim.cu.cuMemFree_v2(first) == CUDA_ERROR_INVALID_VALUE);
}

static void what_another_context_has_freed_is_there_for_all(void)
{
    CUcontext second = NULL;
    CUdeviceptr blocks[40];
    begin();
    MUST(sim.cu.cuCtxCreate_v2(&second, 0, 0));
    for (int i = 0; i < 40; i++) { /* most of the device, in a cache and in limbo */
        blocks[i] = allocate(80 * MIB);
    }
    give_work(hidden_stream());
    for (int i = 0; i < 40; i++) {
        free_block(blocks[i]);
    }
    free_many(700 * KIB, 100);
    MUST(sim.cu.cuCtxSetCurrent(context));
    free_block(allocate(3900 * MIB));
    MUST(sim.cu.cuCtxSetCurrent(second));
    free_block(allocate(3900 * MIB));
}

/* ---- green contexts */

static struct {
    CUresult (*get_resource)(CUdevice device, void *resource, CUdevResourceType type);
    CUresult (*describe)(CUdevResourceDesc *descriptor, void *resources, unsigned count);
    CUresult (*create)(CUgreenCtx *green, CUdevResourceDesc descriptor, CUdevice device,
                       unsigned flags);
    CUresult (*destroy)(CUgreenCtx green);
    CUresult (*make_stream)(CUstream *stream, CUgreenCtx green, unsigned flags, int priority);
} greens;

static void find_greens(void)
{
    static const struct {
        const char *name;
        void *place;
    } entries[] = {{"cuDeviceGetDevResource", &greens.get_resource},
                   {"cuDevResourceGenerateDesc", &greens.describe},
                   {"cuGreenCtxCreate", &greens.create},
                   {"cuGreenCtxDestroy", &greens.destroy},
                   {"cuGreenCtxStreamCreate", &greens.make_stream}};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *address = dlsym(sim.cu.object, entries[i].name);
        EXPECT(address != NULL);
        memcpy(entries[i].place, &address, sizeof address);
    }
}

/* Make a green context of device 0 current. */
static CUgreenCtx begin_green(void)
{
    unsigned char resource[256];
    CUdevResourceDesc descriptor = NULL;
    CUgreenCtx green = NULL;
    CUcontext converted = NULL;
    find_greens();
    MUST(greens.get_resource(0, resource, CU_DEV_RESOURCE_TYPE_SM));
    MUST(greens.describe(&descriptor, resource, 1));
    MUST(greens.create(&green, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    MUST(sim.cu.cuCtxFromGreenCtx(&converted, green));
    MUST(sim.cu.cuCtxSetCurrent(converted));
    return green;
}

static CUstream green_stream(CUgreenCtx green)
{
    CUstream stream = NULL;
    MUST(greens.make_stream(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

/* The memory belongs to the primary context and outlives the green one. */
static void a_green_contexts_memory_outlives_it(void)
{
    begin();
    CUgreenCtx green = begin_green();
    CUdeviceptr small = allocate(3000), large = allocate(4 * MIB), kept = allocate(3000), base = 0;
    size_t bytes = 0;
    MUST(sim.cu.cuMemGetAddressRange_v2(&base, &bytes, small + 10));
    EXPECT(base == small && bytes == 3000);
    uint64_t given = flw_sim_read_ledger(&sim).given_bytes;
    MUST(greens.destroy(green));
    MUST(sim.cu.cuCtxSetCurrent(context));
    EXPECT(flw_sim_read_ledger(&sim).given_bytes == given);
    free_block(small);
    free_block(large);
    EXPECT(sim.cu.cuMemFree_v2(small) == CUDA_ERROR_INVALID_VALUE);
    sim.step(UINT64_MAX);
    MUST(sim.cu.cuCtxSynchronize());
    uint64_t allocs = calls("cuMemAlloc_v2");
    EXPECT(comes_again(small, 3000, 100));
    EXPECT(comes_again(large, 4 * MIB, 100));
    EXPECT(calls("cuMemAlloc_v2") - allocs < 100);
    for (int i = 0; i < 300;
         i++) { /* entries of green contexts end with them: the table holds 256 */
        green = begin_green();
        free_block(allocate(3000));
        MUST(greens.destroy(green));
        MUST(sim.cu.cuCtxSetCurrent(context));
    }
    free_block(kept);
}

static void a_block_waits_for_streams_of_green_contexts(void)
{
    begin();
    CUgreenCtx green = begin_green();
    CUdeviceptr allocated_green = allocate(3000);
    give_work(green_stream(green));
    MUST(sim.cu.cuCtxSetCurrent(context));
    CUdeviceptr allocated_main = allocate(5000);
    free_block(allocated_green);
    free_block(allocated_main);
    free_many(3000, 256);
    free_many(5000, 256);
    EXPECT(!comes_again(allocated_green, 3000, 500));
    EXPECT(!comes_again(allocated_main, 5000, 500));
    sim.step(UINT64_MAX);
    EXPECT(comes_again(allocated_green, 3000, 10000));
    EXPECT(comes_again(allocated_main, 5000, 10000));
}

static void a_green_synchronisation_covers_no_other_work(void)
{
    begin();
    CUdeviceptr pointer = allocate(3000);
    give_work(hidden_stream());
    CUgreenCtx green = begin_green();
    free_block(pointer);
    free_many(3000, 256);
    MUST(sim.cu.cuCtxSynchronize());
    EXPECT(!comes_again(pointer, 3000, 1000));
    MUST(sim.cu.cuCtxSetCurrent(context));
    MUST(sim.cu.cuCtxSynchronize());
    EXPECT(comes_again(pointer, 3000, 10000));
    MUST(greens.destroy(green));
}

/* A green context has a share of the primary one, here the last. */
static void the_last_green_context_takes_the_primary_along(void)
{
    CUcontext again = NULL;
    begin();
    CUgreenCtx green = begin_green();
    CUdeviceptr pointer = allocate(3000);
    MUST(sim.cu.cuDevicePrimaryCtxRelease_v2(0));
    free_block(allocate(3000));
    MUST(greens.destroy(green));
    EXPECT(flw_sim_read_ledger(&sim).given_bytes == 0);
    MUST(sim.cu.cuDevicePrimaryCtxRetain(&again, 0));
    MUST(sim.cu.cuCtxSetCurrent(again));
    EXPECT(sim.cu.cuMemFree_v2(pointer) != CUDA_SUCCESS);
    free_block(allocate(3000));
    green = begin_green();
    free_block(allocate(3000));
    MUST(sim.cu.cuDevicePrimaryCtxReset_v2(0)); /* with the green context */
    EXPECT(flw_sim_read_ledger(&sim).given_bytes == 0);
}

static void *free_without_context(void *pointer)
{
    free_block(*(CUdeviceptr *)pointer);
    return NULL;
}

static void a_thread_without_a_context_may_free(void)
{
    pthread_t thread;
    begin();
    CUdeviceptr small = allocate(3000), large = allocate(3 * MIB);
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
    CUdeviceptr block = allocate(3000);
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
    free_block(block);
}

static void a_lasting_error_reaches_the_program(void)
{
    begin();
    CUdeviceptr block = allocate(3000), pointer = 0;
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
    CUdeviceptr small = allocate(3000), large = allocate(3 * MIB), managed = 0, none = 0;
    MUST(sim.cu.cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
    EXPECT(sim.fail("cuMemAlloc_v2", 1, CUDA_ERROR_DEINITIALIZED, 1));
    EXPECT(sim.cu.cuMemAlloc_v2(&none, 30 * MIB) == CUDA_ERROR_DEINITIALIZED);
    free_block(large);
    free_block(small);
    EXPECT(sim.cu.cuMemFree_v2(managed) == CUDA_ERROR_DEINITIALIZED);
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
            free_block(*block);
            *block = 0;
        } else {
            *block = allocate((state >> 40) % 8 == 0 ? 3 * MIB : 100 + (state >> 44) % 30000);
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
        CUdeviceptr left = allocate(5000);
        for (int n = 0; n < 300; n++) {
            free_block(allocate(7000));
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

/* Several threads make the first allocation of a primary context while another releases it. */
static pthread_barrier_t together;

static void *allocate_first(void *unused)
{
    MUST(sim.cu.cuCtxSetCurrent(context));
    (void)pthread_barrier_wait(&together);
    free_block(allocate(3000));
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

int main(int argc, char **argv)
{
    static const struct pool_case cases[] = {
        CASE("cache", a_context_takes_its_memory_along),
        CASE("cache", a_primary_context_that_is_reset_begins_anew),
        CASE("cache", an_epoch_covers_both_contexts),
        CASE("cache", a_driver_without_ids_is_served_by_handles),
        CASE("cache", what_another_context_has_freed_is_there_for_all),
        CASE("cache", a_green_contexts_memory_outlives_it),
        CASE("cache", a_block_waits_for_streams_of_green_contexts),
        CASE("cache", a_green_synchronisation_covers_no_other_work),
        CASE("cache", the_last_green_context_takes_the_primary_along),
        CASE("cache", a_thread_without_a_context_may_free),
        CASE("cache", the_child_of_a_fork_gets_the_drivers_own_answers),
        CASE("cache", a_lasting_error_reaches_the_program),
        CASE("cache", frees_succeed_when_the_driver_is_gone),
        CASE("cache", contexts_come_and_go_beside_allocations),
        CASE("cache", a_share_of_a_context_may_go_beside_its_first_allocations),
    };
    return pool_main(cases, sizeof cases / sizeof *cases, argc, argv);
}
