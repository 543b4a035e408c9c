/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shape of a driver pool, shared by its allocator (mempool.c) and its settings
 * (pooling.c). Does not: allocate anything. Synchronization: the world's lock.
 */
#ifndef FLW_SIMCUDA_MEMPOOL_H
#define FLW_SIMCUDA_MEMPOOL_H

#include "simcuda/storage.h"

struct flw_memory_pool {
    struct flw_memory_pool *next; /* of the world */
    CUmemoryPool handle;
    struct flw_device *device;
    bool is_default, is_destroyed;
    struct flw_tree blocks;      /* all chunks' blocks, by address */
    struct flw_tree free_blocks; /* by size; of equals, the latest first */
    uint32_t entered_count;      /* into that tree, ever */
    uint64_t max_bytes;          /* 0: the device's */
    uint64_t release_threshold;
    uint64_t used_bytes, used_high, reserved_bytes, reserved_high;
    bool follows_events, is_opportunistic, makes_dependencies;
};

struct flw_memory_pool *flw_pool_find(CUmemoryPool handle);
struct flw_memory_pool *flw_pool_current(struct flw_device *device);
struct flw_memory_pool *flw_pool_first(void);
void flw_pool_trim(struct flw_memory_pool *pool, uint64_t keep_bytes);
/* A destroyed pool goes when its last block comes back. */
void flw_pool_end_if_unused(struct flw_memory_pool *pool);
void flw_pool_drop_blocks(struct flw_memory_pool *pool);

#endif
