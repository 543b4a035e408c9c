/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the wrappers of calls that allocate, free and query device memory. In the modes cache and
 * strict a context's own pool answers for the blocks; everything else, and all calls in other
 * modes, pass through.
 * Does not: track contexts or captures.
 *
 * A hit is the first lines of cuMemAlloc_v2 and cuMemFree_v2: the thread's cache and, for an
 * allocation, the driver's query of the current context. */
#include <string.h>

#include "heap/order/epoch.h"
#include "preload/audit_alloc.h"
#include "preload/hooks.h"
#include "preload/inside.h"
#include "preload/life.h"
#include "preload/live_contexts.h"
#include "preload/poison.h"
#include "preload/real.h"
#include "preload/settings.h"
#include "record/callstack.h"

const struct flw_part flw_part_memory = {.child = flw_live_contexts_child};

static inline void *block_of(CUdeviceptr pointer)
{
    return (void *)(uintptr_t)pointer;
}

/* ---- allocate */

/* False: the driver must answer. Entered. */
static bool allocate_from(struct flw_live_context *live, CUdeviceptr *pointer, size_t bytes,
                          CUresult *out)
{
    struct flw_pool *pool = atomic_load(&live->pool);
    void *block = NULL;
    if (flw_heap_is_lost(&pool->heap)) {
        return false; /* the driver's own result, which lasts */
    }
    flw_inside_enter();
    fallow_status status = flw_entry_alloc(live->handle, bytes, 0, NULL, &block);
    flw_inside_leave();
    *pointer = status == FALLOW_OK ? (CUdeviceptr)(uintptr_t)block : *pointer;
    *out = status == FALLOW_OK ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    return status == FALLOW_OK || status == FALLOW_OUT_OF_MEMORY;
}

static CUresult alloc_looked(CUdeviceptr *pointer, size_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    bool is_done = false;
    void *block;
    if (pointer != NULL && atomic_load_explicit(&flw_live_contexts_hit, memory_order_acquire) &&
        flw_context_alloc_recorded(flw_live_context_id(flw_real.driver.cuCtxGetId), bytes,
                                   &block)) {
        *pointer = (CUdeviceptr)(uintptr_t)block;
        return CUDA_SUCCESS;
    }
    /* While a stream is captured, strict leaves refusals and other errors to the driver. */
    bool is_native = flw_settings.mode == FLW_MODE_STRICT && flw_captures_are_open();
    if (pointer != NULL && bytes != 0 && flw_live_contexts_serve() && !is_native) {
        struct flw_live_context *live = flw_live_context_enter(NULL, true);
        if (live != NULL) {
            is_done = allocate_from(live, pointer, bytes, &result);
            /* Memory that other contexts of the device have freed is the driver's again, as
             * without us. */
            if (is_done && result == CUDA_ERROR_OUT_OF_MEMORY && flw_live_contexts_trim() != 0) {
                is_done = allocate_from(live, pointer, bytes, &result);
            }
            flw_live_context_leave(live);
        }
    }
    if (!is_done) {
        result = flw_life_heed(flw_real.cuMemAlloc_v2(pointer, bytes));
        if (result == CUDA_SUCCESS && flw_live_contexts_serve()) {
            flw_live_context_count(&flw_live_context_counts.bypasses[FLW_BYPASS_cuMemAlloc]);
        }
    }
    bool is_filled_here =
        flw_settings.mode == FLW_MODE_CACHE || flw_settings.mode == FLW_MODE_STRICT;
    if (result == CUDA_SUCCESS && pointer != NULL && is_filled_here && flw_poison_is_on()) {
        flw_poison_fill(*pointer, bytes);
    }
    return flw_audit_heed(result, pointer, bytes);
}

/* A recording with stacks walks them here, outside the record and this library: Python code that
 * runs meanwhile may allocate from the pool, or end the context. */
static FLW_NOINLINE CUresult alloc_missed(CUdeviceptr *pointer, size_t bytes)
{
    bool has_looked =
        FLW_UNLIKELY(atomic_load_explicit(&flw_callstack_recordings, memory_order_relaxed) != 0) &&
        flw_callstack_look(flw_settings.stack_depth, flw_settings.enters_python);
    CUresult result = alloc_looked(pointer, bytes);
    if (has_looked) {
        flw_callstack_end_look();
    }
    return result;
}

