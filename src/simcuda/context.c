/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: contexts: primary, explicit and green ones, each thread's stack of current ones, their
 * end.
 * Does not: implement the contents of a context.
 *
 * A dead context's object stays until the world ends, because a thread may still have it as the
 * current one; the handle is reused at once. */
#include <stdlib.h>
#include <string.h>

#include "simcuda/forms.h"
#include "simcuda/host.h"
#include "simcuda/order.h"
#include "simcuda/storage.h"

/* Limits without an effect here, except that they are remembered. */
static const size_t default_limits[FLW_LIMIT_COUNT] = {
    [CU_LIMIT_STACK_SIZE] = 1024,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
};

static struct flw_context *make_context(struct flw_device *device, bool is_primary, unsigned flags)
{
    struct flw_context *context = flw_host_get(sizeof *context);
    context->id = ++flw_world.next_id;
    context->device = device;
    context->is_alive = true;
    context->is_primary = is_primary;
    context->flags = flags;
    memcpy(context->limit, default_limits, sizeof context->limit);
    context->handle = (CUcontext)(uintptr_t)flw_table_add(&flw_world.context_table, context);
    context->legacy = flw_stream_make(context, FLW_STREAM_LEGACY);
    context->next = flw_world.contexts;
    flw_world.contexts = context;
    flw_world.context_count++;
    return context;
}

struct flw_context *flw_context_next_part(struct flw_context *whole, struct flw_context *after)
{
    struct flw_context *next = after == NULL ? whole : NULL;
    if (after != NULL) {
        next = after == whole ? flw_world.contexts : after->next;
        while (next != NULL && (next->main != whole || !next->is_alive)) {
            next = next->next;
        }
    }
    return next;
}

bool flw_context_is_capturing(struct flw_context *context)
{
    unsigned count = 0;
    for (struct flw_context *part = NULL; (part = flw_context_next_part(context, part)) != NULL;) {
        count += part->capture_count;
    }
    return count != 0;
}

/* A green context ends with the primary one. */
static void end_context(struct flw_thread *thread, struct flw_context *context)
{
    struct flw_context *green;
    while ((green = flw_context_next_part(context, context)) != NULL) {
        end_context(thread, green);
    }
    flw_capture_kill_context(context);
    flw_order_wait_context(thread, context);
    /* "Destroys and cleans up all resources associated with the context" (cuCtxDestroy) */
    context->is_alive = false;
    while (context->streams != NULL) {
        flw_stream_end(context->streams);
    }
    context->legacy = NULL;
    flw_event_end_context(context);
    flw_memory_end_context(context);
    flw_table_remove(&flw_world.context_table, (uintptr_t)context->handle);
    flw_world.context_count--;
}

void flw_context_finish_all(void)
{
    while (flw_world.contexts != NULL) {
        struct flw_context *context = flw_world.contexts;
        flw_world.contexts = context->next;
        while (context->streams != NULL) {
            flw_stream_end(context->streams);
        }
        free(context->peers);
        free(context);
    }
}

struct flw_context *flw_context_find(CUcontext handle)
{
    return flw_table_find(&flw_world.context_table, (uintptr_t)handle);
}

struct flw_context *flw_context_current(struct flw_thread *thread, CUresult *error)
{
    struct flw_context *context = thread->depth > 0 ? thread->stack[thread->depth - 1] : NULL;
    if (context == NULL) {
        *error = CUDA_ERROR_INVALID_CONTEXT;
        return NULL;
    }
    if (!context->is_alive) {
        /* "attempting to access ctx from those threads will result in the error
         * CUDA_ERROR_CONTEXT_IS_DESTROYED" (cuCtxDestroy) */
        *error = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        return NULL;
    }
    return context;
}

void flw_context_break(struct flw_context *context, CUresult error)
{
    if (context->sticky == CUDA_SUCCESS && !flw_world_is_mild(FLW_SIM_MILD_STICKY)) {
        context->sticky = error;
    }
}

static void push(struct flw_thread *thread, struct flw_context *context)
{
    FLW_HOST_FIT(thread->stack, thread->depth, thread->capacity);
    thread->stack[thread->depth++] = context;
}

