/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about events, of streams and of whole contexts.
 */
#include "conformance.h"

struct pair {
    CUstream stream[2];
    CUevent event;
};

static void make_pair(struct bed *b, struct pair *p)
{
    *p = (struct pair){{NULL, NULL}, NULL};
    OK(b->cu->cuStreamCreate(&p->stream[0], CU_STREAM_NON_BLOCKING));
    OK(b->cu->cuStreamCreate(&p->stream[1], CU_STREAM_NON_BLOCKING));
    OK(b->cu->cuEventCreate(&p->event, CU_EVENT_DISABLE_TIMING));
}

static void end_pair(struct bed *b, struct pair *p)
{
    bed_gate_open(b);
    OK(b->cu->cuCtxSynchronize());
    OK(b->cu->cuEventDestroy_v2(p->event));
    OK(b->cu->cuStreamDestroy_v2(p->stream[0]));
    OK(b->cu->cuStreamDestroy_v2(p->stream[1]));
}

static void an_unrecorded_event_is_complete(struct bed *b)
{
    struct pair p;
    make_pair(b, &p);
    OK(b->cu->cuEventQuery(p.event));
    OK(b->cu->cuEventSynchronize(p.event));
    OK(b->cu->cuStreamWaitEvent(p.stream[0], p.event, 0));
    OK(b->cu->cuStreamSynchronize(p.stream[0]));
    end_pair(b, &p);
}

static void record_query_synchronize(struct bed *b)
{
    struct pair p;
    make_pair(b, &p);
    bed_gate_close(b, p.stream[0]);
    OK(b->cu->cuEventRecord(p.event, p.stream[0]));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuEventQuery(p.event));
    bed_gate_open(b);
    OK(b->cu->cuEventSynchronize(p.event));
    OK(b->cu->cuEventQuery(p.event));
    end_pair(b, &p);
}

static void later_work_is_not_in_the_event(struct bed *b)
{
    struct pair p;
    make_pair(b, &p);
    OK(b->cu->cuEventRecord(p.event, p.stream[0]));
    OK(b->cu->cuEventSynchronize(p.event));
    bed_gate_close(b, p.stream[0]);
    OK(b->cu->cuEventQuery(p.event));
    end_pair(b, &p);
}

static void recording_again_overwrites(struct bed *b)
{
    struct pair p;
    make_pair(b, &p);
    OK(b->cu->cuEventRecord(p.event, p.stream[0]));
    OK(b->cu->cuEventSynchronize(p.event));
    bed_gate_close(b, p.stream[1]);
    OK(b->cu->cuEventRecord(p.event, p.stream[1]));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuEventQuery(p.event));
    end_pair(b, &p);
}

static void a_wait_keeps_the_state_it_saw(struct bed *b)
{
    struct pair p;
    make_pair(b, &p);
    OK(b->cu->cuEventRecord(p.event, p.stream[0])); /* no work after this */
    OK(b->cu->cuStreamWaitEvent(p.stream[1], p.event, 0));
    bed_gate_close(b, p.stream[0]);
    OK(b->cu->cuEventRecord(p.event, p.stream[0])); /* must not touch the wait above */
    OK(b->cu->cuStreamSynchronize(p.stream[1]));
    end_pair(b, &p);
}

static void a_stream_waits_for_an_event_of_another(struct bed *b)
{
    struct pair p;
    CUdeviceptr address = 0;
    make_pair(b, &p);
    OK(b->cu->cuMemAlloc_v2(&address, 4096));
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
    OK(b->cu->cuMemFree_v2(address));
    end_pair(b, &p);
}

static void an_event_is_destroyed_before_it_is_complete(struct bed *b)
{
    struct pair p;
    make_pair(b, &p);
    bed_gate_close(b, p.stream[0]);
    OK(b->cu->cuEventRecord(p.event, p.stream[0]));
    OK(b->cu->cuStreamWaitEvent(p.stream[1], p.event, 0));
    OK(b->cu->cuEventDestroy_v2(p.event));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuStreamQuery(p.stream[1])); /* the wait still holds */
    OK(b->cu->cuEventCreate(&p.event, 0));
    end_pair(b, &p);
}

static void record_on_a_stream_of_another_context_is_refused(struct bed *b)
{
    const struct flw_driver *cu = b->cu;
    struct pair p;
    CUcontext made = NULL;
    CUevent event = NULL;
    if (!bed_has(b, cu->cuCtxCreate_v2 != NULL)) {
        return;
    }
    make_pair(b, &p);
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuEventCreate(&event, 0));
    IS(CUDA_ERROR_INVALID_HANDLE, cu->cuEventRecord(event, p.stream[0]));
    OK(cu->cuCtxPopCurrent_v2(NULL));
    IS(CUDA_ERROR_INVALID_HANDLE, cu->cuEventRecord(event, p.stream[0]));
    OK(cu->cuCtxDestroy_v2(made));
    end_pair(b, &p);
}

static void a_wait_may_be_for_another_context(struct bed *b)
{
    const struct flw_driver *cu = b->cu;
    struct pair p;
    CUcontext made = NULL;
    CUstream stream = NULL;
    if (!bed_has(b, cu->cuCtxCreate_v2 != NULL)) {
        return;
    }
    make_pair(b, &p);
    bed_gate_close(b, p.stream[0]);
    OK(cu->cuEventRecord(p.event, p.stream[0]));
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cu->cuStreamWaitEvent(stream, p.event, 0));
    IS(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(stream));
    bed_gate_open(b);
    OK(cu->cuStreamSynchronize(stream));
    OK(cu->cuCtxDestroy_v2(made));
    end_pair(b, &p);
}

