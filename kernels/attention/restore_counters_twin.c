/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of restore_counters: every counter becomes 0, and nonzero ones are counted. */
#include "common/twin.h"

void flw_twin_restore_counters(struct flw_twin *twin, const struct flw_restore_counters_args *args)
{
    for (int64_t consumer = 0; consumer < args->consumers; consumer++) {
        int32_t restored = 0;
        for (int64_t i = 0; i < args->count; i++) {
            int64_t at = consumer * args->stride + i;
            if (args->restored != NULL) {
                restored += flw_load_i32(twin, "counters", args->counters, at) != 0;
            }
            flw_store_i32(twin, "counters", args->counters, at, 0);
        }
        if (args->restored != NULL) {
            flw_store_i32(twin, "restored", args->restored, consumer, restored);
        }
    }
}
