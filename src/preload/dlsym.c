/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/dlsym.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "preload/hook_use.h"
#include "preload/inside.h"
#include "preload/log.h"
#include "preload/real.h"
#include "preload/settings.h"

static _Atomic(flw_dlsym_function) libc_dlsym, next_dlsym;

flw_dlsym_function flw_dlsym_libc(void)
{
    flw_dlsym_function function = atomic_load_explicit(&libc_dlsym, memory_order_relaxed);
    if (function != NULL) {
        return function;
    }
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *address = NULL;
    for (unsigned i = 0; i < sizeof versions / sizeof *versions && address == NULL; i++) {
        address = dlvsym(RTLD_NEXT, "dlsym", versions[i]); /* by name: the library's own */
    }
    if (address == NULL) {
        flw_log_line("cannot preload: this library does not find dlsym in the C library");
        _exit(127);
    }
    memcpy(&function, &address, sizeof function);
    atomic_store_explicit(&libc_dlsym, function, memory_order_relaxed); /* equal in every thread */
    return function;
}

flw_dlsym_function flw_dlsym_next(void)
{
    flw_dlsym_function function = atomic_load_explicit(&next_dlsym, memory_order_relaxed);
    if (function == NULL) {
        void *address = flw_dlsym_libc()(RTLD_NEXT, "dlsym");
        if (address == NULL) {
            return flw_dlsym_libc();
        }
        memcpy(&function, &address, sizeof function);
        atomic_store_explicit(&next_dlsym, function, memory_order_relaxed);
    }
    return function;
}

static bool is_driver_name(const char *name)
{
    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

/* Without a driver a program must find none, and no name that the driver lacks, although we export
 * the names. The failing search sets the reason for dlerror. */
static void *find_behind_us(void *handle, const char *name)
{
    (void)handle;
    void *address = flw_dlsym_next()(RTLD_NEXT, name);
    __asm__ volatile("" : "+r"(address)); /* no tail call: the caller must be this library */
    return address;
}

void *flw_dlsym_find(void *handle, const char *name)
{
    flw_dlsym_function next = flw_dlsym_next();
    void *found = next(handle, name);
    if (found == NULL || !is_driver_name(name) || flw_is_inside()) {
        return found;
    }
    bool has_learnt = false;
    void *answer = flw_real_substitute(found, &has_learnt);
    if (answer == found && flw_real_is_wrapper(found) && !flw_real_offers(name)) {
        return find_behind_us(handle, name);
    }
    if (has_learnt) {
        next(handle, name); /* the next dlerror is about the program's own call */
    }
    return answer;
}

flw_dlsym_function flw_dlsym_route(void *handle, const char *name)
{
    if (name != NULL && is_driver_name(name) && !flw_is_inside() && flw_real_is_hooked(name)) {
        if (!flw_real_offers(name)) {
            return find_behind_us;
        }
        if (handle == RTLD_DEFAULT && flw_settings.mode != FLW_MODE_OFF) { /* it finds our export */
            atomic_fetch_add_explicit(&flw_hook_use.dlsym_count, 1, memory_order_relaxed);
        }
    }
    return flw_dlsym_next();
}
