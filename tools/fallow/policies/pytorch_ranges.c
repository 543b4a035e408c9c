/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/pytorch_ranges.h"

#include "common/tool_host.h"

struct flw_pytorch_region {
    struct flw_pytorch_region *next;
    CUdeviceptr address;
    uint64_t size_bytes;
    uint64_t granule_bytes;
    CUmemGenericAllocationHandle *handles; /* a granule */
};

static size_t count_of(const struct flw_pytorch_region *region)
{
    return region->size_bytes / region->granule_bytes;
}

static int location_of(const struct flw_device *device)
{
    return device->is_sim ? 0 : device->ordinal;
}

static struct flw_pytorch_region *find(const struct flw_pytorch_ranges *ranges, uint64_t address)
{
    struct flw_pytorch_region *region = ranges->regions;
    while (region != NULL && (uint64_t)region->address != address) {
        region = region->next;
    }
    return region;
}

bool flw_pytorch_ranges_are_supported(const struct flw_device *device)
{
    const struct flw_driver *driver = &device->driver;
    return driver->cuMemAddressReserve != NULL && driver->cuMemAddressFree != NULL &&
           driver->cuMemCreate != NULL && driver->cuMemRelease != NULL &&
           driver->cuMemMap != NULL && driver->cuMemUnmap != NULL && driver->cuMemSetAccess != NULL;
}

bool flw_pytorch_ranges_reserve(struct flw_pytorch_ranges *ranges, uint64_t size_bytes,
                                uint64_t granule_bytes, uint64_t *out_address)
{
    struct flw_pytorch_region *region = flw_host_alloc(1, sizeof *region);
    region->size_bytes = size_bytes;
    region->granule_bytes = granule_bytes;
    region->handles = flw_host_alloc(count_of(region), sizeof *region->handles);
    ranges->call_count++;
    if (ranges->device->driver.cuMemAddressReserve(&region->address, size_bytes, 0, 0, 0) !=
        CUDA_SUCCESS) {
        flw_host_free(region->handles);
        flw_host_free(region);
        return false;
    }
    region->next = ranges->regions;
    ranges->regions = region;
    *out_address = (uint64_t)region->address;
    return true;
}

void flw_pytorch_ranges_unreserve(struct flw_pytorch_ranges *ranges, uint64_t address)
{
    struct flw_pytorch_region **link = &ranges->regions;
    while (*link != NULL && (uint64_t)(*link)->address != address) {
        link = &(*link)->next;
    }
    struct flw_pytorch_region *region = *link;
    if (region == NULL) {
        return;
    }
    *link = region->next;
    ranges->call_count++;
    ranges->device->driver.cuMemAddressFree(region->address, region->size_bytes);
    flw_host_free(region->handles);
    flw_host_free(region);
}

/* The first `count` granules from `first` on lose their memory. */
static void drop_granules(struct flw_pytorch_ranges *ranges, struct flw_pytorch_region *region,
                          size_t first, size_t count)
{
    const struct flw_driver *driver = &ranges->device->driver;
    for (size_t i = first; i < first + count; i++) {
        ranges->call_count += 2;
        driver->cuMemUnmap(region->address + i * region->granule_bytes, region->granule_bytes);
        driver->cuMemRelease(region->handles[i]);
        region->handles[i] = 0;
    }
}

static bool map_granule(struct flw_pytorch_ranges *ranges, struct flw_pytorch_region *region,
                        size_t i)
{
    const struct flw_driver *driver = &ranges->device->driver;
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = location_of(ranges->device);
    ranges->call_count++;
    if (driver->cuMemCreate(&region->handles[i], region->granule_bytes, &properties, 0) !=
        CUDA_SUCCESS) {
        return false;
    }
    ranges->call_count++;
    if (driver->cuMemMap(region->address + i * region->granule_bytes, region->granule_bytes, 0,
                         region->handles[i], 0) != CUDA_SUCCESS) {
        ranges->call_count++;
        driver->cuMemRelease(region->handles[i]);
        return false;
    }
    return true;
}

bool flw_pytorch_ranges_map(struct flw_pytorch_ranges *ranges,
                            const struct flw_pytorch_range *range)
{
    struct flw_pytorch_region *region = find(ranges, range->segment_address);
    if (region == NULL) {
        return false;
    }
    size_t first = (range->address - range->segment_address) / region->granule_bytes;
    size_t count = range->size_bytes / region->granule_bytes;
    size_t done = 0;
    while (done < count && map_granule(ranges, region, first + done)) {
        done++;
    }
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = location_of(ranges->device);
    bool is_done = done == count;
    if (is_done) {
        ranges->call_count++;
        is_done = ranges->device->driver.cuMemSetAccess(
                      (CUdeviceptr)range->address, range->size_bytes, &access, 1) == CUDA_SUCCESS;
    }
    if (!is_done) {
        drop_granules(ranges, region, first, done);
    }
    return is_done;
}

void flw_pytorch_ranges_unmap(struct flw_pytorch_ranges *ranges,
                              const struct flw_pytorch_range *range)
{
    struct flw_pytorch_region *region = find(ranges, range->segment_address);
    if (region == NULL) {
        return;
    }
    ranges->call_count++;
    ranges->device->driver.cuStreamSynchronize(ranges->device->streams[range->stream]);
    drop_granules(ranges, region, (range->address - range->segment_address) / region->granule_bytes,
                  range->size_bytes / region->granule_bytes);
}
