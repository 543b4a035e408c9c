/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: events: the recorded work, queries, waits on the host and on a stream, and the events and
 * waits of a whole context. Also order clocks: for each stream's slot, the last operation known to
 * precede. Does not: run work. */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "simcuda/check.h"
#include "simcuda/forms.h"
#include "simcuda/host.h"
#include "simcuda/storage.h"

/* ---- order clocks */

static void widen(struct flw_order_clock *clock, uint32_t count)
{
    if (count > clock->count) {
        clock->at = flw_host_resize(clock->at, count * sizeof *clock->at);
        memset(clock->at + clock->count, 0, (count - clock->count) * sizeof *clock->at);
        clock->count = count;
    }
}

void flw_clock_join(struct flw_order_clock *clock, const struct flw_order_clock *other)
{
    widen(clock, other->count);
    for (uint32_t i = 0; i < other->count; i++) {
        if (clock->at[i] < other->at[i]) {
            clock->at[i] = other->at[i];
        }
    }
}

void flw_clock_raise(struct flw_order_clock *clock, uint32_t slot, uint64_t sequence)
{
    widen(clock, slot + 1);
    if (clock->at[slot] < sequence) {
        clock->at[slot] = sequence;
    }
}

void flw_clock_copy(struct flw_order_clock *clock, const struct flw_order_clock *other)
{
    widen(clock, other->count);
    if (other->count > 0) {
        memcpy(clock->at, other->at, other->count * sizeof *clock->at);
    }
    for (uint32_t i = other->count; i < clock->count; i++) {
        clock->at[i] = 0;
    }
}

void flw_clock_finish(struct flw_order_clock *clock)
{
    free(clock->at);
    *clock = (struct flw_order_clock){0};
}

void flw_clock_host_saw(const struct flw_order_clock *clock)
{
    for (uint32_t i = 0; i < clock->count; i++) {
        if (clock->at[i] > flw_clock_get(&flw_world.host_clock, i)) {
            flw_clock_join(&flw_world.host_clock, clock);
            flw_world.host_version++;
            return;
        }
    }
}

void flw_clock_host_saw_position(const struct flw_position *position)
{
    if (position->sequence > flw_clock_get(&flw_world.host_clock, position->slot)) {
        flw_clock_raise(&flw_world.host_clock, position->slot, position->sequence);
        flw_world.host_version++;
    }
}

/* ---- events */

static struct flw_event *find(CUevent handle)
{
    return flw_table_find(&flw_world.event_table, (uintptr_t)handle);
}

static void free_event(struct flw_event *event)
{
    flw_clock_finish(&event->clock);
    free(event->positions);
    free(event->capture_tips);
    free(event);
}

void flw_event_end_context(struct flw_context *context)
{
    struct flw_table *table = &flw_world.event_table;
    for (uint32_t i = 0; i < table->count; i++) {
        struct flw_event *event = table->object[i];
        if (event != NULL && event->context == context) {
            flw_table_remove(table, (uintptr_t)event->handle);
            free_event(event);
        }
    }
}

void flw_event_finish_all(void)
{
    struct flw_table *table = &flw_world.event_table;
    for (uint32_t i = 0; i < table->count; i++) {
        if (table->object[i] != NULL) {
            free_event(table->object[i]);
        }
    }
}

static void clear(struct flw_event *event)
{
    event->count = 0;
    event->done_ns = 0;
    event->capture_id = 0;
    event->capture_tip_count = 0;
}

static void note_time(struct flw_event *event)
{
    event->is_recorded = true;
    event->recorded_at_ns = flw_world.modelled_host_ns;
}

static void add_position(struct flw_event *event, const struct flw_position *position)
{
    FLW_HOST_FIT(event->positions, event->count, event->capacity);
    event->positions[event->count++] = *position;
    event->done_ns = flw_max(event->done_ns, position->done_ns);
}

static bool is_done(const struct flw_event *event)
{
    for (uint32_t i = 0; i < event->count; i++) {
        if (!flw_order_is_done(&event->positions[i])) {
            return false;
        }
    }
    return true;
}

