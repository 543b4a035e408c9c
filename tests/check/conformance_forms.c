/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about names that other programs find and the library does not call: per-thread
 * twins, versions of one base name, rectangles, many attributes at once, handles for other processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODULE "forms"
#include "conformance.h"

/* Load an exported function by name into a pointer of the type; skip the case if it is missing. */
static bool find(struct bed *b, const char *name, void *function)
{
    void *address = flw_driver_entry(b->cu, name);
    memcpy(function, &address, sizeof address);
    return bed_has(b, address != NULL);
}

static void *versioned(struct bed *b, const char *base, int version, unsigned flags)
{
    void *function = NULL;
    if (b->cu->cuGetProcAddress_v2 != NULL) {
        b->cu->cuGetProcAddress_v2(base, &function, version, flags, NULL);
    }
    return function;
}

HEADER(one_base_name_has_several_functions,
       "this API will return the function pointer to the corresponding versioned function")
{
    const char *base = "cuStreamBeginCapture";
    NEED(bed_has(b, b->cu->cuGetProcAddress_v2 != NULL));
    void *modeless = versioned(b, base, 10000, 0), *present = versioned(b, base, 10010, 0);
    THAT(modeless != NULL && present != NULL && modeless != present);
    THAT(versioned(b, base, 11040, 0) == present);
    void *early = &early;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    b->cu->cuGetProcAddress_v2("cuMemAllocAsync", &early, 11010, 0, &status);
    THAT(early == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

HEADER(flags_choose_the_per_thread_twin,
       "If a per-thread version is not found, the API will return the legacy version")
{
    NEED(bed_has(b, b->cu->cuGetProcAddress_v2 != NULL));
    void *plain = versioned(b, "cuMemAllocAsync", 11040, 0);
    void *legacy = versioned(b, "cuMemAllocAsync", 11040, 1);
    void *twin = versioned(b, "cuMemAllocAsync", 11040, 2);
    THAT(plain != NULL && plain == legacy && twin != NULL && twin != plain);
    void *without = versioned(b, "cuMemAlloc", 11040, 0);
    THAT(without != NULL && without == versioned(b, "cuMemAlloc", 11040, 2));
}

HEADER(a_twin_takes_null_for_its_own_stream,
       "driver symbols that match the requested driver symbol name including the per-thread")
{
    CUresult (*get_id)(CUstream, unsigned long long *) = NULL;
    unsigned long long own = 0, twins = 0, legacy = 0;
    NEED(find(b, "cuStreamGetId_ptsz", &get_id) && bed_has(b, b->cu->cuStreamGetId != NULL));
    OK(b->cu->cuStreamGetId(CU_STREAM_PER_THREAD, &own));
    OK(b->cu->cuStreamGetId(NULL, &legacy));
    OK(get_id(NULL, &twins));
    THAT(twins == own && twins != legacy);
}

HEADER(a_rectangle_leaves_the_rest_of_its_rows, "Sets the 2D memory range of")
{
    enum {
        PITCH = 16,
        HEIGHT = 4
    };
    CUresult (*fill)(CUdeviceptr, size_t, unsigned short, size_t, size_t) = NULL;
    unsigned char back[PITCH * HEIGHT];
    CUdeviceptr address = 0;
    NEED(find(b, "cuMemsetD2D16_v2", &fill));
    OK(b->cu->cuMemAlloc_v2(&address, sizeof back));
    OK(b->cu->cuMemsetD8_v2(address, 7, sizeof back));
    OK(fill(address, PITCH, 0x0201, 3, HEIGHT));
    OK(b->cu->cuMemcpyDtoH_v2(back, address, sizeof back));
    bool is_right = true;
    for (unsigned i = 0; i < sizeof back; i++) {
        unsigned at = i % PITCH;
        is_right = is_right && back[i] == (at >= 6 ? 7 : at % 2 == 0 ? 1 : 2);
    }
    THAT(is_right);
    REFUSED(fill(address, 4, 1, 3, HEIGHT)); /* rows that lap over one another */
    OK(b->cu->cuMemFree_v2(address));
}

HEADER(many_attributes_of_no_pointer_are_null, "the attributes are assigned default NULL values")
{
    CUresult (*get)(unsigned, CUpointer_attribute *, void **, CUdeviceptr) = NULL;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    CUcontext context = b->context;
    unsigned type = 77;
    size_t bytes = 77;
    void *to[] = {&context, &type, &bytes};
    CUdeviceptr address = 0;
    NEED(find(b, "cuPointerGetAttributes", &get));
    OK(b->cu->cuMemAlloc_v2(&address, 5000));
    OK(get(3, wanted, to, address));
    THAT(context == b->context && type == CU_MEMORYTYPE_DEVICE && bytes == 5000);
    OK(b->cu->cuMemFree_v2(address));
    OK(get(3, wanted, to, address));
    THAT(context == NULL && type == 0 && bytes == 0);
}

HEADER(a_handle_names_one_life_of_an_address, "will return a unique handle for the new memory")
{
    CUresult (*get)(CUipcMemHandle *, CUdeviceptr) = NULL;
    CUipcMemHandle first, again, later;
    CUdeviceptr address = 0;
    NEED(find(b, "cuIpcGetMemHandle", &get) &&
         bed_has_attribute(b, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, "the device has no IPC"));
    OK(b->cu->cuMemAlloc_v2(&address, 4u << 20));
    OK(get(&first, address));
    OK(get(&again, address));
    THAT(memcmp(&first, &again, sizeof first) == 0);
    OK(b->cu->cuMemFree_v2(address));
    REFUSED(get(&later, address));
    OK(b->cu->cuMemAlloc_v2(&address, 4u << 20));
    OK(get(&later, address));
    THAT(memcmp(&first, &later, sizeof first) != 0);
    OK(b->cu->cuMemFree_v2(address));
}

HEADER(a_named_context_is_synchronised,
       "If the specified context is NULL, the API will operate on the current context")
{
    CUresult (*synchronise)(CUcontext) = NULL;
    CUcontext current = NULL;
    NEED(find(b, "cuCtxSynchronize_v2", &synchronise));
    CUdeviceptr address = bed_alloc(b, 4096);
    CUstream stream = bed_stream(b);
    OK(b->cu->cuMemsetD8Async(address, 0, 4096, stream));
    OK(b->cu->cuCtxPopCurrent_v2(&current));
    REFUSED(synchronise(NULL));
    OK(synchronise(current));
    OK(b->cu->cuCtxPushCurrent_v2(current));
    OK(b->cu->cuStreamQuery(stream));
}

HEADER(two_names_pin_host_memory, "bytes of host memory that is page-locked and accessible to the")
{
    CUresult (*alloc)(void **, size_t) = NULL;
    void *pointer = NULL;
    NEED(find(b, "cuMemAllocHost_v2", &alloc));
    OK(alloc(&pointer, 5000));
    memset(pointer, 1, 5000);
    OK(b->cu->cuMemFreeHost(pointer));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemFreeHost(pointer));
}

HEADER(devices_differ_in_their_uuids, "Returns 16-octets identifying the device")
{
    CUresult (*get)(char *, CUdevice) = NULL;
    char first[16] = {0}, other[16] = {0};
    int count = 0;
    NEED(find(b, "cuDeviceGetUuid_v2", &get));
    OK(b->cu->cuDeviceGetCount(&count));
    OK(get(first, 0));
    for (int device = 0; device < count; device++) {
        OK(get(other, device));
        THAT((memcmp(first, other, sizeof first) == 0) == (device == 0));
    }
    IS(CUDA_ERROR_INVALID_DEVICE, get(other, count));
}

HEADER(every_priority_of_the_range_is_accepted, "meaningful stream priorities is given by")
{
    CUresult (*get)(int *, int *) = NULL;
    CUstream stream = NULL;
    int least = 0, greatest = 0;
    NEED(find(b, "cuCtxGetStreamPriorityRange", &get) &&
         bed_has(b, b->cu->cuStreamCreateWithPriority != NULL));
    OK(get(NULL, NULL));
    OK(get(&least, &greatest));
    for (int priority = greatest; priority <= least; priority++) {
        OK(b->cu->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority));
        OK(b->cu->cuStreamDestroy_v2(stream));
    }
}

