/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: another thread that captures in GLOBAL mode during a test. A potentially unsafe call of
 * any other thread then fails and ends the capture, unless that thread's mode is relaxed.
 * Does not: announce the capture to the pool; need a test framework. */
#ifndef FLW_TESTS_SUPPORT_BESIDE_H
#define FLW_TESTS_SUPPORT_BESIDE_H

#include <pthread.h>
#include <stdbool.h>

#include "support/sim.h"

enum flw_beside_place {
    FLW_BESIDE_STREAM,   /* a stream of device 0's primary context that nobody has seen */
    FLW_BESIDE_BLOCKING, /* the same, and one that the legacy stream waits for */
    FLW_BESIDE_KNOWN,    /* a stream that the caller names */
    FLW_BESIDE_CONTEXT,  /* in another context of device 0 */
    FLW_BESIDE_DEVICE,   /* on device 1 */
    FLW_BESIDE_PLACES
};

struct flw_beside {
    const struct flw_sim *sim;
    enum flw_beside_place place;
    CUstream stream; /* that is captured */
    pthread_t thread;
    pthread_mutex_t mutex; /* protects the members below */
    pthread_cond_t changed;
    unsigned asked, answered; /* looks wanted, and had */
    bool is_wanted, is_capturing, is_whole;
};

const char *flw_beside_name(enum flw_beside_place place);

/* Return once the capture is open. `known`: the stream for FLW_BESIDE_KNOWN, idle. Aborts if the
 * driver refuses. */
void flw_beside_begin(struct flw_beside *beside, const struct flw_sim *sim,
                      enum flw_beside_place place, CUstream known);

/* Is the capture still good? */
bool flw_beside_is_good(struct flw_beside *beside);

/* End the capture. True if it was valid to the end, accepted another node, and produced a graph. */
bool flw_beside_end(struct flw_beside *beside);

#endif
