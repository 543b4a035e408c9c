/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about capturing: begin, end, joins, and errors that invalidate a capture.
 * Does not: cover the thread modes (conformance_capture_modes.c). */
#include "conformance.h"

struct field {
    CUstream stream, other;
    CUevent event;
    CUdeviceptr address;
};

static void plough(struct bed *b, struct field *f)
{
    *f = (struct field){0};
    OK(b->cu->cuStreamCreate(&f->stream, CU_STREAM_NON_BLOCKING));
    OK(b->cu->cuStreamCreate(&f->other, CU_STREAM_NON_BLOCKING));
    OK(b->cu->cuEventCreate(&f->event, CU_EVENT_DISABLE_TIMING));
    OK(b->cu->cuMemAlloc_v2(&f->address, 4096));
}

static void leave(struct bed *b, struct field *f)
{
    CUgraph graph = NULL;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (b->cu->cuStreamIsCapturing(f->stream, &status) == CUDA_SUCCESS &&
        status != CU_STREAM_CAPTURE_STATUS_NONE) {
        b->cu->cuStreamEndCapture(f->stream, &graph);
    }
    if (graph != NULL) {
        OK(b->cu->cuGraphDestroy(graph));
    }
    OK(b->cu->cuStreamDestroy_v2(f->stream));
    OK(b->cu->cuStreamDestroy_v2(f->other));
    OK(b->cu->cuEventDestroy_v2(f->event));
    OK(b->cu->cuMemFree_v2(f->address));
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

static void captured_work_is_not_executed(struct bed *b)
{
    struct field f;
    plough(b, &f);
    bed_poke(b, f.address, 1);
    begin(b, &f);
    THAT(status_of(b, f.stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(b->cu->cuMemsetD32Async(f.address, 2, 1, f.stream));
    end_well(b, &f);
    THAT(status_of(b, f.stream) == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(b->cu->cuStreamSynchronize(f.stream));
    THAT(bed_peek(b, f.address) == 1);
    leave(b, &f);
}

static void the_legacy_stream_is_not_captured(struct bed *b)
{
    REFUSED(b->cu->cuStreamBeginCapture_v2(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
    REFUSED(b->cu->cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static void a_capture_begins_once(struct bed *b)
{
    struct field f;
    plough(b, &f);
    begin(b, &f);
    REFUSED(b->cu->cuStreamBeginCapture_v2(f.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    leave(b, &f);
}

static void ending_what_was_not_begun_is_refused(struct bed *b)
{
    struct field f;
    CUgraph graph = NULL;
    plough(b, &f);
    REFUSED(b->cu->cuStreamEndCapture(f.stream, &graph));
    leave(b, &f);
}

static void unknown_modes_are_refused(struct bed *b)
{
    struct field f;
    plough(b, &f);
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuStreamBeginCapture_v2(f.stream, (CUstreamCaptureMode)17));
    leave(b, &f);
}

static void capture_info_names_the_sequence(struct bed *b)
{
    struct field f;
    cuuint64_t first = 0, again = 0, second = 0;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (!bed_has(b, b->cu->cuStreamGetCaptureInfo_v2 != NULL)) {
        return;
    }
    plough(b, &f);
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
    leave(b, &f);
}

static void a_wait_for_a_captured_event_joins(struct bed *b)
{
    struct field f;
    plough(b, &f);
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
    leave(b, &f);
}

static void unjoined_work_is_refused(struct bed *b)
{
    struct field f;
    CUgraph graph = NULL;
    plough(b, &f);
    begin(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    OK(b->cu->cuStreamWaitEvent(f.other, f.event, 0));
    OK(b->cu->cuMemsetD32Async(f.address, 2, 1, f.other));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, b->cu->cuStreamEndCapture(f.stream, &graph));
    leave(b, &f);
}

static void only_its_own_stream_ends_a_capture(struct bed *b)
{
    struct field f;
    CUgraph graph = NULL;
    plough(b, &f);
    begin(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    OK(b->cu->cuStreamWaitEvent(f.other, f.event, 0));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, b->cu->cuStreamEndCapture(f.other, &graph));
    leave(b, &f);
}

static void a_wait_for_work_outside_kills(struct bed *b)
{
    struct field f;
    plough(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.other));
    begin(b, &f);
    IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, b->cu->cuStreamWaitEvent(f.stream, f.event, 0));
    end_dead(b, &f);
    leave(b, &f);
}

static void two_captures_do_not_merge(struct bed *b)
{
    struct field f, g;
    plough(b, &f);
    plough(b, &g);
    begin(b, &f);
    begin(b, &g);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    IS(CUDA_ERROR_STREAM_CAPTURE_MERGE, b->cu->cuStreamWaitEvent(g.stream, f.event, 0));
    end_dead(b, &g);
    leave(b, &g);
    leave(b, &f);
}

static void synchronizing_a_capturing_stream_kills(struct bed *b)
{
    struct field f;
    plough(b, &f);
    begin(b, &f);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, b->cu->cuStreamSynchronize(f.stream));
    end_dead(b, &f);
    begin(b, &f);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, b->cu->cuStreamQuery(f.stream));
    end_dead(b, &f);
    leave(b, &f);
}

static void a_captured_event_is_nothing_to_ask(struct bed *b)
{
    struct field f;
    plough(b, &f);
    begin(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    IS(CUDA_ERROR_CAPTURED_EVENT, b->cu->cuEventQuery(f.event));
    IS(CUDA_ERROR_CAPTURED_EVENT, b->cu->cuEventSynchronize(f.event));
    leave(b, &f);
}

static void a_captured_event_is_usable_once_recorded_again(struct bed *b)
{
    struct field f;
    plough(b, &f);
    begin(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    end_well(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.stream));
    OK(b->cu->cuEventSynchronize(f.event));
    leave(b, &f);
}

static void a_dead_capture_refuses_more_work(struct bed *b)
{
    struct field f;
    plough(b, &f);
    begin(b, &f);
    REFUSED(b->cu->cuStreamSynchronize(f.stream));
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, b->cu->cuMemsetD32Async(f.address, 1, 1, f.stream));
    end_dead(b, &f);
    leave(b, &f);
}

/* ---- the legacy stream beside a capture ---- */

static void the_legacy_stream_is_unusable_beside_a_blocking_capture(struct bed *b)
{
    struct field f;
    CUstream blocking = NULL;
    CUstreamCaptureStatus status;
    CUgraph graph = NULL;
    plough(b, &f);
    OK(b->cu->cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(b->cu->cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, b->cu->cuStreamIsCapturing(CU_STREAM_LEGACY, &status));
    THAT(status_of(b, blocking) == CU_STREAM_CAPTURE_STATUS_ACTIVE); /* asking is harmless */
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
       b->cu->cuMemsetD32Async(f.address, 1, 1, CU_STREAM_LEGACY));
    THAT(status_of(b, blocking) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, b->cu->cuStreamEndCapture(blocking, &graph));
    OK(b->cu->cuStreamDestroy_v2(blocking));
    leave(b, &f);
}

static void the_legacy_stream_works_beside_a_non_blocking_capture(struct bed *b)
{
    struct field f;
    plough(b, &f);
    begin(b, &f);
    OK(b->cu->cuMemsetD32Async(f.address, 5, 1, CU_STREAM_LEGACY));
    THAT(status_of(b, CU_STREAM_LEGACY) == CU_STREAM_CAPTURE_STATUS_NONE);
    THAT(status_of(b, f.stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    end_well(b, &f);
    leave(b, &f);
}

/* ---- events of a context ---- */

static void a_context_event_kills_live_captures(struct bed *b)
{
    struct field f;
    if (!bed_has(b, b->cu->cuCtxRecordEvent != NULL)) {
        return;
    }
    plough(b, &f);
    begin(b, &f);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, b->cu->cuCtxRecordEvent(b->context, f.event));
    end_dead(b, &f);
    leave(b, &f);
}

static void a_context_wait_kills_live_captures(struct bed *b)
{
    struct field f;
    if (!bed_has(b, b->cu->cuCtxWaitEvent != NULL)) {
        return;
    }
    plough(b, &f);
    begin(b, &f);
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, b->cu->cuCtxWaitEvent(b->context, f.event));
    end_dead(b, &f);
    leave(b, &f);
}

static void a_context_event_of_another_context_does_not(struct bed *b)
{
    struct field f;
    CUcontext made = NULL;
    CUevent event = NULL;
    if (!bed_has(b, b->cu->cuCtxRecordEvent != NULL && b->cu->cuCtxCreate_v2 != NULL)) {
        return;
    }
    plough(b, &f);
    OK(b->cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(b->cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(b->cu->cuCtxPopCurrent_v2(NULL));
    begin(b, &f);
    OK(b->cu->cuCtxRecordEvent(made, event));
    THAT(status_of(b, f.stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    end_well(b, &f);
    OK(b->cu->cuCtxDestroy_v2(made));
    leave(b, &f);
}

static void other_streams_record_events_beside_a_capture(struct bed *b)
{
    struct field f;
    plough(b, &f);
    begin(b, &f);
    OK(b->cu->cuEventRecord(f.event, f.other));
    THAT(status_of(b, f.stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    end_well(b, &f);
    OK(b->cu->cuEventSynchronize(f.event));
    leave(b, &f);
}

static const struct conformance_case cases[] = {
    HEADER(captured_work_is_not_executed,
           "all operations pushed into the stream will not be executed, but will instead be "
           "captured into a graph"),
    HEADER(the_legacy_stream_is_not_captured,
           "Capture may not be initiated if stream is CU_STREAM_LEGACY"),
    HEADER(a_capture_begins_once,
           "it may only be initiated if the stream is not already in capture mode"),
    HEADER(ending_what_was_not_begun_is_refused, "Capture must have been initiated on hStream via"),
    HEADER(unknown_modes_are_refused,
           "Controls the interaction of this capture sequence with other"),
    HEADER(capture_info_names_the_sequence, "which is unique over the lifetime of the process"),
    HEADER(a_wait_for_a_captured_event_joins,
           "See cuEventRecord() for details on what is captured by an event"),
    HEADER(unjoined_work_is_refused,
           "the capture sequence contains a fork that was not joined to the primary stream"),
    HEADER(only_its_own_stream_ends_a_capture, "the capture was not initiated in this stream"),
    HEADER(a_wait_for_work_outside_kills,
           "a dependency would have been created which crosses the capture sequence boundary"),
    HEADER(two_captures_do_not_merge,
           "the operation would have resulted in a merge of two independent capture sequences"),
    HEADER(synchronizing_a_capturing_stream_kills,
           "the operation is not permitted when the stream is capturing"),
    HEADER(
        a_captured_event_is_nothing_to_ask,
        "the operation is not permitted on an event which was last recorded in a capturing stream"),
    HEADER(a_captured_event_is_usable_once_recorded_again,
           "will overwrite the previously captured state"),
    HEADER(
        a_dead_capture_refuses_more_work,
        "the current capture sequence on the stream has been invalidated due to a previous error"),
    HEADER(the_legacy_stream_is_unusable_beside_a_blocking_capture,
           "the legacy stream is in an unusable state until the blocking stream capture is "
           "terminated"),
    HEADER(the_legacy_stream_works_beside_a_non_blocking_capture,
           "When a blocking stream is capturing, the legacy stream is in an unusable state"),
    HEADER(a_context_event_kills_live_captures,
           "In such a case, the call will invalidate all the conflicting captures"),
    HEADER(a_context_wait_kills_live_captures,
           "is part of an ongoing capture sequence or if the specified context"),
    HEADER(a_context_event_of_another_context_does_not,
           "if the specified context hCtx has a stream in the capture mode"),
    HEADER(other_streams_record_events_beside_a_capture,
           "Captures in hEvent the contents of hStream at the time of this call"),
};

const struct conformance_table conformance_capture = {"capture", cases,
                                                      sizeof cases / sizeof *cases};
