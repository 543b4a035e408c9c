/* SPDX-License-Identifier: Apache-2.0 */
#include "arena/plan.h"

#include "base/bits.h"

/* Stand-in until the search is there: first fit in the given order. */
uint64_t flw_plan_lower_bound(const struct flw_plan_item *items, size_t count)
{
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t alive = 0;
        for (size_t j = 0; j < count; j++) {
            alive += items[j].first_phase <= items[i].first_phase &&
                             items[i].first_phase <= items[j].last_phase
                         ? items[j].bytes
                         : 0;
        }
        most = flw_max(most, alive);
    }
    return most;
}

bool flw_plan_place(struct flw_plan_item *items, size_t count, uint64_t effort_ns,
                    uint64_t *out_bytes)
{
    (void)effort_ns;
    *out_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t at = 0;
        for (size_t j = 0; j < i; j++) {
            const struct flw_plan_item *b = &items[j];
            if (b->first_phase <= items[i].last_phase && items[i].first_phase <= b->last_phase &&
                b->offset < at + items[i].bytes && at < b->offset + b->bytes) {
                at = flw_align_up(b->offset + b->bytes, items[i].align_bytes);
                j = (size_t)-1;
            }
        }
        items[i].offset = at;
        *out_bytes = flw_max(*out_bytes, at + items[i].bytes);
    }
    return true;
}
