/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the questions about order: coverage and cost of a context event, calls forbidden during a
 * capture, whether a free of the driver waits, and how much work a stream accepts before a call
 * blocks. */
#include "first_run.h"

#include <pthread.h>
#include <stdio.h>

#define SPIN_MS    100
#define MOST       512
#define PER_THREAD ((CUstream)(uintptr_t)2)
#define NO_TIMING  2
#define ROUNDS     200

static double now_ms(const struct bed *bed)
{
    return (double)bed_now_ns(bed) / 1e6;
}

/* Check that an event recorded after work stays incomplete until the work is done. */
static void covers(struct bed *bed, const char *number, const char *what)
{
    char text[128];
    CUevent event;
    MUST(cuEventCreate(&event, NO_TIMING));
    CUresult recorded = bed->cu->cuCtxRecordEvent(bed->context, event);
    CUresult early = bed->cu->cuEventQuery(event);
    MUST(cuCtxSynchronize());
    CUresult late = bed->cu->cuEventQuery(event);
    snprintf(text, sizeof text, "an event of the context covers %s", what);
    rely(bed, number,
         recorded == CUDA_SUCCESS && early == CUDA_ERROR_NOT_READY && late == CUDA_SUCCESS, text);
    MUST(cuEventDestroy_v2(event));
}

static void *give_elsewhere(void *context)
{
    struct bed *bed = context;
    MUST(cuCtxSetCurrent(bed->context));
    bed_busy(bed, PER_THREAD, SPIN_MS);
    return NULL;
}

static void launch_graph(struct bed *bed, CUstream stream)
{
    CUgraph graph;
    CUgraphExec executable;
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    bed_busy(bed, stream, SPIN_MS);
    MUST(cuStreamEndCapture(stream, &graph));
    MUST(cuGraphInstantiateWithFlags(&executable, graph, 0));
    MUST(cuGraphLaunch(executable, stream));
    MUST(cuGraphDestroy(graph));
}

/* Check whether a context event delays later work on another stream. */
static void check_serialises(struct bed *bed, CUstream busy, CUstream idle)
{
    CUevent all, own;
    MUST(cuEventCreate(&all, NO_TIMING));
    MUST(cuEventCreate(&own, NO_TIMING));
    bed_busy(bed, busy, SPIN_MS);
    MUST(cuCtxRecordEvent(bed->context, all));
    bed_busy(bed, idle, 0);
    MUST(cuEventRecord(own, idle));
    if (bed->is_sim) {
        answer("4f", "not found out on a simulated device");
    } else {
        MUST(cuEventSynchronize(own));
        bool is_free = bed->cu->cuEventQuery(all) == CUDA_ERROR_NOT_READY;
        answer("4f", "work behind the record on an idle stream %s",
               is_free ? "does not wait for the busy one" : "WAITS for the busy one");
    }
    MUST(cuCtxSynchronize());
    MUST(cuEventDestroy_v2(all));
    MUST(cuEventDestroy_v2(own));
}

static void check_cost(struct bed *bed, CUstream *streams, unsigned count, bool is_busy)
{
    CUevent event;
    char what[64];
    MUST(cuEventCreate(&event, NO_TIMING));
    for (unsigned i = 0; is_busy && i < count; i++) {
        bed_busy(bed, streams[i], SPIN_MS);
    }
    double begun = now_ms(bed);
    for (unsigned i = 0; i < ROUNDS; i++) {
        MUST(cuCtxRecordEvent(bed->context, event));
    }
    double recorded = now_ms(bed);
    for (unsigned i = 0; i < ROUNDS; i++) {
        CUresult result = bed->cu->cuEventQuery(event);
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) {
            bed_must(bed, result, "cuEventQuery");
        }
    }
    double queried = now_ms(bed);
    snprintf(what, sizeof what, "%u streams, %s", count, is_busy ? "busy" : "idle");
    if (bed->is_sim) {
        answer("4g", "%s: not timed on a simulated device", what);
    } else {
        answer("4g", "%s: a record %.2f us, a query %.2f us", what,
               (recorded - begun) * 1e3 / ROUNDS, (queried - recorded) * 1e3 / ROUNDS);
    }
    MUST(cuCtxSynchronize());
    MUST(cuEventDestroy_v2(event));
}

