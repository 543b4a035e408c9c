/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the numbers and the owners of a report's JSON, read back, and what differs between two of them.
 * Does not: know what the numbers mean, but for the two that a baseline is held to.
 */
#ifndef FLW_TOOL_REPORT_BASELINE_H
#define FLW_TOOL_REPORT_BASELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "report/sheet.h"
#include "trace/io/json.h"

#define FLW_BASELINE_MESSAGE_BYTES 512
#define FLW_BASELINE_TEXT_BYTES    64
#define FLW_BASELINE_KEY_BYTES     (2 * FLW_BASELINE_TEXT_BYTES)

/* Names as JSON writes them, cut to FLW_BASELINE_TEXT_BYTES. */
struct flw_baseline_number {
    char trace[FLW_BASELINE_TEXT_BYTES];
    char policy[FLW_BASELINE_TEXT_BYTES]; /* "" of the trace itself */
    char key[FLW_BASELINE_KEY_BYTES];     /* "peak_reserved_bytes", "first_failure.op" */
    char text[FLW_BASELINE_TEXT_BYTES];   /* as written; "null" */
    double value;
};

/* What one owner holds at one moment. */
struct flw_baseline_owner {
    size_t trace; /* its place in the file */
    enum flw_sheet_moment moment;
    char name[FLW_BASELINE_TEXT_BYTES]; /* "" of those that the report has no place for */
    uint64_t bytes;
};

struct flw_baseline_trace {
    char title[FLW_BASELINE_TEXT_BYTES];
    size_t first_owner, owner_end; /* its owners */
};

struct flw_baseline {
    struct flw_baseline_number *numbers; /* in the file's order */
    size_t count, capacity;
    struct flw_baseline_owner *owners; /* the same */
    size_t owner_count, owner_capacity;
    struct flw_baseline_trace *traces; /* the same */
    size_t trace_count, trace_capacity;
};

/* False: nothing is held; message is one line that names the file and what is wrong. */
bool flw_baseline_read(const char *path, struct flw_baseline *out, char *message);
bool flw_baseline_read_bytes(const char *text, size_t length, struct flw_baseline *out,
                             char *message);
void flw_baseline_finish(struct flw_baseline *baseline);

/* Every number that is not the same, and policies that only one has; then, trace by trace, who holds more and who
 * less. */
void flw_baseline_print_diff(const struct flw_baseline *a, const struct flw_baseline *b, FILE *out);

/* Whether `now` holds no more, and fails no more requests, than `then`. False: message says which
 * policy is worst and by how much, or that the two have no policy in common. */
bool flw_baseline_is_kept(const struct flw_baseline *then, const struct flw_baseline *now,
                          char *message);

#endif
