/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that links the driver and allocates and frees memory in every way, for the tests of
 * mode trace, of poison and of the summary. alloc_client SCENARIO [NUMBER]; exits with 0 on
 * success. Does not: know whether it is preloaded. */
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver/driver_types.h"
#include "driver/entry_points.h"
#include "fallow/simcuda.h"

#define X(need, symbol, since, before, parameters) CUresult symbol parameters;
FLW_DRIVER_ENTRY_POINTS(X)
#undef X
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream);
CUresult cuMemAllocHost_v2(void **pointer, size_t bytes);

#define MANY 100000

static int failures;

static void check(CUresult result, CUresult wanted, const char *what)
{
    if (result != wanted) {
        fprintf(stderr, "%s: %d instead of %d\n", what, (int)result, (int)wanted);
        failures++;
    }
}
#define OK(call)         check(call, CUDA_SUCCESS, #call)
#define IS(wanted, call) check(call, wanted, #call)

static void use_device(int ordinal)
{
    CUdevice device;
    CUcontext context;
    OK(cuDeviceGet(&device, ordinal));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
}

/* Another simulated world than the one of the start. */
static void begin_world(const flw_sim_config *config)
{
    flw_sim_reset_function reset;
    void *address = dlsym(RTLD_DEFAULT, "flw_sim_reset");
    memcpy(&reset, &address, sizeof reset);
    reset(config);
    OK(cuInit(0));
    use_device(0);
}

/* Allocate one block of every kind, each of another size, and free them in the same order. */
static void alloc_kinds(uint64_t number)
{
    CUdeviceptr blocks[6];
    CUmemoryPool pool;
    CUstream stream;
    void *pinned[2];
    size_t pitch;
    (void)number;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemAlloc_v2(&blocks[0], 1000));
    OK(cuMemAllocPitch_v2(&blocks[1], &pitch, 100, 8, 4));
    OK(cuMemAllocManaged(&blocks[2], 3000, 1));
    OK(cuMemAllocAsync(&blocks[3], 4000, stream));
    OK(cuMemAllocAsync_ptsz(&blocks[4], 5000, NULL));
    OK(cuMemAllocFromPoolAsync(&blocks[5], 6000, pool, stream));
    OK(cuMemHostAlloc(&pinned[0], 7000, 0));
    OK(cuMemAllocHost_v2(&pinned[1], 8000));
    IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&blocks[0], (size_t)1 << 50));
    printf("pitch %zu\n", pitch);
    OK(cuMemFree_v2(blocks[1]));
    OK(cuMemFree_v2(blocks[2]));
    OK(cuMemFreeAsync(blocks[3], stream));
    OK(cuMemFreeAsync_ptsz(blocks[4], NULL));
    OK(cuMemFree_v2(blocks[5]));
    OK(cuMemFreeHost(pinned[0]));
    OK(cuMemFreeHost(pinned[1]));
}

static void misuse(uint64_t number)
{
    CUdeviceptr block;
    (void)number;
    OK(cuMemAlloc_v2(&block, 1 << 20));
    OK(cuMemFree_v2(block));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(block));
    IS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(0x1234500));
    OK(cuMemFree_v2(0));
}

/* Device 1 allocates, then device 0; both are returned while device 0 is current. */
static void alloc_on_two(uint64_t number)
{
    CUdeviceptr blocks[2];
    (void)number;
    begin_world(&(flw_sim_config){.struct_size = sizeof(flw_sim_config), .device_count = 2});
    use_device(1);
    OK(cuMemAlloc_v2(&blocks[0], 1111));
    use_device(0);
    OK(cuMemAlloc_v2(&blocks[1], 2222));
    OK(cuMemFree_v2(blocks[0]));
    OK(cuMemFree_v2(blocks[1]));
}

static void alloc_many(uint64_t number)
{
    static CUdeviceptr blocks[64];
    for (uint64_t i = 0; i < number; i++) {
        CUdeviceptr *block = &blocks[i % 64];
        if (*block != 0) {
            OK(cuMemFree_v2(*block));
        }
        OK(cuMemAlloc_v2(block, 512 + 512 * (i % 7)));
    }
}

/* Map memory directly with the driver, beside one block. */
static void create_handles(uint64_t number)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr block;
    OK(cuMemAlloc_v2(&block, 4096));
    for (uint64_t i = 0; i < number; i++) {
        OK(cuMemCreate(&handle, 2 << 20, &properties, 0));
        OK(cuMemRelease(handle));
    }
}

#define STILL_NS 999999999

/* Wait until the file ALLOC_CLIENT_FILE has contents and stops growing, work a little more, and
 * die. */
static void alloc_and_die(uint64_t number)
{
    struct stat facts = {0};
    const char *path = getenv("ALLOC_CLIENT_FILE");
    alloc_many(number);
    for (off_t before = -1; path != NULL && (facts.st_size < 2000 || facts.st_size != before);) {
        before = facts.st_size;
        nanosleep(&(struct timespec){.tv_nsec = STILL_NS}, NULL);
        failures += stat(path, &facts) != 0;
    }
    alloc_many(10);
    (void)kill(getpid(), SIGKILL);
}

