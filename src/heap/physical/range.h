/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the address ranges of a remapping source: reserving the first and further ranges, and
 * freeing them. Does not: map memory. */
#ifndef FLW_HEAP_PHYSICAL_RANGE_H
#define FLW_HEAP_PHYSICAL_RANGE_H

#include "heap/physical/physical.h"

#define FLW_RANGE_BYTES_LEAST (64 * FLW_MIB)

/* Reserve the first range: eight times device_bytes, or less, but at least least_bytes, if the
 * driver refuses that; and choose the window of the page map. If less is reserved and may_extend,
 * the window is all addresses, so that further ranges can follow. In a driver section. */
CUresult flw_ranges_begin(struct flw_heap *heap, uint64_t device_bytes, uint64_t least_bytes,
                          bool may_extend);
/* Create the first range's runs, once there are tables. False: no host memory. */
bool flw_ranges_open(struct flw_heap *heap);
/* Make room for a request that fits no free place: reserve a further range; if the driver refuses
 * and the request skips the back-off, unmap all idle memory, so that the addresses can join. OK: searching
 * again is worthwhile. Makes driver calls. */
fallow_status flw_ranges_make_place(struct flw_heap *heap, const struct flw_grow_request *request);
/* Free all ranges. Returns the result of a refusal, after which the range stays. In a driver
 * section. */
CUresult flw_ranges_end(struct flw_heap *heap);

/* Return the range that contains a unit; it must exist. Heap lock held. */
struct flw_range *flw_range_at(const struct flw_heap *heap, uint64_t unit);
/* Return how many pages of the ranges are before mapped_page_end. Heap lock held. */
uint64_t flw_ranges_touched_pages(const struct flw_heap *heap);

#endif
