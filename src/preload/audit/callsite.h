/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: where a call came from: the frames above the hook, as modules and offsets that are the same
 * in every run, and the site's id that is made of them.
 * Does not: name functions (the command reads symbol tables); lock. Takes the loader's lock for a
 * moment, so the caller may hold none of ours.
 */
#ifndef FLW_PRELOAD_AUDIT_CALLSITE_H
#define FLW_PRELOAD_AUDIT_CALLSITE_H

#include <stdint.h>

#include "preload/audit/auditpage.h"

struct flw_callsite {
    uint64_t id;
    uint32_t frame_count;
    uint64_t offset[FLW_AUDIT_FRAMES];
    const char *path[FLW_AUDIT_FRAMES]; /* the loader's; "": the program itself; NULL: no module */
    char script[FLW_AUDIT_SCRIPT_BYTES];
};

/* The frame with the return address `caller` first, at most FLW_AUDIT_FRAMES of them. Where the stack
 * cannot be unwound, that one alone. */
void flw_callsite_take(struct flw_callsite *site, uintptr_t caller, const char *call);

#endif
