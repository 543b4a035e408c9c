/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: order domains: the kinds but that of a context (epoch.c), their places, their streams' handles, what
 * becomes of memory that is complete, the loss of a stream.
 * Does not: make fences, ask for them or wait (fence.h), or synchronise (sync.h).
 */
#ifndef FLW_HEAP_ORDER_DOMAIN_H
#define FLW_HEAP_ORDER_DOMAIN_H

#include "heap/state/state.h"

/* lock. A new domain, or NULL (table full, host memory). */
struct flw_domain *flw_domain_create(struct flw_heap *heap, const struct flw_order_ops *ops,
                                     CUstream stream, CUcontext context, uint64_t id);
/* lock. Return the tracked stream's domain of a handle, or NULL. */
struct flw_domain *flw_domain_find(const struct flw_heap *heap, CUstream stream);
/* lock. Return the domain of a stream under another of its names: NULL and CU_STREAM_LEGACY are one stream. */
struct flw_domain *flw_domain_find_alias(const struct flw_heap *heap, CUstream stream, uint64_t id);

/* takes the lock. The next domain in use from *cursor on (begin with 0, which is left out); NULL
 * at the end. What it says of itself may have changed when the caller looks. */
struct flw_domain *flw_domain_next(struct flw_heap *heap, uint32_t *cursor);

/* take the lock. Between the two the domain's stream may be named to the driver, for a question that
 * lasts no time: a retire, after which the caller may destroy it, waits. False: it may not be. */
bool flw_domain_begin_naming(struct flw_heap *heap, struct flw_domain *domain, bool foreign_only);
/* The same for the next domain, in turn, with a stream that may be named; NULL: none among the next few places. */
struct flw_domain *flw_domain_begin_naming_next(struct flw_heap *heap);
void flw_domain_end_naming(struct flw_heap *heap, struct flw_domain *domain);
/* calls; for who may name the stream. OK: it is not being captured, and its fences are cleared. Else
 * CAPTURING, INVALID_STREAM, DRIVER, DEVICE_LOST. */
fallow_status flw_domain_ask_capture(struct flw_heap *heap, struct flw_domain *domain);

/* lock. The domain has done everything up to `seq`: its old memory becomes unowned, and deferred
 * frees that wait for nothing else go to their owners. */
void flw_domain_complete(struct flw_heap *heap, struct flw_domain *domain, uint64_t seq);
/* lock. The same for one of several, which are settled together. True: flw_heap_settle_deferred is to follow
 * the last of them. */
FALLOW_NODISCARD bool flw_domain_complete_unsettled(struct flw_heap *heap,
                                                    struct flw_domain *domain, uint64_t seq);
/* Deferred frees whose points are complete go to their owners. True if any did. Cost: one look a
 * domain, and those that may be done. */
bool flw_heap_settle_deferred(struct flw_heap *heap);
/* The same of those only that no sequence number tells of: they wait for a synchronisation, or for nothing. Cost:
 * these. */
bool flw_heap_settle_untold(struct flw_heap *heap);
/* The same, and of what waits for the domain, which has completed something. Cost: those that may be done. */
bool flw_domain_settle_deferred(struct flw_heap *heap, struct flw_domain *domain);

/* lock. Free the place of a stream's domain that is forgotten and owns nothing any more. */
void flw_domain_free_place(struct flw_heap *heap, struct flw_domain *domain);

/* lock. The domain's handle is gone and nothing covers its memory: all of it needs a context sync.
 */
void flw_domain_lose(struct flw_heap *heap, struct flw_domain *domain);

/* The same where it is no mistake: a thread's default stream when the thread ends. */
void flw_domain_lose_quietly(struct flw_heap *heap, struct flw_domain *domain);

#endif
