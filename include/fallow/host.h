/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * libfallow-host allocates pinned host memory: page-locked, accessible by every device, freed in
 * stream order.
 *
 * The CPU may write a block as soon as it is allocated, and no stream orders the CPU. A block freed on
 * a stream is therefore reused only after all work submitted to the stream before the free is
 * *complete*; unlike device memory it is never reused at once on its own stream.
 *
 * CAVEATS
 *  - Link this library rather than dlopen it (or load it into Python). It needs libjemalloc.so, which
 *    has 2.6 KB of static thread-local storage, more than the C library reserves for late loading:
 *    dlopen fails with "cannot allocate memory in static TLS block". dlopen works in a process that
 *    has loaded libjemalloc.so at its start (linked or preloaded), or that was started with
 *    GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096. The library stays loaded: dlclose succeeds
 *    and unloads nothing. malloc remains the C library's; the pool calls jemalloc by its own names, in
 *    an arena of its own.
 *  - If libjemalloc.so was built for pages larger than 4 KiB, as Debian's for arm64 is, every block
 *    occupies whole pages of 4 KiB, and slack_percent counts these pages as in use.
 *  - Contents are undefined. The driver zeroes memory once, when it pins the memory.
 *  - A captured copy runs again with each launch of its graph: free the block on the launching
 *    stream after the last launch was submitted.
 *  - Call fallow_host_stream_retire before a stream is destroyed. Otherwise memory freed on the stream
 *    waits for all work of its context once the pool notices.
 *  - Releasing memory to the driver (trim, destroy, room for a chunk of another size) may wait for the
 *    device, as cuMemFreeHost does.
 *  - The child of a fork() has no pools: the parent's handles return INVALID_POOL there. Memory bound
 *    to a NUMA node is not mapped in the child.
 *
 * THREADS  Any thread may call every function. No lock is held over a driver call.
 *
 * ERRORS   A call that fails changes nothing that the caller holds; fallow_host_last_error explains
 *          the failure.
 */
#ifndef FALLOW_HOST_H
#define FALLOW_HOST_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A pool of pinned host memory. An opaque handle. */
typedef struct fallow_host fallow_host;

/** The NUMA node of the memory. */
typedef enum fallow_host_placement {
    /** The node closest to the pool's device: memory is mapped, bound with mbind(2) and registered. As
     *  ANYWHERE if the driver does not report the node, if this process may use one node only, or if
     *  the system refuses. */
    FALLOW_HOST_NEAR_DEVICE = 0,
    /** cuMemHostAlloc, placed by the calling thread's memory policy. */
    FALLOW_HOST_ANYWHERE = 1,
    /** Node `numa_node`; create returns NOT_SUPPORTED if that is not possible. */
    FALLOW_HOST_ON_NODE = 2
} fallow_host_placement;

/** Settings of a host pool. 0 selects the default of every field except struct_size. */
typedef struct fallow_host_config {
    size_t struct_size; /**< set by fallow_host_config_init */
    size_t limit_bytes; /**< most memory that may be pinned; 0 = half of the machine's memory */
    /** Pinned memory above the peak of memory in use, in percent, at which idle chunks are released
     *  before another is pinned; at least 8 MiB. 0 = 10; UINT32_MAX = never release.
     *  If no chunk is idle and no free piece is large enough, more is pinned: with blocks below 8 MiB,
     *  by default, up to 1.3 times the peak of memory in use and 8 MiB. */
    uint32_t slack_percent;
    /** Longest wait for copies at the limit before an allocation fails. 0 = 100; UINT32_MAX = never
     *  wait. */
    uint32_t wait_ms;
    fallow_host_placement placement; /**< the NUMA node of the memory */
    uint32_t numa_node;              /**< for FALLOW_HOST_ON_NODE */
    fallow_log_function log;         /**< called with no lock held; NULL = no log */
    void *log_context;               /**< passed to log */
} fallow_host_config;

