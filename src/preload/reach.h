/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how programs came to the hooks, counted, and the sentence why they did not.
 * Does not: say it (life.c, summary.c).
 */
#ifndef FLW_PRELOAD_REACH_H
#define FLW_PRELOAD_REACH_H

#include <stdbool.h>
#include <stdint.h>

struct flw_reach {
    _Atomic uint64_t dlsym_count;        /* answers of dlsym that were substituted */
    _Atomic uint64_t proc_address_count; /* of cuGetProcAddress */
    _Atomic uint64_t export_count;       /* entry points first called by the names we export */
    _Atomic uint64_t alias_count;        /* real addresses that two hooks claim */
};

extern struct flw_reach flw_reach;

/* Was a hook called, or given out as an address? */
bool flw_reach_is_reached(void);

/* Is the driver in memory, in whatever namespace? Reads /proc/self/maps. */
bool flw_reach_has_driver(void);

#define FLW_REACH_REASON_BYTES 256

/* True: a hook was reached. False: `reason` says why none was. Reads /proc/self/maps; for the end of a
 * process. */
bool flw_reach_explain(char reason[FLW_REACH_REASON_BYTES]);

#endif
