/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: leases: begin, the addresses, end. In steady state (the last lease's layout and stream, nothing to initialise,
 * no capture open, no stream retired or lost) a begin is a claim, some compares and some stores. Another layout that fits
 * makes no driver call either.
 */

#include "arena/arena.h"
#include "base/bits.h"
#include "base/mutant.h"

/* ---- handles: each arena has one place; each lease has another generation of that place */

static struct flw_handle_place places[FLW_ARENAS_MOST];
static struct flw_handles table = FLW_HANDLES(FLW_HANDLE_LEASE, places);

bool flw_lease_take_place(fallow_arena *arena)
{
    void *first = arena->lease_handle = flw_handles_take(&table);
    if (first != NULL) {
        flw_handles_publish(&table, first, arena);
        (void)flw_handles_drop(&table, first); /* no lease */
    }
    return first != NULL;
}

void flw_lease_free_place(fallow_arena *arena)
{
    if (arena->lease_handle != NULL) {
        flw_handles_free(&table, arena->lease_handle);
    }
}

fallow_arena *flw_lease_arena(const fallow_lease *lease)
{
    return flw_places_find(places, FLW_ARENAS_MOST, lease);
}

/* ---- begins outside of steady state */

static const fallow_region *largest_region(const fallow_layout *layout)
{
    const fallow_region *largest = NULL;
    for (size_t i = 0; i < layout->count; i++) {
        const fallow_region *region = &layout->regions[i].region;
        largest = largest == NULL || region->size_bytes > largest->size_bytes ? region : largest;
    }
    return largest;
}

static void adopt(fallow_arena *arena, void *block, size_t bytes)
{
    atomic_fetch_add_explicit(&arena->generation, arena->scratch != block, memory_order_relaxed);
    arena->scratch = block;
    arena->scratch_bytes = bytes;
    atomic_store_explicit(&arena->held_scratch_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&arena->grow_count, 1, memory_order_relaxed);
}

/* Grow scratch in place if possible. Otherwise free the old block first, since scratch has no contents between
 * leases, and allocate the old size again if the larger block fails. */
static fallow_status grow(fallow_arena *arena, size_t bytes, size_t align, fallow_stream stream)
{
    size_t old_bytes = arena->scratch_bytes;
    void *block = NULL;
    bool is_movable = old_bytes > 0 && flw_arena_graph_count(arena) == 0;
    fallow_status status =
        old_bytes > 0 && arena->growable.block == NULL
            ? FALLOW_NOT_SUPPORTED
            : flw_arena_take_scratch(arena, &arena->growable, bytes, align, stream, &block);
    if (is_movable && (status == FALLOW_OUT_OF_MEMORY || status == FALLOW_NOT_SUPPORTED)) {
        if ((status = flw_arena_await_all(arena, true)) != FALLOW_OK) {
            return status;
        }
        flw_arena_free_scratch(arena);
        status = flw_arena_take_scratch(arena, &arena->growable, bytes, align, stream, &block);
        if (status != FALLOW_OK && flw_arena_take_scratch(arena, &arena->growable, old_bytes, 0,
                                                          stream, &block) == FALLOW_OK) {
            adopt(arena, block, old_bytes);
        }
    }
    if (status == FALLOW_OK) {
        adopt(arena, block, bytes);
    }
    return status == FALLOW_NOT_SUPPORTED ? FALLOW_BUSY : status; /* scratch would have to move */
}

/* Return the bytes that scratch must have for the layout; 0: scratch serves the layout already. */
static size_t missing_bytes(const fallow_arena *arena, const fallow_layout *layout)
{
    size_t bytes = flw_arena_needed_bytes(arena, layout);
    bool is_misaligned = ((uintptr_t)arena->scratch & (layout->align_bytes - 1)) != 0;
    return bytes > arena->scratch_bytes || (is_misaligned && bytes > 0)
               ? flw_max(bytes, arena->scratch_bytes)
               : 0;
}

