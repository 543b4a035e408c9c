/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: who lent a block: streams get numbers short enough for the upper bits of a slot's loan, and
 * keep their ids here when they are gone. Does not: order anything.
 *
 * INVARIANT  ids[n] is the id of the stream that got number n last; 0 is nobody's number, id 0.
 *
 * Synchronization: naming under the heap lock; asked by anyone.
 */
#ifndef FLW_HEAP_STATE_LENDER_H
#define FLW_HEAP_STATE_LENDER_H

#include "base/bits.h"
#include "base/meta.h"
#include "memory/span.h"

struct flw_lenders {
    struct flw_meta meta;
    _Atomic uint64_t *ids;
    uint64_t named_count;
};

/* False: host memory. A table that was never made may be finished. */
static inline bool flw_lenders_init(struct flw_lenders *lenders)
{
    if (!flw_meta_reserve(&lenders->meta, FLW_LENDER_COUNT * sizeof *lenders->ids) ||
        !flw_meta_open(&lenders->meta)) {
        return false;
    }
    lenders->ids = (_Atomic uint64_t *)(void *)lenders->meta.base;
    return true;
}

static inline void flw_lenders_finish(struct flw_lenders *lenders)
{
    flw_meta_release(&lenders->meta);
    lenders->ids = NULL;
}

/* The next number, for a stream with this id, in its place in a loan. After 65,535 streams the
 * oldest numbers are given again: a block that has lived through all of them then names a younger
 * stream. */
static inline uint64_t flw_lenders_name(struct flw_lenders *lenders, uint64_t stream_id)
{
    uint64_t number = 1 + lenders->named_count++ % (FLW_LENDER_COUNT - 1);
    atomic_store_explicit(&lenders->ids[number], stream_id, memory_order_relaxed);
    return number << FLW_LENDER_SHIFT;
}

/* cuStreamGetId of the stream that a loan came from; 0 unknown. */
static inline uint64_t flw_lenders_id(const struct flw_lenders *lenders, uint64_t loan)
{
    return atomic_load_explicit(&lenders->ids[loan >> FLW_LENDER_SHIFT], memory_order_relaxed);
}

/* In use, not address space. */
static inline uint64_t flw_lenders_host_bytes(const struct flw_lenders *lenders)
{
    uint64_t numbers = 1 + flw_min(lenders->named_count, FLW_LENDER_COUNT - 1);
    return numbers * sizeof *lenders->ids;
}

#endif
