/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about contexts: primary, explicit and current ones, identities, calls without
 * one.
 */
#include <string.h>

#define MODULE "context"
#include "conformance.h"

HEADER(calls_need_a_current_context, "CUDA_ERROR_INVALID_CONTEXT")
{
    const struct flw_driver *cu = b->cu;
    CUdeviceptr address = 0;
    CUstream stream = NULL;
    CUevent event = NULL;
    OK(cu->cuCtxSetCurrent(NULL));
    IS(CUDA_ERROR_INVALID_CONTEXT, cu->cuMemAlloc_v2(&address, 4096));
    IS(CUDA_ERROR_INVALID_CONTEXT, cu->cuStreamCreate(&stream, 0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cu->cuEventCreate(&event, 0));
    IS(CUDA_ERROR_INVALID_CONTEXT, cu->cuCtxSynchronize());
    OK(cu->cuCtxSetCurrent(b->context));
}

static void none_is_current_in_a_new_thread_body(struct bed *b, void *argument)
{
    CUcontext current = b->context;
    (void)argument;
    OK(b->cu->cuCtxSetCurrent(NULL));
    OK(b->cu->cuCtxGetCurrent(&current));
    THAT(current == NULL);
}

HEADER(none_is_current_after_unbinding,
       "If no context is bound to the calling CPU thread then *pctx is set to NULL and")
{
    bed_on_thread(b, none_is_current_in_a_new_thread_body, NULL);
    CUcontext current = NULL;
    OK(b->cu->cuCtxGetCurrent(&current));
    THAT(current == b->context); /* currency is the thread's own */
}

HEADER(push_and_pop_are_a_stack, "this function makes that context current to the CPU thread again")
{
    const struct flw_driver *cu = b->cu;
    CUcontext made = NULL, current = NULL, popped = NULL;
    NEED(bed_has(b, cu->cuCtxCreate_v2 != NULL));
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuCtxGetCurrent(&current));
    THAT(current == made);
    OK(cu->cuCtxPushCurrent_v2(b->context));
    OK(cu->cuCtxGetCurrent(&current));
    THAT(current == b->context);
    OK(cu->cuCtxPopCurrent_v2(&popped));
    THAT(popped == b->context);
    OK(cu->cuCtxGetCurrent(&current));
    THAT(current == made);
    OK(cu->cuCtxDestroy_v2(made));
    OK(cu->cuCtxGetCurrent(&current));
    THAT(current == b->context); /* popped at the end */
}

HEADER(set_current_replaces_the_top, "this will replace the top of that stack with ctx")
{
    const struct flw_driver *cu = b->cu;
    CUcontext made = NULL, current = NULL;
    NEED(bed_has(b, cu->cuCtxCreate_v2 != NULL));
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuCtxSetCurrent(b->context));
    OK(cu->cuCtxGetCurrent(&current));
    THAT(current == b->context);
    OK(cu->cuCtxPopCurrent_v2(NULL));
    OK(cu->cuCtxGetCurrent(&current));
    THAT(current == b->context); /* the one below */
    OK(cu->cuCtxDestroy_v2(made));
}

HEADER(set_current_null_on_an_empty_stack_is_fine,
       "a no-op if the calling CPU thread's CUDA context stack is empty")
{
    const struct flw_driver *cu = b->cu;
    CUcontext current = b->context;
    OK(cu->cuCtxSetCurrent(NULL));
    OK(cu->cuCtxSetCurrent(NULL));
    OK(cu->cuCtxGetCurrent(&current));
    THAT(current == NULL);
    IS(CUDA_ERROR_INVALID_CONTEXT, cu->cuCtxPopCurrent_v2(&current));
    OK(cu->cuCtxSetCurrent(b->context));
}

HEADER(current_device_is_the_contexts,
       "Returns in *device the handle of the specified context's device")
{
    CUdevice device = -1;
    OK(b->cu->cuCtxGetDevice(&device));
    THAT(device == b->device);
    OK(b->cu->cuCtxSetCurrent(NULL));
    IS(CUDA_ERROR_INVALID_CONTEXT, b->cu->cuCtxGetDevice(&device));
    OK(b->cu->cuCtxSetCurrent(b->context));
}

