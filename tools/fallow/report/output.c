/* SPDX-License-Identifier: Apache-2.0 */
#include "report/work.h"

#include <ctype.h>
#include <stddef.h>
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

#define OUTPUT(name, member)                              \
    {                                                     \
        name, offsetof(struct flw_report_options, member) \
    }
static const struct {
    const char *name;
    size_t offset;
} outputs[] = {OUTPUT("html", html_path),     OUTPUT("json", json_path),
               OUTPUT("csv", csv_path),       OUTPUT("csv-owners", csv_owners_path),
               OUTPUT("folded", folded_path), OUTPUT("chrome", chrome_path)};
#undef OUTPUT
#define OUTPUT_COUNT (sizeof outputs / sizeof *outputs)

/* Return the path of output `i`; NULL: not requested, or standard output. */
static const char *file_of(const struct flw_report_options *options, size_t i)
{
    const char *path =
        *(const char *const *)(const void *)((const char *)options + outputs[i].offset);
    return flw_report_is_stdout(path) ? NULL : path;
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
    return find_output(options, OUTPUT_COUNT, path) != OUTPUT_COUNT;
}

/* Print an error if an output before `end` is this file; `what` describes the file. */
static bool is_spared(const struct flw_report_options *options, size_t end, const char *path,
                      const char *what)
{
    size_t i = find_output(options, end, path);
    if (i != end) {
        flw_complain("--%s %s is %s; name another file", outputs[i].name, file_of(options, i),
                     what);
    }
    return i == end;
}

bool flw_report_spares(const struct flw_report_options *options, const char *trace)
{
    return is_spared(options, OUTPUT_COUNT, flw_input_place(trace), "the trace itself");
}

bool flw_report_check_outputs(const struct flw_report_options *options)
{
    char what[64];
    bool is_good = true;
    for (size_t i = 0; is_good && i < OUTPUT_COUNT; i++) {
        snprintf(what, sizeof what, "what --%s names", outputs[i].name);
        is_good = file_of(options, i) == NULL || is_spared(options, i, file_of(options, i), what);
    }
    for (size_t i = 0; is_good && i < options->path_count; i++) {
        is_good = flw_report_spares(options, options->paths[i]);
    }
    if (is_good && options->baseline_path != NULL && !flw_report_replaces_baseline(options)) {
        is_good = is_spared(options, OUTPUT_COUNT, flw_input_place(options->baseline_path),
                            "the baseline");
    }
    return is_good;
}

bool flw_report_can_write(const struct flw_report_options *options)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    for (size_t i = 0; i < OUTPUT_COUNT; i++) {
        if (file_of(options, i) != NULL && !flw_output_is_possible(file_of(options, i), message)) {
            flw_complain("%s", message);
            return false;
        }
    }
    return true;
}

/* ---- files ---- */

/* Name the page of one trace: for "DIR/out.html" and the third trace "DIR/out-3-NAME.html". */
static void name_page(const struct flw_report_options *options, const struct flw_sheet *sheet,
                      size_t place, char *out)
{
    const char *slash = strrchr(options->html_path, '/');
    const char *base = slash == NULL ? options->html_path : slash + 1;
    const char *dot = strrchr(base, '.');
    size_t stem = dot == NULL || dot == base ? strlen(base) : (size_t)(dot - base);
    char title[FLW_SHEET_NAME_BYTES];
    snprintf(title, sizeof title, "%s", sheet->title);
    for (char *c = title; *c != '\0'; c++) {
        bool is_plain = isalnum((unsigned char)*c) || *c == '.' || *c == '-' || *c == '_';
        *c = is_plain ? *c : '_';
    }
    snprintf(out, PATH_BYTES, "%.*s-%zu-%s.html", (int)flw_min(stem, 1024), base, place + 1, title);
}

static bool write_page(const struct flw_sheet *sheet, const char *others, const char *path)
{
    struct flw_draft draft;
    flw_draft_begin(&draft, "");
    return flw_draft_end(&draft, flw_page_write(sheet, others, draft.file), path);
}

/* ---- formats of other tools ---- */

/* Write one format directly to the file, because the output may be larger than free memory. */
static bool write_form(const struct flw_report_options *options, const struct flw_sheet *sheet,
                       const char *path,
                       void (*print)(const struct flw_sheet *, const struct flw_print_form *,
                                     FILE *))
{
    const struct flw_print_form form = {&options->rule, options->folded_at};
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_output output;
    bool is_done = path == NULL || flw_output_begin(&output, path, message);
    if (is_done && path != NULL) {
        print(sheet, &form, output.file);
        is_done = flw_output_commit(&output, message);
    }
    if (!is_done) {
        flw_complain("%s", message);
    }
    return is_done;
}

