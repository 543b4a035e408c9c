/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the insertion of mode trace between the wrappers and the driver. */
#ifndef FLW_PRELOAD_TRACE_LAYER_H
#define FLW_PRELOAD_TRACE_LAYER_H

#include <stdint.h>

#include "preload/hooks.h"

/* Return the function that a hook's wrapper calls instead of `next`, or `next` itself. While the
 * driver is looked up. */
uintptr_t flw_trace_layer(enum flw_hook hook, uintptr_t next);

#endif
