/* SPDX-License-Identifier: Apache-2.0 */
#include "report/run.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "trace/formats/formats.h"
#include "trace/trace/notes.h"
#include "trace/trace/trace.h"

#include "common/command.h"
#include "common/progress.h"
#include "common/tool_host.h"
#include "report/devices.h"
#include "report/page.h"

#define PATH_BYTES 4096

/* A trace to report. */
struct job {
    char *path;
    bool is_found; /* found in a folder: skipped if no trace */
    bool is_trace; /* was read */
};

struct work {
    const struct flw_report_options *options;
    struct job *jobs;
    size_t job_count, job_capacity;
    struct flw_analysis *analyses; /* shrunk if there are several jobs */
    size_t analysis_count, analysis_capacity;
    size_t place;                  /* index of the job */
    struct flw_job ranks;          /* used for several files, or records of ranks */
    struct flw_json_tree baseline; /* read before any output is written */
    struct flw_draft others;       /* the page's data of devices that are not shown at first */
    struct flw_draft own_json;
    struct flw_draft *json; /* JSON of all analyses; not begun if not requested */
    struct flw_device device;
    bool has_device; /* the device is open, because a trace was replayed */
    int code;
};

/* ---- which files ---- */

static void add_job(struct work *work, const char *path, bool is_found)
{
    size_t bytes = strlen(path) + 1;
    FLW_HOST_GROW(work->jobs, work->job_capacity, work->job_count + 1);
    struct job *job = &work->jobs[work->job_count++];
    *job = (struct job){.path = flw_host_alloc(bytes, 1), .is_found = is_found};
    memcpy(job->path, path, bytes);
}

static int compare_jobs(const void *a, const void *b)
{
    return strcmp(((const struct job *)a)->path, ((const struct job *)b)->path);
}

/* True if the name is a page of an earlier report or of documents, never a trace. */
static bool is_page(const char *name)
{
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".html") == 0;
}

/* Add the files of a folder and of its subfolders "rankM". `iteration` (PATH_BYTES) receives the subfolder
 * "iteration_N" with the highest N, or "" if there is none. Returns false after printing a message. */
static bool add_files(struct work *work, const char *path, char *iteration)
{
    char inner[PATH_BYTES];
    uint64_t latest = 0;
    bool is_read = true;
    DIR *folder = opendir(path);
    iteration[0] = '\0';
    if (folder == NULL) {
        return flw_complain("cannot read the folder '%.300s': %s", path, strerror(errno));
    }
    for (struct dirent *entry = readdir(folder); is_read && entry != NULL;
         entry = readdir(folder)) {
        const char *name = entry->d_name;
        struct stat about;
        bool fits = (size_t)snprintf(inner, sizeof inner, "%s/%s", path, name) < sizeof inner;
        if (name[0] == '.' || is_page(name) || !fits || stat(inner, &about) != 0) {
            continue;
        }
        if (S_ISREG(about.st_mode)) {
            add_job(work, inner, true);
        } else if (S_ISDIR(about.st_mode) && strncmp(name, "rank", 4) == 0) {
            char none[PATH_BYTES];
            is_read = add_files(work, inner, none);
        } else if (S_ISDIR(about.st_mode) && strncmp(name, "iteration_", 10) == 0 &&
                   strtoull(name + 10, NULL, 10) >= latest) {
            latest = strtoull(name + 10, NULL, 10);
            snprintf(iteration, PATH_BYTES, "%s", inner);
        }
    }
    closedir(folder);
    return is_read;
}

/* Add a folder. Of torchtitan's iterations (iteration_N/rankM_memory_snapshot.pickle) only the last is added. */
static bool add_folder(struct work *work, const char *path)
{
    size_t first = work->job_count;
    char iteration[PATH_BYTES], none[PATH_BYTES];
    if (!add_files(work, path, iteration)) {
        return false;
    }
    if (work->job_count == first && iteration[0] != '\0') {
        flw_complain("%s: the latest iteration is reported; name the folder of another", iteration);
        if (!add_files(work, iteration, none)) {
            return false;
        }
    }
    if (work->job_count == first) {
        return flw_complain("the folder '%.300s' has no files; name a trace or a folder of traces",
                            path);
    }
    qsort(work->jobs + first, work->job_count - first, sizeof *work->jobs, compare_jobs);
    return true;
}

static bool list_jobs(struct work *work)
{
    for (size_t i = 0; i < work->options->path_count; i++) {
        const char *path = work->options->paths[i];
        struct stat about;
        if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode)) {
            add_job(work, path, false);
        } else if (!add_folder(work, path)) {
            return false;
        }
    }
    return true;
}

