/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Sleep: a pool gives its physical memory back and keeps its addresses. After the wake every block,
 * and every graph that was captured, is where it was.
 *
 * CAVEATS
 *  - Contents are dropped, but for blocks with a tag that the sleep was told to save. A save reads
 *    all of a block, what was never written too: tools that look for such reads report it.
 *  - Graphs, leases and the caller's own work may touch the pool's memory again only after the wake.
 *    A lease that is open over a sleep finds its scratch memory undefined.
 *  - Arenas notice: persistent regions whose tag was not saved are initialised again by the next
 *    lease, or the next fallow_lease_guard where graphs hold them.
 *  - What others have registered (network cards, collective libraries) is unmapped as well: undo it in
 *    a watcher, and do it again after the wake.
 *  - Exported handles (share.h) stay, and what lies in them; imports stay.
 *  - Other processes and pools may take what was released: a wake may fail, and be tried again.
 */
#ifndef FALLOW_SLEEP_H
#define FALLOW_SLEEP_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Bits of fallow_sleep_request.flags. */
enum {
    FALLOW_SLEEP_WAIT = 1u << 0,    /**< wait for work and allocations under way; else BUSY */
    FALLOW_SLEEP_SAVE_ALL = 1u << 1 /**< save the contents of every live block */
};

/** How to sleep. Zero is the default for every field but struct_size. */
typedef struct fallow_sleep_request {
    size_t struct_size; /**< set by fallow_sleep_request_init */
    uint32_t flags;     /**< FALLOW_SLEEP_ bits */
    uint32_t reserved_0;
    const uint32_t
        *saved_tags;        /**< contents of live blocks with these tags are saved to pinned host
                                     memory; 0 stands for blocks without one. Read during the call */
    size_t saved_tag_count; /**< at most 4,096 */
} fallow_sleep_request;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_sleep_request_init_sized(fallow_sleep_request *request, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_sleep_request_init(fallow_sleep_request *request)
{
    fallow_sleep_request_init_sized(request, sizeof *request);
}

/**
 * Give the physical memory back, keep the addresses.
 *
 * All or nothing: where anything is refused or fails, the pool is awake as before, contents intact;
 * where the driver refuses the way back too, the pool is asleep and has given nothing back: all
 * contents are there after a wake, and the log says which call did it.
 * A handle that the driver does not take back, after it has taken others, stays with the sleeping
 * pool and is used again by the wake.
 *
 * While asleep, allocations answer ASLEEP, frees and announced uses work as ever, trim and poll find
 * nothing to release, destroy works; `reserved_bytes` is what the driver has still given.
 *
 * request     NULL: drop everything, wait for nothing.
 * Ordering    all work of the pool's context, and of other contexts' streams that the pool was told
 *             of, is complete: waited for, or found so. Where the driver has no cuCtxRecordEvent,
 *             only streams that the pool knows can be found running (with streams_may_die, what its
 *             fences cover): the rest is waited for. Work of
 *             peers and importers is theirs to complete.
 * Errors      BUSY (work, an allocation, another sleep or wake is under way; a capture is open; a
 *             watcher refused), CAPTURING (a capture that was not announced to this pool;
 *             README.md, "Captures that a call meets", lists which captures end), ASLEEP (already asleep; or
 *             now asleep, with all of its memory, see above),
 *             NOT_SUPPORTED (no virtual memory management; a pool with debug checks),
 *             INVALID_ARGUMENT, OUT_OF_HOST_MEMORY (no room to save), DRIVER, DEVICE_LOST.
 * Threads     calls that need physical memory wait for the outcome, NO_WAIT requests answer
 *             WOULD_WAIT. Not from on_oom.
 * Cost        driver calls for each handle and each saved block; waits for the device.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_sleep(fallow_pool *pool,
                                                            const fallow_sleep_request *request);

/**
 * Get the memory again, behind the same addresses, and what was saved into it. OK if awake.
 *
 * Contents    saved blocks have theirs, all else is undefined.
 * Errors      OUT_OF_MEMORY (the report's size_bytes is the missing amount; other pools of the process
 *             have released their free memory, after waits as wait_ms allows), DRIVER: still
 *             asleep, nothing lost, retry.
 *             BUSY (another thread is waking, importing or changing peers), DEVICE_LOST.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_wake(fallow_pool *pool);

/** Before a sleep, while the pool still allocates: free what can go, stop giving work. Nonzero
 *  refuses: the sleep answers BUSY. Called with no lock held, by the thread that calls sleep; it
 *  may use the pool, not put it to sleep. */
typedef int (*fallow_before_sleep_function)(void *context);
/** After a wake; and after a sleep that failed, for those whose before_sleep had been called. */
typedef void (*fallow_after_wake_function)(void *context);

/**
 * Be told of sleeps. Watchers are called in the order in which they came, after a wake in reverse;
 * 16 a pool. Either function may be NULL.
 *
 * Errors      BUSY (16 there are), INVALID_ARGUMENT (both NULL).
 */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_pool_watch_sleep(fallow_pool *pool, fallow_before_sleep_function before_sleep,
                        fallow_after_wake_function after_wake, void *context);
/** No more; with what was given to the other. A sleep or wake under way may still call it. NOT_FOUND. */
FALLOW_API FALLOW_NODISCARD fallow_status
fallow_pool_unwatch_sleep(fallow_pool *pool, fallow_before_sleep_function before_sleep,
                          fallow_after_wake_function after_wake, void *context);

#ifdef __cplusplus
}
#endif

#endif
