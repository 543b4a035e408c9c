/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: persistent regions: a block of the pool each, found by name, and the values they hold at first
 * and after their contents were lost.
 */
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "base/bits.h"

#define UPLOAD_BYTES ((size_t)64 << 10)

static struct flw_persistent *find(const fallow_arena *arena, const char *name)
{
    struct flw_persistent *each = arena->persistent;
    while (each != NULL && strcmp(each->name, name) != 0) {
        each = each->next;
    }
    return each;
}

static void drop_bindings(fallow_arena *arena)
{
    while (arena->bindings != NULL) {
        struct flw_binding *binding = arena->bindings;
        arena->bindings = binding->next;
        free(binding);
    }
    arena->last_persistent = NULL;
    arena->last_layout_id = 0;
}

static void free_block(fallow_arena *arena, struct flw_persistent *persistent)
{
    (void)fallow_free(arena->handle, persistent->address, arena->last_stream);
    atomic_fetch_sub_explicit(&arena->held_persistent_bytes, persistent->bytes,
                              memory_order_relaxed);
}

void flw_arena_free_persistent(fallow_arena *arena)
{
    drop_bindings(arena);
    while (arena->persistent != NULL) {
        struct flw_persistent *persistent = arena->persistent;
        arena->persistent = persistent->next;
        free_block(arena, persistent);
        free(persistent);
    }
}

/* A block for a region that has none, or too small a one. */
static fallow_status take(fallow_arena *arena, const fallow_region *region, fallow_stream stream,
                          uint64_t capture)
{
    struct flw_persistent *persistent = find(arena, region->name);
    void *block = NULL;
    if (arena->is_locked || capture != 0) {
        return flw_arena_refuse(
            arena, arena->is_locked ? FALLOW_OUT_OF_MEMORY : FALLOW_CAPTURING,
            "persistent region '%s' needs %zu bytes, has %zu, and the arena is %s", region->name,
            region->size_bytes, persistent == NULL ? (size_t)0 : persistent->bytes,
            arena->is_locked ? "locked" : "being captured: lease it once before");
    }
    if (persistent == NULL) {
        persistent = calloc(1, sizeof *persistent);
        if (persistent == NULL) {
            return flw_arena_refuse(arena, FALLOW_OUT_OF_HOST_MEMORY, "no room for region '%s'",
                                    region->name);
        }
        memcpy(persistent->name, region->name, strlen(region->name) + 1);
    }
    fallow_status status = flw_arena_take(arena, region->size_bytes, stream, &block);
    if (status != FALLOW_OK) {
        if (persistent->address == NULL) {
            free(persistent);
        }
        return flw_arena_refuse(arena, status, "the pool did not lend %zu bytes for '%s': %s",
                                region->size_bytes, region->name, fallow_status_message(status));
    }
    if (persistent->address != NULL) {
        free_block(arena, persistent);
        drop_bindings(arena);
    } else {
        persistent->next = arena->persistent;
        arena->persistent = persistent;
    }
    persistent->address = block;
    persistent->bytes = region->size_bytes;
    persistent->holds_values = false;
    atomic_fetch_add_explicit(&arena->held_persistent_bytes, persistent->bytes,
                              memory_order_relaxed);
    return FALLOW_OK;
}

static bool is_persistent(const fallow_region *region)
{
    return (region->flags & FALLOW_REGION_PERSISTENT) != 0;
}

fallow_status flw_arena_bind(fallow_arena *arena, const fallow_layout *layout, fallow_stream stream,
                             uint64_t capture)
{
    if (layout->persistent_count == 0) {
        arena->last_persistent = NULL;
        return FALLOW_OK;
    }
    for (size_t i = 0; i < layout->count; i++) {
        const fallow_region *region = &layout->regions[i].region;
        const struct flw_persistent *persistent =
            is_persistent(region) ? find(arena, region->name) : NULL;
        if (is_persistent(region) &&
            (persistent == NULL || persistent->bytes < region->size_bytes)) {
            fallow_status status = take(arena, region, stream, capture);
            if (status != FALLOW_OK) {
                return status;
            }
        }
    }
    struct flw_binding *binding = arena->bindings;
    while (binding != NULL && binding->layout_id != layout->id) {
        binding = binding->next;
    }
    if (binding == NULL) {
        binding = calloc(1, sizeof *binding + layout->count * sizeof binding->addresses[0]);
        if (binding == NULL) {
            return flw_arena_refuse(arena, FALLOW_OUT_OF_HOST_MEMORY, "no room for a binding");
        }
        binding->layout_id = layout->id;
        for (size_t i = 0; i < layout->count; i++) {
            const fallow_region *region = &layout->regions[i].region;
            binding->addresses[i] =
                is_persistent(region) ? find(arena, region->name)->address : NULL;
        }
        binding->next = arena->bindings;
        arena->bindings = binding;
    }
    arena->last_persistent = binding->addresses;
    return FALLOW_OK;
}