/* The parameters of CUDA's samples: all zero. */
HEADER(a_context_with_empty_parameters_is_a_plain_one,
       "Creates a new CUDA context and associates it with the calling thread")
{
    CUresult (*create)(CUcontext *, CUctxCreateParams *, unsigned, CUdevice) = NULL;
    CUctxCreateParams parameters = {0};
    CUcontext made = NULL, current = NULL;
    NEED(find(b, "cuCtxCreate_v4", &create));
    OK(create(&made, &parameters, 0, b->device));
    OK(b->cu->cuCtxGetCurrent(&current));
    THAT(current == made);
    OK(b->cu->cuCtxDestroy_v2(made));
}

/* ---- copies in the direction that addresses or types give */

HEADER(any_two_pointers_are_copied, "Copies data between two pointers")
{
    CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t) = NULL;
    CUresult (*copy_later)(CUdeviceptr, CUdeviceptr, size_t, CUstream) = NULL;
    uint32_t from[64], back[64] = {0}, third[64] = {0};
    CUdeviceptr a = 0, c = 0;
    if (!find(b, "cuMemcpy", &copy) || !find(b, "cuMemcpyAsync", &copy_later)) {
        return;
    }
    for (uint32_t i = 0; i < 64; i++) {
        from[i] = i * 2654435761u;
    }
    OK(b->cu->cuMemAlloc_v2(&a, sizeof from));
    OK(b->cu->cuMemAlloc_v2(&c, sizeof from));
    OK(copy(a, (uintptr_t)from, sizeof from));
    OK(copy_later(c, a, sizeof from, NULL));
    OK(copy((uintptr_t)back, c, sizeof back));
    OK(copy((uintptr_t)third, (uintptr_t)back, sizeof third));
    THAT(memcmp(third, from, sizeof from) == 0);
    OK(b->cu->cuMemFree_v2(a));
    OK(b->cu->cuMemFree_v2(c));
}

