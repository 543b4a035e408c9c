/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Fallow allocates GPU memory: uninitialised, reusable, stream-ordered.
 *
 * A *pool* belongs to one device. Work submitted to a stream may use a block after the call that
 * allocated the block on that stream returns. `fallow_free(pool, block, stream)` frees in the same
 * order: the same stream may reuse the block at once. Another stream may reuse the block only after
 * all work submitted to the freeing stream before the free is complete, or once the device makes
 * that other stream wait for this work.
 *
 * CAVEATS
 *  - Contents are always undefined. Only FALLOW_REQUEST_ZERO returns zeros.
 *  - Call fallow_stream_retire before a stream is destroyed and fallow_capture_begin before a stream
 *    is captured. CUDA recycles stream handles, and a hit makes no driver call that would notice.
 *  - CUDA leaves the handle of a destroyed stream undefined. An allocation or a free on such a handle
 *    is undefined here too, unless `streams_may_die` is set and the driver still recognises handles.
 *  - A pool serves at most about 4,000 streams at a time; a captured stream counts twice. Beyond
 *    that, calls return OUT_OF_HOST_MEMORY. Retire streams that are no longer used.
 *  - The library stays loaded: dlclose succeeds and unloads nothing, because threads that used a
 *    pool run library code when they end.
 *  - No function is async-signal-safe. The child of a fork() has no pools: the parent's handles
 *    return INVALID_POOL there.
 *  - A kernel launched with programmatic serialisation may touch allocated memory only after its
 *    dependency wait.
 *  - Freeing a stale pointer whose address was allocated again frees the new block. No allocator
 *    that works by address can detect this; the quarantine check does.
 *
 * THREADS  Unless a function states otherwise, any thread may call it at any time. No lock is held
 *          over a driver call or a callback. Waits are no cancellation points: pthread_cancel takes
 *          effect after the call. The driver, the log, and functions that open or write files may
 *          contain cancellation points of their own.
 *
 * ERRORS   A call that fails changes nothing that the caller holds, and sets `*out_ptr` to NULL.
 *          Allocating and freeing preserve errno.
 *
 * COST     A *hit* is served from the calling thread's cache: no lock, no system call, no driver
 *          call, no event, no shared cache line. Hits are calls without tag, flag and alignment, on
 *          a stream that the thread has used before. A block above 1 MiB hits only if the thread
 *          has freed a block of that size (in steps of 64 KiB) on that stream. A cache keeps such
 *          blocks up to half of the pool's memory, at most 256 MiB.
 *
 * This header needs no CUDA header. It compiles beside <cuda.h> and <cuda_runtime.h>, as C11 and as
 * C++17.
 */
#ifndef FALLOW_FALLOW_H
#define FALLOW_FALLOW_H

#include <stddef.h>
#include <stdint.h>

#include "fallow/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FALLOW_VERSION_MAJOR 0 /**< a change requires that programs are rebuilt */
#define FALLOW_VERSION_MINOR \
    2 /**< from 1.0 on: functions or fields were added; until then as MAJOR */
#define FALLOW_VERSION_PATCH 0 /**< faults were fixed */

struct CUstream_st;
/** A cudaStream_t or CUstream of any context and device. Work on another device or in another
 *  context needs access to the pool's memory (fallow_pool_allow_peer). NULL and 1 are the legacy
 *  default stream, 2 is the per-thread default stream. */
typedef struct CUstream_st *fallow_stream;

/** A pool of one device's memory. An opaque handle; the library never dereferences a stale one. */
typedef struct fallow_pool fallow_pool;
/** An announced capture and the memory of its graph. An opaque handle, as fallow_pool. */
typedef struct fallow_capture fallow_capture;

/* ---- config */

/** How much idle memory a pool may hold. */
typedef enum fallow_economy {
    /** Prefer growth to a wait, and to driver calls in a repeating step. P is the peak of memory in
     *  live blocks since the pool was created (peak_live_bytes, if never reset). The bounds hold for
     *  the loads of property.steady_passes, streams_figures and held_bounds, if the page source is
     *  handles and no capture holds memory:
     *  - One stream: at most 1.16 P + 16 MiB; up to 1.3 P + 16 MiB if most memory is in blocks of
     *    64 KiB to 1 MiB with partly filled slabs, or if sizes change between KiB and a sixteenth
     *    of P or more.
     *  - Several streams: at most 1.45 P + 16 MiB + 256 MiB (on a device below 64 GiB: a 256th of
     *    the device instead of 256 MiB). Beyond that the stream that takes memory waits; the host
     *    waits only if memory must be moved. */
    FALLOW_BALANCED = 0,
    /** Hold as little as possible: at most 1.05 P + 16 MiB, with three or more streams 1.10 P +
     *  16 MiB; up to 1.15 P + 16 MiB if sizes are as in the exceptions above. Streams wait, and the
     *  host waits if memory must be moved. */
    FALLOW_MEMORY_FIRST = 1,
    /** Grow up to the limit rather than wait: below the limit neither the host nor a stream waits. */
    FALLOW_SPEED_FIRST = 2
} fallow_economy;