static void alloc_and_leave(uint64_t number)
{
    alloc_many(number);
    _exit(0);
}

/* Be killed long after the last call. */
static void alloc_and_be_killed(uint64_t number)
{
    alloc_many(number);
    nanosleep(&(struct timespec){.tv_nsec = STILL_NS}, NULL);
    (void)kill(getpid(), SIGKILL);
}

/* Print a line once the counts are posted, and keep running. */
static void alloc_and_linger(uint64_t number)
{
    alloc_many(number);
    nanosleep(&(struct timespec){.tv_nsec = STILL_NS}, NULL);
    puts("posted");
    fflush(stdout);
    nanosleep(&(struct timespec){.tv_sec = 20}, NULL);
}

/* Fork two workers from a process that does not use the driver. Returns true in each worker. */
static bool begin_workers(void)
{
    for (int i = 0; i < 2; i++) {
        if (fork() == 0) {
            return true;
        }
    }
    while (wait(NULL) > 0) {
    }
    return false;
}

/* A child of a process that has used the driver cannot use it. */
static void alloc_beside_child(uint64_t number)
{
    CUdeviceptr block;
    int status;
    (void)number;
    OK(cuMemAlloc_v2(&block, 4096));
    pid_t child = fork();
    if (child == 0) {
        exit(0);
    }
    failures += waitpid(child, &status, 0) != child || status != 0;
    OK(cuMemFree_v2(block));
}

/* Read memory that was never written: the program's output depends on one byte of each kind. */
static void read_unwritten(uint64_t number)
{
    CUdeviceptr plain, async;
    CUstream stream;
    unsigned char bytes[2] = {0, 0};
    (void)number;
    begin_world(&(flw_sim_config){.struct_size = sizeof(flw_sim_config), .backed = 1});
    OK(cuStreamCreate(&stream, 0));
    OK(cuMemAlloc_v2(&plain, 10000));
    OK(cuMemAllocAsync(&async, 10000, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(&bytes[0], plain + 9999, 1));
    OK(cuMemcpyDtoH_v2(&bytes[1], async + 9999, 1));
    printf("first line\nread %02x %02x\n", bytes[0], bytes[1]);
}

static void write_then_read(uint64_t number)
{
    CUdeviceptr block;
    unsigned char byte = 0;
    (void)number;
    begin_world(&(flw_sim_config){.struct_size = sizeof(flw_sim_config), .backed = 1});
    OK(cuMemAlloc_v2(&block, 10000));
    OK(cuMemsetD8_v2(block, 7, 10000));
    OK(cuMemcpyDtoH_v2(&byte, block + 9999, 1));
    printf("read %02x\n", byte);
}

/* ns and, under callgrind, the instructions between two runs of different lengths. */
static void time_pairs(uint64_t number)
{
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        struct timespec from, to;
        CUdeviceptr block;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (uint64_t i = 0; i < number; i++) {
            if (cuMemAlloc_v2(&block, 4096) != CUDA_SUCCESS ||
                cuMemFree_v2(block) != CUDA_SUCCESS) {
                failures++;
            }
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        double ns = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec);
        best = ns / (double)number < best ? ns / (double)number : best;
        nanosleep(&(struct timespec){.tv_nsec = 100000000},
                  NULL); /* the queued records are written */
    }
    printf("%.1f ns a pair\n", best);
}

/* End a context with the allocations; allocate in another. */
static void alloc_around_reset(uint64_t number)
{
    CUdeviceptr block = 0;
    for (uint64_t i = 0; i < number; i++) {
        OK(cuMemAlloc_v2(&block, 4096));
    }
    OK(cuMemFree_v2(block));
    OK(cuDevicePrimaryCtxReset_v2(0));
    use_device(0);
    OK(cuMemAlloc_v2(&block, 4096));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(uint64_t number);
    } scenarios[] = {{"kinds", alloc_kinds},        {"misuse", misuse},
                     {"two", alloc_on_two},         {"many", alloc_many},
                     {"die", alloc_and_die},        {"leave", alloc_and_leave},
                     {"workers", alloc_and_leave},  {"killed", alloc_and_be_killed},
                     {"linger", alloc_and_linger},  {"fork", alloc_beside_child},
                     {"unwritten", read_unwritten}, {"written", write_then_read},
                     {"time", time_pairs},          {"reset", alloc_around_reset},
                     {"create", create_handles}};
    uint64_t number = argc > 2 ? strtoull(argv[2], NULL, 10) : MANY;
    for (size_t i = 0; argc > 1 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(argv[1], scenarios[i].name) == 0) {
            if (strcmp(argv[1], "workers") == 0 && !begin_workers()) {
                return 0;
            }
            OK(cuInit(0));
            use_device(0);
            scenarios[i].run(number);
            return failures != 0;
        }
    }
    fprintf(stderr, "usage: alloc_client SCENARIO [NUMBER]\n");
    return 2;
}
