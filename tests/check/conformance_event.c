/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about events, of streams and of whole contexts.
 */
#define MODULE "event"
#include "conformance.h"

struct pair {
    CUstream stream[2];
    CUevent event;
};

static struct pair make_pair(struct bed *b)
{
    return (struct pair){{bed_stream(b), bed_stream(b)}, bed_event(b)};
}

HEADER(an_unrecorded_event_is_complete,
       "Before the first call to cuEventRecord(), an event represents an empty set of work")
{
    struct pair p = make_pair(b);
    OK(b->cu->cuEventQuery(p.event));
    OK(b->cu->cuEventSynchronize(p.event));
    OK(b->cu->cuStreamWaitEvent(p.stream[0], p.event, 0));
    OK(b->cu->cuStreamSynchronize(p.stream[0]));
}

HEADER(record_query_synchronize,
       "Captures in hEvent the contents of hStream at the time of this call")
{
    struct pair p = make_pair(b);
    bed_gate_close(b, p.stream[0]);
    OK(b->cu->cuEventRecord(p.event, p.stream[0]));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuEventQuery(p.event));
    bed_gate_open(b);
    OK(b->cu->cuEventSynchronize(p.event));
    OK(b->cu->cuEventQuery(p.event));
}

HEADER(later_work_is_not_in_the_event, "Uses of hStream after this call do not modify hEvent")
{
    struct pair p = make_pair(b);
    OK(b->cu->cuEventRecord(p.event, p.stream[0]));
    OK(b->cu->cuEventSynchronize(p.event));
    bed_gate_close(b, p.stream[0]);
    OK(b->cu->cuEventQuery(p.event));
}

HEADER(recording_again_overwrites,
       "can be called multiple times on the same event and will overwrite the previously "
       "captured state")
{
    struct pair p = make_pair(b);
    OK(b->cu->cuEventRecord(p.event, p.stream[0]));
    OK(b->cu->cuEventSynchronize(p.event));
    bed_gate_close(b, p.stream[1]);
    OK(b->cu->cuEventRecord(p.event, p.stream[1]));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuEventQuery(p.event));
}

HEADER(a_wait_keeps_the_state_it_saw,
       "use the most recently captured state at the time of the API call, and are not "
       "affected by later calls")
{
    struct pair p = make_pair(b);
    OK(b->cu->cuEventRecord(p.event, p.stream[0])); /* no work after this */
    OK(b->cu->cuStreamWaitEvent(p.stream[1], p.event, 0));
    bed_gate_close(b, p.stream[0]);
    OK(b->cu->cuEventRecord(p.event, p.stream[0])); /* must not touch the wait above */
    OK(b->cu->cuStreamSynchronize(p.stream[1]));
}

HEADER(a_stream_waits_for_an_event_of_another,
       "Makes all future work submitted to hStream wait for all work captured in")
{
    struct pair p = make_pair(b);
    CUdeviceptr address = bed_alloc(b, 4096);
    bed_gate_close(b, p.stream[0]);
    OK(b->cu->cuMemsetD32Async(address, 1, 1, p.stream[0]));
    OK(b->cu->cuEventRecord(p.event, p.stream[0]));
    OK(b->cu->cuStreamWaitEvent(p.stream[1], p.event, 0));
    OK(b->cu->cuMemsetD32Async(address, 2, 1, p.stream[1]));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(p.stream[1]));
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(p.stream[1]));
    OK(b->cu->cuStreamQuery(p.stream[0]));
    THAT(bed_peek(b, address) == 2);
}

HEADER(an_event_is_destroyed_before_it_is_complete,
       "An event may be destroyed before it is complete")
{
    struct pair p = make_pair(b);
    bed_gate_close(b, p.stream[0]);
    OK(b->cu->cuEventCreate(&p.event, 0));
    OK(b->cu->cuEventRecord(p.event, p.stream[0]));
    OK(b->cu->cuStreamWaitEvent(p.stream[1], p.event, 0));
    OK(b->cu->cuEventDestroy_v2(p.event));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(p.stream[1])); /* the wait still holds */
}

HEADER(record_on_a_stream_of_another_context_is_refused,
       "hEvent and hStream must be from the same context otherwise")
{
    const struct flw_driver *cu = b->cu;
    CUcontext made = NULL;
    CUevent event = NULL;
    NEED(bed_has(b, cu->cuCtxCreate_v2 != NULL));
    struct pair p = make_pair(b);
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuEventCreate(&event, 0));
    IS(CUDA_ERROR_INVALID_HANDLE, cu->cuEventRecord(event, p.stream[0]));
    OK(cu->cuCtxPopCurrent_v2(NULL));
    IS(CUDA_ERROR_INVALID_HANDLE, cu->cuEventRecord(event, p.stream[0]));
    OK(cu->cuCtxDestroy_v2(made));
}

