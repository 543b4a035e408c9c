/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a pool's state of sleeps: watchers, saved contents, and the tags with contents kept since
 * which sleep. */
#ifndef FLW_POOL_STATE_SLEEPER_H
#define FLW_POOL_STATE_SLEEPER_H

#include "base/lock.h"
#include "fallow/sleep.h"

#define FLW_SLEEP_WATCHERS 16

struct flw_sleep_watcher {
    fallow_before_sleep_function before_sleep;
    fallow_after_wake_function after_wake;
    void *context;
};

/* Contents of a block, in one of the chunks. */
struct flw_saved_block {
    uint64_t address, size_bytes;
    unsigned char *copy;
};

/* A tag that every sleep from number `since` to the last one has saved. */
struct flw_kept_tag {
    uint32_t tag;
    uint64_t since;
};

/* Synchronization: the turn (gate.h); watchers and kept tags by the lock; atomics. */
struct flw_sleeper {
    struct flw_lock lock; /* FLW_RANK_META */
    struct flw_sleep_watcher watchers[FLW_SLEEP_WATCHERS];
    uint32_t watcher_count;
    struct flw_kept_tag *kept;
    uint32_t kept_count;
    uint64_t all_kept_since; /* the same for all tags; 0: the last sleep lost some */

    struct flw_saved_block *saved;
    size_t saved_count;
    void **chunks; /* pinned host memory */
    size_t chunk_count;
    _Atomic uint64_t saved_bytes;
    _Atomic uint64_t serial; /* of the last sleep, counted from 1 */
};

#endif
