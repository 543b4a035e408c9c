/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the table of blocks and the update by records. */
#include "record/initial_blocks.h"

#include <stdlib.h>

#include "record/array.h"

void flw_initial_blocks_finish(struct flw_initial_blocks *initial)
{
    flw_addressmap_finish(&initial->numbers);
    free(initial->blocks);
    *initial = (struct flw_initial_blocks){0};
}

void flw_initial_blocks_add(struct flw_initial_blocks *initial,
                            const struct flw_initial_block *block)
{
    if (!FLW_ARRAY_FITS(initial->blocks, initial->count, initial->room) ||
        initial->count >= FLW_ADDRESSMAP_ABSENT) {
        initial->has_failed = true;
        return;
    }
    if (!flw_addressmap_put(&initial->numbers, block->address, (uint32_t)initial->count)) {
        initial->has_failed = true;
        return;
    }
    initial->blocks[initial->count++] = *block;
}

void flw_initial_blocks_update(struct flw_initial_blocks *initial,
                               const struct flw_merge_record *record)
{
    if (record->op != FLW_TRACE_ALLOC && record->op != FLW_TRACE_FREE) {
        return;
    }
    bool is_live_now = record->op == FLW_TRACE_ALLOC;
    uint32_t number = flw_addressmap_find(&initial->numbers, record->address);
    if (number == FLW_ADDRESSMAP_ABSENT) {
        flw_initial_blocks_add(initial,
                               &(struct flw_initial_block){.address = record->address,
                                                           .size_bytes = record->size_bytes,
                                                           .stream = record->stream,
                                                           .is_told = true,
                                                           .is_not_one = is_live_now});
    } else if (!initial->blocks[number].is_told) {
        initial->blocks[number].is_told = true;
        initial->blocks[number].is_not_one = is_live_now;
    }
}

static int by_address(const void *left, const void *right)
{
    const struct flw_initial_block *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

void flw_initial_blocks_sort(struct flw_initial_blocks *initial)
{
    size_t kept = 0;
    for (size_t i = 0; i < initial->count; i++) {
        if (!initial->blocks[i].is_not_one) {
            initial->blocks[kept++] = initial->blocks[i];
        }
    }
    initial->count = kept;
    flw_addressmap_finish(&initial->numbers);
    if (kept > 0) {
        qsort(initial->blocks, kept, sizeof *initial->blocks, by_address);
    }
}