static bool write_forms(const struct flw_report_options *options, const struct flw_sheet *sheet)
{
    bool lacks_oom = options->folded_path != NULL && options->folded_at == FLW_SHEET_AT_OOM &&
                     sheet->oom.count == 0;
    if (lacks_oom) {
        flw_complain("%s: did not run out of memory; use --at peak or --at end", sheet->title);
    }
    return !lacks_oom && write_form(options, sheet, options->csv_path, flw_print_csv) &&
           write_form(options, sheet, options->csv_owners_path, flw_print_csv_owners) &&
           write_form(options, sheet, options->folded_path, flw_print_folded) &&
           write_form(options, sheet, options->chrome_path, flw_print_chrome);
}

bool flw_report_write_one(const struct flw_report_options *options, const struct flw_sheet *sheet,
                          bool has_several, size_t place, const char *others)
{
    if (!write_forms(options, sheet)) {
        return false;
    }
    if (options->html_path == NULL || (has_several && flw_report_is_stdout(options->html_path))) {
        return true;
    }
    if (!has_several) {
        return write_page(sheet, others, options->html_path);
    }
    char name[PATH_BYTES];
    char path[2 * PATH_BYTES];
    const char *slash = strrchr(options->html_path, '/');
    size_t folder = slash == NULL ? 0 : (size_t)(slash + 1 - options->html_path);
    name_page(options, sheet, place, name);
    snprintf(path, sizeof path, "%.*s%s", (int)flw_min(folder, PATH_BYTES), options->html_path,
             name);
    return write_page(sheet, others, path);
}

/* ---- all outputs ---- */

/* Return the text about the job, which the caller frees, or NULL after printing that memory ran out. */
static char *say_job(const struct flw_job *job)
{
    struct flw_draft draft;
    flw_draft_begin(&draft, "");
    flw_job_print_text(job, flw_terminal_columns(), draft.file);
    return flw_draft_end(&draft, true, NULL) ? draft.text : NULL;
}

static bool write_landing(const struct flw_report_options *options, const struct flw_sheet *sheets,
                          size_t count, const struct flw_job *job)
{
    struct flw_draft draft;
    bool has_links = !flw_report_is_stdout(options->html_path);
    char **links = flw_host_alloc(count, sizeof *links);
    for (size_t i = 0; has_links && i < count; i++) {
        links[i] = flw_host_alloc(PATH_BYTES, 1);
        name_page(options, &sheets[i], i, links[i]);
    }
    char *text = job == NULL ? NULL : say_job(job);
    flw_draft_begin(&draft, "");
    bool is_good =
        flw_page_write_landing(sheets, count, (const char *const *)links, text, draft.file);
    is_good = flw_draft_end(&draft, is_good, options->html_path);
    for (size_t i = 0; i < count; i++) {
        flw_host_free(links[i]);
    }
    flw_host_free(links);
    free(text);
    return is_good;
}

static void print_screen(const struct flw_report_options *options, const struct flw_sheet *sheets,
                         size_t count, bool has_several, const struct flw_job *job)
{
    struct flw_print_style style = {.is_ascii = options->is_ascii || !flw_terminal_is_utf8(),
                                    .columns = flw_terminal_columns(),
                                    .uses_colour = flw_terminal_has_colour(),
                                    .has_times = options->shows_times};
    FILE *out = flw_terminal_open(options->is_ascii);
    if (!has_several || count == 1) {
        flw_print_text(&sheets[0], &style, out);
    } else {
        flw_print_landing(sheets, count, &style, out);
    }
    if (job != NULL) {
        fputc('\n', out);
        flw_job_print_text(job, style.columns, out);
    }
    flw_terminal_close(out);
}

bool flw_report_replaces_baseline(const struct flw_report_options *options)
{
    return options->json_path != NULL && options->baseline_path != NULL &&
           flw_is_same_file(options->json_path, flw_input_place(options->baseline_path));
}