CUresult CUDAAPI cuEventCreate(CUevent *out, unsigned flags)
{
    FLW_CALL(cuEventCreate, FLW_CALL_CONTEXT);
    unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    FLW_REFUSE_IF(out == NULL || (flags & ~known) != 0, CUDA_ERROR_INVALID_VALUE);
    /* "CU_EVENT_INTERPROCESS must be set with CU_EVENT_DISABLE_TIMING" */
    FLW_REFUSE_IF((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0,
                  CUDA_ERROR_INVALID_VALUE);
    struct flw_event *event = flw_host_get(sizeof *event);
    event->context = call.context;
    event->flags = flags;
    event->handle = (CUevent)(uintptr_t)flw_table_add(&flw_world.event_table, event);
    *out = event->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent handle)
{
    FLW_CALL(cuEventDestroy_v2, FLW_CALL_CONTEXT);
    struct flw_event *event = find(handle);
    FLW_REFUSE_IF(event == NULL, CUDA_ERROR_INVALID_HANDLE);
    /* "An event may be destroyed before it is complete": waiters have copied the positions */
    flw_table_remove(&flw_world.event_table, (uintptr_t)handle);
    free_event(event);
    return CUDA_SUCCESS;
}

static CUresult record(struct flw_stream *stream, struct flw_event *event)
{
    /* "must be from the same context otherwise ..." */
    FLW_REFUSE_IF(event->context != stream->context, CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture != NULL) {
        return flw_capture_record(stream, event);
    }
    struct flw_work work = {.kind = FLW_WORK_RECORD, .name = "event record"};
    struct flw_position position;
    CUresult result = flw_order_submit(stream, &work, &position);
    if (result == CUDA_SUCCESS) {
        clear(event);
        note_time(event);
        add_position(event, &position);
        if (flw_check_is_on()) {
            flw_clock_copy(&event->clock, &stream->clock);
        }
    }
    return result;
}

CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream_handle)
{
    FLW_CALL_ON_STREAM(cuEventRecord, FLW_CALL_CONTEXT, stream_handle);
    struct flw_event *event = find(handle);
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : record(call.stream, event);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned flags)
{
    FLW_CALL_ON_STREAM(cuEventRecord, FLW_CALL_CONTEXT, stream_handle);
    struct flw_event *event = find(handle);
    FLW_REFUSE_IF(event == NULL, CUDA_ERROR_INVALID_HANDLE);
    FLW_REFUSE_IF(flags > 1, CUDA_ERROR_INVALID_VALUE);
    /* CU_EVENT_RECORD_EXTERNAL: "This flag is invalid outside of stream capture." A node that records
     * an event is not simulated. */
    FLW_REFUSE_IF(flags == 1, call.stream->capture == NULL ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_ERROR_NOT_SUPPORTED);
    return record(call.stream, event);
}

