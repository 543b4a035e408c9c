/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a model of the driver's stream-ordered pools: chunks from the ledger, best fit among free
 * blocks, reuse in stream order, after completion, or by an inserted wait when memory is short.
 * Does not: claim to be NVIDIA's allocator: the internals are not published, and reports call this
 * a model.
 *
 * INVARIANTS  the blocks of a chunk cover it without gap or overlap; the free blocks, and no
 *             others, are in the pool's tree of them; used = sum of live blocks; reserved = sum of
 *             chunks */
#include <stdlib.h>

#include "base/bits.h"
#include "simcuda/check.h"
#include "simcuda/host.h"
#include "simcuda/mempool.h"

#define STEP_BYTES  512ull
#define CHUNK_BYTES (32ull * FLW_MIB)

struct block {
    struct flw_tree_node node;
    struct flw_tree_node free_node; /* of the pool's free blocks, while free: keys instead of
                                        addresses */
    struct flw_region *chunk;
    bool is_live, is_graphs;
    struct flw_position freed; /* sequence 0: complete long ago */
    struct flw_order_clock freed_clock;
};

static void refresh_high(struct flw_memory_pool *pool)
{
    pool->used_high = flw_max(pool->used_high, pool->used_bytes);
    pool->reserved_high = flw_max(pool->reserved_high, pool->reserved_bytes);
}

/* ---- blocks ---- */

/* Return a key in the order of free blocks: by size, then the latest first. */
static uint64_t key_of(uint64_t bytes, uint32_t since_latest)
{
    return (bytes / STEP_BYTES) << 32 | since_latest;
}

static void enter_free(struct flw_memory_pool *pool, struct block *block)
{
    uint64_t bytes = block->node.end - block->node.begin;
    block->free_node.begin = key_of(bytes, UINT32_MAX - pool->entered_count++);
    block->free_node.end = block->free_node.begin + 1;
    flw_tree_insert(&pool->free_blocks, &block->free_node);
}

static void leave_free(struct flw_memory_pool *pool, struct block *block)
{
    flw_tree_remove(&pool->free_blocks, &block->free_node);
}

static struct block *add_block(struct flw_memory_pool *pool, struct flw_region *chunk,
                               uint64_t begin, uint64_t end)
{
    struct block *block = flw_host_get(sizeof *block);
    block->node.begin = begin;
    block->node.end = end;
    block->chunk = chunk;
    flw_tree_insert(&pool->blocks, &block->node);
    return block;
}

static void drop_block(struct flw_memory_pool *pool, struct block *block)
{
    flw_tree_remove(&pool->blocks, &block->node);
    flw_clock_finish(&block->freed_clock);
    free(block);
}

static struct block *find_block(uint64_t address)
{
    struct flw_region *region = flw_region_find(address);
    if (region == NULL || region->kind != FLW_REGION_POOLED) {
        return NULL;
    }
    struct flw_tree_node *node = flw_tree_find(&region->pool->blocks, address);
    return node != NULL ? FLW_CONTAINER(node, struct block, node) : NULL;
}

static bool is_done(const struct block *block)
{
    return block->freed.sequence == 0 || flw_order_is_done(&block->freed);
}

static bool can_merge(const struct block *a, const struct block *b)
{
    if (a->is_live || b->is_live || a->chunk != b->chunk) {
        return false;
    }
    return (is_done(a) && is_done(b)) ||
           (a->freed.sequence != 0 && b->freed.sequence != 0 && a->freed.slot == b->freed.slot);
}

/* Join the block with the right neighbour if both may be reused under one condition. */
static void merge_right(struct flw_memory_pool *pool, struct block *left)
{
    struct flw_tree_node *next = left->node.next;
    if (next == NULL || next->begin != left->node.end) {
        return;
    }
    struct block *right = FLW_CONTAINER(next, struct block, node);
    if (!can_merge(left, right)) {
        return;
    }
    uint64_t end = right->node.end;
    leave_free(pool, left);
    leave_free(pool, right);
    if (right->freed.sequence > left->freed.sequence) {
        left->freed = right->freed;
    }
    flw_clock_join(&left->freed_clock, &right->freed_clock);
    drop_block(pool, right);
    left->node.end = end;
    enter_free(pool, left);
}

