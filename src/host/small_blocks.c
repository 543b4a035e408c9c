/* SPDX-License-Identifier: Apache-2.0 */
#include "host/small_blocks.h"

#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "base/bits.h"

/* Argument of experimental.arenas_create_ext (jemalloc 5.3, arena_config_t). */
struct arena_config {
    extent_hooks_t *hooks;
    bool metadata_use_hooks;
};

/* jemalloc would reserve address space in steps of 2 MiB and more and keep the unused part; after
 * a refusal it requests only what it needs. No slab is larger than this. */
#define LARGEST_EXTENT (256 * FLW_KIB)

static struct flw_small_blocks *smalls_of(extent_hooks_t *hooks)
{
    return (struct flw_small_blocks *)(void *)hooks;
}

/* ---- hooks */

static void *hand_over(extent_hooks_t *hooks, void *new_address, size_t bytes, size_t align_bytes,
                       bool *zero, bool *commit, unsigned arena)
{
    struct flw_small_blocks *small_blocks = smalls_of(hooks);
    (void)arena;
    if (new_address != NULL || bytes > LARGEST_EXTENT || align_bytes > FLW_HOST_PAGE) {
        return NULL;
    }
    flw_lock_acquire(small_blocks->pages_lock);
    void *extent = flw_pages_take(small_blocks->pages, bytes, FLW_PAGES_SMALL, UINT64_MAX);
    if (extent == NULL && atomic_load_explicit(&small_blocks->takes_any, memory_order_relaxed)) {
        extent = flw_pages_take_any(small_blocks->pages, bytes);
    }
    flw_lock_release(small_blocks->pages_lock);
    if (extent != NULL && *zero) { /* not requested here */
        memset(extent, 0, bytes);
    }
    *zero = *zero && extent != NULL;
    *commit = true;
    return extent;
}

static bool take_back(extent_hooks_t *hooks, void *address, size_t bytes, bool committed,
                      unsigned arena)
{
    struct flw_small_blocks *small_blocks = smalls_of(hooks);
    (void)committed;
    (void)arena;
    flw_lock_acquire(small_blocks->pages_lock);
    flw_pages_put(small_blocks->pages, address, bytes);
    flw_lock_release(small_blocks->pages_lock);
    return false;
}

static void take_back_at_end(extent_hooks_t *hooks, void *address, size_t bytes, bool committed,
                             unsigned arena)
{
    (void)take_back(hooks, address, bytes, committed, arena);
}

static bool may_split(extent_hooks_t *hooks, void *address, size_t bytes, size_t left_bytes,
                      size_t right_bytes, bool committed, unsigned arena)
{
    (void)hooks;
    (void)address;
    (void)bytes;
    (void)left_bytes;
    (void)right_bytes;
    (void)committed;
    (void)arena;
    return false;
}

/* A copy must not cross from one driver allocation into the next. */
static bool may_not_merge(extent_hooks_t *hooks, void *left, size_t left_bytes, void *right,
                          size_t right_bytes, bool committed, unsigned arena)
{
    struct flw_small_blocks *small_blocks = smalls_of(hooks);
    (void)left_bytes;
    (void)right_bytes;
    (void)committed;
    (void)arena;
    flw_lock_acquire(small_blocks->pages_lock);
    bool is_one = flw_pages_chunk_at(small_blocks->pages, left) ==
                  flw_pages_chunk_at(small_blocks->pages, right);
    flw_lock_release(small_blocks->pages_lock);
    return !is_one;
}

/* ---- the arena */

static int control(const struct flw_small_blocks *small_blocks, const char *verb, void *value,
                   size_t bytes)
{
    char name[64];
    snprintf(name, sizeof name, "arena.%u.%s", small_blocks->arena, verb);
    return mallctl(name, NULL, NULL, value, bytes);
}

/* Return the largest size for slabs; 0, so that runs of pages serve everything, if jemalloc was
 * built for larger pages: the extents would need an alignment that runs do not have. */
