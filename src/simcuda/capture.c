/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: stream capture: the streams of each capture, events that invalidate a capture, and calls
 * that a thread must not make meanwhile.
 * Does not: keep the captured work (graph.c). */
#include <stdlib.h>
#include <string.h>

#include "simcuda/host.h"
#include "simcuda/order.h"

struct flw_capture {
    struct flw_capture *next;
    uint64_t id;
    struct flw_thread *thread; /* the beginning thread */
    CUstreamCaptureMode mode;
    struct flw_stream *origin; /* NULL: destroyed */
    bool is_killed;
    struct flw_program *program;
    CUgraph graph; /* created on request */
};

static struct flw_capture *find(uint64_t id)
{
    struct flw_capture *capture = flw_world.captures;
    while (capture != NULL && capture->id != id) {
        capture = capture->next;
    }
    return capture;
}

struct flw_program *flw_capture_program(const struct flw_capture *capture)
{
    return capture->is_killed ? NULL : capture->program;
}

static void set_tips(uint32_t **to, uint32_t *to_count, const uint32_t *from, uint32_t count)
{
    *to = flw_host_resize(*to, (count + 1) * sizeof **to);
    if (count > 0) {
        memcpy(*to, from, count * sizeof **to);
    }
    *to_count = count;
}

static void enter_capture(struct flw_stream *stream, struct flw_capture *capture)
{
    stream->capture = capture;
    stream->capture_tip_count = 0;
    stream->context->capture_count++;
}

static void leave_capture(struct flw_stream *stream)
{
    stream->capture = NULL;
    stream->capture_tip_count = 0;
    stream->context->capture_count--;
}

static void end_capture(struct flw_capture *capture)
{
    for (struct flw_context *context = flw_world.contexts; context != NULL;
         context = context->next) {
        for (struct flw_stream *stream = context->streams; stream != NULL; stream = stream->next) {
            if (stream->capture == capture) {
                leave_capture(stream);
            }
        }
    }
    struct flw_capture **place = &flw_world.captures;
    while (*place != capture) {
        place = &(*place)->next;
    }
    *place = capture->next;
    flw_program_release(capture->program);
    free(capture);
}

void flw_capture_finish_all(void)
{
    while (flw_world.captures != NULL) {
        end_capture(flw_world.captures);
    }
}

void flw_capture_kill(struct flw_capture *capture)
{
    capture->is_killed = true;
}

void flw_capture_kill_of_event(const struct flw_event *event)
{
    struct flw_capture *capture = find(event->capture_id);
    if (capture != NULL) {
        flw_capture_kill(capture);
    }
}

void flw_capture_kill_context(struct flw_context *context)
{
    for (struct flw_context *part = NULL; (part = flw_context_next_part(context, part)) != NULL;) {
        for (struct flw_stream *stream = part->streams; stream != NULL; stream = stream->next) {
            if (stream->capture != NULL) {
                flw_capture_kill(stream->capture);
            }
        }
    }
}

void flw_capture_stream_ends(struct flw_stream *stream)
{
    struct flw_capture *capture = stream->capture;
    if (capture == NULL) {
        return;
    }
    flw_capture_kill(capture);
    leave_capture(stream);
    if (capture->origin == stream) {
        end_capture(capture); /* nothing else could end the capture */
    }
}

