/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the holes of space.h: an ordered tree for merging, lists by size for searching.
 * Independent of the memory at an address. */
#include "simcuda/space.h"

#include <stdlib.h>

#include "base/bits.h"
#include "simcuda/host.h"

struct flw_hole {
    struct flw_tree_node node;
    struct flw_hole *previous, *next; /* of the same bucket */
};

static void add_hole(struct flw_space *space, uint64_t begin, uint64_t end)
{
    struct flw_hole *hole = flw_host_get(sizeof *hole);
    hole->node.begin = begin;
    hole->node.end = end;
    flw_tree_insert(&space->holes, &hole->node);
    struct flw_hole **head = &space->bucket[flw_log2_floor(end - begin)];
    hole->next = *head;
    if (*head != NULL) {
        (*head)->previous = hole;
    }
    *head = hole;
}

static void drop_hole(struct flw_space *space, struct flw_hole *hole)
{
    flw_tree_remove(&space->holes, &hole->node);
    if (hole->next != NULL) {
        hole->next->previous = hole->previous;
    }
    if (hole->previous != NULL) {
        hole->previous->next = hole->next;
    } else {
        space->bucket[flw_log2_floor(hole->node.end - hole->node.begin)] = hole->next;
    }
    free(hole);
}

void flw_space_init(struct flw_space *space, bool keeps_unused)
{
    *space = (struct flw_space){.keeps_unused = keeps_unused};
    add_hole(space, FLW_SPACE_BEGIN, FLW_SPACE_END);
}

void flw_space_finish(struct flw_space *space)
{
    while (space->holes.root != NULL) {
        drop_hole(space, FLW_CONTAINER(space->holes.root, struct flw_hole, node));
    }
}

static void carve(struct flw_space *space, struct flw_hole *hole, uint64_t begin, uint64_t end)
{
    uint64_t hole_begin = hole->node.begin;
    uint64_t hole_end = hole->node.end;
    drop_hole(space, hole);
    if (hole_begin < begin) {
        add_hole(space, hole_begin, begin);
    }
    if (end < hole_end) {
        add_hole(space, end, hole_end);
    }
}

bool flw_space_take_at(struct flw_space *space, uint64_t begin, uint64_t bytes)
{
    struct flw_tree_node *node = flw_tree_find(&space->holes, begin);
    if (node == NULL || node->end - begin < bytes) {
        return false;
    }
    carve(space, FLW_CONTAINER(node, struct flw_hole, node), begin, begin + bytes);
    return true;
}

static uint64_t take_recent(struct flw_space *space, uint64_t bytes, uint64_t align)
{
    for (unsigned i = 1; i <= FLW_SPACE_RECENT; i++) {
        unsigned k = (space->recent_next + FLW_SPACE_RECENT - i) % FLW_SPACE_RECENT;
        uint64_t begin = space->recent[k].begin;
        uint64_t size = space->recent[k].end - begin;
        if (begin == 0 || size < bytes || (begin & (align - 1)) != 0) {
            continue;
        }
        space->recent[k].begin = space->recent[k].end = 0;
        if (flw_space_take_at(space, begin, bytes)) {
            return begin;
        }
    }
    return 0;
}

static bool fits(const struct flw_hole *hole, uint64_t bytes, uint64_t align, uint64_t *begin)
{
    *begin = flw_align_up(hole->node.begin, align);
    return *begin < hole->node.end && hole->node.end - *begin >= bytes;
}

uint64_t flw_space_take(struct flw_space *space, uint64_t bytes, uint64_t align)
{
    if (bytes == 0 || bytes > FLW_SPACE_END - FLW_SPACE_BEGIN) {
        return 0;
    }
    uint64_t begin = take_recent(space, bytes, align);
    if (begin != 0) {
        return begin;
    }
    /* Few of each list, then all: the second round runs only in a full space. */
    for (int patient = 0; patient < 2; patient++) {
        for (unsigned k = flw_log2_floor(bytes); k < 64; k++) {
            unsigned left = patient ? ~0u : 16;
            for (struct flw_hole *hole = space->bucket[k]; hole != NULL && left > 0; left--) {
                if (fits(hole, bytes, align, &begin)) {
                    carve(space, hole, begin, begin + bytes);
                    return begin;
                }
                hole = hole->next;
            }
        }
    }
    return 0;
}

void flw_space_release(struct flw_space *space, uint64_t begin, uint64_t bytes)
{
    if (space->keeps_unused) {
        return;
    }
    uint64_t end = begin + bytes;
    space->recent[space->recent_next].begin = begin;
    space->recent[space->recent_next].end = end;
    space->recent_next = (space->recent_next + 1) % FLW_SPACE_RECENT;
    struct flw_tree_node *after = flw_tree_find(&space->holes, end);
    if (after != NULL) {
        end = after->end;
        drop_hole(space, FLW_CONTAINER(after, struct flw_hole, node));
    }
    struct flw_tree_node *before = flw_tree_find(&space->holes, begin - 1);
    if (before != NULL) {
        begin = before->begin;
        drop_hole(space, FLW_CONTAINER(before, struct flw_hole, node));
    }
    add_hole(space, begin, end);
}
