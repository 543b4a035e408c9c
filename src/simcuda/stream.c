/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: streams: creating, finding, ending, querying. The meaning of the handles NULL, 0x1 and 0x2
 * depends on the calling thread's current context, in each call.
 * Does not: order or run a stream's work (schedule.c). */
#include <stdlib.h>

#include "simcuda/check.h"
#include "simcuda/forms.h"
#include "simcuda/host.h"
#include "simcuda/profile.h"
#include "simcuda/storage.h"

/* A slot may serve a new stream once all the work is complete and, with the checker, observed by
 * the host: the new stream's work then follows it anyway. */
static bool is_reusable(uint32_t index)
{
    const struct flw_slot *slot = &flw_world.slot[index];
    if (slot->is_taken) {
        return false;
    }
    if (!flw_world_runs_on_clock() && slot->completed != slot->submitted) {
        return false;
    }
    return !flw_check_is_on() || flw_clock_get(&flw_world.host_clock, index) >= slot->submitted;
}

static uint32_t take_slot(uint64_t stream_id, uint64_t context_id)
{
    struct flw_world *w = &flw_world;
    uint32_t index = w->vacant_slot_count > 0 ? 0 : w->slot_count;
    while (index < w->slot_count && !is_reusable(index)) {
        index++;
    }
    if (index < w->slot_count) {
        w->vacant_slot_count--;
    } else {
        if (w->slot_count == w->slot_capacity) {
            w->slot_capacity = w->slot_capacity == 0 ? 32 : w->slot_capacity * 2;
            w->slot = flw_host_resize(w->slot, w->slot_capacity * sizeof *w->slot);
        }
        w->slot[w->slot_count++] = (struct flw_slot){0};
    }
    w->slot[index].is_taken = true;
    w->slot[index].stream_id = stream_id;
    w->slot[index].context_id = context_id;
    return index;
}

struct flw_stream *flw_stream_make(struct flw_context *context, enum flw_stream_kind kind)
{
    struct flw_stream *stream = flw_host_get(sizeof *stream);
    stream->id = ++flw_world.next_id;
    stream->context = context;
    stream->kind = kind;
    stream->is_alive = true;
    stream->slot = take_slot(stream->id, context->id);
    stream->host_version = ~0ull;
    stream->next = context->streams;
    if (stream->next != NULL) {
        stream->next->previous = stream;
    }
    context->streams = stream;
    return stream;
}

void flw_stream_free(struct flw_stream *stream)
{
    flw_world.slot[stream->slot].is_taken = false;
    flw_world.vacant_slot_count++;
    flw_clock_finish(&stream->clock);
    free(stream->capture_tips);
    free(stream);
}

static void leave_thread(struct flw_stream *stream)
{
    if (stream->thread == NULL) {
        return;
    }
    struct flw_stream **place = &stream->thread->streams;
    while (*place != stream) {
        place = &(*place)->thread_next;
    }
    *place = stream->thread_next;
}

void flw_stream_end(struct flw_stream *stream)
{
    flw_capture_stream_ends(stream);
    leave_thread(stream);
    if (stream->previous != NULL) {
        stream->previous->next = stream->next;
    } else {
        stream->context->streams = stream->next;
    }
    if (stream->next != NULL) {
        stream->next->previous = stream->previous;
    }
    if (stream->handle != NULL) {
        flw_table_remove(&flw_world.stream_table, (uintptr_t)stream->handle);
    }
    stream->is_alive = false;
    if (stream->head == NULL) {
        flw_stream_free(stream);
    }
}

static struct flw_stream *find_per_thread(struct flw_thread *thread, struct flw_context *context)
{
    for (struct flw_stream *stream = thread->streams; stream != NULL;
         stream = stream->thread_next) {
        if (stream->context == context) {
            return stream;
        }
    }
    struct flw_stream *stream = flw_stream_make(context, FLW_STREAM_PER_THREAD);
    stream->thread = thread;
    stream->thread_next = thread->streams;
    thread->streams = stream;
    return stream;
}

