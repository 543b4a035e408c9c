/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the table of places of order domains, the free places, and the lookup of tracked streams by handle.
 * Does not: decide when a place is free or a stream tracked (heap/order/domain.c).
 *
 * INVARIANTS
 *   1. A place below `end` is in `free`, once, if and only if the domain's ops are NULL.
 *   2. Each tracked stream (is_known) is in the chain of the handle, once; the chains hold nothing else.
 * Synchronization: the heap lock.
 */
#ifndef FLW_HEAP_STATE_PLACES_H
#define FLW_HEAP_STATE_PLACES_H

#include "base/bits.h"
#include "base/meta.h"
#include "heap/state/order.h"

#define FLW_CHAIN_COUNT_LOG2 14
#define FLW_CHAIN_COUNT      (1u << FLW_CHAIN_COUNT_LOG2)
#define FLW_PLACES_BYTES     ((FLW_DOMAIN_COUNT + FLW_CHAIN_COUNT) * sizeof(struct flw_domain *))

struct flw_places {
    struct flw_meta meta;       /* the places, then the chains; written sparsely */
    struct flw_domain **chains; /* tracked streams by handle, linked by next_place */
    struct flw_domain *free;    /* linked by next_place */
    uint32_t donor; /* the first of those with the previous donor (pool/ladder/steal.c) */
    uint32_t named; /* index of the last domain that had its turn (flw_domain_begin_naming_next) */
};

/* False: no host memory. Tables that were never created may be finished. */
static inline bool flw_places_init(struct flw_places *places, struct flw_domain ***out_domains)
{
    if (!flw_meta_reserve(&places->meta, FLW_PLACES_BYTES) || !flw_meta_open(&places->meta)) {
        return false;
    }
    *out_domains = (struct flw_domain **)(void *)places->meta.base;
    places->chains = *out_domains + FLW_DOMAIN_COUNT;
    return true;
}

static inline void flw_places_finish(struct flw_places *places)
{
    flw_meta_release(&places->meta);
    *places = (struct flw_places){.free = NULL};
}

/* Return the chain of a handle: that of NULL for all names of the legacy stream.
 * CU_STREAM_PER_THREAD is another stream in each thread. */
static inline struct flw_domain **flw_places_chain(const struct flw_places *places, CUstream stream,
                                                   uintptr_t thread)
{
    uint64_t key = stream == CU_STREAM_PER_THREAD ? thread
                   : stream == CU_STREAM_LEGACY   ? 0
                                                  : (uintptr_t)stream;
    return &places->chains[(key * 0x9E3779B97F4A7C15ull) >> (64 - FLW_CHAIN_COUNT_LOG2)];
}

static inline void flw_places_note_stream(struct flw_places *places, struct flw_domain *domain)
{
    struct flw_domain **chain = flw_places_chain(places, domain->stream, domain->thread);
    domain->is_known = true;
    domain->next_place = *chain;
    *chain = domain;
}

static inline void flw_places_forget_stream(struct flw_places *places, struct flw_domain *domain)
{
    struct flw_domain **link = flw_places_chain(places, domain->stream, domain->thread);
    domain->is_known = false;
    while (*link != domain) {
        link = &(*link)->next_place;
    }
    *link = domain->next_place;
}

/* Free a place; all points with this place are complete. */
static inline void flw_places_vacate(struct flw_places *places, struct flw_domain *domain)
{
    domain->ops = NULL;
    domain->completed = domain->seq++;
    domain->next_place = places->free;
    places->free = domain;
}

#endif
