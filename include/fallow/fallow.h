/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Fallow allocates GPU memory: uninitialised, reusable, ordered by streams.
 *
 * A *pool* belongs to one device. A block allocated on a stream may be used by work given to that
 * stream after the call returns. `fallow_free(pool, block, stream)` frees it in the same order: the
 * block is reused for that stream at once, for another stream only after the device has done, or
 * has been made to wait for, everything that the freeing stream had been given by then.
 *
 * CAVEATS
 *  - Contents are undefined, always. Nothing is zero unless FALLOW_REQUEST_ZERO asks for it.
 *  - Tell the pool before a stream is destroyed (fallow_stream_retire) and before one is captured
 *    (fallow_capture_begin): stream handles are recycled by CUDA, and a hit asks the driver
 * nothing.
 *  - On a real driver the handle of a destroyed stream is undefined by CUDA; a free or an
 * allocation on one is undefined here too, unless `streams_may_die` is set and the driver still
 * answers.
 *  - A pool serves at most some 4,000 streams at a time, captured ones counted twice; one more
 *    answers OUT_OF_HOST_MEMORY. Retire those that are done.
 *  - Once loaded the library stays: dlclose is allowed and unloads nothing, since threads that used a
 *    pool come back to it when they end.
 *  - Not async-signal-safe. The child of a fork() has no pools: a handle of its parent's answers
 *    INVALID_POOL.
 *  - A kernel launched with programmatic serialisation may touch allocated memory only after its
 *    dependency wait.
 *  - A free of a pointer that has meanwhile been allocated again is a valid free of the new block:
 *    no allocator that looks at addresses can tell. The quarantine check finds it.
 *
 * THREADS  Every function may be called from any thread at any time, unless it says otherwise. No
 *          lock is held over a driver call or a callback. Waiting is no cancellation point: a thread
 *          that is cancelled (pthread_cancel) ends after its call, but where the driver, the log, or
 *          what opens and writes files ends it before.
 *
 * ERRORS   A call that fails has changed nothing that the caller holds; `*out_ptr` is NULL after
 *          every failure. Allocating and freeing preserve errno.
 *
 * COST     A *hit* is served from the calling thread's cache: no lock, no system call, no driver
 *          call, no event, no shared cache line. A call without tag, flag and alignment hits on a
 *          stream that the thread has used. Above 1 MiB it hits only if the thread has freed a block
 *          of that size (in steps of 64 KiB) on that stream; a cache keeps such blocks up to half of
 *          the pool's memory and 256 MiB.
 *
 * Needs no CUDA header; compiles beside <cuda.h> and <cuda_runtime.h>, as C11 and as C++17.
 */
#ifndef FALLOW_FALLOW_H
#define FALLOW_FALLOW_H

#include <stddef.h>
#include <stdint.h>

#include "fallow/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FALLOW_VERSION_MAJOR 0 /**< of this header: programs must be rebuilt where it changes */
#define FALLOW_VERSION_MINOR 2 /**< the same before 1.0; then, calls and fields were added */
#define FALLOW_VERSION_PATCH 0 /**< of this header: faults were mended */

struct CUstream_st;
/** A cudaStream_t or CUstream, unchanged, of any context and device. Work on another device or context needs access to
 *  the pool's memory (fallow_pool_allow_peer). NULL and 1: the legacy default stream; 2: per thread. */
typedef struct CUstream_st *fallow_stream;

/** Memory of one device. A handle: compared, never followed. */
typedef struct fallow_pool fallow_pool;
/** An announced capture and the memory that belongs to its graph. A handle, too. */
typedef struct fallow_capture fallow_capture;

/* ---- config */

/** How much idle memory a pool may hold. */
typedef enum fallow_economy {
    /** Prefer growth to a wait, and to driver calls in a repeating step. P is the peak of memory in live blocks since
     * the pool was made (peak_live_bytes, if never reset). The bounds hold with handles as the page source and no
     * memory in captures:
     * - One stream: at most 1.16 P + 16 MiB; up to 1.3 P if most memory is in blocks of 64 KiB to 1 MiB with
     *   partly filled slabs.
     * - Several streams: at most 1.45 P + 16 MiB and 256 MiB, or a 256th of a device below 64 GiB. Beyond that the
     *   stream that takes memory waits; the host waits only if memory must be moved. */
    FALLOW_BALANCED = 0,
    /** Hold as little as possible: 1.05 times the peak and 16 MiB, with three streams and more 1.10. Streams wait, and
     * the host where memory must be moved. */
    FALLOW_MEMORY_FIRST = 1,
    /** Grow to the limit rather than wait: neither the host nor a stream does below it. */
    FALLOW_SPEED_FIRST = 2
} fallow_economy;

/** Whose memory an allocation may take. */
typedef enum fallow_reuse_policy {
    FALLOW_REUSE_WAIT = 0, /**< another stream's memory too, making the taker wait if need be */
    FALLOW_REUSE_COMPLETED = 1, /**< another stream's memory only when its work is known complete */
    FALLOW_REUSE_SAME_STREAM =
        2 /**< never another stream's memory, complete or not: what a stream has freed serves it alone
               until it is retired, or lost, and complete. Idle memory comes to another stream only by
               way of the driver, unmapped or released as whole handles or allocations, so the pool
               holds more and refuses earlier at a limit */
} fallow_reuse_policy;

