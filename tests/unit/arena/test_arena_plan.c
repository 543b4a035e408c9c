/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the proof that plans are valid, repeatable, and as small as possible where the minimum is
 * known: by hand, by construction, or by exhaustive search. */
#include "support/test.h"

#include <string.h>

#include "arena/plan.h"
#include "arena/plan_graph.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static struct flw_plan_item item_of(uint32_t first, uint32_t last, uint64_t bytes, uint64_t align)
{
    return (struct flw_plan_item){bytes, align, first, last, UINT64_MAX};
}

/* Place items with the fixed effort, validate the plan, return the bytes. */
static uint64_t place(struct flw_plan_item *items, size_t count)
{
    uint64_t bytes, proven_bytes;
    assert_true(flw_plan_place(items, count, 0, &bytes));
    assert_true(flw_plan_is_valid(items, count, &proven_bytes));
    assert_true(bytes == proven_bytes);
    assert_true(bytes >= flw_plan_padded_bound(items, count));
    assert_true(flw_plan_padded_bound(items, count) >= flw_plan_lower_bound(items, count));
    return bytes;
}

TEST(nothing_takes_nothing)
{
    uint64_t bytes = 7;
    assert_true(flw_plan_place(NULL, 0, 0, &bytes));
    assert_true(bytes == 0);
    assert_true(flw_plan_lower_bound(NULL, 0) == 0);
    assert_true(flw_plan_is_valid(NULL, 0, &bytes) && bytes == 0);
}

TEST(one_item_lies_at_zero)
{
    struct flw_plan_item item = item_of(0, UINT32_MAX, 12345, 4096);
    assert_true(place(&item, 1) == 12345);
    assert_true(item.offset == 0);
}

TEST(items_of_different_phases_share_memory)
{
    struct flw_plan_item items[] = {item_of(0, 0, 100, 1), item_of(1, 1, 70, 1),
                                    item_of(2, 9, 100, 1)};
    assert_true(place(items, COUNT_OF(items)) == 100);
}

TEST(items_that_meet_in_one_phase_do_not)
{
    struct flw_plan_item items[] = {item_of(0, 1, 100, 1), item_of(1, 2, 70, 1)};
    assert_true(place(items, COUNT_OF(items)) == 170);
}

/* A bridge of three arches: fits exactly in 12, and only with the long ones nested in this way. */
TEST(a_puzzle_with_one_answer_is_solved)
{
    struct flw_plan_item items[] = {item_of(0, 2, 4, 1), item_of(3, 8, 4, 1), item_of(0, 8, 4, 1),
                                    item_of(9, 20, 4, 1), item_of(0, 20, 4, 1)};
    assert_true(flw_plan_lower_bound(items, COUNT_OF(items)) == 12);
    assert_true(place(items, COUNT_OF(items)) == 12);
}

/* 512 + 1 bytes at an alignment of 512, and 511 bytes that fit into the gap only. */
TEST(what_alignment_leaves_free_is_used)
{
    struct flw_plan_item items[] = {item_of(0, 3, 513, 512), item_of(0, 3, 512, 512),
                                    item_of(0, 3, 511, 1)};
    assert_true(place(items, COUNT_OF(items)) == 513 + 511 + 512);
    for (size_t i = 0; i < COUNT_OF(items); i++) {
        assert_true(items[i].offset % items[i].align_bytes == 0);
    }
}

TEST(validity_refuses_every_kind_of_fault)
{
    uint64_t bytes;
    struct flw_plan_item good[] = {item_of(0, 1, 64, 16), item_of(1, 2, 64, 16)};
    good[0].offset = 0;
    good[1].offset = 64;
    assert_true(flw_plan_is_valid(good, 2, &bytes) && bytes == 128);
    struct flw_plan_item bad[2];
    memcpy(bad, good, sizeof(bad));
    bad[1].offset = 48; /* overlaps */
    assert_false(flw_plan_is_valid(bad, 2, &bytes));
    bad[1].first_phase = 2; /* but not in time */
    assert_true(flw_plan_is_valid(bad, 2, &bytes) && bytes == 112);
    bad[1].offset = 72; /* not aligned */
    assert_false(flw_plan_is_valid(bad, 2, &bytes));
    memcpy(bad, good, sizeof(bad));
    bad[1].offset = UINT64_MAX - 47; /* wraps */
    bad[1].offset -= bad[1].offset % 16;
    assert_false(flw_plan_is_valid(bad, 2, &bytes));
    memcpy(bad, good, sizeof(bad));
    bad[0].align_bytes = 24; /* no power of two */
    assert_false(flw_plan_is_valid(bad, 2, &bytes));
}