static struct flw_context *retain_primary(struct flw_device *device)
{
    if (device->primary == NULL) {
        device->primary = make_context(device, true, device->primary_flags);
    }
    device->primary_retain_count++;
    return device->primary;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    FLW_CALL_ON_DEVICE(cuDevicePrimaryCtxRetain, FLW_CALL_PLAIN, device);
    FLW_REFUSE_IF(context == NULL, CUDA_ERROR_INVALID_VALUE);
    *context = retain_primary(call.device)->handle;
    return CUDA_SUCCESS;
}

static void reset_primary(struct flw_thread *thread, struct flw_device *device)
{
    struct flw_context *context = device->primary;
    if (context != NULL) {
        device->primary = NULL;
        end_context(thread, context);
    }
}

/* "The context is automatically reset once the last reference to it is released." */
static void release_primary(struct flw_thread *thread, struct flw_device *device)
{
    if (--device->primary_retain_count == 0) {
        reset_primary(thread, device);
    }
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    FLW_CALL_ON_DEVICE(cuDevicePrimaryCtxRelease_v2, FLW_CALL_PLAIN, device);
    /* "Releasing a primary context that has not been previously retained will fail with
     * CUDA_ERROR_INVALID_CONTEXT." */
    FLW_REFUSE_IF(call.device->primary_retain_count == 0, CUDA_ERROR_INVALID_CONTEXT);
    release_primary(call.thread, call.device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    FLW_CALL_ON_DEVICE(cuDevicePrimaryCtxGetState, FLW_CALL_PLAIN, device);
    FLW_REFUSE_IF(flags == NULL || active == NULL, CUDA_ERROR_INVALID_VALUE);
    *flags = call.device->primary_flags;
    *active = call.device->primary != NULL;
    return CUDA_SUCCESS;
}

/* The scheduling flags are 0, 1, 2 and 4; the others are single bits. */
static bool are_context_flags(unsigned flags)
{
    unsigned schedule = flags & 7;
    return flags <= 0xff && (schedule & (schedule - 1)) == 0;
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
    FLW_CALL_ON_DEVICE(cuDevicePrimaryCtxGetState, FLW_CALL_PLAIN, device);
    FLW_REFUSE_IF(!are_context_flags(flags), CUDA_ERROR_INVALID_VALUE);
    call.device->primary_flags = flags;
    if (call.device->primary != NULL) {
        call.device->primary->flags = flags;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    FLW_CALL_ON_DEVICE(cuDevicePrimaryCtxReset_v2, FLW_CALL_PLAIN, device);
    /* "Resetting the primary context does not release it": the count stays. */
    reset_primary(call.thread, call.device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    FLW_CALL_ON_DEVICE(cuCtxCreate_v2, FLW_CALL_PLAIN, device);
    FLW_REFUSE_IF(context == NULL, CUDA_ERROR_INVALID_VALUE);
    struct flw_context *made = make_context(call.device, false, flags);
    push(call.thread, made); /* "and associates it with the calling thread" */
    *context = made->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context)
{
    FLW_CALL(cuCtxDestroy_v2, FLW_CALL_PLAIN);
    struct flw_context *found = flw_context_find(context);
    FLW_REFUSE_IF(context == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(found == NULL || found->is_primary, CUDA_ERROR_INVALID_CONTEXT);
    /* "If ctx is current to the calling thread then ctx will also be popped" */
    struct flw_thread *thread = call.thread;
    if (thread->depth > 0 && thread->stack[thread->depth - 1] == found) {
        thread->depth--;
    }
    end_context(thread, found);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context)
{
    FLW_CALL(cuCtxPushCurrent_v2, FLW_CALL_PLAIN);
    struct flw_context *found = flw_context_find(context);
    FLW_REFUSE_IF(found == NULL, CUDA_ERROR_INVALID_CONTEXT);
    push(call.thread, found);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *context)
{
    FLW_CALL(cuCtxPopCurrent_v2, FLW_CALL_PLAIN);
    FLW_REFUSE_IF(call.thread->depth == 0, CUDA_ERROR_INVALID_CONTEXT);
    struct flw_context *top = call.thread->stack[--call.thread->depth];
    if (context != NULL) {
        *context = top != NULL ? top->handle : NULL;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    FLW_CALL(cuCtxSetCurrent, FLW_CALL_PLAIN);
    struct flw_context *found = flw_context_find(context);
    struct flw_thread *thread = call.thread;
    FLW_REFUSE_IF(context != NULL && found == NULL, CUDA_ERROR_INVALID_CONTEXT);
    /* "If there exists a CUDA context stack on the calling CPU thread, this will replace the
     * top of that stack with ctx. If ctx is NULL then this will be equivalent to popping the
     * top" */
    if (thread->depth > 0) {
        thread->depth--;
    }
    if (found != NULL) {
        push(thread, found);
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *context)
{
    FLW_CALL(cuCtxGetCurrent, FLW_CALL_PLAIN);
    FLW_REFUSE_IF(context == NULL, CUDA_ERROR_INVALID_VALUE);
    /* "If no context is bound to the calling CPU thread then *pctx is set to NULL" */
    struct flw_thread *thread = call.thread;
    *context = thread->depth > 0 ? thread->stack[thread->depth - 1]->handle : NULL;
    return CUDA_SUCCESS;
}

/* ---- peers */

/* Return the place of a peer's id in the context; peer_count: none. */
static unsigned find_peer(const struct flw_context *context, const struct flw_context *peer)
{
    unsigned place = 0;
    while (place < context->peer_count && context->peers[place] != peer->id) {
        place++;
    }
    return place;
}

bool flw_context_reaches(const struct flw_context *context, const struct flw_context *other)
{
    context = context->main != NULL ? context->main : context;
    return context->device == other->device || find_peer(context, other) < context->peer_count;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    FLW_CALL(cuCtxEnablePeerAccess, FLW_CALL_CONTEXT);
    struct flw_context *context = flw_context_owner(call.context), *found = flw_context_find(peer);
    FLW_REFUSE_IF(flags != 0, CUDA_ERROR_INVALID_VALUE);
    /* "if there is no current context, peerContext is not a valid context, or if the current context is
     * peerContext" */
    FLW_REFUSE_IF(found == NULL || found == context, CUDA_ERROR_INVALID_CONTEXT);
    FLW_REFUSE_IF(context->device == found->device ||
                      !flw_device_reaches(context->device->ordinal, found->device->ordinal),
                  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    FLW_REFUSE_IF(find_peer(context, found) < context->peer_count,
                  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    FLW_HOST_FIT(context->peers, context->peer_count, context->peer_capacity);
    context->peers[context->peer_count++] = found->id;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer)
{
    FLW_CALL(cuCtxDisablePeerAccess, FLW_CALL_CONTEXT);
    struct flw_context *context = flw_context_owner(call.context), *found = flw_context_find(peer);
    FLW_REFUSE_IF(found == NULL, CUDA_ERROR_INVALID_CONTEXT);
    unsigned place = find_peer(context, found);
    FLW_REFUSE_IF(place == context->peer_count, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    context->peers[place] = context->peers[--context->peer_count];
    flw_world.region_version++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device)
{
    FLW_CALL(cuCtxGetDevice, FLW_CALL_PLAIN);
    FLW_REFUSE_IF(device == NULL, CUDA_ERROR_INVALID_VALUE);
    CUresult result = CUDA_SUCCESS;
    struct flw_context *context = flw_context_current(call.thread, &result);
    if (context != NULL) {
        *device = context->device->ordinal;
    }
    return result;
}

FLW_SIM_NEWER(cuCtxGetDevice_v2, (CUdevice * device, CUcontext handle))
{
    if (handle == NULL) {
        return cuCtxGetDevice(device);
    }
    FLW_CALL(cuCtxGetDevice, FLW_CALL_PLAIN);
    struct flw_context *context = flw_context_find(handle);
    FLW_REFUSE_IF(device == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(context == NULL, CUDA_ERROR_INVALID_CONTEXT);
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}

/* ---- settings of a context */

/* "If ctx is NULL, returns the API version used to create the currently bound context." */
CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned *version)
{
    FLW_CALL(cuCtxGetDevice, FLW_CALL_PLAIN);
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    struct flw_context *found =
        handle == NULL ? flw_context_current(call.thread, &result) : flw_context_find(handle);
    FLW_REFUSE_IF(version == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(found == NULL, result);
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetFlags(unsigned *flags)
{
    FLW_CALL(cuCtxGetDevice, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF(flags == NULL, CUDA_ERROR_INVALID_VALUE);
    *flags = call.context->flags;
    return CUDA_SUCCESS;
}

FLW_SIM_NEWER(cuCtxSetFlags, (unsigned flags))
{
    FLW_CALL(cuCtxGetDevice, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF(!are_context_flags(flags), CUDA_ERROR_INVALID_VALUE);
    call.context->flags = flags;
    return CUDA_SUCCESS;
}

static CUresult enter_limit(CUlimit limit)
{
    FLW_REFUSE_IF((unsigned)limit >= FLW_LIMIT_COUNT, CUDA_ERROR_INVALID_VALUE);
    /* "This limit is only applicable to devices of compute capability < 9.0." */
    return limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetLimit(size_t *value, CUlimit limit)
{
    FLW_CALL(cuCtxGetDevice, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF(value == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_TRY(enter_limit(limit));
    *value = call.context->limit[limit];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value)
{
    FLW_CALL(cuCtxGetDevice, FLW_CALL_CONTEXT);
    FLW_TRY(enter_limit(limit));
    call.context->limit[limit] = value;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache *config)
{
    FLW_CALL(cuCtxGetDevice, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF(config == NULL, CUDA_ERROR_INVALID_VALUE);
    *config = call.context->cache_config;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config)
{
    FLW_CALL(cuCtxGetDevice, FLW_CALL_CONTEXT);
    FLW_REFUSE_IF((unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE);
    call.context->cache_config = config;
    return CUDA_SUCCESS;
}

/* There is no cache: nothing persists. */
CUresult CUDAAPI cuCtxResetPersistingL2Cache(void)
{
    FLW_CALL(cuCtxGetDevice, FLW_CALL_CONTEXT);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetId(CUcontext context, unsigned long long *id)
{
    FLW_CALL(cuCtxGetId, FLW_CALL_IDS);
    FLW_REFUSE_IF(id == NULL, CUDA_ERROR_INVALID_VALUE);
    /* "If context is supplied as NULL and there is one current, the Id of the current context" */
    CUresult result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    struct flw_context *found =
        context == NULL ? flw_context_current(call.thread, &result) : flw_context_find(context);
    if (found == NULL) {
        return result;
    }
    *id = found->id;
    return CUDA_SUCCESS;
}

static CUresult synchronize(struct flw_call *call, struct flw_context *context)
{
    if (flw_context_is_capturing(context)) {
        flw_capture_kill_context(context);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    /* "If the current context is the primary context, green contexts that have been created will also be
     * synchronized." */
    for (struct flw_context *part = NULL; (part = flw_context_next_part(context, part)) != NULL;) {
        flw_order_wait_context(call->thread, part);
    }
    flw_pool_host_waited();
    return context->sticky; /* "returns an error if one of the preceding tasks failed" */
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
    FLW_CALL(cuCtxSynchronize, FLW_CALL_CONTEXT | FLW_CALL_UNSAFE);
    return synchronize(&call, call.context);
}

/* "If the specified context is NULL, the API will operate on the current context." */
FLW_SIM_NEWER(cuCtxSynchronize_v2, (CUcontext handle))
{
    if (handle == NULL) {
        return cuCtxSynchronize();
    }
    FLW_CALL(cuCtxSynchronize, FLW_CALL_UNSAFE);
    struct flw_context *context = flw_context_find(handle);
    FLW_REFUSE_IF(context == NULL, CUDA_ERROR_INVALID_CONTEXT);
    return synchronize(&call, context);
}

/* ---- green contexts: a part of the device under the primary context. The number of
 * multiprocessors is not modelled. Streams end with the green context; a driver keeps them and
 * returns CUDA_ERROR_CONTEXT_IS_DESTROYED. */

#define GREEN_TAG    8ull /* a green handle is the context's plus this: no context has this value */
#define SM_COUNT_AT  96   /* offset in a CUdevResource, behind the type and padding */
#define RESOURCE_END 144

CUgreenCtx flw_context_green(const struct flw_context *context)
{
    return context->main == NULL ? NULL : (CUgreenCtx)((uintptr_t)context->handle + GREEN_TAG);
}

static struct flw_context *find_green(CUgreenCtx green)
{
    struct flw_context *context = flw_context_find((CUcontext)((uintptr_t)green - GREEN_TAG));
    return context != NULL && context->main != NULL ? context : NULL;
}

/* Every context has the whole device. */
static CUresult get_resource(struct CUdevResource_st *resource, CUdevResourceType type)
{
    FLW_REFUSE_IF(resource == NULL || type != CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_VALUE);
    unsigned count = FLW_MULTIPROCESSORS;
    memset((void *)resource, 0, RESOURCE_END);
    memcpy((void *)resource, &type, sizeof type);
    memcpy((unsigned char *)resource + SM_COUNT_AT, &count, sizeof count);
    return CUDA_SUCCESS;
}

FLW_SIM_NEWER(cuDeviceGetDevResource,
              (CUdevice device, struct CUdevResource_st *resource, CUdevResourceType type))
{
    FLW_CALL_ON_DEVICE(cuCtxFromGreenCtx, FLW_CALL_SILENT, device);
    return get_resource(resource, type);
}

FLW_SIM_NEWER(cuCtxGetDevResource,
              (CUcontext handle, struct CUdevResource_st *resource, CUdevResourceType type))
{
    FLW_CALL(cuCtxFromGreenCtx, FLW_CALL_SILENT);
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    struct flw_context *found =
        handle == NULL ? flw_context_current(call.thread, &result) : flw_context_find(handle);
    return found == NULL ? result : get_resource(resource, type);
}

FLW_SIM_NEWER(cuGreenCtxGetDevResource,
              (CUgreenCtx green, struct CUdevResource_st *resource, CUdevResourceType type))
{
    FLW_CALL(cuCtxFromGreenCtx, FLW_CALL_SILENT);
    FLW_REFUSE_IF(find_green(green) == NULL, CUDA_ERROR_INVALID_CONTEXT);
    return get_resource(resource, type);
}

/* The result is the whole device, whatever the resources are. */
FLW_SIM_NEWER(cuDevResourceGenerateDesc,
              (CUdevResourceDesc * descriptor, struct CUdevResource_st *resources, unsigned count))
{
    static unsigned char whole_device;
    FLW_REFUSE_IF(descriptor == NULL || resources == NULL || count == 0, CUDA_ERROR_INVALID_VALUE);
    *descriptor = (CUdevResourceDesc)(void *)&whole_device;
    return CUDA_SUCCESS;
}

FLW_SIM_NEWER(cuGreenCtxCreate,
              (CUgreenCtx * green, CUdevResourceDesc descriptor, CUdevice device, unsigned flags))
{
    FLW_CALL_ON_DEVICE(cuCtxFromGreenCtx, FLW_CALL_SILENT, device);
    FLW_REFUSE_IF(green == NULL || descriptor == NULL || flags != CU_GREEN_CTX_DEFAULT_STREAM,
                  CUDA_ERROR_INVALID_VALUE);
    /* "This API will retain the primary context on device" */
    struct flw_context *made = make_context(call.device, false, 0);
    made->main = retain_primary(call.device);
    *green = flw_context_green(made);
    return CUDA_SUCCESS;
}

FLW_SIM_NEWER(cuGreenCtxDestroy, (CUgreenCtx green))
{
    FLW_CALL(cuCtxFromGreenCtx, FLW_CALL_SILENT);
    struct flw_context *found = find_green(green);
    FLW_REFUSE_IF(found == NULL, CUDA_ERROR_INVALID_CONTEXT);
    /* "Destroys the green context, releasing the primary context of the device" */
    end_context(call.thread, found);
    release_primary(call.thread, found->device);
    return CUDA_SUCCESS;
}

FLW_SIM_NEWER(cuCtxFromGreenCtx, (CUcontext * context, CUgreenCtx green))
{
    FLW_CALL(cuCtxFromGreenCtx, FLW_CALL_PLAIN);
    struct flw_context *found = find_green(green);
    if (found == NULL || context == NULL) {
        return found == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
    }
    *context = found->handle;
    return CUDA_SUCCESS;
}

/* "the API ignores the context that is current to the calling thread" */
FLW_SIM_NEWER(cuGreenCtxStreamCreate,
              (CUstream * stream, CUgreenCtx green, unsigned flags, int priority))
{
    FLW_CALL(cuCtxFromGreenCtx, FLW_CALL_SILENT);
    struct flw_context *found = find_green(green);
    FLW_REFUSE_IF(found == NULL, CUDA_ERROR_INVALID_CONTEXT);
    FLW_REFUSE_IF(flags != CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    return flw_stream_create(found, stream, flags, priority);
}
