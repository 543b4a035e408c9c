/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: getting physical memory. The functions make driver calls, but where a comment says otherwise.
 */
#ifndef FLW_HEAP_PHYSICAL_GROW_H
#define FLW_HEAP_PHYSICAL_GROW_H

#include "heap/state/state.h"

struct flw_grow_request {
    struct flw_domain *domain; /* the run becomes LIVE for it */
    uint32_t unit_count;
    uint32_t align_units;
    uint64_t budget_bytes; /* reserved may reach this by new handles */
    uint64_t handle_bytes; /* of a new handle, preferably; 0: the granularity */
    uint64_t ahead_bytes;  /* map at least so much, where budget and hole allow */
    uint64_t beyond_bytes; /* and so much more than is missing */
    uint32_t handle_types; /* exportable: one handle of its own */
    bool is_single_handle; /* a handle or segment of its own, all of it */
    bool is_whole;         /* with is_single_handle, or in context order: a whole run */
    bool is_exact;         /* no more than the need */
    bool insists;          /* the driver is asked, whatever it refused before */
};
/* lock; nobody else has the heap yet. What the probe could not take back is the heap's: to be unmapped, lent
 * or given back when the driver lets it. */
void flw_heap_adopt_left(struct flw_heap *heap);
/* Make a mapped run: address space with the fewest missing pages, idle handles, new handles. Where the
 * driver has no memory for more than the need, it is asked for that alone.
 * OUT_OF_MEMORY: budget, limit or the driver; DRIVER, NOT_SUPPORTED: the driver refused; WOULD_WAIT: it
 * refused the like of it and was not asked now (refusal.h). Nothing changed then but that there may be more
 * idle handles. */
fallow_status flw_heap_grow(struct flw_heap *heap, const struct flw_grow_request *request,
                            struct flw_span **out_run);
/* takes the lock. Did the driver refuse a new handle or segment of so many bytes, and give none since; 0: the
 * mapping of one that is at hand. What goes back to it then does not come again. */
bool flw_heap_refuses(struct flw_heap *heap, uint64_t bytes);
/* takes the lock. Things have changed: the next growth asks. */
void flw_heap_forget_refusal(struct flw_heap *heap);

#endif
