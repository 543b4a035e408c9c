/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the table of entry points, generated from the list: a missing definition is a link error
 * here. Also the names of errors.
 * Does not: implement the rest. */
#include <string.h>

#include "simcuda/world.h"

static const struct {
    const char *name;
    void (*function)(void);
} entries[FLW_ENTRY_COUNT] = {
#define X(need, symbol, since, before, parameters) {#symbol, (void (*)(void))symbol},
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
};

unsigned flw_entry_find(const char *name)
{
    for (unsigned i = 0; i < FLW_ENTRY_COUNT; i++) {
        if (strcmp(entries[i].name, name) == 0) {
            return i;
        }
    }
    return FLW_ENTRY_COUNT;
}

/* clang-format off */
#define ERRORS(X) \
    X(CUDA_SUCCESS, "no error") \
    X(CUDA_ERROR_INVALID_VALUE, "invalid argument") \
    X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory") \
    X(CUDA_ERROR_NOT_INITIALIZED, "initialization error") \
    X(CUDA_ERROR_DEINITIALIZED, "driver shutting down") \
    X(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected") \
    X(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal") \
    X(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid") \
    X(CUDA_ERROR_INVALID_CONTEXT, "invalid device context") \
    X(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed") \
    X(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed") \
    X(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped") \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device") \
    X(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture") \
    X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices") \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled") \
    X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled") \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped") \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region") \
    X(CUDA_ERROR_FILE_NOT_FOUND, "file not found") \
    X(CUDA_ERROR_NOT_MAPPED, "resource not mapped") \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered") \
    X(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS") \
    X(CUDA_ERROR_ILLEGAL_STATE, "an illegal state") \
    X(CUDA_ERROR_NOT_FOUND, "named symbol not found") \
    X(CUDA_ERROR_NOT_READY, "device not ready") \
    X(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle") \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered") \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch") \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated") \
    X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process") \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed") \
    X(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure") \
    X(CUDA_ERROR_NOT_PERMITTED, "operation not permitted") \
    X(CUDA_ERROR_NOT_SUPPORTED, "operation not supported") \
    X(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized") \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing") \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture") \
    X(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences") \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began") \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work") \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream") \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream") \
    X(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream") \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread") \
    X(CUDA_ERROR_TIMEOUT, "wait operation timed out") \
    X(CUDA_ERROR_UNKNOWN, "unknown error")
/* clang-format on */

static const struct {
    CUresult error;
    const char *name, *text;
} errors[] = {
#define X(error, text) {error, #error, text},
    ERRORS(X)
#undef X
};

bool flw_error_find(const char *name, size_t length, CUresult *error)
{
    static const char prefix[] = "CUDA_ERROR_";
    size_t skipped = sizeof prefix - 1;
    for (unsigned i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        const char *full = errors[i].name;
        const char *brief = strncmp(full, prefix, skipped) == 0 ? full + skipped : full;
        if ((strlen(full) == length && memcmp(full, name, length) == 0) ||
            (strlen(brief) == length && memcmp(brief, name, length) == 0)) {
            *error = errors[i].error;
            return errors[i].error != CUDA_SUCCESS;
        }
    }
    return false;
}

static CUresult describe(CUresult error, const char **out, bool wants_name)
{
    FLW_REFUSE_IF(out == NULL, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        if (errors[i].error == error) {
            *out = wants_name ? errors[i].name : errors[i].text;
            return CUDA_SUCCESS;
        }
    }
    *out = NULL; /* "CUDA_ERROR_INVALID_VALUE will be returned and *pStr will be set to NULL" */
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **name)
{
    FLW_CALL(cuGetErrorName, FLW_CALL_BEFORE_INIT | FLW_CALL_IN_CALLBACK);
    return describe(error, name, true);
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **text)
{
    FLW_CALL(cuGetErrorString, FLW_CALL_BEFORE_INIT | FLW_CALL_IN_CALLBACK);
    return describe(error, text, false);
}
