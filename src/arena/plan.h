/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: where intervals with a size and a lifetime go so that those alive together never overlap and
 * the whole is small: offline dynamic storage allocation.
 * Does not: know regions, names or memory.
 */
#ifndef FLW_ARENA_PLAN_H
#define FLW_ARENA_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One interval. INVARIANT of a plan: items whose [first_phase, last_phase] meet do not overlap in
 * [offset, offset + bytes), and offset is a multiple of align_bytes (a power of two). */
struct flw_plan_item {
    uint64_t bytes; /* > 0 */
    uint64_t align_bytes;
    uint32_t first_phase, last_phase; /* inclusive */
    uint64_t offset;                  /* out */
};

/* The most bytes alive in one phase: no plan is smaller. */
uint64_t flw_plan_lower_bound(const struct flw_plan_item *items, size_t count);
/* The same with the padding that no plan avoids: no plan is smaller. O(n^2) for each alignment. */
uint64_t flw_plan_padded_bound(const struct flw_plan_item *items, size_t count);

/* Set every offset; *out_bytes is the largest end. The search stops when the padded bound is met: with one
 * alignment nearly always, within some microseconds for tens of items. Else effort_ns 0: after a fixed,
 * repeatable amount of work, less than a millisecond for 30 items, about 0.1 s for 450 and more; not 0:
 * when the time is up. Above 2048 items: first fit, whatever the effort; O(n^2). False: host memory, or an end
 * beyond 64 bits (no size or alignment may exceed 2^62); offsets are undefined then. The same input gives
 * the same plan where effort_ns is 0. Memory: O(n^2) for up to 2048 items, at most 150 MiB, touched as far
 * as it is used. */
bool flw_plan_place(struct flw_plan_item *items, size_t count, uint64_t effort_ns,
                    uint64_t *out_bytes);

/* Recomputes the invariant; *out_bytes as above. */
bool flw_plan_is_valid(const struct flw_plan_item *items, size_t count, uint64_t *out_bytes);

#endif
