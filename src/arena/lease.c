/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: leases: begin, the addresses, end. In steady state (the last lease's layout and stream, nothing
 * to initialise, no capture open) a begin is a claim, five compares and six stores.
 */
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "base/bits.h"

/* ---- what is not steady state */

static const fallow_region *largest_region(const fallow_layout *layout)
{
    const fallow_region *largest = &layout->regions[0].region;
    for (size_t i = 1; i < layout->count; i++) {
        const fallow_region *region = &layout->regions[i].region;
        if ((region->flags & FALLOW_REGION_PERSISTENT) == 0 &&
            region->size_bytes > largest->size_bytes) {
            largest = region;
        }
    }
    return largest;
}

static void adopt(fallow_arena *arena, void *block, size_t bytes)
{
    arena->scratch = block;
    arena->scratch_bytes = bytes;
    atomic_store_explicit(&arena->held_scratch_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&arena->grow_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&arena->generation, 1, memory_order_relaxed);
}

/* Scratch contents are worth nothing between leases: where both do not fit, the old block goes first,
 * and one of its size is taken back if the larger one fails all the same. */
static fallow_status grow(fallow_arena *arena, size_t bytes, fallow_stream stream)
{
    size_t old_bytes = arena->scratch_bytes;
    void *block = NULL;
    fallow_status status = flw_arena_take(arena, bytes, stream, &block);
    if (status == FALLOW_OK) {
        flw_arena_free_scratch(arena);
    } else if (status == FALLOW_OUT_OF_MEMORY && old_bytes > 0) {
        flw_arena_free_scratch(arena);
        status = flw_arena_take(arena, bytes, stream, &block);
        if (status != FALLOW_OK && flw_arena_take(arena, old_bytes, stream, &block) == FALLOW_OK) {
            adopt(arena, block, old_bytes);
        }
    }
    if (status == FALLOW_OK) {
        adopt(arena, block, bytes);
    }
    return status;
}

static fallow_status make_room(fallow_arena *arena, const fallow_layout *layout,
                               fallow_stream stream, uint64_t capture)
{
    size_t bytes = flw_arena_needed_bytes(arena, layout);
    const fallow_region *largest = largest_region(layout);
    if (bytes <= arena->scratch_bytes) {
        return FALLOW_OK;
    }
    if (arena->is_locked) {
        return flw_arena_refuse(arena, FALLOW_OUT_OF_MEMORY,
                                "locked at %zu bytes, the layout needs %zu (largest region '%s', "
                                "%zu bytes)",
                                arena->scratch_bytes, bytes, largest->name, largest->size_bytes);
    }
    if (capture != 0) {
        return flw_arena_refuse(
            arena, FALLOW_CAPTURING,
            "holds %zu bytes and cannot grow inside a capture; the layout needs "
            "%zu (largest region '%s', %zu bytes): lease it once before",
            arena->scratch_bytes, bytes, largest->name, largest->size_bytes);
    }
    fallow_status status = grow(arena, bytes, stream);
    if (status != FALLOW_OK) {
        return flw_arena_refuse(arena, status, "the pool did not lend %zu bytes: %s", bytes,
                                fallow_status_message(status));
    }
    return FALLOW_OK;
}

/* Later work of `stream` comes after what the last lease's stream has been given: one event, one wait.
 * Between eager work and a capture nothing can be ordered here: the graph is launched in order. */
