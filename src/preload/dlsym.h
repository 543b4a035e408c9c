/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the exported dlsym, and access to the others.
 * Does not: know which addresses have wrappers (real.h).
 *
 * The exported entry is a few instructions of assembly (dlsym_entry.c): for RTLD_NEXT and
 * RTLD_DEFAULT the result depends on the caller's return address, so the entry jumps to the next
 * dlsym instead of calling it. No path uses a lock, a once or memory. */
#ifndef FLW_PRELOAD_DLSYM_H
#define FLW_PRELOAD_DLSYM_H

typedef void *(*flw_dlsym_function)(void *handle, const char *name);

/* Return the C library's dlsym; the next one after ours, which is another preload library's if
 * there is one. Each is found once. */
flw_dlsym_function flw_dlsym_libc(void);
flw_dlsym_function flw_dlsym_next(void);

/* Called from the assembly. Find: for handles that do not depend on the caller. Route: for
 * RTLD_NEXT and RTLD_DEFAULT; returns the function to jump to with the same arguments. */
void *flw_dlsym_find(void *handle, const char *name);
flw_dlsym_function flw_dlsym_route(void *handle, const char *name);

#endif
