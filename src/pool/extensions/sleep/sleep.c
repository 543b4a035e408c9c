/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: sleep and wake: keeping threads out and waiting for them, the order of the steps, the
 * undo.
 * Does not: unmap or map (heap/physical/sleep.c), save or restore (contents.c).
 *
 *   sleep   watchers · the gate is held, caches closed and emptied, threads inside waited for · the
 *           device waited for · contents saved · memory released · the gate refuses
 *   wake    memory created and mapped · contents restored · caches and gate opened · watchers
 *
 * A step that fails undoes those before it. If the driver refuses that too, the pool is asleep and
 * still has all the memory. */
#include "pool/extensions/sleep/sleep.h"

#include <stdlib.h>

#include "base/mutant.h"
#include "base/sized.h"
#include "pool/ladder/ladder.h"
#include "pool/state/extension.h"
#include "pool/state/refusal_log.h"
#include "pool/state/settings.h"
#include "pool/state/table.h"
#include "pool/streams/cache.h"
#include "pool/streams/quiesce.h"
#include "pool/streams/release.h"

#define TAGS_MOST 4096

FLW_DEFINE_INIT_SIZED(fallow_sleep_request)

/* ---- watchers */

/* The watchers at the begin of a turn. */
struct watch {
    struct flw_sleep_watcher watchers[FLW_SLEEP_WATCHERS];
    uint32_t count;
};

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

static void look_up(struct flw_sleeper *sleeper, struct watch *watch)
{
    flw_lock_acquire(&sleeper->lock);
    memcpy(watch->watchers, sleeper->watchers, sizeof watch->watchers);
    watch->count = sleeper->watcher_count;
    flw_lock_release(&sleeper->lock);
}

/* True: none refused. Otherwise tell_awake calls those that were called. */
static bool ask_watchers(struct watch *watch)
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

/* ---- running work */

/* NOT_READY: work of the context is under way. Makes driver calls. */
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

/* The same for a stream; a stream that is gone has no work to query. Makes driver calls. */
static CUresult ask_stream(struct flw_pool *pool, CUstream stream, CUcontext context)
{
    struct flw_driver_section section;
    CUresult result = flw_heap_enter_context(&pool->heap, &section, context);
    if (result == CUDA_SUCCESS) {
        flw_heap_count_call(&pool->heap);
        result = pool->driver.cuStreamQuery(stream);
        flw_heap_leave_driver(&pool->heap, &section);
    }
    return flw_result_is_stale(result) ? CUDA_SUCCESS : result;
}

static CUresult ask_streams(struct flw_pool *pool, bool foreign_only)
{
    struct flw_heap *heap = &pool->heap;
    CUresult result = CUDA_SUCCESS;
    uint32_t cursor = 0;
    for (struct flw_domain *domain;
         result == CUDA_SUCCESS && (domain = flw_domain_next(heap, &cursor)) != NULL;) {
        if (flw_domain_begin_naming(heap, domain, foreign_only)) {
            result = ask_stream(pool, domain->stream, domain->context);
            flw_domain_end_naming(heap, domain);
        }
    }
    return result;
}

/* The same for a stream that may be gone without notice, by the pool's fences. */
static CUresult ask_fences(struct flw_pool *pool, bool foreign_only)
{
    struct flw_heap *heap = &pool->heap;
    bool is_running = false;
    (void)flw_heap_poll(heap);
    flw_lock_acquire(&heap->lock);
    for (uint32_t i = 1; i < heap->domain_end; i++) {
        const struct flw_domain *domain = heap->domains[i];
        is_running |= domain->ops == &flw_order_stream && domain->newest != NULL &&
                      (domain->is_foreign || !foreign_only);
    }
    flw_lock_release(&heap->lock);
    return is_running ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
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
        result = pool->heap.streams_may_die ? ask_fences(pool, can_ask_context)
                                            : ask_streams(pool, can_ask_context);
    }
    if (result == CUDA_SUCCESS) {
        return FALLOW_OK;
    }
    return result == CUDA_ERROR_NOT_READY ? FALLOW_BUSY
                                          : flw_heap_refuse(&pool->heap, result, "cuEventQuery");
}