HEADER(a_wait_may_be_for_another_context,
       "hEvent may be from a different context or device than hStream")
{
    const struct flw_driver *cu = b->cu;
    CUcontext made = NULL;
    CUstream stream = NULL;
    NEED(bed_has(b, cu->cuCtxCreate_v2 != NULL));
    struct pair p = make_pair(b);
    bed_gate_close(b, p.stream[0]);
    OK(cu->cuEventRecord(p.event, p.stream[0]));
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cu->cuStreamWaitEvent(stream, p.event, 0));
    IS(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(stream));
    bed_gate_open(b);
    OK(cu->cuStreamSynchronize(stream));
    OK(cu->cuCtxDestroy_v2(made));
}

HEADER(event_flags_are_checked,
       "CU_EVENT_INTERPROCESS must be specified along with CU_EVENT_DISABLE_TIMING")
{
    CUevent event = NULL;
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuEventCreate(&event, 1u << 20));
    REFUSED(b->cu->cuEventCreate(&event, CU_EVENT_INTERPROCESS));
}

HEADER(external_waits_are_for_captures_only, "This flag is invalid outside of stream capture")
{
    struct pair p = make_pair(b);
    IS(CUDA_ERROR_INVALID_VALUE,
       b->cu->cuStreamWaitEvent(p.stream[0], p.event, CU_EVENT_WAIT_EXTERNAL));
}

/* ---- of a whole context ---- */

static bool has_context_events(struct bed *b)
{
    return bed_has(b, b->cu->cuCtxRecordEvent != NULL && b->cu->cuCtxWaitEvent != NULL);
}

HEADER(a_context_event_covers_every_stream,
       "Captures in hEvent all the activities of the context hCtx at the time of this call")
{
    NEED(has_context_events(b));
    CUstream covered[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    struct pair p = make_pair(b);
    covered[0] = p.stream[1];
    for (size_t i = 0; i < 3; i++) {
        bed_gate_close(b, covered[i]);
        OK(b->cu->cuCtxRecordEvent(b->context, p.event));
        IS(CUDA_ERROR_NOT_READY, b->cu->cuEventQuery(p.event));
        bed_gate_open(b);
        OK(b->cu->cuEventSynchronize(p.event));
        OK(b->cu->cuStreamQuery(covered[i]));
    }
}

static void use_thread_stream_body(struct bed *b, void *argument)
{
    struct pair *p = argument;
    bed_gate_close(b, CU_STREAM_PER_THREAD);
    OK(b->cu->cuCtxRecordEvent(b->context, p->event));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuEventQuery(p->event));
    bed_gate_open(b);
    OK(b->cu->cuEventSynchronize(p->event));
}

HEADER(a_context_event_covers_other_threads_streams,
       "Captures in hEvent all the activities of the context hCtx at the time of this call")
{
    NEED(has_context_events(b));
    struct pair p = make_pair(b);
    bed_on_thread(b, use_thread_stream_body, &p);
}

HEADER(later_work_is_not_in_a_context_event, "Uses of hCtx after this call do not modify hEvent")
{
    NEED(has_context_events(b));
    struct pair p = make_pair(b);
    OK(b->cu->cuCtxRecordEvent(b->context, p.event));
    OK(b->cu->cuEventSynchronize(p.event));
    bed_gate_close(b, p.stream[0]);
    OK(b->cu->cuEventQuery(p.event));
}

HEADER(a_context_event_is_of_its_own_context,
       "hEvent and hCtx must be from the same CUDA context, otherwise")
{
    CUcontext made = NULL;
    CUevent event = NULL;
    NEED(has_context_events(b) && bed_has(b, b->cu->cuCtxCreate_v2 != NULL));
    OK(b->cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(b->cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    IS(CUDA_ERROR_INVALID_HANDLE, b->cu->cuCtxRecordEvent(b->context, event));
    OK(b->cu->cuCtxDestroy_v2(made));
}

/* Make a context wait for work behind the gate; the streams wait too, created before or after. */
static void wait_with_context(struct bed *b, bool makes_stream_first)
{
    const struct flw_driver *cu = b->cu;
    CUcontext made = NULL;
    CUstream stream = NULL;
    CUdeviceptr address = 0;
    NEED(bed_has(b, cu->cuCtxCreate_v2 != NULL));
    struct pair p = make_pair(b);
    bed_gate_close(b, p.stream[0]);
    OK(cu->cuEventRecord(p.event, p.stream[0]));
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuMemAlloc_v2(&address, 4096));
    if (makes_stream_first) {
        OK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    OK(cu->cuCtxWaitEvent(made, p.event));
    if (!makes_stream_first) {
        OK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }
    OK(cu->cuMemsetD8Async(address, 1, 4096, stream));
    IS(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(stream));
    bed_gate_open(b);
    OK(cu->cuStreamSynchronize(stream));
    OK(cu->cuCtxDestroy_v2(made));
}

HEADER(a_context_waits_with_all_streams,
       "Makes all future work submitted to context hCtx wait for all work captured in")
{
    if (has_context_events(b)) {
        wait_with_context(b, true);
    }
}

HEADER(a_context_wait_holds_for_streams_made_later,
       "Makes all future work submitted to context hCtx wait for all work captured in")
{
    if (has_context_events(b)) {
        wait_with_context(b, false);
    }
}
