/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: where a growth lies: address space with the fewest missing pages, set aside while the driver is called,
 * restored or settled after it; memory that is set aside to be unmapped. All of it under the heap lock.
 */
#ifndef FLW_HEAP_PHYSICAL_PLACE_H
#define FLW_HEAP_PHYSICAL_PLACE_H

#include "heap/physical/physical.h"

/* Out of its index, for a growth or a move at work without the lock. */
void flw_run_set_busy(struct flw_heap *heap, struct flw_span *run);
/* Address space only, back to the index. */
void flw_run_put_back_unmapped(struct flw_heap *heap, struct flw_span *run);
/* As free as it was before it was set aside. NULL: nothing. */
void flw_run_put_back(struct flw_heap *heap, struct flw_span *run);
/* The units [begin, end) of a free run, BUSY; the rest of it is free. NULL: host memory, and it is as it was. */
struct flw_span *flw_run_cut(struct flw_heap *heap, struct flw_span *run, uint64_t begin,
                             uint64_t end);
/* Is all memory from the run on to the unit free and complete? */
bool flw_run_is_idle_until(const struct flw_heap *heap, const struct flw_span *run, uint64_t end);
/* Where complete memory keeps its owner: the units [begin, end), all of them idle, of which `part` has the first, as one
 * run, BUSY; of several owners, then that of what they shared. NULL: host memory. */
struct flw_span *flw_run_cut_shared(struct flw_heap *heap, struct flw_span *part, uint64_t begin,
                                    uint64_t end);
/* Join a BUSY run without memory, which begins where a growable block ends, to the block's tail. */
void flw_growable_put_back(struct flw_heap *heap, struct flw_growable *growable,
                           struct flw_span *run);
/* Two neighbours as one; either may be NULL. */
struct flw_span *flw_run_absorb(struct flw_heap *heap, struct flw_span *run,
                                struct flw_span *right);

/* ---- the place of a growth */

/* left and right are free memory that the domain may use, or NULL; hole is unmapped between them.
 */
struct flw_placement {
    struct flw_span *left, *hole, *right;
    struct flw_growable *growable; /* whose tail the hole is; NULL: none's */
    uint64_t begin, end;           /* of the run to make, in units */
    uint64_t map_begin, map_end;   /* what must get memory: whole pages of the hole */
};

/* The place with the fewest missing pages; false: none. */
bool flw_place_find(const struct flw_heap *heap, const struct flw_grow_request *request,
                    struct flw_placement *out);
/* True if limit and budget allow the request, regardless of its place. */
bool flw_place_would_serve(const struct flw_heap *heap, const struct flw_grow_request *request);
/* Reduce the hole to [map_begin, map_end) and set all three aside. False: host memory. */
bool flw_place_set_aside(struct flw_heap *heap, struct flw_placement *place);
/* The mapped pieces become one LIVE run [begin, end); what lies before and after is free. Of a growable block all of the
 * hole is the block's. NULL: host memory; they are free. */
struct flw_span *flw_place_settle(struct flw_heap *heap, const struct flw_placement *place);

#endif