CUresult flw_hook_cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    void *block;
    if (FLW_LIKELY(atomic_load_explicit(&flw_live_contexts_hit, memory_order_acquire)) &&
        FLW_LIKELY(pointer != NULL)) {
        unsigned long long id = flw_live_context_id(flw_real.driver.cuCtxGetId);
        if (FLW_LIKELY(flw_context_alloc(id, bytes, &block, FLW_HIT_PLAIN))) {
            *pointer = (CUdeviceptr)(uintptr_t)block;
            return CUDA_SUCCESS;
        }
    }
    return alloc_missed(pointer, bytes);
}

/* ---- free */

/* Synchronise the record's context, current or not. */
static CUresult synchronize(struct flw_live_context *live)
{
    const struct flw_driver *driver = &flw_real.driver;
    struct flw_pool *pool = atomic_load(&live->pool);
    struct flw_driver_section section;
    uint64_t seq = flw_epoch_expect_sync(pool);
    CUresult result = flw_section_open(&section, driver, live->context, FLW_SECTION_CONTEXT, NULL);
    if (result == CUDA_SUCCESS) {
        result = flw_life_heed(driver->cuCtxSynchronize());
        (void)flw_section_close(&section);
    }
    flw_epoch_end_sync(&pool->heap, result == CUDA_SUCCESS ? seq : 0);
    return result;
}

/* A block that others map is released to the driver at once, which waits; not while a capture is
 * open. */
