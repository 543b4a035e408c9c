/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the synchronisation of a context. Some of it must not happen at once, whichever pools of the process
 * are at it: a synchronisation kills the captures of its context, and completes what it found when it began,
 * so two of them are one after the other, and neither begins while a capture is announced.
 * Does not: know of unannounced captures, or of contexts beyond the first 64 (there
 * nothing is kept apart).
 *
 * flw_ctxsync_*: synchronization internal; a mutex of the system, taken last. No ranked lock is held by who
 * may wait.
 */
#ifndef FLW_HEAP_ORDER_SYNC_H
#define FLW_HEAP_ORDER_SYNC_H

#include "heap/state/state.h"

/* Waits for a synchronisation that is under way. */
void flw_ctxsync_announce(const struct flw_driver *driver, CUcontext context);
void flw_ctxsync_retract(const struct flw_driver *driver, CUcontext context);

/* True: until flw_ctxsync_end no capture is announced and no other synchronisation begins. False: one
 * is announced. */
bool flw_ctxsync_begin(const struct flw_driver *driver, CUcontext context);
/* The same for one more context while another is being synchronised: false, too, where somebody is at
 * it, who may be waiting for the first. */
bool flw_ctxsync_try(const struct flw_driver *driver, CUcontext context);
void flw_ctxsync_end(const struct flw_driver *driver, CUcontext context);

/* In the child of a fork: nothing is under way. */
void flw_ctxsync_renew(void);

/* calls. cuCtxSynchronize: completes everything of this context, the unfenced included, and of the
 * contexts of lost foreign streams. Else CAPTURING, DRIVER: nothing is known complete. */
fallow_status flw_heap_sync_context(struct flw_heap *heap);
/* calls. Return true if all tracked work is complete, so that cuMemFree, which waits for the device, does not block.
 * Waits for this until until_ns (0: not at all) and counts each wait. From UINT64_MAX - 1 on returns true at once, and
 * counts one wait if the following call may wait. Any other deadline but 0 does the same if the heap cannot track the
 * work: of a stream that dies or that only another thread can name, or without cuCtxRecordEvent in context order. In
 * stream order, work of streams that the pool was never given is never tracked. */
bool flw_heap_await_idle(struct flw_heap *heap, uint64_t until_ns);
/* calls. Copies of the pool's own (has_open_copies) are over. False: the driver refuses to wait for them. */
bool flw_heap_end_copies(struct flw_heap *heap);

#endif
