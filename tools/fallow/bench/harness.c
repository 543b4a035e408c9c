/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the harness of all shapes: the bed (a device, new if simulated; the streams; the pool, by one of the policies),
 * the loops that are timed with their random sizes and steps, the clock, and the report.
 *
 * The functions of a policy are adapters between a loop and the measured library. Each jumps through the program's
 * linkage table, as a user's call of a shared library does. `loop` returns at once, inside the program, and costs the
 * loop and the indirect calls. `null` calls libfallow-null.so, which adds the cost of reaching a shared library. The
 * loops are small, the same for every policy, and call through the policy's table.
 */
#include "bench/bench.h"

#include <dlfcn.h>
#include <stdarg.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/random.h"
#include "common/tabular.h"
#include "common/terminal.h"
#include "trace/io/jsonwriter.h"

/* ---- failures */

bool flw_bench_fail(struct flw_bench *bench, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(bench->message, sizeof bench->message, format, arguments);
    va_end(arguments);
    return false;
}

bool flw_bench_check(struct flw_bench *bench, CUresult result, const char *call)
{
    return result == CUDA_SUCCESS ||
           flw_bench_fail(bench, "%s failed with %s; run `fallow doctor` for details", call,
                          flw_driver_error_name(bench->driver, result));
}

/* The last error that the library logged; a pool may log long after creation. */
static char last_line[FLW_BENCH_MESSAGE_BYTES];

static void keep_line(void *context, fallow_log_level level, const char *line)
{
    (void)context;
    if (level == FALLOW_LOG_ERROR) {
        snprintf(last_line, sizeof last_line, "%s", line);
    }
}

static bool check_status(struct flw_bench *bench, fallow_status status, const char *call)
{
    return status == FALLOW_OK ||
           flw_bench_fail(bench, "%s%.270s", call,
                          last_line[0] != '\0' ? last_line : fallow_status_message(status));
}

/* ---- policies */

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define ADAPT(prefix, name, parameters, result)     \
    static fallow_status prefix##_##name parameters \
    {                                               \
        return result;                              \
    }
