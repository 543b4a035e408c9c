/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: persistent regions, found by name, with a block of the pool each, and the initialisation of their values at
 * first and after a loss of contents.
 */
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "base/bits.h"
#include "base/mutant.h"

#define UPLOAD_BYTES  ((size_t)64 << 10)
#define BINDINGS_MOST 32

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

static void free_persistent(fallow_arena *arena, struct flw_persistent *persistent)
{
    if (persistent->address != NULL) {
        flw_arena_free_block(arena, persistent->address);
        atomic_fetch_sub_explicit(&arena->held_persistent_bytes, persistent->region.size_bytes,
                                  memory_order_relaxed);
    }
    persistent->address = NULL;
    persistent->holds_values = false;
}

void flw_arena_trim_persistent(fallow_arena *arena)
{
    drop_bindings(arena);
    for (struct flw_persistent *each = arena->persistent; each != NULL; each = each->next) {
        free_persistent(arena, each);
    }
}

void flw_arena_free_persistent(fallow_arena *arena)
{
    drop_bindings(arena);
    while (arena->persistent != NULL) {
        struct flw_persistent *persistent = arena->persistent;
        arena->persistent = persistent->next;
        free(persistent);
    }
}

static bool is_persistent(const fallow_region *region)
{
    return (region->flags & FALLOW_REGION_PERSISTENT) != 0;
}

/* ---- checks before a lease */

static bool holds_the_same(const fallow_region *a, const fallow_region *b)
{
    return a->init == b->init && a->init_value == b->init_value && a->init_step == b->init_step &&
           a->element_bytes == b->element_bytes;
}

static bool must_take(const struct flw_persistent *persistent, const fallow_region *region)
{
    return persistent == NULL || persistent->address == NULL ||
           persistent->region.size_bytes < region->size_bytes ||
           ((uintptr_t)persistent->address & (region->align_bytes - 1)) != 0;
}

static fallow_status check_one(fallow_arena *arena, const fallow_region *region,
                               const fallow_capture *capture)
{
    const struct flw_persistent *persistent = find(arena, region->name);
    size_t has_bytes = persistent == NULL ? 0 : persistent->region.size_bytes;
    if (persistent != NULL && !holds_the_same(&persistent->region, region)) {
        return flw_arena_refuse(arena, FALLOW_INVALID_ARGUMENT,
                                "persistent region '%s' has other initial values in another layout",
                                region->name);
    }
    bool is_taken = must_take(persistent, region);
    if (is_taken && capture != NULL) {
        return flw_arena_refuse(arena, FALLOW_CAPTURING,
                                "persistent region '%s' needs %zu bytes aligned to %zu, has %zu, "
                                "and cannot move inside a capture: lease the layout once before",
                                region->name, region->size_bytes, region->align_bytes, has_bytes);
    }
    if (is_taken && persistent != NULL && persistent->address != NULL &&
        flw_arena_graph_count(arena) > 0) {
        return flw_arena_refuse(arena, FALLOW_BUSY,
                                "persistent region '%s' needs %zu bytes aligned to %zu, has %zu, "
                                "and cannot move while graphs of %zu captures hold its address: "
                                "release them first",
                                region->name, region->size_bytes, region->align_bytes, has_bytes,
                                flw_arena_graph_count(arena));
    }
    if (capture != NULL && persistent != NULL && !persistent->holds_values) {
        return flw_arena_refuse(arena, FALLOW_CAPTURING,
                                "persistent region '%s' must be initialised and cannot be inside "
                                "a capture: lease the layout once before",
                                region->name);
    }
    return FALLOW_OK;
}

fallow_status flw_arena_check_persistent(fallow_arena *arena, const fallow_layout *layout,
                                         const fallow_capture *capture)
{
    fallow_status status = FALLOW_OK;
    for (size_t i = 0; status == FALLOW_OK && layout->persistent_count > 0 && i < layout->count;
         i++) {
        const fallow_region *region = &layout->regions[i].region;
        status = is_persistent(region) ? check_one(arena, region, capture) : FALLOW_OK;
    }
    return status;
}

size_t flw_arena_persistent_bytes(const fallow_arena *arena, const fallow_layout *layout)
{
    size_t bytes = atomic_load_explicit(&arena->held_persistent_bytes, memory_order_relaxed);
    for (size_t i = 0; layout != NULL && layout->persistent_count > 0 && i < layout->count; i++) {
        const fallow_region *region = &layout->regions[i].region;
        const struct flw_persistent *has = is_persistent(region) ? find(arena, region->name) : NULL;
        if (is_persistent(region) && must_take(has, region)) {
            size_t most = flw_max(region->size_bytes, has == NULL ? 0 : has->region.size_bytes);
            bytes += most - (has == NULL || has->address == NULL ? 0 : has->region.size_bytes);
        }
    }
    return bytes;
}

/* ---- blocks */

