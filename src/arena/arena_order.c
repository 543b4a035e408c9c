/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: guards of launches, and the order of uses of an arena's memory: the stream of the last end (`last`), the
 * streams of captures released since (`debts`), and captures not released (`pins`). The pool's order domains record
 * the fences; a fence also covers a retired stream, and a stream that is being captured cannot be fenced.
 * Does not: place or initialise regions.
 */
#include <stdlib.h>

#include "arena/arena.h"
#include "base/mutant.h"
#include "heap/order/epoch.h"
#include "pool/streams/uses.h"

struct flw_arena_mark flw_arena_mark_of(fallow_arena *arena, fallow_stream stream,
                                        fallow_status *status)
{
    struct flw_domain *domain = flw_pool_domain(arena->pool, stream, status);
    return (struct flw_arena_mark){.domain = domain,
                                   .stream_number = domain == NULL ? 0 : domain->stream_number,
                                   .stream = stream};
}

/* heap lock. True if the mark's domain serves another stream now; then all work of the mark is complete. */
static bool is_over(const struct flw_arena_mark *mark)
{
    return mark->domain == NULL || mark->domain->ops != &flw_order_stream ||
           mark->domain->stream_number != mark->stream_number;
}

/* Return the sequence number of a fence that covers the mark, and request that fence; 0: the mark's work is complete.
 * */
static uint64_t seq_of(fallow_arena *arena, const struct flw_arena_mark *mark)
{
    uint64_t seq = mark->seq;
    flw_lock_acquire(&arena->pool->heap.lock);
    if (is_over(mark)) {
        seq = 0;
    } else if (seq == 0 && mark->domain->captured_by != 0 && mark->domain->captured_seq != 0) {
        seq = mark->domain->captured_seq; /* no lease ends on a stream that is being captured */
    } else if (seq == 0) {
        seq = flw_domain_free_seq(mark->domain);
        flw_domain_want_fence(&arena->pool->heap, mark->domain, 1);
    }
    if (seq != 0 && mark->domain->completed >= seq) {
        seq = 0;
    }
    flw_lock_release(&arena->pool->heap.lock);
    return seq;
}

bool flw_arena_can_name(fallow_arena *arena, const struct flw_arena_mark *mark)
{
    struct flw_heap *heap = &arena->pool->heap;
    flw_lock_acquire(&heap->lock);
    bool can = !is_over(mark) && mark->domain->is_known && !heap->streams_may_die &&
               (!mark->domain->own_thread_only || mark->domain->thread == flw_thread_token());
    flw_lock_release(&heap->lock);
    return can;
}

static bool is_complete(fallow_arena *arena, const struct flw_arena_mark *mark, uint64_t seq,
                        bool *is_captured)
{
    struct flw_heap *heap = &arena->pool->heap;
    flw_lock_acquire(&heap->lock);
    bool is_done = is_over(mark) || mark->domain->completed >= seq;
    *is_captured = !is_done && mark->domain->captured_by != 0;
    flw_lock_release(&heap->lock);
    return is_done;
}

/* Driver calls. Wait on the host for the whole context, since the mark's stream can be neither recorded on nor
 * queried. Returns CAPTURING, with *why, while a capture is open: the wait would invalidate the capture. */
static fallow_status await_everything(fallow_arena *arena, const struct flw_arena_mark *mark,
                                      bool is_captured, const char **why)
{
    struct flw_pool *pool = arena->pool;
    if (is_captured || flw_pool_is_capturing(pool, mark->domain)) {
        *why = "the stream that the last lease ended on is being captured: lease again after the "
               "capture, or inside it";
        return FALLOW_CAPTURING;
    }
    fallow_status status = flw_pool_ask_captures(pool);
    status = status == FALLOW_OK ? flw_heap_sync_context(&pool->heap) : status;
    *why = "the stream of an earlier lease is gone, and the whole context cannot be "
           "waited for while another stream is being captured: lease again after "
           "that capture, or inside it";
    return status;
}