#define LOOP(name, library, parameters, arguments) ADAPT(loop, name, parameters, FALLOW_OK)
#define NULL_(name, library, parameters, arguments) \
    ADAPT(null, name, parameters, fallow_null_##name arguments)
#define POOL(name, library, parameters, arguments) \
    ADAPT(pool, name, parameters, fallow_##library arguments)
FLW_BENCH_CALLS(LOOP)
FLW_BENCH_CALLS(NULL_)
FLW_BENCH_CALLS(POOL)
#pragma GCC diagnostic pop

#define CALLS(prefix)                                                                  \
    .alloc = prefix##_alloc, .free = prefix##_free, .free_sized = prefix##_free_sized, \
    .record_use = prefix##_record_use, .poll = prefix##_poll

const struct flw_bench_policy *flw_bench_policy_find(const char *name)
{
    static const struct flw_bench_policy policies[] = {
        {.name = "fallow", .needs_device = true, CALLS(pool), .has_pool = true},
        {.name = "null", CALLS(null)},
        {.name = "loop", CALLS(loop)}};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        if (strcmp(policies[i].name, name) == 0) {
            return &policies[i];
        }
    }
    return NULL;
}

/* ---- pool */

bool flw_bench_renew_pool(struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    fallow_pool *pool = NULL;
    fallow_pool_config config;
    fallow_record_config recording;
    if (!options->policy->has_pool) {
        return true;
    }
    fallow_pool_destroy(bench->pool);
    fallow_pool_config_init(&config);
    fallow_record_config_init(&recording);
    config.driver = options->device < 0 ? "sim" : NULL;
    config.device = options->device < 0 ? 0 : options->device;
    config.log = keep_line;
    bool is_made = check_status(bench, fallow_pool_create(&config, &pool), "fallow_pool_create: ");
    bench->pool = pool;
    if (is_made && options->record != NULL) {
        recording.path = strcmp(options->record, "ring") == 0 ? NULL : options->record;
        is_made = check_status(bench, fallow_record_start(pool, &recording, &bench->recorder),
                               "fallow_record_start: ");
    }
    return is_made;
}

fallow_stats flw_bench_usage(const struct flw_bench *bench)
{
    fallow_stats usage;
    fallow_stats_init(&usage);
    if (!bench->options->policy->has_pool ||
        fallow_pool_get_stats(bench->pool, &usage) != FALLOW_OK) {
        memset(&usage, 0xff, sizeof usage);
    }
    return usage;
}

bool flw_bench_stop_recording(struct flw_bench *bench)
{
    fallow_status status = fallow_record_stop(bench->recorder);
    bool is_whole = status == FALLOW_OK || status == FALLOW_RECORDS_LOST; /* lost: expected here */
    (void)check_status(bench, status, is_whole ? "" : "the recording is not whole: ");
    return is_whole;
}

/* ---- device and streams */

void flw_bench_find(const struct flw_bench *bench, const char *name, void *out_function)
{
    void *address = dlsym(bench->driver->object, name);
    memcpy(out_function, &address, sizeof address);
}

static bool open_device(struct flw_bench *bench, const flw_sim_config *world)
{
    flw_sim_reset_function reset = NULL;
    int ordinal = bench->options->device;
    bool is_sim = ordinal < 0;
    if (flw_driver_open(&bench->opened, is_sim ? "sim" : NULL, bench->message) != FALLOW_OK) {
        return false;
    }
    bench->driver = &bench->opened;
    flw_bench_find(bench, "flw_sim_reset", &reset);
    bench->is_simulated = reset != NULL;
    if (is_sim && reset == NULL) {
        return flw_bench_fail(bench, "the simulated driver lacks flw_sim_reset: rebuild "
                                     "libfallow-simcuda.so");
    }
    if (is_sim) {
        reset(world);
    }
    if (!FLW_BENCH_CALL(bench, cuInit, 0) || /* needed again after a new world */
        !FLW_BENCH_CALL(bench, cuDeviceGet, &bench->device, is_sim ? 0 : ordinal) ||
        !FLW_BENCH_CALL(bench, cuDeviceGetName, bench->device_name, (int)sizeof bench->device_name,
                        bench->device) ||
        !FLW_BENCH_CALL(bench, cuDevicePrimaryCtxRetain, &bench->context, bench->device)) {
        return false;
    }
    return FLW_BENCH_CALL(bench, cuCtxSetCurrent, bench->context);
}

static bool open_streams(struct flw_bench *bench, size_t count)
{
    bench->streams = flw_host_lines(count, sizeof *bench->streams);
    for (size_t i = 0; i < count; i++) {
        CUstream stream = (CUstream)(void *)&bench->streams[i]; /* without a device, only a name */
        if (bench->driver != NULL &&
            !FLW_BENCH_CALL(bench, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING)) {
            return false;
        }
        bench->streams[bench->stream_count++] = stream;
    }
    return true;
}

bool flw_bench_open(struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    /* A bench measures the host, and the pool must find its fences complete. So the device has no work, except the host
     * function that blocks a stream in `deferred`, and the work of a sweep, where the clock advances by one per
     * pair. */
    flw_sim_config world = {.struct_size = sizeof world,
                            .seed = 1,
                            .schedule = FLW_SIM_CLOCK,
                            .lag_ns = flw_max(options->lag_pairs, 1),
                            .mild = FLW_SIM_MILD_GARBAGE};
    strcpy(bench->device_name, "no device");
    bench->pool = options->policy->has_pool ? NULL : bench; /* allocated as every block */
    bench->is_absent = options->policy->needs_device &&
                       !open_device(bench, options->world != NULL ? options->world : &world);
    if (bench->is_absent ||
        !open_streams(bench, flw_max(options->stream_count, options->thread_count)) ||
        !flw_bench_renew_pool(bench)) {
        flw_bench_close(bench);
        return false;
    }
    return true;
}

void flw_bench_close(struct flw_bench *bench)
{
    struct flw_driver *driver = bench->driver;
    if (bench->options->policy->has_pool) {
        fallow_pool_destroy(bench->pool);
    }
    for (size_t i = 0; i < bench->stream_count && driver != NULL; i++) {
        driver->cuStreamDestroy_v2(bench->streams[i]);
    }
    flw_host_free(bench->streams);
    flw_host_free(bench->rows);
    flw_host_free(bench->values);
    if (bench->context != NULL) {
        driver->cuCtxSetCurrent(NULL);
        driver->cuDevicePrimaryCtxRelease_v2(bench->device);
    }
    if (driver != NULL) {
        flw_driver_close(driver);
    }
}

/* ---- sizes and steps */

uint64_t flw_bench_size_draw(const struct flw_bench_options *options, uint64_t *state)
{
    /* In KiB. Small: the usual requests to a host allocator, and small tensors and biases, two sizes a doubling. Mixed:
     * the tensors of a language model, 8 of the 19 (42 %) above 2 MiB; 43 MiB is 4,096 x 11,008 bytes, one
     * feed-forward activation. */
    static const double small[] = {0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    static const double mixed[] = {0.5,  2,    8,    16,   32,    64,    128,   256,   512,  1024,
                                   2048, 3072, 5120, 8192, 12288, 20480, 32768, 44032, 65536};
    uint64_t random = flw_random_next(state), base = 0, size = 0;
    switch (options->sizes) {
    case FLW_BENCH_SIZE_SMALL:
        return (uint64_t)(small[random % (sizeof small / sizeof *small)] * 1024);
    case FLW_BENCH_SIZE_MIXED:
        return (uint64_t)(mixed[random % (sizeof mixed / sizeof *mixed)] * 1024);
    case FLW_BENCH_SIZE_LOG:
        /* 17 doublings from 512 B to 64 MiB, linear inside each, in steps of 512 B above the first. */
        base = (uint64_t)512 << (random % 17);
        size = base + (random >> 8) % base;
        return base == 512 ? size : size - size % 512;
    case FLW_BENCH_SIZE_ONE:
        break;
    }
    return options->size_bytes;
}

struct flw_bench_loop flw_bench_loop_open(const struct flw_bench *bench,
                                          const struct flw_bench_options *options,
                                          uint64_t slot_count, uint64_t seed)
{
    struct flw_bench_loop loop = {.policy = options->policy,
                                  .pool = bench->pool,
                                  .stream = bench->streams[0],
                                  .streams = bench->streams,
                                  .slots = flw_host_lines(slot_count + 1, sizeof *loop.slots),
                                  .size_bytes = options->size_bytes};
    uint64_t count = 8192;
    while (count < slot_count) {
        count *= 2;
    }
    loop.mask = count - 1;
    loop.steps = flw_host_lines(count, sizeof *loop.steps);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = flw_random_next(&seed);
        loop.steps[i] = (struct flw_bench_step){
            .size_bytes = flw_bench_size_draw(options, &seed),
            .slot = (uint32_t)(random % flw_max(slot_count, 1)),
            .stream =
                (uint32_t)((options->is_random_switch ? random >> 32 : i) % options->stream_count),
        };
    }
    return loop;
}

void flw_bench_loop_close(struct flw_bench_loop *loop)
{
    flw_host_free(loop->slots);
    flw_host_free(loop->steps);
}

/* ---- loops */

enum kind {
    DRAWN = 1,     /* sizes are the steps' */
    STREAMS = 2,   /* streams are the steps' */
    SIZED = 4,     /* free_sized */
    WORKED = 8,    /* the device works on each block */
    ANNOUNCED = 16 /* another stream's use is announced */
};

/* The body of all pairs; `kind` is a constant, so a loop has the code of its kind alone. */
static inline __attribute__((always_inline)) uint64_t
run_pairs(const struct flw_bench_loop *loop, struct flw_bench_range range, unsigned kind)
{
    const struct flw_bench_policy *policy = loop->policy;
    void *pool = loop->pool, *ptr = NULL;
    fallow_stream stream = loop->stream, user = loop->user;
    const fallow_stream *streams = loop->streams;
    const struct flw_bench_step *steps = loop->steps;
    uint64_t mask = loop->mask, failures = 0;
    size_t size_bytes = loop->size_bytes;
    for (uint64_t i = range.begin; i < range.end; i++) {
        stream = kind & STREAMS ? streams[steps[i & mask].stream] : stream;
        size_bytes = kind & DRAWN ? steps[i & mask].size_bytes : size_bytes;
        failures += policy->alloc(pool, size_bytes, stream, &ptr) != FALLOW_OK;
        if (kind & WORKED) {
            flw_sim_range whole = {
                .address = (uint64_t)(uintptr_t)ptr, .bytes = size_bytes, .is_write = 1};
            failures += loop->touch(stream, &whole, 1) != CUDA_SUCCESS;
        }
        if (kind & ANNOUNCED) {
            failures += policy->record_use(pool, ptr, user) != FALLOW_OK;
        }
        failures += (kind & SIZED ? policy->free_sized(pool, ptr, size_bytes, stream)
                                  : policy->free(pool, ptr, stream)) != FALLOW_OK;
        if (kind & WORKED) {
            loop->advance(1);
        }
        if (kind & ANNOUNCED && i % FLW_BENCH_POLL_EVERY == FLW_BENCH_POLL_EVERY - 1) {
            failures += policy->poll(pool) != FALLOW_OK;
        }
    }
    return failures;
}

#define RUN(name, kind)                                                                            \
    uint64_t flw_bench_run_##name(const struct flw_bench_loop *loop, struct flw_bench_range range) \
    {                                                                                              \
        return run_pairs(loop, range, kind);                                                       \
    }
RUN(pair, 0)
RUN(pair_drawn, DRAWN)
RUN(pair_sized, SIZED)
RUN(streams, STREAMS)
RUN(worked, STREAMS | WORKED)
RUN(deferred, ANNOUNCED)

uint64_t flw_bench_run_replace(const struct flw_bench_loop *loop, struct flw_bench_range range)
{
    const struct flw_bench_policy *policy = loop->policy;
    const struct flw_bench_step *steps = loop->steps;
    uint64_t mask = loop->mask, failures = 0;
    void *pool = loop->pool, **slots = loop->slots;
    fallow_stream stream = loop->stream;
    for (uint64_t i = range.begin; i < range.end; i++) {
        const struct flw_bench_step *step = &steps[i & mask];
        void **slot = &slots[step->slot];
        failures += policy->free(pool, *slot, stream) != FALLOW_OK;
        failures += policy->alloc(pool, step->size_bytes, stream, slot) != FALLOW_OK;
    }
    return failures;
}

uint64_t flw_bench_drain(const struct flw_bench_loop *loop, uint64_t count)
{
    uint64_t failures = 0;
    for (uint64_t i = 0; i < count; i++) {
        failures += loop->policy->free(loop->pool, loop->slots[i], loop->stream) != FALLOW_OK;
        loop->slots[i] = NULL;
    }
    return failures;
}

/* ---- clock */

#define BATCHES 5

double flw_bench_time(struct flw_bench *bench, const struct flw_bench_loop *loop,
                      flw_bench_run *run, uint64_t count, uint64_t (*clock_ns)(void),
                      double *out_least)
{
    double ns[BATCHES];
    size_t batches = 0;
    for (uint64_t i = 0; i < BATCHES; i++) {
        struct flw_bench_range range = {count * i / BATCHES, count * (i + 1) / BATCHES};
        if (range.begin < range.end) {
            uint64_t begin = clock_ns();
            bench->failure_count += run(loop, range);
            ns[batches++] = (double)(clock_ns() - begin) / (double)(range.end - range.begin);
        }
    }
    double median = flw_median(ns, batches); /* sorts */
    if (out_least != NULL) {
        *out_least = batches == 0 ? 0 : ns[0];
    }
    return median;
}

double flw_bench_measure(struct flw_bench *bench, const struct flw_bench_loop *loop,
                         flw_bench_run *run, uint64_t warm_count, uint64_t count,
                         const char *prefix)
{
    char key[sizeof bench->values->key];
    double least;
    bench->failure_count += run(loop, (struct flw_bench_range){0, warm_count});
    double median = flw_bench_time(bench, loop, run, count, flw_clock_fine_ns, &least);
    snprintf(key, sizeof key, "%sns_per_op", prefix);
    flw_bench_add(bench, key, median);
    snprintf(key, sizeof key, "%sns_per_op_min", prefix);
    flw_bench_add(bench, key, least);
    return median;
}

/* ---- report */

void flw_bench_add(struct flw_bench *bench, const char *key, double value)
{
    FLW_HOST_GROW(bench->values, bench->value_capacity, bench->value_count + 1);
    snprintf(bench->values[bench->value_count].key, sizeof bench->values->key, "%s", key);
    bench->values[bench->value_count++].value = value;
}

struct flw_bench_row *flw_bench_add_row(struct flw_bench *bench)
{
    FLW_HOST_GROW(bench->rows, bench->row_capacity, bench->row_count + 1);
    return &bench->rows[bench->row_count++];
}

static void print_rows(const struct flw_bench *bench, struct flw_json_writer *out)
{
    flw_json_number(out, "lag_pairs", bench->options->lag_pairs);
    flw_json_text(out, "note", bench->note);
    flw_json_begin(out, bench->print_case != NULL ? "cases" : "rows", '[');
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct flw_bench_row *row = &bench->rows[i];
        flw_json_begin(out, NULL, '{');
        if (bench->print_case != NULL) {
            bench->print_case(row, out);
        }
        for (size_t j = 0; j < bench->column_count; j++) {
            if (isfinite(row->values[j]) || !bench->columns[j].is_optional) {
                flw_json_general(out, bench->columns[j].key, 15, row->values[j]);
            }
        }
        flw_json_end(out, '}');
    }
    flw_json_end(out, ']');
}

