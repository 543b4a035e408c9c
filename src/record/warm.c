/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the table of blocks and the update by records. */
#include "record/warm.h"

#include <stdlib.h>

#include "record/array.h"

void flw_warm_finish(struct flw_warm *warm)
{
    flw_addressmap_finish(&warm->numbers);
    free(warm->blocks);
    *warm = (struct flw_warm){0};
}

void flw_warm_add(struct flw_warm *warm, const struct flw_warm_block *block)
{
    if (!FLW_ARRAY_FITS(warm->blocks, warm->count, warm->room) ||
        warm->count >= FLW_ADDRESSMAP_ABSENT) {
        warm->has_failed = true;
        return;
    }
    if (!flw_addressmap_put(&warm->numbers, block->address, (uint32_t)warm->count)) {
        warm->has_failed = true;
        return;
    }
    warm->blocks[warm->count++] = *block;
}

void flw_warm_tell(struct flw_warm *warm, const struct flw_merge_record *record)
{
    if (record->op != FLW_TRACE_ALLOC && record->op != FLW_TRACE_FREE) {
        return;
    }
    bool is_live_now = record->op == FLW_TRACE_ALLOC;
    uint32_t number = flw_addressmap_find(&warm->numbers, record->address);
    if (number == FLW_ADDRESSMAP_ABSENT) {
        flw_warm_add(warm, &(struct flw_warm_block){.address = record->address,
                                                    .size_bytes = record->size_bytes,
                                                    .stream = record->stream,
                                                    .is_told = true,
                                                    .is_not_one = is_live_now});
    } else if (!warm->blocks[number].is_told) {
        warm->blocks[number].is_told = true;
        warm->blocks[number].is_not_one = is_live_now;
    }
}

static int by_address(const void *left, const void *right)
{
    const struct flw_warm_block *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

void flw_warm_settle(struct flw_warm *warm)
{
    size_t kept = 0;
    for (size_t i = 0; i < warm->count; i++) {
        if (!warm->blocks[i].is_not_one) {
            warm->blocks[kept++] = warm->blocks[i];
        }
    }
    warm->count = kept;
    flw_addressmap_finish(&warm->numbers);
    if (kept > 0) {
        qsort(warm->blocks, kept, sizeof *warm->blocks, by_address);
    }
}
