/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: another preload, in three kinds: RIVAL_EXPORTS has a cuMemAlloc_v2 of its own,
 * RIVAL_ANSWERS hooks dlsym and returns that one, RIVAL_WATCHES hooks dlsym and returns the real
 * function.
 * Does not: allocate memory. At exit it prints the number of the calls. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int asked;

__attribute__((destructor)) static void say(void)
{
    printf("rival was asked: %d\n", asked > 0);
    fflush(stdout);
}

#if defined(RIVAL_EXPORTS) || defined(RIVAL_ANSWERS)
#if defined(RIVAL_EXPORTS)
EXPORT int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes);
#else
static int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes);
#endif
int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    int (*next)(unsigned long long *, size_t) = NULL;
    void *address = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuMemAlloc_v2");
#if defined(RIVAL_ANSWERS)
    void *(*plain)(void *, const char *) = NULL;
    void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    memcpy(&plain, &found, sizeof plain);
    address = plain(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuMemAlloc_v2");
#endif
    asked++;
    memcpy(&next, &address, sizeof next);
    return next(pointer, bytes);
}
#endif

#if defined(RIVAL_ANSWERS) || defined(RIVAL_WATCHES)
EXPORT void *dlsym(void *handle, const char *name)
{
    void *(*next)(void *, const char *) = NULL;
    void *found = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
#if defined(RIVAL_WATCHES)
    asked++;
    void *(*plain)(void *, const char *) = NULL;
    memcpy(&plain, &found, sizeof plain);
    found = plain(RTLD_NEXT, "dlsym"); /* a chain: the next library's */
#endif
    memcpy(&next, &found, sizeof next);
#if defined(RIVAL_ANSWERS)
    if (strcmp(name, "cuMemAlloc_v2") == 0) {
        return (void *)(size_t)cuMemAlloc_v2;
    }
#endif
    return next(handle, name);
}
#endif
