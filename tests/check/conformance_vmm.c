/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the cases about virtual memory management within one process: reservations, handles,
 * mappings, access. Does not: share with other processes (conformance_share.c).
 */
#define MODULE "vmm"
#include "conformance.h"

/* A handle and a reservation with nothing mapped. */
struct unmapped {
    CUdeviceptr address;
    size_t grain_bytes, reserved_bytes;
    CUmemGenericAllocationHandle handle;
};

/* False: the device has no such memory. Sizes in grains. */
static bool begin_unmapped(struct bed *b, struct unmapped *u, size_t handle_grains,
                           size_t reserved_grains)
{
    CUmemAllocationProp properties = bed_properties(b, 0);
    *u = (struct unmapped){.grain_bytes = bed_grain(b)};
    if (b->skip != NULL) {
        return false;
    }
    u->reserved_bytes = reserved_grains * u->grain_bytes;
    return OK(b->cu->cuMemCreate(&u->handle, handle_grains * u->grain_bytes, &properties, 0)) &&
           OK(b->cu->cuMemAddressReserve(&u->address, u->reserved_bytes, 0, 0, 0));
}

static void end_unmapped(struct bed *b, struct unmapped *u)
{
    OK(b->cu->cuMemAddressFree(u->address, u->reserved_bytes));
    OK(b->cu->cuMemRelease(u->handle));
}

HEADER(granularity_is_a_power_of_two,
       "This granularity can be used as a multiple for alignment, size, or address mapping")
{
    size_t minimum = bed_grain(b), recommended = 0;
    CUmemAllocationProp properties = bed_properties(b, 0);
    NEED(b->skip == NULL);
    OK(b->cu->cuMemGetAllocationGranularity(&recommended, &properties,
                                            CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    THAT((minimum & (minimum - 1)) == 0 && recommended >= minimum && recommended % minimum == 0);
}

HEADER(reserved_ranges_are_apart_and_aligned, "giving the starting address of the range in ptr")
{
    CUdeviceptr a = 0, c = 0;
    size_t grain = bed_grain(b);
    NEED(b->skip == NULL);
    OK(b->cu->cuMemAddressReserve(&a, 4 * grain, 0, 0, 0));
    OK(b->cu->cuMemAddressReserve(&c, 4 * grain, 16 * grain, 0, 0));
    THAT(a % grain == 0 && c % (16 * grain) == 0);
    THAT(a >= c + 4 * grain || c >= a + 4 * grain);
    OK(b->cu->cuMemAddressFree(a, 4 * grain));
    OK(b->cu->cuMemAddressFree(c, 4 * grain));
}

HEADER(odd_reservations_are_refused,
       "the alignment must be a power of two or zero for default alignment")
{
    CUdeviceptr a = 0;
    size_t grain = bed_grain(b);
    NEED(b->skip == NULL);
    REFUSED(b->cu->cuMemAddressReserve(&a, 0, 0, 0, 0));
    REFUSED(b->cu->cuMemAddressReserve(&a, 1000, 0, 0, 0));
    REFUSED(b->cu->cuMemAddressReserve(&a, grain, 3 * grain, 0, 0));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemAddressReserve(&a, grain, 0, 0, 1));
}

HEADER(a_wish_for_an_address_is_a_hint,
       "the driver treats it as a hint about where to place the reservation")
{
    CUdeviceptr a = 0, again = 0;
    size_t grain = bed_grain(b);
    NEED(b->skip == NULL);
    OK(b->cu->cuMemAddressReserve(&a, grain, 0, 0, 0));
    OK(b->cu->cuMemAddressReserve(&again, grain, 0, a, 0)); /* taken: elsewhere */
    THAT(again != a);
    OK(b->cu->cuMemAddressFree(a, grain));
    OK(b->cu->cuMemAddressFree(again, grain));
}

HEADER(reservation_is_freed_whole_and_once,
       "The size must match what was given to memAddressReserve")
{
    CUdeviceptr a = 0;
    size_t grain = bed_grain(b);
    NEED(b->skip == NULL);
    OK(b->cu->cuMemAddressReserve(&a, 4 * grain, 0, 0, 0));
    REFUSED(b->cu->cuMemAddressFree(a, 2 * grain));
    REFUSED(b->cu->cuMemAddressFree(a + grain, 3 * grain));
    OK(b->cu->cuMemAddressFree(a, 4 * grain));
    REFUSED(b->cu->cuMemAddressFree(a, 4 * grain));
}

HEADER(handle_sizes_are_multiples_of_the_granularity,
       "The size of this allocation must be a multiple of the the value given via")
{
    size_t grain = bed_grain(b);
    CUmemAllocationProp properties = bed_properties(b, 0), known;
    CUmemGenericAllocationHandle handle = 0;
    NEED(b->skip == NULL);
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemCreate(&handle, grain + 4096, &properties, 0));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemCreate(&handle, 0, &properties, 0));
    IS(CUDA_ERROR_INVALID_VALUE, b->cu->cuMemCreate(&handle, grain, &properties, 1));
    OK(b->cu->cuMemCreate(&handle, 2 * grain, &properties, 0));
    OK(b->cu->cuMemGetAllocationPropertiesFromHandle(&known, handle));
    THAT(known.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         known.location.type == CU_MEM_LOCATION_TYPE_DEVICE && known.location.id == b->device);
    OK(b->cu->cuMemRelease(handle));
}

