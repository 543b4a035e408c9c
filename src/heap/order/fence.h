/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: fences: recorded (fence.c), asked for, waited for by the host or by another stream (wait.c).
 */
#ifndef FLW_HEAP_ORDER_FENCE_H
#define FLW_HEAP_ORDER_FENCE_H

#include "heap/state/state.h"

/* lock. Can this thread have a fence recorded on the domain? `is_own`: inside a call on its stream. */
bool flw_domain_can_fence(const struct flw_heap *heap, const struct flw_domain *domain,
                          bool is_own);

/* calls. Make an event cover every sequence number so far. OK also when another thread is at it or
 * nothing was marked since the last one. INVALID_STREAM: it is gone, the domain is now lost.
 * WOULD_WAIT: not now, or not by this thread. DRIVER: refused (domain.refuses_fences). */
fallow_status flw_domain_fence(struct flw_heap *heap, struct flw_domain *domain);
/* calls. Cover the memory of all lost streams of the pool's context (their handles are stale) by one event behind all
 * work of the context. The event would end a capture under way there. Needs cuCtxRecordEvent. */
fallow_status flw_heap_fence_lost(struct flw_heap *heap);
/* The same inside a call on the domain's own stream: where streams may die without notice, only then
 * is its handle good for a record. */
fallow_status flw_domain_fence_own(struct flw_heap *heap, struct flw_domain *domain);

/* What came of a fence. */
enum flw_fenced {
    FLW_FENCED_NOT, /* none was recorded: it could not be, or another thread is at it */
    FLW_FENCED,     /* it stands */
    FLW_FENCED_DONE, /* it was done when it was asked for at once: what it covers is unowned or settled */
    FLW_FENCED_LAST /* the same, and no fence stands any more */
};

/* calls, in a section of the mode. The same, and the fence is asked for at once, by whoever knows that the device keeps
 * pace; a foreign domain's is not asked for. */
enum flw_fenced flw_domain_fence_done(struct flw_heap *heap, struct flw_domain *domain);

/* calls, in a section of at least the mode: an event is of its own context, whichever is current. */
CUresult flw_fence_ask_event(struct flw_heap *heap, CUevent event, CUresult (*ask)(CUevent event));

/* calls. Enter the driver, query one fence, then call flw_domain_fence and flw_domain_clear. */
void flw_domain_fence_cleared(struct flw_heap *heap, struct flw_domain *domain);

/* calls. See that all of its fences that stand are cleared: those that a capture may have taken are void
 * then, and WOULD_WAIT says so. */
fallow_status flw_domain_clear(struct flw_heap *heap, struct flw_domain *domain);

/* calls. Ask the newest fences of every domain; make what is complete unowned. True if anything
 * completed. */
bool flw_heap_poll(struct flw_heap *heap);
/* calls. The same within the look: without the domains whose oldest fence was not done when it was asked. */
bool flw_heap_poll_rest(struct flw_heap *heap);
/* takes the lock. Its number; it lasts until the next one, of whichever thread. */
uint64_t flw_heap_begin_look(struct flw_heap *heap);

/* calls. Ask one fence, whichever was recorded first, or, by turns, another; what it covers is unowned if it is
 * complete. The place of its domain then, and the next may be complete, too; else NULL. Where a stream's fences were
 * done again and again, a later one is asked first, if the caller may leap: more changes hands at once. Cost: one
 * query, or two where a leap went too far, whatever the number of streams, and one question for a capture for each
 * fence that stands. */
struct flw_domain *flw_heap_ask_one(struct flw_heap *heap, bool may_leap);
/* lock. Does a fence stand, or is one being recorded? Or, unless `taker` is NULL, does a stream owe one, but for the taker? */
static inline bool flw_heap_has_open(const struct flw_heap *heap, const struct flw_domain *taker)
{
    const struct flw_domain *first = heap->owing.first;
    bool is_owed =
        taker != NULL && first != NULL && (first != taker || first->owing_behind != NULL);
    return heap->standing.oldest != NULL || heap->recording_count > 0 || is_owed;
}

/* takes the lock. The stream, but for `taker`, that has owed a fence for longest and can have one recorded by this
 * thread, which the caller does then: it is in no list any more. NULL: none. Those that cannot do not owe any more,
 * until they get something. */
struct flw_domain *flw_heap_take_owing(struct flw_heap *heap, const struct flw_domain *taker);

/* calls. Wait on the host until `seq` of the domain is complete; fences first if need be. */
fallow_status flw_domain_wait(struct flw_heap *heap, struct flw_domain *domain, uint64_t seq,
                              uint64_t deadline_ns);

/* calls. Order `taker` after `seq` of `donor`, fencing it first if `may_record`. */
fallow_status flw_domain_order_after(struct flw_heap *heap, struct flw_domain *taker,
                                     struct flw_domain *donor, uint64_t seq, bool may_record);

/* lock. Has the taker been ordered after that sequence number of the donor's already? */
bool flw_domain_is_after(const struct flw_domain *taker, const struct flw_domain *donor,
                         uint64_t seq);

/* An answer about an event in the pool's own context: only with that can it have gone. */
fallow_status flw_fence_refuse(struct flw_heap *heap, CUresult result, const char *call);

#endif
