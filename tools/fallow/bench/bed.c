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

/* ---- device */

void flw_bench_bed_find(const struct flw_bench_bed *bed, const char *name, void *out_function)
{
    void *address = dlsym(bed->driver->object, name);
    memcpy(out_function, &address, sizeof address);
}

bool flw_bench_bed_check(const struct flw_bench_bed *bed, CUresult result, const char *call,
                         char *message)
{
    if (result != CUDA_SUCCESS) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "%s failed with %s; `fallow doctor` says more",
                 call, flw_driver_error_name(bed->driver, result));
    }
    return result == CUDA_SUCCESS;
}

static bool open_device(struct flw_bench_bed *bed, int ordinal, const flw_sim_config *world,
                        char *message)
{
    flw_sim_reset_function reset = NULL;
    char name[96] = "";
    bed->is_sim = ordinal < 0;
    if (flw_driver_open(&bed->opened, bed->is_sim ? "sim" : NULL, message) != FALLOW_OK) {
        return false;
    }
    bed->driver = &bed->opened;
    flw_bench_bed_find(bed, "flw_sim_reset", &reset);
    bed->is_simulated = reset != NULL;
    if (bed->is_sim && reset == NULL) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES,
                 "the simulated driver lacks flw_sim_reset: rebuild libfallow-simcuda.so");
        return false;
    }
    if (bed->is_sim) {
        reset(world);
    }
    if (!FLW_BENCH_CALL(bed, message, cuInit, 0) || /* needed again after a new world */
        !FLW_BENCH_CALL(bed, message, cuDeviceGet, &bed->device, bed->is_sim ? 0 : ordinal) ||
        !FLW_BENCH_CALL(bed, message, cuDeviceGetName, name, (int)sizeof name, bed->device) ||
        !FLW_BENCH_CALL(bed, message, cuDevicePrimaryCtxRetain, &bed->context, bed->device) ||
        !FLW_BENCH_CALL(bed, message, cuCtxSetCurrent, bed->context)) {
        return false;
    }
    bool is_named = !bed->is_simulated || strstr(name, "simulated") != NULL;
    snprintf(bed->device_name, sizeof bed->device_name, "%s%s",
             is_named ? "" : "simulated device, ", name);
    return true;
}

/* ---- policies */

/* The last error that the library logged; a pool may log long after creation. */
static char last_line[FLW_BENCH_MESSAGE_BYTES];

static void keep_line(void *context, fallow_log_level level, const char *line)
{
    (void)context;
    if (level == FALLOW_LOG_ERROR) {
        snprintf(last_line, sizeof last_line, "%s", line);
    }
}

static bool explain(fallow_status status, const char *call, char *message)
{
    if (status != FALLOW_OK) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "%s%.270s", call,
                 last_line[0] != '\0' ? last_line : fallow_status_message(status));
    }
    return status == FALLOW_OK;
}

bool flw_bench_bed_renew_pool(struct flw_bench_bed *bed, const struct flw_bench_options *options,
                              char *message)
{
    fallow_pool *pool = NULL;
    fallow_pool_config config;
    fallow_record_config recording;
    if (!bed->policy->has_pool) {
        return true;
    }
    fallow_pool_destroy(bed->pool);
    fallow_pool_config_init(&config);
    fallow_record_config_init(&recording);
    config.driver = bed->is_sim ? "sim" : NULL;
    config.device = bed->is_sim ? 0 : options->device;
    config.log = keep_line;
    bool is_made = explain(fallow_pool_create(&config, &pool), "fallow_pool_create: ", message);
    bed->pool = pool;
    if (is_made && options->record != NULL) {
        recording.path = strcmp(options->record, "ring") == 0 ? NULL : options->record;
        is_made = explain(fallow_record_start(pool, &recording, &bed->recorder),
                          "fallow_record_start: ", message);
    }
    return is_made;
}

fallow_stats flw_bench_bed_usage(const struct flw_bench_bed *bed)
{
    fallow_stats usage;
    fallow_stats_init(&usage);
    if (bed->policy->get_usage != NULL) {
        bed->policy->get_usage(bed->pool, &usage);
    } else if (!bed->policy->has_pool || fallow_pool_get_stats(bed->pool, &usage) != FALLOW_OK) {
        memset(&usage, 0xff, sizeof usage);
    }
    return usage;
}

bool flw_bench_bed_stop_recording(struct flw_bench_bed *bed, char *message)
{
    fallow_status status = fallow_record_stop(bed->recorder);
    bool is_whole = status == FALLOW_OK || status == FALLOW_RECORDS_LOST; /* lost: expected here */
    (void)explain(status, is_whole ? "" : "the recording is not whole: ", message);
    return is_whole;
}

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

/* ---- bed */

static bool open_streams(struct flw_bench_bed *bed, size_t count, char *message)
{
    bed->streams = flw_host_lines(count, sizeof *bed->streams);
    for (size_t i = 0; i < count; i++) {
        CUstream stream = (CUstream)(void *)&bed->streams[i]; /* without a device, only a name */
        if (bed->driver != NULL &&
            !FLW_BENCH_CALL(bed, message, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING)) {
            return false;
        }
        bed->streams[bed->stream_count++] = stream;
    }
    return true;
}

bool flw_bench_bed_open(struct flw_bench_bed *bed, const struct flw_bench_options *options,
                        char *message)
{
    /* A bench measures the host, and the pool must find its fences complete. So the device has no work, except the host
     * function that blocks a stream in `deferred`, and the work of a sweep, where the clock advances by one per
     * pair. */
    flw_sim_config world = {.struct_size = sizeof world,
                            .seed = 1,
                            .schedule = FLW_SIM_CLOCK,
                            .lag_ns = flw_max(options->lag_pairs, 1),
                            .mild = FLW_SIM_MILD_GARBAGE};
    *bed = (struct flw_bench_bed){.policy = options->policy, .device_name = "no device"};
    bed->pool = options->policy->has_pool ? NULL : bed; /* the bed is allocated as every block */
    message[0] = '\0';
    bed->is_absent = options->policy->needs_device &&
                     !open_device(bed, options->device,
                                  options->world != NULL ? options->world : &world, message);
    if (bed->is_absent ||
        !open_streams(bed, flw_max(options->stream_count, options->thread_count), message) ||
        !flw_bench_bed_renew_pool(bed, options, message)) {
        flw_bench_bed_close(bed);
        return false;
    }
    return true;
}

void flw_bench_bed_close(struct flw_bench_bed *bed)
{
    if (bed->policy->has_pool) {
        fallow_pool_destroy(bed->pool);
    }
    for (size_t i = 0; i < bed->stream_count && bed->driver != NULL; i++) {
        bed->driver->cuStreamDestroy_v2(bed->streams[i]);
    }
    flw_host_free(bed->streams);
    if (bed->context != NULL) {
        bed->driver->cuCtxSetCurrent(NULL);
        bed->driver->cuDevicePrimaryCtxRelease_v2(bed->device);
    }
    if (bed->driver != NULL) {
        flw_driver_close(bed->driver);
    }
    *bed = (struct flw_bench_bed){.policy = bed->policy, .is_absent = bed->is_absent};
}
