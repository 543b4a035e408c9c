/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a client of the driver that looks itself up (reentrant.c): one dlsym, then all by version.
 * Does not: run long: a hook that hangs is found by the clock of the test.
 */
#include "client.h"

typedef CUresult (*get_function)(const char *, void **, int, cuuint64_t,
                                 CUdriverProcAddressQueryResult *);

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    get_function get = NULL;
    void *address = driver != NULL ? dlsym(driver, "cuGetProcAddress_v2") : NULL;
    if (address == NULL) {
        printf("no driver\n");
        return 4;
    }
    memcpy(&get, &address, sizeof get);
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    printf("get %d\n", (int)get("cuMemAlloc", &address, 12000, 0, NULL));
    printf("from cuMemAlloc_v2 %s\n", client_object(address));
    memcpy(&alloc, &address, sizeof alloc);
    CUdeviceptr block = 0;
    printf("alloc %d\n", (int)alloc(&block, 4096));
    printf("the driver's block %d\n", block == 4096);
    CUresult (*destroy)(CUcontext) = NULL;
    address = dlsym(driver, "cuCtxDestroy");
    printf("one function of two names %d\n", address == dlsym(driver, "cuCtxDestroy_v2"));
    printf("from cuCtxDestroy %s\n", client_object(address));
    memcpy(&destroy, &address, sizeof destroy);
    printf("destroy nothing %d\n", (int)destroy(NULL));
    printf("unknown %d\n", (int)get("cuSowAndReap", &address, 12000, 0, NULL));
    printf("nothing for it %d\n", address == NULL);
    return 0;
}
