/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: an ordered set of address ranges that never overlap: a treap whose nodes are a list too, in order.
 * Nodes are embedded in what they stand for; the tree allocates nothing.
 * Does not: split or merge ranges: the caller removes, changes and inserts. Know any other order: who has one
 * leaves the ranges alone, goes down from the root by it, and inserts before what it found there.
 * Synchronization: the caller's.
 *
 * Calls of a driver come in runs: a pool maps, uses and unmaps one handle behind the other. The tree
 * remembers the node that was met last. From there to the same node or its neighbour costs O(1), inserting
 * and removing there too; elsewhere the search costs O(log n).
 *
 * INVARIANTS  for all nodes a before b in order: a.end <= b.begin; begin < end;
 *             parent.priority >= child.priority; near is NULL or in the tree
 */
#ifndef FLW_BASE_TREE_H
#define FLW_BASE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flw_tree_node {
    struct flw_tree_node *up, *left, *right;
    struct flw_tree_node *previous, *next; /* in order */
    uint64_t begin, end;                   /* [begin, end) */
    uint32_t priority;
};

struct flw_tree {
    struct flw_tree_node *root;
    struct flw_tree_node *last; /* the highest */
    struct flw_tree_node *near; /* the one met last */
    uint64_t count;
    uint32_t seed;
};

/* The node's range must not overlap another's. */
void flw_tree_insert(struct flw_tree *tree, struct flw_tree_node *node);
void flw_tree_remove(struct flw_tree *tree, struct flw_tree_node *node);
/* The node's place is before `next`, whatever its range; NULL: it is the last. */
void flw_tree_insert_before(struct flw_tree *tree, struct flw_tree_node *node,
                            struct flw_tree_node *next);
/* From the root down, as flw_tree_from. */
struct flw_tree_node *flw_tree_search(const struct flw_tree *tree, uint64_t address);

/* Is it the first node that ends after `address`? NULL stands behind the last. */
static inline bool flw_tree_is_first(const struct flw_tree_node *previous,
                                     const struct flw_tree_node *node, uint64_t address)
{
    return (previous == NULL || previous->end <= address) && (node == NULL || node->end > address);
}

/* The first node that ends after `address`; it may begin after it too. */
static inline struct flw_tree_node *flw_tree_from(struct flw_tree *tree, uint64_t address)
{
    struct flw_tree_node *near = tree->near;
    struct flw_tree_node *found;
    if (near != NULL && flw_tree_is_first(near->previous, near, address)) {
        return near;
    }
    if (near != NULL && flw_tree_is_first(near, near->next, address)) {
        found = near->next;
    } else {
        found = flw_tree_search(tree, address);
    }
    tree->near = found != NULL ? found : tree->near;
    return found;
}

/* The node that contains `address`, or NULL. */
static inline struct flw_tree_node *flw_tree_find(struct flw_tree *tree, uint64_t address)
{
    struct flw_tree_node *node = flw_tree_from(tree, address);
    return node != NULL && node->begin <= address ? node : NULL;
}

#define FLW_CONTAINER(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