/* ---- one trace ---- */

static void show_progress(void *context, double share)
{
    const struct work *work = context;
    flw_progress_show("replaying", work->jobs[work->place].path, NULL, share);
}

/* Open the device unless nothing is replayed, as for records of ranks. */
static bool open_device(struct work *work)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    if (work->has_device || work->options->writes_lines) {
        return true;
    }
    work->has_device = flw_device_open(&work->device, FLW_DEVICE_SIM, message);
    if (!work->has_device) {
        flw_complain("%s", message);
    }
    return work->has_device;
}

static bool collect(struct work *work, const struct flw_plan_lag *lag, bool replays,
                    struct flw_analysis *analysis)
{
    const struct flw_report_options *options = work->options;
    char message[FLW_RUN_MESSAGE_BYTES];
    struct flw_run_setup run = {.device = &work->device,
                                .trace = analysis->trace,
                                .program = analysis->program,
                                .device_bytes = flw_plan_device_bytes(analysis->trace),
                                .limit_bytes = options->plan.limit_bytes,
                                .lag_units = lag->units,
                                .pass_count = 1,
                                .checks = true,
                                .times = options->times};
    struct flw_analysis_setup setup = {.run = &run,
                                       .policies = options->plan.policies.list,
                                       .policy_count = replays ? options->plan.policies.count : 0,
                                       .rule = &options->rule,
                                       .is_by_time = lag->is_by_time,
                                       .are_policies_named = options->plan.policies.are_named,
                                       .on_progress = show_progress,
                                       .context = work};
    bool is_done = flw_analysis_collect(&setup, analysis, message);
    flw_progress_hide();
    if (!is_done) {
        return flw_complain("%s", message);
    }
    for (size_t i = 0; i < analysis->policy_count; i++) {
        if (!flw_plan_complain(analysis->policies[i].result)) {
            work->code = FLW_EXIT_FAILED;
        }
    }
    return true;
}

/* Return the rank of a file. A file without a rank in its name may be of this process's own rank. */
static uint64_t number_of(const struct work *work, const char *path)
{
    uint64_t number = flw_job_rank_of_path(path, NULL);
    const char *own = getenv("RANK");
    bool is_own = number == FLW_UNKNOWN && work->job_count == 1 && own != NULL;
    return is_own && !flw_parse_count(own, &number) ? FLW_UNKNOWN : number;
}

/* Add the record of a rank. Returns false if the whole report fails. */
static bool add_rank(struct work *work, const struct flw_analysis *analysis)
{
    const struct job *job = &work->jobs[work->place];
    struct flw_rank rank;
    const char *wrong =
        flw_rank_make(&rank, analysis, number_of(work, job->path), work->options->plan.limit_bytes);
    if (wrong == NULL) {
        flw_job_add(&work->ranks, &rank);
        return true;
    }
    flw_rank_finish(&rank);
    flw_complain("%s: %s, which is more than a record can contain; it is left out", job->path,
                 wrong);
    return !work->options->writes_lines || job->is_found;
}

/* Append an empty analysis and return the index. */
static size_t add_slot(struct work *work)
{
    FLW_HOST_GROW(work->analyses, work->analysis_capacity, work->analysis_count + 1);
    return work->analysis_count++;
}

/* True if a threshold or the JSON needs the policies of devices that are not shown. */
static bool compares_all(const struct work *work)
{
    const struct flw_report_options *options = work->options;
    return work->job_count > 1 || work->json->file != NULL ||
           options->outputs[FLW_REPORT_HTML] != NULL || options->max_reserved_bytes != 0 ||
           !isinf(options->max_fragmentation);
}

/* Write the output that needs one whole analysis: of the device that is shown, or of each row of a table. */
static bool write_analysis(struct work *work, size_t slot)
{
    const struct flw_report_options *options = work->options;
    const struct flw_analysis *analysis = &work->analyses[slot];
    bool has_several = work->job_count > 1;
    if ((has_several || options->writes_lines) && !add_rank(work, analysis)) {
        return false;
    }
    if (analysis->is_other && !has_several) {
        if (options->outputs[FLW_REPORT_HTML] != NULL) {
            fputc(',', work->others.file);
            flw_page_write_data(analysis, work->others.file);
        }
        return true;
    }
    bool is_known = fflush(work->others.file) == 0; /* fails if host memory ran out */
    return is_known &&
           flw_report_write_one(options, analysis, has_several, slot, work->others.text) &&
           (has_several || options->writes_lines ||
            flw_report_write_all(options, work->analyses, work->analysis_count, false, NULL,
                                 work->json));
}

