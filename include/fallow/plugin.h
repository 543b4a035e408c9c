/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Entry points for frameworks that take an allocator as function addresses: PyTorch, CuPy, and through
 * these Numba and RMM. The Python package (tools/python) passes the addresses; C programs do not need
 * this header.
 *
 * The functions allocate from *default pools*, one per device and order, created by the first call that
 * needs one and kept until the process ends. Loading the library creates none and calls no driver.
 *
 * SETTINGS  The environment variable FALLOW_PLUGIN has key:value pairs separated by commas and is read
 *           once. They are fields of fallow_pool_config; README.md has a table with defaults:
 *             limit:SIZE ("20G", "512M"), economy:balanced|memory_first|speed_first,
 *             reuse:wait|completed|same_stream, page_source:automatic|handles|segments,
 *             one_handle:SIZE|none, decay_ms:MS|never, checks:poison+red_zones+quarantine,
 *             driver:sim|PATH
 *           An unknown key or value is reported on stderr, and the whole variable is ignored.
 *           fallow_plugin_configure overrides the variable if it precedes the first allocation. A
 *           privileged program (setuid, setgid, capabilities) ignores the variable.
 * ERRORS    An allocation that fails trims the device's default pools and tries again. If that fails
 *           too, the function returns NULL and writes the reason to stderr, for at most 16 failures.
 *           Size 0 returns NULL without a message. fallow_torch_alloc throws instead of returning
 *           NULL. At the limit allocations wait until the device's work is complete, unless
 *           fallow_plugin_configure sets wait_ms.
 * FREES     Each function frees blocks of every default pool, in the pool that owns the block. In
 *           context order any of these functions may free a block. In stream order, a free that names
 *           no stream delays reuse until all work submitted to the context before the free is
 *           complete.
 * PEERS     When the first pool of another device is created, the devices in use get access to each
 *           other's memory if cuDeviceCanAccessPeer permits. fallow_pool_deny_peer (share.h) revokes
 *           the access. In context order, or with page_source:segments, memory is from cuMemAlloc and
 *           the program must call cuCtxEnablePeerAccess.
 * THREADS   Any, at any time. The child of a fork has no pools and creates its own if CUDA permits.
 * EXIT      Nothing is released at exit. Frees from exit handlers and static destructors succeed.
 * LOSS      After a context is lost or reset, the next allocation creates a new pool. Memory of the old
 *           pool is gone with its context; freeing it does nothing.
 */
#ifndef FALLOW_PLUGIN_H
#define FALLOW_PLUGIN_H

#include <sys/types.h>

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- default pools */

/** Selects one of a device's default pools. */
typedef enum fallow_plugin_order {
    /** Frees name a stream (fallow_torch_alloc). */
    FALLOW_PLUGIN_STREAM = 0,
    /** Frees name no stream: a block is reused once all work submitted to the context before the free
     *  is complete (fallow_cupy_malloc, fallow_torch_segment_alloc). */
    FALLOW_PLUGIN_CONTEXT = 1
} fallow_plugin_order;

/** Set the settings of default pools, instead of FALLOW_PLUGIN. `device` is ignored; the driver's name is
 *  copied. A pool in context order ignores settings that do not apply to it. NOT_SUPPORTED: peers, a
 *  context or an order are set. BUSY: a pool exists. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_plugin_configure(const fallow_pool_config *config);

/** Get a device's default pool, for statistics and trims. Do not destroy it. If there is none, the call
 *  creates it if make != 0 and returns NOT_FOUND otherwise. Further errors: INVALID_ARGUMENT, and those
 *  of fallow_pool_create. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_plugin_pool(int device, fallow_plugin_order order,
                                                             int make, fallow_pool **out_pool);

/* ---- PyTorch: torch.cuda.memory.CUDAPluggableAllocator */

/** PyTorch's MempoolId_t, passed by value. */
typedef struct fallow_mempool_id {
    uint64_t first;  /**< first word */
    uint64_t second; /**< second word; FALLOW_MEMPOOL_TAG: the id is a tag */
} fallow_mempool_id;

/** Second word of an id that is a tag rather than a graph's memory. PyTorch uses no such id. */
#define FALLOW_MEMPOOL_TAG (1ull << 63)

/** Allocate, for torch.cuda.memory.change_current_allocator. Ordering as fallow_alloc and fallow_free.
 *  Capturing a graph needs the functions for graph memory below: without them a hit inside a capture is
 *  ordinary memory, and every other allocation fails.
 *
 *  A failure throws a C++ exception, because PyTorch never checks the result: c10::OutOfMemoryError with
 *  a message (torch.OutOfMemoryError in Python) if memory is missing, otherwise c10::Error;
 *  std::bad_alloc in a process without libc10. Returns NULL if no caller handles C++ exceptions, as in a
 *  C program. Do not call this function from C code that C++ calls; fallow_rmm_alloc throws nothing.
 *
 *  Cost: a hit of the pool and three loads. */
