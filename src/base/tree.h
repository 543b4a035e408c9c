/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: an ordered set of address ranges that never overlap: a treap with nodes that also form a
 * list in order. Nodes are embedded in the objects; the tree allocates nothing.
 * Does not: split or merge ranges: the caller removes, changes and inserts. Search by another key:
 * such a caller ignores the ranges, descends from the root itself and inserts before the node
 * found.
 * Synchronization: the caller's.
 *
 * Driver calls often concern neighbours: a pool maps, uses and unmaps one handle after the other.
 * The tree remembers the last node found. Finding, inserting and removing at that node or the
 * neighbour costs O(1), elsewhere O(log n).
 *
 * INVARIANTS  for all nodes a before b in order: a.end <= b.begin; begin < end;
 *             parent.priority >= child.priority; near is NULL or in the tree */
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
    struct flw_tree_node *last; /* highest */
    struct flw_tree_node *near; /* found last */
    uint64_t count;
    uint32_t seed;
};

/* Insert a node. The range must not overlap another's. */
void flw_tree_insert(struct flw_tree *tree, struct flw_tree_node *node);
void flw_tree_remove(struct flw_tree *tree, struct flw_tree_node *node);
/* Insert a node before `next`, whatever the range; as the last if next is NULL. */
void flw_tree_insert_before(struct flw_tree *tree, struct flw_tree_node *node,
                            struct flw_tree_node *next);
/* Search from the root; result as flw_tree_from. */
struct flw_tree_node *flw_tree_search(const struct flw_tree *tree, uint64_t address);

/* True if node is the first that ends after `address`. NULL follows the last node. */
static inline bool flw_tree_is_first(const struct flw_tree_node *previous,
                                     const struct flw_tree_node *node, uint64_t address)
{
    return (previous == NULL || previous->end <= address) && (node == NULL || node->end > address);
}

/* Return the first node that ends after `address`; it may also begin after it. */
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

/* Return the node that contains `address`, or NULL. */
static inline struct flw_tree_node *flw_tree_find(struct flw_tree *tree, uint64_t address)
{
    struct flw_tree_node *node = flw_tree_from(tree, address);
    return node != NULL && node->begin <= address ? node : NULL;
}

#define FLW_CONTAINER(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
