/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a model of the policy of PyTorch's caching allocator: which segments it takes, where in
 * them a block lands, what it splits, merges and releases. Written from the documented behaviour.
 *   - sizes in multiples of 512 B; up to 1 MiB from the small pool, else the large pool
 *   - segments of 2 MiB (small), 20 MiB (requests below 10 MiB), else the request in multiples of
 *     2 MiB
 *   - best fit by (stream, size, address); the tail is split off when it is at least 512 B (small)
 *     or more than 1 MiB (large); free neighbours of one segment are joined at once
 *   - memory never crosses streams; when the device is full, whole free segments go back, then once
 *     more
 *   - expandable segments: one range of addresses a stream and pool, where memory is mapped in
 *     granules of 2 MiB (small) or 20 MiB (large) as the range grows, tails are split off from 512 B
 *     on, and granules without a live byte are unmapped when memory goes back
 *   - max_split_size: larger blocks are not split and serve only requests above that size, and those
 *     only with less than 20 MiB to spare; on a full device such blocks go back first
 *   - roundup_power2_divisions: sizes round up to one of so many steps between powers of two
 *   - garbage_collection_threshold: above it, before a segment is taken, free large segments go back
 *     that have been free for longer than the average of them
 *   - a private pool, as a graph's, is a stream of its own to the model, and keeps what it has
 * Does not: model divisions by size class, or segments of both kinds in one heap; wait for uses on
 * other streams (the caller frees a block when it may be reused).
 *
 * Its segments and blocks are a segheap.h heap, with its invariants.
 */
#ifndef FLW_TOOL_PYTORCH_MODEL_H
#define FLW_TOOL_PYTORCH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policies/segheap.h"
#include "record/event.h"

struct flw_pytorch_settings {
    uint64_t max_split_bytes;    /* UINT64_MAX: blocks of any size are split */
    uint64_t roundup_divisions;  /* a power of two; 1: none */
    uint64_t collect_bytes;      /* collect garbage above so much; UINT64_MAX: never */
    uint16_t first_private;      /* memory of streams from this number on never goes back */
    uint64_t address_room_bytes; /* expandable segments, of so many bytes of addresses; 0: none */
};

/* A part of an expandable segment: whole granules. */
struct flw_pytorch_range {
    uint64_t segment_address, segment_bytes; /* on the device */
    uint64_t address, size_bytes;
    uint64_t granule_bytes;
    uint16_t stream;
};

/* Where memory comes from. */
struct flw_pytorch_source {
    bool (*alloc)(void *context, uint64_t size_bytes, struct flw_segheap_place *out_place);
    void (*free)(void *context, uint64_t device_address, uint64_t size_bytes);
    /* For expandable segments; else NULL. Reserve takes addresses, map gives all of a range memory
     * or nothing of it; unreserve follows when no memory is left. */
    bool (*reserve)(void *context, uint64_t size_bytes, uint64_t granule_bytes,
                    struct flw_segheap_place *out_place);
    bool (*map)(void *context, const struct flw_pytorch_range *range);
    void (*unmap)(void *context, const struct flw_pytorch_range *range);
    void (*unreserve)(void *context, uint64_t device_address);
    /* Before cached memory goes back: finish what is pending, so that blocks return. May be NULL. */
    void (*drain)(void *context);
    void *context;
};

/* A segment to start from. */
struct flw_pytorch_seed {
    uint64_t address;
    uint64_t size_bytes;
    uint16_t stream;
    bool is_large;
    const struct flw_trace_block *blocks; /* live ones, by address */
    size_t block_count;
};

struct flw_pytorch_model;

extern const struct flw_pytorch_settings flw_pytorch_standard;

struct flw_pytorch_model *flw_pytorch_create(const struct flw_pytorch_source *source,
                                             const struct flw_pytorch_settings *settings);

/* Gives every segment back. NULL is allowed. */
void flw_pytorch_destroy(struct flw_pytorch_model *model);

/* NULL: out of memory. */
struct flw_segheap_block *flw_pytorch_alloc(struct flw_pytorch_model *model, uint64_t size_bytes,
                                            uint16_t stream);

void flw_pytorch_free(struct flw_pytorch_model *model, struct flw_segheap_block *block);

/* What empty_cache() does: release every segment without a live block, and every such granule. */
void flw_pytorch_release_cached(struct flw_pytorch_model *model);

/* False: blocks that overlap or do not lie in the segment. */
bool flw_pytorch_seed_fits(const struct flw_pytorch_model *model,
                           const struct flw_pytorch_seed *seed);

/* False: it does not fit (nothing changed), or no memory for the segment. */
bool flw_pytorch_seed(struct flw_pytorch_model *model, const struct flw_pytorch_seed *seed,
                      struct flw_segheap_block **out_blocks);

uint64_t flw_pytorch_reserved_bytes(const struct flw_pytorch_model *model);

/* Blocks cut in two and neighbours joined so far, seeding apart; a granule that is mapped counts. */
void flw_pytorch_count(const struct flw_pytorch_model *model, uint64_t *out_split_count,
                       uint64_t *out_merge_count);

bool flw_pytorch_is_valid(const struct flw_pytorch_model *model);

#endif
