/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the events of Chrome's JSON, with the names of processes and their rows ("threads"), for all that write it.
 */
#ifndef FLW_TRACE_FORMATS_CHROME_H
#define FLW_TRACE_FORMATS_CHROME_H

#include <stdio.h>

#include "trace/io/jsonwriter.h"
#include "trace/trace/phases.h"

/* Print a trace. Returns NULL, or the reason why nothing was printed. */
const char *flw_chrome_print(const struct flw_trace *trace, FILE *file);

/* An open list of events. */
struct flw_chrome {
    const struct flw_trace *trace;
    struct flw_json_writer out;
    const char *category;     /* of all events; NULL: none, and instants are of a row */
    struct flw_phases phases; /* with rows; flw_chrome_print_phase prints the next one */
};

#define FLW_CHROME_NO_ID UINT64_MAX

/* Begin an event and leave the arguments open. Events with an id, which are slices, are in process 1 and all others in
 * process 0, because viewers show the counters of a process below its many slices. */
struct flw_json_writer *flw_chrome_begin_event(struct flw_chrome *chrome, const char *phase,
                                               const char *name, uint64_t id, uint64_t row,
                                               uint64_t time_ns);
void flw_chrome_end_event(struct flw_chrome *chrome);

/* Print the begin or end of a phase; an end without a begin is left out. */
void flw_chrome_print_phase(struct flw_chrome *chrome, const struct flw_trace_event *event,
                            const struct flw_trace_detail *detail, uint64_t time_ns);

/* Write the name of a process or row; `what` is "process_name" or "thread_name". */
void flw_chrome_print_name(struct flw_json_writer *out, const char *what, uint64_t process,
                           uint64_t row, const char *name);

/* Write the names of process 0 and of the rows. Row 0 is named by row_0; overlapping phases are in later rows. */
void flw_chrome_print_names(struct flw_chrome *chrome, const char *process, const char *row_0);

#endif
