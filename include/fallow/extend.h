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

/** Around each capture of a stream, from before cuStreamBeginCapture to after cuStreamEndCapture, where
 * pools in context order (FALLOW_ORDER_CONTEXT) are used: they record no event and ask for none
 * meanwhile, since that would end the capture. Nor does any pool synchronise its context then: what has to
 * answers CAPTURING. Leases of arenas query whether their stream is being captured. Counted, for all pools of the process. The first waits for an event that is being
 * recorded. */
FALLOW_API void fallow_context_capture_begin(void);
/** One of the captures that fallow_context_capture_begin announced has ended. */
FALLOW_API void fallow_context_capture_end(void);

#ifdef __cplusplus
}
#endif

#endif