/** Which streams' freed memory an allocation may take. */
typedef enum fallow_reuse_policy {
    /** Any stream's. The allocating stream waits for the stream that freed the memory if necessary. */
    FALLOW_REUSE_WAIT = 0,
    /** Another stream's only if the work that used the memory is complete. */
    FALLOW_REUSE_COMPLETED = 1,
    /** Only the stream's own, even after other streams' work completes. A stream's memory becomes
     *  free for others when the stream is retired or lost and its work is complete; until then
     *  idle memory reaches another stream only through the driver, unmapped or released as whole
     *  handles or segments. The pool holds more and reaches its limit earlier. */
    FALLOW_REUSE_SAME_STREAM = 2
} fallow_reuse_policy;

/** The order of frees: when a freed block may be reused. */
typedef enum fallow_order {
    /** Stream order, as described above. */
    FALLOW_ORDER_STREAM = 0,
    /**
     * Context order, for callers that cannot name a stream: as with cudaFree, work on any stream may
     * still use a block when it is freed. The pool records an event of the context after the free
     * and reuses the block once the event is complete: all work submitted earlier to this context,
     * and to every other context of the process that has such a pool, is complete then. (Work of a
     * context without such a pool must be complete before the free.) An allocation waits for events
     * only if the pool would otherwise hold more than what is allocated plus the larger of 256 MiB
     * and a quarter of what is allocated.
     *
     * Memory      from cuMemAlloc. IPC handles, peer access by cuCtxEnablePeerAccess and registration
     *             work as with cudaMalloc. The memory ends with its context: each allocation queries
     *             the context's id (cuCtxGetId) and returns DEVICE_LOST after a reset or destroy. A
     *             request of 1 MiB or more is a driver allocation of its own, in steps of 2 MiB.
     *             Every block is aligned to 512 B.
     * Streams     the stream argument of every call is ignored. fallow_record_use and
     *             fallow_stream_retire are not needed and have no effect.
     * Capture     announce each capture with fallow_context_capture_begin (fallow/extend.h), since
     *             recording an event of the context would end the capture. Until the capture ends no
     *             freed block is reused and no memory is released to the driver.
     * Not with    a reuse_policy, checks, streams_may_die, handle_types, peer_devices, arenas,
     *             fallow_capture_begin. FALLOW_REQUEST_ZERO waits for the fill.
     * Needs       cuCtxRecordEvent (CUDA 12.5); without it the pool waits for the whole device
     *             before it reuses memory.
     */
    FALLOW_ORDER_CONTEXT = 1
} fallow_order;

/** Bits of `checks`, the debug checks. 0: only the checks that need no device work; these always run.
 *
 *  With any bit set every call takes the slow path and makes a few more driver calls. Inside a
 *  capture nothing is checked; unchecked_count counts the checks left out. POISON, RED_ZONES and
 *  QUARANTINE need memory with contents and registered host memory: create returns NOT_SUPPORTED on
 *  a simulated device without contents, and if the driver registers no host memory. Red zones count
 *  as requested bytes. */
enum {
    /** Fill each new block with a pattern, and every other time with the pattern's complement, so
     *  that a read of unwritten bytes changes the program's results. */
    FALLOW_CHECK_POISON = 1u << 1,
    /** Put 512 B on both sides of each block, copy them to the host at the free and compare them in
     *  a later call. Each damage is logged as an error with block, tag, stream and offset. */
    FALLOW_CHECK_RED_ZONES = 1u << 2,
    /** Fill a freed block and hold it back until 1,024 more blocks, or a sixteenth of the limit (at
     *  most 256 MiB), are freed. A free of a held block is refused; a write to its first or last
     *  512 B is logged as an error. Not held: blocks with announced uses, and blocks freed on
     *  CU_STREAM_PER_THREAD or under streams_may_die, whose handle may name another stream later.
     *  Held blocks are released by a trim and before an allocation fails. */
    FALLOW_CHECK_QUARANTINE = 1u << 3,
    /** Log the 16 largest live blocks when the pool is destroyed. */
    FALLOW_CHECK_LEAKS = 1u << 4
};

/** The driver allocations that a pool divides into blocks. */
typedef enum fallow_page_source {
    /** Handles if the device and the driver support them, which create tests; otherwise segments.
     *  Segments also if the driver cannot reserve a range of addresses as large as the limit, and
     *  in context order. */
    FALLOW_PAGES_AUTOMATIC = 0,
    /** Physical handles (cuMemCreate), mapped where they are needed. Memory can move between sizes,
     *  sleep, be exported and be shared with peers. There is no legacy IPC handle
     *  (cuIpcGetMemHandle). A block is at most as large as the largest range of addresses that the
     *  driver reserves. */
    FALLOW_PAGES_HANDLES = 1,
    /** Segments (cuMemAlloc), for legacy IPC and for libraries that do not support handles.
     *
     *  A block above 1 MiB that fits no free memory gets a segment of its own, unless the driver's
     *  rounding to 2 MiB would waste more than an eighth of the block. A block of
     *  one_handle_bytes or more fills a whole segment, which is never split and later serves blocks
     *  of at least eight ninths of its size. Smaller segments may be split once free.
     *
     *  Idle memory can only move as whole segments, through the driver, so a pool holds more.
     *  cuMemFree waits for all work of the device: a call that promises not to wait, or not beyond
     *  a deadline, releases a segment only after the pool found all tracked work complete, so a
     *  device that is never idle keeps its segments. wait_count counts every other release on a
     *  busy device. Tracked work is all work in context order with cuCtxRecordEvent; in stream
     *  order, the work of streams that the pool has seen and this thread can name.
     *
     *  Segments do not sleep, are not exported and take no peer_devices; use
     *  cuCtxEnablePeerAccess. */
    FALLOW_PAGES_SEGMENTS = 2
} fallow_page_source;

