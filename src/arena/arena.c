/* SPDX-License-Identifier: Apache-2.0 */
#include "arena/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mutant.h"
#include "base/sized.h"
#include "heap/space/run.h"
#include "pool/calls/alloc.h"

#define ALL_CHECKS \
    (FALLOW_ARENA_CHECK_POISON | FALLOW_ARENA_CHECK_RED_ZONES | FALLOW_ARENA_CHECK_WRITTEN)

FLW_DEFINE_INIT_SIZED(fallow_arena_config)
FLW_DEFINE_INIT_SIZED(fallow_arena_stats)

struct flw_handle_place flw_arena_places[FLW_ARENAS_MOST];
static struct flw_handles table = FLW_HANDLES(FLW_HANDLE_ARENA, flw_arena_places);

static void keep(fallow_arena *arena, fallow_log_level level, const char *format, va_list arguments)
{
    char sentence[sizeof arena->message];
    int used = snprintf(sentence, sizeof sentence, "arena '%s': ", arena->name);
    vsnprintf(sentence + used, sizeof sentence - (size_t)used, format, arguments);
    pthread_mutex_lock(&arena->lock);
    memcpy(arena->message, sentence, sizeof sentence);
    pthread_mutex_unlock(&arena->lock);
    if (arena->log != NULL) {
        arena->log(arena->log_context, level, sentence);
    }
}

void flw_arena_say(fallow_arena *arena, fallow_log_level level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    keep(arena, level, format, arguments);
    va_end(arguments);
}

fallow_status flw_arena_refuse(fallow_arena *arena, fallow_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    keep(arena, FALLOW_LOG_WARNING, format, arguments);
    va_end(arguments);
    atomic_fetch_add_explicit(&arena->refuse_count, 1, memory_order_relaxed);
    return status;
}

void fallow_arena_last_error(fallow_arena *arena, char *out_text, size_t text_bytes)
{
    arena = flw_arena_of(arena);
    if (out_text != NULL && text_bytes > 0) {
        out_text[0] = '\0';
        if (arena != NULL) {
            pthread_mutex_lock(&arena->lock);
            snprintf(out_text, text_bytes, "%s", arena->message);
            pthread_mutex_unlock(&arena->lock);
        }
    }
}

/* ---- the claim */

/* lock. Claim an idle arena, or mark a claimed one as awaited. Returns the previous state. */
static int claim_or_mark(fallow_arena *arena)
{
    int state = FLW_ARENA_IDLE;
    while (!atomic_compare_exchange_weak_explicit(
        &arena->state, &state,
        state == FLW_ARENA_IDLE ? FLW_ARENA_LEASED : state | FLW_ARENA_AWAITED,
        memory_order_acquire, memory_order_relaxed)) {
    }
    return state;
}

/* lock. Remove a waiter after the limit. */
static void leave_queue(fallow_arena *arena, const struct flw_arena_waiter *waiter)
{
    struct flw_arena_waiter **link = &arena->waiters;
    while (*link != waiter) {
        link = &(*link)->next;
    }
    *link = waiter->next;
    if (arena->waiters == NULL) {
        (void)atomic_fetch_and_explicit(&arena->state, ~FLW_ARENA_AWAITED, memory_order_relaxed);
    }
}

/* lock, released while asleep. Sleep until the claim is passed to the waiter, at most wait_ms; return whether it was.
 * */
static bool sleep_in_queue(fallow_arena *arena, struct flw_arena_waiter *waiter, uint32_t wait_ms)
{
    uint64_t end_ns =
        wait_ms == UINT32_MAX ? UINT64_MAX : flw_clock_fine_ns() + wait_ms * UINT64_C(1000000);
    uint64_t now_ns = 0;
    while (flw_wakeup_count(&waiter->wakeup) == 0 && (now_ns = flw_clock_fine_ns()) < end_ns) {
        pthread_mutex_unlock(&arena->lock);
        flw_wakeup_wait(&waiter->wakeup, 0, end_ns - now_ns);
        pthread_mutex_lock(&arena->lock);
    }
    return flw_wakeup_count(&waiter->wakeup) != 0;
}

