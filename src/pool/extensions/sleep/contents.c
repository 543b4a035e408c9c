/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: contents that survive a sleep: the blocks, by tag, and their copies in pinned memory.
 * Does not: wait for the device (sleep.c). */
#include <stdlib.h>

#include "pool/extensions/sleep/sleep.h"
#include "pool/state/blocks.h"
#include "pool/state/extension.h"
#include "pool/state/settings.h"

#define CHUNK_BYTES (64 * FLW_MIB)
#define FREE_TRIES  3

/* ---- tags */

static bool is_saved_tag(const fallow_sleep_request *request, uint32_t tag)
{
    bool is_saved = (request->flags & FALLOW_SLEEP_SAVE_ALL) != 0;
    for (size_t i = 0; i < request->saved_tag_count && !is_saved; i++) {
        is_saved = request->saved_tags[i] == tag;
    }
    return is_saved;
}

static uint64_t kept_since(const struct flw_sleeper *sleeper, uint32_t tag)
{
    uint64_t since = sleeper->all_kept_since;
    for (uint32_t i = 0; i < sleeper->kept_count; i++) {
        if (sleeper->kept[i].tag == tag && (since == 0 || sleeper->kept[i].since < since)) {
            since = sleeper->kept[i].since;
        }
    }
    return since;
}

bool flw_sleep_has_kept(struct flw_pool *pool, uint32_t tag, uint64_t serial)
{
    struct flw_sleeper *sleeper = &pool->sleeper;
    flw_lock_acquire(&sleeper->lock);
    uint64_t since = kept_since(sleeper, tag);
    flw_lock_release(&sleeper->lock);
    return since != 0 && since <= serial + 1;
}

struct flw_kept_tag *flw_sleep_make_kept(const fallow_sleep_request *request)
{
    size_t count = request->saved_tag_count + 1;
    return calloc(count, sizeof(struct flw_kept_tag));
}

void flw_sleep_note_kept(struct flw_sleeper *sleeper, const fallow_sleep_request *request,
                         struct flw_kept_tag *kept)
{
    uint64_t serial = atomic_load(&sleeper->serial) + 1;
    struct flw_kept_tag *old = kept;
    flw_lock_acquire(&sleeper->lock);
    if ((request->flags & FALLOW_SLEEP_SAVE_ALL) != 0) {
        sleeper->all_kept_since = sleeper->all_kept_since == 0 ? serial : sleeper->all_kept_since;
    } else {
        uint32_t count = 0;
        for (size_t i = 0; i < request->saved_tag_count; i++) {
            uint64_t since = kept_since(sleeper, request->saved_tags[i]);
            kept[count].tag = request->saved_tags[i];
            kept[count++].since = since == 0 ? serial : since;
        }
        old = sleeper->kept;
        sleeper->kept = kept;
        sleeper->kept_count = count;
        sleeper->all_kept_since = 0;
    }
    flw_lock_release(&sleeper->lock);
    atomic_store(&sleeper->serial, serial);
    free(old);
}

/* ---- contents */

struct harvest {
    struct flw_pool *pool;
    const fallow_sleep_request *request;
    struct flw_saved_block *blocks;
    size_t count, room; /* more were counted than there was room for: repeat */
};

/* Contents of an exported handle stay in place. Heap and uses lock held. */
static void see(void *context, const struct flw_live_block *block)
{
    struct harvest *harvest = context;
    const struct flw_heap *heap = &harvest->pool->heap;
    const struct flw_handle *handle = flw_heap_handle_at(heap, block->address - heap->map.base);
    if (!is_saved_tag(harvest->request, block->tag) || (handle != NULL && handle->is_exported)) {
        return;
    }
    if (harvest->count < harvest->room) {
        harvest->blocks[harvest->count] =
            (struct flw_saved_block){.address = block->address, .size_bytes = block->size_bytes};
    }
    harvest->count++;
}

static bool find_blocks(struct flw_pool *pool, const fallow_sleep_request *request)
{
    struct harvest harvest = {.pool = pool, .request = request};
    if (request->saved_tag_count == 0 && (request->flags & FALLOW_SLEEP_SAVE_ALL) == 0) {
        return true;
    }
    do {
        harvest.room = harvest.count + harvest.count / 4 + 64;
        harvest.count = 0;
        free(harvest.blocks);
        harvest.blocks = malloc(harvest.room * sizeof *harvest.blocks);
        if (harvest.blocks == NULL) {
            return false;
        }
        flw_blocks_each(pool, see, &harvest);
    } while (harvest.count > harvest.room);
    pool->sleeper.saved = harvest.blocks;
    pool->sleeper.saved_count = harvest.count;
    return true;
}

