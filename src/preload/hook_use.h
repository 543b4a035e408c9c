/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: counts of the ways in which programs reached the hooks.
 * Does not: report them (life.c, runplace.c, summary.c). */
#ifndef FLW_PRELOAD_HOOK_USE_H
#define FLW_PRELOAD_HOOK_USE_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/hooks.h"

struct flw_hook_use {
    _Atomic bool is_learnt;                   /* the program looked up or called an entry point of
                                             the driver */
    _Atomic uint64_t dlsym_count;             /* substituted results of dlsym */
    _Atomic uint64_t proc_address_count;      /* of cuGetProcAddress */
    _Atomic uint64_t export_count;            /* entry points first called by the exported names */
    _Atomic uint32_t answers[FLW_HOOK_COUNT]; /* of dlsym and cuGetProcAddress, by hook */
};

extern struct flw_hook_use flw_hook_use;

/* True if the program found the driver through us, hooked names or not. */
bool flw_hook_use_is_reached(void);

/* True if the driver is mapped, in any namespace. Reads /proc/self/maps. */
bool flw_hook_use_has_driver(void);

/* True if the driver is in the scope of linked calls, behind the hooks: calls by name from the
 * program then reach the hooks. */
bool flw_hook_use_is_linked(void);

/* True if the driver is among the objects visible to us. Reads no file. */
bool flw_hook_use_has_near_driver(void);

/* Return how often dlsym and cuGetProcAddress returned the wrapper of this entry point
 * ("cuMemAlloc_v2"); 0 for names that are not hooked. Exported, so that a program can check
 * whether it was reached. */
FLW_PRELOAD_EXPORT unsigned long long fallow_preload_answers(const char *symbol);

#endif