/* Driver calls. Make the taker wait for the mark on the device; record a fence if none covers the mark. */
static fallow_status order_after(fallow_arena *arena, struct flw_domain *taker,
                                 const struct flw_arena_mark *mark, const char **why)
{
    struct flw_heap *heap = &arena->pool->heap;
    bool is_captured = false;
    uint64_t seq = mark->domain == taker ? 0 : seq_of(arena, mark);
    if (seq == 0 || FLW_MUTANT(ARENA_NOT_ORDERED)) {
        return FALLOW_OK;
    }
    fallow_status status = flw_domain_order_after(heap, taker, mark->domain, seq, true);
    if (status == FALLOW_OK) {
        atomic_fetch_add_explicit(&arena->wait_count, 1, memory_order_relaxed);
        return FALLOW_OK;
    }
    if (flw_heap_is_lost(heap)) {
        return FALLOW_DEVICE_LOST;
    }
    if (is_complete(arena, mark, seq, &is_captured)) {
        return FALLOW_OK;
    }
    return await_everything(arena, mark, is_captured, why);
}

/* Enter the driver to record a fence. Query an earlier fence first, to get the event back: a pool that serves only
 * arenas polls nowhere else. */
static bool enter_to_fence(struct flw_heap *heap, struct flw_driver_section *section)
{
    bool is_inside = flw_heap_enter_driver(heap, section);
    if (is_inside) {
        (void)flw_heap_ask_one(heap, true);
    }
    return is_inside;
}

/* The mark's domain is the stream's own: a recycled handle is another domain. */
fallow_status flw_arena_order(fallow_arena *arena, const struct flw_arena_mark *stream,
                              const char **why)
{
    struct flw_driver_section section;
    if (!enter_to_fence(&arena->pool->heap, &section)) {
        return flw_heap_not_entered(&arena->pool->heap);
    }
    fallow_status status = order_after(arena, stream->domain, &arena->last, why);
    if (status == FALLOW_OK) {
        arena->last = *stream;
    }
    while (status == FALLOW_OK && arena->debt_count > 0) {
        status = order_after(arena, stream->domain, &arena->debts[arena->debt_count - 1], why);
        arena->debt_count -= status == FALLOW_OK;
    }
    flw_heap_leave_driver(&arena->pool->heap, &section);
    return status;
}

