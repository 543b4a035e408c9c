/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: chunks of pinned memory and their free runs of pages: best fit, joined with neighbours.
 * The tables are in ordinary host memory; pinned bytes are never accessed.
 * Does not: make driver calls, or know blocks. Synchronization: the pool's lock around every call.
 *
 * Three kinds of chunk, which are mixed only if there is no alternative: a small block that stays
 * would keep a chunk created for weights, and the space between larger blocks from joining.
 *
 * INVARIANTS (flw_pages_broken_invariant recomputes them)
 *   1. A free run's first and last page have the length; no two free runs of a chunk touch.
 *   2. Every free run is in the bin of the length and the chunk's kind, and in no other.
 *   3. free_pages of a chunk is the sum over the chunk's free runs. free_bytes is the sum over all chunks, and all_bytes
 *      the sum of the lengths of all chunks. */
#ifndef FLW_HOST_PAGES_H
#define FLW_HOST_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/meta.h"

#define FLW_HOST_PAGE 4096ull

enum flw_page_kind {
    FLW_PAGES_SMALL, /* jemalloc's extents, and other small blocks */
    FLW_PAGES_MEDIUM,
    FLW_PAGES_LARGE, /* mostly one block per chunk */
    FLW_PAGE_KINDS
};

struct flw_chunk;

/* One per page; used at the begin and end of a free run. */
struct flw_page_run {
    struct flw_page_run *next, *prev; /* in the bin; first page only */
    struct flw_chunk *chunk;          /* first page only */
    uint32_t page_count;              /* first page of a free run; otherwise 0 */
    uint32_t count_back;              /* last page of a free run; otherwise 0 */
};

struct flw_chunk {
    unsigned char *base;
    struct flw_page_run *runs;
    struct flw_chunk *next_unused;
    uint32_t page_count, free_pages;
    enum flw_page_kind kind;
    bool is_registered; /* mapped and registered by us, rather than allocated by the driver */
    bool is_bound;      /* to a NUMA node */
};

#define FLW_PAGE_BINS 144

struct flw_pages {
    struct flw_meta chunk_meta, order_meta;
    struct flw_chunk **chunks; /* by address */
    uint32_t chunk_count, chunk_capacity;
    struct flw_chunk *unused_chunks;
    struct flw_page_run *bins[FLW_PAGE_KINDS][FLW_PAGE_BINS];
    uint64_t occupied[FLW_PAGE_KINDS][3]; /* bit: the bin is not empty */
    uint64_t all_bytes, free_bytes;
};

bool flw_pages_init(struct flw_pages *pages);
void flw_pages_finish(struct flw_pages *pages);

/* Create a chunk without memory, with the tables ready, so that publish cannot fail. NULL: no host
 * memory. */
struct flw_chunk *flw_pages_new_chunk(struct flw_pages *pages, uint64_t bytes,
                                      enum flw_page_kind kind);
/* Free the tables of a chunk that is not in the list. */
void flw_pages_drop_chunk(struct flw_pages *pages, struct flw_chunk *chunk);
/* Make all of it free. */
void flw_pages_publish(struct flw_pages *pages, struct flw_chunk *chunk);
/* Remove a wholly free chunk; the memory has no owner then. */
void flw_pages_withdraw(struct flw_pages *pages, struct flw_chunk *chunk);
/* Return the largest wholly free chunk of any kind, or NULL. */
struct flw_chunk *flw_pages_idle_chunk(const struct flw_pages *pages);
/* Return the chunk that contains an address, or NULL. */
struct flw_chunk *flw_pages_chunk_at(const struct flw_pages *pages, const void *address);

/* Take the smallest free run that holds so many bytes and is no longer than most_bytes, cut to
 * whole pages; NULL: none. */
void *flw_pages_take(struct flw_pages *pages, uint64_t bytes, enum flw_page_kind kind,
                     uint64_t most_bytes);
/* The same from every kind, of any length. */
void *flw_pages_take_any(struct flw_pages *pages, uint64_t bytes);
/* Return taken pages, or parts of them. */
void flw_pages_put(struct flw_pages *pages, void *address, uint64_t bytes);

/* Return the host memory of the tables. */
uint64_t flw_pages_table_bytes(const struct flw_pages *pages);

/* Return a description of the first violation; NULL: none. */
const char *flw_pages_broken_invariant(const struct flw_pages *pages);

static inline uint64_t flw_chunk_bytes(const struct flw_chunk *chunk)
{
    return chunk->page_count * FLW_HOST_PAGE;
}

#endif
