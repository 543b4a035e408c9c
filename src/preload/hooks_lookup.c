/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of both forms of cuGetProcAddress: they return the driver's result, with the
 * wrapper instead of an address that has one. Status and "not found" remain the driver's.
 * Does not: read names, versions or flags: the address identifies the function. */
#include "preload/hooks.h"
#include "preload/inside.h"
#include "preload/real.h"

static CUresult substitute(CUresult result, void **function, bool was_inside)
{
    if (result == CUDA_SUCCESS && !was_inside && function != NULL && *function != NULL) {
        *function = flw_real_substitute_versioned(*function);
    }
    return result;
}

CUresult flw_hook_cuGetProcAddress(const char *symbol, void **function, int version,
                                   cuuint64_t flags)
{
    bool was_inside = flw_is_inside();
    if (!flw_real_ready()) {
        return flw_real.cuGetProcAddress(symbol, function, version, flags);
    }
    flw_inside_enter(); /* a driver that uses dlsym to answer must find its own functions */
    CUresult result = flw_real.cuGetProcAddress(symbol, function, version, flags);
    flw_inside_leave();
    return substitute(result, function, was_inside);
}

CUresult flw_hook_cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                      cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    bool was_inside = flw_is_inside();
    if (!flw_real_ready()) {
        return flw_real.cuGetProcAddress_v2(symbol, function, version, flags, status);
    }
    flw_inside_enter();
    CUresult result = flw_real.cuGetProcAddress_v2(symbol, function, version, flags, status);
    flw_inside_leave();
    return substitute(result, function, was_inside);
}
