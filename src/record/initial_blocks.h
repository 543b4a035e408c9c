/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the set of blocks that are live when a recording begins.
 *
 * No thread is stopped: the blocks are looked up one after the other while others are allocated
 * and freed. Events after the begin are recorded, and the first record of an address determines
 * the state at the begin, whatever the lookup found: a block that is freed was live, an address
 * that is allocated was not. Only without a record does the lookup count. */
#ifndef FLW_RECORD_INITIAL_BLOCKS_H
#define FLW_RECORD_INITIAL_BLOCKS_H

#include "record/addressmap.h"
#include "record/merge.h"

struct flw_initial_block {
    uint64_t address, size_bytes;
    uint32_t stream, tag, pool;
    bool is_told;    /* a record was seen */
    bool is_not_one; /* allocated the block, or no data */
};

/* Zeros are empty. */
struct flw_initial_blocks {
    struct flw_initial_block *blocks;
    size_t count, room;
    struct flw_addressmap numbers; /* address -> place in blocks */
    bool has_failed;               /* no memory: blocks are missing */
};

void flw_initial_blocks_finish(struct flw_initial_blocks *initial);

/* Add a block of the lookup, before any record. */
void flw_initial_blocks_add(struct flw_initial_blocks *initial,
                            const struct flw_initial_block *block);

/* Process every record since the begin, in order. */
void flw_initial_blocks_update(struct flw_initial_blocks *initial,
                               const struct flw_merge_record *record);

/* Keep only the blocks that were live, by address; no more records may follow. */
void flw_initial_blocks_sort(struct flw_initial_blocks *initial);

#endif
