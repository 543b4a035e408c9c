/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: who a block belongs to in the program's own words: the rule that picks it from a call stack, and what the
 * command line changes of that rule.
 * Does not: know which blocks are alive when (facts_owner.c).
 *
 * The rule, the first that applies:
 *   1. the innermost frame that --owner names
 *   2. the innermost Python frame outside of torch, numpy, other packages, the standard library and generated code
 *   3. the innermost Python frame of a package other than torch, triton and numpy
 *   4. the node of the autograd graph that ran (MmBackward0), which a backward pass has on a thread of its own
 *   5. the outermost operator that was called (aten::bmm)
 *   6. code that is not known
 * Frames that --skip names are none of these. A block without a stack that is older than the recording, or whose
 * recording has no stacks at all, is told by its size.
 */
#ifndef FLW_TOOL_REPORT_OWNER_H
#define FLW_TOOL_REPORT_OWNER_H

#include <regex.h>

#include "trace/trace/stacks.h"

struct flw_trace;

/* How much of the frame is the owner's name. */
enum flw_owner_by {
    FLW_OWNER_BY_FRAME,
    FLW_OWNER_BY_FILE,
    FLW_OWNER_BY_MODULE, /* the package that it was installed as, else the file's folder */
    FLW_OWNER_BY_PHASE /* no frame: the innermost phase that was open, else what the stack says of one */
};

/* What --owner and --skip name. Matched against "function (file:line)". */
struct flw_owner_pattern {
    regex_t compiled;
    const char *text; /* the caller's */
    bool is_owner;    /* else it is one to skip */
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

/* False, and that was said: the rule's parts exclude each other. */
bool flw_owner_rule_is_whole(const struct flw_owner_rule *rule);

/* The rule in a sentence without its full stop; the caller's to free (tool_host.h). */
char *flw_owner_rule_say(const struct flw_owner_rule *rule, const struct flw_trace *trace);

void flw_owner_rule_finish(struct flw_owner_rule *rule);

#define FLW_OWNER_UNKNOWN 0

/* The owners of one trace by number, counted from 0. All zero has none. */
struct flw_owners {
    struct flw_intern names;
    uint32_t *of_record; /* by record (struct flw_trace_context), of those that ask for memory */
    uint32_t *texts,
        *shorts; /* by owner, in names: "forward (/a/model.py:39)", "forward (model.py:39)" */
    size_t count, room, short_room;
    bool has_code; /* some owner is more than a size */
};

/* Host memory as the tool's (common/tool_host.h). Each frame is looked at once. */
void flw_owners_find(struct flw_owners *owners, const struct flw_trace *trace,
                     const struct flw_owner_rule *rule);
void flw_owners_finish(struct flw_owners *owners);

/* The whole name, and the one to be shown, without the file's folders and control characters. */
static inline const char *flw_owners_name(const struct flw_owners *owners, uint32_t owner)
{
    return flw_intern_text(&owners->names, owners->texts[owner]);
}

static inline const char *flw_owners_short_name(const struct flw_owners *owners, uint32_t owner)
{
    return flw_intern_text(&owners->names, owners->shorts[owner]);
}

/* Copy the short name into FLW_SHEET_NAME_BYTES. A long one loses its middle, and keeps "(model.py:30)" at its end. */
void flw_owners_cut_name(const struct flw_owners *owners, uint32_t owner, char *out);

/* "up to 2 MiB", of flw_sheet_size_bin. */
#define FLW_OWNER_SIZE_BYTES 24
void flw_owners_name_size(char out[FLW_OWNER_SIZE_BYTES], size_t bin);

#endif
