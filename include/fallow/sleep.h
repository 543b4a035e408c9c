/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Sleep: a pool releases its physical memory and keeps its addresses. After the wake every block and
 * every captured graph has its old addresses.
 *
 * CAVEATS
 *  - Contents are lost, except those of blocks with a saved tag. A save reads whole blocks,
 *    unwritten bytes included, which tools that detect such reads report.
 *  - Graphs, leases and the caller's own work may use the pool's memory again only after the wake. The
 *    scratch memory of a lease that stays open over a sleep is undefined afterwards.
 *  - Arenas initialise persistent regions again if the tag was not saved: in the next lease, or in the
 *    next fallow_lease_guard if graphs use the regions.
 *  - Memory registered with others (network adapters, collective libraries) is unmapped as well:
 *    deregister it in a watcher and register it again after the wake.
 *  - Exported handles (share.h) keep their memory and contents; imports stay mapped.
 *  - Other processes and pools may take the released memory: a wake may fail and be retried.
 */
#ifndef FALLOW_SLEEP_H
#define FALLOW_SLEEP_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Bits of fallow_sleep_request.flags. */
enum {
    FALLOW_SLEEP_WAIT = 1u << 0,    /**< wait for work and allocations under way, instead of BUSY */
    FALLOW_SLEEP_SAVE_ALL = 1u << 1 /**< save the contents of every live block */
};

/** How to sleep. 0 selects the default of every field except struct_size. */
typedef struct fallow_sleep_request {
    size_t struct_size;  /**< set by fallow_sleep_request_init */
    uint32_t flags;      /**< FALLOW_SLEEP_ bits */
    uint32_t reserved_0; /**< 0 */
    /** Save the contents of live blocks with these tags to pinned host memory; 0 selects blocks without
     *  a tag. Read during the call only. */
    const uint32_t *saved_tags;
    size_t saved_tag_count; /**< at most 4,096 */
} fallow_sleep_request;

/** Fill with defaults and set struct_size. */
FALLOW_API void fallow_sleep_request_init_sized(fallow_sleep_request *request, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_sleep_request_init(fallow_sleep_request *request)
{
    fallow_sleep_request_init_sized(request, sizeof *request);
}

/**
 * Release the physical memory and keep the addresses.
 *
 * The call succeeds as a whole or leaves the pool awake with its contents. If the driver also refuses
 * to undo a partial sleep, the pool is asleep and still holds all its memory: a wake restores all
 * contents, and the log names the call. If the driver refuses to release a handle after it has
 * released others, the sleeping pool keeps the handle and the wake uses it.
 *
 * While the pool is asleep, allocations return ASLEEP; frees, announced uses and destroy work as
 * always; trim and poll find nothing to release; `reserved_bytes` is the memory still held.
 *
 * request     NULL: lose all contents and wait for nothing.
 * Ordering    all work of the pool's context, and of other contexts' streams that were announced to
 *             the pool, is complete: waited for, or found complete. If the driver has no
 *             cuCtxRecordEvent, only streams that the pool tracks are queried (with streams_may_die
 *             only fenced work); all other work is waited for. Peers and importers must have
 *             completed their work.
 * Errors      BUSY (work, an allocation, another sleep or wake is under way; a capture is open; a
 *             watcher refused), CAPTURING (a capture that was not announced to this pool; README.md,
 *             "Captures that a call meets", lists which captures end), ASLEEP (already asleep, or
 *             asleep now with all its memory, see above), NOT_SUPPORTED (segments; a pool with debug
 *             checks), INVALID_ARGUMENT, OUT_OF_HOST_MEMORY (no room to save), DRIVER, DEVICE_LOST.
 * Threads     calls that need physical memory wait for the sleep to end; NO_WAIT requests return
 *             WOULD_WAIT. Must not be called from on_oom.
 * Cost        driver calls for each handle and each saved block; waits for the device.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_sleep(fallow_pool *pool,
                                                            const fallow_sleep_request *request);

/**
 * Map memory at the same addresses again and restore saved contents. Returns OK if the pool is awake.
 *
 * Contents    of saved blocks as before; all others undefined.
 * Errors      OUT_OF_MEMORY (the report's size_bytes is the missing amount; other pools of the
 *             process have released their free memory, waiting as their wait_ms allows), DRIVER: the
 *             pool is still asleep, nothing is lost, retry. BUSY (another thread is waking, importing
 *             or changing peers), DEVICE_LOST.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_wake(fallow_pool *pool);

/** Called before a sleep, while the pool still allocates, to free blocks and stop submitting work.
 *  Nonzero refuses: the sleep returns BUSY. Called on the thread that calls sleep, with no lock held;
 *  may use the pool but not put it to sleep. */
typedef int (*fallow_before_sleep_function)(void *context);
/** Called after a wake, and after a failed sleep if the watcher's before_sleep was called. */
typedef void (*fallow_after_wake_function)(void *context);

/**
 * Add a watcher of sleeps, at most 16 per pool. Watchers are called in the order of these calls before
 * a sleep, and in reverse after a wake. One of the functions may be NULL.
 *
 * Errors      BUSY (16 watchers exist), INVALID_ARGUMENT (both NULL).
 */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_pool_watch_sleep(fallow_pool *pool, fallow_before_sleep_function before_sleep,
                        fallow_after_wake_function after_wake, void *context);
/** Remove the watcher with these arguments. A sleep or wake under way may still call its functions.
 *  NOT_FOUND if there is none. */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_pool_unwatch_sleep(fallow_pool *pool, fallow_before_sleep_function before_sleep,
                          fallow_after_wake_function after_wake, void *context);

#ifdef __cplusplus
}
#endif

#endif
