/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of the other allocating calls. Each passes the call through; if the driver
 * has no memory, idle memory of pools is released and the call is repeated once.
 * Does not: allocate memory of its own. */
#include "heap/order/epoch.h"
#include "preload/audit_alloc.h"
#include "preload/hooks.h"
#include "preload/live_contexts.h"
#include "preload/real.h"

/* True if memory was released after an out-of-memory result, so that the call is
 * worth repeating. */
static bool made_room(CUresult result)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !flw_live_contexts_serve() ||
        flw_captures_are_open() || flw_live_contexts_trim() == 0) {
        return false;
    }
    flw_live_context_count(&flw_live_context_counts.retries);
    return true;
}

static CUresult tried_again(CUresult result)
{
    if (result == CUDA_SUCCESS) {
        flw_live_context_count(&flw_live_context_counts.retries_served);
    }
    return result;
}

static void count_bypass(CUresult result, enum flw_bypass bypass)
{
    if (result == CUDA_SUCCESS && flw_live_contexts_serve()) {
        flw_live_context_count(&flw_live_context_counts.bypasses[bypass]);
    }
}

/* ---- the bytes that each allocates, by base name, for the audit, in terms of the parameters in
 * the list */

#define ALLOCATED_cuMemAllocPitch \
    flw_audit_heed(result, pointer, result == CUDA_SUCCESS ? *pitch * height : 0)
#define ALLOCATED_cuMemAllocManaged       result
#define ALLOCATED_cuMemAllocAsync         flw_audit_heed(result, pointer, bytes)
#define ALLOCATED_cuMemAllocFromPoolAsync flw_audit_heed(result, pointer, bytes)
#define ALLOCATED_cuMemCreate             result
#define ALLOCATED_cuArrayCreate           result
#define ALLOCATED_cuArray3DCreate         result
#define ALLOCATED_cuMipmappedArrayCreate  result

#define WRAP(symbol, base, since, parameters, arguments)     \
    CUresult flw_hook_##symbol parameters                    \
    {                                                        \
        CUresult result = flw_real.symbol arguments;         \
        if (made_room(result)) {                             \
            result = tried_again(flw_real.symbol arguments); \
        }                                                    \
        count_bypass(result, FLW_BYPASS_##base);             \
        return ALLOCATED_##base;                             \
    }
FLW_HOOKS_RETRY(WRAP)
#undef WRAP
