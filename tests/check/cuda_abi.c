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
