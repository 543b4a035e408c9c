/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * libfallow-host allocates pinned host memory: page-locked, visible to every device,
 * freed in stream order.
 *
 * The CPU writes a block the moment it has it, and no stream orders the CPU. So a block that was
 * freed on a stream is allocated again, to anybody, only when everything that the stream had been
 * given by then is *complete*; it never comes back at once, as device memory does on its own
 * stream.
 *
 * CAVEATS
 *  - Link this library rather than dlopen it (or load it into Python): it needs libjemalloc.so, whose
 *    2.6 KB of static thread-local storage are more than the C library keeps for what comes late, so
 *    dlopen answers "cannot allocate memory in static TLS block". It works in a process that has
 *    libjemalloc.so since its start (linked or preloaded), or that was started with
 *    GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096. Once loaded the library stays: dlclose is
 *    allowed and unloads nothing. malloc stays the C library's: jemalloc is called by its own names,
 *    with an arena of the pool's own.
 *  - If libjemalloc.so was built for pages larger than 4 KiB, as Debian's for arm64 is, every block
 *    takes whole pages of 4 KiB, and slack_percent counts those pages as in use.
 *  - Contents are undefined. The driver zeroes what it pins, once; nothing here does.
 *  - A captured copy runs again with each launch of its graph: free the block on the launching
 *    stream after the last launch was given.
 *  - Tell the pool before a stream is destroyed (fallow_host_stream_retire). Where it was not told
 *    and notices, what was freed there waits for its whole context.
 *  - Giving memory back to the driver (trim, destroy, room for a chunk of another size) may wait
 *    for the device, as cuMemFreeHost does.
 *  - The child of a fork() has no pools: every handle of its parent's answers INVALID_POOL. Memory
 *    bound to a NUMA node is not mapped there.
 *
 * THREADS  Every function may be called from any thread. No lock is held over a driver call.
 *
 * ERRORS   A call that fails has changed nothing that the caller holds; the sentence is in
 *          fallow_host_last_error.
 */
#ifndef FALLOW_HOST_H
#define FALLOW_HOST_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A pool of pinned host memory. A handle: compared, never followed. */
typedef struct fallow_host fallow_host;

/** Which NUMA node the memory comes from. */
typedef enum fallow_host_placement {
    FALLOW_HOST_NEAR_DEVICE = 0, /**< the node closest to the pool's device, where the driver tells
                                      it and this process may use more than one: mapped, bound with
                                      mbind(2), then registered. Else, or where the system refuses
                                      that, as ANYWHERE */
    FALLOW_HOST_ANYWHERE = 1, /**< cuMemHostAlloc: wherever the calling thread's policy puts it */
    FALLOW_HOST_ON_NODE = 2   /**< node `numa_node`, or create answers NOT_SUPPORTED */
} fallow_host_placement;

