/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: who a block belongs to in the program's own words: the rule that picks it from a call stack.
 * Does not: know of blocks or of time (facts_owner.c).
 *
 * The rule, the first that applies:
 *   1. the innermost Python frame outside of torch, numpy, other packages, the standard library and generated code
 *   2. the innermost Python frame of a package other than torch, triton and numpy
 *   3. the node of the autograd graph that ran (MmBackward0), which a backward pass has on a thread of its own
 *   4. the outermost operator that was called (aten::bmm)
 *   5. code that is not known
 */
#ifndef FLW_TOOL_REPORT_OWNER_H
#define FLW_TOOL_REPORT_OWNER_H

#include "trace/stacks.h"

#define FLW_OWNER_RULE                                                                         \
    "the innermost Python frame outside of torch, packages and the standard library; else of " \
    "a package; else the autograd node or the operator"

/* Owners by number, counted from 0; number 0 is not known. All zero has none. */
struct flw_owners {
    struct flw_intern names; /* "forward (/a/model.py:39)", "MmBackward0" */
    uint32_t *of_stack;      /* by stack */
    uint32_t *texts;         /* by owner: in names */
    size_t count;
};

/* The owner of each stack. Host memory as the tool's (common/tool_host.h). */
void flw_owners_find(struct flw_owners *owners, const struct flw_stacks *stacks);
void flw_owners_finish(struct flw_owners *owners);

/* The name, with the file's folders left out, cut to what `out` has room for. */
void flw_owners_name(const struct flw_owners *owners, uint32_t owner, char *out, size_t room);

#endif