HEADER(handles_beyond_the_device_are_out_of_memory,
       "The API call failed because it was unable to allocate enough memory")
{
    size_t grain = bed_grain(b), total = 0;
    CUmemAllocationProp properties = bed_properties(b, 0);
    CUmemGenericAllocationHandle handle = 0;
    NEED(b->skip == NULL);
    OK(b->cu->cuDeviceTotalMem_v2(&total, b->device));
    IS(CUDA_ERROR_OUT_OF_MEMORY,
       b->cu->cuMemCreate(&handle, total / grain * grain + 16 * grain, &properties, 0));
}

HEADER(mapping_needs_a_reservation,
       "This range must be an address reservation previously reserved with")
{
    size_t grain = bed_grain(b);
    CUmemAllocationProp properties = bed_properties(b, 0);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr a = 0;
    NEED(b->skip == NULL);
    OK(b->cu->cuMemCreate(&handle, grain, &properties, 0));
    OK(b->cu->cuMemAddressReserve(&a, grain, 0, 0, 0));
    OK(b->cu->cuMemAddressFree(a, grain));
    REFUSED(b->cu->cuMemMap(a, grain, 0, handle, 0));
    OK(b->cu->cuMemRelease(handle));
}

HEADER(only_whole_grains_are_mapped,
       "Both ptr, size, and offset must be a multiple of the value given via")
{
    struct unmapped u;
    NEED(begin_unmapped(b, &u, 1, 4));
    REFUSED(b->cu->cuMemMap(u.address + 4096, u.grain_bytes, 0, u.handle, 0));
    REFUSED(b->cu->cuMemMap(u.address, u.grain_bytes / 2, 0, u.handle, 0));
    /* more than the handle has */
    REFUSED(b->cu->cuMemMap(u.address, 2 * u.grain_bytes, 0, u.handle, 0));
    REFUSED(b->cu->cuMemMap(u.address + 3 * u.grain_bytes, 2 * u.grain_bytes, 0, u.handle, 0));
    end_unmapped(b, &u);
}

HEADER(the_offset_is_zero, "Note: currently must be zero")
{
    struct unmapped u;
    NEED(begin_unmapped(b, &u, 2, 2));
    REFUSED(b->cu->cuMemMap(u.address, u.grain_bytes, u.grain_bytes, u.handle, 0));
    end_unmapped(b, &u);
}

HEADER(a_mapped_range_is_not_mapped_again,
       "can only create mappings on VA range reservations that are not currently mapped")
{
    struct bed_mapping m;
    CUmemGenericAllocationHandle handle = 0;
    NEED(bed_map(b, &m, 2, 0));
    CUmemAllocationProp properties = bed_properties(b, 0);
    OK(b->cu->cuMemCreate(&handle, m.grain_bytes, &properties, 0));
    REFUSED(b->cu->cuMemMap(m.address + m.grain_bytes, m.grain_bytes, 0, handle, 0));
    OK(b->cu->cuMemRelease(handle));
    bed_unmap(b, &m);
}

HEADER(one_handle_shows_at_two_addresses,
       "can be mapped to the address space of calling process via")
{
    struct bed_mapping m;
    CUdeviceptr other = 0;
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    NEED(bed_map(b, &m, 1, 0));
    OK(b->cu->cuMemAddressReserve(&other, m.grain_bytes, 0, 0, 0));
    OK(b->cu->cuMemMap(other, m.grain_bytes, 0, m.handle[0], 0));
    OK(b->cu->cuMemSetAccess(other, m.grain_bytes, &access, 1));
    bed_poke(b, m.address + 64, 0xfa110);
    THAT(bed_peek(b, other + 64) == 0xfa110);
    OK(b->cu->cuMemUnmap(other, m.grain_bytes));
    OK(b->cu->cuMemAddressFree(other, m.grain_bytes));
    bed_unmap(b, &m);
}