/** What orders the blocks of a pool: what "after" means for a block that was freed. */
typedef enum fallow_order {
    FALLOW_ORDER_STREAM = 0, /**< streams, as everything above says */
    /**
     * The context, for callers that cannot name a stream: they free, as cudaFree does, while work on
     * any stream may still use the block. It is allocated again only when all that its context, and
     * every other that has such a pool in the process, had been given before an event recorded
     * after the free is complete (work of a context without one must be complete at the free);
     * nothing is waited for until more is held than what is allocated and the larger of 256 MiB and
     * a quarter of it.
     *
     * Memory      of cuMemAlloc. IPC handles, peer access by cuCtxEnablePeerAccess and registration
     *             work as natively. The memory ends with its context: each allocation queries the
     *             context's id (cuCtxGetId) and returns DEVICE_LOST after a reset or destroy. A request
     *             of 1 MiB or more is a driver allocation of its own, in steps of 2 MiB. All blocks are
     *             512 B aligned.
     * Streams     those in the calls are not looked at: any value does. fallow_record_use and
     *             fallow_stream_retire are not needed and do nothing.
     * Capture     announce each with fallow_context_capture_begin (fallow/extend.h): the event of an
     *             epoch would end it. Until its end what is freed is not allocated again, and
     *             nothing goes back to the driver.
     * Not with    a reuse_policy, checks, streams_may_die, handle_types, peer_devices,
     *             arenas, fallow_capture_begin. FALLOW_REQUEST_ZERO waits for the fill.
     * Needs       cuCtxRecordEvent (12.5); without it memory is reused only by waiting for the
     *             device.
     */
    FALLOW_ORDER_CONTEXT = 1
} fallow_order;

/** Bits of `checks`: the debug checks. 0: everything that costs no device work, which is always done.
 *
 * With any of them every call takes the slow path, a few driver calls more for each; inside a capture
 * nothing is done, which unchecked_count counts. POISON, RED_ZONES and QUARANTINE need memory with
 * contents, and host memory registered: create answers NOT_SUPPORTED on a simulated device of addresses
 * only, and where the driver registers none. Red zones count as requested bytes. */
enum {
    FALLOW_CHECK_POISON = 1u << 1,    /**< fill each block when it is allocated with a pattern or,
                                            every other time, its complement: what was read
                                            unwritten shows */
    FALLOW_CHECK_RED_ZONES = 1u << 2, /**< 512 B on both sides, copied to the host at the free and
                                            compared by a later call: each damage goes to the log at
                                            level error, with block, tag, stream and offset */
    FALLOW_CHECK_QUARANTINE =
        1u << 3,                 /**< a freed block is filled and held back until 1,024 more or
                                            a sixteenth of the limit (at most 256 MiB) are: a stale
                                            free is refused, a write after the free goes to the log
                                            (first and last 512 B). Blocks with announced uses pass
                                            by, and what is freed on CU_STREAM_PER_THREAD or under
                                            streams_may_die: its handle may name another stream
                                            later. Emptied before an allocation fails, by trim */
    FALLOW_CHECK_LEAKS = 1u << 4 /**< list the 16 largest live blocks at destroy */
};

/** What a pool's memory is made of. */
typedef enum fallow_page_source {
    /** Handles if the device and the driver support them, tried at create; otherwise segments, also if the
     *  driver cannot reserve a range of addresses as large as the limit. In context order: segments. */
    FALLOW_PAGES_AUTOMATIC = 0,
    /** Physical handles of cuMemCreate, mapped where they are wanted: memory moves between sizes,
     *  sleeps, is exported and shared with peers. No legacy IPC handle (cuIpcGetMemHandle). A block is at
     *  most as large as the largest range of addresses that the driver reserves. */
    FALLOW_PAGES_HANDLES = 1,
    /** Segments of cuMemAlloc, for legacy IPC and for libraries that do not support handles. A block
     *  above 1 MiB that fits no free memory gets a segment of its own. From one_handle_bytes on a block
     *  fills a whole segment. Such a segment is never split and serves sizes down to eight ninths of its
     *  own; smaller segments may be split once free. Idle memory moves only as whole segments, through the
     *  driver, so a pool holds more. cuMemFree waits for all work of the device: a call that promises not
     *  to wait, or not beyond a deadline, releases a segment only after the pool found all tracked work
     *  complete, so segments stay as long as the device is never idle. wait_count counts every other
     *  release on a busy device. Tracked work is, in context order with cuCtxRecordEvent, all work; in
     *  stream order, the work of streams that the pool has seen and this thread can name. No sleep,
     *  exports, peer_devices; peers by cuCtxEnablePeerAccess. */
    FALLOW_PAGES_SEGMENTS = 2
} fallow_page_source;

