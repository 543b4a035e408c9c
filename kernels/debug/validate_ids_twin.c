/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of validate_ids: ids out of range, and ids that repeat an earlier one of their
 * row. */
#include "debug/report.h"

void flw_twin_validate_ids(struct flw_twin *twin, const struct flw_validate_ids_args *args)
{
    struct flw_finding range = {0}, twice = {0};
    int64_t valid = flw_load_scalar(twin, "valid_rows", args->valid_rows, args->rows);
    for (int64_t row = 0; row < args->rows && row < valid; row++) {
        int32_t seen[64];
        for (int32_t j = 0; j < args->top_k; j++) {
            int64_t at = row * args->stride + j;
            bool is_double = false;
            seen[j] = flw_load_i32(twin, "ids", args->ids, at);
            if (seen[j] < -1 || seen[j] >= args->id_count) {
                flw_finding_add(&range, at * 4);
            }
            for (int32_t i = 0; i < j && seen[j] != -1; i++) {
                is_double = is_double || seen[i] == seen[j];
            }
            if (is_double) {
                flw_finding_add(&twice, at * 4);
            }
        }
    }
    flw_report(twin, &args->report->range_count, &range);
    flw_report(twin, &args->report->double_count, &twice);
}