static void print_json(const struct flw_bench *bench, const char *cpu)
{
    const struct flw_bench_options *options = bench->options;
    struct flw_json_writer writer = {.file = stdout}, *out = &writer;
    flw_json_begin(out, NULL, '{');
    flw_json_text(out, "bench", options->shape);
    flw_json_text(out, "policy", options->policy->name);
    flw_json_text(out, "device", bench->device_name);
    flw_json_bool(out, "simulated", bench->is_simulated);
    flw_json_text(out, "host_cpu", cpu);
    flw_json_number(out, "host_cpus", flw_machine_cpu_count());
    flw_json_text(out, "compiler", flw_machine_compiler());
    if (bench->print_case == NULL) {
        flw_json_text(out, "size", options->size_name);
        FLW_JSON_NUMBERS(out, {"count", options->count}, {"warm", options->warm_count},
                         {"live", options->live_count}, {"streams", options->stream_count},
                         {"threads", options->thread_count}, {"seed", options->seed});
        flw_json_bool(out, "sized", options->is_sized);
    }
    flw_json_number(out, "failures", bench->failure_count);
    flw_json_begin(out, "results", '{');
    for (size_t i = 0; i < bench->value_count; i++) {
        flw_json_general(out, bench->values[i].key, 10, bench->values[i].value);
    }
    flw_json_end(out, '}');
    if (bench->rows != NULL) {
        print_rows(bench, out);
    }
    puts("}");
}