static uint64_t draw(uint64_t *state, uint64_t count)
{
    return flw_test_random(state) % count;
}

static void draw_items(struct flw_plan_item *items, size_t count, uint64_t *state)
{
    uint64_t phases = 1 + draw(state, 2 * count);
    uint64_t size = 1 + draw(state, 1000), longest = 1 + draw(state, phases);
    for (size_t i = 0; i < count; i++) {
        uint32_t first = (uint32_t)draw(state, phases);
        items[i] = item_of(first, first + (uint32_t)draw(state, longest), 1 + draw(state, size),
                           UINT64_C(1) << draw(state, 7));
    }
}

/* Give all items one alignment, as in most layouts. */
static void align_all(struct flw_plan_item *items, size_t count, uint64_t align_bytes)
{
    for (size_t i = 0; i < count; i++) {
        items[i].align_bytes = align_bytes;
    }
}

TEST(every_random_plan_is_a_plan)
{
    uint64_t random = flw_test_seed("arena_plan");
    static struct flw_plan_item items[120];
    for (int round = 0; round < 60; round++) {
        size_t count = 1 + draw(&random, COUNT_OF(items));
        draw_items(items, count, &random);
        place(items, count);
    }
}

/* The least end over all orders, each item at the lowest place free in that order: some order gives the
 * optimum, because an optimal plan pushed down is placed so from below. Knows nothing of the planner. */
static uint64_t least_of_all_orders(struct flw_plan_item *items, size_t count, unsigned placed)
{
    if (placed == (1u << count) - 1) {
        uint64_t top = 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t end = items[i].offset + items[i].bytes;
            top = end > top ? end : top;
        }
        return top;
    }
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if ((placed & (1u << i)) != 0) {
            continue;
        }
        uint64_t offset = 0;
        for (size_t j = 0; j < count; j++) {
            const struct flw_plan_item *a = &items[i], *b = &items[j];
            if ((placed & (1u << j)) != 0 && a->first_phase <= b->last_phase &&
                b->first_phase <= a->last_phase && offset < b->offset + b->bytes &&
                b->offset < offset + a->bytes) {
                uint64_t end = b->offset + b->bytes;
                offset = (end + a->align_bytes - 1) / a->align_bytes * a->align_bytes;
                j = (size_t)-1; /* from the first again: the place has moved */
            }
        }
        items[i].offset = offset;
        uint64_t top = least_of_all_orders(items, count, placed | 1u << i);
        least = top < least ? top : least;
    }
    return least;
}

/* The search skips steps that seldom help, so one plan in hundreds may be a few bytes above the
 * minimum. */
TEST(small_plans_are_as_good_as_the_smallest_there_are)
{
    uint64_t random = flw_test_seed("arena_plan");
    int exact = 0, rounds = 400;
    for (int round = 0; round < rounds; round++) {
        struct flw_plan_item items[6], copy[6];
        size_t count = 1 + draw(&random, COUNT_OF(items));
        draw_items(items, count, &random);
        if (round % 2 == 0) {
            align_all(items, count, UINT64_C(1) << draw(&random, 9));
        }
        memcpy(copy, items, sizeof(copy));
        uint64_t least = least_of_all_orders(copy, count, 0);
        assert_true(flw_plan_padded_bound(items, count) <= least);
        uint64_t found = place(items, count);
        if (found != least) {
            print_message("round %d: %llu bytes, %llu are enough\n", round,
                          (unsigned long long)found, (unsigned long long)least);
        }
        assert_true(found >= least && found * 100 <= least * 105);
        exact += found == least;
    }
    assert_true(exact * 100 >= rounds * 97);
}

