/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a JSON value in memory as a tree, for reading reports and records of ranks back.
 * Does not: interpret members.
 */
#ifndef FLW_TOOL_REPORT_JSON_TREE_H
#define FLW_TOOL_REPORT_JSON_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/io/json.h"

/* Visit the members or elements of a node by `for (at = node->child; at != NULL; at = at->next)`. */
struct flw_json_node {
    /* OBJECT, ARRAY, STRING, NUMBER or LITERAL; FAILED: there is no such node */
    enum flw_json_token kind;
    const char *key, *text; /* "" if there is none; strings are unescaped */
    const struct flw_json_node *child, *next;
    uint64_t offset;             /* in the file */
    struct flw_json_node *older; /* the node read before this one */
};

struct flw_json_tree {
    const struct flw_json_node *root;
    struct flw_json_node *newest; /* of all nodes */
};

/* Replace the tree by the next value. Returns false if the value is incomplete or invalid; see the input's message. */
bool flw_json_tree_read(struct flw_json_tree *tree, struct flw_json *json);
void flw_json_tree_finish(struct flw_json_tree *tree);

/* Return the first member of that name and kind (FLW_JSON_FAILED: any); of kind FLW_JSON_FAILED if there is none. */
const struct flw_json_node *flw_json_member(const struct flw_json_node *object, const char *key,
                                            enum flw_json_token kind);

#endif
