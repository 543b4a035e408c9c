/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a layout: named regions and their offsets.
 * Does not: hold memory.
 *
 * INVARIANTS (checked by flw_layout_is_valid)
 *   1. Scratch regions alive in the same phase do not overlap in [offset, offset + size_bytes). No two scratch regions
 *      overlap in [guarded_offset, guarded_offset + size_bytes + FLW_ARENA_ZONE_BYTES): a region of another phase would
 *      write a shared zone.
 *   2. Every offset is a multiple of the region's alignment, align_bytes of all; bytes and
 *      guarded_bytes are the largest ends. A persistent region has a block of its own and offset 0.
 *   3. lower_bound <= bytes. Empty scratch regions have offset 0. If there is an empty region, bytes is at least 1, so
 *      that the region has an address.
 *   4. slots is a hash table with linear probing: a slot holds a region's index or FLW_LAYOUT_NO_REGION, and no empty
 *      slot is between the hash of a region's name and the region's slot.
 *   5. references counts one until fallow_layout_destroy, and one for each arena with this layout as lease.layout.
 * Synchronization: immutable after create, except references, and the name, which no other thread may use while it is
 * set.
 */
#ifndef FLW_ARENA_LAYOUT_H
#define FLW_ARENA_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "fallow/arena.h"

/* Bytes of the red zone behind each region, if an arena checks red zones. */
#define FLW_ARENA_ZONE_BYTES 256

#define FLW_ARENA_NAME_MOST 63

/* An empty slot; larger than any region's index. */
#define FLW_LAYOUT_NO_REGION UINT16_MAX

struct flw_placed_region {
    fallow_region region; /* with defaults filled in and the layout's copy of the name */
    size_t offset;
    size_t guarded_offset; /* offset with red zones, without shared bytes */
};

struct fallow_layout {
    uint64_t id; /* unique in the process, never reused */
    atomic_uint references;
    size_t count;
    size_t persistent_count;
    size_t align_bytes; /* the largest of all scratch regions */
    size_t bytes, guarded_bytes, persistent_bytes, lower_bound;
    char name[FLW_ARENA_NAME_MOST + 1];
    size_t slot_mask; /* slot count less 1; the count is a power of two, at least 2 * `count` */
    uint16_t *slots;  /* followed by the names of regions in the same block */
    struct flw_placed_region regions[];
};

void flw_layout_free(fallow_layout *layout);

/* Add or drop a reference; the last drop frees the layout. drop allows NULL. The casts drop const: only users must
 * not modify a layout. */
static inline void flw_layout_keep(const fallow_layout *layout)
{
    atomic_fetch_add_explicit(&((fallow_layout *)(uintptr_t)layout)->references, 1,
                              memory_order_relaxed);
}

static inline void flw_layout_drop(const fallow_layout *layout)
{
    fallow_layout *own = (fallow_layout *)(uintptr_t)layout;
    if (own != NULL && atomic_fetch_sub_explicit(&own->references, 1, memory_order_acq_rel) == 1) {
        flw_layout_free(own);
    }
}

bool flw_layout_is_valid(const fallow_layout *layout);

#endif
