/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: another thread of the program that captures in GLOBAL mode for as long as a test wants: under it a
 * potentially unsafe call of any other thread fails, and ends the capture, unless its own mode is
 * relaxed.
 * Does not: announce the capture to anybody; need a test framework.
 */
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
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    unsigned asked, answered; /* looks wanted, and had */
    bool is_wanted, is_capturing, is_whole;
};

const char *flw_beside_name(enum flw_beside_place place);

/* Returns once the capture is open. `known`: the stream for FLW_BESIDE_KNOWN, idle. Aborts where the driver
 * refuses: the bed of a test must work. */
void flw_beside_begin(struct flw_beside *beside, const struct flw_sim *sim,
                      enum flw_beside_place place, CUstream known);

/* Is the capture still good? */
bool flw_beside_is_good(struct flw_beside *beside);

/* End it. True: it was good to the end, took another node and gave a graph. */
bool flw_beside_end(struct flw_beside *beside);

#endif