/* A rectangle of 3 rows of 5 bytes, from the middle of one pitch to the middle of another. */
HEADER(a_rectangle_is_copied_row_by_row,
       "If specified, srcPitch must be greater than or equal to WidthInBytes")
{
    CUresult (*copy)(const CUDA_MEMCPY2D *) = NULL;
    unsigned char from[64], back[8 * 16];
    CUdeviceptr at = 0;
    if (!find(b, "cuMemcpy2D_v2", &copy)) {
        return;
    }
    for (unsigned i = 0; i < sizeof from; i++) {
        from[i] = (unsigned char)(i + 1);
    }
    OK(b->cu->cuMemAlloc_v2(&at, sizeof back));
    OK(b->cu->cuMemsetD8_v2(at, 0, sizeof back));
    CUDA_MEMCPY2D area = {.srcXInBytes = 2,
                          .srcY = 1,
                          .srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = from,
                          .srcPitch = 8,
                          .dstXInBytes = 3,
                          .dstY = 2,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = at,
                          .dstPitch = 16,
                          .WidthInBytes = 5,
                          .Height = 3};
    OK(copy(&area));
    OK(b->cu->cuMemcpyDtoH_v2(back, at, sizeof back));
    bool is_right = true;
    for (unsigned i = 0; i < sizeof back; i++) {
        unsigned x = i % 16 - 3, y = i / 16 - 2; /* wraps outside */
        is_right = is_right && back[i] == (x < 5 && y < 3 ? from[(y + 1) * 8 + x + 2] : 0);
    }
    THAT(is_right);
    area.srcPitch = 4;
    REFUSED(copy(&area));
    OK(b->cu->cuMemFree_v2(at));
}

