/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/audit/liveblocks.h"

#include "base/bits.h"

#define NODE_BYTES_MAX (4 * FLW_GIB) /* address space, not memory */

static uint32_t hash(uint64_t address)
{
    address ^= address >> 33;
    address *= 0xff51afd7ed558ccdull;
    address ^= address >> 29;
    return (uint32_t)(address >> 8);
}

bool flw_liveblocks_init(struct flw_liveblocks *blocks)
{
    *blocks = (struct flw_liveblocks){0};
    if (!flw_meta_reserve(&blocks->memory, NODE_BYTES_MAX)) {
        return false;
    }
    blocks->nodes = flw_meta_extend(&blocks->memory, sizeof *blocks->nodes, 8);
    blocks->made_count = 1;
    if (blocks->nodes == NULL) {
        flw_liveblocks_finish(blocks);
        return false;
    }
    return true;
}

void flw_liveblocks_finish(struct flw_liveblocks *blocks)
{
    flw_meta_release(&blocks->memory);
    *blocks = (struct flw_liveblocks){0};
}

/* 0: no memory. */
static uint32_t make_node(struct flw_liveblocks *blocks)
{
    uint32_t node = blocks->unused;
    if (node != 0) {
        blocks->unused = blocks->nodes[node].left;
    } else if (flw_meta_extend(&blocks->memory, sizeof *blocks->nodes, 8) != NULL) {
        node = blocks->made_count++;
    }
    return node;
}

/* Nodes below `address` to the left, the others to the right. */
static void split(struct flw_liveblocks *blocks, uint32_t tree, uint64_t address,
                  uint32_t *out_left, uint32_t *out_right)
{
    while (tree != 0) {
        struct flw_liveblock *node = &blocks->nodes[tree];
        if (node->begin < address) {
            *out_left = tree;
            out_left = &node->right;
            tree = node->right;
        } else {
            *out_right = tree;
            out_right = &node->left;
            tree = node->left;
        }
    }
    *out_left = 0;
    *out_right = 0;
}

/* All of `left` is below all of `right`. */
static uint32_t merge(struct flw_liveblocks *blocks, uint32_t left, uint32_t right)
{
    uint32_t root = 0;
    uint32_t *place = &root;
    while (left != 0 && right != 0) {
        struct flw_liveblock *low = &blocks->nodes[left], *high = &blocks->nodes[right];
        if (low->weight >= high->weight) {
            *place = left;
            place = &low->right;
            left = low->right;
        } else {
            *place = right;
            place = &high->left;
            right = high->left;
        }
    }
    *place = left != 0 ? left : right;
    return root;
}

/* Return the last block that begins at or below the address; 0: none. */
static uint32_t find_floor(const struct flw_liveblocks *blocks, uint64_t address)
{
    uint32_t found = 0;
    for (uint32_t node = blocks->root; node != 0;) {
        if (blocks->nodes[node].begin <= address) {
            found = node;
            node = blocks->nodes[node].right;
        } else {
            node = blocks->nodes[node].left;
        }
    }
    return found;
}

struct flw_liveblock *flw_liveblocks_find(struct flw_liveblocks *blocks, uint64_t address)
{
    uint32_t node = find_floor(blocks, address);
    return node != 0 && address < blocks->nodes[node].end ? &blocks->nodes[node] : NULL;
}

void flw_liveblocks_remove(struct flw_liveblocks *blocks, uint64_t address)
{
    uint32_t *place = &blocks->root;
    while (*place != 0 && blocks->nodes[*place].begin != address) {
        struct flw_liveblock *node = &blocks->nodes[*place];
        place = node->begin < address ? &node->right : &node->left;
    }
    uint32_t node = *place;
    if (node != 0) {
        *place = merge(blocks, blocks->nodes[node].left, blocks->nodes[node].right);
        blocks->nodes[node].left = blocks->unused;
        blocks->unused = node;
        blocks->count--;
    }
}