static void event_flags_are_checked(struct bed *b)
{
    CUevent event = NULL;
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuEventCreate(&event, 1u << 20));
    REFUSED(b->cu->cuEventCreate(&event, CU_EVENT_INTERPROCESS));
}

static void external_waits_are_for_captures_only(struct bed *b)
{
    struct pair p;
    make_pair(b, &p);
    IS(CUDA_ERROR_INVALID_VALUE,
       b->cu->cuStreamWaitEvent(p.stream[0], p.event, CU_EVENT_WAIT_EXTERNAL));
    end_pair(b, &p);
}

/* ---- of a whole context ---- */

static bool has_context_events(struct bed *b)
{
    return bed_has(b, b->cu->cuCtxRecordEvent != NULL && b->cu->cuCtxWaitEvent != NULL);
}

static void a_context_event_covers_every_stream(struct bed *b)
{
    struct pair p;
    if (!has_context_events(b)) {
        return;
    }
    CUstream covered[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    make_pair(b, &p);
    covered[0] = p.stream[1];
    for (size_t i = 0; i < 3; i++) {
        bed_gate_close(b, covered[i]);
        OK(b->cu->cuCtxRecordEvent(b->context, p.event));
        IS(CUDA_ERROR_NOT_READY, b->cu->cuEventQuery(p.event));
        bed_gate_open(b);
        OK(b->cu->cuEventSynchronize(p.event));
        OK(b->cu->cuStreamQuery(covered[i]));
    }
    end_pair(b, &p);
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

static void a_context_event_covers_other_threads_streams(struct bed *b)
{
    struct pair p;
    if (!has_context_events(b)) {
        return;
    }
    make_pair(b, &p);
    bed_on_thread(b, use_thread_stream_body, &p);
    end_pair(b, &p);
}

static void later_work_is_not_in_a_context_event(struct bed *b)
{
    struct pair p;
    if (!has_context_events(b)) {
        return;
    }
    make_pair(b, &p);
    OK(b->cu->cuCtxRecordEvent(b->context, p.event));
    OK(b->cu->cuEventSynchronize(p.event));
    bed_gate_close(b, p.stream[0]);
    OK(b->cu->cuEventQuery(p.event));
    end_pair(b, &p);
}

static void a_context_event_is_of_its_own_context(struct bed *b)
{
    CUcontext made = NULL;
    CUevent event = NULL;
    if (!has_context_events(b) || !bed_has(b, b->cu->cuCtxCreate_v2 != NULL)) {
        return;
    }
    OK(b->cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(b->cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    IS(CUDA_ERROR_INVALID_HANDLE, b->cu->cuCtxRecordEvent(b->context, event));
    OK(b->cu->cuCtxDestroy_v2(made));
}

/* Make a context wait for work behind the gate; the streams wait too, created before or after. */
static void wait_with_context(struct bed *b, bool makes_stream_first)
{
    const struct flw_driver *cu = b->cu;
    struct pair p;
    CUcontext made = NULL;
    CUstream stream = NULL;
    CUdeviceptr address = 0;
    if (!bed_has(b, cu->cuCtxCreate_v2 != NULL)) {
        return;
    }
    make_pair(b, &p);
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
    end_pair(b, &p);
}

static void a_context_waits_with_all_streams(struct bed *b)
{
    if (has_context_events(b)) {
        wait_with_context(b, true);
    }
}

static void a_context_wait_holds_for_streams_made_later(struct bed *b)
{
    if (has_context_events(b)) {
        wait_with_context(b, false);
    }
}

static const struct conformance_case cases[] = {
    HEADER(an_unrecorded_event_is_complete,
           "Before the first call to cuEventRecord(), an event represents an empty set of work"),
    HEADER(record_query_synchronize,
           "Captures in hEvent the contents of hStream at the time of this call"),
    HEADER(later_work_is_not_in_the_event, "Uses of hStream after this call do not modify hEvent"),
    HEADER(recording_again_overwrites,
           "can be called multiple times on the same event and will overwrite the previously "
           "captured state"),
    HEADER(a_wait_keeps_the_state_it_saw,
           "use the most recently captured state at the time of the API call, and are not affected "
           "by later calls"),
    HEADER(a_stream_waits_for_an_event_of_another,
           "Makes all future work submitted to hStream wait for all work captured in"),
    HEADER(an_event_is_destroyed_before_it_is_complete,
           "An event may be destroyed before it is complete"),
    HEADER(record_on_a_stream_of_another_context_is_refused,
           "hEvent and hStream must be from the same context otherwise"),
    HEADER(a_wait_may_be_for_another_context,
           "hEvent may be from a different context or device than hStream"),
    HEADER(event_flags_are_checked,
           "CU_EVENT_INTERPROCESS must be specified along with CU_EVENT_DISABLE_TIMING"),
    HEADER(external_waits_are_for_captures_only, "This flag is invalid outside of stream capture"),
    HEADER(a_context_event_covers_every_stream,
           "Captures in hEvent all the activities of the context hCtx at the time of this call"),
    HEADER(a_context_event_covers_other_threads_streams,
           "Captures in hEvent all the activities of the context hCtx at the time of this call"),
    HEADER(later_work_is_not_in_a_context_event,
           "Uses of hCtx after this call do not modify hEvent"),
    HEADER(a_context_event_is_of_its_own_context,
           "hEvent and hCtx must be from the same CUDA context, otherwise"),
    HEADER(a_context_waits_with_all_streams,
           "Makes all future work submitted to context hCtx wait for all work captured in"),
    HEADER(a_context_wait_holds_for_streams_made_later,
           "Makes all future work submitted to context hCtx wait for all work captured in"),
};

const struct conformance_table conformance_event = {"event", cases, sizeof cases / sizeof *cases};