/* Return OK once all work that may access the pool's memory is complete. */
static fallow_status quiesce(struct flw_pool *pool, bool may_wait)
{
    struct flw_driver_section section;
    if (atomic_load(&pool->open_captures) != 0) {
        return FALLOW_BUSY;
    }
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return flw_heap_not_entered(&pool->heap);
    }
    fallow_status status = flw_pool_ask_captures(pool);
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

/* Put the pool to sleep, in this thread's turn, after the watchers agreed. */
static fallow_status fall_asleep(struct flw_pool *pool, const fallow_sleep_request *request)
{
    bool may_wait = (request->flags & FALLOW_SLEEP_WAIT) != 0;
    struct flw_kept_tag *kept = flw_sleep_make_kept(request);
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
        status = flw_sleep_save(pool, request);
    }
    if (status == FALLOW_OK) {
        status = flw_heap_sleep(&pool->heap);
    }
    bool is_asleep = status == FALLOW_OK || status == FALLOW_ASLEEP; /* the undo was refused */
    if (!is_asleep) {
        flw_sleep_forget_saved(pool, flw_heap_is_lost(&pool->heap));
        free(kept);
        open_up(pool);
        return status;
    }
    flw_sleep_note_kept(&pool->sleeper, request, kept);
    /* An arena that would repeat the last lease checks again. */
    atomic_fetch_add_explicit(&pool->heap.count.order_changes, 1, memory_order_release);
    flw_gate_set(&pool->gate, FLW_GATE_ASLEEP);
    if (status == FALLOW_ASLEEP) {
        flw_pool_log(
            pool, FALLOW_LOG_WARNING,
            "the pool is asleep, but nothing was released: the driver refused to unmap the pool's memory "
            "and to map memory again (%s returned %s last); a wake tries again",
            atomic_load(&pool->heap.last_call),
            flw_driver_error_name(&pool->driver, (CUresult)atomic_load(&pool->heap.last_error)));
    }
    return status;
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
    if (!pool->heap.source.ops->remaps || flw_pool_front(pool) != NULL ||
        flw_pool_has_epochs(pool)) {
        flw_pool_log(
            pool, FALLOW_LOG_ERROR,
            flw_pool_front(pool) != NULL
                ? "a pool with debug checks cannot sleep: the checks keep contents in its memory"
                : "the pool cannot sleep: without virtual memory management an address "
                  "is lost with its memory");
        return FALLOW_NOT_SUPPORTED;
    }
    if (!flw_gate_begin_turn(&pool->gate)) {
        return FALLOW_BUSY;
    }
    if (flw_gate_is_asleep(&pool->gate)) {
        flw_gate_end_turn(&pool->gate);
        return FALLOW_ASLEEP;
    }
    flw_pool_enlist(pool, &flw_sleep_extension);
    look_up(&pool->sleeper, &watch);
    status = flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST
             : ask_watchers(&watch)        ? fall_asleep(pool, &request)
                                           : FALLOW_BUSY;
    if (status != FALLOW_OK && status != FALLOW_ASLEEP) {
        tell_awake(&watch);
    }
    return end_turn(pool, status);
}

/* ---- wake */

static fallow_status wake_up(struct flw_pool *pool)
{
    struct flw_heap *heap = &pool->heap;
    uint64_t missing = 0;
    fallow_status status = flw_heap_wake(heap, &missing);
    if (status == FALLOW_OUT_OF_MEMORY) {
        (void)flw_pool_release_others(pool, missing, flw_pool_wait_until(pool));
        status = flw_heap_wake(heap, &missing);
    }
    if (status == FALLOW_OUT_OF_MEMORY) {
        struct flw_need need = {.domain = heap->domains[FLW_UNOWNED], .size_bytes = missing};
        flw_oom_report_fill(pool, &need);
    }
    if (status != FALLOW_OK) {
        return status;
    }
    status = flw_sleep_restore(pool);
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
        flw_sleep_forget_saved(pool, flw_heap_is_lost(&pool->heap));
        open_up(pool);
        tell_awake(&watch);
    } else { /* a lost pool is refused for that */
        bool is_lost = flw_heap_is_lost(&pool->heap);
        flw_gate_set(&pool->gate, is_lost ? FLW_GATE_OPEN : FLW_GATE_ASLEEP);
    }
    flw_pool_log_refusals(pool);
    return end_turn(pool, status);
}
