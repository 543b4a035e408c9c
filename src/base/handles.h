/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the handle tables, one for each kind of object that callers refer to: pools, captures,
 * recorders, host pools, arenas, leases.
 * Does not: create or free the objects.
 *
 * A handle is a number in the form of a pointer, and is never dereferenced. A handle contains a
 * place of the table and a *generation* of that place, which increases with every owner. A place
 * has 2^43 generations, so the handle of an ended object is refused for ever.
 *
 *   bits 63 and 55 set · 58 to 56 the kind · 54 to 12 the generation · 11 to 0 the place
 *
 * No address of a program has both upper bits: x86 reserves bit 63 for the kernel, even with
 * five-level paging and masked addresses; ARM reserves bit 55, whatever the tag in the top byte.
 * So no pointer is mistaken for a handle, and a cache may use its own address as a key that no
 * caller has. First generations depend on the table's address, so two copies of the library in one
 * process refuse each other's handles.
 *
 * Life of a place: take (the owner has the handle, which is refused until published) · publish ·
 * drop (refused again; renew publishes the object under a new handle) · await, before the object
 * is freed · free. A *visitor* increments the count, then reads the handle. drop clears the
 * handle, then await reads the count. So one of the two sees the other. A place with a visitor
 * inside is not taken again.
 *
 * INVARIANTS
 *   1. handle is 0, or has the kind, this place and the generation. If not 0, the place
 *      is taken and object is not NULL.
 *   2. generation only increases, by one with each take or renew: no two handles of a table are equal.
 *   3. object changes only while handle is 0, and never while an admitted visitor is inside.
 *
 * Synchronization: internal, lock-free: each word changes in one step. The taker of a place owns
 * generation. Callers of publish, drop, await and free own the handle. enter and drop are
 * sequentially consistent, so that one of them sees the other. */
#ifndef FLW_BASE_HANDLES_H
#define FLW_BASE_HANDLES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"

#define FLW_HANDLE_PLACES_LOG2 12 /* number of places, log2 */
#define FLW_HANDLE_PLACES_MOST (1u << FLW_HANDLE_PLACES_LOG2)

enum flw_handle_kind {
    FLW_HANDLE_POOL = 1,
    FLW_HANDLE_CAPTURE,
    FLW_HANDLE_RECORDER,
    FLW_HANDLE_HOST,
    FLW_HANDLE_ARENA,
    FLW_HANDLE_LEASE
};

struct flw_handle_place {
    _Atomic uintptr_t handle; /* as callers hold it; 0: refuse every caller */
    void *_Atomic object;
    atomic_uint visitors;
    atomic_bool is_taken;
    uint64_t generation;
};

struct flw_handles {
    struct flw_handle_place *places;
    uint32_t count;
    enum flw_handle_kind kind;
    atomic_uint next; /* start of the search for a free place, so that places rest as long as
                          possible */
};

/* Define a table over an array of places; both have static storage. */
#define FLW_HANDLES(of_kind, array)                                                    \
    {                                                                                  \
        .places = (array), .count = sizeof(array) / sizeof *(array), .kind = (of_kind) \
    }

/* Return the place in a handle: below the table's count if the handle is one of the table's. */
static inline uint32_t flw_handle_place(const void *handle)
{
    return (uint32_t)((uintptr_t)handle & (FLW_HANDLE_PLACES_MOST - 1));
}

/* Take a place for an object under construction; return the handle, NULL if the table is full. */
void *flw_handles_take(struct flw_handles *table);

/* Accept the handle from now on; the object is complete. */
void flw_handles_publish(struct flw_handles *table, const void *handle, void *object);

/* Return the object of a handle; NULL if the object has ended or the handle is not one of this
 * table. The caller must know that the object does not end meanwhile. The object is read before
 * the handle: if the object is a later owner's, the handle is too. */
static inline void *flw_places_find(const struct flw_handle_place *places, uint32_t count,
                                    const void *handle)
{
    uint32_t index = flw_handle_place(handle);
    if (handle == NULL || index >= count) {
        return NULL;
    }
    const struct flw_handle_place *place = &places[index];
    void *object = atomic_load_explicit(&place->object, memory_order_acquire);
    uintptr_t known = atomic_load_explicit(&place->handle, memory_order_relaxed);
    return FLW_LIKELY(known == (uintptr_t)handle) ? object : NULL;
}

static inline void *flw_handles_find(const struct flw_handles *table, const void *handle)
{
    return flw_places_find(table->places, table->count, handle);
}

/* Publish a dropped object again, under the next handle of the place; return that handle. */
void *flw_handles_renew(struct flw_handles *table, const void *handle);

/* Enter as a visitor: return the object, or NULL. Until flw_handles_leave, await waits and the
 * place stays taken. */
void *flw_handles_enter(struct flw_handles *table, const void *handle);
void flw_handles_leave(struct flw_handles *table, const void *handle);

/* Visit every object. A visit may drop the object and must not await. */
void flw_handles_each(struct flw_handles *table, void (*visit)(void *object, void *context),
                      void *context);

/* Refuse the handle from now on. Returns the object to one of the droppers; NULL if the object was
 * dropped before or never published. */
void *flw_handles_drop(struct flw_handles *table, const void *handle);
/* Wait until no visitor is inside a dropped place. The caller must not be a visitor. */
void flw_handles_await(const struct flw_handles *table, const void *handle);
/* Free a place that is not published. The caller may be a visitor. */
void flw_handles_free(struct flw_handles *table, const void *handle);

/* In the child of a fork, with no other thread: refuse every handle and free every place. */
void flw_handles_forget(struct flw_handles *table);

#endif
