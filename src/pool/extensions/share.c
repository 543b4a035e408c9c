/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: blocks shared between processes: export, import, the end of both.
 *
 * An exported handle serves only the block that it was created for: importers may keep it for any
 * time, and the pool is not notified. When that block is freed and complete, the run moves to the
 * domain `heap.unmap_only`, which serves nothing, and is unmapped; the driver keeps the memory for
 * the importers. */
#include "pool/extensions/share.h"

#include <stdlib.h>

#include "base/backoff.h"
#include "base/sized.h"
#include "fallow/share.h"
#include "pool/state/extension.h"
#include "pool/state/refusal_log.h"
#include "pool/state/settings.h"
#include "pool/state/table.h"
#include "pool/streams/cache.h"
#include "pool/streams/quiesce.h"
#include "pool/streams/uses.h"

FLW_DEFINE_INIT_SIZED(fallow_share)

struct flw_import {
    struct flw_import *next;
    uint64_t pointer;     /* the caller's address */
    uint64_t base, bytes; /* base 0: no addresses */
    uint64_t handle;      /* 0: none */
    bool is_mapped;
};

static bool is_one_type(uint32_t type)
{
    return type == FALLOW_HANDLE_FD || type == FALLOW_HANDLE_FABRIC;
}

static CUmemAllocationHandleType driver_type(uint32_t type)
{
    return type == FALLOW_HANDLE_FD ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                    : CU_MEM_HANDLE_TYPE_FABRIC;
}

/* ---- export */

/* Return the handle that the live block at an offset fills; NULL: it shares one. Heap lock held. */
static struct flw_handle *own_handle(const struct flw_heap *heap, uint64_t offset, uint32_t type)
{
    const struct flw_span *run = flw_page_map_span_at(&heap->map, offset);
    struct flw_handle *handle = flw_heap_handle_at(heap, offset);
    bool is_own = run->kind == FLW_SPAN_RUN && handle != NULL &&
                  handle->begin_unit == run->u.run.begin_unit &&
                  handle->unit_count == run->u.run.unit_count && (handle->types & type) != 0;
    return is_own ? handle : NULL;
}

