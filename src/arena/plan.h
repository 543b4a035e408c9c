/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: offline dynamic storage allocation: choose offsets for items with a size and a lifetime, so that items alive
 * together never overlap and the total is small.
 * Does not: depend on regions, names or memory.
 */
#ifndef FLW_ARENA_PLAN_H
#define FLW_ARENA_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An item to place. INVARIANT of a plan: two items with a common phase in [first_phase, last_phase] do not overlap in
 * [offset, offset + bytes), and offset is a multiple of align_bytes (a power of two). */
struct flw_plan_item {
    uint64_t bytes; /* > 0 */
    uint64_t align_bytes;
    uint32_t first_phase, last_phase; /* inclusive */
    uint64_t offset;                  /* out */
};

/* Return the most bytes alive in one phase: no plan is smaller. */
uint64_t flw_plan_lower_bound(const struct flw_plan_item *items, size_t count);
/* The same, plus the padding that no plan can avoid. O(n^2) for each alignment. */
uint64_t flw_plan_padded_bound(const struct flw_plan_item *items, size_t count);

/* Set every offset; *out_bytes is the largest end. The search stops when a plan meets the padded bound; with one
 * alignment this is nearly always so, within some microseconds for tens of items. Otherwise the search stops
 *   effort_ns 0      after a fixed amount of work: less than a millisecond for 30 items, about 0.1 s for 450 and more;
 *                    the same input gives the same plan
 *   other effort_ns  after that time.
 * Above 2048 items: first fit in O(n^2), for any effort. Returns false, with undefined offsets, if host memory runs out
 * or an end exceeds 64 bits; no size or alignment may exceed 2^62. Memory: O(n^2) for up to 2048 items, at most 150 MiB,
 * of which only the used part is touched. */
bool flw_plan_place(struct flw_plan_item *items, size_t count, uint64_t effort_ns,
                    uint64_t *out_bytes);

/* Check the invariant; *out_bytes as above. */
bool flw_plan_is_valid(const struct flw_plan_item *items, size_t count, uint64_t *out_bytes);

#endif
