/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the surroundings that heaps in context order need to know: the contexts of the process,
 * because work of any of them may access the memory of another (peers, copies), and open captures,
 * because recording a context's event would end a capture.
 * Does not: decide when an epoch is closed (pool/streams/epoch.c).
 *
 * An *epoch* is a fence of the domain in context order: one event per live context, complete when
 * all of them are. While a *capture* is open no epoch is closed or queried, so no block that was
 * freed inside is allocated again before the capture ends.
 *
 * Two system locks, which are not taken with a ranked lock held. The captures' lock is held over
 * records and over the driver call that begins a capture. The contexts' lock is held over records,
 * queries of other contexts' events, and the end of a context. Captures first. */
#ifndef FLW_HEAP_ORDER_EPOCH_H
#define FLW_HEAP_ORDER_EPOCH_H

#include "heap/state/state.h"

#define FLW_CONTEXTS_MAX 256

/* ---- contexts, of several drivers, which an entry point distinguishes */

/* Add a context, which may have work from now on. Each add needs a remove. Returns false if there
 * are too many contexts; from then on no epoch is closed. */
bool flw_contexts_add(const struct flw_driver *driver, CUcontext context);
/* Remove a context without work: the driver has destroyed the context, or events of the context
 * are no longer queried. */
void flw_contexts_remove(const struct flw_driver *driver, CUcontext context);
/* Return the number of live contexts of this driver. */
uint32_t flw_contexts_count(const struct flw_driver *driver);
/* Hold over the driver call that ends a context, flw_contexts_drop and flw_heap_forget_context of
 * every heap: no event of the context is queried or recorded meanwhile. */
void flw_contexts_lock(void);
void flw_contexts_unlock(void);
/* Remove a context that is gone, however often it was added. Contexts locked. */
void flw_contexts_drop(const struct flw_driver *driver, CUcontext context);
/* Treat the context's events as complete, since they no longer exist. Contexts locked. */
void flw_heap_forget_context(struct flw_heap *heap, CUcontext context);

/* ---- captures */

/* Hold around the driver call that begins a capture; `has_begun`: it did. */
void flw_captures_lock(void);
void flw_captures_unlock(bool has_begun);
/* Record that one capture has ended. */
void flw_captures_end(void);
bool flw_captures_are_open(void);

/* ---- epochs; make driver calls, with no ranked lock held */

/* Query whether the events of the other contexts are complete, or (is_patient) wait until they
 * are. */
CUresult flw_epoch_ask_others(struct flw_heap *heap, const struct flw_fence *fence,
                              bool is_patient);
/* Synchronise all live contexts: everything freed before is complete. For drivers that cannot
 * record a context. */
fallow_status flw_epoch_sync(struct flw_heap *heap);

/* Return the sequence number that the caller's next synchronisation of the context covers; 0:
 * none, since other contexts are alive. Takes the heap lock. */
uint64_t flw_epoch_begin_sync(struct flw_heap *heap);
void flw_epoch_end_sync(struct flw_heap *heap, uint64_t seq);

/* ---- after a fork: in the child no thread holds anything */
void flw_epoch_renew_locks(void);

#endif
