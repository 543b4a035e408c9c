/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the echoing driver and its client agree on. Every hooked entry point takes whole numbers and
 * pointers alone, so each can be called with twelve longs; a wrapper that passes on what it got passes
 * the first of them, as many as the entry point has, in their order.
 * Does not: mind what they mean.
 */
#ifndef FLW_TESTS_PRELOAD_ECHO_H
#define FLW_TESTS_PRELOAD_ECHO_H

#include "preload/hook_list.h"

#define ECHO_MAX 12

#define ECHO_PARAMETERS \
    long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l

struct echo {
    int hook, calls; /* the last one called, in the list's order; how many calls there were */
    long argument[ECHO_MAX];
};

/* Of the driver. */
const struct echo *echo_last(void);

/* What entry point number `hook` answers. */
static inline int echo_answer(int hook)
{
    return 10000 + hook;
}

#endif
