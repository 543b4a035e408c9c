/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a program of the CUDA runtime as nvcc builds it. On a simulated driver the runtime refuses
 * to start (36 or 103), after it has looked up all entry points; the preload counts the results. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
    void *block = NULL;
    printf("cudaMalloc %d\n", (int)cudaMalloc(&block, 1 << 20));
    printf("cudaFree %d\n", (int)cudaFree(block));
    unsigned long long (*answers)(const char *) =
        (unsigned long long (*)(const char *))dlsym(RTLD_DEFAULT, "fallow_preload_answers");
    static const char *const names[] = {"cuGetProcAddress_v2", "cuMemAlloc_v2", "cuMemFree_v2",
                                        "cuMemAllocAsync", "cuMemAllocAsync_ptsz"};
    for (unsigned i = 0; answers != NULL && i < sizeof names / sizeof *names; i++) {
        printf("answers %s %llu\n", names[i], answers(names[i]));
    }
    return 0;
}