static size_t largest_bin(void)
{
    unsigned count = 0;
    size_t bytes = 0, page_bytes = 0, length = sizeof page_bytes;
    char name[64];
    if (mallctl("arenas.page", &page_bytes, &length, NULL, 0) != 0 || page_bytes > FLW_HOST_PAGE) {
        return 0;
    }
    length = sizeof count;
    if (mallctl("arenas.nbins", &count, &length, NULL, 0) != 0 || count == 0) {
        return 0;
    }
    snprintf(name, sizeof name, "arenas.bin.%u.size", count - 1);
    length = sizeof bytes;
    return mallctl(name, &bytes, &length, NULL, 0) == 0 ? bytes : 0;
}

fallow_status flw_small_blocks_init(struct flw_small_blocks *small_blocks, struct flw_pages *pages,
                                    struct flw_lock *pages_lock)
{
    size_t length = sizeof small_blocks->arena;
    ssize_t never = -1, at_once = 0;
    *small_blocks = (struct flw_small_blocks){.hooks = {.alloc = hand_over,
                                                        .dalloc = take_back,
                                                        .destroy = take_back_at_end,
                                                        .split = may_split,
                                                        .merge = may_not_merge},
                                              .pages = pages,
                                              .pages_lock = pages_lock};
    flw_lock_init(&small_blocks->lock, FLW_RANK_CACHE);
    struct arena_config config = {.hooks = &small_blocks->hooks};
    if (mallctl("experimental.arenas_create_ext", &small_blocks->arena, &length, &config,
                sizeof config) != 0) {
        return FALLOW_NOT_SUPPORTED;
    }
    length = sizeof small_blocks->cache;
    if (mallctl("tcache.create", &small_blocks->cache, &length, NULL, 0) != 0) {
        (void)control(small_blocks, "destroy", NULL, 0);
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    (void)control(small_blocks, "dirty_decay_ms", &never, sizeof never);
    (void)control(small_blocks, "muzzy_decay_ms", &at_once, sizeof at_once);
    small_blocks->flags = MALLOCX_ARENA(small_blocks->arena) | MALLOCX_TCACHE(small_blocks->cache) |
                          MALLOCX_LG_ALIGN(FLW_SMALL_ALIGN_LOG2);
    small_blocks->most_bytes = largest_bin();
    small_blocks->is_open = true;
    return FALLOW_OK;
}

void flw_small_blocks_finish(struct flw_small_blocks *small_blocks)
{
    if (small_blocks->is_open) {
        (void)mallctl("tcache.destroy", NULL, NULL, &small_blocks->cache,
                      sizeof small_blocks->cache);
        (void)control(small_blocks, "destroy", NULL, 0);
        small_blocks->is_open = false;
    }
}

/* ---- blocks */

void *flw_small_blocks_take(struct flw_small_blocks *small_blocks, size_t bytes, bool takes_any)
{
    flw_lock_acquire(&small_blocks->lock);
    atomic_store_explicit(&small_blocks->takes_any, takes_any, memory_order_relaxed);
    void *block = mallocx(bytes, small_blocks->flags);
    flw_lock_release(&small_blocks->lock);
    return block;
}

void flw_small_blocks_begin_put(struct flw_small_blocks *small_blocks)
{
    flw_lock_acquire(&small_blocks->lock);
}

void flw_small_blocks_put(struct flw_small_blocks *small_blocks, void *block, size_t bytes)
{
    sdallocx(block, bytes, small_blocks->flags);
}

void flw_small_blocks_end_put(struct flw_small_blocks *small_blocks)
{
    flw_lock_release(&small_blocks->lock);
}

void flw_small_blocks_flush(struct flw_small_blocks *small_blocks)
{
    flw_lock_acquire(&small_blocks->lock);
    (void)mallctl("tcache.flush", NULL, NULL, &small_blocks->cache, sizeof small_blocks->cache);
    (void)control(small_blocks, "purge", NULL, 0);
    flw_lock_release(&small_blocks->lock);
}
