/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: regions (every used range of addresses) and the allocations that are one piece of memory
 * at one address: cuMemAlloc, managed and pinned host memory.
 * Does not: map handles (vmm.c) or allocate from pools (mempool.c).
 *
 * The ledger counts an allocation below 1 MiB in steps of 512 bytes, others in pages of 2 MiB: a
 * driver's small allocations share pages, large ones do not. Padding is a red zone. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "simcuda/check.h"
#include "simcuda/forms.h"
#include "simcuda/host.h"
#include "simcuda/shadow.h"
#include "simcuda/storage.h"

#define SMALL_STEP 512ull

struct flw_region *flw_region_find(uint64_t address)
{
    struct flw_tree_node *node = flw_tree_find(&flw_world.regions, address);
    return node != NULL ? FLW_CONTAINER(node, struct flw_region, node) : NULL;
}

struct flw_region *flw_region_add(enum flw_region_kind kind, uint64_t begin, uint64_t end)
{
    struct flw_region *region = flw_host_get(sizeof *region);
    region->kind = kind;
    region->node.begin = begin;
    region->node.end = end;
    flw_tree_insert(&flw_world.regions, &region->node);
    return region;
}

struct flw_region *flw_region_give(enum flw_region_kind kind, struct flw_device *device,
                                   uint64_t bytes, uint64_t align_bytes, CUresult *error)
{
    struct flw_physical *physical = flw_physical_make(device, bytes, error);
    if (physical == NULL) {
        return NULL;
    }
    uint64_t begin = flw_space_take(&flw_world.space, bytes, align_bytes);
    if (begin == 0) {
        flw_physical_free(physical);
        *error = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    struct flw_region *region = flw_region_add(kind, begin, begin + bytes);
    region->bytes = bytes;
    region->device = device;
    region->physical = physical;
    physical->mapping_count = 1;
    return region;
}

void flw_region_remove(struct flw_region *region)
{
    flw_tree_remove(&flw_world.regions, &region->node);
    flw_world.region_version++;
    free(region);
}

bool flw_storage_part(uint64_t address, uint64_t bytes, struct flw_part *part)
{
    struct flw_region *region = flw_region_find(address);
    if (region == NULL) {
        return false;
    }
    const struct flw_tree_node *node = &region->node;
    struct flw_physical *physical = region->physical;
    if (region->kind == FLW_REGION_RESERVATION) {
        struct flw_mapping *mapping = flw_mapping_find(address);
        if (mapping == NULL) {
            return false;
        }
        node = &mapping->node;
        physical = mapping->physical;
    }
    uint64_t offset = address - node->begin;
    *part = (struct flw_part){
        .physical = physical, .offset = offset, .bytes = flw_min(bytes, node->end - address)};
    if (region->host != NULL) {
        part->host = (unsigned char *)region->host + offset;
        part->physical = NULL;
        return true;
    }
    return physical != NULL && physical->content.at != NULL;
}

const unsigned char *flw_storage_to_read(uint64_t address, uint64_t *bytes)
{
    struct flw_part part;
    if (flw_storage_part(address, *bytes, &part)) {
        *bytes = part.bytes;
        return part.host != NULL ? part.host
                                 : flw_bytes_read(&part.physical->content, part.offset, bytes);
    }
    if (!flw_profile_reads(address)) {
        return NULL;
    }
    *bytes = flw_min(*bytes, FLW_PAGE - (address & (FLW_PAGE - 1)));
    return (const unsigned char *)(uintptr_t)address;
}

bool flw_storage_read(void *to, uint64_t from, uint64_t bytes)
{
    for (uint64_t done = 0, part; done < bytes; done += part) {
        part = bytes - done;
        const unsigned char *content = flw_storage_to_read(from + done, &part);
        if (content == NULL) {
            return false;
        }
        memcpy((unsigned char *)to + done, content, part);
    }
    return true;
}

static void mark_part(const struct flw_part *part, unsigned char mark)
{
    if (part->physical != NULL && part->physical->shadow.at != NULL) {
        flw_bytes_fill(&part->physical->shadow, part->offset, part->bytes, mark, 1);
    }
}

void flw_storage_write(uint64_t to, const void *from, uint64_t bytes, unsigned char mark)
{
    struct flw_part part;
    for (uint64_t done = 0; done < bytes; done += part.bytes) {
        if (!flw_storage_part(to + done, bytes - done, &part)) {
            return;
        }
        unsigned char *content =
            part.host != NULL ? part.host
                              : flw_bytes_write(&part.physical->content, part.offset, part.bytes);
        memcpy(content, (const unsigned char *)from + done, part.bytes);
        mark_part(&part, mark);
    }
}

void flw_storage_fill(uint64_t to, uint64_t bytes, uint32_t value, unsigned value_bytes,
                      unsigned char mark)
{
    struct flw_part part;
    for (uint64_t done = 0; done < bytes; done += part.bytes) {
        if (!flw_storage_part(to + done, bytes - done, &part)) {
            return;
        }
        struct flw_bytes host = {.at = part.host, .bytes = part.bytes};
        flw_bytes_fill(part.host != NULL ? &host : &part.physical->content,
                       part.host != NULL ? 0 : part.offset, part.bytes, value, value_bytes);
        mark_part(&part, mark);
    }
}

void flw_storage_copy(uint64_t to, uint64_t from, uint64_t bytes)
{
    struct flw_part part;
    for (uint64_t done = 0, size; done < bytes; done += size) {
        if (!flw_storage_part(to + done, bytes - done, &part)) {
            return;
        }
        size = part.bytes;
        const unsigned char *content = flw_storage_to_read(from + done, &size);
        if (content == NULL) {
            return;
        }
        if (part.host != NULL) {
            memmove(part.host, content, size);
        } else {
            flw_bytes_put(&part.physical->content, part.offset, content, size);
        }
    }
}

bool flw_storage_is_host(uint64_t address)
{
    const struct flw_region *region = flw_region_find(address);
    return region != NULL && region->host != NULL;
}

bool flw_storage_is_readable(uint64_t address)
{
    return flw_storage_is_known(address) || flw_profile_reads(address);
}

bool flw_storage_is_known(uint64_t address)
{
    struct flw_region *region = flw_region_find(address);
    if (region == NULL) {
        return false;
    }
    return region->kind != FLW_REGION_RESERVATION || flw_mapping_find(address) != NULL;
}

/* ---- cuMemAlloc ---- */

static CUresult allocate(struct flw_context *context, CUdeviceptr *out, uint64_t bytes)
{
    /* "If bytesize is 0, ... CUDA_ERROR_INVALID_VALUE" */
    FLW_REFUSE_IF(out == NULL || bytes == 0, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(bytes > flw_world.config.device_bytes, CUDA_ERROR_OUT_OF_MEMORY);
    uint64_t step = bytes < FLW_MIB ? SMALL_STEP : FLW_GRANULARITY;
    uint64_t whole = flw_align_up(bytes, step);
    CUresult error;
    struct flw_region *region =
        flw_region_give(FLW_REGION_ALLOCATION, context->device, whole, step, &error);
    if (region == NULL) {
        return error;
    }
    region->bytes = bytes;
    region->context = flw_context_owner(context);
    context->device->allocation_count++;
    flw_shadow_set(region->node.begin + bytes, whole - bytes, FLW_SHADOW_RED);
    flw_latency_add_bytes(FLW_ENTRY_cuMemAlloc_v2, bytes);
    *out = region->node.begin;
    return CUDA_SUCCESS;
}

static void unlink_freed(const struct flw_region *region)
{
    struct flw_region **place = &flw_world.freed_regions;
    while (*place != region) {
        place = &(*place)->next_freed;
    }
    *place = region->next_freed;
}

/* Release everything of the region: contents, ledger, address. */
static void drop(struct flw_region *region)
{
    uint64_t begin = region->node.begin;
    uint64_t bytes = region->node.end - begin;
    flw_check_forget(begin, begin + bytes);
    if (region->is_freed) {
        unlink_freed(region);
    }
    if (region->device != NULL) {
        region->device->allocation_count--;
    }
    if (region->host != NULL) {
        if (!region->is_registered) {
            munmap(region->host, bytes);
        }
        if (region->kind == FLW_REGION_HOST) {
            flw_world.pinned_bytes -= bytes;
        } else {
            flw_ledger_take_back(region->device, bytes);
        }
    } else {
        flw_physical_free(region->physical);
        flw_space_release(&flw_world.space, begin, bytes);
    }
    flw_region_remove(region);
}

void flw_memory_end_context(struct flw_context *context)
{
    /* "These resources also include memory allocations by cuMemAlloc(), cuMemAllocHost(),
     * cuMemAllocManaged() and cuMemAllocPitch()." */
    struct flw_tree_node *node = flw_tree_from(&flw_world.regions, 0);
    while (node != NULL) {
        uint64_t end = node->end;
        struct flw_region *region = FLW_CONTAINER(node, struct flw_region, node);
        if (region->context == context) {
            drop(region);
        }
        node = flw_tree_from(&flw_world.regions, end);
    }
}

bool flw_ledger_is_valid(void)
{
    uint64_t given[FLW_DEVICE_MAX] = {0};
    uint64_t allocations[FLW_DEVICE_MAX] = {0};
    uint64_t reserved = 0;
    uint64_t pinned = 0;
    for (const struct flw_physical *physical = flw_world.physicals; physical != NULL;
         physical = physical->next) {
        given[physical->device->ordinal] += physical->ledger_bytes;
    }
    for (struct flw_tree_node *node = flw_tree_from(&flw_world.regions, 0); node != NULL;
         node = node->next) {
        const struct flw_region *region = FLW_CONTAINER(node, struct flw_region, node);
        uint64_t bytes = node->end - node->begin;
        reserved += region->kind == FLW_REGION_RESERVATION ? bytes : 0;
        pinned += region->kind == FLW_REGION_HOST ? bytes : 0;
        if (region->kind == FLW_REGION_ALLOCATION || region->kind == FLW_REGION_MANAGED) {
            allocations[region->device->ordinal]++;
            given[region->device->ordinal] += region->kind == FLW_REGION_MANAGED ? bytes : 0;
        }
    }
    bool is_valid = reserved == flw_world.reserved_address_bytes &&
                    pinned == flw_world.pinned_bytes &&
                    flw_world.mapping_count == flw_world.mappings.count;
    for (int i = 0; i < flw_world.config.device_count; i++) {
        const struct flw_device *device = &flw_world.device[i];
        is_valid = is_valid && given[i] == device->given_bytes &&
                   allocations[i] == device->allocation_count &&
                   device->given_bytes <= device->peak_given_bytes &&
                   device->peak_given_bytes <= device->total_given_bytes &&
                   device->peak_given_bytes <= flw_world.config.device_bytes;
    }
    return is_valid;
}

void flw_memory_finish_all(void)
{
    while (flw_world.regions.root != NULL) {
        struct flw_region *region = FLW_CONTAINER(flw_world.regions.root, struct flw_region, node);
        if (region->kind == FLW_REGION_RESERVATION) {
            flw_region_remove(region);
        } else {
            drop(region);
        }
    }
    while (flw_world.physicals != NULL) {
        flw_physical_free(flw_world.physicals);
    }
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    FLW_CALL(cuMemAlloc_v2, FLW_CALL_CONTEXT | FLW_CALL_UNSAFE);
    return allocate(call.context, pointer, bytes);
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes,
                                    size_t height, unsigned element_bytes)
{
    FLW_CALL(cuMemAllocPitch_v2, FLW_CALL_CONTEXT | FLW_CALL_UNSAFE);
    if (pitch == NULL || height == 0 || width_bytes > flw_world.config.device_bytes ||
        height > flw_world.config.device_bytes ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t row = flw_align_up(width_bytes, SMALL_STEP);
    uint64_t whole;
    FLW_REFUSE_IF(__builtin_mul_overflow(row, (uint64_t)height, &whole), CUDA_ERROR_OUT_OF_MEMORY);
    FLW_TRY(allocate(call.context, pointer, whole));
    *pitch = row;
    return CUDA_SUCCESS;
}

/* Return the allocation that begins there and that only the caller may free yet; NULL: none. */
static struct flw_region *live_allocation(uint64_t address)
{
    struct flw_region *region = flw_region_find(address);
    bool is_it = region != NULL && region->node.begin == address && !region->is_freed &&
                 (region->kind == FLW_REGION_ALLOCATION || region->kind == FLW_REGION_MANAGED);
    return is_it ? region : NULL;
}

static CUresult free_memory(struct flw_call *call, CUdeviceptr pointer)
{
    if (pointer == 0) {
        return CUDA_SUCCESS;
    }
    if (flw_pool_owns(pointer)) {
        return flw_pool_free_now(pointer);
    }
    struct flw_region *region = live_allocation(pointer);
    FLW_REFUSE_IF(region == NULL, CUDA_ERROR_INVALID_VALUE);
    /* "this API may perform implicit synchronization": it does. The host must not conclude
     * anything from "may", so for the checker this is no observation. */
    flw_order_wait_device(call->thread, region->device);
    region = live_allocation(pointer);
    /* another thread freed the block during the wait */
    FLW_REFUSE_IF(region == NULL, CUDA_ERROR_INVALID_VALUE);
    drop(region);
    return CUDA_SUCCESS;
}

/* The header's text for cuMemFreeAsync is "memory to free"; NVIDIA's programming guide,
 * "Stream-Ordered Memory Allocator", adds that it may be cudaMalloc's too, and that accesses
 * precede the free as for any other. Neither mentions managed memory. */
CUresult flw_memory_free_in_order(struct flw_stream *stream, uint64_t address)
{
    struct flw_region *region = live_allocation(address);
    /* captured, "the address of a graph allocation" */
    FLW_REFUSE_IF(region == NULL || region->kind != FLW_REGION_ALLOCATION ||
                      stream->capture != NULL,
                  CUDA_ERROR_INVALID_VALUE);
    struct flw_sim_range range = {
        .address = address, .bytes = region->bytes, .is_write = 1, .flags = FLW_RANGE_OWNERSHIP};
    struct flw_work work = {
        .kind = FLW_WORK_TOUCH, .name = flw_check_frees, .ranges = &range, .range_count = 1};
    CUresult result = flw_order_submit(stream, &work, &region->freed);
    if (result == CUDA_SUCCESS) {
        region->is_freed = true;
        region->next_freed = flw_world.freed_regions;
        flw_world.freed_regions = region;
    }
    return result;
}

void flw_memory_collect(void)
{
    struct flw_region *next;
    for (struct flw_region *region = flw_world.freed_regions; region != NULL; region = next) {
        next = region->next_freed;
        if (flw_order_is_done(&region->freed)) {
            drop(region);
        }
    }
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr pointer)
{
    FLW_CALL(cuMemFree_v2, FLW_CALL_CONTEXT | FLW_CALL_UNSAFE);
    return free_memory(&call, pointer);
}

/* ---- memory at real host addresses ---- */

#define HUGE_PAGE (2ull << 20)

/* A whole number of huge pages begins at a huge page, as with a driver. The kernel guarantees that
 * only from version 6.7 on, and an emulator never does, so it is done here: worlds are the same
 * everywhere. */
static unsigned char *map_aligned(uint64_t bytes)
{
    uint64_t align = bytes % HUGE_PAGE == 0 ? HUGE_PAGE : FLW_PAGE;
    uint64_t spare = align - FLW_PAGE;
    unsigned char *begin = mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) {
        return NULL;
    }
    uint64_t before = -(uintptr_t)begin & (align - 1);
    if (before != 0) {
        munmap(begin, before);
    }
    if (before != spare) {
        munmap(begin + before + bytes, spare - before);
    }
    return begin + before;
}

static struct flw_region *map_host(enum flw_region_kind kind, uint64_t bytes)
{
    uint64_t whole = flw_align_up(bytes, FLW_PAGE);
    void *host = map_aligned(whole);
    if (host == NULL) {
        return NULL;
    }
    struct flw_region *region = flw_region_add(kind, (uintptr_t)host, (uintptr_t)host + whole);
    region->bytes = bytes;
    region->host = host;
    return region;
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    FLW_CALL(cuMemAllocManaged, FLW_CALL_CONTEXT | FLW_CALL_UNSAFE);
    FLW_REFUSE_IF(pointer == NULL || bytes == 0 || flags == 0 ||
                      flags > (CU_MEM_ATTACH_GLOBAL | CU_MEM_ATTACH_HOST),
                  CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(flw_world.profile.is_vgpu, CUDA_ERROR_NOT_SUPPORTED);
    FLW_TRY(flw_ledger_give(call.context->device, flw_align_up(bytes, FLW_PAGE)));
    struct flw_region *region = map_host(FLW_REGION_MANAGED, bytes);
    if (region == NULL) {
        flw_ledger_take_back(call.context->device, flw_align_up(bytes, FLW_PAGE));
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    region->context = flw_context_owner(call.context);
    region->device = call.context->device;
    region->device->allocation_count++;
    *pointer = region->node.begin;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    FLW_CALL(cuMemHostAlloc, FLW_CALL_CONTEXT | FLW_CALL_UNSAFE);
    FLW_REFUSE_IF(pointer == NULL || bytes == 0 || flags > 7, CUDA_ERROR_INVALID_VALUE);
    struct flw_region *region = map_host(FLW_REGION_HOST, bytes);
    FLW_REFUSE_IF(region == NULL, CUDA_ERROR_OUT_OF_MEMORY);
    region->context = flw_context_owner(call.context);
    region->flags = flags;
    flw_world.pinned_bytes += region->node.end - region->node.begin;
    flw_latency_add_bytes(FLW_ENTRY_cuMemHostAlloc, bytes);
    *pointer = region->host;
    return CUDA_SUCCESS;
}

/* Operations may still read it: as with cuMemFree the call waits. */
static void drop_pinned(struct flw_call *call, struct flw_region *region)
{
    uint64_t begin = region->node.begin;
    if (region->context != NULL) {
        flw_order_wait_device(call->thread, region->context->device);
        region = flw_region_find(begin);
    }
    if (region != NULL) {
        drop(region);
    }
}

CUresult CUDAAPI cuMemFreeHost(void *pointer)
{
    FLW_CALL(cuMemFreeHost, FLW_CALL_CONTEXT | FLW_CALL_UNSAFE);
    struct flw_region *region = flw_region_find((uintptr_t)pointer);
    FLW_REFUSE_IF(region == NULL || region->kind != FLW_REGION_HOST || region->host != pointer ||
                      region->is_registered,
                  CUDA_ERROR_INVALID_VALUE);
    drop_pinned(&call, region);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
    FLW_CALL(cuMemHostRegister_v2, FLW_CALL_CONTEXT | FLW_CALL_UNSAFE);
    uint64_t begin = (uintptr_t)pointer, end = begin + bytes;
    FLW_REFUSE_IF(pointer == NULL || bytes == 0 || end < begin || flags > 15,
                  CUDA_ERROR_INVALID_VALUE);
    const struct flw_tree_node *next = flw_tree_from(&flw_world.regions, begin);
    FLW_REFUSE_IF(next != NULL && next->begin < end, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    struct flw_region *region = flw_region_add(FLW_REGION_HOST, begin, end);
    region->bytes = bytes;
    region->host = pointer;
    region->context = flw_context_owner(call.context);
    region->flags = flags;
    region->is_registered = true;
    flw_world.pinned_bytes += bytes;
    flw_latency_add_bytes(FLW_ENTRY_cuMemHostRegister_v2, bytes);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void *pointer)
{
    FLW_CALL(cuMemHostUnregister, FLW_CALL_CONTEXT | FLW_CALL_UNSAFE);
    struct flw_region *region = flw_region_find((uintptr_t)pointer);
    FLW_REFUSE_IF(region == NULL || !region->is_registered || region->host != pointer,
                  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    drop_pinned(&call, region);
    return CUDA_SUCCESS;
}

/* "the device pointer returned by cuMemHostGetDevicePointer() will match the original pointer p" */
CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *pointer, unsigned flags)
{
    FLW_CALL(cuMemGetAddressRange_v2, FLW_CALL_CONTEXT);
    struct flw_region *region = flw_region_find((uintptr_t)pointer);
    FLW_REFUSE_IF(out == NULL || flags != 0 || region == NULL || region->kind != FLW_REGION_HOST,
                  CUDA_ERROR_INVALID_VALUE);
    *out = (uintptr_t)pointer;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned *flags, void *pointer)
{
    FLW_CALL(cuMemGetAddressRange_v2, FLW_CALL_CONTEXT);
    struct flw_region *region = flw_region_find((uintptr_t)pointer);
    FLW_REFUSE_IF(flags == NULL || region == NULL || region->kind != FLW_REGION_HOST ||
                      region->is_registered,
                  CUDA_ERROR_INVALID_VALUE);
    *flags = region->flags;
    return CUDA_SUCCESS;
}

/* Managed memory is host memory that every device reads: advice and prefetches, which are hints, have
 * no effect. */
static CUresult hint(enum flw_entry entry, CUdeviceptr pointer, size_t bytes, CUstream handle)
{
    FLW_FRAME(flw_stream_enter(&call, entry, FLW_CALL_CONTEXT, handle));
    const struct flw_region *region = flw_region_find(pointer);
    return region == NULL || region->kind != FLW_REGION_MANAGED || bytes == 0 ||
                   bytes > region->node.end - pointer
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice,
                             CUdevice device)
{
    (void)device;
    return advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY
               ? CUDA_ERROR_INVALID_VALUE
               : hint(FLW_ENTRY_cuMemGetAddressRange_v2, pointer, bytes, CU_STREAM_LEGACY);
}

CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device,
                                    CUstream stream)
{
    (void)device;
    return hint(FLW_ENTRY_cuMemcpyDtoDAsync_v2, pointer, bytes, stream);
}
