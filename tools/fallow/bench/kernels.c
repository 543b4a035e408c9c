/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow bench kernels`: its command line, the calls of all cases, their times on a GPU, the report.
 *
 * A time is that of many launches captured in one graph, by events around its replay, the median of several; beside it
 * stands a copy of as many bytes, timed in the same way.
 */
#include "bench/kernels.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

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

#define EXIT_ABSENT 77 /* no such device, or no kernels for it */

/* ---- bed */

bool flw_kernel_bed_open(struct flw_kernel_bed *bed, int device, char *message, bool *out_is_absent)
{
    static const flw_sim_config world = {.struct_size = sizeof world,
                                         .seed = 1,
                                         .backed = 1,
                                         .check = 1,
                                         .device_bytes = (uint64_t)8 << 30};
    struct flw_bench_options options = {.policy = flw_bench_policy_find("fallow"),
                                        .stream_count = 1,
                                        .device = device,
                                        .world = &world};
    *bed = (struct flw_kernel_bed){.kernels = NULL};
    if (!flw_bench_bed_open(&bed->bed, &options, message)) {
        *out_is_absent = bed->bed.is_absent;
        return false;
    }
    fallow_status status = fallow_kernels_create(bed->bed.pool, &bed->kernels);
    if (status == FALLOW_OK) { /* no figure has a load in it, and graphs come first */
        status = fallow_kernels_load(bed->kernels, NULL, 0);
    }
    *out_is_absent = status == FALLOW_NOT_SUPPORTED;
    if (status != FALLOW_OK) {
        char why[128] = "";
        fallow_kernels_last_error(bed->kernels, why, sizeof why);
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "no kernels on %s: %s%s%s", bed->bed.device_name,
                 fallow_status_name(status), why[0] == 0 ? "" : ": ", why);
        flw_kernel_bed_close(bed);
    }
    return status == FALLOW_OK;
}

void flw_kernel_bed_close(struct flw_kernel_bed *bed)
{
    fallow_kernels_destroy(bed->kernels);
    if (bed->bed.pool != NULL) {
        (void)!fallow_stream_retire(bed->bed.pool, bed->bed.streams[0]);
    }
    flw_bench_bed_close(&bed->bed);
    bed->kernels = NULL;
}

bool flw_kernel_bed_settle(struct flw_kernel_bed *bed, char *message)
{
    struct flw_bench_device *device = &bed->bed.device;
    flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    flw_sim_ledger_function get_ledger = NULL;
    flw_sim_violation_function violation = NULL;
    if (!FLW_BENCH_CALL(device, message, cuStreamSynchronize, bed->bed.streams[0])) {
        return false;
    }
    if (!device->is_simulated) {
        return true;
    }
    flw_bench_device_find(device, "flw_sim_get_ledger", &get_ledger);
    flw_bench_device_find(device, "flw_sim_violation", &violation);
    get_ledger(0, &ledger);
    bool is_clean = ledger.violation_count == bed->reported_count;
    if (!is_clean) {
        const char *sentence = violation(bed->reported_count);
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "%s",
                 sentence != NULL ? sentence : "the rule checker found a violation");
    }
    bed->reported_count = ledger.violation_count;
    return is_clean;
}

/* ---- call */

/* Stands for memory in a query: optional pointers must not be NULL, and none is followed. */
static _Alignas(256) int32_t nowhere[64];

void flw_kernel_set(struct flw_kernel_call *call, const void *params, size_t bytes)
{
    if (bytes > sizeof call->params) {
        abort(); /* FLW_KERNEL_PARAMS_BYTES is too small for a new case */
    }
    memcpy(call->params, params, bytes);
}

void *flw_kernel_output(struct flw_kernel_call *call, int64_t bytes)
{
    void *buffer = NULL;
    if (call->bed == NULL || call->is_broken) {
        return nowhere;
    }
    size_t room = bytes == 0 ? 16 : (size_t)bytes;
    fallow_status status = FALLOW_OUT_OF_HOST_MEMORY;
    if (call->buffer_count < FLW_KERNEL_BUFFERS) {
        status = fallow_alloc(call->bed->bed.pool, room, call->bed->bed.streams[0], &buffer);
    }
    if (status != FALLOW_OK) {
        call->is_broken = true;
        snprintf(call->message, FLW_BENCH_MESSAGE_BYTES, "no buffer of %zu bytes: %s", room,
                 fallow_status_name(status));
        return nowhere;
    }
    call->buffers[call->buffer_count++] = buffer;
    return buffer;
}

#define CALL(call, name, ...) \
    FLW_BENCH_CALL(&(call)->bed->bed.device, (call)->message, name, __VA_ARGS__)
#define STREAM(call) ((call)->bed->bed.streams[0])

void *flw_kernel_filled(struct flw_kernel_call *call, int64_t bytes, uint32_t word)
{
    void *buffer = flw_kernel_output(call, (bytes + 3) / 4 * 4);
    call->is_broken |=
        buffer != nowhere && !CALL(call, cuMemsetD32Async, (CUdeviceptr)(uintptr_t)buffer, word,
                                   (size_t)(bytes + 3) / 4, STREAM(call));
    return buffer;
}

static int64_t scatter(int64_t index, int64_t below)
{
    uint64_t x = (uint64_t)index * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 32)) * 0x94d049bb133111ebull;
    return (int64_t)((x >> 33) % (uint64_t)below);
}

static int64_t get_value(enum flw_kernel_values values, int64_t index, const int *with)
{
    switch (values) {
    case FLW_KERNEL_SAME:
        return with[0];
    case FLW_KERNEL_MULTIPLES:
        return index * with[0];
    case FLW_KERNEL_SHUFFLED:
        return index * 40503 & (with[0] - 1); /* odd, so it has an inverse */
    case FLW_KERNEL_SCATTERED:
        return scatter(index, with[0]);
    case FLW_KERNEL_CHOICES:
        return (scatter(index / with[1], with[0]) + index % with[1]) % with[0];
    case FLW_KERNEL_LOGITS:
        break;
    }
    return ((uint32_t)scatter(index, (int64_t)1 << 31) * 2 & 0x80ff80ffu) | 0x3f003f00u;
}

int32_t *flw_kernel_integers(struct flw_kernel_call *call, int64_t count,
                             enum flw_kernel_values values, const int *with)
{
    int32_t *buffer = flw_kernel_output(call, count * 4);
    if (buffer == nowhere) {
        return buffer;
    }
    int32_t *host = flw_host_alloc((size_t)count, sizeof *host);
    for (int64_t i = 0; i < count; i++) {
        host[i] = (int32_t)get_value(values, i, with);
    }
    call->is_broken |=
        count > 0 && (!CALL(call, cuMemcpyHtoDAsync_v2, (CUdeviceptr)(uintptr_t)buffer, host,
                            (size_t)count * 4, STREAM(call)) ||
                      !CALL(call, cuStreamSynchronize, STREAM(call)));
    flw_host_free(host);
    return buffer;
}

bool flw_kernel_call_make(struct flw_kernel_call *call, const struct flw_kernel_module *module,
                          const struct flw_kernel_case *of, struct flw_kernel_bed *bed,
                          char *message)
{
    int sizes[FLW_KERNEL_SIZES];
    bool is_small = bed != NULL && bed->bed.device.is_simulated;
    *call = (struct flw_kernel_call){.module = module, .of = of, .bed = bed, .message = message};
    for (size_t i = 0; i < FLW_KERNEL_SIZES; i++) {
        int most = module->sizes[i].most_simulated;
        sizes[i] = is_small && of->sizes[i] > most ? most : of->sizes[i];
    }
    module->make(call, sizes);
    return !call->is_broken;
}

void flw_kernel_call_finish(struct flw_kernel_call *call)
{
    while (call->buffer_count > 0) {
        (void)!fallow_free(call->bed->bed.pool, call->buffers[--call->buffer_count], STREAM(call));
    }
}

static bool launch(struct flw_kernel_call *call)
{
    struct flw_kernel_bed *bed = call->bed;
    fallow_status status = call->module->launch(bed->kernels, call->params, STREAM(call));
    if (status != FALLOW_OK) {
        fallow_kernels_last_error(bed->kernels, call->message, FLW_BENCH_MESSAGE_BYTES);
    }
    return status == FALLOW_OK;
}

static bool query(struct flw_kernel_call *call, fallow_workspace_need *need)
{
    fallow_workspace_need_init(need);
    fallow_status status = call->module->query(call->params, need);
    if (status != FALLOW_OK) {
        snprintf(call->message, FLW_BENCH_MESSAGE_BYTES, "its query was refused: %s",
                 fallow_status_name(status));
    }
    return status == FALLOW_OK;
}

/* ---- times */

enum {
    WARM_REPLAYS = 3,
    REPLAYS = 9
};

/* Work that is submitted again and again: a copy of `bytes`, or the call if there are none. */
struct work {
    struct flw_kernel_call *call;
    CUdeviceptr to, from;
    size_t bytes;
    unsigned count; /* in one graph */
};

static bool submit(const struct work *work)
{
    return work->bytes == 0 ? launch(work->call)
                            : CALL(work->call, cuMemcpyDtoDAsync_v2, work->to, work->from,
                                   work->bytes, STREAM(work->call));
}

static bool capture(const struct work *work, CUgraph *out_graph)
{
    struct flw_kernel_call *call = work->call;
    if (!CALL(call, cuStreamBeginCapture_v2, STREAM(call), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) {
        return false;
    }
    bool is_done = true;
    for (unsigned i = 0; i < work->count && is_done; i++) {
        is_done = submit(work);
    }
    CUresult ended = call->bed->bed.driver->cuStreamEndCapture(STREAM(call), out_graph);
    return is_done && flw_bench_device_check(&call->bed->bed.device, ended, "cuStreamEndCapture",
                                             call->message);
}

/* Replay the graph and set *out_us, on a GPU, to the median of a launch. */
static bool replay(const struct work *work, CUgraphExec graph, CUevent begin, CUevent end,
                   double *out_us)
{
    struct flw_kernel_call *call = work->call;
    bool is_simulated = call->bed->bed.device.is_simulated;
    CUresult (*elapsed)(float *milliseconds, CUevent begin, CUevent end) = NULL;
    double times[REPLAYS];
    flw_bench_device_find(&call->bed->bed.device, "cuEventElapsedTime", &elapsed);
    for (int i = 0; i < (is_simulated ? 1 : REPLAYS + WARM_REPLAYS); i++) {
        float milliseconds = 0;
        if (!CALL(call, cuEventRecord, begin, STREAM(call)) ||
            !CALL(call, cuGraphLaunch, graph, STREAM(call)) ||
            !CALL(call, cuEventRecord, end, STREAM(call)) || !CALL(call, cuEventSynchronize, end)) {
            return false;
        }
        if (!is_simulated &&
            !flw_bench_device_check(&call->bed->bed.device,
                                    elapsed == NULL ? CUDA_ERROR_NOT_FOUND
                                                    : elapsed(&milliseconds, begin, end),
                                    "cuEventElapsedTime", call->message)) {
            return false;
        }
        times[i % REPLAYS] = (double)milliseconds * 1e3 / work->count; /* the warm ones go */
    }
    *out_us = is_simulated ? NAN : flw_median(times, REPLAYS);
    return true;
}

static bool time_graph(const struct work *work, double *out_us)
{
    struct flw_kernel_call *call = work->call;
    const struct flw_driver *driver = call->bed->bed.driver;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    CUevent begin = NULL, end = NULL;
    if (driver->cuGraphLaunch == NULL || driver->cuGraphInstantiateWithFlags == NULL ||
        driver->cuGraphExecDestroy == NULL || driver->cuGraphDestroy == NULL) {
        snprintf(call->message, FLW_BENCH_MESSAGE_BYTES, "the driver lacks graphs");
        return false;
    }
    bool is_done = capture(work, &graph) &&
                   CALL(call, cuGraphInstantiateWithFlags, &executable, graph, 0) &&
                   CALL(call, cuEventCreate, &begin, 0) && CALL(call, cuEventCreate, &end, 0) &&
                   replay(work, executable, begin, end, out_us);
    if (begin != NULL) {
        driver->cuEventDestroy_v2(begin);
    }
    if (end != NULL) {
        driver->cuEventDestroy_v2(end);
    }
    if (executable != NULL) {
        driver->cuGraphExecDestroy(executable);
    }
    if (graph != NULL) {
        driver->cuGraphDestroy(graph);
    }
    return is_done;
}

/* Time the call and, if it has no goal in microseconds, a copy of as many bytes. */
static bool time_call(struct flw_kernel_call *call, uint64_t moved, double *out_us,
                      double *out_copy_us)
{
    bool is_simulated = call->bed->bed.device.is_simulated;
    /* So many that the start of a graph does not show. */
    struct work work = {.call = call,
                        .count = is_simulated                 ? 2
                                 : moved < (uint64_t)16 << 20 ? 200
                                                              : 10};
    if (!time_graph(&work, out_us)) {
        return false;
    }
    if (call->of->goal_us > 0) {
        return true;
    }
    work.bytes = (size_t)(moved / 2 + 15) / 16 * 16;
    work.from = (CUdeviceptr)(uintptr_t)flw_kernel_filled(call, (int64_t)work.bytes, 0x3f803f80u);
    work.to = (CUdeviceptr)(uintptr_t)flw_kernel_output(call, (int64_t)work.bytes);
    return !call->is_broken && time_graph(&work, out_copy_us);
}

/* ---- a case's report */

enum {
    READ,
    WRITTEN,
    LAUNCHES,
    LAUNCH_GOAL,
    SIMULATED_COLUMNS,
    US = SIMULATED_COLUMNS,
    COPY_US,
    GB_PER_S,
    OF_COPY,
    COLUMNS
};

static const struct {
    const char *key, *head;
    int width, digits;
} columns[COLUMNS] = {[READ] = {"read_bytes", "bytes read", 15, 0},
                      [WRITTEN] = {"write_bytes", "written", 15, 0},
                      [LAUNCHES] = {"launches", "launches", 8, 0},
                      [LAUNCH_GOAL] = {"launch_goal", "goal", 4, 0},
                      [US] = {"us", "us", 9, 2},
                      [COPY_US] = {"copy_us", "copy us", 9, 2},
                      [GB_PER_S] = {"gb_per_s", "GB/s", 8, 0},
                      [OF_COPY] = {"of_copy", "of copy", 9, 3}};

/* Run a case: bytes are of the full size. False: message says what failed. */
static bool run(const struct flw_kernel_module *module, const struct flw_kernel_case *of,
                struct flw_kernel_bed *bed, double *values, char *message)
{
    struct flw_kernel_call call;
    fallow_workspace_need need;
    for (size_t i = 0; i < COLUMNS; i++) {
        values[i] = NAN;
    }
    message[0] = '\0';
    if (!flw_kernel_call_make(&call, module, of, NULL, message) || !query(&call, &need)) {
        return false;
    }
    values[READ] = (double)need.read_bytes;
    values[WRITTEN] = (double)need.write_bytes;
    values[LAUNCH_GOAL] = of->launch_goal > 0 ? of->launch_goal : NAN;
    uint64_t before = fallow_kernels_launch_count(bed->kernels), launches = 0;
    bool is_ok = flw_kernel_call_make(&call, module, of, bed, message) && query(&call, &need) &&
                 launch(&call) && flw_kernel_bed_settle(bed, message);
    launches = fallow_kernels_launch_count(bed->kernels) - before;
    values[LAUNCHES] = (double)launches;
    if (is_ok &&
        (launches != need.launch_count || (of->launch_goal > 0 && launches > of->launch_goal))) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES,
                 "%llu launches; its query says %u, the goal is %u", (unsigned long long)launches,
                 need.launch_count, of->launch_goal);
        is_ok = false;
    }
    is_ok = is_ok &&
            time_call(&call, need.read_bytes + need.write_bytes, &values[US], &values[COPY_US]) &&
            flw_kernel_bed_settle(bed, message);
    values[GB_PER_S] = (values[READ] + values[WRITTEN]) / values[US] / 1e3;
    values[OF_COPY] = values[COPY_US] / values[US];
    flw_kernel_call_finish(&call);
    return is_ok;
}

static void print_row(FILE *out, const struct flw_kernel_module *module,
                      const struct flw_kernel_case *of, bool is_simulated, const double *values)
{
    for (size_t i = 0; i < (is_simulated ? SIMULATED_COLUMNS : COLUMNS); i++) {
        if (isfinite(values[i])) {
            fprintf(out, " %*.*f", columns[i].width, columns[i].digits, values[i]);
        } else {
            fprintf(out, " %*s", columns[i].width, "-");
        }
    }
    if (!is_simulated && of->goal_us > 0) {
        fprintf(out, " %4.0f us %s", of->goal_us, values[US] <= of->goal_us ? "met" : "missed");
    } else if (!is_simulated && of->goal_share > 0) {
        fprintf(out, " %4.2f    %s", of->goal_share,
                values[OF_COPY] >= of->goal_share ? "met" : "missed");
    }
    for (size_t i = 0; i < FLW_KERNEL_SIZES && module->sizes[i].name != NULL; i++) {
        fprintf(out, "%s %s %d", i == 0 ? " " : ",", module->sizes[i].name, of->sizes[i]);
    }
    fputc('\n', out);
}

static void print_json_case(struct flw_json_writer *out, const struct flw_kernel_module *module,
                            const struct flw_kernel_case *of, const double *values, bool is_ok,
                            const char *message)
{
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "module", module->name);
    flw_json_text(out, "case", of->variant);
    flw_json_begin(out, "sizes", '{');
    for (size_t i = 0; i < FLW_KERNEL_SIZES && module->sizes[i].name != NULL; i++) {
        flw_json_number(out, module->sizes[i].name, (uint64_t)of->sizes[i]);
    }
    flw_json_end(out, '}');
    for (size_t i = 0; i < COLUMNS; i++) {
        if (i < SIMULATED_COLUMNS || (is_ok && isfinite(values[i]))) {
            flw_json_general(out, columns[i].key, 15, values[i]);
        }
    }
    if (of->goal_us > 0 || of->goal_share > 0) {
        bool is_time = of->goal_us > 0;
        flw_json_general(out, is_time ? "goal_us" : "goal_of_copy", 6,
                         is_time ? of->goal_us : of->goal_share);
    }
    flw_json_bool(out, "ok", is_ok);
    flw_json_text(out, "message", message);
    flw_json_end(out, '}');
}

/* ---- command */

struct settings {
    const char *only;
    int device;
    bool is_json;
};

static int parse(int argc, char **argv, struct settings *settings)
{
    static const struct flw_option list[] = {
        {.name = "only", .kind = FLW_OPTION_TEXT, .offset = offsetof(struct settings, only)},
        {.name = "device", .kind = FLW_OPTION_DEVICE, .offset = offsetof(struct settings, device)},
        {.name = "json", .kind = FLW_OPTION_SET, .offset = offsetof(struct settings, is_json)},
        {.name = NULL}};
    static const struct flw_options command = {
        .command = "bench kernels", .help = help, .list = list};
    *settings = (struct settings){.device = FLW_OPTION_SIM};
    int code = flw_options_read(&command, settings, argc, argv);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (optind < argc) {
        flw_complain("bench kernels: what is '%s'? see fallow bench kernels --help", argv[optind]);
        return FLW_EXIT_USAGE;
    }
    const struct flw_kernel_module *module = flw_kernel_modules;
    while (module->name != NULL && settings->only != NULL &&
           strcmp(module->name, settings->only) != 0) {
        module++;
    }
    if (module->name == NULL) {
        flw_complain("bench kernels: no module '%s'; without --only it lists them all",
                     settings->only);
        return FLW_EXIT_USAGE;
    }
    return FLW_OPTIONS_READ;
}

/* Run and print the cases of a module. Returns how many failed. */
static unsigned run_module(const struct flw_kernel_module *module, struct flw_kernel_bed *bed,
                           struct flw_json_writer *json, FILE *out)
{
    char message[FLW_BENCH_MESSAGE_BYTES];
    double values[COLUMNS];
    unsigned failures = 0;
    for (const struct flw_kernel_case *of = module->cases; of->variant != NULL; of++) {
        bool is_ok = run(module, of, bed, values, message);
        failures += !is_ok;
        if (out == NULL) {
            print_json_case(json, module, of, values, is_ok, message);
            continue;
        }
        fprintf(out, "%-18s %-22s", module->name, of->variant);
        if (is_ok) {
            print_row(out, module, of, bed->bed.device.is_simulated, values);
        } else {
            fprintf(out, " FAILED: %s\n", message);
        }
    }
    return failures;
}

static void print_head(FILE *out, struct flw_json_writer *json, const struct flw_bench_bed *bed)
{
    bool is_simulated = bed->device.is_simulated;
    const char *note = is_simulated ? "simulated device: byte and launch counts only"
                                    : "times by events around graphs of many launches";
    if (out == NULL) {
        flw_json_begin(json, NULL, '{');
        flw_json_text(json, "bench", "kernels");
        flw_json_text(json, "device", bed->device.name);
        flw_json_bool(json, "simulated", is_simulated);
        flw_json_text(json, "note", note);
        flw_json_begin(json, "cases", '[');
        return;
    }
    fprintf(out, "on %s\n%s\n%-18s %-22s", bed->device.name, note, "module", "case");
    for (size_t i = 0; i < (is_simulated ? SIMULATED_COLUMNS : COLUMNS); i++) {
        fprintf(out, " %*s", columns[i].width, columns[i].head);
    }
    fprintf(out, is_simulated ? "  sizes\n" : " goal  sizes\n");
}

int flw_command_bench_kernels(int argc, char **argv)
{
    char message[FLW_BENCH_MESSAGE_BYTES] = "";
    struct settings settings;
    struct flw_kernel_bed bed;
    struct flw_json_writer json = {.file = stdout};
    bool is_absent = false;
    unsigned failures = 0;
    int code = parse(argc, argv, &settings);
    if (code != FLW_OPTIONS_READ) {
        return code;
    }
    if (!flw_kernel_bed_open(&bed, settings.device, message, &is_absent)) {
        flw_complain("bench kernels: %s", message);
        return is_absent ? EXIT_ABSENT : FLW_EXIT_FAILED;
    }
    FILE *out = settings.is_json ? NULL : flw_terminal_open(false);
    print_head(out, &json, &bed.bed);
    for (const struct flw_kernel_module *module = flw_kernel_modules; module->name; module++) {
        if (settings.only == NULL || strcmp(settings.only, module->name) == 0) {
            failures += run_module(module, &bed, &json, out);
        }
    }
    if (out != NULL) {
        flw_terminal_close(out);
    } else {
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
