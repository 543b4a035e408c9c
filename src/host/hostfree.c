/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the path of a free: the call, blocks that wait for streams, the pages; announced uses; the
 * retirement of a stream. Does not: wait for streams (hostfence.c). */
#include <errno.h>

#include "host/hostpool.h"

#define COMPLETE_AT_ONE 16u /* uses completed under one hold of the lock */

/* Return blocks that wait for nothing and are out of the table. No lock held. */
static void return_chain(struct flw_hostpool *pool, struct flw_hostblock *chain)
{
    if (chain == NULL) {
        return;
    }
    flw_small_blocks_begin_put(&pool->small_blocks);
    for (struct flw_hostblock *block = chain; block != NULL; block = block->next) {
        flw_small_blocks_put(&pool->small_blocks, block->base, block->bytes);
    }
    flw_small_blocks_end_put(&pool->small_blocks);
    flw_lock_acquire(&pool->lock);
    while (chain != NULL) {
        struct flw_hostblock *next = chain->next;
        flw_blocks_drop(&pool->blocks, chain);
        chain = next;
    }
    flw_lock_release(&pool->lock);
}

/* Remove a block that waits for nothing: the address is free. jemalloc's blocks are added to the
 * chain. Lock held. */
static void retire_block(struct flw_hostpool *pool, struct flw_hostblock *block,
                         struct flw_hostblock **chain)
{
    pool->deferred_bytes -= block->bytes;
    flw_blocks_remove(&pool->blocks, block);
    if (block->is_small) {
        block->next = *chain;
        *chain = block;
    } else {
        flw_pages_put(&pool->pages, block->base, block->bytes);
        flw_blocks_drop(&pool->blocks, block);
    }
}

/* Complete the first uses, few enough that other threads do not wait long for the lock, and return
 * the rest. Blocks that wait for nothing any more return to the pages or join the chain. Lock
 * held. */
static struct flw_hostuse *complete_some(struct flw_hostpool *pool, struct flw_hostuse *uses,
                                         struct flw_hostblock **chain)
{
    for (unsigned n = 0; uses != NULL && n < COMPLETE_AT_ONE; n++) {
        struct flw_hostuse *use = uses;
        struct flw_hostblock *block = use->block;
        uses = use->next;
        flw_blocks_drop_use(&pool->blocks, use);
        if (--block->awaits == 0 && !block->is_live) {
            retire_block(pool, block, chain);
        }
    }
    return uses;
}

void flw_hostpool_complete(struct flw_hostpool *pool, struct flw_hostuse *uses)
{
    while (uses != NULL) {
        struct flw_hostblock *chain = NULL;
        uses = complete_some(pool, uses, &chain);
        if (uses != NULL || chain != NULL) {
            flw_lock_release(&pool->lock);
            return_chain(pool, chain);
            flw_lock_acquire(&pool->lock);
        }
    }
}

static fallow_status refuse_pointer(struct flw_hostpool *pool, const char *call, const void *ptr)
{
    atomic_fetch_add(&pool->misuse_count, 1);
    return flw_hostpool_refuse(
        pool, FALLOW_INVALID_POINTER,
        "%s of %p: no live block of this host pool begins there; pass each pointer of fallow_host_alloc once",
        call, ptr);
}

static fallow_status refuse_stream(struct flw_hostpool *pool, const char *call,
                                   fallow_status status)
{
    if (flw_pin_is_lost(&pool->pin)) {
        return flw_hostpool_refuse_lost(pool);
    }
    if (status == FALLOW_DRIVER) {
        return flw_hostpool_refuse(
            pool, status, "%s: the driver cannot identify the stream now; try again", call);
    }
    return flw_hostpool_refuse(
        pool, status, "%s: %s; pass a live stream, and retire a stream before destroying it", call,
        fallow_status_message(status));
}

/* Defer a live block; the announced uses begin to count. Lock held. */
static void defer(struct flw_hostpool *pool, struct flw_hostblock *block)
{
    block->is_live = false;
    pool->requested_bytes -= block->bytes;
    pool->deferred_bytes += block->bytes;
    pool->live_count--;
    pool->free_count++;
    while (block->announced != NULL) {
        struct flw_hostuse *use = block->announced;
        block->announced = use->next;
        use->stream->announced_count--;
        if (FLW_HOST_PLANTED(USE_IGNORED)) {
            flw_blocks_drop_use(&pool->blocks, use);
        } else {
            flw_fences_add(pool, use->stream, use);
        }
    }
}

/* Find the live block and the stream, valid until the lock is released; NULL: see *status. Returns
 * with the lock held on success. */
