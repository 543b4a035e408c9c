/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a program for the audit's tests. It opens the driver by name, executes the argument, and
 * checks its own results: exit code 0 if right, else 1. It does not know the preload library; the
 * kernels of the simulated driver are C functions. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/driver_types.h"
#include "driver/entry_points.h"

#include "fallow/simcuda.h"

#define WORDS 1024
#define BYTES (WORDS * sizeof(uint32_t))
#define PLACE __attribute__((noinline)) /* makes each caller a call site of its own */

#define FILL_KERNEL                                                                              \
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEvi" \
    "T0_T1_"

static struct {
#define X(need, symbol, since, before, parameters) CUresult(CUDAAPI *symbol) parameters;
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
    flw_sim_reset_function reset;
    flw_sim_register_function register_twin;
    flw_sim_parameters_function parameters;
    flw_sim_load_function load;
    flw_sim_store_function store;
} cu;

static void must(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "audit_client: %s: %d\n", call, (int)result);
        exit(3);
    }
}

#define MUST(call) must(cu.call, #call)

static void find(void *driver, const char *name, void *out)
{
    void *address = dlsym(driver, name);
    memcpy(out, &address, sizeof address);
}

static void begin(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CUcontext context = NULL;
    if (driver == NULL) {
        fprintf(stderr, "audit_client: %s\n", dlerror());
        exit(3);
    }
#define X(need, symbol, since, before, parameters) find(driver, #symbol, &cu.symbol);
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
    find(driver, "flw_sim_reset", &cu.reset);
    find(driver, "flw_sim_register", &cu.register_twin);
    find(driver, "flw_sim_parameters", &cu.parameters);
    find(driver, "flw_sim_load", &cu.load);
    find(driver, "flw_sim_store", &cu.store);
    flw_sim_config config = {.struct_size = sizeof config, .backed = 1};
    cu.reset(&config);
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
}

static CUdeviceptr allocate(void)
{
    CUdeviceptr pointer = 0;
    MUST(cuMemAlloc_v2(&pointer, BYTES));
    return pointer;
}

/* Does the block hold value + step * i? */
static bool holds(CUdeviceptr pointer, uint32_t value, uint32_t step)
{
    uint32_t words[WORDS];
    MUST(cuMemcpyDtoH_v2(words, pointer, BYTES));
    for (uint32_t i = 0; i < WORDS; i++) {
        if (words[i] != value + step * i) {
            return false;
        }
    }
    return true;
}

static void upload(CUdeviceptr pointer, uint32_t value, uint32_t step)
{
    uint32_t words[WORDS];
    for (uint32_t i = 0; i < WORDS; i++) {
        words[i] = value + step * i;
    }
    MUST(cuMemcpyHtoD_v2(pointer, words, BYTES));
}

/* ---- kernels */

/* (address, value): adds to every word */
static void add_twin(flw_sim_launch *launch, void **parameters)
{
    uint64_t address;
    uint32_t value, words[WORDS];
    memcpy(&address, parameters[0], sizeof address);
    memcpy(&value, parameters[1], sizeof value);
    cu.load(launch, "to", words, address, BYTES);
    for (uint32_t i = 0; i < WORDS; i++) {
        words[i] += value;
    }
    cu.store(launch, "to", address, words, BYTES);
}

/* (int count, float value, address) */
static void fill_twin(flw_sim_launch *launch, void **parameters)
{
    int count;
    uint64_t address;
    memcpy(&count, parameters[0], sizeof count);
    memcpy(&address, parameters[2], sizeof address);
    for (int i = 0; i < count; i++) {
        cu.store(launch, "data", address + 4 * (uint64_t)i, parameters[1], 4);
    }
}

static CUfunction kernel(const char *name, flw_sim_twin twin, const size_t *bytes, size_t count)
{
    CUmodule module = NULL;
    CUfunction function = NULL;
    cu.register_twin(name, twin);
    if (bytes != NULL) {
        cu.parameters(name, count, bytes);
    }
    MUST(cuModuleLoadData(&module, name));
    MUST(cuModuleGetFunction(&function, module, name));
    return function;
}

static CUfunction add_kernel(bool is_readable)
{
    static const size_t bytes[] = {8, 4};
    return kernel(is_readable ? "add" : "add_unreadable", add_twin, is_readable ? bytes : NULL, 2);
}

