/* SPDX-License-Identifier: Apache-2.0 */
#include "support/beside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 4096

const char *flw_beside_name(enum flw_beside_place place)
{
    static const char *const names[FLW_BESIDE_PLACES] = {
        [FLW_BESIDE_STREAM] = "another stream",    [FLW_BESIDE_BLOCKING] = "a blocking stream",
        [FLW_BESIDE_KNOWN] = "a known stream",     [FLW_BESIDE_CONTEXT] = "another context",
        [FLW_BESIDE_DEVICE] = "on another device",
    };
    return names[place];
}

static void must(const struct flw_beside *beside, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "beside: %s: %s\n", call, flw_driver_error_name(&beside->sim->cu, result));
        abort();
    }
}
#define MUST(beside, call) must(beside, (beside)->sim->cu.call, #call)

/* The capturing thread's own objects. */
struct means {
    CUcontext context;
    CUdeviceptr memory;
};

static void begin(struct flw_beside *beside, struct means *means)
{
    bool is_abroad = beside->place == FLW_BESIDE_DEVICE;
    if (beside->place == FLW_BESIDE_CONTEXT) {
        MUST(beside, cuCtxCreate_v2(&means->context, 0, 0));
    } else {
        MUST(beside, cuDevicePrimaryCtxRetain(&means->context, is_abroad));
        MUST(beside, cuCtxSetCurrent(means->context));
    }
    MUST(beside, cuMemAlloc_v2(&means->memory, BYTES));
    if (beside->place != FLW_BESIDE_KNOWN) {
        unsigned flags = beside->place == FLW_BESIDE_BLOCKING ? 0 : CU_STREAM_NON_BLOCKING;
        MUST(beside, cuStreamCreate(&beside->stream, flags));
    }
    MUST(beside, cuStreamBeginCapture_v2(beside->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    MUST(beside, cuMemsetD8Async(means->memory, 1, BYTES, beside->stream));
}

static bool is_good(const struct flw_beside *beside)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return beside->sim->cu.cuStreamIsCapturing(beside->stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static bool end(struct flw_beside *beside, const struct means *means)
{
    const struct flw_driver *cu = &beside->sim->cu;
    CUgraph graph = NULL;
    bool takes = cu->cuMemsetD8Async(means->memory, 2, BYTES, beside->stream) == CUDA_SUCCESS;
    bool is_whole = cu->cuStreamEndCapture(beside->stream, &graph) == CUDA_SUCCESS && takes;
    if (graph != NULL) {
        MUST(beside, cuGraphDestroy(graph));
    }
    MUST(beside, cuMemFree_v2(means->memory));
    if (beside->place != FLW_BESIDE_KNOWN) {
        MUST(beside, cuStreamDestroy_v2(beside->stream));
    }
    if (beside->place == FLW_BESIDE_CONTEXT) {
        MUST(beside, cuCtxDestroy_v2(means->context));
    } else {
        MUST(beside, cuDevicePrimaryCtxRelease_v2(beside->place == FLW_BESIDE_DEVICE));
    }
    return is_whole && graph != NULL;
}

static void *capture(void *context)
{
    struct flw_beside *beside = context;
    struct means means = {0};
    begin(beside, &means);
    pthread_mutex_lock(&beside->mutex);
    beside->is_capturing = true;
    pthread_cond_broadcast(&beside->changed);
    while (beside->is_wanted) {
        if (beside->answered != beside->asked) {
            beside->is_whole = is_good(beside);
            beside->answered = beside->asked;
            pthread_cond_broadcast(&beside->changed);
        }
        pthread_cond_wait(&beside->changed, &beside->mutex);
    }
    pthread_mutex_unlock(&beside->mutex);
    beside->is_whole = end(beside, &means);
    return NULL;
}

void flw_beside_begin(struct flw_beside *beside, const struct flw_sim *sim,
                      enum flw_beside_place place, CUstream known)
{
    *beside = (struct flw_beside){.sim = sim, .place = place, .stream = known, .is_wanted = true};
    pthread_mutex_init(&beside->mutex, NULL);
    pthread_cond_init(&beside->changed, NULL);
    if (pthread_create(&beside->thread, NULL, capture, beside) != 0) {
        fprintf(stderr, "beside: no thread\n");
        abort();
    }
    pthread_mutex_lock(&beside->mutex);
    while (!beside->is_capturing) {
        pthread_cond_wait(&beside->changed, &beside->mutex);
    }
    pthread_mutex_unlock(&beside->mutex);
}

bool flw_beside_is_good(struct flw_beside *beside)
{
    pthread_mutex_lock(&beside->mutex);
    beside->asked++;
    pthread_cond_broadcast(&beside->changed);
    while (beside->answered != beside->asked) {
        pthread_cond_wait(&beside->changed, &beside->mutex);
    }
    bool is_whole = beside->is_whole;
    pthread_mutex_unlock(&beside->mutex);
    return is_whole;
}

bool flw_beside_end(struct flw_beside *beside)
{
    pthread_mutex_lock(&beside->mutex);
    beside->is_wanted = false;
    pthread_cond_broadcast(&beside->changed);
    pthread_mutex_unlock(&beside->mutex);
    pthread_join(beside->thread, NULL);
    pthread_mutex_destroy(&beside->mutex);
    pthread_cond_destroy(&beside->changed);
    return beside->is_whole;
}
