/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of what reads or writes device memory and fills none: copies, writes of streams,
 * graph launches, the launches of old. They tell the audit where one is on, and pass the call through.
 * Does not: lend memory, or change a call.
 */
#include <string.h>

#include "preload/audit/audit.h"
#include "preload/hooks.h"
#include "preload/real.h"

/* sizeof(CUDA_MEMCPY2D), and of both of 3D: the driver's interface fixes them. Their members are not
 * told apart: any word that is an address in a block counts as one. */
#define COPY_2D_BYTES 128
#define COPY_3D_BYTES 200

static void touch(CUdeviceptr pointer)
{
    if (flw_audit_is_on()) {
        flw_audit_touch(pointer);
    }
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

static void touch_list(const CUdeviceptr *pointers, size_t count)
{
    for (size_t i = 0; pointers != NULL && flw_audit_is_on() && i < count; i++) {
        flw_audit_touch(pointers[i]);
    }
}

CUresult flw_hook_cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpy(to, from, bytes);
}

CUresult flw_hook_cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpy_ptds(to, from, bytes);
}

CUresult flw_hook_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpyAsync(to, from, bytes, stream);
}

CUresult flw_hook_cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                     CUstream stream)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpyAsync_ptsz(to, from, bytes, stream);
}

CUresult flw_hook_cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                               CUcontext from_context, size_t bytes)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpyPeer(to, to_context, from, from_context, bytes);
}

CUresult flw_hook_cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                    CUcontext from_context, size_t bytes)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpyPeer_ptds(to, to_context, from, from_context, bytes);
}

CUresult flw_hook_cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                    CUcontext from_context, size_t bytes, CUstream stream)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream);
}

CUresult flw_hook_cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                         CUcontext from_context, size_t bytes, CUstream stream)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpyPeerAsync_ptsz(to, to_context, from, from_context, bytes, stream);
}

CUresult flw_hook_cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    touch(to);
    return flw_real.cuMemcpyHtoD_v2(to, from, bytes);
}

CUresult flw_hook_cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t bytes)
{
    touch(to);
    return flw_real.cuMemcpyHtoD_v2_ptds(to, from, bytes);
}

CUresult flw_hook_cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                                       CUstream stream)
{
    touch(to);
    return flw_real.cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}

CUresult flw_hook_cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void *from, size_t bytes,
                                            CUstream stream)
{
    touch(to);
    return flw_real.cuMemcpyHtoDAsync_v2_ptsz(to, from, bytes, stream);
}

CUresult flw_hook_cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    touch(from);
    return flw_real.cuMemcpyDtoH_v2(to, from, bytes);
}

CUresult flw_hook_cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes)
{
    touch(from);
    return flw_real.cuMemcpyDtoH_v2_ptds(to, from, bytes);
}

CUresult flw_hook_cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    touch(from);
    return flw_real.cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}

CUresult flw_hook_cuMemcpyDtoHAsync_v2_ptsz(void *to, CUdeviceptr from, size_t bytes,
                                            CUstream stream)
{
    touch(from);
    return flw_real.cuMemcpyDtoHAsync_v2_ptsz(to, from, bytes, stream);
}

CUresult flw_hook_cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpyDtoD_v2(to, from, bytes);
}

CUresult flw_hook_cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpyDtoD_v2_ptds(to, from, bytes);
}

CUresult flw_hook_cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                       CUstream stream)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

CUresult flw_hook_cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                            CUstream stream)
{
    touch(to);
    touch(from);
    return flw_real.cuMemcpyDtoDAsync_v2_ptsz(to, from, bytes, stream);
}

CUresult flw_hook_cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes)
{
    touch(from);
    return flw_real.cuMemcpyDtoA_v2(to, offset, from, bytes);
}

CUresult flw_hook_cuMemcpyDtoA_v2_ptds(CUarray to, size_t offset, CUdeviceptr from, size_t bytes)
{
    touch(from);
    return flw_real.cuMemcpyDtoA_v2_ptds(to, offset, from, bytes);
}

CUresult flw_hook_cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes)
{
    touch(to);
    return flw_real.cuMemcpyAtoD_v2(to, from, offset, bytes);
}

CUresult flw_hook_cuMemcpyAtoD_v2_ptds(CUdeviceptr to, CUarray from, size_t offset, size_t bytes)
{
    touch(to);
    return flw_real.cuMemcpyAtoD_v2_ptds(to, from, offset, bytes);
}

CUresult flw_hook_cuMemcpy2D_v2(const struct CUDA_MEMCPY2D_st *copy)
{
    touch_struct(copy, COPY_2D_BYTES);
    return flw_real.cuMemcpy2D_v2(copy);
}

CUresult flw_hook_cuMemcpy2D_v2_ptds(const struct CUDA_MEMCPY2D_st *copy)
{
    touch_struct(copy, COPY_2D_BYTES);
    return flw_real.cuMemcpy2D_v2_ptds(copy);
}

