/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a program that links the driver, and returns a block in a static destructor.
 * Does not: look anything up for itself, but for the names of objects.
 */
#include "client.h"

#if !defined(FLW_USES_CUDA_H)
CUresult cuInit(unsigned flags);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuCtxSetCurrent(CUcontext context);
#endif
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr pointer);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream);

static CUdeviceptr kept;

__attribute__((destructor)) static void free_block(void)
{
    printf("free at exit %d\n", (int)cuMemFree_v2(kept));
}

static void *find_linked(void *context, const char *name)
{
    (void)context;
    static const struct {
        const char *name;
        void (*function)(void);
    } linked[] = {
        {"cuInit", (void (*)(void))cuInit},
        {"cuDeviceGet", (void (*)(void))cuDeviceGet},
        {"cuDevicePrimaryCtxRetain", (void (*)(void))cuDevicePrimaryCtxRetain},
        {"cuCtxSetCurrent", (void (*)(void))cuCtxSetCurrent},
        {"cuMemAlloc_v2", (void (*)(void))cuMemAlloc_v2},
        {"cuMemFree_v2", (void (*)(void))cuMemFree_v2},
        {"cuMemAllocAsync_ptsz", (void (*)(void))cuMemAllocAsync_ptsz},
        {"cuMemFreeAsync_ptsz", (void (*)(void))cuMemFreeAsync_ptsz},
    };
    void *address = NULL;
    for (unsigned i = 0; i < sizeof linked / sizeof *linked; i++) {
        if (strcmp(linked[i].name, name) == 0) {
            memcpy(&address, &linked[i].function, sizeof address);
        }
    }
    return address;
}

int main(void)
{
    int result = client_run(find_linked, NULL);
    printf("alloc %d\n", (int)cuMemAlloc_v2(&kept, 1u << 20));
    return result;
}