HEADER(a_box_is_copied_plane_by_plane, "Perform a 3D memory copy according to the parameters")
{
    CUresult (*copy)(const CUDA_MEMCPY3D *) = NULL;
    unsigned char from[4 * 4 * 4], back[sizeof from];
    CUdeviceptr at = 0;
    if (!find(b, "cuMemcpy3D_v2", &copy)) {
        return;
    }
    for (unsigned i = 0; i < sizeof from; i++) {
        from[i] = (unsigned char)(i + 1);
    }
    OK(b->cu->cuMemAlloc_v2(&at, sizeof back));
    OK(b->cu->cuMemsetD8_v2(at, 0, sizeof back));
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                         .srcHost = from,
                         .srcPitch = 4,
                         .srcHeight = 4,
                         .dstZ = 1,
                         .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                         .dstDevice = at,
                         .dstPitch = 4,
                         .dstHeight = 4,
                         .WidthInBytes = 3,
                         .Height = 2,
                         .Depth = 3};
    OK(copy(&box));
    OK(b->cu->cuMemcpyDtoH_v2(back, at, sizeof back));
    bool is_right = true;
    for (unsigned i = 0; i < sizeof back; i++) {
        bool is_in = i % 4 < 3 && i / 4 % 4 < 2 && i / 16 >= 1;
        is_right = is_right && back[i] == (is_in ? from[i - 16] : 0);
    }
    THAT(is_right);
    OK(b->cu->cuMemFree_v2(at));
}

/* Two sides of device memory, of the same address. */
static CUDA_MEMCPY2D area_within(CUdeviceptr at)
{
    CUDA_MEMCPY2D area = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = at,
                          .srcPitch = 16,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = at + 1024,
                          .dstPitch = 16,
                          .WidthInBytes = 8,
                          .Height = 2};
    return area;
}

OURS(an_empty_rectangle_is_copied)
{
    CUresult (*copy)(const CUDA_MEMCPY2D *) = NULL;
    CUresult (*copy_box)(const CUDA_MEMCPY3D *) = NULL;
    NEED(find(b, "cuMemcpy2D_v2", &copy) && find(b, "cuMemcpy3D_v2", &copy_box));
    CUDA_MEMCPY2D area = area_within(bed_alloc(b, 4096));
    area.Height = 0;
    OK(copy(&area));
    CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                         .srcDevice = area.srcDevice,
                         .srcPitch = 16,
                         .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                         .dstDevice = area.dstDevice,
                         .dstPitch = 16,
                         .WidthInBytes = 8,
                         .Depth = 2};
    OK(copy_box(&box));
}

OURS(a_size_that_wraps_is_refused)
{
    CUresult (*copy)(const CUDA_MEMCPY2D *) = NULL;
    CUresult (*fill)(CUdeviceptr, size_t, unsigned char, size_t, size_t) = NULL;
    size_t half = (size_t)1 << 32;
    NEED(find(b, "cuMemcpy2D_v2", &copy) && find(b, "cuMemsetD2D8_v2", &fill));
    CUDA_MEMCPY2D area = area_within(bed_alloc(b, 4096));
    area.srcPitch = area.dstPitch = area.WidthInBytes = area.Height = half;
    IS(CUDA_ERROR_INVALID_VALUE, copy(&area));
    IS(CUDA_ERROR_INVALID_VALUE, fill(area.srcDevice, half, 1, half, half));
}

HEADER(a_pitch_holds_the_offset_and_the_width, "and dstPitch must be greater than or equal to")
{
    CUresult (*copy)(const CUDA_MEMCPY2D *) = NULL;
    NEED(find(b, "cuMemcpy2D_v2", &copy));
    CUDA_MEMCPY2D area = area_within(bed_alloc(b, 4096));
    area.srcXInBytes = area.dstXInBytes = 8;
    OK(copy(&area));
    area.srcXInBytes = 9;
    REFUSED(copy(&area));
    area.srcXInBytes = 0;
    area.dstXInBytes = 9;
    REFUSED(copy(&area));
}

/* Devices that read pageable memory may take it for a source. */
OURS(pageable_memory_is_no_device_memory)
{
    CUresult (*copy)(const CUDA_MEMCPY2D *) = NULL;
    CUresult (*copy_device)(CUdeviceptr, CUdeviceptr, size_t) = NULL;
    static unsigned char page[64];
    NEED(find(b, "cuMemcpy2D_v2", &copy) && find(b, "cuMemcpyDtoD_v2", &copy_device));
    CUDA_MEMCPY2D area = area_within(bed_alloc(b, 4096));
    OK(copy_device(area.dstDevice, area.srcDevice, 64));
    IS(CUDA_ERROR_INVALID_VALUE, copy_device((uintptr_t)page, area.srcDevice, 64));
    OK(copy(&area));
    area.dstDevice = (uintptr_t)page;
    IS(CUDA_ERROR_INVALID_VALUE, copy(&area));
}