CUresult flw_hook_cuMemcpy2DUnaligned_v2(const struct CUDA_MEMCPY2D_st *copy)
{
    touch_struct(copy, COPY_2D_BYTES);
    return flw_real.cuMemcpy2DUnaligned_v2(copy);
}

CUresult flw_hook_cuMemcpy2DUnaligned_v2_ptds(const struct CUDA_MEMCPY2D_st *copy)
{
    touch_struct(copy, COPY_2D_BYTES);
    return flw_real.cuMemcpy2DUnaligned_v2_ptds(copy);
}

CUresult flw_hook_cuMemcpy2DAsync_v2(const struct CUDA_MEMCPY2D_st *copy, CUstream stream)
{
    touch_struct(copy, COPY_2D_BYTES);
    return flw_real.cuMemcpy2DAsync_v2(copy, stream);
}

CUresult flw_hook_cuMemcpy2DAsync_v2_ptsz(const struct CUDA_MEMCPY2D_st *copy, CUstream stream)
{
    touch_struct(copy, COPY_2D_BYTES);
    return flw_real.cuMemcpy2DAsync_v2_ptsz(copy, stream);
}

CUresult flw_hook_cuMemcpy3D_v2(const struct CUDA_MEMCPY3D_st *copy)
{
    touch_struct(copy, COPY_3D_BYTES);
    return flw_real.cuMemcpy3D_v2(copy);
}

CUresult flw_hook_cuMemcpy3D_v2_ptds(const struct CUDA_MEMCPY3D_st *copy)
{
    touch_struct(copy, COPY_3D_BYTES);
    return flw_real.cuMemcpy3D_v2_ptds(copy);
}

CUresult flw_hook_cuMemcpy3DAsync_v2(const struct CUDA_MEMCPY3D_st *copy, CUstream stream)
{
    touch_struct(copy, COPY_3D_BYTES);
    return flw_real.cuMemcpy3DAsync_v2(copy, stream);
}

CUresult flw_hook_cuMemcpy3DAsync_v2_ptsz(const struct CUDA_MEMCPY3D_st *copy, CUstream stream)
{
    touch_struct(copy, COPY_3D_BYTES);
    return flw_real.cuMemcpy3DAsync_v2_ptsz(copy, stream);
}

CUresult flw_hook_cuMemcpy3DPeer(const struct CUDA_MEMCPY3D_PEER_st *copy)
{
    touch_struct(copy, COPY_3D_BYTES);
    return flw_real.cuMemcpy3DPeer(copy);
}

CUresult flw_hook_cuMemcpy3DPeer_ptds(const struct CUDA_MEMCPY3D_PEER_st *copy)
{
    touch_struct(copy, COPY_3D_BYTES);
    return flw_real.cuMemcpy3DPeer_ptds(copy);
}

CUresult flw_hook_cuMemcpy3DPeerAsync(const struct CUDA_MEMCPY3D_PEER_st *copy, CUstream stream)
{
    touch_struct(copy, COPY_3D_BYTES);
    return flw_real.cuMemcpy3DPeerAsync(copy, stream);
}

CUresult flw_hook_cuMemcpy3DPeerAsync_ptsz(const struct CUDA_MEMCPY3D_PEER_st *copy,
                                           CUstream stream)
{
    touch_struct(copy, COPY_3D_BYTES);
    return flw_real.cuMemcpy3DPeerAsync_ptsz(copy, stream);
}

CUresult flw_hook_cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                     size_t count, struct CUmemcpyAttributes_st *attributes,
                                     size_t *attribute_indexes, size_t attribute_count,
                                     size_t *failed, CUstream stream)
{
    touch_list(to, count);
    touch_list(from, count);
    return flw_real.cuMemcpyBatchAsync(to, from, bytes, count, attributes, attribute_indexes,
                                       attribute_count, failed, stream);
}

CUresult flw_hook_cuMemcpyBatchAsync_ptsz(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                          size_t count, struct CUmemcpyAttributes_st *attributes,
                                          size_t *attribute_indexes, size_t attribute_count,
                                          size_t *failed, CUstream stream)
{
    touch_list(to, count);
    touch_list(from, count);
    return flw_real.cuMemcpyBatchAsync_ptsz(to, from, bytes, count, attributes, attribute_indexes,
                                            attribute_count, failed, stream);
}

CUresult flw_hook_cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                        size_t count, struct CUmemcpyAttributes_st *attributes,
                                        size_t *attribute_indexes, size_t attribute_count,
                                        CUstream stream)
{
    touch_list(to, count);
    touch_list(from, count);
    return flw_real.cuMemcpyBatchAsync_v2(to, from, bytes, count, attributes, attribute_indexes,
                                          attribute_count, stream);
}

