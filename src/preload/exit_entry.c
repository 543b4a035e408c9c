/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the exported _exit and _Exit, which end a process without destructors: Python's os._exit,
 * and so every worker of the multiprocessing. They post the last statistics first. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/dlsym.h"
#include "preload/hooks.h"
#include "preload/summary.h"

static void (*next_exit)(int status); /* another preload's, or the C library's */

__attribute__((constructor)) static void find_next(void)
{
    void *address = flw_dlsym_libc()(RTLD_NEXT, "_exit");
    memcpy(&next_exit, &address, sizeof next_exit);
}

FLW_PRELOAD_EXPORT __attribute__((noreturn)) void _exit(int status)
{
    flw_summary_post_last();
    if (next_exit != NULL) {
        next_exit(status);
    }
    for (;;) {
        (void)syscall(SYS_exit_group, status);
    }
}

FLW_PRELOAD_EXPORT __attribute__((noreturn)) void _Exit(int status)
{
    _exit(status);
}
