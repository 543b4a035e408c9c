/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: making a plan smaller by search. Does not: create the first one.
 *
 * The search decides whether the items fit below a limit, by depth-first search. Every plan can be
 * pushed down until each item is at 0 or on top of an item alive with it. Such a plan can be built
 * from below, item by item, and the place of the next item is then determined: the top of the
 * items under it. So the search only chooses the next item. It starts where placing is hardest:
 * from the unplaced item of the highest rank it descends to the lowest place of the surroundings,
 * tries each item that could be there, and backtracks as soon as the unplaced items of some
 * section cannot fit above their places. So a blocking item is detected at once and undone where
 * it was placed.
 *
 * Most orders of rank either lead to a plan almost without backtracking or never do, so a try is
 * cut off early and another order is used: a random mixture of duration, size, crowding, and how
 * often the sections of an item failed.
 *
 * Memory: the graph's, and 32 B per pair of neighbours, touched as far as used. */
#ifndef FLW_ARENA_PLAN_SEARCH_H
#define FLW_ARENA_PLAN_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/plan.h"

/* Limits for which sums of offsets, sizes and alignments stay within 64 bits. */
#define FLW_PLAN_SEARCH_MAX_BYTES (UINT64_C(1) << 62)

struct flw_plan_goal {
    uint64_t lower_bytes; /* stop when a plan is this small */
    uint64_t deadline_ns; /* of flw_clock_fine_ns; 0: a fixed amount of work instead */
};

/* `items` hold a plan of *bytes <= FLW_PLAN_SEARCH_MAX_BYTES, for at most FLW_PLAN_GRAPH_MAX_ITEMS;
 * afterwards the smallest found. False: host memory; the plan is as before. */
bool flw_plan_search_improve(struct flw_plan_item *items, size_t count, struct flw_plan_goal goal,
                             uint64_t *bytes);

#endif
