/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the real entry points, learnt from the driver's own symbol table when the driver is first
 * seen, and the tables that say which of its addresses have a wrapper.
 * Does not: load a driver, or call one (cuGetProcAddress apart, after the program has called it).
 *
 * Synchronization: no lock anywhere, since dlsym may be called under the loader's own. Whoever finds
 * nothing learnt learns for itself and publishes; threads that do so at once learn the same, and the
 * first table published stays.
 */
#ifndef FLW_PRELOAD_REAL_H
#define FLW_PRELOAD_REAL_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/driver.h"
#include "preload/dlsym.h"
#include "preload/hooks.h"

/* More entry points that hooks need and neither list has. */
/* clang-format off */
#define FLW_REAL_LIST(X) \
    X(cuFuncGetModule, (CUmodule *module, CUfunction function)) \
    X(cuKernelGetFunction, (CUfunction *function, struct CUkern_st *kernel)) \
    X(cuKernelGetName, (const char **name, struct CUkern_st *kernel)) \
    X(cuKernelGetParamInfo, (struct CUkern_st *kernel, size_t index, size_t *offset, size_t *bytes))
/* clang-format on */

struct CUkern_st;

/* Hooked names may be called at any time: until the driver is seen they look for it, without one they
 * answer CUDA_ERROR_NOT_INITIALIZED, and one that the driver lacks answers CUDA_ERROR_NOT_FOUND.
 * Names of FLW_REAL_LIST and of `driver` are NULL until flw_real_ready, and where the driver lacks
 * them. driver.version stays 0: it takes a call. A pool of the preload library is made on `driver`;
 * flw_driver_open would find the wrappers. */
struct flw_real {
#define X(symbol, base, since, parameters, arguments) CUresult(*symbol) parameters;
    FLW_HOOK_LIST(X)
#undef X
#define X(symbol, parameters) CUresult(*symbol) parameters;
    FLW_REAL_LIST(X)
#undef X
    struct flw_driver driver;
};

extern struct flw_real flw_real;

/* Is the driver there, and everything above filled? Looks for it where it was not seen yet. */
bool flw_real_ready(void);

/* What a program is to get for an address that dlsym or cuGetProcAddress answered: the wrapper, or
 * the address itself. `out_learnt`: this call looked for the driver (dlerror's state is changed). */
void *flw_real_substitute(void *address, bool *out_learnt);
void *flw_real_substitute_versioned(void *address);

/* Does a program find this name without us? Not where there is no driver, nor where it is hooked and the
 * driver lacks it. */
bool flw_real_offers(const char *name);

/* Is a name hooked (slow)? Is an address one of the wrappers (slow where it is near them)? */
bool flw_real_is_hooked(const char *name);
bool flw_real_is_wrapper(const void *address);

#endif
