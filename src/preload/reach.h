/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how programs came to the hooks, counted.
 * Does not: say it (life.c, runplace.c, summary.c).
 */
#ifndef FLW_PRELOAD_REACH_H
#define FLW_PRELOAD_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/hooks.h"

struct flw_reach {
    _Atomic bool is_learnt;              /* the program asked or called something of the driver's */
    _Atomic uint64_t dlsym_count;        /* answers of dlsym that were substituted */
    _Atomic uint64_t proc_address_count; /* of cuGetProcAddress */
    _Atomic uint64_t export_count;       /* entry points first called by the names we export */
    _Atomic uint32_t answers[FLW_HOOK_COUNT]; /* dlsym's and cuGetProcAddress's, by hook */
};

extern struct flw_reach flw_reach;

/* Did the program find the driver through us? What it asks for need not be hooked. */
bool flw_reach_is_reached(void);

/* Is the driver in memory, in whatever namespace? Reads /proc/self/maps. */
bool flw_reach_has_driver(void);

/* True if the driver is in the scope where linked calls are looked up, behind the hooks: calls by name from the program
 * then reach the hooks. */
bool flw_reach_is_linked(void);

/* Is it among the objects that we see too? Reads no file. */
bool flw_reach_has_near_driver(void);

/* How often dlsym and cuGetProcAddress answered with the wrapper of this entry point ("cuMemAlloc_v2");
 * 0 for names that are not hooked. Exported, so that a program can ask whether it was reached. */
FLW_PRELOAD_EXPORT unsigned long long fallow_preload_answers(const char *symbol);

#endif
