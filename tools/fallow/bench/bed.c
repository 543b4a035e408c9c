/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include "base/bits.h"

#include <stdio.h>
#include <string.h>

/* A bench measures the host, and the pool must find its fences complete: nothing is given to the
 * device but the host function that holds a stream back in `deferred`, and a sweep's work: the sweep's
 * clock advances by one per pair. */
static flw_sim_config make_world(const struct flw_bench_options *options)
{
    return (flw_sim_config){.struct_size = sizeof(flw_sim_config),
                            .seed = 1,
                            .schedule = FLW_SIM_CLOCK,
                            .lag_ns = flw_max(options->lag_pairs, 1),
                            .mild = FLW_SIM_MILD_GARBAGE};
}

static bool open_device(struct flw_bench_bed *bed, const struct flw_bench_options *options,
                        char *message)
{
    struct flw_bench_device *device = &bed->device;
    flw_sim_config world = make_world(options);
    bool is_open = flw_bench_device_open(device, options->device,
                                         options->world != NULL ? options->world : &world, message);
    bed->is_absent = !is_open;
    bed->driver = device->has_driver ? &device->driver : NULL;
    snprintf(bed->device_name, sizeof bed->device_name, "%s%s",
             device->is_simulated && strstr(device->name, "simulated") == NULL
                 ? "simulated device, "
                 : "",
             device->name);
    return is_open;
}

static bool make_streams(struct flw_bench_bed *bed, size_t count, char *message)
{
    bed->streams = flw_host_lines(count, sizeof *bed->streams);
    for (size_t i = 0; i < count; i++) {
        CUstream stream = NULL;
        if (bed->driver == NULL) { /* nothing looks at it */
            stream = (CUstream)(void *)&bed->streams[i];
        } else if (!FLW_BENCH_CALL(&bed->device, message, cuStreamCreate, &stream,
                                   CU_STREAM_NON_BLOCKING)) {
            return false;
        }
        bed->streams[bed->stream_count++] = stream;
    }
    return true;
}

bool flw_bench_bed_open(struct flw_bench_bed *bed, const struct flw_bench_options *options,
                        char *message)
{
    *bed = (struct flw_bench_bed){.policy = options->policy};
    message[0] = '\0';
    snprintf(bed->device_name, sizeof bed->device_name, "no device");
    size_t streams = options->stream_count > options->thread_count ? options->stream_count
                                                                   : options->thread_count;
    if ((options->policy->needs_device && !open_device(bed, options, message)) ||
        !make_streams(bed, streams, message)) {
        goto fail;
    }
    bed->pool = options->policy->create(options, bed, message);
    if (bed->pool != NULL) {
        return true;
    }
fail:
    flw_bench_bed_close(bed);
    return false;
}

void flw_bench_bed_close(struct flw_bench_bed *bed)
{
    if (bed->pool != NULL) {
        bed->policy->destroy(bed->pool);
    }
    for (size_t i = 0; i < bed->stream_count && bed->driver != NULL; i++) {
        bed->driver->cuStreamDestroy_v2(bed->streams[i]);
    }
    flw_host_free(bed->streams);
    flw_bench_device_close(&bed->device);
    *bed = (struct flw_bench_bed){.policy = bed->policy, .is_absent = bed->is_absent};
}
