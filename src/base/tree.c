/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the treap of tree.h.
 * Does not: allocate.
 */
#include "base/tree.h"

/* Replace `old` below `parent`, or as the root, by `node`, which may be NULL. */
static void hang(struct flw_tree *tree, struct flw_tree_node *parent,
                 const struct flw_tree_node *old, struct flw_tree_node *node)
{
    if (parent == NULL) {
        tree->root = node;
    } else if (parent->left == old) {
        parent->left = node;
    } else {
        parent->right = node;
    }
    if (node != NULL) {
        node->up = parent;
    }
}

/* Make the node the parent of the parent; the order stays. */
static void rotate(struct flw_tree *tree, struct flw_tree_node *node)
{
    struct flw_tree_node *parent = node->up;
    hang(tree, parent->up, parent, node);
    if (parent->left == node) {
        hang(tree, parent, node, node->right);
        node->right = parent;
    } else {
        hang(tree, parent, node, node->left);
        node->left = parent;
    }
    parent->up = node;
}

static void link_between(struct flw_tree *tree, struct flw_tree_node *node,
                         struct flw_tree_node *previous, struct flw_tree_node *next)
{
    node->previous = previous;
    node->next = next;
    if (previous != NULL) {
        previous->next = node;
    }
    if (next != NULL) {
        next->previous = node;
    } else {
        tree->last = node;
    }
}

static void unlink_node(struct flw_tree *tree, const struct flw_tree_node *node)
{
    if (node->previous != NULL) {
        node->previous->next = node->next;
    }
    if (node->next != NULL) {
        node->next->previous = node->previous;
    } else {
        tree->last = node->previous;
    }
}

/* One of two neighbours has no child on the side of the other: insert the node there, as a leaf. */
void flw_tree_insert_before(struct flw_tree *tree, struct flw_tree_node *node,
                            struct flw_tree_node *next)
{
    struct flw_tree_node *previous = next != NULL ? next->previous : tree->last;
    tree->seed = tree->seed * 1664525u + 1013904223u;
    node->priority = tree->seed ^ (tree->seed >> 15);
    node->left = node->right = NULL;
    if (next != NULL && next->left == NULL) {
        next->left = node;
        node->up = next;
    } else if (previous != NULL) {
        previous->right = node;
        node->up = previous;
    } else {
        tree->root = node;
        node->up = NULL;
    }
    link_between(tree, node, previous, next);
    while (node->up != NULL && node->up->priority < node->priority) {
        rotate(tree, node);
    }
    tree->near = node;
    tree->count++;
}

void flw_tree_insert(struct flw_tree *tree, struct flw_tree_node *node)
{
    flw_tree_insert_before(tree, node, flw_tree_from(tree, node->begin));
}

void flw_tree_remove(struct flw_tree *tree, struct flw_tree_node *node)
{
    while (node->left != NULL && node->right != NULL) {
        rotate(tree, node->left->priority >= node->right->priority ? node->left : node->right);
    }
    hang(tree, node->up, node, node->left != NULL ? node->left : node->right);
    unlink_node(tree, node);
    tree->near = node->next != NULL ? node->next : node->previous;
    tree->count--;
}

struct flw_tree_node *flw_tree_search(const struct flw_tree *tree, uint64_t address)
{
    struct flw_tree_node *found = NULL;
    struct flw_tree_node *node = tree->root;
    while (node != NULL) {
        if (node->end > address) {
            found = node;
            node = node->left;
        } else {
            node = node->right;
        }
    }
    return found;
}