/* Return OVER_BUDGET if a lease would need new memory beyond the budget. A refusal changes nothing. */
static fallow_status check_budget(fallow_arena *arena, const fallow_layout *layout)
{
    if (arena->budget_bytes == SIZE_MAX) {
        return FALLOW_OK;
    }
    size_t needed = flw_arena_needed_bytes(arena, layout);
    size_t kept = flw_arena_persistent_bytes(arena, layout);
    size_t wanted = flw_max(needed, arena->scratch_bytes) + kept;
    const fallow_region *largest = largest_region(layout);
    bool has_all =
        needed <= arena->scratch_bytes && kept == flw_arena_persistent_bytes(arena, NULL);
    if (wanted <= arena->budget_bytes || has_all) {
        return FALLOW_OK;
    }
    return flw_arena_refuse(
        arena, FALLOW_OVER_BUDGET,
        "layout '%s' needs %zu bytes, %zu of them persistent (largest region '%s', %zu "
        "bytes), and the budget is %zu: raise the budget, or lease the layout before setting one",
        layout->name, wanted, kept, largest->name, largest->size_bytes, arena->budget_bytes);
}

static fallow_status check_scratch(fallow_arena *arena, const fallow_layout *layout,
                                   const fallow_capture *capture)
{
    size_t bytes = missing_bytes(arena, layout);
    const fallow_region *largest = largest_region(layout);
    if (bytes == 0 || layout->bytes == 0 || capture == NULL || FLW_MUTANT(ARENA_GROWS_IN_CAPTURE)) {
        return FALLOW_OK;
    }
    return flw_arena_refuse(
        arena, FALLOW_CAPTURING,
        "holds %zu bytes and cannot grow inside a capture; layout '%s' needs %zu aligned to "
        "%zu (largest region '%s', %zu bytes): lease the layout once before",
        arena->scratch_bytes, layout->name, bytes, layout->align_bytes, largest->name,
        largest->size_bytes);
}

static fallow_status make_room(fallow_arena *arena, const fallow_layout *layout,
                               fallow_stream stream)
{
    size_t bytes = missing_bytes(arena, layout);
    if (bytes == 0) {
        return FALLOW_OK;
    }
    fallow_status status = grow(arena, bytes, layout->align_bytes, stream);
    if (status == FALLOW_BUSY) {
        return flw_arena_refuse(
            arena, status,
            "holds %zu bytes and cannot move while graphs of %zu captures hold its addresses; layout "
            "'%s' needs %zu aligned to %zu: release them first, or lease the layout before the capture",
            arena->scratch_bytes, flw_arena_graph_count(arena), layout->name, bytes,
            layout->align_bytes);
    }
    return status == FALLOW_OK
               ? FALLOW_OK
               : flw_arena_refuse(arena, status,
                                  "the pool did not allocate %zu bytes for layout '%s': %s", bytes,
                                  layout->name, fallow_status_message(status));
}

/* Replace the arena's memory if a capture prevents ordering work after the last leases; the pool then keeps the old
 * memory for the leases. Returns false if the arena keeps its own memory. */
static bool replace_scratch(fallow_arena *arena, const fallow_layout *layout,
                            const struct flw_arena_mark *mark)
{
    size_t bytes = flw_max(flw_arena_needed_bytes(arena, layout), arena->scratch_bytes);
    struct flw_growable growable = {NULL, NULL};
    void *block = NULL;
    if (flw_arena_has_persistent(arena) || flw_arena_graph_count(arena) > 0 ||
        (bytes > 0 && flw_arena_take_scratch(arena, &growable, bytes, layout->align_bytes,
                                             mark->stream, &block) != FALLOW_OK)) {
        return false;
    }
    if (!flw_arena_leave_scratch(arena, mark->stream)) {
        flw_growable_end(&arena->pool->heap, &growable);
        (void)fallow_free(arena->handle, block, mark->stream);
        return false;
    }
    arena->growable = growable;
    adopt(arena, block, bytes);
    arena->last = *mark;
    arena->debt_count = 0;
    return true;
}

static fallow_status order_or_replace(fallow_arena *arena, const fallow_layout *layout,
                                      const struct flw_arena_mark *mark)
{
    const char *why;
    fallow_status status = flw_arena_order(arena, mark, &why);
    if (status != FALLOW_CAPTURING) {
        return status;
    }
    return replace_scratch(arena, layout, mark) ? FALLOW_OK
                                                : flw_arena_refuse(arena, status, "%s", why);
}

/* Return the reason. The legacy stream is never captured itself; captures of blocking streams forbid the use. */
static const char *why_not_eager(const struct flw_arena_mark *mark, fallow_status status)
{
    bool is_legacy = mark->stream == NULL || mark->stream == (fallow_stream)CU_STREAM_LEGACY;
    return status != FALLOW_CAPTURING ? "stream is not the driver's"
           : is_legacy ? "legacy stream cannot be used while a blocking stream is being captured"
                       : "stream is being captured: announce that with fallow_capture_begin";
}

