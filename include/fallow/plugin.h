/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * Entry points for frameworks that take an allocator as addresses of functions: PyTorch, CuPy, and
 * through them Numba and RMM. tools/python/fallow passes the addresses; C programs need none of this.
 *
 * They allocate from *default pools*, one for each device and kind, made when a call first needs
 * one and kept until the process ends. Loading the library makes nothing and calls no driver.
 *
 * SETTINGS  The environment variable FALLOW_PLUGIN, key:value pairs with commas between, read once:
 *             limit:SIZE        most that a pool may hold, "20G", "512M"; default: the device's total
 *             economy:balanced|memory_first|speed_first
 *             reuse:wait|completed|same_stream
 *             page_source:automatic|handles|segments
 *             one_handle:SIZE|none  a block from that size on is all of one handle; default: from 1 GiB
 *                               on; fallow_pool_config.one_handle_bytes describes automatic
 *             decay:MS|never    fallow_pool_config.decay_ms: 0 is its default, never is UINT32_MAX
 *             checks:poison+red_zones+quarantine
 *             driver:sim|PATH   in the place of libcuda.so.1
 *           An unknown key or value is one line on stderr, and none of the variable is used.
 *           fallow_plugin_configure, before the first call, comes first. A privileged program (setuid,
 *           setgid, capabilities) does not read the variable.
 * ERRORS    Functions that return memory return NULL for every failure, after the pool's whole ladder,
 *           a trim of the device's default pools and a second attempt, and write one line to stderr
 *           with the reason; after 16 lines the rest are left out. Size 0 returns NULL without a line.
 *           fallow_torch_alloc throws instead, see there.
 *           At the limit they wait until the device's work is complete, unless
 *           fallow_plugin_configure sets wait_ms.
 * FREES     A block that another pair allocated is freed, too, in the pool that owns the block. In context
 *           order every pair works. In stream order, if the function names no stream of use, the block is
 *           reused when all work submitted to the context before its free is complete.
 * PEERS     When the first pool of another device is created, the devices in use get access to each other's
 *           memory if cuDeviceCanAccessPeer allows. fallow_pool_deny_peer (share.h) revokes the access. In
 *           context order, or with page_source:segments, memory is of cuMemAlloc, and
 *           the program must call cuCtxEnablePeerAccess.
 * THREADS   Any, at any time. The child of a fork has no pools and makes its own, if CUDA lets it.
 * EXIT      Nothing is released at exit. Frees from exit handlers and static destructors succeed.
 * LOSS      After the context was lost or reset the next allocation makes a new pool; what the old one
 *           allocated is gone with its context, and its frees do nothing.
 */
#ifndef FALLOW_PLUGIN_H
#define FALLOW_PLUGIN_H

#include <sys/types.h>

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- default pools */

/** Which default pool of a device: there is one for each order, made when first needed. */
typedef enum fallow_plugin_order {
    FALLOW_PLUGIN_STREAM = 0, /**< frees name a stream (fallow_torch_alloc) */
    FALLOW_PLUGIN_CONTEXT =
        1 /**< frees name none: a block is reused when everything that the context
                                   had been given at its free is complete (fallow_cupy_malloc,
                                   fallow_torch_segment_alloc) */
} fallow_plugin_order;

/** Settings of pools made from now on, in the place of FALLOW_PLUGIN. `device` is not looked at; the
 *  driver's name is copied; peers, a context and an order are not taken (NOT_SUPPORTED); what a pool in
 *  context order has no use for is left out there. BUSY: a pool has been made. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_plugin_configure(const fallow_pool_config *config);

/** The default pool of a device, for questions and trims; make != 0: made if there is none, else
 *  NOT_FOUND then. Do not destroy it. Errors also INVALID_ARGUMENT, and those of fallow_pool_create. */
FALLOW_API FALLOW_NODISCARD fallow_status fallow_plugin_pool(int device, fallow_plugin_order order,
                                                             int make, fallow_pool **out_pool);

/* ---- PyTorch: torch.cuda.memory.CUDAPluggableAllocator */

/** A MempoolId_t, as it is passed: two words by value. */
typedef struct fallow_mempool_id {
    uint64_t first;  /**< PyTorch's first word */
    uint64_t second; /**< and its second; FALLOW_MEMPOOL_TAG: the id is a tag */
} fallow_mempool_id;

/** The second word of an id that is a tag and no memory of graphs. PyTorch gives no such id. */
#define FALLOW_MEMPOOL_TAG (1ull << 63)

