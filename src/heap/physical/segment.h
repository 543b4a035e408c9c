/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: giving segments back to the driver, which waits for the device (flw_heap_await_idle).
 * Does not: decide how many (shrink.c) or get them (grow.c).
 */
#ifndef FLW_HEAP_PHYSICAL_SEGMENT_H
#define FLW_HEAP_PHYSICAL_SEGMENT_H

#include "heap/state/state.h"

/* calls. Release the next idle segment; what it counted for, or 0. Each is looked at once until the looks begin anew
 * (segments.next_to_release). *is_idle: the device was found idle, and need not be asked. */
uint64_t flw_segment_release_one(struct flw_heap *heap, uint64_t until_ns, bool *is_idle);

#endif
