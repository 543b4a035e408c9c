/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what `fallow report` does once it knows what is wanted: which files, one sheet each, what is
 * written of them (output.c), and the thresholds.
 */
#ifndef FLW_TOOL_REPORT_WORK_H
#define FLW_TOOL_REPORT_WORK_H

#include "trace/io/output.h"

#include "common/draft.h"
#include "policies/plan.h"
#include "report/baseline.h"
#include "report/job.h"
#include "report/owner.h"
#include "report/sheet.h"

struct flw_report_options {
    char *const *paths; /* traces and folders */
    size_t path_count;
    struct flw_plan plan;
    struct flw_owner_rule rule;
    const char *json_path, *csv_path, *html_path, *baseline_path; /* NULL: not wanted */
    const char *csv_owners_path, *folded_path, *chrome_path;
    enum flw_sheet_moment folded_at;
    struct flw_draft
        *json_draft; /* the JSON as a text, the caller's to free, in place of the screen; or NULL */
    uint64_t max_reserved_bytes; /* 0: no threshold */
    double max_fragmentation;    /* INFINITY: none */
    bool fails_on_oom;
    bool writes_lines; /* records of ranks (rank.h), and nothing else */
    bool times, shows_times, is_ascii;
};

static inline bool flw_report_is_stdout(const char *path)
{
    return path != NULL && flw_output_is_stdout(path);
}

/* How many of the files are standard output; the screen's text goes there where none does. */
static inline int flw_report_stdout_count(const struct flw_report_options *options)
{
    return flw_report_is_stdout(options->html_path) + flw_report_is_stdout(options->json_path) +
           flw_report_is_stdout(options->csv_path) +
           flw_report_is_stdout(options->csv_owners_path) +
           flw_report_is_stdout(options->folded_path) + flw_report_is_stdout(options->chrome_path);
}

/* An enum flw_exit. */
int flw_report_work(const struct flw_report_options *options);

/* output.c: each false when it has complained. */

/* Whether each output has a file of its own: no other output's, no operand, and not the baseline but of --json. */
bool flw_report_check_outputs(const struct flw_report_options *options);
/* Whether each can be written, as far as can be told before it is. */
bool flw_report_can_write(const struct flw_report_options *options);
/* Whether none would replace this trace. */
bool flw_report_spares(const struct flw_report_options *options, const char *trace);
/* The same, without a word. */
bool flw_report_is_output(const struct flw_report_options *options, const char *path);

/* Write the outputs that need the whole sheet: the forms of other tools and the page of one trace. `place` counts from 0
 * if there are several; `others`: as for flw_page_write. */
bool flw_report_write_one(const struct flw_report_options *options, const struct flw_sheet *sheet,
                          bool has_several, size_t place, const char *others);
/* Whether --json names the file that --baseline does: it waits for the thresholds. */
bool flw_report_replaces_baseline(const struct flw_report_options *options);

/* Write the text, the landing page and, into the draft `json`, the JSON. `has_several`: write a table of all sheets;
 * else show the first sheet, and the others are devices of the same file. `job`: the job whose ranks the sheets are;
 * NULL if they are no ranks. */
bool flw_report_write_all(const struct flw_report_options *options, const struct flw_sheet *sheets,
                          size_t count, bool has_several, const struct flw_job *job,
                          struct flw_draft *json);
/* The thresholds. `baseline` NULL: none; else the draft holds the JSON of these sheets. */
bool flw_report_is_within(const struct flw_report_options *options, const struct flw_sheet *sheets,
                          size_t count, const struct flw_baseline *baseline,
                          struct flw_draft *json);

#endif
