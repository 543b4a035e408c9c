/* SPDX-License-Identifier: Apache-2.0
 *
 * Owns: the rule for the bucket of an id, for twins.
 * Does not: count. */
#ifndef FLW_KERNELS_EXPERT_IDS_TWIN_H
#define FLW_KERNELS_EXPERT_IDS_TWIN_H

#include "common/twin.h"
#include "moe/expert_ids.h"

/* Return the bucket of flat index i, -1 if it has none. */
static inline int32_t flw_twin_bucket(struct flw_twin *twin, const struct flw_expert_ids *ids,
                                      int64_t i, int32_t *bits)
{
    int64_t id = flw_load_int(twin, "ids", ids->ids, i, ids->is_i64 ? FALLOW_I64 : FALLOW_I32);
    int64_t limit = (int64_t)ids->map_count - ids->shift;
    if (id < -1 || id >= limit) {
        *bits |= FALLOW_FLAG_INDEX;
        return -1;
    }
    int64_t bucket = id + ids->shift;
    if (bucket >= 0 && ids->map != NULL) {
        bucket = flw_load_i32(twin, "expert_map", ids->map, bucket);
        if (bucket < -1 || bucket >= ids->buckets) {
            *bits |= FALLOW_FLAG_INDEX;
            return -1;
        }
    }
    return (int32_t)bucket;
}

#endif
