/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the exported dlsym, and the ways past it.
 * Does not: know which addresses have wrappers (real.h).
 *
 * The exported entry is a few instructions of assembly (dlsym_entry.c): for RTLD_NEXT and RTLD_DEFAULT
 * the answer depends on who calls, which is read off the return address, so for them it jumps to the
 * next dlsym instead of calling it. No lock, no once, no memory on any path.
 */
#ifndef FLW_PRELOAD_DLSYM_H
#define FLW_PRELOAD_DLSYM_H

typedef void *(*flw_dlsym_function)(void *handle, const char *name);

/* The C library's own, and the next one after ours: another preload's where there is one, which then
 * answers as it would without us. Each is found once. */
flw_dlsym_function flw_dlsym_libc(void);
flw_dlsym_function flw_dlsym_next(void);

/* From the assembly. Find: any handle that does not depend on the caller. Route: RTLD_NEXT and
 * RTLD_DEFAULT; the function to jump to with the same arguments. */
void *flw_dlsym_find(void *handle, const char *name);
flw_dlsym_function flw_dlsym_route(void *handle, const char *name);

#endif
