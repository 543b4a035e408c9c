/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about handles that leave the process: export and import through a file
 * descriptor, in this process and in one of its own that knows nothing but the descriptor; and about
 * devices that share memory.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void import_in_the_same_process_shows_the_contents(struct bed *b)
{
    struct bed_mapping m;
    CUmemGenericAllocationHandle handle = 0;
    int file = -1;
    if (!can_share(b) || !bed_map(b, &m, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        return;
    }
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

/* A child made by fork alone may not use CUDA: it becomes a new program at once. */
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

static void import_in_another_process_shows_the_contents(struct bed *b)
{
    struct bed_mapping m;
    int file = -1;
    if (!can_share(b) || !bed_map(b, &m, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        return;
    }
    bed_poke(b, m.address + 8, WORD_BEFORE);
    OK(b->cu->cuMemExportToShareableHandle(&file, m.handle[0],
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    THAT(fcntl(file, F_SETFD, 0) == 0); /* survives exec */
    THAT(run_importer(b, file) == 0);
    close(file);
    THAT(bed_peek(b, m.address + 8) == WORD_AFTER);
    bed_unmap(b, &m);
}

static void only_the_types_asked_for_are_exported(struct bed *b)
{
    struct bed_mapping m;
    int file = -1;
    if (!can_share(b) || !bed_map(b, &m, 1, 0)) {
        return;
    }
    REFUSED(b->cu->cuMemExportToShareableHandle(&file, m.handle[0],
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    bed_unmap(b, &m);
}

static void a_file_that_is_no_memory_is_refused(struct bed *b)
{
    CUmemGenericAllocationHandle handle = 0;
    if (!can_share(b)) {
        return;
    }
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    REFUSED(import_file(b, &handle, file));
    close(file);
}

/* The descriptor alone holds it. */
static void memory_outlives_its_exporters_handle(struct bed *b)
{
    struct bed_mapping m;
    CUmemGenericAllocationHandle handle = 0;
    int file = -1;
    if (!can_share(b) || !bed_map(b, &m, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
        return;
    }
    bed_poke(b, m.address + 8, WORD_BEFORE);
    OK(b->cu->cuMemExportToShareableHandle(&file, m.handle[0],
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    bed_unmap(b, &m);
    OK(import_file(b, &handle, file));
    close(file);
    use_imported(b, handle, m.grain_bytes);
    OK(b->cu->cuMemRelease(handle));
}

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

static void access_is_set_for_each_device(struct bed *b)
{
    struct bed_mapping m;
    CUdevice peer = -1;
    if (!find_peer(b, &peer) || !bed_map(b, &m, 2, 0)) {
        return;
    }
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

static const struct conformance_case cases[] = {
    HEADER(import_in_the_same_process_shows_the_contents,
           "The recipient process can convert the shareable handle back into a CUDA memory handle"),
    HEADER(import_in_another_process_shows_the_contents,
           "create a shareable memory allocation handle that can be used to share the memory with "
           "other processes"),
    HEADER(only_the_types_asked_for_are_exported, "Type of shareable handle requested"),
    HEADER(
        memory_outlives_its_exporters_handle,
        "are unmapped and when all outstanding references to the handle (including it's shareable "
        "counterparts) are also released"),
    HEADER(access_is_set_for_each_device,
           "Set the access flags for each location specified in desc for the given virtual address "
           "range"),
    HEADER(a_file_that_is_no_memory_is_refused,
           "Shareable Handle representing the memory allocation that is to be imported"),
};

const struct conformance_table conformance_share = {"share", cases, sizeof cases / sizeof *cases};