struct flw_stream *flw_stream_find(struct flw_thread *thread, CUstream handle, CUresult *error)
{
    uintptr_t value = (uintptr_t)handle;
    struct flw_stream *stream;
    if (value <= (uintptr_t)CU_STREAM_PER_THREAD) {
        struct flw_context *context = flw_context_current(thread, error);
        if (context == NULL) {
            return NULL;
        }
        if (value == (uintptr_t)CU_STREAM_PER_THREAD) { /* a green context has none */
            stream = context->main == NULL ? find_per_thread(thread, context) : NULL;
        } else {
            stream = context->legacy;
        }
    } else {
        stream = flw_table_find(&flw_world.stream_table, value);
    }
    if (stream == NULL) {
        *error = CUDA_ERROR_INVALID_HANDLE;
        return NULL;
    }
    if (stream->context->sticky != CUDA_SUCCESS) {
        *error = stream->context->sticky;
        return NULL;
    }
    return stream;
}

CUresult flw_stream_enter(struct flw_call *call, enum flw_entry entry, unsigned needs,
                          CUstream handle)
{
    CUresult result = flw_call_enter(call, entry, needs);
    if (result == CUDA_SUCCESS) {
        call->stream = flw_stream_find(call->thread, handle, &result);
    }
    return result;
}

/* "lower numbers imply greater priorities" */
enum {
    LEAST = 0,
    GREATEST = -5
};

