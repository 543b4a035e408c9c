/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * For code that extends Fallow (kernel modules, host pools, tools): what a pool stands on.
 */
#ifndef FALLOW_EXTEND_H
#define FALLOW_EXTEND_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The address of a driver entry point in the pool's own driver ("cuLaunchKernel"), by exported
 * name; NULL if the driver has none. Valid while the pool lives. */
FALLOW_API void *fallow_pool_driver_entry(fallow_pool *pool, const char *symbol);

/** The pool's CUcontext. */
FALLOW_API void *fallow_pool_context(fallow_pool *pool);

/** Announce a capture of a stream to all pools of the process: call before cuStreamBeginCapture, and
 * fallow_context_capture_end after cuStreamEndCapture, if pools in context order (FALLOW_ORDER_CONTEXT) are used.
 * Between the two, these pools neither record nor query events, since that would end the capture; calls that need to
 * synchronise the context of any pool fail with CAPTURING; and leases of arenas query whether their stream is being
 * captured. Announcements are counted. The first waits for an event that is being recorded. */
FALLOW_API void fallow_context_capture_begin(void);
/** End one announcement of fallow_context_capture_begin. */
FALLOW_API void fallow_context_capture_end(void);

#ifdef __cplusplus
}
#endif

#endif