/** Value of fallow_pool_config.one_handle_bytes: blocks may span handles, whatever their size. */
#define FALLOW_ONE_HANDLE_NONE ((size_t)-1)

/** Bits of `handle_types`: how memory can be shared with other processes. */
enum {
    FALLOW_HANDLE_FD = 1u << 0,    /**< POSIX file descriptors */
    FALLOW_HANDLE_FABRIC = 1u << 1 /**< fabric handles (multi-node NVLink) */
};

/** Severity of a log line. */
typedef enum fallow_log_level {
    FALLOW_LOG_ERROR = 0,
    FALLOW_LOG_WARNING = 1,
    FALLOW_LOG_INFO = 2
} fallow_log_level;

/** Receives log lines, with no lock held, on the thread that caused the line. Must not call into the
 *  same pool. */
typedef void (*fallow_log_function)(void *context, fallow_log_level level, const char *message);

/** Frees memory of the caller before an allocation fails. Called with no lock held, one call at a
 *  time per pool. May free and allocate; allocations inside do not call back. Returns nonzero if
 *  memory was freed. */
typedef int (*fallow_oom_function)(void *context, size_t size_bytes, fallow_stream stream);

/** Settings of a pool. 0 selects the default of every field except struct_size. */
typedef struct fallow_pool_config {
    size_t struct_size; /**< set by fallow_pool_config_init */
    int device;         /**< ordinal */
    /** - NULL: libcuda.so.1
     *  - "sim": the simulated device, libfallow-simcuda.so. Searched beside libfallow.so (with
     *    libfallow.a beside the program), then along the library path.
     *  - otherwise: the path of a driver library */
    const char *driver;
    void *context; /**< the CUcontext to use; NULL = retain the device's primary context */
    /** Most memory that the pool may hold from the driver; 0 = the device's total. See
     *  fallow_pool_set_limit. */
    size_t limit_bytes;
    fallow_economy economy; /**< how much idle memory to hold */
    size_t cache_bytes;     /**< ignored; reserved from 0.3 on */
    /** Interval at which fallow_pool_poll, or the helper thread, releases memory above 1.125 times
     *  the most that the last 2 to 2.25 seconds needed. 0 = 10,000; UINT32_MAX = never. */
    uint32_t decay_ms;
    fallow_reuse_policy reuse_policy; /**< which streams' freed memory an allocation may take */
    uint32_t checks;                  /**< FALLOW_CHECK_ bits */
    /** 1: streams may be destroyed without fallow_stream_retire. Every call then queries the stream's
     *  identity, which needs cuStreamGetId. Each batch is fenced inside the free that completes the
     *  batch, and each use inside its fallow_record_use, which must be called after the use. Freed
     *  blocks of a batch that was not yet full are lost with the stream and reclaimed as described
     *  at lost_streams. */
    uint8_t streams_may_die;
    /** 1: a thread of the pool polls, so that an idle process releases memory. */
    uint8_t helper_thread;
    uint8_t reserved_0[2]; /**< 0 */
    /** Longest time that one allocation waits for the device, all its waits together, before the
     *  allocation fails.
     *  - 0: 100
     *  - UINT32_MAX: never wait
     *  - UINT32_MAX - 1: until the work is complete
     *  Three waits always last until the work is complete: a wait that avoids a growth for which
     *  limit and device have room; a wait for memory of a lost stream; in context order, a wait
     *  without cuCtxRecordEvent. */
    uint32_t wait_ms;
    /** Ordinals of devices that may access the memory too. Read during create only. See
     *  fallow_pool_allow_peer (share.h) for later changes. */
    const int *peer_devices;
    size_t peer_device_count; /**< of peer_devices, at most 16 */
    /** FALLOW_HANDLE_ bits: the kinds of export that requests may ask for. Create returns
     *  NOT_SUPPORTED if the driver refuses one. 0: requests may ask for none; handles are still made
     *  exportable, for libraries that export by themselves: with both kinds, with descriptors alone,
     *  or with neither, as the driver permits. */
    uint32_t handle_types;
    fallow_order order;             /**< the order of frees */
    fallow_log_function log;        /**< NULL = no log */
    void *log_context;              /**< passed to log */
    fallow_oom_function on_oom;     /**< NULL = none */
    void *oom_context;              /**< passed to on_oom */
    fallow_page_source page_source; /**< handles or segments */
    uint32_t reserved_1;            /**< 0 */
    /** Blocks of this size or more fill one handle or segment, so that cuMemGetAddressRange and
     *  exports see the whole block. Once freed, the handle serves blocks of its size or is released,
     *  so frequent allocation and free of large blocks takes more driver calls and waits.
     *  - 0: automatic, from 1 GiB on; several handles if the driver has memory for nothing larger.
     *    With handles the size doubles after every third handle that a growth released, until a trim.
     *  - 2 MiB or more: from that size on, without exception
     *  - FALLOW_ONE_HANDLE_NONE: no block needs a handle of its own */
    size_t one_handle_bytes;
} fallow_pool_config;

