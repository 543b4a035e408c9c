/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what an audit found, over all processes of a command: pages put together, sites in the order
 * of their estimated time, functions' names, and the two reports of it.
 * Does not: run the command; write a file.
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
    struct flw_audit_site site; /* its frames' modules are the findings' */
    uint32_t where;             /* the first frame that is not the CUDA runtime's own */
};

struct flw_findings {
    struct flw_audit_counts counts;
    size_t process_count;
    size_t unreadable_count; /* files that were no whole page */
    struct flw_finding *sites;
    size_t site_count, site_room;
    struct flw_modules modules;
};

/* How it is told. */
struct flw_findings_view {
    double bandwidth_gbs;
    uint64_t trial_id; /* 0: none */
    unsigned poison;
    int exit_code, signal; /* of the command; signal 0: it ended by itself */
};

/* Visit the path of each file in the folder whose name begins with the prefix. */
void flw_findings_visit(const char *folder, const char *prefix,
                        void (*visit)(void *context, const char *path), void *context);

/* Reads every page whose path begins with the prefix. */
void flw_findings_read(struct flw_findings *findings, const char *folder, const char *name);
void flw_findings_add(struct flw_findings *findings, const struct flw_auditpage *page);
void flw_findings_sort(struct flw_findings *findings);
/* NULL: there is none with that id. */
struct flw_finding *flw_findings_site(const struct flw_findings *findings, uint64_t id);
void flw_findings_finish(struct flw_findings *findings);

/* "libx.so+0x1f2", and the function's name where the file says it. */
const char *flw_findings_module(const struct flw_findings *findings,
                                const struct flw_audit_frame *frame);
const char *flw_findings_function(struct flw_findings *findings,
                                  const struct flw_audit_frame *frame, uint64_t *out_offset);

void flw_findings_print(FILE *out, struct flw_findings *findings,
                        const struct flw_findings_view *view);
void flw_findings_print_json(FILE *out, struct flw_findings *findings,
                             const struct flw_findings_view *view);

#endif
