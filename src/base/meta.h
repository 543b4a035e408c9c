/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the host memory that describes device memory. Everything out of band: nothing here ever
 * touches the device's bytes.
 *
 * An *arena* is one reserved range of address space whose pages appear as they are used and which
 * never moves or shrinks, so a stale offset into it always reads mapped, typed memory: that is what
 * lets a free of a wild pointer be refused instead of crashing. The unused tail is readable zeros.
 *
 * Synchronization: flw_meta_extend by one thread at a time (the page lock); reads need none. Refusals may
 * be read by anyone.
 */
#ifndef FLW_BASE_META_H
#define FLW_BASE_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flw_meta {
    unsigned char *base;     /* start of the range, page aligned */
    uint64_t reserved_bytes; /* address space */
    uint64_t usable_bytes;   /* writable prefix; a multiple of the commit step */
    uint64_t used_bytes;     /* handed out */
    uint64_t refusals;       /* extensions that failed, ever */
    bool is_full;            /* the last one that failed: the range is used up */
};

/* Bytes of address space that the process may still map (RLIMIT_AS); UINT64_MAX: as much as it likes. */
uint64_t flw_meta_allowance(void);

/* The addresses that a reservation of so many bytes takes. */
uint64_t flw_meta_rounded_bytes(uint64_t reserve_bytes);

/* Reserve address space; no memory yet. False: the system refused, nothing is held. */
bool flw_meta_reserve(struct flw_meta *meta, uint64_t reserve_bytes);

/* Two ranges, the second's base `distance` (whole pages, at least first_bytes) above the first's; what lies
 * between is not held. False: the system refused, nothing is held. */
bool flw_meta_reserve_pair(struct flw_meta *first, uint64_t first_bytes, struct flw_meta *second,
                           uint64_t second_bytes, uint64_t distance);

/* Hand out `bytes` more, zero-filled, aligned to `align` (a power of two up to 4096).
 * NULL: the range is full or the system refused memory; nothing changed, but that it is counted. */
void *flw_meta_extend(struct flw_meta *meta, uint64_t bytes, uint64_t align);

/* Make the whole range writable at once (tables that are written sparsely). Pages still appear on
 * first touch. */
bool flw_meta_open(struct flw_meta *meta);

void flw_meta_release(struct flw_meta *meta);

#endif
