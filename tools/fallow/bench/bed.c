/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the bed of a bench: the device (a new world if simulated), the streams, and the pool, by one of the policies.
 *
 * The functions of a policy are adapters between a loop and the measured library. Each jumps through the program's
 * linkage table, as a user's call of a shared library does. `loop` returns at once, inside the program, and costs the
 * loop and the indirect calls. `null` calls libfallow-null.so, which adds the cost of reaching a shared library.
 */
#include "bench/bench.h"

#include "base/bits.h"

#include <dlfcn.h>
#include <stdarg.h>

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
           flw_bench_fail(bench, "%s failed with %s; `fallow doctor` says more", call,
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
FLW_BENCH_ALLOC(LOOP)
FLW_BENCH_OTHERS(LOOP)
FLW_BENCH_ALLOC(NULL_)
FLW_BENCH_OTHERS(NULL_)
FLW_BENCH_ALLOC(POOL)
FLW_BENCH_OTHERS(POOL)
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
    const struct flw_bench_policy *policy = bench->options->policy;
    fallow_stats usage;
    fallow_stats_init(&usage);
    if (policy->get_usage != NULL) {
        policy->get_usage(bench->pool, &usage);
    } else if (!policy->has_pool || fallow_pool_get_stats(bench->pool, &usage) != FALLOW_OK) {
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
    char name[96] = "";
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
        !FLW_BENCH_CALL(bench, cuDeviceGetName, name, (int)sizeof name, bench->device) ||
        !FLW_BENCH_CALL(bench, cuDevicePrimaryCtxRetain, &bench->context, bench->device) ||
        !FLW_BENCH_CALL(bench, cuCtxSetCurrent, bench->context)) {
        return false;
    }
    bool is_named = !bench->is_simulated || strstr(name, "simulated") != NULL;
    snprintf(bench->device_name, sizeof bench->device_name, "%s%s",
             is_named ? "" : "simulated device, ", name);
    return true;
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
    if (bench->context != NULL) {
        driver->cuCtxSetCurrent(NULL);
        driver->cuDevicePrimaryCtxRelease_v2(bench->device);
    }
    if (driver != NULL) {
        flw_driver_close(driver);
    }
}
