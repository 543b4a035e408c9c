/* SPDX-License-Identifier: Apache-2.0 */
#include "pool/extensions/debug/guard.h"

#include <stdlib.h>

#include "pool/state/blocks.h"
#include "pool/state/extension.h"
#include "pool/state/settings.h"

#define LEAKS_LISTED 16u

static struct flw_guard **bucket_of(struct flw_debug *debug, uint64_t user)
{
    return &debug->live[((user >> 8) * 0x9E3779B97F4A7C15ull) >> 52];
}

struct flw_guard *flw_guard_find(struct flw_debug *debug, uint64_t user)
{
    struct flw_guard *guard = *bucket_of(debug, user);
    while (guard != NULL && guard->user != user) {
        guard = guard->next;
    }
    return guard;
}

void flw_guard_insert(struct flw_debug *debug, struct flw_guard *guard)
{
    struct flw_guard **bucket = bucket_of(debug, guard->user);
    guard->next = *bucket;
    *bucket = guard;
}

struct flw_guard *flw_guard_take(struct flw_debug *debug, uint64_t user)
{
    struct flw_guard **link = bucket_of(debug, user);
    while (*link != NULL && (*link)->user != user) {
        link = &(*link)->next;
    }
    struct flw_guard *guard = *link;
    if (guard != NULL) {
        *link = guard->next;
    }
    return guard;
}

struct flw_guard *flw_guard_new(struct flw_debug *debug)
{
    flw_lock_acquire(&debug->lock);
    struct flw_guard *guard = debug->unused;
    if (guard != NULL) {
        debug->unused = guard->next;
    }
    flw_lock_release(&debug->lock);
    return guard != NULL ? guard : malloc(sizeof *guard);
}

void flw_guard_drop(struct flw_debug *debug, struct flw_guard *guard)
{
    flw_lock_acquire(&debug->lock);
    guard->next = debug->unused;
    debug->unused = guard;
    flw_lock_release(&debug->lock);
}

void flw_debug_leave_out(struct flw_debug *debug)
{
    flw_lock_acquire(&debug->lock);
    debug->left_out_count++;
    flw_lock_release(&debug->lock);
}

static void fill_view(const struct flw_guard *guard, struct flw_view *out_view)
{
    *out_view = (struct flw_view){.raw = guard->raw,
                                  .user = guard->user,
                                  .size_bytes = guard->size_bytes,
                                  .stream_id = guard->stream_id};
}

bool flw_guard_view(struct flw_pool *pool, uint64_t user, struct flw_view *out_view)
{
    struct flw_debug *debug = pool->debug;
    flw_lock_acquire(&debug->lock);
    const struct flw_guard *guard = flw_guard_find(debug, user);
    if (guard != NULL) {
        fill_view(guard, out_view);
    }
    flw_lock_release(&debug->lock);
    return guard != NULL;
}

bool flw_guard_view_raw(struct flw_pool *pool, uint64_t raw, struct flw_view *out_view)
{
    struct flw_debug *debug = pool->debug;
    const struct flw_guard *guard = NULL;
    flw_lock_acquire(&debug->lock);
    for (unsigned i = 0; i < FLW_DEBUG_BUCKETS && guard == NULL; i++) {
        for (guard = debug->live[i]; guard != NULL && guard->raw != raw;) {
            guard = guard->next;
        }
    }
    if (guard != NULL) {
        fill_view(guard, out_view);
    }
    flw_lock_release(&debug->lock);
    return guard != NULL;
}

void flw_guard_each(struct flw_pool *pool,
                    void (*visit)(void *context, const struct flw_live_block *block), void *context)
{
    struct flw_debug *debug = pool->debug;
    flw_lock_acquire(&debug->lock);
    for (unsigned i = 0; i < FLW_DEBUG_BUCKETS; i++) {
        for (const struct flw_guard *guard = debug->live[i]; guard != NULL; guard = guard->next) {
            visit(context, &(struct flw_live_block){.address = guard->user,
                                                    .size_bytes = guard->size_bytes,
                                                    .usable_bytes = guard->size_bytes,
                                                    .stream_id = guard->stream_id,
                                                    .tag = guard->tag});
        }
    }
    flw_lock_release(&debug->lock);
}

void flw_guard_read_stats(struct flw_pool *pool, fallow_stats *stats)
{
    struct flw_debug *debug = pool->debug;
    flw_lock_acquire(&debug->lock);
    stats->damage_count = debug->damaged_count;
    stats->unchecked_count = debug->left_out_count;
    flw_lock_release(&debug->lock);
}

void flw_guard_list_leaks(struct flw_pool *pool)
{
    const struct flw_debug *debug = pool->debug;
    const struct flw_guard *largest[LEAKS_LISTED] = {0};
    for (unsigned b = 0; b < FLW_DEBUG_BUCKETS; b++) {
        for (const struct flw_guard *guard = debug->live[b]; guard != NULL; guard = guard->next) {
            const struct flw_guard *moving = guard;
            for (unsigned i = 0; i < LEAKS_LISTED && moving != NULL; i++) {
                if (largest[i] == NULL || largest[i]->size_bytes < moving->size_bytes) {
                    const struct flw_guard *smaller = largest[i];
                    largest[i] = moving;
                    moving = smaller;
                }
            }
        }
    }
    for (unsigned i = 0; i < LEAKS_LISTED && largest[i] != NULL; i++) {
        flw_pool_log(pool, FALLOW_LOG_WARNING,
                     "never freed: block %#llx of %llu bytes (tag %u, allocated on stream id %llu)",
                     (unsigned long long)largest[i]->user,
                     (unsigned long long)largest[i]->size_bytes, largest[i]->tag,
                     (unsigned long long)largest[i]->stream_id);
    }
}

static void free_list(struct flw_guard *guard)
{
    for (struct flw_guard *next; guard != NULL; guard = next) {
        next = guard->next;
        free(guard);
    }
}

void flw_guard_free_all(struct flw_debug *debug)
{
    for (unsigned b = 0; b < FLW_DEBUG_BUCKETS; b++) {
        free_list(debug->live[b]);
    }
    free_list(debug->unused);
    free_list(debug->quarantine);
}
