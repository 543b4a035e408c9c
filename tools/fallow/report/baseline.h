/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading a report's JSON back, and the differences between two reports.
 * Does not: interpret numbers, except the two that a baseline limits.
 */
#ifndef FLW_TOOL_REPORT_BASELINE_H
#define FLW_TOOL_REPORT_BASELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "report/json_tree.h"

#define FLW_BASELINE_MESSAGE_BYTES 512

struct flw_baseline {
    struct flw_json_tree tree; /* the root is an object; its "traces" are objects with titles */
};

/* Read a report. Returns false if that fails: out holds nothing, and message is one line with the file and the
 * error. */
bool flw_baseline_read(const char *path, struct flw_baseline *out, char *message);
bool flw_baseline_read_bytes(const char *text, size_t length, struct flw_baseline *out,
                             char *message);
void flw_baseline_finish(struct flw_baseline *baseline);

/* Print every number that differs, the policies that only one report has, and the owners that hold more or less. Traces
 * are matched by title; two reports of one file each match whatever the names of the files. */
void flw_baseline_print_diff(const struct flw_baseline *a, const struct flw_baseline *b,
                             size_t columns, FILE *out);

/* True if `now` holds no more, and fails no more requests, than `then`. Otherwise message names the worst policy and
 * its growth, or reports that no policy is in both. */
bool flw_baseline_is_kept(const struct flw_baseline *then, const struct flw_baseline *now,
                          char *message);

#endif