static void launch_add(CUfunction function, CUdeviceptr pointer, uint32_t value)
{
    void *parameters[] = {&pointer, &value};
    MUST(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
}

/* ---- scenarios; true if the results are right */

static PLACE void zero_for_the_sum(CUdeviceptr pointer)
{
    MUST(cuMemsetD8_v2(pointer, 0, BYTES));
}

static PLACE void zero_for_nothing(CUdeviceptr pointer)
{
    MUST(cuMemsetD32Async(pointer, 0, WORDS, NULL));
    __asm__ volatile("");
}

/* One fill with zeros that are summed, three of a block that is overwritten completely. */
static bool do_two(void)
{
    volatile int count = 3;
    CUfunction add = add_kernel(true);
    CUdeviceptr sum = allocate();
    zero_for_the_sum(sum);
    launch_add(add, sum, 5);
    launch_add(add, sum, 6);
    bool is_right = holds(sum, 11, 0);
    for (int i = 0; i < count; i++) {
        CUdeviceptr block = allocate();
        zero_for_nothing(block);
        upload(block, 1, 1);
        is_right &= holds(block, 1, 1);
        MUST(cuMemFree_v2(block));
    }
    MUST(cuMemFree_v2(sum));
    return is_right;
}

/* Every fill follows another access to the block, or writes other bytes than zeros. */
static bool do_touched(void)
{
    CUfunction add = add_kernel(true);
    CUdeviceptr block = allocate(), other = allocate();
    upload(block, 3, 0);
    zero_for_the_sum(block);
    bool is_right = holds(block, 0, 0);
    MUST(cuMemsetD8_v2(other, 1, BYTES));
    zero_for_the_sum(other);
    MUST(cuMemFree_v2(other));
    other = allocate();
    launch_add(add, other, 1);
    zero_for_the_sum(other);
    return is_right && holds(other, 0, 0);
}

static PLACE bool do_kernel(void)
{
    static const size_t bytes[] = {4, 4, 8};
    CUfunction fill = kernel(FILL_KERNEL, fill_twin, bytes, 3);
    CUdeviceptr block = allocate();
    int count = WORDS;
    float value = 0.0f;
    void *parameters[] = {&count, &value, &block};
    MUST(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
    return holds(block, 0, 0);
}

/* A launch with unreadable arguments between allocation and fill of a block. */
static bool do_unreadable(void)
{
    CUfunction add = add_kernel(false);
    CUdeviceptr block = allocate(), other = allocate();
    launch_add(add, other, 1);
    zero_for_the_sum(block);
    CUdeviceptr later = allocate();
    zero_for_nothing(later);
    return holds(block, 0, 0) && holds(later, 0, 0);
}

static bool do_buffer(void)
{
    CUfunction add = add_kernel(true);
    CUdeviceptr block = allocate(), other = allocate();
    struct {
        CUdeviceptr to;
        uint32_t value;
    } arguments = {block, 1};
    size_t bytes = sizeof arguments;
    uintptr_t pointer_name = 1, size_name = 2; /* CU_LAUNCH_PARAM_BUFFER_... */
    void *extra[] = {(void *)pointer_name, &arguments, (void *)size_name, &bytes, NULL};
    MUST(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra));
    zero_for_the_sum(block);
    zero_for_nothing(other);
    return holds(block, 0, 0);
}

static bool do_graph(void)
{
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CUstream stream = NULL;
    CUdeviceptr block = allocate(), other = allocate(), unlaunched = allocate();
    CUfunction add = add_kernel(true);
    uint32_t value = 4;
    void *parameters[] = {&unlaunched, &value};
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    MUST(cuMemsetD32Async(block, 0, WORDS, stream));
    MUST(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
    MUST(cuStreamEndCapture(stream, &graph));
    zero_for_nothing(unlaunched); /* the graph has not run */
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    MUST(cuGraphLaunch(executable, stream));
    MUST(cuStreamSynchronize(stream));
    zero_for_the_sum(other);
    CUdeviceptr later = allocate();
    zero_for_nothing(later);
    return holds(block, 0, 0) && holds(other, 0, 0) && holds(unlaunched, 4, 0);
}

/* The driver does not report which blocks ended with a context: here none did. */
static bool do_context(void)
{
    CUcontext other = NULL, first = NULL;
    CUdeviceptr block = allocate();
    MUST(cuCtxGetCurrent(&first));
    MUST(cuCtxCreate_v2(&other, 0, 0));
    MUST(cuCtxDestroy_v2(other));
    MUST(cuCtxSetCurrent(first));
    zero_for_the_sum(block);
    zero_for_nothing(allocate());
    return holds(block, 0, 0);
}

static void *fill_in_a_thread(void *context)
{
    MUST(cuCtxSetCurrent(context));
    volatile int count = 100;
    for (int i = 0; i < count; i++) {
        CUdeviceptr block = allocate();
        zero_for_nothing(block);
        zero_for_the_sum(block);
        MUST(cuMemFree_v2(block));
    }
    return NULL;
}

static bool do_threads(void)
{
    pthread_t threads[4];
    CUcontext context = NULL;
    MUST(cuCtxGetCurrent(&context));
    for (int i = 0; i < 4; i++) {
        if (pthread_create(&threads[i], NULL, fill_in_a_thread, context) != 0) {
            return false;
        }
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    return true;
}

static bool do_killed(void)
{
    zero_for_nothing(allocate());
    raise(SIGKILL);
    return false;
}

/* Two processes, each with a device of its own. */
static bool do_processes(void)
{
    pid_t child = fork();
    begin();
    zero_for_nothing(allocate());
    int status = 0;
    if (child == 0) {
        _exit(0);
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

/* The child of a process that has used the device does not use it; the parent continues. */
static bool do_forked(void)
{
    zero_for_nothing(allocate());
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        exit(0);
    }
    waitpid(child, &status, 0);
    zero_for_the_sum(allocate());
    return status == 0;
}

static bool do_nothing(void)
{
    return true;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        bool (*run)(void);
    } deeds[] = {{"two", do_two},         {"touched", do_touched},
                 {"kernel", do_kernel},   {"unreadable", do_unreadable},
                 {"buffer", do_buffer},   {"graph", do_graph},
                 {"threads", do_threads}, {"killed", do_killed},
                 {"context", do_context}, {"forked", do_forked},
                 {"none", do_nothing},    {"processes", do_processes}};
    for (size_t i = 0; argc == 2 && i < sizeof deeds / sizeof *deeds; i++) {
        if (strcmp(argv[1], deeds[i].name) == 0) {
            if (strcmp(argv[1], "processes") != 0) {
                begin();
            }
            bool is_right = deeds[i].run();
            puts(is_right ? "right" : "wrong");
            return is_right ? 0 : 1;
        }
    }
    fprintf(stderr, "usage: audit_client DEED\n");
    return 2;
}
