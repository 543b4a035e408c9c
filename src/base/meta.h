/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the host memory of the tables that describe device memory. Device memory is never
 * accessed.
 *
 * An *arena* is a reserved range of addresses; pages appear when used. An arena never moves or
 * shrinks, so a stale offset always reads mapped, typed memory: a free of a wild pointer is
 * refused instead of crashing. The unused tail is readable zeros.
 *
 * Synchronization: one thread at a time calls flw_meta_extend (the page lock); reads need none.
 * Any thread may read refusals. */
#ifndef FLW_BASE_META_H
#define FLW_BASE_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flw_meta {
    unsigned char *base;     /* start of the range, page aligned */
    uint64_t reserved_bytes; /* of address space */
    uint64_t usable_bytes;   /* writable prefix; a multiple of the commit step */
    uint64_t used_bytes;     /* returned by flw_meta_extend */
    uint64_t refusals;       /* failed extensions since the start */
    bool is_full;            /* the last failure: the range is used up */
};

/* Return how much address space the process may still map (RLIMIT_AS); UINT64_MAX = no limit. */
uint64_t flw_meta_allowance(void);

/* Return the address space that a reservation of this size takes. */
uint64_t flw_meta_rounded_bytes(uint64_t reserve_bytes);

/* Reserve address space without memory. On failure nothing is held and false is returned. */
bool flw_meta_reserve(struct flw_meta *meta, uint64_t reserve_bytes);

/* Reserve two ranges, the second's base `distance` (whole pages, at least first_bytes) above the
 * first's, with nothing reserved between. On failure nothing is held and false is returned. */
bool flw_meta_reserve_pair(struct flw_meta *first, uint64_t first_bytes, struct flw_meta *second,
                           uint64_t second_bytes, uint64_t distance);

/* Return the next `bytes`, zero-filled, aligned to `align` (a power of two up to 4096). Returns
 * NULL and counts a refusal if the range is full or the system refuses memory. */
void *flw_meta_extend(struct flw_meta *meta, uint64_t bytes, uint64_t align);

/* Make the whole range writable at once, for tables that are written sparsely. Pages still appear
 * when first touched. */
bool flw_meta_open(struct flw_meta *meta);

void flw_meta_release(struct flw_meta *meta);

#endif
