/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: freed blocks that are filled and held back for a while, so that late writes are detected.
 * Does not: fill them (debug.c), or compare (ring.c). */
#include "base/backoff.h"
#include "pool/calls/free.h"
#include "pool/extensions/debug/guard.h"
#include "pool/state/settings.h"
#include "pool/streams/cache.h"
#include "pool/streams/current.h"

#define QUARANTINE_MOST 1024u

/* Return the next block to release: the oldest while there are too many, or one that matches the
 * caller; NULL: none. Lock held. */
static struct flw_guard *next_to_leave(struct flw_debug *debug, fallow_stream stream,
                                       bool wants_stream, bool wants_all)
{
    struct flw_guard **link = &debug->quarantine;
    bool is_over = debug->quarantine_count > QUARANTINE_MOST ||
                   debug->quarantine_bytes > debug->quarantine_most_bytes;
    while (*link != NULL && !wants_all && !is_over &&
           !(wants_stream && (*link)->freed_on == stream)) {
        link = &(*link)->next;
    }
    struct flw_guard *guard = *link;
    if (guard != NULL) {
        *link = guard->next;
        if (debug->quarantine_end == &guard->next) {
            debug->quarantine_end = link;
        }
        debug->quarantine_count--;
        debug->quarantine_bytes -= guard->size_bytes;
    }
    return guard;
}

/* NULL: the stream is gone, and the handle may belong to another. */
static const struct flw_domain *home_of(struct flw_pool *pool, const struct flw_guard *guard,
                                        fallow_status *status)
{
    const struct flw_tcache *cache = flw_pool_cache(pool, guard->freed_on, status);
    if (cache != NULL && cache->domain->id != guard->freed_on_id) {
        *status = FALLOW_INVALID_STREAM;
        return NULL;
    }
    return cache != NULL ? cache->domain : NULL;
}

static void leave_quarantine(struct flw_pool *pool, struct flw_guard *guard)
{
    struct flw_driver_section section;
    fallow_status status;
    const struct flw_domain *home = home_of(pool, guard, &status);
    if (home == NULL || flw_capture_is_on(home)) {
        flw_debug_leave_out(pool->debug);
    } else if (guard->size_bytes >= 4 && flw_heap_enter_driver(&pool->heap, &section)) {
        flw_debug_give_check(pool, guard, true, guard->freed_on);
        flw_heap_leave_driver(&pool->heap, &section);
    }
    if (home != NULL) {
        status = flw_pool_free_plain(pool, (void *)(uintptr_t)guard->raw, guard->freed_on);
    }
    if (status != FALLOW_OK) {
        flw_pool_log(pool, FALLOW_LOG_WARNING,
                     "block %#llx stays out of use: the stream that it was freed on was destroyed "
                     "without fallow_stream_retire (%s)",
                     (unsigned long long)guard->user, fallow_status_name(status));
    }
    flw_guard_drop(pool->debug, guard);
}

static void forget_leaver(struct flw_debug *debug, const struct flw_leaver *leaver)
{
    flw_lock_acquire(&debug->lock);
    struct flw_leaver **link = &debug->leavers;
    while (*link != leaver) {
        link = &(*link)->next;
    }
    *link = leaver->next;
    flw_lock_release(&debug->lock);
}

static bool drain_quarantine(struct flw_pool *pool, fallow_stream stream, bool wants_stream,
                             bool wants_all)
{
    struct flw_debug *debug = pool->debug;
    bool any = false;
    for (struct flw_guard *guard;; any = true) {
        struct flw_leaver leaver;
        flw_lock_acquire(&debug->lock);
        guard = next_to_leave(debug, stream, wants_stream, wants_all);
        if (guard != NULL) {
            leaver = (struct flw_leaver){.next = debug->leavers, .stream = guard->freed_on};
            debug->leavers = &leaver;
        }
        flw_lock_release(&debug->lock);
        if (guard == NULL) {
            return any;
        }
        leave_quarantine(pool, guard);
        forget_leaver(debug, &leaver);
    }
}

/* The caller retires the stream: wait for threads with blocks of the handle. */
static void await_leavers(struct flw_debug *debug, fallow_stream stream)
{
    struct flw_backoff backoff = {0};
    for (bool is_named = true; is_named;) {
        flw_lock_acquire(&debug->lock);
        const struct flw_leaver *leaver = debug->leavers;
        while (leaver != NULL && leaver->stream != stream) {
            leaver = leaver->next;
        }
        is_named = leaver != NULL;
        flw_lock_release(&debug->lock);
        if (is_named) {
            flw_backoff_wait(&backoff);
        }
    }
}

bool flw_debug_release(struct flw_pool *pool)
{
    return drain_quarantine(pool, NULL, false, true);
}

void flw_debug_release_stream(struct flw_pool *pool, fallow_stream stream)
{
    (void)drain_quarantine(pool, stream, true, false);
    await_leavers(pool->debug, stream);
}

void flw_debug_quarantine(struct flw_pool *pool, struct flw_guard *guard, fallow_stream stream,
                          const struct flw_domain *domain)
{
    struct flw_debug *debug = pool->debug;
    guard->freed_on = stream;
    guard->freed_on_id = domain->id;
    guard->next = NULL;
    flw_lock_acquire(&debug->lock);
    *debug->quarantine_end = guard;
    debug->quarantine_end = &guard->next;
    debug->quarantine_count++;
    debug->quarantine_bytes += guard->size_bytes;
    flw_lock_release(&debug->lock);
    (void)drain_quarantine(pool, stream, false, false);
}
