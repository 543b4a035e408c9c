/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: mode trace: a layer between the wrappers, which pass through in this mode, and the
 * driver's entry points that allocate and free memory. Each calls the one below and reports to the
 * tracer. With poison, parts of the layer are also active in the modes with pools, for memory that
 * is not from pools.
 * Does not: change a result, or see a pool's own driver calls. */
#include "preload/trace_layer.h"

#include "preload/life.h"
#include "preload/poison.h"
#include "preload/pool_trace.h"
#include "preload/real.h"
#include "preload/runplace.h"
#include "preload/settings.h"
#include "preload/tracer.h"

/* The layer's next functions. Threads that fill this at once store the same addresses. */
static struct below {
    CUresult (*alloc)(CUdeviceptr *pointer, size_t bytes);
    CUresult (*alloc_pitch)(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes, size_t height,
                            unsigned element_bytes);
    CUresult (*alloc_managed)(CUdeviceptr *pointer, size_t bytes, unsigned flags);
    CUresult (*alloc_async)(CUdeviceptr *pointer, size_t bytes, CUstream stream);
    CUresult (*alloc_async_ptsz)(CUdeviceptr *pointer, size_t bytes, CUstream stream);
    CUresult (*alloc_from_pool)(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                CUstream stream);
    CUresult (*alloc_from_pool_ptsz)(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                     CUstream stream);
    CUresult (*alloc_host)(void **pointer, size_t bytes);
    CUresult (*host_alloc)(void **pointer, size_t bytes, unsigned flags);
    CUresult (*free)(CUdeviceptr pointer);
    CUresult (*free_async)(CUdeviceptr pointer, CUstream stream);
    CUresult (*free_async_ptsz)(CUdeviceptr pointer, CUstream stream);
    CUresult (*free_host)(void *pointer);
} below;

/* A thread may enter the layer by a place (flw_real) that another has just filled, before it sees
 * the next functions. It reads the published ones, or looks them up itself. */
static const struct below *learnt(void)
{
    (void)flw_real_ready();
    return &below;
}

/* ---- devices and streams */

static _Atomic int device_count; /* 0: not queried yet */

static bool has_one_device(void)
{
    int count = atomic_load_explicit(&device_count, memory_order_relaxed);
    if (count == 0) {
        if (flw_real.driver.cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 1) {
            count = 1;
        }
        flw_life_note_use();
        atomic_store_explicit(&device_count, count, memory_order_relaxed);
    }
    return count == 1;
}

static unsigned place_of_device(int device)
{
    return device >= 0 && device < FLW_TRACER_DEVICES ? (unsigned)device : 0;
}

/* Return the current context's device. */
static unsigned place_here(void)
{
    CUdevice device = 0;
    if (!has_one_device() && flw_real.driver.cuCtxGetDevice(&device) != CUDA_SUCCESS) {
        device = 0;
    }
    return place_of_device(device);
}

/* Return the device of a block that is still live. */
static unsigned place_of_block(CUdeviceptr pointer)
{
    int device = 0;
    if (!has_one_device() &&
        (flw_real.driver.cuPointerGetAttribute == NULL ||
         flw_real.driver.cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                               pointer) != CUDA_SUCCESS)) {
        return place_here();
    }
    return place_of_device(device);
}

/* Return a number that identifies the stream. Each thread has its own per-thread default stream. */
static uint64_t label_of(CUstream stream, bool is_own_default)
{
    if (stream == CU_STREAM_PER_THREAD || (stream == NULL && is_own_default)) {
        return flw_tracer_thread_stream();
    }
    return stream == CU_STREAM_LEGACY ? 0 : (uint64_t)(uintptr_t)stream;
}

/* ---- reports */

static CUresult tell_allocated(CUresult result, enum flw_tracer_kind kind,
                               const CUdeviceptr *pointer, size_t bytes, uint64_t stream)
{
    if (result == CUDA_SUCCESS && pointer != NULL) {
        flw_tracer_allocated(place_here(), kind, *pointer, bytes, stream);
    } else if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        flw_tracer_failed(place_here(), bytes, stream);
    }
    return result;
}