/* ---- values */

/* Elements first.. of a region, as its class has them. */
static void compute(const fallow_region *region, uint64_t first, unsigned char *to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = (uint64_t)region->init_value + (first + i) * (uint64_t)region->init_step;
        memcpy(to + i * region->element_bytes, &value, region->element_bytes);
    }
}

/* Through pageable memory, waiting: this happens once, and after a sleep. */
static CUresult upload(fallow_arena *arena, const fallow_region *region, CUdeviceptr address,
                       fallow_stream stream, const char **call)
{
    const struct flw_driver *driver = &arena->pool->driver;
    uint64_t each = region->element_bytes, count = region->size_bytes / each;
    uint64_t step = UPLOAD_BYTES / each;
    CUresult result = CUDA_SUCCESS;
    unsigned char *staging = malloc(UPLOAD_BYTES);
    if (staging == NULL) {
        *call = "malloc";
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint64_t first = 0; result == CUDA_SUCCESS && first < count; first += step) {
        uint64_t part = flw_min(step, count - first);
        compute(region, first, staging, part);
        flw_heap_count_call(&arena->pool->heap);
        *call = "cuMemcpyHtoDAsync";
        result = driver->cuMemcpyHtoDAsync(address + first * each, staging, part * each, stream);
        if (result == CUDA_SUCCESS) {
            flw_heap_count_call(&arena->pool->heap);
            *call = "cuStreamSynchronize";
            result = driver->cuStreamSynchronize(stream);
        }
    }
    free(staging);
    return result;
}

static bool is_bytewise(const fallow_region *region)
{
    uint64_t value = (uint64_t)region->init_value, pattern = (value & 0xff) * 0x0101010101010101ull;
    uint64_t mask = UINT64_MAX >> (64 - 8 * region->element_bytes);
    return region->init_step == 0 && (value & mask) == (pattern & mask);
}

static fallow_status fill(fallow_arena *arena, const fallow_region *given, void *address,
                          fallow_stream stream)
{
    struct flw_heap *heap = &arena->pool->heap;
    CUdeviceptr to = (CUdeviceptr)(uintptr_t)address;
    struct flw_driver_section section;
    fallow_region region = *given;
    const char *call = "cuMemsetD8Async";
    CUresult result;
    if (region.init == FALLOW_INIT_COUNTER || region.init == FALLOW_INIT_ZERO ||
        region.init == FALLOW_INIT_LEADING_ZERO) {
        region.init_value = region.init_step = 0;
    }
    if (!flw_heap_enter_driver(heap, &section)) {
        return FALLOW_DEVICE_LOST;
    }
    if (is_bytewise(&region)) {
        flw_heap_count_call(heap);
        result = arena->pool->driver.cuMemsetD8Async(to, (unsigned char)region.init_value,
                                                     region.size_bytes, stream);
    } else {
        result = upload(arena, &region, to, stream, &call);
    }
    flw_heap_leave_driver(heap, &section);
    return result == CUDA_SUCCESS
               ? FALLOW_OK
               : flw_arena_refuse(arena, FALLOW_DRIVER, "%s of region '%s' failed: %s", call,
                                  region.name, flw_driver_error_name(&arena->pool->driver, result));
}

fallow_status flw_arena_wake(fallow_arena *arena, const fallow_layout *layout, fallow_stream stream,
                             uint64_t capture)
{
    if (layout->persistent_count == 0) {
        return FALLOW_OK;
    }
    for (size_t i = 0; i < layout->count; i++) {
        const fallow_region *region = &layout->regions[i].region;
        struct flw_persistent *persistent =
            is_persistent(region) ? find(arena, region->name) : NULL;
        if (persistent == NULL || persistent->holds_values) {
            continue;
        }
        if (capture != 0) {
            return flw_arena_refuse(arena, FALLOW_CAPTURING,
                                    "region '%s' must be initialised and cannot be inside a "
                                    "capture: lease it once before",
                                    region->name);
        }
        bool is_done = arena->wake != NULL &&
                       arena->wake(arena->wake_context, region, persistent->address, stream) == 0;
        bool has_values = region->init != FALLOW_INIT_DIRTY && region->init != FALLOW_INIT_PREFIX;
        if (!is_done && has_values) {
            fallow_status status = fill(arena, region, persistent->address, stream);
            if (status != FALLOW_OK) {
                return status;
            }
        }
        persistent->holds_values = true;
        atomic_fetch_add_explicit(&arena->init_count, 1, memory_order_relaxed);
    }
    return FALLOW_OK;
}
