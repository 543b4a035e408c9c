/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a set of scenarios in which every driver call of the pool fails, at every position: once
 * or from there on, with each of six errors of a refusing driver; and once with one that breaks
 * the context, the only one that may lose the device.
 *
 *   test_pool_faults [--scenario NAME] [--at N] [--every N]
 *
 * --every N tests every N-th position only, with another start for each error. FALLOW_TEST_ALL=1
 * tests all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault/bed.h"

#define MIB        ((size_t)1 << 20)
#define MOST_CALLS 20000

struct scenario {
    const char *name;
    void (*play)(struct flw_bed *bed);
    bool needs_vmm;
};

static void play_pair(struct flw_bed *bed)
{
    flw_bed_create(bed);
    flw_bed_alloc(bed, 4096, 0);
    flw_bed_alloc(bed, 3 * MIB, 0);
    flw_bed_free(bed, 0);
    flw_bed_alloc(bed, 100, 1);
    flw_bed_destroy(bed);
}

static void play_growth(struct flw_bed *bed)
{
    flw_bed_create(bed);
    for (unsigned i = 0; i < 24; i++) {
        flw_bed_alloc(bed, (i % 5 + 1) * 3 * MIB, i % 2);
        flw_bed_alloc(bed, 700 * (size_t)(i + 1), i % 2);
    }
    flw_bed_alloc(bed, 300 * MIB, 0);
    flw_bed_free_all(bed);
    flw_bed_alloc(bed, 600 * MIB, 1);
    flw_bed_destroy(bed);
}

static void play_steal(struct flw_bed *bed)
{
    bed->config.limit_bytes = 64 * MIB;
    flw_bed_create(bed);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 4; i++) {
            flw_bed_alloc(bed, 12 * MIB, round % 3);
            flw_bed_alloc(bed, 5000, round % 3);
        }
        flw_bed_free_all(bed);
    }
    flw_bed_destroy(bed);
}

static void play_remap(struct flw_bed *bed)
{
    bed->config.limit_bytes = 64 * MIB;
    bed->config.economy = FALLOW_MEMORY_FIRST;
    flw_bed_create(bed);
    for (unsigned i = 0; i < 6; i++) {
        flw_bed_alloc(bed, 10 * MIB, 0);
    }
    flw_bed_free(bed, 0);
    flw_bed_free(bed, 1);
    flw_bed_free(bed, 2);
    flw_bed_finish_work(bed);
    flw_bed_alloc(bed, 26 * MIB, 1);
    flw_bed_free_all(bed);
    flw_bed_alloc(bed, 60 * MIB, 1); /* the work is still under way: a wait or a steal */
    flw_bed_destroy(bed);
}

static void play_no_room(struct flw_bed *bed)
{
    bed->config.limit_bytes = 32 * MIB;
    flw_bed_create(bed);
    flw_bed_alloc(bed, 20 * MIB, 0);
    flw_bed_alloc(bed, 20 * MIB, 1);
    flw_bed_alloc(bed, 64 * MIB, 1);
    flw_bed_free_all(bed);
    flw_bed_alloc(bed, 30 * MIB, 2);
    flw_bed_destroy(bed);
}

static void play_capture(struct flw_bed *bed)
{
    flw_bed_create(bed);
    flw_bed_alloc(bed, 5000, 0);
    flw_bed_capture(bed, 0);
    flw_bed_free_all(bed);
    flw_bed_capture(bed, 1);
    flw_bed_alloc(bed, 3 * MIB, 2);
    flw_bed_destroy(bed);
}

static void play_trim(struct flw_bed *bed)
{
    flw_bed_create(bed);
    for (unsigned i = 0; i < 12; i++) {
        flw_bed_alloc(bed, (i + 1) * 2 * MIB, i % 3);
    }
    flw_bed_free(bed, 3);
    flw_bed_trim(bed, 8 * MIB);
    flw_bed_free_all(bed);
    flw_bed_poll(bed);
    flw_bed_trim(bed, 0);
    flw_bed_alloc(bed, 9 * MIB, 0);
    flw_bed_destroy(bed);
}

static void play_retire(struct flw_bed *bed)
{
    flw_bed_create(bed);
    for (unsigned i = 0; i < 6; i++) {
        flw_bed_alloc(bed, 4 * MIB, 0);
        flw_bed_alloc(bed, 512, 0);
    }
    flw_bed_free_all(bed);
    flw_bed_retire(bed, 0);
    for (unsigned i = 0; i < 6; i++) {
        flw_bed_alloc(bed, 4 * MIB, i % 2);
        flw_bed_alloc(bed, 512, i % 2);
    }
    flw_bed_free_all(bed);
    flw_bed_retire(bed, 1);
    flw_bed_destroy(bed);
}

