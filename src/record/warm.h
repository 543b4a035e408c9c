/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: which blocks were allocated when a recording begins.
 *
 * No thread is stopped for it: the blocks are looked up one after the other while others come and
 * go. What happens after the beginning is on record, and the first record of an address says how it
 * was at the beginning, whatever the look-up saw: a block that is freed was allocated, one that is
 * allocated was not. Only where there is no record at all the look-up counts.
 */
#ifndef FLW_RECORD_WARM_H
#define FLW_RECORD_WARM_H

#include "record/addressmap.h"
#include "record/merge.h"

struct flw_warm_block {
    uint64_t address, size_bytes;
    uint32_t stream, tag, pool;
    bool is_told;    /* a record has been seen */
    bool is_not_one; /* that allocated it, or it is not known */
};

/* All zero is empty. */
struct flw_warm {
    struct flw_warm_block *blocks;
    size_t count, room;
    struct flw_addressmap numbers; /* address -> place in blocks */
    bool has_failed;               /* no memory: blocks are missing */
};

void flw_warm_finish(struct flw_warm *warm);

/* From the look-up, before any record. */
void flw_warm_add(struct flw_warm *warm, const struct flw_warm_block *block);

/* Every record since the beginning, in order. */
void flw_warm_tell(struct flw_warm *warm, const struct flw_merge_record *record);

/* Only the blocks that were allocated are left, by address; nothing may be told any more. */
void flw_warm_settle(struct flw_warm *warm);

#endif