static fallow_status order_after_last(fallow_arena *arena, fallow_stream stream, uint64_t capture)
{
    const struct flw_driver *driver = &arena->pool->driver;
    struct flw_heap *heap = &arena->pool->heap;
    struct flw_driver_section section;
    CUresult result = CUDA_SUCCESS;
    if (!arena->has_last || arena->last_stream == stream || arena->last_capture != capture) {
        return FALLOW_OK;
    }
    if (!flw_heap_enter_driver(heap, &section)) {
        return FALLOW_DEVICE_LOST;
    }
    if (arena->event == NULL) {
        flw_heap_count_call(heap);
        result = driver->cuEventCreate(&arena->event, CU_EVENT_DISABLE_TIMING);
    }
    if (result == CUDA_SUCCESS) {
        flw_heap_count_call(heap);
        result = driver->cuEventRecord(arena->event, arena->last_stream);
    }
    if (result == CUDA_SUCCESS) {
        flw_heap_count_call(heap);
        result = driver->cuStreamWaitEvent(stream, arena->event, 0);
    }
    flw_heap_leave_driver(heap, &section);
    if (result != CUDA_SUCCESS) {
        return flw_arena_refuse(arena, FALLOW_DRIVER,
                                "the lease could not be ordered after the last one: %s",
                                flw_driver_error_name(driver, result));
    }
    atomic_fetch_add_explicit(&arena->wait_count, 1, memory_order_relaxed);
    return FALLOW_OK;
}

static fallow_status pin(fallow_arena *arena, uint64_t capture)
{
    for (size_t i = 0; i < arena->pin_count; i++) {
        if (arena->pins[i] == capture) {
            return FALLOW_OK;
        }
    }
    if (arena->pin_count == arena->pin_room) {
        size_t room = arena->pin_room * 2 + 8;
        uint64_t *pins = realloc(arena->pins, room * sizeof *pins);
        if (pins == NULL) {
            return flw_arena_refuse(arena, FALLOW_OUT_OF_HOST_MEMORY, "no room to note a capture");
        }
        arena->pins = pins;
        arena->pin_room = room;
    }
    arena->pins[arena->pin_count] = capture;
    atomic_store_explicit(&arena->pin_count, arena->pin_count + 1, memory_order_relaxed);
    return FALLOW_OK;
}

/* Everything that a begin may have to do. What has been taken by the time that something fails (a larger
 * block, a persistent region) stays with the arena, unleased. */
static fallow_status prepare(fallow_arena *arena, const fallow_layout *layout, fallow_stream stream)
{
    fallow_status status;
    uint64_t capture = flw_capture_serial(arena->pool, stream);
    if (capture == 0 && flw_arena_is_pinned(arena)) {
        return flw_arena_refuse(arena, FALLOW_BUSY,
                                "%zu captures hold its addresses; an eager step needs an arena of "
                                "its own, or release them first",
                                (size_t)arena->pin_count);
    }
    if ((status = make_room(arena, layout, stream, capture)) != FALLOW_OK ||
        (status = flw_arena_bind(arena, layout, stream, capture)) != FALLOW_OK ||
        (status = order_after_last(arena, stream, capture)) != FALLOW_OK ||
        (status = flw_arena_wake(arena, layout, stream, capture)) != FALLOW_OK ||
        (status = capture != 0 ? pin(arena, capture) : FALLOW_OK) != FALLOW_OK) {
        return status;
    }
    arena->last_capture = capture;
    arena->last_layout_id = layout->id;
    arena->is_plain = capture == 0 && arena->checks == 0;
    return FALLOW_OK;
}

/* ---- begin, addresses, end */

static inline bool is_steady(const fallow_arena *arena, const fallow_layout *layout,
                             fallow_stream stream)
{
    return arena->is_plain && arena->last_layout_id == layout->id && arena->has_last &&
           arena->last_stream == stream &&
           atomic_load_explicit(&arena->pool->open_captures, memory_order_acquire) == 0;
}

