/* SPDX-License-Identifier: Apache-2.0 */
#include "report/run.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "trace/io/input.h"
#include "trace/io/output.h"
#include "trace/trace/trace.h"

#include "common/command.h"
#include "common/draft.h"
#include "common/figures.h"
#include "common/terminal.h"
#include "common/tool_host.h"
#include "report/page.h"
#include "report/print.h"

#define PATH_BYTES 4096

/* ---- output files ---- */

const char *const flw_report_output_names[FLW_REPORT_OUTPUTS] = {"html",       "json",   "csv",
                                                                 "csv-owners", "folded", "chrome"};

/* Return the path of an output; NULL: not requested, or standard output. */
static const char *file_of(const struct flw_report_options *options, size_t output)
{
    const char *path = options->outputs[output];
    return flw_output_is_stdout(path) ? NULL : path;
}

/* Return the output before `end` that is this file, or `end` if there is none. */
static size_t find_output(const struct flw_report_options *options, size_t end, const char *path)
{
    size_t i = 0;
    while (i < end &&
           (file_of(options, i) == NULL || !flw_is_same_file(file_of(options, i), path))) {
        i++;
    }
    return i;
}

bool flw_report_is_output(const struct flw_report_options *options, const char *path)
{
    return find_output(options, FLW_REPORT_OUTPUTS, path) != FLW_REPORT_OUTPUTS;
}

/* Print an error if an output before `end` is this file; `what` describes the file. */
static bool is_spared(const struct flw_report_options *options, size_t end, const char *path,
                      const char *what)
{
    size_t i = find_output(options, end, path);
    return i == end || flw_complain("--%s %s is %s; name another file", flw_report_output_names[i],
                                    file_of(options, i), what);
}

bool flw_report_spares(const struct flw_report_options *options, const char *trace)
{
    return is_spared(options, FLW_REPORT_OUTPUTS, flw_input_place(trace), "the trace itself");
}

bool flw_report_check_outputs(const struct flw_report_options *options)
{
    char what[64];
    bool is_good = true;
    for (size_t i = 0; is_good && i < FLW_REPORT_OUTPUTS; i++) {
        snprintf(what, sizeof what, "the file of --%s", flw_report_output_names[i]);
        is_good = file_of(options, i) == NULL || is_spared(options, i, file_of(options, i), what);
    }
    for (size_t i = 0; is_good && i < options->path_count; i++) {
        is_good = flw_report_spares(options, options->paths[i]);
    }
    return is_good && (options->baseline_path == NULL || flw_report_replaces_baseline(options) ||
                       is_spared(options, FLW_REPORT_OUTPUTS,
                                 flw_input_place(options->baseline_path), "the baseline"));
}

bool flw_report_can_write(const struct flw_report_options *options)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    bool can = true;
    for (size_t i = 0; can && i < FLW_REPORT_OUTPUTS; i++) {
        can = file_of(options, i) == NULL || flw_output_is_possible(file_of(options, i), message) ||
              flw_complain("%s", message);
    }
    return can;
}

/* ---- one trace ---- */

/* Name the page of one trace: for "DIR/out.html" and the third trace "DIR/out-3-NAME.html", without the folder. */
static void name_page(const char *path, const struct flw_analysis *analysis, size_t place,
                      char *out)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash == NULL ? path : slash + 1;
    const char *dot = strrchr(base, '.');
    size_t stem = dot == NULL || dot == base ? strlen(base) : (size_t)(dot - base);
    char title[FLW_ANALYSIS_NAME_BYTES];
    snprintf(title, sizeof title, "%s", analysis->title);
    for (char *c = title; *c != '\0'; c++) {
        bool is_plain = isalnum((unsigned char)*c) || *c == '.' || *c == '-' || *c == '_';
        *c = is_plain ? *c : '_';
    }
    snprintf(out, PATH_BYTES, "%.*s-%zu-%s.html", (int)flw_min(stem, 1024), base, place + 1, title);
}