static CUresult tell_allocated_host(CUresult result, void *const *pointer, size_t bytes)
{
    if (result == CUDA_SUCCESS && pointer != NULL) {
        flw_tracer_allocated(FLW_TRACER_HOST_PLACE, FLW_TRACER_HOST, (uint64_t)(uintptr_t)*pointer,
                             bytes, 0);
    }
    return result;
}

static CUresult tell_answer(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        flw_tracer_refused();
    }
    return flw_life_heed(result);
}

/* ---- the layer */

static CUresult trace_alloc(CUdeviceptr *pointer, size_t bytes)
{
    CUresult result = learnt()->alloc(pointer, bytes);
    if (result == CUDA_SUCCESS && flw_poison_is_on()) {
        flw_poison_fill(*pointer, bytes);
    }
    return tell_allocated(result, FLW_TRACER_PLAIN, pointer, bytes, 0);
}

/* With the pitch, which determines the block's size. */
static CUresult trace_alloc_pitch(CUdeviceptr *pointer, size_t *pitch, size_t width_bytes,
                                  size_t height, unsigned element_bytes)
{
    CUresult result = learnt()->alloc_pitch(pointer, pitch, width_bytes, height, element_bytes);
    size_t bytes = result == CUDA_SUCCESS ? *pitch * height : width_bytes * height;
    if (result == CUDA_SUCCESS && flw_poison_is_on()) {
        flw_poison_fill(*pointer, bytes);
    }
    return tell_allocated(result, FLW_TRACER_PITCH, pointer, bytes, 0);
}

static CUresult trace_alloc_managed(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    CUresult result = learnt()->alloc_managed(pointer, bytes, flags);
    if (result == CUDA_SUCCESS && flw_poison_is_on()) {
        flw_poison_fill(*pointer, bytes);
    }
    return tell_allocated(result, FLW_TRACER_MANAGED, pointer, bytes, 0);
}

static CUresult tell_allocated_async(CUresult result, const CUdeviceptr *pointer, size_t bytes,
                                     CUstream stream, bool is_own_default)
{
    if (result == CUDA_SUCCESS && flw_poison_is_on()) {
        bool is_own = is_own_default && stream == NULL;
        flw_poison_fill_on(*pointer, bytes, is_own ? CU_STREAM_PER_THREAD : stream);
    }
    return tell_allocated(result, FLW_TRACER_ASYNC, pointer, bytes,
                          label_of(stream, is_own_default));
}

static CUresult trace_alloc_async(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return tell_allocated_async(learnt()->alloc_async(pointer, bytes, stream), pointer, bytes,
                                stream, false);
}

static CUresult trace_alloc_async_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return tell_allocated_async(learnt()->alloc_async_ptsz(pointer, bytes, stream), pointer, bytes,
                                stream, true);
}

static CUresult trace_alloc_from_pool(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                      CUstream stream)
{
    return tell_allocated_async(learnt()->alloc_from_pool(pointer, bytes, pool, stream), pointer,
                                bytes, stream, false);
}

static CUresult trace_alloc_from_pool_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                           CUstream stream)
{
    return tell_allocated_async(learnt()->alloc_from_pool_ptsz(pointer, bytes, pool, stream),
                                pointer, bytes, stream, true);
}

static CUresult trace_alloc_host(void **pointer, size_t bytes)
{
    return tell_allocated_host(learnt()->alloc_host(pointer, bytes), pointer, bytes);
}

static CUresult trace_host_alloc(void **pointer, size_t bytes, unsigned flags)
{
    return tell_allocated_host(learnt()->host_alloc(pointer, bytes, flags), pointer, bytes);
}

static CUresult trace_free(CUdeviceptr pointer)
{
    if (pointer == 0) {
        return learnt()->free(pointer);
    }
    flw_tracer_freed(place_of_block(pointer), pointer, 0);
    return tell_answer(learnt()->free(pointer));
}

static CUresult trace_free_async(CUdeviceptr pointer, CUstream stream)
{
    flw_tracer_freed(place_of_block(pointer), pointer, label_of(stream, false));
    return tell_answer(learnt()->free_async(pointer, stream));
}

static CUresult trace_free_async_ptsz(CUdeviceptr pointer, CUstream stream)
{
    flw_tracer_freed(place_of_block(pointer), pointer, label_of(stream, true));
    return tell_answer(learnt()->free_async_ptsz(pointer, stream));
}

