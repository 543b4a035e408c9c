/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the bound, the proof of a plan, and first-fit plans in a few orders: the start of the
 * search, and the result if a plan meets the bound or the items are too many to search. Does not:
 * search. */
#include "arena/plan.h"

#include <stdlib.h>

#include "arena/plan_graph.h"
#include "arena/plan_search.h"
#include "base/bits.h"
#include "base/clock.h"

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Return a lower bound from the items aligned to `align_bytes` or more. All offsets of these items are multiples of
 * align_bytes. Sort the items alive in one phase by offset: each item begins at or above the end of the previous
 * item, rounded up. By induction the last item begins at or above the sum of the other rounded sizes, and ends at or
 * above the sum of all rounded sizes, less its own padding. So the bound is that sum less the largest padding. With
 * align_bytes 1 the bound is the sum of all sizes. Checking the phases in which items begin suffices, since a live
 * set is largest when an item begins. O(n^2), no memory. */
static uint64_t bound_at(const struct flw_plan_item *items, size_t count, uint64_t align_bytes)
{
    uint64_t most_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t live_bytes = 0, pad_bytes = 0;
        for (size_t j = 0; j < count; j++) {
            if (items[j].first_phase <= items[i].first_phase &&
                items[i].first_phase <= items[j].last_phase &&
                items[j].align_bytes >= align_bytes) {
                uint64_t bytes = flw_align_up(items[j].bytes, align_bytes);
                live_bytes = add_saturated(live_bytes, bytes);
                pad_bytes = flw_max(pad_bytes, bytes - items[j].bytes);
            }
        }
        most_bytes = flw_max(most_bytes, live_bytes - pad_bytes);
    }
    return most_bytes;
}

uint64_t flw_plan_lower_bound(const struct flw_plan_item *items, size_t count)
{
    if (count == 0) {
        return 0;
    }
    struct flw_plan_key *begins = malloc(2 * count * sizeof(*begins));
    if (begins == NULL) {
        return bound_at(items, count, 1);
    }
    struct flw_plan_key *ends = begins + count;
    for (size_t i = 0; i < count; i++) {
        begins[i] = (struct flw_plan_key){items[i].first_phase, (uint32_t)i};
        ends[i] = (struct flw_plan_key){items[i].last_phase, (uint32_t)i};
    }
    flw_plan_sort(begins, count);
    flw_plan_sort(ends, count);
    flw_u128 live_bytes = 0, most_bytes = 0;
    for (size_t begin = 0, end = 0; begin < count; begin++) {
        for (; ends[end].key < begins[begin].key; end++) {
            live_bytes -= items[ends[end].item].bytes;
        }
        live_bytes += items[begins[begin].item].bytes;
        most_bytes = live_bytes > most_bytes ? live_bytes : most_bytes;
    }
    free(begins);
    return most_bytes > UINT64_MAX ? UINT64_MAX : (uint64_t)most_bytes;
}

/* At least flw_plan_lower_bound, since the smallest alignment covers all items. */
uint64_t flw_plan_padded_bound(const struct flw_plan_item *items, size_t count)
{
    uint64_t most_bytes = 0, seen = 0; /* alignments, each one bit */
    for (size_t i = 0; i < count; i++) {
        if ((seen & items[i].align_bytes) == 0) {
            seen |= items[i].align_bytes;
            most_bytes = flw_max(most_bytes, bound_at(items, count, items[i].align_bytes));
        }
    }
    return most_bytes;
}

static bool meet(const struct flw_plan_item *a, const struct flw_plan_item *b)
{
    return a->first_phase <= b->last_phase && b->first_phase <= a->last_phase;
}

/* Pairs in the order in which they begin, so that the rest of a row is known to begin too late; without
 * memory for that order, all pairs. */
static bool overlaps_nowhere(const struct flw_plan_item *items, size_t count)
{
    struct flw_plan_key *begins = malloc((count + 1) * sizeof(*begins));
    for (size_t i = 0; begins != NULL && i < count; i++) {
        begins[i] = (struct flw_plan_key){items[i].first_phase, (uint32_t)i};
    }
    if (begins != NULL) {
        flw_plan_sort(begins, count);
    }
    bool is_valid = true;
    for (size_t i = 0; is_valid && i < count; i++) {
        const struct flw_plan_item *a = &items[begins != NULL ? begins[i].item : i];
        for (size_t j = i + 1; is_valid && j < count; j++) {
            const struct flw_plan_item *b = &items[begins != NULL ? begins[j].item : j];
            if (begins != NULL && b->first_phase > a->last_phase) {
                break;
            }
            is_valid = !meet(a, b) || a->offset + a->bytes <= b->offset ||
                       b->offset + b->bytes <= a->offset;
        }
    }
    free(begins);
    return is_valid;
}

bool flw_plan_is_valid(const struct flw_plan_item *items, size_t count, uint64_t *out_bytes)
{
    *out_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const struct flw_plan_item *item = &items[i];
        if (item->bytes == 0 || !flw_is_pow2(item->align_bytes) ||
            item->first_phase > item->last_phase || item->offset % item->align_bytes != 0 ||
            item->offset > UINT64_MAX - item->bytes) {
            return false;
        }
        *out_bytes = flw_max(*out_bytes, item->offset + item->bytes);
    }
    return overlaps_nowhere(items, count);
}

/* ---- first fit ---- */

enum order {
    BY_AREA,
    BY_SIZE,
    BY_LIFETIME,
    BY_BEGIN,
    BY_PAD,
    ORDER_COUNT
};

