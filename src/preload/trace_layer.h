/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the way in which mode trace gets between the wrappers and the driver.
 */
#ifndef FLW_PRELOAD_TRACE_LAYER_H
#define FLW_PRELOAD_TRACE_LAYER_H

#include <stdint.h>

#include "preload/hooks.h"

/* What the wrapper of a hook is to call in the place of `next`; without need of it `next` itself. While
 * the driver is learnt. */
uintptr_t flw_trace_layer(enum flw_hook hook, uintptr_t next);

#endif