/* 5. An event of the context while something is captured. */
static void check_capture(struct bed *bed, CUstream stream)
{
    CUevent event;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    MUST(cuEventCreate(&event, NO_TIMING));
    MUST(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    bed_busy(bed, stream, 1);
    CUresult result = bed->cu->cuCtxRecordEvent(bed->context, event);
    MUST(cuStreamIsCapturing(stream, &status));
    CUresult ended = bed->cu->cuStreamEndCapture(stream, &graph);
    answer("5", "cuCtxRecordEvent during a capture: %s; the capture is %s, its end %s",
           bed_name(bed, result),
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? "alive" : "invalidated",
           bed_name(bed, ended));
    if (graph != NULL) {
        MUST(cuGraphDestroy(graph));
    }
    MUST(cuEventDestroy_v2(event));
}

void check_epochs(struct bed *bed)
{
    static CUstream streams[MOST];
    pthread_t thread;
    if (bed->cu->cuCtxRecordEvent == NULL) {
        answer("4", "this driver has no cuCtxRecordEvent: epochs are closed by synchronising");
        return;
    }
    for (unsigned i = 0; i < MOST; i++) {
        MUST(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    bed_busy(bed, streams[0], SPIN_MS);
    covers(bed, "4a", "a non-blocking stream");
    bed_must(bed, pthread_create(&thread, NULL, give_elsewhere, bed) == 0 ? CUDA_SUCCESS : 1,
             "a thread");
    pthread_join(thread, NULL);
    covers(bed, "4b", "the per-thread stream of another thread");
    bed_busy(bed, NULL, SPIN_MS);
    covers(bed, "4c", "the legacy stream");
    launch_graph(bed, streams[1]);
    covers(bed, "4d", "a graph in flight");
    bed_busy(bed, streams[MOST - 1], SPIN_MS);
    covers(bed, "4e", "one busy stream among 512");
    check_serialises(bed, streams[0], streams[1]);
    static const unsigned counts[] = {1, 8, 64, MOST};
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_cost(bed, streams, counts[i], false);
        check_cost(bed, streams, counts[i], true);
    }
    check_capture(bed, streams[0]);
    for (unsigned i = 0; i < MOST; i++) {
        MUST(cuStreamDestroy_v2(streams[i]));
    }
}

/* ---- 6. calls forbidden during a capture of this or another thread */

struct trial {
    struct bed *bed;
    CUevent event;
    size_t granularity;
    CUstreamCaptureMode mode; /* of the calling thread meanwhile */
    CUresult alloc, create, map, query;
};

static CUresult try_create_and_map(struct trial *trial)
{
    struct bed *bed = trial->bed;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    trial->create = bed->cu->cuMemCreate(&handle, trial->granularity, &properties, 0);
    if (trial->create != CUDA_SUCCESS) {
        return trial->create;
    }
    CUresult result = bed->cu->cuMemAddressReserve(&address, trial->granularity, 0, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = bed->cu->cuMemMap(address, trial->granularity, 0, handle, 0);
        if (result == CUDA_SUCCESS) {
            (void)bed->cu->cuMemUnmap(address, trial->granularity);
        }
        (void)bed->cu->cuMemAddressFree(address, trial->granularity);
    }
    (void)bed->cu->cuMemRelease(handle);
    return result;
}

static void *try_calls(void *context)
{
    struct trial *trial = context;
    struct bed *bed = trial->bed;
    CUdeviceptr pointer = 0;
    CUstreamCaptureMode mode = trial->mode;
    MUST(cuCtxSetCurrent(bed->context));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    trial->query = bed->cu->cuEventQuery(trial->event);
    trial->map = trial->create = CUDA_ERROR_NOT_SUPPORTED;
    if (trial->granularity != 0) {
        trial->map = try_create_and_map(trial);
    }
    trial->alloc = bed->cu->cuMemAlloc_v2(&pointer, MIB);
    if (trial->alloc == CUDA_SUCCESS) {
        (void)bed->cu->cuMemFree_v2(pointer);
    }
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    return NULL;
}

static void run_trial(struct bed *bed, CUstreamCaptureMode capture, CUstreamCaptureMode mode,
                      bool is_elsewhere, size_t granularity)
{
    static const char *const names[] = {"GLOBAL", "THREAD_LOCAL", "RELAXED"};
    struct trial trial = {.bed = bed, .mode = mode, .granularity = granularity};
    CUstream stream;
    CUgraph graph = NULL;
    pthread_t thread;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&trial.event, NO_TIMING));
    MUST(cuEventRecord(trial.event, NULL));
    MUST(cuCtxSynchronize());
    MUST(cuStreamBeginCapture_v2(stream, capture));
    if (is_elsewhere) {
        bed_must(bed, pthread_create(&thread, NULL, try_calls, &trial) == 0 ? CUDA_SUCCESS : 1,
                 "a thread");
        pthread_join(thread, NULL);
    } else {
        try_calls(&trial);
    }
    MUST(cuStreamIsCapturing(stream, &status));
    (void)bed->cu->cuStreamEndCapture(stream, &graph);
    answer(
        "6",
        "capture %s, %s thread %s: cuMemAlloc %d, cuMemCreate %d, cuMemMap %d, cuEventQuery %d; the "
        "capture is %s",
        names[capture], is_elsewhere ? "another" : "its", names[mode], (int)trial.alloc,
        (int)trial.create, (int)trial.map, (int)trial.query,
        status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? "alive" : "invalidated");
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        rely(bed, "6", status == CU_STREAM_CAPTURE_STATUS_ACTIVE && trial.alloc == CUDA_SUCCESS,
             "a relaxed thread may allocate beside a capture");
    }
    if (graph != NULL) {
        MUST(cuGraphDestroy(graph));
    }
    MUST(cuEventDestroy_v2(trial.event));
    MUST(cuStreamDestroy_v2(stream));
}

