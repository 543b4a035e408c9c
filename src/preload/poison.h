/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: filling new blocks with the byte of the setting `poison`, to find reads of unwritten
 * memory.
 * Does not: allocate, or detect the reads.
 *
 * New memory is in no stream's order, so the fill is complete before the caller gets the block: on
 * a stream of its own that is waited for, never the default stream, which may be captured or busy.
 * It costs tens of microseconds a block; do not measure times under poison. Memory allocated in
 * stream order is filled in that order, and not at all while the stream is captured: a graph would
 * fill it with every launch. */
#ifndef FLW_PRELOAD_POISON_H
#define FLW_PRELOAD_POISON_H

#include "driver/driver_types.h"
#include "preload/settings.h"

static inline bool flw_poison_is_on(void)
{
    return flw_settings.poison >= 0;
}

/* Fill a block; the context of the allocation is current. Refusals of the driver are
 * only counted. */
void flw_poison_fill(CUdeviceptr pointer, size_t bytes);
void flw_poison_fill_on(CUdeviceptr pointer, size_t bytes, CUstream stream);

struct flw_poison_counts {
    uint64_t filled_count, filled_bytes, missed_count; /* missed: captured or refused */
};
void flw_poison_sum(struct flw_poison_counts *out);

#endif
