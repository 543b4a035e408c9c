/* SPDX-License-Identifier: Apache-2.0 */
#include "report/json_tree.h"

#include <string.h>

#include "common/tool_host.h"

static uint32_t keep(struct flw_json_tree *tree, const char *text)
{
    size_t place = tree->text_bytes;
    tree->text_bytes += strlen(text) + 1;
    tree->texts = flw_host_grow(tree->texts, &tree->text_capacity, tree->text_bytes, 1);
    memcpy(tree->texts + place, text, tree->text_bytes - place);
    return (uint32_t)place;
}

static uint32_t add(struct flw_json_tree *tree, const struct flw_json_node *node)
{
    tree->nodes = flw_host_grow(tree->nodes, &tree->capacity, tree->count + 1, sizeof *tree->nodes);
    tree->nodes[tree->count] = *node;
    return (uint32_t)tree->count++;
}

bool flw_json_tree_read(struct flw_json_tree *tree, struct flw_json *json)
{
    uint32_t parents[FLW_JSON_DEPTH_MAX + 1], last[FLW_JSON_DEPTH_MAX + 1];
    struct flw_json_node node = {.kind = FLW_JSON_FAILED};
    size_t depth = 0;
    tree->count = tree->text_bytes = 0;
    (void)keep(tree, "");
    do {
        node.kind = flw_json_next(json);
        node.offset = json->offset;
        if (node.kind == FLW_JSON_FAILED || node.kind == FLW_JSON_END) {
            return false;
        }
        if (node.kind == FLW_JSON_OBJECT_END || node.kind == FLW_JSON_ARRAY_END) {
            depth--;
            continue;
        }
        if (node.kind == FLW_JSON_KEY) {
            node.key = keep(tree, json->text);
            continue;
        }
        bool is_parent = node.kind == FLW_JSON_OBJECT || node.kind == FLW_JSON_ARRAY;
        if (node.kind == FLW_JSON_STRING) {
            flw_json_unescape(json);
        }
        node.text = is_parent ? 0 : keep(tree, json->text);
        uint32_t place = add(tree, &node);
        if (depth != 0) {
            *(last[depth] == 0 ? &tree->nodes[parents[depth]].child
                               : &tree->nodes[last[depth]].next) = place;
            last[depth] = place;
        }
        node.key = 0;
        if (is_parent) {
            parents[++depth] = place;
            last[depth] = 0;
        }
    } while (depth != 0);
    return true;
}

void flw_json_tree_finish(struct flw_json_tree *tree)
{
    flw_host_free(tree->nodes);
    flw_host_free(tree->texts);
    *tree = (struct flw_json_tree){0};
}

const struct flw_json_node *flw_json_member(const struct flw_json_tree *tree,
                                            const struct flw_json_node *object, const char *key,
                                            enum flw_json_token kind)
{
    for
        FLW_JSON_EACH(tree, node, object)
        {
            if ((kind == FLW_JSON_FAILED || node->kind == kind) &&
                strcmp(flw_json_key_of(tree, node), key) == 0) {
                return node;
            }
        }
    return flw_json_at(tree, 0);
}