/* Sort items that are hard to place first. BY_PAD sorts the item with the largest padding last: at the top of a plan
 * that padding is not needed, so with one alignment and one phase the plan meets the padded bound. */
static void sort_items(struct flw_plan_key *keys, const struct flw_plan_item *items, size_t count,
                       enum order order)
{
    for (size_t i = 0; i < count; i++) {
        const struct flw_plan_item *item = &items[i];
        uint64_t phases = (uint64_t)item->last_phase - item->first_phase + 1;
        /* Sizes go to 2^62 and phases to 2^32: the upper half of a product of 128 bits is enough. */
        uint64_t area = (uint64_t)(((flw_u128)item->bytes * phases) >> 32);
        uint64_t pad = flw_align_up(item->bytes, item->align_bytes) - item->bytes;
        uint64_t key = order == BY_AREA       ? UINT64_MAX - area
                       : order == BY_SIZE     ? UINT64_MAX - item->bytes
                       : order == BY_LIFETIME ? UINT64_MAX - phases
                       : order == BY_BEGIN    ? item->first_phase
                                              : pad;
        keys[i] = (struct flw_plan_key){key, (uint32_t)i};
    }
    flw_plan_sort(keys, count);
}

/* The lowest place for an item between those placed, which are listed by offset. False: none ends within
 * 64 bits. */
static bool find_place(const struct flw_plan_item *items, const uint32_t *placed,
                       size_t placed_count, struct flw_plan_item *item)
{
    uint64_t align_bytes = item->align_bytes, offset = 0;
    for (size_t k = 0; k < placed_count; k++) {
        const struct flw_plan_item *other = &items[placed[k]];
        uint64_t other_end = other->offset + other->bytes;
        if (other_end <= offset || !meet(item, other)) {
            continue;
        }
        if (other->offset >= offset && other->offset - offset >= item->bytes) {
            break;
        }
        if (other_end > UINT64_MAX - (align_bytes - 1)) {
            return false;
        }
        offset = flw_align_up(other_end, align_bytes);
    }
    item->offset = offset;
    return offset <= UINT64_MAX - item->bytes;
}

/* Keep the list of placed items sorted by offset. */
static void insert_placed(const struct flw_plan_item *items, uint32_t *placed, size_t placed_count,
                          uint32_t item)
{
    size_t at = placed_count;
    for (; at > 0 && items[placed[at - 1]].offset > items[item].offset; at--) {
        placed[at] = placed[at - 1];
    }
    placed[at] = item;
}

/* O(n^2). False: a place would end beyond 64 bits. */
static bool place_in_order(struct flw_plan_item *items, size_t count, struct flw_plan_key *keys,
                           uint32_t *placed, uint64_t *out_bytes)
{
    *out_bytes = 0;
    for (size_t k = 0; k < count; k++) {
        struct flw_plan_item *item = &items[keys[k].item];
        if (!find_place(items, placed, k, item)) {
            return false;
        }
        insert_placed(items, placed, k, keys[k].item);
        *out_bytes = flw_max(*out_bytes, item->offset + item->bytes);
    }
    return true;
}

/* The best of the orders; of the first only, where there are too many items to search. */
static bool place_first_fit(struct flw_plan_item *items, size_t count, uint64_t lower_bytes,
                            uint64_t *out_bytes)
{
    struct flw_plan_key *keys = malloc(count * sizeof(*keys));
    uint32_t *placed = malloc(count * sizeof(*placed));
    uint64_t *best = malloc(count * sizeof(*best));
    bool has_plan = false;
    int orders = count <= FLW_PLAN_GRAPH_MAX_ITEMS ? ORDER_COUNT : 1;
    if (keys == NULL || placed == NULL || best == NULL) {
        goto out;
    }
    for (int order = 0; order < orders && !(has_plan && *out_bytes == lower_bytes); order++) {
        uint64_t bytes;
        sort_items(keys, items, count, (enum order)order);
        if (!place_in_order(items, count, keys, placed, &bytes) ||
            (has_plan && bytes >= *out_bytes)) {
            continue;
        }
        has_plan = true;
        *out_bytes = bytes;
        for (size_t i = 0; i < count; i++) {
            best[i] = items[i].offset;
        }
    }
    for (size_t i = 0; has_plan && i < count; i++) {
        items[i].offset = best[i];
    }
out:
    free(best);
    free(placed);
    free(keys);
    return has_plan;
}

bool flw_plan_place(struct flw_plan_item *items, size_t count, uint64_t effort_ns,
                    uint64_t *out_bytes)
{
    *out_bytes = 0;
    if (count == 0) {
        return true;
    }
    uint64_t begin_ns = effort_ns != 0 ? flw_clock_fine_ns() : 0;
    struct flw_plan_goal goal = {
        .lower_bytes = count <= FLW_PLAN_GRAPH_MAX_ITEMS ? flw_plan_padded_bound(items, count) : 0,
        .deadline_ns = effort_ns != 0 ? add_saturated(begin_ns, effort_ns) : 0,
    };
    if (!place_first_fit(items, count, goal.lower_bytes, out_bytes)) {
        return false;
    }
    if (*out_bytes == goal.lower_bytes || count > FLW_PLAN_GRAPH_MAX_ITEMS ||
        *out_bytes > FLW_PLAN_SEARCH_MAX_BYTES) {
        return true;
    }
    return flw_plan_search_improve(items, count, goal, out_bytes);
}
