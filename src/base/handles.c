/* SPDX-License-Identifier: Apache-2.0 */
#include "base/handles.h"

#include "base/backoff.h"
#include "base/bits.h"
#include "base/check.h"

#define MARKS           (UINT64_C(1) << 63 | UINT64_C(1) << 55)
#define KIND_BIT        56
#define GENERATION_BITS (55 - FLW_HANDLE_PLACES_LOG2)
#define GENERATION_MASK ((UINT64_C(1) << GENERATION_BITS) - 1)

_Static_assert(sizeof(uintptr_t) == 8, "a handle has 64 bits");

/* Return an odd number, so that different tables have different first generations. */
static uint64_t first_generation(const struct flw_handles *table)
{
    return (uint64_t)(uintptr_t)table / _Alignof(struct flw_handles) * UINT64_C(0x9E3779B97F4A7C15);
}

static uintptr_t handle_at(const struct flw_handles *table, uint32_t index)
{
    uint64_t generation = first_generation(table) + table->places[index].generation;
    return (uintptr_t)(MARKS | (uint64_t)table->kind << KIND_BIT |
                       (generation & GENERATION_MASK) << FLW_HANDLE_PLACES_LOG2 | index);
}

/* Return the place of a handle, NULL for other values. */
static struct flw_handle_place *place_of(const struct flw_handles *table, const void *handle)
{
    uint32_t index = flw_handle_place(handle);
    return handle != NULL && index < table->count ? &table->places[index] : NULL;
}

/* Every visitor admitted before is counted now; a later one finds no handle. */
static bool take(struct flw_handle_place *place)
{
    bool is_taken = false;
    if (!atomic_compare_exchange_strong(&place->is_taken, &is_taken, true)) {
        return false;
    }
    if (atomic_load(&place->visitors) != 0) {
        atomic_store_explicit(&place->is_taken, false, memory_order_release);
        return false;
    }
    return true;
}

void *flw_handles_take(struct flw_handles *table)
{
    uint32_t first = atomic_load_explicit(&table->next, memory_order_relaxed);
    FLW_ASSERT(table->count <= FLW_HANDLE_PLACES_MOST);
    for (uint32_t i = 0; i < table->count; i++) {
        uint32_t index = (first + i) % table->count;
        struct flw_handle_place *place = &table->places[index];
        if (take(place)) {
            FLW_ASSERT(atomic_load(&place->handle) == 0);
            place->generation++;
            atomic_store_explicit(&table->next, index + 1, memory_order_relaxed);
            return (void *)handle_at(table, index); /* never dereferenced */
        }
    }
    return NULL;
}

void flw_handles_publish(struct flw_handles *table, const void *handle, void *object)
{
    struct flw_handle_place *place = place_of(table, handle);
    FLW_ASSERT(object != NULL && atomic_load(&place->is_taken));
    FLW_ASSERT(handle_at(table, flw_handle_place(handle)) == (uintptr_t)handle);
    atomic_store_explicit(&place->object, object, memory_order_release);
    atomic_store(&place->handle, (uintptr_t)handle);
}

void *flw_handles_renew(struct flw_handles *table, const void *handle)
{
    const uintptr_t bits = (uintptr_t)GENERATION_MASK << FLW_HANDLE_PLACES_LOG2;
    const uintptr_t known = (uintptr_t)handle;
    const uintptr_t next = (known & ~bits) | ((known + FLW_HANDLE_PLACES_MOST) & bits);
    struct flw_handle_place *place = &table->places[flw_handle_place(handle)];
    FLW_ASSERT(atomic_load(&place->is_taken) && atomic_load(&place->handle) == 0);
    place->generation++;
    FLW_ASSERT(handle_at(table, flw_handle_place(handle)) == next);
    atomic_store(&place->handle, next);
    return (void *)next;
}

void *flw_handles_enter(struct flw_handles *table, const void *handle)
{
    struct flw_handle_place *place = place_of(table, handle);
    if (place == NULL) {
        return NULL;
    }
    atomic_fetch_add(&place->visitors, 1);
    if (atomic_load(&place->handle) == (uintptr_t)handle) {
        return atomic_load_explicit(&place->object, memory_order_relaxed);
    }
    atomic_fetch_sub(&place->visitors, 1);
    return NULL;
}

void flw_handles_leave(struct flw_handles *table, const void *handle)
{
    atomic_fetch_sub(&place_of(table, handle)->visitors, 1);
}

void flw_handles_each(struct flw_handles *table, void (*visit)(void *object, void *context),
                      void *context)
{
    for (uint32_t i = 0; i < table->count; i++) {
        struct flw_handle_place *place = &table->places[i];
        if (atomic_load_explicit(&place->handle, memory_order_relaxed) == 0) {
            continue;
        }
        atomic_fetch_add(&place->visitors, 1);
        if (atomic_load(&place->handle) != 0) {
            visit(atomic_load_explicit(&place->object, memory_order_relaxed), context);
        }
        atomic_fetch_sub(&place->visitors, 1);
    }
}

void *flw_handles_drop(struct flw_handles *table, const void *handle)
{
    struct flw_handle_place *place = place_of(table, handle);
    uintptr_t known = (uintptr_t)handle;
    if (place == NULL || !atomic_compare_exchange_strong(&place->handle, &known, 0)) {
        return NULL;
    }
    return atomic_load_explicit(&place->object, memory_order_relaxed);
}

/* A visit is short, but may make driver calls, on a thread of lower priority. */
void flw_handles_await(const struct flw_handles *table, const void *handle)
{
    struct flw_handle_place *place = place_of(table, handle);
    struct flw_backoff backoff = {0};
    while (atomic_load(&place->visitors) != 0) {
        flw_backoff_wait(&backoff);
    }
}

void flw_handles_free(struct flw_handles *table, const void *handle)
{
    struct flw_handle_place *place = place_of(table, handle);
    FLW_ASSERT(atomic_load(&place->is_taken) && atomic_load(&place->handle) == 0);
    atomic_store_explicit(&place->is_taken, false, memory_order_release);
}

void flw_handles_forget(struct flw_handles *table)
{
    for (uint32_t i = 0; i < table->count; i++) {
        struct flw_handle_place *place = &table->places[i];
        atomic_store(&place->handle, 0);
        atomic_store(&place->visitors, 0);
        atomic_store(&place->is_taken, false);
    }
}