/* The search stops at the padded bound; a larger plan costs the full effort. */
TEST(plans_of_one_alignment_meet_the_padded_bound)
{
    uint64_t random = flw_test_seed("arena_plan");
    int met = 0, rounds = 300;
    for (int round = 0; round < rounds; round++) {
        struct flw_plan_item items[40];
        size_t count = 1 + draw(&random, COUNT_OF(items));
        draw_items(items, count, &random);
        align_all(items, count, 256);
        met += place(items, count) == flw_plan_padded_bound(items, count);
        for (size_t i = 0; i < count; i++) {
            items[i].first_phase = 0; /* all alive together */
        }
        assert_true(place(items, count) == flw_plan_padded_bound(items, count));
    }
    assert_true(met * 100 >= rounds * 95);
}

struct cutter {
    struct flw_plan_item *items;
    size_t count, most;
    uint64_t *random;
};

/* Cut a rectangle of phases and bytes in two, repeatedly; the pieces fill it without a gap. */
static void cut(struct cutter *cutter, uint32_t first, uint32_t last, uint64_t bytes, unsigned cuts)
{
    if (cuts == 0 || bytes < 64 || first == last) {
        cutter->items[cutter->count++] = item_of(first, last, bytes, 1);
        return;
    }
    if (draw(cutter->random, 2) == 0) {
        uint32_t middle = first + (uint32_t)draw(cutter->random, last - first);
        cut(cutter, first, middle, bytes, cuts - 1);
        cut(cutter, middle + 1, last, bytes, cuts - 1);
    } else {
        uint64_t lower_bytes = 1 + draw(cutter->random, bytes - 1);
        cut(cutter, first, last, lower_bytes, cuts - 1);
        cut(cutter, first, last, bytes - lower_bytes, cuts - 1);
    }
}

/* Packings without a gap are harder than any layout of a model's step, and their
 * optimum is known. */
TEST(cut_rectangles_are_put_together_within_two_percent)
{
    uint64_t random = flw_test_seed("arena_plan");
    const uint64_t bytes = 1000 * 1000;
    for (int round = 0; round < 40; round++) {
        struct flw_plan_item items[32];
        struct cutter cutter = {items, 0, COUNT_OF(items), &random};
        cut(&cutter, 0, 40, bytes, 5);
        assert_true(flw_plan_lower_bound(items, cutter.count) == bytes);
        uint64_t found = place(items, cutter.count);
        if (found > bytes / 100 * 102) {
            print_error("round %d: %zu pieces, %llu\n", round, cutter.count,
                        (unsigned long long)found);
        }
        assert_true(found <= bytes / 100 * 102);
    }
}

TEST(the_same_items_get_the_same_plan)
{
    uint64_t random = flw_test_seed("arena_plan");
    static struct flw_plan_item once[150], again[150];
    for (int round = 0; round < 3; round++) {
        draw_items(once, COUNT_OF(once), &random);
        memcpy(again, once, sizeof(again));
        place(once, COUNT_OF(once));
        place(again, COUNT_OF(again));
        assert_memory_equal(once, again, sizeof(once));
    }
}

TEST(more_effort_never_gives_more_bytes_than_first_fit)
{
    uint64_t random = flw_test_seed("arena_plan");
    static struct flw_plan_item items[100];
    uint64_t bytes, proven_bytes;
    draw_items(items, COUNT_OF(items), &random);
    uint64_t total_bytes = 0;
    for (size_t i = 0; i < COUNT_OF(items); i++) {
        total_bytes += items[i].bytes + items[i].align_bytes;
    }
    assert_true(flw_plan_place(items, COUNT_OF(items), 1, &bytes));
    assert_true(flw_plan_is_valid(items, COUNT_OF(items), &proven_bytes));
    assert_true(bytes == proven_bytes && bytes <= total_bytes);
    assert_true(flw_plan_place(items, COUNT_OF(items), 20 * 1000 * 1000, &proven_bytes));
    assert_true(proven_bytes <= bytes);
}

