/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a device for tests of allocator models: so many bytes, addresses that only rise, and a count
 * of what is given. Does not: check accesses; the simulated driver does.
 */
#ifndef FLW_TEST_FAKE_DEVICE_H
#define FLW_TEST_FAKE_DEVICE_H

#include "base/bits.h"

#include "policies/pytorch_model.h"

#define FAKE_BASE (1ull << 40)

struct fake_device {
    uint64_t room_bytes;
    uint64_t next_address;
    uint64_t region_count; /* ranges of addresses that are reserved */
};

static inline struct fake_device fake_device(uint64_t room_bytes)
{
    return (struct fake_device){.room_bytes = room_bytes, .next_address = FAKE_BASE};
}

static inline void fake_place(struct fake_device *device, uint64_t bytes,
                              struct flw_segheap_place *out_place)
{
    out_place->address = device->next_address;
    out_place->device_address = device->next_address;
    device->next_address += flw_align_up(bytes, 2 * FLW_MIB);
}

static inline bool fake_alloc(void *context, uint64_t size_bytes,
                              struct flw_segheap_place *out_place)
{
    struct fake_device *device = context;
    if (size_bytes > device->room_bytes) {
        return false;
    }
    device->room_bytes -= size_bytes;
    fake_place(device, size_bytes, out_place);
    return true;
}

static inline void fake_free(void *context, uint64_t device_address, uint64_t size_bytes)
{
    struct fake_device *device = context;
    assert_true(device_address >= FAKE_BASE && device_address < device->next_address);
    device->room_bytes += size_bytes;
}

static inline bool fake_reserve(void *context, uint64_t size_bytes, uint64_t granule_bytes,
                                struct flw_segheap_place *out_place)
{
    struct fake_device *device = context;
    assert_int_equal(size_bytes % granule_bytes, 0);
    device->region_count++;
    fake_place(device, size_bytes, out_place);
    return true;
}

static inline void fake_unreserve(void *context, uint64_t device_address)
{
    struct fake_device *device = context;
    assert_true(device_address >= FAKE_BASE && device_address < device->next_address);
    device->region_count--;
}

static inline void fake_check_range(const struct flw_pytorch_range *range)
{
    uint64_t offset = range->address - range->segment_address;
    assert_int_equal(offset % range->granule_bytes, 0);
    assert_int_equal(range->size_bytes % range->granule_bytes, 0);
    assert_true(range->size_bytes != 0 && offset + range->size_bytes <= range->segment_bytes);
}

static inline bool fake_map(void *context, const struct flw_pytorch_range *range)
{
    struct fake_device *device = context;
    fake_check_range(range);
    if (range->size_bytes > device->room_bytes) {
        return false;
    }
    device->room_bytes -= range->size_bytes;
    return true;
}

static inline void fake_unmap(void *context, const struct flw_pytorch_range *range)
{
    struct fake_device *device = context;
    fake_check_range(range);
    device->room_bytes += range->size_bytes;
}

static inline struct flw_pytorch_source fake_source(struct fake_device *device)
{
    return (struct flw_pytorch_source){.alloc = fake_alloc,
                                       .free = fake_free,
                                       .reserve = fake_reserve,
                                       .map = fake_map,
                                       .unmap = fake_unmap,
                                       .unreserve = fake_unreserve,
                                       .context = device};
}

#endif