/** The pair for change_current_allocator. Ordering as fallow_alloc and fallow_free. A graph is captured
 *  only with the functions for its memory below: without them a hit inside a capture is ordinary memory,
 *  and every other allocation fails.
 *
 *  A failure throws a C++ exception, since PyTorch never checks the result: c10::OutOfMemoryError with a message
 *  (torch.OutOfMemoryError in Python) if memory is missing, otherwise c10::Error; std::bad_alloc in a process
 *  without libc10. Returns NULL if no caller handles C++ exceptions, as in a C program. Do not call this from C
 *  code that C++ calls: fallow_rmm_alloc throws nothing.
 *
 *  Cost: a hit of the pool and three loads. */
FALLOW_API void *fallow_torch_alloc(ssize_t size, int device, fallow_stream stream);
/** The other half of fallow_torch_alloc. */
FALLOW_API void fallow_torch_free(void *ptr, ssize_t size, int device, fallow_stream stream);

/** As fallow_torch_alloc, but every failure is NULL: for callers that exceptions must not cross, such as RMM's
 *  callbacks in Python. fallow_torch_free frees the block. */
FALLOW_API void *fallow_rmm_alloc(ssize_t size, int device, fallow_stream stream);

/** The pair for torch.cuda.MemPool, where PyTorch's own allocator carves what it gets and does not say
 *  which streams used it: context order. `stream` is only asked whether it is being captured. */
FALLOW_API void *fallow_torch_segment_alloc(ssize_t size, int device, fallow_stream stream);
/** The other half of fallow_torch_segment_alloc. */
FALLOW_API void fallow_torch_segment_free(void *ptr, ssize_t size, int device,
                                          fallow_stream stream);

/** set_reset_fn, torch.cuda.empty_cache(): trims every default pool. */
FALLOW_API void fallow_torch_reset(void);
/** set_memory_fraction_fn: the limit of each default pool of the device, as a part of the device's total, of those that
 *  are there (fallow_pool_set_limit) and those that are made later. */
FALLOW_API void fallow_torch_memory_fraction(double fraction, int device);
/** set_base_alloc_fn: the block that contains ptr, and its usable bytes; ptr and 0 where no default pool
 *  has allocated it. */
FALLOW_API void *fallow_torch_base_alloc(void *ptr, size_t *out_size);
/** set_record_stream_fn: fallow_record_use. */
FALLOW_API void fallow_torch_record_stream(void *ptr, fallow_stream stream);

/**
 * Memory of graphs: set_begin_allocate_to_pool, set_end_allocate_to_pool_fn, set_release_pool.
 *
 * Between begin and end, what is allocated on streams that are being captured belongs to the id and
 * keeps its address until the last release; captures of one id, one after the other, share it
 * (PyTorch's rule: their graphs are never replayed at once). Everything else between the two that
 * the thread of begin asks for is ordinary memory, tagged with the id in the out-of-memory report.
 * Each begin has a release. The last release ends any open begin of the id, and waits for the context, since
 * graphs are launched on streams that are not named; while something is being captured the memory is kept until
 * a later end, release or trim.
 *
 * An id with FALLOW_MEMPOOL_TAG as its second word only tags and has no capture. Each thread has its own tags,
 * and tags nest.
 *
 * Capture     begin announces nothing. The first allocation, or lease of an arena of the pool, on a stream that
 *             is being captured announces the capture: to the pool, and as fallow_context_capture_begin. The
 *             announcement ends with the end of the id, the last release of the id, or the next call that finds the
 *             capture over. Between begin and the first
 *             allocation of its thread the pairs that name no stream query the streams that have allocated
 *             before. If the capture is on a new stream, and other threads use CuPy meanwhile, the program
 *             must announce the capture.
 * `filter`    is PyTorch's std::function by reference, and is not called. A stream belongs to the id under which
 *             its capture was first seen: the id of the thread that called begin, otherwise the latest id. Two
 *             captures that one thread begins are told apart only if each allocates before the next begins.
 * Not served  releases of PyTorch that name a stream in the place of a filter, 2.0 and 2.1.
 * Cost        while an id is open that is not a tag: a lock and a driver call for each allocation, inside
 *             captures also for each free. With a tag: a lock.
 */
FALLOW_API void fallow_torch_begin_allocate_to_pool(int device, fallow_mempool_id id, void *filter);
/** The end of what fallow_torch_begin_allocate_to_pool began. */
FALLOW_API void fallow_torch_end_allocate_to_pool(int device, fallow_mempool_id id);
/** The release of one begin, see there. */
FALLOW_API void fallow_torch_release_pool(int device, fallow_mempool_id id);

/* ---- CuPy: cupy.cuda.memory.CFunctionAllocator, Numba's memory manager */

/** No stream is named: context order. `param` is not looked at. Around a capture of a stream call
 *  fallow_context_capture_begin and _end (extend.h). */
FALLOW_API void *fallow_cupy_malloc(void *param, size_t size, int device);
/** The other half of fallow_cupy_malloc. */
FALLOW_API void fallow_cupy_free(void *param, void *ptr, int device);

#ifdef __cplusplus
}
#endif

#endif
