/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow bench kernels`: its command line, the run over all cases, what is printed.
 */
#include "bench/kernels.h"

#include <getopt.h>
#include <string.h>

#include "bench/bench.h"
#include "common/command.h"
#include "common/options.h"
#include "common/terminal.h"
#include "trace/io/jsonwriter.h"

static const char help[] =
    "usage: fallow bench kernels [--only NAME] [--device sim|N] [--json]\n"
    "\n"
    "Every kernel module at its sizes: bytes read and written (what its query says, at most), launches\n"
    "counted, and on a GPU the time of a launch inside a graph, by events, and the share of the speed\n"
    "of a copy from device to device that moves as many bytes.\n"
    "The simulated device runs each call at small sizes, with every access checked, and takes no time.\n"
    "\n"
    "  --only NAME        one module, as the table names it\n"
    "  --device sim|N     (sim)\n"
    "  --json             everything, one object\n"
    "\n"
    "exit status 0: every call ran with the launches that its query says and its goal allows;\n"
    "1: one did not; 2: the command line is wrong; 77: no such device, or no kernels for it\n"
    "\n"
    "example: fallow bench kernels --only combine\n";

const struct flw_kernel_case *const flw_kernel_tables[] = {
    flw_kernel_cases_attention, flw_kernel_cases_pages, flw_kernel_cases_mla,
    flw_kernel_cases_moe,       flw_kernel_cases_debug, NULL};

#define EXIT_ABSENT 77 /* no such device, or no kernels for it */

struct settings {
    const char *only;
    int device;
    bool is_json;
};

struct result {
    struct flw_kernel_size sizes[FLW_KERNEL_SIZES]; /* full */
    size_t size_count;
    uint64_t read_bytes, write_bytes; /* full size */
    uint64_t launches;
    struct flw_kernel_time time;
    bool is_ok;
    char message[FLW_BENCH_MESSAGE_BYTES];
};

/* ---- command line */

static bool is_module(const char *name)
{
    for (size_t t = 0; flw_kernel_tables[t] != NULL; t++) {
        for (const struct flw_kernel_case *of = flw_kernel_tables[t]; of->module != NULL; of++) {
            if (strcmp(of->module, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

static const struct flw_option option_list[] = {
    {.name = "only", .kind = FLW_OPTION_TEXT, .offset = offsetof(struct settings, only)},
    {.name = "device", .kind = FLW_OPTION_DEVICE, .offset = offsetof(struct settings, device)},
    {.name = "json", .kind = FLW_OPTION_SET, .offset = offsetof(struct settings, is_json)},
    {.name = NULL}};

static int parse(int argc, char **argv, struct settings *settings)
{
    static const struct flw_options command = {
        .command = "bench kernels", .help = help, .list = option_list};
    *settings = (struct settings){.device = FLW_OPTION_SIM};
    int code = flw_options_read(&command, settings, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (optind < argc) {
        flw_complain("bench kernels: what is '%s'? see fallow bench kernels --help", argv[optind]);
        return FLW_EXIT_USAGE;
    }
    if (settings->only != NULL && !is_module(settings->only)) {
        flw_complain("bench kernels: no module '%s'; without --only it lists them all",
                     settings->only);
        return FLW_EXIT_USAGE;
    }
    return FLW_OPTIONS_READ;
}

/* ---- one case */

/* What the query says of the call; launches_count and bytes. */
static bool ask(struct flw_kernel_call *call, fallow_workspace_need *need)
{
    fallow_workspace_need_init(need);
    fallow_status status = call->of->query(call->params, need);
    if (status != FALLOW_OK) {
        snprintf(call->message, FLW_BENCH_MESSAGE_BYTES, "its query was refused: %s",
                 fallow_status_name(status));
    }
    return status == FALLOW_OK;
}

static bool get_full_bytes(const struct flw_kernel_case *of, struct result *result)
{
    struct flw_kernel_call call;
    fallow_workspace_need need;
    bool is_done = flw_kernel_call_make(&call, of, NULL, FLW_KERNEL_SHAPES, result->message) &&
                   ask(&call, &need);
    if (is_done) {
        memcpy(result->sizes, call.sizes, sizeof result->sizes);
        result->size_count = call.size_count;
        result->read_bytes = need.read_bytes;
        result->write_bytes = need.write_bytes;
    }
    return is_done;
}

static bool launch_once(struct flw_kernel_call *call, const fallow_workspace_need *need,
                        struct result *result)
{
    struct flw_kernel_bed *bed = call->bed;
    uint64_t before = fallow_kernels_launch_count(bed->kernels);
    fallow_status status = call->of->launch(bed->kernels, call->params, bed->stream);
    result->launches = fallow_kernels_launch_count(bed->kernels) - before;
    if (status != FALLOW_OK) {
        fallow_kernels_last_error(bed->kernels, result->message, sizeof result->message);
        return false;
    }
    if (!flw_kernel_bed_settle(bed, result->message)) {
        return false;
    }
    unsigned goal = call->of->launch_goal;
    if (result->launches != need->launch_count || (goal > 0 && result->launches > goal)) {
        snprintf(result->message, sizeof result->message,
                 "%llu launches; its query says %u, the goal is %u",
                 (unsigned long long)result->launches, need->launch_count, goal);
        return false;
    }
    return true;
}

static void run(const struct flw_kernel_case *of, struct flw_kernel_bed *bed, struct result *result)
{
    struct flw_kernel_call call = {0};
    fallow_workspace_need need;
    enum flw_kernel_scale scale = bed->device.is_simulated ? FLW_KERNEL_SMALL : FLW_KERNEL_FULL;
    *result = (struct result){0};
    if (!get_full_bytes(of, result)) {
        return;
    }
    result->is_ok = flw_kernel_call_make(&call, of, bed, scale, result->message) &&
                    ask(&call, &need) && launch_once(&call, &need, result) &&
                    flw_kernel_time(&call, &need, &result->time) &&
                    flw_kernel_bed_settle(bed, result->message);
    flw_kernel_call_finish(&call);
}

/* ---- what is printed */

static double moved_bytes(const struct result *result)
{
    return (double)result->read_bytes + (double)result->write_bytes;
}

static double copy_share(const struct result *result)
{
    return result->time.copy_us / result->time.us; /* as many bytes in both */
}

static void print_head(FILE *out, const struct flw_kernel_bed *bed)
{
    fprintf(out, "on %s\n", bed->device.name);
    if (bed->device.is_simulated) {
        fprintf(out, "simulated device: byte and launch counts only\n");
    }
    fprintf(out, "%-18s %-22s %15s %15s %8s %4s", "module", "case", "bytes read", "written",
            "launches", "goal");
    if (!bed->device.is_simulated) {
        fprintf(out, " %9s %9s %8s %9s %14s", "us", "copy us", "GB/s", "of copy", "goal");
    }
    fprintf(out, "  sizes\n");
}

static void print_goal(FILE *out, bool is_met, double goal, const char *unit)
{
    fprintf(out, " %4.0f %-2s %s", goal, unit, is_met ? "met" : "missed");
}

static void print_time(FILE *out, const struct flw_kernel_case *of, const struct result *result)
{
    fprintf(out, " %9.2f", result->time.us);
    if (result->time.has_copy) {
        fprintf(out, " %9.2f %8.0f %7.1f %%", result->time.copy_us,
                moved_bytes(result) / result->time.us / 1e3, copy_share(result) * 100);
    } else {
        fprintf(out, " %9s %8.0f %9s", "-", moved_bytes(result) / result->time.us / 1e3, "-");
    }
    if (of->goal_us > 0) {
        print_goal(out, result->time.us <= of->goal_us, of->goal_us, "us");
    } else if (of->goal_share > 0) {
        print_goal(out, copy_share(result) >= of->goal_share, of->goal_share * 100, "%");
    } else {
        fprintf(out, " %14s", "-");
    }
}

static void print_row(FILE *out, const struct flw_kernel_case *of, const struct flw_kernel_bed *bed,
                      const struct result *result)
{
    fprintf(out, "%-18s %-22s", of->module, of->variant);
    if (!result->is_ok) {
        fprintf(out, " FAILED: %s\n", result->message);
        return;
    }
    fprintf(out, " %15llu %15llu %8llu", (unsigned long long)result->read_bytes,
            (unsigned long long)result->write_bytes, (unsigned long long)result->launches);
    if (of->launch_goal > 0) {
        fprintf(out, " %4u", of->launch_goal);
    } else {
        fprintf(out, " %4s", "-");
    }
    if (!bed->device.is_simulated) {
        print_time(out, of, result);
    }
    fprintf(out, "  ");
    for (size_t i = 0; i < result->size_count; i++) {
        fprintf(out, "%s%s %lld", i == 0 ? "" : ", ", result->sizes[i].name,
                (long long)result->sizes[i].value);
    }
    fputc('\n', out);
}

static void print_json_case(struct flw_json_writer *out, const struct flw_kernel_case *of,
                            const struct flw_kernel_bed *bed, const struct result *result)
{
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "module", of->module);
    flw_json_text(out, "case", of->variant);
    flw_json_begin(out, "sizes", '{');
    for (size_t i = 0; i < result->size_count; i++) {
        flw_json_number(out, result->sizes[i].name, (uint64_t)result->sizes[i].value);
    }
    flw_json_end(out, '}');
    FLW_JSON_NUMBERS(out, {"read_bytes", result->read_bytes}, {"write_bytes", result->write_bytes},
                     {"launches", result->launches});
    flw_json_known(out, "launch_goal", of->launch_goal > 0, of->launch_goal);
    if (of->goal_us > 0) {
        flw_json_general(out, "goal_us", 6, of->goal_us);
    } else if (of->goal_share > 0) {
        flw_json_general(out, "goal_of_copy", 6, of->goal_share);
    }
    if (!bed->device.is_simulated && result->is_ok) {
        flw_json_fixed(out, "us", 4, result->time.us);
        flw_json_fixed(out, "gb_per_s", 1, moved_bytes(result) / result->time.us / 1e3);
        if (result->time.has_copy) {
            flw_json_fixed(out, "copy_us", 4, result->time.copy_us);
            flw_json_fixed(out, "of_copy", 4, copy_share(result));
        }
    }
    flw_json_bool(out, "ok", result->is_ok);
    flw_json_text(out, "message", result->is_ok ? "" : result->message);
    flw_json_end(out, '}');
}

static void print_json_head(struct flw_json_writer *out, const struct flw_kernel_bed *bed)
{
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "bench", "kernels");
    flw_json_text(out, "device", bed->device.name);
    flw_json_bool(out, "simulated", bed->device.is_simulated);
    flw_json_text(out, "note",
                  bed->device.is_simulated ? "simulated device: byte and launch counts only"
                                           : "times by events around graphs of many launches");
    flw_json_begin(out, "cases", '[');
}

/* Returns how many cases failed. */
static unsigned run_all(const struct settings *settings, struct flw_kernel_bed *bed,
                        struct flw_json_writer *json, FILE *out)
{
    unsigned failures = 0;
    struct result result;
    for (size_t t = 0; flw_kernel_tables[t] != NULL; t++) {
        for (const struct flw_kernel_case *of = flw_kernel_tables[t]; of->module != NULL; of++) {
            if (settings->only != NULL && strcmp(settings->only, of->module) != 0) {
                continue;
            }
            run(of, bed, &result);
            failures += !result.is_ok;
            if (settings->is_json) {
                print_json_case(json, of, bed, &result);
            } else {
                print_row(out, of, bed, &result);
            }
        }
    }
    return failures;
}

int flw_command_bench_kernels(int argc, char **argv)
{
    char message[FLW_BENCH_MESSAGE_BYTES] = "";
    struct settings settings;
    struct flw_kernel_bed bed;
    struct flw_json_writer json = {.file = stdout};
    bool is_absent = false;
    int code = parse(argc, argv, &settings);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (!flw_kernel_bed_open(&bed, settings.device, message, &is_absent)) {
        flw_complain("bench kernels: %s", message);
        return is_absent ? EXIT_ABSENT : FLW_EXIT_FAILED;
    }
    if (settings.is_json) {
        print_json_head(&json, &bed);
    }
    FILE *out = flw_terminal_open(false);
    if (!settings.is_json) {
        print_head(out, &bed);
    }
    unsigned failures = run_all(&settings, &bed, &json, out);
    flw_terminal_close(out);
    if (settings.is_json) {
        flw_json_end(&json, ']');
        flw_json_number(&json, "failures", failures);
        puts("}");
    }
    flw_kernel_bed_close(&bed);
    if (failures > 0) {
        flw_complain("bench kernels: %u cases failed", failures);
    }
    return failures == 0 ? FLW_EXIT_OK : FLW_EXIT_FAILED;
}
