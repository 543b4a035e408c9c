/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a model of the default policy of PyTorch's caching allocator: which segments it takes,
 * where in them a block lands, what it splits, merges and gives back. Written from the documented
 * behaviour.
 *   - sizes in multiples of 512 B; up to 1 MiB from the small pool, else the large pool
 *   - segments of 2 MiB (small), 20 MiB (requests below 10 MiB), else the request in multiples of 2
 * MiB
 *   - best fit by (stream, size, address); the tail is split off when it is at least 512 B (small)
 * or more than 1 MiB (large); free neighbours of one segment are joined at once
 *   - memory never crosses streams; when the device is full, whole free segments go back, then once
 * more Does not: model expandable segments, graph pools, `max_split_size` or any other setting;
 * wait for uses on other streams (the caller frees a block when it may be reused).
 *
 * INVARIANTS (flw_pytorch_is_valid recomputes them)
 *   1. The blocks of a segment are contiguous, begin at its start and end at its end.
 *   2. No two neighbours are both free.
 *   3. The free lists hold exactly the free blocks, sorted by (stream, size, address).
 *   4. reserved_bytes is the sum of the segments.
 */
#ifndef FLW_TOOL_PYTORCH_MODEL_H
#define FLW_TOOL_PYTORCH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flw_pytorch_segment;

struct flw_pytorch_block {
    uint64_t address; /* in the order's address space, see struct flw_pytorch_place */
    uint64_t size_bytes;
    struct flw_pytorch_block *previous, *next; /* in the segment; NULL at its ends */
    struct flw_pytorch_segment *segment;
    bool is_free;
};

/* Where a segment lies. The policy orders by `address`, so a replay can give it the recorded one;
 * work goes to `device_address`. */
struct flw_pytorch_place {
    uint64_t address;
    uint64_t device_address;
};

/* Where segments come from. */
struct flw_pytorch_source {
    bool (*alloc)(void *context, uint64_t size_bytes, struct flw_pytorch_place *out_place);
    void (*free)(void *context, uint64_t device_address, uint64_t size_bytes);
    /* Before cached segments go back: finish what is pending, so that blocks return. May be NULL. */
    void (*drain)(void *context);
    void *context;
};

/* A segment to start from. */
struct flw_pytorch_seed {
    uint64_t address;
    uint64_t size_bytes;
    uint16_t stream;
    bool is_large;
    const uint64_t *block_addresses; /* live blocks, ascending */
    const uint64_t *block_bytes;     /* as requested */
    size_t block_count;
};

struct flw_pytorch_model;

struct flw_pytorch_model *flw_pytorch_create(const struct flw_pytorch_source *source);

/* Gives every segment back. NULL is allowed. */
void flw_pytorch_destroy(struct flw_pytorch_model *model);

/* NULL: out of memory. */
struct flw_pytorch_block *flw_pytorch_alloc(struct flw_pytorch_model *model, uint64_t size_bytes,
                                            uint16_t stream);

void flw_pytorch_free(struct flw_pytorch_model *model, struct flw_pytorch_block *block);

/* What empty_cache() does: give back every segment without a live block. */
void flw_pytorch_release_cached(struct flw_pytorch_model *model);

/* False: blocks that overlap or do not fit (nothing changed), or no memory for the segment. */
bool flw_pytorch_seed(struct flw_pytorch_model *model, const struct flw_pytorch_seed *seed,
                      struct flw_pytorch_block **out_blocks);

uint64_t flw_pytorch_device_address(const struct flw_pytorch_block *block);

uint64_t flw_pytorch_reserved_bytes(const struct flw_pytorch_model *model);

bool flw_pytorch_is_valid(const struct flw_pytorch_model *model);

#endif
