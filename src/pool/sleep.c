/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: sleep and wake: who is asked, kept out and waited for, what is saved, the way back.
 * Does not: unmap or map (heap/sleep.c).
 *
 *   sleep   watchers · the gate is held, caches closed and emptied, those inside waited for · the
 *           device waited for · contents saved · memory given back · the gate refuses
 *   wake    memory got and mapped · contents put back · caches and gate opened · watchers
 *
 * A step that fails undoes those before it.
 */
#include "pool/sleep.h"

#include <stdlib.h>
#include <string.h>

#include "base/mutant.h"
#include "pool/blocks.h"
#include "pool/recording.h"

#define TAGS_MOST   4096
#define CHUNK_BYTES (64 * FLW_MIB)

void fallow_sleep_request_init_sized(fallow_sleep_request *request, size_t struct_size)
{
    memset(request, 0, struct_size);
    request->struct_size = struct_size;
}

/* ---- watchers */

static bool is_watcher(const struct flw_sleep_watcher *watcher,
                       const struct flw_sleep_watcher *other)
{
    return watcher->before_sleep == other->before_sleep &&
           watcher->after_wake == other->after_wake && watcher->context == other->context;
}

fallow_status fallow_pool_watch_sleep(fallow_pool *handle,
                                      fallow_before_sleep_function before_sleep,
                                      fallow_after_wake_function after_wake, void *context)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (before_sleep == NULL && after_wake == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    struct flw_sleeper *sleeper = &pool->sleeper;
    flw_lock_acquire(&sleeper->lock);
    bool has_room = sleeper->watcher_count < FLW_SLEEP_WATCHERS;
    if (has_room) {
        sleeper->watchers[sleeper->watcher_count++] =
            (struct flw_sleep_watcher){before_sleep, after_wake, context};
    }
    flw_lock_release(&sleeper->lock);
    return has_room ? FALLOW_OK : FALLOW_BUSY;
}

fallow_status fallow_pool_unwatch_sleep(fallow_pool *handle,
                                        fallow_before_sleep_function before_sleep,
                                        fallow_after_wake_function after_wake, void *context)
{
    struct flw_pool *pool = flw_pool_of(handle);
    struct flw_sleep_watcher gone = {before_sleep, after_wake, context};
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    struct flw_sleeper *sleeper = &pool->sleeper;
    flw_lock_acquire(&sleeper->lock);
    uint32_t i = 0, count = sleeper->watcher_count;
    while (i < count && !is_watcher(&sleeper->watchers[i], &gone)) {
        i++;
    }
    if (i < count) {
        memmove(&sleeper->watchers[i], &sleeper->watchers[i + 1],
                (count - i - 1) * sizeof sleeper->watchers[0]);
        sleeper->watcher_count--;
    }
    flw_lock_release(&sleeper->lock);
    return i < count ? FALLOW_OK : FALLOW_NOT_FOUND;
}

/* Those that are there when a turn begins. */
struct watch {
    struct flw_sleep_watcher watchers[FLW_SLEEP_WATCHERS];
    uint32_t count;
};

static void look_up(struct flw_sleeper *sleeper, struct watch *watch)
{
    flw_lock_acquire(&sleeper->lock);
    memcpy(watch->watchers, sleeper->watchers, sizeof watch->watchers);
    watch->count = sleeper->watcher_count;
    flw_lock_release(&sleeper->lock);
}

/* True: nobody refused. Else those that were asked are told again by tell_awake. */
static bool ask_to_sleep(struct watch *watch)
{
    for (uint32_t i = 0; i < watch->count; i++) {
        const struct flw_sleep_watcher *watcher = &watch->watchers[i];
        if (watcher->before_sleep != NULL && watcher->before_sleep(watcher->context) != 0) {
            watch->count = i + 1;
            return false;
        }
    }
    return true;
}

static void tell_awake(const struct watch *watch)
{
    for (uint32_t i = watch->count; i-- > 0;) {
        if (watch->watchers[i].after_wake != NULL) {
            watch->watchers[i].after_wake(watch->watchers[i].context);
        }
    }
}

/* ---- tags */

