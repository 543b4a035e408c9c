/* SPDX-License-Identifier: Apache-2.0
 *
 * README.md's program for the preload: a CUDA program as many are, which asks the driver for memory in
 * each step and gives it back. It knows nothing of Fallow and needs no cuda.h: these are the entry points.
 */
#include <stdio.h>

typedef unsigned long long CUdeviceptr;
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
int cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, void *stream);
int cuMemFree_v2(CUdeviceptr address);

enum {
    STEPS = 1000,
    BLOCKS = 4
};

int main(void)
{
    CUdeviceptr block[BLOCKS];
    void *context = NULL;
    int failed = cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
    for (int step = 0; step < STEPS && !failed; step++) {
        for (int i = 0; i < BLOCKS && !failed; i++) {
            size_t bytes = (size_t)4096 << (i * 3); /* 4 KiB to 2 MiB */
            failed = cuMemAlloc_v2(&block[i], bytes) || cuMemsetD8Async(block[i], 1, bytes, NULL);
        }
        for (int i = 0; i < BLOCKS && !failed; i++) {
            failed = cuMemFree_v2(block[i]);
        }
    }
    printf(failed ? "a call failed\n" : "%d steps, %d calls of cuMemAlloc\n", STEPS,
           STEPS * BLOCKS);
    return failed;
}
