/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: vmm_probe's questions without timing: reservable addresses, supported kinds of handles,
 * and the driver's answers to programs that register memory. */
#include "vmm_probe.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TIB                 ((size_t)1 << 40)
#define ATTRIBUTE_FD        103 /* numbers of cuda.h */
#define ATTRIBUTE_RDMA      110
#define ATTRIBUTE_DMA_BUF   124
#define ATTRIBUTE_FABRIC    128
#define RANGE_START_ADDRESS 11
#define RANGE_SIZE          12
#define DMA_BUF             1

/* ---- reserve ---- */

void ask_reserve(struct probe *probe)
{
    static const struct {
        size_t bytes, alignment;
    } wishes[] = {{TIB / 2, 0},       {TIB, 0},      {2 * TIB, 0},  {TIB, TIB},
                  {2 * TIB, 2 * TIB}, {4 * TIB, 0},  {8 * TIB, 0},  {16 * TIB, 0},
                  {32 * TIB, 0},      {64 * TIB, 0}, {2 * MIB, TIB}};
    struct bed *bed = &probe->bed;
    char text[160];
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++) {
        CUdeviceptr first = 0, second = 0;
        size_t bytes = wishes[i].bytes, alignment = wishes[i].alignment;
        uint64_t begun = bed_now_ns(bed);
        CUresult result = bed->cu->cuMemAddressReserve(&first, bytes, alignment, 0, 0);
        uint64_t reserved = bed_now_ns(bed);
        CUresult again = CUDA_ERROR_NOT_FOUND;
        if (result == CUDA_SUCCESS) {
            again = bed->cu->cuMemAddressReserve(&second, bytes, alignment, 0, 0);
        }
        uint64_t before = bed_now_ns(bed);
        if (result == CUDA_SUCCESS) {
            MUST(cuMemAddressFree(first, bytes));
        }
        uint64_t after = bed_now_ns(bed);
        if (again == CUDA_SUCCESS) {
            MUST(cuMemAddressFree(second, bytes));
        }
        snprintf(
            text, sizeof text,
            ",\"alignment\":%zu,\"is_aligned\":%s,\"us\":%.2f,\"free_us\":%.2f,\"a_second\":%d",
            alignment, alignment == 0 || first % alignment == 0 ? "true" : "false",
            (double)(reserved - begun) / 1000, (double)(after - before) / 1000, (int)again);
        probe_say(probe, "cuMemAddressReserve", bytes, result, text);
    }
}

/* ---- creates ---- */

static int attribute(const struct bed *bed, int number)
{
    int value = 0;
    CUresult result =
        bed->cu->cuDeviceGetAttribute(&value, (CUdevice_attribute)number, bed->device);
    return result == CUDA_SUCCESS ? value : -1;
}

/* Map, grant access, write, unmap: return the first error and the call. */
static CUresult use_once(struct probe *probe, CUmemGenericAllocationHandle handle, size_t bytes,
                         const char **call)
{
    const struct flw_driver *cu = probe->bed.cu;
    CUdeviceptr address = 0;
    *call = "cuMemAddressReserve";
    CUresult result = cu->cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *call = "cuMemMap";
    result = cu->cuMemMap(address, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) {
        *call = "cuMemSetAccess";
        result = cu->cuMemSetAccess(address, bytes, &probe->access, 1);
        if (result == CUDA_SUCCESS) {
            *call = "a write";
            result = cu->cuMemsetD32Async(address, 7, bytes / 4, probe->stream);
            probe_rest(probe);
        }
        CUresult unmapped = cu->cuMemUnmap(address, bytes);
        if (result == CUDA_SUCCESS) {
            *call = unmapped == CUDA_SUCCESS ? "" : "cuMemUnmap";
            result = unmapped;
        }
    }
    (void)cu->cuMemAddressFree(address, bytes);
    return result;
}

/* Export once; *keeps: the descriptor survives an exec. */
static CUresult export_once(struct probe *probe, CUmemGenericAllocationHandle handle, unsigned type,
                            bool *keeps)
{
    union {
        int file;
        unsigned char fabric[64];
    } shared = {.file = -1};
    CUresult result = probe->bed.cu->cuMemExportToShareableHandle(
        &shared, handle, (CUmemAllocationHandleType)type, 0);
    if (result == CUDA_SUCCESS && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        *keeps = (fcntl(shared.file, F_GETFD) & FD_CLOEXEC) == 0;
        close(shared.file);
    }
    return result;
}

