/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the set of blocks that are live when a recording begins.
 *
 * No thread is stopped: the blocks are looked up one after the other while others are allocated
 * and freed. Events after the begin are recorded, and the first record of an address determines
 * the state at the begin, whatever the lookup found: a block that is freed was live, an address
 * that is allocated was not. Only without a record does the lookup count. */
#ifndef FLW_RECORD_WARM_H
#define FLW_RECORD_WARM_H

#include "record/addressmap.h"
#include "record/merge.h"

struct flw_warm_block {
    uint64_t address, size_bytes;
    uint32_t stream, tag, pool;
    bool is_told;    /* a record was seen */
    bool is_not_one; /* it allocated the block, or nothing is known */
};

/* Zeros are empty. */
struct flw_warm {
    struct flw_warm_block *blocks;
    size_t count, room;
    struct flw_addressmap numbers; /* address -> place in blocks */
    bool has_failed;               /* no memory: blocks are missing */
};

void flw_warm_finish(struct flw_warm *warm);

/* Add a block of the lookup, before any record. */
void flw_warm_add(struct flw_warm *warm, const struct flw_warm_block *block);

/* Process every record since the begin, in order. */
void flw_warm_tell(struct flw_warm *warm, const struct flw_merge_record *record);

/* Keep only the blocks that were live, by address; no more records may follow. */
void flw_warm_settle(struct flw_warm *warm);

#endif
