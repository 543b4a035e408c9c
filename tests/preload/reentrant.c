/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a libcuda.so.1 that implements cuGetProcAddress by dlsym on itself, under its own
 * pthread_once, and whose cuMemAlloc_v2 looks itself up while it allocates. A hook with a lock, or
 * one that returns a wrapper to the driver, would hang or recurse. With APART cuGetProcAddress
 * returns other addresses than dlsym does, as a driver may.
 * Does not: have memory. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "driver/driver_types.h"

#undef cuMemAlloc
#undef cuMemFree
#define EXPORT __attribute__((visibility("default")))

#if !defined(FLW_USES_CUDA_H)
CUresult cuInit(unsigned flags);
#endif
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer);
EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                    cuuint64_t flags, CUdriverProcAddressQueryResult *status);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *self;

static void open_self(void)
{
    self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    /* This lookup hung a hook with a pthread_once of its own. */
    if (dlsym(self, "cuMemAlloc_v2") == NULL) {
        printf("the driver does not find itself\n");
    }
}

/* One function under two names. */
EXPORT CUresult destroy_context(CUcontext context) __asm__("cuCtxDestroy_v2");
EXPORT CUresult destroy_again(CUcontext context) __asm__("cuCtxDestroy")
    __attribute__((alias("cuCtxDestroy_v2")));

CUresult destroy_context(CUcontext context)
{
    return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

EXPORT CUresult cuInit(unsigned flags)
{
    pthread_once(&once, open_self);
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#if defined(APART)
static CUresult alloc_by_version(CUdeviceptr *pointer, size_t bytes)
{
    CUresult result = cuMemAlloc_v2(pointer, bytes);
    return result;
}
#endif

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    static _Thread_local int depth;
    char name[128];
    pthread_once(&once, open_self);
    depth++;
    if (depth > 3) {
        printf("the driver was led back into itself\n");
        depth--;
        return CUDA_ERROR_UNKNOWN;
    }
    (void)version;
    (void)flags;
    snprintf(name, sizeof name, "%s_v2", symbol);
    *function = dlsym(self, name);
    if (*function == NULL) {
        *function = dlsym(self, symbol);
    }
    void *own = (void *)(uintptr_t)cuMemAlloc_v2;
    if (strcmp(symbol, "cuMemAlloc") == 0 && *function != own) {
        printf("the driver did not get its own function\n");
    }
#if defined(APART)
    if (strcmp(symbol, "cuMemAlloc") == 0) {
        *function = (void *)(uintptr_t)alloc_by_version;
    }
#endif
    if (status != NULL) {
        *status =
            *function != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    depth--;
    return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    pthread_once(&once, open_self);
    *pointer = bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    return pointer != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
