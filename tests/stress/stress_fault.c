/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: driver calls that are refused at random while threads run. Does not: judge what the pool makes
 * of it (stress_run.c).
 */
#include "stress_worker.h"

/* Answered "no memory", which a pool survives. */
static const char *const cheap[] = {"cuMemCreate",
                                    "cuMemMap",
                                    "cuMemSetAccess",
                                    "cuMemAddressReserve",
                                    "cuMemAlloc_v2",
                                    "cuEventCreate",
                                    "cuMemGetInfo_v2",
                                    "cuMemHostAlloc",
                                    "cuMemExportToShareableHandle",
                                    "cuMemImportFromShareableHandle"};
/* Answered anything by which a driver refuses, which costs the call. Not cuMemFreeHost: what it refuses
 * stays, which the log says. */
static const char *const dear[] = {
    "cuMemCreate",       "cuMemUnmap",      "cuMemRelease",
    "cuMemFree_v2",      "cuEventRecord",   "cuEventQuery",
    "cuStreamWaitEvent", "cuStreamGetId",   "cuStreamIsCapturing",
    "cuCtxSynchronize",  "cuMemcpyDtoH_v2", "cuThreadExchangeStreamCaptureMode"};

void stress_plan_fault(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    static const CUresult answers[] = {CUDA_ERROR_OUT_OF_MEMORY,    CUDA_ERROR_NOT_PERMITTED,
                                       CUDA_ERROR_NOT_SUPPORTED,    CUDA_ERROR_INVALID_VALUE,
                                       CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_UNKNOWN};
    bool is_dear = flw_client_below(client, 4) == 0;
    const char *entry = is_dear ? dear[flw_client_below(client, sizeof dear / sizeof *dear)]
                                : cheap[flw_client_below(client, sizeof cheap / sizeof *cheap)];
    CUresult error = is_dear ? answers[flw_client_below(client, sizeof answers / sizeof *answers)]
                             : CUDA_ERROR_OUT_OF_MEMORY;
    if (worker->run->sim.fail(entry, 1 + flw_client_below(client, 4), (int)error, 0) != 0) {
        atomic_fetch_add(&worker->run->planned_faults, 1);
    }
}