fallow_status flw_arena_order_captured(fallow_arena *arena, fallow_stream stream,
                                       const fallow_capture *capture)
{
    const struct flw_driver *driver = &arena->pool->driver;
    struct flw_heap *heap = &arena->pool->heap;
    struct flw_driver_section section;
    CUresult result = CUDA_SUCCESS;
    if (arena->captured.capture != capture || arena->captured.stream == stream) {
        return FALLOW_OK; /* fallow_lease_guard orders launches of graphs */
    }
    if (!flw_heap_enter_driver(heap, &section)) {
        return flw_heap_not_entered(heap);
    }
    if (arena->event == NULL) {
        flw_heap_count_call(heap);
        result = driver->cuEventCreate(&arena->event, CU_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_SUCCESS) {
        flw_heap_count_call(heap);
        result = driver->cuEventRecord(arena->event, arena->captured.stream);
    }
    if (result == CUDA_SUCCESS) {
        flw_heap_count_call(heap);
        result = driver->cuStreamWaitEvent(stream, arena->event, 0);
    }
    flw_heap_leave_driver(heap, &section);
    if (result != CUDA_SUCCESS) {
        return flw_arena_refuse(arena,
                                flw_heap_refuse(heap, result, "an event between two streams"),
                                "the lease could not be ordered after its capture's last lease: %s",
                                flw_driver_error_name(driver, result));
    }
    atomic_fetch_add_explicit(&arena->wait_count, 1, memory_order_relaxed);
    return FALLOW_OK;
}

static bool leave_to(fallow_arena *arena, const struct flw_arena_mark *mark)
{
    return seq_of(arena, mark) == 0 ||
           flw_uses_announce_of(arena->pool, arena->scratch, mark->domain->index) == FALLOW_OK;
}

bool flw_arena_leave_scratch(fallow_arena *arena, fallow_stream stream)
{
    if (arena->scratch == NULL) {
        return true;
    }
    bool is_left = leave_to(arena, &arena->last);
    for (size_t i = 0; is_left && i < arena->debt_count; i++) {
        is_left = leave_to(arena, &arena->debts[i]);
    }
    if (is_left) {
        flw_arena_check_release(arena);
        flw_growable_end(&arena->pool->heap, &arena->growable);
        is_left = fallow_free(arena->handle, arena->scratch, stream) == FALLOW_OK;
    }
    return is_left;
}

void flw_arena_fence_now(fallow_arena *arena, struct flw_arena_mark *mark)
{
    struct flw_driver_section section;
    mark->seq = 0;
    uint64_t seq = seq_of(arena, mark);
    if (seq != 0 && enter_to_fence(&arena->pool->heap, &section)) {
        if (flw_domain_fence_own(&arena->pool->heap, mark->domain) == FALLOW_OK) {
            mark->seq = seq;
        }
        flw_heap_leave_driver(&arena->pool->heap, &section);
    }
}

#define AWAIT_TRIES 3

fallow_status flw_arena_await(fallow_arena *arena, const struct flw_arena_mark *mark)
{
    struct flw_heap *heap = &arena->pool->heap;
    struct flw_driver_section section;
    uint64_t seq = seq_of(arena, mark);
    fallow_status status = seq == 0 ? FALLOW_OK : FALLOW_DRIVER;
    for (unsigned n = 0; status == FALLOW_DRIVER && n < AWAIT_TRIES; n++) {
        if (flw_heap_enter_driver(heap, &section)) {
            status = flw_domain_wait(heap, mark->domain, seq, UINT64_MAX) == FALLOW_OK
                         ? FALLOW_OK
                         : flw_pool_await_all(arena->pool);
            flw_heap_leave_driver(heap, &section);
        }
    }
    return flw_heap_is_lost(heap) ? FALLOW_OK : status;
}

fallow_status flw_arena_await_all(fallow_arena *arena, bool spares_named)
{
    fallow_status status = FALLOW_OK;
    for (size_t i = 0; status == FALLOW_OK && i <= arena->debt_count; i++) {
        const struct flw_arena_mark *mark = i < arena->debt_count ? &arena->debts[i] : &arena->last;
        if (!spares_named || !flw_arena_can_name(arena, mark)) {
            status = flw_arena_await(arena, mark);
        }
    }
    return status;
}

/* ---- captures */

static void add_debt(fallow_arena *arena, const struct flw_arena_mark *mark)
{
    size_t i = 0;
    while (i < arena->debt_count && arena->debts[i].domain != mark->domain) {
        i++;
    }
    if (mark->domain != NULL) {
        arena->debts[i] =
            *mark; /* if the domain served another stream before, that stream's work is complete */
        arena->debt_count += i == arena->debt_count;
    }
}

bool flw_arena_is_pinned(fallow_arena *arena)
{
    size_t kept = 0, count = atomic_load_explicit(&arena->pin_count, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        if (flw_capture_lives(arena->pins[i].capture)) {
            arena->pins[kept++] = arena->pins[i];
        } else {
            add_debt(arena, &arena->pins[i].origin);
        }
    }
    atomic_store_explicit(&arena->pin_count, kept, memory_order_relaxed);
    return kept > 0;
}

size_t flw_arena_graph_count(const fallow_arena *arena)
{
    return FLW_MUTANT(ARENA_MOVES_UNDER_GRAPHS)
               ? 0
               : atomic_load_explicit(&arena->pin_count, memory_order_relaxed);
}

void flw_arena_forget_pins(fallow_arena *arena)
{
    size_t count = atomic_load_explicit(&arena->pin_count, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        add_debt(arena, &arena->pins[i].origin);
    }
    atomic_store_explicit(&arena->pin_count, 0, memory_order_relaxed);
}

/* Make room for debts when pins are made, so that a release of a pin cannot fail. */
static bool make_room(fallow_arena *arena, size_t pins, size_t debts)
{
    if (pins > arena->pin_room) {
        struct flw_arena_pin *room = realloc(arena->pins, 2 * pins * sizeof *room);
        if (room == NULL) {
            return false;
        }
        arena->pins = room;
        arena->pin_room = 2 * pins;
    }
    if (debts > arena->debt_room) {
        struct flw_arena_mark *room = realloc(arena->debts, 2 * debts * sizeof *room);
        if (room == NULL) {
            return false;
        }
        arena->debts = room;
        arena->debt_room = 2 * debts;
    }
    return true;
}

fallow_status flw_arena_pin(fallow_arena *arena, const fallow_capture *capture, size_t bytes)
{
    size_t count = atomic_load_explicit(&arena->pin_count, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        if (arena->pins[i].capture == capture) {
            arena->pins[i].bytes = flw_max(arena->pins[i].bytes, bytes);
            return FALLOW_OK;
        }
    }
    if (!make_room(arena, count + 1, count + 1 + arena->debt_count)) {
        return flw_arena_refuse(arena, FALLOW_OUT_OF_HOST_MEMORY,
                                "no host memory to record a capture");
    }
    struct flw_domain *origin = flw_capture_origin(arena->pool, capture);
    arena->pins[count] = (struct flw_arena_pin){
        .capture = capture,
        .bytes = bytes,
        .origin = {.domain = origin,
                   .stream_number = origin == NULL ? 0 : origin->stream_number,
                   .stream = origin == NULL ? NULL : origin->stream}};
    atomic_store_explicit(&arena->pin_count, count + 1, memory_order_relaxed);
    return FALLOW_OK;
}

/* ---- is an order needed? */

bool flw_arena_looks_for_captures(fallow_arena *arena, fallow_stream stream)
{
    struct flw_pool *pool = arena->pool;
    bool may_be_unseen = pool->announce != NULL && pool->announce(pool, stream);
    return may_be_unseen || arena->asks_captures || flw_captures_are_open();
}

bool flw_arena_is_known_in_order(fallow_arena *arena, fallow_stream stream, bool looks)
{
    return flw_arena_is_in_order(arena, stream) &&
           (!looks || flw_capture_check(arena->pool, arena->last.domain) == FALLOW_OK);
}

void flw_arena_note_order(fallow_arena *arena, const struct flw_arena_mark *mark, uint64_t changes,
                          bool looks)
{
    bool is_sure = arena->checks == 0 && !mark->domain->own_thread_only &&
                   !flw_pool_asks_identity(arena->pool);
    FLW_ASSERT(arena->debt_count == 0);
    arena->lease.capture = NULL;
    arena->order_changes = changes;
    arena->looks =
        (is_sure ? 0 : FLW_ARENA_LOOKS_AT_ORDER) | (looks ? FLW_ARENA_LOOKS_FOR_CAPTURES : 0);
}

/* ---- graphs */

/* Slow half of fallow_lease_guard: the launch is not on the stream of `last`. */
static fallow_status guard(fallow_arena *arena, fallow_stream stream, uint64_t changes, bool looks)
{
    struct flw_pool *pool = arena->pool;
    const char *why;
    fallow_status status;
    arena->looks |= FLW_ARENA_LOOKS_AT_ORDER;
    struct flw_arena_mark mark = flw_arena_mark_of(arena, stream, &status), last = arena->last;
    if (mark.domain != NULL) {
        status = flw_capture_of(pool, stream) != NULL ? FALLOW_CAPTURING
                                                      : flw_capture_check(pool, mark.domain);
    }
    if (status != FALLOW_OK) {
        return flw_arena_refuse(
            arena, status, "the launch cannot be guarded on this stream: %s",
            status == FALLOW_CAPTURING
                ? "the stream is being captured; guard launches outside of captures"
                : fallow_status_message(status));
    }
    (void)flw_arena_is_pinned(arena);
    if ((status = flw_arena_notice_sleep(arena)) != FALLOW_OK) {
        return status;
    }
    if ((status = flw_arena_order(arena, &mark, &why)) != FALLOW_OK) {
        return status == FALLOW_CAPTURING ? flw_arena_refuse(arena, status, "%s", why) : status;
    }
    flw_arena_note_order(arena, &mark, changes, looks);
    if (FLW_MUTANT(ARENA_FORGETS_LAUNCH)) {
        arena->last = last;
    }
    return FALLOW_OK;
}

fallow_status fallow_lease_guard(fallow_arena *arena, fallow_stream stream)
{
    fallow_status status = flw_arena_enter(&arena);
    if (status != FALLOW_OK) {
        return status;
    }
    uint64_t changes = flw_arena_order_changes(arena);
    bool looks = flw_arena_looks_for_captures(arena, stream);
    if (!flw_arena_is_known_in_order(arena, stream, looks)) {
        status = guard(arena, stream, changes, looks);
    }
    if (status == FALLOW_OK && flw_arena_must_wake(arena)) {
        status = flw_arena_wake(arena, NULL, stream);
    }
    if (status == FALLOW_OK && arena->check != NULL) {
        flw_arena_check_between(arena, stream);
    }
    flw_arena_release_claim(arena);
    return status;
}