static bool is_saved_tag(const fallow_sleep_request *request, uint32_t tag)
{
    bool is_saved = (request->flags & FALLOW_SLEEP_SAVE_ALL) != 0;
    for (size_t i = 0; i < request->saved_tag_count && !is_saved; i++) {
        is_saved = request->saved_tags[i] == tag;
    }
    return is_saved;
}

static uint64_t kept_since(const struct flw_sleeper *sleeper, uint32_t tag)
{
    uint64_t since = sleeper->all_kept_since;
    for (uint32_t i = 0; i < sleeper->kept_count; i++) {
        if (sleeper->kept[i].tag == tag && (since == 0 || sleeper->kept[i].since < since)) {
            since = sleeper->kept[i].since;
        }
    }
    return since;
}

bool flw_sleep_has_kept(struct flw_pool *pool, uint32_t tag, uint64_t serial)
{
    struct flw_sleeper *sleeper = &pool->sleeper;
    flw_lock_acquire(&sleeper->lock);
    uint64_t since = kept_since(sleeper, tag);
    flw_lock_release(&sleeper->lock);
    return since != 0 && since <= serial + 1;
}

/* Room for what a sleep by this request will note: taken before anything has happened. */
static struct flw_kept_tag *make_kept(const fallow_sleep_request *request)
{
    size_t count = request->saved_tag_count + 1;
    return calloc(count, sizeof(struct flw_kept_tag));
}

/* The sleep has come about. Takes `kept`. */
static void note_kept(struct flw_sleeper *sleeper, const fallow_sleep_request *request,
                      struct flw_kept_tag *kept)
{
    uint64_t serial = atomic_load(&sleeper->serial) + 1;
    struct flw_kept_tag *old = kept;
    flw_lock_acquire(&sleeper->lock);
    if ((request->flags & FALLOW_SLEEP_SAVE_ALL) != 0) {
        sleeper->all_kept_since = sleeper->all_kept_since == 0 ? serial : sleeper->all_kept_since;
    } else {
        uint32_t count = 0;
        for (size_t i = 0; i < request->saved_tag_count; i++) {
            uint64_t since = kept_since(sleeper, request->saved_tags[i]);
            kept[count].tag = request->saved_tags[i];
            kept[count++].since = since == 0 ? serial : since;
        }
        old = sleeper->kept;
        sleeper->kept = kept;
        sleeper->kept_count = count;
        sleeper->all_kept_since = 0;
    }
    flw_lock_release(&sleeper->lock);
    atomic_store(&sleeper->serial, serial);
    free(old);
}

/* ---- contents */

struct harvest {
    struct flw_pool *pool;
    const fallow_sleep_request *request;
    struct flw_saved_block *blocks;
    size_t count, room; /* more were counted than there was room for: again */
};

/* Heap and uses lock. What lies in an exported handle stays where it is. */
static void see(void *context, const struct flw_lent_block *block)
{
    struct harvest *harvest = context;
    const struct flw_heap *heap = &harvest->pool->heap;
    const struct flw_handle *handle = flw_heap_handle_at(heap, block->address - heap->map.base);
    if (!is_saved_tag(harvest->request, block->tag) || (handle != NULL && handle->is_exported)) {
        return;
    }
    if (harvest->count < harvest->room) {
        harvest->blocks[harvest->count] =
            (struct flw_saved_block){.address = block->address, .size_bytes = block->size_bytes};
    }
    harvest->count++;
}

static bool find_blocks(struct flw_pool *pool, const fallow_sleep_request *request)
{
    struct harvest harvest = {.pool = pool, .request = request};
    if (request->saved_tag_count == 0 && (request->flags & FALLOW_SLEEP_SAVE_ALL) == 0) {
        return true;
    }
    do {
        harvest.room = harvest.count + harvest.count / 4 + 64;
        harvest.count = 0;
        free(harvest.blocks);
        harvest.blocks = malloc(harvest.room * sizeof *harvest.blocks);
        if (harvest.blocks == NULL) {
            return false;
        }
        flw_blocks_each(pool, see, &harvest);
    } while (harvest.count > harvest.room);
    pool->sleeper.saved = harvest.blocks;
    pool->sleeper.saved_count = harvest.count;
    return true;
}