/* Make the free of the block take the slow path. False: it is not live any more. */
static bool mark_special(struct flw_slot *slot)
{
    uint64_t word = __atomic_load_n(&slot->word, __ATOMIC_ACQUIRE);
    uint64_t address = word & ~FLW_SLOT_STATE_MASK, live = address + FLW_SLOT_LIVE;
    return word == address + FLW_SLOT_LIVE_USED || word == address + FLW_SLOT_LIVE_SPECIAL ||
           __atomic_compare_exchange_n(&slot->word, &live, address + FLW_SLOT_LIVE_SPECIAL, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Mark the block's handle as exported. *out_first: the number of this export if it was the first,
 * otherwise 0. */
static fallow_status claim_handle(struct flw_pool *pool, const fallow_block *block, uint32_t type,
                                  struct flw_handle **out_handle, uint64_t *out_first)
{
    struct flw_heap *heap = &pool->heap;
    /* The map leads to a run only from the first byte. */
    const struct flw_extension *front = flw_pool_front(pool);
    struct flw_view view = {.raw = (uint64_t)(uintptr_t)block->base};
    bool is_known = front == NULL || front->view(pool, view.raw, &view);
    uint64_t offset = flw_page_map_offset(&heap->map, view.raw);
    fallow_status status = FALLOW_INVALID_ARGUMENT;
    if (!is_known) {
        return FALLOW_INVALID_POINTER; /* another thread has freed it */
    }
    flw_lock_acquire(&heap->lock);
    struct flw_handle *handle = own_handle(heap, offset, type);
    if (handle != NULL) {
        struct flw_span *run = flw_page_map_span_at(&heap->map, offset);
        uint64_t number = ++pool->sharing.export_count;
        *out_first = handle->is_exported ? 0 : number;
        status = !mark_special(flw_span_slot(&heap->map, run, 0)) ? FALLOW_INVALID_POINTER
                 : !flw_heap_mark_exported(heap, handle)          ? FALLOW_OUT_OF_HOST_MEMORY
                                                                  : FALLOW_OK;
    }
    flw_lock_release(&heap->lock);
    *out_handle = handle;
    if (status == FALLOW_INVALID_ARGUMENT) {
        flw_pool_log(pool, FALLOW_LOG_ERROR,
                     "block %p shares its physical handle: allocate with FALLOW_REQUEST_EXPORT_%s "
                     "to export it",
                     block->base, type == FALLOW_HANDLE_FD ? "FD" : "FABRIC");
    }
    return status;
}

static fallow_status refuse_driver(struct flw_pool *pool, CUresult result, const char *call)
{
    flw_pool_log(pool, FALLOW_LOG_ERROR, "%s answered %s", call,
                 flw_driver_error_name(&pool->driver, result));
    return flw_heap_answer(&pool->heap, result, call);
}

static fallow_status export_handle(struct flw_pool *pool, uint64_t handle, fallow_share *share)
{
    struct flw_driver_section section;
    void *out = share->type == FALLOW_HANDLE_FD ? (void *)&share->descriptor : share->fabric;
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return flw_heap_not_entered(&pool->heap);
    }
    flw_heap_count_call(&pool->heap);
    CUresult result =
        pool->driver.cuMemExportToShareableHandle(out, handle, driver_type(share->type), 0);
    flw_heap_leave_driver(&pool->heap, &section);
    return result == CUDA_SUCCESS ? FALLOW_OK
                                  : refuse_driver(pool, result, "cuMemExportToShareableHandle");
}

static fallow_status share_block(struct flw_pool *pool, const void *ptr, fallow_share *share)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_handle *handle = NULL;
    uint64_t first = 0;
    fallow_block block;
    fallow_block_init(&block);
    fallow_status status = fallow_block_info((fallow_pool *)(uintptr_t)pool->handle, ptr, &block);
    if (status != FALLOW_OK || block.base != ptr ||
        (block.state != FALLOW_BLOCK_LIVE && block.state != FALLOW_BLOCK_CAPTURED)) {
        return FALLOW_INVALID_POINTER;
    }
    if (block.state == FALLOW_BLOCK_CAPTURED) {
        flw_pool_log(
            pool, FALLOW_LOG_ERROR,
            "block %p was allocated inside a capture and stays with its graphs: allocate before the capture",
            block.base);
        return FALLOW_INVALID_ARGUMENT;
    }
    status = claim_handle(pool, &block, share->type, &handle, &first);
    if (status != FALLOW_OK) {
        return status;
    }
    share->handle_bytes = block.handle_bytes;
    share->offset_bytes = block.handle_offset;
    share->size_bytes = block.requested_bytes;
    status = export_handle(pool, block.handle, share);
    if (status != FALLOW_OK && first != 0) {
        flw_lock_acquire(&heap->lock);
        if (pool->sharing.export_count == first) { /* otherwise another thread may have
                                                       exported it too */
            flw_heap_unmark_exported(heap, handle);
        }
        flw_lock_release(&heap->lock);
    }
    return status;
}

fallow_status fallow_export(fallow_pool *handle, const void *ptr, uint32_t type,
                            fallow_share *out_share)
{
    struct flw_pool *pool = flw_pool_of(handle);
    fallow_share share = {.struct_size = sizeof share, .type = type, .descriptor = -1};
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (out_share == NULL || ptr == NULL || !is_one_type(type)) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if ((pool->config.handle_types & type) == 0 || flw_pool_has_epochs(pool) ||
        !pool->heap.source.ops->remaps || pool->driver.cuMemExportToShareableHandle == NULL) {
        flw_pool_log(pool, FALLOW_LOG_ERROR,
                     "the pool exports no such handles: name the type in handle_types, on a driver "
                     "with virtual memory management");
        return FALLOW_NOT_SUPPORTED;
    }
    if (flw_heap_is_lost(&pool->heap)) {
        return FALLOW_DEVICE_LOST;
    }
    fallow_status status = flw_gate_enter(&pool->gate, true);
    if (status != FALLOW_OK) {
        return status;
    }
    flw_pool_enlist(pool, &flw_share_extension);
    status = share_block(pool, ptr, &share);
    flw_gate_leave(&pool->gate);
    flw_pool_note_loss(pool);
    return status == FALLOW_OK ? flw_struct_answer(out_share, &share, sizeof share) : status;
}

