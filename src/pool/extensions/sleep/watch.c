/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: who is asked before a sleep and told after a wake. Does not: know what either does.
 */
#include <string.h>

#include "pool/extensions/sleep/sleep.h"
#include "pool/state/table.h"

static bool is_watcher(const struct flw_sleep_watcher *watcher,
                       const struct flw_sleep_watcher *other)
{
    return watcher->before_sleep == other->before_sleep &&
           watcher->after_wake == other->after_wake && watcher->context == other->context;
}

fallow_status fallow_pool_watch_sleep(fallow_pool *handle,
                                      fallow_before_sleep_function before_sleep,
                                      fallow_after_wake_function after_wake, void *context)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (before_sleep == NULL && after_wake == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    struct flw_sleeper *sleeper = &pool->sleeper;
    flw_lock_acquire(&sleeper->lock);
    bool has_room = sleeper->watcher_count < FLW_SLEEP_WATCHERS;
    if (has_room) {
        sleeper->watchers[sleeper->watcher_count++] =
            (struct flw_sleep_watcher){before_sleep, after_wake, context};
    }
    flw_lock_release(&sleeper->lock);
    return has_room ? FALLOW_OK : FALLOW_BUSY;
}

fallow_status fallow_pool_unwatch_sleep(fallow_pool *handle,
                                        fallow_before_sleep_function before_sleep,
                                        fallow_after_wake_function after_wake, void *context)
{
    struct flw_pool *pool = flw_pool_of(handle);
    struct flw_sleep_watcher gone = {before_sleep, after_wake, context};
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    struct flw_sleeper *sleeper = &pool->sleeper;
    flw_lock_acquire(&sleeper->lock);
    uint32_t i = 0, count = sleeper->watcher_count;
    while (i < count && !is_watcher(&sleeper->watchers[i], &gone)) {
        i++;
    }
    if (i < count) {
        memmove(&sleeper->watchers[i], &sleeper->watchers[i + 1],
                (count - i - 1) * sizeof sleeper->watchers[0]);
        sleeper->watcher_count--;
    }
    flw_lock_release(&sleeper->lock);
    return i < count ? FALLOW_OK : FALLOW_NOT_FOUND;
}

void flw_sleep_look_up(struct flw_sleeper *sleeper, struct flw_sleep_watch *watch)
{
    flw_lock_acquire(&sleeper->lock);
    memcpy(watch->watchers, sleeper->watchers, sizeof watch->watchers);
    watch->count = sleeper->watcher_count;
    flw_lock_release(&sleeper->lock);
}

bool flw_sleep_ask(struct flw_sleep_watch *watch)
{
    for (uint32_t i = 0; i < watch->count; i++) {
        const struct flw_sleep_watcher *watcher = &watch->watchers[i];
        if (watcher->before_sleep != NULL && watcher->before_sleep(watcher->context) != 0) {
            watch->count = i + 1;
            return false;
        }
    }
    return true;
}

void flw_sleep_tell_awake(const struct flw_sleep_watch *watch)
{
    for (uint32_t i = watch->count; i-- > 0;) {
        if (watch->watchers[i].after_wake != NULL) {
            watch->watchers[i].after_wake(watch->watchers[i].context);
        }
    }
}
