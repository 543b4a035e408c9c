/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: order domains: all kinds except a context's (epoch.c), their places, their streams'
 * handles, the transfer of complete memory, the loss of a stream.
 * Does not: record fences, query them or wait (fence.h), or synchronise (sync.h). */
#ifndef FLW_HEAP_ORDER_DOMAIN_H
#define FLW_HEAP_ORDER_DOMAIN_H

#include "heap/state/state.h"

/* Create a domain; NULL if the table is full or host memory runs out. Heap lock held. */
struct flw_domain *flw_domain_create(struct flw_heap *heap, const struct flw_order_ops *ops,
                                     CUstream stream, CUcontext context, uint64_t id);
/* Return the tracked stream's domain of a handle, or NULL. Heap lock held. */
struct flw_domain *flw_domain_find(const struct flw_heap *heap, CUstream stream);
/* Return the domain of a stream under another of the names, as NULL and CU_STREAM_LEGACY. Heap
 * lock held. */
struct flw_domain *flw_domain_find_alias(const struct flw_heap *heap, CUstream stream, uint64_t id);

/* Return the next domain in use after *cursor (begin with 0, which is skipped); NULL at the end.
 * The state may have changed when the caller reads it. Takes the heap lock. */
struct flw_domain *flw_domain_next(struct flw_heap *heap, uint32_t *cursor);

/* Begin and end a short driver query that names the domain's stream: a retire, after which the
 * caller may destroy the stream, waits meanwhile. begin returns false if the stream must not be
 * named. Take the heap lock. */
bool flw_domain_begin_naming(struct flw_heap *heap, struct flw_domain *domain, bool foreign_only);
/* The same for the next domain in turn that may be named; NULL: none among the next few places. */
struct flw_domain *flw_domain_begin_naming_next(struct flw_heap *heap);
void flw_domain_end_naming(struct flw_heap *heap, struct flw_domain *domain);
/* Query whether the stream is captured, for callers that may name the stream. OK: not captured,
 * and the fences are cleared. Otherwise CAPTURING, INVALID_STREAM, DRIVER, DEVICE_LOST. Makes
 * driver calls. */
fallow_status flw_domain_ask_capture(struct flw_heap *heap, struct flw_domain *domain);

/* Record that the domain has completed everything up to `seq`: that memory becomes unowned, and
 * deferred frees that wait for nothing else return to their owners. Heap lock held. */
void flw_domain_complete(struct flw_heap *heap, struct flw_domain *domain, uint64_t seq);
/* The same for one of several domains with deferred frees to be returned together. Returns true if
 * flw_heap_return_deferred must follow the last of them. Heap lock held. */
FALLOW_NODISCARD bool flw_domain_complete_only(struct flw_heap *heap, struct flw_domain *domain,
                                               uint64_t seq);
/* Return deferred frees with complete points to their owners. True if there were any. Cost: one
 * check per domain, and per free that may be complete. */
bool flw_heap_return_deferred(struct flw_heap *heap);
/* The same only for frees without a sequence number: those that wait for a synchronisation, or for
 * nothing. */
bool flw_heap_return_unnumbered(struct flw_heap *heap);
/* The same for frees that wait for the domain, which has completed something. */
bool flw_domain_return_deferred(struct flw_heap *heap, struct flw_domain *domain);

/* Free the place of a stream's domain that is forgotten and owns nothing. Heap lock held. */
void flw_domain_free_place(struct flw_heap *heap, struct flw_domain *domain);

/* Record that the domain's handle is gone and nothing covers the memory: all of it needs a
 * synchronisation of the context. Heap lock held. */
void flw_domain_lose(struct flw_heap *heap, struct flw_domain *domain);

/* The same if it is not a mistake: a thread's default stream when the thread ends. */
void flw_domain_lose_quietly(struct flw_heap *heap, struct flw_domain *domain);

#endif