CUresult flw_stream_create(struct flw_context *context, CUstream *out, unsigned flags, int priority)
{
    FLW_REFUSE_IF(out == NULL || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0,
                  CUDA_ERROR_INVALID_VALUE);
    struct flw_stream *stream =
        flw_stream_make(context, flags != 0 ? FLW_STREAM_NON_BLOCKING : FLW_STREAM_BLOCKING);
    stream->flags = flags;
    stream->priority = priority > LEAST      ? LEAST
                       : priority < GREATEST ? GREATEST
                                             : priority; /* "the clamped priority" */
    stream->handle = (CUstream)(uintptr_t)flw_table_add(&flw_world.stream_table, stream);
    *out = stream->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned flags)
{
    FLW_CALL(cuStreamCreate, FLW_CALL_CONTEXT);
    return flw_stream_create(call.context, stream, flags, 0);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    FLW_CALL(cuStreamCreateWithPriority, FLW_CALL_CONTEXT);
    return flw_stream_create(call.context, stream, flags, priority);
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    FLW_CALL(cuCtxGetDevice, FLW_CALL_CONTEXT);
    if (least != NULL) {
        *least = LEAST;
    }
    if (greatest != NULL) {
        *greatest = GREATEST;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream handle)
{
    FLW_CALL(cuStreamDestroy_v2, FLW_CALL_CONTEXT);
    struct flw_stream *stream = flw_table_find(&flw_world.stream_table, (uintptr_t)handle);
    FLW_REFUSE_IF(stream == NULL, CUDA_ERROR_INVALID_HANDLE);
    /* "the function will return immediately and the resources associated with hStream will be
     * released automatically once the device has completed all work in hStream" */
    flw_stream_end(stream);
    return CUDA_SUCCESS;
}

/* Queries and waits are not permitted in a capture: they invalidate it. */
static CUresult refuse_capturing(struct flw_stream *stream)
{
    if (stream->capture != NULL) {
        flw_capture_kill(stream->capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return stream->kind == FLW_STREAM_LEGACY ? flw_capture_refuse_legacy(stream) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamQuery(CUstream handle)
{
    FLW_CALL_ON_STREAM(cuStreamQuery, FLW_CALL_CONTEXT, handle);
    FLW_TRY(refuse_capturing(call.stream));
    struct flw_position last = flw_order_last(call.stream);
    struct flw_context *context = call.stream->context;
    if (!flw_order_is_done(&last)) {
        flw_order_asked(call.thread, handle);
        return CUDA_ERROR_NOT_READY;
    }
    if (flw_check_is_on()) {
        flw_clock_host_saw(&call.stream->clock);
    }
    return context->sticky;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle)
{
    FLW_CALL_ON_STREAM(cuStreamSynchronize, FLW_CALL_CONTEXT, handle);
    FLW_TRY(refuse_capturing(call.stream));
    struct flw_position last = flw_order_last(call.stream);
    struct flw_context *context = call.stream->context;
    struct flw_order_clock clock = {0};
    if (flw_check_is_on()) {
        flw_clock_copy(&clock, &call.stream->clock);
    }
    flw_order_wait(call.thread, &last);
    flw_clock_host_saw(&clock);
    flw_clock_finish(&clock);
    flw_pool_host_waited();
    return context->sticky;
}

CUresult CUDAAPI cuStreamGetId(CUstream handle, unsigned long long *id)
{
    FLW_CALL_ON_STREAM(cuStreamGetId, FLW_CALL_IDS, handle);
    FLW_REFUSE_IF(id == NULL, CUDA_ERROR_INVALID_VALUE);
    *id = call.stream->id;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    FLW_CALL_ON_STREAM(cuStreamGetCtx, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(context == NULL, CUDA_ERROR_INVALID_VALUE);
    *context = call.stream->context->handle;
    return CUDA_SUCCESS;
}

FLW_SIM_NEWER(cuStreamGetGreenCtx, (CUstream handle, CUgreenCtx *green))
{
    FLW_CALL_ON_STREAM(cuStreamGetGreenCtx, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(green == NULL, CUDA_ERROR_INVALID_VALUE);
    *green = flw_context_green(call.stream->context);
    return CUDA_SUCCESS;
}

/* "the API returns the green context in pGreenCtx and the primary context of the associated device in pCtx" */
FLW_SIM_NEWER(cuStreamGetCtx_v2, (CUstream handle, CUcontext *context, CUgreenCtx *green))
{
    FLW_CALL_ON_STREAM(cuStreamGetCtx, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(context == NULL || green == NULL, CUDA_ERROR_INVALID_VALUE);
    *context = flw_context_owner(call.stream->context)->handle;
    *green = flw_context_green(call.stream->context);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned *flags)
{
    FLW_CALL_ON_STREAM(cuStreamGetId, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(flags == NULL, CUDA_ERROR_INVALID_VALUE);
    *flags = call.stream->flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int *priority)
{
    FLW_CALL_ON_STREAM(cuStreamGetId, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(priority == NULL, CUDA_ERROR_INVALID_VALUE);
    *priority = call.stream->priority;
    return CUDA_SUCCESS;
}

FLW_SIM_NEWER(cuStreamGetDevice, (CUstream handle, CUdevice *device))
{
    FLW_CALL_ON_STREAM(cuStreamGetId, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(device == NULL, CUDA_ERROR_INVALID_VALUE);
    *device = call.stream->context->device->ordinal;
    return CUDA_SUCCESS;
}

/* Managed memory is host memory that every stream may use: attaching has no effect. "dptr must be a
 * pointer to memory allocated using the __managed__ keyword or cuMemAllocManaged()" */
CUresult CUDAAPI cuStreamAttachMemAsync(CUstream handle, CUdeviceptr pointer, size_t bytes,
                                        unsigned flags)
{
    FLW_CALL_ON_STREAM(cuStreamGetId, FLW_CALL_CONTEXT, handle);
    const struct flw_region *region = flw_region_find(pointer);
    (void)bytes;
    return region == NULL || region->kind != FLW_REGION_MANAGED ||
                   (flags != 1 && flags != 2 && flags != 4)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

static void run_callback(void *argument)
{
    const struct flw_callback *callback = argument;
    callback->function(callback->stream, callback->status, callback->argument);
}

CUresult CUDAAPI cuStreamAddCallback(CUstream handle, CUstreamCallback function, void *argument,
                                     unsigned flags)
{
    FLW_CALL_ON_STREAM(cuLaunchHostFunc, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(function == NULL || flags != 0, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(call.stream->capture != NULL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct flw_callback *callback = flw_host_get(sizeof *callback);
    *callback = (struct flw_callback){function, handle, argument, CUDA_SUCCESS};
    struct flw_work work = {.kind = FLW_WORK_HOST,
                            .name = "callback",
                            .function = run_callback,
                            .argument = callback,
                            .callback = callback};
    CUresult result = flw_order_submit(call.stream, &work, NULL);
    if (result != CUDA_SUCCESS) {
        free(callback);
    }
    return result;
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void *argument)
{
    FLW_CALL_ON_STREAM(cuLaunchHostFunc, FLW_CALL_CONTEXT, handle);
    FLW_REFUSE_IF(function == NULL, CUDA_ERROR_INVALID_VALUE);
    struct flw_work work = {
        .kind = FLW_WORK_HOST, .name = "host function", .function = function, .argument = argument};
    return flw_order_submit(call.stream, &work, NULL);
}