static struct flw_persistent *enter(fallow_arena *arena, const fallow_region *region)
{
    struct flw_persistent *persistent = calloc(1, sizeof *persistent);
    if (persistent != NULL) {
        memcpy(persistent->name, region->name, strlen(region->name) + 1);
        persistent->region = *region;
        persistent->region.name = persistent->name;
        persistent->region.size_bytes = 0; /* nothing yet */
        persistent->next = arena->persistent;
        arena->persistent = persistent;
    }
    return persistent;
}

/* Allocate a block for a region without a block, or with a block that is too small or not aligned. */
static fallow_status take(fallow_arena *arena, const fallow_region *region, fallow_stream stream)
{
    struct flw_persistent *persistent = find(arena, region->name);
    void *block = NULL;
    if (persistent == NULL && (persistent = enter(arena, region)) == NULL) {
        return flw_arena_refuse(arena, FALLOW_OUT_OF_HOST_MEMORY, "no host memory for region '%s'",
                                region->name);
    }
    size_t bytes = flw_max(region->size_bytes, persistent->region.size_bytes);
    size_t align = flw_max(region->align_bytes, persistent->region.align_bytes);
    fallow_status status =
        persistent->address != NULL ? flw_arena_await_all(arena, true) : FALLOW_OK;
    status = status == FALLOW_OK ? flw_arena_take(arena, bytes, align, stream, &block) : status;
    if (status != FALLOW_OK) {
        return flw_arena_refuse(arena, status, "the pool did not allocate %zu bytes for '%s': %s",
                                bytes, region->name, fallow_status_message(status));
    }
    free_persistent(arena, persistent);
    if (!FLW_MUTANT(ARENA_STALE_BINDING)) {
        drop_bindings(arena);
    }
    persistent->address = block;
    persistent->region.size_bytes = bytes;
    persistent->region.align_bytes = align;
    atomic_fetch_add_explicit(&arena->held_persistent_bytes, bytes, memory_order_relaxed);
    return FALLOW_OK;
}

/* Return the layout's binding, moved to the front of the list; NULL: none. */
static struct flw_binding *find_binding(fallow_arena *arena, uint64_t layout_id)
{
    for (struct flw_binding **link = &arena->bindings; *link != NULL; link = &(*link)->next) {
        struct flw_binding *binding = *link;
        if (binding->layout_id == layout_id) {
            *link = binding->next;
            binding->next = arena->bindings;
            arena->bindings = binding;
            return binding;
        }
    }
    return NULL;
}

/* Free the least recently used bindings. A later lease binds such a layout again. */
static void limit_bindings(fallow_arena *arena)
{
    struct flw_binding **link = &arena->bindings;
    for (size_t i = 0; i < BINDINGS_MOST && *link != NULL; i++) {
        link = &(*link)->next;
    }
    while (*link != NULL) {
        struct flw_binding *binding = *link;
        *link = binding->next;
        free(binding);
    }
}

static struct flw_binding *add_binding(fallow_arena *arena, const fallow_layout *layout)
{
    struct flw_binding *binding =
        calloc(1, sizeof *binding + layout->count * sizeof binding->addresses[0]);
    if (binding == NULL) {
        return NULL;
    }
    binding->layout_id = layout->id;
    binding->holds_values = true;
    for (size_t i = 0; i < layout->count; i++) {
        const fallow_region *region = &layout->regions[i].region;
        if (is_persistent(region)) {
            const struct flw_persistent *persistent = find(arena, region->name);
            binding->addresses[i] = persistent->address;
            binding->holds_values &= persistent->holds_values;
        }
    }
    binding->next = arena->bindings;
    arena->bindings = binding;
    limit_bindings(arena);
    return binding;
}

static bool is_held(const fallow_arena *arena, const fallow_region *region)
{
    const struct flw_persistent *persistent = find(arena, region->name);
    return !must_take(persistent, region) && holds_the_same(&persistent->region, region);
}

bool flw_arena_find_bound(fallow_arena *arena, const fallow_layout *layout,
                          void *const **out_addresses)
{
    *out_addresses = NULL;
    if (layout->persistent_count == 0) {
        return true;
    }
    struct flw_binding *binding = find_binding(arena, layout->id);
    for (size_t i = 0; binding == NULL && i < layout->count; i++) {
        const fallow_region *region = &layout->regions[i].region;
        if (is_persistent(region) && !is_held(arena, region)) {
            return false;
        }
    }
    binding = binding == NULL ? add_binding(arena, layout) : binding;
    if (binding == NULL || !binding->holds_values) {
        return false;
    }
    *out_addresses = binding->addresses;
    return true;
}

