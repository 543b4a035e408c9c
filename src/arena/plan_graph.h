/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the simultaneous lifetimes of a plan's items: time cut into sections, the items of each
 * section, the neighbours of each item; and sorting by a key.
 * Independent of sizes or offsets.
 *
 * A *section* is a largest set of items that are alive at once; a phase without items of its own
 * needs none. The sections of an item are consecutive. */
#ifndef FLW_ARENA_PLAN_GRAPH_H
#define FLW_ARENA_PLAN_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena/plan.h"

/* Above this many items a graph's lists, quadratic in the worst case, are not worth their memory. */
#define FLW_PLAN_GRAPH_MAX_ITEMS 2048

struct flw_plan_key {
    uint64_t key;
    uint32_t item;
};

/* Ascending by key, equal keys by item. O(n log n). */
void flw_plan_sort(struct flw_plan_key *keys, size_t count);

/* INVARIANTS. first[i] <= last[i] < section_count. The neighbours of i, neighbour[neighbour_begin[i]]
 * up to neighbour_begin[i + 1], are exactly the other items that share a section with it, in ascending
 * order; the members of section t likewise are exactly the items with first <= t <= last. */
struct flw_plan_graph {
    uint32_t item_count, section_count;
    uint32_t *first, *last; /* of an item: the sections, inclusive */
    uint32_t *neighbour_begin, *member_begin;
    uint16_t *neighbour, *member;
};

/* False: host memory, or more than FLW_PLAN_GRAPH_MAX_ITEMS; nothing is held. O(n^2) time; memory
 * O(n + neighbours + members), at most 16 MiB. */
bool flw_plan_graph_create(struct flw_plan_graph *graph, const struct flw_plan_item *items,
                           size_t count);
void flw_plan_graph_destroy(struct flw_plan_graph *graph);

#endif
