/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the declarations of the wrappers, generated from the list. In C a wrapper is
 * flw_hook_<symbol>; the linker name is the driver's, so the definition exports it.
 * Does not: define any; the file of a wrapper's topic does. */
#ifndef FLW_PRELOAD_HOOKS_H
#define FLW_PRELOAD_HOOKS_H

#include <stdbool.h>
#include <string.h>

#include "preload/hook_list.h"

/* Protected: the library's own references are bound to these functions, also by a linker without
 * -Bsymbolic-functions. */
#define FLW_PRELOAD_EXPORT __attribute__((visibility("protected")))

#define X(symbol, base, since, parameters, arguments) \
    FLW_PRELOAD_EXPORT CUresult CUDAAPI flw_hook_##symbol parameters __asm__(#symbol);
FLW_HOOK_LIST(X)
#undef X

enum flw_hook {
#define X(symbol, base, since, parameters, arguments) FLW_HOOK_##symbol,
    FLW_HOOK_LIST(X)
#undef X
    FLW_HOOK_COUNT
};

/* In a _ptsz or _ptds twin NULL means the thread's own stream. */
static inline CUstream flw_hook_stream(CUstream stream, const char *symbol)
{
    const char *end = strrchr(symbol, '_');
    bool is_twin = end != NULL && (strcmp(end, "_ptsz") == 0 || strcmp(end, "_ptds") == 0);
    return stream == NULL && is_twin ? CU_STREAM_PER_THREAD : stream;
}

#endif
