/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: helpers of the preloaded tests of pools: the driver as the program sees it, the calls, and
 * a process for each case, because a driver is initialised once in each process. */
#ifndef FLW_TESTS_PRELOAD_POOL_BED_H
#define FLW_TESTS_PRELOAD_POOL_BED_H

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

static inline void expect_at(int line, bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "  line %d: %s\n", line, what);
        is_wrong = true;
    }
}
#define EXPECT(condition) expect_at(__LINE__, (condition), #condition)
#define MUST(call)        expect_at(__LINE__, (call) == CUDA_SUCCESS, #call)

static inline void begin_world(const flw_sim_config *config)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    if (flw_driver_open(&sim.cu, NULL, message) != FALLOW_OK || !flw_sim_find_controls(&sim)) {
        fprintf(stderr, "  no simulated driver: %s\n", message);
        exit(2);
    }
    context = flw_sim_begin(&sim, config);
}

static inline void begin(void)
{
    flw_sim_config config = flw_sim_config_default(3);
    config.schedule = FLW_SIM_HELD;
    config.device_bytes = 4 * GIB;
    config.device_count = 2;
    begin_world(&config);
}

static inline CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr pointer = 0;
    MUST(sim.cu.cuMemAlloc_v2(&pointer, bytes));
    return pointer;
}

static inline void free_block(CUdeviceptr pointer)
{
    MUST(sim.cu.cuMemFree_v2(pointer));
}

static inline uint64_t calls(const char *entry)
{
    return sim.call_count(entry);
}

static inline CUstream hidden_stream(void)
{
    CUstream stream = NULL;
    MUST(sim.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static inline void give_work(CUstream stream)
{
    EXPECT(sim.touch(stream, NULL, 0) == 0);
}

static inline void free_many(size_t bytes, size_t count)
{
    static CUdeviceptr blocks[4096];
    for (size_t i = 0; i < count; i++) {
        blocks[i] = allocate(bytes);
    }
    for (size_t i = 0; i < count; i++) {
        free_block(blocks[i]);
    }
}

static inline bool comes_again(CUdeviceptr pointer, size_t bytes, size_t count)
{
    bool is_met = false;
    for (size_t i = 0; i < count && !is_met; i++) {
        is_met = allocate(bytes) == pointer;
    }
    return is_met;
}

/* ---- cases */

struct pool_case {
    const char *name;
    void (*run)(void);
    const char *group; /* ctest runs one group under the settings */
};
#define CASE(group, name)  \
    {                      \
#name, name, group \
    }

/* Run a case in a process with an unused driver. True if it passes. */
static inline bool passes(const struct pool_case *one)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        one->run();
        exit(is_wrong);
    }
    int status = 0;
    bool is_right = waitpid(child, &status, 0) == child && status == 0;
    printf("%s %s%s\n", is_right ? "ok    " : "FAILED", one->name,
           WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "");
    return is_right;
}

/* Run the cases of a group, argv[1] ("cache"), or one of them, argv[2]. Returns the exit status. */
static inline int pool_main(const struct pool_case *cases, size_t count, int argc, char **argv)
{
    const char *group = argc > 1 ? argv[1] : "cache", *only = argc > 2 ? argv[2] : NULL;
    size_t failed = 0, ran = 0;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(cases[i].group, group) == 0 &&
            (only == NULL || strcmp(cases[i].name, only) == 0)) {
            ran++;
            failed += !passes(&cases[i]);
        }
    }
    printf("%zu of %zu cases failed\n", failed, ran);
    return failed != 0 || ran == 0;
}

#endif
