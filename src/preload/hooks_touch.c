/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of calls that access device memory without filling it: copies, stream writes,
 * graph launches, legacy launches. They report to the audit if one is on, and pass the call
 * through.
 * Does not: allocate memory, or change a call. */
#include <string.h>

#include "preload/audit/audit.h"
#include "preload/hooks.h"
#include "preload/real.h"

/* sizeof(CUDA_MEMCPY2D), and of both 3D structs: the driver's interface fixes them. Their members
 * are not distinguished: any word that is an address in a block counts as one. */
#define COPY_2D_BYTES 128
#define COPY_3D_BYTES 200

static void touch(CUdeviceptr pointer)
{
    if (flw_audit_is_on()) {
        flw_audit_touch(pointer);
    }
}

static void touch_ends(CUdeviceptr to, CUdeviceptr from)
{
    touch(to);
    touch(from);
}

static void touch_all(enum flw_audit_hidden what)
{
    if (flw_audit_is_on()) {
        flw_audit_touch_all(what);
    }
}

static void touch_struct(const void *memory, size_t bytes)
{
    if (memory == NULL || !flw_audit_is_on()) {
        return;
    }
    for (size_t at = 0; at + sizeof(CUdeviceptr) <= bytes; at += sizeof(CUdeviceptr)) {
        CUdeviceptr word;
        memcpy(&word, (const unsigned char *)memory + at, sizeof word);
        flw_audit_touch(word);
    }
}

static void touch_lists(const CUdeviceptr *to, const CUdeviceptr *from, size_t count)
{
    for (size_t i = 0; to != NULL && flw_audit_is_on() && i < count; i++) {
        flw_audit_touch(to[i]);
    }
    for (size_t i = 0; from != NULL && flw_audit_is_on() && i < count; i++) {
        flw_audit_touch(from[i]);
    }
}

/* ---- the memory that each accesses, by base name, in terms of the parameters in the list */

#define TOUCH_cuMemcpy                             touch_ends(to, from)
#define TOUCH_cuMemcpyAsync                        touch_ends(to, from)
#define TOUCH_cuMemcpyPeer                         touch_ends(to, from)
#define TOUCH_cuMemcpyPeerAsync                    touch_ends(to, from)
#define TOUCH_cuMemcpyDtoD                         touch_ends(to, from)
#define TOUCH_cuMemcpyDtoDAsync                    touch_ends(to, from)
#define TOUCH_cuMemcpyHtoD                         touch(to)
#define TOUCH_cuMemcpyHtoDAsync                    touch(to)
#define TOUCH_cuMemcpyAtoD                         touch(to)
#define TOUCH_cuMemcpyDtoH                         touch(from)
#define TOUCH_cuMemcpyDtoHAsync                    touch(from)
#define TOUCH_cuMemcpyDtoA                         touch(from)
#define TOUCH_cuMemcpy2D                           touch_struct(copy, COPY_2D_BYTES)
#define TOUCH_cuMemcpy2DUnaligned                  touch_struct(copy, COPY_2D_BYTES)
#define TOUCH_cuMemcpy2DAsync                      touch_struct(copy, COPY_2D_BYTES)
#define TOUCH_cuMemcpy3D                           touch_struct(copy, COPY_3D_BYTES)
#define TOUCH_cuMemcpy3DAsync                      touch_struct(copy, COPY_3D_BYTES)
#define TOUCH_cuMemcpy3DPeer                       touch_struct(copy, COPY_3D_BYTES)
#define TOUCH_cuMemcpy3DPeerAsync                  touch_struct(copy, COPY_3D_BYTES)
#define TOUCH_cuMemcpyBatchAsync                   touch_lists(to, from, count)
#define TOUCH_cuMemcpy3DBatchAsync                 touch_all(FLW_AUDIT_OTHER)
#define TOUCH_cuStreamWriteValue32                 touch(pointer)
#define TOUCH_cuStreamWriteValue64                 touch(pointer)
#define TOUCH_cuStreamBatchMemOp                   touch_all(FLW_AUDIT_OTHER)
#define TOUCH_cuGraphLaunch                        touch_all(FLW_AUDIT_GRAPH)
#define TOUCH_cuLaunch                             touch_all(FLW_AUDIT_OTHER)
#define TOUCH_cuLaunchGrid                         touch_all(FLW_AUDIT_OTHER)
#define TOUCH_cuLaunchGridAsync                    touch_all(FLW_AUDIT_OTHER)
#define TOUCH_cuLaunchCooperativeKernelMultiDevice touch_all(FLW_AUDIT_OTHER)

#define WRAP(symbol, base, since, parameters, arguments) \
    CUresult flw_hook_##symbol parameters                \
    {                                                    \
        TOUCH_##base;                                    \
        return flw_real.symbol arguments;                \
    }
FLW_HOOKS_TOUCH(WRAP)
#undef WRAP