static void play_announced(struct flw_bed *bed)
{
    bed->config.limit_bytes = 64 * MIB;
    flw_bed_create(bed);
    for (unsigned i = 0; i < 4; i++) {
        flw_bed_alloc(bed, 7 * MIB, 0);
        flw_bed_alloc(bed, 1000, 0);
        flw_bed_record_use(bed, bed->count - 1, 1);
        flw_bed_record_use(bed, bed->count - 2, 2);
    }
    flw_bed_free_all(bed);
    flw_bed_poll(bed);
    flw_bed_alloc(bed, 50 * MIB, 0);
    flw_bed_destroy(bed);
}

/* One stream steals from others: complete blocks, blocks it waits for, blocks in use,
 * neighbours. */
static void play_several(struct flw_bed *bed)
{
    bed->config.limit_bytes = 64 * MIB;
    flw_bed_create(bed);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 5; i++) {
            flw_bed_alloc(bed, 11 * MIB, i % 2);
            flw_bed_alloc(bed, 3000, i % 2);
        }
        flw_bed_record_use(bed, bed->count - 2, 2);
        flw_bed_record_use(bed, bed->count - 4, 0);
        flw_bed_free_all(bed);
        flw_bed_alloc(bed, 10 * MIB, 2);
        flw_bed_alloc(bed, 40 * MIB, 2);
        flw_bed_free_all(bed);
        flw_bed_finish_work(bed);
        flw_bed_alloc(bed, 30 * MIB, 0);
        flw_bed_alloc(bed, 3000, 0);
        flw_bed_alloc(bed, 20 * MIB, 1);
        flw_bed_free_all(bed);
    }
    flw_bed_destroy(bed);
}

static void play_requests(struct flw_bed *bed)
{
    bed->config.handle_types = FALLOW_HANDLE_FD;
    flw_bed_create(bed);
    flw_bed_alloc_flags(bed, 5 * MIB, 0, FALLOW_REQUEST_EXPORT_FD);
    flw_bed_alloc_flags(bed, 100000, 0, FALLOW_REQUEST_ZERO);
    flw_bed_alloc_flags(bed, 3000, 1, FALLOW_REQUEST_DEDICATED);
    flw_bed_alloc_flags(bed, 3 * MIB, 1, FALLOW_REQUEST_NO_WAIT);
    flw_bed_free_all(bed);
    flw_bed_alloc_flags(bed, 5 * MIB, 1, FALLOW_REQUEST_EXPORT_FD);
    flw_bed_destroy(bed);
}

static const struct scenario scenarios[] = {
    {"pair", play_pair, false},           {"growth", play_growth, false},
    {"steal", play_steal, false},         {"remap", play_remap, false},
    {"no_room", play_no_room, false},     {"capture", play_capture, false},
    {"trim", play_trim, false},           {"retire", play_retire, false},
    {"announced", play_announced, false}, {"requests", play_requests, true},
    {"several", play_several, false},
};

enum length {
    ONCE,
    LASTING, /* and every later call */
    STICKY   /* and every later call of the context, which is broken */
};

static const struct {
    CUresult error;
    enum length length;
    bool has_content;
} errors[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, ONCE, false},
    {CUDA_ERROR_OUT_OF_MEMORY, LASTING, false},
    {CUDA_ERROR_NOT_PERMITTED, ONCE, false},
    {CUDA_ERROR_NOT_PERMITTED, LASTING, false},
    {CUDA_ERROR_NOT_SUPPORTED, ONCE, false},
    {CUDA_ERROR_NOT_SUPPORTED, LASTING, false},
    {CUDA_ERROR_INVALID_VALUE, ONCE, false},
    {CUDA_ERROR_INVALID_VALUE, LASTING, false},
    {CUDA_ERROR_OPERATING_SYSTEM, ONCE, false},
    {CUDA_ERROR_OPERATING_SYSTEM, LASTING, false},
    {CUDA_ERROR_UNKNOWN, ONCE, false},
    {CUDA_ERROR_UNKNOWN, LASTING, false},
    {CUDA_ERROR_UNKNOWN, ONCE, true},
    {CUDA_ERROR_UNKNOWN, LASTING, true},
    {CUDA_ERROR_ILLEGAL_ADDRESS, STICKY, false},
};
#define ERRORS (sizeof errors / sizeof *errors)

