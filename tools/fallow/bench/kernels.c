/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: `fallow bench kernels`: the command line, the calls of all cases, their times on a GPU, the report.
 *
 * A time is the median of several replays of a graph with many launches, measured by events around each replay. A copy
 * of as many bytes is timed in the same way.
 */
#include "bench/kernels.h"

#include <limits.h>

#include "common/command.h"
#include "common/options.h"
#include "trace/io/jsonwriter.h"

/* ---- command line */

static const char help[] =
    "usage: fallow bench kernels [--only NAME] [--device sim|N] [--json]\n"
    "\n"
    "Every kernel module at its sizes: bytes read and written (at most, from its query) and launches;\n"
    "on a GPU also the time of a launch inside a graph, by events, and the speed relative to a copy from\n"
    "device to device of as many bytes.\n"
    "The simulated device runs each call at small sizes, with every access checked, and takes no time.\n"
    "\n"
    "  --only NAME        one module, as the table names it\n"
    "  --device sim|N     (sim)\n"
    "  --json             everything, one object\n"
    "\n"
    "exit status 0: every call made the launches that its query returns and its goal allows;\n"
    "1: one did not; 2: the command line is wrong; 77: no such device, or no kernels for it\n"
    "\n"
    "example: fallow bench kernels --only combine\n";

static bool take_only(void *member, const char *text)
{
    const char **only = member;
    *only = text;
    for (const struct flw_kernel_module *module = flw_kernel_modules; module->name; module++) {
        if (strcmp(module->name, text) == 0) {
            return true;
        }
    }
    return flw_complain("bench kernels: no module '%s'; without --only it lists them all", text);
}

static const struct flw_option list[] = {
    {FLW_OPTION(struct flw_bench_options, "only", TAKE, only), .take = take_only},
    {FLW_OPTION(struct flw_bench_options, "device", DEVICE, device)},
    {FLW_OPTION(struct flw_bench_options, "json", SET, is_json)},
    {.name = NULL}};

const struct flw_options flw_bench_kernel_command = {
    .command = "bench kernels", .help = help, .list = list};

/* ---- bed */

const flw_sim_config flw_bench_kernel_world = {.struct_size = sizeof flw_bench_kernel_world,
                                               .seed = 1,
                                               .backed = 1,
                                               .check = 1,
                                               .device_bytes = (uint64_t)8 << 30};

bool flw_kernel_load(struct flw_bench *bench)
{
    fallow_status status = fallow_kernels_create(bench->pool, &bench->kernels);
    if (status == FALLOW_OK) { /* keep loads out of the figures and captures */
        status = fallow_kernels_load(bench->kernels, NULL, 0);
    }
    bench->is_absent = status == FALLOW_NOT_SUPPORTED;
    if (status != FALLOW_OK) {
        char why[128] = "";
        fallow_kernels_last_error(bench->kernels, why, sizeof why);
        flw_bench_fail(bench, "no kernels on %s: %s%s%s", bench->device_name,
                       fallow_status_name(status), why[0] == 0 ? "" : ": ", why);
        flw_kernel_unload(bench);
    }
    return status == FALLOW_OK;
}

void flw_kernel_unload(struct flw_bench *bench)
{
    fallow_kernels_destroy(bench->kernels);
    (void)!fallow_stream_retire(bench->pool, bench->streams[0]);
}

bool flw_kernel_wait(struct flw_bench *bench)
{
    flw_sim_ledger ledger = {.struct_size = sizeof ledger};
    flw_sim_ledger_function get_ledger = NULL;
    flw_sim_violation_function violation = NULL;
    if (!FLW_BENCH_CALL(bench, cuStreamSynchronize, bench->streams[0])) {
        return false;
    }
    if (!bench->is_simulated) {
        return true;
    }
    flw_bench_find(bench, "flw_sim_get_ledger", &get_ledger);
    flw_bench_find(bench, "flw_sim_violation", &violation);
    get_ledger(0, &ledger);
    uint64_t before = bench->reported_count;
    bench->reported_count = ledger.violation_count;
    if (ledger.violation_count == before) {
        return true;
    }
    const char *sentence = violation(before);
    return flw_bench_fail(bench, "%s",
                          sentence != NULL ? sentence : "the rule checker found a violation");
}

/* ---- call */

/* Stands for memory in a query: optional pointers must not be NULL, and none is followed. */
static _Alignas(256) int32_t nowhere[64];

