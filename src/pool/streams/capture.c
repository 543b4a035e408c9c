/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: graph captures, which are always announced. Each stream of a capture has an order domain
 * of the capture, supplied with unowned or new memory: a graph runs later, possibly elsewhere, so
 * memory that a stream still orders must not enter the capture, and the memory must not leave
 * before release. */
#include "pool/streams/capture.h"

#include "base/backoff.h"
#include "base/mutant.h"
#include "heap/order/sync.h"
#include "pool/state/extension.h"
#include "pool/state/table.h"
#include "pool/streams/cache.h"
#include "pool/streams/streams.h"
#include "pool/streams/uses.h"

/* Unreleased captures of all pools; the places are the private pools of a trace. */
static struct flw_handle_place places[4096];
static struct flw_handles table = FLW_HANDLES(FLW_HANDLE_CAPTURE, places);
static struct flw_capture captures[sizeof places / sizeof *places]; /* one per place */

/* Return a capture by index. Heap lock held, while a stream is captured or a domain is a
 * capture's. */
static struct flw_capture *capture_at(uint32_t index)
{
    return &captures[index - 1];
}

fallow_capture *flw_capture_of(struct flw_pool *pool, fallow_stream stream)
{
    fallow_capture *handle = NULL;
    fallow_status status;
    if (atomic_load(&pool->open_captures) == 0) {
        return NULL;
    }
    const struct flw_domain *domain = flw_pool_domain(pool, stream, &status);
    if (domain != NULL) {
        flw_lock_acquire(&pool->heap.lock);
        if (domain->captured_by != 0) {
            handle = capture_at(domain->captured_by)->handle;
        }
        flw_lock_release(&pool->heap.lock);
    }
    return handle;
}

struct flw_domain *flw_capture_origin(struct flw_pool *pool, const fallow_capture *handle)
{
    const struct flw_capture *capture = flw_handles_enter(&table, handle);
    struct flw_domain *origin = NULL;
    if (capture == NULL) {
        return NULL;
    }
    if (capture->pool == pool) {
        flw_lock_acquire(&pool->heap.lock);
        origin = capture->is_capturing ? capture->stream_domains[0] : NULL;
        flw_lock_release(&pool->heap.lock);
    }
    flw_handles_leave(&table, handle);
    return origin;
}

bool flw_capture_lives(const fallow_capture *handle)
{
    return flw_handles_find(&table, handle) != NULL;
}

/* Captures end under the heap lock: while a stream has a capture's index, the place is that
 * capture's. Heap lock held. */
static struct flw_domain *domain_in(const struct flw_capture *capture,
                                    const struct flw_domain *stream_domain)
{
    uint32_t i = 0;
    while (capture->stream_domains[i] != stream_domain) {
        i++;
        FLW_ASSERT(i < capture->stream_count);
    }
    return capture->domains[i];
}

struct flw_domain *flw_capture_enter(struct flw_pool *pool, const struct flw_domain *stream_domain)
{
    struct flw_domain *domain = NULL;
    flw_lock_acquire(&pool->heap.lock);
    if (stream_domain->captured_by != 0) {
        struct flw_capture *capture = capture_at(stream_domain->captured_by);
        domain = domain_in(capture, stream_domain);
        capture->inside_count++;
    }
    flw_lock_release(&pool->heap.lock);
    return domain;
}

fallow_status flw_capture_check(struct flw_pool *pool, struct flw_domain *domain)
{
    if (domain->ops != &flw_order_stream) {
        return FALLOW_OK;
    }
    return flw_heap_is_lost(&pool->heap) ? FALLOW_DEVICE_LOST
                                         : flw_domain_ask_capture(&pool->heap, domain);
}

/* Prevent new fences of the domain; a record under way on another thread must not become part of
 * the capture. */
static void await_record(struct flw_heap *heap, const struct flw_domain *domain)
{
    struct flw_backoff backoff = {0};
    for (bool is_recording = !FLW_MUTANT(CAPTURE_AWAITS_NO_RECORD); is_recording;) {
        flw_lock_acquire(&heap->lock);
        is_recording = domain->is_recording;
        flw_lock_release(&heap->lock);
        if (is_recording) {
            flw_backoff_wait(&backoff);
        }
    }
}

/* Return the place of a stream's domain in the capture, or the new place; FLW_CAPTURE_STREAMS:
 * full. Heap lock held. */
static uint32_t place_in(const struct flw_capture *capture, const struct flw_domain *domain)
{
    uint32_t i = 0;
    while (i < capture->stream_count && capture->stream_domains[i] != domain) {
        i++;
    }
    return i;
}