void ask_creates(struct probe *probe)
{
    static const struct {
        const char *kind;
        unsigned types;
        bool is_rdma;
    } kinds[] = {{"plain", 0, false},
                 {"descriptor", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, false},
                 {"fabric", CU_MEM_HANDLE_TYPE_FABRIC, false},
                 {"descriptor and fabric",
                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC, false},
                 {"RDMA", 0, true},
                 {"RDMA and descriptor", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, true},
                 {"RDMA and fabric", CU_MEM_HANDLE_TYPE_FABRIC, true}};
    static const struct {
        const char *name;
        int number;
    } attributes[] = {{"descriptor", ATTRIBUTE_FD},
                      {"RDMA with VMM", ATTRIBUTE_RDMA},
                      {"dma-buf", ATTRIBUTE_DMA_BUF},
                      {"fabric", ATTRIBUTE_FABRIC}};
    char text[320];
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        snprintf(text, sizeof text, ",\"attribute\":\"%s\",\"value\":%d", attributes[i].name,
                 attribute(&probe->bed, attributes[i].number));
        probe_say(probe, "cuDeviceGetAttribute", 0, CUDA_SUCCESS, text);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        CUmemAllocationProp properties = probe->properties;
        CUmemGenericAllocationHandle handle = 0;
        size_t grain = 0;
        properties.requestedHandleTypes = (CUmemAllocationHandleType)kinds[i].types;
        properties.allocFlags.gpuDirectRDMACapable = kinds[i].is_rdma;
        CUresult sized = probe->bed.cu->cuMemGetAllocationGranularity(
            &grain, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
        size_t bytes = sized == CUDA_SUCCESS ? grain : 2 * MIB;
        CUresult result = probe->bed.cu->cuMemCreate(&handle, bytes, &properties, 0);
        int length = snprintf(text, sizeof text, ",\"kind\":\"%s\",\"granularity\":%d",
                              kinds[i].kind, (int)sized);
        if (result == CUDA_SUCCESS) {
            const char *call = "";
            CUresult used = use_once(probe, handle, bytes, &call);
            length += snprintf(text + length, sizeof text - (size_t)length,
                               ",\"use\":%d,\"use_stopped_at\":\"%s\"", (int)used, call);
            for (unsigned type = 1; type <= CU_MEM_HANDLE_TYPE_FABRIC; type *= 8) {
                if ((kinds[i].types & type) != 0) {
                    bool keeps = false;
                    CUresult exported = export_once(probe, handle, type, &keeps);
                    length += snprintf(text + length, sizeof text - (size_t)length,
                                       ",\"export_%u\":%d,\"exec_keeps_%u\":%s", type,
                                       (int)exported, type, keeps ? "true" : "false");
                }
            }
            (void)probe->bed.cu->cuMemRelease(handle);
        }
        probe_say(probe, "cuMemCreate", bytes, result, text);
    }
}

/* ---- ipc ---- */

typedef CUresult (*ipc_function)(void *handle, CUdeviceptr pointer);
typedef CUresult (*range_handle_function)(void *handle, CUdeviceptr pointer, size_t bytes, int type,
                                          unsigned long long flags);

static void ask_address(struct probe *probe, const char *what, CUdeviceptr address, size_t bytes)
{
    struct bed *bed = &probe->bed;
    CUdeviceptr base = 0, start = 0;
    size_t seen = 0, size = 0;
    unsigned char handle[64];
    int file = -1;
    ipc_function get_ipc = NULL;
    range_handle_function get_range_handle = NULL;
    void *entry = flw_driver_entry(bed->cu, "cuIpcGetMemHandle");
    char text[200];
    memcpy(&get_ipc, &entry, sizeof get_ipc);
    entry = flw_driver_entry(bed->cu, "cuMemGetHandleForAddressRange");
    memcpy(&get_range_handle, &entry, sizeof get_range_handle);

    CUresult result = bed->cu->cuMemGetAddressRange_v2(&base, &seen, address + 4096);
    snprintf(text, sizeof text, ",\"of\":\"%s\",\"range_bytes\":%zu,\"base_offset\":%lld", what,
             seen, (long long)(address - base));
    probe_say(probe, "cuMemGetAddressRange", bytes, result, text);
    if (bed->cu->cuPointerGetAttribute != NULL) {
        result = bed->cu->cuPointerGetAttribute(&start, (CUpointer_attribute)RANGE_START_ADDRESS,
                                                address + 4096);
        if (result == CUDA_SUCCESS) {
            result = bed->cu->cuPointerGetAttribute(&size, (CUpointer_attribute)RANGE_SIZE,
                                                    address + 4096);
        }
        snprintf(text, sizeof text, ",\"of\":\"%s\",\"range_bytes\":%zu,\"base_offset\":%lld", what,
                 size, (long long)(address - start));
        probe_say(probe, "cuPointerGetAttribute", bytes, result, text);
    }
    snprintf(text, sizeof text, ",\"of\":\"%s\",\"is_there\":%s", what,
             get_ipc != NULL ? "true" : "false");
    probe_say(probe, "cuIpcGetMemHandle", bytes,
              get_ipc != NULL ? get_ipc(handle, address) : CUDA_ERROR_NOT_FOUND, text);
    snprintf(text, sizeof text, ",\"of\":\"%s\",\"is_there\":%s", what,
             get_range_handle != NULL ? "true" : "false");
    result = get_range_handle != NULL ? get_range_handle(&file, address, bytes, DMA_BUF, 0)
                                      : CUDA_ERROR_NOT_FOUND;
    probe_say(probe, "cuMemGetHandleForAddressRange", bytes, result, text);
    if (result == CUDA_SUCCESS && file >= 0) {
        close(file);
    }
}

void ask_ipc(struct probe *probe)
{
    struct bed *bed = &probe->bed;
    CUdeviceptr address = 0;
    for (int is_rdma = 0; is_rdma < 2; is_rdma++) {
        if (is_rdma == 1 && attribute(bed, ATTRIBUTE_RDMA) <= 0) {
            break;
        }
        probe->properties.allocFlags.gpuDirectRDMACapable = (unsigned char)is_rdma;
        struct stretch *three = probe_map(probe, 2 * MIB, 3, true);
        struct stretch *one = probe_map(probe, 6 * MIB, 1, true);
        if (three != NULL) {
            ask_address(probe, is_rdma ? "three RDMA handles" : "three handles", three->address,
                        6 * MIB);
            probe_unmap(probe, three, true);
        }
        if (one != NULL) {
            ask_address(probe, is_rdma ? "one RDMA handle" : "one handle", one->address, 6 * MIB);
            probe_unmap(probe, one, true);
        }
    }
    MUST(cuMemAlloc_v2(&address, 6 * MIB));
    ask_address(probe, "cuMemAlloc", address, 6 * MIB);
    MUST(cuMemFree_v2(address));
}