#define CALL(call, name, ...) FLW_BENCH_CALL((call)->bench, name, __VA_ARGS__)
#define STREAM(call)          ((call)->bench->streams[0])

void *flw_kernel_output(struct flw_kernel_call *call, int64_t bytes)
{
    void *buffer = NULL;
    if (call->is_query || call->is_broken) {
        return nowhere;
    }
    size_t room = bytes == 0 ? 16 : (size_t)bytes;
    fallow_status status = fallow_alloc(call->bench->pool, room, STREAM(call), &buffer);
    if (status != FALLOW_OK) {
        call->is_broken = !flw_bench_fail(call->bench, "no buffer of %zu bytes: %s", room,
                                          fallow_status_name(status));
        return nowhere;
    }
    FLW_HOST_ADD(call->buffers, call->buffer_count, call->buffer_capacity, buffer);
    return buffer;
}

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
    case FLW_KERNEL_MULTIPLES:
        return index * with[0];
    case FLW_KERNEL_SHUFFLED:
        return index * 40503 & (with[0] - 1); /* odd, so invertible */
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
    FLW_LOCAL int32_t *host = flw_host_alloc((size_t)count, sizeof *host);
    for (int64_t i = 0; i < count; i++) {
        host[i] = (int32_t)get_value(values, i, with);
    }
    call->is_broken |=
        count > 0 && (!CALL(call, cuMemcpyHtoDAsync_v2, (CUdeviceptr)(uintptr_t)buffer, host,
                            (size_t)count * 4, STREAM(call)) ||
                      !CALL(call, cuStreamSynchronize, STREAM(call)));
    return buffer;
}

bool flw_kernel_call_make(struct flw_kernel_call *call, const struct flw_kernel_module *module,
                          const struct flw_kernel_case *of, struct flw_bench *bench, bool is_query)
{
    int sizes[FLW_KERNEL_SIZES];
    *call =
        (struct flw_kernel_call){.module = module, .of = of, .bench = bench, .is_query = is_query};
    for (size_t i = 0; i < FLW_KERNEL_SIZES; i++) {
        int most = is_query || !bench->is_simulated ? INT_MAX : module->sizes[i].most_simulated;
        sizes[i] = of->sizes[i] > most ? most : of->sizes[i];
    }
    module->make(call, sizes);
    return !call->is_broken;
}

void flw_kernel_call_finish(struct flw_kernel_call *call)
{
    while (call->buffer_count > 0) {
        (void)!fallow_free(call->bench->pool, call->buffers[--call->buffer_count], STREAM(call));
    }
    flw_host_free(call->buffers);
}

static bool launch(struct flw_kernel_call *call)
{
    struct flw_bench *bench = call->bench;
    fallow_status status = call->module->launch(bench->kernels, call->params, STREAM(call));
    if (status != FALLOW_OK) {
        fallow_kernels_last_error(bench->kernels, bench->message, sizeof bench->message);
    }
    return status == FALLOW_OK;
}

static bool query(struct flw_kernel_call *call, fallow_workspace_need *need)
{
    fallow_workspace_need_init(need);
    fallow_status status = call->module->query(call->params, need);
    return status == FALLOW_OK ||
           flw_bench_fail(call->bench, "its query was refused: %s", fallow_status_name(status));
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
    CUgraph graph;
    CUgraphExec executable;
    CUevent begin, end;
};

static bool submit(const struct work *work)
{
    return work->bytes == 0 ? launch(work->call)
                            : CALL(work->call, cuMemcpyDtoDAsync_v2, work->to, work->from,
                                   work->bytes, STREAM(work->call));
}