/* Create one more domain of the capture, allocated from as `like`. NULL: no host memory. Heap lock
 * held. */
static struct flw_domain *make_domain(struct flw_heap *heap, const struct flw_capture *capture,
                                      const struct flw_domain *like)
{
    struct flw_domain *domain =
        flw_domain_create(heap, &flw_order_capture, like->stream, like->context, like->id);
    if (domain != NULL) {
        domain->capture = capture->index;
        domain->stream_number = like->stream_number;
    }
    return domain;
}

/* Return the capture's domain for a stream's; a stream that took part before a resume gets the
 * former one. NULL: no host memory. Heap lock held. */
static struct flw_domain *take_place(struct flw_heap *heap, struct flw_capture *capture,
                                     uint32_t place, struct flw_domain *domain)
{
    if (place < capture->stream_count) {
        return capture->domains[place];
    }
    struct flw_domain *own = make_domain(heap, capture, domain);
    if (own != NULL) {
        capture->stream_domains[place] = domain;
        capture->domains[place] = own;
        capture->stream_count++;
        domain->capture_count++;
    }
    return own;
}

/* Before the stream is captured, record a fence over all memory that the stream has freed: once
 * complete, this memory serves captures, inside of which the stream can be neither recorded on nor
 * queried. Does nothing if the stream is being captured. Makes driver calls. */
static void fence_before(struct flw_pool *pool, struct flw_domain *domain)
{
    struct flw_driver_section section;
    struct flw_heap *heap = &pool->heap;
    bool is_covered = false;
    flw_heap_hold_driver(heap, &section);
    if (flw_capture_check(pool, domain) == FALLOW_OK) {
        (void)flw_pool_drain(pool, NULL, domain);
        flw_lock_acquire(&heap->lock);
        flw_domain_want_fence(heap, domain, 1); /* leases free nothing */
        flw_lock_release(&heap->lock);
        is_covered = flw_domain_fence_own(heap, domain) == FALLOW_OK;
        is_covered = flw_domain_clear(heap, domain) == FALLOW_OK && is_covered;
    }
    flw_heap_leave_driver(heap, &section);
    flw_lock_acquire(&heap->lock);
    if (domain->captured_by == 0) {
        is_covered = is_covered && !domain->is_recording && domain->unfenced_bytes == 0;
        domain->captured_seq = is_covered ? domain->seq - 1 : 0;
    }
    flw_lock_release(&heap->lock);
}

_Static_assert(FLW_CAPTURE_STREAMS <= 32, "fallow_capture_end keeps a bit for each");

