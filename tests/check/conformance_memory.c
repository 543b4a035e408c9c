/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about cuMemAlloc and the variants, pinned host memory, address ranges and
 * pointer attributes. */
#include <stdlib.h>
#include <string.h>

#define MODULE "memory"
#include "conformance.h"

HEADER(zero_bytes_are_refused, "If bytesize is 0, cuMemAlloc() returns")
{
    CUdeviceptr address = 0;
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemAlloc_v2(&address, 0));
}

HEADER(allocations_are_aligned_and_apart,
       "The allocated memory is suitably aligned for any kind of variable")
{
    CUdeviceptr address[8] = {0};
    for (int i = 0; i < 8; i++) {
        OK(b->cu->cuMemAlloc_v2(&address[i], 1000));
        THAT(address[i] % 256 == 0);
        for (int k = 0; k < i; k++) {
            THAT(address[i] >= address[k] + 1000 || address[k] >= address[i] + 1000);
        }
    }
    for (int i = 0; i < 8; i++) {
        OK(b->cu->cuMemFree_v2(address[i]));
    }
}

RISKY(double_free_is_refused, "which must have been returned by a previous call")
{
    CUdeviceptr address = 0;
    OK(b->cu->cuMemAlloc_v2(&address, 1 << 20));
    OK(b->cu->cuMemFree_v2(address));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemFree_v2(address));
}

RISKY(interior_free_is_refused, "which must have been returned by a previous call")
{
    CUdeviceptr address = bed_alloc(b, 1 << 20);
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemFree_v2(address + 512));
}

HEADER(more_than_the_device_has_is_out_of_memory,
       "The API call failed because it was unable to allocate enough memory")
{
    CUdeviceptr address = 0;
    size_t total = 0;
    OK(b->cu->cuDeviceTotalMem_v2(&total, b->device));
    IS(CUDA_ERROR_OUT_OF_MEMORY, b->cu->cuMemAlloc_v2(&address, total + (64u << 20)));
    OK(b->cu->cuMemAlloc_v2(&address, 4096)); /* and does no harm */
    OK(b->cu->cuMemFree_v2(address));
}

HEADER(allocating_lowers_what_is_free, "free and total memory")
{
    size_t before = 0, during = 0, after = 0, total = 0;
    CUdeviceptr address = 0;
    OK(b->cu->cuMemGetInfo_v2(&before, &total));
    OK(b->cu->cuMemAlloc_v2(&address, 64u << 20));
    OK(b->cu->cuMemGetInfo_v2(&during, &total));
    OK(b->cu->cuMemFree_v2(address));
    OK(b->cu->cuMemGetInfo_v2(&after, &total));
    THAT(during + (64u << 20) <= before);
    THAT(after > during);
}

HEADER(address_range_sees_the_allocation, "Both parameters pbase and psize are optional")
{
    CUdeviceptr address = 0, base = 0;
    size_t bytes = 0;
    OK(b->cu->cuMemAlloc_v2(&address, 100000));
    OK(b->cu->cuMemGetAddressRange_v2(&base, &bytes, address + 5000));
    THAT(base == address && bytes == 100000);
    OK(b->cu->cuMemGetAddressRange_v2(NULL, &bytes, address));
    OK(b->cu->cuMemGetAddressRange_v2(&base, NULL, address));
    OK(b->cu->cuMemFree_v2(address));
    REFUSED(b->cu->cuMemGetAddressRange_v2(&base, &bytes, address));
}

HEADER(address_range_sees_one_handle,
       "Returns the base address in *pbase and size in *psize of the allocation")
{
    struct bed_mapping m;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    NEED(bed_map(b, &m, 2, 0));
    OK(b->cu->cuMemGetAddressRange_v2(&base, &bytes, m.address + m.grain_bytes + 16));
    THAT(base == m.address + m.grain_bytes && bytes == m.grain_bytes);
    bed_unmap(b, &m);
}

HEADER(pitch_holds_the_row, "ElementSizeBytes may be 4, 8 or 16")
{
    CUdeviceptr address = 0;
    size_t pitch = 0;
    NEED(bed_has(b, b->cu->cuMemAllocPitch_v2 != NULL));
    OK(b->cu->cuMemAllocPitch_v2(&address, &pitch, 1000, 10, 4));
    THAT(pitch >= 1000 && pitch % 4 == 0);
    REFUSED(b->cu->cuMemAllocPitch_v2(&address, &pitch, 1000, 10, 3));
    OK(b->cu->cuMemFree_v2(address));
}

HEADER(managed_memory_is_valid_on_the_cpu,
       "The pointer is valid on the CPU and on all GPUs in the system that support managed "
       "memory")
{
    CUdeviceptr address = 0;
    int can = 0;
    if (b->cu->cuMemAllocManaged == NULL ||
        b->cu->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, b->device) != 0 ||
        can == 0) {
        b->skip = "the device has no managed memory";
        return;
    }
    OK(b->cu->cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(b->cu->cuMemsetD8_v2(address, 3, 4096));
    OK(b->cu->cuCtxSynchronize());
    THAT(address != 0 && *(unsigned char *)(uintptr_t)address == 3);
    OK(b->cu->cuMemFree_v2(address));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemAllocManaged(&address, 4096, 0));
}