/* calls. The next blocks from `first` on, as many as one chunk is for: pinned memory for them. */
static CUresult make_chunk(struct flw_pool *pool, size_t first, size_t *out_end)
{
    struct flw_sleeper *sleeper = &pool->sleeper;
    uint64_t bytes = 0;
    size_t end = first;
    void *chunk = NULL;
    while (end < sleeper->saved_count &&
           (end == first || bytes + sleeper->saved[end].size_bytes <= CHUNK_BYTES)) {
        bytes += sleeper->saved[end++].size_bytes;
    }
    *out_end = end;
    flw_heap_count_call(&pool->heap);
    CUresult result = pool->driver.cuMemHostAlloc(&chunk, bytes, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    sleeper->chunks[sleeper->chunk_count++] = chunk;
    atomic_fetch_add(&sleeper->saved_bytes, bytes);
    unsigned char *at = chunk;
    for (size_t i = first; i < end; i++) {
        sleeper->saved[i].copy = at;
        at += sleeper->saved[i].size_bytes;
    }
    return CUDA_SUCCESS;
}

/* calls. An answer of the driver that stops a sleep or a wake, and is remembered. */
static fallow_status refusal(struct flw_pool *pool, CUresult result, const char *call)
{
    flw_heap_note_error(&pool->heap, result, call);
    return FALLOW_DRIVER;
}

/* calls. All copies are given before the first is waited for; whatever fails, none is under way
 * afterwards. No capture is open, so the default stream takes them. */
static fallow_status copy_all(struct flw_pool *pool, bool is_out)
{
    const struct flw_sleeper *sleeper = &pool->sleeper;
    const struct flw_driver *driver = &pool->driver;
    const char *call = is_out ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync";
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; result == CUDA_SUCCESS && i < sleeper->saved_count; i++) {
        const struct flw_saved_block *block = &sleeper->saved[i];
        flw_heap_count_call(&pool->heap);
        result = is_out ? driver->cuMemcpyDtoHAsync_v2(block->copy, block->address,
                                                       block->size_bytes, NULL)
                        : driver->cuMemcpyHtoDAsync_v2(block->address, block->copy,
                                                       block->size_bytes, NULL);
    }
    flw_heap_count_call(&pool->heap);
    CUresult done = driver->cuStreamSynchronize(NULL);
    if (done != CUDA_SUCCESS) { /* some may be under way: nothing may be unmapped any more */
        flw_heap_lose_device(&pool->heap, done, "cuStreamSynchronize");
        return FALLOW_DEVICE_LOST;
    }
    return result == CUDA_SUCCESS ? FALLOW_OK : refusal(pool, result, call);
}

static fallow_status copy_out(struct flw_pool *pool)
{
    struct flw_sleeper *sleeper = &pool->sleeper;
    CUresult result = CUDA_SUCCESS;
    size_t end = 0;
    for (size_t i = 0; result == CUDA_SUCCESS && i < sleeper->saved_count; i = end) {
        result = make_chunk(pool, i, &end);
    }
    if (result != CUDA_SUCCESS) {
        fallow_status status = refusal(pool, result, "cuMemHostAlloc");
        return result == CUDA_ERROR_OUT_OF_MEMORY ? FALLOW_OUT_OF_HOST_MEMORY : status;
    }
    return copy_all(pool, true);
}

static fallow_status save(struct flw_pool *pool, const fallow_sleep_request *request)
{
    struct flw_sleeper *sleeper = &pool->sleeper;
    struct flw_driver_section section;
    if (!find_blocks(pool, request)) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    if (sleeper->saved_count == 0) {
        return FALLOW_OK;
    }
    sleeper->chunks = malloc(sleeper->saved_count * sizeof *sleeper->chunks);
    if (sleeper->chunks == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return FALLOW_DEVICE_LOST;
    }
    fallow_status status = copy_out(pool);
    flw_heap_leave_driver(&pool->heap, &section);
    return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : status;
}

