/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: looking at every live block of a pool: about 5 ns a block.
 */
#ifndef FLW_POOL_BLOCKS_H
#define FLW_POOL_BLOCKS_H

#include "pool/state/pool.h"

struct flw_live_block {
    uint64_t address, size_bytes; /* as allocated and asked for; red zones count as asked for */
    uint64_t usable_bytes;
    uint64_t stream_id; /* of the stream that it was allocated on; 0 unknown */
    uint32_t tag;       /* 0 none */
    uint32_t capture;   /* its capture, by place; 0 none */
};

/* `visit` runs under the locks of the uses and of the heap. */
void flw_blocks_each(struct flw_pool *pool,
                     void (*visit)(void *context, const struct flw_live_block *block),
                     void *context);

#endif