/* The thread modes of cuThreadExchangeStreamCaptureMode, word by word. */
static bool prohibits(const struct flw_capture *capture, const struct flw_thread *thread)
{
    if (thread->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) {
        return false;
    }
    if (capture->thread == thread) {
        /* "If the local thread has an ongoing capture sequence that was not initiated with
         * CU_STREAM_CAPTURE_MODE_RELAXED" */
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    }
    /* "or if any other thread has a concurrent capture sequence initiated with
     * CU_STREAM_CAPTURE_MODE_GLOBAL"; under THREAD_LOCAL those "in other threads are ignored" */
    return thread->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult flw_capture_refuse_unsafe(struct flw_thread *thread)
{
    CUresult result = CUDA_SUCCESS;
    for (struct flw_capture *capture = flw_world.captures; capture != NULL;
         capture = capture->next) {
        if (prohibits(capture, thread)) {
            flw_capture_kill(capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

/* "When a blocking stream is capturing, the legacy stream is in an unusable state" */
static CUresult legacy_conflict(const struct flw_stream *stream, bool kills)
{
    CUresult result = CUDA_SUCCESS;
    for (struct flw_stream *other = stream->context->streams; other != NULL; other = other->next) {
        if (other->capture != NULL && flw_stream_is_blocking(other)) {
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
            if (kills) {
                flw_capture_kill(other->capture);
            }
        }
    }
    return result;
}

CUresult flw_capture_refuse_legacy(struct flw_stream *stream)
{
    return legacy_conflict(stream, true);
}

CUresult flw_capture_add(struct flw_stream *stream, struct flw_work *work)
{
    struct flw_capture *capture = stream->capture;
    FLW_REFUSE_IF(capture->is_killed, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    uint32_t node =
        flw_program_add(capture->program, work, stream->capture_tips, stream->capture_tip_count);
    set_tips(&stream->capture_tips, &stream->capture_tip_count, &node, 1);
    return CUDA_SUCCESS;
}

CUresult flw_capture_record(struct flw_stream *stream, struct flw_event *event)
{
    struct flw_capture *capture = stream->capture;
    FLW_REFUSE_IF(capture->is_killed, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    event->count = 0;
    event->done_ns = 0;
    event->capture_id = capture->id;
    set_tips(&event->capture_tips, &event->capture_tip_count, stream->capture_tips,
             stream->capture_tip_count);
    return CUDA_SUCCESS;
}

uint64_t flw_capture_of_event(const struct flw_event *event)
{
    return event->capture_id;
}

static void add_tips(struct flw_stream *stream, const struct flw_event *event)
{
    for (uint32_t i = 0; i < event->capture_tip_count; i++) {
        uint32_t tip = event->capture_tips[i];
        bool is_there = false;
        for (uint32_t k = 0; k < stream->capture_tip_count; k++) {
            is_there = is_there || stream->capture_tips[k] == tip;
        }
        if (!is_there) {
            uint32_t count = stream->capture_tip_count + 1;
            stream->capture_tips =
                flw_host_resize(stream->capture_tips, count * sizeof *stream->capture_tips);
            stream->capture_tips[count - 1] = tip;
            stream->capture_tip_count = count;
        }
    }
}

CUresult flw_capture_wait(struct flw_stream *stream, struct flw_event *event)
{
    struct flw_capture *capture = stream->capture;
    struct flw_capture *other = event->capture_id != 0 ? find(event->capture_id) : NULL;
    if (capture == NULL) {
        /* the capture is over, so it represents no work */
        FLW_REFUSE_IF(other == NULL, CUDA_ERROR_CAPTURED_EVENT);
        if (stream->kind == FLW_STREAM_LEGACY) {
            flw_capture_kill(other);
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
        FLW_REFUSE_IF(other->is_killed, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        enter_capture(stream, other);
        add_tips(stream, event);
        return CUDA_SUCCESS;
    }
    FLW_REFUSE_IF(capture->is_killed, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (other == capture) {
        add_tips(stream, event);
        return CUDA_SUCCESS;
    }
    flw_capture_kill(capture);
    if (other != NULL) {
        flw_capture_kill(other);
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION; /* work outside the capture */
}

static CUresult begin(struct flw_call *call, struct flw_stream *stream, CUstreamCaptureMode mode)
{
    FLW_REFUSE_IF(mode != CU_STREAM_CAPTURE_MODE_GLOBAL &&
                      mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
                      mode != CU_STREAM_CAPTURE_MODE_RELAXED,
                  CUDA_ERROR_INVALID_VALUE);
    /* "Capture may not be initiated if stream is CU_STREAM_LEGACY." */
    FLW_REFUSE_IF(stream->kind == FLW_STREAM_LEGACY, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    /* "it may only be initiated if the stream is not already in capture mode" */
    FLW_REFUSE_IF(stream->capture != NULL, CUDA_ERROR_ILLEGAL_STATE);
    struct flw_capture *capture = flw_host_get(sizeof *capture);
    capture->id = ++flw_world.next_id;
    capture->thread = call->thread;
    capture->mode = mode;
    capture->origin = stream;
    capture->program = flw_program_make();
    capture->next = flw_world.captures;
    flw_world.captures = capture;
    enter_capture(stream, capture);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
    FLW_CALL_ON_STREAM(cuStreamBeginCapture_v2, FLW_CALL_CONTEXT, handle);
    return begin(&call, call.stream, mode);
}

/* True if all captured work precedes the origin's tips. */
static bool is_joined(const struct flw_capture *capture)
{
    const struct flw_stream *origin = capture->origin;
    for (struct flw_context *context = flw_world.contexts; context != NULL;
         context = context->next) {
        for (struct flw_stream *stream = context->streams; stream != NULL; stream = stream->next) {
            if (stream->capture != capture || stream == origin) {
                continue;
            }
            for (uint32_t i = 0; i < stream->capture_tip_count; i++) {
                if (!flw_program_is_before(capture->program, stream->capture_tips[i],
                                           origin->capture_tips, origin->capture_tip_count)) {
                    return false;
                }
            }
        }
    }
    return true;
}

static CUresult end(struct flw_call *call, struct flw_stream *stream, CUgraph *graph)
{
    struct flw_capture *capture = stream->capture;
    FLW_REFUSE_IF(graph == NULL, CUDA_ERROR_INVALID_VALUE);
    *graph = NULL;
    FLW_REFUSE_IF(capture == NULL, CUDA_ERROR_ILLEGAL_STATE);
    if (capture->origin != stream) {
        flw_capture_kill(
            capture); /* "must be ended on the same stream in which it was initiated" */
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    FLW_REFUSE_IF(capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                      capture->thread != call->thread,
                  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    CUresult result = CUDA_SUCCESS;
    if (capture->is_killed) {
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED; /* "then a NULL graph will be returned" */
    } else if (!is_joined(capture)) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    } else {
        *graph = capture->graph != NULL ? capture->graph : flw_graph_adopt(capture->program);
        capture->graph = NULL;
    }
    if (capture->graph != NULL) {
        flw_graph_end(capture->graph);
    }
    end_capture(capture);
    return result;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    FLW_CALL_ON_STREAM(cuStreamEndCapture, FLW_CALL_CONTEXT, handle);
    return end(&call, call.stream, graph);
}

static CUresult status_of(const struct flw_stream *stream, CUstreamCaptureStatus *status)
{
    /* "if this is called on CU_STREAM_LEGACY while a blocking stream in the same context is
     * capturing
     * ... CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ... The blocking stream capture is not invalidated."
     */
    if (stream->kind == FLW_STREAM_LEGACY) {
        FLW_TRY(legacy_conflict(stream, false));
    }
    *status = stream->capture == NULL      ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->is_killed ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    FLW_CALL_ON_STREAM(cuStreamIsCapturing, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(status == NULL, CUDA_ERROR_INVALID_VALUE);
    return status_of(call.stream, status);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status,
                                           cuuint64_t *id, CUgraph *graph,
                                           const CUgraphNode **dependencies,
                                           size_t *dependency_count)
{
    FLW_CALL_ON_STREAM(cuStreamGetCaptureInfo_v2, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(status == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_TRY(status_of(call.stream, status));
    if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        struct flw_capture *capture = call.stream->capture;
        if (id != NULL) {
            *id = capture->id;
        }
        if (graph != NULL) {
            if (capture->graph == NULL) {
                capture->graph = flw_graph_adopt(capture->program);
            }
            *graph = capture->graph;
        }
        if (dependencies != NULL) {
            *dependencies = NULL; /* nodes have no handles here; their number is correct */
        }
        if (dependency_count != NULL) {
            *dependency_count = dependencies != NULL ? 0 : call.stream->capture_tip_count;
        }
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    FLW_CALL(cuThreadExchangeStreamCaptureMode, FLW_CALL_PLAIN);
    FLW_REFUSE_IF(mode == NULL || (*mode != CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                   *mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
                                   *mode != CU_STREAM_CAPTURE_MODE_RELAXED),
                  CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode previous = call.thread->capture_mode;
    call.thread->capture_mode = *mode;
    *mode = previous;
    return CUDA_SUCCESS;
}