static fallow_status restore(struct flw_pool *pool)
{
    const struct flw_sleeper *sleeper = &pool->sleeper;
    struct flw_driver_section section;
    if (sleeper->saved_count == 0) {
        return FALLOW_OK;
    }
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return FALLOW_DEVICE_LOST;
    }
    fallow_status status = copy_all(pool, false);
    flw_heap_leave_driver(&pool->heap, &section);
    return status;
}

/* Whatever of it there is. */
static void forget_saved(struct flw_pool *pool, bool is_lost)
{
    struct flw_sleeper *sleeper = &pool->sleeper;
    struct flw_driver_section section;
    if (sleeper->chunk_count > 0 && !is_lost && flw_heap_enter_driver(&pool->heap, &section)) {
        for (size_t i = 0; i < sleeper->chunk_count; i++) {
            flw_heap_count_call(&pool->heap);
            CUresult result = pool->driver.cuMemFreeHost(sleeper->chunks[i]);
            if (result != CUDA_SUCCESS) {
                flw_heap_note_error(&pool->heap, result, "cuMemFreeHost");
                flw_pool_log(pool, FALLOW_LOG_WARNING,
                             "pinned memory of a sleep stays: cuMemFreeHost answered %s",
                             flw_driver_error_name(&pool->driver, result));
            }
        }
        flw_heap_leave_driver(&pool->heap, &section);
    }
    free(sleeper->chunks);
    free(sleeper->saved);
    sleeper->chunks = NULL;
    sleeper->saved = NULL;
    sleeper->chunk_count = sleeper->saved_count = 0;
    atomic_store(&sleeper->saved_bytes, 0);
}

void flw_sleep_finish(struct flw_pool *pool, bool is_lost)
{
    forget_saved(pool, is_lost);
    free(pool->sleeper.kept);
    pool->sleeper.kept = NULL;
}

/* ---- running work */

/* calls. NOT_READY: work of the context is under way. */
static CUresult ask_context(struct flw_pool *pool)
{
    const struct flw_driver *driver = &pool->driver;
    CUevent event = NULL;
    flw_heap_count_call(&pool->heap);
    CUresult result = driver->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    flw_heap_count_call(&pool->heap);
    result = driver->cuCtxRecordEvent(pool->heap.context, event);
    if (result == CUDA_SUCCESS) {
        flw_heap_count_call(&pool->heap);
        result = driver->cuEventQuery(event);
    }
    flw_heap_count_call(&pool->heap);
    CUresult end = driver->cuEventDestroy_v2(event);
    return result == CUDA_SUCCESS ? end : result;
}

/* calls. The same of a stream; one that is gone has nothing under way that could be asked for. */
static CUresult ask_stream(struct flw_pool *pool, CUstream stream, CUcontext context)
{
    CUcontext previous = NULL;
    bool is_foreign = context != pool->heap.context;
    CUresult result = CUDA_SUCCESS;
    if (is_foreign) {
        flw_heap_count_call(&pool->heap);
        result = pool->driver.cuCtxPushCurrent_v2(context);
    }
    if (result == CUDA_SUCCESS) {
        flw_heap_count_call(&pool->heap);
        result = pool->driver.cuStreamQuery(stream);
        if (is_foreign) {
            flw_heap_count_call(&pool->heap);
            (void)pool->driver.cuCtxPopCurrent_v2(&previous);
        }
    }
    return flw_result_is_gone(result) ? CUDA_SUCCESS : result;
}

static CUresult ask_streams(struct flw_pool *pool, bool foreign_only)
{
    struct flw_heap *heap = &pool->heap;
    CUresult result = CUDA_SUCCESS;
    uint32_t cursor = 0;
    for (struct flw_domain *domain;
         result == CUDA_SUCCESS && (domain = flw_domain_next(heap, &cursor)) != NULL;) {
        flw_lock_acquire(&heap->lock);
        CUstream stream = domain->stream;
        CUcontext context = domain->context;
        bool is_asked = domain->ops == &flw_order_stream && domain->is_known &&
                        (domain->is_foreign || !foreign_only) &&
                        (!domain->own_thread_only || domain->thread == flw_thread_token());
        flw_lock_release(&heap->lock);
        result = is_asked ? ask_stream(pool, stream, context) : result;
    }
    return result;
}

