/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the adapters between the loops and what is measured. Each is a jump through the program's
 * linkage table, which is how a user's call reaches a shared library.
 *
 * `loop` answers from inside the program: the loop, the indirect calls, nothing else.
 * `null` goes on to libfallow-null.so: what reaching a shared library twice costs on top.
 */
#include "bench/bench.h"

#include "bench/null.h"
#include "fallow/trace.h"

#include <stdio.h>
#include <string.h>

static void get_no_usage(void *pool, fallow_stats *out)
{
    (void)pool;
    memset(out, 0xff, sizeof *out);
}

static void *create_nothing(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                            char *message)
{
    (void)options;
    message[0] = '\0';
    return bed; /* something that is not NULL; allocated as every block */
}

static void destroy_nothing(void *pool)
{
    (void)pool;
}

/* ---- loop ---- */

static fallow_status loop_alloc(void *pool, size_t size_bytes, fallow_stream stream, void **out_ptr)
{
    (void)pool;
    (void)size_bytes;
    (void)stream;
    (void)out_ptr;
    return FALLOW_OK;
}

static fallow_status loop_free(void *pool, void *ptr, fallow_stream stream)
{
    (void)pool;
    (void)ptr;
    (void)stream;
    return FALLOW_OK;
}

static fallow_status loop_free_sized(void *pool, void *ptr, size_t size_bytes, fallow_stream stream)
{
    (void)size_bytes;
    return loop_free(pool, ptr, stream);
}

static fallow_status loop_record_use(void *pool, void *ptr, fallow_stream stream)
{
    return loop_free(pool, ptr, stream);
}

static fallow_status no_poll(void *pool)
{
    (void)pool;
    return FALLOW_OK;
}

static const struct flw_bench_policy loop_policy = {
    .name = "loop",
    .alloc = loop_alloc,
    .free = loop_free,
    .free_sized = loop_free_sized,
    .record_use = loop_record_use,
    .poll = no_poll,
    .create = create_nothing,
    .destroy = destroy_nothing,
    .get_usage = get_no_usage,
};

/* ---- null ---- */

static fallow_status null_alloc(void *pool, size_t size_bytes, fallow_stream stream, void **out_ptr)
{
    return fallow_null_alloc(pool, size_bytes, stream, out_ptr);
}

static fallow_status null_free(void *pool, void *ptr, fallow_stream stream)
{
    return fallow_null_free(pool, ptr, stream);
}

static fallow_status null_free_sized(void *pool, void *ptr, size_t size_bytes, fallow_stream stream)
{
    return fallow_null_free_sized(pool, ptr, size_bytes, stream);
}

static fallow_status null_record_use(void *pool, void *ptr, fallow_stream stream)
{
    return fallow_null_record_use(pool, ptr, stream);
}

static fallow_status null_poll(void *pool)
{
    return fallow_null_poll(pool);
}

static const struct flw_bench_policy null_policy = {
    .name = "null",
    .alloc = null_alloc,
    .free = null_free,
    .free_sized = null_free_sized,
    .record_use = null_record_use,
    .poll = null_poll,
    .create = create_nothing,
    .destroy = destroy_nothing,
    .get_usage = get_no_usage,
};

/* ---- fallow ---- */

static fallow_status pool_alloc(void *pool, size_t size_bytes, fallow_stream stream, void **out_ptr)
{
    return fallow_alloc(pool, size_bytes, stream, out_ptr);
}

static fallow_status pool_free(void *pool, void *ptr, fallow_stream stream)
{
    return fallow_free(pool, ptr, stream);
}

static fallow_status pool_free_sized(void *pool, void *ptr, size_t size_bytes, fallow_stream stream)
{
    return fallow_free_sized(pool, ptr, size_bytes, stream);
}

static fallow_status pool_record_use(void *pool, void *ptr, fallow_stream stream)
{
    return fallow_record_use(pool, ptr, stream);
}

static fallow_status pool_poll(void *pool)
{
    return fallow_pool_poll(pool);
}

/* The last line that the library logged; a pool may log long after it was made. */
static char last_line[FLW_BENCH_MESSAGE_BYTES];

static void keep_line(void *context, fallow_log_level level, const char *line)
{
    (void)context;
    if (level == FALLOW_LOG_ERROR) {
        snprintf(last_line, sizeof last_line, "%s", line);
    }
}

static fallow_recorder *recorder; /* the end of the pool ends it, too */

static fallow_status start_recording(fallow_pool *pool, const char *path)
{
    fallow_record_config config;
    fallow_record_config_init(&config);
    config.path = strcmp(path, "ring") == 0 ? NULL : path;
    return fallow_record_start(pool, &config, &recorder);
}

static bool pool_stop_recording(char *message)
{
    fallow_status status = fallow_record_stop(recorder);
    const char *why = last_line[0] != '\0' ? last_line : fallow_status_message(status);
    if (status == FALLOW_RECORDS_LOST) { /* what the full rate of a bench is expected to do */
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "%.300s", why);
    } else if (status != FALLOW_OK) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "the recording is not whole: %.270s", why);
    }
    return status == FALLOW_OK || status == FALLOW_RECORDS_LOST;
}

static void *pool_create(const struct flw_bench_options *options, struct flw_bench_bed *bed,
                         char *message)
{
    fallow_pool *pool = NULL;
    fallow_pool_config config;
    fallow_pool_config_init(&config);
    config.driver = bed->device.is_sim ? "sim" : NULL;
    config.device = bed->device.is_sim ? 0 : options->device;
    config.log = keep_line;
    fallow_status status = fallow_pool_create(&config, &pool);
    if (status != FALLOW_OK) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "fallow_pool_create: %.270s",
                 last_line[0] != '\0' ? last_line : fallow_status_message(status));
        return NULL;
    }
    status = options->record != NULL ? start_recording(pool, options->record) : FALLOW_OK;
    if (status != FALLOW_OK) {
        snprintf(message, FLW_BENCH_MESSAGE_BYTES, "fallow_record_start: %.270s",
                 last_line[0] != '\0' ? last_line : fallow_status_message(status));
        fallow_pool_destroy(pool);
        return NULL;
    }
    return pool;
}

static void pool_destroy(void *pool)
{
    fallow_pool_destroy(pool);
}

static void pool_get_usage(void *pool, fallow_stats *out)
{
    fallow_stats_init(out);
    if (fallow_pool_get_stats(pool, out) != FALLOW_OK) {
        get_no_usage(pool, out);
    }
}

static const struct flw_bench_policy fallow_policy = {
    .name = "fallow",
    .needs_device = true,
    .alloc = pool_alloc,
    .free = pool_free,
    .free_sized = pool_free_sized,
    .record_use = pool_record_use,
    .poll = pool_poll,
    .create = pool_create,
    .destroy = pool_destroy,
    .get_usage = pool_get_usage,
    .stop_recording = pool_stop_recording,
};

static const struct flw_bench_policy *const policies[] = {
    &fallow_policy,
    &null_policy,
    &loop_policy,
};

const struct flw_bench_policy *flw_bench_policy_find(const char *name)
{
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        if (strcmp(policies[i]->name, name) == 0) {
            return policies[i];
        }
    }
    return NULL;
}

const char *flw_bench_policy_names(void)
{
    static char names[64];
    names[0] = '\0';
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i == 0 ? "" : ", ", policies[i]->name);
    }
    return names;
}