/** Fill with defaults and set struct_size. */
FALLOW_API void fallow_host_config_init_sized(fallow_host_config *config, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_host_config_init(fallow_host_config *config)
{
    fallow_host_config_init_sized(config, sizeof *config);
}

/**
 * Create a host pool that uses the driver and the context of `pool`. `pool` must outlive the host pool.
 *
 * Ownership   the caller owns *out_host until destroy; the handle stays safe to pass afterwards.
 * Errors      INVALID_ARGUMENT, INVALID_POOL, VERSION (struct_size), NOT_SUPPORTED (a jemalloc older
 *             than 5.3, or the node), OUT_OF_HOST_MEMORY, DRIVER. The log gets one line.
 * Cost        pins nothing. config NULL: the defaults.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_create(fallow_pool *pool,
                                                             const fallow_host_config *config,
                                                             fallow_host **out_host);

/** Wait for copies, log live blocks, release all memory. NULL and destroyed handles are ignored. No
 *  other thread may be inside a call on this pool. */
FALLOW_API void fallow_host_destroy(fallow_host *host);

/**
 * Allocate pinned memory that the CPU may write at once.
 *
 * Contents    undefined; may hold bytes of an earlier block.
 * Units       size_bytes 0 returns OK and NULL. Blocks are aligned to 64 B, above 14,336 B to 4 KiB.
 * Errors      OUT_OF_PINNED_MEMORY, INVALID_ARGUMENT, INVALID_POOL, DEVICE_LOST, OUT_OF_HOST_MEMORY,
 *             DRIVER. *out_ptr is NULL.
 * Cost        a hit makes no driver call. A miss queries copies for completion, then pins more
 *             memory; at the limit the call waits for copies, at most `wait_ms`.
 * Capture     permitted while any stream is being captured: driver calls that would end a capture run in
 *             relaxed mode.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_alloc(fallow_host *host, size_t size_bytes,
                                                            void **out_ptr);

/**
 * Free a block in stream order.
 *
 * Contract    every use of the block was submitted before this call and precedes the present end of
 *             `stream`, or was announced. NULL, 1 and 2 are the default streams of the pool's context.
 * Errors      INVALID_POINTER for an interior, foreign or already freed pointer, INVALID_STREAM,
 *             DRIVER (the driver does not identify the stream; try again); nothing changed. NULL
 *             returns OK. After a device loss frees return OK and do nothing.
 * Cost        one lock; one event per 32 blocks or 1 MiB, at the latest when memory is needed. On
 *             CU_STREAM_PER_THREAD one event per free, because no other thread can record it.
 * Capture     on a captured stream the block is held until the capture has ended.
 */
FALLOW_API fallow_status fallow_host_free(fallow_host *host, void *ptr, fallow_stream stream);

/** Free a block that no work uses any more, except announced uses. The block may be reused at once. */
FALLOW_API fallow_status fallow_host_free_idle(fallow_host *host, void *ptr);

/** Announce that work on another stream, of any context, uses the block: once freed, the block is not
 *  reused until all work that `stream` had at the free is complete. Call before the free; on
 *  CU_STREAM_PER_THREAD also after the use was submitted. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_record_use(fallow_host *host, void *ptr,
                                                                 fallow_stream stream);

/** Announce that a stream is about to be destroyed. At most one event. BUSY: the stream is being
 *  captured. DRIVER: the driver refused the event; nothing changed. OK for a stream that the pool has
 *  never seen. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_stream_retire(fallow_host *host,
                                                                    fallow_stream stream);

/** Release idle chunks until at most keep_bytes are pinned, or until only live blocks are left. Waits
 *  for copies, at most deadline_ns from now (0 = do not wait, returns OK; UINT64_MAX = no limit). TIMEOUT
 *  if the deadline passed with work left. out_released_bytes may be NULL. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_trim(fallow_host *host, size_t keep_bytes,
                                                           uint64_t deadline_ns,
                                                           size_t *out_released_bytes);

/** Reclaim blocks with completed work. Never waits. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_poll(fallow_host *host);

/** Statistics of a host pool. Exact while no call is under way. */
typedef struct fallow_host_stats {
    size_t struct_size;            /**< set by fallow_host_stats_init */
    uint64_t requested_bytes;      /**< live blocks, as requested */
    uint64_t deferred_bytes;       /**< freed, work not yet found complete; as requested */
    uint64_t reserved_bytes;       /**< pinned */
    uint64_t peak_requested_bytes; /**< maximum of requested_bytes */
    uint64_t peak_used_bytes; /**< maximum of live and deferred bytes when a call needed memory */
    uint64_t peak_reserved_bytes; /**< maximum of reserved_bytes */
    uint64_t bound_bytes;         /**< of reserved_bytes: bound to a NUMA node */
    uint64_t limit_bytes;         /**< most memory that may be pinned */
    uint64_t live_count;          /**< live blocks */
    uint64_t alloc_count;         /**< blocks allocated */
    uint64_t free_count;          /**< blocks freed */
    uint64_t grow_count;          /**< chunks pinned */
    uint64_t release_count;       /**< chunks released */
    uint64_t event_count;         /**< events recorded */
    uint64_t query_count;         /**< events queried */
    uint64_t wait_count;          /**< host waits for the device */
    uint64_t driver_call_count;   /**< all driver calls */
    uint64_t lost_streams;        /**< streams destroyed without retire */
    uint64_t misuse_count;        /**< calls refused because of the pointer */
    uint64_t oom_count;           /**< allocations that failed */
    uint64_t table_bytes;         /**< host memory of the pool's tables, without jemalloc's */
    int32_t numa_node;            /**< node that memory is bound to; -1 = none */
    uint32_t stream_count;        /**< streams that the pool tracks */
} fallow_host_stats;

/** Fill with defaults and set struct_size. */
FALLOW_API void fallow_host_stats_init_sized(fallow_host_stats *stats, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_host_stats_init(fallow_host_stats *stats)
{
    fallow_host_stats_init_sized(stats, sizeof *stats);
}
/** Copy the statistics; cheap. Errors: INVALID_POOL, INVALID_ARGUMENT (struct_size). */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_get_stats(fallow_host *host,
                                                                fallow_host_stats *out_stats);

/** Recompute every invariant, for tests. Returns OK, or DRIVER; fallow_host_last_error then has the
 *  first violation. Holds the pool's lock throughout. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_host_validate(fallow_host *host);

/** Copy an explanation of the last failed call, on any thread: what failed and what to do. Empty if
 *  none failed. Truncated to text_bytes, always terminated. */
FALLOW_API void fallow_host_last_error(fallow_host *host, char *out_text, size_t text_bytes);

#ifdef __cplusplus
}
#endif

#endif
