/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the output of a replay: the table with its verdict line, and JSON.
 * Does not: compute results.
 */
#ifndef FLW_TOOL_REPORT_H
#define FLW_TOOL_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "policies/run.h"

struct flw_report {
    const struct flw_run_setup *setup; /* of all results */
    const struct flw_run_result *results;
    size_t result_count;
    const char *device_name;
    bool has_device; /* false: no policy needed one */
    bool is_sim;
    bool is_by_time; /* the clock's unit is ns of the trace; else events */
    bool finds_limit;
    bool is_brief; /* the table has reserved bytes only, instead of all columns */
};

void flw_report_print_table(const struct flw_report *report, FILE *out);

void flw_report_print_json(const struct flw_report *report, FILE *out);

#endif
