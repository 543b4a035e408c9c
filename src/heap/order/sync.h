/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the synchronisation of a context. Synchronisations of any pools of the process must not
 * overlap: one ends the captures of the context, and completes the work that it found at the
 * begin. So two of them run one after the other, and none begins while a capture is announced.
 * Does not: handle unannounced captures, or contexts beyond the first 64 (which are not kept
 * apart).
 *
 * flw_ctxsync_*: synchronization internal, by a system mutex that is taken last. Callers that may
 * wait hold no ranked lock. */
#ifndef FLW_HEAP_ORDER_SYNC_H
#define FLW_HEAP_ORDER_SYNC_H

#include "heap/state/state.h"

/* Announce a capture. Waits for a synchronisation under way. */
void flw_ctxsync_announce(const struct flw_driver *driver, CUcontext context);
void flw_ctxsync_retract(const struct flw_driver *driver, CUcontext context);

/* Begin a synchronisation: until flw_ctxsync_end no capture is announced and no other one begins.
 * False: a capture is announced. */
bool flw_ctxsync_begin(const struct flw_driver *driver, CUcontext context);
/* The same for a further context during a synchronisation. Also false if another thread is
 * synchronising it, which may be waiting for the first. */
bool flw_ctxsync_try(const struct flw_driver *driver, CUcontext context);
void flw_ctxsync_end(const struct flw_driver *driver, CUcontext context);

/* In the child of a fork: nothing is under way. */
void flw_ctxsync_renew(void);

/* Run cuCtxSynchronize, which completes everything of this context, fenced or not, and of the
 * contexts of lost foreign streams. Makes driver calls. CAPTURING, DRIVER: nothing is known to be
 * complete. */
fallow_status flw_heap_sync_context(struct flw_heap *heap);
/* Return true if all tracked work is complete, so that cuMemFree, which waits for the device, does
 * not block. Waits for this until until_ns (0: not at all) and counts each wait. From UINT64_MAX -
 * 1 on returns true at once, and counts one wait if the following call may wait. Any other
 * deadline except 0 does the same if the heap cannot track the work: of a stream that may die or
 * that only another thread can name, or without cuCtxRecordEvent in context order. In stream
 * order, work of streams that the pool has never seen is never tracked. Makes driver calls. */
bool flw_heap_await_idle(struct flw_heap *heap, uint64_t until_ns);
/* Wait for the pool's own copies (has_open_copies). False: the driver refuses to wait. Makes
 * driver calls. */
bool flw_heap_end_copies(struct flw_heap *heap);

#endif
