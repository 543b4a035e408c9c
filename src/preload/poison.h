/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: filling what has just been allocated with the byte of the setting `poison`, to find reads
 * of memory that was never written.
 * Does not: allocate, or look whether anybody read it.
 *
 * Fresh memory has no order with any stream, so its fill is done before the caller has it: on a stream
 * of its own that is waited for, never the default stream, which may be under capture or busy for
 * long. It costs tens of microseconds a block; times are not measured under poison. What is
 * allocated in stream order is filled in that order, and not at all while the stream is captured: a
 * graph would fill again and again.
 */
#ifndef FLW_PRELOAD_POISON_H
#define FLW_PRELOAD_POISON_H

#include "driver/driver_types.h"
#include "preload/settings.h"

static inline bool flw_poison_is_on(void)
{
    return flw_settings.poison >= 0;
}

/* The context current where the block was allocated. What the driver refuses is counted, nothing
 * else. */
void flw_poison_fill(CUdeviceptr pointer, size_t bytes);
void flw_poison_fill_on(CUdeviceptr pointer, size_t bytes, CUstream stream);

struct flw_poison_counts {
    uint64_t filled_count, filled_bytes, missed_count; /* missed: captured or refused */
};
void flw_poison_sum(struct flw_poison_counts *out);

#endif