/* Allocate pinned memory for the next blocks from `first` on, as many as fit a chunk. Makes driver
 * calls. */
static CUresult make_chunk(struct flw_pool *pool, size_t first, size_t *out_end)
{
    struct flw_sleeper *sleeper = &pool->sleeper;
    uint64_t bytes = 0;
    size_t end = first;
    void *chunk = NULL;
    while (end < sleeper->saved_count &&
           (end == first || bytes + sleeper->saved[end].size_bytes <= CHUNK_BYTES)) {
        bytes += sleeper->saved[end++].size_bytes;
    }
    *out_end = end;
    flw_heap_count_call(&pool->heap);
    CUresult result = pool->driver.cuMemHostAlloc(&chunk, bytes, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    sleeper->chunks[sleeper->chunk_count++] = chunk;
    atomic_fetch_add(&sleeper->saved_bytes, bytes);
    unsigned char *at = chunk;
    for (size_t i = first; i < end; i++) {
        sleeper->saved[i].copy = at;
        at += sleeper->saved[i].size_bytes;
    }
    return CUDA_SUCCESS;
}

/* False if the block was freed during the sleep: idle memory became address space.
 * Heap lock held. */
static bool has_memory(const struct flw_heap *heap, const struct flw_saved_block *block)
{
    uint64_t at = block->address - heap->map.base, end = at + block->size_bytes;
    bool has = true;
    while (has && at < end) {
        const struct flw_handle *handle = flw_heap_handle_at(heap, at);
        has = handle != NULL;
        at = has ? ((uint64_t)handle->begin_unit + handle->unit_count) << FLW_UNIT_LOG2 : at;
    }
    return has;
}

/* Takes the heap lock. */
static bool is_to_copy(struct flw_heap *heap, const struct flw_saved_block *block, bool is_out)
{
    flw_lock_acquire(&heap->lock);
    bool has = is_out || has_memory(heap, block);
    flw_lock_release(&heap->lock);
    return has;
}

/* Submit all copies before waiting for the first; after a failure none is under way, unless the
 * driver refuses to wait: then their memory stays. No capture is open, so the default stream takes
 * them. Makes driver calls. */
static fallow_status copy_all(struct flw_pool *pool, bool is_out)
{
    const struct flw_sleeper *sleeper = &pool->sleeper;
    const struct flw_driver *driver = &pool->driver;
    const char *call = is_out ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync";
    CUresult result = CUDA_SUCCESS;
    atomic_store(&pool->heap.has_open_copies, true);
    for (size_t i = 0; result == CUDA_SUCCESS && i < sleeper->saved_count; i++) {
        const struct flw_saved_block *block = &sleeper->saved[i];
        if (!is_to_copy(&pool->heap, block, is_out)) {
            continue;
        }
        flw_heap_count_call(&pool->heap);
        result = is_out ? driver->cuMemcpyDtoHAsync_v2(block->copy, block->address,
                                                       block->size_bytes, NULL)
                        : driver->cuMemcpyHtoDAsync_v2(block->address, block->copy,
                                                       block->size_bytes, NULL);
    }
    bool is_over = flw_heap_end_copies(&pool->heap);
    if (result != CUDA_SUCCESS) {
        return flw_heap_refuse(&pool->heap, result, call);
    }
    return is_over ? FALLOW_OK : flw_heap_not_entered(&pool->heap);
}

static fallow_status copy_out(struct flw_pool *pool)
{
    struct flw_sleeper *sleeper = &pool->sleeper;
    CUresult result = CUDA_SUCCESS;
    size_t end = 0;
    for (size_t i = 0; result == CUDA_SUCCESS && i < sleeper->saved_count; i = end) {
        result = make_chunk(pool, i, &end);
    }
    if (result != CUDA_SUCCESS) {
        fallow_status status = flw_heap_refuse(&pool->heap, result, "cuMemHostAlloc");
        return result == CUDA_ERROR_OUT_OF_MEMORY ? FALLOW_OUT_OF_HOST_MEMORY : status;
    }
    return copy_all(pool, true);
}

fallow_status flw_sleep_save(struct flw_pool *pool, const fallow_sleep_request *request)
{
    struct flw_sleeper *sleeper = &pool->sleeper;
    struct flw_driver_section section;
    flw_sleep_forget_saved(pool, false); /* if an earlier sleep could not */
    if (sleeper->chunk_count > 0) {
        return flw_heap_not_entered(&pool->heap);
    }
    if (!find_blocks(pool, request)) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    if (sleeper->saved_count == 0) {
        return FALLOW_OK;
    }
    sleeper->chunks = malloc(sleeper->saved_count * sizeof *sleeper->chunks);
    if (sleeper->chunks == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return flw_heap_not_entered(&pool->heap);
    }
    fallow_status status = copy_out(pool);
    flw_heap_leave_driver(&pool->heap, &section);
    return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : status;
}

fallow_status flw_sleep_restore(struct flw_pool *pool)
{
    const struct flw_sleeper *sleeper = &pool->sleeper;
    struct flw_driver_section section;
    if (sleeper->saved_count == 0) {
        return FALLOW_OK;
    }
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return flw_heap_not_entered(&pool->heap);
    }
    fallow_status status = copy_all(pool, false);
    flw_heap_leave_driver(&pool->heap, &section);
    return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : status;
}

