/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow replay`: the command line, the order of things, exit codes.
 * Does not: run policies (run.c) or format results (report.c).
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "trace/formats/formats.h"
#include "trace/io/output.h"
#include "trace/trace/trace.h"

#include "common/command.h"
#include "common/draft.h"
#include "common/figures.h"
#include "common/program.h"
#include "common/progress.h"
#include "common/replay_device.h"
#include "common/terminal.h"
#include "common/tool_host.h"
#include "policies/plan.h"
#include "policies/policy.h"
#include "policies/run.h"
#include "replay/report.h"

#define BRIEF_POLICIES "bound,fallow,pytorch,pytorch-expandable"

struct options {
    const char *trace_path;
    const char *json_path;
    struct flw_plan plan;
    int device;            /* FLW_DEVICE_SIM or a GPU's ordinal */
    uint64_t device_bytes; /* of the simulated device; 0: as the trace needs */
    uint64_t pass_count;
    bool uses_threads, finds_limit, checks, times, is_brief;
};

static void print_policies(void)
{
    char allowed[FLW_POLICY_ALLOWED_BYTES];
    printf("\npolicies and their settings:\n");
    for (size_t i = 0; flw_policy_get(i) != NULL; i++) {
        const struct flw_policy *policy = flw_policy_get(i);
        printf("  %-20s%s\n", policy->name, policy->summary);
        for (size_t j = 0; j < policy->setting_count; j++) {
            flw_policy_say_allowed(&policy->settings[j], allowed);
            printf("    %s: %s\n", policy->settings[j].name, allowed);
        }
    }
}

static void print_help(void)
{
    printf(
        "usage: fallow replay TRACE [OPTIONS]\n"
        "\n"
        "Replay an allocation trace (a PyTorch memory snapshot, a .ftrace, its text or another form that\n"
        "fallow trace import reads; - is standard input) through policies, and compare how much memory they\n"
        "reserve.\n"
        "\n"
        "  --policy A,B        policies to replay, each as NAME or NAME:SETTING=VALUE,SETTING=VALUE (all);\n"
        "                      they are listed below\n"
        "  --device sim|N      replay on the simulated device (default) or on GPU N\n"
        "  --device-bytes N    memory of the simulated device (K, M, G, T allowed); default 80 GiB, or a\n"
        "                      quarter more than the trace held\n"
        "  --lag N|TIME        assume GPU work completes N events or TIME (200us, 5ms) after submission;\n"
        "                      default 5ms for traces with times, else %d events; 0: no GPU work\n"
        "  --limit BYTES       most memory that a policy may reserve (K, M, G, T allowed)\n"
        "  --find-limit        search for the smallest limit at which the trace completes\n"
        "  --threads           use one thread for each stream, for policies that allow it\n"
        "  --repeat N          replay the trace N times in a row, counting the last pass separately\n"
        "  --brief             print only how much each policy reserved; default policies: live bytes,\n"
        "                      fallow, pytorch and pytorch-expandable\n"
        "  --json FILE         write the results as JSON; - is standard output, without the table\n"
        "  --trace-device N    device of the recording; default the one that ran out of memory first, else\n"
        "                      the busiest\n"
        "  --no-check          turn the rule checker off\n"
        "  --no-times          do not time single operations\n",
        FLW_PLAN_LAG_EVENTS);
    print_policies();
    printf(
        "\nexit status 0: replayed, even if requests failed; 1: requests failed under --limit or\n"
        "--device-bytes, the trace cannot be read or lacks the times for the lag, the device does not\n"
        "exist, an output cannot be written, or a rule was broken; 2: the command line is wrong\n");
    printf("\nexample: fallow replay snapshot.pickle --policy fallow,async:release_threshold=0\n");
}

/* ---- command line ---- */

#define OPTION(word, kind, member) FLW_OPTION(struct options, word, kind, member)

static const struct flw_option option_list[] = {
    FLW_PLAN_OPTIONS(struct options, plan),
    {OPTION("device", DEVICE, device)},
    {OPTION("device-bytes", BYTES, device_bytes)},
    {OPTION("repeat", COUNT, pass_count), .least = 1, .most = 100000},
    {OPTION("json", TEXT, json_path)},
    {OPTION("threads", SET, uses_threads)},
    {OPTION("find-limit", SET, finds_limit)},
    {OPTION("brief", SET, is_brief)},
    {OPTION("no-check", CLEAR, checks)},
    {OPTION("no-times", CLEAR, times)},
    {.name = NULL}};

static int parse(struct options *options, int argc, char **argv)
{
    static const struct flw_options command = {
        .command = "replay", .print_help = print_help, .list = option_list};
    *options =
        (struct options){.device = FLW_DEVICE_SIM, .pass_count = 1, .checks = true, .times = true};
    flw_plan_init(&options->plan);
    int code = flw_options_read(&command, options, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    options->trace_path = argv[optind];
    if (options->is_brief && !options->plan.policies.are_named) {
        (void)flw_plan_take_policies(&options->plan.policies, BRIEF_POLICIES);
        options->plan.policies.are_named = false;
    }
    if (argc - optind > 1) {
        return flw_refuse(FLW_EXIT_USAGE, "one trace at a time: '%s' and '%s'", argv[optind],
                          argv[optind + 1]);
    }
    if (optind == argc) {
        return flw_refuse(FLW_EXIT_USAGE, "replay needs a trace; see fallow replay --help");
    }
    if (options->device_bytes != 0 && options->device != FLW_DEVICE_SIM) {
        return flw_refuse(
            FLW_EXIT_USAGE,
            "--device-bytes sets the simulated device's memory; on a GPU use --limit");
    }
    code = flw_draft_check(options->json_path, argv + optind, 1, "the trace itself");
    return code == FLW_EXIT_OK ? FLW_OPTIONS_READ : code;
}

/* ---- the replay ---- */

static uint64_t choose_device_bytes(const struct options *options, const struct flw_trace *trace,
                                    const struct flw_device *device)
{
    return options->device != FLW_DEVICE_SIM ? device->device_bytes
           : options->device_bytes != 0      ? options->device_bytes
                                             : flw_plan_device_bytes(trace);
}

static bool needs_device(const struct options *options)
{
    bool needs = false;
    for (size_t i = 0; i < options->plan.policies.count; i++) {
        needs |= options->plan.policies.list[i]->allocates;
    }
    return needs;
}

#define PROGRESS_OPS 4096 /* ops between two readings of the clock */

/* Progress over all policies. A search for a limit replays each policy several times. */
struct walk {
    const struct options *options;
    const struct flw_policy *policy;
    size_t place;    /* of the policy */
    uint64_t passes; /* passes begun with this policy */
};

static void show_progress(void *context, const struct flw_run *run, size_t op)
{
    struct walk *walk = context;
    walk->passes += op == 0;
    if (op % PROGRESS_OPS == 0) {
        const struct options *options = walk->options;
        uint64_t done = flw_min(walk->passes - 1, options->pass_count);
        double share = (double)done + (done < options->pass_count ? (double)op : 0.0) /
                                          (double)run->setup->program->op_count;
        share = (double)walk->place + share / (double)options->pass_count;
        flw_progress_show("replaying", options->trace_path, walk->policy->name,
                          share / (double)options->plan.policies.count);
    }
}

/* Check that the trace fits a limit or device given on the command line. Returns false after printing a message. */
static bool fits(const struct options *options, const struct flw_run_setup *setup,
                 const struct flw_run_result *result)
{
    bool is_asked = options->plan.limit_bytes != 0 || options->device_bytes != 0;
    if (!is_asked || !result->policy->allocates || result->failure_count == 0) {
        return true;
    }
    uint64_t limit_bytes = options->plan.limit_bytes;
    uint64_t most_bytes =
        limit_bytes == 0 ? setup->device_bytes : flw_min(limit_bytes, setup->device_bytes);
    return flw_complain(
        "policy %s failed %s of %s requests (%.3g %%) within %s; the first was %s bytes; "
        "--find-limit finds the limit that it needs",
        result->policy->name, FLW_COUNT(result->failure_count), FLW_COUNT(result->all.alloc_count),
        100.0 * (double)result->failure_count / (double)result->all.alloc_count,
        FLW_SIZE(most_bytes), FLW_COUNT(result->first_failure_bytes));
}

/* Run the policies. Without --policy, those that the device cannot run are left out with a note. */
static int run_policies(const struct options *options, struct flw_run_setup *setup,
                        struct flw_run_result *results, size_t *out_count)
{
    const struct flw_plan_policies *policies = &options->plan.policies;
    struct walk walk = {.options = options};
    struct flw_run_observer observer = {.after_op = show_progress, .context = &walk};
    int code = FLW_EXIT_OK;
    setup->observer = flw_progress_is_on() ? &observer : NULL;
    for (size_t i = 0; i < policies->count; i++) {
        struct flw_run_result *result = &results[*out_count];
        walk = (struct walk){options, policies->list[i], i, 0};
        if (!flw_run_policy(setup, walk.policy, result)) {
            flw_complain("%s", result->message);
            if (result->is_unsupported && !policies->are_named) {
                continue;
            }
            *out_count = 0;
            code = FLW_EXIT_FAILED;
            break;
        }
        if (!flw_plan_complain(result) || !fits(options, setup, result)) {
            code = FLW_EXIT_FAILED;
        }
        if (options->finds_limit) {
            result->smallest_limit_bytes = flw_run_find_limit(setup, walk.policy, result);
        }
        (*out_count)++;
    }
    setup->observer = NULL;
    flw_progress_hide();
    return code;
}

/* Print the results. Returns false after printing a message. */
static bool print_results(const struct options *options, const struct flw_report *report)
{
    struct flw_draft draft;
    if (!flw_output_is_stdout(options->json_path)) {
        FILE *out = flw_terminal_open(false);
        flw_report_print_table(report, out);
        flw_terminal_close(out);
    }
    if (options->json_path == NULL) {
        return true;
    }
    flw_draft_begin(&draft, "");
    flw_report_print_json(report, draft.file);
    return flw_draft_end(&draft, true, options->json_path);
}

static int replay_on(const struct options *options, const struct flw_trace *trace,
                     struct flw_device *device)
{
    struct flw_plan_lag lag;
    if (!flw_plan_choose_lag(&options->plan, trace, options->device == FLW_DEVICE_SIM, &lag)) {
        return FLW_EXIT_FAILED;
    }
    struct flw_program *program = flw_program_create(trace, lag.is_by_time);
    if (program == NULL) {
        return flw_refuse(FLW_EXIT_FAILED, "the trace has too many private pools and streams");
    }
    FLW_LOCAL struct flw_run_result *results =
        flw_host_alloc(options->plan.policies.count, sizeof *results);
    bool is_sim = options->device == FLW_DEVICE_SIM;
    struct flw_run_setup setup = {.device = device,
                                  .trace = trace,
                                  .program = program,
                                  .device_bytes = choose_device_bytes(options, trace, device),
                                  .limit_bytes = options->plan.limit_bytes,
                                  .lag_units = lag.units,
                                  .pass_count = (unsigned)options->pass_count,
                                  .checks = options->checks && is_sim,
                                  .times = options->times,
                                  .uses_threads = options->uses_threads};
    size_t result_count = 0;
    int code = run_policies(options, &setup, results, &result_count);
    if (result_count != 0) {
        struct flw_report report = {.setup = &setup,
                                    .results = results,
                                    .result_count = result_count,
                                    .device_name = is_sim ? "simulated device" : device->name,
                                    .has_device = needs_device(options),
                                    .is_sim = is_sim,
                                    .is_by_time = lag.is_by_time,
                                    .finds_limit = options->finds_limit,
                                    .is_brief = options->is_brief};
        code = print_results(options, &report) ? code : FLW_EXIT_FAILED;
    }
    flw_program_destroy(program);
    return code;
}

int flw_command_replay(int argc, char **argv)
{
    struct options options;
    struct flw_trace *trace = NULL;
    struct flw_device device = {0};
    char message[FLW_TRACE_MESSAGE_BYTES + FLW_DRIVER_MESSAGE_BYTES];
    int code = parse(&options, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    flw_progress_begin();
    if (!flw_trace_read(flw_input_place(options.trace_path), options.plan.trace_device, &trace,
                        message)) {
        return flw_refuse(FLW_EXIT_FAILED, "%s", message);
    }
    if (trace->truncation != NULL) {
        flw_complain("%s: %s; replaying the part before", options.trace_path, trace->truncation);
    }
    if (flw_plan_lacks_history(trace)) {
        flw_complain("%s: has no history: policies are given its live blocks alone, which does not "
                     "compare with the recorded allocator",
                     options.trace_path);
    }
    bool has_device = needs_device(&options);
    if (has_device && !flw_device_open(&device, options.device, message)) {
        code = flw_refuse(FLW_EXIT_FAILED, "%s", message);
    } else {
        code = replay_on(&options, trace, &device);
        if (has_device) {
            flw_device_close(&device);
        }
    }
    flw_trace_destroy(trace);
    return code;
}
