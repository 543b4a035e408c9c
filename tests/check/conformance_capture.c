/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about capturing: begin, end, joins, and errors that invalidate a capture.
 * Does not: cover the thread modes (conformance_capture_modes.c). */
#define MODULE "capture"
#include "conformance.h"

struct field {
    CUstream stream, other;
    CUevent event;
    CUdeviceptr address;
};

static struct field plough(struct bed *b)
{
    return (struct field){bed_stream(b), bed_stream(b), bed_event(b), bed_alloc(b, 4096)};
}

static void begin(struct bed *b, struct field *f)
{
    OK(b->cu->cuStreamBeginCapture_v2(f->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static CUstreamCaptureStatus status_of(struct bed *b, CUstream stream)
{
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)-1;
    OK(b->cu->cuStreamIsCapturing(stream, &status));
    return status;
}

static void end_dead(struct bed *b, struct field *f)
{
    CUgraph graph = (CUgraph)(uintptr_t)16;
    THAT(status_of(b, f->stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, b->cu->cuStreamEndCapture(f->stream, &graph));
    THAT(graph == NULL);
    THAT(status_of(b, f->stream) == CU_STREAM_CAPTURE_STATUS_NONE);
}

static void end_well(struct bed *b, struct field *f)
{
    CUgraph graph = NULL;
    OK(b->cu->cuStreamEndCapture(f->stream, &graph));
    if (THAT(graph != NULL)) {
        OK(b->cu->cuGraphDestroy(graph));
    }
}

HEADER(captured_work_is_not_executed,
       "all operations pushed into the stream will not be executed, but will instead be "
       "captured into a graph")
{
    struct field f = plough(b);
    bed_poke(b, f.address, 1);
    begin(b, &f);
    THAT(status_of(b, f.stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(b->cu->cuMemsetD32Async(f.address, 2, 1, f.stream));
    end_well(b, &f);
    THAT(status_of(b, f.stream) == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(b->cu->cuStreamSynchronize(f.stream));
    THAT(bed_peek(b, f.address) == 1);
}

HEADER(the_legacy_stream_is_not_captured,
       "Capture may not be initiated if stream is CU_STREAM_LEGACY")
{
    REFUSED(b->cu->cuStreamBeginCapture_v2(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
    REFUSED(b->cu->cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
}

HEADER(a_capture_begins_once,
       "it may only be initiated if the stream is not already in capture mode")
{
    struct field f = plough(b);
    begin(b, &f);
    REFUSED(b->cu->cuStreamBeginCapture_v2(f.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

HEADER(ending_what_was_not_begun_is_refused, "Capture must have been initiated on hStream via")
{
    CUgraph graph = NULL;
    struct field f = plough(b);
    REFUSED(b->cu->cuStreamEndCapture(f.stream, &graph));
}

HEADER(unknown_modes_are_refused, "Controls the interaction of this capture sequence with other")
{
    struct field f = plough(b);
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuStreamBeginCapture_v2(f.stream, (CUstreamCaptureMode)17));
}

HEADER(capture_info_names_the_sequence, "which is unique over the lifetime of the process")
{
    cuuint64_t first = 0, again = 0, second = 0;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    NEED(bed_has(b, b->cu->cuStreamGetCaptureInfo_v2 != NULL));
    struct field f = plough(b);
    OK(b->cu->cuStreamGetCaptureInfo_v2(f.stream, &status, NULL, NULL, NULL, NULL));
    THAT(status == CU_STREAM_CAPTURE_STATUS_NONE);
    begin(b, &f);
    OK(b->cu->cuStreamGetCaptureInfo_v2(f.stream, &status, &first, NULL, NULL, NULL));
    THAT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(b->cu->cuStreamGetCaptureInfo_v2(f.stream, &status, &again, NULL, NULL, NULL));
    end_well(b, &f);
    begin(b, &f);
    OK(b->cu->cuStreamGetCaptureInfo_v2(f.stream, &status, &second, NULL, NULL, NULL));
    THAT(first == again && first != second);
}

HEADER(a_wait_for_a_captured_event_joins,
       "See cuEventRecord() for details on what is captured by an event")
{
    struct field f = plough(b);
    begin(b, &f);
    OK(b->cu->cuMemsetD32Async(f.address, 1, 1, f.stream));
    OK(b->cu->cuEventRecord(f.event, f.stream));
    OK(b->cu->cuStreamWaitEvent(f.other, f.event, 0));
    THAT(status_of(b, f.other) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(b->cu->cuMemsetD32Async(f.address + 64, 2, 1, f.other));
    OK(b->cu->cuEventRecord(f.event, f.other));
    OK(b->cu->cuStreamWaitEvent(f.stream, f.event, 0));
    end_well(b, &f);
    THAT(status_of(b, f.other) == CU_STREAM_CAPTURE_STATUS_NONE);
}

HEADER(unjoined_work_is_refused,
       "the capture sequence contains a fork that was not joined to the primary stream")
{
    CUgraph graph = NULL;
    struct field f = plough(b);
    begin(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    OK(b->cu->cuStreamWaitEvent(f.other, f.event, 0));
    OK(b->cu->cuMemsetD32Async(f.address, 2, 1, f.other));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, b->cu->cuStreamEndCapture(f.stream, &graph));
}

HEADER(only_its_own_stream_ends_a_capture, "the capture was not initiated in this stream")
{
    CUgraph graph = NULL;
    struct field f = plough(b);
    begin(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    OK(b->cu->cuStreamWaitEvent(f.other, f.event, 0));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, b->cu->cuStreamEndCapture(f.other, &graph));
}

HEADER(a_wait_for_work_outside_kills,
       "a dependency would have been created which crosses the capture sequence boundary")
{
    struct field f = plough(b);
    OK(b->cu->cuEventRecord(f.event, f.other));
    begin(b, &f);
    IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, b->cu->cuStreamWaitEvent(f.stream, f.event, 0));
    end_dead(b, &f);
}

HEADER(two_captures_do_not_merge,
       "the operation would have resulted in a merge of two independent capture sequences")
{
    struct field f = plough(b);
    struct field g = plough(b);
    begin(b, &f);
    begin(b, &g);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    IS(CUDA_ERROR_STREAM_CAPTURE_MERGE, b->cu->cuStreamWaitEvent(g.stream, f.event, 0));
    end_dead(b, &g);
}

HEADER(synchronizing_a_capturing_stream_kills,
       "the operation is not permitted when the stream is capturing")
{
    struct field f = plough(b);
    begin(b, &f);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, b->cu->cuStreamSynchronize(f.stream));
    end_dead(b, &f);
    begin(b, &f);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, b->cu->cuStreamQuery(f.stream));
    end_dead(b, &f);
}

HEADER(a_captured_event_is_nothing_to_ask,
       "the operation is not permitted on an event which was last recorded in a capturing stream")
{
    struct field f = plough(b);
    begin(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    IS(CUDA_ERROR_CAPTURED_EVENT, b->cu->cuEventQuery(f.event));
    IS(CUDA_ERROR_CAPTURED_EVENT, b->cu->cuEventSynchronize(f.event));
}

HEADER(a_captured_event_is_usable_once_recorded_again,
       "will overwrite the previously captured state")
{
    struct field f = plough(b);
    begin(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    end_well(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    OK(b->cu->cuEventSynchronize(f.event));
}

HEADER(a_dead_capture_refuses_more_work,
       "the current capture sequence on the stream has been invalidated due to a previous error")
{
    struct field f = plough(b);
    begin(b, &f);
    REFUSED(b->cu->cuStreamSynchronize(f.stream));
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, b->cu->cuMemsetD32Async(f.address, 1, 1, f.stream));
    end_dead(b, &f);
}

/* ---- the legacy stream beside a capture ---- */

HEADER(the_legacy_stream_is_unusable_beside_a_blocking_capture,
       "the legacy stream is in an unusable state until the blocking stream capture is "
       "terminated")
{
    CUstream blocking = NULL;
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    struct field f = plough(b);
    OK(b->cu->cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(b->cu->cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, b->cu->cuStreamIsCapturing(CU_STREAM_LEGACY, &status));
    THAT(status_of(b, blocking) == CU_STREAM_CAPTURE_STATUS_ACTIVE); /* asking is harmless */
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
       b->cu->cuMemsetD32Async(f.address, 1, 1, CU_STREAM_LEGACY));
    THAT(status_of(b, blocking) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, b->cu->cuStreamEndCapture(blocking, &graph));
    OK(b->cu->cuStreamDestroy_v2(blocking));
}

HEADER(the_legacy_stream_works_beside_a_non_blocking_capture,
       "When a blocking stream is capturing, the legacy stream is in an unusable state")
{
    struct field f = plough(b);
    begin(b, &f);
    OK(b->cu->cuMemsetD32Async(f.address, 5, 1, CU_STREAM_LEGACY));
    THAT(status_of(b, CU_STREAM_LEGACY) == CU_STREAM_CAPTURE_STATUS_NONE);
    THAT(status_of(b, f.stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    end_well(b, &f);
}

/* ---- events of a context ---- */

HEADER(a_context_event_kills_live_captures,
       "In such a case, the call will invalidate all the conflicting captures")
{
    NEED(bed_has(b, b->cu->cuCtxRecordEvent != NULL));
    struct field f = plough(b);
    begin(b, &f);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, b->cu->cuCtxRecordEvent(b->context, f.event));
    end_dead(b, &f);
}

HEADER(a_context_wait_kills_live_captures,
       "is part of an ongoing capture sequence or if the specified context")
{
    NEED(bed_has(b, b->cu->cuCtxWaitEvent != NULL));
    struct field f = plough(b);
    begin(b, &f);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, b->cu->cuCtxWaitEvent(b->context, f.event));
    end_dead(b, &f);
}

HEADER(a_context_event_of_another_context_does_not,
       "if the specified context hCtx has a stream in the capture mode")
{
    CUcontext made = NULL;
    CUevent event = NULL;
    NEED(bed_has(b, b->cu->cuCtxRecordEvent != NULL && b->cu->cuCtxCreate_v2 != NULL));
    struct field f = plough(b);
    OK(b->cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(b->cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(b->cu->cuCtxPopCurrent_v2(NULL));
    begin(b, &f);
    OK(b->cu->cuCtxRecordEvent(made, event));
    THAT(status_of(b, f.stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    end_well(b, &f);
    OK(b->cu->cuCtxDestroy_v2(made));
}

HEADER(other_streams_record_events_beside_a_capture,
       "Captures in hEvent the contents of hStream at the time of this call")
{
    struct field f = plough(b);
    begin(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.other));
    THAT(status_of(b, f.stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    end_well(b, &f);
    OK(b->cu->cuEventSynchronize(f.event));
}
