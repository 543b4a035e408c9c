/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: releasing segments to the driver, which waits for the device (flw_heap_await_idle).
 * Does not: decide how many (shrink.c) or get them (grow.c).
 */
#ifndef FLW_HEAP_PHYSICAL_SEGMENT_H
#define FLW_HEAP_PHYSICAL_SEGMENT_H

#include "heap/state/state.h"

/* Release the next idle segment; return the bytes counted for it, or 0. Each segment is tried once
 * until the scan restarts (segments.next_to_release). *is_idle: the device was found idle, so no
 * query is needed. Makes driver calls. */
uint64_t flw_segment_release_one(struct flw_heap *heap, uint64_t until_ns, bool *is_idle);

#endif
