/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a device for tests of allocator models: a driver table with so many bytes of memory and addresses that only
 * rise, and the count of reserved ranges.
 * Does not: check accesses; the simulated driver does.
 */
#ifndef FLW_TEST_FAKE_DEVICE_H
#define FLW_TEST_FAKE_DEVICE_H

#include "base/bits.h"

#include "common/replay_device.h"

#define FAKE_SLOT  (1ull << 36) /* bytes of addresses of an allocation or a range */
#define FAKE_SLOTS 65536

static uint64_t fake_room_bytes, fake_region_count;
static size_t fake_slot_count;
static uint64_t fake_sizes[FAKE_SLOTS]; /* of each slot; 0: free */

static CUresult fake_reserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr at,
                             unsigned long long flags)
{
    (void)alignment;
    assert_true(bytes != 0 && at == 0 && flags == 0 && fake_slot_count < FAKE_SLOTS);
    fake_sizes[fake_slot_count++] = bytes;
    fake_region_count++;
    *pointer = fake_slot_count * FAKE_SLOT;
    return CUDA_SUCCESS;
}

static CUresult fake_unreserve(CUdeviceptr pointer, size_t bytes)
{
    uint64_t *slot = &fake_sizes[pointer / FAKE_SLOT - 1];
    assert_int_equal(pointer % FAKE_SLOT, 0);
    assert_int_equal(*slot, bytes);
    *slot = 0;
    fake_region_count--;
    return CUDA_SUCCESS;
}

/* The size serves as the handle. */
static CUresult fake_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)properties, (void)flags;
    if (bytes > fake_room_bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_room_bytes -= bytes;
    *handle = bytes;
    return CUDA_SUCCESS;
}

static CUresult fake_release(CUmemGenericAllocationHandle handle)
{
    fake_room_bytes += handle;
    return CUDA_SUCCESS;
}

static CUresult fake_map(CUdeviceptr pointer, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    (void)offset, (void)flags;
    assert_int_equal(handle, bytes);
    assert_int_equal(pointer % FAKE_SLOT % bytes, 0);
    assert_true(pointer % FAKE_SLOT + bytes <= fake_sizes[pointer / FAKE_SLOT - 1]);
    return CUDA_SUCCESS;
}

static CUresult fake_unmap(CUdeviceptr pointer, size_t bytes)
{
    return fake_map(pointer, bytes, 0, bytes, 0);
}

static CUresult fake_allow(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access,
                           size_t count)
{
    (void)access;
    assert_int_equal(count, 1);
    assert_true(pointer % FAKE_SLOT + bytes <= fake_sizes[pointer / FAKE_SLOT - 1]);
    return CUDA_SUCCESS;
}

static CUresult fake_alloc(CUdeviceptr *pointer, size_t bytes)
{
    CUmemGenericAllocationHandle handle;
    CUresult result = fake_create(&handle, bytes, NULL, 0);
    return result == CUDA_SUCCESS ? fake_reserve(pointer, bytes, 0, 0, 0) : result;
}

static CUresult fake_free(CUdeviceptr pointer)
{
    uint64_t bytes = fake_sizes[pointer / FAKE_SLOT - 1];
    assert_int_not_equal(bytes, 0);
    fake_release(bytes);
    return fake_unreserve(pointer, bytes);
}

static CUresult fake_synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_SUCCESS;
}

/* Return a new device of `room_bytes`; the former one is gone. */
static inline const struct flw_device *fake_device(uint64_t room_bytes)
{
    static CUstream streams[4];
    static const struct flw_device device = {.driver = {.cuMemAlloc_v2 = fake_alloc,
                                                        .cuMemFree_v2 = fake_free,
                                                        .cuMemAddressReserve = fake_reserve,
                                                        .cuMemAddressFree = fake_unreserve,
                                                        .cuMemCreate = fake_create,
                                                        .cuMemRelease = fake_release,
                                                        .cuMemMap = fake_map,
                                                        .cuMemUnmap = fake_unmap,
                                                        .cuMemSetAccess = fake_allow,
                                                        .cuStreamSynchronize = fake_synchronize},
                                             .streams = streams};
    fake_room_bytes = room_bytes;
    fake_region_count = fake_slot_count = 0;
    return &device;
}

#endif
