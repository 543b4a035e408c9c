/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: what every heap in context order of the process must know of its surroundings: which
 * contexts are alive, since work of any of them may touch the memory of another (peers, copies), and
 * whether a stream is being captured, since to record a context's event then would kill the capture.
 * Does not: decide when an epoch is closed (pool/streams/epoch.c).
 *
 * An *epoch* is a fence of the domain in context order: one event a live context. It is complete when
 * all of them are. While a *capture* is open no epoch is closed and none is asked for, so that nothing
 * that was freed inside of it is allocated again before its end.
 *
 * Two locks of the system, neither taken with a ranked lock held: that of the captures is held over
 * the record and over the driver call that begins a capture, that of the contexts over records,
 * questions about the events of other contexts, and the end of a context. Captures first.
 */
#ifndef FLW_HEAP_ORDER_EPOCH_H
#define FLW_HEAP_ORDER_EPOCH_H

#include "heap/state/state.h"

#define FLW_CONTEXTS_MAX 256

/* ---- contexts; of several drivers: told apart by an entry point */

/* A context may have work from now on. As often as it is added, it has to be removed. False: there were too
 * many at once; from then on no epoch is closed. */
bool flw_contexts_add(const struct flw_driver *driver, CUcontext context);
/* Its work is over: call it when the driver has destroyed it, or is not to be asked any more. */
void flw_contexts_remove(const struct flw_driver *driver, CUcontext context);
/* How many are alive of this driver. */
uint32_t flw_contexts_count(const struct flw_driver *driver);
/* Over the driver call that ends a context, flw_contexts_drop and flw_heap_forget_context of every
 * heap: no event of it is asked for or recorded meanwhile. */
void flw_contexts_lock(void);
void flw_contexts_unlock(void);
/* contexts locked. It is gone, however often it was added. */
void flw_contexts_drop(const struct flw_driver *driver, CUcontext context);
/* contexts locked. Its events are no more: what they stood for is complete. */
void flw_heap_forget_context(struct flw_heap *heap, CUcontext context);

/* ---- captures */

/* Around the driver call that begins a capture; `has_begun`: it did. */
void flw_captures_lock(void);
void flw_captures_unlock(bool has_begun);
/* One of those that had begun is over. */
void flw_captures_end(void);
bool flw_captures_are_open(void);

/* ---- epochs; driver calls, no ranked lock held */

/* Are the events of the other contexts complete, or (is_patient) wait until they are. */
CUresult flw_epoch_ask_others(struct flw_heap *heap, const struct flw_fence *fence,
                              bool is_patient);
/* Synchronise all live contexts: everything that was freed before is complete. For drivers that cannot
 * record a context. */
fallow_status flw_epoch_sync(struct flw_heap *heap);

/* A synchronisation of the context that the caller is about to make covers what was freed before:
 * its sequence number; 0: it covers nothing, since other contexts are alive. Takes the lock. */
uint64_t flw_epoch_begin_sync(struct flw_heap *heap);
void flw_epoch_end_sync(struct flw_heap *heap, uint64_t seq);

/* ---- after a fork: in the child no thread holds anything */
void flw_epoch_renew_locks(void);

#endif
