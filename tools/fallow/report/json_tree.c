/* SPDX-License-Identifier: Apache-2.0 */
#include "report/json_tree.h"

#include <string.h>

#include "common/tool_host.h"

/* Add a node, followed by copies of its texts. */
static struct flw_json_node *add(struct flw_json_tree *tree, enum flw_json_token kind,
                                 const char *key, const char *text, uint64_t offset)
{
    size_t key_bytes = strlen(key) + 1, text_bytes = strlen(text) + 1;
    struct flw_json_node *node = flw_host_alloc(1, sizeof *node + key_bytes + text_bytes);
    char *texts = (char *)(node + 1);
    *node = (struct flw_json_node){.kind = kind,
                                   .key = memcpy(texts, key, key_bytes),
                                   .text = memcpy(texts + key_bytes, text, text_bytes),
                                   .offset = offset,
                                   .older = tree->newest};
    tree->newest = node;
    return node;
}

bool flw_json_tree_read(struct flw_json_tree *tree, struct flw_json *json)
{
    const struct flw_json_node **places[FLW_JSON_DEPTH_MAX + 2]; /* of the next node, by depth */
    char key[FLW_JSON_TEXT_BYTES] = "";
    size_t depth = 0;
    flw_json_tree_finish(tree);
    places[0] = &tree->root;
    do {
        enum flw_json_token kind = flw_json_next(json);
        bool is_parent = kind == FLW_JSON_OBJECT || kind == FLW_JSON_ARRAY;
        if (kind == FLW_JSON_FAILED || kind == FLW_JSON_END) {
            return false;
        }
        if (kind == FLW_JSON_OBJECT_END || kind == FLW_JSON_ARRAY_END) {
            depth--;
        } else if (kind == FLW_JSON_KEY) {
            strcpy(key, json->text);
        } else {
            if (kind == FLW_JSON_STRING) {
                flw_json_unescape(json);
            }
            struct flw_json_node *node =
                add(tree, kind, key, is_parent ? "" : json->text, json->offset);
            *places[depth] = node;
            places[depth] = &node->next;
            places[depth + 1] = &node->child;
            depth += is_parent;
            key[0] = '\0';
        }
    } while (depth != 0);
    return true;
}

void flw_json_tree_finish(struct flw_json_tree *tree)
{
    while (tree->newest != NULL) {
        struct flw_json_node *node = tree->newest;
        tree->newest = node->older;
        flw_host_free(node);
    }
    tree->root = NULL;
}

const struct flw_json_node *flw_json_member(const struct flw_json_node *object, const char *key,
                                            enum flw_json_token kind)
{
    static const struct flw_json_node none = {.kind = FLW_JSON_FAILED, .key = "", .text = ""};
    const struct flw_json_node *at = object->child;
    while (at != NULL &&
           ((kind != FLW_JSON_FAILED && at->kind != kind) || strcmp(at->key, key) != 0)) {
        at = at->next;
    }
    return at == NULL ? &none : at;
}
