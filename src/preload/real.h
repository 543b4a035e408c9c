/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the real entry points, looked up in the driver's symbol table when the driver is first
 * found, and the tables of the addresses with wrappers.
 * Does not: load a driver, or call one (except cuGetProcAddress, after the program has called it).
 *
 * Synchronization: no locks, since dlsym may be called under the loader's own. A thread that finds
 * nothing published looks up the addresses itself and publishes them; concurrent threads find the
 * same, and the first table published stays. */
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

/* Hooked names may be called at any time: until the driver is found they search for it; without
 * one they return CUDA_ERROR_NOT_INITIALIZED, and one that the driver lacks returns
 * CUDA_ERROR_NOT_FOUND. Names of FLW_REAL_LIST and of `driver` are NULL until flw_real_ready, and
 * if the driver lacks them. driver.version stays 0, since reading it takes a call. Pools of the
 * preload library are created on `driver`; flw_driver_open would find the wrappers. */
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

/* True if the driver is loaded and everything above is set. Searches for it if it was not found
 * yet. */
bool flw_real_ready(void);

/* Return the address that a program gets for a result of dlsym or cuGetProcAddress: the wrapper,
 * or the address itself. `out_learnt`: this call searched for the driver (dlerror's state has
 * changed). */
void *flw_real_substitute(void *address, bool *out_learnt);
void *flw_real_substitute_versioned(void *address);

/* True if a program would find this name without us: not without a driver, nor if it is hooked and
 * the driver lacks it. */
bool flw_real_offers(const char *name);

/* True if a name is hooked (slow). True if an address is one of the wrappers (slow near them). */
bool flw_real_is_hooked(const char *name);
bool flw_real_is_wrapper(const void *address);

#endif
