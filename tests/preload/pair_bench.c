/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cost of allocating and freeing through the driver's entry points: nanoseconds on the
 * host, and, on the simulated driver, the modelled time and the number of calls in an epoch. Does
 * not: know whether it is preloaded.
 *
 *   pair_bench WHAT [BYTES] [COUNT]
 *
 *   pair    allocate and free one block          loop   the same without a call
 *   id      query the context's id               churn  replace a random one of 64 blocks, 512 B..64 MiB */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver/driver_types.h"

#include "fallow/simcuda.h"

#define LIVE 64

static struct {
    CUresult (*init)(unsigned flags);
    CUresult (*retain)(CUcontext *context, CUdevice device);
    CUresult (*set_current)(CUcontext context);
    CUresult (*get_id)(CUcontext context, unsigned long long *id);
    CUresult (*alloc)(CUdeviceptr *pointer, size_t bytes);
    CUresult (*free)(CUdeviceptr pointer);
    flw_sim_reset_function reset; /* NULL: not the simulated driver */
    flw_sim_ledger_function ledger;
    flw_sim_calls_function calls;
} cu;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void find(void *driver, const char *name, void *out)
{
    void *address = dlsym(driver, name);
    memcpy(out, &address, sizeof address);
}

static void must(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "pair_bench: %s answered %d\n", call, (int)result);
        exit(1);
    }
}
#define MUST(call) must(cu.call, #call)

static void begin(void)
{
    CUcontext context;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == NULL) {
        fprintf(stderr, "pair_bench: %s\n", dlerror());
        exit(1);
    }
    find(driver, "cuInit", &cu.init);
    find(driver, "cuDevicePrimaryCtxRetain", &cu.retain);
    find(driver, "cuCtxSetCurrent", &cu.set_current);
    find(driver, "cuCtxGetId", &cu.get_id);
    find(driver, "cuMemAlloc_v2", &cu.alloc);
    find(driver, "cuMemFree_v2", &cu.free);
    find(driver, "flw_sim_reset", &cu.reset);
    find(driver, "flw_sim_get_ledger", &cu.ledger);
    find(driver, "flw_sim_call_count", &cu.calls);
    if (cu.reset != NULL) {
        flw_sim_config config = {.struct_size = sizeof config, .schedule = FLW_SIM_CLOCK};
        cu.reset(&config);
    }
    MUST(init(0));
    MUST(retain(&context, 0));
    MUST(set_current(context));
}

/* ---- loops */

static void pairs(size_t bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        CUdeviceptr pointer;
        MUST(alloc(&pointer, bytes));
        MUST(free(pointer));
    }
}

static void ids(size_t bytes, uint64_t count)
{
    (void)bytes;
    for (uint64_t i = 0; i < count; i++) {
        unsigned long long id;
        MUST(get_id(NULL, &id));
    }
}

static void nothing(size_t bytes, uint64_t count)
{
    (void)bytes;
    for (uint64_t i = 0; i < count; i++) {
        __asm__ volatile("" ::: "memory");
    }
}

static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    return x ^ (x >> 27);
}

static void churn(size_t bytes, uint64_t count)
{
    static CUdeviceptr blocks[LIVE];
    static uint64_t state = 1;
    (void)bytes;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = draw(&state) % LIVE, size = (uint64_t)512 << draw(&state) % 18;
        if (blocks[at] != 0) {
            MUST(free(blocks[at]));
        }
        MUST(alloc(&blocks[at], size));
    }
}

/* ---- run */

static uint64_t modelled_ns(void)
{
    flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    if (cu.ledger == NULL) {
        return 0;
    }
    cu.ledger(0, &ledger);
    return ledger.modelled_host_ns;
}

static uint64_t calls(const char *entry)
{
    return cu.calls == NULL ? 0 : cu.calls(entry);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(size_t bytes, uint64_t count);
    } loops[] = {{"pair", pairs}, {"id", ids}, {"loop", nothing}, {"churn", churn}};
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 0) : 4096;
    uint64_t count = argc > 3 ? strtoull(argv[3], NULL, 0) : 1000000;
    for (size_t i = 0; i < sizeof loops / sizeof *loops; i++) {
        if (argc > 1 && strcmp(argv[1], loops[i].name) == 0 && count > 0) {
            begin();
            loops[i].run(bytes, 20000); /* warm */
            uint64_t records = calls("cuCtxRecordEvent"), queries = calls("cuEventQuery");
            uint64_t modelled = modelled_ns(), begin_ns = now_ns();
            loops[i].run(bytes, count);
            uint64_t ns = now_ns() - begin_ns;
            printf("%s bytes %zu count %llu ns %.1f modelled_ns %.1f records_per_256 %.2f "
                   "queries_per_256 %.2f\n",
                   argv[1], bytes, (unsigned long long)count, (double)ns / (double)count,
                   (double)(modelled_ns() - modelled) / (double)count,
                   256.0 * (double)(calls("cuCtxRecordEvent") - records) / (double)count,
                   256.0 * (double)(calls("cuEventQuery") - queries) / (double)count);
            return 0;
        }
    }
    fprintf(stderr, "usage: pair_bench pair|id|loop|churn [BYTES] [COUNT]\n");
    return 2;
}
