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

/* A scenario: calls between create and destroy. A call is a letter and numbers; K and M stand for
 * KiB and MiB.
 *
 *   a BYTES STREAM         allocate           f INDEX  free the block allocated so long ago
 *   q FLAGS BYTES STREAM   with a request     F        free all blocks
 *   u BACK STREAM          announce a use of the block allocated BACK allocations before the last
 *   t BYTES                trim               p        poll
 *   r STREAM               retire             c STREAM capture
 *   w                      finish all work    N[ ... ] repeat, once for each N; not nested */
struct scenario {
    const char *name, *calls;
    size_t limit_bytes;
    fallow_economy economy;
    uint32_t handle_types; /* not 0: needs virtual memory management */
};

static const struct scenario scenarios[] = {
    {"pair", "a 4K 0 a 3M 0 f 0 a 100 1", 0, FALLOW_BALANCED, 0},
    {"growth",
     "5[ a 3M 0 a 700 0 a 6M 1 a 1400 1 a 9M 0 a 5K 0 a 12M 1 a 10K 1 a 15M 0 a 16K 0 ]"
     "a 300M 0 F a 600M 1",
     0, FALLOW_BALANCED, 0},
    {"steal", "4[ a 12M 0 a 5000 0 ] F 4[ a 12M 1 a 5000 1 ] F 4[ a 12M 2 a 5000 2 ] F", 64 * MIB,
     FALLOW_BALANCED, 0},
    /* Before the last block the work is still under way: a wait or a steal. */
    {"remap", "6[ a 10M 0 ] f 0 f 1 f 2 w a 26M 1 F a 60M 1", 64 * MIB, FALLOW_MEMORY_FIRST, 0},
    {"no_room", "a 20M 0 a 20M 1 a 64M 1 F a 30M 2", 32 * MIB, FALLOW_BALANCED, 0},
    {"capture", "a 5000 0 c 0 F c 1 a 3M 2", 0, FALLOW_BALANCED, 0},
    {"trim",
     "a 2M 0 a 4M 1 a 6M 2 a 8M 0 a 10M 1 a 12M 2 a 14M 0 a 16M 1 a 18M 2 a 20M 0 a 22M 1 a 24M 2 "
     "f 3 t 8M F p t 0 a 9M 0",
     0, FALLOW_BALANCED, 0},
    {"retire", "6[ a 4M 0 a 512 0 ] F r 0 3[ a 4M 0 a 512 0 a 4M 1 a 512 1 ] F r 1", 0,
     FALLOW_BALANCED, 0},
    {"announced", "4[ a 7M 0 a 1000 0 u 1 1 u 2 2 ] F p a 50M 0", 64 * MIB, FALLOW_BALANCED, 0},
    {"requests", "q 1 5M 0 q 32 100000 0 q 16 3000 1 q 4 3M 1 F q 1 5M 1", 0, FALLOW_BALANCED,
     FALLOW_HANDLE_FD},
    /* A stream steals complete blocks, blocks that it waits for, blocks in use, neighbours. */
    {"several",
     "2[ a 11M 0 a 3000 0 a 11M 1 a 3000 1 a 11M 0 a 3000 0 a 11M 1 a 3000 1 a 11M 0 a 3000 0 "
     "u 2 2 u 4 0 F a 10M 2 a 40M 2 F w a 30M 0 a 3000 0 a 20M 1 F ]",
     64 * MIB, FALLOW_BALANCED, 0},
};
_Static_assert(FALLOW_REQUEST_EXPORT_FD == 1 && FALLOW_REQUEST_NO_WAIT == 4 &&
                   FALLOW_REQUEST_DEDICATED == 16 && FALLOW_REQUEST_ZERO == 32,
               "the flags in `requests`");

static size_t next_number(const char **at)
{
    char *end = NULL;
    size_t value = strtoull(*at, &end, 10);
    value *= *end == 'K' ? 1024 : *end == 'M' ? MIB : 1;
    *at = end + (*end == 'K' || *end == 'M');
    return value;
}

static void play_call(struct flw_bed *bed, char call, const char **at)
{
    size_t flags = call == 'q' ? next_number(at) : 0;
    size_t first = strchr("Fpw", call) == NULL ? next_number(at) : 0;
    unsigned second = strchr("aqu", call) != NULL ? (unsigned)next_number(at) : 0;
    switch (call) {
    case 'a':
    case 'q':
        flw_bed_alloc_flags(bed, first, second, (uint32_t)flags);
        break;
    case 'f':
        flw_bed_free(bed, (unsigned)first);
        break;
    case 'F':
        flw_bed_free_all(bed);
        break;
    case 'u':
        flw_bed_record_use(bed, bed->count - (unsigned)first, second);
        break;
    case 't':
        flw_bed_trim(bed, first);
        break;
    case 'p':
        flw_bed_poll(bed);
        break;
    case 'r':
        flw_bed_retire(bed, (unsigned)first);
        break;
    case 'c':
        flw_bed_capture(bed, (unsigned)first);
        break;
    case 'w':
        flw_bed_finish_work(bed);
        break;
    default:
        abort();
    }
}

static void play_calls(struct flw_bed *bed, const char *calls)
{
    const char *body = NULL;
    size_t turns = 0;
    for (const char *at = calls; *at != '\0';) {
        if (*at == ' ') {
            at++;
        } else if (*at >= '0' && *at <= '9') {
            turns = next_number(&at);
            body = ++at;
        } else if (*at == ']') {
            at = --turns > 0 ? body : at + 1;
        } else {
            char call = *at++;
            play_call(bed, call, &at);
        }
    }
}

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
    bed.config.limit_bytes = scenario->limit_bytes;
    bed.config.economy = scenario->economy;
    bed.config.handle_types = scenario->handle_types;
    flw_bed_create(&bed);
    play_calls(&bed, scenario->calls);
    flw_bed_destroy(&bed);
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
    if (scenario->handle_types != 0 && !has_vmm(sim)) {
        printf("%s, %s: skipped, the device has no virtual memory management\n", ops->name,
               scenario->name);
        return 0;
    }
    for (unsigned vmm = 0; vmm < (scenario->handle_types != 0 ? 1u : 2u); vmm++) {
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
