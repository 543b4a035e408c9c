/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a check of a device: cuInit, a context, 1 MiB allocated, written, read and freed, a kernel
 * that ends.
 *
 *   device_probe [--device N|sim] [--attributes]
 *
 * Prints one JSON object, with the path of the driver's library; --attributes adds every attribute
 * that the driver returns, by number. Exit: 0 working; 1 not; 77 no such device. Does not: use the
 * library. */
#include "bed.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/io/jsonwriter.h"

#define ATTRIBUTES 200 /* more than cuda.h 13.0 names */
#define WORD       0x5ca1ab1e

static bool is_well(struct bed *bed)
{
    CUdeviceptr memory;
    CUstream stream;
    uint32_t back = 0;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc_v2(&memory, MIB));
    bed_busy(bed, stream, 1);
    MUST(cuMemsetD32Async(memory, WORD, MIB / 4, stream));
    MUST(cuStreamSynchronize(stream));
    MUST(cuMemcpyDtoH_v2(&back, memory + MIB - sizeof back, sizeof back));
    MUST(cuMemFree_v2(memory));
    MUST(cuStreamDestroy_v2(stream));
    /* The simulated device has contents only in a world configured so. */
    if (back != WORD && !bed->is_sim) {
        fprintf(stderr, "device_probe: %08x was written and %08x read\n", WORD, back);
        return false;
    }
    return true;
}

/* Print the path of the driver's library. */
static void print_library(const struct bed *bed)
{
    Dl_info found = {0};
    void *entry = flw_driver_entry(bed->cu, "cuInit");
    printf(",\"library\":");
    flw_json_print_text(stdout, dladdr(entry, &found) != 0 ? found.dli_fname : "");
}

static void print_attributes(const struct bed *bed)
{
    const char *separator = "";
    fputs(",\"attributes\":{", stdout);
    for (int i = 1; i < ATTRIBUTES; i++) {
        int value = 0;
        if (bed->cu->cuDeviceGetAttribute(&value, (CUdevice_attribute)i, bed->device) ==
            CUDA_SUCCESS) {
            printf("%s\"%d\":%d", separator, i, value);
            separator = ",";
        }
    }
    fputs("}", stdout);
}

int main(int argc, char **argv)
{
    struct bed bed;
    const char *device = "0";
    bool has_attributes = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            device = argv[++i];
        } else if (strcmp(argv[i], "--attributes") == 0) {
            has_attributes = true;
        } else {
            fprintf(stderr, "usage: device_probe [--device N|sim] [--attributes]\n");
            return 2;
        }
    }
    int code = bed_open(&bed, device);
    if (code != 0) {
        return code;
    }
    char name[128] = "?";
    size_t total = 0, unused = 0;
    bed_must(&bed, bed.cu->cuDeviceGetName(name, sizeof name, bed.device), "cuDeviceGetName");
    bed_must(&bed, bed.cu->cuMemGetInfo_v2(&unused, &total), "cuMemGetInfo");
    bool well = is_well(&bed);
    printf("{\"device\":");
    flw_json_print_text(stdout, name);
    printf(",\"driver\":%d,\"simulated\":%s,\"total_bytes\":%zu,\"free_bytes\":%zu,\"well\":%s",
           bed.cu->version, bed.is_sim ? "true" : "false", total, unused, well ? "true" : "false");
    print_library(&bed);
    if (has_attributes) {
        print_attributes(&bed);
    }
    printf("}\n");
    return well ? 0 : 1;
}
