/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about capture modes: every combination of a capture's mode, a thread's mode and
 * whether the thread is the one that captures, against calls that are potentially unsafe.
 */
#include <stdio.h>

#define MODULE "capture_modes"
#include "conformance.h"

static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                            CU_STREAM_CAPTURE_MODE_RELAXED};

/* The header's paragraph as a function. */
static bool is_prohibited(CUstreamCaptureMode thread, CUstreamCaptureMode capture, bool is_own)
{
    if (thread == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return false;
    }
    if (is_own) {
        return capture != CU_STREAM_CAPTURE_MODE_RELAXED;
    }
    return thread == CU_STREAM_CAPTURE_MODE_GLOBAL && capture == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

struct question {
    CUstreamCaptureMode thread_mode, capture_mode;
    bool is_own;
    CUresult (*call)(struct bed *b);
};

static void ask_body(struct bed *b, void *argument)
{
    const struct question *q = argument;
    CUstreamCaptureMode mode = q->thread_mode;
    OK(b->cu->cuThreadExchangeStreamCaptureMode(&mode));
    CUresult got = q->call(b);
    CUresult want = is_prohibited(q->thread_mode, q->capture_mode, q->is_own)
                        ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                        : CUDA_SUCCESS;
    char text[96];
    snprintf(text, sizeof text, "thread mode %d, capture mode %d, %s thread", (int)q->thread_mode,
             (int)q->capture_mode, q->is_own ? "capturing" : "other");
    bed_result(b, got, want, text, __LINE__);
    OK(b->cu->cuThreadExchangeStreamCaptureMode(&mode));
}

static void ask(struct bed *b, struct question *q)
{
    const struct flw_driver *cu = b->cu;
    CUstream stream = NULL;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    OK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cu->cuStreamBeginCapture_v2(stream, q->capture_mode));
    if (q->is_own) {
        ask_body(b, q);
    } else {
        bed_on_thread(b, ask_body, q);
    }
    OK(cu->cuStreamIsCapturing(stream, &status));
    bool is_prohibited_call = is_prohibited(q->thread_mode, q->capture_mode, q->is_own);
    THAT(status == (is_prohibited_call ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE));
    CUresult ended = cu->cuStreamEndCapture(stream, &graph);
    THAT(ended == (is_prohibited_call ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS));
    if (graph != NULL) {
        OK(cu->cuGraphDestroy(graph));
    }
    OK(cu->cuStreamDestroy_v2(stream));
}

static void ask_all(struct bed *b, CUresult (*call)(struct bed *b))
{
    for (size_t t = 0; t < 3; t++) {
        for (size_t c = 0; c < 3; c++) {
            for (int own = 0; own < 2; own++) {
                struct question q = {modes[t], modes[c], own != 0, call};
                ask(b, &q);
            }
        }
    }
}

static CUdeviceptr spare[64];
static size_t spare_count;
static CUevent asked;

static CUresult call_alloc(struct bed *b)
{
    CUdeviceptr address = 0;
    CUresult result = b->cu->cuMemAlloc_v2(&address, 4096);
    if (result == CUDA_SUCCESS) {
        spare[spare_count++] = address;
    }
    return result;
}

static void free_spare(struct bed *b)
{
    while (spare_count > 0) {
        OK(b->cu->cuMemFree_v2(spare[--spare_count]));
    }
}

HEADER(allocating_is_potentially_unsafe,
       "this thread is prohibited from potentially unsafe API calls")
{
    ask_all(b, call_alloc);
    free_spare(b);
}

static CUresult call_query(struct bed *b)
{
    return b->cu->cuEventQuery(asked);
}

HEADER(querying_an_event_is_potentially_unsafe,
       "Concurrent capture sequences in other threads are ignored")
{
    OK(b->cu->cuEventCreate(&asked, CU_EVENT_DISABLE_TIMING));
    ask_all(b, call_query);
    OK(b->cu->cuEventDestroy_v2(asked));
}

static CUresult call_free(struct bed *b)
{
    CUresult result =
        spare_count > 0 ? b->cu->cuMemFree_v2(spare[spare_count - 1]) : CUDA_ERROR_UNKNOWN;
    spare_count -= result == CUDA_SUCCESS;
    return result;
}

HEADER(freeing_is_potentially_unsafe,
       "The local thread is not prohibited from potentially unsafe API calls")
{
    spare_count = 0;
    for (int i = 0; i < 18; i++) {
        OK(call_alloc(b));
    }
    ask_all(b, call_free);
    free_spare(b);
}

HEADER(captured_events_stay_forbidden_in_relaxed_mode,
       "the thread is still prohibited from API calls which necessarily conflict with stream "
       "capture")
{
    const struct flw_driver *cu = b->cu;
    CUevent event = NULL;
    CUgraph graph = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUstream stream = bed_stream(b);
    OK(cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cu->cuEventRecord(event, stream));
    OK(cu->cuThreadExchangeStreamCaptureMode(&mode));
    IS(CUDA_ERROR_CAPTURED_EVENT, cu->cuEventQuery(event));
    OK(cu->cuThreadExchangeStreamCaptureMode(&mode));
    cu->cuStreamEndCapture(stream, &graph);
    if (graph != NULL) {
        OK(cu->cuGraphDestroy(graph));
    }
    OK(cu->cuEventDestroy_v2(event));
}

HEADER(the_mode_of_a_thread_is_swapped,
       "and overwrites *mode with the previous mode for the thread")
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(b->cu->cuThreadExchangeStreamCaptureMode(&mode));
    THAT(mode == CU_STREAM_CAPTURE_MODE_GLOBAL); /* "This is the default mode" */
    mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    OK(b->cu->cuThreadExchangeStreamCaptureMode(&mode));
    THAT(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
    mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    OK(b->cu->cuThreadExchangeStreamCaptureMode(&mode));
    THAT(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    mode = (CUstreamCaptureMode)9;
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuThreadExchangeStreamCaptureMode(&mode));
}

static void end_elsewhere_body(struct bed *b, void *argument)
{
    CUgraph graph = NULL;
    IS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, b->cu->cuStreamEndCapture(argument, &graph));
}

HEADER(a_capture_ends_in_its_thread,
       "this call must be from the same thread as cuStreamBeginCapture")
{
    CUgraph graph = NULL;
    for (size_t i = 0; i < 2; i++) {
        CUstream stream = NULL;
        OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(b->cu->cuStreamBeginCapture_v2(stream, modes[i]));
        bed_on_thread(b, end_elsewhere_body, stream);
        b->cu->cuStreamEndCapture(stream, &graph);
        if (graph != NULL) {
            OK(b->cu->cuGraphDestroy(graph));
        }
        OK(b->cu->cuStreamDestroy_v2(stream));
        graph = NULL;
    }
}

static void end_relaxed_body(struct bed *b, void *argument)
{
    CUgraph graph = NULL;
    OK(b->cu->cuStreamEndCapture(argument, &graph));
    if (THAT(graph != NULL)) {
        OK(b->cu->cuGraphDestroy(graph));
    }
}

HEADER(a_relaxed_capture_ends_anywhere, "must be called on this stream from the same thread")
{
    CUstream stream = bed_stream(b);
    OK(b->cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    bed_on_thread(b, end_relaxed_body, stream);
}

HEADER(synchronizing_the_context_kills_a_capture,
       "stream capture places restrictions on API calls that can be made within or "
       "concurrently to")
{
    CUgraph graph = NULL;
    CUstream stream = bed_stream(b);
    OK(b->cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, b->cu->cuCtxSynchronize());
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, b->cu->cuStreamEndCapture(stream, &graph));
}