OURS(a_copy_on_the_host_is_not_captured)
{
    CUresult (*copy)(CUdeviceptr, CUdeviceptr, size_t, CUstream) = NULL;
    static unsigned char from[16] = {5}, to[16];
    CUgraph graph = NULL;
    NEED(find(b, "cuMemcpyAsync", &copy));
    CUstream stream = bed_stream(b);
    OK(b->cu->cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
       copy((uintptr_t)to, (uintptr_t)from, sizeof to, stream));
    THAT(to[0] == 0);
    OK(b->cu->cuStreamEndCapture(stream, &graph));
    OK(b->cu->cuGraphDestroy(graph));
}

/* ---- streams and events */

HEADER(a_stream_tells_its_flags_and_priority, "Query the priority of a stream created using")
{
    CUresult (*get_flags)(CUstream, unsigned *) = NULL;
    CUresult (*get_priority)(CUstream, int *) = NULL;
    CUstream stream = NULL;
    unsigned flags = 7;
    int priority = 7;
    if (!find(b, "cuStreamGetFlags", &get_flags) ||
        !find(b, "cuStreamGetPriority", &get_priority) ||
        !bed_has(b, b->cu->cuStreamCreateWithPriority != NULL)) {
        return;
    }
    OK(b->cu->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -1));
    OK(get_flags(stream, &flags));
    OK(get_priority(stream, &priority));
    THAT(flags == CU_STREAM_NON_BLOCKING && priority == -1);
    OK(b->cu->cuStreamDestroy_v2(stream));
    OK(get_flags(NULL, &flags));
    THAT(flags == CU_STREAM_DEFAULT);
}

static void CUDA_CB note_status(CUstream stream, CUresult status, void *argument)
{
    void **seen = argument;
    seen[0] = stream;
    seen[1] = status == CUDA_SUCCESS ? seen : NULL;
}

HEADER(a_callback_follows_the_work_before_it,
       "The callback may be passed CUDA_SUCCESS or an error code")
{
    CUresult (*add)(CUstream, CUstreamCallback, void *, unsigned) = NULL;
    CUstream stream = NULL;
    void *seen[2] = {NULL, NULL};
    if (!find(b, "cuStreamAddCallback", &add)) {
        return;
    }
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    bed_gate_close(b, stream);
    OK(add(stream, note_status, seen, 0));
    THAT(seen[1] == NULL);
    bed_gate_open(b);
    OK(b->cu->cuStreamSynchronize(stream));
    THAT(seen[0] == stream && seen[1] == seen);
    REFUSED(add(stream, note_status, seen, 1));
    OK(b->cu->cuStreamDestroy_v2(stream));
}

static void CUDA_CB keep_status(CUstream stream, CUresult status, void *argument)
{
    (void)stream;
    *(CUresult *)argument = status;
}

static void CUDA_CB count_call(void *argument)
{
    ++*(unsigned *)argument;
}

/* "In the event of a device error, all subsequently executed callbacks will receive an appropriate
 * CUresult." Host functions "will not be called". */
OURS(a_callback_gets_the_error_of_the_device)
{
    CUresult (*add)(CUstream, CUstreamCallback, void *, unsigned) = NULL;
    CUcontext made = NULL;
    CUstream stream = NULL;
    CUdeviceptr address = 0;
    CUresult status = CUDA_SUCCESS;
    unsigned calls = 0;
    NEED(find(b, "cuStreamAddCallback", &add));
    OK(b->cu->cuCtxCreate_v2(&made, 0, b->device));
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    bed_gate_close(b, stream);
    OK(add(stream, keep_status, &status, 0));
    OK(b->cu->cuLaunchHostFunc(stream, count_call, &calls));
    THAT(b->sim.fail("cuMemAlloc_v2", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1) != 0);
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, b->cu->cuMemAlloc_v2(&address, 4096));
    bed_gate_open(b);
    b->sim.step(100);
    THAT(status == CUDA_ERROR_ILLEGAL_ADDRESS && calls == 0);
    OK(b->cu->cuCtxDestroy_v2(made));
}

