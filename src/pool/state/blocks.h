/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: visiting every live block of a pool, at about 5 ns a block. */
#ifndef FLW_POOL_BLOCKS_H
#define FLW_POOL_BLOCKS_H

#include "pool/state/pool.h"

struct flw_live_block {
    uint64_t address, size_bytes; /* as allocated and requested; red zones count as requested */
    uint64_t usable_bytes;
    uint64_t stream_id; /* of the allocating stream; 0 unknown */
    uint32_t tag;       /* 0 none */
    uint32_t capture;   /* place of the capture; 0 none */
};

/* Visit every live block. `visit` runs under the locks of the uses and of the heap. */
void flw_blocks_each(struct flw_pool *pool,
                     void (*visit)(void *context, const struct flw_live_block *block),
                     void *context);

#endif
