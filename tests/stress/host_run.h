/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a random run of libfallow-host under the rule checker, on several threads. Returns the
 * number of broken rules. */
#ifndef FLW_TESTS_STRESS_HOST_RUN_H
#define FLW_TESTS_STRESS_HOST_RUN_H

#include <stdint.h>

#include "support/sim.h"

struct flw_host_run {
    uint64_t seed;
    unsigned thread_count;
    unsigned op_count; /* of each thread */
};

struct flw_host_result {
    uint64_t violation_count; /* of the device's rules: a block was used by two at once */
    uint64_t corrupt_count;   /* blocks that held another's bytes */
    uint64_t refused_count;   /* calls with an answer that must not be */
    uint64_t block_count, event_count;
};

struct flw_host_result flw_host_run(struct flw_sim *sim, const struct flw_host_run *run);

#endif
