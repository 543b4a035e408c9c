/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow report`: the command line and exit codes.
 * Does not: collect (collect.c), print (print.h) or write files (output.c).
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/io/input.h"
#include "trace/io/output.h"
#include "trace/trace/trace.h"

#include "common/command.h"
#include "common/draft.h"
#include "common/terminal.h"
#include "report/baseline.h"
#include "report/devices.h"
#include "report/print.h"
#include "report/run.h"

static const char help[] =
    "usage: fallow report TRACE|FOLDER ... [OPTIONS]\n"
    "       fallow report diff A B\n"
    "       fallow report merge RECORDS...\n"
    "\n"
    "Show which code held the memory of a recorded program, and how much other allocators would have\n"
    "reserved: each policy is replayed on a simulated GPU. Several traces, or a folder, make one table.\n"
    "- is standard input. A FILE named .gz, .xz or .zst is packed.\n"
    "\n"
    "  --html FILE           write a page with pictures; for several traces, one more page each beside it\n"
    "  --json FILE           write every number; - is standard output, without the text\n"
    "  --csv FILE            write time series in at most 2000 rows a policy. A row lasts from its event\n"
    "                        to the next row: the most live, in blocks and reserved, and the holes after\n"
    "                        holes_event\n"
    "  --csv-owners FILE     write one row for each owner: bytes and blocks at the peak, when memory ran\n"
    "                        out, at the end, allocated in the recording and not freed, and in total\n"
    "  --folded FILE         write the live memory by call stack for flame graphs: a;b;c bytes\n"
    "  --at MOMENT           the moment of --folded: peak (default), oom or end\n"
    "  --chrome FILE         write blocks as slices and owners as counters for Perfetto and\n"
    "                        chrome://tracing\n"
    "  --json-lines          print one record a trace for fallow report merge; nothing is replayed\n"
    "  --policy A,B          policies to replay (all); see fallow replay --help\n"
    "  --lag N|TIME          assume GPU work completes N events or TIME (200us, 5ms) after submission;\n"
    "                        default as in fallow replay\n"
    "  --limit BYTES         most memory that a policy may reserve (K, M, G, T allowed)\n"
    "  --trace-device N      device of the recording; default the one that ran out of memory first, else\n"
    "                        the busiest\n"
    "  --owner REGEX         frames that own memory before all others: a POSIX extended expression,\n"
    "                        matched against 'function (file:line)'\n"
    "  --skip REGEX          frames that never own memory; both options may be repeated\n"
    "  --by WORD             name owners by frame (default), file, module (the installed package, else\n"
    "                        the folder) or phase of the recording\n"
    "  --times               add a column of host times: the median of an operation, in ns\n"
    "  --no-times            no host times in any output: the same trace gives the same bytes\n"
    "  --ascii               print ASCII only, as in a locale without UTF-8\n"
    "\n"
    "exit code 1, and a line with the policy and the excess, if\n"
    "  --max-reserved BYTES      a policy reserves more\n"
    "  --max-fragmentation X     the fragmentation of a policy at its peak exceeds X, from 0 to 1:\n"
    "                            1 - largest hole / all holes\n"
    "  --fail-on-oom             the recording ran out of memory\n"
    "  --baseline FILE.json      a policy reserves more or fails more requests than in an earlier --json\n"
    "\n"
    "example: fallow report snapshot.pickle --html report.html\n";

/* ---- command line ---- */

static bool take_share(void *member, const char *text)
{
    char *end = NULL;
    double *share = member;
    *share = strtod(text, &end);
    return (end != text && *end == '\0' && *share >= 0 && *share <= 1) ||
           flw_complain("--max-fragmentation '%s' is not a number from 0 to 1", text);
}

static bool take_moment(void *member, const char *word)
{
    static const char *const words[] = {[FLW_ANALYSIS_AT_PEAK] = "peak",
                                        [FLW_ANALYSIS_AT_OOM] = "oom",
                                        [FLW_ANALYSIS_AT_END] = "end"};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]) == 0) {
            *(enum flw_analysis_moment *)member = (enum flw_analysis_moment)i;
            return true;
        }
    }
    return flw_complain("--at '%s' is none of peak, oom and end", word);
}

/* The options of a rule of owners at this offset in the settings. */
#define OWNER_OPTIONS(at)                                                                     \
    {.name = "owner", .kind = FLW_OPTION_TAKE, .offset = at, .take = flw_owner_take_owner},   \
        {.name = "skip", .kind = FLW_OPTION_TAKE, .offset = at, .take = flw_owner_take_skip}, \
    {                                                                                         \
        .name = "by", .kind = FLW_OPTION_TAKE, .offset = at, .take = flw_owner_take_by        \
    }

#define OPTION(word, kind, member) FLW_OPTION(struct flw_report_options, word, kind, member)

static const struct flw_option option_list[] = {
    FLW_PLAN_OPTIONS(struct flw_report_options, plan),
    {OPTION("html", TEXT, outputs[FLW_REPORT_HTML])},
    {OPTION("json", TEXT, outputs[FLW_REPORT_JSON])},
    {OPTION("csv", TEXT, outputs[FLW_REPORT_CSV])},
    {OPTION("csv-owners", TEXT, outputs[FLW_REPORT_CSV_OWNERS])},
    {OPTION("folded", TEXT, outputs[FLW_REPORT_FOLDED])},
    {OPTION("chrome", TEXT, outputs[FLW_REPORT_CHROME])},
    {OPTION("at", TAKE, folded_at), .take = take_moment},
    {OPTION("json-lines", SET, writes_lines)},
    OWNER_OPTIONS(offsetof(struct flw_report_options, rule)),
    {OPTION("times", SET, shows_times)},
    {OPTION("no-times", CLEAR, times)},
    {OPTION("ascii", SET, is_ascii)},
    {OPTION("max-reserved", BYTES, max_reserved_bytes)},
    {OPTION("max-fragmentation", TAKE, max_fragmentation), .take = take_share},
    {OPTION("fail-on-oom", SET, fails_on_oom)},
    {OPTION("baseline", TEXT, baseline_path)},
    {.name = NULL}};

/* True if an option was given that --json-lines excludes. */
static bool has_other_output(const struct flw_report_options *options)
{
    bool has = options->plan.policies.are_named || options->plan.lag.is_given ||
               options->baseline_path != NULL || options->max_reserved_bytes != 0 ||
               !isinf(options->max_fragmentation);
    for (size_t i = 0; i < FLW_REPORT_OUTPUTS; i++) {
        has |= options->outputs[i] != NULL;
    }
    return has;
}

/* Parse the options. `name`: "report", or "view", which has the same options. */
static int parse(struct flw_report_options *options, int argc, char **argv, const char *name,
                 const char *text)
{
    const struct flw_options command = {.command = name, .help = text, .list = option_list};
    *options = (struct flw_report_options){
        .max_fragmentation = INFINITY, .times = true, .folded_at = FLW_ANALYSIS_MOMENT_COUNT};
    flw_plan_init(&options->plan);
    int code = flw_options_read(&command, options, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    bool has_at = options->folded_at != FLW_ANALYSIS_MOMENT_COUNT;
    options->folded_at = has_at ? options->folded_at : FLW_ANALYSIS_AT_PEAK;
    options->paths = argv + optind;
    options->path_count = (size_t)(argc - optind);
    flw_plan_complete(&options->plan.policies);
    if (!flw_owner_rule_is_whole(&options->rule)) {
        return FLW_EXIT_USAGE;
    }
    if (optind == argc) {
        flw_complain("%s needs a trace or a folder of traces; see fallow %s --help", name, name);
    } else if (flw_report_stdout_count(options) > 1) {
        flw_complain(
            "only one of --html, --json, --csv, --csv-owners, --folded and --chrome can go to "
            "standard output");
    } else if (has_at && options->outputs[FLW_REPORT_FOLDED] == NULL) {
        flw_complain("--at needs --folded");
    } else if (options->writes_lines && has_other_output(options)) {
        flw_complain("--json-lines replays nothing and writes to standard output alone: use it "
                     "only with --limit, --trace-device, --fail-on-oom and rules of owners");
    } else if (flw_report_check_outputs(options)) {
        return FLW_OPTIONS_READ;
    }
    return FLW_EXIT_USAGE;
}

/* ---- diff ---- */

static const char diff_help[] =
    "usage: fallow report diff A B [OPTIONS]\n"
    "\n"
    "Print the differences between two reports, by policy and by owner. A and B are files written by\n"
    "fallow report TRACE --json FILE, or traces, which are not replayed. - is standard input.\n"
    "\n"
    "  --owner REGEX, --skip REGEX, --by WORD   rule of owners for traces; see fallow report --help\n"
    "\n"
    "example: fallow report diff before.json after.json\n";

static const struct flw_option diff_option_list[] = {OWNER_OPTIONS(0), {.name = NULL}};

/* Read a trace: report it with the cheapest policy, and read that report. */
static bool read_trace(char *const *path, const struct flw_owner_rule *rule,
                       struct flw_json_tree *out)
{
    char message[FLW_BASELINE_MESSAGE_BYTES];
    struct flw_draft draft = {.text = NULL};
    struct flw_report_options options = {.paths = path,
                                         .path_count = 1,
                                         .rule = *rule,
                                         .max_fragmentation = INFINITY,
                                         .json_draft = &draft};
    flw_plan_init(&options.plan);
    bool is_done = flw_plan_take_policies(&options.plan.policies, flw_policy_bound.name) &&
                   flw_report_run(&options) == FLW_EXIT_OK;
    is_done = is_done && (flw_baseline_read_bytes(draft.text, draft.length, out, message) ||
                          flw_complain("%s", message));
    flw_draft_abandon(&draft); /* the draft is incomplete if there was no trace */
    return is_done;
}

/* True if the file is a report: its first member is one of a report's members, which may be in any order. Profiles are
 * JSON too. */
static bool is_report(const char *place)
{
    char message[FLW_TRACE_MESSAGE_BYTES];
    struct flw_input input;
    bool is = false;
    if (flw_input_open(&input, place, message)) {
        struct flw_json json = {.input = &input};
        enum flw_json_token first = flw_json_next(&json);
        is = first == FLW_JSON_OBJECT && flw_json_next(&json) == FLW_JSON_KEY &&
             (strcmp(json.text, "schema") == 0 || strcmp(json.text, "job") == 0);
        flw_input_close(&input);
    }
    return is;
}

static bool read_side(const char *path, const struct flw_owner_rule *rule,
                      struct flw_json_tree *out)
{
    char message[FLW_BASELINE_MESSAGE_BYTES], place[FLW_PLACE_BYTES];
    char *const places[] = {place};
    if (!flw_devices_hold_pipe(path, place)) {
        return false;
    }
    if (!is_report(place)) {
        return read_trace(places, rule, out);
    }
    return flw_baseline_read(place, out, message) || flw_complain("%s", message);
}

static int run_diff(int argc, char **argv)
{
    static const struct flw_options command = {
        .command = "report diff", .help = diff_help, .list = diff_option_list};
    struct flw_owner_rule rule = {0};
    struct flw_json_tree a = {0};
    struct flw_json_tree b = {0};
    int code = flw_options_read(&command, &rule, argc, argv);
    if (code == FLW_OPTIONS_READ && (argc - optind != 2 || !flw_owner_rule_is_whole(&rule))) {
        code = argc - optind == 2
                   ? FLW_EXIT_USAGE
                   : flw_refuse(
                         FLW_EXIT_USAGE,
                         "report diff needs two files, each a trace or a file that --json wrote; "
                         "see fallow report diff --help");
    }
    if (code == FLW_OPTIONS_READ) {
        char *const *paths = argv + optind;
        bool is_read = read_side(paths[0], &rule, &a) && read_side(paths[1], &rule, &b);
        if (is_read) {
            FILE *out = flw_terminal_open(false);
            flw_baseline_print_diff(&a, &b, out);
            flw_terminal_close(out);
        }
        code = is_read ? FLW_EXIT_OK : FLW_EXIT_FAILED;
    }
    flw_json_tree_finish(&a);
    flw_json_tree_finish(&b);
    flw_owner_rule_finish(&rule);
    return code;
}

/* ---- merge ---- */

static const char merge_help[] =
    "usage: fallow report merge RECORDS ... [OPTIONS]\n"
    "\n"
    "Make one report of a job from the records that fallow report --json-lines wrote for its ranks: the\n"
    "rank that ran out of memory first and what it held more of than the others, uneven owners, and the\n"
    "rank nearest to its limit. The order of the files, and earlier merges, do not matter. - is standard\n"
    "input.\n"
    "\n"
    "  --json FILE           write the comparison; - is standard output, without the text\n"
    "  --json-lines          print the records in order, each once, for another merge\n"
    "  --limit BYTES         limit of ranks whose recording does not contain one (K, M, G, T)\n"
    "\n"
    "The rank is the number behind \"rank\" in the name of a trace's file or of its folder, else the one\n"
    "behind the last \"_\" of the name (snapshot_3.pickle), else, if --json-lines had one trace, RANK.\n"
    "\n"
    "example: fallow report merge records/*.jsonl\n";

struct merge_settings {
    const char *json_path;
    bool writes_lines;
    uint64_t limit_bytes;
};

static const struct flw_option merge_option_list[] = {
    {FLW_OPTION(struct merge_settings, "json", TEXT, json_path)},
    {FLW_OPTION(struct merge_settings, "json-lines", SET, writes_lines)},
    {FLW_OPTION(struct merge_settings, "limit", BYTES, limit_bytes)},
    {.name = NULL}};

static void take_record(void *job, struct flw_rank *record)
{
    flw_job_add(job, record);
}

static bool write_merged(const struct merge_settings *settings, const struct flw_job *job)
{
    if (settings->writes_lines) {
        flw_job_print_lines(job, stdout);
        return true;
    }
    if (settings->json_path != NULL) {
        struct flw_draft draft;
        flw_draft_begin(&draft, "");
        flw_print_json(NULL, 0, job, draft.file);
        if (!flw_draft_end(&draft, true, settings->json_path)) {
            return false;
        }
    }
    if (!flw_output_is_stdout(settings->json_path)) {
        FILE *out = flw_terminal_open(false);
        flw_job_print_text(job, out);
        flw_terminal_close(out);
    }
    return true;
}

static int run_merge(int argc, char **argv)
{
    static const struct flw_options command = {
        .command = "report merge", .help = merge_help, .list = merge_option_list};
    struct merge_settings settings = {.json_path = NULL};
    char message[FLW_RANK_MESSAGE_BYTES];
    int code = flw_options_read(&command, &settings, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (optind == argc) {
        return flw_refuse(FLW_EXIT_USAGE,
                          "report merge needs files that fallow report --json-lines wrote");
    }
    if (settings.writes_lines && settings.json_path != NULL) {
        return flw_refuse(FLW_EXIT_USAGE,
                          "--json and --json-lines exclude each other: use one of them");
    }
    code = flw_draft_check(settings.json_path, argv + optind, argc - optind, "a file of records");
    if (code != FLW_EXIT_OK) {
        return code;
    }
    struct flw_job job = {.limit_bytes = settings.limit_bytes};
    bool is_done = true;
    for (int i = optind; is_done && i < argc; i++) {
        is_done = flw_rank_read(argv[i], take_record, &job, message) || flw_complain("%s", message);
    }
    if (is_done) {
        flw_job_seal(&job);
        is_done = write_merged(&settings, &job);
    }
    flw_job_finish(&job);
    return is_done ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}

int flw_command_report_page(int argc, char **argv, const char *view_help, const char **page)
{
    struct flw_report_options options;
    int code = parse(&options, argc, argv, "view", view_help);
    if (options.outputs[FLW_REPORT_HTML] == NULL) {
        options.outputs[FLW_REPORT_HTML] = *page;
    }
    *page = code == FLW_OPTIONS_READ ? options.outputs[FLW_REPORT_HTML] : NULL;
    if (*page != NULL && flw_output_is_stdout(*page)) {
        code = flw_refuse(FLW_EXIT_USAGE,
                          "--html - writes to standard output; fallow view needs a file");
    }
    code = code == FLW_OPTIONS_READ ? flw_report_run(&options) : code;
    flw_owner_rule_finish(&options.rule);
    return code;
}

int flw_command_report(int argc, char **argv)
{
    struct flw_report_options options;
    if (argc > 1 && strcmp(argv[1], "diff") == 0) {
        return run_diff(argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "merge") == 0) {
        return run_merge(argc - 1, argv + 1);
    }
    int code = parse(&options, argc, argv, "report", help);
    code = code == FLW_OPTIONS_READ ? flw_report_run(&options) : code;
    flw_owner_rule_finish(&options.rule);
    return code;
}
