/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the checks of first_run share: a driver, work that lasts, lines of answers.
 */
#ifndef FLW_TESTS_GPU_FIRST_RUN_H
#define FLW_TESTS_GPU_FIRST_RUN_H

#include <stdbool.h>
#include <stdio.h>

#include "support/sim.h"

#define MIB ((size_t)1 << 20)

struct bed {
    struct flw_sim sim; /* sim.cu is the driver, whichever */
    const struct flw_driver *cu;
    bool is_sim;
    CUcontext context; /* device 0's primary one, current */
    CUfunction spin;   /* a real device: a kernel that lasts as long as it is told */
    CUdeviceptr words; /* the simulated one: what stands for it is written here */
    unsigned wrong_count;
};

/* Give a stream work that lasts ms milliseconds; on the simulated device, until something waits. */
void bed_busy(struct bed *bed, CUstream stream, unsigned ms);
/* Milliseconds since some point. */
double bed_now_ms(void);
/* "4a: ..." One answer. */
void answer(const char *number, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same of something that the design relies on; a false one is counted. */
void rely(struct bed *bed, const char *number, bool holds, const char *what);
/* Ends the program where the bed itself does not work. */
void must(const struct bed *bed, CUresult result, const char *call);
#define MUST(call) must(bed, bed->cu->call, #call)
const char *name_of(const struct bed *bed, CUresult result);

void check_addresses(struct bed *bed); /* 2 */
void check_epochs(struct bed *bed);    /* 4, 5 */
void check_modes(struct bed *bed);     /* 6 */
void check_free(struct bed *bed);      /* 7 */
void check_contexts(struct bed *bed);  /* 8 */
void check_pointers(struct bed *bed);  /* 9 */

#endif
