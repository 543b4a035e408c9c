/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the checks of an arena: poison, red zones, unwritten bytes. The checks wait for the stream at both ends of a
 * lease, and do nothing inside a capture. On the simulated device they name each region, mark scratch as unwritten at
 * begin and forbid access at end: the rule checker then reports reads of unwritten bytes, and uses after the end of a
 * lease, with the names of region and arena. The checks copy these reports to the arena's log.
 * Does not: run for an arena without checks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "base/bits.h"
#include "base/mutant.h"
#include "pool/extensions/debug/debug.h"

#include "fallow/simcuda.h"
#include "fallow/sleep.h"

#define ZONE_BYTE 0xe7

#define LATE_USE                                                                              \
    "an address was used after its lease, a graph launched without fallow_lease_guard, or a " \
    "stream not joined before fallow_lease_end"

struct flw_arena_check {
    flw_sim_name_function name; /* NULL: a real device */
    flw_sim_forget_function forget;
    flw_sim_forbid_function forbid;
    flw_sim_touch_function touch;
    flw_sim_violation_function violation;
    uint64_t violations_seen;
    unsigned char *now, *before; /* scratch at the end of this lease and of the previous lease */
    size_t room, before_bytes;   /* before_bytes 0: no previous lease to compare with */
    size_t *used, *used_before;  /* bytes of each region that the two leases used */
    size_t used_room;
    uint64_t before_layout;
    unsigned char pattern, before_pattern;
    bool watches_sleep;
    bool is_skipped;    /* do not check this lease: inside a capture, or a driver call failed */
    size_t ended_bytes; /* of scratch, must be unused since the last end; 0: a graph was guarded */
};

static fallow_status probe_contents(struct flw_pool *pool)
{
    struct flw_driver_section section;
    if (!flw_heap_enter_driver(&pool->heap, &section)) {
        return flw_heap_not_entered(&pool->heap);
    }
    fallow_status status = flw_debug_probe_contents(pool);
    flw_heap_leave_driver(&pool->heap, &section);
    return status;
}

fallow_status flw_arena_check_create(fallow_arena *arena)
{
    struct flw_arena_check *check = calloc(1, sizeof *check);
    if (check == NULL) {
        return FALLOW_OUT_OF_HOST_MEMORY;
    }
    void *name = fallow_pool_driver_entry(arena->handle, "flw_sim_name");
    void *forget = fallow_pool_driver_entry(arena->handle, "flw_sim_forget");
    void *forbid = fallow_pool_driver_entry(arena->handle, "flw_sim_forbid");
    void *touch = fallow_pool_driver_entry(arena->handle, "flw_sim_touch");
    void *violation = fallow_pool_driver_entry(arena->handle, "flw_sim_violation");
    memcpy(&check->name, &name, sizeof name);
    memcpy(&check->touch, &touch, sizeof touch);
    memcpy(&check->forget, &forget, sizeof forget);
    memcpy(&check->forbid, &forbid, sizeof forbid);
    memcpy(&check->violation, &violation, sizeof violation);
    while (check->violation != NULL && check->violation(check->violations_seen) != NULL) {
        check->violations_seen++;
    }
    arena->check = check;
    return check->name == NULL ? FALLOW_OK : probe_contents(arena->pool); /* NULL: real memory */
}

/* Log new violations of this arena that the rule checker found. */
static void relay_violations(fallow_arena *arena)
{
    struct flw_arena_check *check = arena->check;
    char own[FLW_ARENA_NAME_MOST + 16];
    const char *text;
    snprintf(own, sizeof own, "of arena '%s'", arena->name);
    for (; check->violation != NULL && (text = check->violation(check->violations_seen)) != NULL;
         check->violations_seen++) {
        if (strstr(text, own) != NULL) {
            bool is_unwritten = strncmp(text, "unwritten", strlen("unwritten")) == 0;
            atomic_fetch_add_explicit(&arena->damage_count, 1, memory_order_relaxed);
            flw_arena_say(arena, FALLOW_LOG_ERROR, "%s%s", text, is_unwritten ? "" : ": " LATE_USE);
        }
    }
}

static bool has(const fallow_arena *arena, uint32_t check)
{
    return (arena->checks & check) != 0;
}

