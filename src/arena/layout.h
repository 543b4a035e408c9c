/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a layout: named regions and where each one lies.
 * Does not: hold memory, know an arena.
 *
 * INVARIANTS (flw_layout_is_valid recomputes them)
 *   1. Scratch regions alive in one phase do not overlap in [offset, offset + size_bytes). In
 *      [guarded_offset, guarded_offset + size_bytes + FLW_ARENA_ZONE_BYTES) none ever do: a zone that
 *      another region may write in its own phase would prove nothing.
 *   2. Every offset is a multiple of its region's alignment, align_bytes of all; bytes and
 *      guarded_bytes are the largest ends. A persistent region has a block of its own and offset 0.
 *   3. lower_bound <= bytes. Empty scratch regions are at offset 0, and bytes is at least 1 beside one, so
 *      that they have an address.
 *   4. slots is a hash table with linear probing: a slot holds a region's index or FLW_LAYOUT_NO_REGION,
 *      and each region is found from the hash of its name on before an empty slot.
 *   5. references: one until fallow_layout_destroy, and one of each arena whose last lease has it.
 * Synchronization: immutable after create, but for references, and the name, which is set before others
 * use it.
 */
#ifndef FLW_ARENA_LAYOUT_H
#define FLW_ARENA_LAYOUT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "fallow/arena.h"

/* Behind each region of an arena that checks red zones. */
#define FLW_ARENA_ZONE_BYTES 256

#define FLW_ARENA_NAME_MOST 63

/* More than the largest index of a region. */
#define FLW_LAYOUT_NO_REGION UINT16_MAX

struct flw_placed_region {
    fallow_region region; /* defaults filled in; the name is the layout's own */
    size_t offset;
    size_t guarded_offset; /* with a zone behind each region, nothing shared */
};

struct fallow_layout {
    uint64_t id; /* of this layout, never again of another in the process */
    atomic_uint references;
    size_t count;
    size_t persistent_count;
    size_t align_bytes; /* of scratch: the largest */
    size_t bytes, guarded_bytes, persistent_bytes, lower_bound;
    char name[FLW_ARENA_NAME_MOST + 1];
    size_t slot_mask; /* slots less one; a power of two of them, at least twice the count */
    uint16_t *slots;  /* one block with the names of regions behind them */
    struct flw_placed_region regions[];
};

void flw_layout_free(fallow_layout *layout);

/* Count a reference; give one up, NULL is allowed. The last one frees the layout, which is const to users only. */
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