/* A leak checker sees it: the world ends with the callback waiting. */
OURS(a_callback_may_never_run)
{
    CUresult (*add)(CUstream, CUstreamCallback, void *, unsigned) = NULL;
    CUresult status = CUDA_SUCCESS;
    NEED(find(b, "cuStreamAddCallback", &add));
    for (int on_clock = 0; on_clock < 2; on_clock++) {
        flw_sim_config config = bed_world();
        config.schedule = on_clock ? FLW_SIM_CLOCK : FLW_SIM_HELD;
        config.lag_ns = 1000000;
        bed_restart(b, &config);
        OK(add(NULL, keep_status, &status, 0));
    }
    flw_sim_config config = bed_world();
    bed_restart(b, &config);
}

HEADER(time_passes_between_recorded_events,
       "has not been called on either event then CUDA_ERROR_INVALID_HANDLE is returned")
{
    CUresult (*elapsed)(float *, CUevent, CUevent) = NULL;
    CUevent begin = NULL, end = NULL, untimed = NULL;
    CUstream stream = NULL;
    float milliseconds = -1;
    if (!find(b, "cuEventElapsedTime", &elapsed)) {
        return;
    }
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(b->cu->cuEventCreate(&begin, CU_EVENT_DEFAULT));
    OK(b->cu->cuEventCreate(&end, CU_EVENT_DEFAULT));
    OK(b->cu->cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(b->cu->cuEventRecord(begin, stream));
    IS(CUDA_ERROR_INVALID_HANDLE, elapsed(&milliseconds, begin, end));
    bed_gate_close(b, stream);
    OK(b->cu->cuEventRecord(end, stream));
    IS(CUDA_ERROR_NOT_READY, elapsed(&milliseconds, begin, end));
    bed_gate_open(b);
    OK(b->cu->cuEventRecord(untimed, stream));
    OK(b->cu->cuStreamSynchronize(stream));
    OK(elapsed(&milliseconds, begin, end));
    THAT(milliseconds >= 0);
    IS(CUDA_ERROR_INVALID_HANDLE, elapsed(&milliseconds, begin, untimed));
    OK(b->cu->cuEventDestroy_v2(begin));
    OK(b->cu->cuEventDestroy_v2(end));
    OK(b->cu->cuEventDestroy_v2(untimed));
    OK(b->cu->cuStreamDestroy_v2(stream));
}

/* ---- contexts, devices, pinned memory */

HEADER(a_limit_is_kept, "Setting limit to value is a request by the application to update")
{
    CUresult (*get)(size_t *, CUlimit) = NULL;
    CUresult (*set)(CUlimit, size_t) = NULL;
    size_t before = 0, after = 0;
    if (!find(b, "cuCtxGetLimit", &get) || !find(b, "cuCtxSetLimit", &set)) {
        return;
    }
    OK(get(&before, CU_LIMIT_MALLOC_HEAP_SIZE));
    OK(set(CU_LIMIT_MALLOC_HEAP_SIZE, before * 2));
    OK(get(&after, CU_LIMIT_MALLOC_HEAP_SIZE));
    THAT(before != 0 && after >= before * 2);
    OK(set(CU_LIMIT_MALLOC_HEAP_SIZE, before));
    REFUSED(get(&after, (CUlimit)1000));
}

HEADER(a_device_is_found_by_its_bus, "Returns an ASCII string identifying the device")
{
    CUresult (*get)(char *, int, CUdevice) = NULL;
    CUresult (*find_device)(CUdevice *, const char *) = NULL;
    char text[32] = "";
    CUdevice device = -1;
    int bus = -1;
    unsigned told = 0;
    if (!find(b, "cuDeviceGetPCIBusId", &get) || !find(b, "cuDeviceGetByPCIBusId", &find_device)) {
        return;
    }
    OK(get(text, sizeof text, b->device));
    OK(find_device(&device, text));
    THAT(device == b->device && strlen(text) == 12);
    OK(b->cu->cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, b->device));
    THAT(sscanf(text, "%*x:%x:", &told) == 1 && (int)told == bus);
    REFUSED(find_device(&device, "0000:fe:00.0"));
}