static fallow_status refuse_running(struct flw_pool *pool)
{
    bool can_ask_context = pool->driver.cuCtxRecordEvent != NULL;
    CUresult result = can_ask_context ? ask_context(pool) : CUDA_SUCCESS;
    if (result == CUDA_ERROR_NOT_SUPPORTED) {
        can_ask_context = false;
        result = CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS) {
        result = ask_streams(pool, can_ask_context);
    }
    bool is_captured = result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
                       result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    return result == CUDA_SUCCESS           ? FALLOW_OK
           : is_captured                    ? FALLOW_CAPTURING
           : result == CUDA_ERROR_NOT_READY ? FALLOW_BUSY
                                            : refusal(pool, result, "cuEventQuery");
}

/* Everything that may touch the pool's memory is complete, and known to be. */
static fallow_status quiesce(struct flw_pool *pool, bool may_wait)
{
    struct flw_driver_section section;
    if (atomic_load(&pool->open_captures) != 0) {
        return FALLOW_BUSY;
    }
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return FALLOW_DEVICE_LOST;
    }
    fallow_status status = flw_pool_is_any_capturing(pool) ? FALLOW_CAPTURING : FALLOW_OK;
    if (status == FALLOW_OK && !may_wait) {
        status = refuse_running(pool);
    }
    if (status == FALLOW_OK) {
        status = flw_pool_await_device(pool);
    }
    flw_heap_leave_driver(&pool->heap, &section);
    if (status == FALLOW_OK) {
        flw_lock_acquire(&pool->heap.lock);
        (void)flw_heap_reclaim_slabs(&pool->heap);
        flw_lock_release(&pool->heap.lock);
    }
    return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : status;
}

/* ---- sleep */

static fallow_status accept(const fallow_sleep_request *given, fallow_sleep_request *request)
{
    const uint32_t known = FALLOW_SLEEP_WAIT | FALLOW_SLEEP_SAVE_ALL;
    *request = (fallow_sleep_request){.struct_size = sizeof *request};
    fallow_status status =
        given == NULL ? FALLOW_OK : flw_struct_accept(request, sizeof *request, given);
    bool is_good = (request->flags & ~known) == 0 && request->reserved_0 == 0 &&
                   request->saved_tag_count <= TAGS_MOST &&
                   (request->saved_tags != NULL || request->saved_tag_count == 0);
    return status == FALLOW_OK && !is_good ? FALLOW_INVALID_ARGUMENT : status;
}

static fallow_status end_turn(struct flw_pool *pool, fallow_status status)
{
    flw_gate_end_turn(&pool->gate);
    flw_pool_note_loss(pool);
    return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST : status;
}

static void open_up(struct flw_pool *pool)
{
    flw_pool_close_hits(pool, false);
    flw_gate_set(&pool->gate, FLW_GATE_OPEN);
}

