/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the thread's mark "inside Fallow". While it is set, dlsym and cuGetProcAddress answer as
 * without Fallow: a driver that looks up its own entry points inside one of our calls must get its
 * own, and our code must not re-enter itself.
 * Does not: prevent anything by itself. A wrapper that must not be re-entered calls flw_is_inside,
 * and calls flw_real_ready before it enters: inside, no entry point is looked up. */
#ifndef FLW_PRELOAD_INSIDE_H
#define FLW_PRELOAD_INSIDE_H

#include <stdbool.h>

extern _Thread_local int flw_inside_depth __attribute__((tls_model("initial-exec")));

static inline void flw_inside_enter(void)
{
    flw_inside_depth++;
}

static inline void flw_inside_leave(void)
{
    flw_inside_depth--;
}

static inline bool flw_is_inside(void)
{
    return flw_inside_depth != 0;
}

#endif