static const char *const lengths[] = {"once", "from there on", "for good"};

struct failure {
    unsigned error;
    uint64_t at; /* the driver call that fails; 0: none */
    bool without_vmm;
};

/* Run one world with one failure. True if the failure occurred. */
static bool play(const struct flw_sim *sim, const struct flw_put_ops *ops,
                 const struct scenario *scenario, struct failure failure, unsigned *broken)
{
    flw_sim_config world = flw_sim_config_default(failure.at);
    struct flw_bed bed = {.sim = *sim, .put = {ops, NULL}};
    world.device_bytes = 2ull << 30;
    world.schedule = FLW_SIM_HELD;
    world.check = !errors[failure.error].has_content; /* both cost too much */
    world.without_vmm = failure.without_vmm;
    world.backed = errors[failure.error].has_content;
    world.mild = world.backed ? FLW_SIM_MILD_GARBAGE : 0;
    bed.scenario = scenario->name;
    bed.error = errors[failure.error].error;
    bed.sticky = errors[failure.error].length == STICKY;
    bed.lasts = errors[failure.error].length == LASTING;
    bed.has_content = errors[failure.error].has_content;
    bed.fail_at = failure.at;
    flw_sim_begin(sim, &world);
    scenario->play(&bed);
    *broken += bed.broken;
    return bed.has_fired;
}

/* True if the driver in use maps addresses; the attribute is not enough. */
static bool has_vmm(const struct flw_sim *sim)
{
    CUdeviceptr address = 0;
    flw_sim_begin(sim, NULL);
    return sim->cu.cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0) == CUDA_SUCCESS;
}

static unsigned play_all(const struct flw_sim *sim, const struct flw_put_ops *ops,
                         const struct scenario *scenario, uint64_t only_at, uint64_t step)
{
    unsigned broken = 0;
    if (scenario->needs_vmm && !has_vmm(sim)) {
        printf("%s, %s: skipped, the device has no virtual memory management\n", ops->name,
               scenario->name);
        return 0;
    }
    for (unsigned vmm = 0; vmm < (scenario->needs_vmm ? 1u : 2u); vmm++) {
        (void)play(sim, ops, scenario, (struct failure){.without_vmm = vmm == 1}, &broken);
        for (unsigned e = 0; e < ERRORS && broken < 20; e++) {
            uint64_t first = only_at != 0 ? only_at : 1 + e % step, n = first, count = 0;
            while (n < MOST_CALLS &&
                   play(sim, ops, scenario, (struct failure){e, n, vmm == 1}, &broken) &&
                   only_at == 0 && broken < 20) {
                n += step;
                count++;
            }
            if (only_at == 0 && n < 5) {
                fprintf(stderr, "fault.pool: %s made %llu driver calls only: nothing was tested\n",
                        scenario->name, (unsigned long long)n);
                broken++;
            }
            printf("%s, %s, %s, %s %s%s: %llu driver calls failed in turn\n", ops->name,
                   scenario->name, vmm == 1 ? "without vmm" : "vmm",
                   flw_driver_error_name(&sim->cu, errors[e].error), lengths[errors[e].length],
                   errors[e].has_content ? ", contents read" : "", (unsigned long long)count);
        }
    }
    return broken;
}

int main(int count, char **words)
{
    const char *name = NULL;
    uint64_t at = 0, step = 1;
    struct flw_sim sim;
    unsigned broken = 0;
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(words[i], "--scenario") == 0) {
            name = words[i + 1];
        } else if (strcmp(words[i], "--at") == 0) {
            at = strtoull(words[i + 1], NULL, 0);
        } else if (strcmp(words[i], "--every") == 0) {
            step = strtoull(words[i + 1], NULL, 0);
        }
    }
    step = flw_sim_step_of_sample(step);
    if (!flw_sim_open(&sim)) {
        return 1;
    }
    for (size_t s = 0; s < sizeof scenarios / sizeof *scenarios; s++) {
        const struct scenario *scenario = &scenarios[s];
        if (name == NULL || strcmp(name, scenario->name) == 0) {
            broken += play_all(&sim, &flw_put_fallow, scenario, at, step);
        }
    }
    flw_sim_close(&sim);
    return broken != 0;
}