/* A refused release is retried. Makes driver calls. */
static void free_chunk(struct flw_pool *pool, void *chunk)
{
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (unsigned n = 0; result != CUDA_SUCCESS && n < FREE_TRIES; n++) {
        flw_heap_count_call(&pool->heap);
        result = pool->driver.cuMemFreeHost(chunk);
    }
    if (flw_heap_refuse(&pool->heap, result, "cuMemFreeHost") != FALLOW_OK) {
        flw_pool_log(pool, FALLOW_LOG_WARNING,
                     "pinned memory of a sleep was not released: cuMemFreeHost answered %s",
                     flw_driver_error_name(&pool->driver, result));
    }
}

/* False: copies may be under way. Makes driver calls. */
static bool free_chunks(struct flw_pool *pool)
{
    struct flw_sleeper *sleeper = &pool->sleeper;
    struct flw_driver_section section;
    bool is_inside = false;
    for (unsigned n = 0; !is_inside && n < FREE_TRIES; n++) {
        is_inside = flw_heap_enter_driver(&pool->heap, &section);
    }
    if (!is_inside) {
        return false;
    }
    bool is_over = flw_heap_end_copies(&pool->heap);
    while (is_over && sleeper->chunk_count > 0) {
        free_chunk(pool, sleeper->chunks[--sleeper->chunk_count]);
    }
    flw_heap_leave_driver(&pool->heap, &section);
    return is_over;
}

static void drop_saved(struct flw_sleeper *sleeper)
{
    free(sleeper->chunks);
    free(sleeper->saved);
    sleeper->chunks = NULL;
    sleeper->saved = NULL;
    sleeper->chunk_count = sleeper->saved_count = 0;
    atomic_store(&sleeper->saved_bytes, 0);
}

void flw_sleep_forget_saved(struct flw_pool *pool, bool is_lost)
{
    struct flw_sleeper *sleeper = &pool->sleeper;
    bool is_free = is_lost || sleeper->chunk_count == 0 || free_chunks(pool);
    if (is_free || flw_heap_is_lost(&pool->heap)) {
        drop_saved(sleeper);
    } /* otherwise a poll, the next sleep or the pool's end retries */
}

static void poll(struct flw_pool *pool)
{
    if (atomic_load(&pool->sleeper.saved_bytes) == 0 || flw_gate_is_asleep(&pool->gate) ||
        !flw_gate_begin_turn(&pool->gate)) {
        return;
    }
    if (!flw_gate_is_asleep(&pool->gate)) {
        flw_sleep_forget_saved(pool, flw_heap_is_lost(&pool->heap));
    }
    flw_gate_end_turn(&pool->gate);
}

static void finish(struct flw_pool *pool, bool is_lost)
{
    flw_sleep_forget_saved(pool, is_lost);
    drop_saved(&pool->sleeper);
    free(pool->sleeper.kept);
    pool->sleeper.kept = NULL;
}

static void read_stats(struct flw_pool *pool, fallow_stats *stats)
{
    stats->saved_bytes = atomic_load(&pool->sleeper.saved_bytes);
}

const struct flw_extension flw_sleep_extension = {
    .finish = finish, .poll = poll, .read_stats = read_stats};