RISKY(pinned_memory_is_freed_once, "Frees the memory space pointed to by p")
{
    void *pointer = NULL;
    OK(b->cu->cuMemHostAlloc(&pointer, 10000, CU_MEMHOSTALLOC_PORTABLE));
    memset(pointer, 1, 10000);
    OK(b->cu->cuMemFreeHost(pointer));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemFreeHost(pointer));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemHostAlloc(&pointer, 4096, 1u << 20));
}

HEADER(own_memory_is_registered_once,
       "This error indicates that the memory range passed to cuMemHostRegister()")
{
    size_t page = 4096, bytes = 16 * page;
    char *memory = aligned_alloc(page, bytes);
    unsigned type = 0;
    if (!THAT(memory != NULL) || memory == NULL ||
        !bed_has(b, b->cu->cuMemHostRegister_v2 != NULL)) {
        free(memory);
        return;
    }
    OK(b->cu->cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE));
    IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
       b->cu->cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE));
    OK(b->cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    (uintptr_t)memory + bytes - 1));
    THAT(type == CU_MEMORYTYPE_HOST);
    OK(b->cu->cuMemHostUnregister(memory));
    memset(memory, 1, bytes); /* still the caller's */
    IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, b->cu->cuMemHostUnregister(memory));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemHostRegister_v2(NULL, bytes, 0));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemHostRegister_v2(memory, 0, 0));
    free(memory);
}

HEADER(registered_memory_is_unregistered_by_its_base,
       "The base address must be the same one specified to cuMemHostRegister()")
{
    size_t page = 4096, bytes = 16 * page;
    char *memory = aligned_alloc(page, bytes);
    if (!THAT(memory != NULL) || memory == NULL ||
        !bed_has(b, b->cu->cuMemHostRegister_v2 != NULL)) {
        free(memory);
        return;
    }
    OK(b->cu->cuMemHostRegister_v2(memory, bytes, 0));
    REFUSED(b->cu->cuMemHostUnregister(memory + page));
    OK(b->cu->cuMemHostUnregister(memory));
    free(memory);
}

HEADER(registered_memory_is_pinned,
       "The memory page-locked by this function must be unregistered with")
{
    size_t bytes = 4096;
    unsigned char *memory = aligned_alloc(4096, bytes);
    CUdeviceptr address = 0;
    CUstream stream = NULL;
    if (!THAT(memory != NULL) || memory == NULL ||
        !bed_has(b, b->cu->cuMemHostRegister_v2 != NULL)) {
        free(memory);
        return;
    }
    memset(memory, 7, bytes);
    OK(b->cu->cuMemHostRegister_v2(memory, bytes, 0));
    OK(b->cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(b->cu->cuMemAlloc_v2(&address, bytes));
    OK(b->cu->cuMemcpyHtoDAsync_v2(address, memory, bytes, stream));
    OK(b->cu->cuStreamSynchronize(stream));
    memset(memory, 0, bytes);
    OK(b->cu->cuMemcpyDtoHAsync_v2(memory, address, bytes, stream));
    OK(b->cu->cuStreamSynchronize(stream));
    THAT(memory[0] == 7 && memory[bytes - 1] == 7);
    OK(b->cu->cuMemFree_v2(address));
    OK(b->cu->cuStreamDestroy_v2(stream));
    OK(b->cu->cuMemHostUnregister(memory));
    free(memory);
}

HEADER(device_memory_is_no_host_memory,
       "which must have been returned by a previous call to cuMemAllocHost()")
{
    CUdeviceptr address = bed_alloc(b, 4096);
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemFreeHost((void *)(uintptr_t)address));
}

HEADER(attributes_of_device_pointers, "If ptr addresses device memory then *data is set to")
{
    const struct flw_driver *cu = b->cu;
    CUdeviceptr start = 0, same = 0;
    unsigned type = 0;
    int ordinal = -1;
    size_t bytes = 0;
    CUcontext context = NULL;
    NEED(bed_has(b, cu->cuPointerGetAttribute != NULL));
    CUdeviceptr address = bed_alloc(b, 100000);
    CUdeviceptr inside = address + 4096;
    OK(cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
    THAT(type == CU_MEMORYTYPE_DEVICE);
    OK(cu->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
    THAT(ordinal == 0);
    OK(cu->cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
    THAT(start == address);
    OK(cu->cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
    THAT(bytes == 100000);
    OK(cu->cuPointerGetAttribute(&same, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside));
    THAT(same == inside);
    OK(cu->cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
    THAT(context == b->context);
}

HEADER(attributes_of_pinned_and_foreign_pointers,
       "If ptr addresses host memory then *data is set to")
{
    const struct flw_driver *cu = b->cu;
    unsigned type = 0;
    void *pinned = NULL, *host = NULL;
    static int foreign;
    NEED(bed_has(b, cu->cuPointerGetAttribute != NULL));
    OK(cu->cuMemHostAlloc(&pinned, 4096, 0));
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pinned;
    OK(cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    THAT(type == CU_MEMORYTYPE_HOST);
    OK(cu->cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, address));
    THAT(host == pinned);
    OK(cu->cuMemFreeHost(pinned));
    IS(CUDA_ERROR_INVALID_VALUE, cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                                           (CUdeviceptr)(uintptr_t)&foreign));
}
