/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a model of the policy of PyTorch's caching allocator on a device: which segments it allocates, where in them it
 * places a block, what it splits, merges and releases. Written from the documented behaviour.
 *   - sizes are multiples of 512 B; up to 1 MiB from the small pool, else from the large pool
 *   - segments have 2 MiB (small), 20 MiB (requests below 10 MiB), else the request in multiples of 2 MiB
 *   - best fit by (stream, size, age of the segment, address); the tail is split off if it has at least 512 B (small) or more than 1 MiB
 *     (large); free neighbours of one segment are joined at once
 *   - memory never crosses streams; when the device is full, whole free segments are released, then the request is
 *     tried once more
 *   - a freed block that other streams use is reusable when events recorded at the free are complete
 *   - expandable segments: one range of addresses for each stream and pool, in which memory is mapped in granules of
 *     2 MiB (small) or 20 MiB (large) as the range grows; tails are split off from 512 B on; granules without a live
 *     byte are unmapped on a release
 *   - max_split_size: larger blocks are not split and serve only requests above that size, and only with less than
 *     20 MiB to spare; on a full device such blocks are released first
 *   - roundup_power2_divisions: sizes round up to one of so many steps between powers of two
 *   - garbage_collection_threshold: above it, before a segment is allocated, free large segments are released that have
 *     been free for longer than their average
 *   - a private pool, as a graph's, is a stream of its own to the model, and releases nothing
 * Does not: model divisions by size class, or segments of both kinds in one heap.
 */
#ifndef FLW_TOOL_PYTORCH_MODEL_H
#define FLW_TOOL_PYTORCH_MODEL_H

#include "policies/pytorch_heap.h"

#include "common/program.h"
#include "record/event.h"

struct flw_pytorch_settings {
    uint64_t max_split_bytes;    /* UINT64_MAX: blocks of any size are split */
    uint64_t roundup_divisions;  /* a power of two; 1: none */
    uint64_t collect_bytes;      /* collect garbage above so much; UINT64_MAX: never */
    uint64_t address_room_bytes; /* expandable segments, of so many bytes of addresses; 0: none */
};

extern const struct flw_pytorch_settings flw_pytorch_standard;

struct flw_pytorch_queue {
    struct flw_pytorch_event *first, *last;
};

struct flw_pytorch_model {
    struct flw_pytorch_heap heap;
    struct flw_pytorch_settings settings;
    const struct flw_lanes *lanes;          /* memory of private ones is never released */
    uint64_t now[FLW_PYTORCH_POOLS];        /* requests so far: the clock of a free block's age */
    struct flw_pytorch_queue *queues;       /* of each stream: events that freed blocks wait for */
    struct flw_pytorch_event *spare_events; /* not in use: PyTorch keeps its events */
    uint64_t event_count, wait_count;       /* events recorded; waits of the host for one */
    uint64_t next_address,
        next_bytes; /* the address of the next segment if it has this size; else 0 */
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

void flw_pytorch_init(struct flw_pytorch_model *model, const struct flw_device *device,
                      const struct flw_lanes *lanes, const struct flw_pytorch_settings *settings);

/* Release all memory, after waiting for the events. */
void flw_pytorch_finish(struct flw_pytorch_model *model);

/* NULL: out of memory. */
struct flw_pytorch_block *flw_pytorch_alloc(struct flw_pytorch_model *model, uint64_t size_bytes,
                                            uint16_t stream);

void flw_pytorch_free(struct flw_pytorch_model *model, struct flw_pytorch_block *block);

/* Free a block when the work of the streams of the mask is complete; bit i % 64 is stream i, and at least one is set.
 * Returns false if the device refused an event; then the block stays allocated. */
bool flw_pytorch_free_after(struct flw_pytorch_model *model, struct flw_pytorch_block *block,
                            uint64_t stream_mask);

/* Release every segment without a live block, and every such granule, as empty_cache() does. */
void flw_pytorch_release_cached(struct flw_pytorch_model *model);

/* False: the blocks overlap or are not in the segment. */
bool flw_pytorch_seed_fits(const struct flw_pytorch_model *model,
                           const struct flw_pytorch_seed *seed);

/* Start with a segment and its blocks, which fit. Returns false if there is no memory for the segment. */
bool flw_pytorch_seed(struct flw_pytorch_model *model, const struct flw_pytorch_seed *seed,
                      struct flw_pytorch_block **out_blocks);

#endif