/* Order, allocate and initialise for a lease outside of captures. After order_or_replace only the pool, the driver or
 * host memory can fail; memory allocated before such a failure stays in the arena, in the order of `last`. */
static fallow_status prepare_eager(fallow_arena *arena, const fallow_layout *layout,
                                   const struct flw_arena_mark *mark, void *const **out_persistent)
{
    fallow_status status = flw_capture_check(arena->pool, mark->domain);
    if (status != FALLOW_OK) {
        return flw_arena_refuse(arena, status, "the %s", why_not_eager(mark, status));
    }
    if ((status = order_or_replace(arena, layout, mark)) != FALLOW_OK ||
        (status = make_room(arena, layout, mark->stream)) != FALLOW_OK ||
        (status = flw_arena_bind(arena, layout, mark->stream, out_persistent)) != FALLOW_OK) {
        return status;
    }
    return flw_arena_wake(arena, layout, mark->stream);
}

static fallow_status prepare_captured(fallow_arena *arena, const fallow_layout *layout,
                                      fallow_stream stream, const fallow_capture *capture,
                                      void *const **out_persistent)
{
    fallow_status status;
    if (FLW_MUTANT(ARENA_GROWS_IN_CAPTURE) &&
        (status = make_room(arena, layout, stream)) != FALLOW_OK) {
        return status;
    }
    if ((status = flw_arena_bind(arena, layout, stream, out_persistent)) != FALLOW_OK ||
        (status = flw_arena_order_captured(arena, stream, capture)) != FALLOW_OK) {
        return status;
    }
    return flw_arena_pin(arena, capture, flw_arena_needed_bytes(arena, layout));
}

/* Slow half of prepare: order, memory and values. */
static fallow_status prepare_all(fallow_arena *arena, const fallow_layout *layout,
                                 fallow_stream stream, uint64_t changes, bool looks)
{
    struct flw_pool *pool = arena->pool;
    void *const *persistent = NULL;
    fallow_status status;
    arena->looks |= FLW_ARENA_LOOKS_AT_ORDER;
    struct flw_arena_mark mark = flw_arena_mark_of(arena, stream, &status);
    if (mark.domain == NULL) {
        return flw_arena_refuse(arena, status, "the stream: %s", fallow_status_message(status));
    }
    const fallow_capture *capture = flw_capture_of(pool, stream);
    (void)flw_arena_is_pinned(arena);
    if ((status = flw_arena_notice_sleep(arena)) != FALLOW_OK ||
        (status = check_budget(arena, layout)) != FALLOW_OK ||
        (status = check_scratch(arena, layout, capture)) != FALLOW_OK ||
        (status = flw_arena_check_persistent(arena, layout, capture)) != FALLOW_OK) {
        return status;
    }
    status = capture == NULL ? prepare_eager(arena, layout, &mark, &persistent)
                             : prepare_captured(arena, layout, stream, capture, &persistent);
    if (status != FALLOW_OK) {
        return status;
    }
    if (capture == NULL) {
        flw_arena_note_order(arena, &mark, changes, looks);
    }
    arena->lease.capture = capture;
    arena->last_persistent = persistent;
    return FALLOW_OK;
}

static FLW_NOINLINE fallow_status prepare(fallow_arena *arena, const fallow_layout *layout,
                                          fallow_stream stream)
{
    arena->last_layout_id = 0;
    uint64_t changes = flw_arena_order_changes(arena);
    bool looks = flw_arena_looks_for_captures(arena, stream);
    bool is_ready = flw_arena_is_known_in_order(arena, stream, looks) &&
                    missing_bytes(arena, layout) == 0 &&
                    flw_arena_find_bound(arena, layout, &arena->last_persistent);
    if (is_ready) {
        arena->looks = looks ? FLW_ARENA_LOOKS_FOR_CAPTURES : 0;
    }
    fallow_status status =
        is_ready ? FALLOW_OK : prepare_all(arena, layout, stream, changes, looks);
    arena->last_layout_id = status == FALLOW_OK ? layout->id : 0;
    if (status == FALLOW_OK && arena->check != NULL && arena->lease.capture == NULL) {
        flw_arena_check_between(arena, stream);
    }
    return status;
}

/* ---- begin, addresses, end */