static struct flw_hostblock *find_both(struct flw_hostpool *pool, const char *call, const void *ptr,
                                       fallow_stream handle, struct flw_hoststream **out_stream,
                                       fallow_status *status)
{
    *status = flw_fences_find(pool, handle, out_stream);
    if (*status != FALLOW_OK) {
        *status = refuse_stream(pool, call, *status);
        return NULL;
    }
    struct flw_hostblock *block = flw_blocks_find(&pool->blocks, ptr);
    if (block != NULL && block->is_live) {
        return block;
    }
    flw_lock_release(&pool->lock);
    *status = refuse_pointer(pool, call, ptr);
    return NULL;
}

static fallow_status take_back(struct flw_hostpool *pool, void *ptr, fallow_stream handle)
{
    struct flw_hoststream *stream;
    fallow_status status;
    struct flw_hostblock *block =
        find_both(pool, "fallow_host_free", ptr, handle, &stream, &status);
    if (block == NULL) {
        return status;
    }
    defer(pool, block);
    flw_fences_add(pool, stream, &block->own);
    bool is_due = flw_fences_is_due(stream);
    flw_lock_release(&pool->lock);
    if (is_due) {
        struct flw_pin_section section;
        flw_pin_hold(&pool->pin, &section);
        (void)flw_fences_record(pool, stream);
        (void)flw_fences_poll(pool, stream);
        flw_pin_leave(&pool->pin, &section);
    }
    return FALLOW_OK;
}

fallow_status fallow_host_free(fallow_host *host, void *ptr, fallow_stream stream)
{
    struct flw_hostpool *pool = flw_hostpool_of(host);
    int saved = errno;
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (ptr == NULL || flw_pin_is_lost(&pool->pin)) {
        return FALLOW_OK;
    }
    fallow_status status = take_back(pool, ptr, stream);
    errno = saved;
    return status;
}

fallow_status fallow_host_free_idle(fallow_host *host, void *ptr)
{
    struct flw_hostpool *pool = flw_hostpool_of(host);
    struct flw_hostblock *chain = NULL;
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (ptr == NULL || flw_pin_is_lost(&pool->pin)) {
        return FALLOW_OK;
    }
    flw_lock_acquire(&pool->lock);
    struct flw_hostblock *block = flw_blocks_find(&pool->blocks, ptr);
    bool is_live = block != NULL && block->is_live;
    if (is_live) {
        defer(pool, block);
        if (block->awaits == 0) {
            retire_block(pool, block, &chain);
        }
    }
    flw_lock_release(&pool->lock);
    return_chain(pool, chain);
    return is_live ? FALLOW_OK : refuse_pointer(pool, "fallow_host_free_idle", ptr);
}

/* ---- uses, streams */

fallow_status fallow_host_record_use(fallow_host *host, void *ptr, fallow_stream handle)
{
    struct flw_hostpool *pool = flw_hostpool_of(host);
    struct flw_hoststream *stream;
    fallow_status status;
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (flw_pin_is_lost(&pool->pin)) {
        return FALLOW_OK;
    }
    struct flw_hostblock *block =
        find_both(pool, "fallow_host_record_use", ptr, handle, &stream, &status);
    if (block == NULL) {
        return status;
    }
    const struct flw_hostuse *seen = block->announced;
    while (seen != NULL && seen->stream != stream) {
        seen = seen->next;
    }
    struct flw_hostuse *use = seen == NULL ? flw_blocks_new_use(&pool->blocks) : NULL;
    bool is_own_thread = stream->thread != 0;
    if (use != NULL) {
        *use = (struct flw_hostuse){.block = block, .stream = stream};
        if (is_own_thread) { /* no other thread could record it later */
            flw_fences_add(pool, stream, use);
        } else {
            use->next = block->announced;
            block->announced = use;
            stream->announced_count++;
        }
    }
    flw_lock_release(&pool->lock);
    if (use != NULL && is_own_thread) {
        (void)flw_fences_record(pool, stream);
    }
    return use != NULL || seen != NULL
               ? FALLOW_OK
               : flw_hostpool_refuse(
                     pool, FALLOW_OUT_OF_HOST_MEMORY,
                     "fallow_host_record_use: no host memory for the pool's tables; free blocks");
}

fallow_status fallow_host_stream_retire(fallow_host *host, fallow_stream stream)
{
    struct flw_hostpool *pool = flw_hostpool_of(host);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (flw_pin_is_lost(&pool->pin)) {
        return FALLOW_OK;
    }
    fallow_status status = flw_fences_retire(pool, stream);
    return status == FALLOW_OK || flw_pin_is_lost(&pool->pin)
               ? FALLOW_OK
               : flw_hostpool_refuse(pool, status, "fallow_host_stream_retire: %s; %s",
                                     fallow_status_message(status),
                                     status == FALLOW_BUSY ? "end the capture first" : "try again");
}
