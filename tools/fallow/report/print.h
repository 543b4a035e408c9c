/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: printing an analysis as text for the terminal, JSON, CSV, and the formats of flame graphs and Chrome traces.
 * Does not: open files.
 */
#ifndef FLW_TOOL_REPORT_PRINT_H
#define FLW_TOOL_REPORT_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "report/analysis.h"
#include "report/job.h"
#include "report/owner.h"

#define FLW_PRINT_SCHEMA 1 /* version of the JSON; raised by changes that break readers */

/* Print the report for the terminal. `is_ascii`: without other characters. `has_times`: with a column of host times. */
void flw_print_text(const struct flw_analysis *analysis, bool is_ascii, bool has_times, FILE *out);

/* Print {"schema": 1, "traces": [...], "job": {...}}: an object per trace, which has an object per policy. Without
 * traces or a job (NULL), the member is left out. */
void flw_print_json(const struct flw_analysis *analyses, size_t count, const struct flw_job *job,
                    FILE *out);

/* Write the object of one trace alone; the page contains the same object. */
struct flw_json_writer;
void flw_print_json_analysis(const struct flw_analysis *analysis, struct flw_json_writer *out);

/* Formats for other tools. Each prints one trace; the blocks and owners must still be in memory. Only flw_print_folded is
 * of the moment. */

/* Print one line per column and policy: the maxima within the column, which begins at `event`, and the holes at their
 * last measurement, after op `holes_event`. An empty cell is unknown. */
void flw_print_csv(const struct flw_analysis *analysis, enum flw_analysis_moment moment, FILE *out);

/* Print one line per owner, by full name: bytes and blocks at each moment, and the requests in the whole recording. */
void flw_print_csv_owners(const struct flw_analysis *analysis, enum flw_analysis_moment moment,
                          FILE *out);

/* Print the live blocks of the moment for flame graphs: one line per call stack, outermost frame first, frames
 * separated by semicolons, then a blank and the bytes. Blocks without a stack count for a line with their owner's name.
 * Percent signs, semicolons and control characters such as a new line are written as %25, %3B, %0A. */
void flw_print_folded(const struct flw_analysis *analysis, enum flw_analysis_moment moment,
                      FILE *out);

/* Print Chrome's JSON, which Perfetto opens: each block is a slice from allocation to free, with the owner's name and
 * the stack as above; live bytes are one counter per owner; phases and the out-of-memory are included. Without times,
 * an event takes a microsecond. */
void flw_print_chrome(const struct flw_analysis *analysis, enum flw_analysis_moment moment,
                      FILE *out);

/* Print the ratio of each policy for several traces, one row per trace. */
void flw_print_landing(const struct flw_analysis *analyses, size_t count, FILE *out);

#endif
