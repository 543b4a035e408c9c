/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a report's JSON, read back, and what differs between two of them.
 * Does not: know what the numbers mean, but for the two that a baseline is held to.
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

/* False: nothing is held; message is one line that names the file and what is wrong. */
bool flw_baseline_read(const char *path, struct flw_baseline *out, char *message);
bool flw_baseline_read_bytes(const char *text, size_t length, struct flw_baseline *out,
                             char *message);
void flw_baseline_finish(struct flw_baseline *baseline);

/* Print every number that is not the same, and the policies that only one has; then the owners that hold more or less.
 * Traces are compared by title; if each report is of one file, whatever the files' names. */
void flw_baseline_print_diff(const struct flw_baseline *a, const struct flw_baseline *b,
                             size_t columns, FILE *out);

/* Whether `now` holds no more, and fails no more requests, than `then`. False: message says which
 * policy is worst and by how much, or that the two have no policy in common. */
bool flw_baseline_is_kept(const struct flw_baseline *then, const struct flw_baseline *now,
                          char *message);

#endif
