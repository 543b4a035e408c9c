/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the owner of a block, named after the program's own code: the rule that picks the owner from a call stack, and
 * the options of the command line that change the rule.
 * Does not: determine which blocks are live at a moment (collect_owners.c).
 *
 * The first rule that applies:
 *   1. the innermost frame that matches --owner
 *   2. the innermost Python frame outside of torch, numpy, other packages, the standard library and generated code
 *   3. the innermost Python frame of a package other than torch, triton and numpy
 *   4. the node of the autograd graph that ran (MmBackward0), which a backward pass has on a thread of its own
 *   5. the outermost operator that was called (aten::bmm)
 *   6. unknown code
 * Frames that match --skip are ignored. The owner of a block without a stack is named by the block's size if the block
 * is older than the recording or the recording has no stacks at all.
 */
#ifndef FLW_TOOL_REPORT_OWNER_H
#define FLW_TOOL_REPORT_OWNER_H

#include <regex.h>

#include "trace/trace/stacks.h"

struct flw_trace;

/* The part of the frame that names the owner. */
enum flw_owner_by {
    FLW_OWNER_BY_FRAME,
    FLW_OWNER_BY_FILE,
    FLW_OWNER_BY_MODULE, /* the installed package, else the file's folder */
    FLW_OWNER_BY_PHASE   /* no frame: the innermost open phase, else the pass in the stack */
};

/* A pattern of --owner or --skip, matched against "function (file:line)". */
struct flw_owner_pattern {
    regex_t compiled;
    const char *text; /* borrowed */
    bool is_owner;    /* else of --skip */
};

/* All zero is the rule above. */
struct flw_owner_rule {
    enum flw_owner_by by;
    struct flw_owner_pattern *patterns;
    size_t pattern_count, pattern_room;
};

/* For FLW_OPTION_TAKE, of a struct flw_owner_rule. */
bool flw_owner_take_owner(void *rule, const char *pattern);
bool flw_owner_take_skip(void *rule, const char *pattern);
bool flw_owner_take_by(void *rule, const char *word);

/* Return false, after printing a message, if parts of the rule exclude each other. */
bool flw_owner_rule_is_whole(const struct flw_owner_rule *rule);

/* Return the rule as a sentence without the full stop. The caller frees the text, which is malloc's. */
char *flw_owner_rule_say(const struct flw_owner_rule *rule, const struct flw_trace *trace);

void flw_owner_rule_finish(struct flw_owner_rule *rule);

#define FLW_OWNER_UNKNOWN 0

struct flw_owner { /* in names: "forward (/a/model.py:39)", "forward (model.py:39)" */
    uint32_t text, brief;
};

/* The owners of one trace by number, counted from 0. All zero has none. */
struct flw_owners {
    struct flw_intern names;
    uint32_t *of_block;
    uint32_t *stack_of_block; /* in the trace's stacks; 0: unknown */
    uint32_t of_oom;          /* of the first failed request */
    struct flw_owner *list;   /* by owner */
    size_t count, room;
    bool has_code; /* some owner is more than a size */
};

/* Find the owners. Allocates with common/tool_host.h. Each frame is inspected once. */
void flw_owners_find(struct flw_owners *owners, const struct flw_trace *trace,
                     const struct flw_owner_rule *rule);
void flw_owners_finish(struct flw_owners *owners);

/* Return the full name, or the short one to display, without folders and control characters. */
static inline const char *flw_owners_name(const struct flw_owners *owners, uint32_t owner)
{
    return flw_intern_text(&owners->names, owners->list[owner].text);
}

static inline const char *flw_owners_short_name(const struct flw_owners *owners, uint32_t owner)
{
    return flw_intern_text(&owners->names, owners->list[owner].brief);
}

/* Copy the short name into FLW_ANALYSIS_NAME_BYTES. A name that is too long is cut in the middle and keeps "(model.py:30)"
 * at its end. */
void flw_owners_cut_name(const struct flw_owners *owners, uint32_t owner, char *out);

#endif
