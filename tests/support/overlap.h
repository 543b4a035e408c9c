/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the set of allocated address ranges, to find two live blocks that share a byte even if the
 * device cannot (both used by one stream). Exact to the byte. Synchronization: internal, one spin
 * lock for each 2 MiB of addresses. */
#ifndef FLW_TESTS_SUPPORT_OVERLAP_H
#define FLW_TESTS_SUPPORT_OVERLAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flw_overlap;

struct flw_overlap *flw_overlap_create(void);
void flw_overlap_destroy(struct flw_overlap *set);

/* False, and a line on stderr, when a byte of [address, +bytes) is in the set already; then nothing
 * is added beyond that chunk and the run is over anyway. */
bool flw_overlap_claim(struct flw_overlap *set, uint64_t address, uint64_t bytes);
/* Remove a range that was claimed exactly so. */
void flw_overlap_release(struct flw_overlap *set, uint64_t address, uint64_t bytes);

#endif