HEADER(retaining_gives_the_same_context_and_pushes_nothing,
       "the newly retained context is not pushed onto the stack")
{
    const struct flw_driver *cu = b->cu;
    CUcontext again = NULL, current = b->context;
    OK(cu->cuCtxSetCurrent(NULL));
    OK(cu->cuDevicePrimaryCtxRetain(&again, b->device));
    THAT(again == b->context);
    OK(cu->cuCtxGetCurrent(&current));
    THAT(current == NULL);
    OK(cu->cuDevicePrimaryCtxRelease_v2(b->device));
    OK(cu->cuCtxSetCurrent(b->context));
}

HEADER(primary_state_says_active, "and in *active whether it is active")
{
    unsigned flags = 0;
    int active = -1;
    NEED(bed_has(b, b->cu->cuDevicePrimaryCtxGetState != NULL));
    OK(b->cu->cuDevicePrimaryCtxGetState(b->device, &flags, &active));
    THAT(active == 1);
}

HEADER(primary_cannot_be_released_more_often_than_retained,
       "Releasing a primary context that has not been previously retained will fail with")
{
    const struct flw_driver *cu = b->cu;
    OK(cu->cuCtxSetCurrent(NULL));
    OK(cu->cuDevicePrimaryCtxRelease_v2(b->device));
    IS(CUDA_ERROR_INVALID_CONTEXT, cu->cuDevicePrimaryCtxRelease_v2(b->device));
    OK(cu->cuDevicePrimaryCtxRetain(&b->context, b->device));
    OK(cu->cuCtxSetCurrent(b->context));
}

RISKY(primary_reset_ends_its_memory_and_identity,
      "Resetting the primary context does not release it")
{
    const struct flw_driver *cu = b->cu;
    unsigned long long before = 0, after = 0;
    CUdeviceptr address = 0;
    NEED(bed_has(b, cu->cuDevicePrimaryCtxReset_v2 != NULL && cu->cuCtxGetId != NULL));
    OK(cu->cuCtxGetId(b->context, &before));
    OK(cu->cuMemAlloc_v2(&address, 1 << 20));
    OK(cu->cuCtxSetCurrent(NULL));
    OK(cu->cuDevicePrimaryCtxReset_v2(b->device));
    OK(cu->cuDevicePrimaryCtxRelease_v2(b->device)); /* the retain of before still counted */
    OK(cu->cuDevicePrimaryCtxRetain(&b->context, b->device));
    OK(cu->cuCtxSetCurrent(b->context));
    OK(cu->cuCtxGetId(b->context, &after));
    THAT(before != after);
    IS(CUDA_ERROR_INVALID_VALUE, cu->cuMemFree_v2(address));
}

HEADER(ids_are_unique_for_the_life_of_the_program, "The Id is unique for the life of the program")
{
    const struct flw_driver *cu = b->cu;
    unsigned long long first = 0, second = 0, own = 0, current = 0;
    CUcontext made = NULL;
    NEED(bed_has(b, cu->cuCtxGetId != NULL && cu->cuCtxCreate_v2 != NULL));
    OK(cu->cuCtxGetId(b->context, &own));
    OK(cu->cuCtxGetId(NULL, &current));
    THAT(own == current);
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuCtxGetId(made, &first));
    OK(cu->cuCtxDestroy_v2(made));
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuCtxGetId(made, &second));
    OK(cu->cuCtxDestroy_v2(made));
    THAT(first != second && first != own && second != own);
}