TEST(huge_sizes_do_not_wrap)
{
    const uint64_t huge = UINT64_C(1) << 62;
    struct flw_plan_item three[] = {item_of(0, 1, huge, 1), item_of(1, 2, huge, huge),
                                    item_of(1, 3, huge - 1, 2)};
    assert_true(place(three, 3) == 3 * huge - 1);
    struct flw_plan_item apart[] = {item_of(0, 0, huge, 1), item_of(1, UINT32_MAX, huge, 4096),
                                    item_of(0, UINT32_MAX, huge, 64), item_of(7, 9, 1, 1)};
    assert_true(place(apart, 4) == 2 * huge + 1);
    uint64_t bytes;
    struct flw_plan_item five[] = {item_of(0, 1, huge, 1), item_of(0, 1, huge, 1),
                                   item_of(0, 1, huge, 1), item_of(0, 1, huge, 1),
                                   item_of(0, 1, huge, 1)};
    assert_true(flw_plan_lower_bound(five, 5) == UINT64_MAX);
    assert_false(flw_plan_place(five, 5, 0, &bytes));
}

/* As many as a layout may have: beyond the search, and still a plan. */
TEST(sixty_five_thousand_items_are_placed)
{
    const size_t count = 65535;
    struct flw_plan_item *items = malloc(count * sizeof(*items));
    assert_non_null(items);
    for (uint32_t i = 0; i < count; i++) {
        items[i] = item_of(i, i + 50, 256 * (1 + (i * 7919) % 97), 256);
    }
    uint64_t bytes = place(items, count), bound = flw_plan_lower_bound(items, count);
    free(items);
    assert_true(bytes <= 2 * bound);
}

/* The largest count that is searched, all alive together: as many neighbours as there can be. */
TEST(a_full_graph_is_placed_at_the_bound)
{
    static struct flw_plan_item items[FLW_PLAN_GRAPH_MAX_ITEMS];
    for (uint32_t i = 0; i < COUNT_OF(items); i++) {
        items[i] = item_of(i, 5000 - i, 1 + i % 13, 1);
    }
    assert_true(place(items, COUNT_OF(items)) == flw_plan_lower_bound(items, COUNT_OF(items)));
}

/* Nearly as many neighbours, and no order of first fit meets the bound: the search has the largest
 * lists. */
TEST(the_largest_search_comes_within_a_tenth)
{
    static struct flw_plan_item items[FLW_PLAN_GRAPH_MAX_ITEMS];
    uint64_t fixed = 42;
    for (size_t i = 0; i < COUNT_OF(items); i++) {
        uint32_t first = (uint32_t)draw(&fixed, 1000);
        uint32_t last = first + (uint32_t)draw(&fixed, 900);
        items[i] = item_of(first, last, 256 * (1 + draw(&fixed, 4000)), 256);
    }
    uint64_t bytes = place(items, COUNT_OF(items));
    assert_true(bytes <= flw_plan_lower_bound(items, COUNT_OF(items)) / 100 * 110);
}

TEST(graphs_hold_what_their_invariants_say)
{
    uint64_t random = flw_test_seed("arena_plan");
    static struct flw_plan_item items[80];
    struct flw_plan_graph graph;
    for (int round = 0; round < 20; round++) {
        size_t count = 1 + draw(&random, COUNT_OF(items));
        draw_items(items, count, &random);
        assert_true(flw_plan_graph_create(&graph, items, count));
        for (uint32_t i = 0; i < count; i++) {
            uint32_t at = graph.neighbour_begin[i];
            for (uint32_t j = 0; j < count; j++) {
                bool meets = items[i].first_phase <= items[j].last_phase &&
                             items[j].first_phase <= items[i].last_phase;
                if (i != j && meets) {
                    assert_true(at < graph.neighbour_begin[i + 1] && graph.neighbour[at++] == j);
                }
            }
            assert_true(at == graph.neighbour_begin[i + 1]);
            assert_true(graph.first[i] <= graph.last[i] && graph.last[i] < graph.section_count);
        }
        for (uint32_t t = 0; t < graph.section_count; t++) {
            uint32_t at = graph.member_begin[t];
            for (uint32_t i = 0; i < count; i++) {
                if (graph.first[i] <= t && t <= graph.last[i]) {
                    assert_true(at < graph.member_begin[t + 1] && graph.member[at++] == i);
                }
            }
            assert_true(at == graph.member_begin[t + 1]);
        }
        flw_plan_graph_destroy(&graph);
    }
    assert_false(flw_plan_graph_create(&graph, items, 0));
}

FLW_TEST_MAIN(NULL, NULL)
