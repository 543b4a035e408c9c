/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a plain client of the CUDA driver, not built for Fallow: it finds the driver in one of
 * several ways, uses the memory in one of several, and checks the contents.
 *
 *   plain WAY WHAT
 *     WAY   linked | dlopen | path:FILE | default | lookup     (linked: built with -DLINKED -lcuda)
 *     WHAT  verify | fork-before | fork-after | destructor | reset | contexts
 *
 * Prints the same lines with any allocator, without addresses and times. Exit: 0 done, 1 a foreign
 * value or a failed call, 2 bad usage, 77 no driver or no device. It does not use Fallow. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/driver_types.h"
#include "fallow/simcuda.h"

/* X(exported name, the driver version of the interface, parameters) */
#undef cuDevicePrimaryCtxReset
#define ENTRIES(X)                                                                  \
    X(cuInit, 2000, (unsigned flags))                                               \
    X(cuDeviceGet, 2000, (CUdevice * device, int ordinal))                          \
    X(cuDevicePrimaryCtxRetain, 7000, (CUcontext * context, CUdevice device))       \
    X(cuDevicePrimaryCtxReset_v2, 11000, (CUdevice device))                         \
    X(cuCtxSetCurrent, 4000, (CUcontext context))                                   \
    X(cuCtxCreate_v2, 3020, (CUcontext * context, unsigned flags, CUdevice device)) \
    X(cuCtxDestroy_v2, 4000, (CUcontext context))                                   \
    X(cuCtxSynchronize, 2000, (void))                                               \
    X(cuStreamCreate, 2000, (CUstream * stream, unsigned flags))                    \
    X(cuStreamDestroy_v2, 4000, (CUstream stream))                                  \
    X(cuMemAlloc_v2, 3020, (CUdeviceptr * pointer, size_t bytes))                   \
    X(cuMemFree_v2, 3020, (CUdeviceptr pointer))                                    \
    X(cuMemsetD32Async, 3020,                                                       \
      (CUdeviceptr pointer, unsigned value, size_t count, CUstream stream))         \
    X(cuMemcpyDtoH_v2, 3020, (void *to, CUdeviceptr from, size_t bytes))

static struct {
#define X(symbol, since, parameters) CUresult(CUDAAPI *symbol) parameters;
    ENTRIES(X)
#undef X
} cu;

#if defined(LINKED)
#define X(symbol, since, parameters) extern CUresult CUDAAPI symbol parameters;
ENTRIES(X)
#undef X
#endif

static void *find(void *object, const char *symbol)
{
    void *address = dlsym(object, symbol);
    if (address == NULL) {
        fprintf(stderr, "plain: no %s: %s\n", symbol, dlerror());
        exit(77);
    }
    return address;
}

static void *open_driver(const char *name, int flags)
{
    void *object = dlopen(name, RTLD_NOW | flags);
    if (object == NULL) {
        fprintf(stderr, "plain: %s\n", dlerror());
        exit(77);
    }
    return object;
}

/* Through cuGetProcAddress, as runtimes do. */
static void look_up(void *object)
{
    CUresult(CUDAAPI * get)(const char *symbol, void **function, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult *status);
    void *address = find(object, "cuGetProcAddress_v2");
    memcpy(&get, &address, sizeof address);
#define X(symbol, since, parameters)                                                     \
    {                                                                                    \
        char base[] = #symbol;                                                           \
        char *suffix = strstr(base, "_v2");                                              \
        CUdriverProcAddressQueryResult status;                                           \
        if (suffix != NULL) {                                                            \
            *suffix = '\0';                                                              \
        }                                                                                \
        if (get(base, &address, since, 0, &status) != CUDA_SUCCESS || address == NULL) { \
            fprintf(stderr, "plain: no %s\n", base);                                     \
            exit(77);                                                                    \
        }                                                                                \
        memcpy(&cu.symbol, &address, sizeof address);                                    \
    }
    ENTRIES(X)
#undef X
}