static bool refuse_busy(fallow_arena *arena, int state)
{
    (void)flw_arena_refuse(arena, FALLOW_BUSY, "%s",
                           (state & ~FLW_ARENA_AWAITED) == FLW_ARENA_AT_WORK
                               ? "another thread is inside a call of the arena"
                               : "a lease is open; end it first");
    return false;
}

bool flw_arena_claim(fallow_arena *arena, enum flw_arena_state to)
{
    int idle = FLW_ARENA_IDLE;
    return FLW_LIKELY(atomic_compare_exchange_strong_explicit(
               &arena->state, &idle, (int)to, memory_order_acquire, memory_order_relaxed)) ||
           refuse_busy(arena, idle);
}

bool flw_arena_claim_in_turn(fallow_arena *arena, uint32_t wait_ms)
{
    struct flw_arena_waiter waiter = {0};
    pthread_mutex_lock(&arena->lock);
    int state = claim_or_mark(arena);
    bool is_claimed = state == FLW_ARENA_IDLE;
    if (!is_claimed) {
        struct flw_arena_waiter **link = &arena->waiters;
        while (*link != NULL) {
            link = &(*link)->next;
        }
        *link = &waiter;
        is_claimed = sleep_in_queue(arena, &waiter, wait_ms);
        if (!is_claimed) {
            leave_queue(arena, &waiter);
        }
    }
    pthread_mutex_unlock(&arena->lock);
    return is_claimed || refuse_busy(arena, state);
}

static void free_arena(fallow_arena *arena);

/* Slow half of flw_arena_release_claim. A claim that passes to a waiter is never released, so no other begin overtakes. */
static FLW_NOINLINE void release_contended(fallow_arena *arena)
{
    pthread_mutex_lock(&arena->lock);
    struct flw_arena_waiter *first = arena->waiters;
    int state = atomic_load_explicit(&arena->state, memory_order_relaxed), to = FLW_ARENA_IDLE;
    if (first != NULL) {
        arena->waiters = first->next;
        to = FLW_ARENA_LEASED | (first->next != NULL ? FLW_ARENA_AWAITED : 0);
    }
    bool is_over = state == FLW_ARENA_DOOMED ||
                   !atomic_compare_exchange_strong_explicit(
                       &arena->state, &state, to, memory_order_acq_rel, memory_order_acquire);
    if (first != NULL) {
        flw_wakeup_signal(&first->wakeup);
    }
    pthread_mutex_unlock(&arena->lock);
    if (is_over) {
        free_arena(arena);
    }
}

void flw_arena_release_claim(fallow_arena *arena)
{
    int state = atomic_load_explicit(&arena->state, memory_order_relaxed);
    if (FLW_UNLIKELY(state > FLW_ARENA_AT_WORK ||
                     !atomic_compare_exchange_strong_explicit(&arena->state, &state, FLW_ARENA_IDLE,
                                                              memory_order_acq_rel,
                                                              memory_order_acquire))) {
        release_contended(arena);
    }
}

/* ---- memory */

static fallow_request request_of(const fallow_arena *arena, size_t bytes, size_t align_bytes)
{
    fallow_request request;
    fallow_request_init(&request);
    request.size_bytes = bytes;
    request.align_bytes = align_bytes;
    request.tag = arena->tag;
    return request;
}

fallow_status flw_arena_take(fallow_arena *arena, size_t bytes, size_t align_bytes,
                             fallow_stream stream, void **out_block)
{
    fallow_request request = request_of(arena, bytes, align_bytes);
    return fallow_alloc_request(arena->handle, &request, stream, out_block);
}

fallow_status flw_arena_take_scratch(fallow_arena *arena, struct flw_growable *growable,
                                     size_t bytes, size_t align_bytes, fallow_stream stream,
                                     void **out_block)
{
    fallow_request request = request_of(arena, bytes, align_bytes);
    fallow_status status = flw_pool_grow(arena->pool, growable, &request, stream);
    if (status == FALLOW_OK) {
        *out_block = (void *)(uintptr_t)flw_run_address(&arena->pool->heap, growable->block);
    } else if (growable->block == NULL) { /* free memory may still serve an ordinary block */
        status = flw_arena_take(arena, bytes, align_bytes, stream, out_block);
    }
    return status;
}