/* ---- the end of an import */

/* Release the rest of an import, step by step. False: the driver refuses. In a driver section. */
static bool give_up(struct flw_pool *pool, struct flw_import *import)
{
    struct flw_source *source = &pool->heap.source;
    CUresult result = CUDA_SUCCESS;
    if (import->is_mapped) {
        result = source->ops->unmap(source, import->base, import->bytes);
        import->is_mapped = result != CUDA_SUCCESS;
    }
    bool is_given = flw_heap_refuse(&pool->heap, result, "cuMemUnmap") == FALLOW_OK;
    if (import->base != 0 && !import->is_mapped) {
        result = source->ops->unreserve(source, import->base, import->bytes);
        import->base = result == CUDA_SUCCESS ? 0 : import->base;
        is_given &= flw_heap_refuse(&pool->heap, result, "cuMemAddressFree") == FALLOW_OK;
    }
    if (import->handle != 0) { /* the memory is another process's, which waits for it, with or
                                   without addresses */
        result = source->ops->release(source, import->handle);
        import->handle = result == CUDA_SUCCESS ? 0 : import->handle;
        is_given &= flw_heap_refuse(&pool->heap, result, "cuMemRelease") == FALLOW_OK;
    }
    return is_given;
}

/* End an import that no work uses any more. Parts that the driver refuses to release are retried
 * later. In a driver section. */
static void end_import(struct flw_pool *pool, struct flw_import *import)
{
    if (give_up(pool, import)) {
        free(import);
        return;
    }
    flw_lock_acquire(&pool->sharing.lock);
    import->next = pool->sharing.ended;
    pool->sharing.ended = import;
    flw_lock_release(&pool->sharing.lock);
}

/* Retry the imports that the driver refused to release, each once. In a driver section. */
static void end_again(struct flw_pool *pool)
{
    flw_lock_acquire(&pool->sharing.lock);
    struct flw_import *import = pool->sharing.ended;
    pool->sharing.ended = NULL;
    flw_lock_release(&pool->sharing.lock);
    for (struct flw_import *next; import != NULL; import = next) {
        next = import->next;
        end_import(pool, import);
    }
}

static void collect_ended(struct flw_pool *pool)
{
    struct flw_driver_section section;
    flw_lock_acquire(&pool->sharing.lock);
    bool has_any = pool->sharing.ended != NULL;
    flw_lock_release(&pool->sharing.lock);
    if (has_any && flw_heap_enter_driver(&pool->heap, &section)) {
        end_again(pool);
        flw_heap_leave_driver(&pool->heap, &section);
    }
}

/* Release exported handles of blocks that are freed and complete, and retry refused imports. Makes
 * driver calls, not inside the gate. */
static void collect(struct flw_pool *pool)
{
    struct flw_heap *heap = &pool->heap;
    struct flw_driver_section section;
    collect_ended(pool);
    if (atomic_load(&heap->exported_bytes) == 0) {
        return;
    }
    if (flw_heap_enter_driver(heap, &section)) {
        flw_uses_fence(pool);
        (void)flw_heap_poll(heap);
        flw_heap_leave_driver(heap, &section);
    }
    if (flw_gate_enter(&pool->gate, false) == FALLOW_OK) { /* otherwise a later call does it */
        flw_heap_release_exported(heap);
        flw_gate_leave(&pool->gate);
    }
}

/* ---- import */

static bool is_sound(const struct flw_pool *pool, const fallow_share *share)
{
    uint64_t granularity = pool->heap.source.granularity_bytes;
    return is_one_type(share->type) && share->handle_bytes != 0 &&
           share->handle_bytes % granularity == 0 && share->handle_bytes <= FLW_REQUEST_MAX &&
           share->size_bytes != 0 && share->size_bytes <= share->handle_bytes &&
           share->offset_bytes <= share->handle_bytes - share->size_bytes &&
           (share->type != FALLOW_HANDLE_FD || share->descriptor >= 0);
}

