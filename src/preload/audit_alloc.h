/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what the wrappers that allocate and free device memory say to the audit. Where none is on,
 * one load and a branch.
 * Does not: know what is behind them: a block of the pool and one of the driver are the same here.
 */
#ifndef FLW_PRELOAD_AUDIT_ALLOC_H
#define FLW_PRELOAD_AUDIT_ALLOC_H

#include "driver/driver_types.h"
#include "preload/audit/audit.h"

/* With the answer of what allocated, which it gives on. */
static inline CUresult flw_audit_heed(CUresult result, const CUdeviceptr *pointer, uint64_t bytes)
{
    if (result == CUDA_SUCCESS && pointer != NULL && flw_audit_is_on()) {
        flw_audit_alloc(*pointer, bytes);
    }
    return result;
}

/* Before the call that takes it back: behind it the address may be somebody else's. */
static inline void flw_audit_forget(CUdeviceptr pointer)
{
    if (flw_audit_is_on()) {
        flw_audit_free(pointer);
    }
}

/* A context has ended, and blocks with it; which is not known, so none counts as untouched any
 * more. */
static inline void flw_audit_end_context(bool is_over)
{
    if (is_over && flw_audit_is_on()) {
        flw_audit_touch_all(FLW_AUDIT_OTHER);
    }
}

/* Somebody outside of this process, or unseen here, may use the block from now on. */
static inline void flw_audit_expose(CUdeviceptr pointer)
{
    if (flw_audit_is_on()) {
        flw_audit_touch(pointer);
    }
}

#endif