static CUresult may_go_now(const struct flw_pool *pool, CUdeviceptr pointer)
{
    struct flw_epoch_block block;
    bool goes = flw_epoch_find(pool, pointer, &block) && block.is_exported;
    return goes && flw_captures_are_open() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* Entered, inside. */
static CUresult take_back(struct flw_live_context *live, CUdeviceptr pointer, bool waits)
{
    struct flw_pool *pool = atomic_load(&live->pool);
    CUresult result = may_go_now(pool, pointer);
    if (result == CUDA_SUCCESS && waits) {
        result = synchronize(live);
    }
    if (result != CUDA_SUCCESS) {
        return result; /* as the driver: nothing was freed */
    }
    fallow_status status = flw_entry_free(live->handle, block_of(pointer), NULL);
    if (status == FALLOW_INVALID_POINTER) {
        flw_live_context_count(&flw_live_context_counts.double_frees);
    }
    return status == FALLOW_OK ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static FLW_NOINLINE CUresult free_missed(CUdeviceptr pointer)
{
    if (atomic_load_explicit(&flw_live_contexts_hit, memory_order_acquire) &&
        flw_context_free_recorded(block_of(pointer))) {
        return CUDA_SUCCESS;
    }
    struct flw_live_context *live =
        pointer != 0 && flw_live_contexts_serve() ? flw_live_context_enter_of(pointer) : NULL;
    if (live == NULL) {
        if (pointer != 0 && flw_live_contexts_serve()) {
            flw_live_context_count(&flw_live_context_counts.foreign_frees);
        }
        return flw_life_heed(flw_real.cuMemFree_v2(pointer));
    }
    CUresult result = CUDA_SUCCESS; /* at exit no free is needed */
    struct flw_pool *pool = atomic_load(&live->pool);
    if (flw_life_state() == FLW_LIFE_EXITING) {
    } else if (flw_heap_is_lost(&pool->heap)) {
        result = flw_life_heed(flw_real.cuMemFree_v2(pointer)); /* the driver's persistent error */
        result = flw_life_state() == FLW_LIFE_EXITING ? CUDA_SUCCESS : result;
    } else {
        flw_inside_enter();
        result = take_back(live, pointer, flw_settings.mode == FLW_MODE_STRICT);
        flw_inside_leave();
    }
    flw_live_context_leave(live);
    return result;
}

CUresult flw_hook_cuMemFree_v2(CUdeviceptr pointer)
{
    if (FLW_LIKELY(atomic_load_explicit(&flw_live_contexts_hit, memory_order_acquire)) &&
        FLW_LIKELY(flw_context_free(block_of(pointer), FLW_HIT_PLAIN))) {
        return CUDA_SUCCESS;
    }
    flw_audit_forget(pointer);
    return free_missed(pointer);
}

/* Free in stream order. A pool's free follows everything that the context had, including the
 * stream's work; no mode waits. The graph of a capture accepts only its own allocations. Entered,
 * inside. */
static CUresult take_back_in_order(struct flw_live_context *live, CUdeviceptr pointer,
                                   CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = flw_life_heed(flw_real.driver.cuStreamIsCapturing(stream, &status));
    if (flw_life_state() == FLW_LIFE_EXITING) {
        return CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE) {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    return result == CUDA_SUCCESS ? take_back(live, pointer, false) : result;
}

/* False: it is the driver's. Our blocks, too, may be freed in stream order, like cudaMalloc's
 * (README.md). */
static bool free_in_order(CUdeviceptr pointer, CUstream stream, CUresult *out)
{
    struct flw_live_context *live =
        pointer != 0 && flw_live_contexts_serve() ? flw_live_context_enter_of(pointer) : NULL;
    if (live == NULL) {
        return false;
    }
    const struct flw_pool *pool = atomic_load(&live->pool);
    bool is_lost = flw_heap_is_lost(&pool->heap); /* the driver has a persistent error to
                                                      report */
    if (!is_lost) {
        flw_inside_enter();
        *out = take_back_in_order(live, pointer, stream);
        flw_inside_leave();
    }
    flw_live_context_leave(live);
    return !is_lost;
}

CUresult flw_hook_cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    CUresult result;
    flw_audit_forget(pointer);
    return free_in_order(pointer, stream, &result) ? result
                                                   : flw_real.cuMemFreeAsync(pointer, stream);
}

CUresult flw_hook_cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    CUresult result;
    CUstream named = stream == NULL ? CU_STREAM_PER_THREAD : stream;
    flw_audit_forget(pointer);
    return free_in_order(pointer, named, &result) ? result
                                                  : flw_real.cuMemFreeAsync_ptsz(pointer, stream);
}

/* ---- queries */

/* A program that reads the device's total for its own sizes sees the limit instead. */
static size_t within_limit(size_t bytes)
{
    return flw_settings.limit_bytes != 0 ? flw_min(bytes, flw_settings.limit_bytes) : bytes;
}

CUresult flw_hook_cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = flw_real.cuDeviceTotalMem_v2(bytes, device);
    if (result == CUDA_SUCCESS && bytes != NULL && flw_live_contexts_serve()) {
        *bytes = within_limit(*bytes);
    }
    return result;
}

/* Count idle memory of pools as free. Both numbers stay within the limit. */
CUresult flw_hook_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    CUresult result = flw_real.cuMemGetInfo_v2(free_bytes, total_bytes);
    if (result != CUDA_SUCCESS || free_bytes == NULL || total_bytes == NULL ||
        !flw_live_contexts_serve()) {
        return result;
    }
    struct flw_live_context *live = flw_live_context_enter(NULL, false);
    if (live == NULL) {
        return result;
    }
    struct flw_pool *pool = atomic_load(&live->pool);
    uint64_t live_bytes = pool != NULL ? flw_pool_live(pool, NULL) : 0;
    uint64_t bytes =
        flw_min(*free_bytes + flw_live_contexts_idle_bytes(live->device), *total_bytes);
    flw_live_context_leave(live);
    *total_bytes = within_limit(*total_bytes);
    *free_bytes = flw_min(bytes, *total_bytes - flw_min(*total_bytes, live_bytes));
    return result;
}

enum answer {
    FOREIGN, /* call the driver */
    LIVE,
    FREED /* ours, but of no live block */
};

