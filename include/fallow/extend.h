/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The driver and context of a pool, for code that extends Fallow: kernel modules, host pools, tools.
 */
#ifndef FALLOW_EXTEND_H
#define FALLOW_EXTEND_H

#include "fallow/fallow.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Return the address of an entry point of the pool's driver, by exported name ("cuLaunchKernel"); NULL
 *  if the driver has none. Valid until the pool is destroyed. */
FALLOW_API void *fallow_pool_driver_entry(fallow_pool *pool, const char *symbol);

/** Return the pool's CUcontext. */
FALLOW_API void *fallow_pool_context(fallow_pool *pool);

/** Announce a capture of a stream to all pools of the process. If pools in context order
 *  (FALLOW_ORDER_CONTEXT) are used, call this before cuStreamBeginCapture and
 *  fallow_context_capture_end after cuStreamEndCapture.
 *
 *  During the announcement these pools neither record nor query events, which would end the capture.
 *  A call that needs to synchronise the context of any pool fails with CAPTURING. Leases of arenas
 *  query whether their stream is being captured. Announcements are counted. The first one waits for
 *  an event that is being recorded. */
FALLOW_API void fallow_context_capture_begin(void);
/** End one announcement of fallow_context_capture_begin. */
FALLOW_API void fallow_context_capture_end(void);

#ifdef __cplusplus
}
#endif

#endif
