/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about sharing: export and import through a file descriptor, in this process and
 * in another that has only the descriptor; queries of libraries before they register an address;
 * and devices that share memory. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODULE "share"
#include "conformance.h"

#define WORD_BEFORE 0x5eed0001u
#define WORD_AFTER  0x5eed0002u

static bool can_share(struct bed *b)
{
    int can = 0;
    if (b->cu->cuMemExportToShareableHandle == NULL ||
        b->cu->cuDeviceGetAttribute(&can,
                                    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                    b->device) != CUDA_SUCCESS ||
        can == 0) {
        b->skip = "the device exports no file descriptors";
    }
    return b->skip == NULL;
}

static CUresult import_file(struct bed *b, CUmemGenericAllocationHandle *handle, int file)
{
    return b->cu->cuMemImportFromShareableHandle(handle, (void *)(intptr_t)file,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

/* Map, look for WORD_BEFORE, leave WORD_AFTER, unmap. */
static void use_imported(struct bed *b, CUmemGenericAllocationHandle handle, size_t grain)
{
    CUdeviceptr address = 0;
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (OK(b->cu->cuMemAddressReserve(&address, grain, 0, 0, 0)) &&
        OK(b->cu->cuMemMap(address, grain, 0, handle, 0)) &&
        OK(b->cu->cuMemSetAccess(address, grain, &access, 1))) {
        THAT(bed_peek(b, address + 8) == WORD_BEFORE);
        bed_poke(b, address + 8, WORD_AFTER);
        OK(b->cu->cuMemUnmap(address, grain));
        OK(b->cu->cuMemAddressFree(address, grain));
    }
}

HEADER(import_in_the_same_process_shows_the_contents,
       "The recipient process can convert the shareable handle back into a CUDA memory handle")
{
    struct bed_mapping m;
    CUmemGenericAllocationHandle handle = 0;
    int file = -1;
    NEED(can_share(b) && bed_map(b, &m, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    bed_poke(b, m.address + 8, WORD_BEFORE);
    OK(b->cu->cuMemExportToShareableHandle(&file, m.handle[0],
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    THAT(file >= 0);
    OK(import_file(b, &handle, file));
    close(file);
    use_imported(b, handle, m.grain_bytes);
    THAT(bed_peek(b, m.address + 8) == WORD_AFTER);
    OK(b->cu->cuMemRelease(handle));
    THAT(bed_peek(b, m.address + 8) == WORD_AFTER); /* the exporter's own reference stays */
    bed_unmap(b, &m);
}

int conformance_import_child(struct bed *b, int file)
{
    CUmemGenericAllocationHandle handle = 0;
    if (b->is_sim) {
        flw_sim_config config = flw_sim_config_default(2);
        config.schedule = FLW_SIM_HELD;
        config.backed = 1;
        b->context = flw_sim_begin(&b->sim, &config);
    } else {
        OK(b->cu->cuDevicePrimaryCtxRetain(&b->context, b->device));
        OK(b->cu->cuCtxSetCurrent(b->context));
    }
    if (OK(import_file(b, &handle, file))) {
        use_imported(b, handle, bed_grain(b));
        OK(b->cu->cuMemRelease(handle));
    }
    if (b->failures > 0) {
        fprintf(stderr, "importing process: %s\n", b->message);
    }
    return b->failures > 0;
}

/* CUDA is unusable in the child of a fork, so the child executes a new program at once. */
static int run_importer(struct bed *b, int file)
{
    char number[16], program[4096], import[] = "--import";
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    snprintf(number, sizeof number, "%d", file);
    char *with_driver[] = {program, (char *)(uintptr_t)b->driver_name, import, number, NULL};
    char *without[] = {program, import, number, NULL};
    pid_t child = fork();
    if (child == 0) {
        execv(program, b->driver_name != NULL ? with_driver : without);
        _exit(127);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

HEADER(import_in_another_process_shows_the_contents,
       "create a shareable memory allocation handle that can be used to share the memory "
       "with other processes")
{
    struct bed_mapping m;
    int file = -1;
    NEED(can_share(b) && bed_map(b, &m, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    bed_poke(b, m.address + 8, WORD_BEFORE);
    OK(b->cu->cuMemExportToShareableHandle(&file, m.handle[0],
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    THAT(fcntl(file, F_SETFD, 0) == 0); /* survives exec */
    THAT(run_importer(b, file) == 0);
    close(file);
    THAT(bed_peek(b, m.address + 8) == WORD_AFTER);
    bed_unmap(b, &m);
}

HEADER(only_the_types_asked_for_are_exported, "Type of shareable handle requested")
{
    struct bed_mapping m;
    int file = -1;
    NEED(can_share(b) && bed_map(b, &m, 1, 0));
    REFUSED(b->cu->cuMemExportToShareableHandle(&file, m.handle[0],
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    bed_unmap(b, &m);
}

RISKY(a_file_that_is_no_memory_is_refused,
      "Shareable Handle representing the memory allocation that is to be imported")
{
    CUmemGenericAllocationHandle handle = 0;
    NEED(can_share(b));
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    REFUSED(import_file(b, &handle, file));
    close(file);
}

/* Only the descriptor keeps it alive. */
HEADER(memory_outlives_its_exporters_handle,
       "are unmapped and when all outstanding references to the handle (including it's "
       "shareable counterparts) are also released")
{
    struct bed_mapping m;
    CUmemGenericAllocationHandle handle = 0;
    int file = -1;
    NEED(can_share(b) && bed_map(b, &m, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    bed_poke(b, m.address + 8, WORD_BEFORE);
    OK(b->cu->cuMemExportToShareableHandle(&file, m.handle[0],
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    bed_unmap(b, &m);
    OK(import_file(b, &handle, file));
    close(file);
    use_imported(b, handle, m.grain_bytes);
    OK(b->cu->cuMemRelease(handle));
}

/* ---- queries of communication libraries */

static bool can_register(struct bed *b)
{
    return bed_has_attribute(b, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                             "the device's mapped memory cannot be registered");
}

/* As bed_map, of handles that may be registered. */
static bool map_registrable(struct bed *b, struct bed_mapping *m, size_t count)
{
    CUmemAllocationProp properties = bed_properties(b, 0);
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    properties.allocFlags.gpuDirectRDMACapable = 1;
    *m = (struct bed_mapping){.grain_bytes = bed_grain(b), .count = count};
    if (b->skip != NULL ||
        !OK(b->cu->cuMemAddressReserve(&m->address, count * m->grain_bytes, 0, 0, 0))) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!OK(b->cu->cuMemCreate(&m->handle[i], m->grain_bytes, &properties, 0)) ||
            !OK(b->cu->cuMemMap(m->address + i * m->grain_bytes, m->grain_bytes, 0, m->handle[i],
                                0))) {
            return false;
        }
    }
    return OK(b->cu->cuMemSetAccess(m->address, count * m->grain_bytes, &access, 1));
}

HEADER(a_handle_keeps_its_flag_for_rdma,
       "Retrieve the contents of the property structure defining properties for this handle")
{
    struct bed_mapping m;
    CUmemAllocationProp known;
    CUmemGenericAllocationHandle handle = 0;
    NEED(can_register(b) && map_registrable(b, &m, 1));
    OK(b->cu->cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)(m.address + 4096)));
    OK(b->cu->cuMemGetAllocationPropertiesFromHandle(&known, handle));
    THAT(known.allocFlags.gpuDirectRDMACapable == 1);
    OK(b->cu->cuMemRelease(handle));
    bed_unmap(b, &m);
}

/* Return an attribute, or zero if the driver fails; wide enough for each attribute below. */
static unsigned long long ask(struct bed *b, CUpointer_attribute attribute, CUdeviceptr address)
{
    unsigned long long value = 0;
    OK(b->cu->cuPointerGetAttribute(&value, attribute, address));
    return value;
}

HEADER(an_address_says_how_it_is_shared,
       "Returns in *data a boolean that indicates if this pointer maps to an allocation that "
       "is suitable for cudaIpcGetMemHandle")
{
    struct bed_mapping m;
    NEED(bed_has(b, b->cu->cuPointerGetAttribute != NULL) && can_share(b) &&
         bed_has_attribute(b, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, "the device has no IPC") &&
         bed_map(b, &m, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUdeviceptr plain = bed_alloc(b, 4u << 20);
    THAT(ask(b, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, plain) == 1);
    THAT(ask(b, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, m.address) == 0);
    THAT(ask(b, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, m.address) ==
         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    THAT(ask(b, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, plain) == 0);
    bed_unmap(b, &m);
}

HEADER(an_address_says_whether_it_is_registrable,
       "1 if the memory this pointer is referencing can be used with the GPUDirect RDMA API")
{
    struct bed_mapping m;
    NEED(bed_has(b, b->cu->cuPointerGetAttribute != NULL) && can_register(b) &&
         map_registrable(b, &m, 1));
    THAT(ask(b, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, m.address) == 1);
    bed_unmap(b, &m);
}

/* cuMemGetAddressRange answers the mapping. */
HEADER(an_address_names_its_whole_reservation,
       "this is not necessarily the address of the mapped region, but the address of the "
       "mappable address range")
{
    struct bed_mapping m;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    NEED(bed_has(b, b->cu->cuPointerGetAttribute != NULL) && bed_map(b, &m, 2, 0));
    CUdeviceptr inside = m.address + m.grain_bytes + 512;
    THAT(ask(b, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) == m.address);
    THAT(ask(b, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside) == 2 * m.grain_bytes);
    OK(b->cu->cuMemGetAddressRange_v2(&base, &bytes, inside));
    THAT(base == m.address + m.grain_bytes && bytes == m.grain_bytes);
    bed_unmap(b, &m);
}

typedef CUresult (*range_handle_function)(void *, CUdeviceptr, size_t, CUmemRangeHandleType,
                                          unsigned long long);

static void expect_file(struct bed *b, range_handle_function get, CUdeviceptr address, size_t bytes)
{
    int file = -1;
    if (OK(get(&file, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0))) {
        THAT(lseek(file, 0, SEEK_END) == (off_t)bytes);
        close(file);
    }
}

HEADER(an_address_range_has_a_file,
       "address range obtained by a prior call to either cuMemAlloc or cuMemAddressReserve "
       "is supported if the CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED device attribute returns "
       "true")
{
    struct bed_mapping m;
    CUdeviceptr plain = 0;
    range_handle_function get = NULL;
    void *entry = flw_driver_entry(b->cu, "cuMemGetHandleForAddressRange");
    memcpy(&get, &entry, sizeof entry);
    NEED(bed_has(b, get != NULL) &&
         bed_has_attribute(b, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, "the device has no dma-buf"));
    OK(b->cu->cuMemAlloc_v2(&plain, 4u << 20));
    expect_file(b, get, plain, 4u << 20);
    OK(b->cu->cuMemFree_v2(plain));
    if (can_register(b) && map_registrable(b, &m, 3)) {
        expect_file(b, get, m.address, 3 * m.grain_bytes); /* three handles, one range */
        bed_unmap(b, &m);
    }
}

/* ---- several devices */

/* Another device that reaches this one; false: there is none. */
static bool find_peer(struct bed *b, CUdevice *out_peer)
{
    int count = 0, can = 0;
    if (!bed_has(b, b->cu->cuDeviceCanAccessPeer != NULL && b->cu->cuMemGetAccess != NULL) ||
        !OK(b->cu->cuDeviceGetCount(&count))) {
        return false;
    }
    for (int i = 0; i < count && can == 0; i++) {
        OK(b->cu->cuDeviceGet(out_peer, i));
        OK(b->cu->cuDeviceCanAccessPeer(&can, *out_peer, b->device));
    }
    if (can == 0) {
        b->skip = "no other device reaches this one";
    }
    return can != 0;
}

static bool has_access(struct bed *b, CUdeviceptr address, CUdevice device,
                       CUmemAccess_flags wanted)
{
    unsigned long long flags = 99;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    return OK(b->cu->cuMemGetAccess(&flags, &location, address)) &&
           flags == (unsigned long long)wanted;
}

HEADER(access_is_set_for_each_device,
       "Set the access flags for each location specified in desc for the given virtual "
       "address range")
{
    struct bed_mapping m;
    CUdevice peer = -1;
    NEED(find_peer(b, &peer) && bed_map(b, &m, 2, 0));
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    access.location.id = peer;
    THAT(has_access(b, m.address, peer, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    OK(b->cu->cuMemSetAccess(m.address, 2 * m.grain_bytes, &access, 1));
    THAT(has_access(b, m.address + m.grain_bytes, peer, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    THAT(has_access(b, m.address, b->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(b->cu->cuMemSetAccess(m.address, m.grain_bytes, &access, 1));
    THAT(has_access(b, m.address, peer, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    THAT(has_access(b, m.address + m.grain_bytes, peer, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    THAT(has_access(b, m.address, b->device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    bed_unmap(b, &m);
}

/* Retain the context of a device that this device may access; false if there is none. */
static bool retain_peer(struct bed *b, CUdevice *out_peer, CUcontext *out_context)
{
    int count = 0, can = 0;
    if (!bed_has(b, b->cu->cuDeviceCanAccessPeer != NULL && b->cu->cuCtxEnablePeerAccess != NULL &&
                        b->cu->cuCtxDisablePeerAccess != NULL) ||
        !OK(b->cu->cuDeviceGetCount(&count))) {
        return false;
    }
    for (int i = 0; i < count && can == 0; i++) {
        OK(b->cu->cuDeviceGet(out_peer, i));
        OK(b->cu->cuDeviceCanAccessPeer(&can, b->device, *out_peer));
    }
    if (can == 0) {
        b->skip = "this device may access no other";
    }
    return can != 0 && OK(b->cu->cuDevicePrimaryCtxRetain(out_context, *out_peer));
}

HEADER(allocations_of_an_enabled_peer_are_accessible,
       "will immediately be accessible by the current context")
{
    CUdevice peer = -1;
    CUcontext context = NULL;
    CUdeviceptr theirs = 0, later = 0, mine = 0;
    NEED(retain_peer(b, &peer, &context));
    OK(b->cu->cuMemAlloc_v2(&mine, 4096));
    OK(b->cu->cuCtxPushCurrent_v2(context));
    OK(b->cu->cuMemAlloc_v2(&theirs, 4096));
    bed_poke(b, theirs + 8, WORD_BEFORE);
    OK(b->cu->cuCtxPopCurrent_v2(NULL));
    OK(b->cu->cuCtxEnablePeerAccess(context, 0));
    OK(b->cu->cuMemcpyDtoDAsync_v2(mine, theirs, 4096, NULL));
    THAT(bed_peek(b, mine + 8) == WORD_BEFORE);
    OK(b->cu->cuCtxPushCurrent_v2(context));
    OK(b->cu->cuMemAlloc_v2(&later, 4096));
    OK(b->cu->cuCtxPopCurrent_v2(NULL));
    bed_poke(b, mine + 8, WORD_AFTER);
    OK(b->cu->cuMemcpyDtoDAsync_v2(later, mine, 4096, NULL));
    OK(b->cu->cuCtxSynchronize());
    OK(b->cu->cuCtxPushCurrent_v2(context));
    THAT(bed_peek(b, later + 8) == WORD_AFTER);
    OK(b->cu->cuMemFree_v2(theirs));
    OK(b->cu->cuMemFree_v2(later));
    OK(b->cu->cuCtxPopCurrent_v2(NULL));
    OK(b->cu->cuCtxDisablePeerAccess(context));
    OK(b->cu->cuMemFree_v2(mine));
    OK(b->cu->cuDevicePrimaryCtxRelease_v2(peer));
}

HEADER(a_peer_is_enabled_once, "from the current context has already been enabled")
{
    CUdevice peer = -1;
    CUcontext context = NULL;
    NEED(retain_peer(b, &peer, &context));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuCtxEnablePeerAccess(context, 1));
    IS(CUDA_ERROR_INVALID_CONTEXT, b->cu->cuCtxEnablePeerAccess(b->context, 0));
    OK(b->cu->cuCtxEnablePeerAccess(context, 0));
    IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, b->cu->cuCtxEnablePeerAccess(context, 0));
    OK(b->cu->cuCtxDisablePeerAccess(context));
    OK(b->cu->cuCtxEnablePeerAccess(context, 0));
    OK(b->cu->cuCtxDisablePeerAccess(context));
    OK(b->cu->cuDevicePrimaryCtxRelease_v2(peer));
}

HEADER(a_peer_is_disabled_where_it_was_enabled,
       "Note that access granted by this call is unidirectional")
{
    CUdevice peer = -1;
    CUcontext context = NULL;
    NEED(retain_peer(b, &peer, &context));
    IS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, b->cu->cuCtxDisablePeerAccess(context));
    OK(b->cu->cuCtxEnablePeerAccess(context, 0));
    OK(b->cu->cuCtxPushCurrent_v2(context));
    IS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, b->cu->cuCtxDisablePeerAccess(b->context));
    OK(b->cu->cuCtxPopCurrent_v2(NULL));
    OK(b->cu->cuCtxDisablePeerAccess(context));
    IS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, b->cu->cuCtxDisablePeerAccess(context));
    OK(b->cu->cuDevicePrimaryCtxRelease_v2(peer));
}