static enum answer look_up(CUdeviceptr pointer, struct flw_epoch_block *out)
{
    struct flw_live_context *live =
        pointer != 0 && flw_live_contexts_serve() ? flw_live_context_enter_of(pointer) : NULL;
    if (live == NULL) {
        return FOREIGN;
    }
    bool is_live = flw_epoch_find(atomic_load(&live->pool), pointer, out);
    flw_live_context_leave(live);
    return is_live ? LIVE : FREED;
}

CUresult flw_hook_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    struct flw_epoch_block block;
    enum answer answer = look_up(pointer, &block);
    if (answer == FOREIGN) {
        return flw_real.cuMemGetAddressRange_v2(base, bytes, pointer);
    }
    if (answer == FREED) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (base != NULL) {
        *base = block.base;
    }
    if (bytes != NULL) {
        *bytes = block.size_bytes;
    }
    return CUDA_SUCCESS;
}

/* An address that no driver allocates: the results are those of any unknown address. */
#define UNALLOCATED_ADDRESS ((CUdeviceptr)4096)

/* The attributes in which a block differs from the driver allocation. */
static bool overwrite(void *data, CUpointer_attribute attribute,
                      const struct flw_epoch_block *block)
{
    CUdeviceptr base = block->base;
    size_t bytes = block->size_bytes;
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
        memcpy(data, &base, sizeof base);
    } else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        memcpy(data, &bytes, sizeof bytes);
    } else {
        return false;
    }
    return true;
}

CUresult flw_hook_cuPointerGetAttribute(void *data, CUpointer_attribute attribute,
                                        CUdeviceptr pointer)
{
    struct flw_epoch_block block;
    enum answer answer = look_up(pointer, &block);
    CUdeviceptr asked = answer == FREED ? UNALLOCATED_ADDRESS : pointer;
    CUresult result = flw_real.cuPointerGetAttribute(data, attribute, asked);
    if (answer == LIVE && result == CUDA_SUCCESS) {
        (void)overwrite(data, attribute, &block);
    }
    return result;
}

CUresult flw_hook_cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes,
                                         void **data, CUdeviceptr pointer)
{
    struct flw_epoch_block block;
    enum answer answer = look_up(pointer, &block);
    CUdeviceptr asked = answer == FREED ? UNALLOCATED_ADDRESS : pointer;
    CUresult result = flw_real.cuPointerGetAttributes(count, attributes, data, asked);
    for (unsigned i = 0; answer == LIVE && result == CUDA_SUCCESS && i < count; i++) {
        (void)overwrite(data[i], attributes[i], &block);
    }
    return result;
}

CUresult flw_hook_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                        CUdeviceptr pointer)
{
    struct flw_epoch_block block;
    CUdeviceptr asked = look_up(pointer, &block) == FREED ? UNALLOCATED_ADDRESS : pointer;
    return flw_real.cuPointerSetAttribute(value, attribute, asked);
}

/* ---- sharing with other processes */

/* A block to be mapped elsewhere must be alone in the driver allocation, now and later. */
static CUresult export_block(CUdeviceptr pointer)
{
    struct flw_live_context *live =
        pointer != 0 && flw_live_contexts_serve() ? flw_live_context_enter_of(pointer) : NULL;
    struct flw_epoch_block block;
    CUresult result = CUDA_SUCCESS;
    if (live != NULL) {
        struct flw_pool *pool = atomic_load(&live->pool);
        if (!flw_epoch_find(pool, pointer, &block)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (!block.is_dedicated || !flw_epoch_export(pool, block.base)) {
            result = CUDA_ERROR_NOT_SUPPORTED; /* FALLOW=ipc:1 gives every block its own */
        }
        flw_live_context_leave(live);
    }
    return result;
}

CUresult flw_hook_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    flw_audit_expose(pointer);
    CUresult result = export_block(pointer);
    return result != CUDA_SUCCESS ? result : flw_real.cuIpcGetMemHandle(handle, pointer);
}

CUresult flw_hook_cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes,
                                                CUmemRangeHandleType type, unsigned long long flags)
{
    flw_audit_expose(pointer);
    CUresult result = export_block(pointer);
    return result != CUDA_SUCCESS
               ? result
               : flw_real.cuMemGetHandleForAddressRange(handle, pointer, bytes, type, flags);
}