fallow_status flw_arena_bind(fallow_arena *arena, const fallow_layout *layout, fallow_stream stream,
                             void *const **out_addresses)
{
    *out_addresses = NULL;
    if (layout->persistent_count == 0) {
        return FALLOW_OK;
    }
    for (size_t i = 0; i < layout->count; i++) {
        const fallow_region *region = &layout->regions[i].region;
        if (is_persistent(region) && must_take(find(arena, region->name), region)) {
            fallow_status status = take(arena, region, stream);
            if (status != FALLOW_OK) {
                return status;
            }
        }
    }
    struct flw_binding *binding = find_binding(arena, layout->id);
    binding = binding == NULL ? add_binding(arena, layout) : binding;
    if (binding == NULL) {
        return flw_arena_refuse(arena, FALLOW_OUT_OF_HOST_MEMORY, "no host memory for a binding");
    }
    *out_addresses = binding->addresses;
    return FALLOW_OK;
}

/* ---- values */

/* Compute `count` elements of a region from element `first` on. */
static void compute(const fallow_region *region, uint64_t first, unsigned char *to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = (uint64_t)region->init_value + (first + i) * (uint64_t)region->init_step;
        memcpy(to + i * region->element_bytes, &value, region->element_bytes);
    }
}

/* Copy from pageable memory and wait, since values are initialised rarely: at first and after a loss. */
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
        result = driver->cuMemcpyHtoDAsync_v2(address + first * each, staging, part * each, stream);
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
    fallow_status status = flw_gate_enter(&arena->pool->gate, true);
    if (status != FALLOW_OK) {
        return flw_arena_refuse(arena, status, "its pool fell asleep during the call");
    }
    if (!flw_heap_enter_driver(heap, &section)) {
        flw_gate_leave(&arena->pool->gate);
        return flw_heap_not_entered(heap);
    }
    if (is_bytewise(&region)) {
        flw_heap_count_call(heap);
        result = arena->pool->driver.cuMemsetD8Async(to, (unsigned char)region.init_value,
                                                     region.size_bytes, stream);
    } else {
        result = upload(arena, &region, to, stream, &call);
    }
    flw_heap_leave_driver(heap, &section);
    flw_gate_leave(&arena->pool->gate);
    return result == CUDA_SUCCESS
               ? FALLOW_OK
               : flw_arena_refuse(arena, flw_heap_refuse(heap, result, call),
                                  "%s of region '%s' failed: %s", call, region.name,
                                  flw_driver_error_name(&arena->pool->driver, result));
}

/* Initialise the whole block, since another layout may use a larger part. */
static fallow_status wake_one(fallow_arena *arena, struct flw_persistent *persistent,
                              fallow_stream stream)
{
    const fallow_region *region = &persistent->region;
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
    return FALLOW_OK;
}

static bool lacks_values(const struct flw_persistent *persistent)
{
    return persistent->address != NULL && !persistent->holds_values;
}

void flw_arena_lose_values(fallow_arena *arena)
{
    for (struct flw_persistent *each = arena->persistent; each != NULL; each = each->next) {
        each->holds_values = false;
    }
    for (struct flw_binding *each = arena->bindings; each != NULL; each = each->next) {
        each->holds_values = false;
    }
    arena->last_layout_id = 0;
}

fallow_status flw_arena_notice_sleep(fallow_arena *arena)
{
    struct flw_pool *pool = arena->pool;
    if (flw_gate_is_asleep(&pool->gate)) {
        return flw_arena_refuse(arena, FALLOW_ASLEEP, "its pool is asleep: wake the pool first");
    }
    uint64_t serial = atomic_load(&pool->sleeper.serial);
    if (serial != arena->sleep_serial &&
        !flw_sleep_has_kept(pool, arena->tag, arena->sleep_serial)) {
        flw_arena_lose_values(arena);
    }
    if (serial != arena->sleep_serial) {
        flw_arena_check_allow(arena); /* scratch may hold anything now */
    }
    arena->sleep_serial = serial;
    return FALLOW_OK;
}

bool flw_arena_has_persistent(const fallow_arena *arena)
{
    const struct flw_persistent *each = arena->persistent;
    while (each != NULL && each->address == NULL) {
        each = each->next;
    }
    return each != NULL;
}

bool flw_arena_must_wake(const fallow_arena *arena)
{
    const struct flw_persistent *each = arena->persistent;
    while (each != NULL && !lacks_values(each)) {
        each = each->next;
    }
    return each != NULL;
}

fallow_status flw_arena_wake(fallow_arena *arena, const fallow_layout *layout, fallow_stream stream)
{
    fallow_status status = FALLOW_OK;
    for (struct flw_persistent *each = arena->persistent; status == FALLOW_OK && each != NULL;
         each = each->next) {
        if (lacks_values(each) &&
            (layout == NULL || fallow_layout_find(layout, each->name) != SIZE_MAX)) {
            status = wake_one(arena, each, stream);
        }
    }
    for (struct flw_binding *binding = arena->bindings; status == FALLOW_OK && binding != NULL;
         binding = binding->next) {
        binding->holds_values |= layout == NULL || binding->layout_id == layout->id;
    }
    return status;
}