static void remove_overlapping(struct flw_liveblocks *blocks, uint64_t begin, uint64_t end)
{
    for (;;) {
        uint32_t node = find_floor(blocks, end - 1);
        if (node == 0 || blocks->nodes[node].end <= begin) {
            return;
        }
        flw_liveblocks_remove(blocks, blocks->nodes[node].begin);
    }
}

bool flw_liveblocks_add(struct flw_liveblocks *blocks, uint64_t address, uint64_t bytes)
{
    if (bytes == 0 || bytes > UINT64_MAX - address) {
        return false;
    }
    remove_overlapping(blocks, address, address + bytes);
    uint32_t node = make_node(blocks);
    if (node == 0) {
        return false;
    }
    blocks->nodes[node] = (struct flw_liveblock){
        .begin = address, .end = address + bytes, .epoch = blocks->epoch, .weight = hash(address)};
    uint32_t left, right;
    split(blocks, blocks->root, address, &left, &right);
    blocks->root = merge(blocks, merge(blocks, left, node), right);
    blocks->count++;
    return true;
}

void flw_liveblocks_touch_all(struct flw_liveblocks *blocks)
{
    blocks->epoch++;
}

bool flw_liveblock_is_touched(const struct flw_liveblocks *blocks,
                              const struct flw_liveblock *block)
{
    return block->is_touched || block->epoch != blocks->epoch;
}

bool flw_liveblock_is_fresh(const struct flw_liveblocks *blocks, const struct flw_liveblock *block,
                            uint64_t begin, uint64_t end)
{
    if (flw_liveblock_is_touched(blocks, block)) {
        return false;
    }
    for (unsigned i = 0; i < block->fill_count; i++) {
        if (begin < block->fills[i].end && block->fills[i].begin < end) {
            return false;
        }
    }
    return true;
}

void flw_liveblock_fill(struct flw_liveblock *block, uint64_t begin, uint64_t end)
{
    for (unsigned i = 0; i < block->fill_count; i++) {
        struct flw_stretch *fill = &block->fills[i];
        if (begin <= fill->end && fill->begin <= end) { /* joined; may meet another one */
            struct flw_stretch joined = {flw_min(begin, fill->begin), flw_max(end, fill->end)};
            *fill = block->fills[--block->fill_count];
            flw_liveblock_fill(block, joined.begin, joined.end);
            return;
        }
    }
    if (block->fill_count == FLW_LIVEBLOCK_FILLS) {
        block->is_touched = true;
        return;
    }
    block->fills[block->fill_count++] = (struct flw_stretch){begin, end};
}

static bool is_block_valid(const struct flw_liveblock *block)
{
    for (unsigned i = 0; i < block->fill_count; i++) {
        const struct flw_stretch *fill = &block->fills[i];
        if (fill->begin < block->begin || fill->end > block->end || fill->begin >= fill->end) {
            return false;
        }
        for (unsigned k = 0; k < i; k++) {
            if (fill->begin < block->fills[k].end && block->fills[k].begin < fill->end) {
                return false;
            }
        }
    }
    return block->begin < block->end && block->fill_count <= FLW_LIVEBLOCK_FILLS;
}

/* In order: each begins at or after the end of the one before. */
static bool is_tree_valid(const struct flw_liveblocks *blocks, uint32_t tree, uint64_t *end,
                          uint64_t *count)
{
    if (tree == 0) {
        return true;
    }
    const struct flw_liveblock *node = &blocks->nodes[tree];
    if ((node->left != 0 && blocks->nodes[node->left].weight > node->weight) ||
        (node->right != 0 && blocks->nodes[node->right].weight > node->weight) ||
        !is_tree_valid(blocks, node->left, end, count) || node->begin < *end ||
        !is_block_valid(node)) {
        return false;
    }
    *end = node->end;
    ++*count;
    return is_tree_valid(blocks, node->right, end, count);
}

bool flw_liveblocks_is_valid(const struct flw_liveblocks *blocks)
{
    uint64_t end = 0, count = 0;
    return is_tree_valid(blocks, blocks->root, &end, &count) && count == blocks->count;
}
