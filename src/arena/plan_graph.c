/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how sections are found and lists filled. Does not: place anything.
 */
#include "arena/plan_graph.h"

#include <stdlib.h>
#include <string.h>

#define INSERTED_MOST 64 /* keys that insertion sorts faster than qsort */

static int by_key(const void *left, const void *right)
{
    const struct flw_plan_key *a = left, *b = right;
    if (a->key != b->key) {
        return a->key < b->key ? -1 : 1;
    }
    return a->item < b->item ? -1 : a->item > b->item;
}

void flw_plan_sort(struct flw_plan_key *keys, size_t count)
{
    if (count > INSERTED_MOST) {
        qsort(keys, count, sizeof(*keys), by_key);
        return;
    }
    for (size_t k = 1; k < count; k++) {
        struct flw_plan_key key = keys[k];
        size_t at = k;
        for (; at > 0 && by_key(&keys[at - 1], &key) > 0; at--) {
            keys[at] = keys[at - 1];
        }
        keys[at] = key;
    }
}

/* Walk over begins and ends in the order of time. A section is complete when an item ends after
 * another began: the items are never alive together again. */
static void cut_sections(struct flw_plan_graph *graph, const struct flw_plan_key *begins,
                         const struct flw_plan_key *ends)
{
    bool has_begun = false;
    uint32_t next = 0;
    for (uint32_t k = 0; k < graph->item_count; k++) {
        while (next < graph->item_count && begins[next].key <= ends[k].key) {
            graph->first[begins[next++].item] = graph->section_count;
            has_begun = true;
        }
        graph->section_count += has_begun;
        has_begun = false;
        graph->last[ends[k].item] = graph->section_count - 1;
    }
}

static bool find_sections(struct flw_plan_graph *graph, const struct flw_plan_item *items)
{
    size_t count = graph->item_count;
    struct flw_plan_key *begins = malloc(2 * count * sizeof(*begins));
    if (begins == NULL) {
        return false;
    }
    struct flw_plan_key *ends = begins + count;
    for (uint32_t i = 0; i < count; i++) {
        begins[i] = (struct flw_plan_key){items[i].first_phase, i};
        ends[i] = (struct flw_plan_key){items[i].last_phase, i};
    }
    flw_plan_sort(begins, count);
    flw_plan_sort(ends, count);
    cut_sections(graph, begins, ends);
    free(begins);
    return true;
}

static bool are_neighbours(const struct flw_plan_graph *graph, uint32_t a, uint32_t b)
{
    return a != b && graph->first[a] <= graph->last[b] && graph->first[b] <= graph->last[a];
}

/* Both lists as running totals, so that list x is [begin[x], begin[x + 1]). */
static void count_lists(struct flw_plan_graph *graph)
{
    for (uint32_t i = 0; i < graph->item_count; i++) {
        graph->neighbour_begin[i + 1] = graph->neighbour_begin[i];
        for (uint32_t j = 0; j < graph->item_count; j++) {
            graph->neighbour_begin[i + 1] += are_neighbours(graph, i, j);
        }
        for (uint32_t t = graph->first[i]; t <= graph->last[i]; t++) {
            graph->member_begin[t + 1]++;
        }
    }
    for (uint32_t t = 0; t < graph->section_count; t++) {
        graph->member_begin[t + 1] += graph->member_begin[t];
    }
}

static bool fill_lists(struct flw_plan_graph *graph)
{
    uint32_t neighbours = graph->neighbour_begin[graph->item_count];
    uint32_t members = graph->member_begin[graph->section_count];
    graph->neighbour = malloc((neighbours + 1u) * sizeof(*graph->neighbour));
    graph->member = malloc(members * sizeof(*graph->member));
    if (graph->neighbour == NULL || graph->member == NULL) {
        return false;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < graph->item_count; i++) {
        for (uint32_t j = 0; j < graph->item_count; j++) {
            if (are_neighbours(graph, i, j)) {
                graph->neighbour[at++] = (uint16_t)j;
            }
        }
    }
    at = 0;
    for (uint32_t t = 0; t < graph->section_count; t++) {
        for (uint32_t i = 0; i < graph->item_count; i++) {
            if (graph->first[i] <= t && t <= graph->last[i]) {
                graph->member[at++] = (uint16_t)i;
            }
        }
    }
    return true;
}

bool flw_plan_graph_create(struct flw_plan_graph *graph, const struct flw_plan_item *items,
                           size_t count)
{
    memset(graph, 0, sizeof(*graph));
    if (count == 0 || count > FLW_PLAN_GRAPH_MAX_ITEMS) {
        return false;
    }
    graph->item_count = (uint32_t)count;
    graph->first = calloc(4 * count + 2, sizeof(*graph->first));
    if (graph->first == NULL) {
        return false;
    }
    graph->last = graph->first + count;
    graph->neighbour_begin = graph->last + count;
    graph->member_begin = graph->neighbour_begin + count + 1;
    if (!find_sections(graph, items)) {
        goto fail;
    }
    count_lists(graph);
    if (!fill_lists(graph)) {
        goto fail;
    }
    return true;
fail:
    flw_plan_graph_destroy(graph);
    return false;
}

void flw_plan_graph_destroy(struct flw_plan_graph *graph)
{
    free(graph->first);
    free(graph->neighbour);
    free(graph->member);
    memset(graph, 0, sizeof(*graph));
}