/** fallow_pool_config.one_handle_bytes: no block has to be all of one handle. */
#define FALLOW_ONE_HANDLE_NONE ((size_t)-1)

/** Bits of `handle_types`: how memory can be shared with other processes. */
enum {
    FALLOW_HANDLE_FD = 1u << 0,    /**< POSIX file descriptors */
    FALLOW_HANDLE_FABRIC = 1u << 1 /**< fabric handles (multi-node NVLink) */
};

/** How much a line of the log matters. */
typedef enum fallow_log_level {
    FALLOW_LOG_ERROR = 0,
    FALLOW_LOG_WARNING = 1,
    FALLOW_LOG_INFO = 2
} fallow_log_level;

/** Called with no lock held, from the thread that caused it. Must not call into the same pool. */
typedef void (*fallow_log_function)(void *context, fallow_log_level level, const char *message);

/** Called by the out-of-memory ladder with no lock held, one at a time per pool. May free, may
 *  allocate (such an allocation skips the callbacks). Returns nonzero if it freed something. */
typedef int (*fallow_oom_function)(void *context, size_t size_bytes, fallow_stream stream);

/** Settings of a pool. Zero is the default for every field but struct_size. */
typedef struct fallow_pool_config {
    size_t struct_size; /**< set by fallow_pool_config_init */
    int device;         /**< ordinal */
    /** NULL = libcuda.so.1; "sim" = the simulated device: libfallow-simcuda.so beside libfallow.so, or of
     *  libfallow.a beside the program, else along the library path; else a path. */
    const char *driver;
    void *context;      /**< a CUcontext to use; NULL = retain the device's primary context */
    size_t limit_bytes; /**< most memory that the pool may hold from the driver; 0 = the device's
                                 total. fallow_pool_set_limit changes the limit */
    fallow_economy economy; /**< how much idle memory to hold */
    size_t cache_bytes;     /**< most that all thread caches may hold together of blocks up to 1
                                 MiB; each may hold 64 KiB or two blocks of a class beyond; 0 = 1/32
                                 of the pool's memory, at least 8 MiB. Of larger blocks each cache
                                 may hold half of the pool's memory, from 4 to 256 MiB */
    uint32_t decay_ms;      /**< how often fallow_pool_poll, or the helper thread, releases memory
                                 above 1.125 times the need of the last two seconds (a quarter of a
                                 second more at most); 0 = 10,000; UINT32_MAX = never */
    fallow_reuse_policy reuse_policy; /**< whose memory an allocation may take */
    uint32_t checks;                  /**< FALLOW_CHECK_ bits */
    uint8_t streams_may_die; /**< 1: streams may vanish without notice. Every call then queries the
                                  stream's identity, which needs cuStreamGetId. Each batch is fenced
                                  inside the free that completes the batch, and each use inside its
                                  fallow_record_use, which then must be called after the use. Frees
                                  of a stream that did not yet fill a batch are lost with the stream,
                                  and reclaimed as lost_streams describes */
    uint8_t helper_thread; /**< 1: a thread of the pool polls, so an idle process releases memory */
    uint8_t reserved_0[2]; /**< 0 */
    uint32_t wait_ms; /**< longest time that one allocation waits for the device, all of its waits
                                  together, before it fails. 0 = 100; UINT32_MAX = never;
                                  UINT32_MAX - 1 = until the work is complete. Exceptions, always
                                  until the work is complete: a wait that avoids a growth for which
                                  limit and device have room; memory of a lost stream; in context
                                  order, a driver without cuCtxRecordEvent */
    const int *peer_devices; /**< ordinals that may access the memory too; read during create; later
                                  fallow_pool_allow_peer (share.h) */
    size_t peer_device_count; /**< of peer_devices, at most 16 */
    uint32_t
        handle_types;   /**< FALLOW_HANDLE_ bits: what EXPORT_ requests may ask for; create answers
                                  NOT_SUPPORTED where the driver refuses one. 0: none may, and for
                                  libraries that export by themselves memory carries what the driver
                                  gives: both kinds, descriptors, none */
    fallow_order order; /**< what orders blocks */
    fallow_log_function log;        /**< NULL = silent */
    void *log_context;              /**< for log */
    fallow_oom_function on_oom;     /**< NULL = none */
    void *oom_context;              /**< for on_oom */
    fallow_page_source page_source; /**< what memory is made of */
    uint32_t reserved_1;            /**< 0 */
    size_t one_handle_bytes;        /**< blocks of this size or more fill one handle or segment, so
                                  that cuMemGetAddressRange and exports see the whole block. Once
                                  freed, the handle serves blocks of its size or is released for
                                  other needs; frequent allocation and free of large blocks then
                                  takes more driver calls and waits.
                                  - 0: automatic, from 1 GiB on, with several handles if the driver
                                    has memory only for those. With handles the size doubles after
                                    every third handle that a growth released, until a trim.
                                  - a size, 2 MiB or more: from that size on, without exception
                                  - FALLOW_ONE_HANDLE_NONE: no block needs a handle of its own */
} fallow_pool_config;

