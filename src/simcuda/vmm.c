/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: virtual memory management: reservations, handles, mappings, access, export and import.
 * Does not: hold contents (physical.c).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "simcuda/check.h"
#include "simcuda/host.h"
#include "simcuda/shadow.h"
#include "simcuda/storage.h"

#define VMM (FLW_CALL_VMM | FLW_CALL_UNSAFE)

struct flw_mapping *flw_mapping_find(uint64_t address)
{
    struct flw_tree_node *node = flw_tree_find(&flw_world.mappings, address);
    return node != NULL ? FLW_CONTAINER(node, struct flw_mapping, node) : NULL;
}

static struct flw_physical *find_handle(CUmemGenericAllocationHandle handle)
{
    return flw_table_find(&flw_world.handle_table, handle);
}

static bool is_grain(uint64_t value)
{
    return (value & (FLW_GRANULARITY - 1)) == 0;
}

/* ---- reservations ---- */

static bool may_reserve(uint64_t bytes)
{
    const flw_sim_config *config = &flw_world.config;
    uint64_t all = config->reserve_all_bytes, reserved = flw_world.reserved_address_bytes;
    return (config->reserve_most_bytes == 0 || bytes <= config->reserve_most_bytes) &&
           (all == 0 || (reserved <= all && bytes <= all - reserved));
}

