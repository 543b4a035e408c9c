/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the shadow: in a checked world with contents, one byte of state for each byte. Does not:
 * check order (check.h). Synchronization: the world's lock. */
#ifndef FLW_SIMCUDA_SHADOW_H
#define FLW_SIMCUDA_SHADOW_H

#include "simcuda/storage.h"

#define FLW_SHADOW_UNWRITTEN 0   /* allocated, contains garbage */
#define FLW_SHADOW_OPERATION 253 /* 1..253: written by operation n, modulo */
#define FLW_SHADOW_HOST      254 /* written by the host or another process */
#define FLW_SHADOW_RED       255 /* padding behind an allocation */

void flw_shadow_set(uint64_t address, uint64_t bytes, unsigned char value);
static inline unsigned char flw_shadow_mark(uint64_t sequence)
{
    return (unsigned char)(1 + sequence % FLW_SHADOW_OPERATION);
}
/* Return the offset of the first byte of [address, +bytes) with this value; bytes = none. */
uint64_t flw_shadow_search(uint64_t address, uint64_t bytes, unsigned char value);
void flw_shadow_copy(uint64_t to, uint64_t from, uint64_t bytes);

#endif
