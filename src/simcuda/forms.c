/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: per-thread twins (NULL means the calling thread's own default stream), other binary
 * interfaces and launches by other names: each calls the entry point that does the work. And
 * cuGetProcAddress: the exported name for a base name, a version and flags. And the names of libcuda
 * that are not simulated: they return NOT_SUPPORTED and are counted.
 * Does not: have rules of its own. */
#include "simcuda/forms.h"

#include <stdio.h>
#include <string.h>

#include "simcuda/absent.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter" /* some are hints without an effect */
#define FORWARD(symbol, since, before, parameters, call) \
    CUresult CUDAAPI symbol parameters                   \
    {                                                    \
        return call;                                     \
    }
FLW_FORWARDED_FORMS(FORWARD)
#undef FORWARD
#define FORWARD(symbol, since, before, parameters, call) \
    FLW_SIM_NEWER(symbol, parameters)                    \
    {                                                    \
        return call;                                     \
    }
FLW_NEWER_FORWARDED_FORMS(FORWARD)
#undef FORWARD
#pragma GCC diagnostic pop

/* Parameters of zeros request nothing; affinity and graphics are not modelled. */
FLW_SIM_NEWER(cuCtxCreate_v4, (CUcontext * context, struct CUctxCreateParams_st *parameters,
                               unsigned flags, CUdevice device))
{
    bool asks = parameters != NULL &&
                (parameters->execAffinityParams != NULL || parameters->numExecAffinityParams != 0 ||
                 parameters->cigParams != NULL);
    return asks ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v2(context, flags, device);
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext *context, struct CUexecAffinityParam_st *affinities,
                                int count, unsigned flags, CUdevice device)
{
    return affinities != NULL || count != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                            : cuCtxCreate_v2(context, flags, device);
}

/* No edge has data: "edgeData_out" is an array of none. */
FLW_SIM_NEWER(cuStreamGetCaptureInfo_v3,
              (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
               const CUgraphNode **dependencies, const struct CUgraphEdgeData_st **edges,
               size_t *count))
{
    /* "If edgeData_out is non-NULL then dependencies_out must be as well." */
    FLW_REFUSE_IF(edges != NULL && dependencies == NULL, CUDA_ERROR_INVALID_VALUE);
    CUresult result = cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
    if (result == CUDA_SUCCESS && edges != NULL) {
        *edges = NULL;
    }
    return result;
}

/* No profiler is attached: "no effect". */
CUresult CUDAAPI cuProfilerStart(void)
{
    FLW_CALL(cuCtxGetDevice, FLW_CALL_CONTEXT);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuProfilerStop(void)
{
    return cuProfilerStart();
}

CUresult CUDAAPI cuLaunchKernelEx(const struct CUlaunchConfig_st *config, CUfunction function,
                                  void **parameters, void **extra)
{
    FLW_REFUSE_IF(config == NULL, CUDA_ERROR_INVALID_VALUE);
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, parameters, extra);
}

CUresult CUDAAPI cuLaunchKernelEx_ptsz(const struct CUlaunchConfig_st *config, CUfunction function,
                                       void **parameters, void **extra)
{
    FLW_REFUSE_IF(config == NULL, CUDA_ERROR_INVALID_VALUE);
    struct CUlaunchConfig_st changed = *config;
    changed.hStream = flw_own_stream(config->hStream);
    return cuLaunchKernelEx(&changed, function, parameters, extra);
}

/* ---- names that are not simulated */

enum {
#define X(symbol, since, before) ABSENT_##symbol,
    FLW_ABSENT(X)
    FLW_ABSENT_NEWER(X)
#undef X
        ABSENT_COUNT
};

static struct {
    const char *name;
    uint64_t calls; /* since the reset; under the world's lock */
} absent[] = {
#define X(symbol, since, before) {#symbol, 0},
    FLW_ABSENT(X) FLW_ABSENT_NEWER(X)
#undef X
};

static CUresult refuse(unsigned index)
{
    FLW_FRAME(flw_call_enter(&call, FLW_ENTRY_COUNT, FLW_CALL_SILENT));
    absent[index].calls++;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* The C names differ from the exported ones, which cuda.h declares with other types or renames. The
 * arguments are not read. */
#define X(symbol, since, before)                                            \
    FLW_SIM_EXPORT CUresult CUDAAPI absent_##symbol(void) __asm__(#symbol); \
    CUresult CUDAAPI absent_##symbol(void)                                  \
    {                                                                       \
        return refuse(ABSENT_##symbol);                                     \
    }
FLW_ABSENT(X)
#undef X
#define X(symbol, since, before)                                \
    FLW_SIM_NEWER_AS(absent_##symbol, (void), __asm__(#symbol)) \
    {                                                           \
        return refuse(ABSENT_##symbol);                         \
    }
FLW_ABSENT_NEWER(X)
#undef X

uint64_t flw_absent_calls(const char *name)
{
    for (unsigned i = 0; i < ABSENT_COUNT; i++) {
        if (strcmp(absent[i].name, name) == 0) {
            return absent[i].calls;
        }
    }
    return 0;
}

void flw_absent_forget(void)
{
    for (unsigned i = 0; i < ABSENT_COUNT; i++) {
        absent[i].calls = 0;
    }
}

void flw_absent_report(void)
{
    const char *begin = "simcuda: not simulated, returned CUDA_ERROR_NOT_SUPPORTED:";
    for (unsigned i = 0; i < ABSENT_COUNT; i++) {
        if (absent[i].calls != 0) {
            fprintf(stderr, "%s %s (%llu)", begin, absent[i].name,
                    (unsigned long long)absent[i].calls);
            begin = ",";
        }
    }
    if (*begin == ',') {
        fputc('\n', stderr);
    }
}

/* ---- lookup by name */

struct point {
    const char *name;
    void (*function)(void);
    int since, before; /* before 0: permanent */
};

static const struct point entries[] = {
#define X(need, symbol, since, before, parameters) {#symbol, (void (*)(void))symbol, since, before},
    FLW_DRIVER_ENTRY_POINTS(X)
#undef X
#define X(symbol, since, before, ...) {#symbol, (void (*)(void))symbol, since, before},
        FLW_OTHER_FORMS(X)
#undef X
#define X(symbol, since, before) {#symbol, (void (*)(void))absent_##symbol, since, before},
            FLW_ABSENT(X) FLW_ABSENT_NEWER(X)
#undef X
};

/* True if `name` is the base name followed by _v2 and so on, and _ptsz or _ptds. */
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
        const struct point *point = &entries[i];
        bool is_twin = false;
        if (!is_form_of(point->name, base, &is_twin) || (is_twin && !wants_twin)) {
            continue;
        }
        if (point->since > flw_world.config.driver_version) {
            continue; /* the driver is older than the function */
        }
        if (version < point->since || (point->before != 0 && version >= point->before)) {
            if (status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) {
                status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            }
        } else if (is_twin || !has_twin) {
            has_twin = is_twin;
            status = CU_GET_PROC_ADDRESS_SUCCESS;
            memcpy(function, &point->function, sizeof *function);
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
