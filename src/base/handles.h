/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the handle tables, one for each kind of object that callers refer to: pools, captures, recorders, host pools,
 * arenas, leases.
 * Does not: create or free the objects.
 *
 * A handle is a number in the shape of a pointer, which is compared and never dereferenced. A handle contains a place of
 * its table and a *generation* of that place, which grows with every owner: the handle of an object that has ended is
 * refused for good, since a place has 2^43 generations.
 *
 *   bits 63 and 55 set · 58 to 56 the kind · 54 to 12 the generation · 11 to 0 the place
 *
 * No address in a program has both upper bits: x86 keeps bit 63 for the kernel, with five levels of
 * pages and masked addresses too; ARM keeps bit 55, whatever tag the top byte bears. So no pointer is
 * taken for a handle, and a cache may use its own address for a key that no caller holds. Where a table
 * lies says where its generations begin: two copies of the library in one process refuse each other's
 * handles.
 *
 * The life of a place: take (its owner knows the handle, others are refused) · publish · drop (refused
 * from now on; renew publishes the object again, under a new handle) · await, before the object is freed · free. A
 * *visitor* increments the count, then reads the handle; drop clears the handle, then await reads the count: one of the
 * two sees the other. A place with a visitor inside is not taken again.
 *
 * INVARIANTS
 *   1. handle is 0, or has this place, its generation and the table's kind. Where it is not 0 the place
 *      is taken and object is not NULL.
 *   2. generation only grows, by one with each take or renew: no two handles of a table are equal.
 *   3. object changes only while handle is 0, and never while a visitor who was let in is inside.
 *
 * Synchronization: internal, without a lock: each word changes in one step. generation belongs to
 * whoever has taken the place. Callers of publish, drop, await and free own the handle; enter and drop
 * are sequentially consistent, which is what lets one of the two see the other.
 */
#ifndef FLW_BASE_HANDLES_H
#define FLW_BASE_HANDLES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"

#define FLW_HANDLE_PLACES_LOG2 12 /* a table has at most so many */
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
    _Atomic uintptr_t handle; /* as callers hold it; 0: whoever comes is refused */
    void *_Atomic object;
    atomic_uint visitors;
    atomic_bool is_taken;
    uint64_t generation;
};

struct flw_handles {
    struct flw_handle_place *places;
    uint32_t count;
    enum flw_handle_kind kind;
    atomic_uint next; /* where the search for a free place begins: it is left alone the longest */
};

/* A table over an array of places, both of static storage. */
#define FLW_HANDLES(of_kind, array)                                                    \
    {                                                                                  \
        .places = (array), .count = sizeof(array) / sizeof *(array), .kind = (of_kind) \
    }

/* The place that a handle names: below the table's count where it is one of the table's. */
static inline uint32_t flw_handle_place(const void *handle)
{
    return (uint32_t)((uintptr_t)handle & (FLW_HANDLE_PLACES_MOST - 1));
}

/* A place for an object that is being made, and its handle. NULL: the table is full. */
void *flw_handles_take(struct flw_handles *table);

/* The object is complete: from now on its handle is believed. */
void flw_handles_publish(struct flw_handles *table, const void *handle, void *object);

/* The object of a handle; NULL: it has ended, is another table's, or never was a handle. Nothing keeps
 * the object but the caller's knowledge that it is not ended now. The object is read first: where
 * it is a later owner's, so is the handle. */
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

/* Publish a dropped object again, under the next handle of the same place; return that handle. */
void *flw_handles_renew(struct flw_handles *table, const void *handle);

/* The same as a visitor: not NULL, and until flw_handles_leave await waits and the place stays. */
void *flw_handles_enter(struct flw_handles *table, const void *handle);
void flw_handles_leave(struct flw_handles *table, const void *handle);

/* Visits every object in turn. Visits may drop what they visit, and must not await. */
void flw_handles_each(struct flw_handles *table, void (*visit)(void *object, void *context),
                      void *context);

/* From now on the handle is refused. Its object, to one of those who drop it; NULL: another has, or it
 * was never published. */
void *flw_handles_drop(struct flw_handles *table, const void *handle);
/* Dropped: until no visitor is inside. The caller is none. */
void flw_handles_await(const struct flw_handles *table, const void *handle);
/* Taken, not published or dropped: the place is another's to take. The caller may be a visitor. */
void flw_handles_free(struct flw_handles *table, const void *handle);

/* In the child of a fork, where no other thread is: every handle is refused, every place free. */
void flw_handles_forget(struct flw_handles *table);

#endif
