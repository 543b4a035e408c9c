/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the physical handles, shared by growth, release and sleep: mapped, idle and withheld handles, the sums of their
 * bytes, and the record of refused requests. Under the heap lock, except the row.
 */
#ifndef FLW_HEAP_PHYSICAL_HANDLE_H
#define FLW_HEAP_PHYSICAL_HANDLE_H

#include "heap/order/domain.h"

/* lock. The handle behind a byte offset, or NULL. */
struct flw_handle *flw_heap_handle_at(const struct flw_heap *heap, uint64_t offset);
/* A walk over handles in address order; zero: at the first. `range` is that of the last handle. */
struct flw_handle_walk {
    const struct flw_range *range;
    uint64_t page;
};
/* The next mapped or sleeping handle; NULL: none. */
struct flw_handle *flw_handle_next(const struct flw_heap *heap, struct flw_handle_walk *walk);
/* True if the handle begins its range: no driver call may cover both the handle and the memory before. */
static inline bool flw_handle_begins_range(const struct flw_handle_walk *walk,
                                           const struct flw_handle *handle)
{
    return handle->begin_unit == walk->range->begin_unit;
}
/* lock. The one behind a unit of a range; NULL. */
static inline struct flw_handle *flw_handle_at_unit(const struct flw_heap *heap, uint64_t unit)
{
    return heap->page_handle[unit / heap->page_units];
}
/* lock. The first that lies wholly inside the run; NULL. */
struct flw_handle *flw_handle_inside(const struct flw_heap *heap, const struct flw_span *run);
/* lock. Its pages lose it: it is mapped nowhere. */
void flw_handle_detach(struct flw_heap *heap, struct flw_handle *handle);
static inline uint64_t flw_handle_bytes(const struct flw_handle *handle)
{
    return (uint64_t)handle->unit_count << FLW_UNIT_LOG2;
}
void flw_handle_unlink_idle(struct flw_heap *heap, struct flw_handle *handle);
void flw_handle_link_idle(struct flw_heap *heap, struct flw_handle *handle);
void flw_heap_raise_reserved(struct flw_heap *heap, uint64_t bytes);
void flw_heap_lower_reserved(struct flw_heap *heap, uint64_t bytes);
/* Takes the lock. Set the limit. Memory held beyond the limit stays until released. */
void flw_heap_set_limit(struct flw_heap *heap, uint64_t limit_bytes);
/* What the driver has given counts for the peak, not what was asked in vain. */
void flw_heap_note_peak(struct flw_heap *heap);
/* Among the others; in context order its units lead to the run, which is all of it. */
void flw_segment_link(struct flw_heap *heap, struct flw_segment *segment, struct flw_span *run);
/* lock. In context order its units are cleared before the driver may give the addresses to somebody else: those
 * that are not 0 are the pool's. */
void flw_segment_unlink(struct flw_heap *heap, struct flw_segment *segment);

/* ---- what is withheld */

/* lock. The domain heap.withheld, made if it is not there. NULL: host memory. */
struct flw_domain *flw_heap_withheld(struct flw_heap *heap);
/* lock. From now on importers may have the handle. False: host memory. */
bool flw_heap_mark_exported(struct flw_heap *heap, struct flw_handle *handle);
void flw_heap_unmark_exported(struct flw_heap *heap, struct flw_handle *handle);

/* ---- mappings side by side */

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

#endif
