/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the common part of all clients of the preload tests: allocate a block, free it, and print
 * the results. Lines that begin with "from" name the object that exports a function; all others
 * must be the same with and without the preload.
 * Does not: find the driver; the clients differ in that. */
#ifndef FLW_TESTS_PRELOAD_CLIENT_H
#define FLW_TESTS_PRELOAD_CLIENT_H

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "driver/driver_types.h"

typedef void *(*client_find)(void *context, const char *name);

/* The base name of the object that holds an address. */
static inline const char *client_object(const void *address)
{
    Dl_info info;
    if (address == NULL || dladdr(address, &info) == 0 || info.dli_fname == NULL) {
        return "nowhere";
    }
    const char *slash = strrchr(info.dli_fname, '/');
    return slash != NULL ? slash + 1 : info.dli_fname;
}

static inline void client_get(client_find find, void *context, const char *name, void *function)
{
    void *address = find(context, name);
    printf("from %s %s\n", name, client_object(address));
    if (address == NULL) {
        printf("%s is missing\n", name);
    }
    memcpy(function, &address, sizeof address);
}

struct client_driver {
    CUresult (*init)(unsigned);
    CUresult (*device_get)(CUdevice *, int);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*set_current)(CUcontext);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*free)(CUdeviceptr);
    CUresult (*alloc_async)(CUdeviceptr *, size_t, CUstream);
    CUresult (*free_async)(CUdeviceptr, CUstream);
};

static inline int client_load(struct client_driver *driver, client_find find, void *context)
{
    client_get(find, context, "cuInit", &driver->init);
    client_get(find, context, "cuDeviceGet", &driver->device_get);
    client_get(find, context, "cuDevicePrimaryCtxRetain", &driver->retain);
    client_get(find, context, "cuCtxSetCurrent", &driver->set_current);
    client_get(find, context, "cuMemAlloc_v2", &driver->alloc);
    client_get(find, context, "cuMemFree_v2", &driver->free);
    client_get(find, context, "cuMemAllocAsync_ptsz", &driver->alloc_async);
    client_get(find, context, "cuMemFreeAsync_ptsz", &driver->free_async);
    return driver->init != NULL && driver->device_get != NULL && driver->retain != NULL &&
           driver->set_current != NULL && driver->alloc != NULL && driver->free != NULL &&
           driver->alloc_async != NULL && driver->free_async != NULL;
}

/* cuInit and a current context. */
static inline void client_begin(const struct client_driver *driver)
{
    CUdevice device = -1;
    CUcontext context = NULL;
    printf("init %d\n", (int)driver->init(0));
    printf("device %d\n", (int)driver->device_get(&device, 0));
    printf("retain %d\n", (int)driver->retain(&context, device));
    printf("set current %d\n", (int)driver->set_current(context));
}

static inline void client_alloc(const struct client_driver *driver)
{
    CUdeviceptr block = 0;
    printf("alloc %d\n", (int)driver->alloc(&block, 3u << 20));
    printf("free %d\n", (int)driver->free(block));
    printf("free of nothing known %d\n", (int)driver->free(12345));
    block = 0;
    printf("alloc async %d\n", (int)driver->alloc_async(&block, 4096, NULL));
    printf("free async %d\n", (int)driver->free_async(block, NULL));
}

static inline int client_run(client_find find, void *context)
{
    struct client_driver driver;
    if (!client_load(&driver, find, context)) {
        return 3;
    }
    client_begin(&driver);
    client_alloc(&driver);
    return 0;
}

#endif
