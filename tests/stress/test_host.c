/* SPDX-License-Identifier: Apache-2.0
 *
 * stress.host: threads allocate, use and release pinned blocks at random, under the rule checker.
 * stress.host_planted is the same program over a build of the library with two faults planted in it:
 * each must be caught, and without them nothing may be.
 *
 *   test_stress_host [--seed N]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stress/host_run.h"

#if defined(FLW_HOST_PLANTS)
#include "host/hostfence.h"

enum flw_host_plant flw_host_plant;
#define PLANTS 3
#else
static unsigned flw_host_plant;
#define PLANTS 1
#endif

static int judge(const struct flw_host_run *run, const struct flw_host_result *result)
{
    bool is_caught = result->violation_count > 0;
    bool is_fine = is_caught == (flw_host_plant != 0) && result->refused_count == 0 &&
                   (flw_host_plant != 0 || result->corrupt_count == 0);
    printf("seed %" PRIu64 ", %u threads, fault %u: %" PRIu64 " blocks, %" PRIu64
           " events, %" PRIu64 " violations, %" PRIu64 " corrupt, %" PRIu64 " refused%s\n",
           run->seed, run->thread_count, (unsigned)flw_host_plant, result->block_count,
           result->event_count, result->violation_count, result->corrupt_count,
           result->refused_count, is_fine ? "" : ": FAILED");
    return is_fine ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct flw_sim sim;
    uint64_t seed = 4711;
    int failed = 0;
    if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
        seed = strtoull(argv[2], NULL, 0);
    }
    if (!flw_sim_open(&sim)) {
        return 1;
    }
    for (unsigned plant = 0; plant < PLANTS; plant++) {
        flw_host_plant = plant;
        for (unsigned threads = 1; threads <= (PLANTS > 1 ? 1 : 4); threads *= 2) {
            struct flw_host_run run = {
                .seed = seed + threads, .thread_count = threads, .op_count = 6000 / threads};
            struct flw_host_result result = flw_host_run(&sim, &run);
            if (flw_host_plant == 0) {
                (void)flw_sim_print_violations(&sim);
            }
            failed |= judge(&run, &result);
        }
    }
    flw_sim_close(&sim);
    return failed;
}
