/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/hook_use.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "preload/dlsym.h"

struct flw_hook_use flw_hook_use;

/* True if a file of this name is mapped, in any namespace. Reads chunks and keeps the end of one
 * before the next, to find a name across two. */
static bool is_mapped(const char *name)
{
    char text[4096];
    size_t kept = 0, length = strlen(name);
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    bool is_found = false;
    for (ssize_t got; file >= 0 && !is_found;) {
        got = read(file, text + kept, sizeof text - kept);
        if (got <= 0) {
            break;
        }
        size_t bytes = kept + (size_t)got;
        is_found = memmem(text, bytes, name, length) != NULL;
        kept = bytes < length ? bytes : length;
        memmove(text, text + bytes - kept, kept);
    }
    if (file >= 0) {
        close(file);
    }
    return is_found;
}

bool flw_hook_use_is_reached(void)
{
    return flw_hook_use.is_learnt;
}

bool flw_hook_use_has_driver(void)
{
    return is_mapped("/libcuda.so");
}

bool flw_hook_use_is_linked(void)
{
    return flw_dlsym_libc()(RTLD_NEXT, "cuInit") != NULL;
}

static int is_driver(struct dl_phdr_info *info, size_t bytes, void *unused)
{
    (void)bytes;
    (void)unused;
    return info->dlpi_name != NULL && strstr(info->dlpi_name, "/libcuda.so") != NULL;
}

bool flw_hook_use_has_near_driver(void)
{
    return dl_iterate_phdr(is_driver, NULL) != 0;
}

unsigned long long fallow_preload_answers(const char *symbol)
{
    static const char *const symbols[FLW_HOOK_COUNT] = {
#define X(name, base, since, parameters, arguments) #name,
        FLW_HOOK_LIST(X)
#undef X
    };
    for (unsigned i = 0; i < FLW_HOOK_COUNT; i++) {
        if (strcmp(symbols[i], symbol) == 0) {
            return flw_hook_use.answers[i];
        }
    }
    return 0;
}
