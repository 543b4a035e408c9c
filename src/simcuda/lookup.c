/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: cuGetProcAddress: which exported name stands for a base name, a version and flags.
 * Does not: know what the functions do.
 */
#include <string.h>

#include "simcuda/forms.h"

struct point {
    const char *name;
    void (*function)(void);
    int since, before; /* before 0: for good */
};

static const struct point entries[] = {
#define X(need, symbol, parameters) {#symbol, (void (*)(void))symbol, 2000, 0},
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
#define X(symbol, since, before, ...) {#symbol, (void (*)(void))symbol, since, before},
        FLW_OTHER_FORMS(X)
#undef X
};

/* Where not from 2000 on: the versions of the driver at which names of the list came, and at which
 * their base names began to mean a newer interface (cudaTypedefs.h). */
/* clang-format off */
#define AGES(X) \
    X(cuDriverGetVersion, 2020, 0) \
    X(cuGetErrorName, 6000, 0) \
    X(cuGetErrorString, 6000, 0) \
    X(cuDeviceTotalMem_v2, 3020, 0) \
    X(cuDevicePrimaryCtxRetain, 7000, 0) \
    X(cuDevicePrimaryCtxRelease_v2, 11000, 0) \
    X(cuDevicePrimaryCtxGetState, 7000, 0) \
    X(cuDevicePrimaryCtxReset_v2, 11000, 0) \
    X(cuDeviceCanAccessPeer, 4000, 0) \
    X(cuCtxCreate_v2, 3020, 11040) \
    X(cuCtxDestroy_v2, 4000, 0) \
    X(cuCtxPushCurrent_v2, 4000, 0) \
    X(cuCtxPopCurrent_v2, 4000, 0) \
    X(cuCtxSetCurrent, 4000, 0) \
    X(cuCtxGetCurrent, 4000, 0) \
    X(cuCtxGetDevice, 2000, 13000) \
    X(cuCtxGetId, 12000, 0) \
    X(cuCtxSynchronize, 2000, 13000) \
    X(cuCtxFromGreenCtx, 12040, 0) \
    X(cuStreamGetGreenCtx, 12040, 0) \
    X(cuCtxRecordEvent, 12050, 0) \
    X(cuCtxWaitEvent, 12050, 0) \
    X(cuStreamCreateWithPriority, 5050, 0) \
    X(cuStreamDestroy_v2, 4000, 0) \
    X(cuStreamWaitEvent, 3020, 0) \
    X(cuStreamGetId, 12000, 0) \
    X(cuStreamGetCtx, 9020, 12050) \
    X(cuStreamIsCapturing, 10000, 0) \
    X(cuStreamGetCaptureInfo_v2, 11030, 12030) \
    X(cuStreamBeginCapture_v2, 10010, 0) \
    X(cuStreamEndCapture, 10000, 0) \
    X(cuThreadExchangeStreamCaptureMode, 10010, 0) \
    X(cuLaunchHostFunc, 10000, 0) \
    X(cuEventDestroy_v2, 4000, 0) \
    X(cuMemGetInfo_v2, 3020, 0) \
    X(cuMemAlloc_v2, 3020, 0) \
    X(cuMemFree_v2, 3020, 0) \
    X(cuMemAllocPitch_v2, 3020, 0) \
    X(cuMemAllocManaged, 6000, 0) \
    X(cuMemGetAddressRange_v2, 3020, 0) \
    X(cuPointerGetAttribute, 4000, 0) \
    X(cuMemHostAlloc, 2020, 0) \
    X(cuMemAddressReserve, 10020, 0) \
    X(cuMemAddressFree, 10020, 0) \
    X(cuMemCreate, 10020, 0) \
    X(cuMemRelease, 10020, 0) \
    X(cuMemMap, 10020, 0) \
    X(cuMemUnmap, 10020, 0) \
    X(cuMemSetAccess, 10020, 0) \
    X(cuMemGetAccess, 10020, 0) \
    X(cuMemGetAllocationGranularity, 10020, 0) \
    X(cuMemExportToShareableHandle, 10020, 0) \
    X(cuMemImportFromShareableHandle, 10020, 0) \
    X(cuMemRetainAllocationHandle, 11000, 0) \
    X(cuMemGetAllocationPropertiesFromHandle, 10020, 0) \
    X(cuMemAllocAsync, 11020, 0) \
    X(cuMemFreeAsync, 11020, 0) \
    X(cuMemAllocFromPoolAsync, 11020, 0) \
    X(cuDeviceGetDefaultMemPool, 11020, 0) \
    X(cuDeviceGetMemPool, 11020, 0) \
    X(cuDeviceSetMemPool, 11020, 0) \
    X(cuMemPoolCreate, 11020, 0) \
    X(cuMemPoolDestroy, 11020, 0) \
    X(cuMemPoolSetAttribute, 11020, 0) \
    X(cuMemPoolGetAttribute, 11020, 0) \
    X(cuMemPoolTrimTo, 11020, 0) \
    X(cuMemsetD8_v2, 3020, 0) \
    X(cuMemsetD8Async, 3020, 0) \
    X(cuMemsetD32Async, 3020, 0) \
    X(cuMemcpyHtoD_v2, 3020, 0) \
    X(cuMemcpyDtoH_v2, 3020, 0) \
    X(cuMemcpyHtoDAsync_v2, 3020, 0) \
    X(cuMemcpyDtoHAsync_v2, 3020, 0) \
    X(cuMemcpyDtoDAsync_v2, 3020, 0) \
    X(cuLaunchKernel, 4000, 0) \
    X(cuGraphInstantiateWithFlags, 11040, 0) \
    X(cuGraphLaunch, 10000, 0) \
    X(cuGraphExecDestroy, 10000, 0) \
    X(cuGraphDestroy, 10000, 0) \
    X(cuGetProcAddress_v2, 12000, 0)
