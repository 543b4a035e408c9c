/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a client that finds the driver as the CUDA runtime does: one dlopen, one dlsym, then 440
 * requests by version in two flag values, of which the first has an empty name and version 0 and
 * two request cuGetProcAddress itself. Then it allocates and frees blocks.
 * Does not: check the driver as the runtime does; no simulated driver can pass that. */
#include "client.h"
#include "runtime_names.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef CUresult (*get_function)(const char *, void **, int, cuuint64_t,
                                 CUdriverProcAddressQueryResult *);
typedef CUresult (*old_get_function)(const char *, void **, int, cuuint64_t);

_Static_assert(COUNT(plain_names) + 3 == 366, "requests with flags 0");
_Static_assert(COUNT(per_thread_names) == 74, "requests with flags 2");

static get_function get;
static unsigned asked, found;

static void *request(const char *base, int version, cuuint64_t flags)
{
    void *address = &address;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    asked++;
    CUresult result = get(base, &address, version, flags, &status);
    if ((address != NULL) !=
        (result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS && base[0] != '\0')) {
        printf("'%s' %d: result %d, status %d and the address disagree\n", base, version,
               (int)result, (int)status);
    }
    found += address != NULL;
    return address;
}

/* Return the function kept by the runtime under this name of client.h. */
static void *find_kept(void *context, const char *name)
{
    static const struct {
        const char *name, *base;
        cuuint64_t flags;
    } kept[] = {
        {"cuInit", "cuInit", 0},
        {"cuDeviceGet", "cuDeviceGet", 0},
        {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", 0},
        {"cuCtxSetCurrent", "cuCtxSetCurrent", 0},
        {"cuMemAlloc_v2", "cuMemAlloc", 0},
        {"cuMemFree_v2", "cuMemFree", 0},
        {"cuMemAllocAsync_ptsz", "cuMemAllocAsync", 2},
        {"cuMemFreeAsync_ptsz", "cuMemFreeAsync", 2},
    };
    (void)context;
    for (unsigned i = 0; i < COUNT(kept); i++) {
        void *address = NULL;
        if (strcmp(kept[i].name, name) == 0 &&
            get(kept[i].base, &address, 12000, kept[i].flags, NULL) == CUDA_SUCCESS) {
            return address;
        }
    }
    return NULL;
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *address = driver != NULL ? dlsym(driver, "cuGetProcAddress_v2") : NULL;
    if (address == NULL) {
        printf("no driver\n");
        return 4;
    }
    memcpy(&get, &address, sizeof get);
    request("", 0, 0);
    void *old = request("cuGetProcAddress", 11030, 0);
    void *present = request("cuGetProcAddress", 12000, 0);
    printf("from cuGetProcAddress %s\n", client_object(old));
    printf("from cuGetProcAddress_v2 %s\n", client_object(present));
    printf("two functions %d\n", old != present);
    for (unsigned i = 0; i < COUNT(plain_names); i++) {
        request(plain_names[i].base, plain_names[i].version, 0);
    }
    for (unsigned i = 0; i < COUNT(per_thread_names); i++) {
        request(per_thread_names[i].base, per_thread_names[i].version, 2);
    }
    printf("%u requests, %u found\n", asked, found);
    old_get_function old_get = NULL;
    memcpy(&old_get, &old, sizeof old_get);
    void *by_old = NULL;
    printf("by the old one %d\n", (int)old_get("cuMemAlloc", &by_old, 12000, 0));
    printf("the same %d\n", by_old == find_kept(NULL, "cuMemAlloc_v2"));
    memcpy(&get, &present, sizeof get);
    return client_run(find_kept, NULL);
}
