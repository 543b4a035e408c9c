/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the device memory of the model of PyTorch's allocator: segments, cut into blocks that know their neighbours,
 * and the free blocks in an order that finds the best fit. A segment is a cuMemAlloc. An expandable segment is a range
 * of addresses, in which granules get and lose memory; blocks without memory are free, *unmapped*, and listed apart.
 * Does not: decide when to cut, which block to take, or when memory is taken and released.
 *
 * INVARIANTS (flw_pytorch_heap_is_valid recomputes them)
 *   1. The blocks of a segment are contiguous, begin at its start and end at its end.
 *   2. No two free neighbours are both mapped, or both unmapped.
 *   3. The lists hold exactly the free blocks: the mapped ones of each pool in the order of (stream, size, number of
 *      the segment, address), the unmapped ones of (stream, number, address). Numbers are 0 unless orders_by_age.
 *   4. reserved_bytes is the sum of the blocks that have memory.
 */
#ifndef FLW_TOOL_PYTORCH_HEAP_H
#define FLW_TOOL_PYTORCH_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tree.h"

#include "common/replay_device.h"

#define FLW_PYTORCH_POOLS 2 /* small, large */

struct flw_pytorch_block {
    uint64_t address; /* by which blocks are ordered: the recorded one, if there is any */
    uint64_t size_bytes;
    struct flw_pytorch_block *previous, *next; /* in the segment; NULL at its ends */
    struct flw_pytorch_segment *segment;
    struct flw_tree_node node; /* of its list, while free */
    uint64_t since;            /* free since this moment of the model's clock */
    uint32_t wait_count;       /* events that a freed block waits for */
    bool is_free;
    bool is_unmapped;
};

struct flw_pytorch_segment {
    struct flw_pytorch_segment *previous, *next;
    struct flw_pytorch_block *first;
    uint64_t address, device_address;
    uint64_t size_bytes;
    uint64_t granule_bytes;                /* 0: not expandable */
    CUmemGenericAllocationHandle *handles; /* of each granule; 0: no memory */
    uint64_t number; /* free blocks of one size are taken from the segment with the lowest */
    uint16_t stream;
    uint8_t pool; /* below FLW_PYTORCH_POOLS */
};

/* Set `device`; all else zero is an empty heap. */
struct flw_pytorch_heap {
    const struct flw_device *device;
    struct flw_tree lists[FLW_PYTORCH_POOLS][2]; /* free blocks: mapped, unmapped */
    struct flw_pytorch_segment *segments;
    struct flw_pytorch_chunk *chunks; /* of blocks */
    struct flw_pytorch_block *spares; /* linked by next */
    uint64_t reserved_bytes, peak_reserved_bytes;
    uint64_t cut_count, join_count;  /* of blocks */
    uint64_t grow_count, call_count; /* segments and ranges that got memory; driver calls */
    uint64_t segment_count;          /* numbered so far */
    bool
        orders_by_age; /* as PyTorch 2.15; false: free blocks of one size by address, as older ones */
};

/* True if the device has the driver calls of expandable segments. */
bool flw_pytorch_heap_can_expand(const struct flw_device *device);

/* Allocate a segment of one block, which is neither free nor in a list. `address`: the recorded one; 0: none. NULL: the
 * device has no such memory. */
struct flw_pytorch_block *flw_pytorch_heap_add(struct flw_pytorch_heap *heap, uint64_t size_bytes,
                                               uint16_t stream, uint8_t pool, uint64_t address);

/* Reserve addresses for an expandable segment of one unmapped block, which is listed. NULL: the device refused. */
struct flw_pytorch_block *flw_pytorch_heap_reserve(struct flw_pytorch_heap *heap,
                                                   uint64_t size_bytes, uint64_t granule_bytes,
                                                   uint16_t stream, uint8_t pool);

/* Give back a segment of one block, which is in no list, and its memory or addresses. */
void flw_pytorch_heap_drop(struct flw_pytorch_heap *heap, struct flw_pytorch_segment *segment);

/* Map memory to an unmapped block of whole granules in no list. Returns false, and maps nothing, if the device has no
 * such memory. */
bool flw_pytorch_heap_map(struct flw_pytorch_heap *heap, struct flw_pytorch_block *block);

/* Release the memory of a block of whole granules in no list, after waiting for `stream` as PyTorch does. */
void flw_pytorch_heap_unmap(struct flw_pytorch_heap *heap, struct flw_pytorch_block *block,
                            uint16_t stream);

/* Cut a block in no list after `size_bytes`. Returns the rest, which is in no list. */
struct flw_pytorch_block *flw_pytorch_heap_cut(struct flw_pytorch_heap *heap,
                                               struct flw_pytorch_block *block,
                                               uint64_t size_bytes);

/* Make a block free: join it with free neighbours of its kind and list it. Returns the joined block. */
struct flw_pytorch_block *flw_pytorch_heap_put(struct flw_pytorch_heap *heap,
                                               struct flw_pytorch_block *block);

/* Remove a free block from its list; then it is not free. */
void flw_pytorch_heap_take(struct flw_pytorch_heap *heap, struct flw_pytorch_block *block);

/* Return the stream's first block of a list that has at least `size_bytes`, or NULL; of unmapped blocks the first for
 * 0. */
struct flw_pytorch_block *flw_pytorch_heap_find(const struct flw_tree *list, uint16_t stream,
                                                uint64_t size_bytes);

/* Return the stream's last block of a list that has less than `size_bytes`, or NULL. */
struct flw_pytorch_block *flw_pytorch_heap_find_less(const struct flw_tree *list, uint16_t stream,
                                                     uint64_t size_bytes);

/* Return the first block of a list, or NULL. */
struct flw_pytorch_block *flw_pytorch_heap_first(const struct flw_tree *list);

/* Return the neighbours of a free block in its list, of any stream; NULL at the ends. */
struct flw_pytorch_block *flw_pytorch_heap_after(const struct flw_pytorch_block *block);
struct flw_pytorch_block *flw_pytorch_heap_before(const struct flw_pytorch_block *block);

static inline uint64_t flw_pytorch_device_address(const struct flw_pytorch_block *block)
{
    return block->segment->device_address + (block->address - block->segment->address);
}

/* Release all memory. */
void flw_pytorch_heap_finish(struct flw_pytorch_heap *heap);

bool flw_pytorch_heap_is_valid(const struct flw_pytorch_heap *heap);

#endif
