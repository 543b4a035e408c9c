/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: reading a report's JSON back, and the differences between two reports.
 * Does not: interpret numbers, except the two that a baseline limits.
 */
#ifndef FLW_TOOL_REPORT_BASELINE_H
#define FLW_TOOL_REPORT_BASELINE_H

#include <stdio.h>

#include "report/json_tree.h"

#define FLW_BASELINE_MESSAGE_BYTES 512

/* Read a report: an object whose "traces" are objects with titles. Returns false if that fails: message is one line
 * with the file and the error. The caller finishes the tree in both cases. */
bool flw_baseline_read(const char *path, struct flw_json_tree *out, char *message);
bool flw_baseline_read_bytes(const char *text, size_t length, struct flw_json_tree *out,
                             char *message);

/* Print every number that differs, the policies that only one report has, and the owners that hold more or less. Traces
 * are matched by title; two reports of one file each match whatever the names of the files. */
void flw_baseline_print_diff(const struct flw_json_tree *a, const struct flw_json_tree *b,
                             FILE *out);

/* True if `now` holds no more, and fails no more requests, than `then`. Otherwise message names the worst policy and
 * its growth, or reports that no policy is in both. */
bool flw_baseline_is_kept(const struct flw_json_tree *then, const struct flw_json_tree *now,
                          char *message);

#endif