static inline bool is_steady(const fallow_arena *arena, const fallow_layout *layout,
                             fallow_stream stream)
{
    return arena->looks == 0 && arena->last_layout_id == layout->id &&
           flw_arena_is_in_order(arena, stream);
}

/* Only holders of the claim write this statistic. */
static void count_lease(fallow_arena *arena)
{
    uint64_t count = atomic_load_explicit(&arena->lease_count, memory_order_relaxed);
    atomic_store_explicit(&arena->lease_count, count + 1, memory_order_relaxed);
}

/* Inline, so that a constant wait_ms of 0 costs nothing. */
static FLW_INLINE fallow_status begin(fallow_arena *arena, const fallow_layout *layout,
                                      fallow_stream stream, uint32_t wait_ms,
                                      fallow_lease **out_lease)
{
    if (FLW_UNLIKELY(out_lease == NULL)) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_lease = NULL;
    arena = flw_arena_of(arena);
    if (FLW_UNLIKELY(arena == NULL || layout == NULL)) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (FLW_UNLIKELY(!(wait_ms > 0 ? flw_arena_claim_in_turn(arena, wait_ms)
                                   : flw_arena_claim(arena, FLW_ARENA_LEASED)))) {
        return FALLOW_BUSY;
    }
    fallow_status status = FALLOW_OK;
    if (FLW_UNLIKELY(flw_pool_of(arena->handle) == NULL)) {
        status = FALLOW_INVALID_POOL;
    } else if (FLW_UNLIKELY(!is_steady(arena, layout, stream))) {
        status = prepare(arena, layout, stream);
    }
    if (FLW_UNLIKELY(status != FALLOW_OK)) {
        flw_arena_release_claim(arena);
        return status;
    }
    struct flw_lease *lease = &arena->lease;
    if (FLW_UNLIKELY(lease->layout != layout)) {
        flw_layout_keep(layout);
        flw_layout_drop(lease->layout);
        lease->layout = layout;
    }
    lease->stream = stream;
    if (FLW_UNLIKELY(arena->checks != 0)) {
        flw_arena_check_begin(arena);
    }
    count_lease(arena);
    *out_lease = arena->lease_handle = flw_handles_renew(&table, arena->lease_handle);
    return FALLOW_OK;
}

fallow_status fallow_lease_begin(fallow_arena *arena, const fallow_layout *layout,
                                 fallow_stream stream, fallow_lease **out_lease)
{
    return begin(arena, layout, stream, 0, out_lease);
}

fallow_status fallow_lease_begin_within(fallow_arena *arena, const fallow_layout *layout,
                                        fallow_stream stream, uint32_t wait_ms,
                                        fallow_lease **out_lease)
{
    return begin(arena, layout, stream, wait_ms, out_lease);
}

void *fallow_lease_region_at(const fallow_lease *lease, size_t index)
{
    const fallow_arena *arena = flw_lease_arena(lease);
    if (FLW_UNLIKELY(arena == NULL || index >= arena->lease.layout->count)) {
        return NULL;
    }
    const struct flw_placed_region *placed = &arena->lease.layout->regions[index];
    if ((placed->region.flags & FALLOW_REGION_PERSISTENT) != 0) {
        return arena->last_persistent[index];
    }
    return arena->scratch + (arena->lease.is_guarded ? placed->guarded_offset : placed->offset);
}

void *fallow_lease_region(const fallow_lease *lease, const char *name)
{
    const fallow_arena *arena = flw_lease_arena(lease);
    return arena == NULL
               ? NULL
               : fallow_lease_region_at(lease, fallow_layout_find(arena->lease.layout, name));
}

/* Slow half of fallow_lease_end: on another stream, inside a capture, or on a stream that no other thread can record
 * on. A refusal leaves the lease open. */