static bool write_page(const struct flw_report_options *options,
                       const struct flw_analysis *analysis, bool has_several, size_t place,
                       const char *others)
{
    const char *path = options->outputs[FLW_REPORT_HTML];
    char of_one[2 * PATH_BYTES], name[PATH_BYTES];
    struct flw_draft draft;
    if (path == NULL || (has_several && flw_output_is_stdout(path))) {
        return true;
    }
    if (has_several) {
        const char *slash = strrchr(path, '/');
        size_t folder = slash == NULL ? 0 : (size_t)(slash + 1 - path);
        name_page(path, analysis, place, name);
        snprintf(of_one, sizeof of_one, "%.*s%s", (int)flw_min(folder, PATH_BYTES), path, name);
        path = of_one;
    }
    flw_draft_begin(&draft, "");
    return flw_draft_end(&draft, flw_page_write(analysis, others, draft.file), path);
}

/* Write a format of another tool directly to the file, because the output may be larger than free memory. */
static bool write_form(const struct flw_report_options *options,
                       const struct flw_analysis *analysis, enum flw_report_output which)
{
    static void (*const prints[])(const struct flw_analysis *, enum flw_analysis_moment,
                                  FILE *) = {[FLW_REPORT_CSV] = flw_print_csv,
                                             [FLW_REPORT_CSV_OWNERS] = flw_print_csv_owners,
                                             [FLW_REPORT_FOLDED] = flw_print_folded,
                                             [FLW_REPORT_CHROME] = flw_print_chrome};
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_output output;
    if (options->outputs[which] == NULL) {
        return true;
    }
    bool is_done = flw_output_begin(&output, options->outputs[which], message);
    if (is_done) {
        prints[which](analysis, options->folded_at, output.file);
        is_done = flw_output_commit(&output, message);
    }
    return is_done || flw_complain("%s", message);
}

bool flw_report_write_one(const struct flw_report_options *options,
                          const struct flw_analysis *analysis, bool has_several, size_t place,
                          const char *others)
{
    bool is_done =
        options->outputs[FLW_REPORT_FOLDED] == NULL || options->folded_at != FLW_ANALYSIS_AT_OOM ||
        analysis->oom.count != 0 ||
        flw_complain("%s: did not run out of memory; use --at peak or --at end", analysis->title);
    for (unsigned i = FLW_REPORT_CSV; is_done && i < FLW_REPORT_OUTPUTS; i++) {
        is_done = write_form(options, analysis, i);
    }
    return is_done && write_page(options, analysis, has_several, place, others);
}

/* ---- all outputs ---- */

static bool write_landing(const struct flw_report_options *options,
                          const struct flw_analysis *analyses, size_t count,
                          const struct flw_job *job)
{
    const char *path = options->outputs[FLW_REPORT_HTML];
    struct flw_draft draft, text;
    FLW_LOCAL char(*names)[PATH_BYTES] = flw_host_alloc(count, sizeof *names);
    FLW_LOCAL const char **links = flw_host_alloc(count, sizeof *links);
    for (size_t i = 0; !flw_output_is_stdout(path) && i < count; i++) {
        name_page(path, &analyses[i], i, names[i]);
        links[i] = names[i];
    }
    flw_draft_begin(&text, "");
    if (job != NULL) {
        flw_job_print_text(job, text.file);
    }
    bool is_good = flw_draft_end(&text, true, NULL);
    flw_draft_begin(&draft, "");
    is_good = is_good && flw_page_write_landing(analyses, count, links,
                                                job == NULL ? NULL : text.text, draft.file);
    is_good = flw_draft_end(&draft, is_good, path);
    free(text.text);
    return is_good;
}

static void print_screen(const struct flw_report_options *options,
                         const struct flw_analysis *analyses, size_t count, bool has_several,
                         const struct flw_job *job)
{
    FILE *out = flw_terminal_open(options->is_ascii);
    if (!has_several || count == 1) {
        flw_print_text(&analyses[0], options->is_ascii || !flw_terminal_is_utf8(),
                       options->shows_times, out);
    } else {
        flw_print_landing(analyses, count, out);
    }
    if (job != NULL) {
        fputc('\n', out);
        flw_job_print_text(job, out);
    }
    flw_terminal_close(out);
}

bool flw_report_replaces_baseline(const struct flw_report_options *options)
{
    return options->outputs[FLW_REPORT_JSON] != NULL && options->baseline_path != NULL &&
           flw_is_same_file(options->outputs[FLW_REPORT_JSON],
                            flw_input_place(options->baseline_path));
}