static CUresult reserve(CUdeviceptr *out, uint64_t bytes, uint64_t align, CUdeviceptr hint)
{
    /* "The size and address parameters must be a multiple of the host page size and the alignment
     * must be a power of two or zero". Drivers require the granularity: a mapping needs it anyway. */
    FLW_REFUSE_IF(out == NULL || bytes == 0 || !is_grain(bytes) || (hint & (FLW_PAGE - 1)) != 0 ||
                      (align != 0 && !flw_is_pow2(align)),
                  CUDA_ERROR_INVALID_VALUE);
    if (!may_reserve(bytes)) {
        int error = flw_world.config.reserve_error;
        return error != 0 ? (CUresult)error : CUDA_ERROR_OUT_OF_MEMORY;
    }
    align = flw_max(align, FLW_GRANULARITY);
    /* "when it is non-zero then the driver treats it as a hint" */
    uint64_t begin = 0;
    if (hint != 0 && (hint & (align - 1)) == 0 &&
        flw_space_take_at(&flw_world.space, hint, bytes)) {
        begin = hint;
    } else {
        begin = flw_space_take(&flw_world.space, bytes, align);
    }
    FLW_REFUSE_IF(begin == 0, CUDA_ERROR_OUT_OF_MEMORY);
    flw_region_add(FLW_REGION_RESERVATION, begin, begin + bytes)->bytes = bytes;
    flw_world.reserved_address_bytes += bytes;
    *out = begin;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                                     CUdeviceptr address, unsigned long long flags)
{
    FLW_CALL(cuMemAddressReserve, VMM);
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : reserve(pointer, bytes, alignment, address);
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    FLW_CALL(cuMemAddressFree, VMM);
    /* "The size must match what was given to memAddressReserve and the ptr given must match what
     * was returned from memAddressReserve." Mapped parts are refused. */
    struct flw_region *region = flw_region_find(pointer);
    struct flw_tree_node *mapped = flw_tree_from(&flw_world.mappings, pointer);
    if (region == NULL || region->kind != FLW_REGION_RESERVATION || region->node.begin != pointer ||
        region->bytes != bytes || (mapped != NULL && mapped->begin < pointer + bytes)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    flw_world.reserved_address_bytes -= bytes;
    flw_space_release(&flw_world.space, pointer, bytes);
    flw_region_remove(region);
    return CUDA_SUCCESS;
}

/* ---- handles ---- */

static CUresult check_properties(const CUmemAllocationProp *properties)
{
    FLW_REFUSE_IF(properties == NULL || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED,
                  CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(properties->location.type == CU_MEM_LOCATION_TYPE_HOST ||
                      properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA,
                  CUDA_ERROR_NOT_SUPPORTED);
    FLW_REFUSE_IF(properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE,
                  CUDA_ERROR_INVALID_VALUE);
    unsigned types = (unsigned)properties->requestedHandleTypes;
    if ((types &
         ~(unsigned)(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC)) != 0 ||
        ((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && flw_world.config.without_fabric)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    /* an estimate */
    FLW_REFUSE_IF(properties->allocFlags.gpuDirectRDMACapable != 0 && flw_world.config.without_rdma,
                  CUDA_ERROR_NOT_SUPPORTED);
    return flw_device_find(properties->location.id) == NULL ? CUDA_ERROR_INVALID_DEVICE
                                                            : CUDA_SUCCESS;
}

static void give_handle(struct flw_physical *physical)
{
    if (physical->handle_count++ == 0) {
        physical->handle = flw_table_add(&flw_world.handle_table, physical);
    }
}

static CUresult create(CUmemGenericAllocationHandle *out, uint64_t bytes,
                       const CUmemAllocationProp *properties)
{
    FLW_TRY(check_properties(properties));
    /* "The size of this allocation must be a multiple of the the value given via
     * cuMemGetAllocationGranularity with the CU_MEM_ALLOC_GRANULARITY_MINIMUM flag." */
    FLW_REFUSE_IF(out == NULL || bytes == 0 || !is_grain(bytes), CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(((unsigned)properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0 &&
                      !flw_profile_permits_fabric(),
                  CUDA_ERROR_NOT_PERMITTED);
    CUresult result = CUDA_SUCCESS;
    struct flw_physical *physical =
        flw_physical_make(flw_device_find(properties->location.id), bytes, &result);
    if (physical == NULL) {
        return result;
    }
    physical->properties = *properties;
    give_handle(physical);
    flw_latency_add_bytes(FLW_ENTRY_cuMemCreate, bytes);
    *out = physical->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                             const CUmemAllocationProp *properties, unsigned long long flags)
{
    FLW_CALL(cuMemCreate, VMM);
    if (properties != NULL) {
        flw_profile_stall(&call, flw_device_find(properties->location.id));
    }
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : create(handle, bytes, properties);
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    FLW_CALL(cuMemRelease, VMM);
    struct flw_physical *physical = find_handle(handle);
    FLW_REFUSE_IF(physical == NULL, CUDA_ERROR_INVALID_VALUE);
    /* "The generic memory handle can be freed when there are still outstanding mappings" */
    if (--physical->handle_count == 0) {
        flw_table_remove(&flw_world.handle_table, handle);
        physical->handle = 0;
        flw_physical_drop_if_unused(physical);
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                               CUmemAllocationGranularity_flags option)
{
    FLW_CALL(cuMemGetAllocationGranularity, FLW_CALL_VMM);
    FLW_TRY(check_properties(properties));
    FLW_REFUSE_IF(bytes == NULL || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                    option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                  CUDA_ERROR_INVALID_VALUE);
    *bytes = FLW_GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    FLW_CALL(cuMemRetainAllocationHandle, VMM);
    /* "can be any address in a range previously mapped by cuMemMap" */
    struct flw_mapping *mapping = flw_mapping_find((uintptr_t)address);
    FLW_REFUSE_IF(mapping == NULL || handle == NULL, CUDA_ERROR_INVALID_VALUE);
    give_handle(mapping->physical);
    *handle = mapping->physical->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                        CUmemGenericAllocationHandle handle)
{
    FLW_CALL(cuMemGetAllocationPropertiesFromHandle, FLW_CALL_VMM);
    struct flw_physical *physical = find_handle(handle);
    FLW_REFUSE_IF(physical == NULL || properties == NULL, CUDA_ERROR_INVALID_VALUE);
    *properties = physical->properties;
    return CUDA_SUCCESS;
}

/* ---- mappings ---- */

static CUresult map(CUdeviceptr pointer, uint64_t bytes, uint64_t offset,
                    CUmemGenericAllocationHandle handle)
{
    struct flw_physical *physical = find_handle(handle);
    struct flw_region *region = flw_region_find(pointer);
    /* "Note: currently must be zero." (offset); "ptr, size, and offset must be a multiple of the
     * value given via cuMemGetAllocationGranularity" */
    FLW_REFUSE_IF(physical == NULL || offset != 0 || bytes == 0 || !is_grain(pointer) ||
                      !is_grain(bytes) || bytes > physical->bytes,
                  CUDA_ERROR_INVALID_VALUE);
    /* "This range must be an address reservation previously reserved" */
    FLW_REFUSE_IF(region == NULL || region->kind != FLW_REGION_RESERVATION ||
                      bytes > region->node.end - pointer,
                  CUDA_ERROR_INVALID_VALUE);
    /* "can only create mappings on VA range reservations that are not currently mapped" */
    struct flw_tree_node *next = flw_tree_from(&flw_world.mappings, pointer);
    FLW_REFUSE_IF(next != NULL && next->begin < pointer + bytes, CUDA_ERROR_INVALID_VALUE);
    struct flw_mapping *mapping = flw_host_get(sizeof *mapping);
    mapping->node.begin = pointer;
    mapping->node.end = pointer + bytes;
    mapping->physical = physical; /* no access yet: "all mappings start with no accessibility" */
    flw_tree_insert(&flw_world.mappings, &mapping->node);
    physical->mapping_count++;
    flw_world.mapping_count++;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    FLW_CALL(cuMemMap, VMM);
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : map(pointer, bytes, offset, handle);
}

static void unmap_one(struct flw_mapping *mapping)
{
    struct flw_physical *physical = mapping->physical;
    flw_tree_remove(&flw_world.mappings, &mapping->node);
    flw_world.region_version++;
    flw_world.mapping_count--;
    free(mapping);
    physical->mapping_count--;
    flw_physical_drop_if_unused(physical);
}

/* Return the next mapping, or NULL. */
static struct flw_mapping *next_mapping(const struct flw_mapping *mapping)
{
    struct flw_tree_node *next = mapping->node.next;
    return next != NULL ? FLW_CONTAINER(next, struct flw_mapping, node) : NULL;
}

/* Return the first of the mappings that cover [begin, end) as a whole and without a gap, in one
 * reservation (an estimate: cuda.h describes no range over two); NULL if none do. */
static struct flw_mapping *find_whole(uint64_t begin, uint64_t end)
{
    const struct flw_region *region = flw_region_find(begin);
    if (region == NULL || end > region->node.end) {
        return NULL;
    }
    struct flw_mapping *first = flw_mapping_find(begin);
    uint64_t at = begin;
    for (const struct flw_mapping *mapping = first;
         at < end && mapping != NULL && mapping->node.begin == at;
         mapping = next_mapping(mapping)) {
        at = mapping->node.end;
    }
    return at == end && begin < end ? first : NULL;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    FLW_CALL(cuMemUnmap, VMM);
    const struct flw_mapping *first = flw_mapping_find(pointer);
    if (first != NULL) {
        flw_profile_stall(&call, first->physical->device);
    }
    /* "cuMemUnmap cannot unmap a sub-range of an address range mapped by cuMemCreate / cuMemMap" */
    struct flw_mapping *mapping = find_whole(pointer, pointer + bytes), *next;
    FLW_REFUSE_IF(mapping == NULL, CUDA_ERROR_INVALID_VALUE);
    /* It does not wait for work that uses the range. */
    flw_check_takes_away(pointer, pointer + bytes, "cuMemUnmap");
    flw_latency_add_bytes(FLW_ENTRY_cuMemUnmap, bytes);
    for (; mapping != NULL && mapping->node.begin < pointer + bytes; mapping = next) {
        next = next_mapping(mapping);
        unmap_one(mapping);
    }
    return CUDA_SUCCESS;
}

void flw_vmm_finish_all(void)
{
    while (flw_world.mappings.root != NULL) {
        unmap_one(FLW_CONTAINER(flw_world.mappings.root, struct flw_mapping, node));
    }
}

/* A device that cannot reach the memory's device is given no access. */
static bool reaches_all(const struct flw_mapping *first, uint64_t end,
                        const CUmemAccessDesc *access, size_t count)
{
    bool reaches = true;
    for (const struct flw_mapping *mapping = first;
         mapping != NULL && mapping->node.begin < end && reaches; mapping = next_mapping(mapping)) {
        for (size_t i = 0; i < count; i++) {
            reaches &= access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                       flw_device_reaches(access[i].location.id,
                                          mapping->physical->properties.location.id);
        }
    }
    return reaches;
}

static CUresult set_access(CUdeviceptr pointer, uint64_t bytes, const CUmemAccessDesc *access,
                           size_t count)
{
    FLW_REFUSE_IF(access == NULL || count == 0, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
             access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
             access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        FLW_REFUSE_IF(flw_device_find(access[i].location.id) == NULL, CUDA_ERROR_INVALID_DEVICE);
    }
    /* "The range must be a fully mapped address range containing all allocations created by
     * cuMemMap / cuMemCreate." */
    uint64_t end = pointer + bytes;
    struct flw_mapping *first = find_whole(pointer, end);
    FLW_REFUSE_IF(first == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(!reaches_all(first, end, access, count), CUDA_ERROR_INVALID_DEVICE);
    for (struct flw_mapping *mapping = first; mapping != NULL && mapping->node.begin < end;
         mapping = next_mapping(mapping)) {
        for (size_t i = 0; i < count; i++) {
            mapping->access[access[i].location.id] = (unsigned char)access[i].flags;
        }
    }
    flw_world.region_version++;
    flw_latency_add_bytes(FLW_ENTRY_cuMemSetAccess, bytes);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access,
                                size_t count)
{
    FLW_CALL(cuMemSetAccess, VMM);
    return set_access(pointer, bytes, access, count);
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                CUdeviceptr pointer)
{
    FLW_CALL(cuMemGetAccess, FLW_CALL_VMM);
    struct flw_mapping *mapping = flw_mapping_find(pointer);
    FLW_REFUSE_IF(flags == NULL || location == NULL || mapping == NULL, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
                      flw_device_find(location->id) == NULL,
                  CUDA_ERROR_INVALID_DEVICE);
    *flags = mapping->access[location->id];
    return CUDA_SUCCESS;
}

/* ---- between processes ---- */

/* Contents of a fabric handle here: where the memfd can be opened again. */
struct fabric {
    char magic[16];
    int process, file;
};
_Static_assert(sizeof(struct fabric) <= sizeof(CUmemFabricHandle), "fits a fabric handle");

/* Duplicate with close-on-exec: a program that relies on inheriting the file fails here, rather
 * than on the first GPU. */
static int duplicate(int file)
{
    return fcntl(file, F_DUPFD_CLOEXEC, 0);
}

static CUresult export_handle(void *shareable, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type)
{
    struct flw_physical *physical = find_handle(handle);
    FLW_REFUSE_IF(shareable == NULL || physical == NULL, CUDA_ERROR_INVALID_VALUE);
    /* not of a type requested at cuMemCreate */
    FLW_REFUSE_IF(((unsigned)physical->properties.requestedHandleTypes & (unsigned)type) == 0,
                  CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(!flw_physical_open(physical), CUDA_ERROR_OUT_OF_MEMORY); /* the host's */
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        int file = duplicate(physical->file);
        FLW_REFUSE_IF(file < 0, CUDA_ERROR_OUT_OF_MEMORY);
        memcpy(shareable, &file, sizeof file);
        return CUDA_SUCCESS;
    }
    struct fabric fabric = {"simcuda fabric", (int)getpid(), physical->file};
    memset(shareable, 0, sizeof(CUmemFabricHandle));
    memcpy(shareable, &fabric, sizeof fabric);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType type,
                                              unsigned long long flags)
{
    FLW_CALL(cuMemExportToShareableHandle, VMM);
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : export_handle(shareable, handle, type);
}

/* Return the memory of the file, if already in this world: an import of its own export. */
static struct flw_physical *find_file(const struct stat *wanted)
{
    for (struct flw_physical *physical = flw_world.physicals; physical != NULL;
         physical = physical->next) {
        struct stat have;
        if (physical->file >= 0 && fstat(physical->file, &have) == 0 &&
            have.st_ino == wanted->st_ino && have.st_dev == wanted->st_dev) {
            return physical;
        }
    }
    return NULL;
}

static int open_shareable(void *shareable, CUmemAllocationHandleType type)
{
    if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        /* "the shareable handle is the file descriptor itself", not a pointer to it */
        return duplicate((int)(intptr_t)shareable);
    }
    struct fabric fabric;
    if (type != CU_MEM_HANDLE_TYPE_FABRIC || shareable == NULL) {
        return -1;
    }
    memcpy(&fabric, shareable, sizeof fabric);
    if (strncmp(fabric.magic, "simcuda fabric", sizeof fabric.magic) != 0) {
        return -1;
    }
    if (fabric.process == (int)getpid()) {
        return duplicate(fabric.file);
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", fabric.process, fabric.file);
    FILE *file = fopen(path, "r+e");
    if (file == NULL) {
        return -1;
    }
    int descriptor = duplicate(fileno(file));
    fclose(file);
    return descriptor;
}

static struct flw_physical *adopt(int file, uint64_t bytes, CUmemAllocationHandleType type)
{
    struct flw_physical *physical = flw_host_get(sizeof *physical);
    physical->device = &flw_world.device[0];
    physical->bytes = bytes; /* ledger_bytes 0: allocated by the exporter's device */
    physical->file = file;
    physical->id = ++flw_world.next_id;
    physical->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical->properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    physical->properties.requestedHandleTypes = type;
    if (flw_world.config.backed) {
        void *content = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (content == MAP_FAILED) {
            free(physical);
            return NULL;
        }
        physical->content = (struct flw_bytes){.at = content, .bytes = bytes};
        if (flw_check_is_on() && flw_bytes_make(&physical->shadow, bytes)) {
            flw_bytes_fill(&physical->shadow, 0, bytes, FLW_SHADOW_HOST, 1);
        }
    }
    physical->next = flw_world.physicals;
    if (physical->next != NULL) {
        physical->next->previous = physical;
    }
    flw_world.physicals = physical;
    return physical;
}

static CUresult import_handle(CUmemGenericAllocationHandle *out, void *shareable,
                              CUmemAllocationHandleType type)
{
    struct stat about;
    /* "If shHandleType is CU_MEM_HANDLE_TYPE_FABRIC and the importer process has not been granted
     * access to the same IMEX channel": NOT_PERMITTED */
    FLW_REFUSE_IF(type == CU_MEM_HANDLE_TYPE_FABRIC && !flw_profile_permits_fabric(),
                  CUDA_ERROR_NOT_PERMITTED);
    int file = out != NULL ? open_shareable(shareable, type) : -1;
    FLW_REFUSE_IF(file < 0, CUDA_ERROR_INVALID_VALUE);
    if (fstat(file, &about) != 0 || about.st_size <= 0 || !is_grain((uint64_t)about.st_size)) {
        close(file);
        return CUDA_ERROR_INVALID_VALUE;
    }
    struct flw_physical *physical = find_file(&about);
    if (physical != NULL) {
        close(file);
    } else {
        physical = adopt(file, (uint64_t)about.st_size, type);
        if (physical == NULL) {
            close(file);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    /* "Each time a recipient process imports a shareable handle, it needs to pair it with
     * cuMemRelease for the handle to be freed." */
    give_handle(physical);
    *out = physical->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                void *shareable, CUmemAllocationHandleType type)
{
    FLW_CALL(cuMemImportFromShareableHandle, VMM);
    return import_handle(handle, shareable, type);
}