CUresult flw_hook_cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                             size_t count, struct CUmemcpyAttributes_st *attributes,
                                             size_t *attribute_indexes, size_t attribute_count,
                                             CUstream stream)
{
    touch_list(to, count);
    touch_list(from, count);
    return flw_real.cuMemcpyBatchAsync_v2_ptsz(to, from, bytes, count, attributes,
                                               attribute_indexes, attribute_count, stream);
}

CUresult flw_hook_cuMemcpy3DBatchAsync(size_t count, struct CUDA_MEMCPY3D_BATCH_OP_st *copies,
                                       size_t *failed, unsigned long long flags, CUstream stream)
{
    touch_all(FLW_AUDIT_OTHER);
    return flw_real.cuMemcpy3DBatchAsync(count, copies, failed, flags, stream);
}

CUresult flw_hook_cuMemcpy3DBatchAsync_ptsz(size_t count, struct CUDA_MEMCPY3D_BATCH_OP_st *copies,
                                            size_t *failed, unsigned long long flags,
                                            CUstream stream)
{
    touch_all(FLW_AUDIT_OTHER);
    return flw_real.cuMemcpy3DBatchAsync_ptsz(count, copies, failed, flags, stream);
}

CUresult flw_hook_cuMemcpy3DBatchAsync_v2(size_t count, struct CUDA_MEMCPY3D_BATCH_OP_st *copies,
                                          unsigned long long flags, CUstream stream)
{
    touch_all(FLW_AUDIT_OTHER);
    return flw_real.cuMemcpy3DBatchAsync_v2(count, copies, flags, stream);
}

CUresult flw_hook_cuMemcpy3DBatchAsync_v2_ptsz(size_t count,
                                               struct CUDA_MEMCPY3D_BATCH_OP_st *copies,
                                               unsigned long long flags, CUstream stream)
{
    touch_all(FLW_AUDIT_OTHER);
    return flw_real.cuMemcpy3DBatchAsync_v2_ptsz(count, copies, flags, stream);
}

CUresult flw_hook_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr pointer, cuuint32_t value,
                                          unsigned flags)
{
    touch(pointer);
    return flw_real.cuStreamWriteValue32_v2(stream, pointer, value, flags);
}

CUresult flw_hook_cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr pointer,
                                               cuuint32_t value, unsigned flags)
{
    touch(pointer);
    return flw_real.cuStreamWriteValue32_v2_ptsz(stream, pointer, value, flags);
}

CUresult flw_hook_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr pointer, cuuint64_t value,
                                          unsigned flags)
{
    touch(pointer);
    return flw_real.cuStreamWriteValue64_v2(stream, pointer, value, flags);
}

CUresult flw_hook_cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr pointer,
                                               cuuint64_t value, unsigned flags)
{
    touch(pointer);
    return flw_real.cuStreamWriteValue64_v2_ptsz(stream, pointer, value, flags);
}

CUresult flw_hook_cuStreamBatchMemOp_v2(CUstream stream, unsigned count,
                                        union CUstreamBatchMemOpParams_union *operations,
                                        unsigned flags)
{
    touch_all(FLW_AUDIT_OTHER);
    return flw_real.cuStreamBatchMemOp_v2(stream, count, operations, flags);
}

CUresult flw_hook_cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned count,
                                             union CUstreamBatchMemOpParams_union *operations,
                                             unsigned flags)
{
    touch_all(FLW_AUDIT_OTHER);
    return flw_real.cuStreamBatchMemOp_v2_ptsz(stream, count, operations, flags);
}

CUresult flw_hook_cuGraphLaunch(CUgraphExec graph, CUstream stream)
{
    touch_all(FLW_AUDIT_GRAPH);
    return flw_real.cuGraphLaunch(graph, stream);
}

CUresult flw_hook_cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream)
{
    touch_all(FLW_AUDIT_GRAPH);
    return flw_real.cuGraphLaunch_ptsz(graph, stream);
}

CUresult flw_hook_cuLaunchCooperativeKernelMultiDevice(struct CUDA_LAUNCH_PARAMS_st *launches,
                                                       unsigned count, unsigned flags)
{
    touch_all(FLW_AUDIT_OTHER);
    return flw_real.cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
}

CUresult flw_hook_cuLaunch(CUfunction function)
{
    touch_all(FLW_AUDIT_OTHER);
    return flw_real.cuLaunch(function);
}

CUresult flw_hook_cuLaunchGrid(CUfunction function, int width, int height)
{
    touch_all(FLW_AUDIT_OTHER);
    return flw_real.cuLaunchGrid(function, width, height);
}

CUresult flw_hook_cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    touch_all(FLW_AUDIT_OTHER);
    return flw_real.cuLaunchGridAsync(function, width, height, stream);
}