HEADER(a_destroyed_context_takes_its_memory_along,
       "These resources also include memory allocations by cuMemAlloc()")
{
    const struct flw_driver *cu = b->cu;
    CUcontext made = NULL;
    CUdeviceptr address = 0;
    NEED(bed_has(b, cu->cuCtxCreate_v2 != NULL));
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuMemAlloc_v2(&address, 1 << 20));
    OK(cu->cuCtxDestroy_v2(made));
    IS(CUDA_ERROR_INVALID_VALUE, cu->cuMemFree_v2(address));
}

static void destroy_body(struct bed *b, void *argument)
{
    OK(b->cu->cuCtxDestroy_v2(*(CUcontext *)argument));
}

static void use_destroyed_body(struct bed *b, void *argument)
{
    CUcontext *made = argument;
    CUdeviceptr address = 0;
    OK(b->cu->cuCtxSetCurrent(*made));
    bed_on_thread(b, destroy_body, made);
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, b->cu->cuMemAlloc_v2(&address, 4096));
}

RISKY(a_destroyed_context_stays_current_and_dead,
      "attempting to access ctx from those threads will result in the error")
{
    CUcontext made = NULL;
    NEED(bed_has(b, b->cu->cuCtxCreate_v2 != NULL));
    OK(b->cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(b->cu->cuCtxPopCurrent_v2(NULL));
    bed_on_thread(b, use_destroyed_body, &made);
}

HEADER(handles_outlive_the_context,
       "These memory allocations are not associated with any CUDA context")
{
    const struct flw_driver *cu = b->cu;
    CUcontext made = NULL;
    CUmemGenericAllocationHandle handle = 0;
    size_t grain = bed_grain(b);
    NEED(b->skip == NULL && bed_has(b, cu->cuCtxCreate_v2 != NULL));
    CUmemAllocationProp properties = bed_properties(b, 0);
    OK(cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(cu->cuMemCreate(&handle, grain, &properties, 0));
    OK(cu->cuCtxDestroy_v2(made));
    OK(cu->cuMemRelease(handle));
}

HEADER(synchronizing_completes_all_streams,
       "Blocks until the current context has completed all preceding requested tasks")
{
    const struct flw_driver *cu = b->cu;
    CUstream stream[2] = {NULL, NULL};
    CUdeviceptr address = 0;
    OK(cu->cuMemAlloc_v2(&address, 4096));
    for (int i = 0; i < 2; i++) {
        OK(cu->cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
        OK(cu->cuMemsetD8Async(address + (CUdeviceptr)i * 512, 1, 512, stream[i]));
    }
    OK(cu->cuCtxSynchronize());
    for (int i = 0; i < 2; i++) {
        OK(cu->cuStreamQuery(stream[i]));
        OK(cu->cuStreamDestroy_v2(stream[i]));
    }
    OK(cu->cuMemFree_v2(address));
}

HEADER(destroying_nothing_is_refused, "Destroys the CUDA context specified by ctx")
{
    REFUSED(b->cu->cuCtxDestroy_v2(NULL));
}

/* ---- green contexts: of all of the device's multiprocessors */

struct green {
    CUgreenCtx handle;
    CUcontext context; /* the converted context */
    CUstream stream;
    CUresult (*destroy)(CUgreenCtx green);
};

static bool find_call(struct bed *b, const char *name, void *out_function)
{
    void *address = flw_driver_entry(b->cu, name);
    memcpy(out_function, &address, sizeof address);
    return bed_has(b, address != NULL);
}

static bool make_green(struct bed *b, struct green *green)
{
    CUresult (*get_resource)(CUdevice device, void *resource, CUdevResourceType type);
    CUresult (*describe)(CUdevResourceDesc * descriptor, void *resources, unsigned count);
    CUresult (*create)(CUgreenCtx * green, CUdevResourceDesc descriptor, CUdevice device,
                       unsigned flags);
    CUresult (*make_stream)(CUstream * stream, CUgreenCtx green, unsigned flags, int priority);
    _Alignas(16) unsigned char resource[1024]; /* a CUdevResource has 144 */
    CUdevResourceDesc descriptor = NULL;
    *green = (struct green){0};
    if (!find_call(b, "cuDeviceGetDevResource", &get_resource) ||
        !find_call(b, "cuDevResourceGenerateDesc", &describe) ||
        !find_call(b, "cuGreenCtxCreate", &create) ||
        !find_call(b, "cuGreenCtxDestroy", &green->destroy) ||
        !find_call(b, "cuGreenCtxStreamCreate", &make_stream) ||
        !bed_has(b, b->cu->cuCtxFromGreenCtx != NULL && b->cu->cuStreamGetGreenCtx != NULL)) {
        return false;
    }
    return OK(get_resource(b->device, resource, CU_DEV_RESOURCE_TYPE_SM)) &&
           OK(describe(&descriptor, resource, 1)) &&
           OK(create(&green->handle, descriptor, b->device, CU_GREEN_CTX_DEFAULT_STREAM)) &&
           OK(b->cu->cuCtxFromGreenCtx(&green->context, green->handle)) &&
           OK(make_stream(&green->stream, green->handle, CU_STREAM_NON_BLOCKING, 0));
}

static void end_green(struct bed *b, const struct green *green)
{
    OK(b->cu->cuCtxSetCurrent(green->context));
    OK(b->cu->cuStreamDestroy_v2(green->stream));
    OK(b->cu->cuCtxSetCurrent(b->context));
    OK(green->destroy(green->handle));
}

HEADER(streams_know_their_green_context,
       "is equivalent to the one returned by cuCtxFromGreenCtx() on the green context")
{
    struct green green;
    CUcontext of_stream = NULL;
    CUgreenCtx of_green = NULL, of_main = NULL;
    NEED(make_green(b, &green));
    OK(b->cu->cuStreamGetGreenCtx(green.stream, &of_green));
    THAT(of_green == green.handle);
    OK(b->cu->cuStreamGetGreenCtx(NULL, &of_main));
    THAT(of_main == NULL);
    if (b->cu->cuStreamGetCtx != NULL) {
        OK(b->cu->cuStreamGetCtx(green.stream, &of_stream));
        THAT(of_stream == green.context);
    }
    OK(b->cu->cuCtxSetCurrent(green.context));
    OK(b->cu->cuStreamGetGreenCtx(NULL, &of_green));
    THAT(of_green == green.handle);
    end_green(b, &green);
}

HEADER(memory_outlives_its_green_context,
       "is a normal primary context but with the resources of the specified green context")
{
    struct green green;
    NEED(make_green(b, &green));
    OK(b->cu->cuCtxSetCurrent(green.context));
    CUdeviceptr address = bed_alloc(b, 1 << 20);
    bed_poke(b, address, 7);
    end_green(b, &green);
    THAT(bed_peek(b, address) == 7);
}

HEADER(a_context_event_covers_green_contexts,
       "capture all the activities of the primary context and its green contexts")
{
    struct green green;
    CUevent event = NULL, own = NULL;
    NEED(bed_has(b, b->cu->cuCtxRecordEvent != NULL) && make_green(b, &green));
    OK(b->cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    bed_gate_close(b, green.stream);
    OK(b->cu->cuCtxRecordEvent(b->context, event));
    IS(CUDA_ERROR_NOT_READY, b->cu->cuEventQuery(event));
    bed_gate_open(b);
    OK(b->cu->cuEventSynchronize(event));
    OK(b->cu->cuEventDestroy_v2(event));
    /* The reverse is not true. */
    CUstream stream = bed_stream(b);
    bed_gate_close(b, stream);
    OK(b->cu->cuCtxSetCurrent(green.context));
    OK(b->cu->cuEventCreate(&own, CU_EVENT_DISABLE_TIMING));
    OK(b->cu->cuCtxRecordEvent(green.context, own));
    OK(b->cu->cuEventSynchronize(own));
    OK(b->cu->cuEventDestroy_v2(own));
    bed_gate_open(b);
    OK(b->cu->cuCtxSetCurrent(b->context));
    OK(b->cu->cuStreamSynchronize(stream));
    end_green(b, &green);
}
