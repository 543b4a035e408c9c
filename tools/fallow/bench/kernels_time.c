/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how long a launch takes on a GPU: many of them captured in one graph, events around its replay,
 * the median of several; and a copy of as many bytes in the same way.
 */
#include "bench/kernels.h"

#include "bench/bench.h"

#include <string.h>

enum {
    WARM_REPLAYS = 3,
    REPLAYS = 9
};

typedef CUresult (*elapsed_function)(float *milliseconds, CUevent begin, CUevent end);

/* Something that can be given to the bed's stream again and again. */
struct given {
    struct flw_kernel_call *call;
    CUdeviceptr to, from; /* a copy's; 0: the call is given */
    size_t bytes;
};

static bool complain(struct flw_kernel_call *call, CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS) {
        snprintf(call->message, FLW_BENCH_MESSAGE_BYTES, "%s failed with %s", what,
                 flw_driver_error_name(&call->bed->device.driver, result));
    }
    return result == CUDA_SUCCESS;
}

static bool give(const struct given *given)
{
    struct flw_kernel_call *call = given->call;
    struct flw_kernel_bed *bed = call->bed;
    if (given->to != 0) {
        return complain(call,
                        bed->device.driver.cuMemcpyDtoDAsync_v2(given->to, given->from,
                                                                given->bytes, bed->stream),
                        "a copy");
    }
    fallow_status status = call->of->launch(bed->kernels, call->params, bed->stream);
    if (status != FALLOW_OK) {
        fallow_kernels_last_error(bed->kernels, call->message, FLW_BENCH_MESSAGE_BYTES);
    }
    return status == FALLOW_OK;
}

static bool capture(const struct given *given, unsigned count, CUgraph *out_graph)
{
    struct flw_kernel_call *call = given->call;
    const struct flw_driver *driver = &call->bed->device.driver;
    CUstream stream = call->bed->stream;
    if (!complain(call,
                  driver->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                  "cuStreamBeginCapture")) {
        return false;
    }
    bool is_given = true;
    for (unsigned i = 0; i < count && is_given; i++) {
        is_given = give(given);
    }
    CUresult ended = driver->cuStreamEndCapture(stream, out_graph);
    return is_given && complain(call, ended, "cuStreamEndCapture");
}

/* Replay and read the events. On the simulated device once, and no time is read. */
static bool replay(struct flw_kernel_call *call, CUgraphExec graph, unsigned count, double *out_us)
{
    const struct flw_driver *driver = &call->bed->device.driver;
    CUstream stream = call->bed->stream;
    CUevent begin = NULL, end = NULL;
    elapsed_function elapsed = NULL;
    double times[REPLAYS] = {0};
    bool is_done = false, is_simulated = call->bed->device.is_simulated;
    void *entry = flw_driver_entry(driver, "cuEventElapsedTime");
    memcpy(&elapsed, &entry, sizeof entry);
    if (!is_simulated && elapsed == NULL) {
        snprintf(call->message, FLW_BENCH_MESSAGE_BYTES, "the driver lacks cuEventElapsedTime");
        return false;
    }
    if (!complain(call, driver->cuEventCreate(&begin, 0), "cuEventCreate") ||
        !complain(call, driver->cuEventCreate(&end, 0), "cuEventCreate")) {
        goto out;
    }
    int replays = is_simulated ? 1 : REPLAYS + WARM_REPLAYS;
    for (int i = 0; i < replays; i++) {
        float milliseconds = 0;
        if (!complain(call, driver->cuEventRecord(begin, stream), "cuEventRecord") ||
            !complain(call, driver->cuGraphLaunch(graph, stream), "cuGraphLaunch") ||
            !complain(call, driver->cuEventRecord(end, stream), "cuEventRecord") ||
            !complain(call, driver->cuEventSynchronize(end), "cuEventSynchronize")) {
            goto out;
        }
        if (!is_simulated &&
            !complain(call, elapsed(&milliseconds, begin, end), "cuEventElapsedTime")) {
            goto out;
        }
        times[i % REPLAYS] = (double)milliseconds * 1e3 / count; /* the warm ones are replaced */
    }
    *out_us = is_simulated ? 0 : flw_median(times, REPLAYS);
    is_done = true;
out:
    if (begin != NULL) {
        driver->cuEventDestroy_v2(begin);
    }
    if (end != NULL) {
        driver->cuEventDestroy_v2(end);
    }
    return is_done;
}

static bool time_graph(const struct given *given, unsigned count, double *out_us)
{
    struct flw_kernel_call *call = given->call;
    const struct flw_driver *driver = &call->bed->device.driver;
    CUgraph graph = NULL;
    CUgraphExec executable = NULL;
    if (driver->cuGraphLaunch == NULL || driver->cuGraphInstantiateWithFlags == NULL ||
        driver->cuGraphExecDestroy == NULL || driver->cuGraphDestroy == NULL) {
        snprintf(call->message, FLW_BENCH_MESSAGE_BYTES, "the driver lacks graphs");
        return false;
    }
    bool is_done = capture(given, count, &graph) &&
                   complain(call, driver->cuGraphInstantiateWithFlags(&executable, graph, 0),
                            "cuGraphInstantiateWithFlags") &&
                   replay(call, executable, count, out_us);
    if (executable != NULL) {
        driver->cuGraphExecDestroy(executable);
    }
    if (graph != NULL) {
        driver->cuGraphDestroy(graph);
    }
    return is_done;
}

bool flw_kernel_time(struct flw_kernel_call *call, const fallow_workspace_need *need,
                     struct flw_kernel_time *out_time)
{
    uint64_t moved = need->read_bytes + need->write_bytes;
    bool is_simulated = call->bed->device.is_simulated;
    /* Enough that what a graph costs to start does not show. */
    unsigned count = is_simulated ? 2 : moved < (uint64_t)16 << 20 ? 200 : 10;
    struct given given = {.call = call};
    *out_time = (struct flw_kernel_time){0};
    if (!time_graph(&given, count, &out_time->us)) {
        return false;
    }
    if (call->of->goal_us > 0) {
        return true;
    }
    given.bytes = (size_t)(moved / 2 + 15) / 16 * 16;
    given.from =
        (CUdeviceptr)(uintptr_t)flw_kernel_filled(call, (int64_t)given.bytes, FLW_KERNEL_ONES_BF16);
    given.to = (CUdeviceptr)(uintptr_t)flw_kernel_output(call, (int64_t)given.bytes);
    out_time->has_copy = !is_simulated;
    return !call->is_broken && time_graph(&given, count, &out_time->copy_us);
}