bool flw_report_write_all(const struct flw_report_options *options, const struct flw_sheet *sheets,
                          size_t count, bool has_several, const struct flw_job *job,
                          struct flw_draft *json)
{
    if (json->file != NULL) {
        flw_print_json(sheets, count, job, json->file);
    }
    if (options->json_draft != NULL) {
        return true;
    }
    if (options->json_path != NULL && !flw_report_replaces_baseline(options) &&
        !flw_draft_write(json, options->json_path)) {
        return false;
    }
    if (options->html_path != NULL && has_several && !write_landing(options, sheets, count, job)) {
        return false;
    }
    if (flw_report_stdout_count(options) == 0) {
        print_screen(options, sheets, count, has_several, job);
    }
    return true;
}

/* ---- thresholds ---- */

/* Return the figure that a threshold limits; negative if the policy does not report the figure. */
static double reserved_of(const struct flw_sheet_policy *policy)
{
    const struct flw_run_result *result = policy->result;
    bool is_measured = strcmp(result->policy->name, flw_policy_bound.name) != 0 &&
                       result->statistics.peak_reserved_bytes != FLW_NOT_APPLICABLE;
    return is_measured ? (double)result->statistics.peak_reserved_bytes : -1;
}

static double fragmentation_of(const struct flw_sheet_policy *policy)
{
    return policy->fragmentation;
}

/* Return the worst policy above `most`, the first of equals, or NULL. */
static const struct flw_sheet_policy *find_worst(const struct flw_sheet *sheets, size_t count,
                                                 double most,
                                                 double (*measure)(const struct flw_sheet_policy *),
                                                 const struct flw_sheet **out_of)
{
    const struct flw_sheet_policy *worst = NULL;
    for (size_t i = 0; i < count; i++) {
        for (size_t p = 0; p < sheets[i].policy_count; p++) {
            if (measure(&sheets[i].policies[p]) > most) {
                worst = &sheets[i].policies[p];
                most = measure(worst);
                *out_of = &sheets[i];
            }
        }
    }
    return worst;
}

static bool is_below_reserved(uint64_t most_bytes, const struct flw_sheet *sheets, size_t count)
{
    const struct flw_sheet *of = NULL;
    const struct flw_sheet_policy *worst =
        find_worst(sheets, count, (double)most_bytes, reserved_of, &of);
    if (worst != NULL) {
        uint64_t bytes = worst->result->statistics.peak_reserved_bytes;
        char held[FLW_FIGURE_BYTES], above[FLW_FIGURE_BYTES];
        flw_format_count(bytes, held);
        flw_format_count(bytes - most_bytes, above);
        flw_complain("%s: policy %s reserves %s bytes, %s more than --max-reserved allows",
                     of->title, worst->result->policy->name, held, above);
    }
    return worst == NULL;
}

static bool is_below_fragmentation(double most, const struct flw_sheet *sheets, size_t count)
{
    const struct flw_sheet *of = NULL;
    const struct flw_sheet_policy *worst = find_worst(sheets, count, most, fragmentation_of, &of);
    if (worst != NULL) {
        flw_complain("%s: policy %s has a fragmentation of %.3f at its peak, %.3f more than "
                     "--max-fragmentation allows",
                     of->title, worst->result->policy->name, worst->fragmentation,
                     worst->fragmentation - most);
    }
    return worst == NULL;
}

static bool is_without_oom(const struct flw_sheet *sheets, size_t count)
{
    bool is_without = true;
    for (size_t i = 0; i < count; i++) {
        const struct flw_sheet_oom *oom = &sheets[i].oom;
        char asked[FLW_FIGURE_BYTES], event[FLW_FIGURE_BYTES];
        if (oom->count != 0) {
            is_without = false;
            flw_format_count(oom->asked_bytes, asked);
            flw_format_count(oom->event, event);
            flw_complain("%s: ran out of memory at event %s: %s bytes requested by %s",
                         sheets[i].title, event, asked,
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
    if (!is_kept) {
        flw_complain("%s", message);
    }
    flw_json_tree_finish(&now);
    return is_kept;
}

bool flw_report_is_within(const struct flw_report_options *options, const struct flw_sheet *sheets,
                          size_t count, const struct flw_json_tree *baseline,
                          struct flw_draft *json)
{
    bool is_within = true;
    if (options->max_reserved_bytes != 0) {
        is_within &= is_below_reserved(options->max_reserved_bytes, sheets, count);
    }
    is_within &= is_below_fragmentation(options->max_fragmentation, sheets, count);
    if (options->fails_on_oom) {
        is_within &= is_without_oom(sheets, count);
    }
    if (baseline != NULL) {
        is_within &= is_below_baseline(baseline, json);
    }
    return is_within;
}
