/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of calls that create, end, select and synchronise contexts: epochs must cover
 * live contexts, and memory of an ended context must not be allocated.
 * Does not: allocate memory. */
#include "heap/order/epoch.h"
#include "preload/audit_alloc.h"
#include "preload/captures.h"
#include "preload/hooks.h"
#include "preload/life.h"
#include "preload/live_contexts.h"
#include "preload/real.h"

/* ---- create */

static CUresult learn(CUresult result, const CUcontext *context)
{
    if (result == CUDA_SUCCESS && context != NULL && flw_live_contexts_serve()) {
        flw_live_contexts_learn(*context);
    }
    return result;
}

CUresult flw_hook_cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    return learn(flw_real.cuCtxCreate_v2(context, flags, device), context);
}

CUresult flw_hook_cuCtxCreate_v3(CUcontext *context, struct CUexecAffinityParam_st *affinities,
                                 int affinity_count, unsigned flags, CUdevice device)
{
    return learn(flw_real.cuCtxCreate_v3(context, affinities, affinity_count, flags, device),
                 context);
}

CUresult flw_hook_cuCtxCreate_v4(CUcontext *context, struct CUctxCreateParams_st *wishes,
                                 unsigned flags, CUdevice device)
{
    return learn(flw_real.cuCtxCreate_v4(context, wishes, flags, device), context);
}

CUresult flw_hook_cuCtxSetCurrent(CUcontext context)
{
    return learn(flw_real.cuCtxSetCurrent(context), &context);
}

CUresult flw_hook_cuCtxPushCurrent_v2(CUcontext context)
{
    return learn(flw_real.cuCtxPushCurrent_v2(context), &context);
}

/* The peer's work may use this context's memory from now on. */
CUresult flw_hook_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    return learn(flw_real.cuCtxEnablePeerAccess(peer, flags), &peer);
}

/* ---- the end */

static void end(struct flw_ending ending, bool is_over)
{
    if (is_over && ending.live != NULL) {
        flw_captured_forget(ending.live->id);
    }
    flw_live_contexts_end(ending, is_over);
}

static CUresult note_end(CUresult result)
{
    flw_audit_end_context(result == CUDA_SUCCESS);
    return flw_life_heed(result);
}

static CUresult end_context(CUcontext context, CUresult (*real)(CUcontext context))
{
    if (context == NULL || !flw_live_contexts_serve()) {
        return note_end(real(context));
    }
    struct flw_ending ending = flw_live_contexts_begin_end(context, 0);
    CUresult result = note_end(real(context));
    end(ending, result == CUDA_SUCCESS);
    return result;
}

static bool is_primary_active(CUdevice device)
{
    unsigned flags;
    int is_active = 0;
    return flw_real.driver.cuDevicePrimaryCtxGetState(device, &flags, &is_active) == CUDA_SUCCESS &&
           is_active;
}

/* End a device's primary context, which stays alive if it has other users. */
static CUresult end_primary(CUdevice device, CUresult (*real)(CUdevice device), bool ends_always)
{
    if (!flw_live_contexts_serve()) {
        return note_end(real(device));
    }
    struct flw_ending ending = flw_live_contexts_begin_end(NULL, device);
    CUresult result = note_end(real(device));
    end(ending, result == CUDA_SUCCESS && (ends_always || !is_primary_active(device)));
    return result;
}

CUresult flw_hook_cuCtxDestroy(CUcontext context)
{
    return end_context(context, flw_real.cuCtxDestroy);
}

CUresult flw_hook_cuCtxDestroy_v2(CUcontext context)
{
    return end_context(context, flw_real.cuCtxDestroy_v2);
}

CUresult flw_hook_cuCtxDetach(CUcontext context)
{
    return end_context(context, flw_real.cuCtxDetach); /* cuCtxAttach is rare */
}

/* Return the green context's CUcontext and device. */
static bool find_green(CUgreenCtx green, CUcontext *out_context, CUdevice *out_device)
{
    const struct flw_driver *driver = &flw_real.driver;
    CUcontext popped;
    if (driver->cuCtxFromGreenCtx == NULL ||
        driver->cuCtxFromGreenCtx(out_context, green) != CUDA_SUCCESS ||
        driver->cuCtxPushCurrent_v2(*out_context) != CUDA_SUCCESS) {
        return false;
    }
    CUresult result = driver->cuCtxGetDevice(out_device);
    (void)driver->cuCtxPopCurrent_v2(&popped);
    return result == CUDA_SUCCESS;
}

/* It releases the share of the primary context, possibly the last one. */
CUresult flw_hook_cuGreenCtxDestroy(CUgreenCtx green)
{
    CUcontext context;
    CUdevice device;
    if (!flw_live_contexts_serve() || !find_green(green, &context, &device)) {
        return flw_life_heed(flw_real.cuGreenCtxDestroy(green));
    }
    struct flw_ending ending = flw_live_contexts_begin_end(NULL, device);
    CUresult result = flw_life_heed(flw_real.cuGreenCtxDestroy(green));
    if (result == CUDA_SUCCESS) {
        flw_live_contexts_forget_green(context);
    }
    end(ending, result == CUDA_SUCCESS && !is_primary_active(device));
    return result;
}

CUresult flw_hook_cuDevicePrimaryCtxReset(CUdevice device)
{
    return end_primary(device, flw_real.cuDevicePrimaryCtxReset, true);
}

CUresult flw_hook_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return end_primary(device, flw_real.cuDevicePrimaryCtxReset_v2, true);
}

CUresult flw_hook_cuDevicePrimaryCtxRelease(CUdevice device)
{
    return end_primary(device, flw_real.cuDevicePrimaryCtxRelease, false);
}

CUresult flw_hook_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return end_primary(device, flw_real.cuDevicePrimaryCtxRelease_v2, false);
}

/* ---- synchronisation makes memory that was freed before available. A green context's
 * synchronisation waits only for that context's own work, so no memory becomes available. */

struct quiet {
    const struct flw_pool *pool; /* NULL: none, or nothing to gain */
    uint64_t seq;
};

static struct quiet expect_quiet(CUcontext context)
{
    struct quiet quiet = {0};
    struct flw_live_context *live =
        flw_live_contexts_serve() ? flw_live_context_enter_own(context) : NULL;
    if (live != NULL) {
        struct flw_pool *pool = atomic_load(&live->pool);
        quiet.seq = pool != NULL ? flw_epoch_expect_sync(pool) : 0;
        quiet.pool = quiet.seq != 0 ? pool : NULL;
        flw_live_context_leave(live);
    }
    return quiet;
}

/* The record may have ended meanwhile. */
static CUresult note_quiet(CUresult result, CUcontext context, const struct quiet *quiet)
{
    struct flw_live_context *live =
        result == CUDA_SUCCESS && quiet->pool != NULL ? flw_live_context_enter_own(context) : NULL;
    if (live != NULL) {
        struct flw_pool *pool = atomic_load(&live->pool);
        if (pool == quiet->pool) {
            flw_epoch_end_sync(&pool->heap, quiet->seq);
        }
        flw_live_context_leave(live);
    }
    return result;
}

CUresult flw_hook_cuCtxSynchronize(void)
{
    struct quiet quiet = expect_quiet(NULL);
    return note_quiet(flw_life_heed(flw_real.cuCtxSynchronize()), NULL, &quiet);
}

CUresult flw_hook_cuCtxSynchronize_v2(CUcontext context)
{
    struct quiet quiet = expect_quiet(context);
    return note_quiet(flw_life_heed(flw_real.cuCtxSynchronize_v2(context)), context, &quiet);
}
