/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the treap of tree.h.
 * Does not: allocate.
 */
#include "simcuda/tree.h"

static void split(struct flw_tree_node *node, uint64_t key, struct flw_tree_node **left,
                  struct flw_tree_node **right)
{
    while (node != NULL) {
        if (node->begin < key) {
            *left = node;
            left = &node->right;
            node = node->right;
        } else {
            *right = node;
            right = &node->left;
            node = node->left;
        }
    }
    *left = NULL;
    *right = NULL;
}

void flw_tree_insert(struct flw_tree *tree, struct flw_tree_node *node)
{
    tree->seed = tree->seed * 1664525u + 1013904223u;
    node->priority = tree->seed ^ (tree->seed >> 15);
    struct flw_tree_node **place = &tree->root;
    while (*place != NULL && (*place)->priority >= node->priority) {
        place = node->begin < (*place)->begin ? &(*place)->left : &(*place)->right;
    }
    split(*place, node->begin, &node->left, &node->right);
    *place = node;
    tree->count++;
}

void flw_tree_remove(struct flw_tree *tree, struct flw_tree_node *node)
{
    struct flw_tree_node **place = &tree->root;
    while (*place != node) {
        place = node->begin < (*place)->begin ? &(*place)->left : &(*place)->right;
    }
    struct flw_tree_node *left = node->left;
    struct flw_tree_node *right = node->right;
    while (left != NULL && right != NULL) {
        if (left->priority >= right->priority) {
            *place = left;
            place = &left->right;
            left = left->right;
        } else {
            *place = right;
            place = &right->left;
            right = right->left;
        }
    }
    *place = left != NULL ? left : right;
    tree->count--;
}

struct flw_tree_node *flw_tree_from(const struct flw_tree *tree, uint64_t address)
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