static void fill_table(void *object)
{
    void *address;
#define X(symbol, since, parameters) \
    address = find(object, #symbol); \
    memcpy(&cu.symbol, &address, sizeof address);
    ENTRIES(X)
#undef X
}

static bool reach(const char *way)
{
    if (strcmp(way, "linked") == 0) {
#if defined(LINKED)
#define X(symbol, since, parameters) cu.symbol = symbol;
        ENTRIES(X)
#undef X
        return true;
#else
        return false;
#endif
    }
    if (strcmp(way, "dlopen") == 0) {
        fill_table(open_driver("libcuda.so.1", RTLD_LOCAL));
    } else if (strncmp(way, "path:", 5) == 0) {
        fill_table(open_driver(way + 5, RTLD_LOCAL));
    } else if (strcmp(way, "default") == 0) {
        (void)open_driver("libcuda.so.1", RTLD_GLOBAL);
        fill_table(RTLD_DEFAULT);
    } else if (strcmp(way, "lookup") == 0) {
        look_up(open_driver("libcuda.so.1", RTLD_LOCAL));
    } else {
        return false;
    }
    return true;
}

/* Configure the simulated driver to store contents. */
static void give_contents(void)
{
    void *object = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *address = object == NULL ? NULL : dlsym(object, "flw_sim_reset");
    if (address != NULL) {
        flw_sim_reset_function reset;
        flw_sim_config config = {.struct_size = sizeof config, .seed = 1, .backed = 1};
        config.device_bytes = (uint64_t)4 << 30;
        memcpy(&reset, &address, sizeof address);
        reset(&config);
    }
}

static void must(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        printf("%s answered %d\n", call, (int)result);
        exit(1);
    }
}
#define MUST(call) must(cu.call, #call)

static CUdevice device;

static void begin(void)
{
    CUcontext context;
    CUresult result = cu.cuInit(0);
    if (result == CUDA_ERROR_NO_DEVICE) {
        fprintf(stderr, "plain: no device\n");
        exit(77);
    }
    must(result, "cuInit");
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
}

/* ---- blocks with random lifetimes and distinct values */

#define BLOCKS  64
#define STREAMS 3
#define EDGE    1024 /* words looked at, at both ends */

struct block {
    CUdeviceptr pointer;
    size_t words;
    unsigned value;
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

static unsigned look(const struct block *block)
{
    static unsigned words[EDGE];
    size_t count = block->words < EDGE ? block->words : EDGE;
    unsigned foreign = 0;
    for (int end = 0; end < 2; end++) {
        size_t first = end == 0 ? 0 : block->words - count;
        MUST(cuMemcpyDtoH_v2(words, block->pointer + first * 4, count * 4));
        for (size_t i = 0; i < count; i++) {
            foreign += words[i] != block->value;
        }
    }
    return foreign;
}

/* Frees right behind the work, as a native free allows; then looks at a block that lives. */
static void verify(const char *name, unsigned operations)
{
    struct block blocks[BLOCKS] = {{0}};
    CUstream streams[STREAMS];
    uint64_t random = 7;
    unsigned foreign = 0, looks = 0, sum = 0;
    for (int i = 0; i < STREAMS; i++) {
        MUST(cuStreamCreate(&streams[i], 1)); /* non-blocking */
    }
    for (unsigned i = 1; i <= operations; i++) {
        struct block *block = &blocks[next_random(&random) % BLOCKS];
        if (block->pointer != 0) {
            MUST(cuMemFree_v2(block->pointer));
        }
        block->words = 1 + next_random(&random) % ((size_t)1 << (4 + next_random(&random) % 16));
        block->value = i * 2654435761u;
        MUST(cuMemAlloc_v2(&block->pointer, block->words * 4));
        MUST(cuMemsetD32Async(block->pointer, block->value, block->words,
                              streams[next_random(&random) % STREAMS]));
        if (i % 16 == 0) {
            const struct block *seen = &blocks[next_random(&random) % BLOCKS];
            if (seen->pointer != 0) {
                MUST(cuCtxSynchronize());
                foreign += look(seen);
                sum = sum * 31 + seen->value;
                looks++;
            }
        }
    }
    MUST(cuCtxSynchronize());
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].pointer != 0) {
            foreign += look(&blocks[i]);
            MUST(cuMemFree_v2(blocks[i].pointer));
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        MUST(cuStreamDestroy_v2(streams[i]));
    }
    printf("%s: %u blocks, %u looks, %u foreign words, sum %08x\n", name, operations, looks,
           foreign, sum);
    fflush(stdout);
    if (foreign != 0) {
        exit(1);
    }
}

