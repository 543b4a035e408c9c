/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a program that prints every value, size and offset of the driver's binary interface that
 * Fallow uses. cuda_abi.sh builds it with our header and with the toolkit's and compares the
 * output.
 * Does not: contain the expected numbers. PROBE_LIST, the list of names, is generated from our
 * header. */
#if defined(PROBE_TOOLKIT)
#include <cuda.h>
#else
#include "driver/cuda_abi.h"
#endif

#include <stddef.h>
#include <stdio.h>

#define VALUE(name)           printf("value %s %lld\n", #name, (long long)(name));
#define TYPE(name)            printf("type %s %zu %zu\n", #name, sizeof(name), _Alignof(name));
#define MEMBER(struct_, path) MEMBER_SIZE(struct_, path, ((struct_ *)0)->path)
#define MEMBER_SIZE(struct_, path, member) \
    printf("member %s.%s %zu %zu\n", #struct_, #path, offsetof(struct_, path), sizeof(member));

/* Distinguish types with the right size but the wrong sign or indirection. */
#define KIND(name) \
    printf("kind %s %s\n", #name, (name)(-1) < (name)1 ? "signed" : "unsigned or pointer");

int main(void)
{
#include PROBE_LIST
    KIND(CUdevice)
    KIND(CUdeviceptr)
    KIND(CUmemGenericAllocationHandle)
    KIND(cuuint64_t)
    printf("value CU_STREAM_LEGACY %zu\n", (size_t)CU_STREAM_LEGACY);
    printf("value CU_STREAM_PER_THREAD %zu\n", (size_t)CU_STREAM_PER_THREAD);
    MEMBER(CUmemLocation, type)
    MEMBER(CUmemLocation, id)
    MEMBER(CUmemAllocationProp, type)
    MEMBER(CUmemAllocationProp, requestedHandleTypes)
    MEMBER(CUmemAllocationProp, location)
    MEMBER(CUmemAllocationProp, win32HandleMetaData)
    MEMBER(CUmemAllocationProp, allocFlags.compressionType)
    MEMBER(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable)
    MEMBER(CUmemAllocationProp, allocFlags.usage)
    MEMBER(CUmemAllocationProp, allocFlags.reserved)
    MEMBER(CUmemAccessDesc, location)
    MEMBER(CUmemAccessDesc, flags)
    MEMBER(CUmemFabricHandle, data)
    MEMBER(CUipcMemHandle, reserved)
    MEMBER(CUDA_GRAPH_INSTANTIATE_PARAMS, flags)
    MEMBER(CUDA_GRAPH_INSTANTIATE_PARAMS, hUploadStream)
    MEMBER(CUDA_GRAPH_INSTANTIATE_PARAMS, hErrNode_out)
    MEMBER(CUDA_GRAPH_INSTANTIATE_PARAMS, result_out)
    MEMBER(CUDA_MEMCPY2D, srcXInBytes)
    MEMBER(CUDA_MEMCPY2D, srcY)
    MEMBER(CUDA_MEMCPY2D, srcMemoryType)
    MEMBER(CUDA_MEMCPY2D, srcHost)
    MEMBER(CUDA_MEMCPY2D, srcDevice)
    MEMBER(CUDA_MEMCPY2D, srcArray)
    MEMBER(CUDA_MEMCPY2D, srcPitch)
    MEMBER(CUDA_MEMCPY2D, dstXInBytes)
    MEMBER(CUDA_MEMCPY2D, dstY)
    MEMBER(CUDA_MEMCPY2D, dstMemoryType)
    MEMBER(CUDA_MEMCPY2D, dstHost)
    MEMBER(CUDA_MEMCPY2D, dstDevice)
    MEMBER(CUDA_MEMCPY2D, dstArray)
    MEMBER(CUDA_MEMCPY2D, dstPitch)
    MEMBER(CUDA_MEMCPY2D, WidthInBytes)
    MEMBER(CUDA_MEMCPY2D, Height)
    MEMBER(CUDA_MEMCPY3D, srcXInBytes)
    MEMBER(CUDA_MEMCPY3D, srcY)
    MEMBER(CUDA_MEMCPY3D, srcZ)
    MEMBER(CUDA_MEMCPY3D, srcLOD)
    MEMBER(CUDA_MEMCPY3D, srcMemoryType)
    MEMBER(CUDA_MEMCPY3D, srcHost)
    MEMBER(CUDA_MEMCPY3D, srcDevice)
    MEMBER(CUDA_MEMCPY3D, srcArray)
    MEMBER(CUDA_MEMCPY3D, reserved0)
    MEMBER(CUDA_MEMCPY3D, srcPitch)
    MEMBER(CUDA_MEMCPY3D, srcHeight)
    MEMBER(CUDA_MEMCPY3D, dstXInBytes)
    MEMBER(CUDA_MEMCPY3D, dstY)
    MEMBER(CUDA_MEMCPY3D, dstZ)
    MEMBER(CUDA_MEMCPY3D, dstLOD)
    MEMBER(CUDA_MEMCPY3D, dstMemoryType)
    MEMBER(CUDA_MEMCPY3D, dstHost)
    MEMBER(CUDA_MEMCPY3D, dstDevice)
    MEMBER(CUDA_MEMCPY3D, dstArray)
    MEMBER(CUDA_MEMCPY3D, reserved1)
    MEMBER(CUDA_MEMCPY3D, dstPitch)
    MEMBER(CUDA_MEMCPY3D, dstHeight)
    MEMBER(CUDA_MEMCPY3D, WidthInBytes)
    MEMBER(CUDA_MEMCPY3D, Height)
    MEMBER(CUDA_MEMCPY3D, Depth)
    MEMBER(CUctxCreateParams, execAffinityParams)
    MEMBER(CUctxCreateParams, numExecAffinityParams)
    MEMBER(CUctxCreateParams, cigParams)
    MEMBER(CUlaunchConfig, gridDimX)
    MEMBER(CUlaunchConfig, gridDimY)
    MEMBER(CUlaunchConfig, gridDimZ)
    MEMBER(CUlaunchConfig, blockDimX)
    MEMBER(CUlaunchConfig, blockDimY)
    MEMBER(CUlaunchConfig, blockDimZ)
    MEMBER(CUlaunchConfig, sharedMemBytes)
    MEMBER(CUlaunchConfig, hStream)
    MEMBER(CUlaunchConfig, attrs)
    MEMBER(CUlaunchConfig, numAttrs)
    MEMBER(CUmemPoolProps, allocType)
    MEMBER(CUmemPoolProps, handleTypes)
    MEMBER(CUmemPoolProps, location)
    MEMBER(CUmemPoolProps, win32SecurityAttributes)
    MEMBER(CUmemPoolProps, maxSize)
    MEMBER(CUmemPoolProps, usage)
    MEMBER(CUmemPoolProps, reserved)
    return 0;
}