static CUresult trace_free_host(void *pointer)
{
    if (pointer == NULL) {
        return learnt()->free_host(pointer);
    }
    flw_tracer_freed(FLW_TRACER_HOST_PLACE, (uint64_t)(uintptr_t)pointer, 0);
    return tell_answer(learnt()->free_host(pointer));
}

/* True if a hook's layer is active; with pools only to fill memory that bypasses them. */
static bool is_laid(uintptr_t layer)
{
    bool allocates = flw_settings.mode == FLW_MODE_CACHE || flw_settings.mode == FLW_MODE_STRICT;
    return flw_settings.mode == FLW_MODE_TRACE ||
           (allocates && flw_poison_is_on() &&
            (layer == (uintptr_t)trace_alloc_pitch || layer == (uintptr_t)trace_alloc_managed ||
             layer == (uintptr_t)trace_alloc_async || layer == (uintptr_t)trace_alloc_async_ptsz ||
             layer == (uintptr_t)trace_alloc_from_pool ||
             layer == (uintptr_t)trace_alloc_from_pool_ptsz));
}

uintptr_t flw_trace_layer(enum flw_hook hook, uintptr_t next)
{
    static const struct {
        enum flw_hook hook;
        void *below; /* where the next function's address is stored */
        uintptr_t layer;
    } floors[] = {
#define FLOOR(symbol, name) {FLW_HOOK_##symbol, &below.name, (uintptr_t)trace_##name}
        FLOOR(cuMemAlloc_v2, alloc),
        FLOOR(cuMemAllocPitch_v2, alloc_pitch),
        FLOOR(cuMemAllocManaged, alloc_managed),
        FLOOR(cuMemAllocAsync, alloc_async),
        FLOOR(cuMemAllocAsync_ptsz, alloc_async_ptsz),
        FLOOR(cuMemAllocFromPoolAsync, alloc_from_pool),
        FLOOR(cuMemAllocFromPoolAsync_ptsz, alloc_from_pool_ptsz),
        FLOOR(cuMemAllocHost_v2, alloc_host),
        FLOOR(cuMemHostAlloc, host_alloc),
        FLOOR(cuMemFree_v2, free),
        FLOOR(cuMemFreeAsync, free_async),
        FLOOR(cuMemFreeAsync_ptsz, free_async_ptsz),
        FLOOR(cuMemFreeHost, free_host),
#undef FLOOR
    };
    for (size_t i = 0; i < sizeof floors / sizeof *floors; i++) {
        if (floors[i].hook == hook && is_laid(floors[i].layer)) {
            __atomic_store_n((uintptr_t *)floors[i].below, next, __ATOMIC_RELAXED);
            return floors[i].layer;
        }
    }
    return next;
}

/* ---- pinned host memory: hooked by this layer alone */

#define WRAP(symbol, base, since, parameters, arguments) \
    CUresult flw_hook_##symbol parameters                \
    {                                                    \
        return flw_real.symbol arguments;                \
    }
FLW_HOOKS_HOST(WRAP)
#undef WRAP

/* ---- begin and end */

static void start(void)
{
    const char *path = flw_settings.trace_file;
    if (flw_settings.mode == FLW_MODE_TRACE) {
        flw_tracer_begin(
            &(struct flw_tracer_settings){.path = path[0] != '\0' ? path : NULL,
                                          .page = flw_runplace_page(),
                                          .stack_depth = flw_settings.stack_depth,
                                          .enters_python = flw_settings.enters_python});
    } else if (path[0] != '\0' &&
               (flw_settings.mode == FLW_MODE_CACHE || flw_settings.mode == FLW_MODE_STRICT)) {
        flw_pool_trace_begin();
    }
}

/* A child may record its own events; after a program that had used CUDA a child can do nothing. */
static void renew(void)
{
    flw_tracer_forget();
    flw_pool_trace_forget();
    atomic_store_explicit(&device_count, 0,
                          memory_order_relaxed); /* the child must note the first use */
    start();
}

static void end(void)
{
    flw_tracer_finish();
    flw_pool_trace_finish();
}

const struct flw_part flw_part_trace = {.start = start, .child = renew, .end = end};
