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

#include "base/meta.h"
#include "memory/span.h"

struct flw_lenders {
    struct flw_meta meta;
    _Atomic uint64_t *ids;
    uint64_t named_count;
};

/* False: host memory. A table that was never made may be finished. */
bool flw_lenders_init(struct flw_lenders *lenders);
void flw_lenders_finish(struct flw_lenders *lenders);

/* The next number, for a stream with this id, in its place in a loan. After 65,535 streams the
 * oldest numbers are given again: a block that has lived through all of them then names a younger
 * stream. */
uint64_t flw_lenders_name(struct flw_lenders *lenders, uint64_t stream_id);

/* cuStreamGetId of the stream that a loan came from; 0 unknown. */
uint64_t flw_lenders_id(const struct flw_lenders *lenders, uint64_t loan);

/* In use, not address space. */
uint64_t flw_lenders_host_bytes(const struct flw_lenders *lenders);

#endif