/** Fill with defaults, recording the caller's size of the struct. A larger struct_size than this
 *  library knows is accepted by create only if the unknown tail is zero. */
FALLOW_API void fallow_pool_config_init_sized(fallow_pool_config *config, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_pool_config_init(fallow_pool_config *config)
{
    fallow_pool_config_init_sized(config, sizeof *config);
}

/* ---- pool */

/**
 * Make a pool on a device.
 *
 * Ownership   the caller owns *out_pool until destroy or abandon. The handle stays safe to pass
 *             afterwards: every call answers INVALID_POOL.
 * Errors      INVALID_ARGUMENT (unknown bits, bad ordinal), VERSION (struct_size, old driver),
 *             NOT_FOUND (driver or device), NOT_SUPPORTED (a debug check on unbacked memory; handle
 *             types, handles or peers that the device lacks or the driver refuses), OUT_OF_MEMORY (no
 *             device memory to try a debug check on),
 *             OUT_OF_HOST_MEMORY (also a limit of the address space, see LIMITS), DRIVER. The log
 *             callback gets one line that names the failure. Nothing is left behind.
 * Probe       handles are tried, not queried: one of the least size (2 MiB) is created, mapped,
 *             written, read and released, also if limit_bytes is smaller. If the driver refuses, less
 *             is tried: without registration for
 *             network adapters, without fabric handles, without descriptors, in the end segments. Each
 *             thing done without is a line to the log. A device without memory for it is believed.
 * Capture     none is disturbed: the probe's stream is its own.
 * Cost        driver calls, nine of them the probe's; keeps no device memory. Reserves device
 *             addresses, 8 times the device's memory; if the driver refuses, fewer, and further ranges
 *             when a block does not fit. Reserves host addresses, 85 GiB for a device of 80 GB (94 GiB
 *             if 8 times were refused), few of which are ever used. The first pool of a process
 *             registers for membarrier(2), 10 ms or more when threads are running.
 * LIMITS      Under a limit of the address space (ulimit -v) the tables take a quarter of the space that
 *             the limit leaves, plus names for the device's addresses: 76 MiB for a device of 80 GB;
 *             9 GiB in context order and if the device cannot remap. If the driver refuses 8 times
 *             the memory and the limit leaves less than 40 GiB, a pool uses one range. The tables
 *             shrink to some 120 MiB beside the names; below that, create fails. A hit costs the
 *             same. Smaller tables have room for fewer blocks, allocated and free: the smallest for
 *             4 million, and for 130,000 blocks larger than 1 MiB. The log gets one warning with
 *             these numbers.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_create(const fallow_pool_config *config,
                                                             fallow_pool **out_pool);

/** Wait for every fence, report live blocks to the log, release everything. Captures of others go
 *  on: the context is synchronised only where blocks are allocated or imported still, or a stream
 *  was destroyed without fallow_stream_retire, or is another thread's own; and not while a capture
 *  is known of. NULL is allowed, a destroyed handle too. No other thread may be inside a call on
 *  this pool. */
FALLOW_API void fallow_pool_destroy(fallow_pool *pool);

/** Forget the pool: no driver call, nothing released. For exit handlers and a lost context. The
 *  child of a fork does it by itself. NULL is allowed. */
FALLOW_API void fallow_pool_abandon(fallow_pool *pool);

/* ---- allocate, free */

/**
 * Allocate device memory usable by work given to `stream` after this call returns.
 *
 * Contents    undefined; may hold bytes of an earlier owner of the same pool.
 * Units       size_bytes 0 gives FALLOW_OK and NULL. The block is aligned to 256 B, from 512 B on
 *             to 512 B.
 * Ordering    stream-ordered; the host may not touch the memory.
 * Ownership   the caller owns *out_ptr until fallow_free.
 * Errors      OUT_OF_MEMORY after the whole ladder (fallow_pool_get_oom_report explains),
 *             INVALID_ARGUMENT (absurd size, out_ptr NULL), CAPTURING (captured and not announced;
 *             a block in the thread's cache is still returned, as ordinary memory),
 *             ASLEEP (sleep.h), INVALID_STREAM, INVALID_POOL, DEVICE_LOST, DRIVER and NOT_SUPPORTED: the
 *             driver refused a call, which fallow_pool_last_driver_error names, and a line in the log for
 *             the first, second, fourth and so on in a row; nothing is lost by it, and the next request
 *             that what the pool has does not serve asks again.
 *             OUT_OF_HOST_MEMORY: the host refuses more for the pool's tables (ulimit -d, -v, a
 *             container's limit), or they are used up (fallow_pool_create); said at once, without
 *             growth, callback or wait, since device memory is not what is missing. The log gets a
 *             line. What needs no new table goes on.
 * Cost        hit: O(1), no driver call. Miss: O(1) searches, may map memory; waits for the device
 *             only late in the ladder, as the config's `wait_ms` says.
 * Capture     on a stream announced by fallow_capture_begin or _join the block belongs to the
 *             capture; it keeps its address until fallow_capture_release.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_alloc(fallow_pool *pool, size_t size_bytes,
                                                       fallow_stream stream, void **out_ptr);

/** As fallow_alloc, aligned to a power of two of at most 2 MiB (0 = the default). */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_alloc_aligned(fallow_pool *pool, size_t size_bytes,
                                                               size_t align_bytes,
                                                               fallow_stream stream,
                                                               void **out_ptr);

/** Bits of fallow_request.flags. */
enum {
    FALLOW_REQUEST_EXPORT_FD = 1u << 0,     /**< one physical handle, exportable as a descriptor
                                                 (share.h) */
    FALLOW_REQUEST_EXPORT_FABRIC = 1u << 1, /**< one physical handle, exportable over the fabric */
    FALLOW_REQUEST_NO_WAIT = 1u << 2,       /**< neither host nor device waits: else WOULD_WAIT */
    FALLOW_REQUEST_NO_GROW = 1u << 3,       /**< only memory that the pool already holds */
    FALLOW_REQUEST_DEDICATED = 1u << 4,     /**< shares no physical handle with other blocks */
    FALLOW_REQUEST_ZERO = 1u << 5,          /**< zero-filled in stream order */
    /** For work of every stream that is submitted after the call returns, in any order. Only memory that no
     *  unfinished work uses is taken; late in the ladder the host waits for such memory. The call's stream is
     *  ignored, except that FALLOW_REQUEST_ZERO fills on that stream and waits for the fill. Inside a capture the
     *  block is ordinary memory. Free it with fallow_free, like any block, or with fallow_free_complete.
     *  NOT_SUPPORTED with debug checks. */
    FALLOW_REQUEST_EVERY_STREAM = 1u << 6,
};

/** An allocation with wishes. Zero is the default for every field but struct_size. */
typedef struct fallow_request {
    size_t struct_size; /**< set by fallow_request_init */
    size_t size_bytes;  /**< as in fallow_alloc */
    size_t align_bytes; /**< 0 = default */
    uint32_t flags;     /**< FALLOW_REQUEST_ bits */
    uint32_t tag; /**< the caller's; comes back in fallow_block and the out-of-memory report */
} fallow_request;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_request_init_sized(fallow_request *request, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_request_init(fallow_request *request)
{
    fallow_request_init_sized(request, sizeof *request);
}

/** As fallow_alloc with wishes. Errors also NOT_SUPPORTED (export without VMM, or of a type that the
 *  config's handle_types does not name), WOULD_WAIT. A request with a tag or a flag is never a hit. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_alloc_request(fallow_pool *pool,
                                                               const fallow_request *request,
                                                               fallow_stream stream,
                                                               void **out_ptr);

/** Allocate `count` blocks, all or none. On failure every out_ptrs[i] is NULL. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_alloc_batch(fallow_pool *pool, const size_t *sizes,
                                                             size_t count, fallow_stream stream,
                                                             void **out_ptrs);

/**
 * Give a block back.
 *
 * Contract    every use of the block was given to the device before this call and is ordered before
 *             the present end of `stream`, or was announced by fallow_record_use. So is the
 *             allocation, used or not: `stream` comes after what the allocating stream had been
 *             given by then. The block then belongs to `stream`, not to the one it was allocated
 *             on.
 * Errors      INVALID_POINTER for an interior, foreign or already freed pointer, also when two
 *             threads free one pointer at the same moment (one wins): state unchanged. NULL is OK.
 *             DRIVER: it does not tell what a stream is that the pool has not seen; state unchanged.
 *             DEVICE_LOST never: after a loss frees succeed and do nothing.
 * Cost        hit: one uncontended compare-and-swap on the block's own word, no driver call. Miss:
 *             returns a batch; with several active streams at most one event per 16 MiB freed.
 * Capture     a captured block returns to its capture; an ordinary block freed on a captured stream
 *             is held until the capture ends. If the capture was not announced, hits on `stream` may
 *             reuse the block at once, and other streams only after the capture ends.
 */
FALLOW_API fallow_status fallow_free(fallow_pool *pool, void *ptr, fallow_stream stream);

/**
 * Free a block that no work uses any more; the caller has synchronised with the streams that used it, or with the
 * context. The block may be allocated for any stream at once, without an event.
 *
 * Contract    all work that uses the block, on any stream or device, is complete. So is all work submitted to the
 *             allocating stream before the allocation, unless the request had FALLOW_REQUEST_EVERY_STREAM.
 *             Announced uses also count as complete.
 * Errors      as fallow_free; OUT_OF_HOST_MEMORY for a thread's first call, state unchanged.
 * Cost        the pool's locks; no driver call. Never a hit.
 * Capture     a captured block returns to its capture.
 */
FALLOW_API fallow_status fallow_free_complete(fallow_pool *pool, void *ptr);

/** As fallow_free, and checks the size: INVALID_ARGUMENT, nothing freed, if no request of
 * size_bytes could have been given this block. Cheapest with the size that was asked for. */
FALLOW_API fallow_status fallow_free_sized(fallow_pool *pool, void *ptr, size_t size_bytes,
                                           fallow_stream stream);

/**
 * Announce that work on another stream uses the block: after it is freed it is not reused until
 * what that stream had been given by then is complete. The stream may be of another context or
 * device. Announce before the free. NULL for the block is OK.
 *
 * Errors      INVALID_POINTER (no live block of this pool), INVALID_STREAM, OUT_OF_HOST_MEMORY,
 *             INVALID_POOL, DRIVER, DEVICE_LOST.
 * Cost        a lock; the event is recorded in a later slow path, at the latest when 16 MiB or 256
 *             blocks wait.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_record_use(fallow_pool *pool, void *ptr,
                                                            fallow_stream stream);

/**
 * Announce that a stream is about to be destroyed. Its free memory becomes unowned once the work
 * submitted to the stream is complete; the pool drops the handle. OK for a stream that the pool has
 * never seen.
 *
 * Errors      BUSY (the stream is being captured: end the capture first), INVALID_STREAM (already
 *             destroyed: its memory waits for all work of the context), INVALID_POOL, DEVICE_LOST.
 * Cost        at most one event; empties the caches of every thread for this stream.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_stream_retire(fallow_pool *pool,
                                                               fallow_stream stream);

/* ---- capture */

/**
 * Announce that `stream` is being captured (before or right after cuStreamBeginCapture): from now on
 * allocations on it, from any thread, come from memory of the capture's own, which keeps its addresses
 * until fallow_capture_release.
 *
 * Contents    free memory, also of released captures, once its work is complete. Within the bound of the
 *             economy, allocations wait for such memory, as outside captures. Memory that the stream itself
 *             has freed since the last release serves only a capture announced before the capture begins.
 * Threads     announce before the stream captures where other threads call the pool: it may have to
 *             synchronise the context, which ends a capture that it was not told of. (It looks at the
 *             streams that it knows first, with streams_may_die at none.)
 * Ownership   *out_capture is the caller's until fallow_capture_release, or the pool's end. The handle
 *             stays safe to pass afterwards: every call answers INVALID_CAPTURE.
 * Errors      BUSY (the stream is in another capture), INVALID_STREAM, ASLEEP, NOT_SUPPORTED (context
 *             order), OUT_OF_HOST_MEMORY, INVALID_ARGUMENT (out_capture NULL), INVALID_POOL,
 *             DEVICE_LOST. Nothing is announced then.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_capture_begin(fallow_pool *pool,
                                                               fallow_stream stream,
                                                               fallow_capture **out_capture);
/** Another stream takes part (it waits on an event of the capture). Errors as fallow_capture_begin, BUSY
 *  also where 32 streams are in it; INVALID_CAPTURE once it has ended. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_capture_join(fallow_capture *capture,
                                                              fallow_stream stream);
/** Capturing is over (after cuStreamEndCapture). The memory stays with the capture. Ordinary blocks that
 *  were freed meanwhile go to their streams. INVALID_CAPTURE: it had ended. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_capture_end(fallow_capture *capture);
/** The graph is destroyed, and its last launch complete or ordered before the present end of the stream
 *  that the capture began on: the memory returns after a fence. The handle is gone. Live blocks stay
 *  valid until freed. BUSY: end it first. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_capture_release(fallow_capture *capture);

/* ---- questions ---- */

/** Where a block is on its way. */
typedef enum fallow_block_state {
    FALLOW_BLOCK_LIVE = 0,     /**< allocated */
    FALLOW_BLOCK_FREE = 1,     /**< in a cache or a heap */
    FALLOW_BLOCK_DEFERRED = 2, /**< freed, waits for an announced use or a capture's end */
    FALLOW_BLOCK_CAPTURED = 3  /**< allocated inside a capture */
} fallow_block_state;

/** What is known of a block. */
typedef struct fallow_block {
    size_t struct_size;     /**< set by fallow_block_init */
    void *base;             /**< what the allocation returned */
    size_t requested_bytes; /**< as asked */
    size_t usable_bytes;    /**< the class or run */
    uint64_t stream_id;     /**< cuStreamGetId of the stream it was allocated on, also when that is
                              gone; 0 where the driver does not tell. A pool tells 65,535 streams
                              apart. */
    uint32_t tag;           /**< of the request; 0 without one */
    fallow_block_state state; /**< at the time of the call */
    uint64_t handle;      /**< CUmemGenericAllocationHandle behind the first byte; 0 without VMM */
    size_t handle_offset; /**< of the first byte in it */
    size_t handle_bytes;  /**< of the whole handle */
} fallow_block;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_block_init_sized(fallow_block *block, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_block_init(fallow_block *block)
{
    fallow_block_init_sized(block, sizeof *block);
}

/** What the pool knows of the block that contains `ptr`, interior pointers included.
 *  Errors: INVALID_POINTER if no block of this pool contains it. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_block_info(fallow_pool *pool, const void *ptr,
                                                            fallow_block *out_block);

/** Counters are exact at quiescent points. There every byte is counted once:
 *
 *      reserved_bytes + asleep_bytes
 *          = live_bytes + cached_bytes + deferred_bytes + captured_bytes + idle_bytes
 *
 *  Peaks are those since the pool was made, or since the last fallow_pool_reset_peaks.
 *  peak_reserved_bytes is always exact, and never below reserved_bytes. peak_requested_bytes is exact with one thread;
 *  with several threads the error is at most the size of their caches. peak_live_bytes is at least peak_requested_bytes
 *  and the most that was seen when requested_bytes peaked or when a caller queried the statistics. */
typedef struct fallow_stats {
    size_t struct_size;            /**< set by fallow_stats_init */
    uint64_t requested_bytes;      /**< live blocks, as asked */
    uint64_t live_bytes;           /**< live blocks, captured ones too, as given (class or run) */
    uint64_t reserved_bytes;       /**< what the driver has given */
    uint64_t peak_requested_bytes; /**< the most that requested_bytes was */
    uint64_t peak_live_bytes;      /**< the most that live_bytes was seen to be */
    uint64_t peak_reserved_bytes;  /**< the most that reserved_bytes was */
    uint64_t alloc_count;          /**< blocks allocated; size 0 apart */
    uint64_t free_count;           /**< blocks freed */
    uint64_t zero_size_count;      /**< requests of size 0 */
    uint64_t hit_count;            /**< allocations served by a thread cache */
    uint64_t event_count;          /**< events recorded */
    uint64_t steal_count;       /**< batches or runs taken from another stream with a device wait */
    uint64_t wait_count;        /**< host waits for the device */
    uint64_t driver_call_count; /**< driver calls, but those in question_count */
    uint64_t remap_count;       /**< handles moved */
    uint64_t remap_wait_count;  /**< moves that had to wait for the device */
    uint64_t grow_count;        /**< growth operations: create, map and set access count as one */
    uint64_t trim_count;        /**< handles released */
    uint64_t
        lost_streams; /**< streams found destroyed without retire: a call or a fence that names the
                                  stream is refused, or the handle names another stream, or the
                                  driver refuses a query of the stream (each call that names a new
                                  stream makes a few such queries, by turns). Memory freed by such
                                  streams, and by threads that ended, is reclaimed behind an event of
                                  the context (cuCtxRecordEvent); without that function after a
                                  synchronisation, which counts as a wait; never while a capture is
                                  open in the pool */
    uint64_t misuse_count;   /**< frees refused */
    uint64_t oom_count;      /**< allocations that failed after the whole ladder */
    uint64_t cached_bytes;   /**< in thread caches */
    uint64_t deferred_bytes; /**< freed, and no stream's before announced uses, the work of several
                                      streams, or a capture's end are over */
    uint64_t captured_bytes; /**< free memory that captures hold for their graphs */
    uint64_t host_bytes;     /**< host memory of the pool's tables */
    uint64_t live_count;     /**< blocks */
    uint32_t stream_count;   /**< streams that the pool tracks */
    uint8_t uses_vmm;        /**< 1: address space and physical memory are separate */
    uint8_t uses_membarrier; /**< 0: no call is a hit, each takes the cache's lock */
    uint8_t is_asleep;       /**< 1: the memory is released, the addresses are kept (sleep.h) */
    uint8_t
        lost_membarrier; /**< 1: the kernel granted membarrier(2) at first and refuses it by now, so
                                  that uses_membarrier has become 0; the log has had a line */
    uint64_t damage_count;    /**< debug checks: red zones and freed blocks found written */
    uint64_t unchecked_count; /**< debug checks left out: inside captures, too many under way, or
                                   refused by the driver */
    uint64_t asleep_bytes;    /**< what the next wake takes from the driver */
    uint64_t saved_bytes;     /**< contents in pinned host memory while asleep */
    uint64_t
        exported_bytes; /**< handles that were exported (share.h), live or freed; reserved too */
    uint64_t imported_bytes; /**< handles of others that are mapped here; not reserved */
    uint64_t bound_bytes;    /**< FALLOW_ORDER_CONTEXT: what may be reserved, with what is allocated
                                  now, before an allocation waits for the device; else 0 */
    uint32_t handle_types;   /**< FALLOW_HANDLE_ bits that new handles carry now */
    uint8_t page_source;     /**< FALLOW_PAGES_HANDLES or FALLOW_PAGES_SEGMENTS */
    uint8_t allows_rdma;     /**< 1: new handles are made for network adapters to register
                                  (gpuDirectRDMACapable); segments always can be */
    uint8_t reserved_1[2];   /**< 0 */
    uint64_t idle_bytes;     /**< all else that is reserved: free for one stream or for any, mapped
                                  nowhere, or lost to the rounding of slabs and segments */
    uint64_t
        question_count; /**< driver calls that only query: whether a stream is being captured, once
                                  for each allocation that misses and in slow paths; how much memory
                                  the device has left, at most every 100 ms of waits */
} fallow_stats;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_stats_init_sized(fallow_stats *stats, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_stats_init(fallow_stats *stats)
{
    fallow_stats_init_sized(stats, sizeof *stats);
}
/** Cheap: sums per-thread counters; stops no thread. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_get_stats(fallow_pool *pool,
                                                                fallow_stats *out_stats);

/**
 * Restart the three peaks of fallow_stats at the present amounts, so that later statistics show the peaks since this
 * call. No other counter changes, nor how much memory the pool keeps.
 *
 * Precision   as that of the peaks. An allocation that another thread makes during this call may be missed. A growth
 *             under way counts for peak_reserved_bytes.
 * Errors      INVALID_POOL.
 * Threads     any, also during captures and while the pool is asleep.
 * Cost        as fallow_pool_get_stats; no driver call.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_reset_peaks(fallow_pool *pool);

/** Entries of fallow_oom_report.owners. */
#define FALLOW_OOM_OWNERS 8

/** One of the largest owners of memory at the time of the failure. */
typedef struct fallow_oom_owner {
    uint64_t stream_id; /**< that allocated it, as in fallow_block; 0 = unknown */
    uint32_t tag;       /**< of the requests */
    uint32_t count;     /**< live blocks */
    uint64_t bytes;     /**< of them, as asked */
} fallow_oom_owner;

/** Why the last allocation failed. */
typedef struct fallow_oom_report {
    size_t struct_size;          /**< set by fallow_oom_report_init */
    uint64_t size_bytes;         /**< the request; 0 = no allocation has failed yet */
    uint64_t limit_bytes;        /**< of the pool */
    uint64_t reserved_bytes;     /**< what the driver had given */
    uint64_t requested_bytes;    /**< live */
    uint64_t free_bytes;         /**< mapped and free, whoever's */
    uint64_t largest_free_bytes; /**< largest contiguous hole that the stream could have used */
    uint64_t deferred_bytes;     /**< waiting for fences */
    uint64_t captured_bytes;     /**< free memory that captures hold for their graphs */
    uint64_t device_free_bytes;  /**< what the driver said was left; UINT64_MAX: it did not say */
    double fragmentation;        /**< 1 - largest_free / free; 0 when nothing is free */
    uint64_t stage_count[12];    /**< how often each stage of the pool's ladder (one for each
                                    order) was reached, the last one being failure */
    uint64_t stage_ns[12];       /**< time spent there */
    uint32_t owner_count;        /**< of owners, that are filled */
    uint32_t reserved_0;
    fallow_oom_owner owners[FALLOW_OOM_OWNERS]; /**< largest first */
    uint64_t address_bytes; /**< addresses reserved for blocks; 0 = segments have their own */
    uint64_t largest_address_bytes; /**< largest stretch of them without memory */
    uint32_t lacks_addresses; /**< 1 = memory was available, but no stretch of addresses for it, and
                                       the driver reserved no further addresses */
    uint32_t reserved_1;      /**< 0 */
} fallow_oom_report;

/** Fill with defaults, recording the caller's size of the struct. */
FALLOW_API void fallow_oom_report_init_sized(fallow_oom_report *report, size_t struct_size);
/** The same with the size that this header knows. */
static inline void fallow_oom_report_init(fallow_oom_report *report)
{
    fallow_oom_report_init_sized(report, sizeof *report);
}
/** Of the last allocation that failed for want of memory, on whatever thread. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_get_oom_report(fallow_pool *pool,
                                                                     fallow_oom_report *out_report);

/** The CUresult of the last driver call that failed unexpectedly, and that call's name. 0 and "" if
 *  none. Static storage. */
FALLOW_API int fallow_pool_last_driver_error(fallow_pool *pool, const char **out_call);

/* ---- upkeep ---- */

/** Give idle memory back until at most keep_bytes are reserved. Waits for what is needed, at most
 *  deadline_ns from now (0 = not at all, which is OK; UINT64_MAX = as long as it takes). TIMEOUT if it
 *  passed with work left. OK also when live memory keeps more. out_released_bytes may be NULL.
 *  No deadline bounds a sleep or wake under way, or, without cuCtxRecordEvent, the synchronisation that memory of a
 *  lost stream takes. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_trim(fallow_pool *pool, size_t keep_bytes,
                                                           uint64_t deadline_ns,
                                                           size_t *out_released_bytes);

/**
 * Change `limit_bytes` of the config, the most memory that the pool may hold from the driver; 0 = the device's total.
 *
 * If more is reserved, free memory is released at once, as by a trim without a wait; later polls and allocations
 * release memory that the device still uses. The pool takes nothing new from the driver before less than the limit is
 * reserved. Live blocks stay, and a wake restores all memory that was asleep.
 *
 * Errors      INVALID_POOL, DEVICE_LOST.
 * Cost        a lock; above the new limit a trim.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_set_limit(fallow_pool *pool,
                                                                size_t limit_bytes);

/** Advance decay, completed fences and red-zone results. Never waits for the device. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_poll(fallow_pool *pool);

/** Recompute every invariant from the blocks up. OK, or DRIVER with a line to the log that names
 * the first broken one. For tests; waits for allocations, sleeps and wakes under way and stops the
 * world for its duration, so that a sleep, a wake or a change of peers meanwhile answers BUSY. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_validate(fallow_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
