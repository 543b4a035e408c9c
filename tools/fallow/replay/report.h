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
};

struct flw_report_style {
    size_t columns; /* width of the terminal */
    bool uses_colour;
    bool is_brief; /* held bytes only, instead of all columns */
};

void flw_report_print_table(const struct flw_report *report, const struct flw_report_style *style,
                            FILE *out);

void flw_report_print_json(const struct flw_report *report, FILE *out);

/* Return the label of a policy: "async (model)" on the simulated device. */
const char *flw_report_label(const struct flw_report *report, const struct flw_policy *policy);

#endif
