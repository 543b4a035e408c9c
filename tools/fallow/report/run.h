/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the work of `fallow report` after the options are read: finding the files, an analysis for each, their output
 * (output.c), and the thresholds.
 */
#ifndef FLW_TOOL_REPORT_RUN_H
#define FLW_TOOL_REPORT_RUN_H

#include "trace/io/output.h"

#include "common/draft.h"
#include "policies/plan.h"
#include "report/analysis.h"
#include "report/baseline.h"
#include "report/job.h"
#include "report/owner.h"

/* Outputs, each chosen by an option. From CSV on, a report of one trace only. */
enum flw_report_output {
    FLW_REPORT_HTML,
    FLW_REPORT_JSON,
    FLW_REPORT_CSV,
    FLW_REPORT_CSV_OWNERS,
    FLW_REPORT_FOLDED,
    FLW_REPORT_CHROME,
    FLW_REPORT_OUTPUTS
};

extern const char *const flw_report_output_names[FLW_REPORT_OUTPUTS];

struct flw_report_options {
    char *const *paths; /* traces and folders */
    size_t path_count;
    struct flw_plan plan;
    struct flw_owner_rule rule;
    const char *outputs[FLW_REPORT_OUTPUTS]; /* paths; NULL: not requested */
    const char *baseline_path;               /* NULL: none */
    enum flw_analysis_moment folded_at;
    struct flw_draft
        *json_draft; /* receives the JSON, which the caller frees, instead of printing; or NULL */
    uint64_t max_reserved_bytes; /* 0: no threshold */
    double max_fragmentation;    /* INFINITY: none */
    bool fails_on_oom;
    bool writes_lines; /* only records of ranks (rank.h) */
    bool times, shows_times, is_ascii;
};

/* Return how many outputs are standard output. If none is, the text for the screen is printed there. */
static inline int flw_report_stdout_count(const struct flw_report_options *options)
{
    int count = 0;
    for (size_t i = 0; i < FLW_REPORT_OUTPUTS; i++) {
        count += flw_output_is_stdout(options->outputs[i]);
    }
    return count;
}

/* Run the report. Returns an enum flw_exit. */
int flw_report_run(const struct flw_report_options *options);

/* Functions of output.c. Each returns false after printing a message. */

/* True if each output is a file of its own: neither another output nor an operand, and only --json may be the
 * baseline. */
bool flw_report_check_outputs(const struct flw_report_options *options);
/* True if all outputs can probably be written; checked before any work. */
bool flw_report_can_write(const struct flw_report_options *options);
/* True if no output would replace this trace. */
bool flw_report_spares(const struct flw_report_options *options, const char *trace);
/* True if this trace is one of the outputs. Prints no message. */
bool flw_report_is_output(const struct flw_report_options *options, const char *path);

/* Write the outputs that need the whole analysis: the formats of other tools and the page of one trace. `place` counts
 * from 0 if there are several; `others`: as for flw_page_write. */
bool flw_report_write_one(const struct flw_report_options *options,
                          const struct flw_analysis *analysis, bool has_several, size_t place,
                          const char *others);
/* True if --json is the file of --baseline, which is replaced only after the thresholds are checked. */
bool flw_report_replaces_baseline(const struct flw_report_options *options);

/* Write the text, the landing page and, into the draft `json`, the JSON. `has_several`: write a table of all analyses;
 * else show the first analysis, and the others are devices of the same file. `job`: the job of the ranks in the analyses;
 * NULL if there is none. */
bool flw_report_write_all(const struct flw_report_options *options,
                          const struct flw_analysis *analyses, size_t count, bool has_several,
                          const struct flw_job *job, struct flw_draft *json);
/* Check the thresholds. `baseline`: NULL, or the reference for the JSON of these analyses in the draft. */
bool flw_report_is_within(const struct flw_report_options *options,
                          const struct flw_analysis *analyses, size_t count,
                          const struct flw_json_tree *baseline, struct flw_draft *json);

#endif
