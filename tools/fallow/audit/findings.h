/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the findings of an audit over all processes of a command: merged pages, sites sorted by estimated time, names of
 * functions, and the reports as text and JSON.
 * Does not: run the command or write files.
 */
#ifndef FLW_TOOL_FINDINGS_H
#define FLW_TOOL_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/symbols.h"
#include "preload/audit/auditpage.h"

struct flw_finding {
    struct flw_audit_site site; /* modules of frames are indices of findings->modules */
    uint32_t where;             /* the first frame outside the CUDA runtime */
};

struct flw_findings {
    /* The run, for the report. */
    double bandwidth_gbs;
    uint64_t trial_id; /* 0: none */
    unsigned poison;
    int exit_code, signal; /* of the command; 0: no signal */
    struct flw_audit_counts counts;
    size_t process_count;
    size_t unreadable_count; /* files without a whole page */
    struct flw_finding *sites;
    size_t site_count, site_room;
    struct flw_modules modules;
};

/* Visit the path of each file of the folder with a name that begins with the prefix. */
void flw_findings_visit(const char *folder, const char *prefix,
                        void (*visit)(void *context, const char *path), void *context);

/* Add every page of the folder with such a name. */
void flw_findings_read(struct flw_findings *findings, const char *folder, const char *name);
void flw_findings_add(struct flw_findings *findings, const struct flw_auditpage *page);
void flw_findings_sort(struct flw_findings *findings);
/* Return the site of that id, or NULL. */
struct flw_finding *flw_findings_site(const struct flw_findings *findings, uint64_t id);
void flw_findings_finish(struct flw_findings *findings);

/* Return the name of a frame's module; of the function, or NULL. */
const char *flw_findings_module(const struct flw_findings *findings,
                                const struct flw_audit_frame *frame);
const char *flw_findings_function(struct flw_findings *findings,
                                  const struct flw_audit_frame *frame, uint64_t *out_offset);

void flw_findings_print(FILE *out, struct flw_findings *findings);
void flw_findings_print_json(FILE *out, struct flw_findings *findings);

#endif