/* ---- other actions of programs */

static void wait_for(pid_t child, const char *name)
{
    int status = -1;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
        printf("%s: the child was killed\n", name);
        exit(1);
    }
    printf("%s: the child ended with %d\n", name, WEXITSTATUS(status));
}

static void fork_before(void)
{
    pid_t child = fork();
    if (child == 0) {
        give_contents();
        begin();
        verify("child", 100);
        exit(0);
    }
    wait_for(child, "fork before cuInit");
    give_contents();
    begin();
    verify("parent", 100);
}

static void fork_after(void)
{
    CUdeviceptr pointer = 0, kept;
    give_contents();
    begin();
    verify("parent", 100); /* a cache has something by now */
    MUST(cuMemAlloc_v2(&kept, 4096));
    pid_t child = fork();
    if (child == 0) { /* CUDA does not work in it; no call may appear to succeed */
        CUresult result = cu.cuMemAlloc_v2(&pointer, 4096);
        CUresult freed = cu.cuMemFree_v2(kept);
        printf("child: cuMemAlloc %s, cuMemFree %s\n",
               result == CUDA_SUCCESS ? "answers" : "is refused",
               freed == CUDA_SUCCESS ? "answers" : "is refused");
        fflush(stdout);
        _exit(0);
    }
    wait_for(child, "fork after cuInit");
    MUST(cuMemFree_v2(kept));
    verify("parent", 100);
}

static CUdeviceptr kept_to_the_end;

__attribute__((destructor)) static void free_late(void)
{
    if (kept_to_the_end != 0) {
        CUresult result = cu.cuMemFree_v2(kept_to_the_end);
        bool is_fine = result == CUDA_SUCCESS || result == CUDA_ERROR_DEINITIALIZED;
        fprintf(stderr, "plain: 11: cuMemFree in a destructor: %d\n", (int)result);
        printf("free in a destructor: %s\n", is_fine ? "accepted" : "refused");
        fflush(stdout);
    }
}

static void end_with_a_block(void)
{
    give_contents();
    begin();
    verify("before the end", 100);
    MUST(cuMemAlloc_v2(&kept_to_the_end, 4096));
}

static void reset(void)
{
    CUdeviceptr pointer;
    CUcontext context;
    give_contents();
    begin();
    verify("before the reset", 100);
    MUST(cuMemAlloc_v2(&pointer, 4096));
    MUST(cuDevicePrimaryCtxReset_v2(device));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    printf("a pointer from before the reset: %s\n",
           cu.cuMemFree_v2(pointer) == CUDA_SUCCESS ? "accepted" : "refused");
    verify("after the reset", 100);
}

static void contexts(void)
{
    CUcontext one, two;
    CUdeviceptr pointer;
    give_contents();
    begin();
    MUST(cuCtxCreate_v2(&one, 0, device));
    verify("one", 100);
    MUST(cuMemAlloc_v2(&pointer, 4096));
    MUST(cuCtxCreate_v2(&two, 0, device));
    verify("two", 100);
    MUST(cuMemFree_v2(pointer)); /* of the other context */
    MUST(cuMemAlloc_v2(&pointer, 4096));
    MUST(cuCtxDestroy_v2(two)); /* with a live block */
    MUST(cuCtxSetCurrent(one));
    printf("a pointer of a destroyed context: %s\n",
           cu.cuMemFree_v2(pointer) == CUDA_SUCCESS ? "accepted" : "refused");
    verify("one again", 100);
    MUST(cuCtxDestroy_v2(one));
}

static void just_verify(void)
{
    give_contents();
    begin();
    verify("verify", 800);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } things[] = {{"verify", just_verify},    {"fork-before", fork_before},
                  {"fork-after", fork_after}, {"destructor", end_with_a_block},
                  {"reset", reset},           {"contexts", contexts}};
    if (argc == 3 && reach(argv[1])) {
        for (size_t i = 0; i < sizeof things / sizeof *things; i++) {
            if (strcmp(things[i].name, argv[2]) == 0) {
                things[i].run();
                return 0;
            }
        }
    }
    fprintf(stderr,
            "usage: plain linked|dlopen|path:FILE|default|lookup WHAT (see the head of plain.c)\n");
    return 2;
}