static fallow_status join(struct flw_capture *capture, fallow_stream stream)
{
    struct flw_pool *pool = capture->pool;
    struct flw_heap *heap = &pool->heap;
    fallow_status status;
    struct flw_domain *domain = flw_pool_domain(pool, stream, &status);
    if (domain == NULL) {
        flw_pool_note_loss(pool);
        return status;
    }
    fence_before(pool, domain); /* while recording is still possible */
    flw_uses_fence_late(pool);  /* nothing, if the previous fence covers the uses */
    flw_lock_acquire(&heap->lock);
    uint32_t place = place_in(capture, domain);
    status = !capture->is_capturing                  ? FALLOW_INVALID_CAPTURE
             : domain->captured_by == capture->index ? FALLOW_OK
             : domain->captured_by != 0              ? FALLOW_BUSY
             : place == FLW_CAPTURE_STREAMS          ? FALLOW_BUSY
                                                     : FALLOW_WOULD_WAIT;
    if (status != FALLOW_WOULD_WAIT) {
        flw_lock_release(&heap->lock);
        return status;
    }
    struct flw_domain *own = take_place(heap, capture, place, domain);
    if (own != NULL) {
        __atomic_store_n(&domain->captured_by, capture->index, __ATOMIC_RELEASE);
    }
    flw_lock_release(&heap->lock);
    if (own == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    await_record(heap, domain);
    if (!FLW_MUTANT(CAPTURE_NOT_DIVERTED)) {
        flw_pool_divert(pool, domain);
    }
    flw_pool_tell(pool, FLW_TRACE_POOL_BEGIN, domain,
                  (struct flw_event){.capture = capture->index});
    return FALLOW_OK;
}

/* From here on no pool of the process synchronises the context. */
static void open_one(struct flw_pool *pool)
{
    atomic_fetch_add(&pool->open_captures, 1);
    flw_ctxsync_announce(&pool->driver, pool->heap.context);
}

static void close_one(struct flw_pool *pool)
{
    flw_ctxsync_retract(&pool->driver, pool->heap.context);
    atomic_fetch_sub(&pool->open_captures, 1);
}

static fallow_status begin(struct flw_pool *pool, fallow_stream stream,
                           fallow_capture **out_capture)
{
    fallow_capture *handle = flw_handles_take(&table);
    if (handle == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    uint32_t place = flw_handle_place(handle);
    struct flw_capture *capture = &captures[place];
    *capture = (struct flw_capture){
        .pool = pool, .handle = handle, .index = place + 1, .is_capturing = true};
    open_one(pool);
    flw_handles_publish(&table, handle, capture);
    fallow_status status = join(capture, stream);
    if (status != FALLOW_OK) {
        (void)flw_handles_drop(&table, handle);
        close_one(pool);
        flw_handles_free(&table, handle);
        return status;
    }
    *out_capture = handle;
    return FALLOW_OK;
}

fallow_status fallow_capture_begin(fallow_pool *handle, fallow_stream stream,
                                   fallow_capture **out_capture)
{
    struct flw_pool *pool = flw_pool_of(handle);
    if (out_capture == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_capture = NULL;
    if (pool == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (flw_heap_is_lost(&pool->heap)) {
        return FALLOW_DEVICE_LOST;
    }
    if (flw_pool_has_epochs(pool)) {
        return FALLOW_NOT_SUPPORTED;
    }
    fallow_status status = flw_gate_enter(&pool->gate, true);
    if (status != FALLOW_OK) {
        return status;
    }
    status = begin(pool, stream, out_capture);
    flw_gate_leave(&pool->gate);
    return status;
}

/* Count free memory of the capture as idle, or stop counting it. Heap lock held. */
static void count_idle(struct flw_capture *capture, bool is_idle)
{
    struct flw_pool *pool = capture->pool;
    atomic_fetch_sub_explicit(&pool->captured_idle_bytes, capture->idle_bytes,
                              memory_order_relaxed);
    capture->idle_bytes = 0;
    for (uint32_t i = 0; is_idle && i < capture->stream_count; i++) {
        capture->idle_bytes += flw_domain_run_bytes(capture->domains[i]);
    }
    atomic_fetch_add_explicit(&pool->captured_idle_bytes, capture->idle_bytes,
                              memory_order_relaxed);
}

static fallow_status resume(struct flw_capture *capture, fallow_stream stream)
{
    struct flw_pool *pool = capture->pool;
    flw_lock_acquire(&pool->heap.lock);
    bool is_capturing = capture->is_capturing;
    capture->is_capturing = true;
    count_idle(capture, false);
    flw_lock_release(&pool->heap.lock);
    if (is_capturing) {
        return FALLOW_BUSY;
    }
    open_one(pool);
    fallow_status status = join(capture, stream);
    if (status != FALLOW_OK) {
        flw_lock_acquire(&pool->heap.lock);
        capture->is_capturing = false;
        count_idle(capture, true);
        flw_lock_release(&pool->heap.lock);
        close_one(pool);
    }
    return status;
}

/* Resume through the gate of the pool. */
static fallow_status enter_and_resume(struct flw_capture *capture, fallow_stream stream)
{
    struct flw_gate *gate = &capture->pool->gate;
    if (flw_heap_is_lost(&capture->pool->heap)) {
        return FALLOW_DEVICE_LOST;
    }
    fallow_status status = flw_gate_enter(gate, true);
    if (status == FALLOW_OK) {
        status = resume(capture, stream);
        flw_gate_leave(gate);
    }
    return status;
}

fallow_status flw_capture_resume(fallow_capture *handle, fallow_stream stream)
{
    struct flw_capture *capture = flw_handles_enter(&table, handle);
    if (capture == NULL) {
        return FALLOW_INVALID_CAPTURE;
    }
    fallow_status status = enter_and_resume(capture, stream);
    flw_handles_leave(&table, handle);
    return status;
}

static bool is_under_way(const struct flw_capture *capture)
{
    flw_lock_acquire(&capture->pool->heap.lock);
    bool is_capturing = capture->is_capturing;
    flw_lock_release(&capture->pool->heap.lock);
    return is_capturing;
}

fallow_status fallow_capture_join(fallow_capture *handle, fallow_stream stream)
{
    struct flw_capture *capture = flw_handles_enter(&table, handle);
    if (capture == NULL) {
        return FALLOW_INVALID_CAPTURE;
    }
    fallow_status status = !is_under_way(capture)                   ? FALLOW_INVALID_CAPTURE
                           : flw_heap_is_lost(&capture->pool->heap) ? FALLOW_DEVICE_LOST
                                                                    : join(capture, stream);
    flw_handles_leave(&table, handle);
    return status;
}

struct flw_domain *flw_capture_home_of(struct flw_pool *pool, struct flw_domain *domain,
                                       struct flw_domain *freeing, bool has_uses)
{
    struct flw_capture *capture = capture_at(domain->capture);
    if (capture->is_released) {
        return freeing; /* while an allocation is still inside */
    }
    if (!capture->is_capturing) {
        return domain; /* over: nothing new is allocated from it */
    }
    if (!has_uses && freeing->captured_by == capture->index) {
        return domain_in(capture, freeing);
    }
    if (capture->kept == NULL) {
        capture->kept = make_domain(&pool->heap, capture, domain);
    }
    return capture->kept;
}

/* Queue a parked block, which has no points: it returns to the stream, which may have been
 * destroyed, marked with the present sequence number. Heap lock held. */
static void unpark(struct flw_heap *heap, struct flw_deferred *parked)
{
    struct flw_domain *domain = heap->domains[parked->domain];
    parked->own_seq = domain->seq;
    flw_domain_want_fence(heap, domain, 1);
    flw_heap_queue_deferred(heap, parked);
}

fallow_status flw_capture_park(struct flw_pool *pool, struct flw_domain *domain,
                               struct flw_slot *slot)
{
    struct flw_span *span = flw_slot_span(&pool->heap.map, slot);
    flw_lock_acquire(&pool->heap.lock);
    struct flw_deferred *parked = flw_heap_new_deferred(&pool->heap);
    uint32_t index = domain->captured_by;
    if (parked != NULL) {
        *parked = (struct flw_deferred){
            .slot = slot, .domain = domain->index, .bytes = flw_span_usable_bytes(span)};
        pool->heap.deferred_bytes += parked->bytes;
        pool->heap.deferred_count++;
        if (index != 0) {
            parked->next = capture_at(index)->parked;
            capture_at(index)->parked = parked;
        } else { /* another thread has just ended the capture */
            unpark(&pool->heap, parked);
            (void)flw_heap_return_deferred(&pool->heap);
        }
    }
    flw_lock_release(&pool->heap.lock);
    return FALLOW_OK;
}

static fallow_status end(struct flw_capture *capture)
{
    struct flw_pool *pool = capture->pool;
    flw_lock_acquire(&pool->heap.lock);
    if (!capture->is_capturing) {
        flw_lock_release(&pool->heap.lock);
        return FALLOW_INVALID_CAPTURE;
    }
    capture->is_capturing = false;
    count_idle(capture, true);
    /* Bits: streams that took part before a resume may be in another capture now. */
    uint32_t joined = 0;
    for (uint32_t i = 0; i < capture->stream_count; i++) {
        struct flw_domain *domain = capture->stream_domains[i];
        if (domain->captured_by == capture->index) {
            __atomic_store_n(&domain->captured_by, 0, __ATOMIC_RELEASE);
            if (domain->unfenced_bytes > 0 && !FLW_MUTANT(CAPTURE_END_FORGETS_FENCE)) {
                flw_domain_owe(&pool->heap, domain); /* none could be recorded meanwhile */
            }
            joined |= 1u << i;
        }
    }
    while (capture->parked != NULL) {
        struct flw_deferred *parked = capture->parked;
        capture->parked = parked->next;
        unpark(&pool->heap, parked);
    }
    (void)flw_heap_return_deferred(&pool->heap);
    flw_lock_release(&pool->heap.lock);
    for (uint32_t i = 0; i < capture->stream_count; i++) {
        if ((joined >> i & 1) != 0) {
            flw_pool_divert(pool, capture->stream_domains[i]);
            flw_pool_tell(pool, FLW_TRACE_POOL_END, capture->stream_domains[i],
                          (struct flw_event){.capture = capture->index});
        }
    }
    close_one(pool);
    return FALLOW_OK;
}

fallow_status fallow_capture_end(fallow_capture *handle)
{
    struct flw_capture *capture = flw_handles_enter(&table, handle);
    if (capture == NULL) {
        return FALLOW_INVALID_CAPTURE;
    }
    fallow_status status = end(capture);
    flw_handles_leave(&table, handle);
    return status;
}

/* Heap lock held. */
static void release_domain(struct flw_heap *heap, struct flw_domain *from, struct flw_domain *to)
{
    for (unsigned c = 0; c < FLW_CLASS_COUNT; c++) {
        flw_heap_carve_rest(heap, from, c);
    }
    flw_heap_move_slots(heap, from, to);
    for (struct flw_span *run;
         (run = from->runs.oldest != NULL ? from->runs.oldest : from->dedicated_runs.oldest) !=
         NULL;) {
        flw_run_unindex(heap, run);
        run->u.run.state = FLW_RUN_BUSY;
        flw_heap_put_run_at_point(heap, to->index, flw_domain_free_seq(to), run);
    }
    flw_domain_want_fence(heap, to, 1);
    from->capture = 0;
    /* Memory with the points also gets the new owner's. An open point would let memory return to a
     * place that belongs to another domain when the last captured block is freed. */
    if (from->captured_live > 0) {
        from->ops = &flw_order_released;
        from->completed = from->seq++;
    } else {
        flw_places_vacate(&heap->places, from);
    }
}

/* Heap lock held. */
static void release_memory(struct flw_heap *heap, const struct flw_capture *capture)
{
    struct flw_domain *to = capture->stream_domains[0];
    if (FLW_MUTANT(CAPTURE_RELEASED_UNOWNED)) {
        to = heap->domains[FLW_UNOWNED];
    }
    if (capture->kept != NULL) {
        release_domain(heap, capture->kept, to);
    }
    for (uint32_t i = capture->stream_count;
         i-- > 0;) { /* `to` keeps the place until all memory has arrived */
        release_domain(heap, capture->domains[i], to);
        capture->stream_domains[i]->capture_count--;
        flw_domain_free_place(heap, capture->stream_domains[i]);
    }
}

/* Refuse the handle before the place can be free. True: no thread is inside. Heap lock held. */
static bool begin_release(struct flw_capture *capture)
{
    (void)flw_handles_drop(&table, capture->handle);
    capture->is_released = true;
    return capture->inside_count == 0;
}

static fallow_status release(struct flw_capture *capture)
{
    struct flw_heap *heap = &capture->pool->heap;
    struct flw_domain *origin = capture->stream_domains[0];
    flw_lock_acquire(&heap->lock);
    fallow_status status = capture->is_released    ? FALLOW_INVALID_CAPTURE
                           : capture->is_capturing ? FALLOW_BUSY
                                                   : FALLOW_OK;
    if (status == FALLOW_OK) {
        count_idle(capture, false);
    }
    bool is_last = status == FALLOW_OK && begin_release(capture);
    if (is_last) {
        release_memory(heap, capture);
    }
    flw_lock_release(&heap->lock);
    if (is_last) {
        flw_handles_free(&table, capture->handle);
        /* A later capture, possibly announced too late for fence_before, finds the memory
         * complete. */
        flw_domain_fence_cleared(heap, origin);
    }
    return status;
}

fallow_status fallow_capture_release(fallow_capture *handle)
{
    struct flw_capture *capture = flw_handles_enter(&table, handle);
    if (capture == NULL) {
        return FALLOW_INVALID_CAPTURE;
    }
    struct flw_pool *pool = capture->pool;
    fallow_status status = release(capture);
    atomic_fetch_add_explicit(&pool->heap.count.order_changes, 1, memory_order_release);
    flw_handles_leave(&table, handle);
    return status;
}

void flw_capture_leave(struct flw_pool *pool, const struct flw_domain *domain)
{
    flw_lock_acquire(&pool->heap.lock);
    struct flw_capture *capture = capture_at(domain->capture);
    bool is_last = --capture->inside_count == 0 && capture->is_released;
    if (is_last) {
        release_memory(&pool->heap, capture);
    }
    flw_lock_release(&pool->heap.lock);
    if (is_last) {
        flw_handles_free(&table, capture->handle);
    }
}

/* ---- the end of a pool */

static void forget(void *object, void *context)
{
    struct flw_capture *capture = object;
    struct flw_pool *pool = context;
    if (capture->pool != pool) {
        return;
    }
    flw_lock_acquire(&pool->heap.lock);
    bool is_mine = !capture->is_released, is_capturing = capture->is_capturing;
    bool is_last = is_mine && begin_release(capture);
    flw_lock_release(&pool->heap.lock);
    if (is_mine && is_capturing) {
        flw_ctxsync_retract(&pool->driver, pool->heap.context);
    }
    if (is_last) {
        flw_handles_free(&table, capture->handle);
    }
}

void flw_captures_forget(struct flw_pool *pool)
{
    flw_handles_each(&table, forget, pool);
}

void flw_captures_forget_all(void)
{
    flw_handles_forget(&table);
}
