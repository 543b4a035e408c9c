/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the origin of a call: the frames above the hook, as modules and offsets that are equal in
 * every run, and the site's id computed from them.
 * Does not: name functions (the command reads symbol tables); lock. Takes the loader's lock
 * briefly, so the caller must hold none of ours. */
#ifndef FLW_PRELOAD_AUDIT_CALLSITE_H
#define FLW_PRELOAD_AUDIT_CALLSITE_H

#include <stdint.h>

#include "preload/audit/auditpage.h"

struct flw_callsite {
    uint64_t id;
    uint32_t frame_count;
    uint64_t offset[FLW_AUDIT_FRAMES];
    const char *path[FLW_AUDIT_FRAMES]; /* from the loader; "": the program itself; NULL: no
                                            module */
    char script[FLW_AUDIT_SCRIPT_BYTES];
};

/* Walk the stack: the frame with return address `caller` first, at most FLW_AUDIT_FRAMES. If the
 * stack cannot be unwound, that frame alone. */
void flw_callsite_take(struct flw_callsite *site, uintptr_t caller, const char *call);

#endif