FALLOW_API void *fallow_torch_alloc(ssize_t size, int device, fallow_stream stream);
/** Free a block of fallow_torch_alloc. */
FALLOW_API void fallow_torch_free(void *ptr, ssize_t size, int device, fallow_stream stream);

/** As fallow_torch_alloc, but return NULL on every failure, for callers that exceptions must not cross,
 *  such as RMM's callbacks in Python. fallow_torch_free frees the block. */
FALLOW_API void *fallow_rmm_alloc(ssize_t size, int device, fallow_stream stream);

/** Allocate a segment for torch.cuda.MemPool. PyTorch's own allocator divides the segment into blocks and
 *  does not report which streams use them, so the pool is in context order. `stream` is only queried for
 *  a capture. */
FALLOW_API void *fallow_torch_segment_alloc(ssize_t size, int device, fallow_stream stream);
/** Free a segment of fallow_torch_segment_alloc. */
FALLOW_API void fallow_torch_segment_free(void *ptr, ssize_t size, int device,
                                          fallow_stream stream);

/** Trim every default pool. For set_reset_fn, torch.cuda.empty_cache(). */
FALLOW_API void fallow_torch_reset(void);
/** Set the limit of the device's default pools, present and future, to a fraction of the device's total
 *  (fallow_pool_set_limit). For set_memory_fraction_fn. */
FALLOW_API void fallow_torch_memory_fraction(double fraction, int device);
/** Return the block that contains ptr, and its usable bytes; ptr and 0 if no default pool allocated it.
 *  For set_base_alloc_fn. */
FALLOW_API void *fallow_torch_base_alloc(void *ptr, size_t *out_size);
/** Announce a use, as fallow_record_use. For set_record_stream_fn. */
FALLOW_API void fallow_torch_record_stream(void *ptr, fallow_stream stream);

/**
 * Begin graph memory: set_begin_allocate_to_pool, with set_end_allocate_to_pool_fn, set_release_pool.
 *
 * Between begin and end, allocations on streams that are being captured belong to the id and keep their
 * addresses until the last release. Successive captures of one id share the memory (PyTorch's rule:
 * their graphs are never replayed at the same time). All other allocations by the thread that called
 * begin are ordinary memory, tagged with the id in the out-of-memory report. Each begin needs a release.
 * The last release ends any open begin of the id and waits for the context, because graphs may have been
 * launched on any stream. While a stream is being captured, the memory is kept until a later end,
 * release or trim.
 *
 * An id with FALLOW_MEMPOOL_TAG as its second word only tags allocations and has no capture. Tags belong
 * to a thread and nest.
 *
 * Capture     begin announces nothing. The first allocation, or lease of an arena of the pool, on a
 *             stream that is being captured announces the capture: to the pool, and as
 *             fallow_context_capture_begin does. The announcement ends with the end of the id, its last
 *             release, or the next call that finds the capture over. Between begin and the first
 *             allocation of its thread, functions without a stream query the streams that have
 *             allocated before. If the capture is on a new stream, and other threads use CuPy
 *             meanwhile, the program must announce the capture.
 * `filter`    is PyTorch's std::function by reference, and is not called. A stream belongs to the id
 *             under which its capture was first seen: the id of the thread that called begin, otherwise
 *             the latest id. Two captures begun by one thread are distinguished only if each allocates
 *             before the next begins.
 * Unsupported PyTorch 2.0 and 2.1, which pass a stream instead of a filter.
 * Cost        while an id that is not a tag is open: a lock and a driver call per allocation, and per
 *             free inside captures. With a tag: a lock.
 */
FALLOW_API void fallow_torch_begin_allocate_to_pool(int device, fallow_mempool_id id, void *filter);
/** End what fallow_torch_begin_allocate_to_pool began. */
FALLOW_API void fallow_torch_end_allocate_to_pool(int device, fallow_mempool_id id);
/** Release the memory of one begin. */
FALLOW_API void fallow_torch_release_pool(int device, fallow_mempool_id id);

/* ---- CuPy: cupy.cuda.memory.CFunctionAllocator, Numba's memory manager */

/** Allocate in context order, since no stream is passed. `param` is ignored. Around a capture of a stream
 *  call fallow_context_capture_begin and _end (extend.h). */
FALLOW_API void *fallow_cupy_malloc(void *param, size_t size, int device);
/** Free a block of fallow_cupy_malloc. */
FALLOW_API void fallow_cupy_free(void *param, void *ptr, int device);

#ifdef __cplusplus
}
#endif

#endif
