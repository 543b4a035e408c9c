/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: fences: recorded (fence.c), queried and waited for by the host or by another stream
 * (wait.c). */
#ifndef FLW_HEAP_ORDER_FENCE_H
#define FLW_HEAP_ORDER_FENCE_H

#include "heap/state/state.h"

/* True if this thread can record a fence of the domain. `is_own`: inside a call on the stream.
 * Heap lock held. */
bool flw_domain_can_fence(const struct flw_heap *heap, const struct flw_domain *domain,
                          bool is_own);

/* Record an event that covers every sequence number so far. OK also if another thread is recording
 * or nothing was marked since the last one. INVALID_STREAM: the stream is gone, the domain is now
 * lost. WOULD_WAIT: not now, or not by this thread. DRIVER: refused (domain.refuses_fences). Makes
 * driver calls. */
fallow_status flw_domain_fence(struct flw_heap *heap, struct flw_domain *domain);
/* Cover the memory of all lost streams of the pool's context (their handles are stale) by one
 * event behind all work of the context, which would end a capture there. Needs cuCtxRecordEvent.
 * Makes driver calls. */
fallow_status flw_heap_fence_lost(struct flw_heap *heap);
/* As flw_domain_fence, inside a call on the domain's own stream: if streams may die, only then can
 * the handle be used for a record. */
fallow_status flw_domain_fence_own(struct flw_heap *heap, struct flw_domain *domain);

/* Result of a fence. */
enum flw_fenced {
    FLW_FENCED_NOT,  /* none recorded: impossible, or another thread is recording */
    FLW_FENCED,      /* recorded */
    FLW_FENCED_DONE, /* already complete when queried at once: the memory is unowned or returned */
    FLW_FENCED_LAST  /* the same, and no other fence is outstanding */
};

/* Fence the domain and query the fence at once, for callers that know the device to keep pace; the
 * fence of a foreign domain is not queried. Makes driver calls, in a section of the mode. */
enum flw_fenced flw_domain_fence_done(struct flw_heap *heap, struct flw_domain *domain);

/* Query an event, or wait for it, in a section of at least the mode: an event belongs to its own
 * context, whichever is current. Makes driver calls. */
CUresult flw_fence_ask_event(struct flw_heap *heap, CUevent event, CUresult (*ask)(CUevent event));

/* Enter the driver, query one fence, then call flw_domain_fence and flw_domain_clear. Makes driver
 * calls. */
void flw_domain_fence_cleared(struct flw_heap *heap, struct flw_domain *domain);

/* Clear all outstanding fences of the domain. Those that may belong to a capture are void then,
 * and the result is WOULD_WAIT. Makes driver calls. */
fallow_status flw_domain_clear(struct flw_heap *heap, struct flw_domain *domain);

/* Query the newest fences of every domain; complete memory becomes unowned. True if anything
 * completed. Makes driver calls. */
bool flw_heap_poll(struct flw_heap *heap);
/* The same within a poll, without domains with an oldest fence that this poll found incomplete. */
bool flw_heap_poll_rest(struct flw_heap *heap);
/* Begin a poll; return the number, which is valid until the next one of any thread. Takes the heap
 * lock. */
uint64_t flw_heap_begin_look(struct flw_heap *heap);

/* Query one fence: the oldest or, alternately, another. If complete, the memory becomes unowned.
 * Returns the domain, or NULL; the next fence of that domain may be complete too. If a stream's
 * fences were complete again and again and the caller may leap, a later one is queried first, so
 * that more memory is transferred at once. Cost: one query, or two if a leap was too far, for any
 * number of streams, and one query for a capture per fence. Makes driver calls. */
struct flw_domain *flw_heap_ask_one(struct flw_heap *heap, bool may_leap);
/* True if a fence is outstanding or being recorded, or if, with `taker` not NULL, a stream other
 * than the taker owes one. Heap lock held. */
static inline bool flw_heap_has_open(const struct flw_heap *heap, const struct flw_domain *taker)
{
    const struct flw_domain *first = heap->owing.first;
    bool is_owed =
        taker != NULL && first != NULL && (first != taker || first->owing_behind != NULL);
    return heap->standing.oldest != NULL || heap->recording_count > 0 || is_owed;
}

/* Return the stream other than `taker` that has owed a fence for longest and can have one recorded
 * by this thread; the caller must record the fence, since the stream is in no list any more. NULL:
 * none. Streams that cannot do not owe any more until the next work. Takes the heap lock. */
struct flw_domain *flw_heap_take_owing(struct flw_heap *heap, const struct flw_domain *taker);

/* Wait on the host until `seq` of the domain is complete, recording fences if needed. Makes driver
 * calls. */
fallow_status flw_domain_wait(struct flw_heap *heap, struct flw_domain *domain, uint64_t seq,
                              uint64_t deadline_ns);

/* Order `taker` after `seq` of `donor`, fencing the donor first if `may_record`. Makes driver
 * calls. */
fallow_status flw_domain_order_after(struct flw_heap *heap, struct flw_domain *taker,
                                     struct flw_domain *donor, uint64_t seq, bool may_record);

/* True if the taker is already ordered after that sequence number of the donor. Heap lock held. */
bool flw_domain_is_after(const struct flw_domain *taker, const struct flw_domain *donor,
                         uint64_t seq);

/* Handle a result about an event in the pool's own context, with which alone the event can be
 * lost. */
fallow_status flw_fence_refuse(struct flw_heap *heap, CUresult result, const char *call);

#endif