static FLW_NOINLINE fallow_status finish(fallow_arena *arena, fallow_stream stream)
{
    const struct flw_lease *lease = &arena->lease;
    bool is_own = stream == FALLOW_LEASE_STREAM;
    stream = is_own ? lease->stream : stream;
    if (flw_pool_of(arena->handle) == NULL) {
        return FALLOW_OK;
    }
    bool looks = lease->capture == NULL && flw_arena_looks_for_captures(arena, stream);
    if (stream == lease->stream && flw_arena_is_known_in_order(arena, stream, looks)) {
        return FALLOW_OK; /* `last` is the stream already */
    }
    const fallow_capture *capture = flw_capture_of(arena->pool, stream);
    fallow_status status = FALLOW_OK;
    if (lease->capture != NULL && (capture == NULL || capture == lease->capture)) {
        if (capture != NULL) {
            arena->captured.capture = capture;
            arena->captured.stream = stream;
        }
        return FALLOW_OK; /* the work of the lease is in a capture or in a graph */
    }
    struct flw_arena_mark mark = flw_arena_mark_of(arena, stream, &status);
    if (flw_heap_is_lost(&arena->pool->heap)) {
        return FALLOW_OK; /* no work is left to order */
    }
    bool is_captured =
        capture != NULL || (looks && mark.domain != NULL &&
                            flw_capture_check(arena->pool, mark.domain) == FALLOW_CAPTURING);
    if (is_own && (is_captured || mark.domain == NULL)) {
        return FALLOW_OK; /* `last` covers that stream's work before the capture or the destruction */
    }
    if (mark.domain == NULL) {
        return flw_arena_refuse(arena, status, "the lease cannot end on this stream: %s",
                                fallow_status_message(status));
    }
    if (is_captured) {
        return flw_arena_refuse(arena, FALLOW_CAPTURING,
                                "the lease was begun outside of the capture: end it outside");
    }
    if (mark.domain->own_thread_only || arena->pool->config.streams_may_die) {
        arena->looks |= FLW_ARENA_LOOKS_AT_ORDER;
        flw_arena_fence_now(arena, &mark);
    }
    if (arena->checks != 0) {
        flw_arena_check_end(arena, &mark);
    }
    arena->last = mark;
    return FALLOW_OK;
}

fallow_status fallow_lease_end(fallow_lease *lease, fallow_stream stream)
{
    fallow_arena *arena = flw_handles_drop(&table, lease);
    if (FLW_UNLIKELY(arena == NULL)) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (FLW_UNLIKELY(arena->looks != 0 || stream != arena->lease.stream ||
                     arena->order_changes != flw_arena_order_changes(arena) ||
                     atomic_load_explicit(&arena->pool->open_captures, memory_order_acquire) > 0)) {
        fallow_status status = finish(arena, stream);
        if (status != FALLOW_OK) {
            flw_handles_publish(&table, lease, arena);
            return status;
        }
    }
    flw_arena_release_claim(arena);
    return FALLOW_OK;
}

/* ---- several arenas */

static void shrink(fallow_arena *arena, size_t bytes, fallow_stream stream)
{
    void *block = NULL;
    bool is_larger = arena->scratch_bytes > bytes;
    if (is_larger && bytes > 0 && arena->growable.block != NULL) {
        (void)flw_arena_cut_scratch(arena, bytes, stream); /* no work has used the new bytes */
    } else if (is_larger && flw_arena_await_all(arena, true) == FALLOW_OK) {
        flw_arena_free_scratch(arena);
        if (bytes > 0 && flw_arena_take_scratch(arena, &arena->growable, bytes, 0, stream,
                                                &block) == FALLOW_OK) {
            adopt(arena, block, bytes);
        }
    }
}

/* Grow arenas that are all claimed. If an arena fails, shrink all arenas to their previous size. */
static fallow_status grow_all(fallow_arena *const *arenas, size_t count,
                              const fallow_layout *layout, fallow_stream stream)
{
    if (count == 0) {
        return FALLOW_OK;
    }
    fallow_arena *arena = flw_arena_of(arenas[0]);
    size_t before = arena->scratch_bytes;
    fallow_status status = prepare(arena, layout, stream);
    if (status == FALLOW_OK) {
        status = grow_all(arenas + 1, count - 1, layout, stream);
    }
    if (status != FALLOW_OK) {
        shrink(arena, before, stream);
    }
    return status;
}

fallow_status fallow_arenas_reserve(fallow_arena *const *arenas, size_t count,
                                    const fallow_layout *layout, fallow_stream stream)
{
    size_t claimed = 0;
    fallow_status status = arenas == NULL || layout == NULL ? FALLOW_INVALID_ARGUMENT : FALLOW_OK;
    while (status == FALLOW_OK && claimed < count) {
        fallow_arena *arena = arenas[claimed];
        status = flw_arena_enter(&arena);
        claimed += status == FALLOW_OK;
    }
    if (status == FALLOW_OK) {
        status = grow_all(arenas, count, layout, stream);
    }
    while (claimed > 0) {
        flw_arena_release_claim(flw_arena_of(arenas[--claimed]));
    }
    return status;
}
