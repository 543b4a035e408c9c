/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: names of processes and their rows ("threads") in files of Chrome's JSON that are written here.
 */
#ifndef FLW_TRACE_FORMATS_CHROME_H
#define FLW_TRACE_FORMATS_CHROME_H

#include <stdint.h>
#include <stdio.h>

struct flw_json_writer;
struct flw_trace;

/* Print a trace. Returns NULL, or the reason why nothing was printed. */
const char *flw_chrome_print(const struct flw_trace *trace, FILE *file);

/* Write an item of the open list of events; `what` is "process_name" or "thread_name". */
void flw_chrome_print_name(struct flw_json_writer *out, const char *what, uint64_t process,
                           uint64_t row, const char *name);

/* Write the names of process 0 and of the rows. Row 0 is named by row_0; overlapping phases are in later rows. */
void flw_chrome_print_names(struct flw_json_writer *out, const char *process, const char *row_0,
                            uint32_t row_count);

#endif
