/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the place of a growth: address space with the fewest missing pages, set aside during the
 * driver call, then restored or committed; and memory set aside for unmapping. Heap lock held. */
#ifndef FLW_HEAP_PHYSICAL_PLACE_H
#define FLW_HEAP_PHYSICAL_PLACE_H

#include "heap/physical/physical.h"

/* Remove the run from the index and make it BUSY, for a growth or a move without the lock. */
void flw_run_set_busy(struct flw_heap *heap, struct flw_span *run);
/* Return a run without memory to the index. */
void flw_run_put_back_unmapped(struct flw_heap *heap, struct flw_span *run);
/* Make a run that was set aside free again. NULL is allowed. */
void flw_run_put_back(struct flw_heap *heap, struct flw_span *run);
/* Cut the units [begin, end) out of a free run and return them as a BUSY run; the rest stays free. NULL: host memory
 * ran out, nothing changed. */
struct flw_span *flw_run_cut(struct flw_heap *heap, struct flw_span *run, uint64_t begin,
                             uint64_t end);
/* True if all memory from the run to the unit is free and complete. */
bool flw_run_is_idle_until(const struct flw_heap *heap, const struct flw_span *run, uint64_t end);
/* If complete memory keeps its owner: return the idle units [begin, end), the first of them in
 * `part`, as one BUSY run; of several owners, it belongs to their shared domain. NULL: no host
 * memory. */
struct flw_span *flw_run_cut_shared(struct flw_heap *heap, struct flw_span *part, uint64_t begin,
                                    uint64_t end);
/* Join a BUSY run without memory, which begins where a growable block ends, to the block's tail. */
void flw_growable_put_back(struct flw_heap *heap, struct flw_growable *growable,
                           struct flw_span *run);
/* Merge two neighbours; either may be NULL. */
struct flw_span *flw_run_absorb(struct flw_heap *heap, struct flw_span *run,
                                struct flw_span *right);

/* ---- the place of a growth */

/* left and right are free memory that the domain may use, or NULL; hole is unmapped
 * between them. */
struct flw_placement {
    struct flw_span *left, *hole, *right;
    struct flw_growable *growable; /* the hole is the tail; NULL: an ordinary growth */
    uint64_t begin, end;           /* of the run to create, in units */
    uint64_t map_begin, map_end;   /* whole pages of the hole that need memory */
};

/* Find the place with the fewest missing pages; false: none. */
bool flw_place_find(const struct flw_heap *heap, const struct flw_grow_request *request,
                    struct flw_placement *out);
/* True if limit and budget allow the request, regardless of the place. */
bool flw_place_would_serve(const struct flw_heap *heap, const struct flw_grow_request *request);
/* Reduce the hole to [map_begin, map_end) and set all three aside. False: host memory. */
bool flw_place_set_aside(struct flw_heap *heap, struct flw_placement *place);
/* Make the mapped pieces one LIVE run [begin, end) and the rest before and after free. For a growable block the whole
 * hole joins the block. NULL: host memory ran out; all pieces are free. */
struct flw_span *flw_place_commit(struct flw_heap *heap, const struct flw_placement *place);

#endif
