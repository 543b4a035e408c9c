/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the device's side of expandable segments: ranges of addresses, and a physical handle a
 * granule. Does not: decide what is mapped.
 */
#ifndef FLW_TOOL_PYTORCH_RANGES_H
#define FLW_TOOL_PYTORCH_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/replay_device.h"
#include "policies/pytorch_model.h"

struct flw_pytorch_region;

struct flw_pytorch_ranges {
    const struct flw_device *device;
    struct flw_pytorch_region *regions;
    uint64_t call_count; /* driver calls */
};

/* Does the device have the calls? */
bool flw_pytorch_ranges_are_supported(const struct flw_device *device);

/* Addresses without memory. False: the device refused. */
bool flw_pytorch_ranges_reserve(struct flw_pytorch_ranges *ranges, uint64_t size_bytes,
                                uint64_t granule_bytes, uint64_t *out_address);

void flw_pytorch_ranges_unreserve(struct flw_pytorch_ranges *ranges, uint64_t address);

/* False: no memory, and nothing of the range has any. */
bool flw_pytorch_ranges_map(struct flw_pytorch_ranges *ranges,
                            const struct flw_pytorch_range *range);

/* Waits for the segment's stream first, as PyTorch does. */
void flw_pytorch_ranges_unmap(struct flw_pytorch_ranges *ranges,
                              const struct flw_pytorch_range *range);

#endif
