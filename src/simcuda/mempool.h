/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the structure of a driver pool, shared by the allocator (mempool.c) and the settings
 * (pooling.c). Does not: allocate. Synchronization: the world's lock. */
#ifndef FLW_SIMCUDA_MEMPOOL_H
#define FLW_SIMCUDA_MEMPOOL_H

#include "simcuda/storage.h"

struct flw_memory_pool {
    struct flw_memory_pool *next; /* of the world */
    CUmemoryPool handle;
    struct flw_device *device;
    bool is_default, is_destroyed;
    struct flw_tree blocks;      /* all chunks' blocks, by address */
    struct flw_tree free_blocks; /* by size; among equals, the latest first */
    uint32_t entered_count;      /* insertions into that tree */
    uint64_t max_bytes;          /* 0: the device's */
    uint64_t release_threshold;
    uint64_t used_bytes, used_high, reserved_bytes, reserved_high;
    bool follows_events, is_opportunistic, makes_dependencies;
    unsigned char access[FLW_DEVICE_MAX]; /* CUmemAccess_flags of the other devices */
};

struct flw_memory_pool *flw_pool_find(CUmemoryPool handle);
struct flw_memory_pool *flw_pool_current(struct flw_device *device);
struct flw_memory_pool *flw_pool_first(void);
void flw_pool_trim(struct flw_memory_pool *pool, uint64_t keep_bytes);
/* Free a destroyed pool when the last block is freed. */
void flw_pool_end_if_unused(struct flw_memory_pool *pool);
void flw_pool_drop_blocks(struct flw_memory_pool *pool);

#endif