/* Time is the virtual clock or, without one, the modelled cost of the calls before each record. */
CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
    FLW_CALL(cuEventQuery, FLW_CALL_PLAIN);
    struct flw_event *begin = find(from), *end = find(to);
    FLW_REFUSE_IF(milliseconds == NULL, CUDA_ERROR_INVALID_VALUE);
    if (begin == NULL || end == NULL || !begin->is_recorded || !end->is_recorded ||
        ((begin->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    FLW_REFUSE_IF(!is_done(begin) || !is_done(end), CUDA_ERROR_NOT_READY);
    bool on_clock = flw_world_runs_on_clock();
    double ns = on_clock ? (double)end->done_ns - (double)begin->done_ns
                         : (double)end->recorded_at_ns - (double)begin->recorded_at_ns;
    *milliseconds = (float)(ns / 1e6);
    return CUDA_SUCCESS;
}

/* "attempting cuEventQuery on an event that was last recorded inside a capture sequence" always
 * conflicts, in every mode of the thread; and "when an invalid operation is attempted during
 * stream capture, any associated capture graphs are invalidated" (the programming guide, with this
 * example). */
static CUresult usable_by_host(const struct flw_event *event)
{
    FLW_REFUSE_IF(event == NULL, CUDA_ERROR_INVALID_HANDLE);
    if (event->capture_id != 0) {
        flw_capture_kill_of_event(event);
        return CUDA_ERROR_CAPTURED_EVENT;
    }
    return event->context->sticky;
}

CUresult CUDAAPI cuEventQuery(CUevent handle)
{
    FLW_CALL(cuEventQuery, FLW_CALL_UNSAFE);
    struct flw_event *event = find(handle);
    FLW_TRY(usable_by_host(event));
    if (!is_done(event)) {
        flw_order_asked(call.thread, handle);
        return CUDA_ERROR_NOT_READY;
    }
    if (flw_check_is_on()) {
        flw_clock_host_saw(&event->clock);
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle)
{
    FLW_CALL(cuEventSynchronize, FLW_CALL_UNSAFE);
    struct flw_event *event = find(handle);
    FLW_TRY(usable_by_host(event));
    /* A wait may release the lock: another thread may destroy the event meanwhile. */
    struct flw_event held = {.count = event->count};
    held.positions = flw_host_get(event->count * sizeof *held.positions);
    for (uint32_t i = 0; i < event->count; i++) {
        held.positions[i] = event->positions[i];
    }
    flw_clock_copy(&held.clock, &event->clock);
    struct flw_context *context = event->context;
    for (uint32_t i = 0; i < held.count; i++) {
        flw_order_wait(call.thread, &held.positions[i]);
    }
    flw_clock_host_saw(&held.clock);
    flw_clock_finish(&held.clock);
    free(held.positions);
    flw_pool_host_waited();
    return context->sticky;
}

static CUresult wait_on_stream(struct flw_stream *stream, struct flw_event *event)
{
    if (stream->capture != NULL || flw_capture_of_event(event) != 0) {
        return flw_capture_wait(stream, event);
    }
    struct flw_work work = {.kind = FLW_WORK_WAIT,
                            .name = "event wait",
                            .waits = event->positions,
                            .wait_count = event->count,
                            .waits_clock = &event->clock};
    return flw_order_submit(stream, &work, NULL);
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned flags)
{
    FLW_CALL_ON_STREAM(cuStreamWaitEvent, FLW_CALL_CONTEXT, stream_handle);
    FLW_REFUSE_IF(flags > CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
    struct flw_event *event = find(handle);
    FLW_REFUSE_IF(event == NULL, CUDA_ERROR_INVALID_HANDLE);
    /* "This flag is invalid outside of stream capture." */
    FLW_REFUSE_IF(flags == CU_EVENT_WAIT_EXTERNAL && call.stream->capture == NULL,
                  CUDA_ERROR_INVALID_VALUE);
    return wait_on_stream(call.stream, event);
}

static void add_work_of(struct flw_context *context, struct flw_event *event)
{
    if (flw_world_runs_on_clock()) {
        struct flw_position all = {.done_ns = context->max_done_ns};
        add_position(event, &all);
    }
    /* By slot, not by stream: streams that were destroyed with work left count too. */
    for (uint32_t i = 0; i < flw_world.slot_count; i++) {
        const struct flw_slot *slot = &flw_world.slot[i];
        if (slot->context_id != context->id || slot->submitted == 0) {
            continue;
        }
        struct flw_position position = {.slot = i, .sequence = slot->submitted};
        if (!flw_world_runs_on_clock() && !flw_order_is_done(&position)) {
            add_position(event, &position);
        }
        if (flw_check_is_on()) {
            flw_clock_raise(&event->clock, i, slot->submitted);
        }
    }
    for (struct flw_stream *stream = context->streams; flw_check_is_on() && stream != NULL;
         stream = stream->next) {
        flw_clock_join(&event->clock, &stream->clock);
    }
}

/* "If the context passed to hCtx is the primary context, hEvent will capture all the activities of the
 * primary context and the green contexts." */
static void record_context(struct flw_context *context, struct flw_event *event)
{
    clear(event);
    note_time(event);
    flw_clock_finish(&event->clock);
    for (struct flw_context *part = NULL; (part = flw_context_next_part(context, part)) != NULL;) {
        add_work_of(part, event);
    }
}

static CUresult find_context_event(struct flw_call *call, CUcontext context_handle, CUevent handle,
                                   struct flw_context **context, struct flw_event **event)
{
    CUresult error = CUDA_SUCCESS;
    *context = context_handle == NULL ? flw_context_current(call->thread, &error)
                                      : flw_context_find(context_handle);
    *event = find(handle);
    if (*context == NULL) {
        return error != CUDA_SUCCESS ? error : CUDA_ERROR_INVALID_CONTEXT;
    }
    if ((*context)->sticky != CUDA_SUCCESS) {
        return (*context)->sticky;
    }
    FLW_REFUSE_IF(*event == NULL, CUDA_ERROR_INVALID_HANDLE);
    /* "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if the specified context hCtx has a stream in the
     * capture mode. In such a case, the call will invalidate all the conflicting captures." */
    if (flw_context_is_capturing(*context)) {
        flw_capture_kill_context(*context);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
}

FLW_SIM_NEWER(cuCtxRecordEvent, (CUcontext context_handle, CUevent handle))
{
    struct flw_context *context;
    struct flw_event *event;
    FLW_CALL(cuCtxRecordEvent, FLW_CALL_PLAIN);
    FLW_TRY(find_context_event(&call, context_handle, handle, &context, &event));
    /* "must be from the same CUDA context, otherwise ..." */
    FLW_REFUSE_IF(event->context != context, CUDA_ERROR_INVALID_HANDLE);
    record_context(context, event);
    return CUDA_SUCCESS;
}

static void make_wait(struct flw_context *context, struct flw_event *event)
{
    for (struct flw_stream *stream = context->streams; stream != NULL; stream = stream->next) {
        wait_on_stream(stream, event);
    }
}

FLW_SIM_NEWER(cuCtxWaitEvent, (CUcontext context_handle, CUevent handle))
{
    struct flw_context *context;
    struct flw_event *event;
    FLW_CALL(cuCtxWaitEvent, FLW_CALL_PLAIN);
    FLW_TRY(find_context_event(&call, context_handle, handle, &context, &event));
    if (flw_capture_of_event(event) != 0) {
        return flw_capture_wait(context->legacy, event);
    }
    for (struct flw_context *part = NULL; (part = flw_context_next_part(context, part)) != NULL;) {
        make_wait(part, event);
    }
    return CUDA_SUCCESS;
}