bool flw_report_write_all(const struct flw_report_options *options,
                          const struct flw_analysis *analyses, size_t count, bool has_several,
                          const struct flw_job *job, struct flw_draft *json)
{
    if (json->file != NULL) {
        flw_print_json(analyses, count, job, json->file);
    }
    if (options->json_draft != NULL) {
        return true;
    }
    if (options->outputs[FLW_REPORT_JSON] != NULL && !flw_report_replaces_baseline(options) &&
        !flw_draft_write(json, options->outputs[FLW_REPORT_JSON])) {
        return false;
    }
    if (options->outputs[FLW_REPORT_HTML] != NULL && has_several &&
        !write_landing(options, analyses, count, job)) {
        return false;
    }
    if (flw_report_stdout_count(options) == 0) {
        print_screen(options, analyses, count, has_several, job);
    }
    return true;
}

/* ---- thresholds ---- */

/* Return the reserved bytes, or the fragmentation; negative if the policy does not report them. */
static double measure(const struct flw_analysis_policy *policy, bool of_reserved)
{
    const struct flw_run_result *result = policy->result;
    bool is_measured = strcmp(result->policy->name, flw_policy_bound.name) != 0 &&
                       result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE;
    return !of_reserved  ? policy->fragmentation
           : is_measured ? (double)result->statistics.peak_reserved_bytes
                         : -1;
}

/* Print an error about the worst policy above `most`, the first of equals, if there is one. */
static bool is_below(double most, bool of_reserved, const struct flw_analysis *analyses,
                     size_t count)
{
    const struct flw_analysis *of = NULL;
    const char *name = NULL;
    double worst = most;
    for (size_t i = 0; i < count; i++) {
        for (size_t p = 0; p < analyses[i].policy_count; p++) {
            if (measure(&analyses[i].policies[p], of_reserved) > worst) {
                worst = measure(&analyses[i].policies[p], of_reserved);
                name = analyses[i].policies[p].result->policy->name;
                of = &analyses[i];
            }
        }
    }
    if (of == NULL) {
        return true;
    }
    if (of_reserved) {
        return flw_complain("%s: policy %s reserves %s bytes, %s more than --max-reserved allows",
                            of->title, name, FLW_COUNT((uint64_t)worst),
                            FLW_COUNT((uint64_t)worst - (uint64_t)most));
    }
    return flw_complain("%s: policy %s has a fragmentation of %.3f at its peak, %.3f more than "
                        "--max-fragmentation allows",
                        of->title, name, worst, worst - most);
}

static bool is_without_oom(const struct flw_analysis *analyses, size_t count)
{
    bool is_without = true;
    for (size_t i = 0; i < count; i++) {
        const struct flw_analysis_oom *oom = &analyses[i].oom;
        if (oom->count != 0) {
            is_without =
                flw_complain("%s: ran out of memory at event %s: %s bytes requested by %s",
                             analyses[i].title, FLW_COUNT(oom->event), FLW_COUNT(oom->asked_bytes),
                             oom->owner[0] != '\0' ? oom->owner : "unknown code");
        }
    }
    return is_without;
}

static bool is_below_baseline(const struct flw_json_tree *then, struct flw_draft *json)
{
    char message[FLW_BASELINE_MESSAGE_BYTES] = "out of host memory";
    struct flw_json_tree now = {0};
    bool is_kept = fflush(json->file) == 0 &&
                   flw_baseline_read_bytes(json->text, json->length, &now, message) &&
                   flw_baseline_is_kept(then, &now, message);
    flw_json_tree_finish(&now);
    return is_kept || flw_complain("%s", message);
}

bool flw_report_is_within(const struct flw_report_options *options,
                          const struct flw_analysis *analyses, size_t count,
                          const struct flw_json_tree *baseline, struct flw_draft *json)
{
    bool is_within = true;
    if (options->max_reserved_bytes != 0) {
        is_within &= is_below((double)options->max_reserved_bytes, true, analyses, count);
    }
    is_within &= is_below(options->max_fragmentation, false, analyses, count);
    if (options->fails_on_oom) {
        is_within &= is_without_oom(analyses, count);
    }
    if (baseline != NULL) {
        is_within &= is_below_baseline(baseline, json);
    }
    return is_within;
}