/* clang-format on */

static const struct age {
    const char *name;
    int since, before;
} ages[] = {
#define X(symbol, since, before) {#symbol, since, before},
    AGES(X)
#undef X
};

static struct point point_at(unsigned i)
{
    struct point point = entries[i];
    for (unsigned k = 0; k < sizeof ages / sizeof *ages; k++) {
        if (strcmp(ages[k].name, point.name) == 0) {
            point.since = ages[k].since;
            point.before = ages[k].before;
        }
    }
    return point;
}

/* Is `name` the base name with _v2 and so on, and _ptsz or _ptds behind it? */
static bool is_form_of(const char *name, const char *base, bool *is_twin)
{
    size_t length = strlen(base);
    if (strncmp(name, base, length) != 0) {
        return false;
    }
    const char *rest = name + length;
    if (rest[0] == '_' && rest[1] == 'v' && rest[2] >= '2' && rest[2] <= '9') {
        rest += 3;
    }
    *is_twin = strcmp(rest, "_ptsz") == 0 || strcmp(rest, "_ptds") == 0;
    return *is_twin || *rest == '\0';
}

/* "If a per-thread version is not found, the API will return the legacy version" */
static CUdriverProcAddressQueryResult find(const char *base, int version, bool wants_twin,
                                           void **function)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    bool has_twin = false;
    for (unsigned i = 0; i < sizeof entries / sizeof *entries; i++) {
        bool is_twin = false;
        if (!is_form_of(entries[i].name, base, &is_twin) || (is_twin && !wants_twin)) {
            continue;
        }
        struct point point = point_at(i);
        if (point.since > flw_world.config.driver_version) {
            continue; /* the driver is older than the function */
        }
        if (version < point.since || (point.before != 0 && version >= point.before)) {
            if (status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) {
                status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            }
        } else if (is_twin || !has_twin) {
            has_twin = is_twin;
            status = CU_GET_PROC_ADDRESS_SUCCESS;
            memcpy(function, &point.function, sizeof *function);
        }
    }
    return status;
}

static CUresult answer(const char *symbol, void **function, int version, cuuint64_t flags,
                       CUdriverProcAddressQueryResult *status)
{
    FLW_CALL(cuGetProcAddress_v2, FLW_CALL_BEFORE_INIT | FLW_CALL_IN_CALLBACK);
    /* "If the specified CUDA version is greater than the driver version": INVALID_VALUE */
    FLW_REFUSE_IF(symbol == NULL || function == NULL || flags > 2 ||
                      version > flw_world.config.driver_version,
                  CUDA_ERROR_INVALID_VALUE);
    *function = NULL;
    CUdriverProcAddressQueryResult found = find(symbol, version, flags == 2, function);
    if (status != NULL) {
        *status = found;
    }
    return found == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **function, int version,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
    return answer(symbol, function, version, flags, status);
}

CUresult CUDAAPI cuGetProcAddress(const char *symbol, void **function, int version,
                                  cuuint64_t flags)
{
    return answer(symbol, function, version, flags, NULL);
}