/* On failure the caller ends the parts that exist. In a driver section. */
static CUresult map_import(struct flw_pool *pool, const fallow_share *share,
                           struct flw_import *import, const char **call)
{
    struct flw_source *source = &pool->heap.source;
    void *shareable = share->type == FALLOW_HANDLE_FD ? (void *)(intptr_t)share->descriptor
                                                      : (void *)(uintptr_t)share->fabric;
    CUmemGenericAllocationHandle handle = 0;
    *call = "cuMemImportFromShareableHandle";
    flw_heap_count_call(&pool->heap);
    CUresult result =
        pool->driver.cuMemImportFromShareableHandle(&handle, shareable, driver_type(share->type));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    import->handle = handle;
    import->bytes = share->handle_bytes;
    *call = "cuMemAddressReserve";
    result = source->ops->reserve(source, import->bytes, 0, &import->base);
    if (result != CUDA_SUCCESS) {
        import->base = 0;
        return result;
    }
    *call = "cuMemMap";
    result = source->ops->map(source, import->base, import->bytes, import->handle);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    import->is_mapped = true;
    import->pointer = import->base + share->offset_bytes;
    *call = "cuMemSetAccess";
    return source->ops->set_access(source, import->base, import->bytes);
}

/* Takes over the import if the result is OK. */
static fallow_status import_share(struct flw_pool *pool, const fallow_share *share,
                                  struct flw_import *import)
{
    struct flw_driver_section section;
    const char *call = "";
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        free(import);
        return flw_heap_not_entered(&pool->heap);
    }
    CUresult result = map_import(pool, share, import, &call);
    fallow_status status = result == CUDA_SUCCESS ? FALLOW_OK : refuse_driver(pool, result, call);
    if (status != FALLOW_OK) {
        end_import(pool, import);
    }
    flw_heap_leave_driver(&pool->heap, &section);
    return status;
}

/* Keep a change of peers from running between a mapping and the place in the list. A sleeping pool
 * imports and unimports too, as a turn of its own. */
static bool enter(struct flw_pool *pool)
{
    struct flw_backoff backoff = {0};
    while (flw_gate_enter(&pool->gate, true) != FALLOW_OK) {
        if (flw_gate_begin_turn(&pool->gate)) {
            return true;
        }
        flw_backoff_wait(&backoff);
    }
    return false;
}

static void leave(struct flw_pool *pool, bool is_turn)
{
    if (is_turn) {
        flw_gate_end_turn(&pool->gate);
    } else {
        flw_gate_leave(&pool->gate);
    }
}

static void put_import(struct flw_pool *pool, struct flw_import *import)
{
    flw_lock_acquire(&pool->sharing.lock);
    import->next = pool->sharing.imports;
    pool->sharing.imports = import;
    flw_lock_release(&pool->sharing.lock);
}

