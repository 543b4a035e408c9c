/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the reports of allocating and freeing wrappers to the audit. Without an audit, one load
 * and a branch.
 * Does not: distinguish blocks of the pool and of the driver. */
#ifndef FLW_PRELOAD_AUDIT_ALLOC_H
#define FLW_PRELOAD_AUDIT_ALLOC_H

#include "driver/driver_types.h"
#include "preload/audit/audit.h"

/* Report an allocation's result, and return it. */
static inline CUresult flw_audit_heed(CUresult result, const CUdeviceptr *pointer, uint64_t bytes)
{
    if (result == CUDA_SUCCESS && pointer != NULL && flw_audit_is_on()) {
        flw_audit_alloc(*pointer, bytes);
    }
    return result;
}

/* Report a free, before the call: afterwards the address may belong to another block. */
static inline void flw_audit_forget(CUdeviceptr pointer)
{
    if (flw_audit_is_on()) {
        flw_audit_free(pointer);
    }
}

/* After a context with unknown blocks has ended: count no block as untouched any more. */
static inline void flw_audit_end_context(bool is_over)
{
    if (is_over && flw_audit_is_on()) {
        flw_audit_touch_all(FLW_AUDIT_OTHER);
    }
}

/* Report that another process, or unseen code, may use the block from now on. */
static inline void flw_audit_expose(CUdeviceptr pointer)
{
    if (flw_audit_is_on()) {
        flw_audit_touch(pointer);
    }
}

#endif