/* The turn is this thread's, the watchers have agreed. */
static fallow_status fall_asleep(struct flw_pool *pool, const fallow_sleep_request *request)
{
    bool may_wait = (request->flags & FALLOW_SLEEP_WAIT) != 0;
    struct flw_kept_tag *kept = make_kept(request);
    if (kept == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    flw_gate_set(&pool->gate, FLW_GATE_HELD);
    if (!FLW_MUTANT(SLEEP_LEAVES_CACHES_OPEN)) {
        flw_pool_close_hits(pool, true);
    }
    fallow_status status = flw_gate_await(&pool->gate, may_wait) ? FALLOW_OK : FALLOW_BUSY;
    if (status == FALLOW_OK) {
        (void)flw_pool_drain(pool, NULL, NULL);
        status = quiesce(pool, may_wait);
    }
    if (status == FALLOW_OK && !FLW_MUTANT(SLEEP_SAVES_NOTHING)) {
        status = save(pool, request);
    }
    if (status == FALLOW_OK) {
        status = flw_heap_sleep(&pool->heap);
    }
    if (status != FALLOW_OK) {
        forget_saved(pool, flw_heap_is_lost(&pool->heap));
        free(kept);
        open_up(pool);
        return status;
    }
    note_kept(&pool->sleeper, request, kept);
    /* An arena whose last lease may simply be repeated looks again. */
    atomic_fetch_add_explicit(&pool->heap.count.gone_streams, 1, memory_order_release);
    flw_gate_set(&pool->gate, FLW_GATE_ASLEEP);
    return FALLOW_OK;
}

fallow_status fallow_pool_sleep(fallow_pool *handle, const fallow_sleep_request *given)
{
    struct flw_pool *pool = flw_pool_of(handle);
    fallow_sleep_request request;
    struct watch watch;
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    fallow_status status = accept(given, &request);
    if (status != FALLOW_OK) {
        return status;
    }
    if (!pool->heap.source.ops->remaps || pool->debug != NULL || flw_pool_has_epochs(pool)) {
        flw_pool_log(pool, FALLOW_LOG_ERROR,
                     pool->debug != NULL
                         ? "a pool with debug checks cannot sleep: they keep contents of their own"
                         : "the pool cannot sleep: without virtual memory management an address "
                           "goes with its memory");
        return FALLOW_NOT_SUPPORTED;
    }
    if (!flw_gate_begin_turn(&pool->gate)) {
        return FALLOW_BUSY;
    }
    if (flw_gate_is_asleep(&pool->gate)) {
        flw_gate_end_turn(&pool->gate);
        return FALLOW_ASLEEP;
    }
    look_up(&pool->sleeper, &watch);
    status = flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST
             : ask_to_sleep(&watch)        ? fall_asleep(pool, &request)
                                           : FALLOW_BUSY;
    if (status != FALLOW_OK) {
        tell_awake(&watch);
    }
    return end_turn(pool, status);
}

/* ---- wake */

static void trim_other(struct flw_pool *other, void *context)
{
    const struct flw_pool *pool = context;
    if (other != pool && other->config.device == pool->config.device &&
        other->driver.object == pool->driver.object &&
        flw_gate_enter(&other->gate, false) == FALLOW_OK) {
        (void)flw_heap_release_idle(&other->heap, 0);
        flw_gate_leave(&other->gate);
    }
}

static fallow_status wake_up(struct flw_pool *pool)
{
    struct flw_heap *heap = &pool->heap;
    uint64_t missing = atomic_load(&heap->asleep_bytes);
    fallow_status status = flw_heap_wake(heap);
    if (status == FALLOW_OUT_OF_MEMORY) {
        flw_pool_table_each(trim_other, pool);
        status = flw_heap_wake(heap);
    }
    if (status == FALLOW_OUT_OF_MEMORY) {
        struct flw_need need = {.domain = heap->domains[FLW_NOBODY], .size_bytes = missing};
        flw_oom_report_fill(pool, &need);
    }
    if (status != FALLOW_OK) {
        return status;
    }
    status = restore(pool);
    fallow_status end = flw_heap_end_wake(heap, status == FALLOW_OK);
    return end != FALLOW_OK ? end : status;
}

fallow_status fallow_pool_wake(fallow_pool *handle)
{
    struct flw_pool *pool = flw_pool_of(handle);
    struct watch watch;
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (flw_heap_is_lost(&pool->heap)) {
        return FALLOW_DEVICE_LOST;
    }
    if (!flw_gate_begin_turn(&pool->gate)) {
        return FALLOW_BUSY;
    }
    if (!flw_gate_is_asleep(&pool->gate)) {
        flw_gate_end_turn(&pool->gate);
        return FALLOW_OK;
    }
    look_up(&pool->sleeper, &watch);
    flw_gate_set(&pool->gate, FLW_GATE_HELD);
    fallow_status status = wake_up(pool);
    if (status == FALLOW_OK) {
        forget_saved(pool, flw_heap_is_lost(&pool->heap));
        open_up(pool);
        tell_awake(&watch);
    } else { /* a lost pool is refused for that */
        bool is_lost = flw_heap_is_lost(&pool->heap);
        flw_gate_set(&pool->gate, is_lost ? FLW_GATE_OPEN : FLW_GATE_ASLEEP);
    }
    return end_turn(pool, status);
}
