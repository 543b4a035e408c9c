/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the ordered set of ranges compared with a plain table: lookups of every address after
 * every step, the order of the list, the shape of the treap. */
#include "base/tree.h"

#include "support/test.h"

enum {
    SLOTS = 64,
    WIDTH = 16,
    STEPS = 20000
}; /* a slot is WIDTH addresses and one node's at most */

static struct flw_tree_node nodes[SLOTS];
static bool is_in[SLOTS];
static struct flw_tree tree;

static void begin(void)
{
    memset(nodes, 0, sizeof nodes);
    memset(is_in, 0, sizeof is_in);
    tree = (struct flw_tree){.seed = 7};
}

static void insert(unsigned slot, uint64_t from, uint64_t bytes)
{
    nodes[slot].begin = slot * WIDTH + from;
    nodes[slot].end = nodes[slot].begin + bytes;
    flw_tree_insert(&tree, &nodes[slot]);
    is_in[slot] = true;
}

static void take_out(unsigned slot)
{
    flw_tree_remove(&tree, &nodes[slot]);
    is_in[slot] = false;
}

static struct flw_tree_node *expected_from(uint64_t address)
{
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        if (is_in[slot] && nodes[slot].end > address) {
            return &nodes[slot];
        }
    }
    return NULL;
}

static void expect_list(void)
{
    struct flw_tree_node *previous = NULL;
    uint64_t count = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        if (is_in[slot]) {
            assert_ptr_equal(nodes[slot].previous, previous);
            assert_true(previous == NULL || previous->next == &nodes[slot]);
            previous = &nodes[slot];
            count++;
        }
    }
    assert_ptr_equal(tree.last, previous);
    assert_true(previous == NULL || previous->next == NULL);
    assert_int_equal(tree.count, count);
}

/* Returns how many nodes hang there. */
static uint64_t expect_treap(const struct flw_tree_node *node, const struct flw_tree_node *up)
{
    if (node == NULL) {
        return 0;
    }
    assert_ptr_equal(node->up, up);
    assert_true(up == NULL || up->priority >= node->priority);
    assert_true(node->left == NULL || node->left->end <= node->begin);
    assert_true(node->right == NULL || node->right->begin >= node->end);
    return 1 + expect_treap(node->left, node) + expect_treap(node->right, node);
}

TEST(any_order_of_steps_keeps_set_list_and_shape)
{
    uint64_t seed = flw_test_seed("tree");
    begin();
    for (int step = 0; step < STEPS; step++) {
        uint64_t r = flw_test_random(&seed);
        unsigned slot = (unsigned)(r % SLOTS);
        if (is_in[slot]) {
            take_out(slot);
        } else {
            uint64_t from = (r >> 8) % WIDTH;
            insert(slot, from, 1 + (r >> 16) % (WIDTH - from));
        }
        uint64_t address = (r >> 24) % ((SLOTS + 1) * WIDTH);
        assert_ptr_equal(flw_tree_search(&tree, address), expected_from(address));
        assert_ptr_equal(flw_tree_from(&tree, address), expected_from(address));
        struct flw_tree_node *there = expected_from(address);
        assert_ptr_equal(flw_tree_find(&tree, address),
                         there != NULL && there->begin <= address ? there : NULL);
        expect_list();
        assert_int_equal(expect_treap(tree.root, NULL), tree.count);
    }
}

/* Any node of an earlier search is a valid start for the next. */
TEST(an_address_is_found_from_wherever_the_last_search_ended)
{
    begin();
    for (unsigned slot = 0; slot < SLOTS; slot += 3) {
        insert(slot, 4, 8);
    }
    for (uint64_t before = 0; before <= SLOTS * WIDTH; before += 5) {
        for (uint64_t address = 0; address <= SLOTS * WIDTH; address++) {
            flw_tree_from(&tree, before);
            assert_ptr_equal(flw_tree_from(&tree, address), expected_from(address));
        }
    }
}

TEST(a_range_that_changes_in_place_is_found_where_it_is)
{
    begin();
    insert(1, 0, WIDTH);
    insert(2, 8, 8);
    assert_ptr_equal(flw_tree_from(&tree, WIDTH + 8), &nodes[1]);
    nodes[1].end = WIDTH + 4;
    assert_ptr_equal(flw_tree_from(&tree, WIDTH + 8), &nodes[2]);
    nodes[2].begin = WIDTH + 4;
    assert_ptr_equal(flw_tree_find(&tree, WIDTH + 8), &nodes[2]);
}

FLW_TEST_MAIN(NULL, NULL)
