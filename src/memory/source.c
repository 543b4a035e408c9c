/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the two page sources. One remaps (cuMemCreate, cuMemMap, cuMemSetAccess, cuMemUnmap,
 * cuMemRelease). The other uses whole segments (cuMemAlloc, cuMemFree), for devices without
 * virtual memory management and for memory that must behave as cudaMalloc's. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/answer.h"
#include "fallow/fallow.h"
#include "memory/size_class.h"
#include "memory/source.h"

static void count_call(struct flw_source *source)
{
    atomic_fetch_add_explicit(source->call_count, 1, memory_order_relaxed);
}

/* cuda.h requires a context for none of these calls and lists INVALID_CONTEXT for none. If a
 * driver requires one nevertheless, or returns another context's error, call again with the pool's
 * context. */
static bool is_of_other_context(struct flw_source *source, CUresult result,
                                struct flw_driver_section *section)
{
    return flw_result_is_gone(result) && source->context != NULL &&
           flw_section_open_elsewhere(section, source->driver, source->context, source->call_count);
}

#define CALL(source, result, call)                               \
    do {                                                         \
        struct flw_driver_section section;                       \
        count_call(source);                                      \
        (result) = (call);                                       \
        if (is_of_other_context((source), (result), &section)) { \
            count_call(source);                                  \
            (result) = (call);                                   \
            (void)flw_section_close(&section);                   \
        }                                                        \
    } while (0)

static CUmemAllocationProp properties_of(const struct flw_source *source, uint32_t kinds)
{
    CUmemAllocationProp properties = {0};
    unsigned types = 0;
    types |= (kinds & FALLOW_HANDLE_FD) != 0 ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0u;
    types |= (kinds & FALLOW_HANDLE_FABRIC) != 0 ? CU_MEM_HANDLE_TYPE_FABRIC : 0u;
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = source->device;
    properties.requestedHandleTypes = (CUmemAllocationHandleType)types;
    properties.allocFlags.gpuDirectRDMACapable = (kinds & FLW_HANDLE_RDMA) != 0;
    return properties;
}

/* ---- what the device says of itself */

/* Results that only a driver or device without the feature returns. */
static bool says_no(CUresult result)
{
    return result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE ||
           result == CUDA_ERROR_NOT_PERMITTED;
}

bool flw_source_is_refused(CUresult result)
{
    switch (flw_answer_of(result)) {
    case FLW_ANSWER_OK:
    case FLW_ANSWER_NO_MEMORY:
    case FLW_ANSWER_GONE:
        return false;
    default:
        return true;
    }
}

static bool has_calls(const struct flw_driver *driver)
{
    return driver->cuMemCreate != NULL && driver->cuMemMap != NULL && driver->cuMemUnmap != NULL &&
           driver->cuMemSetAccess != NULL && driver->cuMemRelease != NULL &&
           driver->cuMemAddressReserve != NULL && driver->cuMemAddressFree != NULL &&
           driver->cuMemGetAllocationGranularity != NULL;
}

/* True if the device has the attribute; an old driver does not support the query. */
static bool has(const struct flw_source *source, CUdevice_attribute attribute)
{
    int value = 0;
    return source->driver->cuDeviceGetAttribute(&value, attribute, source->device) ==
               CUDA_SUCCESS &&
           value != 0;
}

