/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what models of caching allocators have in common: segments of device memory, cut into
 * blocks that know their neighbours, and the free blocks in an order that finds the best fit. Does
 * not: decide when to cut, which block to take, or when a segment comes and goes; make driver
 * calls.
 *
 * A segment may be a range of addresses of which only a part has memory: the blocks without are
 * free and *unmapped*, and are kept apart. A block of a plain segment never is.
 *
 * INVARIANTS (flw_segheap_is_valid recomputes them)
 *   1. The blocks of a segment are contiguous, begin at its start and end at its end.
 *   2. No two free neighbours are both mapped, or both unmapped.
 *   3. The lists hold exactly the free blocks: the mapped ones of each pool in the order of (stream,
 *      size, address), the unmapped ones of (stream, address).
 *   4. reserved_bytes is the sum of the blocks that have memory.
 */
#ifndef FLW_TOOL_SEGHEAP_H
#define FLW_TOOL_SEGHEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tree.h"

#define FLW_SEGHEAP_POOLS 2

struct flw_segheap_segment;

struct flw_segheap_block {
    uint64_t address; /* in the order's address space, see struct flw_segheap_place */
    uint64_t size_bytes;
    struct flw_segheap_block *previous, *next; /* in the segment; NULL at its ends */
    struct flw_segheap_segment *segment;
    struct flw_tree_node node; /* of its list, while free */
    uint64_t since;            /* free since this moment of the owner's own clock */
    bool is_free;
    bool is_unmapped;
};

/* Where a segment lies. Blocks are ordered by `address`, so a replay can give it the recorded one;
 * work goes to `device_address`. */
struct flw_segheap_place {
    uint64_t address;
    uint64_t device_address;
};

struct flw_segheap_segment {
    struct flw_segheap_segment *previous, *next;
    struct flw_segheap_block *first;
    uint64_t address;
    uint64_t device_address;
    uint64_t size_bytes;
    uint64_t granule_bytes; /* memory comes and goes in these; 0: all of it is there */
    uint16_t stream;
    uint8_t pool; /* below FLW_SEGHEAP_POOLS */
};

struct flw_segheap_chunk; /* of blocks */

/* All zero is an empty heap. */
struct flw_segheap {
    struct flw_tree mapped[FLW_SEGHEAP_POOLS], unmapped[FLW_SEGHEAP_POOLS]; /* the lists */
    struct flw_segheap_segment *segments;
    struct flw_segheap_chunk *chunks;
    struct flw_segheap_block *spares; /* linked by next */
    uint64_t reserved_bytes;
    uint64_t cut_count, join_count; /* ever */
};

/* What a new segment is. */
struct flw_segheap_shape {
    struct flw_segheap_place place;
    uint64_t size_bytes;
    uint64_t granule_bytes; /* 0: mapped; else its block is unmapped */
    uint16_t stream;
    uint8_t pool;
};

/* A segment that is one block, neither free nor allocated, in no list. */
struct flw_segheap_segment *flw_segheap_add(struct flw_segheap *heap,
                                            const struct flw_segheap_shape *shape);

/* A segment that is one block in no list. */
void flw_segheap_drop(struct flw_segheap *heap, struct flw_segheap_segment *segment);

/* Cut a block that is in no list after `size_bytes`; the rest is in none either. */
struct flw_segheap_block *flw_segheap_cut(struct flw_segheap *heap, struct flw_segheap_block *block,
                                          uint64_t size_bytes);

/* Make a block free: it joins free neighbours of its kind and is listed. The block that it is now a
 * part of. */
struct flw_segheap_block *flw_segheap_put(struct flw_segheap *heap,
                                          struct flw_segheap_block *block);

/* Take a free block out of its list; it is free no more. */
void flw_segheap_take(struct flw_segheap *heap, struct flw_segheap_block *block);

/* The block's memory has come or gone. It is in no list. */
void flw_segheap_set_mapped(struct flw_segheap *heap, struct flw_segheap_block *block,
                            bool is_mapped);

/* The stream's first block in the list that has so many bytes; of unmapped blocks 0 are asked for: the first. NULL:
 * none. */
struct flw_segheap_block *flw_segheap_find(const struct flw_tree *list, uint16_t stream,
                                           uint64_t size_bytes);

/* The stream's last block in the list that has less; NULL: none. */
struct flw_segheap_block *flw_segheap_find_less(const struct flw_tree *list, uint16_t stream,
                                                uint64_t size_bytes);

/* The first of any stream. NULL: the list is empty. */
struct flw_segheap_block *flw_segheap_first(const struct flw_tree *list);

/* Neighbours of a free block in its list, of any stream; NULL at its ends. */
struct flw_segheap_block *flw_segheap_after(const struct flw_segheap_block *block);
struct flw_segheap_block *flw_segheap_before(const struct flw_segheap_block *block);

uint64_t flw_segheap_device_address(const struct flw_segheap_block *block);

/* Forgets all segments. */
void flw_segheap_finish(struct flw_segheap *heap);

bool flw_segheap_is_valid(const struct flw_segheap *heap);

#endif