fallow_status flw_arena_cut_scratch(fallow_arena *arena, size_t bytes, fallow_stream stream)
{
    fallow_request request = request_of(arena, bytes, 0);
    flw_arena_check_release(arena);
    fallow_status status = flw_pool_cut(arena->pool, &arena->growable, &request, stream);
    if (status == FALLOW_OK) {
        arena->last_layout_id = 0; /* scratch may be too small for that layout */
        arena->scratch_bytes = bytes;
        atomic_store_explicit(&arena->held_scratch_bytes, bytes, memory_order_relaxed);
    }
    return status;
}

/* Free on the stream of `last` and announce the debts as uses. Wait on the host for streams that cannot be named. */
void flw_arena_free_block(fallow_arena *arena, void *block)
{
    fallow_stream stream = NULL;
    fallow_status status = FALLOW_OK;
    if (flw_arena_can_name(arena, &arena->last)) {
        stream = arena->last.stream;
    } else {
        status = flw_arena_await(arena, &arena->last);
    }
    for (size_t i = 0; status == FALLOW_OK && i < arena->debt_count; i++) {
        const struct flw_arena_mark *debt = &arena->debts[i];
        if (!flw_arena_can_name(arena, debt) ||
            fallow_record_use(arena->handle, block, debt->stream) != FALLOW_OK) {
            status = flw_arena_await(arena, debt);
        }
    }
    if (status == FALLOW_OK) {
        status = fallow_free(arena->handle, block, stream);
    }
    if (status != FALLOW_OK) {
        flw_arena_say(arena, FALLOW_LOG_ERROR,
                      "a block stays allocated until its pool is destroyed: %s",
                      fallow_status_message(status));
    }
}

void flw_arena_free_scratch(fallow_arena *arena)
{
    if (arena->scratch != NULL) {
        flw_growable_end(&arena->pool->heap, &arena->growable);
        flw_arena_check_release(arena);
        flw_arena_free_block(arena, arena->scratch);
        arena->scratch = NULL;
        arena->scratch_bytes = 0;
        atomic_store_explicit(&arena->held_scratch_bytes, 0, memory_order_relaxed);
        arena->last_layout_id = 0; /* the next scratch may not fit that layout */
    }
}

/* ---- life */

/* Copy the config with defaults. INVALID_ARGUMENT: unknown check bits. */
static fallow_status accept_config(const fallow_arena_config *given, fallow_arena_config *config)
{
    *config = (fallow_arena_config){.struct_size = sizeof *config};
    fallow_status status =
        given == NULL ? FALLOW_OK : flw_struct_accept(config, sizeof *config, given);
    if (status == FALLOW_OK && (config->checks & ~(uint32_t)ALL_CHECKS) != 0) {
        status = FALLOW_INVALID_ARGUMENT;
    }
    return status;
}

/* Take the handles of the arena and of the leases. Returns false if no place is left for another arena. */
static bool name_arena(fallow_arena *arena)
{
    arena->self = flw_lease_take_place(arena) ? flw_handles_take(&table) : NULL;
    if (arena->self != NULL) {
        flw_handles_publish(&table, arena->self, arena);
    }
    return arena->self != NULL;
}