/* Fill analysis number `slot`, which owns `trace` from then on. `others`: the devices that are not shown; NULL if `trace` is
 * of such a device. */
static bool report_trace(struct work *work, struct flw_trace *trace, size_t slot,
                         const struct flw_analysis_devices *others)
{
    const struct flw_report_options *options = work->options;
    struct flw_analysis *analysis = &work->analyses[slot];
    bool replays = !options->writes_lines && (others != NULL || compares_all(work));
    struct flw_plan_lag lag;
    analysis->trace = trace;
    if (!flw_plan_choose_lag(&options->plan, trace, true, &lag)) {
        return false;
    }
    analysis->program = flw_program_create(trace, lag.is_by_time);
    if (analysis->program == NULL) {
        return flw_complain("the trace has too many private pools and streams");
    }
    if (!open_device(work) || !collect(work, &lag, replays, analysis)) {
        return false;
    }
    if (others != NULL) {
        analysis->others = *others;
    } else {
        flw_devices_name(analysis);
    }
    bool is_done = write_analysis(work, slot);
    flw_analysis_shrink(analysis);
    return is_done;
}

/* Add a device that is not shown. Returns false if the whole report fails. */
static bool report_other(struct work *work, const char *place, int device,
                         struct flw_analysis_devices *others)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_trace *trace = NULL;
    if (!flw_trace_read(place, device, &trace, message)) {
        flw_complain("%s; device %d is left out", message, device);
        work->code = FLW_EXIT_FAILED;
        return true;
    }
    flw_devices_add(others, trace);
    bool is_compared = compares_all(work) || work->options->fails_on_oom ||
                       work->options->writes_lines ||
                       work->options->outputs[FLW_REPORT_HTML] != NULL;
    if (is_compared) {
        return report_trace(work, trace, add_slot(work), NULL);
    }
    flw_trace_destroy(trace);
    return true;
}

/* Report the devices of one file. The analysis owns `trace`. Returns false if the whole report fails. */
static bool report_file(struct work *work, const char *place, struct flw_trace *trace)
{
    struct flw_analysis_devices others = {.count = 0};
    int devices[FLW_ANALYSIS_DEVICES];
    bool is_one = work->options->plan.trace_device >= 0;
    size_t count = is_one ? 0 : flw_devices_list(trace, devices);
    size_t slot = add_slot(work);
    work->analyses[slot].trace = trace;
    bool is_done = true;
    for (size_t i = 0; is_done && i < count; i++) {
        is_done = report_other(work, place, devices[i], &others);
    }
    return is_done && report_trace(work, trace, slot, &others);
}

/* Report one file. Returns false if the whole report fails. */
static bool do_job(struct work *work, const struct job *job)
{
    char message[FLW_TRACE_MESSAGE_BYTES], place[FLW_PLACE_BYTES];
    struct flw_trace *trace = NULL;
    flw_progress_place(work->place + 1, work->job_count);
    snprintf(place, sizeof place, "%s", flw_input_place(job->path));
    if (strncmp(place, "/dev/", 5) == 0 && !flw_devices_hold_pipe(job->path, place)) {
        return false;
    }
    if (!flw_trace_read(place, work->options->plan.trace_device, &trace, message)) {
        /* Skip an earlier run's output in the folder without a message. */
        if (!job->is_found || !flw_report_is_output(work->options, job->path)) {
            flw_complain("%s%s", message, job->is_found ? "; left out" : "");
        }
        return job->is_found;
    }
    if (!flw_report_spares(work->options, job->path)) {
        flw_trace_destroy(trace);
        work->code = FLW_EXIT_USAGE;
        return false;
    }
    if (trace->truncation != NULL) {
        flw_complain("%s: %s; reporting the part before", job->path, trace->truncation);
    }
    int bytes = 0;
    if (flw_notes_find(trace->notes, FLW_NOTES_OVERWRITTEN, &bytes) != NULL) {
        flw_complain("%s: " FLW_NOTES_OVERWRITTEN_SAYS, job->path);
    }
    work->jobs[work->place].is_trace = true;
    return report_file(work, place, trace);
}

/* ---- all traces ---- */