HEADER(pinned_memory_has_the_same_address_on_the_device, "will match the original pointer p")
{
    CUresult (*get)(CUdeviceptr *, void *, unsigned) = NULL;
    CUresult (*get_flags)(unsigned *, void *) = NULL;
    void *pinned = NULL;
    CUdeviceptr device = 0;
    unsigned flags = 0, word = 0;
    if (!find(b, "cuMemHostGetDevicePointer_v2", &get) ||
        !find(b, "cuMemHostGetFlags", &get_flags)) {
        return;
    }
    OK(b->cu->cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE));
    OK(get(&device, pinned, 0));
    OK(get_flags(&flags, pinned));
    THAT(device == (uintptr_t)pinned && (flags & CU_MEMHOSTALLOC_PORTABLE) != 0);
    OK(b->cu->cuMemsetD8_v2(device, 0x5a, 4)); /* waits: the memory is the host's */
    memcpy(&word, pinned, sizeof word);
    THAT(word == 0x5a5a5a5a);
    REFUSED(get(&device, &word, 0));
    REFUSED(get_flags(&flags, &word));
    OK(b->cu->cuMemFreeHost(pinned));
}

/* ---- modules and libraries */

static const char some_ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                               ".visible .entry flw_nothing()\n{\n    ret;\n}\n";

HEADER(a_library_finds_its_kernels_by_name, "If kernel handle is not found, the call returns")
{
    CUresult (*load)(CUlibrary *, const void *, CUjit_option *, void **, unsigned,
                     CUlibraryOption *, void **, unsigned) = NULL;
    CUresult (*get)(CUkernel *, CUlibrary, const char *) = NULL;
    CUresult (*get_function)(CUfunction *, CUkernel) = NULL;
    CUresult (*unload)(CUlibrary) = NULL;
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUfunction function = NULL;
    if (!find(b, "cuLibraryLoadData", &load) || !find(b, "cuLibraryGetKernel", &get) ||
        !find(b, "cuKernelGetFunction", &get_function) || !find(b, "cuLibraryUnload", &unload) ||
        !OK(load(&library, some_ptx, NULL, NULL, 0, NULL, NULL, 0))) {
        return;
    }
    OK(get(&kernel, library, "flw_nothing"));
    OK(get_function(&function, kernel));
    THAT(function != NULL);
    IS(CUDA_ERROR_NOT_FOUND, get(&kernel, library, "flw_noth"));
    IS(CUDA_ERROR_NOT_FOUND, get(&kernel, library, "nothing"));
    OK(unload(library));
}

