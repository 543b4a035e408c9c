/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: making a plan smaller by search. Does not: make the first one.
 *
 * The question asked is "do these items fit below a limit?", by depth-first search. Every plan can be
 * pushed down until each item lies at 0 or on top of an item alive with it; such a plan can be built
 * from below, item by item, and the place of the next item is then known: the top of what it lies on.
 * So the search chooses only which item comes next. It works where it is hardest first: from the
 * unplaced item of the highest rank it goes down to the lowest place of its surroundings, tries each
 * item that could lie there, and turns back as soon as the unplaced items of some section cannot fit
 * above their places. What an item closes off is thus noticed at once and undone where it was done.
 *
 * Most orders of rank lead to a plan almost without turning back or to none in any time, so a try is
 * cut off early and another order taken: a random mixture of how long, how large, how crowded, and of
 * how often the sections of an item were the ones that failed.
 *
 * Memory: the graph's, and 32 B for each pair of neighbours, touched as far as it is used.
 */
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
