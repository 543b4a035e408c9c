/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a JSON value in memory as a tree, for reading reports and records of ranks back.
 * Does not: interpret members.
 */
#ifndef FLW_TOOL_REPORT_JSON_TREE_H
#define FLW_TOOL_REPORT_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/io/json.h"

struct flw_json_node {
    enum flw_json_token
        kind; /* OBJECT, ARRAY, STRING, NUMBER or LITERAL; FAILED: there is no such node */
    uint32_t key, text;   /* places in `texts`; strings are unescaped */
    uint32_t child, next; /* the first child and the next sibling; 0: none */
    uint64_t offset;      /* in the file */
};

struct flw_json_tree {
    struct flw_json_node *nodes; /* 0 is the root */
    size_t count, capacity;
    char *texts;
    size_t text_bytes, text_capacity;
};

/* Read the next value. Returns false if the value is incomplete or invalid; see the input's message. */
bool flw_json_tree_read(struct flw_json_tree *tree, struct flw_json *json);
void flw_json_tree_finish(struct flw_json_tree *tree);

static inline const struct flw_json_node *flw_json_at(const struct flw_json_tree *tree,
                                                      uint32_t place)
{
    static const struct flw_json_node none = {.kind = FLW_JSON_FAILED};
    return place == 0 ? &none : &tree->nodes[place];
}

/* Visit the members or elements of `parent`. */
#define FLW_JSON_EACH(tree, node, parent)                                     \
    (const struct flw_json_node *node = flw_json_at((tree), (parent)->child); \
     (node)->kind != FLW_JSON_FAILED; (node) = flw_json_at((tree), (node)->next))

static inline const char *flw_json_key_of(const struct flw_json_tree *tree,
                                          const struct flw_json_node *node)
{
    return tree->texts + node->key;
}

static inline const char *flw_json_text_of(const struct flw_json_tree *tree,
                                           const struct flw_json_node *node)
{
    return tree->texts + node->text;
}

/* Return the first member of that name and kind (FLW_JSON_FAILED: any); of kind FLW_JSON_FAILED if there is none. */
const struct flw_json_node *flw_json_member(const struct flw_json_tree *tree,
                                            const struct flw_json_node *object, const char *key,
                                            enum flw_json_token kind);

#endif
