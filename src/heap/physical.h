/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what growing (grow.c), giving back (shrink.c) and sleeping (sleep.c) share: the place of a growth
 * in the address range (place.c), stretches that are set aside, idle handles. Nobody else includes it.
 * All of it under the heap lock.
 */
#ifndef FLW_HEAP_PHYSICAL_H
#define FLW_HEAP_PHYSICAL_H

#include "heap/heap.h"

static inline uint64_t flw_run_begin(const struct flw_span *run)
{
    return run->u.run.begin_unit;
}

static inline uint64_t flw_run_end(const struct flw_span *run)
{
    return (uint64_t)run->u.run.begin_unit + run->u.run.unit_count;
}

static inline uint64_t flw_handle_bytes(const struct flw_handle *handle)
{
    return (uint64_t)handle->unit_count << FLW_UNIT_LOG2;
}

/* ---- stretches (place.c) */

/* Out of its index, for a growth or a move at work without the lock. */
void flw_run_set_busy(struct flw_heap *heap, struct flw_span *run);
/* Address space only, back to the index. */
void flw_run_return_unmapped(struct flw_heap *heap, struct flw_span *run);
/* As free as it was before it was set aside. NULL: nothing. */
void flw_run_put_back(struct flw_heap *heap, struct flw_span *run);
/* Two neighbours as one; either may be NULL. */
struct flw_span *flw_run_absorb(struct flw_heap *heap, struct flw_span *run,
                                struct flw_span *right);

/* ---- the place of a growth (place.c) */

/* left and right are free memory that the domain may use, or NULL; hole is unmapped between them.
 */
struct flw_placement {
    struct flw_span *left, *hole, *right;
    uint64_t begin, end;         /* of the run to make, in units */
    uint64_t map_begin, map_end; /* what must get memory: whole pages of the hole */
};

/* The place with the fewest missing pages; false: none. */
bool flw_place_find(const struct flw_heap *heap, const struct flw_grow_request *request,
                    struct flw_placement *out);
/* Reduce the hole to [map_begin, map_end) and set all three aside. False: host memory. */
bool flw_place_set_aside(struct flw_heap *heap, struct flw_placement *place);
/* The mapped pieces become one LIVE run [begin, end); what lies before and after is free. NULL: host
 * memory; they are free. */
struct flw_span *flw_place_settle(struct flw_heap *heap, const struct flw_placement *place);

/* ---- handles and bytes (grow.c) */

void flw_handle_unlink_idle(struct flw_heap *heap, struct flw_handle *handle);
void flw_handle_link_idle(struct flw_heap *heap, struct flw_handle *handle);
void flw_heap_raise_reserved(struct flw_heap *heap, uint64_t bytes);
void flw_heap_lower_reserved(struct flw_heap *heap, uint64_t bytes);
/* What the driver has given counts for the peak, not what was asked in vain. */
void flw_heap_note_peak(struct flw_heap *heap);

/* ---- segments (grow.c) */

/* Among the others; in context order its units lead to the run, which is all of it. */
void flw_segment_link(struct flw_heap *heap, struct flw_segment *segment, struct flw_span *run);

/* ---- mappings side by side (shrink.c) */

#define FLW_ROW_MOST 256

struct flw_row {
    uint64_t address, end;
    uint64_t bytes[FLW_ROW_MOST]; /* of each mapping */
    bool is_unmapped[FLW_ROW_MOST];
    uint32_t count;
};

static inline bool flw_row_takes(const struct flw_row *row, uint64_t address)
{
    return row->count == 0 || (row->count < FLW_ROW_MOST && row->end == address);
}
static inline void flw_row_add(struct flw_row *row, uint64_t address, uint64_t bytes)
{
    row->address = row->count == 0 ? address : row->address;
    row->bytes[row->count++] = bytes;
    row->end = address + bytes;
}
/* In a driver section, no lock. By one call where the driver takes that; is_unmapped says what is. Where a
 * mapping is refused those behind it are left, or asked for all the same (`goes_on`). The last refusal. */
CUresult flw_heap_unmap_row(struct flw_heap *heap, struct flw_row *row, bool goes_on);

/* ---- idle memory (shrink.c) */

/* After a sleep: idle stretches that nothing is mapped behind become address space only. */
void flw_heap_forget_idle(struct flw_heap *heap);

#endif