void check_modes(struct bed *bed)
{
    size_t granularity = 0;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    if (bed->cu->cuMemGetAllocationGranularity != NULL) {
        (void)bed->cu->cuMemGetAllocationGranularity(&granularity, &properties,
                                                     CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    }
    for (int capture = 0; capture < 3; capture++) {
        for (int mode = 0; mode < 3; mode++) {
            run_trial(bed, (CUstreamCaptureMode)capture, (CUstreamCaptureMode)mode, false,
                      granularity);
            run_trial(bed, (CUstreamCaptureMode)capture, (CUstreamCaptureMode)mode, true,
                      granularity);
        }
    }
}

/* ---- 7. does a native free wait? */

static void time_free(struct bed *bed, CUdeviceptr pointer, const char *what)
{
    double begun = now_ms(bed);
    CUresult result = bed->cu->cuMemFree_v2(pointer);
    double ms = now_ms(bed) - begun;
    if (bed->is_sim) {
        answer("7", "%s while the device is busy: %s, not timed on a simulated device", what,
               bed_name(bed, result));
    } else {
        answer("7", "%s while the device is busy: %s, %.1f ms: it %s", what, bed_name(bed, result),
               ms, ms > SPIN_MS / 2.0 ? "waits" : "does not wait");
    }
    MUST(cuCtxSynchronize());
}

void check_free(struct bed *bed)
{
    static const size_t sizes[] = {4096, MIB, 2 * MIB, 256 * MIB};
    CUstream stream;
    CUcontext other, popped;
    CUdeviceptr pointer;
    CUdevice device;
    char what[64];
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        MUST(cuMemAlloc_v2(&pointer, sizes[i]));
        bed_busy(bed, stream, SPIN_MS);
        snprintf(what, sizeof what, "cuMemFree of %zu KiB", sizes[i] >> 10);
        time_free(bed, pointer, what);
    }
    if (bed->cu->cuCtxCreate_v2 == NULL) {
        answer("7", "cuMemFree of another context's pointer: not asked, the driver has no "
                    "cuCtxCreate_v2");
    } else {
        MUST(cuCtxGetDevice(&device));
        MUST(cuCtxCreate_v2(&other, 0, device));
        MUST(cuMemAlloc_v2(&pointer, MIB));
        MUST(cuCtxPopCurrent_v2(&popped));
        bed_busy(bed, stream, SPIN_MS);
        time_free(bed, pointer, "cuMemFree of another context's pointer");
        MUST(cuCtxDestroy_v2(other));
    }
    MUST(cuStreamDestroy_v2(stream));
}

/* ---- 13. how much does a stream take before a call waits? */

#define MOST_RECORDS 8192 /* a few microseconds each: submitted before the work ends */

void check_queue(struct bed *bed)
{
    CUstream stream;
    CUevent end, event;
    unsigned count = 1;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&end, NO_TIMING));
    MUST(cuEventCreate(&event, NO_TIMING));
    bed_busy(bed, stream, SPIN_MS);
    MUST(cuEventRecord(end, stream));
    while (count < MOST_RECORDS && bed->cu->cuEventQuery(end) == CUDA_ERROR_NOT_READY) {
        MUST(cuEventRecord(event, stream));
        count++;
    }
    answer("13", "%u records were given behind running work %s", count,
           count < MOST_RECORDS ? "until one waited for the work" : "and none waited");
    MUST(cuStreamSynchronize(stream));
    MUST(cuEventDestroy_v2(end));
    MUST(cuEventDestroy_v2(event));
    MUST(cuStreamDestroy_v2(stream));
}