fallow_status fallow_lease_begin(fallow_arena *arena, const fallow_layout *layout,
                                 fallow_stream stream, fallow_lease **out_lease)
{
    if (FLW_UNLIKELY(arena == NULL || layout == NULL || out_lease == NULL)) {
        return FALLOW_INVALID_ARGUMENT;
    }
    *out_lease = NULL;
    if (FLW_UNLIKELY(!flw_arena_claim(arena, FLW_ARENA_LEASED))) {
        return FALLOW_BUSY;
    }
    if (FLW_UNLIKELY(!is_steady(arena, layout, stream))) {
        fallow_status status = prepare(arena, layout, stream);
        if (status != FALLOW_OK) {
            flw_arena_settle(arena);
            return status;
        }
    }
    fallow_lease *lease = &arena->leases[arena->turn++ % FLW_LEASE_TURNS];
    lease->arena = arena;
    lease->layout = layout;
    lease->base = arena->scratch;
    lease->persistent = arena->last_persistent;
    lease->is_guarded = (arena->checks & FALLOW_ARENA_CHECK_RED_ZONES) != 0;
    atomic_store_explicit(&lease->has_ended, false, memory_order_relaxed);
    atomic_store_explicit(&lease->references, 1, memory_order_release);
    if (FLW_UNLIKELY(arena->checks != 0)) {
        flw_arena_check_begin(arena, lease, stream);
    }
    /* A statistic that only holders of the claim write. */
    atomic_store_explicit(&arena->lease_count,
                          atomic_load_explicit(&arena->lease_count, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    *out_lease = lease;
    return FALLOW_OK;
}

void *fallow_lease_region_at(const fallow_lease *lease, size_t index)
{
    if (lease == NULL || atomic_load_explicit(&lease->references, memory_order_relaxed) == 0 ||
        index >= lease->layout->count) {
        return NULL;
    }
    const struct flw_placed_region *placed = &lease->layout->regions[index];
    if ((placed->region.flags & FALLOW_REGION_PERSISTENT) != 0) {
        return lease->persistent[index];
    }
    return lease->base + (lease->is_guarded ? placed->guarded_offset : placed->offset);
}

void *fallow_lease_region(const fallow_lease *lease, const char *name)
{
    return lease == NULL || atomic_load_explicit(&lease->references, memory_order_relaxed) == 0
               ? NULL
               : fallow_lease_region_at(lease, fallow_layout_find(lease->layout, name));
}

void flw_lease_drop(fallow_lease *lease)
{
    if (atomic_fetch_sub_explicit(&lease->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    fallow_arena *arena = lease->arena;
    if (FLW_UNLIKELY(arena->checks != 0)) {
        flw_arena_check_end(arena, lease, lease->end_stream);
    }
    arena->last_stream = lease->end_stream;
    arena->has_last = true;
    flw_arena_settle(arena);
}

fallow_status fallow_lease_end(fallow_lease *lease, fallow_stream stream)
{
    if (lease == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    bool had_ended = false;
    if (FLW_UNLIKELY(atomic_load_explicit(&lease->references, memory_order_acquire) == 0 ||
                     !atomic_compare_exchange_strong_explicit(&lease->has_ended, &had_ended, true,
                                                              memory_order_acq_rel,
                                                              memory_order_relaxed))) {
        return lease->arena == NULL ? FALLOW_INVALID_ARGUMENT
                                    : flw_arena_refuse(lease->arena, FALLOW_INVALID_ARGUMENT,
                                                       "the lease has ended already");
    }
    lease->end_stream = stream;
    flw_lease_drop(lease);
    return FALLOW_OK;
}

/* A graph captured from this arena is about to be launched on `stream`: after the launch before it. */
fallow_status fallow_lease_guard(fallow_arena *arena, fallow_stream stream)
{
    if (arena == NULL) {
        return FALLOW_INVALID_ARGUMENT;
    }
    if (!flw_arena_claim(arena, FLW_ARENA_AT_WORK)) {
        return FALLOW_BUSY;
    }
    arena->last_capture = 0; /* what the last stream was given by now is launches, or eager */
    fallow_status status = order_after_last(arena, stream, 0);
    if (status == FALLOW_OK) {
        arena->last_stream = stream;
        arena->has_last = true;
        arena->is_plain = false;
    }
    flw_arena_settle(arena);
    return status;
}
