/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: how threads that record wake the one that writes.
 */
#ifndef FLW_RECORD_BELL_H
#define FLW_RECORD_BELL_H

#include <stdatomic.h>
#include <stdint.h>

/* Counts how often it was called. All zero is a new one. */
struct flw_bell {
    _Atomic uint32_t count;
};

static inline uint32_t flw_bell_count(const struct flw_bell *bell)
{
    return atomic_load_explicit(&bell->count, memory_order_acquire);
}

/* A system call. */
void flw_bell_ring(struct flw_bell *bell);

/* Until the count is another than `heard`, or so many ns have passed, or sooner. */
void flw_bell_wait(struct flw_bell *bell, uint32_t heard, uint64_t most_ns);

#endif