static void print_table(const struct flw_bench *bench)
{
    bool has_names = bench->print_case != NULL; /* a case has a name and a note */
    struct flw_table table = {.row_count = 0};
    FILE *out = flw_terminal_open(false);
    fprintf(out, "%s\n", bench->note);
    for (size_t i = 0; i < bench->row_count; i++) {
        const struct flw_bench_row *row = &bench->rows[i];
        flw_table_text text;
        flw_table_row(&table, NULL);
        if (has_names) {
            flw_table_name(&table, "", row->name);
        }
        for (size_t j = 0; j < bench->column_count; j++) {
            double value = row->values[j] / bench->columns[j].unit;
            snprintf(text, sizeof text,
                     !isfinite(value)      ? "-"
                     : fabs(value) >= 1000 ? "%.0f"
                                           : "%.4g",
                     value);
            (has_names || j != 0 ? flw_table_cell : flw_table_name)(&table, bench->columns[j].head,
                                                                    text);
        }
        if (has_names) {
            snprintf(text, sizeof text, "%s%.200s", row->is_failed ? "FAILED: " : "", row->note);
            flw_table_cell(&table, "", text);
        }
    }
    flw_table_print(&table, out);
    flw_terminal_close(out);
}

void flw_bench_print(const struct flw_bench *bench)
{
    const struct flw_bench_options *options = bench->options;
    char cpu[128];
    flw_machine_cpu_name(cpu, sizeof cpu);
    if (options->is_json) {
        print_json(bench, cpu);
        return;
    }
    if (bench->print_case == NULL) {
        printf("bench %s, policy %s, size %s, count %llu\n", options->shape, options->policy->name,
               options->size_name, (unsigned long long)options->count);
    }
    printf("on %s; host: %s, %zu CPUs, %s\n", bench->device_name, cpu, flw_machine_cpu_count(),
           flw_machine_compiler());
    if (bench->rows != NULL) {
        print_table(bench);
    }
    for (size_t i = 0; i < bench->value_count; i++) {
        double value = bench->values[i].value;
        bool is_whole = fabs(value) >= 1e6 || value == floor(value);
        printf(!isfinite(value) ? "  %-28s -\n"
               : is_whole       ? "  %-28s %.0f\n"
                                : "  %-28s %.2f\n",
               bench->values[i].key, value);
    }
    if (bench->failure_count != 0) {
        printf("  %-28s %llu\n", "FAILED CALLS", (unsigned long long)bench->failure_count);
    }
}