OURS(a_function_has_one_handle)
{
    CUresult (*get)(int *, CUfunction_attribute, CUfunction) = NULL;
    CUresult (*set)(CUfunction, CUfunction_attribute, int) = NULL;
    CUmodule module[2];
    CUfunction function = NULL, again = NULL;
    int value = 0;
    NEED(find(b, "cuFuncGetAttribute", &get) && find(b, "cuFuncSetAttribute", &set));
    OK(b->cu->cuModuleLoadData(&module[0], some_ptx));
    OK(b->cu->cuModuleLoadData(&module[1], some_ptx));
    OK(b->cu->cuModuleGetFunction(&function, module[0], "flw_nothing"));
    OK(set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
    OK(b->cu->cuModuleGetFunction(&again, module[0], "flw_nothing"));
    THAT(again == function);
    OK(get(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, again));
    THAT(value == 100 << 10);
    OK(b->cu->cuModuleGetFunction(&again, module[1], "flw_nothing"));
    THAT(again != function);
    OK(b->cu->cuModuleUnload(module[0]));
    OK(b->cu->cuModuleUnload(module[1]));
}

static CUresult load_bytes(struct bed *b, const void *bytes, size_t count)
{
    CUresult (*load)(CUmodule *, const char *) = NULL;
    char path[] = "/tmp/fallow-image-XXXXXX";
    CUmodule module = NULL;
    int file = find(b, "cuModuleLoad", &load) ? mkstemp(path) : -1;
    if (file < 0) {
        return CUDA_SUCCESS;
    }
    THAT(write(file, bytes, count) == (ssize_t)count);
    CUresult result = load(&module, path);
    if (result == CUDA_SUCCESS) {
        OK(b->cu->cuModuleUnload(module));
    }
    (void)close(file);
    (void)unlink(path);
    return result;
}

OURS(a_file_ends_before_its_image)
{
    CUresult (*load)(CUmodule *, const char *) = NULL;
    CUmodule module = NULL;
    unsigned char elf[128] = {0x7f, 'E', 'L', 'F'}, fat[64] = {0x50, 0xed, 0x55, 0xba};
    unsigned char wrapper[24] = {0xb1, 0x43, 0x62, 0x46, 1};
    NEED(find(b, "cuModuleLoad", &load));
    elf[0x28] = 64; /* section headers: one of 64 bytes at 64 */
    elf[0x3a] = 64;
    elf[0x3c] = 1;
    fat[6] = 16; /* a header of 16 bytes, 48 bytes behind it */
    fat[8] = 48;
    OK(load_bytes(b, some_ptx, sizeof some_ptx - 1));
    OK(load_bytes(b, elf, sizeof elf));
    OK(load_bytes(b, fat, sizeof fat));
    IS(CUDA_ERROR_INVALID_IMAGE, load_bytes(b, elf, sizeof elf - 1));
    IS(CUDA_ERROR_INVALID_IMAGE, load_bytes(b, elf, 8));
    IS(CUDA_ERROR_INVALID_IMAGE, load_bytes(b, fat, sizeof fat - 1));
    IS(CUDA_ERROR_INVALID_IMAGE, load_bytes(b, fat, 8));
    IS(CUDA_ERROR_INVALID_IMAGE, load_bytes(b, wrapper, sizeof wrapper));
    memset(elf + 0x28, 0xff, 8); /* an end that wraps */
    IS(CUDA_ERROR_INVALID_IMAGE, load_bytes(b, elf, sizeof elf));
    REFUSED(load(&module, "/tmp"));
}

HEADER(occupancy_falls_with_the_size_of_a_block, "the number of the maximum active blocks per")
{
    CUresult (*get)(int *, CUfunction, int, size_t) = NULL;
    CUresult (*best)(int *, int *, CUfunction, CUoccupancyB2DSize, size_t, int) = NULL;
    CUmodule module = NULL;
    CUfunction function = NULL;
    int small = 0, large = 0, grid = 0, block = 0;
    if (!find(b, "cuOccupancyMaxActiveBlocksPerMultiprocessor", &get) ||
        !find(b, "cuOccupancyMaxPotentialBlockSize", &best) ||
        !OK(b->cu->cuModuleLoadData(&module, some_ptx))) {
        return;
    }
    OK(b->cu->cuModuleGetFunction(&function, module, "flw_nothing"));
    OK(get(&small, function, 128, 0));
    OK(get(&large, function, 1024, 0));
    THAT(small > large && large >= 1);
    OK(best(&grid, &block, function, NULL, 0, 256));
    THAT(block > 0 && block <= 256 && grid > 0);
    OK(b->cu->cuModuleUnload(module));
}

/* ---- pools */

HEADER(a_pool_is_always_accessible_from_its_device,
       "Returns the accessibility of the pool's memory from the specified location")
{
    CUresult (*get)(CUmemAccess_flags *, CUmemoryPool, CUmemLocation *) = NULL;
    CUresult (*set)(CUmemoryPool, const CUmemAccessDesc *, size_t) = NULL;
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUmemoryPool pool = NULL;
    if (!find(b, "cuMemPoolGetAccess", &get) || !find(b, "cuMemPoolSetAccess", &set) ||
        !bed_has_attribute(b, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, "no pools")) {
        return;
    }
    OK(b->cu->cuDeviceGetDefaultMemPool(&pool, b->device));
    OK(get(&flags, pool, &access.location));
    THAT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    IS(CUDA_ERROR_INVALID_VALUE, set(pool, &access, 1));
    access.flags = (CUmemAccess_flags)2; /* there is no such flag */
    IS(CUDA_ERROR_INVALID_VALUE, set(pool, &access, 1));
    IS(CUDA_ERROR_INVALID_VALUE, set(NULL, &access, 0));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    OK(set(pool, &access, 1));
}
