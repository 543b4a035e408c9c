/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a layout: named regions and where each one lies.
 * Does not: hold memory, know an arena.
 *
 * INVARIANTS (flw_layout_is_valid recomputes them)
 *   1. Scratch regions alive in one phase do not overlap in [offset, offset + size_bytes), nor in
 *      [guarded_offset, guarded_offset + size_bytes + FLW_ZONE_BYTES).
 *   2. Every offset is a multiple of its region's alignment; bytes and guarded_bytes are the largest
 *      ends. A persistent region's offset is its place in persistent_bytes.
 *   3. lower_bound <= bytes <= guarded_bytes + padding.
 * Synchronization: immutable after create.
 */
#ifndef FLW_ARENA_LAYOUT_H
#define FLW_ARENA_LAYOUT_H

#include <stdbool.h>

#include "fallow/arena.h"

/* Behind each region of an arena that checks red zones. */
#define FLW_ARENA_ZONE_BYTES 256

struct flw_placed_region {
    fallow_region region; /* defaults filled in; the name is the layout's own */
    size_t offset;
    size_t guarded_offset; /* with room for a zone behind each region */
};

struct fallow_layout {
    uint64_t id; /* of this layout, never again of another in the process */
    size_t count;
    size_t persistent_count;
    size_t bytes, guarded_bytes, persistent_bytes, lower_bound;
    char *names; /* one block */
    struct flw_placed_region regions[];
};

bool flw_layout_is_valid(const fallow_layout *layout);

#endif
