/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what pools and processes held in each second of the last minute, as far as they were looked at, and that
 * as a line of text. Does not: look at processes.
 */
#ifndef FLW_TOOL_TOP_HISTORY_H
#define FLW_TOOL_TOP_HISTORY_H

#include "top/top.h"

#define FLW_TOP_SECONDS       60
#define FLW_TOP_HISTORY_BYTES (3 * FLW_TOP_SECONDS + 1) /* of a line */

/* A pool, or a process as a whole (the label is empty). Second s has the place s % FLW_TOP_SECONDS; one that
 * no look fell into has what was seen before it. */
struct flw_top_series {
    pid_t process;
    char label[FLW_TOP_LABEL_BYTES];
    uint64_t first_second, last_second;                                    /* seen */
    uint64_t live_bytes[FLW_TOP_SECONDS], reserved_bytes[FLW_TOP_SECONDS]; /* the most in it */
};

struct flw_top_history {
    struct flw_top_series *series;
    size_t count, capacity;
};

/* What a look at `second` (of any clock that goes on) saw of its process and pools. Those that were not seen
 * for a minute are forgotten. */
void flw_top_history_note(struct flw_top_history *history, const struct flw_top_look *look,
                          uint64_t second);
void flw_top_history_drop(struct flw_top_history *history);

/* Live bytes, a letter for each second or, in fewer columns, the most of several; the last on the right, blanks
 * where nothing is known. Its full height is returned: the most that was reserved. 0: no such series, an empty
 * line. */
uint64_t flw_top_history_line(const struct flw_top_history *history, pid_t process,
                              const char *label, uint64_t second, uint32_t columns, bool is_ascii,
                              char line[FLW_TOP_HISTORY_BYTES]);

#endif