/** Fill with defaults and set struct_size. Create accepts a struct_size larger than this library's
 *  struct only if the additional bytes are zero. */
FALLOW_API void fallow_pool_config_init_sized(fallow_pool_config *config, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_pool_config_init(fallow_pool_config *config)
{
    fallow_pool_config_init_sized(config, sizeof *config);
}

/* ---- pool */

/**
 * Create a pool on a device.
 *
 * Ownership   the caller owns *out_pool until destroy or abandon. The handle stays safe to pass
 *             afterwards: every call returns INVALID_POOL.
 * Errors      INVALID_ARGUMENT (unknown bits, bad ordinal), VERSION (struct_size, old driver),
 *             NOT_FOUND (driver or device), NOT_SUPPORTED (a debug check on memory without contents;
 *             handle types, handles or peers that the device lacks or the driver refuses),
 *             OUT_OF_MEMORY (no device memory to try a debug check on), OUT_OF_HOST_MEMORY (also a
 *             limit of the address space, see Limits), DRIVER. The log gets one line that names the
 *             failure. A failed create leaves nothing behind.
 * Probe       create does not rely on the driver's attributes: a handle of the smallest size (2 MiB,
 *             even if limit_bytes is smaller) is created, mapped, written, read and released. If the
 *             driver refuses, create tries again without registration for network adapters, then
 *             without fabric handles, without descriptors, and finally with segments, and logs each
 *             feature that it leaves out. If the device has no memory for the probe, its attributes
 *             count.
 * Capture     disturbs no capture: the probe uses a stream of its own.
 * Cost        driver calls, nine of them for the probe; no device memory is kept. Reserves device
 *             addresses, 8 times the device's memory; if the driver refuses, fewer, and further
 *             ranges when a block does not fit. Reserves host addresses, 85 GiB for a device of 80 GB
 *             (94 GiB if 8 times was refused), of which few are ever used. The first pool of a
 *             process registers for membarrier(2), which takes 10 ms or more while other threads run.
 * Limits      Under a limit of the address space (ulimit -v) the tables take a quarter of the space
 *             that the limit leaves, plus names for the device's addresses: 76 MiB for a device of
 *             80 GB; 9 GiB in context order and if the device cannot remap. If the driver refuses 8
 *             times the memory and the limit leaves less than 40 GiB, a pool uses one range. The
 *             tables shrink to about 120 MiB beside the names; below that, create fails. The cost of
 *             a hit stays the same. Smaller tables have room for fewer blocks, allocated and free:
 *             the smallest for 4 million blocks, 130,000 of them larger than 1 MiB. The log gets one
 *             warning with these numbers.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_create(const fallow_pool_config *config,
                                                             fallow_pool **out_pool);

/**
 * Wait for every fence, log live blocks, release all memory. NULL and destroyed handles are ignored.
 *
 * Threads     no other thread may be inside a call on this pool.
 * Capture     other captures continue: the context is synchronised only if blocks are still
 *             allocated or imported, or if a stream was destroyed without fallow_stream_retire or
 *             is another thread's per-thread stream, and never while a known capture is open.
 */
FALLOW_API void fallow_pool_destroy(fallow_pool *pool);

/** Forget the pool without a driver call; nothing is released. For exit handlers and after a context
 *  is lost. The child of a fork does so by itself. NULL is ignored. */
FALLOW_API void fallow_pool_abandon(fallow_pool *pool);

/* ---- allocate, free */

/**
 * Allocate device memory for work submitted to `stream` after this call returns.
 *
 * Contents    undefined; may hold bytes of an earlier block of the same pool.
 * Units       size_bytes 0 returns OK and NULL. Blocks below 512 B are aligned to 256 B, others to
 *             512 B.
 * Ordering    stream-ordered; the host may not touch the memory.
 * Ownership   the caller owns *out_ptr until fallow_free.
 * Errors      - OUT_OF_MEMORY: every way to find memory was tried; see fallow_pool_get_oom_report.
 *             - INVALID_ARGUMENT: absurd size, or out_ptr is NULL.
 *             - CAPTURING: the stream is being captured without an announcement. A block in the
 *               thread's cache is still returned, as ordinary memory.
 *             - ASLEEP (sleep.h), INVALID_STREAM, INVALID_POOL, DEVICE_LOST.
 *             - DRIVER, NOT_SUPPORTED: the driver refused a call, which
 *               fallow_pool_last_driver_error names. Nothing is lost, and the next request that needs
 *               the driver tries again. The 1st, 2nd, 4th, 8th, ... refusal in a row is logged.
 *             - OUT_OF_HOST_MEMORY: the pool's tables are full (fallow_pool_create), or the host
 *               refuses memory for them (ulimit -d, -v, a container's limit). Returned at once,
 *               without growth, callback or wait, and logged. Requests that need no new table still
 *               succeed.
 * Cost        hit: O(1), no driver call. Miss: O(1) searches; may map memory; waits for the device
 *             only if nothing else helps, for at most `wait_ms` of the config.
 * Capture     on a stream announced by fallow_capture_begin or _join the block belongs to the
 *             capture and keeps its address until fallow_capture_release.
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
    /** Fill one physical handle, exportable as a descriptor (share.h). */
    FALLOW_REQUEST_EXPORT_FD = 1u << 0,
    /** Fill one physical handle, exportable over the fabric. */
    FALLOW_REQUEST_EXPORT_FABRIC = 1u << 1,
    /** Let neither host nor device wait; return WOULD_WAIT if a wait were needed. */
    FALLOW_REQUEST_NO_WAIT = 1u << 2,
    /** Take only memory that the pool already holds. */
    FALLOW_REQUEST_NO_GROW = 1u << 3,
    /** Share no physical handle with other blocks. */
    FALLOW_REQUEST_DEDICATED = 1u << 4,
    /** Fill with zeros, in stream order. */
    FALLOW_REQUEST_ZERO = 1u << 5,
    /** Allocate for work of every stream that is submitted after the call returns, in any order. Takes
     *  only memory that no unfinished work uses; the host waits for such memory if nothing else helps.
     *  The stream is ignored, except that FALLOW_REQUEST_ZERO fills on the stream and waits for the
     *  fill. Inside a capture the block is ordinary memory. Free it with fallow_free, like any block,
     *  or with fallow_free_complete. NOT_SUPPORTED with debug checks. */
    FALLOW_REQUEST_EVERY_STREAM = 1u << 6,
};

