/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow report`: the command line and exit codes.
 * Does not: collect (collect.c), print (print.h) or write files (output.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/tool_host.h"
#include "report/baseline.h"
#include "report/work.h"

static void print_help(void)
{
    puts(
        "usage: fallow report TRACE|FOLDER ... [OPTIONS]\n"
        "       fallow report diff A.json B.json\n\n"
        "Where the memory of a recorded program went, and what other policies would have held: runs each\n"
        "policy over the trace on the simulated device. Several traces, or a folder: a table over them;\n"
        "-: standard input.\n\n"
        "  --html FILE           a page with pictures; of several traces, one each beside it\n"
        "  --json FILE           every number; - is standard output, without the text\n"
        "  --csv FILE            series in at most 2000 rows a policy, each from its event to the next row's:\n"
        "                        the most requested, in blocks, reserved; the holes after holes_event\n"
        "  --policy A,B          which policies; default all; fallow replay --help lists them\n"
        "  --lag N               work is done N events after it was given; default as fallow replay\n"
        "  --limit BYTES         most that a policy may hold (K, M, G, T allowed)\n"
        "  --trace-device N      which device of the recording; default the busiest\n"
        "  --no-times            without host times: the same trace gives the same bytes\n"
        "  --ascii               no letters beyond ASCII\n\n"
        "exit code 1, and a line that says which policy and by how much, where\n"
        "  --max-reserved BYTES      a policy holds more\n"
        "  --max-fragmentation X     a policy's free memory at its peak is in pieces: 1 less the largest\n"
        "                            hole over all holes is above X, from 0 to 1\n"
        "  --baseline FILE.json      a policy holds more, or fails more, than in an earlier --json\n\n"
        "example: fallow report snapshot.pickle --html report.html");
}

/* --- command line --------------------------------------------------------------------------------
 */

static bool parse_share(const char *text, double *out)
{
    char *end = NULL;
    *out = strtod(text, &end);
    bool is_share = end != text && *end == '\0' && *out >= 0 && *out <= 1;
    if (!is_share) {
        flw_complain("--max-fragmentation '%s' is not a number from 0 to 1", text);
    }
    return is_share;
}

static bool parse_max_reserved(const char *text, uint64_t *out_bytes)
{
    if (!flw_parse_bytes(text, out_bytes) || *out_bytes == 0) {
        flw_complain("--max-reserved '%s' is not a number of bytes above 0, such as 40G", text);
        return false;
    }
    return true;
}

/* Options that take a value. */
static bool parse_valued(struct flw_report_options *options, const char *name, const char *value)
{
    bool is_of_plan = false;
    bool is_good = flw_plan_parse(&options->plan, name, value, &is_of_plan);
    if (is_of_plan) {
        return is_good;
    }
    if (strcmp(name, "--max-reserved") == 0) {
        return parse_max_reserved(value, &options->max_reserved_bytes);
    }
    if (strcmp(name, "--max-fragmentation") == 0) {
        options->limits_fragmentation = true;
        return parse_share(value, &options->max_fragmentation);
    }
    if (strcmp(name, "--baseline") == 0) {
        options->baseline_path = value;
    } else if (strcmp(name, "--json") == 0) {
        options->json_path = value;
    } else if (strcmp(name, "--csv") == 0) {
        options->csv_path = value;
    } else {
        options->html_path = value;
    }
    return true;
}

static const char *const valued[] = {"--policy",
                                     "--lag",
                                     "--limit",
                                     "--trace-device",
                                     "--max-reserved",
                                     "--max-fragmentation",
                                     "--baseline",
                                     "--json",
                                     "--csv",
                                     "--html",
                                     NULL};

static bool parse_flag(struct flw_report_options *options, const char *name)
{
    if (strcmp(name, "--no-times") == 0) {
        options->times = false;
    } else if (strcmp(name, "--ascii") == 0) {
        options->is_ascii = true;
    } else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        options->wants_help = true;
    } else {
        flw_complain("report has no option '%s'; see fallow report --help", name);
        return false;
    }
    return true;
}

static bool is_stdout(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

static bool check(const struct flw_report_options *options)
{
    if (options->wants_help) {
        return true;
    }
    if (options->path_count == 0) {
        flw_complain("report needs a trace or a folder of them; see fallow report --help");
        return false;
    }
    if (is_stdout(options->html_path) + is_stdout(options->json_path) +
            is_stdout(options->csv_path) >
        1) {
        flw_complain("only one of --html, --json and --csv can go to standard output");
        return false;
    }
    return true;
}

/* `paths` has room for argc. */
static bool parse(struct flw_report_options *options, const char **paths, int argc, char **argv)
{
    *options = (struct flw_report_options){.paths = paths, .times = true};
    flw_plan_init(&options->plan);
    for (int i = 1; i < argc; i++) {
        const char *argument = argv[i];
        if (argument[0] != '-' || argument[1] == '\0') {
            paths[options->path_count++] = argument;
        } else if (!flw_is_one_of(argument, valued)) {
            if (!parse_flag(options, argument)) {
                return false;
            }
        } else if (i + 1 >= argc) {
            flw_complain("%s needs a value; see fallow report --help", argument);
            return false;
        } else if (!parse_valued(options, argument, argv[++i])) {
            return false;
        }
    }
    return check(options);
}

/* --- diff ----------------------------------------------------------------------------------------
 */

static int run_diff(int argc, char **argv)
{
    char message[FLW_BASELINE_MESSAGE_BYTES];
    struct flw_baseline a = {0};
    struct flw_baseline b = {0};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        puts("usage: fallow report diff A.json B.json\n\n"
             "What changed from one report to another, policy by policy: the files that\n"
             "fallow report TRACE --json FILE wrote.\n\n"
             "example: fallow report diff before.json after.json");
        return FLW_EXIT_OK;
    }
    if (argc != 3) {
        flw_complain(
            "report diff needs two files that --json wrote: fallow report diff A.json B.json");
        return FLW_EXIT_USAGE;
    }
    bool is_read =
        flw_baseline_read(argv[1], &a, message) && flw_baseline_read(argv[2], &b, message);
    if (is_read) {
        flw_baseline_print_diff(&a, &b, stdout);
    } else {
        flw_complain("%s", message);
    }
    flw_baseline_finish(&a);
    flw_baseline_finish(&b);
    return is_read ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}

int flw_command_report(int argc, char **argv)
{
    struct flw_report_options options;
    if (argc > 1 && strcmp(argv[1], "diff") == 0) {
        return run_diff(argc - 1, argv + 1);
    }
    const char **paths = flw_host_alloc((size_t)argc, sizeof *paths);
    int code = FLW_EXIT_OK;
    if (!parse(&options, paths, argc, argv)) {
        code = FLW_EXIT_USAGE;
    } else if (options.wants_help) {
        print_help();
    } else {
        code = flw_report_work(&options);
    }
    flw_host_free(paths);
    return code;
}
