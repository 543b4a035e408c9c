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

#ifdef __cplusplus
}
#endif

#endif
