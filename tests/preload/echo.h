/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the agreement of the echoing driver and the client. Every hooked entry point takes only
 * integers and pointers, so each can be called with twelve longs; a correct wrapper passes on the
 * first of them, as many as the entry point has, in order.
 * Does not: interpret the values. */
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

/* Return the result of entry point number `hook`. */
static inline int echo_answer(int hook)
{
    return 10000 + hook;
}

#endif
