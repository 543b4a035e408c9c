/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: driver calls that fail at random while threads run. Does not: judge the pool's reaction
 * (stress_run.c). */
#include "driver/answer.h"
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
/* Calls that fail with any error. Without cuMemFreeHost: memory that it refuses
 * stays, as logged. */
static const char *const dear[] = {
    "cuMemCreate",     "cuMemUnmap",    "cuMemRelease",        "cuMemFree_v2",
    "cuEventRecord",   "cuEventQuery",  "cuStreamWaitEvent",   "cuCtxSynchronize",
    "cuMemcpyDtoH_v2", "cuStreamGetId", "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode"};
/* The calls after the first nine concern one stream, or the thread: on a working device an error
 * "gone" concerns that stream's context, or the thread's, and loses no device. */
#define LOSING 9

/* The world has room for a few: those for calls that nobody makes give way. */
static void plan(struct run *run, const char *entry, uint64_t n, int error)
{
    if (run->sim.fail(entry, n, error, 0) == 0) {
        (void)run->sim.fail(NULL, 0, 0, 0);
        (void)run->sim.fail(entry, n, error, 0);
    }
    atomic_fetch_add(&run->planned_faults, 1);
}

/* Answers that lose a device; once, the device itself is well. */
static const CUresult gone[] = {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT,
                                CUDA_ERROR_LAUNCH_FAILED};

/* Plan one call that reports a lost device: near the end of the worker's operations, because it
 * ends the run, and in every second world, because the remains are not compared then. */
static bool plan_loss(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    struct run *run = worker->run;
    const struct stress_settings *settings = &run->settings;
    int answer = (int)gone[flw_client_below(client, sizeof gone / sizeof *gone)];
    int none = 0;
    if (settings->seed % 2 == 0 || client->op_count < settings->ops / settings->threads / 8 * 7 ||
        flw_answer_of(answer) != FLW_ANSWER_GONE ||
        !atomic_compare_exchange_strong(&run->gone_answer, &none, answer)) {
        return false;
    }
    atomic_store(&run->is_gone, true);
    plan(run, dear[flw_client_below(client, LOSING)], 1, answer);
    return true;
}

void stress_plan_fault(struct worker *worker)
{
    struct flw_client *client = &worker->client;
    if (plan_loss(worker)) {
        return;
    }
    static const CUresult answers[] = {CUDA_ERROR_OUT_OF_MEMORY,    CUDA_ERROR_NOT_PERMITTED,
                                       CUDA_ERROR_NOT_SUPPORTED,    CUDA_ERROR_INVALID_VALUE,
                                       CUDA_ERROR_OPERATING_SYSTEM, CUDA_ERROR_UNKNOWN};
    bool is_dear = flw_client_below(client, 4) == 0;
    const char *entry = is_dear ? dear[flw_client_below(client, sizeof dear / sizeof *dear)]
                                : cheap[flw_client_below(client, sizeof cheap / sizeof *cheap)];
    CUresult error = is_dear ? answers[flw_client_below(client, sizeof answers / sizeof *answers)]
                             : CUDA_ERROR_OUT_OF_MEMORY;
    plan(worker->run, entry, 1 + flw_client_below(client, 4), (int)error);
}