static void finish(struct work *work)
{
    for (size_t i = 0; i < work->job_count; i++) {
        flw_host_free(work->jobs[i].path);
    }
    flw_host_free(work->jobs);
    for (size_t i = 0; i < work->analysis_count; i++) {
        flw_analysis_finish(&work->analyses[i]);
    }
    flw_job_finish(&work->ranks);
    flw_json_tree_finish(&work->baseline);
    flw_draft_abandon(&work->others);
    flw_draft_abandon(&work->own_json);
    flw_host_free(work->analyses);
}

static bool make_room(struct work *work)
{
    const struct flw_report_options *options = work->options;
    size_t of_one = FLW_REPORT_CSV;
    while (of_one < FLW_REPORT_OUTPUTS && options->outputs[of_one] == NULL) {
        of_one++;
    }
    bool has_room = work->job_count <= 1 || of_one == FLW_REPORT_OUTPUTS;
    if (!has_room) {
        flw_complain("--%s is of one trace, and there are %zu; report them in turn",
                     flw_report_output_names[of_one], work->job_count);
        work->code = FLW_EXIT_USAGE;
    }
    return has_room;
}

/* True if the names of the files are those of a job. */
static bool are_ranks(const struct work *work)
{
    FLW_LOCAL const char **paths = flw_host_alloc(work->job_count, sizeof *paths);
    size_t count = 0;
    uint64_t twice = FLW_UNKNOWN;
    for (size_t i = 0; i < work->job_count; i++) {
        paths[count] = work->jobs[i].path;
        count += work->jobs[i].is_trace;
    }
    bool are = flw_job_is_told(paths, count, &twice);
    if (twice != FLW_UNKNOWN) {
        flw_complain("rank %" PRIu64 " has several traces, and ranks are not compared; use fallow "
                     "report --json-lines and merge with one trace of each",
                     twice);
    }
    return are;
}

/* Write the output of all traces together. */
static bool write_all(struct work *work)
{
    flw_job_seal(&work->ranks);
    if (work->options->writes_lines) {
        flw_job_print_lines(&work->ranks, stdout);
        return true;
    }
    return work->job_count == 1 ||
           flw_report_write_all(work->options, work->analyses, work->analysis_count, true,
                                are_ranks(work) ? &work->ranks : NULL, work->json);
}

/* Check the thresholds. If one fails, the baseline is not replaced. */
static bool judge(struct work *work)
{
    const struct flw_report_options *options = work->options;
    bool is_within =
        flw_report_is_within(options, work->analyses, work->analysis_count,
                             options->baseline_path == NULL ? NULL : &work->baseline, work->json);
    if (!flw_report_replaces_baseline(options)) {
        return is_within;
    }
    if (!is_within) {
        flw_complain("%s: the baseline was not replaced", options->outputs[FLW_REPORT_JSON]);
    }
    return is_within && flw_draft_write(work->json, options->outputs[FLW_REPORT_JSON]);
}

static bool do_jobs(struct work *work)
{
    bool is_done = true;
    for (; is_done && work->place < work->job_count; work->place++) {
        is_done = do_job(work, &work->jobs[work->place]);
    }
    if (work->has_device) {
        flw_device_close(&work->device);
    }
    flw_progress_hide();
    if (is_done && work->analysis_count == 0) {
        flw_complain("none of the files is a trace; see fallow trace import --help for the forms");
    }
    is_done = is_done && work->analysis_count != 0;
    is_done = is_done && write_all(work) && judge(work);
    return is_done && (work->options->json_draft == NULL || flw_draft_end(work->json, true, NULL));
}

/* Read the baseline before anything is written: the JSON may replace it. */
static bool begin_json(struct work *work)
{
    const struct flw_report_options *options = work->options;
    char message[FLW_BASELINE_MESSAGE_BYTES];
    if (options->baseline_path != NULL &&
        !flw_baseline_read(flw_input_place(options->baseline_path), &work->baseline, message)) {
        return flw_complain("%s", message);
    }
    work->json = options->json_draft != NULL ? options->json_draft : &work->own_json;
    if (options->json_draft != NULL || options->outputs[FLW_REPORT_JSON] != NULL ||
        options->baseline_path != NULL) {
        flw_draft_begin(work->json, "");
    }
    return true;
}

int flw_report_run(const struct flw_report_options *options)
{
    struct work work = {.options = options};
    flw_draft_begin(&work.others, "");
    flw_progress_begin();
    if (!flw_report_can_write(options) || !begin_json(&work) || !list_jobs(&work) ||
        !make_room(&work) || !do_jobs(&work)) {
        work.code = work.code == FLW_EXIT_OK ? FLW_EXIT_FAILED : work.code;
    }
    finish(&work);
    return work.code;
}