HEADER(a_moved_handle_keeps_its_contents,
       "the address range is converted to an address reservation and can be used for a "
       "future calls to cuMemMap")
{
    struct bed_mapping m;
    CUdeviceptr other = 0;
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    NEED(bed_map(b, &m, 1, 0));
    bed_poke(b, m.address + 128, 0xc0ffee);
    OK(b->cu->cuMemAddressReserve(&other, m.grain_bytes, 0, 0, 0));
    OK(b->cu->cuMemUnmap(m.address, m.grain_bytes));
    OK(b->cu->cuMemMap(other, m.grain_bytes, 0, m.handle[0], 0));
    OK(b->cu->cuMemSetAccess(other, m.grain_bytes, &access, 1));
    THAT(bed_peek(b, other + 128) == 0xc0ffee);
    OK(b->cu->cuMemUnmap(other, m.grain_bytes));
    OK(b->cu->cuMemAddressFree(other, m.grain_bytes));
    OK(b->cu->cuMemAddressFree(m.address, m.grain_bytes));
    OK(b->cu->cuMemRelease(m.handle[0]));
}

RISKY(mappings_start_without_access, "as all mappings start with no accessibility setup")
{
    struct bed_mapping m;
    unsigned long long flags = 99;
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    NEED(bed_map(b, &m, 1, 0));
    OK(b->cu->cuMemGetAccess(&flags, &access.location, m.address));
    THAT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(b->cu->cuMemUnmap(m.address, m.grain_bytes));
    OK(b->cu->cuMemMap(m.address, m.grain_bytes, 0, m.handle[0], 0));
    OK(b->cu->cuMemGetAccess(&flags, &access.location, m.address));
    THAT(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    bed_unmap(b, &m);
}

HEADER(access_covers_a_fully_mapped_range,
       "The range must be a fully mapped address range containing all allocations")
{
    size_t grain = bed_grain(b);
    CUmemAllocationProp properties = bed_properties(b, 0);
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemGenericAllocationHandle handle[2] = {0};
    CUdeviceptr a = 0;
    NEED(b->skip == NULL);
    OK(b->cu->cuMemAddressReserve(&a, 3 * grain, 0, 0, 0));
    OK(b->cu->cuMemCreate(&handle[0], grain, &properties, 0));
    OK(b->cu->cuMemCreate(&handle[1], grain, &properties, 0));
    OK(b->cu->cuMemMap(a, grain, 0, handle[0], 0));
    OK(b->cu->cuMemMap(a + 2 * grain, grain, 0, handle[1], 0));
    REFUSED(b->cu->cuMemSetAccess(a, 3 * grain, &access, 1)); /* the hole */
    OK(b->cu->cuMemUnmap(a + 2 * grain, grain));
    OK(b->cu->cuMemMap(a + grain, grain, 0, handle[1], 0));
    OK(b->cu->cuMemSetAccess(a, 2 * grain, &access, 1)); /* two at once */
    bed_poke(b, a + grain - 2 * sizeof(uint32_t), 5);
    bed_poke(b, a + grain, 6);
    THAT(bed_peek(b, a + grain) == 6);
    OK(b->cu->cuMemUnmap(a, 2 * grain));
    OK(b->cu->cuMemAddressFree(a, 3 * grain));
    OK(b->cu->cuMemRelease(handle[0]));
    OK(b->cu->cuMemRelease(handle[1]));
}

HEADER(access_needs_a_device_that_exists,
       "Array of CUmemAccessDesc that describe how to change the")
{
    struct bed_mapping m;
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    NEED(bed_map(b, &m, 1, 0));
    access.location.id = 4711;
    REFUSED(b->cu->cuMemSetAccess(m.address, m.grain_bytes, &access, 1));
    REFUSED(b->cu->cuMemSetAccess(m.address, m.grain_bytes, NULL, 1));
    bed_unmap(b, &m);
}

HEADER(only_whole_mappings_are_unmapped, "cannot unmap a sub-range of an address range mapped")
{
    struct unmapped u;
    NEED(begin_unmapped(b, &u, 2, 2));
    OK(b->cu->cuMemMap(u.address, 2 * u.grain_bytes, 0, u.handle, 0));
    REFUSED(b->cu->cuMemUnmap(u.address, u.grain_bytes));
    REFUSED(b->cu->cuMemUnmap(u.address + u.grain_bytes, u.grain_bytes));
    OK(b->cu->cuMemUnmap(u.address, 2 * u.grain_bytes));
    end_unmapped(b, &u);
}

HEADER(mappings_in_a_row_are_unmapped_at_once,
       "The range must be the entire contiguous address range that was mapped to")
{
    struct bed_mapping m;
    NEED(bed_map(b, &m, 4, 0));
    OK(b->cu->cuMemUnmap(m.address + m.grain_bytes, 2 * m.grain_bytes));
    REFUSED(b->cu->cuMemUnmap(m.address, 4 * m.grain_bytes)); /* two of them are not mapped */
    for (size_t i = 1; i < 3; i++) {
        CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        CUdeviceptr at = m.address + i * m.grain_bytes;
        OK(b->cu->cuMemMap(at, m.grain_bytes, 0, m.handle[i], 0));
        OK(b->cu->cuMemSetAccess(at, m.grain_bytes, &access, 1));
    }
    bed_unmap(b, &m);
}

HEADER(what_is_not_mapped_is_not_unmapped,
       "The range must be the entire contiguous address range that was mapped to")
{
    size_t grain = bed_grain(b);
    CUdeviceptr a = 0;
    NEED(b->skip == NULL);
    OK(b->cu->cuMemAddressReserve(&a, 2 * grain, 0, 0, 0));
    REFUSED(b->cu->cuMemUnmap(a, grain));
    OK(b->cu->cuMemAddressFree(a, 2 * grain));
}

HEADER(a_mapped_reservation_is_not_freed,
       "Frees a virtual address range reserved by cuMemAddressReserve")
{
    struct bed_mapping m;
    NEED(bed_map(b, &m, 1, 0));
    REFUSED(b->cu->cuMemAddressFree(m.address, m.grain_bytes));
    bed_unmap(b, &m);
}

HEADER(memory_lives_until_unmapped_and_released,
       "The generic memory handle can be freed when there are still outstanding mappings")
{
    struct bed_mapping m;
    size_t before = 0, after = 0, total = 0;
    NEED(bed_map(b, &m, 1, 0));
    bed_poke(b, m.address, 77);
    OK(b->cu->cuMemRelease(m.handle[0]));
    OK(b->cu->cuMemGetInfo_v2(&before, &total));
    THAT(bed_peek(b, m.address) == 77);
    OK(b->cu->cuMemUnmap(m.address, m.grain_bytes));
    OK(b->cu->cuMemGetInfo_v2(&after, &total));
    THAT(after > before);
    OK(b->cu->cuMemAddressFree(m.address, m.grain_bytes));
}

HEADER(a_retained_handle_is_the_one_mapped,
       "The handle is guaranteed to be the same handle value used to map the memory")
{
    struct bed_mapping m;
    CUmemGenericAllocationHandle handle = 0;
    NEED(bed_map(b, &m, 2, 0));
    void *inside = (void *)(uintptr_t)(m.address + m.grain_bytes + 4096);
    OK(b->cu->cuMemRetainAllocationHandle(&handle, inside));
    THAT(handle == m.handle[1]);
    OK(b->cu->cuMemRelease(handle));
    OK(b->cu->cuMemUnmap(m.address, 2 * m.grain_bytes));
    REFUSED(b->cu->cuMemRetainAllocationHandle(&handle, inside));
    OK(b->cu->cuMemAddressFree(m.address, 2 * m.grain_bytes));
    OK(b->cu->cuMemRelease(m.handle[0]));
    OK(b->cu->cuMemRelease(m.handle[1]));
}

HEADER(an_address_range_is_used_again_after_unmapping,
       "Any new mapping to this virtual address will need to have access granted")
{
    struct bed_mapping m;
    NEED(bed_map(b, &m, 1, 0));
    CUmemAccessDesc access = bed_access(b, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    for (uint32_t i = 0; i < 8; i++) {
        OK(b->cu->cuMemUnmap(m.address, m.grain_bytes));
        OK(b->cu->cuMemMap(m.address, m.grain_bytes, 0, m.handle[0], 0));
        OK(b->cu->cuMemSetAccess(m.address, m.grain_bytes, &access, 1));
        bed_poke(b, m.address, i);
        THAT(bed_peek(b, m.address) == i);
    }
    bed_unmap(b, &m);
}
