/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a map from 64-bit keys (addresses, stream handles) to 32-bit numbers.
 * Does not: keep order. Open addressing with linear probing, at most half full. Code that must not
 * allocate the program's host memory, or move a whole table at once, has tables of its own: a
 * hit's index of caches, the pool's tables of uses and of debug checks, and a host pool's blocks
 * (host/hostblock.h).
 *
 * INVARIANTS
 *   1. slot_count is 0 or a power of two; used_count <= slot_count / 2.
 *   2. No slot between a key's home and the place is empty. */
#ifndef FLW_RECORD_ADDRESSMAP_H
#define FLW_RECORD_ADDRESSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLW_ADDRESSMAP_ABSENT UINT32_MAX /* never a value */

struct flw_addressmap_slot {
    uint64_t key;
    uint32_t value; /* FLW_ADDRESSMAP_ABSENT: empty */
};

/* Zeros are an empty map. */
struct flw_addressmap {
    struct flw_addressmap_slot *slots;
    size_t slot_count;
    size_t used_count;
    unsigned shift; /* of a hash, to the slot */
};

void flw_addressmap_finish(struct flw_addressmap *map);

/* Return the value; FLW_ADDRESSMAP_ABSENT if the key is not in the map. */
uint32_t flw_addressmap_find(const struct flw_addressmap *map, uint64_t key);

/* Insert or replace. False: no memory, the map is unchanged. */
bool flw_addressmap_put(struct flw_addressmap *map, uint64_t key, uint32_t value);

/* The same; *out_old is the previous result of flw_addressmap_find. */
bool flw_addressmap_exchange(struct flw_addressmap *map, uint64_t key, uint32_t value,
                             uint32_t *out_old);

/* Remove a key; return the value, or FLW_ADDRESSMAP_ABSENT. */
uint32_t flw_addressmap_remove(struct flw_addressmap *map, uint64_t key);

#endif
