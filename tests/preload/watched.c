/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that links the driver, holds 10 blocks of 100,000 bytes, prints "ready", starts a
 * child that prints the number, and waits with it for the end of the input: a target for `fallow
 * top` under the preload library. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/driver_types.h"
#include "driver/entry_points.h"

#define X(need, symbol, since, before, parameters) CUresult symbol parameters;
FLW_DRIVER_ENTRY_POINTS(X)
#undef X

#define BLOCKS 10

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUdeviceptr blocks[BLOCKS] = {0};
    int failed = cuInit(0) != CUDA_SUCCESS || cuDeviceGet(&device, 0) != CUDA_SUCCESS ||
                 cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
                 cuCtxSetCurrent(context) != CUDA_SUCCESS;
    for (int i = 0; i < BLOCKS && !failed; i++) {
        failed = cuMemAlloc_v2(&blocks[i], 100000) != CUDA_SUCCESS;
    }
    puts(failed ? "failed" : "ready");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("child %d\n", (int)getpid());
        fflush(stdout);
        while (getchar() != EOF) {
        }
        _exit(0);
    }
    (void)waitpid(child, NULL, 0);
    for (int i = 0; i < BLOCKS && !failed; i++) {
        failed = cuMemFree_v2(blocks[i]) != CUDA_SUCCESS;
    }
    return failed;
}
