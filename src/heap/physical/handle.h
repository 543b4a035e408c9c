/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the physical handles that growth, release and sleep share: mapped, idle and unmap-only ones,
 * the sums of their bytes, and the record of refused requests. Heap lock held, except for the row. */
#ifndef FLW_HEAP_PHYSICAL_HANDLE_H
#define FLW_HEAP_PHYSICAL_HANDLE_H

#include "heap/order/domain.h"

/* Return the handle of a byte offset, or NULL. Heap lock held. */
struct flw_handle *flw_heap_handle_at(const struct flw_heap *heap, uint64_t offset);
/* A walk over handles in address order; zeros begin at the first. `range` contains the last handle
 * returned. */
struct flw_handle_walk {
    const struct flw_range *range;
    uint64_t page;
};
/* Return the next mapped or sleeping handle; NULL: none. */
struct flw_handle *flw_handle_next(const struct flw_heap *heap, struct flw_handle_walk *walk);
/* True if the handle begins the range: no driver call may cover both the handle and the memory before. */
static inline bool flw_handle_begins_range(const struct flw_handle_walk *walk,
                                           const struct flw_handle *handle)
{
    return handle->begin_unit == walk->range->begin_unit;
}
/* Return the handle of a unit of a range, or NULL. Heap lock held. */
static inline struct flw_handle *flw_handle_at_unit(const struct flw_heap *heap, uint64_t unit)
{
    return heap->page_handle[unit / heap->page_units];
}
/* Return the first handle that is wholly inside the run, or NULL. Heap lock held. */
struct flw_handle *flw_handle_inside(const struct flw_heap *heap, const struct flw_span *run);
/* Remove it from the pages: it is mapped nowhere. Heap lock held. */
void flw_handle_detach(struct flw_heap *heap, struct flw_handle *handle);
static inline uint64_t flw_handle_bytes(const struct flw_handle *handle)
{
    return (uint64_t)handle->unit_count << FLW_UNIT_LOG2;
}
void flw_handle_unlink_idle(struct flw_heap *heap, struct flw_handle *handle);
void flw_handle_link_idle(struct flw_heap *heap, struct flw_handle *handle);
void flw_heap_raise_reserved(struct flw_heap *heap, uint64_t bytes);
void flw_heap_lower_reserved(struct flw_heap *heap, uint64_t bytes);
/* Set the limit. Memory beyond the limit stays until released. Takes the heap lock. */
void flw_heap_set_limit(struct flw_heap *heap, uint64_t limit_bytes);
/* Update the peak with memory that the driver has given, not with failed requests. */
void flw_heap_note_peak(struct flw_heap *heap);
/* Add a segment; in context order the units lead to the run, which fills it. */
void flw_segment_link(struct flw_heap *heap, struct flw_segment *segment, struct flw_span *run);
/* Remove a segment. In context order the units are cleared before the driver may give the
 * addresses to others: units that are not 0 are the pool's. Heap lock held. */
void flw_segment_unlink(struct flw_heap *heap, struct flw_segment *segment);

/* ---- memory that can only be unmapped */

/* Return the domain heap.unmap_only, creating it if necessary. NULL: no host memory.
 * Heap lock held. */
struct flw_domain *flw_heap_unmap_only(struct flw_heap *heap);
/* Mark a handle that importers may have from now on. False: no host memory. Heap lock held. */
bool flw_heap_mark_exported(struct flw_heap *heap, struct flw_handle *handle);
void flw_heap_unmark_exported(struct flw_heap *heap, struct flw_handle *handle);

/* ---- adjacent mappings */

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
/* Unmap the row, by one call if the driver permits; is_unmapped shows the result. After a refusal
 * stop, or (`goes_on`) try the rest too. Returns the last refusal. In a driver section, no lock
 * held. */
CUresult flw_heap_unmap_row(struct flw_heap *heap, struct flw_row *row, bool goes_on);

#endif
