/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: which private pool each block of a recording came from: memory of captured graphs, which is
 * given to no one else. Does not: say when a capture began or ended; PyTorch's snapshots do not.
 *
 * A *lane* is what memory never crosses: a stream in the common pool, or a stream in a private one.
 * The first lanes are the streams.
 */
#ifndef FLW_TOOL_LANES_H
#define FLW_TOOL_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flw_trace;

struct flw_lane {
    uint32_t pool;
    uint16_t stream;
    uint64_t alloc_count; /* blocks of more than no bytes, those of the start included */
};

struct flw_lanes {
    size_t stream_count;
    struct flw_lane *list; /* the private ones */
    size_t count, capacity;
    size_t pool_count;     /* distinct private pools */
    uint16_t *block_lanes; /* by block; NULL: no private pools */
};

/* False: more lanes than can be told apart; finish is allowed. */
bool flw_lanes_init(struct flw_lanes *lanes, const struct flw_trace *trace, size_t stream_count);

void flw_lanes_finish(struct flw_lanes *lanes);

/* Of a block that was allocated on `stream`. */
static inline uint16_t flw_lanes_get(const struct flw_lanes *lanes, uint32_t block, uint16_t stream)
{
    return lanes->block_lanes == NULL ? stream : lanes->block_lanes[block];
}

/* Of a pool's memory on a stream, as the trace's blocks and segments have it. */
uint16_t flw_lanes_find(const struct flw_lanes *lanes, uint32_t pool, uint16_t stream);

static inline uint16_t flw_lanes_stream(const struct flw_lanes *lanes, uint16_t lane)
{
    return lane < lanes->stream_count ? lane : lanes->list[lane - lanes->stream_count].stream;
}

#endif