/** An allocation with options. 0 selects the default of every field except struct_size. */
typedef struct fallow_request {
    size_t struct_size; /**< set by fallow_request_init */
    size_t size_bytes;  /**< as in fallow_alloc */
    size_t align_bytes; /**< 0 = default */
    uint32_t flags;     /**< FALLOW_REQUEST_ bits */
    uint32_t tag;       /**< any number; fallow_block and the out-of-memory report repeat it */
} fallow_request;

/** Fill with defaults and set struct_size. */
FALLOW_API void fallow_request_init_sized(fallow_request *request, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_request_init(fallow_request *request)
{
    fallow_request_init_sized(request, sizeof *request);
}

/** As fallow_alloc, with options. Further errors: NOT_SUPPORTED (an export without handles, or of a
 *  type that is not in the config's handle_types), WOULD_WAIT. A request with a tag or a flag is never
 *  a hit. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_alloc_request(fallow_pool *pool,
                                                               const fallow_request *request,
                                                               fallow_stream stream,
                                                               void **out_ptr);

/** Allocate `count` blocks, all or none. On failure every out_ptrs[i] is NULL. Errors and ordering as
 *  fallow_alloc. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_alloc_batch(fallow_pool *pool, const size_t *sizes,
                                                             size_t count, fallow_stream stream,
                                                             void **out_ptrs);

/**
 * Free a block. The block then belongs to `stream`, whichever stream allocated it.
 *
 * Contract    every use of the block was submitted to the device before this call, and each use
 *             either precedes the present end of `stream` or was announced by fallow_record_use.
 *             `stream` also comes after all work that the allocating stream had at the allocation,
 *             whether or not the block was used.
 * Errors      INVALID_POINTER for an interior, foreign or already freed pointer, also if two threads
 *             free one pointer at the same moment (one call succeeds). DRIVER if the driver does not
 *             identify a stream that the pool has not seen. Neither changes anything. NULL returns
 *             OK. After a device loss frees return OK and do nothing.
 * Cost        hit: one uncontended compare-and-swap on the block's own word, no driver call. Miss:
 *             returns a batch of blocks; with several active streams at most one event per 16 MiB
 *             freed.
 * Capture     a captured block returns to its capture. An ordinary block freed on a captured stream
 *             is held until the capture ends. If the capture was not announced, hits on `stream` may
 *             reuse the block at once, other streams only after the capture ends.
 */
FALLOW_API fallow_status fallow_free(fallow_pool *pool, void *ptr, fallow_stream stream);

/**
 * Free a block that no work uses any more: the caller has synchronised with the streams that used it,
 * or with the context. Any stream may reuse the block at once, without an event.
 *
 * Contract    all work that uses the block, on any stream or device, is complete; announced uses count
 *             as complete too. All work submitted to the allocating stream before the allocation is
 *             complete, unless the request had FALLOW_REQUEST_EVERY_STREAM.
 * Errors      as fallow_free; OUT_OF_HOST_MEMORY for a thread's first call, state unchanged.
 * Cost        the pool's locks; no driver call. Never a hit.
 * Capture     a captured block returns to its capture.
 */
FALLOW_API fallow_status fallow_free_complete(fallow_pool *pool, void *ptr);

/** As fallow_free, and check the size: returns INVALID_ARGUMENT and frees nothing if no request of
 *  size_bytes could have returned this block. Cheapest with the size that was requested. */
FALLOW_API fallow_status fallow_free_sized(fallow_pool *pool, void *ptr, size_t size_bytes,
                                           fallow_stream stream);

/**
 * Announce that work on another stream uses the block, as Tensor.record_stream does. Once freed, the
 * block is not reused until all work that `stream` had at the free is complete. The stream may belong
 * to another context or device. Call before the free. A NULL block returns OK.
 *
 * Errors      INVALID_POINTER (no live block of this pool), INVALID_STREAM, OUT_OF_HOST_MEMORY,
 *             INVALID_POOL, DRIVER, DEVICE_LOST.
 * Cost        a lock. The event is recorded by a later slow path, at the latest when 16 MiB or 256
 *             blocks wait for such events.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_record_use(fallow_pool *pool, void *ptr,
                                                            fallow_stream stream);

/**
 * Announce that a stream is about to be destroyed. The pool forgets the handle; the stream's free
 * memory becomes available to every stream once the work submitted to the stream is complete. Returns
 * OK for a stream that the pool has never seen.
 *
 * Errors      BUSY (the stream is being captured: end the capture first), INVALID_STREAM (already
 *             destroyed: its memory waits for all work of the context), INVALID_POOL, DEVICE_LOST.
 * Cost        at most one event; empties every thread's cache for this stream.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_stream_retire(fallow_pool *pool,
                                                               fallow_stream stream);

/* ---- capture */

/**
 * Announce that `stream` is being captured. Call before or right after cuStreamBeginCapture. From now
 * on allocations on `stream`, by any thread, take memory of the capture, which keeps its addresses
 * until fallow_capture_release.
 *
 * Contents    free memory, also of released captures, once the work that used it is complete. As
 *             outside captures, allocations wait for such memory rather than exceed the bound of the
 *             economy. Memory that the stream itself has freed since the last release serves a
 *             capture only if the capture is announced before it begins.
 * Threads     if other threads use the pool, announce before the stream captures: the pool may have
 *             to synchronise the context, which ends a capture that was not announced. (The pool
 *             first checks the streams it tracks for captures; with streams_may_die none.)
 * Ownership   the caller owns *out_capture until fallow_capture_release or until the pool is
 *             destroyed. The handle stays safe to pass afterwards: every call returns
 *             INVALID_CAPTURE.
 * Errors      BUSY (the stream is in another capture), INVALID_STREAM, ASLEEP, NOT_SUPPORTED (context
 *             order), OUT_OF_HOST_MEMORY, INVALID_ARGUMENT (out_capture NULL), INVALID_POOL,
 *             DEVICE_LOST. Nothing is announced then.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_capture_begin(fallow_pool *pool,
                                                               fallow_stream stream,
                                                               fallow_capture **out_capture);
/** Announce that another stream joins the capture (by waiting on an event of the capture). Errors as
 *  fallow_capture_begin; BUSY also if 32 streams have joined; INVALID_CAPTURE after the end. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_capture_join(fallow_capture *capture,
                                                              fallow_stream stream);
/** End the announcement, after cuStreamEndCapture. The capture keeps its memory. Ordinary blocks that
 *  were freed meanwhile return to their streams. INVALID_CAPTURE if the capture was ended before. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_capture_end(fallow_capture *capture);
/** Return the capture's memory to the pool, which reuses it after a fence; the handle becomes invalid.
 *  Call after the graph is destroyed, when its last launch is complete or precedes the present end of
 *  the stream that the capture began on. Live blocks stay valid until freed. BUSY: call
 *  fallow_capture_end first. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_capture_release(fallow_capture *capture);

/* ---- queries */

/** State of a block. */
typedef enum fallow_block_state {
    FALLOW_BLOCK_LIVE = 0,     /**< allocated */
    FALLOW_BLOCK_FREE = 1,     /**< in a cache or a heap */
    FALLOW_BLOCK_DEFERRED = 2, /**< freed; waits for an announced use or a capture's end */
    FALLOW_BLOCK_CAPTURED = 3  /**< allocated inside a capture */
} fallow_block_state;

/** Description of a block. */
typedef struct fallow_block {
    size_t struct_size;     /**< set by fallow_block_init */
    void *base;             /**< the address that the allocation returned */
    size_t requested_bytes; /**< as requested */
    size_t usable_bytes;    /**< of the size class or run */
    /** cuStreamGetId of the stream that the block was allocated on, even if the stream is gone; 0 if
     *  the driver returns no ids. A pool distinguishes 65,535 streams. */
    uint64_t stream_id;
    uint32_t tag;             /**< of the request; 0 without one */
    fallow_block_state state; /**< at the time of the call */
    uint64_t handle;      /**< CUmemGenericAllocationHandle of the first byte; 0 without handles */
    size_t handle_offset; /**< of the first byte in the handle */
    size_t handle_bytes;  /**< of the whole handle */
} fallow_block;

/** Fill with defaults and set struct_size. */
FALLOW_API void fallow_block_init_sized(fallow_block *block, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_block_init(fallow_block *block)
{
    fallow_block_init_sized(block, sizeof *block);
}

/** Describe the block that contains `ptr`, which may be an interior pointer. INVALID_POINTER if no
 *  block of this pool contains `ptr`. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_block_info(fallow_pool *pool, const void *ptr,
                                                            fallow_block *out_block);

/** Statistics of a pool. They are exact while no call is under way. Then every byte is counted once:
 *
 *      reserved_bytes + asleep_bytes
 *          = live_bytes + cached_bytes + deferred_bytes + captured_bytes + idle_bytes
 *
 *  Peaks count since the pool was created or since the last fallow_pool_reset_peaks.
 *  - peak_reserved_bytes is exact and never below reserved_bytes.
 *  - peak_requested_bytes is exact with one thread; with several threads the error is at most the
 *    size of their caches.
 *  - peak_live_bytes is at least peak_requested_bytes and at least every live_bytes that was current
 *    when requested_bytes peaked or a caller queried the statistics. */
typedef struct fallow_stats {
    size_t struct_size;            /**< set by fallow_stats_init */
    uint64_t requested_bytes;      /**< live blocks, as requested */
    uint64_t live_bytes;           /**< live blocks, captured ones included, by class or run */
    uint64_t reserved_bytes;       /**< memory from the driver */
    uint64_t peak_requested_bytes; /**< maximum of requested_bytes */
    uint64_t peak_live_bytes;      /**< observed maximum of live_bytes */
    uint64_t peak_reserved_bytes;  /**< maximum of reserved_bytes */
    uint64_t alloc_count;          /**< blocks allocated, without requests of size 0 */
    uint64_t free_count;           /**< blocks freed */
    uint64_t zero_size_count;      /**< requests of size 0 */
    uint64_t hit_count;            /**< allocations served by a thread cache */
    uint64_t event_count;          /**< events recorded */
    uint64_t steal_count;       /**< batches or runs taken from another stream with a device wait */
    uint64_t wait_count;        /**< host waits for the device */
    uint64_t driver_call_count; /**< driver calls, without those in question_count */
    uint64_t remap_count;       /**< handles moved */
    uint64_t remap_wait_count;  /**< moves that waited for the device */
    uint64_t grow_count;        /**< growths: create, map and set access count as one */
    uint64_t trim_count;        /**< handles released */
    /** Streams found destroyed without fallow_stream_retire: a call or a fence on the stream is
     *  refused, the handle names another stream, or the driver refuses a query of the stream (each
     *  call that names a new stream queries a few known streams in turn). Memory freed by such
     *  streams, and by threads that ended, is reclaimed after an event of the context
     *  (cuCtxRecordEvent); without that function after a synchronisation, which counts as a wait;
     *  never while a capture is open in the pool. */
    uint64_t lost_streams;
    uint64_t misuse_count; /**< frees refused */
    uint64_t oom_count;    /**< allocations that failed for want of memory */
    uint64_t cached_bytes; /**< in thread caches */
    /** Freed blocks of no stream yet: they wait for announced uses, for the work of several streams
     *  or for the end of a capture. */
    uint64_t deferred_bytes;
    uint64_t captured_bytes; /**< free memory that captures hold for their graphs */
    uint64_t host_bytes;     /**< host memory of the pool's tables */
    uint64_t live_count;     /**< live blocks */
    uint32_t stream_count;   /**< streams that the pool tracks */
    uint8_t uses_vmm;        /**< 1: the page source is handles, which can be remapped */
    uint8_t uses_membarrier; /**< 0: no call is a hit; each takes the lock of its cache */
    uint8_t is_asleep;       /**< 1: the memory is released and the addresses are kept (sleep.h) */
    /** 1: the kernel first granted membarrier(2) and now refuses it, so uses_membarrier became 0.
     *  Logged. */
    uint8_t lost_membarrier;
    uint64_t damage_count; /**< debug checks: damaged red zones and freed blocks */
    /** Debug checks left out: inside captures, because too many were under way, or because the driver
     *  refused. */
    uint64_t unchecked_count;
    uint64_t asleep_bytes; /**< memory that the next wake takes from the driver */
    uint64_t saved_bytes;  /**< contents in pinned host memory while asleep */
    uint64_t
        exported_bytes; /**< exported handles (share.h), live or freed; part of reserved_bytes */
    uint64_t imported_bytes; /**< imported handles mapped here; not part of reserved_bytes */
    /** FALLOW_ORDER_CONTEXT: reserved memory above which an allocation waits for the device, with the
     *  blocks allocated now; otherwise 0. */
    uint64_t bound_bytes;
    uint32_t handle_types; /**< FALLOW_HANDLE_ bits of new handles */
    uint8_t page_source;   /**< FALLOW_PAGES_HANDLES or FALLOW_PAGES_SEGMENTS */
    uint8_t allows_rdma;   /**< 1: network adapters can register new handles
                                 (gpuDirectRDMACapable); segments always can be registered */
    uint8_t reserved_1[2]; /**< 0 */
    /** All other reserved memory: free for one stream or for any, mapped nowhere, or lost to the
     *  rounding of slabs and segments. */
    uint64_t idle_bytes;
    /** Driver calls that only query: whether a stream is being captured, once per allocation that
     *  misses and in slow paths; how much memory the device has left, at most once per 100 ms of
     *  waiting. */
    uint64_t question_count;
} fallow_stats;

/** Fill with defaults and set struct_size. */
FALLOW_API void fallow_stats_init_sized(fallow_stats *stats, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_stats_init(fallow_stats *stats)
{
    fallow_stats_init_sized(stats, sizeof *stats);
}
/** Read the statistics. Cheap: sums per-thread counters and stops no thread. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_get_stats(fallow_pool *pool,
                                                                fallow_stats *out_stats);

/**
 * Restart the three peaks of fallow_stats at the present amounts, so that later statistics show the
 * peaks since this call. No other counter changes, and the pool keeps as much memory as before.
 *
 * Precision   as that of the peaks. An allocation by another thread during this call may be missed. A
 *             growth under way counts towards peak_reserved_bytes.
 * Errors      INVALID_POOL.
 * Threads     any, also during captures and while the pool is asleep.
 * Cost        as fallow_pool_get_stats; no driver call.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_reset_peaks(fallow_pool *pool);

/** Entries of fallow_oom_report.owners. */
#define FALLOW_OOM_OWNERS 8

/** One of the largest owners of memory when an allocation failed. */
typedef struct fallow_oom_owner {
    uint64_t stream_id; /**< stream of the allocations, as in fallow_block; 0 = unknown */
    uint32_t tag;       /**< of the requests */
    uint32_t count;     /**< live blocks */
    uint64_t bytes;     /**< of these blocks, as requested */
} fallow_oom_owner;

/** Why the last allocation failed. */
typedef struct fallow_oom_report {
    size_t struct_size;       /**< set by fallow_oom_report_init */
    uint64_t size_bytes;      /**< the request; 0 = no allocation has failed yet */
    uint64_t limit_bytes;     /**< of the pool */
    uint64_t reserved_bytes;  /**< memory from the driver */
    uint64_t requested_bytes; /**< live blocks, as requested */
    uint64_t free_bytes;      /**< mapped and free, for any stream */
    uint64_t
        largest_free_bytes;  /**< largest contiguous free range that the stream could have used */
    uint64_t deferred_bytes; /**< freed, waiting for fences */
    uint64_t captured_bytes; /**< free memory that captures hold for their graphs */
    uint64_t device_free_bytes; /**< free memory of the device; UINT64_MAX = unknown */
    double fragmentation;       /**< 1 - largest_free / free; 0 if nothing is free */
    uint64_t stage_count[12];   /**< how often each stage of the search was reached; the last used
                                      entry is the failure. The stages depend on the order */
    uint64_t stage_ns[12];      /**< time spent in each stage */
    uint32_t owner_count;       /**< entries of owners that are set */
    uint32_t reserved_0;        /**< 0 */
    fallow_oom_owner owners[FALLOW_OOM_OWNERS]; /**< largest first */
    uint64_t
        address_bytes; /**< addresses reserved for blocks; 0 = segments, which bring their own */
    uint64_t largest_address_bytes; /**< largest range of addresses without memory */
    uint32_t lacks_addresses; /**< 1 = memory was available but no range of addresses was large
                                   enough, and the driver reserved no more */
    uint32_t reserved_1;      /**< 0 */
} fallow_oom_report;

/** Fill with defaults and set struct_size. */
FALLOW_API void fallow_oom_report_init_sized(fallow_oom_report *report, size_t struct_size);
/** The same with this header's size of the struct. */
static inline void fallow_oom_report_init(fallow_oom_report *report)
{
    fallow_oom_report_init_sized(report, sizeof *report);
}
/** Describe the last allocation that failed for want of memory, on any thread. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_get_oom_report(fallow_pool *pool,
                                                                     fallow_oom_report *out_report);

/** Return the CUresult of the last driver call that failed unexpectedly, and the call's name in
 *  static storage. 0 and "" if none failed. */
FALLOW_API int fallow_pool_last_driver_error(fallow_pool *pool, const char **out_call);

/* ---- maintenance */

/**
 * Release idle memory to the driver until at most keep_bytes are reserved, or only live memory is left.
 *
 * Units       deadline_ns: longest wait for the device, from now. 0 = do not wait (returns OK);
 *             UINT64_MAX = no limit. out_released_bytes may be NULL.
 * Errors      TIMEOUT if the deadline passed with work left, INVALID_POOL, DEVICE_LOST.
 * Cost        a sleep or wake under way is waited for without a deadline; so is the synchronisation
 *             for memory of a lost stream if the driver has no cuCtxRecordEvent.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_trim(fallow_pool *pool, size_t keep_bytes,
                                                           uint64_t deadline_ns,
                                                           size_t *out_released_bytes);

/**
 * Change `limit_bytes`, the most memory that the pool may hold from the driver; 0 = the device's
 * total.
 *
 * If more is reserved, free memory is released at once, as by a trim without a wait; later polls and
 * allocations release memory that the device still uses. The pool takes no new memory from the driver
 * until less than the limit is reserved. Live blocks stay, and a wake restores all memory that was
 * asleep.
 *
 * Errors      INVALID_POOL, DEVICE_LOST.
 * Cost        a lock; above the new limit a trim.
 */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_set_limit(fallow_pool *pool,
                                                                size_t limit_bytes);

/** Process completed fences, red-zone results and the decay of idle memory. Never waits for the
 *  device. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_poll(fallow_pool *pool);

/** Recompute every invariant from the blocks up, for tests. Returns OK, or DRIVER and logs the first
 *  violation. Waits for allocations, sleeps and wakes under way and stops all other calls; a sleep, a
 *  wake or a change of peers that another thread begins meanwhile returns BUSY. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_pool_validate(fallow_pool *pool);

#ifdef __cplusplus
}
#endif

#endif
