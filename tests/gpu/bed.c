/* SPDX-License-Identifier: Apache-2.0 */
#include "bed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* spin.ptx, and nvcc's binary of it if available: a driver may lack a compiler. */
__asm__(".section .rodata, \"a\"\n"
        ".global spin_ptx\n"
        ".hidden spin_ptx\n"
        "spin_ptx:\n"
        ".incbin \"" FLW_SPIN_PTX "\"\n"
        ".byte 0\n"
        ".balign 64\n"
        ".global spin_image\n"
        ".hidden spin_image\n"
        "spin_image:\n"
#if defined(FLW_SPIN_IMAGE)
        ".incbin \"" FLW_SPIN_IMAGE "\"\n"
#endif
        ".byte 0\n"
        ".previous\n");
extern const char spin_ptx[], spin_image[];

uint64_t bed_now_ns(const struct bed *bed)
{
    struct timespec now;
    if (bed->is_sim) {
        return flw_sim_read_ledger(&bed->sim).modelled_host_ns;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

const char *bed_name(const struct bed *bed, CUresult result)
{
    return flw_driver_error_name(bed->cu, result);
}

void bed_must(const struct bed *bed, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "%s: %s\n", call, bed_name(bed, result));
        exit(1);
    }
}

static void load_spin(struct bed *bed)
{
    CUmodule module = NULL;
#if defined(FLW_SPIN_IMAGE)
    CUresult result = bed->cu->cuModuleLoadData(&module, spin_image);
#else
    CUresult result = CUDA_ERROR_NOT_FOUND;
#endif
    if (result != CUDA_SUCCESS) {
        MUST(cuModuleLoadData(&module, spin_ptx));
    }
    MUST(cuModuleGetFunction(&bed->spin, module, "spin"));
}

void bed_busy(struct bed *bed, CUstream stream, unsigned ms)
{
    if (bed->is_sim) {
        MUST(cuMemsetD32Async(bed->words, 1, 16, stream));
        return;
    }
    if (bed->spin == NULL) {
        load_spin(bed);
    }
    unsigned long long ns = ms * 1000000ull;
    void *parameters[] = {&ns};
    MUST(cuLaunchKernel(bed->spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
}

/* As large as the device that is planned for, and nothing is done before somebody waits. */
static void open_world(struct bed *bed)
{
    flw_sim_config world = flw_sim_config_default(1);
    world.schedule = FLW_SIM_HELD;
    world.device_bytes = (uint64_t)141 << 30;
    bed->context = flw_sim_begin(&bed->sim, &world);
    MUST(cuMemAlloc_v2(&bed->words, MIB));
}

int bed_open(struct bed *bed, const char *device)
{
    char message[FLW_DRIVER_MESSAGE_BYTES];
    char *end = NULL;
    bool is_named_sim = strcmp(device, "sim") == 0;
    int ordinal = is_named_sim ? 0 : (int)strtol(device, &end, 10);
    *bed = (struct bed){.cu = &bed->sim.cu};
    if (!is_named_sim && (end == device || *end != '\0')) {
        fprintf(stderr, "'%s' is no device: a number or sim\n", device);
        return 77;
    }
    if (flw_driver_open(&bed->sim.cu, is_named_sim ? "sim" : NULL, message) != FALLOW_OK) {
        fprintf(stderr, "%s\n", message);
        return 77;
    }
    bed->is_sim = flw_sim_find_controls(&bed->sim);
    if (bed->is_sim) {
        open_world(bed);
        return 0;
    }
    if (is_named_sim) {
        fprintf(stderr, "this simulated driver lacks a control: rebuild it\n");
        exit(1);
    }
    CUresult result = bed->cu->cuDeviceGet(&bed->device, ordinal);
    if (result != CUDA_SUCCESS) {
        fprintf(stderr, "device %d: %s\n", ordinal, bed_name(bed, result));
        return 77;
    }
    MUST(cuDevicePrimaryCtxRetain(&bed->context, bed->device));
    MUST(cuCtxSetCurrent(bed->context));
    return 0;
}
