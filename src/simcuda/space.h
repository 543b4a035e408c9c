/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the device address space: free ranges. The range released last is reused first, at the
 * same address if it fits, to detect uses of stale addresses.
 * Independent of the memory at an address.
 * Synchronization: the world's lock.
 *
 * No Linux process maps its own memory in this range (8 to 80 TiB). Addresses of memory without
 * contents are never dereferenced, those of memory with contents only by the simulator. */
#ifndef FLW_SIMCUDA_SPACE_H
#define FLW_SIMCUDA_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tree.h"

#define FLW_SPACE_BEGIN  0x080000000000ull
#define FLW_SPACE_END    0x500000000000ull
#define FLW_SPACE_RECENT 8

struct flw_hole;

struct flw_space {
    struct flw_tree holes;
    struct flw_hole *bucket[64]; /* by floor(log2(bytes)), latest first */
    struct {
        uint64_t begin, end;
    } recent[FLW_SPACE_RECENT];
    unsigned recent_next;
    bool keeps_unused; /* mild: never reuse an address */
};

void flw_space_init(struct flw_space *space, bool keeps_unused);
void flw_space_finish(struct flw_space *space);
/* 0 = no room. align is a power of two. */
uint64_t flw_space_take(struct flw_space *space, uint64_t bytes, uint64_t align);
/* Take exactly this range; false = not wholly free. */
bool flw_space_take_at(struct flw_space *space, uint64_t begin, uint64_t bytes);
void flw_space_release(struct flw_space *space, uint64_t begin, uint64_t bytes);

#endif