fallow_status fallow_import(fallow_pool *handle, const fallow_share *given, void **out_ptr)
{
    struct flw_pool *pool = flw_pool_of(handle);
    fallow_share share = {0};
    if (out_ptr == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_ptr = NULL;
    if (pool == NULL || given == NULL) {
        return pool == NULL ? FALLOW_INVALID_POOL : FALLOW_INVALID_ARGUMENT;
    }
    fallow_status status = flw_struct_accept(&share, sizeof share, given);
    if (status != FALLOW_OK) {
        return status;
    }
    if (!pool->heap.source.ops->remaps || pool->driver.cuMemImportFromShareableHandle == NULL) {
        flw_pool_log(pool, FALLOW_LOG_ERROR,
                     "the driver cannot import memory: it lacks virtual memory management");
        return FALLOW_NOT_SUPPORTED;
    }
    if (!is_sound(pool, &share)) {
        return FALLOW_INVALID_ARGUMENT;
    }
    struct flw_import *import = calloc(1, sizeof *import);
    if (import == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    flw_pool_enlist(pool, &flw_share_extension);
    bool is_turn = enter(pool);
    status = import_share(pool, &share, import);
    if (status == FALLOW_OK) {
        *out_ptr = (void *)(uintptr_t)import->pointer;
        put_import(pool, import);
        atomic_fetch_add(&pool->sharing.imported_bytes, import->bytes);
    }
    leave(pool, is_turn);
    flw_pool_note_loss(pool);
    return flw_heap_is_lost(&pool->heap) && status != FALLOW_OK ? FALLOW_DEVICE_LOST : status;
}

static struct flw_import *take_import(struct flw_pool *pool, uint64_t pointer)
{
    flw_lock_acquire(&pool->sharing.lock);
    struct flw_import **link = &pool->sharing.imports;
    while (*link != NULL && (*link)->pointer != pointer) {
        link = &(*link)->next;
    }
    struct flw_import *import = *link;
    if (import != NULL) {
        *link = import->next;
    }
    flw_lock_release(&pool->sharing.lock);
    return import;
}

fallow_status fallow_unimport(fallow_pool *handle, void *ptr)
{
    struct flw_pool *pool = flw_pool_of(handle);
    struct flw_driver_section section;
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (ptr == NULL || flw_heap_is_lost(&pool->heap)) {
        return FALLOW_OK;
    }
    bool is_turn = enter(pool); /* from here on every change of peers includes it */
    struct flw_import *import = take_import(pool, (uint64_t)(uintptr_t)ptr);
    if (import == NULL) {
        leave(pool, is_turn);
        atomic_fetch_add(&pool->usage.misuses, 1);
        return FALLOW_INVALID_POINTER;
    }
    uint64_t bytes = import->bytes;
    bool is_inside = flw_heap_enter_driver(&pool->heap, &section);
    fallow_status status = flw_heap_not_entered(&pool->heap);
    if (is_inside) {
        status = flw_pool_ask_captures(pool);
        status = status == FALLOW_OK ? flw_heap_sync_context(&pool->heap) : status;
    }
    if (status == FALLOW_OK) {
        atomic_fetch_sub(&pool->sharing.imported_bytes, bytes);
        end_import(pool, import);
    } else { /* as before; after a loss, until the pool ends */
        put_import(pool, import);
    }
    if (is_inside) {
        flw_heap_leave_driver(&pool->heap, &section);
    }
    leave(pool, is_turn);
    flw_pool_note_loss(pool);
    return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : status;
}

static CUresult each_import(struct flw_pool *pool, flw_heap_stretch_function set,
                            flw_heap_stretch_function set_back, const void *context)
{
    CUresult result = CUDA_SUCCESS;
    const struct flw_import *import = pool->sharing.imports, *end;
    for (; import != NULL && result == CUDA_SUCCESS;
         import = result == CUDA_SUCCESS ? import->next : import) {
        result = set(&pool->heap, import->base, import->bytes, context);
    }
    end = import;
    for (import = pool->sharing.imports; result != CUDA_SUCCESS && import != end;
         import = import->next) {
        (void)set_back(&pool->heap, import->base, import->bytes, context);
    }
    return result;
}

/* Return the bytes of imports, which the driver keeps while they are mapped or have a handle. */
static uint64_t bytes_of(const struct flw_import *import)
{
    uint64_t bytes = 0;
    for (; import != NULL; import = import->next) {
        bytes += import->is_mapped || import->handle != 0 ? import->bytes : 0;
    }
    return bytes;
}

static void forget_all(struct flw_import *import)
{
    for (struct flw_import *next; import != NULL; import = next) {
        next = import->next;
        free(import);
    }
}

#define LAST_TRIES 3

static void finish(struct flw_pool *pool, bool is_lost)
{
    while (!is_lost && pool->sharing.imports != NULL) {
        struct flw_import *import = pool->sharing.imports;
        pool->sharing.imports = import->next;
        end_import(pool, import);
    }
    for (unsigned n = 0; n < LAST_TRIES && !is_lost; n++) {
        end_again(pool);
    }
    if (!is_lost && !flw_heap_is_lost(&pool->heap) && pool->sharing.ended != NULL) {
        flw_pool_log_unreleased(pool, bytes_of(pool->sharing.ended));
    }
    forget_all(pool->sharing.imports);
    forget_all(pool->sharing.ended);
    pool->sharing.imports = pool->sharing.ended = NULL;
}

static bool is_used_untold(struct flw_pool *pool)
{
    return pool->sharing.imports != NULL;
}

static void read_stats(struct flw_pool *pool, fallow_stats *stats)
{
    stats->imported_bytes = atomic_load(&pool->sharing.imported_bytes);
}

const struct flw_extension flw_share_extension = {.finish = finish,
                                                  .is_used_untold = is_used_untold,
                                                  .each_stretch = each_import,
                                                  .exported_freed = collect,
                                                  .poll = collect,
                                                  .read_stats = read_stats};
