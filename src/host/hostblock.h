/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: a record of each block, found by address, so that frees of other pointers are refused; and
 * the uses that hold it back. Everything is separate from the pinned memory.
 * Does not: own memory or order. Synchronization: the pool's lock.
 *
 * INVARIANTS (flw_blocks_broken_invariant recomputes them)
 *   1. Every block that is live or deferred is in the chain of the address, once; no other is.
 *   2. The buckets in use are 2^level + split; the chains hold block_count blocks. */
#ifndef FLW_HOST_HOSTBLOCK_H
#define FLW_HOST_HOSTBLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/meta.h"

struct flw_hostblock;
struct flw_hoststream;

/* A block waits for a stream. In the stream's open uses, in a fence, or announced by the block. */
struct flw_hostuse {
    struct flw_hostuse *next;
    struct flw_hostblock *block;
    struct flw_hoststream *stream; /* of an announced use */
};

struct flw_hostblock {
    unsigned char *base;
    uint64_t bytes;             /* as requested */
    struct flw_hostblock *next; /* in a chain, or unused */
    struct flw_hostuse own;     /* the use by the free */
    struct flw_hostuse *announced;
    uint32_t awaits;  /* uses in streams and fences */
    bool is_live;     /* otherwise deferred */
    bool is_small;    /* allocated by jemalloc */
    bool is_returned; /* removed from the table, being returned */
};

struct flw_blocks {
    struct flw_meta block_meta, use_meta, bucket_meta;
    struct flw_hostblock **buckets, *unused;
    struct flw_hostuse *unused_uses;
    uint64_t block_count;
    uint32_t level, split; /* linear hashing: one more bucket per excess block */
};

bool flw_blocks_init(struct flw_blocks *blocks);
void flw_blocks_finish(struct flw_blocks *blocks);

/* Add a record to the table; NULL: no host memory. */
struct flw_hostblock *flw_blocks_add(struct flw_blocks *blocks, void *base, uint64_t bytes);
struct flw_hostblock *flw_blocks_find(const struct flw_blocks *blocks, const void *base);
/* Remove a record from the table; the caller keeps it until it is dropped. */
void flw_blocks_remove(struct flw_blocks *blocks, struct flw_hostblock *block);
void flw_blocks_drop(struct flw_blocks *blocks, struct flw_hostblock *block);

struct flw_hostuse *flw_blocks_new_use(struct flw_blocks *blocks);
void flw_blocks_drop_use(struct flw_blocks *blocks, struct flw_hostuse *use);

/* Visit every block of the table. */
void flw_blocks_visit(const struct flw_blocks *blocks,
                      void (*visit)(void *context, const struct flw_hostblock *block),
                      void *context);
uint64_t flw_blocks_table_bytes(const struct flw_blocks *blocks);
const char *flw_blocks_broken_invariant(const struct flw_blocks *blocks);

#endif
