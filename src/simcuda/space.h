/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: device address space: which numbers are free. What was released last is handed out first,
 * at the same address where it fits: that is what finds stale addresses.
 * Does not: know what lies at an address.
 * Synchronization: the world's lock.
 *
 * The range (8 to 80 TiB) is one where no Linux process maps its own memory; on memory without
 * contents the numbers are never dereferenced, on memory with contents only the simulator follows
 * them.
 */
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
    bool keeps_unused; /* mild: never hand an address out twice */
};

void flw_space_init(struct flw_space *space, bool keeps_unused);
void flw_space_finish(struct flw_space *space);
/* 0 = no room. align is a power of two. */
uint64_t flw_space_take(struct flw_space *space, uint64_t bytes, uint64_t align);
/* Take exactly this range; false = not wholly free. */
bool flw_space_take_at(struct flw_space *space, uint64_t begin, uint64_t bytes);
void flw_space_release(struct flw_space *space, uint64_t begin, uint64_t bytes);

#endif
