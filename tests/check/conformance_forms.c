/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about names that other programs find and the library does not call: per-thread
 * twins, versions of one base name, rectangles, many attributes at once, handles for other processes.
 */
#include <string.h>

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
