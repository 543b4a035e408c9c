/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the stress programs share: the settings of a run and the run itself.
 */
#ifndef FLW_TESTS_STRESS_RUN_H
#define FLW_TESTS_STRESS_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "support/client.h"

#define STRESS_SHARED_STREAMS 2
#define STRESS_MOST_THREADS   16

struct stress_settings {
    const char *pool, *record; /* a trace file of the run; NULL: none */
    uint64_t seed, ops, threads, streams, live, limit_bytes, most_bytes, device_bytes, lag_ns;
    uint64_t economy, reuse, checks, validate_every, trace_address;
    flw_sim_schedule schedule;
    bool capture, retire, check, without_vmm;
};

/* The defaults, then the words of a command line, the program's name first. Ends the program with 2
 * where a word is not understood. */
struct stress_settings stress_parse(int count, char **words);

/* The exit status: 0 clean, 1 a rule was broken (said on stderr), 2 no simulated device. */
int stress_run(const struct stress_settings *settings);

#endif
