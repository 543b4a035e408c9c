/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the numbers of lending streams (lender.h).
 */
#include "heap/state/lender.h"

#include <stdatomic.h>

#include "base/bits.h"

bool flw_lenders_init(struct flw_lenders *lenders)
{
    if (!flw_meta_reserve(&lenders->meta, FLW_LENDER_COUNT * sizeof *lenders->ids) ||
        !flw_meta_open(&lenders->meta)) {
        return false;
    }
    lenders->ids = (_Atomic uint64_t *)(void *)lenders->meta.base;
    return true;
}

void flw_lenders_finish(struct flw_lenders *lenders)
{
    flw_meta_release(&lenders->meta);
    lenders->ids = NULL;
}

uint64_t flw_lenders_name(struct flw_lenders *lenders, uint64_t stream_id)
{
    uint64_t number = 1 + lenders->named_count++ % (FLW_LENDER_COUNT - 1);
    atomic_store_explicit(&lenders->ids[number], stream_id, memory_order_relaxed);
    return number << FLW_LENDER_SHIFT;
}

uint64_t flw_lenders_id(const struct flw_lenders *lenders, uint64_t loan)
{
    return atomic_load_explicit(&lenders->ids[loan >> FLW_LENDER_SHIFT], memory_order_relaxed);
}

uint64_t flw_lenders_host_bytes(const struct flw_lenders *lenders)
{
    uint64_t numbers = 1 + flw_min(lenders->named_count, FLW_LENDER_COUNT - 1);
    return numbers * sizeof *lenders->ids;
}