static void merge_around(struct flw_memory_pool *pool, struct block *block)
{
    merge_right(pool, block);
    struct flw_tree_node *node = flw_tree_find(&pool->blocks, block->node.begin - 1);
    if (node != NULL && !FLW_CONTAINER(node, struct block, node)->is_live) {
        merge_right(pool, FLW_CONTAINER(node, struct block, node));
    }
}

/* ---- chunks ---- */

static struct block *grow(struct flw_memory_pool *pool, uint64_t bytes, CUresult *error)
{
    uint64_t whole = flw_align_up(flw_max(bytes, CHUNK_BYTES), FLW_GRANULARITY);
    if (pool->max_bytes != 0 && pool->reserved_bytes + whole > pool->max_bytes) {
        *error = CUDA_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    struct flw_region *chunk =
        flw_region_give(FLW_REGION_POOLED, pool->device, whole, FLW_GRANULARITY, error);
    if (chunk == NULL) {
        whole = flw_align_up(bytes, FLW_GRANULARITY);
        chunk = flw_region_give(FLW_REGION_POOLED, pool->device, whole, FLW_GRANULARITY, error);
    }
    if (chunk == NULL) {
        return NULL;
    }
    chunk->pool = pool;
    pool->reserved_bytes += whole;
    refresh_high(pool);
    flw_latency_add_bytes(FLW_ENTRY_cuMemPoolTrimTo, whole);
    struct block *block = add_block(pool, chunk, chunk->node.begin, chunk->node.end);
    enter_free(pool, block);
    return block;
}

static void drop_chunk(struct flw_memory_pool *pool, struct block *block)
{
    struct flw_region *chunk = block->chunk;
    uint64_t begin = chunk->node.begin;
    uint64_t bytes = chunk->bytes;
    leave_free(pool, block);
    drop_block(pool, block);
    flw_check_forget(begin, begin + bytes);
    pool->reserved_bytes -= bytes;
    flw_latency_add_bytes(FLW_ENTRY_cuMemPoolTrimTo, bytes);
    flw_physical_free(chunk->physical);
    flw_space_release(&flw_world.space, begin, bytes);
    flw_region_remove(chunk);
}

static void trim(struct flw_memory_pool *pool, uint64_t keep_bytes)
{
    struct flw_tree_node *node = flw_tree_from(&pool->blocks, 0);
    while (node != NULL && pool->reserved_bytes > keep_bytes) {
        struct block *block = FLW_CONTAINER(node, struct block, node);
        uint64_t end = node->end;
        if (!block->is_live && is_done(block)) {
            uint64_t before;
            do {
                before = block->node.end;
                merge_right(pool, block);
            } while (block->node.end != before);
            end = block->node.end;
            uint64_t bytes = block->chunk->bytes;
            /* "guaranteed to have at least minBytesToKeep bytes reserved after the operation" */
            if (end - block->node.begin == bytes && pool->reserved_bytes - bytes >= keep_bytes) {
                drop_chunk(pool, block);
            }
        }
        node = flw_tree_from(&pool->blocks, end);
    }
}

/* ---- allocate and free ---- */

enum reuse {
    REUSE_NO,
    REUSE_NOW,
    REUSE_AFTER_WAIT
};

static enum reuse may_reuse(const struct flw_memory_pool *pool, const struct flw_stream *stream,
                            const struct block *block)
{
    const struct flw_position *freed = &block->freed;
    if (freed->sequence == 0 ||
        (freed->slot == stream->slot && flw_world.slot[freed->slot].stream_id == stream->id)) {
        return REUSE_NOW;
    }
    if (pool->follows_events && flw_check_is_on() &&
        flw_clock_get(&stream->clock, freed->slot) >= freed->sequence) {
        return REUSE_NOW;
    }
    if (pool->is_opportunistic && flw_order_is_done(freed)) {
        return REUSE_NOW;
    }
    return pool->makes_dependencies ? REUSE_AFTER_WAIT : REUSE_NO;
}

static struct block *best_fit(struct flw_memory_pool *pool, const struct flw_stream *stream,
                              uint64_t bytes, enum reuse wanted)
{
    struct flw_tree_node *node = flw_tree_from(&pool->free_blocks, key_of(bytes, 0));
    while (node != NULL) {
        struct block *block = FLW_CONTAINER(node, struct block, free_node);
        if (may_reuse(pool, stream, block) == wanted) {
            return block;
        }
        node = node->next;
    }
    return NULL;
}

static void give_out(struct flw_memory_pool *pool, struct block *block, uint64_t bytes)
{
    leave_free(pool, block);
    if (block->node.end - block->node.begin > bytes) {
        uint64_t end = block->node.end;
        block->node.end = block->node.begin + bytes;
        struct block *rest = add_block(pool, block->chunk, block->node.end, end);
        rest->freed = block->freed;
        flw_clock_copy(&rest->freed_clock, &block->freed_clock);
        enter_free(pool, rest);
    }
    block->is_live = true;
    pool->used_bytes += bytes;
    refresh_high(pool);
}

/* The operation of the allocation or free, for the checker: it owns the range from here on. */
static CUresult mark(struct flw_stream *stream, const struct block *block, const char *name,
                     struct flw_position *position)
{
    struct flw_sim_range range = {.address = block->node.begin,
                                  .bytes = block->node.end - block->node.begin,
                                  .is_write = 1,
                                  .flags = FLW_RANGE_OWNERSHIP};
    struct flw_work work = {
        .kind = FLW_WORK_TOUCH, .name = name, .ranges = &range, .range_count = 1};
    return flw_order_submit(stream, &work, position);
}

static void wait_for_free(struct flw_stream *stream, const struct block *block)
{
    struct flw_work work = {.kind = FLW_WORK_WAIT,
                            .name = "pool dependency",
                            .waits = &block->freed,
                            .wait_count = 1,
                            .waits_clock = &block->freed_clock};
    flw_order_submit(stream, &work, NULL);
}

static struct block *choose(struct flw_memory_pool *pool, struct flw_stream *stream, uint64_t bytes,
                            CUresult *error)
{
    struct block *block = best_fit(pool, stream, bytes, REUSE_NOW);
    if (block == NULL) {
        block = grow(pool, bytes, error);
    }
    if (block == NULL && stream->capture == NULL) {
        block = best_fit(pool, stream, bytes, REUSE_AFTER_WAIT);
        if (block != NULL) {
            *error = CUDA_SUCCESS;
            wait_for_free(stream, block);
        }
    }
    return block;
}

static CUresult allocate(struct flw_memory_pool *pool, struct flw_stream *stream, CUdeviceptr *out,
                         uint64_t asked)
{
    FLW_REFUSE_IF(out == NULL || asked == 0, CUDA_ERROR_INVALID_VALUE);
    FLW_REFUSE_IF(asked > flw_world.config.device_bytes, CUDA_ERROR_OUT_OF_MEMORY);
    struct flw_program *program = NULL;
    if (stream->capture != NULL) {
        program = flw_capture_program(stream->capture);
        FLW_REFUSE_IF(program == NULL, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    uint64_t bytes = flw_align_up(asked, STEP_BYTES);
    CUresult error = CUDA_SUCCESS;
    struct block *block = choose(pool, stream, bytes, &error);
    if (block == NULL) {
        return error;
    }
    if (flw_check_is_on()) {
        flw_clock_join(&stream->clock, &block->freed_clock); /* reuse is permitted: it was
                                                                 ordered */
    }
    give_out(pool, block, bytes);
    error = mark(stream, block, flw_check_allocates, NULL);
    if (program != NULL && error == CUDA_SUCCESS) {
        /* "the allocation is owned by the graph instead of the memory pool" */
        block->is_graphs = true;
        flw_program_own_memory(program, block->node.begin);
    }
    *out = block->node.begin;
    return error;
}

static void take_back(struct flw_memory_pool *pool, struct block *block)
{
    pool->used_bytes -= block->node.end - block->node.begin;
    block->is_live = false;
    block->is_graphs = false;
    enter_free(pool, block);
    merge_around(pool, block);
    if (pool->is_destroyed) {
        flw_pool_end_if_unused(pool);
    }
}

static struct block *live_block_at(uint64_t address)
{
    struct block *block = find_block(address);
    return block != NULL && block->is_live && block->node.begin == address ? block : NULL;
}

static CUresult free_block(struct flw_stream *stream, CUdeviceptr pointer)
{
    struct block *block = live_block_at(pointer);
    FLW_REFUSE_IF(block == NULL, CUDA_ERROR_INVALID_VALUE);
    if (stream->capture != NULL) {
        /* "must therefore be passed the address of a graph allocation" */
        struct flw_program *program = flw_capture_program(stream->capture);
        FLW_REFUSE_IF(program == NULL, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        FLW_REFUSE_IF(!flw_program_owns_memory(program, pointer), CUDA_ERROR_INVALID_VALUE);
    }
    struct flw_position position = {0};
    bool stays = block->is_graphs;
    CUresult result = mark(stream, block, flw_check_frees, stays ? NULL : &position);
    if (result != CUDA_SUCCESS || stays) {
        return result; /* the graph's memory ends with the graph */
    }
    block->freed = position;
    if (flw_check_is_on()) {
        flw_clock_copy(&block->freed_clock, &stream->clock);
    }
    take_back(block->chunk->pool, block);
    return CUDA_SUCCESS;
}

bool flw_pool_owns(uint64_t address)
{
    struct flw_region *region = flw_region_find(address);
    return region != NULL && region->kind == FLW_REGION_POOLED;
}

bool flw_pool_block_at(uint64_t address, uint64_t *begin, uint64_t *end)
{
    struct block *block = find_block(address);
    if (block == NULL || !block->is_live) {
        return false;
    }
    *begin = block->node.begin;
    *end = block->node.end;
    return true;
}

CUresult flw_pool_free_now(uint64_t address)
{
    struct block *block = live_block_at(address);
    FLW_REFUSE_IF(block == NULL, CUDA_ERROR_INVALID_VALUE);
    /* "Callers must ensure that all accesses to these pointer have completed before cuMemFree." */
    flw_check_takes_away(block->node.begin, block->node.end, "cuMemFree of pool memory");
    block->freed = (struct flw_position){0};
    flw_clock_finish(&block->freed_clock);
    take_back(block->chunk->pool, block);
    return CUDA_SUCCESS;
}

/* The graph's last reference is gone: the launches are complete, so the driver itself may reuse
 * the block. */
void flw_pool_free_of_graph(uint64_t address)
{
    struct block *block = live_block_at(address);
    if (block != NULL) {
        flw_check_forget(block->node.begin, block->node.end);
        block->freed = (struct flw_position){0};
        flw_clock_finish(&block->freed_clock);
        take_back(block->chunk->pool, block);
    }
}

/* "the allocator will try to release memory back to the OS on the next call to stream, event or
 * context synchronize" */
void flw_pool_host_waited(void)
{
    for (struct flw_memory_pool *pool = flw_pool_first(); pool != NULL; pool = pool->next) {
        if (pool->reserved_bytes > pool->release_threshold) {
            trim(pool, pool->release_threshold);
        }
    }
}

void flw_pool_trim(struct flw_memory_pool *pool, uint64_t keep_bytes)
{
    trim(pool, keep_bytes);
}

void flw_pool_drop_blocks(struct flw_memory_pool *pool)
{
    while (pool->blocks.root != NULL) {
        drop_block(pool, FLW_CONTAINER(pool->blocks.root, struct block, node));
    }
    pool->free_blocks = (struct flw_tree){0};
    struct flw_tree_node *node = flw_tree_from(&flw_world.regions, 0);
    while (node != NULL) {
        uint64_t end = node->end;
        struct flw_region *region = FLW_CONTAINER(node, struct flw_region, node);
        if (region->kind == FLW_REGION_POOLED && region->pool == pool) {
            flw_physical_free(region->physical);
            flw_region_remove(region);
        }
        node = flw_tree_from(&flw_world.regions, end);
    }
}

/* ---- entry points ---- */

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream handle)
{
    FLW_CALL_ON_STREAM(cuMemAllocAsync, FLW_CALL_POOLS, handle);
    /* "The allocation comes from the memory pool current to the stream's device." */
    return allocate(flw_pool_current(call.stream->context->device), call.stream, pointer, bytes);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes,
                                         CUmemoryPool pool_handle, CUstream handle)
{
    FLW_CALL_ON_STREAM(cuMemAllocFromPoolAsync, FLW_CALL_POOLS, handle);
    struct flw_memory_pool *pool = flw_pool_find(pool_handle);
    FLW_REFUSE_IF(pool == NULL, CUDA_ERROR_INVALID_VALUE);
    return allocate(pool, call.stream, pointer, bytes);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr pointer, CUstream handle)
{
    FLW_CALL_ON_STREAM(cuMemFreeAsync, FLW_CALL_POOLS, handle);
    return flw_pool_owns(pointer) ? free_block(call.stream, pointer)
                                  : flw_memory_free_in_order(call.stream, pointer);
}