static uint32_t kinds_the_device_has(const struct flw_source *source)
{
    uint32_t kinds = 0;
    if (has(source, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        kinds |= FALLOW_HANDLE_FD;
    }
    if (has(source, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) {
        kinds |= FALLOW_HANDLE_FABRIC;
    }
    if (has(source, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) {
        kinds |= FLW_HANDLE_RDMA;
    }
    return kinds;
}

static CUresult ask_granularity(struct flw_source *source, uint32_t kinds)
{
    CUmemAllocationProp properties = properties_of(source, kinds);
    size_t granularity = 0;
    CUresult result = source->driver->cuMemGetAllocationGranularity(
        &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result == CUDA_SUCCESS && !flw_is_pow2(granularity)) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result == CUDA_SUCCESS) {
        source->granularity_bytes = flw_max(granularity, FLW_UNIT_BYTES);
    }
    return result;
}

/* ---- kinds, from the most to none */

#define NO_KINDS_LEFT UINT32_MAX

/* Remove the kind that is least important. Registration is requested again with each lesser type,
 * since the type may have been the cause of the refusal. */
static uint32_t lesser_kinds(const struct flw_source *source, uint32_t kinds)
{
    uint32_t rdma = source->asked_kinds & FLW_HANDLE_RDMA;
    do {
        kinds = (kinds & FLW_HANDLE_RDMA) != 0 ? kinds & ~FLW_HANDLE_RDMA
                : (kinds & FALLOW_HANDLE_FABRIC) != 0
                    ? (kinds & ~(uint32_t)FALLOW_HANDLE_FABRIC) | rdma
                : (kinds & FALLOW_HANDLE_FD) != 0 ? (kinds & ~(uint32_t)FALLOW_HANDLE_FD) | rdma
                                                  : NO_KINDS_LEFT;
    } while (kinds != NO_KINDS_LEFT && (kinds & source->named_kinds) != source->named_kinds);
    return kinds;
}

static uint32_t kind_bit(enum flw_refusal_kind kind)
{
    static const uint32_t bits[] = {[FLW_REFUSED_FABRIC] = FALLOW_HANDLE_FABRIC,
                                    [FLW_REFUSED_FD] = FALLOW_HANDLE_FD,
                                    [FLW_REFUSED_RDMA] = FLW_HANDLE_RDMA,
                                    [FLW_REFUSED_HANDLES] = 0};
    return bits[kind];
}

/* Record that the driver refused these kinds, or their combination. */
static void blame(struct flw_source *source, uint32_t kinds, CUresult answer, const char *call)
{
    for (unsigned kind = 0; kind < FLW_REFUSED_COUNT; kind++) {
        if ((kinds & kind_bit((enum flw_refusal_kind)kind)) != 0 ||
            (kinds == 0 && kind == FLW_REFUSED_HANDLES)) {
            atomic_store(&source->refusals[kind].answer, (int)answer);
            atomic_store(&source->refusals[kind].call, call);
        }
    }
}

/* These kinds work, so none of them was the cause of a refusal. */
static void accept_kinds(struct flw_source *source, uint32_t kinds)
{
    for (unsigned kind = 0; kind < FLW_REFUSED_COUNT; kind++) {
        if ((kinds & kind_bit((enum flw_refusal_kind)kind)) != 0) {
            atomic_store(&source->refusals[kind].call, NULL);
        }
    }
    atomic_store(&source->kinds, kinds);
}

CUresult flw_source_refuse(struct flw_source *source, CUresult answer, const char *call)
{
    if (answer != CUDA_ERROR_OUT_OF_MEMORY && !flw_source_is_refused(answer)) {
        return answer;
    }
    blame(source, 0, answer, call);
    return CUDA_SUCCESS;
}

CUresult flw_source_vmm_ask(struct flw_source *source, bool *out_can)
{
    int supported = 0;
    *out_can = false;
    if (!has_calls(source->driver)) {
        return CUDA_SUCCESS;
    }
    CUresult result = source->driver->cuDeviceGetAttribute(
        &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, source->device);
    if (result != CUDA_SUCCESS || supported == 0) {
        return says_no(result) ? CUDA_SUCCESS : result;
    }
    uint32_t has_kinds = kinds_the_device_has(source);
    uint32_t types = source->named_kinds != 0 ? source->named_kinds : has_kinds & ~FLW_HANDLE_RDMA;
    source->asked_kinds = types | (has_kinds & FLW_HANDLE_RDMA);
    for (uint32_t kinds = source->asked_kinds; kinds != NO_KINDS_LEFT && !*out_can;
         kinds = lesser_kinds(source, kinds)) {
        result = ask_granularity(source, kinds);
        if (result == CUDA_SUCCESS) {
            accept_kinds(source, kinds);
            *out_can = true;
        } else if (says_no(result)) {
            blame(source, kinds, result, "cuMemGetAllocationGranularity");
        } else {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult vmm_reserve(struct flw_source *source, uint64_t bytes, uint64_t align_bytes,
                            uint64_t *out_base)
{
    CUdeviceptr base = 0;
    count_call(source);
    CUresult result = source->driver->cuMemAddressReserve(
        &base, bytes, flw_max(align_bytes, source->granularity_bytes), 0, 0);
    *out_base = base;
    return result;
}

static CUresult vmm_unreserve(struct flw_source *source, uint64_t base, uint64_t bytes)
{
    count_call(source);
    return source->driver->cuMemAddressFree(base, bytes);
}

static CUresult create_with(struct flw_source *source, uint64_t bytes, uint32_t kinds,
                            uint64_t *out_handle)
{
    CUmemAllocationProp properties = properties_of(source, kinds);
    CUmemGenericAllocationHandle handle = 0;
    CUresult result;
    CALL(source, result, source->driver->cuMemCreate(&handle, bytes, &properties, 0));
    *out_handle = handle;
    return result;
}

/* The kinds were refused with `first`. Create with fewer, as many as work; the others are left out
 * from now on. */
static CUresult create_lesser(struct flw_source *source, uint64_t bytes, CUresult first,
                              uint32_t *kinds, uint64_t *out_handle)
{
    CUresult result = first;
    uint32_t lesser = *kinds;
    while (flw_source_is_refused(result) &&
           (lesser = lesser_kinds(source, lesser)) != NO_KINDS_LEFT) {
        result = create_with(source, bytes, lesser, out_handle);
    }
    if (result == CUDA_SUCCESS) {
        blame(source, *kinds & ~lesser, first, "cuMemCreate");
        (void)atomic_fetch_and(&source->kinds, lesser);
        *kinds = lesser;
    }
    return result;
}

/* Create with the fewest kinds, for this handle only. */
static CUresult create_least(struct flw_source *source, uint64_t bytes, CUresult first,
                             uint32_t *kinds, uint64_t *out_handle)
{
    uint32_t least = *kinds, lesser;
    while ((lesser = lesser_kinds(source, least)) != NO_KINDS_LEFT) {
        least = lesser;
    }
    CUresult result = least != *kinds ? create_with(source, bytes, least, out_handle) : first;
    *kinds = result == CUDA_SUCCESS ? least : *kinds;
    return result;
}

/* A kind that worked at first may be refused later (a limit of the fabric, a revoked permission).
 * Kinds that the caller did not name are then left out. If the driver refuses that too, the kind
 * was not the cause; as long as this lasts, two calls show it. */
static CUresult vmm_create(struct flw_source *source, uint64_t bytes, uint32_t *kinds,
                           uint64_t *out_handle)
{
    CUresult first = create_with(source, bytes, *kinds, out_handle), result = first;
    if (flw_source_is_refused(first)) {
        result = atomic_load(&source->refuses_all)
                     ? create_least(source, bytes, first, kinds, out_handle)
                     : create_lesser(source, bytes, first, kinds, out_handle);
    }
    atomic_store(&source->refuses_all, flw_source_is_refused(result));
    return flw_source_is_refused(result) ? first : result;
}

static CUresult vmm_release(struct flw_source *source, uint64_t handle)
{
    CUresult result;
    CALL(source, result, source->driver->cuMemRelease(handle));
    return result;
}

static CUresult vmm_map(struct flw_source *source, uint64_t address, uint64_t bytes,
                        uint64_t handle)
{
    CUresult result;
    CALL(source, result, source->driver->cuMemMap(address, bytes, 0, handle, 0));
    return result;
}

static CUresult vmm_unmap(struct flw_source *source, uint64_t address, uint64_t bytes)
{
    CUresult result;
    CALL(source, result, source->driver->cuMemUnmap(address, bytes));
    return result;
}

/* "The range must be the entire contiguous address range that was mapped to" (cuMemUnmap):
 * NVIDIA's sample vectorAddMMAP applies that to several adjacent mappings. If the driver refuses
 * several and then unmaps the first alone, the number was the cause. */
CUresult flw_source_unmap_all(struct flw_source *source, uint64_t address, const uint64_t bytes[],
                              uint32_t count, uint32_t *out_done)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t whole = 0;
    for (uint32_t i = 0; i < count; i++) {
        whole += bytes[i];
    }
    *out_done = 0;
    if (count > 1 && !atomic_load(&source->unmaps_singly)) {
        result = source->ops->unmap(source, address, whole);
        if (!flw_source_is_refused(result)) {
            *out_done = result == CUDA_SUCCESS ? count : 0;
            return result;
        }
        result = CUDA_SUCCESS;
    }
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        result = source->ops->unmap(source, address, bytes[i]);
        address += bytes[i];
        *out_done += result == CUDA_SUCCESS;
    }
    if (count > 1 && *out_done > 0) {
        atomic_store(&source->unmaps_singly, true);
    }
    return result;
}

static CUresult vmm_set_access(struct flw_source *source, uint64_t address, uint64_t bytes)
{
    CUmemAccessDesc access[FLW_SOURCE_DEVICES];
    for (uint32_t i = 0; i < source->access_count; i++) {
        access[i].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access[i].location.id = source->access_devices[i];
        access[i].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    }
    CUresult result;
    CALL(source, result,
         source->driver->cuMemSetAccess(address, bytes, access, source->access_count));
    return result;
}

static CUresult vmm_set_peer(struct flw_source *source, uint64_t address, uint64_t bytes,
                             int device, bool is_allowed)
{
    CUmemAccessDesc access = {0};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = is_allowed ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUresult result;
    CALL(source, result, source->driver->cuMemSetAccess(address, bytes, &access, 1));
    return result;
}

const struct flw_source_ops flw_source_vmm = {
    .name = "virtual memory management",
    .remaps = true,
    .reserve = vmm_reserve,
    .unreserve = vmm_unreserve,
    .create = vmm_create,
    .release = vmm_release,
    .map = vmm_map,
    .unmap = vmm_unmap,
    .set_access = vmm_set_access,
    .set_peer = vmm_set_peer,
};

/* ---- the probe */

#define PROBE_WORD 0x50524f4245464c57ull

/* Write and read the last word of the grain on a stream of its own: the legacy stream must not be
 * used while any blocking stream is captured, in any mode of the thread. Copies rather than a
 * kernel, which would wait for busy multiprocessors. A copy to pageable memory returns when
 * complete. */
struct trial {
    CUresult answer;
    const char *call;
    bool is_stuck; /* cannot be released now (a copy may be under way): no other trial follows */
};

static void write_and_read(struct flw_source *source, CUstream stream, uint64_t address,
                           struct trial *trial)
{
    const struct flw_driver *driver = source->driver;
    const uint64_t written = PROBE_WORD, unread = ~PROBE_WORD;
    uint64_t read = unread, at = address + source->granularity_bytes - sizeof written;
    trial->call = "cuMemcpyHtoDAsync";
    count_call(source);
    trial->answer = driver->cuMemcpyHtoDAsync_v2(at, &written, sizeof written, stream);
    if (trial->answer != CUDA_SUCCESS) {
        return;
    }
    trial->call = "cuMemcpyDtoHAsync";
    count_call(source);
    trial->answer = driver->cuMemcpyDtoHAsync_v2(&read, at, sizeof read, stream);
    if (trial->answer != CUDA_SUCCESS) { /* nothing has waited for the first copy */
        count_call(source);
        CUresult result = driver->cuStreamSynchronize(stream);
        trial->is_stuck = result != CUDA_SUCCESS && flw_answer_of(result) != FLW_ANSWER_GONE;
    } else if (read != written && read != unread) { /* (unread: a device without contents) */
        trial->call = "the copy back of what was written";
        trial->answer = CUDA_ERROR_UNKNOWN;
    }
}

/* Undo the trial, with one retry. The pool keeps whatever cannot be released. */
static void take_back(struct flw_source *source, struct trial *trial, uint64_t address,
                      uint64_t handle, bool is_mapped)
{
    uint64_t bytes = source->granularity_bytes;
    source->is_left_busy = trial->is_stuck;
    source->is_left_mapped =
        is_mapped && (trial->is_stuck || (vmm_unmap(source, address, bytes) != CUDA_SUCCESS &&
                                          vmm_unmap(source, address, bytes) != CUDA_SUCCESS));
    if (source->is_left_mapped || (vmm_release(source, handle) != CUDA_SUCCESS &&
                                   vmm_release(source, handle) != CUDA_SUCCESS)) {
        trial->is_stuck = true;
        source->left_handle = handle;
    }
}

/* Create, map, write, read and release one grain of these kinds. */
static struct trial try_grain(struct flw_source *source, CUstream stream, uint64_t address,
                              uint32_t kinds)
{
    uint64_t bytes = source->granularity_bytes, handle = 0;
    struct trial trial = {.call = "cuMemCreate"};
    trial.answer = create_with(source, bytes, kinds, &handle);
    if (trial.answer != CUDA_SUCCESS) {
        return trial;
    }
    trial.call = "cuMemMap";
    trial.answer = vmm_map(source, address, bytes, handle);
    bool is_mapped = trial.answer == CUDA_SUCCESS;
    if (is_mapped) {
        trial.call = "cuMemSetAccess";
        trial.answer = vmm_set_access(source, address, bytes);
    }
    if (trial.answer == CUDA_SUCCESS && stream != NULL) {
        write_and_read(source, stream, address, &trial);
    }
    take_back(source, &trial, address, handle, is_mapped);
    return trial;
}

CUresult flw_source_vmm_probe(struct flw_source *source, uint64_t address, bool *out_can)
{
    const struct flw_driver *driver = source->driver;
    uint32_t kinds = atomic_load(&source->kinds);
    CUstream stream = NULL;
    count_call(source);
    if (driver->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        stream = NULL; /* then nothing is written */
    }
    struct trial trial = try_grain(source, stream, address, kinds);
    while (flw_source_is_refused(trial.answer) && !trial.is_stuck) {
        uint32_t lesser = lesser_kinds(source, kinds);
        blame(source, lesser == NO_KINDS_LEFT ? 0 : kinds, trial.answer, trial.call);
        if (lesser == NO_KINDS_LEFT) {
            break;
        }
        kinds = lesser;
        CUresult granularity = ask_granularity(source, kinds);
        trial = granularity == CUDA_SUCCESS
                    ? try_grain(source, stream, address, kinds)
                    : (struct trial){granularity, "cuMemGetAllocationGranularity", false};
    }
    /* If a driver refuses to release memory for now, or has no memory, trust the attributes. */
    bool is_gone = flw_answer_of(trial.answer) == FLW_ANSWER_GONE;
    *out_can = !is_gone && (trial.is_stuck || !flw_source_is_refused(trial.answer));
    if (*out_can) {
        accept_kinds(source, kinds);
    }
    if (stream != NULL) {
        count_call(source);
        (void)driver->cuStreamDestroy_v2(stream);
    }
    return is_gone ? trial.answer : CUDA_SUCCESS;
}

/* ---- segments */

static CUresult slab_acquire(struct flw_source *source, uint64_t bytes, uint64_t *out_address)
{
    CUdeviceptr address = 0;
    count_call(source);
    CUresult result = source->driver->cuMemAlloc_v2(&address, bytes);
    *out_address = address;
    return result;
}

static CUresult slab_release_segment(struct flw_source *source, uint64_t address)
{
    count_call(source);
    return source->driver->cuMemFree_v2(address);
}

const struct flw_source_ops flw_source_slab = {
    .name = "cuMemAlloc segments",
    .remaps = false,
    .acquire = slab_acquire,
    .release_segment = slab_release_segment,
};
