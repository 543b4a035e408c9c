/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/run.h"

#include "base/bits.h"

#define STEP_BYTES (2 * FLW_MIB) /* the search is not finer than a page of physical memory ... */
#define STEP_SHARE 2048          /* ... or this share of the limit */

static bool completes(const struct flw_run_setup *setup, const struct flw_policy *policy,
                      uint64_t limit_bytes)
{
    struct flw_run_setup limited = *setup;
    struct flw_run_result result;
    limited.limit_bytes = limit_bytes;
    limited.times = false;
    limited.pass_count = 1;
    return flw_run_policy(&limited, policy, &result) && result.failure_count == 0;
}

/* Completion is not strictly monotone in the limit: placement is chaotic near the edge. What comes
 * out is a limit at which the trace completes, and one step below which it did not. */
uint64_t flw_run_find_limit(const struct flw_run_setup *setup, const struct flw_policy *policy,
                            const struct flw_run_result *unlimited)
{
    if (!policy->lends) {
        return policy == &flw_policy_bound ? unlimited->statistics.peak_reserved_bytes
                                           : FLW_NOT_APPLICABLE;
    }
    bool is_limitable = setup->device->is_sim || !policy->limits_by_device;
    if (!is_limitable || !unlimited->has_run || unlimited->failure_count != 0) {
        return FLW_NOT_APPLICABLE;
    }
    uint64_t low = flw_align_down(setup->program->max_live_bytes, STEP_BYTES);
    uint64_t high = flw_align_up(unlimited->statistics.peak_reserved_bytes, STEP_BYTES);
    if (low >= high || !completes(setup, policy, high)) {
        high = flw_align_up(2 * unlimited->statistics.peak_reserved_bytes, STEP_BYTES);
        if (!completes(setup, policy, high)) {
            return FLW_NOT_APPLICABLE;
        }
    }
    while (high - low > STEP_BYTES && high - low > high / STEP_SHARE) {
        uint64_t middle = flw_align_down(low + (high - low) / 2, STEP_BYTES);
        if (middle == low) {
            break;
        }
        if (completes(setup, policy, middle)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return high;
}
