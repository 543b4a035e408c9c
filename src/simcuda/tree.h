/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: an ordered set of address ranges that never overlap (a treap). Nodes are embedded in what
 * they stand for; the tree allocates nothing.
 * Does not: split or merge ranges: the caller removes, changes and inserts.
 * Synchronization: the world's lock.
 *
 * INVARIANTS  for all nodes a before b in order: a.end <= b.begin; begin < end;
 *             parent.priority >= child.priority
 */
#ifndef FLW_SIMCUDA_TREE_H
#define FLW_SIMCUDA_TREE_H

#include <stddef.h>
#include <stdint.h>

struct flw_tree_node {
    struct flw_tree_node *left, *right;
    uint64_t begin, end; /* [begin, end) */
    uint32_t priority;
};

struct flw_tree {
    struct flw_tree_node *root;
    uint64_t count;
    uint32_t seed;
};

/* The node's range must not overlap another's. */
void flw_tree_insert(struct flw_tree *tree, struct flw_tree_node *node);
void flw_tree_remove(struct flw_tree *tree, struct flw_tree_node *node);
/* The first node that ends after `address`; it may begin after it too. */
struct flw_tree_node *flw_tree_from(const struct flw_tree *tree, uint64_t address);
/* The node that contains `address`, or NULL. */
static inline struct flw_tree_node *flw_tree_find(const struct flw_tree *tree, uint64_t address)
{
    struct flw_tree_node *node = flw_tree_from(tree, address);
    return node != NULL && node->begin <= address ? node : NULL;
}

#define FLW_CONTAINER(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