size_t flw_arena_needed_bytes(const fallow_arena *arena, const fallow_layout *layout)
{
    size_t bytes = has(arena, FALLOW_ARENA_CHECK_RED_ZONES) ? layout->guarded_bytes : layout->bytes;
    return arena->scratch == NULL ? flw_max(bytes, arena->least_bytes) : bytes;
}

/* ---- the driver */

static CUdeviceptr scratch_of(const fallow_arena *arena)
{
    return (CUdeviceptr)(uintptr_t)arena->scratch;
}

static bool may(fallow_arena *arena, CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS) {
        flw_arena_say(arena, FALLOW_LOG_WARNING, "this lease is not checked: %s answered %s", call,
                      flw_driver_error_name(&arena->pool->driver, result));
        arena->check->is_skipped = true;
    }
    return result == CUDA_SUCCESS;
}

static bool fill(fallow_arena *arena, CUdeviceptr to, unsigned char byte, size_t bytes,
                 fallow_stream stream)
{
    flw_heap_count_call(&arena->pool->heap);
    return bytes == 0 || may(arena, arena->pool->driver.cuMemsetD8Async(to, byte, bytes, stream),
                             "cuMemsetD8Async");
}

static bool wait_for(fallow_arena *arena, fallow_stream stream)
{
    flw_heap_count_call(&arena->pool->heap);
    return may(arena, arena->pool->driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

static bool copy_back(fallow_arena *arena, unsigned char *to, CUdeviceptr from, size_t bytes,
                      fallow_stream stream)
{
    flw_heap_count_call(&arena->pool->heap);
    return may(arena, arena->pool->driver.cuMemcpyDtoHAsync_v2(to, from, bytes, stream),
               "cuMemcpyDtoHAsync");
}

/* ---- begin */

static bool is_scratch(const struct flw_placed_region *placed)
{
    return (placed->region.flags & FALLOW_REGION_PERSISTENT) == 0;
}

static size_t offset_in(const struct flw_lease *lease, const struct flw_placed_region *placed)
{
    return lease->is_guarded ? placed->guarded_offset : placed->offset;
}

/* Name each region's bytes on the simulated device. Shared bytes get the name of the region with the lowest index. */
static void name_regions(const fallow_arena *arena, const struct flw_lease *lease)
{
    char name[160];
    arena->check->name(scratch_of(arena), arena->scratch_bytes, NULL);
    for (size_t i = lease->layout->count; i-- > 0;) {
        const struct flw_placed_region *placed = &lease->layout->regions[i];
        if (is_scratch(placed)) {
            snprintf(name, sizeof name, "region '%s' of arena '%s'", placed->region.name,
                     arena->name);
            arena->check->name(scratch_of(arena) + offset_in(lease, placed),
                               placed->region.size_bytes, name);
        }
    }
}

void flw_arena_check_allow(fallow_arena *arena)
{
    struct flw_arena_check *check = arena->check;
    if (check != NULL && check->ended_bytes > 0) {
        if (check->forget != NULL) {
            check->forget(scratch_of(arena), check->ended_bytes);
        }
        check->ended_bytes = 0;
    }
}

void flw_arena_check_release(fallow_arena *arena)
{
    flw_arena_check_allow(arena);
    if (arena->check != NULL && arena->check->name != NULL) {
        relay_violations(arena);
        arena->check->name(scratch_of(arena), arena->scratch_bytes, NULL);
    }
}

static bool draw_zones(fallow_arena *arena, const struct flw_lease *lease, fallow_stream stream)
{
    for (size_t i = 0; i < lease->layout->count; i++) {
        const struct flw_placed_region *placed = &lease->layout->regions[i];
        if (is_scratch(placed) &&
            !fill(arena, scratch_of(arena) + placed->guarded_offset + placed->region.size_bytes,
                  ZONE_BYTE, FLW_ARENA_ZONE_BYTES, stream)) {
            return false;
        }
    }
    return true;
}

/* Set each region as used whole, until fallow_lease_set_used. Returns false if host memory runs out. */
static bool use_all(struct flw_arena_check *check, const fallow_layout *layout)
{
    if (layout->count > check->used_room) {
        size_t bytes = layout->count * sizeof *check->used;
        size_t *used = realloc(check->used, bytes);
        check->used = used != NULL ? used : check->used;
        size_t *before = realloc(check->used_before, bytes);
        check->used_before = before != NULL ? before : check->used_before;
        if (used == NULL || before == NULL) {
            return false;
        }
        check->used_room = layout->count;
    }
    for (size_t i = 0; i < layout->count; i++) {
        check->used[i] = layout->regions[i].region.size_bytes;
    }
    return true;
}

void flw_arena_check_begin(fallow_arena *arena)
{
    struct flw_arena_check *check = arena->check;
    const struct flw_lease *lease = &arena->lease;
    fallow_stream stream = lease->stream;
    struct flw_driver_section section;
    size_t bytes = flw_arena_needed_bytes(arena, lease->layout);
    if (check->name != NULL && bytes > 0) {
        name_regions(arena, lease);
    }
    check->is_skipped = lease->capture != 0 || bytes == 0 || !use_all(check, lease->layout);
    if (check->is_skipped || !flw_heap_enter_driver(&arena->pool->heap, &section)) {
        check->is_skipped = true;
        return;
    }
    check->pattern = check->pattern == 0xff ? 0x7f : 0xff;
    bool is_filled = !has(arena, FALLOW_ARENA_CHECK_POISON | FALLOW_ARENA_CHECK_WRITTEN) ||
                     fill(arena, scratch_of(arena), check->pattern, bytes, stream);
    if (is_filled && wait_for(arena, stream) && check->forget != NULL) {
        check->forget(scratch_of(arena), bytes);
    }
    if (!check->is_skipped && has(arena, FALLOW_ARENA_CHECK_RED_ZONES)) {
        (void)draw_zones(arena, lease, stream);
    }
    flw_heap_leave_driver(&arena->pool->heap, &section);
}

/* Make room for two copies of scratch. Returns false if host memory runs out. */
static bool fit(struct flw_arena_check *check, size_t bytes)
{
    if (bytes > check->room) {
        unsigned char *now = realloc(check->now, bytes);
        check->now = now != NULL ? now : check->now;
        unsigned char *before = realloc(check->before, bytes);
        check->before = before != NULL ? before : check->before;
        if (now == NULL || before == NULL) {
            return false;
        }
        check->room = bytes;
        check->before_bytes = 0;
    }
    return true;
}

/* Declare scratch written on the simulated device, since the checks read bytes that no kernel wrote. */
static void excuse_reads(const fallow_arena *arena, size_t bytes, fallow_stream stream)
{
    flw_sim_range range = {.address = scratch_of(arena), .bytes = bytes, .is_write = 1};
    if (arena->check->touch != NULL) {
        (void)arena->check->touch(stream, &range, 1);
    }
}

/* Return the first region of the last lease that contains this byte; NULL: none. */
static const struct flw_placed_region *region_at(const struct flw_lease *lease, size_t offset)
{
    for (size_t i = 0; i < lease->layout->count; i++) {
        const struct flw_placed_region *placed = &lease->layout->regions[i];
        if (is_scratch(placed) && offset - offset_in(lease, placed) < placed->region.size_bytes) {
            return placed;
        }
    }
    return NULL;
}

/* Count and report bytes that differ from the poison of the last end: late writes. */
static void count_late(fallow_arena *arena, size_t bytes)
{
    const struct flw_arena_check *check = arena->check;
    size_t first = 0, count = 0;
    for (size_t k = bytes; k-- > 0;) {
        if (check->now[k] != check->pattern) {
            first = k;
            count++;
        }
    }
    if (count > 0) {
        const struct flw_placed_region *placed = region_at(&arena->lease, first);
        atomic_fetch_add_explicit(&arena->damage_count, 1, memory_order_relaxed);
        flw_arena_say(arena, FALLOW_LOG_ERROR,
                      "late: %zu bytes were written after the last lease had ended, the first in "
                      "region '%s' at %zu: " LATE_USE,
                      count, placed == NULL ? "(padding)" : placed->region.name,
                      placed == NULL ? first : first - offset_in(&arena->lease, placed));
    }
}

void flw_arena_check_between(fallow_arena *arena, fallow_stream stream)
{
    struct flw_arena_check *check = arena->check;
    struct flw_driver_section section;
    size_t bytes = check->ended_bytes;
    relay_violations(arena);
    flw_arena_check_allow(arena);
    if (bytes > 0 && has(arena, FALLOW_ARENA_CHECK_WRITTEN) && fit(check, bytes) &&
        flw_heap_enter_driver(&arena->pool->heap, &section)) {
        excuse_reads(arena, bytes, stream);
        if (copy_back(arena, check->now, scratch_of(arena), bytes, stream) &&
            wait_for(arena, stream)) {
            count_late(arena, bytes);
        }
        flw_heap_leave_driver(&arena->pool->heap, &section);
    }
}

/* ---- end */

static void check_zones(fallow_arena *arena, const struct flw_lease *lease, fallow_stream stream)
{
    unsigned char zone[FLW_ARENA_ZONE_BYTES];
    if (FLW_MUTANT(ARENA_ZONE_NOT_COMPARED)) {
        return;
    }
    for (size_t i = 0; i < lease->layout->count; i++) {
        const struct flw_placed_region *placed = &lease->layout->regions[i];
        size_t at = placed->guarded_offset + placed->region.size_bytes, k = 0;
        if (!is_scratch(placed)) {
            continue;
        }
        if (!copy_back(arena, zone, scratch_of(arena) + at, sizeof zone, stream) ||
            !wait_for(arena, stream)) {
            return;
        }
        while (k < sizeof zone && zone[k] == ZONE_BYTE) {
            k++;
        }
        if (k < sizeof zone) {
            atomic_fetch_add_explicit(&arena->damage_count, 1, memory_order_relaxed);
            flw_arena_say(arena, FALLOW_LOG_ERROR,
                          "red zone: 0x%02x was written %zu bytes behind region '%s' of %zu bytes",
                          zone[k], k, placed->region.name, placed->region.size_bytes);
        }
    }
}

static bool must_be_written(const fallow_region *region)
{
    return region->init != FALLOW_INIT_PREFIX;
}

fallow_status fallow_lease_set_used(fallow_lease *lease, size_t index, size_t bytes)
{
    fallow_arena *arena = flw_lease_arena(lease);
    if (arena == NULL || index >= arena->lease.layout->count) {
        return FALLOW_INVALID_ARGUMENT;
    }
    const fallow_region *region = &arena->lease.layout->regions[index].region;
    if (bytes > region->size_bytes) {
        return flw_arena_refuse(arena, FALLOW_INVALID_ARGUMENT,
                                "region '%s' has %zu bytes, fewer than the %zu used bytes",
                                region->name, region->size_bytes, bytes);
    }
    if (arena->check != NULL && !arena->check->is_skipped) {
        arena->check->used[index] = bytes;
    }
    return FALLOW_OK;
}

/* Report bytes that still held the poison at the end of both leases, 0xff in one and 0x7f in the other: unwritten. */
static void count_unwritten(fallow_arena *arena, const struct flw_lease *lease)
{
    const struct flw_arena_check *check = arena->check;
    for (size_t i = 0; i < lease->layout->count; i++) {
        const struct flw_placed_region *placed = &lease->layout->regions[i];
        size_t begin = offset_in(lease, placed), count = 0, first = 0;
        if (!is_scratch(placed) || !must_be_written(&placed->region)) {
            continue;
        }
        for (size_t k = flw_min(check->used[i], check->used_before[i]); k-- > 0;) {
            if (check->now[begin + k] == check->pattern &&
                check->before[begin + k] == check->before_pattern) {
                first = k;
                count++;
            }
        }
        if (count > 0) {
            atomic_fetch_add_explicit(&arena->unwritten_count, count, memory_order_relaxed);
            flw_arena_say(arena, FALLOW_LOG_ERROR,
                          "unwritten: %zu bytes of region '%s' (%zu bytes, %zu used), the first at "
                          "%zu, were written by neither of two leases",
                          count, placed->region.name, placed->region.size_bytes, check->used[i],
                          first);
        }
    }
}

/* Compare scratch with the copy from the end of the previous lease, and keep this copy. A write to any region counts
 * for all regions that share the bytes: sharing can hide a fault but never causes a false report. */
static void check_written(fallow_arena *arena, const struct flw_lease *lease, fallow_stream stream)
{
    struct flw_arena_check *check = arena->check;
    size_t bytes = flw_arena_needed_bytes(arena, lease->layout);
    if (!fit(check, bytes)) {
        return;
    }
    if (!copy_back(arena, check->now, scratch_of(arena), bytes, stream) ||
        !wait_for(arena, stream)) {
        return;
    }
    if (check->before_bytes == bytes && check->before_layout == lease->layout->id &&
        check->before_pattern != check->pattern) {
        count_unwritten(arena, lease);
    }
    unsigned char *swapped = check->before;
    check->before = check->now;
    check->now = swapped;
    size_t *used = check->used_before;
    check->used_before = check->used;
    check->used = used;
    check->before_bytes = bytes;
    check->before_layout = lease->layout->id;
    check->before_pattern = check->pattern;
}

/* Called before the pool sleeps, since a sleep may read all of scratch to save the contents. An open lease needs no
 * change: access is not forbidden then. */
static int allow_sleep(void *handle)
{
    fallow_arena *arena = flw_arena_of(handle);
    struct flw_driver_section section;
    int idle = FLW_ARENA_IDLE;
    if (arena == NULL ||
        !atomic_compare_exchange_strong_explicit(&arena->state, &idle, FLW_ARENA_AT_WORK,
                                                 memory_order_acquire, memory_order_relaxed)) {
        return 0;
    }
    size_t bytes = arena->check->ended_bytes;
    flw_arena_check_allow(arena);
    if (bytes > 0 && flw_arena_can_name(arena, &arena->last) &&
        flw_heap_enter_driver(&arena->pool->heap, &section)) {
        excuse_reads(arena, bytes, arena->last.stream);
        (void)wait_for(arena, arena->last.stream);
        flw_heap_leave_driver(&arena->pool->heap, &section);
    }
    flw_arena_release_claim(arena);
    return 0;
}

static bool may_forbid(fallow_arena *arena)
{
    struct flw_arena_check *check = arena->check;
    if (check->forbid != NULL && !check->watches_sleep) {
        check->watches_sleep =
            fallow_pool_watch_sleep(arena->handle, allow_sleep, NULL, arena->self) == FALLOW_OK;
    }
    return check->watches_sleep;
}

/* Fill scratch with poison and forbid access. All uses of the lease are ordered before this point of the stream. */
static void end_use(fallow_arena *arena, const struct flw_lease *lease, fallow_stream stream)
{
    struct flw_arena_check *check = arena->check;
    size_t bytes = flw_arena_needed_bytes(arena, lease->layout);
    bool is_filled = !has(arena, FALLOW_ARENA_CHECK_POISON | FALLOW_ARENA_CHECK_WRITTEN) ||
                     fill(arena, scratch_of(arena), check->pattern, bytes, stream);
    if (is_filled && wait_for(arena, stream)) {
        if (may_forbid(arena)) {
            check->forbid(scratch_of(arena), bytes);
        }
        check->ended_bytes = bytes;
    }
}

void flw_arena_check_end(fallow_arena *arena, const struct flw_arena_mark *end)
{
    const struct flw_lease *lease = &arena->lease;
    struct flw_driver_section section;
    if (arena->check->is_skipped || flw_capture_check(arena->pool, end->domain) != FALLOW_OK ||
        !flw_heap_enter_driver(&arena->pool->heap, &section)) {
        arena->check->before_bytes = 0;
        return;
    }
    excuse_reads(arena, flw_arena_needed_bytes(arena, lease->layout), end->stream);
    if (has(arena, FALLOW_ARENA_CHECK_RED_ZONES)) {
        check_zones(arena, lease, end->stream);
    }
    if (has(arena, FALLOW_ARENA_CHECK_WRITTEN)) {
        check_written(arena, lease, end->stream);
    }
    end_use(arena, lease, end->stream);
    flw_heap_leave_driver(&arena->pool->heap, &section);
    relay_violations(arena);
}

void flw_arena_check_destroy(fallow_arena *arena)
{
    if (arena->check != NULL) {
        if (arena->check->watches_sleep) {
            fallow_status ignored =
                fallow_pool_unwatch_sleep(arena->handle, allow_sleep, NULL, arena->self);
            (void)ignored; /* the pool may be gone */
        }
        free(arena->check->now);
        free(arena->check->before);
        free(arena->check->used);
        free(arena->check->used_before);
        free(arena->check);
    }
}