fallow_status fallow_arena_create(fallow_pool *pool, const fallow_arena_config *given,
                                  fallow_arena **out_arena)
{
    fallow_arena_config config;
    if (out_arena == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_arena = NULL;
    struct flw_pool *inside = flw_pool_of(pool);
    if (inside == NULL) {
        return FALLOW_INVALID_POOL;
    }
    if (flw_pool_has_epochs(inside)) {
        return FALLOW_NOT_SUPPORTED;
    }
    fallow_status status = accept_config(given, &config);
    if (status != FALLOW_OK) {
        return status;
    }
    fallow_arena *arena = calloc(1, sizeof *arena);
    if (arena == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    arena->handle = pool;
    arena->pool = inside;
    arena->sleep_serial = atomic_load(&inside->sleeper.serial);
    arena->tag = config.tag;
    arena->checks = config.checks;
    arena->asks_captures = config.asks_captures != 0;
    arena->looks = FLW_ARENA_LOOKS_AT_ORDER;
    arena->lease.is_guarded = (config.checks & FALLOW_ARENA_CHECK_RED_ZONES) != 0;
    arena->least_bytes = config.scratch_bytes;
    arena->budget_bytes = SIZE_MAX;
    arena->log = config.log;
    arena->log_context = config.log_context;
    snprintf(arena->name, sizeof arena->name, "%s", config.name == NULL ? "arena" : config.name);
    pthread_mutex_init(&arena->lock, NULL);
    status = config.checks != 0 ? flw_arena_check_create(arena) : FALLOW_OK;
    if (status == FALLOW_OK && !name_arena(arena)) {
        status = FALLOW_OUT_OF_HOST_MEMORY;
    }
    if (status != FALLOW_OK) {
        free_arena(arena);
        return status;
    }
    *out_arena = arena->self;
    return FALLOW_OK;
}

static void destroy_event(fallow_arena *arena)
{
    struct flw_driver_section section;
    if (arena->event != NULL && flw_heap_enter_driver(&arena->pool->heap, &section)) {
        flw_heap_count_call(&arena->pool->heap);
        (void)arena->pool->driver.cuEventDestroy_v2(arena->event);
        flw_heap_leave_driver(&arena->pool->heap, &section);
    }
}

/* Free the arena. No other thread is inside a call. */
static void free_arena(fallow_arena *arena)
{
    if (flw_pool_of(arena->handle) != NULL) {
        flw_arena_forget_pins(arena);
        flw_arena_free_scratch(arena);
        flw_arena_trim_persistent(arena);
        destroy_event(arena);
    }
    flw_arena_free_persistent(arena);
    flw_arena_check_destroy(arena);
    flw_lease_free_place(arena);
    flw_layout_drop(arena->lease.layout);
    free(arena->pins);
    free(arena->debts);
    pthread_mutex_destroy(&arena->lock);
    free(arena);
}

void fallow_arena_destroy(fallow_arena *arena)
{
    int leased = FLW_ARENA_LEASED;
    const fallow_arena *handle = arena;
    arena = flw_handles_drop(&table, handle);
    if (arena == NULL) {
        return;
    }
    flw_handles_await(&table, handle); /* fallow_pool_visit_arenas in other threads */
    flw_handles_free(&table, handle);
    if (atomic_compare_exchange_strong_explicit(&arena->state, &leased, FLW_ARENA_DOOMED,
                                                memory_order_acq_rel, memory_order_acquire)) {
        return; /* the end of the lease frees the arena */
    }
    free_arena(arena);
}

fallow_status flw_arena_enter(fallow_arena **handle)
{
    fallow_arena *arena = *handle = flw_arena_of(*handle);
    if (arena == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (!flw_arena_claim(arena, FLW_ARENA_AT_WORK)) {
        return FALLOW_BUSY;
    }
    if (flw_pool_of(arena->handle) == NULL) {
        flw_arena_release_claim(arena);
        return FALLOW_INVALID_POOL;
    }
    return FALLOW_OK;
}

fallow_status fallow_arena_set_budget(fallow_arena *arena, size_t bytes)
{
    fallow_status status = flw_arena_enter(&arena);
    if (status == FALLOW_OK) {
        size_t held = flw_max(arena->scratch_bytes, arena->least_bytes) +
                      flw_arena_persistent_bytes(arena, NULL);
        arena->budget_bytes = bytes == 0 ? held : bytes;
        atomic_store_explicit(&arena->has_budget, bytes != SIZE_MAX, memory_order_relaxed);
        flw_arena_release_claim(arena);
    }
    return status;
}

fallow_status fallow_arena_lock(fallow_arena *arena)
{
    return fallow_arena_set_budget(arena, 0);
}

fallow_status fallow_arena_unlock(fallow_arena *arena)
{
    return fallow_arena_set_budget(arena, SIZE_MAX);
}

/* Trim while graphs hold the addresses: wait for the last leases, then unmap scratch that no graph uses. */
static fallow_status trim_pinned(fallow_arena *arena)
{
    size_t keep = 1, count = atomic_load_explicit(&arena->pin_count, memory_order_relaxed);
    for (size_t i = 0; i < count; i++) {
        keep = flw_max(keep, arena->pins[i].bytes);
    }
    fallow_status status = FALLOW_BUSY;
    if (arena->growable.block != NULL && arena->scratch_bytes > keep) {
        fallow_stream stream = flw_arena_can_name(arena, &arena->last) ? arena->last.stream : NULL;
        fallow_status cut =
            FLW_MUTANT(ARENA_CUTS_BUSY) ? FALLOW_OK : flw_arena_await_all(arena, false);
        if (cut == FALLOW_OK) {
            cut = flw_arena_cut_scratch(arena, keep, stream);
        }
        status = cut == FALLOW_OK ? FALLOW_BUSY : cut;
    }
    return flw_arena_refuse(
        arena, status,
        "%zu captures hold its addresses; the arena keeps %zu bytes of scratch and its "
        "persistent regions until they are released",
        count, arena->scratch_bytes);
}

fallow_status fallow_arena_trim(fallow_arena *arena)
{
    fallow_status status = flw_arena_enter(&arena);
    if (status != FALLOW_OK) {
        return status;
    }
    if (flw_arena_is_pinned(arena)) {
        status = trim_pinned(arena);
    } else if ((status = flw_arena_await_all(arena, true)) != FALLOW_OK) {
        (void)flw_arena_refuse(arena, status, "cannot wait for the work that uses the arena: %s",
                               fallow_status_message(status));
    } else {
        flw_arena_free_scratch(arena);
        flw_arena_trim_persistent(arena);
    }
    flw_arena_release_claim(arena);
    return status;
}

fallow_status fallow_arena_on_wake(fallow_arena *arena, fallow_wake_function wake, void *context)
{
    fallow_status status = flw_arena_enter(&arena);
    if (status == FALLOW_OK) {
        arena->wake = wake;
        arena->wake_context = context;
        flw_arena_release_claim(arena);
    }
    return status;
}

fallow_status fallow_arena_lose_contents(fallow_arena *arena)
{
    fallow_status status = flw_arena_enter(&arena);
    if (status == FALLOW_OK) {
        flw_arena_lose_values(arena);
        flw_arena_release_claim(arena);
    }
    return status;
}

static uint64_t read_count(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static fallow_arena_stats read_stats(const fallow_arena *arena)
{
    fallow_arena_stats stats = {.struct_size = sizeof stats,
                                .lease_count = read_count(&arena->lease_count),
                                .grow_count = read_count(&arena->grow_count),
                                .wait_count = read_count(&arena->wait_count),
                                .init_count = read_count(&arena->init_count),
                                .refuse_count = read_count(&arena->refuse_count),
                                .damage_count = read_count(&arena->damage_count),
                                .unwritten_count = read_count(&arena->unwritten_count),
                                .generation = read_count(&arena->generation),
                                .tag = arena->tag,
                                .scratch_bytes = read_count(&arena->held_scratch_bytes),
                                .persistent_bytes = read_count(&arena->held_persistent_bytes)};
    int state = atomic_load_explicit(&arena->state, memory_order_acquire);
    state &= ~FLW_ARENA_AWAITED;
    stats.is_leased = state == FLW_ARENA_LEASED || state == FLW_ARENA_DOOMED;
    stats.is_locked = atomic_load_explicit(&arena->has_budget, memory_order_relaxed);
    stats.capture_count = atomic_load_explicit(&arena->pin_count, memory_order_relaxed);
    stats.is_pinned = stats.capture_count > 0;
    memcpy(stats.name, arena->name, sizeof stats.name);
    return stats;
}

fallow_status fallow_arena_get_stats(fallow_arena *arena, fallow_arena_stats *out_stats)
{
    if ((arena = flw_arena_of(arena)) == NULL || out_stats == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    fallow_arena_stats stats = read_stats(arena);
    return flw_struct_answer(out_stats, &stats, sizeof stats);
}

struct visit {
    const fallow_pool *pool;
    fallow_arena_visitor visit;
    void *context;
};

static void visit_if_of_pool(void *object, void *context)
{
    const fallow_arena *arena = object;
    const struct visit *visit = context;
    if (arena->handle == visit->pool) {
        fallow_arena_stats stats = read_stats(arena);
        visit->visit(visit->context, &stats);
    }
}

fallow_status fallow_pool_visit_arenas(fallow_pool *pool, fallow_arena_visitor visit, void *context)
{
    struct visit each = {pool, visit, context};
    if (visit == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (flw_pool_of(pool) == NULL) {
        return FALLOW_INVALID_POOL;
    }
    flw_handles_each(&table, visit_if_of_pool, &each);
    return FALLOW_OK;
}