/** Settings of a host pool. Zero is the default for every field but struct_size. */
typedef struct fallow_host_config {
    size_t struct_size;     /**< set by fallow_host_config_init */
    size_t limit_bytes;     /**< most that may be pinned; 0 = half of the machine's memory */
    uint32_t slack_percent; /**< how far the pinned bytes may rise above the most that was ever in
                                 use, before idle chunks are released to make room for another
                                 (above it by 8 MiB in any case); 0 = 10; UINT32_MAX = any. If
                                 none is idle and no free piece is large enough, more is pinned: of
                                 blocks below 8 MiB, by default, up to 1.3 times the most that was
                                 ever in use, and 8 MiB */
    uint32_t wait_ms;       /**< longest wait for copies at the limit, before failing; 0 = 100;
                           UINT32_MAX = never wait */
    fallow_host_placement placement; /**< which NUMA node */
    uint32_t numa_node;              /**< for FALLOW_HOST_ON_NODE */
    fallow_log_function log;         /**< called with no lock held, as a pool's; NULL = silent */
    void *log_context;               /**< for log */
} fallow_host_config;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_host_config_init_sized(fallow_host_config *config, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_host_config_init(fallow_host_config *config)
{
    fallow_host_config_init_sized(config, sizeof *config);
}

/**
 * Make a host pool on the driver and the context of `pool`, which must outlive it.
 *
 * Ownership   the caller owns *out_host until destroy; the handle stays safe to pass afterwards.
 * Errors      INVALID_ARGUMENT, INVALID_POOL, VERSION (struct_size), NOT_SUPPORTED (a jemalloc older
 *             than 5.3, the node asked for), OUT_OF_HOST_MEMORY, DRIVER. The log gets one line.
 * Cost        pins nothing. config NULL: the defaults.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_create(fallow_pool *pool,
                                                             const fallow_host_config *config,
                                                             fallow_host **out_host);

/** Wait for the copies, report live blocks to the log, release everything. NULL is allowed, a
 *  destroyed handle too. No other thread may be inside a call on it. */
FALLOW_API void fallow_host_destroy(fallow_host *host);

/**
 * Allocate pinned memory that the CPU may write at once.
 *
 * Contents    undefined; may hold bytes of an earlier owner.
 * Units       size_bytes 0 gives FALLOW_OK and NULL. Aligned to 64 B, from 14,337 B on to 4 KiB.
 * Errors      OUT_OF_PINNED_MEMORY, INVALID_ARGUMENT, INVALID_POOL, DEVICE_LOST, OUT_OF_HOST_MEMORY,
 *             DRIVER. *out_ptr is NULL.
 * Cost        a hit makes no driver call. A miss asks for completed copies, then pins more; at the
 *             limit it waits for copies, at most `wait_ms`.
 * Capture     legal while any stream is captured: what would disturb a capture runs in relaxed mode.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_alloc(fallow_host *host, size_t size_bytes,
                                                            void **out_ptr);

/**
 * Give a block back in the order of a stream.
 *
 * Contract    every use was given to the device before this call and is ordered before the present
 *             end of `stream`, or was announced. NULL, 1 and 2 are the default streams of the pool's
 *             context.
 * Errors      INVALID_POINTER for an interior, foreign or already freed pointer, INVALID_STREAM,
 *             DRIVER (it does not tell what stream that is; try again); nothing was changed. NULL is OK. DEVICE_LOST never: after a loss frees do nothing.
 * Cost        one lock; an event for 32 blocks or 1 MiB, at the latest when
 *             memory is wanted. On CU_STREAM_PER_THREAD an event each: no other thread can record it.
 * Capture     on a captured stream the block is held until the capture has ended.
 */
FALLOW_API fallow_status fallow_host_free(fallow_host *host, void *ptr, fallow_stream stream);

/** Free a block that no work uses any more, but for announced uses: it may be allocated at once. */
FALLOW_API fallow_status fallow_host_free_idle(fallow_host *host, void *ptr);

/** Announce that work on another stream, of any context, uses the block: after its free it is
 *  not reused until what that stream had been given by then is complete. Announce before the free.
 *  On CU_STREAM_PER_THREAD call it after the use was given. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_record_use(fallow_host *host, void *ptr,
                                                                 fallow_stream stream);

/** Tell the pool that a stream is about to be destroyed: at most one event. BUSY: it is being
 *  captured. DRIVER: the driver refused the event; nothing was changed. OK for a stream that was never seen. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_stream_retire(fallow_host *host,
                                                                    fallow_stream stream);

/** Give idle chunks back until at most keep_bytes are pinned. Waits for copies, at most deadline_ns
 *  from now (0 = not at all, which is OK; UINT64_MAX = as long as it takes). TIMEOUT if it passed
 *  with work left. OK also when live blocks keep more. out_released_bytes may be NULL. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_trim(fallow_host *host, size_t keep_bytes,
                                                           uint64_t deadline_ns,
                                                           size_t *out_released_bytes);

/** Reclaim what is complete. Never waits. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_poll(fallow_host *host);

/** Exact at quiescent points. */
typedef struct fallow_host_stats {
    size_t struct_size;            /**< set by fallow_host_stats_init */
    uint64_t requested_bytes;      /**< allocated, as asked */
    uint64_t deferred_bytes;       /**< freed, not known to be complete; as asked */
    uint64_t reserved_bytes;       /**< pinned */
    uint64_t peak_requested_bytes; /**< the most that requested_bytes was */
    uint64_t peak_used_bytes;      /**< most ever live or deferred, known when memory was wanted */
    uint64_t peak_reserved_bytes;  /**< the most that reserved_bytes was */
    uint64_t bound_bytes;          /**< of reserved_bytes: bound to a NUMA node */
    uint64_t limit_bytes;          /**< most that may be pinned */
    uint64_t live_count;           /**< blocks */
    uint64_t alloc_count;          /**< blocks allocated */
    uint64_t free_count;           /**< blocks freed */
    uint64_t grow_count;           /**< chunks pinned */
    uint64_t release_count;        /**< chunks released */
    uint64_t event_count;          /**< events recorded */
    uint64_t query_count;          /**< events asked for */
    uint64_t wait_count;           /**< host waits for the device */
    uint64_t driver_call_count;    /**< all driver calls */
    uint64_t lost_streams;         /**< destroyed without retire */
    uint64_t misuse_count;         /**< calls refused for their pointer */
    uint64_t oom_count;            /**< allocations that failed */
    uint64_t table_bytes;          /**< host memory of the pool's tables, jemalloc's apart */
    int32_t numa_node;             /**< memory is bound to; -1: none */
    uint32_t stream_count;         /**< streams known */
} fallow_host_stats;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_host_stats_init_sized(fallow_host_stats *stats, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_host_stats_init(fallow_host_stats *stats)
{
    fallow_host_stats_init_sized(stats, sizeof *stats);
}
/** Cheap: a copy of counters. Errors: INVALID_POOL, INVALID_ARGUMENT (struct_size). */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_get_stats(fallow_host *host,
                                                                fallow_host_stats *out_stats);

/** Recompute every invariant. OK, or DRIVER, with the first broken one in fallow_host_last_error.
 *  For tests: holds the pool's lock for its duration. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_validate(fallow_host *host);

/** The sentence of the last call that failed, on whatever thread: what failed and what to do. Empty
 *  if none has. At most text_bytes, its end included. */
FALLOW_API void fallow_host_last_error(fallow_host *host, char *out_text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif
