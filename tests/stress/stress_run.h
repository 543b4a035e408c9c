/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the settings of a stress run and the run itself, shared by the stress programs. */
#ifndef FLW_TESTS_STRESS_RUN_H
#define FLW_TESTS_STRESS_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "support/client.h"

#define STRESS_SHARED_STREAMS 2
#define STRESS_MOST_THREADS   16

struct stress_settings {
    const char *record; /* a trace file of the run; NULL: none */
    uint64_t seed, ops, threads, streams, live, limit_bytes, most_bytes, device_bytes, lag_ns;
    uint64_t economy, reuse, checks, validate_every, trace_address;
    uint64_t order, decay_ms;
    uint64_t one_handle_bytes;
    uint64_t range_bytes; /* largest address range that the driver reserves, with handles; 0: any */
    uint64_t dies;   /* 1: set streams_may_die; half of the destroyed streams die unannounced */
    uint64_t faults; /* the driver refuses one in `faults` calls; 0: none */
    uint64_t rounds; /* each in a new world, with the next seed */
    flw_sim_schedule schedule;
    bool capture, retire, check, without_vmm;
    bool sleep;       /* the pool sleeps and wakes in the middle */
    bool share;       /* exports, imports by a second pool, changing peers */
    bool foreign;     /* work of other contexts, which end */
    bool helper, oom; /* the pool's own thread; a callback that frees where there is no room */
    bool reset;       /* at the end the primary context ends under the pool */
    bool draw;        /* the seed chooses all of these, round by round */
};

/* The defaults, then the words of a command line, the program's name first. Ends the program with 2
 * where a word is not understood. */
struct stress_settings stress_parse(int count, char **words);

/* Choose all settings but the size of a run by the seed, in valid combinations. */
void stress_draw(struct stress_settings *settings);
/* The command that repeats the run, on stderr. */
void stress_print(const struct stress_settings *settings);

/* Return the exit status: 0 clean, 1 a rule was broken (reported on stderr), 2 no simulated
 * device. */
int stress_run(const struct stress_settings *settings);

#endif