static bool capture(struct work *work)
{
    struct flw_kernel_call *call = work->call;
    if (!CALL(call, cuStreamBeginCapture_v2, STREAM(call), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) {
        return false;
    }
    bool is_done = true;
    for (unsigned i = 0; i < work->count && is_done; i++) {
        is_done = submit(work);
    }
    CUresult ended = call->bench->driver->cuStreamEndCapture(STREAM(call), &work->graph);
    return is_done && flw_bench_check(call->bench, ended, "cuStreamEndCapture") &&
           CALL(call, cuGraphInstantiateWithFlags, &work->executable, work->graph, 0) &&
           CALL(call, cuEventCreate, &work->begin, 0) && CALL(call, cuEventCreate, &work->end, 0);
}

static bool replay(const struct work *work, float *out_ms)
{
    struct flw_kernel_call *call = work->call;
    CUresult (*elapsed)(float *ms, CUevent begin, CUevent end) = NULL;
    flw_bench_find(call->bench, "cuEventElapsedTime", &elapsed);
    return CALL(call, cuEventRecord, work->begin, STREAM(call)) &&
           CALL(call, cuGraphLaunch, work->executable, STREAM(call)) &&
           CALL(call, cuEventRecord, work->end, STREAM(call)) &&
           CALL(call, cuEventSynchronize, work->end) &&
           (call->bench->is_simulated ||
            flw_bench_check(call->bench,
                            elapsed == NULL ? CUDA_ERROR_NOT_FOUND
                                            : elapsed(out_ms, work->begin, work->end),
                            "cuEventElapsedTime"));
}

/* Set *out_us to the median of replays, NAN on the simulated device. */
static bool time_work(struct work work, double *out_us)
{
    const struct flw_bench *bench = work.call->bench;
    double times[REPLAYS];
    int replays = bench->is_simulated ? 1 : REPLAYS + WARM_REPLAYS;
    bool is_done = capture(&work);
    for (int i = 0; i < replays && is_done; i++) {
        float ms = NAN;
        is_done = replay(&work, &ms);
        times[i % REPLAYS] = (double)ms * 1e3 / work.count; /* the warm ones are replaced */
    }
    *out_us = replays == 1 ? NAN : flw_median(times, REPLAYS);
    if (is_done) { /* a failed case leaves them to the end of the process */
        bench->driver->cuEventDestroy_v2(work.end);
        bench->driver->cuEventDestroy_v2(work.begin);
        bench->driver->cuGraphExecDestroy(work.executable);
        bench->driver->cuGraphDestroy(work.graph);
    }
    return is_done;
}

/* Time the call and, if it has no goal in microseconds, a copy of as many bytes. */
static bool time_call(struct flw_kernel_call *call, uint64_t moved, double *out_us,
                      double *out_copy_us)
{
    struct work work = {.call = call, .count = 2};
    if (!call->bench->is_simulated) { /* so many that the start of a graph does not show */
        work.count = moved < (uint64_t)16 << 20 ? 200 : 10;
    }
    if (!time_work(work, out_us)) {
        return false;
    }
    if (call->of->goal_us > 0) {
        return true;
    }
    work.bytes = (size_t)(moved / 2 + 15) / 16 * 16;
    work.from = (CUdeviceptr)(uintptr_t)flw_kernel_filled(call, (int64_t)work.bytes, 0x3f803f80u);
    work.to = (CUdeviceptr)(uintptr_t)flw_kernel_output(call, (int64_t)work.bytes);
    return !call->is_broken && time_work(work, out_copy_us);
}

/* ---- report */

#define CASE_COLUMNS(X)                             \
    X(READ, "read_bytes", "bytes read", 1, false)   \
    X(WRITTEN, "write_bytes", "written", 1, false)  \
    X(LAUNCHES, "launches", "launches", 1, false)   \
    X(LAUNCH_GOAL, "launch_goal", "goal", 1, false) \
    X(US, "us", "us", 1, true)                      \
    X(COPY_US, "copy_us", "copy us", 1, true)       \
    X(GB_PER_S, "gb_per_s", "GB/s", 1, true)        \
    X(OF_COPY, "of_copy", "% of copy", 0.01, true)

enum {
    CASE_COLUMNS(FLW_BENCH_NAME) COLUMNS,
    SIMULATED_COLUMNS = US /* only these on the simulated device */
};
static const struct flw_bench_column columns[COLUMNS] = {CASE_COLUMNS(FLW_BENCH_COLUMN)};

/* Run a case; the bytes are those of the full size. Returns false, with the message, if that fails. */
static bool run_case(struct flw_bench *bench, const struct flw_kernel_module *module,
                     const struct flw_kernel_case *of, double *values)
{
    struct flw_kernel_call call;
    fallow_workspace_need need;
    if (!flw_kernel_call_make(&call, module, of, bench, true) || !query(&call, &need)) {
        return false;
    }
    values[READ] = (double)need.read_bytes;
    values[WRITTEN] = (double)need.write_bytes;
    uint64_t before = fallow_kernels_launch_count(bench->kernels);
    bool is_ok = flw_kernel_call_make(&call, module, of, bench, false) && query(&call, &need) &&
                 launch(&call) && flw_kernel_wait(bench);
    uint64_t launches = fallow_kernels_launch_count(bench->kernels) - before;
    values[LAUNCHES] = (double)launches;
    if (is_ok &&
        (launches != need.launch_count || (of->launch_goal > 0 && launches > of->launch_goal))) {
        is_ok = flw_bench_fail(bench, "%llu launches; the query returns %u, the goal is %u",
                               (unsigned long long)launches, need.launch_count, of->launch_goal);
    }
    is_ok = is_ok &&
            time_call(&call, need.read_bytes + need.write_bytes, &values[US], &values[COPY_US]) &&
            flw_kernel_wait(bench);
    values[GB_PER_S] = (values[READ] + values[WRITTEN]) / values[US] / 1e3;
    values[OF_COPY] = values[COPY_US] / values[US];
    flw_kernel_call_finish(&call);
    return is_ok;
}

static void print_case(const struct flw_bench_row *row, struct flw_json_writer *out)
{
    const struct flw_kernel_module *module = row->module;
    const struct flw_kernel_case *of = row->of;
    flw_json_text(out, "module", module->name);
    flw_json_text(out, "case", of->variant);
    flw_json_begin(out, "sizes", '{');
    for (size_t i = 0; i < FLW_KERNEL_SIZES && module->sizes[i].name != NULL; i++) {
        flw_json_number(out, module->sizes[i].name, (uint64_t)of->sizes[i]);
    }
    flw_json_end(out, '}');
    if (of->goal_us > 0 || of->goal_share > 0) {
        bool is_time = of->goal_us > 0;
        flw_json_general(out, is_time ? "goal_us" : "goal_of_copy", 6,
                         is_time ? of->goal_us : of->goal_share);
    }
    flw_json_bool(out, "ok", !row->is_failed);
    flw_json_text(out, "message", row->is_failed ? row->note : "");
}

/* Set the note of a case that succeeded: the goal if on a GPU, and the sizes. */
static void describe(struct flw_bench_row *row, bool is_simulated)
{
    const struct flw_kernel_module *module = row->module;
    const struct flw_kernel_case *of = row->of;
    FILE *note = fmemopen(row->note, sizeof row->note, "w");
    if (!is_simulated && of->goal_us > 0) {
        fprintf(note, "%g us %s; ", of->goal_us, row->values[US] <= of->goal_us ? "met" : "missed");
    } else if (!is_simulated && of->goal_share > 0) {
        fprintf(note, "%g %% %s; ", of->goal_share * 100,
                row->values[OF_COPY] >= of->goal_share ? "met" : "missed");
    }
    for (size_t i = 0; i < FLW_KERNEL_SIZES && module->sizes[i].name != NULL; i++) {
        fprintf(note, "%s%s %d", i == 0 ? "" : ", ", module->sizes[i].name, of->sizes[i]);
    }
    fclose(note);
}

static void add_case(struct flw_bench *bench, const struct flw_kernel_module *module,
                     const struct flw_kernel_case *of)
{
    struct flw_bench_row *row = flw_bench_add_row(bench);
    row->module = module;
    row->of = of;
    for (size_t i = 0; i < COLUMNS; i++) {
        row->values[i] = NAN;
    }
    row->values[LAUNCH_GOAL] = of->launch_goal > 0 ? of->launch_goal : NAN;
    snprintf(row->name, sizeof row->name, "%s, %s", module->name, of->variant);
    row->is_failed = !run_case(bench, module, of, row->values);
    if (row->is_failed) {
        bench->failure_count++;
        strcpy(row->note, bench->message);
        bench->message[0] = '\0';
    } else {
        describe(row, bench->is_simulated);
    }
}

bool flw_bench_kernels(struct flw_bench *bench)
{
    const char *only = bench->options->only;
    if (!flw_kernel_load(bench)) {
        return false;
    }
    bench->columns = columns;
    bench->column_count = bench->is_simulated ? SIMULATED_COLUMNS : COLUMNS;
    bench->print_case = print_case;
    strcpy(bench->note, bench->is_simulated ? "simulated device: byte and launch counts only"
                                            : "times by events around graphs of many launches");
    for (const struct flw_kernel_module *module = flw_kernel_modules; module->name; module++) {
        bool is_wanted = only == NULL || strcmp(only, module->name) == 0;
        for (const struct flw_kernel_case *of = module->cases; is_wanted && of->variant; of++) {
            add_case(bench, module, of);
        }
    }
    flw_kernel_unload(bench);
    return true;
}
